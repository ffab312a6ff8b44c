//! `bloomgate crawl`: passes the links of a crawl frontier through a filter, as a crawler does to skip links that it has seen,
//! and reports memory, time, and errors against an exact set.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use indicatif::{BinaryBytes, HumanCount, HumanFloatCount};
use redis::{Cmd, Pipeline, Value, cmd};

use crate::input::{self, BytesRead, Links};
use crate::numbers;
use crate::progress::Progress;
use crate::report::{Report, counted, percent};
use crate::server::{Options, Server};

/// The set of an interrupted comparison expires by itself.
const COMPARED_SET_TTL_SECONDS: u64 = 3600;

/// Pass the lines of files through a Bloom filter (BF.MADD) and report new links, memory, speed and errors.
#[derive(clap::Args)]
pub struct Arguments {
    /// Files with one link per line, plain, gzip or zstd; `-` is the standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The filter's key
    #[arg(long)]
    key: String,
    /// Create the filter with room for this many links if the key is missing [default: the server's setting]
    #[arg(long, value_parser = numbers::capacity)]
    capacity: Option<u64>,
    /// With --capacity: the false positive rate [default: 0.01]
    #[arg(long, requires = "capacity", value_parser = numbers::rate)]
    rate: Option<f64>,
    /// Links per BF.MADD
    #[arg(long, default_value = "500")]
    batch: NonZeroUsize,
    /// Commands sent before their replies are read
    #[arg(long, default_value = "16")]
    pipeline: NonZeroUsize,
    /// Count the filter's errors against an exact set in the tool's memory. The filter must be empty at the start
    #[arg(long)]
    exact: bool,
    /// Also add the links to a Redis SET, compare the memory, then delete the SET
    #[arg(long)]
    compare_set: bool,
}

/// The filter's answers, and how often the exact set disagreed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    links: u64,
    new: u64,
    wrongly_seen: u64,
    wrongly_new: u64,
}

impl Tally {
    /// Counts one answer. `new_in_truth` is the answer of the exact set, if there is one.
    fn count(&mut self, called_new: bool, new_in_truth: Option<bool>) {
        self.links += 1;
        self.new += u64::from(called_new);
        self.wrongly_seen += u64::from(new_in_truth == Some(true) && !called_new);
        self.wrongly_new += u64::from(new_in_truth == Some(false) && called_new);
    }
}

/// The result of a crawl.
#[derive(Default)]
struct Crawled {
    tally: Tally,
    /// The exact set of --exact.
    exact: Option<HashSet<Vec<u8>>>,
    /// The time from sending the BF.MADD commands to reading their replies.
    in_server: Duration,
}

/// Runs the subcommand.
pub fn run(options: &Options, arguments: &Arguments) -> Result<()> {
    let mut server = Server::connect(options)?;
    let held = number(&server.ask(&keyed("BF.CARD", &arguments.key), &arguments.key)?)?;
    ensure!(
        !arguments.exact || held == 0,
        "the filter `{}` already holds {}, which --exact does not know: choose another --key or delete the filter",
        arguments.key,
        counted(held, "item"),
    );
    let requested_rate = create(&mut server, arguments)?;

    let compared_set = format!("{}:as-a-set:{}", arguments.key, std::process::id());
    let crawled = crawl(&mut server, arguments, &compared_set);
    let set_bytes = arguments.compare_set.then(|| measure_and_delete(&mut server, &compared_set));
    let crawled = crawled?;
    report(&mut server, arguments, requested_rate, &crawled, set_bytes.transpose()?)?;

    ensure!(
        crawled.tally.wrongly_new == 0,
        "{} reported as new although seen before: a Bloom filter never does that",
        counted(crawled.tally.wrongly_new, "link"),
    );
    Ok(())
}

/// Creates the filter if --capacity is given and the key is missing. Returns the filter's rate, if it is known.
fn create(server: &mut Server, arguments: &Arguments) -> Result<Option<f64>> {
    let key = &arguments.key;
    if number(&server.ask(&keyed("EXISTS", key), key)?)? != 0 {
        if arguments.capacity.is_some() {
            eprintln!("bloomgate: `{key}` exists and is unchanged: --capacity and --rate are ignored");
        }
        return Ok(None);
    }
    let Some(capacity) = arguments.capacity else {
        return Ok(configured_rate(server));
    };
    let rate = arguments.rate.unwrap_or(0.01);
    server.ask(keyed("BF.RESERVE", key).arg(rate.to_string()).arg(capacity), key)?;
    let taken = numbers::taken_rate(rate);
    numbers::tell_taken_rate(rate, taken);
    Ok(Some(taken))
}

/// Returns the rate of filters that the server creates with their first item, unless CONFIG is denied.
fn configured_rate(server: &mut Server) -> Option<f64> {
    // The name is bf.error-rate or bf-error-rate, depending on the server's version.
    let reply = server.ask(cmd("CONFIG").arg("GET").arg("bf?error-rate"), "").ok()?;
    let words: Vec<String> = redis::from_redis_value(reply).ok()?;
    words.get(1)?.parse().ok().map(numbers::taken_rate)
}

/// Passes all links through the filter and the requested sets.
fn crawl(server: &mut Server, arguments: &Arguments, compared_set: &str) -> Result<Crawled> {
    let (batch, key) = (arguments.batch.get(), arguments.key.as_str());
    let bytes_read = BytesRead::default();
    let progress = Progress::new(input::size_bytes(&arguments.files), bytes_read.clone());
    let mut links = Links::new(&arguments.files, bytes_read);
    let mut crawled = Crawled { exact: arguments.exact.then(HashSet::new), ..Crawled::default() };
    loop {
        let round = links.take(batch.saturating_mul(arguments.pipeline.get()))?;
        if round.is_empty() {
            progress.finish();
            return Ok(crawled);
        }

        let start = Instant::now();
        let replies = server.ask_all(&mut in_batches("BF.MADD", key, &round, batch), key)?;
        crawled.in_server += start.elapsed();
        if arguments.compare_set {
            let mut commands = in_batches("SADD", compared_set, &round, batch);
            commands.add_command(keyed("EXPIRE", compared_set).arg(COMPARED_SET_TTL_SECONDS).clone());
            server.ask_all(&mut commands, compared_set)?;
        }

        let mut answers = Vec::with_capacity(round.len());
        for (reply, links) in replies.iter().zip(round.chunks(batch)) {
            answers.extend(read_answers(server, key, reply, links.len())?);
        }
        for (link, called_new) in round.into_iter().zip(answers) {
            let new_in_truth = crawled.exact.as_mut().map(|exact| exact.insert(link));
            crawled.tally.count(called_new, new_in_truth);
        }
        progress.show(crawled.tally.links, crawled.tally.new);
    }
}

/// `command key link ...` for all links, `batch` of them in a command.
fn in_batches(command: &str, key: &str, links: &[Vec<u8>], batch: usize) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for links in links.chunks(batch) {
        pipeline.add_command(keyed(command, key).arg(links).clone());
    }
    pipeline
}

/// Returns the answers of one BF.MADD for `count` links: true for new.
fn read_answers(server: &Server, key: &str, reply: &Value, count: usize) -> Result<Vec<bool>> {
    let Value::Array(elements) = reply else { bail!("the reply to BF.MADD is not an array: {reply:?}") };
    let answers = elements.iter().map(|element| match element {
        Value::Int(number) => Ok(*number != 0),
        Value::Boolean(new) => Ok(*new),
        Value::ServerError(error) => Err(server.describe(error.code(), error.details().unwrap_or_default(), key)),
        _ => Err(anyhow!("the reply to BF.MADD has an unexpected element: {element:?}")),
    });
    let answers = answers.collect::<Result<Vec<bool>>>()?;
    ensure!(answers.len() == count, "the reply to BF.MADD has {} elements for {count} links", answers.len());
    Ok(answers)
}

/// Prints the figures.
fn report(
    server: &mut Server,
    arguments: &Arguments,
    requested_rate: Option<f64>,
    crawled: &Crawled,
    set_bytes: Option<u64>,
) -> Result<()> {
    let Crawled { tally, exact, in_server } = crawled;
    let mut report = Report::default();
    report.line("links read", HumanCount(tally.links), "");
    report.line("  new", HumanCount(tally.new), "");
    report.line("  already seen", HumanCount(tally.links - tally.new), "");
    if let Some(exact) = exact {
        let distinct = u64::try_from(exact.len())?;
        let requested =
            requested_rate.map(|rate| format!("; requested: at most {}", percent(rate))).unwrap_or_default();
        let share = percent(quotient(tally.wrongly_seen, distinct));
        let remark = format!("of {}: {share}{requested}", counted(distinct, "distinct link"));
        report.line("wrongly called seen", HumanCount(tally.wrongly_seen), &remark);
        report.line("wrongly called new", HumanCount(tally.wrongly_new), "a Bloom filter never does that");
    }

    // Nothing was read or reserved, so there is no filter to measure.
    let filter_bytes = memory_usage(server, &arguments.key)?.unwrap_or(0);
    report.line("memory of the filter", BinaryBytes(filter_bytes), &describe_filter(server, &arguments.key)?);
    if let Some(set_bytes) = set_bytes {
        let remark = format!("with the same links: {:.0} times the filter's", quotient(set_bytes, filter_bytes));
        report.line("memory of a Redis SET", BinaryBytes(set_bytes), &remark);
    }

    let seconds = in_server.as_secs_f64();
    let remark = format!("{seconds:.2} s in BF.MADD, {} links each, {} at a time", arguments.batch, arguments.pipeline);
    let speed = quotient(tally.links, 1) / seconds.max(1e-9);
    report.line("links a second", HumanFloatCount(speed.round()), &remark);
    report.print()?;
    Ok(())
}

/// `part / whole` for the eye: figures that are shown with two digits, or without decimals. 0 / 0 is 0.
fn quotient(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Describes the filter by BF.INFO in a few words.
fn describe_filter(server: &mut Server, key: &str) -> Result<String> {
    let Ok(info) = server.ask(&keyed("BF.INFO", key), key) else { return Ok(String::new()) };
    let Value::Array(fields) = info else { bail!("the reply to BF.INFO is not an array: {info:?}") };
    let field = |place: usize| fields.get(place).map_or(Ok(0), number);
    let (capacity, layers) = (field(1)?, field(5)?);
    Ok(format!("{} with room for {}", counted(layers, "layer"), counted(capacity, "link")))
}

/// Returns the memory of `key` in bytes by MEMORY USAGE, counting every element of a set.
fn memory_usage(server: &mut Server, key: &str) -> Result<Option<u64>> {
    let command = cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0).clone();
    match server.ask(&command, key)? {
        Value::Nil => Ok(None),
        bytes => number(&bytes).map(Some),
    }
}

fn measure_and_delete(server: &mut Server, compared_set: &str) -> Result<u64> {
    let bytes = memory_usage(server, compared_set);
    server.ask(&keyed("UNLINK", compared_set), compared_set)?;
    Ok(bytes?.unwrap_or(0))
}

fn keyed(command: &str, key: &str) -> Cmd {
    cmd(command).arg(key).clone()
}

fn number(value: &Value) -> Result<u64> {
    match value {
        Value::Int(number) => Ok(u64::try_from(*number)?),
        _ => bail!("the server replied {value:?} instead of a number"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_errors_are_counted() {
        let mut tally = Tally::default();
        tally.count(true, Some(true));
        tally.count(false, Some(false));
        assert_eq!(tally, Tally { links: 2, new: 1, wrongly_seen: 0, wrongly_new: 0 });
        tally.count(false, Some(true));
        assert_eq!(tally.wrongly_seen, 1);
        tally.count(true, Some(false));
        assert_eq!(tally, Tally { links: 4, new: 2, wrongly_seen: 1, wrongly_new: 1 });
        tally.count(true, None);
        assert_eq!(tally, Tally { links: 5, new: 3, wrongly_seen: 1, wrongly_new: 1 });
    }

    #[test]
    fn each_command_has_one_batch_of_links() {
        let links = [b"a".to_vec(), b"b".to_vec(), b"c".to_vec()];
        let pipeline = in_batches("BF.MADD", "seen", &links, 2);
        let expected =
            b"*4\r\n$7\r\nBF.MADD\r\n$4\r\nseen\r\n$1\r\na\r\n$1\r\nb\r\n*3\r\n$7\r\nBF.MADD\r\n$4\r\nseen\r\n$1\r\nc\r\n";
        assert_eq!(pipeline.get_packed_pipeline(), expected);
    }
}
