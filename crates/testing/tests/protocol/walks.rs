//! Random walks of the model, repeated on real servers. They tie the model's commands to `src/commands`.
//!
//! A server serves waiters in the same iteration of its event loop, so a walk does, too.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use stateright::Model;

use crate::checks::size;
use crate::replay::Stage;
use crate::rules::Rule;
use crate::scenarios::{SCENARIOS, Scenario, Size, adds, heartbeat, in_flight, parts, refill, stores, writes};
use crate::server::How;
use crate::world::{Action, State, World};
use testing::{Rng, Server, on_every_server, servers};

/// The most steps of a walk.
const STEPS: usize = 120;

/// Whether a walk can take this step on a server.
fn is_playable(state: &State, action: Action) -> bool {
    match action {
        // Only time ends these.
        Action::Deadline(_) => false,
        // Tests of the server have these.
        Action::Restart | Action::LeaveNode => false,
        // Any record may be evicted: there must be only one.
        Action::ExpireRecord(_) => state.server.keys.iter().filter(|slot| slot.record.is_some()).count() == 1,
        _ => true,
    }
}

/// A walk from one of the initial states.
fn walk(stage: &mut Stage, world: &World, random: &mut Rng) {
    let starts = world.init_states();
    let mut state = starts[random.below(starts.len() as u64) as usize].clone();
    stage.begin(world, state.row.is_present());
    let mut walked = Vec::new();
    for _ in 0..STEPS {
        let mut actions = Vec::new();
        world.actions(&state, &mut actions);
        actions.retain(|action| is_playable(&state, *action));
        if actions.is_empty() {
            return;
        }
        let any = random.below(actions.len() as u64) as usize;
        let action = actions.iter().copied().find(|action| *action == Action::Serve).unwrap_or(actions[any]);
        walked.push(action);
        let next = world.next_state(&state, action).unwrap();
        if let Err(fault) = catch_unwind(AssertUnwindSafe(|| stage.play(world, &state, action, &next))) {
            eprintln!("the walk: {walked:?}\nits last state: {state:?}");
            resume_unwind(fault);
        }
        state = next;
    }
}

fn walks() -> u64 {
    if size() == Size::Large { 40 } else { 10 }
}

#[test]
fn a_server_answers_as_the_model_does() {
    let expected = [
        "Absent",
        "Accepted",
        "Announce",
        "Ask",
        "BackOff",
        "Beat",
        "Blocked",
        "Collide",
        "DelArrives",
        "Die",
        "ExpireBeat",
        "ExpireRecord",
        "ExpireValue",
        "Fill",
        "FillAndKeep",
        "GiveUp",
        "Held",
        "Hit",
        "Load",
        "Lose",
        "Refill",
        "Refused",
        "Serve",
        "Stale",
        "TakeTime",
        "Tick",
        "Vanish",
        "Wait",
        "Write",
    ];
    on_every_server(|program| {
        let mut stage = Stage::new(Server::start(program));
        for (_, scenario) in SCENARIOS {
            let world = scenario(Size::Large, None);
            for seed in 0..walks() {
                walk(&mut stage, &world, &mut Rng::new(seed));
            }
        }
        assert_eq!(stage.seen.iter().map(String::as_str).collect::<Vec<_>>(), expected, "not everything came up");
    });
}

/// A model without a rule of the module differs from the server. So would a module without it differ from the model.
#[test]
fn a_rule_that_the_module_lacked_would_show() {
    let rules = [
        (Rule::CheckToken, writes as Scenario),
        (Rule::OutliveLease, writes),
        (Rule::DeleteValue, writes),
        (Rule::VoidTokens, writes),
        (Rule::EndNones, writes),
        (Rule::ChangeKey, parts),
        (Rule::ChangeItem, adds),
        (Rule::ChangeOnSet, stores),
        (Rule::ChangeFilter, refill),
        (Rule::OneLoader, writes),
        (Rule::KeepBackOff, writes),
        (Rule::GiveUnless, in_flight),
        (Rule::GiveWhile, heartbeat),
        (Rule::WhileCoversNones, heartbeat),
    ];
    let program = servers().remove(0);
    let mut stage = Stage::new(Server::start(&program));
    for (rule, scenario) in rules {
        // Without clients that wait: a difference shows in a reply.
        let world = World { hows: vec![How::Plain, How::Stale], ..scenario(Size::Large, Some(rule)) };
        let shows = |seed| catch_unwind(AssertUnwindSafe(|| walk(&mut stage, &world, &mut Rng::new(seed)))).is_err();
        assert!((0..200).any(shows), "nobody would notice: {rule:?}");
    }
}
