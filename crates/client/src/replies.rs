//! The replies of BF.INFO, BF.STATS and BF.PLAN as structs. In RESP2 they are flat lists of names and values with floating-point
//! numbers as text, and in RESP3 maps. The structs are the same for both. Unknown fields are ignored.

use redis::Value;

use crate::Error;

/// A filter's capacity and contents.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// The number of items for which all layers have room.
    pub capacity: u64,
    /// The size of the filter's fields and bits.
    pub size_bytes: u64,
    /// The number of layers.
    pub layers: u64,
    /// The number of items that were added.
    pub items: u64,
    /// The factor from one layer's capacity to the next; `None` if the filter does not grow.
    pub expansion: Option<u64>,
}

/// One layer of a filter.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Layer {
    /// The number of items for which the layer has room.
    pub capacity: u64,
    /// The size of the layer's bits.
    pub size_bytes: u64,
    /// The number of hash functions.
    pub hashes: u64,
    /// The number of items that were added; `None` in a plan.
    pub items: Option<u64>,
    /// The share of the bits that are set; `None` in a plan.
    pub fill: Option<f64>,
}

/// One bucket of a filter that forgets. The server lists the oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bucket {
    /// The position of the bucket in the ring.
    pub slot: u64,
    /// The number of items that were added.
    pub items: u64,
    /// Milliseconds since 1970; `None` in a filter with ROLLING.
    pub begin_ms: Option<u64>,
    /// Milliseconds since 1970; `None` in a filter with ROLLING.
    pub end_ms: Option<u64>,
}

/// A filter's kind and fill.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// `scaling`, `nonscaling`, `window`, `rolling`, `cuckoo` or `counting`.
    pub kind: String,
    /// `native`, `redisbloom` or `valkey-bloom`.
    pub layout: String,
    /// `murmur3` or `siphash`.
    pub hash: String,
    /// The false positive rate that was requested.
    pub error_rate: f64,
    /// The estimated share of absent items that are found.
    pub error_rate_now: f64,
    /// The number of items that were added.
    pub items: u64,
    /// The number of items, estimated from the set bits.
    pub items_estimated: u64,
    /// The number of items for which all layers have room.
    pub capacity: u64,
    /// The size of the filter's fields and bits.
    pub size_bytes: u64,
    /// The size of the pending adds.
    pub pending_bytes: u64,
    /// The layers, the oldest first.
    pub layers: Vec<Layer>,
    /// The number of deleted items, if the filter records them.
    pub items_deleted: Option<u64>,
    /// How many further items can be deleted.
    pub room_for_deleted: Option<u64>,
    /// Seconds after which an item is forgotten.
    pub window_s: Option<u64>,
    /// Whether adding an item again restarts its window.
    pub sliding: bool,
    /// The buckets of a filter that forgets.
    pub buckets: Vec<Bucket>,
}

/// The size of a filter that does not exist yet.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// As in [`Stats`].
    pub kind: String,
    /// As in [`Stats`].
    pub layout: String,
    /// As in [`Stats`].
    pub hash: String,
    /// The false positive rate that was requested.
    pub error_rate: f64,
    /// The number of items for which all layers have room.
    pub capacity: u64,
    /// The size of the filter's fields and bits.
    pub size_bytes: u64,
    /// The bits of all layers, divided by the capacity.
    pub bits_per_item: f64,
    /// The layers, the oldest first.
    pub layers: Vec<Layer>,
}

/// Returns the error for an unexpected reply.
pub fn unexpected(reply: &Value) -> Error {
    Error::UnexpectedReply(format!("the server replied {reply:?}"))
}

/// Returns the text or the bytes of a reply.
pub fn bytes(reply: &Value) -> Option<&[u8]> {
    match reply {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.as_bytes()),
        Value::Okay => Some(b"OK"),
        _ => None,
    }
}

/// Returns an integer, which RESP2 may send as text.
pub fn integer(reply: &Value) -> Option<u64> {
    match reply {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::Boolean(is_true) => Some(u64::from(*is_true)),
        _ => std::str::from_utf8(bytes(reply)?).ok()?.parse().ok(),
    }
}

/// Converts 1 and 0 of RESP2, and booleans of RESP3.
pub fn boolean(reply: &Value) -> Option<bool> {
    integer(reply).map(|number| number != 0)
}

/// Returns the iterator and the data in a reply of BF.SCANDUMP.
pub fn record(reply: &Value) -> Result<(u64, &[u8]), Error> {
    match reply {
        Value::Array(parts) => match parts.as_slice() {
            [iterator, data] => Ok((u64::read(iterator)?, bytes(data).unwrap_or_default())),
            _ => Err(unexpected(reply)),
        },
        _ => Err(unexpected(reply)),
    }
}

fn float(reply: &Value) -> Option<f64> {
    match reply {
        Value::Double(number) => Some(*number),
        _ => std::str::from_utf8(bytes(reply)?).ok()?.parse().ok(),
    }
}

fn text(reply: &Value) -> Option<String> {
    std::str::from_utf8(bytes(reply)?).ok().map(str::to_owned)
}

fn list<T>(reply: &Value, read: impl Fn(&Fields) -> Option<T>) -> Option<Vec<T>> {
    let Value::Array(elements) = reply else { return None };
    elements.iter().map(|element| read(&Fields::of(element)?)).collect()
}

/// A flat list of names and values, or a map.
struct Fields<'a>(Vec<(&'a [u8], &'a Value)>);

impl<'a> Fields<'a> {
    fn of(reply: &'a Value) -> Option<Self> {
        let pairs: Option<_> = match reply {
            Value::Map(pairs) => pairs.iter().map(|(name, value)| Some((bytes(name)?, value))).collect(),
            Value::Array(flat) => {
                let (pairs, []) = flat.as_chunks::<2>() else { return None };
                pairs.iter().map(|[name, value]| Some((bytes(name)?, value))).collect()
            }
            _ => None,
        };
        pairs.map(Self)
    }

    /// Returns a field that is not null.
    fn get(&self, name: &str) -> Option<&'a Value> {
        let found = self.0.iter().find(|(other, _)| *other == name.as_bytes());
        found.map(|(_, value)| *value).filter(|value| **value != Value::Nil)
    }

    fn integer(&self, name: &str) -> Option<u64> {
        integer(self.get(name)?)
    }

    fn float(&self, name: &str) -> Option<f64> {
        float(self.get(name)?)
    }

    fn text(&self, name: &str) -> Option<String> {
        text(self.get(name)?)
    }
}

fn info(found: &Fields) -> Option<Info> {
    Some(Info {
        capacity: found.integer("Capacity")?,
        size_bytes: found.integer("Size")?,
        layers: found.integer("Number of filters")?,
        items: found.integer("Number of items inserted")?,
        expansion: found.integer("Expansion rate"),
    })
}

fn layer(found: &Fields) -> Option<Layer> {
    Some(Layer {
        capacity: found.integer("Capacity")?,
        size_bytes: found.integer("Size")?,
        hashes: found.integer("Hashes")?,
        items: found.integer("Number of items inserted"),
        fill: found.float("Fill"),
    })
}

fn bucket(found: &Fields) -> Option<Bucket> {
    Some(Bucket {
        slot: found.integer("Slot")?,
        items: found.integer("Number of items inserted")?,
        begin_ms: found.integer("Begin"),
        end_ms: found.integer("End"),
    })
}

fn stats(found: &Fields) -> Option<Stats> {
    Some(Stats {
        kind: found.text("Kind")?,
        layout: found.text("Layout")?,
        hash: found.text("Hash")?,
        error_rate: found.float("Error rate")?,
        error_rate_now: found.float("Error rate now")?,
        items: found.integer("Number of items inserted")?,
        items_estimated: found.integer("Number of items estimated")?,
        capacity: found.integer("Capacity")?,
        size_bytes: found.integer("Size")?,
        pending_bytes: found.integer("Size of pending adds")?,
        layers: list(found.get("Layers")?, layer)?,
        items_deleted: found.integer("Number of items deleted"),
        room_for_deleted: found.integer("Room for items deleted"),
        window_s: found.integer("Window"),
        sliding: found.get("Sliding").and_then(boolean).unwrap_or_default(),
        buckets: match found.get("Buckets") {
            Some(buckets) => list(buckets, bucket)?,
            None => Vec::new(),
        },
    })
}

fn plan(found: &Fields) -> Option<Plan> {
    Some(Plan {
        kind: found.text("Kind")?,
        layout: found.text("Layout")?,
        hash: found.text("Hash")?,
        error_rate: found.float("Error rate")?,
        capacity: found.integer("Capacity")?,
        size_bytes: found.integer("Size")?,
        bits_per_item: found.float("Bits per item")?,
        layers: list(found.get("Layers")?, layer)?,
    })
}

/// A type that a reply can be parsed into.
pub trait Reply: Sized {
    /// Reads a reply.
    fn read(reply: &Value) -> Result<Self, Error>;
}

macro_rules! replies {
    ($($type:ty = $read:ident),*) => {$(
        impl Reply for $type {
            fn read(reply: &Value) -> Result<Self, Error> {
                Fields::of(reply).and_then(|found| $read(&found)).ok_or_else(|| unexpected(reply))
            }
        }

        /// Parses a reply of the server, in RESP2 or RESP3, to a command that was sent with the crate `redis`.
        impl TryFrom<&Value> for $type {
            type Error = Error;

            fn try_from(reply: &Value) -> Result<Self, Error> {
                Self::read(reply)
            }
        }
    )*};
}

replies!(Info = info, Stats = stats, Plan = plan);

macro_rules! scalars {
    ($($type:ty = $read:ident),*) => {$(
        impl Reply for $type {
            fn read(reply: &Value) -> Result<Self, Error> {
                $read(reply).ok_or_else(|| unexpected(reply))
            }
        }
    )*};
}

scalars!(bool = boolean, u64 = integer);

impl Reply for Vec<String> {
    fn read(reply: &Value) -> Result<Self, Error> {
        let Value::Array(lines) = reply else { return Err(unexpected(reply)) };
        lines.iter().map(text).collect::<Option<_>>().ok_or_else(|| unexpected(reply))
    }
}

/// The reply to a command that answers OK, or whose answer does not matter.
impl Reply for () {
    fn read(_reply: &Value) -> Result<Self, Error> {
        Ok(())
    }
}
