//! The exact replies of the three commands, in both protocols.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use super::{
    FETCH, INVENTED, LONG, UNLESS, WHILE, absent, fill, hears_everything, hit, lasting, load, ok_if, token, wait_of,
    wait_with, waiters, with_filter, word,
};
use testing::{
    Connection, Reply, Server, array, bulk, error, eventually, in_both_protocols, integer, nil, ok, on_every_server,
    with_client,
};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn a_value_is_loaded_once_and_then_hit() {
    in_both_protocols(|client, protocol| {
        with_filter(client);
        assert_eq!(client.run("BF.FETCH {f} never {f}:never"), absent());
        // In one transaction, because the usual lease may end before the next command.
        let replies = client.pipeline(&["MULTI", FETCH, FETCH, "EXEC"]);
        let [first, second] = replies[3].elements() else { panic!("{replies:?}") };
        assert_eq!((word(first).as_str(), (1..=3000).contains(&wait_of(second))), ("load", true));
        client.run("BF.CHANGED {f} 42 {f}:42");
        let token = load(client, FETCH);
        assert_eq!(fill(client, &token, "VALUE row EX 100"), ok());
        assert_eq!(client.run(FETCH), hit("row"));
        assert!((90..=100).contains(&client.run("TTL {f}:42").number()));
        assert_eq!(fill(client, &token, "VALUE other"), nil(protocol), "it is used up");
        assert_eq!(client.run("GET {f}:42"), bulk("row"));

        client.run("DEL {f}:42");
        let token = load(client, FETCH);
        assert_eq!(fill(client, &token, "VALUE 17"), ok());
        assert_eq!(client.run(FETCH), hit("17"), "a number");
        assert_eq!(client.run("TTL {f}:42").number(), -1);
        assert_eq!(client.run("INCR {f}:42").number(), 18);
        assert_eq!(client.run(FETCH), hit("18"));

        let token = load(client, "BF.FETCH {f} 42 {f}:other");
        assert_eq!(client.run(&format!("BF.FILL {{f}} 42 {{f}}:other {token} NONE PX 20")), ok());
        eventually("the miss to be forgotten", || word(&client.run("BF.FETCH {f} 42 {f}:other")) == "load");
    });
}

#[test]
fn one_caller_refreshes_a_stale_value() {
    with_client(|_, client| {
        with_filter(client);
        client.run("SET {f}:42 old PX 50000");
        assert_eq!(client.run(&format!("{FETCH} STALE 1000")), hit("old"));
        let line = lasting(&format!("{FETCH} STALE 60000"));
        let reply = client.run(&line);
        assert_eq!((word(&reply), reply.elements()[1].text()), ("stale".to_owned(), "old".to_owned()));
        assert_eq!(client.run(&line), hit("old"), "one refreshes");
        assert_eq!(client.run(FETCH), hit("old"));
        // The next lease is short, and another caller may refresh the value when it has ended.
        assert_eq!(fill(client, &token(&reply), "GIVEUP"), ok());
        let short = load(client, &format!("{FETCH} STALE 60000 LEASE 20"));
        let mut reply = hit("old");
        eventually("the lease to end", || {
            reply = client.run(&line);
            reply != hit("old")
        });
        assert_eq!(fill(client, &short, "VALUE new PX 100000"), ok(), "late, but the row is the same");
        assert_eq!(fill(client, &token(&reply), "VALUE newer PX 100000"), nil(2));
        assert_eq!(client.run(&line), hit("new"));
        client.run("PERSIST {f}:42");
        assert_eq!(client.run(&format!("{FETCH} STALE 2305843009213693952")), hit("new"), "it does not expire");
    });
}

#[test]
fn a_value_is_renewed_before_its_end_by_the_average_of_loads() {
    with_client(|_, client| {
        with_filter(client);
        // A thousand times the average, which is minutes: nearly every draw exceeds the remaining time to live.
        let renew = lasting(&format!("{FETCH} RENEW 100000"));
        let loads_for = |client: &mut Connection, what: &str| {
            client.run("BF.CHANGED {f} 42 {f}:42");
            let lease = load(client, FETCH);
            sleep(Duration::from_millis(200));
            assert_eq!(fill(client, &lease, what), ok());
        };
        let is_renewed = |client: &mut Connection, line: &str| (0..100).any(|_| word(&client.run(line)) == "stale");
        client.run("SET {f}:42 v PX 100000");
        assert!(!is_renewed(client, &renew), "no load is known");
        loads_for(client, "GIVEUP");
        client.run("SET {f}:42 v PX 100000");
        assert!(!is_renewed(client, &renew), "it has failed");
        loads_for(client, "VALUE v PX 10000");
        assert!(!is_renewed(client, FETCH) && !is_renewed(client, &format!("{FETCH} RENEW 0")), "RENEW is not given");
        assert!(!is_renewed(client, &format!("{renew} PEEK")), "PEEK gets no lease");
        assert!(is_renewed(client, &renew));
        assert_eq!(client.run(&renew), hit("v"), "one renews it");

        // Relative to STALE instead of to the end of the value's time to live.
        loads_for(client, "VALUE v PX 1000000000000");
        assert!(!is_renewed(client, &renew), "23 times the average are a few hours at most");
        assert!(is_renewed(client, &format!("{renew} STALE 999999990000")));
        loads_for(client, "VALUE v");
        assert!(!is_renewed(client, &renew), "it does not expire");
        let batch = "BF.MFETCH {f} RENEW 100000 ITEMS 42 {f}:42";
        loads_for(client, "VALUE v PX 10000");
        assert!((0..100).any(|_| word(&client.run(batch).elements()[0]) == "stale"));
        // Another filter has separate loads.
        client.run("BF.CLEAR {f}");
        client.run("BF.ADD {f} 42");
        client.run("SET {f}:42 v PX 10000");
        assert!(!is_renewed(client, &renew));
    });
}

fn stale(value: &str, reply: &Reply) -> String {
    assert!(word(reply) == "stale" && reply.elements()[1] == bulk(value), "{reply:?}");
    token(reply)
}

#[test]
fn a_value_that_a_caller_cannot_use_is_replaced_under_a_lease() {
    with_client(|server, client| {
        with_filter(client);
        let line = lasting(&format!("{FETCH} REPLACE"));
        assert_eq!(client.run("BF.FETCH {f} never {f}:never REPLACE"), absent());
        let lease = load(client, &line);
        assert_eq!(fill(client, &lease, "VALUE old"), ok());
        // It does not expire, so no STALE would grant a lease.
        let lease = stale("old", &client.run(&line));
        assert_eq!(client.run(FETCH), hit("old"), "others can use it");
        assert!(wait_of(&client.run(&line)) > 90_000);
        let batch = client.run("BF.MFETCH {f} REPLACE ITEMS 42 {f}:42");
        assert!(wait_of(&batch.elements()[0]) > 90_000);
        let mut waiting = [&line, &format!("{FETCH} REPLACE STALE 1")].map(|line| wait_with(server, line));
        assert_eq!(fill(client, &lease, "VALUE new PX 1000000"), ok());
        // The first waiter decodes the value, and gives up the lease.
        let lease = stale("new", &waiting[0].receive().unwrap());
        assert_eq!(fill(client, &lease, "GIVEUP"), ok());
        let lease = stale("new", &waiting[1].receive().unwrap());
        assert_eq!(fill(client, &lease, "GIVEUP BACKOFF 100000"), ok());
        assert!(wait_of(&client.run(&line)) > 90_000);
        assert_eq!(word(&client.run(&format!("{line} BACKOFF WAIT {LONG}"))), "failed");
        assert_eq!(client.run(FETCH), hit("new"));
        client.run("BF.CHANGED {f} 42 {f}:42");
        load(client, &line);
    });
}

#[test]
fn a_peek_takes_no_lease_and_never_waits() {
    with_client(|server, client| {
        with_filter(client);
        let peek = format!("{FETCH} STALE 2000000 PEEK");
        let wait = |left: u64| array([bulk("wait"), integer(left.cast_signed())]);
        assert_eq!(client.run("BF.FETCH {f} never {f}:never PEEK"), absent());
        assert_eq!(client.run(&peek), wait(1));
        assert_eq!(client.run("BF.MFETCH {f} PEEK ITEMS 42 {f}:42 never {f}:never"), array([wait(1), absent()]));
        assert_eq!(client.info_number("bf_bloom_leases"), 0);
        let lease = load(client, FETCH);
        assert!(wait_of(&client.run(&peek)) > 90_000);
        assert_eq!(fill(client, &lease, "VALUE old PX 1000000"), ok());
        assert_eq!(client.run(&peek), hit("old"), "it is stale");
        client.run("HSET {f}:open {f}:42 x");
        assert_eq!(client.run(&format!("{peek} UNLESS {{f}}:open")), wait(1));
        let lease = load(client, &format!("{FETCH} STALE 2000000"));
        assert_eq!(client.run(&peek), hit("old"), "another caller refreshes it");
        assert_eq!(fill(client, &lease, "GIVEUP BACKOFF 100000"), ok());
        assert_eq!(client.run(&peek), hit("old"));
        client.run("DEL {f}:42");
        assert!(wait_of(&client.run(&peek)) > 90_000);
        assert_eq!(word(&client.run(&format!("{peek} BACKOFF"))), "failed");
        for other in ["WAIT 1", "REPLACE"] {
            let text = format!("ERR PEEK and {} exclude each other", other.split(' ').next().unwrap());
            assert_eq!(client.run(&format!("{peek} {other}")), error(&text));
        }

        // A waiter that is about to get the lease is not overtaken, and keeps the lease.
        client.run("BF.CHANGED {f} 42 {f}:42");
        let lease = load(client, FETCH);
        let mut waiter = wait_with(server, FETCH);
        client.run("MULTI");
        client.run(&format!("BF.FILL {{f}} 42 {{f}}:42 {lease} GIVEUP"));
        client.run(&peek);
        client.run(FETCH);
        assert_eq!(client.run("EXEC").elements()[1..], [wait(1), wait(1)]);
        token(&waiter.receive().unwrap());
    });
}

#[test]
fn a_change_deletes_the_value_and_announces_the_item() {
    in_both_protocols(|client, protocol| {
        let (yes, no) = (client.answer(true), client.answer(false));
        client.run("SET {f}:1 v");
        assert_eq!(client.run("BF.CHANGED {f} 1 {f}:1"), nil(protocol), "it creates no filter");
        assert_eq!(client.run("EXISTS {f} {f}:1").number(), 0);
        with_filter(client);
        client.run("SET {f}:1 v");
        assert_eq!(client.run("BF.CHANGED {f} 1 {f}:1"), yes);
        assert_eq!(client.run("BF.CHANGED {f} 1 {f}:1"), no);
        assert_eq!(client.run("EXISTS {f}:1").number(), 0);
        assert_eq!(client.run("BF.EXISTS {f} 1"), yes);

        // A key of another type stays. The value is deleted even if the filter refuses the item.
        client.run("RPUSH {f}:list x");
        assert_eq!(client.run("BF.CHANGED {f} 2 {f}:list"), yes);
        assert_eq!(client.run("EXISTS {f}:list").number(), 1);
        client.run("BF.INSERT {f}full CAPACITY 1 NONSCALING SEED 1 ITEMS a");
        client.run("SET {f}:b v");
        assert_eq!(client.run("BF.CHANGED {f}full b {f}:b"), error("ERR non scaling filter is full"));
        assert_eq!(client.run("EXISTS {f}:b").number(), 0);
        client.run("SET {f}:c v");
        assert_eq!(client.run("BF.CHANGED {f}:list c {f}:c"), error(WRONG_TYPE));
        assert_eq!(client.run("EXISTS {f}:c").number(), 0);
    });
}

#[test]
fn a_ring_adds_an_announced_item_to_its_newest_bucket() {
    with_client(|_, client| {
        for words in ["WINDOW 3600 BUCKETS 3", "ROLLING BUCKETS 3"] {
            client.run("DEL {f}");
            assert_eq!(client.run(&format!("BF.RESERVE {{f}} 0.0001 1000 {words}")), ok());
            assert!(client.run("BF.CHANGED {f} 42 {f}:42").truth());
            client.run("BF.ROTATE {f}");
            assert!(!client.run("BF.CHANGED {f} 42 {f}:42").truth(), "it was in");
            client.run("BF.ADD {f} other");
            for _ in 0..2 {
                client.run("BF.ROTATE {f}");
            }
            assert!(client.run("BF.EXISTS {f} 42").truth(), "{words}: it was renewed");
            client.run("BF.ROTATE {f}");
            assert_eq!(client.run(FETCH), absent(), "{words}");
        }
    });
}

#[test]
fn a_missing_filter_denies_nothing() {
    with_client(|server, client| {
        client.run("SET {f}:1 v");
        assert_eq!(client.run("BF.FETCH {f} 1 {f}:1"), hit("v"));
        let token = load(client, FETCH);
        let is_filled = hears_everything(client);
        assert_eq!(fill(client, &token, "NONE EX 100"), ok_if(is_filled));
        load(client, FETCH);
        with_filter(client);
        let token = load(client, FETCH);
        assert_eq!(fill(client, &token, "VALUE v"), ok());
        assert_eq!(client.info_number("bf_bloom_fetches_unguarded"), 3);
        assert_eq!(server.log().matches("no filter at '{f}'").count(), 1, "once a minute");

        // A filter whose chunks are still arriving.
        start_loading(client, "{f}new");
        assert!(client.run("BF.EXISTS {f}new 1").is_error());
        assert_eq!(client.run("BF.FETCH {f}new never {f}:1"), hit("v"));
        load(client, "BF.FETCH {f}new never {f}:never");
        assert!(client.run("BF.CHANGED {f}new 1 {f}:1").is_error());
        assert_eq!(client.run("EXISTS {f}:1").number(), 0);
    });
}

#[test]
fn invalid_options_and_types_are_refused_before_anything_changes() {
    with_client(|_, client| {
        with_filter(client);
        client.run("RPUSH {f}:list x");
        client.run("BF.RESERVE {f}counting 0.01 100 COUNTING");
        let token = load(client, FETCH);
        let fill = |rest: &str| format!("BF.FILL {{f}} 42 {{f}}:42 {token} {rest}");
        // Which words are refused for which reason: `crates/filter/tests/corpus/words.rs`.
        let cases = [
            (format!("{FETCH} NOW"), "ERR syntax error"),
            (format!("{FETCH} LEASE 0"), "ERR LEASE is a whole number from 1 to 3600000"),
            (format!("{FETCH} FRESH 1000"), "ERR FRESH needs WHILE"),
            (format!("{FETCH} PEEK REPLACE"), "ERR PEEK and REPLACE exclude each other"),
            ("BF.MFETCH {f} WAIT 5 ITEMS 42 {f}:42".to_owned(), "ERR syntax error"),
            ("BF.MFETCH {f} LEASE 0 ITEMS 42 {f}:42".to_owned(), "ERR LEASE is a whole number from 1 to 3600000"),
            ("BF.MCHANGED {f} a {f}:a b".to_owned(), "ERR syntax error"),
            ("BF.FETCH {f} 42 {f}:list".to_owned(), WRONG_TYPE),
            ("BF.FETCH {f}:list 42 {f}:42".to_owned(), WRONG_TYPE),
            ("BF.FETCH {f}counting 42 {f}:42".to_owned(), "ERR a CUCKOO or COUNTING filter cannot guard"),
            ("BF.MFETCH {f}counting ITEMS 42 {f}:42".to_owned(), "ERR a CUCKOO or COUNTING filter cannot guard"),
            ("BF.MFETCH {f}:list ITEMS 42 {f}:42".to_owned(), WRONG_TYPE),
            ("BF.CHANGED {f}counting 42 {f}:none".to_owned(), "ERR a CUCKOO or COUNTING filter cannot guard"),
            (fill("VALUE v EX"), "ERR EX is a whole number from 1 to 2305843009213693"),
            (fill("NONE"), "ERR no expire time"),
            (fill("VALUE v KEEPTTL"), "ERR syntax error"),
            (fill("GIVEUP BACKOFF -1"), "ERR BACKOFF is a whole number from 0 to 2305843009213693952"),
            (fill("VALUE"), "ERR wrong number of arguments for 'bf.fill' command"),
            ("BF.FETCH {f} 42".to_owned(), "ERR wrong number of arguments for 'bf.fetch' command"),
            ("BF.CHANGED {f} 42".to_owned(), "ERR wrong number of arguments for 'bf.changed' command"),
            ("BF.MFETCH {f} ITEMS 42 {f}:42 43".to_owned(), "ERR wrong number of arguments for 'bf.mfetch' command"),
            ("BF.MCHANGED {f} ITEMS a".to_owned(), "ERR wrong number of arguments for 'bf.mchanged' command"),
        ];
        for (line, text) in cases {
            let reply = client.run(&line);
            assert!(reply.error_text().eq_ignore_ascii_case(text), "{line}: {reply:?}");
        }
        for token in ["0", "0123456789abcdef", INVENTED, "not a token at all", ""] {
            assert_eq!(client.call(&["BF.FILL", "{f}", "42", "{f}:42", token, "VALUE", "v"]), nil(2));
        }
        for line in
            ["BF.FILL {f} 43 {f}:42", "BF.FILL {f}x 42 {f}:42", "BF.FILL {f} 42 {f}:43", "BF.FILL {f}:list 42 {f}:42"]
        {
            assert_eq!(client.run(&format!("{line} {token} VALUE v")), nil(2), "{line}: not its lease");
        }
        assert_eq!(client.run(&format!("BF.FILL {{f}} 42 {{f}}:42 {INVENTED} GIVEUP BACKOFF 5000")), nil(2));
        assert_eq!(["backoffs", "leases"].map(|name| client.info_number(&format!("bf_bloom_{name}"))), [0, 0]);
        assert_eq!(client.run(&fill("VALUE v")), ok(), "the token is still good");
    });
}

#[test]
fn names_items_and_values_are_any_bytes() {
    with_client(|_, client| {
        let (item, key) = (b"\0\r\n\xff".as_slice(), b"{\0f}\xfe".as_slice());
        let value: Vec<u8> = (0..100_000_u32).map(|byte| byte as u8).collect();
        client.call(&[b"BF.ADD".as_slice(), b"{\0f}", item]);
        let token = token(&client.call(&[b"BF.FETCH".as_slice(), b"{\0f}", item, key, b"LEASE", b"1000000"]));
        let words = [b"BF.FILL".as_slice(), b"{\0f}", item, key, token.as_bytes(), b"VALUE", &value];
        assert_eq!(client.call(&words), ok());
        let reply = client.call(&[b"BF.FETCH".as_slice(), b"{\0f}", item, key]);
        assert_eq!(reply, array([bulk("hit"), bulk(&value)]));
        client.call(&[b"SET".as_slice(), key, b""]);
        assert_eq!(client.call(&[b"BF.FETCH".as_slice(), b"{\0f}", item, key]), hit(""));
    });
}

#[test]
fn transactions_scripts_and_functions_do_not_wait() {
    with_client(|_, client| {
        with_filter(client);
        let token = load(client, FETCH);
        client.run("MULTI");
        client.run(&format!("{FETCH} WAIT 100000"));
        client.run(&format!("BF.FILL {{f}} 42 {{f}}:42 {token} VALUE row"));
        client.run(&format!("{FETCH} WAIT 100000"));
        client.run("BF.CHANGED {f} 42 {f}:42");
        let replies = client.run("EXEC");
        let [wait, filled, found, changed] = replies.elements() else { panic!("{replies:?}") };
        wait_of(wait);
        assert_eq!((filled, found, changed), (&ok(), &hit("row"), &client.answer(false)));

        let script = "local r = redis.call('BF.FETCH', KEYS[1], ARGV[1], KEYS[2], 'WAIT', '100000') \
                      if r[1] == 'load' then redis.call('BF.FILL', KEYS[1], ARGV[1], KEYS[2], r[2], 'VALUE', 'by script') end \
                      return r[1]";
        let eval = |client: &mut Connection| client.call(&["EVAL", script, "2", "{f}", "{f}:42", "42"]);
        assert_eq!(eval(client), bulk("load"));
        assert_eq!(eval(client), bulk("hit"));
        assert_eq!(client.run(FETCH), hit("by script"));
        client.run("BF.CHANGED {f} 42 {f}:42");
        load(client, FETCH);
        assert_eq!(eval(client), bulk("wait"));
        let library = "#!lua name=guard\nredis.register_function('get', function(keys, args) \
                       return redis.call('BF.FETCH', keys[1], args[1], keys[2], 'WAIT', '100000') end)";
        assert!(!client.call(&["FUNCTION", "LOAD", library]).is_error());
        assert_eq!(word(&client.run("FCALL get 2 {f} {f}:42 42")), "wait");
    });
}

// WHILE and UNLESS of BF.FETCH: the answers depend on keys that other clients maintain.

/// Asserts the reply to a caller that must ask again because of UNLESS.
fn assert_held(reply: &Reply) {
    assert_eq!(wait_of(reply), 1, "{reply:?}");
}

#[test]
fn absent_is_answered_only_while_the_key_exists() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            with_filter(&mut client);
            let never = "BF.FETCH {f} never {f}:never WHILE {f}:feed";
            for (line, exists) in [
                ("SET {f}:feed x", true),
                ("DEL {f}:feed", false),
                ("RPUSH {f}:feed x", true),
                ("RENAME {f}:feed {f}:other", false),
                ("HSET {f}:feed x y", true),
                ("UNLINK {f}:feed", false),
                ("BF.ADD {f}:feed x", true),
            ] {
                assert!(!client.run(line).is_error(), "{line}");
                let reply = client.run(never);
                assert_eq!(reply == absent(), exists, "{line}: {reply:?}");
                if !exists {
                    let lease = token(&reply);
                    assert_eq!(client.run(&format!("BF.FILL {{f}} never {{f}}:never {lease} GIVEUP")), ok());
                }
            }
            // An expired key does not exist, whether or not the server has deleted it.
            client.run("DEBUG SET-ACTIVE-EXPIRE 0");
            client.run("SET {f}:soon x PX 1");
            let soon = "BF.FETCH {f} never {f}:never WHILE {f}:soon";
            eventually("the key to expire", || client.run("PTTL {f}:soon").number() == -2);
            assert_eq!(word(&client.run(soon)), "load");
            client.run("DEBUG SET-ACTIVE-EXPIRE 1");
        }
        assert_eq!(server.log().matches("no key of WHILE at '{f}:feed'").count(), 1, "once a minute");
    });
}

#[test]
fn without_the_key_a_fetch_is_unguarded() {
    with_client(|_, client| {
        with_filter(client);
        client.run("SET {f}:never row");
        assert_eq!(client.run("BF.FETCH {f} never {f}:never WHILE {f}:feed"), hit("row"));
        assert_eq!(client.run("BF.FETCH {f} never {f}:never"), absent());
        assert_eq!(client.info_number("bf_bloom_fetches_unguarded"), 1);
        let lookups = client.info_number("bf_bloom_lookups");
        let lease = load(client, WHILE);
        assert_eq!(client.info_number("bf_bloom_lookups"), lookups, "the filter was not asked");
        // There is only one lease, whether or not WHILE is given and its key exists.
        wait_of(&client.run(FETCH));
        client.run("SET {f}:feed x");
        wait_of(&client.run(WHILE));
        client.run("DEL {f}:feed");
        wait_of(&client.run(WHILE));
        // A NONE answers only callers that accept `absent` from the filter.
        assert_eq!(fill(client, &lease, "NONE EX 100"), ok());
        assert_eq!(client.run(FETCH), absent());
        let again = load(client, WHILE);
        assert_eq!(fill(client, &again, "NONE EX 100"), ok());
        client.run("SET {f}:feed x");
        assert_eq!(client.run(WHILE), absent());
        client.run("DEL {f}:feed");
        client.run("SET {f}:42 row PX 50000");
        assert_eq!(word(&client.run(&format!("{WHILE} STALE 60000"))), "stale");
        // A filter that cannot guard, and a value that is not a filter, are refused as well.
        client.run("BF.RESERVE {f}counting 0.01 100 COUNTING");
        for (filter, text) in [("{f}counting", "ERR a CUCKOO or COUNTING filter cannot guard"), ("{f}:42", WRONG_TYPE)]
        {
            let reply = client.run(&format!("BF.FETCH {filter} 42 {{f}}:42 WHILE {{f}}:feed"));
            assert_eq!(reply.error_text(), text);
        }
    });
}

#[test]
fn a_write_in_flight_is_waited_for_whatever_filter_and_cache_say() {
    in_both_protocols(|client, _| {
        with_filter(client);
        let held = client.info_number("bf_bloom_fetches_waiting");
        let never = "BF.FETCH {f} never {f}:never UNLESS {f}:open";
        // A missing hash, and a hash with other fields.
        for line in ["PING", "HSET {f}:open {f}:43 x {f}:4 x 42 x"] {
            client.run(line);
            assert_eq!(client.run(never), absent(), "{line}");
            let lease = load(client, UNLESS);
            assert_eq!(fill(client, &lease, "GIVEUP"), ok());
        }
        for field in ["{f}:42", "*"] {
            client.run(&format!("HSET {{f}}:open {field} x"));
            assert_held(&client.run(UNLESS));
            client.run("SET {f}:42 old PX 50000");
            assert_held(&client.run(UNLESS));
            assert_held(&client.run(&format!("{UNLESS} STALE 60000")));
            assert_eq!(client.run(FETCH), hit("old"), "without UNLESS");
            let reply = client.run(never);
            assert_eq!(word(&reply), if field == "*" { "wait" } else { "absent" }, "{field}");
            client.run("DEL {f}:42");
            client.run(&format!("HDEL {{f}}:open {field}"));
        }
        assert_eq!(client.info_number("bf_bloom_leases"), 0, "no lease was granted");
        assert_eq!(client.info_number("bf_bloom_fetches_waiting"), held + 7);
        client.run("DEL {f}:open");
        client.run("RPUSH {f}:open {f}:42");
        assert_eq!(client.run(UNLESS).error_text(), WRONG_TYPE);
        assert_eq!(client.run(never).error_text(), WRONG_TYPE);
    });
}

#[test]
fn a_held_caller_is_answered_when_its_time_is_over() {
    with_client(|server, client| {
        with_filter(client);
        client.run("HSET {f}:open * x");
        assert_held(&client.run(&format!("{UNLESS} WAIT 20")));
        assert_eq!(client.info_number("bf_bloom_fetches_waiting"), 1);
        // CLIENT UNBLOCK, and a client that disconnects.
        let mut waiter = server.connect();
        let id = waiter.run("CLIENT ID").number();
        waiter.send(&format!("{UNLESS} WAIT {LONG}").split(' ').collect::<Vec<_>>()).unwrap();
        drop(wait_with(server, UNLESS));
        eventually("one client to wait", || waiters(client) == 1);
        assert_eq!(client.run(&format!("CLIENT UNBLOCK {id}")).number(), 1);
        assert_held(&waiter.receive().unwrap());
        assert_eq!((waiters(client), client.info_number("bf_bloom_fetches_waiting")), (0, 2));
        // In a transaction, a client never waits.
        client.run("MULTI");
        client.run(&format!("{UNLESS} WAIT 100000000"));
        assert_held(&client.run("EXEC").elements()[0]);
        let script = "return redis.call('BF.FETCH', KEYS[1], '42', KEYS[2], 'UNLESS', KEYS[3], 'WAIT', '100000000')";
        assert_held(&client.call(&["EVAL", script, "3", "{f}", "{f}:42", "{f}:open"]));
    });
}

#[test]
fn clients_are_held_by_the_hash_that_they_name() {
    with_client(|server, client| {
        with_filter(client);
        client.run("HSET {f}:open {f}:42 x");
        client.run("HSET {f}:other * x");
        let lines = [UNLESS, "BF.FETCH {f} 42 {f}:42 UNLESS {f}:other"];
        let mut clients: Vec<_> = (0..6).map(|number| wait_with(server, lines[number % 2])).collect();
        client.run("BF.CHANGED {f} 42 {f}:42");
        assert_eq!(waiters(client), 6);
        client.run("HDEL {f}:other *");
        let lease = token(&clients[1].receive().unwrap());
        assert_eq!(waiters(client), 5);
        assert_eq!(fill(client, &lease, "VALUE row"), ok());
        for number in [3, 5] {
            assert_eq!(clients[number].receive().unwrap(), hit("row"));
        }
        assert_eq!(waiters(client), 3, "the others are still held");
        client.run("MULTI");
        client.run("DEL {f}:open");
        client.run("BF.CHANGED {f} 42 {f}:42");
        client.run("EXEC");
        token(&clients[0].receive().unwrap());
    });
}

/// Without BF.CHANGED, as if the process that announces writes has died, and its fields expire or are removed by hand.
#[test]
fn held_callers_are_served_when_the_hash_loses_the_field() {
    with_client(|server, client| {
        for field in ["{f}:42", "*"] {
            for line in [
                "HDEL {f}:open NAME",
                "HPEXPIRE {f}:open 1 FIELDS 1 NAME",
                "DEL {f}:open",
                "UNLINK {f}:open",
                "PEXPIRE {f}:open 1",
                "RENAME {f}:open {f}:gone",
                "RENAME {f}:others {f}:open",
                "FLUSHALL",
                "SWAPDB 0 1",
            ] {
                if !hears_everything(client) && !line.starts_with('H') {
                    continue;
                }
                client.run("FLUSHALL");
                with_filter(client);
                client.run(&format!("HSET {{f}}:open {field} x other x"));
                client.run("HSET {f}:others other x");
                let mut held = [UNLESS, UNLESS].map(|line| wait_with(server, line));
                let reply = client.run(&line.replace("NAME", field));
                if reply.is_error() && reply.error_text().contains("unknown command") {
                    continue;
                }
                assert!(!reply.is_error(), "{line}: {reply:?}");
                let lease = token(&held[0].receive().unwrap());
                assert_eq!(waiters(client), 1, "{line}: the other one waits for the lease");
                assert_eq!(fill(client, &lease, "VALUE row"), ok());
                assert_eq!(held[1].receive().unwrap(), hit("row"));
            }
        }
    });
}

#[test]
fn a_hash_that_is_evicted_holds_no_caller() {
    with_client(|server, client| {
        if !hears_everything(client) {
            return; // The caller waits for BF.CHANGED.
        }
        client.run("HSET {f}:open * x");
        let mut held = wait_with(server, UNLESS);
        client.run("CONFIG SET maxmemory-policy allkeys-random");
        client.run("CONFIG SET maxmemory 1");
        eventually("the hash to be evicted", || {
            client.run("SET x y");
            client.run("EXISTS {f}:open") == integer(0)
        });
        token(&held.receive().unwrap());
    });
}

#[test]
fn a_hash_serves_the_rows_that_it_no_longer_names() {
    with_client(|server, client| {
        let rows = ["{f}:42", "{f}:43", "{f}:44"];
        client.run(&format!("HSET {{f}}:open {} x * x", rows.join(" x ")));
        let fetch = |row: &&str| format!("BF.FETCH {{f}} 42 {row} UNLESS {{f}}:open");
        let mut held: Vec<Connection> = rows.iter().map(|row| wait_with(server, &fetch(row))).collect();
        let mut expect = |line: &str, waiting: i64| {
            assert!(!client.run(line).is_error());
            eventually(&format!("{line}: {waiting} to wait"), || waiters(client) == waiting);
        };
        expect("HDEL {f}:open {f}:42", 3);
        expect("HDEL {f}:open *", 2);
        token(&held[0].receive().unwrap());
        expect("HDEL {f}:open other", 2);
        expect(
            "EVAL return(redis.call('HDEL',KEYS[1],ARGV[1])+redis.call('HSET',KEYS[1],ARGV[1],'x')) 1 {f}:open {f}:43",
            2,
        );
        expect("HDEL {f}:open {f}:44", 1);
        token(&held[2].receive().unwrap());
        expect("HSET {f}:open {f}:42 x", 1);
        expect("HDEL {f}:open {f}:43", 0);
        token(&held[1].receive().unwrap());
    });
}

/// Clients refuse options outside the ranges in clients/specification/options.json, so that the server never refuses a fetch or fill later.
#[test]
fn all_values_in_the_list_of_client_options_are_accepted() {
    let list = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/specification/options.json");
    let list: serde_json::Value = serde_json::from_str(&fs::read_to_string(list).unwrap()).unwrap();
    let range = |name: &str| {
        let option = list["options"].as_array().unwrap().iter().find(|option| option["name"] == name).unwrap();
        [&option["least"], &option["most"]].map(|number| number.as_u64().unwrap())
    };
    let ([least, most], [_, longest_wait], [_, fail_safe]) = (range("lease"), range("wait"), range("fail_safe"));
    let ([shortest, longest], [shortest_absent, longest_absent]) = (range("ttl"), range("absent_ttl"));
    // Clients send `beta` in percent, and omit FRESH if it is 0.
    let ([no_renewal, renewal], [_, fresh]) = (range("beta").map(|factor| 100 * factor), range("fresh"));
    with_client(|_, client| {
        with_filter(client);
        for (word, least, most) in
            [("LEASE", least, most), ("RENEW", no_renewal, renewal), ("WHILE {f}:feed FRESH", 1, fresh)]
        {
            let text = format!("ERR {} is a whole number from {least} to {most}", word.rsplit(' ').next().unwrap());
            for refused in [i128::from(least) - 1, i128::from(most) + 1] {
                assert_eq!(
                    client.run(&format!("{FETCH} {word} {refused}")),
                    error(&text),
                    "the list has the server's range"
                );
            }
        }
        let mut accepted = |fetch: &str, fill: &str| {
            let token = load(client, &format!("{FETCH} {fetch}"));
            assert_eq!(client.run(&format!("BF.FILL {{f}} 42 {{f}}:42 {token} {fill}")), ok(), "{fill}");
            client.run("DEL {f}:42");
            client.run("BF.CHANGED {f} 42 {f}:42");
        };
        accepted(&format!("LEASE {most} WAIT {longest_wait}"), &format!("VALUE v PX {}", longest + fail_safe));
        accepted(&format!("LEASE {most} STALE {fail_safe}"), &format!("VALUE v PX {shortest}"));
        accepted("WAIT 0", &format!("NONE PX {longest_absent}"));
        accepted("STALE 0", &format!("NONE PX {shortest_absent}"));
        accepted(&format!("RENEW {renewal} WHILE {{f}}:feed FRESH {fresh}"), "VALUE v");
        accepted(&format!("LEASE {least}"), "VALUE v");
    });
}

/// Clients recognise errors by their texts, which clients/specification/server-errors.json lists.
#[test]
fn the_list_of_errors_for_clients_has_the_texts_of_the_server() {
    let list = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/specification/server-errors.json");
    let list: serde_json::Value = serde_json::from_str(&fs::read_to_string(list).unwrap()).unwrap();
    with_client(|server, client| {
        with_filter(client);
        start_loading(client, "{f}loading");
        for row in list["errors"].as_array().unwrap() {
            let text = row["text"].as_str().unwrap();
            for line in row["setup"].as_array().into_iter().flatten() {
                let reply = client.run(line.as_str().unwrap());
                assert!(!reply.is_error(), "{line}: {reply:?}");
            }
            let Some(command) = row["command"].as_str() else {
                assert_eq!(text, "LOADING ...", "every other row is compared");
                continue;
            };
            let reply = if text == "UNBLOCKED ..." { unblocked(server, client, command) } else { client.run(command) };
            assert!(reply.is_error(), "{text}: {reply:?}");
            let found = reply.text();
            let is_listed = match text.strip_suffix(" ...") {
                Some(begin) => found.strip_prefix(begin).is_some_and(|rest| rest.starts_with(' ')),
                None => found == text,
            };
            assert!(is_listed, "the list has {text}, {command} is answered with {found}");
        }
    });
}

/// The reply to a command that waits, once CLIENT UNBLOCK ends it with an error.
fn unblocked(server: &Server, client: &mut Connection, line: &str) -> Reply {
    let mut waiter = server.connect();
    let id = waiter.run("CLIENT ID").number();
    waiter.send(&line.split(' ').collect::<Vec<_>>()).unwrap();
    eventually("the client to wait", || waiters(client) == 1);
    assert_eq!(client.run(&format!("CLIENT UNBLOCK {id} ERROR")), integer(1));
    waiter.receive().unwrap()
}

/// A filter whose chunks are still arriving: a copy of the usual one.
fn start_loading(client: &mut Connection, key: &str) {
    let header = client.run("BF.SCANDUMP {f} 0");
    let [iterator, header] = header.elements() else { panic!("{header:?}") };
    let iterator = iterator.number().to_string();
    let loaded = client.call(&[b"BF.LOADCHUNK", key.as_bytes(), iterator.as_bytes(), header.bytes()]);
    assert_eq!(loaded, ok());
}
