//! `follow`: writers that do not use the guard, and readers that see their changes.

mod altered;
mod chaos;
mod connections;
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

use postgres::Client;
use tempfile::{NamedTempFile, TempDir};
use testing::database::Database;
use testing::{Builder, Connection, Server, eventually, integer, on_every_server};

use crate::follow::page::page;
use crate::running::{Running, command, run, send};

const MODES: [&str; 2] = ["eventual", "synchronous"];

/// Runs a test in both modes on every server.
fn in_both_modes(test: impl Fn(&'static str, &Path)) {
    on_every_server(|program| MODES.into_iter().for_each(|mode| test(mode, program)));
}

/// Runs a test in these modes on every server, with a follower whose heartbeat has begun, a connection to the server and a session of the
/// database. The last follower must exit with status 0.
fn followed(
    modes: &[&'static str],
    schema: &str,
    tables: &str,
    test: impl Fn(&mut World, &mut Follower, &mut Connection, &mut Client),
) {
    on_every_server(|program| {
        for mode in modes {
            let mut world = World::with_mode(mode, program, schema, tables);
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

/// A database that can be followed.
trait Followed {
    fn url(&self) -> String;
}

impl Followed for Database {
    fn url(&self) -> String {
        self.url()
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
        Self::with_server(mode, Server::with(program), schema, tables)
    }

    fn with_server(mode: &'static str, server: Builder, schema: &str, tables: &str) -> Self {
        let database = Database::logical();
        database.connect().unwrap().batch_execute(schema).unwrap();
        Self::between(mode, database, server, tables)
    }

    fn session(&self) -> Client {
        self.database.connect().unwrap()
    }
}

impl<D> World<D> {
    fn path(&self) -> PathBuf {
        self.folder.path().join("follow.toml")
    }

    fn follow(&self) -> Follower {
        Follower::start(&self.path(), Stdio::null(), self.mode)
    }

    fn wait_for_heartbeat(&self) {
        let mut client = self.server.connect();
        soon(|| beats(&mut client));
    }
}

impl<D: Followed> World<D> {
    fn between(mode: &'static str, database: D, server: Builder, tables: &str) -> Self {
        // A user in the configuration file survives a restart of the server.
        let user = format!("user follower on >secret {}", permissions());
        let world = Self { mode, database, server: server.line(&user).start(), folder: tempfile::tempdir().unwrap() };
        world.configure(tables);
        world
    }

    fn configure(&self, tables: &str) {
        self.configure_for(&self.database, tables);
    }

    fn configure_for(&self, database: &D, tables: &str) {
        let text = format!(
            "database = \"{}\"\nserver = \"redis://follower:secret@127.0.0.1:{}\"\nslot = \"bloomgate\"\nmode = \"{}\"\n{tables}",
            database.url(),
            self.server.port,
            self.mode
        );
        fs::write(self.path(), text).unwrap();
    }

    /// Asserts that a follower refuses to start.
    #[track_caller]
    fn refused(&self, part: &str) {
        run([OsStr::new("follow"), self.path().as_os_str()]).refused(part);
    }
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
