//! Sound inputs of many shapes, from which fuzzing goes on: one layer and many, fixed and grown, full, arriving, and the
//! spellings of old releases.

use bloomgate::bloom::valkey_bloom::FIXED_SEED;
use bloomgate::bloom::{
    BloomFilter, Filter, RedisBloomFilter, Scaling, Unlimited, ValkeyBloom as Rules, ValkeyBloomFilter,
};
use bloomgate::format::{Arrival, NativeArrival, RedisBloomArrival, Value, dump, redisbloom_dump, valkey_bloom};

use super::Inputs;
use super::spelled::{Native, NativeLayer, RedisBloom, RedisBloomLayer, ValkeyBloom, ValkeyBloomLayer, records};
use super::targets::snapshot::written;
use super::targets::{NATIVE_DUMP, NATIVE_SNAPSHOT, REDISBLOOM_DUMP, REDISBLOOM_SNAPSHOT, Target};
use super::targets::{VALKEY_BLOOM_LOAD, VALKEY_BLOOM_SNAPSHOT};

/// What a seed makes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Makes {
    Filter,
    Arriving,
}
use Makes::{Arriving, Filter as Whole};

/// An input of this name makes this without meeting an error.
#[track_caller]
fn seed(all: &Inputs, target: Target, name: &str, makes: Makes, data: &[u8]) {
    all.take(target.name, name, data);
    let outcome = (target.decode)(data);
    let made = match outcome.value {
        Some(Value::Filter(_)) => Some(Whole),
        Some(Value::Arriving(_)) => Some(Arriving),
        None => None,
    };
    assert_eq!((made, outcome.refused), (Some(makes), None), "{}/{name}", target.name);
}

fn with_items(mut filter: Filter, items: u32) -> Filter {
    for number in 0..items {
        filter.add_batch([&number.to_le_bytes()[..]], &Unlimited);
    }
    filter
}

fn native(rate: f64, capacity: u64, expansion: u32, items: u32) -> BloomFilter {
    let filter = BloomFilter::new(rate, capacity, Scaling::from_expansion(expansion), 7, &Unlimited).unwrap();
    match with_items(filter.into(), items) {
        Filter::Native(filter) => filter,
        other => panic!("{other:?}"),
    }
}

fn redisbloom(rate: f64, capacity: u64, expansion: u32, items: u32) -> RedisBloomFilter {
    let filter = RedisBloomFilter::new(rate, capacity, Scaling::from_expansion(expansion), &Unlimited).unwrap();
    match with_items(filter.into(), items) {
        Filter::RedisBloom(filter) => filter,
        other => panic!("{other:?}"),
    }
}

/// Bits of which some are set.
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
        snapshot(name, Whole, &written(&Filter::from(filter).into()));
    }
    let large = NativeLayer { groups: 300, blocks_per_group: 64, chunks: vec![vec![]; 2], ..NativeLayer::default() };
    let large = Native { layers: vec![large], ..Native::default() };
    snapshot("chunks-of-zeros", Whole, &large.snapshot());
    snapshot("arriving-in-chunks", Arriving, &Native { kind: 2, next: 1, ..large }.snapshot());
    let filter = native(0.01, 4, 2, 60);
    let mut told = dump::records(&filter, 9).map(Result::unwrap);
    let (iterator, header) = told.next().unwrap();
    let mut arrival = NativeArrival::begin(iterator, &header, &Unlimited).unwrap();
    snapshot("arriving-header", Arriving, &written(&Arrival::Native(arrival.try_clone().unwrap()).into()));
    told.take(2).for_each(|(iterator, data)| assert!(arrival.accept(iterator, &data).is_ok()));
    snapshot("arriving-layers", Arriving, &written(&Arrival::Native(arrival).into()));
    let filter = redisbloom(0.01, 4, 2, 60);
    let mut arrival = RedisBloomArrival::begin(&redisbloom_dump::encode_header(&filter).unwrap(), &Unlimited).unwrap();
    snapshot(
        "redisbloom-arriving-header",
        Arriving,
        &written(&Arrival::RedisBloom(arrival.try_clone().unwrap()).into()),
    );
    let layer = filter.layers()[0].bytes();
    arrival.accept(1 + layer.len() as u64, layer).unwrap();
    arrival.accept(1 + layer.len() as u64 + 3, &filter.layers()[1].bytes()[..3]).unwrap();
    snapshot("redisbloom-arriving-half-a-layer", Arriving, &written(&Arrival::RedisBloom(arrival).into()));
}

pub fn native_dumps(all: &Inputs) {
    for (name, rate, capacity, expansion, items) in SHAPES {
        let told: Vec<_> = dump::records(&native(rate, capacity, expansion, items), 5).map(Result::unwrap).collect();
        // As they travel, and with what can be put right left out.
        let mut plain = vec![0];
        for (iterator, data) in &told {
            plain.extend_from_slice(&iterator.to_le_bytes());
            plain.extend_from_slice(&u16::try_from(data.len()).unwrap().to_le_bytes());
            plain.extend_from_slice(data);
        }
        seed(all, NATIVE_DUMP, &format!("{name}-as-it-travels"), Whole, &plain);
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

/// What RedisBloom and its old releases spell.
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
        ("encoding-4-short-seeds", filter(4, 1 << 31 | 4, 2, std::slice::from_ref(&power))),
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
        let saved = written(&Filter::from(redisbloom(rate, capacity, expansion, items)).into());
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
    let filter = redisbloom(0.01, 4, 2, 20);
    let (header, layers) = (redisbloom_dump::encode_header(&filter).unwrap(), filter.layers());
    let (first, second) = (layers[0].bytes(), layers[1].bytes());
    // What is added to the iterator that is next: a chunk that came already ends that much earlier.
    let back = |bytes: usize| u8::try_from(256 - bytes).unwrap();
    dump("half-a-layer", Arriving, &[(0, &header), (0, &first[..5])]);
    dump("a-chunk-twice", Arriving, &[(0, &header), (0, first), (back(first.len()), first)]);
    let overlapping: [(u8, &[u8]); 3] = [(0, &header), (0, &first[..6]), (back(3), &first[3..])];
    dump("chunks-that-overlap", Arriving, &overlapping);
    let mut whole = vec![(0, &header[..]), (0, &first[..1]), (0, &first[1..]), (0, second)];
    whole.extend(layers[2..].iter().map(|layer| (0, layer.bytes())));
    dump("chunks-of-all-lengths", Whole, &whole);
    let mut plain = vec![0];
    for record in redisbloom_dump::records(&filter).chain(redisbloom_dump::records(&filter).skip(1)) {
        let (iterator, data) = record.unwrap();
        plain.extend_from_slice(&iterator.to_le_bytes());
        plain.extend_from_slice(&u16::try_from(data.len()).unwrap().to_le_bytes());
        plain.extend_from_slice(&data);
    }
    plain.splice(
        9 + 2 + header.len()..9 + 2 + header.len(),
        [&[1, 0, 0, 0, 0, 0, 0, 0], &(header.len() as u16).to_le_bytes()[..], &header].concat(),
    );
    seed(all, REDISBLOOM_DUMP, "as-it-travels-header-and-chunks-again", Whole, &plain);
}

pub fn valkey_bloom_snapshots_and_loads(all: &Inputs) {
    let both = |name: &str, filter: &ValkeyBloom| {
        seed(all, VALKEY_BLOOM_SNAPSHOT, name, Whole, &filter.snapshot());
        seed(all, VALKEY_BLOOM_LOAD, name, Whole, &filter.load());
    };
    for (name, rate, capacity, expansion, items) in SHAPES {
        let seed_of_it = if items < 30 { FIXED_SEED } else { [9; 32] };
        let rules = Rules::new(rate, 0.5, Scaling::from_expansion(expansion), seed_of_it);
        let filter = with_items(ValkeyBloomFilter::new(rules, capacity, &Unlimited).unwrap().into(), items);
        if let Filter::ValkeyBloom(filter) = &filter {
            seed(all, VALKEY_BLOOM_LOAD, name, Whole, &valkey_bloom::encode_load(filter).unwrap());
        }
        seed(all, VALKEY_BLOOM_SNAPSHOT, name, Whole, &written(&filter.into()));
    }
    let layer = ValkeyBloomLayer { bits: bits(120), ..ValkeyBloomLayer::default() };
    let full = ValkeyBloomLayer { items: 100, ..layer.clone() };
    let grown = ValkeyBloom { count: 3, layers: vec![full.clone(), full, layer.clone()], ..ValkeyBloom::default() };
    both("spelled-out", &grown);
    seed(all, VALKEY_BLOOM_LOAD, "bytes-behind-the-end", Whole, &[grown.load(), bits(10)].concat());
    let most = ValkeyBloomLayer { hashes: 1100, ..layer.clone() };
    both("hashes-1100", &ValkeyBloom { layers: vec![most], ..ValkeyBloom::default() });
    let byte = ValkeyBloomLayer { capacity: 1, items: 1, hashes: 1, length: 1, bits: vec![1], ..layer };
    let bytes =
        ValkeyBloom { expansion: 1, tightening: 0.9, count: 40, layers: vec![byte; 40], ..ValkeyBloom::default() };
    both("layers-of-a-byte", &bytes);
}
