//! BF.INSERT: creation and adding in one command, with its own spelling of errors.

use crate::reserve::sizes_of_a_refusal;
use testing::{Server, array, digest, error, integer, nil, ok, on_every_server};

#[test]
fn it_creates_with_what_was_asked_for_and_adds() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            for (line, capacity, expansion, answers) in [
                ("BF.INSERT a ITEMS x y x", 100, Some(2), vec![1, 1, 0]),
                ("BF.INSERT b CAPACITY 500 ITEMS x", 500, Some(2), vec![1]),
                ("bf.insert c error 0.001 capacity 7 expansion 4 items x", 7, Some(4), vec![1]),
                ("BF.INSERT d NONSCALING ITEMS x y", 100, None, vec![1, 1]),
                ("BF.INSERT e EXPANSION 0 CAPACITY 9 ITEMS x", 9, None, vec![1]),
                ("BF.INSERT f EXPANSION 3 NONSCALING ITEMS x", 100, None, vec![1]),
                ("BF.INSERT g NonScaling Expansion 3 Items x", 100, None, vec![1]),
                ("BF.INSERT h SEED 0 ITEMS x", 100, Some(2), vec![1]),
                ("BF.INSERT i Seed 4294967295 CAPACITY 12 ITEMS x", 12, Some(2), vec![1]),
                ("BF.INSERT j EXPANSION 32768 ERROR 0.9 ITEMS x", 100, Some(32768), vec![1]),
                ("BF.INSERT k CAPACITY 5 CAPACITY 6 ITEMS x", 6, Some(2), vec![1]),
                // After ITEMS there are items only.
                ("BF.INSERT l ITEMS CAPACITY 6 ITEMS NOCREATE", 100, Some(2), vec![1, 1, 1, 1]),
            ] {
                let expected: Vec<_> = answers.iter().map(|&answer| client.answer(answer == 1)).collect();
                assert_eq!(client.run(line), array(expected), "{line}");
                let info = client.run(&format!("BF.INFO {}", line.split(' ').nth(1).unwrap()));
                assert_eq!(info.field("Capacity"), &integer(capacity), "{line}");
                assert_eq!(info.field("Expansion rate"), &expansion.map_or(nil(protocol), integer), "{line}");
                let added = answers.iter().sum();
                assert_eq!(info.field("Number of items inserted"), &integer(added), "{line}");
            }
        }
    });
}

#[test]
fn its_errors_are_spelled_as_redisbloom_spells_them() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("SET string x");
        client.run("BF.RESERVE filter 0.01 100");
        for key in ["missing", "string", "filter"] {
            for (options, text) in [
                ("ERROR x", "Bad error rate"),
                ("ERROR ", "Bad error rate"),
                ("ERROR nan", "Bad error rate"),
                ("ERROR 0", "Bad error rate"),
                ("ERROR 1", "Bad error rate"),
                ("ERROR -0.1", "Bad error rate"),
                ("ERROR inf", "Bad error rate"),
                ("CAPACITY x", "Bad capacity"),
                ("CAPACITY ", "Bad capacity"),
                ("CAPACITY 0", "Bad capacity"),
                ("CAPACITY -1", "Bad capacity"),
                ("CAPACITY +5", "Bad capacity"),
                ("CAPACITY 007", "Bad capacity"),
                ("CAPACITY 5.0", "Bad capacity"),
                ("CAPACITY 99999999999999999999", "Bad capacity"),
                ("EXPANSION x", "Bad expansion"),
                ("EXPANSION -1", "Bad expansion"),
                ("EXPANSION 32769", "Bad expansion"),
                ("EXPANSION +2", "Bad expansion"),
                ("SEED x", "Bad seed"),
                ("SEED ", "Bad seed"),
                ("SEED -1", "Bad seed"),
                ("SEED 4294967296", "Bad seed"),
                ("SEED 01", "Bad seed"),
                ("FROBNICATE", "Unknown argument received"),
                ("CAP 5", "Unknown argument received"),
                ("NOCREATEX", "Unknown argument received"),
                ("", "Unknown argument received"),
                ("item", "Unknown argument received"),
                ("CAPACITY 5 6", "Unknown argument received"),
            ] {
                let line = format!("BF.INSERT {key} {options} ITEMS a");
                assert_eq!(client.run(&line), error(text), "{line:?}");
            }
        }
        assert_eq!(client.run("EXISTS missing"), integer(0));
        assert_eq!(client.run("BF.CARD filter"), integer(0));
    });
}

#[test]
fn words_that_are_missing_are_a_wrong_number_of_arguments() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for line in [
            "BF.INSERT",
            "BF.INSERT k",
            "BF.INSERT k ITEMS",
            "BF.INSERT k NOCREATE ITEMS",
            "BF.INSERT k NOCREATE CAPACITY",
            "BF.INSERT k NOCREATE ERROR",
            "BF.INSERT k NOCREATE EXPANSION",
            "BF.INSERT k NOCREATE SEED",
            "BF.INSERT k CAPACITY 100",
            "BF.INSERT k NOCREATE NONSCALING",
            "BF.INSERT k SEED 5 ITEMS",
        ] {
            assert_eq!(client.run(line), error("ERR wrong number of arguments for 'bf.insert' command"), "{line:?}");
        }
        assert_eq!(client.run("EXISTS k"), integer(0));
    });
}

#[test]
fn items_may_be_left_out_where_a_seed_is_given() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        assert_eq!(client.run("BF.INSERT k CAPACITY 500 SEED 5"), array([]));
        assert_eq!(client.run("BF.INFO k CAPACITY"), array([integer(500)]));
        assert_eq!(client.run("BF.CARD k"), integer(0));
        assert_eq!(client.run("BF.INSERT k SEED 5"), array([]), "an existing filter is left as it is");
        assert_eq!(client.run("BF.INFO k CAPACITY"), array([integer(500)]));
    });
}

#[test]
fn nocreate_creates_nothing() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            assert_eq!(client.run("BF.INSERT k NOCREATE ITEMS a"), error("ERR not found"));
            assert_eq!(client.run("BF.INSERT k CAPACITY 5 nocreate ERROR 0.1 ITEMS a"), error("ERR not found"));
            assert_eq!(client.run("EXISTS k"), integer(0));
            client.run("BF.RESERVE k 0.01 100");
            assert_eq!(client.run("BF.INSERT k NOCREATE ITEMS a"), client.answers([1]));
        }
    });
}

#[test]
fn an_existing_filter_keeps_its_own_parameters() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.RESERVE k 0.01 50 EXPANSION 4 SEED 1");
        let reply = client.run("BF.INSERT k CAPACITY 9999 ERROR 0.2 NONSCALING SEED 2 ITEMS a b");
        assert_eq!(reply, array([integer(1), integer(1)]));
        // Not even one that could not be held is looked at.
        let reply = client.run("BF.INSERT k CAPACITY 1000000000000000000 ITEMS a");
        assert_eq!(reply, array([integer(0)]));
        assert_eq!(client.run("BF.INFO k CAPACITY"), array([integer(50)]));
        assert_eq!(client.run("BF.INFO k EXPANSION"), array([integer(4)]));
        client.run("BF.RESERVE same 0.01 50 EXPANSION 4 SEED 1");
        client.run("BF.MADD same a b");
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), client.run("DEBUG DIGEST-VALUE same"));
    });
}

#[test]
fn it_makes_the_filter_that_reserve_makes() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for (reserve, insert) in [
            ("0.001 300 EXPANSION 3 SEED 77", "SEED 77 EXPANSION 3 CAPACITY 300 ERROR 0.001"),
            ("0.1 77 NONSCALING SEED 5", "NONSCALING CAPACITY 77 SEED 5 ERROR 0.1"),
            (
                "0.01 77 HASH siphash SEED 000102030405060708090a0b0c0d0e0f",
                "SEED 000102030405060708090A0B0C0D0E0F CAPACITY 77 HASH siphash",
            ),
            ("0.01 77 COUNTING SEED 5", "CAPACITY 77 SEED 5 COUNTING"),
            ("0.01 77 ROLLING BUCKETS 4 SEED 5", "BUCKETS 4 CAPACITY 77 SEED 5 ROLLING"),
            ("0.001 77 EXPANSION 3 LAYOUT redisbloom", "ERROR 0.001 CAPACITY 77 EXPANSION 3 LAYOUT redisbloom"),
            ("0.1 77 NONSCALING LAYOUT redisbloom", "LAYOUT redisbloom NONSCALING CAPACITY 77 ERROR 0.1"),
            ("0.1 77 EXPANSION 0 LAYOUT redisbloom", "CAPACITY 77 EXPANSION 0 ERROR 0.1 LAYOUT redisbloom"),
        ] {
            assert_eq!(client.run(&format!("BF.RESERVE a {reserve}")), ok(), "{reserve}");
            client.run("BF.MADD a x y z");
            client.run(&format!("BF.INSERT b {insert} ITEMS x y z"));
            assert_eq!(digest(&mut client, "a"), digest(&mut client, "b"), "{reserve}");
            assert_eq!(client.run("BF.INFO a"), client.run("BF.INFO b"), "{reserve}");
            client.run("DEL a b");
        }
    });
}

#[test]
fn what_cannot_be_held_is_refused_as_a_whole() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            let reply = client.run("BF.INSERT k CAPACITY 1000000000000000000 ITEMS a b");
            let (asked, available) = sizes_of_a_refusal(&reply);
            assert!(asked > available);
            assert_eq!(client.run("EXISTS k"), integer(0));
        }
    });
}
