//! A request for a new filter: the options of the command, with defaults for the others.

use super::windowed::Retention;
use crate::geometry::sizing::{Policy, Scaling};
use crate::hash::{Hasher, SEED_MIN};

/// The common seed of filters without a random one.
pub const FIXED_SEED: [u8; 32] = [
    0x59, 0x0f, 0xf5, 0x22, 0xea, 0x78, 0x11, 0xda, 0xa7, 0x14, 0xd8, 0x09, 0x3b, 0x3e, 0x7b, 0xd9, 0x1d, 0x89, 0x8a,
    0x73, 0x3e, 0x98, 0x88, 0x87, 0x30, 0x7f, 0x97, 0xcd, 0x28, 0x07, 0x33, 0x83,
];

/// The requested properties of a new filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// The false positive rate, inside (0, 1).
    pub(crate) rate: f64,
    /// The capacity, at least 1.
    pub(crate) capacity: u64,
    /// Its behavior when full.
    pub(crate) scaling: Scaling,
    /// The value of SEED.
    pub(crate) seed: Option<Seed>,
    /// The value of TIGHTENING, inside (0, 1).
    pub(crate) tightening: Option<f64>,
    /// The value of LAYOUT.
    pub(crate) layout: Option<LayoutName>,
    /// The value of HASH.
    pub(crate) hash: Option<HashName>,
    /// The rule by which it forgets items, if it does.
    pub(crate) forgets: Option<Retention>,
    /// The value of BUCKETS.
    pub(crate) buckets: Option<u32>,
    /// Whether it has counters in place of bits.
    pub(crate) is_counting: bool,
    /// Whether it is a cuckoo filter.
    pub(crate) is_cuckoo: bool,
    /// The value of POLICY.
    pub(crate) policy: Option<Policy>,
}

/// Defaults for missing options, and the origin of the command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Defaults {
    /// The false positive rate, inside (0, 1).
    pub rate: f64,
    /// The capacity, at least 1.
    pub capacity: u64,
    /// The behavior of a full filter.
    pub scaling: Scaling,
    /// The default layout for clients.
    pub layout: LayoutName,
    /// The default hash of native filters for clients.
    pub hash: HashName,
    /// The factor from one layer's rate to the next in valkey-bloom's layout, inside (0, 1).
    pub tightening: f64,
    /// Random bytes for the seed of the next filter.
    pub entropy: [u8; 32],
    /// Whether filters of valkey-bloom's layout get a random seed instead of the common one.
    pub has_random_seeds: bool,
    /// Whether the command comes from a primary or the AOF. It has been executed there, so it is obeyed regardless of limits
    /// for clients.
    pub must_obey: bool,
}

/// A value of LAYOUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutName {
    /// The native layout.
    Native,
    /// RedisBloom's layout.
    RedisBloom,
}

/// A value of HASH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashName {
    /// MurmurHash3.
    Murmur3,
    /// SipHash, with a key per filter.
    SipHash,
}

/// A value of SEED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seed {
    /// A decimal number, for a native filter.
    Number(u32),
    /// 32 raw bytes, for a filter of valkey-bloom's layout.
    Bytes([u8; 32]),
    /// The key of SipHash.
    Key([u8; 16]),
}

impl Request {
    /// Returns the request of a command without options.
    pub(crate) const fn new(defaults: &Defaults) -> Self {
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
            is_cuckoo: false,
            policy: None,
        }
    }
}

impl Default for Defaults {
    /// Returns the settings of a server without any configuration, with a seed of zeros.
    fn default() -> Self {
        Self {
            rate: 0.01,
            capacity: 100,
            scaling: Scaling::from_expansion(2),
            layout: LayoutName::Native,
            hash: HashName::Murmur3,
            tightening: 0.5,
            entropy: [0; 32],
            has_random_seeds: false,
            must_obey: false,
        }
    }
}

impl Defaults {
    /// The layout of a filter if the command does not name one. A creation without a seed from a primary or the AOF is
    /// RedisBloom's, and its filter has the same bits on every server.
    pub(super) const fn layout(&self) -> LayoutName {
        if self.must_obey { LayoutName::RedisBloom } else { self.layout }
    }

    /// Returns the hash of a requested native filter; `None` if its seed does not suit that hash. The configured default
    /// applies to clients that name neither seed, layout nor tightening ratio.
    pub(super) fn hasher(&self, request: &Request) -> Option<Hasher> {
        let is_silent = request.seed.is_none() && request.layout.is_none() && request.tightening.is_none();
        let usual = if is_silent && !self.must_obey { self.hash } else { HashName::Murmur3 };
        match (request.hash.unwrap_or(usual), request.seed) {
            (HashName::Murmur3, Some(Seed::Number(seed))) => Some(Hasher::murmur3(seed)),
            (HashName::Murmur3, None) => Some(Hasher::murmur3(self.seed())),
            (HashName::SipHash, Some(Seed::Key(key))) => Some(Hasher::SipHash { key }),
            (HashName::SipHash, None) => Some(Hasher::SipHash { key: self.key() }),
            _ => None,
        }
    }

    /// Returns the default seed of a native filter: 0 if every replica must compute the same filter.
    fn seed(&self) -> u32 {
        let [first, second, third, fourth, ..] = self.entropy;
        if self.must_obey { 0 } else { u32::from_le_bytes([first, second, third, fourth]).max(SEED_MIN) }
    }

    /// Returns the default key, likewise.
    fn key(&self) -> [u8; 16] {
        let drawn = self.entropy.first_chunk().copied().unwrap_or_default();
        if self.must_obey { [0; 16] } else { drawn }
    }

    /// Returns the default seed in valkey-bloom's layout.
    pub(super) const fn valkey_bloom_seed(&self) -> [u8; 32] {
        if self.has_random_seeds { self.entropy } else { FIXED_SEED }
    }
}
