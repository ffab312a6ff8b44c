//! The replies to BF.STATS and INFO as numbers, for `watch` and `web`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use bloomgate_client::{Info as FilterInfo, Stats};
use redis::{Value, cmd, from_redis_value};

use crate::server::{Address, Server};
use crate::target::info_field;

/// A filter and its key.
#[derive(Clone, Debug)]
pub struct Sampled {
    pub stats: Stats,
    /// The growth factor from one layer to the next; `None` if the filter does not grow.
    pub expansion: Option<u64>,
    pub ttl_ms: Option<u64>,
    /// When it was received.
    pub at: Instant,
}

impl Sampled {
    /// Parses the replies to `BF.STATS key`, `BF.INFO key EXPANSION` and `PTTL key`. If one of the last two is an error or nil, its field
    /// stays empty.
    pub fn of_replies(stats: &Value, expansion: Value, ttl: Value) -> Result<Self> {
        let ttl_ms = from_redis_value::<i64>(ttl).ok().and_then(|ms| u64::try_from(ms).ok());
        Ok(Self { stats: stats.try_into()?, expansion: info_field(expansion).ok(), ttl_ms, at: Instant::now() })
    }

    /// Whether it refuses items once it is full.
    pub fn is_fixed(&self) -> bool {
        self.expansion.is_none() && self.stats.kind != "rolling"
    }

    pub fn rank(&self) -> Rank {
        let Stats { items, capacity, items_deleted, room_for_deleted, .. } = self.stats;
        let fill = if self.is_fixed() { permille(items, capacity) } else { 0 };
        let deleted = items_deleted.unwrap_or(0);
        let deleted = permille(deleted, deleted.saturating_add(room_for_deleted.unwrap_or(0)));
        let is_ring = count_of_buckets(&self.stats).is_some();
        let layers = if is_ring { 0 } else { self.stats.layers.len() as u64 };
        let wrong = if self.stats.layout == "valkey-bloom" { WRONG_VALKEY_BLOOM } else { WRONG };
        let is_wrong = self.stats.error_rate_now > wrong * self.stats.error_rate;
        Rank::new(fill.max(deleted), is_wrong || layers > MANY_LAYERS, self.stats.size_bytes)
    }
}

/// The thresholds of the alerts in `packaging/compose/alerts.yml`.
const NEARLY_FULL_PERMILLE: u64 = 900;
const MANY_LAYERS: u64 = 8;
const WRONG: f64 = 1.5;
const WRONG_VALKEY_BLOOM: f64 = 3.0;

/// The priority of filters if there are more than may be watched: first filters that refuse commands or soon will, the fullest first; then
/// other filters that an alert concerns; then the largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// The fill of the filter or of its table of deleted items, in thousandths; 0 below the threshold.
    full: u64,
    has_alert: bool,
    size_bytes: u64,
}

impl Rank {
    const fn new(full: u64, has_alert: bool, size_bytes: u64) -> Self {
        Self { full: if full >= NEARLY_FULL_PERMILLE { full } else { 0 }, has_alert, size_bytes }
    }

    /// The rank according to BF.INFO, which does not name the kind: a filter that does not grow and has several layers is a ring.
    pub fn of_info(info: &FilterInfo) -> Self {
        let FilterInfo { capacity, size_bytes, layers, items, expansion, .. } = *info;
        let fill = if expansion.is_none() && layers == 1 { permille(items, capacity) } else { 0 };
        Self::new(fill, layers > MANY_LAYERS, size_bytes)
    }
}

fn permille(part: u64, whole: u64) -> u64 {
    part.saturating_mul(1000) / whole.max(1)
}

/// Returns items divided by capacity: 1 if the filter is full.
pub fn fill(stats: &Stats) -> f64 {
    stats.items as f64 / stats.capacity.max(1) as f64
}

/// Returns the share of set cells in the fullest layer: about a half if that layer is full.
pub fn cells(stats: &Stats) -> f64 {
    stats.layers.iter().filter_map(|layer| layer.fill).fold(0.0, f64::max)
}

/// Returns the share of set cells in all layers together, unless they have no size.
pub fn cells_in_all(stats: &Stats) -> Option<f64> {
    let all: f64 = stats.layers.iter().map(|layer| layer.size_bytes as f64).sum();
    let set: f64 = stats.layers.iter().map(|layer| layer.fill.unwrap_or_default() * layer.size_bytes as f64).sum();
    (all > 0.0).then(|| set / all)
}

/// Returns the number of buckets of a filter that forgets, and `None` for others.
pub fn count_of_buckets(stats: &Stats) -> Option<usize> {
    matches!(&*stats.kind, "window" | "rolling").then_some(stats.buckets.len())
}

/// The fields of a reply to INFO.
#[derive(Clone, Debug, Default)]
pub struct Info(BTreeMap<String, String>);

/// Returns the change per second of a number that grew by `more`.
pub fn per_second(more: u64, passed: Duration) -> f64 {
    more as f64 / passed.max(Duration::from_millis(1)).as_secs_f64()
}

impl Info {
    /// Queries some sections of a node's INFO.
    pub fn of_node(server: &mut Server, node: &Address, sections: &[&str]) -> Result<Self> {
        let reply = server.ask_node(node, cmd("INFO").arg(sections))?;
        Ok(Self::of_text(&from_redis_value::<String>(reply)?))
    }

    /// Parses lines of the form `name:value`.
    fn of_text(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// Returns the databases that have keys, from the section `keyspace`.
    pub fn databases(&self) -> impl Iterator<Item = u32> {
        self.0.keys().filter_map(|name| name.strip_prefix("db")?.parse().ok())
    }

    /// Returns the number of keys in a database, from the section `keyspace`.
    pub fn keys(&self, database: u32) -> u64 {
        let keys = self.text(&format!("db{database}")).and_then(|line| line.strip_prefix("keys=")?.split(',').next());
        keys.and_then(|keys| keys.parse().ok()).unwrap_or(0)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply to BF.STATS in RESP2, with the size and the fill of each layer.
    fn reply(layers: &[(i64, f64)]) -> Value {
        let text = |text: &str| Value::BulkString(text.into());
        let layer = |(size, fill): &(i64, f64)| {
            let numbers = [("Capacity", 1), ("Size", *size), ("Hashes", 1), ("Number of items inserted", 0)];
            let numbers = numbers.into_iter().flat_map(|(name, number)| [text(name), Value::Int(number)]);
            Value::Array(numbers.chain([text("Fill"), text(&fill.to_string())]).collect())
        };
        let texts = [("Kind", "scaling"), ("Layout", "native"), ("Hash", "murmur3")];
        let rates = [("Error rate", "0.01"), ("Error rate now", "0.001")];
        let texts = texts.into_iter().chain(rates).flat_map(|(name, value)| [text(name), text(value)]);
        let names =
            ["Number of items inserted", "Number of items estimated", "Capacity", "Size", "Size of pending adds"];
        let numbers = names.into_iter().flat_map(|name| [text(name), Value::Int(4)]);
        let layers = [text("Layers"), Value::Array(layers.iter().map(layer).collect())];
        Value::Array(texts.chain(numbers).chain(layers).collect())
    }

    #[test]
    fn layers_are_weighted_by_their_size() {
        let sampled = |layers: &[(i64, f64)]| Sampled::of_replies(&reply(layers), Value::Nil, Value::Int(-1)).unwrap();
        let Sampled { stats, expansion, ttl_ms, .. } = sampled(&[(100, 0.5), (300, 0.1)]);
        assert_eq!((cells(&stats), cells_in_all(&stats)), (0.5, Some(0.2)));
        assert_eq!((fill(&stats), expansion, ttl_ms), (1.0, None, None));
        let stats = sampled(&[]).stats;
        assert_eq!((cells(&stats), cells_in_all(&stats)), (0.0, None));
    }

    #[test]
    fn info_lines_end_with_cr_lf() {
        let info = Info::of_text("# bf\r\nbf_version:0.1.0\r\nbf_bloom_adds:7\r\n");
        assert_eq!((info.text("bf_version"), info.number("bf_bloom_adds")), (Some("0.1.0"), Some(7)));
        assert_eq!((info.number("bf_version"), info.text("other")), (None, None));
    }
}
