//! A filter at one key, for tasks.

use super::Client;
use crate::core::{self, Batch, FilterCore, asynchronous};
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
/// [`Error::ModuleMissing`] where they apply, and otherwise with [`Error::Redis`].
#[derive(Debug, Clone)]
pub struct Filter {
    client: Client,
    core: FilterCore,
}

filter_methods!(asynchronous);
