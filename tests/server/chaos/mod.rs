//! Random commands on filters of every kind, while the servers fork, are killed and fail over. A model tracks every acknowledged item, and
//! the changes that a failover may lose.
//!
//! Each round starts a fresh primary and replica, and is determined by its seed. The first round's seed is `BLOOMGATE_SEED`
//! (default 1), and each later round adds 1. `BLOOMGATE_EFFORT` (default 1) multiplies the number of rounds. The timing of
//! saves and the expiry of windows still differ between runs.
//!
//! The model checks every reply, errors included. After idle moments, restarts and failovers, primary and replica have equal
//! digests, every member is found, and deleted items are not. A failing test prints the last commands.

mod draw;
mod model;
mod replies;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Display};
use std::ops::Range;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use draw::{DEFAULTS, Draw, Family, How, ITEMS, Layout, Op, SHAPES, Words, item_name, key_name, words};
use model::{Arrival, Filter, Item, KEYS, Limit, Model, Slot};
use replies::{check_members, refuses_an_item, settle};

use crate::fleet::{assert_equal, cut_and_flood, follow};
use crate::pending::{children, kill, no_child};
use crate::reliability::scaled;
use testing::{Connection, Reply, Rng, Server, Stop, Version, catch_up, eventually, figures, ok, on_every_server};

/// The number of rounds per server.
const ROUNDS: usize = 4;

#[test]
fn random_commands_survive_forks_kills_and_promotions() {
    let first: u64 = std::env::var("BLOOMGATE_SEED").map_or(1, |text| text.parse().expect("a number"));
    on_every_server(|program| {
        let mut counts = Counts::default();
        let rounds = scaled(ROUNDS);
        for round in 0..rounds {
            Driver::start(program, first + round as u64, &mut counts).round();
        }
        assert!(rounds < ROUNDS || counts.has_everything(), "a usual run has some of each: {counts:?}");
        figures(&format!("chaos: {rounds} rounds from {first}, {counts}"));
    });
}

// A round: sends commands to the primary, injects faults between and during them, and compares everything.

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
    /// How often the link was cut.
    pub cuts: usize,
    /// How often adds were pending.
    pub pending: usize,
}

impl Counts {
    /// Whether every fault has occurred.
    pub fn has_everything(&self) -> bool {
        [self.kills, self.hand_overs, self.failovers, self.forks, self.reloads, self.cuts, self.pending]
            .iter()
            .all(|&it| it > 0)
    }
}

impl Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commands, checks, verified, kills, hand_overs, failovers, forks, reloads, cuts, pending } = self;
        write!(f, "{commands} executions, {kills} kills survived, {verified} adds verified in {checks} checks, ")?;
        write!(f, "{failovers} failovers, {hand_overs} hand-overs, {forks} forks, {reloads} reloads, {cuts} cuts, ")?;
        write!(f, "adds pending at {pending} moments")
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
        // One kind per key; over several rounds, every kind occurs.
        let first = driver.below(SHAPES.len());
        let reserve = |key: usize| Op::Reserve { key, shape: &SHAPES[(first + key) % SHAPES.len()], expires: false };
        driver.run((0..KEYS).map(reserve).collect(), Way::Plain);
        driver
    }

    /// Runs a round.
    pub fn round(mut self) {
        for step in 0..STEPS {
            // The random numbers of a step do not depend on how many earlier steps used.
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

    /// Checks the replies to a batch, as far as they arrive. A command without a reply may have been executed. Returns whether all arrived.
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

    /// Sometimes waits until the replica has confirmed all writes.
    fn confirm(&mut self) {
        if self.pair.is_linked && self.below(2) == 0 && self.control("WAIT 1 1000").number() > 0 {
            self.model.confirmed();
        }
        self.counts.pending += usize::from(self.pair.client.info_number("bf_bloom_pending_bytes") > 0);
    }
}

// A primary and its replica, both with an append-only file, and the faults injected into them.

/// Two servers.
pub struct Pair {
    servers: [Server; 2],
    primary: usize,
    /// A connection to the primary.
    pub client: Connection,
    /// Whether the replica was fully synchronised since the last restart of either server.
    pub is_linked: bool,
}

impl Pair {
    /// Starts two servers. The second has different defaults for new filters. With `pend_from`, adds to layers of this size in bytes may be
    /// pending.
    pub fn start(program: &Path, pend_from: Option<u64>) -> Self {
        let server = |line: &str| {
            let mut builder = Server::with(program)
                .line("appendonly yes")
                .line("appendfsync always")
                .line("auto-aof-rewrite-percentage 0")
                .line("repl-backlog-size 128kb");
            if let Some(bytes) = pend_from {
                builder = builder.with_faults(&format!("PEND {bytes}"));
            }
            builder.line(line).start()
        };
        let servers = [server("bf.layout native"), server("bf.layout redisbloom")];
        let client = servers[0].connect();
        let mut pair = Self { servers, primary: 0, client, is_linked: false };
        pair.link();
        pair
    }

    /// The index of the primary.
    pub fn primary(&self) -> usize {
        self.primary
    }

    fn server(&mut self) -> &mut Server {
        &mut self.servers[self.primary]
    }

    /// Opens another connection to the primary.
    pub fn connect(&self) -> Connection {
        self.servers[self.primary].connect()
    }

    /// Opens a connection to the replica.
    pub fn replica(&self) -> Connection {
        self.servers[1 - self.primary].connect()
    }

    /// Waits until the replica has everything that was written.
    pub fn link(&mut self) {
        let port = self.server().port;
        let mut replica = self.replica();
        for client in [&mut self.client, &mut replica] {
            client.run("CONFIG SET rdb-key-save-delay 0");
        }
        if replica.info("role") != "slave" || replica.info("master_link_status") != "up" {
            // A replica that lost its primary retries once a second; with REPLICAOF it retries at once.
            replica.run("REPLICAOF NO ONE");
            follow(&mut replica, port);
        }
        catch_up(&mut self.client, &mut replica);
        // After a full synchronisation, the append-only file is unusable until it is rewritten.
        no_child(&mut replica);
        self.is_linked = true;
    }

    /// Kills the children of the primary.
    pub fn kill_children(&mut self) {
        kill(&children(self.server()));
    }

    /// Kills the primary and its children.
    pub fn kill_primary(&mut self) {
        let orphans = children(self.server());
        self.server().stop(Stop::Kill);
        kill(&orphans);
        self.is_linked = false;
    }

    /// Restarts the killed primary from its append-only file.
    pub fn start_primary(&mut self) {
        self.server().start_again();
        self.client = self.server().connect();
    }

    /// Stops the primary cleanly and restarts it.
    pub fn restart_primary(&mut self) {
        self.server().restart(Stop::NoSave);
        self.client = self.server().connect();
        self.is_linked = false;
    }

    /// Kills the replica and restarts it.
    pub fn restart_replica(&mut self) {
        let replica = 1 - self.primary;
        let orphans = children(&self.servers[replica]);
        self.servers[replica].restart(Stop::Kill);
        kill(&orphans);
        self.is_linked = false;
        // The file does not contain the address of the primary.
        let port = self.server().port;
        follow(&mut self.replica(), port);
    }

    /// Detaches the replica briefly and lets it write something.
    pub fn resynchronise(&mut self) {
        let mut replica = self.replica();
        // A replica that is still loading data does not accept the command yet.
        eventually("the replica to leave its primary", || replica.run("REPLICAOF NO ONE") == ok());
        replica.run("BF.ADD of-the-replica item");
        let port = self.server().port;
        follow(&mut replica, port);
        self.is_linked = false;
    }

    /// Promotes the replica, which has everything, and makes the primary its replica.
    pub fn hand_over(&mut self, by_failover: bool) {
        let mut replica = self.replica();
        if by_failover {
            assert_eq!(self.client.run("FAILOVER"), ok());
            let (old, new) = (&mut self.client, &mut replica);
            eventually("the roles to change", || new.info("role") == "master" && old.info("role") == "slave");
        } else {
            assert_eq!(replica.run("REPLICAOF NO ONE"), ok());
        }
        self.primary = 1 - self.primary;
        self.client = self.server().connect();
        self.link();
    }

    /// Promotes the replica after the primary was killed, and restarts the latter as a replica.
    pub fn promote(&mut self) {
        assert_eq!(self.replica().run("REPLICAOF NO ONE"), ok());
        self.server().start_again();
        self.primary = 1 - self.primary;
        self.client = self.server().connect();
        let port = self.server().port;
        follow(&mut self.replica(), port);
        self.is_linked = false;
    }
}

// Faults between and during the commands: forks, kills, failovers, limits.

impl Driver<'_> {
    /// Kills the primary while commands run, reads the remaining replies, and continues as requested.
    pub fn kill_in(&mut self, ops: Vec<Op>, then: fn(&mut Self)) {
        let way = self.way();
        let batch = self.send(ops, way);
        thread::sleep(Duration::from_micros(self.rng.below(3000)));
        self.pair.kill_primary();
        self.settle(batch);
        self.trail.line("the primary was killed");
        self.counts.kills += 1;
        then(self);
    }

    /// The killed primary restarts from its append-only file.
    pub fn come_back(&mut self) {
        self.pair.start_primary();
        self.after_restart();
    }

    /// The replica takes over from the killed primary.
    pub fn fail_over(&mut self) {
        self.trail.line("the replica is promoted");
        self.pair.promote();
        self.model.failed_over();
        self.model.default = DEFAULTS[self.pair.primary()];
        self.counts.failovers += 1;
        self.after_restart();
    }

    /// Settings are lost.
    fn after_restart(&mut self) {
        self.model.limit = Limit::None;
        self.delete_doubtful();
    }

    /// Deletes the keys whose values are unknown.
    pub fn delete_doubtful(&mut self) {
        for name in self.model.take_doubtful() {
            self.trail.line(format_args!("DEL {}", name.escape_ascii()));
            self.pair.client.call(&[b"DEL", name.as_slice()]);
        }
    }

    /// An action besides commands.
    pub fn event(&mut self) {
        match self.below(60) {
            0..4 => self.fork("BGSAVE"),
            4..8 => self.fork("BGREWRITEAOF"),
            8..10 => self.pair.kill_children(),
            10 => self.reload("DEBUG RELOAD"),
            11 => self.reload("DEBUG LOADAOF"),
            12 | 13 => self.check(),
            14 => {
                self.trail.line("the primary restarts");
                self.unchanged(|driver| {
                    driver.pair.restart_primary();
                    driver.after_restart();
                });
            }
            15 => {
                self.trail.line("the replica is killed");
                self.pair.restart_replica();
                self.counts.kills += 1;
            }
            16 => self.pair.resynchronise(),
            17 => self.hand_over(),
            18 => self.limit(),
            19 => self.defragment(),
            20 => self.pair.link(),
            21..24 => self.begin_arrival(),
            25 | 26 => self.cut(),
            24 if self.below(3) == 0 => {
                assert_eq!(self.control("FLUSHALL"), ok());
                self.model.flushed();
            }
            _ => {}
        }
    }

    fn fork(&mut self, line: &str) {
        // The child sleeps after each key, so that commands arrive meanwhile.
        let delay = self.rng.below(20_000);
        let preamble = if self.below(2) == 0 { "yes" } else { "no" };
        self.control(&format!("CONFIG SET rdb-key-save-delay {delay} aof-use-rdb-preamble {preamble}"));
        self.control(line);
        self.counts.forks += 1;
    }

    /// DEBUG RELOAD and DEBUG LOADAOF reset the count of changes since the last save. A save that ends afterwards makes that number
    /// negative, and the server then propagates the next such command to its replica and its file.
    fn reload(&mut self, line: &str) {
        self.pair.kill_children();
        no_child(&mut self.pair.client);
        self.control("CONFIG SET rdb-key-save-delay 0");
        self.unchanged(|driver| assert_eq!(driver.control(line), ok()));
        self.counts.reloads += 1;
    }

    fn hand_over(&mut self) {
        self.set_limit(Limit::None);
        self.pair.link();
        self.model.confirmed();
        let by_failover = self.below(2) == 0;
        self.trail.line(format_args!("a hand-over, by FAILOVER: {by_failover}"));
        self.unchanged(|driver| driver.pair.hand_over(by_failover));
        self.model.default = DEFAULTS[self.pair.primary()];
        self.counts.hand_overs += 1;
    }

    /// Cuts the link. If more bytes are written meanwhile than the backlog holds, the replica needs a full synchronisation.
    fn cut(&mut self) {
        let is_flooded = self.model.limit == Limit::None && self.below(2) == 0;
        self.trail.line(format_args!("the link is cut, and flooded: {is_flooded}"));
        self.pair.is_linked = false;
        self.counts.cuts += 1;
        if is_flooded {
            cut_and_flood(&mut self.pair.client, &self.rng.number().to_string());
            self.control("DEL flood");
            return;
        }
        self.control("CLIENT KILL TYPE replica");
        let ops = self.draw();
        self.run(ops, Way::Plain);
        let mut replica = self.pair.replica();
        eventually("the replica to be back", || replica.info("master_link_status") == "up");
    }

    fn limit(&mut self) {
        let limit = [Limit::None, Limit::Memory, Limit::Bytes][self.below(3)];
        self.set_limit(limit);
    }

    fn set_limit(&mut self, limit: Limit) {
        let memory = if limit == Limit::Memory { "1mb" } else { "0" };
        let bytes = if limit == Limit::Bytes { 3000 } else { 0 };
        let line = format!("CONFIG SET maxmemory {memory} bf.max-filter-bytes {bytes}");
        assert_eq!(self.control(&line), ok());
        self.model.limit = limit;
    }

    /// Servers without active defragmentation refuse it.
    fn defragment(&mut self) {
        let state = if self.below(3) == 0 { "no" } else { "yes" };
        self.control(
            "CONFIG SET active-defrag-ignore-bytes 1 active-defrag-threshold-lower 0 active-defrag-cycle-min 50",
        );
        self.control(&format!("CONFIG SET activedefrag {state}"));
    }

    /// Dumps a filter with BF.SCANDUMP. The first record is loaded into a missing key, the others with later commands.
    fn begin_arrival(&mut self) {
        let is_dumped =
            |key: &usize| matches!(&self.model.slots[*key], Slot::Filter(it) if it.shape.layout != Layout::ValkeyBloom);
        let from: Vec<usize> = (0..KEYS).filter(is_dumped).collect();
        let to = (0..KEYS).find(|&key| matches!(self.model.slots[key], Slot::Missing));
        let (Some(to), false) = (to, from.is_empty() || self.model.limit != Limit::None) else { return };
        let from = from[self.below(from.len())];
        let before = self.model.filter(from).clone();
        let may_add = before.shape.family == Family::Set && before.shape.layout == Layout::Native && self.below(2) == 0;
        let mut records = Vec::new();
        let mut iterator = 0;
        loop {
            if may_add && records.len() == 1 {
                let items = (0..20).map(|_| self.rng.below(ITEMS) as Item).collect();
                self.run(vec![Op::Add { key: from, items, how: How::Many }], Way::Plain);
            }
            let reply =
                self.pair.client.call(&[b"BF.SCANDUMP".to_vec(), key_name(from), iterator.to_string().into_bytes()]);
            iterator = reply.elements()[0].number();
            if iterator == 0 {
                break;
            }
            records.push((iterator, reply.elements()[1].bytes().to_vec()));
        }
        let becomes = if may_add { before.dumped_until(self.model.filter(from)) } else { before };
        self.model.slots[to] = Slot::Arriving(Arrival { records, next: 0, becomes });
        self.run(vec![Op::LoadChunk { to }], Way::Plain);
    }
}

// Compares both servers with each other and with the model.

impl Driver<'_> {
    /// Compares both servers with each other and with the model.
    pub fn check(&mut self) {
        self.trail.line("a check");
        self.pair.link();
        self.model.confirmed();
        let mut replica = self.pair.replica();
        assert_equal("primary and replica", &mut self.pair.client, &mut replica);
        self.check_server("the replica", &mut replica);
        let mut primary = self.pair.connect();
        self.check_server("the primary", &mut primary);
        self.counts.checks += 1;
    }

    fn check_server(&mut self, who: &str, client: &mut Connection) {
        for key in 0..KEYS {
            let name = key_name(key);
            match &mut self.model.slots[key] {
                Slot::Filter(filter) => {
                    if let Err(fault) = check_filter(client, &name, filter) {
                        panic!("{who}, {}: {fault}", name.escape_ascii());
                    }
                    self.counts.verified += filter.items().count();
                }
                Slot::Arriving(_) => assert!(client.call(&[b"BF.EXISTS", name.as_slice(), b"item:1"]).is_error()),
                _ => {
                    assert_eq!(client.call(&[b"EXISTS", name.as_slice()]).number(), 0, "{who}, {}", name.escape_ascii())
                }
            }
        }
    }
}

/// Returns the type, digest and expiry time of each key.
pub fn contents(client: &mut Connection) -> BTreeMap<Vec<u8>, [Reply; 3]> {
    let commands: [&[&[u8]]; 3] = [&[b"TYPE"], &[b"DEBUG", b"DIGEST-VALUE"], &[b"PEXPIRETIME"]];
    let keys = client.run("KEYS *");
    let keys = keys.elements().iter().map(|key| key.bytes().to_vec());
    keys.map(|key| {
        let replies = commands.map(|command| client.call(&[command, &[&key]].concat()));
        (key, replies)
    })
    .collect()
}

/// The number of lookups of items that are never added.
const STRANGERS: Range<Item> = 60_000..60_200;

/// Looks up every item that was added to a filter, and some that were not.
fn check_filter(client: &mut Connection, name: &[u8], filter: &mut Filter) -> Result<(), String> {
    let items: Vec<Item> = filter.items().chain(STRANGERS).collect();
    for items in items.chunks(500) {
        let names = items.iter().map(|&item| item_name(item));
        let line: Words = [b"BF.MEXISTS".to_vec(), name.to_vec()].into_iter().chain(names).collect();
        let sent = Instant::now();
        check_members(filter, items, &client.call(&line), sent)?;
    }
    let card = client.call(&[b"BF.CARD", name]).number();
    match filter.card {
        _ if filter.shape.forgets() => {}
        Some(expected) if expected.max(0) != card => return Err(format!("BF.CARD is {card}, not {expected}")),
        // After a command without a reply, the model learns the value from the server. A 0 may hide a negative count.
        None if card > 0 && !filter.shape.is_cuckoo() => filter.card = Some(card),
        _ => {}
    }
    Ok(())
}

// Keeps the last commands and replies, for the report of a failing test.

/// The number of lines that are kept.
const LINES: usize = 1000;
/// The number of characters of a line that are kept, because payloads are long.
const LETTERS: usize = 2000;

/// Prints its lines if it is dropped during a panic.
pub struct Trail {
    seed: u64,
    lines: VecDeque<String>,
}

impl Trail {
    /// The trail of a round.
    pub fn new(seed: u64) -> Self {
        Self { seed, lines: VecDeque::new() }
    }

    /// Adds a line.
    pub fn line(&mut self, line: impl Display) {
        let mut line = line.to_string();
        if let Some((end, _)) = line.char_indices().nth(LETTERS) {
            line.truncate(end);
        }
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// Adds a command.
    pub fn command(&mut self, words: &[Vec<u8>]) {
        let words: Vec<String> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
        self.line(format!("> {}", words.join(" ")));
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        if thread::panicking() {
            let lines: Vec<&str> = self.lines.iter().map(String::as_str).collect();
            eprintln!("--- the last commands, replies and faults ---\n{}\n---", lines.join("\n"));
            eprintln!("chaos: BLOOMGATE_SEED={} begins with this round", self.seed);
        }
    }
}
