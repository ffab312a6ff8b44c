//! The follower's loop: it receives transactions and hands them on, in eventual mode to the filter and the cache.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, ensure};
use redis::{Cmd, cmd};

use crate::config::{self, Config, Keys, Mode};
use crate::fill::{add, begin_fill, end_fill};
use crate::journal::{Journal, Work, chunked, steps};
use crate::log::{Lsn, Mark};
use crate::metrics::{Metrics, State};
use crate::names::counted;
use crate::store::{Position, Refused, Stopped, Store, has_filter};
use crate::table::{Arrived, Table, Transaction};

/// How often the list of running transactions is read while transactions wait.
pub const VISIBILITY_INTERVAL: Duration = Duration::from_millis(1);
/// The longest wait for the stream, so that a signal is noticed.
pub const WAIT: Duration = Duration::from_millis(100);
/// The most commands in one transaction of the server for a group with many rows.
const COMMANDS: usize = 10;
/// The most steps that wait in memory before the stream is read on.
const STEPS: usize = 50_000;
/// How often the follower gives a sign of life. It continues while there is no heartbeat: during a fill, for example.
pub const PULSE: Duration = Duration::from_secs(1);

/// A database whose log is followed, or a tool that reads the log.
pub trait Source: Sized {
    /// What a process keeps for its next attempt.
    type Memory: Default;

    /// Connects, and checks the settings of the database.
    /// An error of this and of the next two contains the statement that helps.
    fn connect(config: &Config) -> Result<Self>;

    /// Reads the definitions of tables, and checks that the log has their changes.
    fn describe(&mut self, tables: &[config::Table]) -> Result<Vec<Table>>;

    /// Takes the stream. While another follower has it, waits for that one to end or to fail. Returns false after a signal.
    fn take(
        &mut self,
        config: &Config,
        store: &mut Store,
        tables: &[Table],
        memory: &mut Self::Memory,
        stopping: &AtomicBool,
        metrics: &Metrics,
    ) -> Result<bool>;

    /// Whether a failure shows that the configuration was right: another attempt may succeed.
    fn may_recover(memory: &mut Self::Memory, error: &Error) -> bool;

    /// Removes what an attempt has left that failed before the first success.
    fn abandon(_: &Config, _: &Self::Memory) {}

    /// Prints how far the database has gone on without the follower. Returns whether a follower is connected.
    fn print_status(config: &Config) -> Result<bool>;

    /// Returns the identity of the database, the beginning of a stored position.
    fn system(&self) -> &str;

    /// Returns the text for a place in the log that a later connection understands, without spaces.
    fn text_of(&self, place: Lsn) -> String {
        place.to_string()
    }

    /// Returns what is confirmed.
    fn confirmed(&self) -> Lsn;

    /// Returns how much of the log is between two places, in bytes; 0 if `end` is not the later one.
    fn bytes_between(begin: Lsn, end: Lsn) -> u64 {
        end.0.saturating_sub(begin.0)
    }

    /// Confirms a place, if it is later than the last one: the database may forget what is before it.
    fn confirm(&mut self, place: Lsn) -> Result<()>;

    /// Gives a sign of life. A database ends the stream of a silent client.
    fn sign(&mut self) -> Result<()>;

    /// Takes the next event of the stream. Returns false after the timeout.
    fn receive(&mut self, arrived: &mut Arrived, tables: &mut [Followed], timeout: Duration) -> Result<bool>;

    /// Whether another event has already arrived.
    fn has_event(&self) -> bool;

    /// Counts the transactions that every new reader of the database sees, and all before them.
    fn count_visible(&mut self, waiting: &VecDeque<Transaction>) -> Result<usize>;

    /// Copies the items of all rows that are visible, and passes them on in batches, and none while the database is silent. Returns the
    /// number of rows once the database keeps them.
    fn copy(&mut self, table: &Table, pass: &mut dyn FnMut(&[Vec<u8>]) -> Result<()>) -> Result<u64>;

    /// Whether a table was locked for longer than the follower waits.
    fn is_locked(_: &Error) -> bool {
        false
    }

    /// Reads the definitions of the tables; `None` if there is no table of the name.
    fn definitions(&mut self, tables: &[Followed]) -> Result<Vec<Option<String>>>;

    /// Returns the end of the log, and why there may be no heartbeat. The stream then tells when it has come there.
    fn look(&mut self, mode: Mode) -> Result<(Lsn, Option<String>)>;

    /// Whether the session has ended.
    fn is_closed(&self) -> bool;

    /// Returns for whom COMMIT does not wait in synchronous mode.
    fn exceptions(&mut self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Returns for each table where the log goes on after its stored position, or why it does not.
    fn locate(follower: &mut Follower<Self>, stored: &[Option<Position>]) -> Result<Vec<Result<Lsn, &'static str>>>;

    /// Returns a place up to which every transaction is visible. `fills`: it is where filters begin that are filled now.
    fn settle(follower: &mut Follower<Self>, fills: bool) -> Result<Lsn>;

    /// Ends the start.
    fn resumed(_: &mut Follower<Self>) -> Result<()> {
        Ok(())
    }

    /// Handles what has arrived.
    fn advance(follower: &mut Follower<Self>, _is_stopping: bool) -> Result<()> {
        follower.apply_visible()
    }

    /// Returns the place up to which readers see every change.
    fn settled(follower: &Follower<Self>) -> Lsn {
        follower.arrived.idle_position(follower.source.confirmed())
    }

    /// Fills the filter of a table whose rows show everything up to a place.
    fn fill_again(follower: &mut Follower<Self>, index: usize, settled: Lsn) -> Result<()> {
        follower.refill(index, settled)
    }

    /// Ends the work after a signal.
    fn finish(_: &mut Follower<Self>) -> Result<()> {
        Ok(())
    }
}

/// A follower that holds the stream.
pub struct Follower<S> {
    pub(super) mode: Mode,
    pub(super) source: S,
    pub(super) store: Store,
    pub(super) tables: Vec<Followed>,
    pub(super) arrived: Arrived,
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
    /// Whether the items of deleted rows leave the filter.
    pub(super) deletes: bool,
    pub(super) altered: Option<Altered>,
}

/// A change of a table's definition.
pub struct Altered {
    /// The end of the log when the definition was read. The DDL is before it.
    pub end: Lsn,
    /// The new definition, or `None` if no table has the name.
    pub definition: Option<String>,
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
    pub(super) fn stored(&self, source: &impl Source) -> Position {
        self.stored_at(source, self.position, self.mark)
    }

    fn stored_at(&self, source: &impl Source, place: Lsn, last: Mark) -> Position {
        Position { origin: origin(source.system(), self), place: source.text_of(place), last }
    }

    /// Forgets the definition for which the filter was filled, and says that the table was altered, or may have been.
    pub(super) fn forget_definition(&mut self, verb: &str) {
        if !self.definition.is_empty() {
            eprintln!("bloomgate: {} {verb} altered: filling {} again", self.config.name, self.config.filter);
            self.definition.clear();
        }
    }

    /// Executes commands that change the filter. Fails if it is missing, unless that is known.
    pub(super) fn write(&self, store: &mut Store, commands: &[Cmd]) -> Result<()> {
        if commands.is_empty() {
            return Ok(());
        }
        let replies = store.transact(&self.keys, self.epoch, commands)?;
        let is_missing = self.filter == FilterState::Missing;
        ensure!(is_missing || has_filter(&replies), Refused(format!("the filter {} is missing", self.keys.filter)));
        Ok(())
    }

    /// Executes the commands of a large group a few at a time, because the server serves no other client meanwhile.
    pub(super) fn write_in_parts(&self, store: &mut Store, commands: &[Cmd]) -> Result<()> {
        commands.chunks(COMMANDS).try_for_each(|commands| self.write(store, commands))
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
    /// Why there is no heartbeat.
    pub(super) objection: Option<String>,
    /// Since when there has been no objection.
    pub(super) fine_since: Option<Instant>,
}

impl Beat {
    fn new(interval: Duration) -> Self {
        Self { interval, next: Instant::now(), pending: None, objection: None, fine_since: None }
    }
}

/// The sign of life, for the database and for other followers.
pub struct Pulse {
    next: Instant,
    keys: Keys,
    epoch: u64,
    stopping: Arc<AtomicBool>,
}

impl Pulse {
    /// Gives a sign of life if the last one is a second old.
    pub fn beat(&mut self, store: &mut Store, source: &mut impl Source) -> Result<()> {
        if Instant::now() < self.next {
            return Ok(());
        }
        source.sign()?;
        self.show_alive(store)
    }

    /// Does so for other followers alone, while the database is read.
    fn show_alive(&mut self, store: &mut Store) -> Result<()> {
        if Instant::now() < self.next {
            return Ok(());
        }
        self.next = Instant::now() + PULSE;
        store.show_alive(&self.keys, self.epoch)
    }

    /// Fails after a signal.
    pub fn ensure_running(&self) -> Result<()> {
        if self.stopping.load(Relaxed) { Err(Stopped.into()) } else { Ok(()) }
    }
}

impl<S: Source> Follower<S> {
    /// Connects, takes the stream, and fills the filters that need it. Waits while another follower has the stream.
    pub fn start(
        config: &Config,
        memory: &mut S::Memory,
        stopping: &Arc<AtomicBool>,
        metrics: &Arc<Metrics>,
    ) -> Result<Self> {
        let mut source = S::connect(config)?;
        let tables = source.describe(&config.tables)?;
        let mut store = Store::connect(config)?;
        if !source.take(config, &mut store, &tables, memory, stopping, metrics)? {
            return Err(Stopped.into());
        }
        let follow = |table: Table| {
            let epoch = store.begin_epoch(&table.keys)?;
            let (position, mark, journal) = (Lsn(0), Mark::default(), Journal::default());
            let (filter, deletes) = (FilterState::Complete, false);
            Ok(Followed { table, epoch, position, mark, journal, filter, deletes, altered: None })
        };
        let tables = tables.into_iter().map(follow).collect::<Result<Vec<_>>>()?;
        let lag = tables.iter().map(|table| table.config.max_lag).min().unwrap_or(WAIT);
        let interval = (lag / 4).min(PULSE);
        let Followed { table, epoch, .. } = tables.first().context("a table")?;
        // Those of the first table.
        let (keys, epoch) = (table.keys.clone(), *epoch);
        let pulse = Pulse { next: Instant::now(), keys, epoch, stopping: Arc::clone(stopping) };
        let (arrived, beat, metrics) = (Arrived::default(), Beat::new(interval), Arc::clone(metrics));
        let mut follower = Self { mode: config.mode, source, store, tables, arrived, pulse, beat, metrics };
        follower.resume()?;
        Ok(follower)
    }

    /// Gives a sign of life if the last one is a second old.
    pub(super) fn pulse(&mut self) -> Result<()> {
        self.pulse.beat(&mut self.store, &mut self.source)
    }

    pub(super) fn table(&mut self, index: usize) -> Result<&mut Followed> {
        self.tables.get_mut(index).context("a table")
    }

    /// Continues where the last follower ended, and fills the filters that need it.
    fn resume(&mut self) -> Result<()> {
        self.pulse()?;
        let mut unfit = Vec::new();
        let read = |table: &Followed| self.store.state(&table.keys);
        let (stored, exists): (Vec<_>, Vec<_>) =
            self.tables.iter().map(read).collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let places = S::locate(self, &stored)?;
        for (index, ((stored, exists), place)) in stored.into_iter().zip(exists).zip(places).enumerate() {
            if let Some(reason) = self.check_position(index, stored, exists, place)? {
                unfit.push((index, reason));
            }
        }
        if unfit.is_empty() {
            // COMMITs may wait for what the last follower has announced and not confirmed.
            self.continue_from_positions()?;
        }
        let end = S::settle(self, !unfit.is_empty())?;
        for (index, reason) in unfit {
            let table = self.tables.get_mut(index).context("a table")?;
            (table.position, table.mark) = (self.source.confirmed(), Mark::nameless(end));
            eprintln!("bloomgate: filling {} from {}: {reason}", table.config.filter, table.config.name);
            S::fill_again(self, index, end)?;
            if self.mode == Mode::Synchronous {
                self.table(index)?.definition.clear();
            }
        }
        self.continue_from_positions()?;
        S::resumed(self)
    }

    fn continue_from_positions(&mut self) -> Result<()> {
        let confirmed = self.source.confirmed();
        self.confirm(self.tables.iter().map(|table| table.position).min().unwrap_or(confirmed))
    }

    /// Whether a stored position belongs to this database and this table, whatever its definition was.
    pub(super) fn has_origin(&self, index: usize, stored: Option<&Position>) -> bool {
        let Some((table, stored)) = self.tables.get(index).zip(stored) else { return false };
        stored.origin.rsplit_once(' ').map(|(table, _)| table)
            == origin(self.source.system(), table).rsplit_once(' ').map(|(table, _)| table)
    }

    /// Takes over the stored position of a table. Returns why its filter must be filled, or `None`.
    fn check_position(
        &mut self,
        index: usize,
        stored: Option<Position>,
        exists: bool,
        place: Result<Lsn, &'static str>,
    ) -> Result<Option<&'static str>> {
        let has_origin = self.has_origin(index, stored.as_ref());
        let table = self.tables.get_mut(index).context("a table")?;
        let origin = origin(self.source.system(), table);
        Ok(match (&stored, place) {
            _ if !exists => Some("there is no filter"),
            (None, _) => Some("it has no position"),
            (Some(_), _) if !has_origin => Some("it belongs to another database, timeline or table"),
            (Some(_), Err(reason)) => Some(reason),
            (Some(stored), _) if stored.origin != origin => Some("the table or its configuration was altered"),
            (Some(stored), Ok(place)) => {
                eprintln!("bloomgate: {} continues at {}", table.config.name, stored.shown());
                report_inexact(table);
                table.deletes = table.has_unique_items && self.store.can_delete(&table.keys.filter)?;
                (table.position, table.mark) = (place, stored.last);
                None
            }
        })
    }

    /// Fills the filter of a table. Every transaction up to `lsn` must be visible; the stream's are skipped up to there.
    pub(super) fn refill(&mut self, index: usize, lsn: Lsn) -> Result<()> {
        self.metrics.enter(State::Filling);
        let begin = Instant::now();
        let rows = loop {
            match self.fill(index, lsn) {
                Err(error) if S::is_locked(&error) => {
                    self.pulse.ensure_running()?;
                    self.pulse()?;
                }
                result => break result?,
            }
        };
        let table = self.tables.get_mut(index).context("a table")?;
        report_fill(table, rows, begin);
        self.metrics.count_fill();
        self.metrics.enter(State::Following);
        table.position = lsn;
        Ok(())
    }

    /// Fills the filter of a table from what is visible now, and stores the position. Those transactions that this cannot see are still to
    /// come. The heartbeat and all cached values are deleted: the values may be older than what the stream still brings.
    /// Returns the number of rows.
    fn fill(&mut self, index: usize, lsn: Lsn) -> Result<u64> {
        let Self { source, store, pulse, tables, .. } = self;
        let followed = tables.get_mut(index).context("a table")?;
        let position = followed.stored_at(source, lsn, followed.mark);
        begin_fill(store, &followed.table, followed.epoch)?;
        followed.deletes = followed.has_unique_items && store.can_delete(&followed.keys.filling)?;
        let (table, epoch) = (&followed.table, followed.epoch);
        let rows = source.copy(table, &mut |items| {
            add(store, &table.keys.filling, items)?;
            pulse.ensure_running()?;
            pulse.show_alive(store)
        })?;
        end_fill(store, table, epoch, &position, |store| {
            pulse.ensure_running()?;
            pulse.beat(store, source)
        })?;
        Ok(rows)
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
            S::advance(self, is_stopping)?;
            self.beat()?;
            let open = self.tables.iter().map(|table| table.journal.len()).sum();
            let end = Some(self.arrived.end()).filter(|end| *end > Lsn(0));
            let lag_bytes = end.map(|end| S::bytes_between(self.source.confirmed(), end));
            self.metrics.progress(lag_bytes, self.arrived.waiting.len(), open);
            if is_stopping && self.arrived.waiting.is_empty() {
                S::finish(self)?;
                return self.source.sign();
            }
        }
    }

    /// Reads what has arrived, or waits for it.
    fn receive(&mut self) -> Result<()> {
        // What is announced is confirmed, and not settled before it is visible.
        let is_open = S::settled(self) < self.source.confirmed();
        let timeout = if is_open || !self.arrived.waiting.is_empty() {
            VISIBILITY_INTERVAL
        } else {
            self.beat.next.saturating_duration_since(Instant::now()).min(WAIT)
        };
        self.receive_within(timeout)
    }

    pub(super) fn receive_within(&mut self, mut timeout: Duration) -> Result<()> {
        while self.arrived.steps < STEPS && self.receive_event(timeout)? && self.source.has_event() {
            timeout = Duration::ZERO;
        }
        Ok(())
    }

    /// Takes the next event of the stream. Returns false after the timeout.
    pub(super) fn receive_event(&mut self, timeout: Duration) -> Result<bool> {
        self.source.receive(&mut self.arrived, &mut self.tables, timeout)
    }

    /// Confirms a position to the source once the server keeps what was written up to there.
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
                self.pulse.beat(&mut self.store, &mut self.source)?;
            }
        }
        self.source.confirm(position)
    }

    /// Stores the position of a table after a group. The commands of the group were executed before, in transactions of their own, and the
    /// server refused none of them.
    pub(super) fn store_position(&mut self, index: usize, lsn: Lsn, group: &[Transaction]) -> Result<()> {
        let table = self.tables.get_mut(index).context("a table")?;
        let last = group.last().map_or(table.mark, |newest| table.mark.max(newest.mark()));
        let position = table.stored_at(&self.source, lsn, last).store(&table.keys);
        self.store.transact(&table.keys, table.epoch, &[position])?;
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

pub fn report_fill(table: &Followed, rows: u64, begin: Instant) {
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
            if table.has_unique_items { "only HASH siphash can delete" } else { "other rows might have the same item" }
        );
    }
    report_inexact(table);
}

/// Returns what a position belongs to: a database, a table (one that was dropped and created again is another), and its definition.
pub fn origin(system: &str, table: &Table) -> String {
    format!("{system} {} {}", table.id, table.definition)
}

/// Reports that the filter is missing or has refused a change. Fails with any other error, which a new filter would not solve.
pub fn report_refusal(error: Error) -> Result<()> {
    eprintln!("bloomgate: {}", error.downcast::<Refused>()?);
    Ok(())
}

// Eventual mode: applies each transaction once other sessions can see it, and confirms it afterwards. No COMMIT waits.

impl<S: Source> Follower<S> {
    /// Applies the transactions that other sessions can see, in the order of the log.
    pub(super) fn apply_visible(&mut self) -> Result<()> {
        if self.arrived.waiting.is_empty() {
            return Ok(());
        }
        let visible = self.source.count_visible(&self.arrived.waiting)?;
        let group: Vec<_> = (0..visible).map_while(|_| self.arrived.pop()).collect();
        let Some(last) = group.last().map(Transaction::mark) else { return Ok(()) };
        let end = last.end;
        for index in 0..self.tables.len() {
            if let Err(error) = self.apply(index, &group, end) {
                report_refusal(error)?;
                // The rows show the whole group already. To apply it again would add its deleted items, too, for which a full filter may
                // have no room.
                self.table(index)?.mark = last;
                self.refill(index, end)?;
            }
        }
        self.metrics.count_transactions(group.len(), group.iter().map(|transaction| transaction.steps.len()).sum());
        self.confirm(end)
    }

    /// Applies a group to one table, and stores the position.
    fn apply(&mut self, index: usize, group: &[Transaction], end: Lsn) -> Result<()> {
        let table = self.tables.get(index).context("a table")?;
        let (position, epoch) = (table.position, table.epoch);
        let work = Work::of(steps(group, position, index), table.deletes);
        if work.is_altered {
            self.distrust(index)?;
        }
        let table = self.tables.get(index).context("a table")?;
        let mut commands = work.changes(&table.keys.filter);
        if work.truncated.is_some() {
            // BF.CLEAR ends the leases first, so that a reader that has loaded an old row cannot fill it in after the scan. Rows that
            // were inserted since are added in the same transaction, so that none of them is reported absent.
            let clear = cmd("BF.CLEAR").arg(&table.keys.filter).to_owned();
            let no_heartbeat = work.is_altered.then(|| cmd("DEL").arg(&table.keys.feed).to_owned());
            let commands: Vec<_> = no_heartbeat.into_iter().chain([clear]).chain(commands.iter().cloned()).collect();
            self.store.transact(&table.keys, epoch, &commands)?;
            self.store.delete_values(table, |_| Ok(()))?;
        }
        commands.extend(chunked("BF.MDEL", &table.keys.filter, work.gone()));
        // A follower that ends in between does it all again: items are added first and deleted last.
        table.write_in_parts(&mut self.store, &commands)?;
        self.store_position(index, end.max(position), group)
    }
}
