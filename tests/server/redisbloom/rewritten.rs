//! An AOF that RedisBloom 2.2.4 rewrote without a snapshot in front. Releases up to 2.2.6 wrote headers with iterator 0.

use super::golden::{TODAY, file, items, snapshot};
use super::their_primary::TheirPrimary;
use super::words::following;
use crate::persistence::rewrite_append_only_file;
use testing::{
    Server, Stop, array, commands_of, eventually, integer, on_every_server, rewritten_commands, simple,
    start_on_commands,
};

fn rewritten() -> Vec<u8> {
    file("redisbloom-2.2.4-rewritten.aof")
}

fn assert_whole(server: &Server, occasion: &str) {
    let mut client = server.connect();
    assert_eq!(client.run("DBSIZE"), integer(1), "{occasion}");
    assert_eq!(client.run("TYPE k"), simple("MBbloom--"), "{occasion}");
    let found = client.batched(&[b"BF.MEXISTS", b"k"], &items(0, 2000));
    assert!(found.iter().take(60).all(|found| *found), "{occasion}: {found:?}");
    // No other name has all its bits set.
    assert!(!found[60..].contains(&true), "{occasion}");
    assert_eq!(client.run("BF.CARD k"), integer(60), "{occasion}");
    assert_eq!(client.run("BF.INFO k CAPACITY"), array([integer(100)]), "{occasion}");
}

#[test]
fn it_loads_and_our_own_rewrite_keeps_it() {
    on_every_server(|program| {
        let mut server = start_on_commands(program, &[], &rewritten());
        assert_whole(&server, "loaded");
        rewrite_append_only_file(&mut server.connect());
        // Ours is as today's releases write it.
        assert_eq!(rewritten_commands(&server)[0][2], b"1");
        server.restart(Stop::Kill);
        assert_whole(&server, "rewritten");
    });
}

#[test]
fn a_replica_takes_it_from_its_primary() {
    on_every_server(|program| {
        let primary = TheirPrimary::start(snapshot(TODAY));
        let replica = following(program, &primary);
        let mut client = replica.connect();
        primary.send(&["FLUSHALL"]);
        primary.send_bytes(rewritten());
        eventually("the stream", || client.run("TYPE k") == simple("MBbloom--"));
        assert_whole(&replica, "a replica");
    });
}

/// Clients get RedisBloom's refusal.
#[test]
fn a_client_must_say_1() {
    on_every_server(|program| {
        let server = Server::start(program);
        let commands = commands_of(&rewritten());
        let mut client = server.connect();
        assert_eq!(client.call(&commands[0]).error_text(), "ERR not found");
        assert_eq!(client.run("EXISTS k"), integer(0));
        let mut header = commands[0].clone();
        header[2] = b"1".to_vec();
        for command in [&header, &commands[1]] {
            assert_eq!(client.call(command).text(), "OK");
        }
        assert_whole(&server, "loaded by a client");
    });
}
