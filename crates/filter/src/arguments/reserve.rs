//! `BF.RESERVE key error_rate capacity [option ...]`

use super::options::{Command, Creation, Given, Value, layout, rate_and_capacity};
use super::{Refusal, is, numbers, word};
use crate::kinds::{Defaults, Request, Seed, Spec};

/// The maximum number of words from a client, without our own options: RedisBloom's limit, and SEED and LAYOUT.
const WORDS_MAX: usize = 11;

/// A parsed BF.RESERVE.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reserve {
    /// The filter to create if the key is missing.
    pub creation: Creation,
    /// Whether an equal filter is accepted if the key holds one.
    pub exist_ok: bool,
    /// Whether a seed was given. Otherwise the seed in `creation` is random.
    has_seed: bool,
}

impl Reserve {
    /// Accepts or refuses the existing filter at the key.
    pub fn accept(&self, existing: &Spec) -> Result<(), Refusal> {
        if !self.exist_ok {
            return Err(Refusal::Exists);
        }
        let difference = existing.difference(&self.creation.spec, self.has_seed);
        difference.map_or(Ok(()), |difference| Err(Refusal::Differs(difference)))
    }
}

/// Parses the words. A wrong rate is reported before a wrong capacity, and both before a wrong option.
pub fn parse<W: AsRef<[u8]>>(words: &[W], defaults: &Defaults) -> Result<Reserve, Refusal> {
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
        // Only filters of valkey-bloom's layout have a raw seed, and BF.RESERVE does not create them.
        return Err(Refusal::Bad("seed"));
    }
    let creation = match Creation::of(&request, None, defaults) {
        // RedisBloom skips SEED and LAYOUT as unknown words.
        Err(_) if must_obey => Creation::of(&Request { seed: None, layout: None, ..request }, None, defaults)?,
        creation => Creation { expires: given.expires(), ..creation? },
    };
    if creation.spec.is_beyond_redisbloom() && !must_obey {
        return Err(Refusal::CapacityRange);
    }
    Ok(Reserve { creation, exist_ok: given.exist_ok, has_seed: request.seed.is_some() })
}

/// Reads the options that a primary carries. RedisBloom skips unknown words and a repeated `EXPANSION`, but replicates them, so words that
/// are not an option with a valid value are skipped here as well.
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
    // RedisBloom also finds NONSCALING at the position of the key. Commands from our own primaries always have an EXPANSION or are fixed.
    given.is_fixed |= given.expansion.is_none() && is(word(words, 1)?, "NONSCALING");
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the words after the key. `seed` stands for the random seed.
    fn parsed(words: &str, seed: u8) -> Reserve {
        let defaults = Defaults { entropy: [seed; 32], ..Defaults::default() };
        let words: Vec<_> = ["BF.RESERVE", "k"].into_iter().chain(words.split(' ')).collect();
        parse(&words, &defaults).unwrap()
    }

    #[test]
    fn the_first_parameter_that_differs_is_named() {
        let keys = ["SEED 000102030405060708090a0b0c0d0e0f", "SEED ff0102030405060708090a0b0c0d0e0f"];
        for (existing, asked, difference) in [
            ("0.01 100", "0.01 100", None),
            ("0.01 100 SEED 5", "1e-2 100 EXPANSION 2 LAYOUT native HASH murmur3", None),
            ("0.01 100 SEED 5", "0.01 100 SEED 5", None),
            ("0.01 100 EX 60", "0.01 100", None),
            ("0.3 100", "0.9 100", None),
            ("0.01 100 NONSCALING", "0.01 100 EXPANSION 0", None),
            ("0.01 100 COUNTING HASH siphash", "0.01 100 HASH siphash COUNTING NONSCALING", None),
            ("0.01 100 WINDOW 60 HASH siphash", "0.01 100 WINDOW 60 BUCKETS 8 HASH siphash", None),
            ("0.01 100", "0.001 200 COUNTING", Some("error rate: 0.01, not 0.001")),
            ("1e-12 100", "0.01 100", Some("error rate: 1e-12, not 0.01")),
            ("0.01 100", "0.01 200 COUNTING", Some("capacity: 100, not 200")),
            ("0.01 100 LAYOUT redisbloom NONSCALING", "0.01 100", Some("LAYOUT: redisbloom, not native")),
            ("0.01 100 NONSCALING", "0.01 100", Some("kind: nonscaling, not scaling")),
            ("0.01 100 WINDOW 60", "0.01 100 ROLLING", Some("kind: window, not rolling")),
            ("0.01 100 COUNTING", "0.01 100 NONSCALING", Some("kind: counting, not nonscaling")),
            ("0.01 100 EXPANSION 4", "0.01 100 HASH siphash", Some("EXPANSION: 4, not 2")),
            ("0.01 100 WINDOW 60 NONSCALING", "0.01 100 WINDOW 60", Some("EXPANSION: 0, not 2")),
            ("0.01 100", "0.01 100 HASH siphash", Some("HASH: murmur3, not siphash")),
            ("0.01 100 WINDOW 60", "0.01 100 WINDOW 600 SLIDING", Some("WINDOW: 60, not 600")),
            ("0.01 100 WINDOW 60 SLIDING", "0.01 100 WINDOW 60", Some("SLIDING: on, not off")),
            ("0.01 100 ROLLING BUCKETS 5", "0.01 100 ROLLING", Some("BUCKETS: 5, not 8")),
            ("0.01 100 SEED 5", "0.01 100 SEED 6", Some("SEED")),
            (
                &format!("0.01 100 HASH siphash {}", keys[0]),
                &format!("0.01 100 HASH siphash {}", keys[1]),
                Some("SEED"),
            ),
            (&format!("0.01 100 HASH siphash {}", keys[0]), &format!("0.01 100 {} HASH siphash", keys[0]), None),
        ] {
            let spec = parsed(existing, 1).creation.spec;
            let accepted = parsed(&format!("{asked} EXIST_OK"), 2).accept(&spec);
            let text = difference.map(|difference| format!("ERR item exists with another {difference}"));
            assert_eq!(accepted.err().map(|refusal| refusal.to_string()), text, "{existing}; {asked}");
            assert_eq!(parsed(asked, 2).accept(&spec), Err(Refusal::Exists), "{asked}");
        }
    }
}
