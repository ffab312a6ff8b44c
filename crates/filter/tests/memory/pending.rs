//! Faults in pending adds: without memory, an add is written at once, and the caller does not notice.

use bloomgate_filter::kinds::{NativeSpec, Origin};
use bloomgate_filter::{BATCH, BloomFilter, Ceiling, Filter, Moment, Scaling, Spec, Unlimited};

use crate::allocator::{Fault, in_peace, under};
use crate::{numbered, slices, with_every_fault};

/// Lets adds to layers of at least a page be pending.
struct SupportsPending;

impl Ceiling for SupportsPending {
    fn available_bytes(&self, _filter_bytes: u64, _asked_bytes: u64) -> u64 {
        u64::MAX
    }

    fn pending_from_bytes(&self) -> Option<u64> {
        Some(4096)
    }
}

/// Of whole pages, with room for some hundred pending adds.
fn filter() -> Filter {
    Filter::new(&Spec::Native(NativeSpec::murmur3(0.01, 300_000, Scaling::Fixed, 1)), &Unlimited).unwrap()
}

fn add(filter: &mut Filter, items: &[Vec<u8>], ceiling: &impl Ceiling) {
    for batch in items.chunks(BATCH) {
        let added = filter.add_batch(slices(batch), Origin::Client, &Moment(0), ceiling);
        assert_eq!((added.done, added.error), (batch.len(), None));
    }
}

#[test]
fn adds_that_cannot_be_pending_are_written() {
    let (first, more) = (numbered(0, 700), numbered(700, 700));
    let (mut expected, mut total) = (filter(), 0);
    [&first, &more].into_iter().for_each(|items| add(&mut expected, items, &Unlimited));
    for number in 1.. {
        for fault in [Fault::Only(number), Fault::From(number)] {
            let mut filter = in_peace(filter);
            let ((), asked) = under(fault, || add(&mut filter, &first, &SupportsPending));
            add(&mut filter, &more, &SupportsPending);
            assert!(filter == expected && filter.items() == expected.items());
            assert!(first.iter().chain(&more).all(|item| filter.contains(item, &Moment(0))));
            while filter.flush_pending(100) > 0 {}
            assert!(filter == expected && filter.allocated_bytes() == expected.allocated_bytes());
            total += asked.refused;
            if asked.refused == 0 {
                eprintln!("adds that pend: {total} faults");
                assert!(total > 10);
                return;
            }
        }
    }
}

#[test]
fn reading_pending_adds_succeeds_or_changes_nothing() {
    let mut pending = filter();
    add(&mut pending, &numbered(0, 400), &SupportsPending);
    let bytes = pending.contents().pending_bytes;
    assert!(bytes > 0);
    let mut total = with_every_fault("a copy", || {
        let copy = pending.try_clone()?;
        in_peace(|| assert!(copy == pending));
        Ok(())
    });
    let Filter::Native(source) = &pending else { panic!("it is native") };
    total += with_every_fault("a union", || Ok(BloomFilter::union_of(&[source], Origin::Client, &Unlimited)?));
    total += with_every_fault("a merge", || {
        let mut other = in_peace(|| filter().mergeable().unwrap().try_clone().unwrap());
        let result = other.merge(&[source], Origin::Client, &Unlimited);
        in_peace(|| assert!(if result.is_ok() { other == *source } else { other.items() == 0 }));
        Ok(result?)
    });
    total += with_every_fault("a dump", || {
        let mut mark = bloomgate_filter::format::records::DumpMark::default();
        let mut iterator = 0;
        while let Some((next, _)) = pending.next_record(1, iterator, &mut mark)? {
            iterator = next;
        }
        Ok(())
    });
    assert_eq!(pending.contents().pending_bytes, bytes);
    eprintln!("readers of what pends: {total} faults");
}
