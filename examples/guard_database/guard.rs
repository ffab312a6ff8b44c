//! A client of the guard: how a service reads, writes and deletes a row. docs/guard.md has the protocol.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use redis::{Cmd, ConnectionLike, RedisResult, cmd};

/// How long one caller may take to load a row, and how long the others wait for it.
const LEASE_MS: u64 = 3000;
/// If a value expires sooner than this, one caller refreshes it while the others get the cached value.
const STALE_MS: u64 = 5000;
/// Values and missing rows are forgotten after this long, even if a writer fails.
const VALUE_SECONDS: u64 = 60;
const NONE_SECONDS: u64 = 10;
/// After this many unsuccessful leases in a row, the database is queried directly.
const ATTEMPTS: usize = 3;

/// Rows of a database with a filter and a cache in front of it.
pub struct Guard<C> {
    redis: C,
    filter: &'static str,
}

impl<C: ConnectionLike> Guard<C> {
    /// A filter with the id of every row.
    pub fn new(redis: C, filter: &'static str) -> Self {
        Self { redis, filter }
    }

    /// Returns a row, if there is one. `load` reads it from the database, in a transaction that begins with the call.
    pub fn read(&mut self, id: &str, mut load: impl FnMut() -> Result<Option<String>>) -> Result<Option<String>> {
        for _ in 0..ATTEMPTS {
            // If the server fails, query the database and store nothing.
            let Ok(answer) = self.fetch(id) else { break };
            let words: Vec<&str> = answer.iter().map(String::as_str).collect();
            match words.as_slice() {
                ["absent"] => return Ok(None),
                ["hit", value] => return Ok(Some((*value).to_owned())),
                // A service may return the stale value and load in the background.
                ["load", token] | ["stale", _, token] => {
                    let row = load().inspect_err(|_| self.give_up(id, token))?;
                    self.fill(id, token, row.as_deref());
                    return Ok(row);
                }
                // Another caller is loading the row and takes longer than WAIT.
                _ => continue,
            }
        }
        load()
    }

    /// Inserts or changes a row. `transaction` commits it, and returns once the outcome is known.
    pub fn write<T>(&mut self, id: &str, transaction: impl FnOnce() -> Result<T>) -> Result<T> {
        // If this fails, do not commit.
        self.changed(id)?;
        let outcome = transaction();
        self.changed_for_certain(id);
        outcome
    }

    /// Deletes a row whose id is never used again.
    pub fn delete<T>(&mut self, id: &str, transaction: impl FnOnce() -> Result<T>) -> Result<T> {
        let outcome = transaction();
        self.changed_for_certain(id);
        if outcome.is_ok() {
            // If this fails, the id is still "maybe".
            _ = cmd("BF.DEL").arg(self.filter).arg(id).exec(&mut self.redis);
        }
        outcome
    }

    /// The first word of the reply, and the rest.
    fn fetch(&mut self, id: &str) -> RedisResult<Vec<String>> {
        let mut fetch = self.command("BF.FETCH", id);
        fetch.arg("LEASE").arg(LEASE_MS).arg("STALE").arg(STALE_MS).arg("WAIT").arg(LEASE_MS);
        fetch.query(&mut self.redis)
    }

    /// If the token is refused, the row is still correct; it is just not cached.
    fn fill(&mut self, id: &str, token: &str, row: Option<&str>) {
        let mut fill = self.command("BF.FILL", id);
        fill.arg(token);
        match row {
            Some(value) => fill.arg("VALUE").arg(value).arg("EX").arg(VALUE_SECONDS),
            None => fill.arg("NONE").arg("EX").arg(NONE_SECONDS),
        };
        if fill.exec(&mut self.redis).is_err() {
            // For example because the server is out of memory.
            self.give_up(id, token);
        }
    }

    /// A waiting caller may load the row instead.
    fn give_up(&mut self, id: &str, token: &str) {
        _ = self.command("BF.FILL", id).arg(token).arg("GIVEUP").exec(&mut self.redis);
    }

    fn changed(&mut self, id: &str) -> RedisResult<()> {
        self.command("BF.CHANGED", id).exec(&mut self.redis)
    }

    /// After the commit, repeat until the server replies.
    fn changed_for_certain(&mut self, id: &str) {
        while self.changed(id).is_err() {
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn command(&self, name: &str, id: &str) -> Cmd {
        let mut command = cmd(name);
        // In a cluster, the key {known-pages}:17 is in the slot of the filter known-pages.
        command.arg(self.filter).arg(id).arg(format!("{{{}}}:{id}", self.filter));
        command
    }
}
