//! The way back to RedisBloom: what a filter of its layout is when it leaves the server again. DUMP and SCANDUMP give
//! RedisBloom's own bytes, snapshots and rewritten append-only files bring everything back.

use super::golden::{Golden, RELEASES, TODAY, filter, filters, load_chunks, restore, snapshot, start_on_snapshot};
use super::model::Model;
use crate::harness::{
    Connection, Reply, Server, Stop, array, bulk, error, integer, ok, on_every_server, rewritten_commands,
    with_append_only_file,
};
use crate::persistence::rewrite_append_only_file;

/// The two bytes of version and the checksum after them are the server's, not the filter's.
pub const FOOTER: usize = 10;

pub fn dump(client: &mut Connection, key: impl AsRef<[u8]>) -> Vec<u8> {
    client.call(&[b"DUMP", key.as_ref()]).bytes().to_vec()
}

/// All pairs that BF.SCANDUMP gives, without the empty one at the end.
pub fn scandump(client: &mut Connection, key: impl AsRef<[u8]>) -> Vec<(i64, Vec<u8>)> {
    let mut chunks = Vec::new();
    let mut iterator = 0;
    loop {
        let reply = client.call(&[b"BF.SCANDUMP", key.as_ref(), iterator.to_string().as_bytes()]);
        let [next, data] = reply.elements() else { panic!("not a pair: {reply:?}") };
        iterator = next.number();
        if iterator == 0 {
            assert_eq!(data, &bulk(""));
            return chunks;
        }
        chunks.push((iterator, data.bytes().to_vec()));
    }
}

#[test]
fn dump_gives_redisblooms_payload() {
    on_every_server(|program| {
        let server = start_on_snapshot(program, &[], &snapshot(TODAY));
        let mut client = server.connect();
        for golden in filters(TODAY) {
            let ours = dump(&mut client, &golden.key);
            assert_eq!(ours.len(), golden.payload.len(), "{}", golden.key);
            let body = ours.len() - FOOTER;
            assert!(ours[..body] == golden.payload[..body], "{}: the payloads differ", golden.key);
        }
    });
}

#[test]
fn scandump_gives_redisblooms_pairs() {
    on_every_server(|program| {
        let server = start_on_snapshot(program, &[], &snapshot(TODAY));
        let mut client = server.connect();
        for golden in filters(TODAY) {
            assert!(scandump(&mut client, &golden.key) == golden.chunks, "{}: the pairs differ", golden.key);
        }
    });
}

#[test]
fn scandump_answers_every_iterator() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let golden = filter(TODAY, "expansion-1");
        restore(&server, "k", &golden.payload);
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
        // An iterator that BF.SCANDUMP never gave: an error, or bytes that lie where the answer says.
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
fn an_old_filter_is_dumped_in_todays_spelling() {
    on_every_server(|program| {
        for release in RELEASES {
            let server = start_on_snapshot(program, &[], &snapshot(release));
            let mut client = server.connect();
            for golden in filters(release) {
                let (encoding, saved) = Model::of_payload(&dump(&mut client, &golden.key));
                assert_eq!(encoding, 4, "{release}: {}", golden.key);
                let model = golden.model();
                assert_eq!(saved.content(), model.content(), "{release}: {}", golden.key);
                // A power of two is an ordinary number of bits today, except for the hash of 1.1.1, which has no name
                // today.
                let modern = model.modernised();
                assert_eq!(saved, modern, "{release}: {}", golden.key);
                assert_eq!(scandump(&mut client, &golden.key), modern.chunks(modern.header()), "{}", golden.key);
            }
        }
    });
}

/// What no restart and no copy may change; [`Golden::check`] looks at the answers.
fn digests(server: &Server, expected: &[Golden]) -> Vec<Reply> {
    let mut client = server.connect();
    expected.iter().map(|golden| client.run(&format!("DEBUG DIGEST-VALUE {}", golden.key))).collect()
}

fn check_all(server: &Server, expected: &[Golden], before: &[Reply]) {
    for golden in expected {
        golden.check(server, &golden.key);
    }
    assert_eq!(digests(server, expected), before);
}

#[test]
fn a_snapshot_of_ours_keeps_everything() {
    on_every_server(|program| {
        for release in RELEASES {
            let expected = filters(release);
            let mut server = start_on_snapshot(program, &[], &snapshot(release));
            let before = digests(&server, &expected);
            server.restart(Stop::Save);
            check_all(&server, &expected, &before);
            assert_eq!(server.connect().run("DEBUG RELOAD"), ok());
            check_all(&server, &expected, &before);
        }
    });
}

#[test]
fn a_payload_of_ours_brings_the_filter_back() {
    on_every_server(|program| {
        for release in RELEASES {
            let server = start_on_snapshot(program, &[], &snapshot(release));
            let elsewhere = Server::start(program);
            let expected = filters(release);
            for golden in &expected {
                restore(&elsewhere, &golden.key, &dump(&mut server.connect(), &golden.key));
            }
            check_all(&elsewhere, &expected, &digests(&server, &expected));
            elsewhere.connect().run("FLUSHALL");
            for golden in &expected {
                load_chunks(&elsewhere, &golden.key, &scandump(&mut server.connect(), &golden.key));
            }
            check_all(&elsewhere, &expected, &digests(&server, &expected));
        }
    });
}

#[test]
fn a_rewritten_append_only_file_holds_redisblooms_words() {
    on_every_server(|program| {
        for release in RELEASES {
            let expected = filters(release);
            let mut server = with_append_only_file(program);
            for golden in &expected {
                restore(&server, &golden.key, &golden.payload);
            }
            let before = digests(&server, &expected);
            rewrite_append_only_file(&mut server.connect());
            let records = rewritten_commands(&server);
            for golden in &expected {
                let of_key = records.iter().filter(|words| words[1] == golden.key.as_bytes());
                let pairs: Vec<(i64, Vec<u8>)> = of_key
                    .map(|words| {
                        assert_eq!((words.len(), words[0].as_slice()), (4, b"BF.LOADCHUNK".as_slice()));
                        (std::str::from_utf8(&words[2]).unwrap().parse().unwrap(), words[3].clone())
                    })
                    .collect();
                assert!(pairs == scandump(&mut server.connect(), &golden.key), "{release}: {}", golden.key);
                assert!(release != TODAY || pairs == golden.chunks, "{}: the words differ", golden.key);
            }
            server.restart(Stop::Kill);
            check_all(&server, &expected, &before);
        }
    });
}

#[test]
fn chunks_have_16_mebibytes_at_most_and_never_cross_a_layer() {
    on_every_server(|program| {
        const MOST: usize = 16 << 20;
        let mut server = with_append_only_file(program);
        let mut client = server.connect();
        // The second layer has 33 times the first: its rate is half of the first one's, its capacity 30 times.
        assert_eq!(client.run("BF.RESERVE k 0.01 500000 EXPANSION 30 LAYOUT redisbloom"), ok());
        let items: Vec<String> = (0..501_000).map(|number| number.to_string()).collect();
        client.batched(&[b"BF.MADD", b"k"], &items);
        let layers: Vec<usize> =
            Model::of_payload(&dump(&mut client, "k")).1.layers.iter().map(|l| l.bytes.len()).collect();
        assert!(layers.len() == 2 && layers[0] < MOST && layers[1] > MOST, "{layers:?}");
        let chunks = scandump(&mut client, "k");
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
