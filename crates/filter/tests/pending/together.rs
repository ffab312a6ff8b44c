//! Merges of filters with pending adds: the union equals that of their followers, and is refused if theirs is.

use bloomgate_filter::kinds::Origin;
use bloomgate_filter::{BloomFilter, Scaling, Unlimited};
use proptest::prelude::*;

use super::item;
use super::new_native;
use super::pair::{NOW, Pair};
use super::random::config;

/// The history of one of the filters.
#[derive(Clone, Debug)]
struct Made {
    /// Items in its bits, then pending adds, numbered from these on.
    written: (u32, u32),
    pending: (u32, u32),
    deleted: (u32, u32),
    merged: usize,
}

fn made() -> impl Strategy<Value = Made> {
    let range = |most: u32| (0u32..2000, 0u32..most);
    (range(1500), range(600), range(80), 0usize..50).prop_map(|(written, pending, deleted, merged)| Made {
        written,
        pending,
        deleted,
        merged,
    })
}

fn pair(made: &Made, scaling: Scaling) -> Pair {
    let numbers = |(first, count): (u32, u32)| (first..first + count).collect::<Vec<_>>();
    let mut pair = Pair::of(new_native(0.05, 2500, scaling));
    pair.add(&numbers(made.written), true, false);
    pair.add(&numbers(made.pending), true, true);
    pair.delete(&numbers(made.deleted));
    pair.primary_mut().flush_pending(made.merged);
    pair
}

fn native(pair: &Pair) -> [&BloomFilter; 2] {
    [pair.primary(), pair.follower()].map(|filter| filter.mergeable().unwrap())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_union_of_filters_with_pending_adds_equals_that_of_their_followers(
        all in prop::collection::vec(made(), 2..=4), expansion in 0u32..=2, into_new in any::<bool>(),
    ) {
        let mut pairs: Vec<_> = all.iter().map(|made| pair(made, Scaling::from_expansion(expansion))).collect();
        let mut destination = pairs.pop().unwrap();
        let sources: [Vec<_>; 2] =
            std::array::from_fn(|which| pairs.iter().map(|pair| native(pair)[which]).collect());
        if into_new {
            let [here, there] = sources.map(|sources| BloomFilter::union_of(&sources, Origin::Client, &Unlimited));
            prop_assert_eq!(here.as_ref().err(), there.as_ref().err());
            if let (Ok(here), Ok(there)) = (here, there) {
                prop_assert!(here == there);
            }
            return Ok(());
        }
        let [here, there] = [0, 1].map(|which| {
            let filter = if which == 0 { destination.primary_mut() } else { destination.follower_mut() };
            filter.mergeable_mut().unwrap().merge(&sources[which], Origin::Client, &Unlimited)
        });
        prop_assert_eq!(here, there);
        for source in &pairs {
            source.check();
        }
        destination.forget();
        destination.check();
        destination.merge_all(100);
    }
}

/// An item that is found only by the bits of all pending adds together is found when tables are merged, because followers find
/// it.
#[test]
fn entries_are_merged_by_the_bits_of_followers() {
    let mut other = Pair::of(new_native(0.2, 40_000, Scaling::Fixed));
    other.add(&(0..20_000).collect::<Vec<_>>(), true, false);
    other.add(&(20_000..20_080).collect::<Vec<_>>(), true, true);
    let [here, there] = native(&other);
    let only_there = |number: &u32| !here.contains(&item(*number)) && there.contains(&item(*number));
    let found: Vec<u32> = (1_000_000..1_300_000).filter(only_there).take(40).collect();
    assert_eq!(found.len(), 40);

    let mut one = Pair::of(new_native(0.2, 40_000, Scaling::Fixed));
    one.add(&found, true, false);
    one.delete(&found);
    assert_eq!((one.primary().items(), one.primary().stats(&NOW).unwrap().deleted.unwrap().entries), (0, 40));
    let [here, there] = native(&other);
    for other in [here, there] {
        let filter = if std::ptr::eq(other, here) { one.primary_mut() } else { one.follower_mut() };
        filter.mergeable_mut().unwrap().merge(&[other], Origin::Client, &Unlimited).unwrap();
        assert_eq!(filter.stats(&NOW).unwrap().deleted.unwrap().entries, 0);
    }
    one.check();
}
