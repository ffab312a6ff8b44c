//! The follower's metrics. The follower's thread writes them and another thread serves them, so that they can be read while the follower
//! waits for the database or the server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

use anyhow::Result;

use crate::prometheus::{self, Metrics as Text};

/// The state of the follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// It connects, or waits before it tries again.
    Connecting,
    /// Another follower holds the slot.
    Standby,
    /// It fills a filter from its table.
    Filling,
    /// It follows the log.
    Following,
}

const STATES: [(State, &str); 4] = [
    (State::Connecting, "connecting"),
    (State::Standby, "standby"),
    (State::Filling, "filling"),
    (State::Following, "following"),
];

/// The metrics of this process.
#[derive(Default)]
pub struct Metrics {
    /// The replication slot, a label of every sample: the followers of a slot take turns.
    slot: String,
    state: AtomicU8,
    lag_bytes: AtomicU64,
    waiting: AtomicU64,
    open_keys: AtomicU64,
    /// A time of the server, in milliseconds since 1970. Readers see all commits before it.
    applied_ms: AtomicU64,
    transactions: AtomicU64,
    changes: AtomicU64,
    fills: AtomicU64,
    failures: AtomicU64,
}

impl Metrics {
    /// Serves the metrics of a follower of `slot` from now on.
    pub fn serve(address: SocketAddr, slot: &str) -> Result<Arc<Self>> {
        let metrics = Arc::new(Self { slot: slot.to_owned(), ..Self::default() });
        let served = Arc::clone(&metrics);
        prometheus::serve(address, move || served.text())?;
        Ok(metrics)
    }

    /// Records the follower's current state.
    pub fn enter(&self, state: State) {
        self.state.store(state as u8, Relaxed);
    }

    /// Records how much of the log is not confirmed, if known, how many transactions wait in memory, and how many cache keys have a write
    /// in flight.
    pub fn progress(&self, lag_bytes: Option<u64>, waiting: usize, open_keys: usize) {
        if let Some(lag_bytes) = lag_bytes {
            self.lag_bytes.store(lag_bytes, Relaxed);
        }
        self.waiting.store(waiting as u64, Relaxed);
        self.open_keys.store(open_keys as u64, Relaxed);
    }

    /// Records that readers see all commits before this time of the server, in milliseconds since 1970.
    pub fn applied(&self, before_ms: u64) {
        self.applied_ms.store(before_ms, Relaxed);
    }

    /// Counts transactions that have been applied (in synchronous mode: announced), and their changes of followed rows.
    pub fn count_transactions(&self, transactions: usize, changes: usize) {
        self.transactions.fetch_add(transactions as u64, Relaxed);
        self.changes.fetch_add(changes as u64, Relaxed);
    }

    pub fn count_fill(&self) {
        self.fills.fetch_add(1, Relaxed);
    }

    /// Counts a failure after which the follower starts again.
    pub fn count_failure(&self) {
        self.failures.fetch_add(1, Relaxed);
    }

    /// Returns the metrics in Prometheus' format.
    fn text(&self) -> String {
        let mut text = Text::default();
        let slot = format!("slot=\"{}\"", self.slot);
        let name = "bloomgate_follow_state";
        text.describe(name, "gauge", "1 for the state that the follower is in.");
        let state = self.state.load(Relaxed);
        for (other, label) in STATES {
            text.sample(name, &format!("{slot},state=\"{label}\""), u8::from(other as u8 == state));
        }
        let mut sample = |name: &str, kind: &str, help: &str, value: f64| {
            text.single(&format!("bloomgate_follow_{name}"), kind, help, &slot, value);
        };
        let lag_bytes = self.lag_bytes.load(Relaxed) as f64;
        sample("lag_bytes", "gauge", "Log that has not been confirmed.", lag_bytes);
        let (applied_s, help) =
            (self.applied_ms.load(Relaxed) as f64 / 1000.0, "Readers see all commits before this time of the server.");
        sample("applied_timestamp_seconds", "gauge", help, applied_s);
        for (name, kind, help, value) in [
            ("waiting_transactions", "gauge", "Transactions that have arrived and are not applied.", &self.waiting),
            ("open_keys", "gauge", "Cache keys with a write in flight, in synchronous mode.", &self.open_keys),
            (
                "transactions_total",
                "counter",
                "Transactions applied, or announced in synchronous mode.",
                &self.transactions,
            ),
            ("changes_total", "counter", "Changes of followed rows in them.", &self.changes),
            ("fills_total", "counter", "Filters filled from their tables.", &self.fills),
            ("failures_total", "counter", "Failures after which the follower started again.", &self.failures),
        ] {
            sample(name, kind, help, value.load(Relaxed) as f64);
        }
        text.text()
    }
}
