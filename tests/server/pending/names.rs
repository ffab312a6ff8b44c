//! Values with pending adds that are moved, freed, renamed or replaced while the module lists their keys. `tests/fault_module` holds the
//! timer that flushes them, and overwrites freed blocks, so that a stale pointer cannot go unnoticed.

use std::path::Path;
use std::thread;
use std::time::Duration;

use testing::{Connection, Server, defragments, eventually, integer, ok, on_every_server, on_servers_with};

use super::{ADDS, add, all_written, assert_has, list, reserve, start_with_faults};

/// A server with listed filters.
fn with_listed_filters(program: &Path, keys: &[&str]) -> (Server, Connection) {
    let (server, mut client) = start_with_faults(program);
    let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    keys.iter().for_each(|key| reserve(&mut client, key));
    list(&server, &mut client, &keys, ADDS);
    (server, client)
}

/// Has the server's defragmenter move whatever it can.
fn defragment(client: &mut Connection) {
    let settings = "active-defrag-ignore-bytes 1 active-defrag-threshold-lower 0 active-defrag-cycle-min 50";
    assert_eq!(client.run(&format!("CONFIG SET {settings}")), ok());
}

/// Flushes what is pending, and compares a filter with one to which nothing was ever pending.
fn assert_flushed(client: &mut Connection, key: &str) {
    client.run("FAULTS.HOLD 0");
    all_written(client);
    assert_has(client, key, 0..ADDS);
    reserve(client, "expected");
    add(client, "expected", 0..ADDS);
    let digest = |client: &mut Connection, key: &str| client.run(&format!("DEBUG DIGEST-VALUE {key}"));
    assert_eq!(digest(client, key), digest(client, "expected"));
    assert_eq!(client.run("DEL expected"), integer(1));
}

#[test]
fn a_value_that_has_moved_is_flushed_by_the_timer() {
    on_every_server(|program| {
        let (_server, mut client) = with_listed_filters(program, &["k", "other"]);
        for key in ["k", "other"] {
            assert!(client.run(&format!("FAULTS.MOVE {key}")).number() > 0);
        }
        assert_flushed(&mut client, "k");
        assert_has(&mut client, "other", 0..ADDS);
    });
}

/// The defragmenter stops after each layer; the next call goes on with the next one.
#[test]
fn a_value_is_moved_layer_by_layer() {
    on_every_server(|program| {
        let (_server, mut client) = start_with_faults(program);
        assert_eq!(client.run("BF.RESERVE k 0.01 100 EXPANSION 1"), ok());
        assert!(add(&mut client, "k", 0..1000) > 900);
        let layers = client.run("BF.STATS k").field("Layers").elements().len();
        let before = client.run("DEBUG DIGEST-VALUE k");
        assert_eq!(client.run("FAULTS.MOVE k"), integer(i64::try_from(layers).expect("a few layers")));
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), before);
        assert_has(&mut client, "k", 0..1000);
        assert!(layers > 5);
    });
}

/// The server's own defragmenter moves values while they are listed.
#[test]
#[ignore = "needs a server with active defragmentation"]
fn values_that_the_server_defragments_keep_their_adds() {
    on_servers_with("active defragmentation", defragments, |program| {
        let (server, mut client) = start_with_faults(program);
        // Between these filters are small ones, which are deleted: each is nearly alone in its page.
        let keys: Vec<String> = (0..30).map(|number| format!("k{number}")).collect();
        for key in &keys {
            reserve(&mut client, key);
            for number in 0..100 {
                client.run(&format!("BF.RESERVE {key}-{number} 0.01 100"));
            }
        }
        list(&server, &mut client, &keys, 2000);
        for key in &keys {
            for number in 0..100 {
                client.run(&format!("DEL {key}-{number}"));
            }
        }
        assert_eq!(client.run("CONFIG SET activedefrag yes"), ok());
        defragment(&mut client);
        eventually("the defragmenter", || client.run("FAULTS.MOVED").number() > 0);
        client.run("FAULTS.HOLD 0");
        all_written(&mut client);
        keys.iter().for_each(|key| assert_has(&mut client, key, 0..2000));
    });
}

const TIME_FOR_THE_TIMER: Duration = Duration::from_millis(300);

/// Bytes of pending adds of one filter.
fn pending_in(client: &mut Connection, key: &str) -> i64 {
    client.run(&format!("BF.STATS {key}")).field("Size of pending adds").number()
}

/// The timer finds nothing under the name that is listed. The adds stay pending until the filter is written to, and are found.
#[test]
fn a_filter_with_another_name_is_flushed_after_the_next_write() {
    on_every_server(|program| {
        for (line, database, name) in [("RENAME k renamed", 0, "renamed"), ("MOVE k 3", 3, "k"), ("SWAPDB 0 5", 5, "k")]
        {
            let (_server, mut client) = with_listed_filters(program, &["k"]);
            let before = client.run("DEBUG DIGEST-VALUE k");
            assert!(!client.run(line).is_error(), "{line}");
            client.run(&format!("SELECT {database}"));
            let bytes = pending_in(&mut client, name);
            client.run("FAULTS.HOLD 0");
            // Time for the timer, which should find nothing. Without it the test would hold, too.
            thread::sleep(TIME_FOR_THE_TIMER);
            assert_eq!(pending_in(&mut client, name), bytes, "{line}");
            assert_has(&mut client, name, 0..ADDS);
            assert_eq!(client.run(&format!("DEBUG DIGEST-VALUE {name}")), before);
            assert_eq!(client.run(&format!("BF.ADD {name} another")), integer(1));
            all_written(&mut client);
            assert_has(&mut client, name, 0..ADDS);
        }
    });
}

/// Whatever is found under the listed name has no pending adds, or has its own flushed.
#[test]
fn another_value_under_the_listed_name_stays_as_it_is() {
    on_every_server(|program| {
        let (_server, mut client) = with_listed_filters(program, &["k", "other"]);
        assert_eq!(client.run("RENAME k renamed"), ok());
        reserve(&mut client, "k");
        add(&mut client, "k", 0..10);
        assert_eq!(client.run("RENAME other gone"), ok());
        client.run("SET other string");
        let before = client.run("DEBUG DIGEST-VALUE k other");
        client.run("FAULTS.HOLD 0");
        thread::sleep(TIME_FOR_THE_TIMER);
        assert_eq!(client.run("DEBUG DIGEST-VALUE k other"), before);
        assert!(pending_in(&mut client, "renamed") > 0 && pending_in(&mut client, "gone") > 0);
        for key in ["renamed", "gone"] {
            client.run(&format!("BF.ADD {key} another"));
        }
        all_written(&mut client);
    });
}

/// The timer reads a key as nobody: it does not make a filter look recently used, or keep it from expiring.
#[test]
fn the_timer_does_not_count_as_a_use_of_the_filter() {
    on_every_server(|program| {
        let (_server, mut client) = with_listed_filters(program, &["k", "short"]);
        thread::sleep(Duration::from_millis(2100));
        assert_eq!(client.run("PEXPIRE short 1"), integer(1));
        let idle = client.run("OBJECT IDLETIME k").number();
        assert!(idle >= 2, "{idle} seconds");
        client.run("FAULTS.HOLD 0");
        eventually("the end of the key", || client.run("EXISTS short") == integer(0));
        all_written(&mut client);
        assert!(client.run("OBJECT IDLETIME k").number() >= idle);
    });
}

/// The timer does not follow a pointer to a value that was freed, whichever thread freed it.
#[test]
fn a_value_that_was_freed_is_not_flushed() {
    on_every_server(|program| {
        for end in ["UNLINK freed", "DEL freed", "PEXPIRE freed 1", "SET freed x", "RENAME string freed"] {
            let (_server, mut client) = with_listed_filters(program, &["first", "freed", "last"]);
            client.run("SET string x");
            assert!(!client.run(end).is_error(), "{end}");
            eventually("the key to go", || {
                client.run("EXISTS freed");
                client.gauge("num_objects") == 2
            });
            client.wait_for_frees();
            assert_flushed(&mut client, "first");
            assert_has(&mut client, "last", 0..ADDS);
        }
    });
}
