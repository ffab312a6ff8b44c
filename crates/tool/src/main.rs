//! `bloomgate`, the command-line tool: a Redis client. It uses the module only through its commands, without linking it; `plan` and `build`
//! use the filter crate. Connections are in the crate `bloomgate-connect`, and `follow` is in the crate `bloomgate-follow`. This file
//! defines the command line; each other subcommand has its own file.

mod archive;
mod backup;
mod build;
mod dedup;
mod dump;
mod exit;
mod input;
mod keys;
mod load;
mod numbers;
mod pages;
mod plan;
mod progress;
mod report;
mod restore;
mod sampler;
mod shards;
mod stats;
mod stream;
mod survey;
mod target;
mod watch;
mod web;

use std::process::ExitCode;
use std::thread;

use bloomgate_connect::{database, http, names, prometheus, server};
use bloomgate_follow as follow;
use clap::{CommandFactory, Parser, Subcommand};

/// Works with Bloom filters in a Redis or Valkey server that has loaded the bloomgate module.
#[derive(Parser)]
#[command(name = "bloomgate", version, arg_required_else_help = true, disable_help_flag = true)]
struct Arguments {
    #[command(flatten)]
    server: server::Options,
    /// Print help
    #[arg(long, global = true, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(subcommand)]
    subcommand: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    Backup(backup::Arguments),
    Build(build::Arguments),
    Completions(pages::Completions),
    Dedup(dedup::Arguments),
    Follow(follow::Arguments),
    Load(load::Arguments),
    Man(pages::Manual),
    #[command(visible_alias = "size")]
    Plan(plan::Arguments),
    Restore(restore::Arguments),
    Shards(shards::Arguments),
    Survey(survey::Arguments),
    Watch(watch::Arguments),
    Web(web::Arguments),
}

/// Exits with status 0 on success, 1 after a failure, with one line on standard error, and 2 for invalid options or values. After
/// SIGINT or SIGTERM it dies of that signal, which is 130 or 143 in a shell.
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A signal interrupts reads with a timeout, but only in the thread that handles it, which is this one. Inside `spawn` this thread blocks
    // all signals, so the other one waits until `spawn` has returned.
    let work = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
        thread::park();
        run(arguments)
    });
    let work = work.map(|work| {
        work.thread().unpark();
        work.join()
    });
    match work {
        Ok(Ok(Ok(()))) => ExitCode::SUCCESS,
        Ok(Ok(Err(error))) => {
            eprintln!("bloomgate: {error:#}");
            if let Some(exit::Interrupted(signal)) = error.downcast_ref() {
                _ = signal_hook::low_level::emulate_default_handler(*signal);
            }
            if error.is::<server::Usage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
        // The panic was printed.
        Ok(Err(_)) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bloomgate: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The size of a main thread's stack.
const STACK_BYTES: usize = 8 << 20;

fn run(Arguments { server, subcommand, .. }: Arguments) -> anyhow::Result<()> {
    match subcommand {
        Subcommands::Completions(arguments) => arguments.run(Arguments::command()),
        Subcommands::Man(arguments) => arguments.run(Arguments::command()),
        Subcommands::Backup(arguments) => backup::run(&server, &arguments),
        Subcommands::Build(arguments) => build::run(&arguments),
        Subcommands::Dedup(arguments) => dedup::run(&server, &arguments),
        Subcommands::Follow(_) if server.has_any() => {
            Err(server::usage("`follow` takes no options of the server: its configuration names the server"))
        }
        Subcommands::Follow(arguments) => follow::run(&arguments),
        Subcommands::Plan(arguments) => plan::run(&server, &arguments),
        Subcommands::Restore(arguments) => restore::run(&server, &arguments),
        Subcommands::Shards(arguments) => shards::run(&server, &arguments),
        Subcommands::Load(arguments) => load::run(&server, &arguments),
        Subcommands::Survey(arguments) => survey::run(&server, &arguments),
        Subcommands::Watch(arguments) => watch::run(&server, &arguments),
        Subcommands::Web(arguments) => web::run(&server, &arguments),
    }
}
