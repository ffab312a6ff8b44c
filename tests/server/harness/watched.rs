//! Servers under a tool that watches their memory: `scripts/memcheck` and `scripts/asan` say by `BLOOMGATE_WATCHED` that these
//! are. They can be many times as slow, so a test has more patience with them, and they are asked to end where they would be
//! killed: the tool looks for leaks when a process ends.

use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

/// Whether the servers run under such a tool.
pub fn watched() -> bool {
    std::env::var_os("BLOOMGATE_WATCHED").is_some()
}

/// How long anything may take before a test gives up on it. Not a measure of speed.
pub fn patience() -> Duration {
    Duration::from_secs(if watched() { 1200 } else { 120 })
}

/// Asks a process to end and waits a while; one that is stuck in something is left to be killed.
pub fn ask_to_end(child: &mut Child) {
    // The shell's own `kill`: a small system has no other.
    let asked = Command::new("sh").args(["-c", &format!("kill -TERM {}", child.id())]).status();
    let start = Instant::now();
    while asked.is_ok() && start.elapsed() < Duration::from_secs(30) && matches!(child.try_wait(), Ok(None)) {
        thread::sleep(Duration::from_millis(10));
    }
}
