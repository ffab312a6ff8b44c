//! A filter in many shards, for tasks.

use super::Client;
use crate::core::{Batch, ShardedCore, asynchronous, create_sharded};
use crate::sharded::sharded_methods;
use crate::{BatchItem, Error, Info, Item, Options};

/// A filter in many shards, each in its own slot, so that the nodes of a cluster share its memory and its load. A batch is sent
/// to all shards together. docs/sharding.md specifies it for the clients in all languages.
///
/// ```no_run
/// use bloomgate_client::Options;
/// use bloomgate_client::aio::{Client, ShardedFilter};
///
/// # async fn example() -> Result<(), bloomgate_client::Error> {
/// let client = Client::open("redis://127.0.0.1/")?;
/// let links = ShardedFilter::create(&client, "links", 0.001, 1_000_000_000, 64, &Options::default()).await?;
/// links.add_many(["https://example.org/", "https://example.org/about"]).await?;
/// assert!(links.exists("https://example.org/").await?);
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

sharded_methods!(asynchronous);
