//! What is written to the append-only file, which is what a replica gets: a creation with everything that made the
//! filter, the items that were new, and nothing for nothing.

use std::path::Path;

use crate::harness::{
    Connection, Server, append_only_commands, append_only_length, array, error, integer, lines, on_every_server,
    rewritten_commands, with_append_only_file,
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

#[test]
fn a_creation_is_carried_with_everything_that_made_it() {
    on_every_server(|program| {
        let (server, mut client) = server_with_append_only_file(program);
        for (command, expected) in [
            ("BF.RESERVE a 0.01 100 SEED 5", "BF.INSERT a CAPACITY 100 ERROR 0.01 EXPANSION 2 SEED 5"),
            ("bf.reserve b 1e-2 77 nonscaling seed 0", "BF.INSERT b CAPACITY 77 ERROR 0.01 NONSCALING SEED 0"),
            ("BF.RESERVE c 0.0001 5 EXPANSION 0 SEED 1", "BF.INSERT c CAPACITY 5 ERROR 0.0001 NONSCALING SEED 1"),
            (
                "BF.RESERVE d 0.9 5 EXPANSION 32768 SEED 4294967295",
                "BF.INSERT d CAPACITY 5 ERROR 0.25 EXPANSION 32768 SEED 4294967295",
            ),
            ("BF.RESERVE e 0.1 1 EXPANSION 1 SEED 1", "BF.INSERT e CAPACITY 1 ERROR 0.1 EXPANSION 1 SEED 1"),
            ("BF.INSERT f CAPACITY 9 SEED 1 ITEMS x", "BF.INSERT f CAPACITY 9 ERROR 0.01 EXPANSION 2 SEED 1 ITEMS x"),
            (
                "BF.INSERT g ERROR 0.3 SEED 2 ITEMS x x y x",
                "BF.INSERT g CAPACITY 100 ERROR 0.25 EXPANSION 2 SEED 2 ITEMS x y",
            ),
            (
                "BF.INSERT h NONSCALING CAPACITY 2 ERROR 0.001 SEED 1 ITEMS x y z",
                "BF.INSERT h CAPACITY 2 ERROR 0.001 NONSCALING SEED 1 ITEMS x y",
            ),
            ("BF.INSERT i SEED 1", "BF.INSERT i CAPACITY 100 ERROR 0.01 EXPANSION 2 SEED 1"),
            (
                "BF.INSERT j ERROR 0.123456789 SEED 1 ITEMS x",
                "BF.INSERT j CAPACITY 100 ERROR 0.123456789 EXPANSION 2 SEED 1 ITEMS x",
            ),
        ] {
            let reply = client.run(command);
            assert!(!reply.is_error(), "{command}: {reply:?}");
            assert_eq!(lines(&server).last().map(String::as_str), Some(expected), "{command}");
        }
        assert_eq!(lines(&server).len(), 10);
    });
}

#[test]
fn a_creation_without_a_seed_is_carried_with_the_one_that_was_picked() {
    on_every_server(|program| {
        let (server, mut client) = server_with_append_only_file(program);
        for (command, before, after) in [
            ("BF.ADD a x", "BF.INSERT a CAPACITY 100 ERROR 0.01 EXPANSION 2", "ITEMS x"),
            ("BF.MADD b x y x", "BF.INSERT b CAPACITY 100 ERROR 0.01 EXPANSION 2", "ITEMS x y"),
            ("BF.INSERT c ITEMS x", "BF.INSERT c CAPACITY 100 ERROR 0.01 EXPANSION 2", "ITEMS x"),
            ("BF.RESERVE d 0.001 100", "BF.INSERT d CAPACITY 100 ERROR 0.001 EXPANSION 2", ""),
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

#[test]
fn a_rewritten_file_restores_through_loadchunk() {
    on_every_server(|program| {
        let (server, mut client) = server_with_append_only_file(program);
        client.run("BF.RESERVE k 0.01 1000 SEED 1");
        client.run("BF.MADD k a b c");
        client.run("PEXPIREAT k 4102444800123");
        let digest = client.run("DEBUG DIGEST-VALUE k");
        crate::persistence::rewrite_append_only_file(&mut client);
        let names: Vec<String> =
            rewritten_commands(&server).iter().map(|words| String::from_utf8_lossy(&words[0]).into_owned()).collect();
        assert_eq!(names, ["BF.LOADCHUNK", "BF.LOADCHUNK", "PEXPIREAT"]);
        assert_eq!(client.run("DEBUG LOADAOF"), crate::harness::ok());
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest);
        assert_eq!(client.run("PEXPIRETIME k"), integer(4_102_444_800_123));
    });
}
