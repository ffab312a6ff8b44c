//! What is known of the server: written by the sampler, read by requests, under a lock that is held for short.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::history::Series;
use crate::server::Address;
use crate::stats::{Info, Stats};
use crate::walk::Progress;

/// The fields of `INFO bf` that are shown over time, all nodes together.
pub const COUNTERS: [&str; 21] = [
    "bf_bloom_total_memory_bytes",
    "bf_bloom_num_objects",
    "bf_bloom_num_filters_across_objects",
    "bf_bloom_num_items_across_objects",
    "bf_bloom_capacity_across_objects",
    "bf_bloom_pending_bytes",
    "bf_bloom_adds",
    "bf_bloom_new_items",
    "bf_bloom_lookups",
    "bf_bloom_positives",
    "bf_bloom_fetches_absent",
    "bf_bloom_fetches_hit",
    "bf_bloom_fetches_stale",
    "bf_bloom_fetches_load",
    "bf_bloom_fetches_wait",
    "bf_bloom_fetches_unguarded",
    "bf_bloom_fills",
    "bf_bloom_fills_refused",
    "bf_bloom_leases",
    "bf_bloom_nones",
    "bf_bloom_waiting",
];

/// All of them at a time, in milliseconds since 1970.
pub type Totals = (u64, [u64; COUNTERS.len()]);

/// Of a filter, at a time.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// Items that were counted.
    pub items: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// The false positive rate then.
    pub rate_now: f64,
    /// Items for each that it is made for.
    pub fill: f64,
}

/// A filter.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// As of the last sample that could be had.
    pub stats: Option<Stats>,
    /// What the server answered instead, in the last sample.
    pub problem: Option<String>,
    /// Over time.
    pub history: Series<Point>,
}

/// A node of a cluster, or the server.
#[derive(Clone, Debug)]
pub struct Node {
    /// Host and port, or the socket.
    pub address: Address,
    /// Fields of INFO.
    pub info: Info,
    /// Keys of the database.
    pub keys: u64,
}

/// What keeps the sampler from sampling.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// One line.
    pub text: String,
}

/// What is known.
#[derive(Debug, Default)]
pub struct State {
    /// Nodes, as of the last sample.
    pub nodes: Vec<Node>,
    /// Where the last try to sample failed.
    pub problem: Option<Problem>,
    /// The number of samples so far.
    pub samples: u64,
    /// When the last one ended, in milliseconds since 1970.
    pub sampled_ms: u64,
    /// How long it took, pauses included.
    pub took: Duration,
    /// How far the walk over the keys has come.
    pub walk: Progress,
    /// Filters that the last walk found beyond the number that is watched.
    pub left_out: u64,
    /// By their keys.
    pub filters: BTreeMap<Vec<u8>, Filter>,
    /// Over time.
    pub totals: Series<Totals>,
    /// A question that the server did not reply yet, and since when.
    pub asked: Option<Instant>,
}

/// The board.
#[derive(Debug)]
pub struct Board {
    /// From one sample to the next.
    pub interval: Duration,
    state: Mutex<State>,
}

impl Board {
    /// An empty one.
    pub fn new(interval: Duration) -> Self {
        Self { interval, state: Mutex::default() }
    }

    /// What is known, and room to write.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The sum of a field of INFO over all nodes.
    pub fn total(&self, name: &str) -> u64 {
        self.nodes.iter().filter_map(|node| node.info.number(name)).fold(0, u64::saturating_add)
    }

    /// Takes a sample of the nodes and of all filters that are there; what is not in it is gone.
    pub fn take_sample(&mut self, nodes: Vec<Node>, sampled: Vec<(Vec<u8>, Result<Stats, String>)>, took: Duration) {
        (self.nodes, self.problem, self.took, self.sampled_ms) = (nodes, None, took, now_ms());
        let tick = self.samples;
        let mut before = std::mem::take(&mut self.filters);
        for (key, result) in sampled {
            let mut filter = before.remove(&key).unwrap_or_default();
            match result {
                Ok(stats) => {
                    filter.history.push(tick, point(self.sampled_ms, &stats));
                    (filter.stats, filter.problem) = (Some(stats), None);
                }
                Err(problem) => filter.problem = Some(problem),
            }
            self.filters.insert(key, filter);
        }
        let totals = COUNTERS.map(|name| self.total(name));
        self.totals.push(tick, (self.sampled_ms, totals));
        self.samples += 1;
    }

    /// Notes that sampling failed.
    pub fn fail(&mut self, text: String) {
        let since_ms = self.problem.as_ref().map_or_else(now_ms, |problem| problem.since_ms);
        self.problem = Some(Problem { since_ms, text });
    }
}

fn point(time_ms: u64, stats: &Stats) -> Point {
    Point { time_ms, items: stats.items, size_bytes: stats.size_bytes, rate_now: stats.rate_now, fill: stats.fill() }
}

/// Milliseconds since 1970, by the clock of this machine.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
