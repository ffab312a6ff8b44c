//! Writing through the guard, and filling its filter.

use std::sync::Arc;
use std::time::Instant;

use redis::{Cmd, Value};

use super::commands::Commands;
use super::found::spread;
use super::read::REPEAT;
use super::{BATCH, Io, Reply, command, milliseconds};
use crate::batch::{extend, windows};
use crate::core::filter::{FilterCore, collect, with_items};
use crate::guard_options::Durability;
use crate::keys::filling_name;
use crate::replies;
use crate::{BatchItem, Error, Options};

impl Durability {
    /// Returns the command to send after writes, **on the same connection**: WAIT and WAITAOF wait for the writes on their own
    /// connection, and answer at once on another.
    fn command(&self) -> Option<Cmd> {
        let mut command = redis::cmd(if self.aof { "WAITAOF" } else { "WAIT" });
        if self.aof {
            command.arg(1);
        }
        command.arg(self.replicas).arg(milliseconds(self.timeout));
        self.is_asked().then_some(command)
    }

    /// Sends writes, and waits until they are as durable as required.
    async fn ask(&self, io: &impl Io, mut commands: Vec<Cmd>) -> (Vec<Reply>, Option<Error>) {
        let Some(command) = self.command() else { return (io.ask(commands, None).await, None) };
        commands.push(command);
        let mut replies = io.ask(commands, Some(self.timeout)).await;
        let lost = self.take_error(&mut replies);
        (replies, lost)
    }

    /// Removes the reply to that command from the end of the replies. Returns its error, if any.
    fn take_error(&self, replies: &mut Vec<Reply>) -> Option<Error> {
        let reply = match replies.pop()? {
            Ok(reply) => reply,
            Err(error) => return Some(error.into()),
        };
        let (on_disk, replicas) = match &reply {
            Value::Array(parts) => {
                let mut parts = parts.iter().map(replies::integer);
                (parts.next().flatten()? > 0, parts.next().flatten()?)
            }
            other => (true, replies::integer(other).unwrap_or_default()),
        };
        if !on_disk {
            return Some(Error::NotDurable("the write is not in the server's append-only file yet".to_owned()));
        }
        let enough = replicas >= u64::from(self.replicas);
        let text = || Error::NotDurable(format!("{replicas} of {} replicas have the write", self.replicas));
        (!enough).then(text)
    }
}

impl Commands {
    /// Announces changes before their commit. Fails with the first error. With a feed it does nothing: the follower announces
    /// each change.
    pub async fn announce(&self, io: &impl Io, ids: &[Vec<u8>]) -> Result<(), Error> {
        if self.feed.is_some() {
            return Ok(());
        }
        self.change(io, ids).await.into_iter().find_map(|error| error).map_or(Ok(()), Err)
    }

    /// Confirms changes after their commit. Repeated until the server has answered for every id, for up to `patience`, even if the
    /// caller is cancelled.
    pub async fn confirm<I: Io>(self: &Arc<Self>, io: &I, ids: Vec<Vec<u8>>) -> Result<(), Error> {
        let confirmed = io.finish(Arc::clone(self).confirm_all(io.clone(), ids.clone())).await;
        confirmed.unwrap_or(Err(Error::Unconfirmed { ids }))
    }

    async fn confirm_all<I: Io>(self: Arc<Self>, io: I, ids: Vec<Vec<u8>>) -> Result<(), Error> {
        let begun = Instant::now();
        let mut left = if self.feed.is_some() { Vec::new() } else { ids };
        while !left.is_empty() {
            let errors = self.change(&io, &left).await;
            left = left.into_iter().zip(errors).filter(|(_, error)| error.is_some()).map(|(id, _)| id).collect();
            if !left.is_empty() && begun.elapsed() >= self.options.patience {
                return Err(Error::Unconfirmed { ids: left });
            }
            if !left.is_empty() {
                io.sleep(REPEAT).await;
            }
        }
        Ok(())
    }

    /// Announces a change of each id, to the filters that are being filled first. Returns an error or `None` for each.
    async fn change(&self, io: &impl Io, ids: &[Vec<u8>]) -> Vec<Option<Error>> {
        let mut errors = Vec::with_capacity(ids.len());
        for part in ids.chunks(BATCH) {
            let (replies, lost) = self.options.durability.ask(io, self.changes(part)).await;
            self.record(&replies);
            // The answers of each filter, in the order of the ids.
            let answers: Vec<Reply> = replies.into_iter().flat_map(|reply| spread(reply, part.len())).collect();
            for position in 0..part.len() {
                let mut of_id = answers.iter().skip(position).step_by(part.len());
                let error = of_id.find_map(|answer| answer.as_ref().err().cloned().map(Error::of_guard));
                errors.push(lost.clone().or(error));
            }
        }
        errors
    }

    /// Returns the commands that announce changes, one for each filter.
    fn changes(&self, ids: &[Vec<u8>]) -> Vec<Cmd> {
        let filters = self.options.announce_to.iter().chain([&self.filter]);
        let change = |filter: &Vec<u8>| {
            let is_one = ids.len() == 1;
            let mut changed = command(if is_one { "BF.CHANGED" } else { "BF.MCHANGED" }, filter);
            if !is_one {
                changed.arg("ITEMS");
            }
            for id in ids {
                changed.arg(id).arg(self.cache_key(id));
            }
            changed
        };
        filters.map(change).collect()
    }

    /// Deletes ids from the filter. Fails with the first error.
    pub async fn forget(&self, io: &impl Io, ids: &[Vec<u8>]) -> Result<(), Error> {
        let ids = if self.feed.is_some() { &[] } else { ids };
        for part in ids.chunks(BATCH) {
            let delete = with_items(&command("BF.MDEL", &self.filter), &part.to_vec());
            for answer in crate::core::one(io, delete).await.map(|reply| spread(Ok(reply), 1))? {
                answer?;
            }
        }
        Ok(())
    }
}

/// Fills the filter of a guard under another name, and renames it once it contains every id and is durable. Returns how many ids were
/// new. If the source of the ids fails, the filter is not renamed.
pub async fn fill_filter<T: BatchItem>(
    io: &impl Io,
    key: &[u8],
    ids: impl IntoIterator<Item = T>,
    rate: f64,
    capacity: u64,
    options: &Options,
    durability: &Durability,
) -> Result<usize, Error> {
    let filling = Filling::begin(io, key, rate, capacity, options, durability).await?;
    let new = filling.add(io, ids).await?;
    filling.finish(io).await?;
    Ok(new)
}

/// A filter that is being filled.
struct Filling {
    key: Vec<u8>,
    filter: FilterCore,
    durability: Durability,
}

impl Filling {
    /// Creates the filter under its filling name.
    async fn begin(
        io: &impl Io,
        key: &[u8],
        rate: f64,
        capacity: u64,
        options: &Options,
        durability: &Durability,
    ) -> Result<Self, Error> {
        durability.check(io.is_cluster())?;
        let filter = FilterCore { key: filling_name(key)?, create: false };
        filter.reserve(io, rate, capacity, options).await?;
        Ok(Self { key: key.to_vec(), filter, durability: durability.clone() })
    }

    /// Adds ids, and waits after each batch until it is as durable as required. Returns how many were new.
    ///
    /// With SYNC, the server also replicates ids that were not new: another client may have added them, and the replicas may
    /// lack its writes.
    async fn add<T: BatchItem>(&self, io: &impl Io, ids: impl IntoIterator<Item = T>) -> Result<usize, Error> {
        let mut insert = command("BF.INSERT", &self.filter.key);
        insert.arg("NOCREATE").arg("SYNC").arg("ITEMS");
        let mut new = Vec::new();
        for window in windows(ids) {
            let window = window?;
            let commands = window.iter().map(|chunk| with_items(&insert, chunk)).collect();
            let (replies, lost) = self.durability.ask(io, commands).await;
            let (answers, error) = collect(&window, replies)?;
            let answers = match (error, lost) {
                (Some(error), _) => Err(Error::named(error, &self.filter.key, answers)),
                (None, Some(lost)) => Err(lost),
                (None, None) => Ok(answers.into_iter().map(Option::unwrap_or_default).collect()),
            };
            extend(&mut new, answers)?;
        }
        Ok(new.into_iter().filter(|is_new| *is_new).count())
    }

    /// Renames the filter to its final name.
    async fn finish(&self, io: &impl Io) -> Result<(), Error> {
        let mut rename = command("RENAME", &self.filter.key);
        rename.arg(&self.key);
        let (mut replies, lost) = self.durability.ask(io, vec![rename]).await;
        if let Some(Err(error)) = replies.pop() {
            return Err(Error::named(error, &self.filter.key, Vec::new()));
        }
        lost.map_or(Ok(()), Err)
    }
}
