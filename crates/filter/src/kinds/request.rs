//! What a command asks for in a new filter: its words of creation, with defaults where it says nothing.

use super::valkey_bloom::FIXED_SEED;
use super::windowed::Forgets;
use crate::hash::{Hasher, SEED_MIN};
use crate::scaling::Scaling;

/// What a new filter is asked to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// The false positive rate, inside (0, 1).
    pub rate: f64,
    /// At least 1.
    pub capacity: u64,
    /// What becomes of it when it is full.
    pub scaling: Scaling,
    /// The word after SEED.
    pub seed: Option<Seed>,
    /// The number after TIGHTENING, inside (0, 1).
    pub tightening: Option<f64>,
    /// The word after LAYOUT.
    pub layout: Option<LayoutName>,
    /// The word after HASH.
    pub hash: Option<HashName>,
    /// After what its items are forgotten, if ever.
    pub forgets: Option<Forgets>,
    /// The number after BUCKETS.
    pub buckets: Option<u32>,
    /// Whether it has counters in the place of bits.
    pub is_counting: bool,
}

/// What a command goes by where its words say nothing, and who is asking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Defaults {
    /// The false positive rate, inside (0, 1).
    pub rate: f64,
    /// At least 1.
    pub capacity: u64,
    /// What becomes of a filter that is full.
    pub scaling: Scaling,
    /// The layout that clients get.
    pub layout: LayoutName,
    /// The hash of native filters that clients get.
    pub hash: HashName,
    /// The factor from one layer's rate to the next of filters of valkey-bloom's layout, inside (0, 1).
    pub tightening: f64,
    /// Random bytes for the seed of the next filter that is made without one.
    pub entropy: [u8; 32],
    /// Whether filters of valkey-bloom's layout get a random seed, rather than the one that all share.
    pub has_random_seeds: bool,
    /// Whether the command comes from a primary or from the AOF. What they carry has happened already: it is obeyed,
    /// whatever the limits for clients are.
    pub must_obey: bool,
}

/// The word after LAYOUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutName {
    /// Ours.
    Native,
    /// RedisBloom's.
    RedisBloom,
}

/// The word after HASH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashName {
    /// MurmurHash3.
    Murmur3,
    /// SipHash, under a key of the filter's own.
    SipHash,
}

/// The word after SEED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seed {
    /// A decimal number, for a filter of ours.
    Number(u32),
    /// 32 raw bytes, for a filter of valkey-bloom's layout.
    Bytes([u8; 32]),
    /// The key of SipHash.
    Key([u8; 16]),
}

impl Request {
    /// Of a command that says nothing.
    #[must_use]
    pub const fn new(defaults: &Defaults) -> Self {
        let Defaults { rate, capacity, scaling, .. } = *defaults;
        Self {
            rate,
            capacity,
            scaling,
            seed: None,
            tightening: None,
            layout: None,
            hash: None,
            forgets: None,
            buckets: None,
            is_counting: false,
        }
    }
}

impl Defaults {
    /// Whose layout a filter has where the command does not say. What a primary or the AOF carries without a seed was
    /// RedisBloom's: it is made with the same bits everywhere.
    pub(super) const fn layout(&self) -> LayoutName {
        if self.must_obey { LayoutName::RedisBloom } else { self.layout }
    }

    /// The hash of a native filter that is asked for; nothing where its seed is not one of that hash. Where the command says
    /// nothing of what a filter is made of, a client gets the hash that is set.
    pub(super) fn hasher(&self, request: &Request) -> Option<Hasher> {
        let is_silent = request.seed.is_none() && request.layout.is_none() && request.tightening.is_none();
        let usual = if is_silent && !self.must_obey { self.hash } else { HashName::Murmur3 };
        match (request.hash.unwrap_or(usual), request.seed) {
            (HashName::Murmur3, Some(Seed::Number(seed))) => Some(Hasher::Murmur3 { seed }),
            (HashName::Murmur3, None) => Some(Hasher::Murmur3 { seed: self.seed() }),
            (HashName::SipHash, Some(Seed::Key(key))) => Some(Hasher::SipHash { key }),
            (HashName::SipHash, None) => Some(Hasher::SipHash { key: self.key() }),
            _ => None,
        }
    }

    /// The seed of a native filter where the command does not say: 0 where every replica must work out the same filter.
    fn seed(&self) -> u32 {
        let [first, second, third, fourth, ..] = self.entropy;
        if self.must_obey { 0 } else { u32::from_le_bytes([first, second, third, fourth]).max(SEED_MIN) }
    }

    /// The same of a key.
    fn key(&self) -> [u8; 16] {
        let drawn = self.entropy.first_chunk().copied().unwrap_or_default();
        if self.must_obey { [0; 16] } else { drawn }
    }

    /// The seed of a filter of valkey-bloom's layout where the command does not say.
    pub(super) const fn valkey_bloom_seed(&self) -> [u8; 32] {
        if self.has_random_seeds { self.entropy } else { FIXED_SEED }
    }
}
