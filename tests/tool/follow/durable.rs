//! `wait` and `waitaof`: nothing is confirmed to PostgreSQL that a failover or a restart of the server could lose.

use super::synchronous::{FOLLOWER, open_keys, pause};
use super::{USERS, USERS_TABLE, World, soon};
use crate::running::run;
use testing::{Server, Stop, follow, integer, on_every_server};

#[test]
fn a_commit_waits_for_the_replicas() {
    on_every_server(|program| {
        let tables = format!("wait = 1\n{USERS_TABLE}");
        let mut world = World::with_server("synchronous", Server::with(program), USERS, &tables);
        let mut client = world.server.connect();
        client.run("ACL SETUSER follower +wait");
        let first = world.follow();
        first.says("waiting for the server's replicas");
        let replica = Server::start(program);
        let mut replica_client = replica.connect();
        follow(&mut replica_client, &world.server);
        first.says("no heartbeat: synchronous_standby_names = ''");
        world.demand(FOLLOWER);
        world.wait_for_heartbeat();
        // Once this COMMIT returns, the follower has nothing else to wait for.
        world.session().batch_execute("INSERT INTO users VALUES (0, 1)").unwrap();

        pause(&replica, "-STOP");
        let mut next = None;
        let announced = || {
            soon(|| open_keys(&mut client) == 1);
            // The next follower finds the position, and does not know whether the replica has it.
            drop(first);
            next.insert(world.follow()).says("waiting for the server's replicas");
            world.wait_for_waiting_commits(1);
        };
        world.while_waiting(&["INSERT INTO users VALUES (1, 1)"], announced, || pause(&replica, "-CONT"));
        drop(next);
        world.server.stop(Stop::Kill);
        assert_eq!(replica_client.run("REPLICAOF NO ONE").text(), "OK");
        assert_eq!(replica_client.run("BF.EXISTS {users} 1"), integer(1));
    });
}

#[test]
fn the_append_only_file_is_required() {
    on_every_server(|program| {
        let tables = format!("waitaof = true\n{USERS_TABLE}");
        let world = World::new(program, USERS, &tables);
        let mut client = world.server.connect();
        let has_waitaof = !client.run("ACL SETUSER follower +waitaof").is_error();
        let path = world.path();
        let words = ["follow", path.to_str().unwrap()];
        if !has_waitaof {
            run(words).refused("has no WAITAOF, which waitaof = true needs");
            return;
        }
        run(words).refused("waitaof = true needs an append-only file");
        client.run("CONFIG SET appendonly yes");
        let mut follower = world.following();
        world.session().batch_execute("INSERT INTO users VALUES (1, 1)").unwrap();
        soon(|| client.run("BF.EXISTS {users} 1") == integer(1));
        assert!(client.info("cmdstat_waitaof").starts_with("calls="), "it waits for the file");
        follower.end();
    });
}
