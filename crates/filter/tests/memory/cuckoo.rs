//! Cuckoo filters of RedisBloom's layout: every request for memory is refused once, and their memory is moved.

use std::hint::black_box;

use bloomgate_filter::Unlimited;
use bloomgate_filter::kinds::chunked::{self, ChunkArrival, Chunked as _};
use bloomgate_filter::kinds::{RedisBloomCuckooFilter, RedisBloomCuckooSpec};

use crate::allocator::{Defragmenter, in_peace, recorded};
use crate::with_every_fault;

const SPEC: RedisBloomCuckooSpec = RedisBloomCuckooSpec { capacity: 8, bucket_size: 2, iterations: 20, expansion: 2 };

fn filled(items: u32) -> RedisBloomCuckooFilter {
    let mut filter = RedisBloomCuckooFilter::with_spec(&SPEC, &Unlimited).unwrap();
    (0..items).for_each(|number| filter.add(&number.to_le_bytes(), &Unlimited).unwrap());
    filter
}

#[test]
fn refused_memory_is_an_error_and_changes_nothing() {
    let faults =
        with_every_fault("a new filter", || Ok(black_box(RedisBloomCuckooFilter::with_spec(&SPEC, &Unlimited)?)));
    assert!(faults >= 4, "{faults}");
    let mut full = filled(100);
    let newcomer = (0u32..5000).map(u32::to_be_bytes).find(|item| {
        let mut grown = full.try_clone().unwrap();
        grown.add(item, &Unlimited).unwrap();
        let grows = grown.layer_count() > full.layer_count();
        if !grows {
            full = grown;
        }
        grows
    });
    let newcomer = newcomer.unwrap();
    let faults = with_every_fault("growth", || {
        let mut filter = in_peace(|| full.try_clone().unwrap());
        let bytes = filter.allocated_bytes();
        let result = filter.add(&newcomer, &Unlimited);
        in_peace(|| assert!(result.is_ok() || filter == full && filter.allocated_bytes() == bytes));
        Ok(result?)
    });
    assert!(faults >= 2, "{faults}");
    with_every_fault("a copy", || Ok(black_box(full.try_clone()?)));
    with_every_fault("a header", || full.header());
    let header = full.header().unwrap();
    with_every_fault("an arrival", || ChunkArrival::<RedisBloomCuckooFilter>::begin(&header, &Unlimited));
    with_every_fault("a dump", || chunked::records(&full).try_for_each(|record| record.map(|_| ())));
}

#[test]
fn a_moved_filter_is_unchanged() {
    for pace in [1, 2, usize::MAX] {
        recorded(|| {
            let mut filter = filled(300);
            let original = filter.try_clone().unwrap();
            let mut mover = Defragmenter { pace, moved: 0 };
            let mut next = filter.relocate(0, &mut mover);
            while let Some(place) = next {
                next = filter.relocate(place, &mut mover);
            }
            assert_eq!(mover.moved, filter.layer_count() + 1, "the sub-filters and their list");
            assert!(filter == original);
        });
    }
}
