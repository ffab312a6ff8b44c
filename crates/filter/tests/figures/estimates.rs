//! Estimates from the fill of the blocks of a layer: the number of its items, and its present false positive rate. Compared
//! with layers whose items are known.

use bloomgate_filter::cells::{Blocks, Cells as _, Histogram};
use bloomgate_filter::geometry::{BlockedBits, BlockedProbe, Geometry as _, estimate, sizing};
use bloomgate_filter::hash::ItemHash;
use bloomgate_filter::kinds::valkey_bloom::ValkeyBloom;
use bloomgate_filter::kinds::{Origin, RedisBloomSpec, ValkeyBloomSpec};
use bloomgate_filter::{BATCH, Filter, Moment, Scaling, Spec, Unlimited};

use super::accuracy::{bits, rate_of_bits};

const RATES: [f64; 3] = [1e-2, 1e-4, 1e-6];
const SEED: u32 = 4242;
/// Numbers of items that are never added begin here.
const ABSENT: u64 = 1 << 63;

fn probe(item: u64, geometry: BlockedBits) -> BlockedProbe {
    geometry.probe(ItemHash::of(&item.to_le_bytes(), SEED))
}

/// The bits of a layer, without a count of its items.
struct Bits {
    geometry: BlockedBits,
    cells: Blocks,
}

impl Bits {
    fn new(capacity: u64, rate: f64) -> Self {
        let geometry = bits(capacity, rate);
        Self { geometry, cells: Blocks::zeroed(geometry.blocks()).unwrap() }
    }

    fn add(&mut self, items: std::ops::Range<u64>) {
        for item in items {
            self.geometry.insert(&mut self.cells, probe(item, self.geometry));
        }
    }

    fn histogram(&self) -> Histogram {
        Histogram::of(self.cells.bytes())
    }

    fn estimate(&self, histogram: &Histogram) -> f64 {
        estimate::items(histogram, self.geometry.hashes, self.geometry.blocks())
    }
}

#[test]
fn items_are_estimated_within_two_percent() {
    for rate in RATES {
        for capacity in [10_000, 100_000, 1_000_000u64] {
            let (mut bits, mut offered) = (Bits::new(capacity, rate), 0);
            for percent in [1, 2, 5, 10, 25, 50, 75, 100, 120] {
                let items = capacity * percent / 100;
                bits.add(offered..items);
                offered = items;
                let error = bits.estimate(&bits.histogram()) / items as f64 - 1.0;
                eprintln!("{rate}, {items} of {capacity}: {:+.3}%", error * 100.0);
                assert!(items < 10_000 || error.abs() < 0.02, "{rate}, {items} of {capacity}: {error}");
            }
        }
    }
}

/// A sample has an additional error: four standard deviations of the number of its items.
#[test]
fn a_sample_estimates_as_well_as_its_items_allow() {
    const CAPACITY: u64 = 4_000_000;
    for rate in RATES {
        let (mut bits, mut offered) = (Bits::new(CAPACITY, rate), 0);
        for percent in [1, 5, 25, 100, 120] {
            let items = CAPACITY * percent / 100;
            bits.add(offered..items);
            offered = items;
            let sample = Histogram::sampled(bits.cells.bytes());
            assert_eq!(sample.blocks(), (1 << 20) / 64);
            let sampled = items as f64 * sample.blocks() as f64 / bits.geometry.blocks() as f64;
            let error = bits.estimate(&sample) / items as f64 - 1.0;
            eprintln!("{rate}, sample of {sampled:.0} from {items} items: {:+.3}%", error * 100.0);
            assert!(error.abs() < 0.002 + 4.0 / sampled.sqrt(), "{rate}, {items}: {error}");
        }
    }
}

#[test]
fn the_estimated_rate_is_that_of_all_blocks_together() {
    for rate in RATES {
        for capacity in [10_000, 100_000, 1_000_000u64] {
            let (mut bits, mut offered) = (Bits::new(capacity, rate), 0);
            for percent in [25, 50, 100, 120] {
                bits.add(offered..capacity * percent / 100);
                offered = capacity * percent / 100;
                let (now, exact) = (
                    estimate::rate_now(&bits.histogram(), &bits.geometry),
                    rate_of_bits(bits.geometry, bits.cells.bytes()),
                );
                let error = now / exact - 1.0;
                eprintln!("{rate}, {percent}% of {capacity}: {now:.3e}, {:+.3}% of all together", error * 100.0);
                // In a layer that is far from full, the few fullest groups dominate, at rates far below the requested one. At 1e-6, an
                // item's four blocks are all in such a group.
                let most = match (rate < sizing::LOW_RATE, percent) {
                    (false, ..50) => 0.15,
                    (false, _) => 0.05,
                    (true, ..50) => 0.35,
                    (true, 50) => 0.2,
                    (true, _) => 0.08,
                };
                assert!(error.abs() < most, "{rate}, {percent}% of {capacity}: {now} for {exact}");
            }
        }
    }
}

/// Returns the share of absent items that a filter reports as present.
fn measured(filter: &Filter, questions: u64) -> f64 {
    let mut found = 0;
    for first in (0..questions).step_by(BATCH) {
        let batch = (first..first + BATCH as u64).map(|number| (ABSENT + number).to_le_bytes());
        let batch: Vec<[u8; 8]> = batch.collect();
        found += filter.contains_batch(batch.iter().map(<[u8; 8]>::as_slice), &Moment(0)).len();
    }
    f64::from(found) / questions as f64
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
            let (estimated, wrong) = (filter.stats(&Moment(0)).unwrap().rate_now, measured(&filter, QUERIES));
            eprintln!("{spec:?}, {items} items: estimated {estimated:.2e}, measured {wrong:.2e}");
            let chance = 4.0 * (wrong / QUERIES as f64).sqrt() / estimated;
            assert!(
                (wrong / estimated - 1.0).abs() < tolerance + chance,
                "{spec:?}: estimated {estimated}, measured {wrong}"
            );
        }
    }
}
