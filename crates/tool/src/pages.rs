//! `bloomgate man` and `bloomgate completions`: manual pages and completions of the shells, made of the words of the command
//! line themselves.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

use crate::report::print;

/// Write the manual pages, one for each subcommand
#[derive(clap::Args)]
pub struct Manual {
    /// The folder to write them to
    #[arg(default_value = ".")]
    folder: PathBuf,
}

/// Print the completions of a shell: `source <(bloomgate completions bash)`
#[derive(clap::Args)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Manual {
    /// Writes them.
    ///
    /// # Errors
    /// A folder that cannot be written to.
    pub fn run(&self, command: Command) -> Result<()> {
        let write = |path: &Path| format!("cannot write to {}", path.display());
        fs::create_dir_all(&self.folder).with_context(|| write(&self.folder))?;
        clap_mangen::generate_to(command, &self.folder).with_context(|| write(&self.folder))
    }
}

impl Completions {
    /// Prints them.
    ///
    /// # Errors
    /// An output that cannot be written to.
    pub fn run(&self, mut command: Command) -> Result<()> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut command, "bloomgate", &mut text);
        print(&String::from_utf8(text)?)?;
        Ok(())
    }
}
