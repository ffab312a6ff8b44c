//! What voids a token and a NONE, and what does not.

use super::{FETCH, absent, fill, hit, lasting, load, token, wait_of, wait_with, with_filter, word};
use testing::{Connection, Server, eventually, nil, ok, on_every_server};

/// Whether a token is still good after this command.
fn token_outlives(client: &mut Connection, line: &str) -> bool {
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
            for outlives in [token_outlives, miss_outlives] {
                if client.run("EXISTS {f}").number() == 0 {
                    with_filter(&mut client);
                }
                client.run("SET {f}:src v");
                assert!(!outlives(&mut client, line), "{line}");
            }
        }
        // Another filter at the key, or the same one emptied, or with more items: the token was for the one before.
        client.run("BF.ADD {f}other 42");
        for line in ["COPY {f}other {f} REPLACE", "BF.MERGE {f} {f}", "BF.CLEAR {f}", "RENAME {f}other {f}"] {
            assert!(!token_outlives(&mut client, line), "{line}");
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
            "EXPIRE {f} 100000",
            "PERSIST {f}",
            "CONFIG SET maxmemory-policy allkeys-lru",
        ] {
            assert!(token_outlives(&mut client, line), "{line}");
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

/// A filter may be missing, exist and be missing again. That voids its tokens, and so does an item that is announced while it is
/// missing, and a database that is emptied or swapped.
#[test]
fn a_filter_that_comes_and_goes_voids_its_tokens() {
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
            (["FLUSHDB", "PING", "PING"], false),
            (["FLUSHALL", "PING", "PING"], false),
            (["SWAPDB 0 1", "SWAPDB 0 1", "PING"], false),
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

/// Takes the lease of the usual cache key, and waits until it has expired. Returns its token.
fn expired(client: &mut Connection) -> String {
    let token = load(client, &format!("{FETCH} LEASE 1"));
    eventually("the lease to expire", || client.info_number("bf_bloom_leases") == 0);
    token
}

/// Only a change makes a value outdated, not the time that its load takes. A database that is slower than LEASE is queried once.
#[test]
fn a_load_that_outlasts_its_lease_is_cached() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        for (what, answer) in [("VALUE row", hit("row")), ("NONE EX 1000", absent())] {
            let late = expired(&mut client);
            assert_eq!(fill(&mut client, &late, what), ok());
            assert_eq!([0; 5].map(|_| client.run(FETCH)), [0; 5].map(|_| answer.clone()), "{what}: no second load");
            client.run("BF.CHANGED {f} 42 {f}:42");
        }
        // A change in between voids the token.
        let late = expired(&mut client);
        client.run("BF.CHANGED {f} 42 {f}:42");
        assert_eq!(fill(&mut client, &late, "VALUE old"), nil(2));
        load(&mut client, FETCH);
    });
}

/// Two callers have read the same row if it has not changed since the first lease was granted. The first that is done fills, and ends
/// the lease of the other.
#[test]
fn the_first_of_two_loads_is_cached() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        for (first_fills, what, answer) in [(true, "VALUE row", hit("row")), (false, "NONE EX 100", absent())] {
            client.run("BF.CHANGED {f} 42 {f}:42");
            let first = expired(&mut client);
            let second = load(&mut client, FETCH);
            let mut waiter = wait_with(&server, FETCH);
            let (early, late) = if first_fills { (&first, &second) } else { (&second, &first) };
            assert_eq!(fill(&mut client, early, what), ok());
            assert_eq!(waiter.receive().unwrap(), answer);
            assert_eq!(client.info_number("bf_bloom_leases"), 0);
            assert_eq!(fill(&mut client, late, "VALUE late"), nil(2), "it was filled since");
            assert_eq!(fill(&mut client, early, "VALUE again"), nil(2));
            assert_eq!(client.run(FETCH), answer);
        }
        // Both are void after a change.
        client.run("BF.CHANGED {f} 42 {f}:42");
        let first = expired(&mut client);
        let second = load(&mut client, FETCH);
        client.run("BF.CHANGED {f} 42 {f}:42");
        for token in [&first, &second] {
            assert_eq!(fill(&mut client, token, "VALUE old"), nil(2));
        }
        load(&mut client, FETCH);
    });
}

/// GIVEUP is about the lease: it ends the caller's own, and no other. A back-off is about the database.
#[test]
fn a_late_caller_gives_up_no_lease_of_another() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let first = expired(&mut client);
        assert_eq!(fill(&mut client, &first, "GIVEUP"), nil(2), "its lease has expired");
        let second = load(&mut client, FETCH);
        assert_eq!(fill(&mut client, &first, "GIVEUP"), nil(2), "another caller has the lease");
        assert_eq!(word(&client.run(FETCH)), "wait");
        assert_eq!(fill(&mut client, &first, "GIVEUP BACKOFF 100000"), ok());
        assert_eq!(fill(&mut client, &second, "GIVEUP"), nil(2), "the back-off has ended its lease");
        assert!(wait_of(&client.run(FETCH)) > 90_000);
        assert_eq!(fill(&mut client, &second, "VALUE row"), ok(), "it has read the row all the same");
        assert_eq!(client.run(FETCH), hit("row"));
    });
}

#[test]
fn a_token_is_good_for_the_row_that_it_was_granted_for() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        client.run("BF.ADD {f} 43");
        client.run("COPY {f} {f}copy");
        let lease = load(&mut client, FETCH);
        assert_eq!(word(&client.run("BF.FETCH {f} 43 {f}:42")), "wait", "a lease is for every item of its cache key");
        let last = if lease.ends_with('0') { "1" } else { "0" };
        let forged = format!("{}{last}", &lease[..31]);
        for (row, token) in [
            ("{f} 43 {f}:42", &lease),
            ("{f} 42 {f}:43", &lease),
            ("{f}copy 42 {f}:42", &lease),
            ("{f} 42 {f}:42", &forged),
            ("{f} 42 {f}:42", &lease[16..].to_owned()),
        ] {
            assert_eq!(client.run(&format!("BF.FILL {row} {token} VALUE v")), nil(2), "{row} {token}");
        }
        assert_eq!(fill(&mut client, &lease.to_uppercase(), "VALUE v"), ok());
    });
}

#[test]
fn of_more_than_the_limit_the_record_nearest_its_end_is_evicted() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.max-leases 3").start();
        let mut client = server.connect();
        with_filter(&mut client);
        assert_eq!(client.run("CONFIG GET bf.max-leases").elements()[1].text(), "3");
        assert!(client.run("CONFIG SET bf.max-leases 0").is_error());
        let fetch = |number: u32| format!("BF.FETCH {{f}} 42 {{f}}:{number} LEASE {}", 3_600_000 - 100_000 * number);
        let tokens: Vec<String> = (0..4).map(|number| load(&mut client, &fetch(number))).collect();
        assert_eq!(client.info_number("bf_bloom_leases"), 3);
        let mut fill =
            |number: usize| client.run(&format!("BF.FILL {{f}} 42 {{f}}:{number} {} NONE EX 100", tokens[number]));
        assert_eq!([0, 1, 2, 3].map(&mut fill), [ok(), ok(), ok(), ok()], "a token outlives its lease");
        assert_eq!((client.info_number("bf_bloom_nones"), client.info_number("bf_bloom_leases")), (3, 0));
        assert_eq!((client.info_number("bf_bloom_fills"), client.info_number("bf_bloom_fills_refused")), (4, 0));
        // NONEs, leases and back-offs share the limit.
        let lease = load(&mut client, "BF.FETCH {f} 42 {f}:9 LEASE 1000000");
        assert_eq!((client.info_number("bf_bloom_nones"), client.info_number("bf_bloom_leases")), (2, 1));
        assert_eq!(client.run(&format!("BF.FILL {{f}} 42 {{f}}:9 {lease} GIVEUP BACKOFF 1000000")), ok());
        assert_eq!((client.info_number("bf_bloom_nones"), client.info_number("bf_bloom_leases")), (2, 0));
    });
}
