//! BF.MERGE: the union of filters.

use testing::{
    Connection, Server, catch_up, digest, error, eventually, follow, in_both_protocols, integer, lines, ok,
    on_every_server, with_append_only_file, with_client,
};

const NATIVE: &str = "0.001 20000 SEED 500";

fn fill(client: &mut Connection, key: &str, items: std::ops::Range<u32>) {
    let items: Vec<String> = items.map(|number| number.to_string()).collect();
    client.batched(&[b"BF.MADD", key.as_bytes()], &items);
}

fn has_all(client: &mut Connection, key: &str, items: std::ops::Range<u32>) -> bool {
    let items: Vec<String> = items.map(|number| number.to_string()).collect();
    client.batched(&[b"BF.MEXISTS", key.as_bytes()], &items).into_iter().all(|found| found)
}

fn make(client: &mut Connection, key: &str, items: std::ops::Range<u32>) {
    assert_eq!(client.run(&format!("BF.RESERVE {key} {NATIVE}")), ok());
    fill(client, key, items);
}

#[test]
fn the_destination_has_the_items_of_all() {
    in_both_protocols(|client, _| {
        make(client, "a", 0..8000);
        make(client, "b", 5000..12_000);
        make(client, "c", 11_000..16_000);
        assert_eq!(client.run("BF.MERGE a b c"), ok());
        assert!(has_all(client, "a", 0..16_000));
        let items = client.run("BF.CARD a").number();
        assert!((15_700..16_300).contains(&items), "{items}");
        assert_eq!(client.run("BF.CARD b"), integer(7000), "a source is as it was");

        // A missing destination is created with the parameters of the first source.
        assert_eq!(client.run("BF.MERGE d b c"), ok());
        assert!(has_all(client, "d", 5000..16_000));
        assert_eq!(client.run("BF.INFO d CAPACITY"), client.run("BF.INFO b CAPACITY"));
        client.run("BF.MERGE copy a");
        assert_eq!(digest(client, "copy"), digest(client, "a"));
        assert_eq!(client.run("BF.CARD copy"), integer(items));

        // The destination as a source, and a repeated source, change nothing.
        let before = digest(client, "a");
        for line in ["BF.MERGE a a", "BF.MERGE a a b a c b a", "BF.MERGE a copy copy"] {
            assert_eq!(client.run(line), ok(), "{line}");
            assert_eq!(digest(client, "a"), before, "{line}");
        }
        assert_eq!(client.gauge("num_objects"), 5);
        let counted: i64 =
            ["a", "b", "c", "d", "copy"].map(|key| client.run(&format!("BF.CARD {key}")).number()).iter().sum();
        assert_eq!(client.gauge("num_items_across_objects"), counted);
        client.run("PEXPIRE a 1000000");
        assert_eq!(client.run("BF.MERGE a b"), ok());
        assert!(client.run("PTTL a").number() > 900_000, "a time to live stays");
    });
}

#[test]
fn layers_are_added_with_the_items() {
    with_client(|_, client| {
        for key in ["small", "large"] {
            client.run(&format!("BF.RESERVE {key} 0.01 1000 SEED 1"));
        }
        fill(client, "large", 0..6000);
        fill(client, "small", 0..30);
        let memory = client.gauge("total_memory_bytes");
        assert_eq!(client.run("BF.MERGE small large"), ok());
        assert_eq!(digest(client, "small"), digest(client, "large"));
        assert_eq!(client.run("BF.INFO small"), client.run("BF.INFO large"));
        assert!(client.gauge("total_memory_bytes") > memory);
        // The memory is checked first.
        client.run("BF.RESERVE other 0.01 1000 SEED 1");
        client.run("BF.ADD other x");
        let before = digest(client, "other");
        client.run("CONFIG SET bf.max-filter-bytes 4000");
        let refused = client.run("BF.MERGE other large");
        assert!(refused.error_text().starts_with("ERR Insufficient memory to create filter"), "{refused:?}");
        assert!(client.run("BF.MERGE new large").is_error());
        assert_eq!((digest(client, "other"), client.run("EXISTS new")), (before, integer(0)));
    });
}

/// The union is made beside the destination, even if it is no larger.
#[test]
fn a_union_without_room_beside_its_destination_is_refused() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for (key, items) in [("a", 0..1000), ("b", 1000..2000)] {
            assert_eq!(client.run(&format!("BF.RESERVE {key} 0.01 1000000 SEED 1")), ok());
            fill(&mut client, key, items);
        }
        let before = client.run("DEBUG DIGEST");
        let size = client.run("BF.INFO a").field("Size").number();
        let limit = client.info_number("used_memory") + size / 2;
        client.run(&format!("CONFIG SET maxmemory {limit}"));
        let refused = client.run("BF.MERGE a b");
        assert!(refused.error_text().starts_with("ERR Insufficient memory to create filter"), "{refused:?}");
        assert_eq!(client.run("DEBUG DIGEST"), before);
        client.run(&format!("CONFIG SET maxmemory {}", limit + 2 * size));
        assert_eq!(client.run("BF.MERGE a b"), ok());
        assert!(has_all(&mut client, "a", 0..2000));
        assert_eq!(client.run("BF.INFO a").field("Size").number(), size, "it takes no more when it is done");
    });
}

#[test]
fn filters_that_differ_are_not_merged_and_stay_unchanged() {
    with_client(|_, client| {
        make(client, "a", 0..12_000);
        make(client, "b", 12_000..24_000);
        for (key, words) in [
            ("rate", "0.002 20000 SEED 500"),
            ("capacity", "0.001 20001 SEED 500"),
            ("expansion", "0.001 20000 SEED 500 EXPANSION 4"),
            ("fixed", "0.001 20000 SEED 500 NONSCALING"),
            ("seed", "0.001 20000 SEED 600"),
            ("hash", "0.001 20000 HASH siphash SEED 00000000000000000000000000000005"),
            ("window", "0.001 20000 SEED 500 WINDOW 60"),
            ("rolling", "0.001 20000 SEED 500 ROLLING"),
            ("redisbloom", "0.001 20000 LAYOUT redisbloom"),
        ] {
            assert_eq!(client.run(&format!("BF.RESERVE {key} {words}")), ok(), "{key}");
            client.run(&format!("BF.ADD {key} x"));
        }
        client.run("BF.INSERT valkey ERROR 0.001 CAPACITY 20000 TIGHTENING 0.5 ITEMS x");
        client.run("SET string x");
        let before = client.run("DEBUG DIGEST");
        let changes = client.info_number("rdb_changes_since_last_save");
        let differ = "ERR filters were created differently: rate, capacity, EXPANSION, HASH and SEED must be equal";
        let cannot = "ERR this filter cannot be merged: it has CUCKOO, COUNTING, WINDOW, ROLLING or another layout";
        let wrong_type = "WRONGTYPE Operation against a key holding the wrong kind of value";
        for (keys, text) in [
            (vec!["rate", "capacity", "expansion", "fixed", "seed", "hash"], differ),
            (vec!["window", "rolling", "redisbloom", "valkey"], cannot),
            (vec!["string"], wrong_type),
        ] {
            for key in keys {
                for line in [format!("BF.MERGE a {key}"), format!("BF.MERGE {key} a"), format!("BF.MERGE a b {key}")] {
                    assert_eq!(client.run(&line), error(text), "{line}");
                }
                if text != differ {
                    assert_eq!(client.run(&format!("BF.MERGE new {key}")), error(text), "{key}");
                }
            }
        }
        for line in
            ["BF.MERGE a missing", "BF.MERGE a a missing", "BF.MERGE missing missing", "BF.MERGE missing a missing"]
        {
            assert_eq!(client.run(line), error("ERR not found"), "{line}");
        }
        for line in ["BF.MERGE a b", "BF.MERGE new a b", "BF.MERGE a a b"] {
            let refused = client.run(line);
            let text = refused.error_text();
            assert!(text.starts_with("ERR the union would hold about 2"), "{text}");
            assert!(text.ends_with(" items, the capacity is 20000"), "{text}");
        }
        assert_eq!(client.run("DEBUG DIGEST"), before);
        assert_eq!(client.info_number("rdb_changes_since_last_save"), changes);
        assert_eq!(client.run("EXISTS new missing"), integer(0));
    });
}

#[test]
fn its_keys_and_permissions_are_found() {
    with_client(|server, client| {
        let keys = client.run("COMMAND GETKEYS BF.MERGE d a b c");
        assert_eq!(keys.elements().iter().map(|key| key.text()).collect::<Vec<_>>(), ["d", "a", "b", "c"]);
        make(client, "a", 0..10);
        make(client, "b", 10..20);
        client.run("ACL SETUSER merger on nopass +bf.merge %R~b %RW~a");
        let mut merger = server.connect();
        merger.run("AUTH merger none");
        assert_eq!(merger.run("BF.MERGE a b"), ok());
        assert!(merger.run("BF.MERGE b a").error_text().starts_with("NOPERM"));
        let docs = client.run("COMMAND DOCS bf.merge");
        let arguments = docs.field("bf.merge").field("arguments");
        let places: Vec<(String, i64)> = arguments
            .elements()
            .iter()
            .map(|argument| (argument.field("name").text(), argument.field("key_spec_index").number()))
            .collect();
        assert_eq!(places, [("destination".to_owned(), 0), ("source".to_owned(), 1)]);
        // Above maxmemory it is refused: it may take memory.
        client.run("CONFIG SET maxmemory 1");
        assert!(client.run("BF.MERGE a b").error_text().starts_with("OOM"));
    });
}

// BF.CLEAR: the filter is empty, and otherwise as it was created.

/// A filter of each kind: its key, and what creates it.
const KINDS: [(&str, &str); 8] = [
    ("native", "BF.RESERVE native 0.01 500 SEED 500"),
    ("fixed", "BF.RESERVE fixed 0.01 2000 SEED 500 NONSCALING"),
    ("keyed", "BF.RESERVE keyed 0.01 500 HASH siphash"),
    ("window", "BF.RESERVE window 0.01 500 SEED 500 WINDOW 3600 BUCKETS 5"),
    ("rolling", "BF.RESERVE rolling 0.01 500 SEED 500 ROLLING"),
    ("redisbloom", "BF.RESERVE redisbloom 0.01 500 EXPANSION 4 LAYOUT redisbloom"),
    ("valkey", "BF.INSERT valkey ERROR 0.01 CAPACITY 500 TIGHTENING 0.7 EXPANSION 3"),
    ("large", "BF.RESERVE large 0.01 5000000 SEED 500"),
];

fn fill_to(client: &mut Connection, key: &str) {
    let items: Vec<String> = (0..1500).map(|number| number.to_string()).collect();
    client.batched(&[b"BF.MADD", key.as_bytes()], &items);
}

/// Returns the properties that BF.CLEAR must keep; a ring's buckets begin anew.
fn properties(client: &mut Connection, key: &str) -> (String, Vec<String>) {
    let digest = client.run(&format!("DEBUG DIGEST-VALUE {key}")).elements()[0].text();
    let info = format!("{:?}", client.run(&format!("BF.INFO {key}")));
    (if key == "window" { String::new() } else { digest }, vec![info])
}

#[test]
fn a_cleared_filter_is_as_it_was_created() {
    in_both_protocols(|client, _| {
        let before = client.info_number("used_memory");
        for (key, creation) in KINDS {
            assert!(!client.run(creation).is_error(), "{creation}");
            client.run(&format!("PEXPIRE {key} 1000000"));
            let created = properties(client, key);
            for _ in 0..2 {
                fill_to(client, key);
                assert!(client.run(&format!("BF.CARD {key}")).number() > 400, "{key}");
                assert_eq!(client.run(&format!("BF.CLEAR {key}")), ok(), "{key}");
                assert_eq!(client.run(&format!("BF.CARD {key}")), integer(0), "{key}");
                assert!(!client.run(&format!("BF.EXISTS {key} 7")).truth(), "{key}");
                assert_eq!(properties(client, key), created, "{key}");
            }
            assert!(client.run(&format!("PTTL {key}")).number() > 900_000, "{key}");
        }
        assert_eq!(client.gauge("num_items_across_objects"), 0);
        assert_eq!(client.gauge("num_objects"), KINDS.len() as i64);
        client.run("FLUSHALL");
        eventually("the memory", || client.info_number("used_memory") < before + (3 << 20));
    });
}

#[test]
fn a_merge_above_maxmemory_frees_memory() {
    with_client(|_, client| {
        client.run("BF.RESERVE k 0.01 1000 SEED 500 EXPANSION 4");
        for round in 0..20 {
            let items: Vec<String> = (0..50_000).map(|number| format!("{round} {number}")).collect();
            client.batched(&[b"BF.MADD", b"k"], &items);
        }
        let used = client.info_number("used_memory");
        client.run(&format!("CONFIG SET maxmemory {}", used - (1 << 20)));
        assert!(client.run("BF.ADD k more").is_error());
        assert_eq!(client.run("BF.CLEAR k"), ok());
        eventually("the memory", || client.info_number("used_memory") < used - (1 << 20));
        assert!(!client.run("BF.ADD k more").is_error());
    });
}

/// A ring begins anew: the first bucket now, the next ones after it, here as on a replica.
#[test]
fn a_cleared_ring_continues_with_its_first_bucket() {
    on_every_server(|program| {
        let primary = with_append_only_file(program);
        let replica = Server::start(program);
        let (mut client, mut follower) = (primary.connect(), replica.connect());
        follow(&mut follower, &primary);
        for (key, words) in [("window", "WINDOW 3600 BUCKETS 3"), ("rolling", "ROLLING BUCKETS 3")] {
            client.run(&format!("BF.RESERVE {key} 0.0001 400 HASH siphash {words}"));
            for round in 0..3 {
                client.run(&format!("BF.MADD {key} a{round} b{round} c{round}"));
                client.run(&format!("BF.MDEL {key} a{round}"));
                client.run(&format!("BF.ROTATE {key}"));
            }
            let bytes = |client: &mut Connection| client.run(&format!("BF.INFO {key} SIZE"));
            let with_buckets = bytes(&mut client);
            assert_eq!(client.run(&format!("BF.CLEAR {key}")), ok());
            assert!(bytes(&mut client) != with_buckets, "{key}: the older buckets are gone");
            // A previously deleted item is new, and is found while two more buckets begin.
            let found = |client: &mut Connection, item: &str| client.run(&format!("BF.EXISTS {key} {item}")).truth();
            assert!(!found(&mut client, "a2") && client.run(&format!("BF.ADD {key} a2")).truth(), "{key}");
            for (round, dropped) in [(0, 0), (1, 0), (2, 1)] {
                assert!(found(&mut client, "a2"), "{key}, round {round}");
                assert_eq!(client.run(&format!("BF.ROTATE {key}")), integer(dropped), "{key}, round {round}");
                client.run(&format!("BF.ADD {key} later{round}"));
            }
            assert!(!found(&mut client, "a2") && found(&mut client, "later0"), "{key}");
            let turns: Vec<String> = lines(&primary);
            let clear = turns.iter().position(|line| *line == format!("BF.CLEAR {key}")).expect("the clear");
            let turn = format!("BF.ROTATE {key} ");
            let slots: Vec<&str> = turns[clear..]
                .iter()
                .filter_map(|line| line.strip_prefix(&turn))
                .map(|numbers| numbers.split(' ').next().unwrap_or_default())
                .collect();
            // The first bucket of a rolling ring begins by itself.
            assert_eq!(slots, if key == "window" { &["0", "1", "2", "3"][..] } else { &["1", "2", "3"] }, "{key}");
        }
        catch_up(&mut client, &mut follower);
        let before = client.run("DEBUG DIGEST");
        assert_eq!(follower.run("DEBUG DIGEST"), before);
        assert_eq!(client.run("DEBUG LOADAOF"), ok());
        assert_eq!(client.run("DEBUG DIGEST"), before);
    });
}

/// A dump that began before BF.CLEAR does not belong to the present filter.
#[test]
fn a_dump_does_not_continue() {
    with_client(|_, client| {
        client.run("BF.RESERVE k 0.01 100 SEED 500");
        fill_to(client, "k");
        let first = client.run("BF.SCANDUMP k 0");
        let iterator = first.elements()[0].number();
        client.run("BF.CLEAR k");
        let refused = client.run(&format!("BF.SCANDUMP k {iterator}"));
        assert_eq!(refused, error("ERR the filter was replaced since the dump began"));
    });
}
