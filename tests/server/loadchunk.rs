//! BF.LOADCHUNK loads a filter of any kind record by record. The filter is not live until its last record has arrived; until then it is
//! persisted as a partial filter.

use std::path::Path;

use crate::golden::as_commands;
use crate::redisbloom::loadchunk::{golden, pieces, with_gaps};
use crate::transfer::{through_clients, through_files_and_replicas};
use testing::{
    Connection, Record, Reply, Server, Stop, catch_up, digest, error, eventually, follow, integer, load_record,
    load_records, next_record, ok, on_every_server, records, restore, simple, with_client,
};

pub const LOADING: &str = "ERR filter is still being loaded";

/// The options that create a filter of each kind.
const KINDS: [(&str, &str); 9] = [
    ("native", "0.01 1000 EXPANSION 4000 SEED 1"),
    ("keyed", "0.01 1000 HASH siphash"),
    ("counting", "0.01 3000 COUNTING"),
    ("cuckoo", "0.01 1000 CUCKOO"),
    ("windowed", "0.01 1000 WINDOW 100000000"),
    ("sliding", "0.01 1000 WINDOW 100000000 SLIDING HASH siphash"),
    ("rolling", "0.01 3000 ROLLING"),
    ("deleted", "0.01 30000 HASH siphash"),
    ("redisbloom", "0.01 1000 LAYOUT redisbloom"),
];

/// The records of a filter, its digest and its members.
struct Dump {
    name: String,
    records: Vec<Record>,
    digest: Reply,
    members: Vec<String>,
}

/// Dumps of filters of every kind, the first with several layers and megabytes, and a dump made by RedisBloom.
fn dumps(program: &Path) -> Vec<Dump> {
    let server = Server::start(program);
    let mut client = server.connect();
    let items: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
    let made = KINDS.map(|(name, words)| {
        assert_eq!(client.run(&format!("BF.RESERVE {name} {words}")), ok());
        client.batched(&[b"BF.MADD", name.as_bytes()], &items);
        let members = if name == "deleted" {
            client.batched(&[b"BF.MDEL", b"deleted"], &items[..100]);
            items[100..].to_vec()
        } else {
            items.clone()
        };
        let records = records(&mut client, name);
        assert!(records.len() >= 2, "{name}: a header and bits");
        Dump { name: name.to_owned(), records, digest: digest(&mut client, name), members }
    });
    assert!(made[0].records.len() >= 5 && made[0].records[4].1.len() > 100_000, "chunks");
    let golden = golden();
    assert_eq!(restore(&mut client, "golden", &golden.payload), ok());
    let digest = digest(&mut client, "golden");
    let of_golden = [("golden", golden.chunks.clone()), ("golden in pieces", pieces(&golden, 60))]
        .map(|(name, records)| Dump { name: name.to_owned(), records, digest: digest.clone(), members: Vec::new() });
    made.into_iter().chain(of_golden).collect()
}

impl Dump {
    fn assert_whole(&self, client: &mut Connection, key: &str) {
        assert_eq!(digest(client, key), self.digest, "{}", self.name);
        let present = client.batched(&[b"BF.MEXISTS", key.as_bytes()], &self.members);
        assert!(!present.contains(&false), "{}", self.name);
        assert!(!client.call(&["BF.ADD", key, "something new"]).is_error(), "{}", self.name);
    }

    /// The numbers of records after which a partial load is checked.
    fn middles(&self) -> Vec<usize> {
        let mut middles = vec![1, self.records.len() / 2, self.records.len() - 1];
        middles.dedup();
        middles
    }

    fn middle(&self) -> usize {
        self.records.len() / 2
    }
}

pub fn assert_not_live(client: &mut Connection, key: &str) {
    assert_eq!(client.call(&["TYPE", key]), simple("bloomgate"));
    for line in [
        "BF.ADD $ item:1",
        "BF.MADD $ item:1 x",
        "BF.EXISTS $ item:1",
        "BF.MEXISTS $ item:1 x",
        "BF.CARD $",
        "BF.INFO $",
        "BF.INFO $ SIZE",
        "BF.DEBUG $",
        "BF.SCANDUMP $ 0",
        "BF.INSERT $ ITEMS 1",
        "BF.INSERT $ NOCREATE ITEMS 1",
        "BF.DEL $ item:1",
        "BF.MDEL $ item:1 x",
        "BF.COUNT $ item:1",
        "BF.STATS $",
        "BF.ROTATE $",
        "BF.CLEAR $",
    ] {
        let words: Vec<&str> = line.split(' ').map(|word| if word == "$" { key } else { word }).collect();
        assert_eq!(client.call(&words), error(LOADING), "{line}: {key}");
    }
    assert!(client.call(&["BF.RESERVE", key, "0.01", "100"]).is_error());
    assert!(client.call(&["BF.RESERVE", key, "0.01", "100", "LAYOUT", "redisbloom"]).is_error());
}

#[test]
fn a_filter_is_live_with_its_last_record_and_not_before() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.ADD other x");
        let other = digest(&mut client, "other");
        for dump in dumps(program) {
            let (last, others) = dump.records.split_last().unwrap();
            for record in others {
                load_records(&mut client, "k", std::slice::from_ref(record));
                assert_not_live(&mut client, "k");
            }
            client.run("PEXPIREAT k 4102444800123");
            load_records(&mut client, "k", std::slice::from_ref(last));
            assert_eq!(client.run("PEXPIRETIME k"), integer(4_102_444_800_123), "the time to live is kept");
            client.run("PERSIST k"); // The digest contains the time to live.
            dump.assert_whole(&mut client, "k");
            let whole = digest(&mut client, "k");
            for record in &dump.records {
                load_record(&mut client, "k", record);
            }
            assert_eq!(digest(&mut client, "k"), whole, "{}: records that come late change nothing", dump.name);

            let refused = load_record(&mut client, "other", &dump.records[0]);
            assert!(refused.error_text().starts_with("ERR received bad data"), "{}: {refused:?}", dump.name);
            assert_eq!(digest(&mut client, "other"), other, "{}: a header overwrites no filter", dump.name);
            client.run("DEL k");
        }
    });
}

/// Even a single byte that is not a header: RedisBloom checks the key first.
#[test]
fn a_header_is_refused_by_a_live_filter_of_another_layout() {
    with_client(|_, client| {
        client.run("BF.RESERVE redisbloom 0.01 100 LAYOUT redisbloom");
        client.run("BF.INSERT valkey-bloom TIGHTENING 0.5 ITEMS x");
        let header = next_record(client, "redisbloom", 0).unwrap().1;
        for key in ["redisbloom", "valkey-bloom"] {
            let before = digest(client, key);
            for data in [&b"x"[..], &header, b""] {
                let refused = load_record(client, key, &(1, data.to_vec()));
                assert_eq!(refused, error("ERR received bad data"), "{key}, {} bytes", data.len());
            }
            assert_eq!(digest(client, key), before, "{key}");
        }
    });
}

#[test]
fn invalid_records_are_refused_and_later_ones_are_accepted() {
    on_every_server(|program| {
        let dump = dumps(program).swap_remove(0);
        let server = Server::start(program);
        let mut client = server.connect();
        let records = as_commands("k", &dump.records);
        assert!(client.call(&records[1]).is_error(), "a chunk without its header");
        assert_eq!(client.run("EXISTS k"), integer(0));
        for (number, record) in records.iter().enumerate() {
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
            if let Some(later) = records.get(number + 2) {
                refused(&mut client, "a later record", later);
            }
            assert_eq!(client.call(record), ok());
            if number + 1 < records.len() {
                assert_eq!(client.call(record), ok(), "the same record again");
                assert_eq!(client.call(&records[0]), ok(), "the header again");
            }
        }
        dump.assert_whole(&mut client, "k");
    });
}

/// Also with gaps between the chunks, as a RedisBloom primary leaves them. Then a replica receives the rest.
#[test]
fn a_part_of_a_filter_survives_every_way_out_and_in() {
    on_every_server(|program| {
        let dumps = dumps(program);
        let (mut server, rest_of_gaps) = with_gaps(program, "gaps");
        let mut client = server.connect();
        let mut parts = Vec::new();
        for dump in &dumps {
            for middle in dump.middles() {
                let key = format!("{}/{middle}", dump.name);
                load_records(&mut client, &key, &dump.records[..middle]);
                parts.push((dump, key, &dump.records[middle..]));
            }
        }
        let keys: Vec<&str> = parts.iter().map(|(_, key, _)| key.as_str()).chain(["gaps"]).collect();
        let before: Vec<Reply> = keys.iter().map(|key| digest(&mut client, key)).collect();
        let check = |occasion: &str, client: &mut Connection| {
            for (key, before) in keys.iter().zip(&before) {
                assert_eq!(&digest(client, key), before, "{occasion}: {key}");
            }
        };
        through_files_and_replicas(program, &mut server, &check);
        let mut client = server.connect();
        through_clients(program, &server, &keys.iter().map(|key| key.as_bytes()).collect::<Vec<_>>(), &check);
        keys.iter().for_each(|key| assert_not_live(&mut client, key));

        let other = Server::with(program).line("bf.max-filter-bytes 100").line("replica-read-only no").start();
        let mut replica = other.connect();
        follow(&mut replica, &server);
        // Chunks in any order are accepted from primaries only.
        let last = rest_of_gaps.iter().max().expect("chunks");
        assert!(load_record(&mut client, "gaps", last).is_error());
        load_records(&mut client, "gaps", &pieces(&golden(), 60)[1..]);
        for (dump, key, rest) in &parts {
            load_records(&mut client, key, rest);
            // A whole dump, replicated record by record.
            load_records(&mut client, format!("new {key}"), &dump.records);
        }
        catch_up(&mut client, &mut replica);
        golden().check(&other, "gaps");
        for (dump, key, _) in &parts {
            dump.assert_whole(&mut replica, key);
            dump.assert_whole(&mut replica, &format!("new {key}"));
        }
        let whole = client.run("DEBUG DIGEST");
        server.restart(Stop::Kill);
        golden().check(&server, "gaps");
        assert_eq!(server.connect().run("DEBUG DIGEST"), whole, "finished");
        for (dump, key, _) in &parts {
            dump.assert_whole(&mut server.connect(), key);
        }
    });
}

#[test]
fn a_part_of_a_filter_that_is_given_up_leaves_no_trace() {
    on_every_server(|program| {
        let dumps = dumps(program);
        let server = Server::start(program);
        let mut client = server.connect();
        for dump in &dumps {
            for end in ["DEL k", "UNLINK k", "FLUSHALL", "SET k string", "PEXPIRE k 1"] {
                load_records(&mut client, "k", &dump.records[..dump.middle()]);
                assert_not_live(&mut client, "k");
                assert!(!client.run(end).is_error());
                eventually("the part to be gone", || client.run("TYPE k") != simple("bloomgate"));
                client.assert_no_filters();
                client.run("DEL k");
            }
        }
    });
}

#[test]
fn the_ceiling_binds_a_client_that_loads() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.max-filter-bytes 500").start();
        let mut client = server.connect();
        for dump in dumps(program) {
            let mut replies = dump.records.iter().map(|record| load_record(&mut client, "k", record));
            let refused = replies.find(Reply::is_error).expect("a refusal");
            crate::reserve::sizes_of_a_refusal(&refused);
            client.run("DEL k");
        }
    });
}

/// Dumps `k`, and sends the records until one is refused.
fn dump_into_copy(client: &mut Connection) -> Result<(), Reply> {
    let mut before = 0;
    while let Some(record) = next_record(client, "k", before) {
        let reply = load_record(client, "copy", &record);
        if reply.is_error() {
            return Err(reply);
        }
        before = record.0;
    }
    Ok(())
}

/// A client needs an error: OK for records that are not stored would make it trust an incomplete copy.
#[test]
fn a_later_dump_to_the_same_key_is_refused_or_was_there_already() {
    with_client(|_, client| {
        for (_, words) in KINDS {
            client.run("FLUSHALL");
            client.run(&format!("BF.RESERVE k {words}"));
            client.run("BF.MADD k a b c");
            assert_eq!(dump_into_copy(client), Ok(()), "{words}");
            let again = dump_into_copy(client);
            // RedisBloom's header does not identify its dump: it creates a filter, or it is refused.
            assert_eq!(again.is_ok(), !words.contains("LAYOUT"), "{words}: {again:?}");
            client.run("BF.ADD k d");
            let digest = client.run("DEBUG DIGEST-VALUE copy");
            assert!(dump_into_copy(client).is_err(), "{words}");
            assert_eq!(client.run("DEBUG DIGEST-VALUE copy"), digest, "{words}");
        }
    });
}

#[test]
fn an_item_that_was_added_again_is_not_deleted_in_a_copy_without_an_error() {
    with_client(|_, client| {
        for words in ["0.01 1000 HASH siphash", "0.01 1000 WINDOW 1000 HASH siphash", "0.01 1000 ROLLING HASH siphash"]
        {
            client.run("FLUSHALL");
            client.run(&format!("BF.RESERVE k {words}"));
            client.run("BF.MADD k a b");
            client.run("BF.DEL k a");
            assert_eq!(dump_into_copy(client), Ok(()));
            client.run("BF.ADD k a");
            let refused = dump_into_copy(client).expect_err("the table is another one");
            assert_eq!(
                refused,
                error("ERR received bad data: the chunk differs from the one that came before"),
                "{words}"
            );
        }
    });
}

/// A client that restarted its dump after a bucket had ended, and sends the new chunks after its first header.
#[test]
fn chunks_of_a_ring_that_rotated_do_not_follow_an_older_header() {
    with_client(|_, client| {
        for words in ["WINDOW 1000 BUCKETS 3", "WINDOW 1000 BUCKETS 3 HASH siphash", "ROLLING BUCKETS 3"] {
            client.run("FLUSHALL");
            client.run(&format!("BF.RESERVE k 0.01 100 {words}"));
            for item in ["a", "b", "c"] {
                client.run(&format!("BF.ADD k {item}"));
                client.run("BF.ROTATE k");
            }
            let header = next_record(client, "k", 0).unwrap();
            assert_eq!(load_record(client, "copy", &header), ok());
            client.run("BF.ADD k d");
            client.run("BF.ROTATE k");
            let other = next_record(client, "k", 0).unwrap();
            assert!(load_record(client, "copy", &other).is_error(), "{words}: the header");
            let mut before = other.0;
            while let Some(record) = next_record(client, "k", before) {
                assert!(load_record(client, "copy", &record).is_error(), "{words}");
                before = record.0;
            }
            let stale = client.run(&format!("BF.SCANDUMP k {}", header.0));
            assert_eq!(stale, error("ERR the filter was replaced since the dump began"), "{words}");
            assert_eq!(client.run("BF.EXISTS copy a"), error("ERR filter is still being loaded"));
        }
    });
}

#[test]
fn an_iterator_that_was_never_handed_out_is_called_that() {
    with_client(|_, client| {
        client.run("BF.ADD k a");
        for iterator in [1, 2, 77, 1 << 30] {
            assert_eq!(client.run(&format!("BF.SCANDUMP k {iterator}")), error("ERR invalid iterator"), "{iterator}");
        }
    });
}
