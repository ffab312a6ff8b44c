//! Reading rows.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::flights::{Flight, Outcome};
use super::load::{Call, share};
use super::{Fetch, Fetched, Found, GuardCore, Io, Leases};
use crate::core::Slot;
use crate::guard_options::in_range;
use crate::{Codec, Error};

/// The pause before a confirmation is repeated, and before a row is fetched again if the caller cannot wait for it in the
/// server.
pub(super) const REPEAT: Duration = Duration::from_millis(100);

/// The maximum number of a guard's loads that continue in the background after their `soft_timeout`.
const BACKGROUND_LOADS: usize = 64;

/// The rows that a fetch has not settled.
struct Left<'a, I: Io> {
    /// The rows that this caller has to load, in the order of their leases.
    flights: Vec<Flight<'a>>,
    leases: Leases<I>,
    /// Whether old values of all these rows may be served.
    has_values: bool,
    /// The rows that other callers load.
    waiting: Vec<Flight<'a>>,
}

impl<C: Codec> GuardCore<C> {
    /// Reads a row. `first` fetches it.
    pub async fn get<I: Io, L: Future<Output = Result<Option<C::Row>, Error>>>(
        &self,
        io: &I,
        id: &[u8],
        ttl: Option<Duration>,
        first: impl Future<Output = Found<I>>,
        load: impl FnOnce() -> L,
    ) -> Result<Option<C::Row>, Error> {
        let ttl_ms = self.options().ttl_ms(ttl)?;
        let mut call = Call::begin();
        let left = self.read_one(io, id, self.deadline(self.options().attempts), first, &mut call).await?;
        self.finish(io, left, ttl_ms, call, load).await
    }

    /// Loads the row of a call for one row, unless it was settled by a fetch.
    async fn finish<I: Io, L: Future<Output = Result<Option<C::Row>, Error>>>(
        &self,
        io: &I,
        left: Left<'_, I>,
        ttl_ms: u64,
        mut call: Call<'_, C::Row>,
        load: impl FnOnce() -> L,
    ) -> Result<Option<C::Row>, Error> {
        if call.rows.is_empty() {
            let mut load = Some(load);
            let mut once = |_| {
                let load = load.take();
                async { if let Some(load) = load { Ok(vec![load().await?]) } else { Ok(Vec::new()) } }
            };
            Box::pin(self.load_leased(left, ttl_ms, &mut call, &mut once)).await?;
            Box::pin(self.unguarded(io, &mut call, once)).await?;
        }
        Ok(call.row())
    }

    /// Reads a row. If an old value is cached and the load takes longer than `soft_timeout`, that value is returned, and the load
    /// continues in the background.
    pub async fn get_with_soft_timeout<I: Io, L>(
        self: &Arc<Self>,
        io: &I,
        id: &[u8],
        soft_timeout: Duration,
        first: impl Future<Output = Found<I>>,
        load: impl FnOnce() -> L + Send + 'static,
    ) -> Result<Option<C::Row>, Error>
    where
        C: 'static,
        L: Future<Output = Result<Option<C::Row>, Error>> + Send + 'static,
    {
        let ttl_ms = self.options().ttl_ms(None)?;
        in_range("soft_timeout", soft_timeout)?;
        let mut call = Call::begin();
        let left = self.read_one(io, id, self.deadline(self.options().attempts), first, &mut call).await?;
        if left.flights.is_empty() || !left.has_values {
            return self.finish(io, left, ttl_ms, call, load).await;
        }
        let Some(slot) = Slot::take(&self.background, BACKGROUND_LOADS) else {
            // Too many loads are running in the background.
            let Some(old) = self.old_value(io, id).await else {
                return self.finish(io, left, ttl_ms, call, load).await;
            };
            left.leases.give_up(true).await;
            return Ok(old);
        };
        let (guard, leases) = (Arc::clone(self), left.leases);
        let mut running = io.start(async move {
            let load = async { Ok(vec![load().await?]) };
            let loaded = guard.load_and_fill(leases, load, ttl_ms, true).await;
            drop(slot);
            loaded
        });
        let mut loaded = io.join(&mut running, soft_timeout).await;
        if loaded.is_none() {
            if let Some(old) = self.old_value(io, id).await {
                return Ok(old);
            }
            loaded = io.join(&mut running, Duration::MAX).await;
        }
        let lost = || Error::LoadFailed { id: id.to_vec(), cause: None };
        call.rows = share(&self.flights, left.flights, loaded.ok_or_else(lost)?)?;
        Ok(call.row())
    }

    /// Returns the old value of a row that is being loaded, if one may be served.
    async fn old_value(&self, io: &impl Io, id: &[u8]) -> Option<Option<C::Row>> {
        let old = self.old_values(io, vec![id.to_vec()]).await?.pop();
        self.commands.count("soft_timeout", usize::from(old.is_some()));
        old
    }

    /// Reads rows. Ids with the same bytes are one row. `load` gets the ids that this caller has to load, and returns a row or
    /// `None` for each.
    pub async fn get_many<L: Future<Output = Result<Vec<Option<C::Row>>, Error>>>(
        &self,
        io: &impl Io,
        ids: &[Vec<u8>],
        ttl: Option<Duration>,
        mut load: impl FnMut(Vec<Vec<u8>>) -> L,
    ) -> Result<Vec<Option<C::Row>>, Error> {
        let ttl_ms = self.options().ttl_ms(ttl)?;
        let (deadline, mut call) = (self.deadline(1), Call::begin());
        let mut seen = HashSet::new();
        let unique = ids.iter().filter(|id| seen.insert(*id)).cloned();
        let (nested, mut ids_left): (Vec<_>, Vec<_>) = unique.partition(|id| self.is_loading(id));
        call.unguarded = nested;
        while !ids_left.is_empty() {
            let mut flights: Vec<_> = ids_left.iter().map(|id| self.flights.begin(id, call.number)).collect();
            let found = self.fetch(io, &mut flights, Fetch::default()).await;
            let mut left = self.settle(io, flights, found, &mut call).await?;
            // Only flights with a lease will load a row, so no caller in this process needs to wait for the others.
            call.ended.clear();
            ids_left = left.waiting.drain(..).map(|flight| flight.id.clone()).collect();
            self.load_leased(left, ttl_ms, &mut call, &mut load).await?;
            if ids_left.is_empty() || Instant::now() >= deadline {
                break;
            }
            // By the time the first row is loaded, most of the others are, too.
            let id = ids_left.remove(0);
            let first = self.commands.fetch(io, vec![id.clone()], Fetch::default());
            let left = self.read_one(io, &id, deadline, first, &mut call).await?;
            self.load_leased(left, ttl_ms, &mut call, &mut load).await?;
        }
        call.unguarded.extend(ids_left);
        self.unguarded(io, &mut call, load).await?;
        let rows: HashMap<_, _> = call.rows.into_iter().collect();
        Ok(ids.iter().map(|id| rows.get(id).cloned().flatten()).collect())
    }

    /// Loads the rows that have leases, and shares them.
    async fn load_leased<L: Future<Output = Result<Vec<Option<C::Row>>, Error>>>(
        &self,
        left: Left<'_, impl Io>,
        ttl_ms: u64,
        call: &mut Call<'_, C::Row>,
        load: &mut impl FnMut(Vec<Vec<u8>>) -> L,
    ) -> Result<(), Error> {
        if !left.flights.is_empty() {
            let ids = left.leases.ids();
            let loaded = self.load_and_fill(left.leases, async { load(ids).await }, ttl_ms, left.has_values).await;
            call.rows.extend(share(&self.flights, left.flights, loaded)?);
        }
        Ok(())
    }

    /// Returns the time at which a caller stops waiting.
    fn deadline(&self, attempts: u32) -> Instant {
        let now = Instant::now();
        now.checked_add(self.options().wait.saturating_mul(attempts)).unwrap_or(now)
    }

    /// Fetches the rows of flights.
    async fn fetch<I: Io>(&self, io: &I, flights: &mut [Flight<'_>], how: Fetch) -> Found<I> {
        flights.iter_mut().for_each(Flight::ask);
        let ids = flights.iter().map(|flight| flight.id.clone()).collect();
        self.commands.fetch(io, ids, how).await
    }

    /// Reads a row, waiting until the deadline for a caller that loads it. Returns its lease if this caller has to load it.
    async fn read_one<'a, I: Io>(
        &'a self,
        io: &I,
        id: &[u8],
        deadline: Instant,
        first: impl Future<Output = Found<I>>,
        call: &mut Call<'a, C::Row>,
    ) -> Result<Left<'a, I>, Error> {
        if self.is_loading(id) {
            call.unguarded.push(id.to_vec());
            return Ok(self.nothing_left(io));
        }
        let mut flight = self.flights.begin(id, call.number);
        flight.ask();
        let mut found = first.await;
        loop {
            let mut left = self.settle(io, vec![flight], found, call).await?;
            let Some(waiting) = left.waiting.pop() else { return Ok(left) };
            let time = deadline.saturating_duration_since(Instant::now());
            if time.is_zero() {
                call.unguarded.push(id.to_vec());
                call.ended.push(waiting);
                return Ok(left);
            }
            flight = waiting;
            found = self.wait(io, &mut flight, time).await?;
        }
    }

    fn nothing_left<'a, I: Io>(&self, io: &I) -> Left<'a, I> {
        Left { flights: Vec::new(), leases: Leases::new(&self.commands, io), has_values: true, waiting: Vec::new() }
    }

    /// Sorts the answers for rows. Rows whose values cannot be decoded are fetched again, to be replaced.
    ///
    /// # Errors
    /// The load of a row has failed, and its back-off has not ended.
    async fn settle<'a, I: Io>(
        &self,
        io: &I,
        mut flights: Vec<Flight<'a>>,
        mut found: Found<I>,
        call: &mut Call<'a, C::Row>,
    ) -> Result<Left<'a, I>, Error> {
        let mut left = self.nothing_left(io);
        loop {
            let mut unreadable = Vec::new();
            let Found { answers, mut leases } = found;
            for (mut flight, answer) in flights.into_iter().zip(answers) {
                let answer = match answer {
                    Ok(answer) => answer,
                    failed => {
                        flight.outcome = Outcome::Found(failed);
                        call.unguarded.push(flight.id.clone());
                        call.ended.push(flight);
                        continue;
                    }
                };
                match (self.read(&answer), &answer) {
                    (_, Fetched::Failed) => {
                        let error = Error::LoadFailed { id: flight.id.clone(), cause: None };
                        flight.outcome = Outcome::Failed(error.clone());
                        return Err(error);
                    }
                    (row, Fetched::Load(_) | Fetched::Stale(..)) if row.is_none() || !flight.replaces => {
                        left.has_values &= row.is_some();
                        leases.move_to(&mut left.leases, &flight.id);
                        left.flights.push(flight);
                    }
                    (Some(row), _) => {
                        flight.outcome = answer.shared();
                        call.rows.push((flight.id.clone(), row));
                    }
                    (None, Fetched::Hit(_)) if !flight.replaces => {
                        flight.replaces = true;
                        unreadable.push(flight);
                    }
                    (None, _) => left.waiting.push(flight),
                }
            }
            self.commands.count("undecodable", unreadable.len());
            // The remaining leases are for values that other callers have replaced, and that are not due for a refresh.
            leases.give_up(false).await;
            if unreadable.is_empty() {
                return Ok(left);
            }
            flights = unreadable;
            found = self.fetch(io, &mut flights, Fetch { replace: true, ..Fetch::default() }).await;
        }
    }

    /// Waits for the holder of the lease, in this process or inside the server. Returns the outcome that another caller shares,
    /// or the server's answer. If half of the connections are waiting in the server, it pauses.
    async fn wait<I: Io>(&self, io: &I, flight: &mut Flight<'_>, left: Duration) -> Result<Found<I>, Error> {
        if let Some(waiter) = flight.begin_wait() {
            io.wait(&[waiter], left).await;
            let answer = match flight.end_wait() {
                Outcome::Nothing => return Ok(self.fetch(io, slice::from_mut(flight), Fetch::default()).await),
                Outcome::Found(answer) => answer,
                Outcome::Failed(error) => {
                    self.commands.count("shared", 1);
                    return Err(error);
                }
            };
            self.commands.count("shared", usize::from(answer.is_ok()));
            return Ok(Found::one(&self.commands, io, answer));
        }
        let mut how = Fetch { replace: flight.replaces, ..Fetch::default() };
        let begun = Instant::now();
        let Some(slot) = io.take_slot() else {
            io.sleep(REPEAT.min(left)).await;
            return Ok(self.fetch(io, slice::from_mut(flight), how).await);
        };
        how.wait = Some((self.options().wait.min(left).max(Duration::from_millis(1)), slot));
        let found = self.fetch(io, slice::from_mut(flight), how).await;
        if let [Ok(Fetched::Wait)] = found.answers.as_slice() {
            // CLIENT UNBLOCK has ended the wait.
            io.sleep(REPEAT.min(left).saturating_sub(begun.elapsed())).await;
        }
        Ok(found)
    }
}
