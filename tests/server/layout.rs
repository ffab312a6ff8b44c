//! LAYOUT, and the setting `bf.layout`: who makes a filter of RedisBloom's layout, and which words go with it.

use testing::{Connection, Server, array, error, integer, ok, on_every_server, simple};

const NO_SUCH_WORD: &str = "ERR a filter of this layout has no such seed, tightening ratio or policy";
const CAPACITY_RANGE: &str = "ERR capacity must be in the range [1, 1073741824]";
const NATIVE: &str = "bloomgate";
const THEIRS: &str = "MBbloom--";

fn kind(client: &mut Connection, key: &str) -> String {
    client.run(&format!("TYPE {key}")).text()
}

#[test]
fn the_word_picks_the_layout_in_any_case() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for (line, expected) in [
            ("BF.RESERVE a 0.01 100", NATIVE),
            ("BF.RESERVE b 0.01 100 LAYOUT native", NATIVE),
            ("BF.RESERVE c 0.01 100 layout REDISBLOOM", THEIRS),
            ("BF.RESERVE d 0.01 100 EXPANSION 4 Layout RedisBloom", THEIRS),
            ("BF.RESERVE e 0.01 100 LAYOUT redisbloom NONSCALING", THEIRS),
            ("BF.RESERVE f 0.01 100 LAYOUT NATIVE SEED 7", NATIVE),
        ] {
            assert_eq!(client.run(line), ok(), "{line}");
            assert_eq!(kind(&mut client, line.split(' ').nth(1).unwrap()), expected, "{line}");
        }
        for (line, expected) in [
            ("BF.INSERT g ITEMS x", NATIVE),
            ("BF.INSERT h LAYOUT native ITEMS x", NATIVE),
            ("BF.INSERT i layout Redisbloom CAPACITY 10 ITEMS x", THEIRS),
            ("BF.INSERT j CAPACITY 10 ERROR 0.1 NONSCALING LAYOUT redisbloom ITEMS x", THEIRS),
            ("BF.INSERT k SEED 9 LAYOUT native ITEMS x", NATIVE),
        ] {
            assert_eq!(client.run(line), array([integer(1)]), "{line}");
            assert_eq!(kind(&mut client, line.split(' ').nth(1).unwrap()), expected, "{line}");
        }
        // After ITEMS it is an item.
        assert_eq!(client.run("BF.INSERT l ITEMS LAYOUT redisbloom"), array([integer(1), integer(1)]));
        assert_eq!(kind(&mut client, "l"), NATIVE);
        assert_eq!(client.run("BF.MEXISTS l LAYOUT redisbloom"), array([integer(1), integer(1)]));
    });
}

#[test]
fn a_bad_layout_is_an_error_and_makes_nothing() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for word in ["foo", "redis", "redisbloom2", "nativ", "valkey", "1"] {
            assert_eq!(client.run(&format!("BF.RESERVE k 0.01 100 LAYOUT {word}")), error("ERR bad layout"), "{word}");
            assert_eq!(client.run(&format!("BF.INSERT k LAYOUT {word} ITEMS x")), error("Bad layout"), "{word}");
        }
        assert_eq!(client.run("BF.RESERVE k 0.01 100 LAYOUT "), error("ERR bad layout"));
        assert_eq!(client.run("BF.RESERVE k 0.01 100 LAYOUT"), error("ERR no layout"));
        assert_eq!(client.run("BF.RESERVE k 0.01 100 EXPANSION 2 LAYOUT"), error("ERR no layout"));
        let arity = error("ERR wrong number of arguments for 'bf.insert' command");
        assert_eq!(client.run("BF.INSERT k CAPACITY 10 LAYOUT"), arity);
        assert_eq!(client.run("EXISTS k"), integer(0));
    });
}

#[test]
fn a_layout_has_its_own_words() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let raw_seed = [0x80_u8; 32];
        assert_eq!(client.run("BF.RESERVE k 0.01 100 LAYOUT redisbloom SEED 5"), error(NO_SUCH_WORD));
        assert_eq!(client.run("BF.RESERVE k 0.01 100 SEED 5 LAYOUT redisbloom"), error(NO_SUCH_WORD));
        for line in [
            "BF.INSERT k LAYOUT redisbloom SEED 5 ITEMS x",
            "BF.INSERT k LAYOUT redisbloom TIGHTENING 0.5 ITEMS x",
            "BF.INSERT k TIGHTENING 0.5 LAYOUT redisbloom ITEMS x",
            "BF.INSERT k LAYOUT native TIGHTENING 0.5 ITEMS x",
        ] {
            assert_eq!(client.run(line), error(NO_SUCH_WORD), "{line}");
        }
        for layout in [b"native".as_slice(), b"redisbloom"] {
            let words: [&[u8]; 8] = [b"BF.INSERT", b"k", b"LAYOUT", layout, b"SEED", &raw_seed, b"ITEMS", b"x"];
            assert_eq!(client.call(&words), error(NO_SUCH_WORD));
        }
        assert_eq!(client.run("EXISTS k"), integer(0));
    });
}

#[test]
fn redisblooms_capacities_have_redisblooms_limit() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.max-filter-bytes 4294967296").start();
        let mut client = server.connect();
        for capacity in ["0", "-1", "1073741825", "1000000000000000000"] {
            let line = format!("BF.RESERVE k 0.25 {capacity} LAYOUT redisbloom");
            assert_eq!(client.run(&line), error(CAPACITY_RANGE), "{capacity}");
            let line = format!("BF.INSERT k CAPACITY {capacity} LAYOUT redisbloom ITEMS x");
            assert_eq!(client.run(&line), error("Bad capacity"), "{capacity}");
        }
        // Within the limit, and more than the ceiling allows.
        client.run("CONFIG SET bf.max-filter-bytes 1000000");
        for line in ["BF.RESERVE k 1e-300 1073741824", "BF.RESERVE k 0.01 1073741824", "BF.RESERVE k 0.01 1000000"] {
            let reply = client.run(&format!("{line} LAYOUT redisbloom"));
            assert!(reply.error_text().starts_with("ERR Insufficient memory to create filter"), "{line}: {reply:?}");
        }
        assert_eq!(client.run("EXISTS k"), integer(0));
        client.run("CONFIG SET bf.max-filter-bytes 4294967296");
        assert_eq!(client.run("BF.RESERVE most 0.25 1073741824 NONSCALING LAYOUT redisbloom"), ok());
        assert_eq!(client.run("BF.INFO most CAPACITY"), array([integer(1 << 30)]));
        assert_eq!(client.run("BF.ADD most x"), integer(1));
        assert_eq!(client.run("BF.EXISTS most x"), integer(1));
    });
}

#[test]
fn the_setting_is_for_creations_that_do_not_say() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.layout redisbloom").start();
        let mut client = server.connect();
        assert_eq!(client.run("CONFIG GET bf.layout").elements()[1].text(), "redisbloom");
        for (line, expected) in [
            ("BF.ADD a x", THEIRS),
            ("BF.MADD b x y", THEIRS),
            ("BF.RESERVE c 0.01 100", THEIRS),
            ("BF.INSERT d ITEMS x", THEIRS),
            ("BF.RESERVE e 0.01 100 SEED 5", NATIVE),
            ("BF.INSERT f SEED 5 ITEMS x", NATIVE),
            ("BF.RESERVE g 0.01 100 LAYOUT native", NATIVE),
            ("BF.INSERT h LAYOUT native ITEMS x", NATIVE),
            ("BF.INSERT i TIGHTENING 0.5 ITEMS x", "bloomfltr"),
        ] {
            assert!(!client.run(line).is_error(), "{line}");
            assert_eq!(kind(&mut client, line.split(' ').nth(1).unwrap()), expected, "{line}");
        }
        assert_eq!(client.run("CONFIG SET bf.layout native"), ok());
        client.run("BF.ADD j x");
        assert_eq!(kind(&mut client, "j"), NATIVE);
        // What is there stays what it is.
        client.run("BF.ADD a y");
        assert_eq!(kind(&mut client, "a"), THEIRS);
        assert!(client.run("CONFIG SET bf.layout other").is_error());
        assert_eq!(client.run("CONFIG GET bf.layout").elements()[1].text(), "native");
    });
}

#[test]
fn the_setting_defaults_to_native_and_refuses_nonsense_at_the_start() {
    on_every_server(|program| {
        let server = Server::start(program);
        assert_eq!(server.connect().run("CONFIG GET bf.layout").elements()[1].text(), "native");
        Server::with(program).line("bf.layout other").refuses_to_start();
    });
}

#[test]
fn the_setting_works_with_the_other_settings() {
    on_every_server(|program| {
        let lines = ["bf.layout redisbloom", "bf.error-rate 0.001", "bf.initial-size 77", "bf.expansion-factor 3"];
        let builder = lines.iter().fold(Server::with(program), |builder, line| builder.line(line));
        let server = builder.start();
        let mut client = server.connect();
        client.run("BF.ADD k x");
        client.run("BF.RESERVE asked 0.001 77 EXPANSION 3 LAYOUT redisbloom");
        client.run("BF.ADD asked x");
        assert_eq!(client.run("BF.DEBUG k"), client.run("BF.DEBUG asked"));
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), client.run("DEBUG DIGEST-VALUE asked"));
        assert_eq!(client.run("BF.INFO k").field("Capacity"), &integer(77));
        assert_eq!(client.run("BF.INFO k").field("Expansion rate"), &integer(3));
    });
}

#[test]
fn an_existing_filter_keeps_its_layout() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.ADD native x");
        client.run("BF.RESERVE theirs 0.01 100 LAYOUT redisbloom");
        for (key, layout, expected) in [("native", "redisbloom", NATIVE), ("theirs", "native", THEIRS)] {
            assert_eq!(client.run(&format!("BF.INSERT {key} LAYOUT {layout} ITEMS new")), array([integer(1)]));
            let again = client.run(&format!("BF.RESERVE {key} 0.01 100 LAYOUT {layout}"));
            assert_eq!(again, error("ERR item exists"));
            assert_eq!(client.run(&format!("TYPE {key}")), simple(expected));
        }
        assert_eq!(client.run("BF.INSERT none NOCREATE LAYOUT redisbloom ITEMS x"), error("ERR not found"));
    });
}
