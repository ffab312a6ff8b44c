//! The guard: the common part of reading one row, reading many rows and writing.

mod commands;
mod fetched;
mod flights;
mod found;
mod leases;
mod load;
mod nesting;
mod read;
mod write;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use redis::Cmd;

use super::{Io, Reply, command};
use crate::guard_options::milliseconds;
use crate::{Codec, Error, GuardOptions};

pub use commands::Commands;
#[cfg(feature = "tokio")]
pub use commands::is_late;
use fetched::Lease;
pub use fetched::{Fetch, Fetched};
use flights::Flights;
pub use flights::Waiter;
pub use flights::lock;
pub use found::Found;
#[cfg(feature = "tokio")]
pub use found::not_fetched;
pub use leases::Leases;
pub use write::fill_filter;

/// The maximum number of ids sent together.
pub const BATCH: usize = 500;
/// The largest share by which times to live are shortened at random, so that rows filled together do not expire together.
const JITTER: f64 = 0.1;

/// One guard.
pub struct GuardCore<C> {
    pub commands: Arc<Commands>,
    codec: C,
    flights: Flights,
    /// Loads without leases. They are separate from the other flights, so that no caller waits for a caller that probes a hung
    /// server.
    direct: Flights,
    /// The number of loads that continue in the background.
    background: Arc<AtomicUsize>,
}

impl<C: Codec> GuardCore<C> {
    pub fn new(io: &impl Io, filter: &[u8], codec: C, options: GuardOptions) -> Result<Self, Error> {
        options.check(io.is_cluster())?;
        let commands = Arc::new(Commands::new(filter, options)?);
        Ok(Self {
            commands,
            codec,
            flights: Flights::default(),
            direct: Flights::default(),
            background: Arc::default(),
        })
    }

    pub fn options(&self) -> &GuardOptions {
        &self.commands.options
    }

    /// Returns the row in an answer, or `Some(None)` if the row does not exist. Returns `None` if the answer has no value, or if it
    /// cannot be decoded.
    fn read(&self, answer: &Fetched) -> Option<Option<C::Row>> {
        match answer {
            Fetched::Absent => Some(None),
            Fetched::Load(_) | Fetched::Wait | Fetched::Failed => None,
            Fetched::Hit(value) | Fetched::Stale(value, _) => {
                let warn = |error: &String| self.commands.warn("a cached value cannot be decoded", error);
                self.codec.decode(value).inspect_err(warn).ok().map(Some)
            }
        }
    }

    /// Returns the command that fills a row or its absence.
    fn fill_with(&self, lease: &Lease, value: Option<&[u8]>, ttl_ms: u64) -> Cmd {
        let mut fill = self.commands.fill(lease);
        match value {
            Some(value) => {
                let fresh_ms = jittered(ttl_ms).saturating_add(milliseconds(self.options().fail_safe));
                fill.arg("VALUE").arg(value).arg("PX").arg(fresh_ms);
            }
            None => _ = fill.arg("NONE").arg("PX").arg(jittered(milliseconds(self.options().absent_ttl))),
        }
        fill
    }
}

/// Shortens a time by up to a tenth, at random.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn jittered(ms: u64) -> u64 {
    let less = (ms as f64 * JITTER * fastrand::f64()) as u64;
    ms.saturating_sub(less).max(1)
}
