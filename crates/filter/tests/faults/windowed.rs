//! Faults in rings: turns to the next bucket, adds that begin or grow one, copies, snapshots, records.

use bloomgate_filter::format::records::DumpMark;
use bloomgate_filter::format::{Arrival, ByteSink, ByteSource, Error, StoredAs};
use bloomgate_filter::hash::Hasher;
use bloomgate_filter::kinds::{Forgets, Origin, WindowedSpec};
use bloomgate_filter::{Filter, Moment, Scaling, Spec, Unlimited, Value};

use crate::allocator::in_peace;
use crate::{numbered, with_every_fault};

const GENERATION: u16 = 7;

fn turn(filter: &mut Filter, second: u64) -> Result<(), Error> {
    let windowed = filter.windowed_mut().unwrap();
    windowed.turn(windowed.turn_now(Moment(second * 1000)), &Unlimited)?;
    Ok(())
}

/// One that grows and one that rolls, with items in every bucket.
fn rings() -> [Filter; 2] {
    let timed = Forgets::After { seconds: 3, is_sliding: true };
    [(timed, Scaling::from_expansion(2)), (Forgets::Rolling, Scaling::Fixed)].map(|(forgets, scaling)| {
        let hasher = Hasher::SipHash { key: [4; 16] };
        let spec = WindowedSpec { rate: 0.001, capacity: 30, scaling, hasher, forgets, buckets: 4 };
        let mut filter = Filter::new(&Spec::Windowed(spec), &Unlimited).unwrap();
        for second in 0..4u8 {
            let now = u64::from(second);
            turn(&mut filter, now).unwrap();
            for item in numbered(usize::from(second) * 8, 8) {
                filter.add(&item, Origin::Client, &Moment(now * 1000), &Unlimited).unwrap();
            }
        }
        filter.windowed_mut().unwrap().take_retired();
        filter
    })
}

#[test]
fn creating_a_ring_succeeds_or_fails_cleanly() {
    for filter in rings() {
        let spec = filter.spec();
        assert!(with_every_fault("a ring", || Filter::new(&spec, &Unlimited).map_err(Error::from)) > 0);
    }
}

#[test]
fn a_turn_without_memory_changes_nothing() {
    for filter in rings() {
        let faults = with_every_fault("a turn", || {
            let mut ring = in_peace(|| filter.try_clone().unwrap());
            let result = turn(&mut ring, 4);
            in_peace(|| {
                assert_eq!(result.is_err(), ring == filter);
                drop(ring);
            });
            result
        });
        assert!(faults >= 3, "the bits, the layer, the list of what goes: {faults}");
    }
}

#[test]
fn adds_without_memory_are_present_as_far_as_answered() {
    let items = numbered(1000, 30);
    for filter in rings() {
        let faults = with_every_fault("adds", || {
            let mut ring = in_peace(|| filter.try_clone().unwrap());
            let batch = items.iter().map(Vec::as_slice);
            let added = ring.add_batch(batch, Origin::Client, &Moment(3000), &Unlimited);
            in_peace(|| {
                assert_eq!(added.error.is_none(), added.done == items.len());
                let rest = items[added.done..].iter().map(Vec::as_slice);
                assert_eq!(ring.add_batch(rest, Origin::Client, &Moment(3000), &Unlimited).error, None);
                assert!(items.iter().all(|item| ring.contains(item, &Moment(3000))));
                drop(ring);
            });
            added.error.map_or(Ok(()), |error| Err(error.into()))
        });
        assert!(faults >= 2, "{faults}");
    }
}

#[test]
fn storing_a_ring_succeeds_or_fails_cleanly() {
    for filter in rings() {
        let copies = with_every_fault("a copy", || {
            let copy = filter.try_clone()?;
            in_peace(|| assert!(copy == filter));
            Ok(())
        });
        assert!(copies >= 8);
        let mut sink = ByteSink::default();
        Value::from(filter.try_clone().unwrap()).write(&mut sink);
        let read = with_every_fault("a snapshot", || {
            let value = StoredAs::Own.read(1, &mut ByteSource(&sink.0), &Unlimited)?;
            in_peace(|| assert!(value == Value::from(filter.try_clone().unwrap())));
            Ok(())
        });
        assert!(read >= 8);
    }
}

#[test]
fn records_are_accepted_or_change_nothing() {
    for filter in rings() {
        let (mut mark, mut before, mut records) = (DumpMark::default(), 0, Vec::new());
        while let Some((iterator, data)) = filter.next_record(GENERATION, before, &mut mark).unwrap() {
            records.push((iterator, data.into_owned()));
            before = iterator;
        }
        let begin = || Arrival::begin(records[0].0, &records[0].1, &Unlimited);
        assert!(with_every_fault("a header", begin) >= 8);
        let mut arrival = begin().unwrap();
        for (iterator, data) in &records[1..] {
            with_every_fault("a record", || {
                let mut again = in_peace(|| arrival.try_clone().unwrap());
                let result = again.accept(*iterator, data);
                in_peace(|| {
                    assert!(result.is_ok() || again == arrival);
                    drop(again);
                });
                result
            });
            arrival.accept(*iterator, data).unwrap();
        }
        assert!(arrival.into_filter() == filter);
        for (index, (iterator, data)) in records.iter().enumerate() {
            let before = if index == 0 { 0 } else { records[index - 1].0 };
            with_every_fault("a record that is made", || {
                let mut mark = in_peace(|| mark.clone());
                let made = filter.next_record(GENERATION, before, &mut mark)?;
                in_peace(|| {
                    assert!(made == Some((*iterator, data.as_slice().into())));
                    drop((made, mark));
                });
                Ok(())
            });
        }
    }
}
