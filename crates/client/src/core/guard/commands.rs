//! The commands of a guard, and what their replies mean.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::{Cmd, ErrorKind, RedisError, Value};

use super::flights::{Outcome, lock};
use super::leases::{Leases, Token};
use super::{Io, Reply};
use crate::core::{Slot, command, split};
use crate::guard_options::milliseconds;
use crate::keys::{FeedKeys, cache_prefix};
use crate::replies::{self, unexpected};
use crate::{Error, GuardOptions};

/// The longest STALE that BF.FETCH accepts. Every value with a time to live has less than this left.
const ANY_AGE_MS: u64 = 1 << 61;
/// Renewals of faster loads may come together: they are over soon.
const SLOW_LOAD: Duration = Duration::from_millis(50);
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
}

impl Fetched {
    fn of(reply: &Value) -> Result<Self, Error> {
        let Value::Array(parts) = reply else { return Err(unexpected(reply)) };
        let parts: Vec<&[u8]> = parts.iter().map(|part| replies::bytes(part).unwrap_or_default()).collect();
        Ok(match parts.as_slice() {
            [b"absent"] => Self::Absent,
            [b"hit", value] => Self::Hit((*value).into()),
            [b"stale", value, token] => Self::Stale((*value).into(), token.to_vec()),
            [b"load", token] => Self::Load(token.to_vec()),
            [b"wait", _] => Self::Wait,
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
        }
    }

    /// Returns what a flight with this answer shares: the answer without its lease.
    pub fn shared(&self) -> Outcome {
        match self {
            Self::Absent => Outcome::Found(Self::Absent),
            Self::Hit(value) | Self::Stale(value, _) => Outcome::Found(Self::Hit(Arc::clone(value))),
            Self::Load(_) | Self::Wait => Outcome::Nothing,
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
    /// What a fetch of some rows has found that was not answered.
    fn failed(commands: &Arc<Commands>, io: &I, count: usize, why: &str) -> Self {
        let answers = (0..count).map(|_| Err(Error::UnexpectedReply(why.to_owned()))).collect();
        Self { answers, leases: Leases::new(commands, io) }
    }
}

/// The reply for one row, and the lease in it.
pub type FoundOne<I> = (Result<Fetched, Error>, Leases<I>);

/// How rows are fetched.
#[derive(Default)]
pub struct Fetch {
    /// For rows whose cached value could not be decoded: asks for the lease to replace the value. STALE with the longest time
    /// gives one caller a token for any value with a time to live; a value without one, which is never stale, gets one first.
    /// Deleting the value instead would not be safe: every caller that has seen it would delete what the first of them has filled
    /// since.
    pub replace: bool,
    /// How long the server may hold the reply back, and the slot of a connection for that.
    pub wait: Option<(u64, Slot)>,
    /// Replaces the guard's STALE.
    pub stale_ms: Option<u64>,
}

/// The commands of one guard, and what it has learned of its server and its database.
pub struct Commands {
    pub filter: Vec<u8>,
    prefix: Vec<u8>,
    pub options: GuardOptions,
    pub feed: Option<FeedKeys>,
    /// The average duration of loads.
    pub load_time: Mutex<Duration>,
    /// How often each event has happened.
    pub counts: Mutex<BTreeMap<&'static str, u64>>,
    /// How often in succession the load of each row has failed, and when it failed last.
    pub failing: Mutex<HashMap<Vec<u8>, (u32, Instant)>>,
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
            load_time: Mutex::default(),
            counts: Mutex::default(),
            failing: Mutex::default(),
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

    /// Returns the STALE of a fetch: one caller refreshes a value with less than this to live.
    ///
    /// A value with less than `fail_safe` left is due. Before that, it is renewed with a probability that grows as its end
    /// approaches, and the earlier the longer loads take: Vattani, Chierichetti and Lowenstein, "Optimal Probabilistic Cache
    /// Stampede Prevention", VLDB 2015, figure 3.
    fn stale_ms(&self) -> u64 {
        let drawn = -(1.0 - fastrand::f64()).ln() * self.options.beta;
        let early = Duration::try_from_secs_f64(lock(&self.load_time).as_secs_f64() * drawn).unwrap_or(Duration::MAX);
        milliseconds(self.options.fail_safe.saturating_add(early)).min(ANY_AGE_MS)
    }

    fn add_fetch_options(&self, command: &mut Cmd, stale_ms: u64) {
        command.arg("LEASE").arg(milliseconds(self.options.lease));
        if stale_ms > 0 {
            command.arg("STALE").arg(stale_ms);
        }
        if let Some(feed) = &self.feed {
            command.arg("WHILE").arg(&feed.heartbeat).arg("UNLESS").arg(&feed.in_flight);
        }
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
        found.unwrap_or_else(|| Found::failed(self, io, count, "the runtime ended during a fetch"))
    }

    /// Fetches rows, for a caller that is never cancelled.
    pub async fn find<I: Io>(self: Arc<Self>, io: I, ids: Vec<Vec<u8>>, how: Fetch) -> Found<I> {
        if self.is_paused() {
            return Found::failed(&self, &io, ids.len(), "the server did not answer in time a moment ago");
        }
        let answers = self.ask(&io, &ids, &how).await;
        for answer in &answers {
            self.count(answer.as_ref().map_or("errors", Fetched::word), 1);
        }
        let token = |answer: &Result<Fetched, Error>| answer.as_ref().ok().and_then(Fetched::token).cloned();
        let left = ids.into_iter().zip(&answers).filter_map(|(id, answer)| Some((id, token(answer)?))).collect();
        Found { answers, leases: Leases { commands: self, io, left } }
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
    pub fn pause(&self) {
        *lock(&self.paused_until) = Instant::now().checked_add(PAUSE);
    }

    /// Logs a failed command. Begins a pause if its reply did not arrive in time; any answer ends it.
    pub fn record(&self, replies: &[Reply]) {
        if let Some(error) = replies.iter().find_map(|reply| reply.as_ref().err()) {
            self.warn("a command failed", error);
        }
        if replies.iter().any(is_late) {
            self.pause();
        } else if replies.iter().any(is_answer) {
            *lock(&self.paused_until) = None;
        }
    }

    /// Sends commands as [`Io::ask`] does, and records whether they were answered.
    pub async fn send(&self, io: &impl Io, commands: Vec<Cmd>, wait: Option<Duration>) -> Vec<Reply> {
        let replies = io.ask(commands, wait).await;
        self.record(&replies);
        replies
    }

    /// Does the same for commands that end leases, as [`Io::ask_together`] sends them.
    pub async fn send_together(&self, io: &impl Io, commands: Vec<Cmd>) -> Vec<Reply> {
        let replies = io.ask_together(commands).await;
        self.record(&replies);
        replies
    }

    /// Fetches a row.
    pub async fn fetch_one<I: Io>(self: &Arc<Self>, io: &I, id: &[u8], how: Fetch) -> FoundOne<I> {
        let Found { mut answers, leases } = self.fetch(io, vec![id.to_vec()], how).await;
        let missing = || Err(Error::UnexpectedReply("the server sent no reply".to_owned()));
        (answers.pop().unwrap_or_else(missing), leases)
    }

    /// Asks for rows. Several rows are one BF.MFETCH, or a few. Callers that wait, and `replace`, need BF.FETCH.
    ///
    /// An id whose cache key would be one of the follower's own keys is not sent: those keys hold no rows, and a fill would
    /// overwrite them. Such a row is read from the database.
    async fn ask(&self, io: &impl Io, ids: &[Vec<u8>], how: &Fetch) -> Vec<Result<Fetched, Error>> {
        let is_own = |id: &[u8]| self.feed.as_ref().is_some_and(|feed| feed.owns(&self.cache_key(id)));
        let sent: Vec<&[u8]> = ids.iter().map(Vec::as_slice).filter(|id| !is_own(id)).collect();
        let answers = match sent.len() {
            0 => Vec::new(),
            2.. if !how.replace => self.fetch_together(io, &sent, how.stale_ms).await,
            _ => self.fetch_each(io, &sent, how).await,
        };
        let mut answers = answers.into_iter();
        let refused = || Err(Error::Refused("the cache key is a key of the follower".to_owned()));
        let missing = || Err(Error::UnexpectedReply("the server answered fewer rows than were fetched".to_owned()));
        let next = |id: &Vec<u8>| if is_own(id) { refused() } else { answers.next().unwrap_or_else(missing) };
        ids.iter().map(next).collect()
    }

    /// Sends BF.MFETCH.
    async fn fetch_together(&self, io: &impl Io, ids: &[&[u8]], stale_ms: Option<u64>) -> Vec<Result<Fetched, Error>> {
        let groups = match stale_ms {
            Some(stale_ms) => vec![(stale_ms, (0..ids.len()).collect())],
            None => self.stale_groups(ids.len()),
        };
        let commands = groups.iter().map(|(stale_ms, group)| {
            let mut fetch = command("BF.MFETCH", &self.filter);
            self.add_fetch_options(&mut fetch, *stale_ms);
            fetch.arg("ITEMS");
            for id in group.iter().filter_map(|position| ids.get(*position)) {
                fetch.arg(id).arg(self.cache_key(id));
            }
            fetch
        });
        let replies = self.send(io, commands.collect(), None).await;
        let mut answers: BTreeMap<usize, Result<Fetched, Error>> = BTreeMap::new();
        for ((_, group), reply) in groups.into_iter().zip(replies) {
            for (position, answer) in group.iter().zip(spread(reply, group.len())) {
                answers.insert(*position, answer.map_err(Error::from).and_then(|answer| Fetched::of(&answer)));
            }
        }
        answers.into_values().collect()
    }

    /// Returns rows by the STALE of their fetch. If all rows of a batch shared what is drawn for their renewal, a large number
    /// would renew all that expire soon, at once. So slow loads are drawn for each row, and rows with similar numbers are fetched
    /// together.
    fn stale_groups(&self, count: usize) -> Vec<(u64, Vec<usize>)> {
        if lock(&self.load_time).as_secs_f64() * self.options.beta < SLOW_LOAD.as_secs_f64() {
            return vec![(self.stale_ms(), (0..count).collect())];
        }
        let mut groups: BTreeMap<u32, (u64, Vec<usize>)> = BTreeMap::new();
        for position in 0..count {
            let drawn = self.stale_ms();
            let early = drawn.saturating_sub(milliseconds(self.options.fail_safe));
            let (least, group) = groups.entry(early.checked_ilog2().unwrap_or_default()).or_insert((drawn, Vec::new()));
            *least = drawn.min(*least);
            group.push(position);
        }
        groups.into_values().collect()
    }

    /// Sends a BF.FETCH for each row, all together.
    async fn fetch_each(&self, io: &impl Io, ids: &[&[u8]], how: &Fetch) -> Vec<Result<Fetched, Error>> {
        let mut commands = Vec::new();
        for id in ids {
            if how.replace {
                let mut expire = command("PEXPIRE", &self.cache_key(id));
                expire.arg(milliseconds(self.options.ttl)).arg("NX");
                commands.push(expire);
            }
            let stale_ms = if how.replace { ANY_AGE_MS } else { how.stale_ms.unwrap_or_else(|| self.stale_ms()) };
            let mut fetch = self.command("BF.FETCH", id);
            self.add_fetch_options(&mut fetch, stale_ms);
            if let Some((wait_ms, _)) = &how.wait {
                fetch.arg("WAIT").arg(wait_ms);
            }
            commands.push(fetch);
        }
        let each = if how.replace { 2 } else { 1 };
        let wait = how.wait.as_ref().map(|(wait_ms, _)| Duration::from_millis(*wait_ms));
        let replies = self.send(io, commands, wait).await;
        let replies = replies.into_iter().skip(each - 1).step_by(each);
        replies.map(|reply| Fetched::of(&reply?)).collect()
    }

    pub fn fill(&self, id: &[u8], token: &Token) -> Cmd {
        let mut fill = self.command("BF.FILL", id);
        fill.arg(token);
        fill
    }

    /// Returns the command that ends a lease, so that other callers may load.
    pub fn give_up(&self, id: &[u8], token: &Token) -> Cmd {
        let mut give_up = self.fill(id, token);
        give_up.arg("GIVEUP");
        give_up
    }
}

/// Whether the reply took longer than the client's time limit.
pub fn is_late(reply: &Reply) -> bool {
    reply.as_ref().is_err_and(RedisError::is_timeout)
}

/// Whether the server has answered, if only with an error.
fn is_answer(reply: &Reply) -> bool {
    !matches!(reply, Err(error) if !matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension))
}

/// Returns an answer for each row of a command, which itself may have failed.
pub fn spread(reply: Reply, count: usize) -> Vec<Reply> {
    match reply {
        Ok(Value::Array(answers)) => answers.into_iter().map(split).collect(),
        other => vec![other; count],
    }
}
