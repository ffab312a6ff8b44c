//! JSON changes in the formats of Debezium, Canal and Maxwell, from a Redis stream and from standard input.

use std::io::Write;
use std::path::PathBuf;
use std::process::{ChildStdin, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;
use testing::{Builder, Connection, Server, Stop, integer, nil, on_every_server};

use super::{Follower, beats, has, permissions, permissions_for, soon};
use crate::running::{run, run_with, url};

const FORMATS: [&str; 3] = ["debezium", "canal", "maxwell"];

const TABLE: &str = r#"
[[table]]
name = "shop.users"
key = { id = "integer" }
filter = "{users}"
create = "0.000001 100000 HASH siphash"
item = "{id}"
cache-key = ["{users}:{id}", "{users}:mail:{mail}"]
max-lag = "1h"
"#;

/// The cache keys of the rows in the fixtures.
const KEYS: [&str; 10] =
    ["1", "2", "3", "4", "5", "mail:ada@x", "mail:grace@x", "mail:hopper@x", "mail:joan@x", "mail:mail@x"];

/// The time when the last fixture was recorded, in seconds since 1970.
const RECORDED: u64 = 1_795_830_065;

/// A server, and the configuration of a follower with the stream `changes` or with standard input.
struct World {
    format: &'static str,
    has_stream: bool,
    server: Server,
    folder: TempDir,
}

impl World {
    fn new(server: Builder, format: &'static str, has_stream: bool) -> Self {
        let stream = permissions_for("stream").replace("~shop", "~changes");
        let user = format!("user follower on >secret {} {stream}", permissions());
        let (server, folder) = (server.line(&user).start(), tempfile::tempdir().unwrap());
        let world = Self { format, has_stream, server, folder };
        world.configure(TABLE);
        world
    }

    fn configure(&self, tables: &str) {
        let stream = if self.has_stream { "stream = \"changes\"" } else { "" };
        let text = format!(
            "server = \"redis://follower:secret@127.0.0.1:{}\"\n[source]\nkind = \"json\"\nformat = \"{}\"\n{stream}\n{tables}",
            self.server.port, self.format
        );
        std::fs::write(self.path(), text).unwrap();
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("follow.toml")
    }

    /// Fills the filter with these ids.
    fn load(&self, ids: &str) {
        let url = url(&self.server);
        let create = ["--key", "{users}", "--create", "0.000001", "100000", "--", "HASH", "siphash"];
        run_with([&["load", "--url", &url, "-"], &create[..]].concat(), ids).success();
    }

    fn follow(&self) -> (Follower, Option<ChildStdin>) {
        let mut follower = Follower::start(&self.path(), Stdio::piped(), self.format);
        let stdin = follower.running.0.stdin.take();
        (follower, stdin.filter(|_| !self.has_stream))
    }

    /// Follows these lines of standard input to the end.
    fn pipe(&self, lines: &[String]) -> Follower {
        let (mut follower, stdin) = self.follow();
        stdin.unwrap().write_all(lines.join("\n").as_bytes()).unwrap();
        follower.ends_with(0);
        follower.says("the input has ended");
        follower
    }

    /// Adds an entry to the stream as the tool does.
    fn add(&self, client: &mut Connection, line: &str) {
        let words = ["XADD", "changes", "*", "key", "{}", "value", line, "__DB", "shop"];
        let added = match self.format {
            "debezium" => client.call(&words),
            _ => client.call(&["XADD", "changes", "*", "message", line]),
        };
        assert!(!added.is_error(), "{added:?}");
    }
}

/// Runs a test on every server with each format, on a world without a filter.
fn with_formats(has_stream: bool, test: impl Fn(&mut World, &mut Connection)) {
    on_every_server(|program| {
        for format in FORMATS {
            let mut world = World::new(Server::with(program), format, has_stream);
            let mut client = world.server.connect();
            test(&mut world, &mut client);
        }
    });
}

pub fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Returns the fixture of a format, with its times shifted to end now.
fn fixture(format: &str) -> Vec<String> {
    let path = format!("{}/crates/follow/src/json/fixtures/{format}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let (text, end) = (std::fs::read_to_string(path).unwrap(), now_seconds());
    let moved = |line: &str| {
        (0..=90).fold(line.to_owned(), |line, second| {
            line.replace(&(RECORDED - second).to_string(), &(end - second).to_string())
        })
    };
    text.lines().map(moved).collect()
}

/// Returns a time of the database as a format writes it.
fn time_of(format: &str, time_ms: i64) -> String {
    match format {
        "debezium" => format!("\"name\":\"shop\",\"ts_ms\":{time_ms}"),
        "canal" => format!("\"es\":{time_ms}"),
        _ => format!("\"ts\":{}", time_ms / 1000),
    }
}

/// Returns the time in the heartbeat.
fn heartbeat_ms(client: &mut Connection) -> i64 {
    client.run("GET {users}:feed").text().lines().next().unwrap().parse().unwrap()
}

fn position(client: &mut Connection) -> String {
    let stored = client.run("GET {users}:feed:position");
    if stored == nil(2) { String::new() } else { stored.text() }
}

/// Waits until everything in the stream is applied.
fn wait_for_stream(client: &mut Connection) {
    let info = client.run("XINFO STREAM changes");
    let end = format!("{}/{}", info.field("last-generated-id").text(), info.field("entries-added").number());
    soon(|| position(client).ends_with(&end));
}

/// Returns the cache keys without a value.
fn missing(client: &mut Connection) -> String {
    let is_missing = |key: &&str| client.call(&["GET", &format!("{{users}}:{key}")]) == nil(2);
    KEYS.into_iter().filter(is_missing).collect::<Vec<_>>().join(" ")
}

fn cache_everything(client: &mut Connection) {
    KEYS.into_iter().for_each(|key| _ = client.call(&["SET", &format!("{{users}}:{key}"), "old"]));
}

fn ids(client: &mut Connection) -> String {
    let ids: Vec<_> = [1, 2, 3, 4, 5, 9].into_iter().filter(|id| has(client, *id)).map(|id| id.to_string()).collect();
    ids.join(" ")
}

/// Returns an insert or a delete of a row without a mail address, or an update of another table, at a time in seconds.
pub fn change(format: &str, operation: &str, id: u64, seconds: u64) -> String {
    let table = if operation == "update" { "heartbeat" } else { "users" };
    match format {
        "debezium" => {
            let row = format!(r#"{{"id":{id},"mail":null}}"#);
            let (before, after) = match operation {
                "insert" => ("null", &*row),
                "delete" => (&*row, "null"),
                _ => (&*row, &*row),
            };
            let (letter, ms) = (operation.replace("insert", "c"), seconds * 1000);
            let source =
                format!(r#"{{"ts_ms":{ms},"snapshot":"false","db":"shop","table":"{table}","file":"b.1","pos":{id}}}"#);
            let op = letter.chars().next().unwrap();
            format!(r#"{{"before":{before},"after":{after},"source":{source},"op":"{op}","ts_ms":1}}"#)
        }
        "canal" => {
            let (kind, ms) = (operation.to_uppercase(), seconds * 1000);
            let rows = format!(r#"[{{"id":"{id}","mail":null}}]"#);
            format!(
                r#"{{"data":{rows},"old":{rows},"database":"shop","table":"{table}","es":{ms},"isDdl":false,"type":"{kind}"}}"#
            )
        }
        _ => format!(
            r#"{{"database":"shop","table":"{table}","type":"{operation}","ts":{seconds},"xid":{id},"data":{{"id":{id},"mail":null}},"old":{{}}}}"#
        ),
    }
}

#[test]
fn the_events_of_a_stream_have_their_effects() {
    with_formats(true, |world, client| {
        world.load("9\n");
        cache_everything(client);
        let (mut follower, _) = world.follow();
        follower.says("begins");
        assert_eq!(missing(client), KEYS.join(" "), "values from before the stream");
        // The unit tests of the decoder have the changes of each line.
        let lines = fixture(world.format);
        let (last, changes) = lines.split_last().unwrap();
        cache_everything(client);
        changes.iter().for_each(|line| world.add(client, line));
        wait_for_stream(client);
        assert_eq!(missing(client), KEYS.join(" "), "{}", world.format);
        let left = if world.format == "maxwell" { "3 9" } else { "" };
        soon(|| ids(client) == left);
        // The heartbeat has the time of the last change, not the time of its processing.
        soon(|| {
            let time_ms = heartbeat_ms(client);
            assert_eq!(client.run("PEXPIRETIME {users}:feed"), integer(time_ms + 3_600_000));
            lines[lines.len() - 2].contains(&time_of(world.format, time_ms))
        });
        let status = run(["follow".into(), "--status".into(), world.path().into_os_string()]).success().text();
        assert!(status.contains("shop.users in the filter {users}: at most "), "{status}");

        // The statement that changes the primary key.
        cache_everything(client);
        world.add(client, last);
        follower.ends_with(1);
        follower.says("shop.users: ALTER TABLE `users` MODIFY `id` varchar(36)");
        follower.says("shop.users: the filter is deleted: fill {users} with `bloomgate load`, then start the follower");
        assert_eq!((missing(client), beats(client)), (KEYS.join(" "), false));
        assert_eq!(client.run("EXISTS {users}"), integer(0));
        let (mut refused, _) = world.follow();
        refused.ends_with(1);
        refused.says("shop.users: there is no filter: fill {users} with `bloomgate load`");
        // After another load, the follower continues after the statement.
        world.load("5\n");
        let (mut follower, _) = world.follow();
        world.add(client, &change(world.format, "insert", 6, now_seconds()));
        soon(|| has(client, 6) && beats(client));
        assert!(has(client, 5));
        follower.end();
    });
}

#[test]
fn a_table_with_two_filters_changes_both() {
    with_formats(true, |world, client| {
        world.load("9\n");
        client.run("BF.RESERVE {others} 0.000001 100000 HASH siphash");
        world.configure(&format!("{TABLE}{}", TABLE.replace("{users}", "{others}").replace("\"{id}\"", "\"u{id}\"")));
        let (mut follower, _) = world.follow();
        let both = |client: &mut Connection, id: u64| {
            [has(client, id), client.run(&format!("BF.EXISTS {{others}} u{id}")) == integer(1)]
        };
        for (operation, expected) in [("insert", [true; 2]), ("delete", [false; 2])] {
            client.run("SET {users}:1 x");
            client.run("SET {others}:1 x");
            world.add(client, &change(world.format, operation, 1, now_seconds()));
            soon(|| both(client, 1) == expected && client.run("EXISTS {users}:1 {others}:1") == integer(0));
        }
        follower.end();
    });
}

#[test]
fn a_filter_that_cannot_delete_keeps_deleted_rows() {
    with_formats(true, |world, client| {
        client.run("BF.RESERVE {users} 0.000001 100000");
        let (mut follower, _) = world.follow();
        follower.says("items of deleted rows stay in {users}: only HASH siphash can delete");
        for operation in ["insert", "delete"] {
            world.add(client, &change(world.format, operation, 1, now_seconds()));
        }
        wait_for_stream(client);
        assert!(has(client, 1));
        follower.end();
    });
}

#[test]
fn a_deleted_item_is_removed_after_its_transaction() {
    with_formats(true, |world, client| {
        world.load("1\n");
        let (mut follower, _) = world.follow();
        follower.says("begins");
        client.run("SET {users}:1 old");
        let begun = Instant::now();
        world.add(client, &change(world.format, "delete", 1, now_seconds()));
        soon(|| client.run("EXISTS {users}:1") == integer(0));
        // A second after its last entry, the transaction counts as ended.
        assert!(has(client, 1) || begun.elapsed() > Duration::from_millis(900), "{}", world.format);
        soon(|| !has(client, 1));
        follower.end();
    });
}

#[test]
fn a_follower_that_is_killed_continues_in_the_stream() {
    with_formats(true, |world, client| {
        const ROWS: u64 = 5000;
        world.load("9999\n");
        let begin = now_seconds();
        for id in 1..=ROWS {
            world.add(client, &change(world.format, "insert", id, begin));
            if id % 2 == 0 {
                world.add(client, &change(world.format, "delete", id, begin));
            }
            // The follower is killed once it has begun with the later entries.
            if id % 1000 == 0 {
                let (follower, _) = world.follow();
                soon(|| has(client, id - 999));
                drop(follower);
            }
        }
        let (mut follower, _) = world.follow();
        wait_for_stream(client);
        soon(|| beats(client));
        for id in 1..=ROWS {
            assert_eq!(has(client, id), id % 2 == 1, "{}: {id}", world.format);
        }
        assert!(has(client, 9999));
        follower.end();
    });
}

#[test]
fn a_follower_that_is_killed_needs_the_lines_again() {
    with_formats(false, |world, client| {
        world.load("9999\n");
        let begin = now_seconds();
        let inserts: Vec<_> = (1..=3000).map(|id| change(world.format, "insert", id, begin)).collect();
        let (follower, stdin) = world.follow();
        let mut stdin = stdin.unwrap();
        stdin.write_all(inserts[..1000].join("\n").as_bytes()).unwrap();
        stdin.write_all(b"\n").unwrap();
        soon(|| has(client, 1000));
        drop(follower);

        // It cannot know which changes it has missed, so it has no heartbeat, even if only the second part is repeated.
        client.run("DEL {users}:feed");
        for part in [&inserts[2000..], &inserts[2500..]] {
            let gap = world.pipe(part);
            assert!(gap.log().contains("no heartbeat: the input has not repeated"), "{}", gap.log());
            assert!(has(client, 3000) && !beats(client));
        }

        // The whole file is repeated.
        world.pipe(&inserts);
        soon(|| beats(client));
        assert!((1..=3000).all(|id| has(client, id)));
        // Lines that follow directly, in the same process, need no repetition.
        let (mut follower, stdin) = world.follow();
        let mut stdin = stdin.unwrap();
        client.run("DEL {users}:feed");
        writeln!(stdin, "{}", inserts[2999]).unwrap();
        soon(|| beats(client));
        drop(stdin);
        follower.ends_with(0);
    });
}

#[test]
fn repeats_and_late_times_end_the_heartbeat() {
    with_formats(true, |world, client| {
        world.load("9\n");
        let (mut follower, _) = world.follow();
        let now = now_seconds();
        let mut send = |operation: &str, seconds: u64, is_there: bool, is_alive: bool| {
            world.add(client, &change(world.format, operation, 5, seconds));
            wait_for_stream(client);
            // The heartbeat ends before a change is applied, and begins after its position is stored.
            assert!(is_alive || !beats(client), "{operation} at {seconds}");
            soon(|| beats(client) == is_alive);
            assert_eq!(has(client, 5), is_there, "{operation} at {seconds}");
        };
        // Two hours behind.
        send("insert", now - 7200, true, false);
        send("delete", now - 20, false, true);
        send("insert", now - 10, true, true);
        // The tool resumes at an earlier point, so an existing row is missing for a while.
        send("delete", now - 20, false, false);
        send("insert", now - 10, true, true);
        send("update", now - 5, true, true);
        soon(|| heartbeat_ms(client) == (now as i64 - 5) * 1000);
        // A time in the future cannot come from the log.
        world.add(client, &change(world.format, "update", 5, now + 100_000));
        wait_for_stream(client);
        soon(|| {
            let time_ms = heartbeat_ms(client);
            (now as i64..now as i64 + 3600).contains(&(time_ms / 1000))
        });
        follower.end();
    });
}

#[test]
fn entries_that_were_removed_before_they_were_read_are_noticed() {
    with_formats(true, |world, client| {
        world.load("9\n");
        let (mut follower, _) = world.follow();
        let insert =
            |client: &mut Connection, id| world.add(client, &change(world.format, "insert", id, now_seconds()));
        insert(client, 1);
        wait_for_stream(client);
        // Entries that it has read may be removed.
        client.run("XTRIM changes MAXLEN 0");
        insert(client, 2);
        wait_for_stream(client);
        soon(|| has(client, 2) && beats(client));
        follower.end();
        insert(client, 3);
        insert(client, 4);
        client.run("XTRIM changes MAXLEN 1");
        let (mut follower, _) = world.follow();
        follower.ends_with(1);
        follower.says("entries of the stream were removed before they were read");
        follower.says("the filter is deleted");
        assert!(!beats(client));
        world.load("1\n2\n3\n4\n");
        let (mut follower, _) = world.follow();
        insert(client, 5);
        wait_for_stream(client);
        soon(|| has(client, 5) && beats(client));
        follower.end();
    });
}

#[test]
fn one_tables_errors_do_not_affect_another() {
    with_formats(true, |world, client| {
        world.load("9\n");
        client.run("BF.RESERVE {others} 0.000001 100000 HASH siphash");
        world.configure(&format!(
            "{TABLE}{}",
            TABLE.replace("shop.users", "shop.heartbeat").replace("{users}", "{others}")
        ));
        let (mut follower, _) = world.follow();
        world.add(client, &change(world.format, "insert", 1, now_seconds()));
        soon(|| has(client, 1) && beats(client));
        world.add(client, fixture(world.format).last().unwrap());
        follower.says("shop.users: the filter is deleted");
        let others_beat = |client: &mut Connection| client.run("EXISTS {others}:feed") == integer(1);
        client.run("DEL {others}:feed");
        client.run("SET {others}:7 old");
        world.add(client, &change(world.format, "update", 7, now_seconds()));
        soon(|| others_beat(client) && client.run("EXISTS {others}:7") == integer(0));
        assert!(!beats(client));
        follower.end();
        // The next follower skips the table until its filter is filled.
        let (mut follower, _) = world.follow();
        follower.says("shop.users: there is no filter");
        client.run("DEL {others}:feed");
        world.add(client, &change(world.format, "update", 8, now_seconds()));
        soon(|| others_beat(client));
        follower.end();
    });
}

#[test]
fn a_misspelt_table_is_named_at_its_first_change() {
    with_formats(true, |world, client| {
        world.load("9\n");
        world.configure(&TABLE.replace("shop.users", "shop.user"));
        let (mut follower, _) = world.follow();
        world.add(client, &change(world.format, "insert", 1, now_seconds()));
        follower.says("shop.users is not followed, and no change of shop.user has arrived yet");
        follower.end();
    });
}

#[test]
fn a_stream_whose_server_failed_over_may_lack_entries() {
    on_every_server(|program| {
        let world = World::new(Server::with(program), "maxwell", true);
        let client = &mut world.server.connect();
        world.load("9\n");
        let (mut follower, _) = world.follow();
        world.add(client, &change(world.format, "insert", 1, now_seconds()));
        soon(|| has(client, 1) && beats(client));
        follower.end();
        // The primary gets an entry that this replica never receives.
        let replica = Server::with(program).start();
        let mut other = replica.connect();
        other.run(&format!("REPLICAOF 127.0.0.1 {}", world.server.port));
        soon(|| other.run("XLEN changes") == integer(1));
        assert_eq!(other.run("REPLICAOF NO ONE").text(), "OK");
        for id in [2, 3] {
            world.add(client, &change(world.format, "insert", id, now_seconds()));
            world.add(&mut other, &change(world.format, "insert", id + 10, now_seconds()));
        }
        let text = std::fs::read_to_string(world.path()).unwrap();
        std::fs::write(
            world.path(),
            text.replace("[source]", &format!("[source]\nserver = \"redis://127.0.0.1:{}\"", replica.port)),
        )
        .unwrap();
        let (mut follower, _) = world.follow();
        follower.ends_with(1);
        follower.says("its server was restarted or failed over and may have lost some");
        follower.says("shop.users: the filter is deleted");
        assert!(!beats(client));
    });
}

#[test]
fn lines_are_repeated_after_writes_that_failed_and_after_a_restart() {
    with_formats(false, |world, client| {
        world.load("9\n");
        let (mut follower, stdin) = world.follow();
        let mut stdin = stdin.unwrap();
        let mut insert = |id| writeln!(stdin, "{}", change(world.format, "insert", id, now_seconds())).unwrap();
        insert(1);
        soon(|| has(client, 1));
        client.run("CONFIG SET maxmemory 1");
        insert(2);
        follower.says("OOM command not allowed");
        insert(3);
        client.run("CONFIG SET maxmemory 0");
        soon(|| has(client, 3) && beats(client));
        let failures = follower.log().matches("trying again").count();
        world.server.stop(Stop::Save);
        insert(4);
        soon(|| follower.log().matches("trying again").count() > failures);
        insert(5);
        world.server.start_again();
        let mut client = world.server.connect();
        soon(|| has(&mut client, 5) && beats(&mut client));
        assert!((1..5).all(|id| has(&mut client, id)));
        follower.end();
    });
}

#[test]
fn the_second_follower_takes_over() {
    with_formats(true, |world, client| {
        world.load("9\n");
        let (mut first, _) = world.follow();
        first.says("begins");
        let (mut second, _) = world.follow();
        second.says("shop.users continues at the beginning");
        world.add(client, &change(world.format, "insert", 1, now_seconds()));
        first.ends_with(1);
        first.says("another follower of the filter took over");
        soon(|| has(client, 1) && beats(client));
        second.end();
    });
}

#[test]
fn tables_that_cannot_be_followed_are_refused() {
    on_every_server(|program| {
        let world = World::new(Server::with(program), "debezium", false);
        let refused = |part: &str, line: &str| {
            run_with(["follow".into(), world.path().into_os_string()], line).refused(part);
        };
        refused("shop.users: there is no filter: fill {users} with `bloomgate load`, then start the follower", "");
        world.load("9\n");
        refused("cannot follow {\\\"id\\\":1}: it has no `source`, nor `__op`: it has id", "{\"id\":1}");
        for (from, to, part) in [
            ("shop.users", "users", "`users` is not DATABASE.TABLE"),
            ("key = { id = \"integer\" }", "", "no `key`"),
            ("\"integer\"", "\"float\"", "unknown variant `float`"),
            ("{users}:{id}", "{users}:{name}", "a row could have the key {users}"),
            ("max-lag", "slots = 1\nmax-lag", "slots"),
        ] {
            world.configure(&TABLE.replace(from, to));
            refused(part, "");
        }
        world.configure(TABLE);
        // The follower that refused the line may have read further lines.
        refused("shop.users: it is unknown which changes it has: delete {users}:feed:position: fill {users}", "");
        world.server.connect().run("DEL {users}:feed:position");
        world.pipe(&[change("debezium", "insert", 1, now_seconds())]);
        world.configure(&TABLE.replace("mail:{mail}", "email:{mail}"));
        refused("shop.users: the table or its configuration was altered: delete {users}:feed:position", "");
        world.configure(TABLE);
        let text = std::fs::read_to_string(world.path()).unwrap();
        std::fs::write(world.path(), format!("slot = \"bloomgate\"\n{text}")).unwrap();
        refused("are not for JSON changes", "");
    });
}
