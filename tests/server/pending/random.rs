//! Random adds, deletes and whole-filter commands, with saves, rewrites, full synchronisations, kills and restarts at random
//! moments: a primary, its replica and what is loaded from the disk stay equal.

use crate::fleet::effort;
use testing::{Connection, Rng, Server, Stop, catch_up, fault_module, follow, integer, module, ok, on_every_server};

use super::{all_written, children, digest, items, kill, no_child, pending};

/// A filter: its key, the command that creates it and its options, and whether items can be deleted from it.
type Made = (&'static str, &'static str, bool);

/// Fixed and growing filters, with and without a key, windows and rolling ones, whose layers have 4 MiB or more. Buckets of the latter
/// are smaller, but for some.
const LARGE: [Made; 6] = [
    ("fixed", "0.01 3500000 NONSCALING", false),
    ("keyed", "0.01 3500000 HASH siphash", true),
    ("other", "0.01 3500000 HASH siphash SEED 000102030405060708090a0b0c0d0e0f", true),
    ("same", "0.01 3500000 HASH siphash SEED 000102030405060708090a0b0c0d0e0f", true),
    ("window", "0.01 14000000 WINDOW 1000000 BUCKETS 4 HASH siphash", true),
    ("rolling", "0.01 14000000 ROLLING BUCKETS 4", false),
];

/// Filters of every kind with layers of a few pages. `CAPACITY` stands for a capacity with which the first layer, or each bucket,
/// consists of whole pages, as large layers do: adds to it may be pending. Rates are high, so that many items have bits in common.
const SMALL: [Made; 14] = [
    ("fixed", "0.1 CAPACITY NONSCALING", false),
    ("growing", "0.2 CAPACITY", false),
    ("keyed", "0.1 CAPACITY HASH siphash", true),
    ("other", "0.1 CAPACITY HASH siphash SEED 000102030405060708090a0b0c0d0e0f", true),
    ("same", "0.1 CAPACITY HASH siphash SEED 000102030405060708090a0b0c0d0e0f", true),
    ("window", "0.25 CAPACITY WINDOW 1000000 BUCKETS 3", false),
    ("keyed-window", "0.25 CAPACITY WINDOW 1000000 BUCKETS 3 HASH siphash", true),
    ("sliding", "0.25 CAPACITY WINDOW 1000000 BUCKETS 3 SLIDING", false),
    ("keyed-sliding", "0.25 CAPACITY WINDOW 1000000 BUCKETS 3 SLIDING HASH siphash", true),
    ("rolling", "0.25 CAPACITY ROLLING BUCKETS 3", false),
    ("keyed-rolling", "0.25 CAPACITY ROLLING BUCKETS 3 HASH siphash", true),
    ("counting", "0.1 5000 COUNTING", true),
    ("redisbloom", "0.1 5000 LAYOUT redisbloom", false),
    ("valkey-bloom", "TIGHTENING 0.5 CAPACITY 5000 ERROR 0.1", false),
];

/// Creates a filter.
fn make(client: &mut Connection, (key, words, _): Made) {
    if words.starts_with("TIGHTENING") {
        assert!(!client.run(&format!("BF.INSERT {key} {words} ITEMS first")).is_error());
        return;
    }
    let has_pages = |words: &str, client: &mut Connection| {
        let layers = client.run(&format!("BF.PLAN {words}")).field("Layers").clone();
        layers.elements().first().map(|layer| layer.field("Size").number() % 4096) == Some(0)
    };
    let words = (5000..)
        .step_by(50)
        .map(|capacity| words.replace("CAPACITY", &capacity.to_string()))
        .find(|with| !words.contains("CAPACITY") || has_pages(with, client));
    assert_eq!(client.run(&format!("BF.RESERVE {key} {}", words.expect("a capacity"))), ok());
}

/// One thing that somebody does to the filters.
fn change(client: &mut Connection, rng: &mut Rng, filters: &[Made], numbers: u64) {
    let (key, words, deletes) = filters[rng.below(filters.len() as u64) as usize];
    let first = rng.below(numbers) as u32;
    let most = if rng.below(4) == 0 { 3000 } else { 40 };
    let count = 1 + rng.below(most) as u32;
    match rng.below(12) {
        0 | 1 => {
            let words: Vec<String> = items(first..first + count.min(300));
            let words: Vec<&[u8]> =
                [&b"BF.MDEL"[..], key.as_bytes()].into_iter().chain(words.iter().map(String::as_bytes)).collect();
            let reply = client.call(&words);
            assert_eq!(reply.is_error(), !deletes, "{key}: {reply:?}");
        }
        2 if rng.below(10) == 0 => {
            let merged = client.run("BF.MERGE other same");
            assert!(merged == ok() || merged.error_text().contains("the union would hold"), "{merged:?}");
        }
        3 if words.contains("WINDOW") && rng.below(2) == 0 => {
            assert!(!client.run(&format!("BF.ROTATE {key}")).is_error());
        }
        4 if rng.below(30) == 0 => assert_eq!(client.run(&format!("BF.CLEAR {key}")), ok()),
        5 if rng.below(10) == 0 => assert_eq!(client.run(&format!("COPY {key} copy REPLACE")), integer(1)),
        _ => {
            // Where a filter is full, one item is refused in the end.
            let words = items(first..first + count);
            let words: Vec<&[u8]> =
                [&b"BF.MADD"[..], key.as_bytes()].into_iter().chain(words.iter().map(String::as_bytes)).collect();
            assert!(!client.call(&words).is_error(), "{key}");
        }
    }
}

#[test]
fn servers_stay_equal_whatever_happens() {
    on_every_server(|program| {
        let start = || Server::with(program).line("appendonly yes").line("appendfsync no").start();
        let seen = stay_equal([start(), start()], &LARGE, 60_000);
        assert!(seen > 20, "adds have been pending {seen} times");
    });
}

#[test]
fn servers_stay_equal_whatever_happens_to_small_filters_of_every_kind() {
    on_every_server(|program| {
        let modules = format!("loadmodule {} PEND 4096 {}", fault_module().display(), module().display());
        let start = || {
            let server = Server::with(program).without_module().line(&modules);
            server.line("appendonly yes").line("appendfsync no").start()
        };
        let seen = stay_equal([start(), start()], &SMALL, 12_000);
        assert!(seen > 20, "adds have been pending {seen} times");
    });
}

/// Does random things to a primary with these filters, whose items have numbers below `numbers`, and to its replica. Returns how often
/// adds were pending.
fn stay_equal([mut server, replica]: [Server; 2], filters: &[Made], numbers: u64) -> i64 {
    let (mut client, mut follower) = (server.connect(), replica.connect());
    for made in filters {
        make(&mut client, *made);
    }
    follow(&mut follower, &server);
    let mut rng = Rng::new(14);
    let (mut seen, mut checks) = (0, 0);
    for _ in 0..effort(400) {
        match rng.below(40) {
            0 if client.info_number("rdb_bgsave_in_progress") == 0
                && client.info_number("aof_rewrite_in_progress") == 0 =>
            {
                // The server itself may have begun to rewrite its AOF by now.
                client.run(&format!("CONFIG SET rdb-key-save-delay {}", rng.below(100_000)));
                client.run("BGSAVE");
            }
            1 => _ = client.run("BGREWRITEAOF"),
            2 => kill(&children(&server)),
            3 if rng.below(4) == 0 => {
                // What it has goes, and all comes again.
                follower.run("REPLICAOF NO ONE");
                follower.run("BF.ADD fixed in-the-replica-alone");
                follow(&mut follower, &server);
            }
            4 if rng.below(4) == 0 => {
                client.run("CONFIG SET rdb-key-save-delay 0");
                catch_up(&mut client, &mut follower);
                assert_eq!(digest(&mut client), digest(&mut follower));
                checks += 1;
            }
            5 if rng.below(8) == 0 => {
                let before = digest(&mut client);
                kill(&children(&server));
                server.restart(if rng.below(2) == 0 { Stop::NoSave } else { Stop::Kill });
                client = server.connect();
                assert_eq!(digest(&mut client), before, "from the append-only file");
                // The port may be another one.
                follow(&mut follower, &server);
                checks += 1;
            }
            _ => change(&mut client, &mut rng, filters, numbers),
        }
        seen += i64::from(pending(&mut client) > 0);
    }
    client.run("CONFIG SET rdb-key-save-delay 0");
    catch_up(&mut client, &mut follower);
    let last = digest(&mut client);
    assert_eq!(last, digest(&mut follower));
    kill(&children(&server));
    no_child(&mut client);
    all_written(&mut client);
    assert_eq!(digest(&mut client), last);
    assert_eq!(client.run("DEBUG RELOAD"), ok());
    assert_eq!(digest(&mut client), last);
    assert_eq!(client.run("DEBUG LOADAOF"), ok());
    assert_eq!(digest(&mut client), last);
    testing::figures(&format!("adds were pending at {seen} of {} moments, {} checks", effort(400), checks + 5));
    seen
}
