//! The replies to BF.STATS and INFO as numbers, for `watch` and `web`.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use redis::{Value, cmd, from_redis_value};

use crate::server::{Address, Server};

/// The reply to BF.STATS, with the expansion and the time to live if they were asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// scaling, nonscaling, counting, window or rolling.
    pub kind: String,
    /// `native`, `redisbloom` or `valkey-bloom`.
    pub layout: String,
    /// The hash function.
    pub hash: String,
    /// The requested false positive rate.
    pub rate: f64,
    /// The chance that an absent item is reported as present now.
    pub rate_now: f64,
    /// Items added, as counted.
    pub items: u64,
    /// Items, estimated from the set bits.
    pub items_estimated: u64,
    /// The capacity of all layers.
    pub capacity: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Bytes of pending adds.
    pub pending_bytes: u64,
    /// Entries in the table of deleted items, and free ones.
    pub deleted: Option<(u64, u64)>,
    /// The window in seconds, and whether an add restarts it for its item.
    pub window: Option<(u64, bool)>,
    /// The growth factor from one layer to the next; `None` if the filter does not grow.
    pub expansion: Option<u64>,
    /// Milliseconds until the key expires.
    pub ttl_ms: Option<u64>,
    /// Oldest first.
    pub layers: Vec<Layer>,
    /// Oldest first; `None` if the filter keeps its items forever.
    pub buckets: Option<Vec<Bucket>>,
}

/// A layer of a filter.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// The items it was created for.
    pub capacity: u64,
    /// The items added to it.
    pub items: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Cells set per item.
    pub hashes: u64,
    /// The share of its cells that are set.
    pub cells: f64,
}

/// A bucket of a windowed or rolling filter.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// Its number.
    pub slot: u64,
    /// Its begin and end in milliseconds since 1970; `None` for a rolling filter.
    pub times_ms: Option<(u64, u64)>,
    /// The items in it.
    pub items: u64,
}

impl Stats {
    /// Parses the reply to `BF.STATS key`.
    ///
    /// # Errors
    /// The reply has another form.
    pub fn of_reply(reply: Value) -> Result<Self> {
        let mut map = Map::of(reply)?;
        let deleted = map.optional("Number of items deleted")?.zip(map.optional("Room for items deleted")?);
        let window = map.optional("Window")?.map(|seconds: u64| (seconds, map.take("Sliding").unwrap_or_default()));
        Ok(Self {
            kind: map.take("Kind")?,
            layout: map.take("Layout")?,
            hash: map.take("Hash")?,
            rate: map.take("Error rate")?,
            rate_now: map.take("Error rate now")?,
            items: map.take("Number of items inserted")?,
            items_estimated: map.take("Number of items estimated")?,
            capacity: map.take("Capacity")?,
            size_bytes: map.take("Size")?,
            pending_bytes: map.take("Size of pending adds")?,
            deleted,
            window,
            expansion: None,
            ttl_ms: None,
            layers: map.take::<Vec<Value>>("Layers")?.into_iter().map(layer).collect::<Result<_>>()?,
            buckets: map
                .optional::<Vec<Value>>("Buckets")?
                .map(|buckets| buckets.into_iter().map(bucket).collect::<Result<_>>())
                .transpose()?,
        })
    }

    /// Adds the replies to `BF.INFO key EXPANSION` and `PTTL key`. A reply with an error or nil leaves its field empty.
    pub fn with_key(self, expansion: Value, ttl: Value) -> Self {
        // An array of one value, or the bare value for a filter of valkey-bloom's layout.
        let expansion = match expansion {
            Value::Array(mut values) => values.pop().unwrap_or(Value::Nil),
            value => value,
        };
        let ttl_ms = from_redis_value::<i64>(ttl).ok().and_then(|ms| u64::try_from(ms).ok());
        Self { expansion: from_redis_value(expansion).ok(), ttl_ms, ..self }
    }

    /// Items by capacity: 1 if the filter is full.
    pub fn fill(&self) -> f64 {
        self.items as f64 / self.capacity.max(1) as f64
    }

    /// The share of set cells in the fullest layer: about a half if that layer is full.
    pub fn cells(&self) -> f64 {
        self.layers.iter().map(|layer| layer.cells).fold(0.0, f64::max)
    }

    /// The share of set cells in all layers together, unless they have no size.
    pub fn cells_in_all(&self) -> Option<f64> {
        let all: f64 = self.layers.iter().map(|layer| layer.size_bytes as f64).sum();
        let set: f64 = self.layers.iter().map(|layer| layer.cells * layer.size_bytes as f64).sum();
        (all > 0.0).then(|| set / all)
    }
}

fn layer(reply: Value) -> Result<Layer> {
    let mut map = Map::of(reply)?;
    Ok(Layer {
        capacity: map.take("Capacity")?,
        items: map.take("Number of items inserted")?,
        size_bytes: map.take("Size")?,
        hashes: map.take("Hashes")?,
        cells: map.take("Fill")?,
    })
}

fn bucket(reply: Value) -> Result<Bucket> {
    let mut map = Map::of(reply)?;
    Ok(Bucket {
        slot: map.take("Slot")?,
        times_ms: map.optional("Begin")?.zip(map.optional("End")?),
        items: map.take("Number of items inserted")?,
    })
}

/// A reply that maps names to values.
struct Map(BTreeMap<String, Value>);

impl Map {
    fn of(reply: Value) -> Result<Self> {
        Ok(Self(from_redis_value(reply)?))
    }

    fn optional<T: redis::FromRedisValue>(&mut self, name: &str) -> Result<Option<T>> {
        Ok(self.0.remove(name).map(from_redis_value).transpose()?)
    }

    fn take<T: redis::FromRedisValue>(&mut self, name: &str) -> Result<T> {
        self.optional(name)?.with_context(|| format!("the server's reply has no field \"{name}\""))
    }
}

/// The fields of a reply to INFO.
#[derive(Clone, Debug, Default)]
pub struct Info(BTreeMap<String, String>);

impl Info {
    /// Asks a node for some sections.
    ///
    /// # Errors
    /// As [`Server::ask_node`].
    pub fn of_node(server: &mut Server, node: &Address, sections: &[&str]) -> Result<Self> {
        let reply = server.ask_node(node, cmd("INFO").arg(sections))?;
        Ok(Self::of_text(&from_redis_value::<String>(reply)?))
    }

    /// Parses lines of the form `name:value`.
    fn of_text(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// Returns a field as text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns a field as a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_weighted_by_their_size() {
        let layer = |size_bytes, cells| Layer { capacity: 1, items: 0, size_bytes, hashes: 1, cells };
        let stats = Stats { layers: vec![layer(100, 0.5), layer(300, 0.1)], ..Stats::default() };
        assert_eq!((stats.cells(), stats.cells_in_all()), (0.5, Some(0.2)));
        assert_eq!((Stats::default().cells(), Stats::default().cells_in_all()), (0.0, None));
    }

    #[test]
    fn info_lines_end_with_cr_lf() {
        let info = Info::of_text("# bf\r\nbf_version:0.1.0\r\nbf_bloom_adds:7\r\n");
        assert_eq!((info.text("bf_version"), info.number("bf_bloom_adds")), (Some("0.1.0"), Some(7)));
        assert_eq!((info.number("bf_version"), info.text("other")), (None, None));
    }
}
