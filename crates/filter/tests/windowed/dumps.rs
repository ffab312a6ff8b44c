//! Dumps: of rings that stand still, and of rings whose buckets go and begin meanwhile.

use bloomgate_filter::format::Progress;
use bloomgate_filter::format::records::DumpMark;
use bloomgate_filter::kinds::{Arrival, Forgets, Origin};
use bloomgate_filter::{Filter, Moment, Unlimited, Value};

use super::{START, after, new, ring, spec, turn_if_due};

/// The generation in dumps.
const GENERATION: u16 = 7;

pub type Record = (u64, Vec<u8>);

fn next(filter: &Filter, before: u64, mark: &mut DumpMark) -> Option<Record> {
    let record = filter.next_record(GENERATION, before, mark).unwrap();
    record.map(|(iterator, data)| (iterator, data.into_owned()))
}

/// The records of a ring that stands still.
pub fn records(filter: &Filter) -> Vec<Record> {
    let (mut mark, mut before, mut records) = (DumpMark::default(), 0, Vec::new());
    while let Some((iterator, data)) = next(filter, before, &mut mark) {
        assert!(iterator < 1 << 53);
        before = iterator;
        records.push((iterator, data));
    }
    records
}

/// Takes records, each of them twice.
fn arrived(records: &[Record]) -> Value {
    let mut value = Value::from(Arrival::begin(records[0].0, &records[0].1, &Unlimited).unwrap());
    for (index, (iterator, data)) in records.iter().enumerate().skip(1) {
        let is_last = index + 1 == records.len();
        let expected = if is_last { Progress::Complete } else { Progress::Stored };
        assert_eq!(value.accept(GENERATION, *iterator, data), Ok(expected));
        if is_last {
            value = value.take_filter().into();
        }
        assert_eq!(value.accept(GENERATION, *iterator, data), Ok(Progress::Known), "record {index}");
        assert_eq!(value.accept(GENERATION, records[0].0, &records[0].1), Ok(Progress::Known), "the header");
    }
    value
}

pub fn loaded(records: &[Record]) -> Filter {
    arrived(records).take_filter()
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
fn buckets_that_went_or_began_meanwhile_are_left_out() {
    let mut filter = full_ring();
    let mut now = START + 7500;
    let records = dump_of_a_ring_in_motion(&mut filter, |filter| {
        now += 500;
        add(filter, now as u32, now);
    });
    assert_eq!(records.len(), 9);
    let copy = loaded(&records);
    // A bucket goes with every second record: the first ones were read before, the others had gone.
    let (left, there) = (slots(&copy), slots(&filter));
    assert!(left.iter().all(|slot| *slot < 8) && left.len() < 8, "{left:?}");
    assert!((0..8).filter(|slot| there.contains(slot)).all(|slot| left.contains(&slot)), "{left:?}, {there:?}");
    for bucket in ring(&copy).buckets() {
        assert!(copy.contains(&(bucket.slot as u32).to_le_bytes(), &Moment(START)), "what it took before the dump");
    }
    assert!(super::pair::saved_and_loaded(&copy) == copy);
}

#[test]
fn a_ring_of_which_every_bucket_went_meanwhile_is_still_a_ring() {
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
        let mut copy = loaded(&records);
        assert_eq!(ring(&copy).buckets().len(), 1);
        assert!(super::pair::saved_and_loaded(&copy) == copy);
        assert!(loaded(&super::dumps::records(&copy)) == copy);
        add(&mut copy, 5, START + 1_000_000);
        assert!(copy.contains(&5u32.to_le_bytes(), &Moment(START + 1_000_000)));
    }
}

#[test]
fn records_come_again_to_a_ring_whose_buckets_have_gone() {
    let filter = full_ring();
    let records = records(&filter);
    let mut copy = arrived(&records);
    let Value::Filter(ring) = &mut copy else { panic!("all has come") };
    (8..14).for_each(|second| add(ring, second, START + u64::from(second) * 1000));
    for (iterator, data) in &records {
        assert_eq!(copy.accept(GENERATION, *iterator, data), Ok(Progress::Known));
        let mut torn = data.clone();
        let last = torn.len() - 1;
        torn[last] ^= 1;
        assert!(copy.accept(GENERATION, *iterator, &torn).is_err());
        assert!(copy.accept(GENERATION + 1, *iterator, data).is_err());
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
