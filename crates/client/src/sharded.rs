//! A filter in many shards, for threads.

use crate::core::{Batch, ShardedCore, create_sharded, now};
use crate::{Client, Error, Item, Options};

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
        now(create_sharded(client, name.as_ref(), rate, capacity, shards, options))?;
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
