//! Filters that forget, compared with a model that keeps every item, under a clock that the tests control: for how long items
//! are found, when buckets begin and are dropped, a primary and a replica with different clocks, and every stored form of a
//! ring.

// All of this file is test code: a panic is how a test fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]

mod dumps;
mod measures;
mod model;
mod pair;
mod promises;
mod stored;

use bloomgate_filter::hash::Hasher;
use bloomgate_filter::kinds::{Forgets, WindowedFilter, WindowedSpec};
use bloomgate_filter::{Filter, Moment, Scaling, Spec, Unlimited};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// The time at which tests begin, in milliseconds since 1970.
const START: u64 = 1_700_000_000_000;
/// So low that the model, which has no false positives, agrees.
const RATE: f64 = 1e-9;

fn config(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    let rng_seed = if default.rng_seed == RngSeed::Random { RngSeed::Fixed(5) } else { default.rng_seed };
    let cases = if cfg!(miri) { 2 } else { cases * default.cases / 256 };
    ProptestConfig { rng_seed, failure_persistence: None, cases, ..default }
}

fn after(seconds: u64, is_sliding: bool) -> Forgets {
    Forgets::After { seconds, is_sliding }
}

fn spec(forgets: Forgets, capacity: u64, expansion: u32, buckets: u32) -> WindowedSpec {
    let scaling = if forgets == Forgets::Rolling { Scaling::Fixed } else { Scaling::from_expansion(expansion) };
    WindowedSpec { rate: RATE, capacity, scaling, hasher: Hasher::murmur3(9), forgets, buckets }
}

/// Rings of every kind, with 3 to 64 buckets.
fn specs() -> impl Strategy<Value = WindowedSpec> {
    let forgets = prop_oneof![
        1 => Just(Forgets::Rolling),
        2 => (1u64..100, any::<bool>()).prop_map(|(seconds, is_sliding)| after(seconds, is_sliding)),
    ];
    let buckets = prop_oneof![3 => 3u32..=8, 1 => 3u32..=64];
    let siphash = Hasher::SipHash { key: [3; 16] };
    let hashers = prop_oneof![Just(Hasher::murmur3(9)), Just(siphash)];
    (forgets, 1u64..150, prop_oneof![Just(0), Just(1), Just(2), Just(4)], buckets, hashers).prop_map(
        |(forgets, capacity, expansion, buckets, hasher)| WindowedSpec {
            hasher,
            ..spec(forgets, capacity, expansion, buckets)
        },
    )
}

fn new(spec: WindowedSpec) -> Filter {
    Filter::new(&Spec::Windowed(spec), &Unlimited).unwrap()
}

fn ring(filter: &Filter) -> &WindowedFilter {
    filter.windowed().unwrap()
}

/// Does what a server does before a client's command writes.
fn turn_if_due(filter: &mut Filter, now: Moment) -> Option<bloomgate_filter::kinds::Turn> {
    let windowed = filter.windowed_mut().unwrap();
    let turn = windowed.turn_due(now)?;
    windowed.turn(turn, &Unlimited).unwrap();
    windowed.take_retired();
    Some(turn)
}

fn bytes(items: &[u32]) -> Vec<[u8; 4]> {
    items.iter().map(|item| item.to_le_bytes()).collect()
}
