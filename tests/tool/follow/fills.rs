//! Fills: transactions that are not visible yet when a fill begins, and values that readers fill in meanwhile. Also the status and the
//! metrics.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::thread;
use std::time::Duration;

use super::synchronous::{answer, open_keys};
use super::{MODES, One, Sql, USERS, USERS_TABLE, World, beats, followed, has, soon};
use crate::running::run;
use crate::web::{asking, metrics};
use testing::database::Database;
use testing::{Reply, Server, eventually, fault_module, free_port, integer, module, nil, on_every_server, servers};

#[test]
fn a_row_whose_commit_waits_for_another_standby_is_not_absent() {
    on_every_server(|program| {
        let world = World::new(program, USERS, USERS_TABLE);
        world.session().run("INSERT INTO users VALUES (1, 1)");
        world.demand_ghost("ghost");
        // The slot begins after the commit record of row 2, because creating it waits for running transactions in two steps.
        let begin = || {
            let mut session = world.session();
            session.run("BEGIN");
            let xid: String = session.one("SELECT pg_current_xact_id()::text");
            (session, xid)
        };
        let mut session = world.session();
        let mut wait_for_its_wait = |xid: &str| {
            let text = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid' AND transactionid::text = $1";
            soon(|| session.query_one(text, &[&xid]).unwrap().get::<_, i64>(0) == 1);
        };
        let (mut first, xid) = begin();
        let follower = world.follow();
        follower.says("creating the replication slot");
        wait_for_its_wait(&xid);
        let (mut second, xid) = begin();
        first.run("ROLLBACK");
        // Otherwise it might wait for the transaction of row 2, too.
        wait_for_its_wait(&xid);
        world.while_waiting(
            &["INSERT INTO users VALUES (2, 1)"],
            || {
                second.run("ROLLBACK");
                follower.says("waiting for running transactions");
            },
            || world.demand(""),
        );
        world.wait_for_heartbeat();
        let mut client = world.server.connect();
        assert_eq!(client.run("BF.EXISTS {users} 2"), integer(1), "{}", follower.log());
    });
}

#[test]
fn the_slot_waits_for_transactions_of_any_length() {
    let world = World::new(&servers()[0], USERS, USERS_TABLE);
    let mut session = world.session();
    session.run("BEGIN; SELECT txid_current()");
    // These limits are meant for applications.
    for limit in ["lock_timeout = '1s'", "statement_timeout = '1s'", "default_transaction_isolation = 'serializable'"] {
        world.session().run(&format!("ALTER DATABASE postgres SET {limit}"));
    }
    let mut client = world.server.connect();
    client.run("SET {users}:feed:position 1");
    let mut stopped = world.follow();
    stopped.says("creating the replication slot");
    assert_eq!(client.run("EXISTS {users}:feed:position"), integer(0), "it was stored with another slot");
    stopped.end();
    // PostgreSQL notices the lost connection only when it writes to it.
    let text = "SELECT pg_terminate_backend(pid) FROM pg_stat_replication";
    world.session().run(text);
    let follower = world.follow();
    follower.says("creating the replication slot");
    // PostgreSQL answers other commands within ten seconds.
    thread::sleep(Duration::from_secs(12));
    session.run("INSERT INTO users VALUES (1, 1); COMMIT");
    world.wait_for_heartbeat();
    assert_eq!(world.server.connect().run("BF.EXISTS {users} 1"), integer(1), "{}", follower.log());
}

#[test]
fn a_reader_with_an_old_row_cannot_fill_it_in_during_a_fill() {
    const READERS: usize = 300;
    on_every_server(|program| {
        let world = World::new(program, USERS, USERS_TABLE);
        let mut writer = world.session();
        writer.run(&format!("INSERT INTO users SELECT id, 1 FROM generate_series(1, {READERS}) id"));
        let mut client = world.server.connect();
        // The scan for cached values takes a while.
        client.run("DEBUG POPULATE 1000000 other 1");
        let tokens: Vec<String> = (1..=READERS)
            .map(|id| match client.run(&format!("BF.FETCH {{users}} {id} {{users}}:{id} LEASE 600000")) {
                Reply::Array(parts) if parts[0].text() == "load" => parts[1].text(),
                other => panic!("{other:?}"),
            })
            .collect();
        writer.run("UPDATE users SET version = 2");
        let follower = world.follow();
        let mut answered = 0;
        eventually("the heartbeat", || {
            if let Some(token) = tokens.get(answered) {
                let id = answered + 1;
                client.run(&format!("BF.FILL {{users}} {id} {{users}}:{id} {token} VALUE 1 EX 600"));
                answered += 1;
            }
            beats(&mut client)
        });
        assert!(answered > 10, "the fill was too fast: {answered}");
        for id in 1..=READERS {
            assert_eq!(client.run(&format!("GET {{users}}:{id}")), nil(2), "{id} of {answered}: {}", follower.log());
        }
    });
}

#[test]
fn a_full_filter_is_filled_again_until_the_rows_fit() {
    let table = USERS_TABLE.replace("0.000001 100000 HASH siphash", "1e-12 100 NONSCALING");
    followed(&MODES, USERS, &table, |world, follower, client, session| {
        let insert = |from, to| format!("INSERT INTO users SELECT id, 1 FROM generate_series({from}, {to}) id");
        session.run(&insert(1, 60));
        soon(|| has(client, 60) && open_keys(client) == 0);
        // Items of deleted rows fill the filter.
        session.run(&format!("DELETE FROM users; {}", insert(61, 120)));
        if world.mode == "synchronous" {
            assert_ne!(answer(client, 120), "absent");
        }
        soon(|| has(client, 120) && answer(client, 1) == "absent");
        // More rows than the filter can hold.
        session.run(&insert(121, 400));
        if world.mode == "synchronous" {
            assert_ne!(answer(client, 400), "absent");
        }
        soon(|| !beats(client));
        follower.says("non scaling filter is full; trying again");
        assert_ne!(answer(client, 400), "absent");
        session.run("DELETE FROM users WHERE id > 100");
        soon(|| answer(client, 401) == "absent" && has(client, 100));
    });
}

#[test]
fn a_filter_without_room_for_deleted_items_is_replaced_while_it_serves() {
    let table = USERS_TABLE.replace("0.000001 100000 HASH siphash", "1e-12 1000 HASH siphash");
    followed(&["synchronous"], USERS, &table, |world, follower, client, session| {
        session.run("INSERT INTO users SELECT id, 1 FROM generate_series(1, 1000) id");
        // The new filter waits for this transaction.
        let mut running = world.session();
        running.run("BEGIN; SELECT pg_current_xact_id()");
        session.run("DELETE FROM users WHERE id <= 900");
        follower.says("no room for more deleted items");
        soon(|| client.run("EXISTS {users}:feed:filling") == integer(1));
        for id in 2001..2100 {
            session.run(&format!("INSERT INTO users VALUES ({id}, 1); DELETE FROM users WHERE id = {id} - 1"));
            assert_ne!(answer(client, id), "absent");
            // The heartbeat continues.
            soon(|| answer(client, id + 100) == "absent");
        }
        assert_eq!(client.run("EXISTS {users}:feed:filling"), integer(1));
        running.run("COMMIT");
        soon(|| (1..=900).all(|id| answer(client, id) == "absent"));
        for id in (901..=1000).chain([2099]) {
            assert_eq!(client.call(&["BF.EXISTS", "{users}", &id.to_string()]), integer(1), "{id}");
        }
        assert!(!follower.log().contains("trying again"));
    });
}

#[test]
fn a_filter_without_room_for_deleted_items_serves_until_another_fits() {
    followed(&["synchronous"], USERS, USERS_TABLE, |_, follower, client, session| {
        session.run("INSERT INTO users SELECT id, 1 FROM generate_series(1, 9) id");
        soon(|| has(client, 9) && open_keys(client) == 0);
        client.run("CONFIG SET bf.max-filter-bytes 1000");
        for id in 1..6 {
            session.run(&format!("DELETE FROM users WHERE id = {id}"));
            follower.says("deleted rows stay in {users}");
            // The heartbeat continues.
            soon(|| answer(client, 100) == "absent");
            assert!(has(client, id));
        }
        assert!(!follower.log().contains("trying again"), "{}", follower.log());
        client.run("CONFIG SET bf.max-filter-bytes 0");
        soon(|| (1..6).all(|id| answer(client, id) == "absent"));
        assert!((6..10).all(|id| has(client, id)), "{}", follower.log());
    });
}

#[test]
fn deleted_rows_leave_the_filter_once_there_is_memory_again() {
    on_every_server(|program| {
        // In synchronous mode, the third allocation belongs to the delete.
        for (mode, fault) in MODES.into_iter().zip(["1 ON", "3"]) {
            let modules = format!("loadmodule {} {}", fault_module().display(), module().display());
            let server = Server::with(program).without_module().line(&modules);
            let world = World::between(mode, Database::logical(), server, USERS, USERS_TABLE);
            let follower = world.following();
            let (mut client, mut session) = (world.server.connect(), world.session());
            session.run("INSERT INTO users VALUES (1, 1), (2, 1)");
            soon(|| has(&mut client, 2) && open_keys(&mut client) == 0 && beats(&mut client));
            client.run(&format!("FAULTS.FAIL {fault}"));
            session.run("DELETE FROM users WHERE id = 1");
            follower.says("the server cannot allocate them");
            follower.says(if mode == "eventual" { "; trying again" } else { ": filling {users} again" });
            client.run("FAULTS.FAIL 0");
            soon(|| answer(&mut client, 1) == "absent" && has(&mut client, 2));
            assert_eq!(follower.log().contains("trying again"), mode == "eventual", "{}", follower.log());
        }
    });
}

#[test]
fn deleted_rows_leave_a_filter_whose_hash_is_the_default_of_the_server() {
    let table = USERS_TABLE.replace(" HASH siphash", "");
    on_every_server(|program| {
        for (mode, hash) in MODES.map(|mode| (mode, "siphash")).into_iter().chain([("eventual", "murmur3")]) {
            let world = World::with_mode(mode, program, USERS, &table);
            let (mut client, mut session) = (world.server.connect(), world.session());
            client.run(&format!("CONFIG SET bf.hash {hash}"));
            // The second follower continues with the filter.
            for id in [1, 2] {
                world.demand("");
                let mut follower = world.following();
                session.run(&format!("INSERT INTO users VALUES ({id}, 1)"));
                soon(|| has(&mut client, id));
                session.run(&format!("DELETE FROM users; INSERT INTO users VALUES ({id} + 10, 1)"));
                soon(|| has(&mut client, id + 10) && open_keys(&mut client) == 0);
                if hash == "siphash" {
                    soon(|| !has(&mut client, id));
                } else {
                    assert!(has(&mut client, id));
                }
                follower.end();
            }
        }
    });
}

#[test]
fn a_filter_that_was_deleted_is_filled_again_before_a_row_changes() {
    followed(&MODES, USERS, USERS_TABLE, |world, follower, client, _| {
        world.session().run("INSERT INTO users VALUES (1, 1)");
        soon(|| has(client, 1) && answer(client, 2) == "absent");
        client.run("DEL {users}");
        soon(|| has(client, 1) && answer(client, 2) == "absent");
        follower.says("the filter {users} is missing");
    });
}

#[test]
fn the_status_tells_how_far_the_follower_is_behind() {
    on_every_server(|program| {
        let world = World::new(program, USERS, USERS_TABLE);
        let status = || run([OsStr::new("follow"), OsStr::new("--status"), world.path().as_os_str()]);
        let refused = run([OsStr::new("follow"), OsStr::new("--tls"), world.path().as_os_str()]);
        assert_eq!(refused.status, Some(2), "{refused:?}");
        let before = status();
        assert_eq!(before.status, Some(1), "{before:?}");
        assert!(before.text().contains("slot bloomgate: it does not exist"), "{before:?}");
        assert!(
            before.text().contains("{users}, which is missing: no heartbeat, no position, 0 open keys"),
            "{before:?}"
        );

        let mut follower = world.following();
        let now = status().success();
        assert!(now.text().contains("slot bloomgate: a follower is connected (pid "), "{now:?}");
        assert!(now.text().contains("public.users in the filter {users}: at most "), "{now:?}");
        world.server.connect().run("HSET {users}:feed:open {users}:1 0/0 {users}:2 0/0");
        assert!(status().text().contains(", 2 open keys\n"), "{:?}", status());

        follower.end();
        // PostgreSQL notices the follower's end before the heartbeat expires.
        eventually("the slot to be free", || status().status == Some(1));
        assert!(status().stderr.contains("no follower is connected"), "{:?}", status());
        eventually("the heartbeat to expire", || status().stderr.contains("no heartbeat"));
        let after = status();
        assert!(after.text().contains("slot bloomgate: no follower is connected"), "{after:?}");
        assert!(after.stderr.contains("no heartbeat of {users}"), "{after:?}");
    });
}

#[test]
fn the_metrics_count_applied_changes() {
    on_every_server(|program| {
        let world = World::new(program, USERS, USERS_TABLE);
        let port = free_port();
        let text = std::fs::read_to_string(world.path()).unwrap();
        std::fs::write(world.path(), format!("metrics = \"127.0.0.1:{port}\"\n{text}")).unwrap();
        let mut follower = world.following();
        let served = || metrics::parse(&asking::get(port, "/metrics").success().body);
        let value = |name: &str, state: Option<&str>| {
            let samples = served();
            let found = samples.iter().find(|(said, labels, _)| {
                said.strip_prefix("bloomgate_follow_") == Some(name)
                    && labels["slot"] == "bloomgate"
                    && labels.get("state").map(String::as_str) == state
            });
            found.unwrap_or_else(|| panic!("no {name} in {samples:?}")).2
        };
        let metric = |name: &str| value(name, None);
        assert_eq!((metric("fills_total"), metric("changes_total")), (1.0, 0.0));
        let begun = metric("applied_timestamp_seconds");
        world.session().run("INSERT INTO users SELECT id, 1 FROM generate_series(1, 3) id");
        soon(|| metric("changes_total") == 3.0);
        assert_eq!((metric("transactions_total"), metric("failures_total")), (1.0, 0.0));
        assert_eq!(value("state", Some("following")), 1.0);
        soon(|| metric("applied_timestamp_seconds") > begun && metric("lag_bytes") == 0.0);
        let served: BTreeSet<_> = served().into_iter().map(|(name, ..)| name).collect();
        let (_, of_follower) = metrics::queried();
        assert!(of_follower.len() > 5 && of_follower.is_subset(&served), "{of_follower:?} are queried of {served:?}");
        follower.end();
    });
}
