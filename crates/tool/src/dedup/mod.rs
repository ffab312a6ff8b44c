//! `bloomgate dedup`: prints the input lines that the filter has not seen, in their order. Like `uniq`, but for lines that are
//! far apart, in other runs, or on other machines.

mod output;

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use redis::{Value, cmd};

use crate::creation::Creation;
use crate::server::{Options, Server};
use crate::signals::{self, Signals};
use crate::stream::flow::Batch;
use crate::stream::input::BytesRead;
use crate::stream::reader::{LINES_AT_ONCE, Reading};
use crate::stream::{Column, Field, Flow, Lines};
use crate::target::{Question, Target};
use output::Output;

/// How long a reply may take. A batch takes milliseconds, and sending it again loses nothing.
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
    #[arg(long, num_args = 2, value_names = ["RATE", "CAPACITY"], conflicts_with = "shards")]
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

/// Runs the subcommand.
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
    output.progress.finish_and_clear();
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

/// Passes the whole input through the filter. After a failure, the lines in flight are printed, or counted if the output is what
/// failed.
fn pass(mut flow: Flow<Parts>, input: &Receiver<Result<Lines>>, output: &mut Output) -> Result<()> {
    let mut input = Input { receiver: input, held: None, end: None, signals: Signals::catch()? };
    let result = pass_on(&mut flow, &mut input, output).and_then(|()| output.flush());
    let Err(mut error) = result else { return Ok(()) };
    while output.is_broken()
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
    /// A signal stops it after the batches in flight are printed.
    signals: Signals,
}

impl Input<'_> {
    /// Returns the lines that have arrived so far, up to a full batch. With `is_idle` it waits for some.
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
            match self.receiver.recv_timeout(signals::INTERVAL) {
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
