//! BF.LOADCHUNK of a dump that RedisBloom made: the filter is not live before its last byte has come, the chunks come
//! in order and in pieces of any length.

use super::golden::{Golden, TODAY, filter, filters, load_chunks, restore};
use crate::harness::{Connection, Reply, Server, error, integer, ok, on_every_server, simple};

pub const LOADING: &str = "ERR filter is still being loaded";

/// Records of a dump: iterators and data.
pub type Chunks = Vec<(i64, Vec<u8>)>;

fn send(client: &mut Connection, key: &str, iterator: i64, data: &[u8]) -> Reply {
    let iterator = iterator.to_string();
    let words: [&[u8]; 4] = [b"BF.LOADCHUNK", key.as_bytes(), iterator.as_bytes(), data];
    client.call(&words)
}

/// Eleven layers of 64 bytes and more.
pub fn golden() -> Golden {
    filter(TODAY, "expansion-1")
}

pub fn assert_not_live(client: &mut Connection) {
    assert_eq!(client.run("TYPE k"), simple("bloomgate"));
    for line in [
        "BF.ADD k item:1",
        "BF.MADD k item:1 x",
        "BF.EXISTS k item:1",
        "BF.MEXISTS k item:1 x",
        "BF.CARD k",
        "BF.INFO k",
        "BF.INFO k SIZE",
        "BF.DEBUG k",
        "BF.INSERT k ITEMS 1",
        "BF.INSERT k NOCREATE ITEMS 1",
    ] {
        assert_eq!(client.run(line), error(LOADING), "{line}");
    }
    assert!(client.run("BF.RESERVE k 0.01 100").is_error());
    assert!(client.run("BF.RESERVE k 0.01 100 LAYOUT redisbloom").is_error());
}

/// The bits of all layers cut into pieces of `length` bytes and less, none across a layer.
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
fn a_filter_is_live_with_its_last_chunk_and_not_before() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let golden = golden();
        let (last, others) = golden.chunks.split_last().unwrap();
        for (iterator, data) in others {
            assert_eq!(send(&mut client, "k", *iterator, data), ok());
            assert_not_live(&mut client);
        }
        client.run("PEXPIREAT k 4102444800123");
        assert_eq!(send(&mut client, "k", last.0, &last.1), ok());
        assert_eq!(client.run("PEXPIRETIME k"), integer(4_102_444_800_123), "the time to live is kept");
        golden.check(&server, "k");
        // What comes late changes nothing, whatever it is answered.
        let digest = client.run("DEBUG DIGEST-VALUE k");
        for (iterator, data) in &golden.chunks {
            send(&mut client, "k", *iterator, data);
        }
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest);
    });
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
fn a_chunk_that_came_already_is_accepted_when_it_is_the_same() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let golden = golden();
        let pieces = pieces(&golden, 50);
        for (number, (iterator, data)) in pieces.iter().enumerate() {
            assert_eq!(send(&mut client, "k", *iterator, data), ok());
            if number + 1 == pieces.len() {
                break;
            }
            for (iterator, data) in &pieces[..=number] {
                assert_eq!(send(&mut client, "k", *iterator, data), ok(), "chunk {iterator} again");
            }
            for (iterator, data) in &pieces[..=number] {
                let mut other = data.clone();
                other[data.len() / 2] ^= 1;
                let reply = send(&mut client, "k", *iterator, &other);
                assert!(reply.error_text().starts_with("ERR received bad data"), "chunk {iterator}: {reply:?}");
            }
        }
        golden.check(&server, "k");
    });
}

#[test]
fn what_does_not_fit_is_refused_and_the_load_can_go_on() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let golden = golden();
        let pieces = pieces(&golden, 48);
        let end = pieces[pieces.len() - 1].0;
        assert_eq!(send(&mut client, "k", pieces[1].0, &pieces[1].1), error("ERR not found"));
        assert_eq!(send(&mut client, "k", 1, b""), error("ERR received bad data"));
        for (number, (iterator, data)) in pieces.iter().enumerate() {
            if number > 0 {
                let before = client.run("DEBUG DIGEST-VALUE k");
                let mut refused = |what: &str, iterator: i64, data: &[u8]| {
                    let reply = send(&mut client, "k", iterator, data);
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
                // The rest of this layer and a byte more.
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
            assert_eq!(send(&mut client, "k", *iterator, data), ok());
        }
        golden.check(&server, "k");
    });
}

#[test]
fn a_header_comes_where_no_key_is() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let golden = golden();
        let (_, header) = &golden.chunks[0];
        client.run("SET string x");
        client.run("BF.ADD native x");
        client.run("BF.RESERVE theirs 0.01 100 LAYOUT redisbloom");
        assert!(send(&mut client, "string", 1, header).error_text().starts_with("WRONGTYPE"));
        for key in ["native", "theirs"] {
            let before = client.run(&format!("DEBUG DIGEST-VALUE {key}"));
            let reply = send(&mut client, key, 1, header);
            assert!(reply.error_text().starts_with("ERR received bad data"), "{key}: {reply:?}");
            assert_eq!(client.run(&format!("DEBUG DIGEST-VALUE {key}")), before);
        }
        // Another filter's header does not take the place of one that is arriving.
        assert_eq!(send(&mut client, "k", 1, header), ok());
        let other = filter(TODAY, "tiny");
        assert!(send(&mut client, "k", 1, &other.chunks[0].1).is_error());
        load_chunks(&server, "k", &golden.chunks[1..]);
        golden.check(&server, "k");
    });
}

#[test]
fn the_ceiling_binds_a_client_that_loads() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.max-filter-bytes 1000").start();
        let mut client = server.connect();
        let reply = send(&mut client, "k", 1, &golden().chunks[0].1);
        assert!(reply.error_text().starts_with("ERR Insufficient memory"), "{reply:?}");
        assert_eq!(client.run("EXISTS k"), integer(0));
    });
}

/// As RedisBloom says it, and nothing more.
#[test]
fn what_cannot_be_a_record_is_bad_data() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.RESERVE source 0.01 100 LAYOUT redisbloom");
        let header = client.run("BF.SCANDUMP source 0").elements()[1].bytes().to_vec();
        assert_eq!(send(&mut client, "k", 1, &header[..header.len() - 1]), error("ERR received bad data"));
        assert_eq!(send(&mut client, "k", 1, &header), ok());
        for data in [&b"abc"[..], &header[..30]] {
            assert_eq!(send(&mut client, "k", 1, data), error("ERR received bad data"));
        }
        assert_eq!(send(&mut client, "k", 0, b"abc"), error("ERR received bad data"));
    });
}
