//! The guard: the commands, and what their replies mean. What reading one row, reading many and writing have in common.

mod flights;
mod load;
mod many;
mod read;
mod write;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::{Io, Reply, command};
use crate::error::is_unknown_command;
use crate::guard_options::milliseconds;
use crate::keys::{FeedKeys, cache_prefix};
use crate::replies::{self, unexpected};
use crate::{Codec, Error, GuardOptions};

pub use flights::Waiter;
use flights::{Flights, lock};
pub use write::Filling;

/// The most ids that are sent together.
const BATCH: usize = 500;
/// The longest STALE that BF.FETCH accepts. Every value with a time to live has less than this left.
const ANY_AGE_MS: u64 = 1 << 61;
/// Times to live are shortened by up to this share, at random: rows that are filled together do not expire together.
const JITTER: f64 = 0.1;
/// Renewals of faster loads may come together: they are over soon.
const SLOW_LOAD: Duration = Duration::from_millis(50);

/// What a caller of the guard gets instead of a result.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum GuardError<E> {
    /// The function that the caller passed has failed.
    Caller(E),
    /// The guard has failed.
    Guard(Error),
}

impl<E> From<Error> for GuardError<E> {
    fn from(error: Error) -> Self {
        Self::Guard(error)
    }
}

impl<E: std::fmt::Display> std::fmt::Display for GuardError<E> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::Caller(error) => error.fmt(formatter),
            Self::Guard(error) => error.fmt(formatter),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for GuardError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Caller(error) => Some(error),
            Self::Guard(error) => Some(error),
        }
    }
}

/// A lease's token.
type Token = Vec<u8>;

/// A reply of BF.FETCH.
#[derive(Debug, Clone, PartialEq)]
enum Fetched {
    Absent,
    Hit(Vec<u8>),
    Stale(Vec<u8>, Token),
    Load(Token),
    Wait,
}

impl Fetched {
    fn of(reply: &Value) -> Result<Self, Error> {
        let Value::Array(parts) = reply else { return Err(unexpected(reply)) };
        let parts: Vec<&[u8]> = parts.iter().map(|part| replies::bytes(part).unwrap_or_default()).collect();
        Ok(match parts.as_slice() {
            [b"absent"] => Self::Absent,
            [b"hit", value] => Self::Hit(value.to_vec()),
            [b"stale", value, token] => Self::Stale(value.to_vec(), token.to_vec()),
            [b"load", token] => Self::Load(token.to_vec()),
            [b"wait", _] => Self::Wait,
            _ => return Err(unexpected(reply)),
        })
    }

    fn token(&self) -> Option<&Token> {
        match self {
            Self::Stale(_, token) | Self::Load(token) => Some(token),
            _ => None,
        }
    }
}

/// What is known of a row. With a token the caller has to load the row, and `value` is what may be served if that fails.
struct Answer<R> {
    /// The cached value, or `None` if there is no row.
    value: Option<R>,
    token: Option<Token>,
    /// Whether a value is cached that the codec can decode, or there is no row.
    is_readable: bool,
}

/// How rows are fetched.
#[derive(Default)]
struct Fetch {
    /// For rows whose cached value could not be decoded: asks for the lease to replace the value. STALE with the longest time
    /// gives one caller a token for any value with a time to live; a value without one, which is never stale, gets one first.
    /// Deleting the value instead would not be safe: every caller that has seen it would delete what the first of them has filled
    /// since.
    replace: bool,
    /// How long the server may hold the reply back.
    wait_ms: u64,
    /// Replaces the guard's STALE.
    stale_ms: Option<u64>,
}

/// The state of one guard, and its commands.
pub struct GuardCore<C> {
    filter: Vec<u8>,
    prefix: Vec<u8>,
    codec: C,
    options: GuardOptions,
    feed: Option<FeedKeys>,
    /// Whether the server knows BF.MFETCH and BF.MCHANGED.
    has_batches: AtomicBool,
    /// The average duration of loads.
    load_time: Mutex<Duration>,
    /// How often in succession the load of each row has failed, and when it failed last.
    failing: Mutex<HashMap<Vec<u8>, (u32, Instant)>>,
    flights: Flights,
    /// The loads that continue in the background.
    background: Arc<AtomicUsize>,
}

impl<C: Codec> GuardCore<C> {
    pub fn new(io: &impl Io, filter: &[u8], codec: C, options: GuardOptions) -> Result<Self, Error> {
        options.check(io.timeout())?;
        Ok(Self {
            filter: filter.to_vec(),
            prefix: match &options.prefix {
                Some(prefix) => prefix.clone(),
                None => cache_prefix(filter)?,
            },
            codec,
            feed: if options.feed { Some(FeedKeys::of(filter)?) } else { None },
            options,
            has_batches: AtomicBool::new(true),
            load_time: Mutex::default(),
            failing: Mutex::default(),
            flights: Flights::default(),
            background: Arc::default(),
        })
    }

    pub fn options(&self) -> &GuardOptions {
        &self.options
    }

    fn cache_key(&self, id: &[u8]) -> Vec<u8> {
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

    /// Fetches rows. Several rows are one BF.MFETCH, or a few. Callers that wait, and `replace`, need BF.FETCH.
    ///
    /// An id whose cache key would be one of the follower's own keys is not sent: those keys hold no rows, and a fill would
    /// overwrite them. Such a row is read from the database.
    async fn fetch(&self, io: &impl Io, ids: &[&[u8]], how: &Fetch) -> Vec<Result<Fetched, Error>> {
        let is_own = |id: &[u8]| self.feed.as_ref().is_some_and(|feed| feed.owns(&self.cache_key(id)));
        let sent: Vec<&[u8]> = ids.iter().copied().filter(|id| !is_own(id)).collect();
        let mut answers = Vec::new();
        if self.has_batches.load(Ordering::Relaxed) && sent.len() > 1 && !how.replace {
            answers = self.fetch_together(io, &sent, how.stale_ms).await;
        }
        if answers.is_empty() && !sent.is_empty() {
            answers = self.fetch_each(io, &sent, how).await;
        }
        let mut answers = answers.into_iter();
        let refused = || Err(Error::Refused("the cache key is a key of the follower".to_owned()));
        let missing = || Err(Error::UnexpectedReply("the server answered fewer rows than were fetched".to_owned()));
        let next = |id: &&[u8]| if is_own(id) { refused() } else { answers.next().unwrap_or_else(missing) };
        ids.iter().map(next).collect()
    }

    /// Sends BF.MFETCH. Returns nothing if the server does not know it.
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
        let replies = io.ask(commands.collect()).await;
        if replies.iter().any(is_unavailable) {
            self.has_batches.store(false, Ordering::Relaxed);
            return Vec::new();
        }
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
            if how.wait_ms > 0 {
                fetch.arg("WAIT").arg(how.wait_ms);
            }
            commands.push(fetch);
        }
        let each = if how.replace { 2 } else { 1 };
        let replies = io.ask(commands).await.into_iter().skip(each - 1).step_by(each);
        replies.map(|reply| Fetched::of(&reply?)).collect()
    }

    /// Decodes the value of a reply other than `wait`. `undecodable` is a value that the codec has failed on already.
    fn read(&self, found: &Fetched, undecodable: Option<&[u8]>) -> Answer<C::Row> {
        let token = found.token().cloned();
        match found {
            Fetched::Absent => Answer { value: None, token, is_readable: true },
            Fetched::Load(_) | Fetched::Wait => Answer { value: None, token, is_readable: false },
            Fetched::Hit(value) | Fetched::Stale(value, _) => {
                let is_new = undecodable != Some(value.as_slice());
                let decoded = if is_new { self.codec.decode(value).ok() } else { None };
                Answer { is_readable: decoded.is_some(), value: decoded, token }
            }
        }
    }

    fn fill(&self, id: &[u8], token: &Token) -> Cmd {
        let mut fill = self.command("BF.FILL", id);
        fill.arg(token);
        fill
    }

    /// Returns the command that fills a row, or that there is none.
    fn fill_with(&self, id: &[u8], token: &Token, row: Option<&C::Row>, ttl_ms: u64) -> Result<Cmd, Error> {
        let mut fill = self.fill(id, token);
        match row {
            Some(row) => {
                let value = self.codec.encode(row).map_err(Error::Refused)?;
                let fresh_ms = jittered(ttl_ms).saturating_add(milliseconds(self.options.fail_safe));
                fill.arg("VALUE").arg(value).arg("PX").arg(fresh_ms);
            }
            None => _ = fill.arg("NONE").arg("PX").arg(jittered(milliseconds(self.options.absent_ttl))),
        }
        Ok(fill)
    }

    /// Returns the command that ends a lease, so that other callers may load.
    fn give_up(&self, id: &[u8], token: &Token) -> Cmd {
        let mut give_up = self.fill(id, token);
        give_up.arg("GIVEUP");
        give_up
    }
}

/// Shortens a time by up to a tenth, at random.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn jittered(ms: u64) -> u64 {
    let less = (ms as f64 * JITTER * fastrand::f64()) as u64;
    ms.saturating_sub(less).max(1)
}

/// Whether a command is new to an older module, or to the permissions of this client's user.
fn is_unavailable(reply: &Reply) -> bool {
    reply.as_ref().is_err_and(|error| is_unknown_command(error) || error.code() == Some("NOPERM"))
}

/// Returns an answer for each row of a command, which itself may have failed.
fn spread(reply: Reply, count: usize) -> Vec<Reply> {
    match reply {
        Ok(Value::Array(answers)) => answers.into_iter().map(super::split).collect(),
        other => vec![other; count],
    }
}
