//! An array of blocks of cells: allocated fallibly, zeroed lazily, aligned to cache lines or pages. Also blocks of bits, and the prefix of
//! an item's cells. Blocks of counters are in `counters.rs`.
//!
//! A block is accessed without a bounds check, which needs `unsafe`.

use std::mem::take;
use std::ptr::{NonNull, slice_from_raw_parts_mut};

use super::arch::prefetch;
use super::{BLOCK_BYTES, BLOCK_CELLS, Cells, Mover, PAGE_BYTES, relocate_bytes};
use crate::error::Error;
use crate::memory::{size_class, zeroed_bytes};

/// Size of a cache line in bytes, the least alignment of the first block.
pub(super) const LINE_BYTES: usize = 64;
/// Arrays of at least this size begin at a page boundary if that takes no more memory, so that a group of blocks of 4 KiB is one page.
pub(crate) const PAGE_ALIGNED_FROM_BYTES: usize = 256 * 1024;

/// The index of a cell in its block, 0 to 511.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCell(u16);

impl BlockCell {
    /// Returns the cell whose index is the top nine bits of a word.
    #[inline]
    pub(crate) const fn from_top_of(word: u64) -> Self {
        Self((word >> 55) as u16)
    }

    /// Returns the index, 0 to 511.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The operations on the cells of a block, which differ between bits and counters.
pub trait BlockedCells: Cells + std::fmt::Debug {
    /// Whether all of these cells of a block are occupied. Tests all of them without a branch: a mispredicted branch costs more
    /// than the cells, which are in the cache by then.
    fn all_occupied(&self, block: u64, cells: impl Iterator<Item = BlockCell>) -> bool;
    /// Sets bits of a block, or increments counters. A cell that is named twice changes once.
    fn occupy(&mut self, block: u64, cells: impl Iterator<Item = BlockCell>);
}

/// An array of blocks of `BLOCK` bytes.
pub struct BlockArray<const BLOCK: usize> {
    /// The allocation: at least one block, and padding before the first where alignment requires it.
    storage: Box<[u8]>,
    /// Offset of the first block in `storage`, in bytes.
    start: u16,
    /// Number of bytes of `storage` that belong to no block.
    padding: u16,
    /// See [`Cells::may_lack_items`].
    pub(super) may_lack_items: bool,
}

/// The padding of an array that is aligned to lines where the allocator does not do that.
const PADDING: u16 = 63;
const _: () = assert!(PADDING as usize == LINE_BYTES - 1);

/// Padding is less than a page, so it fits 16 bits.
const _: () = assert!(PAGE_BYTES <= u16::MAX as usize);

impl<const BLOCK: usize> BlockArray<BLOCK> {
    /// Number of cells in a byte: 8 bits or 2 counters.
    pub(super) const CELLS_PER_BYTE: usize = BLOCK_CELLS / BLOCK;
    /// Whether the cells are counters of 4 bits, rather than bits.
    pub(crate) const ARE_COUNTERS: bool = Self::CELLS_PER_BYTE == 2;

    /// Returns an array of `blocks` blocks, all zero. Large arrays take microseconds and no resident memory, because their pages are not
    /// touched.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`] if the size does not fit the address space, [`Error::OutOfMemory`] if the allocator refuses,
    /// [`Error::Unsound`] if `blocks` is 0.
    pub(crate) fn zeroed(blocks: u64) -> Result<Self, Error> {
        let size_bytes = blocks.checked_mul(BLOCK as u64).ok_or(Error::SizeOverflow)?;
        let size = usize::try_from(size_bytes).map_err(|_| Error::SizeOverflow)?;
        let alignment = alignment::<BLOCK>(size);
        let zeroed = |size| zeroed_bytes(size, size_bytes);

        // Allocations are usually aligned to lines without padding, but never to pages, so page alignment is not tried without padding.
        let mut storage = if alignment < PAGE_BYTES { Some(zeroed(size)?) } else { None };
        storage = storage.filter(|bytes| bytes.as_ptr().align_offset(alignment) == 0);
        let storage = match storage {
            Some(aligned) => aligned,
            None => zeroed(size.checked_add(alignment - 1).ok_or(Error::SizeOverflow)?)?,
        };
        let padding = u16::try_from(storage.len() - size).map_err(|_| Error::SizeOverflow)?;
        Ok(Self { start: first_block::<BLOCK>(&storage, size), storage, padding, may_lack_items: false })
    }

    /// Returns the number of blocks.
    pub(crate) const fn blocks(&self) -> u64 {
        (self.size() / BLOCK) as u64
    }

    /// Returns the size of all blocks, in bytes.
    #[inline]
    const fn size(&self) -> usize {
        self.storage.len() - self.padding as usize
    }

    /// Returns a block. An index past the end means the last block.
    #[inline]
    pub(crate) fn block(&self, block: u64) -> &[u8; BLOCK] {
        let offset = self.offset(block);
        // SAFETY: a whole block begins at `offset` inside `storage`, and bytes need no alignment.
        unsafe { &*self.storage.as_ptr().add(offset).cast() }
    }

    /// Returns a block for writing. An index past the end means the last block.
    #[inline]
    pub(crate) fn block_mut(&mut self, block: u64) -> &mut [u8; BLOCK] {
        let offset = self.offset(block);
        // SAFETY: as in `block`, and `storage` is borrowed exclusively.
        unsafe { &mut *self.storage.as_mut_ptr().add(offset).cast() }
    }

    /// Prefetches the cache lines of these bytes of a block. A block of bits is a single line.
    #[inline]
    pub(crate) fn prefetch(&self, block: u64, bytes: impl Iterator<Item = usize>) {
        let block = self.storage.as_ptr().wrapping_add(self.offset(block));
        if BLOCK == LINE_BYTES {
            prefetch(block);
        } else {
            bytes.for_each(|byte| prefetch(block.wrapping_add(byte)));
        }
    }

    /// Returns the byte of a cell in its block. The remainder has no effect; it removes a bounds check.
    #[inline]
    pub(crate) const fn byte_of(cell: BlockCell) -> usize {
        cell.index() / Self::CELLS_PER_BYTE % BLOCK
    }

    /// Returns the offset of a block in `storage`, in bytes. An index past the end means the last block, so that memory safety
    /// does not depend on the arithmetic of a layout.
    #[inline]
    fn offset(&self, block: u64) -> usize {
        let block = usize::try_from(block).unwrap_or(usize::MAX).min(self.size() / BLOCK - 1);
        usize::from(self.start) + block * BLOCK
    }
}

/// The allocation of an array without its fields, for an owner that stores them in less space. It does not free the allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation(NonNull<u8>);

// SAFETY: bytes belong to no thread.
unsafe impl Send for Allocation {}

impl<const BLOCK: usize> BlockArray<BLOCK> {
    /// Whether the allocation has room for padding.
    pub(crate) const fn is_padded(&self) -> bool {
        self.padding > 0
    }

    /// Whether the array owns an allocation.
    pub(crate) fn owns(&self, allocation: Allocation) -> bool {
        std::ptr::addr_eq(self.storage.as_ptr(), allocation.0.as_ptr())
    }

    /// Gives up the ownership of the allocation.
    pub(crate) fn into_allocation(mut self) -> Allocation {
        Allocation(NonNull::from(Box::leak(take(&mut self.storage))).cast())
    }

    /// Returns the array that owns an allocation. The array is smaller than [`PAGE_ALIGNED_FROM_BYTES`].
    ///
    /// # Safety
    /// The allocation must belong to an array with this number of blocks and this padding, and that array must not be used or dropped
    /// afterwards.
    #[inline]
    pub(crate) unsafe fn of_allocation(
        allocation: Allocation,
        blocks: u8,
        is_padded: bool,
        may_lack_items: bool,
    ) -> Self {
        let size = usize::from(blocks) * BLOCK;
        let padding = if is_padded { PADDING } else { 0 };
        let length = size + usize::from(padding);
        // SAFETY: the caller's promise; `zeroed` has made a box of this length.
        let storage = unsafe { Box::from_raw(slice_from_raw_parts_mut(allocation.0.as_ptr(), length)) };
        let start = if is_padded { first_block::<BLOCK>(&storage, size) } else { 0 };
        Self { storage, start, padding, may_lack_items }
    }
}

impl<const BLOCK: usize> Cells for BlockArray<BLOCK> {
    fn bytes(&self) -> &[u8] {
        let start = usize::from(self.start);
        self.storage.get(start..start + self.size()).unwrap_or_default()
    }

    fn may_lack_items(&self) -> bool {
        self.may_lack_items
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.may_lack_items = true;
        let (start, size) = (usize::from(self.start), self.size());
        self.storage.get_mut(start..start + size).unwrap_or_default()
    }

    fn allocated_bytes(&self) -> u64 {
        self.storage.len() as u64
    }

    /// If the new address is aligned differently, the blocks are moved inside the allocation to realign them.
    fn relocate(&mut self, mover: &mut impl Mover) {
        let size = self.size();
        let mut storage = take(&mut self.storage);
        relocate_bytes(&mut storage, mover);
        let (before, start) = (usize::from(self.start), first_block::<BLOCK>(&storage, size));
        if usize::from(start) != before {
            storage.copy_within(before..before + size, usize::from(start));
            self.start = start;
        }
        self.storage = storage;
    }
}

/// Returns the alignment of the first block in an array of `size` bytes: a line, or less for smaller blocks. An array is not aligned to a page if the padding would require
/// jemalloc's next size class, which takes up to a quarter more memory.
const fn alignment<const BLOCK: usize>(size: usize) -> usize {
    let padded = size.saturating_add(PAGE_BYTES - 1);
    if size >= PAGE_ALIGNED_FROM_BYTES && size_class(padded as u64) == size_class(size as u64) {
        PAGE_BYTES
    } else if BLOCK < LINE_BYTES {
        BLOCK
    } else {
        LINE_BYTES
    }
}

/// Returns the offset in `storage` at which `size` bytes of blocks are aligned, or the last at which they fit.
fn first_block<const BLOCK: usize>(storage: &[u8], size: usize) -> u16 {
    // Under miri `align_offset` may return usize::MAX, for "unknown". The blocks are unaligned then.
    let start = storage.as_ptr().align_offset(alignment::<BLOCK>(size)).min(storage.len() - size);
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

// Bits in blocks of one cache line each. `array.rs` has a flat array of bits.
//
// Bits are accessed as words of 32 bits, which takes fewer instructions than bytes: the processor's shift is already modulo 32.

/// An array of bits in blocks of 64 bytes. Bit p of a block is byte p / 8, mask `1 << (p % 8)`, on every machine.
pub(crate) type Blocks = BlockArray<BLOCK_BYTES>;

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

    /// Stores even a bit that is already set. The preceding lookup has found that the item is new, so the page is written in any case, and
    /// a branch per bit costs more than the store.
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

/// Returns the 32-bit word that contains a bit of a block. The remainder has no effect; it removes a bounds check.
#[inline]
const fn word_of(bit: BlockCell) -> usize {
    bit.index() / 32 % (BLOCK_CELLS / 32)
}

/// Returns the shift of a bit in its word.
#[inline]
const fn shift_of(bit: BlockCell) -> usize {
    bit.index() % 32
}

// The first cells of an item, precomputed once for many layers in which the item has the same cells.
//
// A prefix is tested for every item in every older layer. With `BlockedCells::all_occupied` instead, a batch of absent items takes 9% more
// instructions in a chain of 15 layers (callgrind).

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
    pub(crate) fn of(mut cells: impl Iterator<Item = BlockCell>) -> Self {
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

    /// Returns the bytes of a block that contain the cells.
    #[inline]
    pub(crate) fn bytes(&self) -> impl Iterator<Item = usize> {
        self.bytes.iter().map(|byte| usize::from(*byte))
    }
}

impl<const BLOCK: usize> BlockArray<BLOCK> {
    /// Whether all cells of a prefix are occupied. Tests all of them without a branch.
    #[inline]
    pub(crate) fn has_prefix(&self, block: u64, prefix: &Prefix<BLOCK>) -> bool {
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
    use crate::cells::Counters;

    fn are_aligned_and_zero<const BLOCK: usize>(numbers: &[u64]) {
        for &blocks in numbers {
            let array = BlockArray::<BLOCK>::zeroed(blocks).unwrap();
            let size = blocks * BLOCK as u64;
            // 256 KiB and 1 MiB are size classes of jemalloc, which padding would exceed.
            let alignment = if size > 256 * 1024 && size != 1 << 20 { 4096 } else { 64 };
            assert_eq!((array.blocks(), array.bytes().len() as u64), (blocks, size));
            assert_eq!(array.bytes().as_ptr() as usize % alignment, 0, "{blocks} blocks");
            assert!(array.bytes() == vec![0; array.bytes().len()]);
            assert!(array.allocated_bytes() < size + alignment as u64);
        }
    }

    #[test]
    fn blocks_are_aligned_and_zero() {
        are_aligned_and_zero::<64>(&[1, 2, 3, 100, 4095, 4096, 4097, 16_384, 20_000]);
        are_aligned_and_zero::<256>(&[1, 2, 3, 100, 1023, 1024, 1025, 4096, 5000]);
    }

    #[test]
    fn an_index_past_the_end_means_the_last_block() {
        let mut array = BlockArray::<256>::zeroed(3).unwrap();
        for (value, block) in [(1, 2), (2, 3), (3, u64::MAX)] {
            array.block_mut(block).fill(value);
            assert_eq!(array.block(block), &[value; 256]);
            assert!(array.bytes()[..512] == [0; 512] && array.bytes()[512..] == [value; 256]);
        }
    }

    fn any_block_can_be_prefetched<const BLOCK: usize>() {
        let array = BlockArray::<BLOCK>::zeroed(3).unwrap();
        for block in [0, 2, 3, u64::MAX] {
            array.prefetch(block, [0, BLOCK - 1].into_iter());
        }
        assert!(array.bytes() == vec![0; 3 * BLOCK]);
    }

    #[test]
    fn a_prefetch_past_the_end_changes_nothing() {
        any_block_can_be_prefetched::<64>();
        any_block_can_be_prefetched::<256>();
    }

    fn impossible_sizes_are_refused<const BLOCK: usize>() {
        assert_eq!(BlockArray::<BLOCK>::zeroed(0).unwrap_err(), Error::Unsound);
        for blocks in [(1 << 63) / BLOCK as u64, u64::MAX / BLOCK as u64, u64::MAX / 64, u64::MAX] {
            let refused = BlockArray::<BLOCK>::zeroed(blocks).unwrap_err();
            assert!(matches!(refused, Error::OutOfMemory { .. } | Error::SizeOverflow), "{blocks}: {refused:?}");
        }
    }

    #[test]
    fn an_impossible_size_is_refused() {
        impossible_sizes_are_refused::<64>();
        impossible_sizes_are_refused::<256>();
    }

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
