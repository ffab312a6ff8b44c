//! The scenarios (clients, the order of each client's steps, possible faults) and the checks: every promise holds in every state of every
//! scenario, and omitting any rule breaks a promise.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use crate::server::{How, Name};
use crate::world::{
    NO_EARLY_TOKEN, NO_LATE_ABSENT, NO_LATE_VALUE, NO_LOST_FILL, NO_LOST_WAITER, NO_OLD_VALUE, NO_STALE_FILL,
    NO_WRONG_ABSENT, ONE_HOLDER, Rule, TRUTH_AT_LAST, World,
};
use crate::writers::{Program, Step};

/// The larger bounds if `BLOOMGATE_PROOF` is `full`.
pub fn size() -> Size {
    if std::env::var("BLOOMGATE_PROOF").is_ok_and(|value| value == "full") { Size::Large } else { Size::Small }
}

/// A model whose states can be searched.
pub trait Searchable:
    Model<State: Clone + Debug + Hash + PartialEq + Send + Sync, Action: Clone + Debug + PartialEq> + Send + Sync + 'static
{
}

impl<M> Searchable for M where
    M: Model<State: Clone + Debug + Hash + PartialEq + Send + Sync, Action: Clone + Debug + PartialEq>
        + Send
        + Sync
        + 'static
{
}

/// Visits every state of a model, or every state up to the first that breaks a promise. Returns the number of states, and each
/// broken promise with the steps that lead to it.
fn search<M: Searchable>(model: M, threads: usize, until: HasDiscoveries) -> (usize, Vec<(&'static str, String)>) {
    let checker = model.checker().threads(threads).finish_when(until).spawn_bfs().join();
    let broken = checker.discoveries().into_iter();
    let broken = broken.map(|(promise, path)| (promise, format!("{:?}", path.into_actions()))).collect();
    (checker.unique_state_count(), broken)
}

/// Visits every state of a model, and asserts that every promise holds.
pub fn holds<M: Searchable>(name: &str, model: M) {
    let start = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (states, broken) = search(model, threads, HasDiscoveries::AnyFailures);
    println!("{name}: {states} states in {:.1} s", start.elapsed().as_secs_f64());
    assert_eq!(broken, [], "{name}");
}

#[test]
fn every_promise_holds_in_every_state() {
    for (name, scenario) in SCENARIOS {
        holds(name, scenario(size(), None));
    }
}

/// Searches a model without a rule until a promise is broken. A single thread searches breadth-first, so it finds a shortest sequence of
/// steps.
pub fn breaks<M: Searchable>(model: M, rule: impl Debug, promise: &'static str) {
    let (states, broken) = search(model, 1, HasDiscoveries::AnyOf([promise].into()));
    let found = broken.iter().find(|(broken, _)| *broken == promise);
    let (_, steps) = found.unwrap_or_else(|| panic!("nothing breaks without {rule:?}; {states} states"));
    println!("without {rule:?}: not \"{promise}\": {steps}");
}

/// A test for each rule: the scenario from which the rule is omitted, and a promise that is then broken.
macro_rules! required {
    ($($test:ident: $rule:ident, $scenario:ident, $promise:ident;)*) => {
        mod required {
            use super::*;
            $(
                #[test]
                fn $test() {
                    breaks($scenario(Size::Small, Some(Rule::$rule)), Rule::$rule, $promise);
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
    ignoring_the_cache: FreshIgnoresCache, fresh, NO_LATE_VALUE;
    fresh_from_the_grant: FreshFromGrant, fresh, NO_LATE_VALUE;
    fresh_from_the_grant_of_a_none: FreshFromGrant, fresh, NO_LATE_ABSENT;
    fresh_by_its_own_lease: FreshOwnLease, fresh, NO_LATE_VALUE;
    fresh_by_the_own_lease_of_a_none: FreshOwnLease, fresh, NO_LATE_ABSENT;
    fresh_until_a_change: FreshVoided, fresh, NO_WRONG_ABSENT;
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

/// The size of the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// For every run of the tests.
    Small,
    /// For `scripts/test --deep`.
    Large,
}

/// A scenario, by its size and by the omitted rule.
pub type Scenario = fn(Size, Option<Rule>) -> World;

/// All scenarios, by name.
pub const SCENARIOS: [(&str, Scenario); 13] = [
    ("an insert and updates", writes),
    ("a row with two cache keys", two_keys),
    ("an insert that is announced by BF.ADD", adds),
    ("a value of two rows", parts),
    ("a value that its writer stores by SET", stores),
    ("a server that restarts", restarts),
    ("a slot that migrates and comes back", moves),
    ("a delete of an id that never returns", deletes),
    ("a delete of an id that returns", returns),
    ("writes in flight (UNLESS)", in_flight),
    ("a heartbeat (WHILE)", heartbeat),
    ("answers without the heartbeat (FRESH)", fresh),
    ("a filter that is lost and filled again", refill),
];

const CHANGED: Step = Step::Changed(Name::Rows, 0);

/// A write between two BF.CHANGEDs for each cache key.
fn write(step: Step, keys: u8, without: Option<Rule>) -> Program {
    let calls = |keys| (0..keys).map(|key| Step::Changed(Name::Rows, key));
    let mut program = Program::new();
    let is_first_left_out = match step {
        Step::Update => matches!(without, Some(Rule::AnnounceFirst | Rule::AnnounceUpdate)),
        _ => without == Some(Rule::AnnounceFirst),
    };
    if !is_first_left_out {
        program.extend(calls(keys));
    }
    if without != Some(Rule::KnowTheOutcome) {
        program.push(step);
    }
    if without != Some(Rule::AnnounceAgain) {
        program.extend(calls(if without == Some(Rule::AnnounceEachKey) { 1 } else { keys }));
    }
    if without == Some(Rule::KnowTheOutcome) {
        program.push(step);
    }
    program.push(Step::Finished);
    program
}

/// An insert and updates, with all actions of readers.
pub fn writes(size: Size, without: Option<Rule>) -> World {
    let is_large = size == Size::Large;
    let mut programs = vec![write(Step::Insert, 1, without), write(Step::Update, 1, without)];
    if is_large {
        programs.push(write(Step::Update, 1, without));
    }
    World {
        readers: if is_large { 3 } else { 2 },
        programs,
        hows: vec![How::Plain, How::Wait, How::Stale, How::Replace, How::Peek],
        backs_off: true,
        collides: true,
        ..World::new(without)
    }
}

/// An insert and an update of a row with two cache keys, such as its id and an e-mail address.
pub fn two_keys(size: Size, without: Option<Rule>) -> World {
    let is_large = size == Size::Large;
    World {
        keys: 2,
        programs: vec![write(Step::Insert, 2, without), write(Step::Update, 2, without)],
        hows: if is_large { vec![How::Plain, How::Wait] } else { vec![How::Plain] },
        collides: true,
        ..World::new(without)
    }
}

/// An insert that is announced by BF.ADD, which names no cache key.
pub fn adds(size: Size, without: Option<Rule>) -> World {
    World {
        keys: 2,
        programs: vec![vec![Step::Add, Step::Insert, Step::Add, Step::Finished]],
        hows: if size == Size::Large { vec![How::Plain, How::Wait] } else { vec![How::Plain] },
        collides: true,
        ..World::new(without)
    }
}

/// A value that also depends on another row, whose writer announces the same cache key.
pub fn parts(size: Size, without: Option<Rule>) -> World {
    let steps = |step| vec![Step::ChangedValue(0), step, Step::ChangedValue(0), Step::Finished];
    let programs = if size == Size::Large { 2 } else { 1 };
    World { starts: vec![true], programs: vec![steps(Step::Update); programs], ..World::new(without) }
}

/// An update whose writer stores the new value, instead of deleting the old one.
pub fn stores(size: Size, without: Option<Rule>) -> World {
    let program = vec![CHANGED, Step::Update, Step::Set(0), Step::Finished];
    let hows = if size == Size::Large { vec![How::Plain, How::Stale, How::Wait] } else { vec![How::Plain, How::Stale] };
    World { starts: vec![true], programs: vec![program], hows, ..World::new(without) }
}

/// A server that restarts, or whose replica takes over, at any moment. It keeps its data.
pub fn restarts(size: Size, without: Option<Rule>) -> World {
    let is_large = size == Size::Large;
    let mut programs = vec![write(Step::Insert, 1, without)];
    if is_large {
        programs.push(write(Step::Update, 1, without));
    }
    World {
        programs,
        hows: vec![How::Plain, How::Stale],
        restarts: if is_large { 2 } else { 1 },
        ..World::new(without)
    }
}

/// A slot that is on another node for some time, while rows change. The filter may be lost before.
pub fn moves(size: Size, without: Option<Rule>) -> World {
    let programs = vec![write(Step::Update, 1, without); if size == Size::Large { 2 } else { 1 }];
    let hows = vec![How::Plain, How::Stale];
    World { starts: vec![true], programs, hows, losses: 1, moves: 1, ..World::new(without) }
}

/// Inserts, updates and deletes of an id that never returns. The filter may be lost.
pub fn deletes(size: Size, without: Option<Rule>) -> World {
    let mut delete = vec![Step::Delete, CHANGED, Step::Finished, Step::SendDel, Step::AwaitDel];
    match without {
        Some(Rule::CommitBeforeDel) => delete.rotate_right(2),
        Some(Rule::AnnounceBeforeDel) => _ = delete.remove(1),
        _ => {}
    }
    let mut programs = vec![write(Step::Update, 1, without), delete];
    if size == Size::Large {
        programs.push(write(Step::Insert, 1, without));
    }
    World { starts: vec![size == Size::Small], programs, losses: 1, collides: true, ..World::new(without) }
}

/// Deletes and inserts of an id that returns.
pub fn returns(size: Size, without: Option<Rule>) -> World {
    let mut delete =
        vec![Step::Lock, CHANGED, Step::Delete, CHANGED, Step::Finished, Step::SendDel, Step::AwaitDel, Step::Unlock];
    let mut insert = vec![Step::Lock, CHANGED, Step::Insert, Step::Unlock, CHANGED, Step::Finished];
    match without {
        Some(Rule::Lock) => [&mut delete, &mut insert].into_iter().for_each(|program| {
            program.retain(|step| !matches!(step, Step::Lock | Step::Unlock));
        }),
        Some(Rule::AwaitDel) => delete.retain(|step| *step != Step::AwaitDel),
        Some(Rule::AnnounceLockedDelete) => _ = delete.remove(1),
        _ => {}
    }
    let mut programs = vec![delete.clone(), insert];
    if size == Size::Large {
        programs.push(delete);
    }
    World { starts: vec![true], programs, losses: 1, collides: true, ..World::new(without) }
}

/// One writer after another, with the cache key in the hash for UNLESS while a write is in flight. The promise holds from the commit on.
pub fn in_flight(size: Size, without: Option<Rule>) -> World {
    let last = if size == Size::Large { vec![Step::Delete, Step::Insert] } else { Vec::new() };
    let mut program = Program::new();
    for write in [Step::Insert, Step::Update].into_iter().chain(last) {
        let open = Step::Open(without != Some(Rule::AnnounceOpening));
        let release = Step::Release(without != Some(Rule::AnnounceRelease), write == Step::Delete);
        let mut steps = [open, write, Step::Finished, release];
        match without {
            Some(Rule::OpenBeforeCommit) => steps = [write, Step::Finished, open, release],
            Some(Rule::ReleaseAfterCommit) => steps = [open, release, write, Step::Finished],
            _ => {}
        }
        program.extend(steps);
    }
    World {
        readers: if size == Size::Large { 3 } else { 2 },
        programs: vec![program],
        collides: true,
        ..World::new(without)
    }
}

/// A writer that announces nothing, and a follower with a heartbeat that announces the writes later.
pub fn heartbeat(size: Size, without: Option<Rule>) -> World {
    World {
        readers: if size == Size::Large { 2 } else { 1 },
        programs: vec![vec![Step::Insert]],
        periods: if size == Size::Large { 5 } else { 4 },
        collides: true,
        ..World::new(without)
    }
}

/// An insert and an update that a follower announces later, and readers with FRESH.
pub fn fresh(size: Size, without: Option<Rule>) -> World {
    let is_large = size == Size::Large;
    World {
        starts: vec![true, false],
        programs: vec![vec![Step::Insert], vec![Step::Update]],
        hows: if is_large { vec![How::Fresh, How::Plain] } else { vec![How::Fresh] },
        periods: if is_large { 3 } else { 2 },
        ..World::new(without)
    }
}

/// A filter that is lost at any moment, and refilled while a row is inserted.
pub fn refill(size: Size, without: Option<Rule>) -> World {
    let filling = Step::Changed(Name::Filling, 0);
    let announce = match without {
        Some(Rule::AnnounceToBoth) => vec![CHANGED],
        Some(Rule::NewNameFirst) => vec![CHANGED, filling],
        _ => vec![filling, CHANGED],
    };
    let mut insert = if without == Some(Rule::LookInside) { vec![Step::Look, Step::Begin] } else { vec![Step::Begin] };
    insert.extend(&announce);
    insert.push(Step::Insert);
    insert.extend(&announce);
    insert.push(Step::Finished);
    let mut update: Program =
        insert.iter().map(|step| if *step == Step::Insert { Step::Update } else { *step }).collect();
    if without == Some(Rule::AnnounceUpdate) {
        update.drain(1..=announce.len());
    }
    let is_large = size == Size::Large;
    World {
        readers: if is_large { 2 } else { 1 },
        starts: vec![true, false],
        programs: if is_large { vec![insert, update] } else { vec![insert] },
        losses: if is_large { 1 } else { 2 },
        refills: true,
        collides: true,
        ..World::new(without)
    }
}
