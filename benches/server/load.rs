//! The loads: filling a filter, and commands from redis-benchmark or from our own client.

use std::ops::Range;

use anyhow::{Context, Result, bail};

use super::client::{Outcome, Stream};
use super::info;
use super::instance::Instance;
use super::items::Set;
use super::machine::{Processors, command_on};
use super::variants::KEY;

/// Items per command with many items.
pub const MANY: u64 = 100;
/// Pipelined commands with many items.
pub const PIPELINE_MANY: u64 = 4;
/// Pipelined commands with one item.
pub const PIPELINE_ONE: u64 = 32;

/// The set from which redis-benchmark takes items.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    /// The set of the items.
    pub set: Set,
    /// The limit of their numbers (redis-benchmark accepts at most 2^31 - 1).
    pub below: u64,
}

/// Items that are never added.
pub const ABSENT: Draw = Draw { set: Set::Absent, below: i32::MAX as u64 };
/// Items that are added; few of them are repeated.
pub const DRAWN: Draw = Draw { set: Set::Drawn, below: i32::MAX as u64 };

/// One measurement of a command.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The time inside the command, from the server's statistics.
    pub microseconds_per_call: f64,
    /// The commands per second, as seen by the client.
    pub requests_per_second: f64,
}

/// Adds members with these numbers to the measured filter.
pub fn add_members(server: &Instance, numbers: Range<u64>) -> Result<Outcome> {
    add_members_to(server, KEY, numbers)
}

fn add_members_to(server: &Instance, key: &str, numbers: Range<u64>) -> Result<Outcome> {
    let stream = Stream { words: &["BF.MADD", key], set: Set::Members, items: MANY, pipeline: PIPELINE_MANY };
    stream.run(server.port, numbers)
}

/// Adds members to a filter and measures that.
pub fn measure_adds(server: &Instance, key: &str, numbers: Range<u64>) -> Result<Measured> {
    let (statistics, outcome) = server.statistics_of("BF.MADD", || add_members_to(server, key, numbers))?;
    let microseconds_per_call = statistics.microseconds_per_call();
    Ok(Measured { microseconds_per_call, requests_per_second: outcome.commands_per_second() })
}

/// Measures a command with redis-benchmark. `words` precede the items.
pub fn measure(
    server: &Instance,
    processors: Option<&Processors>,
    words: &[&str],
    items: u64,
    draw: Draw,
    requests: u64,
) -> Result<Measured> {
    let pipeline = if items <= 1 { PIPELINE_ONE } else { PIPELINE_MANY };
    let command = words.first().context("a command")?;
    let (statistics, requests_per_second) = server.statistics_of(command, || {
        let mut benchmark = command_on(processors.map(|found| found.client.as_str()), "redis-benchmark".as_ref());
        benchmark.args(["-h", "127.0.0.1", "-p", &server.port.to_string(), "--csv"]);
        benchmark.args(["-n", &requests.to_string(), "-P", &pipeline.to_string(), "-r", &draw.below.to_string()]);
        benchmark.args(words).args((0..items).map(|_| draw.set.drawn_item()));
        let output = benchmark.output().context("redis-benchmark cannot be started")?;
        let [printed, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        match info::requests_per_second(&printed) {
            Some(rate) if output.status.success() => Ok(rate),
            _ => bail!("redis-benchmark: {}", [printed, errors].concat().trim().replace('\n', " ")),
        }
    })?;
    Ok(Measured { microseconds_per_call: statistics.microseconds_per_call(), requests_per_second })
}
