//! The guard in each client: hits per second of 64 callers, compared with the client library's GET. Each client has a program for
//! this, which prints `caller,hits per second,GETs per second` for each round.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::statistics::Samples;
use crate::table::{Cell, Results, Table, summary};
use crate::variants::Bench;

/// A client.
struct Client {
    name: &'static str,
    /// The program and its first arguments.
    words: Vec<PathBuf>,
    /// A required file, and the script that creates it.
    requirement: (PathBuf, &'static str),
}

fn clients() -> Result<[Client; 5]> {
    let python = PathBuf::from("target/python/venv/bin/python");
    // In the parent of this program's folder, which is `deps`.
    let rust = env::current_exe()?.ancestors().nth(2).context("the folder of the build")?.join("examples/guard_hits");
    // scripts/bench builds both if it finds their tools.
    let (java, go) = (PathBuf::from("target/bench/java"), PathBuf::from("target/bench/go/guard"));
    let classes =
        "clients/java/bloomgate/target/classes:clients/java/bloomgate/target/test-classes:target/bench/java/*";
    Ok([
        Client {
            name: "Python",
            words: vec![python.clone(), "clients/python/bench/guard_hits.py".into()],
            requirement: (python, "scripts/test --only python"),
        },
        Client {
            name: "TypeScript",
            words: vec!["node".into(), "clients/typescript/bench/guard-hits.mjs".into()],
            requirement: ("clients/typescript/dist/index.js".into(), "scripts/test --only typescript"),
        },
        Client { name: "Rust", words: vec![rust.clone()], requirement: (rust, "scripts/bench") },
        Client {
            name: "Java",
            words: ["java", "-cp", classes, "io.bloomgate.GuardFigures"].map(PathBuf::from).to_vec(),
            requirement: (java, "scripts/bench with a JDK and Maven"),
        },
        Client { name: "Go", words: vec![go.clone()], requirement: (go, "scripts/bench with Go") },
    ])
}

/// The minimum ratio that justifies a guard.
const AIM: f64 = 0.6;

/// Runs the section.
pub fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    // The clients and the server compete for every processor, as on one machine.
    if let Some(processors) = &bench.processors {
        processors.spread_this_program();
    }
    let result = measure(bench, results);
    if let Some(processors) = &bench.processors {
        processors.move_this_program();
    }
    result
}

fn measure(bench: &Bench, results: &mut Results) -> Result<()> {
    let server = bench.start(0, false)?;
    let url = format!("redis://127.0.0.1:{}", server.server.port);
    let (rounds, lookups) = (bench.rounds(7, 2), bench.size(64_000, 6_400));
    let columns = ["client", "callers", "rounds", "hits/s", "least", "most", "GET/s", "ratio", "aim"];
    let mut table = Table::new("Hits of the guard in each client", &columns);
    for Client { name, words, requirement: (path, script) } in clients()? {
        if !path.exists() {
            table.note(format!("{name} was not measured: {} is missing, which {script} makes.", path.display()));
            continue;
        }
        let (program, first) = words.split_first().context("a program")?;
        let options = ["--callers", "64", "--rounds", &rounds.to_string(), "--lookups", &lookups.to_string(), &url];
        // The package of this checkout, not the installed package of the tests.
        let mut command = Command::new(program);
        command.env("PYTHONPATH", "clients/python/src").args(first).args(options);
        let output = command.output().with_context(|| program.display().to_string())?;
        ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        for (callers, hits, gets) in
            parse(&String::from_utf8_lossy(&output.stdout)).context("the output of the client's program")?
        {
            let mut cells: Vec<Cell> = vec![name.into(), format!("64 {callers}").into(), (rounds as u64).into()];
            cells.extend(summary(&hits));
            cells.extend([gets.median().into(), hits.ratio_to(&gets).into(), Cell::Number(AIM, 2)]);
            table.row(cells);
        }
    }
    table.note(format!(
        "1000 cached rows of 200 bytes, {lookups} lookups in each round by random id. Callers are threads, tasks of asyncio, promises of \
         node-redis and ioredis, futures, or goroutines. The guard and GET take turns, and share all processors with the server. In an \
         event loop and in Go, the guard's lookups of one turn are one command, and the GETs of one turn are one command each."
    ));
    results.table(&table)
}

/// Reads the lines of a client's program: the rates of the guard and of GET by kind of caller, in the order of their first lines.
fn parse(text: &str) -> Option<Vec<(String, Samples, Samples)>> {
    let mut found: Vec<(String, Samples, Samples)> = Vec::new();
    for line in text.lines() {
        let (callers, rates) = line.split_once(',')?;
        let (hits, gets) = rates.split_once(',')?;
        let place = found.iter().position(|(name, ..)| name == callers).unwrap_or_else(|| {
            found.push((callers.to_owned(), Samples::default(), Samples::default()));
            found.len() - 1
        });
        found[place].1.push(hits.parse().ok()?);
        found[place].2.push(gets.parse().ok()?);
    }
    Some(found)
}
