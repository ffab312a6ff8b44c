//! A walk over the keys of a server that finds its filters, one SCAN at a time. `watch` and `web` repeat it to find new
//! filters, each at its own pace.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Result;
use redis::from_redis_value;

use crate::filters::is_filter;
use crate::keys::{ask_of_each, scan};
use crate::server::{Address, Server};

/// How far walks have come.
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

    /// When the next step is due.
    pub const fn due(&self) -> Instant {
        self.next
    }

    /// Delays the next step by at least `pause`.
    pub fn pause(&mut self, pause: Duration) {
        self.next = self.next.max(Instant::now() + pause);
    }

    /// Whether the next step begins a walk: none has begun, or the last step ended one.
    pub fn is_at_begin(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The nodes that this walk has not finished.
    pub fn nodes_left(&self) -> usize {
        self.nodes.len()
    }

    /// The time since this walk began.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Scans some keys of the next node and returns the filters among them. The types of `is_known` keys are not asked again.
    ///
    /// # Errors
    /// As [`Server::ask_node`]. The next step tries the same keys again.
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
        for (key, name) in unknown.iter().zip(ask_of_each(server, &["TYPE"], &unknown)?) {
            if is_filter(&from_redis_value::<String>(name)?) {
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

    /// How far it has come.
    pub const fn progress(&self) -> Progress {
        self.progress
    }
}
