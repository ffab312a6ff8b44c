//! Writers: they insert, change and delete rows by the protocol of `docs/guard.md`. Some roll back, some die between their
//! commit and their second BF.CHANGED.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crate::client::{Client, FILLING, FILTER, Trouble, cache_key};
use crate::database::{Lent, Session};
use crate::harness::{Reply, Rng};
use crate::world::{HEADLINES, HOT, RETURNING, RETURNING_IDS, Way, World, between, chance, count};

/// Ids that are kept for readers to ask for after they were deleted.
const GONE_KEPT: usize = 500;

/// Writes until the run ends.
pub fn run(world: &World, seed: u64) {
    let mut writer = Writer { world, client: world.client(), rng: Rng::new(seed) };
    while world.goes_on() {
        match writer.rng.below(100) {
            0..45 => writer.change(),
            45..60 => writer.insert(),
            60..70 => writer.delete_for_ever(),
            _ => writer.come_or_go(),
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
    /// A moment in which readers do their worst.
    fn pause(&mut self) {
        if chance(&mut self.rng, 10) {
            thread::sleep(Duration::from_millis(between(&mut self.rng, (1, 40))));
        }
    }

    /// BF.CHANGED of the row, and a replica's confirmation where the run wants it.
    fn announce(&mut self, id: u64) -> Result<(), Trouble> {
        let begun = self.world.model.now();
        // First the filter that is being filled: it may take the other's place between the two.
        if self.world.filling.load(Ordering::SeqCst) {
            self.client.changed(FILLING, id)?;
        }
        self.client.changed(FILTER, id)?;
        if self.world.settings.confirm {
            match self.client.ask(&["WAIT", "1", "1000"])? {
                Reply::Integer(1..) => (),
                other => return Err(Trouble::Refused(format!("WAIT answered {other:?}"))),
            }
        }
        self.world.model.leases_ended(id, begun);
        Ok(())
    }

    fn failed(&mut self, trouble: Trouble) {
        self.world.trouble(trouble);
        self.client.leave();
    }

    /// Before the commit. `false`: it failed, and the transaction must not be committed.
    fn first(&mut self, id: u64) -> bool {
        match self.world.settings.way {
            Way::Guard if !self.world.settings.first_call => true,
            Way::Guard => {
                let announced = self.announce(id);
                announced.map_err(|trouble| self.failed(trouble)).is_ok()
            }
            Way::FilterAndCache => self.client.ask(&["BF.ADD", FILTER, &id.to_string()]).is_ok(),
            Way::Cache => true,
        }
    }

    /// After the commit: repeated until it is answered.
    fn second(&mut self, id: u64) {
        match self.world.settings.way {
            Way::Guard if !self.world.settings.second_call => (),
            Way::Guard => {
                while let Err(trouble) = self.announce(id) {
                    self.failed(trouble);
                    thread::sleep(Duration::from_millis(5));
                }
            }
            Way::FilterAndCache | Way::Cache => {
                self.client.ask(&["DEL", &cache_key(id)]).expect("the cache");
            }
        }
    }

    /// A transaction that writes one row: `write` gives the new version, or nothing where there is nothing to write. The
    /// version that was committed.
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

    /// The rest of a write, when its session has been given back.
    fn tell(&mut self, id: u64, version: u64) {
        if self.world.settings.mischief && chance(&mut self.rng, 3) {
            self.world.orphaned(id, version);
            count(&self.world.counts.died);
            return self.client.leave();
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
            self.tell(id, version);
        }
    }

    fn insert(&mut self) {
        // Readers ask for the next ids already. Some numbers are never used: their transactions are rolled back.
        let id = self.world.next_id.fetch_add(1, Ordering::Relaxed);
        let mut session = self.world.pool.take();
        let version = self.transaction(&mut session, id, |session| session.insert(id, 1).then_some(1));
        drop(session);
        if let Some(version) = version {
            count(&self.world.counts.inserted);
            self.tell(id, version);
        }
    }

    /// An id that never returns: commit, BF.CHANGED, BF.DEL.
    fn delete_for_ever(&mut self) {
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
            self.keep_for_readers(id);
        }
        self.world.model.delete_ended(id);
    }

    fn forget(&mut self, id: u64) -> Result<Reply, Trouble> {
        match self.world.settings.way {
            Way::Cache => Ok(Reply::Null),
            Way::Guard | Way::FilterAndCache => self.client.ask(&["BF.DEL", FILTER, &id.to_string()]),
        }
    }

    fn keep_for_readers(&mut self, id: u64) {
        let mut gone = self.world.gone.lock().unwrap();
        if gone.len() < GONE_KEPT {
            gone.push(id);
        } else {
            let place = self.rng.below(GONE_KEPT as u64) as usize;
            gone[place] = id;
        }
    }

    /// An id that may return: who deletes it holds a lock to the end, who inserts it to the commit.
    fn come_or_go(&mut self) {
        let id = RETURNING + self.rng.below(RETURNING_IDS);
        let mut session = self.world.pool.take();
        session.run(&format!("SELECT pg_advisory_lock({id})"));
        if session.find(id).is_some() {
            self.go(&mut session, id);
            session.run(&format!("SELECT pg_advisory_unlock({id})"));
        } else {
            self.come(session, id);
        }
    }

    fn go(&mut self, session: &mut Session, id: u64) {
        self.world.model.delete_begins(id);
        let deleted = self.transaction(session, id, |session| session.delete(id).map(|version| version + 1));
        if let Some(version) = deleted {
            self.pause();
            self.second(id);
            self.world.model.announced(id, version, false);
            count(&self.world.counts.deleted);
            // The lock is kept until it is known what became of it: a BF.DEL that comes late would hide the next row.
            while matches!(self.forget(id), Err(Trouble::Gone)) {
                thread::sleep(Duration::from_millis(5));
            }
        }
        self.world.model.delete_ended(id);
    }

    fn come(&mut self, mut session: Lent<'_>, id: u64) {
        let version = self.world.model.next_version(id);
        let inserted = self.transaction(&mut session, id, |session| session.insert(id, version).then_some(version));
        session.run(&format!("SELECT pg_advisory_unlock({id})"));
        drop(session);
        if let Some(version) = inserted {
            count(&self.world.counts.inserted);
            self.tell(id, version);
        }
    }
}
