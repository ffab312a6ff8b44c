//! Pure maths, no state: from a capacity and a rate to a layer's geometry, a layer's share of the rate that was asked
//! for, and the capacity of the next layer.
//!
//! A replica works out the next layer by itself and must get the same bits, so everything here is either exact in
//! IEEE 754 (`+ - * /`, ceil, round) or comes from `libm`, which computes the same on every machine.

use std::f64::consts::{LN_2, LN_10, LOG2_10};

use super::bits::{BLOCK_BITS, BLOCK_BYTES};
use super::{Error, Scaling};

/// The lowest rate that a filter can be asked for.
pub const RATE_MIN: f64 = 1e-12;
/// The highest rate that a filter can be asked for.
pub const RATE_MAX: f64 = 0.25;
/// The number of the rules in this file, stored with every filter: another rule gets another number.
pub const POLICY: u32 = 1;

/// A group is at most a page: 64 blocks of 64 bytes.
const GROUP_BLOCKS_MAX: u64 = 64;
/// From so many blocks on (256 KiB) every group is a whole page.
const WHOLE_PAGES_FROM_BLOCKS: u64 = 4096;
/// Rates below 10^-16 get the size of 10^-16: what is left of a tight rate for the far layers of a chain.
const DIGITS_MAX: f64 = 16.0;
/// More bits an item than this no geometry of ours has; what is loaded is checked against it.
const HASHES_MAX: u32 = 64;

/// The shape of a layer's bitmap and how many bits an item has in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Number of groups. An item's blocks lie in one of them.
    pub groups: u64,
    /// Number of 64-byte blocks of a group, 2 to 64.
    pub blocks_per_group: u32,
    /// Number of bits of an item, k, 1 to 64: the first half of them, rounded up, in one block, the rest in another.
    pub hashes: u32,
}

impl Geometry {
    /// The geometry of a layer for `capacity` items at false positive rate `rate`.
    ///
    /// # Errors
    /// [`Error::CapacityOutOfRange`] for capacity 0, [`Error::RateOutOfRange`] unless 0 < `rate` < 1,
    /// [`Error::OutOfMemory`] for a bitmap whose size in bytes does not fit 63 bits.
    pub fn for_layer(capacity: u64, rate: f64) -> Result<Self, Error> {
        if capacity == 0 {
            return Err(Error::CapacityOutOfRange);
        }
        if !(rate > 0.0 && rate < 1.0) {
            return Err(Error::RateOutOfRange);
        }
        let blocks = to_u64((bits_per_item(rate) * to_f64(capacity) / to_f64(BLOCK_BITS as u64)).ceil()).max(2);
        let groups = blocks.div_ceil(GROUP_BLOCKS_MAX);
        let blocks_per_group =
            if blocks < WHOLE_PAGES_FROM_BLOCKS { blocks.div_ceil(groups) } else { GROUP_BLOCKS_MAX };
        let geometry = Self {
            groups,
            blocks_per_group: u32::try_from(blocks_per_group).unwrap_or(u32::MAX),
            hashes: hashes(rate),
        };
        geometry.check().map_err(|_| Error::OutOfMemory { asked_bytes: u64::MAX, available_bytes: 0 })?;
        Ok(geometry)
    }

    /// Whether a bitmap can have this geometry, wherever it came from.
    ///
    /// # Errors
    /// [`Error::Unsound`] if not.
    pub fn check(&self) -> Result<(), Error> {
        let fields =
            self.groups >= 1 && (2..=64).contains(&self.blocks_per_group) && (1..=HASHES_MAX).contains(&self.hashes);
        let size = self
            .groups
            .checked_mul(u64::from(self.blocks_per_group))
            .and_then(|blocks| blocks.checked_mul(BLOCK_BYTES as u64))
            .filter(|&size| i64::try_from(size).is_ok());
        if fields && size.is_some() { Ok(()) } else { Err(Error::Unsound) }
    }

    /// Number of blocks of the bitmap.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.groups.saturating_mul(self.blocks_per_group as u64)
    }

    /// Size of the bitmap, in bytes.
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.blocks().saturating_mul(BLOCK_BYTES as u64)
    }
}

/// Bits of bitmap an item at a rate: the 1.44 log2(1/p) of a classic Bloom filter (Bloom 1970) and what blocks of
/// unequal load cost on top, 1% at 10^-2, 9% at 10^-6. The correction is fitted: a Poisson model of the layout
/// (`tests/accuracy.rs`) gives 0.67 to 1.06 of the asked rate from 0.25 down to 10^-12, and up to 1.5 at 10^-16, which
/// only far layers of a very tight chain come to.
///
/// Above 0.1 there is up to 8% more: a filter is full when it has counted as many items as it is made for, and items
/// that it takes for members are not counted. Of 111 different items a filter at 0.25 counts 100; without the addition
/// it was then wrong 0.29 of the time.
#[must_use]
pub fn bits_per_item(rate: f64) -> f64 {
    let digits = digits(rate);
    let uncounted = 0.2 * (1.0 - digits).max(0.0);
    digits * LN_10 / (LN_2 * LN_2) * (1.0 + 0.0025 * digits * digits) * (1.0 + uncounted)
}

/// Number of bits of an item, k: 7, 10, 13, 16, 18 at 10^-2 to 10^-6. A little below the classic log2(1/p), which
/// suits blocks of unequal load.
#[must_use]
pub fn hashes(rate: f64) -> u32 {
    let digits = digits(rate);
    let hashes = if digits < 8.0 { LOG2_10 * digits * (1.0 - 0.002 * digits * digits) } else { 2.0 * digits + 8.0 };
    u32::try_from(to_u64(hashes.round())).unwrap_or(1).max(1)
}

/// Layer `index`'s share of the rate that a filter was asked for. The shares of a chain add up to at most 1, however
/// many layers it has: halving from layer to layer, mixed with a long flat tail, so that a chain that grew far pays
/// less for its last layers than by halving alone.
#[must_use]
pub fn share(scaling: Scaling, first_capacity: u64, index: u32) -> f64 {
    /// Of a small first layer (the default is 100) a small share costs 64 bytes, and the others gain.
    const SMALL_FIRST_CAPACITY: u64 = 128;
    if scaling == Scaling::Fixed {
        return 1.0;
    }
    let first = if first_capacity <= SMALL_FIRST_CAPACITY { 1.0 / 32.0 } else { 0.62 };
    let others = if first_capacity <= SMALL_FIRST_CAPACITY { 31.0 / 32.0 } else { 0.38 };
    if index == 0 {
        return first;
    }
    let halving = if index < 1024 { f64::from_bits(u64::from(1023 - index) << 52) } else { 0.0 };
    let i = f64::from(index);
    let flat = if index <= 16 { 1.0 / 20.0 } else { 3.2 / (i * (i - 1.0)) };
    others * (0.6 * halving + 0.4 * flat)
}

/// The capacity of the layer behind one of `capacity`.
///
/// # Errors
/// [`Error::Full`] for a fixed filter, [`Error::CapacityOutOfRange`] where it does not fit 64 bits.
pub fn next_capacity(capacity: u64, scaling: Scaling) -> Result<u64, Error> {
    match scaling {
        Scaling::Fixed => Err(Error::Full),
        Scaling::Growing { expansion } => {
            capacity.checked_mul(u64::from(expansion.get())).ok_or(Error::CapacityOutOfRange)
        }
    }
}

/// -log10 of a rate, at most 16.
fn digits(rate: f64) -> f64 {
    (-libm::log10(rate)).min(DIGITS_MAX)
}

/// The nearest double. Above 2^53 the last bits are lost, in the same way everywhere.
#[expect(clippy::cast_precision_loss, reason = "that is what the function is for")]
pub(crate) const fn to_f64(number: u64) -> f64 {
    number as f64
}

/// A whole number from 0 on as an integer; what does not fit becomes the nearest that does.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
pub(crate) const fn to_u64(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn growing() -> Scaling {
        Scaling::Growing { expansion: NonZeroU32::new(2).unwrap() }
    }

    #[test]
    fn hashes_at_the_rates_that_people_ask_for() {
        let rates = [1e-2, 1e-3, 1e-4, 1e-5, 1e-6];
        assert_eq!(rates.map(hashes), [7, 10, 13, 16, 18]);
        assert_eq!(hashes(0.25), 2);
        assert_eq!(hashes(0.999), 1);
        assert_eq!(hashes(1e-8), 24);
        assert_eq!(hashes(1e-16), 40);
        assert_eq!(hashes(1e-300), 40);
    }

    #[test]
    fn bits_per_item_are_those_of_the_paper_and_a_little_more() {
        for (rate, above) in [(1e-2, 1.010), (1e-4, 1.040), (1e-6, 1.090)] {
            let classic = -libm::log(rate) / (LN_2 * LN_2);
            assert!((bits_per_item(rate) / classic - above).abs() < 1e-9, "{rate}");
        }
    }

    #[test]
    fn a_geometry_has_room_for_the_bits_and_groups_of_at_most_a_page() {
        for capacity in [1, 2, 10, 99, 100, 1000, 12_345, 100_000, 218_000, 1_000_000, 1 << 40] {
            for rate in [0.25, 0.1, 1e-2, 1e-3, 1e-6, 1e-12] {
                let geometry = Geometry::for_layer(capacity, rate).unwrap();
                geometry.check().unwrap();
                let asked = bits_per_item(rate) * to_f64(capacity);
                let has = to_f64(geometry.blocks()) * 512.0;
                assert!(has >= asked, "{capacity} {rate}");
                // At most a block for each group above what is needed, and a page for whole pages.
                let slack = to_f64(geometry.groups.min(4096)) * 512.0 + 512.0;
                assert!(has < asked + slack.clamp(1024.0, 32768.0 + 512.0), "{capacity} {rate}: {has} for {asked}");
                if geometry.size_bytes() >= 256 * 1024 {
                    assert_eq!(geometry.blocks_per_group, 64);
                }
            }
        }
    }

    #[test]
    fn edges_are_refused_or_survived() {
        assert_eq!(Geometry::for_layer(0, 0.01), Err(Error::CapacityOutOfRange));
        for rate in [0.0, -1.0, 1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Geometry::for_layer(1, rate), Err(Error::RateOutOfRange));
        }
        assert!(matches!(Geometry::for_layer(u64::MAX, 1e-12), Err(Error::OutOfMemory { .. })));
        assert!(Geometry::for_layer(1, f64::MIN_POSITIVE).is_ok());
        assert!(Geometry::for_layer(1, 5e-324).is_ok());
        let smallest = Geometry::for_layer(1, 0.999_999).unwrap();
        assert_eq!((smallest.groups, smallest.blocks_per_group, smallest.hashes), (1, 2, 1));
    }

    /// How many layers a long chain has: fewer under miri, which is slow.
    const LAYERS: u32 = if cfg!(miri) { 2000 } else { 100_000 };

    #[test]
    fn the_shares_of_a_chain_add_up_to_at_most_one() {
        for first in [1, 100, 128, 129, 1000, 1 << 40] {
            let sum: f64 = (0..LAYERS).map(|index| share(growing(), first, index)).sum();
            assert!(sum <= 1.0 && sum > 0.999, "{sum}");
        }
        assert_eq!(share(Scaling::Fixed, 100, 0), 1.0);
        assert_eq!(share(growing(), 100, 0), 1.0 / 32.0);
        assert_eq!(share(growing(), 129, 0), 0.62);
        assert!((share(growing(), 129, 1) - 0.38 * (0.3 + 0.02)).abs() < 1e-15);
    }

    #[test]
    fn capacities_grow_by_the_expansion_until_they_do_not_fit() {
        assert_eq!(next_capacity(100, growing()), Ok(200));
        assert_eq!(next_capacity(u64::MAX / 2 + 1, growing()), Err(Error::CapacityOutOfRange));
        assert_eq!(next_capacity(100, Scaling::Fixed), Err(Error::Full));
    }
}
