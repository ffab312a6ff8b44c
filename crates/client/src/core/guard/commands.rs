//! The commands of a guard, and what their replies mean.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::{Cmd, ErrorKind, RedisError, Value};

use super::flights::{Outcome, lock};
use super::leases::{Lease, Leases, Token};
use super::{BATCH, Io, Reply};
use crate::core::{Slot, command, split};
use crate::guard_options::milliseconds;
use crate::keys::{FeedKeys, cache_prefix};
use crate::replies::{self, unexpected};
use crate::{Error, GuardOptions};

/// The server's LEASE.
const DEFAULT_LEASE_MS: u64 = 3000;
/// How long callers query the database at once after the server has not answered in time.
const PAUSE: Duration = Duration::from_secs(2);
/// How often a guard logs each kind of trouble at most: not once for each call.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// A reply of BF.FETCH.
#[derive(Debug, Clone, PartialEq)]
pub enum Fetched {
    Absent,
    Hit(Arc<[u8]>),
    Stale(Arc<[u8]>, Token),
    Load(Token),
    Wait,
    /// The load of the row has failed, and its back-off has not ended.
    Failed,
}

impl Fetched {
    fn of(reply: Reply) -> Result<Self, Error> {
        let reply = match reply {
            // CLIENT UNBLOCK has ended the wait.
            Err(error) if error.code() == Some("UNBLOCKED") => return Ok(Self::Wait),
            other => &other.map_err(Error::of_guard)?,
        };
        let Value::Array(parts) = reply else { return Err(unexpected(reply)) };
        let parts: Vec<&[u8]> = parts.iter().map(|part| replies::bytes(part).unwrap_or_default()).collect();
        Ok(match parts.as_slice() {
            [b"absent"] => Self::Absent,
            [b"hit", value] => Self::Hit((*value).into()),
            [b"stale", value, token] => Self::Stale((*value).into(), token.to_vec()),
            [b"load", token] => Self::Load(token.to_vec()),
            [b"wait", _] => Self::Wait,
            [b"failed", _] => Self::Failed,
            _ => return Err(unexpected(reply)),
        })
    }

    /// Returns the first word of the reply.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Hit(_) => "hit",
            Self::Stale(..) => "stale",
            Self::Load(_) => "load",
            Self::Wait => "wait",
            Self::Failed => "failed",
        }
    }

    /// Returns what a flight with this answer shares: the answer without its lease.
    pub fn shared(&self) -> Outcome {
        match self {
            Self::Absent => Outcome::Found(Ok(Self::Absent)),
            Self::Hit(value) | Self::Stale(value, _) => Outcome::Found(Ok(Self::Hit(Arc::clone(value)))),
            Self::Load(_) | Self::Wait | Self::Failed => Outcome::Nothing,
        }
    }

    pub fn token(&self) -> Option<&Token> {
        match self {
            Self::Stale(_, token) | Self::Load(token) => Some(token),
            _ => None,
        }
    }
}

/// The replies for some rows, and the leases in them.
pub struct Found<I: Io> {
    pub answers: Vec<Result<Fetched, Error>>,
    pub leases: Leases<I>,
}

impl<I: Io> Found<I> {
    /// The answer for one row, without a lease.
    pub fn one(commands: &Arc<Commands>, io: &I, answer: Result<Fetched, Error>) -> Self {
        Self { answers: vec![answer], leases: Leases::new(commands, io) }
    }
}

/// How rows are fetched.
#[derive(Default)]
pub struct Fetch {
    /// The cached value could not be decoded: REPLACE.
    pub replace: bool,
    /// A value may be old, and no lease is wanted: PEEK.
    pub peek: bool,
    /// How long the server may hold the reply back, and the slot of a connection for that. For one row.
    pub wait: Option<(Duration, Slot)>,
}

/// The commands of one guard, and what it has learned of its server.
pub struct Commands {
    pub filter: Vec<u8>,
    prefix: Vec<u8>,
    pub options: GuardOptions,
    pub feed: Option<FeedKeys>,
    /// How often each event has happened.
    pub counts: Mutex<BTreeMap<&'static str, u64>>,
    /// Until when no fetch is sent, if the server did not answer in time.
    paused_until: Mutex<Option<Instant>>,
    /// When each kind of trouble was logged last.
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
    fn fetching(&self, ids: &[Vec<u8>], how: &Fetch) -> Cmd {
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

    /// Fetches rows. If the caller is cancelled meanwhile, the replies are still read, and the leases in them are given up.
    pub async fn fetch<I: Io>(self: &Arc<Self>, io: &I, ids: Vec<Vec<u8>>, how: Fetch) -> Found<I> {
        let count = ids.len();
        let found = io.finish(Arc::clone(self).find(io.clone(), ids, how)).await;
        found.unwrap_or_else(|| Found {
            answers: (0..count).map(|_| Err(not_fetched("the runtime ended during a fetch"))).collect(),
            leases: Leases::new(self, io),
        })
    }

    /// Fetches rows, for a caller that is never cancelled.
    pub async fn find<I: Io>(self: Arc<Self>, io: I, ids: Vec<Vec<u8>>, how: Fetch) -> Found<I> {
        let wait = how.wait.as_ref().map(|(wait, _)| *wait);
        let (mut answers, mut leases) = (Vec::with_capacity(ids.len()), Leases::new(&self, &io));
        for part in ids.chunks(BATCH) {
            if self.is_paused() {
                answers.extend(part.iter().map(|_| Err(not_fetched("the server did not answer in time a moment ago"))));
                continue;
            }
            let mut replies = self.send(&io, vec![self.fetching(part, &how)], wait).await;
            if part.len() > 1 {
                replies = replies.into_iter().flat_map(|reply| spread(reply, part.len())).collect();
            }
            let mut replies = replies.into_iter();
            for id in part {
                let missing = || Err(not_fetched("the server sent no reply for a row"));
                let answer = replies.next().map_or_else(missing, Fetched::of);
                self.count(answer.as_ref().map_or("errors", Fetched::word), 1);
                if let Some(token) = answer.as_ref().ok().and_then(Fetched::token) {
                    leases.left.push((id.clone(), token.clone()));
                }
                answers.push(answer);
            }
        }
        Found { answers, leases }
    }

    /// Whether a fetch has to be left out. After a pause one caller fetches, while the pause goes on for the others.
    fn is_paused(&self) -> bool {
        let mut until = lock(&self.paused_until);
        let now = Instant::now();
        let is_paused = until.is_some_and(|until| now < until);
        if until.is_some() && !is_paused {
            *until = now.checked_add(PAUSE);
        }
        is_paused
    }

    /// Logs trouble that the guard goes on after.
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

    /// Sends commands as [`Io::ask`] does, and records whether they were answered.
    async fn send(&self, io: &impl Io, commands: Vec<Cmd>, wait: Option<Duration>) -> Vec<Reply> {
        let replies = io.ask(commands, wait).await;
        self.record(&replies);
        replies
    }

    /// Does the same for commands that end leases, as [`Io::ask_together`] sends them. If the user has no permission for that, callers
    /// query the database for a while: otherwise each of them would wait for the end of a lease.
    pub async fn end_leases(&self, io: &impl Io, commands: Vec<Cmd>) -> Vec<Reply> {
        let replies = io.ask_together(commands).await;
        self.record(&replies);
        if replies.iter().any(|reply| reply.as_ref().is_err_and(|error| error.code() == Some("NOPERM"))) {
            self.pause();
        }
        replies
    }

    /// Returns the command that ends a lease, without what it ends with.
    pub fn fill(&self, (id, token): &Lease) -> Cmd {
        let mut fill = self.command("BF.FILL", id);
        fill.arg(token);
        fill
    }

    /// Returns the command that ends a lease, so that other callers may load. After a failed load with `fail_safe`, none may before a
    /// back-off has passed.
    pub fn give_up(&self, lease: &Lease, has_failed: bool) -> Cmd {
        let mut give_up = self.fill(lease);
        give_up.arg("GIVEUP");
        if has_failed && !self.options.fail_safe.is_zero() {
            give_up.arg("BACKOFF");
        }
        give_up
    }
}

/// Why a row was not fetched.
pub fn not_fetched(why: &str) -> Error {
    Error::UnexpectedReply(why.to_owned())
}

/// Whether the reply took longer than the client's time limit.
pub fn is_late(reply: &Reply) -> bool {
    reply.as_ref().is_err_and(RedisError::is_timeout)
}

/// Whether the server has answered, if only with an error.
pub fn is_answer(reply: &Reply) -> bool {
    !matches!(reply, Err(error) if !matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension))
}

/// Returns an answer for each row of a command, which itself may have failed.
pub fn spread(reply: Reply, count: usize) -> Vec<Reply> {
    match reply {
        Ok(Value::Array(answers)) => answers.into_iter().map(split).collect(),
        other => vec![other; count],
    }
}
