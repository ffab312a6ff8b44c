//! Many clients, many leases, little memory.

use super::{FETCH, LONG, fill, hit, load, with_filter, word};
use testing::{Connection, Server, eventually, ok, on_every_server};

/// Clients that wait at once.
const CROWD: usize = 2_000;

#[test]
fn a_crowd_is_answered_by_one_load() {
    on_every_server(|program| {
        let server = Server::with(program).line("maxclients 12000").start();
        let mut client = server.connect();
        with_filter(&mut client);
        let lease = load(&mut client, FETCH);
        let crowd: usize = std::env::var("BLOOMGATE_CROWD").map_or(CROWD, |crowd| crowd.parse().unwrap());
        let line = format!("{FETCH} WAIT {LONG}");
        let words: Vec<&str> = line.split(' ').collect();
        let mut clients: Vec<Connection> = (0..crowd).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|client| client.send(&words).unwrap());
        eventually("all to wait", || client.info_number("bf_bloom_waiting") == crowd as i64);
        // A third of them disconnects.
        clients.truncate(crowd - crowd / 3);
        eventually("some to be gone", || client.info_number("bf_bloom_waiting") == clients.len() as i64);
        assert_eq!(fill(&mut client, &lease, "VALUE row"), ok());
        clients.iter_mut().for_each(|client| assert_eq!(client.receive().unwrap(), hit("row")));
        assert_eq!(client.info_number("bf_bloom_fetches_load"), 1);
        assert_eq!(client.info_number("blocked_clients"), 0);
    });
}

#[test]
fn endless_leases_take_bounded_memory() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.max-leases 1000").start();
        let mut client = server.connect();
        with_filter(&mut client);
        let mut take = |from: u32, to: u32| {
            for number in from..to {
                load(&mut client, &format!("BF.FETCH {{f}} 42 {{f}}:{number}"));
            }
            client.info_number("used_memory")
        };
        let before = take(0, 20_000);
        let after = take(20_000, 40_000);
        assert!(after - before < 200_000, "{before} and then {after}");
        assert_eq!(client.info_number("bf_bloom_leases"), 1000);
        // All of them are for one item: adding that ends them.
        client.run("BF.ADD {f} 42");
        assert_eq!(client.info_number("bf_bloom_leases"), 0);
    });
}

#[test]
fn above_maxmemory_only_values_are_refused() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let lease = load(&mut client, FETCH);
        client.run("CONFIG SET maxmemory 1");
        let refused = fill(&mut client, &lease, "VALUE row");
        assert!(refused.error_text().starts_with("OOM"), "{refused:?}");
        assert_eq!(word(&client.run(FETCH)), "wait", "the lease is as it was");
        assert_eq!(client.run("BF.CHANGED {f} 42 {f}:42"), client.answer(false));
        let lease = load(&mut client, FETCH);
        assert_eq!(fill(&mut client, &lease, "NONE EX 100"), ok());
        client.run("BF.CHANGED {f} 42 {f}:42");
        let lease = load(&mut client, FETCH);
        assert_eq!(fill(&mut client, &lease, "GIVEUP"), ok());
        client.run("CONFIG SET maxmemory 0");
        let lease = load(&mut client, FETCH);
        assert_eq!(fill(&mut client, &lease, "VALUE row"), ok());
    });
}

#[test]
fn an_eviction_takes_values_and_no_lease() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let value = "v".repeat(20_000);
        let lease = load(&mut client, "BF.FETCH {f} 42 {f}:kept");
        let used = client.info_number("used_memory");
        client.run("CONFIG SET maxmemory-policy volatile-lru");
        client.run(&format!("CONFIG SET maxmemory {}", used + 1_000_000));
        for number in 0..200 {
            let token = load(&mut client, &format!("BF.FETCH {{f}} 42 {{f}}:{number}"));
            assert_eq!(client.run(&format!("BF.FILL {{f}} 42 {{f}}:{number} {token} VALUE {value} EX 1000")), ok());
        }
        assert!(client.info_number("evicted_keys") > 100);
        assert_eq!(client.run(&format!("BF.FILL {{f}} 42 {{f}}:kept {lease} VALUE row EX 1000")), ok());
        assert_eq!(client.run("BF.FETCH {f} 42 {f}:kept"), hit("row"));
    });
}
