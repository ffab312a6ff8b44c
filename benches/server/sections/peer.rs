//! Our module compared with another one, command by command: a filter reserved for its items, and one that grew from each
//! module's defaults.

use anyhow::Result;

use crate::client::{Outcome, Stream};
use crate::grid::{Base, Case, Grid};
use crate::items::Set;
use crate::load::{self, ABSENT, DRAWN, MANY, Measured, PIPELINE_MANY};
use crate::results::Results;
use crate::statistics::part_of;
use crate::table::{Cell, Table};
use crate::variants::{Bench, Growth, KEY, RATE, Running, Variant};

/// The filter that grew; the other one is at `KEY`.
const GROWN: &str = "grown";
/// The percentage of the reserved filter that is filled in advance.
const FILLED: u64 = 14;
/// Names of the filters in the tables.
const RESERVED: &str = "reserved";

struct Sizes {
    /// The capacity of the reserved filter.
    capacity: u64,
    /// The items of the filter that grew.
    grown: u64,
    /// Commands on one item per round.
    one: u64,
    /// Lookups of a hundred items per round.
    many: u64,
    /// Items added per round by either command: so few that the filter that grew does not grow further.
    added: u64,
}

/// Runs the section.
pub fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    if !bench.variants.iter().any(Variant::is_peer) {
        eprintln!("bench: peer: no other module is here (--peer)");
        return Ok(());
    }
    let sizes = Sizes {
        capacity: bench.size(100_000_000, 10_000_000),
        grown: bench.size(10_000_000, 1_000_000),
        one: bench.size(1_000_000, 100_000),
        many: bench.size(20_000, 2_000),
        added: bench.size(200_000, 20_000),
    };
    let rounds = bench.rounds(5, 2) as u64;
    let mut faults = Vec::new();
    let all = bench.start_all(&mut faults);
    let mut memory = memory_table(&sizes);
    let mut ready = Vec::new();
    for running in &all {
        eprintln!("bench: peer, filling {}", running.variant.name);
        let filled = bench.attempt(running.index, &mut faults, || prepare(bench, running, &sizes));
        if let Some(rows) = filled {
            rows.into_iter().for_each(|row| memory.row(row));
            ready.push(running);
        }
    }
    let mut grid = Grid::new(&bench.variants, cases(&sizes));
    for round in 0..rounds {
        eprintln!("bench: peer, round {} of {rounds}", round + 1);
        for running in &ready {
            bench.attempt(running.index, &mut faults, || measure(bench, running, &sizes, round, &mut grid));
        }
    }
    let mut table = grid.table("peer", "Compared with another module");
    table.note(format!(
        "Each module in turn, in a server of the same program. One filter was reserved for {} items at 1%, with NONSCALING, and \
         is {FILLED}% full; the other was created by the first BF.MADD with the module's defaults, and grew to {} items. Both get \
         slightly fuller with each of the {rounds} rounds. Items are URLs of 70 bytes.",
        sizes.capacity, sizes.grown
    ));
    table.note(
        "us/call is the time inside the command (INFO commandstats). Requests/s are measured by the client, which may be what \
         limits them.",
    );
    faults.into_iter().for_each(|fault| table.note(fault));
    results.table(&table)?;
    results.table(&memory)
}

fn memory_table(sizes: &Sizes) -> Table {
    let columns =
        ["filter", "variant", "items", "layers", "MEMORY USAGE", "bits/item", "filled, items/s", "rate measured"];
    let mut table = Table::new("peer-memory", "Memory compared with another module", &columns);
    table.note(format!(
        "The same filters before the first round. Bits are per item of the capacity ({}) for the reserved filter, and per item \
         added for the one that grew. The rate is that of items that were never added, with its standard error, for a filter at \
         {RATE}; the reserved one is far from full. Filled once, by BF.MADD of {MANY}.",
        sizes.capacity
    ));
    table
}

fn cases(sizes: &Sizes) -> Vec<Case> {
    let filters = [format!("{RESERVED} for {}", sizes.capacity), format!("{GROWN} to {}", sizes.grown)];
    let case = |command: &str, filter: &str, base| Case { command: command.into(), filter: filter.into(), base };
    let of = |filter: &String| {
        [
            case("BF.EXISTS, absent item, pipeline 32", filter, Base::One),
            case("BF.ADD, new item, pipeline 32", filter, Base::One),
            case("BF.MEXISTS, 100 absent items, pipeline 4", filter, Base::Many),
            case("BF.MADD, 100 new items, pipeline 4", filter, Base::Many),
        ]
    };
    filters.iter().flat_map(of).collect()
}

/// Creates and fills both filters. Returns the rows of the table of memory.
fn prepare(bench: &Bench, running: &Running, sizes: &Sizes) -> Result<[Vec<Cell>; 2]> {
    let server = &running.server;
    // The first add creates the filter from the module's defaults.
    running.use_layout()?;
    let grown = load::add_members(server, 0..sizes.grown)?;
    let grown = filter_row(bench, running, GROWN, sizes.grown, &grown)?;
    server.call(&["RENAME", KEY, GROWN])?;
    running.reserve(sizes.capacity, Growth::Fixed)?;
    let reserved = load::add_members(server, 0..sizes.capacity * FILLED / 100)?;
    Ok([filter_row(bench, running, RESERVED, sizes.capacity, &reserved)?, grown])
}

/// Describes the filter at `KEY`.
fn filter_row(bench: &Bench, running: &Running, name: &str, items: u64, filled: &Outcome) -> Result<Vec<Cell>> {
    let server = &running.server;
    let memory_bytes = server.number(&["MEMORY", "USAGE", KEY])?;
    let stream = Stream { words: &["BF.MEXISTS", KEY], set: Set::Absent, items: MANY, pipeline: PIPELINE_MANY };
    let questions = stream.run(server.port, 0..bench.size(2_000_000, 200_000))?.answers;
    let (part, error) = part_of(questions.ones, questions.all);
    Ok(vec![
        name.into(),
        running.variant.name.as_str().into(),
        items.into(),
        server.number(&["BF.INFO", KEY, "FILTERS"])?.into(),
        memory_bytes.into(),
        Cell::Number(8.0 * memory_bytes as f64 / items as f64, 4),
        Cell::Number(filled.commands_per_second() * MANY as f64, 3),
        format!("{:.4}% +-{:.4}%", part * 100.0, error * 100.0).into(),
    ])
}

/// A round on both filters, and of the server's own commands.
fn measure(bench: &Bench, running: &Running, sizes: &Sizes, round: u64, grid: &mut Grid<'_>) -> Result<()> {
    let ask = |words: &[&str], items, draw, requests| -> Result<Measured> {
        load::measure(&running.server, bench.processors.as_ref(), words, items, draw, requests)
    };
    let (index, variant) = (running.index, &running.variant);
    grid.push_base(Base::One, variant, ask(&["EXISTS"], 1, ABSENT, sizes.one)?);
    grid.push_base(Base::Many, variant, ask(&["EXISTS"], MANY, ABSENT, sizes.many)?);
    // New numbers, after all that were used for filling.
    let first = sizes.capacity + round * sizes.added;
    for (case, key) in [(0, KEY), (4, GROWN)] {
        grid.push(case, index, ask(&["BF.EXISTS", key], 1, ABSENT, sizes.one)?);
        grid.push(case + 1, index, ask(&["BF.ADD", key], 1, DRAWN, sizes.added)?);
        grid.push(case + 2, index, ask(&["BF.MEXISTS", key], MANY, ABSENT, sizes.many)?);
        grid.push(case + 3, index, load::measure_adds(&running.server, key, first..first + sizes.added)?);
    }
    Ok(())
}
