//! The words of a command, read in place: no copy, no allocation, any bytes.

use std::marker::PhantomData;

use redis_module::{RedisString, raw};

use super::reply::Refusal;
use crate::bloom::{Scaling, sizing};

/// One word of a command.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Word<'a> {
    pub(super) raw: *mut raw::RedisModuleString,
    command: PhantomData<&'a ()>,
}

impl<'a> Word<'a> {
    /// Its bytes.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        RedisString::string_as_slice(self.raw)
    }
}

/// The words of a command, its name first.
#[derive(Clone, Copy)]
pub struct Args<'a>(&'a [Word<'a>]);

impl<'a> Args<'a> {
    /// # Safety
    /// `argv` must point to `argc` strings that live as long as `'a`, or be null.
    pub(super) unsafe fn new(argv: *mut *mut raw::RedisModuleString, argc: std::ffi::c_int) -> Self {
        let length = usize::try_from(argc).unwrap_or(0);
        // A module that is loaded without words gets no array.
        if argv.is_null() || length == 0 {
            return Self(&[]);
        }
        // SAFETY: the caller's promise; `Word` is a transparent wrapper of the pointer.
        Self(unsafe { std::slice::from_raw_parts(argv.cast::<Word<'a>>(), length) })
    }

    /// The number of words, the command's name included.
    pub const fn len(self) -> usize {
        self.0.len()
    }

    /// Word `index`; the command's name is word 0.
    pub fn word(self, index: usize) -> Result<Word<'a>, Refusal> {
        self.0.get(index).copied().ok_or(Refusal::Arity)
    }

    /// The words from `index` on, at least one.
    pub fn rest(self, index: usize) -> Result<&'a [Word<'a>], Refusal> {
        self.0.get(index..).filter(|words| !words.is_empty()).ok_or(Refusal::Arity)
    }
}

/// What a new filter is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Creation {
    /// The false positive rate that was asked for, inside (0, 1).
    pub rate: f64,
    /// At least 1.
    pub capacity: u64,
    /// What becomes of it when it is full.
    pub scaling: Scaling,
    /// Whose layout and rules it has.
    pub kind: Kind,
    /// The number of items that it must be able to grow to, where one was asked for.
    pub scale_to: Option<u64>,
}

/// Whose layout and rules a new filter has, and what only such a filter is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Ours.
    Native {
        /// The seed, where one was asked for.
        seed: Option<u32>,
    },
    /// RedisBloom's.
    RedisBloom,
    /// valkey-bloom's.
    ValkeyBloom {
        /// The factor from one layer's rate to the next, inside (0, 1).
        tightening: f64,
        /// The seed, where one was asked for.
        seed: Option<[u8; 32]>,
    },
}

/// The word behind LAYOUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutName {
    /// Ours.
    Native,
    /// RedisBloom's.
    RedisBloom,
}

/// The word behind SEED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seed {
    /// A decimal number, for a filter of ours.
    Number(u32),
    /// 32 raw bytes, for a filter of valkey-bloom's layout.
    Bytes([u8; 32]),
}

/// The words that say whose layout a new filter is to have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KindWords {
    /// Behind SEED.
    pub seed: Option<Seed>,
    /// Behind TIGHTENING.
    pub tightening: Option<f64>,
    /// Behind LAYOUT.
    pub layout: Option<LayoutName>,
}

impl KindWords {
    /// The kind that the words ask for. `usual`: the layout where they do not say; `usual_tightening` likewise.
    ///
    /// # Errors
    /// [`Refusal::LayoutMismatch`] for words of different kinds.
    pub fn kind(self, usual: LayoutName, usual_tightening: f64) -> Result<Kind, Refusal> {
        match (self.seed, self.tightening, self.layout) {
            (Some(Seed::Number(seed)), None, None | Some(LayoutName::Native)) => Ok(Kind::Native { seed: Some(seed) }),
            (Some(Seed::Bytes(seed)), tightening, None) => {
                Ok(Kind::ValkeyBloom { tightening: tightening.unwrap_or(usual_tightening), seed: Some(seed) })
            }
            (None, Some(tightening), None) => Ok(Kind::ValkeyBloom { tightening, seed: None }),
            (None, None, layout) => Ok(match layout.unwrap_or(usual) {
                LayoutName::Native => Kind::Native { seed: None },
                LayoutName::RedisBloom => Kind::RedisBloom,
            }),
            _ => Err(Refusal::LayoutMismatch),
        }
    }
}

impl LayoutName {
    /// The layout that a word names, in any case.
    pub fn named(word: &[u8]) -> Option<Self> {
        let names = [("native", Self::Native), ("redisbloom", Self::RedisBloom)];
        names.into_iter().find(|(name, _)| is(word, name)).map(|(_, layout)| layout)
    }
}

/// A whole number, as strictly as the server reads one: an optional minus and digits without a leading zero.
pub fn integer(word: &[u8]) -> Option<i64> {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    let strict = digits.first().is_some_and(|first| (b'1'..=b'9').contains(first)) || word == b"0";
    if strict { std::str::from_utf8(word).ok()?.parse().ok() } else { None }
}

/// A number with a fraction, NaN excluded.
pub fn float(word: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// A seed: 0 to 2^32 - 1.
pub fn seed(word: &[u8]) -> Option<u32> {
    integer(word).and_then(|seed| u32::try_from(seed).ok())
}

/// A number of items: at least 1.
pub fn capacity(word: &[u8]) -> Option<u64> {
    integer(word).and_then(|capacity| u64::try_from(capacity).ok()).filter(|capacity| *capacity > 0)
}

/// Whether a word is this option's name, in any case.
pub fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// The word behind SEED: a decimal number, or 32 raw bytes.
pub fn any_seed(word: &[u8]) -> Option<Seed> {
    word.try_into().map(Seed::Bytes).ok().or_else(|| seed(word).map(Seed::Number))
}

/// The rate that a filter of ours gets for a rate that was asked for, and whether it is another one.
pub fn taken_rate(asked: f64) -> (f64, bool) {
    let taken = asked.clamp(sizing::RATE_MIN, sizing::RATE_MAX);
    (taken, taken.to_bits() != asked.to_bits())
}

/// Whether a rate can be asked for: inside (0, 1).
pub fn is_rate(rate: f64) -> bool {
    rate > 0.0 && rate < 1.0
}

/// An expansion: 0 to 32768, 0 for a fixed filter. From a primary and the AOF any that 32 bits hold: valkey-bloom's may be
/// larger.
pub fn expansion(number: i64, must_obey: bool) -> Option<u32> {
    u32::try_from(number).ok().filter(|expansion| must_obey || *expansion <= EXPANSION_MAX)
}

/// The largest factor from one layer's capacity to the next.
pub const EXPANSION_MAX: u32 = 32768;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_strictly() {
        for (word, number) in [("0", 0), ("7", 7), ("-7", -7), ("9223372036854775807", i64::MAX)] {
            assert_eq!(integer(word.as_bytes()), Some(number));
        }
        for word in ["", "-", "-0", "+5", "007", " 5", "5 ", "5.0", "1e3", "9223372036854775808", "x", "\u{661}"] {
            assert_eq!(integer(word.as_bytes()), None, "{word:?}");
        }
        assert_eq!(integer(b"\xff"), None);
    }

    #[test]
    fn a_rate_is_a_number_but_not_every_number_is_a_rate() {
        assert_eq!(float(b"1e-3"), Some(0.001));
        assert_eq!(float(b"nan"), None);
        assert_eq!(float(b""), None);
        assert_eq!(float(b"0.1x"), None);
        for rate in [0.0, 1.0, -0.5, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(!is_rate(rate));
        }
        assert_eq!(taken_rate(0.5), (0.25, true));
        assert_eq!(taken_rate(1e-300), (1e-12, true));
        assert_eq!(taken_rate(0.01), (0.01, false));
    }
}
