//! The model of the rows: which replies would be wrong. Writers report what they have announced, and readers the replies they
//! got; a reply that breaks a promise of the guard is recorded as a fault.
//!
//! The model does not use wall-clock time. Events are ordered by the threads, so a busy machine makes a run shorter but never
//! wrong. A promise is checked only if the order is certain: what a writer was told before a reader asked, or what was granted
//! after another grant was reported.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SHARDS: usize = 64;
/// The maximum number of faults that are kept.
const FAULTS_KEPT: usize = 20;

/// A row of the table as the model knows it.
#[derive(Clone, Copy)]
struct Row {
    /// The newest version whose second BF.CHANGED was acknowledged; a delete counts as a version.
    announced: u64,
    /// Whether that version is a row and not a delete.
    present: bool,
    /// The number of deletes that have begun, whatever their outcome, and of those that are in progress.
    deletes: u64,
    deletes_open: u32,
    /// The newest committed version, for the next writer that inserts the id again.
    newest: u64,
    /// When the last acknowledged call began that voids every token: BF.CHANGED, a DEL, or an accepted BF.FILL.
    voided: u64,
}

/// What was known about a row before a reader asked.
#[derive(Clone, Copy)]
pub struct Before {
    announced: u64,
    present: bool,
    deletes: u64,
    deletes_open: u32,
}

/// A token that a reader received, and when.
pub struct Grant {
    pub token: String,
    received: u64,
}

/// All rows, the granted tokens, and the faults found.
pub struct Model {
    rows: u64,
    shards: Vec<Mutex<HashMap<u64, Row>>>,
    clock: AtomicU64,
    tokens: Mutex<HashSet<String>>,
    faults: Mutex<Vec<String>>,
    fault_count: AtomicU64,
}

impl Model {
    /// Creates the model of a table with the ids from 0 to `rows - 1`, each announced in version 1.
    pub fn new(rows: u64) -> Self {
        Self {
            rows,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            clock: AtomicU64::new(1),
            tokens: Mutex::default(),
            faults: Mutex::default(),
            fault_count: AtomicU64::new(0),
        }
    }

    fn with<T>(&self, id: u64, act: impl FnOnce(&mut Row) -> T) -> T {
        let mut shard = self.shards[id as usize % SHARDS].lock().unwrap();
        let version = u64::from(id < self.rows);
        act(shard.entry(id).or_insert(Row {
            announced: version,
            present: version == 1,
            deletes: 0,
            deletes_open: 0,
            newest: version,
            voided: 0,
        }))
    }

    /// Returns the current position in the order of events.
    pub fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn fault(&self, text: String) {
        self.fault_count.fetch_add(1, Ordering::Relaxed);
        let mut faults = self.faults.lock().unwrap();
        if faults.len() < FAULTS_KEPT {
            faults.push(text);
        }
    }

    /// Returns the number of broken promises, and the first of them.
    pub fn faults(&self) -> (u64, Vec<String>) {
        (self.fault_count.load(Ordering::Relaxed), self.faults.lock().unwrap().clone())
    }

    // Reports of writers.

    /// The second BF.CHANGED of a version was acknowledged; `present` is false for a delete.
    pub fn announced(&self, id: u64, version: u64, present: bool) {
        self.with(id, |row| {
            if version > row.announced {
                (row.announced, row.present) = (version, present);
            }
        });
    }

    /// A version was committed.
    pub fn committed(&self, id: u64, version: u64) {
        self.with(id, |row| row.newest = row.newest.max(version));
    }

    /// Returns the version for a row that is inserted, whose id may have been deleted before.
    pub fn next_version(&self, id: u64) -> u64 {
        self.with(id, |row| row.newest + 1)
    }

    /// A delete begins: from here on the row may be reported absent.
    pub fn delete_begins(&self, id: u64) {
        self.with(id, |row| {
            row.deletes += 1;
            row.deletes_open += 1;
        });
    }

    /// The delete was announced, or rolled back.
    pub fn delete_ended(&self, id: u64) {
        self.with(id, |row| row.deletes_open -= 1);
    }

    /// A call that voids every token of the key, and began at `begun`, was acknowledged.
    pub fn voided(&self, id: u64, begun: u64) {
        self.with(id, |row| row.voided = row.voided.max(begun));
    }

    // Replies to readers.

    /// Returns what is known about a row before a reader asks.
    pub fn before(&self, id: u64) -> Before {
        self.with(id, |row| Before {
            announced: row.announced,
            present: row.present,
            deletes: row.deletes,
            deletes_open: row.deletes_open,
        })
    }

    /// Checks an `absent`: an announced row is not reported absent, unless a delete was in progress.
    pub fn absent(&self, how: &str, id: u64, before: Before) {
        let deletes = self.with(id, |row| row.deletes);
        let fine = !before.present || before.deletes_open > 0 || deletes != before.deletes;
        if !fine {
            self.fault(format!("{how}: {id} is denied, whose version {} was announced", before.announced));
        }
    }

    /// Whether a value is at least as new as the last announcement before the request.
    pub fn is_current(&self, version: u64, before: Before) -> bool {
        version >= before.announced
    }

    /// Checks the version of a value.
    pub fn value(&self, how: &str, id: u64, version: u64, before: Before) -> bool {
        let fine = self.is_current(version, before);
        if !fine {
            self.fault(format!("{how}: {id} in version {version}, although {} was announced", before.announced));
        }
        fine
    }

    /// Checks another promise.
    pub fn expect(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.fault(what());
        }
    }

    /// A token was in a reply.
    pub fn granted(&self, id: u64, token: String) -> Grant {
        let form = token.len() == 32 && token.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.expect(form, || format!("{id}: {token:?} is not a token"));
        let new = self.tokens.lock().unwrap().insert(token.clone());
        self.expect(new, || format!("{id}: the token {token} was given twice"));
        Grant { token, received: self.now() }
    }

    /// Whether the token must be refused. Must be called before BF.FILL is sent.
    pub fn is_void(&self, id: u64, grant: &Grant) -> bool {
        self.with(id, |row| row.voided > grant.received)
    }
}
