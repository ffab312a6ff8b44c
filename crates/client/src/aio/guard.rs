//! The guard in front of a database, for tasks.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use super::Client;
use super::client::detach;
use super::turns::Turns;
use crate::core::{self, Commands, GuardCore, asynchronous, lock};
use crate::guard::{Named, bytes_of, guard_methods, in_order};
use crate::{BatchItem, BoxError, Bytes, Codec, Durability, Error, GuardOptions, Item, Options, WithLoader};

/// Reads database rows by id through a filter and a cache. The filter contains the id of every row. Clones share the loads of
/// their callers, so make one guard per table and process.
///
/// Calls of [`get`](Self::get) that begin in one turn of the runtime are one command. A call whose future is dropped gives up the
/// lease that it holds or is about to get.
///
/// ```no_run
/// use bloomgate_client::GuardOptions;
/// use bloomgate_client::aio::{Client, Guard};
/// # async fn load(id: u64) -> Result<Option<Vec<u8>>, std::io::Error> { Ok(None) }
/// # async fn save(id: u64) -> Result<(), std::io::Error> { Ok(()) }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::open("redis://127.0.0.1/")?;
/// let users = Guard::new(&client, "users", GuardOptions::default())?;
/// let row = users.get(17, load).await?;
/// users.changed([17], || save(17)).await?;
/// # Ok(())
/// # }
/// ```
pub struct Guard<C: Codec = Bytes> {
    client: Client,
    core: Arc<GuardCore<C>>,
    turns: Turns,
}

impl<C: Codec> Clone for Guard<C> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), core: Arc::clone(&self.core), turns: self.turns.clone() }
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
        Ok(Self { client: client.clone(), turns: Turns::new(client, &core.commands), core })
    }

    /// Gives the guard a loader, so that [`get`](WithLoader::get) takes only the id.
    ///
    /// ```no_run
    /// # use bloomgate_client::{GuardOptions, aio::{Client, Guard}};
    /// # async fn select(id: u64) -> Result<Option<Vec<u8>>, std::io::Error> { Ok(None) }
    /// # async fn example() -> Result<(), bloomgate_client::Error> {
    /// # let client = Client::open("redis://127.0.0.1/")?;
    /// let users = Guard::new(&client, "users", GuardOptions::default())?.with_loader(select);
    /// let row = users.get(17).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_loader<T: Item, E: Into<BoxError>, L, F>(self, load: F) -> WithLoader<Self, F>
    where
        F: Fn(T) -> L,
        L: Future<Output = Result<Option<C::Row>, E>>,
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
    pub async fn get<T: Item, E: Into<BoxError>, L: Future<Output = Result<Option<C::Row>, E>>>(
        &self,
        id: T,
        load: impl FnOnce(T) -> L,
    ) -> Result<Option<C::Row>, Error> {
        self.read(id, None, load).await
    }

    /// Like [`Self::get`], with a time to live that replaces the guard's.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn get_with_ttl<T: Item, E: Into<BoxError>, L: Future<Output = Result<Option<C::Row>, E>>>(
        &self,
        id: T,
        ttl: Duration,
        load: impl FnOnce(T) -> L,
    ) -> Result<Option<C::Row>, Error> {
        self.read(id, Some(ttl), load).await
    }

    async fn read<T: Item, E: Into<BoxError>, L: Future<Output = Result<Option<C::Row>, E>>>(
        &self,
        id: T,
        ttl: Option<Duration>,
        load: impl FnOnce(T) -> L,
    ) -> Result<Option<C::Row>, Error> {
        let key = id.item_bytes().into_owned();
        let load = || async { load(id).await.map_err(Error::caller) };
        self.core.get(&self.client, &key, ttl, self.turns.fetch(&key), load).await
    }

    /// Like [`Self::get`]; but if an old value is cached and `load` takes longer than `soft_timeout`, the old value is returned, and
    /// `load` continues in a separate task. This needs a guard with `fail_safe`, and a future that owns its data.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn get_with_soft_timeout<T, E, L>(
        &self,
        id: T,
        soft_timeout: Duration,
        load: impl FnOnce(T) -> L + Send + 'static,
    ) -> Result<Option<C::Row>, Error>
    where
        C: 'static,
        T: Item + Send + 'static,
        E: Into<BoxError>,
        L: Future<Output = Result<Option<C::Row>, E>> + Send + 'static,
    {
        let key = id.item_bytes().into_owned();
        let load = || async { load(id).await.map_err(Error::caller) };
        self.core.get_with_soft_timeout(&self.client, &key, soft_timeout, self.turns.fetch(&key), load).await
    }

    /// Returns a row or `None` for each id, in the order of the ids, fetched together. `load_many` returns a map that omits ids
    /// without a row. It is called once with the ids that this caller has to load, and again with ids whose loads by other
    /// callers did not complete.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn get_many<T, E, L>(
        &self,
        ids: &[T],
        load_many: impl FnMut(Vec<T>) -> L,
    ) -> Result<Vec<Option<C::Row>>, Error>
    where
        T: Item + Hash + Eq + Clone,
        E: Into<BoxError>,
        L: Future<Output = Result<HashMap<T, C::Row>, E>>,
    {
        self.read_many(ids, None, load_many).await
    }

    /// Like [`Self::get_many`], with a time to live that replaces the guard's.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn get_many_with_ttl<T, E, L>(
        &self,
        ids: &[T],
        ttl: Duration,
        load_many: impl FnMut(Vec<T>) -> L,
    ) -> Result<Vec<Option<C::Row>>, Error>
    where
        T: Item + Hash + Eq + Clone,
        E: Into<BoxError>,
        L: Future<Output = Result<HashMap<T, C::Row>, E>>,
    {
        self.read_many(ids, Some(ttl), load_many).await
    }

    async fn read_many<T, E, L>(
        &self,
        ids: &[T],
        ttl: Option<Duration>,
        mut load_many: impl FnMut(Vec<T>) -> L,
    ) -> Result<Vec<Option<C::Row>>, Error>
    where
        T: Item + Hash + Eq + Clone,
        E: Into<BoxError>,
        L: Future<Output = Result<HashMap<T, C::Row>, E>>,
    {
        let named = Named::of(ids);
        let load = |missing: Vec<Vec<u8>>| {
            let asked = named.ids(&missing);
            let loaded = load_many(asked.clone());
            async move { Ok(in_order(&asked, loaded.await.map_err(Error::caller)?)) }
        };
        self.core.get_many(&self.client, &named.keys, ttl, load).await
    }

    /// Announces ids, calls `write`, and confirms the ids, even if `write` fails or panics, or this future is dropped. The
    /// transaction that inserts, changes or deletes the rows must end inside `write`, with a known outcome: the database must not
    /// commit it after `write` was dropped.
    ///
    /// # Errors
    /// The error of the announcement, in which case `write` is not called; [`Error::Unconfirmed`]; [`Error::Caller`]
    /// with the error of `write`.
    pub async fn changed<T: Item, R, E: Into<BoxError>, W: Future<Output = Result<R, E>>>(
        &self,
        ids: impl IntoIterator<Item = T>,
        write: impl FnOnce() -> W,
    ) -> Result<R, Error> {
        let ids = bytes_of(ids);
        self.core.commands.announce(&self.client, &ids).await?;
        let mut pending = Pending { client: &self.client, commands: &self.core.commands, ids };
        let outcome = write().await;
        self.core.commands.confirm(&self.client, std::mem::take(&mut pending.ids)).await?;
        outcome.map_err(Error::caller)
    }
}

impl<C: Codec, F> WithLoader<Guard<C>, F> {
    /// Like [`Guard::get`], with the guard's loader.
    ///
    /// # Errors
    /// As [`Guard::get`].
    pub async fn get<T: Item, E: Into<BoxError>, L>(&self, id: T) -> Result<Option<C::Row>, Error>
    where
        F: Fn(T) -> L,
        L: Future<Output = Result<Option<C::Row>, E>>,
    {
        self.guard.get(id, &self.load).await
    }
}

/// Announced ids, which must be confirmed even if the writer is cancelled or panics.
struct Pending<'a> {
    client: &'a Client,
    commands: &'a Arc<Commands>,
    ids: Vec<Vec<u8>>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.ids.is_empty() {
            let (client, commands, ids) =
                (self.client.clone(), Arc::clone(self.commands), std::mem::take(&mut self.ids));
            // There is no caller to return an error to.
            detach(async move { _ = commands.confirm(&client, ids).await });
        }
    }
}

guard_methods!(asynchronous);
