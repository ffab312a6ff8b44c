//! The figures that a test prints besides its outcome.

/// Prints a line of figures: the topic, a colon, then what was counted as `NUMBER WHAT`, with commas between. These are added
/// up by their words: `executions`, `kills survived`, `adds verified`, `faults injected`.
pub fn figures(line: &str) {
    eprintln!("figures: {line}");
}
