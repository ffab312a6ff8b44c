//! MariaDB: its log, missing features, and the positions at which a follower continues. With `BLOOMGATE_MYSQL`, MySQL.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::thread;

use testing::mariadb::{MariaDb, Session, in_sql};
use testing::{Connection, Server, free_port, integer, nil, on_every_server};

use crate::connecting::certificates;
use crate::follow::synchronous::answer;
use crate::follow::{Followed, Follower, Sql, USERS_TABLE, World, beats, followed_on, has, soon};
use crate::running::{Ended, Running, command, send};
use crate::web::{asking, metrics};

pub const USERS: &str = "CREATE TABLE users (id bigint PRIMARY KEY, version int NOT NULL)";

impl Followed for MariaDb {
    type Session = Session;
    const MODES: &'static [&'static str] = &["eventual"];
    const USERS: &'static str = USERS;
    const FULL: &'static str = "SELECT 1";
    const PREFIX: &'static str = "";
    const ALIAS: &'static str = "shop.users";

    fn create(name: &str) -> String {
        USERS.replace("users", name)
    }

    fn start(settings: &[&str]) -> Self {
        Self::start(settings)
    }

    fn url(&self) -> String {
        self.url()
    }

    fn session(&self) -> Session {
        self.session()
    }

    fn let_commits_return(&self) {
        // Fails without the plugin.
        _ = self.session().try_run(&format!("SET GLOBAL {}_enabled = OFF", semi_sync()));
    }
}

impl Sql for Session {
    #[track_caller]
    fn run(&mut self, statements: &str) -> Vec<String> {
        self.run(statements)
    }
}

impl World<MariaDb> {
    fn on_mariadb(program: &Path, schema: &str, tables: &str) -> Self {
        Self::between("eventual", MariaDb::start(&[]), Server::with(program), schema, tables)
    }
}

/// Runs a test on every server, with a follower of MariaDB whose heartbeat has begun.
fn followed(
    settings: &[&str],
    tables: &str,
    test: impl Fn(&mut World<MariaDb>, &mut Follower, &mut Connection, &mut Session),
) {
    followed_on(&["eventual"], settings, USERS, tables, test);
}

fn is_mysql() -> bool {
    in_sql("MariaDB", "MySQL") == "MySQL"
}

/// Returns the statement that resets the log.
pub fn reset() -> &'static str {
    in_sql("RESET MASTER", "RESET BINARY LOGS AND GTIDS")
}

/// Returns the file in which the log ends, and the offset.
fn end(session: &mut Session) -> (String, String) {
    let status = session.run(in_sql("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS")).concat();
    let mut parts = status.split('\t').map(str::to_owned);
    (parts.next().unwrap(), parts.next().unwrap())
}

/// Purges all log files except the last one.
pub fn purge(session: &mut Session) {
    let (file, _) = end(session);
    // Fails while the server still sends an older file to a follower that has ended.
    soon(|| {
        session.run(&format!("PURGE BINARY LOGS TO '{file}'"));
        session.run("SHOW BINARY LOGS").len() == 1
    });
}

/// Returns the prefix of the settings that make COMMIT wait for a replica.
pub fn semi_sync() -> &'static str {
    in_sql("rpl_semi_sync_master", "rpl_semi_sync_source")
}

/// Waits until the answers to readers match the rows of the table.
#[track_caller]
fn agrees(client: &mut Connection, session: &mut Session) {
    let rows: BTreeSet<u64> = session.run("SELECT id FROM users").iter().map(|id| id.parse().unwrap()).collect();
    soon(|| beats(client) && (0..50).all(|id| (answer(client, id) == "absent") != rows.contains(&id)));
}

#[test]
fn heartbeats_continue_during_a_long_fill() {
    const ROWS: u64 = 400_000;
    on_every_server(|program| {
        let world = World::on_mariadb(program, USERS, USERS_TABLE);
        let (mut client, mut session) = (world.server.connect(), world.database.session());
        session.run(in_sql("SET max_recursive_iterations = 1000000", "SET cte_max_recursion_depth = 1000000"));
        session.run(&format!(
            "INSERT INTO users (id, version) WITH RECURSIVE ids AS (SELECT 1 AS id UNION ALL SELECT id + 1 FROM ids WHERE id < {ROWS}) \
             SELECT id, 1 FROM ids"
        ));
        let mut follower = world.follow();
        // A heartbeat is due each second, and the fill takes more than one second.
        follower.says("{users} has 400,000 rows");
        world.wait_for_heartbeat();
        assert!(has(&mut client, ROWS));
        follower.end();
        assert!(!follower.log().contains("panicked"), "{}", follower.log());
    });
}

#[test]
fn columns_that_the_catalogue_does_not_show_are_no_alteration() {
    let schema = in_sql(
        "CREATE TABLE users (id bigint PRIMARY KEY, version int, name text, long_name varchar(2000), UNIQUE (name), UNIQUE (long_name), \
         UNIQUE (version) USING HASH)",
        "SET GLOBAL show_gipk_in_create_table_and_information_schema = OFF; SET sql_generate_invisible_primary_key = ON; \
         CREATE TABLE users (id bigint NOT NULL, version int, name varchar(10), UNIQUE (version) USING HASH)",
    );
    followed_on::<MariaDb>(&["eventual"], &[], schema, USERS_TABLE, |_, follower, client, session| {
        for id in 1..10 {
            session.run(&format!("INSERT INTO users (id, version, name) VALUES ({id}, {id}, 'n{id}')"));
            client.run(&format!("SET {{users}}:{id} old"));
            session.run(&format!("UPDATE users SET name = 'm{id}' WHERE id = {id}"));
            soon(|| has(client, id) && client.run(&format!("EXISTS {{users}}:{id}")) == integer(0));
        }
        follower.end();
        assert!(!follower.log().contains("altered"), "{}", follower.log());
    });
}

#[test]
fn a_replica_is_followed_only_if_its_primary_replicates_from_it() {
    on_every_server(|program| {
        let mut world = World::between(
            "eventual",
            MariaDb::start(&["--log-slave-updates=ON"]),
            Server::with(program),
            USERS,
            USERS_TABLE,
        );
        let replica = world.database.replica();
        world.configure_for(&replica, USERS_TABLE);
        world.refused("replicates from 127.0.0.1: follow the primary");
        replica.session().run(in_sql("STOP SLAVE", "STOP REPLICA"));
        world.refused("replicates from 127.0.0.1: follow the primary");
        replica.session().run(in_sql("START SLAVE", "START REPLICA"));
        // Each replicates from the other.
        let source = replica.port();
        world.database.session().run(&in_sql(
            "SET GLOBAL gtid_slave_pos = @@gtid_binlog_pos; CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, \
             MASTER_USER = 'gate', MASTER_PASSWORD = 'secret', MASTER_USE_GTID = slave_pos; START SLAVE",
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, SOURCE_USER = 'gate', \
             SOURCE_PASSWORD = 'secret', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1; START REPLICA",
        ).replace("{port}", &source.to_string()));
        if !is_mysql() {
            world.refused("the account needs GRANT REPLICATION MASTER ADMIN ON *.*");
            world.database.session().run("GRANT REPLICATION MASTER ADMIN ON *.* TO gate@'127.0.0.1'");
            soon(|| replica.session().run("SHOW GRANTS FOR gate@'127.0.0.1'").concat().contains("MASTER ADMIN"));
        }
        soon(|| !replica.session().run(in_sql("SHOW SLAVE HOSTS", "SHOW REPLICAS")).is_empty());
        world.following().end();
    });
}

#[test]
fn settings_that_sessions_inherit_do_not_concern_the_follower() {
    on_every_server(|program| {
        let world = World::on_mariadb(program, USERS, USERS_TABLE);
        let (mut client, mut session) = (world.server.connect(), world.database.session());
        session
            .run("INSERT INTO users VALUES (1, 1), (2, 1), (3, 1), (4, 1), (5, 1); SET SESSION lock_wait_timeout = 20");
        session.run(
            "SET GLOBAL sql_select_limit = 2, GLOBAL max_join_size = 1, GLOBAL autocommit = OFF, \
             GLOBAL completion_type = CHAIN",
        );
        let mut follower = world.following();
        assert!((1..=5).all(|id| has(&mut client, id)), "{}", follower.log());
        // A transaction that stays open blocks DDL.
        session.run("ALTER TABLE users ADD COLUMN note int; INSERT INTO users (id, version) VALUES (6, 1)");
        soon(|| has(&mut client, 6) && beats(&mut client));
        follower.end();
    });
}

#[test]
fn rows_that_do_not_fit_a_later_definition_fill_the_filter_again() {
    const SCHEMA: &str = "CREATE TABLE users (id bigint PRIMARY KEY, version int, kind enum('a', 'b', 'c') NOT NULL)";
    on_every_server(|program| {
        let table = USERS_TABLE.replace("{users}:{id}", "{users}:{kind}:{id}");
        let world = World::on_mariadb(program, SCHEMA, &table);
        let (mut client, mut session) = (world.server.connect(), world.database.session());
        let mut follower = world.following();
        session.run("INSERT INTO users VALUES (1, 1, 'a')");
        soon(|| has(&mut client, 1));
        follower.end();
        session.run("INSERT INTO users VALUES (2, 1, 'c'); UPDATE users SET kind = 'b' WHERE id = 2");
        session.run("ALTER TABLE users MODIFY kind enum('a', 'b') NOT NULL");
        let mut follower = world.follow();
        soon(|| has(&mut client, 2) && beats(&mut client));
        follower.says("the log has rows of shop.users that do not fit its definition");
        follower.end();
    });
}

#[test]
fn a_table_with_the_name_of_a_keyword_is_followed_through_rename_tables() {
    on_every_server(|program| {
        let schema =
            USERS.replace("users", "event") + "; CREATE TABLE spare LIKE event; INSERT INTO spare VALUES (7, 1)";
        let table = USERS_TABLE.replace("public.users", "event");
        let world = World::on_mariadb(program, &schema, &table);
        let mut follower = world.following();
        world.database.session().run("RENAME /* VIEW */ TABLES event TO `old`, spare TO event");
        soon(|| has(&mut world.server.connect(), 7));
        follower.end();
    });
}

#[test]
fn every_statement_reaches_readers() {
    const STATEMENTS: [&str; 19] = [
        "INSERT INTO users VALUES (3, 1), (4, 1), (5, 1)",
        "UPDATE users SET id = 13 WHERE id = 3",
        "DELETE FROM users WHERE id = 4",
        "REPLACE INTO users VALUES (5, 7)",
        "INSERT INTO users VALUES (5, 1), (6, 1) ON DUPLICATE KEY UPDATE id = 16",
        "BEGIN; DELETE FROM users; INSERT INTO users VALUES (1, 2), (7, 1); SAVEPOINT s; INSERT INTO users VALUES (8, 1); \
         ROLLBACK TO s; COMMIT",
        "BEGIN; INSERT INTO users VALUES (20, 1); ROLLBACK",
        "BEGIN; UPDATE users SET id = 99 WHERE id = 1; UPDATE users SET id = 1 WHERE id = 7; UPDATE users SET id = 7 WHERE id = 99; COMMIT",
        "INSERT INTO users SELECT id + 30, 1 FROM users",
        "TRUNCATE users",
        "INSERT INTO users VALUES (1, 1), (2, 1)",
        "SET GLOBAL binlog_checksum = NONE",
        "ALTER TABLE users ADD COLUMN extra varchar(10) DEFAULT 'x' FIRST",
        "INSERT INTO users (id, version) VALUES (9, 1)",
        "CREATE TABLE new LIKE users; INSERT INTO new (id, version) VALUES (10, 1), (11, 1); RENAME TABLE users TO old, new TO users",
        "XA START 'a'; INSERT INTO users (id, version) VALUES (12, 1); XA END 'a'; XA PREPARE 'a'; XA COMMIT 'a'",
        "XA START 'a'; INSERT INTO users (id, version) VALUES (15, 1); XA END 'a'; XA COMMIT 'a' ONE PHASE",
        "XA START 'b'; INSERT INTO users (id, version) VALUES (14, 1); XA END 'b'; XA PREPARE 'b'; XA ROLLBACK 'b'",
        "ALTER TABLE users PARTITION BY HASH (id) PARTITIONS 2; ALTER TABLE users TRUNCATE PARTITION p0",
    ];
    let compressed = in_sql("--log-bin-compress=ON", "--binlog-transaction-compression=ON");
    let shortest = in_sql("--log-bin-compress-min-len=10", "--binlog-transaction-compression-level-zstd=1");
    for settings in [&["--binlog-checksum=NONE"][..], &[compressed, shortest, "--binlog-row-metadata=FULL"]] {
        followed(settings, USERS_TABLE, |_, _, client, session| {
            for statement in STATEMENTS {
                session.run(statement);
                agrees(client, session);
                // A reader has cached a value since.
                client.run("SET {users}:1 old");
                session.run("UPDATE users SET version = version + 1 WHERE id = 1");
                let has_row = session.run("SELECT count(*) FROM users WHERE id = 1") == ["1"];
                soon(|| !has_row || client.run("GET {users}:1") == nil(2));
            }
        });
    }
}

#[test]
fn the_log_has_the_texts_that_select_shows() {
    // Column types, each with values in SQL.
    let mut columns: Vec<(&str, &[&str])> = vec![
        ("tinyint", &["-128", "127", "0"]),
        ("tinyint unsigned", &["255", "7"]),
        ("smallint", &["-32768", "32767"]),
        ("mediumint", &["-8388608", "8388607"]),
        ("mediumint unsigned", &["16777215"]),
        ("int", &["-2147483648", "2147483647"]),
        ("int(7) unsigned zerofill", &["42", "4294967295"]),
        ("bigint", &["-9223372036854775808", "9223372036854775807"]),
        ("bigint unsigned", &["18446744073709551615"]),
        ("decimal(20,0)", &["5", "-99999999999999999999", "1000000000"]),
        ("decimal(10,2)", &["-0.05", "12345678.90", "0", "-99999999.99"]),
        ("decimal(30,15)", &["1.000000001", "-123456789012345.123456789012345", "0.000000000000001"]),
        ("decimal(5,5)", &["0.12345", "-0.00001"]),
        ("year", &["0", "1901", "2155"]),
        ("date", &["'0000-00-00'", "'1000-01-01'", "'9999-12-31'"]),
        ("time", &["'-838:59:59'", "'00:00:00'", "'838:59:59'", "'-00:00:01'"]),
        ("time(1)", &["'-00:00:00.9'", "'12:34:56.7'"]),
        ("time(3)", &["'-01:02:03.004'", "'23:59:59.999'"]),
        ("time(6)", &["'-00:00:00.000001'", "'-838:59:59.999999'", "'01:02:03.000004'"]),
        ("datetime", &["'0000-00-00 00:00:00'", "'2026-11-27 18:00:01'"]),
        ("datetime(2)", &["'1000-12-31 23:59:59.01'"]),
        ("datetime(6)", &["'9999-12-31 23:59:59.999999'", "'2024-02-29 00:00:00.000001'"]),
        ("timestamp", &["'2024-02-29 23:59:59'", "'1970-01-02 00:00:01'", "0"]),
        ("timestamp(5)", &["'2038-01-19 01:14:07.00001'", "'2000-03-01 00:00:00'"]),
        ("char(5)", &["'a  '", "''", "'größe'"]),
        ("varchar(300)", &["'a  '", "repeat('é', 300)", "'tab\\tnew\\nline\\\\'"]),
        (
            "varchar(256) character set latin1",
            &["CONVERT(UNHEX('808182838485868788898A8B8C8D8E8F909192939495969798999A9B9C9D9E9FA0FF') USING latin1)"],
        ),
        ("text", &["'x'", "repeat('y', 70000)"]),
        ("binary(6)", &["0x610000000000", "0x00", "0x202020202020"]),
        ("varbinary(20)", &["0x6100", "''", "0xff00ff"]),
        ("bit(10)", &["b'1000000001'", "0"]),
        ("enum('a','b''c','ü')", &["'a'", "'b''c'", "'ü'"]),
        ("set('a','b','ç')", &["''", "'a,b'", "'b,ç'"]),
        ("uuid", &["'12345678-9abc-1def-8123-456789abcdef'", "'12345678-9abc-7def-8123-456789ab0000'"]),
        (
            "inet6",
            &[
                "'2001:db8::1'",
                "'::ffff:1.2.3.4'",
                "'::1.2.3.4'",
                "'::'",
                "'::1'",
                "'1:0:0:2::'",
                "'1::2:0:0:3:4'",
                "'::1:2'",
                "'2001:db8:85a3:0:8a2e:370:7334:1'",
                "'0:1:0:1:0:1:0:1'",
                "'0:2:3:4:5:6:7:8'",
                "'1:2:3:4:5:6:7:0'",
                "'1:0:0:2:0:0:3:4'",
                "'::ffff:0:1'",
                "'::fffe:1.2.3.4'",
                "'64:ff9b::1.2.3.4'",
            ],
        ),
        ("inet4", &["'1.2.3.0'", "'0.0.0.0'", "'255.255.255.255'"]),
    ];
    columns.retain(|(name, _)| !is_mysql() || !["uuid", "inet4", "inet6"].contains(name));
    let definitions: Vec<_> = columns.iter().enumerate().map(|(at, (name, _))| format!("c{at} {name}")).collect();
    let keys: Vec<_> = (0..columns.len()).map(|at| format!("\"{{users}}:c{at}:{{c{at}}}\"")).collect();
    let schema = format!(
        "CREATE TABLE users (id int PRIMARY KEY, v int DEFAULT 0, {}, tail varchar(10) DEFAULT 'tail') CHARACTER SET utf8mb4; \
         SET GLOBAL time_zone = '+05:00'; SET GLOBAL sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'",
        definitions.join(", ")
    );
    let table = USERS_TABLE.replace("\"{users}:{id}\"", &format!("[{}, \"{{users}}:tail:{{tail}}\"]", keys.join(", ")));
    on_every_server(|program| {
        let world = World::on_mariadb(program, &schema, &table);
        let mut session = world.database.session();
        session.run("SET sql_mode = '', time_zone = '+00:00'");
        let mut ids = 0;
        for (at, (_, values)) in columns.iter().enumerate() {
            for value in *values {
                session.run(&format!("INSERT INTO users (id, c{at}) VALUES ({ids}, {value})"));
                ids += 1;
            }
        }
        let mut follower = world.following();
        let mut client = world.server.connect();
        let mut cached = Vec::new();
        for (at, (name, _)) in columns.iter().enumerate() {
            // The bytes in a client's encoding.
            let text = match name.contains("latin1") {
                true => format!("CONVERT(c{at} USING utf8mb4)"),
                false => format!("CONCAT(c{at}, '')"),
            };
            let query = format!("SELECT HEX({text}) FROM users WHERE c{at} IS NOT NULL");
            for text in session.run(&query) {
                let bytes: Vec<u8> =
                    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect();
                let key = [format!("{{users}}:c{at}:").as_bytes(), &bytes].concat();
                client.call(&[b"SET", &*key, b"old"]);
                cached.push((*name, key));
            }
        }
        assert_eq!(cached.len(), ids);
        session.run("UPDATE users SET v = 1");
        soon(|| beats(&mut client) && client.run("GET {users}:tail:tail") == nil(2));
        session.run("INSERT INTO users (id) VALUES (1000)");
        soon(|| has(&mut client, 1000));
        let kept: Vec<_> = cached
            .iter()
            .filter(|(_, key)| client.call(&[&b"GET"[..], key]) != nil(2))
            .map(|(name, key)| format!("{name}: {}", String::from_utf8_lossy(key)))
            .collect();
        assert!(kept.is_empty(), "{kept:#?}");
        follower.end();
    });
}

#[test]
fn a_follower_continues_after_its_last_transaction() {
    followed(&[], USERS_TABLE, |world, follower, client, session| {
        session.run("INSERT INTO users VALUES (1, 1), (2, 1)");
        agrees(client, session);
        follower.signal("KILL");
        session.run("DELETE FROM users WHERE id = 1; INSERT INTO users VALUES (3, 1); CREATE TABLE other (id int)");
        *follower = world.following();
        agrees(client, session);
        // MariaDB itself is killed, and its log continues in another file.
        world.database.restart();
        *session = world.database.session();
        session.run("INSERT INTO users VALUES (4, 1); FLUSH BINARY LOGS; INSERT INTO users VALUES (5, 1)");
        agrees(client, session);
        follower.end();
        session.run("FLUSH BINARY LOGS; DELETE FROM users WHERE id = 2");
        *follower = world.following();
        agrees(client, session);
        assert!(follower.log().contains("continues at") && !follower.log().contains("filling"), "{}", follower.log());
    });
}

#[test]
fn another_log_is_noticed() {
    followed(&[], USERS_TABLE, |world, follower, client, session| {
        session.run("INSERT INTO users VALUES (1, 1), (2, 1)");
        agrees(client, session);
        world.database.save();
        *session = world.database.session();
        session.run("DELETE FROM users WHERE id = 1; DELETE FROM users WHERE id = 2");
        agrees(client, session);
        follower.end();
        // A backup is restored, and the same number of transactions follows.
        world.database.put_back();
        *session = world.database.session();
        session
            .run("INSERT INTO users VALUES (3, 1); INSERT INTO users VALUES (4, 1); INSERT INTO users VALUES (5, 1)");
        *follower = world.following();
        agrees(client, session);
        follower.says("does not have its last transaction");

        session.run("INSERT INTO users VALUES (6, 1)");
        agrees(client, session);
        follower.end();
        session.run("DELETE FROM users WHERE id = 1; FLUSH BINARY LOGS");
        purge(session);
        *follower = world.following();
        agrees(client, session);
        follower.says("does not have its last transaction");

        session.run("INSERT INTO users VALUES (7, 1)");
        agrees(client, session);
        session.run(reset());
        session.run("DELETE FROM users WHERE id = 2; INSERT INTO users VALUES (8, 1)");
        agrees(client, session);
    });
}

#[test]
fn a_log_that_begins_anew_is_noticed_however_long_it_is() {
    let port = free_port();
    let tables = format!("metrics = \"127.0.0.1:{port}\"\n{USERS_TABLE}");
    let lag_bytes = || {
        let samples = metrics::parse(&asking::get(port, "/metrics").success().body);
        samples.into_iter().find(|(name, ..)| name == "bloomgate_follow_lag_bytes").unwrap().2
    };
    followed(&[], &tables, |_, _, client, session| {
        session.run("FLUSH BINARY LOGS; FLUSH BINARY LOGS");
        agrees(client, session);
        // The log is as long as before, longer, and shorter.
        for later in [&[2][..], &[3, 4], &[]] {
            session.run(&format!("TRUNCATE users; {}; INSERT INTO users VALUES (1, 1)", reset()));
            agrees(client, session);
            let before = end(session);
            session.run(reset());
            later.iter().for_each(|id| _ = session.run(&format!("INSERT INTO users VALUES ({id}, 1)")));
            assert_eq!(later.len() == 1, end(session) == before);
            agrees(client, session);
            soon(|| lag_bytes() == 0.0);
        }
    });
}

#[test]
fn every_domain_or_tag_continues_after_its_own_last_transaction() {
    followed(&[], USERS_TABLE, |world, follower, client, session| {
        let mut other = world.database.session();
        other.run(in_sql("SET SESSION gtid_domain_id = 7", "SET SESSION gtid_next = 'AUTOMATIC:other'"));
        for id in [10, 20, 30] {
            other.run(&format!("INSERT INTO users VALUES ({id}, 1)"));
            session.run(&format!("FLUSH BINARY LOGS; INSERT INTO users VALUES ({id} + 1, 1)"));
            agrees(client, session);
            follower.signal("KILL");
            // The next follower cannot read either of them from its beginning.
            purge(session);
            session.run(&format!("UPDATE users SET id = id + 1 WHERE id = {id} + 1"));
            other.run(&format!("DELETE FROM users WHERE id = {id}"));
            *follower = world.following();
            agrees(client, session);
            assert!(!follower.log().contains("filling"), "{}", follower.log());
        }
    });
}

#[test]
fn a_key_that_ignores_case_has_the_text_that_select_shows() {
    const SCHEMA: &str =
        "CREATE TABLE users (id varchar(20) COLLATE utf8mb4_general_ci PRIMARY KEY, version int NOT NULL)";
    let table = USERS_TABLE.replace("\"{users}:{id}\"", "\"{users}:id:{id}\"");
    followed_on::<MariaDb>(&["eventual"], &[], SCHEMA, &table, |_, follower, client, session| {
        follower.says("equal values of users can have different texts in id (varchar(20) COLLATE utf8mb4_general_ci)");
        follower.says("items of deleted rows stay in {users}");
        let mut is_absent = |id: &str| {
            let reply =
                client.call(&["BF.FETCH", "{users}", id, &format!("{{users}}:id:{id}"), "WHILE", "{users}:feed"]);
            reply.elements()[0].text() == "absent"
        };
        for statement in [
            "INSERT INTO users VALUES ('Bob', 1)",
            "UPDATE users SET id = 'bob' WHERE id = 'BOB'",
            "REPLACE INTO users VALUES ('boB ', 2)",
            "INSERT INTO users VALUES ('BOB', 3) ON DUPLICATE KEY UPDATE id = 'bOb'",
            "BEGIN; DELETE FROM users WHERE id = 'bob'; INSERT INTO users VALUES ('BOB', 4); COMMIT",
            "UPDATE users SET id = 'Bob'",
        ] {
            session.run(statement);
            let shown = session.run("SELECT id FROM users").concat();
            soon(|| is_absent("BoB") && !is_absent(&shown));
        }
        // The items of earlier texts stay, because a later row may have one of them.
        assert!(!["Bob", "bob", "boB ", "bOb", "BOB"].into_iter().any(&mut is_absent), "{}", follower.log());
    });
}

#[test]
fn a_locked_table_is_waited_for_and_ends_no_heartbeat() {
    on_every_server(|program| {
        let world = World::on_mariadb(program, USERS, USERS_TABLE);
        let (mut client, mut session) = (world.server.connect(), world.database.session());
        let mut other = world.database.session();
        other.run("CREATE TABLE others (id int AUTO_INCREMENT PRIMARY KEY)");
        session.run("LOCK TABLES users WRITE");
        let mut follower = world.follow();
        follower.says("Lock wait timeout exceeded; try restarting transaction; trying again");
        session.run("INSERT INTO users VALUES (1, 1); UNLOCK TABLES");
        agrees(&mut client, &mut session);
        let failures = follower.log().matches("trying again").count();
        session.run("LOCK TABLES users WRITE; INSERT INTO users VALUES (2, 1)");
        agrees(&mut client, &mut session);
        // Until there have been several heartbeats.
        for _ in 0..5 {
            let before = client.run("GET {users}:feed");
            other.run("INSERT INTO others VALUES ()");
            soon(|| client.run("GET {users}:feed") != before && beats(&mut client));
        }
        assert_eq!(follower.log().matches("trying again").count(), failures, "{}", follower.log());
        session.run("UNLOCK TABLES");
        follower.end();
    });
}

#[test]
fn a_transaction_in_the_log_is_applied_once_it_is_visible() {
    let setting = in_sql("--rpl-semi-sync-master-wait-point=AFTER_SYNC", "--plugin-load-add=semisync_source.so");
    followed(&[setting], USERS_TABLE, |world, _, client, session| {
        session.run("INSERT INTO users VALUES (1, 1)");
        agrees(client, session);
        // The COMMIT waits for a replica between the log and the engine.
        let semi_sync = semi_sync();
        session.run(&format!("SET GLOBAL {semi_sync}_timeout = 600000, GLOBAL {semi_sync}_enabled = ON"));
        let (before, mut writer) = (end(session), world.database.session());
        let commit = thread::spawn(move || writer.run("UPDATE users SET version = 2 WHERE id = 1"));
        soon(|| end(session) != before);
        client.run("SET {users}:1 old");
        // The follower has read the log's end, and no longer updates the heartbeat.
        soon(|| !beats(client));
        assert_eq!(session.run("SELECT version FROM users"), ["1"]);
        assert_ne!(client.run("GET {users}:1"), nil(2), "what a reader caches now is deleted later");
        session.run(&format!("SET GLOBAL {semi_sync}_enabled = OFF"));
        commit.join().unwrap();
        soon(|| client.run("GET {users}:1") == nil(2));
        agrees(client, session);
    });
}

#[test]
fn changes_that_the_log_lacks_fill_the_filter_again() {
    let key = "\"{users}:{id}\"";
    let table = USERS_TABLE.replace(key, &format!("[{key}, \"{{users}}:version:{{version}}\"]"));
    followed(&[], &table, |_, follower, client, session| {
        session
            .run("CREATE TABLE other (id int); CREATE TRIGGER t AFTER INSERT ON other FOR EACH ROW DELETE FROM users");
        session.run("INSERT INTO users VALUES (1, 1), (2, 1)");
        agrees(client, session);
        for (settings, statement, note) in [
            ("binlog_format = STATEMENT", "INSERT INTO other VALUES (1)", "a statement without its rows"),
            ("binlog_row_image = MINIMAL", "UPDATE users SET id = 12 WHERE id = 2", "has set binlog_row_image"),
        ] {
            session.run("SET binlog_format = ROW, binlog_row_image = FULL; REPLACE INTO users VALUES (1, 1), (2, 1)");
            agrees(client, session);
            session.run(&format!("SET {settings}; {statement}"));
            agrees(client, session);
            follower.says(note);
        }
        if is_mysql() {
            session.run("SET binlog_row_image = FULL; ALTER TABLE users ADD COLUMN body json");
            session.run("REPLACE INTO users VALUES (3, 1, '{\"name\": \"Ada\", \"age\": 36}')");
            agrees(client, session);
            session.run("SET binlog_row_value_options = PARTIAL_JSON");
            session.run("UPDATE users SET id = 13, body = JSON_SET(body, '$.age', 37) WHERE id = 3");
            agrees(client, session);
            follower.says("parts of JSON values");
        }
    });
}

#[test]
fn a_time_without_the_log_fills_the_filter_again() {
    let goes_on = in_sql("--binlog-format=ROW", "--binlog-error-action=IGNORE_ERROR");
    followed(&[goes_on], USERS_TABLE, |world, follower, client, session| {
        let index = world.database.socket().with_file_name("data").join("binlog.index");
        for (id, setting, reason, is_at_work) in [
            (1, "", "has closed its binary log", true),
            (10, "--skip-log-bin", "log_bin is OFF", true),
            (20, "--binlog-ignore-db=shop", "leaves out the database shop", true),
            (30, "--skip-log-bin", "log_bin is OFF", false),
        ] {
            session.run(&format!("INSERT INTO users VALUES ({id}, 1), ({}, 1)", id + 1));
            agrees(client, session);
            if !is_at_work {
                follower.end();
            }
            if setting.is_empty() {
                // The server can no longer write its log.
                fs::rename(&index, index.with_extension("kept")).unwrap();
                fs::create_dir(&index).unwrap();
                _ = session.try_run("FLUSH BINARY LOGS");
            } else {
                world.database.restart_with([setting.to_owned()]);
            }
            if is_at_work {
                follower.says(reason);
                soon(|| !beats(client));
            } else {
                world.refused(reason);
            }
            *session = world.database.session();
            session.run(&format!("DELETE FROM users WHERE id = {id}; INSERT INTO users VALUES ({}, 1)", id + 2));
            client.run(&format!("SET {{users}}:{id} old"));
            if setting.is_empty() {
                fs::remove_dir(&index).unwrap();
                fs::rename(index.with_extension("kept"), &index).unwrap();
            }
            world.database.restart();
            *session = world.database.session();
            session.run(&format!("INSERT INTO users VALUES ({}, 1)", id + 3));
            if !is_at_work {
                *follower = world.follow();
            }
            agrees(client, session);
            assert_eq!(client.run(&format!("GET {{users}}:{id}")), nil(2));
        }
    });
}

#[test]
fn a_follower_without_a_log_does_not_delete_an_active_followers_position() {
    followed(&[], USERS_TABLE, |world, follower, client, session| {
        world.database.restart_with(["--skip-log-bin".to_owned()]);
        follower.says("log_bin is OFF");
        // As another follower of a new primary does.
        client.run("SET {users}:feed:alive 1");
        client.run("SET {users}:feed:position p");
        // Each attempt opens two connections, and only the first failure is logged.
        let connections = |client: &mut Connection| client.info_number("total_connections_received");
        let before = connections(client);
        soon(|| connections(client) >= before + 4);
        assert_eq!(follower.log().matches("log_bin is OFF").count(), 1, "{}", follower.log());
        assert_eq!(client.run("EXISTS {users}:feed:position"), integer(1));
        client.run("DEL {users}:feed:alive");
        soon(|| client.run("EXISTS {users}:feed:position") == integer(0));
        world.database.restart();
        *session = world.database.session();
        session.run("INSERT INTO users VALUES (1, 1)");
        agrees(client, session);
    });
}

#[test]
fn tables_that_cannot_be_followed_are_refused() {
    on_every_server(|program| {
        let world = World::on_mariadb(program, USERS, USERS_TABLE);
        let mut session = world.database.session();
        session.run("CREATE TABLE parents (id bigint PRIMARY KEY)");
        for (setup, part, undo) in [
            ("SET GLOBAL binlog_format = MIXED", "binlog_format is MIXED", "SET GLOBAL binlog_format = ROW"),
            (
                "SET GLOBAL binlog_row_image = MINIMAL",
                "SET GLOBAL binlog_row_image = FULL",
                "SET GLOBAL binlog_row_image = FULL",
            ),
            ("SET GLOBAL read_only = ON", "follow the primary", "SET GLOBAL read_only = OFF"),
            (
                "SET GLOBAL innodb_flush_log_at_trx_commit = 0",
                "a crash loses commits",
                "SET GLOBAL innodb_flush_log_at_trx_commit = 2",
            ),
            ("ALTER TABLE users ENGINE = MyISAM", "has the engine MyISAM", "ALTER TABLE users ENGINE = InnoDB"),
            (
                "ALTER TABLE users ADD CONSTRAINT f FOREIGN KEY (id) REFERENCES parents (id) ON DELETE CASCADE",
                "FOREIGN KEY (`id`) REFERENCES `parents` (`id`) ON DELETE CASCADE: make it RESTRICT",
                "ALTER TABLE users DROP FOREIGN KEY f",
            ),
            (
                in_sql("ALTER TABLE users ADD SYSTEM VERSIONING", "SET GLOBAL gtid_mode = ON_PERMISSIVE"),
                in_sql("system versioning", "gtid_mode is ON_PERMISSIVE"),
                in_sql("ALTER TABLE users DROP SYSTEM VERSIONING", "SET GLOBAL gtid_mode = ON"),
            ),
            (
                "ALTER TABLE users MODIFY id double",
                "the column id, whose type is double",
                "ALTER TABLE users MODIFY id bigint",
            ),
            ("RENAME TABLE users TO others", "there is no table users", "RENAME TABLE others TO users"),
            (
                "CREATE VIEW seen AS SELECT * FROM users; RENAME TABLE users TO others, seen TO users",
                "but view",
                "DROP VIEW users; RENAME TABLE others TO users",
            ),
            (
                "REVOKE SELECT ON shop.* FROM gate@'127.0.0.1'",
                "needs GRANT SELECT on the tables",
                "GRANT SELECT ON shop.* TO gate@'127.0.0.1'",
            ),
            (
                "REVOKE REPLICATION SLAVE ON *.* FROM gate@'127.0.0.1'",
                "needs GRANT REPLICATION SLAVE ON *.*",
                "GRANT REPLICATION SLAVE ON *.* TO gate@'127.0.0.1'",
            ),
            (
                in_sql(
                    "REVOKE BINLOG MONITOR ON *.* FROM gate@'127.0.0.1'",
                    "REVOKE REPLICATION CLIENT ON *.* FROM gate@'127.0.0.1'",
                ),
                in_sql("needs GRANT BINLOG MONITOR ON *.*", "needs GRANT REPLICATION CLIENT ON *.*"),
                in_sql(
                    "GRANT BINLOG MONITOR ON *.* TO gate@'127.0.0.1'",
                    "GRANT REPLICATION CLIENT ON *.* TO gate@'127.0.0.1'",
                ),
            ),
        ] {
            session.run(setup);
            world.refused(part);
            session.run(undo);
        }
        let other = MariaDb::start(&["--server-id=2", "--binlog-ignore-db=shop"]);
        if !is_mysql() {
            let position = other.session().run("SELECT @@gtid_binlog_pos").concat();
            session.run(&format!(
                "SET GLOBAL gtid_slave_pos = '{position}'; CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, \
                 MASTER_USER = 'gate', MASTER_PASSWORD = 'secret', MASTER_USE_GTID = slave_pos; START SLAVE",
                other.port()
            ));
            soon(|| session.run("SHOW GLOBAL STATUS LIKE 'Slaves_running'") == ["Slaves_running\t1"]);
            world.refused("set log_slave_updates = ON");
            session.run("STOP SLAVE; RESET SLAVE ALL");
        }
        other.session().run(USERS);
        world.configure_for(&other, USERS_TABLE);
        world.refused("leaves out the database shop");
        world.configure(USERS_TABLE);
        world.edit("\"eventual\"", "\"synchronous\"");
        world.refused("COMMIT of MariaDB and MySQL cannot wait");
        world.configure(USERS_TABLE);
        // While the follower is running.
        let mut follower = world.following();
        let mut client = world.server.connect();
        session.run("SET GLOBAL read_only = ON");
        follower.says("no heartbeat: the database's read_only is ON");
        soon(|| !beats(&mut client));
        session.run("SET GLOBAL read_only = OFF");
        agrees(&mut client, &mut session);
        session.run("ALTER TABLE users ADD CONSTRAINT f FOREIGN KEY (id) REFERENCES parents (id) ON DELETE CASCADE");
        follower.says("make it RESTRICT");
        session.run("ALTER TABLE users DROP FOREIGN KEY f; INSERT INTO users VALUES (1, 1)");
        agrees(&mut client, &mut session);
        assert_eq!(client.run("EXISTS {users}:feed"), integer(1));
        follower.end();
    });
}

#[test]
fn a_database_that_does_not_answer_is_left() {
    followed(&[], USERS_TABLE, |world, follower, client, session| {
        session.run("INSERT INTO users VALUES (1, 1)");
        agrees(client, session);
        send("STOP", world.database.process_id());
        follower.says("the database does not answer; trying again");
        soon(|| !beats(client));
        send("CONT", world.database.process_id());
        session.run("DELETE FROM users WHERE id = 1; INSERT INTO users VALUES (2, 1)");
        agrees(client, session);
        assert_eq!(follower.log().matches("filling").count(), 1, "{}", follower.log());
    });
}

#[test]
fn connections_are_encrypted() {
    on_every_server(|program| {
        let folder = tempfile::tempdir().unwrap();
        certificates(folder.path());
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let settings = [format!("--ssl-cert={}", path("server.crt")), format!("--ssl-key={}", path("server.key"))];
        let world = World::between(
            "eventual",
            MariaDb::start(&settings.each_ref().map(String::as_str)),
            Server::with(program),
            USERS,
            USERS_TABLE,
        );
        let mut session = world.database.session();
        session.run("ALTER USER gate@'127.0.0.1' REQUIRE SSL");
        world.refused("the account requires TLS (`?sslmode=require` at the end of the URL): ERROR 1045");
        world.edit("/shop\"", "/shop?sslmode=require\"");
        let follow = |authority: &str| {
            let mut follow = command([OsStr::new("follow"), world.path().as_os_str()]);
            follow.env("SSL_CERT_FILE", authority);
            follow
        };
        Ended::from(follow("/dev/null").output().unwrap())
            .refused("SSL_CERT_FILE names a file with its certificate): invalid peer certificate");
        let _follower = Running(follow(&path("ca.crt")).spawn().unwrap());
        session.run("INSERT INTO users VALUES (1, 1)");
        agrees(&mut world.server.connect(), &mut session);
    });
}

#[test]
fn a_follower_continues_after_a_failover_to_a_replica() {
    followed(&["--log-slave-updates=ON"], USERS_TABLE, |world, follower, client, session| {
        let replica = world.database.replica();
        *session = world.database.session();
        session
            .run("BEGIN; INSERT INTO users VALUES (1, 1), (2, 1); UPDATE users SET version = 3 WHERE id = 2; COMMIT");
        agrees(client, session);
        // After a fill that includes them, the follower has no transaction after which it could continue.
        session.run("DELETE FROM users WHERE id = 1");
        agrees(client, session);
        follower.end();
        world.database.promote(&replica);
        let mut other = replica.session();
        other.run("INSERT INTO users VALUES (3, 1)");
        world.configure_for(&replica, USERS_TABLE);
        *follower = world.following();
        agrees(client, &mut other);
        assert!(!follower.log().contains("filling"), "{}", follower.log());
    });
}

/// Returns the settings of a node of Galera with this port. Without the port of another node, it begins a cluster.
fn galera(port: u16, other: Option<u16>) -> [String; 6] {
    let others = other.map(|port| format!("127.0.0.1:{port}")).unwrap_or_default();
    [
        "--wsrep-on=ON".to_owned(),
        "--wsrep-provider=/usr/lib/galera/libgalera_smm.so".to_owned(),
        format!(
            "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{port};ist.recv_addr=127.0.0.1:{}",
            free_port()
        ),
        "--wsrep-node-address=127.0.0.1".to_owned(),
        "--wsrep-sst-method=skip".to_owned(),
        format!("--wsrep-cluster-address=gcomm://{others}"),
    ]
}

#[test]
#[ignore = "needs the library of Galera, which Debian installs with MariaDB"]
fn a_node_of_galera_stands_for_all_nodes() {
    const GTIDS: [&str; 3] = ["--log-slave-updates=ON", "--wsrep-gtid-mode=ON", "--wsrep-gtid-domain-id=1"];
    on_every_server(|program| {
        let mut world = World::between("eventual", MariaDb::start(&GTIDS), Server::with(program), USERS, USERS_TABLE);
        let mut second = MariaDb::start(&GTIDS);
        second.session().run(USERS);
        let ports = [free_port(), free_port()];
        world.database.restart_with(galera(ports[0], None));
        // The second node begins with the first node's data.
        let state = "SHOW STATUS WHERE Variable_name IN ('wsrep_cluster_state_uuid', 'wsrep_last_committed')";
        let state = world.database.session().run(state);
        let [sequence, cluster] = [0, 1].map(|at| state[at].split_once('\t').unwrap().1);
        let state = format!("# GALERA saved state\nversion: 2.1\nuuid: {cluster}\nseqno: {sequence}\n");
        fs::write(second.socket().with_file_name("data").join("grastate.dat"), state).unwrap();
        second.restart_with(galera(ports[1], Some(ports[0])));
        // A node that joins closes its connections.
        soon(|| {
            let state = "SHOW STATUS LIKE 'wsrep_local_state_comment'";
            let reply = Session::connect(&second.socket()).and_then(|mut session| session.try_run(state));
            reply.is_ok_and(|rows| rows.concat().ends_with("Synced"))
        });
        let mut client = world.server.connect();
        let (mut session, mut other) = (world.database.session(), second.session());
        // A SELECT shows the other node's commits.
        for session in [&mut session, &mut other] {
            session.run("SET SESSION wsrep_sync_wait = 1");
        }
        let mut follower = world.following();
        other.run("INSERT INTO users VALUES (1, 1), (2, 1); DELETE FROM users WHERE id = 1");
        session.run("INSERT INTO users VALUES (3, 1)");
        agrees(&mut client, &mut other);
        // The node is behind the other one for longer than max-lag.
        session.run("FLUSH TABLES WITH READ LOCK");
        other.run("INSERT INTO users VALUES (4, 1)");
        soon(|| !beats(&mut client));
        assert!(!has(&mut client, 4), "{}", follower.log());
        session.run("UNLOCK TABLES");
        agrees(&mut client, &mut other);
        // The other node has the same log.
        follower.end();
        session.run("DELETE FROM users WHERE id = 2");
        world.configure_for(&second, USERS_TABLE);
        follower = world.following();
        agrees(&mut client, &mut session);
        assert!(!follower.log().contains("filling"), "{}", follower.log());
        follower.end();

        let settings = galera(free_port(), None);
        let lone = MariaDb::start(&settings.each_ref().map(String::as_str));
        lone.session().run(USERS);
        world.configure_for(&lone, USERS_TABLE);
        world.refused("set log_slave_updates = ON");
    });
}
