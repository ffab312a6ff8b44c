//! Leases that this process holds. A lease ends with a fill or is given up, whatever becomes of the call that got it.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use redis::{Cmd, Value};

use super::commands::{Commands, is_late};
use super::flights::lock;
use super::{Io, Reply};
use crate::batch::parts;

/// The back-off after the first failed load of a row. It doubles with each further failure.
const BACKOFF_MS: u64 = 100;
/// The longest back-off.
const MOST_BACKOFF_MS: u64 = 10_000;
/// The most rows whose failed loads are counted. Beyond that, the row that has not failed for the longest time is forgotten.
const MOST_FAILING: usize = 10_000;

/// A lease's token.
pub type Token = Vec<u8>;

/// A row, and the token of the lease for it.
pub type Lease = (Vec<u8>, Token);

/// Leases. Those that are left when this is dropped are given up: a load has panicked, or a call was cancelled.
pub struct Leases<I: Io> {
    pub commands: Arc<Commands>,
    pub io: I,
    pub left: Vec<Lease>,
}

impl<I: Io> Drop for Leases<I> {
    fn drop(&mut self) {
        if !self.left.is_empty() {
            let give_up = self.left.iter().map(|(id, token)| self.commands.give_up(id, token));
            self.io.send(give_up.collect());
        }
    }
}

impl<I: Io> Leases<I> {
    /// Returns no leases.
    pub fn new(commands: &Arc<Commands>, io: &I) -> Self {
        Self { commands: Arc::clone(commands), io: io.clone(), left: Vec::new() }
    }

    /// Takes out the lease of a row.
    pub fn take(&mut self, id: &[u8]) -> Option<Self> {
        let position = self.left.iter().position(|(other, _)| other == id)?;
        let left = vec![self.left.swap_remove(position)];
        Some(Self { commands: Arc::clone(&self.commands), io: self.io.clone(), left })
    }

    /// Adds leases.
    pub fn append(&mut self, mut others: Self) {
        self.left.append(&mut others.left);
    }

    /// Returns the rows in order.
    pub fn ids(&self) -> Vec<Vec<u8>> {
        self.left.iter().map(|(id, _)| id.clone()).collect()
    }

    /// Sends the commands that fill the rows, in the order of the leases. A lease whose fill the server refuses, because it
    /// is out of memory for instance, is given up: nobody should wait until it ends.
    pub async fn fill(mut self, fills: Vec<Cmd>) {
        let io = self.io.clone();
        let work = async move {
            let ids = self.ids();
            for part in parts(fills) {
                let count = part.len().min(self.left.len());
                let replies = self.commands.send_together(&self.io, part).await;
                let filled: Vec<_> = self.left.drain(..count).zip(replies).collect();
                for (_, reply) in &filled {
                    let event = match reply {
                        Err(_) => "errors",
                        Ok(Value::Nil) => "lease_lost",
                        Ok(_) => "filled",
                    };
                    self.commands.count(event, 1);
                }
                // A server that did not answer in time would not answer GIVEUP either.
                let is_refused = |reply: &Reply| reply.is_err() && !is_late(reply);
                let refused = filled.into_iter().filter(|(_, reply)| is_refused(reply)).map(|(lease, _)| lease);
                self.end(refused.collect()).await;
            }
            let mut failing = lock(&self.commands.failing);
            for id in &ids {
                failing.remove(id);
            }
        };
        io.finish(work).await;
    }

    /// Gives all of them up, so that other callers may load.
    pub async fn give_up(mut self) {
        if self.left.is_empty() {
            return;
        }
        let io = self.io.clone();
        let work = async move {
            let left = mem::take(&mut self.left);
            self.end(left).await;
        };
        io.finish(work).await;
    }

    /// Sends GIVEUP for some leases. A user without the permission cannot end a lease: then callers query the database for a while,
    /// and only the one that fetches after that may have to wait for the end of a lease.
    async fn end(&self, leases: Vec<Lease>) {
        if !leases.is_empty() {
            let give_up = leases.iter().map(|(id, token)| self.commands.give_up(id, token));
            let replies = self.commands.send_together(&self.io, give_up.collect()).await;
            if replies.iter().any(|reply| reply.as_ref().is_err_and(|error| error.code() == Some("NOPERM"))) {
                self.commands.pause();
            }
        }
    }

    /// Ends the leases of rows whose load has failed. With `fail_safe`, nobody gets another lease for them before a back-off has
    /// passed. A server that does not know BACKOFF ends the leases only.
    pub async fn back_off(mut self) {
        if self.commands.options.fail_safe.is_zero() {
            return self.give_up().await;
        }
        let io = self.io.clone();
        let work = async move {
            let left = mem::take(&mut self.left);
            let back_off = |(id, token): &Lease| {
                let mut give_up = self.commands.give_up(id, token);
                give_up.arg("BACKOFF").arg(self.commands.next_back_off_ms(id));
                give_up
            };
            let replies = self.commands.send_together(&self.io, left.iter().map(back_off).collect()).await;
            let refused = left
                .into_iter()
                .zip(replies)
                .filter(|(_, reply)| reply.is_err() && !is_late(reply))
                .map(|(lease, _)| lease);
            self.end(refused.collect()).await;
        };
        io.finish(work).await;
    }
}

impl Commands {
    /// Counts a failed load of a row, and returns how long nobody may try again.
    fn next_back_off_ms(&self, id: &[u8]) -> u64 {
        let mut failing = lock(&self.failing);
        let failures = failing.get(id).map_or(0, |(failures, _)| *failures);
        failing.insert(id.to_vec(), (failures.saturating_add(1), Instant::now()));
        if failing.len() > MOST_FAILING {
            let oldest = failing.iter().min_by_key(|(_, (_, at))| *at).map(|(id, _)| id.clone());
            oldest.and_then(|id| failing.remove(&id));
        }
        (BACKOFF_MS << failures.min(16)).min(MOST_BACKOFF_MS)
    }
}
