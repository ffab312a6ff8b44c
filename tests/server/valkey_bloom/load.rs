//! BF.LOAD as a command: its errors to the letter, what it lets pass, what it carries on, and what binds it.

use std::fs;
use std::time::{Duration, Instant};

use super::golden::{THEIR_CEILING, goldens, load};
use super::model::Model;
use testing::{
    Connection, Server, Stop, append_only_commands, append_only_length, array, digest, error, eventually, follow,
    integer, ok, on_every_server, restore,
};

const DECODING_FAILED: &str = "ERR bloom object decoding failed";

#[test]
fn a_name_that_is_taken_stays_what_it_is() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let golden = &goldens()[0];
        client.run("SET string x");
        client.run("BF.ADD native a");
        client.run("BF.RESERVE redisbloom 0.01 100 LAYOUT redisbloom");
        assert_eq!(load(&mut client, "theirs", &golden.payload), ok());
        let taken = "BUSYKEY Target key name already exists.";
        let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
        for (key, text) in [("string", wrong), ("native", taken), ("redisbloom", taken), ("theirs", taken)] {
            let before = digest(&mut client, key);
            assert_eq!(load(&mut client, key, &golden.payload), error(text), "{key}");
            assert_eq!(digest(&mut client, key), before, "{key}");
        }
    });
}

#[test]
fn another_version_is_refused_by_name() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let mut payload = Model::new(10, 0.01, 0.5, 2, [1; 32]).payload();
        for version in [0, 2, 3, 0x7f, 0xff] {
            payload[0] = version;
            let expected = error("ERR bloom object decoding failed. Unsupported version");
            assert_eq!(load(&mut client, "k", &payload), expected, "version {version}");
        }
        assert_eq!(client.run("EXISTS k"), integer(0));
    });
}

#[test]
fn what_ends_early_or_is_no_filter_does_not_decode() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let payload = Model::new(10, 0.01, 0.5, 2, [1; 32]).payload();
        for length in 1..payload.len() {
            assert_eq!(load(&mut client, "k", &payload[..length]), error(DECODING_FAILED), "{length} bytes");
        }
        assert!(load(&mut client, "k", b"").error_text().starts_with(DECODING_FAILED));
        assert_eq!(
            load(&mut client, "k", b"\x01 a text and no filter at all, but long enough"),
            error(DECODING_FAILED)
        );
        assert_eq!(client.run("EXISTS k"), integer(0));
    });
}

#[test]
fn bytes_after_the_end_are_let_pass_and_carried_word_for_word() {
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
fn an_error_is_not_carried() {
    on_every_server(|program| {
        let server = Server::with(program).line("appendonly yes").start();
        let mut client = server.connect();
        client.run("BF.ADD taken a");
        let length = append_only_length(&server);
        let payload = Model::new(10, 0.01, 0.5, 2, [1; 32]).payload();
        assert!(load(&mut client, "taken", &payload).is_error());
        assert!(load(&mut client, "k", &payload[..40]).is_error());
        assert!(load(&mut client, "k", &[&[9], &payload[1..]].concat()).is_error());
        assert_eq!(append_only_length(&server), length);
    });
}

#[test]
fn a_script_and_a_transaction_load_too() {
    on_every_server(|program| {
        let mut server = Server::with(program).line(THEIR_CEILING).line("appendonly yes").start();
        let mut client = server.connect();
        let golden = &goldens()[0];
        let script = b"return redis.call('BF.LOAD', KEYS[1], ARGV[1])".as_slice();
        assert_eq!(client.call(&[b"EVAL", script, b"1", b"script", &golden.payload]), ok());
        client.run("MULTI");
        load(&mut client, "transaction", &golden.payload);
        assert_eq!(client.run("EXEC"), array([ok()]));
        server.restart(Stop::Kill);
        let mut client = server.connect();
        for key in ["script", "transaction"] {
            golden.assert_is_at(&mut client, key);
        }
    });
}

#[test]
fn the_ceiling_binds_a_client() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let goldens = goldens();
        let golden = goldens.iter().max_by_key(|golden| golden.payload.len()).unwrap();
        assert_eq!(client.run("CONFIG SET bf.max-filter-bytes 5000"), ok());
        let reply = load(&mut client, "k", &golden.payload);
        assert!(reply.is_error(), "{reply:?}");
        let reply = restore(&mut client, "k", &golden.dump);
        assert_eq!(reply, error("ERR Bad data format"));
        assert_eq!(client.run("EXISTS k"), integer(0));
        assert_eq!(client.run("CONFIG SET bf.max-filter-bytes 0"), ok());
        client.run("CONFIG SET maxmemory 1");
        assert!(load(&mut client, "k", &golden.payload).error_text().starts_with("OOM"));
        client.run("CONFIG SET maxmemory 0");
        assert_eq!(load(&mut client, "k", &golden.payload), ok());
        assert_eq!(restore(&mut client, "restored", &golden.dump), ok());
        assert_eq!(digest(&mut client, "k"), digest(&mut client, "restored"));
    });
}

/// The record of a filter exists once in the child that rewrites the file, not twice: it grows in the string that the server
/// writes.
#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs /proc, which has a child's own memory")]
fn a_rewrite_holds_a_record_once() {
    on_every_server(|program| {
        let mut server = Server::with(program).line("appendonly yes").line("aof-use-rdb-preamble no").start();
        let mut client = server.connect();
        let many: Vec<String> = (0..40_000).map(|number| number.to_string()).collect();
        // Large; one that grew; layers of one size, which would be copied again and again; small.
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
        // The child is seen now and then only: the most of several, and of more on a machine that is busy.
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

/// Rewrites the file; answers the most memory of its own that the child was seen with, in bytes.
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
