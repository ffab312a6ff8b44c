//! Synchronous mode: COMMIT waits for the announcement, readers wait for the release, and no cache key stays held.

use std::thread;

use postgres::Client;

use super::{Cleanup, MODES, One, Sql, USERS, USERS_TABLE, World, followed, has, soon};
use crate::running::send;
use testing::{Connection, Reply, integer, nil, on_every_server};

/// The follower's name alone, and with a standby that never connects: COMMIT then waits even after the follower has confirmed it.
pub const FOLLOWER: &str = "bloomgate";
pub const WITH_GHOST: &str = "FIRST 2 (bloomgate, ghost)";

impl World {
    /// Requires a standby that never connects, and returns once all of PostgreSQL's processes have reloaded the setting, one after another.
    pub fn demand_ghost(&self, names: &str) {
        self.demand(names);
        let waits_for_follower = names.contains(FOLLOWER);
        soon(|| self.holds_commits_back(waits_for_follower));
    }

    /// Whether a COMMIT waits, also after the follower has confirmed it.
    fn holds_commits_back(&self, waits_for_follower: bool) -> bool {
        let (mut session, mut writer) = (self.session(), self.session());
        let pid: i32 = writer.one("SELECT pg_backend_pid()");
        thread::scope(|scope| {
            let commit = scope.spawn(move || writer.batch_execute("SELECT pg_logical_emit_message(true, 'probe', '')"));
            let mut ask = |text: &str| session.one::<bool>(text);
            let waits = format!("SELECT wait_event = 'SyncRep' IS TRUE FROM pg_stat_activity WHERE pid = {pid}");
            soon(|| commit.is_finished() || ask(&waits));
            if waits_for_follower {
                let confirmed =
                    "SELECT coalesce(bool_or(flush_lsn >= pg_current_wal_lsn()), false) FROM pg_stat_replication";
                soon(|| commit.is_finished() || ask(confirmed));
            }
            let is_held = !commit.is_finished() && ask(&waits);
            ask(&format!("SELECT pg_cancel_backend({pid})"));
            commit.join().expect("no panic").expect("a cancelled wait is a warning");
            is_held
        })
    }

    /// Waits until this many COMMITs are waiting for a standby.
    pub fn wait_for_waiting_commits(&self, count: i64) {
        let mut session = self.session();
        let text = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        soon(|| session.one::<i64>(text) == count);
    }

    /// Runs statements in the background that wait until `finish` has made them return.
    pub fn while_waiting(&self, statements: &[&str], test: impl FnOnce(), finish: impl FnOnce()) {
        thread::scope(|scope| {
            // If the test fails, the COMMITs must return nevertheless.
            let cleanup = Cleanup(&self.database);
            for text in statements {
                scope.spawn(|| self.session().run(text));
            }
            self.wait_for_waiting_commits(statements.len() as i64);
            test();
            finish();
            std::mem::forget(cleanup);
        });
    }
}

/// The parts of the answer to a reader that gives WHILE and UNLESS.
pub fn ask(client: &mut Connection, id: u64) -> Vec<String> {
    let (text, key) = (id.to_string(), format!("{{users}}:{id}"));
    let words =
        ["BF.FETCH", "{users}", &text, &key, "LEASE", "2000", "WHILE", "{users}:feed", "UNLESS", "{users}:feed:open"];
    match client.call(&words) {
        Reply::Array(parts) => {
            parts.iter().map(|part| if let Reply::Integer(n) = part { n.to_string() } else { part.text() }).collect()
        }
        other => panic!("{other:?}"),
    }
}

pub fn answer(client: &mut Connection, id: u64) -> String {
    ask(client, id).swap_remove(0)
}

/// Loads values that are not cached from the database, as an application does.
pub fn look_up(client: &mut Connection, database: &mut Client, id: u64) -> Option<i32> {
    let mut version = None;
    soon(|| {
        let parts = ask(client, id);
        version = match &*parts[0] {
            "absent" => None,
            "hit" => Some(parts[1].parse().unwrap()),
            "load" => {
                let row = database.query_opt("SELECT version FROM users WHERE id = $1", &[&(id as i64)]).unwrap();
                let version: Option<i32> = row.map(|row| row.get(0));
                let value = version.map_or("NONE".to_owned(), |version| format!("VALUE {version}"));
                client.run(&format!("BF.FILL {{users}} {id} {{users}}:{id} {} {value} EX 600", parts[1]));
                version
            }
            _ => return false,
        };
        true
    });
    version
}

/// Caches the version of a row, as a reader does.
pub fn cache(client: &mut Connection, database: &mut Client, id: u64) {
    soon(|| look_up(client, database, id).is_some() && answer(client, id) == "hit");
}

pub fn open_keys(client: &mut Connection) -> i64 {
    client.run("HLEN {users}:feed:open").number()
}

#[test]
fn a_commit_waits_for_the_server() {
    followed(&["synchronous"], USERS, USERS_TABLE, |world, _, client, session| {
        session.run("INSERT INTO users VALUES (1, 1)");
        assert_ne!(answer(client, 1), "absent");
        cache(client, session, 1);
        soon(|| answer(client, 2) == "absent");

        send("STOP", world.server.process_id());
        let statements = ["UPDATE users SET version = 2 WHERE id = 1", "INSERT INTO users VALUES (2, 1)"];
        let seen = || {
            let text = "SELECT sum(version) FROM users";
            assert_eq!(world.session().one::<i64>(text), 1, "it is visible");
        };
        world.while_waiting(&statements, seen, || send("CONT", world.server.process_id()));
        // Both COMMITs have returned.
        assert_ne!(answer(client, 1), "hit");
        assert_ne!(answer(client, 2), "absent");
        soon(|| open_keys(client) == 0);
        // Other tables are not announced, and their COMMITs return nevertheless.
        session.run("CREATE TABLE others (id int PRIMARY KEY); INSERT INTO others VALUES (1)");
    });
}

#[test]
fn readers_wait_until_an_announced_change_is_visible() {
    followed(&["synchronous"], USERS, USERS_TABLE, |world, _, client, session| {
        session.run("INSERT INTO users VALUES (1, 1), (2, 1), (3, 1)");
        cache(client, session, 1);
        cache(client, session, 2);
        world.demand_ghost(WITH_GHOST);
        let statements = [
            "UPDATE users SET version = 2 WHERE id = 1",
            "DELETE FROM users WHERE id = 3",
            "BEGIN; INSERT INTO users VALUES (4, 1); DELETE FROM users WHERE id = 4; INSERT INTO users VALUES (4, 2); COMMIT",
        ];
        let announced = || {
            soon(|| open_keys(client) == 3);
            let answers: Vec<_> = (1..=4).map(|id| answer(client, id)).collect();
            assert_eq!(answers, ["wait", "hit", "wait", "wait"]);
        };
        world.while_waiting(&statements, announced, || world.demand(FOLLOWER));
        soon(|| open_keys(client) == 0);
        world.wait_for_heartbeat();
        let answers: Vec<_> = (1..=4).map(|id| answer(client, id)).collect();
        assert_eq!(answers, ["load", "hit", "absent", "load"]);
    });
}

#[test]
fn sigterm_releases_every_cache_key() {
    followed(&["synchronous"], USERS, USERS_TABLE, |world, follower, client, _| {
        world.demand_ghost(WITH_GHOST);
        let terminate = || {
            let mut client = world.server.connect();
            soon(|| open_keys(&mut client) == 1);
            follower.signal("TERM");
        };
        world.while_waiting(&["INSERT INTO users VALUES (1, 1)"], terminate, || world.demand(FOLLOWER));
        follower.end();
        assert_eq!(open_keys(client), 0);
        assert!(has(client, 1));
        follower.says("stopped; COMMIT waits");
        // While there is no follower, COMMIT waits.
        let absent = || assert_eq!(world.server.connect().run("BF.EXISTS {users} 2"), integer(0));
        let mut next = None;
        world.while_waiting(&["INSERT INTO users VALUES (2, 1)"], absent, || next = Some(world.follow()));
        assert!(has(client, 2));
        next.unwrap().end();
    });
}

/// PostgreSQL releases COMMITs only for a standby that has caught up with the log, so a follower has to read on while confirmed
/// transactions are not visible.
#[test]
fn a_takeover_reads_a_large_transaction_while_a_confirmed_commit_waits() {
    followed(&["synchronous"], USERS, USERS_TABLE, |world, follower, client, _| {
        world.demand_ghost(WITH_GHOST);
        let confirmed = || {
            soon(|| open_keys(&mut world.server.connect()) == 1);
            follower.signal("KILL");
            soon(|| follower.running.0.try_wait().unwrap().is_some());
        };
        let mut next = None;
        let take_over = || {
            let mut session = world.session();
            // Larger than the buffers between PostgreSQL and the follower. If the test fails, its COMMIT does not keep it from ending.
            thread::spawn(move || session.batch_execute("INSERT INTO users SELECT generate_series(1000, 100000), 1"));
            world.wait_for_waiting_commits(2);
            world.demand(FOLLOWER);
            next = Some(world.follow());
            world.wait_for_waiting_commits(0);
        };
        world.while_waiting(&["INSERT INTO users VALUES (1, 1)"], confirmed, take_over);
        assert!(has(client, 1));
        soon(|| open_keys(client) == 0 && has(client, 100_000));
        *follower = next.unwrap();
    });
}

#[test]
fn without_synchronous_commit_for_this_follower_there_is_no_heartbeat() {
    followed(&["synchronous"], USERS, USERS_TABLE, |world, follower, client, _| {
        for (names, reason) in [
            ("other, bloomgate", "demands 1 of 2"),
            ("ANY 1 (bloomgate, other)", "demands 1 of 2"),
            ("*", "accepts any standby"),
            ("other", "does not list bloomgate"),
        ] {
            world.demand(names);
            follower.says(&format!("no heartbeat: synchronous_standby_names = '{names}' {reason}"));
            assert_eq!(client.run("EXISTS {users}:feed"), integer(0), "{names}");
            assert_ne!(answer(client, 77), "absent");
        }
        let times = follower.log().matches("no heartbeat").count();
        assert_eq!(times, 5, "{}", follower.log());
        world.demand(FOLLOWER);
        world.wait_for_heartbeat();
        world.session().run("INSERT INTO users VALUES (77, 1)");
        assert_ne!(answer(client, 77), "absent");
        follower.end();
        // Eventual mode would wait for its own COMMITs.
        let eventual = std::fs::read_to_string(world.path()).unwrap().replace("\"synchronous\"", "\"eventual\"");
        std::fs::write(world.path(), eventual).unwrap();
        world.refused("remove the name");
    });
}

#[test]
fn a_slot_is_not_created_while_commits_wait_for_it() {
    on_every_server(|program| {
        let world = World::with_mode("synchronous", program, USERS, USERS_TABLE);
        world.demand(FOLLOWER);
        let refused = || world.refused("cannot create the slot bloomgate");
        world.while_waiting(&["INSERT INTO users VALUES (1, 1)"], refused, || world.demand(""));
    });
}

#[test]
fn truncations_and_large_transactions_hold_every_key() {
    followed(&["synchronous"], USERS, USERS_TABLE, |world, _, client, session| {
        session.run("INSERT INTO users VALUES (100000, 1)");
        cache(client, session, 100_000);
        world.demand_ghost(WITH_GHOST);
        let held = |by: &'static str| {
            move |client: &mut Connection| {
                soon(|| client.run("HEXISTS {users}:feed:open *") == integer(1) && open_keys(client) == 1);
                assert_eq!(answer(client, 100_000), "wait", "{by}");
            }
        };
        let large = "INSERT INTO users SELECT id, 1 FROM generate_series(1, 25000) id";
        world.while_waiting(
            &[large],
            || held("a large transaction")(&mut world.server.connect()),
            || world.demand(FOLLOWER),
        );
        for id in [1, 12_500, 25_000] {
            assert_ne!(answer(client, id), "absent");
        }
        soon(|| open_keys(client) == 0);
        cache(client, session, 7);
        world.demand_ghost(WITH_GHOST);
        let truncate =
            "BEGIN; INSERT INTO users VALUES (30000, 1); TRUNCATE users; INSERT INTO users VALUES (30001, 1); COMMIT";
        let check = || {
            soon(|| open_keys(client) == 2);
            assert_eq!((answer(client, 7).as_str(), answer(client, 30_001).as_str()), ("wait", "wait"));
        };
        world.while_waiting(&[truncate], check, || world.demand(FOLLOWER));
        soon(|| open_keys(client) == 0);
        world.wait_for_heartbeat();
        assert_eq!(client.run("GET {users}:7"), nil(2));
        // The filter is filled again, because TRUNCATE changes the definition of the table.
        soon(|| [7, 30_000, 30_001].map(|id| answer(client, id)) == ["absent", "absent", "load"]);
        session.run("DELETE FROM users");
        soon(|| answer(client, 30_001) == "absent");
    });
}

#[test]
fn a_truncation_ends_the_leases_that_were_granted_without_a_filter() {
    followed(&["synchronous"], USERS, USERS_TABLE, |world, _, client, session| {
        session.run("INSERT INTO users VALUES (1, 1)");
        // The filter is filled again, which waits for a running transaction.
        let mut running = world.session();
        running.run("BEGIN; SELECT pg_current_xact_id()");
        client.run("DEL {users}");
        session.run("INSERT INTO users VALUES (2, 1)");
        soon(|| client.run("EXISTS {users}:feed:filling") == integer(1) && open_keys(client) == 0);
        let parts = ask(client, 1);
        assert_eq!(parts[0], "load");
        session.run("TRUNCATE users");
        soon(|| open_keys(client) == 0);
        assert_eq!(
            client.call(&["BF.FILL", "{users}", "1", "{users}:1", &parts[1], "VALUE", "1", "EX", "600"]),
            nil(2)
        );
        running.run("COMMIT");
        world.wait_for_heartbeat();
        soon(|| answer(client, 1) == "absent");
    });
}

#[test]
fn commits_return_while_a_filter_is_filled() {
    followed(&["synchronous"], USERS, USERS_TABLE, |world, _, client, session| {
        session.run("INSERT INTO users SELECT id, 1 FROM generate_series(1, 300000) id");
        client.run("DEL {users}");
        let (mut id, mut during) = (400_000, 0);
        while during == 0 || client.run("EXISTS {users}") == integer(0) {
            if client.run("EXISTS {users}") == integer(1) {
                // So far, no COMMIT occurred during a fill.
                client.run("DEL {users}");
            }
            id += 1;
            let text = format!("INSERT INTO users VALUES ({id}, 1); DELETE FROM users WHERE id = {id} - 400000");
            let before = client.run("EXISTS {users}:feed:filling");
            session.run(&text);
            assert_ne!(answer(client, id), "absent");
            during += i32::from(before == integer(1) && client.run("EXISTS {users}:feed:filling") == integer(1));
        }
        world.wait_for_heartbeat();
        for id in (400_001..=id).chain([id - 400_000 + 1, 150_000, 300_000]) {
            assert_eq!(client.call(&["BF.EXISTS", "{users}", &id.to_string()]), integer(1), "{id}");
        }
        client.run("DEL {users}");
        session.run("TRUNCATE users; INSERT INTO users VALUES (1, 1)");
        world.wait_for_heartbeat();
        soon(|| answer(client, 2) == "absent");
        assert!(has(client, 1));
    });
}

#[test]
fn a_commit_that_the_server_refuses_waits_and_logs_the_reason() {
    followed(&MODES, USERS, USERS_TABLE, |world, follower, client, _| {
        client.run("CONFIG SET maxmemory 1");
        let text = "INSERT INTO users VALUES (1, 1)";
        let is_logged = || follower.says("OOM command not allowed");
        let free = || assert_eq!(world.server.connect().run("CONFIG SET maxmemory 0").text(), "OK");
        if world.mode == "synchronous" {
            world.while_waiting(&[text], is_logged, free);
            assert_ne!(answer(client, 1), "absent");
        } else {
            let mut session = world.session();
            session.run(text);
            let end: String = session.one("SELECT pg_current_wal_insert_lsn()::text");
            is_logged();
            follower.says("trying again");
            let text = format!("SELECT confirmed_flush_lsn < '{end}' FROM pg_replication_slots");
            assert!(session.one::<bool>(&text), "it is not confirmed");
            free();
            soon(|| has(client, 1));
        }
    });
}

#[test]
fn a_signal_ends_a_fill() {
    on_every_server(|program| {
        let world = World::with_mode("synchronous", program, USERS, USERS_TABLE);
        world.session().run("INSERT INTO users SELECT id, 1 FROM generate_series(1, 500000) id");
        let mut follower = world.follow();
        follower.says("filling");
        follower.end();
        assert!(!follower.log().contains("has 500,000 rows"), "{}", follower.log());
        assert_eq!(world.server.connect().run("EXISTS {users} {users}:feed {users}:feed:open"), integer(0));
    });
}
