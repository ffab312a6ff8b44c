//! Bits in blocks of one cache line each: zeroed on demand, asked for fallibly.
//!
//! A file of its own because the alignment of the first block and the access without a bounds check per bit need
//! `unsafe`. A flat array, which needs neither, is in `array.rs`.

use std::mem::take;

use bitvec::boxed::BitBox;
use bitvec::order::Lsb0;
use bitvec::slice::BitSlice;

use super::prefetch::prefetch;
use super::relocate::{self, Mover};
use super::{Cells, PAGE_BYTES};
use crate::error::Error;
use crate::memory::zeroed_bytes;

/// Size of a block in bytes: a cache line.
pub const BLOCK_BYTES: usize = 64;
/// Size of a block in bits.
pub const BLOCK_BITS: usize = BLOCK_BYTES * 8;
/// From this size on an array begins at a page, so that a group of 64 blocks is one page of memory.
pub const PAGE_ALIGNED_FROM_BYTES: usize = 256 * 1024;

/// A bit of a block, 0 to 511.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockBit(u16);

impl BlockBit {
    /// The bit that the top nine bits of a word of hash name.
    #[inline]
    #[must_use]
    pub const fn from_top_of(word: u64) -> Self {
        Self((word >> 55) as u16)
    }

    /// 0 to 511.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An array of bits in blocks of 64 bytes. Bit p of a block is byte p / 8, mask `1 << (p % 8)`, on every machine.
pub struct Blocks {
    /// What the allocator gave: the blocks and, where it had to be asked for, room in front of them for alignment.
    storage: BitBox<u8, Lsb0>,
    /// Where the first block begins in `storage`, in bytes.
    start: usize,
    /// Number of blocks, at least 1.
    blocks: usize,
}

impl Blocks {
    /// So many blocks, all zero. The pages of a large array are not touched, so it costs microseconds
    /// and no resident memory.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`] if the size does not fit the address space, [`Error::OutOfMemory`] if the allocator refuses,
    /// [`Error::Unsound`] for no blocks.
    pub fn zeroed(blocks: u64) -> Result<Self, Error> {
        let size_bytes = blocks.checked_mul(BLOCK_BYTES as u64).ok_or(Error::SizeOverflow)?;
        let size = usize::try_from(size_bytes).map_err(|_| Error::SizeOverflow)?;
        let alignment = alignment(size);
        let zeroed = |size| zeroed_bytes(size, size_bytes);

        // A small array mostly comes aligned as it is. A large one never does by chance: do not try.
        let mut storage = if alignment == BLOCK_BYTES { Some(zeroed(size)?) } else { None };
        storage = storage.filter(|bytes| bytes.as_ptr().align_offset(alignment) == 0);
        let storage = match storage {
            Some(aligned) => aligned,
            None => zeroed(size.checked_add(alignment - 1).ok_or(Error::SizeOverflow)?)?,
        };
        let start = first_block(&storage, size);
        let storage = BitBox::try_from_boxed_slice(storage).map_err(|_| Error::SizeOverflow)?;
        Ok(Self { storage, start, blocks: size / BLOCK_BYTES })
    }

    /// Number of blocks.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks as u64
    }

    /// Whether all the bits of a block are set. Looks at all of them without a branch: a branch that guesses wrong
    /// costs more than the bits, which are in one cache line.
    #[inline]
    pub fn all_set(&self, block: u64, bits: impl Iterator<Item = BlockBit>) -> bool {
        let offset = self.offset(block);
        // SAFETY: `offset` is that of a whole block inside `storage`.
        let block = unsafe {
            let begin = self.storage.as_raw_slice().as_ptr().add(offset);
            BitSlice::<u8, Lsb0>::from_slice_unchecked(std::slice::from_raw_parts(begin, BLOCK_BYTES))
        };
        let mut all = true;
        for bit in bits {
            // SAFETY: a `BlockBit` is below 512, the length of the block.
            all &= unsafe { *block.get_unchecked(bit.index()) };
        }
        all
    }

    /// Sets bits of a block. Stores even where a bit was set: the caller has just seen that the item is new, so the
    /// page is written in any case, and a branch per bit costs more than the store.
    #[inline]
    pub fn set_all(&mut self, block: u64, bits: impl Iterator<Item = BlockBit>) {
        let offset = self.offset(block);
        // SAFETY: `offset` is that of a whole block inside `storage`, which is borrowed for writing.
        let block = unsafe {
            let begin = self.storage.as_raw_mut_slice().as_mut_ptr().add(offset);
            BitSlice::<u8, Lsb0>::from_slice_unchecked_mut(std::slice::from_raw_parts_mut(begin, BLOCK_BYTES))
        };
        for bit in bits {
            // SAFETY: a `BlockBit` is below 512, the length of the block.
            unsafe { block.set_unchecked(bit.index(), true) };
        }
    }

    /// Starts to load a block into the cache.
    #[inline]
    pub fn prefetch(&self, block: u64) {
        prefetch(self.storage.as_raw_slice().as_ptr().wrapping_add(self.offset(block)));
    }

    /// Where a block begins in `storage`, in bytes. A block beyond the end is taken as the last one, so that memory
    /// safety does not hang on the arithmetic of a layout.
    #[inline]
    fn offset(&self, block: u64) -> usize {
        let block = usize::try_from(block).unwrap_or(usize::MAX).min(self.blocks - 1);
        self.start + block * BLOCK_BYTES
    }
}

impl Cells for Blocks {
    fn bytes(&self) -> &[u8] {
        let end = self.start + self.blocks * BLOCK_BYTES;
        self.storage.as_raw_slice().get(self.start..end).unwrap_or_default()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let end = self.start + self.blocks * BLOCK_BYTES;
        self.storage.as_raw_mut_slice().get_mut(self.start..end).unwrap_or_default()
    }

    /// The blocks and what alignment needed on top.
    fn allocated_bytes(&self) -> u64 {
        self.storage.as_raw_slice().len() as u64
    }

    /// Blocks that lie elsewhere in a page at the new address are moved to where they are aligned.
    fn relocate(&mut self, mover: &mut impl Mover) {
        let mut storage = take(&mut self.storage).into_boxed_slice();
        relocate::bytes(&mut storage, mover);
        let size = self.blocks * BLOCK_BYTES;
        let start = first_block(&storage, size);
        if start != self.start {
            storage.copy_within(self.start..self.start + size, start);
            self.start = start;
        }
        self.storage = BitBox::from_boxed_slice(storage);
    }
}

/// What the first block of so many bytes is aligned to.
const fn alignment(size: usize) -> usize {
    if size >= PAGE_ALIGNED_FROM_BYTES { PAGE_BYTES } else { BLOCK_BYTES }
}

/// Where in `storage` the first block of `size` bytes of blocks lies aligned, as far as there is room for that.
fn first_block(storage: &[u8], size: usize) -> usize {
    // Under miri `align_offset` may answer that it does not know (usize::MAX): then the blocks lie unaligned.
    storage.as_ptr().align_offset(alignment(size)).min(storage.len() - size)
}

impl std::fmt::Debug for Blocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blocks").field("blocks", &self.blocks).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bit(index: u16) -> BlockBit {
        BlockBit::from_top_of(u64::from(index) << 55)
    }

    #[test]
    fn blocks_are_aligned_and_zero() {
        for (blocks, alignment) in [(1, 64), (2, 64), (3, 64), (100, 64), (4095, 64), (4096, 4096), (20_000, 4096)] {
            let array = Blocks::zeroed(blocks).unwrap();
            assert_eq!(array.bytes().len() as u64, blocks * 64);
            assert_eq!(array.bytes().as_ptr() as usize % alignment, 0, "{blocks} blocks");
            assert!(array.bytes() == vec![0; array.bytes().len()]);
            assert!(array.allocated_bytes() < blocks * 64 + alignment as u64);
        }
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

    #[test]
    fn a_prefetch_changes_nothing_wherever_it_points() {
        let array = Blocks::zeroed(3).unwrap();
        for block in [0, 2, 3, u64::MAX] {
            array.prefetch(block);
        }
        assert!(array.bytes() == [0; 3 * BLOCK_BYTES]);
    }

    #[test]
    fn a_size_that_cannot_be_is_refused() {
        assert_eq!(Blocks::zeroed(0).unwrap_err(), Error::Unsound);
        for blocks in [1 << 57, u64::MAX / 64, u64::MAX] {
            assert!(matches!(Blocks::zeroed(blocks), Err(Error::OutOfMemory { .. } | Error::SizeOverflow)));
        }
    }
}
