//! Pure maths: estimates the items and the present false positive rate of a native layer from the number of set bits in its blocks. A
//! merged filter and a filter that forgets have no exact count of their items.
//!
//! Logarithms come from `libm`, as in `sizing.rs`, so every machine computes the same numbers.

use super::BlockedGeometry;
use super::sizing::to_f64;
use crate::cells::{BLOCK_CELLS, Histogram};

/// The fill of a layer, estimated from at most 1 MiB of its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FillEstimate {
    /// The fraction of its cells that are occupied, 0 to 1.
    pub(crate) fill: f64,
    /// The estimated number of distinct items in it.
    pub(crate) items: f64,
    /// The estimated false positive rate, 0 to 1.
    pub(crate) rate: f64,
}

impl FillEstimate {
    /// Estimates a layer of blocks. The histogram covers all blocks or a sample.
    pub(crate) fn of_blocks<const BLOCK: usize>(histogram: &Histogram, geometry: &BlockedGeometry<BLOCK>) -> Self {
        let ones: f64 = each(histogram).map(|(ones, blocks)| to_f64(ones) * to_f64(blocks)).sum();
        let cells = to_f64(histogram.blocks().max(1)) * to_f64(BLOCK_CELLS as u64);
        let items = items(histogram, geometry.hashes, geometry.blocks());
        Self { fill: ones / cells, items, rate: rate_now(histogram, geometry) }
    }

    /// Estimates a flat array of `modulus` bits, of which `looked_at` were read (same source, for one array). An item's bits form an
    /// arithmetic progression, except `apart` of them.
    pub(crate) fn of_flat(ones: u64, looked_at: u64, hashes: u32, apart: u32, modulus: u64) -> Self {
        if looked_at == 0 || hashes == 0 {
            return Self::default();
        }
        let fill = to_f64(ones.min(looked_at)) / to_f64(looked_at);
        // A full array is treated as if one bit were clear.
        let most = 1.0 - 1.0 / to_f64(looked_at).max(2.0);
        let items = -libm::log1p(-fill.min(most)) * to_f64(modulus) / f64::from(hashes);
        let power = |bits: u32| (0..bits).fold(1.0, |chance, _| chance * fill);
        let by_coincidence = power(apart) * by_coincidence(fill, hashes.saturating_sub(apart), modulus);
        Self { fill, items, rate: (power(hashes) + by_coincidence).min(1.0) }
    }
}

/// Estimates the number of distinct items in a layer of `blocks` blocks with `hashes` bits per item. The histogram covers all
/// blocks or a sample.
///
/// After n draws, 512 (1 - (1 - 1/512)^n) bits of a block are set on average, so a block with X set bits had about -512 ln(1 - X / 512)
/// draws (Swamidass, Baldi: Mathematical Correction for Fingerprint Similarity Measures, 2007). A full block is treated as if one bit were
/// clear. Computes a logarithm for each number of bits that occurs.
pub(crate) fn items(histogram: &Histogram, hashes: u32, blocks: u64) -> f64 {
    let counted = histogram.blocks();
    if counted == 0 || hashes == 0 {
        return 0.0;
    }
    let bits = to_f64(BLOCK_CELLS as u64);
    let drawn = |ones: u64| -bits * libm::log1p(-to_f64(ones.min(BLOCK_CELLS as u64 - 1)) / bits);
    let sum: f64 = each(histogram).map(|(ones, blocks)| to_f64(blocks) * drawn(ones)).sum();
    sum / f64::from(hashes) * (to_f64(blocks) / to_f64(counted))
}

/// Estimates the false positive rate of a layer, 0 to 1: the chance that all bits of an absent item are set in its blocks.
///
/// Assumes that these blocks, which are in the same group, are filled independently. This holds well because groups are loaded almost
/// equally: `tests/figures/estimates.rs` bounds the error: at 1e-2 and 1e-4 and capacities of at least 10,000, at most 5% of the rate in a
/// layer that is at least half full, and 15% in a quarter-full one, whose rate is at most a thousandth of the requested one. With four
/// blocks per item, at 1e-6, 8% in a full layer, 20% in a half-full and 35% in a quarter-full one.
pub(crate) fn rate_now<const BLOCK: usize>(histogram: &Histogram, geometry: &BlockedGeometry<BLOCK>) -> f64 {
    let blocks = to_f64(histogram.blocks().max(1));
    let all_set = |bits: u32| {
        let chances = each(histogram).map(|(ones, blocks)| {
            let fill = to_f64(ones) / to_f64(BLOCK_CELLS as u64);
            to_f64(blocks) * (0..bits).fold(1.0, |chance, _| chance * fill)
        });
        chances.sum::<f64>() / blocks
    };
    (0..geometry.blocks_per_item.into()).map(|block| all_set(geometry.hashes_in(block))).product()
}

/// The longest period that [`by_coincidence`] considers: in a half-full array, longer ones add less than a hundredth.
const PERIOD_MAX: u64 = 12;

/// The additional chance that an absent item passes a flat array of `modulus` bits because some of its `hashes` bits coincide.
///
/// Bit i is (a + i b) mod 2^64 mod m. Let f = b / 2^64 and r = 2^64 mod m. If the sum wraps w times in d steps, which requires w
/// close to d f, the bits repeat with period d for each b with d b = r w mod m. That is one b in m, on average, for each of some
/// thirty pairs (d, w). Such an item has d different bits, and one more for each 1 / (d |f - w/d|) of the other k - d steps.
/// Averaged over f, the chance that all of them are set is (p^d - p^k) / (d (k - d) ln(1/p)) - p^k / d for each side of w/d. If m
/// is a power of two, r is 0 and f makes no difference.
///
/// At low rates most false positives are of this kind: 80 times p^k in a full layer for 100 items at 1e-6. `tests/figures/estimates.rs`
/// compares the sum with the answers of filters. Items that share most of their bits with a member are ignored; they would add up to a
/// fifth.
fn by_coincidence(fill: f64, hashes: u32, modulus: u64) -> f64 {
    if fill <= 0.0 || fill >= 1.0 || hashes < 2 || modulus < 2 {
        return 0.0;
    }
    let wrapped = (u64::MAX % modulus + 1) % modulus;
    let power = |bits: u64| libm::exp(libm::log(fill) * to_f64(bits));
    let (all, most) = (power(hashes.into()), PERIOD_MAX.min(u64::from(hashes) - 1));
    let mut sum = 0.0;
    for period in 1..=most {
        let gained = if wrapped == 0 {
            power(period) - all
        } else {
            let others = to_f64(u64::from(hashes) - period) * -libm::log(fill);
            (power(period) - all) / (to_f64(period) * others) - all / to_f64(period)
        };
        sum += gained * to_f64(steps_of_period(period, modulus, wrapped));
    }
    sum / to_f64(modulus)
}

/// Counts the values of b modulo `modulus` with this period, once for each side of w/d.
fn steps_of_period(period: u64, modulus: u64, wrapped: u64) -> u64 {
    let mut steps = 0;
    // In `base` steps, `wraps` of which wrap, the sum moves by an element of order `period / base`.
    for base in (1..=period).filter(|base| period.is_multiple_of(*base) && modulus.is_multiple_of(period / base)) {
        let (order, divisor) = (period / base, gcd(base, modulus));
        if wrapped == 0 && base > 1 {
            continue;
        }
        for wraps in (0..=base).filter(|wraps| gcd(*wraps, base) == 1) {
            let sides = if wraps == 0 || wraps == base { 1 } else { 2 };
            let moved = |by: u64| (modulus / order * by) % divisor + (wrapped % divisor) * (wraps % divisor);
            let elements = (1..=order).filter(|by| gcd(*by, order) == 1 && moved(*by).is_multiple_of(divisor));
            steps += sides * divisor * elements.count() as u64;
        }
    }
    // If r is 0, w = 0 and w = d are the same case.
    if wrapped == 0 { steps / 2 } else { steps }
}

const fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { gcd(other, one % other) }
}

/// Returns each number of bits that occurs, and the number of blocks with it.
fn each(histogram: &Histogram) -> impl Iterator<Item = (u64, u64)> {
    (0u64..).zip(histogram.counts().iter().copied()).filter(|(_, blocks)| *blocks > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::BlockedBits;

    const LAYER: BlockedBits = BlockedBits { groups: 1, blocks_per_group: 64, blocks_per_item: 2, hashes: 7 };

    #[test]
    fn an_empty_layer_has_no_items_and_rate_zero() {
        for histogram in [Histogram::empty(), Histogram::of(&[0; 4096])] {
            assert_eq!(items(&histogram, 7, 64), 0.0);
            assert_eq!(rate_now(&histogram, &LAYER), 0.0);
        }
    }

    #[test]
    fn a_full_layer_has_finite_estimates_and_rate_one() {
        let full = Histogram::of(&[255; 4096]);
        assert_eq!(rate_now(&full, &LAYER), 1.0);
        let most = items(&full, 7, 64);
        assert!((most - 64.0 * 512.0 * libm::log(512.0) / 7.0).abs() < 1e-6, "{most}");
        assert_eq!(items(&full, 7, 128), 2.0 * most, "a sample stands for the whole");
    }

    #[test]
    fn a_flat_array_is_estimated_as_one_block() {
        let half = FillEstimate::of_flat(500, 1000, 3, 3, 1000);
        assert_eq!((half.fill, half.rate), (0.5, 0.125));
        assert!((half.items - 1000.0 / 3.0 * libm::log(2.0)).abs() < 1e-9);
        assert_eq!(FillEstimate::of_flat(0, 1000, 3, 0, 1000), FillEstimate::default());
        assert_eq!(FillEstimate::of_flat(0, 0, 3, 0, 0), FillEstimate::default());
        let full = FillEstimate::of_flat(8, 8, 1, 0, 8);
        assert!((full.fill, full.rate) == (1.0, 1.0) && full.items.is_finite());
    }

    /// Compares the sum with every step b, for many values of f.
    #[test]
    fn the_sum_over_periods_is_that_over_all_steps() {
        let shares = if cfg!(miri) { 3 } else { 200 };
        for (modulus, hashes) in [(1024u64, 13u32), (960, 8), (960, 14), (1472, 10), (832, 20)] {
            if cfg!(miri) && modulus != 832 {
                continue;
            }
            let p: f64 = 0.5;
            let all_set = |first: u64, step: u64| {
                let bits = (0..u64::from(hashes)).map(|index| first.wrapping_add(step.wrapping_mul(index)) % modulus);
                let bits: std::collections::BTreeSet<u64> = bits.collect();
                p.powi(i32::try_from(bits.len()).unwrap())
            };
            let mut sum = 0.0;
            for share in 0..shares {
                let about = u64::MAX / shares * share + u64::MAX / (2 * shares);
                let first = about.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                sum += (0..modulus).map(|step| all_set(first, about - about % modulus + step)).sum::<f64>();
            }
            let measured = sum / to_f64(modulus * shares) - p.powi(i32::try_from(hashes).unwrap());
            let estimated = by_coincidence(p, hashes, modulus);
            assert!(
                cfg!(miri) || (estimated / measured - 1.0).abs() < 0.12,
                "{modulus}, {hashes}: {estimated} {measured}"
            );
        }
        assert_eq!(
            [(0.0, 9, 64), (1.0, 9, 64), (0.5, 1, 64), (0.5, 9, 1)].map(|(p, k, m)| by_coincidence(p, k, m)),
            [0.0; 4]
        );
    }

    #[test]
    fn a_rate_is_the_product_of_all_blocks() {
        // Half the blocks have a quarter of their bits, the others three quarters.
        let bytes: Vec<u8> = [0x11, 0x77].into_iter().flat_map(|byte| [byte; 64]).collect();
        let mean = |bits: i32| f64::midpoint(0.25f64.powi(bits), 0.75f64.powi(bits));
        let now = |geometry| rate_now(&Histogram::of(&bytes), &geometry);
        assert!((now(LAYER) - mean(4) * mean(3)).abs() < 1e-15);
        let four = BlockedBits { blocks_per_item: 4, hashes: 18, ..LAYER };
        assert!((now(four) - mean(5).powi(2) * mean(4).powi(2)).abs() < 1e-15);
    }
}
