//! The nodes of a cluster: finds the node of a key, and resends commands that a node redirects.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bloomgate_client::slots::{Slots, slot};
use redis::{Cmd, Value, cmd};

use super::{Address, SETTLE_INTERVAL, Server};

/// How long a command is retried while a cluster migrates slots or fails over.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);

impl Server {
    /// Reads the slots from the first node.
    pub(super) fn read_slots(&mut self) -> Result<()> {
        let first = self.first.clone();
        let host = self.host().to_owned();
        let reply = self.ask_node(&first, cmd("CLUSTER").arg("SLOTS"))?;
        self.slots = Some(Slots::read(&reply, &host)?);
        Ok(())
    }

    pub(super) fn host(&self) -> &str {
        self.first.rsplit_once(':').map_or(&*self.first, |(host, _)| host)
    }

    /// Returns the node that holds a key.
    pub fn node_of_key(&mut self, key: impl AsRef<[u8]>) -> Result<Address> {
        let until = Instant::now() + SETTLE_TIMEOUT;
        loop {
            let Some(slots) = &self.slots else { return Ok(self.first.clone()) };
            if let Some((host, port)) = slots.node(key.as_ref()) {
                return Ok(format!("{host}:{port}"));
            }
            if Instant::now() >= until {
                bail!("no node of the cluster at {} holds slot {}", self.first, slot(key.as_ref()));
            }
            thread::sleep(SETTLE_INTERVAL);
            self.read_slots()?;
        }
    }

    /// Resends a command whose reply was [elsewhere](Self::is_elsewhere) until it is executed. No reply of any node may be outstanding.
    pub fn settle(&mut self, command: &Cmd, mut reply: Value, key: &[u8]) -> Result<Value> {
        let until = Instant::now() + SETTLE_TIMEOUT;
        while is_moving(&reply) && Instant::now() < until {
            let Value::ServerError(error) = &reply else { return Ok(reply) };
            let details = error.details().unwrap_or_default();
            reply = match (error.code(), details.split_once(' ')) {
                (code @ ("ASK" | "MOVED"), Some((_, node))) => {
                    // A redirection without a host refers to the node that sent it.
                    let host = if node.starts_with(':') { self.host() } else { "" };
                    let node = format!("{host}{node}");
                    match code {
                        "ASK" => _ = self.exchange_one(&node, &cmd("ASKING"))?,
                        _ => self.read_slots()?,
                    }
                    self.exchange_one(&node, command)?
                }
                _ => {
                    thread::sleep(SETTLE_INTERVAL);
                    self.read_slots()?;
                    let node = self.node_of_key(key)?;
                    self.exchange_one(&node, command)?
                }
            };
        }
        Ok(reply)
    }

    /// Whether the refused command can be executed by another node, or by the same node a little later.
    pub fn is_elsewhere(&self, reply: &Value) -> bool {
        self.slots.is_some() && is_moving(reply)
    }
}

/// Whether the command can be executed by another node, or by the same node a little later.
pub(super) fn is_moving(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if matches!(error.code(), "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "LOADING"))
}
