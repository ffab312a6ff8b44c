//! Values with pending adds that are moved or freed while the module lists them. `tests/fault_module` forces the order of the
//! threads, and overwrites freed blocks, so that a stale pointer cannot go unnoticed.

use std::path::Path;

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

/// Has the value at a key moved: by the server's own defragmenter where it has one, else by the fault module.
fn move_value(client: &mut Connection, key: &str, has_moved: impl Fn(&mut Connection) -> bool) {
    if client.run("CONFIG SET activedefrag yes").is_error() {
        assert!(client.run(&format!("FAULTS.MOVE {key}")).number() > 0);
    } else {
        defragment(client);
    }
    eventually("the value to be moved", || has_moved(client));
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

/// The stages of FAULTS.RACE.
const OVER: i64 = 0;
const FREE_WAITS: i64 = 2;

fn stage(client: &mut Connection) -> i64 {
    client.run("FAULTS.RACE").number()
}

/// A background thread frees one listed value between the move of the other one's block and the return of the server's
/// function: the old block of the other value is freed already, and its new place is known to nobody yet.
#[test]
fn a_value_that_moves_while_another_is_freed_keeps_its_adds() {
    on_every_server(|program| {
        for how in ["UNLINK freed", "PEXPIRE freed 1"] {
            for keys in [["freed", "moved"], ["moved", "freed"]] {
                let (_server, mut client) = with_listed_filters(program, &keys);
                client.run("FAULTS.RACE moved");
                assert_eq!(client.run(how), integer(1));
                eventually("the background thread", || {
                    client.run("EXISTS freed");
                    stage(&mut client) == FREE_WAITS
                });
                move_value(&mut client, "moved", |client| stage(client) == OVER);
                assert_flushed(&mut client, "moved");
            }
        }
    });
}

/// The list follows a value that has moved: the timer flushes it at its new place.
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
