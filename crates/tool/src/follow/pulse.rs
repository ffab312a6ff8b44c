//! The follower's sign of life. It continues while there is no heartbeat: during a fill, for example.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::config::Keys;
use super::lsn::Lsn;
use super::store::{Stopped, Store};
use super::wire::Wire;

/// How often it is given.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// The sign of life, for PostgreSQL and for other followers.
pub struct Pulse {
    next: Instant,
    keys: Keys,
    epoch: u64,
    stopping: Arc<AtomicBool>,
}

impl Pulse {
    /// `keys` and `epoch` are those of the first table.
    pub fn new(keys: Keys, epoch: u64, stopping: &Arc<AtomicBool>) -> Self {
        Self { next: Instant::now(), keys, epoch, stopping: Arc::clone(stopping) }
    }

    /// Gives a sign of life if the last one is a second old. PostgreSQL ends a stream whose client is silent.
    ///
    /// # Errors
    /// A lost connection; another follower took over.
    pub fn beat(&mut self, store: &mut Store, wire: &mut Wire, confirmed: Lsn) -> Result<()> {
        if Instant::now() < self.next {
            return Ok(());
        }
        self.next = Instant::now() + INTERVAL;
        wire.confirm(confirmed, false)?;
        store.show_alive(&self.keys, self.epoch)
    }

    /// Fails after a signal.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn ensure_running(&self) -> Result<()> {
        if self.stopping.load(Relaxed) { Err(Stopped.into()) } else { Ok(()) }
    }
}
