//! The sessions of docs/feed*.md: set-up, reads, a killed follower and removal, as documented, on PostgreSQL and on MariaDB or MySQL.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use testing::database::Database;
use testing::mariadb::{MariaDb, in_sql};
use testing::{Connection, Server, ok, on_every_server, tool};

use crate::follow::{Follower, MODES, beats, soon};

/// Returns the pages of the feed.
pub fn page() -> String {
    let names = ["feed", "feed-postgresql", "feed-mariadb", "feed-json"];
    names.map(|name| fs::read_to_string(format!("{}/docs/{name}.md", env!("CARGO_MANIFEST_DIR"))).unwrap()).join("\n")
}

/// Returns the blocks of a language after a heading of the page, without their indentation.
fn blocks(heading: &str, language: &str) -> Vec<String> {
    let (page, mut found) = (page(), Vec::new());
    let (_, section) = page.split_once(&format!("\n{heading}\n")).unwrap();
    let mut lines = section.lines().map(str::trim_start);
    while let Some(line) = lines.next() {
        let Some(shown) = line.strip_prefix("```") else { continue };
        let text = lines.by_ref().take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect();
        if shown == language {
            found.push(text);
        }
    }
    found
}

/// Returns the first block of a language after a heading of the page.
pub fn block(heading: &str, language: &str) -> String {
    blocks(heading, language).swap_remove(0)
}

/// Returns the statements after a heading that create the follower's account.
pub fn account(heading: &str) -> String {
    let block = block(heading, "sql");
    let begins = ["CREATE ROLE gate ", "CREATE USER gate@", "GRANT "];
    let statements: Vec<_> = block.lines().filter(|line| begins.iter().any(|begin| line.starts_with(begin))).collect();
    assert!(statements.len() > 1, "{block}");
    statements.join("\n")
}

/// The database of the page.
enum Shop {
    Postgres(Database),
    Binlog(MariaDb),
}

/// A folder with the page's configuration, and with programs that connect to the test's database and server.
struct Desk {
    shop: Shop,
    server: Server,
    folder: TempDir,
}

impl Desk {
    /// Sets up the database, the user and the configuration as the page says.
    fn new(shop: Shop, mode: &str, program: &Path) -> Self {
        let desk = Self { shop, server: Server::start(program), folder: TempDir::new().unwrap() };
        let user = page().lines().find(|line| line.starts_with("ACL SETUSER gate ")).unwrap().to_owned();
        desk.server.connect().run(&user);
        desk.write("redis-cli", &format!("redis-cli -p {}", desk.server.port));
        let usual = block("## Set up PostgreSQL", "toml").replace("\"eventual\"", &format!("{mode:?}"));
        let (client, set_up, text) = match &desk.shop {
            Shop::Postgres(database) => {
                let socket = database.socket();
                let (folder, name) = (socket.parent().unwrap().display(), socket.extension().unwrap().display());
                // Homebrew does not link it into a folder on the PATH.
                let psql = database.programs().join("psql");
                let psql = if psql.exists() { psql } else { "psql".into() };
                let client = format!("{} -v ON_ERROR_STOP=1 -h {folder} -p {name} -U guard", psql.display());
                let url = database.url().replace("//guard@", "//gate@").replace("/postgres", "/shop");
                desk.write("psql", &client);
                (
                    "psql postgres",
                    block("## Set up PostgreSQL", "sql"),
                    usual.replace("postgres://gate@127.0.0.1/shop", &url),
                )
            }
            Shop::Binlog(database) => {
                database.session().run("DROP USER gate@'127.0.0.1'; DROP DATABASE shop");
                desk.write("mariadb", &format!("mariadb --no-defaults -u root -S {}", database.socket().display()));
                let line =
                    block("## Set up MariaDB", "toml").replace("127.0.0.1", &format!("127.0.0.1:{}", database.port()));
                let (_, rest) = usual.split_once('\n').unwrap();
                ("mariadb", block(in_sql("## Set up MariaDB", "## MySQL"), "sql"), format!("{line}{rest}"))
            }
        };
        let own = format!("redis://gate:secret@127.0.0.1:{}", desk.server.port);
        fs::write(desk.folder.path().join("users.toml"), text.replace("redis://127.0.0.1:6379", &own)).unwrap();
        desk.run(&format!("{client} <<'END'\n{}\nEND", set_up.replace("1000000", "1000")));
        desk
    }

    /// Writes a program that precedes others on the PATH.
    fn write(&self, name: &str, line: &str) {
        let (path, others) = (self.folder.path().join(name), std::env::var("PATH").unwrap());
        fs::write(&path, format!("#!/bin/sh\nPATH='{others}'\nexec {line} \"$@\"\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs shell lines, which must succeed. Returns their output.
    fn run(&self, lines: &str) -> String {
        let folders = [self.folder.path(), tool().parent().unwrap()].map(|path| path.display().to_string()).join(":");
        let script = format!("set -eo pipefail\nPATH={folders}:$PATH\n{lines}\n");
        let mut shell = Command::new("bash");
        let output = shell.args(["-c", &script]).current_dir(&self.folder).stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{lines}\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
        text
    }

    /// Runs a session, and compares its output with the page.
    fn types(&self, session: &str) {
        let session = match self.shop {
            Shop::Postgres(_) => session.to_owned(),
            Shop::Binlog(_) => {
                let tags = ["INSERT 0 1", "UPDATE 1", "DELETE 1"];
                let lines =
                    session.lines().filter(|line| !tags.contains(line) && !line.contains("the replication slot"));
                let lines = lines.collect::<Vec<_>>().join("\n");
                lines.replace("psql shop -c", "mariadb shop -e").replace("PGPASSWORD", "MYSQL_PWD")
            }
        };
        let commands: Vec<_> = session.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
        let typed = commands.iter().map(|line| format!("echo '$ {}'\n{line}", line.replace('\'', r"'\''")));
        let clean = "trap 'kill -9 $! 2>/dev/null || true' EXIT";
        let printed = self.run(&format!("{clean}\n{}", typed.collect::<Vec<_>>().join("\n")));
        assert_eq!(comparable(&printed), comparable(&session), "{printed}");
    }

    fn follow(&self, mode: &'static str) -> Follower {
        // The password from the environment.
        let path = self.folder.path().join("users.toml");
        let text = fs::read_to_string(&path).unwrap().replace("mysql://gate@", "mysql://gate:secret@");
        fs::write(&path, text).unwrap();
        Follower::start(&path, Stdio::null(), mode)
    }

    /// Executes statements as the database's administrator, and returns the rows.
    fn sql(&self, statements: &str) -> String {
        let client = match self.shop {
            Shop::Postgres(_) => "psql -qAt shop",
            Shop::Binlog(_) => "mariadb -BN shop",
        };
        self.run(&format!("{client} <<'END'\n{statements}\nEND"))
    }
}

/// Returns a text with `#` for numbers that differ from run to run: tokens, times, positions and ports.
fn comparable(text: &str) -> String {
    let word = |word: &str| {
        let is_number =
            word.trim_start_matches('(').starts_with(|first: char| first.is_ascii_digit()) && word.len() > 1;
        if is_number || word.len() >= 32 { "#".to_owned() } else { word.to_owned() }
    };
    text.lines().map(|line| line.split(' ').map(word).collect::<Vec<_>>().join(" ") + "\n").collect()
}

fn with_databases(test: impl Fn(&dyn Fn() -> Shop, &Path)) {
    on_every_server(|program| {
        test(&|| Shop::Postgres(Database::logical()), program);
        test(&|| Shop::Binlog(MariaDb::start(&[])), program);
    });
}

#[test]
fn a_killed_follower_loses_nothing_as_the_page_shows() {
    with_databases(|shop, program| {
        let desk = Desk::new(shop(), "eventual", program);
        desk.types(&block("### Kill it", ""));
    });
}

#[test]
fn the_session_of_the_page_can_be_typed() {
    with_databases(|shop, program| {
        let desk = Desk::new(shop(), "eventual", program);
        let mut follower = desk.follow("eventual");
        let mut client = desk.server.connect();
        soon(|| beats(&mut client));
        desk.types(&match desk.shop {
            Shop::Postgres(_) => block("## Watch it", ""),
            Shop::Binlog(_) => blocks("## Set up MariaDB", "").swap_remove(1),
        });
        // The follower needs some milliseconds, and the token differs.
        let session = block("## Read", "").replace("$ redis-cli BF.FETCH", "$ sleep 2; redis-cli BF.FETCH");
        let (_, fill) = session.split_once("BF.FILL {users} 1000001 {users}:1000001 ").unwrap();
        let token = fill.split(' ').next().unwrap();
        let session = session.replace(&format!("{token} VALUE"), "$(tail -1 fetched) VALUE");
        desk.types(&session.replace(" WHILE {users}:feed", " WHILE {users}:feed | tee fetched"));
        follower.end();
    });
}

/// A writer that calls the guard, and a reader.
struct Application<'a> {
    desk: &'a Desk,
    client: Connection,
    version: u32,
}

impl Application<'_> {
    /// Changes a row and inserts one, and asserts that a reader then gets neither an old value nor `absent`.
    fn writes_and_reads(&mut self, options: &str) {
        self.version += 1;
        let (version, new) = (self.version, self.version + 1000);
        let changed =
            ["BF.CHANGED {users} 1 {users}:1".to_owned(), format!("BF.CHANGED {{users}} {new} {{users}}:{new}")];
        changed.iter().for_each(|line| assert!(!self.client.run(line).is_error()));
        self.desk
            .sql(&format!("UPDATE users SET name = 'v{version}' WHERE id = 1; INSERT INTO users VALUES ({new}, 'x');"));
        changed.iter().for_each(|line| assert!(!self.client.run(line).is_error()));
        let mut fetch = |id: u32| self.client.run(&format!("BF.FETCH {{users}} {id} {{users}}:{id}{options}"));
        assert_ne!(fetch(new).elements()[0].text(), "absent", "{options}");
        // The next call must not see the value that is cached here.
        let mut filled = false;
        soon(|| {
            let reply = fetch(1);
            match &*reply.elements()[0].text() {
                "load" => {
                    let token = reply.elements()[1].text();
                    let value = self.desk.sql("SELECT name FROM users WHERE id = 1;");
                    let line = format!("BF.FILL {{users}} 1 {{users}}:1 {token} VALUE {} EX 600", value.trim());
                    filled = self.desk.server.connect().run(&line) == ok();
                }
                "hit" => assert_eq!(reply.elements()[1].text(), format!("v{version}")),
                other => assert_eq!(other, "wait"),
            }
            filled
        });
    }
}

#[test]
fn the_feed_is_removed_as_documented_and_readers_get_no_old_row() {
    with_databases(|shop, program| {
        for mode in MODES {
            let shop = shop();
            let is_postgres = matches!(shop, Shop::Postgres(_));
            if mode == "synchronous" && !is_postgres {
                continue;
            }
            let desk = Desk::new(shop, mode, program);
            let mut follower = desk.follow(mode);
            let mut client = desk.server.connect();
            if mode == "synchronous" {
                follower.says("no heartbeat: synchronous_standby_names = ''");
                desk.sql(
                    "ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (bloomgate)'; SELECT pg_reload_conf();",
                );
            }
            soon(|| beats(&mut client));
            let feed = " WHILE {users}:feed UNLESS {users}:feed:open";
            let mut application = Application { desk: &desk, client: desk.server.connect(), version: 0 };
            application.writes_and_reads(feed);
            let mut sql = blocks("## Leave the feed", "sql").into_iter();
            let (synchronous, postgres, binlog) = (sql.next().unwrap(), sql.next().unwrap(), sql.next().unwrap());
            if mode == "synchronous" {
                desk.sql(&synchronous);
                soon(|| desk.sql("SHOW synchronous_standby_names;").trim().is_empty());
                application.writes_and_reads(feed);
            }
            follower.end();
            application.writes_and_reads(feed);
            if is_postgres {
                soon(|| desk.sql("SELECT count(*) FROM pg_replication_slots WHERE active;").trim() == "0");
                desk.sql(&postgres);
                let left = "SELECT count(*) FROM pg_replication_slots; SELECT count(*) FROM pg_publication;
                    SELECT count(*) FROM pg_roles WHERE rolname = 'gate';";
                assert_eq!(desk.sql(left), "0\n0\n0\n");
            } else {
                desk.sql(&binlog);
                assert_eq!(desk.sql("SELECT count(*) FROM mysql.user WHERE user = 'gate';"), "0\n");
            }
            application.writes_and_reads(feed);
            let mut shell = blocks("## Leave the feed", "sh").into_iter();
            desk.run(&shell.next().unwrap());
            let mut keys = client.run("KEYS *").elements().iter().map(|key| key.text()).collect::<Vec<_>>();
            keys.sort();
            assert_eq!(keys, ["{users}", "{users}:1"]);
            assert!(!client.run("ACL LIST").elements().iter().any(|user| user.text().contains("gate")));
            application.writes_and_reads(feed);
            application.writes_and_reads("");
            assert_eq!(client.run("BF.FETCH {users} 5000 {users}:5000").elements()[0].text(), "absent");
            desk.run(&shell.next().unwrap());
            assert_eq!(client.run("DBSIZE").number(), 0);
        }
    });
}
