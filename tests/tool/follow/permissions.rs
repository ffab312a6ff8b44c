//! A follower with exactly the documented database account and ACL user, on every source: its permissions suffice, and it uses each of
//! them.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{ChildStdin, Stdio};

use tempfile::TempDir;
use testing::database::Database;
use testing::mariadb::{MariaDb, in_sql};
use testing::{Connection, Server, on_every_server};

use crate::follow::json::{change, now_seconds};
use crate::follow::page::{account, block, page};
use crate::follow::synchronous::{FOLLOWER, answer};
use crate::follow::{Followed, Follower, Sql, permissions_for, soon};
use crate::permissions::used;
use crate::running::{run, run_with, send, url};

/// The source that the follower reads.
enum Source {
    Postgres(Database),
    Binlog(MariaDb),
    /// The server that has the stream.
    Stream(Option<Server>),
    StandardInput(Option<ChildStdin>),
}

impl Source {
    /// Applies changes to the table `users`: `insert`, `delete` or `truncate`.
    fn change(&mut self, client: &mut Connection, operation: &str, id: u64) {
        let statement = match operation {
            "insert" => format!("INSERT INTO users VALUES ({id}, 'Ada')"),
            "delete" => format!("DELETE FROM users WHERE id = {id}"),
            _ => "TRUNCATE TABLE users".to_owned(),
        };
        // The tool writes in the time zone of the database, and then updates the heartbeat's table.
        let seconds = now_seconds();
        let line = match operation {
            "truncate" => format!(
                r#"{{"data":null,"database":"shop","table":"users","es":{}000,"isDdl":true,"type":"TRUNCATE","sql":"{statement}"}}"#,
                seconds
            ),
            _ => change("canal", operation, id, seconds),
        };
        let lines = [line, change("canal", "update", 1, seconds)];
        match self {
            Self::Postgres(database) => _ = database.connect().unwrap().run(&statement),
            Self::Binlog(database) => _ = database.session().run(&statement),
            Self::Stream(other) => {
                let mut other = other.as_ref().map(Server::connect);
                other.iter_mut().for_each(|client| _ = client.run("SELECT 1"));
                let client = other.as_mut().unwrap_or(client);
                lines.iter().for_each(|line| _ = client.call(&["XADD", "shop", "*", "message", line]));
            }
            Self::StandardInput(stdin) => {
                lines.iter().for_each(|line| writeln!(stdin.as_mut().unwrap(), "{line}").unwrap());
            }
        }
    }
}

/// Runs a follower, and returns the commands that it has used.
fn follow(name: &str, program: &Path) -> BTreeSet<String> {
    let server = Server::start(program);
    let mut client = server.connect();
    let user = page().lines().find(|line| line.starts_with("ACL SETUSER gate ")).unwrap().to_owned();
    client.run(&user);
    let own = format!("redis://gate:secret@127.0.0.1:{}", server.port);
    let (usual, json) =
        (block("## Set up PostgreSQL", "toml"), block("# The feed from Debezium, Canal or Maxwell", "toml"));
    let json = json.replace("\"debezium\"", "\"canal\"");
    let (mut source, text) = match name {
        "eventual" | "synchronous" => {
            let database = Database::logical();
            let mut session = database.connect().unwrap();
            session.run("CREATE TABLE users (id bigint PRIMARY KEY, name text)");
            session.run("CREATE PUBLICATION bloomgate FOR TABLE users");
            session.run(&account("## Set up PostgreSQL"));
            let url = database.url().replace("//guard@", "//gate@");
            let text =
                usual.replace("postgres://gate@127.0.0.1/shop", &url).replace("\"eventual\"", &format!("{name:?}"));
            (Source::Postgres(database), text)
        }
        "binary log" => {
            let database = MariaDb::start(&[]);
            database.session().run("DROP USER gate@'127.0.0.1'");
            database.session().run("CREATE TABLE users (id bigint PRIMARY KEY, name varchar(100))");
            database.session().run(&account(in_sql("## Set up MariaDB", "## MySQL")));
            let line = block("## Set up MariaDB", "toml")
                .replace("gate@127.0.0.1", &format!("gate:secret@127.0.0.1:{}", database.port()));
            let (_, rest) = usual.split_once('\n').unwrap();
            (Source::Binlog(database), format!("{line}{rest}"))
        }
        "stream" => {
            client.run(&format!("ACL SETUSER gate {}", permissions_for("stream")));
            (Source::Stream(None), json)
        }
        "stream of another server" => {
            let other = Server::start(program);
            let (rules, number) = (permissions_for("stream"), permissions_for("server"));
            other.connect().run(&format!("ACL SETUSER gate on >secret -@all {rules} {number}"));
            let line = format!("[source]\nserver = \"redis://gate:secret@127.0.0.1:{}/1\"", other.port);
            (Source::Stream(Some(other)), json.replace("[source]", &line))
        }
        _ => {
            let (before, rest) = json.split_once("stream ").unwrap();
            (Source::StandardInput(None), format!("{before}{}", rest.split_once('\n').unwrap().1))
        }
    };
    let is_json = matches!(source, Source::Stream(_) | Source::StandardInput(_));
    if is_json {
        let create = ["--key", "{users}", "--create", "0.001", "10000000", "--", "HASH", "siphash"];
        run_with([&["load", "--url", &url(&server), "-"], &create[..]].concat(), "9\n").success();
    }
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("users.toml");
    fs::write(&path, text.replace("redis://127.0.0.1:6379", &own)).unwrap();
    client.run("CONFIG RESETSTAT");
    client.run("ACL LOG RESET");

    let start = |source: &mut Source| {
        let mut follower = Follower::start(&path, Stdio::piped(), "permissions");
        if let Source::StandardInput(stdin) = source {
            *stdin = follower.running.0.stdin.take();
        }
        follower
    };
    let first = start(&mut source);
    if let ("synchronous", Source::Postgres(database)) = (name, &source) {
        first.says("no heartbeat: synchronous_standby_names = ''");
        database.demand(FOLLOWER);
    }
    source.change(&mut client, "insert", 1);
    source.change(&mut client, "insert", 2);
    // The permissions of `--status` are in the same list; the test's own commands are not in it.
    let beats = |client: &mut Connection| client.run("TYPE {users}:feed").text() == "string";
    soon(|| beats(&mut client) && answer(&mut client, 1) != "absent" && answer(&mut client, 2) != "absent");
    source.change(&mut client, "delete", 2);
    soon(|| beats(&mut client) && answer(&mut client, 2) == "absent");

    send("KILL", first.running.0.id());
    drop(first);
    let mut second = start(&mut source);
    if !matches!(source, Source::StandardInput(_)) {
        source.change(&mut client, "insert", 3);
        soon(|| beats(&mut client) && answer(&mut client, 3) != "absent");
        run(["follow", "--status", path.to_str().unwrap()]).success();
    }
    client.run("APPEND {users}:7 old");
    source.change(&mut client, "truncate", 0);
    soon(|| client.run("TYPE {users}:7").text() == "none");
    if let Source::StandardInput(stdin) = &mut source {
        // The input does not repeat the last change that the first follower has applied.
        stdin.take();
    } else {
        soon(|| beats(&mut client) && answer(&mut client, 1) == "absent");
    }
    second.end();
    let refused = client.run("ACL LOG");
    let refused: Vec<_> = refused.elements().iter().map(|entry| entry.field("object").text()).collect();
    // These are optional, according to the page. The empty key is read to check whether the server is loading.
    let optional = ["", "client|setinfo", "command|info"];
    assert!(refused.iter().all(|object| optional.contains(&&**object)), "{name}: {refused:?}");
    used(&mut client)
}

#[test]
fn a_follower_runs_with_exactly_the_permissions_of_the_page() {
    let page = page();
    let user = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER gate ")).unwrap();
    let names = |rules: &str| rules.split(' ').filter_map(|word| word.strip_prefix('+')).map(str::to_owned).collect();
    let (listed, of_stream): (BTreeSet<String>, BTreeSet<_>) = (names(user), names(&permissions_for("stream")));
    on_every_server(|program| {
        let sources = ["eventual", "synchronous", "binary log", "stream", "stream of another server", "standard input"];
        let mut all: BTreeSet<String> = sources.iter().flat_map(|name| follow(name, program)).collect();
        // Commands of the connection, which need no permission, and of the test.
        let others = "acl|log append auth bf.fetch client|setinfo command|info config|resetstat hello type xadd";
        all.retain(|name| {
            (listed.contains(name) || !of_stream.contains(name)) && !others.split(' ').any(|other| other == name)
        });
        assert_eq!(all, listed, "what followers use, and what the page lists");
    });
}
