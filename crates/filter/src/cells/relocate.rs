//! Moves a filter's memory to other addresses, for a server that defragments its heap.
//!
//! A separate file because taking over a block at its new address needs `unsafe`.

use std::mem::{ManuallyDrop, take};
use std::ptr::{NonNull, slice_from_raw_parts_mut};

/// Moves blocks of memory to better addresses.
///
/// # Safety
/// A block that [`moved`](Self::moved) returns must come from the global allocator, with the size, the alignment and the bytes
/// of the old block. The old block has been freed.
pub unsafe trait Mover {
    /// Moves a block. Returns `None` if it stays.
    fn moved(&mut self, block: NonNull<u8>) -> Option<NonNull<u8>>;

    /// Whether the rest must wait for a later call.
    fn has_done_enough(&mut self) -> bool;
}

/// Moves the bytes of a slice.
pub(super) fn bytes(slice: &mut Box<[u8]>, mover: &mut impl Mover) {
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
pub(crate) fn elements<T>(list: &mut Vec<T>, mover: &mut impl Mover) {
    if list.capacity() == 0 || size_of::<T>() == 0 {
        return;
    }
    let mut old = ManuallyDrop::new(take(list));
    // SAFETY: as in `bytes`; length and capacity are those of the list that is dismantled.
    *list = unsafe {
        let block = NonNull::new_unchecked(old.as_mut_ptr());
        let new = mover.moved(block.cast()).map_or(block, NonNull::cast);
        Vec::from_raw_parts(new.as_ptr(), old.len(), old.capacity())
    };
}

/// Moves the contents of a box.
pub(crate) fn boxed<T>(boxed: &mut Box<T>, mover: &mut impl Mover) {
    if size_of::<T>() == 0 {
        return;
    }
    // SAFETY: as in `bytes`. The box is read out and written back. In between only `moved` can panic, and a panic in a module
    // ends the process.
    unsafe {
        let old = NonNull::new_unchecked(Box::into_raw(std::ptr::read(boxed)));
        let new = mover.moved(old.cast()).map_or(old, NonNull::cast);
        std::ptr::write(boxed, Box::from_raw(new.as_ptr()));
    }
}
