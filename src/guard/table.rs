//! The table of leases, NONEs and back-offs, by cache keys and by items. A cache key has at most one record.

use std::collections::hash_map::Entry;

use hashbrown::HashTable;

use super::ids::{ByHash, CacheKeyId, FilterId, ItemId};
use super::records::{Deadline, Heap, NOWHERE, Place, Record, Records, sort};
pub use super::records::{Instant, Known};

/// The server refused memory.
#[derive(Debug)]
pub struct OutOfMemory;

/// The records. An operation costs a few lookups in hash tables; inserting and removing also cost the logarithm of their
/// number.
#[derive(Default)]
pub struct Table {
    records: Records,
    /// All records, by their cache keys.
    keys: HashTable<Place>,
    /// The first record of each item's list, by the items.
    items: HashTable<Place>,
    /// By sort.
    heaps: [Heap; 3],
    /// The number of records of each filter that is missing.
    unfiltered: ByHash<FilterId, u32>,
}

impl Table {
    /// What is known of a cache key for this item, and until when. A record of another item, or of another instance of the
    /// filter, does not apply.
    pub fn known(&self, key: CacheKeyId, item: ItemId, now: Instant) -> Option<(Known, Instant)> {
        let record = self.live(key, now)?;
        (record.item == item).then_some((record.known(), record.deadline.end()))
    }

    /// Whether a cache key has a record.
    #[inline]
    pub fn has(&self, key: CacheKeyId) -> bool {
        self.get(key).is_some()
    }

    /// When the lease of a cache key expires, whatever its item; nothing if there is no live lease.
    pub fn lease_end(&self, key: CacheKeyId, now: Instant) -> Option<Instant> {
        let record = self.live(key, now)?;
        matches!(record.known(), Known::Lease(_)).then_some(record.deadline.end())
    }

    /// When the back-off of a cache key expires; nothing if there is no live one.
    pub fn back_off_end(&self, key: CacheKeyId, now: Instant) -> Option<Instant> {
        let record = self.live(key, now)?;
        (record.known() == Known::BackOff).then_some(record.deadline.end())
    }

    /// Whether the record of a cache key is a back-off, live or not.
    pub fn is_backed_off(&self, key: CacheKeyId) -> bool {
        self.get(key).is_some_and(|record| record.known() == Known::BackOff)
    }

    /// Whether the lease of a cache key has this token.
    pub fn has_token(&self, key: CacheKeyId, token: u64) -> bool {
        self.get(key).is_some_and(|record| record.known() == Known::Lease(token))
    }

    /// Inserts a record that holds until `end`, in place of the one that the cache key had.
    ///
    /// # Errors
    /// If memory is refused. The old record is removed all the same.
    pub fn insert(&mut self, key: CacheKeyId, item: ItemId, known: Known, end: Instant) -> Result<(), OutOfMemory> {
        self.remove(key);
        let Self { records, keys, items, heaps, unfiltered } = self;
        let heap = heaps.get_mut(sort(known)).ok_or(OutOfMemory)?;
        let is_unfiltered = item.filter.is_missing();
        let has_room = records.reserve()
            && (!is_unfiltered || unfiltered.try_reserve(1).is_ok())
            && keys.try_reserve(1, |place| records.hash_of_key(*place)).is_ok()
            && items.try_reserve(1, |place| records.hash_of_item(*place)).is_ok()
            && heap.reserve();
        if !has_room {
            return Err(OutOfMemory);
        }

        let first = items.find_mut(item.short(), |first| records.get(*first).is_some_and(|other| other.item == item));
        let record = Record {
            name: key.name,
            database: key.database,
            item,
            token: if let Known::Lease(token) = known { token } else { 0 },
            deadline: Deadline::new(end, known),
            before: NOWHERE,
            after: first.as_deref().copied().unwrap_or(NOWHERE),
            in_heap: 0,
        };
        let place = records.put(record);
        if let Some(first) = first {
            *first = place;
        } else {
            items.insert_unique(item.short(), place, |place| records.hash_of_item(*place));
        }
        if let Some(after) = records.get_mut(record.after) {
            after.before = place;
        }
        keys.insert_unique(key.short(), place, |place| records.hash_of_key(*place));
        heap.push(place, records);
        if is_unfiltered {
            *unfiltered.entry(item.filter).or_default() += 1;
        }
        Ok(())
    }

    /// Removes the record of a cache key. Returns whether there was one.
    pub fn remove(&mut self, key: CacheKeyId) -> bool {
        let Self { records, keys, items, heaps, unfiltered } = self;
        let is_it = |place: &Place| records.get(*place).is_some_and(|record| record.key() == key);
        let Ok(entry) = keys.find_entry(key.short(), is_it) else { return false };
        let (place, _) = entry.remove();
        let Some(&Record { item, deadline, before, after, in_heap, .. }) = records.get(place) else { return false };
        if let Some(after) = records.get_mut(after) {
            after.before = before;
        }
        if let Some(before) = records.get_mut(before) {
            before.after = after;
        } else if let Ok(mut first) = items.find_entry(item.short(), |first| *first == place) {
            if after == NOWHERE {
                first.remove();
            } else {
                *first.get_mut() = after;
            }
        }
        if let Some(heap) = heaps.get_mut(deadline.sort()) {
            heap.remove(in_heap, records);
        }
        records.release(place);
        if item.filter.is_missing()
            && let Entry::Occupied(mut count) = unfiltered.entry(item.filter)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        true
    }

    /// Makes room for one more record: removes the record of this sort that is nearest its end, if there are `max` or more.
    /// Returns its cache key.
    pub fn evict(&mut self, known: Known, max: usize) -> Option<CacheKeyId> {
        let heap = self.heaps.get(sort(known)).filter(|heap| heap.len() >= max)?;
        let key = heap.first(&self.records)?.key();
        self.remove(key).then_some(key)
    }

    /// One of the cache keys that have a record of this item.
    pub fn key_of(&self, item: ItemId) -> Option<CacheKeyId> {
        let is_it = |first: &Place| self.records.get(*first).is_some_and(|record| record.item == item);
        self.items.find(item.short(), is_it).and_then(|first| self.records.get(*first)).map(Record::key)
    }

    /// Removes the NONEs of all items of a filter. Visits every NONE; removes every record if memory for a list is refused.
    pub fn remove_nones_of(&mut self, filter: FilterId) {
        let [_, nones, _] = &self.heaps;
        let mut keys = Vec::new();
        if keys.try_reserve_exact(nones.len()).is_err() {
            return self.clear();
        }
        keys.extend(nones.iter(&self.records).filter(|record| record.item.filter == filter).map(Record::key));
        for key in keys {
            self.remove(key);
        }
    }

    /// The cache keys whose leases were granted while a filter was missing. Visits every lease, unless there is none of them.
    ///
    /// # Errors
    /// If memory is refused.
    pub fn leased_without(&self, filter: CacheKeyId) -> Result<Vec<CacheKeyId>, OutOfMemory> {
        let (mut keys, filter) = (Vec::new(), FilterId::missing(filter));
        let Some(count) = self.unfiltered.get(&filter) else { return Ok(keys) };
        keys.try_reserve_exact(*count as usize).map_err(|_| OutOfMemory)?;
        let [leases, ..] = &self.heaps;
        keys.extend(leases.iter(&self.records).filter(|record| record.item.filter == filter).map(Record::key));
        Ok(keys)
    }

    /// Removes every record.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The number of records, expired ones included.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Removes up to `most` expired records of each sort.
    pub fn sweep(&mut self, now: Instant, most: usize) {
        for sort in 0..self.heaps.len() {
            for _ in 0..most {
                let first = self.heaps.get(sort).and_then(|heap| heap.first(&self.records));
                let Some(key) = first.filter(|record| record.deadline.end() <= now).map(Record::key) else { break };
                self.remove(key);
            }
        }
    }

    /// The numbers of live leases and NONEs. Visits every one.
    pub fn counts(&self, now: Instant) -> (u64, u64) {
        let live = |heap: &Heap| heap.iter(&self.records).filter(|record| record.deadline.end() > now).count() as u64;
        let [leases, nones, _] = &self.heaps;
        (live(leases), live(nones))
    }

    #[inline]
    fn get(&self, key: CacheKeyId) -> Option<&Record> {
        let is_it = |place: &Place| self.records.get(*place).is_some_and(|record| record.key() == key);
        self.keys.find(key.short(), is_it).and_then(|place| self.records.get(*place))
    }

    /// The record of a cache key, unless it has expired.
    fn live(&self, key: CacheKeyId, now: Instant) -> Option<&Record> {
        self.get(key).filter(|record| record.deadline.end() > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> CacheKeyId {
        CacheKeyId { database: 0, name: [number, 0] }
    }

    fn item(filter: u64, item: u64) -> ItemId {
        ItemId { filter: FilterId::existing(filter), item: [item, 0] }
    }

    fn lease(table: &mut Table, number: u64, token: u64, end: Instant) {
        table.insert(key(number), item(1, number), Known::Lease(token), end).unwrap();
    }

    fn none(table: &mut Table, number: u64, item: ItemId, end: Instant) {
        table.insert(key(number), item, Known::NoRow, end).unwrap();
    }

    #[test]
    fn a_record_applies_to_its_item_until_its_end() {
        let mut table = Table::default();
        lease(&mut table, 7, 99, 10);
        assert_eq!(table.known(key(7), item(1, 7), 9), Some((Known::Lease(99), 10)));
        assert_eq!(table.known(key(7), item(1, 7), 10), None);
        assert_eq!(table.known(key(7), item(2, 7), 9), None);
        assert_eq!(table.known(key(7), item(1, 8), 9), None);
        assert_eq!(table.known(key(8), item(1, 7), 9), None);
        assert_eq!(table.lease_end(key(7), 9), Some(10));
        assert_eq!(table.lease_end(key(7), 10), None);
        assert!(table.has_token(key(7), 99) && !table.has_token(key(7), 98) && !table.has_token(key(8), 99));
    }

    #[test]
    fn a_cache_key_has_one_record() {
        let mut table = Table::default();
        lease(&mut table, 7, 1, 10);
        lease(&mut table, 7, 2, 20);
        assert_eq!(table.counts(0), (1, 0));
        assert_eq!(table.known(key(7), item(1, 7), 5), Some((Known::Lease(2), 20)));
        none(&mut table, 7, item(1, 7), 30);
        assert_eq!(table.counts(0), (0, 1));
        assert_eq!(table.lease_end(key(7), 5), None);
        assert!(table.remove(key(7)));
        assert!(!table.remove(key(7)));
        assert!(table.is_empty() && table.items.is_empty());
    }

    #[test]
    fn the_record_nearest_its_end_is_evicted() {
        let mut table = Table::default();
        for (number, end) in [(1, 40), (2, 10), (3, 30), (4, 20), (5, 50)] {
            lease(&mut table, number, number, end);
        }
        none(&mut table, 9, item(1, 9), 5);
        assert_eq!(table.evict(Known::Lease(0), 6), None);
        // An entry of a removed record says nothing of the cache key's next record.
        lease(&mut table, 2, 2, 60);
        let evicted: Vec<_> = std::iter::from_fn(|| table.evict(Known::Lease(0), 3)).collect();
        assert_eq!(evicted, [key(4), key(3), key(1)]);
        assert_eq!(table.counts(0), (2, 1), "NONEs have a limit of their own");
    }

    #[test]
    fn all_cache_keys_of_an_item_are_found() {
        let mut table = Table::default();
        for number in 0..4 {
            none(&mut table, number, item(1, 7), 10);
        }
        // From the middle of the list.
        assert!(table.remove(key(1)));
        let mut found = 0;
        while let Some(key) = table.key_of(item(1, 7)) {
            assert!(table.remove(key));
            found += 1;
        }
        assert_eq!((found, table.is_empty()), (3, true));
    }

    #[test]
    fn the_nones_of_one_filter_are_removed_and_nothing_else() {
        let mut table = Table::default();
        none(&mut table, 1, item(1, 1), 10);
        none(&mut table, 2, item(2, 2), 10);
        lease(&mut table, 3, 3, 10);
        table.remove_nones_of(FilterId::existing(1));
        assert_eq!(table.counts(0), (1, 1));
        assert!(table.known(key(2), item(2, 2), 0).is_some());
    }

    #[test]
    fn the_leases_without_a_filter_are_found_until_they_are_removed() {
        let (mut table, filter) = (Table::default(), key(100));
        let without = |number, name| ItemId { filter: FilterId::missing(key(name)), ..item(1, number) };
        for (number, item) in [(1, without(1, 100)), (2, without(2, 100)), (3, without(3, 101)), (4, item(100, 4))] {
            table.insert(key(number), item, Known::Lease(number), 10).unwrap();
        }
        let sorted = |table: &Table| {
            let mut keys = table.leased_without(filter).unwrap();
            keys.sort_unstable();
            keys
        };
        assert_eq!(sorted(&table), [key(1), key(2)]);
        table.remove(key(2));
        lease(&mut table, 3, 3, 10);
        assert_eq!(sorted(&table), [key(1)]);
        table.sweep(10, 10);
        assert!(sorted(&table).is_empty() && table.unfiltered.is_empty());
    }

    #[test]
    fn expired_records_are_swept() {
        let mut table = Table::default();
        lease(&mut table, 1, 1, 10);
        lease(&mut table, 2, 2, 20);
        none(&mut table, 3, item(1, 3), 15);
        assert_eq!(table.counts(15), (1, 0));
        table.sweep(14, 10);
        assert_eq!(table.counts(0), (1, 1));
        table.sweep(20, 1);
        assert!(table.is_empty());
    }

    #[test]
    fn places_of_removed_records_are_used_again() {
        let mut table = Table::default();
        for round in 0..10_000 {
            lease(&mut table, round % 3, round, 1_000_000 - round);
            table.remove(key((round + 1) % 3));
        }
        assert!(table.records.places() <= 3, "{}", table.records.places());
    }

    #[test]
    fn many_records_are_swept_in_the_order_of_their_ends() {
        let mut table = Table::default();
        let end = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50;
        for number in 0..5000 {
            lease(&mut table, number, number, end(number));
        }
        for number in (0..5000).step_by(3) {
            assert!(table.remove(key(number)));
        }
        let mut ends = Vec::new();
        while let Some(key) = table.evict(Known::Lease(0), 1) {
            ends.push(end(key.name[0]));
        }
        assert!(ends.is_sorted() && ends.len() == 3333, "{}", ends.len());
        assert!(table.is_empty() && table.items.is_empty());
    }
}
