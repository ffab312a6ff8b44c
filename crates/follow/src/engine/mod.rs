//! The engine of `bloomgate follow`: it receives the events of a source and applies them to filters and cached values on the server.
//!
//! `events` contains the received changes, `position` the stored position, `store` the writes. `eventual` and `synchronous` are the two
//! modes, `heartbeat` determines when readers may trust the filter, `fill` builds a filter.

pub mod events;
mod eventual;
mod fill;
mod heartbeat;
mod journal;
pub mod position;
mod source;
mod start;
pub mod store;
mod synchronous;

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use redis::{Cmd, cmd};

use self::events::{Arrived, Sink, Transaction};
pub use self::fill::BATCH;
use self::heartbeat::Heartbeat;
use self::journal::Journal;
use self::position::{Mark, Place, Position};
pub use self::source::{Copier, LogEnd, NoRows, Source, Time};
pub use self::start::StoodBy;
use self::store::{Refused, Stopped, Store, has_filter};
use crate::config::{self, Keys, Mode};
use crate::metrics::{Metrics, State};
use crate::table::Table;

/// The interval at which the list of running transactions is read while transactions wait.
const VISIBILITY_INTERVAL: Duration = Duration::from_millis(1);
/// The longest wait for the stream, so that a signal is noticed.
pub const WAIT: Duration = Duration::from_millis(100);
/// The maximum number of commands in one transaction of the server for a group with many rows.
const COMMANDS: usize = 10;
/// The maximum number of steps that wait in memory; above it, the follower stops reading the stream.
const STEPS: usize = 50_000;
/// The interval at which the follower reports to the database and to other followers that it is alive, even without a heartbeat, for
/// example during a fill.
const LIVENESS_INTERVAL: Duration = Duration::from_secs(1);

const NO_FILTER: &str = "there is no filter";

/// A follower that holds the stream.
pub struct Follower<S> {
    mode: Mode,
    source: S,
    store: Store,
    tables: Vec<Followed>,
    /// Tables that were followed before and cannot be followed now.
    absent: Vec<config::Table>,
    arrived: Arrived,
    /// The ends and ids of transactions that are announced but not released.
    announced: BTreeMap<Place, u64>,
    /// The time at which the source was last asked which of them are visible.
    last_visibility_check: Instant,
    /// The time at which the server last refused the memory to replace a filter whose delete table is full.
    refused: Option<Instant>,
    liveness: Liveness,
    heartbeat: Heartbeat,
    metrics: Arc<Metrics>,
}

/// A table, and this follower's progress in applying its changes.
pub struct Followed {
    table: Table,
    epoch: u64,
    position: Place,
    mark: Mark,
    journal: Journal,
    filter: FilterState,
    /// Whether the items of deleted rows are removed from the filter.
    deletes: bool,
    altered: Option<Altered>,
}

/// A change of a table's definition.
struct Altered {
    /// The end of the log after the definition was read. The DDL is before it.
    end: Place,
    /// The new definition, or `None` if no table has this name.
    definition: Option<String>,
}

impl Deref for Followed {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.table
    }
}

impl DerefMut for Followed {
    fn deref_mut(&mut self) -> &mut Table {
        &mut self.table
    }
}

impl Followed {
    /// Returns the position that is stored on the server.
    fn stored(&self, source: &impl Source) -> Position {
        self.stored_at(source, self.position, self.mark)
    }

    fn stored_at(&self, source: &impl Source, place: Place, last: Mark) -> Position {
        Position { origin: origin(source.system(), self), place: source.text_of(place), last }
    }

    /// Removes the definition for which the filter was filled, and logs that the table was altered or may have been.
    fn forget_definition(&mut self, verb: &str) {
        if !self.definition.is_empty() {
            eprintln!("bloomgate: {} {verb} altered: filling {} again", self.config.name, self.config.filter);
            self.definition.clear();
        }
    }

    /// Executes commands that change the filter. Fails if it is missing, unless it is known to be missing.
    fn write(&self, store: &mut Store, commands: &[Cmd]) -> Result<()> {
        if commands.is_empty() {
            return Ok(());
        }
        let replies = store.transact(&self.keys, self.epoch, commands)?;
        let is_missing = self.filter == FilterState::Missing;
        ensure!(is_missing || has_filter(&replies), Refused(format!("the filter {} is missing", self.keys.filter)));
        Ok(())
    }

    /// Executes the commands of a large group a few at a time, because a transaction blocks the server's other clients.
    fn write_in_parts(&self, store: &mut Store, commands: &[Cmd]) -> Result<()> {
        commands.chunks(COMMANDS).try_for_each(|commands| self.write(store, commands))
    }

    /// Returns the value of the heartbeat: the time up to which readers see every change, and which cache keys the follower deletes. The
    /// module grants no lease for other cache keys.
    fn heartbeat(&self, time_ms: u64) -> String {
        format!("{time_ms}{}", self.rules())
    }

    /// Deletes the heartbeat.
    fn delete_heartbeat(&self, store: &mut Store) -> Result<()> {
        store.transact(&self.keys, self.epoch, &[cmd("DEL").arg(&self.keys.feed).to_owned()]).map(drop)
    }
}

/// The state of a table's filter. In eventual mode it is always complete, because the stream stops during a fill.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FilterState {
    Complete,
    /// It is complete, but its table of deleted items is full, so it will be replaced.
    DeleteTableFull,
    /// Like `DeleteTableFull`, while its replacement is being filled under another key.
    Renewing,
    /// It is missing, and will be filled.
    Missing,
    /// It is missing, and is being filled under another key.
    Filling,
    /// It is missing, and only `bloomgate load` can fill it: the table is not followed.
    AwaitingLoad,
}

impl FilterState {
    /// Whether readers have a filter with every row.
    const fn is_complete(self) -> bool {
        matches!(self, Self::Complete | Self::DeleteTableFull | Self::Renewing)
    }
}

/// Reports to the database and to other followers that this follower is alive.
struct Liveness {
    next: Instant,
    keys: Keys,
    epoch: u64,
    stopping: Arc<AtomicBool>,
}

impl Liveness {
    /// Reports to both if the last report is at least a second old.
    fn show(&mut self, store: &mut Store, source: &mut impl Source) -> Result<()> {
        if self.show_to_followers(store)? { source.keep_alive() } else { Ok(()) }
    }

    /// Reports only to other followers. Returns whether a report was due.
    fn show_to_followers(&mut self, store: &mut Store) -> Result<bool> {
        if Instant::now() < self.next {
            return Ok(false);
        }
        self.next = Instant::now() + LIVENESS_INTERVAL;
        store.show_liveness(&self.keys, self.epoch)?;
        Ok(true)
    }

    /// Fails after a signal.
    fn ensure_running(&self) -> Result<()> {
        if self.stopping.load(Relaxed) { Err(Stopped.into()) } else { Ok(()) }
    }
}

impl<S: Source> Follower<S> {
    /// Reports that this follower is alive if the last report is at least a second old.
    fn show_liveness(&mut self) -> Result<()> {
        self.liveness.show(&mut self.store, &mut self.source)
    }

    fn table(&mut self, index: usize) -> Result<&mut Followed> {
        self.tables.get_mut(index).context("a table")
    }

    /// Returns the indexes of the tables that are followed.
    fn followed(&self) -> Vec<usize> {
        let is_followed =
            |index: &usize| self.tables.get(*index).is_some_and(|table| table.filter != FilterState::AwaitingLoad);
        (0..self.tables.len()).filter(is_followed).collect()
    }

    /// Follows the log until a signal, or until the source has ended.
    pub fn run(&mut self) -> Result<()> {
        self.metrics.enter(State::Following);
        loop {
            let is_stopping = self.liveness.ensure_running().is_err();
            if is_stopping {
                thread::sleep(VISIBILITY_INTERVAL);
            } else {
                self.receive()?;
            }
            match self.mode {
                Mode::Eventual => self.apply_visible()?,
                Mode::Synchronous => {
                    self.announce()?;
                    self.release()?;
                    if !is_stopping {
                        self.fill_due()?;
                    }
                }
            }
            self.extend_heartbeat()?;
            let open = self.tables.iter().map(|table| table.journal.len()).sum();
            let end = Some(self.arrived.end()).filter(|end| *end > Place(0));
            let lag_bytes = end.map(|end| S::bytes_between(self.source.confirmed(), end));
            self.metrics.progress(lag_bytes, self.arrived.waiting.len(), open);
            let has_ended = self.source.has_ended();
            if (is_stopping || has_ended) && self.arrived.waiting.is_empty() {
                if has_ended {
                    self.begin_heartbeat()?;
                    self.extend_heartbeat()?;
                    eprintln!("bloomgate: the input has ended");
                }
                if self.mode == Mode::Synchronous {
                    self.release_at_end()?;
                }
                return self.source.keep_alive();
            }
        }
    }

    /// Reads the events that have arrived, or waits for them.
    fn receive(&mut self) -> Result<()> {
        // Announced changes are confirmed at once, and settled when they are visible.
        let is_open = self.settled() < self.source.confirmed();
        let timeout = if is_open || !self.arrived.waiting.is_empty() {
            VISIBILITY_INTERVAL
        } else {
            self.heartbeat.next.saturating_duration_since(Instant::now()).min(WAIT)
        };
        self.receive_within(timeout)
    }

    fn receive_within(&mut self, mut timeout: Duration) -> Result<()> {
        let Self { source, arrived, tables, .. } = self;
        let mut sink = Sink { arrived, tables };
        while sink.arrived.steps < STEPS && source.next(&mut sink, timeout)? && source.has_event() {
            timeout = Duration::ZERO;
        }
        Ok(())
    }

    /// Returns the place up to which readers see every change.
    fn settled(&self) -> Place {
        let confirmed = self.source.confirmed();
        match (self.mode, self.announced.first_key_value()) {
            (Mode::Eventual, _) => self.arrived.idle_position(confirmed),
            (Mode::Synchronous, Some((first, _))) => confirmed.min(Place(first.0 - 1)),
            (Mode::Synchronous, None) => confirmed,
        }
    }

    /// Confirms a place to the source once the server has stored the writes up to it.
    fn confirm(&mut self, place: Place) -> Result<()> {
        let begin = Instant::now();
        let mut is_told = false;
        for table in &self.tables {
            while !self.store.is_durable(&table.keys)? {
                if !is_told && begin.elapsed() >= Duration::from_secs(1) {
                    eprintln!("bloomgate: waiting for the server's replicas or its append-only file");
                    is_told = true;
                }
                self.liveness.ensure_running()?;
                self.liveness.show(&mut self.store, &mut self.source)?;
            }
        }
        self.source.confirm(place)
    }

    /// Stores the position of a table after a group. The commands of the group must have been executed before in separate transactions,
    /// without a refusal by the server.
    fn store_position(&mut self, index: usize, place: Place, group: &[Transaction]) -> Result<()> {
        let table = self.tables.get_mut(index).context("a table")?;
        let last = group.last().map_or(table.mark, |newest| table.mark.max(newest.mark()));
        let position = table.stored_at(&self.source, place, last).store(&table.keys);
        self.store.transact(&table.keys, table.epoch, &[position])?;
        (table.position, table.mark) = (place, last);
        Ok(())
    }

    /// Fills the filter of a table whose rows include all changes up to a place, now or later. If the source has no rows, the table is no
    /// longer followed.
    fn fill_again(&mut self, index: usize, settled: Place) -> Result<()> {
        match self.mode {
            _ if !S::HAS_ROWS => self.exclude(index, NO_FILTER),
            Mode::Eventual => self.refill(index, settled),
            // COMMITs continue, and the filter is filled later.
            Mode::Synchronous => self.lose_filter(index),
        }
    }

    /// Deletes the heartbeat and the filter of a table.
    fn lose_filter(&mut self, index: usize) -> Result<()> {
        let Self { store, tables, heartbeat, .. } = self;
        let table = tables.get_mut(index).context("a table")?;
        let keys = &table.keys;
        let delete = cmd("DEL").arg(&keys.feed).arg(&keys.filter).arg(&keys.filling).to_owned();
        store.transact(keys, table.epoch, &[delete])?;
        table.filter = FilterState::Missing;
        heartbeat.pending = None;
        Ok(())
    }

    /// Stops following a table whose filter only `bloomgate load` can fill. Fails if no other table is followed.
    fn exclude(&mut self, index: usize, reason: &str) -> Result<()> {
        let Self { store, tables, heartbeat, .. } = self;
        let table = tables.get_mut(index).context("a table")?;
        table.delete_heartbeat(store)?;
        table.filter = FilterState::AwaitingLoad;
        // The pending heartbeat includes a time for this table.
        heartbeat.pending = None;
        let (name, filter) = (&table.config.name, &table.keys.filter);
        let what = format!("{name}: {reason}: fill {filter} with `bloomgate load`, then start the follower");
        ensure!(!self.followed().is_empty(), what);
        eprintln!("bloomgate: {what}");
        Ok(())
    }
}

/// Returns the owner of a position: a database, a table (a recreated table is another one), and its definition.
fn origin(system: &str, table: &Table) -> String {
    let id = if table.id.is_empty() { String::new() } else { format!("{} ", table.id) };
    format!("{system} {id}{}", table.definition)
}
