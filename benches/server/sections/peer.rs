//! Single commands, next to the server's EXISTS and to the same command of other modules: on a filter that was reserved for its items and
//! is much larger than the cache, on a filter that grew from the default capacity, and on a filter that fits the cache. Before that, the
//! memory of filters of many sizes and rates.

use std::ops::Range;

use anyhow::Result;

use crate::client::Stream;
use crate::items::Set;
use crate::load::{self, MANY, PIPELINE_MANY};
use crate::statistics::{Samples, part_of};
use crate::table::{Cell, Results, Table, summary};
use crate::variants::{Bench, KEY, RATE, Running};
use testing::eventually;

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
    /// Items added per round by either command: so few that the grown filter does not grow further.
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

/// A filter whose memory is measured.
#[derive(Clone, Copy)]
enum Shape {
    /// Created for 100 items at 1%, the defaults of bloomgate, RedisBloom 8 and valkey-bloom 1.x, and filled with this many.
    Grown(u64),
    /// Reserved with a capacity, a rate and options, and empty.
    Reserved(u64, &'static str, &'static [&'static str]),
}

/// The memory of a shape with a variant.
struct Memory {
    used_bytes: f64,
    usage_bytes: u64,
    layers: u64,
    /// The fraction of false positives, with its standard error.
    rate: Option<(f64, f64)>,
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
    let shapes = shapes(&sizes);
    let mut memory: Vec<Vec<Memory>> = bench.variants.iter().map(|_| Vec::new()).collect();
    let all = bench.start_all(&mut faults);
    for running in &all {
        eprintln!("bench: peer, filling {}", running.variant.name);
        let memory = &mut memory[running.index];
        if bench.attempt(running.index, &mut faults, || prepare(bench, running, &sizes, &shapes, memory)).is_some() {
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
        "`reserved` is a fixed filter for {} items at 1% that is {FILLED}% full. `grown` was created for 100 items, and grew to {}. Both get slightly fuller with each of the {rounds} rounds. `{SMALL}` is a fixed filter \
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
    results.table(&memory_table(bench, &shapes, &memory))
}

/// The commands are measured on the last of each kind.
fn shapes(sizes: &Sizes) -> Vec<Shape> {
    let million = sizes.grown / 10;
    let mut shapes: Vec<Shape> = [100, 700, 3_100, 12_700, million, sizes.grown].map(Shape::Grown).into();
    for rate in ["0.01", "0.0001", "0.000001", "0.0000001"] {
        shapes.extend([&["NONSCALING"][..], &[]].map(|options| Shape::Reserved(million, rate, options)));
    }
    shapes.push(Shape::Reserved(sizes.capacity, RATE, &["NONSCALING"]));
    shapes
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
    let mut table = Table::new(&format!("Commands on {}", bench.server_name()), &columns);
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

fn memory_table(bench: &Bench, shapes: &[Shape], memory: &[Vec<Memory>]) -> Table {
    let columns = [
        "filter",
        "requested rate",
        "items",
        "variant",
        "layers",
        "used_memory",
        "x bloomgate",
        "MEMORY USAGE",
        "bits/item",
        "measured rate",
    ];
    let mut table = Table::new(&format!("Memory on {}", bench.server_name()), &columns);
    for (index, shape) in shapes.iter().enumerate() {
        for (variant, rows) in bench.variants.iter().zip(memory) {
            // A variant that failed has no rows from there on.
            let Some(row) = rows.get(index) else { continue };
            let (kind, rate, items) = match *shape {
                Shape::Grown(items) => (GROWN.to_owned(), RATE, items),
                Shape::Reserved(capacity, rate, options) => {
                    (format!("{RESERVED} {}", options.concat()), rate, capacity)
                }
            };
            let measured = row
                .rate
                .map_or(Cell::Empty, |(part, error)| format!("{:.4}% +-{:.4}%", part * 100.0, error * 100.0).into());
            table.row([
                kind.trim_end().into(),
                rate.into(),
                items.into(),
                variant.name.into(),
                row.layers.into(),
                Cell::Number(row.used_bytes, 4),
                memory[0].get(index).map(|ours| row.used_bytes / ours.used_bytes).into(),
                row.usage_bytes.into(),
                Cell::Number(8.0 * row.used_bytes / items as f64, 4),
                measured,
            ]);
        }
    }
    table.note(format!(
        "`{GROWN}` was created for 100 items at 1%, the usual defaults, and holds the items; `{RESERVED}` was reserved for them and \
         is empty. used_memory is what the server's memory grew by for each of as many filters as hold a million items, with its key; \
         bits are computed from it. MEMORY USAGE is what the module reports. The measured rate is that of items that were never added to \
         one of the filters, with its standard error: small filters differ by chance."
    ));
    table
}

/// Creates the filters of all shapes, and fills those for the commands. Deletes none: a thread may free one during the next measurement.
fn prepare(bench: &Bench, running: &Running, sizes: &Sizes, shapes: &[Shape], memory: &mut Vec<Memory>) -> Result<()> {
    let server = &running.server;
    for (number, shape) in shapes.iter().enumerate() {
        let before = used_memory(running)?;
        let (items, name) = match *shape {
            Shape::Grown(items) => (items, (items == sizes.grown).then_some(GROWN)),
            Shape::Reserved(items, ..) => (items, (items == sizes.capacity).then_some(RESERVED)),
        };
        let copies = (1_000_000 / items).max(1);
        let mut key = String::new();
        for copy in 0..copies {
            key = name.map_or_else(|| format!("{number}:{copy}"), str::to_owned);
            match *shape {
                Shape::Grown(items) => {
                    running.create(&key, RATE, 100, &[])?;
                    load::add_members(server, &key, 0..items)?;
                }
                Shape::Reserved(capacity, rate, options) => running.create(&key, rate, capacity, options)?,
            }
        }
        let used_bytes = used_memory(running)?.saturating_sub(before) as f64 / copies as f64;
        let rate = match shape {
            Shape::Grown(_) => Some(rate(bench, running, &key)?),
            Shape::Reserved(..) => None,
        };
        memory.push(Memory {
            used_bytes,
            usage_bytes: server.number(&["MEMORY", "USAGE", &key])?,
            layers: server.number(&["BF.INFO", &key, "FILTERS"])?,
            rate,
        });
    }
    load::add_members(server, RESERVED, 0..sizes.capacity * FILLED / 100)?;
    Ok(())
}

/// Returns the server's memory once no other client is connected, whose buffers would be part of it.
fn used_memory(running: &Running) -> Result<u64> {
    let server = &running.server;
    eventually("all clients to be gone", || {
        server.info_number("clients", "connected_clients").is_ok_and(|clients| clients == 1)
    });
    server.info_number("memory", "used_memory")
}

/// Measures the fraction of false positives, and its standard error.
fn rate(bench: &Bench, running: &Running, key: &str) -> Result<(f64, f64)> {
    let stream = Stream { words: &["BF.MEXISTS", key], set: Set::Absent, items: MANY, pipeline: PIPELINE_MANY };
    let answers = stream.run(running.server.port, 0..bench.size(2_000_000, 200_000))?.answers;
    Ok(part_of(answers.ones, answers.all))
}

/// A round of all cases.
fn measure(running: &Running, sizes: &Sizes, round: u64, cases: &[Case], figures: &mut [Figures]) -> Result<()> {
    running.reserve(SMALL_CAPACITY)?;
    load::add_members(&running.server, KEY, 0..SMALL_CAPACITY * FILLED / 100)?;
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
            // After all items that were used for filling.
            (Set::Members, _) => (sizes.capacity, sizes.added),
            (Set::Drawn, _) => (0, sizes.added),
            (Set::Absent, MANY) => (0, sizes.many),
            (Set::Absent, _) => (0, sizes.one),
        };
        first + round * count..first + (round + 1) * count
    }
}
