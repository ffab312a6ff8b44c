//! A filter is the same after a restart, whatever its kind: snapshot, append-only file, both, DEBUG RELOAD.

use std::fs;

use crate::zoo::{Zoo, assert_same};
use testing::{
    Connection, Server, Stop, append_only_commands, array, digest, dump, eventually, integer, ok, on_every_server,
    restore, rewritten_commands, with_client,
};

#[test]
fn a_snapshot_brings_everything_back() {
    on_every_server(|program| {
        let mut server = Server::start(program);
        let mut client = server.connect();
        let zoo = Zoo::build(&mut client);
        let before = zoo.view(&mut client);

        assert_eq!(client.run("SAVE"), ok());
        server.restart(Stop::Kill);
        assert_same("SAVE and kill -9", &before, &zoo.view(&mut server.connect()));

        server.restart(Stop::Save);
        let mut client = server.connect();
        assert_same("SHUTDOWN SAVE", &before, &zoo.view(&mut client));

        client.run("BGSAVE");
        wait_for_background_save(&mut client);
        server.restart(Stop::NoSave);
        let mut client = server.connect();
        assert_same("BGSAVE", &before, &zoo.view(&mut client));

        // What was loaded is a live filter: it grows as the original would.
        assert_eq!(client.run("BF.INFO grown-fast FILTERS"), array([integer(3)]));
        let more: Vec<String> = (0..30_000).map(|number| format!("more/{number}")).collect();
        client.batched(&[b"BF.MADD", b"grown-fast"], &more);
        assert_eq!(client.run("BF.INFO grown-fast FILTERS"), array([integer(4)]));
        assert!(client.batched(&[b"BF.MEXISTS", b"grown-fast"], &more).iter().all(|&present| present));
    });
}

#[test]
fn debug_reload_changes_nothing() {
    with_client(|_, client| {
        let zoo = Zoo::build(client);
        let before = zoo.view(client);
        let whole = client.run("DEBUG DIGEST");
        client.run("CONFIG SET bf.max-filter-bytes 100");
        for round in ["DEBUG RELOAD", "DEBUG RELOAD again"] {
            assert_eq!(client.run("DEBUG RELOAD"), ok());
            assert_same(round, &before, &zoo.view(client));
            assert_eq!(client.run("DEBUG DIGEST"), whole);
        }
    });
}

#[test]
fn an_append_only_file_brings_everything_back_whatever_the_ceiling_says() {
    on_every_server(|program| {
        for preamble in ["no", "yes"] {
            let mut server = Server::with(program)
                .line("appendonly yes")
                .line(&format!("aof-use-rdb-preamble {preamble}"))
                .line("auto-aof-rewrite-percentage 0")
                .start();
            let mut client = server.connect();
            let zoo = Zoo::build(&mut client);
            let before = zoo.view(&mut client);

            for key in zoo.keys() {
                assert_eq!(client.call(&[b"COPY", key, b"copied", b"REPLACE"]), integer(1));
            }
            let copied = digest(&mut client, "copied");
            client.run("CONFIG SET bf.max-filter-bytes 100");
            client.run("CONFIG REWRITE");
            server.restart(Stop::Kill);
            let mut client = server.connect();
            assert_eq!(client.run("CONFIG GET bf.max-filter-bytes").elements()[1].text(), "100");
            assert_same("the commands as they were written", &before, &zoo.view(&mut client));
            assert_eq!(digest(&mut client, "copied"), copied, "the last copy");
            for key in zoo.keys() {
                let payload = dump(&mut client, key);
                assert!(restore(&mut client, "by-a-client", &payload).is_error(), "{}", key.escape_ascii());
            }

            rewrite_append_only_file(&mut client);
            assert_same("BGREWRITEAOF leaves the server as it was", &before, &zoo.view(&mut client));
            assert_eq!(append_only_commands(&server), Vec::<Vec<Vec<u8>>>::new());
            if preamble == "no" {
                let names = [b"BF.LOADCHUNK".as_slice(), b"BF.LOAD", b"PEXPIREAT"];
                assert!(rewritten_commands(&server).iter().all(|words| names.contains(&words[0].as_slice())));
            }
            server.restart(Stop::Kill);
            let mut client = server.connect();
            assert_same(&format!("rewrite, preamble {preamble}"), &before, &zoo.view(&mut client));

            // Writes after a rewrite, then another rewrite of what was loaded.
            client.run("CONFIG SET bf.max-filter-bytes 0");
            zoo.write(&mut client, 0);
            let before = zoo.view(&mut client);
            server.restart(Stop::Kill);
            let mut client = server.connect();
            assert_same("writes after a rewrite", &before, &zoo.view(&mut client));
            rewrite_append_only_file(&mut client);
            assert_eq!(client.run("DEBUG LOADAOF"), ok());
            assert_same("a second rewrite", &before, &zoo.view(&mut client));
        }
    });
}

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
fn adds_go_on_while_a_snapshot_is_written() {
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
        // The snapshot is of the moment at which it began.
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

fn wait_for_background_save(client: &mut Connection) {
    eventually("the background save", || client.info("rdb_bgsave_in_progress") == "0");
    assert_eq!(client.info("rdb_last_bgsave_status"), "ok");
}
