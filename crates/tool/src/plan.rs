//! `bloomgate plan`: the size of a filter, without creating one. If a server is named, BF.PLAN computes it with that server's
//! settings; otherwise the filter crate does, from the same arguments. `size` is its older name.

use std::fmt::Write as _;
use std::io::{IsTerminal, stdout};

use anyhow::{Context, Result};
use bloomgate_filter::kinds::{Defaults, HashName, LayoutName};
use bloomgate_filter::{Scaling, words};
use indicatif::{BinaryBytes, HumanCount};
use redis::Cmd;
use serde_json::json;

use crate::exit::usage;
use crate::numbers::{self, count_in_digits, rate_in_digits};
use crate::report::{percent, print};
use crate::server::{Options, Server};

/// If there are more layers, only the first and the last ones are shown.
const LAYERS_SHOWN: usize = 24;

/// Compute the size of a filter: memory, layers and bits per item, as a table and, on a terminal, as plots
#[derive(clap::Args)]
#[command(after_help = "Examples:
  bloomgate plan 0.01 1000000                        a million items at 1%
  bloomgate plan 0.01 100000 --items 10000000        the same filter, grown to ten million items
  bloomgate plan 0.001 1000000 --window 86400        a filter that forgets items after a day
  bloomgate plan 0.01 1000000 --port 6379            as this server would create it (BF.PLAN)")]
pub struct Arguments {
    /// The false positive rate, between 0 and 1
    rate: String,
    /// The number of items to reserve room for. Rate and capacity may be swapped
    capacity: String,
    /// The growth factor from one layer to the next; 0 for a fixed filter (NONSCALING)
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=32768))]
    expansion: Option<u32>,
    /// Plan the filter after it has grown to this many items
    #[arg(long, value_name = "NUMBER", value_parser = numbers::count)]
    items: Option<u64>,
    /// The hash function. siphash has a secret key and allows deletes
    #[arg(long, value_parser = ["murmur3", "siphash"])]
    hash: Option<String>,
    /// Forget items after this many seconds
    #[arg(long, value_name = "SECONDS")]
    window: Option<u64>,
    /// Remember at least the last CAPACITY items
    #[arg(long)]
    rolling: bool,
    /// The maximum number of buckets, with --window or --rolling
    #[arg(long, value_name = "NUMBER")]
    buckets: Option<u32>,
    /// With --window: adding an item again restarts its window
    #[arg(long)]
    sliding: bool,
    /// Use counters instead of bits, so that deletes are unlimited
    #[arg(long)]
    counting: bool,
    /// The layout of the filter
    #[arg(long, value_parser = ["native", "redisbloom"])]
    layout: Option<String>,
    /// Use valkey-bloom's layout, with this factor from one layer's rate to the next
    #[arg(long, value_name = "RATIO")]
    tightening: Option<f64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Draw the plots even if the output is not a terminal
    #[arg(long, conflicts_with = "json")]
    plot: bool,
}

/// The plan of a filter.
struct Plan {
    kind: String,
    layout: String,
    hash: String,
    rate: f64,
    capacity: u64,
    size_bytes: u64,
    layers: Vec<Layer>,
}

#[derive(Clone, Copy)]
struct Layer {
    capacity: u64,
    size_bytes: u64,
    hashes: u32,
}

/// Runs the subcommand.
pub fn run(options: &Options, arguments: &Arguments) -> Result<()> {
    let words = arguments.words();
    // Invalid arguments are refused before a server is contacted.
    let mut plan = compute(&words)?;
    if options.is_named() {
        plan = request(options, &words)?;
    }
    if let Some(asked) = words.get(1).and_then(|word| word.parse().ok()) {
        numbers::tell_taken_rate(asked, plan.rate);
    }
    if arguments.json {
        print(&format!("{}\n", plan.json()))?;
        return Ok(());
    }
    let mut text = plan.table()?;
    if arguments.plot || stdout().is_terminal() {
        text.push_str(&charts(&plan));
    }
    print(&text)?;
    Ok(())
}

impl Arguments {
    /// Returns the arguments of BF.PLAN. The rate is the value below 1.
    fn words(&self) -> Vec<String> {
        let is_rate = |word: &str| rate_in_digits(word).parse::<f64>().is_ok_and(|number| number < 1.0);
        let (rate, capacity) = match (is_rate(&self.rate), is_rate(&self.capacity)) {
            (false, true) => (&self.capacity, &self.rate),
            _ => (&self.rate, &self.capacity),
        };
        let mut words = vec!["BF.PLAN".to_owned(), rate_in_digits(rate), count_in_digits(capacity)];
        let mut push = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                words.extend([name.to_owned(), value]);
            }
        };
        push("EXPANSION", self.expansion.filter(|factor| *factor > 0).map(|factor| factor.to_string()));
        push("ITEMS", self.items.map(|items| items.to_string()));
        push("HASH", self.hash.clone());
        push("WINDOW", self.window.map(|seconds| seconds.to_string()));
        push("BUCKETS", self.buckets.map(|buckets| buckets.to_string()));
        push("LAYOUT", self.layout.clone());
        push("TIGHTENING", self.tightening.map(|ratio| ratio.to_string()));
        let flags = [
            ("NONSCALING", self.expansion == Some(0)),
            ("ROLLING", self.rolling),
            ("SLIDING", self.sliding),
            ("COUNTING", self.counting),
        ];
        words.extend(flags.into_iter().filter(|(_, said)| *said).map(|(name, _)| name.to_owned()));
        words
    }
}

/// Computes the plan with the filter crate and the module's defaults.
fn compute(words: &[String]) -> Result<Plan> {
    let defaults = Defaults {
        rate: 0.01,
        capacity: 100,
        scaling: Scaling::from_expansion(2),
        layout: LayoutName::Native,
        hash: HashName::Murmur3,
        tightening: 0.5,
        entropy: [0; 32],
        has_random_seeds: false,
        must_obey: false,
    };
    let refused = |refusal: words::Refusal| usage(numbers::reason(&refusal, words));
    let parsed = words::plan::parse(words, &defaults).map_err(refused)?;
    let plan = parsed.spec.plan(parsed.items).map_err(|error| refused(error.into()))?;
    let names = parsed.spec.names();
    let text = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
    let layers = plan.layers.iter();
    Ok(Plan {
        kind: text(names.kind),
        layout: text(names.layout),
        hash: text(names.hash),
        rate: parsed.spec.rate(),
        capacity: plan.capacity,
        size_bytes: plan.size_bytes,
        layers: layers
            .map(|layer| Layer { capacity: layer.capacity, size_bytes: layer.size_bytes, hashes: layer.hashes })
            .collect(),
    })
}

/// Requests the plan from a server by BF.PLAN.
fn request(options: &Options, words: &[String]) -> Result<Plan> {
    let mut server = Server::connect(options)?;
    let node = server.nodes().into_iter().next().context("the cluster has no nodes")?;
    let mut command = Cmd::new();
    words.iter().for_each(|word| _ = command.arg(word));
    let reply = server.ask_node(&node, &command)?;
    let plan: bloomgate_client::Plan = (&reply).try_into().with_context(|| format!("{node} has no plan"))?;
    let layer = |layer: &bloomgate_client::Layer| {
        let hashes = u32::try_from(layer.hashes)?;
        Ok(Layer { capacity: layer.capacity, size_bytes: layer.size_bytes, hashes })
    };
    Ok(Plan {
        kind: plan.kind,
        layout: plan.layout,
        hash: plan.hash,
        rate: plan.error_rate,
        capacity: plan.capacity,
        size_bytes: plan.size_bytes,
        layers: plan.layers.iter().map(layer).collect::<Result<_>>()?,
    })
}

impl Plan {
    /// Whether its layers are the buckets of a ring, which all exist from the beginning, and not a chain.
    fn is_ring(&self) -> bool {
        matches!(&*self.kind, "window" | "rolling")
    }

    /// Returns the maximum number of cache lines that a lookup reads in a layer.
    fn lines(&self, layer: Layer) -> u32 {
        if self.layout == "native" { 2 } else { layer.hashes }
    }

    fn table(&self) -> Result<String> {
        let Self { kind, layout, hash, rate, .. } = self;
        let mut text = format!("{kind}, {layout} layout, {hash}, {}\n", percent(*rate));
        writeln!(
            text,
            "{:>7} {:>20} {:>12} {:>14} {:>7} {:>7}",
            "layers", "items", "memory", "bits per item", "hashes", "lines"
        )?;
        let hidden = self.layers.len().saturating_sub(LAYERS_SHOWN);
        let (mut items, mut bytes, mut lines) = (0u64, 0u64, 0u32);
        for (index, layer) in self.layers.iter().enumerate() {
            items = items.saturating_add(layer.capacity);
            bytes = bytes.saturating_add(layer.size_bytes);
            lines = lines.saturating_add(self.lines(*layer));
            let from = LAYERS_SHOWN / 2;
            if hidden > 0 && (from..from + hidden).contains(&index) {
                if index == from {
                    writeln!(text, "    ... {hidden} more")?;
                }
                continue;
            }
            let (count, memory) = (HumanCount(items).to_string(), BinaryBytes(bytes).to_string());
            let bits = bytes as f64 * 8.0 / items as f64;
            writeln!(text, "{:>7} {count:>20} {memory:>12} {bits:>14.2} {:>7} {lines:>7}", index + 1, layer.hashes)?;
        }
        let (memory, size) = (BinaryBytes(self.size_bytes), HumanCount(self.size_bytes));
        writeln!(text, "total {memory}: {size} bytes, as BF.INFO reports")?;
        Ok(text)
    }

    fn json(&self) -> serde_json::Value {
        let layer = |layer: &Layer| {
            json!({ "capacity": layer.capacity, "size_bytes": layer.size_bytes, "hashes": layer.hashes,
                "lines": self.lines(*layer) })
        };
        json!({
            "kind": self.kind,
            "layout": self.layout,
            "hash": self.hash,
            "rate": self.rate,
            "capacity": self.capacity,
            "size_bytes": self.size_bytes,
            "bits_per_item": self.size_bytes as f64 * 8.0 / self.capacity.max(1) as f64,
            "layers": self.layers.iter().map(layer).collect::<Vec<_>>(),
        })
    }
}

// Two small plots of a plan: memory over items, and the false positive rate over items.

const COLUMNS: u32 = 60;
const ROWS: u8 = 8;
/// The characters of a column by eighths of their height.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Returns both plots. Memory is drawn only if it changes: a ring and a single layer have all of it from the beginning.
fn charts(plan: &Plan) -> String {
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
