//! Servers under a memory checker, which `scripts/test --only memcheck` and `scripts/test --only asan` announce with `BLOOMGATE_WATCHED`. They can be
//! many times slower, so tests have longer timeouts. They are stopped by SIGTERM where others are killed, because the checker
//! reports leaks when a process exits.

use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

/// Whether the servers run under a memory checker.
pub fn watched() -> bool {
    std::env::var_os("BLOOMGATE_WATCHED").is_some()
}

/// The timeout of every wait. It is not a measure of speed.
pub fn patience() -> Duration {
    Duration::from_secs(if watched() { 1200 } else { 120 })
}

/// Sends SIGTERM to a process and waits for a while. A process that does not exit is killed by the caller.
pub fn ask_to_end(child: &mut Child) {
    // The shell's built-in `kill`, because a minimal system has no other.
    let asked = Command::new("sh").args(["-c", &format!("kill -TERM {}", child.id())]).status();
    let start = Instant::now();
    while asked.is_ok() && start.elapsed() < Duration::from_secs(30) && matches!(child.try_wait(), Ok(None)) {
        thread::sleep(Duration::from_millis(10));
    }
}
