//! Filters of RedisBloom's layout, which hash, grow and store by its rules, so that data can move from RedisBloom and back.
//!
//! Each layer has half the rate of the one before. The first layer of a growing filter has half the requested rate, so that all
//! layers together stay within it.

pub mod dump;

use std::ffi::CStr;
use std::num::NonZeroU32;

use super::Request;
use super::effect::{self, ArgToken, push_args, push_scaling};
use crate::cells::BitArray;
use crate::chain::{AddRules, Chain, ChainSpec, Layer, Rules};
use crate::error::Error;
use crate::geometry::sizing::{self, Scaling, to_f64, to_u64};
use crate::geometry::{Flat, HASHES_MAX, LayerDescription, Positions};
use crate::hash::murmur2::{murmur_hash_2, murmur_hash_64a};
use crate::host::Ceiling;

/// The options of a filter are bits of one number. This bit: sizes are not rounded up to powers of two.
const NOROUND: u32 = 1;
/// The hash has 64 bits.
const FORCE64: u32 = 4;
/// The filter does not grow.
const NO_SCALING: u32 = 8;
/// An option of ours, which RedisBloom ignores and keeps: the width of the seeds of the 64-bit hash is not known.
const EITHER_SEEDS: u32 = 1 << 31;
/// The growth that is stored for a fixed filter.
pub(crate) const GROWTH: u32 = 2;
/// The largest capacity that RedisBloom accepts from a client.
pub const CAPACITY_MAX: u64 = 1 << 30;

/// An item's positions by double hashing: position i is (a + i b) modulo the size, in 64 bits (Kirsch, Mitzenmacher: Less
/// Hashing, Same Performance, 2006).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoubleHash {
    a: u64,
    b: u64,
    /// The alternative numbers with which the item may have been added.
    other: Option<[u64; 2]>,
}

impl DoubleHash {
    const fn new(a: u64, b: u64) -> Self {
        Self { a, b, other: None }
    }
}

impl Positions for DoubleHash {
    const APART: u32 = 0;

    #[inline]
    fn position(self, index: u32, modulus: u64) -> u64 {
        self.a.wrapping_add(self.b.wrapping_mul(index.into())) % modulus
    }

    #[inline]
    fn other(self) -> Option<Self> {
        self.other.map(|[a, b]| Self::new(a, b))
    }
}

/// The definition of a new filter of RedisBloom's layout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedisBloomSpec {
    /// The requested false positive rate, inside (0, 1).
    pub rate: f64,
    /// The requested capacity, at least 1: the capacity of the first layer.
    pub capacity: u64,
    /// The behavior of a full filter.
    pub scaling: Scaling,
}

/// The hash of a filter, which depends on the release that created it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hash {
    /// 32 bits, in the first release.
    Murmur32,
    /// 64 bits, with seeds of 32 bits or of 64: the stored data do not state which. Items are looked up with both, and added
    /// with seeds of 64 bits, as RedisBloom adds them today.
    ///
    /// Releases 1.99.0 to 2.0.1 truncated the seeds. So did every release before 2.2 that was linked without `-Bsymbolic`: it
    /// called the server's function of the same name, whose seed has 32 bits. Releases 1.1.1, 2.0.2 and 2.0.3, built by their
    /// own Makefiles, did not.
    Murmur64EitherSeeds,
    /// 64 bits, with seeds of 64 bits.
    Murmur64,
}

/// The fields that RedisBloom stores with a filter besides its layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedisBloom {
    /// Flags for its hash and its growth. Unknown flags are kept.
    options: u32,
    /// The factor from one layer's capacity to the next; stored for a fixed filter as well.
    growth: u32,
    hash: Hash,
}

impl RedisBloom {
    /// Returns the rules of a new filter.
    pub(crate) const fn new(scaling: Scaling) -> Self {
        let (options, growth) = match scaling {
            Scaling::Fixed => (NOROUND | FORCE64 | NO_SCALING, GROWTH),
            Scaling::Growing { expansion } => (NOROUND | FORCE64, expansion.get()),
        };
        Self { options, growth, hash: Hash::Murmur64 }
    }

    /// Returns the rules for stored options and growth, as RedisBloom since 2.2 and this crate write them.
    pub(crate) const fn stored(options: u32, growth: u32) -> Self {
        let hash = match (options & FORCE64 != 0, options & EITHER_SEEDS != 0) {
            (false, _) => Hash::Murmur32,
            (true, true) => Hash::Murmur64EitherSeeds,
            (true, false) => Hash::Murmur64,
        };
        Self { options, growth, hash }
    }

    /// Returns the rules for options that a release before 2.2 stored, which had no growth.
    pub(crate) const fn before_2_2(options: u32) -> Self {
        let either_seeds = if options & FORCE64 == 0 { 0 } else { EITHER_SEEDS };
        Self::stored(options | either_seeds, GROWTH)
    }

    /// The stored options.
    pub(crate) const fn options(&self) -> u32 {
        self.options
    }

    /// The stored growth.
    pub(crate) const fn growth(&self) -> u32 {
        self.growth
    }

    /// Whether the width of its hash's seeds, 32 or 64 bits, is unknown.
    pub(super) const fn has_either_seeds(&self) -> bool {
        matches!(self.hash, Hash::Murmur64EitherSeeds)
    }

    /// The name of its hash in BF.STATS.
    pub(super) const fn hash_name(&self) -> &'static CStr {
        if self.has_either_seeds() { c"murmur2-either-seed" } else { c"murmur2" }
    }

    /// Width of the hash, in bits: 64, or 32 in filters of the first release.
    pub(crate) const fn hash_bits(&self) -> u32 {
        if let Hash::Murmur32 = self.hash { 32 } else { 64 }
    }
}

impl Rules for RedisBloom {
    type Geometry = Flat<DoubleHash>;
    type Deleted = ();

    #[inline]
    fn hash(&self, item: &[u8]) -> DoubleHash {
        let under_seeds = |seeds: u64| {
            let a = murmur_hash_64a(item, 0xc6a4_a793_5bd1_e995 & seeds);
            [a, murmur_hash_64a(item, a & seeds)]
        };
        if let Hash::Murmur32 = self.hash {
            // In that release the sums wrapped at 32 bits. Sizes were powers of two, so the positions are the same.
            let a = murmur_hash_2(item, 0x9747_b28c);
            return DoubleHash::new(a.into(), murmur_hash_2(item, a).into());
        }
        let [a, b] = under_seeds(u64::MAX);
        let other = self.has_either_seeds().then(|| under_seeds(u32::MAX.into()));
        DoubleHash { a, b, other }
    }

    fn hashes_per_item(&self) -> u32 {
        1 + u32::from(self.has_either_seeds())
    }

    fn scaling(&self) -> Scaling {
        match NonZeroU32::new(self.growth) {
            Some(expansion) if self.options & NO_SCALING == 0 => Scaling::Growing { expansion },
            _ => Scaling::Fixed,
        }
    }

    /// Uses the current rule, also after layers of old releases.
    fn next_layer(&self, _index: usize, capacity: u64, rate: f64) -> Result<LayerDescription<Flat<DoubleHash>>, Error> {
        layer(sizing::next_capacity(capacity, self.scaling())?, rate * 0.5)
    }

    fn size_bytes(layers: usize, cells_bytes: u64) -> u64 {
        (32 + 64 * layers as u64).saturating_add(cells_bytes)
    }

    fn zeroed(&self, geometry: &Flat<DoubleHash>) -> Result<BitArray, Error> {
        BitArray::zeroed(&[], geometry.size_bytes)
    }
}

impl AddRules for RedisBloom {}

/// Returns a layer for `capacity` items at its own rate.
fn layer(capacity: u64, rate: f64) -> Result<LayerDescription<Flat<DoubleHash>>, Error> {
    /// ln(2)^2 and ln(2), with as many digits as in RedisBloom.
    const LN_2_SQUARED: f64 = 0.480_453_013_918_201;
    #[expect(clippy::approx_constant, reason = "fewer digits than the constant has, as there")]
    const LN_2: f64 = 0.693_147_180_559_945;

    if rate <= 0.0 {
        return Err(Error::RateTooLow);
    }
    // This is the C library's logarithm, as in RedisBloom, so the stored numbers are equal to the last bit.
    let bits_per_item = -rate.ln() / LN_2_SQUARED;
    let hashes = to_u64((LN_2 * bits_per_item).ceil()).max(1);
    let hashes = u32::try_from(hashes).ok().filter(|hashes| *hashes <= HASHES_MAX).ok_or(Error::RateTooLow)?;
    let bits = to_u64((to_f64(capacity) * bits_per_item).floor()).max(1);
    let bits = bits.checked_next_multiple_of(64).filter(|bits| *bits < u64::MAX / 2).ok_or(Error::SizeOverflow)?;
    Ok(LayerDescription { rate, capacity, items: 0, geometry: Flat::new(bits / 8, bits, hashes, bits_per_item) })
}

/// A filter of RedisBloom's layout.
pub type RedisBloomFilter = Chain<RedisBloom>;

impl ChainSpec for RedisBloomSpec {
    type Rules = RedisBloom;

    fn rules(&self) -> RedisBloom {
        RedisBloom::new(self.scaling)
    }

    fn first_layer(&self) -> Result<LayerDescription<Flat<DoubleHash>>, Error> {
        let Self { rate, capacity, scaling } = *self;
        if !(rate > 0.0 && rate < 1.0) {
            return Err(Error::RateOutOfRange);
        }
        if capacity == 0 {
            return Err(Error::CapacityOutOfRange);
        }
        layer(capacity, if scaling == Scaling::Fixed { rate } else { rate * 0.5 })
    }
}

impl RedisBloomSpec {
    /// Returns the definition for a request. Accepts any low rate, and limits a high one as RedisBloom does.
    pub(super) const fn of(request: &Request) -> Self {
        let Request { rate, capacity, scaling, .. } = *request;
        Self { rate: rate.min(sizing::RATE_MAX), capacity, scaling }
    }

    /// Uses only RedisBloom's options; see [`Spec::encode_args`](super::Spec::encode_args).
    pub(super) fn encode_args(&self, mut push: impl FnMut(ArgToken<'_>)) -> &'static CStr {
        push_args(&mut push, &[effect::rate(self.rate), effect::whole(self.capacity)]);
        push_scaling(self.scaling, &mut push);
        c"BF.RESERVE"
    }
}

impl RedisBloomFilter {
    /// Creates a filter that RedisBloom on a primary has created. Release 2.6 accepts any capacity. If the number of bits
    /// exceeds 64 bits, it wraps to 0 (on x86-64), and the layer gets the minimum of 64 bits.
    pub(crate) fn carried(spec: RedisBloomSpec, ceiling: &impl Ceiling) -> Result<Self, Error> {
        const BITS_MAX: f64 = 18_446_744_073_709_551_616.0;
        let least = RedisBloomSpec { capacity: 1, ..spec }.first_layer()?;
        let Flat { hashes, bits_per_item, .. } = least.geometry;
        if to_f64(spec.capacity) * bits_per_item < BITS_MAX {
            return Self::with_spec(spec, ceiling);
        }
        let geometry = Flat::new(8, 64, hashes, bits_per_item);
        let first = LayerDescription { capacity: spec.capacity, geometry, ..least };
        Self::with_first_layer(spec.rules(), &first, ceiling)
    }

    /// Its definition.
    pub(crate) fn spec(&self) -> RedisBloomSpec {
        let scaling = self.scaling();
        let first = self.layers().first().map_or(sizing::RATE_MAX, Layer::rate);
        let rate = if scaling == Scaling::Fixed { first } else { first * 2.0 };
        RedisBloomSpec { rate, capacity: self.layers().first().map_or(1, Layer::capacity), scaling }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unlimited;
    use crate::chain::growth_limit;
    use crate::host::Limits;

    fn growing() -> Scaling {
        Scaling::from_expansion(2)
    }

    fn spec(rate: f64, capacity: u64, scaling: Scaling) -> RedisBloomSpec {
        RedisBloomSpec { rate, capacity, scaling }
    }

    fn with_spec(rate: f64, capacity: u64, expansion: u32) -> Result<RedisBloomFilter, Error> {
        RedisBloomFilter::with_spec(spec(rate, capacity, Scaling::from_expansion(expansion)), &Unlimited)
    }

    /// From RedisBloom itself.
    #[test]
    fn golden_positions() {
        let cases: [(&[u8], [u64; 8]); 4] = [
            (b"", [366, 1077, 764, 451, 138, 849, 536, 223]),
            (b"a", [1034, 539, 172, 829, 462, 1119, 752, 257]),
            (b"hello", [537, 957, 97, 517, 809, 77, 497, 789]),
            (b"item1", [907, 256, 629, 1002, 351, 724, 73, 446]),
        ];
        for (item, positions) in cases {
            let hash = RedisBloom::new(growing()).hash(item);
            assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(|index| hash.position(index, 1152)), positions, "{item:?}");
        }
    }

    /// Layers that RedisBloom created: bytes, bits, hashes, capacity, rate, bits per item.
    #[test]
    fn golden_sizes() {
        let sizes = |rate, capacity, expansion, layers: usize| {
            let scaling = Scaling::from_expansion(expansion);
            let first = RedisBloomSpec { rate, capacity, scaling }.first_layer().unwrap();
            let rules = RedisBloom::new(scaling);
            let next =
                |newest: &LayerDescription<Flat<DoubleHash>>| rules.next_layer(0, newest.capacity, newest.rate).ok();
            let last = std::iter::successors(Some(first), next).nth(layers - 1).unwrap();
            let Flat { size_bytes, modulus, hashes, bits_per_item, .. } = last.geometry;
            (size_bytes, modulus, hashes, last.capacity, last.rate, bits_per_item)
        };
        assert_eq!(sizes(0.01, 100, 2, 1), (144, 1152, 8, 100, 0.005, 11.027753418256411));
        assert_eq!(sizes(0.01, 100, 2, 6), (7304, 58432, 13, 3200, 0.00015625, 18.241228622701232));
        assert_eq!(sizes(0.001, 1000, 0, 1), (1800, 14400, 10, 1000, 0.001, 14.37758756605117));
        assert_eq!(sizes(0.0001, 200, 4, 4), (39912, 319296, 18, 12800, 6.25e-06, 24.940896918290754));
        assert_eq!(sizes(0.05, 64, 1, 11), (184, 1472, 16, 64, 2.44140625e-05, 22.1048696793513));
        assert_eq!(sizes(0.000001, 1, 2, 6), (152, 1216, 26, 32, 1.5625e-08, 37.41134537743613));
        assert_eq!(sizes(1e-20, 1, 0, 1).2, 67);
        assert_eq!(sizes(1e-300, 1, 0, 1).2, 997);
    }

    #[test]
    #[cfg_attr(miri, ignore = "a chain of a thousand layers takes an hour")]
    fn a_chain_ends_where_its_rates_underflow() {
        let mut filter = with_spec(0.01, 1, 1).unwrap();
        let refused = (0..20_000u32).find_map(|number| filter.add(&number.to_le_bytes(), &Unlimited).err());
        assert_eq!(refused, Some(Error::RateTooLow));
        assert!(filter.layers().len() > 1000 && filter.layers().len() < 1100);
        assert!(matches!(with_spec(5e-324, 1, 2), Err(Error::RateTooLow)));
        assert!(matches!(with_spec(0.01, u64::MAX, 2), Err(Error::SizeOverflow)));
    }

    /// As RedisBloom 2.6.28 created them.
    #[test]
    fn too_large_a_capacity_wraps_in_a_replicated_creation() {
        let carried = |rate, capacity| RedisBloomFilter::carried(spec(rate, capacity, growing()), &Unlimited);
        for (rate, capacity, hashes) in [(0.01, 1_700_000_000_000_000_000, 8), (1e-300, i64::MAX.unsigned_abs(), 998)] {
            let mut filter = carried(rate, capacity).unwrap();
            let geometry = filter.layers()[0].geometry();
            assert_eq!((geometry.size_bytes, geometry.modulus, geometry.hashes), (8, 64, hashes));
            assert_eq!(filter.spec().capacity, capacity);
            assert_eq!(filter.add(b"a", &Unlimited), Ok(true));
        }
        let refused = carried(0.01, 1_600_000_000_000_000_000);
        assert!(matches!(refused, Err(Error::OutOfMemory { .. } | Error::SizeOverflow)));
        assert_eq!(carried(0.01, 100), with_spec(0.01, 100, 2));
    }

    #[test]
    fn the_reach_is_the_capacity_of_the_longest_chain() {
        let growth_limit = |scaling, ceiling| growth_limit(&spec(0.01, 100, scaling), 0, &ceiling).capacity;
        let size_bytes = 32 + 3 * 64 + 144 + 312 + 696;
        assert_eq!(growth_limit(growing(), Limits { size_bytes, layers: 3 }), 700);
        assert_eq!(growth_limit(growing(), Limits { size_bytes: size_bytes - 1, layers: 3 }), 300);
        assert_eq!(growth_limit(growing(), Limits { size_bytes, layers: 2 }), 300);
        assert_eq!(growth_limit(Scaling::Fixed, Limits { size_bytes: 1 << 30, layers: 3 }), 100);
    }
}
