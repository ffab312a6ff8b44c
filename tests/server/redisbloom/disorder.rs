//! Chunks of BF.LOADCHUNK as a RedisBloom primary takes and carries them: in any order, over what is there, into filters
//! that are in use. A replica, and the reader of such an append-only file, end with the primary's bits.

use std::path::Path;

use super::golden::{Golden, TODAY, filter, load_chunks, snapshot};
use super::loadchunk::{Chunks, golden, pieces};
use super::model::Model;
use super::their_primary::{TheirPrimary, encode, encode_chunk};
use super::words::following;
use crate::loadchunk::{LOADING, assert_not_live, assert_survive_every_way};
use testing::{
    Connection, Rng, Server, Stop, dump, error, eventually, integer, ok, on_every_server, simple, start_on_commands,
};

fn encoded(key: &str, chunks: &[(i64, Vec<u8>)]) -> Vec<u8> {
    chunks.iter().flat_map(|(iterator, data)| encode_chunk(key, *iterator, data)).collect()
}

/// The header, and the pieces of the bits in an order that depends on the seed.
fn shuffled(golden: &Golden, length: usize, seed: u64) -> (Chunks, Chunks) {
    let mut rng = Rng::new(seed);
    let mut pieces = pieces(golden, length);
    let mut chunks = pieces.split_off(1);
    for end in (1..chunks.len()).rev() {
        chunks.swap(end, rng.below(end as u64 + 1) as usize);
    }
    (pieces, chunks)
}

fn wait_for(client: &mut Connection, primary: &TheirPrimary, mark: &str) {
    primary.send(&[&format!("SET {mark} x")]);
    eventually("the stream", || client.run(&format!("EXISTS {mark}")) == integer(1));
}

#[test]
fn a_filter_whose_chunks_came_in_any_order_arrives() {
    on_every_server(|program| {
        let primary = TheirPrimary::start(snapshot(TODAY));
        let replica = following(program, &primary);
        let mut client = replica.connect();
        let golden = golden();
        for (seed, length) in [(1, 60), (2, 60), (3, 7), (4, 1000)] {
            let (header, chunks) = shuffled(&golden, length, seed);
            let (last, others) = chunks.split_last().unwrap();
            primary.send(&["DEL k"]);
            primary.send_bytes(encoded("k", &header));
            // One comes with other bytes first.
            primary.send_bytes(encode_chunk("k", others[0].0, &vec![0x55; others[0].1.len()]));
            primary.send_bytes(encoded("k", others));
            // Some come again.
            primary.send_bytes(encoded("k", &others[others.len() / 2..]));
            wait_for(&mut client, &primary, &format!("mark-{seed}"));
            assert_eq!(client.run("BF.EXISTS k item:1"), error(LOADING));
            primary.send_bytes(encoded("k", std::slice::from_ref(last)));
            wait_for(&mut client, &primary, &format!("end-{seed}"));
            golden.check(&replica, "k");
        }
        // Loaders that go from the last layer to the first.
        let (header, mut chunks) = shuffled(&golden, 60, 0);
        chunks.sort();
        chunks.reverse();
        primary.send(&["DEL k"]);
        primary.send_bytes(encoded("k", &[header, chunks].concat()));
        wait_for(&mut client, &primary, "reversed");
        golden.check(&replica, "k");
    });
}

/// A server that reads a RedisBloom primary's file in which half of the chunks are, with gaps between them.
fn half(program: &Path, golden: &Golden) -> (Server, Chunks) {
    let (header, mut chunks) = shuffled(golden, 60, 5);
    let rest = chunks.split_off(chunks.len() / 2);
    let server = start_on_commands(program, &[], &encoded("k", &[header, chunks].concat()));
    assert_not_live(&mut server.connect(), "k");
    (server, rest)
}

/// What is left comes, as clients send it: none of it begins after a gap.
fn finish(server: &Server, golden: &Golden) {
    assert_not_live(&mut server.connect(), "k");
    load_chunks(server, "k", &pieces(golden, 60)[1..]);
    golden.check(server, "k");
}

#[test]
fn gaps_survive_every_way_out_and_in() {
    on_every_server(|program| {
        let golden = golden();
        let (mut server, rest) = half(program, &golden);
        assert_survive_every_way(&mut server, &["k".to_owned()]);

        // A replica of the reader has the same, and chunks in any order are accepted from primaries only.
        let digest = |server: &Server| server.connect().run("DEBUG DIGEST-VALUE k");
        let before = digest(&server);
        let other = Server::with(program).start();
        let mut replica = other.connect();
        assert_eq!(replica.run(&format!("REPLICAOF 127.0.0.1 {}", server.port)), ok());
        eventually("the replica to have what its primary has", || digest(&other) == before);
        let (iterator, data) = rest.iter().max().map(|(iterator, data)| (iterator.to_string(), data)).unwrap();
        let words: [&[u8]; 4] = [b"BF.LOADCHUNK", b"k", iterator.as_bytes(), data];
        assert!(server.connect().call(&words).is_error());
        finish(&server, &golden);
        eventually("the replica to have what its primary has", || digest(&other) == digest(&server));
        golden.check(&other, "k");
        let whole = digest(&server);
        server.restart(Stop::Kill);
        assert_eq!(digest(&server), whole, "finished");
    });
}

/// RedisBloom's filter is in use from its header on. What it took in the middle of a load is in; what comes after it lies
/// over it.
#[test]
fn items_in_the_middle_of_a_load_are_taken_as_the_primary_took_them() {
    on_every_server(|program| {
        let mut golden = filter(TODAY, "empty");
        let bits: Vec<u8> = (0..golden.chunks[1].1.len()).map(|place| u8::from(place % 16 == 0)).collect();
        golden.chunks[1].1.clone_from(&bits);
        let pieces = pieces(&golden, 60);
        let (first, rest) = pieces.split_at(pieces.len() / 2);
        let parts = [encoded("k", first), encode(&["BF.MADD k x y z", "BF.INSERT k NOCREATE I u"]), encoded("k", rest)];

        let mut model = golden.model();
        let came = first.last().unwrap().0 as usize - 1;
        model.layers[0].bytes[..came].copy_from_slice(&bits[..came]);
        for item in [b"x", b"y", b"z", b"u"] {
            assert_eq!(model.add(item), Some(true));
        }
        model.layers[0].bytes[came..].copy_from_slice(&bits[came..]);

        let primary = TheirPrimary::start(snapshot(TODAY));
        let replica = following(program, &primary);
        let mut client = replica.connect();
        primary.send_bytes(parts[0].clone());
        wait_for(&mut client, &primary, "half");
        assert_eq!(client.run("BF.EXISTS k x"), error(LOADING));
        primary.send_bytes(parts[1].clone());
        wait_for(&mut client, &primary, "items");
        assert_eq!(client.run("TYPE k"), simple("MBbloom--"), "as the primary's, it is in use");
        assert_eq!(client.run("BF.EXISTS k x"), integer(1));
        primary.send_bytes(parts[2].clone());
        wait_for(&mut client, &primary, "end");
        assert_eq!(Model::of_payload(&dump(&mut client, "k")).1, model);

        let mut server = start_on_commands(program, &[], &parts.concat());
        assert_eq!(Model::of_payload(&dump(&mut server.connect(), "k")).1, model);
        server.restart(Stop::Kill);
        assert_eq!(Model::of_payload(&dump(&mut server.connect(), "k")).1, model);
    });
}

/// A replica that joins in the middle of a load gets what has come as a whole filter. The primary also takes chunks for
/// filters that no header made.
#[test]
fn chunks_go_into_filters_that_are_in_use() {
    on_every_server(|program| {
        let golden = filter(TODAY, "tiny");
        let primary = TheirPrimary::start(snapshot(TODAY));
        let replica = following(program, &primary);
        let mut client = replica.connect();
        // `tiny` is in the snapshot.
        let zeros: Chunks = golden.chunks[1..].iter().map(|(end, data)| (*end, vec![0; data.len()])).collect();
        primary.send_bytes(encoded("tiny", &zeros));
        wait_for(&mut client, &primary, "zeros");
        let mut model = golden.model();
        model.layers.iter_mut().for_each(|layer| layer.bytes.fill(0));
        assert_eq!(Model::of_payload(&dump(&mut client, "tiny")).1, model);
        primary.send_bytes(encoded("tiny", &golden.chunks[1..]));
        // Nothing is taken, too.
        primary.send_bytes(encode_chunk("tiny", 9, b""));
        wait_for(&mut client, &primary, "again");
        golden.check(&replica, "tiny");
        primary.send(&["BF.ADD made a"]);
        primary.send_bytes(encode_chunk("made", 17, &[0xff; 16]));
        wait_for(&mut client, &primary, "made-mark");
        let mut model = Model::reserve(0.01, 100, 2);
        model.add(b"a");
        model.layers[0].bytes[..16].fill(0xff);
        assert_eq!(Model::of_payload(&dump(&mut client, "made")).1, model);
    });
}
