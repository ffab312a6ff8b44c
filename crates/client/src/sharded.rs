//! A filter in many shards, for threads.

use crate::core::{Batch, ShardedCore, create_sharded, now};
use crate::{Client, Error, Info, Item, Options};

/// A filter in many shards, each in a slot of its own, so that the nodes of a cluster share its memory and its load. A batch is
/// sent to all shards together. docs/sharding.md has the contract, which clients in other languages share.
///
/// ```no_run
/// use bloomgate_client::{Client, Options, ShardedFilter};
///
/// # fn main() -> Result<(), bloomgate_client::Error> {
/// let client = Client::open("redis://127.0.0.1/")?;
/// let links = ShardedFilter::create(&client, "links", 0.001, 1_000_000_000, 64, &Options::default())?;
/// links.add_many(["https://example.org/", "https://example.org/about"])?;
/// assert!(links.exists("https://example.org/")?);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Each call reads the number of shards again, and fails with [`Error::ShardsChanged`] if it was doubled: then open the filter
/// again. A missing shard is [`Error::ShardMissing`], never an answer.
#[derive(Debug, Clone)]
pub struct ShardedFilter {
    client: Client,
    core: ShardedCore,
}

impl ShardedFilter {
    /// Opens a filter. Fails with [`Error::FilterMissing`] if there is none with this name.
    pub fn open(client: &Client, name: impl AsRef<[u8]>) -> Result<Self, Error> {
        Ok(Self { client: client.clone(), core: now(ShardedCore::open(client, name.as_ref()))? })
    }

    /// Creates a filter for `capacity` items in 1 to 16384 shards. Each has room for its part and four standard deviations.
    /// Filters that are to be merged need the same seed. Fails with [`Error::FilterExists`] if there is one with this name.
    pub fn create(
        client: &Client,
        name: impl AsRef<[u8]>,
        rate: f64,
        capacity: u64,
        shards: u32,
        options: &Options,
    ) -> Result<Self, Error> {
        now(create_sharded(client, name.as_ref(), rate, capacity, shards, options, false))?;
        Self::open(client, name)
    }

    /// Completes a creation that was interrupted. Do not use it to replace a lost shard: the new shard would deny the items of the
    /// lost one.
    pub fn resume(
        client: &Client,
        name: impl AsRef<[u8]>,
        rate: f64,
        capacity: u64,
        shards: u32,
        options: &Options,
    ) -> Result<Self, Error> {
        now(create_sharded(client, name.as_ref(), rate, capacity, shards, options, true))?;
        Self::open(client, name)
    }

    /// Returns the filter's name.
    pub fn name(&self) -> &[u8] {
        &self.core.name
    }

    /// Returns the number of shards.
    pub fn shards(&self) -> u32 {
        self.core.shards
    }

    /// Returns the keys of the shards in order.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.core.keys()
    }

    /// Adds an item. Returns true if it is certainly new.
    pub fn add(&self, item: impl Item) -> Result<bool, Error> {
        now(self.core.one(&self.client, Batch::Add, &item.item_bytes()))
    }

    /// Adds any number of items. Returns the answers in the order of the items.
    pub fn add_many<T: Item>(&self, items: impl IntoIterator<Item = T>) -> Result<Vec<bool>, Error> {
        now(self.core.many(&self.client, Batch::Add, items))
    }

    /// Returns false if the item is certainly not in the filter.
    pub fn exists(&self, item: impl Item) -> Result<bool, Error> {
        now(self.core.one(&self.client, Batch::Exists, &item.item_bytes()))
    }

    /// Looks up any number of items.
    pub fn exists_many<T: Item>(&self, items: impl IntoIterator<Item = T>) -> Result<Vec<bool>, Error> {
        now(self.core.many(&self.client, Batch::Exists, items))
    }

    /// Deletes items; the shards need the hash `siphash` or counters.
    pub fn delete_many<T: Item>(&self, items: impl IntoIterator<Item = T>) -> Result<Vec<bool>, Error> {
        now(self.core.many(&self.client, Batch::Delete, items))
    }

    /// Returns the number of items in all shards.
    pub fn card(&self) -> Result<u64, Error> {
        now(self.core.card(&self.client))
    }

    /// Returns BF.INFO of each shard in order.
    pub fn infos(&self) -> Result<Vec<Info>, Error> {
        now(self.core.infos(&self.client))
    }

    /// Returns the sums over all shards; `layers` and `expansion` are those of the shard with the most layers.
    pub fn info(&self) -> Result<Info, Error> {
        now(self.core.info(&self.client))
    }

    /// Fails with [`Error::ShardMissing`] if a shard is missing.
    pub fn verify(&self) -> Result<(), Error> {
        now(self.core.verify(&self.client))
    }

    /// Reads the number of shards again.
    pub fn reopen(&mut self) -> Result<(), Error> {
        now(self.core.reopen(&self.client))
    }

    /// Empties all shards.
    pub fn clear(&self) -> Result<(), Error> {
        now(self.core.clear(&self.client))
    }

    /// Adds this filter's items to the sharded filter `destination`, which is created if it is missing. Fails with
    /// [`Error::Refused`] if it has another number of shards. Both need the same rate, capacity and seed.
    pub fn merge_into(&self, destination: impl AsRef<[u8]>) -> Result<(), Error> {
        now(self.core.merge_into(&self.client, destination.as_ref()))
    }

    /// Deletes all shards and their number.
    pub fn drop(&self) -> Result<(), Error> {
        now(self.core.drop(&self.client))
    }

    /// Doubles the number of shards by copying each (BF.SCANDUMP). No item is denied. Nobody may add meanwhile: an item that is
    /// added to a shard after it was copied would be denied. The copies keep the items of both halves, so the shards are as full
    /// as before, and the new room is for new items.
    pub fn double(&mut self) -> Result<(), Error> {
        now(self.core.double(&self.client))
    }
}
