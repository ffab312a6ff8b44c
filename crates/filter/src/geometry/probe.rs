//! Which cells an item has in the native layout: two blocks of one group, and its k cells in them.
//!
//! A file of its own because these positions are frozen: a stored filter must find its items in every later version. The
//! shape of a layer is in `blocked.rs`. Bits and counters have the same positions.

use super::blocked::BlockedGeometry;
use crate::cells::BlockCell;
use crate::hash::ItemHash;

/// 2^64 divided by the golden ratio, an odd number: a multiplication by it carries every bit of a word towards the top.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The position of an item in a layer: two blocks of one group, and the cells in them.
///
/// ```
/// use bloomgate_filter::geometry::{BlockedBits, Geometry as _};
/// use bloomgate_filter::hash::ItemHash;
///
/// let layer = BlockedBits { groups: 1000, blocks_per_group: 64, hashes: 7 };
/// let probe = layer.probe(ItemHash::of(b"https://doc.rust-lang.org/std/", 42));
/// assert_eq!((probe.a, probe.b), (49798, 49827));
/// assert_eq!(probe.a / 64, probe.b / 64, "one group, so one page");
/// assert_eq!(probe.cells_in_a(7).map(|cell| cell.index()).collect::<Vec<_>>(), [337, 125, 393, 328]);
/// assert_eq!(probe.cells_in_b(7).map(|cell| cell.index()).collect::<Vec<_>>(), [235, 414, 328]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockedProbe {
    /// The block of the first half of the cells, rounded up.
    pub a: u64,
    /// The block of the second half: another block of the same group.
    pub b: u64,
    /// What the cells are drawn from.
    bits: u64,
}

impl BlockedProbe {
    /// Returns the position of an item. Costs four multiplications, or one where the compiler sees that only `a` is used.
    #[inline]
    #[must_use]
    pub fn of<const BLOCK: usize>(hash: ItemHash, geometry: BlockedGeometry<BLOCK>) -> Self {
        let blocks = u64::from(geometry.blocks_per_group);
        // Drawing one of all blocks equals drawing a group and then one of its blocks. The remainder is equal as well.
        let (a, rest) = scale(hash.h1, geometry.groups.wrapping_mul(blocks));
        let (group, _) = scale(hash.h1, geometry.groups);
        let (step, _) = scale(rest, blocks.wrapping_sub(1));
        let b = a + 1 + step;
        let end = (group + 1) * blocks;
        let b = if b >= end { b - blocks } else { b };
        Self { a, b, bits: hash.h2 }
    }

    /// Returns the cells in block `a` of an item with `hashes` cells: the same in every layer.
    #[inline]
    pub(super) const fn first_cells(hash: ItemHash, hashes: u32) -> ProbeCells {
        ProbeCells { word: hash.h2, left: hashes.div_ceil(2) }
    }

    /// Returns the cells in block `a` of an item with `hashes` cells.
    #[inline]
    pub const fn cells_in_a(self, hashes: u32) -> ProbeCells {
        ProbeCells { word: self.bits, left: hashes.div_ceil(2) }
    }

    /// Returns the cells in block `b` of an item with `hashes` cells.
    #[inline]
    pub fn cells_in_b(self, hashes: u32) -> ProbeCells {
        let mut word = self.bits;
        for _ in 0..hashes.div_ceil(2) {
            word = word.wrapping_mul(GOLDEN);
        }
        ProbeCells { word, left: hashes / 2 }
    }
}

/// The cells of an item in one block, in the order in which they are drawn. Some may be equal.
#[derive(Clone, Debug)]
pub struct ProbeCells {
    word: u64,
    left: u32,
}

impl ProbeCells {
    /// Returns the `count` cells that are drawn next.
    #[inline]
    pub(super) const fn followed_by(self, count: u32) -> Self {
        Self { word: self.word, left: count }
    }
}

impl Iterator for ProbeCells {
    type Item = BlockCell;

    #[inline]
    fn next(&mut self) -> Option<BlockCell> {
        self.left = self.left.checked_sub(1)?;
        let cell = BlockCell::from_top_of(self.word);
        self.word = self.word.wrapping_mul(GOLDEN);
        Some(cell)
    }
}

/// Maps a word to 0..range without a division. Returns the result and a remainder, which is evenly distributed and serves
/// for the next draw (Lemire: Fast Random Integer Generation in an Interval, 2019).
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the halves of 128 bits are 64 bits each")]
const fn scale(word: u64, range: u64) -> (u64, u64) {
    let product = word as u128 * range as u128;
    ((product >> 64) as u64, product as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::BlockedBits;

    fn geometry(groups: u64, blocks_per_group: u32, hashes: u32) -> BlockedBits {
        BlockedBits { groups, blocks_per_group, hashes }
    }

    /// The formula of the layout, term by term in 128-bit arithmetic.
    fn formula(hash: ItemHash, groups: u64, g: u64, k: u32) -> (u64, u64, Vec<usize>, Vec<usize>) {
        let w = u128::from(hash.h1) * u128::from(groups);
        let group = (w >> 64) as u64;
        let w = (w % (1 << 64)) * u128::from(g);
        let a = (w >> 64) as u64;
        let w = (w % (1 << 64)) * u128::from(g - 1);
        let mut b = a + 1 + (w >> 64) as u64;
        if b >= g {
            b -= g;
        }
        let (mut x, mut in_a, mut in_b) = (hash.h2, vec![], vec![]);
        for i in 0..k {
            let list = if i < k.div_ceil(2) { &mut in_a } else { &mut in_b };
            list.push((x >> 55) as usize);
            x = x.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
        (group * g + a, group * g + b, in_a, in_b)
    }

    /// Number of hashes that are tried: fewer under miri, which is slow.
    const HASHES: u32 = if cfg!(miri) { 40 } else { 20_000 };

    #[test]
    fn a_probe_equals_the_formula() {
        for number in 0..HASHES {
            let hash = ItemHash::of(&number.to_le_bytes(), 7);
            for (groups, g, k) in [(1, 2, 1), (1, 2, 7), (1, 3, 10), (5, 63, 13), (64, 64, 18), (1 << 40, 64, 40)] {
                let probe = BlockedProbe::of(hash, geometry(groups, g, k));
                let (a, b, in_a, in_b) = formula(hash, groups, u64::from(g), k);
                assert_eq!((probe.a, probe.b), (a, b));
                assert_eq!(probe.cells_in_a(k).map(BlockCell::index).collect::<Vec<_>>(), in_a);
                assert_eq!(probe.cells_in_b(k).map(BlockCell::index).collect::<Vec<_>>(), in_b);
                assert_ne!(a, b);
                assert_eq!(a / u64::from(g), b / u64::from(g), "both blocks in one group");
                assert!(a.max(b) < groups * u64::from(g));
            }
        }
    }

    /// Frozen: a stored filter must find its items in every later version. Computed by a program in another language, with
    /// another implementation of the hash.
    #[test]
    fn golden_positions() {
        type Golden = (&'static [u8], u32, (u64, u32, u32), (u64, u64), &'static [usize], &'static [usize]);
        let golden: [Golden; 3] = [
            (
                b"https://doc.rust-lang.org/std/",
                42,
                (1000, 64, 7),
                (49798, 49827),
                &[337, 125, 393, 328],
                &[235, 414, 328],
            ),
            (b"", 0, (1, 2, 7), (0, 1), &[0, 0, 0, 0], &[0, 0, 0]),
            (
                b"hello",
                u32::MAX,
                (3, 5, 18),
                (3, 4),
                &[434, 349, 22, 412, 233, 471, 248, 300, 98],
                &[439, 159, 116, 496, 332, 147, 89, 503, 8],
            ),
        ];
        for (item, seed, (groups, g, k), blocks, in_a, in_b) in golden {
            let probe = BlockedProbe::of(ItemHash::of(item, seed), geometry(groups, g, k));
            assert_eq!((probe.a, probe.b), blocks, "{item:?}");
            assert_eq!(probe.cells_in_a(k).map(BlockCell::index).collect::<Vec<_>>(), in_a);
            assert_eq!(probe.cells_in_b(k).map(BlockCell::index).collect::<Vec<_>>(), in_b);
        }
    }
}
