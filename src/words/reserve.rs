//! `BF.RESERVE key error_rate capacity [EXPANSION e] [NONSCALING] [SEED s] [LAYOUT native | redisbloom]`

use super::creation::{KindWords, LayoutName, Seed};
use super::{Creation, Kind, Refusal, Usual, is, numbers, word};
use crate::bloom::Scaling;
use crate::bloom::redisbloom::CAPACITY_MAX;

/// All options together.
const WORDS_MAX: usize = 11;

/// Reads the words; what is wrong with the rate is said before what is wrong with the capacity, and so on.
///
/// # Errors
/// What is wrong with the words. Nothing else: there need not be memory for the filter.
pub fn parse<W: AsRef<[u8]>>(words: &[W], usual: &Usual) -> Result<Creation, Refusal> {
    let must_obey = usual.must_obey;
    if words.len() > WORDS_MAX && !must_obey {
        return Err(Refusal::Arity);
    }
    let rate = numbers::float(word(words, 2)?).ok_or(Refusal::BadRate)?;
    if !numbers::is_rate(rate) {
        return Err(Refusal::RateRange);
    }
    let capacity = numbers::integer(word(words, 3)?).ok_or(Refusal::BadCapacity)?;
    let capacity = u64::try_from(capacity).ok().filter(|capacity| *capacity > 0).ok_or(Refusal::CapacityRange)?;

    let (mut expansion, mut fixed, mut kind) = (None, false, KindWords::default());
    let mut index = 4;
    while index < words.len() {
        let option = word(words, index)?;
        let value = |missing| word(words, index + 1).map_err(|_| missing);
        let mut taken = 2;
        if is(option, "EXPANSION") {
            let number = numbers::integer(value(Refusal::NoExpansion)?).ok_or(Refusal::BadExpansion)?;
            expansion = Some(numbers::expansion(number, must_obey).ok_or(Refusal::ExpansionRange)?);
        } else if is(option, "SEED") {
            let seed = numbers::seed(value(Refusal::NoSeed)?).ok_or(Refusal::BadSeed)?;
            kind.seed = Some(Seed::Number(seed));
        } else if is(option, "LAYOUT") {
            kind.layout = Some(LayoutName::named(value(Refusal::NoLayout)?).ok_or(Refusal::BadLayout)?);
        } else if is(option, "NONSCALING") {
            (fixed, taken) = (true, 1);
        } else if must_obey {
            // RedisBloom passes over words that it does not know.
            taken = 1;
        } else {
            return Err(Refusal::Syntax);
        }
        index += taken;
    }
    let scaling = match (expansion, fixed) {
        (Some(1..), true) => return Err(Refusal::FixedExpansion),
        (_, true) => Scaling::Fixed,
        (Some(expansion), false) => Scaling::from_expansion(expansion),
        (None, false) => usual.scaling,
    };
    let kind = kind.kind(usual)?;
    if kind == Kind::RedisBloom && capacity > CAPACITY_MAX && !must_obey {
        return Err(Refusal::CapacityRange);
    }
    Ok(Creation { rate, capacity, scaling, kind, scale_to: None })
}
