//! The laws of the options of the guard's commands.

use std::num::NonZeroUsize;
use std::ops::Range;

use super::guard_arguments::{Fetch, Fill, LEASE};

/// The options of BF.FETCH without a value.
const FLAGS: [&str; 3] = ["REPLACE", "PEEK", "BACKOFF"];

/// Each time and key of BF.FETCH is the argument after its option, and a time without an option has its default.
pub fn of_fetch(fetch: Fetch, words: &[&[u8]], options: Range<usize>) {
    // The options by the indices of their names: a flag is one word, any other has a value.
    let (mut names, mut index) = (Vec::new(), options.start);
    while index < options.end {
        names.push(index);
        index += if FLAGS.iter().any(|flag| words[index].eq_ignore_ascii_case(flag.as_bytes())) { 1 } else { 2 };
    }
    assert!(index == options.end && names.len() <= 10, "{words:?}");
    let value_of = |name: &str| {
        let is_its = |index: &&usize| words[**index].eq_ignore_ascii_case(name.as_bytes());
        names.iter().find(is_its).map(|index| index + 1)
    };
    assert_eq!(
        [fetch.replaces, fetch.peeks, fetch.tells_failures],
        FLAGS.map(|flag| value_of(flag).is_some()),
        "{words:?}"
    );
    let keys = [fetch.while_key, fetch.unless_key].map(|key| key.map(NonZeroUsize::get));
    assert_eq!(keys, ["WHILE", "UNLESS"].map(value_of), "{words:?}");
    assert!(fetch.fresh == 0 || fetch.while_key.is_some(), "{words:?}");
    let times = [
        (fetch.lease, "LEASE", 3000),
        (fetch.stale, "STALE", 0),
        (fetch.wait, "WAIT", 0),
        (fetch.renew.into(), "RENEW", 0),
        (fetch.fresh, "FRESH", 0),
    ];
    for (time, name, default) in times {
        let given = value_of(name).map_or(default.to_string().into_bytes(), |index| words[index].to_vec());
        assert_eq!(time.to_string().into_bytes(), given, "{words:?}");
    }
    assert!(!fetch.peeks || !fetch.replaces && fetch.wait == 0, "{words:?}");
    assert!((LEASE.least..=LEASE.most).contains(&fetch.lease), "{words:?}");
}

/// One or more pairs follow ITEMS.
pub fn of_pairs(words: &[&[u8]], first: usize) {
    assert!(words[first - 1].eq_ignore_ascii_case(b"ITEMS"), "{words:?}");
    assert!(first < words.len() && (words.len() - first).is_multiple_of(2), "{words:?}");
}

/// The value of BF.FILL is one of its arguments, and a time to live is not zero.
pub fn of_fill(token: Option<u128>, fill: Fill, words: &[&[u8]]) {
    if let Some(token) = token {
        assert!(format!("{token:032x}").as_bytes().eq_ignore_ascii_case(words[4]), "{token:x}");
    }
    match fill {
        Fill::Value(index, lives) => assert!(index < words.len() && lives != Some(0), "{fill:?}"),
        Fill::None(lives) => assert!(lives > 0),
        Fill::GiveUp => assert!(words.len() == 6 || words.len() == 8 && words[7] == b"0"),
        Fill::BackOff(time) => assert!(words.len() == if time.is_some() { 8 } else { 7 } && time != Some(0)),
    }
}
