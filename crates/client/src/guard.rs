//! The guard in front of a database, for threads, and the methods that guards for threads and for tasks share. docs/guard.md
//! specifies the protocol, and docs/guard-proof.md proves it.

use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::core::{self, Fetch, GuardCore, blocking, lock, now};
use crate::{BatchItem, BoxError, Bytes, Client, Codec, Durability, Error, GuardOptions, Item, Options};

/// Reads database rows by id through a filter and a cache. The filter contains the id of every row. Clones share the loads of
/// their callers, so make one guard per table and process.
///
/// ```no_run
/// use bloomgate_client::{Client, Guard, GuardOptions};
/// # fn load(id: u64) -> Result<Option<Vec<u8>>, std::io::Error> { Ok(None) }
/// # fn save(id: u64) -> Result<(), std::io::Error> { Ok(()) }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::open("redis://127.0.0.1/")?;
/// let users = Guard::new(&client, "users", GuardOptions::default())?;
/// let row = users.get(17, load)?;
/// users.changed([17], || save(17))?;
/// # Ok(())
/// # }
/// ```
pub struct Guard<C: Codec = Bytes> {
    client: Client,
    core: Arc<GuardCore<C>>,
}

impl<C: Codec> Clone for Guard<C> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), core: Arc::clone(&self.core) }
    }
}

impl<C: Codec> Guard<C> {
    /// Creates a guard whose rows are converted to bytes and back by a codec.
    ///
    /// # Errors
    /// As [`Guard::new`].
    pub fn with_codec(
        client: &Client,
        filter: impl AsRef<[u8]>,
        codec: C,
        options: GuardOptions,
    ) -> Result<Self, Error> {
        let core = Arc::new(GuardCore::new(client, filter.as_ref(), codec, options)?);
        Ok(Self { client: client.clone(), core })
    }

    /// Gives the guard a loader, so that [`get`](WithLoader::get) takes only the id.
    ///
    /// ```no_run
    /// # use bloomgate_client::{Client, Guard, GuardOptions};
    /// # fn select(id: u64) -> Result<Option<Vec<u8>>, std::io::Error> { Ok(None) }
    /// # let client = Client::open("redis://127.0.0.1/")?;
    /// let users = Guard::new(&client, "users", GuardOptions::default())?.with_loader(select);
    /// let row = users.get(17)?;
    /// # Ok::<(), bloomgate_client::Error>(())
    /// ```
    pub fn with_loader<T: Item, E: Into<BoxError>, F>(self, load: F) -> WithLoader<Self, F>
    where
        F: Fn(T) -> Result<Option<C::Row>, E>,
    {
        WithLoader { guard: self, load }
    }

    /// Returns a row, or `None` if it does not exist. `load` reads the row from the primary database in a transaction that
    /// begins with the call, and returns `None` if the row does not exist.
    ///
    /// If the server fails, the row is read from the database and not cached. After a time-out the database is queried directly
    /// for two seconds. Callers of this process share such a load if it begins after their calls. If `load` fails, the lease is
    /// given up; if an old value is cached, it is returned instead of the error. Callers of this process that waited for the
    /// row share the error.
    ///
    /// # Errors
    /// [`Error::Caller`] with the error of this call's `load` or another's; [`Error::LoadFailed`] during a back-off,
    /// or if the load that it waited for panicked; [`Error::Refused`] if the codec cannot encode the row. Errors of the server
    /// are not returned.
    pub fn get<T: Item, E: Into<BoxError>>(
        &self,
        id: T,
        load: impl FnOnce(T) -> Result<Option<C::Row>, E>,
    ) -> Result<Option<C::Row>, Error> {
        self.read(id, None, load)
    }

    /// Like [`Self::get`], with a time to live that replaces the guard's.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn get_with_ttl<T: Item, E: Into<BoxError>>(
        &self,
        id: T,
        ttl: Duration,
        load: impl FnOnce(T) -> Result<Option<C::Row>, E>,
    ) -> Result<Option<C::Row>, Error> {
        self.read(id, Some(ttl), load)
    }

    fn read<T: Item, E: Into<BoxError>>(
        &self,
        id: T,
        ttl: Option<Duration>,
        load: impl FnOnce(T) -> Result<Option<C::Row>, E>,
    ) -> Result<Option<C::Row>, Error> {
        let key = id.item_bytes().into_owned();
        let first = self.core.commands.fetch(&self.client, vec![key.clone()], Fetch::default());
        now(self.core.get(&self.client, &key, ttl, first, || async { load(id).map_err(Error::caller) }))
    }

    /// Like [`Self::get`]; but if an old value is cached and `load` takes longer than `soft_timeout`, the old value is
    /// returned, and `load` continues in its own thread. This needs a guard with `fail_safe`, and a function that owns its
    /// data.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn get_with_soft_timeout<T: Item + Send + 'static, E: Into<BoxError>>(
        &self,
        id: T,
        soft_timeout: Duration,
        load: impl FnOnce(T) -> Result<Option<C::Row>, E> + Send + 'static,
    ) -> Result<Option<C::Row>, Error>
    where
        C: 'static,
    {
        let key = id.item_bytes().into_owned();
        let first = self.core.commands.fetch(&self.client, vec![key.clone()], Fetch::default());
        let load = move || async move { load(id).map_err(Error::caller) };
        now(self.core.get_with_soft_timeout(&self.client, &key, soft_timeout, first, load))
    }

    /// Returns a row or `None` for each id, in the order of the ids, fetched together. `load_many` returns a map that omits ids
    /// without a row. It is called once with the ids that this caller has to load, and again with ids whose loads by other
    /// callers did not complete.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn get_many<T: Item + Hash + Eq + Clone, E: Into<BoxError>>(
        &self,
        ids: &[T],
        load_many: impl FnMut(&[T]) -> Result<HashMap<T, C::Row>, E>,
    ) -> Result<Vec<Option<C::Row>>, Error> {
        self.read_many(ids, None, load_many)
    }

    /// Like [`Self::get_many`], with a time to live that replaces the guard's.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn get_many_with_ttl<T: Item + Hash + Eq + Clone, E: Into<BoxError>>(
        &self,
        ids: &[T],
        ttl: Duration,
        load_many: impl FnMut(&[T]) -> Result<HashMap<T, C::Row>, E>,
    ) -> Result<Vec<Option<C::Row>>, Error> {
        self.read_many(ids, Some(ttl), load_many)
    }

    fn read_many<T: Item + Hash + Eq + Clone, E: Into<BoxError>>(
        &self,
        ids: &[T],
        ttl: Option<Duration>,
        mut load_many: impl FnMut(&[T]) -> Result<HashMap<T, C::Row>, E>,
    ) -> Result<Vec<Option<C::Row>>, Error> {
        let named = Named::of(ids);
        now(self.core.get_many(&self.client, &named.keys, ttl, |missing| {
            let asked = named.ids(&missing);
            ready(load_many(&asked).map(|rows| in_order(&asked, rows)).map_err(Error::caller))
        }))
    }

    /// Announces ids, calls `write`, and confirms the ids, even if `write` fails or panics. The transaction that inserts,
    /// changes or deletes the rows must end inside `write`, with a known outcome.
    ///
    /// # Errors
    /// The error of the announcement, in which case `write` is not called; [`Error::Unconfirmed`]; [`Error::Caller`]
    /// with the error of `write`.
    pub fn changed<T: Item, R, E: Into<BoxError>>(
        &self,
        ids: impl IntoIterator<Item = T>,
        write: impl FnOnce() -> Result<R, E>,
    ) -> Result<R, Error> {
        let ids = bytes_of(ids);
        self.announce(&ids)?;
        let mut pending = Pending { guard: self, ids };
        let outcome = write();
        self.confirm(std::mem::take(&mut pending.ids))?;
        outcome.map_err(Error::caller)
    }
}

/// A guard with a loader, made by `Guard::with_loader`, so that `get` takes only the id. It has the guard's other methods:
/// `(*users).get(id, load)` reads with another loader.
#[derive(Clone)]
pub struct WithLoader<G, F> {
    pub(crate) guard: G,
    pub(crate) load: F,
}

impl<G, F> Deref for WithLoader<G, F> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.guard
    }
}

impl<G: std::fmt::Debug, F> std::fmt::Debug for WithLoader<G, F> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        self.guard.fmt(formatter)
    }
}

impl<C: Codec, F> WithLoader<Guard<C>, F> {
    /// Like [`Guard::get`], with the guard's loader.
    ///
    /// # Errors
    /// As [`Guard::get`].
    pub fn get<T: Item, E: Into<BoxError>>(&self, id: T) -> Result<Option<C::Row>, Error>
    where
        F: Fn(T) -> Result<Option<C::Row>, E>,
    {
        self.guard.get(id, &self.load)
    }
}

pub(crate) fn bytes_of<T: Item>(ids: impl IntoIterator<Item = T>) -> Vec<Vec<u8>> {
    ids.into_iter().map(|id| id.item_bytes().into_owned()).collect()
}

/// The ids of a call, both as passed by the caller and as bytes.
pub(crate) struct Named<T> {
    pub keys: Vec<Vec<u8>>,
    first: HashMap<Vec<u8>, T>,
}

impl<T: Item + Clone> Named<T> {
    pub fn of(ids: &[T]) -> Self {
        let keys: Vec<Vec<u8>> = ids.iter().map(|id| id.item_bytes().into_owned()).collect();
        let mut first = HashMap::new();
        for (id, key) in ids.iter().zip(&keys) {
            first.entry(key.clone()).or_insert_with(|| id.clone());
        }
        Self { keys, first }
    }

    /// Returns the ids with these bytes.
    pub fn ids(&self, keys: &[Vec<u8>]) -> Vec<T> {
        keys.iter().filter_map(|key| self.first.get(key).cloned()).collect()
    }
}

/// Returns loaded rows in the order of their ids.
pub(crate) fn in_order<T: Hash + Eq, R>(ids: &[T], mut rows: HashMap<T, R>) -> Vec<Option<R>> {
    ids.iter().map(|id| rows.remove(id)).collect()
}

/// Announced ids, confirmed even if the caller panics.
struct Pending<'a, C: Codec> {
    guard: &'a Guard<C>,
    ids: Vec<Vec<u8>>,
}

impl<C: Codec> Drop for Pending<'_, C> {
    fn drop(&mut self) {
        // The panic continues, so there is no caller to return an error to.
        _ = self.guard.confirm(std::mem::take(&mut self.ids));
    }
}

/// Defines the methods that guards for threads and for tasks share: all except calls that take a function.
macro_rules! guard_methods {
    ($colour:ident) => {
        impl<C: Codec> std::fmt::Debug for Guard<C> {
            fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
                formatter.debug_struct("Guard").field("options", self.core.options()).finish_non_exhaustive()
            }
        }

        impl Guard {
            /// Creates a guard whose rows are bytes.
            ///
            /// # Errors
            /// [`Error::Refused`]: the options are invalid.
            pub fn new(client: &Client, filter: impl AsRef<[u8]>, options: GuardOptions) -> Result<Self, Error> {
                Self::with_codec(client, filter, Bytes, options)
            }
        }

        impl<C: Codec> Guard<C> {
            /// Returns the number of each event:
            ///
            /// - `absent`, `hit`, `stale`, `load`, `wait`, `failed`: replies of BF.FETCH, one for each row;
            /// - `filled`, `lease_lost`: loaded rows that were cached, and loaded rows that were not, because the row changed or another
            ///   caller filled it during the load;
            /// - `load_failed`: rows whose load failed;
            /// - `stale_served`, `soft_timeout`: old values that were served because a load failed, or took too long;
            /// - `unguarded`: rows that were read from the database without a lease: the server failed, or another caller took too long;
            /// - `shared`: answers and errors that waiting callers got from another caller of this process;
            /// - `undecodable`: cached values that the codec could not decode;
            /// - `errors`: replies that were errors or did not arrive.
            pub fn counts(&self) -> BTreeMap<&'static str, u64> {
                lock(&self.core.commands.counts).clone()
            }

            $colour! {
                /// Announces changes before their commit. If it fails, do not commit. With a feed it does nothing.
                ///
                /// # Errors
                /// The server's first error, for any id.
                pub async fn announce<T: Item>(&self, ids: impl IntoIterator<Item = T>) -> Result<(), Error> {
                    let ids = bytes_of(ids);
                    self.core.commands.announce(&self.client, &ids).await
                }

                /// Confirms changes after their commit. Repeats failed confirmations, in a task even if the future is dropped.
                /// With a feed it does nothing.
                ///
                /// If the outcome of the commit is unknown, determine it before this call, or end the database session: a
                /// commit after this call leaves the old row cached.
                ///
                /// # Errors
                /// [`Error::Unconfirmed`] after the guard's `patience`.
                pub async fn confirm<T: Item>(&self, ids: impl IntoIterator<Item = T>) -> Result<(), Error> {
                    let ids = bytes_of(ids);
                    self.core.commands.confirm(&self.client, ids).await
                }

                /// Deletes ids from the filter after their rows were deleted inside [`Self::changed`]. Deleted ids must never
                /// be used again. The filter needs the hash `siphash`. With a feed it does nothing.
                ///
                /// # Errors
                /// The server's first error.
                pub async fn forget<T: Item>(&self, ids: impl IntoIterator<Item = T>) -> Result<(), Error> {
                    let ids = bytes_of(ids);
                    self.core.commands.forget(&self.client, &ids).await
                }
            }
        }

        $colour! {
            /// Fills the filter of a guard as [`filling_name`](crate::keys::filling_name), then renames it to `key`. Returns
            /// the number of new ids. Until the rename, writers must announce to both names.
            ///
            /// Pass the `Result`s of a source that can fail, such as a cursor: an iterator that ends at an error would make a
            /// filter that reports all later rows absent.
            ///
            /// If the filter loses ids, their rows are reported absent. To survive a failover, set `replicas` to the number of
            /// replicas that may be promoted; to survive a restart, set `aof`.
            ///
            /// # Errors
            /// [`Error::FilterExists`]: another client may be filling it. [`Error::NotDurable`]: a batch or the rename
            /// was not acknowledged in time. [`Error::Caller`]: the source of the ids failed, and the filter at `key` is
            /// unchanged. After any error but the first the filling name may exist: delete it and start again.
            pub async fn fill_filter<T: BatchItem>(
                client: &Client,
                key: impl AsRef<[u8]>,
                ids: impl IntoIterator<Item = T>,
                rate: f64,
                capacity: u64,
                options: &Options,
                durability: &Durability,
            ) -> Result<usize, Error> {
                core::fill_filter(client, key.as_ref(), ids, rate, capacity, options, durability).await
            }
        }
    };
}
#[cfg(feature = "tokio")]
pub(crate) use guard_methods;

guard_methods!(blocking);
