//! Filters that RedisBloom made, and what it answered about them: `tests/data/redisbloom` read into values, and the one
//! check that every way into the server has to pass.

use std::fs;
use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use serde_json::Value;

use super::model::{Model, Seeds};
use super::payload::snapshot_of_value;
use crate::golden::{self, Source};
use crate::growth;
use testing::{Record, Reply, Server, array, integer, load_records, ok, simple, value_of, with_fixed_checksum};

/// Every release that data is there of.
pub const RELEASES: [&str; 4] = ["1.0.0", "1.1.1", "2.2.0", "2.6.28"];

/// The release whose data has seeds of 32 bits: the library that made it called the server's hash in place of its own.
pub const NARROW: &str = "1.1.1";

/// The release with BF.INFO, SCANDUMP pairs and an append-only file.
pub const TODAY: &str = "2.6.28";

/// The releases of `encoding-3.json`, each built by its own Makefile, and the seeds of its hash.
pub const OF_ENCODING_3: [(&str, Seeds); 3] =
    [("v1.1.1", Seeds::Of64Bits), ("v2.0.0", Seeds::Of32Bits), ("v2.0.3", Seeds::Of64Bits)];

/// How many items that were never added the data has answers for.
const STRANGERS: usize = 20_000;

/// One filter of RedisBloom's.
pub struct Golden {
    pub key: String,
    /// The words after the key in BF.RESERVE; none where BF.MADD created the filter.
    pub reserve: Option<Vec<String>>,
    /// `item:0` to `item:offered-1` were added.
    pub offered: usize,
    /// How many of them were new.
    pub answered: i64,
    missing: Vec<usize>,
    false_positives: Vec<usize>,
    debug: Vec<String>,
    /// RedisBloom's own BF.INFO, where the data has it.
    info: Option<[Option<i64>; 5]>,
    /// What DUMP gave.
    pub payload: Vec<u8>,
    /// What BF.SCANDUMP gave: iterators and data.
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
        // It had one hash only and did not say which.
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

/// The filter of a release of [`OF_ENCODING_3`]. Its members are `item:0` to `item:59`. Also returns which of `absent:0` to
/// `absent:1999` the release called present.
pub fn of_encoding_3(release: &str) -> (Golden, Vec<u64>) {
    let expected: Value = serde_json::from_slice(&file("encoding-3.json")).expect("JSON");
    let entry = &expected[release];
    let payload = payload(release, entry);
    let model = Model::of_payload(&payload).1;
    let golden = Golden {
        key: release.to_owned(),
        reserve: None,
        offered: 60,
        answered: 60,
        missing: Vec::new(),
        // The data has answers for fewer names. They follow from the model.
        false_positives: Vec::new(),
        debug: model.debug(),
        info: None,
        payload,
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
    // A module's value, then the version of the format (10, as Redis 7.0 has it) and room for the checksum.
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
    /// Which of `absent:0` to `absent:19999` RedisBloom calls present.
    pub fn false_positives(&self) -> &[usize] {
        &self.false_positives
    }

    /// The same of this module, which looks items up under two hashes where nothing says which one RedisBloom used.
    fn false_positives_here(&self) -> Vec<usize> {
        let model = self.model();
        let others = (0..STRANGERS).filter(|number| model.contains(format!("absent:{number}").as_bytes()));
        let here = if model.either_seeds { others.collect() } else { self.false_positives.clone() };
        assert!(self.false_positives.iter().all(|number| here.contains(number)), "{}", self.key);
        here
    }

    /// The lines of BF.DEBUG.
    pub fn debug(&self) -> &[String] {
        &self.debug
    }

    /// The same filter, worked out from its payload.
    pub fn model(&self) -> Model {
        Model::of_payload(&self.payload).1
    }

    /// Asks a server everything that the data has an answer to.
    pub fn check(&self, server: &Server, at: &str) {
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            assert_eq!(client.run(&format!("TYPE {at}")), simple("MBbloom--"));
            assert_eq!(client.run(&format!("BF.INFO {at}")), self.info_reply(protocol), "{at}");
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
            assert_eq!(lines, self.debug, "BF.DEBUG {at}");

            let present = client.batched(&[b"BF.MEXISTS", at.as_bytes()], &items(0, self.offered));
            let missing: Vec<usize> = (0..present.len()).filter(|&number| !present[number]).collect();
            assert_eq!(missing, self.missing, "{at}: items that are not in");
            let strangers: Vec<String> = (0..STRANGERS).map(|number| format!("absent:{number}")).collect();
            let present = client.batched(&[b"BF.MEXISTS", at.as_bytes()], &strangers);
            let wrong: Vec<usize> = (0..present.len()).filter(|&number| present[number]).collect();
            assert_eq!(wrong, self.false_positives_here(), "{at}: false positives");
        }
    }

    fn info(&self) -> [Option<i64>; 5] {
        self.info.unwrap_or_else(|| self.model().info())
    }

    fn info_reply(&self, protocol: u8) -> Reply {
        info_reply(self.info(), protocol)
    }
}

/// RedisBloom's BF.INFO.
pub fn info_reply(values: [Option<i64>; 5], protocol: u8) -> Reply {
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

/// Everything that a release made.
pub fn source(release: &'static str) -> Source {
    let filters = filters(release).into_iter().map(|filter| Box::new(filter) as Box<dyn golden::Golden>).collect();
    let append_only_files = if release == TODAY { vec![file("redisbloom-2.6.28.aof")] } else { Vec::new() };
    Source { name: release, snapshot: snapshot(release), append_only_files, filters }
}

/// The filter of a release of [`OF_ENCODING_3`].
pub fn source_of_encoding_3((release, _): (&'static str, Seeds)) -> Source {
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

    fn check(&self, server: &Server, at: &str) {
        Self::check(self, server, at);
    }

    fn model(&self) -> Option<Box<dyn growth::Model>> {
        Some(Box::new(Self::model(self)))
    }

    fn sizes(&self) -> Option<[usize; 4]> {
        let model = self.model();
        let bytes = model.layers.iter().map(|layer| layer.bytes.len()).sum();
        Some([bytes, model.layers.len(), model.items as usize, model.info()[0]? as usize])
    }
}
