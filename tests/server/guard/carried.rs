//! What is propagated to replicas and the AOF: the effects of the commands, as commands that every server knows.

use super::{FETCH, LONG, fill, load, with_filter, word};
use testing::{Server, catch_up, eventually, follow, lines, nil, ok, on_every_server, with_append_only_file};

#[test]
fn effects_are_propagated_and_nothing_else() {
    on_every_server(|program| {
        let server = with_append_only_file(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let begin = lines(&server).len();
        let token = load(&mut client, FETCH);
        client.run(FETCH);
        fill(&mut client, &token, "VALUE row EX 100");
        client.run(FETCH);
        client.run("BF.CHANGED {f} 42 {f}:42");
        client.run("BF.CHANGED {f} 43 {f}:43");
        client.run("BF.CHANGED {f}missing 43 {f}:43");
        let token = load(&mut client, FETCH);
        fill(&mut client, &token, "GIVEUP");
        let token = load(&mut client, FETCH);
        fill(&mut client, &token, "NONE EX 100");
        client.run("SET {f}:42 v PX 1000");
        let token = load(&mut client, &format!("{FETCH} STALE 100000"));
        fill(&mut client, &token, "NONE EX 100");
        client.run("RPUSH {f}:list x");
        client.run("BF.CHANGED {f} 43 {f}:list");
        let carried: Vec<String> = lines(&server).split_off(begin);
        let expected = [
            "SET {f}:42 row PXAT",
            "DEL {f}:42",
            "DEL {f}:43",
            "BF.MADD {f} 43",
            "DEL {f}:43",
            "SET {f}:42 v PXAT",
            "DEL {f}:42",
            "RPUSH {f}:list x",
            "BF.INSERT {f} NOCREATE SYNC ITEMS 43",
        ];
        assert_eq!(carried.len(), expected.len(), "{carried:#?}");
        for (line, expected) in carried.iter().zip(expected) {
            assert!(line.starts_with(expected), "{line}, not {expected}");
        }
    });
}

#[test]
fn the_commands_raise_key_space_events() {
    on_every_server(|program| {
        let server = Server::with(program).line("notify-keyspace-events KEA").start();
        let mut client = server.connect();
        with_filter(&mut client);
        let mut listener = server.connect();
        listener.run("PSUBSCRIBE __keyspace@0__:*");
        let token = load(&mut client, FETCH);
        fill(&mut client, &token, "VALUE row EX 100");
        client.run("BF.CHANGED {f} 43 {f}:42");
        client.run("BF.CHANGED {f} 43 {f}:42");
        client.run("SET {f}:end 1");
        let mut heard = Vec::new();
        while heard.last().is_none_or(|last: &String| !last.contains(":end")) {
            let message = listener.receive().unwrap();
            let [.., key, event] = message.elements() else { panic!("{message:?}") };
            heard.push(format!("{} {}", key.text().trim_start_matches("__keyspace@0__:"), event.text()));
        }
        assert_eq!(heard, ["{f}:42 set", "{f}:42 expire", "{f}:42 del", "{f} bloom.add", "{f}:end set"]);
    });
}

#[test]
fn a_changed_key_breaks_a_watch() {
    on_every_server(|program| {
        let server = Server::start(program);
        let (mut client, mut other) = (server.connect(), server.connect());
        with_filter(&mut client);
        let mut breaks = |key: &str, line: &str, client: &mut testing::Connection| {
            other.run(&format!("WATCH {key}"));
            client.run(line);
            other.run("MULTI");
            other.run("PING");
            other.run("EXEC") == nil_array()
        };
        client.run("SET {f}:42 v");
        assert!(!breaks("{f}:42", FETCH, &mut client));
        assert!(breaks("{f}:42", "BF.CHANGED {f} 42 {f}:42", &mut client));
        assert!(!breaks("{f}:42", "BF.CHANGED {f} 42 {f}:42", &mut client), "it was gone");
        assert!(!breaks("{f}", "BF.CHANGED {f} 42 {f}:42", &mut client), "it was in");
        let token = load(&mut client, FETCH);
        let line = format!("BF.FILL {{f}} 42 {{f}}:42 {token} VALUE v");
        assert!(breaks("{f}:42", &line, &mut client));
    });
}

fn nil_array() -> testing::Reply {
    testing::Reply::NullArray
}

#[test]
fn wait_after_a_change_has_something_to_wait_for() {
    on_every_server(|program| {
        let (primary, replica) = (Server::start(program), Server::start(program));
        let (mut client, mut follower) = (primary.connect(), replica.connect());
        follow(&mut follower, &primary);
        with_filter(&mut client);
        catch_up(&mut client, &mut follower);
        // The item is not new. Without a DEL to propagate, WAIT would answer from what was confirmed before.
        follower.run("CLIENT PAUSE 1");
        let offset = |client: &mut testing::Connection| client.info_number("master_repl_offset");
        let before = offset(&mut client);
        assert_eq!(client.run("BF.CHANGED {f} 42 {f}:42"), client.answer(false));
        assert!(offset(&mut client) > before);
        assert_eq!(client.run("WAIT 1 0").number(), 1);
    });
}

#[test]
fn a_replica_does_not_guard_and_a_promoted_one_starts_empty() {
    on_every_server(|program| {
        let (primary, replica) = (Server::start(program), Server::start(program));
        let (mut client, mut follower) = (primary.connect(), replica.connect());
        with_filter(&mut client);
        follow(&mut follower, &primary);
        catch_up(&mut client, &mut follower);
        for line in [FETCH, "BF.FILL {f} 42 {f}:42 0123456789abcdef GIVEUP", "BF.CHANGED {f} 42 {f}:42"] {
            assert!(follower.run(line).error_text().starts_with("READONLY"), "{line}");
        }
        follower.run("CONFIG SET replica-read-only no");
        assert!(follower.run(FETCH).error_text().starts_with("READONLY"));
        let token = load(&mut client, FETCH);
        fill(&mut client, &token, "NONE EX 1000");
        let token = load(&mut client, "BF.FETCH {f} 42 {f}:43");
        let mut waiting = primary.connect();
        waiting.send(&["BF.FETCH", "{f}", "42", "{f}:43", "WAIT", &LONG.to_string()]).unwrap();
        eventually("the client to wait", || client.info_number("bf_bloom_waiting") == 1);

        follower.run("REPLICAOF NO ONE");
        client.run(&format!("REPLICAOF 127.0.0.1 {}", replica.port));
        let reply = waiting.receive().unwrap();
        let is_told = ["READONLY", "UNBLOCKED"].iter().any(|word| reply.error_text().starts_with(word));
        assert!(is_told, "it is no primary any more: {reply:?}");
        assert_eq!(word(&follower.run(FETCH)), "load", "what was remembered stayed behind");
        assert_eq!(follower.run(&format!("BF.FILL {{f}} 42 {{f}}:43 {token} VALUE v")), nil(2));
        client.run("REPLICAOF NO ONE");
        assert_eq!(client.info_number("bf_bloom_leases") + client.info_number("bf_bloom_nones"), 0);
        assert_eq!(word(&client.run(FETCH)), "load");
        assert_eq!(fill(&mut follower, "0123456789abcdef", "GIVEUP"), nil(2));
        let token = load(&mut follower, "BF.FETCH {f} 42 {f}:43");
        assert_eq!(follower.run(&format!("BF.FILL {{f}} 42 {{f}}:43 {token} VALUE v")), ok());
    });
}

/// A module has one listener for each event of the server, and both leases and the role depend on these.
#[test]
fn a_server_that_granted_leases_still_knows_its_role() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let token = load(&mut client, FETCH);
        client.run("CONFIG SET replica-read-only no");
        assert_eq!(client.run("REPLICAOF 127.0.0.1 1"), ok());
        assert!(client.run(FETCH).error_text().starts_with("READONLY"), "it is a replica");
        assert_eq!(client.run("REPLICAOF NO ONE"), ok());
        assert_eq!(fill(&mut client, &token, "VALUE v"), nil(2), "of another time");
        load(&mut client, FETCH);
    });
}
