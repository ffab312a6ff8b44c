//! Synchronous mode: a COMMIT waits until the follower has announced its transaction to readers.
//!
//! A group of transactions passes three stages, in the order of the log. *Announce*: one transaction of the server enters the cache keys
//! in the journal, where readers wait for them, deletes the cached values, adds the items, and stores the position. *Confirm*: PostgreSQL
//! makes the group visible, and the COMMITs return. *Release*: once the group is visible, its cache keys leave the journal, unless a later
//! group has entered them again, and the items of deleted rows leave the filter.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use redis::{Cmd, cmd};

use crate::config::Keys;
use crate::fill::{add, copy, flush, is_locked};
use crate::follower::{FilterState, Followed, Follower, VISIBILITY_INTERVAL, connect, refill_or_fail, report_fill};
use crate::journal::{CHUNK, EVERY_KEY, Entry, Journal, Work, changes, chunked, steps};
use crate::metrics::State;
use crate::names::counted;
use crate::pgoutput::Lsn;
use crate::session::Snapshot;
use crate::store::{Pulse, Stopped, end_leases_without_filter, is_worn, reserve};
use crate::table::{Step, Table, Transaction};

/// How long SIGTERM waits for announced transactions to become visible.
const LAST_RELEASE: Duration = Duration::from_secs(10);

impl Follower {
    /// Announces all transactions that have arrived, and confirms them. A position that a keepalive told is stored and confirmed as
    /// well, because COMMITs of other tables wait for it.
    pub(super) fn announce(&mut self) -> Result<()> {
        let group: Vec<_> = std::iter::from_fn(|| self.arrived.pop()).collect();
        let last = group.last().map_or(self.done, |transaction| transaction.end);
        let end = self.arrived.idle_position(last);
        if end <= self.done {
            return Ok(());
        }
        for index in 0..self.tables.len() {
            if let Err(error) = self.announce_to(index, &group, end) {
                if !matches!(self.table(index)?.filter, FilterState::Complete | FilterState::Worn) {
                    return Err(error);
                }
                refill_or_fail(error)?;
                self.lose_filter(index)?;
                self.announce_to(index, &group, end)?;
            }
        }
        let announced = group.iter().filter(|transaction| !transaction.steps.is_empty());
        self.announced.extend(announced.map(|transaction| (transaction.end, self.snapshot.full(transaction.xid))));
        self.metrics.count_transactions(group.len(), group.iter().map(|transaction| transaction.steps.len()).sum());
        self.done = end;
        self.confirm(end)
    }

    /// Announces a group to the readers of one table.
    fn announce_to(&mut self, index: usize, group: &[Transaction], end: Lsn) -> Result<()> {
        let position = self.table(index)?.position;
        if end <= position {
            return Ok(());
        }
        if steps(group, position, index).any(|(_, step)| matches!(step, Step::Altered)) {
            self.distrust(index)?;
        }
        let table = self.tables.get(index).context("a table")?;
        let Keys { filter, filling, .. } = &table.keys;
        let filters = match table.filter {
            FilterState::Complete | FilterState::Worn | FilterState::Missing => vec![filter],
            FilterState::Renewing => vec![filter, filling],
            FilterState::Filling => vec![filling],
        };
        let (mut work, mut truncated) = (Work::default(), None);
        for (transaction, step) in steps(group, position, index) {
            match step {
                Step::Change(change) => work.add(change, transaction, table.deletes),
                Step::Truncate | Step::Altered => {
                    work = Work::default();
                    truncated = Some((transaction.end, transaction.xid));
                }
            }
        }
        let entries = table.journal.entries(&work, truncated, |xid| self.snapshot.full(xid));
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
        if truncated.is_some() {
            if table.filter != FilterState::Missing {
                commands.extend(filters.iter().map(|filter| cmd("BF.CLEAR").arg(filter).to_owned()));
            }
            if !table.filter.is_complete() {
                commands.extend(end_leases_without_filter(&table.keys));
            }
        }
        commands.extend(filters.iter().flat_map(|filter| work.changes(filter)));
        // The journal holds every key while a large group is announced in parts.
        if entries.first().is_some_and(|(key, _)| key == EVERY_KEY) {
            commands = self.transact_in_parts(index, commands)?;
        }
        self.store_position(index, commands, end, group)?;
        self.table(index)?.journal.announce(entries, &work);
        Ok(())
    }

    /// Releases the cache keys of transactions that other sessions can see. Asks PostgreSQL at most once a millisecond.
    pub(super) fn release(&mut self) -> Result<()> {
        if self.announced.is_empty() || self.last_look.elapsed() < VISIBILITY_INTERVAL {
            return Ok(());
        }
        self.snapshot = Snapshot::take(&mut self.database)?;
        self.last_look = Instant::now();
        let mut visible = None;
        while let Some(first) = self.announced.first_entry().filter(|first| self.snapshot.shows_full(*first.get())) {
            visible = Some(*first.key());
            first.remove();
        }
        let Some(end) = visible else { return Ok(()) };
        (0..self.tables.len()).try_for_each(|index| self.release_from(index, end))
    }

    /// Releases the cache keys of one table that no transaction after `end` holds.
    fn release_from(&mut self, index: usize, end: Lsn) -> Result<()> {
        let table = self.tables.get_mut(index).context("a table")?;
        let due = table.journal.due(end);
        let mut fields: Vec<&Vec<u8>> = due.keys.iter().map(|(key, _)| key).collect();
        let every = EVERY_KEY.to_vec();
        if due.is_every {
            let meanwhile = |store: &mut _| self.pulse.beat(store, &mut self.wire, self.confirmed);
            self.store.delete_values(table, meanwhile)?;
            fields.push(&every);
        }
        let mut commands = chunked("HDEL", &table.keys.open, fields.into_iter());
        commands.extend(changes(&table.keys.filter, due.keys.iter().map(|(key, item)| (item, key))));
        if table.filter == FilterState::Complete {
            commands.extend(chunked("BF.MDEL", &table.keys.filter, due.gone.iter()));
        }
        // A filter that is missing denies nothing.
        let written =
            if commands.is_empty() { Ok(Vec::new()) } else { self.store.transact(&table.keys, table.epoch, &commands) };
        match written {
            Err(error) if is_worn(&error) => {
                // The items stay, as false positives.
                eprintln!("bloomgate: {error:#}: filling {} again", table.keys.filter);
                table.filter = FilterState::Worn;
            }
            written => drop(written?),
        }
        table.journal.release(end);
        Ok(())
    }

    /// Waits until all announced transactions up to `end` are visible and released.
    pub(super) fn release_up_to(&mut self, end: Lsn) -> Result<()> {
        self.release_while(end, |pulse| pulse.ensure_running().map(|()| true))
    }

    /// Releases everything before the follower ends. Gives up after some seconds: another synchronous standby may be away.
    pub(super) fn release_at_end(&mut self) -> Result<()> {
        let until = Instant::now() + LAST_RELEASE;
        self.release_while(self.done, |_| Ok(Instant::now() < until))?;
        if !self.announced.is_empty() {
            let count = counted(self.announced.len() as u64, "transaction");
            eprintln!("bloomgate: not visible yet: {count}, which the next follower will release");
        }
        Ok(())
    }

    fn release_while(&mut self, end: Lsn, goes_on: impl Fn(&Pulse) -> Result<bool>) -> Result<()> {
        loop {
            self.release()?;
            if self.announced.first_key_value().is_none_or(|(first, _)| *first > end) || !goes_on(&self.pulse)? {
                return Ok(());
            }
            self.pulse.beat(&mut self.store, &mut self.wire, self.confirmed)?;
            thread::sleep(VISIBILITY_INTERVAL);
        }
    }

    /// Reads the journal of a table. Its transactions are released once they are visible, like those that this follower announces.
    pub(super) fn adopt(&mut self, index: usize, journal: Journal) -> Result<()> {
        self.announced.extend(journal.transactions());
        self.table(index)?.journal = journal;
        Ok(())
    }

    /// Deletes the cached values of a table whose server has lost data. Readers wait meanwhile.
    pub(super) fn forget_values(&mut self, index: usize) -> Result<()> {
        let table = self.tables.get(index).context("a table")?;
        let (keys, epoch) = (&table.keys, table.epoch);
        let begin: [Cmd; 2] = [
            cmd("DEL").arg(&keys.feed).arg(&keys.position).arg(&keys.open).to_owned(),
            cmd("HSET").arg(&keys.open).arg(EVERY_KEY).arg("0/0 0 ~").to_owned(),
        ];
        self.store.transact(keys, epoch, &begin)?;
        let meanwhile = |store: &mut _| {
            self.pulse.ensure_running()?;
            self.pulse.beat(store, &mut self.wire, self.confirmed)
        };
        self.store.delete_values(table, meanwhile)?;
        self.store.transact(keys, epoch, &[cmd("DEL").arg(&keys.open).to_owned()])?;
        Ok(())
    }
}

// Fills a filter in synchronous mode while COMMITs go on. The announcements add their items to the filter under construction, so it has
// every row: the older ones by COPY, which begins when all confirmed transactions are visible, and the later ones by their announcements.

impl Follower {
    /// Deletes the heartbeat and the filter of a table, which is filled later.
    pub(super) fn lose_filter(&mut self, index: usize) -> Result<()> {
        let table = self.tables.get_mut(index).context("a table")?;
        let keys = &table.keys;
        let delete = cmd("DEL").arg(&keys.feed).arg(&keys.filter).arg(&keys.filling).to_owned();
        self.store.transact(keys, table.epoch, &[delete])?;
        table.filter = FilterState::Missing;
        self.beat.pending = None;
        Ok(())
    }

    /// Fills a filter that is missing, or replaces one that is worn, once all announced transactions are visible.
    pub(super) fn fill_due(&mut self) -> Result<()> {
        let is_due = |table: &Followed| {
            matches!(table.filter, FilterState::Missing | FilterState::Worn) && !table.definition.is_empty()
        };
        let Some(index) = self.tables.iter().position(is_due) else { return Ok(()) };
        if !self.announced.is_empty() || !self.arrived.waiting.is_empty() {
            return Ok(());
        }
        let begin = Instant::now();
        let Followed { table, epoch, filter: before, .. } = self.tables.get(index).context("a table")?;
        let (table, epoch, before) = (table.clone(), *epoch, *before);
        let delete = cmd("DEL").arg(&table.keys.filling).to_owned();
        self.store
            .transact(&table.keys, epoch, &[delete.clone(), reserve(&table.config, &table.keys.filling)])
            .with_context(|| format!("cannot create the filter of {}", table.config.name))?;
        let renews = before == FilterState::Worn;
        let during = if renews { FilterState::Renewing } else { FilterState::Filling };
        self.table(index)?.filter = during;
        self.metrics.enter(State::Filling);
        match self.copy_rows(index, &table, during) {
            Ok(rows) if renews => {
                // Whoever asked the old filter was told the truth, and no cached value is older than an announcement.
                let rename = cmd("RENAME").arg(&table.keys.filling).arg(&table.keys.filter).to_owned();
                self.store.transact(&table.keys, epoch, &[rename])?;
                self.end_fill(index, &table, rows, begin)
            }
            Ok(rows) => {
                // The table may have been altered meanwhile.
                let followed = self.tables.get_mut(index).context("a table")?;
                let lsn = followed.position;
                // RENAME ends the leases that were granted without this filter. What readers have filled in until now is deleted
                // by a scan, and every cache key is in the journal meanwhile.
                let every = Entry::without_items(lsn, 0);
                let finish = [
                    cmd("RENAME").arg(&table.keys.filling).arg(&table.keys.filter).to_owned(),
                    cmd("HSET").arg(&table.keys.open).arg(EVERY_KEY).arg(every.to_bytes()).to_owned(),
                    followed.stored(&self.system).store(&table.keys),
                ];
                self.store.transact(&table.keys, epoch, &finish)?;
                followed.journal.announce(vec![(EVERY_KEY.to_vec(), every)], &Work::default());
                self.announced.entry(lsn).or_insert(0);
                self.end_fill(index, &table, rows, begin)
            }
            Err(error) if error.is::<Stopped>() || is_locked(&error) => {
                self.store.transact(&table.keys, epoch, &[delete])?;
                self.table(index)?.filter = before;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn end_fill(&mut self, index: usize, table: &Table, rows: u64, begin: Instant) -> Result<()> {
        report_fill(table, rows, begin);
        self.metrics.count_fill();
        self.metrics.enter(State::Following);
        self.table(index)?.filter = FilterState::Complete;
        Ok(())
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
            ensure!(follower.table(index)?.filter == state, "{} was altered meanwhile", table.config.name);
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

// Eventual mode: applies each transaction once other sessions can see it, and confirms it afterwards. No COMMIT waits.

impl Follower {
    /// Applies the transactions that other sessions can see, in the order of the log.
    pub(super) fn apply_visible(&mut self) -> Result<()> {
        if self.arrived.waiting.is_empty() {
            return Ok(());
        }
        let snapshot = Snapshot::take(&mut self.database)?;
        let mut group = Vec::new();
        while self.arrived.waiting.front().is_some_and(|transaction| snapshot.shows(transaction.xid)) {
            group.extend(self.arrived.pop());
        }
        let Some(last) = group.last().map(Transaction::mark) else { return Ok(()) };
        let end = last.end;
        for index in 0..self.tables.len() {
            if let Err(error) = self.apply(index, &group, end) {
                refill_or_fail(error)?;
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
        let (mut work, mut is_truncated, mut is_altered) = (Work::default(), false, false);
        for (transaction, step) in steps(group, position, index) {
            match step {
                Step::Change(change) => work.add(change, transaction, table.deletes),
                Step::Truncate => (work, is_truncated) = (Work::default(), true),
                Step::Altered => (work, is_truncated, is_altered) = (Work::default(), true, true),
            }
        }
        if is_altered {
            self.distrust(index)?;
        }
        let table = self.tables.get(index).context("a table")?;
        let mut commands = work.changes(&table.keys.filter);
        if is_truncated {
            // BF.CLEAR ends the leases first, so that a reader that has loaded an old row cannot fill it in after the scan. Rows that
            // were inserted since are added in the same transaction, so that none of them is reported absent.
            let clear = cmd("BF.CLEAR").arg(&table.keys.filter).to_owned();
            let no_heartbeat = is_altered.then(|| cmd("DEL").arg(&table.keys.feed).to_owned());
            let commands: Vec<_> = no_heartbeat.into_iter().chain([clear]).chain(commands.iter().cloned()).collect();
            self.store.transact(&table.keys, epoch, &commands)?;
            self.store.delete_values(table, |_| Ok(()))?;
        }
        commands.extend(chunked("BF.MDEL", &table.keys.filter, work.gone()));
        // A follower that ends in between does it all again: items are added first and deleted last.
        let commands = self.transact_in_parts(index, commands)?;
        self.store_position(index, commands, end.max(position), group)
    }
}
