//! What users are promised: how long an item is found, how many items are remembered, what is refused.

use std::collections::HashMap;

use bloomgate_filter::kinds::{Forgets, Origin, Outcome, WindowedSpec};
use bloomgate_filter::{CLIENT_LAYERS_MAX, Ceiling, Error, Filter, Moment, Unlimited};
use proptest::prelude::*;

use super::{START, after, config, new, ring, spec, turn_if_due};

fn add(filter: &mut Filter, item: u32, now: u64) -> Result<Outcome, Error> {
    turn_if_due(filter, Moment(now));
    filter.add(&item.to_le_bytes(), Origin::Client, &Moment(now), &Unlimited)
}

fn found(filter: &Filter, item: u32, now: u64) -> bool {
    filter.contains(&item.to_le_bytes(), &Moment(now))
}

/// The longest time, in milliseconds: the window, a bucket, and a second.
fn at_most(seconds: u64, buckets: u32) -> u64 {
    seconds * 1000 * u64::from(buckets) / u64::from(buckets - 1) + 1000
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn an_item_is_found_for_the_window_and_at_most_a_bucket_more(
        seconds in 1u64..1000,
        buckets in 3u32..=64,
        is_sliding in any::<bool>(),
        expansion in 1u32..3,
        steps in prop::collection::vec((0u32..60, prop_oneof![8 => 0u64..100, 1 => 0u64..4000]), 1..200),
    ) {
        let mut filter = new(spec(after(seconds, is_sliding), 40, expansion, buckets));
        let (mut now, mut added, mut asked) = (START, HashMap::new(), HashMap::new());
        for (item, wait) in steps {
            now += wait * seconds * 1000 / 1000;
            let outcome = add(&mut filter, item, now).unwrap();
            prop_assert!(is_sliding || outcome != Outcome::Renewed);
            if outcome == Outcome::New {
                added.insert(item, now);
            }
            asked.insert(item, now);
            for (item, first) in &added {
                let since = if is_sliding { asked[item] } else { *first };
                let is_found = found(&filter, *item, now);
                prop_assert!(is_found || now >= since + seconds * 1000, "{} ms after its add", now - since);
                prop_assert!(!is_found || now <= since + at_most(seconds, buckets), "{} ms after its add", now - since);
            }
        }
        // It forgets without any write.
        let last = added.keys().filter(|item| found(&filter, **item, now + at_most(seconds, buckets))).count();
        prop_assert_eq!(last, 0);
    }

    #[test]
    fn a_rolling_ring_has_the_last_items_and_at_most_a_bucket_more(
        capacity in 1u64..300, buckets in 3u32..=64, count in 0u32..2000
    ) {
        let mut filter = new(spec(Forgets::Rolling, capacity, 0, buckets));
        for item in 0..count {
            prop_assert_eq!(add(&mut filter, item, START), Ok(Outcome::New));
            prop_assert!(found(&filter, item, 0));
        }
        let all = (0..count).rev().map(|item| found(&filter, item, START)).collect::<Vec<_>>();
        prop_assert!(all.iter().take(capacity as usize).all(|found| *found));
        let most = capacity.div_ceil(u64::from(buckets) - 1) * u64::from(buckets);
        prop_assert!(all.iter().filter(|found| **found).count() as u64 <= most);
        prop_assert!(filter.items() <= most);
        prop_assert_eq!(filter.live_contents(&Moment(u64::MAX)), filter.contents());
    }
}

#[test]
fn a_renewed_item_counts_once() {
    let mut filter = new(spec(after(7, true), 700, 2, 8));
    for second in 0..7 {
        let now = START + second * 1000;
        (0..100).for_each(|item| _ = add(&mut filter, item, now).unwrap());
        assert_eq!(filter.live_contents(&Moment(now)).items, 100, "{second}");
    }
    let estimated = filter.stats(&Moment(START + 6000)).unwrap().items_estimated;
    assert!(estimated.abs_diff(100) < 10, "{estimated}");
    // Half of the items were last added a second later. The others are forgotten with the bucket before.
    (0..50).for_each(|item| _ = add(&mut filter, item, START + 7000).unwrap());
    let counted = |now: u64| filter.live_contents(&Moment(now)).items;
    assert_eq!([13_999, 14_000, 15_000].map(|later| counted(START + later)), [100, 50, 0]);
    let windowed = filter.windowed_mut().unwrap();
    let turn = windowed.turn_due(Moment(START + 14_000)).unwrap();
    assert_eq!(windowed.turn(turn, &Unlimited), Ok(50));
}

#[test]
fn a_full_bucket_refuses_until_the_next_begins() {
    let spec = spec(after(7, false), 70, 0, 8);
    let mut filter = new(spec);
    for item in 0..10 {
        assert_eq!(add(&mut filter, item, START), Ok(Outcome::New));
    }
    assert_eq!(filter.remaining_capacity(), 0);
    assert_eq!(add(&mut filter, 100, START + 999), Err(Error::Full));
    assert_eq!(add(&mut filter, 5, START + 999), Ok(Outcome::Known), "a member needs no room");
    assert_eq!(add(&mut filter, 100, START + 1000), Ok(Outcome::New));
    assert_eq!(filter.remaining_capacity(), 9);
}

#[test]
fn the_next_bucket_has_the_capacity_of_the_fullest_live_one() {
    let mut filter = new(spec(after(7, false), 70, 2, 8));
    let capacity = |filter: &Filter| ring(filter).buckets().next_back().unwrap().filter.spec().capacity;
    (0..55).for_each(|item| _ = add(&mut filter, item, START).unwrap());
    assert_eq!((capacity(&filter), ring(&filter).buckets().len()), (10, 1));
    for second in 1..8 {
        add(&mut filter, 1000 + second, START + u64::from(second) * 1000).unwrap();
        assert_eq!(capacity(&filter), 55);
    }
    add(&mut filter, 2000, START + 8000).unwrap();
    assert_eq!(capacity(&filter), 10, "the large one is forgotten");
}

#[test]
fn expiry_is_exact_to_the_millisecond() {
    let mut filter = new(spec(after(7, false), 70, 2, 8));
    add(&mut filter, 1, START + 300).unwrap();
    assert!(found(&filter, 1, START + 300 + 7999) && !found(&filter, 1, START + 300 + 8000));
    assert!(found(&filter, 1, START + 300 + 7999), "a clock that jumps back finds it again");
}

#[test]
fn after_a_clock_jumped_ahead_no_bucket_begins_before_the_newest() {
    let mut filter = new(spec(after(7, false), 70, 2, 8));
    add(&mut filter, 1, START + 100_000).unwrap();
    add(&mut filter, 2, START).unwrap();
    assert_eq!(ring(&filter).buckets().len(), 1);
    let windowed = filter.windowed_mut().unwrap();
    let turn = windowed.turn_now(Moment(START));
    assert_eq!((turn.slot, turn.begin), (1, Moment(START + 100_000)));
    windowed.turn(turn, &Unlimited).unwrap();
    assert!(found(&filter, 1, START) && found(&filter, 2, START));
}

#[test]
fn a_turn_that_cannot_follow_the_newest_bucket_is_refused() {
    let mut filter = new(spec(after(7, false), 70, 2, 8));
    add(&mut filter, 1, START).unwrap();
    let before = filter.try_clone().unwrap();
    let next = ring(&filter).turn_now(Moment(START + 500));
    let windowed = filter.windowed_mut().unwrap();
    for turn in [
        bloomgate_filter::kinds::Turn { slot: 0, ..next },
        bloomgate_filter::kinds::Turn { begin: Moment(START - 1), ..next },
        bloomgate_filter::kinds::Turn { end: Moment(next.begin.0 - 1), ..next },
        bloomgate_filter::kinds::Turn { slot: 1 << 63, ..next },
        bloomgate_filter::kinds::Turn { end: Moment(u64::MAX), ..next },
    ] {
        assert_eq!(windowed.turn(turn, &Unlimited), Err(Error::Unsound), "{turn:?}");
    }
    assert_eq!(
        windowed.turn(bloomgate_filter::kinds::Turn { capacity: 0, ..next }, &Unlimited),
        Err(Error::CapacityOutOfRange)
    );
    assert!(filter == before);
}

/// Limits of layers and bytes.
struct Limits(usize, u64);

impl Ceiling for Limits {
    fn available_bytes(&self, filter_bytes: u64, _asked_bytes: u64) -> u64 {
        self.1.saturating_sub(filter_bytes)
    }

    fn layers_max(&self) -> usize {
        self.0
    }
}

#[test]
fn the_layers_of_all_buckets_together_are_bounded() {
    for limits in [Limits(CLIENT_LAYERS_MAX, u64::MAX), Limits(usize::MAX, u64::MAX)] {
        let mut filter = new(WindowedSpec { rate: 1e-3, ..spec(after(3, false), 1, 1, 64) });
        let (mut item, mut refused) = (0u32, 0);
        for bucket in 0..70u64 {
            let now = Moment(START + bucket * 48);
            let windowed = filter.windowed_mut().unwrap();
            let turn = bloomgate_filter::kinds::Turn { capacity: 1, ..windowed.turn_now(now) };
            windowed.turn(turn, &limits).expect("a bucket begins, however many layers there are");
            for _ in 0..300 {
                item += 1;
                match filter.add(&item.to_le_bytes(), Origin::Client, &now, &limits) {
                    Ok(_) => {}
                    Err(error) => {
                        assert_eq!(error, Error::TooManyLayers);
                        refused += 1;
                        break;
                    }
                }
            }
            assert!(filter.layer_count() <= limits.0.min(4096 - 64) + 64);
        }
        assert!(refused > 0);
        assert!(super::pair::saved_and_loaded(&filter) == filter);
        assert!(super::dumps::loaded(&super::dumps::records(&filter)) == filter);
    }
}

#[test]
fn a_ceiling_counts_all_buckets_and_a_refusal_changes_nothing() {
    let mut filter = new(spec(after(7, false), 7000, 0, 8));
    add(&mut filter, 1, START).unwrap();
    let limits = Limits(usize::MAX, filter.size_bytes() * 3 + 10);
    for second in 1..3 {
        let windowed = filter.windowed_mut().unwrap();
        let turn = windowed.turn_due(Moment(START + second * 1000)).unwrap();
        windowed.turn(turn, &limits).unwrap();
    }
    let before = filter.try_clone().unwrap();
    let windowed = filter.windowed_mut().unwrap();
    let turn = windowed.turn_due(Moment(START + 3000)).unwrap();
    assert!(matches!(windowed.turn(turn, &limits), Err(Error::AboveCeiling { available_bytes: 10, .. })));
    assert!(filter == before);
    // Later the first bucket is forgotten, and there is room.
    let windowed = filter.windowed_mut().unwrap();
    let turn = windowed.turn_due(Moment(START + 8000)).unwrap();
    assert_eq!(windowed.turn(turn, &limits), Ok(1));
}
