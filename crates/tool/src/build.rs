//! `bloomgate build`: builds a filter from the lines of files without a server, and writes it to a file for `restore`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Instant, SystemTime};

use anyhow::{Result, anyhow, ensure};
use bloomgate_filter::arguments::{Creation, Refusal, reserve};
use bloomgate_filter::format::Arrival;
use bloomgate_filter::format::records::{DumpMark, GENERATIONS};
use bloomgate_filter::hash::{HashBatch, Hasher};
use bloomgate_filter::kinds::{Defaults, Origin, Spec};
use bloomgate_filter::{BATCH, CLIENT_LAYERS_MAX, Ceiling, Error, Filter, Moment};
use indicatif::{BinaryBytes, HumanCount, HumanDuration};
use serde_json::json;

use crate::archive::catalogue::{Listing, Row};
use crate::archive::file::{Archive, Output};
use crate::archive::{Contents, Head, ReadMode};
use crate::input::{BytesRead, size_bytes};
use crate::names::counted;
use crate::numbers::{count, rate_in_digits, reason};
use crate::progress::Bar;
use crate::server::usage;
use crate::stream::reader::Reading;
use crate::stream::{Field, Lines};

/// Build a filter from the lines of files without a server, for `restore`
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomgate build 0.01 1000000 urls.txt.gz -o urls.bloom --key urls
  sort -u *.log | bloomgate build 0.001 50000000 --nonscaling --seed 7000 -o seen.bloom --key seen
  bloomgate restore urls.bloom

The options are those of BF.RESERVE. The filter equals the one that a server builds from the same options, seed and items,
added in the same order.")]
pub struct Arguments {
    /// The false positive rate, between 0 and 1
    rate: String,
    /// The number of items to reserve room for
    #[arg(value_parser = count)]
    capacity: u64,
    /// Files with one item per line, plain, gzip or zstd; `-` is the standard input
    #[arg(default_value = "-")]
    inputs: Vec<PathBuf>,
    /// The file to write; `-` is the standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The key under which `restore` creates the filter
    #[arg(long, default_value = "filter")]
    key: String,
    /// The growth factor from one layer to the next [default: 2]
    #[arg(long)]
    expansion: Option<u32>,
    /// Refuse items when the filter is full instead of growing
    #[arg(long, conflicts_with = "expansion")]
    nonscaling: bool,
    /// The seed: a number, or with --hash siphash a key of 32 hexadecimal digits [default: random]
    #[arg(long)]
    seed: Option<String>,
    /// The hash function [default: murmur3]
    #[arg(long, value_parser = ["murmur3", "siphash"])]
    hash: Option<String>,
    /// The layout of the filter [default: native]
    #[arg(long, value_parser = ["native", "redisbloom"])]
    layout: Option<String>,
    /// A cuckoo filter, from which items can be deleted
    #[arg(long)]
    cuckoo: bool,
    /// Use counters instead of bits, so that deletes are unlimited
    #[arg(long)]
    counting: bool,
    /// The number of threads [default: the number of processors]
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Compress the file with zstd. A full filter hardly shrinks
    #[arg(long)]
    compress: bool,
    /// Read the file back and check it before it is renamed to its final name
    #[arg(long)]
    verify: bool,
    /// Write the file even if the input has no lines
    #[arg(long)]
    allow_empty: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let Creation { spec, asked_rate, .. } = arguments.creation()?;
    let begin = Instant::now();
    let made_at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis();
    let output = Output::create(&arguments.output, arguments.compress, u64::try_from(made_at)?)?;
    let to_stdout = output.is_stdout();
    if to_stdout && arguments.verify {
        return Err(usage("--verify reads the file back: use -o FILE"));
    }
    let ((filter, tally, kind), bytes) = output.fill(arguments.verify, |archive| {
        let mut filter = Filter::new(&spec, &ClientRules).map_err(refused)?;
        let tally = arguments.add(&mut filter)?;
        ensure!(
            arguments.allow_empty || tally.lines > 0,
            "the input has no lines, so no file was written. To write an empty filter, use --allow-empty"
        );
        let kind = put(archive, &arguments.key, &filter)?;
        Ok((filter, tally, kind))
    })?;
    let taken_rate = spec.rate();
    let remark = if taken_rate == asked_rate { String::new() } else { format!("with a rate of {taken_rate}") };
    let seconds = begin.elapsed();
    let row = Row {
        database: 0,
        key: arguments.key.clone().into_bytes(),
        kind: kind.to_owned(),
        contents: contents(&filter),
        ttl_ms: None,
        remark,
    };
    let name = if to_stdout { "the standard output".to_owned() } else { arguments.output.display().to_string() };
    let facts = vec![
        ("file", json!(name)),
        ("file_bytes", json!(bytes)),
        ("lines", json!(tally.lines)),
        ("new", json!(tally.new)),
        ("seconds", json!(seconds.as_secs_f64())),
        ("verified", json!(arguments.verify)),
    ];
    let last = format!(
        "{}, {} of them new, in {}; {name} has {}",
        counted(tally.lines, "line"),
        HumanCount(tally.new),
        if seconds.as_secs() < 10 {
            format!("{:.2} s", seconds.as_secs_f64())
        } else {
            HumanDuration(seconds).to_string()
        },
        BinaryBytes(bytes)
    );
    Listing { rows: vec![row], facts, is_whole: true, ..Listing::default() }.print(arguments.json, to_stdout, &last)
}

impl Arguments {
    /// Parses the options as BF.RESERVE on a server with default settings does.
    fn creation(&self) -> Result<Creation> {
        let mut words: Vec<String> =
            vec!["BF.RESERVE".to_owned(), self.key.clone(), rate_in_digits(&self.rate), self.capacity.to_string()];
        let mut push = |word: &str, value: Option<String>| {
            words.extend(value.map(|value| [word.to_owned(), value]).into_iter().flatten());
        };
        push("EXPANSION", self.expansion.map(|expansion| expansion.to_string()));
        push("SEED", self.seed.clone());
        push("HASH", self.hash.clone());
        push("LAYOUT", self.layout.clone());
        words.extend(self.nonscaling.then(|| "NONSCALING".to_owned()));
        words.extend(self.cuckoo.then(|| "CUCKOO".to_owned()));
        words.extend(self.counting.then(|| "COUNTING".to_owned()));
        let mut entropy = [0; 32];
        getrandom::fill(&mut entropy).map_err(|error| anyhow!("no random bytes for the seed: {error}"))?;
        reserve::parse(&words, &Defaults { entropy, has_random_seeds: true, ..Defaults::default() })
            .map(|reserve| reserve.creation)
            .map_err(|refusal| usage(format!("invalid filter: {}", reason(&refusal, &words))))
    }

    fn add(&self, filter: &mut Filter) -> Result<Tally> {
        let threads = self
            .threads
            .map_or_else(|| thread::available_parallelism().map_or(1, NonZeroUsize::get), NonZeroUsize::get);
        let bar = Bar::new(size_bytes(&self.inputs));
        add_all(filter, &self.inputs, threads, &bar)
    }
}

/// Writes a filter as the records of BF.SCANDUMP. Returns its kind.
fn put(archive: &mut Archive<'_>, key: &str, filter: &Filter) -> Result<&'static str> {
    let mut random = [0; 2];
    getrandom::fill(&mut random).map_err(|error| anyhow!("no random bytes: {error}"))?;
    // Generations begin with 1, as on a server.
    let generation = u16::from_le_bytes(random) % (GENERATIONS - 1) + 1;
    let (mut iterator, mut mark, mut kind) = (0, DumpMark::default(), None);
    while let Some((next, data)) =
        filter.next_record(generation, iterator, &mut mark).map_err(|error| anyhow!("{error}"))?
    {
        if kind.is_none() {
            let kind = *kind.insert(Arrival::kind_of(&data).map_err(|error| anyhow!("{error}"))?);
            let head = Head {
                database: 0,
                key: key.as_bytes().to_vec(),
                type_name: filter.stored_as().name().to_str()?.to_owned(),
                kind: kind.to_owned(),
                mode: ReadMode::Records,
                ttl_ms: None,
                before: contents(filter),
            };
            archive.put(|writer| writer.filter(&head))?;
        }
        archive.put(|writer| writer.part(next, &data))?;
        iterator = next;
    }
    archive.put(|writer| writer.filter_end(contents(filter)))?;
    kind.ok_or_else(|| anyhow!("the filter has no records"))
}

fn contents(filter: &Filter) -> Contents {
    let counted = filter.contents();
    let (capacity, layers, items, bytes) = (counted.capacity, counted.layers, counted.items, counted.size_bytes);
    Contents { capacity, layers, items, bytes, deletes: 0 }
}

fn refused(error: Error) -> anyhow::Error {
    anyhow!("cannot create the filter: {}", reason(&Refusal::from(error), &[] as &[&str]))
}

// Adds the lines of the input to a filter. One thread reads the lines, several hash them, and one adds them in the order of the input,
// because the order decides which items count as new and when the filter grows. So the filter equals the one that a server builds.

/// The maximum number of parts of the input queued for each thread.
const WAITING: usize = 16;

/// The ceiling of `build`: the number of layers that a server's client can create, and any amount of memory.
struct ClientRules;

impl Ceiling for ClientRules {
    fn available_bytes(&self, _filter_bytes: u64, _asked_bytes: u64) -> u64 {
        u64::MAX
    }

    fn layers_max(&self) -> usize {
        CLIENT_LAYERS_MAX
    }
}

/// The result of adding lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    /// Lines read.
    lines: u64,
    /// Lines that were new.
    new: u64,
}

/// A part of the input, passed to the adding thread.
enum Work {
    /// The hashes of the lines, which are enough for a native filter.
    Hashes(Vec<HashBatch>),
    /// The lines, for any other filter.
    Lines(Lines),
}

impl Work {
    fn of(lines: Lines, hasher: Option<Hasher>) -> Self {
        let Some(hasher) = hasher else { return Self::Lines(lines) };
        let mut hashes = Vec::with_capacity(lines.len() / BATCH + 1);
        let mut items = items(&lines);
        loop {
            let batch = hasher.hash_batch(&mut items);
            hashes.push(batch);
            if batch.len() < BATCH {
                return Self::Hashes(hashes);
            }
        }
    }
}

/// Adds all lines of `inputs`.
fn add_all(filter: &mut Filter, inputs: &[PathBuf], threads: usize, bar: &Bar) -> Result<Tally> {
    let hasher = if let Spec::Native(spec) = filter.spec() { Some(spec.hasher) } else { None };
    let read_bytes = BytesRead::default();
    let reading = Reading { files: inputs.to_vec(), field: Field::Line, end: b'\n', skip_bad: false };
    let input = reading.start(read_bytes.clone());
    let mut tally = Tally::default();
    let mut add = |work: Work| -> Result<()> {
        add_part(filter, work, &mut tally)?;
        let message = || format!("{}, {} of them new", counted(tally.lines, "line"), HumanCount(tally.new));
        bar.set(read_bytes.load(Ordering::Relaxed), message);
        Ok(())
    };
    if threads < 2 {
        input.iter().try_for_each(|lines| add(Work::of(lines?, hasher)))?;
        return Ok(tally);
    }
    thread::scope(|scope| {
        let (mut to_threads, mut from_threads) = (Vec::new(), Vec::new());
        for _ in 1..threads {
            let (to_thread, parts) = sync_channel::<Lines>(WAITING);
            let (works, from_thread) = sync_channel(WAITING);
            scope.spawn(move || parts.iter().try_for_each(|lines| works.send(Work::of(lines, hasher))));
            to_threads.push(to_thread);
            from_threads.push(from_thread);
        }
        // Parts are sent to the threads in turn and received in the same order, which preserves the order of the input.
        let sender = scope.spawn(move || -> Result<()> {
            for (lines, thread) in input.iter().zip(to_threads.iter().cycle()) {
                // The receivers were dropped because adding failed.
                if thread.send(lines?).is_err() {
                    break;
                }
            }
            Ok(())
        });
        let added = from_threads.iter().cycle().map_while(|thread| thread.recv().ok()).try_for_each(&mut add);
        // Threads that are blocked on sending end now.
        drop(from_threads);
        let sent = sender.join().map_err(|_| anyhow!("the thread that passes the input on panicked"))?;
        added.and(sent)
    })?;
    Ok(tally)
}

fn add_part(filter: &mut Filter, work: Work, tally: &mut Tally) -> Result<()> {
    match (work, filter) {
        (Work::Hashes(hashes), Filter::Native(filter)) => {
            for batch in &hashes {
                let added = filter.add_batch(batch, &ClientRules);
                tally.count(added.done, added.new.len().into(), added.error)?;
            }
        }
        (Work::Lines(lines), filter) => {
            let mut items = items(&lines).peekable();
            while items.peek().is_some() {
                let batch = items.by_ref().take(BATCH);
                let added = filter.add_batch(batch, Origin::Client, &Moment(0), &ClientRules);
                tally.count(added.done, added.new.len().into(), added.error)?;
            }
        }
        // Only lines for native filters are hashed.
        (Work::Hashes(_), _) => return Err(anyhow!("lines were hashed for a filter that is not native")),
    }
    Ok(())
}

impl Tally {
    fn count(&mut self, done: usize, new: u64, error: Option<Error>) -> Result<()> {
        self.lines += done as u64;
        self.new += new;
        let Some(error) = error else { return Ok(()) };
        let refusal = Refusal::from(error).to_string();
        Err(anyhow!("line {} was refused: {}", HumanCount(self.lines + 1), refusal.trim_start_matches("ERR "))
            .context(format!("after {}", counted(self.lines, "line"))))
    }
}

/// Returns the items of some lines: without the carriage returns at their ends, and without empty lines.
fn items(lines: &Lines) -> impl Iterator<Item = &[u8]> {
    let trimmed = lines.items().map(|mut line| {
        while let [before @ .., b'\r'] = line {
            line = before;
        }
        line
    });
    trimmed.filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn lines_are_the_same_however_the_input_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let long = vec![b'x'; 800_000];
        let many: Vec<u8> = (0..100_000).flat_map(|number| format!("line {number}\n").into_bytes()).collect();
        let contents: [&[u8]; 9] = [
            b"",
            b"a",
            b"a\n\nb\r\n\xff\x00",
            b"\n",
            b"\r\n\r\r\n",
            &long,
            &[&long[..], b"\nb"].concat(),
            &many,
            b"last",
        ];
        let paths: Vec<_> = (0..contents.len()).map(|number| folder.path().join(number.to_string())).collect();
        for (path, contents) in paths.iter().zip(contents) {
            fs::write(path, contents).unwrap();
        }
        let expected: Vec<&[u8]> = contents
            .iter()
            .flat_map(|contents| contents.split(|byte| *byte == b'\n'))
            .map(|line| line.get(..line.iter().rposition(|byte| *byte != b'\r').map_or(0, |last| last + 1)).unwrap())
            .filter(|line| !line.is_empty())
            .collect();
        let read_bytes = BytesRead::default();
        let reading = Reading { files: paths, field: Field::Line, end: b'\n', skip_bad: false };
        let mut found = Vec::new();
        for lines in reading.start(read_bytes.clone()) {
            found.extend(items(&lines.unwrap()).map(<[u8]>::to_vec));
        }
        assert!(found == expected);
        assert_eq!(read_bytes.load(Ordering::Relaxed), contents.iter().map(|bytes| bytes.len() as u64).sum::<u64>());
    }
}
