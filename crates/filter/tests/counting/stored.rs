//! The stored forms and dumps of counting filters: golden bytes, round trips, duplicates, impossible descriptions.

use bloomgate_filter::cells::{Cells as _, Counters};
use bloomgate_filter::format::records::DumpMark;
use bloomgate_filter::format::{Arrival, ByteSink, ByteSource, Error, Progress, Sink as _, StoredAs};
use bloomgate_filter::geometry::{BlockedCounters, Geometry as _};
use bloomgate_filter::hash::{Hasher, ItemHash};
use bloomgate_filter::kinds::{CountingSpec, Origin};
use bloomgate_filter::{Error as FilterError, Filter, Unlimited, Value};
use proptest::prelude::*;

use crate::{NOW, add, add_one, commands, config, count, new, remove, spec, specs};

const GENERATION: u16 = 5;

fn written(value: &Value) -> Vec<u8> {
    let mut sink = ByteSink::default();
    value.write(&mut sink);
    sink.0
}

fn read(bytes: &[u8]) -> Result<Value, Error> {
    let mut source = ByteSource(bytes);
    let value = StoredAs::Own.read(1, &mut source, &Unlimited)?;
    assert!(source.0.is_empty(), "everything is read");
    Ok(value)
}

fn dumped(filter: &Filter) -> Vec<(u64, Vec<u8>)> {
    let (mut records, mut before, mut mark) = (Vec::new(), 0, DumpMark::default());
    while let Some((iterator, data)) = filter.next_record(GENERATION, before, &mut mark).unwrap() {
        before = iterator;
        records.push((iterator, data.into_owned()));
    }
    records
}

/// Returns what some of the records make.
fn arrived(records: &[(u64, Vec<u8>)]) -> Value {
    let ((iterator, header), chunks) = records.split_first().unwrap();
    let mut value = Value::from(Arrival::begin(*iterator, header, &Unlimited).unwrap());
    for (iterator, data) in chunks {
        assert!(value.accept(GENERATION, *iterator, data).is_ok());
        assert!(value.accept(GENERATION, *iterator, data) == Ok(Progress::Known));
    }
    value
}

/// A filter with more than one chunk of counters.
fn large() -> Filter {
    let mut filter = new(spec(0.01, if cfg!(miri) { 100 } else { 300_000 }));
    (0..100u32).for_each(|item| _ = add_one(&mut filter, &(item % 30).to_le_bytes()).unwrap());
    filter
}

#[test]
fn golden_bytes() {
    let mut filter = new(spec(0.01, 100));
    (0..3).for_each(|_| _ = add_one(&mut filter, b"hello").unwrap());
    let bytes = written(&filter.into());
    let numbers: Vec<u64> = bytes.as_chunks().0.iter().take(16).map(|number| u64::from_le_bytes(*number)).collect();
    let rate = 0.01f64.to_bits();
    // Version, kind, hash, rate, capacity, expansion, seed, policy; layers; rate, capacity, items, k, groups, blocks per group;
    // bytes of the counters.
    assert_eq!(numbers, [1, 4, 1, rate, 100, 0, 4242, 1, 1, rate, 100, 3, 7, 1, 2, 512]);
    // A test of the geometry fixes the positions of counters.
    let geometry = BlockedCounters { groups: 1, blocks_per_group: 2, hashes: 7 };
    let mut counters = Counters::zeroed(2).unwrap();
    (0..3).for_each(|_| geometry.insert(&mut counters, geometry.probe(ItemHash::of(b"hello", 4242))));
    assert!(bytes[128..] == *counters.bytes());
    let key = *b"0123456789abcdef";
    let keyed = new(CountingSpec { hasher: Hasher::SipHash { key }, ..spec(0.01, 100) });
    let mut sink = ByteSink::default();
    let halves = [u64::from_le_bytes(*b"01234567"), u64::from_le_bytes(*b"89abcdef")];
    let numbers = [1, 4, 2, rate, 100, 0, halves[0], halves[1], 1, 1, rate, 100, 0, 7, 1, 2, 0];
    numbers.into_iter().for_each(|number| sink.put_u64(number));
    assert!(written(&keyed.into()) == sink.0, "and no table");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn stored_dumped_and_copied_filters_are_equal(spec in specs(), commands in commands()) {
        let mut filter = new(spec);
        for (is_add, items) in commands {
            if is_add { _ = add(&mut filter, &items) } else { _ = remove(&mut filter, &items, Origin::Client) }
        }
        let records = dumped(&filter);
        let value = Value::from(filter);
        let again = read(&written(&value));
        prop_assert_eq!(again.as_ref(), Ok(&value));
        prop_assert_eq!(&value.try_clone().unwrap(), &value);
        let mut told = Vec::new();
        value.for_each_record(GENERATION, |record| {
            let bloomgate_filter::format::AofRecord::Chunk { iterator, data } = record else { panic!("{record:?}") };
            told.push((iterator, data.to_vec()));
            Ok(())
        }).unwrap();
        prop_assert_eq!(&told, &records);
        let mut arriving = arrived(&records);
        prop_assert_eq!(&Value::from(arriving.take_filter()), &value);
        let header = arrived(&records[..1]);
        prop_assert_eq!(read(&written(&header)), Ok(header));
    }
}

/// The chunks of a changing filter are from different moments. Items that were members all the time are found nevertheless.
#[test]
fn a_dump_of_a_changing_filter_has_all_lasting_members() {
    let mut filter = large();
    let fleeting: Vec<_> = (0..20u32).map(|item| format!("fleeting {item}").into_bytes()).collect();
    add(&mut filter, &fleeting);
    let mut mark = DumpMark::default();
    let (mut before, header) = filter.next_record(GENERATION, 0, &mut mark).unwrap().unwrap();
    let mut arrival = Arrival::begin(before, &header, &Unlimited).unwrap();
    let mut round = 0;
    while let Some((iterator, data)) = filter.next_record(GENERATION, before, &mut mark).unwrap() {
        let data = data.into_owned();
        assert!(arrival.accept(iterator, &data).is_ok());
        before = iterator;
        round += 1;
        remove(&mut filter, &fleeting, Origin::Client);
        let items: Vec<_> = (0..20u32).map(|item| format!("round {round} {item}").into_bytes()).collect();
        add(&mut filter, &items);
    }
    let copy = arrival.into_filter();
    assert!((0..30u32).all(|item| copy.contains(&item.to_le_bytes(), &NOW)));
    assert!((0..30u32).all(|item| count(&copy, &item.to_le_bytes()) >= 3));
    assert!(copy.items() >= 100 && copy.items() <= copy.total_capacity());
}

#[test]
fn a_duplicate_record_after_the_last_is_accepted() {
    let filter = large();
    let records = dumped(&filter);
    let mut value = Value::from(filter);
    let before = value.try_clone().unwrap();
    for (iterator, data) in &records {
        assert_eq!(value.accept(GENERATION, *iterator, data), Ok(Progress::Known));
        assert_eq!(value.obey(GENERATION, *iterator, data), Ok(Progress::Known));
        assert_eq!(value.accept(GENERATION + 1, *iterator, data), Err(Error::WrongGeneration));
        let torn = [&data[..data.len() - 1], &[!data[data.len() - 1]]].concat();
        assert_eq!(value.accept(GENERATION, *iterator, &torn), Err(Error::WrongChecksum));
    }
    assert_eq!(value, before);
    let other = dumped(&new(spec(0.01, 17)));
    assert!(other.iter().all(|(iterator, data)| value.accept(GENERATION, *iterator, data).is_err()));
    let Value::Filter(filter) = &mut value else { panic!("a filter") };
    remove(filter, &[0u32.to_le_bytes().to_vec()], Origin::Client);
    for (index, (iterator, data)) in records.iter().enumerate() {
        let expected = if index == 0 { Ok(Progress::Known) } else { Err(Error::Different) };
        assert_eq!(value.accept(GENERATION, *iterator, data), expected, "its counters or its count have changed");
    }
}

/// Records of a later dump are not duplicates: items would be lost without an error.
#[test]
fn a_later_dump_is_a_duplicate_only_where_equal() {
    let mut source = large();
    let first = dumped(&source);
    add_one(&mut source, b"another").unwrap();
    let second = dumped(&source);
    for come in 1..=first.len() {
        let mut copy = arrived(&first[..come]);
        let (header, chunks) = second[..come].split_first().unwrap();
        assert_eq!(copy.accept(GENERATION, header.0, &header.1), Ok(Progress::Known));
        for (iterator, data) in chunks {
            assert_eq!(copy.accept(GENERATION, *iterator, data), Err(Error::Different));
        }
    }
}

#[test]
fn an_impossible_description_is_refused() {
    let bytes = written(&new(spec(0.01, 100)).into());
    let with = |index: usize, number: u64| {
        let mut bytes = bytes.clone();
        bytes[index * 8..index * 8 + 8].copy_from_slice(&number.to_le_bytes());
        read(&bytes)
    };
    let unsound = Err(Error::Filter(FilterError::Unsound));
    assert!(read(&bytes).is_ok());
    assert_eq!(with(3, 0.3f64.to_bits()), unsound, "rate");
    assert_eq!(with(3, f64::NAN.to_bits()), unsound, "rate");
    assert_eq!(with(4, 0), unsound, "capacity");
    assert_eq!(with(4, 101), unsound, "capacity that is not the layer's");
    assert_eq!(with(5, 2), unsound, "expansion");
    assert_eq!(with(7, 2), unsound, "policy");
    assert_eq!(with(8, 0), unsound, "no layer");
    assert_eq!(with(9, 0.02f64.to_bits()), unsound, "rate of the layer");
    assert_eq!(with(10, 99), unsound, "capacity of the layer");
    assert_eq!(with(11, 101), unsound, "more items than capacity");
    assert_eq!(with(12, 65), unsound, "hashes");
    assert_eq!(with(13, 0), unsound, "groups");
    assert_eq!(with(13, 1 << 55), unsound, "groups");
    assert_eq!(with(14, 17), unsound, "blocks of a group");
    assert_eq!(with(15, 511), Err(Error::Truncated));
    let two_layers = [&bytes[..64], &2u64.to_le_bytes(), &bytes[72..120], &bytes[72..120], &bytes[120..]].concat();
    assert_eq!(read(&two_layers), unsound, "two layers");
}
