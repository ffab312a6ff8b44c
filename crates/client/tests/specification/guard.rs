//! The calls of a guard, and its options, for one half of this crate: see process.rs.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::mpsc::Sender;
use std::time::Duration;

use bloomgate_client::{Bytes, Codec, Durability, Error, GuardOptions, Item as _, Json as JsonCodec};

use super::{Client, Guard, fill_filter as fill, function};
use crate::calls::{Call, Called, Outcome, item_bytes};
use crate::failure::Failure;
use crate::json::Json;
use crate::words::{Item, items, plain};

/// Rows as the cases write them: JSON, or bytes.
#[derive(Clone, Copy)]
struct Rows {
    is_json: bool,
}

impl Codec for Rows {
    type Row = Json;

    fn encode(&self, row: &Json) -> Result<Vec<u8>, String> {
        match row {
            _ if self.is_json => JsonCodec::default().encode(row),
            Json::Text(text) => Bytes.encode(&text.clone().into_bytes()),
            _ => Err("the row is not bytes".to_owned()),
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<Json, String> {
        if self.is_json {
            return JsonCodec::default().decode(bytes);
        }
        Bytes.decode(bytes).map(|bytes| plain(&bytes))
    }
}

/// An id, which keeps its type: 7 and "7" differ, though they name one row.
#[derive(Clone)]
struct Id {
    json: Json,
    bytes: Vec<u8>,
}

impl bloomgate_client::Item for Id {
    fn item_bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }
}

impl PartialEq for Id {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl Eq for Id {}

impl Hash for Id {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.bytes.hash(hasher);
    }
}

fn ids(call: &Call) -> Result<Vec<Id>, Failure> {
    let id = |item: &Item| {
        let bytes = item_bytes(item)?;
        let json = match item {
            Item::Integer(number) => i64::try_from(*number).map_or(Json::Null, Json::Integer),
            _ => plain(&bytes),
        };
        Ok(Id { json, bytes })
    };
    items(call.get("ids")?)?.iter().map(id).collect()
}

fn row(json: Json) -> Option<Json> {
    (json != Json::Null).then_some(json)
}

/// The guard of a case, or why there is none.
pub struct GuardOf {
    guard: Result<Guard<Rows>, Error>,
    soft_timeout: Option<Duration>,
}

impl GuardOf {
    pub fn new(client: &Client, chosen: &Json) -> Result<Self, String> {
        let mut options = GuardOptions::default();
        let (mut filter, mut soft_timeout, mut is_json) = ("", None, false);
        let Json::Object(members) = chosen else { return Err("the guard is no object".to_owned()) };
        for (name, value) in members {
            let wrong = || format!("the guard's {name} cannot be {value:?}");
            let seconds = || value.float().map(Duration::from_secs_f64).ok_or_else(wrong);
            let number = || value.integer().and_then(|number| u32::try_from(number).ok()).ok_or_else(wrong);
            let ms = || number().map(|number| Duration::from_millis(u64::from(number)));
            match name.as_str() {
                "filter" => filter = value.text().ok_or_else(wrong)?,
                "codec" if value.text() == Some("json") => is_json = true,
                "ttl" => options.ttl = seconds()?,
                "absent_ttl" => options.absent_ttl = seconds()?,
                "lease_ms" => options.lease = ms()?,
                "wait_ms" => options.wait = ms()?,
                "attempts" => options.attempts = number()?,
                "fail_safe" => options.fail_safe = seconds()?,
                "soft_timeout" => soft_timeout = Some(seconds()?),
                "beta" => options.beta = value.float().ok_or_else(wrong)?,
                "patience" => options.patience = seconds()?,
                "prefix" => options.prefix = Some(value.text().ok_or_else(wrong)?.as_bytes().to_vec()),
                "announce_to" => {
                    let names = value.list().ok_or_else(wrong)?.iter().filter_map(Json::text);
                    options.announce_to = names.map(|name| name.as_bytes().to_vec()).collect();
                }
                "replicas" => options.durability.replicas = number()?,
                "replicas_timeout_ms" => options.durability.timeout = ms()?,
                "aof" => options.durability.aof = *value == Json::Bool(true),
                "feed" => options.feed = *value == Json::Bool(true),
                _ => return Err(format!("unknown option of the guard: {name}: {value:?}")),
            }
        }
        Ok(Self { guard: Guard::with_codec(client, filter, Rows { is_json }, options), soft_timeout })
    }

    pub async fn perform(&self, method: &str, call: &Call, called: &Sender<Called>) -> Outcome {
        let allowed: &[&str] = match method {
            "get" => &["id", "ttl"],
            "get_many" | "announce" | "confirm" | "changed" | "forget" => &["ids"],
            _ => return Err(Failure::Unknown(format!("unknown call {}", call.name))),
        };
        call.known(allowed)?;
        let guard = self.guard.as_ref().map_err(|error| Failure::from(error.clone()))?;
        if method == "get" {
            return self.get(guard, call, called).await;
        }
        let ids = ids(call)?;
        match method {
            "get_many" => get_many(guard, &ids, called).await,
            "announce" => Ok(wait!(guard.announce(ids)).map(|()| Json::Null)?),
            "confirm" => Ok(wait!(guard.confirm(ids)).map(|()| Json::Null)?),
            "forget" => Ok(wait!(guard.forget(ids)).map(|()| Json::Null)?),
            _ => wait!(guard.changed(ids, || work!(wait!(function(called, None)))))
                .map(|_| Json::Null)
                .map_err(Failure::from),
        }
    }

    async fn get(&self, guard: &Guard<Rows>, call: &Call, called: &Sender<Called>) -> Outcome {
        let id = item_bytes(&crate::words::item(call.get("id")?)?)?;
        let called = called.clone();
        let load = move |_| work!(wait!(function(&called, None)).map(row));
        let found = match (call.arguments.get("ttl"), self.soft_timeout) {
            (Some(_), _) => {
                // No time is less than 0.
                let ttl = Duration::try_from_secs_f64(call.float("ttl")?).map_err(|_| Failure::refused())?;
                wait!(guard.get_with_ttl(id, ttl, load))
            }
            (None, Some(soft_timeout)) => wait!(guard.get_with_soft_timeout(id, soft_timeout, load)),
            (None, None) => wait!(guard.get(id, load)),
        };
        Ok(found.map(Json::from)?)
    }
}

async fn get_many(guard: &Guard<Rows>, ids: &[Id], called: &Sender<Called>) -> Outcome {
    let rows = wait!(guard.get_many(ids, |missing| {
        let called = called.clone();
        work!({
            let named = missing.iter().map(|id| id.json.clone()).collect();
            let loaded = wait!(function(&called, Some(named)))?;
            let row = |id: &Id| {
                let name = String::from_utf8_lossy(&id.item_bytes()).into_owned();
                loaded.get(&name).map(|row| (id.clone(), row.clone()))
            };
            Ok::<_, String>(missing.iter().filter_map(row).collect::<HashMap<_, _>>())
        })
    }));
    let rows = rows?;
    let pair = |(id, row): (&Id, Option<Json>)| Json::List(vec![id.json.clone(), Json::from(row)]);
    Ok(Json::List(ids.iter().zip(rows).map(pair).collect()))
}

pub async fn fill_filter(client: &Client, call: &Call) -> Outcome {
    let options = call.options(&["key", "ids", "rate", "capacity", "replicas", "aof"])?;
    let replicas = call.arguments.get("replicas").map_or(Ok(0), |_| call.number("replicas"))?;
    let durability = Durability {
        replicas: u32::try_from(replicas).map_err(|error| error.to_string())?,
        aof: call.flag("aof"),
        timeout: Duration::from_secs(3),
    };
    let (rate, capacity) = (call.float("rate")?, call.number("capacity")?);
    let new = wait!(fill(client, call.text("key")?, ids(call)?, rate, capacity, &options, &durability))?;
    Ok(Json::from(new as u64))
}
