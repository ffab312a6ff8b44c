//! Commands that create filters, add to them and query them, and commands whose key cannot be written.

use super::loads::dumped;
use super::{case, makers, try_all, with_faults, with_items, words};
use testing::{Reply, append_only_length, error, integer, on_every_server};

#[test]
fn a_refused_creation_leaves_no_filter() {
    try_all("filters that are made", 60, |_, _| {
        let mut cases = Vec::new();
        for capacity in [1, 100, 5_000_000] {
            for (name, maker) in makers(capacity) {
                cases.push(case(format!("{name} for {capacity}"), &[], words(&maker)));
            }
        }
        let set = |line: &str| vec![words(line)];
        for layout in ["native", "redisbloom"] {
            let before = set(&format!("CONFIG SET bf.layout {layout}"));
            cases.push(case(format!("BF.ADD, {layout}"), &before, words("BF.ADD k a")));
            cases.push(case(format!("BF.MADD, {layout}"), &before, with_items("BF.MADD k", 0, 20)));
        }
        // More than the first layer holds, so the filter grows with the same command.
        cases.push(case("a long BF.MADD", &set("CONFIG SET bf.layout redisbloom"), with_items("BF.MADD k", 0, 5000)));
        let native = set("CONFIG SET bf.layout native");
        // A rate that is replaced by another one, which is logged.
        cases.push(case("another rate", &native, words("BF.RESERVE k 0.9 100 SEED 7")));
        cases.push(case("a fixed one", &native, words("BF.RESERVE k 0.01 100 NONSCALING SEED 7")));
        cases.push(case("one to grow", &native, words("BF.INSERT k VALIDATESCALETO 10000 SEED 7 ITEMS a b")));
        cases.push(case("long words", &native, words("BF.RESERVE k 1e-300 1 LAYOUT redisbloom")));
        cases.push(case("BF.INSERT", &native, with_items("BF.INSERT k CAPACITY 5 SEED 7 ITEMS", 0, 100)));
        cases
    });
}

#[test]
fn a_filter_that_cannot_grow_is_unchanged() {
    try_all("filters that grow", 100, |_, _| {
        let mut cases = Vec::new();
        for (name, maker) in makers(4) {
            for items in [4, 40] {
                let before = [words(&maker), with_items("BF.MADD k", 0, items)];
                // The last of a few hundred items always meets a full layer.
                for (command, count) in [("BF.MADD k", 1), ("BF.MADD k", 300), ("BF.INSERT k ITEMS", 100)] {
                    let name = format!("{command} of {count}, {name} of {items}");
                    cases.push(case(name, &before, with_items(command, 1000, count)));
                }
                for number in 0..8 {
                    let before = [words(&maker), with_items("BF.MADD k", 0, items + number)];
                    cases.push(case(format!("BF.ADD {number}, {name}"), &before, words("BF.ADD k newcomer")));
                }
            }
        }
        cases
    });
}

#[test]
fn a_partly_executed_add_reports_which_items_were_added() {
    try_all("long commands", 12, |_, _| {
        let mut cases = Vec::new();
        for (name, maker) in makers(100_000) {
            let before = [words(&maker), with_items("BF.MADD k", 0, 2500)];
            cases.push(case(format!("BF.MADD, {name}"), &before, with_items("BF.MADD k", 0, 10_000)));
            cases.push(case(format!("BF.INSERT, {name}"), &before, with_items("BF.INSERT k ITEMS", 2500, 10_000)));
            cases.push(case(format!("BF.MEXISTS, {name}"), &before, with_items("BF.MEXISTS k", 0, 5000)));
        }
        cases
    });
}

#[test]
fn reads_without_memory_are_answered_or_refused() {
    try_all("looks", 4, |_, client| {
        let mut cases = Vec::new();
        for (capacity, items) in [(4, 300), (1_000_000, 10)] {
            // A window contains a different time in each case.
            for (name, maker) in makers(capacity).into_iter().filter(|(name, _)| *name != "windowed") {
                let before = [words(&maker), with_items("BF.MADD k", 0, items)];
                let (_, records) = dumped(client, &before);
                let mut lines: Vec<String> = ["EXISTS k x", "MEXISTS k x y", "CARD k", "DEBUG k", "EXISTS none x"]
                    .into_iter()
                    .chain(["INFO k", "INFO k SIZE", "INFO k ERROR", "INFO k MAXSCALEDCAPACITY", "MEXISTS none x y"])
                    .map(|line| format!("BF.{line}"))
                    .collect();
                lines.extend(["DUMP k", "MEMORY USAGE k", "DEBUG DIGEST-VALUE k", "SAVE"].map(str::to_owned));
                // Refusals, which are texts.
                lines.extend(
                    [
                        "ADD k",
                        "RESERVE k 2 1",
                        "INFO none",
                        "LOADCHUNK k 7 x",
                        "LOAD k x",
                        "INSERT k CAPACITY 0 ITEMS x",
                    ]
                    .map(|line| format!("BF.{line}")),
                );
                lines.push(format!("RESTORE other 0 {}", "x".repeat(40)));
                cases.extend(lines.iter().map(|line| case(format!("{line}, {name}"), &before, words(line))));
                // The iterator contains the generation, which differs each time, so the record is requested again.
                if name == "redisbloom" {
                    let iterators = ["0"].into_iter().chain(records.iter().map(|(iterator, _)| iterator.as_str()));
                    cases.extend(iterators.map(|iterator| {
                        case(format!("record {iterator}, {name}"), &before, words(&format!("BF.SCANDUMP k {iterator}")))
                    }));
                }
            }
        }
        for line in ["CONFIG GET bf.*", "CONFIG SET bf.error-rate 0.9", "CONFIG SET bf.error-rate x", "CONFIG REWRITE"]
        {
            cases.push(case(line, &[], words(line)));
        }
        cases.push(case("another type", &[words("SET k x")], words("BF.ADD k x")));
        cases
    });
}

/// Some servers may one day not open a key for writing while they save it. That is not a missing key.
#[test]
fn a_key_that_cannot_be_written_is_no_missing_key() {
    const REFUSED: &str = "ERR the server cannot open the key for writing: try again";
    on_every_server(|program| {
        let server = with_faults(program).line("appendonly yes").start();
        let mut client = server.connect();
        for line in [
            "BF.RESERVE k 0.01 100 HASH siphash",
            "BF.RESERVE window 0.01 100 WINDOW 1000000",
            "BF.RESERVE counting 0.01 100 COUNTING",
            "BF.MADD k a b c",
            "BF.MADD counting a b c",
            "BF.ADD window a",
            "SET cached value",
        ] {
            assert!(!client.run(line).is_error(), "{line}");
        }
        let (iterator, header) = {
            let record = client.run("BF.SCANDUMP k 0");
            (record.elements()[0].number(), record.elements()[1].bytes().to_vec())
        };
        let Reply::Array(fetched) = client.run("BF.FETCH k b row") else { panic!("no lease") };
        let token = fetched[1].text();
        let before = (client.run("DEBUG DIGEST"), append_only_length(&server));
        client.run("FAULTS.CLOSED 1");
        for line in [
            "BF.RESERVE new 0.01 100",
            "BF.ADD k d",
            "BF.ADD new d",
            "BF.MADD k d e",
            "BF.INSERT k ITEMS d",
            "BF.INSERT k NOCREATE ITEMS d",
            "BF.ADD counting d",
            "BF.DEL k a",
            "BF.MDEL counting a b",
            "BF.MDEL new a",
            "BF.CLEAR k",
            "BF.MERGE k k",
            "BF.MERGE new k",
            "BF.ROTATE window",
            "BF.ROTATE new",
            "BF.CHANGED k d cached",
            "BF.CHANGED new d cached",
            "BF.MCHANGED k ITEMS d cached",
            &format!("BF.FILL k b row {token} NONE EX 100"),
        ] {
            assert_eq!(client.run(line), error(REFUSED), "{line}");
        }
        let iterator = iterator.to_string();
        let load: [&[u8]; 4] = [b"BF.LOADCHUNK", b"new", iterator.as_bytes(), &header];
        assert_eq!(client.call(&load), error(REFUSED));
        assert_eq!(client.call(&[&b"BF.LOAD"[..], b"new", b"x"]), error(REFUSED));
        assert_eq!((client.run("DEBUG DIGEST"), append_only_length(&server)), before);
        // Reading goes on.
        assert_eq!(client.run("BF.EXISTS k a"), integer(1));
        client.run("FAULTS.CLOSED 0");
        assert_eq!(client.run("BF.CHANGED k d cached"), integer(1));
        assert_eq!(client.run("EXISTS cached"), integer(0));
    });
}
