//! The sampler of `watch` and `web`: counts with INFO, finds filters with SCAN, and queries them with BF.STATS. `watch` and `web` decide when.
//! It has its own connection, and stores its results on the `board`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use bloomgate_client::{Info as FilterInfo, Stats};
use redis::{Cmd, Value, cmd};

use crate::keys::{Progress, Walk};
use crate::server::{Address, Options, Server, no_module};
use crate::stats::{Info, Rank, Sampled, fill, per_second};

/// Filters queried in one batch.
const FILTERS_AT_ONCE: usize = 16;
const COMMANDS_A_FILTER: usize = 3;

pub struct Settings {
    pub interval: Duration,
    pub filters_max: usize,
    /// The pattern of the keys to search, as SCAN takes it.
    pub pattern: Option<String>,
    /// How long a reply may take.
    pub patience: Duration,
    /// Whether figures of earlier samples are kept.
    pub keeps_history: bool,
}

pub struct Sampler {
    options: Options,
    /// `None` before the first connection.
    server: Option<Server>,
    pub is_lost: bool,
    settings: Settings,
    pub board: Arc<Board>,
    pub walk: Walk,
    /// The number of filters that this walk found beyond the maximum.
    left_out: u64,
}

/// The result of querying a filter: its figures or the error, `None` if the key no longer holds a filter.
type Queried = (Vec<u8>, Option<Result<Sampled, String>>);

impl Sampler {
    /// Creates a sampler without a connection.
    pub fn new(options: Options, settings: Settings) -> Result<Self> {
        let state = State { keeps_history: settings.keeps_history, ..State::default() };
        let board = Board { server: options.name()?, interval: settings.interval, state: Mutex::new(state) };
        let board = Arc::new(board);
        Ok(Self { options, server: None, is_lost: true, settings, board, walk: Walk::new(), left_out: 0 })
    }

    /// Connects, or reconnects to a lost server. Known filters are kept until the next sample queries them.
    pub fn connect(&mut self) -> Result<()> {
        if let Some(server) = &mut self.server {
            server.reconnect(Duration::ZERO)?;
        } else {
            let mut server = Server::connect(&self.options)?;
            server.set_patience(self.settings.patience)?;
            self.server = Some(server);
        }
        if let Some(server) = &mut self.server {
            for node in server.nodes() {
                // Sampling must not protect filters from eviction. Servers before 7.2 lack the command.
                _ = server.ask_node(&node, cmd("CLIENT").arg("NO-TOUCH").arg("ON"));
            }
        }
        self.is_lost = false;
        // A restarted server counts from 0 and may have other keys than before.
        (self.walk, self.left_out) = (Walk::new(), 0);
        let mut state = self.board.state();
        (state.walk, state.last) = (self.walk.progress(), None);
        Ok(())
    }

    /// Calls the server. Returns its answer and the time that it took.
    pub fn ask<T>(&mut self, question: impl FnOnce(&mut Server) -> Result<T>) -> Result<(T, Duration)> {
        let server = self.server.as_mut().filter(|_| !self.is_lost).context("the connection to the server is lost")?;
        let begun = Instant::now();
        self.board.state().sent_at = Some(begun);
        let answer = question(server);
        self.board.state().sent_at = None;
        Ok((answer?, begun.elapsed()))
    }

    /// Takes a step of the walk over the keys. Returns the time that the server took.
    pub fn step(&mut self) -> Result<Duration> {
        let mut walk = std::mem::replace(&mut self.walk, Walk::new());
        if walk.is_at_begin() {
            self.left_out = 0;
        }
        let board = Arc::clone(&self.board);
        let pattern = self.settings.pattern.clone();
        let is_known = |key: &[u8]| board.state().filters.contains_key(key);
        let found = self.ask(|server| walk.step(server, pattern.as_deref(), is_known));
        self.walk = walk;
        let (found, mut took) = found?;
        if self.walk.is_at_begin() {
            self.walk.pause(self.settings.interval.max(rest_after(self.walk.elapsed())));
        }
        let beyond = self.watch(found);
        took += self.watch_higher_ranks(&beyond)?;
        let mut state = self.board.state();
        if self.walk.is_at_begin() || self.left_out > state.left_out {
            state.left_out = self.left_out;
        }
        state.walk = self.walk.progress();
        Ok(took)
    }

    /// Adds filters up to the maximum. Returns the others.
    fn watch(&self, found: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut state = self.board.state();
        let mut beyond = Vec::new();
        for key in found {
            if state.filters.contains_key(&key) || state.filters.len() < self.settings.filters_max {
                state.filters.entry(key).or_default();
            } else {
                beyond.push(key);
            }
        }
        beyond
    }

    /// Replaces watched filters of the lowest ranks by filters of higher ranks.
    fn watch_higher_ranks(&mut self, beyond: &[Vec<u8>]) -> Result<Duration> {
        if beyond.is_empty() {
            return Ok(Duration::ZERO);
        }
        self.left_out += beyond.len() as u64;
        let (replies, took) = self.ask(|server| server.replies_of_each(&["BF.INFO"], beyond))?;
        let mut state = self.board.state();
        let rank = |filter: &Filter| filter.sampled.as_ref().map(Sampled::rank);
        let watched = state.filters.iter().filter_map(|(key, filter)| Some(Reverse((rank(filter)?, key.clone()))));
        let mut lowest: BinaryHeap<_> = watched.collect();
        for (key, reply) in beyond.iter().zip(replies) {
            let Ok(rank) = FilterInfo::try_from(&reply).map(|info| Rank::of_info(&info)) else { continue };
            if lowest.peek().is_some_and(|Reverse((least, _))| *least < rank)
                && let Some(Reverse((_, least))) = lowest.pop()
            {
                state.filters.remove(&least);
                state.filters.insert(key.clone(), Filter::default());
                lowest.push(Reverse((rank, key.clone())));
            }
        }
        Ok(took)
    }

    /// Queries INFO of all nodes. Fails if the server has not loaded the module.
    pub fn count(&mut self) -> Result<Vec<Node>> {
        let of_node = |server: &mut Server, address: Address| {
            let info = Info::of_node(server, &address, &["server", "memory", "bf", "keyspace"])?;
            Ok(Node { address, info })
        };
        let (nodes, _) = self.ask(|server| {
            server.all_nodes()?.into_iter().map(|node| of_node(server, node)).collect::<Result<Vec<_>>>()
        })?;
        if nodes.iter().all(|node| node.info.text("bf_version").is_none()) {
            return Err(no_module(&nodes.first().map(|node| node.address.clone()).unwrap_or_default()));
        }
        Ok(nodes)
    }

    /// Queries filters in batches. `goes_on` is called after each with the time that the server took.
    pub fn query(
        &mut self,
        keys: &[Vec<u8>],
        queried: &mut Vec<Queried>,
        mut goes_on: impl FnMut(&mut Self, Duration) -> Result<bool>,
    ) -> Result<()> {
        for keys in keys.chunks(FILTERS_AT_ONCE) {
            let (replies, took) = self.ask(|server| server.replies_of_many(&commands(keys)))?;
            let mut replies = replies.into_iter();
            queried.extend(keys.iter().map(|key| (key.clone(), of_replies(replies.by_ref()))));
            if !goes_on(self, took)? {
                break;
            }
        }
        Ok(())
    }

    /// Stores a sample that took `took`, and removes filters that are gone.
    pub fn store(&self, nodes: Vec<Node>, queried: Vec<Queried>, took: Duration) {
        let mut state = self.board.state();
        state.database = self.server.as_ref().map_or(0, Server::database);
        state.take_sample(nodes, queried, took);
    }
}

/// The commands about some filters, [`COMMANDS_A_FILTER`] for each.
fn commands(keys: &[Vec<u8>]) -> Vec<(&Vec<u8>, Cmd)> {
    let of_key = |key| {
        let stats = cmd("BF.STATS").arg(key).to_owned();
        [stats, cmd("BF.INFO").arg(key).arg("EXPANSION").to_owned(), cmd("PTTL").arg(key).to_owned()]
            .map(|command| (key, command))
    };
    keys.iter().flat_map(of_key).collect()
}

/// Parses the replies about a filter.
fn of_replies(replies: impl Iterator<Item = Value>) -> Option<Result<Sampled, String>> {
    let replies: Vec<Value> = replies.take(COMMANDS_A_FILTER).collect();
    let [stats, expansion, ttl] = <[Value; COMMANDS_A_FILTER]>::try_from(replies).ok()?;
    if let Value::ServerError(error) = &stats {
        let details = error.details().unwrap_or_default();
        let is_gone = error.code() == "WRONGTYPE" || details == "not found";
        return (!is_gone).then(|| Err(format!("{} {details}", error.code())));
    }
    Some(Sampled::of_replies(&stats, expansion, ttl).map_err(|error| format!("{error:#}")))
}

// How long the sampler pauses, so that it uses at most a tenth of the server's time.

/// The longest pause. If an answer took longer than a ninth of this, it waited for the network or for other clients.
const PAUSE_MAX: Duration = Duration::from_millis(300);
/// The longest rest after a walk that took less time.
const REST_MAX: Duration = Duration::from_secs(60);

/// Returns the pause after an answer that took `took`: nine times as long, up to a limit.
pub fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(9).min(PAUSE_MAX)
}

/// Returns the rest after a walk over all keys that took `took`: five times as long up to a limit, and never less than `took`.
pub fn rest_after(took: Duration) -> Duration {
    took.saturating_mul(5).min(REST_MAX).max(took)
}

// The state that the sampler writes and requests read, under a lock that is held only briefly.

/// The fields of `INFO bf`: the name of the metric, its labels, and whether it is a counter. Their totals over all nodes have a history.
pub const FIELDS: [(&str, &str, &str, bool); 30] = [
    ("bf_bloom_total_memory_bytes", "bloomgate_memory_bytes", "", false),
    ("bf_bloom_num_objects", "bloomgate_filters", "", false),
    ("bf_bloom_num_filters_across_objects", "bloomgate_layers", "", false),
    ("bf_bloom_num_items_across_objects", "bloomgate_items", "", false),
    ("bf_bloom_capacity_across_objects", "bloomgate_capacity_items", "", false),
    ("bf_bloom_pending_bytes", "bloomgate_pending_bytes", "", false),
    ("bf_bloom_adds", "bloomgate_adds_total", "", true),
    ("bf_bloom_new_items", "bloomgate_new_items_total", "", true),
    ("bf_bloom_refused", "bloomgate_refused_total", "", true),
    ("bf_bloom_deletes_refused", "bloomgate_deletes_refused_total", "", true),
    ("bf_bloom_lookups", "bloomgate_lookups_total", "", true),
    ("bf_bloom_positives", "bloomgate_positives_total", "", true),
    ("bf_bloom_fetches_absent", "bloomgate_fetches_total", ",answer=\"absent\"", true),
    ("bf_bloom_fetches_hit", "bloomgate_fetches_total", ",answer=\"hit\"", true),
    ("bf_bloom_fetches_stale", "bloomgate_fetches_total", ",answer=\"stale\"", true),
    ("bf_bloom_fetches_load", "bloomgate_fetches_total", ",answer=\"load\"", true),
    ("bf_bloom_fetches_wait", "bloomgate_fetches_total", ",answer=\"wait\"", true),
    ("bf_bloom_fetches_failed", "bloomgate_fetches_total", ",answer=\"failed\"", true),
    ("bf_bloom_fetches_unguarded", "bloomgate_fetches_unguarded_total", "", true),
    ("bf_bloom_fetches_held", "bloomgate_fetches_held_total", "", true),
    ("bf_bloom_batches", "bloomgate_guard_batches_total", "", true),
    ("bf_bloom_backoffs", "bloomgate_backoffs_total", "", true),
    ("bf_bloom_fills", "bloomgate_fills_total", "", true),
    ("bf_bloom_fills_refused", "bloomgate_fills_refused_total", "", true),
    ("bf_bloom_leases", "bloomgate_leases", "", false),
    ("bf_bloom_nones", "bloomgate_nones", "", false),
    ("bf_bloom_waiting", "bloomgate_waiting_clients", "", false),
    ("bf_bloom_defrag_hits", "bloomgate_defrag_hits_total", "", true),
    ("bf_bloom_defrag_misses", "bloomgate_defrag_misses_total", "", true),
    ("bf_bloom_max_filter_bytes", "bloomgate_max_filter_bytes", "", false),
];

/// The change of each field per second, `None` if it decreased.
pub type Rates = [Option<f64>; FIELDS.len()];

/// A time in milliseconds since 1970 and the totals of all these fields.
pub type Totals = (u64, [u64; FIELDS.len()]);

#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub time_ms: u64,
    /// The counted number of added items.
    pub items: u64,
    pub size_bytes: u64,
    /// The false positive rate at that time.
    pub rate_now: f64,
    /// Items divided by capacity.
    pub fill: f64,
}

#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The last successful sample.
    pub sampled: Option<Sampled>,
    /// The error of the last sample, if it failed.
    pub problem: Option<String>,
    /// New items per second between the last two samples.
    pub new_a_second: Option<f64>,
    pub history: Series<Point>,
}

/// A node of a cluster, or the server.
#[derive(Clone, Debug)]
pub struct Node {
    /// Host and port, or the socket.
    pub address: Address,
    pub info: Info,
}

/// Why sampling fails.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The time of the first failure, in milliseconds since 1970.
    pub since_ms: u64,
    /// The error in one line.
    pub text: String,
}

/// The state of the server.
#[derive(Debug, Default)]
pub struct State {
    /// The database that is searched.
    pub database: u32,
    pub nodes: Vec<Node>,
    /// The error, if the last attempt to sample failed.
    pub problem: Option<Problem>,
    pub samples: u64,
    /// The end of the last sample, in milliseconds since 1970.
    pub sampled_ms: u64,
    /// Its duration, pauses included.
    pub took: Duration,
    pub walk: Progress,
    /// Filters that the last walk found beyond the maximum.
    pub left_out: u64,
    pub filters: BTreeMap<Vec<u8>, Filter>,
    /// The history.
    pub totals: Series<Totals>,
    /// The totals of the last sample, which `totals` may omit: it becomes coarser over time.
    last: Option<Totals>,
    /// The rates of change between the last two samples.
    pub rates: Option<Rates>,
    /// The time when the pending command was sent, if the server has not replied yet.
    pub sent_at: Option<Instant>,
    keeps_history: bool,
}

#[derive(Debug)]
pub struct Board {
    /// The server's name.
    pub server: String,
    pub interval: Duration,
    state: Mutex<State>,
}

impl Board {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the sum of a field of INFO over all nodes.
    pub fn total(&self, name: &str) -> u64 {
        self.nodes.iter().filter_map(|node| node.info.number(name)).fold(0, u64::saturating_add)
    }

    /// Returns the change per second of one of [`FIELDS`].
    pub fn rate(&self, name: &str) -> Option<f64> {
        FIELDS.iter().zip(self.rates?).find(|((field, ..), _)| *field == name)?.1
    }

    /// Returns the databases that have keys and are not searched.
    pub fn other_databases(&self) -> Vec<u32> {
        let databases: BTreeSet<u32> = self.nodes.iter().flat_map(|node| node.info.databases()).collect();
        databases.into_iter().filter(|database| *database != self.database).collect()
    }

    fn take_sample(&mut self, nodes: Vec<Node>, queried: Vec<Queried>, took: Duration) {
        (self.nodes, self.problem, self.took, self.sampled_ms) = (nodes, None, took, now_ms());
        let tick = self.samples;
        for (key, result) in queried {
            let Some(result) = result else {
                self.filters.remove(&key);
                continue;
            };
            let filter = self.filters.entry(key).or_default();
            match result {
                Ok(sampled) => {
                    if self.keeps_history {
                        filter.history.push(tick, point(self.sampled_ms, &sampled.stats));
                    }
                    filter.new_a_second = filter.sampled.as_ref().map(|before| {
                        per_second(sampled.stats.items.saturating_sub(before.stats.items), sampled.at - before.at)
                    });
                    (filter.sampled, filter.problem) = (Some(sampled), None);
                }
                Err(problem) => filter.problem = Some(problem),
            }
        }
        let totals = (self.sampled_ms, FIELDS.map(|(field, ..)| self.total(field)));
        if self.keeps_history {
            self.totals.push(tick, totals);
        }
        self.rates = self.last.replace(totals).map(|before| rates(&before, &totals));
        self.samples += 1;
    }

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

/// Returns the change per second. If a counter decreased, the server was restarted, so the rate is unknown.
fn rates((before_ms, before): &Totals, (now_ms, now): &Totals) -> Rates {
    let passed = Duration::from_millis(now_ms.saturating_sub(*before_ms));
    let mut before = before.iter();
    now.map(|now| Some(per_second(now.checked_sub(*before.next()?)?, passed)))
}

/// Returns the milliseconds since 1970 by this machine's clock.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

// Histories with a bounded number of points. A series covers a whole run and becomes coarser the longer it runs.

/// The maximum number of points. Once it is reached, every second point is dropped.
const POINTS_MAX: usize = 480;

/// A value over time.
#[derive(Clone, Debug)]
pub struct Series<P> {
    points: Vec<P>,
    /// One in this many samples is kept.
    stride: u64,
}

impl<P> Default for Series<P> {
    fn default() -> Self {
        Self { points: Vec::new(), stride: 1 }
    }
}

impl<P: Copy> Series<P> {
    /// Adds the value of sample number `tick`, unless that sample is skipped.
    pub fn push(&mut self, tick: u64, point: P) {
        if !tick.is_multiple_of(self.stride) {
            return;
        }
        if self.points.len() >= POINTS_MAX {
            let mut index = 0u64;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride = self.stride.saturating_mul(2);
            if !tick.is_multiple_of(self.stride) {
                return;
            }
        }
        self.points.push(point);
    }

    /// Returns the points, oldest first.
    pub fn points(&self) -> &[P] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_nine_times_the_work_up_to_a_limit() {
        assert_eq!(pause_after(Duration::from_millis(2)), Duration::from_millis(18));
        assert_eq!(pause_after(Duration::from_secs(60)), PAUSE_MAX);
    }

    #[test]
    fn a_rest_is_five_walks_up_to_a_limit_and_at_least_one() {
        for (took, rest) in [(2, 10), (20, 60), (100, 100)] {
            assert_eq!(rest_after(Duration::from_secs(took)), Duration::from_secs(rest));
        }
    }

    #[test]
    fn rates_compare_two_samples_and_are_unknown_after_a_restart() {
        let (mut before, mut now) = ([100; FIELDS.len()], [100; FIELDS.len()]);
        (before[0], now[0]) = (40, 65);
        (before[1], now[1]) = (7, 6);
        let rates = rates(&(10_000, before), &(12_500, now));
        assert_eq!(rates[..3], [Some(10.0), None, Some(0.0)]);
    }

    #[test]
    fn a_series_covers_the_whole_run_with_a_bounded_number_of_points() {
        let mut series = Series::default();
        for tick in 0..100_000u64 {
            series.push(tick, tick);
            assert!(series.points().len() <= POINTS_MAX);
        }
        let points = series.points();
        assert_eq!(points[0], 0);
        assert!(points.len() >= POINTS_MAX / 2 && *points.last().unwrap() > 99_000, "{}", points.len());
        let step = points[1] - points[0];
        assert!(points.windows(2).all(|pair| pair[1] - pair[0] == step));
    }
}
