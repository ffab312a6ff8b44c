//! What RedisBloom's words and names set: those of `loadmodule`, and on Redis 8 those of CONFIG. They make the same filters.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::{Peer, Side, View, beside_redisbloom, beside_releases};
use testing::{Connection, Reply, Server, array, error, integer, ok};

/// The names of Redis 8's CONFIG, and some limits, came with the releases for it.
fn beside_redis_8(test: impl Fn(&Peer)) {
    beside_releases(|major| major >= 8, test);
}

/// Load-time words of every release.
const TAKEN: [&str; 5] = [
    "",
    "ERROR_RATE 0.002 INITIAL_SIZE 777",
    "initial_size 777 Error_Rate 2e-3",
    "ERROR_RATE 0.1 ERROR_RATE 0.2",
    "CF_MAX_EXPANSIONS 32 ERROR_RATE 0.002",
];

const REFUSED: [&str; 13] = [
    "ERROR_RATE",
    "INITIAL_SIZE 100 ERROR_RATE",
    "FROBNICATE 1",
    "EXPANSION 3",
    "ERROR_RATE x",
    "ERROR_RATE 0",
    "ERROR_RATE 1",
    "ERROR_RATE -0.5",
    "ERROR_RATE nan",
    "INITIAL_SIZE 0",
    "INITIAL_SIZE -5",
    "INITIAL_SIZE x",
    "INITIAL_SIZE 1.5",
];

/// Filters that nobody described, and those of which only a part was said.
pub fn make(client: &mut Connection) -> View {
    client.run("FLUSHALL");
    for line in [
        "BF.ADD added a",
        "BF.MADD madded a b c",
        "BF.INSERT inserted ITEMS a b",
        "BF.INSERT with-capacity CAPACITY 5 ITEMS a b",
        "BF.INSERT with-rate ERROR 0.1 ITEMS a b",
        "BF.INSERT with-expansion EXPANSION 3 ITEMS a b",
        "BF.RESERVE reserved 0.01 10",
    ] {
        assert!(!client.run(line).is_error(), "{line}");
    }
    View::of(client)
}

/// A server that was started with load-time words, where new filters are RedisBloom's.
fn start(peer: &Peer, side: Side, words: &str) -> Server {
    let server = peer.with(side).module_words(words).start();
    super::use_redisblooms_layout(&server, side);
    server
}

fn assert_taken_alike(peer: &Peer, words: &str) {
    let [ours, theirs] = Side::BOTH.map(|side| make(&mut start(peer, side, words).connect()));
    ours.assert_same(&theirs, words);
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn load_time_words_set_the_same() {
    beside_redisbloom(|peer| TAKEN.iter().for_each(|words| assert_taken_alike(peer, words)));
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn the_same_load_time_words_are_refused() {
    beside_redisbloom(|peer| {
        for words in REFUSED {
            for side in Side::BOTH {
                peer.with(side).module_words(words).refuses_to_start();
            }
        }
    });
}

/// The first releases with these limits are those for Redis 8.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn limits_of_load_time_words_are_those_of_8() {
    beside_redis_8(|peer| {
        assert_taken_alike(peer, "ERROR_RATE 0.5 INITIAL_SIZE 7");
        for side in Side::BOTH {
            peer.with(side).module_words("INITIAL_SIZE 1073741825").refuses_to_start();
        }
    });
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn words_for_other_filters_are_passed_over_by_ours_whatever_they_say() {
    beside_redisbloom(|peer| {
        for words in ["CF_INITIAL_SIZE 100", "CF_BUCKET_SIZE 2", "CF_MAX_ITERATIONS 3", "CF_MAX_EXPANSIONS x"] {
            peer.with(Side::Theirs).module_words(words).refuses_to_start();
            peer.with(Side::Ours).module_words(words).start();
        }
    });
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn config_set_sets_the_same() {
    beside_redis_8(|peer| {
        let [ours, theirs] = Side::BOTH.map(|side| peer.start(side, &[]));
        let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
        for values in [
            "bf-error-rate 0.02",
            "bf-error-rate 1e-7 bf-initial-size 3 bf-expansion-factor 4",
            "bf-initial-size 1",
            "bf-expansion-factor 32768",
            "bf-error-rate 0.7",
            "bf-error-rate 0.25 bf-expansion-factor 1",
            "bf-error-rate 1e-12 bf-initial-size 100",
        ] {
            let line = format!("CONFIG SET {values}");
            assert_eq!([ours.run(&line), theirs.run(&line)], [ok(), ok()], "{line}");
            make(&mut ours).assert_same(&make(&mut theirs), &line);
            for name in ["bf-error-rate", "bf-initial-size", "bf-expansion-factor"] {
                assert_eq!(value(&mut ours, name), value(&mut theirs, name), "{line}: {name}");
            }
        }
        for (name, value) in [("bf-error-rate", "0.01"), ("bf-initial-size", "1"), ("bf-expansion-factor", "2")] {
            let line = format!("CONFIG SET {name} {value} {name} {value}");
            assert_eq!(ours.run(&line), theirs.run(&line), "{line}");
        }
        // The most that is allowed. Filters of it would be large.
        for line in ["CONFIG SET bf-initial-size 1073741824", "CONFIG GET bf-initial-size", "CONFIG SET bf-none 1"] {
            assert_eq!(ours.run(line), theirs.run(line), "{line}");
        }
    });
}

/// By its number: RedisBloom gives the text that was set, ours the shortest of the number.
fn value(client: &mut Connection, name: &str) -> f64 {
    let reply = client.run(&format!("CONFIG GET {name}"));
    let [shown, value] = reply.elements() else { panic!("{name}: {reply:?}") };
    assert_eq!(shown.text(), name);
    value.text().parse().expect("a number")
}

/// Rates below that are of no use, whatever the layout. BF.RESERVE and BF.INSERT give RedisBloom's layout any rate.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn a_setting_below_1e_12_is_taken_as_1e_12() {
    beside_redis_8(|peer| {
        let [ours, theirs] = Side::BOTH.map(|side| peer.start(side, &[]));
        let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
        for client in [&mut ours, &mut theirs] {
            assert_eq!(client.run("CONFIG SET bf-error-rate 1e-20"), ok());
        }
        let rates = [value(&mut ours, "bf-error-rate"), value(&mut theirs, "bf-error-rate")];
        assert_eq!(rates, [1e-12, 1e-20]);
        let line = "BF.INSERT k ERROR 1e-20 ITEMS a";
        assert_eq!(ours.run(line), theirs.run(line));
        View::of(&mut ours).assert_same(&View::of(&mut theirs), line);
    });
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn the_same_values_are_refused() {
    beside_redis_8(|peer| {
        let [ours, theirs] = Side::BOTH.map(|side| peer.start(side, &[]));
        let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
        for value in ["0", "1", "-1", "inf", "2"] {
            let line = format!("CONFIG SET bf-error-rate {value}");
            assert_eq!(ours.run(&line), theirs.run(&line), "{line}");
        }
        // The server itself refuses whole numbers to us, in its own words.
        for (name, values) in [
            ("bf-initial-size", ["0", "-1", "1073741825", "9223372036854775807"].as_slice()),
            ("bf-expansion-factor", &["-1", "32769", "-9223372036854775808"]),
        ] {
            for value in values {
                let line = format!("CONFIG SET {name} {value}");
                assert!(ours.run(&line).is_error() && theirs.run(&line).is_error(), "{line}");
            }
        }
    });
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn names_of_settings_are_load_time_words_of_8() {
    beside_redis_8(|peer| {
        for words in
            ["bf-error-rate 0.02 bf-initial-size 200", "BF-Error-Rate 0.02 INITIAL_SIZE 9", "cf-max-expansions 32"]
        {
            assert_taken_alike(peer, words);
        }
        for words in ["bf-error-rate 7", "bf-error-rate x", "bf-initial-size 0", "bf-initial-size"] {
            for side in Side::BOTH {
                peer.with(side).module_words(words).refuses_to_start();
            }
        }
    });
}

/// A redis.conf that starts RedisBloom starts ours.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn settings_of_other_filters_do_not_stop_the_start() {
    beside_redis_8(|peer| {
        for side in Side::BOTH {
            let lines = ["cf-initial-size 2048", "cf-bucket-size 4", "cf-max-iterations 10", "cf-expansion-factor 2"];
            peer.start(side, &lines);
            peer.start(side, &["cf-max-expansions 16", "bf-error-rate 0.02"]);
        }
    });
}

/// Fixed filters have 2 with us, whatever is configured: it has no effect.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn the_configured_expansion_is_stored() {
    beside_redis_8(|peer| {
        let [ours, theirs] = Side::BOTH.map(|side| peer.start(side, &[]));
        let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
        for expansion in [2, 7] {
            for client in [&mut ours, &mut theirs] {
                client.run("FLUSHALL");
                assert_eq!(client.run(&format!("CONFIG SET bf-expansion-factor {expansion}")), ok());
            }
            for line in ["BF.ADD added a", "BF.RESERVE reserved 0.01 10", "BF.INSERT inserted EXPANSION 3 ITEMS a"] {
                assert_eq!(ours.run(line), theirs.run(line), "{line}");
            }
            View::of(&mut ours).assert_same(&View::of(&mut theirs), &format!("bf-expansion-factor {expansion}"));
        }
    });
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn commands_are_registered_alike() {
    beside_redis_8(|peer| {
        let [ours, theirs] = Side::BOTH.map(|side| peer.start(side, &[]));
        let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
        for name in
            ["reserve", "add", "madd", "insert", "exists", "mexists", "info", "card", "debug", "scandump", "loadchunk"]
        {
            let line = format!("COMMAND INFO bf.{name}");
            let [ours, theirs] = [ours.run(&line), theirs.run(&line)].map(|reply| reply.elements()[0].clone());
            // Name, arity, flags, first key, last key, step, categories.
            assert_eq!(ours.elements()[..7], theirs.elements()[..7], "{name}");
        }
        // Servers list their own modules, too, in any order.
        for client in [&mut ours, &mut theirs] {
            let modules = client.run("MODULE LIST");
            assert!(modules.elements().iter().any(|module| module.field("name").text() == "bf"), "{modules:?}");
        }
    });
}

// Where numbers and memory end: what is refused there, and in which words.

const NO_MEMORY: &str = "ERR Insufficient memory to create filter";
/// RedisBloom's answer for an item that wants a layer which cannot be made.
const NOT_INSERTED: &str = "ERR problem inserting into filter";

/// The same peer in a server that gets 3 GB at most. The folder has to stay as long as servers are started.
fn with_little_memory(peer: &Peer) -> (tempfile::TempDir, Peer) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let program = folder.path().join("redis-server");
    fs::write(&program, format!("#!/bin/sh\nulimit -v 3000000\nexec '{}' \"$@\"\n", peer.program.display()))
        .expect("a script");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it may be run");
    (folder, Peer { major: peer.major, library: peer.library.clone(), program })
}

/// Ours says what RedisBloom 8 says, and the bytes.
fn assert_says_bytes(reply: &Reply, line: &str) {
    let numbers = reply.error_text().strip_prefix(NO_MEMORY).and_then(|rest| rest.strip_prefix(": "));
    let asked = numbers.and_then(|numbers| numbers.split(' ').next()?.parse::<u64>().ok());
    assert!(asked.is_some_and(|asked| asked > 3_000_000_000), "{line}: {reply:?}");
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn want_of_memory_is_said_in_the_same_words_and_with_the_bytes() {
    beside_redisbloom(|peer| {
        let (_folder, peer) = with_little_memory(peer);
        let [ours, theirs] = Side::BOTH.map(|side| peer.start(side, &[]));
        let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
        let refusal = if peer.major < 8 { "ERR could not create filter" } else { NO_MEMORY };
        for line in ["BF.RESERVE k 1e-9 1073741824", "BF.INSERT k ERROR 1e-9 CAPACITY 1073741824 ITEMS a b"] {
            assert_says_bytes(&ours.run(line), line);
            assert_eq!(theirs.run(line), error(refusal), "{line}");
        }
        if peer.major >= 8 {
            for line in
                ["CONFIG SET bf-error-rate 0.000000001 bf-initial-size 1073741824", "CONFIG GET bf-initial-size"]
            {
                assert_eq!(ours.run(line), theirs.run(line), "{line}");
            }
            for line in ["BF.ADD k a", "BF.MADD k a b", "BF.INSERT k ITEMS a"] {
                assert_says_bytes(&ours.run(line), line);
                assert_eq!(theirs.run(line), error(refusal), "{line}");
            }
        }
        assert_eq!([ours.run("EXISTS k"), theirs.run("EXISTS k")], [integer(0), integer(0)]);
    });
}

/// Fills a filter whose next layer cannot be made.
fn fill(client: &mut Connection) {
    assert_eq!(client.run("BF.RESERVE full 1e-9 32768 EXPANSION 32768"), ok());
    let items: Vec<String> = (0..32768).map(|number| number.to_string()).collect();
    assert!(client.batched(&[b"BF.MADD", b"full"], &items).iter().all(|&new| new));
}

/// With us the reply ends at the first item that is not taken, as it does when a fixed filter is full, and says why.
/// RedisBloom goes on, and answers known items.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn a_layer_that_cannot_be_had_ends_the_reply() {
    beside_redisbloom(|peer| {
        let (_folder, peer) = with_little_memory(peer);
        let [ours, theirs] = Side::BOTH.map(|side| peer.start(side, &[]));
        let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
        fill(&mut ours);
        fill(&mut theirs);
        let reply = ours.run("BF.MADD full 1 new newer 2");
        assert_eq!(reply.elements().len(), 2);
        assert_eq!(reply.elements()[0], integer(0));
        assert_says_bytes(&reply.elements()[1], "BF.MADD");
        let refused = error(NOT_INSERTED);
        let expected = array([integer(0), refused.clone(), refused.clone(), integer(0)]);
        assert_eq!(theirs.run("BF.MADD full 1 new newer 2"), expected);
        assert_says_bytes(&ours.run("BF.ADD full new"), "BF.ADD");
        assert_eq!(theirs.run("BF.ADD full new"), refused);
        for line in ["BF.CARD full", "BF.INFO full", "BF.DEBUG full", "BF.MEXISTS full 1 new newer"] {
            assert_eq!(ours.run(line), theirs.run(line), "{line}");
        }
    });
}

/// Half of the least number that is not zero is zero.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn rates_come_to_an_end() {
    const TOO_LOW: &str = "ERR the error rate of the filter or of its next layer is too low";
    beside_redisbloom(|peer| {
        let [ours, theirs] = Side::BOTH.map(|side| peer.start(side, &[]));
        let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
        for line in ["BF.RESERVE fixed 5e-324 1 NONSCALING", "BF.RESERVE k 1e-323 1", "BF.ADD k a", "BF.ADD k a"] {
            assert_eq!(ours.run(line), theirs.run(line), "{line}");
        }
        let differs = |ours: Reply, theirs: Reply, expected: &str| {
            assert_eq!((ours, theirs), (error(TOO_LOW), error(expected)));
        };
        let line = "BF.RESERVE growing 5e-324 1";
        differs(ours.run(line), theirs.run(line), "ERR could not create filter");
        differs(ours.run("BF.ADD k b"), theirs.run("BF.ADD k b"), NOT_INSERTED);
    });
}

// Filters at the edges of what RedisBloom's layout can say, made by the same commands on either side: full and empty, one
// layer and hundreds, loose and tight, so large that a layer has several chunks.

/// How each filter is made: key, the words of BF.RESERVE after the key, and how many items are offered.
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

/// The items offered to a filter.
fn items(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("extreme/{number}")).collect()
}

/// Makes them all.
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

/// What every one of them answers for items that were offered, some from every layer, and for strangers.
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

/// Goes on with filters that were made, or loaded, and compares the replies. Some are full, some grow.
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
