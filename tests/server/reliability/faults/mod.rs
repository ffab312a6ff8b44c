//! Allocation failures in the module: every command is run with its nth allocation failing, for n = 1, 2, 3 ... until it
//! succeeds. Each time it returns an error or the right reply. A refused command has changed nothing, an executed one is
//! complete, the server keeps running, and the same command succeeds afterwards.
//!
//! A test module that replaces the allocation functions of the shipped one (`tests/fault_module`) makes them fail. Allocations
//! of the server itself, for replies and strings, are not failed, because Redis exits when they are refused.
//!
//! A server that must apply effects, such as a replica or one that reads its AOF, exits with a line in the log when it runs
//! out of memory. Otherwise it would report present items absent.

mod commands;
mod counts;
mod deletes;
mod followers;
mod guard;
mod listeners;
mod loads;

use std::path::Path;

use testing::{Builder, Connection, Reply, Server, fault_module, figures, module, on_every_server, simple};

type Words = Vec<Vec<u8>>;

fn with_faults(program: &Path) -> Builder {
    let modules = format!("loadmodule {} {}", fault_module().display(), module().display());
    // Filters created by the same command are equal, because native ones get a fixed seed.
    Server::with(program).without_module().line(&modules).line("bf.bloom-use-random-seed no")
}

fn words(line: &str) -> Words {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
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

/// Returns everything about the key `k`, and the figures of INFO.
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

/// Runs a command with a fault. Returns the reply and the counts of allocations: all, refused ones, and those that may not
/// fail.
fn run_under(client: &mut Connection, fault: &str, command: &Words) -> (Reply, [i64; 3]) {
    client.run("FAULTS.COUNT");
    client.run(&format!("FAULTS.FAIL {fault}"));
    let reply = client.call(command);
    client.run("FAULTS.FAIL 0");
    let counted = client.run("FAULTS.COUNT");
    let number = |index: usize| counted.elements()[index].number();
    (reply, [number(0), number(2), number(3)])
}

/// Whether a reply reports insufficient memory, in our words or in the server's.
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
    // A native filter without a fixed seed differs each time, and so does one that began at another time.
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

/// Whether a reply is the right one. MEMORY USAGE of equal filters differs by the alignment of their layers.
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
    let new = answers.iter().filter(|answer| answer.truth()).count() as i64;
    let card = |state: &State| state.numbers[0].number();
    assert_eq!(card(now), card(before) + new, "{name}: what is in is what was answered");
    let first = case.command.len() - expected.elements().len();
    let done = &case.command[first..first + answers.len()];
    assert!(client.batched(&[b"BF.MEXISTS", b"k"], done).iter().all(|&is_in| is_in), "{name}");
}

/// Returns the options for a filter of each layout at `k`, which grows from this capacity at 1%.
fn makers(capacity: usize) -> [(&'static str, String); 5] {
    [
        ("native", format!("BF.RESERVE k 0.01 {capacity} SEED 7")),
        ("redisbloom", format!("BF.RESERVE k 0.01 {capacity} LAYOUT redisbloom")),
        ("valkey-bloom", format!("BF.INSERT k ERROR 0.01 CAPACITY {capacity} TIGHTENING 0.5")),
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
