//! `BF.FETCH filter item cachekey [LEASE milliseconds] [STALE milliseconds] [WAIT milliseconds]`

use super::creation::EXPIRES_MAX;
use super::{Refusal, is, numbers, word};

/// The default lease, in milliseconds.
const LEASE_DEFAULT: u64 = 3000;

/// The options of BF.FETCH, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The time the caller has to load the value, at least 1.
    pub lease: u64,
    /// A value that expires in less than this is refreshed; 0 for none.
    pub stale: u64,
    /// The time the caller waits for another client that loads the value; 0 for none.
    pub wait: u64,
}

/// Parses the words. The options come in any order, each at most once.
///
/// # Errors
/// [`Refusal::Arity`]; [`Refusal::No`], [`Refusal::Bad`] for a missing or invalid value, [`Refusal::Syntax`] for a repeated option or another word.
pub fn parse<W: AsRef<[u8]>>(words: &[W]) -> Result<Fetch, Refusal> {
    word(words, 3)?;
    let (mut lease, mut stale, mut wait) = (None, None, None);
    let mut words = words.iter().skip(4).map(AsRef::as_ref);
    while let Some(word) = words.next() {
        let (option, name, least) = match () {
            () if is(word, "LEASE") => (&mut lease, "lease", 1),
            () if is(word, "STALE") => (&mut stale, "stale", 0),
            () if is(word, "WAIT") => (&mut wait, "wait", 0),
            () => return Err(Refusal::Syntax),
        };
        if option.is_some() {
            return Err(Refusal::Syntax);
        }
        let time = numbers::unsigned(words.next().ok_or(Refusal::No(name))?);
        *option = Some(time.filter(|time| (least..=EXPIRES_MAX).contains(time)).ok_or(Refusal::Bad(name))?);
    }
    Ok(Fetch { lease: lease.unwrap_or(LEASE_DEFAULT), stale: stale.unwrap_or(0), wait: wait.unwrap_or(0) })
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
        assert_eq!(fetch(""), Ok(Fetch { lease: 3000, stale: 0, wait: 0 }));
        assert_eq!(fetch("wait 5 LEASE 1 Stale 7"), Ok(Fetch { lease: 1, stale: 7, wait: 5 }));
        assert_eq!(fetch("STALE 0 WAIT 0"), Ok(Fetch { lease: 3000, stale: 0, wait: 0 }));
    }

    #[test]
    fn unknown_and_repeated_options_and_invalid_values_are_refused() {
        assert_eq!(fetch("NOW"), Err(Refusal::Syntax));
        assert_eq!(parse(&["BF.FETCH", "f", "item"]), Err(Refusal::Arity));
        assert_eq!(fetch("WAIT 5 WAIT 5"), Err(Refusal::Syntax));
        assert_eq!(fetch("LEASE"), Err(Refusal::No("lease")));
        assert_eq!(fetch("LEASE 0"), Err(Refusal::Bad("lease")));
        assert_eq!(fetch("WAIT -1"), Err(Refusal::Bad("wait")));
        assert_eq!(fetch("STALE 9223372036854775807"), Err(Refusal::Bad("stale")));
        assert_eq!(fetch("STALE x"), Err(Refusal::Bad("stale")));
    }
}
