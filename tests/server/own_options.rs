//! The options of creation that RedisBloom lacks: contradictions, keyed hashes and the secrecy of their keys, time to live, SYNC, and
//! filters that an add must not create.

use crate::replication::effects;
use testing::{
    Connection, Server, array, error, integer, lines, ok, on_every_server, rewritten_commands, with_append_only_client,
};

const KEY: &str = "000102030405060708090a0b0c0d0e0f";

#[test]
fn a_keyed_filter_is_propagated_with_its_key() {
    with_append_only_client(|server, client| {
        assert_eq!(client.run(&format!("BF.RESERVE named 0.01 100 SEED {KEY} HASH siphash")), ok());
        client.run("BF.INSERT drawn HASH SipHash ITEMS x y x");
        client.run("BF.RESERVE plain 0.01 100 HASH murmur3 SEED 7");
        let lines = lines(server);
        let named = format!("BF.INSERT named CAPACITY 100 ERROR 0.01 EXPANSION 2 HASH siphash SEED {KEY} POLICY 3");
        assert_eq!(lines[0], named);
        let drawn = lines[1].strip_prefix("BF.INSERT drawn CAPACITY 100 ERROR 0.01 EXPANSION 2 HASH siphash SEED ");
        let (key, items) = drawn.expect("a key").split_once(' ').expect("items");
        assert!(key.len() == 32 && key.bytes().all(|digit| digit.is_ascii_hexdigit()), "{key}");
        assert_eq!(items, "POLICY 3 ITEMS x y");
        assert_eq!(effects(server)[2], "BF.INSERT plain AS [CAPACITY 100 ERROR 0.01 EXPANSION 2 SEED 7 POLICY 3]");
        // Equal keys give equal bits, different keys different bits.
        client.run(&format!("BF.INSERT again CAPACITY 100 HASH siphash SEED {} ITEMS a b", KEY.to_uppercase()));
        client.run("BF.MADD named a b");
        assert_eq!(client.run("DEBUG DIGEST-VALUE named"), client.run("DEBUG DIGEST-VALUE again"));
        client.run("BF.INSERT other CAPACITY 100 HASH siphash ITEMS a b");
        assert_ne!(client.run("DEBUG DIGEST-VALUE named"), client.run("DEBUG DIGEST-VALUE other"));
        let digest = client.run("DEBUG DIGEST");
        for way in ["DEBUG RELOAD", "DEBUG LOADAOF"] {
            assert_eq!(client.run(way), ok(), "{way}");
            assert_eq!(client.run("DEBUG DIGEST"), digest, "{way}");
        }
        crate::persistence::rewrite_append_only_file(client);
        let rewritten = rewritten_commands(server);
        assert!(rewritten.iter().all(|words| words[0] == b"BF.LOAD"));
        assert_eq!(client.run("DEBUG LOADAOF"), ok());
        assert_eq!(client.run("DEBUG DIGEST"), digest);
    });
}

/// Every user with access to the slow log or MONITOR can read the arguments of commands.
#[test]
fn a_key_is_kept_out_of_the_slow_log_and_of_monitor() {
    on_every_server(|program| {
        let server = Server::with(program).line("slowlog-log-slower-than 0").start();
        let mut watcher = server.connect();
        assert_eq!(watcher.run("MONITOR"), ok());
        let mut client = server.connect();
        client.run(&format!("BF.RESERVE one 0.01 100 HASH siphash SEED {KEY}"));
        client.run(&format!("BF.INSERT two SEED {KEY} HASH siphash ITEMS x"));
        // An item that looks like a key is not one.
        client.run(&format!("BF.INSERT three HASH siphash ITEMS SEED {KEY}"));
        client.run("PING last");
        let log = format!("{:?}", client.run("SLOWLOG GET 10"));
        let mut monitored = String::new();
        while !monitored.contains("last") {
            monitored.push_str(&watcher.receive().expect("a line").text());
            monitored.push('\n');
        }
        for (place, text) in [("the slow log", log), ("MONITOR", monitored)] {
            assert_eq!(text.matches(KEY).count(), 1, "{place}: {text}");
            assert_eq!(text.matches("(redacted)").count(), 2, "{place}: {text}");
        }
    });
}

fn hash_of(client: &mut Connection, server: &Server, command: &str) -> &'static str {
    client.run(command);
    let lines = lines(server);
    if lines.last().expect("a command").contains("HASH siphash") { "siphash" } else { "murmur3" }
}

#[test]
fn the_setting_of_the_hash_applies_to_clients_without_the_option() {
    with_append_only_client(|server, client| {
        assert_eq!(client.run("CONFIG GET bf.hash").elements()[1].text(), "murmur3");
        assert_eq!(hash_of(client, server, "BF.ADD a x"), "murmur3");
        assert_eq!(client.run("CONFIG SET bf.hash siphash"), ok());
        assert!(client.run("CONFIG SET bf.hash md5").is_error());
        for (command, hash) in [
            ("BF.ADD b x", "siphash"),
            ("BF.RESERVE c 0.01 100", "siphash"),
            ("BF.INSERT d CAPACITY 5 ITEMS x", "siphash"),
            ("BF.RESERVE e 0.01 100 SEED 5", "murmur3"),
            ("BF.RESERVE f 0.01 100 LAYOUT native", "murmur3"),
            ("BF.RESERVE g 0.01 100 LAYOUT redisbloom", "murmur3"),
            ("BF.INSERT h TIGHTENING 0.5 ITEMS x", "murmur3"),
            ("BF.RESERVE i 0.01 100 HASH murmur3", "murmur3"),
        ] {
            assert_eq!(hash_of(client, server, command), hash, "{command}");
        }
        let digest = client.run("DEBUG DIGEST");
        // The setting does not apply to the AOF.
        assert_eq!(client.run("DEBUG LOADAOF"), ok());
        assert_eq!(client.run("DEBUG DIGEST"), digest);
    });
}

#[test]
fn a_key_that_is_created_with_a_time_to_live_has_it() {
    with_append_only_client(|server, client| {
        assert_eq!(client.run("BF.RESERVE a 0.01 100 EX 1000"), ok());
        client.run("BF.INSERT b PX 500000 ITEMS x");
        client.run("BF.INSERT b PX 1 ITEMS y");
        client.run("BF.ADD plain x");
        client.run("BF.INSERT plain EX 5 ITEMS y");
        for (key, seconds) in [("a", 990..=1000), ("b", 490..=500), ("plain", -1..=-1)] {
            let left = client.run(&format!("TTL {key}")).number();
            assert!(seconds.contains(&left), "{key}: {left}");
        }
        let lines = lines(server);
        let expiring: Vec<&String> = lines.iter().filter(|line| line.starts_with("PEXPIREAT")).collect();
        assert!(expiring.len() == 2 && expiring[0].starts_with("PEXPIREAT a "), "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains(" EX ") || line.contains(" PX ")), "{lines:?}");
        assert_eq!(client.run("DEBUG LOADAOF"), ok());
        assert!(client.run("TTL a").number() > 900 && client.run("TTL plain").number() == -1);
        // From a primary, EX means RedisBloom's EXPANSION.
        let mut short = server.connect();
        short.run("BF.RESERVE soon 0.01 100 PX 20");
        testing::eventually("the key expires", || short.run("EXISTS soon") == integer(0));
    });
}

#[test]
fn sync_propagates_items_that_were_not_new() {
    with_append_only_client(|server, client| {
        client.run("BF.INSERT k CAPACITY 100 SEED 1 ITEMS a b");
        let answers = [client.answer(false), client.answer(true), client.answer(false)];
        assert_eq!(client.run("BF.INSERT k SYNC ITEMS a c b"), array(answers));
        assert_eq!(client.run("BF.INSERT k SYNC ITEMS c"), array([client.answer(false)]));
        client.run("BF.INSERT k ITEMS c");
        client.run("BF.INSERT fresh SEED 3 SYNC ITEMS c c");
        assert_eq!(
            effects(server)[1..],
            [
                "BF.INSERT k NOCREATE SYNC ITEMS a b",
                "BF.MADD k c",
                "BF.INSERT k NOCREATE SYNC ITEMS c",
                "BF.INSERT fresh AS [CAPACITY 100 ERROR 0.01 EXPANSION 2 SEED 3 POLICY 3] c",
            ]
        );
        let digest = client.run("DEBUG DIGEST");
        assert_eq!(client.run("DEBUG LOADAOF"), ok());
        assert_eq!(client.run("DEBUG DIGEST"), digest);
    });
}

#[test]
fn an_add_creates_no_filter_where_it_may_not() {
    with_append_only_client(|_, client| {
        assert_eq!(client.run("CONFIG GET bf.auto-create").elements()[1].text(), "yes");
        client.run("BF.ADD before x");
        assert_eq!(client.run("CONFIG SET bf.auto-create no"), ok());
        assert_eq!(client.run("BF.ADD k x"), error("ERR not found"));
        assert_eq!(client.run("BF.MADD k x y"), error("ERR not found"));
        assert_eq!(client.run("EXISTS k"), integer(0));
        assert_eq!(client.run("BF.ADD before y"), client.answer(true));
        assert_eq!(client.run("BF.INSERT k ITEMS x"), array([client.answer(true)]), "asked for");
        // Commands in the AOF are applied: RedisBloom's primaries propagate adds that created a filter.
        assert_eq!(client.run("DEBUG LOADAOF"), ok());
        assert_eq!(client.run("BF.CARD before"), integer(2));
    });
}
