//! Pending adds: which adds are pending and how many, and merges of filters that have some. A law in `general.rs` states that every
//! operation treats such a filter like its follower, which writes every effect into its bits at once.

use bloomgate_filter::kinds::Origin;
use bloomgate_filter::{BATCH, BloomFilter, Filter, Moment, Unlimited};
use proptest::prelude::*;

use crate::forms::{filter, filter_mut};
use crate::inputs::kinds::{COUNTING, KEYED, REDISBLOOM, Shape};
use crate::rows::{Room, Row, check, is_of_pages, native_pending, rolling_pending, whole_pages, window_pending};
use crate::world::{Event, World, begin_bucket_if_due, bits, item, items, slices};

/// A filter for about this many items, whose layers consist of whole pages, and its follower.
fn world(row: &Row, shape: &Shape) -> World {
    let mut world = World::new(row, ((row.kind.spec)(shape), u64::MAX, 0, true));
    world.room.at_once = u64::MAX;
    world
}

/// A filter that can delete.
fn native(rate: f64, about: u64, expansion: u32) -> World {
    world(&native_pending(), &Shape { seed: 1, ..Shape::new(rate, about, expansion) })
}

fn pending(world: &World) -> u64 {
    world.filter().contents().pending_bytes
}

/// Adds items, which may be pending or not.
fn add(world: &mut World, numbers: std::ops::Range<u32>, pends: bool) -> u32 {
    world.room.pends = pends;
    world.add(&numbers.collect::<Vec<_>>(), true)
}

#[test]
fn bits_are_not_written_before_an_eighth_is_pending() {
    // Odd seeds have a key.
    for (row, seed) in [(native_pending(), 1), (window_pending(), 2)] {
        let mut world = world(&row, &Shape { seed, ..Shape::new(0.01, 300_000, 0) });
        world.add(&[], true);
        let size = bits(world.filter())[0].len() as u64;
        assert!(size > 64 * 4096);
        let (mut number, mut seen) = (0, 0);
        while bits(world.filter())[0].iter().all(|byte| *byte == 0) {
            add(&mut world, number..number + 64, true);
            number += 64;
            assert!(pending(&world) >= seen && pending(&world) <= size / 8);
            seen = pending(&world);
        }
        // 17 bytes per slot; slots are three quarters full before a part grows, and a part may be half as large as the next.
        assert!(u64::from(number) * 17 > size / 8 / 2, "{number} of {size}");
        // From then on, adds are pending while there is room, and the rest are written.
        add(&mut world, number..number + 20_000, true);
        assert!(pending(&world) <= size / 8);
        world.universe = number + 20_000;
        world.check_all();
        assert_eq!(pending(&world), 0);
    }
}

#[test]
fn a_full_layer_keeps_pending_adds_when_the_next_begins() {
    let mut world = native(1e-6, 3000, 2);
    let capacity = u32::try_from(world.filter().total_capacity()).unwrap();
    add(&mut world, 0..capacity - 3, false);
    assert_eq!((pending(&world), world.filter().remaining_capacity()), (0, 3));
    // One batch adds the last pending adds of the first layer, and others to the second. Some items are repeated.
    let numbers = [1, 2, 3, 1, 4, 2, 5, 6, 5, 1].map(|number| number + 20_000);
    world.room.pends = true;
    assert_eq!(world.add(&numbers, true), 6);
    assert_eq!(world.filter().layer_count(), 2);
    assert!(pending(&world) > 0);
    for (together, pends) in [(true, true), (false, true), (true, false), (false, false)] {
        world.room.pends = pends;
        assert_eq!(world.add(&numbers, together), 0);
    }
    world.check_all();
}

#[test]
fn no_adds_are_pending_unless_allowed() {
    let shape = Shape::new(0.01, 10_000, 0);
    let capacity = whole_pages(&shape, |spec| spec);
    let add_all = |filter: &mut Filter, origin, room: &Room| {
        for batch in items(&(0..100).collect::<Vec<_>>()).chunks(BATCH) {
            assert_eq!(filter.add_batch(slices(batch), origin, &Moment(1), room).error, None);
        }
        (filter.items(), filter.contents().pending_bytes, filter.flush_pending(100))
    };
    // Its groups are not whole pages.
    let is_odd = |capacity: &u64| !is_of_pages(KEYED.spec(0.01, *capacity, 0).plan(None).unwrap().layers[0].size_bytes);
    let odd = (capacity..).find(is_odd).unwrap();
    for (kind, capacity) in [(COUNTING, capacity), (REDISBLOOM, capacity), (KEYED, odd)] {
        let mut filter = Filter::new(&kind.spec(0.01, capacity, 0), &Unlimited).unwrap();
        assert_eq!(add_all(&mut filter, Origin::Client, &Room::PENDS), (100, 0, 0), "{}", kind.name);
    }
    // A replica decides again what deletes and renewals change in a ring.
    for (row, seed, seconds) in [(window_pending(), 1, 9), (window_pending(), 2, 10), (rolling_pending(), 1, 9)] {
        let shape = Shape { seed, seconds, ..shape };
        let mut filter = Filter::new(&(row.kind.spec)(&shape), &Unlimited).unwrap();
        begin_bucket_if_due(&mut filter, Moment(1));
        assert_eq!(add_all(&mut filter, Origin::Client, &Room::PENDS), (100, 0, 0), "{}, seed {seed}", row.kind.name);
    }
    let of_pages = || Filter::new(&KEYED.spec(0.01, capacity, 0), &Unlimited).unwrap();
    assert_eq!(add_all(&mut of_pages(), Origin::Effect, &Room::PENDS), (100, 0, 0), "an effect");
    assert_eq!(add_all(&mut of_pages(), Origin::Client, &Room::UNLIMITED), (100, 0, 0), "nobody lets it");
    assert_eq!(add_all(&mut of_pages(), Origin::Effect, &Room::UNLIMITED), (100, 0, 0));
    let (items, pending_bytes, flushed) = add_all(&mut of_pages(), Origin::Client, &Room::PENDS);
    assert!(items == 100 && flushed > 0 && pending_bytes > 0);
}

/// Pending adds in a layer of whole pages are also found from a chain whose newest layer cannot have any.
#[test]
fn pending_adds_are_found_however_the_filter_grew() {
    let grows = |about: u64| {
        let mut world = native(1e-6, about, 1);
        let capacity = u32::try_from(world.filter().total_capacity()).unwrap();
        add(&mut world, 0..capacity - 5, false);
        add(&mut world, capacity - 5..capacity + 5, true);
        assert_eq!(world.filter().layer_count(), 2);
        world
    };
    let is_odd = |world: &World| !is_of_pages(world.filter().layers().nth(1).unwrap().size_bytes);
    let mut world = (500..).map(grows).find(is_odd).unwrap();
    assert!(pending(&world) > 0);
    world.check_all();
}

/// The history of a filter: items in its bits, then pending adds, deleted items, and how many adds were flushed.
type Made = ([std::ops::Range<u32>; 3], usize);

fn made() -> impl Strategy<Value = Made> {
    let range = |most: u32| (0u32..2000, 0..most).prop_map(|(first, count)| first..first + count);
    (range(1500), range(600), range(80), 0usize..50)
        .prop_map(|(written, pending, deleted, flushed)| ([written, pending, deleted], flushed))
}

fn after(([written, pending, deleted], flushed): Made, expansion: u32) -> World {
    let mut world = native(0.05, 2500, expansion);
    add(&mut world, written, false);
    add(&mut world, pending, true);
    world.delete(&deleted.collect::<Vec<_>>(), true);
    filter_mut(&mut world.primary).flush_pending(flushed);
    world
}

fn both(world: &World) -> [&BloomFilter; 2] {
    [&world.primary, &world.follower].map(|value| filter(value).mergeable().unwrap())
}

/// Merges each of two into one of a world.
fn merge(into: &mut World, sources: [Vec<&BloomFilter>; 2]) {
    let (Filter::Native(here), Filter::Native(there)) = (filter_mut(&mut into.primary), filter_mut(&mut into.follower))
    else {
        panic!("other kinds");
    };
    let [with, without] = sources;
    assert_eq!(here.merge(&with, Origin::Client, &Unlimited), there.merge(&without, Origin::Client, &Unlimited));
}

#[test]
fn the_union_of_filters_with_pending_adds_equals_that_of_their_followers() {
    let all = (prop::collection::vec(made(), 2..=4), 0u32..=2, any::<bool>());
    check(256, all, |(all, expansion, into_new)| {
        let mut worlds: Vec<_> = all.into_iter().map(|made| after(made, expansion)).collect();
        let mut destination = worlds.pop().unwrap();
        let sources: [Vec<_>; 2] = std::array::from_fn(|which| worlds.iter().map(|world| both(world)[which]).collect());
        if into_new {
            let [here, there] = sources.map(|sources| BloomFilter::union_of(&sources, Origin::Client, &Unlimited));
            assert!(here == there);
            return;
        }
        merge(&mut destination, sources);
        worlds.iter_mut().chain([&mut destination]).for_each(World::check_forms);
    });
}

/// A filter with pending adds, and 40 items that only its follower finds: by the bits of pending adds and others together.
fn with_items_found_by_the_follower() -> (World, Vec<u32>) {
    let mut world = native(0.2, 40_000, 0);
    add(&mut world, 0..20_000, false);
    add(&mut world, 20_000..20_080, true);
    let [here, there] = both(&world);
    let only_there = |number: &u32| !here.contains(&item(*number)) && there.contains(&item(*number));
    let found: Vec<u32> = (1_000_000..1_300_000).filter(only_there).take(40).collect();
    assert_eq!(found.len(), 40);
    (world, found)
}

/// The former primary has not flushed its pending adds yet when the new one deletes items that it finds.
#[test]
fn a_former_primary_deletes_what_the_new_one_found() {
    let (mut world, found) = with_items_found_by_the_follower();
    world.step(&Event::Promote);
    assert!(filter(&world.follower).contents().pending_bytes > 0);
    world.delete(&found, true);
    assert_eq!(both(&world).map(BloomFilter::deleted_entries), [40; 2]);
    world.check_forms();
}

/// A follower may find an item in a bucket only by the combined bits of pending adds and other items. The primary of a ring that deletes or
/// renews the item must then find it there, too.
#[test]
fn a_ring_changes_the_buckets_that_its_follower_does() {
    for (seed, seconds) in [(1, 9), (2, 10)] {
        let mut world = world(&window_pending(), &Shape { seed, seconds, ..Shape::new(0.25, 20_000, 0) });
        for (numbers, pends) in [(0..20_000, false), (20_000..40_000, false), (40_000..40_080, true)] {
            add(&mut world, numbers.clone(), pends);
            if numbers.start != 20_000 {
                world.step(&Event::Rotate);
            }
        }
        // The table of deleted items has room for these items.
        let ring = filter(&world.follower).windowed().unwrap();
        let is_in_both = |number: &u32| ring.buckets().take(2).all(|bucket| bucket.filter.contains(&item(*number)));
        let numbers: Vec<u32> = (0..20_000).filter(is_in_both).collect();
        assert!(numbers.len() > 100);
        if ring.spec().hasher.is_keyed() {
            world.delete(&numbers, true);
        } else {
            world.add(&numbers, true);
        }
        world.check_forms();
    }
}

/// An item that is found only by the bits of all pending adds together is found when tables are merged, because followers find
/// it.
#[test]
fn entries_are_merged_by_the_bits_of_followers() {
    let (other, found) = with_items_found_by_the_follower();

    let mut one = native(0.2, 40_000, 0);
    one.room.pends = false;
    one.add(&found, true);
    one.delete(&found, true);
    assert_eq!(both(&one).map(|filter| (filter.items(), filter.deleted_entries())), [(0, 40); 2]);
    let sources = both(&other).map(|filter| vec![filter]);
    merge(&mut one, sources);
    assert_eq!(both(&one).map(BloomFilter::deleted_entries), [0; 2]);
    one.check_forms();
}
