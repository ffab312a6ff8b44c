//! Filters that forget, in servers: what they answer, what is carried, how they are stored. Time is not waited for, mostly:
//! an append-only file that a test has written says when buckets began.

mod carried;
mod stored;
mod time;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use testing::start_on_commands;
use testing::{Connection, Server, encode};

/// Milliseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

/// A server that was told these lines.
fn started_on(program: &Path, lines: &[String]) -> Server {
    let commands = encode(lines.iter().map(|line| line.split(' ').collect::<Vec<_>>()));
    start_on_commands(program, &["auto-aof-rewrite-percentage 0"], &commands)
}

/// A ring of three buckets of 500 s each, the first of which is past, with an item in each, and the next due; and when it was.
fn two_buckets(program: &Path, words: &str) -> (Server, u64) {
    let now = now();
    let turn = |slot: u64, begin: u64| format!("BF.ROTATE k {slot} {begin} {} 50", begin + 500_000);
    let server = started_on(
        program,
        &[
            format!("BF.INSERT k CAPACITY 100 ERROR 0.0001 {words} BUCKETS 3 SEED 5"),
            turn(0, now - 1_600_000),
            "BF.MADD k old".to_owned(),
            turn(1, now - 1_100_000),
            "BF.MADD k middle".to_owned(),
        ],
    );
    (server, now)
}

/// Makes rings of several kinds, with items in several buckets, and returns their keys.
fn make_rings(client: &mut Connection) -> Vec<String> {
    let mut keys = Vec::new();
    for (key, words) in [
        ("fixed", "WINDOW 1000 NONSCALING BUCKETS 5"),
        ("growing", "WINDOW 1000 EXPANSION 2"),
        ("sliding", "WINDOW 1000 SLIDING HASH siphash"),
        ("rolling", "ROLLING BUCKETS 4"),
    ] {
        let reply = client.run(&format!("BF.RESERVE {key} 0.001 400 {words}"));
        assert!(!reply.is_error(), "{reply:?}");
        for round in 0..4 {
            let items: Vec<String> = (0..70).map(|number| format!("{round}/{number}")).collect();
            client.batched(&[b"BF.MADD", key.as_bytes()], &items);
            if round < 3 {
                assert_eq!(client.run(&format!("BF.ROTATE {key}")).number(), 0);
            }
        }
        keys.push(key.to_owned());
    }
    keys
}
