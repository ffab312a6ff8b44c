//! Slots that PostgreSQL cannot read any more, first starts that fail, and a catalogue that is locked.

use std::ffi::OsStr;
use std::process::Command;
use std::thread;

use super::synchronous::{Cleanup, FOLLOWER, answer};
use super::{MODES, USERS, USERS_TABLE, World, soon};
use crate::running::run;
use testing::{integer, on_every_server};

const SLOTS: &str = "SELECT count(*) FROM pg_replication_slots";

fn refused(world: &World, text: &str) {
    run([OsStr::new("follow"), world.path().as_os_str()]).refused(text);
    assert_eq!(world.session().query_one(SLOTS, &[]).unwrap().get::<_, i64>(0), 0, "{}: {text}", world.mode);
}

#[test]
fn a_slot_is_made_again_after_a_time_without_the_publication() {
    on_every_server(|program| {
        for mode in MODES {
            let (world, mut follower) = World::started(mode, program, USERS, USERS_TABLE);
            let (mut client, mut session) = (world.server.connect(), world.session());
            session.batch_execute("SET synchronous_commit = local; DROP PUBLICATION bloomgate").unwrap();
            session.batch_execute("INSERT INTO users VALUES (1, 1)").unwrap();
            session.batch_execute("CREATE PUBLICATION bloomgate FOR TABLE users").unwrap();
            // From version 18 on, PostgreSQL skips the row instead. The publication is another one, so the filter is filled again.
            let version: String = session.query_one("SHOW server_version_num", &[]).unwrap().get(0);
            let is_readable = version.parse::<u32>().unwrap() >= 180_000;
            if mode == "synchronous" && !is_readable {
                follower.says("remove the name from synchronous_standby_names");
                world.demand("");
                soon(|| follower.log().matches("no heartbeat: synchronous_standby_names = ''").count() == 2);
                world.demand(FOLLOWER);
            }
            soon(|| answer(&mut client, 2) == "absent" && client.run("BF.EXISTS {users} 1") == integer(1));
            let is_told = follower.log().contains("a time without the publication");
            assert_ne!(is_told, is_readable, "{mode}: {}", follower.log());
            session.batch_execute("INSERT INTO users VALUES (2, 1)").unwrap();
            soon(|| client.run("BF.EXISTS {users} 2") == integer(1));
            follower.end();
        }
    });
}

#[test]
fn a_first_start_that_fails_leaves_no_slot() {
    on_every_server(|program| {
        for mode in MODES {
            let world = World::with_mode(mode, program, USERS, USERS_TABLE);
            world.session().batch_execute("CREATE ROLE gate LOGIN REPLICATION").unwrap();
            let text = std::fs::read_to_string(world.path()).unwrap();
            std::fs::write(world.path(), text.replace("//guard@", "//gate@")).unwrap();
            refused(&world, "cannot read public.users: db error: ERROR: permission denied for table users");
            world.session().batch_execute("GRANT SELECT ON users TO gate").unwrap();
            if mode == "eventual" {
                let mut client = world.server.connect();
                client.run("ACL SETUSER follower -bf.reserve");
                refused(&world, "cannot create the filter of public.users");
                client.run("ACL SETUSER follower +bf.reserve");
            }
            let mut follower = world.follow_with_heartbeat();
            follower.end();
        }
    });
}

#[test]
fn limits_of_applications_do_not_end_a_fill() {
    on_every_server(|program| {
        for mode in MODES {
            let world = World::with_mode(mode, program, USERS, USERS_TABLE);
            world.session().batch_execute("INSERT INTO users SELECT id, 1 FROM generate_series(1, 500000) id").unwrap();
            world.session().batch_execute("ALTER DATABASE postgres SET statement_timeout = '100ms'").unwrap();
            let mut follower = world.follow_with_heartbeat();
            assert!(follower.log().contains("has 500,000 rows"), "{mode}: {}", follower.log());
            follower.end();
        }
    });
}

#[test]
fn a_vacuum_that_locks_everybody_out_is_named_and_can_be_ended() {
    on_every_server(|program| {
        let (world, mut follower) = World::synchronous(program);
        let (mut client, mut session, mut other) = (world.server.connect(), world.session(), world.session());
        let pid: i32 = session.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
        thread::scope(|scope| {
            let cleanup = Cleanup(&world);
            let vacuum = scope.spawn(move || session.batch_execute("VACUUM FULL pg_class").unwrap());
            soon(|| vacuum.is_finished() || follower.log().contains("PostgreSQL's catalogue is locked"));
            if !vacuum.is_finished() {
                // As the page says.
                let status = Command::new("kill").args(["-INT", &pid.to_string()]).status();
                assert!(status.unwrap().success());
            }
            soon(|| vacuum.is_finished());
            std::mem::forget(cleanup);
        });
        other.batch_execute("INSERT INTO users VALUES (1, 1)").unwrap();
        assert_ne!(answer(&mut client, 1), "absent");
        soon(|| answer(&mut client, 2) == "absent");
        follower.says("PostgreSQL's catalogue is locked");
        follower.end();
    });
}
