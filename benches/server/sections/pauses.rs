//! How long another client waits while a large filter is deleted: its longest PING, under the server's default settings.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use crate::client::Stream;
use crate::instance::Instance;
use crate::items::Set;
use crate::load::{MANY, PIPELINE_MANY};
use crate::statistics::Samples;
use crate::table::{Cell, Results, Table, summary};
use crate::variants::{Bench, KEY, Running};
use testing::Connection;

/// How long PING is sent after the command has returned, because memory may be freed later.
const WATCHED: Duration = Duration::from_millis(300);
/// The approximate bits per item at the rate.
const ITEM_BITS: u64 = 10;
/// Items per page of the large filter: one page in 150 stays untouched.
const ITEMS_OF_PAGE: u64 = 5;
const PAGE_BYTES: u64 = 4096;
/// ECHO deletes nothing: the baseline for the delay of a PING.
const COMMANDS: [&str; 2] = ["ECHO", "DEL"];

/// The rounds of a command with a variant, in ms.
#[derive(Default)]
struct Row {
    worst: Samples,
    own: Samples,
}

/// Runs the section.
pub fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let size_bytes = bench.size(1 << 30, 1 << 26).min(bench.largest * ITEM_BITS / 8);
    let rounds = bench.rounds(7, 2) as u64;
    let mut faults = Vec::new();
    // On any processor, as in ordinary use, because the freeing thread needs one.
    let all: Vec<Running> = (0..bench.variants.len())
        .filter_map(|index| bench.attempt(index, &mut faults, || bench.start(index, true)))
        .collect();
    let mut rows: Vec<Vec<Row>> = COMMANDS.iter().map(|_| all.iter().map(|_| Row::default()).collect()).collect();
    for round in 0..rounds {
        eprintln!("bench: pauses, round {} of {rounds}", round + 1);
        for (command, rows) in COMMANDS.into_iter().zip(&mut rows) {
            for (running, row) in all.iter().zip(rows) {
                bench.attempt(running.index, &mut faults, || measure(running, command, size_bytes, row));
            }
        }
    }
    let columns = ["command", "variant", "bytes", "rounds", "worst PING, ms", "least", "most", "inside it, ms"];
    let mut table = Table::new("Pauses while a filter is deleted", &columns);
    for (command, rows) in COMMANDS.into_iter().zip(&rows) {
        for (running, row) in all.iter().zip(rows) {
            let name = running.variant.name;
            let mut cells: Vec<Cell> = vec![command.into(), name.into(), size_bytes.into(), rounds.into()];
            cells.extend(summary(&row.worst));
            cells.push(row.own.median().into());
            table.row(cells);
        }
    }
    table.note(format!(
        "A filter of this size with nearly all pages touched is deleted, or not (ECHO). Another client sends one PING at a time, from \
         before the command until {} ms after its reply; the worst PING is the longest of a round, and the figures are over the rounds. \
         The last column is the median time inside the command. Servers have default settings, and run on any processor like the clients.",
        WATCHED.as_millis()
    ));
    faults.into_iter().for_each(|fault| table.note(fault));
    results.table(&table)
}

/// Runs a round: creates a large filter and sends the command.
fn measure(running: &Running, command: &str, size_bytes: u64, row: &mut Row) -> Result<()> {
    let server = &running.server;
    running.reserve(size_bytes * 8 / ITEM_BITS)?;
    let stream = Stream { words: &["BF.MADD", KEY], set: Set::Members, items: MANY, pipeline: PIPELINE_MANY };
    stream.run(server.port, 0..size_bytes / PAGE_BYTES * ITEMS_OF_PAGE)?;
    let (own, worst) = server.statistics_of(command, || during_pings(server, &[command, KEY]))?;
    row.worst.push(worst);
    row.own.push(own.microseconds as f64 / 1e3);
    if server.number(&["DEL", KEY])? > 0 {
        // The memory is freed in the background; the next round must not wait for it.
        thread::sleep(WATCHED);
    }
    Ok(())
}

/// Sends a command while another client sends PING. Returns the longest PING in ms.
fn during_pings(server: &Instance, words: &[&str]) -> Result<f64> {
    let (mut client, mut pinger) = (Connection::open(server.port)?, Connection::open(server.port)?);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let pings = scope.spawn(|| -> Result<Duration> {
            let mut worst = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let asked = Instant::now();
                pinger.try_call(&["PING"])?;
                worst = worst.max(asked.elapsed());
            }
            Ok(worst)
        });
        let reply = client.try_call(words);
        if reply.is_ok() {
            thread::sleep(WATCHED);
        }
        is_over.store(true, Ordering::Relaxed);
        let worst = pings.join().map_err(|_| anyhow!("the client that sends PING ended"))??;
        let reply = reply.context("the connection broke")?;
        ensure!(!reply.is_error(), "{reply:?}");
        Ok(worst.as_secs_f64() * 1e3)
    })
}
