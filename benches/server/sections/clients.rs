//! The guard in each client: hits per second of 64 callers, beside the GET of the client library. Each client has a program for
//! this, which prints `caller,hits per second,GETs per second` for each round.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::results::Results;
use crate::statistics::Samples;
use crate::table::{Cell, Table, summary};
use crate::variants::Bench;

/// The clients: the name, the program that runs its file, the file, and where the program is installed from.
const CLIENTS: [(&str, &str, &str, &str); 1] =
    [("Python", "target/python/venv/bin/python", "clients/python/bench/guard_hits.py", "scripts/test-python")];
/// The least ratio that is worth a guard.
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
    let mut table = Table::new("clients", "Hits of the guard in each client", &columns);
    for (client, program, file, installer) in CLIENTS {
        if !Path::new(program).exists() {
            eprintln!("bench: clients: {program} is missing: {installer} installs it");
            continue;
        }
        let words = ["--callers", "64", "--rounds", &rounds.to_string(), "--lookups", &lookups.to_string(), &url];
        // The package of this checkout, not the one that the tests have installed.
        let mut command = Command::new(program);
        command.env("PYTHONPATH", "clients/python/src").arg(file).args(words);
        let output = command.output().with_context(|| program.to_owned())?;
        ensure!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
        for (callers, hits, gets) in
            parse(&String::from_utf8_lossy(&output.stdout)).context("the output of the client's program")?
        {
            let mut cells: Vec<Cell> = vec![client.into(), format!("64 {callers}").into(), (rounds as u64).into()];
            cells.extend(summary(&hits));
            cells.extend([gets.median().into(), hits.ratio_to(&gets).into(), Cell::Number(AIM, 2)]);
            table.row(cells);
        }
    }
    table.note(format!(
        "1000 cached rows of 200 bytes, {lookups} lookups in each round by random id. Callers are threads, or tasks of one event loop. The \
         guard and GET take turns, and share all processors with the server. Under asyncio, lookups of one turn of the loop are one command."
    ));
    results.table(&table)
}

/// Reads the lines of a client's program: the rates of the guard and of GET by sort of caller, in the order of their first lines.
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
