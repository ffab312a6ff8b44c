//! The promise of synchronous mode, with followers that are killed: once a COMMIT has returned, no reader is told that the row is absent,
//! and none gets an older version.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use super::synchronous::{Cleanup, ask};
use super::{World, soon};
use crate::harness::{integer, on_every_server};

const WRITERS: u64 = 4;
const READERS: u64 = 4;
/// Rows of each writer. No other writer changes them.
const ROWS: u64 = 12;
const RUN: Duration = Duration::from_secs(8);

/// What is known about a row. Each change of a row has a number, which is its version.
#[derive(Default)]
struct Row {
    /// The last change whose COMMIT has returned; negative if it deleted the row.
    returned: AtomicI64,
    /// The last change that was sent and deletes the row at some moment.
    deleting: AtomicI64,
}

#[derive(Default)]
struct Answers {
    absent: AtomicU64,
    hit: AtomicU64,
    load: AtomicU64,
    wait: AtomicU64,
}

fn write(world: &World, rows: &[Row], writer: u64, done: &AtomicBool) -> u64 {
    let mut random = fastrand::Rng::with_seed(writer);
    let mut session = world.session();
    let mut versions = vec![0_i64; ROWS as usize];
    let mut commits = 0;
    while !done.load(SeqCst) {
        let own = random.u64(..ROWS);
        let id = own * WRITERS + writer;
        let row = &rows[id as usize];
        let is_there = row.returned.load(SeqCst) > 0;
        let version = versions[own as usize] + 1;
        versions[own as usize] = version;
        let (text, is_there_then) = match (is_there, random.u8(..6)) {
            (false, _) => (format!("INSERT INTO users VALUES ({id}, {version})"), true),
            (true, 0) => (format!("DELETE FROM users WHERE id = {id}"), false),
            (true, 1) => (
                format!("BEGIN; DELETE FROM users WHERE id = {id}; INSERT INTO users VALUES ({id}, {version}); COMMIT"),
                true,
            ),
            (true, 2) => (
                format!(
                    "BEGIN; SAVEPOINT s; DELETE FROM users WHERE id = {id}; ROLLBACK TO s; UPDATE users SET version = {version} WHERE id = {id}; COMMIT"
                ),
                true,
            ),
            (true, _) => (format!("UPDATE users SET version = {version} WHERE id = {id}"), true),
        };
        if !is_there_then {
            row.deleting.store(version, SeqCst);
        }
        session.batch_execute(&text).unwrap();
        row.returned.store(if is_there_then { version } else { -version }, SeqCst);
        commits += 1;
    }
    commits
}

fn read(world: &World, rows: &[Row], reader: u64, done: &AtomicBool, answers: &Answers, wrong: &Mutex<Vec<String>>) {
    let mut random = fastrand::Rng::with_seed(1000 + reader);
    let (mut client, mut session) = (world.server.connect(), world.session());
    let select = session.prepare("SELECT version FROM users WHERE id = $1").unwrap();
    while !done.load(SeqCst) {
        let id = random.u64(..WRITERS * ROWS);
        let row = &rows[id as usize];
        let before = row.returned.load(SeqCst);
        let parts = ask(&mut client, id);
        match parts[0].as_str() {
            "absent" => {
                answers.absent.fetch_add(1, SeqCst);
                if before > 0 && row.deleting.load(SeqCst) < before {
                    wrong.lock().unwrap().push(format!("row {id} is absent, version {before} was committed"));
                }
            }
            "hit" => {
                answers.hit.fetch_add(1, SeqCst);
                let version: i64 = parts[1].parse().unwrap();
                if version < before || version <= -before {
                    wrong.lock().unwrap().push(format!("row {id} has version {version}, not {before}"));
                }
            }
            "load" => {
                answers.load.fetch_add(1, SeqCst);
                let version =
                    session.query_opt(&select, &[&(id as i64)]).unwrap().map(|row| row.get::<_, i32>(0).to_string());
                // Some readers are slow.
                if random.u8(..8) == 0 {
                    thread::sleep(Duration::from_millis(random.u64(..5)));
                }
                let (item, key) = (id.to_string(), format!("{{users}}:{id}"));
                let fill = ["BF.FILL", "{users}", &item, &key, &parts[1]];
                match &version {
                    Some(version) => client.call(&[&fill[..], &["VALUE", version, "EX", "60"]].concat()),
                    None => client.call(&[&fill[..], &["NONE", "EX", "60"]].concat()),
                };
            }
            _ => _ = answers.wait.fetch_add(1, SeqCst),
        }
    }
}

#[test]
fn no_reader_gets_less_than_was_committed_while_followers_are_killed() {
    on_every_server(|program| {
        let (world, mut follower) = World::synchronous(program);
        let rows: Vec<Row> = (0..WRITERS * ROWS).map(|_| Row::default()).collect();
        let (done, answers, wrong) = (AtomicBool::new(false), Answers::default(), Mutex::default());
        let (mut commits, mut kills) = (0, 0);
        thread::scope(|scope| {
            let _cleanup = Cleanup(&world);
            let (world, rows, done, answers, wrong) = (&world, &rows[..], &done, &answers, &wrong);
            let writers: Vec<_> =
                (0..WRITERS).map(|writer| scope.spawn(move || write(world, rows, writer, done))).collect();
            for reader in 0..READERS {
                scope.spawn(move || read(world, rows, reader, done, answers, wrong));
            }
            let (mut random, begin) = (fastrand::Rng::with_seed(5), Instant::now());
            while begin.elapsed() < RUN {
                thread::sleep(Duration::from_millis(random.u64(200..1500)));
                drop(std::mem::replace(&mut follower, world.follow()));
                kills += 1;
            }
            done.store(true, SeqCst);
            for writer in writers {
                commits += writer.join().unwrap();
            }
        });
        let wrong = wrong.into_inner().unwrap();
        assert!(
            wrong.is_empty(),
            "{} of {commits} commits: {:?}\n{}",
            wrong.len(),
            &wrong[..wrong.len().min(5)],
            follower.log()
        );
        let counts = [&answers.absent, &answers.hit, &answers.load, &answers.wait].map(|count| count.load(SeqCst));
        assert!(
            commits > 0 && kills > 0 && counts.iter().all(|count| *count > 0),
            "{commits} commits, {kills} kills, {counts:?}"
        );
        crate::harness::figures(&format!("follow: {commits} commits, {kills} kills survived"));
        let mut client = world.server.connect();
        soon(|| client.run("HLEN {users}:feed:open") == integer(0));
        follower.end();
    });
}
