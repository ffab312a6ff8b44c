//! Shows the last sample as text and as JSON.

use indicatif::{BinaryBytes, HumanCount};
use serde_json::{Value, json};

use crate::names::{counted, escaped};
use crate::report::percent;
use crate::sampler::{Board, Filter, State, now_ms};
use crate::server::shown;
use crate::stats::{Sampled, cells_in_all, fill};
use crate::watch::Order;

/// The maximum width of a key on a screen. Longer keys are cut.
const KEY_WIDTH: usize = 32;

/// The last sample, with its first `top` filters.
pub(super) struct View<'a> {
    pub board: &'a Board,
    pub order: Order,
    pub top: usize,
}

impl View<'_> {
    pub fn json(&self) -> Value {
        let state = self.board.state();
        let filter = |(key, filter): (&Vec<u8>, &Filter)| {
            filter.sampled.as_ref().map(|Sampled { stats, .. }| {
                json!({
                    "key": escaped(key),
                    "kind": stats.kind,
                    "items": stats.items,
                    "capacity": stats.capacity,
                    "size_bytes": stats.size_bytes,
                    "layers": stats.layers.len(),
                    "fill": cells_in_all(stats),
                    "rate": stats.error_rate,
                    "rate_now": stats.error_rate_now,
                    "new_a_second": filter.new_a_second,
                })
            })
        };
        json!({
            "time": now_ms() as f64 / 1000.0,
            "server": self.board.server,
            "other_databases": state.other_databases(),
            "filters_known": state.filters.len(),
            "filters_of_server": state.total("bf_bloom_num_objects"),
            "size_bytes": state.total("bf_bloom_total_memory_bytes"),
            "adds": state.total("bf_bloom_adds"),
            "lookups": state.total("bf_bloom_lookups"),
            "positives": state.total("bf_bloom_positives"),
            "adds_a_second": state.rate("bf_bloom_adds"),
            "lookups_a_second": state.rate("bf_bloom_lookups"),
            "filters": self.order.first(&state, self.top).into_iter().filter_map(filter).collect::<Vec<_>>(),
        })
    }

    /// Returns the whole table, for an output that is not a terminal.
    pub fn plain(&self) -> String {
        self.lines(false).join("\n") + "\n"
    }

    /// Returns a line about the server, one with the column names, and one per filter.
    pub fn lines(&self, cut: bool) -> Vec<String> {
        let state = self.board.state();
        let filters = self.order.first(&state, self.top);
        let names: Vec<String> = filters.iter().map(|(key, _)| name(key, cut)).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).clamp(3, KEY_WIDTH);
        let mut lines = vec![format!("{}: {}", self.board.server, of_server(&state))];
        lines.push(format!(
            "{:<width$} {:>11} {:>13} {:>6} {:>8} {:>9} {:>7} {:>6} {:>6}  kind",
            "key", "memory", "items", "full", "new/s", "rate now", "rate", "fill", "layers"
        ));
        let of_filter =
            |(name, (_, filter)): (_, &(_, &Filter))| Some(format!("{name:<width$} {}", of_filter(filter)?));
        lines.extend(names.iter().zip(&filters).filter_map(of_filter));
        let hidden = state.filters.len().saturating_sub(filters.len());
        if hidden > 0 {
            lines.push(format!("and {} more", HumanCount(hidden as u64)));
        }
        let others = state.other_databases();
        if state.total("bf_bloom_num_objects") > state.filters.len() as u64 && !others.is_empty() {
            let others: Vec<String> = others.iter().map(u32::to_string).collect();
            lines.push(format!("other databases with keys: {} (-n NUMBER shows their filters)", others.join(", ")));
        }
        lines
    }
}

fn name(key: &[u8], cut: bool) -> String {
    let name = shown(key);
    if cut && name.chars().count() > KEY_WIDTH {
        return name.chars().take(KEY_WIDTH - 1).chain(['…']).collect();
    }
    name
}

fn of_server(state: &State) -> String {
    let total = |name: &str| state.total(&format!("bf_bloom_{name}"));
    let rate = |name: &str| state.rate(&format!("bf_bloom_{name}"));
    let (filters, memory) = (counted(total("num_objects"), "filter"), BinaryBytes(total("total_memory_bytes")));
    match (rate("adds"), rate("lookups"), rate("positives")) {
        (Some(adds), Some(lookups), Some(positives)) => {
            let positive = percent(if lookups > 0.0 { positives / lookups } else { 0.0 });
            let (adds, lookups) = (a_second(adds), a_second(lookups));
            format!("{filters}, {memory}, {adds} adds/s, {lookups} lookups/s, {positive} of them positive")
        }
        _ => {
            let (adds, lookups) = (counted(total("adds"), "add"), counted(total("lookups"), "lookup"));
            format!("{filters}, {memory}, {adds} and {lookups} so far")
        }
    }
}

fn of_filter(filter: &Filter) -> Option<String> {
    let stats = &filter.sampled.as_ref()?.stats;
    Some(format!(
        "{:>11} {:>13} {:>6} {:>8} {:>9} {:>7} {:>6} {:>6}  {}",
        BinaryBytes(stats.size_bytes).to_string(),
        HumanCount(stats.items).to_string(),
        percent(fill(stats)),
        filter.new_a_second.map_or_else(|| "-".to_owned(), a_second),
        percent(stats.error_rate_now),
        percent(stats.error_rate),
        cells_in_all(stats).map_or_else(|| "-".to_owned(), percent),
        stats.layers.len(),
        stats.kind,
    ))
}

fn a_second(number: f64) -> String {
    if number < 9.95 { format!("{number:.1}") } else { indicatif::HumanFloatCount(number.round()).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_rounded_and_long_keys_are_cut_on_a_screen_only() {
        assert_eq!([a_second(0.0), a_second(3.25), a_second(1234.4)], ["0.0", "3.2", "1,234"]);
        let key = [b'k'; 50];
        assert_eq!([name(&key, true), name(&key, false)], ["k".repeat(31) + "…", "k".repeat(50)]);
    }
}
