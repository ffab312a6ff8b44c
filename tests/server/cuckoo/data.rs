//! Filters made by RedisBloom, which are loaded in every way there is, and give its answers, its records and its payloads, also after more
//! commands.

use std::fs;
use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use serde_json::Value;

use super::THEIR_LAYOUT;
use crate::redisbloom::words::TheirPrimary;
use testing::{
    Connection, Reply, Server, Stop, array, catch_up, digest, dump, error, eventually, follow, integer, nil, ok,
    on_every_server, restore, rewritten_commands, simple, start_on_commands, start_on_snapshot, value_of, with_client,
    with_fixed_checksum,
};

/// A file of the data, unpacked.
pub fn file(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/redisbloom-cuckoo");
    let file = fs::File::open(folder.join(format!("{name}.gz"))).expect("a file of the data");
    let mut bytes = Vec::new();
    GzDecoder::new(file).read_to_end(&mut bytes).expect("a sound gzip file");
    bytes
}

/// The entries of all keys.
fn entries() -> Vec<(String, Value)> {
    let expected: Value = serde_json::from_slice(&file("expected.json")).expect("JSON");
    expected.as_object().expect("an object").iter().map(|(key, entry)| (key.clone(), entry.clone())).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn decoded(value: &Value) -> Vec<u8> {
    BASE64_STANDARD.decode(value.as_str().expect("a string")).expect("base64")
}

/// A payload of DUMP for servers of all versions: with the version of Redis 7.0.
fn payload(entry: &Value) -> Vec<u8> {
    let payload = decoded(&entry["dump"]);
    with_fixed_checksum([value_of(&payload), &[10, 0], &[0; 8]].concat())
}

fn reply(value: &Value) -> Reply {
    match value {
        Value::Number(number) => integer(number.as_i64().expect("an integer")),
        Value::Array(values) => array(values.iter().map(reply).collect::<Vec<_>>()),
        text => {
            let text = text.as_str().expect("a string");
            text.strip_prefix("error: ").map_or_else(|| simple(text), error)
        }
    }
}

/// Runs the commands of an entry, which must give RedisBloom's replies.
fn run(client: &mut Connection, key: &str, entry: &Value) {
    for (words, expected) in list(&entry["commands"]).iter().zip(list(&entry["replies"])) {
        let name = list(words)[0].as_str().expect("a command");
        let mut command = vec![name.as_bytes().to_vec(), key.as_bytes().to_vec()];
        command.extend(list(words)[1..].iter().map(decoded));
        assert_eq!(client.call(&command), reply(expected), "{key}: {words}");
    }
}

/// Compares the state of a filter with an entry.
fn assert_state(client: &mut Connection, key: &str, entry: &Value) {
    assert_eq!(client.run(&format!("CF.INFO {key}")), reply(&entry["info_resp2"]), "{key}");
    let mut records = Vec::new();
    loop {
        let iterator = records.last().map_or(0, |(iterator, _): &(i64, Vec<u8>)| *iterator);
        let next = client.run(&format!("CF.SCANDUMP {key} {iterator}"));
        let [iterator, data] = next.elements() else { panic!("{next:?}") };
        if iterator.number() == 0 {
            assert_eq!(data, &nil(2));
            break;
        }
        records.push((iterator.number(), data.bytes().to_vec()));
    }
    let expected = list(&entry["scandump"]);
    let expected: Vec<_> =
        expected.iter().map(|pair| (pair[0].as_i64().expect("an iterator"), decoded(&pair[1]))).collect();
    assert!(records == expected, "{key}: the records");
}

/// Compares every answer about every filter with RedisBloom's, also after its further commands.
fn assert_as_theirs(client: &mut Connection) {
    for (key, entry) in entries() {
        assert_state(client, &key, &entry);
        assert_eq!(client.run(&format!("CF.DEBUG {key}")).text(), entry["debug"].as_str().expect("a line"));
        assert_eq!(client.run(&format!("TYPE {key}")).text(), "MBbloomCF");
        assert!(value_of(&dump(client, &key)) == value_of(&decoded(&entry["dump"])), "{key}: the payload");
        let items: Vec<Vec<u8>> = list(&entry["items"]).iter().map(decoded).collect();
        for (index, item) in items.iter().enumerate() {
            let exists = entry["exists"].as_str().expect("digits").as_bytes()[index] - b'0';
            assert_eq!(client.call(&[b"CF.EXISTS", key.as_bytes(), item]), integer(exists.into()), "{key} {index}");
            let count = client.call(&[b"CF.COUNT", key.as_bytes(), item]);
            assert_eq!(count, reply(&entry["count"][index]), "{key} {index}");
        }
        let absent: Vec<String> = (0..5000).map(|number| format!("absent:{number}")).collect();
        let answers = client.batched(&[b"CF.MEXISTS", key.as_bytes()], &absent);
        let found: Vec<u64> = (0..).zip(&answers).filter(|(_, is_in)| **is_in).map(|(number, _)| number).collect();
        let expected = list(&entry["absent_that_exist_below_5000"]);
        assert_eq!(found, expected.iter().map(|number| number.as_u64().unwrap()).collect::<Vec<_>>(), "{key}");

        run(client, &key, &entry["afterwards"]);
        assert_state(client, &key, &entry["afterwards"]);
    }
}

#[test]
fn a_snapshot_is_loaded_and_saved_again() {
    on_every_server(|program| {
        let mut server = start_on_snapshot(program, &[], &file("redisbloom-2.6.rdb"));
        server.restart(Stop::Save);
        assert_as_theirs(&mut server.connect());
    });
}

#[test]
fn a_snapshot_of_release_8_is_loaded_by_the_servers_that_read_it() {
    let snapshot = file("redisbloom-8.rdb");
    on_every_server(|program| {
        let mut server = Server::start(program);
        // Valkey reports 7.2.4.
        let reads = server.connect().info("redis_version").starts_with('8');
        if reads {
            server.end();
            assert_as_theirs(&mut start_on_snapshot(program, &[], &snapshot).connect());
        }
    });
}

#[test]
fn files_of_commands_are_loaded() {
    on_every_server(|program| {
        for name in ["stream.aof", "rewritten.aof"] {
            let commands = file(name);
            assert_as_theirs(&mut start_on_commands(program, &[], &commands).connect());
        }
    });
}

#[test]
fn a_rewritten_file_of_ours_is_theirs() {
    on_every_server(|program| {
        let mut server = start_on_commands(program, &["auto-aof-rewrite-percentage 0"], &file("rewritten.aof"));
        let mut client = server.connect();
        client.run("BGREWRITEAOF");
        eventually("the rewrite", || !client.has_rewrite());
        let mut ours = rewritten_commands(&server);
        let mut theirs = testing::commands_of(&file("rewritten.aof"));
        ours.sort();
        theirs.sort();
        assert!(ours == theirs, "{} and {} records", ours.len(), theirs.len());
        server.restart(Stop::NoSave);
        assert_as_theirs(&mut server.connect());
    });
}

#[test]
fn payloads_are_restored() {
    with_client(|_, client| {
        for (key, entry) in entries() {
            assert_eq!(restore(client, &key, &payload(&entry)), ok(), "{key}");
            assert_eq!(client.run(&format!("COPY {key} copy")), integer(1));
            assert_eq!(digest(client, &key), digest(client, "copy"), "{key}");
            assert_eq!(client.run(&format!("DEL {key}")), integer(1));
            assert_eq!(client.run(&format!("RENAME copy {key}")), ok());
        }
        assert_as_theirs(client);
    });
}

#[test]
fn dumps_are_loaded_record_by_record() {
    with_client(|_, client| {
        client.run(THEIR_LAYOUT);
        for (key, entry) in entries() {
            for pair in list(&entry["scandump"]) {
                let iterator = pair[0].to_string();
                assert_eq!(
                    client.call(&[b"CF.LOADCHUNK", key.as_bytes(), iterator.as_bytes(), &decoded(&pair[1])]),
                    ok()
                );
            }
        }
        // An empty filter has no records.
        assert_eq!(client.run("CF.RESERVE empty 10"), ok());
        assert_as_theirs(client);
    });
}

#[test]
fn the_commands_are_answered_as_there() {
    with_client(|_, client| {
        client.run(THEIR_LAYOUT);
        for (key, entry) in entries() {
            if let Some(words) = entry["reserve"].as_array() {
                let words: Vec<_> = words.iter().map(|word| word.as_str().expect("a word")).collect();
                assert_eq!(client.run(&format!("CF.RESERVE {key} {}", words.join(" "))), ok());
            }
            run(client, &key, &entry);
        }
        assert_as_theirs(client);
    });
}

/// The stream of a RedisBloom primary, and of ours after it: a replica of the replica has the same values.
#[test]
fn a_stream_of_redisbloom_is_applied() {
    on_every_server(|program| {
        let primary = TheirPrimary::start(crate::redisbloom::golden::snapshot("2.6.28"));
        let (replica, other) = (Server::start(program), Server::start(program));
        let (mut client, mut last) = (replica.connect(), other.connect());
        assert_eq!(client.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port)), ok());
        eventually("the snapshot", || client.info("master_link_status") == "up");
        follow(&mut last, &replica);
        primary.send(&["SELECT 0", "FLUSHALL"]);
        primary.send_bytes(file("stream.aof"));
        // Release 2.6 propagates headers, but no cells. It uses such a filter at once.
        let header = decoded(&entries().iter().find(|(key, _)| key == "thousand").expect("a key").1["scandump"][0][1]);
        primary.send_bytes(testing::encode([[&b"CF.LOADCHUNK"[..], b"half", b"1", &header]]));
        // It also propagates commands without an effect.
        primary.send(&["CF.DEL half absent", "CF.ADDNX half x", "CF.ADDNX half x", "CF.RESERVE half 10"]);
        primary.send(&["CF.INSERT fixed-full ITEMS x y z", "CF.COMPACT default", "SET the-end x"]);
        eventually("the end of the stream", || client.run("EXISTS the-end") == integer(1));
        catch_up(&mut client, &mut last);
        assert_eq!(client.run("CF.COUNT half x"), integer(1));
        assert_eq!(client.info_number("unexpected_error_replies"), 0);
        for (key, _) in entries() {
            assert_eq!(digest(&mut client, &key), digest(&mut last, &key), "{key}");
        }
        assert_eq!(digest(&mut client, "half"), digest(&mut last, "half"));
        assert_eq!(client.run("REPLICAOF NO ONE"), ok());
        assert_as_theirs(&mut client);
    });
}
