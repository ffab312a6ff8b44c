//! Where a filter of RedisBloom's layout ends: capacities, ceilings, rates that cannot get smaller. What is refused
//! changes nothing.

use crate::harness::{Reply, Server, array, error, integer, ok, on_every_server};

#[test]
fn a_reservation_of_exabytes_is_refused() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let range = "ERR capacity must be in the range [1, 1073741824]";
        assert_eq!(client.run("BF.RESERVE k 0.01 1000000000000000000 LAYOUT redisbloom"), error(range));
        assert_eq!(
            client.run("BF.INSERT k CAPACITY 1000000000000000000 LAYOUT redisbloom ITEMS a"),
            error("Bad capacity")
        );
        client.run("CONFIG SET bf.max-filter-bytes 1000000");
        for line in ["BF.RESERVE k 1e-300 1073741824", "BF.RESERVE k 0.01 1073741824", "BF.RESERVE k 0.01 1000000"] {
            let reply = client.run(&format!("{line} LAYOUT redisbloom"));
            assert!(reply.error_text().starts_with("ERR Insufficient memory to create filter"), "{line}: {reply:?}");
        }
        assert_eq!(client.run("EXISTS k"), integer(0));
    });
}

/// A rate halves from layer to layer. There is an end to that, and to the hashes: 998 at 1e-300, and 1100 are allowed.
#[test]
fn a_filter_that_cannot_get_more_exact_stays_as_it_was() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.RESERVE k 1e-300 1 EXPANSION 1 LAYOUT redisbloom");
        let mut members = Vec::new();
        let refused = (0..1000).find(|number| {
            let reply = client.run(&format!("BF.ADD k {number}"));
            if !reply.is_error() {
                members.push(*number);
            }
            reply.is_error()
        });
        assert!(refused.is_some_and(|number| (50..200).contains(&number)), "refused: {refused:?}");
        let digest = client.run("DEBUG DIGEST-VALUE k");
        assert!(client.run("BF.ADD k one-more").is_error());
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest);
        for number in members {
            assert_eq!(client.run(&format!("BF.EXISTS k {number}")), integer(1));
        }
        assert_eq!(client.run("DEBUG RELOAD").text(), "OK");
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest);
    });
}

#[test]
fn a_ceiling_stops_growth_and_leaves_the_filter_as_it_was() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        assert_eq!(client.run("BF.RESERVE k 0.000001 4 EXPANSION 100 LAYOUT redisbloom"), ok());
        assert_eq!(client.run("BF.MADD k a b c d"), array([1, 1, 1, 1].map(integer)));
        client.run("CONFIG SET bf.max-filter-bytes 600");
        let digest = client.run("DEBUG DIGEST-VALUE k");
        let refused = |reply: &Reply| {
            let text = reply.error_text();
            assert!(text.starts_with("ERR Insufficient memory to create filter"), "{text}");
        };
        refused(&client.run("BF.ADD k e"));
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest);
        // What is in already answers so, and the refusal ends the array.
        let reply = client.run("BF.MADD k a e b");
        assert_eq!(reply.elements()[0], integer(0));
        assert_eq!(reply.elements().len(), 2);
        refused(&reply.elements()[1]);
        assert_eq!(client.run("BF.EXISTS k e"), integer(0));
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest);
        client.run("CONFIG SET bf.max-filter-bytes 0");
        assert_eq!(client.run("BF.ADD k e"), integer(1));
        assert_eq!(client.run("BF.INFO k FILTERS"), array([integer(2)]));
    });
}

#[test]
fn a_capacity_that_outgrows_every_number_is_refused() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.max-filter-bytes 100000000").start();
        let mut client = server.connect();
        assert_eq!(client.run("BF.RESERVE k 0.1 1 EXPANSION 32768 LAYOUT redisbloom"), ok());
        let items: Vec<String> = (0..40_000).map(|number| number.to_string()).collect();
        let mut added = 0;
        for batch in items.chunks(1000) {
            let words: Vec<&str> = ["BF.MADD", "k"].into_iter().chain(batch.iter().map(String::as_str)).collect();
            let reply = client.call(&words);
            added += reply.elements().iter().filter(|answer| !answer.is_error() && answer.truth()).count() as i64;
        }
        // One item, then 32768, and the third layer would have 2^30.
        assert_eq!(client.run("BF.CARD k"), integer(added));
        assert_eq!(added, 32_769);
    });
}
