//! Memory that is asked for fallibly: an allocator that refuses is an error, not the end of the process.
//!
//! A file of its own because the standard library has no stable way to ask for zeroed memory or for a box that may fail:
//! that needs `unsafe`.

use crate::error::Error;

/// Zeroed bytes, `asked_bytes` of which somebody asked for; the others are for alignment and the like. The pages of a large
/// request are not touched.
///
/// # Errors
/// [`Error::OutOfMemory`] where the allocator refuses; [`Error::Unsound`] for no bytes.
pub(crate) fn zeroed_bytes(size: usize, asked_bytes: u64) -> Result<Box<[u8]>, Error> {
    let refused = Error::OutOfMemory { asked_bytes };
    let layout = std::alloc::Layout::array::<u8>(size).map_err(|_| refused)?;
    if size == 0 {
        return Err(Error::Unsound);
    }
    // SAFETY: the layout is not empty; the pointer is checked, points to `size` initialised bytes and is given to a
    // box of the same layout.
    unsafe {
        let pointer = std::alloc::alloc_zeroed(layout);
        if pointer.is_null() {
            return Err(refused);
        }
        Ok(Box::from_raw(std::ptr::slice_from_raw_parts_mut(pointer, size)))
    }
}

/// A value in a box.
///
/// # Errors
/// [`Error::OutOfMemory`] where the allocator refuses.
pub fn try_box<T>(value: T) -> Result<Box<T>, Error> {
    let layout = std::alloc::Layout::new::<T>();
    if layout.size() == 0 {
        // Nothing is asked for.
        return Ok(Box::new(value));
    }
    // SAFETY: the layout is not empty; the pointer is checked, gets the value and is given to a box of the same layout.
    unsafe {
        let pointer = std::alloc::alloc(layout).cast::<T>();
        if pointer.is_null() {
            return Err(Error::OutOfMemory { asked_bytes: layout.size() as u64 });
        }
        pointer.write(value);
        Ok(Box::from_raw(pointer))
    }
}

/// A copy of elements.
///
/// # Errors
/// [`Error::OutOfMemory`] where the allocator refuses.
pub(crate) fn try_copy<T: Copy>(elements: &[T]) -> Result<Box<[T]>, Error> {
    let mut copy = Vec::new();
    reserve(&mut copy, elements.len())?;
    copy.extend_from_slice(elements);
    Ok(copy.into_boxed_slice())
}

/// Makes room for so many more elements, and not more.
///
/// # Errors
/// [`Error::OutOfMemory`] where the allocator refuses.
pub(crate) fn reserve<T>(list: &mut Vec<T>, additional: usize) -> Result<(), Error> {
    list.try_reserve_exact(additional).map_err(|_| refused::<T>(additional))
}

/// Adds an element that has come to those before it. Memory is asked for as they come, not by the number that is promised.
///
/// # Errors
/// [`Error::OutOfMemory`] where the allocator refuses.
pub(crate) fn push<T>(list: &mut Vec<T>, element: T) -> Result<(), Error> {
    make_room(list)?;
    list.push(element);
    Ok(())
}

/// Makes room for one more element, and for others that may come.
///
/// # Errors
/// [`Error::OutOfMemory`] where the allocator refuses.
pub(crate) fn make_room<T>(list: &mut Vec<T>) -> Result<(), Error> {
    list.try_reserve(1).map_err(|_| refused::<T>(list.len() + 1))
}

fn refused<T>(elements: usize) -> Error {
    Error::OutOfMemory { asked_bytes: elements.saturating_mul(size_of::<T>()) as u64 }
}
