//! A server process with one module in it, in a folder of its own on the disk that the results go to, on a free port;
//! it ends when the value goes.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::client::{Client, Reply};
use super::info::{self, CommandStatistics};
use super::machine;

/// How long a server may take to come up; a snapshot of a gigabyte takes a while.
const PATIENCE: Duration = Duration::from_secs(300);

/// A server process.
pub struct Instance {
    /// Its port on 127.0.0.1.
    pub port: u16,
    folder: TempDir,
    program: Vec<String>,
    module: PathBuf,
    processors: Option<String>,
    child: Child,
}

impl Instance {
    /// Starts a server with a module, on these processors, its folder inside `scratch`. `program` is the server's, with
    /// the words in front of it where another program runs it.
    pub fn start(program: &[&str], module: &Path, processors: Option<&str>, scratch: &Path) -> Result<Self> {
        let module = module.canonicalize().with_context(|| format!("there is no module at {}", module.display()))?;
        let folder = tempfile::Builder::new().prefix("server-").tempdir_in(scratch)?;
        let program: Vec<String> = program.iter().map(|word| (*word).to_owned()).collect();
        let (port, child) = launch(&program, &module, processors, folder.path())?;
        let processors = processors.map(str::to_owned);
        let mut instance = Self { port, folder, program, module, processors, child };
        instance.wait_until_it_answers()?;
        Ok(instance)
    }

    /// Kills the server and starts it again in its folder: it loads the snapshot that is there.
    pub fn start_again(&mut self) -> Result<()> {
        self.end();
        (self.port, self.child) = launch(&self.program, &self.module, self.processors.as_deref(), self.folder.path())?;
        self.wait_until_it_answers()
    }

    /// Sends a command on a connection of its own.
    pub fn call(&self, words: &[&str]) -> Result<Reply> {
        Client::connect(self.port)?.call(words)
    }

    /// A number that a command answers.
    pub fn number(&self, words: &[&str]) -> Result<u64> {
        let text = self.call(words)?.flat().concat();
        text.parse().with_context(|| format!("{} answers {text}", words.join(" ")))
    }

    /// A section of INFO.
    pub fn info(&self, section: &str) -> Result<String> {
        Ok(self.call(&["INFO", section])?.flat().concat())
    }

    /// A number of INFO.
    pub fn info_number(&self, section: &str, name: &str) -> Result<u64> {
        info::number(&self.info(section)?, name).with_context(|| format!("INFO {section} has no number {name}"))
    }

    /// Runs something and tells what a command took meanwhile, inside the server.
    pub fn statistics_of<T>(&self, command: &str, run: impl FnOnce() -> Result<T>) -> Result<(CommandStatistics, T)> {
        self.call(&["CONFIG", "RESETSTAT"])?;
        let outcome = run()?;
        let text = self.info("commandstats")?;
        let statistics =
            info::command_statistics(&text, command).with_context(|| format!("{command} was not called"))?;
        Ok((statistics, outcome))
    }

    /// A value in kB of /proc/PID/status in bytes, where there is such a file.
    pub fn process_bytes(&self, name: &str) -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        Some(info::number(&text, name)? * 1024)
    }

    /// The process ids of its children: of the one that saves.
    pub fn children(&self) -> Vec<u32> {
        let own = self.child.id();
        let text = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    /// Its log, over restarts too.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("server.log")).unwrap_or_default()
    }

    /// Its process id.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// The folder that it runs in.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its snapshot.
    pub fn snapshot(&self) -> PathBuf {
        self.folder.path().join("dump.rdb")
    }

    fn wait_until_it_answers(&mut self) -> Result<()> {
        let start = Instant::now();
        let own = self.child.id().to_string();
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended at its start ({status}): {}", info::reason_to_end(&self.log()));
            }
            // Another program may have taken the port: look who answers.
            if let Ok(text) = self.info("everything")
                && info::field(&text, "process_id") == Some(own.as_str())
                && info::field(&text, "loading") == Some("0")
            {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                bail!("the server does not answer after {} s", PATIENCE.as_secs());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.end();
    }
}

fn launch(program: &[String], module: &Path, processors: Option<&str>, folder: &Path) -> Result<(u16, Child)> {
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let (program, words) = program.split_first().context("a program")?;
    let child = machine::command_on(processors, program.as_ref())
        .args(words)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--logfile", "server.log", "--dir"])
        .arg(folder)
        .arg("--loadmodule")
        .arg(module)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    Ok((port, child))
}
