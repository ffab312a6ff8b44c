//! `BF.RESERVE key error_rate capacity [option ...]`

use super::options::{Command, Creation, Given, Value, layout, rate_and_capacity};
use super::{Refusal, is, numbers, word};
use crate::kinds::{Defaults, Request, Seed};

/// The most words a client may give, without those of our own options: RedisBloom's limit, and SEED and LAYOUT.
const WORDS_MAX: usize = 11;

/// Parses the words. A wrong rate is reported before a wrong capacity, and both before a wrong option.
pub fn parse<W: AsRef<[u8]>>(words: &[W], defaults: &Defaults) -> Result<Creation, Refusal> {
    let must_obey = defaults.must_obey;
    if words.len() > WORDS_MAX && !must_obey {
        let options = words.iter().skip(4).filter_map(|word| Command::Reserve.option(word.as_ref(), false));
        let lengths =
            options.filter(|option| option.is_extension).map(|option| if option.value == Value::Flag { 1 } else { 2 });
        let extensions: usize = lengths.sum();
        if words.len() - extensions.min(words.len()) > WORDS_MAX {
            return Err(Refusal::Arity);
        }
    }
    let request = rate_and_capacity(Command::Reserve, words, defaults)?;
    let given = if must_obey { of_primary(words)? } else { Command::Reserve.read(words, false)?.0 };
    let request = Request { scaling: given.scaling(defaults)?, ..request };
    let request = given.apply(request, Refusal::Bad("seed"))?;
    if let Some(Seed::Bytes(_)) = request.seed {
        // A raw seed is for filters of valkey-bloom's layout, which BF.RESERVE does not make.
        return Err(Refusal::Bad("seed"));
    }
    let creation = match Creation::of(&request, None, defaults) {
        // To RedisBloom, SEED and LAYOUT are unknown words, which it skips.
        Err(_) if must_obey => Creation::of(&Request { seed: None, layout: None, ..request }, None, defaults)?,
        creation => Creation { expires: given.expires(), ..creation? },
    };
    if creation.spec.is_beyond_redisbloom() && !must_obey {
        return Err(Refusal::CapacityRange);
    }
    Ok(creation)
}

/// Reads the options that a primary carries. RedisBloom skips words that it does not know and an `EXPANSION` that is
/// repeated, and carries all of them, so words that are not an option with a valid value are skipped here as well.
fn of_primary<W: AsRef<[u8]>>(words: &[W]) -> Result<Given, Refusal> {
    let mut given = Given { must_obey: true, ..Given::default() };
    let mut options = words.get(4..).unwrap_or_default().iter().map(AsRef::as_ref).peekable();
    while let Some(option) = options.next() {
        let value = options.peek().copied();
        if is(option, "EXPANSION") {
            let expansion =
                value.and_then(numbers::integer).filter(|number| numbers::expansion(*number, true).is_some());
            if expansion.is_none() && given.expansion.is_none() {
                return Err(value.map_or(Refusal::No("expansion"), |_| Refusal::Bad("expansion")));
            }
            given.expansion = expansion.or(given.expansion);
        } else if is(option, "SEED") {
            given.seed = value.and_then(numbers::seed).map(Seed::Number).or(given.seed);
        } else if is(option, "LAYOUT") {
            given.layout = value.and_then(layout).or(given.layout);
        } else if is(option, "NONSCALING") {
            given.is_fixed = true;
        }
    }
    // RedisBloom finds NONSCALING in the key's place as well. What our primaries carry always has an EXPANSION or is fixed.
    given.is_fixed |= given.expansion.is_none() && is(word(words, 1)?, "NONSCALING");
    Ok(given)
}
