//! A filter at one key, for tasks.

use tokio::io::{AsyncRead, AsyncWrite};

use super::Client;
use crate::core::{self, Batch, FilterCore, asynchronous};
use crate::dump::File;
use crate::filter::filter_methods;
use crate::{BatchItem, Error, Info, Insert, Item, Options, Plan, Stats};

/// A filter in a server.
///
/// ```no_run
/// use bloomgate_client::Options;
/// use bloomgate_client::aio::{Client, Filter};
///
/// # async fn example() -> Result<(), bloomgate_client::Error> {
/// let client = Client::open("redis://127.0.0.1/")?;
/// let seen = Filter::new(&client, "seen");
/// seen.reserve_exist_ok(0.001, 1_000_000, &Options::default()).await?;
/// if seen.add("https://example.org/").await? {
///     println!("new");
/// }
/// for (url, is_new) in ["a", "b"].iter().zip(seen.add_many(["a", "b"]).await?) {
///     println!("{url} {is_new}");
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Each method fails with [`Error::FilterMissing`], [`Error::FilterFull`], [`Error::FilterLoading`], [`Error::FilterExists`] or
/// [`Error::ModuleMissing`] where these apply, and otherwise with [`Error::Redis`].
#[derive(Debug, Clone)]
pub struct Filter {
    client: Client,
    core: FilterCore,
}

filter_methods!(asynchronous);

impl Filter {
    /// Writes the filter to a file, record by record (BF.SCANDUMP), in a few MiB of memory. Returns the bytes of data. Items
    /// that are added meanwhile may be missing. Does not work for valkey-bloom's layout.
    pub async fn dump(&self, file: impl AsyncWrite + Unpin) -> Result<u64, Error> {
        self.core.dump(&self.client, &mut File(file)).await
    }

    /// Creates the filter from a file of [`Self::dump`]. Fails with [`Error::FilterExists`] if the key exists, unless `replace`
    /// deletes it first. Nobody can use the filter before the last record. If loading fails, deletes the key. Returns the bytes
    /// of data.
    pub async fn load(&self, file: impl AsyncRead + Unpin, replace: bool) -> Result<u64, Error> {
        self.core.load(&self.client, &mut File(file), replace).await
    }
}
