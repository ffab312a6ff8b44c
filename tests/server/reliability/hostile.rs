//! Untrusted bytes through every command that takes them, RESTORE, BF.LOADCHUNK, BF.LOAD, through the append-only file, and
//! random command lines. The server keeps running. Each input is refused or creates a filter that works, and deleting that
//! filter releases its memory. While a payload is refused, no more memory becomes resident than its length justifies. Which
//! damage a decoder must refuse, and with which error, is stated by the filter's own tests (`crates/filter/tests/corpus`).
//!
//! Everything is drawn from a seed (`BLOOMGATE_SEED`, default 1), so that a failure can be reproduced.

use std::path::Path;

use super::{LAYOUTS, scaled};
use crate::corpus;
use crate::golden::as_commands;
use crate::redisbloom::golden;
use crate::redisbloom::model::{Field, fields_of_payload, payload_of, payload_of_type, payload_of_value, take};
use testing::{
    Connection, FOOTER, LAST_WORDS, Reply, Resident, Rng, Server, Version, array, dump, encode, eventually, figures,
    integer, load_records, ok, on_every_server, records, restore_by_law, stopped_on_commands, use_and_delete,
    with_client, with_fixed_checksum, words,
};

/// The limits of the servers: none, a ceiling for each filter, `maxmemory`.
const LIMITS: [(&str, &[&str]); 3] = [
    ("no limit", &[]),
    ("bf.max-filter-bytes 2mb", &["bf.max-filter-bytes 2mb"]),
    ("maxmemory 64mb", &["maxmemory 64mb"]),
];

/// How much used memory may differ between before and after.
const SLACK_BYTES: i64 = 128 << 10;
/// How much more memory may be resident, because the allocator keeps partly used pages.
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

/// Calls [`restore_by_law`] and counts the outcome.
fn restore(server: &Server, client: &mut Connection, payload: &[u8], counts: &mut Counts) -> bool {
    let accepted = restore_by_law(server, client, payload);
    counts.tried += 1;
    counts.accepted += usize::from(accepted);
    counts.refused += usize::from(!accepted);
    accepted
}

#[test]
fn a_damaged_payload_is_refused_or_a_valid_filter_and_its_memory_is_released() {
    on_every_server(|program| {
        for (name, lines) in LIMITS {
            let server = start(program, lines);
            let seeds = seeds(&server);
            let mut rng = rng(name);
            let counts = in_flat_memory(&server, scaled(1500), |client, counts| {
                let payload = damaged(&mut rng, &seeds);
                restore(&server, client, &payload, counts);
            });
            let Counts { tried, accepted, refused } = counts;
            figures(&format!("RESTORE, {name}: {tried} executions, {accepted} accepted, {refused} refused"));
            assert!(accepted > tried / 100 && refused > tried / 100, "both happen");
        }
    });
}

#[test]
fn every_kept_input_of_the_fuzzer_is_refused_or_a_valid_filter() {
    on_every_server(|program| {
        for (name, lines) in LIMITS {
            let server = start(program, lines);
            let mut client = server.connect();
            let mut counts = Counts::default();
            for Seed { payload, .. } in kept_inputs() {
                restore(&server, &mut client, &payload, &mut counts);
            }
            let Counts { tried, accepted, .. } = counts;
            figures(&format!("RESTORE of kept inputs, {name}: {tried} executions, {accepted} accepted"));
            assert!(accepted > 30 && accepted < tried, "{accepted}");
        }
    });
}

/// Each number of a filter of each shape at each extreme, alone.
#[test]
fn an_extreme_number_is_refused_or_a_valid_filter() {
    on_every_server(|program| {
        let server = start(program, &["bf.max-filter-bytes 2mb"]);
        let mut client = server.connect();
        let mut counts = Counts::default();
        for Value { type_number, fields } in made(&mut client).into_iter().filter_map(|seed| seed.value) {
            assert!(restore(&server, &mut client, &payload_of_type(type_number, &fields), &mut counts), "unchanged");
            // Where there are many layers, those of the last ones are like the others.
            for place in 0..fields.len().min(40) {
                let extremes: Vec<Field> = match fields[place] {
                    Field::Uint(_) => EDGES.map(Field::Uint).to_vec(),
                    Field::Double(_) => FRACTIONS.map(Field::Double).to_vec(),
                    Field::Text(_) => vec![Field::Text(Vec::new()), Field::Uint(3)],
                };
                for extreme in extremes {
                    let mut fields = fields.clone();
                    fields[place] = extreme;
                    restore(&server, &mut client, &payload_of_type(type_number, &fields), &mut counts);
                }
            }
        }
        let Counts { tried, accepted, refused } = counts;
        figures(&format!("RESTORE of extreme numbers: {tried} executions, {accepted} accepted, {refused} refused"));
        client.assert_no_filters();
        assert!(server.log().contains("bloomgate: cannot load a filter:"), "the log says why");
    });
}

/// What was accepted, damaged or not, comes back from a snapshot and from the append-only file as it was.
#[test]
fn what_is_accepted_comes_back_from_the_files() {
    on_every_server(|program| {
        let lines = ["appendonly yes", "aof-use-rdb-preamble no", "bf.max-filter-bytes 2mb"];
        let server = start(program, &lines);
        let (seeds, dumps, loads) = (seeds(&server), dumps(&server), loads());
        let (mut client, mut rng) = (server.connect(), rng("files"));
        for number in 0..scaled(600) {
            let key = number.to_string().into_bytes();
            let commands = match number % 3 {
                0 => damaged_load(&mut rng, &loads),
                1 => damaged_dump(&mut rng, &dumps),
                _ => vec![
                    [b"RESTORE".as_slice(), b"k", b"0", &damaged(&mut rng, &seeds)[..]].map(<[u8]>::to_vec).to_vec(),
                ],
            };
            for mut words in commands {
                words[1].clone_from(&key);
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

/// A server that reads damaged records from its append-only file starts, or ends and says why.
#[test]
fn a_damaged_append_only_file_loads_or_ends_the_server_with_a_reason() {
    on_every_server(|program| {
        let (dumps, loads) = (dumps(&start(program, &[])), loads());
        let mut rng = rng("file");
        let mut refused = 0;
        let tries = scaled(40);
        for number in 0..tries {
            let commands =
                if number % 4 == 0 { damaged_load(&mut rng, &loads) } else { damaged_dump(&mut rng, &dumps) };
            let mut server = stopped_on_commands(program, &[], &encode(&commands));
            if server.launch().is_err() {
                assert!(server.log().contains(LAST_WORDS), "{}", server.log());
                refused += 1;
            }
        }
        figures(&format!("append-only files with damaged records: {tries} faults injected, {refused} refused"));
        assert!(refused > 0 && refused < tries, "both happen");
    });
}

/// The server drops the command in which the file breaks off.
#[test]
fn a_file_that_breaks_off_brings_every_add_before_its_end() {
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
                // No items for a filter that exists.
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
fn a_damaged_record_is_refused_or_a_valid_filter_and_its_memory_is_released() {
    on_every_server(|program| {
        for (name, lines) in LIMITS {
            let server = start(program, lines);
            let (dumps, loads) = (dumps(&server), loads());
            let mut rng = rng(name);
            let (mut sent, mut taken) = (0, 0);
            let counts = in_flat_memory(&server, scaled(800), |client, counts| {
                let commands =
                    if rng.below(3) == 0 { damaged_load(&mut rng, &loads) } else { damaged_dump(&mut rng, &dumps) };
                let bytes: usize = commands.iter().flatten().map(Vec::len).sum();
                let here = Resident::bounded(&server, client, |client| {
                    client.run("DEL k");
                    let accepted = commands.iter().filter(|words| !client.call(words).is_error()).count();
                    (accepted, Some(bytes))
                });
                (sent, taken) = (sent + commands.len(), taken + here);
                counts.tried += 1;
                counts.accepted += usize::from(use_and_delete(client));
                assert_eq!(client.run("DBSIZE"), integer(0));
            });
            let Counts { tried, accepted, .. } = counts;
            figures(&format!(
                "records, {name}: {sent} executions, {tried} dumps, {taken} accepted, {accepted} filters"
            ));
            assert!(accepted > tried / 100 && taken < sent, "both happen");
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
    lengthen_windows(&mut words);
    words
}

/// Replaces windows of less than a minute: one that ends meanwhile would look like a change by a refused command.
fn lengthen_windows(words: &mut [Vec<u8>]) {
    for place in 1..words.len() {
        let seconds = str::from_utf8(&words[place]).ok().and_then(|text| text.parse::<u64>().ok());
        if words[place - 1].eq_ignore_ascii_case(b"WINDOW") && seconds.is_some_and(|seconds| (1..60).contains(&seconds))
        {
            words[place] = b"1000".to_vec();
        }
    }
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

// Damages payloads: changes their bytes, or sets numbers in their fields to extreme values while the format stays valid. The
// checksum is corrected.

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

/// Returns a damaged payload with a valid checksum.
fn damaged(rng: &mut Rng, seeds: &[Seed]) -> Vec<u8> {
    let seed = pick(rng, seeds);
    match &seed.value {
        Some(value) if rng.below(2) == 0 => {
            let mut value = value.clone();
            for _ in 0..=rng.below(2) {
                damage_fields(rng, &mut value, seeds);
            }
            value.payload()
        }
        _ => {
            // The first byte says that it is a module's value.
            let (body, footer) = seed.payload.split_at(seed.payload.len() - FOOTER);
            let mut body = body[1..].to_vec();
            let other = pick(rng, seeds);
            damage_bytes(rng, &mut body, &other.payload[1..other.payload.len() - FOOTER]);
            with_fixed_checksum([&[7], &body[..], footer].concat())
        }
    }
}

fn damage_fields(rng: &mut Rng, value: &mut Value, seeds: &[Seed]) {
    let fields = &mut value.fields;
    if fields.is_empty() {
        return;
    }
    let place = rng.below(fields.len() as u64) as usize;
    let other = pick(rng, seeds).value.as_ref();
    match rng.below(12) {
        0 => drop(fields.remove(place)),
        1 => {
            let end = place + rng.below((fields.len() - place) as u64 + 1) as usize;
            let again = fields[place..end].to_vec();
            fields.splice(end..end, again);
        }
        2 => fields.truncate(place),
        3 => {
            if let Some(other) = other.filter(|other| !other.fields.is_empty()) {
                let from = rng.below(other.fields.len() as u64) as usize;
                fields.splice(place.., other.fields[from..].iter().cloned());
            }
        }
        4 => {
            if let Some(other) = other {
                value.type_number =
                    if rng.below(2) == 0 { other.type_number } else { value.type_number ^ 1 << rng.below(10) };
            }
        }
        5 => {
            fields[place] = match rng.below(3) {
                0 => Field::Uint(*pick(rng, &EDGES)),
                1 => Field::Double(*pick(rng, &FRACTIONS)),
                _ => Field::Text(rng.bytes(64)),
            }
        }
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

// Damages the input of BF.LOADCHUNK and BF.LOAD: the bytes of a record, its iterator, and the order of records.

/// A dump: iterators and data.
type Dump = Vec<(i64, Vec<u8>)>;

/// The arguments of a command.
type Words = Vec<Vec<u8>>;

/// Returns dumps of filters of every shape.
fn dumps(server: &Server) -> Vec<Dump> {
    let mut client = server.connect();
    let mut dump = |(words, items): (&str, usize)| {
        make(&mut client, words, items);
        let dump = records(&mut client, "k");
        client.run("DEL k");
        dump
    };
    dumpable().map(&mut dump).collect()
}

/// Returns the kept inputs of the fuzz target of BF.LOAD.
fn loads() -> Vec<Vec<u8>> {
    kept("valkey_bloom_load")
}

/// Returns a BF.LOAD command with damaged data.
fn damaged_load(rng: &mut Rng, loads: &[Vec<u8>]) -> Vec<Words> {
    let mut data = pick(rng, loads).clone();
    if rng.below(4) > 0 {
        let other = pick(rng, loads);
        damage_bytes(rng, &mut data, other);
    }
    vec![vec![b"BF.LOAD".to_vec(), b"k".to_vec(), data]]
}

/// Returns the BF.LOADCHUNK commands of a damaged dump.
fn damaged_dump(rng: &mut Rng, dumps: &[Dump]) -> Vec<Words> {
    let mut dump = pick(rng, dumps).clone();
    for _ in 0..rng.below(3) {
        if dump.is_empty() {
            break;
        }
        let place = rng.below(dump.len() as u64) as usize;
        let other = pick(rng, dumps);
        match rng.below(8) {
            0 => drop(dump.remove(place)),
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
    as_commands("k", &dump)
}

// The payloads that are damaged: DUMP payloads of every type and shape, from this server, from old releases, and from the
// kept inputs of the fuzz targets, each with its fields if they can be identified.

/// A payload to start from.
struct Seed {
    pub payload: Vec<u8>,
    pub value: Option<Value>,
}

/// The fields of a payload.
#[derive(Clone)]
struct Value {
    /// The versions of the module's type and of its encoding.
    pub type_number: u64,
    pub fields: Vec<Field>,
}

/// Filters of every shape: command, key, options, items.
const SHAPES: [(&str, usize); 19] = [
    ("BF.RESERVE k 0.01 100", 0),
    ("BF.RESERVE k 0.01 100 SEED 1", 60),
    ("BF.RESERVE k 0.01 4", 60),
    ("BF.RESERVE k 0.1 1 EXPANSION 1", 20),
    ("BF.RESERVE k 0.001 50 NONSCALING", 50),
    ("BF.RESERVE k 1e-12 3 EXPANSION 32768", 3),
    ("BF.RESERVE k 0.01 1000000 NONSCALING", 0),
    ("BF.RESERVE k 0.01 10 HASH siphash", 5),
    ("BF.RESERVE k 0.2 8 COUNTING", 5),
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

/// Creates a filter at `k`.
fn make(client: &mut Connection, words: &str, items: usize) {
    assert!(!client.run(words).is_error(), "{words}");
    (0..items).for_each(|item| drop(client.run(&format!("BF.ADD k {item}"))));
}

/// Returns the commands that create filters for BF.SCANDUMP, with their items.
fn dumpable() -> impl Iterator<Item = (&'static str, usize)> {
    SHAPES.into_iter().filter(|(words, _)| words.starts_with("BF.RESERVE") && !words.contains("1000000"))
}

/// Returns the payloads of filters of every shape, also of those of which a part has been loaded.
fn made(client: &mut Connection) -> Vec<Seed> {
    let mut seeds = Vec::new();
    for (words, items) in SHAPES {
        make(client, words, items);
        seeds.push(Seed::of(client.run("DUMP k").bytes().to_vec()));
        let half = halves(client, words);
        seeds.extend(half.into_iter().map(Seed::of));
        client.run("DEL k");
    }
    seeds
}

/// Returns all payloads.
fn seeds(server: &Server) -> Vec<Seed> {
    let mut client = server.connect();
    let mut seeds = made(&mut client);
    for release in ["1.0.0", "1.1.1", "2.2.0"] {
        let old = golden::filters(release).into_iter().filter(|golden| golden.payload.len() < 16 << 10);
        seeds.extend(old.map(|golden| Seed::of(golden.payload)));
    }
    // Only valid payloads are damaged; a separate test sends the invalid ones unchanged.
    seeds.extend(kept_inputs().into_iter().filter(|seed| {
        let words: [&[u8]; 4] = [b"RESTORE", b"k", b"0", &seed.payload];
        !client.call(&words).is_error() && !client.run("DEL k").is_error()
    }));
    seeds
}

/// Returns the payloads of the filter at `k` when only its first record, and all but its last record, have been loaded.
fn halves(client: &mut Connection, words: &str) -> Vec<Vec<u8>> {
    if !dumpable().any(|(dumpable, _)| dumpable == words) {
        return Vec::new();
    }
    let dump = records(client, "k");
    [1, dump.len() - 1]
        .map(|count| {
            client.run("DEL half");
            load_records(client, "half", &dump[..count]);
            let payload = client.run("DUMP half").bytes().to_vec();
            client.run("DEL half");
            payload
        })
        .to_vec()
}

impl Seed {
    fn of(payload: Vec<u8>) -> Self {
        let value = fields_of_payload(&payload).map(|(type_number, fields)| Value { type_number, fields });
        Self { payload, value }
    }
}

impl Value {
    /// The payload with these fields.
    pub fn payload(&self) -> Vec<u8> {
        payload_of_type(self.type_number, &self.fields)
    }
}

/// Returns the kept inputs of the fuzz targets of snapshots and of RESTORE as payloads.
fn kept_inputs() -> Vec<Seed> {
    let types = [
        ("native_snapshot", "bloomgate"),
        ("redisbloom_snapshot", "MBbloom--"),
        ("valkey_bloom_snapshot", "bloomfltr"),
    ];
    let mut seeds = Vec::new();
    for (target, type_name) in types {
        for input in kept(target) {
            let mut input = input.as_slice();
            let encoding = if type_name == "MBbloom--" { take(&mut input, 1).map_or(0, |byte| byte[0]) } else { 1 };
            let fields = fields_of(type_name, encoding, input);
            let payload = payload_of(type_name, encoding.into(), &fields);
            seeds.push(Seed::of(payload));
        }
    }
    seeds.extend(kept("restore").iter().map(|value| Seed::of(payload_of_value(value))));
    seeds
}

/// Returns the inputs of a fuzz target, sorted by name.
fn kept(target: &str) -> Vec<Vec<u8>> {
    corpus::of(target).into_iter().map(|(_, data)| data).collect()
}

/// The types of the fields in a type's snapshot, in order: u for integers, d for doubles, s for strings. First the fields at
/// the beginning, then those that repeat.
fn kinds(type_name: &str, encoding: u8, front: &[u64]) -> (String, &'static str) {
    match type_name {
        "MBbloom--" => {
            let front = ["uu", "uu", "uuu", "uuu"].get(usize::from(encoding)).copied().unwrap_or("uuuu");
            (front.to_owned(), if encoding == 0 { "ududsu" } else { "ududuusu" })
        }
        "bloomfltr" => {
            // Only the newest layer stores its number of items.
            let before_last = front.first().map_or(0, |layers| layers.saturating_sub(1).min(5000)) as usize;
            (format!("uuddu{}uus", "us".repeat(before_last)), "us")
        }
        _ if front.get(1) == Some(&3) => ("uusu".to_owned(), "s"),
        _ => {
            let layers = front.get(8).map_or(0, |layers| (*layers).min(5000)) as usize;
            let arriving = if front.get(1) == Some(&2) { "uu" } else { "" };
            (format!("uuuduuuuu{}{arriving}", "duuuuu".repeat(layers)), "s")
        }
    }
}

/// Returns the fields of a kept input, in which every number has 8 bytes and a string follows its length.
fn fields_of(type_name: &str, encoding: u8, mut input: &[u8]) -> Vec<Field> {
    let front: Vec<u64> =
        input.chunks_exact(8).take(9).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("8 bytes"))).collect();
    let (front, over_and_over) = kinds(type_name, encoding, &front);
    let mut fields = Vec::new();
    for kind in front.bytes().chain(over_and_over.bytes().cycle()) {
        let Some(bytes) = take(&mut input, 8) else { break };
        let number = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        fields.push(match kind {
            b'u' => Field::Uint(number),
            b'd' => Field::Double(f64::from_bits(number)),
            _ => match usize::try_from(number).ok().and_then(|length| take(&mut input, length)) {
                Some(text) => Field::Text(text.to_vec()),
                None => break,
            },
        });
    }
    fields
}
