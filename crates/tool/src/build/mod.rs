//! `bloomgate build`: builds a filter from the lines of files without a server, and writes it to a file for `restore`.

mod adding;
mod lines;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;
use std::time::{Instant, SystemTime};

use anyhow::{Result, anyhow, ensure};
use bloomgate_filter::Filter;
use bloomgate_filter::format::Arrival;
use bloomgate_filter::format::records::{DumpMark, GENERATIONS};
use bloomgate_filter::kinds::{Defaults, HashName, LayoutName};
use bloomgate_filter::words::{Creation, Refusal, reserve};
use bloomgate_filter::{Error, Scaling};
use clap::ValueEnum;
use indicatif::{BinaryBytes, HumanCount, HumanDuration};
use serde_json::json;

use crate::archive::{Archive, Contents, Head, How, Listing, Output, Row};
use crate::numbers::{count_in_digits, rate_in_digits, reason};
use crate::progress::Bar;
use crate::report::counted;
use crate::stream::input::size_bytes;
use crate::usage::usage;
use adding::{AsAClient, Tally, add_all};

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
    capacity: String,
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
    #[arg(long)]
    hash: Option<Hash>,
    /// The layout of the filter [default: native]
    #[arg(long)]
    layout: Option<Layout>,
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

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "lower")]
enum Hash {
    Murmur3,
    SipHash,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "lower")]
enum Layout {
    Native,
    RedisBloom,
}

/// Runs the subcommand.
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
        let mut filter = Filter::new(&spec, &AsAClient).map_err(refused)?;
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
        let mut words: Vec<String> = vec![
            "BF.RESERVE".to_owned(),
            self.key.clone(),
            rate_in_digits(&self.rate),
            count_in_digits(&self.capacity),
        ];
        let mut push = |word: &str, value: Option<String>| {
            words.extend(value.map(|value| [word.to_owned(), value]).into_iter().flatten());
        };
        push("EXPANSION", self.expansion.map(|expansion| expansion.to_string()));
        push("SEED", self.seed.clone());
        let value = |value: Option<clap::builder::PossibleValue>| value.map(|value| value.get_name().to_owned());
        push("HASH", value(self.hash.and_then(|hash| hash.to_possible_value())));
        push("LAYOUT", value(self.layout.and_then(|layout| layout.to_possible_value())));
        words.extend(self.nonscaling.then(|| "NONSCALING".to_owned()));
        words.extend(self.counting.then(|| "COUNTING".to_owned()));
        let mut entropy = [0; 32];
        getrandom::fill(&mut entropy).map_err(|error| anyhow!("no random bytes for the seed: {error}"))?;
        let defaults = Defaults {
            rate: 0.01,
            capacity: 100,
            scaling: Scaling::from_expansion(2),
            layout: LayoutName::Native,
            hash: HashName::Murmur3,
            tightening: 0.5,
            entropy,
            has_random_seeds: true,
            must_obey: false,
        };
        reserve::parse(&words, &defaults)
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
    // Like a server's generations, from 1.
    let generation = u16::from_le_bytes(random) % (GENERATIONS - 1) + 1;
    let (mut iterator, mut mark, mut kind) = (0, DumpMark::default(), None);
    while let Some((next, data)) =
        filter.next_record(generation, iterator, &mut mark).map_err(|error| anyhow!("{error}"))?
    {
        if kind.is_none() {
            let kind = *kind.insert(Arrival::kind_of(&data).map_err(|error| anyhow!("{error}"))?);
            let head = Head {
                key: key.as_bytes().to_vec(),
                type_name: filter.stored_as().name().to_str()?.to_owned(),
                kind: kind.to_owned(),
                how: How::Records,
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
    Contents { capacity: counted.capacity, layers: counted.layers, items: counted.items, bytes: counted.size_bytes }
}

fn refused(error: Error) -> anyhow::Error {
    anyhow!("cannot create the filter: {}", reason(&Refusal::from(error), &[] as &[&str]))
}
