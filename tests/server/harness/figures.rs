//! What a test says besides that it passed: its figures, and what it could not do here.

use std::io::Write;

/// Prints a line of figures: the topic, a colon, then what was counted as `NUMBER WHAT`, with commas between. These are added
/// up by their words: `executions`, `kills survived`, `adds verified`, `faults injected`.
pub fn figures(line: &str) {
    eprintln!("figures: {line}");
}

/// Says that a test, or a part of it, was not done here, and why. The test runner keeps the output of tests that pass to
/// itself; this line goes past it.
pub fn skipped(reason: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED: {name}: {reason}");
}
