//! Plans match the filters that are created, and statistics match their contents.

use bloomgate_filter::kinds::Origin;
use bloomgate_filter::kinds::plan::{Plan, PlannedLayer};
use bloomgate_filter::kinds::valkey_bloom::FIXED_SEED;
use bloomgate_filter::{Error, Filter, Moment, Spec, Unlimited};

use crate::kinds::{Kind, LAYOUTS, NATIVE, ROLLING, SLIDING, Shape, WINDOW};

/// Describes a filter as a plan.
fn made_of(filter: &Filter) -> Plan {
    let layer = |layer: bloomgate_filter::kinds::info::LayerSummary| PlannedLayer {
        capacity: layer.capacity,
        size_bytes: layer.size_bytes,
        hashes: layer.hashes,
    };
    Plan {
        capacity: filter.total_capacity(),
        size_bytes: filter.size_bytes(),
        layers: filter.layers().map(layer).collect(),
    }
}

/// Adds new items up to this number.
fn fill(filter: &mut Filter, items: u64) {
    let mut numbers = 0u64..;
    while filter.items() < items {
        let item = numbers.next().unwrap().to_le_bytes();
        filter.add(&item, Origin::Client, &Moment(0), &Unlimited).unwrap();
    }
}

#[test]
fn a_chain_is_planned_as_it_grows() {
    for (rate, capacity, expansion) in [(0.01, 100, 2), (1e-5, 1000, 1), (0.2, 7, 4), (0.001, 5000, 0)] {
        for kind in LAYOUTS {
            let (name, spec) = (kind.name, kind.spec(rate, capacity, expansion));
            let mut filter = Filter::new(&spec, &Unlimited).unwrap();
            assert_eq!(spec.plan(None), Ok(made_of(&filter)), "{name}");
            let most = if expansion == 0 { capacity } else { capacity * 9 };
            for items in [0, 1, capacity - 1, capacity, capacity + 1, capacity * 3, capacity * 3 + 1, capacity * 9] {
                if items <= most {
                    fill(&mut filter, items);
                    assert_eq!(spec.plan(Some(items)), Ok(made_of(&filter)), "{name}: {items} of {capacity}");
                } else {
                    assert_eq!(spec.plan(Some(items)), Err(Error::Full), "{name}");
                }
            }
        }
    }
}

fn ring(kind: Kind, expansion: u32) -> Spec {
    (kind.spec)(&Shape { seconds: 400, buckets: 5, ..Shape::new(0.01, 1000, expansion) })
}

#[test]
fn a_rolling_ring_is_planned_as_it_fills() {
    let spec = ring(ROLLING, 0);
    let mut filter = Filter::new(&spec, &Unlimited).unwrap();
    let mut added = 0u64;
    for items in [0u64, 1, 250, 251, 900, 1249, 1250] {
        while added < items {
            let newcomer = (0u64..).map(|number| (added << 32 | number).to_le_bytes());
            let newcomer = newcomer.into_iter().find(|item| !filter.contains(item, &Moment(0))).unwrap();
            filter.add(&newcomer, Origin::Client, &Moment(0), &Unlimited).unwrap();
            added += 1;
        }
        assert_eq!(spec.plan(Some(items)), Ok(made_of(&filter)), "{items}");
    }
    assert_eq!(spec.plan(None), Ok(made_of(&filter)), "the whole ring");
    assert_eq!(spec.plan(Some(u64::MAX)), spec.plan(None));
}

#[test]
fn a_window_is_planned_as_its_whole_ring() {
    let growing = ring(WINDOW, 2);
    for items in [None, Some(0u64), Some(1), Some(1000), Some(3000)] {
        let mut filter = Filter::new(&growing, &Unlimited).unwrap();
        let (mut now, mut number) = (Moment(0), 0u64);
        // Adds one capacity of evenly spread items per window, for two and a half windows.
        for _ in 0..10 {
            let windowed = filter.windowed_mut().unwrap();
            let start = windowed.bucket_due(now).unwrap();
            windowed.begin_bucket(start, &Unlimited).unwrap();
            let mut new = 0;
            while new < items.unwrap_or(0).div_ceil(4) {
                number += 1;
                let added = filter.add_batch([&number.to_le_bytes()[..]], Origin::Client, &now, &Unlimited);
                new += u64::from(added.new.len());
            }
            now = Moment(now.0 + 100_000);
        }
        assert_eq!(growing.plan(items), Ok(made_of(&filter)), "{items:?}");
    }
    let fixed = ring(WINDOW, 0);
    assert!(fixed.plan(Some(1000)).is_ok());
    assert_eq!(fixed.plan(Some(1001)), Err(Error::Full));
}

#[test]
fn any_number_of_items_is_planned_or_refused() {
    for expansion in [1, 2, 32768] {
        for kind in LAYOUTS {
            let (name, spec) = (kind.name, kind.spec(1e-12, 1, expansion));
            for items in [u64::MAX, u64::MAX / 2, 1 << 40] {
                let refused = match spec.plan(Some(items)) {
                    Ok(plan) => plan.capacity >= items,
                    Err(Error::TooManyLayers) => expansion == 1,
                    Err(error) => matches!(error, Error::SizeOverflow | Error::CapacityOutOfRange | Error::RateTooLow),
                };
                assert!(refused, "{name}, {expansion}, {items}");
            }
        }
    }
    let huge = NATIVE.spec(0.01, u64::MAX, 0);
    assert_eq!(huge.plan(None), Err(Error::SizeOverflow));
}

#[test]
fn stats_are_the_counts_and_close_estimates() {
    for kind in LAYOUTS {
        let (name, mut spec) = (kind.name, kind.spec(0.01, 20_000, 2));
        if let Spec::ValkeyBloom(spec) = &mut spec {
            // Under a seed with equal halves, both hashes of an item are equal.
            spec.rules.seed = FIXED_SEED;
        }
        let mut filter = Filter::new(&spec, &Unlimited).unwrap();
        let empty = filter.stats(&Moment(0)).unwrap();
        assert_eq!((empty.rate_now, empty.items_estimated, empty.rate), (0.0, 0, 0.01), "{name}");
        fill(&mut filter, 50_000);
        let stats = filter.stats(&Moment(0)).unwrap();
        assert_eq!(stats.contents, filter.contents());
        assert_eq!(stats.layers.len(), filter.layer_count());
        let error = stats.items_estimated as f64 / 50_000.0 - 1.0;
        assert!(error.abs() < 0.02, "{name}: {error}");
        let absent = (0..200_000u64).map(|number| (1 << 50 | number).to_le_bytes());
        let wrong = absent.filter(|item| filter.contains(item, &Moment(0))).count() as f64;
        let expected = stats.rate_now * 200_000.0;
        assert!((wrong - expected).abs() < 0.05 * expected + 4.0 * expected.sqrt(), "{name}: {wrong} for {expected}");
        for (told, layer) in stats.layers.iter().zip(filter.layers()) {
            assert_eq!((told.capacity, told.items, told.size_bytes), (layer.capacity, layer.items, layer.size_bytes));
            assert!((0.2..0.6).contains(&told.fill), "{name}: {}", told.fill);
        }
    }
}

#[test]
fn stats_of_a_ring_are_those_of_its_live_buckets() {
    let spec = ring(SLIDING, 2);
    let mut filter = Filter::new(&spec, &Unlimited).unwrap();
    for bucket in 0..3u64 {
        let now = Moment(1_000_000 + bucket * 100_000);
        let windowed = filter.windowed_mut().unwrap();
        windowed.begin_bucket(windowed.bucket_due(now).unwrap(), &Unlimited).unwrap();
        for number in 0..200u64 {
            filter.add(&(bucket << 32 | number).to_le_bytes(), Origin::Client, &now, &Unlimited).unwrap();
        }
    }
    let stats = filter.stats(&Moment(1_250_000)).unwrap();
    let begins: Vec<_> = stats.buckets.iter().map(|bucket| (bucket.slot, bucket.begin.0, bucket.end.0)).collect();
    assert_eq!(begins, [(0, 1_000_000, 1_100_000), (1, 1_100_000, 1_200_000), (2, 1_200_000, 1_300_000)]);
    assert_eq!((stats.layers.len(), stats.contents.items), (3, filter.items()));
    assert!(stats.items_estimated.abs_diff(600) < 30, "{}", stats.items_estimated);
    // The first bucket is forgotten five spans after it began.
    let later = filter.stats(&Moment(1_500_000)).unwrap();
    assert_eq!((later.buckets.len(), later.layers.len()), (2, 2));
    assert!(later.rate_now < stats.rate_now);
    assert_eq!(later.contents.items, later.buckets.iter().map(|bucket| bucket.items).sum());
}
