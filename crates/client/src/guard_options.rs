//! The options of a guard.

use std::time::Duration;

use crate::Error;

/// About 32 years.
const LONGEST_MS: u64 = 1_000_000_000_000;

// The ranges of times in milliseconds, and of numbers: scripts/generate-options writes them.
const TIMES: &[(&str, u64, u64)] = &[
    ("ttl", 1, 1_000_000_000_000),
    ("absent_ttl", 1, 1_000_000_000_000),
    ("lease", 1, 3_600_000),
    ("wait", 0, 86_400_000),
    ("fail_safe", 0, 1_000_000_000_000),
    ("soft_timeout", 0, 86_400_000),
    ("fresh", 0, 3_600_000),
    ("patience", 0, 86_400_000),
    ("replicas_timeout", 1, 86_400_000),
];
const NUMBERS: &[(&str, f64, f64)] = &[("attempts", 1.0, 1000.0), ("beta", 0.0, 1000.0), ("replicas", 0.0, 1000.0)];

/// Checks an option that is a time.
pub(crate) fn in_range(name: &str, time: Duration) -> Result<(), Error> {
    let (_, least, most) = TIMES.iter().find(|(other, ..)| *other == name).copied().unwrap_or((name, 0, LONGEST_MS));
    if (Duration::from_millis(least)..=Duration::from_millis(most)).contains(&time) {
        return Ok(());
    }
    Err(Error::Refused(format!("{name} is from {least} ms to {most} ms, not {time:?}")))
}

/// Checks an option that is a number.
fn number_in_range(name: &str, number: f64) -> Result<(), Error> {
    match NUMBERS.iter().find(|(other, ..)| *other == name) {
        Some((_, least, most)) if !(*least..=*most).contains(&number) => {
            Err(Error::Refused(format!("{name} is from {least} to {most}, not {number}")))
        }
        _ => Ok(()),
    }
}

/// The options of a guard. docs/guard.md specifies the protocol.
///
/// ```
/// use std::time::Duration;
/// use bloomgate_client::GuardOptions;
///
/// let options = GuardOptions { ttl: Duration::from_secs(300), ..GuardOptions::default() };
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct GuardOptions {
    /// The time to live of a cached row, shortened by up to a tenth at random: 60 s. At most 10^9 s, like `absent_ttl` and
    /// `fail_safe`.
    pub ttl: Duration,
    /// The time to live of a cached absence: 10 s.
    pub absent_ttl: Duration,
    /// How long one caller may load a row while others wait: 3 s, from 1 ms to an hour.
    pub lease: Duration,
    /// How long a caller waits for another caller's load at a time: 3 s, at most a day. After `attempts` waits it queries the
    /// database; with 0 it queries at once.
    pub wait: Duration,
    /// How many times a caller waits: 3, at most 1000.
    pub attempts: u32,
    /// How long a value stays cached after its `ttl`. One caller refreshes such a value; in the meantime, others get the old value, and
    /// every caller gets it if the load fails. The row is then not loaded again until a back-off ends; callers without an old value get
    /// [`Error::LoadFailed`].
    pub fail_safe: Duration,
    /// Scales how early values are renewed before they expire, up to 1000; 1 suits most uses, 0 turns early renewal off. Values
    /// are renewed earlier if loads take longer.
    pub beta: f64,
    /// How long a confirmation is repeated: 30 s, at most a day.
    pub patience: Duration,
    /// The prefix of cache keys, by default `{filter}:`.
    pub prefix: Option<Vec<u8>>,
    /// Filters that are being filled, to which each id is announced first.
    pub announce_to: Vec<Vec<u8>>,
    /// How many replicas must acknowledge a change (WAIT), and whether the append-only file must contain it (WAITAOF).
    pub durability: Durability,
    /// For a table that is followed by `bloomgate follow` (docs/feed.md): writers need no guard, and the guard's calls for
    /// writers do nothing. `announce_to` and `durability` are refused.
    pub feed: bool,
    /// Limits the age of an answer while the follower's heartbeat is missing, from `lease` to an hour: each row is then read from the
    /// database once in this time. With zero, the default, there is no limit. It needs `feed`.
    pub fresh: Duration,
}

impl Default for GuardOptions {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(60),
            absent_ttl: Duration::from_secs(10),
            lease: Duration::from_secs(3),
            wait: Duration::from_secs(3),
            attempts: 3,
            fail_safe: Duration::ZERO,
            beta: 1.0,
            patience: Duration::from_secs(30),
            prefix: None,
            announce_to: Vec::new(),
            durability: Durability::default(),
            feed: false,
            fresh: Duration::ZERO,
        }
    }
}

impl GuardOptions {
    /// Checks the options, for a cluster or for one server.
    pub(crate) fn check(&self, is_cluster: bool) -> Result<(), Error> {
        in_range("ttl", self.ttl)?;
        in_range("absent_ttl", self.absent_ttl)?;
        in_range("lease", self.lease)?;
        in_range("wait", self.wait)?;
        in_range("fail_safe", self.fail_safe)?;
        in_range("patience", self.patience)?;
        number_in_range("attempts", self.attempts.into())?;
        number_in_range("beta", self.beta)?;
        in_range("fresh", self.fresh)?;
        if !self.fresh.is_zero() && (!self.feed || self.fresh < self.lease) {
            return Err(Error::Refused("fresh needs a feed, and must be at least the lease".to_owned()));
        }
        if self.feed && (!self.announce_to.is_empty() || self.durability.is_asked()) {
            let text = "with a feed the follower announces changes: announce_to and durability have no effect";
            return Err(Error::Refused(text.to_owned()));
        }
        self.durability.check(is_cluster)
    }

    /// Returns `beta` in percent.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in its range")]
    pub(crate) fn renew_percent(&self) -> u64 {
        (self.beta * 100.0).round() as u64
    }

    /// Checks a time to live, which must be finite: it limits how long readers get an old row after a writer has died.
    pub(crate) fn ttl_ms(&self, of_call: Option<Duration>) -> Result<u64, Error> {
        let ttl = of_call.unwrap_or(self.ttl);
        in_range("ttl", ttl)?;
        Ok(milliseconds(ttl))
    }
}

/// The acknowledgements that a write waits for. Not for a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durability {
    /// How many replicas must acknowledge the write.
    pub replicas: u32,
    /// Whether the append-only files on disk, including the primary's, must contain it.
    pub aof: bool,
    /// How long to wait for the acknowledgements: 1 s.
    pub timeout: Duration,
}

impl Default for Durability {
    fn default() -> Self {
        Self { replicas: 0, aof: false, timeout: Duration::from_secs(1) }
    }
}

impl Durability {
    /// Whether a write waits for acknowledgements.
    pub(crate) fn is_asked(&self) -> bool {
        self.aof || self.replicas > 0
    }

    /// Checks the options, for a cluster or for one server.
    pub(crate) fn check(&self, is_cluster: bool) -> Result<(), Error> {
        in_range("replicas_timeout", self.timeout)?;
        number_in_range("replicas", self.replicas.into())?;
        if is_cluster && self.is_asked() {
            return Err(Error::Refused("replicas and aof need a client of a single server".to_owned()));
        }
        Ok(())
    }
}

/// Returns whole milliseconds.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
