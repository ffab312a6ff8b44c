//! Merges of native filters: the bits are the same as after adding all items to one filter, the counts are estimates, and a refusal changes
//! nothing.

use bloomgate_filter::hash::Hasher;
use bloomgate_filter::kinds::{NativeSpec, Origin};
use bloomgate_filter::{BloomFilter, Error, Filter, Moment, Policy, Scaling, Unlimited};
use proptest::prelude::*;

use crate::rows::{Room, config};

fn spec(capacity: u64, expansion: u32) -> NativeSpec {
    NativeSpec::murmur3(0.01, capacity, Scaling::from_expansion(expansion), 4242)
}

fn filter(spec: NativeSpec, items: std::ops::Range<u64>) -> BloomFilter {
    let mut filter = BloomFilter::with_spec(spec, &Unlimited).unwrap();
    items.for_each(|item| _ = filter.add(&item.to_le_bytes(), &Unlimited).unwrap());
    filter
}

fn merge(into: &mut BloomFilter, others: &[&BloomFilter]) -> Result<(), Error> {
    into.merge(others, Origin::Client, &Unlimited)
}

fn has_all(filter: &BloomFilter, mut items: std::ops::Range<u64>) -> bool {
    items.all(|item| filter.contains(&item.to_le_bytes()))
}

fn bits(filter: &BloomFilter) -> Vec<&[u8]> {
    filter.layers().iter().map(|layer| layer.bytes()).collect()
}

#[test]
fn the_number_of_items_is_estimated_within_two_percent() {
    for (rate, capacity) in [(1e-2, 20_000), (1e-4, 200_000), (1e-6, 50_000)] {
        let spec = NativeSpec { rate, ..spec(capacity, 0) };
        let ranges =
            [0..capacity * 5 / 10, capacity * 3 / 10..capacity * 7 / 10, capacity * 65 / 100..capacity * 97 / 100];
        let [mut one, two, three] = ranges.map(|range| filter(spec, range));
        merge(&mut one, &[&two, &three]).unwrap();
        let error = one.items() as f64 / (capacity as f64 * 0.97) - 1.0;
        eprintln!("{rate}, {capacity}: {:+.3}%", error * 100.0);
        assert!(error.abs() < 0.02, "{} of {capacity}", one.items());
        assert!(has_all(&one, 0..capacity * 97 / 100));
    }
}

#[test]
fn a_filter_that_contains_the_others_keeps_its_count() {
    let mut all = filter(spec(50_000, 2), 0..40_000);
    let (part, none) = (filter(spec(50_000, 2), 100..30_000), filter(spec(50_000, 2), 0..0));
    let before = all.try_clone().unwrap();
    merge(&mut all, &[&part, &none]).unwrap();
    assert!(all == before);
    let copy = BloomFilter::union_of(&[&all], Origin::Client, &Unlimited).unwrap();
    assert!(copy == all);
    let mut empty = none;
    merge(&mut empty, &[&all]).unwrap();
    assert!(empty == all);
}

#[test]
fn missing_layers_are_created() {
    let spec = spec(1000, 2);
    let (mut small, large) = (filter(spec, 0..20), filter(spec, 0..6000));
    assert_eq!((small.layers().len(), large.layers().len()), (1, 3));
    merge(&mut small, &[&large]).unwrap();
    assert!(small == large, "the small one's items are in the first layer of the large one");
    let union = BloomFilter::union_of(&[&filter(spec, 0..20), &large], Origin::Client, &Unlimited).unwrap();
    assert!(union == large);
    // The result works like any filter.
    for item in 6000u64..20_000 {
        small.add(&item.to_le_bytes(), &Unlimited).unwrap();
    }
    assert!(has_all(&small, 0..20_000) && small.items() <= 20_000);
}

#[test]
fn too_many_items_are_refused_to_clients_and_clamped_in_effects() {
    let spec = spec(10_000, 2);
    let (mut one, other) = (filter(spec, 0..9000), filter(spec, 9000..18_000));
    let before = one.try_clone().unwrap();
    let refused = merge(&mut one, &[&other]).unwrap_err();
    let Error::UnionTooLarge { items, capacity } = refused else { panic!("{refused:?}") };
    assert!(capacity == 10_000 && items.abs_diff(18_000) < 400, "{items}");
    assert!(one == before);
    one.merge(&[&other], Origin::Effect, &Unlimited).unwrap();
    assert_eq!(one.items(), 10_000);
    assert!(has_all(&one, 0..18_000));
}

/// Effects are counted during the union, and so are clients' merges that cannot be refused.
#[test]
fn layers_are_estimated_alike_before_and_during_a_union() {
    let spec = spec(10_000, 2);
    let (large, small) = (filter(spec, 0..28_000), filter(spec, 0..3000));
    for (own, more) in [(0..8000, 2000..10_000), (0..9000, 2000..4000), (0..4000, 3000..9000), (0..28_000, 0..20_000)] {
        let (own, more) = (filter(spec, own), filter(spec, more));
        for others in [&[&more][..], &[&small, &more], &[&large, &small]] {
            let (mut asked, mut carried) = (own.try_clone().unwrap(), own.try_clone().unwrap());
            asked.merge(others, Origin::Client, &Unlimited).unwrap();
            carried.merge(others, Origin::Effect, &Unlimited).unwrap();
            assert!(asked == carried);
            assert_eq!(asked.items(), carried.items());
            let of_layers: u64 = asked.layers().iter().map(|layer| layer.items()).sum();
            assert_eq!(asked.items(), of_layers);
            let mut all = others.to_vec();
            all.push(&own);
            assert!(BloomFilter::union_of(&all, Origin::Client, &Unlimited).unwrap() == asked);
        }
    }
}

#[test]
fn filters_with_other_definitions_are_refused() {
    let first = spec(1000, 2);
    let others = [
        NativeSpec { rate: 0.02, ..first },
        NativeSpec { capacity: 1001, ..first },
        NativeSpec { scaling: Scaling::Fixed, ..first },
        NativeSpec { hasher: Hasher::murmur3(4243), ..first },
        NativeSpec { hasher: Hasher::SipHash { key: [1; 16] }, ..first },
    ];
    let small = spec(100, 2);
    assert_eq!(small.policy, Policy::NEWEST);
    let of_0_2 = NativeSpec { policy: Policy::One, ..small };
    for (first, other) in others.map(|other| (first, other)).into_iter().chain([(small, of_0_2), (of_0_2, small)]) {
        let mut one = filter(first, 0..50);
        let before = one.try_clone().unwrap();
        for origin in [Origin::Client, Origin::Effect] {
            let other = filter(other, 100..150);
            assert_eq!(one.merge(&[&before, &other], origin, &Unlimited), Err(Error::Different));
            assert!(one == before);
        }
    }
}

/// Filters of 0.3 have the second policy, and the same layers as filters of today.
#[test]
fn filters_whose_policies_give_the_same_layers_are_merged() {
    let third = spec(100, 2);
    let second = NativeSpec { policy: Policy::Two, ..third };
    for [first, other] in [[second, third], [third, second]] {
        for [own, others] in [[0..50, 30..90], [0..80, 60..100]] {
            let mut union = filter(first, own.clone());
            merge(&mut union, &[&filter(other, others.clone())]).unwrap();
            let mut alike = filter(first, own);
            merge(&mut alike, &[&filter(first, others)]).unwrap();
            assert!(union == alike);
            assert_eq!(union.spec(), first);
        }
    }
}

#[test]
fn a_ceiling_is_asked_before_a_layer_is_created() {
    let room = |filter, layers| Room { filter, layers, ..Room::UNLIMITED };
    let spec = spec(1000, 2);
    let (mut small, large) = (filter(spec, 0..20), filter(spec, 0..6000));
    let before = (small.try_clone().unwrap(), small.allocated_bytes());
    let refused = small.merge(&[&large], Origin::Client, &room(large.size_bytes() - 1, 9));
    assert!(matches!(refused, Err(Error::AboveCeiling { .. })), "{refused:?}");
    assert_eq!(small.merge(&[&large], Origin::Client, &room(u64::MAX, 2)), Err(Error::TooManyLayers));
    assert!(small == before.0 && small.allocated_bytes() == before.1);
    assert_eq!(small.merge(&[&large], Origin::Client, &room(large.size_bytes(), 3)), Ok(()));
    assert_eq!(small.size_bytes(), large.size_bytes());
    let made = BloomFilter::union_of(&[&large], Origin::Client, &room(large.size_bytes() - 1, 9));
    assert!(matches!(made, Err(Error::AboveCeiling { .. })));
    assert!(BloomFilter::union_of(&[&large], Origin::Client, &room(large.size_bytes(), 3)).is_ok());
}

proptest! {
    #![proptest_config(config(256))]

    /// The bits of a union of layers of one size equal the bits after adding all items.
    #[test]
    fn a_union_has_the_bits_of_all_items(
        sizes in prop::collection::vec(0u64..300, 1..5),
        overlap in 0u64..50,
        capacity in 1500u64..5000,
    ) {
        // The rate is so low that there are no false positives.
        let spec = NativeSpec { rate: 1e-12, ..spec(capacity, 0) };
        let mut first = 0;
        let mut filters = Vec::new();
        for size in &sizes {
            filters.push(filter(spec, first..first + size));
            first = (first + size).saturating_sub(overlap);
        }
        let end = sizes.iter().scan(0u64, |first, size| {
            let end = *first + size;
            *first = end.saturating_sub(overlap);
            Some(end)
        }).max().unwrap();
        let all = filter(spec, 0..end);
        let union = BloomFilter::union_of(&filters.iter().collect::<Vec<_>>(), Origin::Client, &Unlimited).unwrap();
        prop_assert!(bits(&union) == bits(&all));
        let of_all = union.items() as f64 / all.items().max(1) as f64;
        prop_assert!(all.items() < 500 || (of_all - 1.0).abs() < 0.1, "{} of {}", union.items(), all.items());

        // In any order, and with repetitions.
        let turned: Vec<_> = filters.iter().rev().chain(&filters).collect();
        prop_assert!(bits(&BloomFilter::union_of(&turned, Origin::Client, &Unlimited).unwrap()) == bits(&union));
    }
}

/// A user of the filter need not know that it was merged.
#[test]
fn a_union_keeps_the_requested_rate() {
    let spec = spec(20_000, 0);
    let (mut one, other) = (filter(spec, 0..12_000), filter(spec, 8000..20_000));
    merge(&mut one, &[&other]).unwrap();
    let wrong = (1u64 << 40..(1 << 40) + 100_000).filter(|item| one.contains(&item.to_le_bytes())).count();
    assert!((700..1150).contains(&wrong), "{wrong} of 100000");
    let told = Filter::from(one).stats(&Moment(0)).unwrap().rate_now;
    assert!((told / (wrong as f64 / 100_000.0) - 1.0).abs() < 0.12, "{told} for {wrong}");
}
