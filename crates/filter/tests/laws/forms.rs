//! The forms in which a value leaves a server: a snapshot, the records of a dump or of an AOF, a copy.

use bloomgate_filter::format::records::DumpMark;
use bloomgate_filter::format::{AofRecord, Arrival, ByteSink, ByteSource, Error, Progress, StoredAs};
use bloomgate_filter::kinds::valkey_bloom::load;
use bloomgate_filter::{Filter, Unlimited, Value};

/// The generation of every filter here.
pub const GENERATION: u16 = 7;

pub type Record = (u64, Vec<u8>);

/// A way to leave a server and come back.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    Copy,
    Snapshot,
    Dump,
    Aof,
}

impl Form {
    pub const ALL: [Self; 4] = [Self::Copy, Self::Snapshot, Self::Dump, Self::Aof];

    /// Returns the restored value.
    pub fn of(self, value: &Value) -> Value {
        match (self, value) {
            (Self::Copy, _) => value.try_clone().unwrap(),
            (Self::Snapshot, _) => read(value.stored_as(), &written(value)).unwrap(),
            (Self::Dump, Value::Filter(filter)) if !matches!(filter, Filter::ValkeyBloom(_)) => {
                arrived(&records(filter))
            }
            (Self::Dump | Self::Aof, _) => told(value),
        }
    }
}

pub fn filter(value: &Value) -> &Filter {
    let Value::Filter(filter) = value else { panic!("not a filter: {value:?}") };
    filter
}

pub fn filter_mut(value: &mut Value) -> &mut Filter {
    let Value::Filter(filter) = value else { panic!("not a filter: {value:?}") };
    filter
}

pub fn written(value: &Value) -> Vec<u8> {
    let mut sink = ByteSink::default();
    value.write(&mut sink);
    sink.0
}

/// Returns the snapshot of a copy of a filter.
pub fn snapshot(filter: &Filter) -> Vec<u8> {
    written(&filter.try_clone().unwrap().into())
}

/// Reads a snapshot to its last byte.
pub fn read(stored_as: StoredAs, bytes: &[u8]) -> Result<Value, Error> {
    let mut source = ByteSource(bytes);
    let value = stored_as.read(stored_as.encoding(), &mut source, &Unlimited)?;
    assert!(source.0.is_empty(), "everything is read");
    Ok(value)
}

/// Reads a snapshot of our own type.
pub fn read_own(bytes: &[u8]) -> Result<Value, Error> {
    StoredAs::Own.read(1, &mut ByteSource(bytes), &Unlimited)
}

/// Returns the filter that a value is, or what has arrived of it.
pub fn taken(mut value: Value) -> Filter {
    let Value::Filter(filter) = value.take() else { panic!("not a filter: {value:?}") };
    filter
}

/// Returns the filter in a snapshot of this one.
pub fn saved_and_read(filter: &Filter) -> Filter {
    taken(read(filter.stored_as(), &snapshot(filter)).unwrap())
}

/// Dumps a filter, which `change` may change after each record.
pub fn dump_while(filter: &mut Filter, mut change: impl FnMut(&mut Filter)) -> Vec<Record> {
    let (mut records, mut mark, mut before) = (Vec::new(), DumpMark::default(), 0);
    while let Some((iterator, data)) = filter.next_record(GENERATION, before, &mut mark).unwrap() {
        assert!(iterator < 1 << 53, "a number of any client");
        records.push((iterator, data.into_owned()));
        before = iterator;
        change(filter);
    }
    records
}

/// Whether a filter has a stored form: a ring has one from its first bucket on, with which the server creates it.
pub fn is_stored(filter: &Filter) -> bool {
    filter.windowed().is_none_or(|ring| ring.buckets().len() > 0)
}

/// Returns the records of a filter's dump; none for a kind without records.
pub fn records(filter: &Filter) -> Vec<Record> {
    if !is_stored(filter) {
        return Vec::new();
    }
    let (mut records, mut mark, mut before) = (Vec::new(), DumpMark::default(), 0);
    while let Ok(Some((iterator, data))) = filter.next_record(GENERATION, before, &mut mark) {
        assert!(iterator < 1 << 53, "a number of any client");
        records.push((iterator, data.into_owned()));
        before = iterator;
    }
    records
}

pub fn begin((iterator, header): &Record) -> Value {
    Arrival::begin(*iterator, header, &Unlimited).unwrap().into()
}

/// Accepts a record. After the last one the value is the filter.
pub fn accept(value: &mut Value, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
    let progress = value.accept(GENERATION, iterator, data, &Unlimited)?;
    if progress == Progress::Complete {
        *value = value.take();
    }
    Ok(progress)
}

/// Returns the value that these records create.
pub fn arrived(records: &[Record]) -> Value {
    let (header, rest) = records.split_first().unwrap();
    let mut value = begin(header);
    for (iterator, data) in rest {
        let progress = accept(&mut value, *iterator, data);
        assert!(matches!(progress, Ok(Progress::Stored | Progress::Complete)), "record {iterator}: {progress:?}");
    }
    value
}

/// Returns the filter in a dump of this one.
pub fn dumped(filter: &Filter) -> Filter {
    taken(arrived(&records(filter)))
}

/// Returns the value that the records of an AOF create. For a complete filter, these are the records of its dump, or one record of the whole
/// filter.
pub fn told(value: &Value) -> Value {
    let (mut told, mut again) = (Vec::new(), None);
    let outcome = value.for_each_record(GENERATION, |record| {
        match record {
            AofRecord::Whole(whole) => {
                again = Some(Filter::from(load::decode(&load::encode(whole)?, &Unlimited)?).into())
            }
            AofRecord::Small(data) => again = Some(Value::of_record(data, &Unlimited)?),
            AofRecord::Chunk { iterator, data } => {
                match &mut again {
                    None => again = Some(begin(&(iterator, data.to_vec()))),
                    Some(value) => _ = accept(value, iterator, data)?,
                }
                told.push((iterator, data.to_vec()));
            }
        }
        Ok(())
    });
    assert_eq!(outcome, Ok(()));
    if let (Value::Filter(filter), [_, ..]) = (value, &told[..]) {
        assert!(told == records(filter), "an AOF has the records of a dump");
    }
    again.unwrap()
}
