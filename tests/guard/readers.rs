//! Readers: nine lookups in ten are for ids that do not exist. Readers follow `docs/guard.md`, but some die, give up, hold a
//! token too long, use one twice or invent one.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crate::model::{Before, Grant};
use crate::world::{
    ABSENT, ABSENT_IDS, HEADLINES, HOT, LEASE_MS, NONE_MS, NOVEL, QUERY, RETURNING, RETURNING_IDS, VALUE_MS, Way,
    World, between, chance, count,
};
use crate::world::{Client, ClientError, FILTER, Fetched, cache_key, encode_value, version_in};
use testing::{Reply, Rng};

/// Looks up rows until the run ends.
pub fn run(world: &World, seed: u64) {
    let mut reader = Reader { world, client: world.client(), rng: Rng::new(seed) };
    while world.is_running() && world.lookups_left.fetch_sub(1, Ordering::Relaxed) > 0 {
        let id = reader.pick();
        count(&world.counts.lookups);
        match world.settings.way {
            Way::Guard => world.while_loading(|| reader.look_up(id)),
            Way::FilterAndCache | Way::Cache => reader.look_up_without_guard(id),
        }
    }
    world.counts.round_trips.fetch_add(reader.client.round_trips, Ordering::Relaxed);
}

struct Reader<'a> {
    world: &'a World,
    client: Client<'a>,
    rng: Rng,
}

impl Reader<'_> {
    /// Picks an id. About half of the ids that return exist.
    fn pick(&mut self) -> u64 {
        let rng = &mut self.rng;
        match rng.below(100) {
            // The most popular row, and popular ones.
            0..2 => rng.below(HEADLINES),
            2..3 => rng.below(HOT),
            3..4 => rng.below(self.world.settings.rows),
            4..12 => RETURNING + rng.below(RETURNING_IDS),
            // A row that is about to be inserted, or was inserted recently, perhaps by a writer that died.
            12..30 => self.world.next_id.load(Ordering::Relaxed) + rng.below(30),
            30..32 => self.world.next_id.load(Ordering::Relaxed).saturating_sub(rng.below(3000)),
            32..47 => {
                let gone = self.world.gone.lock().unwrap();
                if gone.is_empty() { ABSENT } else { gone[rng.below(gone.len() as u64) as usize] }
            }
            47..66 => ABSENT + rng.below(ABSENT_IDS),
            _ => NOVEL + rng.below(1 << 60),
        }
    }

    /// Picks options of BF.FETCH: each of them sometimes, or those of a service that wants few queries.
    fn options(&mut self) -> Vec<String> {
        if !self.world.settings.mischief {
            return ["LEASE", "1000", "WAIT", "1000"].map(str::to_owned).to_vec();
        }
        let mut options = vec!["LEASE".to_owned(), between(&mut self.rng, LEASE_MS).to_string()];
        if chance(&mut self.rng, 30) {
            options.extend(["STALE".to_owned(), between(&mut self.rng, (20, VALUE_MS.1)).to_string()]);
        }
        if chance(&mut self.rng, 50) {
            options.extend(["WAIT".to_owned(), between(&mut self.rng, (0, 400)).to_string()]);
        }
        options
    }

    fn look_up(&mut self, id: u64) {
        let (world, counts) = (self.world, &self.world.counts);
        for _ in 0..4 {
            let options = self.options();
            let before = world.model.before(id);
            if world.settings.mischief && chance(&mut self.rng, 1) {
                return self.misbehave(id, &options);
            }
            match self.client.fetch(id, &options) {
                Ok(Fetched::Absent) => {
                    count(&counts.absent);
                    return world.model.absent("BF.FETCH", id, before);
                }
                Ok(Fetched::Hit(value)) => {
                    count(&counts.hits);
                    if !world.model.value("hit", id, version_in(id, &value), before) {
                        count(&counts.outdated);
                    }
                    return;
                }
                Ok(Fetched::Stale(value, token)) => {
                    count(&counts.stale);
                    if !world.model.is_current(version_in(id, &value), before) {
                        count(&counts.outdated_stale);
                    }
                    let grant = world.model.granted(id, token);
                    return self.load(id, before, &grant);
                }
                Ok(Fetched::Load(token)) => {
                    count(&counts.loads);
                    let grant = world.model.granted(id, token);
                    return self.load(id, before, &grant);
                }
                Ok(Fetched::Wait(more)) => {
                    count(&counts.waits);
                    thread::sleep(Duration::from_millis(more.clamp(1, 10)));
                }
                Err(error) => {
                    // Without the guard, the database is queried and nothing is filled.
                    world.record_error(error);
                    self.client.disconnect();
                    thread::sleep(Duration::from_millis(2));
                    break;
                }
            }
        }
        self.read_row(id, world.model.before(id));
    }

    /// Reads the row in a transaction that begins now.
    fn read_row(&mut self, id: u64, before: Before) -> Option<u64> {
        count(&self.world.counts.queries);
        let mut session = self.world.pool.take();
        let version = if chance(&mut self.rng, 10) {
            session.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
            let version = session.find(id);
            session.run("COMMIT");
            version
        } else {
            session.find(id)
        };
        thread::sleep(QUERY);
        drop(session);
        match version {
            Some(version) => {
                self.world.model.value("the database", id, version, before);
            }
            None => {
                self.world.model.absent("the database", id, before);
            }
        }
        version
    }

    /// Reads the row and fills the cache with a token.
    fn load(&mut self, id: u64, before: Before, grant: &Grant) {
        let (world, counts) = (self.world, &self.world.counts);
        let mischief = if world.settings.mischief { self.rng.below(100) } else { 100 };
        match mischief {
            0..2 => {
                count(&counts.left);
                return self.client.disconnect();
            }
            2..4 => {
                let too_late = world.model.is_void(id, grant);
                let ended = self.client.give_up(id, &grant.token);
                return self.filled(id, too_late, ended);
            }
            4 => {
                let forged = format!("{:016x}{:016x}", self.rng.number(), self.rng.number());
                let accepted = self.client.fill(id, &forged, Some(1), 1000);
                world.model.expect(!matches!(accepted, Ok(true)), || format!("{id}: an invented token was accepted"));
            }
            _ => (),
        }
        let version = self.read_row(id, before);
        if chance(&mut self.rng, 10) {
            thread::sleep(Duration::from_millis(between(&mut self.rng, (1, LEASE_MS.1))));
        }
        let range = if version.is_some() { VALUE_MS } else { NONE_MS };
        let ttl = between(&mut self.rng, range);
        let (too_late, begun) = (world.model.is_void(id, grant), world.model.now());
        let accepted = self.client.fill(id, &grant.token, version, ttl);
        let answered = accepted.is_ok();
        if let Ok(true) = accepted {
            world.model.voided(id, begun);
        }
        self.filled(id, too_late, accepted);
        if mischief < 8 && answered {
            let again = self.client.fill(id, &grant.token, version, ttl);
            world.model.expect(!matches!(again, Ok(true)), || format!("{id}: a token was accepted twice"));
        }
    }

    /// Records the outcome of a BF.FILL.
    fn filled(&mut self, id: u64, too_late: bool, accepted: Result<bool, ClientError>) {
        match accepted {
            Ok(true) => {
                count(&self.world.counts.fills);
                self.world.model.expect(!too_late, || format!("{id}: a void token was accepted"));
            }
            Ok(false) => count(&self.world.counts.refused_fills),
            Err(error) => {
                self.world.record_error(error);
                self.client.disconnect();
            }
        }
    }

    /// Disconnects while it waits, or deletes the key as an operator might.
    fn misbehave(&mut self, id: u64, options: &[String]) {
        let (item, key) = (id.to_string(), cache_key(id));
        if chance(&mut self.rng, 50) {
            let mut words = vec!["BF.FETCH", FILTER, &item, &key];
            words.extend(options.iter().map(String::as_str));
            self.client.send_and_disconnect(&words);
            count(&self.world.counts.left);
            return;
        }
        let begun = self.world.model.now();
        if let Ok(Reply::Integer(1)) = self.client.ask(&["DEL", &key]) {
            self.world.model.voided(id, begun);
        }
    }

    /// Looks up without the guard: the filter in some ways, then the cache, the database, the cache. Errors are counted but
    /// are not faults.
    fn look_up_without_guard(&mut self, id: u64) {
        let (world, counts) = (self.world, &self.world.counts);
        let (item, key) = (id.to_string(), cache_key(id));
        let before = world.model.before(id);
        if world.settings.way == Way::FilterAndCache {
            let found = self.client.ask(&["BF.EXISTS", FILTER, &item]).expect("the filter");
            if !found.truth() {
                count(&counts.absent);
                return;
            }
        }
        if let Reply::Bulk(value) = self.client.ask(&["GET", &key]).expect("the cache") {
            count(&counts.hits);
            if !world.model.is_current(version_in(id, &value), before) {
                count(&counts.outdated);
            }
            return;
        }
        if let Some(version) = self.read_row(id, before) {
            if chance(&mut self.rng, 10) {
                thread::sleep(Duration::from_millis(between(&mut self.rng, (1, LEASE_MS.1))));
            }
            let ttl = between(&mut self.rng, VALUE_MS).to_string();
            self.client.ask(&["SET", &key, &encode_value(id, version), "PX", &ttl]).expect("the cache");
        }
    }
}
