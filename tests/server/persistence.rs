//! Properties of files: their sizes, databases, writes during a save. `transfer` tests that files restore every filter.

use std::fs;

use testing::{Connection, Server, Stop, array, eventually, integer, ok, on_every_server, with_client};

#[test]
fn an_empty_filter_saves_in_bytes() {
    with_client(|server, client| {
        let saved = |client: &mut Connection| {
            assert_eq!(client.run("SAVE"), ok());
            fs::metadata(server.folder().join("dump.rdb")).expect("a snapshot").len()
        };
        let without = saved(client);
        for (key, words) in [("fixed", " NONSCALING"), ("growing", "")] {
            let before = saved(client);
            assert_eq!(client.run(&format!("BF.RESERVE {key} 0.01 55500000{words}")), ok());
            assert!(client.run(&format!("BF.INFO {key} SIZE")).elements()[0].number() >= 64 << 20);
            let after = saved(client);
            assert!(after - before < 2048, "an empty {key} filter took {} bytes", after - before);
            assert!(client.run(&format!("DUMP {key}")).bytes().len() < 2048);
        }
        client.run("FLUSHALL");
        assert!(saved(client) <= without + 16);
    });
}

/// The server treats a value of a built-in type the same. Redis 7.0.15 also must exit, instead of checking the file for ever.
#[test]
fn a_snapshot_that_ends_early_stops_the_start() {
    on_every_server(|program| {
        let mut server = Server::start(program);
        let mut client = server.connect();
        for (key, words) in [
            ("native", ""),
            ("counting", " COUNTING"),
            ("cuckoo", " CUCKOO"),
            ("window", " WINDOW 3600"),
            ("redisbloom", " LAYOUT redisbloom"),
        ] {
            client.run(&format!("BF.RESERVE {key} 0.01 5000{words}"));
            let items: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
            client.batched(&[b"BF.MADD", key.as_bytes()], &items);
        }
        server.stop(Stop::Save);
        let path = server.folder().join("dump.rdb");
        let whole = fs::read(&path).expect("a snapshot");
        for part in 1..16 {
            fs::write(&path, &whole[..whole.len() * part / 16]).expect("a part of it");
            let before = server.log().len();
            let log = server.refuses_to_start_again()[before..].to_owned();
            assert!(log.contains("the data ends too early") || log.contains("Unexpected EOF"), "{part}/16: {log}");
        }
        fs::write(&path, &whole).expect("the snapshot");
        server.start_again();
        assert_eq!(server.connect().run("BF.MEXISTS counting 1 1999"), array([integer(1), integer(1)]));
    });
}

#[test]
fn other_databases_are_kept_apart() {
    on_every_server(|program| {
        let mut server = Server::with(program).line("appendonly yes").line("aof-use-rdb-preamble no").start();
        let mut client = server.connect();
        client.run("BF.ADD k zero");
        client.run("SELECT 9");
        client.run("BF.ADD k nine");
        rewrite_append_only_file(&mut client);
        server.restart(Stop::Kill);
        let mut client = server.connect();
        assert_eq!(client.run("BF.MEXISTS k zero nine"), array([integer(1), integer(0)]));
        client.run("SELECT 9");
        assert_eq!(client.run("BF.MEXISTS k zero nine"), array([integer(0), integer(1)]));
    });
}

#[test]
fn adds_continue_while_a_snapshot_is_written() {
    on_every_server(|program| {
        let mut server = Server::with(program).line("rdb-key-save-delay 100000").start();
        let mut client = server.connect();
        for number in 0..5 {
            client.run(&format!("BF.ADD other-{number} x"));
        }
        client.run("BF.MADD k a b");
        let digest = client.run("DEBUG DIGEST-VALUE k");
        client.run("BGSAVE");
        assert_eq!(client.run("BF.MADD k c d"), array([integer(1), integer(1)]));
        wait_for_background_save(&mut client);
        // The snapshot has the state at its begin.
        server.restart(Stop::NoSave);
        let mut client = server.connect();
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest);
        assert_eq!(client.run("BF.MEXISTS k a b c d"), array([integer(1), integer(1), integer(0), integer(0)]));
    });
}

/// Rewrites the append-only file and waits for the end.
pub fn rewrite_append_only_file(client: &mut Connection) {
    client.run("BGREWRITEAOF");
    eventually("the rewrite of the append-only file", || !client.has_rewrite());
    assert_eq!(client.info("aof_last_bgrewrite_status"), "ok");
}

/// Saves in the background and waits for the end.
pub fn save_in_background(client: &mut Connection) {
    client.run("BGSAVE");
    wait_for_background_save(client);
}

fn wait_for_background_save(client: &mut Connection) {
    eventually("the background save", || client.info("rdb_bgsave_in_progress") == "0");
    assert_eq!(client.info("rdb_last_bgsave_status"), "ok");
}
