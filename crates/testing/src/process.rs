//! A server process for a test: started in a fresh directory on a free port, stopped and restarted as the test requires, and
//! stopped at its end. A crash, or a crash report in the log, fails the test.

use std::fs::{self, File, OpenOptions};
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use super::resp::{Connection, Reply};
use super::wait::{eventually, patience, watched};
use super::{clock, locate};

/// Lines that a server or the module logs when it crashes.
const CRASH_MARKS: [&str; 4] = ["BUG REPORT START", "ASSERTION FAILED", "panicked at", "crashed by signal"];

/// The last line of the log of a server that could not apply an effect.
pub const LAST_WORDS: &str = "bloomgate: cannot apply an effect of the primary or the AOF, exiting: ";

/// The settings of every server. With `appendonly yes` and `appendfsync no`, a command is in the file before its reply is sent, which
/// `everysec` does not guarantee during an fsync. This suffices after a kill, because the system keeps the file. Tests of the promises of
/// `appendfsync always` set it; in all others, waiting for the disk would only take time.
const BASE_CONFIGURATION: &str = "\
bind 127.0.0.1
save \"\"
appendfsync no
repl-diskless-sync-delay 0
";
/// Settings that servers before 7.0 reject.
const DEBUG_COMMANDS: &str = "enable-debug-command yes\n";

/// A way to stop a server.
pub enum Stop {
    /// SHUTDOWN SAVE.
    Save,
    /// SHUTDOWN NOSAVE.
    NoSave,
    /// kill -9.
    Kill,
}

/// A server to be started: configuration lines, and the module with its arguments.
pub struct Builder {
    program: PathBuf,
    lines: Vec<String>,
    arguments: Vec<String>,
    /// The module to load, if not the default one.
    library: Option<PathBuf>,
    module_words: Option<String>,
    debug_commands: &'static str,
    shifts_clock: bool,
}

impl Builder {
    /// Adds a line to the configuration file.
    pub fn line(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Adds arguments to the command line.
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    /// Loads another library instead of the module under test.
    pub fn module(mut self, library: &Path) -> Self {
        self.library = Some(library.to_owned());
        self
    }

    /// Adds load-time arguments for the module.
    pub fn module_words(mut self, words: &str) -> Self {
        self.module_words = Some(words.to_owned());
        self
    }

    /// Starts without the module.
    pub fn without_module(mut self) -> Self {
        self.module_words = None;
        self
    }

    /// Loads the module through the test module that makes its allocations fail and holds its timers, with this word in front.
    pub fn with_faults(self, word: &str) -> Self {
        let line = format!("loadmodule {} {word} {}", locate::fault_module().display(), locate::module().display());
        self.without_module().line(line.replace("  ", " ").as_str())
    }

    /// For a server older than 7.0.
    pub fn older(mut self) -> Self {
        self.debug_commands = "";
        self
    }

    /// For [`Server::shift_clock`]. Needs Linux and `cc`.
    pub fn with_clock(mut self) -> Self {
        self.shifts_clock = true;
        self
    }

    /// Starts the server and waits until it answers.
    pub fn start(self) -> Server {
        let mut server = self.prepare();
        server.start_again();
        server
    }

    /// Starts the server and waits until it answers. If it exits instead, returns its log.
    pub fn try_start(self) -> Result<Server, String> {
        let mut server = self.prepare();
        server.launch().map_err(|_| server.log())?;
        Ok(server)
    }

    /// Starts a server that must exit at startup. Returns its log.
    pub fn refuses_to_start(self) -> String {
        match self.try_start() {
            Ok(server) => panic!("the server came up although it should not; its log:\n{}", server.log()),
            Err(log) => log,
        }
    }

    fn prepare(self) -> Server {
        let folder = tempfile::Builder::new().prefix("bloomgate-").tempdir().expect("a temporary directory");
        let mut text = [BASE_CONFIGURATION, self.debug_commands].concat();
        for line in &self.lines {
            text += &format!("{line}\n");
        }
        if let Some(words) = &self.module_words {
            let library = self.library.unwrap_or_else(locate::module);
            text += &format!("loadmodule {} {words}\n", library.display());
        }
        fs::write(folder.path().join("redis.conf"), text).expect("the configuration file is written");
        let preloaded = self.shifts_clock.then(|| clock::prepare(folder.path()));
        Server { program: self.program, arguments: self.arguments, folder, preloaded, port: 0, child: None }
    }
}

/// A running or stopped server.
pub struct Server {
    program: PathBuf,
    arguments: Vec<String>,
    folder: TempDir,
    /// A library for LD_PRELOAD.
    preloaded: Option<PathBuf>,
    /// The port on 127.0.0.1.
    pub port: u16,
    child: Option<Child>,
}

impl Server {
    /// Configures a server; the module is loaded without arguments unless the builder says otherwise.
    pub fn with(program: &Path) -> Builder {
        Builder {
            program: program.to_owned(),
            lines: Vec::new(),
            arguments: Vec::new(),
            library: None,
            module_words: Some(String::new()),
            debug_commands: DEBUG_COMMANDS,
            shifts_clock: false,
        }
    }

    /// Starts a server with the module, without a snapshot or an append-only file.
    pub fn start(program: &Path) -> Self {
        Self::with(program).start()
    }

    /// Opens a RESP2 connection.
    pub fn connect(&self) -> Connection {
        Connection::open(self.port).expect("the server accepts a connection")
    }

    /// Opens a RESP2 or RESP3 connection.
    pub fn connect_speaking(&self, protocol: u8) -> Connection {
        let mut connection = self.connect();
        if protocol == 3 {
            connection.run("HELLO 3");
            connection.protocol = 3;
        }
        connection
    }

    /// Opens a connection with the client library that applications use, in RESP2 or RESP3.
    pub fn library_client(&self, protocol: u32) -> redis::Connection {
        let url = format!("redis://127.0.0.1:{}/?protocol=resp{protocol}", self.port);
        let client = redis::Client::open(url).expect("an address");
        client.get_connection().expect("the server accepts a connection")
    }

    /// The directory with the server's files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Sets the server's wall clock to this many seconds after the machine's. Waits until the server uses the new time: Valkey 9 may answer
    /// TIME from a cached time.
    pub fn shift_clock(&self, seconds: i64) {
        clock::shift(self.folder(), seconds);
        let mut client = self.connect();
        eventually("the server to notice its new time", || {
            let machine = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs();
            let server = client.run("TIME").elements()[0].text().parse::<i64>().expect("seconds");
            (server - machine.cast_signed() - seconds).abs() < 60
        });
    }

    /// The process id.
    pub fn process_id(&self) -> u32 {
        self.child.as_ref().expect("a running server").id()
    }

    /// The path of the log.
    pub fn log_path(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    /// Everything that the server and the module have logged, across restarts.
    pub fn log(&self) -> String {
        fs::read(self.log_path()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Stops the server and restarts it in the same directory and, unless the port was taken, on the same port.
    pub fn restart(&mut self, how: Stop) {
        self.stop(how);
        self.start_again();
    }

    /// Stops the server and waits until it has exited.
    pub fn stop(&mut self, how: Stop) {
        let words: &[&str] = match how {
            Stop::Kill => &[],
            Stop::Save => &["SHUTDOWN", "SAVE"],
            Stop::NoSave => &["SHUTDOWN", "NOSAVE"],
        };
        let mut child = self.child.take().expect("a running server");
        if words.is_empty() {
            child.kill().expect("the process can be killed");
        } else if let Ok(reply) = self.connect().try_call(words) {
            self.child = Some(child);
            panic!("SHUTDOWN answered {reply:?}");
        }
        child.wait().expect("the process ends");
    }

    /// Starts a stopped server.
    pub fn start_again(&mut self) {
        if let Err(status) = self.launch() {
            let log = self.log_excerpt();
            panic!("the server ended at its start ({status}); its log:\n{log}");
        }
    }

    /// Stops the server in any state, for tests in which a crash is reported but does not fail the test.
    pub fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_file(self.log_path());
    }

    /// Starts a stopped server that must exit at startup. Returns its log.
    pub fn refuses_to_start_again(&mut self) -> String {
        let outcome = self.launch();
        self.child = None;
        let log = self.log();
        assert!(outcome.is_err(), "the server came up although it should not; its log:\n{log}");
        log
    }

    /// Makes the next start load another library, without arguments.
    pub fn load_instead(&self, library: &Path) {
        let path = self.folder.path().join("redis.conf");
        let text = fs::read_to_string(&path).expect("the configuration file is readable");
        let others = text.lines().filter(|line| !line.starts_with("loadmodule "));
        let changed: String = others.map(|line| format!("{line}\n")).collect();
        fs::write(&path, format!("{changed}loadmodule {}\n", library.display())).expect("and can be written");
    }

    /// Starts the process and waits until it answers; if it exits instead, returns its exit status.
    pub fn launch(&mut self) -> Result<(), ExitStatus> {
        assert!(self.child.is_none(), "the server runs already");
        for _ in 0..50 {
            if self.port == 0 {
                self.port = free_port();
            }
            let log_start = self.log().len();
            let log = OpenOptions::new().create(true).append(true).open(self.log_path()).expect("a log file");
            let child = Command::new(&self.program)
                .args(["redis.conf", "--port", &self.port.to_string()])
                .args(&self.arguments)
                .current_dir(self.folder.path())
                .envs(self.preloaded.iter().map(|library| ("LD_PRELOAD", library)))
                .stdin(Stdio::null())
                .stdout(File::try_clone(&log).expect("a second handle"))
                .stderr(log)
                .spawn()
                .unwrap_or_else(|fault| panic!("{} does not start: {fault}", self.program.display()));
            self.child = Some(child);
            let Err(status) = self.wait_until_it_answers() else { return Ok(()) };
            self.child = None;
            let taken = self.log().get(log_start..).is_some_and(|text| text.contains("Address already in use"));
            if !taken {
                return Err(status);
            }
            self.port = 0;
        }
        panic!("no free port in 50 attempts");
    }

    fn wait_until_it_answers(&mut self) -> Result<(), ExitStatus> {
        let mut start = Instant::now();
        loop {
            let child = self.child.as_mut().expect("a process");
            if let Some(status) = child.try_wait().expect("the state of the process") {
                return Err(status);
            }
            // Another test's server may have this port while ours is about to find it in use, so check which one answers.
            let ours = format!("process_id:{}\r\n", child.id());
            if let Ok(mut connection) = Connection::open(self.port)
                && let Ok(reply) = connection.try_call(&["PING"])
            {
                // A server that loads a snapshot of many GB replies with this error while it makes progress.
                if matches!(&reply, Reply::Error(text) if text.starts_with("LOADING")) {
                    start = Instant::now();
                } else if !reply.is_error()
                    && connection.try_call(&["INFO", "server"]).is_ok_and(|reply| reply.text().contains(&ours))
                {
                    return Ok(());
                }
            }
            assert!(start.elapsed() < patience(), "the server does not answer; its log:\n{}", self.log_excerpt());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The most informative part of the log: the first crash and what led to it, or else the end.
    fn log_excerpt(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let crash = lines.iter().position(|line| CRASH_MARKS.iter().any(|mark| line.contains(mark)));
        let begin = crash.map_or(lines.len().saturating_sub(80), |line| line.saturating_sub(20));
        lines[begin..lines.len().min(begin + 80)].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut ended_alone = None;
        if let Some(mut child) = self.child.take() {
            ended_alone = child.try_wait().ok().flatten();
            if watched() && ended_alone.is_none() {
                ask_to_end(&mut child);
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        let log = self.log();
        let crashed = CRASH_MARKS.iter().find(|mark| log.contains(**mark));
        if thread::panicking() {
            eprintln!("--- log of the server on port {} ---\n{}\n---", self.port, self.log_excerpt());
        } else if let Some(status) = ended_alone {
            panic!("the server ended by itself ({status}); its log:\n{}", self.log_excerpt());
        } else if let Some(mark) = crashed {
            panic!("the log has {mark:?}:\n{}", self.log_excerpt());
        }
    }
}

/// Returns a port that was free a moment ago, a different one each time. The port is below the range of outgoing connections, so that none
/// of these uses the port of a server that is being restarted. Concurrent processes, which mostly have neighbouring ids, begin thousands of
/// ports apart.
pub fn free_port() -> u16 {
    const PORTS: Range<u32> = 12_000..32_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = process::id().wrapping_mul(7919);
    for _ in PORTS {
        let next = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(PORTS.start + next % PORTS.len() as u32).expect("16 bits");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

/// Sends SIGTERM to a process under a memory checker, which reports leaks when the process exits, and waits for a while. The caller kills a process that does not exit.
fn ask_to_end(child: &mut Child) {
    // The shell's built-in `kill`, because a minimal system has no other.
    let asked = Command::new("sh").args(["-c", &format!("kill -TERM {}", child.id())]).status();
    let start = Instant::now();
    while asked.is_ok() && start.elapsed() < Duration::from_secs(30) && matches!(child.try_wait(), Ok(None)) {
        thread::sleep(Duration::from_millis(10));
    }
}
