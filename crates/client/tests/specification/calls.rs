//! The calls of the cases: their arguments and their results.

use bloomgate_client::{Bucket, Info, Item as _, Layer, Options, Plan, Stats};
use tokio::sync::oneshot;

use crate::failure::Failure;
use crate::json::Json;
use crate::words::{self, Item, known};

pub type Outcome = Result<Json, Failure>;

/// A call of the client to the function that an actor passed: the ids of `load_many`, and where the outcome is sent.
pub struct Called {
    pub ids: Option<Vec<Json>>,
    pub outcome: oneshot::Sender<Result<Json, String>>,
}

/// A call of a case.
#[derive(Clone, Debug)]
pub struct Call {
    pub name: String,
    pub arguments: Json,
}

impl Call {
    /// Reads the call of a step.
    pub fn of(step: &Json) -> Result<Self, String> {
        let name = step.get("call").and_then(Json::text).ok_or_else(|| format!("a step without a call: {step:?}"))?;
        let arguments = step.get("with").cloned().unwrap_or(Json::Object(Vec::new()));
        Ok(Self { name: name.to_owned(), arguments })
    }

    pub fn known(&self, allowed: &[&str]) -> Result<(), String> {
        known(&self.name, self.arguments.names(), allowed)
    }

    pub fn get(&self, name: &str) -> Result<&Json, String> {
        self.arguments.get(name).ok_or_else(|| format!("{}: no argument {name}", self.name))
    }

    pub fn text(&self, name: &str) -> Result<&str, String> {
        self.get(name)?.text().ok_or_else(|| format!("{}: {name} is no text", self.name))
    }

    pub fn float(&self, name: &str) -> Result<f64, String> {
        self.get(name)?.float().ok_or_else(|| format!("{}: {name} is no number", self.name))
    }

    pub fn number(&self, name: &str) -> Result<u64, String> {
        let number = self.get(name)?.integer().and_then(|number| u64::try_from(number).ok());
        number.ok_or_else(|| format!("{}: {name} is no number", self.name))
    }

    pub fn shards(&self, name: &str) -> Result<u32, String> {
        u32::try_from(self.number(name)?).map_err(|error| error.to_string())
    }

    pub fn flag(&self, name: &str) -> bool {
        self.arguments.get(name) == Some(&Json::Bool(true))
    }

    /// Returns the bytes of an item, by the implementation of its type.
    pub fn item(&self, name: &str) -> Result<Vec<u8>, Failure> {
        item_bytes(&words::item(self.get(name)?)?)
    }

    pub fn items(&self, name: &str) -> Result<Vec<Vec<u8>>, Failure> {
        words::items(self.get(name)?)?.iter().map(item_bytes).collect()
    }

    /// Returns the options of a filter. A struct refuses unknown ones when it is compiled.
    pub fn options(&self, others: &[&str]) -> Result<Options, Failure> {
        let mut options = Options::default();
        let Json::Object(arguments) = &self.arguments else { return Ok(options) };
        for (name, value) in arguments.iter().filter(|(name, _)| !others.contains(&name.as_str())) {
            let number = || self.number(name);
            match name.as_str() {
                "expansion" => options.expansion = Some(self.shards(name)?),
                "nonscaling" => options.nonscaling = self.flag(name),
                "seed" => options.seed = Some(number()?.to_string()),
                "hash" => options.hash = value.text().map(str::to_owned),
                "window" => options.window = Some(number()?),
                "rolling" => options.rolling = self.flag(name),
                "sliding" => options.sliding = self.flag(name),
                "counting" => options.counting = self.flag(name),
                "wonder" => return Err(Failure::refused()),
                _ => return Err(Failure::Unknown(format!("{}: unknown option {name}", self.name))),
            }
        }
        Ok(options)
    }
}

pub fn item_bytes(item: &Item) -> Result<Vec<u8>, Failure> {
    match item {
        Item::Bytes(bytes) => Ok(bytes.item_bytes().into_owned()),
        Item::Text(text) => Ok(text.item_bytes().into_owned()),
        Item::Integer(number) => Ok(number.item_bytes().into_owned()),
        Item::Impossible => Err(Failure::refused()),
    }
}

pub fn info_json(info: &Info) -> Json {
    Json::object([
        ("capacity", info.capacity.into()),
        ("size_bytes", info.size_bytes.into()),
        ("layers", info.layers.into()),
        ("items", info.items.into()),
        ("expansion", info.expansion.into()),
    ])
}

fn layer_json(layer: &Layer) -> Json {
    Json::object([
        ("capacity", layer.capacity.into()),
        ("size_bytes", layer.size_bytes.into()),
        ("hashes", layer.hashes.into()),
        ("items", layer.items.into()),
        ("fill", layer.fill.into()),
    ])
}

fn bucket_json(bucket: &Bucket) -> Json {
    Json::object([
        ("slot", bucket.slot.into()),
        ("items", bucket.items.into()),
        ("begin_ms", bucket.begin_ms.into()),
        ("end_ms", bucket.end_ms.into()),
    ])
}

pub fn stats_json(stats: &Stats) -> Json {
    Json::object([
        ("kind", stats.kind.as_str().into()),
        ("layout", stats.layout.as_str().into()),
        ("hash", stats.hash.as_str().into()),
        ("error_rate", stats.error_rate.into()),
        ("error_rate_now", stats.error_rate_now.into()),
        ("items", stats.items.into()),
        ("items_estimated", stats.items_estimated.into()),
        ("capacity", stats.capacity.into()),
        ("size_bytes", stats.size_bytes.into()),
        ("pending_bytes", stats.pending_bytes.into()),
        ("layers", Json::List(stats.layers.iter().map(layer_json).collect())),
        ("items_deleted", stats.items_deleted.into()),
        ("room_for_deleted", stats.room_for_deleted.into()),
        ("window_s", stats.window_s.into()),
        ("sliding", stats.sliding.into()),
        ("buckets", Json::List(stats.buckets.iter().map(bucket_json).collect())),
    ])
}

pub fn plan_json(plan: &Plan) -> Json {
    Json::object([
        ("kind", plan.kind.as_str().into()),
        ("layout", plan.layout.as_str().into()),
        ("hash", plan.hash.as_str().into()),
        ("error_rate", plan.error_rate.into()),
        ("capacity", plan.capacity.into()),
        ("size_bytes", plan.size_bytes.into()),
        ("bits_per_item", plan.bits_per_item.into()),
        ("layers", Json::List(plan.layers.iter().map(layer_json).collect())),
    ])
}
