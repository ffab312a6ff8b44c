//! Inputs for the errors of decoders that no other input causes. If a dump has begun, one of its records is refused, and earlier records
//! remain.

use bloomgate_filter::format::Error;
use bloomgate_filter::kinds::NativeSpec;
use bloomgate_filter::{Error as FilterError, Filter, Policy, Scaling, Spec, Unlimited};

use super::Inputs;
use super::spelled::{Native, NativeLayer, RedisBloom, ValkeyBloom, ValkeyBloomLayer, records};
use super::targets::records::{RIGHT_ITERATORS, RIGHT_SUMS};
use super::targets::snapshot::written;
use super::targets::{NATIVE_DUMP, NATIVE_SNAPSHOT, REDISBLOOM_DUMP, REDISBLOOM_SNAPSHOT, Target};
use super::targets::{VALKEY_BLOOM_LOAD, VALKEY_BLOOM_SNAPSHOT};

/// Generates an input with this name. The input or one of its records is refused with this error.
#[track_caller]
fn refused(all: &Inputs, error: Error, target: Target, name: &str, data: &[u8]) {
    all.take(target.name, name, data);
    assert_eq!((target.decode)(data).refused, Some(error), "{}/{name}", target.name);
}

pub fn native_snapshots(all: &Inputs) {
    let snapshot = |error, name, change: &dyn Fn(&mut Native)| {
        let mut filter = Native::default();
        change(&mut filter);
        refused(all, error, NATIVE_SNAPSHOT, name, &filter.snapshot());
    };
    snapshot(Error::UnknownVersion(4), "version-4", &|f| f.version = 4);
    snapshot(Error::UnknownKind(10), "kind-10", &|f| f.kind = 10);
    snapshot(Error::UnknownHash(3), "hash-3", &|f| f.hash = 3);
    snapshot(Error::WrongLength, "a-chunk-too-short", &|f| f.layers[0].chunks = vec![vec![1; 127]]);
    snapshot(Error::OutOfRange, "arriving-all-has-come", &|f| (f.kind, f.next) = (2, 1));
    snapshot(Error::OutOfRange, "arriving-generation-too-large", &|f| (f.kind, f.generation) = (2, 1 << 14));
    snapshot(Error::OutOfRange, "seed-of-33-bits", &|f| f.seed = 1 << 32);
    snapshot(Error::Filter(FilterError::Unsound), "fixed-with-two-layers", &|f| {
        (f.expansion, f.count) = (0, 2);
        f.layers = vec![NativeLayer::default(); 2];
    });
    let no_header = [1u64, 3, 8, 0].map(u64::to_le_bytes).concat();
    refused(all, Error::Truncated, NATIVE_SNAPSHOT, "redisbloom-arriving-half-a-header", &no_header);
    let no_header = [1u64, 3, 16, 0, 0, 0].map(u64::to_le_bytes).concat();
    refused(all, Error::Filter(FilterError::Unsound), NATIVE_SNAPSHOT, "redisbloom-arriving-no-layers", &no_header);
    let no_header = [1u64, 3, 24, 0, 1, 2].map(u64::to_le_bytes).concat();
    refused(all, Error::NotADump, NATIVE_SNAPSHOT, "redisbloom-arriving-no-header", &no_header);
    ranges_that_cannot_have_come(all);
    packed(all);
}

/// Filters in one string: with the numbers of a kind that is never packed, with an overlong number, with trailing bytes, and compact ones
/// with each field unsound.
fn packed(all: &Inputs) {
    for (error, name, fields) in [
        (Error::UnknownKind(2), "packed-arriving", &[2, 1][..]),
        (Error::UnknownKind(3), "packed-redisbloom-arriving", &[3]),
        (Error::OutOfRange, "packed-kind-in-two-bytes", &[0x81, 0]),
        (Error::OutOfRange, "packed-kind-of-65-bits", &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]),
        (Error::Truncated, "packed-nothing", &[]),
    ] {
        let data = [&2_u64.to_le_bytes()[..], &(fields.len() as u64).to_le_bytes(), fields].concat();
        refused(all, error, NATIVE_SNAPSHOT, name, &data);
    }
    let spec = NativeSpec::murmur3(0.01, 100, Scaling::from_expansion(2), 7);
    for (version, name, policy) in [(2_u64, "packed", Policy::Two), (3, "compact", Policy::NEWEST)] {
        let filter = Filter::new(&Spec::Native(NativeSpec { policy, ..spec }), &Unlimited).unwrap();
        let mut trailing = written(&filter.into());
        assert_eq!(trailing[..8], version.to_le_bytes());
        trailing.push(0);
        trailing[8] += 1;
        refused(all, Error::Overlong, NATIVE_SNAPSHOT, &format!("{name}-and-a-byte"), &trailing);
    }
    // The definition with its length: policy, rate, expansion, capacity, seed. Then the layers, the items of each, and its cells.
    let sound = [5, 3, 0x12, 2, 100, 42];
    let unsound = Error::Filter(FilterError::Unsound);
    for (error, name, definition, rest) in [
        (unsound, "of-policy-2", [5, 2, 0x12, 2, 100, 42], &[1, 0, 0][..]),
        (Error::UnknownVersion(4), "of-policy-4", [5, 4, 0x12, 2, 100, 42], &[1, 0, 0]),
        (Error::OutOfRange, "at-rate-0.5", [5, 3, 0x51, 2, 100, 42], &[1, 0, 0]),
        (Error::OutOfRange, "of-capacity-0", [5, 3, 0x12, 2, 0, 42], &[1, 0, 0]),
        (Error::OutOfRange, "of-four-layers", sound, &[4, 0, 0, 0, 0, 0]),
        (Error::OutOfRange, "of-17-layers", sound, &[17]),
        (unsound, "without-layers", sound, &[0]),
        (unsound, "of-101-items", sound, &[1, 101, 0]),
        (Error::Truncated, "without-cells", sound, &[1, 0]),
        (Error::Truncated, "with-half-a-mask", sound, &[1, 1, 1, 1]),
    ] {
        let fields = [&definition[..], rest].concat();
        let data = [&3_u64.to_le_bytes()[..], &(fields.len() as u64).to_le_bytes(), &fields].concat();
        refused(all, error, NATIVE_SNAPSHOT, &format!("compact-{name}"), &data);
    }
    let other_mask = [&sound[..], &[1, 1, 1, 3], &[0; 23], &[7]].concat();
    let data = [&3_u64.to_le_bytes()[..], &(other_mask.len() as u64).to_le_bytes(), &other_mask].concat();
    refused(all, Error::OutOfRange, NATIVE_SNAPSHOT, "compact-with-another-mask", &data);
}

/// Impossible ranges of an arriving filter in RedisBloom's layout. The filter has 144 bytes; the last ranges contradict this.
fn ranges_that_cannot_have_come(all: &Inputs) {
    let header = RedisBloom::default().header();
    let with_ranges = |ranges: &[u64], bits: &[u8]| {
        let mut data = [1u64, 3].map(u64::to_le_bytes).concat();
        data.extend([&(header.len() as u64).to_le_bytes(), &header[..], &u64::MAX.to_le_bytes()].concat());
        ranges.iter().for_each(|number| data.extend(number.to_le_bytes()));
        data.extend([&(bits.len() as u64).to_le_bytes(), bits].concat());
        data
    };
    for (name, ranges) in [
        ("none", &[0][..]),
        ("without-a-gap", &[1, 0, 5]),
        ("empty", &[1, 5, 5]),
        ("touching", &[2, 1, 5, 5, 9]),
        ("beyond-the-end", &[1, 140, 145]),
        ("of-a-byte-that-has-not-come", &[2, 0, 5, 6, 144]),
    ] {
        let mut bits = [0; 144];
        bits[5] = 1;
        let name = format!("redisbloom-arriving-ranges-{name}");
        refused(all, Error::OutOfRange, NATIVE_SNAPSHOT, &name, &with_ranges(ranges, &bits));
    }
}

pub fn native_dumps(all: &Inputs) {
    let layers = vec![NativeLayer::default(); 3];
    let filter = Native { count: 3, layers, ..Native::default() };
    let header = filter.header();
    let ones = [&[1][..], &[0xff; 128]].concat();
    let dump = |error, name, told: &[(u8, &[u8])]| {
        let told = [(1, &header[..])].into_iter().chain(told.iter().copied());
        refused(all, error, NATIVE_DUMP, name, &records(told));
    };
    let number_of = |record: u64| (5 << 12 | 2) << 27 | record;
    dump(Error::WrongOrder { expected: number_of(2) }, "a-chunk-left-out", &[(3, &[0])]);
    dump(Error::WrongOrder { expected: number_of(3) }, "a-chunk-left-out-after-another", &[(2, &[0]), (4, &[0])]);
    dump(Error::OutOfRange, "record-0", &[(0, &[0])]);
    dump(Error::OutOfRange, "tag-4", &[(2, &[4])]);
    dump(Error::Truncated, "number-of-items-cut", &[(2, &[2, 1])]);
    let zeros_of = |items: u64| [&[2][..], &items.to_le_bytes()].concat();
    let unsound = Error::Filter(FilterError::Unsound);
    dump(unsound, "more-items-than-the-layer-is-for", &[(2, &[0]), (3, &[0]), (4, &zeros_of(101))]);
    dump(Error::Different, "more-items-again", &[(2, &zeros_of(5)), (2, &zeros_of(6))]);
    dump(Error::WrongLength, "zeros-with-bits", &[(2, &[0, 1])]);
    dump(Error::WrongLength, "bits-too-short", &[(2, &[1, 1])]);
    dump(Error::WrongLength, "bits-too-long", &[(2, &[&ones[..], &[1]].concat())]);
    dump(Error::Different, "another-chunk-again", &[(2, &[0]), (2, &ones)]);
    dump(Error::Different, "another-chunk-again-when-it-is-whole", &[(2, &[0]), (3, &[0]), (4, &[0]), (2, &ones)]);
    dump(Error::OutOfRange, "a-chunk-after-the-last", &[(2, &[0]), (3, &[0]), (4, &[0]), (5, &[0])]);
    let other = Native { seed: 43, ..filter.clone() }.header();
    dump(Error::Different, "another-header-again", &[(2, &[0]), (1, &other)]);
    let mut torn = records([(1, &header[..])]);
    torn[0] = RIGHT_ITERATORS;
    refused(all, Error::WrongChecksum, NATIVE_DUMP, "header-without-checksum", &torn);
    let mut other_layers = vec![RIGHT_SUMS];
    other_layers.extend((number_of(1) + (1 << 27)).to_le_bytes());
    other_layers.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    other_layers.extend(&header);
    refused(all, Error::WrongGeneration, NATIVE_DUMP, "iterator-of-other-layers", &other_layers);
    refused(all, Error::NotADump, NATIVE_DUMP, "another-magic", &records([(1, &[0; 100][..])]));
    let version = Native { version: 3, ..filter.clone() }.dump();
    refused(all, Error::UnknownVersion(3), NATIVE_DUMP, "version-3", &version);
    refused(all, Error::UnknownHash(3), NATIVE_DUMP, "hash-3", &Native { hash: 3, ..filter.clone() }.dump());
    let policy = Native { policy: 4, ..filter }.dump();
    refused(all, Error::Filter(FilterError::Unsound), NATIVE_DUMP, "policy-4", &policy);
    refused(all, Error::Truncated, NATIVE_DUMP, "no-records", &[3]);
}

pub fn redisbloom_snapshots(all: &Inputs) {
    let newer = RedisBloom { encoding: 5, ..RedisBloom::default() };
    refused(all, Error::UnknownVersion(5), REDISBLOOM_SNAPSHOT, "encoding-5", &newer.snapshot());
}

pub fn redisbloom_dumps(all: &Inputs) {
    let filter = RedisBloom::default();
    let layers = vec![filter.layers[0].clone(); 2];
    let header = RedisBloom { count: 2, layers, ..filter }.header();
    let dump = |error, name, told: &[(u8, &[u8])]| {
        let told = [(0, &header[..])].into_iter().chain(told.iter().copied());
        refused(all, error, REDISBLOOM_DUMP, name, &records(told));
    };
    dump(Error::WrongLength, "a-chunk-of-nothing", &[(1, &[])]);
    dump(Error::Gap { arrived_bytes: 0 }, "a-gap-in-front", &[(1, &[0; 10])]);
    dump(Error::Gap { arrived_bytes: 10 }, "a-gap-after-a-chunk", &[(0, &[0; 10]), (100, &[0; 10])]);
    dump(Error::TooLong, "a-chunk-that-goes-on-past-its-layer", &[(0, &[0; 145])]);
    dump(Error::Different, "another-chunk-again", &[(0, &[0; 100]), (256u16.wrapping_sub(100) as u8, &[1; 100])]);
    dump(Error::BeyondEnd, "a-chunk-after-the-end", &[(0, &[0; 144]), (0, &[0; 60]), (100, &[0])]);
    dump(Error::BeyondEnd, "a-chunk-that-begins-before-the-first", &[(256u16.wrapping_sub(5) as u8, &[0; 3])]);
    let newer = [&header[..20], &[0; 16], &header[20..]].concat();
    refused(all, Error::UnknownVersion(5), REDISBLOOM_DUMP, "header-of-encoding-5", &records([(0, &newer[..])]));
    refused(all, Error::Truncated, REDISBLOOM_DUMP, "no-records", &[2]);
}

pub fn valkey_bloom_snapshots_and_loads(all: &Inputs) {
    let both = |error, name, change: &dyn Fn(&mut ValkeyBloom)| {
        let mut filter =
            ValkeyBloom { count: 2, layers: vec![ValkeyBloomLayer::default(); 2], ..ValkeyBloom::default() };
        filter.layers[0].items = 100;
        change(&mut filter);
        refused(all, error, VALKEY_BLOOM_LOAD, name, &filter.load());
        if name != "older-layer-not-full" {
            refused(all, error, VALKEY_BLOOM_SNAPSHOT, name, &filter.snapshot());
        }
    };
    let unsound = Error::Filter(FilterError::Unsound);
    both(Error::UnknownVersion(2), "bitmap-version-2", &|f| f.layers[1].version = 2);
    both(unsound, "another-seed", &|f| f.layers[1].seed = [8; 32]);
    both(unsound, "fixed-with-two-layers", &|f| f.expansion = 0);
    both(Error::OutOfRange, "seed-random-2", &|f| f.is_seed_random = 2);
    both(Error::OutOfRange, "more-items-than-capacity", &|f| f.layers[1].items = 101);
    both(Error::OutOfRange, "older-layer-not-full", &|f| f.layers[0].items = 99);
    let newer = ValkeyBloom { load_version: 2, ..ValkeyBloom::default() };
    refused(all, Error::UnknownVersion(2), VALKEY_BLOOM_LOAD, "version-2", &newer.load());
    let wide = ValkeyBloom { expansion: 1 << 32, ..ValkeyBloom::default() };
    refused(all, Error::OutOfRange, VALKEY_BLOOM_SNAPSHOT, "expansion-of-33-bits", &wide.snapshot());
}
