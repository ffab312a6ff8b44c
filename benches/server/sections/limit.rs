//! One node at its limit: the speed, the error rate and the memory of one large filter while it fills, then how long it takes to
//! save, to load and to synchronise with a replica, and whether the copies equal the original.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::answers::Answers;
use crate::client::Stream;
use crate::info;
use crate::instance::Instance;
use crate::items::Set;
use crate::load::{self, MANY, PIPELINE_MANY, PIPELINE_ONE};
use crate::machine;
use crate::results::Results;
use crate::statistics::part_of;
use crate::table::{Cell, Table};
use crate::variants::{Bench, Growth, KEY, RATE};

/// The measurements while the filter fills.
const POINTS: u64 = 10;
/// The ranges of members that are looked up in each copy, spread evenly over all members.
const RANGES: u64 = 20;
/// How long a replica may take, so that a synchronisation that fails forever ends the measurement.
const PATIENCE: Duration = Duration::from_secs(3600);

const COLUMNS: [&str; 11] = [
    "items",
    "fill, %",
    "items/s",
    "ns/item of BF.MADD",
    "us/BF.EXISTS",
    "us/BF.MEXISTS",
    "ns/item of BF.MEXISTS",
    "rate measured, %",
    "standard error, %",
    "used_memory",
    "used_memory_rss",
];

/// The values of `rdbcompression`, the columns of the second table.
const COMPRESSION: [&str; 2] = ["yes", "no"];

/// The measures of the copies, in the order of the rows.
const MEASURES: [&str; 11] = [
    "fork, ms",
    "BGSAVE, s",
    "snapshot, bytes",
    "restart until PING answers, s",
    "members missing after the restart",
    "false positives after the restart",
    "equal bit for bit after the restart (1 yes, 0 no)",
    "full synchronisation until the link is up, s",
    "members missing on the replica",
    "false positives on the replica",
    "replica equal bit for bit (1 yes, 0 no)",
];

/// What a filter answers, to compare copies of it.
#[derive(PartialEq, Eq)]
struct Identity {
    members: Answers,
    absent: Answers,
    /// `DEBUG DIGEST-VALUE`, which covers every bit.
    digest: String,
}

/// Runs the section.
pub fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let capacity = bench.largest.min(bench.size(u64::MAX, 10_000_000));
    let items = (capacity as f64 * bench.fill) as u64;
    ensure!(items >= RANGES * POINTS, "too few items for {POINTS} points");
    let mut running = bench.start(0, false)?;
    running.reserve(capacity, Growth::Fixed)?;
    let mut table = Table::new("limit", "One filter while it fills", &COLUMNS);
    for point in 1..=POINTS {
        eprintln!("bench: limit, {point} of {POINTS} points");
        let numbers = items / POINTS * (point - 1)..if point == POINTS { items } else { items / POINTS * point };
        table.row(measure_point(bench, &running.server, capacity, numbers, point)?);
    }
    table.note(format!(
        "One fixed filter for {capacity} items at {RATE}, filled with {items} items by BF.MADD of {MANY}, pipeline \
         {PIPELINE_MANY}. Items/s are those that a client of our own saw since the row before; us and ns are the time inside the \
         command. Lookups are of items that were never added: single ones with pipeline {PIPELINE_ONE}, batches of {MANY} with \
         pipeline {PIPELINE_MANY}. The rate is that of the batches, which ask for other items in each row. One round."
    ));
    results.table(&table)?;
    measure_copies(bench, &mut running.server, items, results)
}

/// Saves, loads and replicates the filter with each compression setting.
fn measure_copies(bench: &Bench, server: &mut Instance, items: u64, results: &mut Results) -> Result<()> {
    let asked = bench.size(1_000_000, 100_000);
    let filled = identity(server, items, asked)?;
    ensure!(filled.members.ones == filled.members.all, "the filter lost a member");
    let mut rows = MEASURES.map(|measure| vec![Cell::from(measure)]);
    let (mut are_equal, mut has_replica) = (true, false);
    for value in COMPRESSION {
        eprintln!("bench: limit, rdbcompression {value}");
        server.call(&["CONFIG", "SET", "rdbcompression", value])?;
        let mut column = save(server)?.to_vec();
        forget_cache();
        column.push(Cell::Number(server.start_again()?, 3));
        server.call(&["CONFIG", "SET", "rdbcompression", value])?;
        let loaded = identity(server, items, asked)?;
        are_equal &= loaded == filled;
        column.extend(loaded.cells(&filled));
        if let Some((seconds, replica)) = replicate(bench, server, items, asked)? {
            are_equal &= replica == filled;
            column.push(Cell::Number(seconds, 3));
            column.extend(replica.cells(&filled));
            has_replica = true;
        }
        column.resize(MEASURES.len(), Cell::Empty);
        rows.iter_mut().zip(column).for_each(|(row, cell)| row.push(cell));
    }
    let columns = COMPRESSION.map(|value| format!("rdbcompression {value}"));
    let title = "Saving, loading and replicating that filter";
    let mut table = Table::new("limit-copies", title, &["measure", &columns[0], &columns[1]]);
    rows.into_iter().for_each(|row| table.row(row));
    table.note(format!(
        "The filter of the table above; nothing is added meanwhile. The second column begins on the server that was restarted for the \
         first. The server and its saving child share a processor; the replica runs on any. Looked up in each copy: {} members from \
         {RANGES} places, and {} absent items, of which the filter itself reports {} as present. Bit for bit: DEBUG DIGEST-VALUE.",
        filled.members.all, filled.absent.all, filled.absent.ones
    ));
    table.note(
        "The replica is a second server on the same machine with default settings: the primary sends the snapshot through a socket, \
         and the replica stores it on its disk before it loads it. The primary does not wait for more replicas \
         (repl-diskless-sync-delay 0).",
    );
    if !has_replica {
        table.note("The machine has too little memory for the filter of a replica, so nothing was synchronised.");
    }
    table.note(cache_note());
    results.table(&table)?;
    ensure!(are_equal, "a copy differs from the filter");
    Ok(())
}

/// Adds the members with these numbers, and measures that and lookups.
fn measure_point(
    bench: &Bench,
    server: &Instance,
    capacity: u64,
    numbers: std::ops::Range<u64>,
    point: u64,
) -> Result<[Cell; COLUMNS.len()]> {
    let (added, items) = (numbers.end - numbers.start, numbers.end);
    let (adding, outcome) = server.statistics_of("BF.MADD", || load::add_members(server, numbers))?;
    let lookup = |words: &[&str], items: u64, pipeline: u64, questions: u64| {
        let stream = Stream { words, set: Set::Absent, items, pipeline };
        server.statistics_of(words[0], || stream.run(server.port, questions * point..questions * (point + 1)))
    };
    let (one, _) = lookup(&["BF.EXISTS", KEY], 1, PIPELINE_ONE, bench.size(1_000_000, 100_000))?;
    let (many, answers) = lookup(&["BF.MEXISTS", KEY], MANY, PIPELINE_MANY, bench.size(10_000_000, 1_000_000))?;
    let (rate, error) = part_of(answers.answers.ones, answers.answers.all);
    let nanoseconds = |microseconds: f64| microseconds * 1e3 / MANY as f64;
    Ok([
        items.into(),
        Cell::Number(100.0 * items as f64 / capacity as f64, 3),
        Some(added as f64 / outcome.seconds).into(),
        Some(adding.microseconds as f64 * 1e3 / added as f64).into(),
        Some(one.microseconds_per_call()).into(),
        Some(many.microseconds_per_call()).into(),
        Some(nanoseconds(many.microseconds_per_call())).into(),
        Some(100.0 * rate).into(),
        Cell::Number(100.0 * error, 2),
        server.info_number("memory", "used_memory")?.into(),
        server.info_number("memory", "used_memory_rss")?.into(),
    ])
}

/// Saves a snapshot in a child, and returns the first three measures.
fn save(server: &Instance) -> Result<[Cell; 3]> {
    // The disk has to hold one snapshot of the server only, besides that of a replica.
    let _ = fs::remove_file(server.snapshot());
    let start = Instant::now();
    server.call(&["BGSAVE"])?;
    while server.info_number("persistence", "rdb_bgsave_in_progress")? != 0 {
        thread::sleep(Duration::from_millis(5));
    }
    let seconds = start.elapsed().as_secs_f64();
    let status = server.info("persistence")?;
    ensure!(info::field(&status, "rdb_last_bgsave_status") == Some("ok"), "BGSAVE failed");
    let fork = server.info_number("stats", "latest_fork_usec")? as f64 / 1e3;
    Ok([Cell::Number(fork, 3), Cell::Number(seconds, 3), fs::metadata(server.snapshot())?.len().into()])
}

/// Synchronises a second server. Returns the seconds until its link is up, and what it then answers. Returns nothing if the
/// machine has too little memory for it.
fn replicate(bench: &Bench, primary: &Instance, items: u64, asked: u64) -> Result<Option<(f64, Identity)>> {
    let needed = primary.info_number("memory", "used_memory")?;
    if machine::available_bytes().is_some_and(|available| available < needed + needed / 20) {
        return Ok(None);
    }
    let replica = bench.start(0, true)?.server;
    let start = Instant::now();
    replica.call(&["REPLICAOF", "127.0.0.1", &primary.port.to_string()])?;
    while info::field(&replica.info("replication")?, "master_link_status") != Some("up") {
        ensure!(start.elapsed() < PATIENCE, "the replica does not synchronise");
        thread::sleep(Duration::from_millis(5));
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(Some((seconds, identity(&replica, items, asked)?)))
}

/// Looks up members and absent items, up to `asked` of each.
fn identity(server: &Instance, items: u64, asked: u64) -> Result<Identity> {
    let ask = |set, numbers| {
        let stream = Stream { words: &["BF.MEXISTS", KEY], set, items: MANY, pipeline: PIPELINE_MANY };
        stream.run(server.port, numbers).map(|outcome| outcome.answers)
    };
    let (apart, length) = (items / RANGES, (asked.min(items) / RANGES));
    let mut members = Answers::default();
    for range in 0..RANGES {
        // The last range ends with the last member.
        let end = if range == RANGES - 1 { items } else { apart * range + length };
        let answers = ask(Set::Members, end - length..end)?;
        members.ones += answers.ones;
        members.all += answers.all;
    }
    let digests = server.call(&["DEBUG", "DIGEST-VALUE", KEY])?;
    let digest = digests.elements().first().context("a digest")?.text();
    Ok(Identity { members, absent: ask(Set::Absent, 0..asked)?, digest })
}

impl Identity {
    /// The measures of a copy of a filter.
    fn cells(&self, original: &Self) -> [Cell; 3] {
        let missing = self.members.all - self.members.ones;
        [missing.into(), self.absent.ones.into(), u64::from(self.digest == original.digest).into()]
    }
}

/// Makes the system drop what it has cached of the disk, if this program may (root on Linux).
fn forget_cache() -> bool {
    let _ = Command::new("sync").output();
    fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

/// What a reader must know about the reading times.
fn cache_note() -> &'static str {
    if forget_cache() {
        "The system's cache of the disk was emptied before loading and before reading."
    } else {
        "The system's cache of the disk could not be emptied (that needs root on Linux): loading and reading are from \
         memory."
    }
}
