//! Reading one row.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::flights::Flight;
use super::load::{Leases, Loaded};
use super::{Answer, Fetch, Fetched, GuardCore, GuardError, Io, milliseconds};
use crate::core::Slot;
use crate::{Codec, Error};

/// The pause before a confirmation is repeated, and before a row is fetched again that nobody can wait for.
pub(super) const REPEAT: Duration = Duration::from_millis(100);

/// The most loads of a guard that continue in the background after their `soft_timeout`.
const BACKGROUND_LOADS: usize = 64;

impl<C: Codec> GuardCore<C> {
    /// Reads a row.
    pub async fn get<E>(
        &self,
        io: &impl Io,
        id: &[u8],
        ttl: Option<Duration>,
        load: impl AsyncFnOnce() -> Result<Option<C::Row>, E>,
    ) -> Result<Option<C::Row>, GuardError<E>> {
        let ttl_ms = self.options.ttl_ms(ttl)?;
        let mut flight = self.flights.begin(id);
        let answer = self.fetch_row(io, &mut flight, self.deadline(self.options.attempts)).await?;
        let Some(Answer { value, token, is_readable }) = answer else {
            drop(flight);
            // The server does not answer, or another caller loads the row and takes too long: query the database, fill nothing.
            return self.timed(load).await;
        };
        let Some(token) = token else { return Ok(value) };
        let leases = Leases { guard: self, io, left: vec![(id.to_vec(), token)] };
        let loaded = self.load_and_fill(leases, async || Ok(vec![load().await?]), ttl_ms, is_readable).await;
        self.finish(&mut flight, loaded)
    }

    /// Returns the row of a load, and records in the flight what became of it.
    fn finish<E>(
        &self,
        flight: &mut Flight<'_>,
        loaded: Result<Loaded<C::Row>, GuardError<E>>,
    ) -> Result<Option<C::Row>, GuardError<E>> {
        let loaded = loaded.inspect_err(|_| flight.has_failed = !self.options.fail_safe.is_zero())?;
        flight.has_news = loaded.cached.first() == Some(&true);
        Ok(loaded.rows.into_iter().next().flatten())
    }

    /// Reads a row. If an old value is cached and the load takes longer than `soft_timeout`, that value is returned, and the load
    /// continues in the background.
    pub async fn get_within<I: Io + Clone + 'static, E: Send + 'static>(
        self: &Arc<Self>,
        io: &I,
        id: &[u8],
        soft_timeout: Duration,
        load: impl AsyncFnOnce() -> Result<Option<C::Row>, E> + Send + 'static,
    ) -> Result<Option<C::Row>, GuardError<E>>
    where
        C: 'static,
    {
        let ttl_ms = self.options.ttl_ms(None)?;
        let mut flight = self.flights.begin(id);
        let answer = self.fetch_row(io, &mut flight, self.deadline(self.options.attempts)).await?;
        let Some(Answer { value, token, is_readable }) = answer else {
            drop(flight);
            return self.timed(load).await;
        };
        let Some(token) = token else { return Ok(value) };
        let lease = (id.to_vec(), token);
        if !is_readable {
            let leases = Leases { guard: self, io, left: vec![lease] };
            let loaded = self.load_and_fill(leases, async || Ok(vec![load().await?]), ttl_ms, false).await;
            return self.finish(&mut flight, loaded);
        }
        let Some(slot) = Slot::take(&self.background, BACKGROUND_LOADS) else {
            // Too many loads are running already.
            self.back_off(io, vec![lease]).await;
            return match self.old_value(io, &mut flight).await {
                Some(old) => Ok(old),
                None => self.timed(load).await,
            };
        };
        let (guard, background) = (Arc::clone(self), io.clone());
        let work = async move || {
            let leases = Leases { guard: &guard, io: &background, left: vec![lease] };
            let loaded = guard.load_and_fill(leases, async || Ok(vec![load().await?]), ttl_ms, true).await;
            drop(slot);
            loaded
        };
        let mut running = io.start(work);
        if let Some(loaded) = io.join(&mut running, soft_timeout).await {
            return self.finish(&mut flight, loaded);
        }
        if let Some(old) = self.old_value(io, &mut flight).await {
            return Ok(old);
        }
        let lost = || Err(Error::LoadFailed { id: id.to_vec() }.into());
        let loaded = io.join(&mut running, Duration::MAX).await.unwrap_or_else(lost);
        self.finish(&mut flight, loaded)
    }

    /// Returns the old value of a row that is being loaded, if one may be served.
    async fn old_value(&self, io: &impl Io, flight: &mut Flight<'_>) -> Option<Option<C::Row>> {
        let old = self.old_values(io, std::slice::from_ref(&flight.id)).await.pop().flatten();
        flight.has_news |= old.is_some();
        old
    }

    /// Returns when a caller no longer waits.
    pub(super) fn deadline(&self, attempts: u32) -> Instant {
        let now = Instant::now();
        now.checked_add(self.options.wait.saturating_mul(attempts)).unwrap_or(now)
    }

    /// Fetches a row until the answer is final. Returns nothing if the server fails, or nobody brings the row in time.
    ///
    /// # Errors
    /// The row's load failed, and its back-off has not ended.
    pub(super) async fn fetch_row(
        &self,
        io: &impl Io,
        flight: &mut Flight<'_>,
        deadline: Instant,
    ) -> Result<Option<Answer<C::Row>>, Error> {
        let mut undecodable: Option<Vec<u8>> = None;
        let mut replace = false;
        let mut waits = 0;
        let mut waited = None;
        loop {
            let found = match waited.take() {
                Some(found) => found,
                None => self.fetch_one(io, &flight.id, &Fetch { replace, ..Fetch::default() }).await,
            };
            let Ok(found) = found else {
                flight.has_news = true;
                return Ok(None);
            };
            if found != Fetched::Wait {
                let mut answer = self.read(&found, undecodable.as_deref());
                if let (Fetched::Stale(_, token), true, true) = (&found, answer.is_readable, replace) {
                    // Another caller has replaced the value meanwhile. The new one is not due for a refresh.
                    io.ask(vec![self.give_up(&flight.id, token)]).await;
                    answer.token = None;
                }
                if answer.token.is_some() || answer.is_readable {
                    flight.has_news = answer.token.is_none();
                    return Ok(Some(answer));
                }
                if let Fetched::Hit(value) = &found {
                    undecodable = Some(value.clone());
                }
                if !replace {
                    replace = true;
                    continue;
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            waits += 1;
            if left.is_zero() && waits >= self.options.attempts {
                return Ok(None);
            }
            waited = self.wait(io, flight, left, matches!(found, Fetched::Hit(_))).await?;
            replace = false;
        }
    }

    async fn fetch_one(&self, io: &impl Io, id: &[u8], how: &Fetch) -> Result<Fetched, Error> {
        let missing = || Err(Error::UnexpectedReply("the server sent no reply".to_owned()));
        self.fetch(io, &[id], how).await.pop().unwrap_or_else(missing)
    }

    /// Waits for the caller that holds the lease: in this process, or else inside the server. Returns what the server answers in
    /// the latter case. A server that has a value cached makes nobody wait for another; then, and if half of the connections wait
    /// in the server already, it pauses.
    async fn wait(
        &self,
        io: &impl Io,
        flight: &mut Flight<'_>,
        left: Duration,
        is_cached: bool,
    ) -> Result<Option<Result<Fetched, Error>>, Error> {
        if left.is_zero() {
            return Ok(None);
        }
        if let Some(waiter) = flight.begin_wait() {
            io.wait(&waiter, left).await;
            return match flight.end_wait() {
                true => Err(Error::LoadFailed { id: flight.id.clone() }),
                false => Ok(None),
            };
        }
        let slot = if is_cached { None } else { io.take_slot() };
        let Some(slot) = slot else {
            io.sleep(REPEAT.min(left)).await;
            return Ok(None);
        };
        let wait_ms = milliseconds(self.options.wait.min(left)).max(1);
        let begun = Instant::now();
        let found = self.fetch_one(io, &flight.id, &Fetch { wait_ms, ..Fetch::default() }).await;
        drop(slot);
        if matches!(found, Ok(Fetched::Wait)) && begun.elapsed() < Duration::from_millis(wait_ms) / 2 {
            // A caller that waits for a lease waits for all of wait_ms. Only a back-off is answered earlier.
            flight.has_failed = true;
            return Err(Error::LoadFailed { id: flight.id.clone() });
        }
        Ok(Some(found))
    }
}
