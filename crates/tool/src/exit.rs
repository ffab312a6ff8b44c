//! Early exits of the process: with status 2 for an invalid command line that the parser cannot reject, because several options or their
//! values are involved; and by SIGINT or SIGTERM after cleaning up. All other failures exit with 1.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

// SIGINT and SIGTERM during work that must be cleaned up. Afterwards the process dies of the signal, so that its parent sees the same
// status as with a subcommand that does not handle signals.

/// The interval of checks for signals while nothing else happens.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// The signal that has arrived, if any.
#[derive(Clone)]
pub struct Signals(Arc<AtomicUsize>);

/// The reason why the work ended early.
#[derive(Debug)]
pub struct Interrupted(pub i32);

impl Signals {
    /// Catches both signals from now on. A second signal ends the process at once.
    pub fn catch() -> Result<Self> {
        let (has_arrived, which) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_default(signal, has_arrived.clone())?;
            flag::register(signal, has_arrived.clone())?;
            flag::register_usize(signal, which.clone(), usize::try_from(signal)?)?;
        }
        Ok(Self(which))
    }

    /// Fails once a signal has arrived.
    pub fn check(&self) -> Result<(), Interrupted> {
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            signal => Err(Interrupted(i32::try_from(signal).unwrap_or(SIGTERM))),
        }
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}
