//! Random orders of everything that can happen to a filter with pending adds.

use bloomgate_filter::kinds::Forgets;
use bloomgate_filter::{Scaling, Unlimited};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::pair::{NOW, Pair};
use super::{new_native, new_ring};

/// An event of a test.
#[derive(Clone, Debug)]
enum Event {
    /// Every nth item from a number on: new ones, and some that were added before.
    Add {
        first: u32,
        step: u32,
        count: u32,
        in_batches: bool,
    },
    Delete {
        first: u32,
        count: u32,
    },
    /// A child of the server starts, or ends.
    Pend(bool),
    Merge(usize),
    /// The primary is saved and loaded, dumped and loaded, or copied.
    Store(u8),
    /// The next bucket begins.
    Rotate,
    Check,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let add = (0u32..3000, 1u32..4, 1u32..400, any::<bool>()).prop_map(|(first, step, count, in_batches)| Event::Add {
        first,
        step,
        count,
        in_batches,
    });
    let event = prop_oneof![
        10 => add,
        2 => (0u32..3000, 1u32..60).prop_map(|(first, count)| Event::Delete { first, count }),
        3 => any::<bool>().prop_map(Event::Pend),
        4 => prop_oneof![0usize..40, 0usize..400].prop_map(Event::Merge),
        1 => (0u8..3).prop_map(Event::Store),
        1 => Just(Event::Rotate),
        1 => Just(Event::Check),
    ];
    prop::collection::vec(event, 1..30)
}

pub fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let rng_seed = if default.rng_seed == RngSeed::Random { RngSeed::Fixed(14) } else { default.rng_seed };
    let cases = if cfg!(miri) { 1 } else { default.cases };
    ProptestConfig { rng_seed, failure_persistence: None, cases, ..default }
}

fn run(mut pair: Pair, events: &[Event]) {
    let mut pends = true;
    for event in events {
        match *event {
            Event::Add { first, step, count, in_batches } => {
                let numbers: Vec<u32> = (0..count).map(|number| first + number * step).collect();
                pair.add(&numbers, in_batches, pends);
            }
            Event::Delete { first, count } => pair.delete(&(first..first + count).collect::<Vec<_>>()),
            Event::Pend(now) => pends = now,
            Event::Merge(most) => assert!(pair.primary_mut().flush_pending(most) <= most),
            Event::Store(how) => pair.store(how),
            Event::Rotate => rotate(&mut pair),
            Event::Check => pair.check(),
        }
    }
    pair.check();
    pair.merge_all(events.len());
    pair.check();
}

/// The oldest bucket is dropped if there are enough.
fn rotate(pair: &mut Pair) {
    let Some(ring) = pair.primary_mut().windowed_mut() else { return };
    let turn = ring.turn_now(NOW);
    ring.turn(turn, &Unlimited).unwrap();
    pair.follower_mut().windowed_mut().unwrap().turn(turn, &Unlimited).unwrap();
    pair.forget();
}

fn rates() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.2), Just(0.01), Just(1e-4)]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_native_filter_equals_its_follower(
        rate in rates(), about in 300u64..6000, expansion in 0u32..=2, events in events(),
    ) {
        run(Pair::of(new_native(rate, about, Scaling::from_expansion(expansion))), &events);
    }

    #[test]
    fn a_ring_equals_its_follower(
        rate in rates(), about in 300u64..3000, expansion in 0u32..=2, forgets in 0u8..3, events in events(),
    ) {
        let forgets = match forgets {
            0 => Forgets::Rolling,
            is_sliding => Forgets::After { seconds: 1000, is_sliding: is_sliding == 1 },
        };
        let filter = new_ring(rate, about, forgets, Scaling::from_expansion(expansion));
        // Buckets of a rolling ring end when they are full, and the ring forgets their items.
        let pair = if forgets == Forgets::Rolling { Pair::that_forgets(filter) } else { Pair::of(filter) };
        run(pair, &events);
    }
}
