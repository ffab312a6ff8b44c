//! The progress of slow work on a terminal. Elsewhere (a log file, CI) a bar would leave control codes.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

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
