//! The rows of the table of laws: kinds of filters, fixed and growing, with and without pending adds, each with random definitions.

use bloomgate_filter::hash::Hasher;
use bloomgate_filter::kinds::NativeSpec;
use bloomgate_filter::{Ceiling, Policy, RATE_MAX, RATE_MIN, Scaling, Spec};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

use crate::inputs::kinds::{self, Kind, Shape};

/// Passes each row to a law, as tests named after the law and the row.
macro_rules! for_each_row {
    ($($law:ident)*) => { $(mod $law { $crate::rows::for_each_row! { $law: native_fixed native_grown keyed_fixed keyed_grown
        redisbloom valkey_bloom counting cuckoo_fixed cuckoo_grown window sliding rolling native_pending window_pending rolling_pending } })* };
    ($law:ident: $($row:ident)*) => { $(#[test] fn $row() { super::$law(&$crate::rows::$row()); })* };
}
pub(crate) use for_each_row;

/// A row of the table.
pub struct Row {
    pub kind: Kind,
    rates: BoxedStrategy<f64>,
    capacities: BoxedStrategy<u64>,
    expansions: &'static [u32],
    /// Whether adds may be pending: the layers consist of whole pages, like large layers.
    pub pends: bool,
    /// Items are numbered below this.
    pub universe: u32,
}

/// A rate so low that tests never see a false positive.
pub const EXACT: f64 = 1e-9;

const FIXED: &[u32] = &[0];
/// The last one is refused as soon as a filter is full.
const GROWS: &[u32] = &[2, 1, 1, 2, 3, 10, u32::MAX];
const EITHER: &[u32] = &[2, 0, 1, 4];

/// A row with filters so small that a few hundred items fill some and grow others many times.
fn row(kind: Kind, rates: BoxedStrategy<f64>, expansions: &'static [u32]) -> Row {
    let capacities = prop_oneof![3 => 1u64..=20, 3 => 20u64..=200, 1 => 200u64..=5000].boxed();
    Row { kind, rates, capacities, expansions, pends: false, universe: 300 }
}

pub fn every_rate() -> BoxedStrategy<f64> {
    let inside = (0.61..12.0).prop_map(|digits: f64| 10f64.powf(-digits));
    prop_oneof![4 => inside, 2 => Just(0.01), 1 => Just(RATE_MAX), 1 => Just(RATE_MIN)].boxed()
}

/// Mostly without false positives, so that the model is exact.
fn rates_of_rings() -> BoxedStrategy<f64> {
    prop_oneof![3 => Just(EXACT), 1 => Just(0.01), 1 => Just(RATE_MAX)].boxed()
}

pub fn native_fixed() -> Row {
    row(kinds::NATIVE, every_rate(), FIXED)
}

pub fn native_grown() -> Row {
    row(kinds::NATIVE, every_rate(), GROWS)
}

pub fn keyed_fixed() -> Row {
    row(kinds::KEYED, every_rate(), FIXED)
}

pub fn keyed_grown() -> Row {
    row(kinds::KEYED, every_rate(), GROWS)
}

pub fn redisbloom() -> Row {
    row(kinds::REDISBLOOM, every_rate(), EITHER)
}

pub fn valkey_bloom() -> Row {
    row(kinds::VALKEY_BLOOM, every_rate(), EITHER)
}

/// High rates make items share counters.
pub fn counting() -> Row {
    row(kinds::COUNTING, prop_oneof![Just(RATE_MAX), Just(0.01), Just(RATE_MIN)].boxed(), FIXED)
}

fn rates_of_cuckoo() -> BoxedStrategy<f64> {
    prop_oneof![2 => Just(RATE_MAX), 1 => Just(0.01), 1 => Just(1e-6)].boxed()
}

/// High rates make items share slots.
pub fn cuckoo_fixed() -> Row {
    row(kinds::CUCKOO, rates_of_cuckoo(), FIXED)
}

pub fn cuckoo_grown() -> Row {
    row(kinds::CUCKOO, rates_of_cuckoo(), GROWS)
}

pub fn window() -> Row {
    row(kinds::WINDOW, rates_of_rings(), EITHER)
}

pub fn sliding() -> Row {
    row(kinds::SLIDING, rates_of_rings(), EITHER)
}

pub fn rolling() -> Row {
    row(kinds::ROLLING, rates_of_rings(), FIXED)
}

/// A row whose adds may be pending, for filters of up to `most` items.
fn pending(kind: Kind, expansions: &'static [u32], most: u64) -> Row {
    let rates = prop_oneof![2 => Just(RATE_MAX), 1 => Just(0.01), 1 => Just(1e-4)].boxed();
    Row { kind, rates, capacities: (300..most).boxed(), expansions, pends: true, universe: 4000 }
}

pub fn native_pending() -> Row {
    let spec = |of: &Shape| (kinds::KEYED.spec)(&Shape { capacity: whole_pages(of, |spec| spec), ..*of });
    pending(Kind { spec, ..kinds::KEYED }, EITHER, 6000)
}

/// Rings slide for even numbers of seconds, and have a key for odd seeds: both have no pending adds.
pub fn window_pending() -> Row {
    let spec = |of: &Shape| {
        let kind = if of.seconds.is_multiple_of(2) { kinds::SLIDING } else { kinds::WINDOW };
        (kind.spec)(&ring_of_pages(of))
    };
    pending(Kind { spec, ..kinds::WINDOW }, EITHER, 3000)
}

pub fn rolling_pending() -> Row {
    pending(Kind { spec: |of| (kinds::ROLLING.spec)(&ring_of_pages(of)), ..kinds::ROLLING }, FIXED, 3000)
}

/// Returns the smallest capacity, at least a shape's, for which the first layer consists of whole pages.
pub fn whole_pages(of: &Shape, changed: impl Fn(NativeSpec) -> NativeSpec) -> u64 {
    let spec = |capacity| {
        changed(NativeSpec::new(of.rate, capacity, Scaling::from_expansion(of.expansion), Hasher::murmur3(1)))
    };
    let has_pages =
        |capacity: &u64| is_of_pages(Spec::Native(spec(*capacity)).plan(None).unwrap().layers[0].size_bytes);
    (of.capacity..).find(has_pages).unwrap()
}

/// Whether the groups of a layer of this size are pages. Smaller layers have groups of equal size, as few as pages would be.
pub fn is_of_pages(size_bytes: u64) -> bool {
    size_bytes.is_multiple_of(4096)
}

/// The same for the buckets of a ring. There are few, so that each has a high rate.
fn ring_of_pages(of: &Shape) -> Shape {
    let buckets = 3 + of.buckets % 2;
    let bucket = Shape { rate: of.rate / f64::from(buckets), ..*of };
    let capacity = whole_pages(&bucket, |spec| NativeSpec { policy: Policy::One, ..spec });
    Shape { capacity: capacity * u64::from(buckets - 1), buckets, ..*of }
}

impl Row {
    /// Returns a definition of this row. Growing filters double.
    pub fn spec(&self, rate: f64, capacity: u64) -> Spec {
        (self.kind.spec)(&Shape { seed: 4243, seconds: 20, ..Shape::new(rate, capacity, self.expansions[0]) })
    }

    /// Random definitions of this row.
    pub fn specs(&self) -> impl Strategy<Value = Spec> + use<> {
        let (spec, expansions) = (self.kind.spec, prop::sample::select(self.expansions));
        let times = (1u64..100, prop_oneof![3 => 3u32..=8, 1 => 3u32..=64], 0.01..0.99);
        let numbers = (self.rates.clone(), self.capacities.clone(), expansions, any::<u32>(), times);
        numbers.prop_map(move |(rate, capacity, expansion, seed, (seconds, buckets, tightening))| {
            spec(&Shape { rate, capacity, expansion, seed, tightening, seconds, buckets })
        })
    }
}

/// Limits of a filter and of each of its layers, and whether adds may be pending.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Limits the bytes of the whole filter.
    pub filter: u64,
    /// Limits the bytes of a single growth.
    pub at_once: u64,
    pub layers: usize,
    pub pends: bool,
}

impl Room {
    pub const UNLIMITED: Self = Self { filter: u64::MAX, at_once: u64::MAX, layers: usize::MAX, pends: false };
    /// Allows chains of small layers, but not the memory that an expansion of four billion would require.
    pub const SMALL: Self = Self { at_once: 1 << 18, ..Self::UNLIMITED };
    pub const PENDS: Self = Self { pends: true, ..Self::UNLIMITED };

    pub const fn of(filter: u64) -> Self {
        Self { filter, ..Self::UNLIMITED }
    }

    pub const fn layers(layers: usize) -> Self {
        Self { layers, ..Self::UNLIMITED }
    }
}

impl Ceiling for Room {
    fn available_bytes(&self, filter_bytes: u64, _asked_bytes: u64) -> u64 {
        self.at_once.min(self.filter.saturating_sub(filter_bytes))
    }

    fn layers_max(&self) -> usize {
        self.layers
    }

    /// From the size of a page on, because the layers here are small, and large layers behave the same.
    fn pending_from_bytes(&self) -> Option<u64> {
        self.pends.then_some(4096)
    }
}

/// The configuration of random cases: a fixed seed, so that every run tries the same ones, unless `PROPTEST_RNG_SEED` selects
/// others; `PROPTEST_CASES` selects more.
pub fn config(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    let rng_seed = if default.rng_seed == RngSeed::Random { RngSeed::Fixed(2) } else { default.rng_seed };
    let cases = if cfg!(miri) { default.cases.min(2) } else { (cases * default.cases).div_ceil(256) };
    ProptestConfig { rng_seed, failure_persistence: None, cases, ..default }
}

/// Checks a law with random cases.
pub fn check<S: Strategy>(cases: u32, strategy: S, law: impl Fn(S::Value)) {
    let outcome = TestRunner::new(config(cases)).run(&strategy, |value| {
        law(value);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}
