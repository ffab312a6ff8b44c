//! What a primary tells its replicas and its append-only file about filters of RedisBloom's layout: effects, in
//! RedisBloom's own words, and the same bits everywhere.

use std::path::Path;

use super::golden::{RELEASES, TODAY, filter, filters, load_chunks, restore, snapshot, start_on_snapshot};
use crate::harness::{
    Connection, Server, Stop, append_only_commands, eventually, integer, ok, on_every_server, simple,
};

/// A server whose settings differ from the defaults in all that RedisBloom has no setting for: those two have to agree
/// in error rate, capacity and expansion, which a creation by an add takes from the settings.
pub fn contrary(program: &Path) -> Server {
    Server::with(program).line("bf.max-filter-bytes 100").line("bf.layout native").start()
}

fn lines_of(server: &Server) -> Vec<String> {
    let join =
        |words: Vec<Vec<u8>>| words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ");
    append_only_commands(server).into_iter().map(join).collect()
}

#[test]
fn effects_are_spelled_in_redisblooms_words() {
    on_every_server(|program| {
        let server = Server::with(program).line("appendonly yes").line("aof-use-rdb-preamble no").start();
        let mut client = server.connect();
        let mut expect = |line: &str, effects: &[&str]| {
            let before = lines_of(&server).len();
            client.run(line);
            assert_eq!(lines_of(&server)[before..], *effects, "{line}");
        };
        expect("BF.RESERVE k 0.01 100 LAYOUT redisbloom", &["BF.RESERVE k 0.01 100 EXPANSION 2"]);
        expect("BF.RESERVE fixed 0.01 3 LAYOUT redisbloom NONSCALING", &["BF.RESERVE fixed 0.01 3 NONSCALING"]);
        expect("BF.RESERVE four 0.001 7 EXPANSION 4 LAYOUT redisbloom", &["BF.RESERVE four 0.001 7 EXPANSION 4"]);
        expect("BF.ADD k a", &["BF.ADD k a"]);
        expect("BF.ADD k a", &[]);
        expect("BF.MADD k a b c b", &["BF.MADD k b c"]);
        expect("BF.MADD k a b", &[]);
        expect("BF.INSERT k NOCREATE ITEMS a d e", &["BF.MADD k d e"]);
        expect("BF.INSERT k LAYOUT redisbloom CAPACITY 5 ITEMS a", &[]);
        expect("BF.MADD fixed a b a c d e", &["BF.MADD fixed a b c"]);
        expect("BF.ADD fixed z", &[]);
        expect("BF.RESERVE k 0.01 100 LAYOUT redisbloom", &[]);
        expect(
            "BF.INSERT new CAPACITY 9 EXPANSION 1 ERROR 0.001 LAYOUT redisbloom ITEMS a b a",
            &["MULTI", "BF.RESERVE new 0.001 9 EXPANSION 1", "BF.MADD new a b", "EXEC"],
        );
        expect("CONFIG SET bf.layout redisbloom", &[]);
        expect("BF.ADD add x", &["MULTI", "BF.RESERVE add 0.01 100 EXPANSION 2", "BF.MADD add x", "EXEC"]);
        expect("BF.MADD madd x y x", &["MULTI", "BF.RESERVE madd 0.01 100 EXPANSION 2", "BF.MADD madd x y", "EXEC"]);
        expect("BF.RESERVE plain 0.02 50", &["BF.RESERVE plain 0.02 50 EXPANSION 2"]);
    });
}

/// Everything that a client can do to filters of RedisBloom's layout.
fn write_some(client: &mut Connection, round: usize) {
    let items: Vec<String> = (0..1500).map(|number| format!("round/{round}/{number}")).collect();
    if round == 0 {
        client.run("BF.RESERVE grown 0.001 10 EXPANSION 3 LAYOUT redisbloom");
        client.run("BF.RESERVE fixed 0.1 100 NONSCALING LAYOUT redisbloom");
        client.run("BF.RESERVE tiny-rate 1e-300 3 LAYOUT redisbloom");
        client.run("BF.RESERVE odd-rate 0.012345678901234567 3 LAYOUT redisbloom");
        client.run("BF.RESERVE loose 0.9 3 LAYOUT redisbloom");
    }
    client.batched(&[b"BF.MADD", b"grown"], &items);
    for key in ["fixed", "odd-rate", "loose", "tiny-rate"] {
        let words: Vec<&str> = ["BF.MADD", key].into_iter().chain(items[..60].iter().map(String::as_str)).collect();
        client.call(&words);
    }
    client.run(&format!("BF.INSERT inserted-{round} CAPACITY 3 EXPANSION 1 LAYOUT redisbloom ITEMS a b c d e f g h"));
    client.run(&format!("BF.INSERT full-{round} CAPACITY 3 NONSCALING LAYOUT redisbloom ITEMS a b c d e f g h"));
    client.run("CONFIG SET bf.layout redisbloom");
    client.run(&format!("BF.ADD added-{round} x"));
    client.run(&format!("BF.MADD madded-{round} x y x"));
    client.call(&["EVAL", "redis.call('BF.MADD', KEYS[1], 'a', 'b', 'a')", "1", &format!("script-{round}")]);
    client.pipeline(&["MULTI", &format!("BF.ADD multi-{round} a"), &format!("BF.MADD multi-{round} a b"), "EXEC"]);
    client.run("CONFIG SET bf.layout native");
    client.run(&format!("COPY grown copied-{round}"));
}

#[test]
fn a_replica_with_any_settings_is_equal() {
    on_every_server(|program| {
        let server = Server::with(program).line("appendonly yes").line("aof-use-rdb-preamble no").start();
        let others = [
            contrary(program),
            Server::with(program)
                .module_words("ERROR_RATE 0.2 INITIAL_SIZE 7")
                .line("bf.expansion-factor 0")
                .line("bf.layout redisbloom")
                .start(),
        ];
        let mut primary = server.connect();
        write_some(&mut primary, 0);
        for (number, other) in others.iter().enumerate() {
            let mut replica = other.connect();
            // The first sees one round as a snapshot and one as a stream; the second comes later.
            assert_eq!(replica.run(&format!("REPLICAOF 127.0.0.1 {}", server.port)), ok());
            eventually("the link to the primary", || replica.info("master_link_status") == "up");
            write_some(&mut primary, number + 1);
        }
        for other in &others {
            let mut replica = other.connect();
            eventually("the replica to catch up", || {
                replica.info_number("slave_repl_offset") >= primary.info_number("master_repl_offset")
            });
            let keys = primary.run("KEYS *");
            assert_eq!(replica.run("DBSIZE"), integer(keys.elements().len() as i64));
            for key in keys.elements() {
                let words: [&[u8]; 3] = [b"DEBUG", b"DIGEST-VALUE", key.bytes()];
                assert_eq!(replica.call(&words), primary.call(&words), "{key:?}");
                assert_eq!(replica.call(&[b"TYPE", key.bytes()]), simple("MBbloom--"), "{key:?}");
            }
            assert!(!other.log().contains("== CRITICAL =="), "the replica met a command that failed");
        }
        for line in lines_of(&server).iter().filter(|line| line.starts_with("BF.")) {
            let words: Vec<&str> = line.split(' ').collect();
            assert!(["BF.RESERVE", "BF.ADD", "BF.MADD"].contains(&words[0]), "{line}");
            assert!(!words.contains(&"SEED") && !words.contains(&"LAYOUT"), "{line}");
        }
    });
}

#[test]
fn our_append_only_file_brings_the_same_filters_back() {
    on_every_server(|program| {
        let mut server = Server::with(program).line("appendonly yes").line("aof-use-rdb-preamble no").start();
        let mut client = server.connect();
        write_some(&mut client, 0);
        write_some(&mut client, 1);
        for key in client.run("KEYS *").elements() {
            assert_eq!(client.call(&[b"TYPE", key.bytes()]), simple("MBbloom--"), "{key:?}");
        }
        let before = client.run("DEBUG DIGEST");
        server.restart(Stop::Kill);
        assert_eq!(server.connect().run("DEBUG DIGEST"), before);
    });
}

#[test]
fn a_load_is_carried_word_for_word() {
    on_every_server(|program| {
        let server = Server::with(program).line("appendonly yes").line("aof-use-rdb-preamble no").start();
        let golden = filter(TODAY, "tiny");
        load_chunks(&server, "k", &golden.chunks);
        let expected: Vec<Vec<Vec<u8>>> = golden
            .chunks
            .iter()
            .map(|(iterator, data)| {
                vec![b"BF.LOADCHUNK".into(), b"k".into(), iterator.to_string().into(), data.clone()]
            })
            .collect();
        assert_eq!(append_only_commands(&server), expected);
    });
}

#[test]
fn a_ceiling_does_not_bind_what_a_primary_or_the_file_brings() {
    on_every_server(|program| {
        let mut server = Server::with(program).line("appendonly yes").line("aof-use-rdb-preamble no").start();
        let other = contrary(program);
        let (mut primary, mut replica) = (server.connect(), other.connect());
        assert_eq!(replica.run(&format!("REPLICAOF 127.0.0.1 {}", server.port)), ok());
        eventually("the link to the primary", || replica.info("master_link_status") == "up");
        let golden = filter(TODAY, "grown-default");
        restore(&server, "k", &golden.payload);
        restore(&server, "copied-from", &golden.payload);
        assert_eq!(primary.run("COPY copied-from copy"), integer(1));
        eventually("the replica to have the copy", || replica.run("EXISTS copy") == integer(1));
        for key in ["k", "copy"] {
            golden.check(&other, key);
        }
        primary.run("CONFIG SET bf.max-filter-bytes 100");
        primary.run("CONFIG REWRITE");
        server.restart(Stop::Kill);
        assert_eq!(server.connect().run("CONFIG GET bf.max-filter-bytes").elements()[1].text(), "100");
        for key in ["k", "copy"] {
            golden.check(&server, key);
        }
        let words: [&[u8]; 4] = [b"RESTORE", b"by-a-client", b"0", &golden.payload];
        assert!(server.connect().call(&words).is_error());
    });
}

#[test]
fn a_loaded_filter_grows_on_a_replica_as_on_its_primary() {
    on_every_server(|program| {
        for release in RELEASES {
            let server = start_on_snapshot(program, &["appendonly no"], &snapshot(release));
            let other = contrary(program);
            let (mut primary, mut replica) = (server.connect(), other.connect());
            assert_eq!(replica.run(&format!("REPLICAOF 127.0.0.1 {}", server.port)), ok());
            eventually("the link to the primary", || replica.info("master_link_status") == "up");
            let expected = filters(release);
            for golden in &expected {
                golden.check(&other, &golden.key);
                let items: Vec<String> = (0..2000).map(|number| format!("more/{number}")).collect();
                for item in &items[..200] {
                    primary.run(&format!("BF.ADD {} {item}", golden.key));
                }
                for batch in items.chunks(500) {
                    let words = ["BF.MADD", &golden.key].into_iter().chain(batch.iter().map(String::as_str));
                    primary.call(&words.collect::<Vec<_>>());
                }
            }
            eventually("the replica to catch up", || {
                replica.info_number("slave_repl_offset") >= primary.info_number("master_repl_offset")
            });
            for golden in &expected {
                let line = format!("DEBUG DIGEST-VALUE {}", golden.key);
                assert_eq!(replica.run(&line), primary.run(&line), "{release}: {}", golden.key);
                let line = format!("BF.DEBUG {}", golden.key);
                assert_eq!(replica.run(&line), primary.run(&line), "{release}: {}", golden.key);
            }
        }
    });
}

#[test]
fn adds_after_a_rewrite_of_loaded_filters_come_back() {
    on_every_server(|program| {
        for (release, preamble) in RELEASES.iter().flat_map(|release| [(release, "no"), (release, "yes")]) {
            let builder = Server::with(program).line("appendonly yes");
            let mut server = builder.line(&format!("aof-use-rdb-preamble {preamble}")).start();
            let mut client = server.connect();
            for golden in filters(release) {
                restore(&server, &golden.key, &golden.payload);
            }
            crate::persistence::rewrite_append_only_file(&mut client);
            let items: Vec<String> = (0..1500).map(|number| format!("more/{number}")).collect();
            for golden in filters(release) {
                let words = ["BF.MADD", &golden.key].into_iter().chain(items.iter().map(String::as_str));
                client.call(&words.collect::<Vec<_>>());
            }
            let before = client.run("DEBUG DIGEST");
            server.restart(Stop::Kill);
            assert_eq!(server.connect().run("DEBUG DIGEST"), before, "{release}, preamble {preamble}");
        }
    });
}
