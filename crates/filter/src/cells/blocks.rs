//! Bits in blocks of one cache line each. `array.rs` has a flat array of bits.
//!
//! Bits are accessed as words of 32 bits, which takes fewer instructions than bytes: the processor takes a shift modulo 32 by
//! itself.

use super::block_array::{BLOCK_CELLS, BlockArray, BlockCell, BlockedCells};

/// Size of a block in bytes: a cache line.
pub const BLOCK_BYTES: usize = BLOCK_CELLS / 8;

/// An array of bits in blocks of 64 bytes. Bit p of a block is byte p / 8, mask `1 << (p % 8)`, on every machine.
///
/// ```
/// use bloomgate_filter::cells::{BlockCell, BlockedCells as _, Blocks, Cells as _};
///
/// let mut blocks = Blocks::zeroed(2)?;
/// let bits = || [0x123 << 55, 7 << 55].into_iter().map(BlockCell::from_top_of);
/// blocks.occupy(1, bits());
/// assert!(blocks.all_occupied(1, bits()) && !blocks.all_occupied(0, bits()));
/// assert_eq!(blocks.bytes()[64 + 0x123 / 8], 1 << (0x123 % 8));
/// # Ok::<(), bloomgate_filter::Error>(())
/// ```
pub type Blocks = BlockArray<BLOCK_BYTES>;

impl BlockedCells for Blocks {
    #[inline]
    fn all_occupied(&self, block: u64, bits: impl Iterator<Item = BlockCell>) -> bool {
        let (words, _) = self.block(block).as_chunks();
        let mut all = u32::MAX;
        for bit in bits {
            all &= words.get(word_of(bit)).map_or(0, |word| u32::from_le_bytes(*word)) >> shift_of(bit);
        }
        all & 1 != 0
    }

    /// Stores even a bit that is set already. The lookup before has found the item to be new, so the page is written in any
    /// case, and a branch per bit costs more than the store.
    #[inline]
    fn occupy(&mut self, block: u64, bits: impl Iterator<Item = BlockCell>) {
        let (words, _) = self.block_mut(block).as_chunks_mut();
        for bit in bits {
            if let Some(word) = words.get_mut(word_of(bit)) {
                *word = (u32::from_le_bytes(*word) | 1 << shift_of(bit)).to_le_bytes();
            }
        }
    }
}

/// Returns the word of 32 bits in which a bit of a block lies. The remainder changes nothing; it spares a bounds check.
#[inline]
const fn word_of(bit: BlockCell) -> usize {
    bit.index() / 32 % (BLOCK_CELLS / 32)
}

/// Returns the shift of a bit in its word.
#[inline]
const fn shift_of(bit: BlockCell) -> usize {
    bit.index() % 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::Cells as _;

    fn bit(index: u16) -> BlockCell {
        BlockCell::from_top_of(u64::from(index) << 55)
    }

    #[test]
    fn a_bit_is_where_the_stored_layout_says() {
        let mut array = Blocks::zeroed(3).unwrap();
        array.occupy(1, [0, 9, 64, 511].into_iter().map(bit));
        let words: Vec<u64> =
            array.bytes().chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        let mut expected = vec![0u64; 24];
        expected[8] = 1 | 1 << 9;
        expected[9] = 1;
        expected[15] = 1 << 63;
        assert_eq!(words, expected);
        assert!(array.all_occupied(1, [0, 9, 64, 511].into_iter().map(bit)));
        assert!(!array.all_occupied(1, [0, 10].into_iter().map(bit)));
        assert!(!array.all_occupied(0, [0].into_iter().map(bit)));
    }
}
