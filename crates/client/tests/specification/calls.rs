//! The calls of the cases, as calls of this crate in threads.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bloomgate_client::{
    Bucket, Client, Filter, Info, Item as _, Layer, Options, Plan, ShardedFilter, Stats, keys, sharding,
};
use redis::{ConnectionAddr, IntoConnectionInfo, ProtocolVersion};

use crate::failure::Failure;
use crate::guard::{GuardOf, fill_filter};
use crate::json::Json;
use crate::words::{self, Item, hex, known, plain};

pub type Outcome = Result<Json, Failure>;

/// A call of the client to the function that an actor passed: the ids of `load_many`, and where the outcome is sent.
pub struct Called {
    pub ids: Option<Vec<Json>>,
    pub outcome: Sender<Result<Json, String>>,
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

    fn shards(&self, name: &str) -> Result<u32, String> {
        u32::try_from(self.number(name)?).map_err(|error| error.to_string())
    }

    pub fn flag(&self, name: &str) -> bool {
        self.arguments.get(name) == Some(&Json::Bool(true))
    }

    /// Returns the bytes of an item, by the implementation of its type.
    fn item(&self, name: &str) -> Result<Vec<u8>, Failure> {
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

/// Connects as a case says.
pub fn connect(case: &Json, port: u16, protocol: ProtocolVersion, patience: Duration) -> Result<Client, String> {
    let chosen = case.get("client").cloned().unwrap_or(Json::Null);
    known("client", chosen.names(), &["connections", "timeout_ms"])?;
    let number = |name: &str| chosen.get(name).and_then(Json::integer).and_then(|number| u64::try_from(number).ok());
    let address = ConnectionAddr::Tcp("127.0.0.1".to_owned(), port);
    let info = address.into_connection_info().map_err(|error| error.to_string())?;
    let settings = info.redis_settings().clone().set_protocol(protocol);
    let client = Client::open(info.set_redis_settings(settings)).map_err(|error| error.to_string())?;
    let client = client.with_timeout(number("timeout_ms").map_or(patience, Duration::from_millis));
    Ok(match number("connections") {
        Some(most) => client.with_connections(usize::try_from(most).map_err(|error| error.to_string())?),
        None => client,
    })
}

/// One process of a case: a client and the objects of the case.
pub struct Process {
    client: Client,
    filter: Option<Filter>,
    /// The name of the sharded filter, and the filter once it was opened.
    name: Option<String>,
    sharded: Mutex<Option<ShardedFilter>>,
    guard: Option<GuardOf>,
}

impl Process {
    pub fn new(case: &Json, client: Client) -> Result<Self, String> {
        let filter = match case.get("filter") {
            Some(chosen) => {
                known("filter", chosen.names(), &["key", "create"])?;
                let filter =
                    Filter::new(&client, chosen.get("key").and_then(Json::text).ok_or("a filter without a key")?);
                Some(if chosen.get("create") == Some(&Json::Bool(false)) { filter.without_create() } else { filter })
            }
            None => None,
        };
        let name = match case.get("sharded") {
            Some(chosen) => {
                known("sharded", chosen.names(), &["name"])?;
                chosen.get("name").and_then(Json::text).map(str::to_owned)
            }
            None => None,
        };
        let guard = case.get("guard").map(|chosen| GuardOf::new(&client, chosen)).transpose()?;
        Ok(Self { guard, client, filter, name, sharded: Mutex::default() })
    }

    /// Runs a call in a thread of its own.
    pub fn start(self: &Arc<Self>, call: Call, called: Sender<Called>, ended: Sender<Outcome>) {
        let process = Arc::clone(self);
        // The test may have ended.
        thread::spawn(move || _ = ended.send(process.perform(&call, &called)));
    }

    fn perform(&self, call: &Call, called: &Sender<Called>) -> Outcome {
        match call.name.split_once('.') {
            Some(("filter", method)) => {
                self.filter(method, self.filter.as_ref().ok_or_else(|| "the case has no filter".to_owned())?, call)
            }
            Some(("sharded", method)) => self.sharded(method, call),
            Some(("guard", method)) => match &self.guard {
                Some(guard) => guard.perform(method, call, called),
                None => Err(Failure::Unknown("the case has no guard".to_owned())),
            },
            _ => self.function(call),
        }
    }

    /// Runs a call that belongs to no object.
    fn function(&self, call: &Call) -> Outcome {
        match call.name.as_str() {
            "item_bytes" => {
                call.known(&["item"])?;
                Ok(hex(&call.item("item")?))
            }
            "shard_of" => {
                call.known(&["item", "shards"])?;
                Ok(Json::from(u64::from(sharding::shard_of(&call.item("item")?, call.shards("shards")?))))
            }
            "shard_key" => {
                call.known(&["name", "shard"])?;
                Ok(plain(&sharding::shard_key(call.text("name")?.as_bytes(), call.shards("shard")?)))
            }
            "shard_capacity" => {
                call.known(&["capacity", "shards"])?;
                Ok(Json::from(sharding::shard_capacity(call.number("capacity")?, call.shards("shards")?)))
            }
            "cache_prefix" => {
                call.known(&["filter"])?;
                Ok(plain(&keys::cache_prefix(call.text("filter")?.as_bytes())?))
            }
            "filling_name" => {
                call.known(&["filter"])?;
                Ok(plain(&keys::filling_name(call.text("filter")?.as_bytes())?))
            }
            "plan" => {
                let options = call.options(&["rate", "capacity", "items"])?;
                let items = call.arguments.get("items").map(|_| call.number("items")).transpose()?;
                let plan = bloomgate_client::plan(
                    &self.client,
                    call.float("rate")?,
                    call.number("capacity")?,
                    items,
                    &options,
                )?;
                Ok(plan_json(&plan))
            }
            "fill_filter" => fill_filter(&self.client, call),
            _ => Err(Failure::Unknown(format!("unknown call {}", call.name))),
        }
    }

    fn filter(&self, method: &str, filter: &Filter, call: &Call) -> Outcome {
        let allowed: &[&str] = match method {
            "add" | "exists" | "delete" | "count" => &["item"],
            "add_many" | "exists_many" | "delete_many" => &["items"],
            "card" | "info" | "stats" | "clear" | "drop" | "dump" => &[],
            "load" => &["file", "replace"],
            "reserve" => return reserve(filter, call),
            _ => return Err(Failure::Unknown(format!("unknown call {}", call.name))),
        };
        call.known(allowed)?;
        match method {
            "add" => Ok(filter.add(call.item("item")?)?.into()),
            "exists" => Ok(filter.exists(call.item("item")?)?.into()),
            "delete" => Ok(filter.delete(call.item("item")?)?.into()),
            "count" => Ok(filter.count(call.item("item")?)?.into()),
            "add_many" => Ok(filter.add_many(call.items("items")?)?.into()),
            "exists_many" => Ok(filter.exists_many(call.items("items")?)?.into()),
            "delete_many" => Ok(filter.delete_many(call.items("items")?)?.into()),
            "card" => Ok(filter.card()?.into()),
            "info" => Ok(info_json(&filter.info()?)),
            "stats" => Ok(stats_json(&filter.stats()?)),
            "clear" => Ok(filter.clear().map(|()| Json::Null)?),
            "drop" => Ok(filter.drop()?.into()),
            "dump" => {
                let mut file = Vec::new();
                filter.dump(&mut file)?;
                Ok(hex(&file))
            }
            _ => Ok(filter.load(call.item("file")?.as_slice(), call.flag("replace"))?.into()),
        }
    }
}

impl Process {
    fn sharded(&self, method: &str, call: &Call) -> Outcome {
        let name = self.name.as_ref().ok_or_else(|| "the case has no sharded filter".to_owned())?;
        let mut open = self.sharded.lock().unwrap();
        match method {
            "create" => {
                let options = call.options(&["rate", "capacity", "shards"])?;
                let (rate, capacity, shards) = (call.float("rate")?, call.number("capacity")?, call.shards("shards")?);
                *open = Some(ShardedFilter::create(&self.client, name, rate, capacity, shards, &options)?);
                return Ok(Json::Null);
            }
            "open" => {
                call.known(&[])?;
                let opened = ShardedFilter::open(&self.client, name)?;
                return Ok(Json::from(u64::from(open.insert(opened).shards())));
            }
            _ => (),
        }
        let sharded = open.as_mut().ok_or_else(|| "the case has not opened the sharded filter".to_owned())?;
        let allowed: &[&str] = match method {
            "add" | "exists" => &["item"],
            "add_many" | "exists_many" | "delete_many" => &["items"],
            "card" | "double" | "drop" => &[],
            _ => return Err(Failure::Unknown(format!("unknown call {}", call.name))),
        };
        call.known(allowed)?;
        match method {
            "add" => Ok(sharded.add(call.item("item")?)?.into()),
            "exists" => Ok(sharded.exists(call.item("item")?)?.into()),
            "add_many" => Ok(sharded.add_many(call.items("items")?)?.into()),
            "exists_many" => Ok(sharded.exists_many(call.items("items")?)?.into()),
            "delete_many" => Ok(sharded.delete_many(call.items("items")?)?.into()),
            "card" => Ok(sharded.card()?.into()),
            "double" => Ok(sharded.double().map(|()| Json::Null)?),
            _ => Ok(sharded.drop().map(|()| Json::Null)?),
        }
    }
}

fn reserve(filter: &Filter, call: &Call) -> Outcome {
    let options = call.options(&["rate", "capacity", "exist_ok"])?;
    let (rate, capacity) = (call.float("rate")?, call.number("capacity")?);
    if call.flag("exist_ok") {
        return Ok(filter.reserve_exist_ok(rate, capacity, &options)?.into());
    }
    Ok(filter.reserve(rate, capacity, &options).map(|()| Json::Bool(true))?)
}

fn info_json(info: &Info) -> Json {
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

fn stats_json(stats: &Stats) -> Json {
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

fn plan_json(plan: &Plan) -> Json {
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
