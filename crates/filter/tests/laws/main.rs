//! Laws of native filters, each checked with random rates, capacities, expansions, seeds and batches. A batch equals its items
//! one by one, growth keeps members, a refusal changes nothing, and impossible descriptions are refused. The laws that hold for
//! every layout are in `layouts.rs`.
//!
//! The cases use a fixed seed, so that every run tries the same ones; `PROPTEST_CASES` and `PROPTEST_RNG_SEED` in the
//! environment select more, or others.

// All of this file is test code: a panic is how a test fails.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod described;
mod edges;

use std::collections::HashSet;

use bloomgate_filter::chain::Added;
use bloomgate_filter::geometry::sizing::{RATE_MAX, RATE_MIN};
use bloomgate_filter::{BATCH, BloomFilter, Ceiling, Error, Mask, Scaling, Unlimited};
use described::Description;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Limits the size of a filter, in bytes.
struct FilterOf(u64);

impl Ceiling for FilterOf {
    fn available_bytes(&self, filter_bytes: u64, _asked_bytes: u64) -> u64 {
        self.0.saturating_sub(filter_bytes)
    }
}

/// Limits the size of each layer, in bytes, whatever the size of the filter: equal filters get equal answers.
struct LayerOf(u64);

impl Ceiling for LayerOf {
    fn available_bytes(&self, _filter_bytes: u64, _asked_bytes: u64) -> u64 {
        self.0
    }
}

/// The most batches of a case, and the factor for the number of cases of laws without batches: fewer under miri, which is slow.
const BATCHES: usize = if cfg!(miri) { 3 } else { 20 };
const MORE_CASES: u32 = if cfg!(miri) { 1 } else { 16 };
/// The capacity of a large layer, and the number of items that add a second one.
const LARGE: (u64, u32) = if cfg!(miri) { (200, 250) } else { (200_000, 250_000) };

/// Allows chains of small layers, but not what an expansion of four billion would require.
const SMALL: LayerOf = LayerOf(1 << 18);

fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let rng_seed = if default.rng_seed == RngSeed::Random { RngSeed::Fixed(2) } else { default.rng_seed };
    ProptestConfig { rng_seed, failure_persistence: None, ..default }
}

fn rates() -> impl Strategy<Value = f64> {
    let inside = (0.61..12.0).prop_map(|digits: f64| 10f64.powf(-digits));
    prop_oneof![8 => inside, 1 => Just(RATE_MAX), 1 => Just(RATE_MIN)]
}

/// Small enough for a few hundred items to fill some filters and grow others many times.
fn filters() -> impl Strategy<Value = BloomFilter> {
    let capacities = prop_oneof![3 => 1u64..=20, 3 => 20u64..=200, 1 => 200u64..=5000];
    let expansions = prop_oneof![Just(0), Just(1), Just(2), 1u32..=10, Just(u32::MAX)];
    (rates(), capacities, expansions, any::<u32>()).prop_map(|(rate, capacity, expansion, seed)| {
        BloomFilter::new(rate, capacity, Scaling::from_expansion(expansion), seed, &SMALL).unwrap()
    })
}

fn items() -> impl Strategy<Value = Vec<u8>> {
    // From a small set, so that many are repeated, even within a batch.
    let numbers = (0u32..500).prop_map(|number: u32| number.to_string().into_bytes());
    prop_oneof![6 => numbers, 1 => prop::collection::vec(any::<u8>(), 0..40)]
}

fn batches() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    prop::collection::vec(prop::collection::vec(items(), 1..=BATCH), 1..BATCHES)
}

fn add_batch(filter: &mut BloomFilter, items: &[Vec<u8>], ceiling: &impl Ceiling) -> Added {
    let hashes = filter.hash_batch(items.iter().map(Vec::as_slice));
    filter.add_batch(&hashes, ceiling)
}

/// Returns which items of a batch are found.
fn contained(filter: &BloomFilter, items: &[Vec<u8>]) -> Mask {
    filter.contains_batch(&filter.hash_batch(items.iter().map(Vec::as_slice)))
}

/// Returns which items are found, looked up one by one.
fn contained_one_by_one(filter: &BloomFilter, items: &[Vec<u8>]) -> Mask {
    let mut contained = Mask::NONE;
    for (index, item) in items.iter().enumerate() {
        contained.insert_if(index, filter.contains(item));
    }
    contained
}

/// Returns the expected result of a batch, by adding its items one by one. An add must agree with a lookup before it.
fn add_one_by_one(filter: &mut BloomFilter, items: &[Vec<u8>], ceiling: &impl Ceiling) -> Added {
    let mut added = Added { new: Mask::NONE, effect: Mask::NONE, done: 0, error: None };
    for item in items {
        let was_in = filter.contains(item);
        match filter.add(item, ceiling) {
            Ok(new) => {
                assert_eq!(new, !was_in, "an item is new exactly if it was absent");
                added.new.insert_if(added.done, new);
                added.effect = added.new;
                added.done += 1;
            }
            Err(error) => {
                assert!(!was_in, "a member is never refused");
                added.error = Some(error);
                break;
            }
        }
    }
    added
}

fn assert_same(a: &BloomFilter, b: &BloomFilter) {
    assert_eq!(Description::of(a), Description::of(b));
    for (a, b) in a.layers().iter().zip(b.layers()) {
        assert!(a.bytes() == b.bytes(), "bits differ");
    }
    assert!(a == b, "the filters' own comparison");
}

/// Creates a filter with the same description and bits, like a reader of a snapshot.
fn rebuilt(filter: &BloomFilter) -> BloomFilter {
    let mut copy = Description::of(filter).with_zero_bits(&Unlimited).unwrap();
    assert!(copy.layers().iter().all(|layer| layer.fill_ratio() == 0.0));
    for (index, layer) in filter.layers().iter().enumerate() {
        copy.layer_bytes_mut(index).unwrap().copy_from_slice(layer.bytes());
    }
    assert_eq!(copy.layer_bytes_mut(filter.layers().len()), None);
    copy
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_member_is_ever_reported_absent(mut filter in filters(), batches in batches()) {
        let mut members: HashSet<Vec<u8>> = HashSet::new();
        let mut answered_new = 0;
        for batch in &batches {
            let added = add_batch(&mut filter, batch, &SMALL);
            answered_new += u64::from(added.new.len());
            prop_assert!((added.new - Mask::first(added.done)).is_empty(), "only processed items are new");
            prop_assert_eq!(added.error.is_none(), added.done == batch.len());
            for (index, item) in batch[..added.done].iter().enumerate() {
                let first_time = members.insert(item.clone());
                prop_assert!(first_time || !added.new.contains(index), "an item is new once at most");
            }
            prop_assert!(members.iter().all(|member| filter.contains(member)));
        }
        prop_assert_eq!(filter.items(), answered_new);
        prop_assert!(filter.items() <= members.len() as u64);
        prop_assert!(filter.items() <= filter.total_capacity());
        for pair in filter.layers().windows(2) {
            prop_assert_eq!(pair[0].items(), pair[0].capacity(), "a filter grows when its newest layer is full");
            prop_assert_eq!(pair[1].capacity(), pair[0].capacity() * u64::from(filter.scaling().expansion()));
        }
        // Adding again answers "not new" and changes nothing. Batches of lookups agree.
        let before = filter.try_clone().unwrap();
        let members: Vec<Vec<u8>> = members.into_iter().collect();
        for batch in members.chunks(BATCH) {
            prop_assert_eq!(contained(&filter, batch), Mask::first(batch.len()));
            let nothing = Added { new: Mask::NONE, effect: Mask::NONE, done: batch.len(), error: None };
            prop_assert_eq!(add_batch(&mut filter, batch, &LayerOf(0)), nothing);
        }
        assert_same(&filter, &before);
    }

    #[test]
    fn a_batch_is_its_items_one_by_one(mut filter in filters(), batches in batches()) {
        let mut twin = filter.try_clone().unwrap();
        for batch in &batches {
            prop_assert_eq!(contained(&filter, batch), contained_one_by_one(&twin, batch));
            let expected = add_one_by_one(&mut twin, batch, &SMALL);
            prop_assert_eq!(add_batch(&mut filter, batch, &SMALL), expected);
            assert_same(&filter, &twin);
        }
    }

    #[test]
    fn a_copy_equals_and_lives_its_own_life(mut filter in filters(), batches in batches(), further in batches()) {
        for batch in &batches {
            add_batch(&mut filter, batch, &SMALL);
        }
        let (mut copy, untouched) = (filter.try_clone().unwrap(), filter.try_clone().unwrap());
        let mut rebuilt = rebuilt(&filter);
        assert_same(&filter, &copy);
        assert_same(&filter, &rebuilt);
        for batch in &further {
            let added = add_batch(&mut filter, batch, &SMALL);
            prop_assert_eq!(add_batch(&mut copy, batch, &SMALL), added);
            prop_assert_eq!(add_batch(&mut rebuilt, batch, &SMALL), added);
        }
        assert_same(&filter, &copy);
        assert_same(&filter, &rebuilt);
        prop_assert_eq!(untouched.items() == filter.items(), untouched == filter);
    }

    #[test]
    fn a_refusal_changes_nothing(mut filter in filters(), batches in batches(), room in 0u64..20_000) {
        let ceiling = FilterOf(filter.size_bytes() + room);
        let mut twin = filter.try_clone().unwrap();
        for batch in &batches {
            let added = add_batch(&mut filter, batch, &ceiling);
            add_one_by_one(&mut twin, &batch[..added.done], &Unlimited);
            assert_same(&filter, &twin);
            match added.error {
                Some(Error::AboveCeiling { asked_bytes, available_bytes }) => {
                    prop_assert!(asked_bytes > available_bytes);
                    let weight = filter.size_bytes();
                    prop_assert_eq!(available_bytes, ceiling.0.saturating_sub(weight));
                }
                Some(Error::Full) => prop_assert_eq!(filter.scaling(), Scaling::Fixed),
                error => prop_assert_eq!(error, None),
            }
        }
    }
}

/// Layers above 512 KiB are prefetched; those of at least 256 KiB are aligned to pages.
#[test]
fn the_laws_hold_for_large_layers() {
    let mut filter = BloomFilter::new(1e-3, LARGE.0, Scaling::from_expansion(2), 11, &Unlimited).unwrap();
    let mut twin = filter.try_clone().unwrap();
    let items: Vec<Vec<u8>> = (0..LARGE.1).map(|item| item.to_le_bytes().to_vec()).collect();
    for batch in items.chunks(31) {
        let expected = add_one_by_one(&mut twin, batch, &Unlimited);
        assert_eq!(add_batch(&mut filter, batch, &Unlimited), expected);
    }
    assert_eq!(filter.layers().len(), 2);
    assert_same(&filter, &twin);
    assert_same(&filter, &rebuilt(&filter));
    for batch in items.chunks(BATCH) {
        assert_eq!(contained(&filter, batch), Mask::first(batch.len()));
    }
}

#[test]
fn a_batch_is_limited_and_an_empty_one_does_nothing() {
    let mut filter = BloomFilter::new(0.01, 1, Scaling::Fixed, 5, &Unlimited).unwrap();
    let mut twin = BloomFilter::new(0.01, 100, Scaling::Fixed, 5, &Unlimited).unwrap();
    let list: Vec<[u8; 1]> = (0..40u8).map(|item| [item]).collect();
    let hashes = filter.hash_batch(list.iter().map(|item| &item[..]));
    let one_by_one: Vec<_> = list.iter().take(BATCH).map(|item| filter.hash(item)).collect();
    assert_eq!(hashes[..], one_by_one);
    assert_eq!(twin.add_batch(&hashes, &Unlimited).done, BATCH);
    assert_eq!(twin.contains_batch(&hashes), Mask::first(BATCH));
    assert_eq!((0..40u8).filter(|item| twin.contains(&[*item])).count(), BATCH);
    let nothing = filter.hash_batch([]);
    assert_eq!(filter.add(b"the only one", &Unlimited), Ok(true));
    assert_eq!(
        filter.add_batch(&nothing, &Unlimited),
        Added { new: Mask::NONE, effect: Mask::NONE, done: 0, error: None }
    );
    assert_eq!(filter.contains_batch(&nothing), Mask::NONE);
}

#[test]
fn filters_that_differ_are_not_equal() {
    let new = |rate, capacity, expansion, seed| {
        BloomFilter::new(rate, capacity, Scaling::from_expansion(expansion), seed, &Unlimited).unwrap()
    };
    let filter = new(0.01, 100, 2, 1);
    assert!(filter == new(0.01, 100, 2, 1));
    let others = [new(0.011, 100, 2, 1), new(0.01, 101, 2, 1), new(0.01, 100, 3, 1), new(0.01, 100, 0, 1)];
    assert!(others.iter().chain([&new(0.01, 100, 2, 2)]).all(|other| *other != filter));
    let mut bit = new(0.01, 100, 2, 1);
    bit.layer_bytes_mut(0).unwrap()[100] ^= 16;
    assert!(bit != filter);
    let bits_of_an_item = [1, 2].map(|seed| {
        let mut filter = new(1e-6, 100, 2, seed);
        filter.add(b"item", &Unlimited).unwrap();
        filter.layers()[0].bytes().to_vec()
    });
    assert_ne!(bits_of_an_item[0], bits_of_an_item[1], "each seed has its own places for an item");
}
