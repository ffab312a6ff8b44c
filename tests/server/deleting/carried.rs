//! What a delete writes to the append-only file, propagates to replicas, and signals to clients that watch or listen.

use super::{FILTERS, assert_written, call, numbered, reserve_all, write_some};
use crate::harness::{
    Connection, Server, array, catch_up, digest, eventually, follow, integer, lines, ok, on_every_server, simple,
    with_append_only_file,
};

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
fn a_replica_is_equal() {
    on_every_server(|program| {
        let (server, other) = (Server::start(program), Server::with(program).line("bf.max-filter-bytes 10").start());
        let (mut primary, mut replica) = (server.connect(), other.connect());
        let caught_up = |primary: &mut Connection, replica: &mut Connection| {
            catch_up(primary, replica);
            for (key, _) in FILTERS {
                assert_eq!(digest(replica, key), digest(primary, key), "{key}");
            }
        };
        reserve_all(&mut primary);
        call(&mut primary, "BF.MADD fixed", &numbered(0..50));
        call(&mut primary, "BF.MDEL fixed", &numbered(40..60));
        follow(&mut replica, &server);
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
fn a_delete_after_a_buckets_end_begins_no_bucket() {
    on_every_server(|program| {
        let server = with_append_only_file(program);
        let mut client = server.connect();
        client.run("BF.RESERVE w 0.01 100 HASH siphash WINDOW 2 BUCKETS 3");
        client.run("BF.MADD w a b");
        // A bucket takes items for a second, and is forgotten after three.
        let before = lines(&server).len();
        eventually("the window to pass", || !client.run("BF.EXISTS w a").truth());
        assert_eq!(client.run("BF.DEL w a"), integer(0));
        assert_eq!(lines(&server).len(), before);
        client.run("BF.ADD w c");
        let carried = lines(&server).split_off(before);
        assert!(carried.len() == 2 && carried[0].starts_with("BF.ROTATE w "), "{carried:?}");
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
