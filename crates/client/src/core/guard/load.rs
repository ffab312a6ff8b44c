//! Loading rows, under leases or without: filling them, sharing them, and what happens when the database fails.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::flights::{Flight, Outcome};
use super::leases::Lease;
use super::nesting;
use super::{Fetch, Fetched, GuardCore, Io, Leases, lock};
use crate::{Codec, Error};

/// The weight of the newest load in the average duration of loads.
const SMOOTHING: f64 = 0.2;

/// What a load has panicked with.
pub struct Panic(Box<dyn Any + Send>);

/// A result of work that may have panicked.
pub type Caught<T> = Result<T, Panic>;

/// Runs work and catches its panic.
pub async fn caught<T>(work: impl Future<Output = T>) -> Caught<T> {
    let mut work = pin!(work);
    // After a panic the work is not polled again.
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Poll::Ready(Err(Panic(panic))),
    })
    .await
}

/// Shares the error of a load with those that wait for its flights. A panic is shared as an error, and continues.
pub fn settle<T>(flights: &mut [Flight<'_>], loaded: Caught<Result<T, Error>>) -> Result<T, Error> {
    let mut fail = |error: &dyn Fn(&[u8]) -> Error| {
        for flight in &mut *flights {
            flight.outcome = Outcome::Failed(error(&flight.id));
        }
    };
    match loaded {
        Ok(loaded) => loaded.inspect_err(|error| fail(&|_| error.clone())),
        Err(Panic(panic)) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            let cause = text.unwrap_or("the load panicked").to_owned();
            fail(&|id| Error::LoadFailed { id: id.to_vec(), cause: Some(cause.clone()) });
            resume_unwind(panic)
        }
    }
}

impl<C: Codec> GuardCore<C> {
    /// Returns a number that no other live guard has.
    fn number(&self) -> usize {
        Arc::as_ptr(&self.commands).addr()
    }

    /// Whether the caller is inside a load of this row.
    pub(super) fn is_loading(&self, id: &[u8]) -> bool {
        nesting::is_inside_load_of(self.number(), id)
    }

    /// Loads some rows, and takes the duration into the average.
    async fn timed<R>(&self, ids: Vec<Vec<u8>>, load: impl Future<Output = Result<R, Error>>) -> Result<R, Error> {
        let (begun, rows) = (Instant::now(), ids.len());
        let loaded = nesting::inside(self.number(), ids, load).await;
        let loaded = loaded.inspect_err(|_| self.commands.count("load_failed", rows))?;
        let took = begun.elapsed().as_secs_f64();
        let mut average = lock(&self.commands.load_time);
        let old = average.as_secs_f64();
        let weight = if old > 0.0 { SMOOTHING } else { 1.0 };
        *average = Duration::try_from_secs_f64(old + (took - old) * weight).unwrap_or_default();
        Ok(loaded)
    }

    /// Loads rows without leases, and shares them with the callers that began before. Returns the rows in the order of the flights.
    async fn load_and_share(
        &self,
        mut flights: Vec<Flight<'_>>,
        load: impl Future<Output = Result<Vec<Option<C::Row>>, Error>>,
    ) -> Result<Vec<Option<C::Row>>, Error> {
        let ids: Vec<_> = flights.iter().map(|flight| flight.id.clone()).collect();
        self.commands.count("unguarded", ids.len());
        flights.iter_mut().for_each(Flight::ask);
        let loaded = caught(async {
            let encoded = self.encode(&self.timed(ids, load).await?)?;
            Ok((self.decode(&encoded)?, encoded))
        });
        let (rows, encoded) = settle(&mut flights, loaded.await)?;
        for (flight, value) in flights.iter_mut().zip(encoded) {
            flight.outcome = Outcome::Found(value.map_or(Fetched::Absent, |value| Fetched::Hit(value.into())));
        }
        self.direct.end(flights);
        Ok(rows)
    }

    /// Reads rows from the database without leases. At most one such load of a row runs in the process. Callers that arrive during
    /// it share the next one. The call began at `number`. Returns each row with its id.
    ///
    /// A caller that waits holds back no other: it is not inside a load, and rows that it has to load itself are loaded before it
    /// waits again.
    pub(super) async fn unguarded<L: Future<Output = Result<Vec<Option<C::Row>>, Error>>>(
        &self,
        io: &impl Io,
        ids: Vec<Vec<u8>>,
        number: u64,
        mut load: impl FnMut(Vec<Vec<u8>>) -> L,
    ) -> Result<Vec<(Vec<u8>, Option<C::Row>)>, Error> {
        let (mut rows, mut waiting) = (Vec::new(), Vec::new());
        let mut free: Vec<Flight> = ids.iter().map(|id| self.direct.begin(id, number)).collect();
        if !nesting::is_inside() {
            waiting = free.extract_if(.., |flight| flight.begin_wait().is_some()).collect();
        }
        loop {
            if !free.is_empty() {
                let ids: Vec<_> = free.iter().map(|flight| flight.id.clone()).collect();
                let asked = ids.clone();
                let loaded = self.load_and_share(std::mem::take(&mut free), async { load(asked).await }).await?;
                rows.extend(ids.into_iter().zip(loaded));
            }
            if waiting.is_empty() {
                return Ok(rows);
            }
            let waiters: Vec<_> = waiting.iter().filter_map(Flight::waiter).collect();
            io.wait(&waiters, Duration::MAX).await;
            for (flight, outcome) in self.direct.take_resumed(&mut waiting) {
                let value = match outcome {
                    Outcome::Found(Fetched::Hit(value)) => Some(self.codec.decode(&value).map_err(Error::Refused)?),
                    Outcome::Found(_) => None,
                    Outcome::Failed(error) => {
                        self.commands.count("shared", 1);
                        return Err(error);
                    }
                    Outcome::Nothing | Outcome::NoServer => {
                        free.push(flight);
                        continue;
                    }
                };
                self.commands.count("shared", 1);
                rows.push((flight.id.clone(), value));
            }
        }
    }

    /// Loads rows under leases, and fills them or gives the leases up. If all of them have old values in the cache
    /// (`has_values`), these are served when the load fails. Returns the rows in the order of their leases.
    pub(super) async fn load_and_fill<I: Io>(
        &self,
        leases: Leases<I>,
        load: impl Future<Output = Result<Vec<Option<C::Row>>, Error>>,
        ttl_ms: u64,
        has_values: bool,
    ) -> Result<Vec<Option<C::Row>>, Error> {
        let loaded = self.timed(leases.ids(), load).await.and_then(|rows| {
            let encoded = self.encode(&rows)?;
            let fill =
                |((id, token), value): (&Lease, &Option<Vec<u8>>)| self.fill_with(id, token, value.as_deref(), ttl_ms);
            let fills: Vec<_> = leases.left.iter().zip(&encoded).map(fill).collect();
            Ok((self.decode(&encoded)?, fills))
        });
        let error = match loaded {
            Ok((rows, fills)) => {
                leases.fill(fills).await;
                return Ok(rows);
            }
            Err(error) => error,
        };
        let (io, ids) = (leases.io.clone(), leases.ids());
        leases.back_off().await;
        if has_values {
            let count = ids.len();
            if let Some(rows) = self.old_values(&io, ids).await.into_iter().collect() {
                self.commands.count("stale_served", count);
                self.commands.warn("a load failed, and old values were served", &error);
                return Ok(rows);
            }
        }
        Err(error)
    }

    /// Fetches values that may be served though they are old: a row, or that there is none. The values that were fetched before a
    /// load do not qualify: a row may have been changed during the load, and then its value has been deleted.
    pub(super) async fn old_values(&self, io: &impl Io, ids: Vec<Vec<u8>>) -> Vec<Option<Option<C::Row>>> {
        let how = Fetch { stale_ms: Some(0), ..Fetch::default() };
        let found = self.commands.fetch(io, ids, how).await;
        found.leases.give_up().await;
        let read = |answer: Result<_, Error>| {
            let (value, is_readable) = self.read(&answer.ok()?, None);
            is_readable.then_some(value)
        };
        found.answers.into_iter().map(read).collect()
    }
}
