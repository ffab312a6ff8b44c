//! The sections of the measurement, one file each.

mod chain;
mod commands;
mod disk;
mod guard;
mod instructions;
mod kinds;
mod pauses;
mod peer;
mod saving;
mod scale;
mod snapshot;
mod stampede;
mod whole;

use anyhow::{Result, bail};

use super::results::Results;
use super::variants::Bench;

/// Measures a section and gives its tables and plots to the results.
pub fn run(name: &str, bench: &Bench, results: &mut Results) -> Result<()> {
    match name {
        "commands" => commands::run(bench, results),
        "chain" => chain::run(bench, results),
        "snapshot" => snapshot::run(bench, results),
        "saving" => saving::run(bench, results),
        "scale" => scale::run(bench, results),
        "peer" => peer::run(bench, results),
        "pauses" => pauses::run(bench, results),
        "kinds" => kinds::run(bench, results),
        "guard" => guard::run(bench, results),
        "instructions" => instructions::run(bench, results),
        _ => bail!("there is no such section"),
    }
}
