//! Reading many rows at once.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::time::{Duration, Instant};

use super::flights::{Flight, Outcome, number};
use super::load::{caught, settle};
use super::{BATCH, Fetch, Fetched, Found, GuardCore, Io, Leases};
use crate::{Codec, Error};

/// The rows of one call, by the bytes of their ids.
struct Rows<R> {
    rows: HashMap<Vec<u8>, Option<R>>,
    /// Rows that the server failed for, or that nobody brought in time.
    unguarded: Vec<Vec<u8>>,
}

/// What a fetch of many rows leaves to do.
#[derive(Default)]
struct Sorted {
    /// Whether every row with a lease has an old value that may be served.
    has_values: bool,
    /// The rows that other callers load.
    waiting: Vec<Vec<u8>>,
}

impl<C: Codec> GuardCore<C> {
    /// Reads rows. Ids with the same bytes are one row. `load` gets the ids that this caller has to load, and returns a row or
    /// nothing for each.
    pub async fn get_many<L: Future<Output = Result<Vec<Option<C::Row>>, Error>>>(
        &self,
        io: &impl Io,
        ids: &[Vec<u8>],
        ttl: Option<Duration>,
        mut load: impl FnMut(Vec<Vec<u8>>) -> L,
    ) -> Result<Vec<Option<C::Row>>, Error> {
        let ttl_ms = self.options().ttl_ms(ttl)?;
        let (deadline, begun) = (self.deadline(1), number());
        let mut seen = HashSet::new();
        let unique = ids.iter().filter(|id| seen.insert(*id)).cloned();
        let (unguarded, mut left) = unique.partition(|id| self.is_loading(id));
        let mut found = Rows { rows: HashMap::new(), unguarded };
        left = self.fetch_all(io, left, ttl_ms, &mut found, &mut load).await?;
        while !left.is_empty() && Instant::now() < deadline {
            // By the time the first row is there, most of the others are, too.
            let rest = left.split_off(1);
            for id in &left {
                self.wait_for(io, id, deadline, ttl_ms, &mut found, &mut load).await?;
            }
            left = self.fetch_all(io, rest, ttl_ms, &mut found, &mut load).await?;
        }
        found.unguarded.extend(left);
        if !found.unguarded.is_empty() {
            let unguarded = std::mem::take(&mut found.unguarded);
            found.rows.extend(self.unguarded(io, unguarded, begun, load).await?);
        }
        Ok(ids.iter().map(|id| found.rows.get(id).cloned().flatten()).collect())
    }

    /// Fetches rows, and loads those whose leases it gets. Returns the ids of the rows that other callers load.
    async fn fetch_all<L: Future<Output = Result<Vec<Option<C::Row>>, Error>>>(
        &self,
        io: &impl Io,
        ids: Vec<Vec<u8>>,
        ttl_ms: u64,
        found: &mut Rows<C::Row>,
        load: &mut impl FnMut(Vec<Vec<u8>>) -> L,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let mut flights: HashMap<Vec<u8>, Flight> =
            ids.iter().map(|id| (id.clone(), self.flights.begin(id, number()))).collect();
        let mut sorted = Sorted { has_values: true, ..Sorted::default() };
        let mut leases = Leases::new(&self.commands, io);
        for part in ids.chunks(BATCH) {
            let (leased, unreadable) = self.fetch_part(io, part, false, &mut flights, found, &mut sorted).await;
            leases.append(leased);
            if !unreadable.is_empty() {
                leases.append(self.fetch_part(io, &unreadable, true, &mut flights, found, &mut sorted).await.0);
            }
        }
        // Only those with a lease will bring a row: nobody in this process has to wait for the other flights.
        let leased: HashSet<&[u8]> = leases.left.iter().map(|(id, _)| id.as_slice()).collect();
        flights.retain(|id, _| leased.contains(id.as_slice()));
        if !leases.left.is_empty() {
            self.load_leased(leases, sorted.has_values, flights.into_values().collect(), ttl_ms, found, load).await?;
        }
        Ok(sorted.waiting)
    }

    /// Fetches some rows together, and sorts them by their answers. Returns the leases, and the ids whose cached values could not
    /// be decoded, to be fetched again with `replace`.
    async fn fetch_part<I: Io>(
        &self,
        io: &I,
        ids: &[Vec<u8>],
        replace: bool,
        flights: &mut HashMap<Vec<u8>, Flight<'_>>,
        found: &mut Rows<C::Row>,
        sorted: &mut Sorted,
    ) -> (Leases<I>, Vec<Vec<u8>>) {
        for id in ids {
            if let Some(flight) = flights.get_mut(id) {
                flight.ask();
            }
        }
        let how = Fetch { replace, ..Fetch::default() };
        let Found { answers, mut leases } = self.commands.fetch(io, ids.to_vec(), how).await;
        let mut unreadable = Vec::new();
        let mut unneeded = Vec::new();
        for (id, one) in ids.iter().zip(answers) {
            let one = match one {
                Ok(Fetched::Wait) => {
                    sorted.waiting.push(id.clone());
                    continue;
                }
                Ok(one) => one,
                Err(_) => {
                    found.unguarded.push(id.clone());
                    if let Some(flight) = flights.get_mut(id) {
                        flight.outcome = Outcome::NoServer;
                    }
                    continue;
                }
            };
            let (value, is_readable) = self.read(&one, None);
            match one.token() {
                Some(_) if !(is_readable && replace) => sorted.has_values &= is_readable,
                None if !is_readable && replace => sorted.waiting.push(id.clone()),
                None if !is_readable => unreadable.push(id.clone()),
                _ => {
                    // With a lease, another caller has replaced the value meanwhile. The new one is not due for a refresh.
                    unneeded.extend(leases.take(id));
                    found.rows.insert(id.clone(), value);
                    if let Some(flight) = flights.get_mut(id) {
                        flight.outcome = one.shared();
                    }
                }
            }
        }
        for lease in unneeded {
            lease.give_up().await;
        }
        (leases, unreadable)
    }

    /// Waits for a row that another caller loads, and loads it if that caller does not bring it.
    async fn wait_for<L: Future<Output = Result<Vec<Option<C::Row>>, Error>>>(
        &self,
        io: &impl Io,
        id: &[u8],
        deadline: Instant,
        ttl_ms: u64,
        found: &mut Rows<C::Row>,
        load: &mut impl FnMut(Vec<Vec<u8>>) -> L,
    ) -> Result<(), Error> {
        let mut flight = self.flights.begin(id, number());
        match self.fetch_row(io, &mut flight, deadline, None).await? {
            None => found.unguarded.push(id.to_vec()),
            Some(answer) => match answer.lease {
                Some(leases) => {
                    self.load_leased(leases, answer.is_readable, vec![flight], ttl_ms, found, load).await?;
                }
                None => _ = found.rows.insert(id.to_vec(), answer.value),
            },
        }
        Ok(())
    }

    /// Loads rows under leases and fills them.
    async fn load_leased<I: Io, L: Future<Output = Result<Vec<Option<C::Row>>, Error>>>(
        &self,
        leases: Leases<I>,
        has_values: bool,
        mut flights: Vec<Flight<'_>>,
        ttl_ms: u64,
        found: &mut Rows<C::Row>,
        load: &mut impl FnMut(Vec<Vec<u8>>) -> L,
    ) -> Result<(), Error> {
        let ids = leases.ids();
        let asked = ids.clone();
        let loaded = caught(self.load_and_fill(leases, async { load(asked).await }, ttl_ms, has_values)).await;
        found.rows.extend(ids.into_iter().zip(settle(&mut flights, loaded)?));
        Ok(())
    }
}
