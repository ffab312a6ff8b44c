//! Parsers of the guard's commands. They are pure functions, like the filter crate's parsers. This file uses nothing else of the module, so
//! `fuzz` includes it, too. Its tests are the inputs in `crates/filter/tests/corpus/words.rs`.

use std::num::NonZeroUsize;

use bloomgate_filter::arguments::numbers::Range;
use bloomgate_filter::arguments::options::{EX, EXPIRES_MAX, PX};
use bloomgate_filter::arguments::{Refusal, is, word};

/// The default lease, in milliseconds.
const LEASE_DEFAULT: u64 = 3000;
// The ranges of times, in milliseconds.

/// At most an hour, because the lease of a dead caller blocks all loads until it expires.
pub static LEASE: Range = Range::new("LEASE", 1, 60 * 60 * 1000);
pub static STALE: Range = Range::new("STALE", 0, EXPIRES_MAX);
/// In percent.
pub static RENEW: Range = Range::new("RENEW", 0, 100_000);
/// At most an hour, as a lease.
pub static FRESH: Range = Range::new("FRESH", 1, 60 * 60 * 1000);
pub static WAIT: Range = Range::new("WAIT", 0, EXPIRES_MAX);
pub static BACKOFF: Range = Range::new("BACKOFF", 0, EXPIRES_MAX);

/// The options of BF.FETCH. Times are in milliseconds; a key is given by the index of its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The time during which only this caller loads the value, in [`LEASE`].
    pub lease: u64,
    /// Values that expire sooner than this are refreshed; 0 to refresh no value.
    pub stale: u64,
    /// How long the caller waits for another client's load; 0 not to wait.
    pub wait: u64,
    /// The percentage of the average load time by which values are renewed before `stale`; 0 for never.
    pub renew: u32,
    /// Without the key of WHILE, a value or a NONE is valid only if its lease was granted within this time; 0 for no limit.
    pub fresh: u64,
    /// The caller cannot use the cached value.
    pub replaces: bool,
    /// The caller requests no lease.
    pub peeks: bool,
    /// The reply to a back-off is `failed`.
    pub tells_failures: bool,
    /// The reply is `absent` only while this key exists.
    pub while_key: Option<NonZeroUsize>,
    /// The hash of the cache keys that have a write in flight.
    pub unless_key: Option<NonZeroUsize>,
}

/// Parses `BF.FETCH filter item cachekey [LEASE milliseconds] [STALE milliseconds] [RENEW percent] [REPLACE | PEEK] [BACKOFF] [WAIT
/// milliseconds] [WHILE key [FRESH milliseconds]] [UNLESS key]`. The options may have any order, each at most once.
pub fn fetch<W: AsRef<[u8]>>(words: &[W]) -> Result<Fetch, Refusal> {
    const FIRST_OPTION: usize = 4;
    word(words, FIRST_OPTION - 1)?;
    let (mut options, mut index) = (Options::new(), FIRST_OPTION);
    while index < words.len() {
        index = options.read(words, index)?;
    }
    options.fetch()
}

/// Parses `BF.MFETCH filter [LEASE milliseconds] [STALE milliseconds] [RENEW percent] [REPLACE | PEEK] [BACKOFF] [WHILE key
/// [FRESH milliseconds]] [UNLESS key] ITEMS item cachekey [item cachekey ...]`. Returns the options, and the index of the first item.
pub fn mfetch<W: AsRef<[u8]>>(words: &[W]) -> Result<(Fetch, usize), Refusal> {
    let (mut options, mut index) = (Options::new(), 2);
    while !is(word(words, index)?, "ITEMS") {
        if is(word(words, index)?, "WAIT") {
            return Err(Refusal::Syntax);
        }
        index = options.read(words, index)?;
    }
    Ok((options.fetch()?, first_item(words, index)?))
}

/// Parses `BF.MCHANGED filter ITEMS item cachekey [item cachekey ...]`. Returns the index of the first item.
pub fn mchanged<W: AsRef<[u8]>>(words: &[W]) -> Result<usize, Refusal> {
    first_item(words, 2)
}

/// Checks that ITEMS is at `index`, and that only pairs follow. Returns the index of the first item.
fn first_item<W: AsRef<[u8]>>(words: &[W], index: usize) -> Result<usize, Refusal> {
    if !is(word(words, index)?, "ITEMS") {
        return Err(Refusal::Syntax);
    }
    let items = words.len() - index - 1;
    if items > 0 && items.is_multiple_of(2) { Ok(index + 1) } else { Err(Refusal::Arity) }
}

/// The options that were read so far.
struct Options {
    fetch: Fetch,
    /// Bitmap of the given options, in the order of [`Given`].
    given: u16,
}

/// An option, by its bit in [`Options`].
#[derive(Clone, Copy)]
enum Given {
    Lease,
    Stale,
    Renew,
    Replace,
    Peek,
    BackOff,
    Wait,
    While,
    Fresh,
    Unless,
}

impl Options {
    const fn new() -> Self {
        let fetch = Fetch {
            lease: LEASE_DEFAULT,
            stale: 0,
            wait: 0,
            renew: 0,
            fresh: 0,
            replaces: false,
            peeks: false,
            tells_failures: false,
            while_key: None,
            unless_key: None,
        };
        Self { fetch, given: 0 }
    }

    /// Reads the option at `index`, with its value if it has one. Returns the index of the next one. Its first letter selects the names to
    /// compare, so that the number of options does not affect the cost.
    #[inline]
    fn read<W: AsRef<[u8]>>(&mut self, words: &[W], index: usize) -> Result<usize, Refusal> {
        let (option, value, fetch) = (word(words, index)?, index + 1, &mut self.fetch);
        let (given, next) = match option.first().map_or(0, u8::to_ascii_uppercase) {
            b'B' if is(option, "BACKOFF") => {
                fetch.tells_failures = true;
                (Given::BackOff, value)
            }
            b'F' if is(option, "FRESH") => {
                fetch.fresh = FRESH.parse_word(words, value)?;
                (Given::Fresh, value + 1)
            }
            b'L' if is(option, "LEASE") => {
                fetch.lease = LEASE.parse_word(words, value)?;
                (Given::Lease, value + 1)
            }
            b'P' if is(option, "PEEK") => {
                fetch.peeks = true;
                (Given::Peek, value)
            }
            b'R' if is(option, "RENEW") => {
                fetch.renew = u32::try_from(RENEW.parse_word(words, value)?).unwrap_or(u32::MAX);
                (Given::Renew, value + 1)
            }
            b'R' if is(option, "REPLACE") => {
                fetch.replaces = true;
                (Given::Replace, value)
            }
            b'S' if is(option, "STALE") => {
                fetch.stale = STALE.parse_word(words, value)?;
                (Given::Stale, value + 1)
            }
            b'U' if is(option, "UNLESS") => {
                fetch.unless_key = Some(key(words, value)?);
                (Given::Unless, value + 1)
            }
            b'W' if is(option, "WAIT") => {
                fetch.wait = WAIT.parse_word(words, value)?;
                (Given::Wait, value + 1)
            }
            b'W' if is(option, "WHILE") => {
                fetch.while_key = Some(key(words, value)?);
                (Given::While, value + 1)
            }
            _ => return Err(Refusal::Syntax),
        };
        if self.has(given) {
            return Err(Refusal::Syntax);
        }
        self.given |= 1 << given as u16;
        Ok(next)
    }

    const fn has(&self, given: Given) -> bool {
        self.given >> given as u16 & 1 == 1
    }

    /// Checks that the options fit together: FRESH needs WHILE, and PEEK excludes WAIT and REPLACE.
    const fn fetch(self) -> Result<Fetch, Refusal> {
        if self.has(Given::Fresh) && !self.has(Given::While) {
            return Err(Refusal::Needs("FRESH", "WHILE"));
        }
        if self.has(Given::Peek) && self.has(Given::Replace) {
            return Err(Refusal::Exclude("PEEK", "REPLACE"));
        }
        if self.has(Given::Peek) && self.has(Given::Wait) {
            return Err(Refusal::Exclude("PEEK", "WAIT"));
        }
        Ok(self.fetch)
    }
}

/// The index of a key, which must be a word of the command.
fn key<W: AsRef<[u8]>>(words: &[W], index: usize) -> Result<NonZeroUsize, Refusal> {
    word(words, index).map_err(|_| Refusal::No("key"))?;
    NonZeroUsize::new(index).ok_or(Refusal::Syntax)
}

/// The result of a lease holder's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// The index of the value among the words, and its time to live in milliseconds, if it expires.
    Value(usize, Option<u64>),
    /// The item has no row. The NONE lasts for this many milliseconds.
    None(u64),
    /// The load failed. Another client may load at once.
    GiveUp,
    /// The load failed. Another client may load after this many milliseconds or, for `None`, after a time that doubles with each failure.
    BackOff(Option<u64>),
}

/// Parses `BF.FILL filter item cachekey token VALUE value [EX seconds | PX milliseconds]`, `... token NONE (EX seconds | PX milliseconds)`
/// and `... token GIVEUP [BACKOFF [milliseconds]]`. A malformed token parses as `None`. The token is returned even if later words are
/// refused.
pub fn fill<W: AsRef<[u8]>>(words: &[W]) -> Result<(Option<u128>, Result<Fill, Refusal>), Refusal> {
    Ok((token(word(words, 4)?), result_of(words)))
}

/// Parses the words of BF.FILL after the token.
fn result_of<W: AsRef<[u8]>>(words: &[W]) -> Result<Fill, Refusal> {
    let what = word(words, 5)?;
    if is(what, "VALUE") {
        word(words, 6)?;
        Ok(Fill::Value(6, expires(words, 7)?))
    } else if is(what, "NONE") {
        Ok(Fill::None(expires(words, 6)?.ok_or(Refusal::No("expire time"))?))
    } else if is(what, "GIVEUP") {
        give_up(words, 6)
    } else {
        Err(Refusal::Syntax)
    }
}

/// Parses a token of 32 hexadecimal digits.
fn token(word: &[u8]) -> Option<u128> {
    let is_token = word.len() == 32 && word.iter().all(u8::is_ascii_hexdigit);
    std::str::from_utf8(word).ok().filter(|_| is_token).and_then(|digits| u128::from_str_radix(digits, 16).ok())
}

/// Parses a back-off, the words from `index` to the last. A time of 0 milliseconds means no back-off.
fn give_up<W: AsRef<[u8]>>(words: &[W], index: usize) -> Result<Fill, Refusal> {
    let Ok(option) = word(words, index) else { return Ok(Fill::GiveUp) };
    if !is(option, "BACKOFF") || words.len() > index + 2 {
        return Err(Refusal::Syntax);
    }
    let Ok(time) = word(words, index + 1) else { return Ok(Fill::BackOff(None)) };
    let time = BACKOFF.parse(time)?;
    Ok(if time > 0 { Fill::BackOff(Some(time)) } else { Fill::GiveUp })
}

/// Parses the time to live, the words from `index` to the last, and returns it in milliseconds.
fn expires<W: AsRef<[u8]>>(words: &[W], index: usize) -> Result<Option<u64>, Refusal> {
    let Ok(option) = word(words, index) else { return Ok(None) };
    let (range, unit) = match () {
        () if is(option, "EX") => (&EX, 1000),
        () if is(option, "PX") => (&PX, 1),
        () => return Err(Refusal::Syntax),
    };
    if words.len() > index + 2 {
        return Err(Refusal::Syntax);
    }
    Ok(Some(range.parse_word(words, index + 1)? * unit))
}
