//! The calls of the cases, as calls of one half of this crate: threads.rs and tasks.rs have this file as a module each, and say
//! what `wait!` does with a call.

use std::sync::Mutex;
use std::sync::mpsc::Sender;
use std::time::Duration;

use bloomgate_client::{keys, sharding};
use redis::{ConnectionAddr, IntoConnectionInfo};

use super::guard::{GuardOf, fill_filter};
use super::{Client, Filter, ShardedFilter, plan};
use crate::calls::{Call, Called, Outcome, info_json, plan_json, stats_json};
use crate::failure::Failure;
use crate::json::Json;
use crate::steps::Target;
use crate::words::{hex, known, plain};

/// Connects as a case says.
pub fn connect(case: &Json, target: Target, patience: Duration) -> Result<Client, String> {
    let chosen = case.get("client").cloned().unwrap_or(Json::Null);
    known("client", chosen.names(), &["connections", "timeout_ms"])?;
    let number = |name: &str| chosen.get(name).and_then(Json::integer).and_then(|number| u64::try_from(number).ok());
    let address = ConnectionAddr::Tcp("127.0.0.1".to_owned(), target.port);
    let info = address.into_connection_info().map_err(|error| error.to_string())?;
    let settings = info.redis_settings().clone().set_protocol(target.protocol);
    let info = info.set_redis_settings(settings);
    let client = if target.is_cluster { Client::cluster([info]) } else { Client::open(info) };
    let client = client.map_err(|error| error.to_string())?;
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

    pub async fn perform(&self, call: &Call, called: &Sender<Called>) -> Outcome {
        match call.name.split_once('.') {
            Some(("filter", method)) => {
                self.filter(method, self.filter.as_ref().ok_or_else(|| "the case has no filter".to_owned())?, call)
                    .await
            }
            Some(("sharded", method)) => self.sharded(method, call).await,
            Some(("guard", method)) => match &self.guard {
                Some(guard) => guard.perform(method, call, called).await,
                None => Err(Failure::Unknown("the case has no guard".to_owned())),
            },
            _ => self.function(call).await,
        }
    }

    /// Runs a call that belongs to no object.
    async fn function(&self, call: &Call) -> Outcome {
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
                let plan = wait!(plan(&self.client, call.float("rate")?, call.number("capacity")?, items, &options))?;
                Ok(plan_json(&plan))
            }
            "fill_filter" => fill_filter(&self.client, call).await,
            _ => Err(Failure::Unknown(format!("unknown call {}", call.name))),
        }
    }

    async fn filter(&self, method: &str, filter: &Filter, call: &Call) -> Outcome {
        let allowed: &[&str] = match method {
            "add" | "exists" | "delete" | "count" => &["item"],
            "add_many" | "exists_many" | "delete_many" => &["items"],
            "card" | "info" | "stats" | "clear" | "drop" | "dump" => &[],
            "load" => &["file", "replace"],
            "reserve" => return reserve(filter, call).await,
            _ => return Err(Failure::Unknown(format!("unknown call {}", call.name))),
        };
        call.known(allowed)?;
        match method {
            "add" => Ok(wait!(filter.add(call.item("item")?))?.into()),
            "exists" => Ok(wait!(filter.exists(call.item("item")?))?.into()),
            "delete" => Ok(wait!(filter.delete(call.item("item")?))?.into()),
            "count" => Ok(wait!(filter.count(call.item("item")?))?.into()),
            "add_many" => Ok(wait!(filter.add_many(call.items("items")?))?.into()),
            "exists_many" => Ok(wait!(filter.exists_many(call.items("items")?))?.into()),
            "delete_many" => Ok(wait!(filter.delete_many(call.items("items")?))?.into()),
            "card" => Ok(wait!(filter.card())?.into()),
            "info" => Ok(info_json(&wait!(filter.info())?)),
            "stats" => Ok(stats_json(&wait!(filter.stats())?)),
            "clear" => Ok(wait!(filter.clear()).map(|()| Json::Null)?),
            "drop" => Ok(wait!(filter.drop())?.into()),
            "dump" => {
                let mut file = Vec::new();
                wait!(filter.dump(&mut file))?;
                Ok(hex(&file))
            }
            _ => Ok(wait!(filter.load(call.item("file")?.as_slice(), call.flag("replace")))?.into()),
        }
    }
}

impl Process {
    async fn sharded(&self, method: &str, call: &Call) -> Outcome {
        let name = self.name.as_ref().ok_or_else(|| "the case has no sharded filter".to_owned())?;
        match method {
            "create" => {
                let options = call.options(&["rate", "capacity", "shards"])?;
                let (rate, capacity, shards) = (call.float("rate")?, call.number("capacity")?, call.shards("shards")?);
                let created = wait!(ShardedFilter::create(&self.client, name, rate, capacity, shards, &options))?;
                *self.sharded.lock().unwrap() = Some(created);
                return Ok(Json::Null);
            }
            "open" => {
                call.known(&[])?;
                let opened = wait!(ShardedFilter::open(&self.client, name))?;
                let shards = opened.shards();
                *self.sharded.lock().unwrap() = Some(opened);
                return Ok(Json::from(u64::from(shards)));
            }
            _ => (),
        }
        let open = self.sharded.lock().unwrap().clone();
        let mut sharded = open.ok_or_else(|| "the case has not opened the sharded filter".to_owned())?;
        let allowed: &[&str] = match method {
            "add" | "exists" => &["item"],
            "add_many" | "exists_many" | "delete_many" => &["items"],
            "card" | "double" | "drop" => &[],
            _ => return Err(Failure::Unknown(format!("unknown call {}", call.name))),
        };
        call.known(allowed)?;
        match method {
            "add" => Ok(wait!(sharded.add(call.item("item")?))?.into()),
            "exists" => Ok(wait!(sharded.exists(call.item("item")?))?.into()),
            "add_many" => Ok(wait!(sharded.add_many(call.items("items")?))?.into()),
            "exists_many" => Ok(wait!(sharded.exists_many(call.items("items")?))?.into()),
            "delete_many" => Ok(wait!(sharded.delete_many(call.items("items")?))?.into()),
            "card" => Ok(wait!(sharded.card())?.into()),
            "double" => {
                wait!(sharded.double())?;
                *self.sharded.lock().unwrap() = Some(sharded);
                Ok(Json::Null)
            }
            _ => Ok(wait!(sharded.drop()).map(|()| Json::Null)?),
        }
    }
}

async fn reserve(filter: &Filter, call: &Call) -> Outcome {
    let options = call.options(&["rate", "capacity", "exist_ok"])?;
    let (rate, capacity) = (call.float("rate")?, call.number("capacity")?);
    if call.flag("exist_ok") {
        return Ok(wait!(filter.reserve_exist_ok(rate, capacity, &options))?.into());
    }
    Ok(wait!(filter.reserve(rate, capacity, &options)).map(|()| Json::Bool(true))?)
}
