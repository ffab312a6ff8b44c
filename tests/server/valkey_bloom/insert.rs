//! BF.INSERT with valkey-bloom's words, TIGHTENING, a SEED of 32 bytes and VALIDATESCALETO: the filter that they make
//! and the errors that they give.

use std::path::Path;

use super::model::{FIXED_SEED, Model};
use testing::{
    Connection, Reply, Server, Version, append_only_commands, append_only_length, array, bulk, dump, error, integer,
    ok, on_every_server, simple, value_of,
};

/// Bytes that are no text, among them a line's end and a zero.
pub const SEED: [u8; 32] = *b"\0\r\n\xff 32 bytes, none of them read";

const OTHER_LAYOUT: &str = "ERR a filter of this layout has no such seed, tightening ratio or policy";

/// BF.INSERT of words, where `{seed}` stands for the 32 bytes.
pub fn insert(client: &mut Connection, line: &str) -> Reply {
    let words: Vec<&[u8]> =
        line.split(' ').map(|word| if word == "{seed}" { SEED.as_slice() } else { word.as_bytes() }).collect();
    client.call(&words)
}

pub fn server_with_append_only_file(program: &Path) -> (Server, Connection) {
    let server = Server::with(program).line("appendonly yes").line("rdbcompression no").start();
    let client = server.connect();
    (server, client)
}

#[test]
fn either_word_makes_a_filter_of_their_layout() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            for (line, answers) in [
                ("BF.INSERT a TIGHTENING 0.5", vec![]),
                ("BF.INSERT b SEED {seed}", vec![]),
                ("bf.insert c tightening 0.9 seed {seed} items x y x", vec![true, true, false]),
                ("BF.INSERT d SEED {seed} TIGHTENING 0.1 CAPACITY 5 ERROR 0.2 NONSCALING ITEMS x", vec![true]),
                ("BF.INSERT e TIGHTENING 0.5 EXPANSION 0 ITEMS x", vec![true]),
                ("BF.INSERT f SEED 00000000000000000000000000000007 ITEMS x", vec![true]),
                ("BF.INSERT g TIGHTENING 0.5 ERROR 0.9 ITEMS x", vec![true]),
                ("BF.INSERT h TIGHTENING 0.5 ERROR 1e-30 ITEMS x", vec![true]),
            ] {
                let expected: Vec<Reply> = answers.iter().map(|&answer| client.answer(answer)).collect();
                assert_eq!(insert(&mut client, line), array(expected), "{line}");
                let key = line.split(' ').nth(1).unwrap();
                assert_eq!(client.run(&format!("TYPE {key}")), simple("bloomfltr"), "{line}");
                let new = answers.iter().filter(|&&answer| answer).count();
                assert_eq!(client.run(&format!("BF.CARD {key}")), integer(new as i64), "{line}");
            }
            assert_eq!(client.run("TYPE missing"), simple("none"));
        }
        let mut client = server.connect();
        // Rates are taken as they are, also those that other layouts do not have.
        let double = |number| bulk(Version::of(program).double(number));
        assert_eq!(client.run("BF.INFO g ERROR"), double(0.9));
        assert_eq!(client.run("BF.INFO h ERROR"), double(1e-30));
        assert_eq!(client.run("BF.INFO c TIGHTENING"), double(0.9));
        assert_eq!(client.run("BF.INFO b TIGHTENING"), double(0.5));
        assert_eq!(client.run("BF.INFO c EXPANSION"), integer(2));
        assert_eq!(client.run("BF.INFO d CAPACITY"), integer(5));
    });
}

#[test]
fn what_is_made_has_the_bits_of_theirs() {
    on_every_server(|program| {
        let server = Server::with(program).line("rdbcompression no").start();
        let mut client = server.connect();
        for (options, capacity, rate, tightening, expansion) in [
            ("TIGHTENING 0.5", 100, 0.01, 0.5, 2),
            ("CAPACITY 77 ERROR 0.003", 77, 0.003, 0.5, 2),
            ("CAPACITY 1 ERROR 0.5 TIGHTENING 0.7 EXPANSION 1", 1, 0.5, 0.7, 1),
            ("CAPACITY 1000 ERROR 1e-7 TIGHTENING 0.25 EXPANSION 4", 1000, 1e-7, 0.25, 4),
            ("CAPACITY 33 ERROR 0.99 NONSCALING", 33, 0.99, 0.5, 0),
            ("CAPACITY 10 ERROR 1e-40 EXPANSION 32768", 10, 1e-40, 0.5, 32768),
        ] {
            let reply = insert(&mut client, &format!("BF.INSERT k SEED {{seed}} {options} ITEMS a b c"));
            let mut model = Model::new(capacity, rate, tightening, expansion, SEED);
            let expected: Vec<Reply> =
                [b"a", b"b", b"c"].iter().map(|item| integer(i64::from(model.add(*item).unwrap()))).collect();
            assert_eq!(reply, array(expected), "{options}");
            assert!(value_of(&dump(&mut client, "k")) == value_of(&model.dump()), "{options}");
            client.run("DEL k");
        }
    });
}

#[test]
fn a_seed_is_random_unless_the_setting_says_otherwise() {
    on_every_server(|program| {
        let server = Server::with(program).line("rdbcompression no").start();
        let mut client = server.connect();
        let mut made = |setting: &str| {
            assert_eq!(client.run(&format!("CONFIG SET bf.bloom-use-random-seed {setting}")), ok());
            client.run("DEL k");
            assert_eq!(client.run("BF.INSERT k TIGHTENING 0.5 ITEMS one"), array([integer(1)]));
            dump(&mut client, "k")
        };
        assert_ne!(made("yes"), made("yes"));
        let mut model = Model::new(100, 0.01, 0.5, 2, FIXED_SEED);
        model.add(b"one");
        assert_eq!(model.is_seed_random, 0);
        assert!(value_of(&made("no")) == value_of(&model.dump()));
        assert!(value_of(&made("no")) == value_of(&model.dump()));
        // A seed that is given counts as random.
        insert(&mut client, "BF.INSERT given SEED {seed}");
        let model = Model::new(100, 0.01, 0.5, 2, SEED);
        assert_eq!(model.is_seed_random, 1);
        assert!(value_of(&dump(&mut client, "given")) == value_of(&model.dump()));
    });
}

#[test]
fn the_setting_is_the_ratio_where_none_is_given() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.bloom-tightening-ratio 0.75").start();
        let mut client = server.connect();
        insert(&mut client, "BF.INSERT a SEED {seed}");
        assert_eq!(client.run("BF.INFO a TIGHTENING"), bulk("0.75"));
        assert_eq!(client.run("CONFIG SET bf.bloom-tightening-ratio 0.25"), ok());
        insert(&mut client, "BF.INSERT b SEED {seed}");
        assert_eq!(client.run("BF.INFO b TIGHTENING"), bulk("0.25"));
        insert(&mut client, "BF.INSERT c SEED {seed} TIGHTENING 0.5");
        assert_eq!(client.run("BF.INFO c TIGHTENING"), bulk("0.5"));
        assert_eq!(client.run("BF.INFO a TIGHTENING"), bulk("0.75"));
    });
}

#[test]
fn bad_words_are_errors_and_make_nothing() {
    on_every_server(|program| {
        let (server, mut client) = server_with_append_only_file(program);
        let length = append_only_length(&server);
        for ratio in ["0", "1", "-0.5", "1.5", "nan", "inf", "x", "", "0x"] {
            let line = format!("BF.INSERT k TIGHTENING {ratio} ITEMS a");
            assert_eq!(insert(&mut client, &line), error("Bad tightening ratio"), "{line:?}");
        }
        for seed in
            ["", "x", "-1", "4294967296", "0123456789012345678901234567890", "012345678901234567890123456789012"]
        {
            let line = format!("BF.INSERT k SEED {seed} ITEMS a");
            assert_eq!(insert(&mut client, &line), error("Bad seed"), "{line:?}");
            let line = format!("BF.INSERT k TIGHTENING 0.5 SEED {seed} ITEMS a");
            assert_eq!(insert(&mut client, &line), error("Bad seed"), "{line:?}");
        }
        for options in [
            "SEED 5 TIGHTENING 0.5",
            "TIGHTENING 0.5 SEED 5",
            "TIGHTENING 0.5 LAYOUT native",
            "SEED {seed} LAYOUT native",
            "LAYOUT redisbloom TIGHTENING 0.5",
            "LAYOUT redisbloom SEED {seed}",
        ] {
            let line = format!("BF.INSERT k {options} ITEMS a");
            assert_eq!(insert(&mut client, &line), error(OTHER_LAYOUT), "{line}");
        }
        for line in [
            "BF.INSERT k NOCREATE TIGHTENING",
            "BF.INSERT k NOCREATE SEED",
            "BF.INSERT k TIGHTENING 0.5 VALIDATESCALETO",
            "BF.INSERT k TIGHTENING 0.5 ITEMS",
            "BF.INSERT k SEED {seed} ITEMS",
        ] {
            let expected = error("ERR wrong number of arguments for 'bf.insert' command");
            assert_eq!(insert(&mut client, line), expected, "{line}");
        }
        for (options, text) in [
            ("CAPACITY 0", "Bad capacity"),
            ("ERROR 0", "Bad error rate"),
            ("ERROR 1", "Bad error rate"),
            ("EXPANSION -1", "Bad expansion"),
            ("FROBNICATE", "Unknown argument received"),
        ] {
            let line = format!("BF.INSERT k TIGHTENING 0.5 {options} ITEMS a");
            assert_eq!(insert(&mut client, &line), error(text), "{line}");
        }
        assert_eq!(client.run("BF.INSERT k NOCREATE TIGHTENING 0.5 ITEMS a"), error("ERR not found"));
        assert_eq!(client.run("EXISTS k"), integer(0));
        assert_eq!(append_only_length(&server), length);
    });
}

#[test]
fn a_filter_that_is_there_keeps_its_own_parameters() {
    on_every_server(|program| {
        let (server, mut client) = server_with_append_only_file(program);
        insert(&mut client, "BF.INSERT k CAPACITY 5 TIGHTENING 0.7 SEED {seed} ITEMS a");
        client.run("BF.RESERVE native 0.01 50 SEED 1");
        for key in ["k", "native"] {
            let kind = client.run(&format!("TYPE {key}"));
            let line = format!("BF.INSERT {key} TIGHTENING 0.2 CAPACITY 900 ITEMS b");
            assert_eq!(insert(&mut client, &line), array([integer(1)]));
            let written = append_only_commands(&server).pop().unwrap();
            assert_eq!(written[1..], [key.as_bytes(), b"b"], "{key}: an add is carried as an add");
            assert_eq!(insert(&mut client, &format!("BF.INSERT {key} SEED {{seed}}")), array([]));
            assert_eq!(client.run(&format!("TYPE {key}")), kind);
        }
        let mut model = Model::new(5, 0.01, 0.7, 2, SEED);
        model.add(b"a");
        model.add(b"b");
        assert!(value_of(&dump(&mut client, "k")) == value_of(&model.dump()));
    });
}

#[test]
fn validatescaleto_asks_how_far_a_filter_could_grow() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.bloom-memory-usage-limit 1048576").start();
        let mut client = server.connect();
        let too_large = error("ERR provided VALIDATESCALETO causes bloom object to exceed memory limit");
        let too_tight = error("ERR provided VALIDATESCALETO causes false positive to degrade to 0");
        let both = error("ERR cannot use NONSCALING and VALIDATESCALETO options together");
        let mut ask = |options: &str| insert(&mut client, &format!("BF.INSERT k TIGHTENING {options}"));
        let largest = Model::new(100, 0.01, 0.5, 2, SEED).max_scaled_capacity(1 << 20);
        assert_eq!(ask(&format!("0.5 VALIDATESCALETO {}", largest + 1)), too_large);
        assert_eq!(ask("0.5 VALIDATESCALETO 1000000000 ITEMS a"), too_large);
        // 100 + 200 + 400 + 800 items at most, then the fifth rate is no number above zero.
        assert_eq!(ask("1e-100 VALIDATESCALETO 1501"), too_tight);
        assert_eq!(ask("1e-100 VALIDATESCALETO 1501 ITEMS a"), too_tight);
        for options in ["0.5 NONSCALING VALIDATESCALETO 1000", "0.5 VALIDATESCALETO 1000 NONSCALING"] {
            assert_eq!(ask(options), both, "{options}");
        }
        let mut client = server.connect();
        assert_eq!(client.run("EXISTS k"), integer(0), "what was refused made nothing");
        for (number, options) in [
            format!("0.5 VALIDATESCALETO {largest}"),
            "0.5 validatescaleto 1".into(),
            "1e-100 VALIDATESCALETO 700".into(),
        ]
        .iter()
        .enumerate()
        {
            let reply = insert(&mut client, &format!("BF.INSERT k{number} TIGHTENING {options} ITEMS a"));
            assert_eq!(reply, array([integer(1)]), "{options}");
            assert_eq!(client.run(&format!("TYPE k{number}")), simple("bloomfltr"));
        }
        assert_eq!(client.run("BF.INFO k0 MAXSCALEDCAPACITY"), integer(largest));
    });
}

#[test]
fn their_words_make_their_layout_whatever_the_setting_of_layouts_is() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.layout redisbloom").start();
        let mut client = server.connect();
        insert(&mut client, "BF.INSERT a TIGHTENING 0.5 ITEMS x");
        insert(&mut client, "BF.INSERT b SEED {seed} ITEMS x");
        insert(&mut client, "BF.INSERT c SEED 5 ITEMS x");
        let kinds = ["a", "b", "c"].map(|key| client.run(&format!("TYPE {key}")).text());
        assert_eq!(kinds, ["bloomfltr", "bloomfltr", "bloomgate"]);
    });
}
