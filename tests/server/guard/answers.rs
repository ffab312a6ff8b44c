//! What the three commands answer, word by word, in both protocols.

use super::{FETCH, INVENTED, absent, fill, hit, lasting, load, token, wait_of, with_filter, word};
use testing::{Server, array, bulk, error, eventually, nil, ok, on_every_server};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn a_value_is_loaded_once_and_then_hit() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            with_filter(&mut client);
            assert_eq!(client.run("BF.FETCH {f} never {f}:never"), absent());
            // In one transaction, because the usual lease may end before the next command.
            let replies = client.pipeline(&["MULTI", FETCH, FETCH, "EXEC"]);
            let [first, second] = replies[3].elements() else { panic!("{replies:?}") };
            assert_eq!((word(first).as_str(), (1..=3000).contains(&wait_of(second))), ("load", true));
            client.run("BF.CHANGED {f} 42 {f}:42");
            let token = load(&mut client, FETCH);
            assert_eq!(fill(&mut client, &token, "VALUE row EX 100"), ok());
            assert_eq!(client.run(FETCH), hit("row"));
            assert!((90..=100).contains(&client.run("TTL {f}:42").number()));
            assert_eq!(fill(&mut client, &token, "VALUE other"), nil(protocol), "it is used up");
            assert_eq!(client.run("GET {f}:42"), bulk("row"));

            client.run("DEL {f}:42");
            let token = load(&mut client, FETCH);
            assert_eq!(fill(&mut client, &token, "VALUE 17"), ok());
            assert_eq!(client.run(FETCH), hit("17"), "a number");
            assert_eq!(client.run("TTL {f}:42").number(), -1);
            assert_eq!(client.run("INCR {f}:42").number(), 18);
            assert_eq!(client.run(FETCH), hit("18"));
        }
    });
}

#[test]
fn a_none_is_remembered_and_a_lease_can_be_given_up() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            with_filter(&mut client);
            let token = load(&mut client, FETCH);
            assert_eq!(fill(&mut client, &token, "NONE EX 1000"), ok());
            assert_eq!(client.run(FETCH), absent());
            // Nothing is known of another cache key.
            let token = load(&mut client, "BF.FETCH {f} 42 {f}:other");
            assert_eq!(client.run(&format!("BF.FILL {{f}} 42 {{f}}:other {token} NONE PX 20")), ok());
            eventually("the miss to be forgotten", || word(&client.run("BF.FETCH {f} 42 {f}:other")) == "load");

            client.run("BF.CHANGED {f} 42 {f}:42");
            let token = load(&mut client, FETCH);
            assert_eq!(fill(&mut client, &token, "GIVEUP"), ok());
            let next = load(&mut client, FETCH);
            assert_ne!(token, next);
            assert_eq!(fill(&mut client, &token, "GIVEUP"), nil(protocol), "another caller has the lease");
            assert_eq!(fill(&mut client, &next, "VALUE row"), ok());
        }
    });
}

#[test]
fn one_caller_refreshes_a_stale_value() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        client.run("SET {f}:42 old PX 50000");
        assert_eq!(client.run(&format!("{FETCH} STALE 1000")), hit("old"));
        let line = lasting(&format!("{FETCH} STALE 60000"));
        let reply = client.run(&line);
        assert_eq!((word(&reply), reply.elements()[1].text()), ("stale".to_owned(), "old".to_owned()));
        assert_eq!(client.run(&line), hit("old"), "one refreshes");
        assert_eq!(client.run(FETCH), hit("old"));
        // The next lease is short, and somebody else may refresh the value when it has ended.
        assert_eq!(fill(&mut client, &token(&reply), "GIVEUP"), ok());
        let short = load(&mut client, &format!("{FETCH} STALE 60000 LEASE 20"));
        let mut reply = hit("old");
        eventually("the lease to end", || {
            reply = client.run(&line);
            reply != hit("old")
        });
        assert_eq!(fill(&mut client, &short, "VALUE new PX 100000"), ok(), "late, but the row is the same");
        assert_eq!(fill(&mut client, &token(&reply), "VALUE newer PX 100000"), nil(2));
        assert_eq!(client.run(&line), hit("new"));
        client.run("PERSIST {f}:42");
        assert_eq!(client.run(&format!("{FETCH} STALE 2305843009213693952")), hit("new"), "it does not expire");
    });
}

#[test]
fn a_change_deletes_the_value_and_announces_the_item() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            let (yes, no) = (client.answer(true), client.answer(false));
            client.run("SET {f}:1 v");
            assert_eq!(client.run("BF.CHANGED {f} 1 {f}:1"), nil(protocol), "it creates no filter");
            assert_eq!(client.run("EXISTS {f} {f}:1").number(), 0);
            with_filter(&mut client);
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
        }
    });
}

#[test]
fn a_ring_adds_an_announced_item_to_its_newest_bucket() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
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
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("SET {f}:1 v");
        assert_eq!(client.run("BF.FETCH {f} 1 {f}:1"), hit("v"));
        let token = load(&mut client, FETCH);
        assert_eq!(fill(&mut client, &token, "NONE EX 100"), ok());
        load(&mut client, FETCH);
        with_filter(&mut client);
        let token = load(&mut client, FETCH);
        assert_eq!(fill(&mut client, &token, "VALUE v"), ok());
        assert_eq!(client.info_number("bf_bloom_fetches_unguarded"), 3);
        assert_eq!(server.log().matches("no filter at '{f}'").count(), 1, "once a minute");

        // A filter whose chunks are still arriving.
        let header = client.run("BF.SCANDUMP {f} 0");
        let [iterator, header] = header.elements() else { panic!("{header:?}") };
        let iterator = iterator.number().to_string();
        let loaded = client.call(&[b"BF.LOADCHUNK", &b"{f}new"[..], iterator.as_bytes(), header.bytes()]);
        assert_eq!(loaded, ok());
        assert!(client.run("BF.EXISTS {f}new 1").is_error());
        assert_eq!(client.run("BF.FETCH {f}new never {f}:1"), hit("v"));
        load(&mut client, "BF.FETCH {f}new never {f}:never");
        assert!(client.run("BF.CHANGED {f}new 1 {f}:1").is_error());
        assert_eq!(client.run("EXISTS {f}:1").number(), 0);
    });
}

#[test]
fn wrong_words_and_types_are_refused_before_anything_changes() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        client.run("RPUSH {f}:list x");
        client.run("BF.RESERVE {f}counting 0.01 100 COUNTING");
        let token = load(&mut client, FETCH);
        let fill = |rest: &str| format!("BF.FILL {{f}} 42 {{f}}:42 {token} {rest}");
        let cases = [
            (format!("{FETCH} NOW"), "ERR syntax error"),
            (format!("{FETCH} WAIT 1 WAIT 1"), "ERR syntax error"),
            (format!("{FETCH} LEASE"), "ERR no lease"),
            (format!("{FETCH} LEASE 0"), "ERR bad lease"),
            (format!("{FETCH} LEASE 3600001"), "ERR bad lease"),
            (format!("{FETCH} STALE -1"), "ERR bad stale"),
            (format!("{FETCH} WAIT 99999999999999999999"), "ERR bad wait"),
            ("BF.FETCH {f} 42 {f}:list".to_owned(), WRONG_TYPE),
            ("BF.FETCH {f}:list 42 {f}:42".to_owned(), WRONG_TYPE),
            ("BF.FETCH {f}counting 42 {f}:42".to_owned(), "ERR a COUNTING filter cannot guard"),
            ("BF.CHANGED {f}counting 42 {f}:none".to_owned(), "ERR a COUNTING filter cannot guard"),
            (fill("VALUE v EX 0"), "ERR invalid expire time"),
            (fill("VALUE v EX 9223372036854775807"), "ERR invalid expire time"),
            (fill("VALUE v KEEPTTL"), "ERR syntax error"),
            (fill("NONE"), "ERR no expire time"),
            (fill("NONE EX 1 PX 1"), "ERR syntax error"),
            (fill("GIVEUP now"), "ERR syntax error"),
            (fill("GIVEUP NONE 5"), "ERR syntax error"),
            (fill("VALUE"), "ERR wrong number of arguments for 'bf.fill' command"),
            ("BF.FETCH {f} 42".to_owned(), "ERR wrong number of arguments for 'bf.fetch' command"),
            ("BF.CHANGED {f} 42".to_owned(), "ERR wrong number of arguments for 'bf.changed' command"),
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
        assert_eq!(client.run(&fill("VALUE v")), ok());
    });
}

#[test]
fn names_items_and_values_are_any_bytes() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
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
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let token = load(&mut client, FETCH);
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
        let eval = |client: &mut testing::Connection| client.call(&["EVAL", script, "2", "{f}", "{f}:42", "42"]);
        assert_eq!(eval(&mut client), bulk("load"));
        assert_eq!(eval(&mut client), bulk("hit"));
        assert_eq!(client.run(FETCH), hit("by script"));
        client.run("BF.CHANGED {f} 42 {f}:42");
        load(&mut client, FETCH);
        assert_eq!(eval(&mut client), bulk("wait"));
        let library = "#!lua name=guard\nredis.register_function('get', function(keys, args) \
                       return redis.call('BF.FETCH', keys[1], args[1], keys[2], 'WAIT', '100000') end)";
        assert!(!client.call(&["FUNCTION", "LOAD", library]).is_error());
        assert_eq!(word(&client.run("FCALL get 2 {f} {f}:42 42")), "wait");
    });
}
