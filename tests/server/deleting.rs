//! BF.DEL and BF.MDEL on filters with HASH siphash: what they answer, what they refuse, what is carried, saved and dumped.

use std::path::Path;

use crate::harness::{
    Connection, Reply, Server, Stop, append_only_commands, array, error, eventually, integer, ok, on_every_server,
    rewritten_commands, simple,
};

const CANNOT: &str = "ERR this filter cannot delete: it needs HASH siphash or COUNTING";

fn numbered(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|number| format!("item {number}")).collect()
}

/// A command with many items.
fn call(client: &mut Connection, head: &str, items: &[String]) -> Reply {
    let words: Vec<&str> = head.split(' ').chain(items.iter().map(String::as_str)).collect();
    client.call(&words)
}

fn digest(client: &mut Connection, key: &str) -> Reply {
    client.run(&format!("DEBUG DIGEST-VALUE {key}"))
}

/// The filters that can delete: a fixed one, one that grew, three that forget.
const FILTERS: [(&str, &str); 5] = [
    ("fixed", "0.01 5000 NONSCALING HASH siphash"),
    ("grown", "0.01 10 EXPANSION 2 HASH siphash"),
    ("windowed", "0.01 20000 HASH siphash WINDOW 3600"),
    ("sliding", "0.01 20000 HASH siphash WINDOW 3600 SLIDING BUCKETS 3"),
    ("rolling", "0.01 20000 HASH siphash ROLLING"),
];

fn reserve_all(client: &mut Connection) {
    for (key, words) in FILTERS {
        assert_eq!(client.run(&format!("BF.RESERVE {key} {words}")), ok(), "{key}");
    }
}

/// Adds, turns, deletes, adds again; of every filter something is deleted in the end.
fn write_some(client: &mut Connection) {
    for (key, _) in FILTERS {
        call(client, &format!("BF.MADD {key}"), &numbered(0..200));
        if ["fixed", "grown"].contains(&key) {
            call(client, &format!("BF.MADD {key}"), &numbered(5000..7000));
        } else {
            client.run(&format!("BF.ROTATE {key}"));
            call(client, &format!("BF.MADD {key}"), &numbered(150..250));
        }
        call(client, &format!("BF.MDEL {key}"), &numbered(100..200));
        call(client, &format!("BF.MDEL {key} absent"), &numbered(90..110));
        call(client, &format!("BF.DEL {key}"), &numbered(1..2));
        call(client, &format!("BF.DEL {key}"), &numbered(2..3));
        call(client, &format!("BF.ADD {key}"), &numbered(120..121));
        call(client, &format!("BF.MADD {key}"), &numbered(180..190));
        client.pipeline(&["MULTI", &format!("BF.DEL {key} absent"), &format!("BF.MDEL {key} absent a"), "EXEC"]);
        client.call(&["EVAL", "return redis.call('BF.MDEL', KEYS[1], 'item 5', 'absent', 'item 5')", "1", key]);
    }
}

fn assert_written(client: &mut Connection) {
    for (key, _) in FILTERS {
        for (items, expected) in
            [(90..100, false), (100..120, false), (120..121, true), (180..190, true), (20..60, true)]
        {
            let found = client.batched(&[b"BF.MEXISTS", key.as_bytes()], &numbered(items.clone()));
            assert!(found.iter().all(|present| *present == expected), "{key}: {items:?}");
        }
    }
}

#[test]
fn a_delete_answers_whether_the_filter_found_the_item() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            reserve_all(&mut client);
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
                // An item that was deleted is new, and in again.
                assert_eq!(run("BF.ADD $ a"), yes, "{key}");
                assert_eq!(run("BF.MADD $ a b d b"), array([no.clone(), yes.clone(), no.clone(), no]), "{key}");
                assert_eq!(run("BF.MEXISTS $ a b d"), array([yes.clone(), yes.clone(), yes]));
                assert_eq!(run("BF.CARD $"), integer(3));
            }
        }
    });
}

#[test]
fn what_cannot_delete_says_so_and_a_missing_filter_has_nothing() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            let (yes, no) = (client.answer(true), client.answer(false));
            assert_eq!(client.run("BF.DEL missing a"), no);
            assert_eq!(client.run("BF.MDEL missing a b"), array([no.clone(), no]));
            assert_eq!(client.run("EXISTS missing"), integer(0));
            for (key, line) in [
                ("native", "BF.RESERVE native 0.01 100"),
                ("windowed", "BF.RESERVE windowed 0.01 100 WINDOW 60"),
                ("redisbloom", "BF.RESERVE redisbloom 0.01 100 LAYOUT redisbloom"),
                ("valkey-bloom", "BF.INSERT valkey-bloom TIGHTENING 0.5 ITEMS x"),
            ] {
                client.run(line);
                client.run(&format!("BF.ADD {key} a"));
                let before = digest(&mut client, key);
                assert_eq!(client.run(&format!("BF.DEL {key} a")), error(CANNOT), "{key}");
                assert_eq!(client.run(&format!("BF.MDEL {key} a b")), error(CANNOT), "{key}");
                assert_eq!(client.run(&format!("BF.EXISTS {key} a")), yes);
                assert_eq!(digest(&mut client, key), before);
            }
            client.run("SET string x");
            let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
            assert_eq!(client.run("BF.DEL string a"), error(wrong));
            assert_eq!(client.run("BF.MDEL string a b"), error(wrong));
            client.run("BF.RESERVE whole 0.01 100 HASH siphash");
            let header = client.run("BF.SCANDUMP whole 0");
            let iterator = header.elements()[0].number().to_string();
            let words = [b"BF.LOADCHUNK".as_slice(), b"part", iterator.as_bytes(), header.elements()[1].bytes()];
            assert_eq!(client.call(&words), ok());
            assert_eq!(client.run("BF.DEL part a"), error("ERR filter is still being loaded"));
            assert_eq!(client.run("BF.MDEL part a"), error("ERR filter is still being loaded"));
        }
    });
}

#[test]
fn the_server_knows_the_commands() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for (name, arity) in [("bf.del", 3), ("bf.mdel", -3)] {
            let reply = client.run(&format!("COMMAND INFO {name}"));
            let fields = reply.elements()[0].elements();
            assert_eq!((fields[0].text().as_str(), fields[1].number()), (name, arity));
            let texts = |reply: &Reply| reply.elements().iter().map(Reply::text).collect::<Vec<_>>();
            let flags = texts(&fields[2]);
            assert!(flags.contains(&"write".to_owned()) && !flags.contains(&"denyoom".to_owned()), "{flags:?}");
            let keys: Vec<i64> = fields[3..6].iter().map(Reply::number).collect();
            assert_eq!(keys, [1, 1, 1]);
            let spec = &fields[8].elements()[0];
            let flags = texts(spec.field("flags"));
            assert!(flags.contains(&"RW".to_owned()) && flags.contains(&"delete".to_owned()), "{flags:?}");
            let docs = client.run(&format!("COMMAND DOCS {name}"));
            assert!(docs.elements()[1].field("summary").text().starts_with("Deletes"));
            let repeated = docs.elements()[1].field("arguments").elements().len();
            assert_eq!(repeated, 2, "a key and an item");
            assert!(client.run(&format!("{name} k")).error_text().starts_with("ERR wrong number of arguments"));
            let listed = client.run("ACL CAT bloom");
            if !listed.is_error() {
                assert!(texts(&listed).contains(&name.to_owned()), "{listed:?}");
            }
        }
        assert!(client.run("BF.DEL k a b").error_text().starts_with("ERR wrong number of arguments"));
    });
}

#[test]
fn above_maxmemory_it_deletes_all_the_same() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.RESERVE k 0.01 100 HASH siphash");
        client.run("BF.MADD k a b");
        assert_eq!(client.run("CONFIG SET maxmemory 1"), ok());
        assert!(client.run("BF.ADD k c").error_text().starts_with("OOM"));
        assert_eq!(client.run("BF.DEL k a"), integer(1));
        assert_eq!(client.run("BF.MDEL k b c"), array([integer(1), integer(0)]));
    });
}

#[test]
fn a_full_table_refuses_an_item_and_changes_nothing() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            client.run("BF.RESERVE k 0.01 1000 NONSCALING HASH siphash");
            let items = numbered(0..500);
            call(&mut client, "BF.MADD k", &items);
            let card = client.run("BF.CARD k").number();
            let reply = call(&mut client, "BF.MDEL k", &items);
            let (refused, found) = reply.elements().split_last().unwrap();
            let count = found.iter().filter(|answer| answer.truth()).count();
            let text = format!("ERR no room for more deleted items ({count} entries): rebuild the filter");
            assert_eq!(refused, &error(&text));
            assert!((40..100).contains(&count) && count <= found.len(), "{count} entries");
            assert_eq!(client.run("BF.CARD k"), integer(card - count as i64));
            let before = digest(&mut client, "k");
            assert_eq!(client.call(&["BF.DEL", "k", &items[found.len()]]), error(&text));
            assert_eq!(digest(&mut client, "k"), before);
            let present = client.batched(&[b"BF.MEXISTS", b"k"], &items);
            assert!(!present[..found.len()].contains(&true) && !present[found.len()..].contains(&false));
            // A full filter takes what was deleted from it, and there is room again.
            call(&mut client, "BF.MADD k", &numbered(1000..2500));
            assert_eq!(client.run("BF.ADD k more-than-it-holds"), error("ERR non scaling filter is full"));
            assert!(call(&mut client, "BF.ADD k", &items[..1]).truth());
            assert!(client.call(&["BF.DEL", "k", &items[found.len()]]).truth());
        }
    });
}

#[test]
fn the_ceiling_binds_entries() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
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
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.RESERVE k 0.01 100000 HASH siphash");
        let items = numbered(0..5000);
        call(&mut client, "BF.MADD k", &items);
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

fn with_append_only_file(program: &Path) -> Server {
    Server::with(program)
        .line("appendonly yes")
        .line("aof-use-rdb-preamble no")
        .line("auto-aof-rewrite-percentage 0")
        .start()
}

fn lines(server: &Server) -> Vec<String> {
    let join = |words: &Vec<Vec<u8>>| String::from_utf8_lossy(&words.join(&b' ')).into_owned();
    append_only_commands(server).iter().map(join).collect()
}

#[test]
fn only_what_was_found_is_carried() {
    on_every_server(|program| {
        let server = with_append_only_file(program);
        let mut client = server.connect();
        for (key, words) in [("k", "HASH siphash"), ("w", "HASH siphash WINDOW 60")] {
            client.run(&format!("BF.RESERVE {key} 0.0001 1000 {words}"));
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
                let before = lines(&server).len();
                let dirty = client.info_number("rdb_changes_since_last_save");
                client.run(&command.replace('$', key));
                let carried = lines(&server).split_off(before);
                let expected: Vec<String> = expected.iter().map(|line| line.replace('$', key)).collect();
                assert_eq!(carried, expected, "{command}");
                let changes = client.info_number("rdb_changes_since_last_save") - dirty;
                assert_eq!(changes > 0, !expected.is_empty(), "{command}");
            }
        }
    });
}

#[test]
fn a_restart_brings_everything_back() {
    on_every_server(|program| {
        let mut server = with_append_only_file(program);
        let mut client = server.connect();
        reserve_all(&mut client);
        write_some(&mut client);
        assert_written(&mut client);
        let digests = |client: &mut Connection| FILTERS.map(|(key, _)| digest(client, key));
        let before = digests(&mut client);
        server.restart(Stop::Kill);
        client = server.connect();
        assert_eq!(digests(&mut client), before, "the file as it grew");

        client.run("BGREWRITEAOF");
        eventually("the rewrite to end", || {
            client.info("aof_rewrite_in_progress") == "0" && client.info("aof_rewrite_scheduled") == "0"
        });
        assert_eq!(client.info("aof_last_bgrewrite_status"), "ok");
        assert!(rewritten_commands(&server).iter().any(|words| words[0] == b"BF.LOADCHUNK"));
        for (key, _) in FILTERS {
            call(&mut client, &format!("BF.MDEL {key}"), &numbered(20..25));
            call(&mut client, &format!("BF.MADD {key}"), &numbered(20..25));
        }
        assert_eq!(digests(&mut client)[..2], before[..2], "what was deleted and added again is as it was");
        let before = digests(&mut client);
        server.restart(Stop::Kill);
        client = server.connect();
        assert_eq!(digests(&mut client), before, "the rewritten file, and what came after it");
        assert_written(&mut client);

        assert_eq!(client.run("CONFIG SET appendonly no"), ok());
        assert_eq!(client.run("SAVE"), ok());
        assert_eq!(client.run("DEBUG RELOAD"), ok());
        assert_eq!(digests(&mut client), before, "a snapshot");
        assert_written(&mut client);
    });
}

#[test]
fn copies_payloads_and_dumps_have_the_entries() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        reserve_all(&mut client);
        write_some(&mut client);
        for (key, _) in FILTERS {
            let before = digest(&mut client, key);
            assert_eq!(client.run(&format!("COPY {key} copy")), integer(1));
            assert_eq!(digest(&mut client, "copy"), before);
            let payload = client.run(&format!("DUMP {key}"));
            assert_eq!(client.call(&[b"RESTORE".as_slice(), b"restored", b"0", payload.bytes()]), ok());
            assert_eq!(digest(&mut client, "restored"), before);
            dump(&mut client, key, |_| {});
            assert_eq!(digest(&mut client, "loaded"), before);
            // The table changed since: what was deleted is a maybe in the copy.
            dump(&mut client, key, |client| _ = call(client, &format!("BF.DEL {key}"), &numbered(20..21)));
            let found = client.batched(&[b"BF.MEXISTS", b"loaded"], &numbered(100..120));
            assert_eq!(found.iter().all(|present| *present), digest(&mut client, key) != before);
            client.run("DEL copy restored loaded");
        }
    });
}

/// Loads a dump of a filter; something is done after its first record.
fn dump(client: &mut Connection, key: &str, then: impl Fn(&mut Connection)) {
    client.run("DEL loaded");
    let mut iterator = 0;
    loop {
        let record = client.run(&format!("BF.SCANDUMP {key} {iterator}"));
        iterator = record.elements()[0].number();
        if iterator == 0 {
            return;
        }
        let text = iterator.to_string();
        let words = [b"BF.LOADCHUNK".as_slice(), b"loaded", text.as_bytes(), record.elements()[1].bytes()];
        assert_eq!(client.call(&words), ok(), "{key}");
        then(client);
    }
}

#[test]
fn a_replica_is_equal() {
    on_every_server(|program| {
        let (server, other) = (Server::start(program), Server::with(program).line("bf.max-filter-bytes 10").start());
        let (mut primary, mut replica) = (server.connect(), other.connect());
        let caught_up = |primary: &mut Connection, replica: &mut Connection| {
            eventually("the replica to catch up", || {
                replica.info("master_link_status") == "up"
                    && replica.info_number("slave_repl_offset") >= primary.info_number("master_repl_offset")
            });
            for (key, _) in FILTERS {
                assert_eq!(digest(replica, key), digest(primary, key), "{key}");
            }
        };
        reserve_all(&mut primary);
        call(&mut primary, "BF.MADD fixed", &numbered(0..50));
        call(&mut primary, "BF.MDEL fixed", &numbered(40..60));
        assert_eq!(replica.run(&format!("REPLICAOF 127.0.0.1 {}", server.port)), ok());
        caught_up(&mut primary, &mut replica);
        write_some(&mut primary);
        // Until the table is full.
        let reply = call(&mut primary, "BF.MDEL fixed", &numbered(5000..6000));
        assert!(reply.elements().last().unwrap().is_error());
        caught_up(&mut primary, &mut replica);
        assert_written(&mut replica);
        assert!(replica.run("BF.DEL fixed a").error_text().starts_with("READONLY"));
        assert!(!other.log().contains("== CRITICAL =="), "the replica met a command that failed");
        // It goes on as the primary did.
        assert_eq!(replica.run("REPLICAOF NO ONE"), ok());
        assert!(call(&mut replica, "BF.ADD fixed", &numbered(5000..5001)).truth());
    });
}

#[test]
fn a_delete_that_comes_after_a_buckets_end_begins_the_next_first() {
    on_every_server(|program| {
        let server = with_append_only_file(program);
        let mut client = server.connect();
        client.run("BF.RESERVE w 0.01 100 HASH siphash WINDOW 2 BUCKETS 3");
        client.run("BF.MADD w a b");
        // A bucket takes items for a second, and is forgotten after three.
        let before = lines(&server).len();
        eventually("the bucket to end", || {
            client.run("BF.DEL w absent");
            lines(&server).len() > before
        });
        let carried = lines(&server).split_off(before);
        assert!(carried.len() == 1 && carried[0].starts_with("BF.ROTATE w 1 "), "{carried:?}");
    });
}

#[test]
fn those_who_watch_and_listen_hear_of_what_was_deleted() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        assert_eq!(client.run("CONFIG SET notify-keyspace-events KEA"), ok());
        client.run("BF.RESERVE k 0.01 100 HASH siphash");
        client.run("BF.MADD k a b c");
        let mut listener = server.connect();
        listener.run("SUBSCRIBE __keyspace@0__:k");
        client.run("BF.DEL k absent");
        client.run("BF.MDEL k absent absent");
        client.run("BF.DEL k a");
        client.run("BF.MDEL k a b absent");
        client.run("SET k x");
        for event in ["bloom.del", "bloom.del", "set"] {
            assert_eq!(listener.receive().unwrap().elements()[2].text(), event);
        }
        client.run("BF.RESERVE w 0.01 100 HASH siphash");
        client.run("BF.MADD w a b");
        let mut other = server.connect();
        for (line, breaks) in [("BF.DEL w absent", false), ("BF.MDEL w b absent", true), ("BF.MDEL w b", false)] {
            client.run("WATCH w");
            other.run(line);
            client.run("MULTI");
            client.run("PING");
            let outcome = client.run("EXEC");
            assert_eq!(outcome == array([simple("PONG")]), !breaks, "{line}");
        }
    });
}
