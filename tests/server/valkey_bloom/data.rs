//! Properties of valkey-bloom's values: their digest, their bytes in a snapshot, and a value of a pre-release.

use std::fs;

use super::golden::{Golden, goldens, server_with_goldens, unpacked};
use crate::payload::Field::{self, Double, Text, Uint};
use crate::payload::{fields_of_payload, payload_of_type};
use testing::{Reply, Server, array, digest, integer, nil, ok, on_every_server, restore, simple, with_client};

/// The type and the fields of a golden filter: layers, expansion, rate, tightening, whether the seed is random; for each layer its capacity
/// and its bitmap, which begins with 45 bytes: version, length, hashes, seed. The last layer has its items before the bitmap.
fn fields(golden: &Golden) -> (u64, Vec<Field>) {
    fields_of_payload(&golden.dump).expect("a module's value")
}

/// A filter with several layers.
fn grown() -> Golden {
    goldens().into_iter().find(|golden| golden.key == "tight-0.7").expect("a key of the data")
}

#[test]
fn a_digest_tells_filters_apart_by_every_part_of_them() {
    with_client(|_, client| {
        let (type_number, base) = fields(&grown());
        let mut digests = Vec::new();
        // The parts of the filter; the first layer's capacity; the last one's items; the seed, in every layer; a bit.
        for part in [0, 1, 2, 3, 4, 5, base.len() - 2, base.len() - 1, base.len()] {
            let mut fields = base.clone();
            match fields.get_mut(part) {
                None => fields.iter_mut().for_each(|field| {
                    if let Text(bitmap) = field {
                        bitmap[13] ^= 1;
                    }
                }),
                // The number of layers stays as it is.
                Some(_) if part == 0 => {}
                Some(Uint(number)) => *number = if part == 4 { 1 - *number } else { *number - 1 },
                Some(Double(number)) => *number *= 0.99,
                Some(Text(bitmap)) => bitmap[45] ^= 1,
            }
            let key = format!("k{part}");
            assert_eq!(restore(client, &key, &payload_of_type(type_number, &fields)), ok(), "part {part}");
            let found = digest(client, &key);
            assert!(!digests.contains(&found), "part {part} is not in the digest");
            digests.push(found);
        }
    });
}

#[test]
fn a_value_of_the_january_2025_pre_release_is_read_or_refused_but_never_misread() {
    with_client(|server, client| {
        let golden = grown();
        let (type_number, today) = fields(&golden);
        // It stored the bitmap first, and the items with each layer: all but the last one are full.
        let mut fields = today[..5].to_vec();
        for layer in today[5..today.len() - 3].chunks(2) {
            fields.extend([layer[1].clone(), layer[0].clone(), layer[0].clone()]);
        }
        let [capacity, items, bitmap] = &today[today.len() - 3..] else { panic!("a layer") };
        fields.extend([bitmap, capacity, items].map(Clone::clone));
        let reply = restore(client, "k", &payload_of_type(type_number, &fields));
        if reply.is_error() {
            assert_eq!(reply.error_text(), "ERR Bad data format");
            assert!(server.log().contains("bloomgate: cannot load a filter:"));
            assert_eq!(client.run("EXISTS k"), integer(0));
        } else {
            golden.assert_is_at(client, "k");
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

// Growth of filters of valkey-bloom's layout: see `predicted.rs` for the rules.

/// The digest is the prediction of the model that `tests/data/predicted/README.md` describes.
#[test]
fn long_items_are_hashed_whole() {
    with_client(|_, client| {
        client.run("CONFIG SET bf.bloom-use-random-seed no");
        client.run("BF.INSERT k CAPACITY 1000 ERROR 0.001 TIGHTENING 0.5");
        for length in (0..200).chain([255, 256, 1000, 65_535, 65_536, 1_000_000]) {
            let item: Vec<u8> = (0..length).map(|byte| byte as u8 ^ 0xa5).collect();
            assert_eq!(client.call(&[b"BF.ADD".as_slice(), b"k", &item]), integer(1), "{length} bytes");
        }
        assert_eq!(digest(client, "k"), array([simple("0643ed4aceb14efd220233de1a5b012d937242f0")]));
    });
}
