//! The disturbances: followers are killed, stopped and replaced, servers are restarted, connections are cut.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use super::super::synchronous::{Cleanup, FOLLOWER, WITH_GHOST};
use super::super::{Follower, World};
use super::{Mode, Run};
use testing::{Stop, patience};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Kill,
    Stop,
    TakeOver,
    HoldCommits,
    CutDatabase,
    CutServer,
    RestartServer,
    CrashDatabase,
    ShutdownDatabase,
}

/// One round of faults, in random order. A takeover takes longer than a short run.
const ROUND: [Fault; 10] = [
    Fault::Kill,
    Fault::Kill,
    Fault::Kill,
    Fault::Stop,
    Fault::HoldCommits,
    Fault::CutDatabase,
    Fault::CutServer,
    Fault::RestartServer,
    Fault::CrashDatabase,
    Fault::ShutdownDatabase,
];
/// A round with a takeover, every this many rounds.
const TAKEOVERS: usize = 4;

/// Two followers, one of which has the slot, and what they run between.
pub struct Chaos<'a> {
    run: &'a Run,
    pub world: World,
    pub followers: [Follower; 2],
    random: fastrand::Rng,
    reported: Instant,
    /// The number of COMMITs when it last grew, and when.
    progress: (u64, Instant),
}

impl<'a> Chaos<'a> {
    pub fn new(run: &'a Run, world: World, first: Follower) -> Self {
        let now = Instant::now();
        let followers = [first, world.follow()];
        Self { run, world, followers, random: fastrand::Rng::with_seed(run.seed), reported: now, progress: (0, now) }
    }

    /// Disturbs until the time is over or a promise is broken.
    pub fn disturb(&mut self, time: Duration) {
        let begin = Instant::now();
        for round in 0.. {
            let mut faults = ROUND.to_vec();
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

    /// Starts the followers again that have ended, as a supervisor does.
    pub fn tend(&mut self) {
        for index in 0..self.followers.len() {
            if self.followers[index].running.0.try_wait().unwrap().is_some() {
                self.replace(index);
            }
        }
    }

    fn replace(&mut self, index: usize) {
        let old = std::mem::replace(&mut self.followers[index], self.world.follow());
        self.run.note(&format!("the follower {index} ends; its log:\n{}", old.log()));
    }

    /// Waits, and watches the writers: their COMMITs must go on.
    fn pause(&mut self, time: Duration) {
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

    /// Waits until the writers and readers have ended, for which a follower must run.
    pub fn let_writers_end(&mut self) {
        let begin = Instant::now();
        while self.run.threads.load(SeqCst) > 0 {
            self.tend();
            thread::sleep(Duration::from_millis(20));
            if begin.elapsed() > patience() {
                return self.give_up();
            }
        }
    }

    /// Lets all COMMITs return, and ends the run.
    fn give_up(&mut self) {
        self.run.fail("no COMMIT returns any more");
        self.run.given_up.store(true, SeqCst);
        Cleanup(&self.world).let_commits_return();
    }

    fn inflict(&mut self, fault: Fault) {
        let index = self.random.usize(..self.followers.len());
        match fault {
            Fault::Kill => self.replace(index),
            Fault::Stop => {
                let time = Duration::from_millis(self.random.u64(50..1500));
                self.stop(index, time);
            }
            Fault::TakeOver => {
                let time = Duration::from_millis(self.random.u64(10_500..16_000));
                self.stop(index, time);
            }
            Fault::HoldCommits => {
                // Until it is no longer demanded, COMMITs wait for a standby that never connects. The follower has them already.
                let (held, usual) = match self.run.mode {
                    Mode::Synchronous => (WITH_GHOST, FOLLOWER),
                    Mode::Eventual => ("ghost", ""),
                };
                self.world.demand(held);
                let time = Duration::from_millis(self.random.u64(50..1000));
                self.pause(time);
                self.world.demand(usual);
            }
            Fault::CutDatabase => {
                let text = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name <> 'chaos' \
                            AND pid <> pg_backend_pid() AND backend_type IN ('client backend', 'walsender')";
                self.world.session().batch_execute(text).unwrap();
            }
            Fault::CutServer => _ = self.world.server.connect().run("CLIENT KILL USER follower"),
            Fault::RestartServer => {
                self.world.server.restart(Stop::Kill);
                assert_eq!(self.world.server.port, self.run.port);
            }
            Fault::CrashDatabase => self.world.database.restart("immediate"),
            Fault::ShutdownDatabase => self.world.database.restart("fast"),
        }
    }

    fn stop(&mut self, index: usize, time: Duration) {
        if self.followers[index].running.0.try_wait().unwrap().is_none() {
            self.followers[index].signal("-STOP");
            self.pause(time);
            self.followers[index].signal("-CONT");
        }
    }
}
