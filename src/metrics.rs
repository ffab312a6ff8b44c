//! The totals of all filters and the counters of commands that INFO shows. Totals have valkey-bloom's names, so existing scrapers find
//! them.
//!
//! A filter is added to the totals when the server gets it, and subtracted when it is freed, possibly by a background thread: so the
//! numbers are atomics. A replica that loads a data set while it serves another counts both.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use bloomgate_filter::Value;
use bloomgate_filter::kinds::Contents;

/// A number that goes up and down.
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Adds a difference, which wraps around if it is negative.
    #[inline]
    fn add(&self, difference: u64) {
        self.0.fetch_add(difference, Ordering::Relaxed);
    }

    /// Adds to a number that only the command thread changes, so the addition need not be atomic.
    #[inline]
    pub fn count(&self, number: u64) {
        self.0.store(self.get().wrapping_add(number), Ordering::Relaxed);
    }

    /// The number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Defines the numbers, and the fields of INFO in this order.
macro_rules! gauges {
    ($($(#[$note:meta])* $name:ident $field:literal;)*) => {
        $($(#[$note])* pub static $name: Gauge = Gauge(AtomicU64::new(0));)*

        /// The fields of the section `bf` of INFO with their values. Allocates nothing.
        pub fn fields() -> impl Iterator<Item = (&'static CStr, u64)> {
            [$(($field, &$name)),*].into_iter().map(|(field, gauge)| (field, gauge.get()))
        }
    };
}

gauges! {
    /// The size of all filters in bytes.
    BYTES c"bloom_total_memory_bytes";
    /// The number of filters.
    OBJECTS c"bloom_num_objects";
    LAYERS c"bloom_num_filters_across_objects";
    ITEMS c"bloom_num_items_across_objects";
    CAPACITY c"bloom_capacity_across_objects";
    /// The memory of the pending adds of all filters, in bytes.
    PENDING c"bloom_pending_bytes";
    /// Items that commands added or tried to add, and those that were new.
    ADDS c"bloom_adds";
    NEW_ITEMS c"bloom_new_items";
    /// Items from clients that were not added because a filter was full or could not grow. Items after the refused one in its command count
    /// as well: they are not added either.
    REFUSED c"bloom_refused";
    /// Items from clients that were not deleted because the table of deleted items was full, counted likewise.
    DELETES_REFUSED c"bloom_deletes_refused";
    LOOKUPS c"bloom_lookups";
    POSITIVES c"bloom_positives";
    /// Blocks that the server's defragmenter moved, and blocks that it left where they are.
    DEFRAG_HITS c"bloom_defrag_hits";
    DEFRAG_MISSES c"bloom_defrag_misses";
    /// Replies of BF.FETCH. There is no row.
    FETCHES_ABSENT c"bloom_fetches_absent";
    /// The cache has the value.
    FETCHES_HIT c"bloom_fetches_hit";
    /// The cache has the value, and the caller must refresh it.
    FETCHES_STALE c"bloom_fetches_stale";
    /// The caller must load the value.
    FETCHES_LOAD c"bloom_fetches_load";
    /// The caller must ask again.
    FETCHES_WAIT c"bloom_fetches_wait";
    /// The value could not be loaded, and the caller must ask again later. Callers without BACKOFF get `wait`.
    FETCHES_FAILED c"bloom_fetches_failed";
    /// The cache key has a write in flight. Counted in addition to the reply.
    FETCHES_WAITING c"bloom_fetches_waiting";
    /// The filter or the key of WHILE was missing. Counted in addition to the reply.
    FETCHES_UNGUARDED c"bloom_fetches_unguarded";
    /// Commands with pairs of items and cache keys.
    BATCHES c"bloom_batches";
    /// BF.FILLs that were accepted, BF.FILLs whose token was refused, and BF.FILLs that began a back-off.
    FILLS c"bloom_fills";
    FILLS_REFUSED c"bloom_fills_refused";
    BACKOFFS c"bloom_backoffs";
}

/// The number of filters of RedisBloom's layout.
static REDISBLOOM_OBJECTS: Gauge = Gauge(AtomicU64::new(0));

/// Whether there are filters, and all of them have RedisBloom's layout.
pub fn has_redisbloom_filters_only() -> bool {
    OBJECTS.get() > 0 && OBJECTS.get() == REDISBLOOM_OBJECTS.get()
}

/// Adds a filter to the totals. Returns what it contains.
pub fn filter_added(value: &Value) -> Contents {
    count_filter(value, 1);
    let contents = value.contents();
    filter_changed(&Contents::default(), &contents);
    contents
}

/// Subtracts a filter from the totals. Returns what it contained.
pub fn filter_removed(value: &Value) -> Contents {
    count_filter(value, 1_u64.wrapping_neg());
    let contents = value.contents();
    filter_changed(&contents, &Contents::default());
    contents
}

fn count_filter(value: &Value, difference: u64) {
    OBJECTS.add(difference);
    if value.has_redisbloom_layout() {
        REDISBLOOM_OBJECTS.add(difference);
    }
}

/// The memory of all filters beyond their sizes, in bytes: their fields, tables and pending adds, and what the allocator adds.
pub static OVERHEAD: Gauge = Gauge(AtomicU64::new(0));

/// Updates the totals after a filter has changed. Returns whether its size has changed.
#[inline]
pub fn filter_changed(before: &Contents, after: &Contents) -> bool {
    if before.items != after.items {
        ITEMS.add(after.items.wrapping_sub(before.items));
    }
    let size = |contents: &Contents| (contents.size_bytes, contents.layers, contents.capacity, contents.pending_bytes);
    let has_another_size = size(before) != size(after);
    if has_another_size {
        size_changed(before, after);
    }
    has_another_size
}

/// Counts a new item of a filter that has not changed its size.
pub fn item_added() {
    ITEMS.add(1);
}

/// Updates the overhead of all filters after one filter's overhead has changed.
pub fn overhead_changed(before: u64, after: u64) {
    OVERHEAD.add(after.wrapping_sub(before));
}

#[cold]
fn size_changed(before: &Contents, after: &Contents) {
    BYTES.add(after.size_bytes.wrapping_sub(before.size_bytes));
    LAYERS.add(after.layers.wrapping_sub(before.layers));
    CAPACITY.add(after.capacity.wrapping_sub(before.capacity));
    PENDING.add(after.pending_bytes.wrapping_sub(before.pending_bytes));
}

/// Counts the items of a command that adds, and those that were new.
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
