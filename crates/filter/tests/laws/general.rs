//! The laws of every kind, each a function over the rows of the table. Laws of single kinds are in the neighbouring files.

use bloomgate_filter::format::{Arrival, Error, Progress, StoredAs};
use bloomgate_filter::kinds::Origin;
use bloomgate_filter::{BATCH, Filter, Spec, Unlimited};

use crate::forms::{self, Form, GENERATION, accept, begin, records};
use crate::inputs::targets::{NATIVE_SNAPSHOT, Outcome, REDISBLOOM_SNAPSHOT, VALKEY_BLOOM_SNAPSHOT, laws};
use crate::rows::{Room, Row, check, for_each_row};
use crate::world::{self, Event, Parts, World, add, begin_bucket_if_due, delete, events};

for_each_row! {
    no_order_of_events_breaks_a_promise
    a_copy_lives_its_own_life
    a_dump_may_stop_anywhere
    a_later_dump_is_a_duplicate_only_where_equal
    damaged_bytes_are_refused_or_make_a_sound_filter
    the_laws_hold_for_large_layers
}

/// Members are found, a batch equals its items one by one, a refusal changes nothing, deleted items are absent, a follower is equal, and
/// every form restores the same value: [`World`] has the list.
fn no_order_of_events_breaks_a_promise(row: &Row) {
    check(256, (World::any(row), events(row)), |(parts, events)| {
        let mut world = World::new(row, parts);
        for event in &events {
            world.step(event);
            world.check();
        }
        world.check_all();
    });
}

/// Returns a filter after some random events.
fn after(row: &Row, (spec, _, ahead, is_careful): Parts, events: &[Event]) -> World {
    let mut world = World::new(row, (spec, u64::MAX, ahead, is_careful));
    events.iter().for_each(|event| world.step(event));
    world
}

/// A copy does not change with its original, and behaves as the original would have.
fn a_copy_lives_its_own_life(row: &Row) {
    check(64, (World::any(row), events(row), events(row)), |(parts, before, further)| {
        let world = after(row, parts, &before);
        let now = world.now();
        let mut original = world.filter().try_clone().unwrap();
        let (mut copy, untouched) = (original.try_clone().unwrap(), original.try_clone().unwrap());
        let bits = world::bits(&untouched).concat();
        for event in &further {
            for filter in [&mut original, &mut copy] {
                begin_bucket_if_due(filter, now);
            }
            let (Event::Add(numbers, _) | Event::Delete(numbers, _)) = event else { continue };
            for numbers in numbers.chunks(BATCH) {
                if matches!(event, Event::Add(..)) {
                    let added = add(&mut original, numbers, now, &Room::SMALL);
                    assert_eq!(add(&mut copy, numbers, now, &Room::SMALL), added);
                } else {
                    let removed = delete(&mut original, numbers, Origin::Client, now);
                    assert_eq!(delete(&mut copy, numbers, Origin::Client, now), removed);
                }
            }
        }
        assert!(copy == original, "what its original does");
        assert!(world::bits(&untouched).concat() == bits, "the untouched one is as it was");
        assert!(untouched == *world.filter());
    });
}

/// While a dump arrives, the partial filter is saved, copied and rewritten like a filter. Records arrive in order, unchanged, and any
/// number of times.
fn a_dump_may_stop_anywhere(row: &Row) {
    check(24, (World::any(row), events(row)), |(parts, events)| {
        let world = after(row, parts, &events);
        let records = records(world.filter());
        let Some((header, rest)) = records.split_first() else { return };
        let is_own = world.primary.stored_as() == StoredAs::Own;
        let kind = match world.filter() {
            Filter::Native(_) => "native",
            Filter::Windowed(_) => "windowed",
            Filter::Counting(_) => "counting",
            Filter::Cuckoo(_) => "cuckoo",
            Filter::RedisBloom(_) | Filter::ValkeyBloom(_) => "redisbloom",
        };
        assert_eq!(Arrival::kind_of(&header.1), Ok(kind), "a header shows its kind");
        if is_own {
            torn(&header.1, |torn| assert!(Arrival::begin(header.0, torn, &Unlimited).is_err(), "a torn header"));
        }
        let mut value = begin(header);
        for (come, (iterator, data)) in rest.iter().enumerate() {
            laws::of_outcome(Outcome { value: Some(value.try_clone().unwrap()), refused: None });
            assert!(forms::told(&value) == value && Form::Snapshot.of(&value) == value);
            if is_own {
                let before = value.try_clone().unwrap();
                torn(data, |torn| {
                    assert!(value.accept(GENERATION, *iterator, torn, &Unlimited).is_err(), "a torn record")
                });
                for (iterator, data) in &rest[come + 1..] {
                    let refused = value.accept(GENERATION, *iterator, data, &Unlimited);
                    assert!(matches!(refused, Err(Error::WrongOrder { .. })), "{refused:?}");
                }
                let other = iterator + (1 << 39);
                assert_eq!(value.accept(GENERATION, other, data, &Unlimited), Err(Error::WrongGeneration));
                assert!(value == before, "a refused record changes nothing");
            }
            let progress = accept(&mut value, *iterator, data);
            assert_eq!(progress == Ok(Progress::Complete), come + 1 == rest.len(), "{progress:?}");
            // RedisBloom's header has nothing that could be compared with a complete filter.
            let has_known_header = is_own || come + 1 < rest.len();
            for (iterator, data) in &records[usize::from(!has_known_header)..come + 2] {
                assert_eq!(
                    value.accept(GENERATION, *iterator, data, &Unlimited),
                    Ok(Progress::Known),
                    "what has come is known"
                );
            }
        }
        assert!(value == world.primary, "it arrives as it was");
    });
}

/// Calls a function with damaged and with truncated bytes.
fn torn(bytes: &[u8], mut check: impl FnMut(&[u8])) {
    for position in (0..bytes.len()).step_by(1 + bytes.len() / 100) {
        let mut torn = bytes.to_vec();
        torn[position] ^= 0x41;
        check(&torn);
        check(&bytes[..position]);
    }
}

/// If a client sends all records of a dump without an error, the copy has all of it, whatever else was sent: a record of a later dump
/// counts as a duplicate only if it has the same contents.
fn a_later_dump_is_a_duplicate_only_where_equal(row: &Row) {
    check(64, (World::any(row), events(row), events(row)), |(parts, before, further)| {
        let mut world = after(row, parts, &before);
        let first = records(world.filter());
        further.iter().take(3).for_each(|event| world.step(event));
        let second = records(world.filter());
        let Some((header, rest)) = first.split_first() else { return };
        let mut value = begin(header);
        for come in 1..=first.len() {
            let before = value.try_clone().unwrap();
            for record in second.iter().take(come).skip(1) {
                let outcome = value.accept(GENERATION, record.0, &record.1, &Unlimited);
                assert_eq!(outcome == Ok(Progress::Known), first.contains(record), "record {}: {outcome:?}", record.0);
            }
            assert!(value == before, "neither a duplicate nor a refused record changes anything");
            if let Some((iterator, data)) = rest.get(come - 1) {
                accept(&mut value, *iterator, data).unwrap();
            }
        }
    });
}

/// For a complete filter with some of everything, and for half of its dump: truncated bytes are refused, and so are damaged bytes, unless
/// they make a filter that keeps the laws.
fn damaged_bytes_are_refused_or_make_a_sound_filter(row: &Row) {
    let mut world = World::new(row, (row.spec(0.01, if row.pends { 300 } else { 12 }), u64::MAX, 0, true));
    for first in [0, 10, 20] {
        world.add(&(first..first + 10).collect::<Vec<_>>(), true);
        world.delete(&[3, first + 7, first + 9], true);
        world.step(&Event::Pass(14));
    }
    let records = records(world.filter());
    let half = (records.len() > 1).then(|| forms::arrived(&records[..records.len().div_ceil(2)]));
    for value in half.into_iter().chain([world.primary]) {
        let bytes = forms::written(&value);
        let (target, front) = match value.stored_as() {
            StoredAs::Own => (NATIVE_SNAPSHOT, None),
            StoredAs::RedisBloom => (REDISBLOOM_SNAPSHOT, Some(4)),
            StoredAs::ValkeyBloom => (VALKEY_BLOOM_SNAPSHOT, None),
            StoredAs::RedisBloomCuckoo => panic!("a Bloom filter"),
        };
        let whole: Vec<u8> = front.into_iter().chain(bytes).collect();
        // Every byte of the description, and some other bytes.
        let steps = (0..whole.len()).filter(|at| *at < 256 || at % (whole.len() / 100 + 1) == 0);
        for at in steps.step_by(if cfg!(miri) { 97 } else { 1 }) {
            assert!((target.decode)(&whole[..at]).value.is_none(), "{at} of {}", whole.len());
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] ^= flip;
                (target.check)(&damaged);
            }
        }
    }
}

/// Layers above 512 KiB are prefetched; layers of at least 256 KiB are aligned to pages.
fn the_laws_hold_for_large_layers(row: &Row) {
    const LARGE: (u64, u32) = if cfg!(miri) { (200, 250) } else { (200_000, 250_000) };
    let buckets = if matches!(row.spec(0.01, 1), Spec::Windowed(_)) { 3 } else { 1 };
    let mut world = World::new(row, (row.spec(1e-3, LARGE.0 * buckets), u64::MAX, 0, true));
    world.room.at_once = u64::MAX;
    world.universe = LARGE.1;
    world.add(&(0..LARGE.1).collect::<Vec<_>>(), true);
    world.delete(&(0..LARGE.1 / 100).collect::<Vec<_>>(), true);
    world.check_all();
}
