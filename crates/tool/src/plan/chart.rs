//! Two small plots of a plan: memory over items, and the rate over how full it is.

use std::fmt::Write as _;

use indicatif::{BinaryBytes, HumanCount};

use super::{Layer, Plan};
use crate::report::percent;

const COLUMNS: u32 = 60;
const ROWS: u8 = 8;
/// A column's cell, by eighths of its height.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Both plots. Memory is drawn where it changes: a ring and a single layer have it from the beginning.
pub(super) fn charts(plan: &Plan) -> String {
    let columns = || (1..=COLUMNS).map(|column| f64::from(column) / f64::from(COLUMNS));
    let mut text = String::new();
    let items = HumanCount(plan.capacity).to_string();
    if !plan.is_ring() && plan.layers.len() > 1 {
        let memory: Vec<_> = columns().map(|fill| plan.bytes_at(fill)).collect();
        chart(&mut text, "memory over items", &memory, &BinaryBytes(plan.size_bytes).to_string(), &items);
    }
    let rates: Vec<_> = columns().map(|fill| plan.rate_at(fill)).collect();
    let top = rates.iter().copied().fold(0.0, f64::max);
    chart(&mut text, "rate over items, worked out", &rates, &percent(top), &items);
    text
}

fn chart(text: &mut String, title: &str, heights: &[f64], top: &str, end: &str) {
    let highest = heights.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    _ = writeln!(text, "\n{title}");
    for row in (0..ROWS).rev() {
        let label = if row == ROWS - 1 { top } else { "" };
        let line: String = heights
            .iter()
            .map(|height| {
                let above = height / highest * f64::from(ROWS) - f64::from(row);
                let eighths = (1..=8u8).filter(|eighth| above >= f64::from(*eighth) / 8.0).count();
                EIGHTHS.get(eighths).copied().unwrap_or(' ')
            })
            .collect();
        _ = writeln!(text, "{label:>12} │{}", line.trim_end());
    }
    _ = writeln!(text, "{:>12} └{}", 0, "─".repeat(heights.len()));
    _ = writeln!(text, "{:>12}  0{end:>width$}", "", width = heights.len().saturating_sub(1));
}

impl Plan {
    /// The items of each layer, where so large a share of the capacity is taken: one after another, in a ring evenly.
    fn items_at(&self, fill: f64) -> impl Iterator<Item = (Layer, f64)> {
        let mut left = self.capacity as f64 * fill;
        let is_ring = self.is_ring();
        self.layers.iter().map(move |layer| {
            let room = layer.capacity as f64;
            let items = if is_ring { room * fill } else { left.clamp(0.0, room) };
            left -= items;
            (*layer, items)
        })
    }

    fn bytes_at(&self, fill: f64) -> f64 {
        self.items_at(fill).filter(|(_, items)| *items > 0.0).map(|(layer, _)| layer.size_bytes as f64).sum()
    }

    /// The chance that an absent item passes any of the layers.
    fn rate_at(&self, fill: f64) -> f64 {
        let none = self.items_at(fill).map(|(layer, items)| 1.0 - self.layer_rate(layer, items)).product::<f64>();
        1.0 - none
    }

    /// Of a layer with so many items. In our own layout an item has the one half of its cells in one block and the rest in
    /// another; how many items a block gets is Poisson distributed. Elsewhere its cells are anywhere.
    fn layer_rate(&self, layer: Layer, items: f64) -> f64 {
        let hashes = f64::from(layer.hashes);
        if self.layout != "native" {
            let cells = layer.size_bytes as f64 * 8.0;
            return (-(-hashes * items / cells).exp_m1()).powf(hashes);
        }
        let cells = if self.kind == "counting" { 128.0 } else { 512.0 };
        let in_block = items * 2.0 / (layer.size_bytes as f64 / 64.0);
        let most = in_block + 10.0 * in_block.sqrt() + 20.0;
        let halves = [f64::from(layer.hashes.div_ceil(2)), f64::from(layer.hashes / 2)];
        // The chance that all the cells of a half are taken in a block, for each half.
        let (mut chances, mut chance, mut load) = ([0.0; 2], (-in_block).exp(), 0.0);
        while load <= most {
            // Either half of an item may be the one that a block has.
            let taken = 1.0 - (1.0f64 - 1.0 / cells).powf(load * hashes / 2.0);
            for (sum, half) in chances.iter_mut().zip(halves) {
                *sum += chance * taken.powf(half);
            }
            load += 1.0;
            chance *= in_block / load;
        }
        chances.iter().product()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(kind: &str, layout: &str, layers: &[Layer]) -> Plan {
        Plan {
            kind: kind.to_owned(),
            layout: layout.to_owned(),
            hash: "murmur3".to_owned(),
            rate: 0.01,
            capacity: layers.iter().map(|layer| layer.capacity).sum(),
            size_bytes: layers.iter().map(|layer| layer.size_bytes).sum(),
            layers: layers.to_vec(),
        }
    }

    #[test]
    fn a_full_fixed_filter_has_about_the_rate_that_was_asked_for() {
        // Those of BF.PLAN 0.01 1000000 NONSCALING, and of the same with LAYOUT redisbloom.
        let native = plan("nonscaling", "native", &[Layer { capacity: 1_000_000, size_bytes: 1_211_136, hashes: 7 }]);
        let flat = plan("nonscaling", "redisbloom", &[Layer { capacity: 1_000_000, size_bytes: 1_198_160, hashes: 7 }]);
        for plan in [native, flat] {
            assert!((0.008..0.0115).contains(&plan.rate_at(1.0)), "{}", plan.rate_at(1.0));
            assert!(plan.rate_at(0.5) < plan.rate_at(1.0) / 10.0);
        }
    }

    #[test]
    fn memory_grows_by_layers() {
        let layer = |capacity, size_bytes| Layer { capacity, size_bytes, hashes: 7 };
        let chain = plan("scaling", "native", &[layer(1000, 1344), layer(2000, 3584)]);
        assert_eq!([chain.bytes_at(0.3), chain.bytes_at(0.4), chain.bytes_at(1.0)], [1344.0, 4928.0, 4928.0]);
        assert!(charts(&chain).contains("memory over items"));
        assert!(!charts(&plan("window", "native", &[layer(1000, 1344); 3])).contains("memory over items"));
    }
}
