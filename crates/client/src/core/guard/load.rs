//! Loading rows under leases: filling them, and what happens when the database fails.

use std::future::Future;
use std::time::{Duration, Instant};

use super::leases::Lease;
use super::{Fetch, GuardCore, Io, Leases, lock};
use crate::{Codec, Error};

/// The weight of the newest load in the average duration of loads.
const SMOOTHING: f64 = 0.2;

impl<C: Codec> GuardCore<C> {
    /// Loads some rows, and takes the duration into the average.
    async fn timed<R>(&self, rows: usize, load: impl Future<Output = Result<R, Error>>) -> Result<R, Error> {
        let begun = Instant::now();
        let loaded = load.await.inspect_err(|_| self.commands.count("load_failed", rows))?;
        let took = begun.elapsed().as_secs_f64();
        let mut average = lock(&self.commands.load_time);
        let old = average.as_secs_f64();
        let weight = if old > 0.0 { SMOOTHING } else { 1.0 };
        *average = Duration::try_from_secs_f64(old + (took - old) * weight).unwrap_or_default();
        Ok(loaded)
    }

    /// Loads rows without leases.
    pub(super) async fn unguarded(
        &self,
        rows: usize,
        load: impl Future<Output = Result<Vec<Option<C::Row>>, Error>>,
    ) -> Result<Vec<Option<C::Row>>, Error> {
        self.commands.count("unguarded", rows);
        self.decode(&self.encode(&self.timed(rows, load).await?)?)
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
        let loaded = self.timed(leases.left.len(), load).await.and_then(|rows| {
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
