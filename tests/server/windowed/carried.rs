//! What replicas and the append-only file get of a ring, in transactions, in scripts and after a change of roles.

use super::two_buckets;
use crate::fleet::{catch_up, follow};
use testing::{Connection, digest, eventually, lines, ok, on_every_server, with_append_only_file};

/// Adds to three rings while time goes on; the last item.
fn write_for_a_while(client: &mut Connection, name: &str, seconds: u64) {
    let start = std::time::Instant::now();
    let mut number = 0;
    while start.elapsed().as_secs() < seconds {
        number += 1;
        for (key, words) in [("a", "WINDOW 1 BUCKETS 3"), ("b", "WINDOW 1 SLIDING BUCKETS 64"), ("c", "ROLLING")] {
            let line = format!("BF.INSERT {key} CAPACITY 50 {words} ITEMS {name}{number} {name}{} x", number / 2);
            assert!(!client.run(&line).is_error());
        }
    }
}

fn assert_equal(primary: &mut Connection, replica: &mut Connection) {
    catch_up(primary, replica);
    for key in ["a", "b", "c"] {
        assert_eq!(digest(primary, key), digest(replica, key), "{key}");
    }
}

#[test]
fn a_replica_turns_as_it_is_told_and_by_itself_when_it_is_promoted() {
    on_every_server(|program| {
        let (server, other) = (with_append_only_file(program), with_append_only_file(program));
        let (mut one, mut two) = (server.connect(), other.connect());
        follow(&mut two, server.port);
        eventually("the link", || two.info("master_link_status") == "up");
        write_for_a_while(&mut one, "one", 1);
        assert_equal(&mut one, &mut two);
        assert_eq!(two.run("REPLICAOF NO ONE"), ok());
        write_for_a_while(&mut two, "two", 1);
        follow(&mut one, other.port);
        assert_equal(&mut two, &mut one);
        for client in [&mut one, &mut two] {
            // A server that has become a replica writes a new file, in the background.
            eventually("the file to be the present one", || !client.has_rewrite());
            let digest = client.run("DEBUG DIGEST");
            assert_eq!(client.run("DEBUG LOADAOF"), ok());
            assert_eq!(client.run("DEBUG DIGEST"), digest);
        }
    });
}

#[test]
fn transactions_and_scripts_carry_the_turn_once_and_first() {
    on_every_server(|program| {
        for in_script in [false, true] {
            let (server, _) = two_buckets(program, "EXPANSION 2 WINDOW 1000");
            let mut client = server.connect();
            if in_script {
                let script = "redis.call('BF.ADD', KEYS[1], 'a'); redis.call('BF.MADD', KEYS[1], 'b', 'middle')";
                client.call(&["EVAL", script, "1", "k"]);
            } else {
                client.pipeline(&["MULTI", "BF.ADD k a", "BF.MADD k b middle", "EXEC"]);
            }
            let carried = lines(&server);
            assert!(carried[0].starts_with("BF.ROTATE k 3 "), "{carried:?}");
            assert_eq!(carried[1..], ["BF.ADD k a", "BF.MADD k b"]);
        }
    });
}

#[test]
fn time_stands_still_in_a_script_where_the_server_keeps_it() {
    on_every_server(|program| {
        let server = with_append_only_file(program);
        let mut client = server.connect();
        client.run("BF.RESERVE k 0.01 100 WINDOW 1 BUCKETS 64");
        let before = lines(&server).len();
        // Many times the 16 ms of a bucket.
        let script = "redis.call('BF.ADD', KEYS[1], 'a')
            for i = 1, 20000000 do end
            redis.call('BF.ADD', KEYS[1], 'b')";
        client.call(&["EVAL", script, "1", "k"]);
        let turns = lines(&server).split_off(before).iter().filter(|line| line.starts_with("BF.ROTATE")).count();
        let is_old = client.info("redis_version").starts_with("7.0");
        assert!(turns <= 1 || is_old, "{turns} buckets began in one script");
    });
}
