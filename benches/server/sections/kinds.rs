//! The kinds of filters compared with the plain one: lookups and memory of full filters.

use anyhow::{Context, Result, bail};

use crate::client::Stream;
use crate::instance::Instance;
use crate::items::Set;
use crate::load::{MANY, PIPELINE_MANY};
use crate::statistics::Samples;
use crate::table::{Cell, Results, Table, summary};
use crate::variants::{Bench, RATE};
use testing::{Connection, Reply};

/// The buckets of a ring. All but one of them have room for the capacity.
const BUCKETS: u64 = 8;

/// A kind of filter: its name, its options, and how it is prepared.
struct Kind {
    name: &'static str,
    key: &'static str,
    words: &'static [&'static str],
    fill: Fill,
}

/// A way to fill a filter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fill {
    /// Up to its capacity.
    Once,
    /// Up to its capacity; then items are deleted until the table is full.
    DeletedFrom,
    /// Bucket by bucket, with BF.ROTATE.
    ByBucket,
    /// Bucket by bucket, as the filter rotates itself.
    Rolling,
}

const KINDS: [Kind; 6] = [
    Kind { name: "plain", key: "plain", words: &["NONSCALING"], fill: Fill::Once },
    Kind { name: "HASH siphash", key: "keyed", words: &["NONSCALING", "HASH", "siphash"], fill: Fill::Once },
    Kind {
        name: "HASH siphash, full table",
        key: "deleted",
        words: &["NONSCALING", "HASH", "siphash"],
        fill: Fill::DeletedFrom,
    },
    Kind { name: "COUNTING", key: "counting", words: &["COUNTING"], fill: Fill::Once },
    Kind {
        name: "WINDOW, 8 full buckets",
        key: "window",
        words: &["NONSCALING", "WINDOW", "100000000"],
        fill: Fill::ByBucket,
    },
    Kind { name: "ROLLING, 8 full buckets", key: "rolling", words: &["ROLLING"], fill: Fill::Rolling },
];

const COLUMNS: [&str; 13] = [
    "filter",
    "capacity",
    "rounds",
    "MEMORY USAGE",
    "bits/item",
    "us/100 absent",
    "least absent",
    "most absent",
    "absent x plain",
    "us/100 present",
    "least present",
    "most present",
    "present x plain",
];

/// The rounds of a kind.
#[derive(Default)]
struct Row {
    memory_bytes: u64,
    absent: Samples,
    present: Samples,
}

/// The number of items in a measurement.
struct Sizes {
    capacity: u64,
    rounds: u64,
    asked: u64,
}

/// Runs the section.
pub fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let capacity = bench.largest.min(bench.size(100_000_000, 1_000_000));
    // Whole commands, and the same number in each bucket.
    let part = |of: u64, most: u64| (capacity / of).min(most) / (MANY * BUCKETS) * MANY * BUCKETS;
    let rounds = bench.rounds(9, 3) as u64;
    let sizes = Sizes { capacity, rounds, asked: part(50, 800_000) };
    if sizes.asked == 0 {
        bail!("--largest {capacity} is too small for this section");
    }
    let running = bench.start(0, false)?;
    let server = &running.server;
    let mut rows: Vec<Row> = KINDS.iter().map(|_| Row::default()).collect();
    for (kind, row) in KINDS.iter().zip(&mut rows) {
        eprintln!("bench: kinds, {}", kind.name);
        kind.make(server, &sizes).with_context(|| kind.name)?;
        row.memory_bytes = server.number(&["MEMORY", "USAGE", kind.key])?;
    }
    for round in 0..sizes.rounds {
        eprintln!("bench: kinds, round {} of {}", round + 1, sizes.rounds);
        for (kind, row) in KINDS.iter().zip(&mut rows) {
            kind.measure(server, &sizes, round, row).with_context(|| kind.name)?;
        }
    }
    results.table(&table(&rows, &sizes))
}

fn table(rows: &[Row], sizes: &Sizes) -> Table {
    let mut table = Table::new("Kinds of filters", &COLUMNS);
    for (kind, row) in KINDS.iter().zip(rows) {
        let bits = 8.0 * row.memory_bytes as f64 / sizes.capacity as f64;
        let mut cells: Vec<Cell> = vec![kind.name.into(), sizes.capacity.into(), sizes.rounds.into()];
        cells.extend([row.memory_bytes.into(), Cell::Number(bits, 4)]);
        cells.extend(summary(&row.absent));
        cells.push(row.absent.ratio_to(&rows[0].absent).into());
        cells.extend(summary(&row.present));
        cells.push(row.present.ratio_to(&rows[0].present).into());
        table.row(cells);
    }
    table.note(format!(
        "Filters at {RATE}, full, in one server; each round measures all of them in turn. us/100 is the time inside BF.MEXISTS of \
         {MANY} absent or present items of 70 bytes, pipeline {PIPELINE_MANY}. Present items are spread over the buckets. In rings of {BUCKETS} buckets, all but \
         one bucket together have room for the capacity; bits are per item of the capacity."
    ));
    table
}

impl Kind {
    /// Creates and fills the filter.
    fn make(&self, server: &Instance, sizes: &Sizes) -> Result<()> {
        let capacity = sizes.capacity.to_string();
        let mut words = vec!["BF.RESERVE", self.key, RATE, &capacity];
        words.extend(self.words);
        server.call(&words)?;
        let members = self.members(sizes);
        match self.fill {
            Fill::ByBucket => {
                let of_bucket = sizes.capacity.div_ceil(BUCKETS - 1);
                for bucket in 0..BUCKETS {
                    if bucket > 0 {
                        server.call(&["BF.ROTATE", self.key])?;
                    }
                    let end = ((bucket + 1) * of_bucket).min(members);
                    self.add(server, Set::Members, bucket * of_bucket..end)?;
                }
            }
            Fill::Once | Fill::Rolling | Fill::DeletedFrom => self.add(server, Set::Members, 0..members)?,
        }
        if self.fill == Fill::DeletedFrom {
            self.delete_until_full(server, members)?;
        }
        Ok(())
    }

    /// The number of members with which it is filled.
    fn members(&self, sizes: &Sizes) -> u64 {
        match self.fill {
            Fill::Once | Fill::DeletedFrom => sizes.capacity,
            Fill::ByBucket | Fill::Rolling => sizes.capacity.div_ceil(BUCKETS - 1) * BUCKETS,
        }
    }

    fn add(&self, server: &Instance, set: Set, numbers: std::ops::Range<u64>) -> Result<()> {
        let stream = Stream { words: &["BF.MADD", self.key], set, items: MANY, pipeline: PIPELINE_MANY };
        stream.run(server.port, numbers).map(drop)
    }

    /// Deletes the first members until the table is full.
    fn delete_until_full(&self, server: &Instance, members: u64) -> Result<()> {
        let mut client = Connection::open(server.port)?;
        for first in (0..members / 2).step_by(MANY as usize) {
            let items: Vec<String> =
                (first..first + MANY).map(|number| format!("{}{number:012}", Set::Members.prefix())).collect();
            let words = ["BF.MDEL", self.key].into_iter().chain(items.iter().map(String::as_str));
            let reply = client.try_call(&words.collect::<Vec<_>>())?;
            if reply.elements().last().is_none_or(Reply::is_error) {
                return Ok(());
            }
        }
        bail!("half of the members are deleted, and the table is not full")
    }

    /// A round.
    fn measure(&self, server: &Instance, sizes: &Sizes, round: u64, row: &mut Row) -> Result<()> {
        let words = ["BF.MEXISTS", self.key];
        let lookup = |set| Stream { words: &words, set, items: MANY, pipeline: PIPELINE_MANY };
        let first = round * sizes.asked;
        let absent = || lookup(Set::Absent).run(server.port, first..first + sizes.asked);
        let (absent, _) = server.statistics_of("BF.MEXISTS", absent)?;
        row.absent.push(absent.microseconds_per_call());

        // A range at the end of each eighth; the deleted items come before the first one.
        let (eighth, part) = (self.members(sizes) / BUCKETS, sizes.asked / BUCKETS);
        let (present, answers) = server.statistics_of("BF.MEXISTS", || {
            let mut found = 0;
            for number in 0..BUCKETS {
                let start = number * eighth + eighth * 3 / 4 + round * part % (eighth / 4 - part);
                found += lookup(Set::Members).run(server.port, start..start + part)?.answers.ones;
            }
            Ok(found)
        })?;
        if answers < part * BUCKETS {
            bail!("{answers} of {} members are found", part * BUCKETS);
        }
        row.present.push(present.microseconds_per_call());
        Ok(())
    }
}
