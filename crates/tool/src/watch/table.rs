//! Formats a sample as text.

use indicatif::{BinaryBytes, HumanCount};

use crate::names::counted;
use crate::report::percent;
use crate::server::shown;
use crate::watch::sampler::{Filter, Sample};

/// The maximum width of a key on a screen. Longer keys are cut.
const KEY_WIDTH: usize = 32;

/// Returns the whole table, for an output that is not a terminal.
pub(super) fn plain(sample: &Sample) -> String {
    let mut text = lines(sample, false).join("\n");
    text.push('\n');
    text
}

/// Returns a line about the server, one with the column names, and one per filter.
pub(super) fn lines(sample: &Sample, cut: bool) -> Vec<String> {
    let names = sample.filters.iter().map(|filter| {
        let name = shown(&filter.key);
        if cut && name.chars().count() > KEY_WIDTH {
            name.chars().take(KEY_WIDTH - 1).chain(['…']).collect()
        } else {
            name
        }
    });
    let names: Vec<String> = names.collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).clamp(3, KEY_WIDTH);
    let mut lines = vec![of_server(sample)];
    lines.push(format!(
        "{:<width$} {:>11} {:>13} {:>6} {:>8} {:>9} {:>7} {:>6} {:>6}  kind",
        "key", "memory", "items", "full", "new/s", "rate now", "rate", "fill", "layers"
    ));
    lines.extend(
        sample.filters.iter().zip(&names).map(|(filter, name)| format!("{name:<width$} {}", of_filter(filter))),
    );
    let hidden = sample.known.saturating_sub(sample.filters.len());
    if hidden > 0 {
        lines.push(format!("and {} more", HumanCount(hidden as u64)));
    }
    let is_incomplete = sample.counts.is_some_and(|[filters, ..]| filters > sample.known as u64);
    if is_incomplete && !sample.other_databases.is_empty() {
        let databases: Vec<String> = sample.other_databases.iter().map(u32::to_string).collect();
        lines.push(format!("other databases with keys: {} (-n NUMBER shows their filters)", databases.join(", ")));
    }
    lines
}

fn of_server(sample: &Sample) -> String {
    let Some([filters, size_bytes, adds, lookups, _]) = sample.counts else {
        return format!("{}: {}", sample.server, counted(sample.known as u64, "filter"));
    };
    let (filters, memory) = (counted(filters, "filter"), BinaryBytes(size_bytes));
    let busy = match sample.speeds {
        Some([_, _, adds, lookups, positives]) => {
            let positive = percent(if lookups > 0.0 { positives / lookups } else { 0.0 });
            let (adds, lookups) = (a_second(adds), a_second(lookups));
            format!("{adds} adds/s, {lookups} lookups/s, {positive} of them positive")
        }
        None => format!("{} and {} so far", counted(adds, "add"), counted(lookups, "lookup")),
    };
    format!("{}: {filters}, {memory}, {busy}", sample.server)
}

fn of_filter(filter: &Filter) -> String {
    let share = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), percent);
    let stats = filter.stats.as_ref();
    format!(
        "{:>11} {:>13} {:>6} {:>8} {:>9} {:>7} {:>6} {:>6}  {}",
        BinaryBytes(filter.size_bytes).to_string(),
        HumanCount(filter.items).to_string(),
        percent(filter.full()),
        filter.new_a_second.map_or_else(|| "-".to_owned(), a_second),
        share(stats.map(|stats| stats.error_rate_now)),
        share(stats.map(|stats| stats.error_rate)),
        share(filter.cells()),
        filter.layers,
        stats.map_or("-", |stats| &stats.kind),
    )
}

fn a_second(number: f64) -> String {
    if number < 9.95 { format!("{number:.1}") } else { indicatif::HumanFloatCount(number.round()).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_figures_are_shown_as_a_dash() {
        let mut filter = Filter::default();
        (filter.items, filter.capacity, filter.size_bytes) = (50, 100, 2048);
        let line = of_filter(&filter);
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words, ["2.00", "KiB", "50", "50%", "-", "-", "-", "-", "0", "-"]);
        assert_eq!([a_second(0.0), a_second(3.25), a_second(1234.4)], ["0.0", "3.2", "1,234"]);
    }

    #[test]
    fn long_keys_are_cut_on_a_screen_only() {
        let filters = vec![Filter::new(vec![b'k'; 50])];
        let (server, other_databases) = ("localhost:6379".to_owned(), Vec::new());
        let sample = Sample { server, other_databases, counts: None, speeds: None, known: 1, filters };
        assert!(lines(&sample, true)[2].starts_with(&format!("{}… ", "k".repeat(31))));
        assert!(plain(&sample).contains(&"k".repeat(50)));
    }
}
