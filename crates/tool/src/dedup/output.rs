//! The output of `dedup` and its counts.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::{HumanCount, ProgressBar};
use serde_json::json;

use super::{Arguments, Parts};
use crate::report::counted;
use crate::stream::Answered;
use crate::stream::flow::Answer;

/// Bytes that are written together while more input is available.
const OUTPUT_BUFFER_BYTES: usize = 1 << 16;
/// The longest time that a line waits in the buffer while input keeps arriving.
const OUTPUT_DELAY: Duration = Duration::from_millis(200);
/// A terminal shows the progress after this time.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);

/// A file that counts what was written to it.
struct Counted {
    file: File,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.file.write(buffer)?;
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The output and its counts.
pub struct Output {
    buffer: BufWriter<Counted>,
    written: Instant,
    /// The bytes of all lines so far, and where each line ends that may not be written yet.
    bytes: u64,
    ends: VecDeque<u64>,
    /// Whether writing failed. Lines are only counted from then on.
    is_broken: bool,
    is_dry_run: bool,
    seen_wanted: bool,
    lines: u64,
    new: u64,
    bad: u64,
    unknown: u64,
    /// Printed lines for which it is unknown whether they were new.
    passed_on: HashSet<Vec<u8>>,
    pub progress: ProgressBar,
    started: Instant,
}

impl Output {
    /// Creates an output to the standard output.
    pub fn new(arguments: &Arguments) -> Result<Self> {
        // The library's standard output flushes each line.
        let output = io::stdout().as_fd().try_clone_to_owned().context("cannot write to the standard output")?;
        Ok(Self {
            buffer: BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, Counted { file: File::from(output), bytes: 0 }),
            written: Instant::now(),
            bytes: 0,
            ends: VecDeque::new(),
            is_broken: false,
            is_dry_run: arguments.dry_run,
            seen_wanted: arguments.seen,
            lines: 0,
            new: 0,
            bad: 0,
            unknown: 0,
            passed_on: HashSet::new(),
            progress: ProgressBar::hidden(),
            started: Instant::now(),
        })
    }

    /// Writes the wanted lines of a batch. Returns the error if items were refused.
    pub fn write(&mut self, answered: Answered<Parts>) -> Result<Option<anyhow::Error>> {
        let Answered { batch, answers, is_sent_again, error } = answered;
        let mut answers = answers.into_iter();
        let mut wanted = Vec::with_capacity(answers.len());
        for lines in &batch.0 {
            self.bad += lines.bad;
            self.bytes += lines.header.len() as u64;
            for ((item, length), answer) in lines.items().zip(lines.lengths()).zip(&mut answers) {
                wanted.push(self.is_wanted(item, answer, is_sent_again));
                if wanted.last() == Some(&true) {
                    self.bytes += length as u64;
                    self.ends.push_back(self.bytes);
                }
            }
        }
        if self.is_broken {
            return Ok(error);
        }
        self.write_lines(&batch, &wanted).inspect_err(|_| self.is_broken = true).context(WRITING)?;
        let written = self.buffer.get_ref().bytes;
        while self.ends.front().is_some_and(|end| *end <= written) {
            self.ends.pop_front();
        }
        if self.written.elapsed() > OUTPUT_DELAY {
            self.flush()?;
        }
        Ok(error)
    }

    fn write_lines(&mut self, batch: &Parts, mut wanted: &[bool]) -> io::Result<()> {
        let buffer = &mut self.buffer;
        for lines in &batch.0 {
            let (these, others) = wanted.split_at_checked(lines.len()).unwrap_or((wanted, &[]));
            wanted = others;
            buffer.write_all(&lines.header)?;
            lines.write(|place| these.get(place) == Some(&true), |part| buffer.write_all(part))?;
        }
        Ok(())
    }

    /// Whether writing failed.
    pub const fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Returns how many lines were not written.
    fn unwritten(&self) -> u64 {
        let written = self.buffer.get_ref().bytes;
        self.ends.iter().filter(|end| **end > written).count() as u64
    }

    /// Adds to the error of a broken output how many lines it has cost.
    pub fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        let lines = counted(self.unwritten(), "line");
        match (self.is_broken, self.is_dry_run) {
            (false, _) => error,
            (true, true) => error.context(format!("{lines} not printed")),
            (true, false) => error.context(format!("{lines} not printed, although the filter has them")),
        }
    }

    fn is_wanted(&mut self, item: &[u8], answer: Answer, is_sent_again: bool) -> bool {
        self.lines += u64::from(answer != Answer::Refused);
        let is_new = match answer {
            Answer::Refused => return false,
            Answer::Known { is_new } => is_new,
            // The same line twice in what was sent twice: the first of them is out.
            Answer::Unknown if !self.seen_wanted && self.passed_on.contains(item) => false,
            Answer::Unknown => {
                self.unknown += 1;
                self.passed_on.insert(item.to_vec());
                return true;
            }
        };
        if is_new && is_sent_again {
            self.passed_on.insert(item.to_vec());
        }
        self.new += u64::from(is_new);
        is_new != self.seen_wanted
    }

    /// Whether the buffer is empty.
    pub fn is_flushed(&self) -> bool {
        self.buffer.buffer().is_empty()
    }

    /// Writes the buffer.
    pub fn flush(&mut self) -> Result<()> {
        if self.is_broken {
            return Ok(());
        }
        self.written = Instant::now();
        self.buffer.flush().inspect_err(|_| self.is_broken = true).context(WRITING)?;
        self.ends.clear();
        Ok(())
    }

    /// Shows the progress on a terminal, unless the lines are printed there.
    pub fn show(&mut self) {
        if self.progress.is_hidden() {
            let is_seen = io::stderr().is_terminal() && !io::stdout().is_terminal();
            if !is_seen || self.started.elapsed() < PROGRESS_DELAY {
                return;
            }
            self.progress = ProgressBar::new_spinner();
        }
        let (lines, new) = (counted(self.lines, "line"), HumanCount(self.new));
        let rate = HumanCount(self.lines / self.started.elapsed().as_secs().max(1));
        self.progress.set_message(format!("{lines}, {new} of them new, {rate} a second"));
        self.progress.tick();
    }

    /// Prints the summary to the error output.
    pub fn summarize(&self, arguments: &Arguments, elapsed: Duration) {
        let Self { lines, new, bad, unknown, .. } = *self;
        let seconds = (elapsed.as_secs_f64() * 1000.0).round() / 1000.0;
        if arguments.summary_json {
            let summary = json!({
                "lines": lines, "new": new, "unknown": unknown, "bad": bad, "not_printed": self.unwritten(),
                "seconds": seconds,
            });
            eprintln!("{summary}");
            return;
        }
        if unknown > 0 {
            eprintln!("bloomgate: the connection was lost: printed {} that may not be new", counted(unknown, "line"));
        }
        if bad > 0 {
            eprintln!("bloomgate: skipped {} without the field", counted(bad, "line"));
        }
        if arguments.verbose || io::stderr().is_terminal() && !io::stdout().is_terminal() {
            let (lines, new) = (counted(lines, "line"), HumanCount(new));
            eprintln!("{lines}, {new} of them new, {seconds} s");
        }
    }
}

const WRITING: &str = "cannot write to the standard output";
