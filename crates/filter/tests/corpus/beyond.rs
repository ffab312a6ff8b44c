//! Filters of the kinds that version 0.1.0 lacks, as seeds: counting filters, keyed ones, and ones that forget.

use bloomgate_filter::hash::Hasher;
use bloomgate_filter::kinds::{CountingSpec, Forgets, NativeSpec, Origin, WindowedSpec};
use bloomgate_filter::{Filter, Moment, Scaling, Spec, Unlimited};

use super::seeds::with_items;

const KEYED: Hasher = Hasher::SipHash { key: *b"0123456789abcdef" };

/// Counting filters, with repeated items.
fn counting() -> [(&'static str, Filter); 4] {
    let shapes = [
        ("counting-empty", 100, 0, Hasher::murmur3(7)),
        ("counting", 100, 60, Hasher::murmur3(7)),
        ("counting-full", 10, 30, Hasher::murmur3(7)),
        ("counting-keyed", 100, 60, KEYED),
    ];
    shapes.map(|(name, capacity, items, hasher)| {
        let mut filter = with_items(Spec::Counting(CountingSpec { rate: 0.01, capacity, hasher }), items);
        for number in 0..items {
            let item = (number % 3).to_le_bytes();
            filter.add_batch([&item[..]], Origin::Client, &Moment(0), &Unlimited);
        }
        (name, filter)
    })
}

/// Filters with a keyed hash and deleted items.
fn keyed() -> [(&'static str, Filter); 3] {
    let shapes = [("keyed", 100, 0, 0..0), ("keyed-deleted", 100, 0, 10..13), ("keyed-grown-deleted", 4, 2, 0..60)];
    shapes.map(|(name, capacity, expansion, deleted)| {
        let scaling = Scaling::from_expansion(expansion);
        let mut filter = with_items(Spec::Native(NativeSpec::new(0.01, capacity, scaling, KEYED)), 60);
        delete(&mut filter, deleted);
        (name, filter)
    })
}

/// Filters that forget, with live, expired and larger buckets; one with tables of deleted items.
fn windowed() -> [(&'static str, Filter); 5] {
    let after = |is_sliding| Forgets::After { seconds: 3, is_sliding };
    let murmur3 = Hasher::murmur3(7);
    let shapes = [
        ("window", after(false), 2, murmur3),
        ("window-sliding", after(true), 2, murmur3),
        ("window-keyed", after(false), 2, KEYED),
        ("rolling", Forgets::Rolling, 0, murmur3),
        ("rolling-keyed", Forgets::Rolling, 0, KEYED),
    ];
    shapes.map(|(name, forgets, expansion, hasher)| {
        let scaling = Scaling::from_expansion(expansion);
        let spec = WindowedSpec { rate: 0.01, capacity: 40, scaling, hasher, forgets, buckets: 4 };
        let mut filter = Filter::new(&Spec::Windowed(spec), &Unlimited).unwrap();
        // A bucket takes items for a second, or about 13 of them.
        for (second, items) in [0..5, 5..40, 40..45].into_iter().enumerate() {
            let now = Moment(1000 + 1000 * second as u64);
            let ring = filter.windowed_mut().unwrap();
            if let Some(turn) = ring.turn_due(now) {
                ring.turn(turn, &Unlimited).unwrap();
            }
            for number in items {
                filter.add_batch([&u32::to_le_bytes(number)[..]], Origin::Client, &now, &Unlimited);
            }
        }
        if hasher.is_keyed() {
            delete(&mut filter, 38..42);
        }
        (name, filter)
    })
}

/// Deletes items, some of which are found.
fn delete(filter: &mut Filter, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let _ = filter.remove_batch([&number.to_le_bytes()[..]], Origin::Client, &Moment(3000), &Unlimited);
    }
}

/// Returns every filter of a kind that version 0.1.0 lacks.
pub(super) fn beyond() -> impl Iterator<Item = (&'static str, Filter)> {
    counting().into_iter().chain(keyed()).chain(windowed())
}
