//! Writes the golden data of a new release. The data of a release is never written again.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};

use crate::persistence::rewrite_append_only_file;
use crate::redisbloom::golden::items;
use testing::{
    Connection, Record, Reply, digest, dump, load_records, newest, ok, records, servers, with_append_only_file,
};

/// What happens to a filter after its creation: a command, and the numbers of its items.
type Step = (&'static str, Range<usize>);

const ADD: &str = "BF.MADD";
const DELETE: &str = "BF.MDEL";
const ROTATE: Step = ("BF.ROTATE", 0..0);

/// The filters: the key, the words of BF.RESERVE after it, and the steps. Windows last 95 years, so that the data does not expire.
const FILTERS: [(&str, &str, &[Step]); 15] = [
    ("defaults", "0.01 100", &[(ADD, 0..1000)]),
    ("loose", "0.25 1000 SEED 0 EXPANSION 1", &[(ADD, 0..2500)]),
    ("keyed", "0.001 500 HASH siphash SEED 000102030405060708090a0b0c0d0e0f", &[(ADD, 0..2000)]),
    ("keyed-deleted", "0.01 1000 HASH siphash", &[(ADD, 0..1500), (DELETE, 0..100), (ADD, 0..40)]),
    ("counting", "0.01 1000 COUNTING", &[(ADD, 0..700), (ADD, 0..200), (DELETE, 100..300)]),
    ("counting-keyed", "0.001 500 COUNTING HASH siphash", &[(ADD, 0..400), (DELETE, 0..50)]),
    ("counting-full", "0.2 40 COUNTING", &[(ADD, 0..60)]),
    ("rolling", "0.01 500 ROLLING", &[(ADD, 0..1500)]),
    (
        "rolling-deleted",
        "0.01 2000 ROLLING HASH siphash BUCKETS 4",
        &[(ADD, 0..600), ROTATE, (ADD, 600..1000), (DELETE, 0..50)],
    ),
    ("windowed", "0.01 300 WINDOW 3000000000", &[(ADD, 0..300), ROTATE, (ADD, 300..900)]),
    (
        "windowed-fixed",
        "0.001 700 WINDOW 3000000000 NONSCALING BUCKETS 3",
        &[(ADD, 0..400), ROTATE, (ADD, 400..800), ROTATE, (ADD, 800..900)],
    ),
    ("windowed-deleted", "0.01 2000 WINDOW 3000000000 HASH siphash", &[(ADD, 0..600), ROTATE, (DELETE, 0..50)]),
    ("sliding", "0.01 1000 WINDOW 3000000000 SLIDING", &[(ADD, 0..600), ROTATE, (ADD, 0..300)]),
    (
        "sliding-deleted",
        "0.01 1000 WINDOW 3000000000 SLIDING HASH siphash BUCKETS 5",
        &[(ADD, 0..600), ROTATE, (ADD, 0..100), (DELETE, 50..120)],
    ),
    (DUMPED, "0.0001 1000000 NONSCALING HASH siphash", &[(ADD, 0..500), (DELETE, 0..20)]),
];

/// The filter whose dump another one has received in part.
const DUMPED: &str = "dumped";

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
            let words: Vec<&str> = [*command, key].into_iter().chain(items.iter().map(String::as_str)).collect();
            assert!(!client.call(&words).is_error(), "{words:?}");
        }
        let mut entry = facts(&mut client, key, steps);
        entry["created_by"] = json!(format!("BF.RESERVE {key} {words}").split(' ').collect::<Vec<_>>());
        entry["scandump_b64"] = encoded(&records(&mut client, key));
        expected.insert(key.to_owned(), entry);
    }
    let records = records(&mut client, DUMPED);
    let (loaded, to_come) = records.split_at(records.len() / 2);
    load_records(&mut client, "arriving", loaded);
    let mut entry = payloads(&mut client, "arriving");
    entry["becomes"] = json!(DUMPED);
    entry["items_offered"] = json!(0);
    entry["loaded_b64"] = encoded(loaded);
    entry["to_come_b64"] = encoded(to_come);
    expected.insert("arriving".to_owned(), entry);

    write(folder, "expected.json.gz", &serde_json::to_vec(&expected).expect("JSON"));
    assert_eq!(client.run("SAVE"), ok());
    write(folder, "snapshot.rdb.gz", &fs::read(server.folder().join("dump.rdb")).expect("the snapshot"));
    write(folder, "plain.aof.gz", &fs::read(newest(&server, ".incr.aof")).expect("the append-only file"));
    rewrite_append_only_file(&mut client);
    write(folder, "rewritten.aof.gz", &fs::read(newest(&server, ".base.aof")).expect("the append-only file"));
}

/// What the server answers about a filter.
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
