//! `BF.RESERVE key error_rate capacity [EXPANSION e] [NONSCALING] [SEED s] [LAYOUT native | redisbloom]`, and the words of
//! `beyond.rs`

use super::beyond::{Beside, Beyond};
use super::creation::{Creation, layout, seed};
use super::{Refusal, is, numbers, word};
use crate::kinds::{Defaults, Request, Seed};
use crate::scaling::Scaling;

/// All options together, but for those of `beyond.rs`.
const WORDS_MAX: usize = 11;

/// Reads the words; what is wrong with the rate is said before what is wrong with the capacity, and so on.
///
/// # Errors
/// What is wrong with the words. Nothing else: there need not be memory for the filter.
pub fn parse<W: AsRef<[u8]>>(words: &[W], defaults: &Defaults) -> Result<Creation, Refusal> {
    let must_obey = defaults.must_obey;
    if words.len() > WORDS_MAX && !must_obey {
        let beyond: usize = words.iter().skip(4).map(|word| Beyond::length_of(word.as_ref())).sum();
        if words.len() - beyond.min(words.len()) > WORDS_MAX {
            return Err(Refusal::Arity);
        }
    }
    let (rate, capacity) = rate_and_capacity(words, 2, must_obey)?;
    let mut request = Request { rate, capacity, ..Request::new(defaults) };
    let options = words.get(4..).unwrap_or_default();
    let Options { expansion, mut fixed, beyond } = if must_obey {
        Options::of_primary(options, &mut request)?
    } else {
        Options::of_client(options, &mut request, |_, _, _| Ok(false))?
    };
    if must_obey && expansion.is_none() && is(word(words, 1)?, "NONSCALING") {
        // RedisBloom finds the word in the key's place, too. An effect of ours says how the filter scales.
        fixed = true;
    }
    request.scaling = scaling(expansion, fixed, defaults)?;
    let beside = Beside { has_expansion: expansion.is_some(), has_scale_to: false };
    beyond.apply(&mut request, beside, Refusal::BadSeed)?;
    if let Some(Seed::Bytes(_)) = request.seed {
        // Of valkey-bloom's BF.RESERVE it has no words.
        return Err(Refusal::BadSeed);
    }
    let creation = match Creation::of(&request, None, defaults) {
        // Words that are ours and do not belong together were none to RedisBloom.
        Err(_) if must_obey => Creation::of(&Request { seed: None, layout: None, ..request }, None, defaults)?,
        creation => Creation { expires: beyond.expires(), ..creation? },
    };
    if creation.spec.is_beyond_redisbloom() && !must_obey {
        return Err(Refusal::CapacityRange);
    }
    Ok(creation)
}

/// The rate at word `index`, and the capacity after it.
pub(super) fn rate_and_capacity<W: AsRef<[u8]>>(
    words: &[W],
    index: usize,
    must_obey: bool,
) -> Result<(f64, u64), Refusal> {
    let rate = numbers::float(word(words, index)?, must_obey).ok_or(Refusal::BadRate)?;
    if !numbers::is_rate(rate) {
        return Err(Refusal::RateRange);
    }
    let capacity = numbers::integer(word(words, index + 1)?).ok_or(Refusal::BadCapacity)?;
    let capacity = u64::try_from(capacity).ok().filter(|capacity| *capacity > 0).ok_or(Refusal::CapacityRange)?;
    Ok((rate, capacity))
}

/// What becomes of a filter that is full, by EXPANSION and NONSCALING.
pub(super) const fn scaling(expansion: Option<u32>, fixed: bool, defaults: &Defaults) -> Result<Scaling, Refusal> {
    match (expansion, fixed) {
        (Some(1..), true) => Err(Refusal::FixedExpansion),
        (_, true) => Ok(Scaling::Fixed),
        (Some(expansion), false) => Ok(Scaling::from_expansion(expansion)),
        (None, false) => Ok(defaults.scaling),
    }
}

/// Gives an option its value, or says that it has none.
pub(super) type Value<'f, 'a> = &'f mut dyn FnMut(Refusal) -> Result<&'a [u8], Refusal>;

/// What the words after the capacity say of how the filter scales. What they say of its layout goes into the request.
#[derive(Default)]
pub(super) struct Options {
    pub(super) expansion: Option<u32>,
    pub(super) fixed: bool,
    pub(super) beyond: Beyond,
}

impl Options {
    /// Each word has to be known, here or to `other`, which gets the word, what may give it its value, and the request; of
    /// those of a kind the last one counts.
    pub(super) fn of_client<'a, W: AsRef<[u8]>>(
        words: &'a [W],
        request: &mut Request,
        mut other: impl FnMut(&[u8], Value<'_, 'a>, &mut Request) -> Result<bool, Refusal>,
    ) -> Result<Self, Refusal> {
        let mut options = Self::default();
        let mut words = words.iter().map(AsRef::as_ref);
        while let Some(option) = words.next() {
            let mut value = |missing| words.next().ok_or(missing);
            if is(option, "EXPANSION") {
                let number = numbers::integer(value(Refusal::NoExpansion)?).ok_or(Refusal::BadExpansion)?;
                options.expansion = Some(numbers::expansion(number, false).ok_or(Refusal::ExpansionRange)?);
            } else if is(option, "SEED") {
                request.seed = Some(seed(value(Refusal::NoSeed)?).ok_or(Refusal::BadSeed)?);
            } else if is(option, "LAYOUT") {
                request.layout = Some(layout(value(Refusal::NoLayout)?).ok_or(Refusal::BadLayout)?);
            } else if is(option, "NONSCALING") {
                options.fixed = true;
            } else if options.beyond.take(option, |name| value(Refusal::No(name)))? == 0
                && !other(option, &mut value, request)?
            {
                return Err(Refusal::Syntax);
            }
        }
        Ok(options)
    }

    /// RedisBloom passes over what it does not know and over an `EXPANSION` that comes again, and carries all of it. What
    /// is none of our words with its value is passed over here as well.
    fn of_primary<W: AsRef<[u8]>>(words: &[W], request: &mut Request) -> Result<Self, Refusal> {
        let mut options = Self::default();
        let mut words = words.iter().map(AsRef::as_ref).peekable();
        while let Some(option) = words.next() {
            if is(option, "EXPANSION") {
                let value = words.peek().copied();
                let expansion = value.and_then(numbers::integer).and_then(|number| numbers::expansion(number, true));
                if expansion.is_some() {
                    options.expansion = expansion;
                } else if options.expansion.is_none() {
                    return Err(if value.is_some() { Refusal::BadExpansion } else { Refusal::NoExpansion });
                }
            } else if is(option, "SEED") {
                let seed = words.peek().copied().and_then(numbers::seed).map(Seed::Number);
                request.seed = seed.or(request.seed);
            } else if is(option, "LAYOUT") {
                let named = words.peek().copied().and_then(layout);
                request.layout = named.or(request.layout);
            } else if is(option, "NONSCALING") {
                options.fixed = true;
            }
        }
        Ok(options)
    }
}
