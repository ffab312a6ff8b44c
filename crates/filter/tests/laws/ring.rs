//! Laws of filters that forget: refusals, and dumps of rings whose buckets begin and are dropped during the dump. The model of a ring, in
//! `ring_model.rs`, says how long an item is found and how many items are remembered; `general.rs` compares every filter with it.

use bloomgate_filter::format::{ByteSource, Error as FormatError, Progress, Source as _};
use bloomgate_filter::hash::Hasher;
use bloomgate_filter::kinds::{BucketStart, Origin, Outcome, Retention, WindowedFilter, WindowedSpec};
use bloomgate_filter::{CLIENT_LAYERS_MAX, Error, Filter, Moment, Scaling, Spec, Unlimited};

use crate::forms::{
    GENERATION, Record, arrived, dump_while, dumped, filter_mut, read_own, records, saved_and_read, snapshot, taken,
};
use crate::rows::{EXACT, Room};
use crate::world::{START, begin_bucket_if_due, item};

/// With and without tables of deleted items.
const HASHERS: [Hasher; 2] = [Hasher::murmur3(9), Hasher::SipHash { key: [3; 16] }];

fn after(seconds: u64, is_sliding: bool) -> Retention {
    Retention::After { seconds, is_sliding }
}

fn spec(forgets: Retention, capacity: u64, expansion: u32, buckets: u32) -> WindowedSpec {
    let scaling = if forgets == Retention::Rolling { Scaling::Fixed } else { Scaling::from_expansion(expansion) };
    WindowedSpec { rate: EXACT, capacity, scaling, hasher: HASHERS[0], forgets, buckets }
}

fn new(spec: WindowedSpec) -> Filter {
    Filter::new(&Spec::Windowed(spec), &Unlimited).unwrap()
}

fn ring(filter: &Filter) -> &WindowedFilter {
    filter.windowed().unwrap()
}

fn slots(filter: &Filter) -> Vec<u64> {
    ring(filter).buckets().map(|bucket| bucket.slot).collect()
}

fn add(filter: &mut Filter, number: u32, now: u64) -> Result<Outcome, Error> {
    begin_bucket_if_due(filter, Moment(now));
    filter.add(&item(number), Origin::Client, &Moment(now), &Unlimited)
}

fn found(filter: &Filter, number: u32, now: u64) -> bool {
    filter.contains(&item(number), &Moment(now))
}

#[test]
fn a_turn_that_cannot_follow_the_newest_bucket_is_refused() {
    let mut filter = new(spec(after(7, false), 70, 2, 8));
    add(&mut filter, 1, START).unwrap();
    let before = filter.try_clone().unwrap();
    let next = ring(&filter).bucket_now(Moment(START + 500));
    let windowed = filter.windowed_mut().unwrap();
    for start in [
        BucketStart { slot: 0, ..next },
        BucketStart { begin: Moment(START - 1), ..next },
        BucketStart { end: Moment(next.begin.0 - 1), ..next },
        BucketStart { slot: 1 << 63, ..next },
        BucketStart { end: Moment(u64::MAX), ..next },
    ] {
        assert_eq!(windowed.begin_bucket(start, &Unlimited), Err(Error::Unsound), "{start:?}");
    }
    assert_eq!(windowed.begin_bucket(BucketStart { capacity: 0, ..next }, &Unlimited), Err(Error::CapacityOutOfRange));
    assert!(filter == before);
}

#[test]
fn the_layers_of_all_buckets_together_are_bounded() {
    for limits in [Room::layers(CLIENT_LAYERS_MAX), Room::UNLIMITED] {
        let mut filter = new(WindowedSpec { rate: 1e-3, ..spec(after(3, false), 1, 1, 64) });
        let (mut number, mut refused) = (0u32, 0);
        for bucket in 0..70u64 {
            let now = Moment(START + bucket * 48);
            let windowed = filter.windowed_mut().unwrap();
            let start = BucketStart { capacity: 1, ..windowed.bucket_now(now) };
            windowed.begin_bucket(start, &limits).expect("a bucket begins, however many layers there are");
            for _ in 0..300 {
                number += 1;
                match filter.add(&item(number), Origin::Client, &now, &limits) {
                    Ok(_) => {}
                    Err(error) => {
                        assert_eq!(error, Error::TooManyLayers);
                        refused += 1;
                        break;
                    }
                }
            }
            assert!(filter.layer_count() <= limits.layers.min(4096 - 64) + 64);
        }
        assert!(refused > 0);
        assert!(saved_and_read(&filter) == filter && dumped(&filter) == filter);
    }
}

#[test]
fn a_ceiling_counts_all_buckets_and_a_refusal_changes_nothing() {
    let mut filter = new(spec(after(7, false), 7000, 0, 8));
    add(&mut filter, 1, START).unwrap();
    let limits = Room::of(filter.size_bytes() * 3 + 10);
    for second in 1..3 {
        let windowed = filter.windowed_mut().unwrap();
        let start = windowed.bucket_due(Moment(START + second * 1000)).unwrap();
        windowed.begin_bucket(start, &limits).unwrap();
    }
    let before = filter.try_clone().unwrap();
    let windowed = filter.windowed_mut().unwrap();
    let start = windowed.bucket_due(Moment(START + 3000)).unwrap();
    assert!(matches!(windowed.begin_bucket(start, &limits), Err(Error::AboveCeiling { available_bytes: 10, .. })));
    assert!(filter == before);
    // Later the first bucket is forgotten, and there is room.
    let windowed = filter.windowed_mut().unwrap();
    let start = windowed.bucket_due(Moment(START + 8000)).unwrap();
    assert_eq!(windowed.begin_bucket(start, &limits), Ok(1));
}

/// The stored form of a ring states its schedule and its buckets.
#[test]
fn impossible_rings_are_refused() {
    let mut filter = new(WindowedSpec { rate: 0.01, ..spec(after(7, false), 70, 0, 8) });
    for second in 0..2 {
        begin_bucket_if_due(&mut filter, Moment(START + second * 1000));
    }
    let bytes = snapshot(&filter);
    let mut source = ByteSource(&bytes);
    let numbers: Vec<u64> = (0..17).map(|_| source.u64().unwrap()).collect();
    assert_eq!(numbers[8..17], [7, 0, 8, 2, 0, START, START + 1000, 10, 0]);
    let with = |index: usize, number: u64| {
        let mut bytes = bytes.clone();
        bytes[index * 8..index * 8 + 8].copy_from_slice(&number.to_le_bytes());
        read_own(&bytes)
    };
    for (index, number, what) in [
        (8, 0, "a rolling ring has no times"),
        (8, 10_000_000_001, "a window without end"),
        (9, 2, "sliding is yes or no"),
        (10, 2, "too few buckets"),
        (10, 65, "too many buckets"),
        (11, 0, "no bucket"),
        (11, 9, "more buckets than there may be"),
        (12, 1, "a slot twice"),
        (12, 1 << 63, "a slot above the numbers of commands"),
        (13, START + 1001, "a bucket that ends before it begins"),
        (13, START - 5, "a bucket that takes items for longer than a span"),
        (14, START + 1001, "a bucket that ends after the next begins"),
        (15, 0, "a bucket for nothing"),
        (16, 2, "an item renewed without SLIDING"),
        (17, 0, "no layer"),
    ] {
        assert!(with(index, number).is_err(), "{what}");
    }
    assert!(with(13, START + 5).is_ok());
    // With SLIDING, but in a bucket without items.
    let with_both = |sliding: u64, flags: u64| {
        let mut bytes = bytes.clone();
        bytes[9 * 8..10 * 8].copy_from_slice(&sliding.to_le_bytes());
        bytes[16 * 8..17 * 8].copy_from_slice(&flags.to_le_bytes());
        read_own(&bytes)
    };
    assert!(with_both(1, 1).is_ok() && with_both(1, 2).is_err());
}

/// Eight buckets of a second each, with an item in every one.
fn full_ring() -> Filter {
    let mut filter = new(spec(after(7, false), 70, 2, 8));
    (0..8).for_each(|second| _ = add(&mut filter, second, START + u64::from(second) * 1000));
    filter
}

#[test]
fn a_dump_omits_buckets_that_were_dropped_or_began_meanwhile() {
    let mut filter = full_ring();
    let mut now = START + 7500;
    let records = dump_while(&mut filter, |filter| {
        now += 500;
        add(filter, now as u32, now).unwrap();
    });
    assert_eq!(records.len(), 9);
    let mut value = arrived(&records);
    for (iterator, data) in [&records[0], &records[8]] {
        let again = value.accept(GENERATION, *iterator, data, &Unlimited);
        assert_eq!(again, Err(FormatError::WrongGeneration), "buckets are missing");
    }
    let copy = taken(value);
    // A bucket is dropped with every second record: the first ones were read before, the others were dropped.
    let (left, there) = (slots(&copy), slots(&filter));
    assert!(left.iter().all(|slot| *slot < 8) && left.len() < 8, "{left:?}");
    assert!((0..8).filter(|slot| there.contains(slot)).all(|slot| left.contains(&slot)), "{left:?}, {there:?}");
    for bucket in ring(&copy).buckets() {
        assert!(found(&copy, bucket.slot as u32, START), "an item from before the dump");
    }
    assert!(saved_and_read(&copy) == copy);
}

#[test]
fn a_dump_of_which_every_bucket_was_dropped_makes_a_ring() {
    for forgets in [after(7, false), Retention::Rolling] {
        let mut filter = new(spec(forgets, 70, 2, 8));
        (0..80).for_each(|item| _ = add(&mut filter, item, START + u64::from(item) * 100).unwrap());
        let mut items = 101..;
        let records = dump_while(&mut filter, |filter| {
            for item in items.by_ref().take(100) {
                add(filter, item, START + u64::from(item) * 1000).unwrap();
            }
        });
        let mut copy = taken(arrived(&records));
        assert_eq!(ring(&copy).buckets().len(), 1);
        assert!(saved_and_read(&copy) == copy && dumped(&copy) == copy);
        add(&mut copy, 5, START + 1_000_000).unwrap();
        assert!(found(&copy, 5, START + 1_000_000));
    }
}

#[test]
fn duplicate_records_are_accepted_while_buckets_begin_and_are_dropped() {
    let mut filter = new(spec(after(7, false), 70, 2, 8));
    let add_at = |filter: &mut Filter, second: u32| _ = add(filter, second, START + u64::from(second) * 1000).unwrap();
    (0..5).for_each(|second| add_at(&mut filter, second));
    let records = records(&filter);
    let mut copy = arrived(&records);
    (5..8).for_each(|second| add_at(filter_mut(&mut copy), second));
    for (iterator, data) in &records {
        assert_eq!(
            copy.accept(GENERATION, *iterator, data, &Unlimited),
            Ok(Progress::Known),
            "its buckets are all here"
        );
        assert_eq!(copy.accept(GENERATION + 1, *iterator, data, &Unlimited), Err(FormatError::WrongGeneration));
    }
    add_at(filter_mut(&mut copy), 8);
    let again = |(iterator, data): &Record| copy.accept(GENERATION, *iterator, data, &Unlimited);
    let answers: Vec<_> = records.iter().map(again).collect();
    assert_eq!(answers[0], Err(FormatError::Different), "the oldest bucket was dropped");
    assert!(answers[1..].iter().all(|answer| *answer == Err(FormatError::WrongChecksum)));
}
