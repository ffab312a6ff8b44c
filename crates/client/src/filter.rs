//! A filter at one key, for threads, and the methods that filters for threads and for tasks share.

use crate::core::{self, Batch, FilterCore, blocking};
use crate::{BatchItem, Client, Error, Info, Insert, Item, Options, Plan, Stats};

/// A filter in a server.
///
/// ```no_run
/// use bloomgate_client::{Client, Filter, Options};
///
/// # fn main() -> Result<(), bloomgate_client::Error> {
/// let client = Client::open("redis://127.0.0.1/")?;
/// let seen = Filter::new(&client, "seen");
/// seen.reserve_exist_ok(0.001, 1_000_000, &Options::default())?;
/// if seen.add("https://example.org/")? {
///     println!("new");
/// }
/// for (url, is_new) in ["a", "b"].iter().zip(seen.add_many(["a", "b"])?) {
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

/// Defines the function and the methods of a filter for threads or tasks.
macro_rules! filter_methods {
    ($colour:ident) => {
        $colour! {
            /// Returns the size of a filter with these options once it has `items` items (BF.PLAN). Creates nothing.
            ///
            /// # Errors
            /// [`Error::ModuleMissing`]; invalid options; the server cannot be reached.
            pub async fn plan(
                client: &Client,
                rate: f64,
                capacity: u64,
                items: Option<u64>,
                options: &Options,
            ) -> Result<Plan, Error> {
                core::plan(client, rate, capacity, items, options).await
            }
        }

        impl Filter {
            /// Returns the filter at a key. Sends nothing.
            pub fn new(client: &Client, key: impl AsRef<[u8]>) -> Self {
                Self { client: client.clone(), core: FilterCore { key: key.as_ref().to_vec(), create: true } }
            }

            /// Makes an add to a missing filter fail with [`Error::FilterMissing`], instead of creating a filter from the
            /// server's configuration.
            #[must_use]
            pub fn without_create(mut self) -> Self {
                self.core.create = false;
                self
            }

            /// Returns the filter's key.
            pub fn key(&self) -> &[u8] {
                &self.core.key
            }

            $colour! {
                /// Creates the filter. `rate` is the false positive rate, between 0 and 1; `capacity` is the number of items
                /// before it grows.
                pub async fn reserve(&self, rate: f64, capacity: u64, options: &Options) -> Result<(), Error> {
                    self.core.reserve(&self.client, rate, capacity, options).await
                }

                /// Creates the filter unless it exists. Returns whether it is new. An existing filter is unchanged.
                pub async fn reserve_exist_ok(&self, rate: f64, capacity: u64, options: &Options) -> Result<bool, Error> {
                    self.core.reserve_exist_ok(&self.client, rate, capacity, options).await
                }

                /// Adds an item. Returns true if it is certainly new, false if it was present or is a false positive.
                pub async fn add(&self, item: impl Item) -> Result<bool, Error> {
                    self.core.add(&self.client, &item.item_bytes()).await
                }

                /// Adds items, up to 500 or 1 MiB per command and 16 commands at a time. Returns the answers in the order of
                /// the items. [`Error::answers`] returns the known answers after a failure. If the source of the items fails,
                /// the error is [`Error::Caller`], and earlier items may have been added.
                pub async fn add_many<T: BatchItem>(&self, items: impl IntoIterator<Item = T>) -> Result<Vec<bool>, Error> {
                    self.core.many(&self.client, Batch::Add, items).await
                }

                /// Returns false if the item is certainly not in the filter, true if it is or is a false positive. A missing
                /// filter is empty.
                pub async fn exists(&self, item: impl Item) -> Result<bool, Error> {
                    self.core.get_item(&self.client, "BF.EXISTS", &item.item_bytes()).await
                }

                /// Looks up items.
                pub async fn exists_many<T: BatchItem>(&self, items: impl IntoIterator<Item = T>) -> Result<Vec<bool>, Error> {
                    self.core.many(&self.client, Batch::Exists, items).await
                }

                /// Deletes an item from a cuckoo filter, or one with the hash `siphash` or counters. Returns whether it was found.
                pub async fn delete(&self, item: impl Item) -> Result<bool, Error> {
                    self.core.get_item(&self.client, "BF.DEL", &item.item_bytes()).await
                }

                /// Deletes items.
                pub async fn delete_many<T: BatchItem>(&self, items: impl IntoIterator<Item = T>) -> Result<Vec<bool>, Error> {
                    self.core.many(&self.client, Batch::Delete, items).await
                }

                /// Returns how often the item is in a cuckoo filter (from 4 on: or more) or one with counters (at most 15).
                pub async fn count(&self, item: impl Item) -> Result<u64, Error> {
                    self.core.get_item(&self.client, "BF.COUNT", &item.item_bytes()).await
                }

                /// Returns the number of items; 0 if the key does not exist.
                pub async fn card(&self) -> Result<u64, Error> {
                    self.core.get(&self.client, "BF.CARD").await
                }

                /// Returns the filter's capacity, size and number of items (BF.INFO).
                pub async fn info(&self) -> Result<Info, Error> {
                    self.core.get(&self.client, "BF.INFO").await
                }

                /// Returns the filter's kind, fill and current error rate (BF.STATS). The server reads at most 1 MiB of each
                /// layer.
                pub async fn stats(&self) -> Result<Stats, Error> {
                    self.core.get(&self.client, "BF.STATS").await
                }

                /// Adds items, and creates a missing filter with these options (BF.INSERT). Without items it only creates the
                /// filter, which needs a seed, `tightening` or `validate_scale_to`.
                pub async fn insert<T: BatchItem>(
                    &self,
                    items: impl IntoIterator<Item = T>,
                    insert: &Insert,
                ) -> Result<Vec<bool>, Error> {
                    self.core.insert(&self.client, items, insert).await
                }

                /// Adds the items of the sources to this filter (BF.MERGE). Creates it with the options of the first source if
                /// it is missing. All filters need the same rate, capacity, expansion, hash and seed.
                pub async fn merge<K: AsRef<[u8]>>(&self, sources: impl IntoIterator<Item = K>) -> Result<(), Error> {
                    self.core.merge(&self.client, sources).await
                }

                /// Starts the next bucket of a filter that forgets. Returns how many items were dropped with the oldest bucket.
                pub async fn rotate(&self) -> Result<u64, Error> {
                    self.core.get(&self.client, "BF.ROTATE").await
                }

                /// Returns lines with the sizes of the filter and of each layer (BF.DEBUG).
                pub async fn debug(&self) -> Result<Vec<String>, Error> {
                    self.core.get(&self.client, "BF.DEBUG").await
                }

                /// Removes all items and keeps the options.
                pub async fn clear(&self) -> Result<(), Error> {
                    self.core.get(&self.client, "BF.CLEAR").await
                }

                /// Deletes the key. Returns whether it existed.
                pub async fn drop(&self) -> Result<bool, Error> {
                    self.core.get(&self.client, "UNLINK").await
                }
            }
        }
    };
}
#[cfg(feature = "tokio")]
pub(crate) use filter_methods;

filter_methods!(blocking);
