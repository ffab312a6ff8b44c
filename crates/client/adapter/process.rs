//! The calls of the cases, as calls of one half of this crate: threads.rs and tasks.rs each include this file as a module, and
//! define `wait!`, which completes a call.

use std::sync::Mutex;
use std::time::Duration;

use bloomgate_client::{keys, sharding};
use redis::{ConnectionAddr, IntoConnectionInfo, ProtocolVersion};
use serde_json::{Value, json};

use super::guard::{GuardOf, fill_filter};
use super::{Client, Filter, ShardedFilter, plan};
use crate::calls::{Call, Outcome, info_json, plan_json, stats_json};
use crate::case::{Case, hex, plain};
use crate::failure::Failure;

/// Longer than the duration of any case.
const PATIENCE: Duration = Duration::from_secs(120);

/// Connects with the settings of a case.
pub fn connect(case: &Case) -> Result<Client, String> {
    let protocol = if case.protocol == 3 { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
    let infos = case.ports.iter().map(|port| {
        let info = ConnectionAddr::Tcp("127.0.0.1".to_owned(), *port).into_connection_info()?;
        let settings = info.redis_settings().clone().set_protocol(protocol);
        Ok(info.set_redis_settings(settings))
    });
    let infos: Result<Vec<_>, redis::RedisError> = infos.collect();
    let mut infos = infos.map_err(|error| error.to_string())?;
    let client = if infos.len() > 1 { Client::cluster(infos) } else { Client::open(infos.remove(0)) };
    let client = client.map_err(|error| error.to_string())?;
    let client = client.with_timeout(case.client.timeout_ms.map_or(PATIENCE, Duration::from_millis));
    Ok(match case.client.connections {
        Some(most) => client.with_connections(most),
        None => client,
    })
}

/// One process of a case: a client and the objects of the case.
pub struct Process {
    client: Client,
    filter: Option<Filter>,
    /// The name of the sharded filter, and the filter once it is open.
    name: Option<String>,
    sharded: Mutex<Option<ShardedFilter>>,
    guard: Option<GuardOf>,
}

impl Process {
    pub fn new(case: &Case, client: Client) -> Self {
        let filter = case.filter.as_ref().map(|chosen| {
            let filter = Filter::new(&client, &chosen.key);
            if chosen.create == Some(false) { filter.without_create() } else { filter }
        });
        let name = case.sharded.as_ref().map(|chosen| chosen.name.clone());
        let guard = case.guard.as_ref().map(|chosen| GuardOf::new(&client, chosen));
        Self { guard, client, filter, name, sharded: Mutex::default() }
    }

    pub async fn perform(&self, call: &Call) -> Outcome {
        let lacks = |what: &str| Failure::Unknown(format!("the case has no {what}"));
        match call.name.split_once('.') {
            Some(("filter", method)) => {
                filter(self.filter.as_ref().ok_or_else(|| lacks("filter"))?, method, call).await
            }
            Some(("sharded", method)) => {
                self.sharded(self.name.as_ref().ok_or_else(|| lacks("sharded"))?, method, call).await
            }
            Some(("guard", method)) => self.guard.as_ref().ok_or_else(|| lacks("guard"))?.perform(method, call).await,
            _ => self.function(call).await,
        }
    }

    /// Runs a call of a free function.
    async fn function(&self, call: &Call) -> Outcome {
        match call.name.as_str() {
            "item_bytes" => Ok(hex(&call.item()?)),
            "shard_of" => {
                let with = call.with(&["item", "shards"])?;
                Ok(sharding::shard_of(&with.item()?, with.shards).into())
            }
            "shard_key" => {
                let with = call.with(&["name", "shard"])?;
                Ok(plain(&sharding::shard_key(with.name.as_bytes(), with.shard)))
            }
            "shard_capacity" => {
                let with = call.with(&["capacity", "shards"])?;
                Ok(sharding::shard_capacity(with.capacity, with.shards).into())
            }
            "cache_prefix" => Ok(plain(&keys::cache_prefix(call.with(&["filter"])?.filter.as_bytes())?)),
            "filling_name" => Ok(plain(&keys::filling_name(call.with(&["filter"])?.filter.as_bytes())?)),
            "plan" => {
                let with = call.with(&["rate", "capacity", "items"])?;
                let plan = wait!(plan(&self.client, with.rate, with.capacity, with.items.as_u64(), &with.options()?))?;
                Ok(plan_json(&plan))
            }
            "fill_filter" => fill_filter(&self.client, call).await,
            _ => Err(call.unknown()),
        }
    }

    async fn sharded(&self, name: &str, method: &str, call: &Call) -> Outcome {
        match method {
            "create" => {
                let with = call.with(&["rate", "capacity", "shards"])?;
                let (rate, capacity, options) = (with.rate, with.capacity, with.options()?);
                let created = ShardedFilter::create(&self.client, name, rate, capacity, with.shards, &options);
                *self.sharded.lock().unwrap() = Some(wait!(created)?);
                return Ok(Value::Null);
            }
            "open" => {
                call.with(&[])?;
                let opened = wait!(ShardedFilter::open(&self.client, name))?;
                let shards = opened.shards();
                *self.sharded.lock().unwrap() = Some(opened);
                return Ok(shards.into());
            }
            _ => (),
        }
        let open = self.sharded.lock().unwrap().clone();
        let mut sharded = open.ok_or_else(|| "the case has not opened the sharded filter".to_owned())?;
        if ["card", "double", "drop"].contains(&method) {
            call.with(&[])?;
        }
        Ok(match method {
            "add" => json!(wait!(sharded.add(call.item()?))?),
            "exists" => json!(wait!(sharded.exists(call.item()?))?),
            "add_many" => json!(wait!(sharded.add_many(call.items()?))?),
            "exists_many" => json!(wait!(sharded.exists_many(call.items()?))?),
            "delete_many" => json!(wait!(sharded.delete_many(call.items()?))?),
            "card" => json!(wait!(sharded.card())?),
            "double" => {
                wait!(sharded.double())?;
                *self.sharded.lock().unwrap() = Some(sharded);
                Value::Null
            }
            "drop" => json!(wait!(sharded.drop())?),
            _ => return Err(call.unknown()),
        })
    }
}

/// Runs a call of a filter.
async fn filter(filter: &Filter, method: &str, call: &Call) -> Outcome {
    if ["card", "info", "stats", "clear", "drop"].contains(&method) {
        call.with(&[])?;
    }
    Ok(match method {
        "add" => json!(wait!(filter.add(call.item()?))?),
        "exists" => json!(wait!(filter.exists(call.item()?))?),
        "delete" => json!(wait!(filter.delete(call.item()?))?),
        "count" => json!(wait!(filter.count(call.item()?))?),
        "add_many" => json!(wait!(filter.add_many(call.items()?))?),
        "exists_many" => json!(wait!(filter.exists_many(call.items()?))?),
        "delete_many" => json!(wait!(filter.delete_many(call.items()?))?),
        "card" => json!(wait!(filter.card())?),
        "info" => info_json(&wait!(filter.info())?),
        "stats" => stats_json(&wait!(filter.stats())?),
        "clear" => json!(wait!(filter.clear())?),
        "drop" => json!(wait!(filter.drop())?),
        "reserve" => {
            let with = call.with(&["rate", "capacity", "exist_ok"])?;
            let (rate, capacity, options) = (with.rate, with.capacity, with.options()?);
            match with.exist_ok {
                true => json!(wait!(filter.reserve_exist_ok(rate, capacity, &options))?),
                false => json!(wait!(filter.reserve(rate, capacity, &options)).map(|()| true)?),
            }
        }
        _ => return Err(call.unknown()),
    })
}
