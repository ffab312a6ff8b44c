//! Slots that PostgreSQL can no longer read, first starts that fail, and a locked catalogue.

use std::process::Command;
use std::thread;

use postgres::Client;

use testing::{Connection, Stop, nil, on_every_server};

use crate::follow::synchronous::{FOLLOWER, answer, cache};
use crate::follow::{Cleanup, MODES, One, Sql, USERS, USERS_TABLE, World, beats, followed, has, in_both_modes, soon};

const SLOTS: &str = "SELECT count(*) FROM pg_replication_slots";

fn refused(world: &World, text: &str) {
    world.refused(text);
    assert_eq!(world.session().one::<i64>(SLOTS), 0, "{}: {text}", world.mode);
}

#[test]
fn a_slot_is_recreated_after_a_time_without_the_publication() {
    followed(&MODES, USERS, USERS_TABLE, |world, follower, client, session| {
        session.run("SET synchronous_commit = local; DROP PUBLICATION bloomgate");
        session.run("INSERT INTO users VALUES (1, 1)");
        session.run("CREATE PUBLICATION bloomgate FOR TABLE users");
        // From version 18 on, PostgreSQL skips the row instead. The publication is another one, so the filter is filled again.
        let version: String = session.one("SHOW server_version_num");
        let is_readable = version.parse::<u32>().unwrap() >= 180_000;
        if world.mode == "synchronous" && !is_readable {
            follower.says("remove the name from synchronous_standby_names");
            world.demand("");
            soon(|| follower.log().matches("no heartbeat: synchronous_standby_names = ''").count() == 2);
            world.demand(FOLLOWER);
        }
        soon(|| answer(client, 2) == "absent" && has(client, 1));
        let is_logged = follower.log().contains("a time without the publication");
        assert_ne!(is_logged, is_readable);
        session.run("INSERT INTO users VALUES (2, 1)");
        soon(|| has(client, 2));
    });
}

#[test]
fn a_first_start_that_fails_leaves_no_slot() {
    in_both_modes(|mode, program| {
        let world = World::with_mode(mode, program, USERS, USERS_TABLE);
        world.session().run("CREATE ROLE gate LOGIN REPLICATION");
        world.edit("//guard@", "//gate@");
        refused(&world, "cannot read public.users: db error: ERROR: permission denied for table users");
        world.session().run("GRANT SELECT ON users TO gate");
        if mode == "eventual" {
            let mut client = world.server.connect();
            client.run("ACL SETUSER follower -bf.reserve");
            refused(&world, "cannot create the filter of public.users");
            client.run("ACL SETUSER follower +bf.reserve");
        }
        let mut follower = world.following();
        follower.end();
    });
}

#[test]
fn limits_of_applications_do_not_end_a_fill() {
    in_both_modes(|mode, program| {
        let world = World::with_mode(mode, program, USERS, USERS_TABLE);
        world.session().run("INSERT INTO users SELECT id, 1 FROM generate_series(1, 500000) id");
        world.session().run("ALTER DATABASE postgres SET statement_timeout = '100ms'");
        let mut follower = world.following();
        assert!(follower.log().contains("has 500,000 rows"), "{mode}: {}", follower.log());
        follower.end();
    });
}

#[test]
fn a_vacuum_that_locks_everybody_out_is_named_and_can_be_ended() {
    followed(&["synchronous"], USERS, USERS_TABLE, |world, follower, _, _| {
        let (mut client, mut session, mut other) = (world.server.connect(), world.session(), world.session());
        let pid: i32 = session.one("SELECT pg_backend_pid()");
        thread::scope(|scope| {
            let cleanup = Cleanup(&world.database);
            let vacuum = scope.spawn(move || session.run("VACUUM FULL pg_class"));
            soon(|| vacuum.is_finished() || follower.log().contains("PostgreSQL's catalogue is locked"));
            if !vacuum.is_finished() {
                // As documented.
                let status = Command::new("kill").args(["-INT", &pid.to_string()]).status();
                assert!(status.unwrap().success());
            }
            soon(|| vacuum.is_finished());
            std::mem::forget(cleanup);
        });
        other.run("INSERT INTO users VALUES (1, 1)");
        assert_ne!(answer(&mut client, 1), "absent");
        soon(|| answer(&mut client, 2) == "absent");
        follower.says("PostgreSQL's catalogue is locked");
    });
}

// PostgreSQL or the server is restarted while a follower runs or stands by.

#[test]
fn a_follower_that_stands_by_outlives_restarts() {
    on_every_server(|program| {
        let mut world = World::new(program, USERS, USERS_TABLE);
        let first = world.following();
        let mut second = world.follow();
        second.says("standing by");
        // It keeps the slot, and does not notice the restart.
        first.signal("STOP");
        world.server.restart(Stop::Kill);
        second.says("while standing by: ");
        world.database.restart("immediate");
        drop(first);
        world.session().run("INSERT INTO users VALUES (1, 1)");
        let mut client = world.server.connect();
        soon(|| has(&mut client, 1) && beats(&mut client));
        second.end();
    });
}

// PostgreSQL loses transactions that the follower has seen: its data directory is restored from an older copy, or a crash loses unsynced
// data.

const PUT_BACK: &str = "an older data directory was put back";

/// A session whose COMMITs do not wait for the follower.
fn session(world: &World) -> Client {
    let mut session = world.session();
    session.run("SET synchronous_commit = local");
    session
}

fn position(client: &mut Connection) -> String {
    client.run("GET {users}:feed:position").text().rsplit(' ').next().unwrap().to_owned()
}

/// Whether the log ends after a position.
fn ends_after(session: &mut Client, position: &str) -> bool {
    let text = format!("SELECT pg_current_wal_flush_lsn() > '{position}'::pg_lsn");
    session.one(&text)
}

/// Writes to the log until it ends after a position.
fn write_past(session: &mut Client, position: &str) {
    while !ends_after(session, position) {
        session.run("SELECT pg_logical_emit_message(true, 'test', repeat('x', 10000))");
    }
}

#[test]
fn an_older_data_directory_is_noticed() {
    followed(&MODES, USERS, USERS_TABLE, |world, follower, client, _| {
        world.session().run("INSERT INTO users VALUES (1, 1), (2, 1)");
        soon(|| has(client, 2));
        world.database.save();
        let mut writer = world.session();
        writer.run("UPDATE users SET version = 2 WHERE id = 1; DELETE FROM users WHERE id = 2");
        soon(|| answer(client, 2) == "absent");
        cache(client, &mut writer, 1);
        drop(writer);
        world.database.put_back();
        world.session().run("INSERT INTO users VALUES (3, 1)");
        soon(|| has(client, 2) && has(client, 3) && client.run("GET {users}:1") == nil(2));
        soon(|| answer(client, 4) == "absent");
        assert!(follower.log().contains(PUT_BACK));
    });
}

#[test]
fn an_older_data_directory_is_noticed_after_its_log_has_grown() {
    followed(&MODES, USERS, USERS_TABLE, |world, follower, client, _| {
        world.session().run("INSERT INTO users VALUES (1, 1), (2, 1)");
        soon(|| has(client, 2));
        world.database.save();
        world.session().run("DELETE FROM users WHERE id = 2");
        soon(|| answer(client, 2) == "absent");
        follower.end();
        world.database.put_back();
        let (mut writer, stored) = (session(world), position(client));
        writer.run("INSERT INTO users VALUES (3, 1)");
        write_past(&mut writer, &stored);
        client.run("DEL {users}:feed");
        *follower = world.follow();
        follower.says(PUT_BACK);
        soon(|| answer(client, 4) == "absent");
        assert!(has(client, 2) && has(client, 3));
    });
}

#[test]
fn no_transaction_after_the_last_one_is_skipped() {
    followed(&MODES, USERS, USERS_TABLE, |world, follower, client, _| {
        world.session().run("INSERT INTO users VALUES (1, 1)");
        soon(|| has(client, 1));
        world.database.save();
        // The position advances without a transaction of the table.
        let mut writer = session(world);
        writer.run("SELECT pg_logical_emit_message(true, 'test', repeat('x', 100000))");
        let written: String = writer.one("SELECT pg_current_wal_flush_lsn()::text");
        let at_least = format!("SELECT $1::text::pg_lsn >= '{written}'::pg_lsn");
        soon(|| writer.query_one(&at_least, &[&position(client)]).unwrap().get(0));
        follower.end();
        drop(writer);
        world.database.put_back();
        let (mut writer, stored) = (session(world), position(client));
        writer.run("INSERT INTO users VALUES (2, 1)");
        assert!(!ends_after(&mut writer, &stored), "the row is after the position");
        write_past(&mut writer, &stored);
        client.run("DEL {users}:feed");
        *follower = world.follow();
        soon(|| answer(client, 4) == "absent");
        assert!(has(client, 2));
        assert!(follower.log().contains("continues at"));
    });
}

#[test]
fn a_fill_is_of_rows_that_a_crash_keeps() {
    in_both_modes(|mode, program| {
        let (mut world, mut follower) = World::started(mode, program, USERS, USERS_TABLE);
        let mut client = world.server.connect();
        world.session().run("INSERT INTO users SELECT id, 1 FROM generate_series(1, 15) id");
        soon(|| has(&mut client, 15));
        follower.end();
        client.run("DEL {users}");
        let mut writer = world.session();
        writer.run("ALTER SYSTEM SET wal_writer_delay = '10s'");
        writer.run("SELECT pg_reload_conf()");
        writer.run("SET synchronous_commit = off; DELETE FROM users WHERE id = 1");
        let follower = world.follow();
        follower.says("{users} has 14 rows");
        let stored = position(&mut client);
        let is_kept = format!("SELECT '{stored}'::pg_lsn <= pg_current_wal_flush_lsn()");
        assert!(writer.one::<bool>(&is_kept), "{mode}: {stored}");
        drop(writer);
        world.database.restart("immediate");
        let count = "SELECT count(*) FROM users WHERE id = 1";
        assert_eq!(world.session().one::<i64>(count), 0, "{mode}");
        world.session().run("INSERT INTO users VALUES (16, 1)");
        soon(|| has(&mut client, 16));
    });
}

// Tests whether COMMIT waits for the follower: standbys with its name, and writers whose COMMIT does not wait.

#[test]
fn another_standby_with_the_name_stops_the_heartbeat() {
    followed(&["synchronous"], USERS, USERS_TABLE, |world, follower, client, _| {
        // A standby follower has the name as well, but COMMIT does not wait for it.
        let second = world.follow();
        second.says("standing by");
        let other = world.database.connect_standby("Bloomgate");
        follower.says("no heartbeat: COMMIT may wait for another standby with the application_name bloomgate (pid ");
        soon(|| !beats(client));
        drop(other);
        world.wait_for_heartbeat();
        assert_eq!(follower.log().matches("no heartbeat").count(), 2);
        world.session().run("INSERT INTO users VALUES (1, 1)");
        assert_ne!(answer(client, 1), "absent");
        drop(second);
    });
}

#[test]
fn writers_that_do_not_wait_are_named() {
    on_every_server(|program| {
        let mut world = World::new(program, USERS, USERS_TABLE);
        world.mode = "synchronous";
        world.configure(USERS_TABLE);
        world.session().run(
            "CREATE ROLE app; ALTER ROLE app SET synchronous_commit = off;
                 CREATE ROLE job; ALTER ROLE job IN DATABASE postgres SET synchronous_commit = local;
                 CREATE ROLE good; ALTER ROLE good SET synchronous_commit = remote_write;
                 ALTER ROLE guard SET synchronous_commit = local;
                 ALTER ROLE app IN DATABASE template1 SET synchronous_commit = off",
        );
        let named = |names: &str| {
            let mut follower = world.follow();
            world.demand(FOLLOWER);
            world.wait_for_heartbeat();
            follower.says(&format!("COMMIT does not wait where synchronous_commit is off or local: {names}\n"));
            follower.end();
            world.demand("");
        };
        let first = world.follow();
        first.says("no heartbeat: synchronous_standby_names = ''");
        drop(first);
        named("the role app, the role job in the database postgres");
        world
            .session()
            .run("ALTER ROLE app RESET ALL; ALTER ROLE job IN DATABASE postgres RESET ALL; ALTER ROLE guard RESET ALL");
        world.session().run("ALTER SYSTEM SET synchronous_commit = off");
        world.demand("");
        named("the server");
        world.session().run("ALTER DATABASE postgres SET synchronous_commit = local");
        named("the database postgres");
    });
}

#[test]
fn invalid_filter_options_end_the_follower_even_if_its_filter_exists() {
    followed(&["synchronous"], USERS, USERS_TABLE, |world, follower, _, _| {
        follower.end();
        world.configure(&USERS_TABLE.replace("HASH siphash", "HASH sipphash"));
        world.refused("the `create` of public.users is wrong: bad hash");
    });
}
