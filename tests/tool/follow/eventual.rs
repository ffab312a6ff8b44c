//! Eventual mode, and tests of both modes: fills, takeovers, several tables, configurations.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;

use super::servers::MEMBERS_TABLE;
use super::synchronous::{answer, look_up, open_keys};
use super::{MODES, One, Sql, USERS, USERS_TABLE, World, beats, followed, has, soon};
use testing::{Reply, bulk, integer, nil, on_every_server};

#[test]
fn a_row_that_is_inserted_again_with_a_truncation_is_never_absent() {
    followed(&["eventual"], USERS, USERS_TABLE, |_, _, client, writer| {
        writer.run("INSERT INTO users VALUES (1, 1)");
        // The scan for cached values takes a while.
        client.run("DEBUG POPULATE 1000000 other 1");
        writer.run("BEGIN; TRUNCATE users; INSERT INTO users VALUES (1, 2), (2, 1); COMMIT");
        let mut is_applied = false;
        while !is_applied {
            is_applied = beats(client) && has(client, 2);
            assert_ne!(answer(client, 1), "absent");
        }
    });
}

#[test]
fn a_row_that_is_cached_before_its_change_is_visible_does_not_stay_in_the_cache() {
    followed(&["eventual"], USERS, USERS_TABLE, |world, _, client, reader| {
        let mut writer = world.session();
        writer.run("INSERT INTO users VALUES (1, 1)");
        soon(|| has(client, 1));
        world.demand_ghost("ghost");
        let read_the_old_row = || {
            let text = "SELECT coalesce(bool_and(sent_lsn >= pg_current_wal_lsn()), false) FROM pg_stat_replication";
            soon(|| writer.one(text));
            for _ in 0..200 {
                assert_eq!(look_up(client, reader, 1), Some(1));
            }
        };
        world.while_waiting(&["UPDATE users SET version = 2 WHERE id = 1"], read_the_old_row, || world.demand(""));
        // Transactions are applied in the order of the log.
        writer.run("INSERT INTO users VALUES (2, 1)");
        soon(|| has(client, 2));
        assert_eq!(look_up(client, reader, 1), Some(2));
    });
}

#[test]
fn a_lost_or_older_filter_is_filled_again() {
    followed(&MODES, USERS, USERS_TABLE, |world, follower, client, session| {
        session.run("INSERT INTO users SELECT id, 1 FROM generate_series(1, 2000) id");
        soon(|| has(client, 2000));
        let (dump, position) = (client.run("DUMP {users}"), client.run("GET {users}:feed:position"));
        // While the follower is running.
        client.run("DEL {users}");
        let changes = "INSERT INTO users VALUES (2001, 1); DELETE FROM users WHERE id = 2000";
        session.run(&format!("{changes}; UPDATE users SET version = 2 WHERE id = 5"));
        if world.mode == "synchronous" {
            assert_ne!(answer(client, 2001), "absent");
        }
        soon(|| has(client, 2001) && has(client, 1));
        soon(|| answer(client, 2000) == "absent" && look_up(client, session, 5) == Some(2));
        follower.end();
        // A server that returns with older data, including an old value and an entry that was released long ago.
        world.demand("");
        client.call(&[&b"RESTORE"[..], b"{users}", b"0", dump.bytes(), b"REPLACE"]);
        client.call(&[&b"SET"[..], b"{users}:feed:position", position.bytes()]);
        client.run("SET {users}:5 1");
        if world.mode == "synchronous" {
            client.run("HSET {users}:feed:open {users}:6 0/0");
        }
        client.run("DEL {users}:feed");
        *follower = world.following();
        follower.says("has lost data");
        assert_eq!((look_up(client, session, 5), open_keys(client)), (Some(2), 0));
        assert!(has(client, 2001));
    });
}

#[test]
fn several_tables_with_composite_keys_and_several_cache_keys() {
    const SCHEMA: &str = "CREATE TABLE users (id bigint PRIMARY KEY, version int NOT NULL);
        CREATE TABLE members (team int, name text, mail text, PRIMARY KEY (team, name));
        ALTER TABLE members REPLICA IDENTITY FULL;
        CREATE PUBLICATION bloomgate FOR TABLE users, members";
    on_every_server(|program| {
        let key = "\"{members}:{team}/{name}\"";
        let members = MEMBERS_TABLE.replace(key, &format!("[{key}, \"{{members}}:mail:{{mail}}\"]"));
        let world = World::new(program, SCHEMA, &format!("{USERS_TABLE}{members}"));
        let mut writer = world.session();
        writer.execute("INSERT INTO members VALUES (1, $1, 'a@x')", &[&"tab\tnew\nline\\"]).unwrap();
        let mut follower = world.following();
        let mut client = world.server.connect();
        assert_eq!(client.call(&["BF.EXISTS", "{members}", "1/tab\tnew\nline\\"]), integer(1));
        writer.run("INSERT INTO members VALUES (2, 'b', 'b@x'), (3, 'c', NULL); INSERT INTO users VALUES (1, 1)");
        soon(|| client.run("BF.EXISTS {members} 3/c") == integer(1) && has(&mut client, 1));
        for key in ["{members}:2/b", "{members}:mail:b@x", "{members}:mail:new@x", "{members}:mail:other@x"] {
            client.call(&["SET", key, "old"]);
        }
        writer.run("UPDATE members SET mail = 'new@x' WHERE team = 2");
        for key in ["{members}:2/b", "{members}:mail:b@x", "{members}:mail:new@x"] {
            soon(|| client.call(&["GET", key]) == nil(2));
        }
        assert_eq!(client.call(&["GET", "{members}:mail:other@x"]), bulk("old"));
        follower.says("items of deleted rows stay in {members}");
        follower.end();
    });
}

#[test]
fn tables_that_cannot_be_followed_are_refused_in_one_line() {
    on_every_server(|program| {
        let world = World::new(program, USERS, USERS_TABLE);
        let mut session = world.session();
        let refused = |tables: &str, part: &str| {
            world.configure(tables);
            world.refused(part);
        };
        refused(&USERS_TABLE.replace("{id}\"", "{idd}\""), "no column idd");
        refused(&USERS_TABLE.replace("{id}\"", "{version}\""), "REPLICA IDENTITY FULL");
        refused(&USERS_TABLE.replace("public.users", "nothing"), "there is no table nothing");
        refused(&USERS_TABLE.replace("0.000001 100000", "2 100000"), "error rate");
        refused("", "[[table]]");
        session.run("DROP PUBLICATION bloomgate");
        refused(USERS_TABLE, "CREATE PUBLICATION bloomgate FOR TABLE users");
        session.run("CREATE PUBLICATION bloomgate");
        refused(USERS_TABLE, "ALTER PUBLICATION bloomgate ADD TABLE users");
        session.run("ALTER PUBLICATION bloomgate ADD TABLE users");
        session.run("CREATE UNLOGGED TABLE loose (id int PRIMARY KEY)");
        refused(&USERS_TABLE.replace("public.users", "loose"), "unlogged");
        let mut client = world.server.connect();
        client.run("CONFIG SET maxmemory-policy allkeys-lru");
        refused(USERS_TABLE, "allkeys-lru");
    });
}

#[test]
fn an_open_transaction_ends_no_heartbeat() {
    followed(&MODES, USERS, USERS_TABLE, |_, _, client, session| {
        let text = "SELECT pid::text FROM pg_stat_activity WHERE backend_type = 'background writer'";
        let writer: String = session.one(text);
        // Otherwise it would flush the log after 15 s, and autovacuum would later.
        session.run("ALTER SYSTEM SET autovacuum = off");
        session.run("SELECT pg_reload_conf()");
        // Not by `send`: the new configuration's signal may wait until the process continues.
        let signal = |signal: &str| Command::new("kill").args([signal, writer.as_str()]).status().unwrap();
        assert!(signal("-STOP").success());
        session.run("BEGIN; INSERT INTO users VALUES (1, 1)");
        let begin_s: u64 = client.run("TIME").elements()[0].text().parse().unwrap();
        let has_passed = |beat: Reply| {
            let time_ms = |beat: &Reply| beat.text().lines().next().unwrap().parse::<u64>().unwrap();
            beat != nil(2) && time_ms(&beat) >= (begin_s + 1) * 1000
        };
        soon(|| has_passed(client.run("GET {users}:feed")));
        assert!(signal("-CONT").success());
        session.run("COMMIT");
        soon(|| has(client, 1));
    });
}

#[test]
fn a_large_transaction_does_not_hold_the_server_up() {
    const ROWS: usize = 50_000;
    followed(&MODES, USERS, USERS_TABLE, |world, _, _, _| {
        let mut monitor = TcpStream::connect(("127.0.0.1", world.server.port)).unwrap();
        monitor.write_all(b"MONITOR\r\n").unwrap();
        let insert = format!("INSERT INTO users SELECT id, 1 FROM generate_series(1, {ROWS}) id");
        world.session().run(&insert);
        // The number of commands with a thousand rows each, and the largest number of them in one MULTI.
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
        assert!(most <= 10, "{most} of {commands} commands at once");
        let mut client = world.server.connect();
        soon(|| client.run(&format!("BF.EXISTS {{users}} {ROWS}")) == integer(1));
    });
}
