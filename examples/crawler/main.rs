//! A crawler asks of each link whether it has seen it. The links of a crawl frontier pass through a filter; an exact set in memory
//! counts the filter's errors, and a Redis SET shows how much memory an exact answer takes.
//!
//! The argument is the URL of a server with the module (its key `seen` is replaced):
//!
//! ```text
//! cargo run --release -p bloomgate-tool --example crawler redis://127.0.0.1:6379
//! ```

use std::collections::HashSet;
use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bloomgate_client::{Client, Filter, Options};
use flate2::bufread::GzDecoder;
use indicatif::{BinaryBytes, HumanCount, HumanFloatCount};

/// Every link of a site, in the order in which a crawler found them.
const LINKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/data/frontier.txt.gz");
/// The room for distinct links, and the share of new links that may be reported as seen.
const CAPACITY: u64 = 6000;
const ERROR_RATE: f64 = 0.01;
/// Links per call of `add_many`, which sends them in 16 commands of 500.
const LINKS_AT_ONCE: usize = 8000;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crawler: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let redis = redis::Client::open(url)?;
    let mut connection = redis.get_connection().context("no Redis server (give its URL as the argument)")?;
    let seen = Filter::new(&Client::of(redis), "crawled");
    seen.drop()?;
    seen.reserve(ERROR_RATE, CAPACITY, &Options::default())?;

    let file = BufReader::new(File::open(LINKS).context(LINKS)?);
    let links = BufReader::new(GzDecoder::new(file)).lines().collect::<std::io::Result<Vec<String>>>()?;
    let (mut new, mut wrongly_seen, mut wrongly_new) = (0, 0, 0);
    let (mut exact, mut in_server) = (HashSet::new(), Duration::ZERO);
    for links in links.chunks(LINKS_AT_ONCE) {
        let start = Instant::now();
        let answers = seen.add_many(links)?;
        in_server += start.elapsed();
        for (link, is_new) in links.iter().zip(answers) {
            let is_new_in_truth = exact.insert(link);
            new += u64::from(is_new);
            wrongly_seen += u64::from(is_new_in_truth && !is_new);
            wrongly_new += u64::from(!is_new_in_truth && is_new);
        }
    }

    let count = links.len() as u64;
    line("links read", HumanCount(count), "");
    line("  new", HumanCount(new), "");
    line("  already seen", HumanCount(count - new), "");
    let distinct = exact.len();
    let share = 100.0 * wrongly_seen as f64 / distinct as f64;
    let limit = 100.0 * ERROR_RATE;
    let remark = format!("of {} distinct links: {share:.2}%; requested: at most {limit}%", HumanCount(distinct as u64));
    line("wrongly called seen", HumanCount(wrongly_seen), &remark);
    line("wrongly called new", HumanCount(wrongly_new), "a Bloom filter never does that");

    let info = seen.info()?;
    let plural = if info.layers == 1 { "" } else { "s" };
    let remark = format!("{} layer{plural} with room for {} links", info.layers, HumanCount(info.capacity));
    let filter_bytes = memory(&mut connection, "crawled")?;
    line("memory of the filter", BinaryBytes(filter_bytes), &remark);
    let set_bytes = memory_of_set(&mut connection, &links)?;
    let remark = format!("with the same links: {:.0} times the filter's", set_bytes as f64 / filter_bytes as f64);
    line("memory of a Redis SET", BinaryBytes(set_bytes), &remark);
    let seconds = in_server.as_secs_f64();
    let remark = format!("{seconds:.2} s in BF.MADD, 500 links each, 16 at a time");
    line("links a second", HumanFloatCount((count as f64 / seconds).round()), &remark);
    ensure!(wrongly_new == 0, "{wrongly_new} links reported as new although seen before");
    Ok(())
}

fn line(name: &str, figure: impl Display, remark: &str) {
    println!("{}", format!("{name:<22}{:>12}   {remark}", figure.to_string()).trim_end());
}

/// Returns the memory of a key in bytes, counting every element of a set.
fn memory(connection: &mut redis::Connection, key: &str) -> Result<u64> {
    Ok(redis::cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0).query(connection)?)
}

/// Adds the links to a set, measures it and deletes it.
fn memory_of_set(connection: &mut redis::Connection, links: &[String]) -> Result<u64> {
    let key = format!("seen:as-a-set:{}", std::process::id());
    for links in links.chunks(LINKS_AT_ONCE) {
        // If the example is interrupted, the set expires.
        redis::pipe().cmd("SADD").arg(&key).arg(links).ignore().expire(&key, 3600).ignore().exec(connection)?;
    }
    let bytes = memory(connection, &key);
    redis::cmd("UNLINK").arg(&key).exec(connection)?;
    bytes
}
