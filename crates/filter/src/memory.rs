//! Fallible allocation: a refusal of the allocator is an error, and does not end the process.
//!
//! A separate file because the standard library has no stable fallible way to allocate zeroed memory or a box, so this needs
//! `unsafe`.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

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

/// Whether the allocator rounds blocks up to jemalloc's size classes.
static HAS_SIZE_CLASSES: AtomicBool = AtomicBool::new(false);

/// Sets whether the global allocator is jemalloc. If so, the crate counts the bytes that a block takes from the allocator, instead of the
/// requested bytes.
pub fn allocator_is_jemalloc(is_jemalloc: bool) {
    HAS_SIZE_CLASSES.store(is_jemalloc, Relaxed);
}

/// Returns the bytes that a block of this size takes from the allocator.
pub(crate) fn block_bytes(size_bytes: u64) -> u64 {
    if HAS_SIZE_CLASSES.load(Relaxed) { size_class(size_bytes) } else { size_bytes }
}

/// Returns the bytes that the allocator adds to blocks of these sizes.
pub(crate) fn rounding_bytes(sizes: impl IntoIterator<Item = u64>) -> u64 {
    sizes.into_iter().map(|size| block_bytes(size).saturating_sub(size)).fold(0, u64::saturating_add)
}

/// Returns the size to which jemalloc rounds a block up: there are four sizes for each doubling, and multiples of 16 up to 128.
pub(crate) const fn size_class(size_bytes: u64) -> u64 {
    let doubling = match size_bytes.saturating_sub(1).checked_ilog2() {
        Some(doubling) if doubling > 6 => doubling,
        _ => 6,
    };
    match size_bytes.checked_next_multiple_of(1 << (doubling - 2)) {
        Some(class) => class,
        None => u64::MAX,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_are_jemallocs() {
        // From `bin_info` and `lextent` of `malloc_stats_print`, jemalloc 5.3.0.
        const CLASSES: [u64; 30] = [
            16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536,
            1792, 2048, 2560, 3072, 3584, 4096, 5120, 6144,
        ];
        for size in 1..=6144 {
            let class = CLASSES.into_iter().find(|class| *class >= size);
            assert_eq!(Some(size_class(size)), class, "{size} bytes");
        }
        let mib = |mib: u64| mib << 20;
        assert_eq!([mib(64), mib(64) + 1, mib(80) + 1, mib(127)].map(size_class), [64, 80, 96, 128].map(mib));
        assert_eq!([0, u64::MAX].map(size_class), [0, u64::MAX]);
    }
}
