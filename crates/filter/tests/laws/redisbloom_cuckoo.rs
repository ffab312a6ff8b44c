//! Cuckoo filters of RedisBloom's layout: the commands that RedisBloom propagated create its cells byte by byte, and numbers that no filter
//! has are refused.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use bloomgate_filter::format::{Arrival, ByteSource, Error, Progress, StoredAs};
use bloomgate_filter::kinds::chunked::{self, Chunked as _};
use bloomgate_filter::kinds::{ChunkArrival, RedisBloomCuckooFilter, RedisBloomCuckooSpec};
use bloomgate_filter::{Error as FilterError, Unlimited, Value};

use crate::forms::{read, read_own, written};
use crate::inputs::targets::FilterOf;

type Filters = BTreeMap<Vec<u8>, RedisBloomCuckooFilter>;

const DEFAULT: RedisBloomCuckooSpec =
    RedisBloomCuckooSpec { capacity: 1024, bucket_size: 2, iterations: 20, expansion: 1 };

fn created(spec: RedisBloomCuckooSpec) -> RedisBloomCuckooFilter {
    RedisBloomCuckooFilter::with_spec(&spec, &Unlimited).unwrap()
}

/// Returns the commands in an append-only file that RedisBloom wrote, each as its words.
fn commands(file: &str) -> Vec<Vec<Vec<u8>>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/redisbloom-cuckoo").join(file);
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    let (mut rest, mut commands) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let words = number(&mut rest);
        let word = |_| {
            let length = number(&mut rest);
            let word = rest[..length].to_vec();
            rest = &rest[length + 2..];
            word
        };
        commands.push((0..words).map(word).collect());
    }
    commands
}

/// Reads the number in the next line.
fn number(rest: &mut &[u8]) -> usize {
    let end = rest.windows(2).position(|pair| pair == b"\r\n").unwrap();
    let number = parsed(&rest[1..end]);
    *rest = &rest[end + 2..];
    usize::try_from(number).unwrap()
}

fn parsed(word: &[u8]) -> u64 {
    std::str::from_utf8(word).unwrap().parse().unwrap()
}

/// Returns the filters after the commands that RedisBloom propagated.
fn replayed() -> Filters {
    let mut filters = Filters::new();
    for command in commands("stream.aof.gz") {
        let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        let [name, key, ..] = words[..] else { panic!("{command:?}") };
        if name == b"SELECT" {
            continue;
        }
        let filter = filters.entry(key.into()).or_insert_with(|| created(DEFAULT));
        match words[..] {
            [b"CF.RESERVE", _, capacity, ref options @ ..] => {
                let mut spec = RedisBloomCuckooSpec { capacity: parsed(capacity), ..DEFAULT };
                for option in options.chunks(2) {
                    match option[0] {
                        b"BUCKETSIZE" => spec.bucket_size = parsed(option[1]),
                        b"MAXITERATIONS" => spec.iterations = parsed(option[1]),
                        _ => spec.expansion = parsed(option[1]),
                    }
                }
                *filter = created(spec);
            }
            [b"CF.ADDNX", _, item] if filter.contains(item) => {}
            [b"CF.ADD" | b"CF.ADDNX", _, item] => filter.add(item, &Unlimited).unwrap(),
            [b"CF.DEL", _, item] => _ = filter.delete(item),
            [b"CF.COMPACT", _] => _ = filter.compact(),
            _ => panic!("{command:?}"),
        }
    }
    filters
}

#[test]
fn propagated_commands_make_redisblooms_records() {
    let filters = replayed();
    assert_eq!(filters.len(), 16);
    let mut records = commands("rewritten.aof.gz");
    records.retain(|words| words[0] == b"CF.LOADCHUNK");
    for (key, filter) in &filters {
        let name = key.escape_ascii();
        let theirs: Vec<(u64, &[u8])> =
            records.iter().filter(|words| words[1] == *key).map(|words| (parsed(&words[2]), &words[3][..])).collect();
        let ours: Vec<_> = chunked::records(filter).map(Result::unwrap).collect();
        assert!(ours.iter().map(|(iterator, data)| (*iterator, &data[..])).eq(theirs.iter().copied()), "{name}");

        let mut value = Value::from(Arrival::RedisBloomCuckoo(ChunkArrival::begin(theirs[0].1, &Unlimited).unwrap()));
        for (iterator, data) in &theirs {
            let before = written(&value);
            assert!(read_own(&before).is_ok_and(|again| again == value), "{name} arriving");
            assert!(value.accept(0, *iterator, data, &Unlimited).is_ok(), "{name}: {iterator}");
        }
        assert!(value.take() == Value::Cuckoo(filter.try_clone().unwrap()), "{name}");
        let value = Value::Cuckoo(filter.try_clone().unwrap());
        assert!(read(StoredAs::RedisBloomCuckoo, &written(&value)).is_ok_and(|again| again == value), "{name}");
    }
}

#[test]
fn gaps_and_other_bytes_are_refused_while_a_filter_arrives() {
    let filter = &replayed()[&b"thousand"[..]];
    let records: Vec<_> = chunked::records(filter).map(Result::unwrap).collect();
    let (header, first, last) = (&records[0].1, &records[1], &records[2]);
    let mut arrival = ChunkArrival::<RedisBloomCuckooFilter>::begin(header, &Unlimited).unwrap();
    assert_eq!(arrival.accept(last.0, &last.1), Err(Error::Gap { arrived_bytes: 0 }));
    assert_eq!(arrival.accept(first.0, &first.1), Ok(Progress::Stored));
    assert_eq!(arrival.accept(first.0, &first.1), Ok(Progress::Known));
    assert_eq!(arrival.accept(first.0, &last.1), Err(Error::Different));
    assert_eq!(arrival.accept(last.0, &last.1), Ok(Progress::Complete));
    let mut value = Value::Cuckoo(arrival.into_filter());
    assert_eq!(value.accept(0, last.0, &last.1, &Unlimited), Ok(Progress::Known), "a reply may have been lost");
    assert_eq!(value.accept(0, last.0, &first.1, &Unlimited), Err(Error::Different));
}

/// The numbers of a snapshot, and its sub-filters.
fn snapshot(numbers: [u64; 7], layers: &[(u64, usize)]) -> Vec<u8> {
    let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    for (buckets, length) in layers {
        bytes.extend([*buckets, *length as u64].iter().flat_map(|number| number.to_le_bytes()));
        bytes.resize(bytes.len() + length, 7);
    }
    bytes
}

#[test]
fn unsound_snapshots_are_refused() {
    let load = |bytes: &[u8]| StoredAs::RedisBloomCuckoo.read(4, &mut ByteSource(bytes), &FilterOf(1 << 20));
    let sound = [2, 8, 3, 1, 2, 20, 2];
    let layers = [(8, 16), (16, 32)];
    assert!(load(&snapshot(sound, &layers)).is_ok());
    let numbers: [(usize, &[u64]); 5] = [
        (0, &[0, 1 << 16, u64::MAX]),
        (1, &[0, 7, 1 << 62, 1 << 63]),
        (4, &[0, 256, u64::MAX]),
        (5, &[0, 65536]),
        (6, &[0, 1, 5, 32769, u64::MAX]),
    ];
    for (field, values) in numbers {
        for value in values {
            let mut numbers = sound;
            numbers[field] = *value;
            assert!(load(&snapshot(numbers, &layers)).is_err(), "{value} in field {field}");
        }
    }
    for layers in [[(8, 15), (16, 32)], [(8, 17), (16, 32)], [(8, 16), (8, 16)], [(8, 0), (16, 32)]] {
        assert!(load(&snapshot(sound, &layers)).is_err(), "{layers:?}");
    }
    assert_eq!(load(&snapshot(sound, &layers[..1])), Err(Error::Truncated));
    assert!(StoredAs::RedisBloomCuckoo.read(3, &mut ByteSource(&snapshot(sound, &layers)), &Unlimited).is_err());
    let above = load(&snapshot([1, 1 << 40, 0, 0, 2, 20, 1], &[]));
    assert!(matches!(above, Err(Error::Filter(FilterError::AboveCeiling { .. }))), "{above:?}");

    // The items are lowered to the number of slots, the growth is rounded up.
    let Ok(Value::Cuckoo(filter)) = load(&snapshot([1, 8, 1 << 63, u64::MAX, 2, 20, 3], &[(8, 16)])) else { panic!() };
    assert_eq!((filter.items(), filter.deletes(), filter.spec().expansion), (16, u64::MAX, 4));
}

#[test]
fn unsound_headers_are_refused() {
    let header = |numbers: [u64; 4], shape: [u16; 3]| -> Vec<u8> {
        let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
        numbers.chain(shape.iter().flat_map(|number| number.to_le_bytes())).collect()
    };
    let begin = |bytes: &[u8]| ChunkArrival::<RedisBloomCuckooFilter>::begin(bytes, &FilterOf(1 << 20));
    let sound = header([3, 8, 1, 2], [2, 20, 2]);
    assert_eq!(begin(&sound).unwrap().header(), sound);
    for (numbers, shape) in [
        ([3, 8, 1, 0], [2, 20, 2]),
        ([3, 7, 1, 2], [2, 20, 2]),
        ([3, 0, 1, 2], [2, 20, 2]),
        ([3, 8, 1, 2], [0, 20, 2]),
        ([3, 8, 1, 2], [256, 20, 2]),
        ([3, 8, 1, 2], [2, 0, 2]),
        ([3, 8, 1, 2], [2, 20, 0]),
        ([3, 8, 1, 2], [2, 20, 32769]),
        ([3, 8, 1, 40], [2, 20, 4]),
        ([3, 8, 1, u64::MAX], [2, 20, 1]),
        ([3, 1 << 40, 1, 1], [2, 20, 1]),
    ] {
        assert!(begin(&header(numbers, shape)).is_err(), "{numbers:?} {shape:?}");
    }
    for length in 0..sound.len() {
        assert!(begin(&sound[..length]).is_err(), "{length}");
    }
    assert_eq!(begin(&[&sound[..], &[0]].concat()).map(|_| ()), Err(Error::NotADump));
}

#[test]
fn a_refused_add_changes_nothing() {
    let tiny = RedisBloomCuckooSpec { capacity: 8, bucket_size: 2, iterations: 500, expansion: 0 };
    for (spec, ceiling) in [(tiny, u64::MAX), (RedisBloomCuckooSpec { expansion: 2, ..tiny }, 70)] {
        let mut filter = created(spec);
        let refused = (0..100u8).find(|number| {
            let before = filter.try_clone().unwrap();
            let added = filter.add(&[*number], &FilterOf(ceiling));
            assert!(added.is_ok() || filter == before, "{number}");
            added.is_err()
        });
        assert!(refused.is_some_and(|number| number > 4), "{refused:?}");
    }
}

/// Nothing but a compaction resets the number of deletes, so it may exceed the number of slots.
#[test]
fn any_number_of_deletes_is_kept() {
    let mut filter = created(RedisBloomCuckooSpec { capacity: 8, ..DEFAULT });
    for _ in 0..100 {
        filter.add(b"x", &Unlimited).unwrap();
        assert!(filter.delete(b"x"));
    }
    let value = Value::Cuckoo(filter);
    assert!(read(StoredAs::RedisBloomCuckoo, &written(&value)).is_ok_and(|again| again == value));
}

/// With this many copies, one delete does not start a compaction, which would move the newest copy to the empty slot.
#[test]
fn a_delete_empties_a_slot_of_the_newest_sub_filter() {
    let mut filter = created(RedisBloomCuckooSpec { capacity: 64, ..DEFAULT });
    while filter.layer_count() < 5 {
        filter.add(b"x", &Unlimited).unwrap();
    }
    let cells = |filter: &RedisBloomCuckooFilter| -> Vec<Vec<u8>> { filter.cells().map(<[u8]>::to_vec).collect() };
    let before = cells(&filter);
    assert!(filter.delete(b"x"));
    let after = cells(&filter);
    assert_eq!((filter.deletes(), &after[..4]), (1, &before[..4]));
    assert_ne!(after[4], before[4]);
}
