//! The guard: BF.FETCH compared with the commands that it replaces, and what the guard costs other commands before and after
//! the first lease. `stampede.rs` measures how long a crowd waits.

use std::io::Write;
use std::ops::Range;

use anyhow::{Result, bail, ensure};

use crate::instance::Instance;
use crate::results::Results;
use crate::statistics::Samples;
use crate::table::{Cell, Table, summary};
use crate::variants::{Bench, RATE};
use testing::{Connection, encode};

use super::rows::{FILTER, VALUE_BYTES, cached, first_word, value};
use super::stampede;

/// Rows in the filter, and the same number of cached values.
const ROWS: u64 = 200_000;
/// The capacity of the filter, including items that are added here.
const CAPACITY: u64 = 1_000_000;
/// The distance of absent items from the rows.
const FAR: u64 = 1_000_000_000;
/// Pipelined commands.
const PIPELINE: usize = 1_000;
/// A lease longer than the measurement: an hour, in ms.
const HOUR: &str = "3600000";

/// The servers, in the order of `Case::first_server`.
const SERVERS: [&str; 3] = ["no module", "never a lease", "a live lease"];
const PLAIN: usize = 0;
const NEVER: usize = 1;
const LEASED: usize = 2;

/// A command on the row with a number.
struct Case {
    name: &'static str,
    words: fn(u64) -> Vec<String>,
    /// The expected reply, or its first word.
    answer: Option<&'static str>,
    /// The case runs on this server and those after it.
    first_server: usize,
}

/// A false positive gets a lease, so absent items are fetched only if there is a filter.
///
/// BF.FETCH uses other rows than GET and SET in the same round, so that none finds rows that another one has brought into the
/// processor's cache.
const CASES: [Case; 7] = [
    Case { name: "BF.EXISTS, absent", words: |row| exists(row + FAR), answer: Some("0"), first_server: NEVER },
    Case { name: "BF.FETCH, absent", words: |row| fetch(row + FAR), answer: Some("absent"), first_server: LEASED },
    Case { name: "GET", words: |row| words(&["GET", &cached(row % ROWS)]), answer: None, first_server: PLAIN },
    Case { name: "BF.EXISTS, present", words: |row| exists(row % ROWS), answer: Some("1"), first_server: NEVER },
    Case {
        name: "BF.FETCH, hit",
        words: |row| fetch((row + ROWS / 2) % ROWS),
        answer: Some("hit"),
        first_server: NEVER,
    },
    Case {
        name: "SET",
        words: |row| words(&["SET", &cached(row % ROWS), &value()]),
        answer: Some("OK"),
        first_server: PLAIN,
    },
    Case {
        name: "BF.ADD, new",
        words: |row| words(&["BF.ADD", FILTER, &(ROWS + row).to_string()]),
        answer: None,
        first_server: NEVER,
    },
];
const EXISTS_ABSENT: usize = 0;
const FETCH_ABSENT: usize = 1;
const GET: usize = 2;
const EXISTS_PRESENT: usize = 3;
const FETCH_HIT: usize = 4;

/// The rounds of each case on each server.
type Times = [[Samples; SERVERS.len()]; CASES.len()];

/// Runs the section.
pub fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let rounds = bench.rounds(9, 3) as u64;
    let asked = bench.size(50_000, 10_000);
    let plain = bench.start_plain(0)?;
    let [never, leased] = [bench.start(0, false)?, bench.start(0, false)?];
    let servers = [&plain, &never.server, &leased.server];
    for (index, server) in servers.into_iter().enumerate() {
        prepare(server, index)?;
    }
    let mut times = Times::default();
    for round in 0..rounds {
        eprintln!("bench: guard, round {} of {rounds}", round + 1);
        let numbers = round * asked..(round + 1) * asked;
        for (case, times) in CASES.iter().zip(&mut times) {
            let mut order: Vec<usize> = (case.first_server..SERVERS.len()).collect();
            // Rotates the order, so that no server always comes first with cold memory.
            if round % 2 == 1 {
                order.reverse();
            }
            for server in order {
                times[server].push(case.measure(servers[server], numbers.clone())?);
            }
        }
    }
    results.table(&table(&times, rounds))?;
    stampede::run(bench, &leased.server, results)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn exists(item: u64) -> Vec<String> {
    words(&["BF.EXISTS", FILTER, &item.to_string()])
}

fn fetch(item: u64) -> Vec<String> {
    words(&["BF.FETCH", FILTER, &item.to_string(), &cached(item)])
}

/// Creates the rows and their values, as far as the server has commands for them, and the lease.
fn prepare(server: &Instance, index: usize) -> Result<()> {
    send(server, 0..ROWS, |row| words(&["SET", &cached(row), &value()]), Some("OK"))?;
    if index == PLAIN {
        return Ok(());
    }
    server.call(&["BF.RESERVE", FILTER, RATE, &CAPACITY.to_string()])?;
    send(server, 0..ROWS, |row| words(&["BF.ADD", FILTER, &row.to_string()]), None)?;
    if index == LEASED {
        let reply = server.call(&["BF.FETCH", FILTER, "0", "nobody's", "LEASE", HOUR])?;
        ensure!(first_word(&reply) == "load", "BF.FETCH gives no lease: {reply:?}");
    }
    Ok(())
}

/// Sends a command for each number on one connection. Every reply must be the expected one.
fn send(
    server: &Instance,
    numbers: Range<u64>,
    words: fn(u64) -> Vec<String>,
    expected: Option<&'static str>,
) -> Result<()> {
    let mut client = Connection::open(server.port)?;
    let numbers: Vec<u64> = numbers.collect();
    for together in numbers.chunks(PIPELINE) {
        let bytes = encode::<String>(together.iter().map(|number| words(*number)));
        client.stream().get_mut().write_all(&bytes)?;
        let mut others = Vec::new();
        for _ in together {
            let reply = client.receive()?;
            let wrong = expected.is_some_and(|expected| first_word(&reply) != expected);
            // A false positive is not an error.
            if reply.is_error() || wrong {
                others.push(reply);
            }
        }
        if others.len() > together.len() / 20 {
            bail!("{expected:?} was expected, and is answered {:?}", others.first());
        }
    }
    Ok(())
}

impl Case {
    /// Microseconds per call, inside the command.
    fn measure(&self, server: &Instance, numbers: Range<u64>) -> Result<f64> {
        let command = self.name.split(',').next().unwrap_or_default();
        let run = || send(server, numbers, self.words, self.answer);
        Ok(server.statistics_of(command, run)?.0.microseconds_per_call())
    }
}

fn table(times: &Times, rounds: u64) -> Table {
    let columns = ["command", "server", "rounds", "us/call", "least", "most", "beside", "ratio", "aim"];
    let mut table = Table::new("guard", "The guard", &columns);
    for (index, case) in CASES.iter().enumerate() {
        for server in case.first_server..SERVERS.len() {
            let mut cells: Vec<Cell> = vec![case.name.into(), SERVERS[server].into(), rounds.into()];
            cells.extend(summary(&times[index][server]));
            cells.extend(beside(times, index, server));
            table.row(cells);
        }
    }
    table.note(format!(
        "{ROWS} items in a filter for {CAPACITY} at {RATE}, and the same number of cached values of {VALUE_BYTES} bytes, in each of \
         three servers that take turns: one without a module, one that has never granted a lease, and one with a lease on another \
         key. us/call is the time inside the command. SET overwrites a cached value. Ratios are of medians."
    ));
    table
}

/// What a case is compared with, how much slower it is, and how much slower it may be.
fn beside(times: &Times, case: usize, server: usize) -> [Cell; 3] {
    let median = |case: usize| times[case][server].median();
    let ratio_to = |other: Option<f64>| Cell::from(median(case).zip(other).map(|(one, other)| one / other));
    match case {
        FETCH_ABSENT => ["BF.EXISTS, absent".into(), ratio_to(median(EXISTS_ABSENT)), Cell::Number(1.3, 2)],
        FETCH_HIT => {
            let sum = median(GET).zip(median(EXISTS_PRESENT)).map(|(get, exists)| 1.3 * get + exists);
            ["1.3 GET + BF.EXISTS, present".into(), ratio_to(sum), Cell::Number(1.0, 2)]
        }
        _ if server > CASES[case].first_server => {
            [SERVERS[server - 1].into(), times[case][server].ratio_to(&times[case][server - 1]).into(), Cell::Empty]
        }
        _ => [Cell::Empty, Cell::Empty, Cell::Empty],
    }
}
