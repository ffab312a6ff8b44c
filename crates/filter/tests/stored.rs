//! Laws of snapshots, for native, counting and windowed filters, complete and arriving: what is written can be read, and damaged
//! bytes are refused or make a sound filter.

// All of this file is test code: a panic is how a test fails.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use bloomgate_filter::format::records::DumpMark;
use bloomgate_filter::format::{Arrival, ByteSink, ByteSource, Error, Progress, StoredAs};
use bloomgate_filter::hash::Hasher;
use bloomgate_filter::kinds::{CountingSpec, Forgets, NativeSpec, Origin, WindowedSpec};
use bloomgate_filter::{Filter, Moment, Scaling, Spec, Unlimited, Value};

/// The time at which tests begin, in milliseconds since 1970.
const START: u64 = 1_700_000_000_000;
const MURMUR3: Hasher = Hasher::murmur3(42);
const SIPHASH: Hasher = Hasher::SipHash { key: [1; 16] };
/// A capacity with more than one chunk of cells; fewer under miri, which is slow.
const LARGE: u64 = if cfg!(miri) { 1000 } else { 3_000_000 };
/// The distance between the bytes that are damaged.
const STEP: usize = if cfg!(miri) { 97 } else { 1 };

fn native(capacity: u64, expansion: u32, hasher: Hasher) -> Spec {
    Spec::Native(NativeSpec::new(0.01, capacity, Scaling::from_expansion(expansion), hasher))
}

fn counting(capacity: u64) -> Spec {
    Spec::Counting(CountingSpec { rate: 0.01, capacity, hasher: MURMUR3 })
}

fn windowed(forgets: Forgets, expansion: u32, hasher: Hasher) -> Spec {
    let scaling = Scaling::from_expansion(expansion);
    Spec::Windowed(WindowedSpec { rate: 0.01, capacity: 12, scaling, hasher, forgets, buckets: 4 })
}

/// Small filters of every kind, fixed and growing, with every way of forgetting, with and without tables of deleted items.
fn specs() -> Vec<Spec> {
    let after = |is_sliding| Forgets::After { seconds: 7, is_sliding };
    vec![
        native(10, 2, MURMUR3),
        native(100, 2, MURMUR3),
        native(100, 3, SIPHASH),
        native(1, 0, MURMUR3),
        native(10, 1, SIPHASH),
        counting(20),
        windowed(after(false), 0, SIPHASH),
        windowed(after(true), 2, MURMUR3),
        windowed(Forgets::Rolling, 0, SIPHASH),
    ]
}

/// Adds items over some seconds, and deletes some of them if the filter can.
fn filled(spec: &Spec) -> Filter {
    let mut filter = Filter::new(spec, &Unlimited).unwrap();
    for item in 0..30_u32 {
        let now = Moment(START + u64::from(item) * 300);
        if let Some(ring) = filter.windowed_mut()
            && let Some(turn) = ring.turn_due(now)
        {
            ring.turn(turn, &Unlimited).unwrap();
        }
        let _ = filter.add(&item.to_le_bytes(), Origin::Client, &now, &Unlimited);
    }
    let items = [3_u32, 27, 29].map(u32::to_le_bytes);
    filter.remove_batch(items.iter().map(|item| &item[..]), Origin::Client, &Moment(START + 9000), &Unlimited);
    filter
}

/// Returns the value of a filter, and what it is after each record but the last.
fn values(filter: Filter) -> Vec<Value> {
    let mut mark = DumpMark::default();
    let (mut iterator, header) = filter.next_record(7, 0, &mut mark).unwrap().unwrap();
    let mut arrival = Arrival::begin(iterator, &header, &Unlimited).unwrap();
    let mut values = Vec::new();
    while let Some((next, data)) = filter.next_record(7, iterator, &mut mark).unwrap() {
        values.push(Value::from(arrival.try_clone().unwrap()));
        let progress = arrival.accept(next, &data).unwrap();
        assert_eq!(progress == Progress::Complete, filter.next_record(7, next, &mut mark).unwrap().is_none());
        iterator = next;
    }
    assert!(arrival.into_filter() == filter);
    values.push(filter.into());
    values
}

fn written(value: &Value) -> Vec<u8> {
    let mut sink = ByteSink::default();
    value.write(&mut sink);
    sink.0
}

fn read(bytes: &[u8]) -> Result<Value, Error> {
    StoredAs::Own.read(1, &mut ByteSource(bytes), &Unlimited)
}

#[test]
fn what_is_written_can_be_read() {
    let large = [native(LARGE, 0, MURMUR3), native(LARGE / 100, 2, SIPHASH), counting(LARGE / 3)];
    for value in specs().iter().chain(&large).flat_map(|spec| values(filled(spec))) {
        let bytes = written(&value);
        let mut source = ByteSource(&bytes);
        let again = StoredAs::Own.read(1, &mut source, &Unlimited).unwrap();
        assert!(source.0.is_empty(), "everything is read");
        assert!(again == value && again.try_clone().unwrap() == value);
    }
}

/// Uses a filter that was read at any time, and stores it again.
fn use_it(filter: &mut Filter) {
    for now in [Moment(0), Moment(START), Moment(START * 2), Moment(i64::MAX.unsigned_abs())] {
        let _ = filter.contains(b"an item", &now);
        let _ = filter.live_contents(&now);
        if let Some(ring) = filter.windowed_mut()
            && let Some(turn) = ring.turn_due(now)
            && turn.capacity < 1 << 20
        {
            let _ = ring.turn(turn, &Unlimited);
        }
        let items = [&b"an item"[..], b"an item"];
        let added = filter.add_batch(items, Origin::Client, &now, &Unlimited).done;
        assert!(filter.windowed().is_some() || added == 0 || filter.contains(items[0], &now), "a member is absent");
        filter.remove_batch(items, Origin::Client, &now, &Unlimited);
        assert!(filter.counting().is_none() || filter.items() <= filter.total_capacity());
    }
    let copy = filter.try_clone().unwrap();
    assert!(copy == *filter);
    let value = Value::from(copy);
    assert!(read(&written(&value)).unwrap() == value);
    assert!(filter.next_record(1, 0, &mut DumpMark::default()).is_ok());
}

#[test]
fn damaged_bytes_are_refused_or_make_a_sound_filter() {
    for spec in specs() {
        let mut values = values(filled(&spec));
        // The complete filter, and one whose records have partly arrived.
        let complete = values.pop().unwrap();
        for value in [values.swap_remove(values.len() / 2), complete] {
            let bytes = written(&value);
            for length in (0..bytes.len()).step_by(STEP) {
                assert!(read(&bytes[..length]).is_err(), "{length} of {}", bytes.len());
            }
            for position in (0..bytes.len()).step_by(STEP) {
                for flip in [0x01, 0x80, 0xff] {
                    let mut damaged = bytes.clone();
                    damaged[position] ^= flip;
                    if let Ok(Value::Filter(mut filter)) = read(&damaged)
                        && filter.size_bytes() < 1 << 20
                    {
                        use_it(&mut filter);
                    }
                }
            }
        }
    }
}
