//! Every way to save, copy and restore the filters of a server: its files, replicas, payloads, records, other keys, other databases, other
//! servers. The filters must be unchanged after each.

use std::path::Path;
use std::slice;

use crate::every_filter::{EveryFilter, assert_same};
use crate::persistence::{rewrite_append_only_file, save_in_background};
use crate::replaying::assert_replays;
use crate::replication::write_some;
use testing::{
    Builder, Connection, Reply, Server, Stop, append_only_commands, catch_up, digest, dump, error, eventually, follow,
    integer, load_record, load_records, ok, on_every_server, records, rewritten_commands, simple,
    with_append_only_file,
};

/// Compares the filters of a connection's database with their earlier state, on the named occasion.
pub type Check<'a> = &'a dyn Fn(&str, &mut Connection);

/// A server whose own settings would create other filters and refuse another server's filters.
pub fn contrary(program: &Path) -> Builder {
    let lines = [
        "bf.expansion-factor 0",
        "bf.max-filter-bytes 500",
        "bf.hash siphash",
        "bf.bloom-tightening-ratio 0.9",
        "bf.bloom-use-random-seed no",
    ];
    let builder = Server::with(program).module_words("ERROR_RATE 0.2 INITIAL_SIZE 7");
    lines.iter().fold(builder, |builder, line| builder.line(line))
}

/// Restarts a server on its own append-only file and snapshot, and replicates its data, regardless of its ceiling.
pub fn through_files_and_replicas(program: &Path, server: &mut Server, check: Check<'_>) {
    let mut client = server.connect();
    check("as it was", &mut client);
    let usual = client.run("CONFIG GET bf.max-filter-bytes").elements()[1].text();
    assert_eq!(client.run("CONFIG SET bf.max-filter-bytes 100 aof-use-rdb-preamble no"), ok());
    client.run("CONFIG REWRITE");
    let mut restart = |how: Stop, occasion: &str| {
        server.restart(how);
        let mut client = server.connect();
        assert_eq!(client.run("CONFIG GET bf.max-filter-bytes").elements()[1].text(), "100");
        check(occasion, &mut client);
        client
    };
    for occasion in ["DEBUG RELOAD", "DEBUG RELOAD again"] {
        assert_eq!(client.run("DEBUG RELOAD"), ok());
        check(occasion, &mut client);
    }
    client = restart(Stop::Kill, "the commands as they were written, and kill -9");
    for preamble in ["no", "yes"] {
        client.run(&format!("CONFIG SET aof-use-rdb-preamble {preamble}"));
        rewrite_append_only_file(&mut client);
        check("BGREWRITEAOF leaves the server as it was", &mut client);
        client = restart(Stop::Kill, &format!("a rewrite, preamble {preamble}"));
    }

    assert_eq!(client.run("CONFIG SET appendonly no"), ok());
    client.run("CONFIG REWRITE");
    assert_eq!(client.run("SAVE"), ok());
    restart(Stop::Kill, "SAVE and kill -9");
    client = restart(Stop::Save, "SHUTDOWN SAVE");
    save_in_background(&mut client);
    client = restart(Stop::NoSave, "BGSAVE");
    assert_eq!(client.run(&format!("CONFIG SET appendonly yes bf.max-filter-bytes {usual}")), ok());
    client.run("CONFIG REWRITE");
    eventually("the append-only file", || !client.has_rewrite());

    assert_eq!(client.run("CONFIG SET repl-diskless-sync-delay 0"), ok());
    for (diskless, load) in [("no", "disabled"), ("yes", "swapdb")] {
        client.run(&format!("CONFIG SET repl-diskless-sync {diskless}"));
        let other = contrary(program).line(&format!("repl-diskless-load {load}")).start();
        let mut replica = other.connect();
        assert_eq!(replica.run("BF.ADD of-its-own x"), integer(1));
        follow(&mut replica, server);
        catch_up(&mut client, &mut replica);
        assert_eq!(replica.run("EXISTS of-its-own"), integer(0));
        check(&format!("a full synchronisation, diskless {diskless}, load {load}"), &mut replica);
    }
}

/// Copies filters to other keys, other databases and another server, and back.
pub fn through_clients(program: &Path, server: &Server, keys: &[&[u8]], check: Check<'_>) {
    let client = &mut server.connect();
    client.run("SWAPDB 0 5");
    assert_eq!(client.run("DBSIZE"), integer(0));
    client.run("SELECT 5");
    check("SWAPDB", client);
    for key in keys {
        assert_eq!(client.call(&[b"MOVE".as_slice(), key, b"0"]), integer(1));
    }
    client.run("SELECT 0");
    check("MOVE", client);
    for key in keys {
        assert_eq!(client.call(&[b"RENAME".as_slice(), key, b"new name"]), ok());
        assert_eq!(client.call(&[b"RENAME".as_slice(), b"new name", key]), ok());
    }
    check("RENAME", client);

    for key in keys {
        assert_eq!(client.call(&[b"COPY".as_slice(), key, b"copied", b"DB", b"3"]), integer(1));
        client.run("SELECT 3");
        let payload = dump(client, "copied");
        let expires = client.run("PEXPIRETIME copied").number().max(0).to_string();
        client.run("DEL copied");
        client.run("SELECT 0");
        client.call(&[b"DEL", *key]);
        let words = [b"RESTORE".as_slice(), key, expires.as_bytes(), &payload, b"ABSTTL"];
        assert_eq!(client.call(&words), ok(), "{}", key.escape_ascii());
        assert!(dump(client, key) == payload, "the same payload comes out again");
    }
    check("COPY, DUMP and RESTORE", client);

    let there = Server::start(program);
    for (source, target) in [(server, &there), (&there, server)] {
        let (mut from, mut to, port) = (source.connect(), target.connect(), target.port.to_string());
        for key in keys {
            let expires = from.call(&[b"PEXPIRETIME", *key]).number();
            // MIGRATE interprets an empty key as "see KEYS", so the filter is moved under another name.
            assert_eq!(from.call(&[b"RENAME".as_slice(), key, b"moved"]), ok());
            assert_eq!(from.call(&["MIGRATE", "127.0.0.1", &port, "moved", "0", "60000"]), ok());
            assert_eq!(from.run("EXISTS moved"), integer(0));
            assert_eq!(to.call(&[b"RENAME".as_slice(), b"moved", key]), ok());
            if expires > 0 {
                // MIGRATE sends the remaining time to live, so the duration of the move is added at the destination.
                let late = to.call(&[b"PEXPIRETIME", *key]).number() - expires;
                assert!((0..600_000).contains(&late), "{late} ms");
                to.call(&[b"PEXPIREAT".as_slice(), key, expires.to_string().as_bytes()]);
            }
        }
        check("MIGRATE", &mut to);
    }
}

#[test]
fn a_filter_of_any_kind_is_the_same_after_every_way() {
    on_every_server(|program| {
        let mut server = with_append_only_file(program);
        let filters = EveryFilter::build(&mut server.connect());
        let before = filters.view(&mut server.connect());
        let check = |occasion: &str, client: &mut Connection| assert_same(occasion, &before, &filters.view(client));
        through_files_and_replicas(program, &mut server, &check);
        let keys: Vec<&[u8]> = filters.keys().collect();
        through_clients(program, &server, &keys, &check);
    });
}

/// Writes by every command reach replicas with different settings, a server to which a client replays the append-only file, and the file
/// itself, before and after rewrites.
#[test]
fn writes_to_filters_of_every_kind_reach_files_and_replicas() {
    on_every_server(|program| {
        let mut server = with_append_only_file(program);
        let others = [contrary(program).start(), contrary(program).line("bf.layout redisbloom").start()];
        let mut client = server.connect();
        let mut replicas = others.each_ref().map(Server::connect);
        // One replica gets every command, the other a snapshot and then commands.
        follow(&mut replicas[0], &server);
        let filters = EveryFilter::build(&mut client);
        follow(&mut replicas[1], &server);
        for round in 0..3 {
            if round == 2 {
                rewrite_append_only_file(&mut client);
                assert_eq!(append_only_commands(&server), Vec::<Vec<Vec<u8>>>::new());
                let names = [b"BF.LOADCHUNK".as_slice(), b"BF.LOAD", b"PEXPIREAT"];
                assert!(rewritten_commands(&server).iter().all(|words| names.contains(&words[0].as_slice())));
            }
            write_some(&mut client, round);
            filters.write(&mut client, round);
        }
        let (written, whole) = (filters.view(&mut client), client.run("DEBUG DIGEST"));
        for (replica, other) in replicas.iter_mut().zip(&others) {
            catch_up(&mut client, replica);
            assert_same("live stream", &written, &filters.view(replica));
            assert_eq!(replica.run("DEBUG DIGEST"), whole);
            assert!(replica.run("BF.ADD fixed x").error_text().starts_with("READONLY"));
            assert!(replica.run("BF.DEL deleted-fixed x").error_text().starts_with("READONLY"));
            assert!(!other.log().contains("== CRITICAL =="), "the replica met a command that failed");
        }
        assert_eq!(client.info_number("sync_full"), 2);
        let copy = assert_replays(program, &server);
        assert_same("replayed", &written, &filters.view(&mut copy.connect()));
        server.restart(Stop::Kill);
        let mut client = server.connect();
        assert_same("writes after a rewrite", &written, &filters.view(&mut client));
        assert_eq!(client.run("DEBUG DIGEST"), whole);
        // Loaded filters are written, rewritten and loaded again.
        filters.write(&mut client, 3);
        rewrite_append_only_file(&mut client);
        filters.write(&mut client, 4);
        let before = filters.view(&mut client);
        assert_eq!(client.run("DEBUG LOADAOF"), ok());
        assert_same("a second rewrite", &before, &filters.view(&mut client));
    });
}

#[test]
fn a_copy_is_a_filter_of_its_own() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let filters = EveryFilter::build(&mut client);
        let before = filters.view(&mut client);
        for key in filters.keys() {
            let payload = dump(&mut client, key);
            assert_eq!(client.call(&[b"COPY".as_slice(), key, b"copied", b"REPLACE"]), integer(1));
            assert_eq!(client.call(&[b"RESTORE".as_slice(), b"restored", b"0", &payload, b"REPLACE"]), ok());
            for copy in ["copied", "restored"] {
                let items: Vec<String> = (0..400).map(|number| format!("only in the copy/{number}")).collect();
                let words = ["BF.MADD", copy].into_iter().chain(items.iter().map(String::as_str));
                let (old, reply) = (digest(&mut client, copy), client.call(&words.collect::<Vec<_>>()));
                let is_full = reply.elements().last().is_some_and(Reply::is_error);
                assert!(is_full || digest(&mut client, copy) != old, "{}: nothing was added", key.escape_ascii());
            }
        }
        assert_same("the originals after changes to all copies", &before, &filters.view(&mut client));
        assert_eq!(client.run("RENAMENX grown fixed"), integer(0));
        assert_eq!(client.run("COPY grown fixed"), integer(0));
        assert_eq!(client.run("RENAME missing grown"), error("ERR no such key"));
        assert_eq!(client.run("TYPE grown"), simple("bloomgate"));
        let other = Server::start(program);
        assert_eq!(other.connect().run("BF.ADD grown x"), integer(1));
        let migrate = format!("MIGRATE 127.0.0.1 {} grown 0 60000", other.port);
        assert!(client.run(&migrate).error_text().contains("BUSYKEY"));
        assert_eq!(client.run(&format!("{migrate} COPY REPLACE")), ok());
        assert_eq!(digest(&mut other.connect(), "grown"), digest(&mut client, "grown"));
    });
}

#[test]
fn records_give_the_same_filter_when_each_comes_twice() {
    on_every_server(|program| {
        let servers = [Server::start(program), Server::start(program)];
        let [mut client, mut far] = servers.each_ref().map(Server::connect);
        let filters = EveryFilter::build(&mut client);
        client.run("PERSIST with-ttl");
        for (key, before) in filters.keys().zip(filters.view(&mut client)) {
            if client.call(&[b"TYPE", key]).text() == "bloomfltr" {
                let expected = "ERR BF.SCANDUMP cannot dump a filter of valkey-bloom's layout, DUMP can";
                for iterator in [b"0", b"1"] {
                    assert_eq!(client.call(&[b"BF.SCANDUMP", key, iterator]), error(expected));
                }
                continue;
            }
            let records = records(&mut client, key);
            assert!(records.len() >= 2, "a header and bits");
            let (last, others) = records.split_last().unwrap();
            for record in others {
                load_records(&mut far, key, &[record.clone(), record.clone()]);
            }
            load_records(&mut far, key, slice::from_ref(last));
            // RedisBloom's records cannot be distinguished from another dump's records.
            let again = load_record(&mut far, key, last);
            assert!(again == ok() || client.call(&[b"TYPE", key]).text() == "MBbloom--", "{again:?}");
            assert_same("BF.LOADCHUNK", &[before], &[filters.view_of(&mut far, key, key)]);
        }
    });
}
