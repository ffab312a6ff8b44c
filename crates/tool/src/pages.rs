//! `bloomgate man` and `bloomgate completions`: manual pages and shell completions, generated from the definition of the command
//! line.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

use crate::report::print;
use crate::server::usage;

/// Print a manual page, or write all of them to a folder
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomgate man | man -l -
  bloomgate man load | man -l -
  bloomgate man /usr/local/share/man/man1

The name of a page, such as bloomgate-load, is never a folder, and ./load is never a subcommand.")]
pub struct Manual {
    /// A subcommand, to print its page, or an existing folder, to write the pages of all subcommands
    #[arg(value_name = "SUBCOMMAND|FOLDER")]
    what: Option<PathBuf>,
}

/// Print completions for a shell: `source <(bloomgate completions bash)`
#[derive(clap::Args)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Manual {
    /// Prints the page of the tool or a subcommand, or writes all pages to a folder.
    pub fn run(&self, command: Command) -> Result<()> {
        let Some(what) = &self.what else { return page(command) };
        let mut command = without_help(command);
        // After `build`, a subcommand has its full name and the global options.
        command.build();
        let name = what.to_str().unwrap_or_default();
        let page_name = name.strip_prefix("bloomgate-");
        match (command.find_subcommand(page_name.unwrap_or(name)), what.is_dir()) {
            (Some(_), true) if page_name.is_none() => {
                return Err(usage(format!(
                    "`{name}` is a subcommand and a folder here: `man ./{name}` writes all pages to the folder, \
                     `man bloomgate-{name}` prints that of the subcommand"
                )));
            }
            (Some(subcommand), _) => return page(subcommand.clone()),
            (None, true) => {}
            (None, false) => return Err(usage(format!("there is no subcommand and no folder {}", what.display()))),
        }
        clap_mangen::generate_to(command, what).with_context(|| format!("cannot write to {}", what.display()))
    }
}

/// Removes the subcommand `help`, which would get a page for each command.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

/// Prints the page of a command.
fn page(command: Command) -> Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    print(&String::from_utf8(page)?)?;
    Ok(())
}

impl Completions {
    /// Prints the completions.
    pub fn run(&self, mut command: Command) -> Result<()> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut command, "bloomgate", &mut text);
        print(&String::from_utf8(text)?)?;
        Ok(())
    }
}
