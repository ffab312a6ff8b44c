//! A Bloom filter in front of a database, against cache penetration.
//!
//! A cache helps with rows that are asked for often. It is of no help with rows that do not exist: there is nothing to
//! cache, so every such request reaches the database, and somebody who invents ids can drown it. A filter that holds
//! the id of every row stops them at the door:
//!
//! ```text
//! request --> filter --"no"-----> answer "no such row" at once: a filter never denies what it holds
//!                    --"maybe"--> cache --miss--> lock the id --> database --> fill the cache
//! ```
//!
//! The lock, one for each id, is there so that a thousand requests for one row that is not in the cache ask the database
//! once and not a thousand times. Cache and lock are an ordinary matter and left out here: this program goes from
//! "maybe" to the database, and counts.
//!
//! It needs a server with the module, and takes its URL (the key `known-pages` there is replaced):
//!
//! ```text
//! cargo run --release -p bloomgate-tool --example guard_database redis://127.0.0.1:6379
//! ```

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use flate2::bufread::GzDecoder;
use indicatif::{BinaryBytes, HumanCount};
use redis::{Connection, cmd};
use rusqlite::{OptionalExtension, Statement};

/// The pages of a site, as a crawler found them: each distinct link is a row of the table.
const LINKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/data/frontier.txt.gz");
/// The filter, and its name while it is being filled.
const FILTER: &str = "known-pages";
const FILTER_BEING_FILLED: &str = "known-pages:filling";
/// Of the ids that do not exist one in a hundred may be called "maybe".
const ERROR_RATE: f64 = 0.01;
/// Items in one command. A round trip costs far more than an item does.
const BATCH: usize = 500;

const LOOKUPS: usize = 200_000;
/// Nine lookups in ten are for rows that do not exist.
const LOOKUPS_PER_EXISTING_ROW: u64 = 10;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("guard_database: {error}: {}", error.root_cause());
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let mut redis = redis::Client::open(url)
        .and_then(|client| client.get_connection())
        .context("no Redis server (give its URL as the argument)")?;

    let folder = tempfile::tempdir()?;
    let file = folder.path().join("pages.sqlite");
    let mut database = rusqlite::Connection::open(&file)?;
    let rows = fill_table(&mut database)?;
    println!("table      {} rows in SQLite, {}", HumanCount(rows), BinaryBytes(fs::metadata(&file)?.len()));
    let filter_bytes = fill_filter(&mut redis, &database, rows)?;
    println!(
        "filter     {}, filled from the table, asked for a rate of {}%",
        BinaryBytes(filter_bytes),
        100.0 * ERROR_RATE
    );

    let known = all_urls(&database)?;
    let lookups = make_lookups(&known);
    let existing = lookups.iter().filter(|url| known.contains(*url)).count();
    println!(
        "lookups    {}: {} for rows that exist, {} for rows that do not",
        count(lookups.len()),
        count(existing),
        count(lookups.len() - existing),
    );

    let mut select = database.prepare("SELECT title FROM pages WHERE url = ?1")?;
    let guarded = look_up_guarded(&lookups, &mut redis, &mut select)?;
    let unguarded = look_up_unguarded(&lookups, &mut select)?;

    // Judged by exact knowledge of the table, not by either of the two ways to look up.
    let lost = lookups.iter().zip(&guarded.found).filter(|(url, found)| known.contains(*url) && !**found).count();
    let spared = lookups.len() - guarded.asked_database;
    let false_maybes = guarded.asked_database - guarded.found.iter().filter(|found| **found).count();
    println!("spared     {} lookups ({}) never reached the database", count(spared), percent(spared, lookups.len()));
    println!(
        "\"maybe\"    {} lookups did; for {} of them there was no row: {} of those that do not exist",
        count(guarded.asked_database),
        count(false_maybes),
        percent(false_maybes, lookups.len() - existing),
    );
    println!("lost       {} of the {} lookups for rows that exist", count(lost), count(existing));
    println!("time       {:.2} s with the filter", guarded.time.as_secs_f64());
    println!("           {:.2} s without: every lookup asks the database", unguarded.time.as_secs_f64());

    ensure!(lost == 0, "a filter must not do that");
    ensure!(guarded.found == unguarded.found, "the answers differ from those without the filter");
    Ok(())
}

/// Creates the table and puts the distinct links into it. The number of rows.
fn fill_table(database: &mut rusqlite::Connection) -> Result<u64> {
    database.execute_batch("CREATE TABLE pages (url TEXT PRIMARY KEY, title TEXT NOT NULL) WITHOUT ROWID")?;
    let links = BufReader::new(File::open(LINKS).with_context(|| LINKS.to_owned())?);
    let transaction = database.transaction()?;
    let mut insert = transaction.prepare("INSERT OR IGNORE INTO pages (url, title) VALUES (?1, ?2)")?;
    let mut rows = 0;
    for url in BufReader::new(GzDecoder::new(links)).lines() {
        let url = url?;
        let title = url.rsplit('/').next().unwrap_or_default();
        rows += u64::try_from(insert.execute((&url, title))?)?;
    }
    drop(insert);
    transaction.commit()?;
    Ok(rows)
}

/// Fills the filter from the table's ids. Its memory in bytes.
///
/// The filter is filled under another name and then put in place in one step (RENAME), so that nobody meets a filter that
/// knows half of the table. From then on the program that adds a row adds its id first: BF.ADD, then INSERT. In the other
/// order there would be a moment in which a row exists and is denied. A table that grows leaves NONSCALING out.
fn fill_filter(redis: &mut Connection, database: &rusqlite::Connection, rows: u64) -> Result<u64> {
    cmd("DEL").arg(FILTER_BEING_FILLED).exec(redis)?;
    let mut select = database.prepare("SELECT url FROM pages")?;
    let urls = select.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
    for urls in urls.chunks(BATCH) {
        // The first command creates the filter, to the others it is there already.
        cmd("BF.INSERT")
            .arg(FILTER_BEING_FILLED)
            .arg("CAPACITY")
            .arg(rows)
            .arg("ERROR")
            .arg(ERROR_RATE)
            .arg("NONSCALING")
            .arg("ITEMS")
            .arg(urls)
            .exec(redis)
            .context("BF.INSERT (has the server loaded the module?)")?;
    }
    cmd("RENAME").arg(FILTER_BEING_FILLED).arg(FILTER).exec(redis)?;
    Ok(cmd("MEMORY").arg("USAGE").arg(FILTER).query(redis)?)
}

/// What came of a stream of lookups: whether each found its row, how often the database was asked, how long it took.
struct Outcome {
    found: Vec<bool>,
    asked_database: usize,
    time: Duration,
}

/// Asks the filter, and the database only where the filter says "maybe".
fn look_up_guarded(lookups: &[String], redis: &mut Connection, select: &mut Statement) -> Result<Outcome> {
    let start = Instant::now();
    let mut found = Vec::with_capacity(lookups.len());
    let mut asked_database = 0;
    for urls in lookups.chunks(BATCH) {
        let maybes: Vec<bool> = cmd("BF.MEXISTS").arg(FILTER).arg(urls).query(redis)?;
        for (url, maybe) in urls.iter().zip(maybes) {
            if maybe {
                asked_database += 1;
                found.push(is_in_database(select, url)?);
            } else {
                found.push(false);
            }
        }
    }
    Ok(Outcome { found, asked_database, time: start.elapsed() })
}

/// Asks the database every time.
fn look_up_unguarded(lookups: &[String], select: &mut Statement) -> Result<Outcome> {
    let start = Instant::now();
    let found = lookups.iter().map(|url| is_in_database(select, url)).collect::<Result<Vec<bool>>>()?;
    Ok(Outcome { found, asked_database: lookups.len(), time: start.elapsed() })
}

fn is_in_database(select: &mut Statement, url: &str) -> Result<bool> {
    let title: Option<String> = select.query_row([url], |row| row.get(0)).optional()?;
    Ok(title.is_some())
}

fn all_urls(database: &rusqlite::Connection) -> Result<HashSet<String>> {
    let mut select = database.prepare("SELECT url FROM pages")?;
    Ok(select.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
}

/// The same lookups in every run: mostly for pages that look like real ones and are not there.
fn make_lookups(known: &HashSet<String>) -> Vec<String> {
    let mut urls: Vec<&String> = known.iter().collect();
    urls.sort_unstable();
    let mut random = SplitMix64(2026);
    let mut lookups = Vec::with_capacity(LOOKUPS);
    while lookups.len() < LOOKUPS {
        let Some(url) = usize::try_from(random.below(urls.len() as u64)).ok().and_then(|place| urls.get(place)) else {
            break;
        };
        if random.below(LOOKUPS_PER_EXISTING_ROW) == 0 {
            lookups.push((*url).clone());
        } else {
            let invented = format!("{url}?id={}", random.below(1_000_000_000));
            if !known.contains(&invented) {
                lookups.push(invented);
            }
        }
    }
    lookups
}

/// Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014. Small, and the same everywhere.
struct SplitMix64(u64);

impl SplitMix64 {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)) % limit.max(1)
    }
}

fn count(number: usize) -> HumanCount {
    HumanCount(number as u64)
}

fn percent(part: usize, whole: usize) -> String {
    format!("{:.2}%", 100.0 * part as f64 / whole.max(1) as f64)
}
