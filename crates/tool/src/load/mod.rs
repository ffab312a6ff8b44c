//! `bloomgate load`: fills a new filter from a file or a database and replaces the existing one atomically, so that clients never query a
//! partial filter.

mod checkpoint;
mod rows;
mod source;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Error, Result, bail, ensure};
use indicatif::{BinaryBytes, HumanCount};
use redis::{Value, cmd, from_redis_value};
use serde_json::json;

use crate::database;
use crate::exit::{self, Interrupted, Signals};
use crate::input::BytesRead;
use crate::load::checkpoint::{Checkpoint, Keys};
use crate::load::rows::{Position, Rows};
use crate::load::source::{Items, Skipped, Source};
use crate::names::counted;
use crate::numbers;
use crate::progress::{Bar, Pace, Total};
use crate::report::print;
use crate::server::usage;
use crate::server::{ConnectionLost, Options, RECONNECT_TIMEOUT, Server};
use crate::stream::reader::Reading;
use crate::stream::{Answer, Answered, Column, Field, Flow};
use crate::target::{Creation, Question, Target};

/// A checkpoint is written after this time or this many rows.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);
const CHECKPOINT_ROWS: u64 = 1 << 18;
/// The load fails after this many lost connections without progress.
const LOSSES_MAX: u32 = 5;

const EXAMPLES: &str = "\
Examples:
  The lines of a file, into a new filter of their number with a false positive rate of 1 in 1000:
    bloomgate load urls.txt.gz --key urls --create 0.001
  A named column of a CSV file; the second column of a TSV file:
    bloomgate load users.csv --column email --key emails --create 0.001 5000000
    bloomgate load users.tsv --tsv --column 2 --key emails --create 0.001
  A SQLite table; the rows of a query:
    bloomgate load --sqlite shop.db --table orders --column id --key ids --create 0.001
    bloomgate load --sqlite shop.db --query 'SELECT id FROM paid' --key paid --create 0.001
  The lines of a file, into an empty filter with all options of the existing one:
    bloomgate load urls.txt.gz --key urls
  A filter from which items can be deleted:
    bloomgate load spam.txt --key spam --create 0.001 -- HASH siphash
  A filter that forgets items after a day:
    bloomgate load urls.txt.gz --key today --create 0.001 -- WINDOW 86400
  A PostgreSQL table; the same command again resumes an interrupted load:
    bloomgate load --postgres postgres://app@db/shop --table orders --column id \\
      --key ids --create 0.001 --resume

The filter is built under another key, {KEY}:loading, and renamed to KEY when it is complete. Until
then KEY answers as before. Without --create the new filter has all options of the existing one, with
--create its kind (HASH, LAYOUT, EXPANSION, NONSCALING, CUCKOO, COUNTING), unless other options follow `--`.
KEY's time to live is not kept. Items that writers add to KEY meanwhile
(BF.ADD, BF.CHANGED) are lost at that moment unless the source has them. Let writers add to both
keys during a load, or fill KEY itself with --in-place.

Items are bytes: a line without its end, the bytes of a text or blob, or any other value in the
database's text form. Empty lines and NULLs are skipped.";

/// Fill a filter from a file, a SQLite database or a PostgreSQL table
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("source").required(true).args(["file", "sqlite", "postgres"]))]
pub struct Arguments {
    /// A file with one item per line or with columns, plain, gzip or zstd; `-` is the standard input
    file: Option<PathBuf>,
    /// A SQLite database file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tsv", "header", "skip_bad"])]
    sqlite: Option<PathBuf>,
    /// A PostgreSQL server: postgres://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE][?sslmode=require for TLS]
    #[arg(long, value_name = "URL", conflicts_with_all = ["tsv", "header", "skip_bad"])]
    postgres: Option<String>,
    /// The column with the items. A file is then read as CSV, and the column may be a number from 1
    #[arg(long, value_name = "NAME|N")]
    column: Option<String>,
    /// Read tab-separated columns without quotes
    #[arg(long, requires = "column")]
    tsv: bool,
    /// The first line holds the names of the columns, even if --column is a number
    #[arg(long, requires = "column")]
    header: bool,
    /// Lines end with a NUL byte, as with `find -print0`
    #[arg(short, long, conflicts_with_all = ["column", "sqlite", "postgres"])]
    zero_terminated: bool,
    /// Skip lines without that column instead of failing
    #[arg(long, requires = "column")]
    skip_bad: bool,
    /// The table of the database; for PostgreSQL also SCHEMA.TABLE
    #[arg(long, requires = "column", conflicts_with = "file")]
    table: Option<String>,
    /// A database query whose rows are loaded; --column selects one of several columns
    #[arg(long, value_name = "SQL", conflicts_with_all = ["table", "file"])]
    query: Option<String>,
    /// The filter's key
    #[arg(long)]
    key: String,
    /// The false positive rate and the capacity [default: the number of items in the source, counted first]. FILE
    /// must precede this option. Without it, the new filter has all options of the existing one
    #[arg(long, num_args = 1..=2, value_names = ["RATE", "CAPACITY"], value_parser = numbers::rate_or_capacity)]
    create: Option<Vec<String>>,
    /// With --create: more options of BF.RESERVE, as in `-- NONSCALING HASH siphash` [default: those of the existing filter]
    #[arg(last = true, requires = "create")]
    words: Vec<String>,
    /// Add to the filter at KEY instead of building another one
    #[arg(long)]
    in_place: bool,
    /// Replace KEY even if the source has no items
    #[arg(long, conflicts_with = "in_place")]
    allow_empty: bool,
    /// The key is the name of a sharded filter
    #[arg(long, requires = "in_place", conflicts_with_all = ["create", "resume"])]
    shards: bool,
    /// Resume an interrupted load of the same source. For PostgreSQL, give it to the first run, too, and use --table
    #[arg(long)]
    resume: bool,
}

impl Arguments {
    fn source(&self) -> Result<Source> {
        let rows = || Rows::of(self.table.as_ref(), self.column.as_ref(), self.query.as_ref());
        if let Some(path) = &self.sqlite {
            return Ok(Source::Sqlite { path: path.clone(), rows: rows()? });
        }
        if let Some(url) = &self.postgres {
            database::parse(url)?;
            if self.resume && self.table.is_none() {
                return Err(usage("--resume needs a --table: the rows of a PostgreSQL query have no order"));
            }
            return Ok(Source::Postgres { url: url.clone(), rows: rows()?, is_ordered: self.resume });
        }
        let path = self.file.clone().unwrap_or_default();
        let end = if self.zero_terminated { 0 } else { b'\n' };
        let delimiter = if self.tsv { b'\t' } else { b',' };
        let field = match &self.column {
            Some(column) => Field::Column { delimiter, column: Column::of(column, self.header)? },
            None => Field::Line,
        };
        let reading = Reading { files: vec![path.clone()], field, end, skip_bad: self.skip_bad };
        Ok(Source::File { path, reading })
    }
}

/// A running load.
struct Load<'a> {
    arguments: &'a Arguments,
    /// The filter to create; `None` to use the options of the existing filter.
    create: Option<Creation>,
    source: Source,
    keys: Keys,
    /// The checkpoint. `None` with --in-place and without --resume.
    checkpoint: Option<Checkpoint>,
    bytes_read: BytesRead,
    /// The position up to which the server has confirmed the items.
    confirmed: Position,
    /// Whether the server has refused an item.
    is_refused: bool,
    new: u64,
    /// The number of lines without the column in this pass.
    skipped: Skipped,
    signals: Signals,
}

pub fn run(options: &Options, arguments: &Arguments) -> Result<()> {
    let source = arguments.source()?;
    let mut create = arguments.create.as_deref().map(|values| Creation::of(values, &arguments.words)).transpose()?;
    let is_counted = create.as_ref().is_some_and(|create| create.capacity.is_none());
    if source.is_stream() && arguments.resume {
        return Err(usage("--resume: the source can be read only once"));
    }
    if source.is_stream() && is_counted {
        return Err(usage(
            "the source can be read only once, so its items cannot be counted: use --create RATE CAPACITY",
        ));
    }
    let mut server = Server::connect(options)?;
    let keys = Keys::of(&arguments.key);
    ensure!(
        arguments.in_place || !server.is_cluster() || keys.are_together(),
        "no other key can share the slot of `{}` because of its braces: use --in-place or another --key",
        keys.key
    );
    // Only a filter may be replaced.
    server.ask(cmd("BF.CARD").arg(&keys.key), &keys.key)?;
    if let Some(create) = &mut create {
        create.keep_kind_of(&mut server, &keys.key)?;
    } else if !arguments.in_place {
        ensure!(
            server.ask(cmd("EXISTS").arg(&keys.key), &keys.key)? != Value::Int(0),
            "there is no filter `{}`: create it with --create RATE [CAPACITY]",
            keys.key
        );
    }
    if let Some(create) = create.as_mut().filter(|_| is_counted) {
        create.capacity = Some(count_items(&source)?);
    }
    let mut load = Load {
        arguments,
        create,
        source,
        keys,
        checkpoint: None,
        bytes_read: BytesRead::default(),
        confirmed: Position::default(),
        is_refused: false,
        new: 0,
        skipped: Skipped::default(),
        signals: Signals::catch()?,
    };
    let begun = load.begin(&mut server);
    let counted_items = load.create.as_ref().and_then(|create| create.capacity).filter(|_| is_counted);
    let total = match (counted_items, load.source.size_bytes()) {
        (Some(items), _) => Total::Rows(items),
        (None, Some(bytes)) => Total::Bytes(bytes, load.bytes_read.clone()),
        (None, None) => Total::Unknown,
    };
    let mut pace = Pace::new(total, load.confirmed.rows);
    let result = begun.and_then(|()| load.fill(&mut server, &mut pace)).and_then(|()| load.ensure_replaceable());
    pace.finish();
    if let Some(checkpoint) = &load.checkpoint {
        match &result {
            Ok(()) => checkpoint.finish(&mut server, !arguments.in_place)?,
            // A filter that no later run continues only wastes memory. If deleting it fails, the first failure is reported.
            Err(error) if !error.is::<ConnectionLost>() && (!arguments.resume || load.confirmed.last.is_none()) => {
                _ = checkpoint.discard(&mut server);
            }
            Err(error) if error.is::<Interrupted>() => load.save(&mut server)?,
            Err(_) => {}
        }
    }
    result.map_err(|error| load.explain(error))?;
    load.report(&mut server, &pace)
}

/// Counts the items of the source, for a filter without a given capacity.
fn count_items(source: &Source) -> Result<u64> {
    let spinner = Bar::spinner("counting the items");
    let count = source.count();
    spinner.finish();
    Ok(count?.max(1))
}

impl Load<'_> {
    /// Returns the key that receives the items.
    fn key(&self) -> &str {
        if self.arguments.in_place { &self.keys.key } else { &self.keys.loading }
    }

    /// Becomes the owner of the load, and creates the filter unless an earlier load is resumed.
    fn begin(&mut self, server: &mut Server) -> Result<()> {
        if self.arguments.in_place && !self.arguments.resume {
            return self.begin_anew(server);
        }
        // A stream has no fingerprint and cannot be resumed.
        let state = if self.source.is_stream() { json!("stream") } else { self.source.fingerprint()? };
        let source = json!([state, self.arguments.create, self.arguments.words, self.arguments.in_place]);
        let (checkpoint, earlier) = Checkpoint::begin(self.keys.clone(), source, self.arguments.resume, server)?;
        self.checkpoint = Some(checkpoint);
        let exists = server.ask(cmd("EXISTS").arg(self.key()), self.key())? != Value::Int(0);
        if let Some(position) = earlier.filter(|_| self.arguments.resume && exists) {
            eprintln!("bloomgate: resuming after {}", counted(position.rows, "row"));
            self.confirmed = position;
            return Ok(());
        }
        if self.arguments.resume {
            eprintln!("bloomgate: there is no interrupted load of this source: starting from the beginning");
        }
        self.begin_anew(server)
    }

    /// Starts with an empty filter, or with the existing one if the load is in place.
    fn begin_anew(&mut self, server: &mut Server) -> Result<()> {
        self.confirmed = Position::default();
        let (Self { create, keys, .. }, key) = (&self, self.key());
        if self.arguments.in_place {
            return match create {
                Some(create) if server.ask(cmd("EXISTS").arg(key), key)? == Value::Int(0) => create.create(server, key),
                _ => Ok(()),
            };
        }
        let mut commands = vec![cmd("DEL").arg(key).to_owned()];
        match create {
            Some(create) => commands.push(create.command(key)),
            // An emptied copy has all options of the existing filter, including the seed.
            None => {
                commands.push(cmd("COPY").arg(&keys.key).arg(key).to_owned());
                commands.push(cmd("BF.CLEAR").arg(key).to_owned());
            }
        }
        let Some(checkpoint) = &self.checkpoint else { return Ok(()) };
        commands.push(checkpoint.expire());
        checkpoint.transact(server, &commands)
    }

    /// Adds all rows to the filter. After a lost connection it continues from the last checkpoint.
    fn fill(&mut self, server: &mut Server, pace: &mut Pace) -> Result<()> {
        let (mut losses, mut farthest) = (0, 0);
        loop {
            let again = if losses > 0 { self.go_on(server) } else { Ok(()) };
            let target = again.and_then(|()| Target::open(server, self.key(), self.arguments.shards));
            let result = target.and_then(|target| self.pass(server, &target, pace));
            let error = match result {
                Err(error) if error.is::<ConnectionLost>() => error,
                result => return result,
            };
            losses = if self.confirmed.rows > farthest { 1 } else { losses + 1 };
            farthest = farthest.max(self.confirmed.rows);
            if losses > LOSSES_MAX {
                return Err(error);
            }
            if self.source.is_stream() {
                // If another load has taken over, report that instead.
                server.reconnect(RECONNECT_TIMEOUT)?;
                self.checkpoint.as_ref().map_or(Ok(None), |checkpoint| checkpoint.position(server))?;
                bail!("{error}; the source can be read only once: start again");
            }
            eprintln!("bloomgate: {error}; waiting for it");
        }
    }

    /// Adds the fate of the rows to the error of an interruption.
    fn explain(&self, error: Error) -> Error {
        let (rows, key) = (counted(self.confirmed.rows, "row"), &self.keys.key);
        if !error.is::<Interrupted>() {
            return error;
        }
        error.context(if self.arguments.resume && self.confirmed.last.is_some() {
            format!("after {rows}: the same command resumes the load")
        } else if self.arguments.in_place {
            format!("after {rows}, which are in `{key}`")
        } else {
            format!("after {rows}: `{key}` is unchanged, and the new filter is deleted")
        })
    }

    /// Refuses to replace a filter with an empty one.
    fn ensure_replaceable(&self) -> Result<()> {
        let Arguments { in_place, allow_empty, .. } = self.arguments;
        ensure!(
            *in_place || *allow_empty || self.confirmed.last.is_some(),
            "the source has no items: `{}` is unchanged. To replace it with an empty filter, use --allow-empty",
            self.keys.key
        );
        Ok(())
    }

    /// Reconnects, and reads from the server how much of the load was preserved.
    fn go_on(&mut self, server: &mut Server) -> Result<()> {
        server.reconnect(RECONNECT_TIMEOUT)?;
        let position = match &self.checkpoint {
            Some(checkpoint) => checkpoint.position(server)?,
            None => None,
        };
        let exists = server.ask(cmd("EXISTS").arg(self.key()), self.key())? != Value::Int(0);
        let has_checkpoint = position.is_some();
        match position.filter(|_| exists) {
            Some(position) => {
                // Stores the new connection before any command is sent on it.
                if let Some(checkpoint) = &mut self.checkpoint {
                    checkpoint.save(server, &position)?;
                }
                self.confirmed = position;
            }
            // The server may have lost confirmed items.
            None => {
                if let Some(checkpoint) = self.checkpoint.take() {
                    if has_checkpoint {
                        checkpoint.discard(server)?;
                    }
                    let (keys, source) = checkpoint.into_parts();
                    self.checkpoint = Some(Checkpoint::begin(keys, source, self.arguments.resume, server)?.0);
                }
                self.begin_anew(server)?;
            }
        }
        Ok(())
    }

    fn pass(&mut self, server: &mut Server, target: &Target, pace: &mut Pace) -> Result<()> {
        self.bytes_read.store(0, Ordering::Relaxed);
        self.skipped.store(0, Ordering::Relaxed);
        let rows = self.source.start(self.confirmed.clone(), self.bytes_read.clone(), self.skipped.clone());
        let mut flow = Flow::new(server, target, Question::Add);
        let mut result = self.pass_on(&rows, &mut flow, pace);
        // The connection is reused, so every reply must be read.
        while result.as_ref().is_err_and(|error| !error.is::<ConnectionLost>()) {
            match flow.receive(true) {
                Ok(Some(answered)) => self.confirm(answered),
                Ok(None) => break,
                Err(error) => result = Err(error),
            }
        }
        result
    }

    fn pass_on(&mut self, rows: &Receiver<Result<Items>>, flow: &mut Flow<'_, Items>, pace: &mut Pace) -> Result<()> {
        let (mut has_ended, mut saved, mut saved_rows) = (false, Instant::now(), self.confirmed.rows);
        loop {
            self.signals.check()?;
            let is_due = self.checkpoint.is_some()
                && (saved.elapsed() > CHECKPOINT_INTERVAL || self.confirmed.rows - saved_rows > CHECKPOINT_ROWS);
            if !has_ended && !is_due && !flow.is_full() {
                match rows.recv_timeout(exit::INTERVAL) {
                    Ok(items) => flow.send(items?)?,
                    Err(RecvTimeoutError::Disconnected) => has_ended = true,
                    Err(RecvTimeoutError::Timeout) => {}
                }
                continue;
            }
            let Some(mut answered) = flow.receive(true)? else {
                if has_ended {
                    return Ok(());
                }
                self.save(flow.server)?;
                (saved, saved_rows) = (Instant::now(), self.confirmed.rows);
                continue;
            };
            if let Some(error) = answered.error.take() {
                self.is_refused = true;
                return Err(error);
            }
            self.confirm(answered);
            pace.show(self.confirmed.rows);
        }
    }

    fn confirm(&mut self, answered: Answered<Items>) {
        // Items after a refused one are not confirmed.
        self.is_refused |= answered.error.is_some();
        if self.is_refused {
            return;
        }
        let is_new = |answer: &&Answer| **answer == Answer::Known { is_new: true };
        self.new += answered.answers.iter().filter(is_new).count() as u64;
        self.confirmed = answered.batch.after;
    }

    /// Writes the checkpoint, if there is one.
    fn save(&mut self, server: &mut Server) -> Result<()> {
        let position = if self.source.is_ordered() { &self.confirmed } else { &Position::default() };
        self.checkpoint.as_mut().map_or(Ok(()), |checkpoint| checkpoint.save(server, position))
    }

    /// Prints the result.
    fn report(&self, server: &mut Server, pace: &Pace) -> Result<()> {
        let target = Target::open(server, &self.keys.key, self.arguments.shards)?;
        let mut bytes = 0;
        for key in target.keys() {
            let usage = server.ask(cmd("MEMORY").arg("USAGE").arg(&key), &key)?;
            bytes += from_redis_value::<Option<u64>>(usage)?.unwrap_or(0);
        }
        let (rows, new, rate) = (self.confirmed.rows, HumanCount(self.new), HumanCount(pace.rate(self.confirmed.rows)));
        let skipped = self.skipped.load(Ordering::Relaxed);
        if skipped > 0 {
            eprintln!("bloomgate: skipped {} without the column", counted(skipped, "line"));
        }
        print(&format!(
            "{}, {new} of them new, in {:.1} s, {rate} a second; the filter takes {}\n",
            counted(rows, "row"),
            pace.elapsed().as_secs_f64(),
            BinaryBytes(bytes)
        ))?;
        Ok(())
    }
}
