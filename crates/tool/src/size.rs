//! `bloomgate size`: how much memory a filter takes, worked out without a server and without the memory.

use anyhow::{Result, bail};
use bloomgate_filter::geometry::{Paged, sizing};
use bloomgate_filter::{CLIENT_LAYERS_MAX, Scaling};
use indicatif::{BinaryBytes, HumanCount};

/// Work out the memory of a filter for a number of items at a rate
#[derive(clap::Args)]
pub struct Arguments {
    /// Items to reserve room for
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    capacity: u64,
    /// The share of absent items that may be called present, 1e-12 to 0.25
    rate: f64,
    /// The factor from one layer to the next; 0 for a fixed filter (NONSCALING)
    #[arg(long, default_value = "2", value_parser = clap::value_parser!(u32).range(0..=32768))]
    expansion: u32,
    /// Work it out as it grows to that many items, too
    #[arg(long)]
    items: Option<u64>,
}

/// Runs the subcommand.
pub fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { capacity, rate, expansion, items } = *arguments;
    if !(sizing::RATE_MIN..=sizing::RATE_MAX).contains(&rate) {
        bail!("the rate is {rate}, filters have {} to {}", sizing::RATE_MIN, sizing::RATE_MAX);
    }
    let scaling = Scaling::from_expansion(expansion);
    let wanted = items.unwrap_or(capacity);
    println!("{:>7} {:>20} {:>12} {:>14}", "layers", "items", "memory", "bits an item");
    let (mut size_bytes, mut total, mut next) = (0u64, 0u64, capacity);
    for index in 0..CLIENT_LAYERS_MAX {
        let share = sizing::share(scaling, capacity, u32::try_from(index)?);
        let Ok(geometry) = Paged::for_layer(next, rate * share) else { bail!("no bitmap is that large") };
        size_bytes = size_bytes.saturating_add(geometry.size_bytes());
        total = total.saturating_add(next);
        let bits = bits_per_item(size_bytes, total);
        println!("{:>7} {:>20} {:>12} {bits:>14.2}", index + 1, count(total), memory(size_bytes));
        if total >= wanted {
            return Ok(());
        }
        next = match sizing::next_capacity(next, scaling) {
            Ok(next) => next,
            Err(_) => bail!("it cannot grow to {} items", HumanCount(wanted)),
        };
    }
    bail!("it cannot grow to {} items: it has {CLIENT_LAYERS_MAX} layers then", HumanCount(wanted))
}

fn bits_per_item(size_bytes: u64, items: u64) -> f64 {
    size_bytes as f64 * 8.0 / items as f64
}

fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

fn memory(bytes: u64) -> String {
    BinaryBytes(bytes).to_string()
}
