//! Progress on the error output: a bar on a terminal, and occasional plain lines elsewhere (a log file, CI), where a bar would
//! leave control codes.

use std::cell::Cell;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::report::counted;

/// If the output is not a terminal, a line is printed after this time or after a fifth of the input.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
const LINES_A_RUN: u64 = 5;

/// A progress bar over the bytes of the input.
pub struct Progress {
    bar: ProgressBar,
    bytes_read: Arc<AtomicU64>,
    lines: Option<Lines>,
}

struct Lines {
    next_position: Cell<u64>,
    next_time: Cell<Instant>,
}

impl Progress {
    /// Creates a bar for `size_bytes` of input, or for an unknown size. It shows how much of that are `bytes_read`.
    pub fn new(size_bytes: Option<u64>, bytes_read: Arc<AtomicU64>) -> Self {
        let bar = match size_bytes {
            Some(size) => ProgressBar::new(size).with_style(style("{bar:32} {percent:>3}%  {msg}")),
            None => ProgressBar::new_spinner().with_style(style("{spinner} {msg}")),
        };
        if std::io::stderr().is_terminal() {
            return Self { bar, bytes_read, lines: None };
        }
        bar.set_draw_target(ProgressDrawTarget::hidden());
        let lines = Lines {
            next_position: Cell::new(size_bytes.map_or(u64::MAX, |size| size / LINES_A_RUN)),
            next_time: Cell::new(Instant::now() + LINE_INTERVAL),
        };
        Self { bar, bytes_read, lines: Some(lines) }
    }

    /// Shows what has been done so far.
    pub fn show(&self, links: u64, new: u64) {
        self.bar.set_position(self.bytes_read.load(Ordering::Relaxed));
        let message = || format!("{}, {} of them new", counted(links, "link"), HumanCount(new));
        let Some(lines) = &self.lines else {
            self.bar.set_message(message());
            return;
        };
        let now = Instant::now();
        if self.bar.position() < lines.next_position.get() && now < lines.next_time.get() {
            return;
        }
        match self.bar.length() {
            Some(size) if size > 0 => {
                let position = self.bar.position();
                eprintln!("{:>3}%  {}", (position.saturating_mul(100) / size).min(100), message());
                lines.next_position.set(position.saturating_add(size / LINES_A_RUN));
            }
            _ => eprintln!("{}", message()),
        }
        lines.next_time.set(now + LINE_INTERVAL);
    }

    /// Removes the bar from the screen.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// A bar for slow operations, shown only on a terminal and only after a second.
pub struct Bar {
    bar: ProgressBar,
    begin: Instant,
    is_shown: Cell<bool>,
}

/// Faster operations show no bar.
const BAR_DELAY: Duration = Duration::from_secs(1);

impl Bar {
    /// Creates a bar for this many bytes, or for an unknown number.
    pub fn new(size_bytes: Option<u64>) -> Self {
        let bar = match size_bytes {
            Some(size) => ProgressBar::with_draw_target(Some(size), ProgressDrawTarget::hidden())
                .with_style(style("{bar:32} {percent:>3}%  {msg}")),
            None => {
                ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_style(style("{spinner} {msg}"))
            }
        };
        Self { bar, begin: Instant::now(), is_shown: Cell::new(false) }
    }

    /// Shows the progress.
    pub fn set(&self, position: u64, message: impl FnOnce() -> String) {
        if !self.is_shown.get() {
            if self.begin.elapsed() < BAR_DELAY || !std::io::stderr().is_terminal() {
                return;
            }
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.is_shown.set(true);
        }
        self.bar.set_position(position);
        self.bar.set_message(message());
    }

    /// Removes the bar from the screen.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.finish();
    }
}

fn style(template: &str) -> ProgressStyle {
    // An invalid template would be a bug here. A plain bar is good enough then.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
