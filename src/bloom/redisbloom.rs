//! Filters of RedisBloom's layout: they hash, grow and are laid out by its rules, so that what it wrote stays true and what
//! is written goes back to it.
//!
//! Each layer has half the rate of the one before. The first of a growing filter has half the rate that was asked for, so
//! that all together stay within it.

use std::num::NonZeroU32;

use super::Error;
use super::ceiling::Ceiling;
use super::chain::Chain;
use super::description::{LayerDescription, Scaling};
use super::flat::{BitArray, Flat, HASHES_MAX, Positions};
use super::layout::Rules;
use super::murmur2::{murmur_hash_2, murmur_hash_64a};
use super::sizing::{self, to_f64, to_u64};
use super::totals::{self, Reach};

/// Options of a filter, bits of one number: sizes are not rounded up to powers of two.
const NOROUND: u32 = 1;
/// The hash has 64 bits.
const FORCE64: u32 = 4;
/// The filter does not grow.
const NO_SCALING: u32 = 8;
/// Ours, unknown to RedisBloom: the 64-bit hash takes seeds of 32 bits. So did the releases before 2.0, which cut the seed
/// short; nothing that they stored says so but the encoding.
const SEEDS_32: u32 = 1 << 31;
/// The growth that is stored for a filter without one.
pub const GROWTH: u32 = 2;
/// The largest capacity that RedisBloom lets a client ask for.
pub const CAPACITY_MAX: u64 = 1 << 30;

/// An item's positions by double hashing: position i is (a + i b) modulo the size, in 64 bits (Kirsch, Mitzenmacher: Less
/// Hashing, Same Performance, 2006).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoubleHash {
    a: u64,
    b: u64,
}

impl Positions for DoubleHash {
    #[inline]
    fn position(self, index: u32, modulus: u64) -> u64 {
        self.a.wrapping_add(self.b.wrapping_mul(index.into())) % modulus
    }
}

/// The geometry of a layer of RedisBloom's.
pub type Geometry = Flat<DoubleHash>;

/// What RedisBloom stores of a filter besides its layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedisBloom {
    /// Bits that say how it hashes and whether it grows; those that mean nothing here are kept.
    pub options: u32,
    /// The factor from one layer's capacity to the next; stored for a fixed filter as well.
    pub growth: u32,
}

impl RedisBloom {
    /// The rules of a new filter.
    #[must_use]
    pub const fn new(scaling: Scaling) -> Self {
        match scaling {
            Scaling::Fixed => Self { options: NOROUND | FORCE64 | NO_SCALING, growth: GROWTH },
            Scaling::Growing { expansion } => Self { options: NOROUND | FORCE64, growth: expansion.get() },
        }
    }

    /// The rules of a filter that a release before 2.0 stored.
    #[must_use]
    pub const fn before_2_0(options: u32) -> Self {
        let seeds = if options & FORCE64 == 0 { 0 } else { SEEDS_32 };
        Self { options: options | seeds, growth: GROWTH }
    }

    /// Whether its hash is none of today's RedisBloom.
    #[must_use]
    pub const fn has_short_seeds(&self) -> bool {
        self.options & SEEDS_32 != 0
    }

    /// Width of the hash, in bits: 64, or 32 in filters of the first release.
    #[must_use]
    pub const fn hash_bits(&self) -> u32 {
        if self.options & FORCE64 == 0 { 32 } else { 64 }
    }
}

impl Rules for RedisBloom {
    type Layout = Geometry;

    #[inline]
    fn hash(&self, item: &[u8]) -> DoubleHash {
        if self.options & FORCE64 == 0 {
            // The sums wrapped at 32 bits there. The sizes were powers of two, so that makes no difference.
            let a = murmur_hash_2(item, 0x9747_b28c);
            return DoubleHash { a: a.into(), b: murmur_hash_2(item, a).into() };
        }
        let mask = if self.has_short_seeds() { u64::from(u32::MAX) } else { u64::MAX };
        let a = murmur_hash_64a(item, 0xc6a4_a793_5bd1_e995 & mask);
        DoubleHash { a, b: murmur_hash_64a(item, a & mask) }
    }

    fn scaling(&self) -> Scaling {
        match NonZeroU32::new(self.growth) {
            Some(expansion) if self.options & NO_SCALING == 0 => Scaling::Growing { expansion },
            _ => Scaling::Fixed,
        }
    }

    /// By today's rule, also behind layers of old releases.
    fn next_layer(&self, _index: usize, capacity: u64, rate: f64) -> Result<LayerDescription<Geometry>, Error> {
        layer(sizing::next_capacity(capacity, self.scaling())?, rate * 0.5)
    }

    fn size_bytes(layers: usize, bits_bytes: u64) -> u64 {
        (32 + 64 * layers as u64).saturating_add(bits_bytes)
    }

    fn zeroed(&self, geometry: &Geometry) -> Result<BitArray, Error> {
        BitArray::zeroed(&[], geometry.size_bytes)
    }
}

/// A layer for `capacity` items at its own rate.
fn layer(capacity: u64, rate: f64) -> Result<LayerDescription<Geometry>, Error> {
    /// ln(2)^2 and ln(2), with the digits that RedisBloom has.
    const LN_2_SQUARED: f64 = 0.480_453_013_918_201;
    #[expect(clippy::approx_constant, reason = "fewer digits than the constant has, as there")]
    const LN_2: f64 = 0.693_147_180_559_945;

    if rate <= 0.0 {
        return Err(Error::RateTooLow);
    }
    // The logarithm of the C library, as there: the stored number is the same to the last bit.
    let bits_per_item = -rate.ln() / LN_2_SQUARED;
    let hashes = to_u64((LN_2 * bits_per_item).ceil()).max(1);
    let hashes = u32::try_from(hashes).ok().filter(|hashes| *hashes <= HASHES_MAX).ok_or(Error::RateTooLow)?;
    let bits = to_u64((to_f64(capacity) * bits_per_item).floor()).max(1);
    let too_large = Error::OutOfMemory { asked_bytes: u64::MAX, available_bytes: 0 };
    let bits = bits.checked_next_multiple_of(64).filter(|bits| *bits < u64::MAX / 2).ok_or(too_large)?;
    Ok(LayerDescription { rate, capacity, items: 0, geometry: Geometry::new(bits / 8, bits, hashes, bits_per_item) })
}

/// A filter of RedisBloom's layout.
pub type RedisBloomFilter = Chain<RedisBloom>;

impl RedisBloomFilter {
    /// An empty filter for `capacity` items at false positive rate `rate`, inside (0, 1).
    ///
    /// # Errors
    /// [`Error::RateOutOfRange`], [`Error::RateTooLow`], [`Error::CapacityOutOfRange`], [`Error::OutOfMemory`].
    pub fn new(rate: f64, capacity: u64, scaling: Scaling, ceiling: &impl Ceiling) -> Result<Self, Error> {
        let first = first_layer(rate, capacity, scaling)?;
        Self::with_first_layer(RedisBloom::new(scaling), &first, ceiling)
    }

    /// A filter as a primary's RedisBloom made it. Release 2.6 takes any capacity; where 64 bits do not count the bits for
    /// it, their number wraps to 0 (on x86-64), and the layer gets the least that there is, 64.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn carried(rate: f64, capacity: u64, scaling: Scaling, ceiling: &impl Ceiling) -> Result<Self, Error> {
        const BITS_MAX: f64 = 18_446_744_073_709_551_616.0;
        let least = first_layer(rate, 1, scaling)?;
        let Geometry { hashes, bits_per_item, .. } = least.geometry;
        if to_f64(capacity) * bits_per_item < BITS_MAX {
            return Self::new(rate, capacity, scaling, ceiling);
        }
        let first = LayerDescription { capacity, geometry: Geometry::new(8, 64, hashes, bits_per_item), ..least };
        Self::with_first_layer(RedisBloom::new(scaling), &first, ceiling)
    }

    /// How far such a filter can grow. The ceiling is asked as for a filter of `filter_bytes` (0: a new one).
    #[must_use]
    pub fn reach(rate: f64, capacity: u64, scaling: Scaling, filter_bytes: u64, ceiling: &impl Ceiling) -> Reach {
        let first = first_layer(rate, capacity, scaling);
        totals::reach(&RedisBloom::new(scaling), first, filter_bytes, ceiling)
    }

    /// The false positive rate that was asked for.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let first = self.layers().first().map_or(sizing::RATE_MAX, super::Layer::rate);
        if self.scaling() == Scaling::Fixed { first } else { first * 2.0 }
    }

    /// The capacity that was asked for.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.layers().first().map_or(1, super::Layer::capacity)
    }
}

fn first_layer(rate: f64, capacity: u64, scaling: Scaling) -> Result<LayerDescription<Geometry>, Error> {
    if !(rate > 0.0 && rate < 1.0) {
        return Err(Error::RateOutOfRange);
    }
    if capacity == 0 {
        return Err(Error::CapacityOutOfRange);
    }
    layer(capacity, if scaling == Scaling::Fixed { rate } else { rate * 0.5 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bloom::Unlimited;
    use crate::bloom::ceiling::Limits;

    fn growing() -> Scaling {
        Scaling::from_expansion(2)
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

    /// Layers that RedisBloom made: bytes, bits, hashes, capacity, rate, bits an item.
    #[test]
    fn golden_sizes() {
        let sizes = |rate, capacity, expansion, layers: usize| {
            let first = first_layer(rate, capacity, Scaling::from_expansion(expansion)).unwrap();
            let rules = RedisBloom::new(Scaling::from_expansion(expansion));
            let next = |newest: &LayerDescription<Geometry>| rules.next_layer(0, newest.capacity, newest.rate).ok();
            let last = std::iter::successors(Some(first), next).nth(layers - 1).unwrap();
            let Geometry { size_bytes, modulus, hashes, bits_per_item, .. } = last.geometry;
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
    fn a_chain_ends_where_its_rates_do() {
        let mut filter = RedisBloomFilter::new(0.01, 1, Scaling::from_expansion(1), &Unlimited).unwrap();
        let refused = (0..20_000u32).find_map(|number| filter.add(&number.to_le_bytes(), &Unlimited).err());
        assert_eq!(refused, Some(Error::RateTooLow));
        assert!(filter.layers().len() > 1000 && filter.layers().len() < 1100);
        assert!(matches!(RedisBloomFilter::new(5e-324, 1, growing(), &Unlimited), Err(Error::RateTooLow)));
        assert!(matches!(
            RedisBloomFilter::new(0.01, u64::MAX, growing(), &Unlimited),
            Err(Error::OutOfMemory { asked_bytes: u64::MAX, .. })
        ));
    }

    /// As 2.6.28 made them.
    #[test]
    fn a_capacity_beyond_all_bits_wraps_in_what_is_carried() {
        let carried = |rate, capacity| RedisBloomFilter::carried(rate, capacity, growing(), &Unlimited);
        for (rate, capacity, hashes) in [(0.01, 1_700_000_000_000_000_000, 8), (1e-300, i64::MAX.unsigned_abs(), 998)] {
            let mut filter = carried(rate, capacity).unwrap();
            let geometry = filter.layers()[0].geometry();
            assert_eq!((geometry.size_bytes, geometry.modulus, geometry.hashes), (8, 64, hashes));
            assert_eq!(filter.capacity(), capacity);
            assert_eq!(filter.add(b"a", &Unlimited), Ok(true));
        }
        assert!(matches!(carried(0.01, 1_600_000_000_000_000_000), Err(Error::OutOfMemory { .. })));
        assert_eq!(carried(0.01, 100), RedisBloomFilter::new(0.01, 100, growing(), &Unlimited));
    }

    #[test]
    fn the_reach_is_what_the_chain_comes_to() {
        let reach = |scaling, ceiling| RedisBloomFilter::reach(0.01, 100, scaling, 0, &ceiling).capacity;
        let size_bytes = 32 + 3 * 64 + 144 + 312 + 696;
        assert_eq!(reach(growing(), Limits { size_bytes, layers: 3 }), 700);
        assert_eq!(reach(growing(), Limits { size_bytes: size_bytes - 1, layers: 3 }), 300);
        assert_eq!(reach(growing(), Limits { size_bytes, layers: 2 }), 300);
        assert_eq!(reach(Scaling::Fixed, Limits { size_bytes: 1 << 30, layers: 3 }), 100);
    }
}
