//! What RedisBloom's words and names set: those of `loadmodule`, and on Redis 8 those of CONFIG. They make the same filters.

use super::view::View;
use super::{Peer, Side, beside_redisbloom, beside_releases};
use testing::{Connection, Server, ok};

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
fn make(client: &mut Connection) -> View {
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
    beside_releases(
        |major| major >= 8,
        |peer| {
            assert_taken_alike(peer, "ERROR_RATE 0.5 INITIAL_SIZE 7");
            for side in Side::BOTH {
                peer.with(side).module_words("INITIAL_SIZE 1073741825").refuses_to_start();
            }
        },
    );
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
    beside_releases(
        |major| major >= 8,
        |peer| {
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
            for line in ["CONFIG SET bf-initial-size 1073741824", "CONFIG GET bf-initial-size", "CONFIG SET bf-none 1"]
            {
                assert_eq!(ours.run(line), theirs.run(line), "{line}");
            }
        },
    );
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
    beside_releases(
        |major| major >= 8,
        |peer| {
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
        },
    );
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn the_same_values_are_refused() {
    beside_releases(
        |major| major >= 8,
        |peer| {
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
        },
    );
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn names_of_settings_are_load_time_words_of_8() {
    beside_releases(
        |major| major >= 8,
        |peer| {
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
        },
    );
}

/// A redis.conf that starts RedisBloom starts ours.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn settings_of_other_filters_do_not_stop_the_start() {
    beside_releases(
        |major| major >= 8,
        |peer| {
            for side in Side::BOTH {
                let lines =
                    ["cf-initial-size 2048", "cf-bucket-size 4", "cf-max-iterations 10", "cf-expansion-factor 2"];
                peer.start(side, &lines);
                peer.start(side, &["cf-max-expansions 16", "bf-error-rate 0.02"]);
            }
        },
    );
}

/// Fixed filters have 2 with us, whatever is configured: it has no effect.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn the_configured_expansion_is_stored() {
    beside_releases(
        |major| major >= 8,
        |peer| {
            let [ours, theirs] = Side::BOTH.map(|side| peer.start(side, &[]));
            let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
            for expansion in [2, 7] {
                for client in [&mut ours, &mut theirs] {
                    client.run("FLUSHALL");
                    assert_eq!(client.run(&format!("CONFIG SET bf-expansion-factor {expansion}")), ok());
                }
                for line in ["BF.ADD added a", "BF.RESERVE reserved 0.01 10", "BF.INSERT inserted EXPANSION 3 ITEMS a"]
                {
                    assert_eq!(ours.run(line), theirs.run(line), "{line}");
                }
                View::of(&mut ours).assert_same(&View::of(&mut theirs), &format!("bf-expansion-factor {expansion}"));
            }
        },
    );
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn commands_are_registered_alike() {
    beside_releases(
        |major| major >= 8,
        |peer| {
            let [ours, theirs] = Side::BOTH.map(|side| peer.start(side, &[]));
            let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
            for name in [
                "reserve",
                "add",
                "madd",
                "insert",
                "exists",
                "mexists",
                "info",
                "card",
                "debug",
                "scandump",
                "loadchunk",
            ] {
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
        },
    );
}
