//! DDL. It is not in the log, and it can rewrite rows. A table whose definition has changed loses its heartbeat. Its filter is filled
//! again once everything that the log had until then is applied: later deletions then concern the new rows, not those before the DDL.

use anyhow::{Context, Result, ensure};
use redis::cmd;

use super::config::Mode;
use super::fill::is_locked;
use super::follower::Follower;
use super::lsn::Lsn;
use super::publication::Altered;
use super::table::{Table, check_publication};

/// VACUUM FULL of `pg_class` waits in its COMMIT for the follower, which the locked catalogue keeps from reading the log.
const CATALOGUE_LOCKED: &str = "PostgreSQL's catalogue is locked, by VACUUM FULL for instance. If that waits for this follower in COMMIT \
    (SyncRep), nobody can connect: end its wait with kill -INT and its process id";

impl Follower {
    /// Forgets the definition for which the filter of a table was filled, so that it is filled again, also by a follower that starts
    /// with the position stored now.
    pub(super) fn distrust(&mut self, index: usize) -> Result<()> {
        self.beat.pending = None;
        self.tables.get_mut(index).context("a table")?.definition.clear();
        Ok(())
    }

    /// Reads the definitions of the tables.
    pub(super) fn read_definitions(&mut self) -> Result<Vec<Option<String>>> {
        let (publication, database) = (&self.publication, &mut self.database);
        let read = |table: &Table| publication.definition(database, &table.config);
        self.tables
            .iter()
            .map(read)
            .collect::<Result<_>>()
            .map_err(|error| if is_locked(&error) { error.context(CATALOGUE_LOCKED) } else { error })
    }

    /// Deletes the heartbeats of tables whose definitions have changed. `end`: the end of the log after they were read.
    pub(super) fn note_altered(&mut self, definitions: Vec<Option<String>>, end: Lsn) -> Result<()> {
        for (index, definition) in definitions.into_iter().enumerate() {
            let (table, epoch) = self.tables.get(index).zip(self.epochs.get(index)).context("a table")?;
            let altered = self.altered.get_mut(index).context("a table")?;
            let is_known = match altered {
                Some(altered) => altered.definition == definition,
                None => definition.as_ref() == Some(&table.definition),
            };
            if is_known {
                continue;
            }
            if altered.is_none() && !table.definition.is_empty() {
                eprintln!("bloomgate: {} was altered: filling {} again", table.config.name, table.config.filter);
            }
            *altered = Some(Altered { end, definition });
            self.store.transact(&table.keys, *epoch, &[cmd("DEL").arg(&table.keys.feed).to_owned()])?;
            self.distrust(index)?;
        }
        Ok(())
    }

    /// Fills the filters of tables that were altered, once everything before the change is applied. Returns why one of them can no longer be
    /// followed, or `None`.
    ///
    /// # Errors
    /// A lost connection; a table was dropped and created again; the filter cannot be filled.
    pub(super) fn refill_altered(&mut self) -> Result<Option<String>> {
        let settled = self.settled();
        for index in 0..self.tables.len() {
            let (table, altered) = self.tables.get(index).zip(self.altered.get(index)).context("a table")?;
            let Some(altered) = altered.as_ref().filter(|altered| altered.end <= settled) else { continue };
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
            *self.tables.get_mut(index).context("a table")? = fresh;
            *self.altered.get_mut(index).context("a table")? = None;
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
