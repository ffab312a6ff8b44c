//! Every way to store a ring and to carry one over: snapshots, append-only files, DUMP, COPY, BF.SCANDUMP, MIGRATE, kill -9.

use std::time::Duration;
use std::{slice, thread};

use super::{make_rings, two_buckets};
use crate::harness::{
    Connection, Reply, Server, Stop, eventually, integer, lines, nil, ok, on_every_server, with_append_only_file,
};
use crate::persistence::rewrite_append_only_file;

fn digests(client: &mut Connection, keys: &[String]) -> Vec<String> {
    keys.iter().map(|key| client.run(&format!("DEBUG DIGEST-VALUE {key}")).elements()[0].text()).collect()
}

#[test]
fn a_ring_comes_back_as_it_was() {
    on_every_server(|program| {
        let mut server = with_append_only_file(program);
        let mut client = server.connect();
        let keys = make_rings(&mut client);
        let before = digests(&mut client, &keys);
        for way in ["DEBUG RELOAD", "DEBUG LOADAOF"] {
            assert_eq!(client.run(way), ok());
            assert_eq!(digests(&mut client, &keys), before, "{way}");
        }
        for preamble in ["no", "yes"] {
            client.run(&format!("CONFIG SET aof-use-rdb-preamble {preamble}"));
            rewrite_append_only_file(&mut client);
            server.restart(Stop::Kill);
            client = server.connect();
            assert_eq!(digests(&mut client, &keys), before, "rewritten, preamble {preamble}");
        }
        for (key, digest) in keys.iter().zip(&before) {
            assert_eq!(client.run(&format!("COPY {key} copy")), integer(1));
            let payload = client.run(&format!("DUMP {key}"));
            let words: [&[u8]; 4] = [b"RESTORE", b"restored", b"0", payload.bytes()];
            assert_eq!(client.call(&words), ok());
            let copies = ["copy".to_owned(), "restored".to_owned()];
            assert_eq!(digests(&mut client, &copies), [digest.clone(), digest.clone()], "{key}");
            client.run("DEL copy restored");
        }
    });
}

#[test]
fn a_bucket_that_passed_while_the_server_was_down_is_forgotten() {
    on_every_server(|program| {
        let mut server = Server::with(program).start();
        let mut client = server.connect();
        client.run("BF.RESERVE k 0.0001 100 WINDOW 1 BUCKETS 3");
        client.run("BF.RESERVE long 0.0001 100 WINDOW 1000 BUCKETS 3");
        client.run("BF.ADD k x");
        client.run("BF.ADD long x");
        server.stop(Stop::Save);
        thread::sleep(Duration::from_millis(1600));
        server.start_again();
        let mut client = server.connect();
        assert!(!client.run("BF.EXISTS k x").truth() && client.run("BF.EXISTS long x").truth());
        assert!(client.run("BF.ADD k x").truth() && !client.run("BF.ADD long x").truth());
    });
}

fn scan(client: &mut Connection, key: &str, iterator: i64) -> (i64, Vec<u8>) {
    let reply = client.run(&format!("BF.SCANDUMP {key} {iterator}"));
    let [next, data] = reply.elements() else { panic!("{reply:?}") };
    let next = next.number();
    (next, if next == 0 { Vec::new() } else { data.bytes().to_vec() })
}

fn try_to_load(client: &mut Connection, key: &str, iterator: i64, data: &[u8]) -> Reply {
    client.call(&[b"BF.LOADCHUNK", key.as_bytes(), iterator.to_string().as_bytes(), data])
}

fn load(client: &mut Connection, key: &str, iterator: i64, data: &[u8]) {
    assert_eq!(try_to_load(client, key, iterator, data), ok(), "{key}, iterator {iterator}");
}

#[test]
fn a_dump_leaves_out_what_went_and_takes_each_record_twice() {
    on_every_server(|program| {
        let server = with_append_only_file(program);
        let mut client = server.connect();
        for key in make_rings(&mut client) {
            let copy = format!("{key}-copy");
            let (mut iterator, mut records) = (0, Vec::new());
            loop {
                let (next, data) = scan(&mut client, &key, iterator);
                if next == 0 {
                    break;
                }
                load(&mut client, &copy, next, &data);
                load(&mut client, &copy, next, &data);
                records.push((next, data));
                iterator = next;
            }
            assert_eq!(
                digests(&mut client, slice::from_ref(&copy)),
                digests(&mut client, slice::from_ref(&key)),
                "{key}"
            );
            // Once its bucket is dropped, nobody can tell whether a record came.
            if key != "plain" {
                (0..9).for_each(|_| _ = client.run(&format!("BF.ROTATE {copy}")));
                let before = digests(&mut client, slice::from_ref(&copy));
                for (next, data) in &records {
                    assert!(try_to_load(&mut client, &copy, *next, data).is_error());
                }
                assert_eq!(digests(&mut client, slice::from_ref(&copy)), before);
            }
        }
        // All four went while it was read.
        let (mut iterator, mut count) = (0, 0);
        loop {
            let (next, data) = scan(&mut client, "fixed", iterator);
            if next == 0 {
                break;
            }
            load(&mut client, "late", next, &data);
            (0..5).for_each(|_| _ = client.run("BF.ROTATE fixed"));
            (iterator, count) = (next, count + 1);
        }
        assert_eq!(count, 5);
        assert!(client.run("BF.ADD late new").truth());
        for way in ["DEBUG RELOAD", "DEBUG LOADAOF"] {
            let digest = client.run("DEBUG DIGEST");
            assert_eq!(client.run(way), ok(), "{way}");
            assert_eq!(client.run("DEBUG DIGEST"), digest, "{way}");
        }
    });
}

#[test]
fn a_ring_moves_to_another_server() {
    on_every_server(|program| {
        let (here, there) = (Server::start(program), Server::start(program));
        let (mut source, mut target) = (here.connect(), there.connect());
        let keys = make_rings(&mut source);
        let before = digests(&mut source, &keys);
        for key in &keys {
            let port = there.port.to_string();
            assert_eq!(source.call(&["MIGRATE", "127.0.0.1", &port, key, "0", "60000"]), ok());
        }
        assert_eq!(digests(&mut target, &keys), before);
        assert_eq!(source.run("GET k"), nil(2));
    });
}

#[test]
fn the_buckets_that_went_are_given_back() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.RESERVE k 0.01 30000000 NONSCALING WINDOW 1000 BUCKETS 3");
        (0..10).for_each(|_| _ = client.run("BF.ROTATE k"));
        client.wait_for_frees();
        let size = client.run("BF.INFO k SIZE").elements()[0].number();
        assert_eq!(client.gauge("total_memory_bytes"), size);
        client.run("DEL k");
        client.wait_for_frees();
        eventually("the memory to be given back", || client.gauge("total_memory_bytes") == 0);
    });
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    on_every_server(|program| {
        let mut server = with_append_only_file(program);
        let mut acknowledged = Vec::new();
        server.connect().run("BF.RESERVE k 0.01 100 WINDOW 1000 BUCKETS 64");
        for round in 0..3 {
            let client = server.connect();
            let adder = thread::spawn(move || {
                let (mut client, mut items) = (client, Vec::new());
                for number in 0.. {
                    let item = format!("{round}/{number}");
                    // At most 60 turns in all: none drops an item.
                    let reply = if number % 100 == 50 && number < 2000 {
                        client.try_call(&["BF.ROTATE", "k"])
                    } else {
                        client.try_call(&["BF.ADD", "k", &item])
                    };
                    match reply {
                        Ok(reply) if reply.is_error() => panic!("{reply:?}"),
                        Ok(reply) if reply == integer(1) => items.push(item),
                        Ok(_) => {}
                        Err(_) => return items,
                    }
                }
                items
            });
            thread::sleep(Duration::from_millis(150));
            server.stop(Stop::Kill);
            acknowledged.extend(adder.join().unwrap());
            server.start_again();
            let mut client = server.connect();
            let found = client.batched(&[b"BF.MEXISTS", b"k"], &acknowledged);
            assert_eq!(found.iter().filter(|found| !**found).count(), 0, "of {}", acknowledged.len());
            let digest = client.run("DEBUG DIGEST-VALUE k");
            assert_eq!(client.run("DEBUG LOADAOF"), ok());
            assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest);
        }
    });
}

#[test]
fn a_writer_that_is_obeyed_finds_a_ring_that_is_due_and_leaves_it() {
    on_every_server(|program| {
        // The file says what its writer's clock said: nothing begins while it is loaded.
        let (server, _) = two_buckets(program, "EXPANSION 2 WINDOW 1000");
        let mut client = server.connect();
        assert_eq!(lines(&server), Vec::<String>::new());
        let digest = client.run("DEBUG DIGEST-VALUE k");
        assert_eq!(client.run("DEBUG RELOAD"), ok());
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest);
        assert!(client.run("BF.EXISTS k middle").truth() && !client.run("BF.EXISTS k old").truth());
    });
}
