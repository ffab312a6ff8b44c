//! The heartbeat: a key that expires unless readers see every change that is older than `max-lag`. Readers pass it to WHILE.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use redis::{Value, cmd};

use super::position::Place;
use super::source::{LogEnd, Source, Time};
use super::start::is_of_all;
use super::{Altered, Follower, LIVENESS_INTERVAL};
use crate::config::Mode;

/// How long `synchronous_standby_names` must have been right before the heartbeat begins, because PostgreSQL's processes read the setting
/// one by one.
const SETTLED: Duration = Duration::from_secs(1);

/// The heartbeat.
pub struct Heartbeat {
    pub(super) interval: Duration,
    pub(super) next: Instant,
    /// The time at which the tables that cannot be followed are described again.
    next_description: Instant,
    /// A place in the log, and for each table a time (in milliseconds since 1970) at which the log ended there.
    pub(super) pending: Option<(Place, Vec<u64>)>,
    /// The reason to withhold the heartbeat.
    objection: Option<String>,
    /// The time since which there has been no objection.
    fine_since: Option<Instant>,
}

impl Heartbeat {
    pub fn new(interval: Duration) -> Self {
        let now = Instant::now();
        Self { interval, next: now, next_description: now, pending: None, objection: None, fine_since: None }
    }
}

impl<S: Source> Follower<S> {
    /// Extends the heartbeat once readers see every change up to a place that was read after the server's time. A deleted filter is
    /// filled again here, because there may be no further change of a row by which to notice the deletion.
    pub(super) fn extend_heartbeat(&mut self) -> Result<()> {
        let settled = self.settled();
        if let Some((_, times)) = self.heartbeat.pending.take_if(|(wanted, _)| *wanted <= settled) {
            self.metrics.applied(times.iter().min().copied().unwrap_or(0));
            let mut missing = Vec::new();
            for (index, time_ms) in self.followed().into_iter().zip(times) {
                let Self { source, store, tables, .. } = self;
                let Some(table) = tables.get_mut(index) else { continue };
                table.position = table.position.max(settled);
                let stored = table.stored(source).store(&table.keys);
                let expires_ms = time_ms + u64::try_from(table.config.max_lag.as_millis())?;
                let beat = cmd("SET")
                    .arg(&table.keys.feed)
                    .arg(table.heartbeat(time_ms))
                    .arg("PXAT")
                    .arg(expires_ms)
                    .to_owned();
                let exists = cmd("EXISTS").arg(&table.keys.filter).to_owned();
                let replies = store.transact(&table.keys, table.epoch, &[stored, beat, exists])?;
                if replies.last() == Some(&Value::Int(0)) {
                    missing.push(index);
                }
            }
            self.confirm(settled)?;
            for index in missing {
                eprintln!("bloomgate: the filter {} is missing", self.table(index)?.keys.filter);
                self.fill_again(index, settled)?;
            }
        }
        self.show_liveness()?;
        if Instant::now() >= self.heartbeat.next {
            self.heartbeat.next = Instant::now() + self.heartbeat.interval;
            self.begin_heartbeat()?;
            self.await_absent()?;
        }
        Ok(())
    }

    /// Reads the servers' times and then the end of the log, unless a heartbeat is pending or would be untrue.
    pub(super) fn begin_heartbeat(&mut self) -> Result<()> {
        let followed = self.followed();
        let Self { source, store, tables, .. } = self;
        let now = followed.iter().filter_map(|index| tables.get(*index)).map(|table| store.time_ms(&table.keys));
        let now = now.collect::<Result<Vec<_>>>()?;
        let definitions = source.definitions(&mut tables.iter().map(|table| &table.table))?;
        let LogEnd { end, time, objection } = source.read_log_end(self.mode)?;
        self.note_altered(definitions, end)?;
        let objection = self.refill_altered()?.or(objection);
        let is_complete = self.followed().iter().all(|index| {
            self.tables.get(*index).is_some_and(|table| table.filter.is_complete() && !table.definition.is_empty())
        });
        let times = match time {
            Time::Asked => Some(now),
            // The clock of the database may be ahead.
            Time::At(time_ms) => Some(now.iter().map(|now| time_ms.min(*now)).collect()),
            Time::Unknown => None,
        };
        if self.is_fine(objection)?
            && is_complete
            && let Some(times) = times
        {
            self.heartbeat.pending.get_or_insert((end, times));
        }
        Ok(())
    }

    /// Fails once a table can be followed again, so that the next start includes it.
    fn await_absent(&mut self) -> Result<()> {
        if Instant::now() < self.heartbeat.next_description {
            return Ok(());
        }
        self.heartbeat.next_description = Instant::now() + LIVENESS_INTERVAL;
        for table in &self.absent {
            match self.source.describe(std::slice::from_ref(table)) {
                Ok(_) => bail!("{} can be followed again", table.name),
                Err(error) if self.source.is_closed() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Whether a heartbeat is allowed: without an objection, and in synchronous mode only after some time without one. Otherwise deletes
    /// the heartbeats, and logs the reason once.
    pub(super) fn is_fine(&mut self, objection: Option<String>) -> Result<bool> {
        let is_synchronous = self.mode == Mode::Synchronous;
        if objection.is_none() {
            if is_synchronous
                && self.heartbeat.fine_since.is_none()
                && let Some(writers) = self.source.exceptions()?
            {
                eprintln!("bloomgate: COMMIT does not wait where synchronous_commit is off or local: {writers}");
            }
            if self.heartbeat.objection.take().is_some() {
                let change =
                    if is_synchronous { "every COMMIT waits for this follower" } else { "the heartbeat begins again" };
                eprintln!("bloomgate: {change}");
            }
            let fine_since = self.heartbeat.fine_since.get_or_insert_with(Instant::now);
            return Ok(!is_synchronous || fine_since.elapsed() >= SETTLED);
        }
        (self.heartbeat.fine_since, self.heartbeat.pending) = (None, None);
        if objection != self.heartbeat.objection {
            self.tables.iter().try_for_each(|table| table.delete_heartbeat(&mut self.store))?;
            eprintln!("bloomgate: no heartbeat: {}", objection.as_deref().unwrap_or_default());
            self.heartbeat.objection = objection;
        }
        Ok(false)
    }
}

// DDL, which is not in the log and can rewrite rows. A table whose definition has changed loses its heartbeat. Its filter is filled again
// once the log is applied up to that time: later deletions then concern the new rows, and not the rows before the DDL.

impl<S: Source> Follower<S> {
    /// Removes the definition for which the filter of a table was filled, so that it is filled again, even by a follower that starts with
    /// the position stored now.
    pub(super) fn invalidate_definition(&mut self, index: usize) -> Result<()> {
        self.heartbeat.pending = None;
        self.table(index)?.forget_definition("may have been");
        Ok(())
    }

    /// Deletes the heartbeats of tables whose definitions have changed. `end`: the end of the log after they were read.
    pub(super) fn note_altered(&mut self, definitions: Vec<Option<String>>, end: Place) -> Result<()> {
        for (table, definition) in self.tables.iter_mut().zip(definitions) {
            let is_known = match &table.altered {
                Some(altered) => altered.definition == definition,
                None => definition.as_ref() == Some(&table.definition),
            };
            if is_known {
                continue;
            }
            table.altered = Some(Altered { end, definition });
            table.delete_heartbeat(&mut self.store)?;
            table.forget_definition("was");
            self.heartbeat.pending = None;
        }
        Ok(())
    }

    /// Fills the filters of tables that were altered, once everything before the change is applied. Returns why the only table can no longer
    /// be followed, or `None`. Fails if one of several tables cannot be followed, so that the next start omits it.
    fn refill_altered(&mut self) -> Result<Option<String>> {
        let settled = self.settled();
        for index in 0..self.tables.len() {
            let has_others = self.tables.iter().any(|table| table.altered.is_none());
            let Self { source, tables, .. } = self;
            let Some(table) = tables.get_mut(index) else { continue };
            let Some(altered) = table.altered.as_ref().filter(|altered| altered.end <= settled) else { continue };
            let fresh = match source.describe(std::slice::from_ref(&table.config)) {
                Ok(fresh) => fresh.into_iter().next().context("a table")?,
                Err(error) if has_others || is_of_all(source, &error) => return Err(error),
                Err(error) => return Ok(Some(format!("{error:#}"))),
            };
            ensure!(fresh.id == table.id, "the table {} was dropped and created again", table.config.name);
            if altered.definition.as_ref() != Some(&fresh.definition) {
                // It has changed again, so more of the log must be applied first.
                continue;
            }
            (table.table, table.altered) = (fresh, None);
            self.fill_again(index, settled)?;
        }
        Ok(None)
    }
}
