//! Commands on whole filters: BF.MERGE compared with a plain OR of the same memory, and BF.ROTATE with its effect on other
//! clients.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::client::Stream;
use crate::instance::Instance;
use crate::items::Set;
use crate::load::{MANY, PIPELINE_MANY};
use crate::results::Results;
use crate::statistics::Samples;
use crate::table::{Cell, Table, summary};
use crate::variants::{Bench, RATE, Running};
use testing::Connection;

/// The key of the ring that is rotated.
pub const RING: &str = "window";
/// The approximate bits per item at the rate.
const ITEM_BITS: u64 = 10;
/// For how long PING is sent after a rotation, because the oldest bucket is freed meanwhile.
const WATCHED: Duration = Duration::from_millis(300);

/// Measures, and adds the table to the results. The ring exists.
pub fn run(bench: &Bench, running: &Running, rounds: u64, results: &mut Results) -> Result<()> {
    let server = &running.server;
    let columns = ["operation", "bytes", "rounds", "ms", "least", "most", "x plain OR"];
    let mut table = Table::new("kinds-whole", "Whole filters", &columns);
    rotations(server, rounds, &mut table)?;
    server.call(&["FLUSHALL"])?;
    unions(bench, server, rounds, &mut table)?;
    table.note(format!(
        "ms is the time inside the command; for PING the longest wait within {} ms for one PING at a time, with and without a \
         preceding rotation. The plain OR reads and writes one array of the same size and reads another, in the benchmark itself, \
         alternating with BF.MERGE. If the counts of the sources exceed the capacity, the items of the union are counted from its \
         bits before anything changes.",
        WATCHED.as_millis()
    ));
    results.table(&table)
}

fn rotations(server: &Instance, rounds: u64, table: &mut Table) -> Result<()> {
    let [mut turned, mut quiet, mut after] = [(); 3].map(|()| Samples::new());
    let bytes = server.number(&["MEMORY", "USAGE", RING])? / 8;
    for _ in 0..rounds {
        quiet.push(worst_ping(server)?);
        let (rotate, worst) = server.statistics_of("BF.ROTATE", || {
            server.call(&["BF.ROTATE", RING])?;
            worst_ping(server)
        })?;
        turned.push(rotate.microseconds_per_call() / 1e3);
        after.push(worst);
        // So that the next rotation also frees a bucket with touched pages.
        let stream = Stream { words: &["BF.MADD", RING], set: Set::Drawn, items: MANY, pipeline: PIPELINE_MANY };
        stream.run(server.port, 1 << 32..(1 << 32) + 2000)?;
    }
    for (name, samples) in [("BF.ROTATE", &turned), ("worst PING after it", &after), ("worst PING without it", &quiet)]
    {
        let mut cells: Vec<Cell> = vec![name.into(), bytes.into(), rounds.into()];
        cells.extend(summary(samples));
        table.row(cells);
    }
    Ok(())
}

/// Returns the longest PING of a client, in ms.
fn worst_ping(server: &Instance) -> Result<f64> {
    let mut client = Connection::open(server.port)?;
    let (start, mut worst) = (Instant::now(), Duration::ZERO);
    while start.elapsed() < WATCHED {
        let asked = Instant::now();
        client.try_call(&["PING"])?;
        worst = worst.max(asked.elapsed());
    }
    Ok(worst.as_secs_f64() * 1e3)
}

fn unions(bench: &Bench, server: &Instance, rounds: u64, table: &mut Table) -> Result<()> {
    let size_bytes = bench.size(1 << 30, 1 << 26).min(bench.largest * ITEM_BITS / 8);
    let capacity = size_bytes * 8 / ITEM_BITS;
    server.call(&["BF.RESERVE", "source", RATE, &capacity.to_string(), "NONSCALING"])?;
    let words = size_bytes as usize / size_of::<u64>();
    let (mut one, other) = (vec![1_u64; words], vec![2_u64; words]);
    let mut filled = 0;
    for (name, percent) in [("BF.MERGE, the counts say that it fits", 45), ("BF.MERGE, counted first", 60)] {
        eprintln!("bench: kinds, {name}, of {size_bytes} bytes");
        let stream = Stream { words: &["BF.MADD", "source"], set: Set::Members, items: MANY, pipeline: PIPELINE_MANY };
        let members = capacity * percent / 100;
        stream.run(server.port, filled..members)?;
        filled = members;
        server.call(&["COPY", "source", "destination", "REPLACE"])?;
        let (mut plain, mut merged) = (Samples::new(), Samples::new());
        for _ in 0..rounds {
            let start = Instant::now();
            one.iter_mut().zip(&other).for_each(|(one, other)| *one |= other);
            black_box(&mut one);
            plain.push(start.elapsed().as_secs_f64() * 1e3);
            let merge = || server.call(&["BF.MERGE", "destination", "source"]);
            let (merge, _) = server.statistics_of("BF.MERGE", merge)?;
            merged.push(merge.microseconds_per_call() / 1e3);
        }
        for (name, samples) in [("plain OR", &plain), (name, &merged)] {
            let mut cells: Vec<Cell> = vec![name.into(), size_bytes.into(), rounds.into()];
            cells.extend(summary(samples));
            cells.push(samples.ratio_to(&plain).into());
            table.row(cells);
        }
    }
    server.call(&["FLUSHALL"])?;
    Ok(())
}
