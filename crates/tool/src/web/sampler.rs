//! The thread that queries the server. It takes samples at each interval, walks over the keys between them, and answers
//! requests in its pauses. It has its own connection and reconnects if that is lost.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use redis::{Value, cmd, from_redis_value};
use tokio::sync::oneshot;

use super::board::{Board, Filter, Node};
use super::names::readable;
use super::pace::{pause_after, rest_after};
use crate::server::{Address, Lost, Options, Server, no_module};
use crate::stats::{Info, Sampled, number};
use crate::walk::Walk;

/// Filters queried in one batch.
const FILTERS_AT_ONCE: usize = 16;
/// Commands per filter.
const COMMANDS_A_FILTER: usize = 3;
/// The pause before the first attempt to reconnect. It doubles with each further attempt.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(8);

/// The sampler's options.
#[derive(Clone)]
pub struct Settings {
    /// The time from one sample to the next.
    pub interval: Duration,
    /// The most filters to sample.
    pub filters_max: usize,
    /// The pattern of the keys to search, as SCAN takes it.
    pub pattern: Option<String>,
}

/// A request for `BF.EXISTS`, which changes nothing.
pub struct Question {
    /// The filter.
    pub key: Vec<u8>,
    /// The item.
    pub item: Vec<u8>,
    /// Receives the answer, or the error.
    pub answer: oneshot::Sender<Result<bool, String>>,
}

/// The state of the thread.
pub struct Sampler {
    options: Options,
    /// Nothing before the first connection.
    server: Option<Server>,
    is_lost: bool,
    settings: Settings,
    board: Arc<Board>,
    questions: Receiver<Question>,
    walk: Walk,
    next_sample: Instant,
    retry: Duration,
    /// Filters that this walk found beyond the maximum.
    left_out: u64,
}

impl Sampler {
    /// Creates a sampler, which connects by itself.
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

    /// Runs until the senders of questions are gone.
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
        // Also after a sample: on a slow server each sample takes longer than the interval, so the next one is always due.
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
                // Sampling must not protect filters from eviction. Servers before 7.2 do not know the command.
                _ = server.ask_node(&node, cmd("CLIENT").arg("NO-TOUCH").arg("ON"));
            }
        }
        self.is_lost = false;
        // The server may have other keys than before.
        (self.walk, self.next_sample, self.left_out) = (Walk::new(), Instant::now(), 0);
        self.board.state().walk = self.walk.progress();
        Ok(())
    }

    /// Queries the server. Returns the result and the time it took.
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
        self.watch_larger(&beyond)?;
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

    /// Lets the larger ones of some filters take the places of the smallest that are watched.
    fn watch_larger(&mut self, beyond: &[Vec<u8>]) -> Result<()> {
        if beyond.is_empty() {
            return Ok(());
        }
        self.left_out += beyond.len() as u64;
        let size = |key: &Vec<u8>| (key.clone(), cmd("BF.INFO").arg(key).arg("SIZE").to_owned());
        let commands: Vec<_> = beyond.iter().map(size).collect();
        let (replies, took) = self.ask(|server| server.replies_of_many(&commands))?;
        self.walk.pause(pause_after(took));
        let mut state = self.board.state();
        let size = |filter: &Filter| filter.sampled.as_ref().map(|sampled| sampled.stats.size_bytes);
        let watched = state.filters.iter().filter_map(|(key, filter)| Some(Reverse((size(filter)?, key.clone()))));
        let mut smallest: BinaryHeap<_> = watched.collect();
        for (key, reply) in beyond.iter().zip(replies) {
            let Ok(size) = number(reply) else { continue };
            if smallest.peek().is_some_and(|Reverse((least, _))| *least < size)
                && let Some(Reverse((_, least))) = smallest.pop()
            {
                state.filters.remove(&least);
                state.filters.insert(key.clone(), Filter::default());
                smallest.push(Reverse((size, key.clone())));
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
            eprintln!("bloomgate: the server is back");
        }
        state.take_sample(nodes, sampled, begun.elapsed());
        Ok(())
    }

    /// Answers questions until the given time.
    ///
    /// # Errors
    /// The senders of questions are gone.
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
            && error.is::<Lost>()
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
        let info = Info::of_node(server, &node, &["server", "memory", "bf"])?;
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
