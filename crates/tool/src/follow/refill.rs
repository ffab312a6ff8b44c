//! Fills a filter in synchronous mode while COMMITs go on. The announcements add their items to the filter under construction, so it has
//! every row: the older ones by COPY, which begins when all confirmed transactions are visible, and the later ones by their announcements.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use redis::cmd;

use super::fill::{add, copy, flush, is_locked};
use super::follower::{FilterState, Follower, connect, origin, report_fill};
use super::journal::{EVERY_KEY, Entry};
use super::metrics::State;
use super::store::{Position, Stopped, reserve};
use super::table::Table;
use super::work::Work;

impl Follower {
    /// Deletes the heartbeat and the filter of a table, which is filled later.
    pub(super) fn lose_filter(&mut self, index: usize) -> Result<()> {
        let (table, epoch) = self.tables.get(index).zip(self.epochs.get(index)).context("a table")?;
        let keys = &table.keys;
        let delete = cmd("DEL").arg(&keys.feed).arg(&keys.filter).arg(&keys.filling).to_owned();
        self.store.transact(keys, *epoch, &[delete])?;
        self.beat.pending = None;
        self.set_state(index, FilterState::Missing)
    }

    pub(super) fn set_state(&mut self, index: usize, state: FilterState) -> Result<()> {
        *self.filters.get_mut(index).context("a table")? = state;
        Ok(())
    }

    /// Fills a filter that is missing, or replaces one that is worn, once all announced transactions are visible.
    pub(super) fn fill_due(&mut self) -> Result<()> {
        let mut tables = self.filters.iter().zip(&self.tables);
        let is_due = |(filter, table): (&_, &Table)| {
            matches!(filter, FilterState::Missing | FilterState::Worn) && !table.definition.is_empty()
        };
        let Some(index) = tables.position(is_due) else { return Ok(()) };
        if !self.announced.is_empty() || !self.arrived.waiting.is_empty() {
            return Ok(());
        }
        let begin = Instant::now();
        let table = self.tables.get(index).context("a table")?.clone();
        let epoch = *self.epochs.get(index).context("a table")?;
        let delete = cmd("DEL").arg(&table.keys.filling).to_owned();
        self.store
            .transact(&table.keys, epoch, &[delete.clone(), reserve(&table.config, &table.keys.filling)])
            .with_context(|| format!("cannot create the filter of {}", table.config.name))?;
        let before = *self.filters.get(index).context("a table")?;
        let renews = before == FilterState::Worn;
        let during = if renews { FilterState::Renewing } else { FilterState::Filling };
        self.set_state(index, during)?;
        self.metrics.enter(State::Filling);
        match self.copy_rows(index, &table, during) {
            Ok(rows) if renews => {
                // Whoever asked the old filter was told the truth, and no cached value is older than an announcement.
                let rename = cmd("RENAME").arg(&table.keys.filling).arg(&table.keys.filter).to_owned();
                self.store.transact(&table.keys, epoch, &[rename])?;
                self.end_fill(index, &table, rows, begin)
            }
            Ok(rows) => {
                let (lsn, last) =
                    self.positions.get(index).copied().zip(self.marks.get(index).copied()).context("a table")?;
                // RENAME ends the leases that were granted without this filter. What readers have filled in until now is deleted
                // by a scan, and every cache key is in the journal meanwhile.
                let every = Entry::without_items(lsn, 0);
                let finish = [
                    cmd("RENAME").arg(&table.keys.filling).arg(&table.keys.filter).to_owned(),
                    cmd("HSET").arg(&table.keys.open).arg(EVERY_KEY).arg(every.to_bytes()).to_owned(),
                    // The table may have been altered meanwhile.
                    Position { origin: origin(&self.system, self.tables.get(index).context("a table")?), lsn, last }
                        .store(&table.keys),
                ];
                self.store.transact(&table.keys, epoch, &finish)?;
                let journal = self.journals.get_mut(index).context("a table")?;
                journal.announce(vec![(EVERY_KEY.to_vec(), every)], &Work::default());
                self.announced.entry(lsn).or_insert(0);
                self.end_fill(index, &table, rows, begin)
            }
            Err(error) if error.is::<Stopped>() || is_locked(&error) => {
                self.store.transact(&table.keys, epoch, &[delete])?;
                self.set_state(index, before)
            }
            Err(error) => Err(error),
        }
    }

    fn end_fill(&mut self, index: usize, table: &Table, rows: u64, begin: Instant) -> Result<()> {
        report_fill(table, rows, begin);
        self.metrics.count_fill();
        self.metrics.enter(State::Following);
        self.set_state(index, FilterState::Complete)
    }

    /// Copies the rows of a table, and announces what arrives meanwhile. The heartbeat goes on if the old filter is complete.
    fn copy_rows(&mut self, index: usize, table: &Table, state: FilterState) -> Result<u64> {
        let go_on = |follower: &mut Self| {
            follower.receive_within(Duration::ZERO)?;
            follower.announce()?;
            follower.release()?;
            if state == FilterState::Renewing {
                follower.beat()?;
            }
            ensure!(follower.filters.get(index) == Some(&state), "{} was altered meanwhile", table.config.name);
            Ok(())
        };
        self.await_running(go_on)?;
        // The follower's own session looks for visible transactions meanwhile.
        let mut database = connect(&self.settings)?;
        let rows = copy(&mut database, table, |items| {
            add(&mut self.store, &table.keys.filling, items)?;
            self.pulse.ensure_running()?;
            self.pulse.beat(&mut self.store, &mut self.wire, self.confirmed)?;
            go_on(self)
        })?;
        flush(&mut database)?;
        Ok(rows)
    }
}
