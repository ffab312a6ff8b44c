//! What the model knows about the guard: tokens, leases, NONEs and back-offs, and the keys that WHILE and UNLESS name.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::filter::{CLOCK_SLACK, Item};
use super::replies::Heard;

/// The key of a filter and an item, which together have one cache key.
pub type Row = (usize, Item);

/// The number of tokens that are kept.
const TOKENS: usize = 200;

/// A token that was granted. It outlives its lease.
pub struct Token {
    row: Row,
    text: String,
    /// Whether BF.FILL must refuse it.
    pub is_void: bool,
    /// Whether the key of the filter has held the same value, or none, since it was granted. Otherwise it may be void.
    pub is_of_filter: bool,
}

/// The sort of a record.
#[derive(PartialEq)]
pub enum Known {
    /// The lease of this token.
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
    /// The latest of them.
    tokens: VecDeque<Token>,
    pub conditions: Conditions,
    /// How often each reply and effect occurred.
    pub seen: BTreeMap<&'static str, usize>,
}

impl Guarded {
    /// Returns the record of a row, if it may have applied to a command.
    pub fn record(&self, row: Row, heard: &Heard<'_>) -> Option<&Record> {
        self.records.get(&row).filter(|record| record.may(heard))
    }

    /// Returns the tokens of one filter's rows that are void, or those that may be good.
    pub fn tokens(&self, key: usize, is_void: bool) -> Vec<(Row, &str)> {
        let tokens = self.tokens.iter().filter(|token| token.row.0 == key && token.is_void == is_void);
        tokens.map(|token| (token.row, token.text.as_str())).collect()
    }

    /// Returns what is known of a token of a row.
    pub fn token(&self, row: Row, text: &str) -> Option<&Token> {
        self.tokens.iter().find(|token| token.row == row && token.text == text)
    }

    /// Records a grant. Returns whether the token is a new one.
    pub fn grant(&mut self, row: Row, token: &str, milliseconds: u64, heard: &Heard<'_>) -> bool {
        self.note(row, Known::Lease(token.to_owned()), milliseconds, heard);
        self.tokens.push_back(Token { row, text: token.to_owned(), is_void: false, is_of_filter: true });
        if self.tokens.len() > TOKENS {
            self.tokens.pop_front();
        }
        self.granted.insert(token.to_owned())
    }

    /// Records what a command made known for a time, in place of the row's other record.
    pub fn note(&mut self, row: Row, known: Known, milliseconds: u64, heard: &Heard<'_>) {
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

    /// Ends the record of a row, and leaves its tokens as they are.
    pub fn end_record(&mut self, row: Row) {
        self.records.remove(&row);
    }

    /// Voids the tokens of a row, and ends its record.
    pub fn end(&mut self, row: Row) {
        self.end_record(row);
        self.tokens.iter_mut().filter(|token| token.row == row).for_each(|token| token.is_void = true);
    }

    /// Voids the tokens of a row whose cached value a client changed, or whose item was added to the filter. A back-off stays.
    pub fn overwritten(&mut self, row: Row) {
        let back_off = self.records.remove(&row).filter(|record| record.known == Known::BackOff);
        self.end(row);
        self.records.extend(back_off.map(|record| (row, record)));
    }

    /// Voids the tokens of a filter that another one was merged into.
    pub fn merged(&mut self, key: usize) {
        let mut rows: Vec<Row> =
            self.tokens.iter().map(|token| token.row).chain(self.records.keys().copied()).collect();
        rows.retain(|row| row.0 == key);
        rows.into_iter().for_each(|row| self.overwritten(row));
    }

    /// Records that another filter may be at a key. The former one may come back by RENAME.
    pub fn replaced(&mut self, key: usize) {
        for (row, record) in &mut self.records {
            record.is_of_filter &= row.0 != key;
        }
        for token in &mut self.tokens {
            token.is_of_filter &= token.row.0 != key;
        }
    }

    /// Ends all records, and voids all tokens.
    pub fn end_all(&mut self) {
        self.records.clear();
        self.tokens.iter_mut().for_each(|token| token.is_void = true);
    }

    /// Counts a reply or an effect.
    pub fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }
}
