//! Concurrent readers, writers and filters that come and go, against a model: no waiter gets `wait` before its WAIT expires,
//! and no answer is older than the last version that was announced before the question.
//!
//! Readers wait for longer than any test runs, so every `wait` is one too early, and a waiter that is forgotten fails the
//! test. `BLOOMGATE_SEED` draws other choices, `BLOOMGATE_EFFORT` multiplies the lookups.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use crate::fleet::effort;
use testing::{Connection, Reply, Rng, Server, figures, on_every_server};

const ROWS: usize = 4;
const READERS: u64 = 40;
const WRITERS: u64 = 2;
/// Lookups on each server.
const LOOKUPS: usize = 12_000;
/// Longer than any test, in milliseconds.
const LONG: &str = "1000000000";

/// A row of the database. Every fourth version is a deleted row.
#[derive(Default)]
struct Row {
    version: AtomicU64,
    /// The version whose second BF.CHANGED was answered last.
    announced: AtomicU64,
    is_being_written: AtomicBool,
}

const fn exists(version: u64) -> bool {
    !version.is_multiple_of(4)
}

#[derive(Default)]
struct Counts {
    lookups: AtomicUsize,
    hits: AtomicUsize,
    absents: AtomicUsize,
    loads: AtomicUsize,
    filled: AtomicUsize,
    refused: AtomicUsize,
    replaced: AtomicUsize,
}

struct World {
    port: u16,
    rows: [Row; ROWS],
    counts: Counts,
    lookups: usize,
    stop: AtomicBool,
}

fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, SeqCst);
}

/// A client whose connection may be killed at any time.
struct Client<'a> {
    world: &'a World,
    rng: Rng,
    connection: Option<Connection>,
}

impl<'a> Client<'a> {
    fn new(world: &'a World, number: u64) -> Self {
        let seed: u64 = std::env::var("BLOOMGATE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
        Self { world, rng: Rng::new(seed.wrapping_mul(1000) + number), connection: None }
    }

    fn goes_on(&self) -> bool {
        !self.world.stop.load(SeqCst)
    }

    /// Runs one command. Returns nothing if the connection broke.
    fn try_run(&mut self, line: &str) -> Option<Reply> {
        let port = self.world.port;
        let connection = self.connection.get_or_insert_with(|| Connection::open(port).expect("a connection"));
        match connection.try_call(&line.split(' ').collect::<Vec<_>>()) {
            Ok(reply) => {
                assert!(!reply.is_error(), "{line}: {reply:?}");
                Some(reply)
            }
            Err(fault) => {
                let is_late = matches!(fault.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
                assert!(!is_late, "{line}: a client is forgotten");
                self.connection = None;
                None
            }
        }
    }

    /// Runs one command until it is answered.
    fn run(&mut self, line: &str) -> Reply {
        loop {
            if let Some(reply) = self.try_run(line) {
                return reply;
            }
        }
    }

    /// Runs a transaction. Returns nothing if the connection broke.
    fn transaction(&mut self, lines: &[&str]) -> Option<Reply> {
        self.try_run("MULTI")?;
        for line in lines {
            self.try_run(line)?;
        }
        self.try_run("EXEC")
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.rng.below(100) < percent
    }
}

/// Looks rows up until there were enough lookups.
fn read(world: &World, number: u64) {
    let mut client = Client::new(world, number);
    while client.goes_on() && world.counts.lookups.fetch_add(1, SeqCst) < world.lookups {
        let row = client.rng.below(ROWS as u64) as usize;
        let lease = 5 + client.rng.below(40);
        let stale = if client.chance(30) { " STALE 1000" } else { "" };
        let line = format!("BF.FETCH {{f}} {row} {{f}}:{row} LEASE {lease} WAIT {LONG}{stale}");
        let announced = world.rows[row].announced.load(SeqCst);
        let Some(reply) = client.try_run(&line) else { continue };
        let parts = reply.elements();
        let version = || parts[1].text().parse::<u64>().expect("a version");
        match parts[0].text().as_str() {
            "hit" => {
                count(&world.counts.hits);
                assert!(version() >= announced, "row {row}: {} although {announced} was announced", version());
            }
            "absent" => {
                count(&world.counts.absents);
                let now = world.rows[row].version.load(SeqCst);
                assert!(now > announced || !exists(announced), "row {row}, version {announced}, is denied");
            }
            "load" | "stale" => load(&mut client, row, &parts[parts.len() - 1].text()),
            _ => panic!("{line}: {reply:?}"),
        }
    }
}

/// Reads the row and fills the cache, or does something else with the token.
fn load(client: &mut Client<'_>, row: usize, token: &str) {
    let world = client.world;
    count(&world.counts.loads);
    let version = world.rows[row].version.load(SeqCst);
    if client.chance(20) {
        thread::sleep(Duration::from_millis(client.rng.below(10)));
    }
    let what = match client.rng.below(10) {
        0 => return, // The lease expires.
        1 => "GIVEUP".to_owned(),
        _ if exists(version) => format!("VALUE {version} PX {}", 1 + client.rng.below(200)),
        _ => format!("NONE PX {}", 1 + client.rng.below(50)),
    };
    let fill = format!("BF.FILL {{f}} {row} {{f}}:{row} {token} {what}");
    let changed = format!("BF.CHANGED {{f}} {row} {{f}}:{row}");
    let reply = match client.rng.below(10) {
        // The waiters see the state after the transaction.
        0 => client.transaction(&[&fill, &changed]).map(|replies| replies.elements()[0].clone()),
        _ => client.try_run(&fill),
    };
    match reply {
        Some(Reply::Simple(_)) => count(&world.counts.filled),
        Some(_) => count(&world.counts.refused),
        None => {}
    }
}

/// Changes rows by the protocol of docs/guard.md, one writer at a time for each row.
fn write(world: &World, number: u64) {
    let mut client = Client::new(world, number);
    while client.goes_on() {
        let number = client.rng.below(ROWS as u64) as usize;
        let row = &world.rows[number];
        if row.is_being_written.swap(true, SeqCst) {
            continue;
        }
        let changed = format!("BF.CHANGED {{f}} {number} {{f}}:{number}");
        client.run(&changed);
        let version = row.version.fetch_add(1, SeqCst) + 1;
        client.run(&changed);
        row.announced.store(version, SeqCst);
        row.is_being_written.store(false, SeqCst);
        match client.rng.below(4) {
            0 => _ = client.transaction(&[&format!("SET {{f}}:{number} 0"), &format!("DEL {{f}}:{number}")]),
            1 => _ = client.try_run(&format!("PEXPIREAT {{f}}:{number} 1")),
            _ => thread::sleep(Duration::from_millis(client.rng.below(5))),
        }
    }
}

/// Deletes and restores the filter, evicts leases and kills clients.
fn disturb(world: &World) {
    let mut client = Client::new(world, 1_000_000);
    let all = (0..ROWS).map(|row| row.to_string()).collect::<Vec<_>>().join(" ");
    let create = format!("BF.INSERT {{f}} ERROR 0.0001 ITEMS {all}");
    while client.goes_on() {
        let missing = 1 + client.rng.below(10);
        match client.rng.below(7) {
            0 => {
                client.run("DEL {f}");
                thread::sleep(Duration::from_millis(missing));
                client.run(&create);
            }
            1 => _ = client.transaction(&["DEL {f}", &create]),
            2 => _ = client.run("COPY {f}full {f} REPLACE"),
            3 => {
                client.run("PEXPIRE {f} 1");
                thread::sleep(Duration::from_millis(missing));
                client.run(&create);
            }
            4 => {
                client.run("CONFIG SET bf.max-leases 1");
                client.run("CONFIG SET bf.max-leases 65536");
            }
            5 if client.chance(20) => _ = client.run("CLIENT KILL TYPE normal SKIPME yes"),
            _ => {}
        }
        count(&world.counts.replaced);
        thread::sleep(Duration::from_millis(client.rng.below(20)));
    }
    client.run(&create);
}

/// Stops the writers when the readers have finished or failed.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn no_waiter_is_sent_away_and_no_answer_is_older_than_announced() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut watcher = server.connect();
        for key in ["{f}", "{f}full"] {
            watcher.run(&format!("BF.INSERT {key} ERROR 0.0001 ITEMS 0 1 2 3"));
        }
        let world = World {
            port: server.port,
            rows: Default::default(),
            counts: Counts::default(),
            lookups: effort(LOOKUPS),
            stop: AtomicBool::new(false),
        };
        thread::scope(|scope| {
            let world = &world;
            for number in 0..WRITERS {
                scope.spawn(move || write(world, 2_000_000 + number));
            }
            scope.spawn(|| disturb(world));
            let _stop = StopAtEnd(&world.stop);
            thread::scope(|readers| {
                for number in 0..READERS {
                    readers.spawn(move || read(world, number));
                }
            });
        });
        let counts = &world.counts;
        let seen = [&counts.hits, &counts.absents, &counts.loads, &counts.filled, &counts.refused, &counts.replaced]
            .map(|counter| counter.load(SeqCst));
        let [hits, absents, loads, filled, refused, replaced] = seen;
        let written: u64 = world.rows.iter().map(|row| row.version.load(SeqCst)).sum();
        figures(&format!(
            "guard, stress: {} lookups, {hits} hit, {absents} absent, {loads} load, {filled} filled, {refused} refused, \
             {written} writes, {replaced} filters replaced",
            world.lookups
        ));
        assert!(seen.iter().all(|seen| *seen > 0) && written > 0, "{seen:?}: not all of it happened");
        assert_eq!(super::waiters(&mut server.connect()), 0);
    });
}
