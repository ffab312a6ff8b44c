//! BF.RESERVE: every option, every reply text, and the order of the checks.

use std::collections::BTreeSet;

use testing::{
    Connection, Reply, Server, Stop, array, digest, error, in_both_protocols, integer, lines, load_record, nil, ok,
    on_every_server, records, with_append_only_client, with_client,
};

const NO_CAPACITY: &str = "ERR bad capacity";
const CAPACITY_RANGE: &str = "ERR capacity must be in the range [1, 1073741824]";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// Every refusal of words that the filter crate's parser gives, once, with its text. Which words it refuses for which reason is tested there:
/// `crates/filter/tests/corpus/words.rs`. The rate is checked first, then the capacity, then the options in their order.
const REFUSALS: [(&str, &str); 39] = [
    ("BF.RESERVE $ 0.01", "ERR wrong number of arguments for 'bf.reserve' command"),
    ("BF.RESERVE $ x x x x x x x x x x x x x x x x x x x x", "ERR wrong number of arguments for 'bf.reserve' command"),
    ("BF.RESERVE $ x x EXPANSION x", "ERR bad error rate"),
    ("BF.RESERVE $ 2 x EXPANSION x", "ERR error rate must be in the range (0.000000, 1.000000)"),
    ("BF.RESERVE $ 0.01 x EXPANSION x", NO_CAPACITY),
    ("BF.RESERVE $ 0.01 0 EXPANSION x", CAPACITY_RANGE),
    ("BF.RESERVE $ 0.01 100 EXPANSION", "ERR no expansion"),
    ("BF.RESERVE $ 0.01 100 EXPANSION x SEED x", "ERR bad expansion"),
    ("BF.RESERVE $ 0.01 100 EXPANSION -1", "ERR expansion must be in the range [0, 32768]"),
    ("BF.RESERVE $ 0.01 100 EXPANSION 2 NONSCALING", "Nonscaling filters cannot expand"),
    ("BF.RESERVE $ 0.01 100 SEED x FROBNICATE", "ERR bad seed"),
    ("BF.RESERVE $ 0.01 100 FROBNICATE", "ERR syntax error"),
    ("BF.RESERVE $ 0.01 100 LAYOUT", "ERR no layout"),
    ("BF.RESERVE $ 0.01 100 LAYOUT redis", "ERR bad layout"),
    ("BF.RESERVE $ 0.01 100 SEED 5 LAYOUT redisbloom", OTHER_LAYOUT),
    ("BF.RESERVE $ 0.01 100 HASH", "ERR no hash"),
    ("BF.RESERVE $ 0.01 100 WINDOW 0", "ERR WINDOW is a whole number from 1 to 10000000000"),
    ("BF.RESERVE $ 0.01 100 WINDOW 60 ROLLING", "ERR ROLLING and WINDOW exclude each other"),
    ("BF.RESERVE $ 0.01 100 SLIDING", "ERR SLIDING needs WINDOW"),
    ("BF.RESERVE $ 0.01 100 EX", "ERR no expire time"),
    ("BF.INSERT $ CAPACITY 100", "ERR wrong number of arguments for 'bf.insert' command"),
    ("BF.INSERT $ NOCREATE SEED", "ERR wrong number of arguments for 'bf.insert' command"),
    ("BF.INSERT $ ERROR 1 ITEMS a", "Bad error rate"),
    ("BF.INSERT $ CAPACITY 0 ITEMS a", "Bad capacity"),
    ("BF.INSERT $ EXPANSION -1 ITEMS a", "Bad expansion"),
    ("BF.INSERT $ SEED 01 ITEMS a", "Bad seed"),
    ("BF.INSERT $ LAYOUT foo ITEMS a", "Bad layout"),
    ("BF.INSERT $ TIGHTENING 1 ITEMS a", "Bad tightening ratio"),
    ("BF.INSERT $ TIGHTENING 0.5 SEED 5 ITEMS a", OTHER_LAYOUT),
    ("BF.INSERT $ CAP 5 ITEMS a", "Unknown argument received"),
    ("BF.INSERT $ HASH md5 ITEMS a", "ERR bad hash"),
    ("BF.INSERT $ WINDOW 5 TIGHTENING 0.5 ITEMS a", "ERR WINDOW and TIGHTENING exclude each other"),
    (
        "BF.INSERT $ COUNTING SEED 000102030405060708090a0b0c0d0e0f ITEMS a",
        "ERR COUNTING and a SEED of 32 bytes exclude each other",
    ),
    ("BF.INSERT $ BUCKETS 4 ITEMS a", "ERR BUCKETS needs WINDOW or ROLLING"),
    ("BF.PLAN 0.01", "ERR wrong number of arguments for 'bf.plan' command"),
    ("BF.PLAN 0.01 x", NO_CAPACITY),
    ("BF.PLAN 0.01 100 ITEMS", "ERR no items"),
    ("BF.PLAN 0.01 100 ITEMS -1", "ERR ITEMS is a whole number from 0 to 9223372036854775807"),
    ("BF.PLAN 0.01 100 NONSCALING ITEMS 101", "ERR non scaling filter is full"),
];

const OTHER_LAYOUT: &str = "ERR a filter of this layout has no such seed, tightening ratio or policy";

#[test]
fn words_are_checked_before_the_key_and_the_key_before_the_memory() {
    with_append_only_client(|server, client| {
        client.run("SET string x");
        client.run("BF.RESERVE filter 0.01 100");
        let written = lines(server);
        for key in ["string", "filter", "missing"] {
            for (line, text) in REFUSALS {
                let line = line.replace('$', key);
                assert_eq!(client.run(&line), error(text), "{line}");
            }
        }
        for capacity in ["100", "1000000000000000000"] {
            assert_eq!(client.run(&format!("BF.RESERVE filter 0.01 {capacity}")), error("ERR item exists"));
            assert_eq!(client.run(&format!("BF.RESERVE string 0.01 {capacity}")), error(WRONG_TYPE));
        }
        assert_eq!((client.run("BF.CARD filter"), client.run("EXISTS missing")), (integer(0), integer(0)));
        assert_eq!(lines(server), written);
        assert_eq!(client.run("COMMAND GETKEYS BF.PLAN 0.01 100"), error("ERR The command has no key arguments"));
        // If an option is repeated, the last value counts.
        assert_eq!(client.run("BF.RESERVE k 0.01 100 EXPANSION 3 EXPANSION 5"), ok());
        assert_eq!(client.run("BF.INFO k EXPANSION"), array([integer(5)]));
        // All options that can have a meaning together, and a capacity above RedisBloom's limit, which does not apply here.
        let all = "NONSCALING EXPANSION 0 SEED 1 LAYOUT native HASH murmur3 WINDOW 60 BUCKETS 4 SLIDING EX 60 EXIST_OK";
        assert_eq!(client.run(&format!("BF.RESERVE all 0.01 100 {all}")), ok());
        assert_eq!(client.run("BF.RESERVE large 0.25 1073741825 NONSCALING"), ok());
        // 32 characters without the words HASH siphash are valkey-bloom's seed.
        client.run("BF.INSERT valkey SEED 000102030405060708090a0b0c0d0e0f ITEMS x");
        assert_eq!(client.run("TYPE valkey").text(), "bloomfltr");
    });
}

#[test]
fn rates_beyond_the_useful_ones_are_clamped_with_a_warning() {
    with_client(|server, client| {
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

/// The refusal of a filter whose size does not fit 63 bits.
pub const NO_MACHINE: &str = "ERR Insufficient memory to create filter: no machine has that much memory";

#[test]
fn a_filter_that_no_machine_can_hold_is_refused() {
    in_both_protocols(|client, _| {
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
        // 2^63 is refused as a capacity or for lack of memory, whichever is checked first.
        let reply = client.run("BF.RESERVE k 0.01 9223372036854775808");
        assert!(reply == error(NO_CAPACITY) || reply == error(NO_MACHINE), "{reply:?}");
        assert_eq!(client.run("EXISTS k"), integer(0));
        assert_eq!(client.run("BF.RESERVE k 0.01 100"), ok());
    });
}

// EXIST_OK. `EveryFilter::write` and `golden` check that the options of a creation accept the filter, whatever has changed since.

/// If two clients create the same filter, both get OK, and the second one changes nothing.
#[test]
fn an_existing_filter_is_accepted_if_it_has_the_requested_parameters() {
    with_append_only_client(|server, client| {
        assert_eq!(client.run("BF.RESERVE k 0.01 100 SEED 7 exist_ok PX 100000000"), ok());
        assert!(lines(server).iter().all(|line| !line.contains("exist_ok")), "an older replica knows no such word");
        client.run("BF.MADD k a b");
        let (before, written) = (digest(client, "k"), lines(server));
        // An omitted seed or time to live accepts any. A given one applies to a new filter only.
        for more in ["", " SEED 7", " EXPANSION 2", " LAYOUT native HASH murmur3", " EX 5"] {
            assert_eq!(client.run(&format!("BF.RESERVE k 0.01 100 EXIST_OK{more}")), ok(), "{more}");
        }
        assert!(client.run("PTTL k").number() > 5000);
        assert_eq!(client.run("BF.RESERVE k 0.01 100 SEED 7"), error("ERR item exists"));
        assert_eq!(digest(client, "k"), before);
        assert_eq!(lines(server), written);
    });
}

#[test]
fn a_filter_that_exists_and_differs_is_refused() {
    with_client(|_, client| {
        client.run("BF.RESERVE k 0.01 100");
        let refused = |text: &str| error(&format!("ERR item exists with another {text}"));
        for (words, text) in [
            ("0.001 100", "error rate: 0.01, not 0.001"),
            ("0.01 200", "capacity: 100, not 200"),
            ("0.01 100 COUNTING", "kind: scaling, not counting"),
        ] {
            assert_eq!(client.run(&format!("BF.RESERVE k {words} EXIST_OK")), refused(text), "{words}");
        }
        // The server's defaults are part of the request.
        client.run("CONFIG SET bf.expansion-factor 4");
        assert_eq!(client.run("BF.RESERVE k 0.01 100 EXIST_OK"), refused("EXPANSION: 2, not 4"));
        assert_eq!(client.run("BF.RESERVE k 0.01 100 EXPANSION 2 EXIST_OK"), ok());
        assert_eq!(client.run("BF.RESERVE rare 1e-300 3 LAYOUT redisbloom"), ok());
        let text = "error rate: 1e-300, not 1e-12";
        assert_eq!(client.run("BF.RESERVE rare 1e-300 3 EXIST_OK"), refused(text));

        client.run("BF.INSERT theirs TIGHTENING 0.5 CAPACITY 100 ERROR 0.01 EXPANSION 4");
        let text = "LAYOUT: valkey-bloom, not native";
        assert_eq!(client.run("BF.RESERVE theirs 0.01 100 EXIST_OK"), refused(text));
        client.run("SET string x");
        let wrong_type = error(WRONG_TYPE);
        assert_eq!(client.run("BF.RESERVE string 0.01 100 EXIST_OK"), wrong_type);
        let header = records(client, "k").swap_remove(0);
        assert_eq!(load_record(client, "arriving", &header), ok());
        assert_eq!(client.run("BF.RESERVE arriving 0.01 100"), error("ERR item exists"));
        let loading = error("ERR filter is still being loaded");
        assert_eq!(client.run("BF.RESERVE arriving 0.01 100 EXPANSION 2 EXIST_OK"), loading);

        // Only BF.RESERVE has the option. BF.PLAN, which accepts the options of BF.RESERVE, ignores it.
        assert_eq!(client.run("BF.INSERT k EXIST_OK ITEMS a"), error("Unknown argument received"));
        assert_eq!(client.run("BF.PLAN 0.01 100 EXIST_OK"), client.run("BF.PLAN 0.01 100"));
        // The reply does not contain the secret key of a filter.
        let (key, other) = ("000102030405060708090a0b0c0d0e0f", "ff0102030405060708090a0b0c0d0e0f");
        let asked = |key| format!("BF.RESERVE keyed 0.01 100 HASH siphash SEED {key} EXIST_OK");
        for (key, reply) in [(key, ok()), (key, ok()), (other, refused("SEED"))] {
            assert_eq!(client.run(&asked(key)), reply, "{key}");
        }
    });
}

#[test]
fn every_filter_has_its_own_seed() {
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

// BF.INSERT: creation and adding in one command, with its own error texts.

#[test]
fn insert_creates_with_its_options_and_adds() {
    in_both_protocols(|client, protocol| {
        for (line, capacity, expansion, answers) in [
            ("BF.INSERT a ITEMS x y x", 100, Some(2), vec![1, 1, 0]),
            ("BF.INSERT b CAPACITY 500 ITEMS x", 500, Some(2), vec![1]),
            ("bf.insert c error 0.001 capacity 7 expansion 4 items x", 7, Some(4), vec![1]),
            ("BF.INSERT d NONSCALING ITEMS x y", 100, None, vec![1, 1]),
            ("BF.INSERT e EXPANSION 0 CAPACITY 9 ITEMS x", 9, None, vec![1]),
            ("BF.INSERT f EXPANSION 3 NONSCALING ITEMS x", 100, None, vec![1]),
            ("BF.INSERT g NonScaling Expansion 3 Items x", 100, None, vec![1]),
            ("BF.INSERT h SEED 0 ITEMS x", 100, Some(2), vec![1]),
            ("BF.INSERT i Seed 4294967295 CAPACITY 12 ITEMS x", 12, Some(2), vec![1]),
            ("BF.INSERT j EXPANSION 32768 ERROR 0.9 ITEMS x", 100, Some(32768), vec![1]),
            ("BF.INSERT k CAPACITY 5 CAPACITY 6 ITEMS x", 6, Some(2), vec![1]),
            // After ITEMS there are items only.
            ("BF.INSERT l ITEMS CAPACITY 6 ITEMS NOCREATE", 100, Some(2), vec![1, 1, 1, 1]),
        ] {
            let expected: Vec<_> = answers.iter().map(|&answer| client.answer(answer == 1)).collect();
            assert_eq!(client.run(line), array(expected), "{line}");
            let info = client.run(&format!("BF.INFO {}", line.split(' ').nth(1).unwrap()));
            assert_eq!(info.field("Capacity"), &integer(capacity), "{line}");
            assert_eq!(info.field("Expansion rate"), &expansion.map_or(nil(protocol), integer), "{line}");
            let added = answers.iter().sum();
            assert_eq!(info.field("Number of items inserted"), &integer(added), "{line}");
        }
    });
}

#[test]
fn items_may_be_omitted_if_a_seed_is_given() {
    with_client(|_, client| {
        assert_eq!(client.run("BF.INSERT k CAPACITY 500 SEED 5"), array([]));
        assert_eq!(client.run("BF.INFO k CAPACITY"), array([integer(500)]));
        assert_eq!(client.run("BF.CARD k"), integer(0));
        assert_eq!(client.run("BF.INSERT k SEED 5"), array([]), "an existing filter is left as it is");
        assert_eq!(client.run("BF.INFO k CAPACITY"), array([integer(500)]));
    });
}

#[test]
fn nocreate_creates_nothing() {
    in_both_protocols(|client, _| {
        assert_eq!(client.run("BF.INSERT k NOCREATE ITEMS a"), error("ERR not found"));
        assert_eq!(client.run("BF.INSERT k CAPACITY 5 nocreate ERROR 0.1 ITEMS a"), error("ERR not found"));
        assert_eq!(client.run("EXISTS k"), integer(0));
        client.run("BF.RESERVE k 0.01 100");
        assert_eq!(client.run("BF.INSERT k NOCREATE ITEMS a"), client.answers([1]));
    });
}

/// Whatever the options of BF.INSERT are, an add to an existing filter is propagated as an add.
#[test]
fn an_existing_filter_keeps_its_own_parameters() {
    with_append_only_client(|server, client| {
        for (key, creation) in [
            ("native", "BF.RESERVE native 0.01 50 EXPANSION 4 SEED 1"),
            ("redisbloom", "BF.RESERVE redisbloom 0.01 50 EXPANSION 4 LAYOUT redisbloom"),
            ("valkey", "BF.INSERT valkey CAPACITY 50 EXPANSION 4 SEED 00000000000000000000000000000007 TIGHTENING 0.7"),
        ] {
            for line in [creation, &creation.replacen(key, "same", 1)] {
                assert!(!client.run(line).is_error(), "{line}");
            }
            for (number, words) in [
                "CAPACITY 9999 ERROR 0.2 NONSCALING SEED 2",
                // Options that would need too much memory are not checked either.
                "CAPACITY 1000000000000000000",
                "LAYOUT redisbloom",
                "LAYOUT native",
                "TIGHTENING 0.2 CAPACITY 900",
                "SEED 00000000000000000000000000000008",
            ]
            .iter()
            .enumerate()
            {
                let reply = client.run(&format!("BF.INSERT {key} {words} ITEMS {number}"));
                assert_eq!(reply, array([integer(1)]), "{key}: {words}");
                assert_eq!(lines(server).last(), Some(&format!("BF.MADD {key} {number}")), "{key}: {words}");
                assert_eq!(client.run(&format!("BF.INSERT {key} {words} ITEMS {number}")), array([integer(0)]));
                client.run(&format!("BF.ADD same {number}"));
            }
            assert_eq!(client.run(&format!("BF.RESERVE {key} 0.01 100")), error("ERR item exists"));
            assert_eq!(digest(client, key), digest(client, "same"), "{key}");
            assert_eq!(client.run(&format!("BF.INFO {key}")), client.run("BF.INFO same"), "{key}");
            client.run("DEL same");
        }
    });
}

#[test]
fn insert_and_reserve_create_the_same_filter() {
    with_client(|_, client| {
        for (reserve, insert) in [
            ("0.001 300 EXPANSION 3 SEED 77", "SEED 77 EXPANSION 3 CAPACITY 300 ERROR 0.001"),
            ("0.1 77 NONSCALING SEED 5", "NONSCALING CAPACITY 77 SEED 5 ERROR 0.1"),
            (
                "0.01 77 HASH siphash SEED 000102030405060708090a0b0c0d0e0f",
                "SEED 000102030405060708090A0B0C0D0E0F CAPACITY 77 HASH siphash",
            ),
            ("0.01 77 COUNTING SEED 5", "CAPACITY 77 SEED 5 COUNTING"),
            ("0.01 77 ROLLING BUCKETS 4 SEED 5", "BUCKETS 4 CAPACITY 77 SEED 5 ROLLING"),
            ("0.001 77 EXPANSION 3 LAYOUT redisbloom", "ERROR 0.001 CAPACITY 77 EXPANSION 3 LAYOUT redisbloom"),
            ("0.1 77 NONSCALING LAYOUT redisbloom", "LAYOUT redisbloom NONSCALING CAPACITY 77 ERROR 0.1"),
            ("0.1 77 EXPANSION 0 LAYOUT redisbloom", "CAPACITY 77 EXPANSION 0 ERROR 0.1 LAYOUT redisbloom"),
        ] {
            assert_eq!(client.run(&format!("BF.RESERVE a {reserve}")), ok(), "{reserve}");
            client.run("BF.MADD a x y z");
            client.run(&format!("BF.INSERT b {insert} ITEMS x y z"));
            assert_eq!(digest(client, "a"), digest(client, "b"), "{reserve}");
            assert_eq!(client.run("BF.INFO a"), client.run("BF.INFO b"), "{reserve}");
            client.run("DEL a b");
        }
    });
}

// BF.PLAN: the size that a filter would have.

/// Adds new items until the filter has this many.
fn fill(client: &mut Connection, key: &str, items: i64) {
    let mut next = 0;
    loop {
        let lacking = items - client.run(&format!("BF.CARD {key}")).number();
        if lacking <= 0 {
            return;
        }
        let more: Vec<String> = (next..next + lacking).map(|number| number.to_string()).collect();
        next += lacking;
        client.batched(&[b"BF.MADD", key.as_bytes()], &more);
    }
}

fn layers(reply: &Reply) -> Vec<[i64; 3]> {
    let layers = reply.field("Layers").elements().iter();
    layers.map(|layer| ["Capacity", "Size", "Hashes"].map(|name| layer.field(name).number())).collect()
}

#[test]
fn the_created_filter_has_the_planned_figures() {
    in_both_protocols(|client, protocol| {
        for (words, items) in [
            ("0.01 1000", vec![0, 1, 1000, 1001, 20_000]),
            ("0.0001 500 EXPANSION 1", vec![500, 5001]),
            ("0.01 1000 NONSCALING", vec![1000]),
            ("0.01 1000 HASH siphash EXPANSION 3 SEED 00000000000000000000000000000001", vec![5000]),
            ("0.9 1000 SEED 5", vec![3000]),
            ("0.01 1000 LAYOUT redisbloom", vec![0, 1, 1000, 20_000]),
            ("0.01 1000 ROLLING BUCKETS 5", vec![0, 1, 250, 251, 1000, 1250]),
            ("0.01 1000 WINDOW 3600", vec![]),
            ("0.01 1000 TIGHTENING 0.7 EXPANSION 4", vec![1000, 20_000]),
        ] {
            let (rate, rest) = words.split_once(' ').unwrap();
            let creation = if words.contains("TIGHTENING") {
                let (capacity, rest) = rest.split_once(' ').unwrap();
                format!("BF.INSERT k ERROR {rate} CAPACITY {capacity} {rest}")
            } else {
                format!("BF.RESERVE k {words}")
            };
            assert!(!client.run(&creation).is_error(), "{creation}");
            let is_ring = words.contains("ROLLING") || words.contains("WINDOW");
            let new = client.run(&format!("BF.PLAN {words}"));
            assert_eq!(matches!(new, Reply::Map(_)), protocol == 3);
            if words.contains("WINDOW") {
                // The whole ring: eight buckets, as if each were the newest.
                let stats = client.run("BF.STATS k");
                assert_eq!(layers(&new), vec![layers(&stats)[0]; 8]);
                assert_eq!(new.field("Size"), &integer(stats.field("Size").number() * 8));
            } else if !is_ring {
                compare(client, &new, words);
            }
            for items in items {
                fill(client, "k", items);
                let plan = client.run(&format!("BF.PLAN {words} ITEMS {items}"));
                compare(client, &plan, &format!("{words}, {items} items"));
            }
            client.run("DEL k");
        }
        assert_eq!(client.run("DBSIZE"), integer(0), "nothing is made");
    });
}

fn compare(client: &mut Connection, plan: &Reply, words: &str) {
    let stats = client.run("BF.STATS k");
    for name in ["Kind", "Layout", "Hash", "Error rate", "Capacity", "Size"] {
        assert_eq!(plan.field(name), stats.field(name), "{words}: {name}");
    }
    assert_eq!(layers(plan), layers(&stats), "{words}");
    let bits = plan.field("Bits per item").fraction();
    let expected = plan.field("Size").number() as f64 * 8.0 / plan.field("Capacity").number() as f64;
    assert!((bits - expected).abs() < 1e-9, "{words}: {bits}");
}

#[test]
fn bf_plan_answers_whatever_memory_is_free() {
    with_client(|_, client| {
        client.run("CONFIG SET bf.max-filter-bytes 1");
        client.run("CONFIG SET maxmemory 1");
        let plan = client.run("BF.PLAN 0.000001 1000000000000");
        assert!(plan.field("Size").number() > 1 << 40);
        let plan = client.run("BF.PLAN 0.01 100 ITEMS 1000000000000");
        assert!(plan.field("Capacity").number() >= 1_000_000_000_000);
        assert_eq!(
            client.run("BF.PLAN 0.01 1 EXPANSION 1 ITEMS 9223372036854775807"),
            error("ERR filter cannot grow: it has as many layers as a filter can have")
        );
    });
}

/// A reply's integers are signed.
#[test]
fn every_number_of_a_plan_is_the_right_one() {
    with_client(|_, client| {
        let plan = client.run("BF.PLAN 0.25 4611686018427387904 NONSCALING");
        assert_eq!(plan.field("Capacity"), &integer(1 << 62));
        let bits = plan.field("Size").number() as f64 * 8.0 / (1u64 << 62) as f64;
        assert!((2.9..3.3).contains(&bits), "{bits}");
        for (words, text) in [
            (
                "0.25 4611686018427387904 EXPANSION 1 ITEMS 9223372036854775807",
                "ERR filter cannot grow: the capacity does not fit 64 bits",
            ),
            ("0.01 9223372036854775807", NO_MACHINE),
            ("0.01 4611686018427387904 WINDOW 60 BUCKETS 64", NO_MACHINE),
            ("0.01 4611686018427387904 COUNTING", NO_MACHINE),
        ] {
            assert_eq!(client.run(&format!("BF.PLAN {words}")), error(text), "{words}");
        }
    });
}

// The setting `bf.layout`: which commands create a filter of RedisBloom's layout.

const NATIVE: &str = "bloomgate";
const THEIRS: &str = "MBbloom--";

fn kind(client: &mut Connection, key: &str) -> String {
    client.run(&format!("TYPE {key}")).text()
}

#[test]
fn redisblooms_capacities_have_redisblooms_limit() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.max-filter-bytes 4294967296").start();
        let mut client = server.connect();
        for capacity in ["0", "-1", "1073741825", "1000000000000000000"] {
            let line = format!("BF.RESERVE k 0.25 {capacity} LAYOUT redisbloom");
            assert_eq!(client.run(&line), error(CAPACITY_RANGE), "{capacity}");
            let line = format!("BF.INSERT k CAPACITY {capacity} LAYOUT redisbloom ITEMS x");
            assert_eq!(client.run(&line), error("Bad capacity"), "{capacity}");
        }
        // Within the limit, but above the ceiling.
        client.run("CONFIG SET bf.max-filter-bytes 1000000");
        for line in ["BF.RESERVE k 1e-300 1073741824", "BF.RESERVE k 0.01 1073741824", "BF.RESERVE k 0.01 1000000"] {
            let reply = client.run(&format!("{line} LAYOUT redisbloom"));
            assert!(reply.error_text().starts_with("ERR Insufficient memory to create filter"), "{line}: {reply:?}");
        }
        assert_eq!(client.run("EXISTS k"), integer(0));
        client.run("CONFIG SET bf.max-filter-bytes 4294967296");
        assert_eq!(client.run("BF.RESERVE most 0.25 1073741824 NONSCALING LAYOUT redisbloom"), ok());
        assert_eq!(client.run("BF.INFO most CAPACITY"), array([integer(1 << 30)]));
        assert_eq!(client.run("BF.ADD most x"), integer(1));
        assert_eq!(client.run("BF.EXISTS most x"), integer(1));
    });
}

#[test]
fn the_setting_applies_to_creations_without_the_option() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.layout redisbloom").start();
        let mut client = server.connect();
        assert_eq!(client.run("CONFIG GET bf.layout").elements()[1].text(), "redisbloom");
        for (line, expected) in [
            ("BF.ADD a x", THEIRS),
            ("BF.MADD b x y", THEIRS),
            ("BF.RESERVE c 0.01 100", THEIRS),
            ("BF.INSERT d ITEMS x", THEIRS),
            ("BF.RESERVE e 0.01 100 SEED 5", NATIVE),
            ("BF.INSERT f SEED 5 ITEMS x", NATIVE),
            ("BF.RESERVE g 0.01 100 layout NATIVE", NATIVE),
            ("BF.INSERT l ITEMS LAYOUT native", THEIRS),
            ("BF.INSERT h LAYOUT native ITEMS x", NATIVE),
            ("BF.INSERT i TIGHTENING 0.5 ITEMS x", "bloomfltr"),
            ("BF.INSERT k SEED 00000000000000000000000000000007 ITEMS x", "bloomfltr"),
        ] {
            assert!(!client.run(line).is_error(), "{line}");
            assert_eq!(kind(&mut client, line.split(' ').nth(1).unwrap()), expected, "{line}");
        }
        assert_eq!(client.run("CONFIG SET bf.layout native"), ok());
        client.run("BF.ADD j x");
        assert_eq!(kind(&mut client, "j"), NATIVE);
        // Existing filters keep their layout.
        client.run("BF.ADD a y");
        assert_eq!(kind(&mut client, "a"), THEIRS);
        assert!(client.run("CONFIG SET bf.layout other").is_error());
        Server::with(program).line("bf.layout other").refuses_to_start();
        assert_eq!(client.run("CONFIG GET bf.layout").elements()[1].text(), "native");
    });
}
