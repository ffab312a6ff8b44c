//! A server with one module or none, started as in the tests, and the queries for a measurement. A failure is an error here
//! and does not end the program.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::info::{self, CommandStatistics};
use super::machine;
use testing::{Connection, Reply, Server, Stop};

/// A server process, which is stopped when this is dropped, and its folder removed.
pub struct Instance {
    server: Server,
    _wrapper: TempDir,
}

impl Deref for Instance {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.server.end();
    }
}

impl Instance {
    /// Starts a server with a module. `before` is a command line that runs the server's program, such as
    /// another tool.
    pub fn start(before: &[&str], program: &Path, module: &Path) -> Result<Self> {
        let module = module.canonicalize().with_context(|| format!("there is no module at {}", module.display()))?;
        machine::output_of(program, &["--version"]).with_context(|| format!("cannot start {}", program.display()))?;
        let wrapper = tempfile::Builder::new().prefix("wrapper-").tempdir()?;
        // The wrapper has the program's name, because servers inspect that name.
        let path = wrapper.path().join(program.file_name().context("a program")?);
        fs::write(&path, format!("#!/bin/sh\nexec {} '{}' \"$@\"\n", before.join(" "), program.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        let server = Server::with(&path).without_module().line(&format!("loadmodule {}", module.display()));
        match server.try_start() {
            Ok(server) => Ok(Self { server, _wrapper: wrapper }),
            Err(log) => bail!("the server exited during startup: {}", info::exit_reason(&log)),
        }
    }

    /// Kills the server and restarts it in its folder, where it loads its snapshot. Returns the seconds from its start until it
    /// answers.
    pub fn start_again(&mut self) -> Result<f64> {
        self.server.stop(Stop::Kill);
        let start = Instant::now();
        if self.server.launch().is_err() {
            bail!("the server exited during startup: {}", info::exit_reason(&self.log()));
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Sends a command on a separate connection; an error reply is an error.
    pub fn call(&self, words: &[&str]) -> Result<Reply> {
        let asked = || words.join(" ");
        match Connection::open(self.port)?.try_call(words).with_context(asked)? {
            Reply::Error(text) => bail!("{}: {text}", asked()),
            reply => Ok(reply),
        }
    }

    /// Returns a number that a command replies, alone or in an array.
    pub fn number(&self, words: &[&str]) -> Result<u64> {
        let reply = self.call(words)?;
        let number = if let Reply::Array(numbers) = &reply { numbers.first() } else { Some(&reply) };
        match number {
            Some(Reply::Integer(number)) => Ok(u64::try_from(*number)?),
            _ => bail!("{} answers {reply:?}", words.join(" ")),
        }
    }

    /// A section of INFO.
    pub fn info(&self, section: &str) -> Result<String> {
        Ok(self.call(&["INFO", section])?.text())
    }

    /// A number of INFO.
    pub fn info_number(&self, section: &str, name: &str) -> Result<u64> {
        info::number(&self.info(section)?, name).with_context(|| format!("INFO {section} has no number {name}"))
    }

    /// Runs a function, and returns the statistics of a command from that time.
    pub fn statistics_of<T>(&self, command: &str, run: impl FnOnce() -> Result<T>) -> Result<(CommandStatistics, T)> {
        self.call(&["CONFIG", "RESETSTAT"])?;
        let outcome = run()?;
        let text = self.info("commandstats")?;
        let statistics =
            info::command_statistics(&text, command).with_context(|| format!("{command} was not called"))?;
        Ok((statistics, outcome))
    }

    /// The path of its snapshot.
    pub fn snapshot(&self) -> PathBuf {
        self.folder().join("dump.rdb")
    }
}
