//! A filter's memory at other addresses: for a server that defragments what it has asked of its allocator.
//!
//! A file of its own because a block that the server has moved is taken over by its new address, which needs `unsafe`.

use std::mem::{ManuallyDrop, take};
use std::ptr::{NonNull, slice_from_raw_parts_mut};

/// Moves blocks of memory to better places.
///
/// # Safety
/// A block that [`moved`](Self::moved) answers with must be one of the global allocator, as large as the old one, aligned
/// for what was there, and with the same bytes in it. The old one has been given back.
pub unsafe trait Mover {
    /// Moves a block; nothing where it stays.
    fn moved(&mut self, block: NonNull<u8>) -> Option<NonNull<u8>>;

    /// Whether what is left must wait for another time.
    fn has_done_enough(&mut self) -> bool;
}

/// Moves the bytes of a slice.
pub(super) fn bytes(slice: &mut Box<[u8]>, mover: &mut impl Mover) {
    let length = slice.len();
    if length == 0 {
        return;
    }
    let old = Box::into_raw(take(slice));
    // SAFETY: the pointer comes from a box; where the block was moved, the new one has the same size and bytes by the
    // promise of `Mover`, and nobody else has its address.
    *slice = unsafe {
        let old = NonNull::new_unchecked(old.cast::<u8>());
        let new = mover.moved(old).unwrap_or(old);
        Box::from_raw(slice_from_raw_parts_mut(new.as_ptr(), length))
    };
}

/// Moves the elements of a list. They stay as they are: what they point to is not moved.
pub(crate) fn elements<T>(list: &mut Vec<T>, mover: &mut impl Mover) {
    if list.capacity() == 0 || size_of::<T>() == 0 {
        return;
    }
    let mut old = ManuallyDrop::new(take(list));
    // SAFETY: as in `bytes`; length and capacity are those of the list that is given up.
    *list = unsafe {
        let block = NonNull::new_unchecked(old.as_mut_ptr());
        let new = mover.moved(block.cast()).map_or(block, NonNull::cast);
        Vec::from_raw_parts(new.as_ptr(), old.len(), old.capacity())
    };
}

/// Moves what a box holds.
pub(crate) fn boxed<T>(boxed: &mut Box<T>, mover: &mut impl Mover) {
    if size_of::<T>() == 0 {
        return;
    }
    // SAFETY: as in `bytes`. The box is read out and written back; nothing in between can panic but `moved`, whose panic
    // ends the process in a module.
    unsafe {
        let old = NonNull::new_unchecked(Box::into_raw(std::ptr::read(boxed)));
        let new = mover.moved(old.cast()).map_or(old, NonNull::cast);
        std::ptr::write(boxed, Box::from_raw(new.as_ptr()));
    }
}
