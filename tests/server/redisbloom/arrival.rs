//! A dump of RedisBloom's that is half loaded is kept as half a filter: over a restart, on a replica, in a payload. The
//! rest can come later, or never.

use std::path::Path;

use super::golden::{Golden, load_chunks, restore};
use super::loadchunk::{Chunks, LOADING, assert_not_live, golden, pieces};
use crate::harness::{Server, Stop, error, eventually, integer, ok, on_every_server, simple};
use crate::persistence::rewrite_append_only_file;

/// Half a filter at `k` stays as it is whichever way it leaves a server and comes back, and can be finished then.
pub fn assert_survives_every_way_out_and_in(half: impl Fn() -> Server, finish: impl Fn(&Server)) {
    let digest = |server: &Server| server.connect().run("DEBUG DIGEST-VALUE k");

    let server = half();
    let before = digest(&server);
    assert_eq!(server.connect().run("DEBUG RELOAD"), ok());
    assert_eq!(digest(&server), before);
    finish(&server);

    let mut server = half();
    server.restart(Stop::Kill);
    assert_eq!(digest(&server), before, "the append-only file as it was written");
    rewrite_append_only_file(&mut server.connect());
    server.restart(Stop::Kill);
    assert_eq!(digest(&server), before, "rewritten");
    finish(&server);
    let whole = digest(&server);
    server.restart(Stop::Kill);
    assert_eq!(digest(&server), whole, "finished");

    let server = half();
    let mut client = server.connect();
    let payload = client.run("DUMP k").bytes().to_vec();
    assert_eq!(client.run("COPY k twin"), integer(1));
    assert_eq!(client.run("DEBUG DIGEST-VALUE twin"), before);
    client.run("DEL k twin");
    restore(&server, "k", &payload);
    assert_eq!(digest(&server), before);
    finish(&server);
}

/// The pieces of a filter up to the middle of a layer, and the rest.
fn halves(golden: &Golden) -> (Chunks, Chunks) {
    let mut first = pieces(golden, 60);
    let rest = first.split_off(first.len() / 2);
    (first, rest)
}

fn half_loaded(program: &Path, golden: &Golden) -> Server {
    let server = Server::with(program).line("appendonly yes").line("aof-use-rdb-preamble no").start();
    load_chunks(&server, "k", &halves(golden).0);
    server
}

#[test]
fn half_a_filter_survives_every_way_out_and_in() {
    on_every_server(|program| {
        let golden = golden();
        let finish = |server: &Server| {
            assert_not_live(&mut server.connect());
            load_chunks(server, "k", &halves(&golden).1);
            golden.check(server, "k");
        };
        assert_survives_every_way_out_and_in(|| half_loaded(program, &golden), finish);
    });
}

#[test]
fn a_replica_has_the_half_that_its_primary_has() {
    on_every_server(|program| {
        let golden = golden();
        let server = half_loaded(program, &golden);
        let other = Server::with(program).line("bf.max-filter-bytes 100").start();
        let mut replica = other.connect();
        assert_eq!(replica.run(&format!("REPLICAOF 127.0.0.1 {}", server.port)), ok());
        let mut primary = server.connect();
        let mut same = || {
            eventually("the replica to have what its primary has", || {
                replica.run("DEBUG DIGEST-VALUE k") == primary.run("DEBUG DIGEST-VALUE k")
            });
        };
        same();
        assert_not_live(&mut server.connect());
        assert_eq!(other.connect().run("BF.EXISTS k item:1"), error(LOADING));
        load_chunks(&server, "k", &halves(&golden).1);
        same();
        // A whole dump while the replica listens.
        server.connect().run("DEL k");
        load_chunks(&server, "k", &golden.chunks);
        same();
        golden.check(&other, "k");
    });
}

#[test]
fn half_a_filter_that_is_given_up_leaves_no_trace() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for end in ["DEL k", "UNLINK k", "FLUSHALL", "SET k string", "PEXPIRE k 1"] {
            load_chunks(&server, "k", &pieces(&golden(), 60)[..9]);
            assert_not_live(&mut client);
            assert!(!client.run(end).is_error());
            eventually("the half filter to be gone", || client.run("TYPE k") != simple("bloomgate"));
            for name in ["num_objects", "num_filters_across_objects", "num_items_across_objects", "total_memory_bytes"]
            {
                eventually(name, || client.gauge(name) == 0);
            }
            client.run("DEL k");
        }
    });
}
