//! The load under which links are cut: everything that an application does with filters, in random order.

use std::sync::atomic::{AtomicBool, Ordering};

use super::LAYOUTS;
use testing::{Connection, Reply, Rng, Server, eventually};

/// Errors that are expected because the order is random.
const EXPECTED: [&str; 12] = [
    "ERR not found",
    "ERR no such key",
    "ERR item exists",
    "ERR non scaling filter is full",
    "ERR source and destination objects are the same",
    "ERR this filter cannot delete",
    "ERR this filter cannot be merged",
    "ERR this filter has no WINDOW",
    "ERR no room for more deleted items",
    "ERR filters differ in what made them",
    "ERR the union would hold about",
    "ERR this filter has no COUNTING",
];

const KEYS: u64 = 6;

/// Writes until `stop`. Returns the number of commands.
pub fn write_until(server: &Server, seed: u64, stop: &AtomicBool) -> usize {
    let mut client = server.connect();
    let mut rng = Rng::new(seed);
    let mut commands = 0;
    while !stop.load(Ordering::Relaxed) {
        write(&mut client, &mut rng);
        commands += 1;
    }
    commands
}

/// The kinds to create, including those that forget or have a fixed size.
const FORGETFUL: [(&str, &[&str]); 2] =
    [("rolling", &["ROLLING", "HASH", "siphash"]), ("sliding", &["WINDOW", "100000000", "SLIDING", "HASH", "siphash"])];

fn key(rng: &mut Rng) -> (String, &'static [&'static str]) {
    let number = rng.below((LAYOUTS.len() + FORGETFUL.len()) as u64) as usize;
    let (name, words) = *LAYOUTS.iter().chain(&FORGETFUL).nth(number).expect("a kind");
    (format!("{name}-{}", rng.below(KEYS)), words)
}

/// Sends one command, or a transaction.
fn write(client: &mut Connection, rng: &mut Rng) {
    let (key, layout) = key(rng);
    let other = self::key(rng).0;
    let items: Vec<String> = (0..1 + rng.below(30)).map(|_| format!("item/{}", rng.below(100_000))).collect();
    let mut line = match rng.below(120) {
        0..40 => {
            let mut growth = ["EXPANSION 1", "EXPANSION 2", "EXPANSION 4", "NONSCALING"][rng.below(4) as usize];
            if layout.contains(&"ROLLING") || layout.contains(&"COUNTING") {
                growth = "";
            }
            let made = format!("CAPACITY {} {growth}", 20 + rng.below(40));
            ["BF.INSERT", &key, &made, &layout.join(" "), "ITEMS", &items.join(" ")].join(" ")
        }
        40..60 => format!("BF.MADD {key} {}", items.join(" ")),
        60..75 => format!("BF.ADD {key} {}", items[0]),
        75..77 => format!("DEL {key}"),
        77..79 => format!("UNLINK {key}"),
        79..82 => format!("RENAME {key} {other}"),
        82..84 => format!("COPY {key} {other} REPLACE"),
        84..88 => format!("PEXPIRE {key} {}", 1 + rng.below(200)),
        88..90 => format!("PERSIST {key}"),
        90..92 => format!("BF.RESERVE {key} 0.001 100"),
        92..94 => {
            let script = "redis.call('BF.ADD', KEYS[1], ARGV[1]) return redis.call('BF.MADD', KEYS[1], ARGV[2], 'x')";
            check(&client.call(&["EVAL", script, "1", &key, &items[0], &other]));
            return;
        }
        100..106 => format!("BF.MDEL {key} {}", items.join(" ")),
        106..108 => format!("BF.DEL {key} {}", items[0]),
        // Merges are mostly possible for copies, so the second filter is sometimes copied from the first.
        108..113 => {
            let words = format!("BF.MERGE {other} {key}");
            if rng.below(2) == 0 {
                check(&client.run(&format!("COPY {key} {other} REPLACE")));
                check(&client.run(&format!("BF.MADD {other} {}", items.join(" "))));
            }
            words
        }
        113..115 => format!("BF.CLEAR {key}"),
        115..118 => format!("BF.ROTATE {key}"),
        118..120 => format!("BF.COUNT {key} {}", items[0]),
        94..97 => {
            let add = format!("BF.MADD {key} {}", items.join(" "));
            client.pipeline(&["MULTI", &add, &format!("BF.ADD {other} x"), "EXEC"]).iter().for_each(check);
            return;
        }
        _ => {
            if let Reply::Bulk(payload) = client.run(&format!("DUMP {key}")) {
                let words: [&[u8]; 5] = [b"RESTORE", other.as_bytes(), b"0", &payload, b"REPLACE"];
                check(&client.call(&words));
            }
            return;
        }
    };
    while line.contains("  ") {
        line = line.replace("  ", " "); // A native filter has no words for its layout, others none for their growth.
    }
    check(&client.run(&line));
}

fn check(reply: &Reply) {
    match reply {
        Reply::Error(text) => assert!(EXPECTED.iter().any(|expected| text.starts_with(expected)), "{text}"),
        Reply::Array(elements) => elements.iter().for_each(check),
        _ => {}
    }
}

/// Waits until the last key with a short time to live has expired.
pub fn wait_for_expiries(client: &mut Connection) {
    client.run("SET anchor x");
    eventually("the expiries", || client.info("db0").contains("expires=0"));
}
