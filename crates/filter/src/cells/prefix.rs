//! The first cells of an item, precomputed once for many layers in which the item has the same cells.
//!
//! A file of its own because the test of a prefix, which runs for every item in every older layer, needs `unsafe`. With
//! [`Blocks::all_set`](super::Blocks::all_set) in its place, a batch of absent items takes 9% more instructions in a chain of 15
//! layers (callgrind).

use super::block_array::{BLOCK_CELLS, BlockArray, BlockCell};

/// Number of cells in a prefix. Half of the cells of a full layer are occupied, so four cells reject fifteen of sixteen absent
/// items.
const PREFIX_CELLS: usize = 4;

/// The first cells of an item in a block of `BLOCK` bytes: the byte of each, and its shift in that byte.
#[derive(Clone, Copy, Debug)]
pub struct Prefix<const BLOCK: usize> {
    /// Each below `BLOCK`.
    bytes: [u8; PREFIX_CELLS],
    shifts: [u8; PREFIX_CELLS],
}

impl<const BLOCK: usize> Default for Prefix<BLOCK> {
    fn default() -> Self {
        Self { bytes: [0; PREFIX_CELLS], shifts: [0; PREFIX_CELLS] }
    }
}

impl<const BLOCK: usize> Prefix<BLOCK> {
    /// Number of cells in a byte: 8 bits or 2 counters.
    const CELLS_PER_BYTE: usize = BLOCK_CELLS / BLOCK;
    /// The largest value of a cell.
    const CELL_MAX: u32 = (1 << (8 / Self::CELLS_PER_BYTE)) - 1;

    /// Returns the prefix of these cells. If there are fewer than four, the first is repeated.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a block has at most 256 bytes")]
    pub fn of(mut cells: impl Iterator<Item = BlockCell>) -> Self {
        const { assert!(BLOCK <= 256 && BLOCK * Self::CELLS_PER_BYTE == BLOCK_CELLS) };
        let mut prefix = Self::default();
        let mut first = None;
        for (byte, shift) in prefix.bytes.iter_mut().zip(&mut prefix.shifts) {
            let Some(cell) = cells.next().or(first) else { break };
            first = first.or(Some(cell));
            *byte = (cell.index() / Self::CELLS_PER_BYTE) as u8;
            *shift = (cell.index() % Self::CELLS_PER_BYTE * (8 / Self::CELLS_PER_BYTE)) as u8;
        }
        prefix
    }
}

impl<const BLOCK: usize> BlockArray<BLOCK> {
    /// Whether all cells of a prefix are occupied. Tests all of them without a branch, as
    /// [`all_set`](super::Blocks::all_set).
    #[inline]
    pub fn has_prefix(&self, block: u64, prefix: &Prefix<BLOCK>) -> bool {
        let block = self.block(block);
        let mut all = u32::MAX;
        for (byte, shift) in prefix.bytes.iter().zip(&prefix.shifts) {
            // SAFETY: the bytes of a prefix are below the size of the block.
            let byte = u32::from(unsafe { *block.get_unchecked(usize::from(*byte)) });
            let cell = byte.wrapping_shr((*shift).into());
            let max = Prefix::<BLOCK>::CELL_MAX;
            all &= if max == 1 { cell } else { u32::from(cell & max != 0) };
        }
        all & 1 != 0
    }

    /// Prefetches the cells of a prefix.
    #[inline]
    pub fn prefetch_prefix(&self, block: u64, prefix: &Prefix<BLOCK>) {
        if BLOCK <= super::BLOCK_BYTES {
            self.prefetch_line(block, 0);
        } else {
            prefix.bytes.iter().for_each(|byte| self.prefetch_line(block, usize::from(*byte)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::{Blocks, Counters};

    fn cells(word: u64, count: usize) -> impl Iterator<Item = BlockCell> + Clone {
        (0..count).map(move |index| BlockCell::from_top_of(word.rotate_left(9 * u32::try_from(index).unwrap())))
    }

    #[test]
    fn a_block_has_a_prefix_if_its_cells_are_occupied() {
        let mut word = 1u64;
        for number in 0..if cfg!(miri) { 84 } else { 2000 } {
            word = word.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            let (count, missing) = (number % 6 + 1, number / 6 % 7);
            let (mut bits, mut counters) = (Blocks::zeroed(2).unwrap(), Counters::zeroed(2).unwrap());
            // All cells but one. That one may be beyond the prefix, or equal to another.
            let occupied =
                || cells(word, count).enumerate().filter(|(index, _)| *index != missing).map(|(_, cell)| cell);
            bits.set_all(1, occupied());
            counters.count_up(1, occupied());
            let first = || cells(word, count).take(PREFIX_CELLS);
            let expected = bits.all_set(1, first());
            assert_eq!(bits.has_prefix(1, &Prefix::of(cells(word, count))), expected);
            assert_eq!(counters.has_prefix(1, &Prefix::of(cells(word, count))), counters.all_nonzero(1, first()));
            assert_eq!(counters.all_nonzero(1, first()), expected);
            assert!(!bits.has_prefix(0, &Prefix::of(cells(word, count))));
        }
    }

    #[test]
    fn a_prefix_can_lie_in_the_last_byte() {
        assert_eq!(Prefix::<64>::of(cells(u64::MAX, 1)).bytes, [63; PREFIX_CELLS]);
        assert_eq!(Prefix::<256>::of(cells(u64::MAX, 1)).bytes, [255; PREFIX_CELLS]);
        assert!(!Blocks::zeroed(2).unwrap().has_prefix(u64::MAX, &Prefix::of(cells(u64::MAX, 4))));
    }
}
