//! The cells that items occupy in a layer: bits, in blocks of a cache line ([`Blocks`]) or in one flat array ([`BitArray`]), or
//! counters in blocks ([`Counters`]).

pub(crate) mod arch;
mod array;
mod block_array;
mod counters;
mod histogram;
mod slots;

pub(crate) use array::BitArray;
pub(crate) use block_array::Allocation;
pub(crate) use block_array::{BlockArray, BlockCell, BlockedCells, Blocks, PAGE_ALIGNED_FROM_BYTES, Prefix};
pub(crate) use counters::{COUNTER_BLOCK_BYTES, Counters};
pub(crate) use histogram::{Histogram, sampled_ones, unite};
pub(crate) use slots::{
    BUCKET_SLOTS, Bucket, NARROW_BITS_MAX, NarrowBucket, SLOT_BITS_MAX, SLOTS_BYTES_MIN, Slots, WideBucket,
};

use std::mem::{ManuallyDrop, take};
use std::ptr::{NonNull, slice_from_raw_parts_mut};

use crate::memory::zeroed_bytes;

/// Number of cells in a block, of bits or of counters.
pub(crate) const BLOCK_CELLS: usize = 512;
/// Size of a block in bytes: a cache line.
pub const BLOCK_BYTES: usize = BLOCK_CELLS / 8;
/// The usual size of a page of memory in bytes, used on every machine.
pub(crate) const PAGE_BYTES: usize = 4096;

/// The cells of a layer.
pub trait Cells {
    /// Returns the cells as bytes, in the order in which they are stored.
    fn bytes(&self) -> &[u8];
    /// Returns the cells as bytes, for a reader that fills them in.
    fn bytes_mut(&mut self) -> &mut [u8];
    /// Whether cells may be occupied by items that a layer does not count: after `bytes_mut`, and after a decrement, which leaves saturated
    /// counters unchanged. Adds do not change this, because they are counted.
    fn may_lack_items(&self) -> bool {
        true
    }
    /// Returns the number of bytes requested from the allocator.
    fn allocated_bytes(&self) -> u64;
    /// Moves the memory of the cells.
    fn relocate(&mut self, mover: &mut impl Mover);
}

/// Whether bytes are all zero. Compares whole pages, which is much faster than single bytes, and stops at the first nonzero
/// one.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
    bytes.chunks(PAGE_BYTES).all(|page| ZEROS.get(..page.len()) == Some(page))
}

/// Copies bytes over zeros of the same length. Skips pages of zeros, so that these pages of `to` take no memory.
pub(crate) fn copy_to_zeros(from: &[u8], to: &mut [u8]) {
    let pages = from.chunks(PAGE_BYTES).zip(to.chunks_mut(PAGE_BYTES));
    pages.filter(|(from, _)| !is_zero(from)).for_each(|(from, to)| to.copy_from_slice(from));
}

/// Copies bytes that a server read as one string, and so made resident, to a block whose zero pages are not resident. Returns the given
/// block if it is small, if fewer than half of its pages are zero, or if memory for another one is refused.
pub(crate) fn sparse(bytes: Box<[u8]>) -> Box<[u8]> {
    const FROM_BYTES: usize = 1024 * 1024;
    let pages = bytes.len() / PAGE_BYTES;
    if bytes.len() < FROM_BYTES || bytes.chunks(PAGE_BYTES).filter(|page| is_zero(page)).count() < pages / 2 {
        return bytes;
    }
    let Ok(mut copy) = zeroed_bytes(bytes.len(), bytes.len() as u64) else { return bytes };
    copy_to_zeros(&bytes, &mut copy);
    copy
}

// Moves a filter's memory to other addresses, for a server that defragments its heap.
// Taking over a block at its new address needs `unsafe`.

/// Moves blocks of memory to better addresses.
///
/// # Safety
/// A block that [`moved`](Self::moved) returns must come from the global allocator, and have the size, the alignment and the bytes
/// of the old block, which must have been freed.
pub unsafe trait Mover {
    /// Moves a block. Returns `None` if it was not moved.
    fn moved(&mut self, block: NonNull<u8>) -> Option<NonNull<u8>>;

    /// Whether the rest must wait for a later call.
    fn has_done_enough(&mut self) -> bool;
}

/// Moves the bytes of a slice.
pub(crate) fn relocate_bytes(slice: &mut Box<[u8]>, mover: &mut impl Mover) {
    let length = slice.len();
    if length == 0 {
        return;
    }
    let old = Box::into_raw(take(slice));
    // SAFETY: the pointer comes from a box. If the block was moved, the new one has the same size and bytes by the contract of
    // `Mover`, and its address has no other owner.
    *slice = unsafe {
        let old = NonNull::new_unchecked(old.cast::<u8>());
        let new = mover.moved(old).unwrap_or(old);
        Box::from_raw(slice_from_raw_parts_mut(new.as_ptr(), length))
    };
}

/// Moves the elements of a list, but not what they point to.
pub(crate) fn relocate_elements<T>(list: &mut Vec<T>, mover: &mut impl Mover) {
    if list.capacity() == 0 || size_of::<T>() == 0 {
        return;
    }
    let mut old = ManuallyDrop::new(take(list));
    // SAFETY: as in `relocate_bytes`; length and capacity come from the old list, which is not dropped.
    *list = unsafe {
        let block = NonNull::new_unchecked(old.as_mut_ptr());
        let new = mover.moved(block.cast()).map_or(block, NonNull::cast);
        Vec::from_raw_parts(new.as_ptr(), old.len(), old.capacity())
    };
}

/// Moves the contents of a box.
pub(crate) fn relocate_boxed<T>(boxed: &mut Box<T>, mover: &mut impl Mover) {
    if size_of::<T>() == 0 {
        return;
    }
    // SAFETY: as in `relocate_bytes`. The box is read out and written back. In between only `moved` can panic, and a panic in a module
    // ends the process.
    unsafe {
        let old = NonNull::new_unchecked(Box::into_raw(std::ptr::read(boxed)));
        let new = mover.moved(old.cast()).map_or(old, NonNull::cast);
        std::ptr::write(boxed, Box::from_raw(new.as_ptr()));
    }
}
