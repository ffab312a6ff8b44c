//! Where the callers of one process wait for a row that another caller loads.
//!
//! A caller that waits inside the server (`BF.FETCH ... WAIT`) occupies its connection, and gets the lease if the loading caller
//! gives up. So at most one caller per row waits there; the others wait in the process until that caller is done.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Locks a mutex. No code that can panic runs under the locks of this crate.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a wait in the process has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resumed {
    /// It goes on.
    Not,
    /// The waiting caller fetches the row.
    Fetch,
    /// The row's load failed, and nobody may repeat it yet.
    Failed,
}

/// A caller that waits in the process.
#[derive(Debug)]
pub struct Waiter {
    state: Mutex<(Resumed, Option<Waker>)>,
}

impl Waiter {
    fn new() -> Self {
        Self { state: Mutex::new((Resumed::Not, None)) }
    }

    /// Waits until the caller is resumed.
    pub async fn resumed(&self) {
        poll_fn(|context| {
            let mut state = lock(&self.state);
            if state.0 != Resumed::Not {
                return Poll::Ready(());
            }
            state.1 = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn resume(&self, resumed: Resumed) {
        let mut state = lock(&self.state);
        state.0 = resumed;
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The flights of one row: how many are active, and those that wait in the process, in the order in which they came.
#[derive(Debug, Default)]
struct Row {
    active: usize,
    waiting: VecDeque<Arc<Waiter>>,
}

/// The rows that callers of this process fetch and load now. While flights of a row wait, another one is active.
#[derive(Debug, Default)]
pub struct Flights {
    rows: Mutex<HashMap<Vec<u8>, Row>>,
}

impl Flights {
    /// Begins an active flight, which ends when it is dropped.
    pub fn begin(&self, id: &[u8]) -> Flight<'_> {
        lock(&self.rows).entry(id.to_vec()).or_default().active += 1;
        Flight { flights: self, id: id.to_vec(), waiter: None, has_news: false, has_failed: false }
    }
}

/// One caller's interest in one row. It is active while the caller fetches the row, waits for it inside the server or loads it.
#[derive(Debug)]
pub struct Flight<'a> {
    flights: &'a Flights,
    pub id: Vec<u8>,
    waiter: Option<Arc<Waiter>>,
    /// The row is known to be cached or absent, or the server to have failed: nobody has to wait any longer.
    pub has_news: bool,
    /// The row's load failed, and nobody may repeat it yet.
    pub has_failed: bool,
}

impl Flight<'_> {
    /// Makes an active flight wait. If it is the only active one of its row, it stays active, and nothing is returned.
    pub fn begin_wait(&mut self) -> Option<Arc<Waiter>> {
        let mut rows = lock(&self.flights.rows);
        let row = rows.get_mut(&self.id).filter(|row| row.active > 1)?;
        let waiter = Arc::new(Waiter::new());
        row.active -= 1;
        row.waiting.push_back(Arc::clone(&waiter));
        self.waiter = Some(Arc::clone(&waiter));
        Some(waiter)
    }

    /// Makes a flight active again that was resumed or has waited for long enough. Returns whether the row's load failed.
    pub fn end_wait(&mut self) -> bool {
        let mut rows = lock(&self.flights.rows);
        let (Some(waiter), Some(row)) = (self.waiter.take(), rows.get_mut(&self.id)) else { return false };
        let resumed = lock(&waiter.state).0;
        if resumed == Resumed::Not {
            row.waiting.retain(|other| !Arc::ptr_eq(other, &waiter));
            row.active += 1;
        }
        self.has_failed = resumed == Resumed::Failed;
        self.has_failed
    }
}

impl Drop for Flight<'_> {
    /// Ends a flight. If it has news or has failed, all waiting flights of the row go on, otherwise the first of them.
    fn drop(&mut self) {
        // A flight that was cancelled while it waited becomes active first: it may have been resumed already.
        self.end_wait();
        let mut rows = lock(&self.flights.rows);
        let Some(row) = rows.get_mut(&self.id) else { return };
        row.active -= 1;
        let resumed = if self.has_failed { Resumed::Failed } else { Resumed::Fetch };
        let count = if self.has_news || self.has_failed { row.waiting.len() } else { row.waiting.len().min(1) };
        for waiter in row.waiting.drain(..count) {
            row.active += 1;
            waiter.resume(resumed);
        }
        if row.active == 0 {
            rows.remove(&self.id);
        }
    }
}
