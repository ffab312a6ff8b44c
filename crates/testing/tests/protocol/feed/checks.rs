//! The scenarios (the row's transactions, and possible faults) and the checks: every promise holds in every state of every scenario, and
//! omitting any rule breaks a promise.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use super::world::{
    ALL, CONVERGES, Mode, NO_LATE_ABSENT, NO_LATE_VALUE, NO_OLD_VALUE, NO_WRONG_ABSENT, Op, Rule, World,
};
use crate::checks::{Size, size};

/// Visits every state of a world, and asserts that all required states are reached.
fn holds(name: &str, world: World) {
    let start = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = world.clone().checker().threads(threads).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("{name}: {} states in {:.1} s", checker.unique_state_count(), start.elapsed().as_secs_f64());
    let found = checker.discoveries();
    let broken: Vec<_> = found.iter().filter(|(name, _)| World::is_promise(name)).collect();
    for (promise, path) in &broken {
        println!("not \"{promise}\": {:#?}\n{:#?}", (*path).clone().into_actions(), path.last_state());
    }
    assert!(broken.is_empty(), "{name}");
    assert_eq!(world.unreached(|name| found.contains_key(name)), Vec::<&str>::new(), "{name}: not reached");
}

#[test]
fn every_promise_of_the_feed_holds_in_every_state() {
    for (name, scenario) in SCENARIOS {
        holds(name, scenario(size(), None));
    }
}

/// A separate test, because it takes as long as all other scenarios together.
#[test]
fn every_promise_of_the_feed_holds_with_fresh() {
    holds("eventual: a dead follower, and readers with FRESH", dead_follower(size(), None));
}

/// The scenarios from which a rule is omitted, and the promises that are then broken.
fn broken_without(rule: Rule) -> &'static [(Scenario, &'static str)] {
    match rule {
        Rule::GiveUnless => &[(synchronous, NO_WRONG_ABSENT), (synchronous, NO_OLD_VALUE)],
        Rule::GiveWhile => &[(eventual, NO_LATE_ABSENT)],
        Rule::ApplyWhenVisible => &[(eventual, CONVERGES)],
        // In synchronous mode, the next rule keeps the promises, too.
        Rule::StoreAfterChanges => &[(eventual_refusal, NO_LATE_ABSENT), (eventual_refusal, CONVERGES)],
        Rule::CloseAfterChanges => &[(synchronous_refusal, NO_WRONG_ABSENT), (synchronous_refusal, CONVERGES)],
        Rule::LastDecides => &[(eventual, NO_LATE_ABSENT), (eventual, CONVERGES)],
        Rule::StoreBeforeConfirm => &[(synchronous, NO_WRONG_ABSENT), (synchronous, NO_OLD_VALUE)],
        Rule::ReleaseWhenVisible => &[(synchronous, NO_WRONG_ABSENT), (synchronous, NO_OLD_VALUE)],
        Rule::KeepLater => &[(synchronous, NO_WRONG_ABSENT), (synchronous, NO_OLD_VALUE)],
        Rule::Announce => &[(synchronous, NO_WRONG_ABSENT), (synchronous, NO_OLD_VALUE)],
        Rule::ReadJournal => &[(synchronous, CONVERGES)],
        Rule::SkipStored => &[(synchronous, NO_WRONG_ABSENT), (eventual, NO_LATE_ABSENT)],
        Rule::CheckEpoch => &[(synchronous, NO_WRONG_ABSENT), (eventual, NO_LATE_ABSENT)],
        Rule::EpochFirst => &[(eventual, NO_LATE_ABSENT)],
        Rule::NoticeLoss => &[(synchronous_loss, NO_WRONG_ABSENT), (eventual_loss, NO_LATE_ABSENT)],
        Rule::CompareWithSlot => &[(synchronous_loss, NO_WRONG_ABSENT), (eventual_loss, NO_LATE_ABSENT)],
        Rule::DeleteBeat => &[],
        Rule::BeginVisible => &[(first_fill_without_slot, NO_LATE_ABSENT)],
        Rule::AwaitRunning => &[(synchronous_loss, NO_WRONG_ABSENT), (first_fill, NO_LATE_ABSENT)],
        Rule::PassFirst => &[(stale_journal, CONVERGES)],
        Rule::NoRedirect => &[(eventual_loss, NO_LATE_ABSENT)],
        Rule::ScanOnFill => &[(synchronous_loss_of_value, NO_OLD_VALUE), (first_fill, CONVERGES)],
        Rule::RenameFirst => &[(synchronous_loss_of_value, NO_OLD_VALUE), (first_fill, CONVERGES)],
        Rule::MarkFill => &[(synchronous_loss_of_value, NO_OLD_VALUE)],
        Rule::MarkFirst => &[(synchronous_loss_of_value, CONVERGES)],
        Rule::AnnounceToBoth => &[(synchronous_loss, NO_WRONG_ABSENT), (renewal, NO_WRONG_ABSENT)],
        Rule::ClearFirst => &[(synchronous_truncate, NO_OLD_VALUE), (eventual_truncate, CONVERGES)],
        Rule::CreateMissing => &[(synchronous_truncate, NO_OLD_VALUE)],
        Rule::ScanOnTruncate => &[(synchronous_truncate, NO_OLD_VALUE), (eventual_truncate, CONVERGES)],
        Rule::HoldAll => &[(synchronous_truncate, NO_OLD_VALUE)],
        Rule::HoldUntilScanned => &[(synchronous_truncate, NO_OLD_VALUE)],
        Rule::ChangeFilter => &[(synchronous_truncate, NO_OLD_VALUE)],
        Rule::NewLife => &[(synchronous_loss_of_value, NO_OLD_VALUE)],
        Rule::FreshIgnoresCache => &[(dead_follower, NO_LATE_VALUE)],
        Rule::FreshFromGrant => &[(dead_follower, NO_LATE_VALUE), (dead_follower, NO_LATE_ABSENT)],
        Rule::FreshOwnLease => &[(dead_follower, NO_LATE_VALUE), (dead_follower, NO_LATE_ABSENT)],
        Rule::FreshVoided => &[(dead_follower, NO_LATE_ABSENT)],
        Rule::CatchUpFirst => &[(eventual, NO_LATE_ABSENT), (dead_follower, NO_LATE_VALUE)],
        Rule::TimeFirst => &[(eventual, NO_LATE_ABSENT)],
    }
}

/// Searches a scenario without a rule until a promise is broken. A single thread searches breadth-first, so it finds a shortest sequence of
/// steps.
fn breaks(scenario: Scenario, rule: Rule, promise: &'static str) -> bool {
    let world = scenario(Size::Small, Some(rule));
    let checker = world.checker().finish_when(HasDiscoveries::AnyOf([promise].into())).spawn_bfs().join();
    let Some(path) = checker.discovery(promise) else {
        println!("without {rule:?}: \"{promise}\" holds, {} states", checker.unique_state_count());
        return false;
    };
    println!(
        "without {rule:?}: not \"{promise}\" ({} states): {:?}",
        checker.unique_state_count(),
        path.into_actions()
    );
    true
}

/// The rules that no scenario needs.
fn unneeded(next: &AtomicUsize) -> Vec<Rule> {
    let mut unneeded = Vec::new();
    while let Some(rule) = ALL.get(next.fetch_add(1, Relaxed)) {
        let places = broken_without(*rule);
        if !places.iter().all(|(scenario, promise)| breaks(*scenario, *rule, promise)) || places.is_empty() {
            unneeded.push(*rule);
        }
    }
    unneeded
}

#[test]
fn each_rule_of_the_feed_is_needed() {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let unneeded: Vec<Rule> = std::thread::scope(|scope| {
        let searches: Vec<_> = (0..threads).map(|_| scope.spawn(|| unneeded(&next))).collect();
        searches.into_iter().flat_map(|search| search.join().unwrap()).collect()
    });
    assert_eq!(unneeded, [Rule::DeleteBeat], "promises depend on all other rules");
}

/// Steps that no promise depends on. docs/guard-proof.md lists them.
#[test]
fn no_promise_of_the_feed_needs_these() {
    for scenario in [synchronous, synchronous_loss, synchronous_truncate, synchronous_refusal] {
        holds("(a) without BF.MCHANGED", World { announces_early: false, ..scenario(Size::Small, None) });
    }
    for scenario in [synchronous_loss, stale_journal, eventual_loss, first_fill] {
        holds("a fill that leaves the heartbeat", scenario(Size::Small, Some(Rule::DeleteBeat)));
    }
}

/// A scenario, by its size and by the omitted rule.
pub type Scenario = fn(Size, Option<Rule>) -> World;

/// All scenarios, by name.
pub const SCENARIOS: &[(&str, Scenario)] = &[
    ("synchronous: restarts, takeovers", synchronous),
    ("synchronous: TRUNCATE, and the filter is deleted", synchronous_truncate),
    ("synchronous: the server loses data, and a row is inserted", synchronous_loss),
    ("synchronous: the server loses data, and a row is updated", synchronous_loss_of_value),
    ("synchronous: the server loses data, and a delete is in flight", stale_journal),
    ("synchronous: a complete filter is replaced", renewal),
    ("synchronous: an item is refused", synchronous_refusal),
    ("eventual: restarts, takeovers", eventual),
    ("eventual: an item is refused", eventual_refusal),
    ("eventual: TRUNCATE", eventual_truncate),
    ("eventual: the server loses data", eventual_loss),
    ("eventual: the first fill", first_fill),
    ("eventual, without a slot: the first fill", first_fill_without_slot),
    ("eventual, without a slot: the server loses data", loss_without_slot),
];

fn world(mode: Mode, has_row: bool, script: &[Op], without: Option<Rule>) -> World {
    World {
        mode,
        has_slot: true,
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
        refusals: 0,
        periods: 0,
        without,
    }
}

/// Consecutive commits, each announced before it is visible.
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

/// A complete filter is replaced while its heartbeat continues.
pub fn renewal(size: Size, without: Option<Rule>) -> World {
    let is_large = size == Size::Large;
    let script: &[Op] = if is_large { &[Op::Put, Op::Delete, Op::Put] } else { &[Op::Put, Op::Delete] };
    let base = world(Mode::Synchronous, false, script, without);
    World { beats: true, renewals: 1, drops: is_large.into(), has_zombies: false, ..base }
}

/// The filter refuses an item when a transaction is announced or released, and the follower may end before it learns of the refusal.
/// Without [`Rule::CloseAfterChanges`] only (c) calls BF.MCHANGED: otherwise the item is in the filter when it is released.
pub fn synchronous_refusal(size: Size, without: Option<Rule>) -> World {
    let is_large = size == Size::Large;
    let script: &[Op] = if is_large { &[Op::Put, Op::Delete, Op::Put] } else { &[Op::Put] };
    let base = world(Mode::Synchronous, false, script, without);
    let announces_early = without != Some(Rule::CloseAfterChanges);
    World { announces_early, beats: true, refusals: 2, has_zombies: false, ..base }
}

/// A follower that applies transactions once they are visible, and keeps the heartbeat.
pub fn eventual(size: Size, without: Option<Rule>) -> World {
    let is_large = size == Size::Large;
    let base = world(Mode::Eventual, true, &[Op::Delete, Op::Put], without);
    World { crashes: is_large.into(), ..base }
}

pub fn eventual_refusal(size: Size, without: Option<Rule>) -> World {
    let is_large = size == Size::Large;
    let script: &[Op] = if is_large { &[Op::Delete, Op::Put] } else { &[Op::Put] };
    World { refusals: 2, has_zombies: false, ..world(Mode::Eventual, is_large, script, without) }
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

/// A follower that stops at any moment and continues at a later one, or never, while rows change. Readers give FRESH.
pub fn dead_follower(_: Size, without: Option<Rule>) -> World {
    let base = world(Mode::Eventual, true, &[Op::Delete, Op::Put], without);
    World { readers: 2, periods: 2, starts: 0, has_zombies: false, ..base }
}

/// There is no slot yet, but readers already use the guard.
pub fn first_fill(size: Size, without: Option<Rule>) -> World {
    let is_large = size == Size::Large;
    let base = world(Mode::Eventual, false, &[Op::Put, Op::Put], without);
    World { runs: false, starts: if is_large { 2 } else { 1 }, has_zombies: is_large, ..base }
}

/// Like [`first_fill`], with a database that does not store a follower's position.
pub fn first_fill_without_slot(size: Size, without: Option<Rule>) -> World {
    World { has_slot: false, ..first_fill(size, without) }
}

/// Like [`eventual_loss`], with such a database: only the stored position determines where the follower continues.
pub fn loss_without_slot(size: Size, without: Option<Rule>) -> World {
    World { has_slot: false, ..eventual_loss(size, without) }
}
