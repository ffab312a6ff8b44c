//! What is written to the append-only file, which is what a replica gets: a creation with everything that made the
//! filter, the items that were new, and nothing for nothing.

use std::path::Path;

use testing::{
    Connection, Server, append_only_commands, append_only_length, array, error, integer, lines, ok, on_every_server,
    with_append_only_file,
};

fn server_with_append_only_file(program: &Path) -> (Server, Connection) {
    let server = with_append_only_file(program);
    let client = server.connect();
    (server, client)
}

/// The line that creates a filter, cut around its seed: what comes before it, the seed, what comes after it.
fn around_the_seed(line: &str) -> (String, u32, String) {
    let (before, rest) = line.split_once(" SEED ").unwrap_or_else(|| panic!("no SEED in {line:?}"));
    let (seed, after) = rest.split_once(' ').unwrap_or((rest, ""));
    (before.to_owned(), seed.parse().unwrap_or_else(|_| panic!("not a seed in {line:?}")), after.to_owned())
}

/// Runs commands one after another and compares what each wrote to the append-only file. An effect that ends in `*` is the
/// start of a line; MULTI and EXEC count where they are expected.
fn assert_effects(program: &Path, commands: &[(&str, &[&str])]) {
    let (server, mut client) = server_with_append_only_file(program);
    for (command, expected) in commands {
        let before = append_only_commands(&server).len();
        client.run(command);
        let words = append_only_commands(&server).split_off(before);
        let mut carried: Vec<String> =
            words.iter().map(|words| String::from_utf8_lossy(&words.join(&b' ')).into_owned()).collect();
        if !expected.contains(&"MULTI") {
            carried.retain(|line| line != "MULTI" && line != "EXEC");
        }
        let is_same = |(line, expected): (&String, &&str)| match expected.strip_suffix('*') {
            Some(start) => line.starts_with(start),
            None => line == expected,
        };
        let are_same = carried.len() == expected.len() && carried.iter().zip(*expected).all(is_same);
        assert!(are_same, "{command} was carried as {carried:?}");
    }
    let digest = client.run("DEBUG DIGEST");
    assert_eq!(client.run("DEBUG LOADAOF"), ok());
    assert_eq!(client.run("DEBUG DIGEST"), digest);
}

#[test]
fn a_creation_is_carried_with_everything_that_made_it() {
    on_every_server(|program| {
        assert_effects(
            program,
            &[
                ("BF.RESERVE a 0.01 129 SEED 5", &["BF.INSERT a CAPACITY 129 ERROR 0.01 EXPANSION 2 SEED 5"]),
                // A small first layer states its sizing rules, if they are not the first.
                (
                    "BF.RESERVE aa 0.01 100 SEED 5",
                    &["BF.INSERT aa CAPACITY 100 ERROR 0.01 EXPANSION 2 SEED 5 POLICY 2"],
                ),
                (
                    "BF.RESERVE ab 0.01 100 HASH siphash SEED 000102030405060708090a0b0c0d0e0f",
                    &["BF.INSERT ab CAPACITY 100 ERROR 0.01 EXPANSION 2 HASH siphash \
                       SEED 000102030405060708090a0b0c0d0e0f POLICY 2"],
                ),
                ("bf.reserve b 1e-2 77 nonscaling seed 0", &["BF.INSERT b CAPACITY 77 ERROR 0.01 NONSCALING SEED 0"]),
                (
                    "BF.RESERVE c 0.0001 5 EXPANSION 0 SEED 1",
                    &["BF.INSERT c CAPACITY 5 ERROR 0.0001 NONSCALING SEED 1"],
                ),
                (
                    "BF.RESERVE d 0.9 5 EXPANSION 32768 SEED 4294967295",
                    &["BF.INSERT d CAPACITY 5 ERROR 0.25 EXPANSION 32768 SEED 4294967295"],
                ),
                ("BF.RESERVE e 0.1 1 EXPANSION 1 SEED 1", &["BF.INSERT e CAPACITY 1 ERROR 0.1 EXPANSION 1 SEED 1"]),
                (
                    "BF.INSERT f CAPACITY 9 SEED 1 ITEMS x",
                    &["BF.INSERT f CAPACITY 9 ERROR 0.01 EXPANSION 2 SEED 1 ITEMS x"],
                ),
                (
                    "BF.INSERT g ERROR 0.3 SEED 2 ITEMS x x y x",
                    &["BF.INSERT g CAPACITY 100 ERROR 0.25 EXPANSION 2 SEED 2 ITEMS x y"],
                ),
                (
                    "BF.INSERT h NONSCALING CAPACITY 2 ERROR 0.001 SEED 1 ITEMS x y z",
                    &["BF.INSERT h CAPACITY 2 ERROR 0.001 NONSCALING SEED 1 ITEMS x y"],
                ),
                ("BF.INSERT i SEED 1", &["BF.INSERT i CAPACITY 100 ERROR 0.01 EXPANSION 2 SEED 1 POLICY 2"]),
                (
                    "BF.INSERT j ERROR 0.123456789 SEED 1 ITEMS x",
                    &["BF.INSERT j CAPACITY 100 ERROR 0.123456789 EXPANSION 2 SEED 1 POLICY 2 ITEMS x"],
                ),
                // A ring's first bucket begins with it.
                (
                    "BF.RESERVE k 0.01 100 WINDOW 60 SLIDING BUCKETS 4 SEED 5",
                    &[
                        "BF.INSERT k CAPACITY 100 ERROR 0.01 EXPANSION 2 WINDOW 60 SLIDING BUCKETS 4 SEED 5",
                        "BF.ROTATE k 0 *",
                    ],
                ),
                (
                    "BF.INSERT l NONSCALING CAPACITY 9 WINDOW 60 SEED 5 ITEMS x y x",
                    &[
                        "BF.INSERT l CAPACITY 9 ERROR 0.01 NONSCALING WINDOW 60 BUCKETS 8 SEED 5",
                        "BF.ROTATE l 0 *",
                        "BF.MADD l x y",
                    ],
                ),
                (
                    "BF.INSERT m CAPACITY 9 ROLLING SEED 5 ITEMS x y x",
                    &["BF.INSERT m CAPACITY 9 ERROR 0.01 ROLLING BUCKETS 8 SEED 5", "BF.MADD m x y"],
                ),
            ],
        );
    });
}

/// A filter that counts carries every item, in order: each changes it.
#[test]
fn every_item_that_is_counted_is_carried_and_deletes_as_what_they_found() {
    on_every_server(|program| {
        assert_effects(
            program,
            &[
                ("BF.RESERVE a 1e-2 6 counting seed 7", &["BF.INSERT a CAPACITY 6 ERROR 0.01 COUNTING SEED 7"]),
                ("BF.MADD a x y x x", &["BF.MADD a x y x x"]),
                ("BF.ADD a x", &["BF.ADD a x"]),
                ("BF.INSERT a NOCREATE ITEMS y", &["BF.MADD a y"]),
                ("BF.ADD a x", &[]),
                (
                    "BF.INSERT b CAPACITY 2 HASH siphash COUNTING SEED 000102030405060708090a0b0c0d0e0f ITEMS x x x",
                    &["BF.INSERT b CAPACITY 2 ERROR 0.01 COUNTING HASH siphash SEED 000102030405060708090a0b0c0d0e0f \
                       ITEMS x x"],
                ),
                ("BF.MADD b x", &[]),
                (
                    "BF.INSERT c COUNTING SEED 1 ERROR 0.3 CAPACITY 9",
                    &["BF.INSERT c CAPACITY 9 ERROR 0.25 COUNTING SEED 1"],
                ),
                ("BF.INSERT c SYNC ITEMS x x", &["BF.MADD c x x"]),
                ("BF.COUNT c x", &[]),
                (
                    "BF.RESERVE d 0.01 5 COUNTING EX 1000",
                    &["BF.INSERT d CAPACITY 5 ERROR 0.01 COUNTING SEED *", "PEXPIREAT d *"],
                ),
                (
                    "BF.INSERT k CAPACITY 9 COUNTING SEED 1 ITEMS a a b",
                    &["BF.INSERT k CAPACITY 9 ERROR 0.01 COUNTING SEED 1 ITEMS a a b"],
                ),
                ("BF.MDEL k never a b", &["BF.MDEL k a b"]),
                ("BF.DEL k never", &[]),
                ("BF.DEL k a", &["BF.DEL k a"]),
            ],
        );
    });
}

#[test]
fn effects_on_redisblooms_layout_are_spelled_in_redisblooms_words() {
    on_every_server(|program| {
        assert_effects(
            program,
            &[
                ("BF.RESERVE k 0.01 100 LAYOUT redisbloom", &["BF.RESERVE k 0.01 100 EXPANSION 2"]),
                ("BF.RESERVE fixed 0.01 3 LAYOUT redisbloom NONSCALING", &["BF.RESERVE fixed 0.01 3 NONSCALING"]),
                ("BF.RESERVE four 0.001 7 EXPANSION 4 LAYOUT redisbloom", &["BF.RESERVE four 0.001 7 EXPANSION 4"]),
                ("BF.ADD k a", &["BF.ADD k a"]),
                ("BF.ADD k a", &[]),
                ("BF.MADD k a b c b", &["BF.MADD k b c"]),
                ("BF.MADD k a b", &[]),
                ("BF.INSERT k NOCREATE ITEMS a d e", &["BF.MADD k d e"]),
                ("BF.INSERT k LAYOUT redisbloom CAPACITY 5 ITEMS a", &[]),
                ("BF.MADD fixed a b a c d e", &["BF.MADD fixed a b c"]),
                ("BF.ADD fixed z", &[]),
                ("BF.RESERVE k 0.01 100 LAYOUT redisbloom", &[]),
                (
                    "BF.INSERT new CAPACITY 9 EXPANSION 1 ERROR 0.001 LAYOUT redisbloom ITEMS a b a",
                    &["MULTI", "BF.RESERVE new 0.001 9 EXPANSION 1", "BF.MADD new a b", "EXEC"],
                ),
                ("CONFIG SET bf.layout redisbloom", &[]),
                ("BF.ADD add x", &["MULTI", "BF.RESERVE add 0.01 100 EXPANSION 2", "BF.MADD add x", "EXEC"]),
                ("BF.MADD madd x y x", &["MULTI", "BF.RESERVE madd 0.01 100 EXPANSION 2", "BF.MADD madd x y", "EXEC"]),
                ("BF.RESERVE plain 0.02 50", &["BF.RESERVE plain 0.02 50 EXPANSION 2"]),
                (
                    "EVAL redis.call('BF.MADD',KEYS[1],'a','b','a') 1 script",
                    &["MULTI", "BF.RESERVE script 0.01 100 EXPANSION 2", "BF.MADD script a b", "EXEC"],
                ),
            ],
        );
    });
}

#[test]
fn a_creation_without_a_seed_is_carried_with_the_one_that_was_picked() {
    on_every_server(|program| {
        let (server, mut client) = server_with_append_only_file(program);
        for (command, before, after) in [
            ("BF.ADD a x", "BF.INSERT a CAPACITY 100 ERROR 0.01 EXPANSION 2", "POLICY 2 ITEMS x"),
            ("BF.MADD b x y x", "BF.INSERT b CAPACITY 100 ERROR 0.01 EXPANSION 2", "POLICY 2 ITEMS x y"),
            ("BF.INSERT c ITEMS x", "BF.INSERT c CAPACITY 100 ERROR 0.01 EXPANSION 2", "POLICY 2 ITEMS x"),
            ("BF.RESERVE d 0.001 100", "BF.INSERT d CAPACITY 100 ERROR 0.001 EXPANSION 2", "POLICY 2"),
        ] {
            client.run(command);
            let (found_before, _, found_after) = around_the_seed(lines(&server).last().unwrap());
            assert_eq!((found_before.as_str(), found_after.as_str()), (before, after), "{command}");
        }
        client.run("CONFIG SET bf.error-rate 0.002 bf.initial-size 33 bf.expansion-factor 0");
        client.run("BF.ADD e x");
        let (before, _, after) = around_the_seed(lines(&server).last().unwrap());
        assert_eq!(before, "BF.INSERT e CAPACITY 33 ERROR 0.002 NONSCALING");
        assert_eq!(after, "ITEMS x");
    });
}

#[test]
fn the_smallest_rate_reads_back_as_the_same_number() {
    on_every_server(|program| {
        let (server, mut client) = server_with_append_only_file(program);
        client.run("BF.RESERVE k 1e-20 100 SEED 1");
        let words = append_only_commands(&server).pop().unwrap();
        assert_eq!(words[4], b"ERROR");
        let rate: f64 = std::str::from_utf8(&words[5]).unwrap().parse().unwrap();
        assert_eq!(rate.to_bits(), 1e-12_f64.to_bits());
    });
}

#[test]
fn adds_carry_the_new_items_only() {
    on_every_server(|program| {
        let (server, mut client) = server_with_append_only_file(program);
        client.run("BF.RESERVE k 0.0001 1000 SEED 1");
        for (command, new) in [
            ("BF.ADD k a", vec!["a"]),
            ("BF.MADD k a b c b", vec!["b", "c"]),
            ("BF.MADD k c d", vec!["d"]),
            ("BF.INSERT k ITEMS e a f f", vec!["e", "f"]),
            ("BF.INSERT k NOCREATE ITEMS g", vec!["g"]),
            ("BF.INSERT k CAPACITY 5 ERROR 0.1 SEED 9 NONSCALING ITEMS h a", vec!["h"]),
        ] {
            let before = append_only_commands(&server).len();
            client.run(command);
            let carried = &append_only_commands(&server)[before..];
            assert_eq!(carried.len(), 1, "{command} carried {carried:?}");
            let name = carried[0][0].to_ascii_uppercase();
            assert!(name == b"BF.MADD" || (name == b"BF.ADD" && new.len() == 1), "{command}: {carried:?}");
            assert_eq!(carried[0][1], b"k");
            assert_eq!(
                carried[0][2..],
                new.iter().map(|item| item.as_bytes().to_vec()).collect::<Vec<_>>(),
                "{command}"
            );
        }
        // Items are carried as the bytes that they are, growth needs no word of its own.
        client.run("BF.RESERVE grown 0.0001 2 SEED 1");
        client.call(&[b"BF.MADD".as_slice(), b"grown", b"\0\xff", b"", b"\r\n", b"x y"]);
        let words = append_only_commands(&server).pop().unwrap();
        assert_eq!(words[1..], [b"grown".as_slice(), b"\0\xff", b"", b"\r\n", b"x y"]);
    });
}

#[test]
fn nothing_new_leaves_no_trace() {
    on_every_server(|program| {
        let (server, mut client) = server_with_append_only_file(program);
        client.run("SET string x");
        client.run("BF.RESERVE full 0.0001 1 NONSCALING SEED 1");
        client.run("BF.ADD full a");
        client.run("BF.MADD k a b c");
        let length = append_only_length(&server);
        let changes = client.info_number("rdb_changes_since_last_save");
        for command in [
            "BF.ADD k a",
            "BF.MADD k a b c a",
            "BF.INSERT k ITEMS a b",
            "BF.INSERT k SEED 5 CAPACITY 9 ITEMS c",
            "BF.INSERT k SEED 5",
            "BF.EXISTS k a",
            "BF.EXISTS k z",
            "BF.MEXISTS k a z",
            "BF.EXISTS missing a",
            "BF.CARD k",
            "BF.INFO k",
            "BF.RESERVE k 0.01 100",
            "BF.RESERVE new 0.01 1000000000000000000",
            "BF.INSERT new NOCREATE ITEMS a",
            "BF.INSERT new CAPACITY 0 ITEMS a",
            "BF.INSERT new CAPACITY 1000000000000000000 ITEMS a",
            "BF.ADD string a",
            "BF.ADD full b",
            "BF.MADD full b a",
            "BF.INSERT full ITEMS a b",
        ] {
            client.run(command);
            assert_eq!(append_only_length(&server), length, "{command} wrote to the append-only file");
            assert_eq!(client.info_number("rdb_changes_since_last_save"), changes, "{command} counted as a change");
        }
        client.pipeline(&["MULTI", "BF.ADD k a", "BF.MADD k b c", "EXEC"]);
        client.call(&["EVAL", "return redis.call('BF.MADD', KEYS[1], 'a', 'b')", "1", "k"]);
        assert_eq!(append_only_length(&server), length);
        client.run("BF.ADD k d");
        assert!(append_only_length(&server) > length);
        assert!(client.info_number("rdb_changes_since_last_save") > changes);
    });
}

#[test]
fn an_error_is_not_carried_and_what_came_before_it_is() {
    on_every_server(|program| {
        let (server, mut client) = server_with_append_only_file(program);
        client.run("BF.RESERVE k 0.0001 3 NONSCALING SEED 1");
        let full = error("ERR non scaling filter is full");
        assert_eq!(client.run("BF.MADD k a b a c d e"), array([integer(1), integer(1), integer(0), integer(1), full]));
        assert_eq!(lines(&server).last().unwrap(), "BF.MADD k a b c");
    });
}

#[test]
fn transactions_and_scripts_carry_effects() {
    on_every_server(|program| {
        let (server, mut client) = server_with_append_only_file(program);
        client.run("BF.RESERVE k 0.0001 100 SEED 1");
        let before = lines(&server).len();
        client.pipeline(&["MULTI", "BF.ADD k a", "BF.ADD k a", "BF.MADD k a b", "EXEC"]);
        let script = "redis.call('BF.ADD', KEYS[1], 'a'); redis.call('BF.MADD', KEYS[1], 'b', 'c', 'd')
            redis.call('BF.ADD', KEYS[1], 'e')";
        client.call(&["EVAL", script, "1", "k"]);
        let mut carried = lines(&server).split_off(before);
        for line in &mut carried {
            *line = line.replace("BF.MADD", "BF.ADD");
        }
        assert_eq!(carried, ["BF.ADD k a", "BF.ADD k b", "BF.ADD k c d", "BF.ADD k e"]);
    });
}

/// The server holds the words of the effects until EXEC, while those of the next creation replace them.
#[test]
fn creations_in_a_transaction_carry_their_own_words() {
    on_every_server(|program| {
        let (server, mut client) = server_with_append_only_file(program);
        let creations = [
            "BF.RESERVE a 0.01 200 SEED 1",
            "BF.RESERVE b 0.001 300 NONSCALING SEED 2",
            "BF.RESERVE c 0.01 300 EXPANSION 4 SEED 3 EX 100",
            "BF.INSERT d CAPACITY 200 ERROR 0.01 SEED 4 ITEMS x",
        ];
        client.pipeline(&[&["MULTI"][..], &creations, &["EXEC"]].concat());
        let carried = lines(&server);
        for expected in [
            "BF.INSERT a CAPACITY 200 ERROR 0.01 EXPANSION 2 SEED 1",
            "BF.INSERT b CAPACITY 300 ERROR 0.001 NONSCALING SEED 2",
            "BF.INSERT c CAPACITY 300 ERROR 0.01 EXPANSION 4 SEED 3",
            "BF.INSERT d CAPACITY 200 ERROR 0.01 EXPANSION 2 SEED 4 ITEMS x",
        ] {
            assert!(carried.iter().any(|line| line == expected), "{expected} is not in {carried:?}");
        }
    });
}
