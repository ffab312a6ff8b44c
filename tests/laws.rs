//! Laws of the filter, each held over random rates, capacities, expansions, seeds and batches: no member is ever
//! denied, a batch is the same as its items one by one, a copy equals, growth keeps members, a refusal changes nothing,
//! and a description that no filter has is refused.
//!
//! The cases are drawn from a fixed seed, so that every run tries the same; `PROPTEST_CASES` and `PROPTEST_RNG_SEED` in
//! the environment ask for more and for others.

// All of this file is test code: a panic is how a test fails.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::HashSet;

use bloomgate::bloom::sizing::{self, Geometry, RATE_MAX, RATE_MIN};
use bloomgate::bloom::{
    Added, BATCH, BloomFilter, CLIENT_LAYERS_MAX, Ceiling, Description, Error, LAYERS_MAX, LayerDescription, Native,
    Rules, Scaling, Unlimited,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// A filter may weigh so many bytes.
struct FilterOf(u64);

impl Ceiling for FilterOf {
    fn available_bytes(&self, filter_bytes: u64, _asked_bytes: u64) -> u64 {
        self.0.saturating_sub(filter_bytes)
    }
}

/// A layer may take so many bytes, whatever the filter weighs: the same for equal filters.
struct LayerOf(u64);

impl Ceiling for LayerOf {
    fn available_bytes(&self, _filter_bytes: u64, _asked_bytes: u64) -> u64 {
        self.0
    }
}

/// How many batches a case has at most, and how many times as many cases a law without batches has: fewer under miri, which
/// is slow.
const BATCHES: usize = if cfg!(miri) { 3 } else { 20 };
const MORE_CASES: u32 = if cfg!(miri) { 1 } else { 16 };
/// What is a large layer, and how many items grow a second one.
const LARGE: (u64, u32) = if cfg!(miri) { (200, 250) } else { (200_000, 250_000) };

/// Leaves room for chains of small layers, none for what an expansion of four billion asks for.
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

/// Small enough that a few hundred items fill some and grow others many times over.
fn filters() -> impl Strategy<Value = BloomFilter> {
    let capacities = prop_oneof![3 => 1u64..=20, 3 => 20u64..=200, 1 => 200u64..=5000];
    let expansions = prop_oneof![Just(0), Just(1), Just(2), 1u32..=10, Just(u32::MAX)];
    (rates(), capacities, expansions, any::<u32>()).prop_map(|(rate, capacity, expansion, seed)| {
        BloomFilter::new(rate, capacity, Scaling::from_expansion(expansion), seed, &SMALL).unwrap()
    })
}

fn items() -> impl Strategy<Value = Vec<u8>> {
    // From a small set, so that many come twice, within a batch too.
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

/// How many items of a batch are answered as contained.
fn contained(filter: &BloomFilter, items: &[Vec<u8>]) -> usize {
    let hashes = filter.hash_batch(items.iter().map(Vec::as_slice));
    filter.contains_batch(&hashes).count_ones() as usize
}

/// What a batch should do, found by adding its items singly. An add says what a lookup in front of it says.
fn add_one_by_one(filter: &mut BloomFilter, items: &[Vec<u8>], ceiling: &impl Ceiling) -> Added {
    let mut added = Added { new: 0, done: 0, error: None };
    for item in items {
        let was_in = filter.contains(item);
        match filter.add(item, ceiling) {
            Ok(new) => {
                assert_eq!(new, !was_in, "an item is new exactly if it was not in");
                added.new |= u32::from(new) << added.done;
                added.done += 1;
            }
            Err(error) => {
                assert!(!was_in, "an item that is in is never refused");
                added.error = Some(error);
                break;
            }
        }
    }
    added
}

fn assert_same(a: &BloomFilter, b: &BloomFilter) {
    assert_eq!(a.description(), b.description());
    for (a, b) in a.layers().iter().zip(b.layers()) {
        assert!(a.bytes() == b.bytes(), "bits differ");
    }
    assert!(a == b, "the filters' own comparison");
}

/// A filter with the same description and the same bits, made as a reader of a snapshot makes it.
fn rebuilt(filter: &BloomFilter) -> BloomFilter {
    let mut copy = BloomFilter::with_zero_bits(&filter.description(), &Unlimited).unwrap();
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
    fn no_member_is_ever_denied(mut filter in filters(), batches in batches()) {
        let mut members: HashSet<Vec<u8>> = HashSet::new();
        let mut answered_new = 0;
        for batch in &batches {
            let added = add_batch(&mut filter, batch, &SMALL);
            answered_new += u64::from(added.new.count_ones());
            prop_assert!(u64::from(added.new) < 1 << added.done, "only items that were dealt with are new");
            prop_assert_eq!(added.error.is_none(), added.done == batch.len());
            for (index, item) in batch[..added.done].iter().enumerate() {
                let first_time = members.insert(item.clone());
                prop_assert!(first_time || added.new & (1 << index) == 0, "an item is new once at most");
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
        // Adding again says "not new" and changes nothing; in batches, lookups answer the same.
        let before = filter.try_clone().unwrap();
        let members: Vec<Vec<u8>> = members.into_iter().collect();
        for batch in members.chunks(BATCH) {
            prop_assert_eq!(contained(&filter, batch), batch.len());
            let nothing = Added { new: 0, done: batch.len(), error: None };
            prop_assert_eq!(add_batch(&mut filter, batch, &LayerOf(0)), nothing);
        }
        assert_same(&filter, &before);
    }

    #[test]
    fn a_batch_is_its_items_one_by_one(mut filter in filters(), batches in batches()) {
        let mut twin = filter.try_clone().unwrap();
        for batch in &batches {
            let hashes = filter.hash_batch(batch.iter().map(Vec::as_slice));
            let singly = batch.iter().enumerate().fold(0, |mask, (i, item)| mask | u32::from(twin.contains(item)) << i);
            prop_assert_eq!(filter.contains_batch(&hashes), singly);
            let expected = add_one_by_one(&mut twin, batch, &SMALL);
            prop_assert_eq!(filter.add_batch(&hashes, &SMALL), expected);
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
                Some(Error::OutOfMemory { asked_bytes, available_bytes }) => {
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

fn valid() -> Description {
    let mut filter = BloomFilter::new(0.01, 10, Scaling::from_expansion(2), 1, &Unlimited).unwrap();
    for item in 0..25u32 {
        filter.add(&item.to_le_bytes(), &Unlimited).unwrap();
    }
    filter.description()
}

#[test]
fn a_description_that_no_filter_has_is_refused() {
    const NO_RATES: [f64; 7] = [0.0, -0.01, 0.250_000_1, 1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    let sound = valid();
    assert_eq!(sound.layers.len(), 2);
    assert_eq!(BloomFilter::with_zero_bits(&sound, &Unlimited).unwrap().description(), sound);

    let mut unsound: Vec<(String, Description)> = Vec::new();
    let mut with = |what: &str, change: &dyn Fn(&mut Description)| {
        let mut description = sound.clone();
        change(&mut description);
        unsound.push((what.into(), description));
    };
    for rate in NO_RATES.into_iter().chain([9.9e-13]) {
        with(&format!("rate {rate}"), &|d| d.rate = rate);
    }
    for (index, rate) in NO_RATES.into_iter().enumerate() {
        with(&format!("rate {rate} of layer {}", index % 2), &|d| d.layers[index % 2].rate = rate);
    }
    with("capacity 0", &|d| d.capacity = 0);
    with("policy 0", &|d| d.policy = 0);
    with("policy 2", &|d| d.policy = sizing::POLICY + 1);
    with("no layers", &|d| d.layers.clear());
    with("too many layers", &|d| d.layers = vec![d.layers[0]; LAYERS_MAX + 1]);
    with("two layers of a fixed filter", &|d| d.scaling = Scaling::Fixed);
    for layer in [0, 1] {
        with("a layer's capacity 0", &|d| (d.layers[layer].capacity, d.layers[layer].items) = (0, 0));
        with("more items than capacity", &|d| d.layers[layer].items = d.layers[layer].capacity + 1);
        with("items beyond counting", &|d| d.layers[layer].items = u64::MAX);
        for number in [0, 65, u32::MAX] {
            with(&format!("{number} blocks a group"), &|d| d.layers[layer].geometry.blocks_per_group = number);
            with(&format!("{number} hashes"), &|d| d.layers[layer].geometry.hashes = number);
        }
        with("one block a group", &|d| d.layers[layer].geometry.blocks_per_group = 1);
        for groups in [0, 1 << 58, u64::MAX / 128, u64::MAX] {
            with(&format!("{groups} groups"), &|d| d.layers[layer].geometry.groups = groups);
        }
    }
    for (what, description) in unsound {
        // A size that does not fit 63 bits is unsound too; a ceiling may say so before the layer does.
        assert_eq!(BloomFilter::with_zero_bits(&description, &Unlimited).unwrap_err(), Error::Unsound, "{what}");
        assert!(BloomFilter::with_zero_bits(&description, &SMALL).is_err(), "{what}");
    }
    // The ceiling is asked for all layers together.
    let bits_bytes = sound.layers.iter().map(|layer| layer.geometry.size_bytes()).sum();
    let asked_bytes = Native::size_bytes(sound.layers.len(), bits_bytes);
    let short = Error::OutOfMemory { asked_bytes, available_bytes: asked_bytes - 1 };
    assert_eq!(BloomFilter::with_zero_bits(&sound, &FilterOf(asked_bytes - 1)).unwrap_err(), short);
    assert!(BloomFilter::with_zero_bits(&sound, &FilterOf(asked_bytes)).is_ok());
    let longest = Description { layers: vec![sound.layers[0]; LAYERS_MAX], ..sound };
    assert!(BloomFilter::with_zero_bits(&longest, &Unlimited).is_ok());
}

/// Mostly within bounds, sometimes any bits at all.
fn wild_rates() -> impl Strategy<Value = f64> {
    prop_oneof![9 => rates(), 1 => any::<u64>().prop_map(f64::from_bits)]
}

fn layer_descriptions() -> impl Strategy<Value = LayerDescription> {
    let capacities = prop_oneof![4 => 1u64..100, 1 => any::<u64>(), 1 => u64::MAX - 1..=u64::MAX];
    let items = prop_oneof![2 => Just(None), 3 => (0u64..100).prop_map(Some), 1 => any::<u64>().prop_map(Some)];
    let groups = prop_oneof![9 => 1u64..20, 1 => any::<u64>()];
    let blocks = prop_oneof![8 => 2u32..=64, 1 => any::<u32>(), 1 => 0u32..=65];
    let hashes = prop_oneof![8 => 1u32..=64, 1 => any::<u32>(), 1 => 0u32..=65];
    let geometries = (groups, blocks, hashes);
    (wild_rates(), capacities, items, geometries).prop_map(|(rate, capacity, items, geometry)| {
        let geometry = Geometry { groups: geometry.0, blocks_per_group: geometry.1, hashes: geometry.2 };
        LayerDescription { rate, capacity, items: items.unwrap_or(capacity), geometry }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: config().cases * MORE_CASES, ..config() })]

    /// Whatever a payload says: an error, or a filter that is as described and that works.
    #[test]
    fn any_description_is_refused_or_works(
        rate in wild_rates(),
        capacity in prop_oneof![4 => 1u64..100, 1 => any::<u64>()],
        expansion in prop_oneof![2 => 0u32..4, 1 => any::<u32>()],
        seed in any::<u32>(),
        policy in prop_oneof![9 => Just(sizing::POLICY), 1 => any::<u32>()],
        layers in prop::collection::vec(layer_descriptions(), 0..4),
        items in prop::collection::vec(items(), 1..=BATCH),
    ) {
        let scaling = Scaling::from_expansion(expansion);
        let description = Description { rate, capacity, scaling, seed, policy, layers };
        if let Ok(mut filter) = BloomFilter::with_zero_bits(&description, &SMALL) {
            prop_assert_eq!(filter.description(), description);
            let added = add_batch(&mut filter, &items, &SMALL);
            prop_assert!(items[..added.done].iter().all(|item| filter.contains(item)));
            prop_assert_eq!(added.error.is_none(), added.done == items.len());
            prop_assert!(filter.room() <= filter.total_capacity());
            assert_same(&filter, &filter.try_clone().unwrap());
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "4096 layers take hours")]
fn a_chain_ends_at_its_longest() {
    let mut filter = BloomFilter::new(RATE_MAX, 1, Scaling::from_expansion(1), 3, &Unlimited).unwrap();
    let mut added = 0u32;
    let error = loop {
        match filter.add(&added.to_le_bytes(), &Unlimited) {
            Ok(_) => added += 1,
            Err(error) => break error,
        }
        assert!(added < 100_000, "a chain without an end");
    };
    assert_eq!((error, filter.layers().len(), filter.items()), (Error::TooManyLayers, LAYERS_MAX, LAYERS_MAX as u64));
    let before = filter.try_clone().unwrap();
    assert_eq!(filter.add(&added.to_le_bytes(), &Unlimited), Err(Error::TooManyLayers));
    assert!((0..added).all(|item| filter.contains(&item.to_le_bytes())));
    assert_eq!(filter.add(&0u32.to_le_bytes(), &Unlimited), Ok(false));
    assert_same(&filter, &before);
}

/// Whoever asks may not have so many layers.
struct LayersOf(usize);

impl Ceiling for LayersOf {
    fn available_bytes(&self, _filter_bytes: u64, _asked_bytes: u64) -> u64 {
        u64::MAX
    }

    fn layers_max(&self) -> usize {
        self.0
    }
}

#[test]
#[cfg_attr(miri, ignore = "1100 layers take an hour")]
fn a_chain_is_not_longer_than_the_ceiling_allows() {
    let client = LayersOf(CLIENT_LAYERS_MAX);
    let mut filter = BloomFilter::new(RATE_MAX, 1, Scaling::from_expansion(1), 3, &client).unwrap();
    let batches: Vec<Vec<Vec<u8>>> = (0..100u32)
        .map(|batch| (0..32u32).map(|item| [batch, item].map(u32::to_le_bytes).concat()).collect())
        .collect();
    let refused = batches.iter().map(|batch| add_batch(&mut filter, batch, &client).error).find(Option::is_some);
    assert_eq!(refused, Some(Some(Error::TooManyLayers)));
    assert_eq!((filter.layers().len(), filter.items()), (CLIENT_LAYERS_MAX, CLIENT_LAYERS_MAX as u64));
    // For whoever may have more it goes on; then it is longer than others may have, and answers them.
    batches.iter().for_each(|batch| assert_eq!(add_batch(&mut filter, batch, &Unlimited).error, None));
    assert!(filter.layers().len() > CLIENT_LAYERS_MAX + 100);
    let before = filter.try_clone().unwrap();
    assert!(batches.iter().all(|batch| add_batch(&mut filter, batch, &client).new == 0));
    let stranger = (0..10_000u32).map(u32::to_le_bytes).find(|item| !filter.contains(item)).unwrap();
    assert_eq!(filter.add(&stranger, &client), Err(Error::TooManyLayers));
    assert_same(&filter, &before);
    let described = BloomFilter::with_zero_bits(&filter.description(), &client);
    assert_eq!(described.unwrap_err(), Error::TooManyLayers);
    // How far a filter can grow says the same.
    let reach = |layers| BloomFilter::reach(RATE_MAX, 7, Scaling::from_expansion(1), 0, &LayersOf(layers)).capacity;
    assert_eq!([1, 2, CLIENT_LAYERS_MAX, usize::MAX].map(reach), [7, 14, 7700, 7 * LAYERS_MAX as u64]);
}

#[test]
fn a_layer_whose_capacity_or_size_does_not_fit_is_refused() {
    let mut description = valid();
    for (capacity, refusal) in [
        (u64::MAX - 1_000_000, Error::CapacityOutOfRange),
        (1 << 63, Error::CapacityOutOfRange),
        (1 << 62, Error::OutOfMemory { asked_bytes: u64::MAX, available_bytes: 0 }),
    ] {
        description.layers[1] = LayerDescription { capacity, items: capacity, ..description.layers[1] };
        let mut filter = BloomFilter::with_zero_bits(&description, &Unlimited).unwrap();
        assert_eq!(filter.add(b"item", &Unlimited), Err(refusal), "{capacity}");
        assert_same(&filter, &BloomFilter::with_zero_bits(&description, &Unlimited).unwrap());
    }
    // Nor is a chain sound whose items could not be counted.
    description.layers[1] = LayerDescription { capacity: u64::MAX, items: 0, ..description.layers[1] };
    assert_eq!(BloomFilter::with_zero_bits(&description, &Unlimited).map(|_| ()), Err(Error::Unsound));
}

#[test]
#[cfg_attr(miri, ignore = "to ask for more memory than there is ends miri")]
fn rates_and_capacities_have_edges() {
    let new = |rate, capacity| BloomFilter::new(rate, capacity, Scaling::Fixed, 0, &Unlimited).map(|_| ());
    for rate in [RATE_MAX.next_up(), RATE_MIN.next_down(), 0.0, -0.01, 1.0, f64::NAN, f64::INFINITY, -f64::INFINITY] {
        assert_eq!(new(rate, 100), Err(Error::RateOutOfRange), "{rate}");
    }
    for rate in [RATE_MIN, 0.01, RATE_MAX] {
        assert_eq!(new(rate, 1), Ok(()));
        assert_eq!(new(rate, 0), Err(Error::CapacityOutOfRange));
        assert!(matches!(new(rate, u64::MAX), Err(Error::OutOfMemory { available_bytes: 0, .. })));
        // 2^58 fit 63 bits, but no machine: the error says how much was asked for.
        let asked_bytes = Geometry::for_layer(1 << 58, rate).unwrap().size_bytes();
        let refusal = new(rate, 1 << 58).unwrap_err();
        assert!(matches!(refusal, Error::OutOfMemory { asked_bytes: asked, .. } if asked == asked_bytes), "{refusal}");
    }
    let mut one = BloomFilter::new(0.01, 1, Scaling::Fixed, 0, &Unlimited).unwrap();
    assert_eq!(one.add(b"", &Unlimited), Ok(true));
    assert_eq!(one.add(b"a", &Unlimited), Err(Error::Full));
    assert_eq!(one.add(b"", &Unlimited), Ok(false));
    let asked_bytes = Native::size_bytes(1, Geometry::for_layer(1000, 0.01).unwrap().size_bytes());
    let short = Error::OutOfMemory { asked_bytes, available_bytes: asked_bytes - 1 };
    assert_eq!(BloomFilter::new(0.01, 1000, Scaling::Fixed, 0, &FilterOf(asked_bytes - 1)).unwrap_err(), short);
    assert!(BloomFilter::new(0.01, 1000, Scaling::Fixed, 0, &FilterOf(asked_bytes)).is_ok());
}

/// The largest power of two, up to 2^40, that this machine lets a filter be made for. It touches few of its pages.
#[test]
#[cfg_attr(miri, ignore = "to ask for more memory than there is ends miri")]
fn a_filter_may_be_larger_than_the_memory_that_it_uses() {
    let made = (24..=40).rev().find_map(|power| BloomFilter::new(0.01, 1 << power, Scaling::Fixed, 9, &Unlimited).ok());
    let mut filter = made.unwrap();
    println!("capacity {}: {} bytes", filter.capacity(), filter.allocated_bytes());
    let items: Vec<Vec<u8>> = (0..100u32).map(|item| item.to_le_bytes().to_vec()).collect();
    for batch in items.chunks(BATCH) {
        assert_eq!(add_batch(&mut filter, batch, &Unlimited).new.count_ones() as usize, batch.len());
    }
    assert!(items.iter().all(|item| filter.contains(item)));
    assert!((100..1000u32).all(|item| !filter.contains(&item.to_le_bytes())));
    assert_eq!(filter.items(), 100);
}

/// Layers above 512 KiB are fetched ahead, those above 256 KiB lie on pages.
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
        assert_eq!(contained(&filter, batch), batch.len());
    }
}

#[test]
fn a_longer_list_is_cut_and_an_empty_one_does_nothing() {
    let mut filter = BloomFilter::new(0.01, 1, Scaling::Fixed, 5, &Unlimited).unwrap();
    let hashes: Vec<_> = (0..40u8).map(|item| filter.hash(&[item])).collect();
    let mut twin = BloomFilter::new(0.01, 100, Scaling::Fixed, 5, &Unlimited).unwrap();
    assert_eq!(twin.add_batch(&hashes, &Unlimited).done, BATCH);
    assert_eq!(twin.contains_batch(&hashes), u32::MAX);
    assert_eq!((0..40u8).filter(|item| twin.contains(&[*item])).count(), BATCH);
    let list: Vec<[u8; 1]> = (0..40u8).map(|item| [item]).collect();
    assert_eq!(filter.hash_batch(list.iter().map(|item| &item[..]))[..], hashes[..BATCH]);
    assert_eq!(filter.add(b"the only one", &Unlimited), Ok(true));
    assert_eq!(filter.add_batch(&[], &Unlimited), Added { new: 0, done: 0, error: None });
    assert_eq!(filter.contains_batch(&[]), 0);
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
