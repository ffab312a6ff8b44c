//! The table of kinds: a definition of each kind of filter from the same few numbers. The laws, the measurements and the tests of memory
//! iterate over it, so a new kind is a row here.

use bloomgate_filter::hash::Hasher;
use bloomgate_filter::kinds::valkey_bloom::ValkeyBloom;
use bloomgate_filter::kinds::{
    CountingSpec, CuckooSpec, NativeSpec, RedisBloomSpec, Retention, ValkeyBloomSpec, WindowedSpec,
};
use bloomgate_filter::{Scaling, Spec};

/// The numbers from which a definition follows. A kind ignores the numbers that it does not use.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub rate: f64,
    pub capacity: u64,
    /// 0 for a filter that does not grow.
    pub expansion: u32,
    pub seed: u32,
    pub tightening: f64,
    pub seconds: u64,
    pub buckets: u32,
}

impl Shape {
    pub const fn new(rate: f64, capacity: u64, expansion: u32) -> Self {
        Self { rate, capacity, expansion, seed: 4242, tightening: 0.5, seconds: 3, buckets: 4 }
    }

    fn scaling(&self) -> Scaling {
        Scaling::from_expansion(self.expansion)
    }

    fn murmur3(&self) -> Hasher {
        Hasher::murmur3(self.seed)
    }

    fn siphash(&self) -> Hasher {
        let mut key = *b"sixteen bytes ok";
        key[..4].copy_from_slice(&self.seed.to_le_bytes());
        Hasher::SipHash { key }
    }

    /// Odd seeds have a key, so their rings can delete.
    fn ring(&self, forgets: Retention) -> Spec {
        let hasher = if self.seed % 2 == 1 { self.siphash() } else { self.murmur3() };
        let scaling = if forgets == Retention::Rolling { Scaling::Fixed } else { self.scaling() };
        let Self { rate, capacity, buckets, .. } = *self;
        Spec::Windowed(WindowedSpec { rate, capacity, scaling, hasher, forgets, buckets })
    }
}

/// A kind of filter.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    pub spec: fn(&Shape) -> Spec,
}

impl Kind {
    /// Returns the definition of a filter that ignores seeds and times.
    pub fn spec(&self, rate: f64, capacity: u64, expansion: u32) -> Spec {
        (self.spec)(&Shape::new(rate, capacity, expansion))
    }
}

pub const NATIVE: Kind =
    Kind { name: "native", spec: |of| Spec::Native(NativeSpec::new(of.rate, of.capacity, of.scaling(), of.murmur3())) };
pub const KEYED: Kind =
    Kind { name: "keyed", spec: |of| Spec::Native(NativeSpec::new(of.rate, of.capacity, of.scaling(), of.siphash())) };
pub const REDISBLOOM: Kind = Kind {
    name: "redisbloom",
    spec: |of| Spec::RedisBloom(RedisBloomSpec { rate: of.rate, capacity: of.capacity, scaling: of.scaling() }),
};
pub const VALKEY_BLOOM: Kind = Kind {
    name: "valkey-bloom",
    spec: |of| {
        let seed = std::array::from_fn(|index| of.seed.to_le_bytes()[index % 4].wrapping_add(index as u8));
        let rules = ValkeyBloom::new(of.rate, of.tightening, of.scaling(), seed);
        Spec::ValkeyBloom(ValkeyBloomSpec { rules, capacity: of.capacity })
    },
};
pub const COUNTING: Kind = Kind {
    name: "counting",
    spec: |of| {
        let hasher = if of.seed % 2 == 1 { of.siphash() } else { of.murmur3() };
        Spec::Counting(CountingSpec { rate: of.rate, capacity: of.capacity, hasher })
    },
};
pub const CUCKOO: Kind = Kind {
    name: "cuckoo",
    spec: |of| {
        let hasher = if of.seed % 2 == 1 { of.siphash() } else { of.murmur3() };
        let factor = of.scaling().expansion();
        let factor = if factor == 0 { 0 } else { factor.checked_next_power_of_two().unwrap_or(1 << 31) };
        let scaling = Scaling::from_expansion(factor);
        Spec::Cuckoo(CuckooSpec { rate: of.rate, capacity: of.capacity, scaling, hasher })
    },
};
pub const WINDOW: Kind =
    Kind { name: "window", spec: |of| of.ring(Retention::After { seconds: of.seconds, is_sliding: false }) };
pub const SLIDING: Kind =
    Kind { name: "sliding", spec: |of| of.ring(Retention::After { seconds: of.seconds, is_sliding: true }) };
pub const ROLLING: Kind = Kind { name: "rolling", spec: |of| of.ring(Retention::Rolling) };

/// The kinds whose layers have bits in one of the three layouts.
pub const LAYOUTS: [Kind; 3] = [NATIVE, REDISBLOOM, VALKEY_BLOOM];

/// All kinds.
pub const ALL: [Kind; 9] = [NATIVE, KEYED, REDISBLOOM, VALKEY_BLOOM, COUNTING, CUCKOO, WINDOW, SLIDING, ROLLING];
