//! What a new filter is to be, as it is asked for.

use super::{Refusal, is, numbers};
use crate::bloom::{Filter, Scaling, sizing};

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

/// What a command goes by besides its words: what a filter gets that was not asked for, and who is asking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usual {
    /// The false positive rate, inside (0, 1).
    pub rate: f64,
    /// At least 1.
    pub capacity: u64,
    /// What becomes of a filter that is full.
    pub scaling: Scaling,
    /// The layout that clients get.
    pub layout: LayoutName,
    /// The factor from one layer's rate to the next of filters of valkey-bloom's layout, inside (0, 1).
    pub tightening: f64,
    /// Whether the command comes from a primary or from the AOF. What they carry has happened already: it is obeyed,
    /// whatever the limits for clients are.
    pub must_obey: bool,
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
pub(super) struct KindWords {
    /// Behind SEED.
    pub seed: Option<Seed>,
    /// Behind TIGHTENING.
    pub tightening: Option<f64>,
    /// Behind LAYOUT.
    pub layout: Option<LayoutName>,
}

impl Creation {
    /// What a filter was made as: whoever follows it makes the same one, bit for bit.
    #[must_use]
    pub fn of(filter: &Filter) -> Self {
        let (capacity, kind) = match filter {
            Filter::Native(filter) => (filter.capacity(), Kind::Native { seed: Some(filter.seed()) }),
            Filter::RedisBloom(filter) => (filter.capacity(), Kind::RedisBloom),
            Filter::ValkeyBloom(filter) => {
                let rules = filter.rules();
                (filter.capacity(), Kind::ValkeyBloom { tightening: rules.tightening, seed: Some(rules.seed) })
            }
        };
        Self { rate: filter.rate(), capacity, scaling: filter.scaling(), kind, scale_to: None }
    }

    /// The rate that the filter gets, inside (0, 1), and whether it is another one than was asked for. RedisBloom takes any
    /// low rate, valkey-bloom any rate.
    #[must_use]
    pub fn taken_rate(&self) -> (f64, bool) {
        match self.kind {
            Kind::Native { .. } => taken_rate(self.rate),
            Kind::RedisBloom => (self.rate.min(sizing::RATE_MAX), self.rate > sizing::RATE_MAX),
            Kind::ValkeyBloom { .. } => (self.rate, false),
        }
    }
}

impl Usual {
    /// What a filter is that was not described.
    #[must_use]
    pub fn creation(&self) -> Creation {
        let kind = match self.layout() {
            LayoutName::Native => Kind::Native { seed: None },
            LayoutName::RedisBloom => Kind::RedisBloom,
        };
        Creation { rate: self.rate, capacity: self.capacity, scaling: self.scaling, kind, scale_to: None }
    }

    /// Whose layout a filter has where the command does not say. What a primary or the AOF carries without a seed was
    /// RedisBloom's: it is made with the same bits everywhere.
    fn layout(&self) -> LayoutName {
        if self.must_obey { LayoutName::RedisBloom } else { self.layout }
    }
}

impl KindWords {
    /// The kind that the words ask for.
    ///
    /// # Errors
    /// [`Refusal::LayoutMismatch`] for words of different kinds.
    pub fn kind(self, usual: &Usual) -> Result<Kind, Refusal> {
        match (self.seed, self.tightening, self.layout) {
            (Some(Seed::Number(seed)), None, None | Some(LayoutName::Native)) => Ok(Kind::Native { seed: Some(seed) }),
            (Some(Seed::Bytes(seed)), tightening, None) => {
                Ok(Kind::ValkeyBloom { tightening: tightening.unwrap_or(usual.tightening), seed: Some(seed) })
            }
            (None, Some(tightening), None) => Ok(Kind::ValkeyBloom { tightening, seed: None }),
            (None, None, layout) => Ok(match layout.unwrap_or(usual.layout()) {
                LayoutName::Native => Kind::Native { seed: None },
                LayoutName::RedisBloom => Kind::RedisBloom,
            }),
            _ => Err(Refusal::LayoutMismatch),
        }
    }
}

impl LayoutName {
    /// The layout that a word names, in any case.
    #[must_use]
    pub fn named(word: &[u8]) -> Option<Self> {
        let names = [("native", Self::Native), ("redisbloom", Self::RedisBloom)];
        names.into_iter().find(|(name, _)| is(word, name)).map(|(_, layout)| layout)
    }
}

impl Seed {
    /// The seed that a word is: a decimal number, or 32 raw bytes.
    #[must_use]
    pub fn of(word: &[u8]) -> Option<Self> {
        word.try_into().map(Self::Bytes).ok().or_else(|| numbers::seed(word).map(Self::Number))
    }
}

/// The rate that a filter of ours gets for a rate that was asked for, and whether it is another one.
#[must_use]
pub fn taken_rate(asked: f64) -> (f64, bool) {
    let taken = asked.clamp(sizing::RATE_MIN, sizing::RATE_MAX);
    (taken, taken.to_bits() != asked.to_bits())
}

#[cfg(test)]
mod tests {
    use super::taken_rate;

    #[test]
    fn a_rate_of_no_use_is_taken_as_the_nearest_that_is() {
        assert_eq!(taken_rate(0.5), (0.25, true));
        assert_eq!(taken_rate(1e-300), (1e-12, true));
        assert_eq!(taken_rate(0.01), (0.01, false));
    }
}
