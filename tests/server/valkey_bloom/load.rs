//! BF.LOAD as a command: its exact errors, accepted values, effects and limits.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::golden::{THEIR_CEILING, assert_info, decoded, goldens, load, stream, unpacked};
use crate::fleet::assert_equal;
use testing::{
    Connection, Reply, Server, Stop, Version, append_only_commands, array, bulk, catch_up, commands_of, digest, dump,
    encode, error, eventually, follow, integer, ok, on_every_server, restore, simple, start_on_commands, value_of,
    with_client,
};

#[test]
fn an_existing_name_is_not_overwritten() {
    with_client(|_, client| {
        let golden = &goldens()[0];
        client.run("SET string x");
        client.run("BF.ADD native a");
        client.run("BF.RESERVE redisbloom 0.01 100 LAYOUT redisbloom");
        assert_eq!(load(client, "theirs", &golden.payload), ok());
        let taken = "BUSYKEY Target key name already exists.";
        let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
        for (key, text) in [("string", wrong), ("native", taken), ("redisbloom", taken), ("theirs", taken)] {
            let before = digest(client, key);
            assert_eq!(load(client, key, &golden.payload), error(text), "{key}");
            assert_eq!(digest(client, key), before, "{key}");
        }
    });
}

#[test]
fn another_version_is_refused_by_name() {
    with_client(|_, client| {
        let mut payload = goldens()[0].payload.clone();
        for version in [0, 2, 3, 0x7f, 0xff] {
            payload[0] = version;
            let expected = error("ERR bloom object decoding failed. Unsupported version");
            assert_eq!(load(client, "k", &payload), expected, "version {version}");
        }
        assert_eq!(client.run("EXISTS k"), integer(0));
    });
}

#[test]
fn trailing_bytes_are_accepted_and_propagated_verbatim() {
    on_every_server(|program| {
        let mut server = Server::with(program).line(THEIR_CEILING).line("appendonly yes").start();
        let other = Server::start(program);
        let (mut client, mut replica) = (server.connect(), other.connect());
        follow(&mut replica, &server);
        let goldens = goldens();
        for golden in &goldens {
            for after in [b"".as_slice(), b"\0", b" some bytes \r\n after the end"] {
                let payload = [&golden.payload, after].concat();
                let key = format!("{}+{}", golden.key, after.len());
                assert_eq!(load(&mut client, &key, &payload), ok());
                let written = append_only_commands(&server).pop().unwrap();
                assert!(written[0].eq_ignore_ascii_case(b"BF.LOAD"), "{}", written[0].escape_ascii());
                assert!(written[1..] == [key.as_bytes(), &payload], "{key} is carried word for word");
                golden.assert_is_at(&mut client, &key);
            }
        }
        let before = client.run("DEBUG DIGEST");
        eventually("the replica to be equal", || replica.run("DEBUG DIGEST") == before);
        assert_eq!(replica.run("DBSIZE"), integer(3 * goldens.len() as i64));
        assert!(!other.log().contains("== CRITICAL =="), "the replica met a command that failed");
        server.restart(Stop::Kill);
        assert_eq!(server.connect().run("DEBUG DIGEST"), before);
    });
}

#[test]
fn the_ceiling_binds_a_client() {
    with_client(|_, client| {
        let goldens = goldens();
        let golden = goldens.iter().max_by_key(|golden| golden.payload.len()).unwrap();
        assert_eq!(client.run("CONFIG SET bf.max-filter-bytes 5000"), ok());
        let reply = load(client, "k", &golden.payload);
        assert!(reply.is_error(), "{reply:?}");
        let reply = restore(client, "k", &golden.dump);
        assert_eq!(reply, error("ERR Bad data format"));
        assert_eq!(client.run("EXISTS k"), integer(0));
        assert_eq!(client.run("CONFIG SET bf.max-filter-bytes 0"), ok());
        client.run("CONFIG SET maxmemory 1");
        assert!(load(client, "k", &golden.payload).error_text().starts_with("OOM"));
        client.run("CONFIG SET maxmemory 0");
        assert_eq!(load(client, "k", &golden.payload), ok());
        assert_eq!(restore(client, "restored", &golden.dump), ok());
        assert_eq!(digest(client, "k"), digest(client, "restored"));
    });
}

/// The child that rewrites the file holds one copy of a filter's record, because the record is built in the string that the server writes.
#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs /proc, which has a child's own memory")]
fn a_rewrite_holds_a_record_once() {
    on_every_server(|program| {
        let mut server = Server::with(program).line("appendonly yes").line("aof-use-rdb-preamble no").start();
        let mut client = server.connect();
        let many: Vec<String> = (0..40_000).map(|number| number.to_string()).collect();
        // A large filter; a filter that has grown; a filter with layers of one size, which would be copied again and again; a small filter.
        for (key, words) in [
            ("large", "CAPACITY 50000000 NONSCALING TIGHTENING 0.5 ITEMS a"),
            ("grown", "CAPACITY 1000 EXPANSION 4 TIGHTENING 0.5 ITEMS a"),
            ("even", "CAPACITY 1000 EXPANSION 1 TIGHTENING 0.9 ITEMS a"),
            ("small", "CAPACITY 100 TIGHTENING 0.5 ITEMS a"),
        ] {
            assert_eq!(client.run(&format!("BF.INSERT {key} {words}")), array([integer(1)]));
            if key != "small" {
                client.batched(&[b"BF.MADD", key.as_bytes()], &many);
            }
        }
        assert!(client.run("BF.INFO even").field("Number of filters").number() > 20);
        let size = client.run("BF.INFO large").field("Size").number();
        let whole = client.run("DEBUG DIGEST");
        // The child is sampled only occasionally, so this takes the maximum of several rewrites, and of more on a busy machine.
        let mut most = 0;
        for round in 0..50 {
            most = most.max(most_of_a_rewrite(&server, &mut client).unwrap_or(0));
            if round >= 4 && most > size / 2 {
                break;
            }
        }
        eprintln!("a record of {size} bytes: at most {most} bytes of its own in the child");
        assert!(most > size / 2, "the child was not seen at work");
        assert!(most < size + size / 4, "{most} bytes beside a filter of {size}");
        server.restart(Stop::Kill);
        assert_eq!(server.connect().run("DEBUG DIGEST"), whole);
    });
}

/// Rewrites the file. Returns the child's largest sampled private memory, in bytes.
fn most_of_a_rewrite(server: &Server, client: &mut Connection) -> Option<i64> {
    let parent = server.process_id();
    let own = || {
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
        let child = children.split_whitespace().next()?.to_owned();
        let smaps = fs::read_to_string(format!("/proc/{child}/smaps_rollup")).ok()?;
        let line = smaps.lines().find_map(|line| line.strip_prefix("Private_Dirty:"))?;
        line.trim().trim_end_matches(" kB").parse::<i64>().ok().map(|kibibytes| kibibytes << 10)
    };
    let mut most = None;
    client.run("BGREWRITEAOF");
    eventually("the rewrite to end", || {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(50) {
            most = most.max(own());
        }
        !client.has_rewrite()
    });
    assert_eq!(client.info("aof_last_bgrewrite_status"), "ok");
    most
}

// BF.INSERT with valkey-bloom's options, TIGHTENING, a SEED of 32 bytes and VALIDATESCALETO: the resulting filters and errors.

/// Bytes that are not text, including a line end and a zero.
pub const SEED: [u8; 32] = *b"\0\r\n\xff 32 bytes, none of them read";

/// Runs a command line in which `{seed}` stands for the 32 bytes.
pub fn insert(client: &mut Connection, line: &str) -> Reply {
    let words: Vec<&[u8]> =
        line.split(' ').map(|word| if word == "{seed}" { SEED.as_slice() } else { word.as_bytes() }).collect();
    client.call(&words)
}

pub fn server_with_append_only_file(program: &Path) -> (Server, Connection) {
    let server = Server::with(program).line("appendonly yes").line("rdbcompression no").start();
    let client = server.connect();
    (server, client)
}

#[test]
fn either_option_creates_a_filter_of_valkey_blooms_layout() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            for (line, answers) in [
                ("BF.INSERT a TIGHTENING 0.5", vec![]),
                ("BF.INSERT b SEED {seed}", vec![]),
                ("bf.insert c tightening 0.9 seed {seed} items x y x", vec![true, true, false]),
                ("BF.INSERT d SEED {seed} TIGHTENING 0.1 CAPACITY 5 ERROR 0.2 NONSCALING ITEMS x", vec![true]),
                ("BF.INSERT e TIGHTENING 0.5 EXPANSION 0 ITEMS x", vec![true]),
                ("BF.INSERT f SEED 00000000000000000000000000000007 ITEMS x", vec![true]),
                ("BF.INSERT g TIGHTENING 0.5 ERROR 0.9 ITEMS x", vec![true]),
                ("BF.INSERT h TIGHTENING 0.5 ERROR 1e-30 ITEMS x", vec![true]),
            ] {
                let expected: Vec<Reply> = answers.iter().map(|&answer| client.answer(answer)).collect();
                assert_eq!(insert(&mut client, line), array(expected), "{line}");
                let key = line.split(' ').nth(1).unwrap();
                assert_eq!(client.run(&format!("TYPE {key}")), simple("bloomfltr"), "{line}");
                let new = answers.iter().filter(|&&answer| answer).count();
                assert_eq!(client.run(&format!("BF.CARD {key}")), integer(new as i64), "{line}");
            }
            assert_eq!(client.run("TYPE missing"), simple("none"));
        }
        let mut client = server.connect();
        // Rates are not clamped, even if other layouts do not support them.
        let double = |number| bulk(Version::of(program).double(number));
        assert_eq!(client.run("BF.INFO g ERROR"), double(0.9));
        assert_eq!(client.run("BF.INFO h ERROR"), double(1e-30));
        assert_eq!(client.run("BF.INFO c TIGHTENING"), double(0.9));
        assert_eq!(client.run("BF.INFO b TIGHTENING"), double(0.5));
        assert_eq!(client.run("BF.INFO c EXPANSION"), integer(2));
        assert_eq!(client.run("BF.INFO d CAPACITY"), integer(5));
    });
}

#[test]
fn a_seed_is_random_unless_the_setting_says_otherwise() {
    on_every_server(|program| {
        let server = Server::with(program).line("rdbcompression no").start();
        let mut client = server.connect();
        let mut made = |setting: &str| {
            assert_eq!(client.run(&format!("CONFIG SET bf.bloom-use-random-seed {setting}")), ok());
            client.run("DEL k");
            assert_eq!(client.run("BF.INSERT k TIGHTENING 0.5 ITEMS one"), array([integer(1)]));
            digest(&mut client, "k")
        };
        assert_ne!(made("yes"), made("yes"));
        // As the model predicted that tests/data/predicted/README.md describes.
        assert_eq!(made("no"), array([simple("55d8a446a7210e5347f5646f86b2a11011e9634b")]));
        assert_eq!(made("no"), made("no"));
    });
}

#[test]
fn the_setting_is_the_default_ratio() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.bloom-tightening-ratio 0.75").start();
        let mut client = server.connect();
        insert(&mut client, "BF.INSERT a SEED {seed}");
        assert_eq!(client.run("BF.INFO a TIGHTENING"), bulk("0.75"));
        assert_eq!(client.run("CONFIG SET bf.bloom-tightening-ratio 0.25"), ok());
        insert(&mut client, "BF.INSERT b SEED {seed}");
        assert_eq!(client.run("BF.INFO b TIGHTENING"), bulk("0.25"));
        insert(&mut client, "BF.INSERT c SEED {seed} TIGHTENING 0.5");
        assert_eq!(client.run("BF.INFO c TIGHTENING"), bulk("0.5"));
        assert_eq!(client.run("BF.INFO a TIGHTENING"), bulk("0.75"));
    });
}

#[test]
fn validatescaleto_checks_how_far_a_filter_could_grow() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.bloom-memory-usage-limit 1048576").start();
        let mut client = server.connect();
        let too_large = error("ERR provided VALIDATESCALETO causes bloom object to exceed memory limit");
        let too_tight = error("ERR provided VALIDATESCALETO causes false positive to degrade to 0");
        let both = error("ERR cannot use NONSCALING and VALIDATESCALETO options together");
        let mut ask = |options: &str| insert(&mut client, &format!("BF.INSERT k TIGHTENING {options}"));
        let largest = 204_700;
        assert_eq!(ask(&format!("0.5 VALIDATESCALETO {}", largest + 1)), too_large);
        assert_eq!(ask("0.5 VALIDATESCALETO 1000000000 ITEMS a"), too_large);
        // At most 100 + 200 + 400 + 800 items; the fifth rate would be zero.
        assert_eq!(ask("1e-100 VALIDATESCALETO 1501"), too_tight);
        assert_eq!(ask("1e-100 VALIDATESCALETO 1501 ITEMS a"), too_tight);
        for options in ["0.5 NONSCALING VALIDATESCALETO 1000", "0.5 VALIDATESCALETO 1000 NONSCALING"] {
            assert_eq!(ask(options), both, "{options}");
        }
        let mut client = server.connect();
        assert_eq!(client.run("EXISTS k"), integer(0), "what was refused made nothing");
        for (number, options) in [
            format!("0.5 VALIDATESCALETO {largest}"),
            "0.5 validatescaleto 1".into(),
            "1e-100 VALIDATESCALETO 700".into(),
        ]
        .iter()
        .enumerate()
        {
            let reply = insert(&mut client, &format!("BF.INSERT k{number} TIGHTENING {options} ITEMS a"));
            assert_eq!(reply, array([integer(1)]), "{options}");
            assert_eq!(client.run(&format!("TYPE k{number}")), simple("bloomfltr"));
        }
        assert_eq!(client.run("BF.INFO k0 MAXSCALEDCAPACITY"), integer(largest));
    });
}

// Replication of valkey-bloom's layout: valkey-bloom's stream creates its filters here, our stream uses its options, and primary and
// replica are equal.

/// Compares the keys with valkey-bloom's keys after its stream of commands.
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

/// valkey-bloom's reply as a list: one answer, none for OK, or the answers of many items.
fn as_list(reply: &Value) -> Vec<Reply> {
    match reply {
        Value::Number(number) => vec![integer(number.as_i64().unwrap())],
        Value::String(_) => Vec::new(),
        Value::Array(answers) => answers.iter().flat_map(as_list).collect(),
        other => vec![error(other["error"].as_str().expect("an error"))],
    }
}

#[test]
fn valkey_blooms_stream_in_the_append_only_file_creates_its_filters() {
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
fn valkey_blooms_stream_from_a_client_gets_its_answers_and_equal_replicas() {
    on_every_server(|program| {
        let server = Server::with(program).line(THEIR_CEILING).start();
        // A replica whose own settings would create other filters.
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
            // If the command changed something, the stream has it with every parameter stated.
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
        catch_up(&mut primary, &mut replica);
        assert_equal("their stream", &mut primary, &mut replica);
        assert!(!other.log().contains("== CRITICAL =="), "the replica met a command that failed");
        assert_eq!(primary.info_number("sync_full"), 1);
    });
}

#[test]
fn a_creation_is_propagated_with_valkey_blooms_options() {
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
fn a_rate_of_any_size_is_propagated_exactly() {
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

/// valkey-bloom's filters may have expansions that our clients may not request.
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
            let info = client.run(&format!("BF.INFO {key}"));
            assert_eq!(info.field("Number of items inserted"), &integer(items.len() as i64), "{key}");
            assert_eq!(info.field("Expansion rate"), &integer(expansion.into()), "{key}");
            let capacity = if items.len() > 1 { i64::from(expansion) + 1 } else { 1 };
            assert_eq!(info.field("Capacity"), &integer(capacity), "{key}");
        }
        assert!(!server.log().contains("== CRITICAL =="), "a command of the file failed");
        let reply = insert(&mut client, "BF.INSERT new SEED {seed} EXPANSION 32769 ITEMS a");
        assert_eq!(reply, error("Bad expansion"));
    });
}
