//! Allocation failures in the module: every command is run with its nth allocation failing, for n = 1, 2, 3 ... until it
//! succeeds. Each time it returns an error or the right reply. A refused command has changed nothing, an executed one is
//! complete, the server keeps running, and the same command succeeds afterwards.
//!
//! A test module (`tests/fault_module`) replaces the module's allocation functions and makes them fail. Allocations of the server itself,
//! for replies and strings, do not fail, because Redis exits when they are refused.
//!
//! A server that must apply effects, such as a replica or one that reads its AOF, exits with a line in the log when it runs
//! out of memory. Otherwise it would report present items absent.

use std::path::Path;

use super::LAYOUTS;
use crate::persistence::rewrite_append_only_file;
use testing::{
    Builder, Connection, LAST_WORDS, Reply, Server, Stop, append_only_length, array, error, eventually, figures,
    integer, nil, ok, on_every_server, rewritten_commands, simple, words,
};

type Words = Vec<Vec<u8>>;

fn with_faults(program: &Path) -> Builder {
    // Filters created by the same command are equal, because native ones get a fixed seed.
    Server::with(program).with_faults("").line("bf.bloom-use-random-seed no")
}

/// A command with numbered items after its arguments.
fn with_items(line: &str, first: usize, count: usize) -> Words {
    let mut words = words(line);
    words.extend((first..first + count).map(|number| format!("item {number}").into_bytes()));
    words
}

fn raw(line: &str, data: &[u8]) -> Words {
    let mut words = words(line);
    words.push(data.to_vec());
    words
}

/// An action on the key `k`.
struct Case {
    name: String,
    /// On an empty server.
    before: Vec<Words>,
    command: Words,
}

/// Everything about the key `k`, and the figures of INFO.
#[derive(Clone, Debug, PartialEq)]
struct State {
    digest: String,
    /// BF.CARD or its error; MEMORY USAGE; EXISTS of `k` and of its copy.
    numbers: [Reply; 4],
    gauges: Vec<String>,
}

fn state(client: &mut Connection) -> State {
    let lines = ["BF.CARD k", "MEMORY USAGE k", "EXISTS k", "EXISTS copy"];
    client.wait_for_frees();
    let info = client.run("INFO modules").text();
    let is_gauge =
        |line: &&str| line.starts_with("bf_bloom_total") || line.contains("_across_") || line.contains("_objects:");
    State {
        digest: client.run("DEBUG DIGEST-VALUE k").elements()[0].text(),
        numbers: lines.map(|line| client.run(line)),
        gauges: info.lines().filter(is_gauge).map(str::to_owned).collect(),
    }
}

fn prepare(client: &mut Connection, case: &Case) -> State {
    client.run("FLUSHALL");
    for command in &case.before {
        let reply = client.call(command);
        assert!(!reply.is_error(), "{}: {reply:?}", case.name);
    }
    state(client)
}

/// Runs a command with a fault. Returns the reply and the numbers of all allocations, of refused allocations, and of allocations that may
/// not fail.
fn run_under(client: &mut Connection, fault: &str, command: &Words) -> (Reply, [i64; 3]) {
    client.run("FAULTS.COUNT");
    client.run(&format!("FAULTS.FAIL {fault}"));
    let reply = client.call(command);
    client.run("FAULTS.FAIL 0");
    let counted = client.run("FAULTS.COUNT");
    let number = |index: usize| counted.elements()[index].number();
    (reply, [number(0), number(2), number(3)])
}

/// Whether a reply is one of our or the server's errors about insufficient memory.
fn is_refusal(reply: &Reply) -> bool {
    const TEXTS: [&str; 3] =
        ["ERR Insufficient memory to create filter: ", "ERR Bad data format", "ERR module key failed to copy"];
    matches!(reply, Reply::Error(text) if TEXTS.iter().any(|known| text.starts_with(known)))
}

/// Fails each allocation of a command in turn, alone and together with all later ones. Returns the number of faults.
fn try_every_fault(client: &mut Connection, case: &Case) -> i64 {
    let name = &case.name;
    let mut undisturbed = || {
        prepare(client, case);
        (client.call(&case.command), state(client))
    };
    let (expected, after) = undisturbed();
    // A native filter without a fixed seed differs each time, and so does a filter that began at another time.
    let is_fixed = undisturbed().1.digest == after.digest && !name.contains("windowed");
    let mut faults = 0;
    for mode in ["", " ON"] {
        for number in 1.. {
            assert!(number < 1000, "{name}: no end of it");
            let before = prepare(client, case);
            let (reply, [_, refused, unrefusable]) = run_under(client, &format!("{number}{mode}"), &case.command);
            assert_eq!(unrefusable, 0, "{name}: asks for what ends the server when it is refused");
            faults += refused;
            let now = state(client);
            if is_refusal(&reply) {
                assert!(refused > 0, "{name}: {reply:?}, and nothing was refused");
                assert_eq!(now, before, "{name}, request {number}{mode}: refused, and yet something changed");
            } else if !is_answer(client, case, &reply, &expected) {
                assert!(refused > 0, "{name}: {reply:?} instead of {expected:?}");
                assert_partial(client, case, &reply, &expected, &before, &now);
            } else {
                assert_eq!(now.numbers[0], after.numbers[0], "{name}");
                assert!(!is_fixed || now.digest == after.digest, "{name}, request {number}{mode}: not as it should be");
                if refused == 0 {
                    break;
                }
                continue;
            }
            let again = client.call(&case.command);
            assert!(!again.is_error(), "{name}: not even afterwards: {again:?}");
            let now = state(client);
            assert_eq!(now.numbers[0], after.numbers[0], "{name}, afterwards");
            assert!(!is_fixed || now.digest == after.digest, "{name}, afterwards: not as it should be");
        }
    }
    assert_eq!(client.run("PING"), simple("PONG"));
    faults
}

/// Whether a reply is correct. MEMORY USAGE of equal filters differs by the alignment of their layers.
fn is_answer(client: &mut Connection, case: &Case, reply: &Reply, expected: &Reply) -> bool {
    if let (b"MEMORY", Reply::Integer(bytes), Reply::Integer(before)) = (case.command[0].as_slice(), reply, expected) {
        let layers = client.run("BF.INFO k").field("Number of filters").number();
        return (bytes - before).abs() <= layers * client.alignment_bytes(*bytes);
    }
    reply == expected
}

/// Checks an array of replies that ends with an error: exactly the items before it were processed.
fn assert_partial(client: &mut Connection, case: &Case, reply: &Reply, expected: &Reply, before: &State, now: &State) {
    let name = &case.name;
    let (last, answers) = reply.elements().split_last().expect("an answer");
    assert!(is_refusal(last), "{name}: {reply:?}");
    assert_eq!(answers, &expected.elements()[..answers.len()], "{name}");
    let changed = answers.iter().filter(|answer| answer.truth()).count() as i64;
    let deletes = case.command[0] == b"BF.MDEL";
    let card = |state: &State| state.numbers[0].number();
    let expected_card = card(before) + if deletes { -changed } else { changed };
    assert_eq!(card(now), expected_card, "{name}: what is in is what was answered");
    let first = case.command.len() - expected.elements().len();
    let (done, rest) = case.command[first..].split_at(answers.len());
    assert!(client.batched(&[b"BF.MEXISTS", b"k"], done).iter().all(|&is_in| is_in != deletes), "{name}");
    assert!(!deletes || client.batched(&[b"BF.MEXISTS", b"k"], rest).iter().all(|&is_in| is_in), "{name}");
}

/// Returns the options for a filter of each layout at `k`, which grows from this capacity at 1%.
fn makers(capacity: usize) -> [(&'static str, String); 6] {
    [
        ("native", format!("BF.RESERVE k 0.01 {capacity} SEED 7")),
        ("redisbloom", format!("BF.RESERVE k 0.01 {capacity} LAYOUT redisbloom")),
        ("valkey-bloom", format!("BF.INSERT k ERROR 0.01 CAPACITY {capacity} TIGHTENING 0.5")),
        ("cuckoo", format!("BF.RESERVE k 0.01 {capacity} CUCKOO SEED 7")),
        ("keyed", format!("BF.RESERVE k 0.01 {capacity} HASH siphash SEED 000102030405060708090a0b0c0d0e0f")),
        ("windowed", format!("BF.RESERVE k 0.01 {capacity} SEED 7 WINDOW 100000000")),
    ]
}

/// Runs cases on every server, and asserts that faults were injected.
fn try_all(what: &str, least: i64, cases: impl Fn(&Path, &mut Connection) -> Vec<Case>) {
    on_every_server(|program| {
        let server = with_faults(program).start();
        let mut client = server.connect();
        let cases = cases(program, &mut client);
        let faults: i64 = cases.iter().map(|case| try_every_fault(&mut client, case)).sum();
        figures(&format!("memory refused, {what}: {faults} faults injected in {} commands", cases.len()));
        assert!(faults >= least, "{faults} faults, {least} expected");
    });
}

fn case(name: impl Into<String>, before: &[Words], command: Words) -> Case {
    Case { name: name.into(), before: before.to_vec(), command }
}

// Commands that create filters, add to them and query them, and commands whose key cannot be written.

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
        // A rate that is clamped, which is logged.
        cases.push(case("another rate", &native, words("BF.RESERVE k 0.9 100 SEED 7")));
        cases.push(case("a fixed one", &native, words("BF.RESERVE k 0.01 100 NONSCALING SEED 7")));
        cases.push(case("one to grow", &native, words("BF.INSERT k VALIDATESCALETO 10000 SEED 7 ITEMS a b")));
        cases.push(case("long words", &native, words("BF.RESERVE k 1e-300 1 LAYOUT redisbloom")));
        cases.push(case("BF.INSERT", &native, with_items("BF.INSERT k CAPACITY 5 SEED 7 ITEMS", 0, 100)));
        for line in
            ["CF.RESERVE k 100", "CF.RESERVE k 5000000", "CF.ADD k a", "CF.ADDNX k a", "CF.INSERT k ITEMS a b c"]
        {
            cases.push(case(line, &[], words(line)));
        }
        cases
    });
}

#[test]
fn a_filter_that_cannot_grow_is_unchanged() {
    try_all("filters that grow", 100, |_, _| {
        let mut cases = Vec::new();
        // After a fault, each command is repeated, and a cuckoo filter would store the items that were added before it again.
        for (name, maker) in makers(4).into_iter().filter(|(name, _)| *name != "cuckoo") {
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
        for (items, maker) in (0..12)
            .flat_map(|items| ["CF.RESERVE k 4 EXPANSION 2 BUCKETSIZE 2", "CF.RESERVE k 4"].map(|maker| (items, maker)))
        {
            let before = [words(maker), with_items("CF.INSERT k ITEMS first", 0, items)];
            cases.push(case(format!("CF.ADD after {items}, {maker}"), &before, words("CF.ADD k newcomer")));
            cases.push(case(format!("CF.DEL after {items}, {maker}"), &before, words("CF.DEL k first")));
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
                // Refusals, whose texts are compared.
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

/// A future server might refuse to open a key for writing while it saves the key. The key is not missing then.
#[test]
fn a_key_that_cannot_be_written_is_not_reported_missing() {
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
        // Reads still work.
        assert_eq!(client.run("BF.EXISTS k a"), integer(1));
        client.run("FAULTS.CLOSED 0");
        assert_eq!(client.run("BF.CHANGED k d cached"), integer(1));
        assert_eq!(client.run("EXISTS cached"), integer(0));
    });
}

// Asserts that lookups, and adds that find room, do not allocate.

/// Returns the allocations of a command on an existing filter, after a similar command has run.
fn requests_of(client: &mut Connection, command: &Words) -> i64 {
    let (reply, [requests, _, _]) = run_under(client, "0", command);
    assert!(!reply.is_error(), "{reply:?}");
    requests
}

#[test]
fn lookups_do_not_allocate_and_adds_only_what_the_filter_keeps() {
    on_every_server(|program| {
        let server = with_faults(program).line("appendonly yes").start();
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            for (name, maker) in makers(100_000) {
                client.run("FLUSHALL");
                assert!(requests_of(&mut client, &words(&maker)) > 0, "the counter counts");
                client.call(&with_items("BF.MADD k", 0, 200));
                let commands = [
                    words("BF.EXISTS k x"),
                    with_items("BF.EXISTS k", 7, 1),
                    with_items("BF.MEXISTS k", 7, 1),
                    with_items("BF.MEXISTS k", 150, 100),
                    with_items("BF.MEXISTS k", 0, 5000),
                    words("BF.MEXISTS none x y"),
                    words("BF.ADD k x"),
                    words("BF.ADD k x"),
                    with_items("BF.MADD k", 1000, 100),
                    with_items("BF.MADD k", 1000, 100),
                    with_items("BF.MADD k", 1050, 100),
                    with_items("BF.INSERT k ITEMS", 2000, 100),
                    with_items("BF.INSERT k NOCREATE ITEMS", 2000, 100),
                    with_items("BF.MADD k", 0, 3000),
                    with_items("BF.MADD k", 0, 3000),
                    words("BF.CARD k"),
                    words("BF.INFO k"),
                ];
                // The first call reserves memory for the longest list.
                client.call(&with_items("BF.MADD k", 50_000, 4000));
                for command in &commands {
                    let requests = requests_of(&mut client, command);
                    let line = String::from_utf8_lossy(&command[0]).into_owned();
                    assert_eq!(requests, 0, "{line} with {} words, {name}, RESP{protocol}", command.len());
                }
            }
        }
    });
}

// Deletes, and merges of filters with tables of deleted items.

/// Returns the options for a filter that allows deletes. All such filters can be merged.
fn keyed(key: &str) -> Words {
    words(&format!("BF.RESERVE {key} 0.01 5000 HASH siphash SEED 000102030405060708090a0b0c0d0e0f"))
}

#[test]
fn a_merge_without_memory_changes_nothing() {
    try_all("unions", 30, |_, _| {
        let of_other = [keyed("other"), with_items("BF.MADD other", 500, 1500)];
        let deleted_of_other = [with_items("BF.MDEL other", 500, 200), with_items("BF.MDEL other", 900, 50)];
        let of_k = [keyed("k"), with_items("BF.MADD k", 0, 1000)];
        let deleted_of_k = [with_items("BF.MDEL k", 0, 250)];
        let merge = || words("BF.MERGE k other");
        vec![
            case("no tables", &[&of_k[..], &of_other].concat(), merge()),
            case("a table here", &[&of_k[..], &of_other, &deleted_of_k].concat(), merge()),
            case("a table there", &[&of_k[..], &of_other, &deleted_of_other].concat(), merge()),
            case("two tables", &[&of_k[..], &of_other, &deleted_of_k, &deleted_of_other].concat(), merge()),
            case("no destination", &[&of_other[..], &deleted_of_other].concat(), merge()),
            case(
                "three",
                &[&of_k[..], &of_other, &deleted_of_k, &deleted_of_other, &[words("COPY other third")]].concat(),
                words("BF.MERGE k other third"),
            ),
        ]
    });
}

/// If the table cannot grow, the items up to that point are deleted, and the array ends with the error.
#[test]
fn a_delete_without_memory_changes_nothing() {
    try_all("deletes", 10, |_, _| {
        // The first entries, those that turn a list into a table, and a table that grows.
        let deleted = [0, 1, 14, 40, 150].into_iter();
        let case_of = |deleted| {
            let mut before = vec![keyed("k"), with_items("BF.MADD k", 0, 2000)];
            before.extend((deleted > 0).then(|| with_items("BF.MDEL k", 0, deleted)));
            case(format!("after {deleted}"), &before, with_items("BF.MDEL k", deleted, 60))
        };
        deleted.map(case_of).collect()
    });
}

// Processes that cannot answer with an error exit: the child that rewrites the append-only file, a replica, and a server that
// loads its own files.

#[test]
fn a_rewrite_without_memory_keeps_the_existing_file() {
    on_every_server(|program| {
        let mut server = with_faults(program).line("appendonly yes").line("aof-use-rdb-preamble no").start();
        let mut client = server.connect();
        for (key, line) in LAYOUTS {
            client.run(line);
            client.call(&with_items(&format!("BF.MADD {key}"), 0, 300));
        }
        for (fault, outcome) in [("1 ON", "err"), ("1", "err"), ("3", "err"), ("0", "ok")] {
            client.run(&format!("FAULTS.FAIL {fault}"));
            client.run("BGREWRITEAOF");
            eventually("the rewrite to end", || !client.has_rewrite());
            assert_eq!(client.info("aof_last_bgrewrite_status"), outcome, "with fault {fault}");
            client.run("FAULTS.FAIL 0");
            for (key, _) in LAYOUTS {
                client.run(&format!("BF.ADD {key} beside-{}", fault.len()));
            }
            let digest =
                |client: &mut Connection| LAYOUTS.map(|(key, _)| client.run(&format!("DEBUG DIGEST-VALUE {key}")));
            let before = digest(&mut client);
            server.restart(Stop::Kill);
            client = server.connect();
            assert_eq!(digest(&mut client), before);
        }
        assert!(server.log().contains("bloomgate: cannot rewrite the AOF: "));
        // A snapshot allocates nothing.
        client.run("FAULTS.FAIL 1 ON");
        client.run("FAULTS.COUNT");
        assert_eq!(client.run("SAVE"), ok());
        assert_eq!(client.run("FAULTS.COUNT").elements()[0], integer(0));
    });
}

#[test]
fn a_replica_without_memory_for_an_effect_exits() {
    on_every_server(|program| {
        let primary = Server::start(program);
        let mut client = primary.connect();
        for (key, line) in LAYOUTS {
            client.run(line);
            client.call(&with_items(&format!("BF.MADD {key}"), 0, 50));
        }
        let payload = client.run("DUMP native").bytes().to_vec();
        let header = client.run("BF.SCANDUMP native 0");
        let iterator = header.elements()[0].number().to_string();
        let commands = [
            words("BF.RESERVE made 0.01 100"),
            with_items("BF.MADD native", 1000, 300),
            with_items("BF.MADD valkey-bloom", 1000, 300),
            // The first entry, and a table that grows.
            with_items("BF.MDEL keyed", 0, 1),
            with_items("BF.MDEL keyed", 1, 40),
            words("BF.MERGE united keyed"),
            words("COPY redisbloom copied"),
            raw("RESTORE restored 0", &payload),
            raw(&format!("BF.LOADCHUNK arriving {iterator}"), header.elements()[1].bytes()),
            load_command(program),
        ];
        for command in &commands {
            let mut replica = with_faults(program).line(&format!("replicaof 127.0.0.1 {}", primary.port)).start();
            let mut follower = replica.connect();
            eventually("the replica to have all", || follower.info("master_link_status") == "up");
            follower.run("FAULTS.FAIL 1 ON");
            // A client's query is answered, because it does not apply an effect.
            assert!(!follower.run("BF.EXISTS native x").is_error());
            let reply = client.call(command);
            assert!(!reply.is_error(), "{reply:?}");
            eventually("the replica to end", || replica.log().contains(LAST_WORDS));
            replica.stop(Stop::Kill);
        }
        figures(&format!("replicas without memory: {} faults injected, all ended", commands.len()));
    });
}

#[test]
fn a_server_without_memory_for_its_data_exits_and_keeps_the_file() {
    on_every_server(|program| {
        let mut ended = 0;
        // The original commands, the records of a rewrite, and a snapshot.
        for (is_rewritten, reload) in
            [(false, "DEBUG LOADAOF"), (true, "DEBUG LOADAOF"), (false, "DEBUG RELOAD NOSAVE")]
        {
            for (key, line) in LAYOUTS {
                let preamble = "aof-use-rdb-preamble no";
                let mut server = with_faults(program).line("appendonly yes").line(preamble).line("save 3600 1").start();
                let mut client = server.connect();
                client.run(line);
                client.call(&with_items(&format!("BF.MADD {key}"), 0, 300));
                if is_rewritten {
                    client.run("BGREWRITEAOF");
                    eventually("the rewrite to end", || !client.has_rewrite());
                }
                client.run("SAVE");
                let before = client.run(&format!("DEBUG DIGEST-VALUE {key}"));
                client.run("FAULTS.FAIL 2 ON");
                let words: Vec<&str> = reload.split(' ').collect();
                assert!(client.try_call(&words).is_err(), "{key}, {reload}: the server is still there");
                eventually("the server to say why", || server.log().contains(LAST_WORDS));
                server.restart(Stop::Kill);
                assert_eq!(server.connect().run(&format!("DEBUG DIGEST-VALUE {key}")), before);
                ended += 1;
            }
        }
        figures(&format!("readers of their own data without memory: {ended} faults injected, all ended"));
    });
}

// The guard when allocations fail: a lease that cannot be stored does not prevent other loads, a NONE replaces its lease, a client that
// cannot be queued gets `wait`, and waiters without a timer are served later.

const FETCH: &str = "BF.FETCH {f} 42 {f}:42 LEASE 100000";

/// Empties the server, which also resets the guard.
fn begin(client: &mut Connection) {
    client.run("FLUSHALL");
    client.run("BF.RESERVE {f} 0.01 1000 SEED 500");
    client.run("BF.ADD {f} 42");
}

fn word(reply: &Reply) -> String {
    reply.elements()[0].text()
}

/// Fails each allocation of a command in turn, alone and together with all later ones; `look` checks the reply.
fn each_fault(
    client: &mut Connection,
    prepare: &dyn Fn(&mut Connection) -> String,
    look: &dyn Fn(&mut Connection, Reply),
) -> i64 {
    let mut faults = 0;
    for mode in ["", " ON"] {
        for number in 1.. {
            assert!(number < 1000, "no end of it");
            begin(client);
            let line = prepare(client);
            let (reply, [_, refused, unrefusable]) = run_under(client, &format!("{number}{mode}"), &words(&line));
            assert_eq!(unrefusable, 0, "{line}: asks for what ends the server when it is refused");
            look(client, reply);
            faults += refused;
            if refused == 0 {
                break;
            }
        }
    }
    faults
}

#[test]
fn without_memory_rows_are_loaded_but_not_cached() {
    on_every_server(|program| {
        let server = with_faults(program).start();
        let mut client = server.connect();
        let fetch = each_fault(&mut client, &|_| FETCH.to_owned(), &|client, reply| {
            assert_eq!(word(&reply), "load");
            let token = reply.elements()[1].text();
            let filled = client.run(&format!("BF.FILL {{f}} 42 {{f}}:42 {token} VALUE v"));
            assert!(filled == ok() || filled == nil(2), "{filled:?}");
            assert_eq!(word(&client.run(FETCH)), if filled == ok() { "hit" } else { "load" });
        });
        let load = |client: &mut Connection| client.run(FETCH).elements()[1].text();
        let none = each_fault(
            &mut client,
            &|client| format!("BF.FILL {{f}} 42 {{f}}:42 {} NONE EX 100", load(client)),
            &|client, reply| {
                assert_eq!(reply, ok());
                assert_eq!(word(&client.run(FETCH)), "absent");
            },
        );
        let changed = each_fault(
            &mut client,
            &|client| {
                load(client);
                "BF.CHANGED {f} 42 {f}:42".to_owned()
            },
            &|client, reply| {
                assert_eq!(reply, client.answer(false));
                assert_eq!(word(&client.run(FETCH)), "load");
            },
        );
        let wait = each_fault(
            &mut client,
            &|client| {
                load(client);
                format!("{FETCH} WAIT 5")
            },
            &|_, reply| assert_eq!(word(&reply), "wait"),
        );
        figures(&format!("memory refused, the guard: {fetch} + {none} + {changed} + {wait} faults"));
        assert!(fetch > 0 && wait > 0, "{fetch}, {wait}");
        assert_eq!(none, 0, "a NONE takes the place of its lease");
    });
}

/// If memory for the timer is refused when a lease ends, the next caller serves its waiters.
#[test]
fn waiters_that_could_not_be_scheduled_are_served_by_the_next_caller() {
    on_every_server(|program| {
        let mut refusals = 0;
        // The timer's queue allocates when it is full, which depends on the number of waiters on a new server.
        for crowd in 1..=8 {
            let server = with_faults(program).start();
            let mut client = server.connect();
            begin(&mut client);
            let token = client.run(FETCH).elements()[1].text();
            let mut waiters: Vec<Connection> = (0..crowd).map(|_| server.connect()).collect();
            for (number, waiter) in waiters.iter_mut().enumerate() {
                waiter.send(&words(&format!("{FETCH} WAIT 100000000"))).unwrap();
                eventually("the client to wait", || client.info_number("bf_bloom_waiting") == number as i64 + 1);
            }
            let give_up = words(&format!("BF.FILL {{f}} 42 {{f}}:42 {token} GIVEUP"));
            let (reply, [_, refused, unrefusable]) = run_under(&mut client, "1 ON", &give_up);
            assert_eq!((reply, unrefusable), (ok(), 0));
            if refused > 0 {
                refusals += 1;
                assert_eq!(client.info_number("bf_bloom_waiting"), crowd, "no waiter is served yet");
                assert_eq!(word(&client.run(FETCH)), "wait", "a caller does not overtake them");
            }
            assert_eq!(word(&waiters[0].receive().unwrap()), "load");
            assert_eq!(client.info_number("bf_bloom_waiting"), crowd - 1);
        }
        assert!(refusals > 0, "no request was refused");
    });
}

// Another module that listens to key space events is called during a command, and may delete the key of the event. So no key may be open
// when an event is sent, because its filter could be freed.

#[test]
fn events_are_sent_after_the_key_is_closed() {
    on_every_server(|program| {
        let server = with_faults(program).line("appendonly yes").line("aof-use-rdb-preamble no").start();
        let mut client = server.connect();
        let all_new = |count| array(vec![integer(1); count]);
        let grown = words("BF.INSERT k CAPACITY 1 ITEMS a b c d");
        let cases: [(&str, Words, Reply, i64); 7] = [
            ("a reservation", words("BF.RESERVE k 0.01 100"), ok(), 1),
            ("one to be read by RedisBloom", words("BF.RESERVE k 0.01 100 LAYOUT redisbloom"), ok(), 1),
            ("a first item", words("BF.ADD k a"), integer(1), 2),
            ("first items", with_items("BF.MADD k", 0, 40), all_new(40), 2),
            ("a filter that grows at once", grown.clone(), all_new(4), 3),
            ("a filter of valkey-bloom's", words("BF.INSERT k TIGHTENING 0.5 ITEMS a"), all_new(1), 2),
            ("one that comes whole", raw("BF.LOAD k", &load_argument(&server, &mut client)), ok(), 1),
        ];
        for deletes in [0, 1] {
            assert_eq!(client.run(&format!("FAULTS.DELETE {deletes}")), integer(0));
            for (what, words, reply, events) in &cases {
                client.run("DEL k");
                client.run("FAULTS.NOTIFIED");
                assert_eq!(&client.call(words), reply, "{what}");
                assert_eq!(client.run("FAULTS.NOTIFIED"), array([integer(*events), integer(0)]), "{what}");
                assert_eq!(client.run("EXISTS k"), integer(1 - deletes), "{what}");
            }
            // Also for an existing filter.
            for (what, words, events) in
                [("an item", words("BF.ADD k e"), 1), ("items that make it grow", with_items("BF.MADD k", 0, 40), 2)]
            {
                client.run("FAULTS.DELETE 0");
                client.run("DEL k");
                client.call(&grown);
                client.run(&format!("FAULTS.DELETE {deletes}"));
                client.run("FAULTS.NOTIFIED");
                assert!(!client.call(&words).is_error(), "{what}");
                assert_eq!(client.run("FAULTS.NOTIFIED"), array([integer(events), integer(0)]), "{what}");
                assert_eq!(client.run("EXISTS k"), integer(1 - deletes), "{what}");
            }
        }
        assert_eq!(client.info_number("bf_bloom_num_objects"), 0, "nothing is left of what was deleted");
    });
}

/// Returns the commands in the append-only file for a filter of valkey-bloom's layout.
fn load_argument(server: &Server, client: &mut Connection) -> Vec<u8> {
    client.run("BF.INSERT their TIGHTENING 0.5 ITEMS a b c");
    rewrite_append_only_file(client);
    let commands = rewritten_commands(server);
    client.run("DEL their");
    commands.iter().find(|words| words[0] == b"BF.LOAD").expect("a record")[2].clone()
}

// Loads, copies and dumps.

/// Returns the payload and the records of the filter that the commands create.
pub fn dumped(client: &mut Connection, before: &[Words]) -> (Vec<u8>, Vec<(String, Vec<u8>)>) {
    client.run("FLUSHALL");
    before.iter().for_each(|command| assert!(!client.call(command).is_error()));
    let mut records = Vec::new();
    let mut iterator = "0".to_owned();
    loop {
        let reply = client.run(&format!("BF.SCANDUMP k {iterator}"));
        if reply.is_error() {
            break;
        }
        iterator = reply.elements()[0].number().to_string();
        if iterator == "0" {
            break;
        }
        records.push((iterator.clone(), reply.elements()[1].bytes().to_vec()));
    }
    (client.run("DUMP k").bytes().to_vec(), records)
}

/// Returns the commands in an append-only file for a filter of valkey-bloom's layout at `k`.
pub fn load_command(program: &Path) -> Words {
    let server = Server::with(program).line("appendonly yes").line("aof-use-rdb-preamble no").start();
    let mut client = server.connect();
    client.run(&makers(4)[2].1);
    client.call(&with_items("BF.MADD k", 0, 100));
    client.run("BGREWRITEAOF");
    eventually("the rewrite to end", || !client.has_rewrite());
    rewritten_commands(&server).pop().expect("a command")
}

#[test]
fn a_refused_load_or_copy_leaves_no_filter() {
    try_all("loads and copies", 100, |program, client| {
        let mut cases = Vec::new();
        for (capacity, items) in [(4, 100), (1_000_000, 10)] {
            for (name, maker) in makers(capacity) {
                let name = format!("{name} for {capacity}");
                let before = [words(&maker), with_items("BF.MADD k", 0, items)];
                let (payload, records) = dumped(client, &before);
                cases.push(case(format!("RESTORE, {name}"), &[], raw("RESTORE k 0", &payload)));
                cases.push(case(format!("COPY, {name}"), &before, words("COPY k copy")));
                let load = |(iterator, data): &(String, Vec<u8>)| raw(&format!("BF.LOADCHUNK k {iterator}"), data);
                let mut came = Vec::new();
                for record in &records {
                    let name = format!("record {} of {name}", record.0);
                    cases.push(case(&name, &came, load(record)));
                    came.push(load(record));
                    cases.push(case(format!("{name} again"), &came, load(record)));
                }
                for count in (1..came.len()).filter(|count| count % 2 == 1) {
                    let (half, _) = dumped(client, &came[..count]);
                    let name = format!("{count} records of {name}");
                    cases.push(case(format!("RESTORE, {name}"), &[], raw("RESTORE k 0", &half)));
                    cases.push(case(format!("COPY, {name}"), &came[..count], words("COPY k copy")));
                    cases.push(case(format!("DUMP, {name}"), &came[..count], words("DUMP k")));
                }
            }
        }
        cases.push(case("BF.LOAD", &[], load_command(program)));
        cases
    });
}

#[test]
fn a_dump_continues_once_memory_is_available() {
    on_every_server(|program| {
        let server = with_faults(program).start();
        let mut client = server.connect();
        let mut faults = 0;
        for (_, maker) in &makers(1_200_000)[..2] {
            client.run("FLUSHALL");
            client.run(maker);
            client.call(&with_items("BF.MADD k", 0, 1000));
            let mut iterator = "0".to_owned();
            loop {
                let command = words(&format!("BF.SCANDUMP k {iterator}"));
                let whole = client.call(&command);
                for mode in ["", " ON"] {
                    for number in 1.. {
                        let (reply, [_, refused, unrefusable]) =
                            run_under(&mut client, &format!("{number}{mode}"), &command);
                        assert_eq!(unrefusable, 0);
                        if refused == 0 {
                            assert!(reply == whole, "the record is another one");
                            break;
                        }
                        assert!(is_refusal(&reply), "{reply:?}");
                        faults += refused;
                    }
                }
                iterator = whole.elements()[0].number().to_string();
                if iterator == "0" {
                    break;
                }
            }
        }
        figures(&format!("memory refused, dumps: {faults} faults injected"));
        assert!(faults >= 6);
    });
}
