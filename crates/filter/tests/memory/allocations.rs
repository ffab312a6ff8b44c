//! Counts the allocations of a filter: none for a lookup, none for an add with room, in every layout. The module's own
//! allocations for replies and effects are counted in a server (`tests/server/reliability/faults.rs`).

use bloomgate_filter::cells::Cells as _;
use bloomgate_filter::kinds::Origin;
use bloomgate_filter::{BATCH, BloomFilter, Filter, Moment, Scaling, Unlimited};

use crate::allocator::measure;
use crate::kinds::LAYOUTS;

fn filters() -> [Filter; 3] {
    LAYOUTS.map(|kind| Filter::new(&kind.spec(0.01, 100_000, 2), &Unlimited).unwrap())
}

fn items(first: usize) -> Vec<String> {
    (first..first + 10_000).map(|number| format!("https://example.org/a/page/{number}")).collect()
}

#[test]
fn a_lookup_allocates_nothing() {
    for mut filter in filters() {
        for item in items(0) {
            filter.add(item.as_bytes(), Origin::Client, &Moment(0), &Unlimited).unwrap();
        }
        let (known, unknown) = (items(0), items(1_000_000));
        let asked = measure(|| {
            let mut present = 0;
            for batch in known.chunks(BATCH).chain(unknown.chunks(BATCH)) {
                present += filter.contains_batch(batch.iter().map(String::as_bytes), &Moment(0)).len();
            }
            assert!((10_000..10_500).contains(&present));
            assert!(known.iter().all(|item| filter.contains(item.as_bytes(), &Moment(0))));
        });
        assert_eq!(asked.requests, 0, "{asked:?}");
    }
}

#[test]
fn an_add_with_room_allocates_nothing() {
    for mut filter in filters() {
        let (first, second) = (items(0), items(20_000));
        let asked = measure(|| {
            for batch in first.chunks(BATCH) {
                let added =
                    filter.add_batch(batch.iter().map(String::as_bytes), Origin::Client, &Moment(0), &Unlimited);
                assert_eq!((added.done, added.error), (batch.len(), None));
            }
            for item in &second {
                filter.add(item.as_bytes(), Origin::Client, &Moment(0), &Unlimited).unwrap();
            }
        });
        assert_eq!(asked.requests, 0, "{asked:?}");
        assert!(filter.items() > 19_500);
    }
}

/// Shows that the counter works.
#[test]
fn a_layer_takes_one_allocation_or_two() {
    for mut filter in filters() {
        let items: Vec<_> = (0..11).flat_map(|part| items(part * 10_000)).collect();
        let asked = measure(|| {
            for item in &items {
                filter.add(item.as_bytes(), Origin::Client, &Moment(0), &Unlimited).unwrap();
            }
        });
        assert_eq!(filter.layer_count(), 2);
        assert!((1..=3).contains(&asked.requests), "the layer, and its place in the list: {asked:?}");
    }
}

/// The list of a chain's layers is not copied for every layer, which would take 160 MB here.
#[test]
fn a_long_chain_seldom_reallocates_its_list() {
    const LAYERS: usize = 2000;
    let mut filter = BloomFilter::new(0.25, 1, Scaling::from_expansion(1), 1, &Unlimited).unwrap();
    let asked = measure(|| {
        let mut items = (0u32..).map(u32::to_le_bytes);
        while filter.layers().len() < LAYERS {
            filter.add(&items.next().unwrap(), &Unlimited).unwrap();
        }
    });
    let cells: u64 = filter.layers().iter().map(|layer| layer.cells().allocated_bytes()).sum();
    // The cells of a layer may be requested twice: the second time they are aligned.
    let (list, copies) = (size_of_val(filter.layers()) as u64, 12);
    assert!(asked.bytes <= 2 * cells + copies * list, "{asked:?}, {cells} bytes of cells");
    assert!(asked.requests <= 2 * LAYERS + 100, "{asked:?}");
}
