//! Single items in filters of 121 MB and 1.2 GB: in huge pages, in pages of 4 KiB, and in other modules.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::grid::{Base, Case, Grid};
use crate::info;
use crate::instance::Instance;
use crate::load::{self, ABSENT, DRAWN};
use crate::results::Results;
use crate::variants::{Bench, Growth, KEY, Running};

/// The percentage of the capacity that is filled in advance: all pages are written to.
const FILLED: u64 = 14;
/// The values of `bf.huge-pages`. Other modules have two equal filters.
const SETTINGS: [(&str, &str); 2] = [("yes", "huge pages"), ("no", "pages of 4 KiB")];
const COMMANDS: [&str; 2] = ["BF.EXISTS, absent item, pipeline 32", "BF.ADD, new item, pipeline 32"];
/// The memory in huge pages is final if it stays the same for so long; the thread rests for at most a tenth of a second.
const STEADY: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs the section.
pub fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let capacities = [bench.size(100_000_000, 10_000_000), bench.size(1_000_000_000, 20_000_000).min(bench.largest)];
    let rounds = bench.rounds(15, 2);
    let requests = bench.size(500_000, 100_000);
    let mut faults = Vec::new();
    let all = bench.start_all(&mut faults);
    let mut huge_bytes = 0;
    let mut ready = Vec::new();
    for running in &all {
        eprintln!("bench: huge-pages, filling {}", running.variant.name);
        if let Some(bytes) = bench.attempt(running.index, &mut faults, || prepare(running, &capacities)) {
            huge_bytes = huge_bytes.max(bytes);
            ready.push(running);
        }
    }
    let mut grid = Grid::new(&bench.variants, cases(&capacities));
    for round in 0..rounds {
        eprintln!("bench: huge-pages, round {} of {rounds}", round + 1);
        for case in 0..capacities.len() * SETTINGS.len() {
            for running in &ready {
                let measured = || measure(bench, running, &capacities, case, requests, &mut grid);
                bench.attempt(running.index, &mut faults, measured);
            }
        }
    }
    let mut table = grid.table("huge-pages", "Huge pages");
    table.note(format!(
        "Fixed filters at 1%, {FILLED}% full before the first of {rounds} rounds and slightly fuller after each. Each server has \
         two filters of each capacity, in our module with both values of bf.huge-pages: {huge_bytes} bytes of its memory are in huge \
         pages. Items are URLs of 70 bytes."
    ));
    faults.into_iter().for_each(|fault| table.note(fault));
    results.table(&table)
}

fn cases(capacities: &[u64]) -> Vec<Case> {
    let filters =
        capacities.iter().flat_map(|capacity| SETTINGS.map(|(_, pages)| format!("reserved for {capacity}, {pages}")));
    let of = |filter: String| {
        COMMANDS.map(|command| Case { command: command.to_owned(), filter: filter.clone(), base: Base::One })
    };
    filters.flat_map(of).collect()
}

/// The key of a filter.
fn key(capacity: u64, setting: &str) -> String {
    format!("{capacity}:{setting}")
}

/// Creates and fills a server's filters. Returns how many bytes of the server are in huge pages.
fn prepare(running: &Running, capacities: &[u64]) -> Result<u64> {
    let server = &running.server;
    for (setting, _) in SETTINGS {
        if !running.variant.is_peer() {
            server.call(&["CONFIG", "SET", "bf.huge-pages", setting])?;
        }
        for capacity in capacities {
            running.reserve(*capacity, Growth::Fixed)?;
            load::add_members(server, 0..capacity * FILLED / 100)?;
            server.call(&["RENAME", KEY, &key(*capacity, setting)])?;
        }
    }
    wait_for_huge_pages(server)
}

/// Waits until the memory in huge pages does not change any more, and returns it.
fn wait_for_huge_pages(server: &Instance) -> Result<u64> {
    let path = format!("/proc/{}/smaps_rollup", server.info_number("server", "process_id")?);
    let (mut last, mut since, start) = (0, Instant::now(), Instant::now());
    while since.elapsed() < STEADY {
        thread::sleep(Duration::from_millis(100));
        // Without this file there are no huge pages.
        let Ok(text) = fs::read_to_string(&path) else { return Ok(0) };
        let bytes = info::number(&text, "AnonHugePages").unwrap_or_default() * 1024;
        if bytes != last {
            (last, since) = (bytes, Instant::now());
        }
        ensure!(start.elapsed() < PATIENCE, "the memory in huge pages still grows after {} s", PATIENCE.as_secs());
    }
    Ok(last)
}

/// A round on one filter, and of the server's own command. A case of this section is a filter, with a row per command.
fn measure(
    bench: &Bench,
    running: &Running,
    capacities: &[u64],
    filter: usize,
    requests: u64,
    grid: &mut Grid<'_>,
) -> Result<()> {
    let key = key(capacities[filter / SETTINGS.len()], SETTINGS[filter % SETTINGS.len()].0);
    let ask =
        |words: &[&str], draw| load::measure(&running.server, bench.processors.as_ref(), words, 1, draw, requests);
    grid.push_base(Base::One, &running.variant, ask(&["EXISTS"], ABSENT)?);
    grid.push(filter * COMMANDS.len(), running.index, ask(&["BF.EXISTS", &key], ABSENT)?);
    grid.push(filter * COMMANDS.len() + 1, running.index, ask(&["BF.ADD", &key], DRAWN)?);
    Ok(())
}
