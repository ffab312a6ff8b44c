//! Deletes from filters that forget.

use std::collections::{BTreeMap, BTreeSet};

use bloomgate_filter::kinds::{Forgets, Origin, WindowedSpec};
use bloomgate_filter::{Error, Filter, Moment, Scaling, Spec, Unlimited};
use proptest::prelude::*;

use super::{HASHER, Items, Step, add, arrived, config, delete, records, saved_and_read, steps};

const SECONDS: u64 = 20;

/// A ring, an exact set, and a replica, which gets the effects and has another clock.
struct Beside {
    filter: Filter,
    replica: Filter,
    now: Moment,
    /// Items that were added and not deleted since, with the time of the last answer 1.
    members: BTreeMap<Vec<u8>, Moment>,
    deleted: BTreeSet<Vec<u8>>,
}

impl Beside {
    fn new(spec: WindowedSpec) -> Self {
        let filter = Filter::new(&Spec::Windowed(spec), &Unlimited).unwrap();
        let replica = filter.try_clone().unwrap();
        let now = Moment(1_000_000);
        let mut beside = Self { filter, replica, now, members: BTreeMap::new(), deleted: BTreeSet::new() };
        // The first bucket is replicated with the creation.
        beside.turn();
        beside
    }

    fn later(&self) -> Moment {
        Moment(self.now.0 + 7777)
    }

    /// What every write begins with.
    fn turn(&mut self) {
        let filter = self.filter.windowed_mut().unwrap();
        if let Some(turn) = filter.turn_due(self.now) {
            filter.turn(turn, &Unlimited).unwrap();
            self.replica.windowed_mut().unwrap().turn(turn, &Unlimited).unwrap();
        }
    }

    fn add(&mut self, items: &[Vec<u8>]) {
        self.turn();
        let added = add(&mut self.filter, items, Origin::Client, self.now);
        assert_eq!(added.error, None);
        let mut effects = Items::new();
        for (index, item) in items.iter().enumerate() {
            if added.new.contains(index) {
                self.members.insert(item.clone(), self.now);
            } else {
                assert!(!self.deleted.contains(item), "an item that was deleted is new");
            }
            self.deleted.remove(item);
            if added.effect.contains(index) {
                effects.push(item.clone());
            }
        }
        let later = self.later();
        add(&mut self.replica, &effects, Origin::Effect, later);
    }

    fn delete(&mut self, items: &[Vec<u8>]) {
        self.turn();
        let was_found: Vec<bool> = items.iter().map(|item| self.filter.contains(item, &self.now)).collect();
        let removed = delete(&mut self.filter, items, Origin::Client, self.now);
        let mut effects = Items::new();
        for (index, item) in items.iter().enumerate().take(removed.done) {
            let first_time = !items[..index].contains(item);
            assert_eq!(removed.found.contains(index), was_found[index] && first_time);
            if removed.found.contains(index) {
                self.members.remove(item);
                self.deleted.insert(item.clone());
                effects.push(item.clone());
            }
        }
        if let Some(error) = removed.error {
            assert!(matches!(error, Error::NoRoomForDeleted { .. }));
            assert!(self.filter.contains(&items[removed.done], &self.now), "what is refused stays");
        }
        let later = self.later();
        let answers = delete(&mut self.replica, &effects, Origin::Effect, later);
        assert_eq!(answers.error, None);
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
            Step::Wait(milliseconds) => self.now = Moment(self.now.0.saturating_add_signed(*milliseconds)),
        }
        self.check();
    }

    fn check(&self) {
        let is_rolling = self.filter.windowed().unwrap().spec().forgets == Forgets::Rolling;
        let members = self.members.iter().filter(|(_, added)| added.0 + SECONDS * 1000 > self.now.0 && !is_rolling);
        for (item, added) in members {
            assert!(self.filter.contains(item, &self.now), "added at {added:?}, absent at {:?}", self.now);
        }
        assert!(!self.deleted.iter().any(|item| self.filter.contains(item, &self.now)), "a deleted item is found");
        assert!(self.filter == self.replica, "a replica is equal");
    }
}

fn specs() -> impl Strategy<Value = WindowedSpec> {
    let forgets = prop_oneof![
        any::<bool>().prop_map(|is_sliding| Forgets::After { seconds: SECONDS, is_sliding }),
        Just(Forgets::Rolling)
    ];
    let rates = prop_oneof![Just(0.25), Just(0.01)];
    (forgets, rates, 1u64..200, 3u32..9).prop_map(|(forgets, rate, capacity, buckets)| {
        let scaling = if forgets == Forgets::Rolling { Scaling::Fixed } else { Scaling::from_expansion(2) };
        WindowedSpec { rate, capacity, scaling, hasher: HASHER, forgets, buckets }
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_order_of_adds_and_deletes_hides_a_member(spec in specs(), steps in steps()) {
        let mut beside = Beside::new(spec);
        steps.iter().for_each(|step| beside.take(step));
    }
}

fn ring(capacity: u64) -> Filter {
    let forgets = Forgets::After { seconds: SECONDS, is_sliding: true };
    let spec =
        WindowedSpec { rate: 0.25, capacity, scaling: Scaling::from_expansion(2), hasher: HASHER, forgets, buckets: 3 };
    Filter::new(&Spec::Windowed(spec), &Unlimited).unwrap()
}

fn turn(filter: &mut Filter, now: Moment) {
    let filter = filter.windowed_mut().unwrap();
    let turn = filter.turn_now(now);
    filter.turn(turn, &Unlimited).unwrap();
}

fn entries(filter: &Filter) -> Vec<u64> {
    filter.windowed().unwrap().buckets().map(|bucket| bucket.filter.deleted_entries()).collect()
}

/// A renewed item has an entry in each bucket, and counts as one deleted item.
#[test]
fn a_renewed_item_is_counted_once_until_it_is_deleted() {
    let mut filter = ring(1000);
    let items: Items = (0..12u32).map(|number| number.to_le_bytes().to_vec()).collect();
    let now = Moment(1000);
    let counted = |filter: &Filter| filter.live_contents(&now).items;
    for _ in 0..3 {
        turn(&mut filter, now);
        add(&mut filter, &items, Origin::Client, now);
    }
    assert_eq!(counted(&filter), 12);
    delete(&mut filter, &items[..5], Origin::Client, now);
    assert_eq!((counted(&filter), entries(&filter)), (7, vec![5, 5, 5]));
    add(&mut filter, &items[..2], Origin::Client, now);
    assert_eq!((counted(&filter), entries(&filter)), (9, vec![5, 5, 3]));
    delete(&mut filter, &items, Origin::Client, now);
    assert_eq!((counted(&filter), entries(&filter)), (0, vec![12, 12, 12]));
}

/// The item is in both buckets, and the table of the newer one is full.
#[test]
fn if_one_bucket_has_no_room_no_bucket_changes() {
    let mut filter = ring(2);
    let now = Moment(1000);
    let items: Items = (0..60u32).map(|number| number.to_le_bytes().to_vec()).collect();
    turn(&mut filter, now);
    add(&mut filter, &items[..1], Origin::Client, now);
    turn(&mut filter, now);
    // With SLIDING, the newer bucket gets it too.
    assert!(add(&mut filter, &items[..1], Origin::Client, now).effect.contains(0));
    let mut full = Vec::new();
    for item in items[1..].iter().map(std::slice::from_ref) {
        add(&mut filter, item, Origin::Client, now);
    }
    // Effects, which have no limit, fill the newer table until a client's delete is refused.
    for item in items[1..].iter().map(std::slice::from_ref) {
        if delete(&mut filter, item, Origin::Client, now).error.is_some() {
            full.push(item[0].clone());
        }
    }
    assert!(!full.is_empty(), "{:?}", entries(&filter));
    let before = filter.try_clone().unwrap();
    let removed = delete(&mut filter, &items[..1], Origin::Client, now);
    assert!(matches!(removed.error, Some(Error::NoRoomForDeleted { .. })), "{removed:?}, {:?}", entries(&filter));
    assert!(filter == before && filter.contains(&items[0], &now));
}

/// An expired bucket gets the entry too, so that the item stays absent if a clock is set back, or if a replica's is slow.
#[test]
fn expired_buckets_get_entries_too() {
    let mut filter = ring(1000);
    let item = [b"an item".to_vec()];
    turn(&mut filter, Moment(1000));
    add(&mut filter, &item, Origin::Client, Moment(1000));
    turn(&mut filter, Moment(2000));
    add(&mut filter, &item, Origin::Client, Moment(2000));
    // Only the newer bucket is live then.
    let now = Moment(1000 + 30_000);
    assert_eq!(filter.windowed().unwrap().live(now).count(), 1);
    assert!(delete(&mut filter, &item, Origin::Client, now).found.contains(0));
    assert_eq!(entries(&filter), [1, 1]);
    assert!(!filter.contains(&item[0], &Moment(2000)));
    // An item that only an expired bucket has is not found, and nothing changes.
    let other = [b"another".to_vec()];
    let mut filter = ring(1000);
    turn(&mut filter, Moment(1000));
    add(&mut filter, &other, Origin::Client, Moment(1000));
    turn(&mut filter, Moment(2000));
    assert!(delete(&mut filter, &other, Origin::Client, now).found.is_empty());
    assert_eq!(entries(&filter), [0, 0]);
    // An effect is applied without a lookup.
    assert!(delete(&mut filter, &other, Origin::Effect, now).found.contains(0));
    assert_eq!(entries(&filter), [1, 0]);
}
