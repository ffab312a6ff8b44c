//! The replies of the server, as numbers: BF.STATS, BF.INFO, PTTL and INFO.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use redis::{Value, from_redis_value};

/// What BF.STATS tells of a filter, with its expansion and its time to live.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// scaling, nonscaling, counting, window or rolling.
    pub kind: String,
    /// Whose layout it has.
    pub layout: String,
    /// How it hashes.
    pub hash: String,
    /// The false positive rate that it was made for.
    pub rate: f64,
    /// The chance that a random item passes now.
    pub rate_now: f64,
    /// Items that were counted.
    pub items: u64,
    /// About how many are in, by the bits.
    pub items_estimated: u64,
    /// Items that all its layers are made for.
    pub capacity: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Bytes of adds that are not in the bits yet.
    pub pending_bytes: u64,
    /// Entries of the table of deleted items, and room for more.
    pub deleted: Option<(u64, u64)>,
    /// Seconds after which items are forgotten, and whether an add begins that anew.
    pub window: Option<(u64, bool)>,
    /// The factor from one layer to the next; none of a filter that does not grow.
    pub expansion: Option<u64>,
    /// Milliseconds until the key expires.
    pub ttl_ms: Option<u64>,
    /// Oldest first.
    pub layers: Vec<Layer>,
    /// Oldest first; none of a filter that does not forget.
    pub buckets: Option<Vec<Bucket>>,
}

/// A layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Items that it is made for.
    pub capacity: u64,
    /// Items that were added to it.
    pub items: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Cells of an item.
    pub hashes: u64,
    /// The share of its cells in which items left something.
    pub cells: f64,
}

/// A bucket of a filter that forgets.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// Its number.
    pub slot: u64,
    /// When it begins and ends, in milliseconds since 1970, where it goes by time.
    pub times_ms: Option<(u64, u64)>,
    /// Items in it.
    pub items: u64,
}

impl Stats {
    /// Reads the replies to `BF.STATS key`, `BF.INFO key EXPANSION` and `PTTL key`.
    ///
    /// # Errors
    /// The replies are not of that form.
    pub fn of_replies(stats: Value, expansion: Value, ttl: Value) -> Result<Self> {
        let mut map = Map::of(stats)?;
        let deleted = map.optional("Number of items deleted")?.zip(map.optional("Room for items deleted")?);
        let window = map.optional("Window")?.map(|seconds: u64| (seconds, map.take("Sliding").unwrap_or_default()));
        // An array of one; of valkey-bloom's layout the value alone.
        let expansion = match expansion {
            Value::Array(mut values) => values.pop().unwrap_or(Value::Nil),
            value => value,
        };
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
            expansion: from_redis_value(expansion).ok(),
            ttl_ms: from_redis_value::<i64>(ttl).ok().and_then(|ms| u64::try_from(ms).ok()),
            layers: map.take::<Vec<Value>>("Layers")?.into_iter().map(layer).collect::<Result<_>>()?,
            buckets: map
                .optional::<Vec<Value>>("Buckets")?
                .map(|buckets| buckets.into_iter().map(bucket).collect::<Result<_>>())
                .transpose()?,
        })
    }

    /// Items for each that it is made for: 1 where it is full.
    pub fn fill(&self) -> f64 {
        self.items as f64 / self.capacity.max(1) as f64
    }

    /// The share of the cells in use in the layer that has most: about a half where that is full.
    pub fn cells(&self) -> f64 {
        self.layers.iter().map(|layer| layer.cells).fold(0.0, f64::max)
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

/// A reply of names and values.
struct Map(BTreeMap<String, Value>);

impl Map {
    fn of(reply: Value) -> Result<Self> {
        Ok(Self(from_redis_value(reply)?))
    }

    fn optional<T: redis::FromRedisValue>(&mut self, name: &str) -> Result<Option<T>> {
        Ok(self.0.remove(name).map(from_redis_value).transpose()?)
    }

    fn take<T: redis::FromRedisValue>(&mut self, name: &str) -> Result<T> {
        self.optional(name)?.with_context(|| format!("a reply of the server has no \"{name}\""))
    }
}

/// The fields of INFO.
#[derive(Clone, Debug, Default)]
pub struct Info(BTreeMap<String, String>);

impl Info {
    /// Reads the text of INFO: `name:value`, a line each.
    pub fn of_text(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// A field as text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A field as a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}
