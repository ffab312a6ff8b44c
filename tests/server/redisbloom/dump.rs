//! The way back to RedisBloom: DUMP, BF.SCANDUMP and a rewritten append-only file give the bytes that RedisBloom gives.

use super::golden::{RELEASES, TODAY, filter, filters, load_chunks, restore};
use super::model::Model;
use crate::golden::as_commands;
use crate::persistence::rewrite_append_only_file;
use testing::{
    Server, Stop, array, bulk, dump, error, integer, ok, on_every_server, records, rewritten_commands, value_of,
    with_append_only_file,
};

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
fn a_filter_leaves_in_redisblooms_bytes_and_an_old_one_in_todays_spelling() {
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
                let (encoding, saved) = Model::of_payload(&payload);
                assert_eq!(encoding, 4, "{release}: {}", golden.key);
                assert_eq!(saved.content(), golden.model().content(), "{release}: {}", golden.key);
                // A power of two is an ordinary number of bits today, except where nothing says which hash 1.1.1 used.
                let modern = golden.model().modernised();
                assert_eq!(saved, modern, "{release}: {}", golden.key);
                let chunks = records(&mut client, &golden.key);
                assert_eq!(chunks, modern.chunks(modern.header()), "{}", golden.key);
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
        // The second layer has 33 times the first: its rate is half of the first one's, its capacity 30 times.
        assert_eq!(client.run("BF.RESERVE k 0.01 500000 EXPANSION 30 LAYOUT redisbloom"), ok());
        let items: Vec<String> = (0..501_000).map(|number| number.to_string()).collect();
        client.batched(&[b"BF.MADD", b"k"], &items);
        let layers: Vec<usize> =
            Model::of_payload(&dump(&mut client, "k")).1.layers.iter().map(|l| l.bytes.len()).collect();
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
