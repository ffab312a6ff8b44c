//! BF.DEL and BF.MDEL on filters with HASH siphash: answers, refusals, replication, persistence and dumps.

use testing::{
    Connection, Reply, array, digest, dump, error, eventually, in_both_protocols, integer, lines, load_record,
    load_records, ok, records, restore, with_append_only_client, with_client,
};

fn numbered(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|number| format!("item {number}")).collect()
}

/// A command with many items.
fn call(client: &mut Connection, head: &str, items: &[String]) -> Reply {
    let words: Vec<&str> = head.split(' ').chain(items.iter().map(String::as_str)).collect();
    client.call(&words)
}

/// The options of a filter that can delete. The key is fixed, so that the same items are false positives in every run.
const KEYED: &str = "HASH siphash SEED 000102030405060708090a0b0c0d0e0f";

/// The filters that can delete: a fixed one, one that grew, three that forget.
const FILTERS: [(&str, &str); 5] = [
    ("fixed", "0.01 5000 NONSCALING"),
    ("grown", "0.01 10 EXPANSION 2"),
    ("windowed", "0.01 20000 WINDOW 3600"),
    ("sliding", "0.01 20000 WINDOW 3600 SLIDING BUCKETS 3"),
    ("rolling", "0.01 20000 ROLLING"),
];

fn reserve_all(client: &mut Connection) {
    for (key, words) in FILTERS {
        assert_eq!(client.run(&format!("BF.RESERVE {key} {words} {KEYED}")), ok(), "{key}");
    }
}

// Answers and refusals of BF.DEL and BF.MDEL, and the counts and the memory afterwards.

const CANNOT: &str = "ERR this filter cannot delete: it needs CUCKOO, HASH siphash or COUNTING";

#[test]
fn a_delete_answers_whether_the_filter_found_the_item() {
    in_both_protocols(|client, _| {
        reserve_all(client);
        for (key, _) in FILTERS {
            let mut run = |line: &str| client.run(&line.replace('$', key));
            run("BF.MADD $ a b c d");
            let (yes, no) = (run("BF.EXISTS $ a"), run("BF.EXISTS $ x"));
            assert_eq!(run("BF.DEL $ a"), yes, "{key}");
            assert_eq!(run("BF.DEL $ a"), no, "{key}");
            assert_eq!(run("BF.EXISTS $ a"), no, "{key}");
            let expected = array([yes.clone(), no.clone(), no.clone(), no.clone(), yes.clone()]);
            assert_eq!(run("BF.MDEL $ b x a b c"), expected, "{key}");
            assert_eq!(run("BF.MEXISTS $ a b c d"), array([no.clone(), no.clone(), no.clone(), yes.clone()]));
            assert_eq!(run("BF.CARD $"), integer(1));
            assert_eq!(run("BF.INFO $").field("Number of items inserted"), &integer(1));
            // A deleted item is new again.
            assert_eq!(run("BF.ADD $ a"), yes, "{key}");
            assert_eq!(run("BF.MADD $ a b d b"), array([no.clone(), yes.clone(), no.clone(), no]), "{key}");
            assert_eq!(run("BF.MEXISTS $ a b d"), array([yes.clone(), yes.clone(), yes]));
            assert_eq!(run("BF.CARD $"), integer(3));
        }
    });
}

#[test]
fn deletes_are_refused_by_filters_without_deletes() {
    in_both_protocols(|client, _| {
        let yes = client.answer(true);
        for (key, line) in [
            ("native", "BF.RESERVE native 0.01 100"),
            ("windowed", "BF.RESERVE windowed 0.01 100 WINDOW 60"),
            ("redisbloom", "BF.RESERVE redisbloom 0.01 100 LAYOUT redisbloom"),
            ("valkey-bloom", "BF.INSERT valkey-bloom TIGHTENING 0.5 ITEMS x"),
        ] {
            client.run(line);
            client.run(&format!("BF.ADD {key} a"));
            let before = digest(client, key);
            assert_eq!(client.run(&format!("BF.DEL {key} a")), error(CANNOT), "{key}");
            assert_eq!(client.run(&format!("BF.MDEL {key} a b")), error(CANNOT), "{key}");
            assert_eq!(client.run(&format!("BF.EXISTS {key} a")), yes);
            assert_eq!(digest(client, key), before);
        }
    });
}

#[test]
fn above_maxmemory_it_still_deletes() {
    with_client(|_, client| {
        client.run("BF.RESERVE k 0.01 100 HASH siphash");
        client.run("BF.MADD k a b");
        assert_eq!(client.run("CONFIG SET maxmemory 1"), ok());
        assert!(client.run("BF.ADD k c").error_text().starts_with("OOM"));
        assert_eq!(client.run("BF.DEL k a"), integer(1));
        assert_eq!(client.run("BF.MDEL k b c"), array([integer(1), integer(0)]));
    });
}

/// Creates a ring with the items `a` to `d`, whose buckets are so large that memory is checked, and brings the server above `maxmemory`
/// when the next bucket is due.
fn ring_that_is_due_above_maxmemory(client: &mut Connection) {
    assert_eq!(client.run("CONFIG SET maxmemory 0"), ok());
    client.run("BF.RESERVE w 0.01 1000000 HASH siphash WINDOW 4 BUCKETS 3");
    client.run("BF.MADD w a b c d");
    assert_eq!(client.run("CONFIG SET maxmemory 1"), ok());
    eventually("the bucket to end", || client.run("BF.CHANGED w e none").is_error());
}

/// A revoked session must not stay valid because memory has run out.
#[test]
fn above_maxmemory_a_ring_deletes_though_its_next_bucket_is_due() {
    with_append_only_client(|server, client| {
        ring_that_is_due_above_maxmemory(client);
        let before = lines(server).len();
        assert_eq!(client.run("BF.DEL w a"), integer(1));
        assert_eq!(client.run("BF.MDEL w b x c"), array([integer(1), integer(0), integer(1)]));
        assert_eq!(client.run("BF.MEXISTS w a b c d"), array([0, 0, 0, 1].map(integer)));
        assert_eq!(lines(server).split_off(before), ["BF.DEL w a", "BF.MDEL w b c"]);
        assert_eq!(client.run("BF.STATS w").field("Buckets").elements().len(), 1, "a delete needs no bucket");
        let before = digest(client, "w");
        assert_eq!(client.run("DEBUG LOADAOF"), ok());
        assert_eq!(digest(client, "w"), before);
    });
}

/// An announced item must live for a whole window, which the ended bucket cannot guarantee, so the writer gets an error and must not
/// commit. The cache key is deleted nevertheless.
#[test]
fn above_maxmemory_a_row_is_not_announced_to_a_ring_whose_next_bucket_is_due() {
    with_append_only_client(|server, client| {
        client.run("SET cached old");
        ring_that_is_due_above_maxmemory(client);
        let before = lines(server).len();
        let refused = client.run("BF.CHANGED w a cached");
        assert!(refused.error_text().starts_with("ERR Insufficient memory"), "{refused:?}");
        assert_eq!(client.run("EXISTS cached"), integer(0));
        assert_eq!(lines(server).split_off(before), ["DEL cached"]);
        assert_eq!(client.run("CONFIG SET maxmemory 0"), ok());
        assert_eq!(client.run("BF.CHANGED w a cached"), integer(0), "it is found, and gets a window from now on");
    });
}

#[test]
fn a_full_table_refuses_an_item_and_changes_nothing() {
    in_both_protocols(|client, _| {
        client.run(&format!("BF.RESERVE k 0.01 1000 NONSCALING {KEYED}"));
        let items = numbered(0..500);
        call(client, "BF.MADD k", &items);
        let card = client.run("BF.CARD k").number();
        let reply = call(client, "BF.MDEL k", &items);
        let (refused, found) = reply.elements().split_last().unwrap();
        let count = found.iter().filter(|answer| answer.truth()).count();
        let text = format!("ERR no room for more deleted items ({count} entries): rebuild the filter");
        assert_eq!(refused, &error(&text));
        assert!((40..100).contains(&count) && count <= found.len(), "{count} entries");
        assert_eq!(client.run("BF.CARD k"), integer(card - count as i64));
        let before = digest(client, "k");
        assert_eq!(client.call(&["BF.DEL", "k", &items[found.len()]]), error(&text));
        assert_eq!(digest(client, "k"), before);
        let present = client.batched(&[b"BF.MEXISTS", b"k"], &items);
        assert!(!present[..found.len()].contains(&true) && !present[found.len()..].contains(&false));
        // Items can be deleted from a full filter, which then has room again.
        call(client, "BF.MADD k", &numbered(1000..2500));
        let full = client.run("BF.MADD k more-than-it-holds one-more and-another");
        assert_eq!(full.elements().last(), Some(&error("ERR non scaling filter is full")));
        assert!(call(client, "BF.ADD k", &items[..1]).truth());
        assert!(client.call(&["BF.DEL", "k", &items[found.len()]]).truth());
    });
}

#[test]
fn the_ceiling_binds_entries() {
    with_client(|_, client| {
        client.run("BF.RESERVE k 0.01 1000 HASH siphash");
        client.run("BF.MADD k a b c d");
        let size = client.run("BF.INFO k SIZE").elements().last().unwrap().number();
        client.run(&format!("CONFIG SET bf.max-filter-bytes {}", size + 40));
        let full = error("ERR no room for more deleted items (2 entries): rebuild the filter");
        assert_eq!(client.run("BF.MDEL k a b c d"), array([integer(1), integer(1), full]));
        assert_eq!(client.run("BF.INFO k SIZE").elements().last().unwrap().number(), size + 32);
        assert_eq!(client.run("BF.MEXISTS k a b c d"), client.answers([0, 0, 1, 1]));
        client.run("CONFIG SET bf.max-filter-bytes 0");
        assert_eq!(client.run("BF.DEL k c"), integer(1));
    });
}

#[test]
fn totals_and_memory_count_the_entries() {
    with_client(|server, client| {
        client.run("BF.RESERVE k 0.01 100000 HASH siphash");
        let items = numbered(0..5000);
        call(client, "BF.MADD k", &items);
        let mut view = || {
            let [bytes, count] = ["bf_bloom_total_memory_bytes", "bf_bloom_num_items_across_objects"]
                .map(|name| client.info_number(name));
            let size = client.run("BF.INFO k SIZE").elements().last().unwrap().number();
            (bytes, count, size, client.run("MEMORY USAGE k").number())
        };
        let before = view();
        let mut other = server.connect();
        let deleted = call(&mut other, "BF.MDEL k", &items[..2000]);
        let deleted = deleted.elements().iter().filter(|answer| answer.truth()).count() as i64;
        let after = view();
        assert_eq!((after.0, after.1), (before.0 + deleted * 16, before.1 - deleted));
        assert_eq!(after.2, before.2 + deleted * 16);
        assert!(after.3 >= before.3 + deleted * 16, "{after:?}, before {before:?}");
        call(&mut other, "BF.MADD k", &items[..2000]);
        let again = view();
        assert_eq!((again.0, again.1, again.2), (before.0, before.1, before.2));
        other.run("DEL k");
        eventually("the totals to be settled", || other.info_number("bf_bloom_total_memory_bytes") == 0);
    });
}

// The effects of a delete in the append-only file and on replicas.

#[test]
fn only_deleted_items_are_propagated() {
    with_append_only_client(|server, client| {
        for (key, words) in [("k", ""), ("w", " WINDOW 60")] {
            client.run(&format!("BF.RESERVE {key} 0.0001 1000 {KEYED}{words}"));
            client.run(&format!("BF.MADD {key} a b c d e"));
            for (command, expected) in [
                ("BF.DEL $ a", Some("BF.DEL $ a")),
                ("BF.DEL $ a", None),
                ("BF.MDEL $ x a", None),
                ("BF.MDEL $ b c", Some("BF.MDEL $ b c")),
                ("BF.MDEL $ b x d d", Some("BF.MDEL $ d")),
                ("BF.DEL missing a", None),
                ("BF.ADD $ a", Some("BF.ADD $ a")),
                ("BF.MADD $ a b e", Some("BF.MADD $ b")),
            ] {
                let before = lines(server).len();
                let dirty = client.info_number("rdb_changes_since_last_save");
                client.run(&command.replace('$', key));
                let carried = lines(server).split_off(before);
                let expected: Vec<String> = expected.iter().map(|line| line.replace('$', key)).collect();
                assert_eq!(carried, expected, "{command}");
                let changes = client.info_number("rdb_changes_since_last_save") - dirty;
                assert_eq!(changes > 0, !expected.is_empty(), "{command}");
            }
        }
    });
}

#[test]
fn a_delete_after_a_buckets_end_begins_no_bucket() {
    with_append_only_client(|server, client| {
        client.run("BF.RESERVE w 0.01 100 HASH siphash WINDOW 2 BUCKETS 3");
        client.run("BF.MADD w a b");
        // A bucket accepts items for one second, and is forgotten after three.
        let before = lines(server).len();
        eventually("the window to pass", || !client.run("BF.EXISTS w a").truth());
        assert_eq!(client.run("BF.DEL w a"), integer(0));
        assert_eq!(lines(server).len(), before);
        client.run("BF.ADD w c");
        let carried = lines(server).split_off(before);
        assert!(carried.len() == 2 && carried[0].starts_with("BF.ROTATE w "), "{carried:?}");
    });
}

// Tables of deleted items in files, copies, payloads and dumps.

/// A client cannot load a table of deleted items that is larger than it could create here.
#[test]
fn the_ceiling_includes_the_table_of_deleted_items() {
    with_client(|_, client| {
        client.run("BF.RESERVE k 0.01 1000 HASH siphash");
        call(client, "BF.MADD k", &numbered(0..900));
        call(client, "BF.MDEL k", &numbered(0..30));
        let size = client.run("BF.INFO k SIZE").elements()[0].number();
        let payload = dump(client, "k");
        let records = records(client, "k");
        let (last, others) = records.split_last().unwrap();
        client.run(&format!("CONFIG SET bf.max-filter-bytes {}", size - 1));
        assert!(restore(client, "copy", &payload).is_error());
        assert_eq!(client.run("EXISTS copy"), integer(0));
        load_records(client, "loaded", others);
        let refused = load_record(client, "loaded", last);
        assert!(refused.error_text().contains("ERR Insufficient memory"), "{refused:?}");
        client.run(&format!("CONFIG SET bf.max-filter-bytes {size}"));
        assert_eq!(restore(client, "copy", &payload), ok());
        assert_eq!(load_record(client, "loaded", last), ok(), "the dump continues at the same position");
        for copy in ["copy", "loaded"] {
            assert_eq!(digest(client, copy), digest(client, "k"), "{copy}");
        }
    });
}
