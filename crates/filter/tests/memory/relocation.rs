//! Moves a filter's memory like a server's defragmenter: block by block, all at once or as far as time permits. A server moves
//! badly placed blocks; the mover here moves every block that it is offered, to any address.

use std::collections::HashSet as Set;

use bloomgate_filter::HashSet;
use bloomgate_filter::hash::ItemHash;
use bloomgate_filter::kinds::Origin;
use bloomgate_filter::{BATCH, BloomFilter, Filter, Moment, Scaling, Unlimited};

use crate::allocator::{Defragmenter, recorded};
use crate::kinds::{KEYED, LAYOUTS, ROLLING, Shape};

/// Moves all that `relocate` offers, some blocks at a time. Returns the number of blocks and of calls.
fn moved(pace: usize, mut relocate: impl FnMut(usize, &mut Defragmenter) -> Option<usize>) -> (usize, usize) {
    let mut mover = Defragmenter { pace, moved: 0 };
    let (mut calls, mut next) = (1, relocate(0, &mut mover));
    while let Some(place) = next {
        calls += 1;
        next = relocate(place, &mut mover);
        assert!(next.is_none_or(|next| next > place));
    }
    (mover.moved, calls)
}

fn item(number: usize) -> Vec<u8> {
    format!("https://example.org/a/page/{number}").into_bytes()
}

fn add(filter: &mut Filter, numbers: std::ops::Range<usize>) {
    let items: Vec<_> = numbers.map(item).collect();
    for batch in items.chunks(BATCH) {
        let added = filter.add_batch(batch.iter().map(Vec::as_slice), Origin::Client, &Moment(0), &Unlimited);
        assert_eq!(added.done, batch.len());
    }
}

/// One of each layout.
fn filters() -> [Filter; 3] {
    let capacity = if cfg!(miri) { 1 } else { 100 };
    LAYOUTS.map(|kind| Filter::new(&kind.spec(0.01, capacity, 4), &Unlimited).unwrap())
}

/// A number of items that takes five layers.
const ITEMS: usize = if cfg!(miri) { 100 } else { 20_000 };

#[test]
fn a_moved_filter_is_unchanged() {
    // Under miri, which is slow, one.
    let paces: &[usize] = if cfg!(miri) { &[2] } else { &[1, 2, 3, usize::MAX] };
    for &pace in paces {
        recorded(|| {
            for mut filter in filters() {
                add(&mut filter, 0..ITEMS);
                let (original, layers) = (filter.try_clone().unwrap(), filter.layer_count());
                let allocated_bytes = filter.allocated_bytes();
                assert_eq!(layers, 5);
                let (blocks, calls) = moved(pace, |place, mover| filter.relocate(place, mover));
                // The layers' bits, the list of layers, and in valkey-bloom's layout the box around them.
                let boxed = usize::from(matches!(filter, Filter::ValkeyBloom(_)));
                assert_eq!(blocks, layers + 1 + boxed);
                assert_eq!(calls == 1, pace == usize::MAX, "{calls} calls at a pace of {pace}");
                assert!(filter == original);
                assert_eq!(filter.allocated_bytes(), allocated_bytes);
                assert!((0..ITEMS).all(|number| filter.contains(&item(number), &Moment(0))));
                let (mut grown, mut expected) = (filter, original);
                add(&mut grown, ITEMS..ITEMS * 5);
                add(&mut expected, ITEMS..ITEMS * 5);
                assert!(grown.layer_count() > layers && grown == expected, "what was moved grows as it would have");
            }
        });
    }
}

/// In filters with entries, the layers are moved and then the parts of the tables, in a ring bucket by bucket.
#[test]
#[cfg_attr(miri, ignore = "thousands of deletes")]
fn tables_of_deleted_items_are_moved_too() {
    let ring = Shape { seed: 1, buckets: 3, ..Shape::new(0.001, 200_000, 0) };
    let specs = [KEYED.spec(0.001, 100_000, 2), (ROLLING.spec)(&ring)];
    for (pace, spec) in [1, 3, usize::MAX].into_iter().flat_map(|pace| specs.map(|spec| (pace, spec))) {
        recorded(|| {
            let mut filter = Filter::new(&spec, &Unlimited).unwrap();
            add(&mut filter, 0..150_000);
            for number in (0..150_000).step_by(20) {
                let removed = filter.remove_batch([&item(number)[..]], Origin::Client, &Moment(0), &Unlimited);
                assert_eq!(removed.error, None);
            }
            let (original, allocated_bytes) = (filter.try_clone().unwrap(), filter.allocated_bytes());
            let (blocks, _) = moved(pace, |place, mover| filter.relocate(place, mover));
            assert!(blocks >= 8, "the lists, the layers, and several parts of a table: {blocks} blocks");
            assert!(filter == original && filter.allocated_bytes() == allocated_bytes);
            assert!((0..150_000).step_by(20).all(|number| !filter.contains(&item(number), &Moment(0))));
        });
    }
}

#[test]
fn moved_blocks_are_aligned() {
    recorded(|| {
        let capacity = if cfg!(miri) { 1000 } else { 1_000_000 };
        let mut filter = BloomFilter::new(0.01, capacity, Scaling::Fixed, 4242, &Unlimited).unwrap();
        let members: Vec<_> = (0..100).map(item).collect();
        members.iter().for_each(|item| assert_eq!(filter.add(item, &Unlimited), Ok(true)));
        let mut starts = Set::new();
        // Blocks of odd sizes in between, so that the next free address is arbitrary.
        let mut between = Vec::new();
        for number in 0..20 {
            between.push(vec![0u8; 1000 + number * 208]);
            assert_eq!(moved(usize::MAX, |place, mover| filter.relocate(place, mover)).1, 1);
            let start = filter.layers()[0].bytes().as_ptr() as usize;
            assert!(cfg!(miri) || start.is_multiple_of(4096), "{start:x}");
            starts.insert(start);
            assert!(members.iter().all(|item| filter.contains(item)));
        }
        assert!(starts.len() > 1, "it was moved");
    });
}

#[test]
fn a_place_after_the_last_layer_is_the_end() {
    for mut filter in filters() {
        assert_eq!(filter.relocate(7, &mut Defragmenter { pace: 1, moved: 0 }), None);
    }
}

#[test]
fn a_moved_set_of_hashes_is_unchanged() {
    let hashes = if cfg!(miri) { 0..50 } else { 0..20_000 };
    let hashes = hashes.map(|number| ItemHash::of(&item(number), 1));
    for pace in [1, 3, usize::MAX] {
        recorded(|| {
            let mut set = HashSet::new();
            hashes.clone().for_each(|hash| assert_eq!(set.insert(hash), Ok(true)));
            let (original, allocated_bytes) = (set.try_clone().unwrap(), set.allocated_bytes());
            let (blocks, _) = moved(pace, |place, mover| set.relocate(place, mover));
            assert!(blocks >= if cfg!(miri) { 3 } else { 10 }, "the list, the directory and {} parts", blocks - 2);
            assert!(set == original && set.allocated_bytes() == allocated_bytes);
            assert!(hashes.clone().all(|hash| set.contains(hash) && set.remove(hash)));
        });
    }
}
