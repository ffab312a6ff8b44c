//! BF.RESERVE: every word it takes, every text it answers, and the order in which it looks at them.

use std::collections::BTreeSet;

use testing::{Reply, Server, Stop, array, error, integer, nil, ok, on_every_server};

const NO_RATE: &str = "ERR bad error rate";
const RATE_RANGE: &str = "ERR error rate must be in the range (0.000000, 1.000000)";
const NO_CAPACITY: &str = "ERR bad capacity";
const CAPACITY_RANGE: &str = "ERR capacity must be in the range [1, 1073741824]";
const NO_EXPANSION: &str = "ERR bad expansion";
const EXPANSION_RANGE: &str = "ERR expansion must be in the range [0, 32768]";

#[test]
fn a_filter_has_what_was_asked_for() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            for (line, capacity, expansion) in [
                ("BF.RESERVE plain 0.01 100", 100, Some(2)),
                ("bf.reserve lower 0.01 100 expansion 4 seed 7", 100, Some(4)),
                ("Bf.Reserve mixed 1e-3 1000 Seed 0 Expansion 1", 1000, Some(1)),
                ("BF.RESERVE fixed 0.001 5000 NONSCALING", 5000, None),
                ("BF.RESERVE zero 0.001 5001 EXPANSION 0", 5001, None),
                ("BF.RESERVE both 0.001 5002 EXPANSION 0 NONSCALING", 5002, None),
                ("BF.RESERVE order 0.001 5003 NONSCALING EXPANSION 0", 5003, None),
                ("BF.RESERVE largest 0.2 10 EXPANSION 32768 SEED 4294967295", 10, Some(32768)),
                ("BF.RESERVE one 0.01 1", 1, Some(2)),
            ] {
                assert_eq!(client.run(line), ok(), "{line}");
                let key = line.split(' ').nth(1).unwrap();
                let info = client.run(&format!("BF.INFO {key}"));
                assert_eq!(info.field("Capacity"), &integer(capacity), "{line}");
                assert_eq!(info.field("Number of filters"), &integer(1), "{line}");
                assert_eq!(info.field("Number of items inserted"), &integer(0), "{line}");
                assert_eq!(info.field("Expansion rate"), &expansion.map_or(nil(protocol), integer), "{line}");
            }
        }
    });
}

#[test]
fn error_rates_are_checked() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for rate in ["abc", "", "nan", "NaN", "-nan", "0.01x", "0,01", "--1"] {
            assert_eq!(client.call(&["BF.RESERVE", "k", rate, "100"]), error(NO_RATE), "{rate:?}");
        }
        for rate in ["0", "1", "0.0", "1.0", "-0.5", "2", "inf", "-inf", "1.0000001", "1e9"] {
            assert_eq!(client.call(&["BF.RESERVE", "k", rate, "100"]), error(RATE_RANGE), "{rate:?}");
        }
        assert_eq!(client.run("EXISTS k"), integer(0));
        for (number, rate) in ["0.25", "0.3", "0.999999", "1e-12", "1e-13", "1e-300", ".01", "1E-2"].iter().enumerate()
        {
            assert_eq!(client.run(&format!("BF.RESERVE k{number} {rate} 100")), ok(), "{rate:?}");
        }
    });
}

#[test]
fn rates_beyond_the_useful_ones_are_clamped_with_a_warning() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let mut reserve = |key: &str, rate: &str| {
            let before = server.log().lines().count();
            assert_eq!(client.run(&format!("BF.RESERVE {key} {rate} 100 SEED 9")), ok());
            client.run(&format!("BF.MADD {key} a b c"));
            let log = server.log();
            let warned = log.lines().skip(before).any(|line| line.contains(" # <bf> "));
            (client.run(&format!("DEBUG DIGEST-VALUE {key}")), warned)
        };
        let (quarter, warned) = reserve("quarter", "0.25");
        assert!(!warned, "0.25 is as asked");
        assert_eq!(reserve("half", "0.5"), (quarter.clone(), true));
        assert_eq!(reserve("nearly-one", "0.99"), (quarter, true));

        let (smallest, warned) = reserve("smallest", "1e-12");
        assert!(!warned, "1e-12 is as asked");
        assert_eq!(reserve("smaller", "1e-13"), (smallest.clone(), true));
        assert_eq!(reserve("tiny", "1e-20"), (smallest.clone(), true));

        let before = server.log().lines().count();
        client.run("BF.INSERT inserted ERROR 1e-20 CAPACITY 100 SEED 9 ITEMS a b c");
        assert_eq!(client.run("DEBUG DIGEST-VALUE inserted"), smallest);
        assert!(server.log().lines().skip(before).any(|line| line.contains(" # <bf> ")), "BF.INSERT warns too");
    });
}

#[test]
fn capacities_are_checked() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for capacity in ["abc", "", "+5", "007", " 5", "5 ", "5.0", "1e3", "0x10", "--5", "-", "99999999999999999999"] {
            assert_eq!(client.call(&["BF.RESERVE", "k", "0.01", capacity]), error(NO_CAPACITY), "{capacity:?}");
        }
        for capacity in ["0", "-1", "-9223372036854775808"] {
            assert_eq!(client.call(&["BF.RESERVE", "k", "0.01", capacity]), error(CAPACITY_RANGE), "{capacity:?}");
        }
        assert_eq!(client.run("EXISTS k"), integer(0));
        // RedisBloom's limit is not ours.
        assert_eq!(client.run("BF.RESERVE k 0.25 1073741825 NONSCALING"), ok());
        assert_eq!(client.run("BF.INFO k CAPACITY"), array([integer(1_073_741_825)]));
    });
}

/// The refusal of a filter whose size does not fit 63 bits.
pub const NO_MACHINE: &str = "ERR Insufficient memory to create filter: no machine has that much memory";

#[test]
fn a_filter_that_no_machine_can_hold_is_refused() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for layout in ["", " WINDOW 60", " ROLLING", " COUNTING"] {
            for line in ["BF.RESERVE k 0.01 10000000000000000", "BF.INSERT k CAPACITY 10000000000000000 ERROR 0.01"] {
                let line = format!("{line}{layout}{}", if line.contains("INSERT") { " ITEMS x" } else { "" });
                let (asked, available) = sizes_of_a_refusal(&client.run(&line));
                assert!(asked > available && asked > 1 << 50, "{line}: {asked} bytes do not fit in {available}");
            }
            // A ring begins with one bucket.
            let rate = if matches!(layout, " WINDOW 60" | " ROLLING") { "1e-9" } else { "0.000001" };
            for line in ["BF.RESERVE k", "BF.PLAN"].map(|command| format!("{command} {rate} 9223372036854775807")) {
                assert_eq!(client.run(&format!("{line}{layout}")), error(NO_MACHINE), "{line}{layout}");
            }
        }
        for line in ["BF.INSERT k CAPACITY 9223372036854775807 ITEMS x", "BF.RESERVE k 1e-12 9223372036854775807"] {
            assert_eq!(client.run(line), error(NO_MACHINE), "{line}");
        }
        // 2^63 is too large to be a capacity or too large to be held, whichever comes first.
        let reply = client.run("BF.RESERVE k 0.01 9223372036854775808");
        assert!(reply == error(NO_CAPACITY) || reply == error(NO_MACHINE), "{reply:?}");
        assert_eq!(client.run("EXISTS k"), integer(0));
        assert_eq!(client.run("BF.RESERVE k 0.01 100"), ok());
    });
}

#[test]
fn options_are_checked() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for (options, text) in [
            ("EXPANSION", "ERR no expansion"),
            ("NONSCALING EXPANSION", "ERR no expansion"),
            ("EXPANSION x", NO_EXPANSION),
            ("EXPANSION ", NO_EXPANSION),
            ("EXPANSION +2", NO_EXPANSION),
            ("EXPANSION 02", NO_EXPANSION),
            ("EXPANSION 2.0", NO_EXPANSION),
            ("EXPANSION -1", EXPANSION_RANGE),
            ("EXPANSION 32769", EXPANSION_RANGE),
            ("EXPANSION 9223372036854775807", EXPANSION_RANGE),
            ("EXPANSION 2 NONSCALING", "Nonscaling filters cannot expand"),
            ("NONSCALING EXPANSION 1", "Nonscaling filters cannot expand"),
            ("SEED", "ERR no seed"),
            ("EXPANSION 2 SEED", "ERR no seed"),
            ("SEED x", "ERR bad seed"),
            ("SEED ", "ERR bad seed"),
            ("SEED -1", "ERR bad seed"),
            ("SEED +1", "ERR bad seed"),
            ("SEED 01", "ERR bad seed"),
            ("SEED 1.0", "ERR bad seed"),
            ("SEED 4294967296", "ERR bad seed"),
            ("FROBNICATE", "ERR syntax error"),
            ("NONSCALINGX", "ERR syntax error"),
            ("NON", "ERR syntax error"),
            ("EXP 2", "ERR syntax error"),
            ("NOCREATE", "ERR syntax error"),
            ("", "ERR syntax error"),
            ("EXPANSION 2 3", "ERR syntax error"),
        ] {
            let line = format!("BF.RESERVE k 0.01 100 {options}");
            assert_eq!(client.run(&line), error(text), "{line:?}");
        }
        assert_eq!(client.run("EXISTS k"), integer(0));
        // A word that was given twice: the last one counts.
        assert_eq!(client.run("BF.RESERVE k 0.01 100 EXPANSION 3 EXPANSION 5"), ok());
        assert_eq!(client.run("BF.INFO k EXPANSION"), array([integer(5)]));
    });
}

#[test]
fn checks_come_in_order_and_before_the_key() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("SET string x");
        client.run("BF.RESERVE filter 0.01 100");
        for key in ["string", "filter", "missing"] {
            for (words, text) in [
                ("x x EXPANSION x", NO_RATE),
                ("2 x EXPANSION x", RATE_RANGE),
                ("0.01 x EXPANSION x", NO_CAPACITY),
                ("0.01 0 EXPANSION x", CAPACITY_RANGE),
                ("0.01 100 EXPANSION x", NO_EXPANSION),
                ("0.01 100 EXPANSION -1", EXPANSION_RANGE),
                ("0.01 100 EXPANSION 2 NONSCALING", "Nonscaling filters cannot expand"),
                ("0.01 100 SEED x", "ERR bad seed"),
                ("0.01 100 FROBNICATE", "ERR syntax error"),
            ] {
                let line = format!("BF.RESERVE {key} {words}");
                assert_eq!(client.run(&line), error(text), "{line:?}");
            }
        }
        // Then the key, and only then the memory.
        for capacity in ["100", "1000000000000000000"] {
            assert_eq!(client.run(&format!("BF.RESERVE filter 0.01 {capacity}")), error("ERR item exists"));
            assert_eq!(
                client.run(&format!("BF.RESERVE string 0.01 {capacity}")),
                error("WRONGTYPE Operation against a key holding the wrong kind of value")
            );
        }
        assert_eq!(client.run("BF.CARD filter"), integer(0));
        assert_eq!(client.run("GET string").text(), "x");
    });
}

#[test]
fn the_number_of_words_is_bounded() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for line in [
            "BF.RESERVE",
            "BF.RESERVE k",
            "BF.RESERVE k 0.01",
            "BF.RESERVE k 0.01 100 NONSCALING EXPANSION 0 SEED 1 LAYOUT native NONSCALING",
            "BF.RESERVE k x x x x x x x x x x",
        ] {
            assert_eq!(client.run(line), error("ERR wrong number of arguments for 'bf.reserve' command"), "{line:?}");
        }
        // Eleven words are the most that can mean something, and those that RedisBloom has not.
        assert_eq!(client.run("BF.RESERVE k 0.01 100 NONSCALING EXPANSION 0 SEED 1 LAYOUT native"), ok());
        let all = "NONSCALING EXPANSION 0 SEED 1 LAYOUT native HASH murmur3 WINDOW 60 BUCKETS 4 SLIDING EX 60";
        assert_eq!(client.run(&format!("BF.RESERVE all 0.01 100 {all}")), ok());
    });
}

#[test]
fn the_seed_decides_which_bits_are_set() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let mut digest = |key: &str, options: &str| {
            assert_eq!(client.run(&format!("BF.RESERVE {key} 0.01 100{options}")), ok());
            client.run(&format!("BF.MADD {key} a b c"));
            client.run(&format!("DEBUG DIGEST-VALUE {key}"))
        };
        assert_eq!(digest("a", " SEED 7"), digest("b", " SEED 7"));
        assert_ne!(digest("c", " SEED 8"), digest("d", " SEED 7"));
    });
}

#[test]
fn every_filter_has_a_seed_of_its_own() {
    on_every_server(|program| {
        let mut server = Server::start(program);
        let mut digests = BTreeSet::new();
        for _ in 0..2 {
            let mut client = server.connect();
            for number in 0..50 {
                for hash in ["murmur3", "siphash"] {
                    let key = format!("{hash}-{number}");
                    assert_eq!(client.run(&format!("BF.RESERVE {key} 0.01 100 HASH {hash}")), ok());
                    digests.insert(client.run(&format!("DEBUG DIGEST-VALUE {key}")).elements()[0].text());
                }
            }
            // The seeds do not repeat after a restart.
            server.restart(Stop::Kill);
        }
        assert_eq!(digests.len(), 200);
    });
}

/// The two sizes in `ERR Insufficient memory to create filter: N bytes asked, M available`.
pub fn sizes_of_a_refusal(reply: &Reply) -> (u128, u128) {
    let text = reply.error_text();
    let sizes = text
        .strip_prefix("ERR Insufficient memory to create filter: ")
        .and_then(|rest| rest.strip_suffix(" available"))
        .and_then(|rest| rest.split_once(" bytes asked, "))
        .and_then(|(asked, available)| Some((asked.parse().ok()?, available.parse().ok()?)));
    sizes.unwrap_or_else(|| panic!("not a refusal for memory: {text:?}"))
}
