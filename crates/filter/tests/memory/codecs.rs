//! Faults in the codecs: reading snapshots, dumps and arguments, and creating records.

use std::cell::RefCell;

use bloomgate_filter::format::records::DumpMark;
use bloomgate_filter::format::{AofRecord, Arrival, ByteSink, ByteSource, Error, Progress, Sink};
use bloomgate_filter::kinds::valkey_bloom::load;
use bloomgate_filter::{Filter, Unlimited, Value};

use crate::allocator::{Asked, Fault, in_peace, under};
use crate::kinds::ALL;
use crate::{filled, with_every_fault};

/// The generation in dumps.
const GENERATION: u16 = 7;
/// One layer, many layers, and a layer of several chunks.
const SHAPES: [(u64, usize); 3] = [(100, 50), (4, 200), (1_500_000, 1000)];

type Record = (u64, Vec<u8>);

/// Returns the snapshot of a value.
fn written(value: &Value) -> Vec<u8> {
    let mut sink = ByteSink::default();
    value.write(&mut sink);
    sink.0
}

fn filters() -> impl Iterator<Item = (String, Filter)> {
    let shapes = SHAPES.into_iter().flat_map(|shape| ALL.map(|kind| (kind, shape)));
    shapes.map(|(kind, (capacity, items))| {
        let filter = filled(kind, capacity, items);
        (format!("{}, {} layers", kind.name, filter.layer_count()), filter)
    })
}

/// Everything that can be stored: filters of every kind in three shapes, and partly arrived filters of the kinds with records.
fn values() -> impl Iterator<Item = (String, Value)> {
    filters().flat_map(|(name, filter)| {
        let half = half_arrived(&filter).map(|arrival| (format!("half of {name}"), arrival.into()));
        half.into_iter().chain([(name, filter.into())])
    })
}

/// Returns the records of a filter's dump, if its layout has any, and its state when it began.
fn records(filter: &Filter) -> (Vec<Record>, DumpMark) {
    let (mut records, mut mark, mut before) = (Vec::new(), DumpMark::default(), 0);
    while let Ok(Some((iterator, data))) = filter.next_record(GENERATION, before, &mut mark) {
        before = iterator;
        records.push((iterator, data.into_owned()));
    }
    (records, mark)
}

fn begin((iterator, header): &Record) -> Result<Arrival, Error> {
    Arrival::begin(*iterator, header, &Unlimited)
}

fn half_arrived(filter: &Filter) -> Option<Arrival> {
    let (records, _) = records(filter);
    let (header, chunks) = records.split_first()?;
    let mut arrival = begin(header).unwrap();
    for (iterator, data) in &chunks[..chunks.len() / 2] {
        assert_eq!(arrival.accept(*iterator, data, &Unlimited), Ok(Progress::Stored));
    }
    Some(arrival)
}

#[test]
fn a_snapshot_or_a_copy_without_memory_is_an_error() {
    let mut total = 0;
    for (name, value) in values() {
        let bytes = written(&value);
        let faults = with_every_fault(&format!("the snapshot of {name}"), || {
            let stored_as = value.stored_as();
            let again = stored_as.read(stored_as.encoding(), &mut ByteSource(&bytes), &Unlimited)?;
            in_peace(|| assert!(again == value));
            Ok(())
        });
        assert!(faults >= 4, "{name}: {faults}");
        total += faults;
        total += with_every_fault(&format!("a copy of {name}"), || {
            let copy = value.try_clone()?;
            in_peace(|| assert!(copy == value));
            Ok(())
        });
        assert_eq!(written(&value), bytes);
    }
    eprintln!("snapshots and copies: {total} faults");
}

#[test]
fn a_value_is_saved_without_memory() {
    struct Nowhere(u64);
    impl Sink for Nowhere {
        fn put_u64(&mut self, _: u64) {
            self.0 += 8;
        }
        fn put_bytes(&mut self, bytes: &[u8]) {
            self.0 += 8 + bytes.len() as u64;
        }
    }
    for (name, value) in values() {
        let length = written(&value).len() as u64;
        let (told, asked) = under(Fault::From(1), || {
            let mut sink = Nowhere(0);
            value.write(&mut sink);
            sink.0
        });
        assert_eq!((told, asked), (length, Asked::default()), "{name}");
    }
}

#[test]
fn a_dump_without_memory_is_an_error_and_can_continue() {
    let mut total = 0;
    for (name, filter) in filters() {
        let (records, _) = records(&filter);
        let Some((header, chunks)) = records.split_first() else { continue };
        total += with_every_fault(&format!("the header of {name}"), || begin(header));
        let mut arrival = begin(header).unwrap();
        for (iterator, data) in [header].into_iter().chain(chunks) {
            total += with_every_fault(&format!("record {iterator} of {name}"), || {
                let mut again = in_peace(|| arrival.try_clone().unwrap());
                let result = again.accept(*iterator, data, &Unlimited);
                in_peace(|| {
                    assert!(result.is_ok() || again == arrival);
                    drop(again);
                });
                result
            });
            assert!(arrival.accept(*iterator, data, &Unlimited).is_ok());
        }
        // In a complete filter, duplicates are checked: the bits, and of our own format the header.
        let whole = arrival.into_value();
        assert!(matches!(&whole, Value::Filter(whole) if *whole == filter));
        let whole = RefCell::new(whole);
        let has_known_header = !matches!(filter, Filter::RedisBloom(_));
        for (iterator, data) in [header].into_iter().filter(|_| has_known_header).chain(chunks) {
            total += with_every_fault(&format!("record {iterator} of {name} again"), || {
                let known = whole.borrow_mut().accept(GENERATION, *iterator, data, &Unlimited)?;
                in_peace(|| assert_eq!(known, Progress::Known));
                Ok(())
            });
        }
    }
    eprintln!("dumps that arrive: {total} faults");
}

#[test]
fn a_record_without_memory_is_an_error() {
    let mut faults = 0;
    for (name, filter) in filters() {
        let (records, mark) = records(&filter);
        let mut before = 0;
        for (iterator, data) in records {
            faults += with_every_fault(&format!("record {iterator} of {name}"), || {
                let mut mark = in_peace(|| mark.clone());
                let made = filter.next_record(GENERATION, before, &mut mark)?;
                in_peace(|| {
                    assert!(made == Some((iterator, data.as_slice().into())));
                    drop((made, mark));
                });
                Ok(())
            });
            before = iterator;
        }
    }
    assert!(faults > 20, "{faults}");
    eprintln!("dumps that are made: {faults} faults");
}

#[test]
fn an_effect_without_memory_is_an_error() {
    let mut faults = 0;
    for (name, value) in values() {
        let mut effects = Vec::new();
        let mut keep = |record: AofRecord| {
            effects.push(Effect::of(&record)?);
            Ok(())
        };
        value.for_each_record(GENERATION, &mut keep).unwrap();
        faults += with_every_fault(&format!("the effects of {name}"), || {
            let mut expected = effects.iter();
            value.for_each_record(GENERATION, |record| {
                let effect = Effect::of(&record)?;
                in_peace(|| assert!(expected.next() == Some(&effect)));
                in_peace(|| drop(effect));
                Ok(())
            })?;
            in_peace(|| assert_eq!(expected.next(), None, "all of them, or an error"));
            Ok(())
        });
        if let [Effect::Small(data)] = &effects[..] {
            faults += with_every_fault(&format!("the record of {name}"), || {
                let again = Value::of_record(data, &Unlimited)?;
                in_peace(|| assert!(again == value));
                Ok(())
            });
        }
        if let [Effect::Whole(data)] = &effects[..] {
            faults += with_every_fault(&format!("BF.LOAD of {name}"), || {
                let again = Value::from(Filter::boxed(load::decode(data, &Unlimited)?)?);
                in_peace(|| assert!(again == value));
                Ok(())
            });
        }
    }
    assert!(faults > 50, "{faults}");
    eprintln!("effects: {faults} faults");
}

/// A stored record of an AOF.
#[derive(Debug, PartialEq)]
enum Effect {
    Chunk(u64, Vec<u8>),
    Whole(Vec<u8>),
    Small(Vec<u8>),
}

impl Effect {
    /// Requests the memory of the argument of BF.LOAD like the codec.
    fn of(record: &AofRecord) -> Result<Self, Error> {
        match record {
            AofRecord::Chunk { iterator, data } => Ok(in_peace(|| Self::Chunk(*iterator, data.to_vec()))),
            AofRecord::Whole(filter) => load::encode(filter).map(Self::Whole),
            AofRecord::Small(data) => Ok(in_peace(|| Self::Small(data.to_vec()))),
        }
    }
}
