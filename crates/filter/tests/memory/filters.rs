//! Faults in filters: creation, adds and growth, rotations of rings, copies, merges, lookups. Also the number of allocations of a growing
//! filter. The module's own allocations for replies and effects are counted in a server (`tests/server/reliability/faults.rs`).

use std::hint::black_box;

use bloomgate_filter::kinds::info::Field;
use bloomgate_filter::kinds::{Origin, Outcome};
use bloomgate_filter::{BATCH, BloomFilter, Error, Filter, Mask, Scaling, Unlimited};

use crate::allocator::{Asked, Fault, in_peace, measure, under};
use crate::kinds::{ALL, COUNTING, KEYED, LAYOUTS, NATIVE, ROLLING, SLIDING, WINDOW};
use crate::{filled, now, numbered, slices, spec, turn, with_every_fault};

#[test]
fn a_filter_without_memory_is_an_error() {
    let mut total = 0;
    for kind in ALL {
        // Small filters, with accidental alignment; filters of at least a page; filters of many megabytes.
        for capacity in [1, 100, 10_000, 1_000_000, 100_000_000] {
            let spec = spec(kind, capacity);
            let faults = with_every_fault(kind.name, || Ok(black_box(Filter::new(&spec, &Unlimited)?)));
            assert!(
                faults >= 2,
                "{}: a request or two, each refused alone and with those after it: {faults}",
                kind.name
            );
            total += faults;
        }
    }
    eprintln!("new filters: {total} faults");
}

#[test]
fn a_layer_without_memory_leaves_the_filter_unchanged() {
    let mut total = 0;
    // Up to the sixth growth, because lists of layers grow in steps.
    for items in [4, 12, 28, 60, 124, 252] {
        for kind in LAYOUTS {
            // The newest layer is full.
            let mut full = filled(kind, 4, items * 2);
            let mut next = (items * 2..).map(|number| format!("more {number}").into_bytes());
            while full.remaining_capacity() > 0 {
                full.add(&next.next().unwrap(), Origin::Client, &now(0), &Unlimited).unwrap();
            }
            let newcomer = next.find(|item| !full.contains(item, &now(0))).unwrap();
            let what = format!("growth of {}, {} layers", kind.name, full.layer_count());
            let faults = with_every_fault(&what, || {
                // The copy is created without faults: `with_every_fault` counts requests from the first.
                let mut filter = in_peace(|| full.try_clone().unwrap());
                let bytes = filter.allocated_bytes();
                let result = filter.add(&newcomer, Origin::Client, &now(0), &Unlimited);
                in_peace(|| match result {
                    Ok(is_new) => {
                        assert!(is_new == Outcome::New && filter.contains(&newcomer, &now(0)));
                        assert_eq!((filter.items(), filter.layer_count()), (full.items() + 1, full.layer_count() + 1));
                    }
                    Err(_) => {
                        assert!(filter == full && filter.allocated_bytes() == bytes);
                        assert!(!filter.contains(&newcomer, &now(0)));
                        let again = filter.add(&newcomer, Origin::Client, &now(0), &Unlimited);
                        assert_eq!(again, Ok(Outcome::New), "there is memory again");
                    }
                });
                Ok(result?)
            });
            assert!(faults >= 2, "a layer and its place in the list");
            total += faults;
        }
    }
    eprintln!("growth: {total} faults");
}

#[test]
fn a_refused_batch_reports_what_it_did() {
    let (mut total, items) = (0, numbered(1000, BATCH));
    for kind in ALL {
        let start = filled(kind, if kind.name == COUNTING.name { 1000 } else { 4 }, 10);
        let faults = with_every_fault(&format!("a batch that grows {} again and again", kind.name), || {
            let mut filter = in_peace(|| start.try_clone().unwrap());
            let added = filter.add_batch(slices(&items), Origin::Client, &now(3), &Unlimited);
            in_peace(|| {
                // One by one, up to the last answer of the batch.
                let mut twin = start.try_clone().unwrap();
                for (item, is_new) in items.iter().zip(added.new.each(added.done)) {
                    let outcome = twin.add(item, Origin::Client, &now(3), &Unlimited).unwrap();
                    assert_eq!(outcome == Outcome::New, is_new);
                }
                assert!(filter == twin, "the members are the items that were processed");
                assert_eq!(added.error.is_none(), added.done == items.len());
                // The rest is added when there is memory again.
                let rest = filter.add_batch(slices(&items[added.done..]), Origin::Client, &now(3), &Unlimited);
                assert_eq!(rest.error, None);
                let first = if kind.name == ROLLING.name { items.len() - 1 } else { 0 };
                assert!(items[first..].iter().all(|item| filter.contains(item, &now(3))));
                drop(filter);
            });
            added.error.map_or(Ok(()), |error| Err(error.into()))
        });
        assert!(faults >= 2 || kind.name == COUNTING.name, "{}: two layers and more: {faults}", kind.name);
        total += faults;
    }
    eprintln!("batches: {total} faults");
}

#[test]
fn a_turn_without_memory_changes_nothing() {
    for kind in [WINDOW, SLIDING, ROLLING] {
        let filter = filled(kind, 30, 32);
        let faults = with_every_fault("a turn", || {
            let mut ring = in_peace(|| filter.try_clone().unwrap());
            let result = turn(&mut ring, 4);
            in_peace(|| {
                assert_eq!(result.is_err(), ring == filter);
                drop(ring);
            });
            Ok(result?)
        });
        assert!(faults >= 3, "the bits, the layer, the list of what goes: {faults}");
    }
}

#[test]
fn a_merge_without_memory_leaves_the_filter_unchanged() {
    let mut total = 0;
    for (kind, capacity, items, more) in [NATIVE, KEYED]
        .into_iter()
        .flat_map(|kind| [(4, 2, 200), (4, 200, 0), (100_000, 10, 5000)].map(|(of, own, more)| (kind, of, own, more)))
    {
        let [own, other] = [items, more].map(|items| filled(kind, capacity, items));
        let [own, other] = [&own, &other].map(|filter| filter.mergeable().unwrap());
        total += with_every_fault(&format!("a merge into {} layers", own.layers().len()), || {
            let mut filter = in_peace(|| own.try_clone().unwrap());
            let bytes = filter.allocated_bytes();
            let result = filter.merge(&[other, own], Origin::Effect, &Unlimited);
            in_peace(|| match result {
                // The first three were deleted.
                Ok(()) => assert!(numbered(3, items.max(more) - 3).iter().all(|item| filter.contains(item))),
                Err(_) => assert!(filter == *own && filter.allocated_bytes() == bytes),
            });
            Ok(result?)
        });
        total += with_every_fault("a union", || {
            Ok(black_box(BloomFilter::union_of(&[own, other], Origin::Effect, &Unlimited)?))
        });
    }
    eprintln!("merges: {total} faults");
}

#[test]
fn copying_emptying_measuring_and_planning_succeed_or_change_nothing() {
    let mut total = 0;
    for kind in ALL {
        for (capacity, items) in [(4, 0), (4, 200), (100_000, 5000)] {
            let (spec, filter) = (spec(kind, capacity), filled(kind, capacity, items));
            let before = filter.try_clone().unwrap();
            let copies = with_every_fault(&format!("a copy of {}", kind.name), || {
                let copy = filter.try_clone()?;
                in_peace(|| assert!(copy == filter));
                Ok(())
            });
            assert!(copies >= filter.layer_count());
            total += copies;
            total += with_every_fault(&format!("{} emptied", kind.name), || {
                let empty = filter.emptied()?;
                in_peace(|| assert!(empty == Filter::new(&spec, &Unlimited).unwrap()));
                Ok(())
            });
            let stats = || Ok(black_box(filter.stats(&now(3))?));
            total += with_every_fault(&format!("stats of {}", kind.name), stats);
            let fits = spec.plan(Some(items as u64)).is_ok();
            let plan = || Ok(black_box(spec.plan(Some(items as u64).filter(|_| fits))?));
            total += with_every_fault(&format!("a plan of {}", kind.name), plan);
            assert!(filter == before);
        }
    }
    eprintln!("copied, emptied, measured, planned: {total} faults");
}

#[test]
fn lookups_and_adds_with_room_need_no_memory() {
    for kind in LAYOUTS {
        let mut filter = filled(kind, 100_000, 0);
        let items = numbered(0, 1000);
        let ((), asked) = under(Fault::From(1), || {
            for batch in items.chunks(BATCH) {
                let added = filter.add_batch(slices(batch), Origin::Client, &now(0), &Unlimited);
                assert_eq!((added.done, added.error), (batch.len(), None));
                assert_eq!(filter.contains_batch(slices(batch), &now(0)), Mask::first(batch.len()));
            }
            assert_eq!(filter.add(b"another", Origin::Client, &now(0), &Unlimited), Ok(Outcome::New));
            assert!(filter.contains(b"another", &now(0)) && !filter.contains(b"a third", &now(0)));
            assert!(filter.layers().map(|layer| layer.items).sum::<u64>() == filter.items());
            assert!(filter.remaining_capacity() > 0 && filter.allocated_bytes() > 0 && filter.size_bytes() > 0);
            let told = Field::VALKEY_BLOOM.map(|field| black_box(filter.info(field, &now(0), &Unlimited)).is_some());
            assert!(told[..6] == [true; 6], "what every filter tells");
        });
        assert_eq!(asked, Asked::default());
    }
}

/// Checks that the allocator refuses selected requests, and counts all.
#[test]
fn the_allocator_of_these_tests_refuses() {
    let ask = || Vec::<u8>::new().try_reserve_exact(100).is_ok();
    let twice = |fault| {
        let (granted, asked) = under(fault, || [ask(), ask()]);
        assert_eq!((asked.requests, asked.bytes, asked.bytes_max), (2, 200, 100));
        (granted, asked.refused)
    };
    assert_eq!(twice(Fault::None), ([true, true], 0));
    assert_eq!(twice(Fault::Only(1)), ([false, true], 1));
    assert_eq!(twice(Fault::Only(2)), ([true, false], 1));
    assert_eq!(twice(Fault::Only(3)), ([true, true], 0));
    assert_eq!(twice(Fault::From(1)), ([false, false], 2));
    let refused = under(Fault::From(1), || ALL.map(|kind| Filter::new(&spec(kind, 100), &Unlimited).err())).0;
    assert!(refused.iter().all(|error| matches!(error, Some(Error::OutOfMemory { .. }))), "{refused:?}");
}

/// Shows that the counter works.
#[test]
fn a_layer_takes_one_allocation_or_two() {
    for kind in LAYOUTS {
        let mut filter = Filter::new(&kind.spec(0.01, 100_000, 2), &Unlimited).unwrap();
        let items = numbered(0, 110_000);
        let asked = measure(|| {
            for item in &items {
                filter.add(item, Origin::Client, &now(0), &Unlimited).unwrap();
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
    let cells: u64 = filter.layers().iter().map(|layer| layer.bytes().len() as u64 + 63).sum();
    // The cells of a layer may be requested twice: the second time they are aligned.
    let (list, copies) = (size_of_val(filter.layers()) as u64, 12);
    assert!(asked.bytes <= 2 * cells + copies * list, "{asked:?}, {cells} bytes of cells");
    assert!(asked.requests <= 2 * LAYERS + 100, "{asked:?}");
}
