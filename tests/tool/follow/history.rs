//! PostgreSQL loses what the follower has seen: its data directory is put back to an older one, or a crash loses what no disk had.

use postgres::Client;

use super::synchronous::{answer, cache};
use super::{MODES, USERS, USERS_TABLE, World, soon};
use testing::{Connection, integer, nil, on_every_server};

const PUT_BACK: &str = "an older data directory was put back";

/// A session whose COMMITs do not wait for the follower.
fn session(world: &World) -> Client {
    let mut session = world.session();
    session.batch_execute("SET synchronous_commit = local").unwrap();
    session
}

fn position(client: &mut Connection) -> String {
    client.run("GET {users}:feed:position").text().rsplit(' ').next().unwrap().to_owned()
}

/// Whether the log ends after a position.
fn ends_after(session: &mut Client, position: &str) -> bool {
    let text = format!("SELECT pg_current_wal_flush_lsn() > '{position}'::pg_lsn");
    session.query_one(&text, &[]).unwrap().get(0)
}

/// Writes to the log until it ends after a position.
fn write_past(session: &mut Client, position: &str) {
    while !ends_after(session, position) {
        session.batch_execute("SELECT pg_logical_emit_message(true, 'test', repeat('x', 10000))").unwrap();
    }
}

fn has(client: &mut Connection, id: u64) -> bool {
    client.run(&format!("BF.EXISTS {{users}} {id}")) == integer(1)
}

#[test]
fn an_older_data_directory_is_noticed() {
    on_every_server(|program| {
        for mode in MODES {
            let (mut world, mut follower) = World::started(mode, program, USERS, USERS_TABLE);
            let mut client = world.server.connect();
            world.session().batch_execute("INSERT INTO users VALUES (1, 1), (2, 1)").unwrap();
            soon(|| has(&mut client, 2));
            world.database.save();
            let mut writer = world.session();
            writer.batch_execute("UPDATE users SET version = 2 WHERE id = 1; DELETE FROM users WHERE id = 2").unwrap();
            soon(|| answer(&mut client, 2) == "absent");
            cache(&mut client, &mut writer, 1);
            drop(writer);
            world.database.put_back();
            world.session().batch_execute("INSERT INTO users VALUES (3, 1)").unwrap();
            soon(|| has(&mut client, 2) && has(&mut client, 3) && client.run("GET {users}:1") == nil(2));
            soon(|| answer(&mut client, 4) == "absent");
            assert!(follower.log().contains(PUT_BACK), "{mode}: {}", follower.log());
            follower.end();
        }
    });
}

#[test]
fn an_older_data_directory_is_noticed_after_its_log_has_grown() {
    on_every_server(|program| {
        for mode in MODES {
            let (mut world, mut follower) = World::started(mode, program, USERS, USERS_TABLE);
            let mut client = world.server.connect();
            world.session().batch_execute("INSERT INTO users VALUES (1, 1), (2, 1)").unwrap();
            soon(|| has(&mut client, 2));
            world.database.save();
            world.session().batch_execute("DELETE FROM users WHERE id = 2").unwrap();
            soon(|| answer(&mut client, 2) == "absent");
            follower.end();
            world.database.put_back();
            let (mut writer, stored) = (session(&world), position(&mut client));
            writer.batch_execute("INSERT INTO users VALUES (3, 1)").unwrap();
            write_past(&mut writer, &stored);
            client.run("DEL {users}:feed");
            let mut follower = world.follow();
            follower.says(PUT_BACK);
            soon(|| answer(&mut client, 4) == "absent");
            assert!(has(&mut client, 2) && has(&mut client, 3), "{mode}: {}", follower.log());
            follower.end();
        }
    });
}

#[test]
fn nothing_is_skipped_after_the_last_transaction() {
    on_every_server(|program| {
        for mode in MODES {
            let (mut world, mut follower) = World::started(mode, program, USERS, USERS_TABLE);
            let mut client = world.server.connect();
            world.session().batch_execute("INSERT INTO users VALUES (1, 1)").unwrap();
            soon(|| has(&mut client, 1));
            world.database.save();
            // The position goes on without a transaction of the table.
            let mut writer = session(&world);
            writer.batch_execute("SELECT pg_logical_emit_message(true, 'test', repeat('x', 100000))").unwrap();
            let written: String = writer.query_one("SELECT pg_current_wal_flush_lsn()::text", &[]).unwrap().get(0);
            let at_least = format!("SELECT $1::text::pg_lsn >= '{written}'::pg_lsn");
            soon(|| writer.query_one(&at_least, &[&position(&mut client)]).unwrap().get(0));
            follower.end();
            drop(writer);
            world.database.put_back();
            let (mut writer, stored) = (session(&world), position(&mut client));
            writer.batch_execute("INSERT INTO users VALUES (2, 1)").unwrap();
            assert!(!ends_after(&mut writer, &stored), "{mode}: the row is after the position");
            write_past(&mut writer, &stored);
            client.run("DEL {users}:feed");
            let mut follower = world.follow();
            soon(|| answer(&mut client, 4) == "absent");
            assert!(has(&mut client, 2), "{mode}: {}", follower.log());
            assert!(follower.log().contains("continues at"), "{mode}: {}", follower.log());
            follower.end();
        }
    });
}

#[test]
fn a_fill_is_of_rows_that_a_crash_keeps() {
    on_every_server(|program| {
        for mode in MODES {
            let (mut world, mut follower) = World::started(mode, program, USERS, USERS_TABLE);
            let mut client = world.server.connect();
            world.session().batch_execute("INSERT INTO users SELECT id, 1 FROM generate_series(1, 15) id").unwrap();
            soon(|| has(&mut client, 15));
            follower.end();
            client.run("DEL {users}");
            let mut writer = world.session();
            writer.batch_execute("ALTER SYSTEM SET wal_writer_delay = '10s'").unwrap();
            writer.batch_execute("SELECT pg_reload_conf()").unwrap();
            writer.batch_execute("SET synchronous_commit = off; DELETE FROM users WHERE id = 1").unwrap();
            let follower = world.follow();
            follower.says("{users} has 14 rows");
            let stored = position(&mut client);
            let is_kept = format!("SELECT '{stored}'::pg_lsn <= pg_current_wal_flush_lsn()");
            assert!(writer.query_one(&is_kept, &[]).unwrap().get::<_, bool>(0), "{mode}: {stored}");
            drop(writer);
            world.database.restart("immediate");
            let count = "SELECT count(*) FROM users WHERE id = 1";
            assert_eq!(world.session().query_one(count, &[]).unwrap().get::<_, i64>(0), 0, "{mode}");
            world.session().batch_execute("INSERT INTO users VALUES (16, 1)").unwrap();
            soon(|| has(&mut client, 16));
        }
    });
}
