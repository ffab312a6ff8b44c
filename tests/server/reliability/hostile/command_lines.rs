//! Random commands made of known and unknown words, extreme numbers, keys of another type, and items of arbitrary bytes.

use super::Counts;
use super::damage::pick;
use testing::{Connection, Reply, Rng};

/// A key that holds a string, not a filter.
pub const TEXT_KEY: &str = "text";
/// A key that holds a hash with a field named like one of the keys, and one that holds a list.
const HASH_KEY: &str = "hash";
const LIST_KEY: &str = "list";

/// The number of commands that are sent to one set of keys.
const LINES: usize = 25;

const COMMANDS: [&str; 26] = [
    "BF.RESERVE",
    "BF.RESERVE",
    "BF.INSERT",
    "BF.INSERT",
    "BF.ADD",
    "BF.MADD",
    "BF.EXISTS",
    "BF.MEXISTS",
    "BF.INFO",
    "BF.CARD",
    "BF.DEBUG",
    "BF.SCANDUMP",
    "BF.LOADCHUNK",
    "BF.ROTATE",
    "BF.DEL",
    "BF.MDEL",
    "BF.COUNT",
    "BF.MERGE",
    "BF.CLEAR",
    "BF.STATS",
    "BF.PLAN",
    "BF.FETCH",
    "BF.MCHANGED",
    "BF.MFETCH",
    "BF.FILL",
    "BF.CHANGED",
];

const KEYS: [&str; 5] = ["a", "b", "c", TEXT_KEY, ""];

/// Keys for WHILE and UNLESS.
const CONDITIONS: [&str; 7] = ["a", "missing", TEXT_KEY, HASH_KEY, HASH_KEY, HASH_KEY, LIST_KEY];

/// Without EX and PX, because a key that expires meanwhile would look like a change by a refused command.
const OPTIONS: [&str; 20] = [
    "CAPACITY",
    "ERROR",
    "EXPANSION",
    "NOCREATE",
    "NONSCALING",
    "SEED",
    "TIGHTENING",
    "LAYOUT",
    "VALIDATESCALETO",
    "ITEMS",
    "SIZE",
    "MAXSCALEDCAPACITY",
    "C",
    "HASH",
    "WINDOW",
    "BUCKETS",
    "ROLLING",
    "SLIDING",
    "COUNTING",
    "SYNC",
];

const VALUES: [&str; 36] = [
    "0",
    "1",
    "-1",
    "2",
    "100",
    "1000",
    "32768",
    "32769",
    "65536",
    "1073741824",
    "1073741825",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "1152921504606846976",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "0.01",
    "0.5",
    "1e-7",
    "1e-300",
    "5e-324",
    "1e-400",
    "0.9999999999999999",
    "1.0",
    "nan",
    "inf",
    "-0",
    "+1",
    "native",
    "redisbloom",
    "murmur3",
    "siphash",
    "",
    "0123456789abcdef0123456789abcdef",
];

/// Sends random commands. Each is answered, and a refused one leaves the keys unchanged.
pub fn round(rng: &mut Rng, client: &mut Connection, counts: &mut Counts) {
    client.run(&format!("HSET {HASH_KEY} c 1"));
    client.run(&format!("RPUSH {LIST_KEY} x"));
    let mut lease = None;
    for _ in 0..LINES {
        let words = line(rng, lease.as_ref());
        let before = state(client);
        let reply = client.call(&words);
        counts.tried += 1;
        lease = granted(&words, &reply).or(lease);
        if reply.is_error() {
            counts.refused += 1;
            let text = String::from_utf8_lossy(&words.join(&b" "[..])).into_owned();
            assert_eq!(state(client), before, "{text}: {reply:?}");
        } else {
            counts.accepted += 1;
        }
    }
    assert_eq!(client.run("PING").text(), "PONG");
}

/// Returns the number of keys, and the number of items in each.
fn state(client: &mut Connection) -> Vec<String> {
    let mut state = vec![format!("{:?}", client.run("DBSIZE"))];
    state.extend(KEYS.map(|key| format!("{:?}", client.call(&["BF.CARD", key]))));
    state
}

/// Returns the filter, the item, the cache key and the token of a lease that BF.FETCH has granted.
fn granted(words: &[Vec<u8>], reply: &Reply) -> Option<[Vec<u8>; 4]> {
    match (words, reply) {
        ([name, filter, item, key, ..], Reply::Array(parts)) if name.eq_ignore_ascii_case(b"BF.FETCH") => {
            match &parts[..] {
                [.., Reply::Bulk(token)] if token.len() == 32 => Some([filter, item, key, token].map(Clone::clone)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Draws a command. Some fills are for the `lease`.
fn line(rng: &mut Rng, lease: Option<&[Vec<u8>; 4]>) -> Vec<Vec<u8>> {
    let command = *pick(rng, &COMMANDS);
    let mut words = vec![any_case(rng, command), pick(rng, &KEYS).as_bytes().to_vec()];
    match command {
        // Often valid, up to the options.
        "BF.RESERVE" => {
            words.push(pick(rng, &["0.01", "0.5", "1e-7", "1e-300"]).as_bytes().to_vec());
            words.push(pick(rng, &["1", "100", "1000", "100000"]).as_bytes().to_vec());
            for _ in 0..rng.below(4) {
                option(rng, &mut words);
            }
        }
        "BF.INSERT" => {
            for _ in 0..rng.below(4) {
                option(rng, &mut words);
            }
            words.push(any_case(rng, "ITEMS"));
            items(rng, &mut words);
        }
        "BF.INFO" | "BF.SCANDUMP" => words.push(word(rng)),
        "BF.LOADCHUNK" => words.extend([word(rng), rng.bytes(200)]),
        "BF.CARD" | "BF.DEBUG" | "BF.ROTATE" | "BF.CLEAR" | "BF.STATS" => {}
        "BF.MERGE" => (0..=rng.below(2)).for_each(|_| words.push(pick(rng, &KEYS).as_bytes().to_vec())),
        "BF.PLAN" => {
            words[1] = word(rng);
            words.push(word(rng));
            (0..rng.below(4)).for_each(|_| option(rng, &mut words));
        }
        "BF.FETCH" | "BF.CHANGED" => {
            // A BF.CHANGED that the filter refuses has still deleted the value, so it names a missing key.
            let key = if command == "BF.CHANGED" { "missing" } else { pick(rng, &KEYS) };
            words.extend([rng.bytes(3), key.as_bytes().to_vec()]);
            (0..if command == "BF.FETCH" { rng.below(4) } else { 0 }).for_each(|_| condition(rng, &mut words));
        }
        "BF.FILL" => fill(rng, &mut words, lease),
        "BF.MCHANGED" | "BF.MFETCH" => {
            (0..if command == "BF.MFETCH" { rng.below(4) } else { 0 }).for_each(|_| condition(rng, &mut words));
            words.push(any_case(rng, "ITEMS"));
            (0..=rng.below(3)).for_each(|_| words.extend([rng.bytes(3), b"missing".to_vec()]));
        }
        _ => items(rng, &mut words),
    }
    // One argument too many, too few, or replaced.
    match rng.below(8) {
        0 => words.push(word(rng)),
        1 => drop(words.pop()),
        2 => {
            // The last argument of BF.FILL may be a time to live: a key that expires would look like a change.
            let end = if command == "BF.FILL" { words.len().min(8) } else { words.len() };
            let place = 1 + rng.below(end as u64 - 1) as usize;
            words[place] = word(rng);
        }
        _ => {}
    }
    words
}

/// Appends an option of BF.FETCH. No command may wait for long, because no other client would end the wait.
fn condition(rng: &mut Rng, words: &mut Vec<Vec<u8>>) {
    let options: [(&str, &[&str]); 5] = [
        ("LEASE", &VALUES),
        ("STALE", &VALUES),
        ("WAIT", &["0", "1", "2", "x", "-1"]),
        ("WHILE", &CONDITIONS),
        ("UNLESS", &CONDITIONS),
    ];
    let (name, values) = *pick(rng, &options);
    words.extend([any_case(rng, name), pick(rng, values).as_bytes().to_vec()]);
}

/// Appends the arguments of BF.FILL. Times to live of values are long, because a key that expires would look like a change.
fn fill(rng: &mut Rng, words: &mut Vec<Vec<u8>>, lease: Option<&[Vec<u8>; 4]>) {
    let forms: [&[&str]; 6] = [
        &["VALUE", "v"],
        &["VALUE", "v", "EX", "1000000"],
        &["NONE", "PX", "9"],
        &["NONE", "EX", "9223372036854775807"],
        &["GIVEUP"],
        &["GIVEUP", "BACKOFF", "9"],
    ];
    match lease {
        Some(lease) if rng.below(2) == 0 => words.splice(1.., lease.iter().cloned()).for_each(drop),
        _ => words.extend([rng.bytes(3), pick(rng, &KEYS).as_bytes().to_vec(), word(rng)]),
    }
    words.extend(pick(rng, &forms).iter().map(|word| word.as_bytes().to_vec()));
}

fn option(rng: &mut Rng, words: &mut Vec<Vec<u8>>) {
    let name = *pick(rng, &OPTIONS);
    words.push(any_case(rng, name));
    if !matches!(name, "NOCREATE" | "NONSCALING" | "ROLLING" | "SLIDING" | "COUNTING" | "SYNC") {
        words.push(word(rng));
    }
}

fn items(rng: &mut Rng, words: &mut Vec<Vec<u8>>) {
    let count = if rng.below(50) == 0 { 2000 } else { 1 + rng.below(5) };
    (0..count).for_each(|_| words.push(rng.bytes(40)));
}

fn word(rng: &mut Rng) -> Vec<u8> {
    match rng.below(10) {
        0 => rng.bytes(40),
        1 => pick(rng, &OPTIONS).as_bytes().to_vec(),
        2 => rng.below(2000).to_string().into_bytes(),
        _ => pick(rng, &VALUES).as_bytes().to_vec(),
    }
}

fn any_case(rng: &mut Rng, word: &str) -> Vec<u8> {
    if rng.below(4) > 0 {
        return word.as_bytes().to_vec();
    }
    word.bytes().map(|byte| if rng.below(2) == 0 { byte.to_ascii_lowercase() } else { byte }).collect()
}
