//! Counts the instructions of a command instead of its time, because their number is the same in every run. Needs valgrind.

use std::fs;

use anyhow::{Context, Result};

use crate::client::Stream;
use crate::info;
use crate::items::Set;
use crate::load;
use crate::machine::output_of;
use crate::table::{Cell, Results, Table};
use crate::variants::{Bench, KEY};

/// The capacity of the filter: 1 MB.
const CAPACITY: u64 = 850_000;

/// Runs the section.
pub fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let columns = ["variant", "command", "items", "instructions", "per item"];
    let mut table = Table::new("Instructions of a command", &columns);
    let mut faults = Vec::new();
    match output_of("valgrind", &["--version"]) {
        None => table.note("Not measured: valgrind is not installed."),
        Some(version) => {
            table.note(format!(
                "Of one command inside the server's function `call`, by callgrind ({version}): reading the command from the socket \
                 and writing the reply to it are not included. 1 MB filters, 14% full, absent items for lookups and new ones for adds."
            ));
            let variants = if bench.quick { 1 } else { bench.variants.len() };
            for index in 0..variants {
                bench.attempt(index, &mut faults, || commands(bench, index, &mut table));
            }
        }
    }
    faults.into_iter().for_each(|fault| table.note(fault));
    results.table(&table)
}

/// Runs a server under callgrind, which counts only inside `call`, and sends one command after another. Each writes its own file of
/// counts.
fn commands(bench: &Bench, index: usize, table: &mut Table) -> Result<()> {
    let running = bench.start_counted(index)?;
    let server = &running.server;
    running.reserve(CAPACITY)?;
    load::add_members(server, KEY, 0..CAPACITY / 100 * 14)?;
    let cases = [
        ("EXISTS", None, Set::Absent, 1),
        ("EXISTS", None, Set::Absent, 100),
        ("BF.EXISTS", Some(KEY), Set::Absent, 1),
        ("BF.MEXISTS", Some(KEY), Set::Absent, 100),
        ("BF.ADD", Some(KEY), Set::Drawn, 1),
        ("BF.MADD", Some(KEY), Set::Members, 100),
    ];
    for (file, (command, key, set, items)) in (1..).zip(cases) {
        let calls = bench.size(10_000, 2_000) / items;
        let words: Vec<&str> = [Some(command), key].into_iter().flatten().collect();
        let control = |word: &str| {
            output_of("callgrind_control", &[word, &server.process_id().to_string()]).context("callgrind_control fails")
        };
        control("-z")?;
        let numbers = CAPACITY..CAPACITY + calls * items;
        Stream { words: &words, set, items, pipeline: 1 }.run(server.port, numbers)?;
        control("-d")?;
        let counts = fs::read_to_string(server.folder().join(format!("callgrind.out.{file}")))?;
        let total = info::number(&counts, "totals").context("callgrind counted nothing")? as f64;
        let [each, per_item] = [calls, calls * items].map(|number| Cell::Number(total / number as f64, 4));
        table.row([running.variant.name.into(), command.into(), items.into(), each, per_item]);
    }
    Ok(())
}
