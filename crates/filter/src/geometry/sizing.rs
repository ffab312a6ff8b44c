//! Pure maths, no state: from a rate to bits and hashes per item, a layer's share of the requested rate, and the capacity of
//! the next layer.
//!
//! A replica computes the next layer itself and must get the same bits, so everything here is either exact in IEEE 754 (`+ - *
//! /`, ceil, round) or comes from `libm`, which gives the same results on every machine.

use std::f64::consts::{LN_2, LN_10, LOG2_10};
use std::num::NonZeroU32;

use crate::error::Error;

/// The lowest rate that can be requested.
pub const RATE_MIN: f64 = 1e-12;
/// The highest rate that can be requested.
pub const RATE_MAX: f64 = 0.25;
/// A small first layer (the default is 100) is for at most this number of items.
pub(crate) const SMALL_FIRST_CAPACITY: u64 = 128;

/// At this rate and above, a fixed filter gets extra bits for items that are mistaken for members while it fills, and so are not counted.
pub(crate) const HIGH_RATE: f64 = 0.02;

/// Below this rate, an item's cells are in four blocks rather than two, which takes fewer bits.
pub const LOW_RATE: f64 = 1e-4;

/// The rules by which a filter is sized, and by which a growing filter divides its rate among its layers. The policy's number is stored
/// with every filter, so that an old filter keeps growing by its own rules. The first differs from the others only for a
/// [low rate](LOW_RATE), for a small first layer of a growing filter, and for a fixed filter with a high rate.
///
/// 16 bits have more unused values than any other field of a filter; see [`NativeSpec`](crate::kinds::NativeSpec).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Policy {
    /// The rules of 0.1 and 0.2. A small first layer gets a 32nd of the rate, which leaves more to later layers.
    One = 1,
    /// Filters with a [low rate](LOW_RATE) have four blocks per item. In others, the layers
    /// after a small first one get nearly equal shares: filters that have grown much take fewer bits. A fixed filter with a high
    /// rate gets more bits.
    Two = 2,
    /// The rules of the second policy. Small filters are stored in fewer bytes, which 0.3 cannot read. It can still read its own filters,
    /// which have the second.
    Three = 3,
}

impl Policy {
    /// The newest policy.
    pub const NEWEST: Self = Self::Three;

    /// Returns the policy with a stored number.
    pub(crate) const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::One),
            2 => Some(Self::Two),
            3 => Some(Self::Three),
            _ => None,
        }
    }

    /// The stored number.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Whether filters of both policies have the same layers.
    pub(crate) fn sizes_like(self, other: Self) -> bool {
        (self == Self::One) == (other == Self::One)
    }

    /// Whether a filter may have this policy: filters to which all policies give the same layers always have the first, so that 0.2 can
    /// read them.
    pub(crate) fn suits(self, rate: f64, scaling: Scaling, first_capacity: u64) -> bool {
        let differs = match scaling {
            Scaling::Fixed => rate >= HIGH_RATE,
            Scaling::Growing { .. } => first_capacity <= SMALL_FIRST_CAPACITY,
        };
        self == Self::One || differs || rate < LOW_RATE
    }
}

/// Rates below 10^-16 get the size of 10^-16. Only late layers of a chain with a very low rate have lower rates.
const DIGITS_MAX: f64 = 16.0;
/// Returns the size of a layer in bits, divided by its capacity: the 1.44 log2(1/p) of a classic Bloom filter (Bloom 1970), plus the cost of
/// unequal loads of blocks, 1% at 10^-2 and 9% at 10^-6. The correction is fitted: a Poisson model of the layout
/// (`tests/figures`) gives 0.67 to 1.06 of the requested rate from 0.25 down to 10^-12, and up to 1.5 at 10^-16, which only
/// late layers of a chain with a very low rate reach.
///
/// Rates above 0.1 get up to 8% more: a filter is full when it has counted its capacity, and items mistaken for members are not
/// counted. A filter at 0.25 counts 100 of 111 distinct items; without the addition, its rate was then 0.29. That is not quite enough
/// for a full fixed filter: see [`bits_per_counted_item`].
pub(crate) fn bits_per_item(rate: f64) -> f64 {
    let uncounted = 0.2 * (1.0 - digits(rate)).max(0.0);
    cells_per_item(rate) * (1.0 + uncounted)
}

/// As [`bits_per_item`], for a fixed filter with a [high rate](HIGH_RATE), except with the first policy. With [`bits_per_item`], the
/// model in `tests/figures` gives a full filter up to 1.07 of such a rate, because the number of hashes is rounded and items that are
/// mistaken for members are not counted. A growing filter needs no such reserve: the shares of its layers leave more than that.
pub(crate) fn bits_per_counted_item(rate: f64) -> f64 {
    cells_per_item(rate) * (1.0 + 0.46 * rate)
}

/// Returns the size of a layer in cells, divided by its capacity, if every added item is counted.
fn cells_per_item(rate: f64) -> f64 {
    let digits = digits(rate);
    digits * LN_10 / (LN_2 * LN_2) * (1.0 + 0.0025 * digits * digits)
}

/// As [`bits_per_item`], for a layer of counters. It equals the number of bits, with two exceptions. Above 0.1 it lacks the
/// addition, because a counting filter counts every add. Below 10^-8 it is larger, by 0.7% at 10^-10 and 1.5% at 10^-12: a page
/// has 16 blocks of counters instead of 64 blocks of bits, so more items share both blocks, which matters at such rates.
/// Without this the model in `tests/figures` gives 1.10 and 1.29 of the requested rate; with it, layers have at most 1.04, and
/// large ones at least 0.89, from 0.25 down to 10^-12.
pub(crate) fn counters_per_item(rate: f64) -> f64 {
    cells_per_item(rate) * (1.0 + 0.0037 * (digits(rate) - 8.0).max(0.0))
}

/// Returns k, the number of bits that each item sets: 7, 10, 13, 16, 18 at 10^-2 to 10^-6. This is slightly below the classic log2(1/p),
/// because blocks are loaded unequally.
pub(crate) fn hashes(rate: f64) -> u32 {
    let digits = digits(rate);
    let hashes = if digits < 8.0 { LOG2_10 * digits * (1.0 - 0.002 * digits * digits) } else { 2.0 * digits + 8.0 };
    u32::try_from(to_u64(hashes.round())).unwrap_or(1).max(1)
}

/// As [`bits_per_item`], for a [low rate](LOW_RATE) with four blocks per item: 2% above a classic Bloom filter at 10^-6, 3% at
/// 10^-7. The correction is fitted to the model in `tests/figures`, as in [`bits_per_item`].
pub(crate) fn bits_per_item_in_four(rate: f64) -> f64 {
    let digits = digits(rate);
    digits * LN_10 / (LN_2 * LN_2) * (1.0 + (0.000443 + 0.000023 * digits) * digits * digits)
}

/// As [`hashes`], for four blocks per item: 16, 19, 22, 25 at 10^-5 to 10^-8. The load of four blocks varies less than the
/// load of two, so k is closer to log2(1/p).
pub(crate) fn hashes_in_four(rate: f64) -> u32 {
    let digits = digits(rate);
    u32::try_from(to_u64((LOG2_10 * digits * (1.0 - 0.00075 * digits * digits)).round())).unwrap_or(1)
}

/// Returns layer `index`'s share of the requested rate. The shares of a chain add up to at most 1, whatever its length.
///
/// With policy 1, they halve from layer to layer, mixed with a long flat tail, so that late layers cost less than with halving alone.
///
/// With the later policies, the layers after a small first one have nearly equal shares: a layer that takes half of the memory should also take half
/// of the rate, so among equal shares the large layers gain most. The first layer is part of every lookup, however large the filter
/// becomes, and the number of cells that its few items set is random: the rate of the default first layer varies by 15% (standard
/// deviation) from filter to filter. With a small share, this is negligible in a filter that has grown.
pub(crate) fn share(policy: Policy, scaling: Scaling, first_capacity: u64, index: u32) -> f64 {
    if scaling == Scaling::Fixed {
        return 1.0;
    }
    let is_small = first_capacity <= SMALL_FIRST_CAPACITY;
    let i = f64::from(index);
    if policy != Policy::One && is_small {
        // 4 * 0.08 + 13 * 0.0455 + 0.0885 = 1. With 8%, the default 100 items take three blocks at 1% and four at 0.1%, and the next layers
        // multiples of that.
        return match index {
            0..4 => 0.08,
            4..=16 => 0.0455,
            _ => 0.0885 * 16.0 / (i * (i - 1.0)),
        };
    }
    let (first, others) = if is_small { (1.0 / 32.0, 31.0 / 32.0) } else { (0.62, 0.38) };
    if index == 0 {
        return first;
    }
    let halving = if index < 1024 { f64::from_bits(u64::from(1023 - index) << 52) } else { 0.0 };
    let flat = if index <= 16 { 1.0 / 20.0 } else { 3.2 / (i * (i - 1.0)) };
    others * (0.6 * halving + 0.4 * flat)
}

/// Returns the capacity of the layer after one of `capacity`.
///
/// # Errors
/// [`Error::Full`] for a fixed filter, [`Error::CapacityOutOfRange`] if it does not fit 64 bits.
pub(crate) fn next_capacity(capacity: u64, scaling: Scaling) -> Result<u64, Error> {
    match scaling {
        Scaling::Fixed => Err(Error::Full),
        Scaling::Growing { expansion } => {
            capacity.checked_mul(u64::from(expansion.get())).ok_or(Error::CapacityOutOfRange)
        }
    }
}

/// Returns -log10 of a rate, at most 16.
fn digits(rate: f64) -> f64 {
    (-libm::log10(rate)).min(DIGITS_MAX)
}

/// Converts to the nearest double. Rounds above 2^53, in the same way on every machine.
#[expect(clippy::cast_precision_loss, reason = "that is what the function is for")]
pub(crate) const fn to_f64(number: u64) -> f64 {
    number as f64
}

/// Converts a non-negative whole number to an integer, and clamps it to the range of the integer.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
pub(crate) const fn to_u64(number: f64) -> u64 {
    number as u64
}

/// The behavior of a full filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// It refuses new items (NONSCALING).
    Fixed,
    /// It adds another layer.
    Growing {
        /// The factor from one layer's capacity to the next.
        expansion: NonZeroU32,
    },
}

impl Scaling {
    /// The factor as it is stored and shown; 0 means a fixed filter.
    pub const fn expansion(self) -> u32 {
        match self {
            Self::Fixed => 0,
            Self::Growing { expansion } => expansion.get(),
        }
    }

    /// The inverse of [`expansion`](Self::expansion).
    pub const fn from_expansion(expansion: u32) -> Self {
        match NonZeroU32::new(expansion) {
            None => Self::Fixed,
            Some(expansion) => Self::Growing { expansion },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growing() -> Scaling {
        Scaling::Growing { expansion: NonZeroU32::new(2).unwrap() }
    }

    #[test]
    fn hashes_at_common_rates() {
        let rates = [1e-2, 1e-3, 1e-4, 1e-5, 1e-6];
        assert_eq!(rates.map(hashes), [7, 10, 13, 16, 18]);
        assert_eq!(hashes(0.25), 2);
        assert_eq!(hashes(0.999), 1);
        assert_eq!(hashes(1e-8), 24);
        assert_eq!(hashes(1e-16), 40);
        assert_eq!(hashes(1e-300), 40);
        assert_eq!([1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-12, 1e-300].map(hashes_in_four), [13, 16, 19, 22, 25, 36, 43]);
    }

    #[test]
    fn bits_per_item_slightly_exceed_those_of_the_paper() {
        let classic = |rate| -libm::log(rate) / (LN_2 * LN_2);
        for (rate, above) in [(1e-2, 1.010), (1e-4, 1.040), (1e-6, 1.090)] {
            assert!((bits_per_item(rate) / classic(rate) - above).abs() < 1e-9, "{rate}");
        }
        for (rate, above) in [(1e-6, 1.020_916), (1e-7, 1.029_596), (1e-8, 1.040_128)] {
            assert!((bits_per_item_in_four(rate) / classic(rate) - above).abs() < 1e-9, "{rate}");
        }
    }

    #[test]
    fn counters_per_item_slightly_exceed_bits_at_low_rates() {
        for rate in [0.1, 1e-2, 1e-4, 1e-6, 1e-8] {
            assert_eq!(counters_per_item(rate), bits_per_item(rate));
        }
        let uncounted = 1.0 + 0.2 * (1.0 - digits(0.25));
        assert!((bits_per_item(0.25) / counters_per_item(0.25) - uncounted).abs() < 1e-12);
        for (rate, above) in [(1e-10, 1.0074), (1e-12, 1.0148)] {
            assert!((counters_per_item(rate) / bits_per_item(rate) - above).abs() < 1e-9, "{rate}");
        }
    }

    /// How many layers a long chain has: fewer under miri, which is slow.
    const LAYERS: u32 = if cfg!(miri) { 2000 } else { 100_000 };

    #[test]
    fn the_shares_of_a_chain_add_up_to_at_most_one() {
        for (policy, first) in
            [Policy::One, Policy::Two, Policy::Three].map(|one| [1, 100, 128, 129, 1 << 40].map(|f| (one, f))).concat()
        {
            let sum: f64 = (0..LAYERS).map(|index| share(policy, growing(), first, index)).sum();
            assert!(sum <= 1.0 && sum > 0.999, "{policy:?}: {sum}");
        }
        assert_eq!(share(Policy::One, Scaling::Fixed, 100, 0), 1.0);
        assert_eq!(share(Policy::One, growing(), 100, 0), 1.0 / 32.0);
        assert_eq!([0, 3].map(|index| share(Policy::Two, growing(), 100, index)), [0.08; 2]);
        assert_eq!([4, 16].map(|index| share(Policy::Two, growing(), 100, index)), [0.0455; 2]);
        assert!((share(Policy::One, growing(), 129, 1) - 0.38 * (0.3 + 0.02)).abs() < 1e-15);
    }

    #[test]
    fn policies_differ_for_low_rates_small_first_layers_and_high_rates_of_fixed_filters_only() {
        for (scaling, first) in [(Scaling::Fixed, 100), (growing(), 129), (growing(), 100)] {
            let shares = |policy| (0..2000).map(move |index| share(policy, scaling, first, index));
            let differ = !shares(Policy::One).eq(shares(Policy::Two));
            assert_eq!(differ, Policy::Two.suits(0.01, scaling, first), "{scaling:?} {first}");
            assert!(Policy::One.suits(0.01, scaling, first));
            assert!(shares(Policy::Two).eq(shares(Policy::Three)));
            assert_eq!(Policy::Three.suits(0.01, scaling, first), differ);
        }
        let suit = [0.0199, 0.02, 0.25].map(|rate| Policy::Two.suits(rate, Scaling::Fixed, 1 << 40));
        assert_eq!(suit, [false, true, true]);
        for scaling in [Scaling::Fixed, growing()] {
            assert_eq!([9.9e-5, 1e-4].map(|rate| Policy::Two.suits(rate, scaling, 1 << 40)), [true, false]);
        }
        let numbers = [0, 1, 2, 3, 4].map(|number| Policy::from_number(number).map(Policy::number));
        assert_eq!(numbers, [None, Some(1), Some(2), Some(3), None]);
        let all = [Policy::One, Policy::Two, Policy::Three];
        let alike = all.map(|one| all.map(|other| one.sizes_like(other)));
        assert_eq!(alike, [[true, false, false], [false, true, true], [false, true, true]]);
    }

    #[test]
    fn capacities_grow_by_the_expansion_until_they_do_not_fit() {
        assert_eq!(next_capacity(100, growing()), Ok(200));
        assert_eq!(next_capacity(u64::MAX / 2 + 1, growing()), Err(Error::CapacityOutOfRange));
        assert_eq!(next_capacity(100, Scaling::Fixed), Err(Error::Full));
    }
}
