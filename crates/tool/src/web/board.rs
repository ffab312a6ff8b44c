//! The state that the sampler writes and requests read, under a lock that is held only briefly.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bloomgate_client::Stats;

use super::history::Series;
use crate::server::Address;
use crate::stats::{Info, Sampled, fill};
use crate::walk::Progress;

/// The fields of `INFO bf` whose totals over all nodes have a history.
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

/// The change of each field per second, `None` if it decreased.
pub type Rates = [Option<f64>; COUNTERS.len()];

/// A time in milliseconds since 1970 and the totals of all these fields.
pub type Totals = (u64, [u64; COUNTERS.len()]);

/// A point in the history of a filter.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// Items added, as counted.
    pub items: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// The false positive rate at that time.
    pub rate_now: f64,
    /// Items by capacity.
    pub fill: f64,
}

/// A watched filter.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The last successful sample.
    pub sampled: Option<Sampled>,
    /// The error of the last sample, if it failed.
    pub problem: Option<String>,
    /// The history.
    pub history: Series<Point>,
}

/// A node of a cluster, or the server.
#[derive(Clone, Debug)]
pub struct Node {
    /// Host and port, or the socket.
    pub address: Address,
    /// Fields of INFO.
    pub info: Info,
    /// The number of keys in the database.
    pub keys: u64,
}

/// Why sampling fails.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The time of the first failure, in milliseconds since 1970.
    pub since_ms: u64,
    /// The error in one line.
    pub text: String,
}

/// What is known about the server.
#[derive(Debug, Default)]
pub struct State {
    /// The nodes in the last sample.
    pub nodes: Vec<Node>,
    /// The error, if the last attempt to sample failed.
    pub problem: Option<Problem>,
    /// The number of samples so far.
    pub samples: u64,
    /// The end of the last sample, in milliseconds since 1970.
    pub sampled_ms: u64,
    /// Its duration, pauses included.
    pub took: Duration,
    /// The progress of the walk over the keys.
    pub walk: Progress,
    /// Filters that the last walk found beyond the maximum.
    pub left_out: u64,
    /// The watched filters by key.
    pub filters: BTreeMap<Vec<u8>, Filter>,
    /// The history.
    pub totals: Series<Totals>,
    /// The totals of the last sample. Over time, `totals` leaves out more and more samples.
    last: Option<Totals>,
    /// How the totals changed from the sample before the last one to the last one.
    pub rates: Option<Rates>,
    /// When the pending command was sent, if the server has not replied yet.
    pub sent_at: Option<Instant>,
}

/// The state behind its lock.
#[derive(Debug)]
pub struct Board {
    /// The time from one sample to the next.
    pub interval: Duration,
    state: Mutex<State>,
}

impl Board {
    /// Creates an empty board.
    pub fn new(interval: Duration) -> Self {
        Self { interval, state: Mutex::default() }
    }

    /// Locks the state.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the sum of a field of INFO over all nodes.
    pub fn total(&self, name: &str) -> u64 {
        self.nodes.iter().filter_map(|node| node.info.number(name)).fold(0, u64::saturating_add)
    }

    /// Stores a sample of the nodes and of all filters. A filter that is not in it is removed.
    pub fn take_sample(&mut self, nodes: Vec<Node>, sampled: Vec<(Vec<u8>, Result<Sampled, String>)>, took: Duration) {
        (self.nodes, self.problem, self.took, self.sampled_ms) = (nodes, None, took, now_ms());
        let tick = self.samples;
        let mut before = std::mem::take(&mut self.filters);
        for (key, result) in sampled {
            let mut filter = before.remove(&key).unwrap_or_default();
            match result {
                Ok(sampled) => {
                    filter.history.push(tick, point(self.sampled_ms, &sampled.stats));
                    (filter.sampled, filter.problem) = (Some(sampled), None);
                }
                Err(problem) => filter.problem = Some(problem),
            }
            self.filters.insert(key, filter);
        }
        let totals = (self.sampled_ms, COUNTERS.map(|name| self.total(name)));
        self.totals.push(tick, totals);
        self.rates = self.last.replace(totals).map(|before| rates(&before, &totals));
        self.samples += 1;
    }

    /// Records that sampling failed.
    pub fn fail(&mut self, text: String) {
        let since_ms = self.problem.as_ref().map_or_else(now_ms, |problem| problem.since_ms);
        self.problem = Some(Problem { since_ms, text });
    }
}

fn point(time_ms: u64, stats: &Stats) -> Point {
    Point {
        time_ms,
        items: stats.items,
        size_bytes: stats.size_bytes,
        rate_now: stats.error_rate_now,
        fill: fill(stats),
    }
}

/// Returns the change per second. A counter that decreased belongs to a server that was restarted, so its rate is unknown.
fn rates((before_ms, before): &Totals, (now_ms, now): &Totals) -> Rates {
    let seconds = now_ms.saturating_sub(*before_ms).max(1) as f64 / 1000.0;
    let mut before = before.iter();
    now.map(|now| Some(now.checked_sub(*before.next()?)? as f64 / seconds))
}

/// Returns the milliseconds since 1970 by this machine's clock.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_compare_two_samples_and_are_unknown_after_a_restart() {
        let (mut before, mut now) = ([100; COUNTERS.len()], [100; COUNTERS.len()]);
        (before[0], now[0]) = (40, 65);
        (before[1], now[1]) = (7, 6);
        let rates = rates(&(10_000, before), &(12_500, now));
        assert_eq!(rates[..3], [Some(10.0), None, Some(0.0)]);
    }
}
