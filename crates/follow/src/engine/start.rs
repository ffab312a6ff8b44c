//! The start of a follower: it acquires the stream, locates its positions in the log, and fills filters where necessary.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result};

use super::events::{Arrived, Sink};
use super::heartbeat::Heartbeat;
use super::journal::Journal;
use super::position::{Mark, Place, Position};
use super::source::Source;
use super::store::{IncompleteLog, Stopped, Store};
use super::{
    FilterState, Followed, Follower, LIVENESS_INTERVAL, Liveness, NO_FILTER, VISIBILITY_INTERVAL, WAIT, origin,
};
use crate::config::{self, Config, Keys, Mode};
use crate::metrics::{Metrics, State};
use crate::table::Table;

/// The interval at which a standby tries to acquire the stream.
const STANDBY_INTERVAL: Duration = Duration::from_millis(500);
/// A standby ends the other follower's session after it has shown no sign of life for this long.
const TAKEOVER: Duration = Duration::from_secs(10);

/// A failure while the follower was a standby. Its configuration is right, so it tries again.
#[derive(Debug)]
pub struct StoodBy;

impl std::fmt::Display for StoodBy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("while standing by")
    }
}

impl<S: Source> Follower<S> {
    /// Connects, acquires the stream, and fills filters where necessary. Waits while another follower holds the stream. `has_run`: whether
    /// the configuration has worked before.
    pub fn start(
        config: &Config,
        has_run: bool,
        memory: &mut S::Memory,
        stopping: &Arc<AtomicBool>,
        metrics: &Arc<Metrics>,
    ) -> Result<Self> {
        let mut source = S::connect(config, memory)?;
        let described = source.describe(&config.tables);
        let mut store = Store::connect(config)?;
        let (tables, absent) = match described {
            Ok(tables) => (tables, Vec::new()),
            Err(error) => describe_each(&mut source, &mut store, config, has_run).unwrap_or(Err(error))?,
        };
        let first = tables.first().context("a table")?.keys.clone();
        let forget = &mut || tables.iter().try_for_each(|table| store.forget_position(&table.keys));
        source.prepare(&tables, memory, forget, stopping)?;
        if !source.acquire_stream()? {
            metrics.enter(State::Standby);
            eprintln!("bloomgate: another follower has the slot {}: standing by", config.slot);
            stand_by(&mut source, &mut store, &first, stopping).context(StoodBy)?;
        }
        // Only now: until here, another follower may follow these tables.
        absent.iter().try_for_each(|table| store.invalidate_definition(&table.keys()))?;
        let follow = |table: Table| {
            let epoch = store.begin_epoch(&table.keys)?;
            let (position, mark, journal) = (Place(0), Mark::default(), Journal::default());
            let (filter, deletes) = (FilterState::Complete, false);
            Ok(Followed { table, epoch, position, mark, journal, filter, deletes, altered: None })
        };
        let tables = tables.into_iter().map(follow).collect::<Result<Vec<_>>>()?;
        let lag = tables.iter().map(|table| table.config.max_lag).min().unwrap_or(WAIT);
        let epoch = tables.first().context("a table")?.epoch;
        let liveness = Liveness { next: Instant::now(), keys: first, epoch, stopping: Arc::clone(stopping) };
        let mut follower = Self {
            mode: config.mode,
            source,
            store,
            tables,
            absent,
            arrived: Arrived::default(),
            announced: BTreeMap::new(),
            last_visibility_check: Instant::now(),
            refused: None,
            liveness,
            heartbeat: Heartbeat::new((lag / 4).min(LIVENESS_INTERVAL)),
            metrics: Arc::clone(metrics),
        };
        follower.resume()?;
        Ok(follower)
    }

    /// Continues where the last follower ended, and fills filters where necessary.
    fn resume(&mut self) -> Result<()> {
        self.show_liveness()?;
        let read = |table: &Followed| self.store.state(&table.keys);
        let (stored, exists): (Vec<_>, Vec<_>) =
            self.tables.iter().map(read).collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let Self { source, store, liveness, arrived, tables, .. } = self;
        let places = source.locate(&stored, &mut Sink { arrived, tables }, &mut || {
            liveness.ensure_running()?;
            liveness.show_to_followers(store)
        })?;
        let mut unfit = Vec::new();
        for (index, ((stored, exists), place)) in stored.into_iter().zip(exists).zip(places).enumerate() {
            if let Some(reason) = self.check_position(index, stored, exists, place)? {
                unfit.push((index, reason));
            }
        }
        if unfit.is_empty() {
            // COMMITs may wait for changes that the last follower has announced but not confirmed.
            self.continue_from_positions()?;
        }
        let end = self.settle(!unfit.is_empty())?;
        for (index, reason) in unfit {
            if !S::HAS_ROWS {
                let position = &self.table(index)?.keys.position;
                let remedy = if reason == NO_FILTER { String::new() } else { format!(": delete {position}") };
                self.exclude(index, &format!("{reason}{remedy}"))?;
                continue;
            }
            let confirmed = self.source.confirmed();
            let table = self.table(index)?;
            (table.position, table.mark) = (confirmed, Mark::nameless(end));
            eprintln!("bloomgate: filling {} from {}: {reason}", table.config.filter, table.config.name);
            self.fill_again(index, end)?;
            if self.mode == Mode::Synchronous {
                self.table(index)?.definition.clear();
            }
        }
        self.continue_from_positions()?;
        match self.mode {
            Mode::Eventual => self.release_up_to(Place(u64::MAX)),
            Mode::Synchronous => Ok(()),
        }
    }

    fn continue_from_positions(&mut self) -> Result<()> {
        let confirmed = self.source.confirmed();
        let followed = self.followed();
        let positions = followed.iter().filter_map(|index| self.tables.get(*index)).map(|table| table.position);
        self.confirm(positions.min().unwrap_or(confirmed))
    }

    /// Takes over the stored position of a table, and its journal. Returns why its filter must be filled, or `None`.
    fn check_position(
        &mut self,
        index: usize,
        stored: Option<Position>,
        exists: bool,
        place: Result<Place, &'static str>,
    ) -> Result<Option<&'static str>> {
        let Self { source, tables, mode, .. } = self;
        let table = tables.get_mut(index).context("a table")?;
        let origin = origin(source.system(), table);
        let is_of_table = |stored: &Position| {
            stored.origin.rsplit_once(' ').map(|(table, _)| table) == origin.rsplit_once(' ').map(|(table, _)| table)
        };
        let is_other = stored.as_ref().is_some_and(|stored| !is_of_table(stored));
        match place {
            Ok(_) if !is_other => self.adopt(index)?,
            _ if *mode == Mode::Synchronous => self.forget_values(index)?,
            _ => {}
        }
        let Self { source, store, tables, .. } = self;
        let table = tables.get_mut(index).context("a table")?;
        Ok(match (stored, place) {
            _ if !exists => Some(NO_FILTER),
            _ if is_other => Some("it belongs to another database, timeline or table"),
            (_, Err(reason)) => Some(reason),
            (Some(stored), _) if stored.origin != origin => Some("the table or its configuration was altered"),
            (stored, Ok(place)) => {
                report_inexact(table);
                table.deletes = table.has_unique_items && store.can_delete(&table.keys.filter)?;
                table.position = place;
                if let Some(stored) = stored {
                    eprintln!("bloomgate: {} continues at {}", table.config.name, stored.shown());
                    table.mark = stored.last;
                } else {
                    // Cached values may be older than the first change.
                    store.delete_values(table, |_| Ok(()))?;
                    store.transact(&table.keys, table.epoch, &[table.stored(source).store(&table.keys)])?;
                    eprintln!("bloomgate: {} begins with the next change", table.config.name);
                }
                if !S::HAS_ROWS {
                    report_deletes(table);
                }
                None
            }
        })
    }

    /// Returns the place at which the filters that are filled now begin. With `fills` in eventual mode, waits until every transaction up to
    /// it is visible. In synchronous mode a fill waits later, in the main loop, which reads the log: PostgreSQL makes COMMITs visible only
    /// once its standby has caught up with the log.
    fn settle(&mut self, fills: bool) -> Result<Place> {
        let confirmed = self.source.confirmed();
        if self.mode == Mode::Synchronous || !fills {
            return Ok(confirmed);
        }
        // A confirmed transaction that is not visible yet would be missing from a filter that is filled now.
        self.release_up_to(confirmed)?;
        // The rows may have been rewritten since the confirmed position. The changes in the log up to here are in the copied rows, and are
        // skipped.
        let place = self.source.snapshot()?;
        self.await_running(|_| Ok(()))?;
        Ok(place.map_or(confirmed, |place| place.max(confirmed)))
    }

    /// Waits until every currently running transaction is visible or rolled back. A transaction whose COMMIT waits for another standby
    /// may precede the slot's position.
    pub(super) fn await_running(&mut self, mut meanwhile: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        let (first, begin, mut is_told) = (self.source.unfinished()?, Instant::now(), false);
        while !self.source.unfinished()?.is_disjoint(&first) {
            if !is_told && begin.elapsed() >= Duration::from_secs(1) {
                eprintln!("bloomgate: waiting for running transactions");
                is_told = true;
            }
            self.liveness.ensure_running()?;
            self.show_liveness()?;
            meanwhile(self)?;
            thread::sleep(10 * VISIBILITY_INTERVAL);
        }
        Ok(())
    }
}

/// Waits until the other follower ends, or ends it once it shows no sign of life.
fn stand_by(source: &mut impl Source, store: &mut Store, first: &Keys, stopping: &AtomicBool) -> Result<()> {
    let mut last_sign = Instant::now();
    loop {
        thread::sleep(STANDBY_INTERVAL);
        if stopping.load(Relaxed) {
            return Err(Stopped.into());
        }
        if source.acquire_stream()? {
            return Ok(());
        }
        if store.is_alive(first)? {
            last_sign = Instant::now();
        }
        if last_sign.elapsed() >= TAKEOVER {
            eprintln!(
                "bloomgate: the other follower has shown no sign of life for {} s: taking over",
                TAKEOVER.as_secs()
            );
            source.end_other()?;
            last_sign = Instant::now();
        }
    }
}

/// Describes the tables one by one after one of them has failed. Returns the tables that can be followed, and the tables that were followed
/// before but cannot be now, for example because they were dropped. The filters of the latter are filled again when the tables reappear.
/// Returns `None` if the failure concerns all tables, or the configuration.
fn describe_each<S: Source>(
    source: &mut S,
    store: &mut Store,
    config: &Config,
    has_run: bool,
) -> Option<Result<(Vec<Table>, Vec<config::Table>)>> {
    let (mut tables, mut absent) = (Vec::new(), Vec::new());
    for table in &config.tables {
        match source.describe(std::slice::from_ref(table)) {
            Ok(described) => tables.extend(described),
            Err(error) if is_of_all::<S>(source, &error) => return Some(Err(error)),
            Err(error) => absent.push((table, error)),
        }
    }
    if tables.is_empty() {
        return None;
    }
    for (table, error) in &absent {
        match store.state(&table.keys()) {
            Ok((stored, _)) if stored.is_some() || has_run => {
                eprintln!("bloomgate: {} is not followed: {error:#}", table.name);
            }
            Ok(_) => return None,
            Err(error) => return Some(Err(error)),
        }
    }
    Some(Ok((tables, absent.into_iter().map(|(table, _)| table.clone()).collect())))
}

/// Whether an error does not concern one table alone.
pub(super) fn is_of_all<S: Source>(source: &S, error: &Error) -> bool {
    source.is_closed() || S::is_locked(error) || error.is::<IncompleteLog>()
}

/// Logs the columns of a table whose equal values may have different texts.
pub(super) fn report_inexact(table: &Table) {
    if !table.inexact.is_empty() {
        eprintln!(
            "bloomgate: equal values of {} can have different texts in {}: a reader that passes a text other than the row's gets \
             `absent`",
            table.config.name,
            table.inexact.join(", ")
        );
    }
}

/// Logs a message if the items of deleted rows stay in the filter.
pub(super) fn report_deletes(table: &Followed) {
    if !table.deletes {
        eprintln!(
            "bloomgate: items of deleted rows stay in {}: {}",
            table.config.filter,
            if table.has_unique_items { "only HASH siphash can delete" } else { "other rows might have the same item" }
        );
    }
}
