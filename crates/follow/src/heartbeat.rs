//! The heartbeat: a key that expires unless readers see every change of the last `max-lag`. Readers give it to WHILE.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use redis::{Value, cmd};

use crate::config::Mode;
use crate::fill::is_locked;
use crate::follower::{Followed, Follower};
use crate::pgoutput::Lsn;
use crate::session::{self, Altered, Snapshot};
use crate::table::{Table, check_publication};

/// How long `synchronous_standby_names` must have been right before the heartbeat begins: PostgreSQL's processes read the setting one
/// after another.
const SETTLED: Duration = Duration::from_secs(1);

impl Follower {
    /// Returns the position up to which readers see every change.
    pub(super) fn settled(&self) -> Lsn {
        match self.mode {
            Mode::Eventual => self.arrived.idle_position(self.confirmed),
            Mode::Synchronous => {
                self.announced.first_key_value().map_or(self.done, |(first, _)| self.done.min(Lsn(first.0 - 1)))
            }
        }
    }

    /// Extends the heartbeat once readers see every change up to a position that was read after the server's time. A filter that someone has
    /// deleted is filled again: no change of a row may come to notice it.
    pub(super) fn beat(&mut self) -> Result<()> {
        let settled = self.settled();
        if let Some((wanted, times)) = self.beat.pending.take_if(|(wanted, _)| *wanted <= settled) {
            self.metrics.applied(times.iter().min().copied().unwrap_or(0));
            let mut missing = Vec::new();
            for (index, (table, time_ms)) in self.tables.iter_mut().zip(times).enumerate() {
                table.position = table.position.max(settled);
                let stored = table.stored(&self.system).store(&table.keys);
                let expires_ms = time_ms + u64::try_from(table.config.max_lag.as_millis())?;
                let beat =
                    cmd("SET").arg(&table.keys.feed).arg(wanted.to_string()).arg("PXAT").arg(expires_ms).to_owned();
                let exists = cmd("EXISTS").arg(&table.keys.filter).to_owned();
                let replies = self.store.transact(&table.keys, table.epoch, &[stored, beat, exists])?;
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
        self.pulse.beat(&mut self.store, &mut self.wire, self.confirmed)?;
        if Instant::now() >= self.beat.next {
            self.beat.next = Instant::now() + self.beat.interval;
            self.begin_beat()?;
        }
        Ok(())
    }

    /// Reads the servers' times and then the end of the log, unless a heartbeat is pending or would be untrue.
    fn begin_beat(&mut self) -> Result<()> {
        let times = self.tables.iter().map(|table| self.store.time_ms(&table.keys)).collect::<Result<_>>()?;
        let definitions = self.read_definitions()?;
        let row = self.database.query_one(
            "SELECT pg_current_wal_insert_lsn()::text, pg_current_snapshot()::text,
             current_setting('synchronous_standby_names'), current_setting('wal_sender_timeout'),
             pg_current_wal_flush_lsn()::text",
            &[],
        )?;
        let end: Lsn = row.try_get::<_, &str>(0)?.parse()?;
        let flushed: Lsn = row.try_get::<_, &str>(4)?.parse()?;
        if flushed < std::mem::replace(&mut self.beat.log_end, end) {
            // PostgreSQL sends only what is flushed, and flushes what an open transaction has written after up to 15 s, if nobody
            // commits. Without the permission for this the heartbeat waits for that.
            _ = self.database.batch_execute("SELECT pg_logical_emit_message(true, 'bloomgate', '')");
        }
        self.snapshot = Snapshot::parse(row.try_get(1)?)?;
        // The keepalive tells whether the stream has reached the end of the log.
        self.wire.confirm(self.confirmed, true)?;
        self.note_altered(definitions, end)?;
        let mut objection = self.refill_altered()?;
        if objection.is_none() && self.mode == Mode::Synchronous {
            objection = self.demand_objection(row.try_get(2)?, row.try_get(3)?)?;
        }
        let is_complete = self.tables.iter().all(|table| table.filter.is_complete() && !table.definition.is_empty());
        if self.is_fine(objection)? && is_complete {
            self.beat.pending.get_or_insert((end, times));
        }
        Ok(())
    }

    /// Returns why COMMIT may not wait for this follower, or `None`.
    fn demand_objection(&mut self, names: &str, timeout: &str) -> Result<Option<String>> {
        let mut objection = session::objection(names, &self.slot);
        if timeout == "0" {
            objection.get_or_insert("wal_sender_timeout = 0 lets COMMIT wait for a broken connection".to_owned());
        }
        if objection.is_some() { Ok(objection) } else { session::duplicate(&mut self.database, &self.slot) }
    }

    /// Whether there is no objection to a heartbeat and, in synchronous mode, has been none for some time. Otherwise deletes the
    /// heartbeats, and says why once.
    fn is_fine(&mut self, objection: Option<String>) -> Result<bool> {
        let is_synchronous = self.mode == Mode::Synchronous;
        if objection.is_none() {
            if is_synchronous
                && self.beat.fine_since.is_none()
                && let Some(writers) = session::unsynchronous(&mut self.database)?
            {
                eprintln!("bloomgate: COMMIT does not wait where synchronous_commit is off or local: {writers}");
            }
            if self.beat.objection.take().is_some() {
                let change =
                    if is_synchronous { "every COMMIT waits for this follower" } else { "the heartbeat begins again" };
                eprintln!("bloomgate: {change}");
            }
            let fine_since = self.beat.fine_since.get_or_insert_with(Instant::now);
            return Ok(!is_synchronous || fine_since.elapsed() >= SETTLED);
        }
        (self.beat.fine_since, self.beat.pending) = (None, None);
        if objection != self.beat.objection {
            for table in &self.tables {
                self.store.transact(&table.keys, table.epoch, &[cmd("DEL").arg(&table.keys.feed).to_owned()])?;
            }
            eprintln!("bloomgate: no heartbeat: {}", objection.as_deref().unwrap_or_default());
            self.beat.objection = objection;
        }
        Ok(false)
    }
}

// DDL. It is not in the log, and it can rewrite rows. A table whose definition has changed loses its heartbeat. Its filter is filled
// again once everything that the log had until then is applied: later deletions then concern the new rows, not those before the DDL.

/// VACUUM FULL of `pg_class` waits in its COMMIT for the follower, which the locked catalogue keeps from reading the log.
const CATALOGUE_LOCKED: &str = "PostgreSQL's catalogue is locked, by VACUUM FULL for instance. If that waits for this follower in COMMIT \
    (SyncRep), nobody can connect: end its wait with kill -INT and its process id";

impl Follower {
    /// Forgets the definition for which the filter of a table was filled, so that it is filled again, also by a follower that starts
    /// with the position stored now.
    pub(super) fn distrust(&mut self, index: usize) -> Result<()> {
        self.beat.pending = None;
        self.table(index)?.definition.clear();
        Ok(())
    }

    /// Reads the definitions of the tables.
    pub(super) fn read_definitions(&mut self) -> Result<Vec<Option<String>>> {
        let (publication, database) = (&self.publication, &mut self.database);
        let read = |table: &Followed| publication.definition(database, &table.config);
        self.tables
            .iter()
            .map(read)
            .collect::<Result<_>>()
            .map_err(|error| if is_locked(&error) { error.context(CATALOGUE_LOCKED) } else { error })
    }

    /// Deletes the heartbeats of tables whose definitions have changed. `end`: the end of the log after they were read.
    pub(super) fn note_altered(&mut self, definitions: Vec<Option<String>>, end: Lsn) -> Result<()> {
        for (table, definition) in self.tables.iter_mut().zip(definitions) {
            let is_known = match &table.altered {
                Some(altered) => altered.definition == definition,
                None => definition.as_ref() == Some(&table.definition),
            };
            if is_known {
                continue;
            }
            if table.altered.is_none() && !table.definition.is_empty() {
                eprintln!("bloomgate: {} was altered: filling {} again", table.config.name, table.config.filter);
            }
            table.altered = Some(Altered { end, definition });
            self.store.transact(&table.keys, table.epoch, &[cmd("DEL").arg(&table.keys.feed).to_owned()])?;
            table.definition.clear();
            self.beat.pending = None;
        }
        Ok(())
    }

    /// Fills the filters of tables that were altered, once everything before the change is applied. Returns why one of them can no longer be
    /// followed, or `None`.
    pub(super) fn refill_altered(&mut self) -> Result<Option<String>> {
        let settled = self.settled();
        for index in 0..self.tables.len() {
            let table = self.tables.get_mut(index).context("a table")?;
            let Some(altered) = table.altered.as_ref().filter(|altered| altered.end <= settled) else { continue };
            let read = Table::of_catalogue(&mut self.database, &table.config, &self.publication).and_then(|table| {
                check_publication(&mut self.database, &self.publication, std::slice::from_ref(&table))?;
                Ok(table)
            });
            let fresh = match read {
                Ok(fresh) => fresh,
                Err(error) if self.database.is_closed() => return Err(error),
                Err(error) => return Ok(Some(format!("{error:#}"))),
            };
            ensure!(fresh.oid == table.oid, "the table {} was dropped and created again", table.config.name);
            if altered.definition.as_ref() != Some(&fresh.definition) {
                // It has changed again, and more of the log has to be applied first.
                continue;
            }
            (table.table, table.altered) = (fresh, None);
            self.fill_again(index, settled)?;
        }
        Ok(None)
    }

    /// Fills the filter of a table whose rows show everything up to a position. In synchronous mode, COMMITs go on, and it is filled later.
    pub(super) fn fill_again(&mut self, index: usize, settled: Lsn) -> Result<()> {
        match self.mode {
            Mode::Eventual => self.refill(index, settled),
            Mode::Synchronous => self.lose_filter(index),
        }
    }
}
