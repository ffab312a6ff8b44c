//! The list of values with pending adds, through which a timer finds them. Any thread may free a value, so the list, not the value,
//! says whether the value is still there.
//!
//! The rules that keep the pointers in the list valid:
//! - A value is removed from the list before its memory is freed or moved, through a raw pointer: no `Box` and no `&mut` exists.
//! - Code that follows a pointer of the list holds the lock for as long as it uses the value.
//! - Removing a value touches no other value: the list finds it by an id, not by its place in the list.
//! - In a forked child of the server nothing takes the lock: the thread that holds it may not exist there.
//!
//! This file knows neither the server nor filters. `interleavings.rs` compiles it a second time, with the locks and atomics of a
//! model checker.

use std::ptr::NonNull;

use super::sync::{AtomicU32, Mutex, MutexGuard, Ordering, PoisonError};

/// A value that the list can hold.
///
/// # Safety
/// [`handle`](Self::handle) must return the same handle for as long as the value lives at one place. It must not create a reference
/// to more of the value than the handle: another thread may be changing the rest.
pub unsafe trait Listed {
    /// The value's handle.
    ///
    /// # Safety
    /// The value must live for as long as `'a`.
    unsafe fn handle<'a>(value: NonNull<Self>) -> &'a Handle;
}

/// The id under which the list holds a value, or 0. It is part of the value, and only the list changes it, under its lock.
#[derive(Default)]
pub struct Handle(AtomicU32);

impl Handle {
    const NOT_LISTED: u32 = 0;

    /// Synchronises with [`set`](Self::set): a thread that reads 0 sees everything that was done to the value while it was listed,
    /// and may free the value without taking the lock.
    fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    fn set(&self, id: u32) {
        self.0.store(id, Ordering::Release);
    }
}

/// The listed values with their ids, in the order of the ids.
pub struct Entries<T>(Vec<(u32, NonNull<T>)>);

impl<T> Entries<T> {
    /// No value.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// An id for the next value, above all that are in use; `None` if there is none left. Ids are used again.
    fn next_id(&self) -> Option<u32> {
        self.0.last().map_or(Handle::NOT_LISTED, |(id, _)| *id).checked_add(1)
    }
}

// SAFETY: the pointers are followed only under the lock, by whichever thread has it, and never after their value has been freed or
// moved: see the rules above. `T: Send` lets any thread use the values.
unsafe impl<T: Send> Send for Entries<T> {}

/// Values that are listed until nothing is pending in them.
pub struct PendingList<T> {
    entries: Mutex<Entries<T>>,
    /// Whether this process is a forked child of the one that made the list.
    is_child: fn() -> bool,
}

impl<T: Listed> PendingList<T> {
    /// A list with these entries.
    pub const fn new(entries: Mutex<Entries<T>>, is_child: fn() -> bool) -> Self {
        Self { entries, is_child }
    }

    /// Locks the list; returns `None` in a child.
    fn lock(&self) -> Option<MutexGuard<'_, Entries<T>>> {
        let may_lock = !(self.is_child)();
        may_lock.then(|| self.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a value to the list, unless it is there. Takes no lock in that case. If memory runs out the value is not listed.
    ///
    /// # Safety
    /// The value must live, and must be [removed](Self::remove) before it is freed or moved.
    pub unsafe fn insert(&self, value: NonNull<T>) {
        // SAFETY: the value lives.
        let handle = unsafe { T::handle(value) };
        if handle.get() != Handle::NOT_LISTED {
            return;
        }
        if let Some(mut entries) = self.lock()
            && let Some(id) = entries.next_id()
            && entries.0.try_reserve(1).is_ok()
        {
            entries.0.push((id, value));
            handle.set(id);
        }
    }

    /// Removes a value from the list; returns whether it was there. From then on the caller is the only one who knows the value.
    /// Takes no lock if the value is not listed.
    ///
    /// # Safety
    /// The value must live, and no other thread may add it to the list meanwhile.
    pub unsafe fn remove(&self, value: NonNull<T>) -> bool {
        // SAFETY: the value lives.
        let handle = unsafe { T::handle(value) };
        if handle.get() == Handle::NOT_LISTED {
            return false;
        }
        let Some(mut entries) = self.lock() else { return false };
        // The timer may have removed the value before this thread got the lock. The id is 0 then, which no entry has.
        let id = handle.get();
        let Ok(place) = entries.0.binary_search_by_key(&id, |(id, _)| *id) else { return false };
        entries.0.remove(place);
        handle.set(Handle::NOT_LISTED);
        true
    }

    /// Lets a value move: it is removed before, and listed again at its new place. `move_value` returns the place of the value
    /// after the move, which may be the old one, and so does this function.
    ///
    /// # Safety
    /// As for [`remove`](Self::remove) and, with the new place, for [`insert`](Self::insert).
    pub unsafe fn relocate(&self, value: NonNull<T>, move_value: impl FnOnce(NonNull<T>) -> NonNull<T>) -> NonNull<T> {
        // SAFETY: the caller's promise.
        let was_listed = unsafe { self.remove(value) };
        let value = move_value(value);
        if was_listed {
            // SAFETY: the caller's promise.
            unsafe { self.insert(value) };
        }
        value
    }

    /// Calls `flush` with the value that was listed last, which no other thread frees meanwhile. If `flush` returns false, nothing
    /// is left to flush and the value is removed from the list. Returns whether there was a value.
    pub fn flush_last(&self, flush: impl FnOnce(NonNull<T>) -> bool) -> bool {
        let Some(mut entries) = self.lock() else { return false };
        let Some((_, value)) = entries.0.last().copied() else { return false };
        if !flush(value) {
            entries.0.pop();
            // Last: a thread that reads this 0 may free the value immediately.
            // SAFETY: the value lives: a thread that wants to free it either waits for the lock or has not read the 0 yet.
            unsafe { T::handle(value) }.set(Handle::NOT_LISTED);
        }
        true
    }

    /// Whether no value is listed. Always true in a child.
    pub fn is_empty(&self) -> bool {
        self.lock().is_none_or(|entries| entries.0.is_empty())
    }
}
