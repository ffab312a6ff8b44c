//! The speed and the remaining time of a load: a progress bar on a terminal, occasional lines elsewhere.

use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use crate::report::counted;
use crate::stream::input::BytesRead;

/// The interval of lines if the output is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// The progress of a load.
pub struct Pace {
    bar: ProgressBar,
    started: Instant,
    /// Rows loaded by an earlier run.
    before: u64,
    next_line: Option<Instant>,
    total: Total,
}

/// How the total is known.
pub enum Total {
    Rows(u64),
    Bytes(u64, BytesRead),
    Unknown,
}

impl Pace {
    /// Creates the progress of a load that starts after `before` rows.
    pub fn new(total: Total, before: u64) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let (length, template) = match &total {
            Total::Rows(length) | Total::Bytes(length, _) => {
                (Some(*length), "{bar:32} {percent:>3}%  {msg}, {eta} left")
            }
            Total::Unknown => (None, "{spinner} {msg}"),
        };
        let bar = if is_terminal { ProgressBar::no_length() } else { ProgressBar::hidden() };
        if let Some(length) = length {
            bar.set_length(length);
        }
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let started = Instant::now();
        Self { bar, started, before, next_line: (!is_terminal).then(|| started + LINE_INTERVAL), total }
    }

    /// Shows the number of loaded rows.
    pub fn show(&mut self, rows: u64) {
        let now = Instant::now();
        if self.next_line.is_some_and(|next| now < next) {
            return;
        }
        let position = match &self.total {
            Total::Rows(_) => rows,
            Total::Bytes(_, read) => read.load(Ordering::Relaxed),
            Total::Unknown => 0,
        };
        let rate = HumanCount(self.rate(rows));
        let message = format!("{}, {rate} a second", counted(rows, "row"));
        if let Some(next) = &mut self.next_line {
            *next = now + LINE_INTERVAL;
            let share = self.bar.length().filter(|length| *length > 0);
            let share = share.map(|length| format!("{:>3}%  ", (position.saturating_mul(100) / length).min(100)));
            eprintln!("{}{message}", share.unwrap_or_default());
            return;
        }
        self.bar.set_message(message);
        self.bar.set_position(position);
    }

    /// Returns the rows per second of this run.
    pub fn rate(&self, rows: u64) -> u64 {
        let milliseconds = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        rows.saturating_sub(self.before).saturating_mul(1000) / milliseconds
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Removes the bar from the screen.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
