//! Filters made by other programs and earlier releases load for ever, by every way into a server, with their original answers. They are
//! written back as the same bytes. The data is in `tests/data`. The code that reads it is here for our own layout, and beside the tests of
//! the two other layouts.

use std::env;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};

use crate::persistence::rewrite_append_only_file;
use crate::redisbloom::golden::items;
use crate::{redisbloom, valkey_bloom};
use testing::{
    Connection, Record, Reply, Server, Stop, array, digest, dump, error, integer, load_records, newest, ok,
    on_every_server, records, restore, rewritten_commands, servers, start_on_commands, start_on_snapshot, value_of,
    with_append_only_file, with_client,
};

/// A filter made by another program or an earlier release.
pub trait Golden: Send + Sync {
    fn key(&self) -> &str;

    /// The items added to it.
    fn items(&self) -> Vec<String>;

    /// The payloads of DUMP, compressed and uncompressed.
    fn payloads(&self) -> Vec<Vec<u8>>;

    /// The commands of a rewritten append-only file that load it at a key; empty if the data has none.
    fn commands(&self, key: &str) -> Vec<Vec<Vec<u8>>>;

    /// The arguments of BF.RESERVE after the key that create such a filter here.
    fn reservation(&self) -> Option<String> {
        None
    }

    /// Checks a server's answers to all queries in the data.
    fn check(&self, server: &Server, at: &str);

    /// Whether only part of the filter's records have arrived.
    fn is_arriving(&self) -> bool {
        false
    }

    /// Bytes of bits, layers, items and capacity, computed without the module.
    fn sizes(&self) -> Option<[usize; 4]> {
        None
    }
}

/// All filters made by one program.
pub struct Source {
    pub name: &'static str,
    pub snapshot: Vec<u8>,
    pub append_only_files: Vec<Vec<u8>>,
    pub filters: Vec<Box<dyn Golden>>,
}

/// Every program and release with data.
pub fn sources() -> &'static [Source] {
    static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(read_sources);
    &SOURCES
}

fn read_sources() -> Vec<Source> {
    let mut sources: Vec<Source> = RELEASES.iter().map(|release| release.source()).collect();
    sources.push(valkey_bloom::golden::source());
    sources.extend(redisbloom::golden::RELEASES.map(redisbloom::golden::source));
    sources.extend(redisbloom::golden::OF_ENCODING_3.map(redisbloom::golden::source_of_encoding_3));
    sources
}

/// Records as the commands that load them.
pub fn as_commands(key: &str, records: &[Record]) -> Vec<Vec<Vec<u8>>> {
    let words = |(iterator, data): &Record| {
        vec![b"BF.LOADCHUNK".into(), key.as_bytes().into(), iterator.to_string().into(), data.clone()]
    };
    records.iter().map(words).collect()
}

/// Commands without the generations of native filters, to compare them.
fn comparable(commands: &[Vec<Vec<u8>>], source: &Source) -> Vec<Vec<Vec<u8>>> {
    let record = |words: &Vec<Vec<u8>>| -> Record {
        (std::str::from_utf8(&words[2]).expect("digits").parse().expect("a number"), words[3].clone())
    };
    if RELEASES.iter().any(|release| release.name == source.name) {
        as_commands("k", &without_generations(&commands.iter().map(record).collect::<Vec<_>>()))
    } else {
        commands.iter().map(|words| words[2..].to_vec()).collect()
    }
}

/// Settings under which no client could create a golden filter.
const CONTRARY: [&str; 4] =
    ["bf.max-filter-bytes 100", "bf.expansion-factor 0", "bf.error-rate 0.2", "bf.initial-size 7"];

/// Checks all filters of a source, and that each equals the filter restored from its payload.
fn check_all(server: &Server, source: &Source) {
    let mut client = server.connect();
    // The ceiling under which valkey-bloom's answers were recorded.
    client.run(&format!("CONFIG SET {}", valkey_bloom::golden::THEIR_CEILING));
    assert_eq!(client.run("DBSIZE"), integer(source.filters.len() as i64), "{}", source.name);
    for golden in &source.filters {
        eprintln!("{}: {}", source.name, golden.key());
        golden.check(server, golden.key());
        assert_eq!(restore(&mut client, "restored", &golden.payloads()[0]), ok());
        assert_eq!(digest(&mut client, "restored"), digest(&mut client, golden.key()), "{}", golden.key());
        client.run("DEL restored");
    }
}

/// BF.RESERVE with EXIST_OK also accepts filters that other programs and earlier releases created with the same arguments.
#[test]
fn the_options_of_a_creation_accept_its_filter() {
    with_client(|_, client| {
        let (mut accepted, mut refused) = (0, Vec::new());
        for source in sources() {
            for (golden, words) in source.filters.iter().filter_map(|golden| Some((golden, golden.reservation()?))) {
                let key = format!("{}/{}", source.name, golden.key());
                assert_eq!(restore(client, &key, &golden.payloads()[0]), ok());
                let before = digest(client, &key);
                match client.run(&format!("BF.RESERVE {key} {words} EXIST_OK")) {
                    reply if reply == ok() => accepted += 1,
                    reply => refused.push(format!("{key}: {}", reply.error_text())),
                }
                assert_eq!(digest(client, &key), before);
            }
        }
        // The first layer has the rate of the filter in RedisBloom 1, and half of it in later releases. 2.6.28 used a rate of 0.9
        // unchanged; today's releases and this module replace it by 0.25.
        let rates = [
            ("1.0.0/grown", "0.002, not 0.001"),
            ("1.0.0/one-layer", "0.02, not 0.01"),
            ("1.0.0/rate-25", "0.5, not 0.25"),
            ("1.1.1/grown", "0.002, not 0.001"),
            ("1.1.1/one-layer", "0.02, not 0.01"),
            ("1.1.1/rate-25", "0.5, not 0.25"),
            ("2.6.28/capped-rate", "0.9, not 0.25"),
        ];
        assert_eq!(
            refused,
            rates.map(|(key, rates)| format!("{key}: ERR item exists with another error rate: {rates}"))
        );
        assert!(accepted > 25, "{accepted} filters");
    });
}

#[test]
fn a_snapshot_loads_whatever_the_settings_and_a_snapshot_of_ours_keeps_it() {
    on_every_server(|program| {
        for source in sources() {
            let mut server = start_on_snapshot(program, &CONTRARY, &source.snapshot);
            check_all(&server, source);
            let before = server.connect().run("DEBUG DIGEST");
            server.restart(Stop::Save);
            let mut client = server.connect();
            assert_eq!(client.run("DEBUG DIGEST"), before, "{}", source.name);
            assert_eq!(client.run("DEBUG RELOAD"), ok());
            assert_eq!(client.run("DEBUG DIGEST"), before, "{}", source.name);
        }
    });
}

#[test]
fn an_append_only_file_loads_whatever_the_settings_and_is_rewritten_as_it_was() {
    on_every_server(|program| {
        for source in sources() {
            for file in &source.append_only_files {
                let mut server = start_on_commands(program, &CONTRARY, file);
                check_all(&server, source);
                let before = server.connect().run("DEBUG DIGEST");
                rewrite_append_only_file(&mut server.connect());
                let commands = rewritten_commands(&server);
                for golden in &source.filters {
                    let own = commands.iter().filter(|words| words[1] == golden.key().as_bytes());
                    let own: Vec<Vec<Vec<u8>>> = own.cloned().collect();
                    let expected = golden.commands(golden.key());
                    // A small filter was in records, and is one: the digest after the restart is the comparison.
                    let is_ours = RELEASES.iter().any(|release| release.name == source.name);
                    assert!(
                        is_ours && own[0][0] == b"BF.LOAD"
                            || comparable(&own, source) == comparable(&expected, source) && own[0][0] == expected[0][0],
                        "{}: {} is rewritten in another way",
                        source.name,
                        golden.key()
                    );
                }
                server.restart(Stop::Kill);
                assert_eq!(server.connect().run("DEBUG DIGEST"), before, "{}", source.name);
            }
        }
    });
}

#[test]
fn every_payload_is_restored_and_no_two_filters_have_one_digest() {
    on_every_server(|program| {
        let server = Server::with(program).line("sanitize-dump-payload yes").start();
        let mut client = server.connect();
        client.run(&format!("CONFIG SET {}", valkey_bloom::golden::THEIR_CEILING));
        for source in sources() {
            let mut seen = Vec::new();
            for golden in &source.filters {
                for payload in golden.payloads() {
                    client.run("DEL k");
                    assert_eq!(restore(&mut client, "k", &payload), ok(), "{}: {}", source.name, golden.key());
                    golden.check(&server, "k");
                }
                let digest = digest(&mut client, "k");
                assert!(!seen.contains(&digest), "{}: two filters have one digest", source.name);
                seen.push(digest);
            }
        }
    });
}

#[test]
fn every_command_of_a_rewritten_file_loads_when_a_client_sends_it() {
    with_client(|server, client| {
        client.run(&format!("CONFIG SET {}", valkey_bloom::golden::THEIR_CEILING));
        for source in sources() {
            for golden in &source.filters {
                let commands = golden.commands("k");
                for command in &commands {
                    assert_eq!(client.call(command), ok(), "{}: {}", source.name, golden.key());
                }
                if !commands.is_empty() {
                    golden.check(server, "k");
                    assert_eq!(restore(client, "restored", &golden.payloads()[0]), ok());
                    assert_eq!(digest(client, "restored"), digest(client, "k"), "{}", golden.key());
                }
                client.run("DEL k restored");
            }
        }
    });
}

#[test]
fn filters_are_counted_and_given_back() {
    with_client(|_, client| {
        let gauges = |client: &mut Connection| {
            ["num_filters_across_objects", "num_items_across_objects", "capacity_across_objects", "num_objects"]
                .map(|name| client.gauge(name))
        };
        for source in sources() {
            let goldens: Vec<_> = source.filters.iter().filter(|golden| golden.sizes().is_some()).collect();
            let (mut expected, mut bytes) = ([0; 4], 0);
            for golden in &goldens {
                assert_eq!(restore(client, golden.key(), &golden.payloads()[0]), ok());
                let [bits, sizes @ ..] = golden.sizes().expect("sizes");
                expected.iter_mut().zip(sizes).for_each(|(sum, size)| *sum += size as i64);
                expected[3] += 1;
                bytes += bits as i64;
            }
            let Some(first) = goldens.first() else { continue };
            assert_eq!(gauges(client), expected, "{}", source.name);
            assert!(client.gauge("total_memory_bytes") >= bytes);

            // The count is correct after every way to create or delete a filter.
            let payload = &first.payloads()[0];
            let [_, layers, items, capacity] = first.sizes().expect("sizes").map(|size| size as i64);
            assert_eq!(client.run(&format!("COPY {} copy", first.key())), integer(1));
            assert_eq!(restore(client, "restored", payload), ok());
            assert_eq!(client.call(&[b"RESTORE", b"restored".as_slice(), b"0", payload, b"REPLACE"]), ok());
            assert!(restore(client, "broken", &payload[..payload.len() / 2]).is_error());
            for command in first.commands("copy") {
                client.call(&command);
            }
            assert_eq!(client.run("BF.ADD copy one-more"), integer(1));
            let more = [2 * layers, 2 * items + 1, 2 * capacity, 2];
            expected.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
            assert_eq!(gauges(client), expected, "{}", source.name);
            let many: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
            client.batched(&[b"BF.MADD", b"copy"], &many);
            let grown = gauges(client);
            assert!(grown[0] > expected[0] && grown[1] > expected[1] && grown[2] > expected[2], "{grown:?}");
            assert_eq!(client.run("DEBUG RELOAD"), ok());
            assert_eq!(gauges(client), grown);
            assert_eq!(client.run("UNLINK copy"), integer(1));
            assert_eq!(client.run("SET restored string"), ok());
            assert_eq!(client.run("FLUSHALL"), ok());
            client.wait_for_frees();
            assert_eq!(gauges(client), [0; 4], "{}", source.name);
            assert_eq!(client.gauge("total_memory_bytes"), 0);
        }
    });
}

// Filters made by earlier releases of bloomgate.

/// An earlier release of bloomgate, whose data is in `tests/data/native-<name>`.
pub struct Release {
    pub name: &'static str,
    filters: usize,
}

/// Every release with data.
pub const RELEASES: [Release; 4] = [
    Release { name: "0.1.0", filters: 9 },
    Release { name: "0.2.0", filters: 16 },
    Release { name: "0.3.0", filters: 15 },
    Release { name: "0.4.0", filters: 21 },
];

/// A filter of a release, with its answers.
struct Native {
    key: String,
    entry: Value,
    /// The records of BF.SCANDUMP; for an arriving filter, the records that have arrived.
    records: Vec<Record>,
}

impl Release {
    pub fn source(&self) -> Source {
        Source {
            name: self.name,
            snapshot: self.file("snapshot.rdb.gz"),
            append_only_files: ["plain.aof.gz", "rewritten.aof.gz"].map(|name| self.file(name)).into(),
            filters: self.filters().into_iter().map(|filter| Box::new(filter) as Box<dyn Golden>).collect(),
        }
    }

    fn file(&self, name: &str) -> Vec<u8> {
        let folder = format!("tests/data/native-{}", self.name);
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(name);
        let mut bytes = Vec::new();
        GzDecoder::new(File::open(path).expect("a file of the data"))
            .read_to_end(&mut bytes)
            .expect("a sound gzip file");
        bytes
    }

    fn filters(&self) -> Vec<Native> {
        let expected: Value = serde_json::from_slice(&self.file("expected.json.gz")).expect("JSON");
        let read = |(key, entry): (&String, &Value)| {
            let list = entry.get("scandump_b64").or_else(|| entry.get("loaded_b64")).expect("records");
            Native { key: key.clone(), entry: entry.clone(), records: records_of(list) }
        };
        let filters: Vec<Native> = expected.as_object().expect("an object").iter().map(read).collect();
        assert_eq!(filters.len(), self.filters, "{}", self.name);
        filters
    }
}

fn records_of(list: &Value) -> Vec<Record> {
    let record = |pair: &Value| (pair[0].as_i64().expect("a number"), decoded(&pair[1]));
    list.as_array().expect("a list").iter().map(record).collect()
}

fn decoded(text: &Value) -> Vec<u8> {
    BASE64_STANDARD.decode(text.as_str().expect("a string")).expect("base64")
}

/// Removes the generation of its filter, which is different each time, from a record: clears the top bits of the iterator, and a chunk's
/// checksum, which covers the iterator.
fn without_generation((iterator, data): &Record) -> Record {
    let (iterator, mut data) = (iterator % (1 << 39), data.clone());
    if iterator % (1 << 27) > 1 {
        data[1..5].fill(0);
    }
    (iterator, data)
}

pub fn without_generations(records: &[Record]) -> Vec<Record> {
    records.iter().map(without_generation).collect()
}

impl Native {
    fn numbers(&self, name: &str) -> Vec<usize> {
        let list = self.entry[name].as_array().expect("a list");
        list.iter().map(|number| number.as_u64().expect("a number") as usize).collect()
    }

    fn check_answers(&self, client: &mut Connection, at: &str) {
        let absent = |client: &mut Connection, items: &[String]| -> Vec<usize> {
            let present = client.batched(&[b"BF.MEXISTS", at.as_bytes()], items);
            (0..present.len()).filter(|&number| !present[number]).collect()
        };
        assert_eq!(absent(client, &self.items()), self.numbers("missing"), "{}: items that are absent", self.key);
        let strangers: Vec<String> = (0..2000).map(|number| format!("absent:{number}")).collect();
        let absent = absent(client, &strangers);
        let present: Vec<usize> = (0..2000).filter(|number| !absent.contains(number)).collect();
        assert_eq!(present, self.numbers("absent_that_exist_below_2000"), "{}: false positives", self.key);
        let card = self.entry["card"].as_i64().expect("a number");
        assert_eq!(client.run(&format!("BF.CARD {at}")), integer(card), "{}", self.key);
        let info = client.run(&format!("BF.INFO {at}"));
        for name in ["Capacity", "Number of filters", "Number of items inserted", "Expansion rate"] {
            let golden = self.entry["info"][name].as_i64().map_or(Reply::NullBulk, integer);
            assert_eq!(info.field(name), &golden, "{}: {name}", self.key);
        }
        assert!(
            without_generations(&records(client, at)) == without_generations(&self.records),
            "{}: BF.SCANDUMP gives other records",
            self.key
        );
    }
}

impl Golden for Native {
    fn key(&self) -> &str {
        &self.key
    }

    fn items(&self) -> Vec<String> {
        items(0, self.entry["items_offered"].as_u64().expect("a number") as usize)
    }

    fn payloads(&self) -> Vec<Vec<u8>> {
        ["dump_b64", "dump_uncompressed_b64"].map(|form| decoded(&self.entry[form])).into()
    }

    fn commands(&self, key: &str) -> Vec<Vec<Vec<u8>>> {
        as_commands(key, &self.records)
    }

    fn reservation(&self) -> Option<String> {
        let words: Vec<_> = self.entry.get("created_by")?.as_array()?.iter().filter_map(Value::as_str).collect();
        (words[0] == "BF.RESERVE").then(|| words[2..].join(" "))
    }

    fn is_arriving(&self) -> bool {
        self.entry.get("to_come_b64").is_some()
    }

    fn check(&self, server: &Server, at: &str) {
        let mut client = server.connect();
        let expected = self.entry["debug_digest_value"].as_str().expect("a digest");
        assert_eq!(digest(&mut client, at), array([Reply::Simple(expected.to_owned())]), "{}", self.key);
        if self.is_arriving() {
            assert_eq!(client.run(&format!("BF.CARD {at}")), error("ERR filter is still being loaded"));
        } else {
            self.check_answers(&mut client, at);
        }
        // The compression of bits depends on the server.
        assert_eq!(client.run("CONFIG SET rdbcompression no"), ok());
        let payload = client.run(&format!("DUMP {at}"));
        let golden = decoded(&self.entry["dump_uncompressed_b64"]);
        assert!(value_of(payload.bytes()) == value_of(&golden), "{}: DUMP gives other bytes", self.key);
        assert_eq!(client.run("CONFIG SET rdbcompression yes"), ok());
    }
}

#[test]
fn a_filter_that_was_arriving_arrives() {
    with_client(|server, client| {
        for filters in RELEASES.iter().map(Release::filters) {
            let arriving: Vec<&Native> = filters.iter().filter(|filter| filter.is_arriving()).collect();
            assert!(!arriving.is_empty());
            for filter in arriving {
                load_records(client, "k", &filter.records);
                load_records(client, "k", &records_of(&filter.entry["to_come_b64"]));
                let becomes = filter.entry["becomes"].as_str().expect("a key");
                let whole = filters.iter().find(|filter| filter.key == becomes).expect("a key of the data");
                whole.check(server, "k");
                client.run("DEL k");
            }
            // A filter that was loaded from records keeps the generation of its dump.
            for filter in filters.iter().filter(|filter| !filter.is_arriving()) {
                load_records(client, "copy", &filter.records);
                assert!(records(client, "copy") == filter.records, "{}", filter.key);
                client.run("DEL copy");
            }
        }
    });
}

// Writes the golden data of a new release. Existing data is never rewritten.

/// What happens to a filter after its creation: a command, and the numbers of its items.
type Step = (&'static str, Range<usize>);

const ADD: &str = "BF.MADD";
const CHANGE: &str = "BF.CHANGED";
const DELETE: &str = "BF.MDEL";
const ROTATE: Step = ("BF.ROTATE", 0..0);

/// The filters: the key, the arguments of BF.RESERVE after it, and the steps. Windows last 95 years, so that the data does not expire.
const FILTERS: [(&str, &str, &[Step]); 19] = [
    ("small", "0.01 100", &[(ADD, 0..300)]),
    ("small-deleted", "0.001 20 HASH siphash", &[(ADD, 0..150), (DELETE, 0..30), (ADD, 0..10)]),
    ("small-grown", "0.01 100", &[(ADD, 0..2000)]),
    ("loose-fixed", "0.05 400 NONSCALING", &[(ADD, 0..500)]),
    ("tight", "0.00001 5", &[(ADD, 0..500)]),
    ("tight-fixed", "1e-9 300 NONSCALING SEED 7", &[(ADD, 0..300)]),
    ("tight-grown", "0.000001 500 EXPANSION 1", &[(ADD, 0..1200)]),
    (
        "tight-deleted",
        "0.00001 200 HASH siphash SEED 000102030405060708090a0b0c0d0e0f",
        &[(ADD, 0..400), (DELETE, 0..50), (ADD, 0..20)],
    ),
    ("counting", "0.00001 100 COUNTING HASH siphash", &[(ADD, 0..80), (ADD, 0..30), (DELETE, 20..60)]),
    ("rolling", "0.00001 100 ROLLING", &[(ADD, 0..300)]),
    (
        "windowed",
        "0.00001 100 WINDOW 3000000000 HASH siphash",
        &[(ADD, 0..200), ROTATE, (ADD, 200..250), (DELETE, 0..20)],
    ),
    ("guarded", "0.01 100 WINDOW 3000000000", &[(ADD, 0..60), ROTATE, (CHANGE, 40..80)]),
    ("sliding", "0.00001 100 WINDOW 3000000000 SLIDING", &[(ADD, 0..60), ROTATE, (ADD, 40..80)]),
    ("cuckoo", "0.01 100 CUCKOO", &[(ADD, 0..150), (ADD, 0..150), (ADD, 0..20), (DELETE, 0..60), (ADD, 150..600)]),
    ("cuckoo-fixed", "0.001 500 CUCKOO NONSCALING", &[(ADD, 0..600), (DELETE, 100..200)]),
    (
        "cuckoo-keyed",
        "0.00001 50 CUCKOO EXPANSION 1 HASH siphash SEED 000102030405060708090a0b0c0d0e0f",
        &[(ADD, 0..170), (DELETE, 20..60)],
    ),
    (
        "cuckoo-repeated",
        "0.05 40 CUCKOO",
        &[(ADD, 0..1), (ADD, 0..1), (ADD, 0..1), (ADD, 0..1), (ADD, 0..9), (ADD, 0..2)],
    ),
    ("dumped", "0.00001 400000 NONSCALING HASH siphash", &[(ADD, 0..12), (DELETE, 0..4)]),
    ("cuckoo-dumped", "0.00001 400000 CUCKOO NONSCALING", &[(ADD, 0..12), (DELETE, 0..4)]),
];

/// The filters whose dumps were partly loaded into other keys, and these keys.
const DUMPED: [(&str, &str); 2] = [("dumped", "arriving"), ("cuckoo-dumped", "cuckoo-arriving")];

#[test]
#[ignore = "needs BLOOMGATE_GOLDEN, an empty folder"]
fn data_of_this_version_is_written() {
    let folder = env::var_os("BLOOMGATE_GOLDEN").expect("BLOOMGATE_GOLDEN is a folder");
    let folder = Path::new(&folder);
    assert!(fs::read_dir(folder).expect("a folder").next().is_none(), "the folder is not empty");
    let server = with_append_only_file(&servers()[0]);
    let mut client = server.connect();
    let mut expected = Map::new();
    for (key, words, steps) in FILTERS {
        assert_eq!(client.run(&format!("BF.RESERVE {key} {words}")), ok());
        for (command, numbers) in steps {
            let items = items(numbers.start, numbers.end);
            if *command == CHANGE {
                // One item, and the key of its cached row.
                items.iter().for_each(|item| assert!(!client.run(&format!("{CHANGE} {key} {item} row")).is_error()));
                continue;
            }
            let words: Vec<&str> = [*command, key].into_iter().chain(items.iter().map(String::as_str)).collect();
            assert!(!client.call(&words).is_error(), "{words:?}");
        }
        let mut entry = facts(&mut client, key, steps);
        entry["created_by"] = json!(format!("BF.RESERVE {key} {words}").split(' ').collect::<Vec<_>>());
        entry["scandump_b64"] = encoded(&records(&mut client, key));
        expected.insert(key.to_owned(), entry);
    }
    for (dumped, arriving) in DUMPED {
        let records = records(&mut client, dumped);
        let (loaded, to_come) = records.split_at(records.len().div_ceil(2));
        load_records(&mut client, arriving, loaded);
        let mut entry = payloads(&mut client, arriving);
        entry["becomes"] = json!(dumped);
        entry["items_offered"] = json!(0);
        entry["loaded_b64"] = encoded(loaded);
        entry["to_come_b64"] = encoded(to_come);
        expected.insert(arriving.to_owned(), entry);
    }

    write(folder, "expected.json.gz", &serde_json::to_vec(&expected).expect("JSON"));
    assert_eq!(client.run("SAVE"), ok());
    write(folder, "snapshot.rdb.gz", &fs::read(server.folder().join("dump.rdb")).expect("the snapshot"));
    write(folder, "plain.aof.gz", &fs::read(newest(&server, ".incr.aof")).expect("the append-only file"));
    rewrite_append_only_file(&mut client);
    write(folder, "rewritten.aof.gz", &fs::read(newest(&server, ".base.aof")).expect("the append-only file"));
}

/// Returns the server's answers about a filter.
fn facts(client: &mut Connection, key: &str, steps: &[Step]) -> Value {
    let offered = steps.iter().map(|(_, numbers)| numbers.end).max().expect("a step");
    let mut entry = payloads(client, key);
    let numbers_of = |answers: Vec<bool>, wanted: bool| -> Vec<usize> {
        (0..answers.len()).filter(|&number| answers[number] == wanted).collect()
    };
    let strangers: Vec<String> = (0..2000).map(|number| format!("absent:{number}")).collect();
    let info = client.run(&format!("BF.INFO {key}"));
    let fields = ["Capacity", "Number of filters", "Number of items inserted", "Expansion rate"];
    let number = |reply: &Reply| if let Reply::Integer(number) = reply { json!(number) } else { Value::Null };
    let info = fields.map(|field| (field.to_owned(), number(info.field(field))));
    entry["items_offered"] = json!(offered);
    entry["steps"] = steps.iter().map(|(command, numbers)| json!([command, numbers.start, numbers.end])).collect();
    entry["missing"] = json!(numbers_of(client.batched(&[b"BF.MEXISTS", key.as_bytes()], &items(0, offered)), false));
    entry["absent_that_exist_below_2000"] =
        json!(numbers_of(client.batched(&[b"BF.MEXISTS", key.as_bytes()], &strangers), true));
    entry["card"] = json!(client.run(&format!("BF.CARD {key}")).number());
    entry["info"] = Value::Object(info.into_iter().collect());
    entry
}

/// The digest of a filter, and its payload, compressed and not.
fn payloads(client: &mut Connection, key: &str) -> Value {
    let digest = digest(client, key);
    let [Reply::Simple(digest)] = digest.elements() else { panic!("not a digest: {digest:?}") };
    let mut payload = |compression: &str| {
        assert_eq!(client.run(&format!("CONFIG SET rdbcompression {compression}")), ok());
        BASE64_STANDARD.encode(dump(client, key))
    };
    json!({ "debug_digest_value": digest, "dump_uncompressed_b64": payload("no"), "dump_b64": payload("yes") })
}

fn encoded(records: &[Record]) -> Value {
    records.iter().map(|(iterator, data)| json!([iterator, BASE64_STANDARD.encode(data)])).collect()
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    let file = File::create_new(folder.join(name)).expect("a new file");
    let mut encoder = GzEncoder::new(file, Compression::best());
    encoder.write_all(bytes).and_then(|()| encoder.finish().map(drop)).expect("the file is written");
}
