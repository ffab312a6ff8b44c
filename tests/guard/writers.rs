//! Writers: they insert, change and delete rows by the protocol of `docs/guard.md`. Some roll back, and some die between their
//! commit and their second BF.CHANGED.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crate::world::{Client, ClientError, FILLING, FILTER, cache_key};
use crate::world::{HEADLINES, HOT, RETURNING, RETURNING_IDS, Way, World, between, chance, count};
use testing::database::{PooledSession, Session};
use testing::{Reply, Rng};

/// The number of deleted ids that are kept, so that readers request them.
const GONE_KEPT: usize = 500;

/// Writes until the run ends.
pub fn run(world: &World, seed: u64) {
    let mut writer = Writer { world, client: world.client(), rng: Rng::new(seed) };
    while world.is_running() {
        match writer.rng.below(100) {
            0..45 => writer.change(),
            45..60 => writer.insert(),
            60..70 => writer.delete_permanently(),
            _ => writer.insert_or_delete(),
        }
        world.adopt();
        thread::sleep(Duration::from_millis(writer.rng.below(8)));
    }
}

struct Writer<'a> {
    world: &'a World,
    client: Client<'a>,
    rng: Rng,
}

impl Writer<'_> {
    /// Pauses, so that readers can interfere.
    fn pause(&mut self) {
        if chance(&mut self.rng, 10) {
            thread::sleep(Duration::from_millis(between(&mut self.rng, (1, 40))));
        }
    }

    /// Sends BF.CHANGED for the row, and waits for a replica's confirmation if the run requires it.
    fn announce(&mut self, id: u64) -> Result<(), ClientError> {
        let begun = self.world.model.now();
        // First to the filter that is being filled, because it may replace the other one between the two calls.
        if self.world.filling.load(Ordering::SeqCst) {
            self.client.changed(FILLING, id)?;
        }
        self.client.changed(FILTER, id)?;
        if self.world.settings.confirm {
            match self.client.ask(&["WAIT", "1", "1000"])? {
                Reply::Integer(1..) => (),
                other => return Err(ClientError::Refused(format!("WAIT answered {other:?}"))),
            }
        }
        self.world.model.voided(id, begun);
        Ok(())
    }

    fn failed(&mut self, error: ClientError) {
        self.world.record_error(error);
        self.client.disconnect();
    }

    /// The call before the commit. Returns false if it failed; then the transaction must not be committed.
    fn first(&mut self, id: u64) -> bool {
        match self.world.settings.way {
            Way::Guard if !self.world.settings.first_call => true,
            Way::Guard => {
                let announced = self.announce(id);
                announced.map_err(|error| self.failed(error)).is_ok()
            }
            Way::FilterAndCache => self.client.ask(&["BF.ADD", FILTER, &id.to_string()]).is_ok(),
            Way::Cache => true,
        }
    }

    /// The call after the commit, repeated until it is acknowledged.
    fn second(&mut self, id: u64) {
        match self.world.settings.way {
            Way::Guard if !self.world.settings.second_call => (),
            Way::Guard => {
                while let Err(error) = self.announce(id) {
                    self.failed(error);
                    thread::sleep(Duration::from_millis(5));
                }
            }
            Way::FilterAndCache | Way::Cache => {
                self.client.ask(&["DEL", &cache_key(id)]).expect("the cache");
            }
        }
    }

    /// Runs a transaction that writes one row: `write` returns the new version, or `None` if there is nothing to write.
    /// Returns the committed version.
    fn transaction(
        &mut self,
        session: &mut Session,
        id: u64,
        write: impl FnOnce(&mut Session) -> Option<u64>,
    ) -> Option<u64> {
        let first_inside = self.world.settings.first_call_inside || chance(&mut self.rng, 50);
        if !first_inside && !self.first(id) {
            return None;
        }
        session.run("BEGIN");
        let written = write(session);
        let may_commit = written.is_some() && (!first_inside || self.first(id));
        self.pause();
        if !may_commit || chance(&mut self.rng, 10) {
            session.run("ROLLBACK");
            count(&self.world.counts.rolled_back);
            return None;
        }
        session.run("COMMIT");
        written.inspect(|&version| self.world.model.committed(id, version))
    }

    /// Completes a write after its session was returned to the pool.
    fn announce_write(&mut self, id: u64, version: u64) {
        if self.world.settings.mischief && chance(&mut self.rng, 3) {
            self.world.orphaned(id, version);
            count(&self.world.counts.died);
            return self.client.disconnect();
        }
        self.pause();
        self.second(id);
        self.world.model.announced(id, version, true);
    }

    fn change(&mut self) {
        let id = match self.rng.below(10) {
            0..3 => self.rng.below(HEADLINES),
            3..6 => self.rng.below(HOT),
            6..8 => RETURNING + self.rng.below(RETURNING_IDS),
            _ => self.rng.below(self.world.settings.rows),
        };
        let mut session = self.world.pool.take();
        let version = self.transaction(&mut session, id, |session| session.change(id));
        drop(session);
        if let Some(version) = version {
            count(&self.world.counts.changed);
            self.announce_write(id, version);
        }
    }

    fn insert(&mut self) {
        // Readers already request the next ids. Some ids are never used because their transactions are rolled back.
        let id = self.world.next_id.fetch_add(1, Ordering::Relaxed);
        let mut session = self.world.pool.take();
        let version = self.transaction(&mut session, id, |session| session.insert(id, 1).then_some(1));
        drop(session);
        if let Some(version) = version {
            count(&self.world.counts.inserted);
            self.announce_write(id, version);
        }
    }

    /// Deletes a row whose id is never used again: commit, BF.CHANGED, BF.DEL.
    fn delete_permanently(&mut self) {
        let id = HOT + self.rng.below(self.world.next_id.load(Ordering::Relaxed) - HOT);
        let mut session = self.world.pool.take();
        self.world.model.delete_begins(id);
        session.run("BEGIN");
        let last = session.delete(id);
        self.pause();
        let keep = last.is_none() || chance(&mut self.rng, 10);
        session.run(if keep { "ROLLBACK" } else { "COMMIT" });
        drop(session);
        if let Some(version) = last.filter(|_| !keep) {
            self.pause();
            self.second(id);
            self.world.model.announced(id, version + 1, false);
            let _ = self.forget(id);
            count(&self.world.counts.deleted);
            self.add_deleted_id(id);
        }
        self.world.model.delete_ended(id);
    }

    fn forget(&mut self, id: u64) -> Result<Reply, ClientError> {
        match self.world.settings.way {
            Way::Cache => Ok(Reply::Null),
            Way::Guard | Way::FilterAndCache => self.client.ask(&["BF.DEL", FILTER, &id.to_string()]),
        }
    }

    fn add_deleted_id(&mut self, id: u64) {
        let mut gone = self.world.gone.lock().unwrap();
        if gone.len() < GONE_KEPT {
            gone.push(id);
        } else {
            let place = self.rng.below(GONE_KEPT as u64) as usize;
            gone[place] = id;
        }
    }

    /// Inserts or deletes a row whose id may be used again. A delete holds a lock to its end, an insert until its commit.
    fn insert_or_delete(&mut self) {
        let id = RETURNING + self.rng.below(RETURNING_IDS);
        let mut session = self.world.pool.take();
        session.run(&format!("SELECT pg_advisory_lock({id})"));
        if session.find(id).is_some() {
            self.delete_row(&mut session, id);
            session.run(&format!("SELECT pg_advisory_unlock({id})"));
        } else {
            self.insert_row(session, id);
        }
    }

    fn delete_row(&mut self, session: &mut Session, id: u64) {
        self.world.model.delete_begins(id);
        let deleted = self.transaction(session, id, |session| session.delete(id).map(|version| version + 1));
        if let Some(version) = deleted {
            self.pause();
            self.second(id);
            self.world.model.announced(id, version, false);
            count(&self.world.counts.deleted);
            // The lock is held until the outcome is known, because a late BF.DEL would hide the next row.
            while matches!(self.forget(id), Err(ClientError::Gone)) {
                thread::sleep(Duration::from_millis(5));
            }
        }
        self.world.model.delete_ended(id);
    }

    fn insert_row(&mut self, mut session: PooledSession<'_>, id: u64) {
        let version = self.world.model.next_version(id);
        let inserted = self.transaction(&mut session, id, |session| session.insert(id, version).then_some(version));
        session.run(&format!("SELECT pg_advisory_unlock({id})"));
        drop(session);
        if let Some(version) = inserted {
            count(&self.world.counts.inserted);
            self.announce_write(id, version);
        }
    }
}
