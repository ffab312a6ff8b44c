//! What version 0.1.0 wrote loads for ever: the files of `tests/data/native`, brought in by every way there is. What comes
//! answers as it did, and is written again as the same bytes.

use std::fs;
use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use serde_json::Value;

use crate::harness::{Connection, Reply, Server, array, bulk, error, integer, ok, on_every_server, rewritten_commands};
use crate::persistence::rewrite_append_only_file;
use crate::redisbloom::golden::{items, start_on_commands, start_on_snapshot};

/// A record of BF.SCANDUMP: iterator and data.
type Record = (u64, Vec<u8>);

/// A filter of version 0.1.0, and what it answered.
struct Golden {
    key: String,
    entry: Value,
    /// What BF.SCANDUMP gave; of a filter that is arriving, what has come.
    records: Vec<Record>,
}

fn file(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/native").join(name);
    let mut bytes = Vec::new();
    GzDecoder::new(fs::File::open(path).expect("a file of the data"))
        .read_to_end(&mut bytes)
        .expect("a sound gzip file");
    bytes
}

fn filters() -> Vec<Golden> {
    let expected: Value = serde_json::from_slice(&file("expected.json.gz")).expect("JSON");
    let read = |(key, entry): (&String, &Value)| {
        let list = entry.get("scandump_b64").or_else(|| entry.get("loaded_b64")).expect("records");
        Golden { key: key.clone(), entry: entry.clone(), records: records(list) }
    };
    let filters: Vec<Golden> = expected.as_object().expect("an object").iter().map(read).collect();
    assert_eq!(filters.len(), 9);
    filters
}

fn records(list: &Value) -> Vec<Record> {
    let record = |pair: &Value| (pair[0].as_u64().expect("a number"), decoded(&pair[1]));
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

fn without_generations(records: &[Record]) -> Vec<Record> {
    records.iter().map(without_generation).collect()
}

/// All records of a filter.
fn dumped(client: &mut Connection, key: &str) -> Vec<Record> {
    let mut records = Vec::new();
    let mut iterator = 0;
    loop {
        let reply = client.run(&format!("BF.SCANDUMP {key} {iterator}"));
        iterator = reply.elements()[0].number().unsigned_abs();
        if iterator == 0 {
            return records;
        }
        records.push((iterator, reply.elements()[1].bytes().to_vec()));
    }
}

/// A DUMP payload without what the server puts after the value: its version of the format and a checksum.
fn value_of(payload: &[u8]) -> &[u8] {
    &payload[..payload.len() - 10]
}

fn load(client: &mut Connection, key: &str, records: &[Record]) {
    for (iterator, data) in records {
        let iterator = iterator.to_string();
        let words: [&[u8]; 4] = [b"BF.LOADCHUNK", key.as_bytes(), iterator.as_bytes(), data];
        assert_eq!(client.call(&words), ok(), "{key}: record {iterator}");
    }
}

impl Golden {
    fn is_arriving(&self) -> bool {
        self.entry.get("to_come_b64").is_some()
    }

    fn number(&self, name: &str) -> usize {
        self.entry[name].as_u64().expect("a number") as usize
    }

    fn numbers(&self, name: &str) -> Vec<usize> {
        let list = self.entry[name].as_array().expect("a list");
        list.iter().map(|number| number.as_u64().expect("a number") as usize).collect()
    }

    /// What is under a key is this filter, and is written as the same bytes.
    fn check(&self, client: &mut Connection, at: &str) {
        let digest = self.entry["debug_digest_value"].as_str().expect("a digest");
        assert_eq!(client.run(&format!("DEBUG DIGEST-VALUE {at}")), digests([digest]), "{}", self.key);
        if self.is_arriving() {
            assert_eq!(client.run(&format!("BF.CARD {at}")), error("ERR filter is still being loaded"));
        } else {
            self.check_answers(client, at);
            assert!(
                without_generations(&dumped(client, at)) == without_generations(&self.records),
                "{}: BF.SCANDUMP gives other records",
                self.key
            );
        }
        // Whether bits are compressed, and how, is the server's affair.
        assert_eq!(client.run("CONFIG SET rdbcompression no"), ok());
        let payload = client.run(&format!("DUMP {at}"));
        let golden = decoded(&self.entry["dump_uncompressed_b64"]);
        assert!(value_of(payload.bytes()) == value_of(&golden), "{}: DUMP gives other bytes", self.key);
    }

    fn check_answers(&self, client: &mut Connection, at: &str) {
        let present = client.batched(&[b"BF.MEXISTS", at.as_bytes()], &items(0, self.number("items_offered")));
        let missing: Vec<usize> = (0..present.len()).filter(|&number| !present[number]).collect();
        assert_eq!(missing, self.numbers("missing"), "{}: items that are not in", self.key);
        let strangers: Vec<String> = (0..2000).map(|number| format!("absent:{number}")).collect();
        let present = client.batched(&[b"BF.MEXISTS", at.as_bytes()], &strangers);
        let wrong: Vec<usize> = (0..present.len()).filter(|&number| present[number]).collect();
        assert_eq!(wrong, self.numbers("absent_that_exist_below_2000"), "{}: false positives", self.key);
        assert_eq!(client.run(&format!("BF.CARD {at}")), integer(self.number("card") as i64), "{}", self.key);
        let info = client.run(&format!("BF.INFO {at}"));
        for name in ["Capacity", "Number of filters", "Number of items inserted", "Expansion rate"] {
            let golden = self.entry["info"][name].as_i64().map_or(Reply::NullBulk, integer);
            assert_eq!(info.field(name), &golden, "{}: {name}", self.key);
        }
    }
}

fn digests<const N: usize>(digests: [&str; N]) -> Reply {
    array(digests.map(|digest| Reply::Simple(digest.to_owned())))
}

#[test]
fn payloads_of_0_1_0_are_restored() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for golden in filters() {
            for form in ["dump_b64", "dump_uncompressed_b64"] {
                let payload = decoded(&golden.entry[form]);
                let words: [&[u8]; 5] = [b"RESTORE", b"k", b"0", &payload, b"REPLACE"];
                assert_eq!(client.call(&words), ok(), "{}", golden.key);
                golden.check(&mut client, "k");
            }
        }
    });
}

#[test]
fn records_of_0_1_0_are_loaded() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for golden in filters() {
            load(&mut client, &golden.key, &golden.records);
            golden.check(&mut client, &golden.key);
            if golden.is_arriving() {
                load(&mut client, &golden.key, &records(&golden.entry["to_come_b64"]));
                let becomes = golden.entry["becomes"].as_str().expect("a key");
                let whole = filters().into_iter().find(|other| other.key == becomes).expect("a key of the data");
                whole.check(&mut client, &golden.key);
            } else {
                // A filter that came in records has the generation of its dump.
                assert!(dumped(&mut client, &golden.key) == golden.records);
            }
        }
    });
}

#[test]
fn a_snapshot_of_0_1_0_loads() {
    on_every_server(|program| {
        let server = start_on_snapshot(program, &[], &file("snapshot.rdb.gz"));
        check_all(&mut server.connect());
    });
}

#[test]
fn append_only_files_of_0_1_0_load_and_are_rewritten_as_they_were() {
    on_every_server(|program| {
        for name in ["plain.aof.gz", "rewritten.aof.gz"] {
            let server = start_on_commands(program, &[], &file(name));
            let mut client = server.connect();
            check_all(&mut client);
            rewrite_append_only_file(&mut client);
            let commands = rewritten_commands(&server);
            for golden in filters() {
                let own = commands.iter().filter(|words| words[1] == golden.key.as_bytes());
                let records: Vec<Record> = own.map(|words| record_of(words)).collect();
                assert!(
                    without_generations(&records) == without_generations(&golden.records),
                    "{name}: {} is rewritten in another way",
                    golden.key
                );
            }
        }
    });
}

fn record_of(words: &[Vec<u8>]) -> Record {
    assert_eq!(Reply::Bulk(words[0].clone()), bulk("BF.LOADCHUNK"));
    let iterator = std::str::from_utf8(&words[2]).expect("digits").parse().expect("a number");
    (iterator, words[3].clone())
}

fn check_all(client: &mut Connection) {
    assert_eq!(client.run("DBSIZE"), integer(9));
    for golden in filters() {
        golden.check(client, &golden.key);
    }
}
