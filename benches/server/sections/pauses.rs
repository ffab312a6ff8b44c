//! How long another client waits while a large filter is removed: the longest PING during each command that removes one, under
//! the server's default settings.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use crate::client::Stream;
use crate::instance::Instance;
use crate::items::Set;
use crate::load::{MANY, PIPELINE_MANY};
use crate::results::Results;
use crate::statistics::Samples;
use crate::table::{Cell, Table, summary};
use crate::variants::{Bench, Growth, KEY, RATE, Running};
use testing::Connection;

/// For how long PING is sent after the command has returned, because memory may be freed later.
const WATCHED: Duration = Duration::from_millis(300);
/// A filter that replaces the large one.
const SMALL: &str = "small";
/// The approximate bits per item at the rate.
const ITEM_BITS: u64 = 10;
/// Items per page of the large filter: one page in 150 stays untouched.
const ITEMS_OF_PAGE: u64 = 5;
const PAGE_BYTES: u64 = 4096;

/// The ways to remove the large filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Nothing: what a PING waits for anyway.
    Nothing,
    Delete,
    RenameOver,
    Expire,
    FlushAll,
    Restore,
    Rotate,
}

const WAYS: [Way; 7] =
    [Way::Nothing, Way::Delete, Way::RenameOver, Way::Expire, Way::FlushAll, Way::Restore, Way::Rotate];

/// The rounds of a way with a variant, in ms.
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
    let mut rows: Vec<Vec<Row>> = WAYS.iter().map(|_| all.iter().map(|_| Row::default()).collect()).collect();
    for round in 0..rounds {
        eprintln!("bench: pauses, round {} of {rounds}", round + 1);
        for (way, rows) in WAYS.into_iter().zip(&mut rows) {
            for (running, row) in all.iter().zip(rows).filter(|(running, _)| way.is_of(running)) {
                bench.attempt(running.index, &mut faults, || way.measure(running, size_bytes, row));
            }
        }
    }
    let columns = ["while", "variant", "bytes", "rounds", "worst PING, ms", "least", "most", "inside it, ms"];
    let mut table = Table::new("Pauses while a filter is removed", &columns);
    for (way, rows) in WAYS.into_iter().zip(&rows) {
        for (running, row) in all.iter().zip(rows).filter(|(running, _)| way.is_of(running)) {
            let name = running.variant.name.as_str();
            let mut cells: Vec<Cell> = vec![way.name().into(), name.into(), size_bytes.into(), rounds.into()];
            cells.extend(summary(&row.worst));
            cells.push(row.own.median().into());
            table.row(cells);
        }
    }
    table.note(format!(
        "A filter of this size with nearly all pages touched is removed. Another client sends one PING at a time, from before the \
         command until {} ms after its reply; the worst PING is the longest of a round, and the figures are over the rounds. The last \
         column is the median time inside the command. Servers have default settings, and run on any processor like the clients. A \
         client's BF.LOADCHUNK never replaces a filter.",
        WATCHED.as_millis()
    ));
    faults.into_iter().for_each(|fault| table.note(fault));
    results.table(&table)
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Delete => "DEL",
            Self::RenameOver => "RENAME over it",
            Self::Expire => "it expires",
            Self::FlushAll => "FLUSHALL",
            Self::Restore => "RESTORE REPLACE",
            Self::Rotate => "BF.ROTATE: a bucket of it",
        }
    }

    /// Whether a variant supports it.
    fn is_of(self, running: &Running) -> bool {
        running.variant.is_main() || self != Self::Rotate
    }

    /// Runs a round: creates a large filter and removes it.
    fn measure(self, running: &Running, size_bytes: u64, row: &mut Row) -> Result<()> {
        let server = &running.server;
        server.call(&["DEL", SMALL])?;
        server.call(&["BF.RESERVE", SMALL, RATE, "1000"])?;
        let capacity = size_bytes * 8 / ITEM_BITS;
        if self == Self::Rotate {
            make_ring(server, capacity, size_bytes)?;
        } else {
            running.reserve(capacity, Growth::Fixed)?;
            touch(server, size_bytes)?;
        }
        let words = self.words(server)?;
        let command = String::from_utf8_lossy(&words[0]);
        // This also resets the count of expired keys.
        let (own, worst) = server.statistics_of(&command, || during_pings(server, &words))?;
        if self == Self::Expire {
            ensure!(server.info_number("stats", "expired_keys")? > 0, "the filter has not expired yet");
        }
        row.worst.push(worst);
        row.own.push(own.microseconds as f64 / 1e3);
        server.call(&["DEL", KEY])?;
        if self == Self::Nothing {
            // It has been removed.
            thread::sleep(WATCHED);
        }
        Ok(())
    }

    /// The command that removes it.
    fn words(self, server: &Instance) -> Result<Vec<Vec<u8>>> {
        let words = |words: &[&str]| Ok(words.iter().map(|word| word.as_bytes().to_owned()).collect());
        match self {
            Self::Nothing => words(&["ECHO", "nothing"]),
            Self::Delete => words(&["DEL", KEY]),
            Self::RenameOver => words(&["RENAME", SMALL, KEY]),
            Self::Expire => words(&["PEXPIRE", KEY, "1"]),
            Self::FlushAll => words(&["FLUSHALL"]),
            Self::Rotate => words(&["BF.ROTATE", KEY]),
            Self::Restore => {
                let payload = server.call(&["DUMP", SMALL])?.bytes().to_owned();
                Ok(vec![b"RESTORE".into(), KEY.into(), b"0".into(), payload, b"REPLACE".into()])
            }
        }
    }
}

/// Creates a ring whose oldest bucket has this many bytes, all of them touched, and is dropped by the next rotation.
fn make_ring(server: &Instance, capacity: u64, size_bytes: u64) -> Result<()> {
    // Three buckets, of which all but one have room for the capacity.
    let capacity = (2 * capacity).to_string();
    server.call(&["DEL", KEY])?;
    server.call(&["BF.RESERVE", KEY, RATE, &capacity, "NONSCALING", "WINDOW", "1000000", "BUCKETS", "3"])?;
    touch(server, size_bytes)?;
    server.call(&["BF.ROTATE", KEY])?;
    server.call(&["BF.ROTATE", KEY])?;
    Ok(())
}

/// Adds enough items to make nearly every page of a filter resident.
fn touch(server: &Instance, size_bytes: u64) -> Result<()> {
    let stream = Stream { words: &["BF.MADD", KEY], set: Set::Members, items: MANY, pipeline: PIPELINE_MANY };
    stream.run(server.port, 0..size_bytes / PAGE_BYTES * ITEMS_OF_PAGE).map(drop)
}

/// Sends a command while another client sends PING. Returns the longest PING in ms.
fn during_pings(server: &Instance, words: &[Vec<u8>]) -> Result<f64> {
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
        let worst = pings.join().map_err(|_| anyhow!("the client that asks PING ended"))??;
        let reply = reply.context("the connection broke")?;
        ensure!(!reply.is_error(), "{reply:?}");
        Ok(worst.as_secs_f64() * 1e3)
    })
}
