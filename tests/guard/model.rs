//! What is known of each row, and what each reply therefore must not be. Writers tell it what they have announced, readers
//! what they were answered; a reply that breaks a promise of the guard is written down as a fault.
//!
//! Nothing here asks a clock of the wall: the order of things is that of the threads, so a machine that is busy makes a run
//! shorter and never makes it wrong. A promise is held against a reply only where the order is certain: what was answered
//! to a writer before a reader asked, what was granted after another grant had been answered.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SHARDS: usize = 64;
/// More of them say nothing more.
const FAULTS_KEPT: usize = 20;

/// A row of the table as the model knows it.
#[derive(Clone, Copy)]
struct Row {
    /// The newest version whose second BF.CHANGED was answered; a delete counts as one.
    announced: u64,
    /// Whether that version is a row, and not a delete.
    present: bool,
    /// Deletes that were begun, whatever came of them, and those of them under way.
    deletes: u64,
    deletes_open: u32,
    /// The newest version that was committed, for the next who inserts an id that returns.
    newest: u64,
    /// When the last call began that was answered and ends every lease: a grant of another one, BF.CHANGED, a DEL.
    ended_leases: u64,
}

/// What was known of a row before a reader asked.
#[derive(Clone, Copy)]
pub struct Before {
    announced: u64,
    present: bool,
    deletes: u64,
    deletes_open: u32,
}

/// A token that was given to a reader, and when its reply had come.
pub struct Grant {
    pub token: String,
    ended: u64,
}

/// All rows, what was granted, and the faults that were found.
pub struct Model {
    rows: u64,
    shards: Vec<Mutex<HashMap<u64, Row>>>,
    clock: AtomicU64,
    tokens: Mutex<HashSet<String>>,
    faults: Mutex<Vec<String>>,
    fault_count: AtomicU64,
}

impl Model {
    /// A table with the ids from 0 to `rows - 1`, each announced in version 1.
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
            ended_leases: 0,
        }))
    }

    /// The present moment in the order of things.
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

    /// How many promises were broken, and the first of them.
    pub fn faults(&self) -> (u64, Vec<String>) {
        (self.fault_count.load(Ordering::Relaxed), self.faults.lock().unwrap().clone())
    }

    // What writers tell.

    /// The second BF.CHANGED of a version was answered; `present` is false for a delete.
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

    /// The version for a row that is inserted, whose id may have been deleted before.
    pub fn next_version(&self, id: u64) -> u64 {
        self.with(id, |row| row.newest + 1)
    }

    /// A delete begins: from here on the row may be denied.
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

    /// A call that ends every lease of the key was answered; it began at `begun`.
    pub fn leases_ended(&self, id: u64, begun: u64) {
        self.with(id, |row| row.ended_leases = row.ended_leases.max(begun));
    }

    // What readers were answered.

    /// What is known before a reader asks.
    pub fn before(&self, id: u64) -> Before {
        self.with(id, |row| Before {
            announced: row.announced,
            present: row.present,
            deletes: row.deletes,
            deletes_open: row.deletes_open,
        })
    }

    /// Holds an `absent` against what was known: a row that is announced is not denied, unless it was being deleted.
    /// `false`: it was denied.
    pub fn absent(&self, how: &str, id: u64, before: Before) -> bool {
        let deletes = self.with(id, |row| row.deletes);
        let fine = !before.present || before.deletes_open > 0 || deletes != before.deletes;
        if !fine {
            self.fault(format!("{how}: {id} is denied, whose version {} was announced", before.announced));
        }
        fine
    }

    /// Whether a value is as new as what was announced before it was asked for.
    pub fn is_current(&self, version: u64, before: Before) -> bool {
        version >= before.announced
    }

    /// Holds the version of a value against what was known.
    pub fn value(&self, how: &str, id: u64, version: u64, before: Before) -> bool {
        let fine = self.is_current(version, before);
        if !fine {
            self.fault(format!("{how}: {id} in version {version}, although {} was announced", before.announced));
        }
        fine
    }

    /// Whatever else must not be.
    pub fn expect(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.fault(what());
        }
    }

    /// A token came with a reply to what began at `begun`.
    pub fn granted(&self, id: u64, token: String, begun: u64) -> Grant {
        let form = token.len() == 16 && token.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.expect(form, || format!("{id}: {token:?} is not a token"));
        let new = self.tokens.lock().unwrap().insert(token.clone());
        self.expect(new, || format!("{id}: the token {token} was given twice"));
        self.leases_ended(id, begun);
        Grant { token, ended: self.now() }
    }

    /// Whether the lease must have ended: to be asked before a BF.FILL is sent.
    pub fn must_have_ended(&self, id: u64, grant: &Grant) -> bool {
        self.with(id, |row| row.ended_leases > grant.ended)
    }
}
