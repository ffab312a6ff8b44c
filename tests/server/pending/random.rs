//! Random adds, deletes and whole-filter commands, with saves, rewrites, full synchronisations, kills and restarts at random
//! moments: a primary, its replica and what is loaded from the disk stay equal.

use crate::fleet::effort;
use testing::{Connection, Rng, Server, Stop, catch_up, follow, integer, ok, on_every_server};

use super::{add, all_written, children, digest, items, kill, no_child, pending};

/// Fixed and growing filters, with and without a key, windows and rolling ones. Buckets of the latter are smaller than what lets
/// adds pend, but for some.
const FILTERS: [(&str, &str); 6] = [
    ("fixed", "0.01 3500000 NONSCALING"),
    ("keyed", "0.01 3500000 HASH siphash"),
    ("other", "0.01 3500000 HASH siphash SEED 000102030405060708090a0b0c0d0e0f"),
    ("same", "0.01 3500000 HASH siphash SEED 000102030405060708090a0b0c0d0e0f"),
    ("window", "0.01 14000000 WINDOW 1000000 BUCKETS 4 HASH siphash"),
    ("rolling", "0.01 14000000 ROLLING BUCKETS 4"),
];

/// One thing that somebody does to the filters.
fn change(client: &mut Connection, rng: &mut Rng) {
    let (key, _) = FILTERS[rng.below(FILTERS.len() as u64) as usize];
    let first = rng.below(60_000) as u32;
    let most = if rng.below(4) == 0 { 3000 } else { 40 };
    let count = 1 + rng.below(most) as u32;
    match rng.below(12) {
        0 => {
            let words: Vec<String> = items(first..first + count.min(30));
            let words: Vec<&[u8]> =
                [&b"BF.MDEL"[..], key.as_bytes()].into_iter().chain(words.iter().map(String::as_bytes)).collect();
            let reply = client.call(&words);
            assert_eq!(reply.is_error(), matches!(key, "fixed" | "rolling"), "{key}: {reply:?}");
        }
        1 if rng.below(10) == 0 => assert_eq!(client.run("BF.MERGE other same"), ok()),
        2 if rng.below(10) == 0 => assert!(!client.run("BF.ROTATE window").is_error()),
        3 if rng.below(30) == 0 => assert_eq!(client.run(&format!("BF.CLEAR {key}")), ok()),
        4 if rng.below(10) == 0 => assert_eq!(client.run(&format!("COPY {key} copy REPLACE")), integer(1)),
        _ => _ = add(client, key, first..first + count),
    }
}

#[test]
fn servers_stay_equal_whatever_happens() {
    on_every_server(|program| {
        let start = || Server::with(program).line("appendonly yes").start();
        let (mut server, replica) = (start(), start());
        let (mut client, mut follower) = (server.connect(), replica.connect());
        for (key, words) in FILTERS {
            assert_eq!(client.run(&format!("BF.RESERVE {key} {words}")), ok());
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
                5 if rng.below(12) == 0 => {
                    let before = digest(&mut client);
                    kill(&children(&server));
                    server.restart(Stop::NoSave);
                    client = server.connect();
                    assert_eq!(digest(&mut client), before, "from the append-only file");
                    checks += 1;
                }
                _ => change(&mut client, &mut rng),
            }
            seen += i64::from(pending(&mut client) > 0);
        }
        assert!(seen > 20, "adds have been pending {seen} times");
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
    });
}
