//! The messages of the runner, and the items in them.

use std::time::Duration;

use bloomgate_client::{Durability, GuardOptions, Item as _};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::failure::Failure;

/// A message of the runner, by the member that identifies it.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Message {
    Open {
        id: u64,
        open: u64,
        #[serde(flatten)]
        case: Box<Case>,
    },
    Start {
        start: Vec<Start>,
        process: u64,
    },
    Return {
        #[serde(rename = "return")]
        function: u64,
        value: Value,
    },
    Raise {
        raise: u64,
        message: String,
        fatal: bool,
    },
    Cancel {
        id: u64,
        cancel: u64,
    },
    Close {
        id: u64,
        close: u64,
    },
}

#[derive(Deserialize)]
pub struct Start {
    pub id: u64,
    pub call: String,
    pub with: Value,
}

/// The server, and the objects of a case.
#[derive(Deserialize)]
pub struct Case {
    pub ports: Vec<u16>,
    pub protocol: u8,
    #[serde(default)]
    pub client: ChosenClient,
    pub filter: Option<ChosenFilter>,
    pub guard: Option<ChosenGuard>,
    pub sharded: Option<ChosenSharded>,
}

#[derive(Default, Deserialize)]
pub struct ChosenClient {
    pub connections: Option<usize>,
    pub timeout_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChosenFilter {
    pub key: String,
    pub create: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChosenSharded {
    pub name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChosenGuard {
    pub filter: String,
    pub codec: Option<ChosenCodec>,
    pub soft_timeout: Option<f64>,
    ttl: Option<f64>,
    absent_ttl: Option<f64>,
    lease_ms: Option<u64>,
    wait_ms: Option<u64>,
    attempts: Option<u32>,
    fail_safe: Option<f64>,
    beta: Option<f64>,
    patience: Option<f64>,
    prefix: Option<String>,
    #[serde(default)]
    announce_to: Vec<String>,
    #[serde(default)]
    replicas: u32,
    replicas_timeout_ms: Option<u64>,
    #[serde(default)]
    aof: bool,
    #[serde(default)]
    feed: bool,
    fresh_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChosenCodec {
    Json,
}

impl ChosenGuard {
    pub fn options(&self) -> GuardOptions {
        let default = GuardOptions::default();
        let seconds = |given: Option<f64>, default| given.map_or(default, Duration::from_secs_f64);
        let ms = |given: Option<u64>, default| given.map_or(default, Duration::from_millis);
        let timeout = ms(self.replicas_timeout_ms, default.durability.timeout);
        GuardOptions {
            ttl: seconds(self.ttl, default.ttl),
            absent_ttl: seconds(self.absent_ttl, default.absent_ttl),
            lease: ms(self.lease_ms, default.lease),
            wait: ms(self.wait_ms, default.wait),
            attempts: self.attempts.unwrap_or(default.attempts),
            fail_safe: seconds(self.fail_safe, default.fail_safe),
            beta: self.beta.unwrap_or(default.beta),
            patience: seconds(self.patience, default.patience),
            prefix: self.prefix.clone().map(String::into_bytes),
            announce_to: self.announce_to.iter().map(|name| name.clone().into_bytes()).collect(),
            durability: Durability { replicas: self.replicas, aof: self.aof, timeout },
            feed: self.feed,
            fresh: ms(self.fresh_ms, default.fresh),
        }
    }
}

/// An item, of a type that the crate supports.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Item {
    Text(String),
    Integer(i64),
    Named(NamedItem),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NamedItem {
    Hex(String),
    Integer(String),
    /// A value that a Rust program cannot pass, because it would not compile.
    #[serde(rename = "boolean", alias = "float", alias = "null", alias = "utf16")]
    Impossible(IgnoredAny),
}

impl Item {
    /// Returns the bytes of an item, by the implementation of its type.
    pub fn bytes(&self) -> Result<Vec<u8>, Failure> {
        Ok(match self {
            Self::Text(text) => text.item_bytes().into_owned(),
            Self::Integer(number) => number.item_bytes().into_owned(),
            Self::Named(NamedItem::Hex(digits)) => from_hex(digits)?.item_bytes().into_owned(),
            Self::Named(NamedItem::Integer(digits)) => {
                let number: i128 = digits.parse().map_err(|error| format!("{digits}: {error}"))?;
                number.item_bytes().into_owned()
            }
            Self::Named(NamedItem::Impossible(_)) => return Err(Failure::refused()),
        })
    }
}

/// Items. A case may have a text in place of a list, which the compiler would refuse.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Items {
    List(Vec<Item>),
    Text(IgnoredAny),
}

impl Items {
    pub fn list(&self) -> Result<&[Item], Failure> {
        match self {
            Self::List(items) => Ok(items),
            Self::Text(_) => Err(Failure::refused()),
        }
    }
}

fn from_hex(digits: &str) -> Result<Vec<u8>, String> {
    let byte = |pair| u8::from_str_radix(pair, 16).map_err(|error| format!("{digits}: {error}"));
    (0..digits.len()).step_by(2).map(|at| byte(digits.get(at..at + 2).unwrap_or_default())).collect()
}

pub fn hex(bytes: &[u8]) -> Value {
    json!({"hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()})
}

/// Returns bytes as text, or in hexadecimal digits.
pub fn plain(bytes: &[u8]) -> Value {
    std::str::from_utf8(bytes).map_or_else(|_| hex(bytes), Value::from)
}
