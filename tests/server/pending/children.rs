//! Which children of the server cause pending adds, and when these are flushed.

use super::{
    add, all_written, assert_has, begin_endless_save, begin_stopped, children, digest, items, kill, kill_child,
    no_child, pending, reserve,
};
use testing::{
    Connection, Server, Stop, catch_up, follow, integer, ok, on_every_server, with_append_only_file, with_client,
};

#[test]
fn adds_pend_while_a_child_saves_and_are_counted() {
    with_client(|server, client| {
        reserve(client, "k");
        add(client, "k", 0..1000);
        assert_eq!(pending(client), 0);
        let (usage, size) = (client.run("MEMORY USAGE k").number(), client.run("BF.INFO k SIZE"));

        begin_endless_save(client);
        assert_eq!(add(client, "k", 500..3000), 2000);
        assert_eq!(client.run("BF.ADD k single"), integer(1));
        assert_eq!(client.run("BF.ADD k single"), integer(0));
        let bytes = pending(client);
        assert!((2001 * 17..2001 * 60).contains(&bytes), "{bytes}");
        assert_eq!(client.run("BF.STATS k").field("Size of pending adds").number(), bytes);
        // The pointers to the pending adds and to the table of deleted items are not among the bytes of the pending adds.
        assert_eq!(client.run("MEMORY USAGE k").number(), usage + bytes + 16);
        assert_eq!(client.run("BF.INFO k SIZE"), size, "equal filters have equal sizes");
        assert_eq!(client.run("BF.CARD k"), integer(3001));
        assert_eq!(add(client, "k", 0..3000), 0);
        assert_has(client, "k", 0..3000);
        assert_eq!(client.run("BF.EXISTS k single"), integer(1));
        let before = (digest(client), client.run("BF.STATS k").field("Number of items estimated").clone());

        kill_child(server, client);
        all_written(client);
        assert_eq!((digest(client), client.run("BF.STATS k").field("Number of items estimated").clone()), before);
        assert_eq!(client.run("BF.STATS k").field("Size of pending adds").number(), 0);
        assert_eq!(client.run("MEMORY USAGE k").number(), usage);
        assert_has(client, "k", 0..3000);
        assert_eq!(client.run("BF.CARD k"), integer(3001));
        add(client, "k", 3000..3100);
        assert_eq!(pending(client), 0, "there is no child");
    });
}

#[test]
fn new_and_small_filters_have_no_pending_adds() {
    with_client(|server, client| {
        for (key, words) in [
            ("small", "0.01 100000"),
            ("counting", "0.01 3500000 COUNTING"),
            ("theirs", "0.01 3500000 LAYOUT redisbloom"),
        ] {
            assert_eq!(client.run(&format!("BF.RESERVE {key} {words}")), ok());
        }
        begin_endless_save(client);
        client.run("BF.INSERT new CAPACITY 3500000 ITEMS a b c");
        assert_eq!(pending(client), 0);
        for key in ["small", "counting", "theirs"] {
            add(client, key, 0..1000);
        }
        assert_eq!(pending(client), 0);
        client.run("BF.ADD new d");
        assert!(pending(client) > 0);
        assert_eq!(client.run("BF.MEXISTS new a b c d").elements().len(), 4);
        kill_child(server, client);
        all_written(client);
    });
}

/// The script debugger forks, but the server raises no event when its child exits.
#[test]
fn a_debugger_of_scripts_neither_begins_nor_ends_it() {
    with_client(|server, client| {
        reserve(client, "k");
        let debug = |what: &str| {
            let mut debugger = server.connect();
            assert_eq!(debugger.run("SCRIPT DEBUG YES"), ok());
            debugger.send(&["EVAL", what, "1", "k"]).expect("the server takes the script");
            // The debugger's position. During a save, some servers end a session as soon as it has begun; only the fork matters.
            debugger.receive().ok().map(|_| debugger)
        };
        const SCRIPT: &str =
            "redis.call('BF.ADD', KEYS[1], 'in the session') return redis.call('BF.EXISTS', KEYS[1], 'in the session')";
        let end = |session: Option<Connection>| {
            let mut debugger = session?;
            debugger.send(&["continue"]).ok()?;
            let _end = debugger.receive().ok()?;
            debugger.receive().ok()
        };

        let session = debug(SCRIPT);
        add(client, "k", 0..100);
        assert_eq!(pending(client), 0, "no child has started whose exit raises an event");
        assert_eq!(end(session), Some(integer(1)));

        let sessions = children(server);
        begin_endless_save(client);
        let saver: Vec<_> = children(server).into_iter().filter(|child| !sessions.contains(child)).collect();
        assert_eq!(saver.len(), 1);
        let session = debug(SCRIPT);
        add(client, "k", 100..200);
        let bytes = pending(client);
        assert!(bytes > 0, "the save continues");
        let _ = end(session);
        add(client, "k", 200..1200);
        assert!(pending(client) > bytes, "and still");
        // A session that began with the save and ends after it.
        let session = debug(SCRIPT);
        kill(&saver);
        no_child(client);
        all_written(client);
        add(client, "k", 1200..1300);
        assert_eq!(pending(client), 0, "the session is no child to wait for");
        let _ = end(session);
        assert_has(client, "k", 0..1300);
        assert_eq!(client.run("BF.EXISTS k in"), integer(0));
    });
}

#[test]
fn a_primary_that_becomes_a_replica_writes_at_once() {
    with_client(|server, client| {
        reserve(client, "k");
        begin_endless_save(client);
        add(client, "k", 0..3000);
        assert!(pending(client) > 0);
        let before = digest(client);
        // No server listens there.
        assert_eq!(client.run("REPLICAOF 127.0.0.1 1"), ok());
        all_written(client);
        assert_eq!(client.info_number("rdb_bgsave_in_progress"), 1, "though the child lives");
        assert_eq!(digest(client), before);
        assert_has(client, "k", 0..3000);
        client.run("CONFIG SET replica-read-only no");
        add(client, "k", 3000..3100);
        assert_eq!(pending(client), 0, "in a replica nothing pends");
        assert_eq!(client.run("REPLICAOF NO ONE"), ok());
        add(client, "k", 4000..4100);
        assert!(pending(client) > 0);
        kill_child(server, client);
        all_written(client);
    });
}

#[test]
fn effects_do_not_pend() {
    on_every_server(|program| {
        let (server, other) = (Server::start(program), Server::start(program));
        let (mut client, mut replica) = (server.connect(), other.connect());
        reserve(&mut client, "k");
        follow(&mut replica, &server);
        no_child(&mut client);
        begin_endless_save(&mut replica);
        begin_endless_save(&mut client);
        add(&mut client, "k", 0..3000);
        assert!(pending(&mut client) > 0);
        catch_up(&mut client, &mut replica);
        assert_eq!(pending(&mut replica), 0);
        assert_eq!(digest(&mut client), digest(&mut replica));
        assert_has(&mut replica, "k", 0..3000);
        for (server, client) in [(&server, &mut client), (&other, &mut replica)] {
            kill_child(server, client);
            all_written(client);
        }
        assert_eq!(digest(&mut client), digest(&mut replica));
    });
}

#[test]
fn above_maxmemory_adds_are_written() {
    with_client(|server, client| {
        reserve(client, "k");
        begin_endless_save(client);
        add(client, "k", 0..100);
        let before = pending(client);
        assert!(before > 0);
        let limit = client.info_number("used_memory") / 2;
        assert_eq!(client.run(&format!("CONFIG SET maxmemory {limit}")), ok());
        // Other ways to write do not exceed the limit either.
        let script = "#!lua flags=allow-oom\nfor i = 1, 500 do redis.call('BF.ADD', KEYS[1], 'above ' .. i) end return redis.call('BF.CARD', KEYS[1])";
        assert_eq!(client.call(&["EVAL", script, "1", "k"]), integer(600));
        client.run("CONFIG SET maxmemory 0");
        assert_eq!(pending(client), before);
        client.run("BF.ADD k below");
        kill_child(server, client);
        all_written(client);
    });
}

/// Adds to a filter of 30 MB near the limit. Its set of pending adds may take an eighth of that size.
#[test]
fn near_maxmemory_a_save_neither_refuses_adds_nor_evicts_other_keys() {
    on_every_server(|program| {
        for policy in ["noeviction", "allkeys-lru"] {
            let server = Server::start(program);
            let mut client = server.connect();
            assert_eq!(client.run("BF.RESERVE k 0.01 22200000 NONSCALING"), ok());
            for number in 0..2000 {
                client.run(&format!("SET other-{number} {}", "x".repeat(500)));
            }
            begin_endless_save(&mut client);
            let limit = client.info_number("used_memory") + 1_500_000;
            assert_eq!(client.run(&format!("CONFIG SET maxmemory {limit} maxmemory-policy {policy}")), ok());
            assert_eq!(add(&mut client, "k", 0..200_000), 200_000, "{policy}");
            assert_eq!(client.info_number("evicted_keys"), 0, "{policy}");
            assert_has(&mut client, "k", 0..200_000);
            kill_child(&server, &mut client);
            all_written(&mut client);
        }
    });
}

/// Other keys may use up the room that was available when the pending adds began.
#[test]
fn pending_adds_do_not_use_up_the_last_room() {
    with_client(|server, client| {
        assert_eq!(client.run("BF.RESERVE k 0.01 22200000 NONSCALING"), ok());
        let limit = client.info_number("used_memory") + 8_000_000;
        assert_eq!(client.run(&format!("CONFIG SET maxmemory {limit}")), ok());
        begin_endless_save(client);
        add(client, "k", 0..40_000);
        let before = pending(client);
        assert!(before > 500_000, "{before}");
        let mut number = 0;
        while limit - client.info_number("used_memory") > 2_000_000 {
            assert_eq!(client.run(&format!("SET other-{number} {}", "x".repeat(100_000))), ok());
            number += 1;
        }
        assert_eq!(add(client, "k", 40_000..240_000), 200_000);
        assert_eq!(pending(client), before, "the rest is written");
        assert_has(client, "k", 0..240_000);
        kill_child(server, client);
        all_written(client);
    });
}

#[test]
fn pending_adds_are_in_every_later_save() {
    on_every_server(|program| {
        let mut server = Server::start(program);
        let mut client = server.connect();
        reserve(&mut client, "k");
        client.run("SET other x");
        let mut last = String::new();
        for round in 0..4 {
            let first = round * 20_000;
            let child = begin_stopped(&server, &mut client, "BGSAVE");
            add(&mut client, "k", first..first + 20_000);
            assert!(pending(&mut client) > 0);
            drop(child);
            no_child(&mut client);
            // Immediately, while most adds from the last save are still pending.
            last = digest(&mut client);
            assert!(!client.run("BGSAVE").is_error());
            no_child(&mut client);
            assert_eq!(client.info("rdb_last_bgsave_status"), "ok");
        }
        server.restart(Stop::Kill);
        let mut client = server.connect();
        assert_eq!(digest(&mut client), last);
        assert_has(&mut client, "k", 0..80_000);
        assert_eq!(pending(&mut client), 0);
    });
}

#[test]
fn a_rewritten_append_only_file_has_the_pending_adds() {
    on_every_server(|program| {
        for preamble in ["yes", "no"] {
            let mut server = with_append_only_file(program);
            let mut client = server.connect();
            client.run(&format!("CONFIG SET aof-use-rdb-preamble {preamble}"));
            reserve(&mut client, "k");
            client.run("SET other x");
            add(&mut client, "k", 0..1000);
            let child = begin_stopped(&server, &mut client, "BGREWRITEAOF");
            add(&mut client, "k", 1000..4000);
            assert!(pending(&mut client) > 0, "beside a rewrite");
            drop(child);
            no_child(&mut client);
            // While some adds may still be pending.
            assert!(!client.run("BGREWRITEAOF").is_error());
            no_child(&mut client);
            let before = digest(&mut client);
            server.restart(Stop::Kill);
            let mut client = server.connect();
            assert_eq!(digest(&mut client), before, "{preamble}");
            assert_has(&mut client, "k", 0..4000);
        }
    });
}

#[test]
fn adds_that_find_no_memory_to_pend_are_written() {
    on_every_server(|program| {
        let server = Server::with(program).with_faults("").start();
        let mut client = server.connect();
        let expected = {
            reserve(&mut client, "k");
            add(&mut client, "k", 0..4000);
            let expected = client.run("DEBUG DIGEST-VALUE k");
            client.run("DEL k");
            expected
        };
        for fault in ["1 ON", "2 ON", "3", "5 ON", "9", "12 ON", "20 ON"] {
            reserve(&mut client, "k");
            begin_endless_save(&mut client);
            let commands: Vec<Vec<String>> = items(0..4000).chunks(500).map(<[String]>::to_vec).collect();
            for chunk in commands {
                client.run(&format!("FAULTS.FAIL {fault}"));
                let words: Vec<&str> = ["BF.MADD", "k"].into_iter().chain(chunk.iter().map(String::as_str)).collect();
                let reply = client.call(&words);
                client.run("FAULTS.FAIL 0");
                if reply.is_error() {
                    // The list of propagated items: nothing has changed.
                    assert!(!client.call(&words).is_error());
                } else {
                    assert!(reply.elements().iter().all(|answer| *answer == integer(1)), "{fault}");
                }
            }
            assert_eq!(client.run("DEBUG DIGEST-VALUE k"), expected);
            assert_has(&mut client, "k", 0..4000);
            kill_child(&server, &mut client);
            // If memory for the key's name was refused, the timer finds the key.
            all_written(&mut client);
            assert_eq!(client.run("DEBUG DIGEST-VALUE k"), expected);
            client.run("DEL k");
        }
    });
}
