//! The value that the server holds for a key of our type, how it gets there and back, and the list of the keys whose values have pending
//! adds.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bloomgate_filter::format::Value;
use bloomgate_filter::format::records::GENERATIONS;
use bloomgate_filter::kinds::Contents;
use bloomgate_filter::{Error, try_box};

use crate::args::Arg;
use crate::context::Context;
use crate::metrics;

/// Small filters are mostly this and their bits. jemalloc gives 160 bytes for one byte more.
const _: () = assert!(size_of::<Stored>() <= 128);

/// A value of ours in the server's hands.
pub struct Stored {
    /// The value. A [`Writer`] changes it in place.
    pub value: Value,
    /// Distinguishes this value from another one that replaces it at the same key. Neither saved nor compared. Generations repeat
    /// after a while; a filter that arrives in chunks has the generation of its dump.
    pub generation: u16,
    /// The bytes that the value took from the allocator beyond its size, in units of [`OVERHEAD_UNIT`], when it last changed its size.
    overhead: u32,
    /// Distinguishes the value from every other one since the server started. Neither saved nor compared, never 0.
    pub instance: u64,
}

/// The allocator's smallest step. An overhead of 64 GiB and more, which only a filter of some 300 GiB could have, counts as 64 GiB.
const OVERHEAD_UNIT: u64 = 16;

static LAST_INSTANCE: AtomicU64 = AtomicU64::new(0);

fn next_instance() -> u64 {
    LAST_INSTANCE.fetch_add(1, Ordering::Relaxed) + 1
}

static NEXT_GENERATION: AtomicU16 = AtomicU16::new(0);

/// Starts the generations at a random number, so that a dump that continues after a restart of the server is detected.
pub fn begin_generations(context: Context) {
    NEXT_GENERATION.store(u16::from_le_bytes(context.random_bytes()), Ordering::Relaxed);
}

/// From 1 on, so that an iterator of a dump is never a small number that a user might try.
fn next_generation() -> u16 {
    NEXT_GENERATION.fetch_add(1, Ordering::Relaxed) % (GENERATIONS - 1) + 1
}

impl Stored {
    /// Adds a value to INFO's totals.
    fn new(value: Value) -> Self {
        let arriving = match &value {
            Value::Arriving(arrival) => arrival.generation(),
            Value::Filter(_) => None,
        };
        metrics::filter_added(&value);
        let generation = arriving.unwrap_or_else(next_generation);
        let mut stored = Self { value, generation, overhead: 0, instance: next_instance() };
        stored.count_overhead();
        stored
    }

    /// Updates INFO's totals after the value has changed its size. Visits every layer.
    #[cold]
    fn count_overhead(&mut self) {
        let bytes = self.allocated_bytes().saturating_sub(self.value.contents().size_bytes);
        let after = u32::try_from(bytes / OVERHEAD_UNIT).unwrap_or(u32::MAX);
        let before = std::mem::replace(&mut self.overhead, after);
        metrics::overhead_changed(u64::from(before) * OVERHEAD_UNIT, u64::from(after) * OVERHEAD_UNIT);
    }

    /// Boxes a value for the server, which must get it: INFO's totals include it.
    pub fn boxed(value: Value) -> Result<Box<Self>, Error> {
        Ok(Self::reserve()?.put(value))
    }

    /// Takes a value back from the server, and out of INFO's totals, on whichever thread.
    ///
    /// # Safety
    /// The pointer must come from `Box::into_raw`, and no key may hold the value any more.
    pub(super) unsafe fn from_raw(stored: NonNull<Self>) -> Box<Self> {
        // SAFETY: the caller's promise.
        let stored = unsafe { Box::from_raw(stored.as_ptr()) };
        metrics::filter_removed(&stored.value);
        metrics::overhead_changed(u64::from(stored.overhead) * OVERHEAD_UNIT, 0);
        stored
    }

    /// Reserves memory for a value to come.
    pub fn reserve() -> Result<Reserved, Error> {
        try_box(MaybeUninit::uninit()).map(Reserved)
    }

    /// Turns an arriving filter into a filter, however many chunks have arrived. A filter of the same type takes its place; a
    /// filter of another type is returned, and an empty arriving value stays here.
    pub fn complete(&mut self) -> Option<Value> {
        let stored_as = self.value.stored_as();
        let filter = Value::from(self.value.take_filter());
        if filter.stored_as() == stored_as {
            self.value = filter;
            self.instance = next_instance();
            self.count_overhead();
            return None;
        }
        metrics::filter_removed(&filter);
        metrics::filter_added(&self.value);
        self.count_overhead();
        Some(filter)
    }

    /// Bytes requested from the allocator. Visits every layer.
    pub fn allocated_bytes(&self) -> u64 {
        let own = (size_of::<Self>() - size_of::<Value>()) as u64;
        self.value.allocated_bytes().saturating_add(own)
    }
}

/// Follows a pointer to a value in the server's hands.
///
/// # Safety
/// `value` must be a pointer that the server got from us for a value. The value must live, and nothing may write to it, for as long
/// as `'a`.
pub(super) unsafe fn stored_at<'a>(value: *const c_void) -> &'a Stored {
    // SAFETY: the caller's promise; such a pointer came from `Box::into_raw` of a `Stored`.
    unsafe { &*value.cast::<Stored>() }
}

/// Memory for a value in the server's hands, reserved before anything is changed.
pub struct Reserved(Box<MaybeUninit<Stored>>);

impl Reserved {
    /// Puts a value into the reserved memory, for the server, as [`Stored::boxed`].
    pub fn put(self, value: Value) -> Box<Stored> {
        Box::write(self.0, Stored::new(value))
    }
}

/// A value that is open for writing. When the writer is dropped, INFO's totals follow what has changed, and the key of a value with
/// pending adds is listed.
pub struct Writer<'a> {
    stored: NonNull<Stored>,
    before: Contents,
    context: Context,
    /// The name of the value's key.
    name: Arg<'a>,
    borrow: PhantomData<&'a mut Stored>,
}

impl<'a> Writer<'a> {
    /// # Safety
    /// The value must be one that a key of this name holds, and nothing else may borrow it for as long as the writer lives.
    #[inline(always)]
    pub(super) unsafe fn new(stored: NonNull<Stored>, context: Context, name: Arg<'a>) -> Self {
        // SAFETY: the caller's promise.
        let before = unsafe { stored.as_ref() }.value.contents();
        Self { stored, before, context, name, borrow: PhantomData }
    }

    #[inline(always)]
    const fn stored(&self) -> &Stored {
        // SAFETY: the value lives and nothing else borrows it, as the caller of `new` promised.
        unsafe { self.stored.as_ref() }
    }

    /// The value's generation.
    pub const fn generation(&self) -> u16 {
        self.stored().generation
    }

    /// Swaps the value for another one of the same type. A dump that has begun cannot continue.
    pub fn swap(&mut self, value: &mut Value) {
        // SAFETY: as in `stored`; the writer is borrowed mutably.
        let stored = unsafe { self.stored.as_mut() };
        std::mem::swap(&mut stored.value, value);
        stored.generation = next_generation();
        stored.instance = next_instance();
    }
}

impl Deref for Writer<'_> {
    type Target = Value;

    #[inline]
    fn deref(&self) -> &Value {
        &self.stored().value
    }
}

impl DerefMut for Writer<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Value {
        // SAFETY: as in `stored`; the writer is borrowed mutably.
        unsafe { &mut self.stored.as_mut().value }
    }
}

impl Drop for Writer<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let after = self.contents();
        if metrics::filter_changed(&self.before, &after) {
            // SAFETY: as in `stored`; the writer is borrowed mutably.
            unsafe { self.stored.as_mut() }.count_overhead();
        }
        if after.pending_bytes > 0 {
            list_pending(self.context.database(), self.name.bytes());
        }
    }
}

// The keys whose values have pending adds: their databases and names, by which a timer opens them as a command does.
//
// A value that was moved to another name is not found here any more. Its pending adds stay, and lookups find them. The next write to it or
// the timer, which visits all keys, lists it under its new name.

/// A key: its database and its name.
pub type Listed = (c_int, Vec<u8>);

/// In ascending order, none twice. Only the thread that has the server's lock uses it.
static PENDING: Mutex<Vec<Listed>> = Mutex::new(Vec::new());

fn pending() -> MutexGuard<'static, Vec<Listed>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a key, unless it is listed. If memory runs out it is not: then the next write to it or the timer tries again.
#[cold]
#[inline(never)]
pub fn list_pending(database: c_int, name: &[u8]) {
    let mut list = pending();
    let place = list.binary_search_by(|(other, listed)| other.cmp(&database).then_with(|| listed.as_slice().cmp(name)));
    let mut copy = Vec::new();
    if let Err(place) = place
        && list.try_reserve(1).is_ok()
        && copy.try_reserve_exact(name.len()).is_ok()
    {
        copy.extend_from_slice(name);
        list.insert(place, (database, copy));
    }
}

/// Removes the last key and returns it.
pub fn take_pending() -> Option<Listed> {
    pending().pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_listed_once() {
        for (database, name) in [(0, "b"), (1, "a"), (0, "a"), (0, "b"), (1, "a"), (-1, "c")] {
            list_pending(database, name.as_bytes());
        }
        let taken: Vec<Listed> = std::iter::from_fn(take_pending).collect();
        assert_eq!(taken, [(1, "a"), (0, "b"), (0, "a"), (-1, "c")].map(|(database, name)| (database, name.into())));
    }
}
