//! A dump of RedisBloom's that is half loaded is kept as half a filter: over a restart, on a replica, in a payload. The
//! rest can come later, or never.

use std::path::Path;

use super::golden::{Golden, load_chunks, restore};
use super::loadchunk::{LOADING, assert_not_live, golden, pieces};
use crate::harness::{Server, Stop, error, eventually, integer, ok, on_every_server, simple};
use crate::persistence::rewrite_append_only_file;

/// Sends what is missing and looks at the whole.
fn finish(server: &Server, golden: &Golden, rest: &[(i64, Vec<u8>)]) {
    assert_not_live(&mut server.connect());
    load_chunks(server, "k", rest);
    golden.check(server, "k");
}

fn half_loaded(program: &Path, golden: &Golden) -> (Server, Vec<(i64, Vec<u8>)>) {
    let server = Server::with(program).line("appendonly yes").line("aof-use-rdb-preamble no").start();
    // In the middle of a layer.
    let pieces = pieces(golden, 60);
    let (first, rest) = pieces.split_at(pieces.len() / 2);
    load_chunks(&server, "k", first);
    (server, rest.to_vec())
}

#[test]
fn half_a_filter_survives_every_way_out_and_in() {
    on_every_server(|program| {
        let golden = golden();
        let digest = |server: &Server| server.connect().run("DEBUG DIGEST-VALUE k");

        let (server, rest) = half_loaded(program, &golden);
        let before = digest(&server);
        assert_eq!(server.connect().run("DEBUG RELOAD"), ok());
        assert_eq!(digest(&server), before);
        finish(&server, &golden, &rest);

        let (mut server, rest) = half_loaded(program, &golden);
        server.restart(Stop::Kill);
        assert_eq!(digest(&server), before, "the append-only file as it was written");
        rewrite_append_only_file(&mut server.connect());
        server.restart(Stop::Kill);
        assert_eq!(digest(&server), before, "rewritten");
        finish(&server, &golden, &rest);
        server.restart(Stop::Kill);
        golden.check(&server, "k");

        let (server, rest) = half_loaded(program, &golden);
        let mut client = server.connect();
        let payload = client.run("DUMP k").bytes().to_vec();
        assert_eq!(client.run("COPY k twin"), integer(1));
        assert_eq!(client.run("DEBUG DIGEST-VALUE twin"), before);
        client.run("DEL k twin");
        restore(&server, "k", &payload);
        assert_eq!(digest(&server), before);
        finish(&server, &golden, &rest);
    });
}

#[test]
fn a_replica_has_the_half_that_its_primary_has() {
    on_every_server(|program| {
        let golden = golden();
        let (server, rest) = half_loaded(program, &golden);
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
        load_chunks(&server, "k", &rest);
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
