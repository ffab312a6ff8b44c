//! A round: sends commands to the primary, injects faults between and during them, and compares everything.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Instant;

use super::check::contents;
use super::commands::{Op, Words, words};
use super::draw::Draw;
use super::model::{KEYS, Limit, Model};
use super::pair::Pair;
use super::replies::{refuses_an_item, settle};
use super::shapes::SHAPES;
use super::trail::Trail;
use testing::{Reply, Rng, Version};

/// The figures of all rounds.
#[derive(Debug, Default)]
pub struct Counts {
    pub commands: usize,
    pub checks: usize,
    pub verified: usize,
    pub kills: usize,
    pub hand_overs: usize,
    pub failovers: usize,
    pub forks: usize,
    pub reloads: usize,
    /// How often adds were pending.
    pub pending: usize,
    /// How often each reply and effect of the guard occurred.
    pub guard: BTreeMap<&'static str, usize>,
}

/// The replies and effects of the guard.
const OF_THE_GUARD: [&str; 12] = [
    "absent",
    "absent by a NONE",
    "hit",
    "stale",
    "load",
    "wait",
    "held",
    "filled",
    "NONE",
    "GIVEUP",
    "BACKOFF",
    "refused",
];

impl Counts {
    /// Whether everything occurred that the test is about.
    pub fn has_everything(&self) -> bool {
        let of_servers = [self.kills, self.hand_overs, self.failovers, self.forks, self.reloads, self.pending];
        of_servers.iter().all(|&it| it > 0) && OF_THE_GUARD.iter().all(|what| self.guard.contains_key(what))
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commands, checks, verified, kills, hand_overs, failovers, forks, reloads, pending, guard } = self;
        write!(f, "{commands} executions, {kills} kills survived, {verified} adds verified in {checks} checks, ")?;
        write!(f, "{failovers} failovers, {hand_overs} hand-overs, {forks} forks, {reloads} reloads, ")?;
        write!(f, "adds pending at {pending} moments, guard: {guard:?}")
    }
}

/// The way in which the commands of a batch are sent.
#[derive(Clone, Copy, PartialEq)]
pub enum Way {
    Plain,
    Transaction,
    /// A script for each command.
    Scripts,
}

/// A batch in flight.
pub struct Batch {
    ops: Vec<Op>,
    way: Way,
    sent: Instant,
}

/// Batches per round.
const STEPS: u64 = 120;

/// One round.
pub struct Driver<'a> {
    pub pair: Pair,
    pub model: Model,
    seed: u64,
    pub rng: Rng,
    pub trail: Trail,
    pub counts: &'a mut Counts,
    cuts_arrays_in_scripts: bool,
}

impl<'a> Driver<'a> {
    /// Starts servers with one filter of each kind.
    pub fn start(program: &Path, seed: u64, counts: &'a mut Counts) -> Self {
        let (rng, trail) = (Rng::new(seed), Trail::new(seed));
        let cuts_arrays_in_scripts = Version::of(program).cuts_arrays_in_scripts();
        // In every second round, small layers pend, too.
        let pend_from = seed.is_multiple_of(2).then_some(4096);
        let (pair, model) = (Pair::start(program, pend_from), Model::new());
        let mut driver = Self { pair, model, seed, rng, trail, counts, cuts_arrays_in_scripts };
        // As many kinds as there are keys; over several rounds, every kind occurs.
        let first = driver.below(SHAPES.len());
        let reserve = |key: usize| Op::Reserve { key, shape: &SHAPES[(first + key) % SHAPES.len()], expires: false };
        driver.run((0..KEYS).map(reserve).collect(), Way::Plain);
        driver
    }

    /// Runs a round.
    pub fn round(mut self) {
        for step in 0..STEPS {
            // What happens at a step depends little on the duration of earlier steps.
            self.rng = Rng::new(self.seed.wrapping_mul(1 << 20).wrapping_add(step));
            let ops = self.draw();
            match self.below(60) {
                // Each round has a failover.
                _ if step == STEPS / 2 => {
                    self.pair.link();
                    self.kill_in(ops, Driver::fail_over);
                }
                0 => self.kill_in(ops, Driver::come_back),
                1 if self.pair.is_linked => self.kill_in(ops, Driver::fail_over),
                _ => {
                    let way = self.way();
                    self.run(ops, way);
                    self.confirm();
                    self.event();
                }
            }
        }
        self.check();
        self.unchanged(|driver| {
            driver.pair.kill_primary();
            driver.come_back();
        });
        self.check();
        for (what, count) in &self.model.guard.seen {
            *self.counts.guard.entry(what).or_default() += count;
        }
    }

    /// Runs an action that changes no key.
    pub fn unchanged(&mut self, act: impl FnOnce(&mut Self)) {
        let before = contents(&mut self.pair.client);
        act(self);
        let after = contents(&mut self.pair.client);
        assert!(before.keys().eq(after.keys()), "other keys");
        let changed = before.iter().find(|(key, digest)| after[*key] != **digest);
        if let Some((key, digest)) = changed {
            panic!("{}: {digest:?} became {:?}", key.escape_ascii(), after[key]);
        }
    }

    /// Returns a random number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    /// Draws the commands of a batch.
    fn draw(&mut self) -> Vec<Op> {
        let count = 1 + self.below(40);
        let (rng, model) = (&mut self.rng, &self.model);
        let mut draw = Draw { rng, model, taken: Vec::new(), counted_down: Vec::new() };
        let mut ops = Vec::new();
        while ops.len() < count && draw.taken.len() < KEYS / 2 {
            ops.push(draw.op());
        }
        ops
    }

    /// Draws a way to send a batch.
    pub fn way(&mut self) -> Way {
        match self.below(8) {
            // A server above maxmemory refuses a whole transaction.
            0 if self.model.limit != Limit::Memory => Way::Transaction,
            1 => Way::Scripts,
            _ => Way::Plain,
        }
    }

    /// Sends commands without waiting for their replies.
    pub fn send(&mut self, ops: Vec<Op>, way: Way) -> Batch {
        let sent = Instant::now();
        let mut lines: Vec<Words> = ops.iter().map(|op| op.words(&self.model)).collect();
        match way {
            Way::Plain => {}
            Way::Transaction => {
                lines.insert(0, words("MULTI"));
                lines.push(words("EXEC"));
            }
            Way::Scripts => {
                for line in &mut lines {
                    let script: [&[u8]; 3] = [b"EVAL", b"return redis.pcall(unpack(ARGV))", b"0"];
                    line.splice(0..0, script.map(<[u8]>::to_vec));
                }
            }
        }
        for line in &lines {
            self.trail.command(line);
            self.pair.client.send(line).expect("the server takes commands");
        }
        self.counts.commands += ops.len();
        Batch { ops, way, sent }
    }

    /// Reads the next reply; `None` if the server is gone.
    fn receive(&mut self) -> Option<Reply> {
        let reply = self.pair.client.receive().ok()?;
        self.trail.line(format_args!("< {reply:?}"));
        Some(reply)
    }

    /// Checks the replies to a batch, as far as they arrive. A command without a reply was executed or not. Returns whether
    /// all arrived.
    pub fn settle(&mut self, batch: Batch) -> bool {
        let Batch { ops, way, sent } = batch;
        let mut replies = Vec::new();
        if way == Way::Transaction {
            // OK, QUEUED for each command, then the replies of all.
            let last = (0..ops.len() + 2).map_while(|_| self.receive()).nth(ops.len() + 1);
            replies.extend(last.iter().flat_map(Reply::elements).cloned());
        }
        let mut replies = replies.into_iter();
        let mut all_came = true;
        for op in ops {
            let reply = if way == Way::Transaction { replies.next() } else { self.receive() };
            let Some(reply) = reply else {
                all_came = false;
                self.model.doubt(&op, sent);
                continue;
            };
            if way == Way::Scripts && self.cuts_arrays_in_scripts && refuses_an_item(&op, &reply) {
                // Items before the refused one may have been added.
                self.model.announce(&op);
                self.model.doubt(&op, sent);
                continue;
            }
            if let Err(fault) = settle(&mut self.model, &op, &reply, sent) {
                self.trail.command(&op.words(&self.model));
                panic!("{fault}; the reply is {reply:?}");
            }
        }
        all_came
    }

    /// Sends commands and checks their replies.
    pub fn run(&mut self, ops: Vec<Op>, way: Way) {
        let batch = self.send(ops, way);
        assert!(self.settle(batch), "the server does not answer any more");
        self.delete_doubtful();
    }

    /// Sends one of the test's own commands, whose reply the caller handles.
    pub fn control(&mut self, line: &str) -> Reply {
        self.trail.line(format_args!("> {line}"));
        let reply = self.pair.client.run(line);
        self.trail.line(format_args!("< {reply:?}"));
        reply
    }

    /// Sometimes lets the replica confirm what was written.
    fn confirm(&mut self) {
        if self.pair.is_linked && self.below(2) == 0 && self.control("WAIT 1 1000").number() > 0 {
            self.model.confirmed();
        }
        self.counts.pending += usize::from(self.pair.client.info_number("bf_bloom_pending_bytes") > 0);
    }
}
