//! Coalesces the fetches of a process: callers wait here for a row that another caller loads.
//!
//! A caller that waits inside the server (`BF.FETCH ... WAIT`) occupies its connection, and gets the lease if the loading caller gives
//! up. So at most one caller per row waits there. The others wait in the process until that caller is done, and share its row if they
//! began before its fetch. Of the rest, the caller that has waited longest fetches next.

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::fetched::Fetched;
use crate::Error;

/// Locks a mutex. No code that can panic runs under the locks of this crate.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Numbers flights, fetches and loads of this process in the order in which they begin.
pub fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::SeqCst)
}

/// The outcome that a flight shares with waiting flights when it ends.
#[derive(Debug, Clone, Default)]
pub enum Outcome {
    /// Nothing is shared: the call was cancelled, or returned an old value.
    #[default]
    Nothing,
    /// The answer or the row that ended its call. It is shared with flights that began before its fetch; a later flight may know of
    /// a change that the answer lacks. If the server failed, the error is shared with all, which then also read from the database.
    Found(Result<Fetched, Error>),
    /// The error of its load.
    Failed(Error),
}

impl Fetched {
    /// Returns the outcome that a flight with this answer shares: the answer without its lease.
    pub fn shared(&self) -> Outcome {
        match self {
            Self::Absent => Outcome::Found(Ok(Self::Absent)),
            Self::Hit(value) | Self::Stale(value, _) => Outcome::Found(Ok(Self::Hit(Arc::clone(value)))),
            Self::Load(_) | Self::Wait | Self::Failed => Outcome::Nothing,
        }
    }
}

/// A shared outcome, and the number of its fetch.
type Shared = (Outcome, u64);

/// A caller that waits in the process.
#[derive(Debug, Default)]
pub struct Waiter {
    /// The shared outcome, once this flight was resumed, and its waker.
    state: Mutex<(Option<Shared>, Option<Waker>)>,
}

impl Waiter {
    /// Waits until one of some callers is resumed.
    pub async fn any_resumed(waiters: &[Arc<Self>]) {
        let is_resumed = |waiter: &Self, waker: &Waker| {
            let mut state = lock(&waiter.state);
            state.1 = Some(waker.clone());
            state.0.is_some()
        };
        poll_fn(|context| match waiters.iter().any(|waiter| is_resumed(waiter, context.waker())) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    fn resume(&self, outcome: Outcome, asked: u64) {
        let mut state = lock(&self.state);
        state.0 = Some((outcome, asked));
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The flights of one row: the number of active flights, and the waiting flights by number.
#[derive(Debug, Default)]
struct Row {
    active: usize,
    waiting: BTreeMap<u64, Arc<Waiter>>,
}

impl Row {
    /// Resumes the flight that began first, which is active from now on. If its caller is cancelled before it notices, the end
    /// of the flight resumes the next one.
    fn resume_first(&mut self, outcome: Outcome, asked: u64) {
        if let Some((_, waiter)) = self.waiting.pop_first() {
            self.active += 1;
            waiter.resume(outcome, asked);
        }
    }
}

type Rows = HashMap<Vec<u8>, Row>;

/// The rows that callers of this process are fetching or loading. While flights of a row wait, another flight is active.
#[derive(Debug, Default)]
pub struct Flights {
    rows: Mutex<Rows>,
}

impl Flights {
    /// Begins an active flight, which ends when it is dropped. Its call began at `number`.
    pub fn begin(&self, id: &[u8], number: u64) -> Flight<'_> {
        lock(&self.rows).entry(id.to_vec()).or_default().active += 1;
        let outcome = Outcome::Nothing;
        Flight {
            flights: self,
            id: id.to_vec(),
            number,
            asked: number,
            waiter: None,
            replaces: false,
            outcome,
            has_ended: false,
        }
    }

    /// Ends flights together, so that a call that waits for several of them sees all of their outcomes.
    pub fn end(&self, flights: Vec<Flight<'_>>) {
        let mut rows = lock(&self.rows);
        for mut flight in flights {
            flight.end(&mut rows);
        }
    }

    /// Removes the flights that were resumed, and returns them with the outcomes that were shared with them.
    pub fn take_resumed<'a>(&self, waiting: &mut Vec<Flight<'a>>) -> Vec<(Flight<'a>, Outcome)> {
        let mut rows = lock(&self.rows);
        let end_wait = |mut flight: Flight<'a>| {
            let outcome = flight.end_wait_in(&mut rows);
            (flight, outcome)
        };
        waiting.extract_if(.., |flight| flight.is_resumed()).map(end_wait).collect()
    }
}

/// One caller's interest in one row. It is active while the caller fetches the row, waits for it inside the server or loads it.
#[derive(Debug)]
pub struct Flight<'a> {
    flights: &'a Flights,
    pub id: Vec<u8>,
    /// The number at which its call began.
    number: u64,
    asked: u64,
    waiter: Option<Arc<Waiter>>,
    /// Whether its caller could not decode the cached value.
    pub replaces: bool,
    /// The outcome that it shares when it ends.
    pub outcome: Outcome,
    has_ended: bool,
}

impl Flight<'_> {
    /// Must be called right before a fetch is sent or a load without a lease begins: the outcome may be shared with flights that
    /// began earlier.
    pub fn ask(&mut self) {
        self.asked = number();
    }

    /// Makes an active flight wait. The only active flight of a row stays active; `None` is returned.
    pub fn begin_wait(&mut self) -> Option<Arc<Waiter>> {
        let mut rows = lock(&self.flights.rows);
        let row = rows.get_mut(&self.id).filter(|row| row.active > 1)?;
        let waiter = Arc::new(Waiter::default());
        row.active -= 1;
        row.waiting.insert(self.number, Arc::clone(&waiter));
        self.waiter = Some(Arc::clone(&waiter));
        Some(waiter)
    }

    /// Ends the wait of a flight that was resumed or has waited long enough; it becomes active again. Returns the outcome that
    /// another flight shares. Passing the outcome on does not reset its age.
    pub fn end_wait(&mut self) -> Outcome {
        self.end_wait_in(&mut lock(&self.flights.rows))
    }

    fn end_wait_in(&mut self, rows: &mut Rows) -> Outcome {
        let (Some(waiter), Some(row)) = (self.waiter.take(), rows.get_mut(&self.id)) else { return Outcome::Nothing };
        if row.waiting.remove(&self.number).is_some() {
            row.active += 1;
        }
        let (outcome, asked) = lock(&waiter.state).0.take().unwrap_or((Outcome::Nothing, self.asked));
        self.asked = asked;
        outcome
    }

    /// Returns the waiter of a waiting flight.
    pub fn waiter(&self) -> Option<Arc<Waiter>> {
        self.waiter.clone()
    }

    /// Whether a waiting flight was resumed.
    fn is_resumed(&self) -> bool {
        self.waiter.as_ref().is_some_and(|waiter| lock(&waiter.state).0.is_some())
    }

    /// Ends a flight, and resumes the flights that share its outcome. If flights still wait without an active flight, the first
    /// of them resumes, and fetches or loads for the others.
    fn end(&mut self, rows: &mut Rows) {
        self.has_ended = true;
        // A flight that was cancelled while it waited becomes active first, because it may have been resumed already.
        self.end_wait_in(rows);
        let Some(row) = rows.get_mut(&self.id) else { return };
        row.active -= 1;
        let end = match &self.outcome {
            Outcome::Nothing => 0,
            Outcome::Found(Ok(_)) => self.asked,
            Outcome::Found(Err(_)) | Outcome::Failed(_) => u64::MAX,
        };
        while row.waiting.first_key_value().is_some_and(|(number, _)| *number < end) {
            row.resume_first(self.outcome.clone(), self.asked);
        }
        if row.active == 0 {
            row.resume_first(Outcome::Nothing, 0);
        }
        if row.active == 0 {
            rows.remove(&self.id);
        }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            let flights = self.flights;
            self.end(&mut lock(&flights.rows));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller that began after the fetch was sent may know of a change that the answer lacks.
    #[test]
    fn a_shared_answer_keeps_its_age() {
        let flights = Flights::default();
        let begin = || flights.begin(b"row", number());
        let (mut first, mut second) = (begin(), begin());
        first.ask();
        let mut third = begin();
        second.ask();
        assert!(second.begin_wait().is_some() && third.begin_wait().is_some());
        first.outcome = Outcome::Found(Ok(Fetched::Absent));
        drop(first);
        second.outcome = second.end_wait();
        assert!(matches!(second.outcome, Outcome::Found(Ok(Fetched::Absent))));
        drop(second);
        assert!(matches!(third.end_wait(), Outcome::Nothing));
    }
}
