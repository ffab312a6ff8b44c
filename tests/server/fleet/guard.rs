//! Leases of the guard on a node whose slots leave and come back. Rows that changed meanwhile on another node void them,
//! whether the filter exists or not.

use super::slot_migration::migrate;
use testing::nodes::{id, pair, slot, state};
use testing::{Connection, Reply, Server, Version, eventually, nil, ok, on_every_server, on_servers_with};

const FETCH: &str = "BF.FETCH {f} 42 {f}:42 LEASE 3600000";
const CHANGED: &str = "BF.CHANGED {f} 42 {f}:42";

fn load(client: &mut Connection) -> String {
    granted(&client.run(FETCH))
}

fn granted(reply: &Reply) -> String {
    let [word, token] = reply.elements() else { panic!("{reply:?}") };
    assert_eq!(word.text(), "load");
    token.text()
}

fn fill(client: &mut Connection, token: &str) -> Reply {
    client.run(&format!("BF.FILL {{f}} 42 {{f}}:42 {token} VALUE old"))
}

/// Moves a slot with all its keys as `redis-cli --cluster reshard` does, and waits until both nodes know the new owner's
/// epoch, which takes one message between them.
fn move_slot(from: &Server, to: &Server) {
    let slot = slot("{f}");
    let [mut source, mut target] = [from, to].map(Server::connect);
    assert_eq!(target.run(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", id(from))), ok());
    assert_eq!(source.run(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", id(to))), ok());
    for key in source.run(&format!("CLUSTER GETKEYSINSLOT {slot} 100")).elements() {
        let port = to.port.to_string();
        let words: [&[u8]; 6] = [b"MIGRATE", b"127.0.0.1", port.as_bytes(), key.bytes(), b"0", b"60000"];
        assert_eq!(source.call(&words), ok());
    }
    for client in [&mut target, &mut source] {
        assert_eq!(client.run(&format!("CLUSTER SETSLOT {slot} NODE {}", id(to))), ok());
    }
    let epoch = state(&mut target, "cluster_current_epoch");
    eventually("the source to know the epoch", || state(&mut source, "cluster_current_epoch") == epoch);
}

/// Checks that a token from before the slot left is refused after the row was changed elsewhere, and that a later one is
/// accepted.
fn assert_void_after(servers: &[Server; 2], move_slot: impl Fn(&Server, &Server)) {
    let [here, there] = servers;
    let [mut client, mut other] = servers.each_ref().map(Server::connect);
    for client in [&mut client, &mut other] {
        // Otherwise a node without slots becomes a replica of the one that has them.
        assert_eq!(client.run("CONFIG SET cluster-allow-replica-migration no"), ok());
    }
    for has_filter in [false, true, false] {
        client.run("DEL {f} {f}:42");
        if has_filter {
            assert!(client.run("BF.ADD {f} 42").truth());
        }
        let token = load(&mut client);
        move_slot(here, there);
        for _ in 0..2 {
            assert!(!other.run(CHANGED).is_error());
        }
        move_slot(there, here);
        assert_eq!(fill(&mut client, &token), nil(2), "filter: {has_filter}");
        let token = load(&mut client);
        assert_eq!(fill(&mut client, &token), ok(), "filter: {has_filter}");
    }
}

#[test]
fn a_lease_is_void_after_its_slot_was_away() {
    on_every_server(|program| {
        let servers = pair(program, |builder| builder);
        assert_void_after(&servers, move_slot);
    });
}

#[test]
#[ignore = "needs CLUSTER MIGRATESLOTS, of Valkey 9"]
fn a_lease_is_void_after_an_atomic_migration_of_its_slot() {
    let has_it = |program: &std::path::Path| Version::of(program).migrates_slots();
    on_servers_with("CLUSTER MIGRATESLOTS (Valkey 9)", has_it, |program| {
        let servers = pair(program, |builder| builder);
        let slot = slot("{f}");
        assert_void_after(&servers, |from, to| migrate(from, to, slot, slot));
    });
}

/// Leases that a caller and a waiter got without a filter stay valid as long as no slot migrates.
#[test]
fn a_lease_without_a_filter_is_filled_in_a_cluster() {
    on_every_server(|program| {
        let servers = pair(program, |builder| builder);
        let [mut client, mut waiter] = [(); 2].map(|()| servers[0].connect());
        for _ in 0..3 {
            let token = load(&mut client);
            waiter.send(&format!("{FETCH} WAIT 1000000000").split(' ').collect::<Vec<_>>()).unwrap();
            eventually("the client to wait", || client.info_number("bf_bloom_waiting") == 1);
            assert_eq!(client.run(&format!("BF.FILL {{f}} 42 {{f}}:42 {token} GIVEUP")), ok());
            let token = granted(&waiter.receive().unwrap());
            assert_eq!(fill(&mut client, &token), ok());
            client.run("DEL {f}:42");
        }
    });
}
