//! The loads of the sections: adds to a filter, and a measured command.

use std::ops::Range;

use anyhow::Result;

use super::client::{Outcome, Stream};
use super::instance::Instance;
use super::items::Set;

/// Items per command with many items.
pub const MANY: u64 = 100;
/// Pipelined commands with many items.
pub const PIPELINE_MANY: u64 = 4;
/// Pipelined commands with one item.
pub const PIPELINE_ONE: u64 = 32;

/// One measurement of a command.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The time inside the command, from the server's statistics.
    pub microseconds_per_call: f64,
    /// The commands per second, as seen by the client.
    pub requests_per_second: f64,
}

/// Adds members with these numbers to a filter.
pub fn add_members(server: &Instance, key: &str, numbers: Range<u64>) -> Result<Outcome> {
    let stream = Stream { words: &["BF.MADD", key], set: Set::Members, items: MANY, pipeline: PIPELINE_MANY };
    stream.run(server.port, numbers)
}

/// Measures a command. `words` precede the items.
pub fn measure(server: &Instance, words: &[&str], set: Set, items: u64, numbers: Range<u64>) -> Result<Measured> {
    let pipeline = if items <= 1 { PIPELINE_ONE } else { PIPELINE_MANY };
    let stream = Stream { words, set, items, pipeline };
    let (statistics, outcome) = server.statistics_of(words[0], || stream.run(server.port, numbers))?;
    let microseconds_per_call = statistics.microseconds_per_call();
    Ok(Measured { microseconds_per_call, requests_per_second: outcome.commands_per_second() })
}
