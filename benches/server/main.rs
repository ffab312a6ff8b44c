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
mod results;
mod sections;
mod statistics;
mod table;
mod variants;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};

use arguments::{Arguments, Peer, PeerModule};
use machine::Processors;
use results::Results;
use variants::Bench;

fn main() -> ExitCode {
    let arguments = Arguments::read(std::env::args().skip(1)).unwrap_or_else(|error| error.exit());
    run(arguments).unwrap_or_else(|error| {
        eprintln!("bench: {error:#}");
        ExitCode::FAILURE
    })
}

/// The exit status of a script whose requirements are missing.
const SKIPPED: u8 = 77;

/// Finds RedisBloom and a server that loads it. Otherwise says what is missing.
fn add_redisbloom(arguments: &mut Arguments) -> Result<()> {
    let folder = std::env::var_os("BLOOMGATE_PEERS").context("BLOOMGATE_PEERS names no folder with redisbloom-8.so")?;
    let module = PathBuf::from(folder).join("redisbloom-8.so");
    ensure!(module.exists(), "there is no {}", module.display());
    if arguments.server.is_none() {
        let programs = testing::servers().into_iter().map(|program| program.display().to_string());
        let is_redis_8 = |program: &String| {
            machine::output_of(program, &["--version"]).is_some_and(|text| text.starts_with("Redis server v=8"))
        };
        let found = programs.into_iter().find(is_redis_8);
        arguments.server =
            Some(found.context("RedisBloom 8 needs a server of Redis 8 (BLOOMGATE_SERVERS or --server)")?);
    }
    arguments.peers.retain(|peer| *peer != Peer::RedisBloom);
    let peer = PeerModule { name: "RedisBloom 8".to_owned(), module, server: None };
    arguments.peers.insert(0, Peer::Module(peer));
    Ok(())
}

fn run(mut arguments: Arguments) -> Result<ExitCode> {
    let module =
        arguments.module.take().context("--module is missing: scripts/bench builds the module and names it")?;
    let has_redisbloom = arguments.peers.contains(&Peer::RedisBloom);
    if has_redisbloom && let Err(reason) = add_redisbloom(&mut arguments) {
        println!("SKIPPED: {reason}");
        return Ok(ExitCode::from(SKIPPED));
    }
    fs::create_dir_all(&arguments.out).with_context(|| format!("cannot make {}", arguments.out.display()))?;
    let out = arguments.out.canonicalize()?;
    // Before this program moves, because the processors that it may use are those of the machine.
    let machine = machine::describe();
    // The servers' folders are on the disk of the results.
    let scratch = tempfile::Builder::new().prefix("scratch-").tempdir_in(&out)?;
    tempfile::env::override_temp_dir(scratch.path()).map_err(|other| anyhow!("{} is taken", other.display()))?;
    let processors = Processors::find();
    if let Some(processors) = &processors {
        processors.move_this_program();
    }
    let bench = Bench {
        variants: variants::variants(&arguments, &module, has_redisbloom),
        quick: arguments.quick,
        largest: arguments.largest,
        processors,
    };
    let head = head(&bench, &arguments, machine)?;
    println!("{head}");
    let mut results = Results::new(out.clone(), head);
    for section in &arguments.sections {
        eprintln!("bench: {section}");
        let start = Instant::now();
        sections::run(*section, &bench, &mut results).with_context(|| format!("section {section}"))?;
        eprintln!("bench: {section} took {:.0} s", start.elapsed().as_secs_f64());
    }
    println!("the tables are in {}", out.display());
    Ok(ExitCode::SUCCESS)
}

/// What every reader of the figures must know.
fn head(bench: &Bench, arguments: &Arguments, machine: Vec<(&'static str, String)>) -> Result<String> {
    let mut lines = vec![("command", format!("`{}`", format!("scripts/bench {}", arguments.shown).trim_end()))];
    lines.extend(machine);
    let ours = bench.start(0, false).context("the module does not load")?;
    lines.push(("module", format!("{}; {}", variants::module_version(&ours.server)?, env!("CARGO_PKG_VERSION"))));
    for index in (0..bench.variants.len()).filter(|index| bench.variants[*index].is_peer()) {
        if let Ok(peer) = bench.start(index, false) {
            let version = variants::module_version(&peer.server)?;
            lines.push(("compared with", format!("{}: {version}", peer.variant.name)));
        }
    }
    if let Some(commit) = machine::output_of("git", &["describe", "--always", "--dirty"]) {
        lines.push(("commit", commit));
    }
    let mut programs: Vec<&str> = bench.variants.iter().map(|variant| variant.server.as_str()).collect();
    programs.dedup();
    for program in programs {
        lines.push(("server", machine::output_of(program, &["--version"]).unwrap_or_else(|| program.to_owned())));
    }
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
    Ok(text)
}
