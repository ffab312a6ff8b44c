//! Eventual mode, and what both modes share: fills, takeovers, several tables, configurations.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use postgres::Client;

use super::{USERS, USERS_TABLE, World, in_both_modes, soon};
use crate::running::run;
use testing::{Connection, Reply, bulk, integer, nil, on_every_server};

/// The answer to a reader, without its token.
fn fetch(client: &mut Connection, id: u64) -> String {
    let id = id.to_string();
    let key = format!("{{users}}:{id}");
    match client.call(&["BF.FETCH", "{users}", &id, &key, "WHILE", "{users}:feed"]) {
        Reply::Array(parts) => parts[0].text(),
        other => panic!("{other:?}"),
    }
}

/// Asks the database for what the cache lacks, as an application does.
fn look_up(client: &mut Connection, database: &mut Client, id: u64) -> Option<i32> {
    let (text, key) = (id.to_string(), format!("{{users}}:{id}"));
    for _ in 0..1000 {
        let reply = client.call(&["BF.FETCH", "{users}", &text, &key, "LEASE", "2000", "WHILE", "{users}:feed"]);
        let Reply::Array(parts) = reply else { panic!("{reply:?}") };
        match parts[0].text().as_str() {
            "absent" => return None,
            "hit" => return Some(parts[1].text().parse().unwrap()),
            "load" => {
                let row = database.query_opt("SELECT version FROM users WHERE id = $1", &[&(id as i64)]).unwrap();
                let version: Option<i32> = row.map(|row| row.get(0));
                let token = parts[1].text();
                let fill = ["BF.FILL", "{users}", &text, &key, &token];
                let value = version.map(|version| version.to_string());
                let end: &[&str] = match &value {
                    Some(value) => &["VALUE", value, "EX", "60"],
                    None => &["NONE", "EX", "60"],
                };
                client.call(&[&fill[..], end].concat());
                return version;
            }
            _ => thread::sleep(Duration::from_millis(2)),
        }
    }
    panic!("another reader has had the lease for too long");
}

#[test]
fn rows_of_unmodified_writers_are_let_through_changed_and_denied() {
    on_every_server(|program| {
        let world = World::new(program, USERS, USERS_TABLE);
        let (mut writer, mut reader) = (world.session(), world.session());
        writer.batch_execute("INSERT INTO users SELECT id, 1 FROM generate_series(1, 3000) id").unwrap();
        let mut follower = world.following();
        let mut client = world.server.connect();
        assert_eq!((fetch(&mut client, 3000).as_str(), fetch(&mut client, 3001).as_str()), ("load", "absent"));

        writer.batch_execute("INSERT INTO users VALUES (3001, 1)").unwrap();
        soon(|| fetch(&mut client, 3001) != "absent");
        assert_eq!(look_up(&mut client, &mut reader, 7), Some(1));
        assert_eq!(fetch(&mut client, 7), "hit");

        writer.batch_execute("UPDATE users SET version = 2 WHERE id = 7").unwrap();
        soon(|| look_up(&mut client, &mut reader, 7) == Some(2));
        // A changed key is a deleted row and a new one.
        writer.batch_execute("UPDATE users SET id = 9000 WHERE id = 7; DELETE FROM users WHERE id = 8").unwrap();
        soon(|| {
            fetch(&mut client, 9000) != "absent"
                && fetch(&mut client, 7) == "absent"
                && fetch(&mut client, 8) == "absent"
        });
        // What is deleted and inserted again in one transaction stays.
        writer.batch_execute("BEGIN; DELETE FROM users WHERE id = 9; INSERT INTO users VALUES (9, 5); COMMIT").unwrap();
        soon(|| look_up(&mut client, &mut reader, 9) == Some(5));

        assert_eq!(look_up(&mut client, &mut reader, 20), Some(1));
        writer.batch_execute("TRUNCATE users; INSERT INTO users VALUES (21, 1)").unwrap();
        soon(|| fetch(&mut client, 20) == "absent" && look_up(&mut client, &mut reader, 21) == Some(1));
        follower.end();
    });
}

#[test]
fn a_row_that_is_inserted_again_with_a_truncation_is_never_absent() {
    on_every_server(|program| {
        let world = World::new(program, USERS, USERS_TABLE);
        let mut writer = world.session();
        writer.batch_execute("INSERT INTO users VALUES (1, 1)").unwrap();
        let mut follower = world.following();
        let mut client = world.server.connect();
        // The scan for cached values takes a while.
        client.run("DEBUG POPULATE 1000000 other 1");
        writer.batch_execute("BEGIN; TRUNCATE users; INSERT INTO users VALUES (1, 2), (2, 1); COMMIT").unwrap();
        let mut is_applied = false;
        while !is_applied {
            is_applied =
                client.run("EXISTS {users}:feed") == integer(1) && client.run("BF.EXISTS {users} 2") == integer(1);
            assert_ne!(fetch(&mut client, 1), "absent");
        }
        follower.end();
    });
}

#[test]
fn a_row_that_is_cached_before_its_change_is_visible_does_not_stay_in_the_cache() {
    on_every_server(|program| {
        let world = World::new(program, USERS, USERS_TABLE);
        let (mut writer, mut reader) = (world.session(), world.session());
        writer.batch_execute("INSERT INTO users VALUES (1, 1)").unwrap();
        let mut follower = world.following();
        let mut client = world.server.connect();
        world.demand_ghost("ghost");
        let read_the_old_row = || {
            let text = "SELECT coalesce(bool_and(sent_lsn >= pg_current_wal_lsn()), false) FROM pg_stat_replication";
            soon(|| writer.query_one(text, &[]).unwrap().get(0));
            let mut client = world.server.connect();
            for _ in 0..200 {
                assert_eq!(look_up(&mut client, &mut reader, 1), Some(1));
            }
        };
        world.while_waiting(&["UPDATE users SET version = 2 WHERE id = 1"], read_the_old_row, || world.demand(""));
        let mut reader = world.session();
        // Transactions are applied in the order of the log.
        writer.batch_execute("INSERT INTO users VALUES (2, 1)").unwrap();
        soon(|| client.run("BF.EXISTS {users} 2") == integer(1));
        assert_eq!(look_up(&mut client, &mut reader, 1), Some(2));
        follower.end();
    });
}

#[test]
fn rolled_back_rows_and_other_tables_change_nothing() {
    on_every_server(|program| {
        let world = World::new(program, USERS, USERS_TABLE);
        let mut writer = world.session();
        writer.batch_execute("CREATE TABLE others (id int PRIMARY KEY); INSERT INTO users VALUES (1, 1)").unwrap();
        let mut follower = world.following();
        let mut client = world.server.connect();
        writer
            .batch_execute("BEGIN; INSERT INTO users VALUES (2, 1); ROLLBACK; INSERT INTO others VALUES (1)")
            .unwrap();
        writer
            .batch_execute("BEGIN; INSERT INTO users VALUES (3, 1); SAVEPOINT s; INSERT INTO users VALUES (4, 1); ROLLBACK TO s; COMMIT")
            .unwrap();
        soon(|| fetch(&mut client, 3) != "absent");
        assert_eq!((fetch(&mut client, 2).as_str(), fetch(&mut client, 4).as_str()), ("absent", "absent"));
        follower.end();
    });
}

#[test]
fn without_a_follower_nothing_is_denied_after_the_lag() {
    on_every_server(|program| {
        let world = World::new(program, USERS, USERS_TABLE);
        world.session().batch_execute("INSERT INTO users VALUES (1, 1)").unwrap();
        let follower = world.following();
        let mut client = world.server.connect();
        assert_eq!(fetch(&mut client, 2), "absent");
        drop(follower);
        world.session().batch_execute("INSERT INTO users VALUES (2, 1)").unwrap();
        soon(|| client.run("EXISTS {users}:feed") == integer(0));
        assert_eq!(fetch(&mut client, 2), "load");
        let mut follower = world.following();
        follower.says("continues at");
        assert_eq!(client.run("BF.EXISTS {users} 2"), integer(1));
        follower.end();
    });
}

#[test]
fn a_lost_or_older_filter_is_filled_again() {
    on_every_server(|program| {
        let world = World::new(program, USERS, USERS_TABLE);
        let (mut writer, mut reader) = (world.session(), world.session());
        writer.batch_execute("INSERT INTO users SELECT id, 1 FROM generate_series(1, 100) id").unwrap();
        let mut follower = world.following();
        let mut client = world.server.connect();
        let dump = match client.run("DUMP {users}") {
            Reply::Bulk(dump) => dump,
            other => panic!("{other:?}"),
        };
        let position = client.run("GET {users}:feed:position");
        // While it runs.
        client.run("DEL {users}");
        writer.batch_execute("INSERT INTO users VALUES (101, 1)").unwrap();
        soon(|| client.run("BF.EXISTS {users} 100") == integer(1));
        assert_eq!(look_up(&mut client, &mut reader, 5), Some(1));
        writer.batch_execute("UPDATE users SET version = 2 WHERE id = 5; INSERT INTO users VALUES (102, 1)").unwrap();
        soon(|| fetch(&mut client, 102) != "absent" && look_up(&mut client, &mut reader, 5) == Some(2));
        follower.end();
        // A server that comes back with data of an earlier time: the filter, the position and a cached value.
        let Reply::Bulk(position) = position else { panic!("no position") };
        client.call(&[&b"RESTORE"[..], b"{users}", b"0", &dump, b"REPLACE"]);
        client.call(&[&b"SET"[..], b"{users}:feed:position", &position]);
        client.run("SET {users}:5 1");
        let mut follower = world.following();
        follower.says("has lost data");
        assert_eq!(look_up(&mut client, &mut reader, 5), Some(2));
        assert_eq!(client.run("BF.EXISTS {users} 102"), integer(1));
        follower.end();
    });
}

#[test]
fn another_follower_stands_by_and_takes_over() {
    on_every_server(|program| {
        let world = World::new(program, USERS, USERS_TABLE);
        let first = world.following();
        let mut second = world.follow();
        second.says("standing by");
        drop(first);
        let mut client = world.server.connect();
        second.says("continues at");
        world.session().batch_execute("INSERT INTO users VALUES (1, 1)").unwrap();
        soon(|| client.run("BF.EXISTS {users} 1") == integer(1));
        second.end();
    });
}

#[test]
fn several_tables_with_composite_keys_and_several_cache_keys() {
    const SCHEMA: &str = "CREATE TABLE users (id bigint PRIMARY KEY, version int NOT NULL);
        CREATE TABLE members (team int, name text, mail text, PRIMARY KEY (team, name));
        ALTER TABLE members REPLICA IDENTITY FULL;
        CREATE PUBLICATION bloomgate FOR TABLE users, members";
    const MEMBERS: &str = r#"
[[table]]
name = "members"
filter = "{members}"
create = "0.000001 1000 HASH siphash"
item = "{team}/{name}"
cache-key = ["{members}:{team}/{name}", "{members}:mail:{mail}"]
max-lag = "2s"
"#;
    on_every_server(|program| {
        let world = World::new(program, SCHEMA, &format!("{USERS_TABLE}{MEMBERS}"));
        let mut writer = world.session();
        writer.execute("INSERT INTO members VALUES (1, $1, 'a@x')", &[&"tab\tnew\nline\\"]).unwrap();
        let mut follower = world.following();
        let mut client = world.server.connect();
        assert_eq!(client.call(&["BF.EXISTS", "{members}", "1/tab\tnew\nline\\"]), integer(1));
        writer
            .batch_execute(
                "INSERT INTO members VALUES (2, 'b', 'b@x'), (3, 'c', NULL); INSERT INTO users VALUES (1, 1)",
            )
            .unwrap();
        soon(|| client.run("BF.EXISTS {members} 3/c") == integer(1) && client.run("BF.EXISTS {users} 1") == integer(1));
        for key in ["{members}:2/b", "{members}:mail:b@x", "{members}:mail:new@x", "{members}:mail:other@x"] {
            client.call(&["SET", key, "old"]);
        }
        writer.batch_execute("UPDATE members SET mail = 'new@x' WHERE team = 2").unwrap();
        for key in ["{members}:2/b", "{members}:mail:b@x", "{members}:mail:new@x"] {
            soon(|| client.call(&["GET", key]) == nil(2));
        }
        assert_eq!(client.call(&["GET", "{members}:mail:other@x"]), bulk("old"));
        follower.says("items of deleted rows stay in {members}");
        follower.end();
    });
}

#[test]
fn what_cannot_be_followed_is_refused_in_one_line() {
    on_every_server(|program| {
        let world = World::new(program, USERS, USERS_TABLE);
        let mut session = world.session();
        let refused = |tables: &str, part: &str| {
            world.configure(tables);
            run([std::ffi::OsStr::new("follow"), world.path().as_os_str()]).refused(part);
        };
        refused(&USERS_TABLE.replace("{id}\"", "{idd}\""), "no column idd");
        refused(&USERS_TABLE.replace("{id}\"", "{version}\""), "REPLICA IDENTITY FULL");
        refused(&USERS_TABLE.replace("public.users", "nothing"), "there is no table nothing");
        refused(&USERS_TABLE.replace("0.000001 100000", "2 100000"), "error rate");
        refused("", "[[table]]");
        session.batch_execute("DROP PUBLICATION bloomgate").unwrap();
        refused(USERS_TABLE, "CREATE PUBLICATION bloomgate FOR TABLE users");
        session.batch_execute("CREATE PUBLICATION bloomgate").unwrap();
        refused(USERS_TABLE, "ALTER PUBLICATION bloomgate ADD TABLE users");
        session
            .batch_execute("ALTER PUBLICATION bloomgate ADD TABLE users; ALTER TABLE users SET UNLOGGED")
            .unwrap_err();
        session
            .batch_execute(
                "ALTER PUBLICATION bloomgate ADD TABLE users; CREATE UNLOGGED TABLE loose (id int PRIMARY KEY)",
            )
            .unwrap();
        refused(&USERS_TABLE.replace("public.users", "loose"), "unlogged");
        let mut client = world.server.connect();
        client.run("CONFIG SET maxmemory-policy allkeys-lru");
        refused(USERS_TABLE, "allkeys-lru");
    });
}

#[test]
fn an_open_transaction_ends_no_heartbeat() {
    in_both_modes(|mode, program| {
        let (world, mut follower) = World::started(mode, program, USERS, USERS_TABLE);
        let (mut client, mut session) = (world.server.connect(), world.session());
        let text = "SELECT pid::text FROM pg_stat_activity WHERE backend_type = 'background writer'";
        let writer: String = session.query_one(text, &[]).unwrap().get(0);
        // It would flush the log after 15 s, and autovacuum later.
        session.batch_execute("ALTER SYSTEM SET autovacuum = off").unwrap();
        session.batch_execute("SELECT pg_reload_conf()").unwrap();
        let signal = |signal: &str| Command::new("kill").args([signal, writer.as_str()]).status().unwrap();
        assert!(signal("-STOP").success());
        session.batch_execute("BEGIN; INSERT INTO users VALUES (1, 1)").unwrap();
        let end: String = session.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).unwrap().get(0);
        let mut has_passed = |beat: Reply| {
            let text = format!("SELECT $1::text::pg_lsn >= '{end}'");
            beat != nil(2) && session.query_one(&text, &[&beat.text()]).unwrap().get(0)
        };
        soon(|| has_passed(client.run("GET {users}:feed")));
        assert!(signal("-CONT").success());
        session.batch_execute("COMMIT").unwrap();
        soon(|| client.run("BF.EXISTS {users} 1") == integer(1));
        follower.end();
    });
}

#[test]
fn a_large_transaction_does_not_hold_the_server_up() {
    const ROWS: usize = 50_000;
    in_both_modes(|mode, program| {
        let (world, mut follower) = World::started(mode, program, USERS, USERS_TABLE);
        let mut monitor = TcpStream::connect(("127.0.0.1", world.server.port)).unwrap();
        monitor.write_all(b"MONITOR\r\n").unwrap();
        let insert = format!("INSERT INTO users SELECT id, 1 FROM generate_series(1, {ROWS}) id");
        world.session().batch_execute(&insert).unwrap();
        // The number of commands with a thousand rows each, and the most of them in one transaction of the server.
        let (mut commands, mut most, mut together) = (0, 0, 0);
        for line in BufReader::new(monitor).lines() {
            let line = line.unwrap().to_ascii_lowercase();
            if line.contains("\"exec\"") {
                together = 0;
                if commands >= ROWS / 1000 {
                    break;
                }
            }
            if line.contains("\"bf.mchanged\"") {
                commands += 1;
                together += 1;
                most = most.max(together);
            }
        }
        assert!(most <= 10, "{mode}: {most} of {commands} commands at once");
        let mut client = world.server.connect();
        soon(|| client.run(&format!("BF.EXISTS {{users}} {ROWS}")) == integer(1));
        follower.end();
    });
}
