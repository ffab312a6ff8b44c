//! The walk over the keys of a server that looks for filters: a step at a time by SCAN, again and again, so that new filters
//! are found. What it has found is sampled elsewhere.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Result;
use redis::{Value, cmd, from_redis_value};

use crate::keys::ask_of_each;
use crate::server::{Address, Server};

/// Keys asked for in one step.
const KEYS_A_STEP: usize = 500;

/// A long walk is followed by a rest of five times its length, but not above this.
const REST_MAX: Duration = Duration::from_secs(60);

/// What is known of the keys of a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Keys that this walk, or the last one, has looked at.
    pub looked_at: u64,
    /// Whether a walk has come to its end since the server answers.
    pub is_complete: bool,
}

/// A walk.
pub struct Walk {
    /// Nodes that are left, the one at work first.
    nodes: VecDeque<Address>,
    cursor: Vec<u8>,
    begun: Instant,
    next: Instant,
    looked_at: u64,
    is_complete: bool,
}

impl Walk {
    /// One that is due at once.
    pub fn new() -> Self {
        let now = Instant::now();
        let cursor = b"0".to_vec();
        Self { nodes: VecDeque::new(), cursor, begun: now, next: now, looked_at: 0, is_complete: false }
    }

    /// When the next step is due.
    pub const fn due(&self) -> Instant {
        self.next
    }

    /// Not before so long.
    pub fn pause(&mut self, pause: Duration) {
        self.next = self.next.max(Instant::now() + pause);
    }

    /// Whether the next step is the first one.
    pub fn is_at_begin(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Looks at some keys and returns those that hold filters; `is_known` keys are not asked for their type. At the end of a
    /// walk the next one is due after `rest`, or later where the walk was long.
    ///
    /// # Errors
    /// As [`Server::ask_node`].
    pub fn step(
        &mut self,
        server: &mut Server,
        pattern: Option<&str>,
        rest: Duration,
        is_known: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<Vec<u8>>> {
        if self.nodes.is_empty() {
            self.nodes = server.nodes().into();
            self.cursor = b"0".to_vec();
            (self.begun, self.looked_at) = (Instant::now(), 0);
        }
        let Some(node) = self.nodes.front().cloned() else { return Ok(Vec::new()) };
        let mut scan = cmd("SCAN");
        scan.arg(&self.cursor).arg("COUNT").arg(KEYS_A_STEP);
        if let Some(pattern) = pattern {
            scan.arg("MATCH").arg(pattern);
        }
        let (cursor, keys): (Vec<u8>, Vec<Vec<u8>>) = from_redis_value(server.ask_node(&node, &scan)?)?;
        self.looked_at += keys.len() as u64;
        let (mut filters, unknown): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| is_known(key));
        if !unknown.is_empty() {
            let types = ask_of_each(server, &["TYPE"], &unknown)?;
            filters.extend(unknown.into_iter().zip(types).filter(|(_, name)| is_filter(name)).map(|(key, _)| key));
        }
        self.cursor = cursor;
        if self.cursor == b"0" {
            self.nodes.pop_front();
            if self.nodes.is_empty() {
                self.is_complete = true;
                let took = self.begun.elapsed();
                self.next = Instant::now() + rest.max(took).max(took.saturating_mul(5).min(REST_MAX));
            }
        }
        Ok(filters)
    }

    /// How far it has come.
    pub const fn progress(&self) -> Progress {
        Progress { looked_at: self.looked_at, is_complete: self.is_complete }
    }
}

fn is_filter(name: &Value) -> bool {
    let name = match name {
        Value::SimpleString(name) => name.as_bytes(),
        Value::BulkString(name) => name,
        _ => return false,
    };
    matches!(name, b"bloomgate" | b"MBbloom--" | b"bloomfltr")
}
