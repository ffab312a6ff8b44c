//! Keeps the last commands and replies, for the report of a failing test.

use std::collections::VecDeque;
use std::fmt::Display;
use std::thread;

/// The number of lines that are kept.
const LINES: usize = 1000;
/// The number of characters of a line that are kept, because payloads are long.
const LETTERS: usize = 2000;

/// Prints its lines if it is dropped during a panic.
pub struct Trail {
    seed: u64,
    lines: VecDeque<String>,
}

impl Trail {
    /// The trail of a round.
    pub fn new(seed: u64) -> Self {
        Self { seed, lines: VecDeque::new() }
    }

    /// Adds a line.
    pub fn line(&mut self, line: impl Display) {
        let mut line = line.to_string();
        if let Some((end, _)) = line.char_indices().nth(LETTERS) {
            line.truncate(end);
        }
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// Adds a command.
    pub fn command(&mut self, words: &[Vec<u8>]) {
        let words: Vec<String> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
        self.line(format!("> {}", words.join(" ")));
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        if thread::panicking() {
            let lines: Vec<&str> = self.lines.iter().map(String::as_str).collect();
            eprintln!("--- the last commands, replies and faults ---\n{}\n---", lines.join("\n"));
            eprintln!("chaos: BLOOMGATE_SEED={} begins with this round", self.seed);
        }
    }
}
