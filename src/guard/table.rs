//! Who loads what, and what is known to have no row: the leases and the NONEs, at most one of them a cache key.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, TryReserveError};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// So many records that are over go with each new one.
const DROPPED_AT_ONCE: usize = 4;

/// A moment of a clock that never goes back, in milliseconds.
pub type Instant = u64;

/// A cache key: its database, and its name under a hash with a key of this process. However long names are, a record is
/// small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CacheKeyId {
    /// The database.
    pub database: i32,
    /// The hash of the name.
    pub name: [u64; 2],
}

/// An item of a filter, the item under the same hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemId {
    /// The filter, by its instance; 0 where there was none.
    pub filter: u64,
    /// The hash of the item.
    pub item: [u64; 2],
}

/// A table by what is a hash under a secret key already: it is not hashed again.
pub type ByHash<K, V> = HashMap<K, V, BuildHasherDefault<AsItIs>>;

/// Takes the one number that it is given for the hash.
#[derive(Default)]
pub struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.rotate_left(5) ^ number;
    }
}

impl Hash for CacheKeyId {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.name[0] ^ u64::from(self.database.cast_unsigned()));
    }
}

impl Hash for ItemId {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.item[0] ^ self.filter);
    }
}

/// What is known of a cache key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Somebody loads its value, and has this token.
    Lease(u64),
    /// There is no row.
    NoRow,
}

/// What is held of a cache key.
#[derive(Clone, Copy, Debug)]
struct Record {
    item: ItemId,
    known: Known,
    end: Instant,
    /// Tells it from others that the cache key had before.
    number: u64,
    /// Other cache keys of the same item, in a list that is linked both ways: whoever names one item with many cache keys
    /// holds nobody up.
    before: Option<CacheKeyId>,
    after: Option<CacheKeyId>,
}

/// Records of one sort by their end. One that is gone leaves its entry until that comes to the top, or until there are more
/// such entries than records.
#[derive(Default)]
struct Ends {
    entries: BinaryHeap<Reverse<(Instant, u64, CacheKeyId)>>,
    records: usize,
}

/// The leases and the NONEs. Its operations cost a few lookups in hash tables; to make a record costs the logarithm of their
/// number, and now and then a pass over all.
#[derive(Default)]
pub struct Table {
    records: ByHash<CacheKeyId, Record>,
    /// The first of each list of cache keys.
    items: ByHash<ItemId, CacheKeyId>,
    leases: Ends,
    nones: Ends,
    next_number: u64,
}

impl Table {
    /// What is known of a cache key now, for this item: a record for another one says nothing.
    pub fn known(&self, key: CacheKeyId, item: ItemId, now: Instant) -> Option<(Known, Instant)> {
        let record = self.records.get(&key)?;
        (record.item == item && record.end > now).then_some((record.known, record.end))
    }

    /// Whether there is a record of a cache key.
    #[inline]
    pub fn has(&self, key: CacheKeyId) -> bool {
        self.records.contains_key(&key)
    }

    /// When the lease of a cache key ends, whoever's it is; nothing where it has none, or is over.
    pub fn lease_end(&self, key: CacheKeyId, now: Instant) -> Option<Instant> {
        let record = self.records.get(&key)?;
        (matches!(record.known, Known::Lease(_)) && record.end > now).then_some(record.end)
    }

    /// Takes note of something from `now` until `end`, in place of what was known of the cache key. Of each sort there are at most `max`:
    /// the one nearest its end goes for another, which is answered.
    ///
    /// # Errors
    /// Where there is no memory. What was known is gone then.
    pub fn note(
        &mut self,
        key: CacheKeyId,
        item: ItemId,
        known: Known,
        (now, end): (Instant, Instant),
        max: usize,
    ) -> Result<Option<CacheKeyId>, TryReserveError> {
        self.drop_ended(now, DROPPED_AT_ONCE);
        self.void(key);
        let mut dropped = None;
        while self.ends(known).records >= max.max(1) {
            dropped = self.drop_nearest(known);
        }
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
        Ok(dropped)
    }

    /// Drops what is known of a cache key; answers whether there was a record.
    pub fn void(&mut self, key: CacheKeyId) -> bool {
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

    /// One of the cache keys of which something is known for this item.
    pub fn key_of(&self, item: ItemId) -> Option<CacheKeyId> {
        self.items.get(&item).copied()
    }

    /// Drops every NONE for items of a filter. Looks at all records; drops all of
    /// them where there is no memory for a list.
    pub fn void_nones_of(&mut self, filter: u64) {
        let is_one = |record: &Record| record.known == Known::NoRow && record.item.filter == filter;
        let mut keys = Vec::new();
        if keys.try_reserve_exact(self.nones.records).is_err() {
            return self.clear();
        }
        keys.extend(self.records.iter().filter(|(_, record)| is_one(record)).map(|(key, _)| *key));
        for key in keys {
            self.void(key);
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        *self = Self { next_number: self.next_number, ..Self::default() };
    }

    /// Whether nothing is known of any cache key.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Drops some of what is over, of each sort so many at most.
    pub fn drop_ended(&mut self, now: Instant, most: usize) {
        for known in [Known::Lease(0), Known::NoRow] {
            for _ in 0..most {
                let entries = &mut self.ends(known).entries;
                if entries.peek().is_none_or(|Reverse((end, ..))| *end > now) {
                    break;
                }
                let Some(Reverse((_, number, key))) = entries.pop() else { break };
                self.drop_numbered(key, number);
            }
        }
    }

    /// The numbers of leases and of NONEs. Looks at all records.
    pub fn counts(&self, now: Instant) -> (u64, u64) {
        let live = self.records.values().filter(|record| record.end > now);
        live.fold((0, 0), |(leases, nones), record| match record.known {
            Known::Lease(_) => (leases + 1, nones),
            Known::NoRow => (leases, nones + 1),
        })
    }

    const fn ends(&mut self, known: Known) -> &mut Ends {
        match known {
            Known::Lease(_) => &mut self.leases,
            Known::NoRow => &mut self.nones,
        }
    }

    /// Drops the record of a sort that is nearest its end, of which there is one; answers with its cache key.
    fn drop_nearest(&mut self, known: Known) -> Option<CacheKeyId> {
        loop {
            let Reverse((_, number, key)) = self.ends(known).entries.pop()?;
            if self.drop_numbered(key, number) {
                return Some(key);
            }
        }
    }

    /// Drops a record, where it is still there; answers whether it was.
    fn drop_numbered(&mut self, key: CacheKeyId, number: u64) -> bool {
        self.records.get(&key).is_some_and(|record| record.number == number) && self.void(key)
    }

    /// Takes the entries of records that are gone out, once they are the most.
    fn tidy(&mut self, known: Known) {
        let (records, ends) = match known {
            Known::Lease(_) => (&self.records, &mut self.leases),
            Known::NoRow => (&self.records, &mut self.nones),
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

    const MAX: usize = 4;

    fn key(number: u64) -> CacheKeyId {
        CacheKeyId { database: 0, name: [number, 0] }
    }

    fn item(filter: u64, item: u64) -> ItemId {
        ItemId { filter, item: [item, 0] }
    }

    fn lease(table: &mut Table, number: u64, token: u64, end: Instant) {
        table.note(key(number), item(1, number), Known::Lease(token), (0, end), MAX).unwrap();
    }

    #[test]
    fn a_record_is_for_its_subject_and_until_its_end() {
        let mut table = Table::default();
        lease(&mut table, 7, 99, 10);
        assert_eq!(table.known(key(7), item(1, 7), 9), Some((Known::Lease(99), 10)));
        assert_eq!(table.known(key(7), item(1, 7), 10), None);
        assert_eq!(table.known(key(7), item(2, 7), 9), None);
        assert_eq!(table.known(key(7), item(1, 8), 9), None);
        assert_eq!(table.known(key(8), item(1, 7), 9), None);
        assert_eq!(table.lease_end(key(7), 9), Some(10));
        assert_eq!(table.lease_end(key(7), 10), None);
    }

    #[test]
    fn a_cache_key_has_one_record() {
        let mut table = Table::default();
        lease(&mut table, 7, 1, 10);
        lease(&mut table, 7, 2, 20);
        assert_eq!(table.counts(0), (1, 0));
        assert_eq!(table.known(key(7), item(1, 7), 5), Some((Known::Lease(2), 20)));
        table.note(key(7), item(1, 7), Known::NoRow, (0, 30), MAX).unwrap();
        assert_eq!(table.counts(0), (0, 1));
        assert_eq!(table.lease_end(key(7), 5), None);
        assert!(table.void(key(7)));
        assert!(!table.void(key(7)));
        assert!(table.is_empty() && table.items.is_empty());
    }

    #[test]
    fn of_too_many_the_one_nearest_its_end_goes() {
        let mut table = Table::default();
        for (number, end) in [(1, 40), (2, 10), (3, 30), (4, 20), (5, 50)] {
            lease(&mut table, number, number, end);
        }
        assert_eq!(table.counts(0), (4, 0));
        assert_eq!(table.known(key(2), item(1, 2), 0), None);
        lease(&mut table, 6, 6, 60);
        assert_eq!(table.known(key(4), item(1, 4), 0), None);
        // NONEs are counted by themselves.
        table.note(key(9), item(1, 9), Known::NoRow, (0, 5), MAX).unwrap();
        assert_eq!(table.counts(0), (4, 1));
    }

    #[test]
    fn all_cache_keys_of_an_item_are_found() {
        let mut table = Table::default();
        for number in 0..4 {
            table.note(key(number), item(1, 7), Known::NoRow, (0, 10), MAX).unwrap();
        }
        // From the middle of the list.
        assert!(table.void(key(1)));
        let mut found = 0;
        while let Some(key) = table.key_of(item(1, 7)) {
            assert!(table.void(key));
            found += 1;
        }
        assert_eq!((found, table.is_empty()), (3, true));
    }

    #[test]
    fn the_nones_of_a_filter_go_and_nothing_else() {
        let mut table = Table::default();
        table.note(key(1), item(1, 1), Known::NoRow, (0, 10), MAX).unwrap();
        table.note(key(2), item(2, 2), Known::NoRow, (0, 10), MAX).unwrap();
        lease(&mut table, 3, 3, 10);
        table.void_nones_of(1);
        assert_eq!(table.counts(0), (1, 1));
        assert!(table.known(key(2), item(2, 2), 0).is_some());
    }

    #[test]
    fn what_is_over_goes() {
        let mut table = Table::default();
        lease(&mut table, 1, 1, 10);
        lease(&mut table, 2, 2, 20);
        table.note(key(3), item(1, 3), Known::NoRow, (0, 15), MAX).unwrap();
        assert_eq!(table.counts(15), (1, 0));
        table.note(key(4), item(1, 4), Known::NoRow, (15, 99), MAX).unwrap();
        assert_eq!(table.counts(0), (1, 1));
    }

    #[test]
    fn entries_of_records_that_are_gone_do_not_pile_up() {
        let mut table = Table::default();
        for round in 0..10_000 {
            lease(&mut table, 1, round, 1_000_000 - round);
        }
        assert!(table.leases.entries.len() <= 66, "{}", table.leases.entries.len());
    }
}
