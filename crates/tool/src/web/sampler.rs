//! The thread that queries the server. It takes a sample at each interval, walks over the keys between samples, and answers requests in its
//! pauses. It has its own connection and reconnects if the connection is lost.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use bloomgate_client::{Info as FilterInfo, Stats};
use redis::{Value, cmd, from_redis_value};
use tokio::sync::oneshot;

use crate::keys::{Progress, Walk};
use crate::server::{Address, ConnectionLost, Options, Server, no_module};
use crate::stats::{Info, Rank, Sampled, fill, per_second, total};
use crate::web::query::readable;

/// Filters queried in one batch.
const FILTERS_AT_ONCE: usize = 16;
const COMMANDS_A_FILTER: usize = 3;
/// The pause before the first attempt to reconnect. It doubles with each further attempt.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(8);

#[derive(Clone)]
pub struct Settings {
    pub interval: Duration,
    pub filters_max: usize,
    /// The pattern of the keys to search, as SCAN takes it.
    pub pattern: Option<String>,
}

/// A request for `BF.EXISTS`, which changes nothing.
pub struct Question {
    pub key: Vec<u8>,
    pub item: Vec<u8>,
    pub answer: oneshot::Sender<Result<bool, String>>,
}

pub struct Sampler {
    options: Options,
    /// `None` before the first connection.
    server: Option<Server>,
    is_lost: bool,
    settings: Settings,
    board: Arc<Board>,
    questions: Receiver<Question>,
    walk: Walk,
    next_sample: Instant,
    retry: Duration,
    /// The number of filters that this walk found beyond the maximum.
    left_out: u64,
}

impl Sampler {
    /// Creates a sampler. It connects when it runs.
    pub fn new(options: Options, settings: Settings, board: Arc<Board>, questions: Receiver<Question>) -> Self {
        Self {
            options,
            server: None,
            is_lost: true,
            settings,
            board,
            questions,
            walk: Walk::new(),
            next_sample: Instant::now(),
            retry: RETRY_MIN,
            left_out: 0,
        }
    }

    /// Runs until all senders of questions are dropped.
    pub fn run(mut self) {
        loop {
            let until = match self.turn() {
                Ok(until) => until,
                Err(error) => self.failed(&error),
            };
            if self.answer_until(until).is_err() {
                return;
            }
        }
    }

    /// Does the work that is due. Returns when more work is due.
    fn turn(&mut self) -> Result<Instant> {
        if self.is_lost {
            self.reconnect()?;
        }
        if Instant::now() >= self.next_sample {
            // A small server is walked in one step, so its first sample already has the filters.
            if self.walk.is_at_begin() && Instant::now() >= self.walk.due() {
                self.step()?;
            }
            self.sample()?;
            self.retry = RETRY_MIN;
        }
        // Also after a sample, because on a slow server each sample takes longer than the interval, so that the next one is always due.
        if Instant::now() >= self.walk.due() {
            self.step()?;
        }
        Ok(self.next_sample.min(self.walk.due()))
    }

    fn failed(&mut self, error: &anyhow::Error) -> Instant {
        self.is_lost = true;
        let (mut state, text) = (self.board.state(), format!("{error:#}"));
        state.sent_at = None;
        let is_new = state.problem.as_ref().is_none_or(|problem| problem.text != text);
        if is_new {
            eprintln!("bloomgate: {text}");
        }
        state.fail(text);
        drop(state);
        let until = Instant::now() + self.retry;
        self.retry = self.retry.saturating_mul(2).min(RETRY_MAX);
        until
    }

    fn reconnect(&mut self) -> Result<()> {
        match &mut self.server {
            // Any known node will do.
            Some(server) if server.is_cluster() => server.reconnect(Duration::ZERO)?,
            server => *server = Some(Server::connect(&self.options)?),
        }
        if let Some(server) = &mut self.server {
            for node in server.nodes() {
                // Sampling must not protect filters from eviction. Servers before 7.2 lack the command.
                _ = server.ask_node(&node, cmd("CLIENT").arg("NO-TOUCH").arg("ON"));
            }
        }
        self.is_lost = false;
        // The server may have other keys than before.
        (self.walk, self.next_sample, self.left_out) = (Walk::new(), Instant::now(), 0);
        self.board.state().walk = self.walk.progress();
        Ok(())
    }

    fn ask<T>(&mut self, question: impl FnOnce(&mut Server) -> Result<T>) -> Result<(T, Duration)> {
        let server = self.server.as_mut().filter(|_| !self.is_lost).context("the connection to the server is lost")?;
        let begun = Instant::now();
        self.board.state().sent_at = Some(begun);
        let answer = question(server);
        self.board.state().sent_at = None;
        Ok((answer?, begun.elapsed()))
    }

    /// Takes a step of the walk over the keys.
    fn step(&mut self) -> Result<()> {
        let mut walk = std::mem::replace(&mut self.walk, Walk::new());
        if walk.is_at_begin() {
            self.left_out = 0;
        }
        let board = Arc::clone(&self.board);
        let pattern = self.settings.pattern.clone();
        let is_known = |key: &[u8]| board.state().filters.contains_key(key);
        let found = self.ask(|server| walk.step(server, pattern.as_deref(), is_known));
        self.walk = walk;
        let (found, took) = found?;
        self.walk.pause(pause_after(took));
        if self.walk.is_at_begin() {
            self.walk.pause(self.settings.interval.max(rest_after(self.walk.elapsed())));
        }
        let beyond = self.watch(found);
        self.watch_higher_ranks(&beyond)?;
        let mut state = self.board.state();
        if self.walk.is_at_begin() || self.left_out > state.left_out {
            state.left_out = self.left_out;
        }
        state.walk = self.walk.progress();
        Ok(())
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
    fn watch_higher_ranks(&mut self, beyond: &[Vec<u8>]) -> Result<()> {
        if beyond.is_empty() {
            return Ok(());
        }
        self.left_out += beyond.len() as u64;
        let (replies, took) = self.ask(|server| server.replies_of_each(&["BF.INFO"], beyond))?;
        self.walk.pause(pause_after(took));
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
        Ok(())
    }

    fn sample(&mut self) -> Result<()> {
        let begun = Instant::now();
        self.next_sample = begun + self.settings.interval;
        let (nodes, _) = self.ask(nodes)?;
        if nodes.iter().all(|node| node.info.text("bf_version").is_none()) {
            let address = nodes.first().map(|node| node.address.clone()).unwrap_or_default();
            return Err(no_module(&address));
        }
        let keys: Vec<Vec<u8>> = self.board.state().filters.keys().cloned().collect();
        let mut sampled = Vec::with_capacity(keys.len());
        for keys in keys.chunks(FILTERS_AT_ONCE) {
            let (replies, took) = self.ask(|server| server.replies_of_many(&commands(keys)))?;
            let mut replies = replies.into_iter();
            for key in keys {
                let replies: Vec<Value> = replies.by_ref().take(COMMANDS_A_FILTER).collect();
                if let Some(stats) = of_replies(replies) {
                    sampled.push((key.clone(), stats));
                }
            }
            self.answer_until(Instant::now() + pause_after(took))?;
        }
        let mut state = self.board.state();
        if state.problem.is_some() {
            eprintln!("bloomgate: the server at {} is back", self.board.server);
        }
        state.database = self.server.as_ref().map_or(0, Server::database);
        state.take_sample(nodes, sampled, begun.elapsed());
        Ok(())
    }

    /// Answers questions until the given time.
    fn answer_until(&mut self, until: Instant) -> Result<()> {
        loop {
            match self.questions.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Question { key, item, answer }) => {
                    let result = self.exists(&key, &item).map_err(|error| format!("{error:#}"));
                    // The request may have been dropped.
                    _ = answer.send(result);
                }
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(anyhow!("the page has stopped")),
            }
        }
    }

    fn exists(&mut self, key: &[u8], item: &[u8]) -> Result<bool> {
        let reply = self.ask(|server| server.ask(cmd("BF.EXISTS").arg(key).arg(item), key));
        if let Err(error) = &reply
            && error.is::<ConnectionLost>()
        {
            // The next sample connects again.
            self.is_lost = true;
            self.next_sample = Instant::now();
        }
        let (reply, _) = reply.with_context(|| format!("cannot query `{}`", readable(key)))?;
        Ok(from_redis_value(reply)?)
    }
}

fn nodes(server: &mut Server) -> Result<Vec<Node>> {
    let addresses = server.nodes();
    let mut of_node = |node: Address| {
        let info = Info::of_node(server, &node, &["server", "memory", "bf", "keyspace"])?;
        let keys = from_redis_value(server.ask_node(&node, &cmd("DBSIZE"))?)?;
        Ok(Node { address: node, info, keys })
    };
    addresses.into_iter().map(&mut of_node).collect()
}

/// The commands about some filters, [`COMMANDS_A_FILTER`] for each.
fn commands(keys: &[Vec<u8>]) -> Vec<(Vec<u8>, redis::Cmd)> {
    let of_key = |key: &Vec<u8>| {
        let commands = [
            cmd("BF.STATS").arg(key).to_owned(),
            cmd("BF.INFO").arg(key).arg("EXPANSION").to_owned(),
            cmd("PTTL").arg(key).to_owned(),
        ];
        commands.map(|command| (key.clone(), command))
    };
    keys.iter().flat_map(of_key).collect()
}

/// Parses the replies about a filter. Returns the error if there is one, and `None` if the key no longer holds a filter.
fn of_replies(replies: Vec<Value>) -> Option<Result<Sampled, String>> {
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

/// The fields of `INFO bf` whose totals over all nodes have a history.
pub const COUNTERS: [&str; 22] = [
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
    "bf_bloom_fetches_failed",
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
    pub history: Series<Point>,
}

/// A node of a cluster, or the server.
#[derive(Clone, Debug)]
pub struct Node {
    /// Host and port, or the socket.
    pub address: Address,
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
}

#[derive(Debug)]
pub struct Board {
    /// The server's name.
    pub server: String,
    pub interval: Duration,
    state: Mutex<State>,
}

impl Board {
    pub fn new(server: String, interval: Duration) -> Self {
        Self { server, interval, state: Mutex::default() }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the sum of a field of INFO over all nodes.
    pub fn total(&self, name: &str) -> u64 {
        total(self.nodes.iter().map(|node| &node.info), name)
    }

    /// Stores a sample of the nodes and of all filters. Removes filters that are not in the sample.
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
        let (mut before, mut now) = ([100; COUNTERS.len()], [100; COUNTERS.len()]);
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
