//! Extreme filters of RedisBloom's layout, created by the same commands on both sides: full and empty, with one layer and hundreds, with
//! high and low rates, and with layers of several chunks.

use std::fmt::Write;

use super::{Side, View, beside_redisbloom};
use testing::{Connection, array, integer, ok};

/// How each filter is created: the key, the arguments of BF.RESERVE after it, and the number of items to add.
const PLANS: [(&str, &str, usize); 18] = [
    ("empty", "0.01 100", 0),
    ("empty-fixed", "0.01 100 NONSCALING", 0),
    ("full-fixed", "0.01 50 NONSCALING", 200),
    ("one", "0.01 1", 1),
    ("one-fixed", "0.01 1 NONSCALING", 5),
    ("one-grown", "0.01 1", 2),
    ("layers-17", "0.01 1 EXPANSION 2", 75_000),
    ("layers-100", "0.01 1 EXPANSION 1", 300),
    ("factor-32768", "0.01 1 EXPANSION 32768", 500),
    ("tight", "1e-9 1000", 3000),
    ("tight-fixed", "1e-9 1 NONSCALING", 1),
    ("tightest", "1e-300 2", 2),
    ("tightest-fixed", "5e-324 3 NONSCALING", 3),
    ("loose", "0.25 1000", 3000),
    ("loose-fixed", "0.25 1 NONSCALING", 1),
    ("odd-rate", "0.012345678901234567 77 EXPANSION 3", 1000),
    ("two-chunks", "1e-9 3000000", 1000),
    ("two-chunks-empty", "0.01 14100000 NONSCALING", 0),
];

/// The items that are added to a filter.
fn items(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("extreme/{number}")).collect()
}

/// Creates all of them.
pub fn make_extremes(client: &mut Connection) {
    for (key, reserve, offered) in PLANS {
        assert_eq!(client.run(&format!("BF.RESERVE {key} {reserve}")), ok(), "{key}");
        for batch in items(offered).chunks(1000) {
            let words = ["BF.MADD", key].into_iter().chain(batch.iter().map(String::as_str));
            assert!(!client.call(&words.collect::<Vec<_>>()).is_error(), "{key}");
        }
    }
    let long = "x".repeat(1 << 20);
    assert_eq!(client.call(&["BF.MADD", "odd-items", "", "\0", "\r\n", &long]), array([1, 1, 1, 1].map(integer)));
    for (key, layers) in [("layers-17", 17), ("layers-100", 100), ("factor-32768", 2)] {
        let filters = client.run(&format!("BF.INFO {key} FILTERS")).elements()[0].number();
        assert!(filters >= layers, "{key}: {filters}");
    }
}

/// Returns the answers of every filter for added items, some from every layer, and for absent items.
pub fn answers(client: &mut Connection) -> String {
    let mut answers = String::new();
    for (key, _, offered) in PLANS {
        let mut asked: Vec<String> = items(offered).into_iter().step_by(1 + offered / 1000).collect();
        asked.extend((0..1000).map(|number| format!("stranger/{number}")));
        let found = client.batched(&[b"BF.MEXISTS", key.as_bytes()], &asked);
        let found: String = found.iter().map(|&found| if found { '1' } else { '0' }).collect();
        writeln!(answers, "{key} {found}").expect("a string takes it");
    }
    answers
}

/// Adds to created or loaded filters on both sides, and compares the replies. Some filters are full, some grow.
pub fn go_on_alike(one: &mut Connection, other: &mut Connection, occasion: &str) {
    let more = (0..150).map(|number| format!("more/{number}")).collect::<Vec<_>>().join(" ");
    for (key, ..) in PLANS.iter().filter(|(key, ..)| !key.starts_with("two-chunks")) {
        for line in ["BF.MADD k", "BF.ADD k at-last", "BF.CARD k", "BF.INFO k"] {
            let mut line = line.replacen('k', key, 1);
            if line.starts_with("BF.MADD") {
                line = format!("{line} {more}");
            }
            assert_eq!(one.run(&line), other.run(&line), "{occasion}: {line}");
        }
    }
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn both_make_the_same_filters_of_the_same_commands() {
    beside_redisbloom(|peer| {
        let [ours, theirs] = Side::BOTH.map(|side| peer.start(side, &[]));
        let (mut one, mut other) = (ours.connect(), theirs.connect());
        make_extremes(&mut one);
        make_extremes(&mut other);
        View::of(&mut one).assert_same(&View::of(&mut other), "as they were made");
        assert!(answers(&mut one) == answers(&mut other), "the answers differ");
        go_on_alike(&mut one, &mut other, "as they were made");
        View::of(&mut one).assert_same(&View::of(&mut other), "as they went on");
    });
}
