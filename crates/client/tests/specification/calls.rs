//! The calls of the cases: their arguments and their results.

use bloomgate_client::{Bucket, Info, Layer, Options, Plan, Stats};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::failure::Failure;
use crate::words::{Item, Items};

pub type Outcome = Result<Value, Failure>;

/// A call of the client to the function that an actor passed: the ids of `load_many`, and where the outcome is sent.
pub struct Called {
    pub ids: Option<Vec<Value>>,
    pub outcome: oneshot::Sender<Result<Value, String>>,
}

/// A call of a case.
#[derive(Clone, Debug)]
pub struct Call {
    pub name: String,
    pub arguments: Value,
}

/// The arguments of calls that create a filter, and of a few others.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Creation {
    pub rate: f64,
    pub capacity: u64,
    pub shards: u32,
    pub exist_ok: bool,
    pub items: Option<u64>,
    pub key: String,
    pub ids: Option<Items>,
    pub replicas: u32,
    pub aof: bool,
    expansion: Option<u32>,
    nonscaling: bool,
    seed: Option<u64>,
    hash: Option<String>,
    window: Option<u64>,
    rolling: bool,
    sliding: bool,
    counting: bool,
    /// An option that does not exist: a struct refuses it when it is compiled.
    wonder: Option<Value>,
}

impl Creation {
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
            counting: self.counting,
            ..Options::default()
        })
    }
}

impl Call {
    /// Reads the arguments. Fails if there are others.
    pub fn with<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let arguments = if self.arguments.is_null() { json!({}) } else { self.arguments.clone() };
        serde_json::from_value(arguments).map_err(|error| Failure::Unknown(format!("unknown: {}: {error}", self.name)))
    }

    /// Reads a rate, a capacity and the options of a filter, and `others`, arguments that only some calls have.
    pub fn creation(&self, others: &[&str]) -> Result<Creation, Failure> {
        let of_some = ["shards", "exist_ok", "items", "key", "ids", "replicas", "aof"];
        let mut unknown = of_some.iter().filter(|name| self.arguments.get(name).is_some() && !others.contains(name));
        match unknown.next() {
            Some(name) => Err(Failure::Unknown(format!("unknown: {}: {name}", self.name))),
            None => self.with(),
        }
    }

    /// Checks that there are no arguments.
    pub fn nothing(&self) -> Result<(), Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Nothing {}
        self.with::<Nothing>().map(drop)
    }

    /// Returns the bytes of the item that is the only argument.
    pub fn item(&self) -> Result<Vec<u8>, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct OneItem {
            item: Item,
        }
        self.with::<OneItem>()?.item.bytes()
    }

    /// Returns the bytes of the items that are the only argument.
    pub fn items(&self) -> Result<Vec<Vec<u8>>, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct ManyItems {
            items: Items,
        }
        self.with::<ManyItems>()?.items.bytes()
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
