//! The cases, as their files write them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bloomgate_client::{Durability, GuardOptions};
use redis::ProtocolVersion;
use serde::Deserialize;
use serde_json::Value;

use crate::words::{Items, Reply, Word};

/// A half of the crate.
#[derive(Clone, Copy, Debug)]
pub enum Half {
    Threads,
    Tasks,
}

/// Where and how a case runs.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub half: Half,
    pub protocol: ProtocolVersion,
    pub port: u16,
    pub is_cluster: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    pub servers: Vec<On>,
    #[serde(default)]
    pub needs: Vec<Need>,
    #[serde(default)]
    pub client: ChosenClient,
    pub filter: Option<ChosenFilter>,
    pub guard: Option<ChosenGuard>,
    pub sharded: Option<ChosenSharded>,
    #[serde(default)]
    pub setup: Vec<Vec<String>>,
    pub steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    Scripted,
    Real,
    Cluster,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Need {
    Cancel,
    Turns,
    Timeout,
    Pool,
    Share,
    Pause,
    Fatal,
    Resp2,
    Resp3,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChosenClient {
    pub connections: Option<usize>,
    pub timeout_ms: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChosenFilter {
    pub key: String,
    pub create: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChosenSharded {
    pub name: String,
}

#[derive(Clone, Debug, Deserialize)]
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
}

#[derive(Clone, Debug, Deserialize)]
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
        }
    }
}

/// A step, by the member that names it.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Step {
    Start(Start),
    StartTogether {
        start_together: Vec<Start>,
    },
    Expect(Expect),
    ExpectAll {
        expect_all: Vec<Expect>,
    },
    Answer {
        answer: String,
        reply: Reply,
    },
    Called {
        called: String,
        ids: Option<Vec<Value>>,
    },
    Return {
        #[serde(rename = "return")]
        actor: String,
        value: Value,
    },
    Raise {
        raise: String,
        message: String,
        #[serde(default)]
        fatal: bool,
    },
    Cancel {
        cancel: String,
    },
    Quiet {
        quiet: u64,
    },
    Pause {
        pause: u64,
    },
    End(End),
}

/// The end of a call: of one that goes on by itself, or of one that this step begins.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    pub end: Option<String>,
    pub call: Option<String>,
    #[serde(default)]
    pub with: Value,
    pub process: Option<String>,
    #[serde(default)]
    pub result: Value,
    pub error: Option<String>,
    pub message: Option<String>,
    pub answers: Option<Value>,
    pub ids: Option<Items>,
}

/// A call that goes on by itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    pub start: String,
    pub call: String,
    #[serde(default)]
    pub with: Value,
    pub process: Option<String>,
}

/// A command that the server gets. It replies at once, or holds the command by a name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    pub expect: Vec<Word>,
    #[serde(default, deserialize_with = "given")]
    pub reply: Option<Reply>,
    pub hold: Option<String>,
    pub on: Option<String>,
    pub not_on: Option<String>,
}

/// Reads a reply that is given, which may be null.
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Reply>, D::Error> {
    Reply::deserialize(deserializer).map(Some)
}

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/specification")
}

/// Reads the cases of a file.
pub fn read_cases(file: &str) -> Result<Vec<Case>, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Content {
        #[serde(rename = "about")]
        _about: String,
        cases: Vec<Case>,
    }
    let text = fs::read_to_string(folder().join(file)).map_err(|error| format!("{file}: {error}"))?;
    // No text of Rust has an unpaired surrogate, so it cannot be passed as an item. serde_json refuses it.
    let text = text.replace(r#""\ud800""#, r#"{"surrogate": true}"#);
    let content: Content = serde_json::from_str(&text).map_err(|error| format!("{file}: {error}"))?;
    Ok(content.cases)
}
