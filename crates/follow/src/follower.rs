//! The follower's loop: it receives transactions and hands them to its mode.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail, ensure};
use redis::Cmd;

use crate::config::{Config, Mode};
use crate::fill::{fill, is_locked};
use crate::journal::Journal;
use crate::metrics::{Metrics, State};
use crate::names::counted;
use crate::pgoutput::{self, Lsn, Mark};
use crate::server::Lost;
use crate::session::{self, Altered, Client, Publication, Snapshot, unfinished};
use crate::slot::{Known, ensure_slot, is_busy, mark_unreadable, take_slot};
use crate::store::{INTERVAL as PULSE, Position, Pulse, Replaced, Stopped, Store, has_filter};
use crate::table::{Arrived, Table, Transaction, check_publication};
use crate::wire::{Event, TEXT_SETTINGS, Wire, unanswered};

/// How often the list of running transactions is read while transactions wait.
pub const VISIBILITY_INTERVAL: Duration = Duration::from_millis(1);
/// The longest wait for the stream, so that a signal is noticed.
pub const WAIT: Duration = Duration::from_millis(100);
/// How long an answer may be on its way that PostgreSQL has sent.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// The most commands in one transaction of the server for a group with many rows.
const COMMANDS: usize = 10;
/// The most steps that wait in memory before the stream is read on.
const STEPS: usize = 50_000;
/// A follower that holds the slot.
pub struct Follower {
    pub(super) mode: Mode,
    pub(super) slot: String,
    pub(super) publication: Publication,
    pub(super) settings: tokio_postgres::Config,
    pub(super) database: Client,
    pub(super) wire: Wire,
    pub(super) store: Store,
    pub(super) tables: Vec<Followed>,
    /// PostgreSQL's system identifier and timeline.
    pub(super) system: String,
    pub(super) arrived: Arrived,
    /// What is confirmed to PostgreSQL.
    pub(super) confirmed: Lsn,
    /// What is stored as every table's position, or is below it. Synchronous mode announces up to there.
    pub(super) done: Lsn,
    /// Announced transactions that are not released: their ends and 64-bit ids.
    pub(super) announced: BTreeMap<Lsn, u64>,
    /// The last one, and when it was taken.
    pub(super) snapshot: Snapshot,
    pub(super) last_look: Instant,
    pub(super) pulse: Pulse,
    pub(super) beat: Beat,
    pub(super) metrics: Arc<Metrics>,
}

/// A table, and how far this follower has come with it.
pub struct Followed {
    pub(super) table: Table,
    pub(super) epoch: u64,
    pub(super) position: Lsn,
    pub(super) mark: Mark,
    pub(super) journal: Journal,
    pub(super) filter: FilterState,
    pub(super) altered: Option<Altered>,
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
    pub(super) fn stored(&self, system: &str) -> Position {
        Position { origin: origin(system, self), lsn: self.position, last: self.mark }
    }

    /// Executes commands that change the filter. Fails if it is missing, unless that is known.
    fn write(&self, store: &mut Store, commands: &[Cmd]) -> Result<()> {
        let replies = store.transact(&self.keys, self.epoch, commands)?;
        let is_missing = self.filter == FilterState::Missing;
        ensure!(is_missing || has_filter(&replies), "the filter {} is missing", self.keys.filter);
        Ok(())
    }
}

/// Whether a table has its filter. In eventual mode it has, because the stream is held during a fill.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum FilterState {
    Complete,
    /// It is complete, has no room for more deleted items, and will be replaced.
    Worn,
    /// As `Worn`, and the one that replaces it is being filled, under another key.
    Renewing,
    /// It is missing, and will be filled.
    Missing,
    /// It is missing, and is being filled, under another key.
    Filling,
}

impl FilterState {
    /// Whether readers have a filter with every row.
    pub const fn is_complete(self) -> bool {
        matches!(self, Self::Complete | Self::Worn | Self::Renewing)
    }
}

/// The heartbeat.
pub struct Beat {
    pub(super) interval: Duration,
    pub(super) next: Instant,
    /// A position in the log, and the servers' times (in milliseconds, for each table) before it was read.
    pub(super) pending: Option<(Lsn, Vec<u64>)>,
    /// The end of the log when it was last read.
    pub(super) log_end: Lsn,
    /// Why there is no heartbeat.
    pub(super) objection: Option<String>,
    /// Since when there has been no objection.
    pub(super) fine_since: Option<Instant>,
}

impl Beat {
    fn new(interval: Duration) -> Self {
        Self { interval, next: Instant::now(), pending: None, log_end: Lsn(0), objection: None, fine_since: None }
    }
}

impl Follower {
    /// Connects, takes the slot, and fills the filters that need it. Waits while another follower has the slot.
    pub fn start(
        config: &Config,
        known: &mut Known,
        stopping: &Arc<AtomicBool>,
        metrics: &Arc<Metrics>,
    ) -> Result<Self> {
        let settings = config.settings()?;
        let mut database = connect(&settings)?;
        check_settings(config, &mut database)?;
        let publication = Publication::named(&mut database, config.publication())?;
        let read = |table| Table::of_catalogue(&mut database, table, &publication);
        let tables = config.tables.iter().map(read).collect::<Result<Vec<_>>>()?;
        check_publication(&mut database, &publication, &tables)?;
        let mut store = Store::connect(config)?;
        let mut wire = Wire::connect(&settings)?;
        let system = wire.query("IDENTIFY_SYSTEM", unanswered)?;
        let (Some(system_id), Some(timeline)) = (system.first(), system.get(1)) else {
            bail!("IDENTIFY_SYSTEM has no reply")
        };
        let system = format!("{system_id} {timeline}");
        ensure_slot(&mut database, &mut wire, &mut store, &tables, &config.slot, known, stopping)?;
        if !take_slot(config, &mut database, &mut wire, &mut store, &tables, stopping, metrics)? {
            return Err(Stopped.into());
        }
        let arrived = Arrived::of_tables(&tables);
        let follow = |table: Table| {
            let epoch = store.begin_epoch(&table.keys)?;
            let (position, mark, journal) = (Lsn(0), Mark::default(), Journal::default());
            Ok(Followed { table, epoch, position, mark, journal, filter: FilterState::Complete, altered: None })
        };
        let tables = tables.into_iter().map(follow).collect::<Result<Vec<_>>>()?;
        let confirmed: String = database
            .query_one(
                "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1",
                &[&config.slot],
            )?
            .try_get(0)?;
        let confirmed = confirmed.parse()?;
        let lag = tables.iter().map(|table| table.config.max_lag).min().unwrap_or(WAIT);
        let interval = (lag / 4).min(PULSE);
        let first = tables.first().context("a table")?;
        let pulse = Pulse::new(first.keys.clone(), first.epoch, stopping);
        let mut follower = Self {
            mode: config.mode,
            slot: config.slot.clone(),
            publication,
            snapshot: Snapshot::take(&mut database)?,
            last_look: Instant::now(),
            arrived,
            beat: Beat::new(interval),
            announced: BTreeMap::new(),
            settings,
            done: confirmed,
            database,
            wire,
            store,
            tables,
            system,
            confirmed,
            pulse,
            metrics: Arc::clone(metrics),
        };
        follower.resume()?;
        Ok(follower)
    }

    pub(super) fn table(&mut self, index: usize) -> Result<&mut Followed> {
        self.tables.get_mut(index).context("a table")
    }

    /// Continues where the last follower ended: releases what it announced, and fills the filters that need it.
    fn resume(&mut self) -> Result<()> {
        self.pulse.beat(&mut self.store, &mut self.wire, self.confirmed)?;
        let mut unfit = Vec::new();
        let read = |table: &Followed| self.store.state(&table.keys);
        let (stored, exists): (Vec<_>, Vec<_>) =
            self.tables.iter().map(read).collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let is_in_log = self.find_in_log(&stored)?;
        for (index, ((stored, exists), is_in_log)) in stored.into_iter().zip(exists).zip(is_in_log).enumerate() {
            if let Some(reason) = self.check_position(index, stored, exists, is_in_log)? {
                unfit.push((index, reason));
            }
        }
        if unfit.is_empty() {
            // COMMITs may wait for what the last follower has announced and not confirmed.
            self.continue_from_positions()?;
        }
        // A transaction that is confirmed and not visible yet would be missing in a filter that is filled now.
        self.release_up_to(self.confirmed)?;
        let mut end = self.confirmed;
        if self.mode == Mode::Eventual && !unfit.is_empty() {
            // The rows may have been rewritten since the confirmed position. What the log has until here is in the rows that are copied, and
            // is skipped.
            let text = "SELECT pg_current_wal_insert_lsn()::text";
            end = end.max(self.database.query_one(text, &[])?.try_get::<_, &str>(0)?.parse()?);
            self.await_running(|_| Ok(()))?;
        }
        for (index, reason) in unfit {
            let table = self.tables.get_mut(index).context("a table")?;
            (table.position, table.mark) = (self.confirmed, Mark::nameless(end));
            eprintln!("bloomgate: filling {} from {}: {reason}", table.config.filter, table.config.name);
            match self.mode {
                Mode::Eventual => self.refill(index, end)?,
                Mode::Synchronous => {
                    self.lose_filter(index)?;
                    self.distrust(index)?;
                }
            }
        }
        self.continue_from_positions()?;
        if self.mode == Mode::Eventual { self.release_up_to(Lsn(u64::MAX)) } else { Ok(()) }
    }

    /// Waits until every transaction that is running now is visible or rolled back. One whose COMMIT waits for another standby may be
    /// before the slot's position.
    pub(super) fn await_running(&mut self, mut meanwhile: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        let (first, begin, mut is_told) = (unfinished(&mut self.database)?, Instant::now(), false);
        while !unfinished(&mut self.database)?.is_disjoint(&first) {
            if !is_told && begin.elapsed() >= Duration::from_secs(1) {
                eprintln!("bloomgate: waiting for running transactions");
                is_told = true;
            }
            self.pulse.ensure_running()?;
            self.pulse.beat(&mut self.store, &mut self.wire, self.confirmed)?;
            meanwhile(self)?;
            thread::sleep(10 * VISIBILITY_INTERVAL);
        }
        Ok(())
    }

    fn continue_from_positions(&mut self) -> Result<()> {
        self.done = self.tables.iter().map(|table| table.position).min().unwrap_or(self.confirmed);
        self.confirm(self.done)
    }

    /// Reads the position and the journal of a table. Returns why its filter must be filled, or `None`.
    fn check_position(
        &mut self,
        index: usize,
        stored: Option<Position>,
        exists: bool,
        is_in_log: bool,
    ) -> Result<Option<&'static str>> {
        let table = self.tables.get(index).context("a table")?;
        let origin = origin(&self.system, table);
        let lsn = stored.as_ref().map_or(Lsn(0), |stored| stored.lsn);
        let has_definition = stored.as_ref().is_some_and(|stored| stored.origin == origin);
        let has_origin = stored.as_ref().is_some_and(|stored| {
            let without_definition = |origin: &str| origin.rsplit_once(' ').map(|(table, _)| table.to_owned());
            without_definition(&stored.origin) == without_definition(&origin)
        });
        let is_lost = !has_origin || lsn < self.confirmed || !is_in_log;
        if is_lost {
            if self.mode == Mode::Synchronous {
                self.forget_values(index)?;
            }
        } else {
            let journal = self.store.journal(&table.keys)?;
            self.adopt(index, journal)?;
        }
        let table = self.tables.get_mut(index).context("a table")?;
        Ok(match &stored {
            _ if !exists => Some("there is no filter"),
            None => Some("it has no position"),
            Some(_) if !has_origin => Some("it belongs to another database, timeline or table"),
            Some(stored) if lsn >= self.confirmed && stored.last.xid == 0 && is_lost => {
                Some("PostgreSQL was restarted right after it was filled")
            }
            Some(_) if lsn >= self.confirmed && is_lost => {
                Some("PostgreSQL's log no longer has its last transaction: an older data directory was put back")
            }
            Some(_) if is_lost => Some("it is older than the slot: the server has lost data"),
            Some(_) if !has_definition => Some("the table or its configuration was altered"),
            Some(stored) => {
                eprintln!("bloomgate: {} continues at {lsn}", table.config.name);
                report_inexact(table);
                // Nothing is skipped after that transaction: a data directory that was put back may have others there.
                (table.position, table.mark) = (stored.last.end.max(self.confirmed), stored.last);
                None
            }
        })
    }

    /// Fills the filter of a table. Every transaction up to `lsn` must be visible; the stream's are skipped up to there.
    pub(super) fn refill(&mut self, index: usize, lsn: Lsn) -> Result<()> {
        let table = self.tables.get_mut(index).context("a table")?;
        let (position, confirmed) = (Position { lsn, ..table.stored(&self.system) }, self.confirmed);
        self.metrics.enter(State::Filling);
        let begin = Instant::now();
        let (pulse, wire) = (&mut self.pulse, &mut self.wire);
        let mut meanwhile = |store: &mut Store| {
            pulse.ensure_running()?;
            pulse.beat(store, wire, confirmed)
        };
        let rows = loop {
            match fill(&mut self.database, &mut self.store, table, table.epoch, &position, &mut meanwhile) {
                Err(error) if is_locked(&error) => meanwhile(&mut self.store)?,
                result => break result?,
            }
        };
        report_fill(table, rows, begin);
        self.metrics.count_fill();
        self.metrics.enter(State::Following);
        table.position = lsn;
        Ok(())
    }

    /// Follows the log until a signal.
    pub fn run(&mut self) -> Result<()> {
        self.metrics.enter(State::Following);
        loop {
            let is_stopping = self.pulse.ensure_running().is_err();
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
            self.beat()?;
            let open = self.tables.iter().map(|table| table.journal.len()).sum();
            self.metrics.progress(self.arrived.end(), self.confirmed, self.arrived.waiting.len(), open);
            if is_stopping && self.arrived.waiting.is_empty() {
                self.release_at_end()?;
                return self.wire.confirm(self.confirmed, false);
            }
        }
    }

    /// Reads what has arrived, or waits for it.
    fn receive(&mut self) -> Result<()> {
        let timeout = if !self.announced.is_empty() || !self.arrived.waiting.is_empty() {
            VISIBILITY_INTERVAL
        } else {
            self.beat.next.saturating_duration_since(Instant::now()).min(WAIT)
        };
        self.receive_within(timeout)
    }

    pub(super) fn receive_within(&mut self, mut timeout: Duration) -> Result<()> {
        while self.arrived.steps < STEPS && self.receive_event(timeout)? && self.wire.has_event() {
            timeout = Duration::ZERO;
        }
        Ok(())
    }

    /// Takes the next event of the stream. Returns false after the timeout.
    pub(super) fn receive_event(&mut self, timeout: Duration) -> Result<bool> {
        let mut next = self.wire.next(timeout).map_err(mark_unreadable)?;
        // A large transaction of other tables keeps PostgreSQL busy without a word.
        if next.is_none() && self.wire.was_silent() && !is_busy(&mut self.database, &self.slot)? {
            next = self.wire.next(LAST_WAIT).map_err(mark_unreadable)?;
            if next.is_none() {
                unanswered()?;
            }
        }
        let Some(event) = next else { return Ok(false) };
        match event {
            Event::Data(bytes) => self.arrived.take(pgoutput::parse(bytes)?, &mut self.tables)?,
            Event::Keepalive { end, must_reply } => {
                self.arrived.keepalive(end);
                if must_reply {
                    self.wire.confirm(self.confirmed, false)?;
                }
            }
        }
        Ok(true)
    }

    /// Confirms a position to PostgreSQL once the server keeps what was written up to there.
    pub(super) fn confirm(&mut self, position: Lsn) -> Result<()> {
        let begin = Instant::now();
        let mut is_told = false;
        for table in &self.tables {
            while !self.store.is_durable(&table.keys)? {
                if !is_told && begin.elapsed() >= Duration::from_secs(1) {
                    eprintln!("bloomgate: waiting for the server's replicas or its append-only file");
                    is_told = true;
                }
                self.pulse.ensure_running()?;
                self.pulse.beat(&mut self.store, &mut self.wire, self.confirmed)?;
            }
        }
        self.confirmed = self.confirmed.max(position);
        self.wire.confirm(self.confirmed, false)
    }

    /// Executes the commands of a large group a few at a time, because the server serves nobody else meanwhile. Returns the last ones, which
    /// the position follows.
    pub(super) fn transact_in_parts(&mut self, index: usize, mut commands: Vec<Cmd>) -> Result<Vec<Cmd>> {
        let table = self.tables.get(index).context("a table")?;
        while commands.len() > COMMANDS {
            let rest = commands.split_off(COMMANDS);
            table.write(&mut self.store, &commands)?;
            commands = rest;
        }
        Ok(commands)
    }

    /// Executes the commands of a group on one table, and then stores its position.
    pub(super) fn store_position(
        &mut self,
        index: usize,
        mut commands: Vec<Cmd>,
        lsn: Lsn,
        group: &[Transaction],
    ) -> Result<()> {
        let table = self.tables.get_mut(index).context("a table")?;
        let last = group.last().map_or(table.mark, |newest| table.mark.max(newest.mark()));
        let position = Position { lsn, last, ..table.stored(&self.system) };
        if table.config.is_fixed() {
            // A full filter refuses items while the other commands take effect.
            table.write(&mut self.store, &commands)?;
            commands.clear();
        }
        commands.push(position.store(&table.keys));
        table.write(&mut self.store, &commands)?;
        (table.position, table.mark) = (lsn, last);
        Ok(())
    }
}

/// Names the columns of a table whose equal values may have different texts.
fn report_inexact(table: &Table) {
    if !table.inexact.is_empty() {
        eprintln!(
            "bloomgate: equal values of {} can have different texts in {}: a reader that asks with another text than the row's is told \
             `absent`",
            table.config.name,
            table.inexact.join(", ")
        );
    }
}

pub fn report_fill(table: &Table, rows: u64, begin: Instant) {
    eprintln!(
        "bloomgate: {} has {} ({:.1} s)",
        table.config.filter,
        counted(rows, "row"),
        begin.elapsed().as_secs_f64()
    );
    if !table.deletes {
        eprintln!(
            "bloomgate: items of deleted rows stay in {}: {}",
            table.config.filter,
            if table.config.can_delete() {
                "other rows might have the same item"
            } else {
                "only HASH siphash can delete"
            }
        );
    }
    report_inexact(table);
}

/// Returns what a position belongs to: a system, a timeline, a table (one that was dropped and created again is another), and its definition.
pub fn origin(system: &str, table: &Table) -> String {
    format!("{system} {} {}", table.oid, table.definition)
}

/// Returns an error that a new filter does not solve. Otherwise the filter is missing or full.
pub fn refill_or_fail(error: Error) -> Result<()> {
    if error.is::<Lost>() || error.is::<Replaced>() || error.is::<Stopped>() {
        return Err(error);
    }
    eprintln!("bloomgate: {error:#}");
    Ok(())
}

/// Opens a session whose values have the same texts as those of the stream.
pub fn connect(settings: &tokio_postgres::Config) -> Result<Client> {
    let mut database = Client::connect(settings)?;
    let text: Vec<_> = TEXT_SETTINGS.iter().map(|(name, value)| format!("SET {name} = '{value}'")).collect();
    database.batch_execute(&text.join(";"))?;
    // Else this session would wait for itself where the follower is a synchronous standby.
    database.batch_execute("SET synchronous_commit = local")?;
    // These are for the sessions of applications. A COPY takes as long as it takes.
    database.batch_execute(
        "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN \
         ('statement_timeout', 'transaction_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout')",
    )?;
    // The follower must go on while a table is locked: the one that has locked it may wait for the follower.
    database.batch_execute("SET lock_timeout = '1s'")?;
    // COPY of a table fails where a policy would leave out rows, which would be reported absent.
    database.batch_execute("SET row_security = off")?;
    Ok(database)
}

fn check_settings(config: &Config, database: &mut Client) -> Result<()> {
    let row =
        database.query_one("SELECT current_setting('wal_level'), current_setting('synchronous_standby_names')", &[])?;
    let (level, names): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
    ensure!(level == "logical", "PostgreSQL's wal_level is {level}: set wal_level = logical and restart it");
    let is_listed = session::lists(names, &config.slot) || session::lists(names, "*");
    ensure!(
        config.mode == Mode::Synchronous || !is_listed,
        "synchronous_standby_names = '{names}' lets COMMIT wait for {}, which applies a transaction after its COMMIT: remove the name, or set \
         mode = \"synchronous\"",
        config.slot
    );
    Ok(())
}

// Whether PostgreSQL's log is still the one that a stored position belongs to. A data directory that was put back has the same system
// identifier and timeline, and other transactions at the same positions.

impl Follower {
    /// Returns for each table whether the log has the last transaction that its filter has. The stream is read up to there; what every
    /// table has is dropped. Nothing may be confirmed before: COMMITs of another log would return.
    pub(super) fn find_in_log(&mut self, stored: &[Option<Position>]) -> Result<Vec<bool>> {
        let flushed = "SELECT pg_current_wal_flush_lsn()::text";
        let flushed: Lsn = self.database.query_one(flushed, &[])?.try_get::<_, &str>(0)?.parse()?;
        // PostgreSQL confirms a position only after the follower has, so it has everything up to there.
        let confirmed = self.confirmed;
        let is_sent = |position: &Position| {
            position.lsn <= flushed
                && position.last.end > confirmed
                && position.last != Mark::nameless(position.last.end)
        };
        let sent = || stored.iter().flatten().filter(|position| is_sent(position));
        let mut found: Vec<_> = stored
            .iter()
            .map(|position| {
                position.as_ref().is_some_and(|stored| stored.lsn <= flushed && stored.last.end <= confirmed)
            })
            .collect();
        let end = sent().map(|position| position.last.end).max().unwrap_or_default();
        let everyone_has = stored
            .iter()
            .map(|position| position.as_ref().map_or(confirmed, |stored| stored.last.end))
            .min()
            .unwrap_or_default();
        let mut read = Lsn(0);
        while read < end {
            self.pulse.ensure_running()?;
            self.pulse.beat(&mut self.store, &mut self.wire, self.confirmed)?;
            if !self.receive_event(WAIT)? {
                // The reply tells how far the stream is.
                self.wire.confirm(self.confirmed, true)?;
            }
            read = self.arrived.end().max(read);
            while self.arrived.waiting.front().is_some_and(|first| first.end <= everyone_has) {
                let Some(first) = self.arrived.pop() else { break };
                note(&mut found, stored, first.mark());
            }
        }
        for transaction in &self.arrived.waiting {
            note(&mut found, stored, transaction.mark());
        }
        Ok(found)
    }
}

fn note(found: &mut [bool], stored: &[Option<Position>], mark: Mark) {
    for (found, position) in found.iter_mut().zip(stored) {
        *found |= position.as_ref().is_some_and(|stored| stored.last == mark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_keep_the_last_transaction() {
        let last = Mark { end: Lsn(1 << 40), xid: u32::MAX, time: u64::MAX };
        let position = Position { origin: "7 1 16384 md5".to_owned(), lsn: Lsn(2 << 40), last };
        assert_eq!(Position::parse(&position.to_string()), Some(position.clone()));
        // Version 0.2.0 stored none, and no definition for a table that was altered.
        for origin in ["7 1 16384 md5", "7 1 16384 "] {
            let parsed = Position::parse(&format!("{origin} 200/0")).unwrap();
            assert_eq!(
                parsed,
                Position { origin: origin.to_owned(), lsn: Lsn(2 << 40), last: Mark::nameless(Lsn(2 << 40)) }
            );
        }
    }
}
