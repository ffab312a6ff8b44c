//! Faults in the codecs: snapshots, dumps and arguments that are read, and records that are made.

use bloomgate::bloom::{Filter, Unlimited};
use bloomgate::format::{
    Arrival, ByteSource, Error, NativeArrival, Progress, RedisBloomArrival, Value, came_already, dump, native,
    redisbloom, redisbloom_dump, valkey_bloom,
};

use crate::allocator::{Asked, Fault, in_peace, under};
use crate::{filled_filters, with_every_fault, written};

/// Of one layer, of many, and of a layer of several chunks.
const SHAPES: [(u64, usize); 3] = [(100, 50), (4, 200), (1_500_000, 1000)];

/// Reads what [`written`] wrote of such a value.
fn read(like: &Value, bytes: &[u8]) -> Result<Value, Error> {
    let mut source = ByteSource(bytes);
    Ok(match like {
        Value::Filter(Filter::Native(_)) | Value::Arriving(_) => native::read(&mut source, &Unlimited)?,
        Value::Filter(Filter::RedisBloom(_)) => {
            Filter::from(redisbloom::read(&mut source, redisbloom::ENCODING, &Unlimited)?).into()
        }
        Value::Filter(Filter::ValkeyBloom(_)) => Filter::boxed(valkey_bloom::read(&mut source, &Unlimited)?)?.into(),
    })
}

/// Everything that can be stored: filters of the three layouts in three shapes, and what is arriving of two.
fn values() -> Vec<(String, Value)> {
    let mut values = Vec::new();
    for (capacity, items) in SHAPES {
        for (name, filter) in filled_filters(capacity, items) {
            let name = format!("{name}, {} layers", filter.layer_count());
            if let Some(arrival) = half_arrived(&filter) {
                values.push((format!("half of {name}"), Value::from(arrival)));
            }
            values.push((name, filter.into()));
        }
    }
    values
}

/// The records of a filter's dump, where its layout has one.
fn records(filter: &Filter) -> Vec<(u64, Vec<u8>)> {
    match filter {
        Filter::Native(filter) => dump::records(filter, 7).map(Result::unwrap).collect(),
        Filter::RedisBloom(filter) => redisbloom_dump::records(filter)
            .map(Result::unwrap)
            .map(|(iterator, data)| (iterator, data.into_owned()))
            .collect(),
        Filter::ValkeyBloom(_) => Vec::new(),
    }
}

fn begin(filter: &Filter, record: &(u64, Vec<u8>)) -> Result<Arrival, Error> {
    Ok(match filter {
        Filter::Native(_) => Arrival::Native(NativeArrival::begin(record.0, &record.1, &Unlimited)?),
        _ => Arrival::RedisBloom(RedisBloomArrival::begin(&record.1, &Unlimited)?),
    })
}

fn half_arrived(filter: &Filter) -> Option<Arrival> {
    let records = records(filter);
    let (header, chunks) = records.split_first()?;
    let mut arrival = begin(filter, header).unwrap();
    for (iterator, data) in &chunks[..chunks.len() / 2] {
        assert_eq!(arrival.accept(*iterator, data), Ok(Progress::Stored));
    }
    Some(arrival)
}

#[test]
fn a_snapshot_that_finds_no_room_is_an_error() {
    let mut total = 0;
    for (name, value) in values() {
        let bytes = written(&value);
        let faults = with_every_fault(&format!("the snapshot of {name}"), || {
            let again = read(&value, &bytes)?;
            in_peace(|| assert!(again == value));
            Ok(())
        });
        assert!(faults >= 4, "{name}: {faults}");
        total += faults;
    }
    eprintln!("snapshots: {total} faults");
}

#[test]
fn a_copy_of_what_is_stored_is_an_error_where_there_is_no_room() {
    let mut total = 0;
    for (name, value) in values() {
        let before = written(&value);
        total += with_every_fault(&format!("a copy of {name}"), || {
            let copy = value.try_clone()?;
            in_peace(|| assert!(copy == value));
            Ok(())
        });
        assert_eq!(written(&value), before);
    }
    eprintln!("copies of values: {total} faults");
}

#[test]
fn a_value_is_saved_without_memory() {
    struct Nowhere(u64);
    impl bloomgate::format::Sink for Nowhere {
        fn put_u64(&mut self, _: u64) {
            self.0 += 8;
        }
        fn put_f64(&mut self, _: f64) {
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
            match &value {
                Value::Filter(Filter::Native(filter)) => native::write_filter(filter, &mut sink),
                Value::Filter(Filter::RedisBloom(filter)) => redisbloom::write(filter, &mut sink),
                Value::Filter(Filter::ValkeyBloom(filter)) => valkey_bloom::write(filter, &mut sink),
                Value::Arriving(arrival) => native::write_arrival(arrival, &mut sink),
            }
            sink.0
        });
        assert_eq!((told, asked), (length, Asked { requests: 0, refused: 0 }), "{name}");
    }
}

#[test]
fn a_dump_that_finds_no_room_is_an_error_and_goes_on_where_it_was() {
    let mut total = 0;
    for (capacity, items) in SHAPES {
        for (name, filter) in filled_filters(capacity, items) {
            let records = records(&filter);
            let Some((header, chunks)) = records.split_first() else { continue };
            total += with_every_fault(&format!("the header of {name}"), || begin(&filter, header));
            let mut arrival = begin(&filter, header).unwrap();
            for (iterator, data) in [header].into_iter().chain(chunks) {
                let before = written(&in_copy(&arrival));
                total += with_every_fault(&format!("record {iterator} of {name}"), || {
                    let mut arrival = in_peace(|| in_copy(&arrival));
                    let Value::Arriving(arriving) = &mut arrival else { panic!("arriving") };
                    let result = arriving.accept(*iterator, data);
                    in_peace(|| {
                        if result.is_err() {
                            assert_eq!(written(&arrival), before);
                        }
                        drop(arrival);
                    });
                    result
                });
                assert!(arrival.accept(*iterator, data).is_ok());
            }
            // Once it is whole, what comes again is looked at.
            let whole = Value::Arriving(Box::new(arrival)).take_filter();
            assert!(whole == filter);
            for (iterator, data) in &records {
                total += with_every_fault(&format!("record {iterator} of {name} again"), || match &whole {
                    Filter::Native(filter) => came_already(filter, 7, *iterator, data),
                    Filter::RedisBloom(filter) if *iterator != redisbloom_dump::HEADER => {
                        redisbloom_dump::came_already(filter, *iterator, data)
                    }
                    _ => Ok(()),
                });
            }
        }
    }
    eprintln!("dumps that arrive: {total} faults");
}

/// A copy of what is arriving, as a value.
fn in_copy(arrival: &Arrival) -> Value {
    match arrival {
        Arrival::Native(arrival) => Arrival::Native(arrival.try_clone().unwrap()),
        Arrival::RedisBloom(arrival) => Arrival::RedisBloom(arrival.try_clone().unwrap()),
    }
    .into()
}

#[test]
fn a_record_that_cannot_be_made_is_an_error() {
    let mut faults = 0;
    for (capacity, items) in SHAPES {
        for (name, filter) in filled_filters(capacity, items) {
            let Filter::ValkeyBloom(other) = &filter else {
                let records = in_peace(|| records(&filter));
                let before = [0].into_iter().chain(records.iter().map(|(iterator, _)| *iterator));
                for (before, record) in before.zip(&records) {
                    faults += with_every_fault(&format!("record {} of {name}", record.0), || {
                        let made = match &filter {
                            Filter::Native(filter) if before == 0 => Some(dump::first_record(filter, 7)?),
                            Filter::Native(filter) => dump::next_record(filter, 7, before)?,
                            Filter::RedisBloom(filter) => redisbloom_dump::next_record(filter, before)?
                                .map(|(iterator, data)| (iterator, in_peace(|| data.into_owned()))),
                            Filter::ValkeyBloom(_) => None,
                        };
                        in_peace(|| assert!(made.as_ref() == Some(record)));
                        Ok(())
                    });
                }
                continue;
            };
            let bytes = valkey_bloom::encode_load(other).unwrap();
            faults += with_every_fault(&format!("BF.LOAD's argument of {name}"), || valkey_bloom::encode_load(other));
            faults += with_every_fault(&format!("BF.LOAD of {name}"), || {
                let again = Filter::boxed(valkey_bloom::decode_load(&bytes, &Unlimited)?)?;
                in_peace(|| assert!(again == filter));
                Ok(())
            });
        }
    }
    assert!(faults > 50, "{faults}");
    eprintln!("dumps that are made: {faults} faults");
}
