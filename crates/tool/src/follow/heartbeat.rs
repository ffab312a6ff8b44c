//! The heartbeat: a key that expires unless readers see every change of the last `max-lag`. Readers give it to WHILE.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use redis::cmd;

use super::config::Mode;
use super::follower::{FilterState, Follower, origin};
use super::lsn::Lsn;
use super::standbys;
use super::store::Position;
use super::visibility::Snapshot;

/// How long `synchronous_standby_names` must have been right before the heartbeat begins: PostgreSQL's processes read the setting one
/// after another.
const SETTLED: Duration = Duration::from_secs(1);

impl Follower {
    /// Returns the position up to which readers see every change.
    fn settled(&self) -> Lsn {
        match self.mode {
            Mode::Eventual => self.arrived.idle_position(self.confirmed),
            Mode::Synchronous => {
                self.announced.first_key_value().map_or(self.done, |(first, _)| self.done.min(Lsn(first.0 - 1)))
            }
        }
    }

    /// Extends the heartbeat once readers see every change up to a position that was read after the server's time.
    pub(super) fn beat(&mut self) -> Result<()> {
        let settled = self.settled();
        if let Some((wanted, times)) = self.beat.pending.take_if(|(wanted, _)| *wanted <= settled) {
            self.metrics.applied(times.iter().min().copied().unwrap_or(0));
            for (index, time_ms) in times.into_iter().enumerate() {
                let table = self.tables.get(index).context("a table")?;
                let (epoch, position) = self.epochs.get(index).zip(self.positions.get_mut(index)).context("a table")?;
                *position = (*position).max(settled);
                let stored = Position { origin: origin(&self.system, table), lsn: *position };
                let expires_ms = time_ms + u64::try_from(table.config.max_lag.as_millis())?;
                let beat =
                    cmd("SET").arg(&table.keys.feed).arg(wanted.to_string()).arg("PXAT").arg(expires_ms).to_owned();
                self.store.transact(&table.keys, *epoch, &[stored.store(&table.keys), beat])?;
            }
            self.confirm(settled)?;
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
        let row = self.database.query_one(
            "SELECT pg_current_wal_insert_lsn()::text, pg_current_snapshot()::text,
             current_setting('synchronous_standby_names'), current_setting('wal_sender_timeout')",
            &[],
        )?;
        self.snapshot = Snapshot::parse(row.try_get(1)?)?;
        if self.mode == Mode::Synchronous && !self.is_demanded(row.try_get(2)?, row.try_get(3)?)? {
            return Ok(());
        }
        if self.beat.pending.is_none() && self.filters.iter().all(|filter| *filter == FilterState::Complete) {
            self.beat.pending = Some((row.try_get::<_, &str>(0)?.parse()?, times));
            self.wire.confirm(self.confirmed, true)?;
        }
        Ok(())
    }

    /// Whether every COMMIT has waited for this follower for some time. Otherwise deletes the heartbeat, and says why once.
    fn is_demanded(&mut self, names: &str, timeout: &str) -> Result<bool> {
        let mut objection = standbys::objection(names, &self.slot);
        if timeout == "0" {
            objection.get_or_insert("wal_sender_timeout = 0 lets COMMIT wait for a broken connection".to_owned());
        }
        if objection.is_none() {
            objection = standbys::duplicate(&mut self.database, &self.slot)?;
        }
        if objection.is_none() {
            if self.beat.fine_since.is_none()
                && let Some(writers) = standbys::unsynchronous(&mut self.database)?
            {
                eprintln!("bloomgate: COMMIT does not wait where synchronous_commit is off or local: {writers}");
            }
            if self.beat.objection.take().is_some() {
                eprintln!("bloomgate: every COMMIT waits for this follower");
            }
            return Ok(self.beat.fine_since.get_or_insert_with(Instant::now).elapsed() >= SETTLED);
        }
        (self.beat.fine_since, self.beat.pending) = (None, None);
        if objection != self.beat.objection {
            for (table, epoch) in self.tables.iter().zip(&self.epochs) {
                self.store.transact(&table.keys, *epoch, &[cmd("DEL").arg(&table.keys.feed).to_owned()])?;
            }
            eprintln!("bloomgate: no heartbeat: {}", objection.as_deref().unwrap_or_default());
            self.beat.objection = objection;
        }
        Ok(false)
    }
}
