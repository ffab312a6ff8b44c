//! The limits of RedisBloom's layout: a header that announces more data than follows, and commands that RedisBloom refused for lack of
//! memory.

use super::golden::{TODAY, snapshot};
use super::model::{Layer, Model};
use super::words::{TheirPrimary, assert_ends_the_server, encode, encode_chunk, following};
use testing::{
    Connection, Server, Stop, array, dump, error, eventually, integer, ok, on_every_server, simple, start_on_commands,
};

/// A sound filter of two small layers.
pub fn sound() -> Model {
    let mut model = Model::reserve(0.2, 10, 2);
    for number in 0..15 {
        model.add(format!("item:{number}").as_bytes());
    }
    assert_eq!(model.layers.len(), 2);
    model
}

/// Two layers, the newer one full, so that the next item needs a third.
fn full() -> Model {
    let mut model = Model::reserve(0.2, 10, 2);
    let mut number = 0;
    while model.items < 30 {
        model.add(format!("item:{number}").as_bytes());
        number += 1;
    }
    assert_eq!(model.layers.len(), 2);
    model
}

/// A header may announce far more data than ever arrives: only the data that has arrived takes memory.
#[test]
fn a_header_that_announces_much_costs_little() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.max-filter-bytes 3000000000").start();
        let mut client = server.connect();
        let mut header = full().header();
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
        let refused = client.call::<&[u8]>(&[b"RESTORE", b"k", b"0", &sound().payload(5)]);
        assert_eq!(refused, error("ERR Bad data format"));
        assert!(server.log().contains(&format!("bloomgate: cannot load a filter: {known}")), "{}", server.log());
        let header = sound().header();
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
fn full_primary() -> Vec<u8> {
    let mut header = Vec::new();
    let items = 1u64 << 50;
    header.extend(items.to_le_bytes());
    [1u32, 5, 2].iter().for_each(|field| header.extend(field.to_le_bytes()));
    let Layer { hashes, bits_per_entry, bits, bytes, .. } = with_present().layers.remove(0);
    [bits / 8, bits, items].iter().for_each(|field| header.extend(field.to_le_bytes()));
    [0.005, bits_per_entry].iter().for_each(|field| header.extend(field.to_le_bytes()));
    header.extend((hashes as u32).to_le_bytes());
    header.extend(items.to_le_bytes());
    header.push(0);
    [encode_chunk("full", 1, &header), encode_chunk("full", 1 + bytes.len() as i64, &bytes)].concat()
}

fn with_present() -> Model {
    let mut model = Model::reserve(0.01, 100, 2);
    model.add(b"present");
    model
}

fn assert_went_on(server: &Server) {
    let mut client = server.connect();
    eventually("the end of the stream", || client.run("EXISTS the-end") == integer(1));
    // A filter by default, as on the primary.
    let model = Model::of_payload(&dump(&mut client, "huge")).1;
    let mut expected = Model::reserve(0.01, 100, 2);
    assert_eq!((expected.add(b"a"), expected.add(b"b")), (Some(true), Some(true)));
    assert_eq!(model, expected);
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
    assert_eq!(Model::of_payload(&dump(client, key)).1.layers[0].bytes.len(), 8);
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
        primary.send_bytes(full_primary());
        primary.send(&AFTERWARDS);
        assert_went_on(&replica);

        let commands = [encode(&RESERVATIONS), full_primary(), encode(&AFTERWARDS)].concat();
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
