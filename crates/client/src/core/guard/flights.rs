//! Where the callers of one process wait for a row that another caller loads.
//!
//! A caller that waits inside the server (`BF.FETCH ... WAIT`) occupies its connection, and gets the lease if the loading caller
//! gives up. So at most one caller per row waits there. The others wait in the process until that caller is done, and share the
//! answer to the next fetch.

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::Fetched;
use crate::Error;

/// Locks a mutex. No code that can panic runs under the locks of this crate.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a flight that ends shares with those that wait for it.
#[derive(Debug, Clone, Default)]
pub enum Outcome {
    /// Nothing: it has filled the row, or was cancelled.
    #[default]
    Nothing,
    /// The answer that ended its call, for those that began before that was asked for. One that began later may know of a change
    /// that the answer does not have.
    Found(Fetched),
    /// The error of its load.
    Failed(Error),
    /// The server failed: nobody waits any longer.
    NoServer,
}

/// What a flight shares, and the number of the fetch that it answers.
type Shared = (Outcome, u64);

/// A caller that waits in the process.
#[derive(Debug, Default)]
pub struct Waiter {
    /// What another flight shares, once this one was resumed, and what wakes it.
    state: Mutex<(Option<Shared>, Option<Waker>)>,
}

impl Waiter {
    /// Waits until the caller is resumed.
    pub async fn resumed(&self) {
        poll_fn(|context| {
            let mut state = lock(&self.state);
            if state.0.is_some() {
                return Poll::Ready(());
            }
            state.1 = Some(context.waker().clone());
            Poll::Pending
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

/// The flights of one row: how many are active, and those that wait in the process, by their numbers.
#[derive(Debug, Default)]
struct Row {
    active: usize,
    waiting: BTreeMap<u64, Arc<Waiter>>,
}

impl Row {
    /// Resumes the flight that began first. It is active from now on, though its caller may be cancelled before it notices: then
    /// the end of the flight resumes the next one.
    fn resume_first(&mut self, outcome: Outcome, asked: u64) {
        if let Some((_, waiter)) = self.waiting.pop_first() {
            self.active += 1;
            waiter.resume(outcome, asked);
        }
    }
}

/// The rows that callers of this process fetch and load now. While flights of a row wait, another one is active.
#[derive(Debug, Default)]
pub struct Flights {
    rows: Mutex<HashMap<Vec<u8>, Row>>,
    /// Numbers flights and fetches in the order in which they begin.
    next: AtomicU64,
}

impl Flights {
    /// Begins an active flight, which ends when it is dropped.
    pub fn begin(&self, id: &[u8]) -> Flight<'_> {
        lock(&self.rows).entry(id.to_vec()).or_default().active += 1;
        let number = self.number();
        Flight { flights: self, id: id.to_vec(), number, asked: number, waiter: None, outcome: Outcome::Nothing }
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }
}

/// One caller's interest in one row. It is active while the caller fetches the row, waits for it inside the server or loads it.
#[derive(Debug)]
pub struct Flight<'a> {
    flights: &'a Flights,
    pub id: Vec<u8>,
    number: u64,
    asked: u64,
    waiter: Option<Arc<Waiter>>,
    /// What it shares when it ends.
    pub outcome: Outcome,
}

impl Flight<'_> {
    /// To call right before a fetch is sent: its answer may be shared with the flights that began earlier.
    pub fn ask(&mut self) {
        self.asked = self.flights.number();
    }

    /// Makes an active flight wait. If it is the only active one of its row, it stays active, and nothing is returned.
    pub fn begin_wait(&mut self) -> Option<Arc<Waiter>> {
        let mut rows = lock(&self.flights.rows);
        let row = rows.get_mut(&self.id).filter(|row| row.active > 1)?;
        let waiter = Arc::new(Waiter::default());
        row.active -= 1;
        row.waiting.insert(self.number, Arc::clone(&waiter));
        self.waiter = Some(Arc::clone(&waiter));
        Some(waiter)
    }

    /// Makes a flight active again that was resumed or has waited for long enough. Returns what another flight shares, which stays
    /// as old as it is if this one hands it on.
    pub fn end_wait(&mut self) -> Outcome {
        let mut rows = lock(&self.flights.rows);
        let (Some(waiter), Some(row)) = (self.waiter.take(), rows.get_mut(&self.id)) else { return Outcome::Nothing };
        if row.waiting.remove(&self.number).is_some() {
            row.active += 1;
        }
        let (outcome, asked) = lock(&waiter.state).0.take().unwrap_or((Outcome::Nothing, self.asked));
        self.asked = asked;
        outcome
    }
}

impl Drop for Flight<'_> {
    /// Ends a flight. Those that share its outcome go on. If others still wait and none is active, the first of them goes on, and
    /// fetches for the others.
    fn drop(&mut self) {
        // A flight that was cancelled while it waited becomes active first: it may have been resumed already.
        self.end_wait();
        let mut rows = lock(&self.flights.rows);
        let Some(row) = rows.get_mut(&self.id) else { return };
        row.active -= 1;
        let end = match &self.outcome {
            Outcome::Nothing => 0,
            Outcome::Found(_) => self.asked,
            Outcome::Failed(_) | Outcome::NoServer => u64::MAX,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller that began after the answer was asked for may know of a change that the answer does not have.
    #[test]
    fn an_answer_that_is_handed_on_stays_as_old_as_it_was() {
        let flights = Flights::default();
        let (mut first, mut second) = (flights.begin(b"row"), flights.begin(b"row"));
        first.ask();
        let mut third = flights.begin(b"row");
        second.ask();
        assert!(second.begin_wait().is_some() && third.begin_wait().is_some());
        first.outcome = Outcome::Found(Fetched::Absent);
        drop(first);
        second.outcome = second.end_wait();
        assert!(matches!(second.outcome, Outcome::Found(Fetched::Absent)));
        drop(second);
        assert!(matches!(third.end_wait(), Outcome::Nothing));
    }
}
