//! A filter in many shards, for threads, and the methods that sharded filters for threads and for tasks share.

use crate::core::{Batch, ShardedCore, blocking, create_sharded};
use crate::{BatchItem, Client, Error, Info, Item, Options};

/// A filter in many shards, each in its own slot, so that the nodes of a cluster share its memory and its load. A batch is sent
/// to all shards together. docs/sharding.md specifies it for the clients in all languages.
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
/// Each call reads the number of shards again, and fails with [`Error::ShardsChanged`] if it was doubled; the filter must then
/// be opened again. A missing shard always causes [`Error::ShardMissing`].
#[derive(Debug, Clone)]
pub struct ShardedFilter {
    client: Client,
    core: ShardedCore,
}

/// Defines the methods of a sharded filter for threads or tasks.
macro_rules! sharded_methods {
    ($colour:ident) => {
        impl ShardedFilter {
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

            $colour! {
                /// Opens a filter. Fails with [`Error::FilterMissing`] if no filter has this name.
                pub async fn open(client: &Client, name: impl AsRef<[u8]>) -> Result<Self, Error> {
                    Ok(Self { client: client.clone(), core: ShardedCore::open(client, name.as_ref()).await? })
                }

                /// Creates a filter for `capacity` items in 1 to 16384 shards. Each has room for its part and four standard
                /// deviations. Filters that are to be merged need the same seed. Fails with [`Error::FilterExists`] if a filter
                /// has this name.
                pub async fn create(
                    client: &Client,
                    name: impl AsRef<[u8]>,
                    rate: f64,
                    capacity: u64,
                    shards: u32,
                    options: &Options,
                ) -> Result<Self, Error> {
                    let core = create_sharded(client, name.as_ref(), rate, capacity, shards, options, false).await?;
                    Ok(Self { client: client.clone(), core })
                }

                /// Completes an interrupted creation. Do not use it to replace a lost shard: its items would be reported
                /// absent.
                pub async fn resume(
                    client: &Client,
                    name: impl AsRef<[u8]>,
                    rate: f64,
                    capacity: u64,
                    shards: u32,
                    options: &Options,
                ) -> Result<Self, Error> {
                    let core = create_sharded(client, name.as_ref(), rate, capacity, shards, options, true).await?;
                    Ok(Self { client: client.clone(), core })
                }

                /// Adds an item. Returns true if it is certainly new.
                pub async fn add(&self, item: impl Item) -> Result<bool, Error> {
                    self.core.one(&self.client, Batch::Add, &item.item_bytes()).await
                }

                /// Adds any number of items. Returns the answers in the order of the items.
                pub async fn add_many<T: BatchItem>(&self, items: impl IntoIterator<Item = T>) -> Result<Vec<bool>, Error> {
                    self.core.many(&self.client, Batch::Add, items).await
                }

                /// Returns false if the item is certainly not in the filter.
                pub async fn exists(&self, item: impl Item) -> Result<bool, Error> {
                    self.core.one(&self.client, Batch::Exists, &item.item_bytes()).await
                }

                /// Looks up items.
                pub async fn exists_many<T: BatchItem>(&self, items: impl IntoIterator<Item = T>) -> Result<Vec<bool>, Error> {
                    self.core.many(&self.client, Batch::Exists, items).await
                }

                /// Deletes items; the shards need `cuckoo`, the hash `siphash` or counters.
                pub async fn delete_many<T: BatchItem>(&self, items: impl IntoIterator<Item = T>) -> Result<Vec<bool>, Error> {
                    self.core.many(&self.client, Batch::Delete, items).await
                }

                /// Returns the number of items in all shards.
                pub async fn card(&self) -> Result<u64, Error> {
                    self.core.card(&self.client).await
                }

                /// Returns BF.INFO of each shard in order.
                pub async fn infos(&self) -> Result<Vec<Info>, Error> {
                    self.core.infos(&self.client).await
                }

                /// Returns the sums over all shards; `layers` and `expansion` are those of the shard with the most layers.
                pub async fn info(&self) -> Result<Info, Error> {
                    self.core.info(&self.client).await
                }

                /// Fails with [`Error::ShardMissing`] if a shard is missing.
                pub async fn verify(&self) -> Result<(), Error> {
                    self.core.verify(&self.client).await
                }

                /// Reads the number of shards again.
                pub async fn reopen(&mut self) -> Result<(), Error> {
                    self.core.reopen(&self.client).await
                }

                /// Empties all shards.
                pub async fn clear(&self) -> Result<(), Error> {
                    self.core.clear(&self.client).await
                }

                /// Adds this filter's items to the sharded filter `destination`, which is created if it is missing. Fails with
                /// [`Error::Refused`] if the numbers of shards differ. Both need the same rate, capacity and seed.
                pub async fn merge_into(&self, destination: impl AsRef<[u8]>) -> Result<(), Error> {
                    self.core.merge_into(&self.client, destination.as_ref()).await
                }

                /// Deletes all shards and their number.
                pub async fn drop(&self) -> Result<(), Error> {
                    self.core.drop(&self.client).await
                }

                /// Doubles the number of shards by copying each (BF.SCANDUMP). No item is reported absent. Do not add items while it runs:
                /// an item that is added to a shard after it was copied would be reported absent. Each copy keeps the items of both halves,
                /// so the shards are as full as before, and only their further capacity is doubled.
                pub async fn double(&mut self) -> Result<(), Error> {
                    self.core.double(&self.client).await
                }
            }
        }
    };
}
#[cfg(feature = "tokio")]
pub(crate) use sharded_methods;

sharded_methods!(blocking);
