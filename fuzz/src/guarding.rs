//! The laws of the options of the guard's commands.

use std::ops::Range;

use super::guard_arguments::{Fetch, Fill, LEASE};

/// Each time and key of BF.FETCH is the argument after its option, and a time without an option has its default.
pub fn of_fetch(fetch: Fetch, words: &[&[u8]], options: Range<usize>) {
    let pairs = words[options.clone()].chunks_exact(2);
    assert!(pairs.remainder().is_empty() && pairs.len() <= 5, "{words:?}");
    let value_of = |name: &str| {
        let pair = pairs.clone().position(|pair| pair[0].eq_ignore_ascii_case(name.as_bytes()));
        pair.map(|pair| options.start + 2 * pair + 1)
    };
    assert_eq!([fetch.while_key, fetch.unless_key], ["WHILE", "UNLESS"].map(value_of), "{words:?}");
    for (time, name, default) in [(fetch.lease, "LEASE", 3000), (fetch.stale, "STALE", 0), (fetch.wait, "WAIT", 0)] {
        let given = value_of(name).map_or(default.to_string().into_bytes(), |index| words[index].to_vec());
        assert_eq!(time.to_string().into_bytes(), given, "{words:?}");
    }
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
        Fill::GiveUp(time) => assert!(words.len() == 6 && time == 0 || words.len() == 8),
    }
}
