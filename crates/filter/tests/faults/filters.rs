//! Faults in filters: creation, adds and growth, copies, lookups.

use std::hint::black_box;

use bloomgate_filter::Moment;
use bloomgate_filter::kinds::info::Field;
use bloomgate_filter::kinds::{Origin, Outcome};
use bloomgate_filter::{BATCH, BloomFilter, Error, Filter, Mask, Unlimited};

use crate::allocator::{Asked, Fault, in_peace, under};
use crate::{filled_filters, new_filters, numbered, specs, with_every_fault};

#[test]
fn a_filter_without_memory_is_an_error() {
    // Small, with accidental alignment; of at least a page; of many megabytes.
    let mut total = 0;
    for capacity in [1, 100, 10_000, 1_000_000, 100_000_000] {
        let mut faults = 0;
        for (name, spec) in specs(capacity) {
            faults += with_every_fault(name, || Ok(black_box(Filter::new(&spec, &Unlimited)?)));
        }
        assert!(faults >= 8, "one or two requests, each refused alone and with those after it: {faults}");
        total += faults;
    }
    eprintln!("new filters: {total} faults");
}

#[test]
fn a_layer_without_memory_leaves_the_filter_unchanged() {
    let mut total = 0;
    // Up to the sixth growth, because lists of layers grow in steps.
    for items in [4, 12, 28, 60, 124, 252] {
        for (name, full) in filled_filters(4, items * 2) {
            // The newest layer is full.
            let mut full = full;
            let mut next = (items * 2..).map(|number| format!("more {number}").into_bytes());
            while full.remaining_capacity() > 0 {
                full.add(&next.next().unwrap(), Origin::Client, &Moment(0), &Unlimited).unwrap();
            }
            let newcomer = next.find(|item| !full.contains(item, &Moment(0))).unwrap();
            let faults = with_every_fault(&format!("growth of {name}, {} layers", full.layer_count()), || {
                // The copy is created without faults: `with_every_fault` counts requests from the first.
                let mut filter = in_peace(|| full.try_clone().unwrap());
                let bytes = filter.allocated_bytes();
                let result = filter.add(&newcomer, Origin::Client, &Moment(0), &Unlimited);
                in_peace(|| match result {
                    Ok(is_new) => {
                        assert!(is_new == Outcome::New && filter.contains(&newcomer, &Moment(0)));
                        assert_eq!((filter.items(), filter.layer_count()), (full.items() + 1, full.layer_count() + 1));
                    }
                    Err(_) => {
                        assert!(filter == full);
                        assert_eq!(filter.allocated_bytes(), bytes);
                        assert!(!filter.contains(&newcomer, &Moment(0)));
                        assert_eq!(
                            filter.add(&newcomer, Origin::Client, &Moment(0), &Unlimited),
                            Ok(Outcome::New),
                            "there is memory again"
                        );
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
    let mut total = 0;
    for (name, start) in filled_filters(4, 10) {
        let items = numbered(1000, BATCH);
        let faults = with_every_fault(&format!("a batch that grows {name} again and again"), || {
            let mut filter = in_peace(|| start.try_clone().unwrap());
            let added = filter.add_batch(items.iter().map(Vec::as_slice), Origin::Client, &Moment(0), &Unlimited);
            in_peace(|| {
                // One by one, as far as the batch reports.
                let mut twin = start.try_clone().unwrap();
                for (index, item) in items.iter().enumerate().take(added.done) {
                    assert_eq!(
                        twin.add(item, Origin::Client, &Moment(0), &Unlimited),
                        Ok(Outcome::of(added.new.contains(index)))
                    );
                }
                assert!(filter == twin, "the members are the items answered as new");
                assert_eq!(added.error.is_none(), added.done == items.len());
                // The rest is added when there is memory again.
                let rest = filter.add_batch(
                    items[added.done..].iter().map(Vec::as_slice),
                    Origin::Client,
                    &Moment(0),
                    &Unlimited,
                );
                assert_eq!(rest.error, None);
                assert!(items.iter().all(|item| filter.contains(item, &Moment(0))));
            });
            added.error.map_or(Ok(()), |error| Err(error.into()))
        });
        assert!(faults >= 4, "two layers and more: {faults}");
        total += faults;
    }
    eprintln!("batches: {total} faults");
}

#[test]
fn a_clone_without_memory_is_an_error() {
    let mut total = 0;
    for (capacity, items) in [(4, 0), (4, 200), (100_000, 5000)] {
        for (name, filter) in filled_filters(capacity, items) {
            let before = filter.try_clone().unwrap();
            let faults = with_every_fault(&format!("a copy of {name}"), || {
                let copy = filter.try_clone()?;
                in_peace(|| assert!(copy == filter));
                Ok(())
            });
            assert!(faults >= filter.layer_count());
            assert!(filter == before);
            total += faults;
        }
    }
    eprintln!("copies: {total} faults");
}

#[test]
fn a_merge_without_memory_leaves_the_filter_unchanged() {
    let native = |filters: [(&str, Filter); 3]| {
        let [(_, Filter::Native(filter)), ..] = filters else { panic!("the first is native") };
        filter
    };
    let mut total = 0;
    for (capacity, items, more) in [(4, 2, 200), (4, 200, 0), (100_000, 10, 5000)] {
        let (own, other) = (native(filled_filters(capacity, items)), native(filled_filters(capacity, more)));
        total += with_every_fault(&format!("a merge into {} layers", own.layers().len()), || {
            let mut filter = in_peace(|| own.try_clone().unwrap());
            let bytes = filter.allocated_bytes();
            let result = filter.merge(&[&other, &own], Origin::Effect, &Unlimited);
            in_peace(|| match result {
                Ok(()) => assert!(numbered(0, items.max(more)).iter().all(|item| filter.contains(item))),
                Err(_) => assert!(filter == own && filter.allocated_bytes() == bytes),
            });
            Ok(result?)
        });
        total += with_every_fault("a union", || {
            Ok(black_box(BloomFilter::union_of(&[&own, &other], Origin::Effect, &Unlimited)?))
        });
    }
    eprintln!("merges: {total} faults");
}

#[test]
fn emptying_measuring_and_planning_succeed_or_change_nothing() {
    let mut total = 0;
    for (capacity, items) in [(4, 200), (100_000, 5000)] {
        for ((name, spec), (_, filter)) in specs(capacity).into_iter().zip(filled_filters(capacity, items)) {
            let before = filter.try_clone().unwrap();
            total += with_every_fault(&format!("{name} emptied"), || {
                let empty = filter.emptied()?;
                in_peace(|| assert!(empty == Filter::new(&spec, &Unlimited).unwrap()));
                Ok(())
            });
            total += with_every_fault(&format!("stats of {name}"), || Ok(black_box(filter.stats(&Moment(0))?)));
            total += with_every_fault(&format!("a plan of {name}"), || Ok(black_box(spec.plan(Some(items as u64))?)));
            assert!(filter == before);
        }
    }
    eprintln!("emptied, measured, planned: {total} faults");
}

#[test]
fn lookups_and_adds_with_room_need_no_memory() {
    for (_, mut filter) in new_filters(100_000) {
        let items = numbered(0, 1000);
        let ((), asked) = under(Fault::From(1), || {
            for batch in items.chunks(BATCH) {
                let added = filter.add_batch(batch.iter().map(Vec::as_slice), Origin::Client, &Moment(0), &Unlimited);
                assert_eq!((added.done, added.error), (batch.len(), None));
                assert_eq!(
                    filter.contains_batch(batch.iter().map(Vec::as_slice), &Moment(0)),
                    Mask::first(batch.len())
                );
            }
            assert_eq!(filter.add(b"another", Origin::Client, &Moment(0), &Unlimited), Ok(Outcome::New));
            assert!(filter.contains(b"another", &Moment(0)) && !filter.contains(b"a third", &Moment(0)));
            assert!(filter.layers().map(|layer| layer.items).sum::<u64>() == filter.items());
            assert!(filter.remaining_capacity() > 0 && filter.allocated_bytes() > 0 && filter.size_bytes() > 0);
            let told = Field::VALKEY_BLOOM.map(|field| black_box(filter.info(field, &Moment(0), &Unlimited)).is_some());
            assert!(told[..6] == [true; 6], "what every filter tells");
        });
        assert_eq!(asked, Asked { requests: 0, refused: 0 });
    }
}

/// Checks that the allocator refuses selected requests.
#[test]
fn the_allocator_of_these_tests_refuses() {
    let ask = || Vec::<u8>::new().try_reserve_exact(100).is_ok();
    assert_eq!(under(Fault::None, ask), (true, Asked { requests: 1, refused: 0 }));
    assert_eq!(under(Fault::Only(1), ask), (false, Asked { requests: 1, refused: 1 }));
    assert_eq!(under(Fault::Only(2), ask), (true, Asked { requests: 1, refused: 0 }));
    assert_eq!(under(Fault::From(1), || [ask(), ask()]), ([false; 2], Asked { requests: 2, refused: 2 }));
    assert_eq!(under(Fault::Only(1), || [ask(), ask()]), ([false, true], Asked { requests: 2, refused: 1 }));
    let refused = under(Fault::From(1), || specs(100).map(|(_, spec)| Filter::new(&spec, &Unlimited).err())).0;
    assert!(refused.iter().all(|error| matches!(error, Some(Error::OutOfMemory { .. }))), "{refused:?}");
}
