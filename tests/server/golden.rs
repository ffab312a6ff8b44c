//! Filters that other programs and earlier releases made load for ever, with every answer that they gave there, by every
//! way into a server. They are written again as the bytes that they came in. The data is in `tests/data`; what reads it lies
//! here for our own layout, and beside the tests of the two others.

mod native;
mod writing;

use std::sync::LazyLock;

use crate::growth::Model;
use crate::persistence::rewrite_append_only_file;
use crate::{redisbloom, valkey_bloom};
use testing::{
    Connection, Record, Server, Stop, digest, integer, ok, on_every_server, restore, rewritten_commands,
    start_on_commands, start_on_snapshot,
};

/// A filter that another program or an earlier release made.
pub trait Golden: Send + Sync {
    fn key(&self) -> &str;

    /// The items that were added to it.
    fn items(&self) -> Vec<String>;

    /// The payloads that DUMP gave, compressed and not.
    fn payloads(&self) -> Vec<Vec<u8>>;

    /// The commands that bring it to a key, as they stand in a rewritten append-only file; empty where the data has none.
    fn commands(&self, key: &str) -> Vec<Vec<Vec<u8>>>;

    /// Asks a server everything that the data has an answer to.
    fn check(&self, server: &Server, at: &str);

    /// Whether a part of the filter's records has come.
    fn is_arriving(&self) -> bool {
        false
    }

    /// Bytes of bits, layers, items and capacity, worked out without the module.
    fn sizes(&self) -> Option<[usize; 4]> {
        None
    }

    /// The same filter, worked out from its payload.
    fn model(&self) -> Option<Box<dyn Model>> {
        None
    }
}

/// All filters that one program made.
pub struct Source {
    pub name: &'static str,
    pub snapshot: Vec<u8>,
    pub append_only_files: Vec<Vec<u8>>,
    pub filters: Vec<Box<dyn Golden>>,
}

/// Every program and release that there is data of.
pub fn sources() -> &'static [Source] {
    static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(read_sources);
    &SOURCES
}

fn read_sources() -> Vec<Source> {
    let mut sources: Vec<Source> = native::RELEASES.iter().map(|release| release.source()).collect();
    sources.push(valkey_bloom::golden::source());
    sources.extend(redisbloom::golden::RELEASES.map(redisbloom::golden::source));
    sources.extend(redisbloom::golden::OF_ENCODING_3.map(redisbloom::golden::source_of_encoding_3));
    sources
}

/// Records as the commands that load them.
pub fn as_commands(key: &str, records: &[Record]) -> Vec<Vec<Vec<u8>>> {
    let words = |(iterator, data): &Record| {
        vec![b"BF.LOADCHUNK".into(), key.as_bytes().into(), iterator.to_string().into(), data.clone()]
    };
    records.iter().map(words).collect()
}

/// Commands without the generations of native filters, to compare them.
fn comparable(commands: &[Vec<Vec<u8>>], source: &Source) -> Vec<Vec<Vec<u8>>> {
    let record = |words: &Vec<Vec<u8>>| -> Record {
        (std::str::from_utf8(&words[2]).expect("digits").parse().expect("a number"), words[3].clone())
    };
    if native::RELEASES.iter().any(|release| release.name == source.name) {
        as_commands("k", &native::without_generations(&commands.iter().map(record).collect::<Vec<_>>()))
    } else {
        commands.iter().map(|words| words[2..].to_vec()).collect()
    }
}

/// Settings under which no client could make a golden filter.
const CONTRARY: [&str; 4] =
    ["bf.max-filter-bytes 100", "bf.expansion-factor 0", "bf.error-rate 0.2", "bf.initial-size 7"];

/// Checks all filters of a source, each of which is also what RESTORE of its payload gives.
fn check_all(server: &Server, source: &Source) {
    let mut client = server.connect();
    // The ceiling under which valkey-bloom gave its answers.
    client.run(&format!("CONFIG SET {}", valkey_bloom::golden::THEIR_CEILING));
    assert_eq!(client.run("DBSIZE"), integer(source.filters.len() as i64), "{}", source.name);
    for golden in &source.filters {
        eprintln!("{}: {}", source.name, golden.key());
        golden.check(server, golden.key());
        assert_eq!(restore(&mut client, "restored", &golden.payloads()[0]), ok());
        assert_eq!(digest(&mut client, "restored"), digest(&mut client, golden.key()), "{}", golden.key());
        client.run("DEL restored");
    }
}

#[test]
fn a_snapshot_loads_whatever_the_settings_and_a_snapshot_of_ours_keeps_it() {
    on_every_server(|program| {
        for source in sources() {
            let mut server = start_on_snapshot(program, &CONTRARY, &source.snapshot);
            check_all(&server, source);
            let before = server.connect().run("DEBUG DIGEST");
            server.restart(Stop::Save);
            let mut client = server.connect();
            assert_eq!(client.run("DEBUG DIGEST"), before, "{}", source.name);
            assert_eq!(client.run("DEBUG RELOAD"), ok());
            assert_eq!(client.run("DEBUG DIGEST"), before, "{}", source.name);
        }
    });
}

#[test]
fn an_append_only_file_loads_whatever_the_settings_and_is_rewritten_as_it_was() {
    on_every_server(|program| {
        for source in sources() {
            for file in &source.append_only_files {
                let mut server = start_on_commands(program, &CONTRARY, file);
                check_all(&server, source);
                let before = server.connect().run("DEBUG DIGEST");
                rewrite_append_only_file(&mut server.connect());
                let commands = rewritten_commands(&server);
                for golden in &source.filters {
                    let own = commands.iter().filter(|words| words[1] == golden.key().as_bytes());
                    let own: Vec<Vec<Vec<u8>>> = own.cloned().collect();
                    let expected = golden.commands(golden.key());
                    assert!(
                        comparable(&own, source) == comparable(&expected, source) && own[0][0] == expected[0][0],
                        "{}: {} is rewritten in another way",
                        source.name,
                        golden.key()
                    );
                }
                server.restart(Stop::Kill);
                assert_eq!(server.connect().run("DEBUG DIGEST"), before, "{}", source.name);
            }
        }
    });
}

#[test]
fn every_payload_is_restored_and_no_two_filters_have_one_digest() {
    on_every_server(|program| {
        let server = Server::with(program).line("sanitize-dump-payload yes").start();
        let mut client = server.connect();
        client.run(&format!("CONFIG SET {}", valkey_bloom::golden::THEIR_CEILING));
        for source in sources() {
            let mut seen = Vec::new();
            for golden in &source.filters {
                for payload in golden.payloads() {
                    client.run("DEL k");
                    assert_eq!(restore(&mut client, "k", &payload), ok(), "{}: {}", source.name, golden.key());
                    golden.check(&server, "k");
                }
                let digest = digest(&mut client, "k");
                assert!(!seen.contains(&digest), "{}: two filters have one digest", source.name);
                seen.push(digest);
            }
        }
    });
}

#[test]
fn every_command_of_a_rewritten_file_loads_when_a_client_sends_it() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run(&format!("CONFIG SET {}", valkey_bloom::golden::THEIR_CEILING));
        for source in sources() {
            for golden in &source.filters {
                let commands = golden.commands("k");
                for command in &commands {
                    assert_eq!(client.call(command), ok(), "{}: {}", source.name, golden.key());
                }
                if !commands.is_empty() {
                    golden.check(&server, "k");
                    assert_eq!(restore(&mut client, "restored", &golden.payloads()[0]), ok());
                    assert_eq!(digest(&mut client, "restored"), digest(&mut client, "k"), "{}", golden.key());
                }
                client.run("DEL k restored");
            }
        }
    });
}

#[test]
fn memory_usage_is_the_bits_and_a_little() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for source in sources() {
            for golden in &source.filters {
                let Some([bytes, layers, ..]) = golden.sizes() else { continue };
                assert_eq!(restore(&mut client, "k", &golden.payloads()[0]), ok());
                let usage = client.run("MEMORY USAGE k").number() as usize;
                let most = bytes + bytes / 8 + 400 + 200 * layers;
                assert!((bytes..most).contains(&usage), "{}: {usage} for {bytes} bytes", golden.key());
                client.run("DEL k");
            }
        }
    });
}

#[test]
fn filters_are_counted_and_given_back() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let gauges = |client: &mut Connection| {
            ["num_filters_across_objects", "num_items_across_objects", "capacity_across_objects", "num_objects"]
                .map(|name| client.gauge(name))
        };
        for source in sources() {
            let goldens: Vec<_> = source.filters.iter().filter(|golden| golden.sizes().is_some()).collect();
            let (mut expected, mut bytes) = ([0; 4], 0);
            for golden in &goldens {
                assert_eq!(restore(&mut client, golden.key(), &golden.payloads()[0]), ok());
                let [bits, sizes @ ..] = golden.sizes().expect("sizes");
                expected.iter_mut().zip(sizes).for_each(|(sum, size)| *sum += size as i64);
                expected[3] += 1;
                bytes += bits as i64;
            }
            let Some(first) = goldens.first() else { continue };
            assert_eq!(gauges(&mut client), expected, "{}", source.name);
            assert!(client.gauge("total_memory_bytes") >= bytes);

            // Every way to make a filter and to lose one keeps the count.
            let payload = &first.payloads()[0];
            let [_, layers, items, capacity] = first.sizes().expect("sizes").map(|size| size as i64);
            assert_eq!(client.run(&format!("COPY {} copy", first.key())), integer(1));
            assert_eq!(restore(&mut client, "restored", payload), ok());
            assert_eq!(client.call(&[b"RESTORE", b"restored".as_slice(), b"0", payload, b"REPLACE"]), ok());
            assert!(restore(&mut client, "broken", &payload[..payload.len() / 2]).is_error());
            for command in first.commands("copy") {
                client.call(&command);
            }
            assert_eq!(client.run("BF.ADD copy one-more"), integer(1));
            let more = [2 * layers, 2 * items + 1, 2 * capacity, 2];
            expected.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
            assert_eq!(gauges(&mut client), expected, "{}", source.name);
            let many: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
            client.batched(&[b"BF.MADD", b"copy"], &many);
            let grown = gauges(&mut client);
            assert!(grown[0] > expected[0] && grown[1] > expected[1] && grown[2] > expected[2], "{grown:?}");
            assert_eq!(client.run("DEBUG RELOAD"), ok());
            assert_eq!(gauges(&mut client), grown);
            assert_eq!(client.run("UNLINK copy"), integer(1));
            assert_eq!(client.run("SET restored string"), ok());
            assert_eq!(client.run("FLUSHALL"), ok());
            client.wait_for_frees();
            assert_eq!(gauges(&mut client), [0; 4], "{}", source.name);
            assert_eq!(client.gauge("total_memory_bytes"), 0);
        }
    });
}
