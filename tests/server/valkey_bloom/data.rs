//! Data of valkey-bloom: every way in gives the filter that it was there, with every answer that their server gave, and
//! every way out gives it back as it came, byte for byte.

use super::golden::{
    Golden, THEIR_CEILING, body, digest, dump, goldens, load, restore, server_with_goldens,
    started_from_append_only_file, started_from_snapshot, unpacked,
};
use super::model::{FIXED_SEED, Field, Model, dump_of};
use crate::harness::{Connection, Server, Stop, array, integer, ok, on_every_server, rewritten_commands};
use crate::persistence::rewrite_append_only_file;

fn assert_all(client: &mut Connection, goldens: &[Golden]) {
    assert_eq!(client.run("DBSIZE"), integer(goldens.len() as i64));
    for golden in goldens {
        golden.assert_is_at(client, &golden.key);
    }
}

#[test]
fn their_snapshot_loads() {
    on_every_server(|program| {
        let server = started_from_snapshot(Server::with(program).line(THEIR_CEILING), &unpacked("snapshot.rdb.gz"));
        assert_all(&mut server.connect(), &goldens());
    });
}

#[test]
fn their_append_only_file_loads() {
    on_every_server(|program| {
        let builder = Server::with(program).line(THEIR_CEILING);
        let server = started_from_append_only_file(builder, &unpacked("rewritten.aof.gz"));
        assert_all(&mut server.connect(), &goldens());
    });
}

#[test]
fn restore_takes_their_dump() {
    on_every_server(|program| {
        let server = Server::with(program).line(THEIR_CEILING).line("sanitize-dump-payload yes").start();
        let mut client = server.connect();
        for uncompressed in [false, true] {
            let goldens = goldens();
            for golden in &goldens {
                let payload = if uncompressed { &golden.dump_uncompressed } else { &golden.dump };
                assert_eq!(restore(&mut client, &golden.key, payload), ok(), "{}", golden.key);
            }
            assert_all(&mut client, &goldens);
            client.run("FLUSHALL");
        }
    });
}

#[test]
fn bf_load_takes_their_record() {
    on_every_server(|program| {
        let (_server, mut client, goldens) = server_with_goldens(Server::with(program));
        assert_all(&mut client, &goldens);
        assert_eq!(load(&mut client, "another name", &goldens[0].payload), ok());
        assert_eq!(client.call(&["BF.CARD", "another name"]), integer(goldens[0].card));
    });
}

#[test]
fn a_filter_has_one_digest_whichever_way_it_came() {
    on_every_server(|program| {
        let (server, mut client, goldens) = server_with_goldens(Server::with(program));
        let snapshot = started_from_snapshot(Server::with(program), &unpacked("snapshot.rdb.gz"));
        let file = started_from_append_only_file(Server::with(program), &unpacked("rewritten.aof.gz"));
        for golden in &goldens {
            let expected = digest(&mut client, &golden.key);
            assert_eq!(digest(&mut snapshot.connect(), &golden.key), expected, "snapshot: {}", golden.key);
            assert_eq!(digest(&mut file.connect(), &golden.key), expected, "append-only file: {}", golden.key);
            for payload in [&golden.dump, &golden.dump_uncompressed] {
                assert_eq!(restore(&mut client, "restored", payload), ok());
                assert_eq!(digest(&mut client, "restored"), expected, "RESTORE: {}", golden.key);
                client.run("DEL restored");
            }
            assert_eq!(client.run(&format!("COPY {} copy REPLACE", golden.key)), integer(1));
            assert_eq!(digest(&mut client, "copy"), expected, "COPY: {}", golden.key);
        }
        // Different filters have different digests, else the lines above say nothing.
        let mut all: Vec<String> =
            goldens.iter().map(|golden| format!("{:?}", digest(&mut client, &golden.key))).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), goldens.len());
        drop(server);
    });
}

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
fn a_dump_is_theirs_byte_for_byte() {
    on_every_server(|program| {
        let (_server, mut client, goldens) = server_with_goldens(Server::with(program));
        for golden in &goldens {
            client.run("CONFIG SET rdbcompression yes");
            assert!(body(&dump(&mut client, &golden.key)) == body(&golden.dump), "{}", golden.key);
            client.run("CONFIG SET rdbcompression no");
            assert!(body(&dump(&mut client, &golden.key)) == body(&golden.dump_uncompressed), "{}", golden.key);
        }
    });
}

#[test]
fn a_rewritten_append_only_file_holds_their_records() {
    on_every_server(|program| {
        let builder = Server::with(program).line("appendonly yes").line("aof-use-rdb-preamble no");
        let (mut server, mut client, goldens) = server_with_goldens(builder);
        client.run(&format!("PEXPIREAT {} 4102444800123", goldens[0].key));
        rewrite_append_only_file(&mut client);
        let commands = rewritten_commands(&server);
        for golden in &goldens {
            let of_key: Vec<_> = commands.iter().filter(|words| words[1] == golden.key.as_bytes()).collect();
            let name = of_key[0][0].to_ascii_uppercase();
            assert_eq!(name.escape_ascii().to_string(), "BF.LOAD", "{}", golden.key);
            assert_eq!(of_key[0].len(), 3, "{}", golden.key);
            assert!(of_key[0][2] == golden.payload, "the record of {}", golden.key);
            assert!(of_key[1..].iter().all(|words| words[0].eq_ignore_ascii_case(b"PEXPIREAT")), "{}", golden.key);
        }
        server.restart(Stop::Kill);
        let mut client = server.connect();
        assert_all(&mut client, &goldens);
        assert_eq!(client.run(&format!("PEXPIRETIME {}", goldens[0].key)), integer(4_102_444_800_123));
    });
}

#[test]
fn a_save_and_a_restart_keep_everything() {
    on_every_server(|program| {
        let (mut server, mut client, goldens) = server_with_goldens(Server::with(program));
        let before: Vec<_> = goldens.iter().map(|golden| digest(&mut client, &golden.key)).collect();
        server.restart(Stop::Save);
        let mut client = server.connect();
        assert_all(&mut client, &goldens);
        client.run("DEBUG RELOAD");
        let after: Vec<_> = goldens.iter().map(|golden| digest(&mut client, &golden.key)).collect();
        assert_eq!(before, after);
        assert_all(&mut client, &goldens);
    });
}

#[test]
fn a_filter_of_megabytes_survives_every_way() {
    on_every_server(|program| {
        let mut server = Server::with(program).line("appendonly yes").line("aof-use-rdb-preamble no").start();
        let mut client = server.connect();
        // Some 12 MB of bits.
        assert_eq!(client.run("BF.INSERT k TIGHTENING 0.5 CAPACITY 10000000"), array([]));
        let items: Vec<String> = (0..50_000).map(|number| format!("item {number}")).collect();
        client.batched(&[b"BF.MADD", b"k"], &items);
        let before = digest(&mut client, "k");
        server.restart(Stop::Kill);
        let mut client = server.connect();
        assert_eq!(digest(&mut client, "k"), before, "its commands");
        rewrite_append_only_file(&mut client);
        let record = rewritten_commands(&server).pop().unwrap();
        assert_eq!(load(&mut client, "loaded", &record[2]), ok());
        let payload = dump(&mut client, "k");
        assert_eq!(restore(&mut client, "restored", &payload), ok());
        server.restart(Stop::Kill);
        let mut client = server.connect();
        for key in ["k", "loaded", "restored"] {
            assert_eq!(digest(&mut client, key), before, "{key}");
            assert!(client.batched(&[b"BF.MEXISTS", key.as_bytes()], &items).iter().all(|&found| found), "{key}");
        }
        client.run("DEBUG RELOAD");
        assert_eq!(digest(&mut client, "k"), before, "a snapshot");
    });
}

#[test]
fn a_snapshot_of_ours_with_their_filters_loads_as_theirs_did() {
    on_every_server(|program| {
        let (mut server, mut client, goldens) = server_with_goldens(Server::with(program).line("rdbcompression no"));
        assert_eq!(client.run("SAVE"), ok());
        // What the snapshot has of a filter is what its DUMP has, after the type.
        let snapshot = std::fs::read(server.folder().join("dump.rdb")).unwrap();
        for golden in &goldens {
            let value = &body(&golden.dump_uncompressed)[1..];
            assert!(snapshot.windows(value.len()).any(|window| window == value), "{}", golden.key);
        }
        server.restart(Stop::Kill);
        let mut client = server.connect();
        client.run("CONFIG SET rdbcompression yes");
        assert_all(&mut client, &goldens);
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
            assert!(body(&dump(&mut client, "k")) == body(&model.dump()));
            assert!(client.batched(&[b"BF.MEXISTS", b"k"], &items).iter().all(|&found| found));
        }
    });
}
