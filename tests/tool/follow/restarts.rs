//! PostgreSQL or the server is restarted while a follower runs or stands by.

use super::synchronous::{answer, open_keys};
use super::{MODES, USERS, USERS_TABLE, World, soon};
use testing::{Stop, integer, on_every_server};

#[test]
fn the_follower_continues_after_postgresql_was_restarted() {
    on_every_server(|program| {
        for mode in MODES {
            let (mut world, mut follower) = World::started(mode, program, USERS, USERS_TABLE);
            let mut client = world.server.connect();
            // Until the first change, a restart after a fill means another one.
            world.session().batch_execute("INSERT INTO users VALUES (0, 1)").unwrap();
            soon(|| client.run("BF.EXISTS {users} 0") == integer(1));
            for (id, stop) in [(1, "fast"), (2, "immediate")] {
                world.session().batch_execute(&format!("INSERT INTO users VALUES ({id}, 1)")).unwrap();
                world.database.restart(stop);
                let next = id + 100;
                world.session().batch_execute(&format!("INSERT INTO users VALUES ({next}, 1)")).unwrap();
                if mode == "synchronous" {
                    assert_ne!(answer(&mut client, next), "absent", "{stop}");
                }
                soon(|| {
                    client.run(&format!("BF.EXISTS {{users}} {next}")) == integer(1) && open_keys(&mut client) == 0
                });
                soon(|| answer(&mut client, next + 100) == "absent");
                assert_ne!(answer(&mut client, id), "absent", "{mode}, {stop}");
            }
            assert!(follower.log().matches("trying again").count() >= 2, "{}", follower.log());
            assert_eq!(follower.log().matches("filling").count(), 1, "{}", follower.log());
            follower.end();
        }
    });
}

#[test]
fn a_follower_that_stands_by_outlives_restarts() {
    on_every_server(|program| {
        let mut world = World::new(program, USERS, USERS_TABLE);
        let first = world.following();
        let mut second = world.follow();
        second.says("standing by");
        // It keeps the slot, and does not notice the restart.
        first.signal("-STOP");
        world.server.restart(Stop::Kill);
        second.says("while standing by: ");
        world.database.restart("immediate");
        drop(first);
        world.session().batch_execute("INSERT INTO users VALUES (1, 1)").unwrap();
        let mut client = world.server.connect();
        soon(|| client.run("BF.EXISTS {users} 1") == integer(1) && client.run("EXISTS {users}:feed") == integer(1));
        second.end();
    });
}
