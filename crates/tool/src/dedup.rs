//! `bloomgate dedup`: prints the input lines that the filter has not seen, in their order. Like `uniq`, but also for equal lines that are
//! far apart, in other runs, or on other machines.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result};
use indicatif::HumanCount;
use redis::{Value, cmd};
use serde_json::json;

use crate::exit::{self, Signals};
use crate::input::BytesRead;
use crate::names::counted;
use crate::numbers;
use crate::progress::Bar;
use crate::server::{Options, Server};
use crate::stream::reader::{LINES_AT_ONCE, Reading};
use crate::stream::{Answer, Answered, Batch, Column, Field, Flow, Lines};
use crate::target::{Creation, Question, Target};

/// How long a reply may take. A batch takes milliseconds, and resending it is harmless.
const PATIENCE: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  Lines that no earlier run has printed; one new line in 10,000 may be dropped:
    bloomgate dedup --key urls --create 0.0001 10000000 < urls.txt > new-urls.txt
  A growing log, by the third field of each line:
    tail -f events.tsv | bloomgate dedup --key events --tsv --column 3
  A CSV file by a named column; file names with any bytes:
    bloomgate dedup --key emails --column email users.csv > new-users.csv
    find . -print0 | bloomgate dedup --key names -z > new-names
  Compressed JSON lines by a member:
    bloomgate dedup --key orders --json /order/id orders-*.jsonl.gz > new-orders.jsonl
  Lines seen before, without adding anything:
    bloomgate dedup --key urls --seen --dry-run < urls.txt

An item is a line without its end (LF or CRLF). An empty line is an item, too. Lines are printed
unchanged; a last line without an end gets one. A header line is printed once. CSV records may
contain line ends in quotes; blank lines between records are dropped. Lines that were seen are
dropped, and so are new ones at the filter's false positive rate.

If the connection is lost, dedup waits up to 30 seconds for the server and continues. Lines whose
reply was lost are always printed. On SIGINT and SIGTERM, dedup first prints the results of
everything it has sent. After kill -9, or if the reader of the output exits, the filter may contain
some thousand lines that nobody has read.";

/// Print the lines that a filter has not seen, and add them to it
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Files to read in this order, plain, gzip or zstd; `-` is the standard input
    #[arg(default_value = "-")]
    files: Vec<PathBuf>,
    /// The filter's key. It must exist unless --create is given
    #[arg(long)]
    key: String,
    /// Create the filter if the key is missing, with this false positive rate and capacity
    #[arg(
        long,
        num_args = 2,
        value_names = ["RATE", "CAPACITY"],
        value_parser = numbers::rate_or_capacity,
        conflicts_with = "shards"
    )]
    create: Option<Vec<String>>,
    /// With --create: more options of BF.RESERVE, as in `-- NONSCALING HASH siphash`
    #[arg(last = true, requires = "create")]
    words: Vec<String>,
    /// The key is the name of a sharded filter
    #[arg(long)]
    shards: bool,
    /// Read CSV; the item is this column, by its name in the first line or its number from 1
    #[arg(long, value_name = "NAME|N", conflicts_with = "json")]
    column: Option<String>,
    /// Read tab-separated columns without quotes
    #[arg(long, requires = "column")]
    tsv: bool,
    /// The first line holds the names of the columns, even if --column is a number
    #[arg(long, requires = "column")]
    header: bool,
    /// Lines end with a NUL byte, in the input and the output, as with `find -print0`
    #[arg(short, long, conflicts_with = "column")]
    zero_terminated: bool,
    /// Read JSON lines; the item is this member, or this JSON Pointer, as in /order/id
    #[arg(long, value_name = "FIELD")]
    json: Option<String>,
    /// Skip lines without that field instead of failing
    #[arg(long)]
    skip_bad: bool,
    /// Print the lines that were seen instead of the new ones
    #[arg(long, alias = "invert")]
    seen: bool,
    /// Print the new lines, which is the default
    #[arg(long, conflicts_with = "seen")]
    only_new: bool,
    /// Add nothing to the filter. A new line that occurs twice is printed twice
    #[arg(long, alias = "lookup")]
    dry_run: bool,
    /// Print a summary to the error output even if that is not a terminal
    #[arg(short, long)]
    verbose: bool,
    /// Print a JSON summary to the error output
    #[arg(long, conflicts_with = "verbose")]
    summary_json: bool,
}

impl Arguments {
    fn field(&self) -> Result<Field> {
        let delimiter = if self.tsv { b'\t' } else { b',' };
        match (&self.column, &self.json) {
            (Some(column), _) => Ok(Field::Column { delimiter, column: Column::of(column, self.header)? }),
            (None, Some(text)) => Field::json(text),
            (None, None) => Ok(Field::Line),
        }
    }
}

/// Consecutive parts of the input that are sent together.
struct Parts(Vec<Lines>);

impl Batch for Parts {
    fn items(&self) -> Vec<&[u8]> {
        let mut items = Vec::with_capacity(self.len());
        self.0.iter().for_each(|lines| items.extend(lines.items()));
        items
    }
}

impl Parts {
    fn len(&self) -> usize {
        self.0.iter().map(Lines::len).sum()
    }
}

pub fn run(options: &Options, arguments: &Arguments) -> Result<()> {
    let reading = Reading {
        files: arguments.files.clone(),
        field: arguments.field()?,
        end: if arguments.zero_terminated { 0 } else { b'\n' },
        skip_bad: arguments.skip_bad,
    };
    let created = arguments.create.as_deref().map(|values| Creation::of(values, &arguments.words)).transpose()?;
    let mut server = Server::connect(options)?;
    server.set_patience(PATIENCE)?;
    if let Some(created) = created {
        create(&mut server, &arguments.key, &created)?;
    }
    let target = Target::open(&mut server, &arguments.key, arguments.shards)?;
    let question = if arguments.dry_run { Question::Lookup } else { Question::Add };
    let start = Instant::now();
    let mut output = Output::new(arguments)?;
    let flow = Flow::new(&mut server, &target, question);
    let result = pass(flow, &reading.start(BytesRead::default()), &mut output);
    output.progress.finish();
    let result = match result {
        // The reader of the output exited (`| head`).
        Err(error) if is_broken_pipe(&error) => Ok(()),
        result => result,
    };
    output.summarize(arguments, start.elapsed());
    result
}

/// Creates the filter if its key is missing.
fn create(server: &mut Server, key: &str, creation: &Creation) -> Result<()> {
    if server.ask(cmd("EXISTS").arg(key), key)? != Value::Int(0) {
        return Ok(());
    }
    match creation.create(server, key) {
        // Another client created it first.
        Err(error) if error.to_string().ends_with("item exists") => Ok(()),
        result => result,
    }
}

/// Passes the whole input through the filter. After a failure, prints the lines in flight, or counts them if the output has failed.
fn pass(mut flow: Flow<Parts>, input: &Receiver<Result<Lines>>, output: &mut Output) -> Result<()> {
    let mut input = Input { receiver: input, held: None, end: None, signals: Signals::catch()? };
    let result = pass_on(&mut flow, &mut input, output).and_then(|()| output.flush());
    let Err(mut error) = result else { return Ok(()) };
    while output.is_broken
        && let Ok(Some(answered)) = flow.receive(true)
    {
        output.write(answered)?;
    }
    for answered in flow.give_up() {
        output.write(answered).map_or_else(|broken| error = broken, drop);
    }
    output.flush().unwrap_or_else(|broken| error = broken);
    Err(output.explain(error))
}

fn pass_on(flow: &mut Flow<Parts>, input: &mut Input, output: &mut Output) -> Result<()> {
    let mut refused: Option<Error> = None;
    loop {
        while refused.is_none() && !flow.is_full() {
            match input.next(flow.is_empty() && output.is_flushed()) {
                Some(parts) => flow.send(parts)?,
                None => break,
            }
        }
        if let Some(answered) = flow.receive(false)? {
            let error = output.write(answered)?;
            refused = refused.or(error);
            output.show();
            continue;
        }
        // No batch is in flight, and no input is available.
        output.flush()?;
        if let Some(error) = refused {
            return Err(error);
        }
        if let Some(end) = input.end.take() {
            return end;
        }
    }
}

/// The parts from the reader thread.
struct Input<'a> {
    receiver: &'a Receiver<Result<Lines>>,
    /// The part that did not fit into the last batch.
    held: Option<Lines>,
    /// The result of the reader thread.
    end: Option<Result<()>>,
    /// A signal stops the input after the batches in flight are printed.
    signals: Signals,
}

impl Input<'_> {
    /// Returns the lines that have arrived so far, up to a full batch. With `is_idle`, waits for at least one part.
    fn next(&mut self, is_idle: bool) -> Option<Parts> {
        let mut parts = Parts(Vec::new());
        let mut count = 0;
        while let Some(lines) = self.held.take().or_else(|| self.read(is_idle && count == 0)) {
            if count > 0 && count + lines.len() > LINES_AT_ONCE {
                self.held = Some(lines);
                break;
            }
            count += lines.len();
            parts.0.push(lines);
        }
        (!parts.0.is_empty()).then_some(parts)
    }

    fn read(&mut self, waits: bool) -> Option<Lines> {
        if self.end.is_some() {
            return None;
        }
        let next = loop {
            if let Err(interrupted) = self.signals.check() {
                let context = "all lines that were sent to the server are printed";
                self.end = Some(Err(Error::new(interrupted).context(context)));
                return None;
            }
            match self.receiver.try_recv() {
                Err(TryRecvError::Empty) if waits => {}
                next => break next,
            }
            match self.receiver.recv_timeout(exit::INTERVAL) {
                Err(RecvTimeoutError::Timeout) => {}
                next => break next.map_err(|_| TryRecvError::Disconnected),
            }
        };
        match next {
            Ok(Ok(lines)) => return Some(lines),
            Ok(Err(error)) => self.end = Some(Err(error)),
            Err(TryRecvError::Disconnected) => self.end = Some(Ok(())),
            Err(TryRecvError::Empty) => {}
        }
        None
    }
}

fn is_broken_pipe(error: &Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

// The output of `dedup`, with counts.

/// Bytes that are written together while more input is available.
const OUTPUT_BUFFER_BYTES: usize = 1 << 16;
/// The longest time that a line waits in the buffer while input keeps arriving.
const OUTPUT_DELAY: Duration = Duration::from_millis(200);

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
struct Output {
    buffer: BufWriter<Counted>,
    written: Instant,
    /// The number of bytes of all lines so far, and the end of each line that may not be written yet.
    bytes: u64,
    ends: VecDeque<u64>,
    /// Whether writing has failed. From then on, lines are only counted.
    is_broken: bool,
    is_dry_run: bool,
    seen_wanted: bool,
    lines: u64,
    new: u64,
    bad: u64,
    unknown: u64,
    /// Printed lines for which it is unknown whether they were new.
    passed_on: HashSet<Vec<u8>>,
    progress: Bar,
    started: Instant,
}

impl Output {
    /// Creates an output to the standard output.
    fn new(arguments: &Arguments) -> Result<Self> {
        // Rust's standard output flushes each line.
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
            progress: Bar::new(None),
            started: Instant::now(),
        })
    }

    /// Writes the wanted lines of a batch. Returns the error if items were refused.
    fn write(&mut self, answered: Answered<Parts>) -> Result<Option<Error>> {
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

    /// Returns how many lines were not written.
    fn unwritten(&self) -> u64 {
        let written = self.buffer.get_ref().bytes;
        self.ends.iter().filter(|end| **end > written).count() as u64
    }

    /// Adds the number of lost lines to the error of a failed output.
    fn explain(&self, error: Error) -> Error {
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
            // An equal line of the resent batches was already printed.
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
    fn is_flushed(&self) -> bool {
        self.buffer.buffer().is_empty()
    }

    /// Writes the buffer.
    fn flush(&mut self) -> Result<()> {
        if self.is_broken {
            return Ok(());
        }
        self.written = Instant::now();
        self.buffer.flush().inspect_err(|_| self.is_broken = true).context(WRITING)?;
        self.ends.clear();
        Ok(())
    }

    /// Shows the progress on a terminal, unless the lines are printed there.
    fn show(&self) {
        if io::stdout().is_terminal() {
            return;
        }
        self.progress.set(self.lines, || {
            let (lines, new) = (counted(self.lines, "line"), HumanCount(self.new));
            let rate = HumanCount(self.lines / self.started.elapsed().as_secs().max(1));
            format!("{lines}, {new} of them new, {rate} a second")
        });
    }

    /// Prints the summary to the error output.
    fn summarize(&self, arguments: &Arguments, elapsed: Duration) {
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
