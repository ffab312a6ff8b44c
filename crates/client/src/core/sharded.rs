//! The operations of a sharded filter.

use std::collections::BTreeMap;

use redis::{Cmd, Value};

use super::filter::{collect, with_items};
use super::{Batch, Io, Reply, command, one};
use crate::batch::{Chunk, extend, windows};
use crate::error::Answers;
use crate::replies::{self, Reply as _};
use crate::sharding::{check_shards, count_key, shard_capacity, shard_key, shard_of};
use crate::{BatchItem, Error, Info, Options};

/// The maximum number of shards to which small commands are sent together.
const TOGETHER: usize = 256;

/// Reads the number of shards.
async fn read_count(io: &impl Io, name: &[u8]) -> Result<Option<u32>, Error> {
    match one(io, command("GET", &count_key(name))).await? {
        Value::Nil => Ok(None),
        value => match replies::integer(&value).and_then(|count| u32::try_from(count).ok()) {
            Some(count) => check_shards(count).map(Some),
            None => Err(replies::unexpected(&value)),
        },
    }
}

/// Sends one command for each key, and reads the replies. Fails with the first error.
async fn each<T: replies::Reply>(io: &impl Io, keys: &[Vec<u8>], make: impl Fn(&[u8]) -> Cmd) -> Result<Vec<T>, Error> {
    let mut results = Vec::with_capacity(keys.len());
    for part in keys.chunks(TOGETHER) {
        let replies = io.ask(part.iter().map(|key| make(key)).collect(), None).await;
        for (key, reply) in part.iter().zip(replies) {
            results.push(T::read(&reply.map_err(|error| Error::named(error, key, Vec::new()))?)?);
        }
    }
    Ok(results)
}

/// Creates the shards of a filter, and opens it. With `resume`, some of them may exist.
pub async fn create(
    io: &impl Io,
    name: &[u8],
    rate: f64,
    capacity: u64,
    shards: u32,
    options: &Options,
    resume: bool,
) -> Result<ShardedCore, Error> {
    check_shards(shards)?;
    let mut set = command("SET", &count_key(name));
    set.arg(shards).arg("NX");
    if one(io, set).await? == Value::Nil {
        // Fails if the key has another type or is not a number of shards.
        let found = read_count(io, name).await?;
        if !resume || found != Some(shards) {
            return Err(Error::FilterExists { key: name.to_vec() });
        }
    }
    let keys: Vec<_> = (0..shards).map(|shard| shard_key(name, shard)).collect();
    let reserve = |key: &[u8]| {
        let mut reserve = command("BF.RESERVE", key);
        reserve.arg(rate.to_string()).arg(shard_capacity(capacity, shards));
        options.write(&mut reserve);
        reserve
    };
    for part in keys.chunks(TOGETHER) {
        let replies = io.ask(part.iter().map(|key| reserve(key)).collect(), None).await;
        for (key, reply) in part.iter().zip(replies) {
            match reply.map_err(|error| Error::named(error, key, Vec::new())) {
                Err(Error::FilterExists { .. }) if resume => (),
                reply => _ = reply?,
            }
        }
    }
    ShardedCore::open(io, name).await
}

/// An open sharded filter.
#[derive(Debug, Clone)]
pub struct ShardedCore {
    pub name: Vec<u8>,
    pub shards: u32,
}

impl ShardedCore {
    /// Reads the number of shards, and checks that all of them exist.
    pub async fn open(io: &impl Io, name: &[u8]) -> Result<Self, Error> {
        let shards = read_count(io, name).await?;
        let shards = shards.ok_or_else(|| Error::FilterMissing { key: name.to_vec(), answers: Vec::new() })?;
        let opened = Self { name: name.to_vec(), shards };
        opened.verify(io).await?;
        Ok(opened)
    }

    /// Returns the keys of the shards in order.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        (0..self.shards).map(|shard| shard_key(&self.name, shard)).collect()
    }

    /// Fails if a shard is missing.
    pub async fn verify(&self, io: &impl Io) -> Result<(), Error> {
        let keys = self.keys();
        let exist: Vec<bool> = each(io, &keys, |key| command("EXISTS", key)).await?;
        match keys.into_iter().zip(exist).find(|(_, exists)| !exists) {
            Some((key, _)) => Err(Error::ShardMissing { key, answers: Vec::new() }),
            None => Ok(()),
        }
    }

    /// Sends a batch of any size, window by window.
    pub async fn many<T: BatchItem>(
        &self,
        io: &impl Io,
        batch: Batch,
        items: impl IntoIterator<Item = T>,
    ) -> Result<Vec<bool>, Error> {
        let mut answers = Vec::new();
        for window in windows(items) {
            extend(&mut answers, self.window(io, batch, &window?).await)?;
        }
        Ok(answers)
    }

    /// Sends an item to its shard.
    pub async fn one(&self, io: &impl Io, batch: Batch, item: &[u8]) -> Result<bool, Error> {
        let answers = self.many(io, batch, [item]).await?;
        Ok(answers.first().copied().unwrap_or_default())
    }

    /// Sends each item to its shard, to all shards together. Adds fail for a missing shard; other commands do not, so EXISTS is
    /// also sent for each shard. Every batch reads the number of shards again.
    async fn window(&self, io: &impl Io, batch: Batch, window: &[Chunk]) -> Result<Vec<bool>, Error> {
        let items: Vec<&Vec<u8>> = window.iter().flatten().collect();
        let mut by_shard: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (position, item) in items.iter().enumerate() {
            by_shard.entry(shard_of(item, self.shards)).or_default().push(position);
        }
        let mut commands = Vec::new();
        let mut chunks: Vec<Chunk> = Vec::new();
        for (shard, positions) in &by_shard {
            let head = self.head(batch, *shard);
            let of_shard = positions.iter().filter_map(|position| items.get(*position));
            // Reading items from memory cannot fail.
            for chunk in windows(of_shard).flatten().flatten() {
                commands.push(with_items(&head, &chunk));
                chunks.push(chunk);
            }
        }
        let checked: Vec<u32> =
            if matches!(batch, Batch::Add) { Vec::new() } else { by_shard.keys().copied().collect() };
        commands.extend(checked.iter().map(|shard| command("EXISTS", &shard_key(&self.name, *shard))));
        commands.push(command("GET", &count_key(&self.name)));
        let replies = io.ask(commands, None).await;
        let (in_order_of_shards, error) = self.read(replies, &chunks, &checked);
        let mut answers = vec![None; items.len()];
        for (position, answer) in by_shard.into_values().flatten().zip(in_order_of_shards) {
            if let Some(place) = answers.get_mut(position) {
                *place = answer;
            }
        }
        match error {
            Some(error) => Err(error.with(answers)),
            None => Ok(answers.into_iter().map(Option::unwrap_or_default).collect()),
        }
    }

    /// Returns the command of a batch up to its items.
    fn head(&self, batch: Batch, shard: u32) -> Cmd {
        let key = shard_key(&self.name, shard);
        match batch {
            Batch::Add => {
                let mut add = command("BF.INSERT", &key);
                add.arg("NOCREATE").arg("ITEMS");
                add
            }
            Batch::Exists => command("BF.MEXISTS", &key),
            Batch::Delete => command("BF.MDEL", &key),
        }
    }

    /// Reads the replies to a batch's commands, to the checks that shards exist, and the number of shards. Returns the answers in
    /// the order of the shards, and the first error. If a shard is missing or the number has changed, the answers are discarded.
    fn read(&self, mut replies: Vec<Reply>, chunks: &[Chunk], checked: &[u32]) -> (Answers, Option<Error>) {
        let count = replies.pop().unwrap_or(Ok(Value::Nil)).map(|count| replies::integer(&count));
        let exist = replies.split_off(chunks.len().min(replies.len()));
        for (shard, exists) in checked.iter().zip(exist) {
            match exists.map_err(Error::from).and_then(|exists| bool::read(&exists)) {
                Ok(true) => (),
                Ok(false) => {
                    let key = shard_key(&self.name, *shard);
                    return (Vec::new(), Some(Error::ShardMissing { key, answers: Vec::new() }));
                }
                Err(error) => return (Vec::new(), Some(error)),
            }
        }
        let (answers, error) = match collect(chunks, replies) {
            Ok((answers, error)) => (answers, error),
            Err(error) => return (Vec::new(), Some(error)),
        };
        let error = error.map(|error| match Error::named(error, &self.name, Vec::new()) {
            Error::FilterMissing { key, answers } => Error::ShardMissing { key, answers },
            other => other,
        });
        match (error, count) {
            (Some(error), _) => (answers, Some(error)),
            (None, Err(error)) => (answers, Some(error.into())),
            (None, Ok(count)) if count == Some(u64::from(self.shards)) => (answers, None),
            (None, Ok(_)) => {
                let name = self.name.clone();
                (Vec::new(), Some(Error::ShardsChanged { name, answers: Vec::new() }))
            }
        }
    }

    /// Returns the number of items in all shards. BF.CARD answers 0 for a missing key, so the shards are checked first.
    pub async fn card(&self, io: &impl Io) -> Result<u64, Error> {
        self.verify(io).await?;
        let cards: Vec<u64> = each(io, &self.keys(), |key| command("BF.CARD", key)).await?;
        Ok(cards.into_iter().sum())
    }

    pub async fn infos(&self, io: &impl Io) -> Result<Vec<Info>, Error> {
        each(io, &self.keys(), |key| command("BF.INFO", key)).await
    }

    /// Returns the sums over all shards. The layers and the expansion are those of the shard with the most layers.
    pub async fn info(&self, io: &impl Io) -> Result<Info, Error> {
        let infos = self.infos(io).await?;
        let deepest = infos.iter().max_by_key(|info| info.layers);
        let sum = |of: fn(&Info) -> u64| infos.iter().map(of).fold(0, u64::saturating_add);
        Ok(Info {
            capacity: sum(|info| info.capacity),
            size_bytes: sum(|info| info.size_bytes),
            layers: deepest.map_or(0, |info| info.layers),
            items: sum(|info| info.items),
            expansion: deepest.and_then(|info| info.expansion),
        })
    }

    pub async fn clear(&self, io: &impl Io) -> Result<(), Error> {
        each::<()>(io, &self.keys(), |key| command("BF.CLEAR", key)).await.map(drop)
    }

    /// Reads the number of shards again.
    pub async fn reopen(&mut self, io: &impl Io) -> Result<(), Error> {
        *self = Self::open(io, &self.name).await?;
        Ok(())
    }

    pub async fn merge_into(&self, io: &impl Io, destination: &[u8]) -> Result<(), Error> {
        self.verify(io).await?;
        let mut set = command("SET", &count_key(destination));
        set.arg(self.shards).arg("NX");
        if one(io, set).await? == Value::Nil {
            let other = Self::open(io, destination).await?;
            if other.shards != self.shards {
                let text = format!("the destination has {} shards, not {}", other.shards, self.shards);
                return Err(Error::Refused(text));
            }
        }
        let numbers: Vec<u32> = (0..self.shards).collect();
        for part in numbers.chunks(TOGETHER) {
            let merge = |shard: &u32| {
                let mut merge = command("BF.MERGE", &shard_key(destination, *shard));
                merge.arg(shard_key(&self.name, *shard));
                merge
            };
            let replies = io.ask(part.iter().map(merge).collect(), None).await;
            for (shard, reply) in part.iter().zip(replies) {
                reply.map_err(|error| Error::named(error, &shard_key(destination, *shard), Vec::new()))?;
            }
        }
        Ok(())
    }

    /// Deletes the number first, so that the filter can no longer be opened.
    pub async fn drop(&self, io: &impl Io) -> Result<(), Error> {
        one(io, command("UNLINK", &count_key(&self.name))).await?;
        each::<()>(io, &self.keys(), |key| command("UNLINK", key)).await.map(drop)
    }

    /// Copies shard i to i + n, record by record, and then sets the number. Copies of an interrupted attempt are replaced; they
    /// are not used before the number is set.
    pub async fn double(&mut self, io: &impl Io) -> Result<(), Error> {
        self.verify(io).await?;
        let doubled = check_shards(self.shards.saturating_mul(2))?;
        for shard in 0..self.shards {
            self.copy(io, &shard_key(&self.name, shard), &shard_key(&self.name, shard + self.shards)).await?;
        }
        let mut set = command("SET", &count_key(&self.name));
        set.arg(doubled);
        one(io, set).await?;
        self.shards = doubled;
        Ok(())
    }

    async fn copy(&self, io: &impl Io, from: &[u8], to: &[u8]) -> Result<(), Error> {
        let named = |key: &[u8]| {
            let key = key.to_vec();
            move |error| Error::named(error, &key, Vec::new())
        };
        one(io, command("UNLINK", to)).await?;
        let mut iterator = 0;
        loop {
            let mut scan = command("BF.SCANDUMP", from);
            scan.arg(iterator);
            let reply = one(io, scan).await.map_err(named(from))?;
            let (next, data) = replies::record(&reply)?;
            if next == 0 {
                return Ok(());
            }
            iterator = next;
            let mut load = command("BF.LOADCHUNK", to);
            load.arg(iterator).arg(data);
            one(io, load).await.map_err(named(to))?;
        }
    }
}
