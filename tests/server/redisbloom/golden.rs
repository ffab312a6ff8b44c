//! Filters made by RedisBloom, and its answers about them: reads `tests/data/redisbloom`, and has the check that every way into the server
//! must pass.

use std::fs;
use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use serde_json::Value;

use crate::golden::{self, Source};
use crate::payload::Field::{self, Text, Uint};
use crate::payload::{fields_of_payload, payload_of_type, snapshot_of_value, type_number};
use testing::{
    Connection, Record, Reply, Server, array, dump, integer, load_records, ok, on_every_server, simple,
    start_on_snapshot, value_of, with_client, with_fixed_checksum,
};

/// Every release with data. The seeds of 1.1.1 have 32 bits, because its library called the server's hash instead of its own.
pub const RELEASES: [&str; 4] = ["1.0.0", "1.1.1", "2.2.0", "2.6.28"];

/// The release whose data includes BF.INFO, SCANDUMP pairs and an append-only file.
pub const TODAY: &str = "2.6.28";

/// The releases of `encoding-3.json`, each built by its own Makefile. The second release's hash has seeds of 32 bits, the others' hash of 64.
pub const OF_ENCODING_3: [&str; 3] = ["v1.1.1", "v2.0.0", "v2.0.3"];

/// The number of absent items with answers in the data.
const STRANGERS: usize = 20_000;

/// One filter made by RedisBloom.
pub struct Golden {
    pub key: String,
    /// The arguments of BF.RESERVE after the key; `None` if BF.MADD created the filter.
    pub reserve: Option<Vec<String>>,
    /// `item:0` to `item:offered-1` were added.
    pub offered: usize,
    /// How many of them were new.
    pub answered: i64,
    missing: Vec<usize>,
    false_positives: Vec<usize>,
    debug: Vec<String>,
    /// RedisBloom's own BF.INFO, if the data has it.
    info: Option<[Option<i64>; 5]>,
    /// The payload of DUMP.
    pub payload: Vec<u8>,
    /// The records of BF.SCANDUMP: iterators and data.
    pub chunks: Vec<Record>,
}

/// A file of the data, unpacked.
pub fn file(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/redisbloom");
    let packed = folder.join(format!("{name}.gz"));
    if !packed.exists() {
        return fs::read(folder.join(name)).expect("a file of the data");
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(packed).expect("a packed file of the data");
    GzDecoder::new(file).read_to_end(&mut bytes).expect("a sound gzip file");
    bytes
}

/// The snapshot of a release.
pub fn snapshot(release: &str) -> Vec<u8> {
    file(&format!("redisbloom-{release}.rdb"))
}

/// All filters of a release, by key.
pub fn filters(release: &str) -> Vec<Golden> {
    let text = file(&format!("expected-{release}.json"));
    let expected: Value = serde_json::from_slice(&text).expect("JSON");
    expected.as_object().expect("an object").iter().map(|(key, entry)| read(release, key, entry)).collect()
}

/// One filter of a release.
pub fn filter(release: &str, key: &str) -> Golden {
    filters(release).into_iter().find(|golden| golden.key == key).expect("a key of the data")
}

fn read(release: &str, key: &str, entry: &Value) -> Golden {
    let numbers = |name: &str| -> Vec<usize> {
        let list = entry[name].as_array().expect("a list");
        list.iter().map(|number| number.as_u64().expect("a number") as usize).collect()
    };
    let strings = |list: &Value| -> Vec<String> {
        list.as_array().expect("a list").iter().map(|word| word.as_str().expect("a string").to_owned()).collect()
    };
    let info = entry.get("info").map(|info| {
        ["Capacity", "Size", "Number of filters", "Number of items inserted", "Expansion rate"]
            .map(|name| info[name].as_i64())
    });
    let mut debug = strings(&entry["debug"]);
    if release == "1.0.0" {
        // Early releases had only one hash and did not record it.
        for line in &mut debug {
            *line = line.replace(" capacity:", " hashwidth:32 capacity:");
        }
    }
    Golden {
        key: key.to_owned(),
        reserve: Some(&entry["reserve"]).filter(|words| !words.is_null()).map(strings),
        offered: entry["items_offered"].as_u64().expect("a number") as usize,
        answered: entry["answered_1"].as_i64().expect("a number"),
        missing: numbers("missing"),
        false_positives: numbers("absent_that_exist_below_20000"),
        debug,
        info,
        payload: payload(release, entry),
        chunks: chunks(entry),
    }
}

/// The filter of a release of [`OF_ENCODING_3`]. Its members are `item:0` to `item:59`. Also returns which of `absent:0` to `absent:1999`
/// the release reported present.
pub fn of_encoding_3(release: &str) -> (Golden, Vec<u64>) {
    let expected: Value = serde_json::from_slice(&file("encoding-3.json")).expect("JSON");
    let entry = &expected[release];
    let golden = Golden {
        key: release.to_owned(),
        reserve: None,
        offered: 60,
        answered: 60,
        missing: Vec::new(),
        // The data has answers for fewer names, and none of BF.DEBUG.
        false_positives: Vec::new(),
        debug: Vec::new(),
        info: None,
        payload: payload(release, entry),
        chunks: chunks(entry),
    };
    let present = entry["absent_that_exist_below_2000"].as_array().expect("a list");
    (golden, present.iter().map(|number| number.as_u64().expect("a number")).collect())
}

fn payload(release: &str, entry: &Value) -> Vec<u8> {
    if let Some(text) = entry.get("dump") {
        return BASE64_STANDARD.decode(text.as_str().expect("base64")).expect("base64");
    }
    let place = &entry["dump_in_snapshot"];
    let value = cut(&snapshot(release), &place[0], &place[1]);
    // A module's value, then the version of the format (10, as in Redis 7.0) and room for the checksum.
    with_fixed_checksum([&[7], value.as_slice(), &[10, 0], &[0; 8]].concat())
}

fn chunks(entry: &Value) -> Vec<Record> {
    if let Some(places) = entry.get("scandump_in_aof") {
        let file = file("redisbloom-2.6.28.aof");
        let places = places.as_array().expect("a list");
        return places.iter().map(|at| (at[0].as_i64().expect("a number"), cut(&file, &at[1], &at[2]))).collect();
    }
    let Some(pairs) = entry.get("scandump") else { return Vec::new() };
    let decoded = |data: &Value| BASE64_STANDARD.decode(data.as_str().expect("base64")).expect("base64");
    let pairs = pairs.as_array().expect("a list");
    pairs.iter().map(|pair| (pair[0].as_i64().expect("a number"), decoded(&pair[1]))).collect()
}

fn cut(bytes: &[u8], offset: &Value, length: &Value) -> Vec<u8> {
    let [offset, length] = [offset, length].map(|number| number.as_u64().expect("a number") as usize);
    bytes[offset..offset + length].to_vec()
}

/// `item:first` to `item:end-1`, the names of all members.
pub fn items(first: usize, end: usize) -> Vec<String> {
    (first..end).map(|number| format!("item:{number}")).collect()
}

impl Golden {
    /// Whether the width of its hash's seeds is not recorded. The module then looks items up under both hashes.
    fn has_either_seeds(&self) -> bool {
        let (type_number, fields) = self.fields();
        type_number & 0x3ff < 4 && matches!(fields[2], Uint(options) if options & 4 != 0)
    }

    fn fields(&self) -> (u64, Vec<Field>) {
        fields_of_payload(&self.payload).expect("a module's value")
    }

    /// Checks a server's answers to all queries in the data.
    pub fn check(&self, server: &Server, at: &str) {
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            assert_eq!(client.run(&format!("TYPE {at}")), simple("MBbloom--"));
            assert_eq!(client.run(&format!("BF.INFO {at}")), info_reply(self.info(), protocol), "{at}");
            for (word, value) in ["CAPACITY", "SIZE", "FILTERS", "ITEMS", "EXPANSION"].iter().zip(self.info()) {
                let reply = client.run(&format!("BF.INFO {at} {word}"));
                let value = value.map_or_else(|| testing::nil(protocol), integer);
                match reply {
                    Reply::Map(pairs) if protocol == 3 => assert_eq!(pairs[0].1, value, "{at} {word}"),
                    flat => assert_eq!(flat, array([value]), "{at} {word}"),
                }
            }
            assert_eq!(client.run(&format!("BF.CARD {at}")), integer(self.answered), "{at}");
            let debug = client.run(&format!("BF.DEBUG {at}"));
            let lines: Vec<String> = debug.elements().iter().map(Reply::text).collect();
            assert!(self.debug.is_empty() || lines == self.debug, "BF.DEBUG {at}: {lines:?}");

            let present = client.batched(&[b"BF.MEXISTS", at.as_bytes()], &items(0, self.offered));
            let missing: Vec<usize> = (0..present.len()).filter(|&number| !present[number]).collect();
            assert_eq!(missing, self.missing, "{at}: items that are not in");
            let strangers: Vec<String> = (0..STRANGERS).map(|number| format!("absent:{number}")).collect();
            let present = client.batched(&[b"BF.MEXISTS", at.as_bytes()], &strangers);
            let wrong: Vec<usize> = (0..present.len()).filter(|&number| present[number]).collect();
            if self.has_either_seeds() {
                assert!(self.false_positives.iter().all(|number| wrong.contains(number)), "{at}: false positives");
                assert!(wrong.len() < 3 * self.false_positives.len() + 100, "{at}: {} false positives", wrong.len());
            } else {
                assert_eq!(wrong, self.false_positives, "{at}: false positives");
            }
        }
    }

    /// The values of BF.INFO, computed from the payload if the release had no BF.INFO.
    fn info(&self) -> [Option<i64>; 5] {
        self.info.unwrap_or_else(|| {
            let [bytes, layers, items, capacity] =
                golden::Golden::sizes(self).expect("sizes").map(|size| Some(size as i64));
            let size = bytes.zip(layers).map(|(bytes, layers)| 32 + 64 * layers + bytes);
            let expansion = match (self.fields().0 & 0x3ff, &self.fields().1[2..4]) {
                (2.., [Uint(options), _]) if options & 8 != 0 => None,
                (4.., [_, Uint(growth)]) => Some(*growth as i64),
                _ => Some(2),
            };
            [capacity, size, layers, items, expansion]
        })
    }
}

/// RedisBloom's BF.INFO.
fn info_reply(values: [Option<i64>; 5], protocol: u8) -> Reply {
    let names = ["Capacity", "Size", "Number of filters", "Number of items inserted", "Expansion rate"].map(simple);
    let values = values.map(|value| value.map_or_else(|| testing::nil(protocol), integer));
    if protocol == 3 {
        return Reply::Map(names.into_iter().zip(values).collect());
    }
    Reply::Array(names.into_iter().zip(values).flat_map(|(name, value)| [name, value]).collect())
}

/// RESTOREs a payload.
pub fn restore(server: &Server, key: &str, payload: &[u8]) {
    let words: [&[u8]; 5] = [b"RESTORE", key.as_bytes(), b"0", payload, b"REPLACE"];
    assert_eq!(server.connect().call(&words), ok(), "RESTORE of {key}");
}

/// Sends the pairs of BF.SCANDUMP back.
pub fn load_chunks(server: &Server, key: &str, chunks: &[Record]) {
    load_records(&mut server.connect(), key, chunks);
}

/// All filters made by a release.
pub fn source(release: &'static str) -> Source {
    let filters = filters(release).into_iter().map(|filter| Box::new(filter) as Box<dyn golden::Golden>).collect();
    let append_only_files = if release == TODAY { vec![file("redisbloom-2.6.28.aof")] } else { Vec::new() };
    Source { name: release, snapshot: snapshot(release), append_only_files, filters }
}

/// The filter of a release of [`OF_ENCODING_3`].
pub fn source_of_encoding_3(release: &'static str) -> Source {
    let golden = of_encoding_3(release).0;
    let snapshot = snapshot_of_value(release, &value_of(&golden.payload)[1..]);
    Source { name: release, snapshot, append_only_files: Vec::new(), filters: vec![Box::new(golden)] }
}

impl golden::Golden for Golden {
    fn key(&self) -> &str {
        &self.key
    }

    fn items(&self) -> Vec<String> {
        items(0, self.offered)
    }

    fn payloads(&self) -> Vec<Vec<u8>> {
        vec![self.payload.clone()]
    }

    fn commands(&self, key: &str) -> Vec<Vec<Vec<u8>>> {
        golden::as_commands(key, &self.chunks)
    }

    fn reservation(&self) -> Option<String> {
        self.reserve.as_ref().map(|words| format!("{} LAYOUT redisbloom", words.join(" ")))
    }

    fn check(&self, server: &Server, at: &str) {
        Self::check(self, server, at);
    }

    fn sizes(&self) -> Option<[usize; 4]> {
        let (type_number, fields) = self.fields();
        let (encoding, &Uint(items)) = (type_number & 0x3ff, &fields[0]) else { panic!("no filter: {fields:?}") };
        let layers = &fields[2 + usize::from(encoding >= 2) + usize::from(encoding >= 4)..];
        let (mut bytes, mut count, mut capacity) = (0, 0, 0);
        for layer in layers.chunks(if encoding == 0 { 6 } else { 8 }) {
            let [Uint(entries), .., Text(bits), _] = layer else { panic!("no layer: {layer:?}") };
            (bytes, count, capacity) = (bytes + bits.len(), count + 1, capacity + *entries as usize);
        }
        Some([bytes, count, items as usize, capacity])
    }
}

// Filters created here in RedisBloom's layout are byte-identical to RedisBloom's.

const FOOTER: usize = 10;

/// The data was created with 100 items per call.
fn feed(client: &mut Connection, key: &str, count: usize) -> i64 {
    let mut added = 0;
    for batch in items(0, count).chunks(100) {
        let words: Vec<&str> = ["BF.MADD", key].into_iter().chain(batch.iter().map(String::as_str)).collect();
        let reply = client.call(&words);
        // A full filter ends the array with an error.
        added += reply.elements().iter().filter(|answer| !answer.is_error() && answer.truth()).count() as i64;
    }
    added
}

#[test]
fn equal_options_create_equal_bytes() {
    with_client(|server, client| {
        for golden in filters(TODAY) {
            match &golden.reserve {
                Some(words) => {
                    let line = format!("BF.RESERVE {} {} LAYOUT redisbloom", golden.key, words.join(" "));
                    assert_eq!(client.run(&line), ok());
                }
                None => assert_eq!(client.run("CONFIG SET bf.layout redisbloom"), ok()),
            }
            let added = feed(client, &golden.key, golden.offered);
            let ours = dump(client, &golden.key);
            if golden.key == "capped-rate" {
                // 2.6.28 used a rate of 0.9 unchanged; today's releases and this module replace it by 0.25.
                assert!(client.run("BF.DEBUG capped-rate").elements()[1].text().ends_with(" ratio:0.125"));
                continue;
            }
            assert_eq!(added, golden.answered, "{}", golden.key);
            let body = golden.payload.len() - FOOTER;
            assert!(ours.len() == golden.payload.len() && ours[..body] == golden.payload[..body], "{}", golden.key);
            golden.check(server, &golden.key);
        }
    });
}

// RedisBloom's other types, which prevent a server from starting.

/// A snapshot with one key, `k`, of a module's type, with the fields of a filter.
fn snapshot_of(type_name: &str) -> Vec<u8> {
    let encoding = if type_name == "MBbloom--" { 4 } else { 1 };
    let payload = payload_of_type(type_number(type_name, encoding), &filter(TODAY, "tiny").fields().1);
    snapshot_of_value("k", &value_of(&payload)[1..])
}

#[test]
fn a_snapshot_with_redisblooms_other_types_stops_the_start_and_names_the_type() {
    on_every_server(|program| {
        let server = start_on_snapshot(program, &[], &snapshot_of("MBbloom--"));
        assert_eq!(server.connect().run("TYPE k"), simple("MBbloom--"));
        assert_eq!(server.connect().run("BF.EXISTS k item:0"), integer(1));
        for other in ["CMSk-TYPE", "TopK-TYPE", "TDIS-TYPE"] {
            let folder = tempfile::tempdir().expect("a temporary directory");
            fs::write(folder.path().join("dump.rdb"), snapshot_of(other)).expect("the snapshot is written");
            let log = Server::with(program).line(&format!("dir {}", folder.path().display())).refuses_to_start();
            assert!(log.contains(other), "{other}: {log}");
        }
    });
}

// Data of encoding 3, whose hash had seeds of 32 bits or of 64, depending on the release. The width is not recorded.

/// As RedisBloom of today, which hashes with seeds of 64 bits, would find the items: `k` without the mark of unknown seeds.
fn found_by_todays_hash(client: &mut Connection, key: &str, names: &[String]) -> usize {
    let (type_number, mut fields) = fields_of_payload(&dump(client, key)).expect("a module's value");
    let Uint(options) = &mut fields[2] else { panic!("no options: {fields:?}") };
    assert_eq!(*options >> 31, 1, "the mark");
    *options &= (1 << 31) - 1;
    client.run("DEL today");
    assert_eq!(testing::restore(client, "today", &payload_of_type(type_number, &fields)), ok());
    client.batched(&[b"BF.MEXISTS", b"today"], names).into_iter().filter(|found| *found).count()
}

/// Members are found whichever seeds the release used, new items are added with today's seeds, and the operator sees both hashes.
#[test]
fn filters_of_unknown_seeds_are_looked_up_with_both_and_added_to_with_todays() {
    with_client(|server, client| {
        let names = |prefix: &str, count| (0..count).map(|number| format!("{prefix}:{number}")).collect::<Vec<_>>();
        for release in OF_ENCODING_3 {
            let (golden, of_release) = of_encoding_3(release);
            restore(server, "restored", &golden.payload);
            load_chunks(server, "loaded", &golden.chunks);
            for key in ["restored", "loaded"] {
                let found = client.batched(&[b"BF.MEXISTS", key.as_bytes()], &names("absent", 2000));
                let found: Vec<u64> = (0..).zip(found).filter(|(_, found)| *found).map(|(number, _)| number).collect();
                assert!(of_release.iter().all(|number| found.contains(number)) && found.len() < 8, "{found:?}");
                assert!(!client.batched(&[b"BF.MEXISTS", key.as_bytes()], &items(0, 60)).contains(&false), "{release}");
                assert!(!client.batched(&[b"BF.MADD", key.as_bytes()], &items(0, 60)).contains(&true), "{release}");
            }
            let of_64_bits = if release == "v2.0.0" { 0..20 } else { 60..61 };
            assert!(of_64_bits.contains(&found_by_todays_hash(client, "loaded", &items(0, 60))), "{release}");
            client.batched(&[b"BF.MADD", b"loaded"], &names("more", 500));
            let all = [items(0, 60), names("more", 500)].concat();
            assert!(!client.batched(&[b"BF.MEXISTS", b"loaded"], &all).contains(&false), "{release}");
            // A few were found under the other hash, so they were not added.
            assert!(found_by_todays_hash(client, "loaded", &names("more", 500)) > 480, "{release}");

            client.batched(&[b"BF.MADD", b"restored"], &names("fill", 46));
            let stats = client.run("BF.STATS restored");
            assert_eq!(stats.field("Hash").text(), "murmur2-either-seed");
            // The rate over 50,000 absent names equals the estimate, to which each of the two hashes contributes half.
            let found = client.batched(&[b"BF.MEXISTS", b"restored"], &names("stranger", 50_000));
            let measured = found.iter().filter(|found| **found).count() as f64;
            let ratio = measured / 50_000.0 / stats.field("Error rate now").fraction();
            assert!((0.8..1.25).contains(&ratio), "{release}: {measured} of 50,000 strangers");
            let under_one = found_by_todays_hash(client, "restored", &names("stranger", 50_000)) as f64;
            assert!(under_one < 0.7 * measured, "{release}: {under_one} under one hash");
            client.run("DEL restored loaded");
        }
        client.run("BF.RESERVE k 0.01 100 LAYOUT redisbloom");
        assert_eq!(client.run("BF.STATS k").field("Hash").text(), "murmur2");
    });
}
