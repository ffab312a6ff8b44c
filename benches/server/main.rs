//! Measures the module in a server from a client, next to the server's own commands and other modules. `scripts/bench` builds
//! everything and runs this program; `scripts/bench --help` lists the options.
//!
//! The variants alternate within each round (A B A B), so that other activity on the machine affects all of them. The time
//! inside a command is the server's own measurement (`INFO commandstats` after `CONFIG RESETSTAT`), which does not depend on
//! the client. Requests per second are measured by a client, which can itself be the bottleneck.
//!
//! `sections` has one file per section. `items`, `answers`, `client` and `load` generate the load, `instance` and `variants`
//! run the servers, `statistics` and `table` produce the output. The parts that need no server have unit tests, which
//! `tests.rs` collects.

// In a benchmark, numbers are far below 2^53, and indices come from the lists that they index.
#![allow(clippy::indexing_slicing, clippy::cast_precision_loss)]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]

mod answers;
mod arguments;
mod client;
mod info;
mod instance;
mod items;
mod load;
mod machine;
mod sections;
mod statistics;
mod table;
mod variants;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;

use arguments::Arguments;
use machine::Processors;
use table::Results;
use variants::{Bench, Variant};

/// The folder of the tables: beside the one for programs that cargo builds.
const OUT: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/../bench");
/// The exit status of a script whose requirements are missing.
const SKIPPED: u8 = 77;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let peer = match arguments.peer.then(redisbloom).transpose() {
        Ok(peer) => peer,
        Err(reason) => {
            println!("SKIPPED: {reason}");
            return ExitCode::from(SKIPPED);
        }
    };
    match run(&arguments, peer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Finds RedisBloom and a server that loads it. Otherwise says what is missing.
fn redisbloom() -> Result<(PathBuf, PathBuf)> {
    let folder = std::env::var_os("BLOOMGATE_PEERS").context("BLOOMGATE_PEERS names no folder with redisbloom-8.so")?;
    let module = PathBuf::from(folder).join("redisbloom-8.so");
    ensure!(module.exists(), "there is no {}", module.display());
    let is_redis_8 = |program: &PathBuf| {
        machine::output_of(program, &["--version"]).is_some_and(|text| text.starts_with("Redis server v=8"))
    };
    let server = testing::servers().into_iter().find(is_redis_8);
    Ok((module, server.context("RedisBloom 8 needs a server of Redis 8 (BLOOMGATE_SERVERS)")?))
}

fn run(arguments: &Arguments, peer: Option<(PathBuf, PathBuf)>) -> Result<()> {
    fs::create_dir_all(OUT).with_context(|| format!("cannot make {OUT}"))?;
    let out = Path::new(OUT).canonicalize()?;
    // Before this program moves, because the processors that it may use are those of the machine.
    let machine = machine::describe();
    // The servers' folders are on the disk of the results.
    let scratch = tempfile::Builder::new().prefix("scratch-").tempdir_in(&out)?;
    tempfile::env::override_temp_dir(scratch.path()).map_err(|other| anyhow!("{} is taken", other.display()))?;
    let processors = Processors::find();
    if let Some(processors) = &processors {
        processors.move_this_program();
    }
    let module = testing::module();
    let mut variants = vec![Variant::ours("bloomgate", &module, None)];
    let server = match peer {
        Some((peer, server)) => {
            variants.push(Variant::redisbloom(peer));
            server
        }
        None => {
            variants.push(Variant::ours("bloomgate, LAYOUT redisbloom", &module, Some("redisbloom")));
            testing::servers().swap_remove(0)
        }
    };
    let bench = Bench { variants, server, quick: arguments.quick, largest: arguments.largest, processors };
    let mut results = Results::new(out.join("tables.md"), head(&bench, machine)?);
    for section in &arguments.sections {
        eprintln!("bench: {section}");
        let start = Instant::now();
        sections::run(*section, &bench, &mut results).with_context(|| format!("section {section}"))?;
        eprintln!("bench: {section} took {:.0} s", start.elapsed().as_secs_f64());
    }
    println!("the tables are in {}", out.display());
    Ok(())
}

/// What every reader of the figures must know.
fn head(bench: &Bench, machine: Vec<(&'static str, String)>) -> Result<String> {
    let words = std::env::args().skip(1).filter(|word| word != "--bench").collect::<Vec<_>>().join(" ");
    let mut lines = vec![("command", format!("`{}`", format!("scripts/bench {words}").trim_end()))];
    lines.extend(machine);
    for index in 0..bench.variants.len() {
        let running = bench.start(index, false).context(bench.variants[index].name)?;
        lines.push(("module", format!("{}: {}", running.variant.name, variants::module_version(&running.server)?)));
    }
    if let Some(commit) = machine::output_of("git", &["describe", "--always", "--dirty"]) {
        lines.push(("commit", commit));
    }
    lines.push(("server", machine::output_of(&bench.server, &["--version"]).unwrap_or_default()));
    lines.push(match &bench.processors {
        Some(found) => ("processors", format!("servers on {}, clients on {}", found.server, found.client)),
        None => ("processors", "chosen by the system".to_owned()),
    });
    let mut text = "# Measurements\n\n".to_owned();
    if bench.quick {
        text += "**A quick run with smaller filters and fewer rounds: its figures are only for a first look.**\n\n";
    }
    text += "Written by `scripts/bench`. Figures are medians of the rounds, with their minimum (least) and maximum (most).\n\n";
    for (name, value) in lines {
        text += &format!("- {name}: {value}\n");
    }
    println!("{text}");
    Ok(text)
}
