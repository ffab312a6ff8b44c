//! The sections of the measurement, one file each.

mod chain;
mod clients;
mod commands;
mod feed;
mod huge_pages;
mod instructions;
mod kinds;
mod limit;
mod pauses;
mod peer;
mod saving;
mod scale;
mod small;

use anyhow::Result;

use super::arguments::Section;
use super::results::Results;
use super::variants::Bench;

/// Measures a section and adds its tables to the results.
pub fn run(section: Section, bench: &Bench, results: &mut Results) -> Result<()> {
    match section {
        Section::Commands => commands::run(bench, results),
        Section::HugePages => huge_pages::run(bench, results),
        Section::Chain => chain::run(bench, results),
        Section::Saving => saving::run(bench, results),
        Section::Scale => scale::run(bench, results),
        Section::Limit => limit::run(bench, results),
        Section::Small => small::run(bench, results),
        Section::Peer => peer::run(bench, results),
        Section::Pauses => pauses::run(bench, results),
        Section::Kinds => kinds::run(bench, results),
        Section::Feed => feed::run(bench, results),
        Section::Clients => clients::run(bench, results),
        Section::Instructions => instructions::run(bench, results),
    }
}
