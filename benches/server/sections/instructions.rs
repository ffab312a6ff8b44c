//! Counts the instructions of a command instead of its time, because their number is the same in every run. Needs valgrind.

use std::fs;

use anyhow::{Context, Result};

use crate::client::Stream;
use crate::info;
use crate::items::Set;
use crate::load;
use crate::machine::output_of;
use crate::table::{Cell, Results, Table};
use crate::variants::{Bench, KEY, Running};

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
                 and writing the reply to it are not included. 1 MB filters, 14% full, absent items for lookups and new ones for adds. Filters that \
                 a command creates are the module's default ones."
            ));
            let variants = if bench.quick { 1 } else { bench.variants.len() };
            for index in 0..variants {
                bench.attempt(index, &mut faults, || commands(bench, index, &mut table));
            }
        }
    }
    let mut beside =
        Table::new("Instructions of other commands while the guard is in use", &["command", "without", "with", "more"]);
    beside.note(
        "Without a lease, and with 200 leases of rows that the commands do not name. SET and HSET of keys that exist, BF.MADD of 100 new items \
         into the guarded filter.",
    );
    bench.attempt(0, &mut faults, || beside_leases(bench, &mut beside));
    faults.into_iter().for_each(|fault| table.note(fault));
    results.table(&table)?;
    results.table(&beside)
}

/// Commands that do not concern a leased row, before and after rows are leased.
fn beside_leases(bench: &Bench, table: &mut Table) -> Result<()> {
    let cases = [("SET", None, 2), ("HSET", None, 3), ("BF.MADD", Some(KEY), 100)];
    let running = bench.start_counted(0)?;
    let server = &running.server;
    running.reserve(CAPACITY)?;
    load::add_members(server, KEY, 0..CAPACITY / 10)?;
    let mut counts = Vec::new();
    for is_guarded in [false, true] {
        for row in 0..if is_guarded { 200 } else { 0 } {
            let (item, cache_key) = (format!("row-{row}"), format!("{{{KEY}}}:{row}"));
            server.call(&["BF.ADD", KEY, &item])?;
            server.call(&["BF.FETCH", KEY, &item, &cache_key, "LEASE", "3600000"])?;
        }
        for (command, key, items) in cases {
            let file = counts.len() + 1;
            // BF.MADD adds new items each time. The keys of the others exist.
            let begin = CAPACITY * if key.is_some() { 9 + file as u64 } else { items };
            if key.is_none() && !is_guarded {
                let numbers = begin..begin + bench.size(10_000, 2_000) / items * items;
                Stream { words: &[command], set: Set::Members, items, pipeline: 1 }.run(server.port, numbers)?;
            }
            counts.push(count(bench, &running, file, &[Some(command), key], (Set::Members, items), begin)?);
        }
    }
    for ((command, ..), (without, with)) in cases.iter().zip(counts.iter().zip(counts.iter().skip(cases.len()))) {
        let more = format!("{:.0}%", 100.0 * (with / without - 1.0));
        table.row([(*command).into(), Cell::Number(*without, 4), Cell::Number(*with, 4), more.as_str().into()]);
    }
    Ok(())
}

/// The instructions of each call of a command with items from `begin` on. `file` numbers the server's files of counts.
fn count(
    bench: &Bench,
    running: &Running,
    file: usize,
    words: &[Option<&str>],
    (set, items): (Set, u64),
    begin: u64,
) -> Result<f64> {
    let server = &running.server;
    let calls = bench.size(10_000, 2_000) / items;
    let words: Vec<&str> = words.iter().flatten().copied().collect();
    let control = |word: &str| {
        output_of("callgrind_control", &[word, &server.process_id().to_string()]).context("callgrind_control fails")
    };
    control("-z")?;
    Stream { words: &words, set, items, pipeline: 1 }.run(server.port, begin..begin + calls * items)?;
    control("-d")?;
    let counts = fs::read_to_string(server.folder().join(format!("callgrind.out.{file}")))?;
    Ok(info::number(&counts, "totals").context("callgrind counted nothing")? as f64 / calls as f64)
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
        // The first item of each command is the name of a missing key.
        ("BF.ADD", None, Set::Absent, 2),
        ("BF.MADD", None, Set::Absent, 21),
    ];
    for (file, (command, key, set, words)) in (1..).zip(cases) {
        let each = count(bench, &running, file, &[Some(command), key], (set, words), CAPACITY)?;
        let creates = key.is_none() && command.starts_with("BF.");
        let label = format!("{command}{}", if creates { " that creates" } else { "" });
        let items = if creates { words - 1 } else { words };
        let [each, per_item] = [each, each / items as f64].map(|number| Cell::Number(number, 4));
        table.row([running.variant.name.into(), label.as_str().into(), items.into(), each, per_item]);
    }
    Ok(())
}
