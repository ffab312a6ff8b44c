//! A Bloom filter and a cache in front of a database, three ways.
//!
//! A cache helps with rows that are requested often. It does not help with rows that do not exist: there is nothing to cache,
//! so every such request reaches the database, and anyone who invents ids can overload it. A filter with the id of every row
//! stops these requests. Without the guard, a client queries the filter, then the cache, then takes a lock, so that a hundred
//! requests for one row cause only one query, and then queries the database. The guard does all of this in one round trip:
//!
//! ```text
//! request --> BF.FETCH --"absent"--> there is no such row
//!                      --"hit"-----> the value
//!                      --"load"----> this caller alone queries the database, then sends BF.FILL
//!                      --WAIT------> the others wait for that value
//! ```
//!
//! The example creates a table in SQLite and looks up rows in each way, on this machine and with a network to the server; nine in ten do not
//! exist. The guard is from the crate `bloomgate-client`. The argument is the URL of a server with the module (its key `known-pages` is replaced):
//!
//! ```text
//! cargo run --release -p bloomgate-tool --example guard_database redis://127.0.0.1:6379
//! ```

mod network;
mod pages;
mod ways;

use std::collections::HashSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use bloomgate_client::{Durability, Filter, Guard, GuardOptions, Options, fill_filter, keys};
use indicatif::{BinaryBytes, HumanCount};
use redis::Client;

use network::{ROUND_TRIP, through_network};
use pages::{Pages, QUERIES};
use ways::{ROUND_TRIPS, ServiceClient, Way, read};

/// The filter.
const FILTER: &str = "known-pages";
/// One in a hundred of the ids that do not exist may be reported as present.
const ERROR_RATE: f64 = 0.01;
/// Keys per UNLINK.
const BATCH: usize = 500;

const LOOKUPS: usize = 20_000;
/// Nine lookups in ten are for rows that do not exist.
const LOOKUPS_PER_EXISTING_ROW: u64 = 10;
/// The number of clients that look up rows, and of clients that all request one row at once.
const CLIENTS: usize = 16;
const CROWD: usize = 100;

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
    let client = Client::open(url)?;
    let mut redis = client.get_connection().context("no Redis server (give its URL as the argument)")?;
    let bloomgate = bloomgate_client::Client::of(client.clone());

    let folder = tempfile::tempdir()?;
    let file = folder.path().join("pages.sqlite");
    let known = pages::fill_table(&file)?;
    println!("table      {} rows in SQLite; each query is slowed down by {:?}", count(known.len()), pages::QUERY);
    let filter_bytes = fill(&bloomgate, &known)?;
    println!("filter     {} for all ids, at a requested rate of {}%", BinaryBytes(filter_bytes), 100.0 * ERROR_RATE);
    let lookups = make_lookups(&known);
    let existing = lookups.iter().filter(|url| known.contains(*url)).count();
    println!(
        "lookups    {}: {} for rows that exist, {} for rows that do not",
        count(lookups.len()),
        count(existing),
        count(lookups.len() - existing),
    );
    println!();
    for (place, client) in [
        ("on this machine".to_owned(), client.clone()),
        (format!("with a network ({ROUND_TRIP:?} there and back)"), through_network(&client)?),
    ] {
        for urls in known.iter().collect::<Vec<_>>().chunks(BATCH) {
            ways::empty_caches(&mut redis, urls)?;
        }
        println!("{place}");
        let guard = Guard::new(&bloomgate_client::Client::of(client.clone()), FILTER, GuardOptions::default())?;
        compare(&client, &guard, &file, &lookups, &known)?;
        println!();
    }
    write_rows(&Guard::new(&bloomgate, FILTER, GuardOptions::default())?, &file)?;
    println!("lost       0 of the {} lookups for rows that exist, whichever way", count(existing));
    Ok(())
}

/// Fills the filter with the table's ids. Returns its size in bytes.
///
/// The filter is filled under another name and then renamed, so no client sees a filter with only some of the ids.
/// docs/guard.md explains how to do this while rows are written.
fn fill(client: &bloomgate_client::Client, known: &HashSet<String>) -> Result<u64> {
    // An earlier run may have been interrupted.
    Filter::new(client, keys::filling_name(FILTER.as_bytes())?).drop()?;
    let options = Options { hash: Some("siphash".to_owned()), ..Options::default() };
    fill_filter(client, FILTER, known, ERROR_RATE, known.len() as u64, &options, &Durability::default())?;
    Ok(Filter::new(client, FILTER).info()?.size_bytes)
}

/// The cost of some lookups.
struct Cost {
    queries: usize,
    round_trips: usize,
    time: Duration,
}

/// Looks up rows in each way: many rows by several clients, and one row by many clients at once.
fn compare(client: &Client, guard: &Guard, file: &Path, lookups: &[String], known: &HashSet<String>) -> Result<()> {
    let asked: HashSet<&String> = lookups.iter().collect();
    let wanted = known.iter().filter(|url| !asked.contains(url)).min().context("every page was requested")?;
    let many = format!("{} lookups by {CLIENTS} clients", count(LOOKUPS));
    println!("{:32}  {many:<35}  {CROWD} at once for one row", "");
    println!(
        "{:32}  {:>7} {:>11} {:>7} {:>7}  {:>7} {:>11} {:>8}",
        "", "queries", "round trips", "time", "spared", "queries", "round trips", "time"
    );
    for way in Way::ALL {
        let many = run_clients(way, client, guard, file, CLIENTS, |service, number| {
            for url in lookups.iter().skip(number).step_by(CLIENTS) {
                check_answer(service.look_up(url)?.is_some(), known.contains(url))?;
            }
            Ok(())
        })?;
        let one = run_clients(way, client, guard, file, CROWD, |service, _| {
            check_answer(service.look_up(wanted)?.is_some(), true)
        })?;
        println!(
            "{:32}  {:>7} {:>11} {:>5.2} s {:>6.1}%  {:>7} {:>11} {:>5.0} ms",
            way.name(),
            count(many.queries).to_string(),
            count(many.round_trips).to_string(),
            many.time.as_secs_f64(),
            100.0 * (LOOKUPS - many.queries.min(LOOKUPS)) as f64 / LOOKUPS as f64,
            one.queries,
            one.round_trips,
            1000.0 * one.time.as_secs_f64(),
        );
    }
    Ok(())
}

/// Compares the answers with the table: none may differ.
fn check_answer(found: bool, exists: bool) -> Result<()> {
    ensure!(found == exists, "a lookup answered {found} where the table says {exists}");
    Ok(())
}

/// Runs clients that all start at the same moment. Returns their cost.
fn run_clients(
    way: Way,
    client: &Client,
    guard: &Guard,
    file: &Path,
    clients: usize,
    work: impl Fn(&mut ServiceClient, usize) -> Result<()> + Sync,
) -> Result<Cost> {
    let services = (0..clients)
        .map(|_| ServiceClient::open(way, client, guard, FILTER, file))
        .collect::<Result<Vec<ServiceClient>>>()?;
    let start = Barrier::new(clients + 1);
    QUERIES.store(0, Ordering::Relaxed);
    ROUND_TRIPS.store(0, Ordering::Relaxed);
    let before = round_trips(guard);
    let time = thread::scope(|scope| {
        let (start, work) = (&start, &work);
        let threads: Vec<_> = services
            .into_iter()
            .enumerate()
            .map(|(number, mut service)| {
                scope.spawn(move || {
                    start.wait();
                    work(&mut service, number)
                })
            })
            .collect();
        start.wait();
        let begun = Instant::now();
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a client ended in the middle"))??;
        }
        Ok::<_, anyhow::Error>(begun.elapsed())
    })?;
    let round_trips = ROUND_TRIPS.load(Ordering::Relaxed) + round_trips(guard) - before;
    Ok(Cost { queries: QUERIES.load(Ordering::Relaxed), round_trips, time })
}

/// Returns how many commands a guard has sent for reads: each is a round trip.
fn round_trips(guard: &Guard) -> usize {
    let counts = guard.counts();
    let sent = ["absent", "hit", "stale", "load", "wait", "filled", "lease lost"];
    sent.iter().filter_map(|event| usize::try_from(*counts.get(event)?).ok()).sum()
}

/// Inserts, changes and deletes a row, and checks that the next reader sees it.
fn write_rows(guard: &Guard, file: &Path) -> Result<()> {
    let pages = Pages::open(file)?;
    let url = "https://example.org/a-page-of-today";
    let expect = |title: Option<&str>| {
        let found = read(guard, &pages, url)?;
        ensure!(found.as_deref() == title, "{url} has the title {found:?}, not {title:?}");
        Ok(())
    };
    expect(None)?;
    for title in ["New", "Newer"] {
        guard.changed([url], || pages.write(url, title))?;
        // First from the database, then from the cache.
        expect(Some(title))?;
        expect(Some(title))?;
    }
    guard.changed([url], || pages.delete(url))?;
    guard.forget([url])?;
    expect(None)?;
    println!("written    a row was inserted, changed and deleted; each time the next reader saw it");
    Ok(())
}

/// Returns lookups that are the same in every run, mostly for plausible pages that do not exist.
fn make_lookups(known: &HashSet<String>) -> Vec<String> {
    let mut urls: Vec<&String> = known.iter().collect();
    urls.sort_unstable();
    let mut random = fastrand::Rng::with_seed(2026);
    let mut lookups = Vec::with_capacity(LOOKUPS);
    while lookups.len() < LOOKUPS {
        // Some pages are requested far more often than others.
        let most = random.u64(..urls.len() as u64) + 1;
        let place = random.u64(..most);
        let Some(url) = usize::try_from(place).ok().and_then(|place| urls.get(place)) else { break };
        if random.u64(..LOOKUPS_PER_EXISTING_ROW) == 0 {
            lookups.push((*url).clone());
        } else {
            let invented = format!("{url}?id={}", random.u64(..1_000_000_000));
            if !known.contains(&invented) {
                lookups.push(invented);
            }
        }
    }
    lookups
}

fn count(number: usize) -> HumanCount {
    HumanCount(number as u64)
}
