//! A server with one module in it, or none, as the tests start theirs, and what is asked of it to measure. A fault is an error here,
//! not the end of the program.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::harness::{Connection, Reply, Resident, Server, Stop};
use super::info::{self, CommandStatistics};
use super::machine;

/// A server process. It ends with the value, and its folder goes.
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
    /// Starts a server, with a module or without. `before` are words that stand in front of its program: another one that runs it.
    pub fn start(before: &[&str], program: &str, module: Option<&Path>) -> Result<Self> {
        let found = |module: &Path| {
            module.canonicalize().with_context(|| format!("there is no module at {}", module.display()))
        };
        let module = module.map(found).transpose()?;
        machine::output_of(program, &["--version"]).with_context(|| format!("cannot start {program}"))?;
        let wrapper = tempfile::Builder::new().prefix("wrapper-").tempdir()?;
        // By the name of the program: servers look at that.
        let path = wrapper.path().join(Path::new(program).file_name().context("a program")?);
        fs::write(&path, format!("#!/bin/sh\nexec {} '{program}' \"$@\"\n", before.join(" ")))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        let mut server = Server::with(&path).without_module();
        if let Some(module) = module {
            server = server.line(&format!("loadmodule {}", module.display()));
        }
        match server.try_start() {
            Ok(server) => Ok(Self { server, _wrapper: wrapper }),
            Err(log) => bail!("the server ended at its start: {}", info::reason_to_end(&log)),
        }
    }

    /// Kills the server and starts it again in its folder: it loads the snapshot that is there.
    pub fn start_again(&mut self) -> Result<()> {
        self.server.stop(Stop::Kill);
        if self.server.launch().is_err() {
            bail!("the server ended at its start: {}", info::reason_to_end(&self.log()));
        }
        Ok(())
    }

    /// Sends a command on a connection of its own; an error reply is an error.
    pub fn call(&self, words: &[&str]) -> Result<Reply> {
        let asked = || words.join(" ");
        match Connection::open(self.port)?.try_call(words).with_context(asked)? {
            Reply::Error(text) => bail!("{}: {text}", asked()),
            reply => Ok(reply),
        }
    }

    /// A number that a command answers, by itself or in an array.
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

    /// Runs something and tells what a command took meanwhile, inside the server.
    pub fn statistics_of<T>(&self, command: &str, run: impl FnOnce() -> Result<T>) -> Result<(CommandStatistics, T)> {
        self.call(&["CONFIG", "RESETSTAT"])?;
        let outcome = run()?;
        let text = self.info("commandstats")?;
        let statistics =
            info::command_statistics(&text, command).with_context(|| format!("{command} was not called"))?;
        Ok((statistics, outcome))
    }

    /// The most of it that was in memory, in bytes, where the system says that.
    pub fn peak_bytes(&self) -> Option<u64> {
        u64::try_from(Resident::of(&self.server)?.peak).ok()
    }

    /// The process ids of its children: of the one that saves.
    pub fn children(&self) -> Vec<u32> {
        let own = self.process_id();
        let text = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    /// Its snapshot.
    pub fn snapshot(&self) -> PathBuf {
        self.folder().join("dump.rdb")
    }
}
