//! `bloomgate man` and `bloomgate completions`: manual pages and shell completions, generated from the definition of the command
//! line.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

use crate::report::print;

/// Print the manual page, or write one for each subcommand to a folder
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomgate man | man -l -
  bloomgate man /usr/local/share/man/man1")]
pub struct Manual {
    /// The folder for the pages of all subcommands, created if it is missing
    folder: Option<PathBuf>,
}

/// Print completions for a shell: `source <(bloomgate completions bash)`
#[derive(clap::Args)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Manual {
    /// Prints the page of the tool, or writes all pages to the folder.
    ///
    /// # Errors
    /// The output or the folder cannot be written.
    pub fn run(&self, command: Command) -> Result<()> {
        let Some(folder) = &self.folder else {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            print(&String::from_utf8(page)?)?;
            return Ok(());
        };
        let write = |path: &Path| format!("cannot write to {}", path.display());
        fs::create_dir_all(folder).with_context(|| write(folder))?;
        clap_mangen::generate_to(command, folder).with_context(|| write(folder))
    }
}

impl Completions {
    /// Prints the completions.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn run(&self, mut command: Command) -> Result<()> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut command, "bloomgate", &mut text);
        print(&String::from_utf8(text)?)?;
        Ok(())
    }
}
