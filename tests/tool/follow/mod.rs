//! `follow`: writers that do not use the guard, and readers that see their changes.

mod altered;
mod chaos;
mod connections;
mod databases;
mod eventual;
mod fills;
mod json;
mod mariadb;
mod page;
mod permissions;
mod postgresql;
mod servers;
mod soak;
mod synchronous;
mod tables;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;

use postgres::types::FromSqlOwned;
use postgres::{Client, SimpleQueryMessage, SimpleQueryRow};
use tempfile::{NamedTempFile, TempDir};
use testing::database::Database;
use testing::{Builder, Connection, Server, eventually, integer, on_every_server};

use crate::follow::page::page;
use crate::follow::synchronous::{FOLLOWER, open_keys};
use crate::running::{Running, command, run, send};

const MODES: [&str; 2] = ["eventual", "synchronous"];

/// Runs a test in both modes on every server.
fn in_both_modes(test: impl Fn(&'static str, &Path)) {
    on_every_server(|program| MODES.into_iter().for_each(|mode| test(mode, program)));
}

/// Runs a test in these modes on every server, with a follower of PostgreSQL whose heartbeat has begun, a connection to the server and a
/// session of the database. The last follower must exit with status 0.
fn followed(
    modes: &[&'static str],
    schema: &str,
    tables: &str,
    test: impl Fn(&mut World, &mut Follower, &mut Connection, &mut Client),
) {
    followed_on(modes, &[], schema, tables, test);
}

/// As [`followed`], on any database. `settings`: of the database.
fn followed_on<D: Followed>(
    modes: &[&'static str],
    settings: &[&str],
    schema: &str,
    tables: &str,
    test: impl Fn(&mut World<D>, &mut Follower, &mut Connection, &mut D::Session),
) {
    on_every_server(|program| {
        for mode in modes {
            let mut world = World::between(mode, D::start(settings), Server::with(program), schema, tables);
            let mut follower = world.following();
            let (mut client, mut session) = (world.server.connect(), world.session());
            test(&mut world, &mut follower, &mut client, &mut session);
            follower.end();
        }
    });
}

const USERS: &str = "CREATE TABLE users (id bigint PRIMARY KEY, version int NOT NULL);
    CREATE PUBLICATION bloomgate FOR TABLE users";

const USERS_TABLE: &str = r#"
[[table]]
name = "public.users"
filter = "{users}"
create = "0.000001 100000 HASH siphash"
item = "{id}"
cache-key = "{users}:{id}"
max-lag = "2s"
"#;

/// Returns the ACL rules of the documentation for the follower's user, with the keys of every filter in these tests.
fn permissions() -> String {
    let page = page();
    let rules = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER gate on >secret ~{users}* ")).unwrap();
    format!("~{{* {rules}")
}

/// Returns the additional ACL rules of the documentation for a setting.
fn permissions_for(setting: &str) -> String {
    let (page, begin) = (page(), format!("- `{setting}`"));
    let line = page.lines().find(|line| line.starts_with(&begin) && line.ends_with('`')).unwrap();
    line.split(": `").nth(1).unwrap().trim_end_matches('`').to_owned()
}

/// A session of a database.
trait Sql: Send {
    /// Executes statements, and returns their rows, with tabs between the values.
    fn run(&mut self, statements: &str) -> Vec<String>;
}

impl Sql for Client {
    #[track_caller]
    fn run(&mut self, statements: &str) -> Vec<String> {
        let messages = self.simple_query(statements).unwrap_or_else(|error| panic!("{statements}: {error:?}"));
        let values = |row: &SimpleQueryRow| (0..row.len()).map(|at| row.get(at).unwrap_or("NULL").to_owned()).collect();
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(values(row)),
            _ => None,
        });
        rows.map(|values: Vec<String>| values.join("\t")).collect()
    }
}

/// A query of PostgreSQL with one value.
trait One {
    fn one<T: FromSqlOwned>(&mut self, query: &str) -> T;
}

impl One for Client {
    #[track_caller]
    fn one<T: FromSqlOwned>(&mut self, query: &str) -> T {
        self.query_one(query, &[]).unwrap().get(0)
    }
}

/// A database that can be followed.
trait Followed: Sized + Sync {
    type Session: Sql;
    const MODES: &'static [&'static str];
    /// The statements that create the table `users`, and make its log contain whole rows.
    const USERS: &'static str;
    const FULL: &'static str;
    /// The beginning of a table's name in messages, and another name of the table `users`.
    const PREFIX: &'static str;
    const ALIAS: &'static str;

    /// Returns statements that create another table with the same columns.
    fn create(name: &str) -> String;

    fn start(settings: &[&str]) -> Self;
    fn url(&self) -> String;
    fn session(&self) -> Self::Session;
    /// Makes COMMIT wait for the standbys of these names.
    fn demand(&self, _names: &str) {}
    /// Releases every COMMIT.
    fn let_commits_return(&self) {}
}

impl Followed for Database {
    type Session = Client;
    const MODES: &'static [&'static str] = &MODES;
    const USERS: &'static str = USERS;
    const FULL: &'static str = "ALTER TABLE users REPLICA IDENTITY FULL";
    const PREFIX: &'static str = "public.";
    const ALIAS: &'static str = "users";

    fn create(name: &str) -> String {
        format!(
            "CREATE TABLE {name} (id bigint PRIMARY KEY, version int NOT NULL); ALTER PUBLICATION bloomgate ADD TABLE {name}"
        )
    }

    fn start(_: &[&str]) -> Self {
        Self::logical()
    }

    fn url(&self) -> String {
        self.url()
    }

    fn session(&self) -> Client {
        self.connect().unwrap()
    }

    fn demand(&self, names: &str) {
        let mut session = self.session();
        session.run(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"));
        session.run("SELECT pg_reload_conf()");
        soon(|| session.one::<String>("SHOW synchronous_standby_names") == names);
    }

    fn let_commits_return(&self) {
        let Ok(mut session) = self.connect() else { return };
        for text in [
            "ALTER SYSTEM RESET synchronous_standby_names",
            "SELECT pg_reload_conf()",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        ] {
            _ = session.batch_execute(text);
        }
    }
}

/// A database, a server, and the configuration of a follower between them.
struct World<D = Database> {
    mode: &'static str,
    database: D,
    server: Server,
    folder: TempDir,
}

impl World {
    fn new(program: &Path, schema: &str, tables: &str) -> Self {
        Self::with_mode("eventual", program, schema, tables)
    }

    fn with_mode(mode: &'static str, program: &Path, schema: &str, tables: &str) -> Self {
        Self::between(mode, Database::logical(), Server::with(program), schema, tables)
    }

    /// Starts a database and a follower, whose heartbeat has begun.
    fn started(mode: &'static str, program: &Path, schema: &str, tables: &str) -> (Self, Follower) {
        let world = Self::with_mode(mode, program, schema, tables);
        let follower = world.following();
        (world, follower)
    }
}

impl<D> World<D> {
    fn path(&self) -> PathBuf {
        self.folder.path().join("follow.toml")
    }

    /// Replaces a part of the configuration.
    fn edit(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.path()).unwrap();
        assert!(text.contains(from), "{from}: {text}");
        fs::write(self.path(), text.replace(from, to)).unwrap();
    }

    fn follow(&self) -> Follower {
        Follower::start(&self.path(), Stdio::null(), self.mode)
    }

    fn wait_for_heartbeat(&self) {
        let mut client = self.server.connect();
        soon(|| beats(&mut client));
    }

    /// Asserts that a follower refuses to start.
    #[track_caller]
    fn refused(&self, part: &str) {
        run([OsStr::new("follow"), self.path().as_os_str()]).refused(part);
    }
}

impl<D: Followed> World<D> {
    fn between(mode: &'static str, database: D, server: Builder, schema: &str, tables: &str) -> Self {
        database.session().run(schema);
        // A user in the configuration file survives a restart of the server.
        let user = format!("user follower on >secret {}", permissions());
        let world = Self { mode, database, server: server.line(&user).start(), folder: tempfile::tempdir().unwrap() };
        world.configure(tables);
        world
    }

    fn session(&self) -> D::Session {
        self.database.session()
    }

    fn demand(&self, names: &str) {
        self.database.demand(names);
    }

    /// Starts a follower, and waits for its heartbeat.
    #[track_caller]
    fn following(&self) -> Follower {
        let follower = self.follow();
        if self.mode == "synchronous" {
            follower.says("no heartbeat: synchronous_standby_names = ''");
            self.demand(FOLLOWER);
        }
        self.wait_for_heartbeat();
        follower
    }

    /// Runs statements in the background, which end after `test`.
    fn while_running(&self, statements: &str, test: impl FnOnce()) {
        thread::scope(|scope| {
            // If the test fails, the COMMITs must return nevertheless.
            let cleanup = Cleanup(&self.database);
            let running = scope.spawn(|| self.session().run(statements));
            test();
            soon(|| running.is_finished());
            std::mem::forget(cleanup);
        });
    }

    fn configure(&self, tables: &str) {
        self.configure_for(&self.database, tables);
    }

    fn configure_for(&self, database: &D, tables: &str) {
        let text = format!(
            "database = \"{}\"\nserver = \"redis://follower:secret@127.0.0.1:{}\"\nslot = \"bloomgate\"\nmode = \"{}\"\n{}",
            database.url(),
            self.server.port,
            self.mode,
            tables.replace("public.", D::PREFIX)
        );
        fs::write(self.path(), text).unwrap();
    }
}

/// Releases every COMMIT if a test fails.
struct Cleanup<'a, D: Followed>(&'a D);

impl<D: Followed> Drop for Cleanup<'_, D> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.let_commits_return();
        }
    }
}

/// Waits until all commits are applied and no cache key is held.
fn catch_up<D: Followed>(world: &World<D>, client: &mut Connection, id: u64) {
    world.session().run(&format!("INSERT INTO users VALUES ({id}, 1)"));
    soon(|| has(client, id) && open_keys(client) == 0 && beats(client));
}

/// Whether the filter contains a row.
fn has(client: &mut Connection, id: u64) -> bool {
    client.run(&format!("BF.EXISTS {{users}} {id}")) == integer(1)
}

/// Whether there is a heartbeat.
fn beats(client: &mut Connection) -> bool {
    client.run("EXISTS {users}:feed") == integer(1)
}

/// Waits for an effect of the follower.
#[track_caller]
fn soon(condition: impl FnMut() -> bool) {
    eventually("an effect of the follower", condition);
}

struct Follower {
    running: Running,
    /// A file contains each line before the follower continues, while a pipe would be read later.
    log: NamedTempFile,
    mode: &'static str,
}

impl Drop for Follower {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- log of the follower in {} mode\n{}---", self.mode, self.log());
        }
    }
}

impl Follower {
    fn start(config: &Path, input: Stdio, mode: &'static str) -> Self {
        let log = NamedTempFile::new().unwrap();
        let child = command(["follow"]).arg(config).stdin(input).stderr(log.reopen().unwrap()).spawn().unwrap();
        Self { running: Running(child), log, mode }
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log.path()).unwrap_or_default()).into_owned()
    }

    /// Waits until the log contains a text.
    #[track_caller]
    fn says(&self, text: &str) {
        soon(|| self.log().contains(text));
    }

    fn signal(&self, signal: &str) {
        send(signal, self.running.0.id());
    }

    /// Waits until the follower has ended by itself, with this exit status.
    #[track_caller]
    fn ends_with(&mut self, status: i32) {
        soon(|| self.running.0.try_wait().unwrap().is_some());
        assert_eq!(self.running.0.wait().unwrap().code(), Some(status), "{}", self.log());
    }

    /// Sends SIGTERM, unless the follower has ended, and asserts status 0.
    fn end(&mut self) {
        if self.running.0.try_wait().unwrap().is_none() {
            self.signal("TERM");
        }
        assert!(self.running.0.wait().unwrap().success(), "{}", self.log());
    }
}
