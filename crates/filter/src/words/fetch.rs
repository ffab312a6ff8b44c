//! `BF.FETCH filter item cachekey [LEASE milliseconds] [STALE milliseconds] [WAIT milliseconds] [WHILE key] [UNLESS key]`, and
//! `BF.MFETCH filter [LEASE milliseconds] [STALE milliseconds] [WHILE key] [UNLESS key] ITEMS item cachekey [item cachekey ...]`

use super::options::EXPIRES_MAX;
use super::{Refusal, is, numbers, pairs, word};

/// The default lease, in milliseconds.
const LEASE_DEFAULT: u64 = 3000;
/// The longest lease, in milliseconds: an hour. A caller that dies keeps all others from loading for that long.
pub const LEASE_MAX: u64 = 60 * 60 * 1000;

/// The options of BF.FETCH. Times are in milliseconds; a key is given by the index of its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// For how long the caller is the only one that loads the value: 1 to [`LEASE_MAX`].
    pub lease: u64,
    /// A value that expires in less than this is refreshed; 0 for none.
    pub stale: u64,
    /// The time the caller waits for another client that loads the value; 0 for none.
    pub wait: u64,
    /// The reply is `absent` only while this key exists.
    pub while_key: Option<usize>,
    /// The hash of the cache keys that have a write in flight.
    pub unless_key: Option<usize>,
}

/// The index of the first option of BF.FETCH.
const FETCH_OPTIONS: usize = 4;

/// Parses the words. The options come in any order, each at most once.
///
/// # Errors
/// [`Refusal::Arity`]; [`Refusal::No`], [`Refusal::Bad`] for a missing or invalid value, [`Refusal::Syntax`] for a repeated option or another word.
pub fn parse<W: AsRef<[u8]>>(words: &[W]) -> Result<Fetch, Refusal> {
    word(words, FETCH_OPTIONS - 1)?;
    let mut options = Options::default();
    let mut index = FETCH_OPTIONS;
    while index < words.len() {
        if !options.read(words, index)? {
            return Err(Refusal::Syntax);
        }
        index += 2;
    }
    Ok(options.fetch())
}

/// The index of the first option of BF.MFETCH.
const MFETCH_OPTIONS: usize = 2;

/// Parses the words of BF.MFETCH. Returns the options, and the index of the first item.
///
/// # Errors
/// As [`parse`]; [`Refusal::Arity`] also without a pair or with half of one, [`Refusal::Syntax`] also for WAIT.
pub fn parse_many<W: AsRef<[u8]>>(words: &[W]) -> Result<(Fetch, usize), Refusal> {
    let mut options = Options::default();
    let mut index = MFETCH_OPTIONS;
    while !is(word(words, index)?, "ITEMS") {
        if is(word(words, index)?, "WAIT") || !options.read(words, index)? {
            return Err(Refusal::Syntax);
        }
        index += 2;
    }
    Ok((options.fetch(), pairs::first_item(words, index)?))
}

/// The options that were read so far.
#[derive(Default)]
struct Options {
    lease: Option<u64>,
    stale: Option<u64>,
    wait: Option<u64>,
    while_key: Option<usize>,
    unless_key: Option<usize>,
}

impl Options {
    /// Reads the option at `index` and its value. Returns false if the word is not an option.
    fn read<W: AsRef<[u8]>>(&mut self, words: &[W], index: usize) -> Result<bool, Refusal> {
        let option = word(words, index)?;
        let (time, name, range) = match () {
            () if is(option, "LEASE") => (&mut self.lease, "lease", 1..=LEASE_MAX),
            () if is(option, "STALE") => (&mut self.stale, "stale", 0..=EXPIRES_MAX),
            () if is(option, "WAIT") => (&mut self.wait, "wait", 0..=EXPIRES_MAX),
            () if is(option, "WHILE") => return set_key(&mut self.while_key, words, index + 1),
            () if is(option, "UNLESS") => return set_key(&mut self.unless_key, words, index + 1),
            () => return Ok(false),
        };
        let value = word(words, index + 1).map_err(|_| Refusal::No(name))?;
        let value = numbers::unsigned(value).filter(|value| range.contains(value));
        set(time, value.ok_or(Refusal::Bad(name))?)
    }

    fn fetch(self) -> Fetch {
        Fetch {
            lease: self.lease.unwrap_or(LEASE_DEFAULT),
            stale: self.stale.unwrap_or(0),
            wait: self.wait.unwrap_or(0),
            while_key: self.while_key,
            unless_key: self.unless_key,
        }
    }
}

/// Stores the index of a key, which must be a word of the command.
fn set_key<W: AsRef<[u8]>>(place: &mut Option<usize>, words: &[W], index: usize) -> Result<bool, Refusal> {
    word(words, index).map_err(|_| Refusal::No("key"))?;
    set(place, index)
}

/// Stores the value of an option that was not given before.
fn set<T>(place: &mut Option<T>, value: T) -> Result<bool, Refusal> {
    if place.replace(value).is_some() { Err(Refusal::Syntax) } else { Ok(true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetch(options: &str) -> Result<Fetch, Refusal> {
        let words: Vec<&str> = ["BF.FETCH", "f", "item", "c"].into_iter().chain(options.split_whitespace()).collect();
        parse(&words)
    }

    #[test]
    fn options_come_in_any_order() {
        let none = Fetch { lease: 3000, stale: 0, wait: 0, while_key: None, unless_key: None };
        assert_eq!(fetch(""), Ok(none));
        assert_eq!(fetch("wait 5 LEASE 1 Stale 7"), Ok(Fetch { lease: 1, stale: 7, wait: 5, ..none }));
        assert_eq!(fetch("STALE 0 WAIT 0"), Ok(none));
        let keys = Fetch { wait: 5, while_key: Some(9), unless_key: Some(5), ..none };
        assert_eq!(fetch("unless WHILE WAIT 5 while UNLESS"), Ok(keys), "a key may be named like an option");
    }

    #[test]
    fn many_items_follow_the_options() {
        let many = |rest: &str| {
            let words: Vec<&str> = ["BF.MFETCH", "f"].into_iter().chain(rest.split_whitespace()).collect();
            parse_many(&words)
        };
        let none = Fetch { lease: 3000, stale: 0, wait: 0, while_key: None, unless_key: None };
        assert_eq!(many("items 1 a"), Ok((none, 3)));
        let options = Fetch { stale: 7, while_key: Some(3), unless_key: Some(7), ..none };
        assert_eq!(many("WHILE ITEMS STALE 7 UNLESS ITEMS ITEMS 1 a 2 b"), Ok((options, 9)));
        for words in ["", "LEASE 5", "ITEMS", "ITEMS 1", "ITEMS 1 a 2"] {
            assert_eq!(many(words), Err(Refusal::Arity), "{words}");
        }
        for words in ["WAIT 5 ITEMS 1 a", "1 a", "LEASE 5 LEASE 5 ITEMS 1 a"] {
            assert_eq!(many(words), Err(Refusal::Syntax), "{words}");
        }
        assert_eq!(many("LEASE ITEMS 1 a"), Err(Refusal::Bad("lease")));
        assert_eq!(many("UNLESS"), Err(Refusal::No("key")));
    }

    #[test]
    fn unknown_and_repeated_options_and_invalid_values_are_refused() {
        assert_eq!(fetch("NOW"), Err(Refusal::Syntax));
        assert_eq!(parse(&["BF.FETCH", "f", "item"]), Err(Refusal::Arity));
        assert_eq!(fetch("WAIT 5 WAIT 5"), Err(Refusal::Syntax));
        assert_eq!(fetch("WHILE a UNLESS b WHILE a"), Err(Refusal::Syntax));
        assert_eq!(fetch("UNLESS"), Err(Refusal::No("key")));
        assert_eq!(fetch("ITEMS"), Err(Refusal::Syntax));
        assert_eq!(fetch("LEASE"), Err(Refusal::No("lease")));
        assert_eq!(fetch("LEASE 0"), Err(Refusal::Bad("lease")));
        assert_eq!(fetch("LEASE 3600001"), Err(Refusal::Bad("lease")));
        assert_eq!(fetch("LEASE 3600000").map(|fetch| fetch.lease), Ok(LEASE_MAX));
        assert_eq!(fetch("WAIT -1"), Err(Refusal::Bad("wait")));
        assert_eq!(fetch("STALE 9223372036854775807"), Err(Refusal::Bad("stale")));
        assert_eq!(fetch("STALE x"), Err(Refusal::Bad("stale")));
    }
}
