//! Pure maths: from how full the blocks of a layer of our layout are to how many items are in it, and how often it is wrong
//! now. Of what was merged or has forgotten nobody has counted the items.
//!
//! Logarithms come from `libm`, as in `sizing.rs`: every machine answers the same.

use super::sizing::to_f64;
use crate::cells::{BLOCK_CELLS, Histogram};

/// How full a layer is, of which at most 1 MiB was read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fullness {
    /// The part of its cells in which items left something, 0 to 1.
    pub fill: f64,
    /// About how many different items are in it.
    pub items: f64,
    /// How often it answers for an item that was never added that it is in, 0 to 1.
    pub rate: f64,
}

impl Fullness {
    /// Of a layer of `blocks` blocks, of which the histogram has all or a sample.
    #[must_use]
    pub fn of_blocks(histogram: &Histogram, hashes: u32, blocks: u64) -> Self {
        let ones: f64 = each(histogram).map(|(ones, blocks)| to_f64(ones) * to_f64(blocks)).sum();
        let cells = to_f64(histogram.blocks().max(1)) * to_f64(BLOCK_CELLS as u64);
        Self { fill: ones / cells, items: items(histogram, hashes, blocks), rate: rate_now(histogram, hashes) }
    }

    /// Of a flat array of bits, so many of which were looked at, `modulus` in all (the same source, for one array).
    #[must_use]
    pub fn of_flat(ones: u64, looked_at: u64, hashes: u32, modulus: u64) -> Self {
        if looked_at == 0 || hashes == 0 {
            return Self::default();
        }
        let fill = to_f64(ones.min(looked_at)) / to_f64(looked_at);
        // A full array is counted as one with a bit left.
        let most = 1.0 - 1.0 / to_f64(looked_at).max(2.0);
        let items = -libm::log1p(-fill.min(most)) * to_f64(modulus) / f64::from(hashes);
        Self { fill, items, rate: (0..hashes).fold(1.0, |chance, _| chance * fill) }
    }
}

/// About how many different items are in a layer of `blocks` blocks, `hashes` bits each, of which the histogram has all or a
/// sample.
///
/// A block that n bits were drawn for has 512 (1 - (1 - 1/512)^n) of them set on average, so a block with X of them had about
/// -512 ln(1 - X / 512) drawn (Swamidass, Baldi: Mathematical Correction for Fingerprint Similarity Measures, 2007). A full
/// block is counted as one with a bit left. Costs a logarithm for each number of bits that occurs.
#[must_use]
pub fn items(histogram: &Histogram, hashes: u32, blocks: u64) -> f64 {
    let counted = histogram.blocks();
    if counted == 0 || hashes == 0 {
        return 0.0;
    }
    let bits = to_f64(BLOCK_CELLS as u64);
    let drawn = |ones: u64| -bits * libm::log1p(-to_f64(ones.min(BLOCK_CELLS as u64 - 1)) / bits);
    let sum: f64 = each(histogram).map(|(ones, blocks)| to_f64(blocks) * drawn(ones)).sum();
    sum / f64::from(hashes) * (to_f64(blocks) / to_f64(counted))
}

/// How often a layer answers for an item that was never added that it is in, 0 to 1: the chance that all its bits are set in
/// two blocks, half of them, rounded up, in one and the rest in another.
///
/// Both blocks are in one group, but how full they are is taken for independent. Groups have nearly the same load, and
/// `tests/estimates.rs` holds what that neglects: at 1e-2 and 1e-4 and capacities from 10,000 on at most 5% of the rate from
/// half full on, and 15% at a quarter, where the rate is a thousandth of the asked one or less.
#[must_use]
pub fn rate_now(histogram: &Histogram, hashes: u32) -> f64 {
    let blocks = to_f64(histogram.blocks().max(1));
    let all_set = |bits: u32| {
        let chances = each(histogram).map(|(ones, blocks)| {
            let part = to_f64(ones) / to_f64(BLOCK_CELLS as u64);
            to_f64(blocks) * (0..bits).fold(1.0, |chance, _| chance * part)
        });
        chances.sum::<f64>() / blocks
    };
    all_set(hashes.div_ceil(2)) * all_set(hashes / 2)
}

/// Each number of bits that occurs, and of how many blocks.
fn each(histogram: &Histogram) -> impl Iterator<Item = (u64, u64)> {
    (0u64..).zip(histogram.counts().iter().copied()).filter(|(_, blocks)| *blocks > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_empty_has_nothing_and_is_never_wrong() {
        for histogram in [Histogram::empty(), Histogram::of(&[0; 4096])] {
            assert_eq!(items(&histogram, 7, 64), 0.0);
            assert_eq!(rate_now(&histogram, 7), 0.0);
        }
    }

    #[test]
    fn what_is_full_is_finite_and_always_wrong() {
        let full = Histogram::of(&[255; 4096]);
        assert_eq!(rate_now(&full, 7), 1.0);
        let most = items(&full, 7, 64);
        assert!((most - 64.0 * 512.0 * libm::log(512.0) / 7.0).abs() < 1e-6, "{most}");
        assert_eq!(items(&full, 7, 128), 2.0 * most, "a sample stands for the whole");
    }

    #[test]
    fn a_flat_array_is_estimated_as_one_block() {
        let half = Fullness::of_flat(500, 1000, 3, 1000);
        assert_eq!((half.fill, half.rate), (0.5, 0.125));
        assert!((half.items - 1000.0 / 3.0 * libm::log(2.0)).abs() < 1e-9);
        assert_eq!(Fullness::of_flat(0, 1000, 3, 1000), Fullness::default());
        assert_eq!(Fullness::of_flat(0, 0, 3, 0), Fullness::default());
        let full = Fullness::of_flat(8, 8, 1, 8);
        assert!((full.fill, full.rate) == (1.0, 1.0) && full.items.is_finite());
    }

    #[test]
    fn a_rate_is_the_product_of_both_halves() {
        // Half the blocks have a quarter of their bits, the others three quarters.
        let bytes: Vec<u8> = [0x11, 0x77].into_iter().flat_map(|byte| [byte; 64]).collect();
        let mean = |bits: i32| f64::midpoint(0.25f64.powi(bits), 0.75f64.powi(bits));
        assert!((rate_now(&Histogram::of(&bytes), 7) - mean(4) * mean(3)).abs() < 1e-15);
    }
}
