//! DDL while the follower is running or stopped: rewritten rows, and replica identities and publications that no longer suffice.

use super::synchronous::{FOLLOWER, answer, cache, look_up, open_keys};
use super::tables::WITH_MAIL;
use super::{MODES, One, Sql, USERS, USERS_TABLE, World, beats, catch_up, followed, has, soon};
use testing::{integer, nil, on_every_server};

#[test]
fn rows_rewritten_by_ddl_are_not_reported_absent_and_old_values_are_deleted() {
    followed(&MODES, USERS, USERS_TABLE, |world, follower, client, session| {
        session.run("INSERT INTO users SELECT id, 1 FROM generate_series(1, 20) id");
        catch_up(world, client, 30);
        assert_eq!(look_up(client, session, 1), Some(1));
        session.run("ALTER TABLE users ALTER COLUMN version TYPE int USING version + 100");
        soon(|| look_up(client, session, 1) == Some(101));
        world.wait_for_heartbeat();

        // The deleted item belongs to another row afterwards.
        session.run(
            "BEGIN; DELETE FROM users WHERE id = 20;
                 ALTER TABLE users ALTER COLUMN id TYPE bigint USING id + 4; COMMIT",
        );
        soon(|| has(client, 34));
        catch_up(world, client, 1000);
        soon(|| answer(client, 3000) == "absent");
        for id in (5..=23).chain([34]) {
            assert_ne!(answer(client, id), "absent", "{id}");
        }
        follower.end();

        // While no follower is running.
        world.demand("");
        session.run("DELETE FROM users WHERE id = 10");
        session.run("ALTER TABLE users ALTER COLUMN id TYPE bigint USING id + 5");
        *follower = world.following();
        follower.says("filling {users} from public.users: the table or its configuration was altered");
        catch_up(world, client, 2000);
        assert!(has(client, 10) && has(client, 39));
    });
}

#[test]
fn a_fill_that_waits_for_ddl_has_the_new_rows() {
    followed(&MODES, USERS, USERS_TABLE, |world, follower, client, session| {
        session.run("CREATE TABLE others (id int); INSERT INTO users VALUES (1, 1), (2, 1)");
        follower.end();
        world.demand("");
        client.run("DEL {users}");
        let mut other = world.session();
        other.run("BEGIN; INSERT INTO others VALUES (1)");
        *follower = world.follow();
        follower.says("waiting for running transactions");
        session.run("BEGIN; ALTER TABLE users ALTER COLUMN id TYPE bigint USING id + 100");
        other.run("COMMIT");
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'users'::regclass";
        // In synchronous mode, the fill waits for the lock for a second, and then for the transaction that holds it.
        soon(|| other.one::<i64>(waits) == 1 || follower.log().matches("waiting for running transactions").count() > 1);
        session.run("COMMIT");
        if world.mode == "synchronous" {
            world.demand(FOLLOWER);
        }
        world.wait_for_heartbeat();
        soon(|| answer(client, 3) == "absent");
        assert!(has(client, 101) && has(client, 102));
    });
}

#[test]
fn a_follower_starts_while_the_commit_of_ddl_waits_for_it() {
    on_every_server(|program| {
        let (world, follower) = World::started("synchronous", program, USERS, USERS_TABLE);
        drop(follower);
        let mut next = None;
        // The transaction keeps the table locked until its COMMIT returns.
        let statement = "ALTER TABLE users ADD COLUMN note text";
        world.while_waiting(&[statement], || next = Some(world.follow()), || ());
        world.session().run("INSERT INTO users VALUES (1, 1)");
        let mut client = world.server.connect();
        assert_ne!(answer(&mut client, 1), "absent");
        soon(|| has(&mut client, 1) && answer(&mut client, 2) == "absent");
        next.unwrap().end();
    });
}

#[test]
fn ddl_ends_leases() {
    followed(&MODES, USERS, USERS_TABLE, |world, follower, client, session| {
        session.run("INSERT INTO users VALUES (1, 1), (2, 1)");
        catch_up(world, client, 30);
        cache(client, session, 1);
        let lease = client.run("BF.FETCH {users} 2 {users}:2 LEASE 600000");
        let [word, token] = lease.elements() else { panic!("{lease:?}") };
        assert_eq!(word.text(), "load");
        session.run("ALTER TABLE users ADD COLUMN note text DEFAULT 'x'");
        soon(|| client.run("GET {users}:1") == nil(2) && open_keys(client) == 0);
        // A reader that has read the row before the alteration.
        client.call(&["BF.FILL", "{users}", "2", "{users}:2", &token.text(), "VALUE", "1", "EX", "600"]);
        world.wait_for_heartbeat();
        assert_eq!(client.run("GET {users}:2"), nil(2));
        follower.says("public.users was altered: filling {users} again");
    });
}

#[test]
fn a_weaker_replica_identity_ends_the_heartbeat_and_deletes_every_value_that_may_be_old() {
    let table = USERS_TABLE.replace("\"{users}:{id}\"", "[\"{users}:{id}\", \"{users}:mail:{mail}\"]");
    followed(&MODES, WITH_MAIL, &table, |world, follower, client, session| {
        session.run("INSERT INTO users VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 1, 'c')");
        catch_up(world, client, 30);
        session.run("ALTER TABLE users REPLICA IDENTITY DEFAULT");
        for change in ["UPDATE users SET mail = 'd' WHERE id = 1", "DELETE FROM users WHERE id = 2"] {
            client.run("MSET {users}:mail:a 1 {users}:mail:b 1");
            session.run(change);
            soon(|| client.run("EXISTS {users}:mail:a {users}:mail:b") == integer(0));
        }
        follower.says("no heartbeat: cache-key of public.users: `{users}:mail:{mail}`: the column mail does not");
        soon(|| !beats(client));
        // COMMITs return nevertheless.
        session.run("INSERT INTO users VALUES (4, 1, 'd')");
        assert_ne!(answer(client, 4), "absent");
        session.run("ALTER TABLE users REPLICA IDENTITY FULL");
        catch_up(world, client, 31);
        assert!(has(client, 3) && has(client, 4));
        client.run("MSET {users}:mail:c 1 {users}:mail:other 1");
        session.run("UPDATE users SET mail = 'e' WHERE id = 3");
        soon(|| client.run("EXISTS {users}:mail:c") == integer(0));
        assert_eq!(client.run("EXISTS {users}:mail:other"), integer(1));
        // A column of a template is missing for a while.
        session.run("ALTER TABLE users RENAME mail TO post; INSERT INTO users VALUES (5, 1, 'f')");
        follower.says("no heartbeat: cache-key of public.users: `{users}:mail:{mail}`: there is no column mail");
        session.run("ALTER TABLE users RENAME post TO mail");
        catch_up(world, client, 32);
        assert!(has(client, 5));
        assert!(!follower.log().contains("trying again"));
    });
}

#[test]
fn a_table_that_leaves_its_publication_has_no_heartbeat_until_it_is_filled_again() {
    followed(&MODES, USERS, USERS_TABLE, |world, follower, client, session| {
        let mode = world.mode;
        session.run("ALTER PUBLICATION bloomgate DROP TABLE users");
        follower.says("no heartbeat: the publication bloomgate lacks the table users");
        session.run("INSERT INTO users VALUES (1, 1)");
        assert_eq!(client.run("EXISTS {users}:feed"), integer(0), "{mode}");
        session.run("ALTER PUBLICATION bloomgate ADD TABLE users WHERE (id > 1)");
        follower.says("no heartbeat: the publication bloomgate leaves out rows of the table users");
        // Two changes at once. A row between them is missing from the log.
        session.run("ALTER PUBLICATION bloomgate SET TABLE users");
        catch_up(world, client, 30);
        assert!(has(client, 1), "{mode}");
        session.run(
            "BEGIN; ALTER PUBLICATION bloomgate DROP TABLE users; INSERT INTO users VALUES (2, 1);
                 ALTER PUBLICATION bloomgate ADD TABLE users; COMMIT",
        );
        soon(|| has(client, 2));
        follower.end();
        world.demand("");
        session.run("ALTER PUBLICATION bloomgate SET TABLE users WHERE (id > 1)");
        world.refused("remove its WHERE clause");
    });
}
