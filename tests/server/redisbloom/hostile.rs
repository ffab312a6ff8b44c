//! The limits of RedisBloom's layout: a header that announces more data than follows, and commands that RedisBloom refused for lack of
//! memory.

use super::golden::{Golden, TODAY, filter, snapshot};
use super::words::{TheirPrimary, assert_ends_the_server, encode, encode_chunk, following};
use std::path::Path;

use crate::payload::{fields_of_payload, payload_of_type};
use testing::{
    Connection, Server, Stop, array, error, eventually, integer, ok, on_every_server, records, restore, simple,
    start_on_commands,
};

/// The payload and the records of a sound filter of two small layers, made by RedisBloom.
pub fn sound() -> Golden {
    filter(TODAY, "tiny")
}

/// A header may announce far more data than ever arrives: only the data that has arrived takes memory.
#[test]
fn a_header_that_announces_much_costs_little() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.max-filter-bytes 3000000000").start();
        let mut client = server.connect();
        let mut header = sound().chunks[0].1.clone();
        header[20..28].copy_from_slice(&2_000_000_000_u64.to_le_bytes());
        let words: [&[u8]; 4] = [b"BF.LOADCHUNK", b"k", b"1", &header];
        assert_eq!(client.call(&words), ok());
        let words: [&[u8]; 4] = [b"BF.LOADCHUNK", b"k", b"1001", &[7; 1000]];
        assert_eq!(client.call(&words), ok());
        let resident = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", server.process_id()));
            let line = status.ok()?.lines().find(|line| line.starts_with("VmHWM"))?.to_owned();
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        };
        // Only Linux reports this.
        if let Some(kilobytes) = resident() {
            assert!(kilobytes < 100_000, "{kilobytes} kB were resident");
        }
        assert_eq!(client.run("DEL k"), integer(1));
        client.assert_no_filters();
    });
}

/// RedisBloom's pull request 1065 proposes a seed and another hash: encoding 5, and 16 more bytes in the header of a dump. A filter read
/// without these bytes would report its items absent.
#[test]
fn a_newer_encoding_is_refused_by_its_number() {
    on_every_server(|program| {
        let server = Server::with(program).start();
        let mut client = server.connect();
        let known = "version 5 of the layout is not known";
        let (type_number, fields) = fields_of_payload(&sound().payload).expect("a module's value");
        let refused = restore(&mut client, "k", &payload_of_type(type_number + 1, &fields));
        assert_eq!(refused, error("ERR Bad data format"));
        assert!(server.log().contains(&format!("bloomgate: cannot load a filter: {known}")), "{}", server.log());
        let header = &sound().chunks[0].1;
        let newer = [&header[..20], &[7; 16], &header[20..]].concat();
        let refused = client.call::<&[u8]>(&[b"BF.LOADCHUNK", b"k", b"1", &newer]);
        assert_eq!(refused, error(&format!("ERR received bad data: {known}")));
        client.assert_no_filters();
    });
}

// Commands that RedisBloom propagates although they failed for lack of memory: a reservation (release 2.6), an item for which a filter must
// grow (all releases). A replica and the reader of its append-only file continue, but exit if an item could be missing.

/// More memory than a server gets for one filter, and more than any machine has.
const RESERVATIONS: [&str; 3] = [
    "BF.RESERVE large 0.01 100000000000000",
    "BF.RESERVE huge 0.01 1000000000000000000",
    "BF.RESERVE huge 0.01 1600000000000000000 NONSCALING",
];

/// Later commands of the primary's clients on those keys, and on filters of release 2.6 whose size wraps around to 0.
const AFTERWARDS: [&str; 7] = [
    "BF.ADD huge a",
    "BF.INSERT huge NOCREATE ITEMS b",
    "BF.INSERT wrapped CAPACITY 9223372036854775807 ITEMS a b",
    "BF.RESERVE wrapped-too 1e-300 1700000000000000000",
    "BF.ADD wrapped-too a",
    "BF.MADD full present new",
    "SET the-end x",
];

/// A header and a chunk from a client of the primary: a filter that is full with 2^50 items.
fn full_primary(program: &Path) -> Vec<u8> {
    let server = Server::start(program);
    let mut client = server.connect();
    client.run("BF.RESERVE k 0.01 100 LAYOUT redisbloom");
    client.run("BF.ADD k present");
    let with_present = records(&mut client, "k");
    let mut header = Vec::new();
    let items = 1u64 << 50;
    header.extend(items.to_le_bytes());
    [1u32, 5, 2].iter().for_each(|field| header.extend(field.to_le_bytes()));
    let [_, (end, bits)] = &with_present[..] else { panic!("more than one layer") };
    let size = bits.len() as u64;
    [size, 8 * size, items].iter().for_each(|field| header.extend(field.to_le_bytes()));
    // The rate of the layer, its bits for each item, its hashes.
    header.extend([0.005_f64, 11.027753418256411].map(f64::to_le_bytes).concat());
    header.extend(8_u32.to_le_bytes());
    header.extend(items.to_le_bytes());
    header.push(0);
    [encode_chunk("full", 1, &header), encode_chunk("full", *end, bits)].concat()
}

fn assert_went_on(server: &Server) {
    let mut client = server.connect();
    eventually("the end of the stream", || client.run("EXISTS the-end") == integer(1));
    // A filter by default, as on the primary.
    assert_eq!(
        client.run("BF.DEBUG huge").elements()[1].text(),
        "bytes:144 bits:1152 hashes:8 hashwidth:64 capacity:100 size:2 ratio:0.005"
    );
    assert_eq!(client.run("BF.MEXISTS huge a b c"), array([1, 1, 0].map(integer)));
    assert_wrapped(&mut client, "wrapped", "a b", i64::MAX, 2);
    assert_wrapped(&mut client, "wrapped-too", "a", 1_700_000_000_000_000_000, 1);
    assert_eq!(client.run("BF.MEXISTS full present new"), array([1, 0].map(integer)));
    assert_eq!(client.run("BF.CARD full"), integer(1 << 50));
    assert_eq!(client.gauge("refused"), 0, "only clients' items are counted");
    let log = server.log();
    assert!(log.contains("bloomgate: ignoring a reservation larger than this machine's memory: "), "{log}");
    assert!(log.contains("bloomgate: an item needs a layer larger than any machine's memory: "), "{log}");
}

/// On x86-64, 2.6 creates it with 64 bits.
fn assert_wrapped(client: &mut Connection, key: &str, items: &str, capacity: i64, card: i64) {
    assert_eq!(client.run(&format!("TYPE {key}")), simple("MBbloom--"));
    assert_eq!(client.run(&format!("BF.INFO {key} CAPACITY")), array([integer(capacity)]));
    assert!(client.run(&format!("BF.DEBUG {key}")).elements()[1].text().starts_with("bytes:8 bits:64 "));
    for item in items.split(' ') {
        assert_eq!(client.run(&format!("BF.EXISTS {key} {item}")), integer(1));
    }
    assert_eq!(client.run(&format!("BF.CARD {key}")), integer(card));
}

#[test]
fn oversized_effects_are_skipped() {
    on_every_server(|program| {
        let primary = TheirPrimary::start(snapshot(TODAY));
        let replica = following(program, &primary);
        primary.send(&RESERVATIONS);
        primary.send_bytes(full_primary(program));
        primary.send(&AFTERWARDS);
        assert_went_on(&replica);

        let commands = [encode(&RESERVATIONS), full_primary(program), encode(&AFTERWARDS)].concat();
        let mut server = start_on_commands(program, &[], &commands);
        assert_went_on(&server);
        server.restart(Stop::Kill);
        assert_went_on(&server);
    });
}

#[test]
fn effects_with_items_or_of_our_layout_are_never_skipped() {
    on_every_server(|program| {
        for line in [
            "BF.INSERT k CAPACITY 1000000000000000000 ITEMS a",
            "BF.INSERT k CAPACITY 1000000000000000000 ERROR 0.01 EXPANSION 2 SEED 7",
        ] {
            assert_ends_the_server(program, line);
        }
    });
}
