//! Properties of valkey-bloom's values: their digest, their bytes in a snapshot, and a value of a pre-release.

use std::fs;

use super::model::{FIXED_SEED, Golden, Layer, Model, goldens, load, server_with_goldens, unpacked};
use crate::growth::{add_to_both, assert_as_the_model};
use crate::redisbloom::model::{Field, payload_of};
use crate::transfer::through_files_and_replicas;
use testing::{
    Connection, Reply, Rng, Server, array, digest, dump, encode, integer, nil, ok, on_every_server, restore,
    start_on_commands, value_of, with_client,
};

#[test]
fn a_digest_tells_filters_apart_by_every_part_of_them() {
    with_client(|_, client| {
        let mut base = Model::new(20, 0.01, 0.5, 2, [7; 32]);
        base.add_all((0..50).map(|number| number.to_string()));
        let changes: [fn(&mut Model); 9] = [
            |_| (),
            |model| model.expansion = 3,
            |model| model.rate = 0.011,
            |model| model.tightening = 0.51,
            |model| model.is_seed_random = 0,
            |model| model.seed = [8; 32],
            |model| model.layers[1].items -= 1,
            |model| model.layers[1].capacity += 1,
            |model| model.layers[1].bits[0] ^= 1,
        ];
        let mut digests = Vec::new();
        for (number, change) in changes.iter().enumerate() {
            let mut model = base.clone();
            change(&mut model);
            let key = format!("k{number}");
            assert_eq!(restore(client, &key, &model.dump()), ok(), "change {number}");
            let found = digest(client, &key);
            assert!(!digests.contains(&found), "change {number} is not in the digest");
            digests.push(found);
        }
    });
}

#[test]
fn a_value_of_the_january_2025_pre_release_is_read_or_refused_but_never_misread() {
    with_client(|server, client| {
        let mut model = Model::new(20, 0.01, 0.5, 2, FIXED_SEED);
        let items: Vec<String> = (0..50).map(|number| format!("item {number}")).collect();
        model.add_all(&items);
        let mut fields = model.fields()[..5].to_vec();
        for layer in &model.layers {
            fields.push(Field::Text(model.bitmap(layer)));
            fields.push(Field::Uint(layer.capacity as u64));
            fields.push(Field::Uint(layer.items as u64));
        }
        let reply = restore(client, "k", &payload_of("bloomfltr", 1, &fields));
        if reply.is_error() {
            assert_eq!(reply.error_text(), "ERR Bad data format");
            assert!(server.log().contains("bloomgate: cannot load a filter:"));
            assert_eq!(client.run("EXISTS k"), integer(0));
        } else {
            client.run("CONFIG SET rdbcompression no");
            assert!(value_of(&dump(client, "k")) == value_of(&model.dump()));
            assert!(client.batched(&[b"BF.MEXISTS", b"k"], &items).iter().all(|&found| found));
        }
    });
}

#[test]
fn a_damaged_snapshot_is_refused_with_a_reason() {
    on_every_server(|program| {
        let sound = unpacked("snapshot.rdb.gz");
        // The number of the type, which precedes every value.
        let type_number = &goldens()[0].dump[1..10];
        let value = sound.windows(type_number.len()).position(|window| window == type_number).unwrap() + 9;
        // After it and the server's opcodes: sub-filters, expansion, rate, tightening, the origin of the seed.
        for (place, byte) in [(1, 0), (1, 40), (12, 0x7f), (12, 0xff), (21, 0x7f), (21, 0xbf), (23, 7)] {
            let mut snapshot = sound.clone();
            assert_ne!(snapshot[value + place], byte);
            snapshot[value + place] = byte;
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("dump.rdb"), snapshot).unwrap();
            let log = Server::with(program)
                .line(&format!("dir {}", folder.path().display()))
                .line("rdbchecksum no")
                .refuses_to_start();
            assert!(log.contains("bloomgate: cannot load a filter:"), "byte {place} = {byte}: {log}");
            assert!(!log.contains("panicked at") && !log.contains("BUG REPORT"), "{log}");
        }
    });
}

// BF.INFO of a filter of valkey-bloom's layout.

/// The fields of BF.INFO, in the order of the full reply.
const WORDS: [&str; 8] =
    ["CAPACITY", "SIZE", "FILTERS", "ITEMS", "ERROR", "EXPANSION", "TIGHTENING", "MAXSCALEDCAPACITY"];

fn is_fixed(golden: &Golden) -> bool {
    golden.info.as_array().unwrap().len() == 12
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
                    text => assert_eq!(text.fraction(), new[1].fraction()),
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

// Growth of filters of valkey-bloom's layout that are created here, until no room is left.

/// A server whose DUMP is uncompressed, like the model's.
fn start(program: &std::path::Path) -> (Server, Connection) {
    let server = Server::with(program).line("rdbcompression no").start();
    let client = server.connect();
    (server, client)
}

#[test]
fn any_filter_of_theirs_grows_by_their_rule() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        let mut rng = Rng::new(1);
        for (number, (capacity, rate, tightening, expansion)) in [
            (100, 0.01, 0.5, 2),
            (64, 0.02, 0.7, 2),
            (50, 0.001, 0.7, 4),
            (10, 0.05, 0.5, 1),
            (1, 0.01, 0.9, 1),
            (1, 0.5, 0.5, 2),
            (7, 0.99, 0.99, 3),
            (3, 0.3, 0.1, 2),
            (30, 1e-7, 0.5, 2),
            (5, 1e-30, 0.25, 3),
            (10, 1e-40, 0.5, 32_768),
            (20, 0.01, 0.999, 1),
            (200, 0.01, 0.5, 0),
            (1, 0.9, 0.5, 0),
            (250, 1e-300, 0.5, 0),
        ]
        .into_iter()
        .enumerate()
        {
            for is_new in [true, false] {
                let seed = if number == 0 { FIXED_SEED } else { std::array::from_fn(|_| rng.number() as u8) };
                let mut model = Model::new(capacity, rate, tightening, expansion, seed);
                let key = format!("k{number}-{is_new}");
                if is_new {
                    let line = format!("BF.INSERT {key} CAPACITY {capacity} ERROR {rate} TIGHTENING {tightening}");
                    let mut words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
                    let expansion = expansion.to_string();
                    words.extend([b"EXPANSION", expansion.as_bytes(), b"SEED", &seed]);
                    assert_eq!(client.call(&words), array([]), "{line}");
                } else {
                    load(&mut client, &key, &model.payload());
                }
                for _ in 0..12 {
                    // Short items are repeated, including the empty item.
                    let items: Vec<Vec<u8>> = (0..25).map(|_| rng.bytes(3)).collect();
                    add_to_both(&mut client, &key, &mut model, &items);
                }
                assert_as_the_model(&mut client, &key, &model);
            }
        }
    });
}

#[test]
fn long_items_are_hashed_whole() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        let mut model = Model::new(1000, 0.001, 0.5, 2, FIXED_SEED);
        load(&mut client, "k", &model.payload());
        let items: Vec<Vec<u8>> = (0..200)
            .chain([255, 256, 1000, 65_535, 65_536, 1_000_000])
            .map(|length| (0..length).map(|byte| byte as u8 ^ 0xa5).collect())
            .collect();
        add_to_both(&mut client, "k", &mut model, &items);
        assert_as_the_model(&mut client, "k", &model);
    });
}

/// A native filter has at most 4096 layers; valkey-bloom's can have more if the ratio is near 1. Clients can neither create nor load that
/// many, so they are in a file.
#[test]
fn thousands_of_sub_filters_load_grow_and_save() {
    on_every_server(|program| {
        let mut model = Model::new(1, 1e-12, 0.9999, 1, [3; 32]);
        let first = model.layers[0].clone();
        model.layers = (0..5000).map(|_| Layer { items: 1, ..first.clone() }).collect();
        let (payload, dump) = (model.payload(), model.dump());
        let commands: [&[&[u8]]; 4] = [
            &[b"BF.LOAD", b"loaded", &payload],
            &[b"RESTORE", b"restored", b"0", &dump],
            &[b"BF.MADD", b"loaded", b"a", b"b", b"c"],
            &[b"BF.MADD", b"restored", b"a", b"b", b"c"],
        ];
        let mut server = start_on_commands(program, &["rdbcompression no"], &encode(commands));
        let mut client = server.connect();
        for item in ["a", "b", "c"] {
            model.add(item.as_bytes()).unwrap();
        }
        for key in ["loaded", "restored"] {
            assert_as_the_model(&mut client, key, &model);
        }
        let expected = digest(&mut client, "loaded");
        through_files_and_replicas(program, &mut server, &|occasion, client| {
            for key in ["loaded", "restored"] {
                assert_eq!(digest(client, key), expected, "{occasion}: {key}");
            }
        });
    });
}
