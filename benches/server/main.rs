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

use anyhow::{Context, Result, anyhow};
use clap::Parser;

use arguments::{Arguments, Section};
use machine::Processors;
use table::Results;
use variants::{Bench, Variant};

/// The folder of the tables, next to cargo's folder for programs.
const OUT: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/../bench");
/// The exit status of a script whose requirements are missing.
const SKIPPED: u8 = 77;

/// A module that is compared with ours.
struct Peer {
    name: &'static str,
    /// Its file in the folder of BLOOMGATE_PEERS.
    file: &'static str,
    /// The prefix of the versions of servers that load it.
    server: &'static str,
}

const PEERS: [Peer; 2] = [
    Peer { name: "RedisBloom 8", file: "redisbloom-8.so", server: "Redis server v=8" },
    Peer { name: "valkey-bloom 0.1", file: "valkeybloom-0.1.so", server: "Valkey server v=" },
];

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let peers = if arguments.peer { peers() } else { Vec::new() };
    if arguments.peer && peers.is_empty() {
        return ExitCode::from(SKIPPED);
    }
    match run(&arguments, peers) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Finds the other modules, each with a server that loads it, and prints which are missing.
fn peers() -> Vec<(Variant, PathBuf)> {
    let folder = PathBuf::from(std::env::var_os("BLOOMGATE_PEERS").unwrap_or_default());
    let servers = testing::servers();
    let found = PEERS.iter().map(|Peer { name, file, server }| {
        let module = folder.join(file);
        let loads_it = |program: &&PathBuf| {
            machine::output_of(program, &["--version"]).is_some_and(|text| text.starts_with(server))
        };
        let program = servers.iter().find(loads_it);
        if program.is_none() || !module.exists() {
            println!("SKIPPED: {name} needs {} (BLOOMGATE_PEERS) and a {server} (BLOOMGATE_SERVERS)", module.display());
            return None;
        }
        Some((Variant::peer(name, module), program?.clone()))
    });
    found.flatten().collect()
}

fn run(arguments: &Arguments, peers: Vec<(Variant, PathBuf)>) -> Result<()> {
    fs::create_dir_all(OUT).with_context(|| format!("cannot make {OUT}"))?;
    let out = Path::new(OUT).canonicalize()?;
    // Called before this program is pinned to a processor, while it may still use all of them.
    let machine = machine::describe();
    // The servers' folders are on the disk of the results.
    let scratch = tempfile::Builder::new().prefix("scratch-").tempdir_in(&out)?;
    tempfile::env::override_temp_dir(scratch.path()).map_err(|other| anyhow!("{} is taken", other.display()))?;
    let processors = Processors::find();
    if let Some(processors) = &processors {
        processors.move_this_program();
    }
    let module = testing::module();
    let others = if peers.is_empty() {
        let layout = Variant::ours("bloomgate, LAYOUT redisbloom", &module, Some("redisbloom"));
        vec![(layout, testing::servers().swap_remove(0))]
    } else {
        peers
    };
    let bench = |(other, server)| {
        let variants = vec![Variant::ours("bloomgate", &module, None), other];
        let (quick, largest, database) = (arguments.quick, arguments.largest, arguments.database);
        Bench { variants, server, quick, largest, database, processors: processors.clone() }
    };
    let benches: Vec<Bench> = others.into_iter().map(bench).collect();
    let mut results = Results::new(out.join("tables.md"), head(&benches, machine)?);
    for section in &arguments.sections {
        // The others need commands or settings that only the first peer has, or would take too long.
        let benches = if *section == Section::Peer { &benches[..] } else { &benches[..1] };
        eprintln!("bench: {section}");
        let start = Instant::now();
        for bench in benches {
            sections::run(*section, bench, &mut results).with_context(|| format!("section {section}"))?;
        }
        eprintln!("bench: {section} took {:.0} s", start.elapsed().as_secs_f64());
    }
    println!("the tables are in {}", out.display());
    Ok(())
}

/// Notes for every reader of the figures.
fn head(benches: &[Bench], machine: Vec<(&'static str, String)>) -> Result<String> {
    let words = std::env::args().skip(1).filter(|word| word != "--bench").collect::<Vec<_>>().join(" ");
    let mut lines = vec![("command", format!("`{}`", format!("scripts/bench {words}").trim_end()))];
    lines.extend(machine);
    if let Some(commit) = machine::output_of("git", &["describe", "--always", "--dirty"]) {
        lines.push(("commit", commit));
    }
    for bench in benches {
        lines.push(("server", machine::output_of(&bench.server, &["--version"]).unwrap_or_default()));
        for index in 0..bench.variants.len() {
            let running = bench.start(index, false).context(bench.variants[index].name)?;
            lines.push(("module", format!("{}: {}", running.variant.name, variants::module_version(&running.server)?)));
        }
    }
    lines.push(match &benches[0].processors {
        Some(found) => ("processors", format!("servers on {}, clients on {}", found.server, found.client)),
        None => ("processors", "chosen by the system".to_owned()),
    });
    let mut text = "# Measurements\n\n".to_owned();
    if benches[0].quick {
        text += "**A quick run with smaller filters and fewer rounds: its figures are only for a first look.**\n\n";
    }
    text += "Written by `scripts/bench`. Figures are medians of the rounds, with their minimum (least) and maximum (most).\n\n";
    for (name, value) in lines {
        text += &format!("- {name}: {value}\n");
    }
    println!("{text}");
    Ok(text)
}
