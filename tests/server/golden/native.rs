//! Filters that earlier releases of ours made.

use std::fs;
use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use serde_json::Value;

use super::{Golden, Source, as_commands};
use crate::redisbloom;
use testing::{
    Connection, Record, Reply, Server, array, digest, error, integer, load_records, ok, on_every_server, records,
    value_of,
};

/// An earlier release of ours, whose data is in `tests/data/native-<name>`.
pub struct Release {
    pub name: &'static str,
    filters: usize,
}

/// Every release of which there is data.
pub const RELEASES: [Release; 2] = [Release { name: "0.1.0", filters: 9 }, Release { name: "0.2.0", filters: 16 }];

/// A filter of a release, and what it answered.
struct Native {
    key: String,
    entry: Value,
    /// What BF.SCANDUMP gave; of a filter that is arriving, what has come.
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
        GzDecoder::new(fs::File::open(path).expect("a file of the data"))
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

/// A record without the generation of its filter, which is another one each time: without the top of the iterator, and
/// without a chunk's checksum, which is of the iterator as well.
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
        redisbloom::golden::items(0, self.entry["items_offered"].as_u64().expect("a number") as usize)
    }

    fn payloads(&self) -> Vec<Vec<u8>> {
        ["dump_b64", "dump_uncompressed_b64"].map(|form| decoded(&self.entry[form])).into()
    }

    fn commands(&self, key: &str) -> Vec<Vec<Vec<u8>>> {
        as_commands(key, &self.records)
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
        // Whether bits are compressed, and how, is the server's affair.
        assert_eq!(client.run("CONFIG SET rdbcompression no"), ok());
        let payload = client.run(&format!("DUMP {at}"));
        let golden = decoded(&self.entry["dump_uncompressed_b64"]);
        assert!(value_of(payload.bytes()) == value_of(&golden), "{}: DUMP gives other bytes", self.key);
        assert_eq!(client.run("CONFIG SET rdbcompression yes"), ok());
    }
}

#[test]
fn a_filter_that_was_arriving_arrives() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for filters in RELEASES.iter().map(Release::filters) {
            let arriving = filters.iter().find(|filter| filter.is_arriving()).expect("a filter that is arriving");
            load_records(&mut client, "k", &arriving.records);
            load_records(&mut client, "k", &records_of(&arriving.entry["to_come_b64"]));
            let becomes = arriving.entry["becomes"].as_str().expect("a key");
            let whole = filters.iter().find(|filter| filter.key == becomes).expect("a key of the data");
            whole.check(&server, "k");
            // A filter that came in records has the generation of its dump.
            for filter in filters.iter().filter(|filter| !filter.is_arriving()) {
                load_records(&mut client, "copy", &filter.records);
                assert!(records(&mut client, "copy") == filter.records, "{}", filter.key);
                client.run("DEL copy");
            }
            client.run("DEL k");
        }
    });
}
