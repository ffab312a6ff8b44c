//! Single commands, next to the server's EXISTS and to the same command of other modules: on a filter that was reserved for its
//! items and is much larger than the cache, on one that grew from each module's defaults, and on one that fits the cache.

use std::ops::Range;

use anyhow::Result;

use crate::client::{Outcome, Stream};
use crate::items::Set;
use crate::load::{self, MANY, PIPELINE_MANY};
use crate::statistics::{Samples, part_of};
use crate::table::{Cell, Results, Table, summary};
use crate::variants::{Bench, KEY, RATE, Running};

const RESERVED: &str = "reserved";
const GROWN: &str = "grown";
/// The filter that fits the cache is at `KEY`, and created again in each round.
const SMALL: &str = "1 MB";
const SMALL_CAPACITY: u64 = 850_000;
/// The percentage of the capacity that is filled in advance.
const FILLED: u64 = 14;

struct Sizes {
    /// The capacity of the reserved filter.
    capacity: u64,
    /// The items of the filter that grew.
    grown: u64,
    /// Commands on one item per round.
    one: u64,
    /// Items looked up by commands of a hundred per round.
    many: u64,
    /// Items added per round by either command: so few that the filter that grew does not grow further.
    added: u64,
}

/// A measured command.
struct Case {
    command: &'static str,
    /// The name of the filter; EXISTS has none.
    filter: &'static str,
    items: u64,
    set: Set,
}

/// The rounds of a case with a variant.
#[derive(Clone, Default)]
struct Figures {
    microseconds: Samples,
    requests: Samples,
}

fn cases() -> Vec<Case> {
    let case = |command, filter, items, set| Case { command, filter, items, set };
    let mut cases = vec![case("EXISTS", "", 1, Set::Absent), case("EXISTS", "", MANY, Set::Absent)];
    for filter in [RESERVED, GROWN, SMALL] {
        cases.extend([
            case("BF.EXISTS", filter, 1, Set::Absent),
            case("BF.MEXISTS", filter, MANY, Set::Absent),
            case("BF.ADD", filter, 1, Set::Drawn),
            case("BF.MADD", filter, MANY, Set::Members),
        ]);
    }
    cases.push(case("BF.CARD", SMALL, 0, Set::Absent));
    cases
}

/// Runs the section.
pub fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let sizes = Sizes {
        capacity: bench.size(100_000_000, 10_000_000),
        grown: bench.size(10_000_000, 1_000_000),
        one: bench.size(1_000_000, 100_000),
        many: bench.size(2_000_000, 200_000),
        added: bench.size(100_000, 20_000),
    };
    let rounds = bench.rounds(5, 2) as u64;
    let (mut faults, mut ready) = (Vec::new(), Vec::new());
    let columns =
        ["filter", "variant", "items", "layers", "MEMORY USAGE", "bits/item", "filled, items/s", "rate measured"];
    let mut memory = Table::new("Memory", &columns);
    let all = bench.start_all(&mut faults);
    for running in &all {
        eprintln!("bench: peer, filling {}", running.variant.name);
        if let Some(rows) = bench.attempt(running.index, &mut faults, || prepare(bench, running, &sizes)) {
            rows.into_iter().for_each(|row| memory.row(row));
            ready.push(running);
        }
    }
    let cases = cases();
    let mut figures = vec![vec![Figures::default(); cases.len()]; bench.variants.len()];
    for round in 0..rounds {
        eprintln!("bench: peer, round {} of {rounds}", round + 1);
        for running in &ready {
            let figures = &mut figures[running.index];
            bench.attempt(running.index, &mut faults, || measure(running, &sizes, round, &cases, figures));
        }
    }
    let mut table = commands_table(bench, &cases, &figures);
    table.note(format!(
        "`reserved` is a fixed filter for {} items at 1% that is {FILLED}% full. `grown` was created by the first BF.MADD with the \
         module's defaults, and grew to {} items. Both get slightly fuller with each of the {rounds} rounds. `{SMALL}` is a fixed filter \
         for {SMALL_CAPACITY} items that is {FILLED}% full before each round. Lookups are of absent items, adds of new ones: URLs of 70 \
         bytes. BF.CARD opens the key and replies with a stored number, which any command of a module has to do.",
        sizes.capacity, sizes.grown
    ));
    table.note(
        "us/call is the time inside the command (INFO commandstats). Requests/s are measured by the client, with 50 connections and \
         pipelines of 32 commands on one item or 4 on a hundred; the client may be what limits them.",
    );
    faults.into_iter().for_each(|fault| table.note(fault));
    results.table(&table)?;
    memory.note(format!(
        "The same filters before the first round. Bits are per item of the capacity for the reserved filter, and per item added for the \
         one that grew. The rate is that of items that were never added, with its standard error, for a filter at {RATE}; the reserved \
         one is far from full. Filled once, by BF.MADD of {MANY}."
    ));
    results.table(&memory)
}

fn commands_table(bench: &Bench, cases: &[Case], figures: &[Vec<Figures>]) -> Table {
    let columns = [
        "command",
        "items",
        "filter",
        "variant",
        "us/call",
        "least",
        "most",
        "x EXISTS",
        "x bloomgate",
        "requests/s",
        "least/s",
        "most/s",
    ];
    let mut table = Table::new("Commands", &columns);
    for (index, case) in cases.iter().enumerate() {
        for (variant, rows) in bench.variants.iter().zip(figures) {
            let Figures { microseconds, requests } = &rows[index];
            let exists = &rows[usize::from(case.items == MANY)].microseconds;
            let mut cells: Vec<Cell> =
                vec![case.command.into(), case.items.into(), case.filter.into(), variant.name.into()];
            cells.extend(summary(microseconds));
            cells.push(microseconds.ratio_to(exists).into());
            cells.push(microseconds.ratio_to(&figures[0][index].microseconds).into());
            cells.extend(summary(requests));
            table.row(cells);
        }
    }
    table
}

/// Creates and fills both large filters. Returns the rows of the table of memory.
fn prepare(bench: &Bench, running: &Running, sizes: &Sizes) -> Result<[Vec<Cell>; 2]> {
    let server = &running.server;
    // The first add creates the filter from the module's defaults.
    running.use_layout()?;
    let grown = load::add_members(server, 0..sizes.grown)?;
    let grown = filter_row(bench, running, GROWN, sizes.grown, &grown)?;
    server.call(&["RENAME", KEY, GROWN])?;
    running.reserve(sizes.capacity)?;
    let reserved = load::add_members(server, 0..sizes.capacity * FILLED / 100)?;
    let reserved = filter_row(bench, running, RESERVED, sizes.capacity, &reserved)?;
    server.call(&["RENAME", KEY, RESERVED])?;
    Ok([reserved, grown])
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
        running.variant.name.into(),
        items.into(),
        server.number(&["BF.INFO", KEY, "FILTERS"])?.into(),
        memory_bytes.into(),
        Cell::Number(8.0 * memory_bytes as f64 / items as f64, 4),
        Cell::Number(filled.commands_per_second() * MANY as f64, 3),
        format!("{:.4}% +-{:.4}%", part * 100.0, error * 100.0).into(),
    ])
}

/// A round of all cases.
fn measure(running: &Running, sizes: &Sizes, round: u64, cases: &[Case], figures: &mut [Figures]) -> Result<()> {
    running.reserve(SMALL_CAPACITY)?;
    load::add_members(&running.server, 0..SMALL_CAPACITY * FILLED / 100)?;
    for (case, figures) in cases.iter().zip(figures) {
        let key = if case.filter == SMALL { KEY } else { case.filter };
        let words = [case.command, key];
        let words = if key.is_empty() { &words[..1] } else { &words[..] };
        let measured = load::measure(&running.server, words, case.set, case.items, case.numbers(sizes, round))?;
        figures.microseconds.push(measured.microseconds_per_call);
        figures.requests.push(measured.requests_per_second);
    }
    Ok(())
}

impl Case {
    /// The numbers of a round's items, which no earlier round has used.
    fn numbers(&self, sizes: &Sizes, round: u64) -> Range<u64> {
        let (first, count) = match (self.set, self.items) {
            // After all that were used for filling.
            (Set::Members, _) => (sizes.capacity, sizes.added),
            (Set::Drawn, _) => (0, sizes.added),
            (Set::Absent, MANY) => (0, sizes.many),
            (Set::Absent, _) => (0, sizes.one),
        };
        first + round * count..first + (round + 1) * count
    }
}
