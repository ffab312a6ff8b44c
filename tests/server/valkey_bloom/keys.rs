//! A filter of valkey-bloom's layout as a key among keys: what BF.INFO says of it, copies, moves, what it weighs, and
//! what is left when it goes.

use super::golden::{Golden, THEIR_CEILING, digest, dump, load, restore, server_with_goldens};
use super::model::Model;
use crate::harness::{Connection, Reply, Server, eventually, integer, nil, ok, on_every_server};

/// The field words of BF.INFO, in the order of the whole.
const WORDS: [&str; 8] =
    ["CAPACITY", "SIZE", "FILTERS", "ITEMS", "ERROR", "EXPANSION", "TIGHTENING", "MAXSCALEDCAPACITY"];

fn is_fixed(golden: &Golden) -> bool {
    golden.info.as_array().unwrap().len() == 12
}

/// A fraction, in whichever way the protocol has it.
fn fraction(reply: &Reply) -> f64 {
    match reply {
        Reply::Double(text) => text.parse().expect("a number"),
        other => other.text().parse().expect("a number"),
    }
}

#[test]
fn info_is_a_flat_array_in_both_protocols() {
    on_every_server(|program| {
        let (server, mut client, goldens) = server_with_goldens(Server::with(program));
        let mut third = server.connect_speaking(3);
        for golden in &goldens {
            let line = format!("BF.INFO {}", golden.key);
            let (two, three) = (client.run(&line), third.run(&line));
            assert!(matches!(three, Reply::Array(_)), "{three:?}");
            assert_eq!(two.elements().len(), three.elements().len());
            for (old, new) in two.elements().chunks(2).zip(three.elements().chunks(2)) {
                assert_eq!(old[0].text(), new[0].text());
                match &old[1] {
                    Reply::NullBulk => assert_eq!(new[1], Reply::Null),
                    Reply::Integer(_) => assert_eq!(old[1], new[1]),
                    text => assert_eq!(fraction(text), fraction(&new[1])),
                }
            }
        }
    });
}

#[test]
fn one_field_of_info_is_a_scalar() {
    on_every_server(|program| {
        let (server, _, goldens) = server_with_goldens(Server::with(program));
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            for golden in &goldens {
                let whole = client.run(&format!("BF.INFO {}", golden.key));
                let fixed = is_fixed(golden);
                for (place, word) in WORDS.iter().enumerate() {
                    for word in [word.to_string(), word.to_lowercase()] {
                        let reply = client.run(&format!("BF.INFO {} {word}", golden.key));
                        if fixed && place >= 6 {
                            assert_eq!(reply.error_text(), "ERR invalid information value", "{} {word}", golden.key);
                        } else {
                            assert_eq!(reply, whole.elements()[2 * place + 1], "{} {word}", golden.key);
                        }
                    }
                }
                if fixed {
                    assert_eq!(client.run(&format!("BF.INFO {} EXPANSION", golden.key)), nil(protocol));
                }
                assert!(client.run(&format!("BF.INFO {} FROBNICATE", golden.key)).is_error());
            }
        }
    });
}

#[test]
fn the_largest_capacity_follows_the_ceiling() {
    on_every_server(|program| {
        let (_server, mut client, goldens) = server_with_goldens(Server::with(program));
        for ceiling in [20_000_u64, 1 << 20, 10_000_000, 134_217_728, 1 << 30] {
            assert_eq!(client.run(&format!("CONFIG SET bf.bloom-memory-usage-limit {ceiling}")), ok());
            for golden in goldens.iter().filter(|golden| !is_fixed(golden)) {
                let expected = Model::from_payload(&golden.payload).max_scaled_capacity(ceiling);
                let reply = client.run(&format!("BF.INFO {} MAXSCALEDCAPACITY", golden.key));
                assert_eq!(reply, integer(expected), "{} below {ceiling}", golden.key);
            }
        }
    });
}

#[test]
fn scandump_says_what_to_do_instead() {
    on_every_server(|program| {
        let (_server, mut client, goldens) = server_with_goldens(Server::with(program));
        for iterator in [0, 1] {
            let reply = client.run(&format!("BF.SCANDUMP {} {iterator}", goldens[0].key));
            let expected = "ERR BF.SCANDUMP cannot dump a filter of valkey-bloom's layout, DUMP can";
            assert_eq!(reply.error_text(), expected);
        }
    });
}

#[test]
fn a_copy_is_equal_and_of_its_own() {
    on_every_server(|program| {
        let (_server, mut client, goldens) = server_with_goldens(Server::with(program));
        for golden in &goldens {
            let key = &golden.key;
            assert_eq!(client.run(&format!("COPY {key} copy REPLACE")), integer(1));
            golden.assert_is_at(&mut client, "copy");
            assert_eq!(digest(&mut client, "copy"), digest(&mut client, key));
            if !is_fixed(golden) {
                let before = digest(&mut client, key);
                assert_eq!(client.run("BF.ADD copy in-the-copy-only"), integer(1));
                assert_eq!(client.run(&format!("BF.EXISTS {key} in-the-copy-only")), integer(0));
                assert_eq!(digest(&mut client, key), before);
            }
        }
    });
}

#[test]
fn a_rename_keeps_everything() {
    on_every_server(|program| {
        let (_server, mut client, goldens) = server_with_goldens(Server::with(program));
        for golden in &goldens {
            let renamed = format!("renamed-{}", golden.key);
            assert_eq!(client.run(&format!("RENAME {} {renamed}", golden.key)), ok());
            golden.assert_is_at(&mut client, &renamed);
            assert_eq!(client.run(&format!("MOVE {renamed} 5")), integer(1));
            client.run("SELECT 5");
            golden.assert_is_at(&mut client, &renamed);
            client.run("SELECT 0");
        }
    });
}

#[test]
fn migrate_moves_it_to_another_server() {
    on_every_server(|program| {
        let (_server, mut client, goldens) = server_with_goldens(Server::with(program));
        let elsewhere = Server::with(program).line(THEIR_CEILING).start();
        let mut far = elsewhere.connect();
        for golden in &goldens {
            let line = format!("MIGRATE 127.0.0.1 {} {} 0 60000", elsewhere.port, golden.key);
            assert_eq!(client.run(&line), ok());
            assert_eq!(client.run(&format!("EXISTS {}", golden.key)), integer(0));
            golden.assert_is_at(&mut far, &golden.key);
        }
    });
}

#[test]
fn memory_usage_counts_the_bits_and_little_else() {
    on_every_server(|program| {
        let (_server, mut client, goldens) = server_with_goldens(Server::with(program));
        for golden in &goldens {
            let model = Model::from_payload(&golden.payload);
            let bits: usize = model.layers.iter().map(|layer| layer.bits.len()).sum();
            let usage = client.run(&format!("MEMORY USAGE {}", golden.key)).number() as usize;
            let most = bits + 500 + 300 * model.layers.len();
            eprintln!("{}: {usage} bytes, {bits} of them bits", golden.key);
            assert!((bits..most).contains(&usage), "{}: {usage} bytes for {bits} of bits", golden.key);
        }
    });
}

#[test]
fn info_counts_what_is_there_and_ends_at_zero() {
    on_every_server(|program| {
        let (_server, mut client, goldens) = server_with_goldens(Server::with(program));
        let models: Vec<Model> = goldens.iter().map(|golden| Model::from_payload(&golden.payload)).collect();
        let layers = || models.iter().flat_map(|model| &model.layers);
        let bits: usize = layers().map(|layer| layer.bits.len()).sum();
        let expected = [
            ("num_objects", models.len() as i64),
            ("num_filters_across_objects", layers().count() as i64),
            ("num_items_across_objects", goldens.iter().map(|golden| golden.card).sum()),
            ("capacity_across_objects", layers().map(|layer| layer.capacity).sum()),
        ];
        for (name, number) in expected {
            assert_eq!(client.gauge(name), number, "{name}");
        }
        assert!(client.gauge("total_memory_bytes") >= bits as i64);

        // Every way of making one and of losing one keeps the count.
        let first = &goldens[0];
        client.run(&format!("COPY {} copy", first.key));
        restore(&mut client, "restored", &first.dump);
        let payload = dump(&mut client, &first.key);
        client.call(&[b"RESTORE".as_slice(), b"restored", b"0", &payload, b"REPLACE"]);
        client.call(&[b"RESTORE".as_slice(), b"broken", b"0", &payload[..payload.len() / 2]]);
        load(&mut client, "broken", &first.payload[..first.payload.len() / 2]);
        load(&mut client, "copy", &first.payload);
        client.run("BF.ADD copy new");
        assert_eq!(client.gauge("num_objects"), models.len() as i64 + 2);
        let items: i64 = goldens.iter().map(|golden| golden.card).sum();
        assert_eq!(client.gauge("num_items_across_objects"), items + 2 * first.card + 1);
        assert_eq!(client.run("UNLINK copy"), integer(1));
        assert_eq!(client.run("SET restored string"), ok());
        eventually("the copy to be gone", || client.gauge("num_objects") == models.len() as i64);
        assert_all_zero_after_flush(&mut client);
    });
}

fn assert_all_zero_after_flush(client: &mut Connection) {
    assert_eq!(client.run("FLUSHALL"), ok());
    for name in [
        "num_objects",
        "num_filters_across_objects",
        "num_items_across_objects",
        "capacity_across_objects",
        "total_memory_bytes",
    ] {
        assert_eq!(client.gauge(name), 0, "{name}");
    }
}
