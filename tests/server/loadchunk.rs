//! BF.LOADCHUNK, by which a rewritten append-only file brings a filter back: record by record, in order, and not live
//! before the last one has come. The records here are those that a rewrite wrote.

use std::path::Path;

use crate::harness::{
    Connection, Reply, Server, Stop, error, eventually, integer, ok, on_every_server, rewritten_commands,
};
use crate::persistence::rewrite_append_only_file;

/// The records of a filter named `k`, and its digest.
struct Dump {
    records: Vec<Vec<Vec<u8>>>,
    digest: Reply,
}

/// A filter of several layers and megabytes with some items in it, as a rewrite writes it.
fn dump(program: &Path) -> Dump {
    let server = Server::with(program).line("appendonly yes").line("aof-use-rdb-preamble no").start();
    let mut client = server.connect();
    client.run("BF.RESERVE k 0.01 1000 EXPANSION 4000 SEED 1");
    let items: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
    client.batched(&[b"BF.MADD", b"k"], &items);
    rewrite_append_only_file(&mut client);
    let records = rewritten_commands(&server);
    assert!(records.len() >= 5, "a header and some chunks");
    assert!(records.iter().all(|words| words[0] == b"BF.LOADCHUNK" && words[1] == b"k" && words.len() == 4));
    Dump { records, digest: client.run("DEBUG DIGEST-VALUE k") }
}

fn assert_not_live(client: &mut Connection) {
    for line in [
        "BF.ADD k 1",
        "BF.MADD k 1 x",
        "BF.EXISTS k 1",
        "BF.MEXISTS k 1 x",
        "BF.CARD k",
        "BF.INFO k",
        "BF.INFO k SIZE",
        "BF.DEBUG k",
        "BF.SCANDUMP k 0",
        "BF.INSERT k ITEMS 1",
        "BF.INSERT k NOCREATE ITEMS 1",
    ] {
        assert_eq!(client.run(line), error("ERR filter is still being loaded"), "{line}");
    }
    assert!(client.run("BF.RESERVE k 0.01 100").is_error());
}

fn assert_whole(client: &mut Connection, dump: &Dump) {
    assert_eq!(client.run("DEBUG DIGEST-VALUE k"), dump.digest);
    for number in 0..2000 {
        assert_eq!(client.run(&format!("BF.EXISTS k {number}")), integer(1));
    }
    assert!(!client.run("BF.ADD k something-new").is_error());
}

#[test]
fn a_filter_is_live_with_its_last_record_and_not_before() {
    on_every_server(|program| {
        let dump = dump(program);
        let server = Server::start(program);
        let mut client = server.connect();
        let (last, others) = dump.records.split_last().unwrap();
        for record in others {
            assert_eq!(client.call(record), ok());
            assert_not_live(&mut client);
        }
        client.run("PEXPIREAT k 4102444800123");
        assert_eq!(client.call(last), ok());
        assert_eq!(client.run("PEXPIRETIME k"), integer(4_102_444_800_123), "the time to live is kept");
        client.run("PERSIST k"); // DIGEST-VALUE looks at it, too.
        assert_whole(&mut client, &dump);
        let digest = client.run("DEBUG DIGEST-VALUE k");
        client.call(&dump.records[0]);
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest, "a header that comes late changes nothing");

        // Another filter is not overwritten by a header.
        client.run("BF.ADD other x");
        let digest = client.run("DEBUG DIGEST-VALUE other");
        let mut header = dump.records[0].clone();
        header[1] = b"other".to_vec();
        assert!(client.call(&header).error_text().starts_with("ERR received bad data"));
        assert_eq!(client.run("DEBUG DIGEST-VALUE other"), digest);
    });
}

#[test]
fn what_does_not_fit_is_refused_and_the_stream_can_go_on() {
    on_every_server(|program| {
        let dump = dump(program);
        let server = Server::start(program);
        let mut client = server.connect();
        assert!(client.call(&dump.records[1]).is_error(), "a chunk without its header");
        assert_eq!(client.run("EXISTS k"), integer(0));
        for (number, record) in dump.records.iter().enumerate() {
            let refused = |client: &mut Connection, what: &str, record: &[Vec<u8>]| {
                let before = client.run("DEBUG DIGEST-VALUE k");
                let reply = client.call(record);
                assert!(reply.error_text().starts_with("ERR "), "record {number}, {what}: {reply:?}");
                assert_eq!(client.run("DEBUG DIGEST-VALUE k"), before, "record {number}, {what}");
            };
            let with = |iterator: &str, data: &[u8]| -> Vec<Vec<u8>> {
                vec![record[0].clone(), record[1].clone(), iterator.into(), data.to_vec()]
            };
            let (iterator, data) = (String::from_utf8(record[2].clone()).unwrap(), record[3].as_slice());
            let mut torn = data.to_vec();
            torn[data.len() / 2] ^= 1;
            refused(&mut client, "one bit wrong", &with(&iterator, &torn));
            refused(&mut client, "a byte short", &with(&iterator, &data[..data.len() - 1]));
            refused(&mut client, "a byte long", &with(&iterator, &[data, b"x"].concat()));
            refused(&mut client, "no data", &with(&iterator, b""));
            for other in ["0", "-1", "99", "9223372036854775807", "-9223372036854775808", "4294967297"] {
                refused(&mut client, other, &with(other, data));
            }
            refused(&mut client, "no number", &with("x", data));
            if let Some(later) = dump.records.get(number + 2) {
                refused(&mut client, "a later record", later);
            }
            assert_eq!(client.call(record), ok());
            if number + 1 < dump.records.len() {
                assert_eq!(client.call(record), ok(), "the same record again");
                assert_eq!(client.call(&dump.records[0]), ok(), "the header again");
            }
        }
        assert_whole(&mut client, &dump);
    });
}

#[test]
fn half_a_filter_is_kept_as_half_a_filter() {
    on_every_server(|program| {
        let dump = dump(program);
        for half in [1, dump.records.len() / 2, dump.records.len() - 1] {
            let mut server = Server::with(program).line("appendonly yes").line("aof-use-rdb-preamble no").start();
            let mut client = server.connect();
            for record in &dump.records[..half] {
                assert_eq!(client.call(record), ok());
            }
            let before = client.run("DEBUG DIGEST-VALUE k");
            assert_eq!(client.run("DEBUG RELOAD"), ok());
            assert_eq!(client.run("DEBUG DIGEST-VALUE k"), before);
            server.restart(Stop::Kill);
            let mut client = server.connect();
            assert_eq!(client.run("DEBUG DIGEST-VALUE k"), before);
            rewrite_append_only_file(&mut client);
            server.restart(Stop::Kill);
            let mut client = server.connect();
            assert_eq!(client.run("DEBUG DIGEST-VALUE k"), before);
            assert_not_live(&mut client);

            assert_eq!(client.run("COPY k copy"), integer(1));
            let payload = client.run("DUMP copy").bytes().to_vec();
            client.run("DEL k copy");
            assert_eq!(client.call(&[b"RESTORE".as_slice(), b"k", b"0", &payload]), ok());
            assert_eq!(client.run("DEBUG DIGEST-VALUE k"), before);
            for record in &dump.records[half..] {
                assert_eq!(client.call(record), ok());
            }
            assert_whole(&mut client, &dump);
        }
    });
}

#[test]
fn a_replica_has_the_half_that_its_primary_has() {
    on_every_server(|program| {
        let dump = dump(program);
        let (server, other) = (Server::start(program), Server::with(program).line("bf.max-filter-bytes 500").start());
        let (mut primary, mut replica) = (server.connect(), other.connect());
        let (first, second) = dump.records.split_at(dump.records.len() / 2);
        for record in first {
            assert_eq!(primary.call(record), ok());
        }
        replica.run(&format!("REPLICAOF 127.0.0.1 {}", server.port));
        let same = |primary: &mut Connection, replica: &mut Connection| {
            eventually("the replica to have what its primary has", || {
                replica.run("DEBUG DIGEST-VALUE k") == primary.run("DEBUG DIGEST-VALUE k")
            });
        };
        same(&mut primary, &mut replica);
        assert_eq!(replica.run("BF.EXISTS k 1"), error("ERR filter is still being loaded"));
        for record in second {
            assert_eq!(primary.call(record), ok());
        }
        same(&mut primary, &mut replica);
        assert_eq!(replica.run("DEBUG DIGEST-VALUE k"), dump.digest);
        // A dump that begins while the replica listens.
        primary.run("RENAME k former");
        for record in &dump.records {
            assert_eq!(primary.call(record), ok());
        }
        same(&mut primary, &mut replica);
        assert_eq!(replica.run("BF.EXISTS k 1"), integer(1));
    });
}

/// Answers the next record of a dump of `k`; nothing at its end.
fn next_record(client: &mut Connection, before: i64) -> Option<(i64, Vec<u8>)> {
    let reply = client.run(&format!("BF.SCANDUMP k {before}"));
    let [iterator, data] = reply.elements() else { panic!("{reply:?}") };
    (iterator.number() > 0).then(|| (iterator.number(), data.bytes().to_vec()))
}

fn load(client: &mut Connection, (iterator, data): &(i64, Vec<u8>)) -> Reply {
    client.call(&[b"BF.LOADCHUNK".as_slice(), b"copy", iterator.to_string().as_bytes(), data])
}

/// Dumps `k`, and sends the records until one is refused.
fn dump_into_copy(client: &mut Connection) -> Result<(), Reply> {
    let mut before = 0;
    while let Some(record) = next_record(client, before) {
        let reply = load(client, &record);
        if reply.is_error() {
            return Err(reply);
        }
        before = record.0;
    }
    Ok(())
}

/// The words that make a filter of each kind.
const KINDS: [&str; 7] = [
    "0.01 1000",
    "0.01 1000 HASH siphash",
    "0.01 1000 COUNTING",
    "0.01 1000 WINDOW 1000",
    "0.01 1000 WINDOW 1000 SLIDING HASH siphash",
    "0.01 1000 ROLLING",
    "0.01 1000 LAYOUT redisbloom",
];

/// An error is what a client understands. OK to records that are not taken would make it believe in its copy.
#[test]
fn a_later_dump_to_the_same_key_is_refused_or_was_there_already() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for words in KINDS {
            client.run("FLUSHALL");
            client.run(&format!("BF.RESERVE k {words}"));
            client.run("BF.MADD k a b c");
            assert_eq!(dump_into_copy(&mut client), Ok(()), "{words}");
            let again = dump_into_copy(&mut client);
            // RedisBloom's header says nothing of its dump: it creates a filter, or it is refused.
            assert_eq!(again.is_ok(), !words.contains("LAYOUT"), "{words}: {again:?}");
            client.run("BF.ADD k d");
            let digest = client.run("DEBUG DIGEST-VALUE copy");
            assert!(dump_into_copy(&mut client).is_err(), "{words}");
            assert_eq!(client.run("DEBUG DIGEST-VALUE copy"), digest, "{words}");
        }
    });
}

#[test]
fn an_item_that_was_added_again_is_not_deleted_in_a_copy_without_an_error() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for words in ["0.01 1000 HASH siphash", "0.01 1000 WINDOW 1000 HASH siphash", "0.01 1000 ROLLING HASH siphash"]
        {
            client.run("FLUSHALL");
            client.run(&format!("BF.RESERVE k {words}"));
            client.run("BF.MADD k a b");
            client.run("BF.DEL k a");
            assert_eq!(dump_into_copy(&mut client), Ok(()));
            client.run("BF.ADD k a");
            let refused = dump_into_copy(&mut client).expect_err("the table is another one");
            assert_eq!(
                refused,
                error("ERR received bad data: the chunk differs from the one that came before"),
                "{words}"
            );
        }
    });
}

/// A client that began again after a bucket had ended, and sends the new chunks after its first header.
#[test]
fn chunks_of_a_ring_that_rotated_do_not_follow_an_older_header() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for words in ["WINDOW 1000 BUCKETS 3", "WINDOW 1000 BUCKETS 3 HASH siphash", "ROLLING BUCKETS 3"] {
            client.run("FLUSHALL");
            client.run(&format!("BF.RESERVE k 0.01 100 {words}"));
            for item in ["a", "b", "c"] {
                client.run(&format!("BF.ADD k {item}"));
                client.run("BF.ROTATE k");
            }
            let header = next_record(&mut client, 0).unwrap();
            assert_eq!(load(&mut client, &header), ok());
            client.run("BF.ADD k d");
            client.run("BF.ROTATE k");
            let other = next_record(&mut client, 0).unwrap();
            assert!(load(&mut client, &other).is_error(), "{words}: the header");
            let mut before = other.0;
            while let Some(record) = next_record(&mut client, before) {
                assert!(load(&mut client, &record).is_error(), "{words}");
                before = record.0;
            }
            let stale = client.run(&format!("BF.SCANDUMP k {}", header.0));
            assert_eq!(stale, error("ERR the filter was replaced since the dump began"), "{words}");
            assert_eq!(client.run("BF.EXISTS copy a"), error("ERR filter is still being loaded"));
        }
    });
}

#[test]
fn the_ceiling_binds_a_client_that_loads() {
    on_every_server(|program| {
        let dump = dump(program);
        let server = Server::with(program).line("bf.max-filter-bytes 100000").start();
        let mut client = server.connect();
        crate::reserve::sizes_of_a_refusal(&client.call(&dump.records[0]));
        assert_eq!(client.run("EXISTS k"), integer(0));
    });
}

#[test]
fn an_iterator_that_was_never_handed_out_is_called_that() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.ADD k a");
        for iterator in [1, 2, 77, 1 << 30] {
            assert_eq!(client.run(&format!("BF.SCANDUMP k {iterator}")), error("ERR invalid iterator"), "{iterator}");
        }
    });
}
