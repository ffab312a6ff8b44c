//! Partitioned tables, followed by their name.

use super::synchronous::{answer, cache, open_keys};
use super::{MODES, USERS_TABLE, World, soon};
use crate::running::run;
use testing::{integer, nil, on_every_server};

const SCHEMA: &str = "CREATE TABLE users (id bigint PRIMARY KEY, version int NOT NULL) PARTITION BY RANGE (id);
    CREATE TABLE low PARTITION OF users FOR VALUES FROM (0) TO (1000);
    CREATE TABLE high PARTITION OF users FOR VALUES FROM (1000) TO (100000) PARTITION BY HASH (id);
    CREATE TABLE high0 PARTITION OF high FOR VALUES WITH (MODULUS 2, REMAINDER 0);
    CREATE TABLE high1 PARTITION OF high FOR VALUES WITH (MODULUS 2, REMAINDER 1);
    CREATE PUBLICATION bloomgate FOR TABLE users WITH (publish_via_partition_root = true);
    INSERT INTO users SELECT id, 1 FROM generate_series(990, 1010) id";

#[test]
fn a_partitioned_table_is_followed_by_its_name() {
    on_every_server(|program| {
        for mode in MODES {
            let (world, mut follower) = World::started(mode, program, SCHEMA, USERS_TABLE);
            follower.says("{users} has 21 rows");
            let (mut client, mut session) = (world.server.connect(), world.session());
            // Partitions of both levels, a row that moves, and a statement that names a partition.
            session
                .batch_execute("INSERT INTO low VALUES (1, 1); INSERT INTO users VALUES (500, 1), (2001, 1)")
                .unwrap();
            session.batch_execute("UPDATE users SET id = 3000 WHERE id = 500").unwrap();
            for id in [1, 2001, 3000] {
                soon(|| client.run(&format!("BF.EXISTS {{users}} {id}")) == integer(1));
            }
            soon(|| answer(&mut client, 500) == "absent" && open_keys(&mut client) == 0);
            cache(&mut client, &mut session, 1);
            session.batch_execute("DELETE FROM low WHERE id = 1").unwrap();
            soon(|| answer(&mut client, 1) == "absent");
            assert_eq!(client.run("GET {users}:1"), nil(2));

            // A partition arrives with rows, others leave with theirs.
            session
                .batch_execute(
                    "CREATE TABLE more (id bigint PRIMARY KEY, version int NOT NULL); INSERT INTO more VALUES (200000, 1);
                     ALTER TABLE users ATTACH PARTITION more FOR VALUES FROM (200000) TO (300000)",
                )
                .unwrap();
            soon(|| client.run("BF.EXISTS {users} 200000") == integer(1));
            cache(&mut client, &mut session, 995);
            session.batch_execute("ALTER TABLE users DETACH PARTITION low").unwrap();
            soon(|| client.run("GET {users}:995") == nil(2) && answer(&mut client, 995) == "absent");
            assert_ne!(answer(&mut client, 200_000), "absent", "{mode}");
            cache(&mut client, &mut session, 200_000);
            session.batch_execute("TRUNCATE more").unwrap();
            soon(|| client.run("GET {users}:200000") == nil(2) && answer(&mut client, 200_000) == "absent");
            session.batch_execute("TRUNCATE users; INSERT INTO users VALUES (1500, 1)").unwrap();
            soon(|| answer(&mut client, 1001) == "absent" && client.run("BF.EXISTS {users} 1500") == integer(1));
            follower.end();
        }
    });
}

#[test]
fn partitions_whose_changes_are_not_in_the_log_are_refused() {
    on_every_server(|program| {
        let table = USERS_TABLE.replace("\"{users}:{id}\"", "\"{users}:{version}\"");
        let world = World::with_mode("synchronous", program, SCHEMA, &table);
        let mut session = world.session();
        let mut execute = |statement: &str| session.batch_execute(statement).unwrap();
        let refused = |part: &str| run([std::ffi::OsStr::new("follow"), world.path().as_os_str()]).refused(part);
        execute("ALTER TABLE users REPLICA IDENTITY FULL");
        refused("public.users is partitioned: only its primary key can be in templates");
        world.configure(USERS_TABLE);
        execute("ALTER PUBLICATION bloomgate SET (publish_via_partition_root = false)");
        refused("ALTER PUBLICATION bloomgate SET (publish_via_partition_root = true)");
        execute("ALTER PUBLICATION bloomgate SET (publish_via_partition_root = true)");
        world.configure(&USERS_TABLE.replace("public.users", "low"));
        refused("shows its changes as those of a table that it is a partition of");
        world.configure(USERS_TABLE);

        let mut follower = world.follow_with_heartbeat();
        execute("CREATE UNLOGGED TABLE loose PARTITION OF users FOR VALUES FROM (300000) TO (400000)");
        follower.says("no heartbeat: the partition loose is foreign, unlogged or temporary");
        execute("DROP TABLE loose; ALTER TABLE low REPLICA IDENTITY NOTHING");
        follower.says("no heartbeat: the partition low has another replica identity");
        execute("ALTER TABLE low REPLICA IDENTITY FULL; INSERT INTO users VALUES (1, 1)");
        let mut client = world.server.connect();
        soon(|| client.run("BF.EXISTS {users} 1") == integer(1) && answer(&mut client, 2) == "absent");
        follower.end();
    });
}
