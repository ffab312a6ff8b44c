//! BF.LOADCHUNK of a dump made by RedisBloom: the chunks arrive in order and in pieces of any length, and refusals have RedisBloom's texts.

use std::path::Path;

use super::golden::{Golden, RELEASES, TODAY, filter, filters, load_chunks, restore, snapshot};
use super::words::{TheirPrimary, encode, encode_chunk, following};
use crate::golden::as_commands;
use crate::loadchunk::LOADING;
use crate::persistence::rewrite_append_only_file;
use testing::{
    Connection, Record, Reply, Rng, Server, Stop, array, bulk, dump, error, eventually, integer, load_record, ok,
    on_every_server, records, rewritten_commands, simple, start_on_commands, value_of, with_append_only_file,
    with_client,
};

/// Records of a dump.
pub type Chunks = Vec<Record>;

fn send(client: &mut Connection, key: &str, iterator: i64, data: &[u8]) -> Reply {
    load_record(client, key, &(iterator, data.to_vec()))
}

/// Eleven layers of 64 bytes and more.
pub fn golden() -> Golden {
    filter(TODAY, "expansion-1")
}

/// The bits of all layers, cut into pieces of up to `length` bytes that do not cross layers.
pub fn pieces(golden: &Golden, length: usize) -> Chunks {
    let mut pieces = vec![golden.chunks[0].clone()];
    let mut end = 1;
    for (_, layer) in &golden.chunks[1..] {
        for piece in layer.chunks(length) {
            end += piece.len() as i64;
            pieces.push((end, piece.to_vec()));
        }
    }
    pieces
}

#[test]
fn chunks_may_have_any_length() {
    on_every_server(|program| {
        let server = Server::start(program);
        for golden in filters(TODAY).into_iter().filter(|golden| golden.payload.len() < 20_000) {
            for length in [1, 7, 8, 63, 64, 1000] {
                load_chunks(&server, "k", &pieces(&golden, length));
                golden.check(&server, "k");
                let mut client = server.connect();
                let digest = client.run("DEBUG DIGEST-VALUE k");
                restore(&server, "twin", &golden.payload);
                assert_eq!(client.run("DEBUG DIGEST-VALUE twin"), digest, "{} in pieces of {length}", golden.key);
                client.run("DEL k twin");
                if golden.payload.len() > 5000 {
                    break;
                }
            }
        }
    });
}

#[test]
fn chunks_that_do_not_fit_are_refused_and_the_load_continues() {
    with_client(|server, client| {
        let golden = golden();
        let pieces = pieces(&golden, 48);
        let end = pieces[pieces.len() - 1].0;
        assert_eq!(send(client, "k", pieces[1].0, &pieces[1].1), error("ERR not found"));
        assert_eq!(send(client, "k", 1, b""), error("ERR received bad data"));
        for (number, (iterator, data)) in pieces.iter().enumerate() {
            if number > 0 {
                let before = client.run("DEBUG DIGEST-VALUE k");
                let mut refused = |what: &str, iterator: i64, data: &[u8]| {
                    let reply = send(client, "k", iterator, data);
                    let text = reply.error_text().to_owned();
                    let known = [
                        "ERR received bad data",
                        "ERR invalid offset - no link found",
                        "ERR invalid chunk - Too big for current filter",
                    ];
                    assert!(known.iter().any(|known| text.starts_with(known)), "chunk {number}, {what}: {text}");
                    assert_eq!(client.run("DEBUG DIGEST-VALUE k"), before, "chunk {number}, {what}");
                    text
                };
                for (later, data) in pieces.iter().skip(number + 1) {
                    refused("a chunk too early", *later, data);
                }
                let text = refused("beyond the end", end + 48, &[0; 48]);
                assert_eq!(text, "ERR invalid offset - no link found");
                refused("far beyond the end", i64::MAX, &[0; 48]);
                for wrong in [0, -1, i64::MIN, 2] {
                    refused("an iterator that cannot be", wrong, &[0; 48]);
                }
                // The rest of this layer, and one byte more.
                let starts = iterator - data.len() as i64;
                let mut boundary = 1;
                for (_, layer) in &golden.chunks[1..] {
                    boundary += layer.len() as i64;
                    if boundary > starts {
                        break;
                    }
                }
                let long = vec![0; (boundary - starts + 1) as usize];
                let text = refused("across layers", boundary + 1, &long);
                let expected = if boundary == end { "ERR " } else { "ERR invalid chunk - Too big for current filter" };
                assert!(text.starts_with(expected), "across layers: {text}");
            }
            let words = ["BF.LOADCHUNK", "k", "x", "data"];
            assert!(client.call(&words).error_text().ends_with("Second argument must be numeric"));
            assert_eq!(send(client, "k", *iterator, data), ok());
        }
        golden.check(server, "k");
    });
}

/// The exact text of RedisBloom.
#[test]
fn malformed_records_are_bad_data() {
    with_client(|_, client| {
        client.run("BF.RESERVE source 0.01 100 LAYOUT redisbloom");
        let header = client.run("BF.SCANDUMP source 0").elements()[1].bytes().to_vec();
        assert_eq!(send(client, "k", 1, &header[..header.len() - 1]), error("ERR received bad data"));
        assert_eq!(send(client, "k", 1, &header), ok());
        for data in [&b"abc"[..], &header[..30]] {
            assert_eq!(send(client, "k", 1, data), error("ERR received bad data"));
        }
        assert_eq!(send(client, "k", 0, b"abc"), error("ERR received bad data"));
    });
}

// The way back to RedisBloom: DUMP, BF.SCANDUMP and a rewritten append-only file have the same bytes as RedisBloom's.

#[test]
fn scandump_answers_every_iterator() {
    with_client(|server, client| {
        let golden = filter(TODAY, "expansion-1");
        restore(server, "k", &golden.payload);
        let end = array([integer(0), bulk("")]);
        let total: usize = golden.chunks.iter().skip(1).map(|(_, data)| data.len()).sum();
        for iterator in ["-1", "-9223372036854775808", "9223372036854775807", &(total + 1).to_string()] {
            assert_eq!(client.run(&format!("BF.SCANDUMP k {iterator}")), end, "{iterator}");
        }
        for word in ["x", "", "1.5", "9223372036854775808"] {
            let reply = client.run(&format!("BF.SCANDUMP k {word}"));
            assert!(reply.error_text().ends_with("Second argument must be numeric"), "{word}: {reply:?}");
        }
        assert_eq!(client.run("BF.SCANDUMP missing 0"), error("ERR not found"));
        // An iterator that BF.SCANDUMP never returned gives an error, or bytes at the position that the reply states.
        let bits: Vec<u8> = golden.chunks.iter().skip(1).flat_map(|(_, data)| data.clone()).collect();
        for iterator in 2..=bits.len() {
            let reply = client.run(&format!("BF.SCANDUMP k {iterator}"));
            if !reply.is_error() {
                let (next, data) = (reply.elements()[0].number() as usize, reply.elements()[1].bytes());
                assert!(data.is_empty() || &bits[next - 1 - data.len()..next - 1] == data, "iterator {iterator}");
            }
        }
    });
}

#[test]
fn a_filter_is_written_as_redisbloom_writes_it_and_an_old_one_in_todays_format() {
    on_every_server(|program| {
        for release in RELEASES {
            let mut server = with_append_only_file(program);
            let mut client = server.connect();
            let filters = filters(release);
            for golden in &filters {
                restore(&server, &golden.key, &golden.payload);
            }
            rewrite_append_only_file(&mut client);
            let rewritten = rewritten_commands(&server);
            for golden in &filters {
                let payload = dump(&mut client, &golden.key);
                let chunks = records(&mut client, &golden.key);
                let own: Vec<_> = rewritten.iter().filter(|words| words[1] == golden.key.as_bytes()).cloned().collect();
                assert!(own == as_commands(&golden.key, &chunks), "{release}: {} is rewritten otherwise", golden.key);
                if release == TODAY {
                    assert!(value_of(&payload) == value_of(&golden.payload), "{}: the payloads differ", golden.key);
                    assert!(chunks == golden.chunks, "{}: the pairs differ", golden.key);
                }
            }
            server.restart(Stop::Kill);
            filters.iter().for_each(|golden| golden.check(&server, &golden.key));
        }
    });
}

#[test]
fn chunks_have_16_mebibytes_at_most_and_never_cross_a_layer() {
    on_every_server(|program| {
        const MOST: usize = 16 << 20;
        let mut server = with_append_only_file(program);
        let mut client = server.connect();
        // The second layer has 33 times the size of the first: half its rate and 30 times its capacity.
        assert_eq!(client.run("BF.RESERVE k 0.01 500000 EXPANSION 30 LAYOUT redisbloom"), ok());
        let items: Vec<String> = (0..501_000).map(|number| number.to_string()).collect();
        client.batched(&[b"BF.MADD", b"k"], &items);
        let stats = client.run("BF.STATS k");
        let layers: Vec<usize> =
            stats.field("Layers").elements().iter().map(|layer| layer.field("Size").number() as usize).collect();
        assert!(layers.len() == 2 && layers[0] < MOST && layers[1] > MOST, "{layers:?}");
        let chunks = records(&mut client, "k");
        let lengths: Vec<usize> = chunks[1..].iter().map(|(_, data)| data.len()).collect();
        assert_eq!(lengths, [layers[0], MOST, layers[1] - MOST]);
        let mut end = 1;
        for (iterator, data) in &chunks[1..] {
            end += data.len() as i64;
            assert_eq!(*iterator, end);
        }
        let digest = client.run("DEBUG DIGEST-VALUE k");
        load_chunks(&server, "twin", &chunks);
        assert_eq!(client.run("DEBUG DIGEST-VALUE twin"), digest);
        rewrite_append_only_file(&mut client);
        assert!(rewritten_commands(&server).iter().all(|words| words[3].len() <= MOST));
        server.restart(Stop::Kill);
        assert_eq!(server.connect().run("DEBUG DIGEST-VALUE k"), digest);
        assert_eq!(server.connect().run("DEBUG DIGEST-VALUE twin"), digest);
    });
}

// Chunks of BF.LOADCHUNK as a RedisBloom primary accepts and propagates them: in any order, over existing bits, into filters in use. A
// replica, and the reader of such an append-only file, get the primary's bits.

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
fn a_filter_is_complete_after_chunks_in_any_order() {
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
            // One chunk arrives with other bytes first.
            primary.send_bytes(encode_chunk("k", others[0].0, &vec![0x55; others[0].1.len()]));
            primary.send_bytes(encoded("k", others));
            // Some chunks are repeated.
            primary.send_bytes(encoded("k", &others[others.len() / 2..]));
            wait_for(&mut client, &primary, &format!("mark-{seed}"));
            assert_eq!(client.run("BF.EXISTS k item:1"), error(LOADING));
            primary.send_bytes(encoded("k", std::slice::from_ref(last)));
            wait_for(&mut client, &primary, &format!("end-{seed}"));
            golden.check(&replica, "k");
        }
        // Loaders that proceed from the last layer to the first.
        let (header, mut chunks) = shuffled(&golden, 60, 0);
        chunks.sort();
        chunks.reverse();
        primary.send(&["DEL k"]);
        primary.send_bytes(encoded("k", &[header, chunks].concat()));
        wait_for(&mut client, &primary, "reversed");
        golden.check(&replica, "k");
    });
}

/// Starts a server on a RedisBloom primary's file with half of the chunks, with gaps between them. Also returns the other chunks.
pub fn with_gaps(program: &Path, key: &str) -> (Server, Chunks) {
    let (header, mut chunks) = shuffled(&golden(), 60, 5);
    let rest = chunks.split_off(chunks.len() / 2);
    let commands = encoded(key, &[header, chunks].concat());
    (start_on_commands(program, &["auto-aof-rewrite-percentage 0"], &commands), rest)
}

/// RedisBloom's filter is in use from its header on. Items added during a load are in the filter; later chunks overwrite their bits.
#[test]
fn items_during_a_load_have_the_same_effect_as_on_the_primary() {
    on_every_server(|program| {
        let mut golden = filter(TODAY, "empty");
        let bits: Vec<u8> = (0..golden.chunks[1].1.len()).map(|place| u8::from(place % 16 == 0)).collect();
        golden.chunks[1].1.clone_from(&bits);
        let pieces = pieces(&golden, 60);
        let (first, rest) = pieces.split_at(pieces.len() / 2);
        let parts = [encoded("k", first), encode(&["BF.MADD k x y z", "BF.INSERT k NOCREATE I u"]), encoded("k", rest)];

        // The bits of the items, and of the chunks, of which the later ones overwrite the items' bits.
        let source = Server::start(program);
        let mut client = source.connect();
        restore(&source, "k", &golden.payload);
        client.run("BF.MADD k x y z u");
        let mut expected = records(&mut client, "k");
        let came = first.last().unwrap().0 as usize - 1;
        expected[1].1.iter_mut().zip(&bits).for_each(|(byte, bits)| *byte |= bits);
        expected[1].1[came..].copy_from_slice(&bits[came..]);

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
        assert_eq!(records(&mut client, "k"), expected);

        let mut server = start_on_commands(program, &[], &parts.concat());
        assert_eq!(records(&mut server.connect(), "k"), expected);
        server.restart(Stop::Kill);
        assert_eq!(records(&mut server.connect(), "k"), expected);
    });
}

/// A replica that joins in the middle of a load gets the partial filter as a complete one. The primary also accepts chunks for filters that
/// were not created by a header.
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
        assert_eq!(records(&mut client, "tiny"), [&golden.chunks[..1], &zeros].concat());
        primary.send_bytes(encoded("tiny", &golden.chunks[1..]));
        // An empty chunk is accepted, too.
        primary.send_bytes(encode_chunk("tiny", 9, b""));
        wait_for(&mut client, &primary, "again");
        golden.check(&replica, "tiny");
        primary.send(&["BF.ADD made a"]);
        primary.send_bytes(encode_chunk("made", 17, &[0xff; 16]));
        wait_for(&mut client, &primary, "made-mark");
        let mut expected = client.run("BF.SCANDUMP made 17").elements()[1].bytes().to_vec();
        expected.splice(..0, [0xff; 16]);
        assert_eq!(client.run("BF.SCANDUMP made 1").elements()[1].bytes(), expected);
        assert!(expected[16..].iter().any(|bits| *bits != 0), "the item's bits");
    });
}
