//! Single commands on a filter that is much larger than the cache and on one that fits it, next to the server's EXISTS.

use anyhow::Result;

use crate::grid::{Base, Case, Grid};
use crate::load::{self, ABSENT, DRAWN, MANY, Measured};
use crate::results::Results;
use crate::variants::{Bench, Growth, KEY, Running};

/// The items of the filter that fits the cache: 1 MB.
const SMALL_CAPACITY: u64 = 850_000;
/// The percentage of the capacity that is filled in advance.
const FILLED: u64 = 14;

/// The number of commands in a measurement.
struct Requests {
    many: u64,
    one: u64,
    added: u64,
}

/// Runs the section.
pub fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let capacity = bench.size(100_000_000, 10_000_000);
    let rounds = bench.rounds(5, 2);
    let requests = Requests {
        many: bench.size(40_000, 2_000),
        one: bench.size(1_000_000, 100_000),
        added: bench.size(500_000, 100_000),
    };
    let (mut faults, mut filled) = (Vec::new(), Vec::new());
    let all = bench.start_all(&mut faults);
    for running in &all {
        let fill = || {
            running.reserve(capacity, Growth::Fixed)?;
            load::add_members(&running.server, 0..capacity * FILLED / 100)
        };
        filled.push(bench.attempt(running.index, &mut faults, fill).is_some());
    }
    let mut grid = Grid::new(&bench.variants, cases());
    for round in 0..rounds {
        eprintln!("bench: commands, round {} of {rounds}", round + 1);
        let rounds_before = round as u64;
        for (running, _) in all.iter().zip(&filled).filter(|(_, filled)| **filled) {
            let first = capacity * FILLED / 100 + rounds_before * requests.many / 4 * MANY;
            let large = || large_filter(bench, running, first, &requests, &mut grid);
            bench.attempt(running.index, &mut faults, large);
        }
    }
    // The small filters come last, because they replace the large ones.
    for _ in 0..rounds {
        for running in &all {
            bench.attempt(running.index, &mut faults, || small_filter(bench, running, &requests, &mut grid));
        }
    }
    let mut table = grid.table("commands", "Commands");
    table.note(format!(
        "A fixed filter for {capacity} items at 1%, {FILLED}% full before the first round and slightly fuller after each \
         of the {rounds} rounds, and a fixed filter for {SMALL_CAPACITY} items (1 MB), {FILLED}% full before each round. \
         Items are URLs of 70 bytes."
    ));
    table.note("BF.CARD opens the key and replies with a stored number: this is the cost of any command of a module.");
    table.note(
        "us/call is the time inside the command (INFO commandstats). Requests/s are measured by the client: \
         redis-benchmark with 50 connections, or for BF.MADD our own client with the same number, which generates its \
         items while it sends. For commands this short, requests/s may be limited by the client and the protocol.",
    );
    faults.into_iter().for_each(|fault| table.note(fault));
    results.table(&table)
}

fn cases() -> Vec<Case> {
    let case = |command: &str, filter: &str, base| Case { command: command.into(), filter: filter.into(), base };
    vec![
        case("BF.MEXISTS, 100 absent items, pipeline 4", "large", Base::Many),
        case("BF.MADD, 100 new items, pipeline 4", "large", Base::Many),
        case("BF.EXISTS, absent item, pipeline 32", "large", Base::One),
        case("BF.ADD, new item, pipeline 32", "large", Base::One),
        case("BF.EXISTS, absent item, pipeline 32", "1 MB", Base::One),
        case("BF.ADD, new item, pipeline 32", "1 MB", Base::One),
        case("BF.CARD, pipeline 32: no item", "1 MB", Base::One),
    ]
}

/// A round on the large filter, and of the server's own commands.
fn large_filter(bench: &Bench, running: &Running, first: u64, requests: &Requests, grid: &mut Grid<'_>) -> Result<()> {
    let measure = |words: &[&str], items, draw, requests| -> Result<Measured> {
        load::measure(&running.server, bench.processors.as_ref(), words, items, draw, requests)
    };
    let (index, variant) = (running.index, &running.variant);
    grid.push_base(Base::Many, variant, measure(&["EXISTS"], MANY, ABSENT, requests.many)?);
    grid.push(0, index, measure(&["BF.MEXISTS", KEY], MANY, ABSENT, requests.many)?);
    grid.push(1, index, load::measure_adds(&running.server, KEY, first..first + requests.many / 4 * MANY)?);
    grid.push_base(Base::One, variant, measure(&["EXISTS"], 1, ABSENT, requests.one)?);
    grid.push(2, index, measure(&["BF.EXISTS", KEY], 1, ABSENT, requests.one)?);
    grid.push(3, index, measure(&["BF.ADD", KEY], 1, DRAWN, requests.added)?);
    Ok(())
}

/// A round on a fresh small filter.
fn small_filter(bench: &Bench, running: &Running, requests: &Requests, grid: &mut Grid<'_>) -> Result<()> {
    let measure = |words: &[&str], draw, requests| -> Result<Measured> {
        load::measure(&running.server, bench.processors.as_ref(), words, 1, draw, requests)
    };
    running.reserve(SMALL_CAPACITY, Growth::Fixed)?;
    load::add_members(&running.server, 0..SMALL_CAPACITY * FILLED / 100)?;
    grid.push(4, running.index, measure(&["BF.EXISTS", KEY], ABSENT, requests.one)?);
    let no_item =
        load::measure(&running.server, bench.processors.as_ref(), &["BF.CARD", KEY], 0, ABSENT, requests.one)?;
    grid.push(6, running.index, no_item);
    // Few enough that the filter stays nearly as sparse as the large one.
    grid.push(5, running.index, measure(&["BF.ADD", KEY], DRAWN, SMALL_CAPACITY * FILLED / 100)?);
    Ok(())
}
