//! The operations of a filter.

use redis::{Cmd, RedisError, Value};

use super::{Batch, Io, Reply, command, one};
use crate::batch::{Chunk, extend, windows};
use crate::error::Answers;
use crate::replies::{self, Info, Plan, Reply as _, unexpected};
use crate::{BatchItem, Error, Insert, Options};

/// A filter's operations. `create`: whether an add may create a missing filter.
#[derive(Debug, Clone)]
pub struct FilterCore {
    pub key: Vec<u8>,
    pub create: bool,
}

impl FilterCore {
    /// Sends a command about the key.
    async fn send(&self, io: &impl Io, command: Cmd) -> Result<Value, Error> {
        one(io, command).await.map_err(|error| Error::named(error, &self.key, Vec::new()))
    }

    /// Sends a command whose only argument is the key, and reads its reply.
    pub async fn get<T: replies::Reply>(&self, io: &impl Io, name: &str) -> Result<T, Error> {
        T::read(&self.send(io, command(name, &self.key)).await?)
    }

    /// Sends a command about an item, and reads its reply.
    pub async fn get_item<T: replies::Reply>(&self, io: &impl Io, name: &str, item: &[u8]) -> Result<T, Error> {
        let mut command = command(name, &self.key);
        command.arg(item);
        T::read(&self.send(io, command).await?)
    }

    pub async fn reserve(&self, io: &impl Io, rate: f64, capacity: u64, options: &Options) -> Result<(), Error> {
        let mut command = command("BF.RESERVE", &self.key);
        command.arg(rate.to_string()).arg(capacity);
        options.write(&mut command);
        self.send(io, command).await.map(drop)
    }

    /// Creates the filter unless it exists. Returns whether it is new.
    pub async fn reserve_exist_ok(
        &self,
        io: &impl Io,
        rate: f64,
        capacity: u64,
        options: &Options,
    ) -> Result<bool, Error> {
        match self.reserve(io, rate, capacity, options).await {
            Ok(()) => Ok(true),
            Err(Error::FilterExists { .. }) => {
                // The reply is the same for a key of another type, for which this fails.
                self.get::<Info>(io, "BF.INFO").await?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends a batch of any size, window by window.
    pub async fn many<T: BatchItem>(
        &self,
        io: &impl Io,
        batch: Batch,
        items: impl IntoIterator<Item = T>,
    ) -> Result<Vec<bool>, Error> {
        let mut command = match batch {
            Batch::Add if self.create => command("BF.MADD", &self.key),
            Batch::Add => command("BF.INSERT", &self.key),
            Batch::Exists => command("BF.MEXISTS", &self.key),
            Batch::Delete => command("BF.MDEL", &self.key),
        };
        if matches!(batch, Batch::Add) && !self.create {
            command.arg("NOCREATE").arg("ITEMS");
        }
        self.batch(io, &command, items).await
    }

    pub async fn add(&self, io: &impl Io, item: &[u8]) -> Result<bool, Error> {
        let answers = self.many(io, Batch::Add, [item]).await?;
        Ok(answers.first().copied().unwrap_or_default())
    }

    /// Adds items, and creates a missing filter. Without items it only creates the filter.
    pub async fn insert<T: BatchItem>(
        &self,
        io: &impl Io,
        items: impl IntoIterator<Item = T>,
        insert: &Insert,
    ) -> Result<Vec<bool>, Error> {
        let mut command = command("BF.INSERT", &self.key);
        insert.write(&mut command);
        let mut items = items.into_iter().peekable();
        if items.peek().is_none() {
            return self.send(io, command).await.map(|_| Vec::new());
        }
        command.arg("ITEMS");
        self.batch(io, &command, items).await
    }

    pub async fn merge<K: AsRef<[u8]>>(&self, io: &impl Io, sources: impl IntoIterator<Item = K>) -> Result<(), Error> {
        let mut merge = command("BF.MERGE", &self.key);
        let mut has_sources = false;
        for source in sources {
            merge.arg(source.as_ref());
            has_sources = true;
        }
        if !has_sources {
            return Err(Error::Refused("merge needs a source".to_owned()));
        }
        self.send(io, merge).await.map(drop)
    }

    /// Sends a command with the items of a batch after its other arguments: up to 16 commands together.
    async fn batch<T: BatchItem>(
        &self,
        io: &impl Io,
        command: &Cmd,
        items: impl IntoIterator<Item = T>,
    ) -> Result<Vec<bool>, Error> {
        let mut answers = Vec::new();
        for window in windows(items) {
            extend(&mut answers, self.window(io, command, &window?).await)?;
        }
        Ok(answers)
    }

    /// Sends one command for each chunk, all together. Returns the first error, with the answers of all other commands.
    async fn window(&self, io: &impl Io, command: &Cmd, window: &[Chunk]) -> Result<Vec<bool>, Error> {
        let replies = io.ask(window.iter().map(|chunk| with_items(command, chunk)).collect(), None).await;
        let (answers, error) = collect(window, replies)?;
        match error {
            Some(error) => Err(Error::named(error, &self.key, answers)),
            None => Ok(answers.into_iter().map(Option::unwrap_or_default).collect()),
        }
    }
}

/// Returns a command with items after its other arguments.
pub fn with_items(command: &Cmd, items: &Chunk) -> Cmd {
    let mut command = command.clone();
    for item in items {
        command.arg(item);
    }
    command
}

/// Returns the answers of a batch in the order of its items, and its first error. A command that failed midway answers a shorter
/// array, whose last element is the error.
///
/// # Errors
/// A reply is not an array of answers.
pub fn collect(window: &[Chunk], replies: Vec<Reply>) -> Result<(Answers, Option<RedisError>), Error> {
    let mut answers = Vec::new();
    let mut first = None;
    for (chunk, reply) in window.iter().zip(replies) {
        let end = answers.len() + chunk.len();
        match reply {
            Ok(Value::Array(elements)) => {
                for element in elements.into_iter().take(chunk.len()) {
                    match element {
                        Value::ServerError(error) => {
                            first.get_or_insert(error.into());
                            answers.push(None);
                        }
                        answer => answers.push(Some(bool::read(&answer)?)),
                    }
                }
                if answers.len() < end && first.is_none() {
                    return Err(Error::UnexpectedReply("the server answered fewer items than were sent".to_owned()));
                }
            }
            Ok(other) => return Err(unexpected(&other)),
            Err(error) => {
                first.get_or_insert(error);
            }
        }
        answers.resize(end, None);
    }
    Ok((answers, first))
}

/// Returns the size of a filter with these options once it has `items` items.
pub async fn plan(
    io: &impl Io,
    rate: f64,
    capacity: u64,
    items: Option<u64>,
    options: &Options,
) -> Result<Plan, Error> {
    let mut plan = redis::cmd("BF.PLAN");
    plan.arg(rate.to_string()).arg(capacity);
    options.write(&mut plan);
    if let Some(items) = items {
        plan.arg("ITEMS").arg(items);
    }
    Plan::read(&one(io, plan).await?)
}
