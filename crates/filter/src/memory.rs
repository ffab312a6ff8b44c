//! Fallible allocation: a refusal of the allocator is an error, and does not end the process.
//!
//! A separate file because the standard library has no stable fallible way to allocate zeroed memory or a box, so this needs
//! `unsafe`.

use crate::error::Error;

/// Allocates zeroed bytes. `asked_bytes` is the requested size without padding, for the error. Does not touch the pages of a
/// large allocation.
pub(crate) fn zeroed_bytes(size: usize, asked_bytes: u64) -> Result<Box<[u8]>, Error> {
    let refused = Error::OutOfMemory { asked_bytes };
    let layout = std::alloc::Layout::array::<u8>(size).map_err(|_| refused)?;
    if size == 0 {
        return Err(Error::Unsound);
    }
    // SAFETY: the layout is not empty. The pointer is checked, points to `size` initialised bytes and is passed to a box with
    // the same layout.
    unsafe {
        let pointer = std::alloc::alloc_zeroed(layout);
        if pointer.is_null() {
            return Err(refused);
        }
        Ok(Box::from_raw(std::ptr::slice_from_raw_parts_mut(pointer, size)))
    }
}

/// Moves a value into a box.
pub fn try_box<T>(value: T) -> Result<Box<T>, Error> {
    let layout = std::alloc::Layout::new::<T>();
    if layout.size() == 0 {
        // A value of size 0 needs no memory.
        return Ok(Box::new(value));
    }
    // SAFETY: the layout is not empty. The pointer is checked, receives the value and is passed to a box with the same layout.
    unsafe {
        let pointer = std::alloc::alloc(layout).cast::<T>();
        if pointer.is_null() {
            return Err(Error::OutOfMemory { asked_bytes: layout.size() as u64 });
        }
        pointer.write(value);
        Ok(Box::from_raw(pointer))
    }
}

/// Copies elements.
pub(crate) fn try_copy<T: Copy>(elements: &[T]) -> Result<Box<[T]>, Error> {
    let mut copy = Vec::new();
    reserve(&mut copy, elements.len())?;
    copy.extend_from_slice(elements);
    Ok(copy.into_boxed_slice())
}

/// Reserves space for exactly this many more elements.
pub(crate) fn reserve<T>(list: &mut Vec<T>, additional: usize) -> Result<(), Error> {
    list.try_reserve_exact(additional).map_err(|_| refused::<T>(additional))
}

/// Appends an element. Lists of untrusted length grow with their elements, not by the announced length.
pub(crate) fn push<T>(list: &mut Vec<T>, element: T) -> Result<(), Error> {
    make_room(list)?;
    list.push(element);
    Ok(())
}

/// Reserves space for at least one more element.
pub(crate) fn make_room<T>(list: &mut Vec<T>) -> Result<(), Error> {
    list.try_reserve(1).map_err(|_| refused::<T>(list.len() + 1))
}

fn refused<T>(elements: usize) -> Error {
    Error::OutOfMemory { asked_bytes: elements.saturating_mul(size_of::<T>()) as u64 }
}
