//! Builds and sends the commands of a guard, and pauses after the server has timed out.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use redis::{Cmd, ErrorKind, RedisError};

use super::fetched::{Fetch, Lease};
use super::flights::lock;
use super::{Io, Reply};
use crate::core::command;
use crate::guard_options::milliseconds;
use crate::keys::{FeedKeys, cache_prefix};
use crate::{Error, GuardOptions};

/// The server's default LEASE.
const DEFAULT_LEASE_MS: u64 = 3000;
/// How long callers query the database directly after the server has timed out.
const PAUSE: Duration = Duration::from_secs(2);
/// The shortest interval between two log lines about the same kind of problem.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The commands of one guard, and its knowledge of the server's state.
pub struct Commands {
    pub filter: Vec<u8>,
    prefix: Vec<u8>,
    pub options: GuardOptions,
    pub feed: Option<FeedKeys>,
    /// The number of each event.
    pub counts: Mutex<BTreeMap<&'static str, u64>>,
    /// The time until which no fetch is sent, after the server has timed out.
    paused_until: Mutex<Option<Instant>>,
    /// The time of the last log line about each kind of problem.
    warned: Mutex<HashMap<&'static str, Instant>>,
}

impl Commands {
    pub fn new(filter: &[u8], options: GuardOptions) -> Result<Self, Error> {
        Ok(Self {
            filter: filter.to_vec(),
            prefix: match &options.prefix {
                Some(prefix) => prefix.clone(),
                None => cache_prefix(filter)?,
            },
            feed: if options.feed { Some(FeedKeys::of(filter)?) } else { None },
            options,
            counts: Mutex::default(),
            paused_until: Mutex::default(),
            warned: Mutex::default(),
        })
    }

    pub fn cache_key(&self, id: &[u8]) -> Vec<u8> {
        [&self.prefix, id].concat()
    }

    fn command(&self, name: &str, id: &[u8]) -> Cmd {
        let mut command = command(name, &self.filter);
        command.arg(id).arg(self.cache_key(id));
        command
    }

    /// Returns the command that fetches rows: BF.FETCH for one, BF.MFETCH for more.
    pub(super) fn fetching(&self, ids: &[Vec<u8>], how: &Fetch) -> Cmd {
        let options = &self.options;
        let mut fetch = match ids {
            [id] => self.command("BF.FETCH", id),
            _ => command("BF.MFETCH", &self.filter),
        };
        let mut number = |word: &str, number: u64, default: u64| {
            if number != default {
                fetch.arg(word).arg(number);
            }
        };
        number("LEASE", milliseconds(options.lease), DEFAULT_LEASE_MS);
        number("STALE", milliseconds(options.fail_safe), 0);
        number("RENEW", options.renew_percent(), 0);
        if let Some(feed) = &self.feed {
            fetch.arg("WHILE").arg(&feed.heartbeat).arg("UNLESS").arg(&feed.in_flight);
            if !options.fresh.is_zero() {
                fetch.arg("FRESH").arg(milliseconds(options.fresh));
            }
        }
        if how.replace {
            fetch.arg("REPLACE");
        }
        if how.peek {
            fetch.arg("PEEK");
        }
        if let Some((wait, _)) = &how.wait {
            fetch.arg("WAIT").arg(milliseconds(*wait)).arg("BACKOFF");
        }
        if ids.len() > 1 {
            fetch.arg("ITEMS");
            for id in ids {
                fetch.arg(id).arg(self.cache_key(id));
            }
        }
        fetch
    }

    /// Counts an event.
    pub fn count(&self, event: &'static str, number: usize) {
        if number > 0 {
            *lock(&self.counts).entry(event).or_default() += number as u64;
        }
    }

    /// Whether to skip the fetch. After a pause, one caller probes; the rest stay paused.
    pub(super) fn is_paused(&self) -> bool {
        let mut until = lock(&self.paused_until);
        let now = Instant::now();
        let is_paused = until.is_some_and(|until| now < until);
        if until.is_some() && !is_paused {
            *until = now.checked_add(PAUSE);
        }
        is_paused
    }

    /// Logs a problem from which the guard recovers.
    pub fn warn(&self, what: &'static str, error: &dyn std::fmt::Display) {
        let mut warned = lock(&self.warned);
        if warned.get(what).is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            warned.insert(what, Instant::now());
            drop(warned);
            log::warn!("the guard of {}: {what}: {error}", self.filter.escape_ascii());
        }
    }

    /// Begins a pause.
    fn pause(&self) {
        *lock(&self.paused_until) = Instant::now().checked_add(PAUSE);
    }

    /// Logs a failed command. Begins a pause if its reply did not arrive in time; any answer ends it.
    pub fn record(&self, replies: &[Reply]) {
        if let Some(error) = replies.iter().find_map(|reply| reply.as_ref().err()) {
            self.warn("a command failed", &Error::of_guard(error.clone()));
        }
        if replies.iter().any(is_late) {
            self.pause();
        } else if replies.iter().any(is_answer) {
            *lock(&self.paused_until) = None;
        }
    }

    /// Sends commands like [`Io::ask`], and records whether they were answered.
    pub(super) async fn send(&self, io: &impl Io, commands: Vec<Cmd>, wait: Option<Duration>) -> Vec<Reply> {
        let replies = io.ask(commands, wait).await;
        self.record(&replies);
        replies
    }

    /// Sends commands that end leases by [`Io::ask_together`], and records whether they were answered. If the user has no permission
    /// for them, callers query the database for a while, because otherwise each of them would wait until a lease ends.
    pub async fn end_leases(&self, io: &impl Io, commands: Vec<Cmd>) -> Vec<Reply> {
        let replies = io.ask_together(commands).await;
        self.record(&replies);
        if replies.iter().any(|reply| reply.as_ref().is_err_and(|error| error.code() == Some("NOPERM"))) {
            self.pause();
        }
        replies
    }

    /// Returns the command that ends a lease, without its last arguments.
    pub fn fill(&self, (id, token): &Lease) -> Cmd {
        let mut fill = self.command("BF.FILL", id);
        fill.arg(token);
        fill
    }

    /// Returns the command that ends a lease, so that other callers may load. After a failed load with `fail_safe`, the server grants
    /// no lease until a back-off ends.
    pub fn give_up(&self, lease: &Lease, has_failed: bool) -> Cmd {
        let mut give_up = self.fill(lease);
        give_up.arg("GIVEUP");
        if has_failed && !self.options.fail_safe.is_zero() {
            give_up.arg("BACKOFF");
        }
        give_up
    }
}

/// Whether the reply took longer than the client's time limit.
pub fn is_late(reply: &Reply) -> bool {
    reply.as_ref().is_err_and(RedisError::is_timeout)
}

/// Whether the server has answered, even with an error.
pub fn is_answer(reply: &Reply) -> bool {
    !matches!(reply, Err(error) if !matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension))
}
