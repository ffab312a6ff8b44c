//! What is found and for how long, BF.ROTATE, BF.INFO, refusals.

use super::two_buckets;
use testing::{Server, array, error, eventually, integer, lines, ok, on_every_server, with_append_only_file};

#[test]
fn a_bucket_that_is_past_is_not_found_and_goes_with_the_next_write() {
    on_every_server(|program| {
        let (server, then) = two_buckets(program, "EXPANSION 2 WINDOW 1000");
        let mut client = server.connect();
        let found = |client: &mut testing::Connection| client.run("BF.MEXISTS k old middle new");
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
        // The item is in two buckets and counts once, also when the server has loaded it.
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
fn short_windows_pass_by_themselves() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            let key = format!("k{protocol}");
            assert_eq!(client.run(&format!("BF.RESERVE {key} 0.0001 100 WINDOW 1 BUCKETS 3")), ok());
            let yes = client.answer(true);
            assert_eq!(client.run(&format!("BF.ADD {key} x")), yes);
            eventually("the item to be forgotten", || !client.run(&format!("BF.EXISTS {key} x")).truth());
            assert_eq!(client.run(&format!("BF.CARD {key}")), integer(0));
            assert_eq!(client.run(&format!("BF.ADD {key} x")), yes, "it is new again");
        }
    });
}

#[test]
fn a_ring_is_turned_by_hand() {
    on_every_server(|program| {
        let server = with_append_only_file(program);
        let mut client = server.connect();
        assert_eq!(client.run("BF.RESERVE k 0.0001 100 SEED 1 WINDOW 1000 BUCKETS 3"), ok());
        for (items, dropped) in [("a b", 0), ("c", 0), ("d e f", 2), ("g", 1), ("", 3), ("", 1), ("", 0)] {
            if !items.is_empty() {
                client.run(&format!("BF.MADD k {items}"));
            }
            assert_eq!(client.run("BF.ROTATE k"), integer(dropped), "after {items}");
        }
        assert_eq!(client.run("BF.MEXISTS k a c d g").elements().iter().filter(|reply| reply.truth()).count(), 0);
        let turns: Vec<Vec<u64>> = lines(&server)
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
        assert_eq!(lines(&server).last().unwrap(), "BF.ROTATE rolling 3 0 0 2");
        let digest = client.run("DEBUG DIGEST");
        assert_eq!(client.run("DEBUG LOADAOF"), ok());
        assert_eq!(client.run("DEBUG DIGEST"), digest);
    });
}

#[test]
fn what_cannot_be_turned_says_why() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.RESERVE k 0.01 100 WINDOW 1000");
        client.run("BF.RESERVE plain 0.01 100");
        client.run("BF.RESERVE theirs 0.01 100 LAYOUT redisbloom");
        client.run("SET string x");
        for (command, refusal) in [
            ("BF.ROTATE missing", "ERR not found"),
            ("BF.ROTATE plain", "ERR this filter has no WINDOW"),
            ("BF.ROTATE theirs", "ERR this filter has no WINDOW"),
            ("BF.ROTATE string", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ] {
            assert_eq!(client.run(command), error(refusal), "{command}");
        }
    });
}

#[test]
fn a_rolling_ring_keeps_the_last_items() {
    on_every_server(|program| {
        let server = with_append_only_file(program);
        let mut client = server.connect();
        client.run("BF.RESERVE k 0.00001 100 SEED 1 ROLLING");
        let items: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
        assert!(client.batched(&[b"BF.MADD", b"k"], &items).iter().all(|new| *new));
        let found = client.batched(&[b"BF.MEXISTS", b"k"], &items);
        assert!(found[900..].iter().all(|found| *found));
        assert!((100..=8 * 15).contains(&found.iter().filter(|found| **found).count()));
        assert!(!lines(&server).iter().any(|line| line.contains("ROTATE")), "both sides count");
        let digest = client.run("DEBUG DIGEST-VALUE k");
        assert_eq!(client.run("DEBUG LOADAOF"), ok());
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest);
    });
}

#[test]
fn a_full_bucket_refuses_and_the_next_takes() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
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
