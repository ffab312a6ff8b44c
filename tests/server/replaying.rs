//! A client sends the commands of the AOF: `redis-cli --pipe < appendonly.aof`, or a tool that forwards a primary's stream to another
//! server. That server accepts every command, and its filters have the same bits.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::persistence::rewrite_append_only_file;
use crate::replication::{effects, write_some};
use testing::{
    Connection, Reply, Server, append_only_commands, array, digest, encode, eventually, integer, lines, newest, ok,
    on_every_server, rewritten_commands, start_on_commands, with_append_only_client, with_append_only_file,
    with_client, words,
};

/// Sends commands as a client, and asserts that all are accepted.
fn replay(commands: &[Vec<Vec<u8>>], client: &mut Connection) {
    for words in commands {
        let reply = client.call(words);
        let is_refused = reply.is_error() || matches!(&reply, Reply::Array(all) if all.iter().any(Reply::is_error));
        let shown: Vec<String> = words.iter().take(20).map(|word| word.escape_ascii().to_string()).collect();
        assert!(!is_refused, "{}: {reply:?}", shown.join(" "));
    }
}

/// `redis-cli --pipe` with the whole append-only file of a server, as it is on disk.
fn pipe(original: &Server, copy: &Server) {
    for ending in [".base.aof", ".incr.aof"] {
        let file = File::open(newest(original, ending)).expect("the append-only file is readable");
        let port = copy.port.to_string();
        let output = Command::new("redis-cli")
            .args(["-p", &port, "--pipe"])
            .stdin(file)
            .output()
            .unwrap_or_else(|fault| panic!("redis-cli: {fault}"));
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && text.contains("errors: 0,"), "{ending}:\n{text}");
    }
}

/// Replays the AOF of a server to an empty one, and compares the digests of all filters. Creations in RedisBloom's layout are written with
/// RedisBloom's options, which do not state the layout, so the empty server's setting does.
pub fn assert_replays(program: &Path, original: &Server) -> Server {
    let copy = Server::with(program).line("bf.layout redisbloom").start();
    pipe(original, &copy);
    assert_same_digests(original, &copy);
    copy
}

fn assert_same_digests(original: &Server, copy: &Server) {
    let (mut original, mut copy) = (original.connect(), copy.connect());
    let keys = original.run("KEYS *");
    assert_eq!(copy.run("DBSIZE"), original.run("DBSIZE"));
    for key in keys.elements() {
        let (before, after) = (digest(&mut original, key.bytes()), digest(&mut copy, key.bytes()));
        assert_eq!(after, before, "{}", key.bytes().escape_ascii());
    }
}

/// A row that BF.CHANGED announces stays for a whole window, in the copy as well.
#[test]
fn renewed_items_are_renewed_in_the_copy() {
    on_every_server(|program| {
        let original = with_append_only_file(program);
        let mut client = original.connect();
        client.run("BF.RESERVE rows 0.01 100 WINDOW 100000 BUCKETS 3");
        client.run("BF.MADD rows 1 2 3");
        client.run("BF.ROTATE rows");
        assert_eq!(client.run("BF.CHANGED rows 1 cache:1"), integer(0), "an older bucket has it");
        client.run("BF.ROTATE rows");
        assert_eq!(client.run("BF.MCHANGED rows ITEMS 2 cache:2 4 cache:4"), array([integer(0), integer(1)]));
        let renewals: Vec<String> = lines(&original).into_iter().filter(|line| line.contains("RENEW")).collect();
        assert_eq!(renewals, ["BF.INSERT rows NOCREATE RENEW ITEMS 1", "BF.INSERT rows NOCREATE RENEW ITEMS 2 4"]);
        let copy = assert_replays(program, &original);
        // The first bucket is dropped, with all items that were not renewed.
        for client in [&mut client, &mut copy.connect()] {
            assert_eq!(client.run("BF.ROTATE rows"), integer(3));
            assert_eq!(client.run("BF.MEXISTS rows 1 2 3 4"), array([1, 1, 0, 1].map(integer)));
        }
        // A replica, and the reader of the AOF.
        let before = digest(&mut client, "rows");
        assert_eq!(client.run("DEBUG LOADAOF").text(), "OK");
        assert_eq!(digest(&mut client, "rows"), before);
        let other = Server::start(program);
        let mut replica = other.connect();
        testing::follow(&mut replica, &original);
        client.run("BF.ROTATE rows");
        client.run("BF.CHANGED rows 2 cache:2");
        let after = digest(&mut client, "rows");
        eventually("the replica to renew it, too", || digest(&mut replica, "rows") == after);
    });
}

/// A server with default settings accepts every command, and no item is lost. Filters of RedisBloom's layout become native filters, unless
/// they were loaded.
#[test]
fn a_server_with_other_settings_lacks_nothing() {
    on_every_server(|program| {
        let original = with_append_only_file(program);
        let mut client = original.connect();
        write_some(&mut client, 0);
        let copy =
            Server::with(program).line("bf.hash siphash").line("bf.error-rate 0.2").line("bf.auto-create no").start();
        let mut other = copy.connect();
        replay(&append_only_commands(&original), &mut other);
        for key in client.run("KEYS *").elements().iter().map(Reply::text) {
            let found =
                |client: &mut Connection| client.batched(&[b"BF.MEXISTS", key.as_bytes()], &["a", "b", "x", "y"]);
            let (before, after) = (found(&mut client), found(&mut other));
            assert!(before.iter().zip(after).all(|(before, after)| after || !before), "{key}");
            if client.run(&format!("TYPE {key}")).text() != "MBbloom--" {
                assert_eq!(digest(&mut other, &key), digest(&mut client, &key), "{key}");
            }
        }
    });
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_millis() as u64
}

/// If the replay is an hour late, the buckets of a window have ended. The items then count as new, so that none is forgotten too early.
#[test]
fn a_window_that_is_replayed_late_forgets_nothing_early() {
    with_append_only_client(|_, client| {
        // Buckets of 20 seconds.
        let first = now_ms() - 3_600_000;
        let mut file = vec!["BF.INSERT k CAPACITY 100 ERROR 0.01 EXPANSION 2 WINDOW 60 BUCKETS 4 SEED 5".to_owned()];
        for slot in 0..20 {
            let begin = first + slot * 20_000;
            file.push(format!("BF.ROTATE k {slot} {begin} {} 34", begin + 20_000));
            file.push(format!("BF.MADD k item/{slot} other/{slot}"));
        }
        let commands: Vec<Vec<Vec<u8>>> =
            file.iter().map(|line| line.split(' ').map(|word| word.as_bytes().to_vec()).collect()).collect();
        replay(&commands, client);
        for slot in 0..20 {
            assert_eq!(client.run(&format!("BF.EXISTS k item/{slot}")), integer(1), "{slot}");
        }
        let digest_before = digest(client, "k");
        assert_eq!(client.run("DEBUG LOADAOF").text(), "OK");
        assert_eq!(digest(client, "k"), digest_before);
        // It rotates as before.
        assert_eq!(client.run("BF.ROTATE k"), integer(0));
        assert_eq!(client.run("BF.ADD k one-more"), integer(1));
    });
}

/// A late copy of a stream has begun the bucket by its own clock, and has added items to it.
#[test]
fn a_bucket_that_has_begun_is_not_begun_again() {
    with_client(|_, client| {
        client.run("BF.INSERT k CAPACITY 100 WINDOW 60 BUCKETS 4 SEED 5 ITEMS a");
        let stats = client.run("BF.STATS k");
        let bucket = stats.field("Buckets").elements()[0].clone();
        let [begin, end] = ["Begin", "End"].map(|name| bucket.field(name).number());
        let before = digest(client, "k");
        assert_eq!(client.run(&format!("BF.ROTATE k 0 {begin} {end} 34")), integer(0));
        assert_eq!(digest(client, "k"), before);
        assert_eq!(client.run("BF.EXISTS k a"), integer(1));
    });
}

/// Values from a careless or malicious client.
#[test]
fn a_stated_bucket_is_bounded() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.max-filter-bytes 1000000").start();
        let mut client = server.connect();
        client.run("BF.INSERT k CAPACITY 100 ERROR 0.01 WINDOW 60 BUCKETS 4 SEED 5 ITEMS a");
        let now = now_ms();
        let before = digest(&mut client, "k");
        let max = i64::MAX as u64;
        for (slot, begin, end, capacity) in [
            // It would accept items for ever, or forget the others at once.
            (1, now + 1_000_000, now + 1_020_000, 34),
            (1, max, max, 34),
            (1, now, now + 1_000_000, 34),
            (1, now, max, 34),
            // No slot would be left.
            (max, now, now + 20_000, 34),
            ((1 << 61) + 1, now, now + 20_000, 34),
            // Above the ceiling.
            (1, now, now + 20_000, 100_000_000),
            (1, now, now + 20_000, max),
            (1, now, now + 20_000, 0),
            (1, now + 20_000, now, 34),
        ] {
            let reply = client.run(&format!("BF.ROTATE k {slot} {begin} {end} {capacity}"));
            assert!(reply.is_error(), "{slot} {begin} {end} {capacity}: {reply:?}");
            assert_eq!(digest(&mut client, "k"), before);
        }
        for numbers in ["1 1 1", "1 1 1 1 1", "-1 1 1 1", "x 1 1 1", "1 1 1 18446744073709551616"] {
            assert!(client.run(&format!("BF.ROTATE k {numbers}")).is_error(), "{numbers}");
        }
        // With the largest accepted value, the ring keeps working.
        assert!(!client.run(&format!("BF.ROTATE k {} {} {} 34", 1_u64 << 61, now, now + 20_000)).is_error());
        for round in 0..10 {
            assert_eq!(client.run(&format!("BF.ADD k round/{round}")), integer(1));
            assert!(!client.run("BF.ROTATE k").is_error());
        }
        assert_eq!(client.run("BF.CLEAR k").text(), "OK");
        assert_eq!(client.run("BF.ADD k a"), integer(1));
        // A ring in the past rotates with the next add.
        client.run("DEL k");
        client.run("BF.INSERT k CAPACITY 100 ERROR 0.01 WINDOW 60 BUCKETS 4 SEED 5");
        assert_eq!(client.run("BF.ROTATE k 7 0 0 34"), integer(0));
        assert_eq!(client.run("BF.ADD k a"), integer(1));
        assert_eq!(client.run("BF.EXISTS k a"), integer(1));
    });
}

/// Sizing rules that a client names are used, within their limits.
#[test]
fn a_policy_is_a_clients_to_name() {
    with_client(|_, client| {
        let size = |client: &mut Connection, key: &str, words: &str| {
            let reply = client.run(&format!("BF.INSERT {key} CAPACITY 100 ERROR 0.01 SEED 7 {words} ITEMS a"));
            assert_eq!(reply, array([integer(1)]), "{words}");
            client.run(&format!("BF.INFO {key} SIZE")).elements()[0].number()
        };
        let [first, second, third, newest] =
            [("first", "POLICY 1"), ("second", "POLICY 2"), ("third", "POLICY 3"), ("newest", "EXPANSION 2")]
                .map(|(key, words)| size(client, key, words));
        assert!(first > second && [third, newest] == [second; 2], "{first} {second} {third} {newest}");
        let digests = ["second", "third", "newest"].map(|key| digest(client, key));
        assert!(digests[0] != digests[1] && digests[1] == digests[2], "{digests:?}");
        // The second and the third have the same layers, so such filters have a union, which has the policy of the first.
        assert_eq!(client.run("BF.MERGE union second third"), ok());
        assert_eq!(digest(client, "union"), digests[0]);
        assert!(client.run("BF.MERGE union first third").is_error());
        for words in
            ["POLICY 0", "POLICY 4", "POLICY -1", "POLICY x", "POLICY 4294967297", "POLICY 18446744073709551615"]
        {
            assert_eq!(
                client.run(&format!("BF.INSERT k SEED 7 {words} ITEMS a")).error_text(),
                "ERR POLICY is a whole number from 1 to 3"
            );
        }
        let mismatch = "ERR a filter of this layout has no such seed, tightening ratio or policy";
        for words in [
            "SEED 7 NONSCALING POLICY 2",
            "SEED 7 CAPACITY 129 POLICY 2",
            "SEED 7 WINDOW 60 POLICY 1",
            "SEED 7 COUNTING POLICY 1",
            "LAYOUT redisbloom POLICY 1",
            "TIGHTENING 0.5 POLICY 1",
        ] {
            assert_eq!(client.run(&format!("BF.INSERT k {words} ITEMS a")).error_text(), mismatch, "{words}");
        }
        assert_eq!(client.run("EXISTS k"), integer(0));
    });
}

/// A definition gives exactly the filter that it states: to a client, a replica, and in an AOF, which older versions wrote as options.
#[test]
fn a_definition_makes_the_filter_of_its_options() {
    on_every_server(|program| {
        let original = with_append_only_file(program);
        let mut client = original.connect();
        let options = [
            "CAPACITY 100 ERROR 0.01 EXPANSION 2 SEED 5 POLICY 2",
            "CAPACITY 100 ERROR 0.01 EXPANSION 2 SEED 5 POLICY 1",
            "CAPACITY 1 ERROR 0.000000000001 EXPANSION 32768 SEED 4294967295 POLICY 2",
            "CAPACITY 129 ERROR 0.123456789012345 EXPANSION 1 SEED 0",
            "CAPACITY 3000 ERROR 0.25 NONSCALING SEED 300 POLICY 2",
        ];
        let mut texts = Vec::new();
        for (number, options) in options.iter().enumerate() {
            texts.push(format!("BF.INSERT filter/{number} {options} ITEMS a b"));
            texts.push(format!("BF.INSERT empty/{number} {options}"));
        }
        texts.iter().for_each(|line| assert!(!client.run(line).is_error(), "{line}"));
        // The effects state the same options, whoever defined them.
        let stated =
            effects(&original).iter().map(|line| line.replace("AS [", "").replace(']', "")).collect::<Vec<_>>();
        assert_eq!(stated, texts.iter().map(|line| line.replace(" ITEMS", "")).collect::<Vec<_>>());
        let replayed = assert_replays(program, &original);
        // What 0.3 wrote, as an AOF and from its primary's stream.
        let older = start_on_commands(program, &[], &encode(texts.iter().map(|line| words(line))));
        assert_same_digests(&original, &older);
        let other = Server::start(program);
        let mut replica = other.connect();
        testing::follow(&mut replica, &original);
        client.run("FLUSHALL");
        texts.iter().for_each(|line| assert!(!client.run(line).is_error(), "{line}"));
        testing::catch_up(&mut client, &mut replica);
        assert_same_digests(&original, &other);
        assert_same_digests(&original, &replayed);
        assert_eq!(client.run("DEBUG LOADAOF").text(), "OK");
        assert_same_digests(&original, &other);
    });
}

#[test]
fn a_hostile_definition_changes_nothing() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.max-filter-bytes 1000000").start();
        let mut client = server.connect();
        client.run("BF.INSERT filter CAPACITY 100 SEED 7 ITEMS a");
        let before = digest(&mut client, "filter");
        // Policy, rate, expansion, capacity and seed: 0.01, 2, 100 and 7.
        let word = [2, 0x12, 2, 100, 7];
        let nan = [&[1, 0][..], &f64::NAN.to_le_bytes(), &[2, 100, 7]].concat();
        let mut hostile: Vec<Vec<u8>> = (0..word.len()).map(|length| word[..length].to_vec()).collect();
        hostile.extend([nan, vec![b'x'; 512], [&word[..], &[0]].concat()]);
        let changes =
            [(0, 0), (0, 9), (0, 127), (1, 0), (1, 2), (1, 0x10), (1, 0x1d), (2, 0x80), (3, 0), (3, 0x80), (4, 0x80)];
        hostile.extend(changes.map(|(at, byte)| {
            let mut word = word.to_vec();
            word[at] = byte;
            word
        }));
        // An expansion that only a primary may state: 32769.
        hostile.push(vec![2, 0x12, 0x81, 0x80, 2, 100, 7]);
        for word in hostile {
            for key in ["missing", "filter"] {
                let reply = client.call(&[b"BF.INSERT", key.as_bytes(), b"AS", &word, b"b"]);
                assert_eq!(reply.error_text(), "ERR bad definition", "{}", word.escape_ascii());
            }
        }
        // A capacity of 2^49.
        let large = [1, 0x12, 2, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 7];
        let reply = client.call(&[b"BF.INSERT".as_slice(), b"missing", b"as", &large, b"b"]);
        assert!(reply.error_text().starts_with("ERR Insufficient memory to create filter: "), "{reply:?}");
        assert_eq!(
            client.run("BF.INSERT missing AS").error_text(),
            "ERR wrong number of arguments for 'bf.insert' command"
        );
        assert_eq!(client.run("DBSIZE"), integer(1));
        assert_eq!(digest(&mut client, "filter"), before);
        // The word itself is sound, and all words after it are items.
        let reply = client.call(&[b"BF.INSERT".as_slice(), b"missing", b"AS", &word, b"ITEMS", b"a"]);
        assert_eq!(reply, array([integer(1), integer(1)]));
        assert_eq!(client.run("BF.CARD missing"), integer(2));
    });
}

/// A rewritten AOF has a small filter as one record, which a client may load within its limits.
#[test]
fn a_small_filter_is_rewritten_as_one_record() {
    on_every_server(|program| {
        let original = with_append_only_file(program);
        let mut client = original.connect();
        client.run("BF.MADD plain a b c");
        client.run("BF.INSERT keyed CAPACITY 100 HASH siphash ITEMS a b c");
        client.run("BF.DEL keyed b");
        client.run("BF.RESERVE large 0.01 10000");
        client.run("PEXPIRE plain 100000000");
        rewrite_append_only_file(&mut client);
        let rewritten = rewritten_commands(&original);
        let of = |key: &str| {
            let commands = rewritten.iter().filter(|words| words[1] == key.as_bytes());
            commands.map(|words| String::from_utf8_lossy(&words[0]).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(of("plain"), ["BF.LOAD", "PEXPIREAT"]);
        assert_eq!(of("keyed"), ["BF.LOAD"]);
        assert_eq!(of("large"), ["BF.LOADCHUNK"; 2]);
        let command = rewritten.iter().find(|words| words[1] == b"plain").expect("a record").clone();
        let bytes = encode([&command]).len();
        assert!(bytes <= 300, "RedisBloom takes 321: {bytes}");
        let copy = assert_replays(program, &original);
        // A replica gets the record as it came.
        let other = Server::start(program);
        let (mut copied, mut replica) = (copy.connect(), other.connect());
        testing::follow(&mut replica, &copy);
        copied.run("DEL plain");
        assert_eq!(copied.call(&command).text(), "OK");
        testing::catch_up(&mut copied, &mut replica);
        assert_same_digests(&copy, &other);
        // A record that is damaged, or too large for a client, and a key that exists.
        let before = copied.run("DEBUG DIGEST");
        assert_eq!(copied.call(&command).error_text(), "BUSYKEY Target key name already exists.");
        let record = &command[2];
        let damaged = [&record[..40], &[record[40] ^ 1], &record[41..]].concat();
        for data in [&damaged[..], &record[..record.len() - 1], &record[..8], b""] {
            let reply = copied.call(&[b"BF.LOAD".as_slice(), b"another", data]);
            assert_eq!(reply.error_text(), "ERR bloom object decoding failed", "{}", data.escape_ascii());
        }
        assert_eq!(copied.run("CONFIG SET bf.max-filter-bytes 200").text(), "OK");
        let reply = copied.call(&[b"BF.LOAD".as_slice(), b"another", record]);
        assert!(reply.error_text().starts_with("ERR Insufficient memory to create filter"), "{reply:?}");
        assert_eq!(copied.run("DEBUG DIGEST"), before);
    });
}
