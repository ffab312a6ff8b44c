//! FRESH: without the key of WHILE, values that were cached before are not used.

use std::thread::sleep;
use std::time::Duration;

use super::{WHILE, fill, hit, lasting, load, token, wait_of, wait_with, with_filter, word};
use testing::{Connection, array, bulk, eventually, integer, ok, with_client};

/// BF.FETCH of the usual item, with FRESH equal to the longest lease.
const FRESH: &str = "BF.FETCH {f} 42 {f}:42 WHILE {f}:feed FRESH 3600000";
/// Callers that ask at once.
const CALLERS: usize = 30;

/// The usual item has a cached value that was filled while the key of WHILE existed. The key has expired, and later changes are not
/// announced.
fn with_an_old_value(client: &mut Connection) {
    client.run("FLUSHALL");
    with_filter(client);
    client.run("SET {f}:feed 1");
    let lease = load(client, FRESH);
    assert_eq!(fill(client, &lease, "VALUE old PX 10000000"), ok());
    assert_eq!(client.run(FRESH), hit("old"), "the key exists");
    client.run("DEL {f}:feed");
}

#[test]
fn without_the_key_one_caller_loads_and_all_get_the_new_value() {
    with_client(|server, client| {
        with_an_old_value(client);
        assert_eq!(client.run(WHILE), hit("old"), "without FRESH a value is believed for its time to live");
        let peek = format!("{FRESH} PEEK");
        assert_eq!(wait_of(&client.run(&peek)), 1, "no old value is good enough");
        let lease = load(client, FRESH);
        assert!(wait_of(&client.run(FRESH)) > 90_000 && wait_of(&client.run(&peek)) > 90_000);
        let mut waiting: Vec<Connection> = (1..CALLERS).map(|_| wait_with(server, FRESH)).collect();
        assert_eq!(client.run("GET {f}:42"), bulk("old"), "it stays for callers without FRESH");
        assert_eq!(fill(client, &lease, "VALUE new PX 10000000"), ok());
        waiting.iter_mut().for_each(|waiter| assert_eq!(waiter.receive().unwrap(), hit("new")));
        for line in [FRESH, &peek, &format!("{FRESH} STALE 20000000"), WHILE] {
            assert_eq!(client.run(line), hit("new"), "{line}");
        }
        let many = "BF.MFETCH {f} FRESH 3600000 WHILE {f}:feed ITEMS 42 {f}:42 never {f}:never";
        let reply = client.run(many);
        assert_eq!((&reply.elements()[0], word(&reply.elements()[1])), (&hit("new"), "load".to_owned()));
        assert_eq!(client.info_number("bf_bloom_fetches_load"), 3);
        // Another item with the same cache key.
        assert_eq!(word(&client.run(&FRESH.replace("{f} 42", "{f} 43"))), "load");
    });
}

#[test]
fn a_loaded_value_is_replaced_under_a_lease_and_valid_when_the_key_is_back() {
    with_client(|_, client| {
        with_an_old_value(client);
        let lease = load(client, FRESH);
        assert_eq!(fill(client, &lease, "VALUE new"), ok());
        let replacing = client.run(&format!("{FRESH} REPLACE"));
        assert!(word(&replacing) == "stale" && replacing.elements()[1] == bulk("new"), "{replacing:?}");
        assert_eq!(fill(client, &token(&replacing), "GIVEUP BACKOFF 100000"), ok());
        assert_eq!(word(&client.run(&format!("{FRESH} BACKOFF"))), "failed", "the value was not loaded again");
        client.run("SET {f}:feed 1");
        assert_eq!(client.run(FRESH), hit("new"), "the key is back");
    });
}

#[test]
fn it_is_counted_from_the_grant() {
    with_client(|_, client| {
        with_an_old_value(client);
        let short = FRESH.replace("3600000", "200");
        let lease = load(client, &short);
        assert!(wait_of(&client.run(&lasting(&short))) <= 200, "a lease ends with it");
        sleep(Duration::from_millis(250));
        assert_eq!(fill(client, &lease, "VALUE late"), ok());
        assert_eq!(client.run(WHILE), hit("late"));
        assert_eq!(word(&client.run(&short)), "load", "it may have been read before 200 ms");
        for what in ["VALUE new", "NONE PX 10000000"] {
            client.run("BF.CHANGED {f} 42 {f}:42");
            let lease = load(client, &FRESH.replace("3600000", "1000"));
            fill(client, &lease, what);
            eventually("it to end", || word(&client.run(&FRESH.replace("3600000", "1000"))) == "load");
        }
    });
}

#[test]
fn writes_in_flight_come_first_and_a_missing_filter_ends_no_value() {
    with_client(|_, client| {
        with_filter(client);
        // UNLESS takes precedence, and a missing filter does not invalidate values.
        client.run("HSET {f}:open {f}:42 x");
        assert_eq!(client.run(&format!("{FRESH} UNLESS {{f}}:open")), array([bulk("wait"), integer(1)]));
        client.run("SET {f}:feed 1");
        client.run("SET {f}:42 v");
        client.run("DEL {f}");
        assert_eq!(client.run(FRESH), hit("v"));
    });
}
