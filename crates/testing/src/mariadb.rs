//! MariaDB or MySQL for a test: a server in a temporary folder, with a log for replicas, and sessions. `BLOOMGATE_MYSQL` names MySQL's
//! server program; without it, MariaDB is started. If MariaDB is missing, the test fails with instructions for installing it.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

pub use mysql_async::Error;
use mysql_async::prelude::{FromValue, Queryable};
use mysql_async::{Conn, OptsBuilder, Row, Value};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::{eventually, free_port, patience};

const MISSING: &str = "MariaDB is missing: `scripts/setup --test` installs it";

/// A server that runs until it is dropped.
pub struct MariaDb {
    folder: TempDir,
    port: u16,
    settings: Vec<String>,
    child: Child,
}

impl MariaDb {
    /// Starts a server with the database `shop`, and the account `gate` that may read its log. `settings`: additional options.
    pub fn start(settings: &[&str]) -> Self {
        let folder = new_folder();
        unpack_data(folder.path());
        let port = free_port();
        let settings: Vec<_> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let child = launch(folder.path(), port, &settings);
        let mut server = Self { folder, port, settings, child };
        server.wait_until_it_answers();
        let (account, right) = ("gate@'127.0.0.1'", in_sql("BINLOG MONITOR, REPLICA MONITOR", "REPLICATION CLIENT"));
        Session::open(&server.socket(), "mysql").expect("a session").run(&format!(
            "CREATE DATABASE shop; CREATE USER {account} IDENTIFIED BY 'secret';
             GRANT REPLICATION SLAVE, {right} ON *.* TO {account}; GRANT SELECT ON shop.* TO {account}"
        ));
        server
    }

    /// Returns the URL of the account.
    pub fn url(&self) -> String {
        format!("mysql://gate:secret@127.0.0.1:{}/shop", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the id of the process.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the path of the socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Opens a session as the superuser.
    pub fn session(&self) -> Session {
        Session::connect(&self.socket()).expect("a session")
    }

    /// Kills the server, and starts it again.
    pub fn restart(&mut self) {
        self.stop_and(&[]);
    }

    /// Shuts the server down, and starts it with more settings, which apply until the next restart.
    pub fn restart_with(&mut self, settings: impl IntoIterator<Item = String>) {
        let own = self.settings.len();
        self.settings.extend(settings);
        self.shut_down_and_restart();
        self.settings.truncate(own);
    }

    /// Shuts the server down, and starts it again.
    pub fn shut_down_and_restart(&mut self) {
        self.session().try_run("SHUTDOWN").expect("the superuser may");
        self.child.wait().expect("the process ends");
        self.start_again();
    }

    /// Saves a copy of the data directory, as a backup does.
    pub fn save(&mut self) {
        self.stop_and(&["rm -rf saved", "cp -a data saved"]);
    }

    /// Restores the data directory from the copy.
    pub fn put_back(&mut self) {
        self.stop_and(&["rm -r data", "cp -a saved data"]);
    }

    /// Starts a replica from a copy of the data directory. If the replica will replace this server, both need `log_slave_updates`.
    pub fn replica(&mut self) -> Self {
        let folder = new_folder();
        let to = folder.path().join("data").display().to_string();
        // Every MySQL server generates its own UUID.
        self.stop_and(&[&format!("cp -a data {to}"), &format!("rm -f {to}/auto.cnf")]);
        let port = free_port();
        let mut settings = self.settings.clone();
        settings.retain(|setting| !setting.starts_with("--server-id="));
        settings.push(format!("--server-id={port}"));
        let child = launch(folder.path(), port, &settings);
        let mut replica = Self { folder, port, settings, child };
        replica.wait_until_it_answers();
        let source = self.port;
        replica.session().run(&if mysql().is_some() {
            format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {source}, SOURCE_USER = 'gate', \
                 SOURCE_PASSWORD = 'secret', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1; START REPLICA"
            )
        } else {
            format!(
                "SET GLOBAL gtid_slave_pos = @@gtid_binlog_pos; CHANGE MASTER TO MASTER_HOST = '127.0.0.1', \
                 MASTER_PORT = {source}, MASTER_USER = 'gate', MASTER_PASSWORD = 'secret', MASTER_USE_GTID = slave_pos; START SLAVE"
            )
        });
        replica
    }

    /// Promotes a replica once it has received everything.
    pub fn promote(&self, replica: &Self) {
        let position = in_sql("SELECT @@gtid_binlog_pos", "SELECT @@gtid_executed");
        let (mut source, mut session) = (self.session(), replica.session());
        eventually("the replica to have everything", || session.run(position) == source.run(position));
        session.run(in_sql("STOP SLAVE; RESET SLAVE ALL", "STOP REPLICA; RESET REPLICA ALL"));
    }

    /// Kills this server, and restarts a promoted replica at its address.
    pub fn replace_by(&mut self, mut replica: Self) {
        replica.kill();
        self.settings.clone_from(&replica.settings);
        let from = replica.folder.path().join("data").display().to_string();
        self.stop_and(&["rm -r data", &format!("mv {from} data")]);
    }

    fn kill(&mut self) {
        self.child.kill().expect("the process can be killed");
        self.child.wait().expect("the process ends");
    }

    fn stop_and(&mut self, commands: &[&str]) {
        self.kill();
        for text in commands {
            let status = Command::new("sh").current_dir(self.folder.path()).args(["-c", text]).status();
            assert!(status.expect("sh runs").success(), "{text}");
        }
        self.start_again();
    }

    fn start_again(&mut self) {
        self.child = launch(self.folder.path(), self.port, &self.settings);
        self.wait_until_it_answers();
    }

    fn wait_until_it_answers(&mut self) {
        let start = Instant::now();
        while let Err(fault) = Session::open(&self.socket(), "mysql") {
            let ended = self.child.try_wait().expect("the state of the process");
            if ended.is_some() || start.elapsed() > patience() {
                let log = fs::read_to_string(self.folder.path().join("mariadb.log")).unwrap_or_default();
                panic!("MariaDB does not answer ({fault}, {ended:?}); its log:\n{log}");
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn new_folder() -> TempDir {
    tempfile::Builder::new().prefix("bloomgate-maria-").tempdir().expect("a temporary directory")
}

/// Returns the program of MySQL's server, if MySQL is tested.
fn mysql() -> Option<PathBuf> {
    env::var_os("BLOOMGATE_MYSQL").map(PathBuf::from)
}

/// Returns the word of the tested server.
pub fn in_sql(mariadb: &'static str, mysql: &'static str) -> &'static str {
    if self::mysql().is_some() { mysql } else { mariadb }
}

/// Creates the data directory in the folder, as a copy of one that this process creates once.
fn unpack_data(folder: &Path) {
    static ARCHIVE: OnceLock<Vec<u8>> = OnceLock::new();
    let archive = ARCHIVE.get_or_init(|| {
        let folder = new_folder();
        let mut install = match mysql() {
            Some(program) => command(&program, folder.path()),
            None => command("mariadb-install-db".as_ref(), folder.path()),
        };
        install.args(match mysql() {
            Some(_) => &["--initialize-insecure", "--innodb-redo-log-capacity=8M"][..],
            None => &["--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=8M"],
        });
        let output = install.output().unwrap_or_else(|fault| panic!("{MISSING} ({fault})"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
        // Every MySQL server generates its own UUID.
        let tar = ["-c", "-f", "-", "--exclude=data/auto.cnf", "data"];
        let output = Command::new("tar").current_dir(folder.path()).args(tar).output();
        output.expect("tar runs").stdout
    });
    let mut tar = Command::new("tar");
    let mut tar = tar.current_dir(folder).args(["-x", "-f", "-"]).stdin(Stdio::piped()).spawn().expect("tar runs");
    tar.stdin.take().expect("a pipe").write_all(archive).expect("tar reads all");
    assert!(tar.wait().expect("tar ends").success(), "tar cannot unpack the data directory");
}

fn launch(folder: &Path, port: u16, settings: &[String]) -> Child {
    let log = OpenOptions::new().create(true).append(true).open(folder.join("mariadb.log")).expect("a log file");
    let (program, own): (_, &[&str]) = match mysql() {
        Some(program) => (program, &["--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--mysqlx=OFF"]),
        None => ("mariadbd".into(), &["--binlog-format=ROW", "--innodb-log-file-size=8M"]),
    };
    command(&program, folder)
        .args(["--log-bin=binlog", "--server-id=1", "--bind-address=127.0.0.1"])
        .args(own)
        // Without fsync, data survives a kill of the process. No test stops the machine.
        .args(["--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0", "--innodb-buffer-pool-size=32M"])
        .args([format!("--port={port}"), format!("--socket={}", folder.join("socket").display())])
        .args(settings)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a second handle"))
        .stderr(log)
        .spawn()
        .unwrap_or_else(|fault| panic!("{MISSING} ({fault})"))
}

/// Returns a command that runs a program of the server in the folder.
fn command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    // Debian installs the server in a folder that is not on every user's PATH.
    command.env("PATH", env::var("PATH").unwrap_or_default() + ":/usr/sbin");
    // A server that starts deletes the temporary tables in its TMPDIR, which it would otherwise share with other servers.
    command.current_dir(folder).env("TMPDIR", folder).arg("--no-defaults");
    command.arg(format!("--datadir={}", folder.join("data").display()));
    // The server refuses to run as root without this option.
    if fs::metadata(folder).expect("a folder").uid() == 0 {
        command.arg("--user=root");
    }
    command
}

/// A session of the superuser.
pub struct Session {
    runtime: Runtime,
    connection: Conn,
}

impl Session {
    /// Opens a session in the database `shop` of the server with this socket.
    pub fn connect(socket: &Path) -> Result<Self, Error> {
        Self::open(socket, "shop")
    }

    fn open(socket: &Path, database: &str) -> Result<Self, Error> {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let socket = socket.to_str().expect("a path in UTF-8");
        let options = OptsBuilder::default().socket(Some(socket)).user(Some("root")).db_name(Some(database));
        let connection = runtime.block_on(Conn::new(options))?;
        Ok(Self { runtime, connection })
    }

    /// Executes statements, and returns their rows, with tabs between the values. Panics if a statement is refused.
    #[track_caller]
    pub fn run(&mut self, statements: &str) -> Vec<String> {
        self.try_run(statements).unwrap_or_else(|fault| panic!("{statements}: {fault}"))
    }

    /// Like [`Self::run`], but returns an error. The statements after it were not executed.
    pub fn try_run(&mut self, statements: &str) -> Result<Vec<String>, Error> {
        let Self { runtime, connection } = self;
        runtime.block_on(async {
            let mut result = connection.query_iter(statements).await?;
            let mut lines = Vec::new();
            while !result.is_empty() {
                let rows = result.collect::<Row>().await?;
                lines.extend(
                    rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect::<Vec<_>>().join("\t")),
                );
            }
            // An error in a later statement is reported here.
            result.drop_result().await?;
            Ok(lines)
        })
    }
}

fn text(value: Value) -> String {
    Option::from_value(value).unwrap_or_else(|| "NULL".to_owned())
}
