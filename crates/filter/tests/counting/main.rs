//! Counting filters, compared with an exact multiset over random adds and deletes: as long as only added items are deleted, no
//! order makes a member absent; counts are exact; a batch equals its items one by one. `stored.rs` has their stored forms.
//!
//! The cases use a fixed seed, so that every run tries the same ones; `PROPTEST_CASES` and `PROPTEST_RNG_SEED` in the
//! environment select more, or others.

// All of this file is test code: a panic is how a test fails.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod stored;
mod words;

use std::collections::HashMap;

use bloomgate_filter::cells::COUNTER_MAX;
use bloomgate_filter::chain::Added;
use bloomgate_filter::hash::Hasher;
use bloomgate_filter::kinds::{CountingSpec, Origin, Outcome, Removed};
use bloomgate_filter::{BATCH, Ceiling, Error, Filter, Mask, Moment, Scaling, Spec, Unlimited};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const NOW: Moment = Moment(0);
/// The most commands of a case: fewer under miri, which is slow.
const COMMANDS: usize = if cfg!(miri) { 5 } else { 40 };

fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let rng_seed = if default.rng_seed == RngSeed::Random { RngSeed::Fixed(2) } else { default.rng_seed };
    ProptestConfig { rng_seed, failure_persistence: None, ..default }
}

fn spec(rate: f64, capacity: u64) -> CountingSpec {
    CountingSpec { rate, capacity, hasher: Hasher::murmur3(4242) }
}

fn new(spec: CountingSpec) -> Filter {
    Filter::new(&Spec::Counting(spec), &Unlimited).unwrap()
}

fn specs() -> impl Strategy<Value = CountingSpec> {
    let hashers =
        prop_oneof![any::<u32>().prop_map(Hasher::murmur3), any::<[u8; 16]>().prop_map(|key| Hasher::SipHash { key }),];
    // High rates make items share counters, and low capacities make filters full.
    let rates = prop_oneof![Just(0.25), Just(0.01), Just(1e-12)];
    (rates, prop_oneof![1u64..30, 30u64..2000], hashers).prop_map(|(rate, capacity, hasher)| CountingSpec {
        rate,
        capacity,
        hasher,
    })
}

/// From a small set, so that many are repeated, even within a command.
fn items() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let item = (0u32..60).prop_map(|number| number.to_string().into_bytes());
    prop::collection::vec(item, 1..=BATCH)
}

/// An add or a delete of items.
fn commands() -> impl Strategy<Value = Vec<(bool, Vec<Vec<u8>>)>> {
    prop::collection::vec((any::<bool>(), items()), 1..COMMANDS)
}

fn add(filter: &mut Filter, items: &[Vec<u8>]) -> Added {
    filter.add_batch(items.iter().map(Vec::as_slice), Origin::Client, &NOW, &Unlimited)
}

fn add_one(filter: &mut Filter, item: &[u8]) -> Result<Outcome, Error> {
    filter.add(item, Origin::Client, &NOW, &Unlimited)
}

fn remove(filter: &mut Filter, items: &[Vec<u8>], origin: Origin) -> Removed {
    filter.remove_batch(items.iter().map(Vec::as_slice), origin, &NOW, &Unlimited)
}

fn count(filter: &Filter, item: &[u8]) -> u8 {
    filter.counting().unwrap().count(item)
}

/// Adds items one by one, to compare with a batch.
fn add_one_by_one(filter: &mut Filter, items: &[Vec<u8>]) -> Added {
    let mut added = Added { new: Mask::NONE, effect: Mask::NONE, done: 0, error: None };
    for (index, item) in items.iter().enumerate() {
        let was_in = filter.contains(item, &NOW);
        match add_one(filter, item) {
            Ok(outcome) => {
                assert_eq!(outcome, if was_in { Outcome::Renewed } else { Outcome::New });
                added.new.insert_if(index, !was_in);
                added.effect.insert(index);
                added.done += 1;
            }
            Err(error) => {
                added.error = Some(error);
                break;
            }
        }
    }
    added
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn members_are_found_and_counted(spec in specs(), commands in commands()) {
        let mut filter = new(spec);
        let mut multiset: HashMap<Vec<u8>, u64> = HashMap::new();
        for (is_add, items) in commands {
            if is_add {
                let added = add(&mut filter, &items);
                let room = spec.capacity - multiset.values().sum::<u64>();
                prop_assert_eq!(added.done as u64, room.min(items.len() as u64));
                prop_assert_eq!(added.error, (added.done < items.len()).then_some(Error::Full));
                prop_assert_eq!(added.effect, Mask::first(added.done));
                for (index, item) in items[..added.done].iter().enumerate() {
                    let copies = multiset.entry(item.clone()).or_default();
                    *copies += 1;
                    prop_assert!(*copies == 1 || !added.new.contains(index), "a member is not new");
                }
            } else {
                // Deletes only members, at most as often as they were added.
                let mut members = Vec::new();
                for item in items {
                    if let Some(copies) = multiset.get_mut(&item).filter(|copies| **copies > 0) {
                        *copies -= 1;
                        members.push(item);
                    }
                }
                let removed = remove(&mut filter, &members, Origin::Client);
                prop_assert_eq!(removed, Removed { found: Mask::first(members.len()), done: members.len(), error: None });
            }
            prop_assert_eq!(filter.items(), multiset.values().sum::<u64>());
            prop_assert_eq!(filter.remaining_capacity(), spec.capacity - filter.items());
            for (item, copies) in multiset.iter().filter(|(_, copies)| **copies > 0) {
                prop_assert!(filter.contains(item, &NOW), "a member is absent");
                prop_assert!(u64::from(count(&filter, item)) >= (*copies).min(COUNTER_MAX.into()));
            }
        }
        // Found items have a count. Batches of lookups agree.
        let all: Vec<Vec<u8>> = (0..BATCH).map(|number| number.to_string().into_bytes()).collect();
        let found = filter.contains_batch(all.iter().map(Vec::as_slice), &NOW);
        for (index, item) in all.iter().enumerate() {
            prop_assert_eq!(found.contains(index), count(&filter, item) > 0);
            prop_assert_eq!(found.contains(index), filter.contains(item, &NOW));
        }
        prop_assert!((0.0..=1.0).contains(&filter.counting().unwrap().layers()[0].fill_ratio()));
    }

    #[test]
    fn added_and_deleted_items_leave_nothing(spec in specs(), items in items()) {
        let mut filter = new(CountingSpec { capacity: spec.capacity + BATCH as u64, ..spec });
        let empty = filter.try_clone().unwrap();
        // At most fifteen times, because a saturated counter never changes.
        let few: Vec<_> = items.into_iter().take(usize::from(COUNTER_MAX) - 1).collect();
        add(&mut filter, &few);
        prop_assert!(filter != empty);
        let mut backwards = few.clone();
        backwards.sort_unstable();
        remove(&mut filter, &backwards, Origin::Client);
        prop_assert!(filter == empty);
    }

    /// Also for items that were never added, and for effects.
    #[test]
    fn a_batch_is_its_items_one_by_one(spec in specs(), commands in commands()) {
        let (mut filter, mut twin, mut follower) = (new(spec), new(spec), new(spec));
        for (is_add, items) in commands {
            if is_add {
                let added = add(&mut filter, &items);
                prop_assert_eq!(added, add_one_by_one(&mut twin, &items));
                // The effects are exactly what was done.
                let effect = items[..added.done].iter().map(Vec::as_slice);
                let followed = follower.add_batch(effect, Origin::Effect, &NOW, &Unlimited);
                prop_assert_eq!(followed, Added { error: None, ..added });
            } else {
                let before = filter.items();
                let removed = remove(&mut filter, &items, Origin::Client);
                prop_assert_eq!((removed.done, removed.error), (items.len(), None));
                prop_assert_eq!(filter.items(), before.saturating_sub(removed.found.len().into()));
                for (index, item) in items.iter().enumerate() {
                    let found = twin.contains(item, &NOW);
                    prop_assert_eq!(removed.found.contains(index), found);
                    let one = remove(&mut twin, std::slice::from_ref(item), Origin::Client);
                    prop_assert_eq!(one.found.contains(0), found);
                }
                // The effects of deletes are the items that were found.
                let is_found = |index: &usize| removed.found.contains(*index);
                let found: Vec<_> = (0..items.len()).filter(is_found).map(|index| items[index].clone()).collect();
                let followed = remove(&mut follower, &found, Origin::Effect);
                prop_assert_eq!(followed.found, Mask::first(found.len()));
            }
            prop_assert!(filter == twin && filter == follower);
        }
    }
}

#[test]
fn a_saturated_counter_never_changes() {
    let mut filter = new(spec(0.01, 1000));
    for times in 0..20 {
        assert_eq!(count(&filter, b"item"), times.min(COUNTER_MAX));
        let outcome = if times == 0 { Outcome::New } else { Outcome::Renewed };
        assert_eq!(add_one(&mut filter, b"item"), Ok(outcome));
    }
    let item = [b"item".to_vec()];
    for _ in 0..30 {
        assert_eq!(remove(&mut filter, &item, Origin::Client).found, Mask::first(1), "it is found ever after");
    }
    assert_eq!((count(&filter, b"item"), filter.items()), (COUNTER_MAX, 0), "at least 0");
    assert_eq!(filter.try_clone().unwrap(), filter, "a copy has its counters, although it counts no items");
    // An item that was added fourteen times can be deleted.
    (0..14).for_each(|_| _ = add_one(&mut filter, b"other").unwrap());
    let other = [b"other".to_vec()];
    (0..14).for_each(|_| assert_eq!(remove(&mut filter, &other, Origin::Client).found, Mask::first(1)));
    assert_eq!(remove(&mut filter, &other, Origin::Client).found, Mask::NONE);
}

#[test]
fn a_full_filter_refuses_every_add_until_a_delete() {
    let mut filter = new(spec(0.01, 3));
    let items: Vec<_> = ["a", "b", "a", "a", "c"].map(|item| item.as_bytes().to_vec()).into();
    let added = add(&mut filter, &items);
    let mut new = Mask::first(2);
    assert_eq!(added, Added { new, effect: Mask::first(3), done: 3, error: Some(Error::Full) });
    let full = filter.try_clone().unwrap();
    assert_eq!(add_one(&mut filter, b"a"), Err(Error::Full), "one that is found, too");
    assert_eq!(add_one(&mut filter, b"c"), Err(Error::Full));
    assert!(filter == full);
    new = remove(&mut filter, &items, Origin::Client).found;
    assert_eq!(new, Mask::first(3), "a twice, b, and neither a third time nor c");
    assert_eq!((filter.items(), filter.remaining_capacity()), (0, 3));
    assert_eq!(add_one(&mut filter, b"c"), Ok(Outcome::New));
}

/// Layers above 512 KiB are prefetched.
#[test]
fn the_laws_hold_for_large_layers() {
    let members = if cfg!(miri) { 100 } else { 200_000 };
    let mut filter = new(spec(1e-3, members));
    let mut twin = filter.try_clone().unwrap();
    let items: Vec<_> = (0..members).map(|item| item.to_le_bytes().to_vec()).collect();
    for batch in items.chunks(31) {
        assert_eq!(add(&mut filter, batch), add_one_by_one(&mut twin, batch));
    }
    assert!(filter == twin && filter.items() == members);
    let fill = filter.counting().unwrap().layers()[0].fill_ratio();
    assert!((0.35..0.55).contains(&fill), "{fill}");
    // Each has counters of its own, with few exceptions.
    let sum: u64 = items.iter().map(|item| u64::from(count(&filter, item))).sum();
    assert!((members..members + members / 100 + 1).contains(&sum), "{sum}");
    for batch in items.chunks(BATCH) {
        assert_eq!(remove(&mut filter, batch, Origin::Client).found, Mask::first(batch.len()));
    }
    assert!(filter == new(spec(1e-3, members)));
    assert_eq!(filter.counting().unwrap().layers()[0].fill_ratio().to_bits(), 0);
}

#[test]
fn a_counting_filter_has_the_requested_definition_or_is_refused() {
    let filter = new(spec(0.01, 1000));
    assert_eq!((filter.scaling(), filter.layer_count(), filter.total_capacity()), (Scaling::Fixed, 1, 1000));
    let layer = filter.layers().next().unwrap();
    // Half a byte for each of ten counters per item, rounded up to a block.
    assert_eq!((layer.bits, layer.size_bytes, layer.hashes), (2 * 10 * 512, 2 * 10 * 256, 7));
    assert!(filter.size_bytes() > layer.size_bytes && filter.allocated_bytes() > layer.size_bytes);
    assert_eq!(filter.spec(), Spec::Counting(spec(0.01, 1000)));
    struct Room(u64);
    impl Ceiling for Room {
        fn available_bytes(&self, _: u64, _: u64) -> u64 {
            self.0
        }
    }
    let refused = |rate, capacity, room| Filter::new(&Spec::Counting(spec(rate, capacity)), &Room(room)).err();
    assert_eq!(refused(0.3, 10, u64::MAX), Some(Error::RateOutOfRange));
    assert_eq!(refused(1e-13, 10, u64::MAX), Some(Error::RateOutOfRange));
    assert_eq!(refused(0.01, 0, u64::MAX), Some(Error::CapacityOutOfRange));
    assert_eq!(refused(1e-12, u64::MAX, u64::MAX), Some(Error::SizeOverflow));
    assert_eq!(refused(0.01, 1000, filter.size_bytes()), None);
    let (asked_bytes, available_bytes) = (filter.size_bytes(), filter.size_bytes() - 1);
    assert_eq!(refused(0.01, 1000, available_bytes), Some(Error::AboveCeiling { asked_bytes, available_bytes }));
    let reach = filter.spec().reach(0, &Room(u64::MAX));
    assert_eq!((reach.capacity, reach.ends_by_rate), (1000, false));
    assert_eq!(filter.spec().reach(0, &Room(available_bytes)).capacity, 0);
}
