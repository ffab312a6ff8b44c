//! Scans the keys of a server or a cluster, a few at a time, for filters.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bloomgate_client::Info;
use redis::{Value, cmd, from_redis_value};

use crate::archive::Contents;
use crate::server::{Address, Server};

/// Keys per SCAN: few enough that other clients do not wait noticeably.
const KEYS_AT_ONCE: usize = 500;

/// Sends one SCAN to a node. Returns the next cursor, which is `0` at the end, and the keys.
fn scan(server: &mut Server, node: &Address, cursor: &[u8], pattern: Option<&[u8]>) -> Result<(Vec<u8>, Vec<Vec<u8>>)> {
    let mut scan = cmd("SCAN");
    scan.arg(cursor).arg("COUNT").arg(KEYS_AT_ONCE);
    if let Some(pattern) = pattern {
        scan.arg("MATCH").arg(pattern);
    }
    Ok(from_redis_value(server.ask_node(node, &scan)?)?)
}

/// Visits the keys of every node that match a pattern, or all keys without one. A key may be visited twice if the server resizes its hash
/// table during the scan.
pub fn for_each_key(
    server: &mut Server,
    pattern: Option<&[u8]>,
    mut visit: impl FnMut(&mut Server, &[Vec<u8>]) -> Result<()>,
) -> Result<()> {
    for node in server.all_nodes()? {
        let mut cursor = b"0".to_vec();
        loop {
            let (next, keys) = scan(server, &node, &cursor, pattern)?;
            visit(server, &keys)?;
            cursor = next;
            if cursor == b"0" {
                break;
            }
        }
    }
    Ok(())
}

/// Returns the types of keys; `none` if there is no such key.
pub fn types(server: &mut Server, keys: &[Vec<u8>]) -> Result<Vec<String>> {
    server.ask_of_each(&["TYPE"], keys)?.into_iter().map(|name| Ok(from_redis_value(name)?)).collect()
}

/// RedisBloom's type of cuckoo filters, which have the CF.* commands.
pub const CUCKOO: &str = "MBbloomCF";

/// Whether a reply to TYPE names a type of Bloom filters, which have the BF.* commands.
pub fn is_bloom_filter(type_name: &str) -> bool {
    matches!(type_name, "bloomgate" | "MBbloom--" | "bloomfltr")
}

/// Whether a reply to TYPE names a type of filters.
pub fn is_filter(type_name: &str) -> bool {
    is_bloom_filter(type_name) || type_name == CUCKOO
}

/// Returns the command with this name for filters of a type: `BF.INFO` or `CF.INFO` for `INFO`.
pub fn command(type_name: &str, name: &str) -> String {
    format!("{}.{name}", if type_name == CUCKOO { "CF" } else { "BF" })
}

/// Parses the reply to BF.INFO, or to CF.INFO if the type is [`CUCKOO`].
pub fn contents(type_name: &str, reply: &Value) -> Result<Contents> {
    if type_name == CUCKOO {
        return cuckoo_contents(reply);
    }
    let Info { capacity, layers, items, size_bytes, .. } = reply.try_into()?;
    Ok(Contents { capacity, layers, items, bytes: size_bytes, deletes: 0 })
}

/// Parses the reply to CF.INFO. The capacity is the number of slots, a byte each: the size less a fixed part and a part for each layer.
fn cuckoo_contents(reply: &Value) -> Result<Contents> {
    let fields: HashMap<String, u64> = from_redis_value(reply.clone())?;
    let field = |name| fields.get(name).copied().with_context(|| format!("CF.INFO has no field `{name}`"));
    let (layers, bytes) = (field("Number of filters")?, field("Size")?);
    Ok(Contents {
        capacity: bytes.saturating_sub(40).saturating_sub(layers.saturating_mul(16)),
        layers,
        items: field("Number of items inserted")?,
        bytes,
        deletes: field("Number of items deleted")?,
    })
}

// A walk over the keys of a server that finds its filters, one SCAN at a time. `watch` and `web` repeat it to find new
// filters, each at its own pace.

/// The progress of walks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Keys scanned by the current walk, or by the last one if none is running.
    pub looked_at: u64,
    /// Whether a walk has reached its end since the server was connected.
    pub is_complete: bool,
}

/// A repeated walk.
pub struct Walk {
    /// Nodes that are not finished, each with its cursor. The first one is scanned next.
    nodes: VecDeque<(Address, Vec<u8>)>,
    begun: Instant,
    next: Instant,
    progress: Progress,
}

impl Walk {
    /// Creates a walk that is due at once.
    pub fn new() -> Self {
        let now = Instant::now();
        Self { nodes: VecDeque::new(), begun: now, next: now, progress: Progress::default() }
    }

    /// The time of the next step.
    pub const fn due(&self) -> Instant {
        self.next
    }

    /// Delays the next step by at least `pause`.
    pub fn pause(&mut self, pause: Duration) {
        self.next = self.next.max(Instant::now() + pause);
    }

    /// Whether the next step begins a walk, because none has begun or the last step ended one.
    pub fn is_at_begin(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The time since this walk began.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Scans some keys of the next node and returns the Bloom filters among them. The types of `is_known` keys are not queried again. After
    /// an error, the next step tries the same keys again.
    pub fn step(
        &mut self,
        server: &mut Server,
        pattern: Option<&str>,
        is_known: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<Vec<u8>>> {
        if self.nodes.is_empty() {
            self.nodes = server.all_nodes()?.into_iter().map(|node| (node, b"0".to_vec())).collect();
            (self.begun, self.progress.looked_at) = (Instant::now(), 0);
        }
        let Some((node, cursor)) = self.nodes.front() else { return Ok(Vec::new()) };
        let (cursor, keys) = scan(server, node, cursor, pattern.map(str::as_bytes))?;
        let looked_at = keys.len() as u64;
        let (mut filters, unknown): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| is_known(key));
        for (key, name) in unknown.iter().zip(types(server, &unknown)?) {
            if is_bloom_filter(&name) {
                filters.push(key.clone());
            }
        }
        self.progress.looked_at += looked_at;
        // Nodes take turns, so that each has the same load.
        if let Some((node, _)) = self.nodes.pop_front()
            && cursor != b"0"
        {
            self.nodes.push_back((node, cursor));
        }
        self.progress.is_complete |= self.nodes.is_empty();
        Ok(filters)
    }

    /// Returns the progress of this walk and of earlier ones.
    pub const fn progress(&self) -> Progress {
        self.progress
    }
}
