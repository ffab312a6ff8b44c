//! Faults between and during the commands: forks, kills, failovers, limits.

use std::thread;
use std::time::Duration;

use super::commands::{How, Op, key_name};
use super::draw::ITEMS;
use super::driver::{Driver, Way};
use super::filter::Item;
use super::model::{Arrival, KEYS, Limit, Slot};
use super::shapes::{DEFAULTS, Family, Layout};
use crate::pending::no_child;
use testing::ok;

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

    /// Settings and the guard's records are lost.
    fn after_restart(&mut self) {
        self.model.limit = Limit::None;
        self.model.guard.end_all();
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

    /// DEBUG RELOAD and DEBUG LOADAOF reset the count of changes since the last save. A save that ends afterwards makes that
    /// number negative, and then the server propagates the next such command to its replica and its file.
    fn reload(&mut self, line: &str) {
        self.pair.kill_children();
        no_child(&mut self.pair.client);
        self.control("CONFIG SET rdb-key-save-delay 0");
        self.unchanged(|driver| assert_eq!(driver.control(line), ok()));
        self.model.guard.end_all();
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
        self.model.guard.end_all();
        self.counts.hand_overs += 1;
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
