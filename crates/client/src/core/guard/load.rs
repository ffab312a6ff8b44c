//! Loading rows under leases: filling them, and what happens when the database fails.

use std::mem;
use std::time::{Duration, Instant};

use super::{BATCH, Fetch, Fetched, GuardCore, GuardError, Io, Token, lock};
use crate::{Codec, Error};

/// The weight of the newest load in the average duration of loads.
const SMOOTHING: f64 = 0.2;
/// The back-off after the first failed load of a row. It doubles with each further failure.
const BACKOFF_MS: u64 = 100;
/// The longest back-off.
const MOST_BACKOFF_MS: u64 = 10_000;
/// The most rows whose failed loads are counted. Beyond that, the row that has not failed for the longest time is forgotten.
const MOST_FAILING: usize = 10_000;

/// Leases of this caller. Those that are left when this is dropped, because a load panicked for instance, are given up.
pub struct Leases<'a, C: Codec, I: Io> {
    pub guard: &'a GuardCore<C>,
    pub io: &'a I,
    pub left: Vec<(Vec<u8>, Token)>,
}

impl<C: Codec, I: Io> Drop for Leases<'_, C, I> {
    fn drop(&mut self) {
        if !self.left.is_empty() {
            self.io.send(self.left.iter().map(|(id, token)| self.guard.give_up(id, token)).collect());
        }
    }
}

/// Rows in the order of their leases, and whether each is cached now.
pub struct Loaded<R> {
    pub rows: Vec<Option<R>>,
    pub cached: Vec<bool>,
}

impl<C: Codec> GuardCore<C> {
    /// Calls a function that loads rows, and takes its duration into the average.
    pub(super) async fn timed<R, E>(&self, load: impl AsyncFnOnce() -> Result<R, E>) -> Result<R, GuardError<E>> {
        let begun = Instant::now();
        let loaded = load().await.map_err(GuardError::Caller)?;
        let took = begun.elapsed().as_secs_f64();
        let mut average = lock(&self.load_time);
        let old = average.as_secs_f64();
        let weight = if old > 0.0 { SMOOTHING } else { 1.0 };
        *average = Duration::try_from_secs_f64(old + (took - old) * weight).unwrap_or_default();
        Ok(loaded)
    }

    /// Loads rows under leases, and fills them or gives the leases up. If all of them have old values in the cache
    /// (`has_values`), these are served when the load fails.
    pub(super) async fn load_and_fill<I: Io, E>(
        &self,
        mut leases: Leases<'_, C, I>,
        load: impl AsyncFnOnce() -> Result<Vec<Option<C::Row>>, E>,
        ttl_ms: u64,
        has_values: bool,
    ) -> Result<Loaded<C::Row>, GuardError<E>> {
        let io = leases.io;
        let ids: Vec<Vec<u8>> = leases.left.iter().map(|(id, _)| id.clone()).collect();
        let loaded = self.timed(load).await.and_then(|rows| {
            let fill = |((id, token), row): (&(Vec<u8>, Token), &Option<C::Row>)| {
                self.fill_with(id, token, row.as_ref(), ttl_ms)
            };
            let fills: Result<Vec<_>, Error> = leases.left.iter().zip(&rows).map(fill).collect();
            Ok((rows, fills?))
        });
        let (rows, fills) = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                self.back_off(io, mem::take(&mut leases.left)).await;
                if has_values {
                    let rows = self.old_values(io, &ids).await;
                    if let Some(rows) = rows.into_iter().collect() {
                        return Ok(Loaded { rows, cached: vec![false; ids.len()] });
                    }
                }
                return Err(error);
            }
        };
        let mut cached = Vec::with_capacity(ids.len());
        for part in fills.chunks(BATCH) {
            let replies = io.ask(part.to_vec()).await;
            let filled: Vec<_> = leases.left.drain(..part.len().min(leases.left.len())).zip(replies).collect();
            // Nobody should wait until the lease of a row ends that the server refuses, because it is out of memory for instance.
            let refused: Vec<_> = filled
                .iter()
                .filter(|(_, reply)| reply.is_err())
                .map(|((id, token), _)| self.give_up(id, token))
                .collect();
            cached.extend(filled.iter().map(|(_, reply)| !matches!(reply, Ok(redis::Value::Nil) | Err(_))));
            if !refused.is_empty() {
                io.ask(refused).await;
            }
        }
        let mut failing = lock(&self.failing);
        for id in &ids {
            failing.remove(id);
        }
        drop(failing);
        Ok(Loaded { rows, cached })
    }

    /// Fetches values that may be served though they are old: a row, or that there is none. The values that were fetched before a
    /// load do not qualify: a row may have been changed during the load, and then its value has been deleted.
    pub(super) async fn old_values(&self, io: &impl Io, ids: &[Vec<u8>]) -> Vec<Option<Option<C::Row>>> {
        let fetched: Vec<&[u8]> = ids.iter().map(Vec::as_slice).collect();
        let how = Fetch { stale_ms: Some(0), ..Fetch::default() };
        let found = self.fetch(io, &fetched, &how).await;
        let mut unneeded = Vec::new();
        let mut values = Vec::with_capacity(ids.len());
        for (id, found) in ids.iter().zip(&found) {
            let token = found.as_ref().ok().and_then(Fetched::token);
            unneeded.extend(token.map(|token| self.give_up(id, token)));
            let answer = found.as_ref().ok().map(|found| self.read(found, None));
            values.push(answer.filter(|answer| answer.is_readable).map(|answer| answer.value));
        }
        if !unneeded.is_empty() {
            io.ask(unneeded).await;
        }
        values
    }

    /// Ends the leases of rows whose load has failed. With `fail_safe`, nobody gets another lease for them before a back-off has
    /// passed. A server that does not know BACKOFF ends the leases only.
    pub(super) async fn back_off(&self, io: &impl Io, leases: Vec<(Vec<u8>, Token)>) {
        let has_back_off = !self.options.fail_safe.is_zero();
        let give_up = |(id, token): &(Vec<u8>, Token)| {
            let mut give_up = self.give_up(id, token);
            if has_back_off {
                give_up.arg("BACKOFF").arg(self.next_back_off_ms(id));
            }
            give_up
        };
        let replies = io.ask(leases.iter().map(give_up).collect()).await;
        if has_back_off {
            let refused: Vec<_> = leases
                .iter()
                .zip(replies)
                .filter(|(_, reply)| reply.is_err())
                .map(|((id, token), _)| self.give_up(id, token))
                .collect();
            if !refused.is_empty() {
                io.ask(refused).await;
            }
        }
    }

    /// Counts a failed load of a row, and returns how long nobody may try again.
    fn next_back_off_ms(&self, id: &[u8]) -> u64 {
        let mut failing = lock(&self.failing);
        let failures = failing.get(id).map_or(0, |(failures, _)| *failures);
        failing.insert(id.to_vec(), (failures.saturating_add(1), Instant::now()));
        if failing.len() > MOST_FAILING {
            let oldest = failing.iter().min_by_key(|(_, (_, at))| *at).map(|(id, _)| id.clone());
            oldest.and_then(|id| failing.remove(&id));
        }
        (BACKOFF_MS << failures.min(16)).min(MOST_BACKOFF_MS)
    }
}
