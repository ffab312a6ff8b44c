//! The first cells of an item, precomputed once for many layers in which the item has the same cells.
//!
//! A file of its own because the test of a prefix, which runs for every item in every older layer, needs `unsafe`. With
//! [`BlockedCells::all_occupied`](super::BlockedCells::all_occupied) in its place, a batch of absent items takes 9% more instructions in a chain of 15
//! layers (callgrind).

use super::block_array::{BlockArray, BlockCell};

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
    const CELLS_PER_BYTE: usize = BlockArray::<BLOCK>::CELLS_PER_BYTE;
    /// The largest value of a cell.
    const CELL_MAX: u32 = (1 << (8 / Self::CELLS_PER_BYTE)) - 1;

    /// Returns the prefix of these cells. If there are fewer than four, the first is repeated.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a block has at most 256 bytes")]
    pub fn of(mut cells: impl Iterator<Item = BlockCell>) -> Self {
        const { assert!(BLOCK <= 256) };
        let mut prefix = Self::default();
        let mut first = None;
        for (byte, shift) in prefix.bytes.iter_mut().zip(&mut prefix.shifts) {
            let Some(cell) = cells.next().or(first) else { break };
            first = first.or(Some(cell));
            *byte = BlockArray::<BLOCK>::byte_of(cell) as u8;
            *shift = (cell.index() % Self::CELLS_PER_BYTE * (8 / Self::CELLS_PER_BYTE)) as u8;
        }
        prefix
    }

    /// Returns the bytes of a block in which the cells lie.
    #[inline]
    pub(crate) fn bytes(&self) -> impl Iterator<Item = usize> {
        self.bytes.iter().map(|byte| usize::from(*byte))
    }
}

impl<const BLOCK: usize> BlockArray<BLOCK> {
    /// Whether all cells of a prefix are occupied. Tests all of them without a branch.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::{BlockedCells as _, Blocks, Counters};

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
            bits.occupy(1, occupied());
            counters.occupy(1, occupied());
            let first = || cells(word, count).take(PREFIX_CELLS);
            let expected = bits.all_occupied(1, first());
            assert_eq!(bits.has_prefix(1, &Prefix::of(cells(word, count))), expected);
            assert_eq!(counters.has_prefix(1, &Prefix::of(cells(word, count))), counters.all_occupied(1, first()));
            assert_eq!(counters.all_occupied(1, first()), expected);
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
