//! Snapshots of rings in every state, and damaged ones, which are refused or make a sound ring.

use bloomgate_filter::format::records::DumpMark;
use bloomgate_filter::format::{Arrival, ByteSink, ByteSource, Error, Source as _, StoredAs};
use bloomgate_filter::hash::Hasher;
use bloomgate_filter::kinds::{Forgets, Origin, WindowedSpec};
use bloomgate_filter::{Filter, Moment, Unlimited, Value};

use super::{START, after, dumps, new, spec, turn_if_due};

fn written(value: &Value) -> Vec<u8> {
    let mut sink = ByteSink::default();
    value.write(&mut sink);
    sink.0
}

fn read(bytes: &[u8]) -> Result<Value, Error> {
    StoredAs::Own.read(1, &mut ByteSource(bytes), &Unlimited)
}

/// Rings with few buckets and many, small ones, with every way of forgetting, and one whose records have partly arrived.
fn values() -> Vec<Value> {
    let siphash = Hasher::SipHash { key: [1; 16] };
    let mut values = Vec::new();
    for (forgets, expansion, hasher) in [
        (after(7, false), 0, siphash),
        (after(7, true), 2, Hasher::Murmur3 { seed: 1 }),
        (Forgets::Rolling, 0, siphash),
    ] {
        let mut filter = new(WindowedSpec { rate: 0.01, hasher, ..spec(forgets, 12, expansion, 4) });
        for item in 0..30u32 {
            let now = Moment(START + u64::from(item) * 300);
            turn_if_due(&mut filter, now);
            let _ = filter.add(&item.to_le_bytes(), Origin::Client, &now, &Unlimited);
        }
        let records = dumps::records(&filter);
        let mut arrival = Arrival::begin(records[0].0, &records[0].1, &Unlimited).unwrap();
        records[1..3].iter().for_each(|(iterator, data)| _ = arrival.accept(*iterator, data).unwrap());
        values.push(filter.into());
        values.push(arrival.into());
    }
    values
}

#[test]
fn what_is_written_can_be_read() {
    for value in values() {
        assert_eq!(read(&written(&value)), Ok(value));
    }
}

/// A ring that was read can be used, and stored again.
fn use_it(filter: &mut Filter) {
    for now in [Moment(0), Moment(START), Moment(START * 2), Moment(i64::MAX as u64)] {
        let _ = filter.contains(b"an item", &now);
        let _ = filter.live_contents(&now);
        let windowed = filter.windowed_mut().unwrap();
        if let Some(turn) = windowed.turn_due(now)
            && turn.capacity < 1 << 20
        {
            let _ = windowed.turn(turn, &Unlimited);
        }
        let _ = filter.add_batch([&b"an item"[..]], Origin::Client, &now, &Unlimited);
    }
    let again = read(&written(&filter.try_clone().unwrap().into()));
    assert_eq!(again, Ok(filter.try_clone().unwrap().into()));
    assert!(filter.next_record(1, 0, &mut DumpMark::default()).is_ok());
}

#[test]
fn torn_bytes_are_refused_or_make_a_sound_ring() {
    for value in values() {
        let bytes = written(&value);
        let step = if cfg!(miri) { 97 } else { 1 };
        for length in (0..bytes.len()).step_by(step) {
            assert!(read(&bytes[..length]).is_err(), "{length} of {}", bytes.len());
        }
        for position in (0..bytes.len()).step_by(step) {
            for flip in [0x01, 0x80, 0xff] {
                let mut torn = bytes.clone();
                torn[position] ^= flip;
                if let Ok(Value::Filter(mut filter)) = read(&torn)
                    && filter.windowed().is_some()
                    && filter.size_bytes() < 1 << 24
                {
                    use_it(&mut filter);
                }
            }
        }
    }
}

#[test]
fn impossible_rings_are_refused() {
    let mut filter = new(WindowedSpec { rate: 0.01, ..spec(after(7, false), 70, 0, 8) });
    for second in 0..2 {
        turn_if_due(&mut filter, Moment(START + second * 1000));
    }
    let bytes = written(&filter.into());
    let mut source = ByteSource(&bytes);
    let numbers: Vec<u64> = (0..17).map(|_| source.u64().unwrap()).collect();
    assert_eq!(numbers[8..17], [7, 0, 8, 2, 0, START, START + 1000, 10, 0]);
    let with = |index: usize, number: u64| {
        let mut bytes = bytes.clone();
        bytes[index * 8..index * 8 + 8].copy_from_slice(&number.to_le_bytes());
        read(&bytes)
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
        (12, 1 << 63, "a slot that is no number of a command"),
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
        read(&bytes)
    };
    assert!(with_both(1, 1).is_ok() && with_both(1, 2).is_err());
}
