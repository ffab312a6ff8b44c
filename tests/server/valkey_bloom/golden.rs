//! Filters made by valkey-bloom, with all answers of its server (`tests/data/valkey_bloom`), and the ways to load them into our server.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde_json::Value;

use crate::golden::{self, Source};
use testing::{Builder, Connection, Reply, Server, Version, dump, integer, ok, simple, value_of};

/// The ceiling under which the golden answers were recorded.
pub const THEIR_CEILING: &str = "bf.bloom-memory-usage-limit 134217728";

/// Names that were never added to any golden filter.
const STRANGERS: usize = 20_000;

/// One filter made by valkey-bloom.
pub struct Golden {
    pub key: String,
    pub items: Vec<String>,
    /// Which of `absent:0` to `absent:19999` are false positives.
    pub false_positives: Vec<usize>,
    pub info: Value,
    pub card: i64,
    pub dump: Vec<u8>,
    pub dump_uncompressed: Vec<u8>,
    /// The argument of BF.LOAD.
    pub payload: Vec<u8>,
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/valkey_bloom").join(name)
}

/// A compressed file, unpacked.
pub fn unpacked(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = File::open(path(name)).unwrap_or_else(|fault| panic!("{name}: {fault}"));
    GzDecoder::new(file).read_to_end(&mut bytes).expect("a gzip file");
    bytes
}

/// The recorded stream of commands: `steps` and `keys_after`.
pub fn stream() -> Value {
    serde_json::from_slice(&fs::read(path("stream.json")).expect("stream.json")).expect("JSON")
}

/// Bytes written in base64.
pub fn decoded(text: &Value) -> Vec<u8> {
    STANDARD.decode(text.as_str().expect("a string")).expect("base64")
}

/// All filters made by valkey-bloom.
pub fn goldens() -> Vec<Golden> {
    let all: Value = serde_json::from_slice(&unpacked("expected.json.gz")).expect("JSON");
    let all = all.as_object().expect("an object");
    assert_eq!(all.len(), 8);
    all.iter().map(|(key, facts)| Golden::read(key, facts)).collect()
}

impl Golden {
    fn read(key: &str, facts: &Value) -> Self {
        assert_eq!(facts["missing"].as_array().expect("a list").len(), 0);
        assert_eq!(facts["type"], "bloomfltr");
        let offered = facts["items_offered"].as_u64().expect("a number");
        let positives = facts["absent_that_exist_below_20000"].as_array().expect("a list");
        Self {
            key: key.to_owned(),
            items: (0..offered).map(|number| format!("item:{number}")).collect(),
            false_positives: positives.iter().map(|number| number.as_u64().expect("a number") as usize).collect(),
            info: facts["info"].clone(),
            card: facts["card"].as_i64().expect("a number"),
            dump: decoded(&facts["dump_b64"]),
            dump_uncompressed: decoded(&facts["dump_uncompressed_b64"]),
            payload: decoded(&facts["bf_load_b64"]),
        }
    }

    /// Sends every recorded query about the filter at `key`, and compares the answers.
    pub fn assert_is_at(&self, client: &mut Connection, key: &str) {
        let head: [&[u8]; 2] = [b"BF.MEXISTS", key.as_bytes()];
        let known = client.batched(&head, &self.items);
        assert_eq!(known.iter().filter(|&&found| !found).count(), 0, "{key} denies items that are in it");
        let strangers: Vec<String> = (0..STRANGERS).map(|number| format!("absent:{number}")).collect();
        let found = client.batched(&head, &strangers);
        let found: Vec<usize> = (0..STRANGERS).filter(|&number| found[number]).collect();
        assert_eq!(found, self.false_positives, "{key}: which strangers are found");
        assert_eq!(client.run(&format!("BF.CARD {key}")), integer(self.card), "{key}");
        assert_eq!(client.run(&format!("TYPE {key}")), simple("bloomfltr"), "{key}");
        assert_info(client, key, &self.info);
        for (compression, payload) in [("no", &self.dump_uncompressed), ("yes", &self.dump)] {
            client.run(&format!("CONFIG SET rdbcompression {compression}"));
            assert!(value_of(&dump(client, key)) == value_of(payload), "DUMP of {key} is not theirs");
        }
    }
}

/// Compares BF.INFO in RESP2 with valkey-bloom's, element by element. The latter was recorded on Redis 7.0, with its 17 digits.
pub fn assert_info(client: &mut Connection, key: &str, theirs: &Value) {
    let server = Version::of_server(client);
    let ours: Vec<Value> = client
        .run(&format!("BF.INFO {key}"))
        .elements()
        .iter()
        .map(|element| match element {
            Reply::Integer(number) => Value::from(*number),
            Reply::NullBulk => Value::Null,
            other => Value::from(other.text()),
        })
        .collect();
    let double = |text: &str| text.parse().map_or(text.to_owned(), |number| server.double(number));
    let theirs: Vec<Value> = theirs
        .as_array()
        .expect("an array")
        .iter()
        .map(|element| element.as_str().map_or(element.clone(), |text| Value::from(double(text))))
        .collect();
    assert_eq!(ours, theirs, "BF.INFO {key}");
}

/// BF.LOAD.
pub fn load(client: &mut Connection, key: &str, payload: &[u8]) -> Reply {
    client.call(&[b"BF.LOAD".as_slice(), key.as_bytes(), payload])
}

/// Starts a server with every golden filter, each loaded by BF.LOAD.
pub fn server_with_goldens(builder: Builder) -> (Server, Connection, Vec<Golden>) {
    let server = builder.line(THEIR_CEILING).start();
    let mut client = server.connect();
    let goldens = goldens();
    for golden in &goldens {
        assert_eq!(load(&mut client, &golden.key, &golden.payload), ok(), "{}", golden.key);
    }
    (server, client, goldens)
}

/// All filters made by valkey-bloom.
pub fn source() -> Source {
    Source {
        name: "valkey-bloom",
        snapshot: unpacked("snapshot.rdb.gz"),
        append_only_files: vec![unpacked("rewritten.aof.gz")],
        filters: goldens().into_iter().map(|filter| Box::new(filter) as Box<dyn golden::Golden>).collect(),
    }
}

impl golden::Golden for Golden {
    fn key(&self) -> &str {
        &self.key
    }

    fn items(&self) -> Vec<String> {
        self.items.clone()
    }

    fn payloads(&self) -> Vec<Vec<u8>> {
        vec![self.dump.clone(), self.dump_uncompressed.clone()]
    }

    fn commands(&self, key: &str) -> Vec<Vec<Vec<u8>>> {
        vec![vec![b"BF.LOAD".into(), key.into(), self.payload.clone()]]
    }

    fn check(&self, server: &Server, at: &str) {
        self.assert_is_at(&mut server.connect(), at);
    }

    fn sizes(&self) -> Option<[usize; 4]> {
        let [capacity, layers] = [1, 5].map(|place| self.info[place].as_u64().expect("a number") as usize);
        // The payload has 30 bytes, and with each layer 69 bytes besides its bits.
        Some([self.payload.len() - 30 - 69 * layers, layers, self.card as usize, capacity])
    }
}
