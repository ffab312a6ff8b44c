//! The records of cache keys: leases, NONEs, back-offs, and the tokens that may still be filled. A cache key has at most one. There may be
//! tens of thousands, so a record is small: 64 bytes, plus about forty in the hash tables.

use hashbrown::HashTable;

use super::dependencies::Dependencies;
use super::row::{DependencyId, KeyId, Row, Stamp};

/// A time of a monotonic clock, in milliseconds.
pub type Instant = u64;

/// The server refused memory.
#[derive(Debug)]
pub struct OutOfMemory;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A caller is loading its value.
    Lease,
    /// The item has no row.
    NoRow,
    /// The value could not be loaded, and no lease is granted for any item.
    BackOff,
    /// No caller has the lease, but a token may be filled, or failures are remembered.
    Token,
    /// The cached value is valid without the key of WHILE.
    Loaded,
}

/// The maximum number of failures that a record counts.
const FAILURES_MAX: u64 = 7;
/// Failures are remembered for this long after the end of a record, in milliseconds.
const FAILURES_LIVE: Instant = 60 * 1000;
/// The unit, in milliseconds, in which a record stores how long its fill is valid after its end, and the maximum number of units.
const FRESH_UNIT: Instant = 16;
const FRESH_MAX: u64 = (1 << (END_AT - FRESH_AT)) - 1;
/// The offsets in [`Record::bits`] of the failures, of the time after the end, and of the end, above the kind.
const FAILURES_AT: u32 = 3;
const FRESH_AT: u32 = 6;
const END_AT: u32 = 24;
const KIND: u64 = (1 << FAILURES_AT) - 1;

/// The record of a cache key. It is kept beyond its end while a token of the row may be filled.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub row: Row,
    /// The stamp of the oldest token that is safe for the row, or [`NO_TOKEN`].
    pub oldest: Stamp,
    /// The stamp of the last token. In a NONE or a back-off, the last stamp that was issued before the record.
    pub stamp: Stamp,
    /// From the lowest bit on: the kind, the number of failed loads, how long its fill is valid, the end.
    bits: u64,
}

/// No token has this stamp.
pub const NO_TOKEN: Stamp = Stamp::MAX;

const _: () = assert!(size_of::<Record>() == 64);

impl Record {
    /// An end beyond the range, 34 years, is replaced by the end of the range.
    pub fn new(row: Row, kind: RecordKind, [oldest, stamp]: [Stamp; 2], end: Instant) -> Self {
        Self { row, oldest, stamp, bits: end.min(Instant::MAX >> END_AT) << END_AT | kind as u64 }
    }

    /// Makes a fill under the lease valid without the key of WHILE until a time that is not before the end.
    pub fn with_fresh_until(self, until: Instant) -> Self {
        let units = until.saturating_sub(self.end()) / FRESH_UNIT + 1;
        Self { bits: self.bits | units.min(FRESH_MAX) << FRESH_AT, ..self }
    }

    /// The time until which a fill under the lease is valid without the key of WHILE. Of a NONE: its end.
    pub const fn fresh_until(&self) -> Option<Instant> {
        match self.bits >> FRESH_AT & FRESH_MAX {
            0 => None,
            units => Some(self.end() + (units - 1) * FRESH_UNIT),
        }
    }

    /// Sets the number of failed loads of the cache key.
    pub fn with_failures(self, failures: u64) -> Self {
        Self { bits: self.bits | failures.min(FAILURES_MAX) << FAILURES_AT, ..self }
    }

    pub const fn end(&self) -> Instant {
        self.bits >> END_AT
    }

    pub const fn kind(&self) -> RecordKind {
        match self.bits & KIND {
            0 => RecordKind::Lease,
            1 => RecordKind::NoRow,
            2 => RecordKind::BackOff,
            4 => RecordKind::Loaded,
            _ => RecordKind::Token,
        }
    }

    /// The number of failed loads of the cache key that are still remembered.
    pub const fn failures(&self, now: Instant) -> u64 {
        let is_remembered = self.end() + FAILURES_LIVE > now;
        if is_remembered { self.bits >> FAILURES_AT & FAILURES_MAX } else { 0 }
    }
}

/// The records, in no order, their indices by cache key, and their dependencies.
#[derive(Default)]
pub struct Records {
    all: Vec<Record>,
    places: HashTable<u32>,
    dependencies: Dependencies,
    /// The number of leases and NONEs among them.
    leases: usize,
    no_rows: usize,
    /// The next record that [`sweep`](Self::sweep) checks.
    cursor: usize,
}

impl Records {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The numbers of leases and of NONEs, including expired and void ones that were not swept yet.
    pub fn counts(&self) -> (usize, usize) {
        (self.leases, self.no_rows)
    }

    /// The number of records of a kind; only leases and NONEs are counted.
    fn number_of(&mut self, kind: RecordKind) -> Option<&mut usize> {
        match kind {
            RecordKind::Lease => Some(&mut self.leases),
            RecordKind::NoRow => Some(&mut self.no_rows),
            RecordKind::BackOff | RecordKind::Token | RecordKind::Loaded => None,
        }
    }

    /// The record of a cache key.
    #[inline]
    pub fn get(&self, key: KeyId) -> Option<&Record> {
        self.places.find(key.table_hash(), is_of(&self.all, key)).and_then(|place| self.all.get(*place as usize))
    }

    /// Whether there may be a record of a cache key with this hash.
    #[inline]
    pub fn may_have(&self, table_hash: u64) -> bool {
        let has_hash =
            |place: &u32| self.all.get(*place as usize).is_some_and(|found| found.row.key.table_hash() == table_hash);
        self.places.find(table_hash, has_hash).is_some()
    }

    /// Ends the lease, NONE or back-off of a cache key. Its tokens and its failures stay.
    pub fn expire(&mut self, key: KeyId) {
        let Some(record) = self.get_mut(key) else { return };
        let kind = record.kind();
        record.bits = record.bits & !KIND | RecordKind::Token as u64;
        self.number_of(kind).into_iter().for_each(|number| *number -= 1);
    }

    /// Voids the tokens of a cache key.
    pub fn void_tokens(&mut self, key: KeyId) {
        self.get_mut(key).into_iter().for_each(|record| record.oldest = NO_TOKEN);
    }

    fn get_mut(&mut self, key: KeyId) -> Option<&mut Record> {
        let place = self.places.find(key.table_hash(), is_of(&self.all, key))?;
        self.all.get_mut(*place as usize)
    }

    /// Whether a record depends on a filter or an item.
    #[inline]
    pub fn depend_on(&self, id: DependencyId) -> bool {
        self.dependencies.has(id)
    }

    /// Records that a filter or an item has changed.
    #[inline]
    pub fn change(&mut self, id: DependencyId, stamp: Stamp) {
        self.dependencies.change(id, stamp);
    }

    /// Whether a record has not expired and its dependencies have not changed since. A back-off has no dependencies.
    pub fn is_current(&self, record: &Record, now: Instant) -> bool {
        record.end() > now
            && record.kind() != RecordKind::Token
            && (record.kind() == RecordKind::BackOff || self.dependencies.are_unchanged(&record.row, record.stamp))
    }

    /// Whether a token is safe for a row: the row's record covers its stamp, and the row's dependencies have not changed since.
    pub fn is_safe(&self, row: &Row, stamp: Stamp) -> bool {
        let is_its = |record: &Record| record.row == *row && (record.oldest..=record.stamp).contains(&stamp);
        self.get(row.key).is_some_and(is_its) && self.dependencies.are_unchanged(row, stamp)
    }

    /// Inserts a record, in place of the cache key's earlier one. If memory is refused, the cache key has no record.
    pub fn insert(&mut self, record: Record) -> Result<(), OutOfMemory> {
        self.remove(record.row.key);
        let Self { all, places, dependencies, .. } = self;
        all.try_reserve(1).map_err(|_| OutOfMemory)?;
        dependencies.reserve().map_err(|_| OutOfMemory)?;
        let hash = |place: &u32| all.get(*place as usize).map_or(0, |record| record.row.key.table_hash());
        places.try_reserve(1, hash).map_err(|_| OutOfMemory)?;
        let place = u32::try_from(all.len()).map_err(|_| OutOfMemory)?;
        places.insert_unique(record.row.key.table_hash(), place, hash);
        dependencies.add(&record.row);
        all.push(record);
        self.number_of(record.kind()).into_iter().for_each(|number| *number += 1);
        Ok(())
    }

    /// Removes the record of a cache key. The last record takes its place.
    pub fn remove(&mut self, key: KeyId) {
        let Self { all, places, dependencies, .. } = self;
        let Ok(entry) = places.find_entry(key.table_hash(), is_of(all, key)) else { return };
        let (place, _) = entry.remove();
        if place as usize >= all.len() {
            return;
        }
        let removed = all.swap_remove(place as usize);
        dependencies.remove(&removed.row);
        let end = all.len();
        if let Some(last) = all.get(place as usize)
            && let Some(of_last) = places.find_mut(last.row.key.table_hash(), |other| *other as usize == end)
        {
            *of_last = place;
        }
        self.number_of(removed.kind()).into_iter().for_each(|number| *number -= 1);
    }

    /// The record with the least `worth` among a sample: eight records that are spread evenly from `draw` on, or all if there are fewer.
    pub fn least<W: Ord>(&self, draw: u64, worth: impl Fn(&Record) -> W) -> Option<&Record> {
        let step = self.all.len().div_ceil(8).max(1);
        let first = usize::try_from(draw).unwrap_or(0) % step;
        self.all.iter().skip(first).step_by(step).min_by_key(|record| worth(record))
    }

    /// Visits up to `most` records, beginning where the last call stopped, and removes those that are no longer valid. A record stays while
    /// its last token is safe and younger than `expired`, because it may be filled; while failures are remembered; and until its end if it
    /// `is_awaited`.
    pub fn sweep(&mut self, most: usize, (now, expired): (Instant, Stamp), is_awaited: impl Fn(&Record) -> bool) {
        for _ in 0..most.min(self.all.len()) {
            if self.cursor >= self.all.len() {
                self.cursor = 0;
            }
            let Some(record) = self.all.get(self.cursor) else { return };
            let (key, has_expired) = (record.row.key, record.end() <= now);
            let is_fillable = record.stamp > expired && self.is_safe(&record.row, record.stamp);
            if is_fillable && has_expired && record.kind() != RecordKind::Token {
                self.expire(key);
            } else if is_fillable
                || self.is_current(record, now)
                || record.failures(now) > 0
                || !has_expired && is_awaited(record)
            {
                self.cursor += 1;
            } else {
                self.remove(key);
            }
        }
    }
}

/// Whether the record at an index belongs to a cache key.
fn is_of(all: &[Record], key: KeyId) -> impl Fn(&u32) -> bool {
    move |place| all.get(*place as usize).is_some_and(|record| record.row.key == key)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn record(number: u64, end: Instant) -> Record {
        Record::new(Row::of(KeyId([number, 0])), RecordKind::Lease, [NO_TOKEN, 1], end)
    }

    #[test]
    fn a_record_keeps_its_kind_and_its_end() {
        use RecordKind::{BackOff, Lease, Loaded, NoRow, Token};
        for kind in [Lease, NoRow, BackOff, Token, Loaded] {
            let record = Record::new(Row::of(KeyId([1, 2])), kind, [6, 7], 1_000_000);
            assert_eq!((record.kind(), record.end(), record.stamp), (kind, 1_000_000, 7));
            assert_eq!(Record::new(record.row, kind, [6, 7], Instant::MAX).end(), Instant::MAX >> END_AT);
            let failed = record.with_failures(3);
            assert_eq!((failed.kind(), failed.end(), failed.failures(1_059_999)), (kind, 1_000_000, 3));
            assert_eq!((failed.failures(1_060_000), record.with_failures(9).failures(0)), (0, FAILURES_MAX));
            assert_eq!(failed.fresh_until(), None);
            for (asked, kept) in [(1_000_000, 1_000_000), (1_000_015, 1_000_000), (4_600_000, 4_600_000)] {
                let fresh = failed.with_fresh_until(asked);
                assert_eq!((fresh.fresh_until(), fresh.kind(), fresh.end()), (Some(kept), kind, 1_000_000));
                assert_eq!(fresh.failures(0), 3);
            }
        }
    }

    #[test]
    fn records_are_found_whatever_was_removed_before() {
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut records, mut model) = (Records::default(), HashMap::new());
        for _ in 0..20_000 {
            let number = rng.u64(..100);
            match rng.u64(..4) {
                0..2 => {
                    let end = rng.u64(..1000);
                    records.insert(record(number, end)).unwrap();
                    model.insert(number, end);
                }
                2 => {
                    records.remove(KeyId([number, 0]));
                    model.remove(&number);
                }
                _ => {
                    let least = rng.u64(..500);
                    records.sweep(usize::MAX, (least, 0), |_| false);
                    records.sweep(usize::MAX, (least, 0), |_| false);
                    model.retain(|_, end| *end > least);
                }
            }
            assert_eq!((records.len(), records.counts()), (model.len(), (model.len(), 0)));
            let number = rng.u64(..100);
            assert_eq!(records.get(KeyId([number, 0])).map(Record::end), model.get(&number).copied());
        }
        assert!(records.get(KeyId([1, 1])).is_none(), "another key with this half of the hash");
        (0..100).for_each(|number| records.remove(KeyId([number, 0])));
        assert!(records.len() == 0 && !records.depend_on(0), "what no record depends on is forgotten");
    }

    #[test]
    fn the_least_of_a_few_records_is_near_the_least_of_all() {
        let mut records = Records::default();
        let end = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        for number in 0..8 {
            records.insert(record(number, end(number))).unwrap();
            let least = (0..=number).map(end).min();
            assert_eq!(records.least(number, Record::end).map(Record::end), least, "of eight, all are looked at");
        }
        (8..5000).for_each(|number| records.insert(record(number, end(number))).unwrap());
        // The expected least of eight is a ninth of the range.
        let sum: u64 = (0..5000).filter_map(|draw| records.least(draw, Record::end).map(Record::end)).sum();
        assert!(sum / 5000 < 1024 / 7, "{}", sum / 5000);
    }
}
