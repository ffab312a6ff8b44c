//! A filter of the server: what BF.INFO and BF.STATS tell of it, and the order in which filters are shown.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;
use redis::{Value, from_redis_value};
use serde_json::{Value as Json, json};

use super::Order;
use crate::archive::Contents;
use crate::filters::contents;
use crate::names::escaped;

/// A filter, as it was when it was asked last.
#[derive(Clone, Default)]
pub(super) struct Filter {
    pub key: Vec<u8>,
    /// Of BF.STATS: nothing where that has not been asked, or is not known to the server.
    pub kind: Option<String>,
    pub rate: Option<f64>,
    pub rate_now: Option<f64>,
    /// The share of all its cells that are taken.
    pub fill: Option<f64>,
    pub items: u64,
    pub capacity: u64,
    pub size_bytes: u64,
    pub layers: u64,
    /// New items a second, since it was asked before.
    pub new_a_second: Option<f64>,
    asked_at: Option<Instant>,
}

impl Filter {
    /// One that was not asked yet.
    pub fn new(key: Vec<u8>) -> Self {
        Self { key, ..Self::default() }
    }

    /// Takes a reply to BF.INFO that came now.
    ///
    /// # Errors
    /// A reply of another form.
    pub fn take_info(&mut self, reply: Value, now: Instant) -> Result<()> {
        let Contents { capacity, layers, items, bytes } = contents(reply)?;
        (self.capacity, self.layers, self.size_bytes) = (capacity, layers, bytes);
        self.new_a_second = self.asked_at.map(|then| {
            let passed = now.duration_since(then).as_secs_f64().max(0.001);
            items.saturating_sub(self.items) as f64 / passed
        });
        self.items = items;
        self.asked_at = Some(now);
        Ok(())
    }

    /// Takes a reply to BF.STATS.
    ///
    /// # Errors
    /// As [`Self::take_info`].
    pub fn take_stats(&mut self, reply: Value) -> Result<()> {
        let mut fields: BTreeMap<String, Value> = from_redis_value(reply)?;
        let mut field = |name: &str| fields.remove(name).unwrap_or(Value::Nil);
        self.kind = from_redis_value(field("Kind"))?;
        self.rate = from_redis_value(field("Error rate"))?;
        self.rate_now = from_redis_value(field("Error rate now"))?;
        let (mut taken, mut all) = (0.0, 0.0);
        if let Value::Array(layers) = field("Layers") {
            for layer in layers {
                let layer: BTreeMap<String, f64> = from_redis_value(layer)?;
                let number = |name: &str| layer.get(name).copied().unwrap_or(0.0);
                taken += number("Fill") * number("Size");
                all += number("Size");
            }
        }
        self.fill = (all > 0.0).then(|| taken / all);
        Ok(())
    }

    /// Items for each that it has room for.
    pub fn taken(&self) -> f64 {
        self.items as f64 / self.capacity.max(1) as f64
    }

    /// As an object of JSON.
    pub fn json(&self) -> Json {
        json!({
            "key": escaped(&self.key),
            "kind": self.kind,
            "items": self.items,
            "capacity": self.capacity,
            "size_bytes": self.size_bytes,
            "layers": self.layers,
            "fill": self.fill,
            "rate": self.rate,
            "rate_now": self.rate_now,
            "new_a_second": self.new_a_second,
        })
    }
}

impl Order {
    /// Which of two filters comes first.
    pub(super) fn compare(self, one: &Filter, other: &Filter) -> Ordering {
        let activity = |filter: &Filter| filter.new_a_second.unwrap_or(0.0);
        let by_activity = match self {
            Self::Memory => Ordering::Equal,
            Self::Activity => activity(other).total_cmp(&activity(one)),
        };
        by_activity.then(other.size_bytes.cmp(&one.size_bytes)).then_with(|| one.key.cmp(&other.key))
    }
}
