//! The calls of a guard, and its options, for one half of this crate: see process.rs.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use bloomgate_client::{Bytes, Codec, Durability, Error, Json};
use serde_json::{Value, json};

use super::{Client, Guard, fill_filter as fill, function};
use crate::calls::{Call, Outcome};
use crate::case::{ChosenGuard, Item, plain};
use crate::failure::Failure;

/// The form of rows in the cases: JSON, or bytes.
#[derive(Clone, Copy)]
struct Rows {
    is_json: bool,
}

impl Codec for Rows {
    type Row = Value;

    fn encode(&self, row: &Value) -> Result<Vec<u8>, String> {
        match row {
            _ if self.is_json => Json::default().encode(row),
            Value::String(text) => Bytes.encode(&text.clone().into_bytes()),
            _ => Err("the row is not bytes".to_owned()),
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<Value, String> {
        if self.is_json {
            return Json::default().decode(bytes);
        }
        Bytes.decode(bytes).map(|bytes| plain(&bytes))
    }
}

/// An id, which keeps its type: 7 and "7" differ, although they name one row.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Id {
    json: Value,
    bytes: Vec<u8>,
}

impl bloomgate_client::Item for Id {
    fn item_bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }
}

fn ids(items: &[Item]) -> Result<Vec<Id>, Failure> {
    let id = |item: &Item| {
        let bytes = item.bytes()?;
        let json = if let Item::Integer(number) = item { json!(number) } else { plain(&bytes) };
        Ok(Id { json, bytes })
    };
    items.iter().map(id).collect()
}

fn row(json: Value) -> Option<Value> {
    (!json.is_null()).then_some(json)
}

/// The guard of a case, or the reason why it could not be created.
pub struct GuardOf {
    guard: Result<Guard<Rows>, Error>,
    soft_timeout: Option<Duration>,
}

impl GuardOf {
    pub fn new(client: &Client, chosen: &ChosenGuard) -> Self {
        let rows = Rows { is_json: chosen.codec.is_some() };
        let soft_timeout = chosen.soft_timeout.map(Duration::from_secs_f64);
        Self { guard: Guard::with_codec(client, &chosen.filter, rows, chosen.options()), soft_timeout }
    }

    pub async fn perform(&self, method: &str, call: &Call) -> Outcome {
        let guard = self.guard.as_ref().map_err(|error| Failure::from(error.clone()))?;
        match method {
            "get" => return self.get(guard, call).await,
            "get_nested" => return get_nested(guard, call).await,
            _ => (),
        }
        let ids = ids(call.with(&["ids"])?.ids()?)?;
        Ok(match method {
            "get_many" => return get_many(guard, &ids, call.id).await,
            "announce" => json!(wait!(guard.announce(ids))?),
            "confirm" => json!(wait!(guard.confirm(ids))?),
            "forget" => json!(wait!(guard.forget(ids))?),
            "changed" => wait!(guard.changed(ids, || work!(wait!(function(call.id, None))))).map(|_| Value::Null)?,
            _ => return Err(call.unknown()),
        })
    }

    async fn get(&self, guard: &Guard<Rows>, call: &Call) -> Outcome {
        let with = call.with(&["id", "ttl"])?;
        let id = with.item()?;
        let own = call.id;
        let load = move |_| work!(wait!(function(own, None)).map(row));
        let found = match (with.ttl, self.soft_timeout) {
            (Some(ttl), _) => {
                // A negative time cannot be represented.
                let ttl = Duration::try_from_secs_f64(ttl).map_err(|_| Failure::refused())?;
                wait!(guard.get_with_ttl(id, ttl, load))
            }
            (None, Some(soft_timeout)) => wait!(guard.get_with_soft_timeout(id, soft_timeout, load)),
            (None, None) => wait!(guard.get(id, load)),
        };
        Ok(json!(found?))
    }
}

async fn get_nested(guard: &Guard<Rows>, call: &Call) -> Outcome {
    let id = call.with(&["id"])?.item()?;
    let load = |id| work!(wait!(guard.get(id, |_: Vec<u8>| work!(wait!(function(call.id, None)).map(row)))));
    Ok(json!(wait!(guard.get(id, load))?))
}

async fn get_many(guard: &Guard<Rows>, ids: &[Id], call: u64) -> Outcome {
    let rows = wait!(guard.get_many(ids, |missing| {
        work!({
            let named = missing.iter().map(|id| id.json.clone()).collect();
            let loaded = wait!(function(call, Some(named)))?;
            let row = |id: &Id| {
                let name = String::from_utf8_lossy(&id.bytes).into_owned();
                loaded.get(&name).map(|row| (id.clone(), row.clone()))
            };
            Ok::<_, String>(missing.iter().filter_map(row).collect::<HashMap<_, _>>())
        })
    }));
    Ok(ids.iter().zip(rows?).map(|(id, row)| json!([id.json, row])).collect())
}

pub async fn fill_filter(client: &Client, call: &Call) -> Outcome {
    let with = call.with(&["rate", "capacity", "key", "ids", "replicas", "aof"])?;
    let durability = Durability { replicas: with.replicas, aof: with.aof, timeout: Duration::from_secs(3) };
    let ids = ids(with.ids()?)?;
    Ok(json!(wait!(fill(client, &with.key, ids, with.rate, with.capacity, &with.options()?, &durability))?))
}
