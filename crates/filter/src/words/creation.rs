//! Reads the options of BF.RESERVE, BF.INSERT and BF.PLAN and turns them into the description of a filter.

use super::options::Command;
use super::{Refusal, is, numbers, word};
use crate::geometry::sizing::{Policy, Scaling};
use crate::kinds::{Defaults, Forgets, HashName, LayoutName, Request, Seed, Spec};

/// The longest time to live, in milliseconds: the server adds it to the time of day without an overflow.
pub(super) const EXPIRES_MAX: u64 = 1 << 61;

/// A new filter, and what the command asked besides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Creation {
    /// The description of the filter.
    pub spec: Spec,
    /// The requested false positive rate, inside (0, 1). The rate of `spec` is the nearest supported one.
    pub asked_rate: f64,
    /// The number of items that the filter must be able to grow to, if one was given.
    pub scale_to: Option<u64>,
    /// The key's time to live in milliseconds, if one was given.
    pub expires: Option<u64>,
}

impl Creation {
    /// Describes the filter of a request.
    ///
    /// # Errors
    /// [`Refusal::LayoutMismatch`] for options of different layouts.
    pub(super) fn of(request: &Request, scale_to: Option<u64>, defaults: &Defaults) -> Result<Self, Refusal> {
        let spec = Spec::of(request, defaults).ok_or(Refusal::LayoutMismatch)?;
        Ok(Self { spec, asked_rate: request.rate, scale_to, expires: None })
    }

    /// Describes the filter that is created without any options.
    ///
    /// # Errors
    /// None: the defaults are of one layout.
    pub fn by_default(defaults: &Defaults) -> Result<Self, Refusal> {
        Self::of(&Request::new(defaults), None, defaults)
    }
}

/// The options that a command gave. The last value of a repeated option counts.
#[derive(Default)]
pub(super) struct Given {
    pub(super) must_obey: bool,
    pub(super) has_extension: bool,
    pub(super) capacity: Option<i64>,
    pub(super) rate: Option<f64>,
    pub(super) expansion: Option<i64>,
    pub(super) is_fixed: bool,
    pub(super) has_nocreate: bool,
    pub(super) seed: Option<Seed>,
    pub(super) tightening: Option<f64>,
    pub(super) layout: Option<LayoutName>,
    pub(super) scale_to: Option<u64>,
    pub(super) hash: Option<HashName>,
    pub(super) window: Option<u64>,
    pub(super) is_rolling: bool,
    pub(super) buckets: Option<u32>,
    pub(super) is_sliding: bool,
    pub(super) is_counting: bool,
    pub(super) ex: Option<u64>,
    pub(super) px: Option<u64>,
    pub(super) is_sync: bool,
    pub(super) renews: bool,
    pub(super) items: Option<u64>,
    pub(super) policy: Option<Policy>,
}

impl Given {
    /// The time to live, in milliseconds.
    pub(super) fn expires(&self) -> Option<u64> {
        self.ex.or(self.px)
    }

    /// The scaling of BF.RESERVE and BF.PLAN, which refuse NONSCALING with an expansion.
    pub(super) fn scaling(&self, defaults: &Defaults) -> Result<Scaling, Refusal> {
        let expansion = self.expansion.and_then(|number| numbers::expansion(number, self.must_obey));
        match (expansion, self.is_fixed) {
            (Some(1..), true) => Err(Refusal::FixedExpansion),
            (_, true) => Ok(Scaling::Fixed),
            (Some(expansion), false) => Ok(Scaling::from_expansion(expansion)),
            (None, false) => Ok(defaults.scaling),
        }
    }

    /// Adds the options to a request that has a rate, a capacity and a scaling.
    ///
    /// # Errors
    /// [`Refusal::Exclude`] and [`Refusal::Needs`] for options that do not go together; `bad_seed` for a seed that the hash
    /// does not take.
    pub(super) fn apply(&self, request: Request, bad_seed: Refusal) -> Result<Request, Refusal> {
        let is_keyed = self.hash == Some(HashName::SipHash);
        let seed = match self.seed {
            Some(Seed::Bytes(digits)) if is_keyed => Some(Seed::Key(key_of(&digits).ok_or(bad_seed)?)),
            seed => seed,
        };
        self.check(seed)?;
        if is_keyed && matches!(seed, Some(Seed::Number(_))) {
            return Err(bad_seed);
        }
        let window = self.window.map(|seconds| Forgets::After { seconds, is_sliding: self.is_sliding });
        let forgets = window.or(if self.is_rolling { Some(Forgets::Rolling) } else { None });
        let Self { hash, buckets, is_counting, tightening, layout, policy, .. } = *self;
        Ok(Request { seed, tightening, layout, hash, forgets, buckets, is_counting, policy, ..request })
    }

    /// Refuses options that do not go together. One of them is always an extension.
    fn check(&self, seed: Option<Seed>) -> Result<(), Refusal> {
        if !self.has_extension {
            return Ok(());
        }
        let hash = ("HASH", self.hash.is_some());
        let window = ("WINDOW", self.window.is_some());
        let rolling = ("ROLLING", self.is_rolling);
        let counting = ("COUNTING", self.is_counting);
        let expansion = ("EXPANSION", self.expansion.is_some());
        let scale_to = ("VALIDATESCALETO", self.scale_to.is_some());
        let own = [
            (counting, expansion),
            (counting, window),
            (counting, rolling),
            (rolling, window),
            (rolling, expansion),
            (counting, scale_to),
            (window, scale_to),
            (rolling, scale_to),
            (("EX", self.ex.is_some()), ("PX", self.px.is_some())),
        ];
        let foreign = [
            ("LAYOUT redisbloom", self.layout == Some(LayoutName::RedisBloom)),
            ("TIGHTENING", self.tightening.is_some()),
            ("a SEED of 32 bytes", matches!(seed, Some(Seed::Bytes(_)))),
        ];
        let foreign = [hash, window, rolling, counting].into_iter().flat_map(|one| foreign.map(|other| (one, other)));
        let both = own.into_iter().chain(foreign).find(|((_, one), (_, other))| *one && *other);
        if let Some(((one, _), (other, _))) = both {
            return Err(Refusal::Exclude(one, other));
        }
        if self.is_sliding && self.window.is_none() {
            return Err(Refusal::Needs("SLIDING", "WINDOW"));
        }
        if self.buckets.is_some() && self.window.is_none() && !self.is_rolling {
            return Err(Refusal::Needs("BUCKETS", "WINDOW or ROLLING"));
        }
        Ok(())
    }
}

/// Reads the rate and the capacity, the two words before the options of BF.RESERVE and BF.PLAN.
pub(super) fn rate_and_capacity<W: AsRef<[u8]>>(
    command: Command,
    words: &[W],
    defaults: &Defaults,
) -> Result<Request, Refusal> {
    let index = command.first_option() - 2;
    let rate = numbers::float(word(words, index)?, defaults.must_obey).ok_or(Refusal::Bad("error rate"))?;
    if !numbers::is_rate(rate) {
        return Err(Refusal::RateRange);
    }
    let capacity = numbers::integer(word(words, index + 1)?).ok_or(Refusal::Bad("capacity"))?;
    let capacity = u64::try_from(capacity).ok().filter(|capacity| *capacity > 0).ok_or(Refusal::CapacityRange)?;
    Ok(Request { rate, capacity, ..Request::new(defaults) })
}

/// Reads a time to live and returns it in milliseconds. One unit of the number is `unit` milliseconds.
///
/// # Errors
/// [`Refusal::ExpireTime`].
pub(super) fn time_to_live(word: &[u8], unit: u64) -> Result<u64, Refusal> {
    let time = numbers::unsigned(word).and_then(|time| time.checked_mul(unit));
    time.filter(|time| (1..=EXPIRES_MAX).contains(time)).ok_or(Refusal::ExpireTime)
}

/// Reads a key of 32 hexadecimal digits.
fn key_of(digits: &[u8; 32]) -> Option<[u8; 16]> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut key = [0; 16];
    for (byte, pair) in key.iter_mut().zip(digits.as_chunks::<2>().0) {
        let [high, low] = pair.map(digit);
        *byte = high? << 4 | low?;
    }
    Some(key)
}

/// Returns the position of the secret key of a filter, which must not appear in logs: the word after SEED, if HASH siphash is
/// given. It finds the key in words that are refused as well, so it takes any word before the items for an option's name.
pub fn key_position<W: AsRef<[u8]>>(command: Command, words: &[W]) -> Option<usize> {
    let options = words.iter().map(AsRef::as_ref).enumerate().skip(command.first_option());
    let options = options.take_while(|(_, word)| command != Command::Insert || !is(word, "ITEMS"));
    let (mut before, mut is_keyed, mut position) = (&[][..], false, None);
    for (index, word) in options {
        is_keyed |= is(before, "HASH") && is(word, "siphash");
        if is(before, "SEED") {
            position = Some(index);
        }
        before = word;
    }
    position.filter(|_| is_keyed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_key_is_found_in_front_of_the_items() {
        for (command, line, position) in [
            (Command::Reserve, "BF.RESERVE k 0.01 100 HASH siphash SEED key", Some(7)),
            (Command::Reserve, "BF.RESERVE k 0.01 100 seed key hash SipHash", Some(5)),
            (Command::Reserve, "BF.RESERVE k 0.01 100 HASH murmur3 SEED key", None),
            (Command::Reserve, "BF.RESERVE SEED 0.01 100 HASH siphash", None),
            (Command::Reserve, "BF.RESERVE k 0.01 100 WINDOW SEED key HASH siphash", Some(6)),
            (Command::Insert, "BF.INSERT k HASH siphash SEED key ITEMS SEED item", Some(5)),
            (Command::Insert, "BF.INSERT k ITEMS HASH siphash SEED item", None),
            (Command::Plan, "BF.PLAN 0.01 100 ITEMS 5 HASH siphash SEED key", Some(8)),
        ] {
            let words: Vec<_> = line.split(' ').collect();
            assert_eq!(key_position(command, &words), position, "{line}");
        }
    }
}
