//! The stored form of rings: impossible ones are refused. `tests/stored.rs` has the laws for every kind.

use bloomgate_filter::format::{ByteSink, ByteSource, Error, Source as _, StoredAs};
use bloomgate_filter::kinds::WindowedSpec;
use bloomgate_filter::{Moment, Unlimited, Value};

use super::{START, after, new, spec, turn_if_due};

fn written(value: &Value) -> Vec<u8> {
    let mut sink = ByteSink::default();
    value.write(&mut sink);
    sink.0
}

fn read(bytes: &[u8]) -> Result<Value, Error> {
    StoredAs::Own.read(1, &mut ByteSource(bytes), &Unlimited)
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
