//! Deletes from native filters, fixed and growing.

use std::collections::BTreeSet;

use bloomgate_filter::chain::Added;
use bloomgate_filter::kinds::{Origin, Removed};
use bloomgate_filter::{BATCH, Ceiling, Error, Filter, Mask, Moment, Unlimited};
use proptest::prelude::*;

use super::{Items, Step, add, arrived, config, delete, filter, items, records, saved_and_read, steps};

const NOW: Moment = Moment(0);

/// A filter, an exact set, and a replica, which gets the effects.
struct Beside {
    filter: Filter,
    replica: Filter,
    /// Items that were added and not deleted since.
    members: BTreeSet<Vec<u8>>,
    /// Items that were deleted and not added since.
    deleted: BTreeSet<Vec<u8>>,
    /// Adds that changed bits.
    inserted: u64,
}

impl Beside {
    fn new(filter: Filter) -> Self {
        let replica = filter.try_clone().unwrap();
        Self { filter, replica, members: BTreeSet::new(), deleted: BTreeSet::new(), inserted: 0 }
    }

    fn add(&mut self, items: &[Vec<u8>]) {
        let was_known: Vec<bool> = items.iter().map(|item| self.filter.contains(item, &NOW)).collect();
        let added = add(&mut self.filter, items, Origin::Client, NOW);
        assert_eq!(added.new, added.effect);
        let mut effects = Items::new();
        for (index, item) in items.iter().enumerate().take(added.done) {
            let is_new = added.new.contains(index);
            assert!(!(is_new && was_known[index]), "what is found is not new");
            if self.deleted.remove(item) {
                assert!(is_new, "an item that was deleted is new");
            } else {
                self.inserted += u64::from(is_new);
            }
            self.members.insert(item.clone());
            if is_new {
                effects.push(item.clone());
            }
        }
        if added.error.is_some() {
            assert_eq!(added.error, Some(Error::Full));
            assert!(!self.members.contains(&items[added.done]), "a member is never refused");
            assert!(!self.deleted.contains(&items[added.done]), "nor one that was deleted");
        }
        add(&mut self.replica, &effects, Origin::Effect, NOW);
    }

    fn delete(&mut self, items: &[Vec<u8>]) {
        let was_found: Vec<bool> = items.iter().map(|item| self.filter.contains(item, &NOW)).collect();
        let entries = self.deleted.len() as u64;
        let removed = delete(&mut self.filter, items, Origin::Client, NOW);
        let mut effects = Items::new();
        for (index, item) in items.iter().enumerate().take(removed.done) {
            let first_time = !items[..index].contains(item);
            assert_eq!(removed.found.contains(index), was_found[index] && first_time);
            if removed.found.contains(index) {
                self.members.remove(item);
                assert!(self.deleted.insert(item.clone()));
                effects.push(item.clone());
            }
        }
        if let Some(error) = removed.error {
            let entries = entries + u64::from(removed.found.len());
            assert_eq!(error, Error::NoRoomForDeleted { entries });
            assert!(self.filter.contains(&items[removed.done], &NOW), "what is refused stays");
        } else {
            assert_eq!(removed.done, items.len());
        }
        delete(&mut self.replica, &effects, Origin::Effect, NOW);
    }

    fn replace(&mut self, with: Filter) {
        assert!(with == self.filter);
        self.filter = with;
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Add(items, true) => self.add(items),
            Step::Add(items, false) => items.chunks(1).for_each(|item| self.add(item)),
            Step::Delete(items, true) => self.delete(items),
            Step::Delete(items, false) => items.chunks(1).for_each(|item| self.delete(item)),
            Step::Save => self.replace(saved_and_read(self.filter.try_clone().unwrap())),
            Step::Dump => self.replace(arrived(&records(&self.filter))),
            Step::Copy => self.replace(self.filter.try_clone().unwrap()),
            Step::Wait(_) => {}
        }
        self.check();
    }

    fn check(&self) {
        assert!(self.members.iter().all(|item| self.filter.contains(item, &NOW)), "a member is absent");
        assert!(!self.deleted.iter().any(|item| self.filter.contains(item, &NOW)), "a deleted item is found");
        let all: Vec<_> = self.members.union(&self.deleted).collect();
        for batch in all.chunks(BATCH) {
            let found = self.filter.contains_batch(batch.iter().map(|item| item.as_slice()), &NOW);
            assert!(
                batch.iter().enumerate().all(|(index, item)| found.contains(index) == self.members.contains(*item))
            );
        }
        let entries = self.deleted.len() as u64;
        assert_eq!(self.filter.items(), self.inserted.saturating_sub(entries), "adds less entries");
        let Filter::Native(native) = &self.filter else { panic!("a native filter") };
        assert_eq!(native.deleted_entries(), entries);
        assert!(self.filter == self.replica, "a replica is equal");
    }
}

/// Returns the bits and the counts of all layers.
fn layers(filter: &Filter) -> Vec<(u64, Vec<u8>)> {
    let Filter::Native(native) = filter else { panic!("a native filter") };
    native.layers().iter().map(|layer| (layer.items(), layer.bytes().to_vec())).collect()
}

fn filters() -> impl Strategy<Value = Filter> {
    let expansions = prop_oneof![2 => Just(0), 2 => Just(1), 1 => 2u32..5];
    // The smallest table has room for three entries.
    let capacities = prop_oneof![2 => 1u64..30, 2 => 30u64..300];
    let rates = prop_oneof![Just(0.25), Just(0.1), Just(0.01), Just(0.0001)];
    (rates, capacities, expansions).prop_map(|(rate, capacity, expansion)| filter(rate, capacity, expansion))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_order_of_adds_and_deletes_hides_a_member(filter in filters(), steps in steps()) {
        let mut beside = Beside::new(filter);
        steps.iter().for_each(|step| beside.take(step));
    }

    #[test]
    fn a_batch_is_its_items_one_by_one(mut filter in filters(), batches in prop::collection::vec((items(), any::<bool>()), 1..20)) {
        let mut twin = filter.try_clone().unwrap();
        for (items, is_delete) in &batches {
            if *is_delete {
                let mut expected = Removed { found: Mask::NONE, done: 0, error: None };
                for item in items {
                    let removed = delete(&mut twin, std::slice::from_ref(item), Origin::Client, NOW);
                    expected.found.insert_if(expected.done, removed.found.contains(0));
                    expected.error = removed.error;
                    if removed.error.is_some() {
                        break;
                    }
                    expected.done += 1;
                }
                prop_assert_eq!(delete(&mut filter, items, Origin::Client, NOW), expected);
            } else {
                let mut expected = Added { new: Mask::NONE, effect: Mask::NONE, done: 0, error: None };
                for item in items {
                    let outcome = twin.add(item, Origin::Client, &NOW, &Unlimited);
                    expected.error = outcome.err();
                    if expected.error.is_some() {
                        break;
                    }
                    expected.new.insert_if(expected.done, outcome == Ok(bloomgate_filter::kinds::Outcome::New));
                    expected.done += 1;
                }
                expected.effect = expected.new;
                prop_assert_eq!(add(&mut filter, items, Origin::Client, NOW), expected);
            }
            prop_assert!(filter == twin);
        }
    }

    #[test]
    fn adding_a_deleted_item_again_changes_no_bit(mut filter in filters(), steps in prop::collection::vec(items(), 1..10)) {
        for items in &steps {
            add(&mut filter, items, Origin::Client, NOW);
        }
        let before = filter.try_clone().unwrap();
        for items in &steps {
            let removed = delete(&mut filter, items, Origin::Client, NOW);
            let found: Items = items.iter().enumerate().filter(|(index, _)| removed.found.contains(*index)).map(|(_, item)| item.clone()).collect();
            prop_assert_eq!(layers(&filter), layers(&before));
            prop_assert_eq!(filter.items(), before.items().saturating_sub(found.len() as u64));
            // Also one by one, and in a full filter.
            let (one, others) = found.split_at(found.len().min(1));
            for item in one {
                let outcome = filter.add(item, Origin::Client, &NOW, &Unlimited);
                prop_assert_eq!(outcome, Ok(bloomgate_filter::kinds::Outcome::New));
            }
            let added = add(&mut filter, others, Origin::Client, NOW);
            prop_assert_eq!((added.error, added.new), (None, Mask::first(others.len())));
            prop_assert!(filter == before);
        }
    }
}

fn numbered(numbers: std::ops::Range<u32>) -> Items {
    numbers.map(|number| format!("item {number}").into_bytes()).collect()
}

/// The table takes at most as many bytes as the bits: it has room for 5.1% of the items of a fixed filter at 1%.
#[test]
#[cfg_attr(miri, ignore = "tens of thousands of items")]
fn a_full_table_refuses_and_changes_nothing() {
    let mut filter = filter(0.01, 100_000, 0);
    let items = numbered(0..100_000);
    items.chunks(BATCH).for_each(|batch| _ = add(&mut filter, batch, Origin::Client, NOW));
    let mut found = 0;
    let mut refused = 0;
    for item in &items {
        let removed = delete(&mut filter, std::slice::from_ref(item), Origin::Client, NOW);
        found += u64::from(removed.found.len());
        if let Some(error) = removed.error {
            assert_eq!(error, Error::NoRoomForDeleted { entries: found });
            assert!(filter.contains(item, &NOW));
            refused += 1;
        }
    }
    let Filter::Native(native) = &filter else { panic!("a native filter") };
    assert!((5000..5200).contains(&found) && refused > 90_000, "{found} entries");
    assert_eq!(found, native.deleted_entries_max());
    assert!(filter.allocated_bytes() < 2 * native.layers()[0].bytes().len() as u64 + 8192);
    // A replica accepts all of them, whatever the history of its table.
    let mut replica = saved_and_read(filter.try_clone().unwrap());
    let more = numbered(90_000..100_000);
    for batch in more.chunks(BATCH) {
        assert_eq!(delete(&mut replica, batch, Origin::Effect, NOW).error, None);
    }
    assert!(!more.iter().any(|item| replica.contains(item, &NOW)));
}

#[test]
fn a_ceiling_limits_entries_and_layers_together() {
    struct FilterOf(u64);
    impl Ceiling for FilterOf {
        fn available_bytes(&self, filter_bytes: u64, _asked_bytes: u64) -> u64 {
            self.0.saturating_sub(filter_bytes)
        }
    }
    let mut filter = filter(0.01, 100, 2);
    let items = numbered(0..100);
    items.chunks(BATCH).for_each(|batch| _ = add(&mut filter, batch, Origin::Client, NOW));
    let ceiling = FilterOf(filter.size_bytes() + 3 * 16 + 8);
    let removed = filter.remove_batch(items.iter().map(Vec::as_slice).take(5), Origin::Client, &NOW, &ceiling);
    let error = Some(Error::NoRoomForDeleted { entries: 3 });
    assert_eq!(removed, Removed { found: Mask::first(3), done: 3, error });
    let again = filter.remove_batch(items.iter().map(Vec::as_slice).take(3), Origin::Client, &NOW, &ceiling);
    assert_eq!(again, Removed { found: Mask::NONE, done: 3, error: None });
    // Another layer is requested in addition to the entries.
    let mut asked = Vec::new();
    for number in 1000..1200u32 {
        let item = number.to_le_bytes();
        if let Err(error) = filter.add(&item, Origin::Client, &NOW, &FilterOf(filter.size_bytes())) {
            let Error::AboveCeiling { available_bytes, .. } = error else { panic!("{error:?}") };
            asked.push(available_bytes);
        }
    }
    assert!(asked.iter().all(|available_bytes| *available_bytes == 0) && !asked.is_empty(), "{asked:?}");
}

#[test]
fn filters_without_a_key_cannot_delete() {
    use bloomgate_filter::kinds::{NativeSpec, RedisBloomSpec};
    use bloomgate_filter::{Scaling, Spec};
    let native = NativeSpec::murmur3(0.01, 100, Scaling::Fixed, 1);
    let redisbloom = RedisBloomSpec { rate: 0.01, capacity: 100, scaling: Scaling::Fixed };
    for spec in [Spec::Native(native), Spec::RedisBloom(redisbloom)] {
        let mut filter = Filter::new(&spec, &Unlimited).unwrap();
        add(&mut filter, &numbered(0..1), Origin::Client, NOW);
        for items in [numbered(0..1), numbered(0..0)] {
            let removed = delete(&mut filter, &items, Origin::Client, NOW);
            assert_eq!(removed, Removed { found: Mask::NONE, done: 0, error: Some(Error::CannotDelete) });
        }
    }
}
