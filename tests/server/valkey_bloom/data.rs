//! What is particular to values of valkey-bloom's: their digest, their bytes in a snapshot, and a value of a pre-release.

use super::golden::server_with_goldens;
use super::model::{FIXED_SEED, Field, Model, dump_of};
use testing::{Server, digest, dump, integer, ok, on_every_server, restore, value_of};

#[test]
fn a_digest_tells_filters_apart_by_every_part_of_them() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
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
            assert_eq!(restore(&mut client, &key, &model.dump()), ok(), "change {number}");
            let found = digest(&mut client, &key);
            assert!(!digests.contains(&found), "change {number} is not in the digest");
            digests.push(found);
        }
    });
}

#[test]
fn a_snapshot_of_ours_has_the_bytes_that_dump_gives() {
    on_every_server(|program| {
        let (server, mut client, goldens) = server_with_goldens(Server::with(program).line("rdbcompression no"));
        assert_eq!(client.run("SAVE"), ok());
        // What the snapshot has of a filter is what its DUMP has, after the type.
        let snapshot = std::fs::read(server.folder().join("dump.rdb")).unwrap();
        for golden in &goldens {
            let value = &value_of(&golden.dump_uncompressed)[1..];
            assert!(snapshot.windows(value.len()).any(|window| window == value), "{}", golden.key);
        }
    });
}

#[test]
fn a_value_of_the_january_2025_pre_release_is_read_or_refused_but_never_misread() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let mut model = Model::new(20, 0.01, 0.5, 2, FIXED_SEED);
        let items: Vec<String> = (0..50).map(|number| format!("item {number}")).collect();
        model.add_all(&items);
        let mut fields = model.fields()[..5].to_vec();
        for layer in &model.layers {
            fields.push(Field::Text(model.bitmap(layer)));
            fields.push(Field::Integer(layer.capacity as u64));
            fields.push(Field::Integer(layer.items as u64));
        }
        let reply = restore(&mut client, "k", &dump_of(&fields));
        if reply.is_error() {
            assert_eq!(reply.error_text(), "ERR Bad data format");
            assert!(server.log().contains("bloomgate: cannot load a filter:"));
            assert_eq!(client.run("EXISTS k"), integer(0));
        } else {
            client.run("CONFIG SET rdbcompression no");
            assert!(value_of(&dump(&mut client, "k")) == value_of(&model.dump()));
            assert!(client.batched(&[b"BF.MEXISTS", b"k"], &items).iter().all(|&found| found));
        }
    });
}
