//! RedisBloom's data loads in place: snapshot, append-only file, DUMP payloads and SCANDUMP pairs of four releases.
//! Each time every member is there, exactly the false positives that RedisBloom has are there, and it says the same of
//! itself.

use super::golden::{
    Golden, RELEASES, TODAY, file, filters, items, load_chunks, restore, snapshot, start_on_commands, start_on_snapshot,
};
use super::model::Model;
use crate::harness::{Connection, Reply, Server, on_every_server};

#[test]
fn a_snapshot_loads_in_place() {
    on_every_server(|program| {
        for release in RELEASES {
            let server = start_on_snapshot(program, &[], &snapshot(release));
            let expected = filters(release);
            assert_eq!(server.connect().run("DBSIZE").number(), expected.len() as i64, "release {release}");
            for golden in expected {
                eprintln!("release {release}, {}", golden.key);
                golden.check(&server, &golden.key);
            }
        }
    });
}

#[test]
fn an_append_only_file_loads_in_place() {
    on_every_server(|program| {
        let server = start_on_commands(program, &[], &file("redisbloom-2.6.28.aof"));
        let expected = filters(TODAY);
        assert_eq!(server.connect().run("DBSIZE").number(), expected.len() as i64);
        for golden in expected {
            golden.check(&server, &golden.key);
        }
    });
}

#[test]
fn every_dump_payload_restores() {
    on_every_server(|program| {
        let server = Server::start(program);
        for release in RELEASES {
            for golden in filters(release) {
                let key = format!("{release}/{}", golden.key);
                restore(&server, &key, &golden.payload);
                golden.check(&server, &key);
            }
        }
    });
}

#[test]
fn every_scandump_pair_loads() {
    on_every_server(|program| {
        let server = Server::start(program);
        for golden in filters(TODAY) {
            assert!(golden.chunks.len() >= 2, "a header and chunks");
            load_chunks(&server, &golden.key, &golden.chunks);
            golden.check(&server, &golden.key);
        }
    });
}

#[test]
fn ceilings_and_settings_do_not_touch_what_a_server_starts_with() {
    on_every_server(|program| {
        let lines = ["bf.max-filter-bytes 500", "bf.expansion-factor 0", "bf.error-rate 0.2", "bf.initial-size 7"];
        let servers = [
            start_on_snapshot(program, &lines, &snapshot(TODAY)),
            start_on_commands(program, &lines, &file("redisbloom-2.6.28.aof")),
        ];
        for server in servers {
            for golden in filters(TODAY) {
                golden.check(&server, &golden.key);
            }
        }
    });
}

fn digest(client: &mut Connection, key: &str) -> Reply {
    let digest = client.run(&format!("DEBUG DIGEST-VALUE {key}"));
    let text = digest.elements()[0].text();
    assert!(text.len() == 40 && text.bytes().any(|digit| digit != b'0'), "{key}: {text}");
    digest
}

#[test]
fn every_way_in_gives_the_same_filter() {
    on_every_server(|program| {
        for release in RELEASES {
            let from_snapshot = start_on_snapshot(program, &[], &snapshot(release));
            let other = Server::start(program);
            let from_commands =
                (release == TODAY).then(|| start_on_commands(program, &[], &file("redisbloom-2.6.28.aof")));
            let mut seen = Vec::new();
            for golden in filters(release) {
                let expected = digest(&mut from_snapshot.connect(), &golden.key);
                restore(&other, &golden.key, &golden.payload);
                assert_eq!(digest(&mut other.connect(), &golden.key), expected, "{release}: RESTORE of {}", golden.key);
                if let Some(server) = &from_commands {
                    assert_eq!(digest(&mut server.connect(), &golden.key), expected, "{}: commands", golden.key);
                    other.connect().run(&format!("DEL {}", golden.key));
                    load_chunks(&other, &golden.key, &golden.chunks);
                    assert_eq!(digest(&mut other.connect(), &golden.key), expected, "{}: LOADCHUNK", golden.key);
                }
                assert!(!seen.contains(&expected), "{release}: two filters have one digest");
                seen.push(expected);
            }
        }
    });
}

/// The model is worth nothing if it does not do what RedisBloom did: it reads its data, and it makes the same data
/// anew.
#[test]
fn the_model_does_what_redisbloom_did() {
    for release in RELEASES {
        for golden in filters(release) {
            let model = golden.model();
            let strangers: Vec<usize> =
                (0..20_000).filter(|number| model.contains(format!("absent:{number}").as_bytes())).collect();
            assert_eq!(strangers, golden.false_positives(), "{release}: {}", golden.key);
            assert_eq!(model.debug(), golden.debug(), "{release}: {}", golden.key);
        }
    }
    for golden in filters(TODAY).iter().filter(|golden| golden.key != "capped-rate") {
        let mut model = anew(golden);
        for item in items(0, golden.offered) {
            model.add(item.as_bytes());
        }
        assert_eq!(model, golden.model(), "{}", golden.key);
        assert_eq!(model.chunks(model.header()), golden.chunks, "{}", golden.key);
    }
}

fn anew(golden: &Golden) -> Model {
    let Some(words) = &golden.reserve else { return Model::reserve(0.01, 100, 2) };
    let growth = match words.get(2).map(String::as_str) {
        Some("EXPANSION") => words[3].parse().expect("a number"),
        Some(_) => 0,
        None => 2,
    };
    Model::reserve(words[0].parse().expect("a rate"), words[1].parse().expect("a number"), growth)
}
