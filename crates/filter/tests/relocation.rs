//! Moves a filter's memory like a server's defragmenter: block by block, all at once or as far as time permits. A server moves
//! badly placed blocks; the mover here moves every block that it is offered, to any address.

// All of this file is test code: a panic is how a test fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod one_of_each;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ptr::NonNull;

use bloomgate_filter::Moment;
use bloomgate_filter::cells::Mover;
use bloomgate_filter::chain::HashSet;
use bloomgate_filter::hash::{Hasher, ItemHash};
use bloomgate_filter::kinds::{Forgets, NativeSpec, Origin, WindowedSpec};
use bloomgate_filter::{BATCH, BloomFilter, Filter, Scaling, Spec, Unlimited};

thread_local! {
    /// The requested layouts of the blocks, while they are recorded.
    static BLOCKS: RefCell<Option<HashMap<usize, Layout>>> = const { RefCell::new(None) };
}

/// The system's allocator, which records the layouts of a thread's blocks, because a defragmenter must know their size.
struct Recording;

#[global_allocator]
static ALLOCATOR: Recording = Recording;

fn record(change: impl FnOnce(&mut HashMap<usize, Layout>)) {
    // The list itself allocates, so it is taken out meanwhile.
    let Ok(Some(mut blocks)) = BLOCKS.try_with(RefCell::take) else { return };
    change(&mut blocks);
    BLOCKS.with(|place| place.replace(Some(blocks)));
}

// SAFETY: every request is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Recording {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as promised by the caller.
        let block = unsafe { System.alloc(layout) };
        record(|blocks| _ = blocks.insert(block as usize, layout));
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as promised by the caller.
        let block = unsafe { System.alloc_zeroed(layout) };
        record(|blocks| _ = blocks.insert(block as usize, layout));
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        record(|blocks| assert_eq!(blocks.remove(&(block as usize)), Some(layout), "freed with its layout"));
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Moves all blocks, and stops after every `pace` of them.
struct Defragmenter {
    pace: usize,
    moved: usize,
}

// SAFETY: the new block is from the same allocator with the same layout, its bytes are copied, and the old one is freed.
unsafe impl Mover for Defragmenter {
    fn moved(&mut self, block: NonNull<u8>) -> Option<NonNull<u8>> {
        let mut layout = None;
        record(|blocks| layout = blocks.get(&(block.as_ptr() as usize)).copied());
        let layout = layout.expect("a block that was asked for as a whole");
        self.moved += 1;
        // SAFETY: the old block has this layout, and the new one is different.
        unsafe {
            let new = NonNull::new(std::alloc::alloc(layout)).unwrap();
            new.copy_from_nonoverlapping(block, layout.size());
            // Code that still reads the old block must not find its bytes there.
            block.write_bytes(0xAA, layout.size());
            std::alloc::dealloc(block.as_ptr(), layout);
            Some(new)
        }
    }

    fn has_done_enough(&mut self) -> bool {
        self.moved.is_multiple_of(self.pace)
    }
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
    one_of_each::specs(0.01, capacity, 4).map(|(_, spec)| Filter::new(&spec, &Unlimited).unwrap())
}

/// A number of items that takes five layers.
const ITEMS: usize = if cfg!(miri) { 100 } else { 20_000 };

#[test]
fn a_moved_filter_is_unchanged() {
    // Under miri, which is slow, one.
    let paces: &[usize] = if cfg!(miri) { &[2] } else { &[1, 2, 3, usize::MAX] };
    for &pace in paces {
        BLOCKS.with(|place| place.replace(Some(HashMap::new())));
        for mut filter in filters() {
            add(&mut filter, 0..ITEMS);
            let (original, layers) = (filter.try_clone().unwrap(), filter.layer_count());
            let allocated_bytes = filter.allocated_bytes();
            assert_eq!(layers, 5);
            let mut mover = Defragmenter { pace, moved: 0 };
            let mut calls = 1;
            let mut next = filter.relocate(0, &mut mover);
            while let Some(layer) = next {
                assert!((1..layers).contains(&layer));
                calls += 1;
                next = filter.relocate(layer, &mut mover);
            }
            // The layers' bits, the list of layers, and in valkey-bloom's layout the box around them.
            let boxed = usize::from(matches!(filter, Filter::ValkeyBloom(_)));
            assert_eq!(mover.moved, layers + 1 + boxed);
            assert_eq!(calls == 1, pace == usize::MAX, "{calls} calls at a pace of {pace}");
            assert!(filter == original);
            assert_eq!(filter.allocated_bytes(), allocated_bytes);
            assert!((0..ITEMS).all(|number| filter.contains(&item(number), &Moment(0))));
            let (mut grown, mut expected) = (filter, original);
            add(&mut grown, ITEMS..ITEMS * 5);
            add(&mut expected, ITEMS..ITEMS * 5);
            assert!(grown.layer_count() > layers && grown == expected, "what was moved grows as it would have");
        }
        let left = BLOCKS.with(RefCell::take).unwrap();
        assert!(left.is_empty(), "{} blocks are left", left.len());
    }
}

/// In filters with entries, the layers are moved and then the parts of the tables, in a ring bucket by bucket.
#[test]
#[cfg_attr(miri, ignore = "thousands of deletes")]
fn tables_of_deleted_items_are_moved_too() {
    let hasher = Hasher::SipHash { key: [7; 16] };
    let native = Spec::Native(NativeSpec::new(0.001, 100_000, Scaling::from_expansion(2), hasher));
    let (scaling, forgets) = (Scaling::Fixed, Forgets::Rolling);
    let ring = Spec::Windowed(WindowedSpec { rate: 0.001, capacity: 200_000, scaling, hasher, forgets, buckets: 3 });
    for (pace, spec) in [1, 3, usize::MAX].into_iter().flat_map(|pace| [(pace, native), (pace, ring)]) {
        BLOCKS.with(|place| place.replace(Some(HashMap::new())));
        let mut filter = Filter::new(&spec, &Unlimited).unwrap();
        add(&mut filter, 0..150_000);
        for number in (0..150_000).step_by(20) {
            let removed = filter.remove_batch([&item(number)[..]], Origin::Client, &Moment(0), &Unlimited);
            assert_eq!(removed.error, None);
        }
        let (original, allocated_bytes) = (filter.try_clone().unwrap(), filter.allocated_bytes());
        let mut mover = Defragmenter { pace, moved: 0 };
        let mut next = filter.relocate(0, &mut mover);
        while let Some(place) = next {
            next = filter.relocate(place, &mut mover);
            assert!(next.is_none_or(|next| next > place));
        }
        // The lists and layers, and several parts of a table.
        assert!(mover.moved >= 8, "{} blocks", mover.moved);
        assert!(filter == original && filter.allocated_bytes() == allocated_bytes);
        assert!((0..150_000).step_by(20).all(|number| !filter.contains(&item(number), &Moment(0))));
        drop((filter, original));
        assert!(BLOCKS.with(RefCell::take).unwrap().is_empty());
    }
}

#[test]
fn moved_blocks_are_aligned() {
    BLOCKS.with(|place| place.replace(Some(HashMap::new())));
    let capacity = if cfg!(miri) { 1000 } else { 1_000_000 };
    let mut filter = BloomFilter::new(0.01, capacity, Scaling::Fixed, 4242, &Unlimited).unwrap();
    let members: Vec<_> = (0..100).map(item).collect();
    members.iter().for_each(|item| assert_eq!(filter.add(item, &Unlimited), Ok(true)));
    let mut starts = std::collections::HashSet::new();
    // Blocks of odd sizes in between, so that the next free address is arbitrary.
    let mut between = Vec::new();
    for number in 0..20 {
        between.push(vec![0u8; 1000 + number * 208]);
        assert_eq!(filter.relocate(0, &mut Defragmenter { pace: usize::MAX, moved: 0 }), None);
        let start = filter.layers()[0].bytes().as_ptr() as usize;
        assert!(cfg!(miri) || start.is_multiple_of(4096), "{start:x}");
        starts.insert(start);
        assert!(members.iter().all(|item| filter.contains(item)));
    }
    assert!(starts.len() > 1, "it was moved");
    BLOCKS.with(RefCell::take);
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
        BLOCKS.with(|place| place.replace(Some(HashMap::new())));
        let mut set = HashSet::new();
        hashes.clone().for_each(|hash| assert_eq!(set.insert(hash), Ok(true)));
        let (original, allocated_bytes) = (set.try_clone().unwrap(), set.allocated_bytes());
        let mut mover = Defragmenter { pace, moved: 0 };
        let mut next = set.relocate(0, &mut mover);
        while let Some(part) = next {
            assert!(part > 0);
            next = set.relocate(part, &mut mover);
        }
        assert!(
            mover.moved >= if cfg!(miri) { 3 } else { 10 },
            "the list, the directory and {} parts",
            mover.moved - 2
        );
        assert!(set == original && set.allocated_bytes() == allocated_bytes);
        assert!(hashes.clone().all(|hash| set.contains(hash) && set.remove(hash)));
        drop((set, original));
        assert!(BLOCKS.with(RefCell::take).unwrap().is_empty());
    }
}
