//! PostgreSQL for a test: a cluster in a temporary folder with a Unix socket. If PostgreSQL is missing, the test fails with instructions
//! for installing it.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};
use tempfile::TempDir;

use crate::patience;

/// A cluster that runs until it is dropped.
pub struct Database {
    folder: TempDir,
    programs: PathBuf,
    /// The user and group that run PostgreSQL if this process is root, because PostgreSQL refuses to run as root.
    user: Option<(u32, u32)>,
    /// Also part of the socket's name.
    port: u16,
    /// Additional settings.
    settings: Vec<String>,
    child: Child,
}

impl Database {
    /// Starts a new cluster whose table `rows` has the ids from 0 to `rows - 1`, each in version 1.
    pub fn with_rows(rows: u64) -> Self {
        let database = Self::start(&[]);
        let mut client = database.connect().expect("the cluster has answered");
        client
            .batch_execute(&format!(
                "CREATE TABLE rows (id bigint PRIMARY KEY, version bigint NOT NULL, body text NOT NULL);
                 INSERT INTO rows SELECT id, 1, repeat('x', 64) FROM generate_series(0, {rows} - 1) id;
                 ANALYZE rows"
            ))
            .expect("the table is made");
        database
    }

    /// Starts an empty cluster whose log logical replication can read.
    pub fn logical() -> Self {
        Self::start(&["wal_level=logical", "max_prepared_transactions=10"])
    }

    /// Like [`Self::logical`], but a commit is on disk before it returns.
    pub fn durable() -> Self {
        Self::start(&["wal_level=logical", "fsync=on", "full_page_writes=on"])
    }

    /// Like [`Self::logical`], but listens on a port of `localhost`, with TLS once [`Self::encrypt`] was called.
    pub fn on_port(port: u16) -> Self {
        let settings = ["wal_level=logical", "listen_addresses=localhost", &format!("port={port}")];
        Self::start_on(port, &settings)
    }

    /// Offers TLS with this certificate and its key.
    pub fn encrypt(&self, certificate: &Path, key: &Path) {
        for (from, name) in [(certificate, "server.crt"), (key, "server.key")] {
            let to = self.folder.path().join("data").join(name);
            fs::copy(from, &to).expect("a certificate");
            fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).expect("its owner may");
            let (user, group) = self.user.unzip();
            chown(&to, user, group).expect("root gives the file away");
        }
        let mut session = self.connect().expect("a session");
        session.batch_execute("ALTER SYSTEM SET ssl = on").expect("a superuser may");
        session.batch_execute("SELECT pg_reload_conf()").expect("a superuser may");
    }

    fn start(settings: &[&str]) -> Self {
        Self::start_on(5432, settings)
    }

    fn start_on(port: u16, settings: &[&str]) -> Self {
        let programs = find_programs();
        let folder = tempfile::Builder::new().prefix("bloomgate-pg-").tempdir().expect("a temporary directory");
        let user = give_to_postgres(folder.path());
        unpack_cluster(&programs, user, folder.path());
        let settings: Vec<_> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let child = launch(&programs, user, folder.path(), &settings);
        let mut database = Self { folder, programs, user, port, settings, child };
        database.wait_until_it_answers();
        database
    }

    /// Stops PostgreSQL with a mode of pg_ctl, `fast` or `immediate`, and starts it again.
    pub fn restart(&mut self, mode: &str) {
        if !self.stop(mode) {
            // A fast shutdown waits for replication clients.
            assert!(self.stop("immediate"), "PostgreSQL does not stop");
        }
        self.child.wait().expect("the process ends");
        self.child = launch(&self.programs, self.user, self.folder.path(), &self.settings);
        self.wait_until_it_answers();
    }

    /// Saves a copy of the data directory in the state that a crash would leave, as a snapshot of its volume does.
    pub fn save(&mut self) {
        self.crash_and(&["cp -a data saved"]);
    }

    /// Restores the data directory from the copy.
    pub fn put_back(&mut self) {
        self.crash_and(&["rm -r data", "cp -a saved data"]);
    }

    fn crash_and(&mut self, commands: &[&str]) {
        assert!(self.stop("immediate"), "PostgreSQL does not stop");
        self.child.wait().expect("the process ends");
        for text in commands {
            let status = command(Path::new("sh"), self.user, self.folder.path()).args(["-c", text]).status();
            assert!(status.expect("sh runs").success(), "{text}");
        }
        self.child = launch(&self.programs, self.user, self.folder.path(), &self.settings);
        self.wait_until_it_answers();
    }

    fn stop(&self, mode: &str) -> bool {
        let mut stop = command(&self.programs.join("pg_ctl"), self.user, self.folder.path());
        let output = stop.args(["-D", "data", "-m", mode, "-t", "20", "stop"]).output();
        output.is_ok_and(|output| output.status.success())
    }

    fn wait_until_it_answers(&mut self) {
        let start = Instant::now();
        while let Err(fault) = self.connect() {
            let ended = self.child.try_wait().expect("the state of the process");
            if ended.is_some() || start.elapsed() > patience() {
                let log = fs::read_to_string(self.folder.path().join("postgres.log")).unwrap_or_default();
                panic!("PostgreSQL does not answer ({fault}, {ended:?}); its log:\n{log}");
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Connects a standby, which only receives the log and never confirms it.
    pub fn connect_standby(&self, name: &str) -> UnixStream {
        let position = "SELECT pg_current_wal_lsn()::text";
        let position: String =
            self.connect().and_then(|mut client| client.query_one(position, &[])).expect("SELECT").get(0);
        let mut standby = UnixStream::connect(self.socket()).expect("the socket");
        let mut send = |kind: &[u8], body: &str| {
            let length = u32::try_from(body.len() + 4).expect("a short message");
            standby.write_all(&[kind, &length.to_be_bytes(), body.as_bytes()].concat()).expect("PostgreSQL reads");
        };
        let version = "\0\x03\0\0";
        send(b"", &format!("{version}user\0guard\0replication\0true\0application_name\0{name}\0\0"));
        send(b"Q", &format!("START_REPLICATION PHYSICAL {position}\0"));
        standby
    }

    /// Opens a session.
    pub fn connect(&self) -> Result<Client, postgres::Error> {
        let mut config = postgres::Config::new();
        config.host_path(self.folder.path()).port(self.port).user("guard").dbname("postgres").connect(NoTls)
    }

    /// Returns the URL, for programs that need one.
    pub fn url(&self) -> String {
        format!("postgres://guard@{}/postgres", self.folder.path().display().to_string().replace('/', "%2F"))
    }

    /// Returns the folder with this version's programs.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// Returns the path of the socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join(format!(".s.PGSQL.{}", self.port))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if !self.stop("immediate") {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Gives the folder to the user `postgres` if this process is root, and returns that user and its group.
fn give_to_postgres(folder: &Path) -> Option<(u32, u32)> {
    let root = fs::metadata(folder).expect("a folder").uid() == 0;
    let user = root.then(postgres_user);
    if let Some((user, group)) = user {
        chown(folder, Some(user), Some(group)).expect("root gives the folder away");
    }
    user
}

/// Creates a cluster in the directory `data` of the folder. All clusters of this process are copies of one, because unpacking
/// is several times as fast as `initdb`.
fn unpack_cluster(programs: &Path, user: Option<(u32, u32)>, folder: &Path) {
    static ARCHIVE: OnceLock<Vec<u8>> = OnceLock::new();
    let archive = ARCHIVE.get_or_init(|| {
        let folder = tempfile::Builder::new().prefix("bloomgate-pg-").tempdir().expect("a temporary directory");
        give_to_postgres(folder.path());
        let run = |program: &mut Command| {
            let output = program.output().unwrap_or_else(|fault| panic!("{program:?}: {fault}"));
            assert!(output.status.success(), "{program:?}: {}", String::from_utf8_lossy(&output.stderr));
            output.stdout
        };
        run(command(&programs.join("initdb"), user, folder.path()).args([
            "-D",
            "data",
            "-U",
            "guard",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-locale",
            "--no-sync",
        ]));
        run(command(Path::new("tar"), user, folder.path()).args(["-c", "-f", "-", "data"]))
    });
    let mut tar = command(Path::new("tar"), user, folder);
    let mut tar = tar.args(["-x", "-f", "-"]).stdin(Stdio::piped()).spawn().expect("tar runs");
    tar.stdin.take().expect("a pipe").write_all(archive).expect("tar reads all");
    assert!(tar.wait().expect("tar ends").success(), "tar cannot unpack the cluster");
}

/// Starts the server process in the folder, where it appends to its log.
fn launch(programs: &Path, user: Option<(u32, u32)>, folder: &Path, settings: &[String]) -> Child {
    let log = OpenOptions::new().create(true).append(true).open(folder.join("postgres.log")).expect("a log file");
    command(&programs.join("postgres"), user, folder)
        .args(["-D", "data", "-c", "listen_addresses=", "-k"])
        .arg(folder)
        // Without fsync, data survives a kill of the process. No test stops the machine.
        .args(["-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=100"])
        .args(settings.iter().flat_map(|setting| ["-c", setting.as_str()]))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a second handle"))
        .stderr(log)
        .spawn()
        .expect("postgres starts")
}

/// Returns a command that runs a program in the folder, as a user that PostgreSQL accepts.
fn command(program: &Path, user: Option<(u32, u32)>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env("LC_ALL", "C");
    if let Some((user, group)) = user {
        command.uid(user).gid(group);
    }
    command
}

/// Returns the folder with `initdb` and `postgres`: on the PATH, or where Debian and Homebrew install them, the newest version
/// first.
fn find_programs() -> PathBuf {
    let mut folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    for (parent, below) in [("/usr/lib/postgresql", "bin"), ("/opt/homebrew/opt", "bin"), ("/usr/local/opt", "bin")] {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut versions: Vec<PathBuf> = entries.collect();
        versions.sort_by_key(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let digits: String = name.chars().filter(char::is_ascii_digit).collect();
            std::cmp::Reverse(digits.parse::<u32>().unwrap_or(0))
        });
        folders.extend(versions.into_iter().map(|version| version.join(below)));
    }
    folders
        .into_iter()
        .find(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file())
        .expect("PostgreSQL is missing: `scripts/setup --test` installs it")
}

/// The user and group of the user `postgres`.
fn postgres_user() -> (u32, u32) {
    let ask = |word: &str| {
        let output = Command::new("id").args([word, "postgres"]).output().expect("id runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.trim().parse().expect("there is a user `postgres`, which PostgreSQL runs as where this process is root")
    };
    (ask("-u"), ask("-g"))
}
