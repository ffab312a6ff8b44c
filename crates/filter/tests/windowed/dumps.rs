//! Dumps of idle rings, and of rings whose buckets begin and are dropped meanwhile.

use bloomgate_filter::format::records::DumpMark;
use bloomgate_filter::format::{Arrival, Error, Progress};
use bloomgate_filter::hash::Hasher;
use bloomgate_filter::kinds::{Forgets, Origin, WindowedSpec};
use bloomgate_filter::{Filter, Moment, Unlimited, Value};

use super::{START, after, new, ring, spec, turn_if_due};

/// The generation in dumps.
const GENERATION: u16 = 7;
/// With and without tables of deleted items.
const HASHERS: [Hasher; 2] = [Hasher::murmur3(9), Hasher::SipHash { key: [3; 16] }];

pub type Record = (u64, Vec<u8>);

fn next(filter: &Filter, before: u64, mark: &mut DumpMark) -> Option<Record> {
    let record = filter.next_record(GENERATION, before, mark).unwrap();
    record.map(|(iterator, data)| (iterator, data.into_owned()))
}

/// Returns the records of an idle ring.
pub fn records(filter: &Filter) -> Vec<Record> {
    let (mut mark, mut before, mut records) = (DumpMark::default(), 0, Vec::new());
    while let Some((iterator, data)) = next(filter, before, &mut mark) {
        assert!(iterator < 1 << 53);
        before = iterator;
        records.push((iterator, data));
    }
    records
}

/// Accepts records, each of them twice. After the last, duplicates are refused if buckets were omitted, because they are
/// missing.
fn arrived(records: &[Record]) -> Value {
    taken(records, Ok(Progress::Known))
}

fn taken(records: &[Record], after_the_last: Result<Progress, Error>) -> Value {
    let mut value = Value::from(Arrival::begin(records[0].0, &records[0].1, &Unlimited).unwrap());
    for (index, (iterator, data)) in records.iter().enumerate().skip(1) {
        let is_last = index + 1 == records.len();
        let expected = if is_last { Progress::Complete } else { Progress::Stored };
        assert_eq!(value.accept(GENERATION, *iterator, data), Ok(expected));
        if is_last {
            value = value.take_filter().into();
        }
        let expected = if is_last { after_the_last } else { Ok(Progress::Known) };
        assert_eq!(value.accept(GENERATION, *iterator, data), expected, "record {index}");
        assert_eq!(value.accept(GENERATION, records[0].0, &records[0].1), expected, "the header");
    }
    value
}

pub fn loaded(records: &[Record]) -> Filter {
    arrived(records).take_filter()
}

/// Returns what the records make, and which buckets they omit.
fn loaded_in_part(records: &[Record]) -> Filter {
    taken(records, Err(Error::WrongGeneration)).take_filter()
}

fn add(filter: &mut Filter, item: u32, now: u64) {
    turn_if_due(filter, Moment(now));
    filter.add(&item.to_le_bytes(), Origin::Client, &Moment(now), &Unlimited).unwrap();
}

/// Eight buckets of a second each, with an item in every one.
fn full_ring() -> Filter {
    let mut filter = new(spec(after(7, false), 70, 2, 8));
    (0..8).for_each(|second| add(&mut filter, second, START + u64::from(second) * 1000));
    filter
}

fn slots(filter: &Filter) -> Vec<u64> {
    ring(filter).buckets().map(|bucket| bucket.slot).collect()
}

/// Dumps a ring that is written to after each record.
fn dump_of_a_ring_in_motion(filter: &mut Filter, mut change: impl FnMut(&mut Filter)) -> Vec<Record> {
    let (mut mark, mut before, mut records) = (DumpMark::default(), 0, Vec::new());
    while let Some((iterator, data)) = next(filter, before, &mut mark) {
        before = iterator;
        records.push((iterator, data));
        change(filter);
    }
    records
}

#[test]
fn a_dump_omits_buckets_that_were_dropped_or_began_meanwhile() {
    let mut filter = full_ring();
    let mut now = START + 7500;
    let records = dump_of_a_ring_in_motion(&mut filter, |filter| {
        now += 500;
        add(filter, now as u32, now);
    });
    assert_eq!(records.len(), 9);
    let copy = loaded_in_part(&records);
    // A bucket is dropped with every second record: the first ones were read before, the others were dropped.
    let (left, there) = (slots(&copy), slots(&filter));
    assert!(left.iter().all(|slot| *slot < 8) && left.len() < 8, "{left:?}");
    assert!((0..8).filter(|slot| there.contains(slot)).all(|slot| left.contains(&slot)), "{left:?}, {there:?}");
    for bucket in ring(&copy).buckets() {
        assert!(copy.contains(&(bucket.slot as u32).to_le_bytes(), &Moment(START)), "an item from before the dump");
    }
    assert!(super::pair::saved_and_loaded(&copy) == copy);
}

#[test]
fn a_dump_of_which_every_bucket_was_dropped_makes_a_ring() {
    for forgets in [after(7, false), Forgets::Rolling] {
        let mut filter = new(spec(forgets, 70, 2, 8));
        (0..80).for_each(|item| add(&mut filter, item, START + u64::from(item) * 100));
        let mut item = 100;
        let records = dump_of_a_ring_in_motion(&mut filter, |filter| {
            for _ in 0..100 {
                item += 1;
                add(filter, item, START + u64::from(item) * 1000);
            }
        });
        let mut copy = loaded_in_part(&records);
        assert_eq!(ring(&copy).buckets().len(), 1);
        assert!(super::pair::saved_and_loaded(&copy) == copy);
        assert!(loaded(&super::dumps::records(&copy)) == copy);
        add(&mut copy, 5, START + 1_000_000);
        assert!(copy.contains(&5u32.to_le_bytes(), &Moment(START + 1_000_000)));
    }
}

#[test]
fn duplicate_records_are_accepted_while_buckets_begin_and_are_dropped() {
    let mut filter = new(spec(after(7, false), 70, 2, 8));
    (0..5).for_each(|second| add(&mut filter, second, START + u64::from(second) * 1000));
    let records = records(&filter);
    let mut copy = arrived(&records);
    let add_there = |copy: &mut Value, second: u32| {
        let Value::Filter(ring) = copy else { panic!("it is complete") };
        add(ring, second, START + u64::from(second) * 1000);
    };
    (5..8).for_each(|second| add_there(&mut copy, second));
    for (iterator, data) in &records {
        assert_eq!(copy.accept(GENERATION, *iterator, data), Ok(Progress::Known), "its buckets are all here");
        let mut torn = data.clone();
        let last = torn.len() - 1;
        torn[last] ^= 1;
        assert!(copy.accept(GENERATION, *iterator, &torn).is_err());
        assert_eq!(copy.accept(GENERATION + 1, *iterator, data), Err(Error::WrongGeneration));
    }
    add_there(&mut copy, 8);
    let again = |(iterator, data): &Record| copy.accept(GENERATION, *iterator, data);
    let answers: Vec<_> = records.iter().map(again).collect();
    assert_eq!(answers[0], Err(Error::Different), "the oldest bucket was dropped");
    assert!(answers[1..].iter().all(|answer| *answer == Err(Error::WrongChecksum)));
}

/// Records of a later dump are neither duplicates nor the next records of a ring with other buckets.
#[test]
fn records_of_a_dump_after_a_rotation_are_refused() {
    for (forgets, hasher) in
        [after(7, false), Forgets::Rolling].into_iter().flat_map(|forgets| HASHERS.map(|hasher| (forgets, hasher)))
    {
        let mut source = new(WindowedSpec { hasher, ..spec(forgets, 70, 2, 8) });
        (0..80).for_each(|item| add(&mut source, item, START + u64::from(item) * 100));
        let first = records(&source);
        (80..100).for_each(|item| add(&mut source, item, START + u64::from(item) * 100));
        let second = records(&source);
        assert_ne!(slots(&source), (0..8).collect::<Vec<_>>());
        for come in 1..first.len() {
            let mut copy = Value::from(Arrival::begin(first[0].0, &first[0].1, &Unlimited).unwrap());
            for (iterator, data) in &first[1..come] {
                copy.accept(GENERATION, *iterator, data).unwrap();
            }
            let before = copy.try_clone().unwrap();
            for (iterator, data) in &second {
                assert!(copy.accept(GENERATION, *iterator, data).is_err());
                assert_eq!(copy, before);
            }
        }
        let mut copy = arrived(&first);
        assert!(second.iter().all(|(iterator, data)| copy.accept(GENERATION, *iterator, data).is_err()));
    }
}

/// A dump of an empty ring by a development build: its chunk is bound to no bucket.
#[test]
fn a_dump_of_a_development_build_loads() {
    let header = "b16f6f6d67617465 0200000000000000 0600000000000000 0100000000000000 7b14ae47e17a843f 0900000000000000 \
                  0000000000000000 0700000000000000 0100000000000000 0000000000000000 0000000000000000 0300000000000000 \
                  0100000000000000 0000000000000000 0000000000000000 0000000000000000 0500000000000000 0000000000000000 \
                  0100000000000000 4f1be8b4814e6b3f 0500000000000000 0000000000000000 0800000000000000 0100000000000000 \
                  0200000000000000 a719fede";
    let [header, chunk] = [header, "02d96f71d70000000000000000"].map(|text| {
        let digits: Vec<u8> = text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
        digits.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low).collect::<Vec<_>>()
    });
    let mut arrival = Arrival::begin(3_098_423_767_597_057, &header, &Unlimited).unwrap();
    assert_eq!(arrival.accept(3_098_423_767_597_058, &chunk), Ok(Progress::Complete));
    let hasher = Hasher::murmur3(7);
    assert!(arrival.into_filter() == new(WindowedSpec { rate: 0.01, hasher, ..spec(Forgets::Rolling, 9, 0, 3) }));
}

/// Without a rotation in between, a later dump belongs to the same ring, and its additional items are missing.
#[test]
fn a_later_dump_is_a_duplicate_only_where_equal() {
    for forgets in [after(7, false), after(7, true), Forgets::Rolling] {
        let mut source = new(spec(forgets, 70, 2, 8));
        (0..8).for_each(|item| add(&mut source, item, START + u64::from(item)));
        let first = records(&source);
        add(&mut source, 8, START + 8);
        let second = records(&source);
        let mut copy = arrived(&first);
        let answers: Vec<_> = second.iter().map(|(iterator, data)| copy.accept(GENERATION, *iterator, data)).collect();
        assert_eq!(answers, [Ok(Progress::Known), Err(Error::Different)]);
        // An arriving ring accepts the next chunk of either.
        let mut arriving = Value::from(Arrival::begin(first[0].0, &first[0].1, &Unlimited).unwrap());
        let (iterator, data) = &second[1];
        assert_eq!(arriving.accept(GENERATION, *iterator, data), Ok(Progress::Complete));
        assert!(arriving.take_filter() == source);
    }
}

#[test]
fn torn_records_are_refused_and_change_nothing() {
    let records = records(&full_ring());
    let begin = || Value::from(Arrival::begin(records[0].0, &records[0].1, &Unlimited).unwrap());
    let mut value = begin();
    value.accept(GENERATION, records[1].0, &records[1].1).unwrap();
    let before = value.try_clone().unwrap();
    assert!(value.accept(GENERATION, records[3].0, &records[3].1).is_err(), "out of order");
    let (iterator, data) = &records[2];
    for position in 0..data.len() {
        let mut torn = data.clone();
        torn[position] ^= 1;
        assert!(value.accept(GENERATION, *iterator, &torn).is_err());
        assert!(value.accept(GENERATION, *iterator, &data[..position]).is_err());
    }
    assert_eq!(value, before);
    let (iterator, header) = &records[0];
    for position in 0..header.len() {
        let mut torn = header.clone();
        torn[position] ^= 0x80;
        assert!(Arrival::begin(*iterator, &torn, &Unlimited).is_err());
        assert!(Arrival::begin(*iterator, &header[..position], &Unlimited).is_err());
    }
}
