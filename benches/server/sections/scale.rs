//! The growth of costs with the size of a filter: from a hundred thousand items to a billion, filled completely.

use anyhow::Result;

use crate::client::Stream;
use crate::items::Set;
use crate::load::{self, MANY, PIPELINE_MANY};
use crate::statistics::{Samples, part_of};
use crate::table::{Cell, Results, Table, summary};
use crate::variants::{Bench, KEY, RATE, Running, Variant};

const COLUMNS: [&str; 14] = [
    "items",
    "variant",
    "rounds",
    "MEMORY USAGE",
    "bits/item",
    "items/s",
    "least",
    "most",
    "us/BF.MADD",
    "ns/item of BF.MADD",
    "ns/item of BF.MEXISTS",
    "least ns",
    "most ns",
    "rate measured",
];

/// The rounds of one size with one variant.
#[derive(Default)]
struct Row {
    memory_bytes: u64,
    items: Samples,
    microseconds_to_add: Samples,
    nanoseconds_to_look: Samples,
    hits: u64,
    questions: u64,
}

/// Runs the section.
pub fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let largest = bench.largest.min(bench.size(u64::MAX, 10_000_000));
    let sizes = (5..).map(|exponent| 10u64.pow(exponent)).take_while(|size| *size <= largest);
    let mut faults = Vec::new();
    let all = bench.start_all(&mut faults);
    let mut table = Table::new("Scale", &COLUMNS);
    for size in sizes {
        let rounds = if size > 10_000_000 { 1 } else { bench.rounds(3, 1) };
        eprintln!("bench: scale, {size} items");
        let mut rows: Vec<Row> = bench.variants.iter().map(|_| Row::default()).collect();
        for _ in 0..rounds {
            for running in all.iter().filter(|running| is_measured(&running.variant, size)) {
                let row = &mut rows[running.index];
                bench.attempt(running.index, &mut faults, || round(bench, running, size, row));
            }
        }
        for (row, variant) in rows.iter().zip(&bench.variants).filter(|(_, variant)| is_measured(variant, size)) {
            table.row(row.cells(size, variant));
        }
    }
    table.note(format!(
        "One fixed filter at {RATE}, filled to its last item by BF.MADD of {MANY} items each, pipeline {PIPELINE_MANY}, \
         from a client that makes its items as it goes. Items/s are what the client saw, the other times are those inside the commands. Above ten million \
         items there is one round."
    ));
    table
        .note("The rate is that of items that were never added, measured in the full filter, with its standard error.");
    faults.into_iter().for_each(|fault| table.note(fault));
    results.table(&table)
}

/// Sizes that take other modules half an hour to fill are measured for our module only.
const fn is_measured(variant: &Variant, size: u64) -> bool {
    size <= 100_000_000 || variant.is_main()
}

fn round(bench: &Bench, running: &Running, size: u64, row: &mut Row) -> Result<()> {
    let server = &running.server;
    running.reserve(size)?;
    let (adding, added) = server.statistics_of("BF.MADD", || load::add_members(server, KEY, 0..size))?;
    let questions = bench.size(2_000_000, 200_000);
    let stream = Stream { words: &["BF.MEXISTS", KEY], set: Set::Absent, items: MANY, pipeline: PIPELINE_MANY };
    let (looking, outcome) = server.statistics_of("BF.MEXISTS", || stream.run(server.port, 0..questions))?;
    row.memory_bytes = server.number(&["MEMORY", "USAGE", KEY])?;
    row.items.push(size as f64 / added.seconds);
    row.microseconds_to_add.push(adding.microseconds_per_call());
    row.nanoseconds_to_look.push(looking.microseconds_per_call() * 1e3 / MANY as f64);
    row.hits += outcome.answers.ones;
    row.questions += outcome.answers.all;
    server.call(&["DEL", KEY])?;
    Ok(())
}

impl Row {
    fn cells(&self, size: u64, variant: &Variant) -> Vec<Cell> {
        let mut cells = vec![size.into(), variant.name.into()];
        if self.questions == 0 {
            return cells;
        }
        let (part, error) = part_of(self.hits, self.questions);
        let bits = 8.0 * self.memory_bytes as f64 / size as f64;
        cells.extend([(self.items.rounds() as u64).into(), self.memory_bytes.into(), Cell::Number(bits, 4)]);
        cells.extend(summary(&self.items));
        let nanoseconds = self.microseconds_to_add.median().map(|cost| cost * 1e3 / MANY as f64);
        cells.extend([self.microseconds_to_add.median().into(), nanoseconds.into()]);
        cells.extend(summary(&self.nanoseconds_to_look));
        cells.push(format!("{:.4}% +-{:.4}%", part * 100.0, error * 100.0).into());
        cells
    }
}
