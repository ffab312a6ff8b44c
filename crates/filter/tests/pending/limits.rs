//! Which adds are pending, and how many.

use bloomgate_filter::geometry::BlockedBits;
use bloomgate_filter::kinds::{CountingSpec, Forgets, NativeSpec, Origin, RedisBloomSpec};
use bloomgate_filter::{BATCH, Filter, Scaling, Spec, Unlimited};

use super::pair::{NOW, Pair, raw};
use super::{FROM_BYTES, Pends, item, items, native, new_native, new_ring};

fn add_all(filter: &mut Filter, numbers: std::ops::Range<u32>, origin: Origin) {
    for batch in items(numbers).chunks(BATCH) {
        let _ = filter.add_batch(batch.iter().map(<[u8; 4]>::as_slice), origin, &NOW, &Pends(true));
    }
}

fn pending(filter: &Filter) -> u64 {
    filter.contents().pending_bytes
}

#[test]
fn bits_are_not_written_before_an_eighth_is_pending() {
    for filter in [
        new_native(0.01, 300_000, Scaling::Fixed),
        new_ring(0.01, 300_000, Forgets::After { seconds: 9, is_sliding: false }, Scaling::Fixed),
    ] {
        let size = raw(&filter)[0].len() as u64;
        assert!(size > 64 * FROM_BYTES);
        let mut pair = Pair::of(filter);
        let (mut number, mut seen) = (0, 0);
        while raw(pair.primary())[0].iter().all(|byte| *byte == 0) {
            pair.add(&(number..number + 64).collect::<Vec<_>>(), true, true);
            number += 64;
            assert!(pending(pair.primary()) >= seen && pending(pair.primary()) <= size / 8);
            seen = pending(pair.primary());
        }
        // 17 bytes per slot; slots are three quarters full before a part grows, and a part may be half as large as the next.
        assert!(u64::from(number) * 17 > size / 8 / 2, "{number} of {size}");
        pair.check();
        // From then on, adds are pending while there is room, and the rest are written.
        pair.add(&(number..number + 20_000).collect::<Vec<_>>(), true, true);
        assert!(pending(pair.primary()) <= size / 8);
        pair.check();
        assert_eq!(
            pair.primary().size_bytes(),
            pair.follower().size_bytes(),
            "what BF.INFO tells is of equal filters equal"
        );
        pair.merge_all(1000);
        assert_eq!(pending(pair.primary()), 0);
        pair.check();
    }
}

#[test]
fn a_full_layer_keeps_pending_adds_when_the_next_begins() {
    let mut pair = Pair::of(new_native(1e-6, 3000, Scaling::from_expansion(2)));
    let capacity = u32::try_from(pair.primary().total_capacity()).unwrap();
    pair.add(&(0..capacity - 3).collect::<Vec<_>>(), true, false);
    assert_eq!((pending(pair.primary()), pair.primary().remaining_capacity()), (0, 3));
    // One batch adds the last pending adds of the first layer, and others to the second. Some items are repeated.
    let numbers = [1, 2, 3, 1, 4, 2, 5, 6, 5, 1].map(|number| number + 20_000);
    assert_eq!(pair.add(&numbers, true, true), 6);
    assert_eq!(pair.primary().layer_count(), 2);
    assert!(pending(pair.primary()) > 0);
    for (in_batches, pends) in [(true, true), (false, true), (true, false), (false, false)] {
        assert_eq!(pair.add(&numbers, in_batches, pends), 0);
    }
    pair.check();
    pair.merge_all(2);
    pair.check();
}

#[test]
fn no_adds_are_pending_unless_allowed() {
    let fixed = Scaling::Fixed;
    let NativeSpec { capacity, .. } = native(0.01, 10_000, fixed);
    let counting = CountingSpec { rate: 0.01, capacity, hasher: super::HASHER };
    let redisbloom = RedisBloomSpec { rate: 0.01, capacity, scaling: fixed };
    // Its groups are not whole pages.
    let odd =
        (capacity..).find(|capacity| BlockedBits::for_layer(*capacity, 0.01).unwrap().blocks_per_group != 64).unwrap();
    let odd = Spec::Native(NativeSpec { capacity: odd, ..native(0.01, 10_000, fixed) });
    for spec in [Spec::Counting(counting), Spec::RedisBloom(redisbloom), odd] {
        let mut filter = Filter::new(&spec, &Unlimited).unwrap();
        add_all(&mut filter, 0..100, Origin::Client);
        assert_eq!((filter.items(), pending(&filter)), (100, 0), "{spec:?}");
        assert_eq!(filter.flush_pending(100), 0);
    }
    let mut filter = new_native(0.01, 10_000, fixed);
    add_all(&mut filter, 0..100, Origin::Effect);
    assert_eq!((filter.items(), pending(&filter)), (100, 0), "an effect");
    let empty = [(); 2].map(|()| new_native(0.01, 10_000, fixed));
    for (mut filter, origin) in empty.into_iter().zip([Origin::Client, Origin::Effect]) {
        filter.add(&item(1), origin, &NOW, &Unlimited).unwrap();
        assert_eq!(pending(&filter), 0, "nobody lets it");
    }
}

#[test]
fn an_emptied_filter_has_no_pending_adds() {
    let mut filter = new_native(0.01, 10_000, Scaling::Fixed);
    add_all(&mut filter, 0..100, Origin::Client);
    assert!(pending(&filter) > 0 && filter.stats(&NOW).unwrap().pending_bytes > 0);
    let empty = filter.emptied().unwrap();
    assert_eq!(pending(&empty), 0);
    assert!(!empty.contains(&item(1), &NOW));
}

#[test]
fn duplicate_records_are_accepted_while_adds_are_pending() {
    let mut filter = new_native(0.01, 10_000, Scaling::Fixed);
    add_all(&mut filter, 0..100, Origin::Client);
    let records = super::pair::records(&filter);
    let mut value = bloomgate_filter::Value::from(filter);
    for (iterator, data) in records {
        assert_eq!(value.accept(7, iterator, &data), Ok(bloomgate_filter::format::Progress::Known));
    }
}

/// Pending adds in a layer of whole pages are also found from a chain whose newest layer cannot have any.
#[test]
fn pending_adds_are_found_however_the_filter_grew() {
    let grows = |about: u64| {
        let filter = new_native(1e-6, about, Scaling::from_expansion(1));
        let mut pair = Pair::of(filter);
        let capacity = u32::try_from(pair.primary().total_capacity()).unwrap();
        pair.add(&(0..capacity - 5).collect::<Vec<_>>(), true, false);
        pair.add(&(capacity - 5..capacity + 5).collect::<Vec<_>>(), true, true);
        assert_eq!(pair.primary().layer_count(), 2);
        pair
    };
    let is_odd = |pair: &Pair| match pair.primary() {
        Filter::Native(filter) => filter.layers()[1].geometry().blocks_per_group != 64,
        _ => false,
    };
    let mut pair = (500..).map(grows).find(is_odd).unwrap();
    assert!(pending(pair.primary()) > 0);
    pair.check();
    pair.merge_all(3);
    pair.check();
}
