//! BF.CLEAR: a filter is empty again, and all else as it was created.

use testing::{
    Connection, Server, catch_up, error, eventually, follow, integer, lines, ok, on_every_server, with_append_only_file,
};

/// A filter of each kind: its key, and what creates it.
const KINDS: [(&str, &str); 8] = [
    ("native", "BF.RESERVE native 0.01 500 SEED 500"),
    ("fixed", "BF.RESERVE fixed 0.01 2000 SEED 500 NONSCALING"),
    ("keyed", "BF.RESERVE keyed 0.01 500 HASH siphash"),
    ("window", "BF.RESERVE window 0.01 500 SEED 500 WINDOW 3600 BUCKETS 5"),
    ("rolling", "BF.RESERVE rolling 0.01 500 SEED 500 ROLLING"),
    ("redisbloom", "BF.RESERVE redisbloom 0.01 500 EXPANSION 4 LAYOUT redisbloom"),
    ("valkey", "BF.INSERT valkey ERROR 0.01 CAPACITY 500 TIGHTENING 0.7 EXPANSION 3"),
    ("large", "BF.RESERVE large 0.01 5000000 SEED 500"),
];

fn fill(client: &mut Connection, key: &str) {
    let items: Vec<String> = (0..1500).map(|number| number.to_string()).collect();
    client.batched(&[b"BF.MADD", key.as_bytes()], &items);
}

/// What must be as it was; a ring's buckets begin anew.
fn told(client: &mut Connection, key: &str) -> (String, Vec<String>) {
    let digest = client.run(&format!("DEBUG DIGEST-VALUE {key}")).elements()[0].text();
    let info = format!("{:?}", client.run(&format!("BF.INFO {key}")));
    (if key == "window" { String::new() } else { digest }, vec![info])
}

#[test]
fn it_is_as_it_was_created() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            let before = client.info_number("used_memory");
            for (key, creation) in KINDS {
                assert!(!client.run(creation).is_error(), "{creation}");
                client.run(&format!("PEXPIRE {key} 1000000"));
                let created = told(&mut client, key);
                for _ in 0..2 {
                    fill(&mut client, key);
                    assert!(client.run(&format!("BF.CARD {key}")).number() > 400, "{key}");
                    assert_eq!(client.run(&format!("BF.CLEAR {key}")), ok(), "{key}");
                    assert_eq!(client.run(&format!("BF.CARD {key}")), integer(0), "{key}");
                    assert!(!client.run(&format!("BF.EXISTS {key} 7")).truth(), "{key}");
                    assert_eq!(told(&mut client, key), created, "{key}");
                }
                assert!(client.run(&format!("PTTL {key}")).number() > 900_000, "{key}");
            }
            assert_eq!(client.gauge("num_items_across_objects"), 0);
            assert_eq!(client.gauge("num_objects"), KINDS.len() as i64);
            client.run("FLUSHALL");
            eventually("the memory", || client.info_number("used_memory") < before + (3 << 20));
        }
    });
}

#[test]
fn what_is_no_filter_is_refused() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("SET string x");
        assert_eq!(client.run("BF.CLEAR missing"), error("ERR not found"));
        assert!(client.run("BF.CLEAR string").error_text().starts_with("WRONGTYPE"));
        assert_eq!(client.run("EXISTS missing"), integer(0));
    });
}

#[test]
fn a_replica_and_the_aof_have_the_same() {
    on_every_server(|program| {
        let primary = with_append_only_file(program);
        let replica = Server::with(program).line("bf.max-filter-bytes 500").start();
        let (mut client, mut follower) = (primary.connect(), replica.connect());
        follow(&mut follower, &primary);
        for (key, creation) in KINDS {
            client.run(creation);
            fill(&mut client, key);
            client.run(&format!("BF.CLEAR {key}"));
            client.run(&format!("BF.MADD {key} a b c"));
        }
        let carried = lines(&primary);
        for (key, _) in KINDS {
            let clear = format!("BF.CLEAR {key}");
            let place = carried.iter().position(|line| *line == clear).unwrap_or_else(|| panic!("{clear}"));
            let turns = carried[place + 1].starts_with("BF.ROTATE window 0 ");
            assert_eq!(turns, key == "window", "{:?}", &carried[place..]);
        }
        catch_up(&mut client, &mut follower);
        let before = client.run("DEBUG DIGEST");
        assert_eq!(follower.run("DEBUG DIGEST"), before);
        assert_eq!(client.run("DEBUG LOADAOF"), ok());
        assert_eq!(client.run("DEBUG DIGEST"), before);
    });
}

#[test]
fn it_is_done_above_maxmemory_and_gives_memory_back() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.RESERVE k 0.01 1000 SEED 500 EXPANSION 4");
        for round in 0..20 {
            let items: Vec<String> = (0..50_000).map(|number| format!("{round} {number}")).collect();
            client.batched(&[b"BF.MADD", b"k"], &items);
        }
        let used = client.info_number("used_memory");
        client.run(&format!("CONFIG SET maxmemory {}", used - (1 << 20)));
        assert!(client.run("BF.ADD k more").is_error());
        assert_eq!(client.run("BF.CLEAR k"), ok());
        eventually("the memory", || client.info_number("used_memory") < used - (1 << 20));
        assert!(!client.run("BF.ADD k more").is_error());
    });
}

/// A ring begins anew: the first bucket now, the next ones after it, here as on a replica.
#[test]
fn a_ring_goes_on_from_where_it_was_cleared() {
    on_every_server(|program| {
        let primary = with_append_only_file(program);
        let replica = Server::start(program);
        let (mut client, mut follower) = (primary.connect(), replica.connect());
        follow(&mut follower, &primary);
        for (key, words) in [("window", "WINDOW 3600 BUCKETS 3"), ("rolling", "ROLLING BUCKETS 3")] {
            client.run(&format!("BF.RESERVE {key} 0.0001 400 HASH siphash {words}"));
            for round in 0..3 {
                client.run(&format!("BF.MADD {key} a{round} b{round} c{round}"));
                client.run(&format!("BF.MDEL {key} a{round}"));
                client.run(&format!("BF.ROTATE {key}"));
            }
            let bytes = |client: &mut Connection| client.run(&format!("BF.INFO {key} SIZE"));
            let with_buckets = bytes(&mut client);
            assert_eq!(client.run(&format!("BF.CLEAR {key}")), ok());
            assert!(bytes(&mut client) != with_buckets, "{key}: the older buckets are gone");
            // What was deleted before is new, and is found while two other buckets begin.
            let found = |client: &mut Connection, item: &str| client.run(&format!("BF.EXISTS {key} {item}")).truth();
            assert!(!found(&mut client, "a2") && client.run(&format!("BF.ADD {key} a2")).truth(), "{key}");
            for (round, dropped) in [(0, 0), (1, 0), (2, 1)] {
                assert!(found(&mut client, "a2"), "{key}, round {round}");
                assert_eq!(client.run(&format!("BF.ROTATE {key}")), integer(dropped), "{key}, round {round}");
                client.run(&format!("BF.ADD {key} later{round}"));
            }
            assert!(!found(&mut client, "a2") && found(&mut client, "later0"), "{key}");
            let turns: Vec<String> = lines(&primary);
            let clear = turns.iter().position(|line| *line == format!("BF.CLEAR {key}")).expect("the clear");
            let turn = format!("BF.ROTATE {key} ");
            let slots: Vec<&str> = turns[clear..]
                .iter()
                .filter_map(|line| line.strip_prefix(&turn))
                .map(|numbers| numbers.split(' ').next().unwrap_or_default())
                .collect();
            // The first bucket of a rolling ring begins by itself.
            assert_eq!(slots, if key == "window" { &["0", "1", "2", "3"][..] } else { &["1", "2", "3"] }, "{key}");
        }
        catch_up(&mut client, &mut follower);
        let before = client.run("DEBUG DIGEST");
        assert_eq!(follower.run("DEBUG DIGEST"), before);
        assert_eq!(client.run("DEBUG LOADAOF"), ok());
        assert_eq!(client.run("DEBUG DIGEST"), before);
    });
}

/// A dump that was begun before is not one of the filter that is there now.
#[test]
fn a_dump_does_not_go_on() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.RESERVE k 0.01 100 SEED 500");
        fill(&mut client, "k");
        let first = client.run("BF.SCANDUMP k 0");
        let iterator = first.elements()[0].number();
        client.run("BF.CLEAR k");
        let refused = client.run(&format!("BF.SCANDUMP k {iterator}"));
        assert_eq!(refused, error("ERR the filter was replaced since the dump began"));
    });
}
