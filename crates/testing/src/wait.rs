//! Waiting for a condition, for as long as a server may take. Servers under a memory checker, which the steps `memcheck` and `asan` announce
//! with `BLOOMGATE_WATCHED`, can be many times slower, so tests have longer timeouts.

use std::thread;
use std::time::{Duration, Instant};

/// Waits until `condition` holds, and panics with `what` after a very long time.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < patience(), "gave up waiting for: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the servers run under a memory checker.
pub fn watched() -> bool {
    std::env::var_os("BLOOMGATE_WATCHED").is_some()
}

/// The timeout of every wait. It is not a measure of speed.
pub fn patience() -> Duration {
    Duration::from_secs(if watched() { 1200 } else { 120 })
}
