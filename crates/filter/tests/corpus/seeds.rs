//! Sound inputs of many shapes as seeds for fuzzing: one layer and many, fixed and grown, full, arriving, and the formats of
//! old releases.

use bloomgate_filter::format::Arrival;
use bloomgate_filter::format::records::DumpMark;
use bloomgate_filter::kinds::chunked;
use bloomgate_filter::kinds::valkey_bloom::{FIXED_SEED, ValkeyBloom as Rules, load};
use bloomgate_filter::kinds::{
    NativeSpec, Origin, RedisBloomCuckooFilter, RedisBloomCuckooSpec, RedisBloomSpec, ValkeyBloomSpec,
};
use bloomgate_filter::{Filter, Moment, Policy, Scaling, Spec, Unlimited, Value};

use super::Inputs;
use super::newer_kinds::beyond;
use super::spelled::{Native, NativeLayer, RedisBloom, RedisBloomLayer, ValkeyBloom, ValkeyBloomLayer, records};
use super::targets::records::OF_PRIMARY;
use super::targets::snapshot::written;
use super::targets::{NATIVE_DUMP, NATIVE_SNAPSHOT, REDISBLOOM_CUCKOO, REDISBLOOM_DUMP, REDISBLOOM_SNAPSHOT, Target};
use super::targets::{VALKEY_BLOOM_LOAD, VALKEY_BLOOM_SNAPSHOT};

/// The result of a seed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Makes {
    Filter,
    Arriving,
}
use Makes::{Arriving, Filter as Whole};

/// Generates an input with this name and this result, without an error.
#[track_caller]
fn seed(all: &Inputs, target: Target, name: &str, makes: Makes, data: &[u8]) {
    all.take(target.name, name, data);
    let outcome = (target.decode)(data);
    let made = match outcome.value {
        Some(Value::Filter(_) | Value::Cuckoo(_)) => Some(Whole),
        Some(Value::Arriving(_)) => Some(Arriving),
        None => None,
    };
    assert_eq!((made, outcome.refused), (Some(makes), None), "{}/{name}", target.name);
}

pub(super) fn with_items(spec: Spec, items: u32) -> Filter {
    let mut filter = Filter::new(&spec, &Unlimited).unwrap();
    for number in 0..items {
        filter.add_batch([&number.to_le_bytes()[..]], Origin::Client, &Moment(0), &Unlimited);
    }
    filter
}

fn native(rate: f64, capacity: u64, expansion: u32, items: u32) -> Filter {
    let scaling = Scaling::from_expansion(expansion);
    with_items(Spec::Native(NativeSpec::murmur3(rate, capacity, scaling, 7)), items)
}

/// A filter that is stored packed, as 0.3 made it.
pub(super) fn packed() -> Filter {
    let spec = NativeSpec::murmur3(0.01, 100, Scaling::from_expansion(2), 7);
    with_items(Spec::Native(NativeSpec { policy: Policy::Two, ..spec }), 20)
}

/// A filter that is stored in the compact form.
pub(super) fn compact() -> Filter {
    native(0.01, 100, 2, 20)
}

fn redisbloom(rate: f64, capacity: u64, expansion: u32, items: u32) -> Filter {
    let scaling = Scaling::from_expansion(expansion);
    with_items(Spec::RedisBloom(RedisBloomSpec { rate, capacity, scaling }), items)
}

/// Returns the records of a filter's dump: its header and, while layers are small, a chunk for each.
fn dump_of(filter: &Filter, generation: u16) -> Vec<(u64, Vec<u8>)> {
    let mut records: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut mark = DumpMark::default();
    while let Some((iterator, data)) =
        filter.next_record(generation, records.last().map_or(0, |(iterator, _)| *iterator), &mut mark).unwrap()
    {
        records.push((iterator, data.into_owned()));
    }
    records
}

/// Returns the records of a dump as clients send them.
fn plain<'a>(records: impl IntoIterator<Item = &'a (u64, Vec<u8>)>) -> Vec<u8> {
    let mut plain = vec![0];
    for (iterator, data) in records {
        plain.extend_from_slice(&iterator.to_le_bytes());
        plain.extend_from_slice(&u16::try_from(data.len()).unwrap().to_le_bytes());
        plain.extend_from_slice(data);
    }
    plain
}

/// Returns bits, some of which are set.
fn bits(length: usize) -> Vec<u8> {
    (0..length).map(|index| if index % 3 == 0 { 0x5a } else { 0 }).collect()
}

const SHAPES: [(&str, f64, u64, u32, u32); 8] = [
    ("empty", 0.01, 100, 2, 0),
    ("one-layer", 0.01, 100, 2, 60),
    ("grown", 0.01, 4, 2, 60),
    ("grown-by-1", 0.1, 1, 1, 20),
    ("fixed", 0.001, 50, 0, 20),
    ("fixed-and-full", 0.01, 10, 0, 30),
    ("tight", 1e-12, 3, 4, 5),
    ("expansion-without-end", 0.01, 1, u32::MAX, 1),
];

pub fn native_snapshots(all: &Inputs) {
    let snapshot = |name: &str, makes, data: &[u8]| seed(all, NATIVE_SNAPSHOT, name, makes, data);
    for (name, rate, capacity, expansion, items) in SHAPES {
        let filter = native(rate, capacity, expansion, items);
        snapshot(name, Whole, &written(&filter.into()));
    }
    snapshot("packed", Whole, &written(&packed().into()));
    snapshot("compact", Whole, &written(&compact().into()));
    snapshot("compact-full", Whole, &written(&native(0.01, 100, 2, 300).into()));
    for (name, filter) in beyond() {
        let told = dump_of(&filter, 9);
        snapshot(name, Whole, &written(&filter.into()));
        let ((iterator, header), rest) = told.split_first().unwrap();
        let mut arrival = Arrival::begin(*iterator, header, &Unlimited).unwrap();
        snapshot(&format!("{name}-arriving-header"), Arriving, &written(&arrival.try_clone().unwrap().into()));
        // All records but the last: with tables, the cells and all tables but one.
        rest[..rest.len() - 1]
            .iter()
            .for_each(|(iterator, data)| assert!(arrival.accept(*iterator, data, &Unlimited).is_ok()));
        snapshot(&format!("{name}-arriving-but-one"), Arriving, &written(&arrival.into()));
    }
    let large = NativeLayer { groups: 300, blocks_per_group: 64, chunks: vec![vec![]; 2], ..NativeLayer::default() };
    let large = Native { layers: vec![large], ..Native::default() };
    snapshot("chunks-of-zeros", Whole, &large.snapshot());
    snapshot("arriving-in-chunks", Arriving, &Native { kind: 2, next: 1, ..large }.snapshot());
    let told = dump_of(&native(0.01, 4, 2, 60), 9);
    let mut arrival = Arrival::begin(told[0].0, &told[0].1, &Unlimited).unwrap();
    snapshot("arriving-header", Arriving, &written(&arrival.try_clone().unwrap().into()));
    told[1..3].iter().for_each(|(iterator, data)| assert!(arrival.accept(*iterator, data, &Unlimited).is_ok()));
    snapshot("arriving-layers", Arriving, &written(&arrival.into()));
    let told = dump_of(&redisbloom(0.01, 4, 2, 60), 0);
    let mut arrival = Arrival::begin(told[0].0, &told[0].1, &Unlimited).unwrap();
    snapshot("redisbloom-arriving-header", Arriving, &written(&arrival.try_clone().unwrap().into()));
    let (first, second) = (&told[1], &told[2].1);
    arrival.accept(first.0, &first.1, &Unlimited).unwrap();
    arrival.accept(first.0 + 3, &second[..3], &Unlimited).unwrap();
    snapshot("redisbloom-arriving-half-a-layer", Arriving, &written(&arrival.try_clone().unwrap().into()));
    // Records that a primary accepted: the end first, and a single byte.
    let last = told.last().unwrap();
    arrival.accept_replicated(last.0, &last.1).unwrap();
    arrival.accept_replicated(first.0 + 5, &second[4..5]).unwrap();
    snapshot("redisbloom-arriving-with-gaps", Arriving, &written(&arrival.into()));
}

pub fn native_dumps(all: &Inputs) {
    let natives =
        SHAPES.map(|(name, rate, capacity, expansion, items)| (name, native(rate, capacity, expansion, items)));
    for (name, filter) in natives.into_iter().chain(beyond()) {
        let told = dump_of(&filter, 5);
        // Records as clients send them, without checksums and iterators that can be fixed.
        seed(all, NATIVE_DUMP, &format!("{name}-as-it-travels"), Whole, &plain(&told));
        let without_sums = |(index, (_, data)): (usize, &(u64, Vec<u8>))| {
            if index == 0 { data[..data.len() - 4].to_vec() } else { [&data[..1], &data[5..]].concat() }
        };
        let parts: Vec<_> = told.iter().enumerate().map(without_sums).collect();
        let numbered = || (1..).zip(parts.iter().map(Vec::as_slice));
        seed(all, NATIVE_DUMP, name, Whole, &records(numbered()));
        let twice = numbered().flat_map(|record| [record, record]);
        seed(all, NATIVE_DUMP, &format!("{name}-each-record-twice"), Whole, &records(twice));
        let again = numbered().chain(numbered());
        seed(all, NATIVE_DUMP, &format!("{name}-all-over-again"), Whole, &records(again));
        if parts.len() > 2 {
            seed(all, NATIVE_DUMP, &format!("{name}-not-all"), Arriving, &records(numbered().take(2)));
        }
    }
    let large = NativeLayer { groups: 300, blocks_per_group: 64, chunks: vec![vec![]; 2], ..NativeLayer::default() };
    seed(all, NATIVE_DUMP, "chunks-of-zeros", Whole, &Native { layers: vec![large], ..Native::default() }.dump());
}

/// The formats of RedisBloom and its old releases.
fn spellings() -> Vec<(&'static str, RedisBloom)> {
    let filter = |encoding, options, growth, layers: &[RedisBloomLayer]| RedisBloom {
        encoding,
        options,
        growth,
        layers: layers.to_vec(),
        count: layers.len() as u64,
        ..RedisBloom::default()
    };
    let layer = RedisBloomLayer { string: bits(144), size: 20, ..RedisBloomLayer::default() };
    let power = RedisBloomLayer { bits: 0, n2: 10, string: bits(128), bytes: 128, ..layer.clone() };
    let with_k = |hashes, error| RedisBloomLayer { hashes, error, ..layer.clone() };
    let tiny = RedisBloomLayer { entries: 1, size: 1, hashes: 1, bits: 1, string: vec![1], bytes: 1, ..layer.clone() };
    let full = RedisBloomLayer { size: 100, ..layer.clone() };
    vec![
        ("encoding-0", filter(0, 0, 2, std::slice::from_ref(&layer))),
        ("encoding-1", filter(1, 0, 2, &[layer.clone(), layer.clone()])),
        ("encoding-1-n2", filter(1, 0, 2, &[power.clone(), power.clone()])),
        ("encoding-2-hash-of-32-bits-n2", filter(2, 0, 2, std::slice::from_ref(&power))),
        ("encoding-2-hash-of-64-bits-n2", filter(2, 4, 2, &[power.clone(), power.clone()])),
        ("encoding-2-no-power-of-two", filter(2, 5, 2, std::slice::from_ref(&layer))),
        ("encoding-3-fixed", filter(3, 13, 2, std::slice::from_ref(&full))),
        ("encoding-4-hash-of-32-bits", filter(4, 1, 2, std::slice::from_ref(&layer))),
        ("encoding-4-either-seeds", filter(4, 1 << 31 | 4, 2, std::slice::from_ref(&power))),
        ("bits-below-the-bytes", filter(4, 5, 2, &[RedisBloomLayer { bits: 1103, ..layer.clone() }])),
        ("more-items-than-capacity", filter(4, 5, 2, &[RedisBloomLayer { size: 300, ..layer.clone() }])),
        (
            "capacity-without-end",
            filter(4, 5, 2, &[RedisBloomLayer { entries: u64::MAX, size: u64::MAX, ..layer.clone() }]),
        ),
        ("growth-0", filter(4, 5, 0, std::slice::from_ref(&full))),
        ("growth-without-end", filter(4, 5, u32::MAX.into(), std::slice::from_ref(&full))),
        ("hashes-997", filter(4, 13, 2, &[with_k(997, 1e-300)])),
        ("hashes-1100", filter(4, 5, 2, &[with_k(1100, 5e-324)])),
        ("a-rate-near-1", filter(4, 5, 2, &[with_k(1, 0.999)])),
        ("layers-of-a-bit", filter(4, 5, 1, &vec![tiny; 40])),
    ]
}

pub fn redisbloom_snapshots(all: &Inputs) {
    for (name, rate, capacity, expansion, items) in SHAPES {
        let saved = written(&redisbloom(rate, capacity, expansion, items).into());
        seed(all, REDISBLOOM_SNAPSHOT, name, Whole, &[&[4], &saved[..]].concat());
    }
    spellings().iter().for_each(|(name, filter)| seed(all, REDISBLOOM_SNAPSHOT, name, Whole, &filter.snapshot()));
}

pub fn redisbloom_dumps(all: &Inputs) {
    let dump = |name: &str, makes, told: &[(u8, &[u8])]| {
        seed(all, REDISBLOOM_DUMP, name, makes, &records(told.iter().copied()));
    };
    for (name, filter) in spellings().iter().filter(|(_, filter)| filter.encoding != 0) {
        seed(all, REDISBLOOM_DUMP, name, Whole, &filter.dump());
    }
    let told = dump_of(&redisbloom(0.01, 4, 2, 20), 0);
    let (header, first, second) = (&told[0].1, &told[1].1[..], &told[2].1[..]);
    // The number that is added to the next iterator: a duplicate chunk ends earlier by this.
    let back = |bytes: usize| u8::try_from(256 - bytes).unwrap();
    dump("half-a-layer", Arriving, &[(0, header), (0, &first[..5])]);
    dump("a-chunk-twice", Arriving, &[(0, header), (0, first), (back(first.len()), first)]);
    let overlapping: [(u8, &[u8]); 3] = [(0, header), (0, &first[..6]), (back(3), &first[3..])];
    dump("chunks-that-overlap", Arriving, &overlapping);
    let mut whole = vec![(0, &header[..]), (0, &first[..1]), (0, &first[1..]), (0, second)];
    whole.extend(told[3..].iter().map(|(_, layer)| (0, &layer[..])));
    dump("chunks-of-all-lengths", Whole, &whole);
    // Records that a primary accepted: the first layer from its last byte to its first, some bytes twice; then the other layers.
    let of_primary = |told: &[(u8, &[u8])]| {
        let mut data = records(told.iter().copied());
        data[0] |= OF_PRIMARY;
        data
    };
    let mut taken: Vec<(u8, &[u8])> = vec![(0, header)];
    taken.extend((0..first.len()).rev().map(|place| (u8::try_from(place).unwrap(), &first[place..=place])));
    taken.splice(2..2, [(0, &[][..]), (3, &[0xff; 2][..]), (3, &first[3..5])]);
    seed(all, REDISBLOOM_DUMP, "of-a-primary-backwards-not-all", Arriving, &of_primary(&taken));
    taken.extend(told[2..].iter().map(|(_, layer)| (0, &layer[..])));
    seed(all, REDISBLOOM_DUMP, "of-a-primary-backwards", Whole, &of_primary(&taken));
    let again = told.iter().take(1).chain(&told).chain(&told[1..]);
    seed(all, REDISBLOOM_DUMP, "as-it-travels-header-and-chunks-again", Whole, &plain(again));
}

pub fn redisbloom_cuckoo(all: &Inputs) {
    for (name, capacity, bucket_size, iterations, expansion, items) in [
        ("empty", 8, 2, 20, 1, 0u32),
        ("grown", 4, 2, 20, 1, 60),
        ("doubled", 4, 1, 1, 2, 90),
        ("wide", 510, 255, 20, 0, 200),
    ] {
        let spec = RedisBloomCuckooSpec { capacity, bucket_size, iterations, expansion };
        let mut filter = RedisBloomCuckooFilter::with_spec(&spec, &Unlimited).unwrap();
        (0..items).for_each(|number| filter.add(&number.to_le_bytes(), &Unlimited).unwrap());
        (0..items / 20).for_each(|number| assert!(filter.delete(&number.to_le_bytes())));
        let told: Vec<_> = chunked::records(&filter).map(|record| record.unwrap().1.into_owned()).collect();
        let chunks = |count| records(told.iter().take(count).map(|data| (0, &data[..])));
        let snapshot = [&[0], &written(&Value::Cuckoo(filter))[..]].concat();
        seed(all, REDISBLOOM_CUCKOO, &format!("{name}-snapshot"), Whole, &snapshot);
        seed(all, REDISBLOOM_CUCKOO, &format!("{name}-header"), Arriving, &[&[1], &chunks(1)[..]].concat());
        seed(all, REDISBLOOM_CUCKOO, &format!("{name}-dump"), Whole, &[&[1], &chunks(usize::MAX)[..]].concat());
    }
}

pub fn valkey_bloom_snapshots_and_loads(all: &Inputs) {
    let both = |name: &str, filter: &ValkeyBloom| {
        seed(all, VALKEY_BLOOM_SNAPSHOT, name, Whole, &filter.snapshot());
        seed(all, VALKEY_BLOOM_LOAD, name, Whole, &filter.load());
    };
    for (name, rate, capacity, expansion, items) in SHAPES {
        let seed_of_it = if items < 30 { FIXED_SEED } else { [9; 32] };
        let rules = Rules::new(rate, 0.5, Scaling::from_expansion(expansion), seed_of_it);
        let filter = with_items(Spec::ValkeyBloom(ValkeyBloomSpec { rules, capacity }), items);
        if let Filter::ValkeyBloom(filter) = &filter {
            seed(all, VALKEY_BLOOM_LOAD, name, Whole, &load::encode(filter).unwrap());
        }
        seed(all, VALKEY_BLOOM_SNAPSHOT, name, Whole, &written(&filter.into()));
    }
    let layer = ValkeyBloomLayer { bits: bits(120), ..ValkeyBloomLayer::default() };
    let full = ValkeyBloomLayer { items: 100, ..layer.clone() };
    let grown = ValkeyBloom { count: 3, layers: vec![full.clone(), full, layer.clone()], ..ValkeyBloom::default() };
    both("spelled-out", &grown);
    seed(all, VALKEY_BLOOM_LOAD, "bytes-after-the-end", Whole, &[grown.load(), bits(10)].concat());
    let most = ValkeyBloomLayer { hashes: 1100, ..layer.clone() };
    both("hashes-1100", &ValkeyBloom { layers: vec![most], ..ValkeyBloom::default() });
    let byte = ValkeyBloomLayer { capacity: 1, items: 1, hashes: 1, length: 1, bits: vec![1], ..layer };
    let bytes =
        ValkeyBloom { expansion: 1, tightening: 0.9, count: 40, layers: vec![byte; 40], ..ValkeyBloom::default() };
    both("layers-of-a-byte", &bytes);
}
