//! What voids a lease and a NONE, and what does not.

use super::{FETCH, absent, fill, lasting, load, token, with_filter, word};
use testing::{Connection, Server, eventually, nil, ok, on_every_server};

/// Whether a lease is still good after this command.
fn lease_outlives(client: &mut Connection, line: &str) -> bool {
    client.run("DEL {f}:42");
    client.run("BF.CHANGED {f} 42 {f}:42");
    let token = load(client, FETCH);
    let reply = client.run(line);
    assert!(!reply.is_error(), "{line}: {reply:?}");
    let filled = fill(client, &token, "NONE PX 1");
    assert!(filled == ok() || filled == nil(2), "{filled:?}");
    filled == ok()
}

/// Whether a NONE still applies after this command.
fn miss_outlives(client: &mut Connection, line: &str) -> bool {
    client.run("DEL {f}:42");
    client.run("BF.CHANGED {f} 42 {f}:42");
    let token = load(client, FETCH);
    assert_eq!(fill(client, &token, "NONE EX 1000"), ok());
    assert_eq!(client.run(FETCH), absent());
    let reply = client.run(line);
    assert!(!reply.is_error(), "{line}: {reply:?}");
    word(&client.run(FETCH)) == "absent"
}

#[test]
fn a_change_of_the_row_the_key_or_the_filter_voids_what_is_known() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        client.run("SET {f}:src v");
        for line in [
            "BF.CHANGED {f} 42 {f}:42",
            "BF.CHANGED {f}missing 42 {f}:42",
            "BF.CHANGED {f} 1 {f}:42",
            "SET {f}:42 v",
            "APPEND {f}:42 v",
            "INCR {f}:42",
            "COPY {f}:src {f}:42",
            "BF.ADD {f} 42",
            "BF.MADD {f} 1 2 42",
            "BF.INSERT {f} NOCREATE ITEMS 42",
            "BF.CHANGED {f} 42 {f}:43",
            "FLUSHDB",
            "FLUSHALL ASYNC",
            "SWAPDB 0 1",
        ] {
            for outlives in [lease_outlives, miss_outlives] {
                if client.run("EXISTS {f}").number() == 0 {
                    with_filter(&mut client);
                }
                client.run("SET {f}:src v");
                assert!(!outlives(&mut client, line), "{line}");
            }
        }
        // Another filter at the key, or the same one emptied: the lease was for the one before.
        client.run("BF.ADD {f}other 42");
        for line in ["COPY {f}other {f} REPLACE", "BF.CLEAR {f}", "RENAME {f}other {f}"] {
            assert!(!lease_outlives(&mut client, line), "{line}");
        }
    });
}

#[test]
fn a_command_that_leaves_the_row_as_it_was_voids_nothing() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        for line in [
            "GET {f}:42",
            "DEL {f}:42",
            "EXPIRE {f}:42 100",
            "BF.ADD {f} 43",
            "BF.ADD {f}another 42",
            "BF.EXISTS {f} 42",
            "SET {f}:43 v",
            "BF.CHANGED {f} 43 {f}:43",
            "RENAME {f} {f}",
            "CONFIG SET maxmemory-policy allkeys-lru",
        ] {
            assert!(lease_outlives(&mut client, line), "{line}");
            assert!(miss_outlives(&mut client, line), "{line}");
        }
        // The same name in another database is another key.
        client.run("BF.CHANGED {f} 42 {f}:42");
        let mut other = server.connect();
        other.run("SELECT 1");
        let token = load(&mut client, FETCH);
        other.run("SET {f}:42 v");
        assert_eq!(fill(&mut client, &token, "VALUE v PX 1"), ok());
    });
}

/// A value that expires was true, and whoever refreshes it still may: whether the server finds it by itself, or a command
/// does, one of ours included.
#[test]
fn an_expiry_is_no_change_of_the_row() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        for finder in ["", "GET {f}:42", "EXISTS {f}:42", FETCH, "EXPIRETIME {f}:42"] {
            // The server looks for expired keys by itself only if no command is to find this one.
            client.run(&format!("DEBUG SET-ACTIVE-EXPIRE {}", u8::from(finder.is_empty())));
            client.run("BF.CHANGED {f} 42 {f}:42");
            let expired = client.info_number("expired_keys");
            client.run("SET {f}:42 old PX 10");
            let stale = client.run(&lasting(&format!("{FETCH} STALE 1000")));
            if word(&stale) == "load" {
                continue; // It expired before it was asked for.
            }
            eventually("the value to expire", || {
                if !finder.is_empty() {
                    client.run(finder);
                }
                client.info_number("expired_keys") > expired
            });
            assert_eq!(word(&client.run(FETCH)), "wait", "{finder}: its lease holds");
            assert_eq!(fill(&mut client, &token(&stale), "VALUE new"), ok(), "{finder}");
        }
    });
}

/// To set a time to live that is over is to delete the key. Valkey raises the event of an expiry for it.
#[test]
fn a_client_that_makes_a_value_expire_at_once_voids_its_lease() {
    on_every_server(|program| {
        for lazy in ["no", "yes"] {
            let server = Server::with(program).line(&format!("lazyfree-lazy-expire {lazy}")).start();
            let mut client = server.connect();
            with_filter(&mut client);
            for line in [
                "PEXPIREAT {f}:42 1",
                "PEXPIRE {f}:42 -5",
                "EXPIRE {f}:42 -1",
                "EXPIREAT {f}:42 1",
                "GETEX {f}:42 PXAT 1",
                "GETEX {f}:42 EXAT 1",
                "SET {f}:42 other PXAT 1",
                "SET {f}:42 other EXAT 1",
                "EVAL return(redis.call('pexpireat',KEYS[1],1)) 1 {f}:42",
                "MULTI",
            ] {
                client.run("BF.CHANGED {f} 42 {f}:42");
                client.run("SET {f}:42 old EX 100");
                let lease = load(&mut client, &format!("{FETCH} STALE 200000"));
                assert!(!client.run(line).is_error(), "{line}");
                if line == "MULTI" {
                    client.run("PEXPIREAT {f}:42 1");
                    client.run("EXEC");
                }
                assert_eq!(client.run("EXISTS {f}:42").number(), 0, "{line}");
                assert_eq!(fill(&mut client, &lease, "VALUE late"), nil(2), "{line}, lazily: {lazy}");
            }
        }
    });
}

/// A filter may be missing, exist and be missing again. That ends its leases, and so does an item that is announced while it is missing.
#[test]
fn a_filter_that_comes_and_goes_voids_its_leases() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for (lines, is_good) in [
            (["BF.RESERVE {f} 0.01 100", "BF.CHANGED {f} 42 {f}:other", "DEL {f}"], false),
            (["BF.RESERVE {f} 0.01 100", "BF.ADD {f} 42", "DEL {f}"], false),
            (["BF.ADD {f} 42", "PING", "DEL {f}"], false),
            (["BF.INSERT {f} ITEMS 1 42", "PING", "RENAME {f} {f}gone"], false),
            (["BF.INSERT {f} NOCREATE ITEMS 42", "PING", "PING"], false),
            (["BF.CHANGED {f} 42 {f}:other", "PING", "PING"], false),
            (["BF.CHANGED {f} 43 {f}:43", "BF.CHANGED {f}other 42 {f}:other", "PING"], true),
            (["BF.RESERVE {f} 0.01 100", "BF.ADD {f} 43", "DEL {f}"], false),
            (["BF.RESERVE {f}other 0.01 100", "DEL {f}other", "PING"], true),
        ] {
            client.run("FLUSHALL");
            let lease = load(&mut client, FETCH);
            lines.iter().for_each(|line| _ = client.run(line));
            assert_eq!(client.run("EXISTS {f}").number(), 0);
            let filled = fill(&mut client, &lease, "VALUE v");
            assert_eq!(filled, if is_good { ok() } else { nil(2) }, "{lines:?}");
        }
        // A filter of the same name in another database is another filter.
        client.run("FLUSHALL");
        let lease = load(&mut client, FETCH);
        let mut other = server.connect();
        other.run("SELECT 1");
        other.run("BF.CHANGED {f} 42 {f}:42");
        assert_eq!(fill(&mut client, &lease, "VALUE v"), ok());
    });
}

#[test]
fn a_merge_brings_rows_that_were_missing() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        client.run("BF.RESERVE {f}source 0.0001 1000 SEED 500");
        client.run("BF.ADD {f}source 7");
        assert!(!miss_outlives(&mut client, "BF.MERGE {f} {f}source"));
        assert!(miss_outlives(&mut client, "BF.MERGE {f}copy {f}source"), "another filter");
    });
}

#[test]
fn a_new_lease_ends_the_one_before() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        client.run("BF.ADD {f} 43");
        let first = load(&mut client, FETCH);
        // Another item with the same cache key.
        let second = load(&mut client, "BF.FETCH {f} 43 {f}:42");
        assert_eq!(fill(&mut client, &first, "VALUE v"), nil(2));
        assert_eq!(client.run(&format!("BF.FILL {{f}} 43 {{f}}:42 {second} VALUE v")), ok());
    });
}

#[test]
fn the_lease_nearest_its_end_is_evicted() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.max-leases 3").start();
        let mut client = server.connect();
        with_filter(&mut client);
        assert_eq!(client.run("CONFIG GET bf.max-leases").elements()[1].text(), "3");
        assert!(client.run("CONFIG SET bf.max-leases 0").is_error());
        let fetch =
            |number: u32| format!("BF.FETCH {{f}} 42 {{f}}:{number} LEASE {}", 100_000_000 - 1_000_000 * number);
        let tokens: Vec<String> = (0..4).map(|number| load(&mut client, &fetch(number))).collect();
        assert_eq!(client.info_number("bf_bloom_leases"), 3);
        let mut fill =
            |number: usize| client.run(&format!("BF.FILL {{f}} 42 {{f}}:{number} {} NONE EX 100", tokens[number]));
        assert_eq!([fill(0), fill(1), fill(2), fill(3)], [ok(), ok(), nil(2), ok()]);
        assert_eq!(client.info_number("bf_bloom_nones"), 3);
        assert_eq!((client.info_number("bf_bloom_fills"), client.info_number("bf_bloom_fills_refused")), (3, 1));
    });
}
