//! Faults in sets of hashes: growth, copies, reading.

use bloomgate_filter::HashSet;
use bloomgate_filter::hash::ItemHash;

use crate::allocator::{Fault, in_peace, under};
use crate::with_every_fault;

fn hash(number: u64) -> ItemHash {
    let h1 = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ItemHash { h1, h2: h1.wrapping_mul(h1 | 1) }
}

fn set_of(count: u64) -> HashSet {
    let mut set = HashSet::new();
    (0..count).for_each(|number| assert_eq!(set.insert(hash(number)), Ok(true)));
    set
}

/// The hashes of a set, in order.
fn sorted(set: &HashSet) -> Vec<ItemHash> {
    let mut all = Vec::new();
    let run = |run: &[ItemHash]| {
        all.extend_from_slice(run);
        Ok::<_, ()>(())
    };
    set.for_each_sorted_run(run).unwrap();
    all
}

/// The first table, every doubling, the first splits and those that double the directory: wherever the next insert must grow
/// the set because its part is full.
#[test]
fn a_part_that_cannot_grow_fills_up_and_then_refuses() {
    let mut total = 0;
    let mut set = HashSet::new();
    for next in 0..30_000 {
        let (grown, asked) = under(Fault::None, || set.insert(hash(next)));
        assert_eq!(grown, Ok(true));
        if asked.requests == 0 {
            continue;
        }
        // Unchanged, and full without any memory.
        let mut full = set_of(next);
        let bytes = full.allocated_bytes();
        let mut number = next;
        let refused = loop {
            match under(Fault::From(1), || full.insert(hash(number))).0 {
                Ok(is_new) => assert!(is_new),
                Err(error) => break error,
            }
            number += 1;
        };
        assert!(refused.asked_bytes() > Some(0), "{refused:?}");
        assert_eq!((full.len(), full.allocated_bytes()), (number, bytes));
        total += with_every_fault(&format!("an insert into a set of {number}"), || {
            let mut again = in_peace(|| full.try_clone().unwrap());
            let result = again.insert(hash(number));
            in_peace(|| {
                assert!(again.contains(hash(number)) == result.is_ok());
                assert!(result.is_ok() || again == full);
                assert!((0..number).all(|number| again.contains(hash(number))));
                drop(again);
            });
            Ok(result?)
        });
    }
    assert!(total >= 40, "{total}");
    eprintln!("growth of sets: {total} faults");
}

#[test]
fn a_set_that_cannot_be_copied_or_read_is_an_error() {
    let mut total = 0;
    for count in [1, 100, 10_000] {
        let set = set_of(count);
        let hashes = sorted(&set);
        total += with_every_fault(&format!("a copy of a set of {count}"), || {
            let copy = set.try_clone()?;
            in_peace(|| assert!(copy == set));
            Ok(())
        });
        let (read, asked) = under(Fault::From(1), || HashSet::new().extend_sorted(&hashes));
        assert!(read.is_err_and(|error| error.is_out_of_memory()) && asked.refused > 0);
    }
    eprintln!("copies of sets: {total} faults");
}

#[test]
fn a_set_is_queried_emptied_and_saved_without_memory() {
    let mut set = set_of(20_000);
    let asked = under(Fault::From(1), || {
        let saved = set.for_each_sorted_run(|run| if run.is_sorted() { Ok(()) } else { Err(()) });
        assert_eq!(saved, Ok(()));
        assert!((0..20_000).all(|number| set.contains(hash(number)) && set.remove(hash(number))));
    });
    assert_eq!(asked.1.requests, 0);
    assert_eq!(set.allocated_bytes(), 0);
}
