//! Filters of RedisBloom's layout as keys like any others: copied, renamed, moved, sent to another server, measured,
//! counted, freed. And what no module here can read stops the start, as Redis has it.

use std::fs;
use std::path::Path;

use super::golden::{TODAY, filters, restore, snapshot, start_on_snapshot};
use super::model::Model;
use super::payload::{fields_of, value_of};
use crate::harness::{Connection, Server, digest, eventually, integer, ok, on_every_server, simple};

#[test]
fn copies_are_equal_and_independent() {
    on_every_server(|program| {
        let server = start_on_snapshot(program, &[], &snapshot(TODAY));
        let mut client = server.connect();
        for golden in filters(TODAY) {
            assert_eq!(client.run(&format!("COPY {} copy REPLACE", golden.key)), integer(1));
            assert_eq!(digest(&mut client, "copy"), digest(&mut client, &golden.key));
            golden.check(&server, "copy");
        }
        assert_eq!(client.run("COPY empty twin"), integer(1));
        assert_eq!(client.run("BF.ADD twin only-here"), integer(1));
        assert_eq!(client.run("BF.EXISTS empty only-here"), integer(0));
        assert_eq!(client.run("BF.ADD empty only-there"), integer(1));
        assert_eq!(client.run("BF.EXISTS twin only-there"), integer(0));
        client.run("DEL empty");
        assert_eq!(client.run("BF.EXISTS twin only-here"), integer(1));
    });
}

#[test]
fn renaming_and_moving_keep_the_filter() {
    on_every_server(|program| {
        let server = start_on_snapshot(program, &[], &snapshot(TODAY));
        let mut client = server.connect();
        for golden in filters(TODAY) {
            let before = digest(&mut client, &golden.key);
            assert_eq!(client.run(&format!("RENAME {} renamed", golden.key)), ok());
            assert_eq!(client.run("MOVE renamed 3"), integer(1));
            client.run("SELECT 3");
            assert_eq!(digest(&mut client, "renamed"), before, "{}", golden.key);
            assert_eq!(client.run("COPY renamed back DB 0"), integer(1));
            client.run("DEL renamed");
            client.run("SELECT 0");
            golden.check(&server, "back");
            client.run("DEL back");
        }
    });
}

#[test]
fn migrate_moves_a_filter_to_another_server() {
    on_every_server(|program| {
        let server = start_on_snapshot(program, &[], &snapshot(TODAY));
        let elsewhere = Server::start(program);
        let mut client = server.connect();
        for golden in filters(TODAY) {
            let line = format!("MIGRATE 127.0.0.1 {} {} 0 60000", elsewhere.port, golden.key);
            assert_eq!(client.run(&line), ok(), "{}", golden.key);
            assert_eq!(client.run(&format!("EXISTS {}", golden.key)), integer(0));
            golden.check(&elsewhere, &golden.key);
        }
    });
}

#[test]
fn memory_usage_is_the_bits_and_a_little() {
    on_every_server(|program| {
        let server = start_on_snapshot(program, &[], &snapshot(TODAY));
        let mut client = server.connect();
        for golden in filters(TODAY) {
            let model = golden.model();
            let bytes: usize = model.layers.iter().map(|layer| layer.bytes.len()).sum();
            let usage = client.run(&format!("MEMORY USAGE {}", golden.key)).number();
            let most = bytes + bytes / 8 + 400 + 200 * model.layers.len();
            assert!((bytes as i64..most as i64).contains(&usage), "{}: {usage} for {bytes} bytes", golden.key);
        }
    });
}

#[test]
fn filters_are_counted_and_given_back() {
    on_every_server(|program| {
        let server = start_on_snapshot(program, &[], &snapshot(TODAY));
        let mut client = server.connect();
        let expected = filters(TODAY);
        let models: Vec<Model> = expected.iter().map(|golden| golden.model()).collect();
        let sum = |of: fn(&Model) -> i64| models.iter().map(of).sum::<i64>();
        let counters = |client: &mut Connection| {
            ["num_objects", "num_filters_across_objects", "num_items_across_objects", "capacity_across_objects"]
                .map(|name| client.gauge(name))
        };
        let all = [
            expected.len() as i64,
            sum(|model| model.layers.len() as i64),
            sum(|model| model.items as i64),
            sum(|model| model.info()[0].unwrap()),
        ];
        assert_eq!(counters(&mut client), all);
        let bytes: usize = models.iter().flat_map(|model| &model.layers).map(|layer| layer.bytes.len()).sum();
        assert!(client.gauge("total_memory_bytes") >= bytes as i64);
        client.run("BF.ADD empty one-more");
        assert_eq!(counters(&mut client)[2], all[2] + 1);
        // Growth, a copy and a reload are counted, too.
        let items: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
        client.batched(&[b"BF.MADD", b"expansion-1"], &items);
        client.run("COPY expansion-1 twin");
        let before = counters(&mut client);
        assert_eq!(before[0], all[0] + 1);
        client.run("DEBUG RELOAD");
        assert_eq!(counters(&mut client), before);
        assert_eq!(client.run("UNLINK large twin tiny"), integer(3));
        assert_eq!(client.run("FLUSHALL"), ok());
        eventually("all counters to be zero again", || counters(&mut client) == [0; 4]);
        eventually("the memory to be given back", || client.gauge("total_memory_bytes") == 0);
    });
}

/// The events that commands on one key announce, up to the creation of another one.
fn events_of(program: &Path, layout: &str) -> Vec<String> {
    let server = Server::with(program).line("notify-keyspace-events KEA").start();
    let (mut client, mut listener) = (server.connect(), server.connect());
    listener.run("PSUBSCRIBE __keyevent@0__:*");
    client.run(&format!("CONFIG SET bf.layout {layout}"));
    for line in [
        "BF.RESERVE k 1e-6 2 EXPANSION 1",
        "BF.ADD k a",
        "BF.ADD k a",
        "BF.MADD k a b c d e",
        "BF.MADD k a b",
        "BF.INSERT k ITEMS e f",
        "BF.ADD new a",
        "DEL k",
    ] {
        assert!(!client.run(line).is_error(), "{line}");
    }
    client.run("SET end x");
    let mut events = Vec::new();
    while events.last().is_none_or(|last: &String| !last.ends_with(" end")) {
        let message = listener.receive().expect("an event");
        let [.., channel, key] = message.elements() else { panic!("{message:?}") };
        events.push(format!("{} {}", channel.text(), key.text()));
    }
    events
}

#[test]
fn changes_are_announced_as_those_of_native_filters() {
    on_every_server(|program| {
        let events = events_of(program, "redisbloom");
        assert_eq!(events, events_of(program, "native"));
        for name in ["bloom.reserve k", "bloom.add k", "bloom.scale k", "bloom.add new"] {
            assert!(events.iter().any(|event| event.ends_with(name)), "{name} is not among {events:?}");
        }
    });
}

#[test]
fn a_refused_payload_leaves_no_trace_in_the_counters() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        restore(&server, "k", &filters(TODAY)[0].payload);
        client.run("DEL k");
        let mut model = filters(TODAY)[0].model();
        model.layers.last_mut().unwrap().bits += 1;
        let payload = model.payload(4);
        let words: [&[u8]; 4] = [b"RESTORE", b"k", b"0", &payload];
        assert!(client.call(&words).is_error());
        for name in ["num_objects", "num_items_across_objects", "capacity_across_objects", "total_memory_bytes"] {
            assert_eq!(client.gauge(name), 0, "{name}");
        }
    });
}

/// A snapshot with one key, `k`, of a module's type; the checksum at its end is left out, which zeros say.
fn snapshot_of(type_name: &str) -> Vec<u8> {
    let mut model = Model::reserve(0.01, 100, 2);
    model.add(b"a");
    let mut bytes = b"REDIS0010".to_vec();
    bytes.extend([0xfe, 0]);
    bytes.extend([7, 1, b'k']);
    bytes.extend(value_of(type_name, if type_name == "MBbloom--" { 4 } else { 1 }, &fields_of(&model, 4)));
    bytes.push(0xff);
    bytes.extend([0; 8]);
    bytes
}

#[test]
fn a_snapshot_with_redisblooms_other_types_stops_the_start_and_names_the_type() {
    on_every_server(|program| {
        let server = start_on_snapshot(program, &[], &snapshot_of("MBbloom--"));
        assert_eq!(server.connect().run("TYPE k"), simple("MBbloom--"));
        assert_eq!(server.connect().run("BF.EXISTS k a"), integer(1));
        for other in ["MBbloomCF", "CMSk-TYPE", "TopK-TYPE", "TDIS-TYPE"] {
            let folder = tempfile::tempdir().expect("a temporary directory");
            fs::write(folder.path().join("dump.rdb"), snapshot_of(other)).expect("the snapshot is written");
            let log = Server::with(program).line(&format!("dir {}", folder.path().display())).refuses_to_start();
            assert!(log.contains(other), "{other}: {log}");
        }
    });
}
