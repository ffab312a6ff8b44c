//! The cost of a snapshot: the pages that adds make the system copy while a child saves, the memory of that child and of a
//! loading server, and the duration of both compared with moving the same bytes.
//!
//! A copied page is one that the server wrote to while the child still needed it. When the child exits, it reports them
//! (rdb_last_cow_size) together with its own memory, which is known from a save without adds.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::info;
use crate::instance::Instance;
use crate::load;
use crate::machine::output_of;
use crate::results::Results;
use crate::sections::disk;
use crate::statistics::Samples;
use crate::table::{Cell, Table};
use crate::variants::{Bench, Growth, KEY};

/// The number of members: 14 million of a billion.
const FILLED_THOUSANDTHS: u64 = 14;

/// The measures, in the order of the rows.
const MEASURES: [&str; 19] = [
    "BF.MADD before, items/s",
    "BF.MADD while saving, items/s",
    "BF.MADD before, us/call",
    "BF.MADD while saving, us/call",
    "fork, ms",
    "pages copied an item",
    "still saving after the adds (1 yes, 0 no)",
    "rdb_last_cow_size, save with adds, MB",
    "rdb_last_cow_size, save without adds: the child's own, MB",
    "most Private_Dirty seen of that child, MB",
    "MEMORY USAGE of the filter, MB",
    "snapshot, MB",
    "SAVE, s",
    "writing as many bytes and fsync, s",
    "loading, s",
    "reading as many bytes, s",
    "peak resident after loading (VmHWM), MB",
    "the same without the filter, MB",
    "peak resident of an empty server, MB",
];

/// Figures by measure, for one variant.
struct Figures([Samples; MEASURES.len()]);

impl Figures {
    fn push(&mut self, measure: &str, value: f64) {
        if let Some(at) = MEASURES.iter().position(|name| *name == measure) {
            self.0[at].push(value);
        }
    }
}

/// Runs the section.
pub fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let capacity = bench.size(1_000_000_000, 100_000_000);
    let added = bench.size(30_000, 3_000);
    let rounds = bench.rounds(3, 1);
    let mut faults = Vec::new();
    let mut figures: Vec<Figures> =
        bench.variants.iter().map(|_| Figures(std::array::from_fn(|_| Samples::new()))).collect();
    for number in 0..rounds {
        for (index, figures) in figures.iter_mut().enumerate() {
            eprintln!("bench: snapshot, round {} of {rounds}, {}", number + 1, bench.variants[index].name);
            bench.attempt(index, &mut faults, || round(bench, index, capacity, added, figures));
        }
    }
    let mut columns = vec!["measure".to_owned()];
    for variant in &bench.variants {
        columns.extend([variant.name.clone(), "least".to_owned(), "most".to_owned(), "x bloomgate".to_owned()]);
    }
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new("snapshot", "While a snapshot is saved, and when it is loaded", &columns);
    for (at, measure) in MEASURES.iter().enumerate() {
        let mut cells = vec![Cell::from(*measure)];
        for variant in &figures {
            cells.extend(crate::table::summary(&variant.0[at]));
            cells.push(variant.0[at].ratio_to(&figures[0].0[at]).into());
        }
        table.row(cells);
    }
    table.note(format!(
        "A fixed filter for {capacity} items at 1% with {} items in it; rounds: {rounds}, each on a fresh server that \
         runs on any processor, as its saving child and the client do. Then {added} new items by BF.MADD of 100, as \
         many in flight as in the other sections, sent as soon as BGSAVE has answered. MB are millions of bytes.",
        capacity / 1000 * FILLED_THOUSANDTHS
    ));
    table.note(format!(
        "Pages copied an item: (rdb_last_cow_size of the save with adds, less that of a save without) / {} bytes / \
         items.",
        page_bytes()
    ));
    table.note(disk::note());
    faults.into_iter().for_each(|fault| table.note(fault));
    results.table(&table)
}

fn round(bench: &Bench, index: usize, capacity: u64, added: u64, figures: &mut Figures) -> Result<()> {
    let mut running = bench.start(index, true)?;
    if let Some(bytes) = running.server.peak_bytes() {
        figures.push("peak resident of an empty server, MB", megabytes(bytes));
    }
    running.reserve(capacity, Growth::Fixed)?;
    let filled = capacity / 1000 * FILLED_THOUSANDTHS;
    let before = filled / 14;
    let server = &running.server;
    load::add_members(server, 0..filled - before)?;
    let measured = load::measure_adds(server, KEY, filled - before..filled)?;
    figures.push("BF.MADD before, items/s", measured.requests_per_second * load::MANY as f64);
    figures.push("BF.MADD before, us/call", measured.microseconds_per_call);

    // Once without adds, to measure what the child needs by itself.
    server.call(&["BGSAVE"])?;
    figures.push("fork, ms", server.info_number("stats", "latest_fork_usec")? as f64 / 1e3);
    let own_dirty = wait_for_child(server)?;
    let own = server.info_number("persistence", "rdb_last_cow_size")?;
    figures.push("rdb_last_cow_size, save without adds: the child's own, MB", megabytes(own));
    figures.push("most Private_Dirty seen of that child, MB", megabytes(own_dirty));

    server.call(&["BGSAVE"])?;
    let measured = load::measure_adds(server, KEY, filled..filled + added)?;
    let is_saving = server.info_number("persistence", "rdb_bgsave_in_progress")?;
    wait_for_child(server)?;
    let copied = server.info_number("persistence", "rdb_last_cow_size")?;
    figures.push("BF.MADD while saving, items/s", measured.requests_per_second * load::MANY as f64);
    figures.push("BF.MADD while saving, us/call", measured.microseconds_per_call);
    figures.push("still saving after the adds (1 yes, 0 no)", is_saving as f64);
    figures.push("rdb_last_cow_size, save with adds, MB", megabytes(copied));
    let pages = (copied as f64 - own as f64) / page_bytes() as f64;
    figures.push("pages copied an item", pages / added as f64);

    let start = Instant::now();
    server.call(&["SAVE"])?;
    figures.push("SAVE, s", start.elapsed().as_secs_f64());
    let bytes = std::fs::metadata(server.snapshot())?.len();
    figures.push("snapshot, MB", megabytes(bytes));
    figures.push("writing as many bytes and fsync, s", disk::seconds_to_write(&server.snapshot())?);
    disk::forget_cache();
    figures.push("reading as many bytes, s", disk::seconds_to_read(&server.snapshot())?);
    disk::forget_cache();

    running.server.start_again()?;
    let server = &running.server;
    let seconds = info::seconds_to_load(&server.log()).context("the log does not say how long loading took")?;
    figures.push("loading, s", seconds);
    let filter = server.number(&["MEMORY", "USAGE", KEY])?;
    figures.push("MEMORY USAGE of the filter, MB", megabytes(filter));
    if let Some(peak) = server.peak_bytes() {
        figures.push("peak resident after loading (VmHWM), MB", megabytes(peak));
        figures.push("the same without the filter, MB", megabytes(peak) - megabytes(filter));
    }
    Ok(())
}

/// Waits until the child has saved. Returns the highest Private_Dirty seen meanwhile, in bytes.
fn wait_for_child(server: &Instance) -> Result<u64> {
    let mut most = 0;
    while server.info_number("persistence", "rdb_bgsave_in_progress")? != 0 {
        for child in server.children() {
            let memory = std::fs::read_to_string(format!("/proc/{child}/smaps_rollup")).unwrap_or_default();
            most = most.max(info::number(&memory, "Private_Dirty").unwrap_or(0) * 1024);
        }
        thread::sleep(Duration::from_millis(20));
    }
    anyhow::ensure!(info::field(&server.info("persistence")?, "rdb_last_bgsave_status") == Some("ok"), "BGSAVE failed");
    Ok(most)
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn page_bytes() -> u64 {
    output_of("getconf", &["PAGESIZE"]).and_then(|text| text.parse().ok()).unwrap_or(4096)
}
