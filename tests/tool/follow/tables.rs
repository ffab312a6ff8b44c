//! Unusual tables: keys that do not identify a row, quoted names, rows that the follower may not see.

use testing::{integer, nil, on_every_server};

use crate::follow::synchronous::{FOLLOWER, WITH_GHOST, answer, cache, open_keys};
use crate::follow::{MODES, Sql, USERS, USERS_TABLE, World, beats, followed, has, in_both_modes, soon};

/// A table with a column outside of its key.
pub const WITH_MAIL: &str = "CREATE TABLE users (id bigint PRIMARY KEY, version int NOT NULL, mail text);
    ALTER TABLE users REPLICA IDENTITY FULL;
    CREATE PUBLICATION bloomgate FOR TABLE users";

#[test]
fn a_deferrable_key_deletes_no_item() {
    const SCHEMA: &str = "CREATE TABLE users (id bigint PRIMARY KEY DEFERRABLE, version int NOT NULL);
        ALTER TABLE users REPLICA IDENTITY FULL;
        CREATE PUBLICATION bloomgate FOR TABLE users";
    followed(&MODES, SCHEMA, USERS_TABLE, |_, follower, client, session| {
        session.run("INSERT INTO users SELECT id, 1 FROM generate_series(1, 5) id");
        // Rows 2 to 5 are written before the rows that previously had these keys.
        session.run("UPDATE users SET id = id + 1; INSERT INTO users VALUES (100, 1)");
        soon(|| has(client, 100) && open_keys(client) == 0);
        let missing: Vec<_> = (2..=6).filter(|id| !has(client, *id)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        follower.says("items of deleted rows stay in {users}: other rows might have the same item");

        // The constraint becomes immediate, and deferrable again.
        let make = |kind: &str| {
            format!(
                "ALTER TABLE users DROP CONSTRAINT users_pkey; ALTER TABLE users ADD PRIMARY KEY (id) {kind}; \
                 INSERT INTO users VALUES (101, 1)"
            )
        };
        session.run(&make(""));
        soon(|| has(client, 101) && beats(client));
        session.run("DELETE FROM users WHERE id = 101");
        soon(|| !has(client, 101));
        session.run(&make("DEFERRABLE"));
        soon(|| follower.log().matches("other rows might").count() == 2);
        soon(|| beats(client));
        session.run("UPDATE users SET id = id + 1; INSERT INTO users VALUES (200, 1)");
        soon(|| has(client, 200) && open_keys(client) == 0);
        assert!((3..=7).all(|id| has(client, id)));
    });
}

#[test]
fn a_key_with_a_generated_column_deletes_no_item_that_another_row_has() {
    const SCHEMA: &str =
        "CREATE TABLE users (id bigint, version int, twice int GENERATED ALWAYS AS (version * 2) STORED,
            PRIMARY KEY (id, twice));
        CREATE PUBLICATION bloomgate FOR TABLE users;
        -- Since PostgreSQL 18, rows with such a key can be deleted only if the stream contains it.
        DO $$ BEGIN
            IF current_setting('server_version_num')::int >= 180000 THEN
                EXECUTE 'ALTER PUBLICATION bloomgate SET (publish_generated_columns = stored)';
            END IF;
        END $$";
    followed(&MODES, SCHEMA, USERS_TABLE, |_, _, client, session| {
        session.run("INSERT INTO users VALUES (1, 1), (1, 2)");
        session.run("DELETE FROM users WHERE version = 1; INSERT INTO users VALUES (100, 1)");
        soon(|| has(client, 100) && open_keys(client) == 0);
        assert!(has(client, 1));
    });
}

#[test]
fn a_table_whose_rows_no_key_identifies_is_refused_with_the_reason() {
    on_every_server(|program| {
        let world = World::new(program, USERS, USERS_TABLE);
        let mut session = world.session();
        let mut make = |columns: &str| {
            session.run(&format!("DROP TABLE users; CREATE TABLE users ({columns})"));
        };
        make("id bigint, version int");
        world.refused("public.users has no primary key: give it one, or ALTER TABLE ... REPLICA IDENTITY FULL");
        make("id bigint PRIMARY KEY DEFERRABLE, version int");
        world.refused("the primary key of public.users is DEFERRABLE, so it identifies no row");
        make("version int, id int GENERATED ALWAYS AS (version) STORED PRIMARY KEY");
        world.refused("the stream lacks the primary key of public.users, because its column id is generated");
        make("id bigint, version int, PRIMARY KEY (id) INCLUDE (version)");
        world.configure(&USERS_TABLE.replace("{users}:{id}", "{users}:{version}"));
        world.refused("the column version does not belong to the table's replica identity");
    });
}

#[test]
fn names_in_quotes_are_followed() {
    const SCHEMA: &str = r#"CREATE SCHEMA "Shop"; CREATE TABLE "Shop"."Users" ("Id" bigint PRIMARY KEY, version int NOT NULL);
        CREATE PUBLICATION bloomgate FOR TABLE "Shop"."Users""#;
    let table = USERS_TABLE.replace("\"public.users\"", r#"'"Shop"."Users"'"#).replace("{id}", "{Id}");
    followed(&["eventual"], SCHEMA, &table, |_, _, client, session| {
        session.run(r#"INSERT INTO "Shop"."Users" VALUES (1, 1)"#);
        soon(|| has(client, 1));
        session.run(
            r#"DROP TABLE "Shop"."Users"; CREATE TABLE "Shop"."Users" ("Id" bigint PRIMARY KEY, version int);
                ALTER PUBLICATION bloomgate ADD TABLE "Shop"."Users"; INSERT INTO "Shop"."Users" VALUES (2, 1)"#,
        );
        soon(|| has(client, 2) && beats(client));
    });
}

#[test]
fn rows_hidden_from_the_follower_are_never_reported_absent() {
    const SCHEMA: &str = "CREATE TABLE users (id bigint PRIMARY KEY, version int NOT NULL);
        INSERT INTO users VALUES (1, 1);
        CREATE PUBLICATION bloomgate FOR TABLE users;
        CREATE ROLE gate LOGIN REPLICATION;
        GRANT SELECT ON users TO gate";
    in_both_modes(|mode, program| {
        let world = World::with_mode(mode, program, SCHEMA, USERS_TABLE);
        let text = std::fs::read_to_string(world.path()).unwrap().replace("guard@", "gate@");
        std::fs::write(world.path(), text).unwrap();
        let (mut client, mut session) = (world.server.connect(), world.session());

        // The policies take effect between the check of the catalogue and the fill.
        world.following().end();
        world.demand("");
        client.run("DEL {users}");
        let mut other = world.session();
        other.run("BEGIN; ALTER TABLE users ENABLE ROW LEVEL SECURITY");
        let mut follower = world.follow();
        // In synchronous mode, the fill begins with the next record of the log. An idle PostgreSQL writes one every 15 s.
        soon(|| {
            session.run("SELECT pg_logical_emit_message(false, 'probe', '')");
            follower.log().contains("waiting for running transactions")
        });
        other.run("COMMIT");
        follower.says("row-level security");
        assert!(!follower.log().contains("has 0 rows"), "{mode}: {}", follower.log());
        _ = follower.running.0.kill();
        drop(follower);

        world.refused("row-level security hides rows of public.users from the role gate: ALTER ROLE gate BYPASSRLS");
        session.run("ALTER ROLE gate BYPASSRLS");
        let mut follower = world.following();
        assert!(has(&mut client, 1));
        session.run("ALTER ROLE gate NOBYPASSRLS");
        follower.says("no heartbeat: row-level security hides rows of public.users");
        soon(|| !beats(&mut client));
        // COMMITs return nevertheless.
        session.run("INSERT INTO users VALUES (2, 1)");
        assert_ne!(answer(&mut client, 2), "absent");
        session.run("ALTER ROLE gate BYPASSRLS");
        world.wait_for_heartbeat();
        assert!(has(&mut client, 1) && has(&mut client, 2));
        follower.end();
    });
}

#[test]
fn a_row_cannot_have_a_key_that_the_follower_needs() {
    const SCHEMA: &str = "CREATE DOMAIN number AS bigint;
        CREATE TABLE users (id bigint PRIMARY KEY, name text NOT NULL, mail text NOT NULL, number number);
        ALTER TABLE users REPLICA IDENTITY FULL;
        CREATE TABLE members (id bigint PRIMARY KEY);
        CREATE PUBLICATION bloomgate FOR TABLE users, members";
    on_every_server(|program| {
        let world = World::new(program, SCHEMA, USERS_TABLE);
        let table = |key: &str| USERS_TABLE.replace("{users}:{id}", key);
        for (key, own) in [
            ("{users}:{name}", "{users}:feed"),
            ("{users}:feed:{name}", "{users}:feed:position"),
            ("{users}{name}", "{users}"),
            ("*{name}", "*"),
        ] {
            world.configure(&table(key));
            let shown = format!("`{key}`: a row could have the key {own}, which the follower needs for itself");
            world.refused(&shown);
        }
        for key in ["{id}", "{name}"] {
            world.configure(&table(key));
            world.refused(&format!("cache-key of public.users: `{key}` begins with a column"));
        }
        // The keys of another table of the file.
        let members = USERS_TABLE.replace("public.users", "members").replace("{users}", "{app}:members");
        let users = USERS_TABLE.replace("{users}:{id}", "{app}:{name}").replace("\"{users}\"", "\"{app}.users\"");
        world.configure(&format!("{users}{}", members.replace("{app}:members:{id}", "{app}:member:{id}")));
        world.refused("`{app}:{name}`: a row could have the key {app}:members, which the follower needs");

        // Tables that cannot have such keys are followed.
        world.configure(&USERS_TABLE.replace(
            "\"{users}:{id}\"",
            "[\"{users}:{id}\", \"{users}:{number}\", \"{users}:mail:{mail}\", \"{users}:{name}/{id}\"]",
        ));
        let mut follower = world.following();
        world.session().run("INSERT INTO users VALUES (1, 'feed:open', 'feed', 1)");
        soon(|| has(&mut world.server.connect(), 1));
        follower.end();
    });
}

#[test]
fn a_column_whose_new_type_allows_the_keys_of_the_follower_ends_the_heartbeat() {
    followed(&MODES, USERS, USERS_TABLE, |world, follower, client, session| {
        session.run("ALTER TABLE users ALTER COLUMN id TYPE text; INSERT INTO users VALUES ('feed:open', 1), ('x', 1)");
        follower.says("no heartbeat: cache-key of public.users: `{users}:{id}`: a row could have the key {users}:feed");
        soon(|| !beats(client));
        // Any change deletes all values of the table, but none of the follower's keys.
        client.run("SET {users}:x 1");
        session.run("UPDATE users SET version = 2");
        soon(|| client.run("EXISTS {users}:x") == integer(0) && open_keys(client) == 0);
        assert_eq!(client.run("EXISTS {users}:feed:position {users}:feed:epoch"), integer(2));
        session.run("DELETE FROM users; ALTER TABLE users ALTER COLUMN id TYPE bigint USING id::bigint; INSERT INTO users VALUES (1, 1)");
        world.wait_for_heartbeat();
        assert!(has(client, 1));
        assert!(!follower.log().contains("trying again"));
    });
}

#[test]
fn only_keys_that_a_row_can_have_are_deleted() {
    in_both_modes(|mode, program| {
        let world = World::with_mode(mode, program, USERS, USERS_TABLE);
        let (mut client, mut session) = (world.server.connect(), world.session());
        let values = ["{users}:1", "{users}:2"];
        let others = ["{users}:1:logins", "{users}:count", "{users}:", "users:1"];
        let mut cache = || {
            for key in values.iter().chain(&others) {
                client.call(&["SET", key, "x"]);
            }
        };
        let are_deleted = || {
            let mut client = world.server.connect();
            soon(|| values.iter().all(|key| client.call(&["EXISTS", key]) == integer(0)));
            let kept: Vec<_> = others.iter().filter(|key| client.call(&["EXISTS", key]) == integer(1)).collect();
            assert_eq!(kept.len(), others.len(), "{mode}: {kept:?}");
        };
        cache();
        let mut follower = world.following();
        are_deleted();
        for statement in ["ALTER TABLE users ADD COLUMN note text", "TRUNCATE users"] {
            cache();
            session.run(statement);
            are_deleted();
        }
        follower.end();
    });
}

#[test]
fn a_table_from_which_others_inherit_is_refused() {
    followed(&MODES, USERS, USERS_TABLE, |world, follower, client, session| {
        session.run("CREATE TABLE admins () INHERITS (users); INSERT INTO admins VALUES (1, 1)");
        follower.says("no heartbeat: admins inherits from public.users, so SELECT finds its rows there");
        soon(|| !beats(client));
        assert_ne!(answer(client, 1), "absent");
        follower.end();
        world.demand("");
        world.refused("admins inherits from public.users");
        session.run("DROP TABLE admins");
        *follower = world.following();
    });
}

#[test]
fn columns_whose_equal_values_have_several_texts_are_named() {
    const SCHEMA: &str = "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
        CREATE DOMAIN id AS bigint; CREATE DOMAIN price AS numeric(9, 2); CREATE TYPE kind AS ENUM ('a', 'b');
        CREATE TABLE users (id id, kind kind, price price, name text COLLATE ci, code char(4), sum numeric, day date,
            PRIMARY KEY (id));
        ALTER TABLE users REPLICA IDENTITY FULL;
        CREATE PUBLICATION bloomgate FOR TABLE users";
    let table = |columns: &str| USERS_TABLE.replace("\"{users}:{id}\"", &format!("\"{{users}}:{{id}}:{columns}\""));
    followed(&["eventual"], SCHEMA, &table("{kind}{price}{day}"), |world, follower, client, _| {
        assert!(!follower.log().contains("different texts"), "{}", follower.log());
        // The text of a domain type is exact, so the item is deleted from the filter.
        let mut session = world.session();
        session.run("INSERT INTO users (id, kind, price, day) VALUES (1, 'a', 1, 'today')");
        soon(|| has(client, 1));
        session.run("DELETE FROM users");
        soon(|| !has(client, 1));
        follower.end();
        world.configure(&table("{sum}{name}{code}"));
        *follower = world.following();
        follower.says(
            "equal values of public.users can have different texts in name (text COLLATE ci), code (character(4)), sum (numeric): a reader",
        );
    });
}

#[test]
fn a_row_whose_cache_keys_are_null_is_in_the_filter() {
    let table = USERS_TABLE.replace("{users}:{id}", "{users}:mail:{mail}");
    followed(&MODES, WITH_MAIL, &table, |_, _, client, session| {
        session.run("INSERT INTO users VALUES (1, 1, NULL), (2, 1, NULL), (3, 1, 'a')");
        soon(|| has(client, 1) && has(client, 2) && has(client, 3) && open_keys(client) == 0);
        session.run("DELETE FROM users WHERE id = 2");
        soon(|| !has(client, 2) && open_keys(client) == 0);
        session.run("UPDATE users SET mail = NULL WHERE id = 3; DELETE FROM users WHERE id = 3");
        soon(|| !has(client, 3) && open_keys(client) == 0);
        assert!(has(client, 1));
    });
}

#[test]
fn a_journal_keeps_the_item_of_a_row_whose_cache_keys_are_null() {
    let schema = format!("{WITH_MAIL}; INSERT INTO users VALUES (1, 1, 'a')");
    let table = USERS_TABLE.replace("{users}:{id}", "{users}:mail:{mail}");
    on_every_server(|program| {
        let (world, follower) = World::started("synchronous", program, &schema, &table);
        let mut client = world.server.connect();
        world.demand_ghost(WITH_GHOST);
        let mut next = None;
        // The item has a row again when the next follower reads its deletion.
        let kill = || {
            let mut client = world.server.connect();
            soon(|| open_keys(&mut client) == 2);
            drop(follower);
            next.insert(world.follow()).says("continues at");
        };
        let statement = "BEGIN; DELETE FROM users; INSERT INTO users VALUES (1, 2, NULL); COMMIT";
        world.while_waiting(&[statement], kill, || world.demand(FOLLOWER));
        soon(|| open_keys(&mut client) == 0);
        world.wait_for_heartbeat();
        assert!(has(&mut client, 1));
        next.unwrap().end();
    });
}

#[test]
fn changed_templates_fill_the_filter_again() {
    followed(&MODES, USERS, USERS_TABLE, |world, follower, client, _| {
        world.session().run("INSERT INTO users VALUES (1, 1)");
        soon(|| has(client, 1) && open_keys(client) == 0);
        let mut table = USERS_TABLE.to_owned();
        for (from, to) in
            [("\"{id}\"", "\"u{id}\""), ("{users}:{id}", "{users}:number:{id}"), ("0.000001 100000", "0.000001 200000")]
        {
            follower.end();
            world.demand("");
            client.run("SET {users}:number:1 old");
            table = table.replace(from, to);
            world.configure(&table);
            *follower = world.following();
            follower.says("filling {users} from public.users: the table or its configuration was altered");
            follower.says("{users} has 1 row");
            assert_eq!(client.run("BF.EXISTS {users} u1"), integer(1));
        }
        assert_eq!(client.run("EXISTS {users}:number:1"), integer(0));
        follower.end();
        world.demand("");
        // With its present size, it fits.
        *follower = world.following();
        follower.says("continues at");
    });
}

#[test]
fn a_table_is_followed_through_any_kind_of_publication() {
    on_every_server(|program| {
        let world = World::new(program, USERS, USERS_TABLE);
        let (mut client, mut session) = (world.server.connect(), world.session());
        for (id, objects) in [(1, "FOR ALL TABLES"), (2, "FOR TABLES IN SCHEMA public"), (3, "FOR TABLE users, others")]
        {
            session.run(&format!(
                "CREATE TABLE IF NOT EXISTS others (id int PRIMARY KEY); DROP PUBLICATION bloomgate; \
                     CREATE PUBLICATION bloomgate {objects}"
            ));
            let mut follower = world.follow();
            follower.says("{users} has ");
            world.wait_for_heartbeat();
            session.run(&format!("INSERT INTO users VALUES ({id}, 1)"));
            soon(|| has(&mut client, id));
            follower.end();
        }
        session.run(
            "CREATE SCHEMA empty; DROP PUBLICATION bloomgate; CREATE PUBLICATION bloomgate FOR TABLES IN SCHEMA empty",
        );
        world.refused("the publication bloomgate lacks the table users");
    });
}

// Partitioned tables, followed by the name of the root.

const SCHEMA: &str = "CREATE TABLE users (id bigint PRIMARY KEY, version int NOT NULL) PARTITION BY RANGE (id);
    CREATE TABLE low PARTITION OF users FOR VALUES FROM (0) TO (1000);
    CREATE TABLE high PARTITION OF users FOR VALUES FROM (1000) TO (100000) PARTITION BY HASH (id);
    CREATE TABLE high0 PARTITION OF high FOR VALUES WITH (MODULUS 2, REMAINDER 0);
    CREATE TABLE high1 PARTITION OF high FOR VALUES WITH (MODULUS 2, REMAINDER 1);
    CREATE PUBLICATION bloomgate FOR TABLE users WITH (publish_via_partition_root = true);
    INSERT INTO users SELECT id, 1 FROM generate_series(990, 1010) id";

#[test]
fn a_partitioned_table_is_followed_by_its_name() {
    followed(&MODES, SCHEMA, USERS_TABLE, |_, follower, client, session| {
        follower.says("{users} has 21 rows");
        // Partitions of both levels, a row that moves to another partition, and a statement that names a partition.
        session.run("INSERT INTO low VALUES (1, 1); INSERT INTO users VALUES (500, 1), (2001, 1)");
        session.run("UPDATE users SET id = 3000 WHERE id = 500");
        soon(|| [1, 2001, 3000].iter().all(|id| has(client, *id)));
        soon(|| answer(client, 500) == "absent" && open_keys(client) == 0);
        cache(client, session, 1);
        session.run("DELETE FROM low WHERE id = 1");
        soon(|| answer(client, 1) == "absent");
        assert_eq!(client.run("GET {users}:1"), nil(2));

        // A partition is attached with its rows, others are detached with theirs.
        session.run(
            "CREATE TABLE more (id bigint PRIMARY KEY, version int NOT NULL); INSERT INTO more VALUES (200000, 1);
                 ALTER TABLE users ATTACH PARTITION more FOR VALUES FROM (200000) TO (300000)",
        );
        soon(|| has(client, 200_000));
        cache(client, session, 995);
        session.run("ALTER TABLE users DETACH PARTITION low");
        soon(|| client.run("GET {users}:995") == nil(2) && answer(client, 995) == "absent");
        assert_ne!(answer(client, 200_000), "absent");
        cache(client, session, 200_000);
        session.run("TRUNCATE more");
        soon(|| client.run("GET {users}:200000") == nil(2) && answer(client, 200_000) == "absent");
        session.run("TRUNCATE users; INSERT INTO users VALUES (1500, 1)");
        soon(|| answer(client, 1001) == "absent" && has(client, 1500));
    });
}

#[test]
fn partitions_whose_changes_are_not_in_the_log_are_refused() {
    on_every_server(|program| {
        let table = USERS_TABLE.replace("\"{users}:{id}\"", "\"{users}:{version}\"");
        let world = World::with_mode("synchronous", program, SCHEMA, &table);
        let mut session = world.session();
        let mut execute = |statement: &str| session.run(statement);
        let refused = |part: &str| world.refused(part);
        execute("ALTER TABLE users REPLICA IDENTITY FULL");
        refused("public.users is partitioned: only its primary key can be in templates");
        world.configure(USERS_TABLE);
        execute("ALTER PUBLICATION bloomgate SET (publish_via_partition_root = false)");
        refused("ALTER PUBLICATION bloomgate SET (publish_via_partition_root = true)");
        execute("ALTER PUBLICATION bloomgate SET (publish_via_partition_root = true)");
        world.configure(&USERS_TABLE.replace("public.users", "low"));
        refused("shows its changes as those of a table that it is a partition of");
        world.configure(USERS_TABLE);

        let mut follower = world.following();
        execute("CREATE UNLOGGED TABLE loose PARTITION OF users FOR VALUES FROM (300000) TO (400000)");
        follower.says("no heartbeat: the partition loose is foreign, unlogged or temporary");
        execute("DROP TABLE loose; ALTER TABLE low REPLICA IDENTITY NOTHING");
        follower.says("no heartbeat: the partition low has another replica identity");
        execute("ALTER TABLE low REPLICA IDENTITY FULL; INSERT INTO users VALUES (1, 1)");
        let mut client = world.server.connect();
        soon(|| has(&mut client, 1) && answer(&mut client, 2) == "absent");
        follower.end();
    });
}
