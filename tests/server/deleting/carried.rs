//! What a delete writes to the append-only file and propagates to replicas.

use super::{FILTERS, KEYED, assert_written, call, numbered, reserve_all, write_some};
use testing::{
    Server, catch_up, digest, eventually, follow, integer, lines, ok, on_every_server, with_append_only_file,
};

#[test]
fn only_what_was_found_is_carried() {
    on_every_server(|program| {
        let server = with_append_only_file(program);
        let mut client = server.connect();
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
fn a_full_table_is_full_on_a_replica_whatever_its_ceiling() {
    on_every_server(|program| {
        let (server, other) = (Server::start(program), Server::with(program).line("bf.max-filter-bytes 10").start());
        let (mut primary, mut replica) = (server.connect(), other.connect());
        reserve_all(&mut primary);
        follow(&mut replica, &server);
        write_some(&mut primary);
        let reply = call(&mut primary, "BF.MDEL fixed", &numbered(5000..6000));
        assert!(reply.elements().last().unwrap().is_error());
        catch_up(&mut primary, &mut replica);
        for (key, _) in FILTERS {
            assert_eq!(digest(&mut replica, key), digest(&mut primary, key), "{key}");
        }
        assert_written(&mut primary);
        assert_written(&mut replica);
        assert!(!other.log().contains("== CRITICAL =="), "the replica met a command that failed");
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
