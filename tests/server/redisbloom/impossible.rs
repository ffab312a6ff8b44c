//! What RedisBloom carries although it could not do it, for want of memory: a reservation (release 2.6), an item for which a
//! filter would have to grow (all releases). A replica and the reader of its append-only file go on; where they could lack
//! an item, they end.

use super::golden::{TODAY, snapshot};
use super::model::{Layer, Model};
use super::their_primary::{TheirPrimary, encode, encode_chunk};
use super::words::{assert_ends_the_server, following};
use testing::{Connection, Server, Stop, array, dump, eventually, integer, on_every_server, simple, start_on_commands};

/// More than a server gets for one filter, and what no machine has.
const RESERVATIONS: [&str; 3] = [
    "BF.RESERVE large 0.01 100000000000000",
    "BF.RESERVE huge 0.01 1000000000000000000",
    "BF.RESERVE huge 0.01 1600000000000000000 NONSCALING",
];

/// What clients of the primary did with those keys, and with filters of release 2.6 whose size wraps to nothing.
const AFTERWARDS: [&str; 7] = [
    "BF.ADD huge a",
    "BF.INSERT huge NOCREATE ITEMS b",
    "BF.INSERT wrapped CAPACITY 9223372036854775807 ITEMS a b",
    "BF.RESERVE wrapped-too 1e-300 1700000000000000000",
    "BF.ADD wrapped-too a",
    "BF.MADD full present new",
    "SET the-end x",
];

/// A header and a chunk, as a client of the primary sent them: a filter that is full at 2^50 items.
fn full() -> Vec<u8> {
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
    let log = server.log();
    assert!(log.contains("bloomgate: ignoring a reservation larger than this machine's memory: "), "{log}");
    assert!(log.contains("bloomgate: an item needs a layer larger than any machine's memory: "), "{log}");
}

/// 2.6 makes it with 64 bits, on x86-64.
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
fn what_no_machine_could_hold_is_passed_over() {
    on_every_server(|program| {
        let primary = TheirPrimary::start(snapshot(TODAY));
        let replica = following(program, &primary);
        primary.send(&RESERVATIONS);
        primary.send_bytes(full());
        primary.send(&AFTERWARDS);
        assert_went_on(&replica);

        let commands = [encode(&RESERVATIONS), full(), encode(&AFTERWARDS)].concat();
        let mut server = start_on_commands(program, &[], &commands);
        assert_went_on(&server);
        server.restart(Stop::Kill);
        assert_went_on(&server);
    });
}

#[test]
fn what_holds_items_or_is_ours_is_never_passed_over() {
    on_every_server(|program| {
        for line in [
            "BF.INSERT k CAPACITY 1000000000000000000 ITEMS a",
            "BF.INSERT k CAPACITY 1000000000000000000 ERROR 0.01 EXPANSION 2 SEED 7",
        ] {
            assert_ends_the_server(program, line);
        }
    });
}
