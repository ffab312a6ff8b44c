//! The scenarios: the row's transactions, and what can happen to whom.

use super::rules::Rule;
use super::world::{Mode, Op, World};
use crate::scenarios::Size;

/// A scenario, by its size and by the rule that is left out.
pub type Scenario = fn(Size, Option<Rule>) -> World;

/// All scenarios, by name.
pub const SCENARIOS: &[(&str, Scenario)] = &[
    ("synchronous: restarts, takeovers", synchronous),
    ("synchronous: TRUNCATE, and the filter is deleted", synchronous_truncate),
    ("synchronous: the server loses data, and a row is inserted", synchronous_loss),
    ("synchronous: the server loses data, and a row is updated", synchronous_loss_of_value),
    ("synchronous: the server loses data, and a delete is in flight", stale_journal),
    ("synchronous: a complete filter is replaced", renewal),
    ("eventual: restarts, takeovers", eventual),
    ("eventual: TRUNCATE", eventual_truncate),
    ("eventual: the server loses data", eventual_loss),
    ("eventual: the first fill", first_fill),
];

fn world(mode: Mode, has_row: bool, script: &[Op], without: Option<Rule>) -> World {
    World {
        mode,
        has_row,
        script: script.to_vec(),
        runs: true,
        announces_early: without != Some(Rule::Announce),
        readers: 1,
        starts: 1,
        has_zombies: true,
        beats: mode == Mode::Eventual,
        losses: 0,
        drops: 0,
        crashes: 0,
        renewals: 0,
        without,
    }
}

/// One commit after another, each of them announced before it is visible.
pub fn synchronous(size: Size, without: Option<Rule>) -> World {
    let script = [Op::Put, Op::Put, Op::Delete, Op::Put];
    let is_large = size == Size::Large;
    let base = world(Mode::Synchronous, false, if is_large { &script } else { &script[1..] }, without);
    World { readers: if is_large { 2 } else { 1 }, crashes: 1, ..base }
}

pub fn synchronous_truncate(size: Size, without: Option<Rule>) -> World {
    let is_large = size == Size::Large;
    let script: &[Op] = if is_large { &[Op::Put, Op::Truncate, Op::Put] } else { &[Op::Truncate, Op::Put] };
    let base = world(Mode::Synchronous, true, script, without);
    World { has_zombies: false, beats: true, drops: 2, ..base }
}

pub fn synchronous_loss(size: Size, without: Option<Rule>) -> World {
    let is_large = size == Size::Large;
    let script: &[Op] = if is_large { &[Op::Put, Op::Delete, Op::Put] } else { &[Op::Put] };
    let base = world(Mode::Synchronous, false, script, without);
    World { beats: true, losses: 1, starts: 2, has_zombies: false, ..base }
}

pub fn synchronous_loss_of_value(size: Size, without: Option<Rule>) -> World {
    let is_large = size == Size::Large;
    let script: &[Op] = if is_large { &[Op::Put, Op::Other, Op::Put] } else { &[Op::Put, Op::Other] };
    let base = world(Mode::Synchronous, true, script, without);
    World { beats: true, losses: 1, starts: 2, has_zombies: false, ..base }
}

/// As [`synchronous_loss`], with a delete that is in flight when the server's data is saved.
pub fn stale_journal(_: Size, without: Option<Rule>) -> World {
    let base = world(Mode::Synchronous, true, &[Op::Delete, Op::Put], without);
    World { beats: true, losses: 1, has_zombies: false, ..base }
}

/// A complete filter is replaced while its heartbeat goes on.
pub fn renewal(size: Size, without: Option<Rule>) -> World {
    let is_large = size == Size::Large;
    let script: &[Op] = if is_large { &[Op::Put, Op::Delete, Op::Put] } else { &[Op::Put, Op::Delete] };
    let base = world(Mode::Synchronous, false, script, without);
    World { beats: true, renewals: 1, drops: is_large.into(), has_zombies: false, ..base }
}

/// A follower that applies transactions once they are visible, and keeps the heartbeat.
pub fn eventual(size: Size, without: Option<Rule>) -> World {
    let is_large = size == Size::Large;
    let base = world(Mode::Eventual, true, &[Op::Delete, Op::Put], without);
    World { crashes: is_large.into(), ..base }
}

pub fn eventual_truncate(size: Size, without: Option<Rule>) -> World {
    let is_large = size == Size::Large;
    let script: &[Op] = if is_large { &[Op::Put, Op::Truncate, Op::Put] } else { &[Op::Truncate, Op::Put] };
    World { has_zombies: false, ..world(Mode::Eventual, true, script, without) }
}

pub fn eventual_loss(size: Size, without: Option<Rule>) -> World {
    let base = world(Mode::Eventual, false, &[Op::Put], without);
    World { losses: 1, drops: 1, starts: if size == Size::Large { 2 } else { 1 }, has_zombies: false, ..base }
}

/// There is no slot yet. Readers use the guard already.
pub fn first_fill(size: Size, without: Option<Rule>) -> World {
    let is_large = size == Size::Large;
    let base = world(Mode::Eventual, false, &[Op::Put, Op::Put], without);
    World { runs: false, starts: if is_large { 2 } else { 1 }, has_zombies: is_large, ..base }
}
