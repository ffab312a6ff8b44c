//! Blocks of cells in one array: zeroed on demand, asked for fallibly, aligned as the processor and the kernel like it.
//!
//! A file of its own because the access to a block without a bounds check needs `unsafe`, and bits and counters share it.
//! What the cells of a block mean is in `blocks.rs` and `counters.rs`.

use std::mem::take;

use super::prefetch::prefetch;
use super::relocate::{self, Mover};
use super::{Cells, PAGE_BYTES};
use crate::error::Error;
use crate::memory::zeroed_bytes;

/// Size of a cache line in bytes: what the first block is aligned to at least.
pub(super) const LINE_BYTES: usize = 64;
/// Number of cells of a block, whatever they are.
pub const BLOCK_CELLS: usize = 512;
/// From this size on an array begins at a page, so that a group of blocks of 4 KiB is one page of memory.
pub const PAGE_ALIGNED_FROM_BYTES: usize = 256 * 1024;

/// A cell of a block, 0 to 511.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCell(u16);

impl BlockCell {
    /// The cell that the top nine bits of a word of hash name.
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

/// An array of blocks of `BLOCK` bytes.
pub struct BlockArray<const BLOCK: usize> {
    /// What the allocator gave: the blocks and, where it had to be asked for, room in front of them for alignment.
    storage: Box<[u8]>,
    /// Where the first block begins in `storage`, in bytes.
    start: u16,
    /// Bytes of `storage` that are no block. At least one block is there.
    room: u16,
}

/// What fits so few bytes: a room for alignment is less than a page.
const _: () = assert!(PAGE_BYTES <= u16::MAX as usize);

impl<const BLOCK: usize> BlockArray<BLOCK> {
    /// Whether a cell is a counter of four bits, rather than a bit.
    const ARE_COUNTERS: bool = BLOCK * 2 == BLOCK_CELLS;

    /// So many blocks, all zero. The pages of a large array are not touched, so it costs microseconds
    /// and no resident memory.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`] if the size does not fit the address space, [`Error::OutOfMemory`] if the allocator refuses,
    /// [`Error::Unsound`] for no blocks.
    pub fn zeroed(blocks: u64) -> Result<Self, Error> {
        let size_bytes = blocks.checked_mul(BLOCK as u64).ok_or(Error::SizeOverflow)?;
        let size = usize::try_from(size_bytes).map_err(|_| Error::SizeOverflow)?;
        let alignment = alignment(size);
        let zeroed = |size| zeroed_bytes(size, size_bytes);

        // A small array mostly comes aligned as it is. A large one never does by chance: do not try.
        let mut storage = if alignment == LINE_BYTES { Some(zeroed(size)?) } else { None };
        storage = storage.filter(|bytes| bytes.as_ptr().align_offset(alignment) == 0);
        let storage = match storage {
            Some(aligned) => aligned,
            None => zeroed(size.checked_add(alignment - 1).ok_or(Error::SizeOverflow)?)?,
        };
        let room = u16::try_from(storage.len() - size).map_err(|_| Error::SizeOverflow)?;
        Ok(Self { start: first_block(&storage, size), storage, room })
    }

    /// Number of blocks.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        (self.size() / BLOCK) as u64
    }

    /// Bytes of the blocks.
    #[inline]
    const fn size(&self) -> usize {
        self.storage.len() - self.room as usize
    }

    /// The bytes of a block; of the last one where there are not so many.
    #[inline]
    pub(crate) fn block(&self, block: u64) -> &[u8; BLOCK] {
        let offset = self.offset(block);
        // SAFETY: `offset` is that of a whole block inside `storage`; bytes have no alignment.
        unsafe { &*self.storage.as_ptr().add(offset).cast() }
    }

    /// The bytes of a block, to be changed.
    #[inline]
    pub(crate) fn block_mut(&mut self, block: u64) -> &mut [u8; BLOCK] {
        let offset = self.offset(block);
        // SAFETY: as in `block`; `storage` is borrowed for writing.
        unsafe { &mut *self.storage.as_mut_ptr().add(offset).cast() }
    }

    /// Starts to load the cache line at a byte of a block.
    #[inline]
    pub(super) fn prefetch_line(&self, block: u64, byte: usize) {
        prefetch(self.storage.as_ptr().wrapping_add(self.offset(block) + byte));
    }

    /// Where a block begins in `storage`, in bytes. A block beyond the end is taken as the last one, so that memory
    /// safety does not hang on the arithmetic of a layout.
    #[inline]
    fn offset(&self, block: u64) -> usize {
        let block = usize::try_from(block).unwrap_or(usize::MAX).min(self.size() / BLOCK - 1);
        usize::from(self.start) + block * BLOCK
    }
}

/// One bit for each half of a byte that is not zero.
const fn nonzero_halves(byte: u8) -> u8 {
    let pairs = byte | byte >> 1;
    (pairs | pairs >> 2) & 0x11
}

impl<const BLOCK: usize> Cells for BlockArray<BLOCK> {
    fn bytes(&self) -> &[u8] {
        let start = usize::from(self.start);
        self.storage.get(start..start + self.size()).unwrap_or_default()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let (start, size) = (usize::from(self.start), self.size());
        self.storage.get_mut(start..start + size).unwrap_or_default()
    }

    fn count(&self) -> u64 {
        self.blocks().saturating_mul(BLOCK_CELLS as u64)
    }

    fn count_occupied(&self) -> u64 {
        let ones_of =
            |byte: &u8| u64::from(if Self::ARE_COUNTERS { nonzero_halves(*byte) } else { *byte }.count_ones());
        self.bytes().iter().map(ones_of).sum()
    }

    /// The blocks and what alignment needed on top.
    fn allocated_bytes(&self) -> u64 {
        self.storage.len() as u64
    }

    /// Blocks that lie elsewhere in a page at the new address are moved to where they are aligned.
    fn relocate(&mut self, mover: &mut impl Mover) {
        let size = self.size();
        let mut storage = take(&mut self.storage);
        relocate::bytes(&mut storage, mover);
        let (before, start) = (usize::from(self.start), first_block(&storage, size));
        if usize::from(start) != before {
            storage.copy_within(before..before + size, usize::from(start));
            self.start = start;
        }
        self.storage = storage;
    }
}

/// What the first block of so many bytes is aligned to.
const fn alignment(size: usize) -> usize {
    if size >= PAGE_ALIGNED_FROM_BYTES { PAGE_BYTES } else { LINE_BYTES }
}

/// Where in `storage` the first block of `size` bytes of blocks lies aligned, as far as there is room for that.
fn first_block(storage: &[u8], size: usize) -> u16 {
    // Under miri `align_offset` may answer that it does not know (usize::MAX): then the blocks lie unaligned.
    let start = storage.as_ptr().align_offset(alignment(size)).min(storage.len() - size);
    u16::try_from(start).unwrap_or_default()
}

impl<const BLOCK: usize> std::fmt::Debug for BlockArray<BLOCK> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockArray")
            .field("block_bytes", &BLOCK)
            .field("blocks", &self.blocks())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are_aligned_and_zero<const BLOCK: usize>(numbers: &[u64]) {
        for &blocks in numbers {
            let array = BlockArray::<BLOCK>::zeroed(blocks).unwrap();
            let size = blocks * BLOCK as u64;
            let alignment = if size >= 256 * 1024 { 4096 } else { 64 };
            assert_eq!((array.blocks(), array.bytes().len() as u64), (blocks, size));
            assert_eq!(array.bytes().as_ptr() as usize % alignment, 0, "{blocks} blocks");
            assert!(array.bytes() == vec![0; array.bytes().len()]);
            assert!(array.allocated_bytes() < size + alignment as u64);
        }
    }

    #[test]
    fn blocks_are_aligned_and_zero() {
        are_aligned_and_zero::<64>(&[1, 2, 3, 100, 4095, 4096, 20_000]);
        are_aligned_and_zero::<256>(&[1, 2, 3, 100, 1023, 1024, 5000]);
    }

    #[test]
    fn a_block_beyond_the_end_is_the_last_one() {
        let mut array = BlockArray::<256>::zeroed(3).unwrap();
        for (value, block) in [(1, 2), (2, 3), (3, u64::MAX)] {
            array.block_mut(block).fill(value);
            assert_eq!(array.block(block), &[value; 256]);
            assert!(array.bytes()[..512] == [0; 512] && array.bytes()[512..] == [value; 256]);
        }
    }

    #[test]
    fn a_prefetch_changes_nothing_wherever_it_points() {
        let array = BlockArray::<64>::zeroed(3).unwrap();
        for block in [0, 2, 3, u64::MAX] {
            array.prefetch_line(block, 0);
        }
        assert!(array.bytes() == [0; 3 * 64]);
    }

    fn sizes_that_cannot_be_are_refused<const BLOCK: usize>() {
        assert_eq!(BlockArray::<BLOCK>::zeroed(0).unwrap_err(), Error::Unsound);
        for blocks in [(1 << 63) / BLOCK as u64, u64::MAX / BLOCK as u64, u64::MAX / 64, u64::MAX] {
            let refused = BlockArray::<BLOCK>::zeroed(blocks).unwrap_err();
            assert!(matches!(refused, Error::OutOfMemory { .. } | Error::SizeOverflow), "{blocks}: {refused:?}");
        }
    }

    #[test]
    fn a_size_that_cannot_be_is_refused() {
        sizes_that_cannot_be_are_refused::<64>();
        sizes_that_cannot_be_are_refused::<256>();
    }
}
