//! Inputs that once broke a law here, each with a name. Now each is refused or creates a sound filter.

use super::Inputs;
use super::spelled::{Native, NativeLayer, RedisBloom, RedisBloomLayer, ValkeyBloom, ValkeyBloomLayer};
use super::targets::{
    NATIVE_SNAPSHOT, REDISBLOOM_DUMP, REDISBLOOM_SNAPSHOT, Target, VALKEY_BLOOM_LOAD, VALKEY_BLOOM_SNAPSHOT,
};

/// Generates an input with this name, which keeps the laws.
#[track_caller]
fn holds(all: &Inputs, target: Target, name: &str, data: &[u8]) {
    all.take(target.name, name, data);
    (target.check)(data);
}

/// At a rate close to 1, a layer of any capacity is small, so no ceiling stopped the growth. The next capacity had 64 bits, and
/// neither written form could be read again.
pub fn a_capacity_that_grows_beyond_63_bits(all: &Inputs) {
    let near_1 = 1.0 - f64::EPSILON / 2.0;
    let full = ValkeyBloomLayer {
        capacity: 1 << 62,
        items: 1 << 62,
        hashes: 1,
        length: 16,
        bits: vec![0; 16],
        seed: [7; 32],
        version: 1,
    };
    let filter = ValkeyBloom { rate: near_1, tightening: near_1, layers: vec![full], ..ValkeyBloom::default() };
    holds(all, VALKEY_BLOOM_SNAPSHOT, "capacity-that-grows-beyond-63-bits", &filter.snapshot());
    holds(all, VALKEY_BLOOM_LOAD, "capacity-that-grows-beyond-63-bits", &filter.load());
}

/// A layer may hold more items than its capacity, and a layer before the newest need not be full. Before the growth no sum overflowed, but
/// afterwards the sum of the larger numbers did, which is checked when the filter is read again.
pub fn a_sum_that_growing_brings_to_its_end(all: &Inputs) {
    let half = RedisBloomLayer { entries: 1 << 63, ..RedisBloomLayer::default() };
    let full = RedisBloomLayer { entries: 1, size: (1 << 63) - 1, ..half.clone() };
    let filter = RedisBloom { layers: vec![half, full], count: 2, ..RedisBloom::default() };
    holds(all, REDISBLOOM_SNAPSHOT, "a-sum-that-growing-brings-to-its-end", &filter.snapshot());
}

/// RedisBloom's header begins with the number of items, ours with a magic number. A filter with that number of items was saved
/// as RedisBloom's, but the records of its AOF were read as ours, and refused.
pub fn items_that_are_our_magic(all: &Inputs) {
    let size = u64::from_le_bytes(*b"\xb1oomgate");
    let layers = vec![RedisBloomLayer { size, ..RedisBloomLayer::default() }];
    let filter = RedisBloom { size, layers, ..RedisBloom::default() };
    holds(all, REDISBLOOM_SNAPSHOT, "items-that-are-our-magic", &filter.snapshot());
    holds(all, REDISBLOOM_DUMP, "items-that-are-our-magic", &filter.dump());
}

/// Bits beyond the stated arrived range were accepted, but the filter's records lacked them, and a chunk of zeros did not clear them.
pub fn bits_that_have_not_come(all: &Inputs) {
    let dirty = NativeLayer { chunks: vec![vec![0xff; 128]], ..NativeLayer::default() };
    let filter = Native { kind: 2, count: 2, layers: vec![NativeLayer::default(), dirty], ..Native::default() };
    holds(all, NATIVE_SNAPSHOT, "arriving-with-bits-that-have-not-come", &filter.snapshot());

    let layers = vec![RedisBloomLayer::default(); 2];
    let header = RedisBloom { layers, count: 2, ..RedisBloom::default() }.header();
    let number = |number: u64| number.to_le_bytes().to_vec();
    let mut data = [number(1), number(3), number(header.len() as u64), header, number(0)].concat();
    for byte in [0, 0xff] {
        data.extend([number(144), vec![byte; 144]].concat());
    }
    holds(all, NATIVE_SNAPSHOT, "redisbloom-arriving-with-bits-that-have-not-come", &data);
}

/// A dump that omits a changed table has more records than the table's entries need. A value that had received such records wrote
/// empty ones in their place, and did not recognize them.
pub fn records_beyond_the_last_entry(all: &Inputs) {
    let numbers = |all: &[u64]| all.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
    let rate = 0.01_f64.to_bits();
    // An arriving filter with a keyed hash and one layer of 128 bytes, one record of cells, and three after it.
    let front = [numbers(&[1, 2, 2, rate, 100, 0]), b"a key, 16 bytes.".to_vec()].concat();
    let (layer, position) = ([1, 1, rate, 100, 0, 7, 1, 2], [9, 4, 0]);
    let data = [front, numbers(&layer), numbers(&position), numbers(&[128]), vec![0; 128], numbers(&[0])].concat();
    holds(all, NATIVE_SNAPSHOT, "arriving-with-records-beyond-the-last-entry", &data);
}
