//! Two small plots of a plan: memory over items, and the false positive rate over items.

use std::fmt::Write as _;

use indicatif::{BinaryBytes, HumanCount};

use super::{Layer, Plan};
use crate::report::percent;

const COLUMNS: u32 = 60;
const ROWS: u8 = 8;
/// The characters of a column by eighths of their height.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Returns both plots. Memory is drawn only if it changes: a ring and a single layer have all of it from the beginning.
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
    chart(&mut text, "false positive rate over items", &rates, &percent(top), &items);
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
    /// Returns the items of each layer when this share of the capacity is used: a chain fills its layers one after another, a ring
    /// fills its buckets evenly.
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

    /// Returns the probability that an absent item is found in any of the layers.
    fn rate_at(&self, fill: f64) -> f64 {
        let none = self.items_at(fill).map(|(layer, items)| 1.0 - self.layer_rate(layer, items)).product::<f64>();
        1.0 - none
    }

    /// Returns the false positive rate of a layer with this number of items. In the native layout an item has half of its cells in
    /// one block and the rest in another, and the number of items per block is Poisson distributed. In other layouts the cells are
    /// anywhere in the layer.
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
        // For each half of an item: the probability that all of its cells are set in a block.
        let (mut chances, mut chance, mut load) = ([0.0; 2], (-in_block).exp(), 0.0);
        while load <= most {
            // A block may have either half of an item.
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
    fn a_full_fixed_filter_has_about_the_requested_rate() {
        // The layers that BF.PLAN 0.01 1000000 NONSCALING returns, without and with LAYOUT redisbloom.
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
