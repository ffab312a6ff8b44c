//! Adds and lookups during a save: how many per second, and how long another client waits for single adds, while a child saves, while pending adds are flushed, and afterwards.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::answers::{Answers, count_reply};
use crate::instance::Instance;
use crate::items::{Batch, Set};
use crate::load;
use crate::statistics::Samples;
use crate::table::{Cell, Results, Table};
use crate::variants::{Bench, KEY};
use testing::Connection;

/// The number of members: 14 million of a billion.
const FILLED_THOUSANDTHS: u64 = 14;
/// The pause after the filter is filled, per item of its capacity: the module's thread takes this long to put the filter into huge pages.
/// It would compete with the server and its clients for two processors.
const SETTLE: Duration = Duration::from_nanos(20);
/// Commands per round trip.
const TOGETHER: u64 = 5000;
/// The adds that are sent as soon as BGSAVE has returned.
const FIRST: u64 = 30_000;

/// The phases, named by the server's work.
const PHASES: [&str; 5] = ["alone", "saving, the first 30000 adds", "saving", "writing what waited", "afterwards"];
const ALONE: usize = 0;
const BEGINS: usize = 1;
const SAVING: usize = 2;
const WRITING: usize = 3;
const AFTER: usize = 4;
/// The measures of each phase.
const MEASURES: [&str; 4] =
    ["adds/s", "lookups/s", "us of BF.ADD from another client, 99%", "us of BF.ADD from another client, 99.9%"];

/// Figures by phase and measure for one variant.
type Figures = [[Samples; MEASURES.len()]; PHASES.len()];

/// Runs the section.
pub fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let capacity = bench.size(1_000_000_000, 100_000_000);
    let (most, rounds) = (bench.size(3_000_000, 300_000), bench.rounds(3, 1));
    let mut faults = Vec::new();
    let mut figures: Vec<Figures> = bench.variants.iter().map(|_| Figures::default()).collect();
    for number in 0..rounds {
        for (index, figures) in figures.iter_mut().enumerate() {
            eprintln!("bench: saving, round {} of {rounds}, {}", number + 1, bench.variants[index].name);
            bench.attempt(index, &mut faults, || round(bench, index, capacity, most, figures));
        }
    }
    let mut columns = vec!["variant".to_owned(), "phase".to_owned()];
    for measure in MEASURES {
        columns.extend([measure.to_owned(), format!("{measure}: x alone")]);
    }
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new("Adds and lookups during a save", &columns);
    for (variant, figures) in bench.variants.iter().zip(&figures) {
        for (phase, name) in PHASES.iter().enumerate() {
            let mut cells = vec![Cell::from(variant.name), Cell::from(*name)];
            for (samples, alone) in figures[phase].iter().zip(&figures[ALONE]) {
                cells.extend([samples.median().into(), samples.ratio_to(alone).into()]);
            }
            table.row(cells);
        }
    }
    table.note(format!(
        "A fixed filter for {capacity} items at 1% that holds {}; rounds: {rounds}, each on a fresh server. The server, its saving \
         child and the clients run on any processor. The first phase begins {:.0?} after the filter was filled. One client adds new \
         items with BF.ADD and looks up absent ones with BF.EXISTS, {TOGETHER} commands per round trip; another sends one BF.ADD at a time. At most {most} items are added during the save.",
        capacity / 1000 * FILLED_THOUSANDTHS,
        SETTLE.mul_f64(capacity as f64),
    ));
    faults.into_iter().for_each(|fault| table.note(fault));
    results.table(&table)
}

/// A client that sends many commands per round trip, and counts them.
struct Load {
    client: Connection,
    adds: Batch,
    lookups: Batch,
    next: u64,
    answers: Answers,
}

impl Load {
    fn new(port: u16, next: u64) -> Result<Self> {
        let batch = |command, set| Batch::new(&[command, KEY], set, 1, TOGETHER);
        let (adds, lookups) = (batch("BF.ADD", Set::Members), batch("BF.EXISTS", Set::Absent));
        Ok(Self { client: Connection::open(port)?, adds, lookups, next, answers: Answers::default() })
    }

    /// Runs a round trip. Returns its duration in seconds.
    fn trip(&mut self, is_adding: bool) -> Result<f64> {
        use std::io::Write as _;
        let batch = if is_adding { &mut self.adds } else { &mut self.lookups };
        let bytes = batch.numbered_from(self.next);
        let start = Instant::now();
        self.client.stream().get_mut().write_all(bytes)?;
        let mut line = Vec::new();
        for _ in 0..TOGETHER {
            count_reply(self.client.stream(), &mut line, &mut self.answers)?;
        }
        self.next += TOGETHER;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Alternately adds and looks up until this many items are added or `is_over` returns true, and records the rates per second.
    fn run(&mut self, most: u64, figures: &mut [Samples], mut is_over: impl FnMut() -> Result<bool>) -> Result<()> {
        let (mut added, mut seconds) = (0, [0.0, 0.0]);
        while added < most && !is_over()? {
            seconds[0] += self.trip(true)?;
            added += TOGETHER;
            seconds[1] += self.trip(false)?;
        }
        for (samples, seconds) in figures.iter_mut().zip(seconds) {
            samples.push(added as f64 / seconds);
        }
        Ok(())
    }
}

fn round(bench: &Bench, index: usize, capacity: u64, most: u64, figures: &mut Figures) -> Result<()> {
    let running = bench.start(index, true)?;
    running.reserve(capacity)?;
    let filled = capacity / 1000 * FILLED_THOUSANDTHS;
    let server = &running.server;
    load::add_members(server, KEY, 0..filled)?;
    thread::sleep(SETTLE.mul_f64(capacity as f64));
    let mut load = Load::new(server.port, filled)?;
    let phase = AtomicUsize::new(ALONE);
    let is_saving = || -> Result<bool> { Ok(server.info_number("persistence", "rdb_bgsave_in_progress")? != 0) };

    let waits = thread::scope(|scope| -> Result<_> {
        let other = scope.spawn(|| another_client(server, &phase));
        let measured = (|| -> Result<()> {
            load.run(200_000.min(most), &mut figures[ALONE], || Ok(false))?;
            phase.store(BEGINS, Relaxed);
            server.call(&["BGSAVE"])?;
            let mut seconds = 0.0;
            for _ in 0..FIRST / TOGETHER {
                seconds += load.trip(true)?;
            }
            figures[BEGINS][0].push(FIRST as f64 / seconds);
            phase.store(SAVING, Relaxed);
            load.run(most, &mut figures[SAVING], || Ok(!is_saving()?))?;
            while is_saving()? {
                thread::sleep(Duration::from_millis(20));
            }
            phase.store(WRITING, Relaxed);
            // Modules without this field have no pending adds.
            let pending = || server.info_number("everything", "bf_bloom_pending_bytes").unwrap_or(0);
            load.run(most, &mut figures[WRITING], || Ok(pending() == 0))?;
            phase.store(AFTER, Relaxed);
            load.run(200_000.min(most), &mut figures[AFTER], || Ok(false))?;
            Ok(())
        })();
        phase.store(PHASES.len(), Relaxed);
        let waits = other.join().ok().context("the other client")?;
        measured.and(waits)
    })?;
    for (waits, figures) in waits.into_iter().zip(figures) {
        quantiles(waits, &mut figures[2..]);
    }
    Ok(())
}

/// Sends one command after another. Returns the microseconds of each, by phase.
fn another_client(server: &Instance, phase: &AtomicUsize) -> Result<[Vec<f64>; PHASES.len()]> {
    let mut client = Connection::open(server.port)?;
    let mut waits: [Vec<f64>; PHASES.len()] = Default::default();
    for number in 0u64.. {
        let item = format!("{}{number:012}", Set::Drawn.prefix());
        let now = phase.load(Relaxed);
        let start = Instant::now();
        client.try_call(&["BF.ADD", KEY, &item])?;
        match waits.get_mut(now) {
            Some(waits) => waits.push(start.elapsed().as_secs_f64() * 1e6),
            None => break,
        }
    }
    Ok(waits)
}

/// Adds the 99th and the 99.9th percentile.
fn quantiles(mut waits: Vec<f64>, figures: &mut [Samples]) {
    waits.sort_by(f64::total_cmp);
    for (samples, part) in figures.iter_mut().zip([0.99, 0.999]) {
        let place = ((waits.len() as f64 * part) as usize).min(waits.len().saturating_sub(1));
        if let Some(wait) = waits.get(place) {
            samples.push(*wait);
        }
    }
}
