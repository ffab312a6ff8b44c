//! Eventual mode: applies each transaction once other sessions can see it, and confirms it afterwards. No COMMIT waits.

use anyhow::{Context, Result};
use redis::cmd;

use super::follower::{Follower, refill_or_fail};
use super::lsn::Lsn;
use super::stream::{Step, Transaction};
use super::visibility::Snapshot;
use super::work::{Work, chunked, steps};

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
                *self.marks.get_mut(index).context("a table")? = last;
                self.refill(index, end)?;
            }
        }
        self.metrics.count_transactions(group.len(), group.iter().map(|transaction| transaction.steps.len()).sum());
        self.confirm(end)
    }

    /// Applies a group to one table, and stores the position.
    fn apply(&mut self, index: usize, group: &[Transaction], end: Lsn) -> Result<()> {
        let table = self.tables.get(index).context("a table")?;
        let position = *self.positions.get(index).context("a table")?;
        let epoch = *self.epochs.get(index).context("a table")?;
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
