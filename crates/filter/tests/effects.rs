//! Effects are applied without a lookup: an item that a primary added is added and counted, even if this filter finds it.

// All of this file is test code: a panic is how a test fails.
#![allow(clippy::unwrap_used, clippy::panic)]

use bloomgate_filter::format::{ByteSink, ByteSource, StoredAs};
use bloomgate_filter::hash::Hasher;
use bloomgate_filter::kinds::{Forgets, NativeSpec, Origin, Outcome, RedisBloomSpec, Turn, WindowedSpec};
use bloomgate_filter::{BATCH, Error, Filter, Moment, Scaling, Spec, Unlimited, Value};

const NOW: Moment = Moment(1000);

fn native(scaling: Scaling) -> NativeSpec {
    let hasher = Hasher::SipHash { key: [7; 16] };
    NativeSpec { hasher, ..NativeSpec::murmur3(0.25, 1000, scaling, 0) }
}

fn ring(forgets: Forgets) -> WindowedSpec {
    let NativeSpec { hasher, .. } = native(Scaling::Fixed);
    WindowedSpec { rate: 0.25, capacity: 1000, scaling: Scaling::Fixed, hasher, forgets, buckets: 3 }
}

fn window() -> Filter {
    let mut filter = new(Spec::Windowed(ring(Forgets::After { seconds: 60, is_sliding: false })));
    let turn = filter.windowed().unwrap().turn_due(NOW).unwrap();
    filter.windowed_mut().unwrap().turn(turn, &Unlimited).unwrap();
    filter
}

fn new(spec: Spec) -> Filter {
    Filter::new(&spec, &Unlimited).unwrap()
}

fn add(filter: &mut Filter, item: u32, origin: Origin) -> Result<Outcome, Error> {
    filter.add(&item.to_le_bytes(), origin, &NOW, &Unlimited)
}

fn filled(mut filter: Filter, items: std::ops::Range<u32>) -> Filter {
    items.for_each(|item| _ = add(&mut filter, item, Origin::Client));
    filter
}

/// Returns an item that was never added, and is found.
fn found_wrongly(filter: &Filter) -> u32 {
    (1_000_000..).find(|item: &u32| filter.contains(&item.to_le_bytes(), &NOW)).unwrap()
}

/// Returns a filter after saving and loading.
fn loaded(filter: Filter) -> Filter {
    let value = Value::from(filter);
    let mut sink = ByteSink::default();
    value.write(&mut sink);
    let Value::Filter(read) = StoredAs::Own.read(1, &mut ByteSource(&sink.0), &Unlimited).unwrap() else {
        panic!("not a filter");
    };
    assert!(Value::from(read.try_clone().unwrap()) == value);
    read
}

#[test]
fn an_effect_is_counted_even_if_found() {
    for filter in [new(Spec::Native(native(Scaling::from_expansion(2)))), window()] {
        let mut filter = filled(filter, 0..300);
        let (item, items) = (found_wrongly(&filter), filter.items());
        assert_eq!(add(&mut filter, item, Origin::Client), Ok(Outcome::Known));
        assert_eq!(add(&mut filter, item, Origin::Effect), Ok(Outcome::New));
        let batch = [item.to_le_bytes(), 1_u32.to_le_bytes(), 9_999_999_u32.to_le_bytes()];
        let added = filter.add_batch(batch.iter().map(<[u8; 4]>::as_slice), Origin::Effect, &NOW, &Unlimited);
        assert_eq!((added.new.len(), added.effect.len(), added.done, added.error), (3, 3, 3, None));
        assert_eq!(filter.items(), items + 4);
        assert!(filter.contains(&9_999_999_u32.to_le_bytes(), &NOW));
        loaded(filter);
    }
}

#[test]
fn a_full_fixed_filter_takes_an_effect_and_can_be_saved() {
    for filter in [new(Spec::Native(native(Scaling::Fixed))), window()] {
        let mut filter = filled(filter, 0..100_000);
        let absent = (1_000_000..).find(|item: &u32| !filter.contains(&item.to_le_bytes(), &NOW)).unwrap();
        assert_eq!(add(&mut filter, absent, Origin::Client), Err(Error::Full));
        let items = filter.items();
        assert_eq!(add(&mut filter, absent, Origin::Effect), Ok(Outcome::New));
        assert!(filter.contains(&absent.to_le_bytes(), &NOW));
        assert_eq!(filter.items(), items, "as many as it is made for");
        assert_eq!(filter.layer_count(), 1);
        loaded(filter);
    }
}

#[test]
fn an_effect_of_a_deleted_item_removes_its_entry() {
    for filter in [new(Spec::Native(native(Scaling::Fixed))), window()] {
        let mut filter = filled(filter, 0..300);
        let untouched = loaded(filter.try_clone().unwrap());
        let items = |range: std::ops::Range<u32>| range.map(u32::to_le_bytes).collect::<Vec<_>>();
        let (gone, items_before) = (items(10..16), filter.items());
        let removed = filter.remove_batch(gone.iter().map(<[u8; 4]>::as_slice), Origin::Client, &NOW, &Unlimited);
        assert!(removed.found.len() >= 5 && filter.items() == items_before - u64::from(removed.found.len()));
        let found: Vec<_> =
            gone.iter().enumerate().filter(|(index, _)| removed.found.contains(*index)).map(|(_, item)| item).collect();
        let added = filter.add_batch(found.iter().map(|item| item.as_slice()), Origin::Effect, &NOW, &Unlimited);
        assert_eq!(added.new.len(), removed.found.len());
        assert!(filter == untouched, "no bit and no count of a layer has changed");
    }
}

#[test]
fn a_rolling_ring_begins_buckets_at_the_primarys_counts() {
    let (mut primary, mut replica) =
        (new(Spec::Windowed(ring(Forgets::Rolling))), new(Spec::Windowed(ring(Forgets::Rolling))));
    for items in (0..5000u32).collect::<Vec<_>>().chunks(BATCH) {
        let items: Vec<_> = items.iter().map(|item| item.to_le_bytes()).collect();
        let added = primary.add_batch(items.iter().map(<[u8; 4]>::as_slice), Origin::Client, &NOW, &Unlimited);
        assert_eq!((added.done, added.error), (items.len(), None));
        let carried = items
            .iter()
            .enumerate()
            .filter(|(index, _)| added.effect.contains(*index))
            .map(|(_, item)| item.as_slice());
        let obeyed = replica.add_batch(carried, Origin::Effect, &NOW, &Unlimited);
        assert_eq!((obeyed.new.len(), obeyed.error), (added.effect.len(), None));
        assert!(primary == replica);
    }
    assert_eq!(replica.windowed().unwrap().buckets().len(), 3);
    let Turn { slot, .. } = replica.windowed().unwrap().turn_now(NOW);
    assert!(slot > 4, "buckets were dropped");
}

#[test]
fn effects_in_foreign_layouts_are_looked_up() {
    let spec = RedisBloomSpec { rate: 0.25, capacity: 1000, scaling: Scaling::from_expansion(2) };
    let mut filter = filled(new(Spec::RedisBloom(spec)), 0..900);
    let item = found_wrongly(&filter);
    assert_eq!(add(&mut filter, item, Origin::Effect), Ok(Outcome::Known), "its primary asks, too");
}
