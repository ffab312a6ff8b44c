//! Filters that count: what COUNTING makes, how its adds answer and are carried, BF.COUNT, and the ways out and in. What is
//! deleted from them is in `deletes.rs`.

mod deletes;

use crate::harness::{
    Connection, Reply, Rng, Server, Stop, array, bulk, catch_up, digest, error, eventually, integer, lines, nil, ok,
    on_every_server, rewritten_commands, with_append_only_file,
};
use crate::persistence::rewrite_append_only_file;

const KEY: &str = "000102030405060708090a0b0c0d0e0f";
const FULL: &str = "ERR non scaling filter is full";

/// Adds items of a small set, one by one and many, to filters of both hashes that fill up.
fn add_at_random(client: &mut Connection, rng: &mut Rng, commands: usize) {
    for _ in 0..commands {
        let key = ["plain", "keyed", "small"][rng.below(3) as usize];
        let items: Vec<String> = (0..=rng.below(60)).map(|_| format!("item/{}", rng.below(50))).collect();
        let command = ["BF.MADD", "BF.INSERT", "BF.ADD"][rng.below(3) as usize];
        let line = match command {
            "BF.MADD" => format!("BF.MADD {key} {}", items.join(" ")),
            "BF.INSERT" => format!("BF.INSERT {key} NOCREATE ITEMS {}", items.join(" ")),
            _ => format!("BF.ADD {key} {}", items[0]),
        };
        client.run(&line);
    }
}

fn create_some(client: &mut Connection) {
    assert_eq!(client.run("BF.RESERVE plain 0.01 100000 COUNTING"), ok());
    assert_eq!(client.run("BF.RESERVE keyed 0.001 300000 COUNTING HASH siphash"), ok());
    assert_eq!(client.run("BF.RESERVE small 0.2 40 COUNTING"), ok());
}

#[test]
fn every_add_counts_and_says_whether_the_item_was_new() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            let (yes, no) = (client.answer(true), client.answer(false));
            client.run("FLUSHALL");
            assert_eq!(client.run("BF.RESERVE k 0.01 100 COUNTING"), ok());
            assert_eq!(client.run("BF.ADD k a"), yes);
            assert_eq!(client.run("BF.ADD k a"), no);
            // In order: the second of a command is found.
            assert_eq!(client.run("BF.MADD k b a b b"), array([yes.clone(), no.clone(), no.clone(), no.clone()]));
            assert_eq!(client.run("BF.INSERT k ITEMS c"), array([yes.clone()]));
            assert_eq!(client.run("BF.CARD k"), integer(7));
            for (item, count) in [("a", 3), ("b", 3), ("c", 1), ("d", 0)] {
                assert_eq!(client.run(&format!("BF.COUNT k {item}")), integer(count), "{item}");
                assert_eq!(client.run(&format!("BF.EXISTS k {item}")), client.answer(count > 0), "{item}");
            }
            assert_eq!(client.run("BF.MEXISTS k a d c"), array([yes, no, client.answer(true)]));
            assert_eq!(client.run("BF.INFO k").field("Expansion rate"), &nil(protocol));
            assert_eq!(client.run("BF.INFO k").field("Number of items inserted"), &integer(7));
            assert_eq!(client.run("BF.INFO k").field("Capacity"), &integer(100));
            assert_eq!(client.run("BF.INFO k").field("Number of filters"), &integer(1));
        }
    });
}

#[test]
fn a_count_ends_at_fifteen() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.INSERT k CAPACITY 1000 COUNTING ITEMS a");
        for count in 1..20 {
            assert_eq!(client.run("BF.COUNT k a"), integer(count.min(15)));
            assert_eq!(client.run("BF.ADD k a"), integer(0));
        }
        assert_eq!(client.run("BF.CARD k"), integer(20));
    });
}

#[test]
fn what_has_no_counters_has_no_counts() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        assert_eq!(client.run("BF.COUNT missing a"), integer(0));
        let refusal = error("ERR this filter has no COUNTING");
        for (words, key) in [
            ("BF.RESERVE native 0.01 100 NONSCALING", "native"),
            ("BF.RESERVE keyed 0.01 100 HASH siphash", "keyed"),
            ("BF.RESERVE windowed 0.01 100 WINDOW 60", "windowed"),
            ("BF.RESERVE theirs 0.01 100 LAYOUT redisbloom", "theirs"),
            ("BF.INSERT valkeys TIGHTENING 0.5 ITEMS a", "valkeys"),
        ] {
            assert!(!client.run(words).is_error(), "{words}");
            client.run(&format!("BF.ADD {key} a"));
            assert_eq!(client.run(&format!("BF.COUNT {key} a")), refusal, "{key}");
        }
        client.run("SET string a");
        assert!(client.run("BF.COUNT string a").error_text().starts_with("WRONGTYPE"));
        for line in ["BF.COUNT native", "BF.COUNT native a b", "BF.COUNT"] {
            assert!(client.run(line).error_text().contains("wrong number of arguments"), "{line}");
        }
        client.run("BF.RESERVE k 0.01 100 COUNTING");
        assert_eq!(client.run("BF.ROTATE k"), error("ERR this filter has no WINDOW"));
    });
}

#[test]
fn a_full_filter_refuses_every_add() {
    on_every_server(|program| {
        let server = Server::with(program).line("notify-keyspace-events AKE").start();
        let mut client = server.connect();
        client.run("BF.RESERVE k 0.01 3 COUNTING");
        let full = || error(FULL);
        assert_eq!(client.run("BF.MADD k a b a a c"), array([integer(1), integer(1), integer(0), full()]));
        let before = digest(&mut client, "k");
        let mut listener = server.connect();
        listener.run("SUBSCRIBE __keyevent@0__:bloom.full __keyevent@0__:bloom.add");
        assert_eq!(client.run("BF.ADD k a"), full(), "also what is in");
        assert_eq!(listener.receive().expect("a second subscription").elements()[1], bulk("__keyevent@0__:bloom.add"));
        let event = listener.receive().expect("an event");
        assert_eq!(event, array([bulk("message"), bulk("__keyevent@0__:bloom.full"), bulk("k")]));
        assert_eq!(client.run("BF.MADD k c a"), array([full()]));
        assert_eq!(client.run("BF.INSERT k ITEMS a"), array([full()]));
        assert_eq!(digest(&mut client, "k"), before);
        assert_eq!(client.run("BF.CARD k"), integer(3));
        // A smaller filter than a command has items: all that fit.
        let reply = client.run("BF.INSERT n CAPACITY 1 COUNTING ITEMS x x");
        assert_eq!(reply, array([integer(1), full()]));
        assert_eq!(client.run("BF.COUNT n x"), integer(1));
    });
}

#[test]
fn effects_carry_every_item_in_order() {
    on_every_server(|program| {
        let server = with_append_only_file(program);
        let mut client = server.connect();
        for line in [
            "BF.RESERVE a 1e-2 6 counting seed 7",
            "BF.MADD a x y x x",
            "BF.ADD a x",
            "BF.INSERT a NOCREATE ITEMS y",
            "BF.ADD a x",
            &format!("BF.INSERT b CAPACITY 2 HASH siphash COUNTING SEED {KEY} ITEMS x x x"),
            "BF.MADD b x",
            "BF.INSERT c COUNTING SEED 1 ERROR 0.3 CAPACITY 9",
            "BF.INSERT c SYNC ITEMS x x",
            "BF.COUNT c x",
        ] {
            client.run(line);
        }
        let expected = [
            "BF.INSERT a CAPACITY 6 ERROR 0.01 COUNTING SEED 7",
            "BF.MADD a x y x x",
            "BF.ADD a x",
            "BF.MADD a y",
            &format!("BF.INSERT b CAPACITY 2 ERROR 0.01 COUNTING HASH siphash SEED {KEY} ITEMS x x"),
            "BF.INSERT c CAPACITY 9 ERROR 0.25 COUNTING SEED 1",
            "BF.MADD c x x",
        ];
        assert_eq!(lines(&server), expected);
        assert_eq!(client.run("BF.RESERVE d 0.01 5 COUNTING EX 1000"), ok());
        let lines = lines(&server);
        assert!(lines[7].starts_with("BF.INSERT d CAPACITY 5 ERROR 0.01 COUNTING SEED "), "{lines:?}");
        assert!(lines[8].starts_with("PEXPIREAT d "), "{lines:?}");
    });
}

#[test]
fn words_that_contradict_counting_change_nothing() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for other in ["EXPANSION 2", "WINDOW 5", "ROLLING", "LAYOUT redisbloom"] {
            let name = other.trim_end_matches([' ', '2', '5']);
            let refusal = error(&format!("ERR COUNTING and {name} exclude each other"));
            for words in [format!("COUNTING {other}"), format!("{other} COUNTING")] {
                assert_eq!(client.run(&format!("BF.RESERVE k 0.01 100 {words}")), refusal, "{words}");
                assert_eq!(client.run(&format!("BF.INSERT k {words} ITEMS a")), refusal, "{words}");
            }
        }
        assert_eq!(client.run("EXISTS k"), integer(0));
        // NONSCALING it is by itself; EXPANSION 0 is another word for that, and yet EXPANSION.
        assert_eq!(client.run("BF.RESERVE k 0.01 100 COUNTING NONSCALING"), ok());
        assert!(client.run("BF.RESERVE n 0.01 100 COUNTING EXPANSION 0").is_error());
        assert_eq!(client.run("BF.RESERVE k 0.01 100 COUNTING"), error("ERR item exists"));
        let asked = client.run("BF.RESERVE n 0.01 100000000000000000 COUNTING");
        assert!(asked.error_text().starts_with("ERR Insufficient memory to create filter"), "{asked:?}");
    });
}

#[test]
fn a_replica_has_the_same_counters() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut primary = server.connect();
        create_some(&mut primary);
        let mut rng = Rng::new(1);
        add_at_random(&mut primary, &mut rng, 100);
        let other = Server::with(program)
            .module_words("ERROR_RATE 0.2 INITIAL_SIZE 7")
            .line("bf.max-filter-bytes 500")
            .line("bf.hash siphash")
            .start();
        let mut replica = other.connect();
        replica.run(&format!("REPLICAOF 127.0.0.1 {}", server.port));
        eventually("the link to the primary", || replica.info("master_link_status") == "up");
        add_at_random(&mut primary, &mut rng, 200);
        // Created, copied and filled under its eyes.
        primary.run("BF.INSERT later CAPACITY 5 COUNTING ITEMS a a b c d e f");
        primary.run("COPY plain copied");
        primary.pipeline(&["MULTI", "BF.ADD copied x", "BF.MADD copied x x item/1", "EXEC"]);
        primary.call(&["EVAL", "return redis.call('BF.MADD', KEYS[1], 'y', 'y')", "1", "copied"]);
        catch_up(&mut primary, &mut replica);
        for key in ["plain", "keyed", "small", "later", "copied"] {
            assert_eq!(digest(&mut replica, key), digest(&mut primary, key), "{key}");
            for command in ["BF.CARD", "BF.INFO", "BF.DEBUG"] {
                let line = format!("{command} {key}");
                assert_eq!(replica.run(&line), primary.run(&line), "{line}");
            }
        }
        assert_eq!(primary.run("BF.COUNT copied y"), integer(2));
        assert_eq!(replica.run("BF.COUNT copied y"), integer(2));
        assert_eq!(replica.run("DEBUG DIGEST"), primary.run("DEBUG DIGEST"));
    });
}

#[test]
fn files_bring_the_same_counters_back() {
    on_every_server(|program| {
        for preamble in ["no", "yes"] {
            let mut server = Server::with(program)
                .line("appendonly yes")
                .line(&format!("aof-use-rdb-preamble {preamble}"))
                .line("auto-aof-rewrite-percentage 0")
                .start();
            let mut client = server.connect();
            create_some(&mut client);
            let mut rng = Rng::new(2);
            add_at_random(&mut client, &mut rng, 150);
            let whole = client.run("DEBUG DIGEST");
            server.restart(Stop::Kill);
            let mut client = server.connect();
            assert_eq!(client.run("DEBUG DIGEST"), whole, "plain adds in the append-only file");
            rewrite_append_only_file(&mut client);
            if preamble == "no" {
                let rewritten = rewritten_commands(&server);
                assert!(rewritten.iter().all(|words| words[0] == b"BF.LOADCHUNK"), "nothing but records");
            }
            server.restart(Stop::Kill);
            let mut client = server.connect();
            assert_eq!(client.run("DEBUG DIGEST"), whole, "rewritten, preamble {preamble}");
            add_at_random(&mut client, &mut rng, 50);
            let whole = client.run("DEBUG DIGEST");
            server.restart(Stop::Kill);
            let mut client = server.connect();
            assert_eq!(client.run("DEBUG DIGEST"), whole, "adds after a rewrite");
            for way in ["DEBUG RELOAD", "DEBUG LOADAOF"] {
                assert_eq!(client.run(way), ok(), "{way}");
                assert_eq!(client.run("DEBUG DIGEST"), whole, "{way}");
            }
        }
        let mut server = Server::start(program);
        let mut client = server.connect();
        create_some(&mut client);
        add_at_random(&mut client, &mut Rng::new(3), 150);
        let whole = client.run("DEBUG DIGEST");
        server.restart(Stop::Save);
        assert_eq!(server.connect().run("DEBUG DIGEST"), whole, "a snapshot");
    });
}

/// Sends every record of a dump to another key, each of them twice.
fn load_records(client: &mut Connection, from: &str, to: &str) -> usize {
    let (mut iterator, mut records) = (0, 0);
    loop {
        let reply = client.run(&format!("BF.SCANDUMP {from} {iterator}"));
        let [next, data] = reply.elements() else { panic!("not a pair: {reply:?}") };
        iterator = next.number();
        if iterator == 0 {
            return records;
        }
        let number = iterator.to_string();
        for _ in 0..2 {
            let words: [&[u8]; 4] = [b"BF.LOADCHUNK", to.as_bytes(), number.as_bytes(), data.bytes()];
            assert_eq!(client.call(&words), ok());
        }
        records += 1;
    }
}

#[test]
fn a_filter_that_goes_elsewhere_has_the_same_counters() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        create_some(&mut client);
        add_at_random(&mut client, &mut Rng::new(4), 150);
        for key in ["plain", "keyed", "small"] {
            let before = digest(&mut client, key);
            let payload = client.run(&format!("DUMP {key}")).bytes().to_vec();
            let words: [&[u8]; 4] = [b"RESTORE", b"restored", b"0", &payload];
            assert_eq!(client.call(&words), ok());
            assert_eq!(client.run(&format!("COPY {key} copied")), integer(1));
            let records = load_records(&mut client, key, "loaded");
            assert!(records >= 2, "a header and counters");
            for copy in ["restored", "copied", "loaded"] {
                assert_eq!(digest(&mut client, copy), before, "{copy} of {key}");
                let line = |key: &str| format!("BF.DEBUG {key}");
                assert_eq!(client.run(&line(copy)), client.run(&line(key)), "{copy} of {key}");
                // It counts by itself from now on.
                client.run(&format!("BF.ADD {copy} another"));
                assert_eq!(digest(&mut client, key), before, "{copy} of {key}");
            }
            client.run("DEL restored copied loaded");
        }
    });
}

/// A dump of a filter that changes holds what was in all the time. A copy that is still arriving answers nothing.
#[test]
fn a_dump_of_a_filter_that_changes_loses_nothing() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.RESERVE k 0.001 300000 COUNTING");
        let members: Vec<String> = (0..3000).map(|number| format!("member/{number}")).collect();
        client.batched(&[b"BF.MADD", b"k"], &members);
        let (mut iterator, mut round) = (0, 0);
        loop {
            let reply = client.run(&format!("BF.SCANDUMP k {iterator}"));
            let [next, data] = reply.elements() else { panic!("not a pair: {reply:?}") };
            iterator = next.number();
            if iterator == 0 {
                break;
            }
            let number = iterator.to_string();
            let words: [&[u8]; 4] = [b"BF.LOADCHUNK", b"copy", number.as_bytes(), data.bytes()];
            assert_eq!(client.call(&words), ok());
            if round == 0 {
                assert_eq!(client.run("BF.COUNT copy member/1"), error("ERR filter is still being loaded"));
            }
            round += 1;
            client.run(&format!("BF.MADD k member/1 round/{round} round/{round}"));
        }
        assert!(round > 2, "{round} records");
        assert!(client.batched(&[b"BF.MEXISTS", b"copy"], &members).iter().all(|&present| present));
        assert!(client.run("BF.CARD copy").number() >= 3000);
    });
}

#[test]
fn what_it_is_made_of_is_told() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.RESERVE k 0.01 1000000 COUNTING");
        client.run("BF.RESERVE bits 0.01 1000000 NONSCALING");
        client.run("BF.MADD k a b a");
        let size =
            |client: &mut Connection, key: &str| client.run(&format!("BF.INFO {key} SIZE")).elements()[0].number();
        let (counters, bits) = (size(&mut client, "k"), size(&mut client, "bits"));
        assert!((counters - 4 * bits).abs() < 4 * 4096, "four times the memory: {counters}, {bits}");
        let debug = client.run("BF.DEBUG k");
        let [filter, layer] = debug.elements() else { panic!("not two lines: {debug:?}") };
        assert_eq!(filter.text(), "size:3");
        let expected = "hashes:7 hashwidth:128 capacity:1000000 size:3 ratio:0.01";
        assert!(layer.text().ends_with(expected), "{layer:?}");
        assert_eq!(client.run("BF.INFO k ERROR").text(), "0.01");
        assert!(client.run("MEMORY USAGE k").number() >= counters);
        assert_eq!(client.run("TYPE k").text(), "bloomgate");
        let docs = client.run("COMMAND DOCS bf.count");
        let docs = docs.field("bf.count");
        assert!(docs.field("summary").text().len() > 10 && docs.field("complexity").text() == "O(1)");
        let names: Vec<String> =
            docs.field("arguments").elements().iter().map(|word| word.field("name").text()).collect();
        assert_eq!(names, ["key", "item"]);
        let info = client.run("COMMAND INFO bf.count");
        let fields = info.elements()[0].elements();
        assert_eq!(fields[1].number(), 3);
        let flags: Vec<String> = fields[2].elements().iter().map(Reply::text).collect();
        for flag in ["readonly", "fast"] {
            assert!(flags.iter().any(|word| word == flag), "{flags:?}");
        }
        assert!(!flags.iter().any(|word| word == "write" || word == "denyoom"), "{flags:?}");
    });
}
