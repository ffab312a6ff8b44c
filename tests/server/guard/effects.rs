//! The effects of the commands on replicas and the AOF: standard commands that every server supports.

use std::thread::sleep;
use std::time::Duration;

use super::{FETCH, LONG, absent, fill, hears_everything, lasting, load, ok_if, token, with_filter, word};
use testing::{
    Connection, Reply, Server, Stop, catch_up, eventually, follow, lines, nil, ok, on_every_server,
    with_append_only_client, with_client,
};

#[test]
fn effects_are_propagated_and_nothing_else() {
    with_append_only_client(|server, client| {
        with_filter(client);
        let begin = lines(server).len();
        let token = load(client, FETCH);
        client.run(FETCH);
        fill(client, &token, "VALUE row EX 100");
        client.run(FETCH);
        client.run("BF.CHANGED {f} 42 {f}:42");
        client.run("BF.CHANGED {f} 43 {f}:43");
        client.run("BF.CHANGED {f}missing 43 {f}:43");
        let token = load(client, FETCH);
        fill(client, &token, "GIVEUP");
        let token = load(client, FETCH);
        fill(client, &token, "NONE EX 100");
        client.run("SET {f}:42 v PX 1000");
        let token = load(client, &format!("{FETCH} STALE 100000"));
        fill(client, &token, "NONE EX 100");
        client.run("RPUSH {f}:list x");
        client.run("BF.CHANGED {f} 43 {f}:list");
        let carried: Vec<String> = lines(server).split_off(begin);
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
        let mut breaks = |key: &str, line: &str, client: &mut Connection| {
            other.run(&format!("WATCH {key}"));
            client.run(line);
            other.run("MULTI");
            other.run("PING");
            other.run("EXEC") == Reply::NullArray
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

#[test]
fn wait_after_a_change_has_something_to_wait_for() {
    on_every_server(|program| {
        let (primary, replica) = (Server::start(program), Server::start(program));
        let (mut client, mut follower) = (primary.connect(), replica.connect());
        follow(&mut follower, &primary);
        with_filter(&mut client);
        catch_up(&mut client, &mut follower);
        // The item is not new. Without a propagated DEL, WAIT would count earlier confirmations.
        follower.run("CLIENT PAUSE 1");
        let offset = |client: &mut Connection| client.info_number("master_repl_offset");
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
        let is_refused = ["READONLY", "UNBLOCKED"].iter().any(|word| reply.error_text().starts_with(word));
        assert!(is_refused, "it is no longer a primary: {reply:?}");
        assert_eq!(word(&follower.run(FETCH)), "load", "what was remembered stayed behind");
        assert_eq!(follower.run(&format!("BF.FILL {{f}} 42 {{f}}:43 {token} VALUE v")), nil(2));
        client.run("REPLICAOF NO ONE");
        assert_eq!(client.info_number("bf_bloom_leases") + client.info_number("bf_bloom_negative_entries"), 0);
        assert_eq!(word(&client.run(FETCH)), "load");
        assert_eq!(fill(&mut follower, "0123456789abcdef", "GIVEUP"), nil(2));
        let token = load(&mut follower, "BF.FETCH {f} 42 {f}:43");
        assert_eq!(follower.run(&format!("BF.FILL {{f}} 42 {{f}}:43 {token} VALUE v")), ok());
    });
}

/// A module has one listener per server event, and both the leases and the role depend on these events.
#[test]
fn a_server_that_granted_leases_still_knows_its_role() {
    with_client(|_, client| {
        with_filter(client);
        let token = load(client, FETCH);
        client.run("CONFIG SET replica-read-only no");
        assert_eq!(client.run("REPLICAOF 127.0.0.1 1"), ok());
        assert!(client.run(FETCH).error_text().starts_with("READONLY"), "it is a replica");
        assert_eq!(client.run("REPLICAOF NO ONE"), ok());
        assert_eq!(fill(client, &token, "VALUE v"), nil(2), "of another time");
        load(client, FETCH);
    });
}

// Commands that void a token or a NONE, and commands that do not.

/// Whether a token is still valid after this command.
fn token_outlives(client: &mut Connection, line: &str) -> bool {
    client.run("DEL {f}:42");
    client.run("BF.CHANGED {f} 42 {f}:42");
    let token = load(client, FETCH);
    let reply = client.run(line);
    assert!(!reply.is_error(), "{line}: {reply:?}");
    let filled = fill(client, &token, "NONE PX 1");
    assert!(filled == ok() || filled == nil(2), "{filled:?}");
    filled == ok()
}

/// Whether a NONE still applies after this command.
fn miss_outlives(client: &mut Connection, line: &str) -> bool {
    client.run("DEL {f}:42");
    client.run("BF.CHANGED {f} 42 {f}:42");
    let token = load(client, FETCH);
    assert_eq!(fill(client, &token, "NONE EX 1000"), ok());
    assert_eq!(client.run(FETCH), absent());
    let reply = client.run(line);
    assert!(!reply.is_error(), "{line}: {reply:?}");
    word(&client.run(FETCH)) == "absent"
}

#[test]
fn a_change_of_the_row_the_key_or_the_filter_voids_tokens_and_nones() {
    with_client(|_, client| {
        with_filter(client);
        client.run("SET {f}:src v");
        for line in [
            "BF.CHANGED {f} 42 {f}:42",
            "BF.CHANGED {f}missing 42 {f}:42",
            "BF.CHANGED {f} 1 {f}:42",
            "SET {f}:42 v",
            "APPEND {f}:42 v",
            "INCR {f}:42",
            "COPY {f}:src {f}:42",
            "BF.ADD {f} 42",
            "BF.MADD {f} 1 2 42",
            "BF.INSERT {f} NOCREATE ITEMS 42",
            "BF.CHANGED {f} 42 {f}:43",
            "FLUSHDB",
            "FLUSHALL ASYNC",
            "SWAPDB 0 1",
        ] {
            if line.starts_with("COPY") && !hears_everything(client) {
                continue;
            }
            for outlives in [token_outlives, miss_outlives] {
                if client.run("EXISTS {f}").number() == 0 {
                    with_filter(client);
                }
                client.run("SET {f}:src v");
                assert!(!outlives(client, line), "{line}");
            }
        }
        // A merge brings a row that was missing, to its destination.
        client.run("FLUSHALL");
        with_filter(client);
        client.run("BF.RESERVE {f}source 0.0001 1000 SEED 500");
        client.run("BF.ADD {f}source 42");
        assert!(!miss_outlives(client, "BF.MERGE {f} {f}source"));
        assert!(miss_outlives(client, "BF.MERGE {f}copy {f}source"), "another filter");
        // Another filter at the key, or the same filter emptied or with more items: the token belongs to its earlier state.
        client.run("BF.ADD {f}other 42");
        for line in ["COPY {f}other {f} REPLACE", "BF.MERGE {f} {f}", "BF.CLEAR {f}", "RENAME {f}other {f}"] {
            assert!(!token_outlives(client, line), "{line}");
        }
    });
}

#[test]
fn a_command_that_does_not_change_the_row_keeps_its_tokens() {
    with_client(|server, client| {
        with_filter(client);
        for line in [
            "GET {f}:42",
            "DEL {f}:42",
            "EXPIRE {f}:42 100",
            "BF.ADD {f} 43",
            "BF.ADD {f}another 42",
            "BF.EXISTS {f} 42",
            "SET {f}:43 v",
            "BF.CHANGED {f} 43 {f}:43",
            "RENAME {f} {f}",
            "EXPIRE {f} 100000",
            "PERSIST {f}",
            "CONFIG SET maxmemory-policy allkeys-lru",
        ] {
            assert!(token_outlives(client, line), "{line}");
            assert!(miss_outlives(client, line), "{line}");
        }
        // The same name in another database is another key.
        client.run("BF.CHANGED {f} 42 {f}:42");
        let mut other = server.connect();
        other.run("SELECT 1");
        let token = load(client, FETCH);
        other.run("SET {f}:42 v");
        assert_eq!(fill(client, &token, "VALUE v PX 1"), ok());
    });
}

/// Expiry does not make a value wrong, so the holder of the lease may still refresh it, whether the server or a command, one of ours
/// included, finds that it has expired.
#[test]
fn an_expiry_is_no_change_of_the_row() {
    with_client(|_, client| {
        with_filter(client);
        for finder in ["", "GET {f}:42", "EXISTS {f}:42", FETCH, "EXPIRETIME {f}:42"] {
            // The server looks for expired keys by itself only if no command should find this key.
            client.run(&format!("DEBUG SET-ACTIVE-EXPIRE {}", u8::from(finder.is_empty())));
            client.run("BF.CHANGED {f} 42 {f}:42");
            let expired = client.info_number("expired_keys");
            client.run("SET {f}:42 old PX 10");
            let stale = client.run(&lasting(&format!("{FETCH} STALE 1000")));
            if word(&stale) == "load" {
                continue; // It expired before it was asked for.
            }
            eventually("the value to expire", || {
                if !finder.is_empty() {
                    client.run(finder);
                }
                client.info_number("expired_keys") > expired
            });
            assert_eq!(word(&client.run(FETCH)), "wait", "{finder}: its lease holds");
            assert_eq!(fill(client, &token(&stale), "VALUE new"), ok(), "{finder}");
        }
    });
}

/// Setting a time to live in the past deletes the key. Valkey raises an expiry event for it.
#[test]
fn a_client_that_makes_a_value_expire_at_once_voids_its_lease() {
    on_every_server(|program| {
        for lazy in ["no", "yes"] {
            let server = Server::with(program).line(&format!("lazyfree-lazy-expire {lazy}")).start();
            let mut client = server.connect();
            with_filter(&mut client);
            for line in [
                "PEXPIREAT {f}:42 1",
                "PEXPIRE {f}:42 -5",
                "EXPIRE {f}:42 -1",
                "EXPIREAT {f}:42 1",
                "GETEX {f}:42 PXAT 1",
                "GETEX {f}:42 EXAT 1",
                "SET {f}:42 other PXAT 1",
                "SET {f}:42 other EXAT 1",
                "EVAL return(redis.call('pexpireat',KEYS[1],1)) 1 {f}:42",
                "MULTI",
            ] {
                client.run("BF.CHANGED {f} 42 {f}:42");
                client.run("SET {f}:42 old EX 100");
                let lease = load(&mut client, &format!("{FETCH} STALE 200000"));
                assert!(!client.run(line).is_error(), "{line}");
                if line == "MULTI" {
                    client.run("PEXPIREAT {f}:42 1");
                    client.run("EXEC");
                }
                assert_eq!(client.run("EXISTS {f}:42").number(), 0, "{line}");
                let is_heard = hears_everything(&mut client);
                assert_eq!(fill(&mut client, &lease, "VALUE late"), ok_if(!is_heard), "{line}, lazily: {lazy}");
            }
        }
    });
}

/// Tokens granted without a filter become void when the filter is created and deleted, when an item is announced, and when the database is
/// emptied or swapped.
#[test]
fn a_filter_that_is_created_and_deleted_voids_its_tokens() {
    with_client(|server, client| {
        for (lines, is_good) in [
            (["BF.RESERVE {f} 0.01 100", "BF.CHANGED {f} 42 {f}:other", "DEL {f}"], false),
            (["BF.RESERVE {f} 0.01 100", "BF.ADD {f} 42", "DEL {f}"], false),
            (["BF.ADD {f} 42", "PING", "DEL {f}"], false),
            (["BF.INSERT {f} ITEMS 1 42", "PING", "RENAME {f} {f}gone"], false),
            (["BF.INSERT {f} NOCREATE ITEMS 42", "PING", "PING"], false),
            (["BF.CHANGED {f} 42 {f}:other", "PING", "PING"], false),
            (["BF.CHANGED {f} 43 {f}:43", "BF.CHANGED {f}other 42 {f}:other", "PING"], true),
            (["BF.RESERVE {f} 0.01 100", "BF.ADD {f} 43", "DEL {f}"], false),
            (["BF.RESERVE {f}other 0.01 100", "DEL {f}other", "PING"], true),
            (["FLUSHDB", "PING", "PING"], false),
            (["FLUSHALL", "PING", "PING"], false),
            (["SWAPDB 0 1", "SWAPDB 0 1", "PING"], false),
        ] {
            client.run("FLUSHALL");
            let lease = load(client, FETCH);
            lines.iter().for_each(|line| _ = client.run(line));
            assert_eq!(client.run("EXISTS {f}").number(), 0);
            let filled = fill(client, &lease, "VALUE v");
            assert_eq!(filled, ok_if(is_good && hears_everything(client)), "{lines:?}");
        }
        // A filter of the same name in another database is another filter.
        client.run("FLUSHALL");
        let lease = load(client, FETCH);
        let mut other = server.connect();
        other.run("SELECT 1");
        other.run("BF.CHANGED {f} 42 {f}:42");
        let is_filled = hears_everything(client);
        assert_eq!(fill(client, &lease, "VALUE v"), ok_if(is_filled));
    });
}

#[test]
fn a_token_is_good_for_the_row_that_it_was_granted_for() {
    with_client(|_, client| {
        with_filter(client);
        client.run("BF.ADD {f} 43");
        client.run("COPY {f} {f}copy");
        let lease = load(client, FETCH);
        assert_eq!(word(&client.run("BF.FETCH {f} 43 {f}:42")), "wait", "a lease is for every item of its cache key");
        let last = if lease.ends_with('0') { "1" } else { "0" };
        let forged = format!("{}{last}", &lease[..31]);
        for (row, token) in [
            ("{f} 43 {f}:42", &lease),
            ("{f} 42 {f}:43", &lease),
            ("{f}copy 42 {f}:42", &lease),
            ("{f} 42 {f}:42", &forged),
            ("{f} 42 {f}:42", &lease[16..].to_owned()),
        ] {
            assert_eq!(client.run(&format!("BF.FILL {row} {token} VALUE v")), nil(2), "{row} {token}");
        }
        assert_eq!(fill(client, &lease.to_uppercase(), "VALUE v"), ok());
    });
}

#[test]
fn above_the_limit_the_record_nearest_its_end_is_evicted() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.max-leases 3").start();
        let mut client = server.connect();
        with_filter(&mut client);
        assert_eq!(client.run("CONFIG GET bf.max-leases").elements()[1].text(), "3");
        assert!(client.run("CONFIG SET bf.max-leases 0").is_error());
        let fetch = |number: u32| format!("BF.FETCH {{f}} 42 {{f}}:{number} LEASE {}", 3_600_000 - 100_000 * number);
        let tokens: Vec<String> = (0..4).map(|number| load(&mut client, &fetch(number))).collect();
        assert_eq!(client.info_number("bf_bloom_leases"), 3);
        let mut fill =
            |number: usize| client.run(&format!("BF.FILL {{f}} 42 {{f}}:{number} {} NONE EX 100", tokens[number]));
        assert_eq!([0, 1, 2, 3].map(&mut fill), [ok(), ok(), nil(2), ok()], "the token of an evicted lease is void");
        assert_eq!((client.info_number("bf_bloom_negative_entries"), client.info_number("bf_bloom_leases")), (3, 0));
        assert_eq!(client.info_number("bf_bloom_nones"), 3, "the field's former name");
        assert_eq!((client.info_number("bf_bloom_fills"), client.info_number("bf_bloom_fills_refused")), (3, 1));
        // NONEs, leases and back-offs share the limit.
        let lease = load(&mut client, "BF.FETCH {f} 42 {f}:9 LEASE 1000000");
        assert_eq!((client.info_number("bf_bloom_negative_entries"), client.info_number("bf_bloom_leases")), (2, 1));
        assert_eq!(client.run(&format!("BF.FILL {{f}} 42 {{f}}:9 {lease} GIVEUP BACKOFF 1000000")), ok());
        assert_eq!((client.info_number("bf_bloom_negative_entries"), client.info_number("bf_bloom_leases")), (2, 0));
    });
}

#[test]
fn back_offs_are_not_saved_or_replicated() {
    on_every_server(|program| {
        let mut server = Server::with(program).line("appendonly yes").start();
        let mut client = server.connect();
        with_filter(&mut client);
        client.run("BF.CHANGED {f} 43 {f}:43");
        let lease = load(&mut client, "BF.FETCH {f} 43 {f}:43");
        let other = load(&mut client, FETCH);
        fill(&mut client, &other, "NONE EX 1000");
        server.restart(Stop::Kill);
        let mut client = server.connect();
        assert_eq!(client.run(&format!("BF.FILL {{f}} 43 {{f}}:43 {lease} VALUE v")), nil(2));
        assert_eq!(word(&client.run(FETCH)), "load", "the miss is not remembered");
        assert_eq!(word(&client.run("BF.FETCH {f} 43 {f}:43")), "load", "the announcement is");
    });
}

/// Valkey 8.1 and 9.0 leave a client in the database of an event to which a module listens (valkey#4024). Replicas and the AOF would get
/// the rest of the command, and of its transaction or script, in that database.
#[test]
fn commands_for_two_databases_reach_replicas_and_the_aof() {
    on_every_server(|program| {
        let mut primary = Server::with(program).line("appendonly yes").start();
        let replica = Server::start(program);
        let mut client = primary.connect();
        with_filter(&mut client);
        load(&mut client, FETCH);
        let mut follower = replica.connect();
        follow(&mut follower, &primary);
        let steps = |client: &mut Connection, name: &str| {
            client.run(&format!("MOVE {name}:a 5"));
            client.run(&format!("COPY {name}:b {name}:b DB 6"));
            client.run(&format!("COPY {name}:c {name}:c DB 7 REPLACE"));
            client.run(&format!("SET {name}:after 1"));
        };
        client.run("DEBUG SET-ACTIVE-EXPIRE 0");
        for name in ["plain", "multi", "script"] {
            ["a", "b", "c"].iter().for_each(|key| assert_eq!(client.run(&format!("SET {name}:{key} 1")), ok()));
            // The destination has expired: the server raises an event in its database, too.
            let mut other = primary.connect();
            other.run("SELECT 7");
            other.run(&format!("SET {name}:c old PX 1"));
            sleep(Duration::from_millis(5));
            match name {
                "multi" => {
                    client.run("MULTI");
                    steps(&mut client, name);
                    client.run("EXEC");
                }
                "script" => {
                    let script = "redis.call('MOVE', KEYS[1], 5) redis.call('COPY', KEYS[2], KEYS[2], 'DB', 6) \
                                  redis.call('COPY', KEYS[3], KEYS[3], 'DB', 7, 'REPLACE') redis.call('SET', KEYS[4], 1)";
                    let keys = ["a", "b", "c", "after"].map(|key| format!("{name}:{key}"));
                    let words = [&["EVAL", script, "4"], keys.each_ref().map(String::as_str).as_slice()].concat();
                    let reply = client.call(&words);
                    assert!(!reply.is_error(), "{reply:?}");
                }
                _ => steps(&mut client, name),
            }
            let info = client.run("CLIENT INFO").text();
            assert!(info.contains(" db=0 "), "{name}: {info}");
        }
        catch_up(&mut client, &mut follower);
        let contents = |server: &Server| {
            let mut client = server.connect();
            [0, 5, 6, 7].map(|database| {
                client.run(&format!("SELECT {database}"));
                let mut keys: Vec<String> = client.run("KEYS *").elements().iter().map(Reply::text).collect();
                keys.sort();
                keys
            })
        };
        let expected = contents(&primary);
        assert_eq!(expected[1], ["multi:a", "plain:a", "script:a"]);
        assert_eq!(expected[3], ["multi:c", "plain:c", "script:c"]);
        assert!(
            ["multi:after", "plain:after", "script:after"].iter().all(|key| expected[0].contains(&key.to_string()))
        );
        assert_eq!(contents(&replica), expected, "the replica");
        primary.restart(Stop::Kill);
        assert_eq!(contents(&primary), expected, "the AOF");
    });
}

/// Leases, NONEs and tokens depend only on their rows, not on other activity of the server.
#[test]
fn unrelated_traffic_ends_no_lease_and_no_none() {
    with_client(|_, client| {
        with_filter(client);
        let rows: Vec<u32> = (0..20).collect();
        let line = |number: &u32| format!("BF.FETCH {{f}} row-{number} {{f}}:row-{number} LEASE 600000");
        rows.iter().for_each(|number| _ = client.run(&format!("BF.ADD {{f}} row-{number}")));
        let tokens: Vec<String> = rows.iter().map(|number| load(client, &line(number))).collect();
        for number in &rows[..10] {
            let token = &tokens[*number as usize];
            let fill = format!("BF.FILL {{f}} row-{number} {{f}}:row-{number} {token} NONE EX 600");
            assert_eq!(client.run(&fill), ok());
        }
        let script = "for i = 1, 1000 do redis.call('SET', KEYS[1] .. ':' .. i, i) end";
        for round in 0..150 {
            client.call(&["EVAL", script, "1", &format!("other:{round}")]);
            let items: Vec<String> = (0..1000).map(|item| format!("{round}-{item}")).collect();
            client.run(&format!("BF.MADD {{f}} {}", items.join(" ")));
        }
        for number in &rows {
            let expected = if *number < 10 { "absent" } else { "wait" };
            assert_eq!(word(&client.run(&line(number))), expected, "row {number}");
        }
        for number in &rows[10..] {
            let token = &tokens[*number as usize];
            let fill = format!("BF.FILL {{f}} row-{number} {{f}}:row-{number} {token} VALUE v");
            assert_eq!(client.run(&fill), ok(), "row {number}");
        }
    });
}

/// The guard does not listen to the commands of other types. A key of another type in place of a cached value refuses fills, and its
/// deletion voids the token.
#[test]
fn a_cache_key_of_another_type_voids_its_token_when_it_is_deleted() {
    with_client(|_, client| {
        with_filter(client);
        client.run("SADD {f}:set x");
        client.run("SET {f}:42 old PX 1000000");
        let stale = client.run(&lasting(&format!("{FETCH} STALE 2000000")));
        client.run("SUNIONSTORE {f}:42 {f}:set");
        assert!(fill(client, &token(&stale), "VALUE row").is_error());
        client.run("DEL {f}:42");
        let is_heard = hears_everything(client);
        assert_eq!(fill(client, &token(&stale), "VALUE row"), ok_if(!is_heard));
    });
}

/// A server that can unsubscribe does so a second after the last record is removed. The next lease must subscribe again.
#[test]
fn the_first_lease_after_a_pause_subscribes_to_changes_again() {
    with_client(|_, client| {
        with_filter(client);
        for _ in 0..2 {
            let lease = load(client, FETCH);
            assert_eq!(fill(client, &lease, "VALUE row PX 1000000"), ok());
            sleep(Duration::from_millis(1500));
            let stale = token(&client.run(&lasting(&format!("{FETCH} STALE 2000000"))));
            client.run("SET {f}:42 other");
            assert_eq!(fill(client, &stale, "VALUE row"), nil(2), "the client has changed the value");
            client.run("BF.CHANGED {f} 42 {f}:42");
        }
    });
}

#[test]
fn a_primary_that_writes_without_its_replicas_is_logged_once() {
    on_every_server(|program| {
        let (primary, second) = (Server::with(program).start(), Server::with(program).start());
        let (mut client, mut replica) = (primary.connect(), second.connect());
        let mut grant = || {
            let token = load(&mut client, FETCH);
            assert_eq!(fill(&mut client, &token, "GIVEUP"), ok());
        };
        let warnings = || primary.log().matches("min-replicas-to-write or min-replicas-max-lag is 0").count();
        with_filter(&mut primary.connect());
        let set = |line: &str| assert_eq!(primary.connect().run(&format!("CONFIG SET {line}")), ok());
        grant();
        assert_eq!(warnings(), 0, "there is no replica");

        follow(&mut replica, &primary);
        set("min-replicas-to-write 1");
        eventually("a good replica", || primary.connect().info("min_slaves_good_slaves") == "1");
        grant();
        assert_eq!(warnings(), 0, "writes need a replica");
        set("min-replicas-to-write 0");
        assert_eq!(replica.run("REPLICAOF NO ONE"), ok());
        eventually("the replica to leave", || primary.connect().info("connected_slaves") == "0");
        grant();
        assert_eq!(warnings(), 0, "the replica has left");

        set("min-replicas-to-write 1");
        set("min-replicas-max-lag 0");
        follow(&mut replica, &primary);
        assert_eq!(warnings(), 0, "the guard is not used");
        grant();
        assert_eq!(warnings(), 1);
        set("min-replicas-to-write 0");
        grant();
        assert_eq!(warnings(), 1, "once");
    });
}
