//! The words of creation that RedisBloom has not: `HASH murmur3 | siphash`, `WINDOW seconds`, `ROLLING`, `BUCKETS n`,
//! `SLIDING`, `COUNTING`, `EX seconds`, `PX milliseconds`.

use super::{Refusal, is, numbers};
use crate::kinds::windowed::{BUCKETS_MAX, BUCKETS_MIN, SECONDS_MAX};
use crate::kinds::{Forgets, HashName, LayoutName, Request, Seed};

/// The longest time to live, in milliseconds: what the server adds to the time of day without an overflow.
pub(super) const EXPIRES_MAX: u64 = 1 << 61;

/// What was said. Of those of a kind the last one counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beyond {
    hash: Option<HashName>,
    window: Option<u64>,
    is_rolling: bool,
    buckets: Option<u32>,
    is_sliding: bool,
    is_counting: bool,
    /// Milliseconds, and by which word they were said.
    expires: Option<(u64, &'static str)>,
    has_two_expires: bool,
}

/// What else was said that does not go with some of these words.
#[derive(Clone, Copy, Default)]
pub(super) struct Beside {
    pub(super) has_expansion: bool,
    pub(super) has_scale_to: bool,
}

impl Beyond {
    /// Takes a word, and its value from the function where it has one; answers how many words these are, 0 where it is none
    /// of these.
    pub(super) fn take<'a>(
        &mut self,
        word: &[u8],
        value: impl FnOnce(&'static str) -> Result<&'a [u8], Refusal>,
    ) -> Result<usize, Refusal> {
        if is(word, "HASH") {
            let names = [("murmur3", HashName::Murmur3), ("siphash", HashName::SipHash)];
            let value = value("hash")?;
            let named = names.into_iter().find(|(name, _)| is(value, name)).map(|(_, hash)| hash);
            self.hash = Some(named.ok_or(Refusal::Bad("hash"))?);
        } else if is(word, "WINDOW") {
            let seconds = numbers::unsigned(value("window")?).filter(|seconds| (1..=SECONDS_MAX).contains(seconds));
            self.window = Some(seconds.ok_or(Refusal::Bad("window"))?);
        } else if is(word, "BUCKETS") {
            let buckets = numbers::unsigned(value("buckets")?).and_then(|buckets| u32::try_from(buckets).ok());
            let buckets = buckets.filter(|buckets| (BUCKETS_MIN..=BUCKETS_MAX).contains(buckets));
            self.buckets = Some(buckets.ok_or(Refusal::Bad("buckets"))?);
        } else if is(word, "EX") || is(word, "PX") {
            let (unit, name) = if is(word, "EX") { (1000, "EX") } else { (1, "PX") };
            let time = time_to_live(value("expire time")?, unit)?;
            self.has_two_expires |= self.expires.is_some_and(|(_, other)| other != name);
            self.expires = Some((time, name));
        } else {
            let flags = [
                ("ROLLING", &mut self.is_rolling),
                ("SLIDING", &mut self.is_sliding),
                ("COUNTING", &mut self.is_counting),
            ];
            let flag = flags.into_iter().find(|(name, _)| is(word, name));
            return Ok(flag.map_or(0, |(_, said)| {
                *said = true;
                1
            }));
        }
        Ok(2)
    }

    /// Whether a word is one of these, and how many words it is with its value; 0 for another.
    pub(super) fn length_of(word: &[u8]) -> usize {
        let is_one_of = |names: &[&str]| names.iter().any(|name| is(word, name));
        match () {
            () if is_one_of(&["HASH", "WINDOW", "BUCKETS", "EX", "PX"]) => 2,
            () if is_one_of(&["ROLLING", "SLIDING", "COUNTING"]) => 1,
            () => 0,
        }
    }

    /// The time to live that was asked for, in milliseconds.
    pub(super) fn expires(&self) -> Option<u64> {
        self.expires.map(|(time, _)| time)
    }

    /// Puts what was said into a request.
    ///
    /// # Errors
    /// [`Refusal::Exclude`], [`Refusal::Needs`] for words that do not go together; `bad_seed` for a seed that is none of
    /// the hash.
    pub(super) fn apply(&self, request: &mut Request, beside: Beside, bad_seed: Refusal) -> Result<(), Refusal> {
        let is_keyed = self.hash == Some(HashName::SipHash);
        if is_keyed && let Some(Seed::Bytes(digits)) = request.seed {
            request.seed = Some(Seed::Key(key_of(&digits).ok_or(bad_seed)?));
        }
        self.check(request, beside)?;
        if is_keyed && matches!(request.seed, Some(Seed::Number(_))) {
            return Err(bad_seed);
        }
        request.hash = self.hash;
        request.buckets = self.buckets;
        request.is_counting = self.is_counting;
        let window = self.window.map(|seconds| Forgets::After { seconds, is_sliding: self.is_sliding });
        request.forgets = window.or(if self.is_rolling { Some(Forgets::Rolling) } else { None });
        Ok(())
    }

    fn check(&self, request: &Request, beside: Beside) -> Result<(), Refusal> {
        let hash = ("HASH", self.hash.is_some());
        let window = ("WINDOW", self.window.is_some());
        let rolling = ("ROLLING", self.is_rolling);
        let counting = ("COUNTING", self.is_counting);
        let expansion = ("EXPANSION", beside.has_expansion);
        let scale_to = ("VALIDATESCALETO", beside.has_scale_to);
        let foreign = [
            ("LAYOUT redisbloom", request.layout == Some(LayoutName::RedisBloom)),
            ("TIGHTENING", request.tightening.is_some()),
            ("a SEED of 32 bytes", matches!(request.seed, Some(Seed::Bytes(_)))),
        ];
        let own = [
            (counting, expansion),
            (counting, window),
            (counting, rolling),
            (rolling, window),
            (rolling, expansion),
            (counting, scale_to),
            (window, scale_to),
            (rolling, scale_to),
            (("EX", self.has_two_expires), ("PX", true)),
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

/// A time to live in milliseconds, of which the number's unit has `unit`.
///
/// # Errors
/// [`Refusal::ExpireTime`].
pub(super) fn time_to_live(word: &[u8], unit: u64) -> Result<u64, Refusal> {
    let time = numbers::unsigned(word).and_then(|time| time.checked_mul(unit));
    time.filter(|time| (1..=EXPIRES_MAX).contains(time)).ok_or(Refusal::ExpireTime)
}

/// The key that 32 hexadecimal digits are.
fn key_of(digits: &[u8; 32]) -> Option<[u8; 16]> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut key = [0; 16];
    for (byte, pair) in key.iter_mut().zip(digits.as_chunks::<2>().0) {
        let [high, low] = pair.map(digit);
        *byte = high? << 4 | low?;
    }
    Some(key)
}

/// Where a command's words name the key of its filter, which nobody is to read in a log: the word after SEED, of those from
/// `first` on and in front of the items, where HASH siphash is said.
pub fn key_position<W: AsRef<[u8]>>(words: &[W], first: usize) -> Option<usize> {
    let options = words.iter().map(AsRef::as_ref).enumerate().skip(first);
    let options = options.take_while(|(_, word)| !is(word, "ITEMS"));
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
