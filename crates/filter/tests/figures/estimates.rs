//! Estimates from the fill of the blocks of a layer: the number of its items, and its present false positive rate. Compared
//! with layers whose items are known.

use bloomgate_filter::kinds::stats::Stats;
use bloomgate_filter::kinds::valkey_bloom::ValkeyBloom;
use bloomgate_filter::kinds::{NativeSpec, Origin, RedisBloomSpec, ValkeyBloomSpec};
use bloomgate_filter::{BATCH, Filter, Moment, Scaling, Spec, Unlimited};

use super::accuracy::{batch, chain_rate_by_fill, false_positives, slices};

const RATES: [f64; 3] = [1e-2, 1e-4, 1e-6];

/// Fills a layer to each of these parts of its capacity, also beyond it, as effects do. Checks its statistics there.
fn filled_to(rate: f64, capacity: u64, percents: &[u64], check: impl Fn(u64, u64, &Filter, Stats)) {
    let spec = Spec::Native(NativeSpec::murmur3(rate, capacity, Scaling::Fixed, 4242));
    let (mut filter, mut offered) = (Filter::new(&spec, &Unlimited).unwrap(), 0);
    for &percent in percents {
        let items = capacity * percent / 100;
        while offered < items {
            let next = items.min(offered + BATCH as u64);
            let added = filter.add_batch(slices(&batch(offered..next)), Origin::Effect, &Moment(0), &Unlimited);
            assert_eq!(added.error, None);
            offered = next;
        }
        check(percent, items, &filter, filter.stats(&Moment(0)).unwrap());
    }
}

/// A sample of a large layer has an additional error: four standard deviations of the number of its items.
#[test]
fn items_are_estimated_within_two_percent() {
    for rate in RATES {
        for capacity in [10_000, 100_000, 1_000_000u64, 4_000_000] {
            filled_to(rate, capacity, &[1, 2, 5, 10, 25, 50, 75, 100, 120], |_, items, filter, stats| {
                let cells_bytes = filter.layers().next().unwrap().size_bytes as f64;
                let sampled = items as f64 * ((1 << 20) as f64 / cells_bytes).min(1.0);
                let error = stats.items_estimated as f64 / items as f64 - 1.0;
                eprintln!("{rate}, {sampled:.0} from {items} of {capacity} items: {:+.3}%", error * 100.0);
                let most = if sampled < items as f64 { 0.002 + 4.0 / sampled.sqrt() } else { 0.02 };
                assert!(items < 10_000 || error.abs() < most, "{rate}, {items} of {capacity}: {error}");
            });
        }
    }
}

#[test]
fn the_estimated_rate_is_that_of_all_blocks_together() {
    for rate in RATES {
        for capacity in [10_000, 100_000, 250_000u64] {
            filled_to(rate, capacity, &[25, 50, 100, 120], |percent, _, filter, stats| {
                let (now, exact) = (stats.rate_now, chain_rate_by_fill(filter));
                let error = now / exact - 1.0;
                eprintln!("{rate}, {percent}% of {capacity}: {now:.3e}, {:+.3}% of all together", error * 100.0);
                // In a layer that is far from full, the few fullest groups dominate, at rates far below the requested one. At 1e-6, an
                // item's four blocks are all in such a group.
                let most = match (rate < 1e-4, percent) {
                    (false, ..50) => 0.15,
                    (false, _) => 0.05,
                    (true, ..50) => 0.35,
                    (true, 50) => 0.2,
                    (true, _) => 0.08,
                };
                assert!(error.abs() < most, "{rate}, {percent}% of {capacity}: {now} for {exact}");
            });
        }
    }
}

/// In the layouts of other modules, the bits of an item form a progression, which sometimes repeats early. In chains of many
/// small layers, most false positives are such items.
#[test]
fn the_estimated_rate_of_double_hashing_covers_repeated_bits() {
    const QUERIES: u64 = 1 << 18;
    for (rate, capacity, expansion, items, tolerance) in [
        (0.01, 100, 1, 5000, 0.15),
        (0.001, 100, 1, 5000, 0.15),
        (1e-4, 100, 1, 3000, 0.3),
        (1e-6, 100, 1, 2000, 0.4),
        (0.01, 100, 2, 20_000, 0.1),
        (0.01, 1000, 4, 20_000, 0.1),
        (0.01, 20_000, 0, 20_000, 0.1),
    ] {
        let scaling = Scaling::from_expansion(expansion);
        let rules = ValkeyBloom::new(rate, 0.5, scaling, std::array::from_fn(|index| index as u8));
        for spec in [
            Spec::RedisBloom(RedisBloomSpec { rate, capacity, scaling }),
            Spec::ValkeyBloom(ValkeyBloomSpec { rules, capacity }),
        ] {
            let mut filter = Filter::new(&spec, &Unlimited).unwrap();
            let mut numbers = 0u64..;
            while filter.items() < items {
                let item = numbers.next().unwrap().to_le_bytes();
                filter.add(&item, Origin::Client, &Moment(0), &Unlimited).unwrap();
            }
            let (estimated, wrong) =
                (filter.stats(&Moment(0)).unwrap().rate_now, false_positives(&filter, QUERIES) as f64 / QUERIES as f64);
            eprintln!("{spec:?}, {items} items: estimated {estimated:.2e}, measured {wrong:.2e}");
            let chance = 4.0 * (wrong / QUERIES as f64).sqrt() / estimated;
            assert!(
                (wrong / estimated - 1.0).abs() < tolerance + chance,
                "{spec:?}: estimated {estimated}, measured {wrong}"
            );
        }
    }
}
