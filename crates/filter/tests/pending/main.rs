//! Pending adds: a filter that has some, at any moment and in any order of flushes, is the same to every operation that saves,
//! copies, dumps, compares or merges it as its follower, which writes every effect into its bits at once.
//!
//! The cases use a fixed seed, so that every run tries the same ones; `PROPTEST_CASES` and `PROPTEST_RNG_SEED` in the
//! environment select more, or others.

// All of this file is test code: a panic is how a test fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod limits;
mod pair;
mod random;
mod together;

use bloomgate_filter::geometry::sizing::Policy;
use bloomgate_filter::geometry::{BlockedBits, sizing};
use bloomgate_filter::hash::Hasher;
use bloomgate_filter::kinds::{Forgets, NativeSpec, WindowedSpec};
use bloomgate_filter::{Ceiling, Filter, Moment, Scaling, Spec, Unlimited};

/// Filters that can delete have a key. Its randomness is tested elsewhere.
const HASHER: Hasher = Hasher::SipHash { key: *b"sixteen bytes ok" };
/// A page. The layers here are small; large ones behave the same.
const FROM_BYTES: u64 = 4096;

/// Allows pending adds, or not.
#[derive(Clone, Copy, Debug)]
struct Pends(bool);

impl Ceiling for Pends {
    fn available_bytes(&self, filter_bytes: u64, asked_bytes: u64) -> u64 {
        Unlimited.available_bytes(filter_bytes, asked_bytes)
    }

    fn pending_from_bytes(&self) -> Option<u64> {
        self.0.then_some(FROM_BYTES)
    }
}

/// Returns a definition for about this many items, whose first layer consists of whole pages, as in large layers.
fn native(rate: f64, about: u64, scaling: Scaling) -> NativeSpec {
    let has_pages = |capacity: &u64| {
        let rate = rate * sizing::share(Policy::One, scaling, *capacity, 0);
        BlockedBits::for_layer(*capacity, rate).unwrap().blocks_per_group == 64
    };
    let capacity = (about..).find(has_pages).unwrap();
    NativeSpec::new(rate, capacity, scaling, HASHER)
}

fn new_native(rate: f64, about: u64, scaling: Scaling) -> Filter {
    Filter::new(&Spec::Native(native(rate, about, scaling)), &Unlimited).unwrap()
}

/// Returns the same for a ring whose buckets have such layers.
fn new_ring(rate: f64, about: u64, forgets: Forgets, scaling: Scaling) -> Filter {
    let buckets = 4;
    let scaling = if forgets == Forgets::Rolling { Scaling::Fixed } else { scaling };
    let bucket = native(rate / f64::from(buckets), about, scaling);
    let capacity = bucket.capacity * u64::from(buckets - 1);
    let spec = WindowedSpec { rate, capacity, scaling, hasher: HASHER, forgets, buckets };
    let mut filter = Filter::new(&Spec::Windowed(spec), &Unlimited).unwrap();
    let ring = filter.windowed_mut().unwrap();
    if let Some(turn) = ring.turn_due(Moment(0)) {
        ring.turn(turn, &Unlimited).unwrap();
    }
    assert_eq!(ring.buckets().next().unwrap().filter.layers()[0].geometry().blocks_per_group, 64);
    filter
}

fn item(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

fn items(numbers: impl IntoIterator<Item = u32>) -> Vec<[u8; 4]> {
    numbers.into_iter().map(item).collect()
}
