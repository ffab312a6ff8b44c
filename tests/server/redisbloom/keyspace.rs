//! The counters after a refused payload, and RedisBloom's other types, which stop the start of a server.

use std::fs;

use super::golden::{TODAY, filters, restore};
use super::model::Model;
use super::payload::{fields_of, snapshot_of_value, value_of};
use testing::{Server, integer, on_every_server, simple, start_on_snapshot};

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

/// A snapshot with one key, `k`, of a module's type.
fn snapshot_of(type_name: &str) -> Vec<u8> {
    let mut model = Model::reserve(0.01, 100, 2);
    model.add(b"a");
    let encoding = if type_name == "MBbloom--" { 4 } else { 1 };
    snapshot_of_value("k", &value_of(type_name, encoding, &fields_of(&model, 4)))
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
