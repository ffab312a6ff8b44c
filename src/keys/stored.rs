//! The value that the server holds for a key of our type, and the list of the keys whose values have pending adds.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::context::Context;
use crate::metrics;
use bloomgate_filter::format::Value;
use bloomgate_filter::format::records::GENERATIONS;

/// Small filters are mostly this and their bits. jemalloc gives 160 bytes for one byte more.
const _: () = assert!(size_of::<Stored>() <= 128);

/// A value of ours that the server owns.
pub struct Stored {
    /// The value. A [`Writer`] changes it in place.
    pub value: Value,
    /// Distinguishes this value from another one that replaces it at the same key. Neither saved nor compared. Generations repeat
    /// after a while; a filter that arrives in chunks has the generation of its dump.
    pub generation: u16,
    /// The bytes that the value took from the allocator beyond its size, in units of [`OVERHEAD_UNIT`], when it last changed its size.
    pub(super) overhead: u32,
    /// Distinguishes the value from every other one since the server started. Neither saved nor compared, never 0.
    pub instance: u64,
}

/// The allocator's smallest step. An overhead of 64 GiB and more, which only a filter of some 300 GiB could have, counts as 64 GiB.
pub(super) const OVERHEAD_UNIT: u64 = 16;

static LAST_INSTANCE: AtomicU64 = AtomicU64::new(0);

pub(super) fn next_instance() -> u64 {
    LAST_INSTANCE.fetch_add(1, Ordering::Relaxed) + 1
}

static NEXT_GENERATION: AtomicU16 = AtomicU16::new(0);

/// Starts the generations at a random number, so that a dump that continues after a restart of the server is detected.
pub fn begin_generations(context: Context) {
    NEXT_GENERATION.store(u16::from_le_bytes(context.random_bytes()), Ordering::Relaxed);
}

/// From 1 on, so that an iterator of a dump is never a small number that a user might try.
pub(super) fn next_generation() -> u16 {
    NEXT_GENERATION.fetch_add(1, Ordering::Relaxed) % (GENERATIONS - 1) + 1
}

impl Stored {
    /// Adds the value's overhead to INFO's totals.
    pub(super) fn new(value: Value) -> Self {
        let arriving = match &value {
            Value::Arriving(arrival) => arrival.generation(),
            Value::Filter(_) | Value::Cuckoo(_) => None,
        };
        let generation = arriving.unwrap_or_else(next_generation);
        let mut stored = Self { value, generation, overhead: 0, instance: next_instance() };
        stored.count_overhead();
        stored
    }

    /// Updates INFO's totals after the value has changed its size. Visits every layer.
    #[cold]
    pub(super) fn count_overhead(&mut self) {
        let bytes = self.allocated_bytes().saturating_sub(self.value.contents().size_bytes);
        let after = u32::try_from(bytes / OVERHEAD_UNIT).unwrap_or(u32::MAX);
        let before = std::mem::replace(&mut self.overhead, after);
        metrics::overhead_changed(u64::from(before) * OVERHEAD_UNIT, u64::from(after) * OVERHEAD_UNIT);
    }

    /// Turns an arriving filter into a filter, however many chunks have arrived. A filter of the same type takes its place; a
    /// filter of another type is returned, and an empty arriving value stays here.
    pub fn complete(&mut self) -> Option<Value> {
        let stored_as = self.value.stored_as();
        let filter = self.value.take();
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
