//! The sections of the measurement, one file each.

mod clients;
mod feed;
mod instructions;
mod kinds;
mod pauses;
mod peer;
mod saving;
mod scale;
mod small;

use anyhow::Result;

use super::arguments::Section;
use super::table::Results;
use super::variants::Bench;

/// Measures a section and adds its tables to the results.
pub fn run(section: Section, bench: &Bench, results: &mut Results) -> Result<()> {
    match section {
        Section::Saving => saving::run(bench, results),
        Section::Scale => scale::run(bench, results),
        Section::Small => small::run(bench, results),
        Section::Peer => peer::run(bench, results),
        Section::Pauses => pauses::run(bench, results),
        Section::Kinds => kinds::run(bench, results),
        Section::Feed => feed::run(bench, results),
        Section::Clients => clients::run(bench, results),
        Section::Instructions => instructions::run(bench, results),
    }
}
