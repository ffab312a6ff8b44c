//! A filter with its replies to BF.INFO and BF.STATS, and the order of filters on the screen.

use std::cmp::Ordering;
use std::time::Instant;

use anyhow::Result;
use bloomgate_client::Stats;
use redis::Value;
use serde_json::{Value as Json, json};

use crate::archive::Contents;
use crate::filters::contents;
use crate::names::escaped;
use crate::stats::cells_in_all;

/// A filter as of its last sample.
#[derive(Clone, Default)]
pub(super) struct Filter {
    pub key: Vec<u8>,
    /// The reply to BF.STATS; `None` if it was not requested, or if the server does not know the command.
    pub stats: Option<Stats>,
    pub items: u64,
    pub capacity: u64,
    pub size_bytes: u64,
    pub layers: u64,
    /// New items per second since the sample before.
    pub new_a_second: Option<f64>,
    asked_at: Option<Instant>,
}

impl Filter {
    /// Creates a filter without a sample.
    pub fn new(key: Vec<u8>) -> Self {
        Self { key, ..Self::default() }
    }

    /// Stores a reply to BF.INFO that was received at `now`.
    ///
    /// # Errors
    /// The reply has another form.
    pub fn take_info(&mut self, reply: Value, now: Instant) -> Result<()> {
        let Contents { capacity, layers, items, bytes } = contents(&reply)?;
        (self.capacity, self.layers, self.size_bytes) = (capacity, layers, bytes);
        self.new_a_second = self.asked_at.map(|then| {
            let passed = now.duration_since(then).as_secs_f64().max(0.001);
            items.saturating_sub(self.items) as f64 / passed
        });
        self.items = items;
        self.asked_at = Some(now);
        Ok(())
    }

    /// Items by capacity.
    pub fn full(&self) -> f64 {
        self.items as f64 / self.capacity.max(1) as f64
    }

    /// The share of set cells in all layers.
    pub fn cells(&self) -> Option<f64> {
        self.stats.as_ref().and_then(cells_in_all)
    }

    /// Returns the filter as a JSON object.
    pub fn json(&self) -> Json {
        let stats = self.stats.as_ref();
        json!({
            "key": escaped(&self.key),
            "kind": stats.map(|stats| &stats.kind),
            "items": self.items,
            "capacity": self.capacity,
            "size_bytes": self.size_bytes,
            "layers": self.layers,
            "fill": self.cells(),
            "rate": stats.map(|stats| stats.error_rate),
            "rate_now": stats.map(|stats| stats.error_rate_now),
            "new_a_second": self.new_a_second,
        })
    }
}

/// The order of filters.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Order {
    /// The largest filters first
    Memory,
    /// The filters with the most new items per second first
    Activity,
}

impl Order {
    /// Compares two filters; the lesser one is shown first.
    pub(super) fn compare(self, one: &Filter, other: &Filter) -> Ordering {
        let activity = |filter: &Filter| filter.new_a_second.unwrap_or(0.0);
        let by_activity = match self {
            Self::Memory => Ordering::Equal,
            Self::Activity => activity(other).total_cmp(&activity(one)),
        };
        by_activity.then(other.size_bytes.cmp(&one.size_bytes)).then_with(|| one.key.cmp(&other.key))
    }
}
