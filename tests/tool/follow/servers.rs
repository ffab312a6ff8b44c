//! Several tables in synchronous mode, on one server, and in a cluster with their filters on different nodes.

use std::ffi::OsStr;
use std::fs;

use testing::database::Database;
use testing::nodes::slot;
use testing::{Reply, Server, Stop, follow, integer, on_every_server};

use crate::follow::synchronous::{FOLLOWER, WITH_GHOST, open_keys};
use crate::follow::{Sql, USERS, USERS_TABLE, World, has, in_both_modes, permissions, permissions_for, soon};
use crate::running::{run, send, three_nodes};
use crate::sentinels::{Sentinels, ask};

const SCHEMA: &str = "CREATE TABLE users (id bigint PRIMARY KEY, version int NOT NULL);
    CREATE TABLE members (team int, name int, PRIMARY KEY (team, name));
    CREATE PUBLICATION bloomgate FOR TABLE users, members";
pub const MEMBERS_TABLE: &str = r#"
[[table]]
name = "members"
filter = "{members}"
create = "0.000001 1000 HASH siphash"
item = "{team}/{name}"
cache-key = "{members}:{team}/{name}"
max-lag = "2s"
"#;

/// Follows both tables. `call` sends a command to the node of a key.
fn follow_both(world: &World, mut call: impl FnMut(&str, &str) -> Reply) {
    let mut follower = world.follow();
    follower.says("no heartbeat: synchronous_standby_names = ''");
    world.demand(FOLLOWER);
    let mut fetch = |filter: &str, item: &str| {
        let words = format!("BF.FETCH {filter} {item} {filter}:{item} WHILE {filter}:feed UNLESS {filter}:feed:open");
        call(filter, &words).elements()[0].text()
    };
    soon(|| fetch("{users}", "1") == "absent" && fetch("{members}", "1/1") == "absent");
    let mut session = world.session();
    let insert = "BEGIN; INSERT INTO users VALUES (1, 1); INSERT INTO members VALUES (1, 1), (2, 2); COMMIT";
    session.run(insert);
    assert!(fetch("{users}", "1") != "absent" && fetch("{members}", "1/1") != "absent");

    world.demand_ghost(WITH_GHOST);
    let announced = || {
        soon(|| fetch("{users}", "1") == "wait" && fetch("{members}", "1/1") == "wait");
        soon(|| fetch("{users}", "2") == "absent");
    };
    let change = "BEGIN; UPDATE users SET version = 2; DELETE FROM members WHERE team = 1; COMMIT";
    world.while_waiting(&[change], announced, || world.demand(FOLLOWER));
    soon(|| fetch("{members}", "1/1") == "absent");
    assert_ne!(fetch("{users}", "1"), "absent");

    // One of the filters is deleted.
    call("{members}", "DEL {members}");
    session.run("BEGIN; INSERT INTO users VALUES (3, 1); INSERT INTO members VALUES (3, 3); COMMIT");
    for (filter, item) in [("{users}", "3"), ("{members}", "3/3")] {
        let words = format!("BF.FETCH {filter} {item} {filter}:{item} WHILE {filter}:feed UNLESS {filter}:feed:open");
        assert_ne!(call(filter, &words).elements()[0].text(), "absent");
        soon(|| call(filter, &format!("BF.EXISTS {filter} {item}")) == integer(1));
        soon(|| call(filter, &format!("EXISTS {filter}:feed {filter}:feed:open")) == integer(1));
    }
    assert_eq!(call("{members}", "BF.EXISTS {members} 2/2"), integer(1));

    // The server has lost the epoch, so another follower could have begun one.
    let epoch = call("{members}", "GET {members}:feed:epoch");
    call("{members}", "DEL {members}:feed:epoch");
    session.run("INSERT INTO members VALUES (4, 4)");
    follower.says("the server has lost its data; trying again");
    soon(|| call("{members}", "BF.EXISTS {members} 4/4") == integer(1));
    assert_ne!(call("{members}", "GET {members}:feed:epoch"), epoch, "no epoch comes again");
    follower.end();
}

#[test]
fn a_commit_that_writes_two_tables_waits_for_both_filters() {
    on_every_server(|program| {
        let world = World::with_mode("synchronous", program, SCHEMA, &format!("{USERS_TABLE}{MEMBERS_TABLE}"));
        let mut client = world.server.connect();
        follow_both(&world, |_, line| client.run(line));
    });
}

#[test]
fn the_filters_of_two_tables_are_on_different_nodes_of_a_cluster() {
    on_every_server(|program| {
        let nodes = three_nodes(program);
        for node in &nodes {
            node.connect().run(&format!(
                "ACL SETUSER follower on >secret {} {}",
                permissions(),
                permissions_for("cluster")
            ));
        }
        let mut clients = nodes.each_ref().map(Server::connect);
        let node_of = |key: &str| [5461, 10_923].iter().filter(|first| slot(key) >= **first).count();
        assert_ne!(node_of("{users}"), node_of("{members}"));
        let database = Database::logical();
        database.connect().unwrap().run(SCHEMA);
        let [server, _second, _third] = nodes;
        let world = World { mode: "synchronous", database, server, folder: tempfile::tempdir().unwrap() };
        world.configure(&format!("cluster = true\n{USERS_TABLE}{MEMBERS_TABLE}"));
        follow_both(&world, |key, line| clients[node_of(key)].run(line));
    });
}

/// The follower does not know the address of the new primary before the failover.
#[test]
fn the_follower_finds_the_primary_that_sentinels_name() {
    in_both_modes(|mode, program| {
        let mut world = World::with_mode(mode, program, USERS, USERS_TABLE);
        let user = format!("user follower on >secret ~{{* -@all {}", permissions());
        let replica = Server::with(program).line(&user).start();
        follow(&mut replica.connect(), &world.server);
        let sentinels = Sentinels::start(program, &world.server);
        sentinels.agree();
        let text = fs::read_to_string(world.path()).unwrap();
        let address = format!("redis://follower:secret@127.0.0.1:{}", world.server.port);
        fs::write(world.path(), text.replace(&address, &sentinels.url("follower:secret@"))).unwrap();
        let mut follower = world.following();
        let mut session = world.session();
        let mut insert = |server: &Server, id: u64| {
            session.run(&format!("INSERT INTO users VALUES ({id}, 1)"));
            let is_yes = |line: &str| ask(server, line) == Some(integer(1));
            soon(|| is_yes(&format!("BF.EXISTS {{users}} {id}")) && is_yes("EXISTS {users}:feed"));
        };
        insert(&replica, 1);

        world.server.stop(Stop::Kill);
        insert(&replica, 2);
        sentinels.name(&replica);
        run([OsStr::new("follow"), OsStr::new("--status"), world.path().as_os_str()]).success();

        // The primary is not lost: the Sentinels demote it.
        world.server.start_again();
        sentinels.agree();
        sentinels.fail_over();
        sentinels.name(&world.server);
        insert(&world.server, 3);
        follower.end();
    });
}

// `wait` and `waitaof`: changes that a failover or a restart of the server could lose are not confirmed to PostgreSQL.

#[test]
fn a_commit_waits_for_the_replicas() {
    on_every_server(|program| {
        let tables = format!("wait = 1\n{USERS_TABLE}");
        let mut world = World::with_mode("synchronous", program, USERS, &tables);
        let mut client = world.server.connect();
        client.run(&format!("ACL SETUSER follower {}", permissions_for("wait")));
        let first = world.follow();
        first.says("waiting for the server's replicas");
        let replica = Server::start(program);
        let mut replica_client = replica.connect();
        follow(&mut replica_client, &world.server);
        first.says("no heartbeat: synchronous_standby_names = ''");
        world.demand(FOLLOWER);
        world.wait_for_heartbeat();
        // Once this COMMIT returns, the follower has nothing else to wait for.
        world.session().run("INSERT INTO users VALUES (0, 1)");

        send("STOP", replica.process_id());
        let mut next = None;
        let announced = || {
            soon(|| open_keys(&mut client) == 1);
            // The next follower finds the position, but cannot know whether the replica has it.
            drop(first);
            next.insert(world.follow()).says("waiting for the server's replicas");
            world.wait_for_waiting_commits(1);
        };
        world.while_waiting(&["INSERT INTO users VALUES (1, 1)"], announced, || send("CONT", replica.process_id()));
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
        let has_waitaof = !client.run(&format!("ACL SETUSER follower {}", permissions_for("waitaof"))).is_error();
        let path = world.path();
        let words = ["follow", path.to_str().unwrap()];
        if !has_waitaof {
            run(words).refused("has no WAITAOF, which waitaof = true needs");
            return;
        }
        run(words).refused("waitaof = true needs an append-only file");
        client.run("CONFIG SET appendonly yes appendfsync everysec");
        let mut follower = world.following();
        world.session().run("INSERT INTO users VALUES (1, 1)");
        soon(|| has(&mut client, 1));
        assert!(client.info("cmdstat_waitaof").starts_with("calls="), "it waits for the file");
        follower.end();
    });
}
