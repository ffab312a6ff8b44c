//! Synchronous mode: a COMMIT waits until the follower has announced its transaction to readers.
//!
//! A group of transactions passes three stages, in the order of the log. *Announce*: one transaction of the server adds the cache keys to
//! the journal, so that readers wait for them, deletes the cached values, and adds the items; the next transaction stores the position.
//! *Confirm*: PostgreSQL makes the group visible, and the COMMITs return. *Release*: once the group is visible, cached values are deleted
//! again and the items of deleted rows are removed from the filter; then its cache keys are removed from the journal, unless a later group
//! has added them again.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use redis::{Cmd, cmd};

use super::events::Transaction;
use super::fill::add;
use super::journal::{CHUNK, EVERY_KEY, Entry, GroupEffects, changes, chunked, steps};
use super::position::Place;
use super::source::{Copier, Source};
use super::store::{Refused, Stopped, Store, end_leases_without_filter, reserve};
use super::{FilterState, Followed, Follower, LIVENESS_INTERVAL, Liveness, VISIBILITY_INTERVAL};
use crate::config::Keys;
use crate::metrics::State;
use crate::names::counted;
use crate::table::Table;

/// How long SIGTERM waits for announced transactions to become visible.
const LAST_RELEASE: Duration = Duration::from_secs(10);

impl<S: Source> Follower<S> {
    /// Announces all transactions that have arrived, and confirms them. The position of a keepalive is also stored and confirmed, because
    /// COMMITs of other tables wait for it.
    pub(super) fn announce(&mut self) -> Result<()> {
        let group: Vec<_> = std::iter::from_fn(|| self.arrived.pop()).collect();
        let last = group.last().map_or(self.source.confirmed(), |transaction| transaction.end);
        let end = self.arrived.idle_position(last);
        if end <= self.source.confirmed() {
            return Ok(());
        }
        for index in 0..self.tables.len() {
            self.with_or_without_filter(index, |follower| follower.announce_to(index, &group, end))?;
        }
        let announced = group.iter().filter(|transaction| !transaction.steps.is_empty());
        self.announced.extend(announced.map(|transaction| (transaction.end, transaction.id)));
        self.metrics.count_transactions(group.len(), group.iter().map(|transaction| transaction.steps.len()).sum());
        self.confirm(end)
    }

    /// Performs a step, and repeats it without the filter of a table if the filter is missing or refuses a change.
    fn with_or_without_filter(&mut self, index: usize, step: impl Fn(&mut Self) -> Result<()>) -> Result<()> {
        let Err(error) = step(self) else { return Ok(()) };
        if !matches!(self.table(index)?.filter, FilterState::Complete | FilterState::DeleteTableFull) {
            return Err(error);
        }
        eprintln!("bloomgate: {}", error.downcast::<Refused>()?);
        self.lose_filter(index)?;
        step(self)
    }

    /// Announces a group to the readers of one table.
    fn announce_to(&mut self, index: usize, group: &[Transaction], end: Place) -> Result<()> {
        let position = self.table(index)?.position;
        if end <= position {
            return Ok(());
        }
        let effects = GroupEffects::of(steps(group, position, index), self.table(index)?.deletes);
        if effects.is_altered {
            self.invalidate_definition(index)?;
        }
        let table = self.tables.get(index).context("a table")?;
        let Keys { filter, filling, .. } = &table.keys;
        let filters = match table.filter {
            FilterState::Renewing => vec![filter, filling],
            FilterState::Filling => vec![filling],
            _ => vec![filter],
        };
        let entries = table.journal.entries(&effects);
        let mut commands = Vec::new();
        for chunk in entries.chunks(CHUNK) {
            let mut command = cmd("HSET");
            command.arg(&table.keys.open);
            for (key, entry) in chunk {
                command.arg(key).arg(entry.to_bytes());
            }
            commands.push(command);
        }
        if table.definition.is_empty() {
            commands.push(cmd("DEL").arg(&table.keys.feed).to_owned());
        }
        if effects.truncated.is_some() {
            if table.filter != FilterState::Missing {
                commands.extend(filters.iter().map(|filter| cmd("BF.CLEAR").arg(filter).to_owned()));
            }
            if !table.filter.is_complete() {
                commands.extend(end_leases_without_filter(&table.keys));
            }
        }
        commands.extend(filters.iter().flat_map(|filter| effects.changes(filter)));
        // While a large group is announced in parts, the journal contains the entry for every key.
        if entries.first().is_some_and(|(key, _)| key == EVERY_KEY) {
            table.write_in_parts(&mut self.store, &commands)?;
        } else {
            table.write(&mut self.store, &commands)?;
        }
        self.store_position(index, end, group)?;
        self.table(index)?.journal.announce(entries, &effects);
        Ok(())
    }

    /// Releases the cache keys of transactions that other sessions can see. Asks the database at most once a millisecond.
    pub(super) fn release(&mut self) -> Result<()> {
        if self.announced.is_empty() || self.last_visibility_check.elapsed() < VISIBILITY_INTERVAL {
            return Ok(());
        }
        let count = self.source.count_visible(&mut self.announced.iter().map(|(end, id)| (*end, *id)))?;
        self.last_visibility_check = Instant::now();
        let visible = (0..count).map_while(|_| self.announced.pop_first()).last().map(|(end, _)| end);
        let Some(end) = visible else { return Ok(()) };
        for index in 0..self.tables.len() {
            self.with_or_without_filter(index, |follower| follower.release_from(index, end))?;
        }
        Ok(())
    }

    /// Releases the cache keys of one table that are not held by a transaction after `end`.
    fn release_from(&mut self, index: usize, end: Place) -> Result<()> {
        let table = self.tables.get_mut(index).context("a table")?;
        let due = table.journal.due(end);
        let mut fields: Vec<&Vec<u8>> = due.keys.iter().map(|(key, _)| key).collect();
        let every = EVERY_KEY.to_vec();
        if due.is_every {
            self.store.delete_values(table, |store| self.liveness.show(store, &mut self.source))?;
            fields.push(&every);
        }
        let (keys, epoch) = (&table.table.keys, table.epoch);
        let closing = chunked("HDEL", &keys.open, fields.into_iter());
        let changes = changes(&keys.filter, due.keys.iter().map(|(key, item)| (item, key)));
        let deletes = chunked("BF.MDEL", &keys.filter, due.gone.iter());
        let mut write = |commands: &[Cmd]| match commands {
            [] => Ok(()),
            // A missing filter reports no row absent.
            commands => self.store.transact(keys, epoch, commands).map(drop),
        };
        write(&changes)?;
        if table.filter == FilterState::Complete
            && let Err(error) = write(&deletes)
        {
            // The items stay in the filter as false positives.
            eprintln!("bloomgate: {}: filling {} again", error.downcast::<Refused>()?, keys.filter);
            table.filter = FilterState::DeleteTableFull;
        }
        // The keys stay in the journal until the server has accepted all changes, so that a follower that ends earlier leaves them to the
        // next one, which repeats the release.
        write(&closing)?;
        table.journal.release(end);
        Ok(())
    }

    /// Waits until all announced transactions up to `end` are visible and released.
    pub(super) fn release_up_to(&mut self, end: Place) -> Result<()> {
        self.release_while(end, |liveness| liveness.ensure_running().map(|()| true))
    }

    /// Releases everything before the follower ends. Gives up after some seconds, because another synchronous standby may be down.
    pub(super) fn release_at_end(&mut self) -> Result<()> {
        let until = Instant::now() + LAST_RELEASE;
        self.release_while(self.source.confirmed(), |_| Ok(Instant::now() < until))?;
        if !self.announced.is_empty() {
            let count = counted(self.announced.len() as u64, "transaction");
            eprintln!("bloomgate: not visible yet: {count}, which the next follower will release");
        }
        Ok(())
    }

    fn release_while(&mut self, end: Place, goes_on: impl Fn(&Liveness) -> Result<bool>) -> Result<()> {
        loop {
            self.release()?;
            if self.announced.first_key_value().is_none_or(|(first, _)| *first > end) || !goes_on(&self.liveness)? {
                return Ok(());
            }
            self.show_liveness()?;
            thread::sleep(VISIBILITY_INTERVAL);
        }
    }

    /// Reads the journal of a table. Its transactions are released once they are visible, like transactions that this follower announces.
    pub(super) fn adopt(&mut self, index: usize) -> Result<()> {
        let table = self.tables.get_mut(index).context("a table")?;
        table.journal = self.store.journal(&table.keys)?;
        self.announced.extend(table.journal.transactions());
        Ok(())
    }

    /// Deletes the cached values of a table after the server has lost data. Readers wait meanwhile.
    pub(super) fn forget_values(&mut self, index: usize) -> Result<()> {
        let table = self.tables.get(index).context("a table")?;
        let (keys, epoch) = (&table.keys, table.epoch);
        let begin: [Cmd; 2] = [
            cmd("DEL").arg(&keys.feed).arg(&keys.position).arg(&keys.open).to_owned(),
            cmd("HSET").arg(&keys.open).arg(EVERY_KEY).arg("0/0 0 ~").to_owned(),
        ];
        self.store.transact(keys, epoch, &begin)?;
        let meanwhile = |store: &mut Store| {
            self.liveness.ensure_running()?;
            self.liveness.show(store, &mut self.source)
        };
        self.store.delete_values(table, meanwhile)?;
        self.store.transact(keys, epoch, &[cmd("DEL").arg(&keys.open).to_owned()])?;
        Ok(())
    }
}

// Fills a filter in synchronous mode while transactions commit. The announcements also add their items to the filter under construction, so
// it contains every row: older rows by COPY, which begins when all confirmed transactions are visible, and later rows by their announcements.

impl<S: Source> Follower<S> {
    /// Fills a missing filter, or replaces a filter whose delete table is full, once all announced transactions are visible.
    pub(super) fn fill_due(&mut self) -> Result<()> {
        let find = |state| {
            let is_due = |table: &Followed| table.filter == state && !table.definition.is_empty();
            self.tables.iter().position(is_due)
        };
        // Readers can continue without a new filter, but not without any filter.
        let full = || {
            find(FilterState::DeleteTableFull)
                .filter(|_| self.refused.is_none_or(|at| at.elapsed() >= LIVENESS_INTERVAL))
        };
        let Some(index) = find(FilterState::Missing).or_else(full) else { return Ok(()) };
        if !self.announced.is_empty() || !self.arrived.waiting.is_empty() {
            return Ok(());
        }
        let begin = Instant::now();
        let Followed { table, epoch, filter: before, .. } = self.tables.get(index).context("a table")?;
        let (table, epoch, before) = (table.clone(), *epoch, *before);
        let renews = before == FilterState::DeleteTableFull;
        let delete = cmd("DEL").arg(&table.keys.filling).to_owned();
        let create = [delete.clone(), reserve(&table.config, &table.keys.filling)];
        match self.store.transact(&table.keys, epoch, &create) {
            Err(error) if renews && error.is::<Refused>() => {
                if self.refused.replace(Instant::now()).is_none() {
                    eprintln!("bloomgate: {error:#}: until then, deleted rows stay in {}", table.keys.filter);
                }
                return Ok(());
            }
            created => created.with_context(|| format!("cannot create the filter of {}", table.config.name))?,
        };
        self.refused = None;
        let during = if renews { FilterState::Renewing } else { FilterState::Filling };
        let followed = self.tables.get_mut(index).context("a table")?;
        followed.filter = during;
        followed.deletes = table.has_unique_items && self.store.can_delete(&table.keys.filling)?;
        self.metrics.enter(State::Filling);
        match self.copy_rows(index, &table, during) {
            Ok(rows) if renews => {
                // The old filter's answers were right, and cached values are not older than the announcements.
                let rename = cmd("RENAME").arg(&table.keys.filling).arg(&table.keys.filter).to_owned();
                self.store.transact(&table.keys, epoch, &[rename])?;
                self.end_fill(index, rows, begin)
            }
            Ok(rows) => {
                // The table may have been altered in the meantime.
                let followed = self.tables.get_mut(index).context("a table")?;
                let lsn = followed.position;
                // RENAME ends the leases that were granted without this filter. Values that readers have cached until now are deleted by
                // a scan, while the journal contains the entry for every cache key.
                let every = Entry::without_items(lsn, 0);
                let finish = [
                    cmd("HSET").arg(&table.keys.open).arg(EVERY_KEY).arg(every.to_bytes()).to_owned(),
                    cmd("RENAME").arg(&table.keys.filling).arg(&table.keys.filter).to_owned(),
                ];
                self.store.transact(&table.keys, epoch, &finish)?;
                let position = followed.stored(&self.source).store(&table.keys);
                self.store.transact(&table.keys, epoch, &[position])?;
                followed.journal.announce(vec![(EVERY_KEY.to_vec(), every)], &GroupEffects::default());
                self.announced.entry(lsn).or_insert(0);
                self.end_fill(index, rows, begin)
            }
            Err(error) if error.is::<Stopped>() || S::is_locked(&error) => {
                self.store.transact(&table.keys, epoch, &[delete])?;
                self.table(index)?.filter = before;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn end_fill(&mut self, index: usize, rows: u64, begin: Instant) -> Result<()> {
        self.table(index)?.filter = FilterState::Complete;
        self.note_fill(index, rows, begin)
    }

    /// Copies the rows of a table, and announces the transactions that arrive during the copy. The heartbeat continues if the old filter is
    /// complete.
    fn copy_rows(&mut self, index: usize, table: &Table, state: FilterState) -> Result<u64> {
        let go_on = |follower: &mut Self| {
            follower.receive_within(Duration::ZERO)?;
            follower.announce()?;
            follower.release()?;
            if state == FilterState::Renewing {
                follower.extend_heartbeat()?;
            }
            ensure!(follower.table(index)?.filter == state, "{} was altered meanwhile", table.config.name);
            Ok(())
        };
        self.await_running(go_on)?;
        self.source.copier()?.copy(table, &mut |items| {
            add(&mut self.store, &table.keys.filling, items)?;
            self.liveness.ensure_running()?;
            self.show_liveness()?;
            go_on(self)
        })
    }
}
