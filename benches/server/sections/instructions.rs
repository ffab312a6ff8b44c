//! Counts instructions instead of time, because they are the same in every run: for the filter itself, with the functions that
//! execute them, and for whole commands in a server, by library. Needs valgrind.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::callgrind::Instructions;
use crate::client::Stream;
use crate::items::Set;
use crate::load;
use crate::loops::LOOPS;
use crate::machine::output_of;
use crate::results::Results;
use crate::table::{Cell, Table};
use crate::variants::{Bench, Growth, KEY};

/// The number of functions shown for each loop.
const SHOWN: usize = 8;
/// The number of libraries shown for each command.
const SHOWN_LIBRARIES: usize = 4;
/// The filter for whole commands: 1 MB.
const CAPACITY: u64 = 850_000;

/// Runs the section.
pub fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let Some(version) = output_of("valgrind", &["--version"]) else {
        let mut table = Table::new("instructions", "Instructions", &["lookup"]);
        table.note("Not measured: valgrind is not installed.");
        return results.table(&table);
    };
    let title = "Instructions of a lookup, in the filter itself";
    let mut table = Table::new("instructions", title, &["lookup", "function", "instructions", "part %"]);
    table.note(format!(
        "Of one absent item of 70 bytes, its hash included, by callgrind ({version}); 1 MB filters, 14% full. The \
         functions with the most instructions of their own; inlined code stands under the file that it comes from."
    ));
    for (title, name) in LOOPS {
        // A multiple of every batch.
        let times = bench.size(64_000, 6_400);
        let found = count_loop(bench, name, times)?;
        let each = |count: u64| count as f64 / times as f64;
        table.row([title.into(), "all".into(), Cell::Number(each(found.total), 4), Cell::Number(100.0, 3)]);
        for spent in found.functions.iter().take(SHOWN) {
            let part = Cell::Number(100.0 * spent.count as f64 / found.total as f64, 3);
            table.row([title.into(), spent.function.as_str().into(), Cell::Number(each(spent.count), 3), part]);
        }
    }
    results.table(&table)?;

    let title = "Instructions of a command, in the server";
    let mut table =
        Table::new("instructions-server", title, &["variant", "command", "library", "instructions", "per item"]);
    table.note(
        "Of one command inside the server's function `call`: reading the command from the socket and writing the \
         reply to it are not in it. 1 MB filters, 14% full, absent items for lookups and new ones for BF.ADD.",
    );
    let mut faults = Vec::new();
    let variants = if bench.quick { 1 } else { bench.variants.len() };
    for index in 0..variants {
        bench.attempt(index, &mut faults, || commands(bench, index, &mut table));
    }
    faults.into_iter().for_each(|fault| table.note(fault));
    results.table(&table)
}

fn count_loop(bench: &Bench, name: &str, times: u64) -> Result<Instructions> {
    let file = bench.scratch.join(format!("callgrind.{name}"));
    let own = std::env::current_exe()?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*measured_lookups*"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(own)
        .args(["--loop", name, &times.to_string()])
        .output()?;
    ensure!(output.status.success(), "valgrind: {}", String::from_utf8_lossy(&output.stderr));
    annotate(&file)
}

fn annotate(file: &Path) -> Result<Instructions> {
    let file = file.to_str().context("a path")?;
    let listing =
        output_of("callgrind_annotate", &["--threshold=100", "--auto=no", file]).context("callgrind_annotate fails")?;
    let found = Instructions::read(&listing);
    ensure!(found.total > 0, "callgrind counted nothing");
    Ok(found)
}

/// Runs a server under callgrind, which counts only inside `call`. The commands run one after another, and each count is read
/// separately.
fn commands(bench: &Bench, index: usize, table: &mut Table) -> Result<()> {
    let running = bench.start_counted(index)?;
    let server = &running.server;
    running.reserve(CAPACITY, Growth::Fixed)?;
    load::add_members(server, 0..CAPACITY / 100 * 14)?;
    let name = running.variant.name.as_str();
    let cases = [
        ("EXISTS", None, Set::Absent, 1),
        ("EXISTS", None, Set::Absent, 100),
        ("BF.EXISTS", Some(KEY), Set::Absent, 1),
        ("BF.MEXISTS", Some(KEY), Set::Absent, 100),
        ("BF.ADD", Some(KEY), Set::Drawn, 1),
        ("BF.MADD", Some(KEY), Set::Members, 100),
    ];
    for (dump, (command, key, set, items)) in (1..).zip(cases) {
        let calls = bench.size(10_000, 2_000) / items;
        let words: Vec<&str> = [Some(command), key].into_iter().flatten().collect();
        let control = |word: &str| -> Result<()> {
            output_of("callgrind_control", &[word, &server.process_id().to_string()])
                .context("callgrind_control fails")?;
            Ok(())
        };
        control("-z")?;
        let numbers = CAPACITY..CAPACITY + calls * items;
        Stream { words: &words, set, items, pipeline: 1 }.run(server.port, numbers)?;
        control("-d")?;
        let found = annotate(&server.folder().join(format!("callgrind.out.{dump}")))?;
        let mut row = |library: &str, count: u64| {
            let each = count as f64 / calls as f64;
            let what = if items == 1 { format!("{command}, 1 item") } else { format!("{command}, {items} items") };
            table.row([
                name.into(),
                what.into(),
                library.into(),
                Cell::Number(each, 4),
                Cell::Number(each / items as f64, 4),
            ]);
        };
        row("all", found.total);
        for (library, count) in found.by_object().into_iter().take(SHOWN_LIBRARIES) {
            row(
                if library.starts_with("redis-") || library.starts_with("valkey-") { "server" } else { &library },
                count,
            );
        }
    }
    Ok(())
}
