//! The checks: every promise holds in every state of every scenario, and each rule that is left out breaks one.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use crate::rules::Rule;
use crate::scenarios::{
    SCENARIOS, Scenario, Size, adds, deletes, heartbeat, in_flight, moves, parts, refill, restarts, returns, stores,
    two_keys, writes,
};
use crate::world::{
    NO_EARLY_TOKEN, NO_LATE_ABSENT, NO_LOST_FILL, NO_LOST_WAITER, NO_OLD_VALUE, NO_STALE_FILL, NO_WRONG_ABSENT,
    ONE_HOLDER, TRUTH_AT_LAST, World,
};

/// The larger bounds if `BLOOMGATE_PROOF` is `full`.
pub fn size() -> Size {
    if std::env::var("BLOOMGATE_PROOF").is_ok_and(|value| value == "full") { Size::Large } else { Size::Small }
}

/// Visits every state of a world, or every state up to the first that breaks a promise. Returns the number of states, and each
/// broken promise with the steps that lead to it.
fn search(world: World, threads: usize, until: HasDiscoveries) -> (usize, Vec<(&'static str, String)>) {
    let checker = world.checker().threads(threads).finish_when(until).spawn_bfs().join();
    let broken = checker.discoveries().into_iter();
    let broken = broken.map(|(promise, path)| (promise, format!("{:?}", path.into_actions()))).collect();
    (checker.unique_state_count(), broken)
}

fn holds(name: &str, world: World) {
    let start = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (states, broken) = search(world, threads, HasDiscoveries::AnyFailures);
    println!("{name}: {states} states in {:.1} s", start.elapsed().as_secs_f64());
    assert_eq!(broken, [], "{name}");
}

#[test]
fn every_promise_holds_in_every_state() {
    for (name, scenario) in SCENARIOS {
        holds(name, scenario(size(), None));
    }
}

/// Searches a scenario without a rule until a promise is broken. One thread searches in order of length, so the steps that it
/// finds are the fewest.
fn breaks(scenario: Scenario, rule: Rule, promise: &'static str) {
    let (states, broken) = search(scenario(Size::Small, Some(rule)), 1, HasDiscoveries::AnyOf([promise].into()));
    let found = broken.iter().find(|(broken, _)| *broken == promise);
    let (_, steps) = found.unwrap_or_else(|| panic!("nothing breaks without {rule:?}; {states} states"));
    println!("without {rule:?}: not \"{promise}\": {steps}");
}

/// A test for each rule: the scenario in which it is left out, and a promise that is broken then.
macro_rules! required {
    ($($test:ident: $rule:ident, $scenario:ident, $promise:ident;)*) => {
        mod required {
            use super::*;
            $(
                #[test]
                fn $test() {
                    breaks($scenario, Rule::$rule, $promise);
                }
            )*
        }
    };
}

required! {
    the_first_changed: AnnounceFirst, writes, TRUTH_AT_LAST;
    the_second_changed: AnnounceAgain, writes, NO_WRONG_ABSENT;
    the_second_changed_of_an_update: AnnounceAgain, writes, NO_OLD_VALUE;
    the_outcome_of_the_commit: KnowTheOutcome, writes, NO_WRONG_ABSENT;
    changed_for_each_cache_key: AnnounceEachKey, two_keys, NO_OLD_VALUE;

    del_after_the_commit: CommitBeforeDel, deletes, NO_WRONG_ABSENT;
    changed_before_del: AnnounceBeforeDel, deletes, NO_OLD_VALUE;
    the_lock: Lock, returns, NO_WRONG_ABSENT;
    the_lock_until_del_is_answered: AwaitDel, returns, TRUTH_AT_LAST;
    a_lock_that_outlives_its_holder: OutliveHolder, returns, TRUTH_AT_LAST;

    reading_after_the_reply: ReadAfterReply, writes, NO_WRONG_ABSENT;
    a_time_to_live: GiveTimeToLive, writes, TRUTH_AT_LAST;
    no_del_after_a_miss: NeverDelOnMiss, writes, TRUTH_AT_LAST;
    unless_by_readers: GiveUnless, in_flight, NO_OLD_VALUE;
    while_by_readers: GiveWhile, heartbeat, NO_LATE_ABSENT;

    opening_before_the_commit: OpenBeforeCommit, in_flight, NO_OLD_VALUE;
    release_after_the_commit: ReleaseAfterCommit, in_flight, NO_WRONG_ABSENT;
    changed_on_release: AnnounceRelease, in_flight, NO_LOST_WAITER;

    a_heartbeat_that_has_caught_up: CatchUpFirst, heartbeat, NO_LATE_ABSENT;
    a_heartbeat_that_expires: HeartbeatExpires, heartbeat, NO_LATE_ABSENT;
    a_heartbeat_from_an_earlier_time: TakeTimeFirst, heartbeat, NO_LATE_ABSENT;

    filling_under_another_name: FillApart, refill, NO_WRONG_ABSENT;
    announcing_to_both_names: AnnounceToBoth, refill, TRUTH_AT_LAST;
    announcing_to_the_new_name_first: NewNameFirst, refill, TRUTH_AT_LAST;
    looking_inside_the_transaction: LookInside, refill, TRUTH_AT_LAST;
    awaiting_open_transactions: AwaitOthers, refill, TRUTH_AT_LAST;
    awaiting_all_of_them_again: AwaitAllAgain, refill, TRUTH_AT_LAST;
    no_create: NoCreate, refill, NO_WRONG_ABSENT;
    auto_create_no: NoAutoCreate, refill, NO_WRONG_ABSENT;

    checking_the_token: CheckToken, writes, NO_STALE_FILL;
    checking_the_token_of_a_none: CheckToken, writes, NO_WRONG_ABSENT;
    checking_the_token_of_a_value: CheckToken, writes, NO_OLD_VALUE;
    a_token_that_outlives_its_lease: OutliveLease, writes, NO_LOST_FILL;
    a_token_that_names_the_instance: NameInstance, moves, NO_OLD_VALUE;
    a_token_that_names_the_life: NewLife, restarts, NO_WRONG_ABSENT;
    deleting_the_value: DeleteValue, writes, NO_OLD_VALUE;
    voiding_tokens: VoidTokens, writes, NO_STALE_FILL;
    voiding_tokens_before_a_none: VoidTokens, writes, NO_WRONG_ABSENT;
    voiding_tokens_before_a_value: VoidTokens, writes, NO_OLD_VALUE;
    ending_nones: EndNones, writes, NO_WRONG_ABSENT;
    changing_the_cache_key: ChangeKey, parts, NO_OLD_VALUE;
    changing_the_item: ChangeItem, adds, NO_WRONG_ABSENT;
    changing_the_cache_key_on_set: ChangeOnSet, stores, NO_OLD_VALUE;
    changing_the_filter: ChangeFilter, refill, NO_STALE_FILL;
    looking_at_epochs: LookAtEpochs, moves, NO_OLD_VALUE;
    one_loader: OneLoader, writes, ONE_HOLDER;
    waking: Wake, writes, NO_LOST_WAITER;
    a_back_off: KeepBackOff, writes, NO_EARLY_TOKEN;
    while_for_nones: WhileCoversNones, heartbeat, NO_LATE_ABSENT;
}

/// Rules that no promise depends on. docs/guard-proof.md lists them.
#[test]
fn no_promise_needs_these() {
    let not_needed = [
        (Rule::AnnounceUpdate, writes as Scenario),
        (Rule::AnnounceUpdate, refill),
        (Rule::AnnounceLockedDelete, returns),
        (Rule::AnnounceOpening, in_flight),
    ];
    for (rule, scenario) in not_needed {
        holds(&format!("without {rule:?}"), scenario(size(), Some(rule)));
    }
}
