//! Loads rows with or without leases, fills and shares them, and serves old values if the database fails.

use std::any::Any;
use std::future::poll_fn;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::flights::{Flight, Flights, Outcome, number};
use super::nesting;
use super::{Fetch, Fetched, GuardCore, Io, Leases};
use crate::{Codec, Error};

/// Rows by the bytes of their ids.
pub type Rows<R> = Vec<(Vec<u8>, Option<R>)>;

/// The state of a call.
pub struct Call<'a, R> {
    /// The number at which it began.
    pub number: u64,
    pub rows: Rows<R>,
    /// Rows to read from the database without leases, because the server failed for them, or no caller loaded them in time.
    pub unguarded: Vec<Vec<u8>>,
    /// The flights of such rows.
    pub ended: Vec<Flight<'a>>,
}

impl<R> Call<'_, R> {
    pub fn begin() -> Self {
        Self { number: number(), rows: Vec::new(), unguarded: Vec::new(), ended: Vec::new() }
    }

    /// Returns the row of a call for one row.
    pub fn row(self) -> Option<R> {
        self.rows.into_iter().next().and_then(|(_, row)| row)
    }
}

/// Loaded rows, decoded for callers and encoded for the cache. If old values are served instead, nothing is shared.
pub struct Loaded<R> {
    rows: Vec<Option<R>>,
    encoded: Vec<Option<Vec<u8>>>,
}

/// The failure of a load.
pub enum Failure {
    Error(Error),
    Panic(Box<dyn Any + Send>),
}

impl Failure {
    /// Returns the error for the other callers of a row.
    fn of(&self, id: &[u8]) -> Error {
        let panic = match self {
            Self::Error(error) => return error.clone(),
            Self::Panic(panic) => panic,
        };
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Error::LoadFailed { id: id.to_vec(), cause: Some(text.unwrap_or("the load panicked").to_owned()) }
    }
}

/// Runs work and catches its panic.
async fn caught<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
    let mut work = pin!(work);
    // The work is not polled again after a panic.
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(poll) => poll.map_err(Failure::Error),
        Err(panic) => Poll::Ready(Err(Failure::Panic(panic))),
    })
    .await
}

/// Shares the result of a load with waiting flights, and returns it. Resumes a panic.
pub fn share<R>(
    of: &Flights,
    mut flights: Vec<Flight<'_>>,
    loaded: Result<Loaded<R>, Failure>,
) -> Result<Rows<R>, Error> {
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(failure) => {
            flights.iter_mut().for_each(|flight| flight.outcome = Outcome::Failed(failure.of(&flight.id)));
            match failure {
                Failure::Error(error) => return Err(error),
                Failure::Panic(panic) => resume_unwind(panic),
            }
        }
    };
    for (flight, value) in flights.iter_mut().zip(loaded.encoded) {
        flight.outcome = Outcome::Found(Ok(value.map_or(Fetched::Absent, |value| Fetched::Hit(value.into()))));
    }
    let rows = flights.iter().map(|flight| flight.id.clone()).zip(loaded.rows).collect();
    of.end(flights);
    Ok(rows)
}

impl<C: Codec> GuardCore<C> {
    /// Returns a number that is unique among live guards.
    fn number(&self) -> usize {
        Arc::as_ptr(&self.commands).addr()
    }

    /// Whether the caller is inside a load of this row.
    pub(super) fn is_loading(&self, id: &[u8]) -> bool {
        nesting::is_inside_load_of(self.number(), id)
    }

    /// Runs a load of some rows. Its caller gets the same values as callers that find them in the cache.
    async fn run(
        &self,
        ids: Vec<Vec<u8>>,
        load: impl Future<Output = Result<Vec<Option<C::Row>>, Error>>,
    ) -> Result<Loaded<C::Row>, Failure> {
        let count = ids.len();
        let work = async {
            let rows = nesting::inside(self.number(), ids, load).await?;
            let encode = |row: &Option<C::Row>| row.as_ref().map(|row| self.codec.encode(row)).transpose();
            let encoded: Vec<_> = rows.iter().map(encode).collect::<Result<_, _>>().map_err(Error::Refused)?;
            let decode = |value: &Option<Vec<u8>>| value.as_ref().map(|value| self.codec.decode(value)).transpose();
            let rows = encoded.iter().map(decode).collect::<Result<_, _>>().map_err(Error::Refused)?;
            Ok(Loaded { rows, encoded })
        };
        caught(work).await.inspect_err(|_| self.commands.count("load_failed", count))
    }

    /// Reads the remaining rows of a call from the database, without leases. At most one such load of a row runs in the process.
    /// Callers that arrive during it share the next one.
    ///
    /// A waiting caller does not delay others: it is not inside a load, and it loads the rows that it has to load itself before
    /// it waits again.
    pub(super) async fn unguarded<L: Future<Output = Result<Vec<Option<C::Row>>, Error>>>(
        &self,
        io: &impl Io,
        call: &mut Call<'_, C::Row>,
        mut load: impl FnMut(Vec<Vec<u8>>) -> L,
    ) -> Result<(), Error> {
        if call.unguarded.is_empty() {
            return Ok(());
        }
        let mut waiting = Vec::new();
        let mut free: Vec<Flight> = call.unguarded.iter().map(|id| self.direct.begin(id, call.number)).collect();
        if !nesting::is_inside() {
            waiting = free.extract_if(.., |flight| flight.begin_wait().is_some()).collect();
        }
        // Callers that waited for this one may now begin, after it.
        call.ended.clear();
        loop {
            if !free.is_empty() {
                let ids: Vec<_> = free.iter().map(|flight| flight.id.clone()).collect();
                self.commands.count("unguarded", ids.len());
                free.iter_mut().for_each(Flight::ask);
                let loaded = self.run(ids.clone(), async { load(ids).await }).await;
                call.rows.extend(share(&self.direct, mem::take(&mut free), loaded)?);
            }
            if waiting.is_empty() {
                return Ok(());
            }
            let waiters: Vec<_> = waiting.iter().filter_map(Flight::waiter).collect();
            io.wait(&waiters, Duration::MAX).await;
            for (flight, outcome) in self.direct.take_resumed(&mut waiting) {
                let found = match outcome {
                    Outcome::Found(found) => found,
                    Outcome::Failed(error) => Err(error),
                    Outcome::Nothing => {
                        free.push(flight);
                        continue;
                    }
                };
                self.commands.count("shared", 1);
                let row =
                    self.read(&found?).ok_or_else(|| Error::Refused("a loaded row cannot be decoded".to_owned()))?;
                call.rows.push((flight.id.clone(), row));
            }
        }
    }

    /// Loads rows under leases, and fills them or gives the leases up. If old values of all rows are cached (`has_values`),
    /// they are served if the load fails. Returns the rows in the order of their leases.
    pub(super) async fn load_and_fill<I: Io>(
        &self,
        leases: Leases<I>,
        load: impl Future<Output = Result<Vec<Option<C::Row>>, Error>>,
        ttl_ms: u64,
        has_values: bool,
    ) -> Result<Loaded<C::Row>, Failure> {
        let failure = match self.run(leases.ids(), load).await {
            Ok(loaded) => {
                let rows = leases.left.iter().zip(&loaded.encoded);
                let fills = rows.map(|(lease, value)| self.fill_with(lease, value.as_deref(), ttl_ms)).collect();
                leases.fill(fills).await;
                return Ok(loaded);
            }
            Err(failure) => failure,
        };
        let (io, ids) = (leases.io.clone(), leases.ids());
        leases.give_up(true).await;
        if let Failure::Error(error) = &failure
            && has_values
            && let Some(rows) = self.old_values(&io, ids).await
        {
            self.commands.count("stale_served", rows.len());
            self.commands.warn("a load failed, and old values were served", error);
            return Ok(Loaded { rows, encoded: Vec::new() });
        }
        Err(failure)
    }

    /// Fetches cached values that may be old, `None` for rows that do not exist. Values that were fetched before a load must not
    /// be used: a row may have changed during the load, which deletes its value.
    pub(super) async fn old_values(&self, io: &impl Io, ids: Vec<Vec<u8>>) -> Option<Vec<Option<C::Row>>> {
        let found = self.commands.fetch(io, ids, Fetch { peek: true, ..Fetch::default() }).await;
        found.answers.into_iter().map(|answer| self.read(&answer.ok()?)).collect()
    }
}
