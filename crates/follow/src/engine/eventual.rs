//! Eventual mode: applies each transaction once other sessions can see it, and confirms it afterwards. No COMMIT waits.

use anyhow::{Context, Result};
use redis::cmd;

use super::Follower;
use super::events::Transaction;
use super::journal::{GroupEffects, chunked, steps};
use super::position::Place;
use super::source::Source;
use super::store::Refused;

impl<S: Source> Follower<S> {
    /// Applies the transactions that other sessions can see, in the order of the log.
    pub(super) fn apply_visible(&mut self) -> Result<()> {
        if self.arrived.waiting.is_empty() {
            return Ok(());
        }
        let mut waiting = self.arrived.waiting.iter().map(|transaction| (transaction.end, transaction.id));
        let visible = self.source.count_visible(&mut waiting)?;
        let group: Vec<_> = (0..visible).map_while(|_| self.arrived.pop()).collect();
        let Some(last) = group.last().map(Transaction::mark) else { return Ok(()) };
        let end = last.end;
        if let Some(doubt) = self.source.doubt() {
            self.is_fine(Some(doubt))?;
        }
        for index in self.followed() {
            if let Err(error) = self.apply(index, &group, end) {
                let Refused(reason) = error.downcast()?;
                if !S::HAS_ROWS {
                    self.exclude(index, &reason)?;
                    continue;
                }
                eprintln!("bloomgate: {reason}");
                // The copied rows already include the whole group. Applying it again would also add its deleted items, for which a full
                // filter may have no room.
                self.table(index)?.mark = last;
                self.fill_again(index, end)?;
            }
        }
        self.metrics.count_transactions(group.len(), group.iter().map(|transaction| transaction.steps.len()).sum());
        self.confirm(end)?;
        if !S::HAS_ROWS {
            // The source's events determine the time of the heartbeat.
            self.begin_heartbeat()?;
        }
        Ok(())
    }

    /// Applies a group to one table, and stores the position.
    fn apply(&mut self, index: usize, group: &[Transaction], end: Place) -> Result<()> {
        let table = self.tables.get(index).context("a table")?;
        let (position, epoch) = (table.position, table.epoch);
        let effects = GroupEffects::of(steps(group, position, index), table.deletes);
        if effects.is_altered {
            if !S::HAS_ROWS {
                self.lose_filter(index)?;
                self.store.delete_values(self.tables.get(index).context("a table")?, |_| Ok(()))?;
                self.store_position(index, end.max(position), group)?;
                return self.exclude(index, "the filter is deleted");
            }
            self.invalidate_definition(index)?;
        }
        let table = self.tables.get(index).context("a table")?;
        let commands = effects.changes(&table.keys.filter);
        if effects.truncated.is_some() {
            // BF.CLEAR ends the leases first, so that a reader that has loaded an old row cannot fill it in after the scan. Rows that
            // were inserted since are added in the same transaction, so that they are never reported absent.
            let clear = cmd("BF.CLEAR").arg(&table.keys.filter).to_owned();
            let no_heartbeat = effects.is_altered.then(|| cmd("DEL").arg(&table.keys.feed).to_owned());
            let commands: Vec<_> = no_heartbeat.into_iter().chain([clear]).chain(commands.iter().cloned()).collect();
            self.store.transact(&table.keys, epoch, &commands)?;
            self.store.delete_values(table, |_| Ok(()))?;
        }
        let deletes = chunked("BF.MDEL", &table.keys.filter, effects.gone());
        // A follower that ends in between repeats all commands, so items are added first and deleted last.
        table.write_in_parts(&mut self.store, &commands)?;
        match table.write_in_parts(&mut self.store, &deletes) {
            Err(error) if !S::HAS_ROWS && error.is::<Refused>() => {
                eprintln!(
                    "bloomgate: {error:#}: items of deleted rows stay in {} until it is filled again",
                    table.keys.filter
                );
                self.table(index)?.deletes = false;
            }
            result => result?,
        }
        self.store_position(index, end.max(position), group)
    }
}
