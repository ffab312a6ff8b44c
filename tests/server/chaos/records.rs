//! What the model knows about the guard: leases, NONEs and back-offs, and the keys that WHILE and UNLESS name.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::filter::{CLOCK_SLACK, Item};
use super::replies::Heard;

/// The key of a filter and an item, which together have one cache key.
pub type Row = (usize, Item);

/// The number of void tokens that are kept.
const SPENT: usize = 100;

/// The sort of a record.
#[derive(PartialEq)]
pub enum Known {
    /// A lease with this token.
    Lease(String),
    NoRow,
    BackOff,
}

/// The guard's record of a cache key.
pub struct Record {
    pub known: Known,
    /// Its time to live when it was made.
    pub milliseconds: u64,
    /// It has not expired before this time.
    surely_until: Instant,
    /// It has expired after this time.
    perhaps_until: Instant,
    /// Whether the key of the filter has held the same value, or none, since the record was made.
    is_of_filter: bool,
}

impl Record {
    /// Whether the record may have applied to a command.
    pub fn may(&self, heard: &Heard<'_>) -> bool {
        heard.sent < self.perhaps_until
    }

    /// Whether the record must have applied to a command. A back-off does not depend on the filter.
    pub fn must(&self, heard: &Heard<'_>) -> bool {
        (self.is_of_filter || self.known == Known::BackOff) && heard.replied < self.surely_until
    }

    /// Whether the record lets nobody load.
    pub fn is_busy(&self) -> bool {
        self.known != Known::NoRow
    }
}

/// The keys that BF.FETCH names in WHILE and UNLESS.
#[derive(Default)]
pub struct Conditions {
    /// Whether the key of WHILE exists.
    pub beats: bool,
    /// The fields of the hash of UNLESS: rows with a write in flight, or `None` for all rows.
    pub in_flight: BTreeSet<Option<Row>>,
    /// Whether a failover may have lost the latest change. The driver deletes both keys then.
    pub is_doubtful: bool,
}

impl Conditions {
    /// Whether a row has a write in flight.
    pub fn hold(&self, row: Row) -> bool {
        self.in_flight.contains(&None) || self.in_flight.contains(&Some(row))
    }
}

/// The state of the guard.
#[derive(Default)]
pub struct Guarded {
    records: BTreeMap<Row, Record>,
    /// Every token that was granted.
    granted: BTreeSet<String>,
    /// The latest tokens that BF.FILL must refuse.
    spent: VecDeque<(Row, String)>,
    pub conditions: Conditions,
    /// How often each reply and effect occurred.
    pub seen: BTreeMap<&'static str, usize>,
}

impl Guarded {
    /// Returns the record of a row, if it may have applied to a command.
    pub fn record(&self, row: Row, heard: &Heard<'_>) -> Option<&Record> {
        self.records.get(&row).filter(|record| record.may(heard))
    }

    /// Returns the tokens of one filter's rows that may be valid.
    pub fn leased(&self, key: usize) -> Vec<(Row, &str)> {
        let tokens = self.records.iter().filter_map(|(row, record)| match &record.known {
            Known::Lease(token) => Some((*row, token.as_str())),
            _ => None,
        });
        tokens.filter(|((of, _), _)| *of == key).collect()
    }

    /// Returns tokens of one filter's rows that are void.
    pub fn spent(&self, key: usize) -> Vec<(Row, &str)> {
        let tokens = self.spent.iter().map(|(row, token)| (*row, token.as_str()));
        tokens.filter(|((of, _), _)| *of == key).collect()
    }

    /// Records a grant, which voids the row's other token. Returns whether the token is a new one.
    pub fn grant(&mut self, row: Row, token: &str, milliseconds: u64, heard: &Heard<'_>) -> bool {
        self.note(row, Known::Lease(token.to_owned()), milliseconds, heard);
        self.granted.insert(token.to_owned())
    }

    /// Records what a command made known for a time, in place of the row's other record.
    pub fn note(&mut self, row: Row, known: Known, milliseconds: u64, heard: &Heard<'_>) {
        self.end(row);
        let lives = Duration::from_millis(milliseconds);
        let record = Record {
            known,
            milliseconds,
            surely_until: heard.sent + lives.saturating_sub(CLOCK_SLACK),
            perhaps_until: heard.replied + lives + CLOCK_SLACK,
            is_of_filter: true,
        };
        self.records.insert(row, record);
    }

    /// Ends the record of a row.
    pub fn end(&mut self, row: Row) {
        if let Some(Record { known: Known::Lease(token), .. }) = self.records.remove(&row) {
            self.spent.push_back((row, token));
            if self.spent.len() > SPENT {
                self.spent.pop_front();
            }
        }
    }

    /// Ends the record of a row whose cached value a client changed. A back-off stays.
    pub fn overwritten(&mut self, row: Row) {
        if self.records.get(&row).is_some_and(|record| record.known != Known::BackOff) {
            self.end(row);
        }
    }

    /// Ends the record of a row whose item was added to the filter. A back-off stays, and a record of another filter may.
    pub fn added(&mut self, row: Row) {
        if self.records.get(&row).is_some_and(|record| record.is_of_filter) {
            self.overwritten(row);
        }
    }

    /// Ends the NONEs of a filter that another one was merged into.
    pub fn merged(&mut self, key: usize) {
        self.records.retain(|row, record| row.0 != key || record.known != Known::NoRow || !record.is_of_filter);
    }

    /// Records that another filter may be at a key. The former one may come back by RENAME.
    pub fn replaced(&mut self, key: usize) {
        for (row, record) in &mut self.records {
            record.is_of_filter &= row.0 != key;
        }
    }

    /// Ends all records.
    pub fn end_all(&mut self) {
        let rows: Vec<Row> = self.records.keys().copied().collect();
        rows.into_iter().for_each(|row| self.end(row));
    }

    /// Counts a reply or an effect.
    pub fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }
}
