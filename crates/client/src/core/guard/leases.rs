//! Leases that this process holds. Each lease ends with a fill or is given up, even if the call that got it is cancelled or
//! panics.

use std::mem;
use std::sync::Arc;

use redis::{Cmd, Value};

use super::Io;
use super::commands::{Commands, is_answer, is_late};
use super::fetched::Lease;
use crate::batch::parts;

/// Leases of a call. When this is dropped, the remaining leases are given up: the call was cancelled, or has no other use for
/// them.
pub struct Leases<I: Io> {
    pub commands: Arc<Commands>,
    pub io: I,
    pub left: Vec<Lease>,
}

impl<I: Io> Drop for Leases<I> {
    fn drop(&mut self) {
        if !self.left.is_empty() {
            self.io.send(self.left.iter().map(|lease| self.commands.give_up(lease, false)).collect());
        }
    }
}

impl<I: Io> Leases<I> {
    /// Returns no leases.
    pub fn new(commands: &Arc<Commands>, io: &I) -> Self {
        Self { commands: Arc::clone(commands), io: io.clone(), left: Vec::new() }
    }

    /// Moves the lease of a row to another list.
    pub fn move_to(&mut self, others: &mut Self, id: &[u8]) {
        if let Some(position) = self.left.iter().position(|(other, _)| other == id) {
            others.left.push(self.left.remove(position));
        }
    }

    /// Returns the rows in order.
    pub fn ids(&self) -> Vec<Vec<u8>> {
        self.left.iter().map(|(id, _)| id.clone()).collect()
    }

    /// Sends the commands that fill the rows, in the order of the leases. If the server refuses a fill, it ends the lease. After a
    /// lost connection the lease is given up, so that no caller waits until it expires.
    pub async fn fill(mut self, fills: Vec<Cmd>) {
        let io = self.io.clone();
        let work = async move {
            for part in parts(fills) {
                let replies = self.commands.end_leases(&self.io, part).await;
                let mut lost = Vec::new();
                for (lease, reply) in self.left.drain(..replies.len()).zip(replies) {
                    let event = match reply {
                        Err(_) => "errors",
                        Ok(Value::Nil) => "lease_lost",
                        Ok(_) => "filled",
                    };
                    self.commands.count(event, 1);
                    // After a time-out, the server would not answer GIVEUP either.
                    if !is_answer(&reply) && !is_late(&reply) {
                        lost.push(self.commands.give_up(&lease, false));
                    }
                }
                if !lost.is_empty() {
                    self.commands.end_leases(&self.io, lost).await;
                }
            }
        };
        io.finish(work).await;
    }

    /// Gives up all leases by [`Commands::give_up`].
    pub async fn give_up(mut self, has_failed: bool) {
        if self.left.is_empty() {
            return;
        }
        let io = self.io.clone();
        let work = async move {
            let left = mem::take(&mut self.left);
            let commands = left.iter().map(|lease| self.commands.give_up(lease, has_failed));
            self.commands.end_leases(&self.io, commands.collect()).await;
        };
        io.finish(work).await;
    }
}
