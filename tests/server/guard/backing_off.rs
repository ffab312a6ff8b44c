//! GIVEUP with BACKOFF: a database that fails is asked once per back-off.

use super::{
    FETCH, INVENTED, UNLESS, absent, fill, hit, load, token, wait_of, wait_with, waiters, waiting, with_filter, word,
};
use testing::{Connection, Server, array, error, eventually, integer, nil, ok, on_every_server};

/// Takes the lease of the usual cache key, and gives it up.
fn back_off(client: &mut Connection, milliseconds: u64) {
    let lease = load(client, FETCH);
    assert_eq!(fill(client, &lease, &format!("GIVEUP BACKOFF {milliseconds}")), ok());
}

#[test]
fn no_token_is_granted_until_the_time_is_over() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            with_filter(&mut client);
            client.run("BF.ADD {f} 43");
            let lease = load(&mut client, FETCH);
            assert_eq!(fill(&mut client, &lease, "GIVEUP BACKOFF 50000"), ok());
            assert_eq!(fill(&mut client, &lease, "GIVEUP"), nil(protocol), "the lease is over");
            // For every item, with every option, at once.
            let other = "BF.FETCH {f} 43 {f}:42";
            for line in [FETCH, UNLESS, other, "BF.FETCH {f} 42 {f}:42 WHILE {f}:feed LEASE 5 WAIT 100000000"] {
                let left = wait_of(&client.run(line));
                assert!((40_000..=50_000).contains(&left), "{line}: {left}");
            }
            let reply = client.run("BF.MFETCH {f} ITEMS 42 {f}:42 43 {f}:43 never {f}:42");
            let [backed_off, other, never] = reply.elements() else { panic!("{reply:?}") };
            assert!(wait_of(backed_off) > 40_000);
            assert_eq!((word(other).as_str(), never), ("load", &absent()));
            // A value is served, and nobody is asked to refresh it.
            client.run("SET {f}:42 old PX 1000000");
            assert_eq!(client.run(&format!("{FETCH} STALE 2000000")), hit("old"));
            client.run("DEL {f}:42");

            back_off_ends_after(&mut client);
        }
        assert_eq!(server.connect().info_number("bf_bloom_backoffs"), 4);
    });
}

/// A short back-off of another cache key ends by itself.
fn back_off_ends_after(client: &mut Connection) {
    let line = "BF.FETCH {f} 43 {f}:short";
    let lease = load(client, line);
    assert_eq!(client.run(&format!("BF.FILL {{f}} 43 {{f}}:short {lease} GIVEUP BACKOFF 30")), ok());
    eventually("the back-off to end", || word(&client.run(line)) == "load");
}

#[test]
fn a_change_ends_a_back_off_and_nothing_else_does() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for (line, is_over) in [
            ("BF.CHANGED {f} 42 {f}:42", true),
            ("BF.CHANGED {f} other {f}:42", true),
            ("BF.MCHANGED {f} ITEMS 1 {f}:1 42 {f}:42", true),
            ("FLUSHALL", true),
            ("BF.CHANGED {f} 42 {f}:other", false),
            ("BF.ADD {f} 42", false),
            ("BF.ADD {f} new", false),
            ("SET {f}:42 v", false),
            ("DEL {f}", false),
            ("BF.CLEAR {f}", false),
            ("BF.MERGE {f} {f}", false),
        ] {
            client.run("FLUSHALL");
            with_filter(&mut client);
            back_off(&mut client, 100_000);
            assert!(!client.run(line).is_error(), "{line}");
            client.run("DEL {f}:42");
            client.run("DEL {f}");
            let reply = client.run(FETCH);
            assert_eq!(word(&reply), if is_over { "load" } else { "wait" }, "{line}");
        }
        // After it, another lease is granted and given up as usual.
        client.run("BF.CHANGED {f} 42 {f}:42");
        let lease = load(&mut client, FETCH);
        assert_eq!(fill(&mut client, &lease, "GIVEUP BACKOFF 0"), ok(), "0 is none");
        let lease = load(&mut client, FETCH);
        assert_eq!(fill(&mut client, &lease, "GIVEUP"), ok());
        load(&mut client, FETCH);
    });
}

#[test]
fn waiters_are_answered_at_once() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        for (what, is_hit) in [("nothing", false), ("SET {f}:42 old", true)] {
            client.run("BF.CHANGED {f} 42 {f}:42");
            let lease = load(&mut client, FETCH);
            let mut clients = waiting(&server, 3);
            // In one transaction, so that the waiters see both.
            client.run("MULTI");
            client.run(&format!("BF.FILL {{f}} 42 {{f}}:42 {lease} GIVEUP BACKOFF 50000"));
            if is_hit {
                client.run(what);
            }
            assert!(!client.run("EXEC").is_error());
            for client in &mut clients {
                let reply = client.receive().unwrap();
                if is_hit {
                    assert_eq!(reply, hit("old"));
                } else {
                    assert!((40_000..=50_000).contains(&wait_of(&reply)));
                }
            }
            assert_eq!(waiters(&mut client), 0);
        }
    });
}

#[test]
fn a_held_client_goes_on_waiting_through_a_back_off() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        client.run("HSET {f}:open {f}:42 x");
        let mut held = wait_with(&server, UNLESS);
        back_off(&mut client, 100_000);
        assert_eq!(waiters(&mut client), 1);
        client.run("DEL {f}");
        assert!(wait_of(&client.run(FETCH)) > 1, "replacing a filter that somebody waits for ends no back-off");
        client.run("HDEL {f}:open {f}:42");
        client.run("BF.CHANGED {f} 42 {f}:42");
        token(&held.receive().unwrap());
    });
}

#[test]
fn the_words_of_a_back_off_are_checked_before_anything_changes() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let lease = load(&mut client, FETCH);
        for (rest, text) in [
            ("GIVEUP BACKOFF", "ERR no backoff"),
            ("GIVEUP BACKOFF x", "ERR bad backoff"),
            ("GIVEUP BACKOFF -1", "ERR bad backoff"),
            ("GIVEUP BACKOFF 9223372036854775807", "ERR bad backoff"),
            ("GIVEUP BACKOFF 1 2", "ERR syntax error"),
            ("GIVEUP PX 1", "ERR syntax error"),
        ] {
            assert_eq!(fill(&mut client, &lease, rest), error(text), "{rest}");
        }
        assert_eq!(fill(&mut client, INVENTED, "GIVEUP BACKOFF 5000"), nil(2));
        assert!(client.run("BF.FILL {f} 43 {f}:42 0 GIVEUP BACKOFF 5000") == nil(2));
        assert_eq!(client.info_number("bf_bloom_backoffs"), 0);
        assert_eq!(fill(&mut client, &lease, "VALUE row"), ok(), "the lease is still good");
    });
}

#[test]
fn back_offs_are_limited_in_number_and_in_time() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("CONFIG SET bf.max-leases 2");
        let fetch = |client: &mut Connection, number: u64| {
            client.run(&format!("BF.FETCH {{f}} 42 {{f}}:{number} LEASE 1000000"))
        };
        for number in 1..=3 {
            let lease = token(&fetch(&mut client, number));
            let line = format!("BF.FILL {{f}} 42 {{f}}:{number} {lease} GIVEUP BACKOFF {number}00000");
            assert_eq!(client.run(&line), ok());
        }
        let words = [3, 2, 1].map(|number| word(&fetch(&mut client, number)));
        assert_eq!(words, ["wait", "wait", "load"], "the one that would have ended first is gone");
        // They neither travel nor last.
        client.run("DEBUG RELOAD");
        assert_eq!(word(&fetch(&mut client, 3)), "load");
        assert_eq!(client.run("BF.MCHANGED {f} ITEMS 1 {f}:1"), array([nil(2)]));
        assert_eq!(client.run("DBSIZE"), integer(0));
    });
}
