//! The calls of the cases: their arguments and their results.

use bloomgate_client::{Bucket, Info, Layer, Options, Plan, Stats};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::case::{Item, Items, Start};
use crate::failure::Failure;

pub type Outcome = Result<Value, Failure>;

/// The result of an actor's function that does not panic.
pub type Returned = Result<Value, String>;

/// A call of a case.
#[derive(Clone, Debug)]
pub struct Call {
    pub id: u64,
    pub name: String,
    pub arguments: Value,
}

impl From<Start> for Call {
    fn from(Start { id, call, with }: Start) -> Self {
        Self { id, name: call, arguments: with }
    }
}

/// The arguments of all calls; [`Call::with`] checks that a call has only its own arguments.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Arguments {
    item: Option<Item>,
    /// A batch; for `plan`, a number.
    pub items: Value,
    id: Option<Item>,
    ids: Option<Items>,
    pub ttl: Option<f64>,
    file: Option<Item>,
    pub replace: bool,
    pub filter: String,
    pub key: String,
    pub name: String,
    pub shard: u32,
    pub shards: u32,
    pub rate: f64,
    pub capacity: u64,
    pub exist_ok: bool,
    pub replicas: u32,
    pub aof: bool,
    expansion: Option<u32>,
    nonscaling: bool,
    seed: Option<u64>,
    hash: Option<String>,
    window: Option<u64>,
    rolling: bool,
    sliding: bool,
    cuckoo: bool,
    counting: bool,
    /// An option that does not exist, which the compiler refuses in a struct.
    wonder: Option<Value>,
}

/// The options of a filter, which every call with a rate has.
const OPTIONS: [&str; 10] =
    ["expansion", "nonscaling", "seed", "hash", "window", "rolling", "sliding", "cuckoo", "counting", "wonder"];

impl Arguments {
    /// Returns the bytes of the item, the id or the file.
    pub fn item(&self) -> Result<Vec<u8>, Failure> {
        let item = self.item.as_ref().or(self.id.as_ref()).or(self.file.as_ref());
        item.ok_or_else(|| "no item".to_owned())?.bytes()
    }

    pub fn ids(&self) -> Result<&[Item], Failure> {
        self.ids.as_ref().ok_or_else(|| "no ids".to_owned())?.list()
    }

    pub fn options(&self) -> Result<Options, Failure> {
        if self.wonder.is_some() {
            return Err(Failure::refused());
        }
        Ok(Options {
            expansion: self.expansion,
            nonscaling: self.nonscaling,
            seed: self.seed.map(|seed| seed.to_string()),
            hash: self.hash.clone(),
            window: self.window,
            rolling: self.rolling,
            sliding: self.sliding,
            cuckoo: self.cuckoo,
            counting: self.counting,
            ..Options::default()
        })
    }
}

impl Call {
    /// Reads the arguments. Fails if an argument is not among the allowed ones.
    pub fn with(&self, allowed: &[&str]) -> Result<Arguments, Failure> {
        let unknown = |what: &dyn std::fmt::Display| Failure::Unknown(format!("unknown: {}: {what}", self.name));
        let Value::Object(given) = &self.arguments else { return Ok(Arguments::default()) };
        let is_known = |name: &str| allowed.contains(&name) || allowed.contains(&"rate") && OPTIONS.contains(&name);
        match given.keys().find(|name| !is_known(name)) {
            Some(name) => Err(unknown(name)),
            None => serde_json::from_value(self.arguments.clone()).map_err(|error| unknown(&error)),
        }
    }

    /// Returns the bytes of the item that is the only argument.
    pub fn item(&self) -> Result<Vec<u8>, Failure> {
        self.with(&["item"])?.item()
    }

    /// Returns the bytes of the items that are the only argument.
    pub fn items(&self) -> Result<Vec<Vec<u8>>, Failure> {
        let items: Result<Items, _> = serde_json::from_value(self.with(&["items"])?.items);
        let items = items.map_err(|error| Failure::Unknown(format!("unknown items: {error}")))?;
        items.list()?.iter().map(Item::bytes).collect()
    }

    pub fn unknown(&self) -> Failure {
        Failure::Unknown(format!("unknown call {}", self.name))
    }
}

pub fn info_json(info: &Info) -> Value {
    json!({
        "capacity": info.capacity,
        "size_bytes": info.size_bytes,
        "layers": info.layers,
        "items": info.items,
        "expansion": info.expansion,
    })
}

fn layer_json(layer: &Layer) -> Value {
    json!({
        "capacity": layer.capacity,
        "size_bytes": layer.size_bytes,
        "hashes": layer.hashes,
        "items": layer.items,
        "fill": layer.fill,
    })
}

fn bucket_json(bucket: &Bucket) -> Value {
    json!({"slot": bucket.slot, "items": bucket.items, "begin_ms": bucket.begin_ms, "end_ms": bucket.end_ms})
}

pub fn stats_json(stats: &Stats) -> Value {
    json!({
        "kind": stats.kind,
        "layout": stats.layout,
        "hash": stats.hash,
        "error_rate": stats.error_rate,
        "error_rate_now": stats.error_rate_now,
        "items": stats.items,
        "items_estimated": stats.items_estimated,
        "capacity": stats.capacity,
        "size_bytes": stats.size_bytes,
        "pending_bytes": stats.pending_bytes,
        "layers": stats.layers.iter().map(layer_json).collect::<Vec<_>>(),
        "items_deleted": stats.items_deleted,
        "room_for_deleted": stats.room_for_deleted,
        "window_s": stats.window_s,
        "sliding": stats.sliding,
        "buckets": stats.buckets.iter().map(bucket_json).collect::<Vec<_>>(),
    })
}

pub fn plan_json(plan: &Plan) -> Value {
    json!({
        "kind": plan.kind,
        "layout": plan.layout,
        "hash": plan.hash,
        "error_rate": plan.error_rate,
        "capacity": plan.capacity,
        "size_bytes": plan.size_bytes,
        "bits_per_item": plan.bits_per_item,
        "layers": plan.layers.iter().map(layer_json).collect::<Vec<_>>(),
    })
}
