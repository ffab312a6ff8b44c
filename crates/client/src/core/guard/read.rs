//! Reading one row.

use std::future::Future;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::flights::{Flight, Outcome, number};
use super::load::{caught, settle};
use super::{Answer, Fetch, Fetched, FoundOne, GuardCore, Io, Leases, milliseconds};
use crate::core::Slot;
use crate::guard_options::in_range;
use crate::{Codec, Error};

/// The pause before a confirmation is repeated, and before a row is fetched again that nobody can wait for.
pub(super) const REPEAT: Duration = Duration::from_millis(100);

/// The most loads of a guard that continue in the background after their `soft_timeout`.
const BACKGROUND_LOADS: usize = 64;

/// Returns the row of a load of one row.
fn only<R>(rows: Vec<Option<R>>) -> Option<R> {
    rows.into_iter().next().flatten()
}

impl<C: Codec> GuardCore<C> {
    /// Reads a row. `first` fetches it.
    pub async fn get<I: Io, L: Future<Output = Result<Option<C::Row>, Error>>>(
        &self,
        io: &I,
        id: &[u8],
        ttl: Option<Duration>,
        first: impl Future<Output = FoundOne<I>>,
        load: impl FnOnce() -> L,
    ) -> Result<Option<C::Row>, Error> {
        let ttl_ms = self.options().ttl_ms(ttl)?;
        if self.is_loading(id) {
            return self.unguarded_row(io, id, number(), load).await;
        }
        let mut flight = self.flights.begin(id, number());
        flight.ask();
        let answer = self.fetch_row(io, &mut flight, self.deadline(self.options().attempts), Some(first.await)).await?;
        let Some(Answer { value, lease, is_readable }) = answer else {
            let number = flight.number;
            drop(flight);
            return self.unguarded_row(io, id, number, load).await;
        };
        let Some(lease) = lease else { return Ok(value) };
        let load = async { Ok(vec![load().await?]) };
        let loaded = Box::pin(caught(self.load_and_fill(lease, load, ttl_ms, is_readable))).await;
        settle(slice::from_mut(&mut flight), loaded).map(only)
    }

    /// Reads a row from the database, and fills nothing: the server does not answer, another caller loads the row and takes too long, or
    /// this call is made inside a load of the row.
    async fn unguarded_row<L: Future<Output = Result<Option<C::Row>, Error>>>(
        &self,
        io: &impl Io,
        id: &[u8],
        number: u64,
        load: impl FnOnce() -> L,
    ) -> Result<Option<C::Row>, Error> {
        let mut load = Some(load);
        let once = |_| {
            let load = load.take();
            async move {
                match load {
                    Some(load) => Ok(vec![load().await?]),
                    None => Ok(Vec::new()),
                }
            }
        };
        let rows = Box::pin(self.unguarded(io, vec![id.to_vec()], number, once)).await?;
        Ok(only(rows.into_iter().map(|(_, row)| row).collect()))
    }

    /// Reads a row. If an old value is cached and the load takes longer than `soft_timeout`, that value is returned, and the load
    /// continues in the background.
    pub async fn get_with_soft_timeout<I: Io, L>(
        self: &Arc<Self>,
        io: &I,
        id: &[u8],
        soft_timeout: Duration,
        first: impl Future<Output = FoundOne<I>>,
        load: impl FnOnce() -> L + Send + 'static,
    ) -> Result<Option<C::Row>, Error>
    where
        C: 'static,
        L: Future<Output = Result<Option<C::Row>, Error>> + Send + 'static,
    {
        let ttl_ms = self.options().ttl_ms(None)?;
        in_range("soft_timeout", soft_timeout)?;
        if self.is_loading(id) {
            return self.unguarded_row(io, id, number(), load).await;
        }
        let mut flight = self.flights.begin(id, number());
        flight.ask();
        let answer = self.fetch_row(io, &mut flight, self.deadline(self.options().attempts), Some(first.await)).await?;
        let Some(Answer { value, lease, is_readable }) = answer else {
            let number = flight.number;
            drop(flight);
            return self.unguarded_row(io, id, number, load).await;
        };
        let Some(lease) = lease else { return Ok(value) };
        if !is_readable {
            let load = async { Ok(vec![load().await?]) };
            let loaded = caught(self.load_and_fill(lease, load, ttl_ms, false)).await;
            return settle(slice::from_mut(&mut flight), loaded).map(only);
        }
        let Some(slot) = Slot::take(&self.background, BACKGROUND_LOADS) else {
            // Too many loads are running already.
            lease.back_off().await;
            return match self.old_value(io, id).await {
                Some(old) => Ok(old),
                None => {
                    let number = flight.number;
                    drop(flight);
                    self.unguarded_row(io, id, number, load).await
                }
            };
        };
        let guard = Arc::clone(self);
        let mut running = io.start(async move {
            let load = async { Ok(vec![load().await?]) };
            let loaded = caught(guard.load_and_fill(lease, load, ttl_ms, true)).await;
            drop(slot);
            loaded
        });
        if let Some(loaded) = io.join(&mut running, soft_timeout).await {
            return settle(slice::from_mut(&mut flight), loaded).map(only);
        }
        if let Some(old) = self.old_value(io, id).await {
            return Ok(old);
        }
        let lost = || Ok(Err(Error::LoadFailed { id: id.to_vec(), cause: None }));
        let loaded = io.join(&mut running, Duration::MAX).await.unwrap_or_else(lost);
        settle(slice::from_mut(&mut flight), loaded).map(only)
    }

    /// Returns the old value of a row that is being loaded, if one may be served.
    async fn old_value(&self, io: &impl Io, id: &[u8]) -> Option<Option<C::Row>> {
        let old = self.old_values(io, vec![id.to_vec()]).await.pop().flatten();
        self.commands.count("soft_timeout", usize::from(old.is_some()));
        old
    }

    /// Returns when a caller no longer waits.
    pub(super) fn deadline(&self, attempts: u32) -> Instant {
        let now = Instant::now();
        now.checked_add(self.options().wait.saturating_mul(attempts)).unwrap_or(now)
    }

    /// Fetches a row until the answer is final. `first` is the reply to a fetch, if there was one. Returns nothing if the server
    /// fails, or nobody brings the row in time.
    ///
    /// # Errors
    /// The row's load failed, and its back-off has not ended.
    pub(super) async fn fetch_row<I: Io>(
        &self,
        io: &I,
        flight: &mut Flight<'_>,
        deadline: Instant,
        first: Option<FoundOne<I>>,
    ) -> Result<Option<Answer<C::Row, I>>, Error> {
        let mut undecodable: Option<Arc<[u8]>> = None;
        let mut replace = false;
        let (mut waits, mut early) = (0, 0);
        let mut known = first;
        loop {
            let (found, lease) = match known.take() {
                Some(found) => found,
                None => {
                    flight.ask();
                    self.commands.fetch_one(io, &flight.id, Fetch { replace, ..Fetch::default() }).await
                }
            };
            let Ok(found) = found else {
                flight.outcome = Outcome::NoServer;
                return Ok(None);
            };
            if found != Fetched::Wait {
                let (value, is_readable) = self.read(&found, undecodable.as_deref());
                if is_readable && replace {
                    // Another caller has replaced the value meanwhile. The new one is not due for a refresh.
                    lease.give_up().await;
                    flight.outcome = found.shared();
                    return Ok(Some(Answer { value, lease: None, is_readable }));
                }
                let lease = Some(lease).filter(|lease| !lease.left.is_empty());
                if lease.is_some() || is_readable {
                    if lease.is_none() {
                        flight.outcome = found.shared();
                    }
                    return Ok(Some(Answer { value, lease, is_readable }));
                }
                if let Fetched::Hit(value) = &found {
                    undecodable = Some(Arc::clone(value));
                }
                if !replace {
                    replace = true;
                    continue;
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            waits += 1;
            if left.is_zero() && waits >= self.options().attempts {
                return Ok(None);
            }
            known = self.wait(io, flight, left, matches!(found, Fetched::Hit(_)), &mut early).await?;
            replace = false;
        }
    }

    /// Waits for the caller that holds the lease: in this process, or else inside the server. Returns what another caller shares,
    /// or what the server answers. A server that has a value cached makes nobody wait for another; then, and if half of the
    /// connections wait in the server already, it pauses. `early` counts the waits in succession that ended early.
    async fn wait<I: Io>(
        &self,
        io: &I,
        flight: &mut Flight<'_>,
        left: Duration,
        is_cached: bool,
        early: &mut u32,
    ) -> Result<Option<FoundOne<I>>, Error> {
        if left.is_zero() {
            return Ok(None);
        }
        if let Some(waiter) = flight.begin_wait() {
            io.wait(&[waiter], left).await;
            let outcome = flight.end_wait();
            let is_shared = matches!(outcome, Outcome::Found(_) | Outcome::Failed(_));
            self.commands.count("shared", usize::from(is_shared));
            return match outcome {
                Outcome::Found(found) => Ok(Some((Ok(found), Leases::new(&self.commands, io)))),
                Outcome::Failed(error) => Err(error),
                Outcome::Nothing | Outcome::NoServer => Ok(None),
            };
        }
        let slot = if is_cached { None } else { io.take_slot() };
        let Some(slot) = slot else {
            io.sleep(REPEAT.min(left)).await;
            return Ok(None);
        };
        let wait_ms = milliseconds(self.options().wait.min(left)).max(1);
        let begun = Instant::now();
        flight.ask();
        let how = Fetch { wait: Some((wait_ms, slot)), ..Fetch::default() };
        let (found, lease) = self.commands.fetch_one(io, &flight.id, how).await;
        let is_unblocked = matches!(&found, Err(Error::Redis { source, .. }) if source.code() == Some("UNBLOCKED"));
        let waited = begun.elapsed();
        let is_early = matches!(found, Ok(Fetched::Wait)) && waited < Duration::from_millis(wait_ms) / 2;
        if !is_unblocked && !is_early {
            *early = 0;
            return Ok(Some((found, lease)));
        }
        // CLIENT UNBLOCK has ended the wait, or no caller may load during a back-off, when each fetch is answered at once.
        *early = if is_unblocked { 0 } else { *early + 1 };
        if *early > 1 && !self.options().fail_safe.is_zero() {
            let error = Error::LoadFailed { id: flight.id.clone(), cause: None };
            flight.outcome = Outcome::Failed(error.clone());
            return Err(error);
        }
        io.sleep(REPEAT.saturating_sub(waited).min(left)).await;
        Ok(Some((Ok(Fetched::Wait), lease)))
    }
}
