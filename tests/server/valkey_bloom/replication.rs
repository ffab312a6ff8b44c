//! What replicas and the append-only file get of filters of valkey-bloom's layout: their stream gives their filters,
//! ours is spelled in their words, and primary and replica are equal.

use serde_json::Value;

use super::golden::{THEIR_CEILING, assert_info, decoded, stream, unpacked};
use super::insert::{SEED, insert, server_with_append_only_file};
use super::model::Model;
use testing::{
    Connection, Reply, Server, Stop, append_only_commands, catch_up, commands_of, digest, dump, encode, error, follow,
    integer, ok, on_every_server, start_on_commands, value_of,
};

/// Compares the keys with those that stood after their stream of commands.
fn assert_keys_after(client: &mut Connection) {
    let stream = stream();
    let keys = stream["keys_after"].as_object().expect("an object");
    assert_eq!(client.run("DBSIZE"), integer(keys.len() as i64));
    for (key, facts) in keys {
        assert_eq!(client.run(&format!("TYPE {key}")).text(), "bloomfltr", "{key}");
        assert_info(client, key, &facts["info"]);
        assert_eq!(client.run(&format!("BF.CARD {key}")), integer(facts["card"].as_i64().unwrap()), "{key}");
        assert!(value_of(&dump(client, key)) == value_of(&decoded(&facts["dump_b64"])), "DUMP of {key}");
    }
}

/// A reply of theirs as a list: one answer, none for OK, or the answers of many items.
fn as_list(reply: &Value) -> Vec<Reply> {
    match reply {
        Value::Number(number) => vec![integer(number.as_i64().unwrap())],
        Value::String(_) => Vec::new(),
        Value::Array(answers) => answers.iter().flat_map(as_list).collect(),
        other => vec![error(other["error"].as_str().expect("an error"))],
    }
}

/// Waits until the replica has everything and compares all keys by their digests.
fn assert_equal(primary: &mut Connection, replica: &mut Connection) {
    catch_up(primary, replica);
    for key in primary.run("KEYS *").elements() {
        let words: [&[u8]; 3] = [b"DEBUG", b"DIGEST-VALUE", key.bytes()];
        assert_eq!(replica.call(&words), primary.call(&words), "{key:?}");
    }
    assert_eq!(replica.run("DEBUG DIGEST"), primary.run("DEBUG DIGEST"));
}

#[test]
fn their_stream_in_the_append_only_file_gives_their_filters() {
    on_every_server(|program| {
        let mut server = start_on_commands(program, &[THEIR_CEILING], &unpacked("stream.aof.gz"));
        assert_keys_after(&mut server.connect());
        server.restart(Stop::Kill);
        assert_keys_after(&mut server.connect());
        assert_eq!(server.connect().run("CONFIG SET appendonly no"), ok());
        server.connect().run("CONFIG REWRITE");
        server.restart(Stop::Save);
        assert_keys_after(&mut server.connect());
    });
}

#[test]
fn their_stream_sent_by_a_client_gives_their_answers_and_equal_replicas() {
    on_every_server(|program| {
        let server = Server::with(program).line(THEIR_CEILING).start();
        // A replica whose own settings would give other filters.
        let other = Server::with(program)
            .line("bf.bloom-tightening-ratio 0.9")
            .line("bf.bloom-capacity 7")
            .line("bf.bloom-use-random-seed no")
            .line("bf.max-filter-bytes 100")
            .start();
        let (mut primary, mut replica) = (server.connect(), other.connect());
        follow(&mut replica, &server);
        let mut carried = commands_of(&unpacked("stream.aof.gz")).into_iter().peekable();
        for step in stream()["steps"].as_array().unwrap() {
            let words: Vec<&str> = step["cmd"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
            let expected = as_list(&step["reply"]);
            if words[0] == "CONFIG" {
                continue;
            }
            // Where something changed, the stream has it in words that leave nothing to chance.
            let is_carried = carried.peek().is_some_and(|command| command[1] == words[1].as_bytes())
                && (expected.is_empty() || expected.iter().any(|answer| *answer == integer(1)));
            let reply = match is_carried {
                true => primary.call(&carried.next().unwrap()),
                false => primary.call(&words),
            };
            let found = match reply {
                Reply::Array(answers) => answers,
                single => vec![single],
            };
            assert_eq!(found, expected, "{words:?}");
        }
        assert_eq!(carried.next(), None, "every command of the stream was sent");
        assert_keys_after(&mut primary);
        assert_equal(&mut primary, &mut replica);
        assert!(!other.log().contains("== CRITICAL =="), "the replica met a command that failed");
        assert_eq!(primary.info_number("sync_full"), 1);
    });
}

#[test]
fn a_creation_is_carried_in_their_words() {
    on_every_server(|program| {
        let (mut server, mut client) = server_with_append_only_file(program);
        let cases = [
            ("TIGHTENING 0.5", "CAPACITY 100 ERROR 0.01 TIGHTENING 0.5 SEED {seed} EXPANSION 2"),
            ("NONSCALING TIGHTENING 0.3", "CAPACITY 100 ERROR 0.01 TIGHTENING 0.3 SEED {seed} NONSCALING"),
            ("EXPANSION 0", "CAPACITY 100 ERROR 0.01 TIGHTENING 0.5 SEED {seed} NONSCALING"),
            ("ERROR 1e-7 ITEMS z", "CAPACITY 100 ERROR 0.0000001 TIGHTENING 0.5 SEED {seed} EXPANSION 2 ITEMS z"),
            (
                "ERROR 1.5e-9 TIGHTENING 7E-3 CAPACITY 40 EXPANSION 9 ITEMS a b a",
                "CAPACITY 40 ERROR 0.0000000015 TIGHTENING 0.007 SEED {seed} EXPANSION 9 ITEMS a b",
            ),
            ("ERROR 0.10 TIGHTENING .5", "CAPACITY 100 ERROR 0.1 TIGHTENING 0.5 SEED {seed} EXPANSION 2"),
            (
                "CAPACITY 2 NONSCALING ITEMS a b c",
                "CAPACITY 2 ERROR 0.01 TIGHTENING 0.5 SEED {seed} NONSCALING ITEMS a b",
            ),
        ];
        for (number, (options, expected)) in cases.iter().enumerate() {
            let reply = insert(&mut client, &format!("BF.INSERT k{number} SEED {{seed}} {options}"));
            assert!(!reply.is_error(), "{options}: {reply:?}");
            let written = append_only_commands(&server).pop().unwrap();
            let words: Vec<Vec<u8>> = format!("BF.INSERT k{number} {expected}")
                .split(' ')
                .map(|word| if word == "{seed}" { SEED.to_vec() } else { word.as_bytes().to_vec() })
                .collect();
            let show = |words: &[Vec<u8>]| words.join(&b' ').escape_ascii().to_string();
            assert_eq!(show(&written), show(&words), "{options}");
        }
        assert_eq!(append_only_commands(&server).len(), cases.len());
        let before: Vec<Reply> = (0..cases.len()).map(|number| digest(&mut client, format!("k{number}"))).collect();
        server.restart(Stop::Kill);
        let mut client = server.connect();
        let after: Vec<Reply> = (0..cases.len()).map(|number| digest(&mut client, format!("k{number}"))).collect();
        assert_eq!(before, after);
    });
}

#[test]
fn a_rate_of_any_size_is_carried_as_the_same_number() {
    on_every_server(|program| {
        let (mut server, mut client) = server_with_append_only_file(program);
        let rates = ["1e-300", "2.2250738585072014e-308", "0.1234567890123456", "0.9999999999999999", "3e-16"];
        for (number, rate) in rates.iter().enumerate() {
            for option in ["ERROR", "TIGHTENING"] {
                let key = format!("{option}-{number}");
                let line = format!("BF.INSERT {key} CAPACITY 1 SEED {{seed}} {option} {rate} ITEMS a");
                assert_eq!(insert(&mut client, &line), Reply::Array(vec![integer(1)]), "{line}");
                let written = append_only_commands(&server).pop().unwrap();
                let place = written.iter().position(|word| word == option.as_bytes()).unwrap();
                let text = String::from_utf8(written[place + 1].clone()).unwrap();
                assert!(text.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit()), "{text}");
                assert_eq!(text.parse::<f64>(), rate.parse::<f64>());
            }
        }
        let before = client.run("DEBUG DIGEST");
        server.restart(Stop::Kill);
        assert_eq!(server.connect().run("DEBUG DIGEST"), before);
    });
}

#[test]
fn a_random_seed_is_carried_with_the_creation() {
    on_every_server(|program| {
        let (mut server, mut client) = server_with_append_only_file(program);
        client.run("BF.INSERT k TIGHTENING 0.5 ITEMS a");
        let written = append_only_commands(&server).pop().unwrap();
        assert_eq!((written[8].as_slice(), written[9].len()), (b"SEED".as_slice(), 32));
        let mut model = Model::new(100, 0.01, 0.5, 2, written[9].as_slice().try_into().unwrap());
        model.add(b"a");
        assert!(value_of(&dump(&mut client, "k")) == value_of(&model.dump()));
        let before = digest(&mut client, "k");
        server.restart(Stop::Kill);
        assert_eq!(digest(&mut server.connect(), "k"), before);
    });
}

#[test]
fn adds_are_carried_as_adds_of_what_was_new() {
    on_every_server(|program| {
        let (server, mut client) = server_with_append_only_file(program);
        insert(&mut client, "BF.INSERT k CAPACITY 2 ERROR 0.0001 SEED {seed}");
        for (line, expected) in [
            ("BF.ADD k a", Some("a")),
            ("BF.ADD k a", None),
            ("BF.MADD k a b c b", Some("b c")),
            ("BF.MADD k c b", None),
            ("BF.INSERT k ITEMS d a", Some("d")),
            ("BF.INSERT k TIGHTENING 0.5", None),
            ("BF.EXISTS k a", None),
            ("BF.MADD k e f g h i j k", Some("e f g h i j k")),
        ] {
            let before = append_only_commands(&server).len();
            assert!(!client.run(line).is_error(), "{line}");
            let written = append_only_commands(&server);
            let carried: Vec<String> = written[before..]
                .iter()
                .map(|words| words[2..].join(&b' '))
                .map(|items| String::from_utf8(items).unwrap())
                .collect();
            assert_eq!(carried, Vec::from_iter(expected.map(str::to_owned)), "{line}");
        }
    });
}

/// Their filters have expansions that no client of ours may ask for.
#[test]
fn ranges_bind_clients_and_never_the_stream() {
    on_every_server(|program| {
        let creation = |key: &str, expansion: u32, items: &[&str]| {
            let line = format!("BF.INSERT {key} CAPACITY 1 ERROR 0.01 TIGHTENING 0.5 EXPANSION {expansion} SEED");
            let mut words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            words.push(SEED.to_vec());
            words.extend(["ITEMS"].iter().chain(items).map(|word| word.as_bytes().to_vec()));
            words
        };
        let add = ["BF.INSERT", "plain", "EXPANSION", "100000", "CAPACITY", "5000000000", "ITEMS", "b"];
        let commands = [
            creation("far", 100_000, &["a"]),
            creation("farthest", u32::MAX, &["a"]),
            creation("grown", 32_769, &["a", "b", "c"]),
            creation("plain", 2, &["a"]),
            add.map(|word| word.as_bytes().to_vec()).to_vec(),
        ];
        let settings = ["rdbcompression no", "bf.max-filter-bytes 100"];
        let server = start_on_commands(program, &settings, &encode(&commands));
        let mut client = server.connect();
        for (key, expansion, items) in [
            ("far", 100_000, ["a"].as_slice()),
            ("farthest", u32::MAX, &["a"]),
            ("grown", 32_769, &["a", "b", "c"]),
            ("plain", 2, &["a", "b"]),
        ] {
            let mut model = Model::new(1, 0.01, 0.5, expansion, SEED);
            model.add_all(items);
            assert_eq!(client.run(&format!("BF.CARD {key}")), integer(items.len() as i64), "{key}");
            assert!(value_of(&dump(&mut client, key)) == value_of(&model.dump()), "{key}");
        }
        assert!(!server.log().contains("== CRITICAL =="), "a command of the file failed");
        let reply = insert(&mut client, "BF.INSERT new SEED {seed} EXPANSION 32769 ITEMS a");
        assert_eq!(reply, error("Bad expansion"));
    });
}
