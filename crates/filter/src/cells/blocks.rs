//! Bits in blocks of one cache line each.
//!
//! They are read as words of 32 bits, which take less than bytes: a shift by a place in one needs no remainder. A flat array is
//! in `array.rs`.

use super::block_array::{BLOCK_CELLS, BlockArray, BlockCell};

/// Size of a block in bytes: a cache line.
pub const BLOCK_BYTES: usize = BLOCK_CELLS / 8;

/// An array of bits in blocks of 64 bytes. Bit p of a block is byte p / 8, mask `1 << (p % 8)`, on every machine.
pub type Blocks = BlockArray<BLOCK_BYTES>;

impl Blocks {
    /// Whether all the bits of a block are set. Looks at all of them without a branch: a branch that guesses wrong
    /// costs more than the bits, which are in one cache line.
    #[inline]
    pub fn all_set(&self, block: u64, bits: impl Iterator<Item = BlockCell>) -> bool {
        let (words, _) = self.block(block).as_chunks();
        let mut all = u32::MAX;
        for bit in bits {
            all &= words.get(word_of(bit)).map_or(0, |word| u32::from_le_bytes(*word)) >> shift_of(bit);
        }
        all & 1 != 0
    }

    /// Sets bits of a block. Stores even where a bit was set: the caller has just seen that the item is new, so the
    /// page is written in any case, and a branch per bit costs more than the store.
    #[inline]
    pub fn set_all(&mut self, block: u64, bits: impl Iterator<Item = BlockCell>) {
        let (words, _) = self.block_mut(block).as_chunks_mut();
        for bit in bits {
            if let Some(word) = words.get_mut(word_of(bit)) {
                *word = (u32::from_le_bytes(*word) | 1 << shift_of(bit)).to_le_bytes();
            }
        }
    }

    /// Starts to load a block into the cache.
    #[inline]
    pub fn prefetch(&self, block: u64) {
        self.prefetch_line(block, 0);
    }
}

/// In which 32 bits of its block a bit is. The remainder is there for the compiler, which then needs no bounds check.
#[inline]
const fn word_of(bit: BlockCell) -> usize {
    bit.index() / 32 % (BLOCK_CELLS / 32)
}

/// By how many bits it is shifted there.
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
        array.set_all(1, [0, 9, 64, 511].into_iter().map(bit));
        let words: Vec<u64> =
            array.bytes().chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        let mut expected = vec![0u64; 24];
        expected[8] = 1 | 1 << 9;
        expected[9] = 1;
        expected[15] = 1 << 63;
        assert_eq!(words, expected);
        assert!(array.all_set(1, [0, 9, 64, 511].into_iter().map(bit)));
        assert!(!array.all_set(1, [0, 10].into_iter().map(bit)));
        assert!(!array.all_set(0, [0].into_iter().map(bit)));
    }
}
