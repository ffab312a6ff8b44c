//! The progress of slow work.

use std::cell::Cell;
use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::input::BytesRead;
use crate::names::counted;

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
        Self { bar: hidden(size_bytes), begin: Instant::now(), is_shown: Cell::new(false) }
    }

    /// Shows on a terminal that work of unknown duration is in progress.
    pub fn spinner(message: &'static str) -> Self {
        let bar = ProgressBar::new_spinner().with_message(message);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar, begin: Instant::now(), is_shown: Cell::new(true) }
    }

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

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Creates a bar that is not shown yet, for a number of bytes or rows, or for an unknown number.
fn hidden(length: Option<u64>) -> ProgressBar {
    let template = if length.is_some() { "{bar:32} {percent:>3}%  {msg}" } else { "{spinner} {msg}" };
    // An invalid template would be a bug here; a plain bar is shown instead.
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden()).with_style(style)
}

/// The interval of lines if the output is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// The speed is unknown until this time has passed.
const MEASURED: Duration = Duration::from_secs(2);

/// The speed and the remaining time of a load: a bar on a terminal, occasional lines elsewhere (a log file, CI), because a bar would leave
/// control codes there.
pub struct Pace {
    bar: ProgressBar,
    started: Instant,
    /// Rows loaded by an earlier run.
    before: u64,
    next_line: Option<Instant>,
    total: Total,
    /// The time when the first rows of this run were loaded, and the position at that time.
    first: Option<(Instant, u64)>,
}

pub enum Total {
    Rows(u64),
    Bytes(u64, BytesRead),
    Unknown,
}

impl Pace {
    /// Creates the progress of a load that starts after `before` rows.
    pub fn new(total: Total, before: u64) -> Self {
        let length = match &total {
            Total::Rows(length) | Total::Bytes(length, _) => Some(*length),
            Total::Unknown => None,
        };
        let (bar, is_terminal) = (hidden(length), std::io::stderr().is_terminal());
        if is_terminal {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        let started = Instant::now();
        Self { bar, started, before, next_line: (!is_terminal).then(|| started + LINE_INTERVAL), total, first: None }
    }

    pub fn show(&mut self, rows: u64) {
        let now = Instant::now();
        let position = match &self.total {
            Total::Rows(_) => rows,
            Total::Bytes(_, read) => read.load(Ordering::Relaxed),
            Total::Unknown => 0,
        };
        // Rows that an earlier run loaded are skipped faster than others are loaded, so the estimate of the remaining time ignores them.
        let (begin, before) = *self.first.get_or_insert((now, position));
        if self.next_line.is_some_and(|next| now < next) {
            return;
        }
        let rate = HumanCount(self.rate(rows));
        let left = self.bar.length().and_then(|length| {
            time_left(now - begin, position.saturating_sub(before), length.saturating_sub(position))
        });
        let left = left.map(|left| format!(", {left} left")).unwrap_or_default();
        let message = format!("{}, {rate} a second{left}", counted(rows, "row"));
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

    pub fn rate(&self, rows: u64) -> u64 {
        let milliseconds = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        rows.saturating_sub(self.before).saturating_mul(1000) / milliseconds
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Returns the time for the rest at the speed so far, as people read it: `40 s`, `12 min`, `3 h`. `None` until the speed is known, and if
/// nothing is left.
fn time_left(passed: Duration, done: u64, rest: u64) -> Option<String> {
    if done == 0 || rest == 0 || passed < MEASURED {
        return None;
    }
    let seconds = (passed.as_secs_f64() * rest as f64 / done as f64).ceil();
    Some(match seconds {
        ..100.0 => format!("{seconds} s"),
        ..6000.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.0} h", seconds / 3600.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_this_runs_speed() {
        let left = |seconds, done, rest| time_left(Duration::from_secs(seconds), done, rest);
        assert_eq!(left(10, 100, 200).as_deref(), Some("20 s"));
        assert_eq!(left(10, 3, 1).as_deref(), Some("4 s"));
        assert_eq!(left(60, 1, 10).as_deref(), Some("10 min"));
        assert_eq!(left(3600, 1, 5).as_deref(), Some("5 h"));
        assert_eq!([left(0, 100, 200), left(10, 0, 200), left(10, 100, 0)], [None, None, None]);
    }

    #[test]
    fn rows_of_an_earlier_run_do_not_count() {
        let mut pace = Pace::new(Total::Rows(1000), 900);
        pace.show(900);
        assert_eq!(pace.first.unwrap().1, 900);
        pace.show(950);
        assert_eq!(pace.first.unwrap().1, 900);
    }
}
