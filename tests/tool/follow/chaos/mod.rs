//! The followers of PostgreSQL, MariaDB and MySQL under faults: writers that do not use the guard, readers that check every
//! answer, and followers, servers and connections that fail.
//!
//! A run takes 8 s times `BLOOMGATE_EFFORT` (default 1): 450 is an hour. `BLOOMGATE_SEED` (default 1) determines the statements and the
//! faults, but not their timing. A broken promise ends the run, and prints the history of the row and the last faults.
//!
//! In synchronous mode, an answer must show every COMMIT that had returned when the reader asked. In eventual mode, any answer must show
//! every COMMIT that had returned before the heartbeat's time, and without FRESH, `absent` every COMMIT that had returned `max-lag` earlier.
//! With FRESH, any answer must show every COMMIT that had returned FRESH earlier, also without a heartbeat. If the database stops during a
//! COMMIT, that COMMIT has not returned.

mod mariadb;
mod postgresql;
mod reader;
mod writer;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use testing::database::Database;
use testing::mariadb::MariaDb;
use testing::{Builder, Reply, Server, Stop, figures, integer, on_every_server, patience};

use crate::follow::chaos::reader::{Answer, READERS, Reader, Rows};
use crate::follow::chaos::writer::{ROWS, WRITERS, Writer};
use crate::follow::connections::Proxy;
use crate::follow::{Followed, Follower, USERS_TABLE, World, beats, has, soon};
use crate::running::send;

/// The duration of a run at effort 1.
const SECONDS: f64 = 8.0;
/// `max-lag` of the table.
const MAX_LAG: Duration = Duration::from_secs(2);
/// The options that create the table's filter. It grows with a large transaction, and has no room for all of its deleted rows.
const CREATE: &str = "0.000001 1000 HASH siphash";
/// The number of last faults that are printed.
const NOTES: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    Synchronous,
    Eventual,
}

/// A database in which a run injects faults.
pub trait Base: Followed<Session: Session> {
    /// Additional faults of a round.
    const MORE: &'static [Fault];

    fn name() -> &'static str;

    /// Returns the settings of the database.
    fn settings() -> Vec<&'static str> {
        Vec::new()
    }

    /// Returns the address for sessions.
    fn address(&self) -> String;

    /// Injects a fault of the database.
    fn inflict(chaos: &mut Chaos<Self>, fault: Fault);
}

/// Starts a database whose filter meets its limits, and a follower whose heartbeat has begun.
pub fn begin<D: Base>(mode: Mode, server: Builder) -> (World<D>, Follower) {
    let mode = if mode == Mode::Synchronous { "synchronous" } else { "eventual" };
    let table = USERS_TABLE.replace("0.000001 100000 HASH siphash", CREATE);
    let world = World::between(mode, D::start(&D::settings()), server, D::USERS, &table);
    let follower = world.following();
    (world, follower)
}

/// A session of a writer or a reader, in the SQL dialect of its database.
pub trait Session: Sized + Send {
    /// Whether TRUNCATE may be a part of a transaction.
    const TRUNCATE_IS_UNDONE: bool;
    /// The clause that makes an INSERT update existing rows.
    const ON_CONFLICT: &'static str;

    fn connect(address: &str) -> Result<Self, Failure>;

    fn run(&mut self, statements: &str) -> Result<(), Failure>;

    fn version(&mut self, id: usize) -> Result<Option<i32>, Failure>;

    /// Inserts rows in bulk.
    fn load(&mut self, ids: &[usize], version: i32) -> Result<(), Failure>;

    /// Returns one of four alterations of the table, in rotation.
    fn alter(number: usize, column: &str) -> String;

    /// Returns the statement that inserts these rows, if they do not exist.
    fn insert_many(first: usize, last: usize) -> String;

    /// Returns the statements that prepare a transaction.
    fn prepare(name: &str, statements: &str) -> String;

    /// Returns the statement that ends a prepared transaction with COMMIT or ROLLBACK.
    fn end_prepared(name: &str, end: &str) -> String;

    /// Whether there is a prepared transaction of this name.
    fn is_prepared(&mut self, name: &str) -> Result<bool, Failure>;
}

/// Why a statement failed.
#[derive(Debug)]
pub enum Failure {
    /// The database has stopped, or has ended the transaction. It is unknown whether it was committed.
    Unknown,
    Refused(String),
}

/// The state shared by all threads of a run.
pub struct Run {
    mode: Mode,
    is_ordinary: bool,
    seed: u64,
    /// The addresses of the database and the server.
    address: String,
    port: u16,
    rows: Rows,
    /// Transactions hold it shared, TRUNCATE exclusively.
    gate: RwLock<()>,
    pub done: AtomicBool,
    /// The number of writers and readers that have not ended.
    threads: AtomicU64,
    /// The database no longer answers.
    given_up: AtomicBool,
    commits: AtomicU64,
    /// Transactions whose outcome was initially unknown.
    unknown: AtomicU64,
    /// Counts of `absent`, `hit`, `load`, `wait`, and of answers compared with the writers' COMMITs.
    answers: [AtomicU64; 5],
    faults: Mutex<BTreeMap<Fault, u64>>,
    notes: Mutex<VecDeque<String>>,
    broken: Mutex<Option<String>>,
}

impl Run {
    fn new<D: Base>(mode: Mode, world: &World<D>, is_ordinary: bool) -> Self {
        Self {
            mode,
            is_ordinary,
            seed: std::env::var("BLOOMGATE_SEED").map_or(1, |text| text.parse().expect("a number")),
            address: world.database.address(),
            port: world.server.port,
            rows: Rows::new(WRITERS * ROWS),
            gate: RwLock::default(),
            done: AtomicBool::new(false),
            threads: AtomicU64::new(WRITERS as u64 + READERS),
            given_up: AtomicBool::new(false),
            commits: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            answers: Default::default(),
            faults: Mutex::default(),
            notes: Mutex::default(),
            broken: Mutex::default(),
        }
    }

    fn is_given_up(&self) -> bool {
        self.given_up.load(SeqCst)
    }

    fn count(&self, answer: Answer, is_checked: bool) {
        let index = match answer {
            Answer::Absent => 0,
            Answer::Hit(_) => 1,
            Answer::Load => 2,
            Answer::Wait | Answer::Filled(..) => 3,
        };
        self.answers[index].fetch_add(1, SeqCst);
        if is_checked && index < 2 {
            self.answers[4].fetch_add(1, SeqCst);
        }
    }

    /// Ends the run because of a broken promise. Only the first one is reported.
    fn fail(&self, text: &str) {
        let mut broken = self.broken.lock().unwrap();
        if broken.is_none() {
            let now = self.rows.at(Instant::now());
            let notes: String = self.notes.lock().unwrap().iter().map(|note| format!("{note}\n")).collect();
            *broken = Some(format!("at {now}: {text}\n--- the last faults\n{notes}---"));
        }
        self.done.store(true, SeqCst);
    }

    /// Records a line for the report of a broken promise.
    fn note(&self, text: &str) {
        let mut notes = self.notes.lock().unwrap();
        if notes.len() == NOTES {
            notes.pop_front();
        }
        notes.push_back(format!("{:>14} {text}", self.rows.at(Instant::now())));
    }
}

impl fmt::Display for Run {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [absent, hit, load, wait, checked] = self.answers.each_ref().map(|count| count.load(SeqCst));
        let (commits, unknown) = (self.commits.load(SeqCst), self.unknown.load(SeqCst));
        write!(out, "{commits} commits, {unknown} transactions whose end was unknown, {checked} answers checked, ")?;
        write!(out, "{absent} absent, {hit} hit, {load} load, {wait} wait, ")?;
        let faults = self.faults.lock().unwrap();
        write!(out, "{} kills survived", faults.values().sum::<u64>())?;
        faults.iter().try_for_each(|(fault, count)| write!(out, ", {count} {fault:?}"))
    }
}

/// Connects to the database, which may be unreachable.
fn connect<S: Session>(run: &Run) -> S {
    loop {
        match S::connect(&run.address) {
            Ok(session) => return session,
            Err(failure) if run.is_given_up() => panic!("no database: {failure:?}"),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn chaos<D: Base>(mode: Mode, program: &Path) {
    let server = Server::with(program).line("appendonly yes").line("appendfsync always");
    let (world, first) = begin::<D>(mode, server);
    drive(mode, world, first, effort(), false, |chaos, time| chaos.disturb(time));
}

/// The factor of a run's duration.
pub fn effort() -> f64 {
    std::env::var("BLOOMGATE_EFFORT").map_or(1.0, |text| text.parse().expect("a factor"))
}

/// Runs writers and readers until `disturb` returns. `is_ordinary`: without statements after which the filter is refilled.
pub fn drive<D: Base>(
    mode: Mode,
    world: World<D>,
    first: Follower,
    effort: f64,
    is_ordinary: bool,
    disturb: impl FnOnce(&mut Chaos<D>, Duration),
) {
    let run = Run::new(mode, &world, is_ordinary);
    let mut chaos = Chaos::new(&run, world, first);
    thread::scope(|scope| {
        let run = &run;
        for writer in 0..WRITERS {
            scope.spawn(move || Writer::<D::Session>::new(run, writer).run());
        }
        for reader in 0..READERS {
            scope.spawn(move || Reader::<D::Session>::new(run, reader).run());
        }
        let time = Duration::from_secs_f64(SECONDS * effort);
        let result = catch_unwind(AssertUnwindSafe(|| disturb(&mut chaos, time)));
        run.done.store(true, SeqCst);
        chaos.let_writers_end();
        result.unwrap_or_else(|panic| resume_unwind(panic));
    });
    if let Some(broken) = run.broken.lock().unwrap().as_ref() {
        panic!("seed {}, {run}\n{broken}", run.seed);
    }
    check_the_end(&run, &mut chaos);
    let counts = &run.answers.each_ref().map(|count| count.load(SeqCst))[..4];
    let waits = if mode == Mode::Synchronous { counts.len() } else { 3 };
    assert!(run.commits.load(SeqCst) > 0 && counts[..waits].iter().all(|count| *count > 0), "{run}");
    figures(&format!("follow {}, {mode:?}, seed {}: {run}", D::name(), run.seed));
}

/// Checks every row once the whole log is applied.
fn check_the_end<D: Base>(run: &Run, chaos: &mut Chaos<D>) {
    let mut session: D::Session = connect(run);
    thread::scope(|scope| {
        let marker = scope.spawn(|| session.run("INSERT INTO users (id, version) VALUES (999999, 1)").unwrap());
        // A follower that was just killed must be restarted.
        soon(|| {
            chaos.tend();
            marker.is_finished()
        });
    });
    let mut client = chaos.world.server.connect();
    soon(|| {
        chaos.tend();
        has(&mut client, 999999) && beats(&mut client) && client.run("HLEN {users}:feed:open") == integer(0)
    });
    for id in 0..run.rows.len() {
        let version = session.version(id).unwrap();
        let reply = client.run(&format!("BF.FETCH {{users}} {id} {{users}}:{id} WHILE {{users}}:feed"));
        let Reply::Array(parts) = reply else { panic!("{reply:?}") };
        let is_right = match parts[0].text().as_str() {
            "absent" => version.is_none(),
            "hit" => Some(parts[1].text()) == version.map(|version| version.to_string()),
            _ => true,
        };
        assert!(is_right, "seed {}: at the end row {id} is {version:?}, but {parts:?}\n{run}", run.seed);
    }
}

#[test]
fn synchronous_answers_show_every_returned_commit_despite_faults() {
    on_every_server(|program| chaos::<Database>(Mode::Synchronous, program));
}

#[test]
fn eventual_answers_are_late_by_at_most_the_lag_despite_faults() {
    on_every_server(|program| chaos::<Database>(Mode::Eventual, program));
}

#[test]
fn answers_on_mariadb_are_late_by_at_most_the_lag_despite_faults() {
    on_every_server(|program| chaos::<MariaDb>(Mode::Eventual, program));
}

// The faults: followers are killed, stopped and replaced, servers are restarted, connections are cut.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Kill,
    Stop,
    TakeOver,
    /// COMMITs are in the log but not visible yet.
    HoldCommits,
    CutDatabase,
    CutServer,
    RestartServer,
    StopServer,
    /// Filters must not grow.
    RefuseGrowth,
    /// The server has no memory for writes.
    RefuseWrites,
    /// The server executes a transaction of the follower, but the reply is lost.
    LoseReply,
    CrashDatabase,
    ShutdownDatabase,
    StopDatabase,
    /// The log up to now is purged while no follower is running.
    PurgeLog,
    /// The log is reset, and reuses its transaction numbers.
    ResetLog,
    /// The database runs without its log until a follower has noticed it, and a little longer.
    LoseLog,
    /// A replica with every COMMIT replaces the database.
    FailOver,
    /// A backup replaces the database, and its last COMMITs are lost.
    Restore,
    /// The server saves, and rewrites its append-only file.
    Save,
}

/// The faults of each round, in random order. A takeover takes longer than a short run.
const ROUND: [Fault; 15] = [
    Fault::Kill,
    Fault::Kill,
    Fault::Kill,
    Fault::Stop,
    Fault::HoldCommits,
    Fault::CutDatabase,
    Fault::CutServer,
    Fault::RestartServer,
    Fault::StopServer,
    Fault::RefuseGrowth,
    Fault::RefuseWrites,
    Fault::LoseReply,
    Fault::CrashDatabase,
    Fault::ShutdownDatabase,
    Fault::Save,
];
/// One in this many rounds has a takeover.
const TAKEOVERS: usize = 4;

/// Followers, one of which has the slot, with their database and server.
pub struct Chaos<'a, D> {
    pub run: &'a Run,
    pub world: World<D>,
    /// The proxy between the server and the followers, except the first one.
    proxy: Proxy,
    pub followers: Vec<Follower>,
    random: fastrand::Rng,
    reported: Instant,
    /// The number of COMMITs when it last grew, and when.
    progress: (u64, Instant),
}

impl<'a, D: Base> Chaos<'a, D> {
    fn new(run: &'a Run, world: World<D>, first: Follower) -> Self {
        let (now, proxy) = (Instant::now(), Proxy::before_server(&world));
        let followers = vec![first, world.follow()];
        let random = fastrand::Rng::with_seed(run.seed);
        Self { run, world, proxy, followers, random, reported: now, progress: (0, now) }
    }

    /// Injects faults until the time is up or a promise is broken.
    fn disturb(&mut self, time: Duration) {
        let begin = Instant::now();
        for round in 0.. {
            let mut faults = [&ROUND, D::MORE].concat();
            if round % TAKEOVERS == TAKEOVERS - 1 {
                faults.push(Fault::TakeOver);
            }
            self.random.shuffle(&mut faults);
            for fault in faults {
                // A short run has no time for long pauses.
                let longest = if round == 0 { 1500 } else { 4000 };
                let pause = Duration::from_millis(self.random.u64(100..longest));
                self.pause(pause);
                if self.run.done.load(SeqCst) || begin.elapsed() >= time {
                    return;
                }
                self.tend();
                self.run.note(&format!("{fault:?} begins"));
                self.inflict(fault);
                self.run.note(&format!("{fault:?} has ended"));
                *self.run.faults.lock().unwrap().entry(fault).or_default() += 1;
                if self.reported.elapsed() > Duration::from_secs(60) {
                    self.reported = Instant::now();
                    eprintln!("{} s: {}", begin.elapsed().as_secs(), self.run);
                }
            }
        }
    }

    /// Restarts followers that have ended, as a supervisor does.
    fn tend(&mut self) {
        for index in 0..self.followers.len() {
            if self.followers[index].running.0.try_wait().unwrap().is_some() {
                self.replace(index);
            }
        }
    }

    fn replace(&mut self, index: usize) {
        self.proxy.configure(&self.world);
        let old = std::mem::replace(&mut self.followers[index], self.world.follow());
        self.run.note(&format!("the follower {index} ends; its log:\n{}", old.log()));
    }

    /// Waits, and checks that the writers' COMMITs make progress.
    pub fn pause(&mut self, time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time && !self.run.done.load(SeqCst) {
            thread::sleep(Duration::from_millis(20));
            let commits = self.run.commits.load(SeqCst);
            if commits > self.progress.0 {
                self.progress = (commits, Instant::now());
            } else if self.progress.1.elapsed() > patience() {
                self.give_up();
            }
        }
    }

    /// Waits until the writers and readers have ended. This needs a running follower.
    fn let_writers_end(&mut self) {
        let begin = Instant::now();
        while self.run.threads.load(SeqCst) > 0 {
            self.tend();
            thread::sleep(Duration::from_millis(20));
            if begin.elapsed() > patience() {
                return self.give_up();
            }
        }
    }

    /// Releases all COMMITs, and ends the run.
    fn give_up(&mut self) {
        self.run.fail("no COMMIT returns any more");
        self.run.given_up.store(true, SeqCst);
        self.world.database.let_commits_return();
    }

    pub fn inflict(&mut self, fault: Fault) {
        let index = self.random.usize(..self.followers.len());
        match fault {
            Fault::Kill => self.replace(index),
            Fault::Stop => {
                let time = self.some_time(50..1500);
                self.stop_follower(index, time);
            }
            Fault::TakeOver => {
                let time = self.some_time(10_500..16_000);
                self.stop_follower(index, time);
            }
            Fault::CutServer => _ = self.world.server.connect().run("CLIENT KILL USER follower"),
            Fault::RestartServer => {
                self.world.server.restart(Stop::Kill);
                assert_eq!(self.world.server.port, self.run.port);
            }
            Fault::StopServer => {
                let time = self.some_time(50..1500);
                self.stop(self.world.server.process_id(), time);
            }
            Fault::RefuseGrowth => self.configure_for_some_time("bf.max-filter-bytes", "1"),
            Fault::RefuseWrites => self.configure_for_some_time("maxmemory", "1"),
            Fault::Save => {
                // One save may be in progress.
                self.world.server.connect().pipeline(&["BGREWRITEAOF", "BGSAVE SCHEDULE"]);
            }
            Fault::LoseReply => {
                self.proxy.lose_reply("QUEUED");
                let time = self.some_time(50..1500);
                self.pause(time);
            }
            _ => D::inflict(self, fault),
        }
    }

    /// Sets a limit of the server for some time.
    fn configure_for_some_time(&mut self, setting: &str, limit: &str) {
        for value in [limit, "0"] {
            let reply = self.world.server.connect().run(&format!("CONFIG SET {setting} {value}"));
            assert_eq!(reply.text(), "OK");
            let time = self.some_time(50..1500);
            self.pause(time);
        }
    }

    /// Stops all writers for some time: wrong values in the cache stay there, and readers notice them once the heartbeat has advanced.
    fn let_readers_look(&mut self) {
        let run = self.run;
        let _alone = run.gate.write().unwrap();
        self.pause(MAX_LAG / 2);
    }

    fn some_time(&mut self, milliseconds: Range<u64>) -> Duration {
        Duration::from_millis(self.random.u64(milliseconds))
    }

    fn stop_follower(&mut self, index: usize, time: Duration) {
        if self.followers[index].running.0.try_wait().unwrap().is_none() {
            self.stop(self.followers[index].running.0.id(), time);
        }
    }

    fn stop(&mut self, process: u32, time: Duration) {
        send("STOP", process);
        self.pause(time);
        send("CONT", process);
    }

    /// Kills both followers until [`Self::tend`] restarts them.
    fn kill_followers(&mut self) {
        for follower in &mut self.followers {
            _ = follower.running.0.kill();
            follower.running.0.wait().unwrap();
        }
    }
}
