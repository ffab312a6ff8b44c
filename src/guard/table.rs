//! The records: leases, NONEs and back-offs. A cache key has at most one of them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, TryReserveError};

use super::ids::{ByHash, CacheKeyId, FilterId, ItemId};

/// A time of a monotonic clock, in milliseconds.
pub type Instant = u64;

/// What a record says of its cache key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// A caller loads its value and holds this token.
    Lease(u64),
    /// The item has no row.
    NoRow,
    /// The value could not be loaded, and no lease is granted. The record is for every item of the cache key, and is found by
    /// none: its item is [`ItemId::none`].
    BackOff,
}

/// The record of a cache key.
#[derive(Clone, Copy, Debug)]
struct Record {
    item: ItemId,
    known: Known,
    end: Instant,
    /// Tells the record from earlier ones of the same cache key.
    number: u64,
    /// The neighbours in the list of cache keys with the same item. The list is doubly linked: removing one of very many
    /// cache keys of an item takes no longer than removing one of a few.
    before: Option<CacheKeyId>,
    after: Option<CacheKeyId>,
}

/// The records of one sort by their end. The entry of a removed record stays until it comes to the top, or until such entries
/// outnumber the records.
#[derive(Default)]
struct Ends {
    entries: BinaryHeap<Reverse<(Instant, u64, CacheKeyId)>>,
    records: usize,
}

/// The records. An operation costs a few lookups in hash tables; inserting also costs the logarithm of their number, and now
/// and then a pass over all of them.
#[derive(Default)]
pub struct Table {
    records: ByHash<CacheKeyId, Record>,
    /// The first cache key of each item's list.
    items: ByHash<ItemId, CacheKeyId>,
    leases: Ends,
    nones: Ends,
    back_offs: Ends,
    next_number: u64,
}

impl Table {
    /// What is known of a cache key for this item, and until when. A record of another item, or of another instance of the
    /// filter, does not apply.
    pub fn known(&self, key: CacheKeyId, item: ItemId, now: Instant) -> Option<(Known, Instant)> {
        let record = self.records.get(&key)?;
        (record.item == item && record.end > now).then_some((record.known, record.end))
    }

    /// Whether a cache key has a record.
    #[inline]
    pub fn has(&self, key: CacheKeyId) -> bool {
        self.records.contains_key(&key)
    }

    /// When the lease of a cache key expires, whatever its item; nothing if there is no live lease.
    pub fn lease_end(&self, key: CacheKeyId, now: Instant) -> Option<Instant> {
        let record = self.records.get(&key)?;
        (matches!(record.known, Known::Lease(_)) && record.end > now).then_some(record.end)
    }

    /// When the back-off of a cache key expires; nothing if there is no live one.
    pub fn back_off_end(&self, key: CacheKeyId, now: Instant) -> Option<Instant> {
        let record = self.records.get(&key)?;
        (record.known == Known::BackOff && record.end > now).then_some(record.end)
    }

    /// Whether the record of a cache key is a back-off, live or not.
    pub fn is_backed_off(&self, key: CacheKeyId) -> bool {
        self.records.get(&key).is_some_and(|record| record.known == Known::BackOff)
    }

    /// Whether the lease of a cache key has this token.
    pub fn has_token(&self, key: CacheKeyId, token: u64) -> bool {
        self.records.get(&key).is_some_and(|record| record.known == Known::Lease(token))
    }

    /// Inserts a record that holds until `end`, in place of the one that the cache key had.
    ///
    /// # Errors
    /// If memory is refused. The old record is removed all the same.
    pub fn insert(&mut self, key: CacheKeyId, item: ItemId, known: Known, end: Instant) -> Result<(), TryReserveError> {
        self.remove(key);
        self.records.try_reserve(1)?;
        self.items.try_reserve(1)?;
        self.ends(known).entries.try_reserve(1)?;

        let number = self.next_number;
        self.next_number += 1;
        let after = self.items.insert(item, key);
        if let Some(after) = after.and_then(|after| self.records.get_mut(&after)) {
            after.before = Some(key);
        }
        self.records.insert(key, Record { item, known, end, number, before: None, after });
        let ends = self.ends(known);
        ends.entries.push(Reverse((end, number, key)));
        ends.records += 1;
        self.tidy(known);
        Ok(())
    }

    /// Removes the record of a cache key. Returns whether there was one.
    pub fn remove(&mut self, key: CacheKeyId) -> bool {
        let Some(record) = self.records.remove(&key) else { return false };
        self.ends(record.known).records -= 1;
        if let Some(after) = record.after.and_then(|after| self.records.get_mut(&after)) {
            after.before = record.before;
        }
        match (record.before.and_then(|before| self.records.get_mut(&before)), record.after) {
            (Some(before), after) => before.after = after,
            (None, Some(after)) => _ = self.items.insert(record.item, after),
            (None, None) => _ = self.items.remove(&record.item),
        }
        true
    }

    /// Makes room for one more record: removes the record of this sort that is nearest its end, if there are `max` or more.
    /// Returns its cache key.
    pub fn evict(&mut self, known: Known, max: usize) -> Option<CacheKeyId> {
        while self.ends(known).records >= max.max(1) {
            let Reverse((_, number, key)) = self.ends(known).entries.pop()?;
            if self.remove_numbered(key, number) {
                return Some(key);
            }
        }
        None
    }

    /// One of the cache keys that have a record of this item.
    pub fn key_of(&self, item: ItemId) -> Option<CacheKeyId> {
        self.items.get(&item).copied()
    }

    /// Removes the NONEs of all items of a filter. Visits every record; removes them all if memory for a list is refused.
    pub fn remove_nones_of(&mut self, filter: FilterId) {
        let is_one = |record: &Record| record.known == Known::NoRow && record.item.filter == filter;
        let mut keys = Vec::new();
        if keys.try_reserve_exact(self.nones.records).is_err() {
            return self.clear();
        }
        keys.extend(self.records.iter().filter(|(_, record)| is_one(record)).map(|(key, _)| *key));
        for key in keys {
            self.remove(key);
        }
    }

    /// Removes every record.
    pub fn clear(&mut self) {
        *self = Self { next_number: self.next_number, ..Self::default() };
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The number of records, expired ones included.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Removes up to `most` expired records of each sort.
    pub fn sweep(&mut self, now: Instant, most: usize) {
        for known in [Known::Lease(0), Known::NoRow, Known::BackOff] {
            for _ in 0..most {
                let entries = &mut self.ends(known).entries;
                if entries.peek().is_none_or(|Reverse((end, ..))| *end > now) {
                    break;
                }
                let Some(Reverse((_, number, key))) = entries.pop() else { break };
                self.remove_numbered(key, number);
            }
        }
    }

    /// The numbers of live leases and NONEs. Visits every record.
    pub fn counts(&self, now: Instant) -> (u64, u64) {
        let live = self.records.values().filter(|record| record.end > now);
        live.fold((0, 0), |(leases, nones), record| match record.known {
            Known::Lease(_) => (leases + 1, nones),
            Known::NoRow => (leases, nones + 1),
            Known::BackOff => (leases, nones),
        })
    }

    const fn ends(&mut self, known: Known) -> &mut Ends {
        match known {
            Known::Lease(_) => &mut self.leases,
            Known::NoRow => &mut self.nones,
            Known::BackOff => &mut self.back_offs,
        }
    }

    /// Removes the record with this number, if it is still there. Returns whether it was.
    fn remove_numbered(&mut self, key: CacheKeyId, number: u64) -> bool {
        self.records.get(&key).is_some_and(|record| record.number == number) && self.remove(key)
    }

    /// Removes the entries of removed records, once they outnumber the others.
    fn tidy(&mut self, known: Known) {
        let (records, ends) = match known {
            Known::Lease(_) => (&self.records, &mut self.leases),
            Known::NoRow => (&self.records, &mut self.nones),
            Known::BackOff => (&self.records, &mut self.back_offs),
        };
        if ends.entries.len() > 2 * ends.records + 64 {
            ends.entries
                .retain(|Reverse((_, number, key))| records.get(key).is_some_and(|record| record.number == *number));
        }
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
    fn entries_of_removed_records_do_not_pile_up() {
        let mut table = Table::default();
        for round in 0..10_000 {
            lease(&mut table, 1, round, 1_000_000 - round);
        }
        assert!(table.leases.entries.len() <= 66, "{}", table.leases.entries.len());
    }
}
