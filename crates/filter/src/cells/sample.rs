//! A few cells of an item, worked out once for many blocks that the item has the same cells in.

use super::block_array::{BLOCK_CELLS, BlockArray, BlockCell};

/// How many cells there are in a sample. In a full layer half of the cells are occupied: four of them tell fifteen absent
/// items of sixteen.
pub const SAMPLE_CELLS: usize = 4;

/// A few cells of an item: in which byte of a block of `BLOCK` bytes each is, and by how many bits it is shifted there.
#[derive(Clone, Copy, Debug)]
pub struct Sample<const BLOCK: usize> {
    /// Each below `BLOCK`.
    bytes: [u8; SAMPLE_CELLS],
    shifts: [u8; SAMPLE_CELLS],
}

impl<const BLOCK: usize> Default for Sample<BLOCK> {
    fn default() -> Self {
        Self { bytes: [0; SAMPLE_CELLS], shifts: [0; SAMPLE_CELLS] }
    }
}

impl<const BLOCK: usize> Sample<BLOCK> {
    /// The number of cells that share a byte: 8 bits or 2 counters.
    const CELLS_PER_BYTE: usize = BLOCK_CELLS / BLOCK;
    /// What a cell can be.
    const CELL_MAX: u32 = (1 << (8 / Self::CELLS_PER_BYTE)) - 1;

    /// The first of these cells. Where there are too few, the first of all again.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a block has at most 256 bytes")]
    pub fn of(mut cells: impl Iterator<Item = BlockCell>) -> Self {
        const { assert!(BLOCK <= 256 && BLOCK * Self::CELLS_PER_BYTE == BLOCK_CELLS) };
        let mut sample = Self::default();
        let mut first = None;
        for (byte, shift) in sample.bytes.iter_mut().zip(&mut sample.shifts) {
            let Some(cell) = cells.next().or(first) else { break };
            first = first.or(Some(cell));
            *byte = (cell.index() / Self::CELLS_PER_BYTE) as u8;
            *shift = (cell.index() % Self::CELLS_PER_BYTE * (8 / Self::CELLS_PER_BYTE)) as u8;
        }
        sample
    }
}

impl<const BLOCK: usize> BlockArray<BLOCK> {
    /// Whether an item left something in all cells of a sample. Looks at all of them without a branch, as
    /// [`all_set`](super::Blocks::all_set).
    #[inline]
    pub fn has_sample(&self, block: u64, sample: &Sample<BLOCK>) -> bool {
        let block = self.block(block);
        let mut all = u32::MAX;
        for (byte, shift) in sample.bytes.iter().zip(&sample.shifts) {
            // SAFETY: the bytes of a sample are below the size of the block.
            let byte = u32::from(unsafe { *block.get_unchecked(usize::from(*byte)) });
            let cell = byte.wrapping_shr((*shift).into());
            let max = Sample::<BLOCK>::CELL_MAX;
            all &= if max == 1 { cell } else { u32::from(cell & max != 0) };
        }
        all & 1 != 0
    }

    /// Starts to load the cells of a sample into the cache.
    #[inline]
    pub fn prefetch_sample(&self, block: u64, sample: &Sample<BLOCK>) {
        if BLOCK <= super::BLOCK_BYTES {
            self.prefetch_line(block, 0);
        } else {
            sample.bytes.iter().for_each(|byte| self.prefetch_line(block, usize::from(*byte)));
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
    fn a_sample_is_there_where_its_first_cells_are() {
        let mut word = 1u64;
        for number in 0..if cfg!(miri) { 84 } else { 2000 } {
            word = word.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            let (count, missing) = (number % 6 + 1, number / 6 % 7);
            let (mut bits, mut counters) = (Blocks::zeroed(2).unwrap(), Counters::zeroed(2).unwrap());
            // All but one; perhaps one that is there twice, or beyond the sample.
            let left = || cells(word, count).enumerate().filter(|(index, _)| *index != missing).map(|(_, cell)| cell);
            bits.set_all(1, left());
            counters.count_up(1, left());
            let first = || cells(word, count).take(SAMPLE_CELLS);
            let expected = bits.all_set(1, first());
            assert_eq!(bits.has_sample(1, &Sample::of(cells(word, count))), expected);
            assert_eq!(counters.has_sample(1, &Sample::of(cells(word, count))), counters.all_nonzero(1, first()));
            assert_eq!(counters.all_nonzero(1, first()), expected);
            assert!(!bits.has_sample(0, &Sample::of(cells(word, count))));
        }
    }

    #[test]
    fn a_sample_may_be_fetched_from_anywhere() {
        let sample = Sample::of(cells(u64::MAX, 4));
        Blocks::zeroed(2).unwrap().prefetch_sample(u64::MAX, &sample);
        assert_eq!(Sample::<64>::of(cells(u64::MAX, 1)).bytes, [63; SAMPLE_CELLS]);
        assert_eq!(Sample::<256>::of(cells(u64::MAX, 1)).bytes, [255; SAMPLE_CELLS]);
    }
}
