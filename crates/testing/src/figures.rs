//! Prints the figures of a test.

/// Prints a line of figures: the topic, a colon, then `NUMBER WHAT`, separated by commas. `scripts/test --soak` repeats these at its end:
/// `executions`, `kills survived`, `adds verified`, `faults injected`.
pub fn figures(line: &str) {
    eprintln!("figures: {line}");
}
