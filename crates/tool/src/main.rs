//! `bloomgate`, the command-line tool: a Redis client for the gate. It knows the module by its commands only and does not
//! link it; `size` works with the filter's own arithmetic. This file holds the words of the command line; each
//! subcommand has a file of its own.

mod connection;
mod crawl;
mod links;
mod progress;
mod report;
mod size;
mod survey;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Works with Bloom filters in a Redis or Valkey server that has loaded the bloomgate module.
#[derive(Parser)]
#[command(name = "bloomgate", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    subcommand: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    Crawl(crawl::Arguments),
    Size(size::Arguments),
    Survey(survey::Arguments),
}

/// Exit status: 0 when all went well, 1 with one line on the error output when not, 2 for a wrong command line.
fn main() -> ExitCode {
    let result = match Arguments::parse().subcommand {
        Subcommands::Crawl(arguments) => crawl::run(&arguments),
        Subcommands::Size(arguments) => size::run(&arguments),
        Subcommands::Survey(arguments) => survey::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bloomgate: {error:#}");
            ExitCode::FAILURE
        }
    }
}
