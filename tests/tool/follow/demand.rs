//! Whether COMMIT waits for the follower: standbys with its name, and writers whose COMMIT does not wait.

use super::synchronous::{FOLLOWER, answer};
use super::{USERS, USERS_TABLE, World, soon};
use crate::running::run;
use testing::{integer, on_every_server};

#[test]
fn another_standby_with_the_name_stops_the_heartbeat() {
    on_every_server(|program| {
        let (world, mut follower) = World::synchronous(program);
        let mut client = world.server.connect();
        // One that stands by has the name as well, and COMMIT does not wait for it.
        let second = world.follow();
        second.says("standing by");
        let other = world.database.connect_standby("Bloomgate");
        follower.says("no heartbeat: COMMIT may wait for another standby with the application_name bloomgate (pid ");
        soon(|| client.run("EXISTS {users}:feed") == integer(0));
        drop(other);
        world.wait_for_heartbeat();
        assert_eq!(follower.log().matches("no heartbeat").count(), 2, "{}", follower.log());
        world.session().batch_execute("INSERT INTO users VALUES (1, 1)").unwrap();
        assert_ne!(answer(&mut client, 1), "absent");
        drop(second);
        follower.end();
    });
}

#[test]
fn writers_that_do_not_wait_are_named() {
    on_every_server(|program| {
        let mut world = World::new(program, USERS, USERS_TABLE);
        world.mode = "synchronous";
        world.configure(USERS_TABLE);
        world
            .session()
            .batch_execute(
                "CREATE ROLE app; ALTER ROLE app SET synchronous_commit = off;
                 CREATE ROLE job; ALTER ROLE job IN DATABASE postgres SET synchronous_commit = local;
                 CREATE ROLE good; ALTER ROLE good SET synchronous_commit = remote_write;
                 ALTER ROLE guard SET synchronous_commit = local;
                 ALTER ROLE app IN DATABASE template1 SET synchronous_commit = off",
            )
            .unwrap();
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
            .batch_execute(
                "ALTER ROLE app RESET ALL; ALTER ROLE job IN DATABASE postgres RESET ALL; ALTER ROLE guard RESET ALL",
            )
            .unwrap();
        world.session().batch_execute("ALTER SYSTEM SET synchronous_commit = off").unwrap();
        world.demand("");
        named("the server");
        world.session().batch_execute("ALTER DATABASE postgres SET synchronous_commit = local").unwrap();
        named("the database postgres");
    });
}

#[test]
fn wrong_words_of_a_filter_end_the_follower_though_its_filter_exists() {
    on_every_server(|program| {
        let (world, mut follower) = World::synchronous(program);
        follower.end();
        world.configure(&USERS_TABLE.replace("HASH siphash", "HASH sipphash"));
        run([std::ffi::OsStr::new("follow"), world.path().as_os_str()])
            .refused("the `create` of public.users is wrong: bad hash");
    });
}
