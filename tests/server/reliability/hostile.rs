//! Untrusted bytes in every command that accepts them, RESTORE, BF.LOADCHUNK, BF.LOAD, and in the append-only file; and random command
//! lines. The server keeps running. Each input is refused or creates a filter that works, and deleting that filter releases its memory.
//! While a payload is refused, no more memory becomes resident than its length justifies. The filter's own tests
//! (`crates/filter/tests/corpus`) state which damage a decoder must refuse with which error, and decode the inputs that fuzzing found.
//!
//! Everything is drawn from a seed (`BLOOMGATE_SEED`, default 1), so that a failure can be reproduced.

use std::path::Path;

use super::{LAYOUTS, scaled};
use crate::corpus;
use crate::golden::as_commands;
use crate::payload::{Field, fields_of_payload, payload_of_type, payload_of_value};
use crate::redisbloom::golden;
use crate::valkey_bloom;
use testing::{
    Connection, FOOTER, LAST_WORDS, Record, Reply, Resident, Rng, Server, Version, array, dump, encode, eventually,
    figures, integer, load_records, ok, on_every_server, records, restore_by_law, stopped_on_commands, use_and_delete,
    with_client, with_fixed_checksum, words,
};

/// The limits of the servers: none, a ceiling for each filter, `maxmemory`.
const LIMITS: [(&str, &[&str]); 3] = [
    ("no limit", &[]),
    ("bf.max-filter-bytes 2mb", &["bf.max-filter-bytes 2mb"]),
    ("maxmemory 64mb", &["maxmemory 64mb"]),
];

/// The allowed difference of used memory before and after.
const SLACK_BYTES: i64 = 128 << 10;
/// The allowed increase of resident memory, because the allocator keeps partly used pages.
const RESIDENT_SLACK_BYTES: i64 = 8 << 20;
fn start(program: &Path, lines: &[&str]) -> Server {
    // Strings are not compressed, so that tests can change their bytes.
    lines.iter().fold(Server::with(program).line("rdbcompression no"), |builder, line| builder.line(line)).start()
}

/// Returns a random generator with a different seed for each of [`LIMITS`].
fn rng(limits: &str) -> Rng {
    let seed: u64 = std::env::var("BLOOMGATE_SEED").map_or(1, |text| text.parse().expect("a number"));
    Rng::new(limits.bytes().fold(seed, |seed, letter| seed.wrapping_mul(31).wrapping_add(letter.into())))
}

/// The outcome of an input.
#[derive(Default)]
struct Counts {
    tried: usize,
    accepted: usize,
    refused: usize,
}

/// Runs `one` this many times, and compares the memory before and after.
fn in_flat_memory(server: &Server, tries: usize, mut one: impl FnMut(&mut Connection, &mut Counts)) -> Counts {
    let mut client = server.connect();
    let mut counts = Counts::default();
    // Warms up.
    (0..tries / 5).for_each(|_| one(&mut client, &mut counts));
    client.run("MEMORY PURGE");
    let (used, resident) = (client.info_number("used_memory"), Resident::of(server));
    (0..tries).for_each(|_| one(&mut client, &mut counts));
    let mut now = 0;
    eventually("memory to be as before", || {
        client.run("MEMORY PURGE");
        now = client.info_number("used_memory");
        (now - used).abs() <= SLACK_BYTES
    });
    // libc's malloc keeps freed blocks of up to 32 MiB, and nothing makes it return them.
    let returns_pages = client.info("mem_allocator").starts_with("jemalloc");
    if let (true, Some(before), Some(after)) = (returns_pages, resident, Resident::of(server)) {
        assert!(after.now <= before.now + RESIDENT_SLACK_BYTES, "{} bytes resident, {} before", after.now, before.now);
    }
    client.assert_no_filters();
    counts
}

/// Sends damaged data to `k` with all of its commands, and counts whether it created a filter. A refused payload makes no more memory
/// resident than its length justifies; records never do.
fn bring(server: &Server, client: &mut Connection, commands: &[Words], counts: &mut Counts) {
    let accepted = match commands {
        [words] if words[0] == b"RESTORE" => restore_by_law(server, client, &words[3]),
        records => {
            let bytes: usize = records.iter().flatten().map(Vec::len).sum();
            Resident::bounded(server, client, |client| {
                records.iter().for_each(|words| _ = client.call(words));
                ((), Some(bytes))
            });
            let accepted = use_and_delete(client);
            assert_eq!(client.run("DBSIZE"), integer(0));
            accepted
        }
    };
    counts.tried += 1;
    counts.accepted += usize::from(accepted);
    counts.refused += usize::from(!accepted);
}

#[test]
fn damaged_data_is_refused_or_a_valid_filter_and_its_memory_is_released() {
    on_every_server(|program| {
        for (name, lines) in LIMITS {
            let server = start(program, lines);
            let mut mutants = Mutants::new(program, name);
            for (_, value) in corpus::of("restore") {
                let found = [restore(&payload_of_value(&value))];
                bring(&server, &mut server.connect(), &found, &mut Counts::default());
            }
            let counts = in_flat_memory(&server, scaled(1800), |client, counts| {
                bring(&server, client, &mutants.draw(), counts);
            });
            let Counts { tried, accepted, refused } = counts;
            figures(&format!("damaged data, {name}: {tried} executions, {accepted} accepted, {refused} refused"));
            assert!(accepted > tried / 100 && refused > tried / 100, "both happen");
        }
    });
}

/// Sets each number of a filter of each shape to each extreme, one at a time.
#[test]
fn an_extreme_number_is_refused_or_a_valid_filter() {
    on_every_server(|program| {
        let server = start(program, &["bf.max-filter-bytes 2mb"]);
        let mut client = server.connect();
        let mut counts = Counts::default();
        for Value { type_number, fields } in Mutants::new(program, "extremes").values {
            bring(&server, &mut client, &[restore(&payload_of_type(type_number, &fields))], &mut counts);
            // If there are many layers, the fields of the last ones are like the others.
            for place in 0..fields.len().min(30) {
                let extremes: Vec<Field> = match fields[place] {
                    Field::Uint(_) => EDGES.map(Field::Uint).to_vec(),
                    Field::Double(_) => FRACTIONS.map(Field::Double).to_vec(),
                    Field::Text(_) => vec![Field::Text(Vec::new()), Field::Uint(3)],
                };
                for extreme in extremes {
                    let mut fields = fields.clone();
                    fields[place] = extreme;
                    bring(&server, &mut client, &[restore(&payload_of_type(type_number, &fields))], &mut counts);
                }
            }
        }
        let Counts { tried, accepted, refused } = counts;
        figures(&format!("RESTORE of extreme numbers: {tried} executions, {accepted} accepted, {refused} refused"));
        client.assert_no_filters();
        assert!(server.log().contains("bloomgate: cannot load a filter:"), "the log says why");
    });
}

/// Accepted data, damaged or not, is restored unchanged from a snapshot and from the append-only file.
#[test]
fn accepted_payloads_survive_a_restart() {
    on_every_server(|program| {
        let lines = ["appendonly yes", "aof-use-rdb-preamble no", "bf.max-filter-bytes 2mb"];
        let server = start(program, &lines);
        let (mut client, mut mutants) = (server.connect(), Mutants::new(program, "files"));
        for number in 0..scaled(600) {
            for mut words in mutants.draw() {
                words[1] = number.to_string().into_bytes();
                client.call(&words);
            }
        }
        let before = [client.run("DBSIZE"), client.run("DEBUG DIGEST")];
        assert!(before[0].number() > 60, "{before:?}");
        for way in ["DEBUG RELOAD", "DEBUG LOADAOF"] {
            assert_eq!(client.run(way), ok());
            assert_eq!([client.run("DBSIZE"), client.run("DEBUG DIGEST")], before, "{way}");
        }
    });
}

/// A server that reads damaged data from its append-only file starts, or exits and logs the reason.
#[test]
fn a_damaged_append_only_file_loads_or_ends_the_server_with_a_reason() {
    on_every_server(|program| {
        let mut mutants = Mutants::new(program, "file");
        let mut refused = 0;
        let tries = scaled(40);
        for _ in 0..tries {
            let mut server = stopped_on_commands(program, &[], &encode(mutants.draw()));
            if server.launch().is_err() {
                // The server itself exits if the data seems to be another type.
                let log = server.log();
                assert!([LAST_WORDS, "Internal error in RDB"].iter().any(|reason| log.contains(reason)), "{log}");
                refused += 1;
            }
        }
        figures(&format!("append-only files with damaged data: {tries} faults injected, {refused} refused"));
        assert!(refused > 0 && refused < tries, "both happen");
    });
}

/// The server drops the command at which the file is truncated.
#[test]
fn a_truncated_file_restores_every_complete_add() {
    on_every_server(|program| {
        let creations = LAYOUTS.map(|(_, line)| words(line));
        let adds: Vec<Words> =
            LAYOUTS.iter().chain(&LAYOUTS).map(|(key, _)| words(&format!("BF.MADD {key} a b c"))).collect();
        for (number, add) in adds.iter().enumerate().step_by(3) {
            let before = encode([&creations[..], &adds[..number]].concat());
            let torn = encode([add]);
            for length in [0, 1, torn.len() / 2, torn.len() - 1] {
                let mut server = stopped_on_commands(program, &[], &[&before, &torn[..length]].concat());
                server.start_again();
                let mut client = server.connect();
                for (place, (key, _)) in LAYOUTS.iter().enumerate() {
                    let expected = array(vec![integer(i64::from(place < number)); 3]);
                    assert_eq!(
                        client.run(&format!("BF.MEXISTS {key} a b c")),
                        expected,
                        "{number} adds, {length} bytes"
                    );
                }
            }
        }
    });
}

#[test]
fn commands_without_arguments_in_the_file_are_reads_or_end_the_server() {
    on_every_server(|program| {
        // Redis does not check the number of arguments of commands in the file.
        let is_counted = Version::of(program).counts_words_of_files();
        let server = Server::start(program);
        let mut client = server.connect();
        for name in ["BF.ADD", "BF.MADD", "BF.INSERT", "BF.RESERVE", "BF.LOADCHUNK", "BF.LOAD", "BF.EXISTS", "BF.INFO"]
        {
            let arity = client.run(&format!("COMMAND INFO {name}")).elements()[0].elements()[1].number();
            for words in [vec![name], vec![name, "k"], vec![name, "k", "x", "y", "z", "SEED"]] {
                let commands = [vec!["BF.RESERVE", "k", "0.01", "100"], vec!["BF.MADD", "k", "a", "b"], words.clone()];
                let mut server = stopped_on_commands(program, &[], &encode(&commands));
                let has_enough = if arity < 0 { words.len() as i64 >= -arity } else { words.len() as i64 == arity };
                // A write that cannot be applied ends the server. Reads have no effect.
                let has_items = ["BF.ADD", "BF.MADD"].contains(&name) && words.len() > 2;
                // An existing filter and no items.
                let has_none = words == ["BF.INSERT", "k"];
                let is_harmless = has_items || has_none || ["BF.EXISTS", "BF.INFO"].contains(&name);
                let starts = server.launch().is_ok();
                assert_eq!(starts, is_harmless && (has_enough || !is_counted), "{words:?}");
                if starts {
                    assert_eq!(server.connect().run("BF.MEXISTS k a b"), array([integer(1), integer(1)]), "{words:?}");
                } else {
                    assert!(server.log().contains(" # "), "no reason in the log: {}", server.log());
                }
            }
        }
    });
}

#[test]
fn the_limits_bind_a_payload() {
    with_client(|_, client| {
        // More than a hundred megabytes in a few hundred bytes of payload.
        client.run("BF.RESERVE source 0.01 100000000 NONSCALING");
        let payload = dump(client, "source");
        assert!(payload.len() < 4096, "{} bytes", payload.len());
        client.run("DEL source");
        for (limit, is_restored) in
            [("maxmemory 100mb", false), ("maxmemory 0", true), ("bf.max-filter-bytes 100000", false)]
        {
            assert_eq!(client.run(&format!("CONFIG SET {limit}")), ok());
            assert_eq!(!testing::restore(client, "k", &payload).is_error(), is_restored, "{limit}");
            client.run("DEL k");
        }
    });
}

#[test]
fn every_random_command_is_answered_and_a_refused_one_changes_nothing() {
    on_every_server(|program| {
        for (name, lines) in LIMITS {
            let server = start(program, lines);
            let mut rng = rng(name);
            let counts = in_flat_memory(&server, scaled(200), |client, counts| {
                client.run(&format!("SET {} x", TEXT_KEY));
                round(&mut rng, client, counts);
                assert_eq!(client.run(&format!("GET {}", TEXT_KEY)).text(), "x");
                client.run("FLUSHALL");
            });
            let Counts { tried, accepted, refused } = counts;
            figures(&format!("command lines, {name}: {tried} executions, {accepted} done, {refused} refused"));
            assert!(accepted > tried / 20 && refused > tried / 20, "both happen");
            assert!(server.connect().gauge("fills") > 0, "some fills are accepted");
        }
    });
}

// Random commands made of known and unknown words, extreme numbers, keys of another type, and items of arbitrary bytes.

/// A key that holds a string, not a filter.
const TEXT_KEY: &str = "text";
/// A key that holds a hash with a field named like one of the keys, and one that holds a list.
const HASH_KEY: &str = "hash";
const LIST_KEY: &str = "list";

/// The number of commands that are sent to one set of keys.
const LINES: usize = 25;

/// The commands; those that create filters occur twice. [`drawn`] replaces words that begin with `$`.
const COMMANDS: [&str; 26] = [
    "BF.RESERVE $key $rate $capacity $options",
    "BF.RESERVE $key $rate $capacity $options",
    "BF.INSERT $key $options ITEMS $items",
    "BF.INSERT $key $options ITEMS $items",
    "BF.ADD $key $items",
    "BF.MADD $key $items",
    "BF.EXISTS $key $items",
    "BF.MEXISTS $key $items",
    "BF.INFO $key $word",
    "BF.CARD $key",
    "BF.DEBUG $key",
    "BF.SCANDUMP $key $word",
    "BF.LOADCHUNK $key $word $bytes",
    "BF.ROTATE $key",
    "BF.DEL $key $items",
    "BF.MDEL $key $items",
    "BF.COUNT $key $items",
    "BF.MERGE $key $keys",
    "BF.CLEAR $key",
    "BF.STATS $key",
    "BF.PLAN $word $word $options",
    "BF.FETCH $key $item $key $conditions",
    // A refused BF.CHANGED still deletes the value, so these commands name a missing key.
    "BF.CHANGED $key $item missing",
    "BF.MCHANGED $key ITEMS $pairs",
    "BF.MFETCH $key $conditions ITEMS $pairs",
    "BF.FILL $lease $filling",
];

const KEYS: [&str; 5] = ["a", "b", "c", TEXT_KEY, ""];

/// Keys for WHILE and UNLESS.
const CONDITIONS: [&str; 7] = ["a", "missing", TEXT_KEY, HASH_KEY, HASH_KEY, HASH_KEY, LIST_KEY];

/// Without EX and PX, because a key that expires meanwhile would look like a change by a refused command.
const OPTIONS: [&str; 21] = [
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
    "CUCKOO",
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
fn round(rng: &mut Rng, client: &mut Connection, counts: &mut Counts) {
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
fn line(rng: &mut Rng, lease: Option<&[Vec<u8>; 4]>) -> Words {
    let command = *pick(rng, &COMMANDS);
    let mut words: Words = command.split(' ').flat_map(|word| drawn(rng, word, lease)).collect();
    // One argument too many, too few, or replaced.
    match rng.below(8) {
        0 => words.push(any_word(rng)),
        1 => drop(words.pop()),
        2 => {
            // The last argument of BF.FILL may be a time to live: a key that expires would look like a change.
            let end = if command.starts_with("BF.FILL") { words.len().min(8) } else { words.len() };
            let place = 1 + rng.below(end as u64 - 1) as usize;
            words[place] = any_word(rng);
        }
        _ => {}
    }
    bound_times(&mut words);
    words
}

/// Draws the replacement of a word of [`COMMANDS`].
fn drawn(rng: &mut Rng, word: &str, lease: Option<&[Vec<u8>; 4]>) -> Words {
    match word {
        "$key" => vec![key(rng)],
        "$keys" => (0..=rng.below(2)).map(|_| key(rng)).collect(),
        "$item" => vec![rng.bytes(3)],
        "$items" => {
            let count = if rng.below(50) == 0 { 2000 } else { 1 + rng.below(5) };
            (0..count).map(|_| rng.bytes(40)).collect()
        }
        "$pairs" => (0..=rng.below(3)).flat_map(|_| [rng.bytes(3), b"missing".to_vec()]).collect(),
        // Often valid except for the options.
        "$rate" => vec![pick(rng, &["0.01", "0.5", "1e-7", "1e-300"]).as_bytes().to_vec()],
        "$capacity" => vec![pick(rng, &["1", "100", "1000", "100000"]).as_bytes().to_vec()],
        "$options" => (0..rng.below(4)).flat_map(|_| option(rng)).collect(),
        "$conditions" => (0..rng.below(4)).flat_map(|_| condition(rng)).collect(),
        "$word" => vec![any_word(rng)],
        "$bytes" => vec![rng.bytes(200)],
        "$lease" => match lease {
            Some(lease) if rng.below(2) == 0 => lease.to_vec(),
            _ => vec![key(rng), rng.bytes(3), key(rng), any_word(rng)],
        },
        "$filling" => words(FILLINGS[rng.below(6) as usize]),
        word => vec![any_case(rng, word)],
    }
}

fn key(rng: &mut Rng) -> Vec<u8> {
    pick(rng, &KEYS).as_bytes().to_vec()
}

/// Replaces windows of less than a minute: one that ends meanwhile would look like a change by a refused command. Replaces
/// waits of more than 2 ms: no other client would end them.
fn bound_times(words: &mut [Vec<u8>]) {
    for place in 1..words.len() {
        let number = str::from_utf8(&words[place]).ok().and_then(|text| text.parse::<u64>().ok());
        match (words[place - 1].to_ascii_uppercase().as_slice(), number) {
            (b"WINDOW", Some(1..60)) => words[place] = b"1000".to_vec(),
            (b"WAIT", Some(3..)) => words[place] = b"2".to_vec(),
            _ => {}
        }
    }
}

/// Draws an option of BF.FETCH.
fn condition(rng: &mut Rng) -> Words {
    let options: [(&str, &[&str]); 5] = [
        ("LEASE", &VALUES),
        ("STALE", &VALUES),
        ("WAIT", &["0", "1", "2", "x", "-1"]),
        ("WHILE", &CONDITIONS),
        ("UNLESS", &CONDITIONS),
    ];
    let (name, values) = *pick(rng, &options);
    vec![any_case(rng, name), pick(rng, values).as_bytes().to_vec()]
}

/// The last arguments of BF.FILL. Times to live of values are long, because a key that expires would look like a change.
const FILLINGS: [&str; 6] =
    ["VALUE v", "VALUE v EX 1000000", "NONE PX 9", "NONE EX 9223372036854775807", "GIVEUP", "GIVEUP BACKOFF 9"];

fn option(rng: &mut Rng) -> Words {
    let name = *pick(rng, &OPTIONS);
    let mut option = vec![any_case(rng, name)];
    if !matches!(name, "NOCREATE" | "NONSCALING" | "ROLLING" | "SLIDING" | "COUNTING" | "CUCKOO" | "SYNC") {
        option.push(any_word(rng));
    }
    option
}

fn any_word(rng: &mut Rng) -> Vec<u8> {
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

// The generator of damaged data changes bytes, sets numbers in fields to extreme values without breaking the format, and drops, repeats and
// swaps fields and records.

/// Extreme numbers.
const EDGES: [u64; 22] = [
    0,
    1,
    2,
    3,
    7,
    63,
    64,
    65,
    255,
    1100,
    1101,
    4096,
    4097,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    1 << 53,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

const FRACTIONS: [f64; 14] = [
    0.0,
    -0.0,
    5e-324,
    f64::MIN_POSITIVE,
    1e-300,
    1e-12,
    0.01,
    0.5,
    0.999_999_999_999_999_9,
    1.0,
    -1.0,
    f64::MAX,
    f64::INFINITY,
    f64::NAN,
];

/// Returns a random element of a list.
fn pick<'a, T>(rng: &mut Rng, list: &'a [T]) -> &'a T {
    &list[rng.below(list.len() as u64) as usize]
}

/// The arguments of a command.
type Words = Vec<Vec<u8>>;

/// The fields of a payload.
#[derive(Clone)]
struct Value {
    /// The module's type and the version of its encoding.
    type_number: u64,
    fields: Vec<Field>,
}

/// Filters of every shape: command, key, options, items.
const SHAPES: [(&str, usize); 20] = [
    ("BF.RESERVE k 0.01 100", 0),
    ("BF.RESERVE k 0.01 100 SEED 1", 60),
    ("BF.RESERVE k 0.01 4", 60),
    ("BF.RESERVE k 0.1 1 EXPANSION 1", 20),
    ("BF.RESERVE k 0.001 50 NONSCALING", 50),
    ("BF.RESERVE k 1e-12 3 EXPANSION 32768", 3),
    ("BF.RESERVE k 0.01 1000000 NONSCALING", 0),
    ("BF.RESERVE k 0.01 10 HASH siphash", 5),
    ("BF.RESERVE k 0.2 8 COUNTING", 5),
    ("BF.RESERVE k 0.2 8 CUCKOO", 40),
    ("BF.RESERVE k 0.2 8 WINDOW 100000000 BUCKETS 3", 5),
    ("BF.RESERVE k 0.2 8 WINDOW 100000000 SLIDING HASH siphash", 5),
    ("BF.RESERVE k 0.2 8 ROLLING BUCKETS 3", 20),
    ("BF.RESERVE k 0.01 100 LAYOUT redisbloom", 0),
    ("BF.RESERVE k 0.01 4 LAYOUT redisbloom", 60),
    ("BF.RESERVE k 1e-300 3 NONSCALING LAYOUT redisbloom", 3),
    ("BF.INSERT k CAPACITY 100 TIGHTENING 0.5", 0),
    ("BF.INSERT k CAPACITY 4 TIGHTENING 0.5", 60),
    ("BF.INSERT k CAPACITY 1 EXPANSION 1 TIGHTENING 0.9", 20),
    ("BF.INSERT k CAPACITY 10 TIGHTENING 0.5 NONSCALING", 10),
];

/// Draws damaged data: payloads for RESTORE, dumps for BF.LOADCHUNK, arguments of BF.LOAD.
struct Mutants {
    rng: Rng,
    /// Filters of every shape, complete and partly loaded, and filters of RedisBloom's old releases.
    values: Vec<Value>,
    dumps: Vec<Vec<Record>>,
    loads: Vec<Vec<u8>>,
}

impl Mutants {
    fn new(program: &Path, name: &str) -> Self {
        let server = start(program, &[]);
        let mut client = server.connect();
        let (mut payloads, mut dumps) = (Vec::new(), Vec::new());
        for (words, items) in SHAPES {
            client.run("FLUSHALL");
            assert!(!client.run(words).is_error(), "{words}");
            (0..items).for_each(|item| drop(client.run(&format!("BF.ADD k {item}"))));
            payloads.push(dump(&mut client, "k"));
            // A large filter has too many records to send often, and a filter of valkey-bloom's layout has none.
            if words.starts_with("BF.INSERT") || words.contains("1000000") {
                continue;
            }
            let records = records(&mut client, "k");
            for count in [1, records.len() - 1] {
                client.run("DEL part");
                load_records(&mut client, "part", &records[..count]);
                payloads.push(dump(&mut client, "part"));
            }
            dumps.push(records);
        }
        let old = ["1.0.0", "1.1.1", "2.2.0"].into_iter().flat_map(golden::filters);
        payloads.extend(old.map(|golden| golden.payload).filter(|payload| payload.len() < 16 << 10));
        let value = |payload: &Vec<u8>| {
            let (type_number, fields) = fields_of_payload(payload).expect("a module's value");
            Value { type_number, fields }
        };
        let loads = valkey_bloom::golden::goldens().into_iter().map(|golden| golden.payload);
        Self {
            rng: rng(name),
            values: payloads.iter().map(value).collect(),
            dumps,
            loads: loads.filter(|load| load.len() < 16 << 10).collect(),
        }
    }

    /// Returns the commands that send the next damaged data to `k`.
    fn draw(&mut self) -> Vec<Words> {
        let Self { rng, values, dumps, loads } = self;
        match rng.below(5) {
            0 => {
                let mut load = pick(rng, loads).clone();
                let other = pick(rng, loads);
                damage_bytes(rng, &mut load, other);
                vec![[b"BF.LOAD".to_vec(), b"k".to_vec(), load].into()]
            }
            1 | 2 => as_commands("k", &damaged_dump(rng, dumps)),
            _ => vec![restore(&damaged_payload(rng, values))],
        }
    }
}

fn restore(payload: &[u8]) -> Words {
    [b"RESTORE".as_slice(), b"k", b"0", payload].map(<[u8]>::to_vec).into()
}

/// Returns a damaged payload with a valid checksum.
fn damaged_payload(rng: &mut Rng, values: &[Value]) -> Vec<u8> {
    let (mut value, other) = (pick(rng, values).clone(), pick(rng, values));
    if rng.below(2) == 0 {
        (0..=rng.below(2)).for_each(|_| damage_fields(rng, &mut value, other));
        return payload_of_type(value.type_number, &value.fields);
    }
    let [mut payload, other] = [&value, other].map(|value| payload_of_type(value.type_number, &value.fields));
    let footer = payload.split_off(payload.len() - FOOTER);
    // The first byte marks a module's value.
    let mut body = payload.split_off(1);
    damage_bytes(rng, &mut body, &other[1..other.len() - FOOTER]);
    with_fixed_checksum([payload, body, footer].concat())
}

fn damage_fields(rng: &mut Rng, value: &mut Value, other: &Value) {
    let fields = &mut value.fields;
    if fields.is_empty() {
        return;
    }
    let place = rng.below(fields.len() as u64) as usize;
    match rng.below(11) {
        0 => drop(fields.remove(place)),
        1 => {
            let end = place + rng.below((fields.len() - place) as u64 + 1) as usize;
            let again = fields[place..end].to_vec();
            fields.splice(end..end, again);
        }
        2 => fields.truncate(place),
        3 => {
            let from = rng.below(other.fields.len() as u64) as usize;
            fields.splice(place.., other.fields[from..].iter().cloned());
        }
        4 if rng.below(2) == 0 => value.type_number = other.type_number,
        4 => value.type_number ^= 1 << rng.below(10),
        5 => fields[place] = pick(rng, &other.fields).clone(),
        _ => damage_field(rng, &mut fields[place]),
    }
}

fn damage_field(rng: &mut Rng, field: &mut Field) {
    match field {
        Field::Uint(number) => match rng.below(3) {
            0 => *number = *pick(rng, &EDGES),
            1 => *number = number.wrapping_add_signed(rng.below(7) as i64 - 3),
            _ => *number ^= 1 << rng.below(64),
        },
        Field::Double(number) => match rng.below(2) {
            0 => *number = *pick(rng, &FRACTIONS),
            _ => *number = f64::from_bits(number.to_bits() ^ 1 << rng.below(64)),
        },
        Field::Text(text) => damage_bytes(rng, text, &[0; 64]),
    }
}

/// Changes bytes at one to three positions.
fn damage_bytes(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=rng.below(3) {
        let place = rng.below(bytes.len() as u64 + 1) as usize;
        let length = rng.below((bytes.len() - place) as u64 + 1) as usize;
        match rng.below(9) {
            0 => bytes.truncate(place),
            1 => drop(bytes.drain(place..place + length.min(8))),
            2 => bytes.insert(place, rng.number() as u8),
            3 => {
                let again = bytes[place..place + length].to_vec();
                bytes.splice(place..place, again);
            }
            4 => {
                let from = rng.below(other.len() as u64 + 1) as usize;
                bytes.splice(place.., other[from..].iter().copied());
            }
            // A length in the server's own encoding.
            5 => {
                let edge = *pick(rng, &EDGES);
                let spelled = if rng.below(2) == 0 {
                    [&[0x80][..], &(edge as u32).to_be_bytes()].concat()
                } else {
                    [&[0x81][..], &edge.to_be_bytes()].concat()
                };
                let end = (place + spelled.len() * rng.below(2) as usize).min(bytes.len());
                bytes.splice(place..end, spelled);
            }
            6 if place < bytes.len() => bytes[place] = *pick(rng, &[0, 0x3f, 0x40, 0x7f, 0x80, 0x81, 0xc3, 0xff]),
            _ if place < bytes.len() => bytes[place] ^= 1 << rng.below(8),
            _ => {}
        }
    }
}

/// Returns a dump with damaged records, or with missing, repeated or reordered records.
fn damaged_dump(rng: &mut Rng, dumps: &[Vec<Record>]) -> Vec<Record> {
    let (mut dump, other) = (pick(rng, dumps).clone(), pick(rng, dumps));
    for _ in 0..rng.below(3) {
        let place = rng.below(dump.len() as u64) as usize;
        match rng.below(8) {
            0 if dump.len() > 1 => drop(dump.remove(place)),
            1 => dump.insert(place, dump[place].clone()),
            2 => dump.insert(place, pick(rng, other).clone()),
            3 => {
                let with = rng.below(dump.len() as u64) as usize;
                dump.swap(place, with);
            }
            4 => dump[place].0 = *pick(rng, &EDGES) as i64,
            5 => dump[place].0 = dump[place].0.wrapping_add(rng.below(9) as i64 - 4),
            _ => damage_bytes(rng, &mut dump[place].1, &other[0].1),
        }
    }
    dump
}
