//! Filters that forget: their answers, effects and storage. Most tests do not wait: an append-only file written by the test states when
//! buckets began.

use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use testing::{
    Connection, Server, Stop, array, encode, error, eventually, in_both_protocols, integer, lines, ok, on_every_server,
    start_on_commands, with_append_only_client, with_client,
};

/// Milliseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

/// Starts a server on an append-only file with these lines.
fn started_on(program: &Path, lines: &[String]) -> Server {
    let commands = encode(lines.iter().map(|line| line.split(' ').collect::<Vec<_>>()));
    start_on_commands(program, &["auto-aof-rewrite-percentage 0"], &commands)
}

/// Starts a server with a ring of three 500 s buckets. The first two have an item each, and the next is due. Also returns the time.
fn two_buckets(program: &Path, words: &str) -> (Server, u64) {
    let now = now();
    let turn = |slot: u64, begin: u64| format!("BF.ROTATE k {slot} {begin} {} 50", begin + 500_000);
    let server = started_on(
        program,
        &[
            format!("BF.INSERT k CAPACITY 100 ERROR 0.0001 {words} BUCKETS 3 SEED 5"),
            turn(0, now - 1_600_000),
            "BF.MADD k old".to_owned(),
            turn(1, now - 1_100_000),
            "BF.MADD k middle".to_owned(),
        ],
    );
    (server, now)
}

// The effects of a ring on replicas and in the append-only file, in transactions, in scripts and after a change of roles.

#[test]
fn transactions_and_scripts_propagate_the_rotation_once_and_first() {
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
fn time_does_not_advance_in_a_script_if_the_server_caches_it() {
    with_append_only_client(|server, client| {
        client.run("BF.RESERVE k 0.01 100 WINDOW 1 BUCKETS 64");
        let before = lines(server).len();
        // Many times the 16 ms of a bucket.
        let script = "redis.call('BF.ADD', KEYS[1], 'a')
            for i = 1, 20000000 do end
            redis.call('BF.ADD', KEYS[1], 'b')";
        client.call(&["EVAL", script, "1", "k"]);
        let turns = lines(server).split_off(before).iter().filter(|line| line.starts_with("BF.ROTATE")).count();
        let is_old = client.info("redis_version").starts_with("7.0");
        assert!(turns <= 1 || is_old, "{turns} buckets began in one script");
    });
}

// The passage of time in a stored ring: buckets that end while it is dumped or while the server is down.

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

#[test]
fn the_memory_of_removed_buckets_is_freed() {
    with_client(|_, client| {
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
fn a_replicated_write_does_not_rotate_a_ring_that_is_due() {
    on_every_server(|program| {
        // The file has the times of its writer's clock: no bucket begins while it is loaded.
        let (server, _) = two_buckets(program, "EXPANSION 2 WINDOW 1000");
        let mut client = server.connect();
        assert_eq!(lines(&server), Vec::<String>::new());
        let digest = client.run("DEBUG DIGEST-VALUE k");
        assert_eq!(client.run("DEBUG RELOAD"), ok());
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest);
        assert!(client.run("BF.EXISTS k middle").truth() && !client.run("BF.EXISTS k old").truth());
    });
}

// Which items are found for how long, BF.ROTATE, BF.INFO, refusals.

#[test]
fn an_expired_bucket_is_not_found_and_is_removed_by_the_next_write() {
    on_every_server(|program| {
        let (server, then) = two_buckets(program, "EXPANSION 2 WINDOW 1000");
        let mut client = server.connect();
        let found = |client: &mut Connection| client.run("BF.MEXISTS k old middle new");
        let (yes, no) = (client.answer(true), client.answer(false));
        assert_eq!(found(&mut client), array([no.clone(), yes.clone(), no.clone()]));
        assert_eq!(client.run("BF.CARD k"), integer(1));
        let info = client.run("BF.INFO k");
        let fields =
            ["Capacity", "Number of filters", "Number of items inserted"].map(|name| info.field(name).number());
        assert_eq!(fields, [50, 1, 1]);

        assert_eq!(client.run("BF.ADD k new"), yes);
        assert_eq!(client.run("BF.ADD k middle"), no);
        // Two spans after the second bucket began, on the same grid.
        let (begin, end) = (then - 100_000, then + 400_000);
        assert_eq!(lines(&server), [format!("BF.ROTATE k 3 {begin} {end} 50"), "BF.ADD k new".to_owned()]);
        assert_eq!(found(&mut client), array([no, yes.clone(), yes]));
        assert_eq!(client.run("BF.INFO k ITEMS"), array([integer(2)]));
        let digest = client.run("DEBUG DIGEST-VALUE k");
        assert_eq!(client.run("DEBUG LOADAOF"), ok());
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest);
    });
}

#[test]
fn an_add_renews_an_item_where_the_window_slides() {
    on_every_server(|program| {
        let (server, _) = two_buckets(program, "EXPANSION 2 WINDOW 1000 SLIDING");
        let mut client = server.connect();
        let no = client.answer(false);
        assert_eq!(client.run("BF.MADD k middle middle"), array([no.clone(), no.clone()]));
        assert_eq!(client.run("BF.ADD k middle"), no);
        let carried = lines(&server);
        assert!(carried.len() == 2 && carried[0].starts_with("BF.ROTATE k 3 "), "{carried:?}");
        assert_eq!(carried[1], "BF.MADD k middle");
        // The item is in two buckets and is counted once, also after the server has loaded the filter.
        assert_eq!(client.run("BF.INFO k ITEMS"), array([integer(1)]));
        let digest = client.run("DEBUG DIGEST-VALUE k");
        for reload in ["DEBUG RELOAD", "DEBUG LOADAOF"] {
            assert_eq!(client.run(reload), ok());
            assert_eq!(client.run("BF.CARD k"), integer(1), "{reload}");
            assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest, "{reload}");
        }
    });
}

#[test]
fn short_windows_expire_by_themselves() {
    in_both_protocols(|client, _| {
        assert_eq!(client.run("BF.RESERVE k 0.0001 100 WINDOW 1 BUCKETS 3"), ok());
        let yes = client.answer(true);
        assert_eq!(client.run("BF.ADD k x"), yes);
        eventually("the item to be forgotten", || !client.run("BF.EXISTS k x").truth());
        assert_eq!(client.run("BF.CARD k"), integer(0));
        assert_eq!(client.run("BF.ADD k x"), yes, "it is new again");
    });
}

#[test]
fn a_ring_is_turned_by_hand() {
    with_append_only_client(|server, client| {
        assert_eq!(client.run("BF.RESERVE k 0.0001 100 SEED 1 WINDOW 1000 BUCKETS 3"), ok());
        for (items, dropped) in [("a b", 0), ("c", 0), ("d e f", 2), ("g", 1), ("", 3), ("", 1), ("", 0)] {
            if !items.is_empty() {
                client.run(&format!("BF.MADD k {items}"));
            }
            assert_eq!(client.run("BF.ROTATE k"), integer(dropped), "after {items}");
        }
        assert_eq!(client.run("BF.MEXISTS k a c d g").elements().iter().filter(|reply| reply.truth()).count(), 0);
        let turns: Vec<Vec<u64>> = lines(server)
            .iter()
            .filter_map(|line| line.strip_prefix("BF.ROTATE k "))
            .map(|numbers| numbers.split(' ').map(|number| number.parse().unwrap()).collect())
            .collect();
        assert_eq!(turns.len(), 8, "the first, and one for each");
        for (slot, turn) in turns.iter().enumerate() {
            assert_eq!((turn[0], turn[2] - turn[1], turn[3]), (slot as u64, 500_000, 50));
        }
        assert!(turns.windows(2).all(|pair| pair[0][1] <= pair[1][1]));

        client.run("BF.RESERVE rolling 0.0001 4 SEED 1 ROLLING BUCKETS 3");
        client.run("BF.MADD rolling a b c d e");
        assert_eq!(client.run("BF.ROTATE rolling"), integer(2));
        assert_eq!(lines(server).last().unwrap(), "BF.ROTATE rolling 3 0 0 2");
        let digest = client.run("DEBUG DIGEST");
        assert_eq!(client.run("DEBUG LOADAOF"), ok());
        assert_eq!(client.run("DEBUG DIGEST"), digest);
    });
}

#[test]
fn a_rolling_ring_keeps_the_last_items() {
    with_append_only_client(|server, client| {
        client.run("BF.RESERVE k 0.00001 100 SEED 1 ROLLING");
        let items: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
        assert!(client.batched(&[b"BF.MADD", b"k"], &items).iter().all(|new| *new));
        let found = client.batched(&[b"BF.MEXISTS", b"k"], &items);
        assert!(found[900..].iter().all(|found| *found));
        assert!((100..=8 * 15).contains(&found.iter().filter(|found| **found).count()));
        assert!(!lines(server).iter().any(|line| line.contains("ROTATE")), "both sides count");
        let digest = client.run("DEBUG DIGEST-VALUE k");
        assert_eq!(client.run("DEBUG LOADAOF"), ok());
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest);
    });
}

#[test]
fn a_full_bucket_refuses_and_the_next_takes() {
    with_client(|_, client| {
        client.run("BF.RESERVE k 0.0001 4 NONSCALING SEED 1 WINDOW 1000 BUCKETS 3");
        let (yes, full) = (client.answer(true), error("ERR non scaling filter is full"));
        assert_eq!(client.run("BF.MADD k a b c d"), array([yes.clone(), yes.clone(), full.clone()]));
        assert_eq!(client.run("BF.ADD k c"), full);
        client.run("BF.ROTATE k");
        assert_eq!(client.run("BF.ADD k c"), yes);
    });
}

#[test]
fn the_limit_of_bytes_refuses_the_next_bucket() {
    on_every_server(|program| {
        let (server, _) = two_buckets(program, "NONSCALING WINDOW 1000");
        let mut client = server.connect();
        assert_eq!(client.run("CONFIG SET bf.max-filter-bytes 300"), ok());
        let digest = client.run("DEBUG DIGEST-VALUE k");
        for command in ["BF.ADD k new", "BF.MADD k middle new", "BF.ROTATE k"] {
            assert!(client.run(command).is_error(), "{command}");
        }
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest);
        assert_eq!(lines(&server), Vec::<String>::new());
        assert!(client.run("BF.EXISTS k middle").truth());
        assert_eq!(client.run("CONFIG SET bf.max-filter-bytes 1000000"), ok());
        assert!(client.run("BF.ADD k new").truth());
    });
}
