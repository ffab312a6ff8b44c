//! Runs the tool.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use testing::nodes::{meet, node};
use testing::{Builder, Connection, Server, eventually, ok, on_every_server, on_servers_with, tool};

/// The result of a run.
#[derive(Debug)]
pub struct Ended {
    /// The exit status; `None` if a signal ended the run.
    pub status: Option<i32>,
    /// The signal that ended the run.
    pub signal: Option<i32>,
    /// The standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: String,
}

impl Ended {
    /// The standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    /// Asserts that the run succeeded.
    #[track_caller]
    pub fn success(self) -> Self {
        assert_eq!(self.status, Some(0), "{}{}", self.stderr, String::from_utf8_lossy(&self.stdout));
        self
    }

    /// Asserts that the run exited with status 2 before it did anything, and that standard error contains this.
    #[track_caller]
    pub fn misused(self, part: &str) -> Self {
        assert_eq!(self.status, Some(2), "{self:?}");
        assert!(self.stderr.contains(part) && self.stdout.is_empty(), "{self:?}");
        self
    }

    /// Asserts that the run ended by this signal, after one line on standard error that contains this.
    #[track_caller]
    pub fn interrupted(self, signal: &str, part: &str) -> Self {
        assert_eq!(self.signal, Some(if signal == "INT" { 2 } else { 15 }), "{self:?}");
        let line = self.stderr.lines().last().unwrap_or_default();
        assert!(line.starts_with("bloomgate: ") && line.contains(part), "{self:?}");
        self
    }

    /// Asserts that the run exited with status 1 and one line on standard error that contains this.
    #[track_caller]
    pub fn refused(self, part: &str) -> Self {
        assert_eq!(self.status, Some(1), "{self:?}");
        let line = self.stderr.lines().last().unwrap_or_default();
        assert!(line.starts_with("bloomgate: ") && line.contains(part), "{self:?}");
        self
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Self { status: output.status.code(), signal: output.status.signal(), stdout: output.stdout, stderr }
    }
}

/// A running tool, which is killed at the end of the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Sends a signal, such as `INT`, to a process, and on Linux waits until the process has handled it.
pub fn send(signal: &str, process: u32) {
    let kill = format!("kill -{signal} {process}");
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let file = format!("/proc/{process}/status");
    eventually("the signal to arrive", || {
        let status = std::fs::read_to_string(&file).unwrap_or_default();
        let is_pending = |line: &str| {
            let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"));
            mask.is_some_and(|mask| mask.trim().bytes().any(|digit| digit != b'0'))
        };
        status.contains("(zombie)") || !status.lines().any(is_pending)
    });
}

/// Returns a command that runs the tool with these arguments, without a password in the environment.
pub fn command<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> Command {
    let mut command = Command::new(tool());
    command.args(words).env_remove("REDISCLI_AUTH").stdin(Stdio::null());
    command
}

/// Runs the tool with these arguments.
pub fn run<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> Ended {
    command(words).output().unwrap().into()
}

/// Starts the tool with these arguments and pipes for its three streams.
pub fn start<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> Child {
    command(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs a test with a new server of each kind.
pub fn with_servers(test: impl Fn(Server)) {
    on_every_server(|program| test(Server::start(program)));
}

/// Runs a test with a new server of each kind, a connection to it, and a folder.
pub fn with_files(test: impl Fn(&Server, &mut Connection, &Files)) {
    with_servers(|server| test(&server, &mut server.connect(), &Files::new()));
}

/// A temporary folder with files.
pub struct Files(TempDir);

impl Files {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the path of a file as text.
    pub fn name(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes a file, and returns its path.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), bytes).unwrap();
        self.name(name)
    }

    pub fn names(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.0.path()).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// Runs the tool with this standard input.
pub fn run_with<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>, input: impl Into<Vec<u8>>) -> Ended {
    let mut child = start(words);
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.into());
    // A program that exits early does not read the whole input.
    let writer = thread::spawn(move || _ = stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output.into()
}

/// Runs the tool with a standard input that arrives slowly and does not end before a flag is set.
pub fn run_while<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>, input: &str, flag: &AtomicBool) -> Ended {
    const PIECES: usize = 100;
    let mut child = start(words);
    let mut stdin = child.stdin.take().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            for (number, piece) in input.as_bytes().chunks(input.len() / PIECES + 1).enumerate() {
                while !flag.load(SeqCst) {
                    thread::sleep(Duration::from_millis(20));
                    if number < PIECES / 2 {
                        break;
                    }
                }
                if stdin.write_all(piece).is_err() {
                    return;
                }
            }
        });
        child.wait_with_output().unwrap().into()
    })
}

/// Reads an output of a running program in a thread. The returned text grows as the program writes.
pub fn collect(mut source: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let collected = Arc::clone(&text);
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = source.read(&mut bytes) {
            collected.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    });
    text
}

/// Returns the URL of a server.
pub fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port)
}

/// Calls `test` with each RedisBloom library in the folder `BLOOMGATE_PEERS`, and each server that loads it.
pub fn on_redisblooms(test: impl Fn(&Path, &Path)) {
    let folder =
        std::env::var_os("BLOOMGATE_PEERS").expect("BLOOMGATE_PEERS names a folder with RedisBloom's libraries");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().canonicalize().unwrap());
    let is_redisbloom = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("redisbloom-");
    let libraries: Vec<_> = files.filter(is_redisbloom).collect();
    assert!(!libraries.is_empty(), "the folder of BLOOMGATE_PEERS has no library of RedisBloom");
    for library in libraries {
        let what = format!("what {} needs", library.display());
        let loads = |program: &Path| Server::with(program).module(&library).try_start().is_ok();
        on_servers_with(&what, loads, |program| {
            eprintln!("{}", library.display());
            test(program, &library);
        });
    }
}

// A cluster of three nodes, each with a third of the slots.

/// Starts the nodes, and waits until they know each other.
pub fn three_nodes(program: &Path) -> [Server; 3] {
    let [(first, bus), second, third] = [(); 3].map(|()| node(program));
    let nodes = [first, second.0, third.0].map(Builder::start);
    let mut clients = nodes.each_ref().map(Server::connect);
    for (client, slots) in clients.iter_mut().zip(["0 5460", "5461 10922", "10923 16383"]) {
        assert_eq!(client.run(&format!("CLUSTER ADDSLOTSRANGE {slots}")), ok());
    }
    eventually("the nodes to know each other", || {
        clients.iter_mut().skip(1).for_each(|client| meet(client, nodes[0].port, bus));
        clients.iter_mut().all(|client| {
            let info = client.run("CLUSTER INFO").text();
            info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")
        })
    });
    nodes
}
