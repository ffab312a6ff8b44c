//! The totals of all filters and the counters of commands that INFO shows. Totals have valkey-bloom's names, so existing scrapers find
//! them.
//!
//! A filter is added to the totals when the server gets it, and subtracted when it is freed, possibly by a background thread: so the
//! numbers are atomics. A replica that loads a data set beside the one that it serves counts both.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use bloomgate_filter::kinds::Contents;

/// A number that goes up and down.
struct Gauge(AtomicU64);

impl Gauge {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    #[inline]
    fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    /// [`add`](Self::add) for a number that only the thread of the commands changes, which needs no atomic addition.
    #[inline]
    fn count(&self, number: u64) {
        self.0.store(self.get().wrapping_add(number), Ordering::Relaxed);
    }

    fn subtract(&self, number: u64) {
        self.0.fetch_sub(number, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

static BYTES: Gauge = Gauge::new();
static OBJECTS: Gauge = Gauge::new();
static LAYERS: Gauge = Gauge::new();
static ITEMS: Gauge = Gauge::new();
static CAPACITY: Gauge = Gauge::new();
static PENDING: Gauge = Gauge::new();
static ADDS: Gauge = Gauge::new();
static NEW_ITEMS: Gauge = Gauge::new();
static LOOKUPS: Gauge = Gauge::new();
static POSITIVES: Gauge = Gauge::new();
static FETCHES_ABSENT: Gauge = Gauge::new();
static FETCHES_HIT: Gauge = Gauge::new();
static FETCHES_STALE: Gauge = Gauge::new();
static FETCHES_LOAD: Gauge = Gauge::new();
static FETCHES_WAIT: Gauge = Gauge::new();
static FETCHES_HELD: Gauge = Gauge::new();
static FETCHES_UNGUARDED: Gauge = Gauge::new();
static BACKOFFS: Gauge = Gauge::new();
static BATCHES: Gauge = Gauge::new();
static FILLS: Gauge = Gauge::new();
static FILLS_REFUSED: Gauge = Gauge::new();
static DEFRAG_HITS: Gauge = Gauge::new();
static DEFRAG_MISSES: Gauge = Gauge::new();

/// The fields of the section, in its order.
static FIELDS: [(&CStr, &Gauge); 23] = [
    (c"bloom_total_memory_bytes", &BYTES),
    (c"bloom_num_objects", &OBJECTS),
    (c"bloom_num_filters_across_objects", &LAYERS),
    (c"bloom_num_items_across_objects", &ITEMS),
    (c"bloom_capacity_across_objects", &CAPACITY),
    (c"bloom_pending_bytes", &PENDING),
    (c"bloom_adds", &ADDS),
    (c"bloom_new_items", &NEW_ITEMS),
    (c"bloom_lookups", &LOOKUPS),
    (c"bloom_positives", &POSITIVES),
    (c"bloom_defrag_hits", &DEFRAG_HITS),
    (c"bloom_defrag_misses", &DEFRAG_MISSES),
    (c"bloom_fetches_absent", &FETCHES_ABSENT),
    (c"bloom_fetches_hit", &FETCHES_HIT),
    (c"bloom_fetches_stale", &FETCHES_STALE),
    (c"bloom_fetches_load", &FETCHES_LOAD),
    (c"bloom_fetches_wait", &FETCHES_WAIT),
    (c"bloom_fetches_held", &FETCHES_HELD),
    (c"bloom_fetches_unguarded", &FETCHES_UNGUARDED),
    (c"bloom_batches", &BATCHES),
    (c"bloom_fills", &FILLS),
    (c"bloom_fills_refused", &FILLS_REFUSED),
    (c"bloom_backoffs", &BACKOFFS),
];

/// The fields of the section `bf` of INFO with their values, in its order. Allocates nothing.
pub fn fields() -> impl Iterator<Item = (&'static CStr, u64)> {
    FIELDS.iter().map(|(name, gauge)| (*name, gauge.get()))
}

/// The size of all filters in bytes.
pub fn bytes() -> u64 {
    BYTES.get()
}

/// The memory of the pending adds of all filters, in bytes.
pub fn pending_bytes() -> u64 {
    PENDING.get()
}

/// The number of filters.
pub fn objects() -> u64 {
    OBJECTS.get()
}

/// Adds a filter to the totals.
pub fn filter_added(contents: Contents) {
    OBJECTS.add(1);
    BYTES.add(contents.size_bytes);
    PENDING.add(contents.pending_bytes);
    LAYERS.add(contents.layers);
    ITEMS.add(contents.items);
    CAPACITY.add(contents.capacity);
}

/// Subtracts a filter from the totals.
pub fn filter_removed(contents: Contents) {
    OBJECTS.subtract(1);
    BYTES.subtract(contents.size_bytes);
    PENDING.subtract(contents.pending_bytes);
    LAYERS.subtract(contents.layers);
    ITEMS.subtract(contents.items);
    CAPACITY.subtract(contents.capacity);
}

/// Updates the totals after a filter has changed.
#[inline]
pub fn filter_changed(before: &Contents, after: &Contents) {
    if before.items != after.items {
        ITEMS.add(after.items.wrapping_sub(before.items));
    }
    let size = |contents: &Contents| (contents.size_bytes, contents.layers, contents.capacity, contents.pending_bytes);
    if size(before) != size(after) {
        size_changed(before, after);
    }
}

#[cold]
fn size_changed(before: &Contents, after: &Contents) {
    BYTES.add(after.size_bytes.wrapping_sub(before.size_bytes));
    LAYERS.add(after.layers.wrapping_sub(before.layers));
    CAPACITY.add(after.capacity.wrapping_sub(before.capacity));
    PENDING.add(after.pending_bytes.wrapping_sub(before.pending_bytes));
}

/// Counts items that a command added or tried to add, and those that were new.
#[inline]
pub fn items_added(items: usize, new: usize) {
    ADDS.count(items as u64);
    NEW_ITEMS.count(new as u64);
}

/// Counts lookups, and those that found the item.
#[inline]
pub fn items_looked_up(items: usize, positive: u32) {
    LOOKUPS.count(items as u64);
    POSITIVES.count(positive.into());
}

/// The replies of BF.FETCH.
#[derive(Clone, Copy)]
pub enum Fetched {
    /// There is no row.
    Absent,
    /// The cache has the value.
    Hit,
    /// The cache has the value, and the caller must refresh it.
    Stale,
    /// The caller must load the value.
    Load,
    /// The caller must come again.
    Wait,
    /// The cache key has a write in flight. Counted in addition to the reply.
    Held,
    /// The filter or the key of WHILE was missing. Counted in addition to the reply.
    Unguarded,
}

/// Counts a reply of BF.FETCH.
#[inline]
pub fn fetched(answer: Fetched) {
    let gauge = match answer {
        Fetched::Absent => &FETCHES_ABSENT,
        Fetched::Hit => &FETCHES_HIT,
        Fetched::Stale => &FETCHES_STALE,
        Fetched::Load => &FETCHES_LOAD,
        Fetched::Wait => &FETCHES_WAIT,
        Fetched::Held => &FETCHES_HELD,
        Fetched::Unguarded => &FETCHES_UNGUARDED,
    };
    gauge.count(1);
}

/// Counts a command with pairs of items and cache keys.
pub fn batch() {
    BATCHES.count(1);
}

/// Counts a BF.FILL that was accepted.
pub fn filled() {
    FILLS.count(1);
}

/// Counts a BF.FILL that began a back-off.
pub fn backed_off() {
    BACKOFFS.count(1);
}

/// Counts a BF.FILL whose token was not that of a lease.
pub fn fill_refused() {
    FILLS_REFUSED.count(1);
}

/// Counts a block that was offered to the server's defragmenter, which has moved it or not.
pub fn block_was_offered(has_moved: bool) {
    if has_moved { &DEFRAG_HITS } else { &DEFRAG_MISSES }.count(1);
}
