//! `bloomgate plan`: the size of a filter, without creating one. If a server is named, BF.PLAN computes it with that server's
//! settings; otherwise the filter crate does, from the same arguments. `size` is its older name.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use bloomgate_filter::kinds::plan::{BLOCK_BYTES, LOW_RATE, PlannedLayer};
use indicatif::{BinaryBytes, HumanCount};
use redis::Cmd;
use serde_json::json;

use crate::numbers::{self, count_in_digits, rate_in_digits};
use crate::report::{percent, print};
use crate::server::usage;
use crate::server::{Options, Server};

/// If there are more layers, only the first and the last ones are shown.
const LAYERS_SHOWN: usize = 24;

/// Compute the size of a filter: memory, layers and bits per item, as a table
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
    /// A cuckoo filter, from which items can be deleted
    #[arg(long)]
    cuckoo: bool,
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
}

/// The plan of a filter.
struct Plan {
    kind: String,
    layout: String,
    hash: String,
    rate: f64,
    capacity: u64,
    size_bytes: u64,
    layers: Vec<PlannedLayer>,
}

pub fn run(options: &Options, arguments: &Arguments) -> Result<()> {
    let words = arguments.words();
    // Refuse invalid arguments before a server is contacted.
    let mut plan = compute(&words)?;
    if options.is_named() {
        plan = request(options, &words)?;
    }
    if let Some(asked) = words.get(1).and_then(|word| word.parse().ok()) {
        numbers::report_clamped_rate(asked, plan.rate);
    }
    if arguments.json {
        print(&format!("{}\n", plan.json()))?;
        return Ok(());
    }
    print(&plan.table()?)?;
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
            ("CUCKOO", self.cuckoo),
            ("COUNTING", self.counting),
        ];
        words.extend(flags.into_iter().filter(|(_, said)| *said).map(|(name, _)| name.to_owned()));
        words
    }
}

/// Computes the plan with the filter crate and the module's defaults.
fn compute(words: &[String]) -> Result<Plan> {
    let (spec, plan) = numbers::plan(words).map_err(|refusal| usage(numbers::reason(&refusal, words)))?;
    let names = spec.names();
    let text = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
    Ok(Plan {
        kind: text(names.kind),
        layout: text(names.layout),
        hash: text(names.hash),
        rate: spec.rate(),
        capacity: plan.capacity,
        size_bytes: plan.size_bytes,
        layers: plan.layers,
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
        Ok(PlannedLayer { capacity: layer.capacity, size_bytes: layer.size_bytes, hashes })
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
    /// Returns the maximum number of cache lines that a lookup reads in a layer.
    fn lines(&self, layer: PlannedLayer) -> u32 {
        /// Smaller layers have two blocks per item at any rate.
        const FOUR_FROM_BYTES: u64 = 4 * BLOCK_BYTES as u64;
        let may_have_four = matches!(self.kind.as_str(), "scaling" | "nonscaling") && self.rate < LOW_RATE;
        match self.layout.as_str() {
            "native" if may_have_four && layer.size_bytes >= FOUR_FROM_BYTES => 4,
            "native" => 2,
            _ => layer.hashes,
        }
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
        let layer = |layer: &PlannedLayer| {
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
