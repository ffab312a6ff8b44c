//! BF.LOADCHUNK of a dump that RedisBloom made: the chunks come in order and in pieces of any length, and a refusal has
//! RedisBloom's text.

use super::golden::{Golden, TODAY, filter, filters, load_chunks, restore};
use testing::{Connection, Record, Reply, Server, error, load_record, ok, on_every_server};

/// Records of a dump.
pub type Chunks = Vec<Record>;

fn send(client: &mut Connection, key: &str, iterator: i64, data: &[u8]) -> Reply {
    load_record(client, key, &(iterator, data.to_vec()))
}

/// Eleven layers of 64 bytes and more.
pub fn golden() -> Golden {
    filter(TODAY, "expansion-1")
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
