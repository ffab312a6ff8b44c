//! A soak test of ordinary use, which checks for growth that should not happen. The writers and readers of `chaos`, a crawler, and filters
//! for users work on a server with a replica; both save. The load has a steady state: fixed numbers of rows, a fixed lifetime of users and cached
//! values. The processes run for the whole test, so that leaks accumulate.
//!
//! A run takes 8 s times `BLOOMGATE_EFFORT` (default 1): 450 is an hour. Each sample is printed as a line of CSV after `sample: `, and each
//! save prints a table of all samples so far, so that an interrupted run also has figures.

mod judge;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use testing::database::Database;
use testing::{Connection, Reply, Server, figures, follow, integer, on_every_server};

use crate::follow::chaos::{Chaos, Fault, Mode, begin, drive, effort};
use crate::follow::soak::judge::Samples;

/// Items of a user, and of one user in fifty.
const ITEMS: usize = 20;
const MANY_ITEMS: usize = 2000;
/// Links of a page, which the crawler adds in one command.
const LINKS: usize = 100;
/// The pause between two users or two pages, so that a soak uses a small part of a processor.
const PAUSE: Duration = Duration::from_millis(50);

/// Creates a filter for each user until the end. Half of them expire, the others are deleted. `leaks`: users are never deleted, and the
/// connection for each is never closed.
fn serve_users(port: u16, lifetime: Duration, leaks: bool, is_done: &AtomicBool, verified: &AtomicU64) {
    let (mut client, mut live, mut kept) = (Connection::open(port).unwrap(), VecDeque::new(), Vec::new());
    for user in (0_usize..).take_while(|_| !is_done.load(SeqCst)) {
        thread::sleep(PAUSE);
        let (key, expires) = (format!("user:{user}"), user % 2 == 1);
        let count = if user % 50 == 0 { MANY_ITEMS } else { ITEMS };
        let words = |words: &[&str]| -> Vec<String> {
            let items = (0..count).map(|item| format!("{user}:{item}"));
            words.iter().map(|word| (*word).to_owned()).chain(items).collect()
        };
        let insert = words(&["BF.INSERT", &key, "CAPACITY", "100", "ITEMS"]);
        assert_eq!(client.call(&insert).elements().len(), count);
        if leaks {
            kept.push(Connection::open(port).unwrap());
        } else if expires {
            let milliseconds = (2 * lifetime).as_millis();
            assert_eq!(client.run(&format!("PEXPIRE {key} {milliseconds}")), integer(1));
        }
        live.push_back((Instant::now(), expires, words(&["BF.MEXISTS", &key]), key));
        while live.front().is_some_and(|(begin, ..)| begin.elapsed() > lifetime)
            && let Some((_, expires, exists, key)) = live.pop_front()
        {
            let reply = client.call(&exists);
            let is_complete = reply.elements().iter().all(Reply::truth);
            // On a machine that was suspended, the whole filter may have expired.
            let is_gone = expires && client.run(&format!("EXISTS {key}")) == integer(0);
            assert!(is_complete || is_gone, "{key} has lost an item: {reply:?}");
            assert!(expires || leaks || client.run(&format!("UNLINK {key}")) == integer(1), "{key} is lost");
            verified.fetch_add(u64::from(is_complete), SeqCst);
        }
    }
}

/// Adds the links of one page after the other to a growing filter, and looks up the links of an earlier page. Deletes the filter after
/// `lifetime` and begins again.
fn crawl(port: u16, lifetime: Duration, is_done: &AtomicBool, verified: &AtomicU64) {
    let mut client = Connection::open(port).unwrap();
    let (mut begin, mut pages) = (Instant::now(), 0);
    while !is_done.load(SeqCst) {
        thread::sleep(PAUSE);
        let links = |page: usize| -> Vec<String> { (0..LINKS).map(|link| format!("/{page}/{link}")).collect() };
        client.batched(&[b"BF.MADD", b"links"], &links(pages));
        let found = client.batched(&[b"BF.MEXISTS", b"links"], &links(pages / 2));
        assert!(found.iter().all(|&found| found), "links of page {} of {pages} are lost: {found:?}", pages / 2);
        verified.fetch_add(LINKS as u64, SeqCst);
        pages += 1;
        if begin.elapsed() > lifetime {
            assert_eq!(client.run("UNLINK links"), integer(1));
            (begin, pages) = (Instant::now(), 0);
        }
    }
}

/// Samples and saves until the time is up, or a thread has failed.
fn supervise(
    chaos: &mut Chaos<Database>,
    time: Duration,
    replica: &Server,
    samples: &mut Samples,
    failed: impl Fn() -> bool,
) {
    // Intervals do not grow with a long run.
    let part = |parts: u32, most: u64| (time / parts).min(Duration::from_secs(most));
    let (begin, mut saves, mut session) = (Instant::now(), 0, chaos.world.session());
    while begin.elapsed() < time && !chaos.run.done.load(SeqCst) && !failed() {
        chaos.pause(part(40, 15));
        let follower = chaos.followers[0].running.0.id();
        samples.take(begin.elapsed(), [&chaos.world.server, replica], follower, &mut session);
        if begin.elapsed() > part(8, 300) * (saves + 1) {
            saves += 1;
            chaos.inflict(Fault::Save);
            replica.connect().pipeline(&["BGREWRITEAOF", "BGSAVE SCHEDULE"]);
            eprintln!("{} s, {}, {saves} saves\n{samples}", begin.elapsed().as_secs(), chaos.run);
        }
    }
}

/// Runs the load. Returns the series that have grown.
fn soak(program: &Path, effort: f64, leaks: bool) -> Vec<String> {
    let replica = Server::with(program).line("appendonly yes").start();
    let (world, first) = begin::<Database>(Mode::Eventual, Server::with(program).line("appendonly yes"));
    follow(&mut replica.connect(), &world.server);
    let (mut samples, verified, links) = (Samples::new(), AtomicU64::new(0), AtomicU64::new(0));
    drive(Mode::Eventual, world, first, effort, true, |chaos, time| {
        let (run, port, lifetime) = (chaos.run, chaos.world.server.port, (time / 32).min(Duration::from_secs(30)));
        thread::scope(|scope| {
            let users = scope.spawn(|| serve_users(port, lifetime, leaks, &run.done, &verified));
            let crawler = scope.spawn(|| crawl(port, 2 * lifetime, &run.done, &links));
            let failed = || users.is_finished() || crawler.is_finished();
            let result = catch_unwind(AssertUnwindSafe(|| supervise(chaos, time, &replica, &mut samples, failed)));
            run.done.store(true, SeqCst);
            result.unwrap_or_else(|panic| resume_unwind(panic));
        });
    });
    assert!(verified.load(SeqCst) > 0 && links.load(SeqCst) > 0);
    figures(&format!("ordinary use: {} users and {} links verified", verified.load(SeqCst), links.load(SeqCst)));
    eprintln!("{samples}");
    samples.grown()
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs /proc")]
fn memory_and_keys_stay_constant_in_ordinary_use() {
    on_every_server(|program| assert_eq!(soak(program, effort(), false), [""; 0]));
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs /proc")]
fn leaks_are_found() {
    on_every_server(|program| {
        let grown = soak(program, 3.0, true).join("\n");
        for name in ["first: keys", "second: keys", "first: descriptors"] {
            assert!(grown.contains(name), "{name} has not grown: {grown}");
        }
    });
}
