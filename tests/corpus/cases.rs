//! What went wrong in other modules, each as a named file of the corpus that is made here, and the error that it meets:
//! a test for each kind of trouble.

use bloomgate::bloom::{self, Unlimited};
use bloomgate::format::{ByteSource, Error, Value, native, valkey_bloom};

use crate::is_kept;
use crate::spelled::{Native, RedisBloom, RedisBloomLayer, ValkeyBloom, ValkeyBloomLayer};
use crate::targets::{self, CEILING_BYTES, FilterOf, Target};
use crate::targets::{NATIVE_DUMP, NATIVE_SNAPSHOT, REDISBLOOM_DUMP, REDISBLOOM_SNAPSHOT};
use crate::targets::{VALKEY_BLOOM_LOAD, VALKEY_BLOOM_SNAPSHOT};

const UNSOUND: Error = Error::Filter(bloom::Error::Unsound);

/// A filter that wants so many bytes.
const fn too_large(asked_bytes: u64) -> Error {
    Error::Filter(bloom::Error::OutOfMemory { asked_bytes, available_bytes: CEILING_BYTES })
}

/// The file of this name holds this input, which is refused with this error.
#[track_caller]
fn meets(error: Error, target: Target, name: &str, data: &[u8]) {
    is_kept(target.name, name, data);
    let outcome = (target.decode)(data);
    assert_eq!((outcome.value, outcome.refused), (None, Some(error)), "{}/{name}", target.name);
}

fn redisbloom(change: impl Fn(&mut RedisBloom)) -> RedisBloom {
    let mut filter = RedisBloom::default();
    change(&mut filter);
    filter
}

fn valkey(change: impl Fn(&mut ValkeyBloom)) -> ValkeyBloom {
    let mut filter = ValkeyBloom::default();
    change(&mut filter);
    filter
}

fn native(change: impl Fn(&mut Native)) -> Native {
    let mut filter = Native::default();
    change(&mut filter);
    filter
}

/// What is spelled out is sound as long as nothing is changed.
#[test]
fn unchanged_they_are_sound() {
    let inputs = [
        (NATIVE_SNAPSHOT, native(|_| ()).snapshot()),
        (NATIVE_DUMP, native(|_| ()).dump()),
        (REDISBLOOM_SNAPSHOT, redisbloom(|_| ()).snapshot()),
        (REDISBLOOM_DUMP, redisbloom(|_| ()).dump()),
        (VALKEY_BLOOM_SNAPSHOT, valkey(|_| ()).snapshot()),
        (VALKEY_BLOOM_LOAD, valkey(|_| ()).load()),
    ];
    for (target, data) in inputs {
        let outcome = (target.decode)(&data);
        assert!(matches!(outcome.value, Some(Value::Filter(_))) && outcome.refused.is_none(), "{}", target.name);
        (target.check)(&data);
    }
}

/// CVE-2026-25589 and its kin: the modulus is held against the bytes that came.
#[test]
fn bits_beyond_the_bytes() {
    let snapshot = |error, name: &str, change: &dyn Fn(&mut RedisBloom)| {
        meets(error, REDISBLOOM_SNAPSHOT, &format!("cve-2026-25589-{name}"), &redisbloom(change).snapshot());
    };
    snapshot(UNSOUND, "bits-beyond-the-bytes", &|f| f.layers[0].bits = 1153);
    snapshot(too_large(1 << 60), "bits-far-beyond-the-bytes", &|f| f.layers[0].bits = 1 << 63);
    snapshot(UNSOUND, "n2-beyond-the-bytes", &|f| (f.layers[0].bits, f.layers[0].n2) = (0, 11));
    snapshot(too_large(1 << 60), "n2-far-beyond-the-bytes", &|f| f.layers[0].n2 = 63);
    snapshot(Error::OutOfRange, "n2-of-64", &|f| f.layers[0].n2 = 64);
    snapshot(Error::OutOfRange, "n2-of-2-to-the-32", &|f| f.layers[0].n2 = 1 << 32);
    snapshot(UNSOUND, "no-bytes", &|f| f.layers[0].string.clear());
    snapshot(UNSOUND, "no-bytes-and-no-bits", &|f| {
        f.layers[0].bits = 0;
        f.layers[0].string.clear();
    });
    snapshot(UNSOUND, "encoding-0-bits-beyond-the-bytes", &|f| {
        f.encoding = 0;
        f.layers[0].bits_per_entry = 11.6;
    });
    snapshot(too_large(1 << 61), "encoding-0-bits-without-end", &|f| {
        f.encoding = 0;
        f.layers[0].bits_per_entry = 1e300;
    });
    let dump = |error, name: &str, change: &dyn Fn(&mut RedisBloom)| {
        meets(error, REDISBLOOM_DUMP, &format!("cve-2026-25589-{name}"), &redisbloom(change).dump());
    };
    dump(UNSOUND, "bits-beyond-the-bytes", &|f| f.layers[0].bits = 1153);
    dump(UNSOUND, "n2-beyond-the-bytes", &|f| f.layers[0].n2 = 11);
    dump(UNSOUND, "n2-far-beyond-the-bytes", &|f| f.layers[0].n2 = 63);
    dump(Error::OutOfRange, "n2-of-64", &|f| f.layers[0].n2 = 64);
    dump(UNSOUND, "no-bytes", &|f| f.layers[0].bytes = 0);
    dump(UNSOUND, "2018-bits-beyond-the-bytes", &|f| (f.encoding, f.layers[0].bits) = (3, 1153));
    for length in [0, 119, 121, 1 << 61, u64::MAX] {
        let filter = valkey(|f| f.layers[0].length = length);
        let name = format!("bitmap-that-tells-a-length-of-{length}");
        meets(Error::WrongLength, VALKEY_BLOOM_SNAPSHOT, &name, &filter.snapshot());
        meets(Error::WrongLength, VALKEY_BLOOM_LOAD, &name, &filter.load());
    }
}

/// A count is held against what can follow.
#[test]
fn numbers_of_layers() {
    let redisbloom = |count| redisbloom(|f| f.count = count);
    meets(Error::OutOfRange, REDISBLOOM_SNAPSHOT, "no-layers", &redisbloom(0).snapshot());
    meets(Error::OutOfRange, REDISBLOOM_SNAPSHOT, "layers-without-end", &redisbloom(u64::MAX).snapshot());
    meets(Error::OutOfRange, REDISBLOOM_SNAPSHOT, "one-layer-too-many", &redisbloom(4097).snapshot());
    meets(Error::Truncated, REDISBLOOM_SNAPSHOT, "layers-that-do-not-follow", &redisbloom(4096).snapshot());
    meets(Error::NotADump, REDISBLOOM_DUMP, "no-layers", &redisbloom(0).dump());
    meets(Error::NotADump, REDISBLOOM_DUMP, "layers-without-end", &redisbloom(u64::MAX).dump());
    let hollow = RedisBloom { count: 0, layers: Vec::new(), ..RedisBloom::default() };
    meets(UNSOUND, REDISBLOOM_DUMP, "a-front-without-layers", &hollow.dump());
    for (count, name) in [(0, "no-layers"), (u64::MAX, "layers-without-end")] {
        meets(Error::OutOfRange, VALKEY_BLOOM_SNAPSHOT, name, &valkey(|f| f.count = count).snapshot());
        meets(Error::OutOfRange, VALKEY_BLOOM_LOAD, name, &valkey(|f| f.count = count).load());
    }
    let follow = valkey(|f| f.count = 4096);
    meets(Error::Truncated, VALKEY_BLOOM_LOAD, "layers-that-do-not-follow", &follow.load());
    meets(UNSOUND, NATIVE_SNAPSHOT, "no-layers", &native(|f| f.count = 0).snapshot());
    meets(Error::OutOfRange, NATIVE_SNAPSHOT, "layers-without-end", &native(|f| f.count = u64::MAX).snapshot());
    meets(Error::Overlong, NATIVE_DUMP, "no-layers", &native(|f| f.count = 0).dump());
    meets(Error::OutOfRange, NATIVE_DUMP, "layers-without-end", &native(|f| f.count = u64::MAX).dump());
}

/// The number of bits of an item is bounded: each lookup is.
#[test]
fn hashes_without_end() {
    for hashes in [0, 1101, 1 << 31, u64::from(u32::MAX)] {
        let (redisbloom, valkey) =
            (redisbloom(|f| f.layers[0].hashes = hashes), valkey(|f| f.layers[0].hashes = hashes as u32));
        let name = format!("hashes-{hashes}");
        meets(UNSOUND, REDISBLOOM_SNAPSHOT, &name, &redisbloom.snapshot());
        meets(UNSOUND, REDISBLOOM_DUMP, &name, &redisbloom.dump());
        meets(UNSOUND, VALKEY_BLOOM_SNAPSHOT, &name, &valkey.snapshot());
        meets(UNSOUND, VALKEY_BLOOM_LOAD, &name, &valkey.load());
    }
    let cut = redisbloom(|f| f.layers[0].hashes = (1 << 32) + 8).snapshot();
    meets(Error::OutOfRange, REDISBLOOM_SNAPSHOT, "hashes-that-32-bits-would-cut-to-8", &cut);
    meets(UNSOUND, NATIVE_SNAPSHOT, "hashes-65", &native(|f| f.layers[0].hashes = 65).snapshot());
}

/// Arithmetic is checked at every edge.
#[test]
fn sizes_that_overflow() {
    let dump = |error, name, change: &dyn Fn(&mut RedisBloom)| {
        meets(error, REDISBLOOM_DUMP, name, &redisbloom(change).dump());
    };
    dump(too_large(1 << 61), "bytes-whose-bits-overflow", &|f| f.layers[0].bytes = 1 << 61);
    dump(too_large(u64::MAX), "bytes-without-end", &|f| f.layers[0].bytes = u64::MAX);
    dump(too_large(u64::MAX), "bytes-whose-sum-overflows", &|f| {
        f.layers = vec![f.layers[0].clone(); 3];
        f.count = 3;
        f.layers.iter_mut().for_each(|layer| layer.bytes = 1 << 63);
    });
    let counted = redisbloom(|f| {
        f.layers = [u64::MAX, 1].map(|size| RedisBloomLayer { size, ..f.layers[0].clone() }).to_vec();
        f.count = 2;
    });
    meets(UNSOUND, REDISBLOOM_SNAPSHOT, "items-whose-sum-overflows", &counted.snapshot());
    meets(UNSOUND, REDISBLOOM_DUMP, "items-whose-sum-overflows", &counted.dump());
    let overflowing = native(|f| (f.layers[0].groups, f.layers[0].blocks_per_group) = (1 << 58, 64));
    meets(too_large(u64::MAX), NATIVE_SNAPSHOT, "groups-whose-bytes-overflow", &overflowing.snapshot());
    meets(too_large(u64::MAX), NATIVE_DUMP, "groups-whose-bytes-overflow", &overflowing.dump());
    let negative = valkey(|f| f.layers[0].items = u64::MAX).load();
    meets(Error::OutOfRange, VALKEY_BLOOM_LOAD, "items-below-zero", &negative);
    let negative = valkey(|f| f.layers[0].capacity = 1 << 63);
    meets(Error::OutOfRange, VALKEY_BLOOM_LOAD, "capacity-below-zero", &negative.load());
    meets(Error::OutOfRange, VALKEY_BLOOM_SNAPSHOT, "capacity-beyond-63-bits", &negative.snapshot());
}

/// RESERVE 0.01 1e18: the ceiling says no before anything is asked of the allocator.
#[test]
fn exabytes() {
    const BYTES: u64 = 1_378_469_177_282_051_328;
    let filter = redisbloom(|f| {
        (f.layers[0].entries, f.layers[0].bytes, f.layers[0].bits) = (1_000_000_000_000_000_000, BYTES, BYTES * 8);
    });
    meets(too_large(BYTES), REDISBLOOM_SNAPSHOT, "exabytes", &filter.snapshot());
    meets(too_large(BYTES), REDISBLOOM_DUMP, "exabytes", &filter.dump());
    let filter = native(|f| {
        f.capacity = 1_000_000_000_000_000_000;
        (f.layers[0].capacity, f.layers[0].groups, f.layers[0].blocks_per_group) = (f.capacity, 1 << 48, 64);
    });
    meets(too_large(1 << 60), NATIVE_SNAPSHOT, "exabytes", &filter.snapshot());
    meets(too_large(1 << 60), NATIVE_DUMP, "exabytes", &filter.dump());
}

/// At least one bit and at least one hash (none: [`hashes_without_end`]).
#[test]
fn no_bits_at_a_rate_near_one() {
    let none = redisbloom(|f| (f.layers[0].bits, f.layers[0].error, f.layers[0].bits_per_entry) = (0, 0.999, 0.002));
    meets(UNSOUND, REDISBLOOM_SNAPSHOT, "no-bits-at-a-rate-near-one", &none.snapshot());
    meets(UNSOUND, REDISBLOOM_DUMP, "no-bits-at-a-rate-near-one", &none.dump());
    let none = RedisBloom { encoding: 0, ..none };
    meets(UNSOUND, REDISBLOOM_SNAPSHOT, "encoding-0-no-bits-at-a-rate-near-one", &none.snapshot());
    let none = valkey(|f| {
        (f.rate, f.layers[0].length) = (0.999, 0);
        f.layers[0].bits.clear();
    });
    meets(UNSOUND, VALKEY_BLOOM_SNAPSHOT, "no-bits-at-a-rate-near-one", &none.snapshot());
    meets(UNSOUND, VALKEY_BLOOM_LOAD, "no-bits-at-a-rate-near-one", &none.load());
    meets(UNSOUND, NATIVE_SNAPSHOT, "no-groups", &native(|f| f.layers[0].groups = 0).snapshot());
}

/// CVE-2026-21864: every read is checked, wherever the payload ends.
#[test]
fn payloads_that_end_too_early() {
    let snapshot = valkey(|_| ()).snapshot();
    for (length, name) in [(4, "cve-2026-21864-half-a-number"), (60, "cve-2026-21864-half-a-bitmap")] {
        meets(Error::Truncated, VALKEY_BLOOM_SNAPSHOT, name, &snapshot[..length]);
    }
    meets(Error::Truncated, VALKEY_BLOOM_SNAPSHOT, "cve-2026-21864-nothing", &[]);
    meets(Error::Truncated, VALKEY_BLOOM_LOAD, "half-a-bitmap", &valkey(|_| ()).load()[..60]);
    let whole = [
        (VALKEY_BLOOM_SNAPSHOT, snapshot),
        (VALKEY_BLOOM_LOAD, valkey(|_| ()).load()),
        (REDISBLOOM_SNAPSHOT, redisbloom(|_| ()).snapshot()),
        (NATIVE_SNAPSHOT, native(|_| ()).snapshot()),
    ];
    for (target, whole) in whole {
        for length in 0..whole.len() {
            let outcome = (target.decode)(&whole[..length]);
            assert_eq!(outcome.refused, Some(Error::Truncated), "{} {length}", target.name);
        }
    }
}

/// Issue 90 of valkey-bloom: every double is held against its range.
#[test]
fn doubles_out_of_range() {
    let no_rates = [("0", 0.0), ("minus-0", -0.0), ("1", 1.0), ("2", 2.0), ("minus-1", -1.0)];
    for (name, rate) in no_rates.into_iter().chain([("nan", f64::NAN), ("infinity", f64::INFINITY)]) {
        let (rates, ratios) = (valkey(|f| f.rate = rate), valkey(|f| f.tightening = rate));
        let names = [format!("issue-90-rate-{name}"), format!("issue-90-tightening-{name}")];
        for (filter, name) in [rates, ratios].iter().zip(&names) {
            meets(Error::OutOfRange, VALKEY_BLOOM_SNAPSHOT, name, &filter.snapshot());
            meets(Error::OutOfRange, VALKEY_BLOOM_LOAD, name, &filter.load());
        }
        let filter = redisbloom(|f| f.layers[0].error = rate);
        meets(UNSOUND, REDISBLOOM_SNAPSHOT, &format!("error-{name}"), &filter.snapshot());
        meets(UNSOUND, REDISBLOOM_DUMP, &format!("error-{name}"), &filter.dump());
        meets(UNSOUND, NATIVE_SNAPSHOT, &format!("rate-{name}"), &native(|f| f.rate = rate).snapshot());
        let layer = native(|f| f.layers[0].rate = rate).snapshot();
        meets(UNSOUND, NATIVE_SNAPSHOT, &format!("rate-of-a-layer-{name}"), &layer);
    }
    for (name, number) in [("nan", f64::NAN), ("infinity", f64::INFINITY), ("0", 0.0), ("minus-1", -1.0)] {
        let filter = redisbloom(|f| f.layers[0].bits_per_entry = number);
        meets(UNSOUND, REDISBLOOM_SNAPSHOT, &format!("bits-per-entry-{name}"), &filter.snapshot());
        let filter = RedisBloom { encoding: 0, ..filter };
        let error = if number == f64::INFINITY { too_large(1 << 61) } else { UNSOUND };
        meets(error, REDISBLOOM_SNAPSHOT, &format!("encoding-0-bits-per-entry-{name}"), &filter.snapshot());
    }
    let small = valkey(|f| {
        (f.tightening, f.count) = (1e-200, 3);
        f.layers = vec![ValkeyBloomLayer { items: 100, ..f.layers[0].clone() }; 3];
    });
    meets(UNSOUND, VALKEY_BLOOM_SNAPSHOT, "a-layer-whose-rate-is-too-small-to-be-told-from-0", &small.snapshot());
}

/// The limit of valkey-bloom: what a client may not make, a server that starts with it loads.
#[test]
fn a_filter_over_the_limit() {
    let filter = native(|f| {
        (f.layers[0].groups, f.layers[0].blocks_per_group) = (1024, 64);
        f.layers[0].chunks = vec![vec![]; 4];
    });
    meets(too_large(4 << 20), NATIVE_SNAPSHOT, "a-filter-over-the-limit", &filter.snapshot());
    meets(too_large(4 << 20), NATIVE_DUMP, "a-filter-over-the-limit", &filter.dump());
    assert!(native::read(&mut ByteSource(&filter.snapshot()), &Unlimited).is_ok());
    let snapshot = valkey(|_| ()).snapshot();
    let refused = bloom::Error::OutOfMemory { asked_bytes: 45 + 120, available_bytes: 164 };
    assert_eq!(valkey_bloom::read(&mut ByteSource(&snapshot), &FilterOf(164)), Err(Error::Filter(refused)));
    assert!(valkey_bloom::read(&mut ByteSource(&snapshot), &Unlimited).is_ok());
}

/// Dragonfly and RedisBloom: a filter that is still being loaded is none that denies its items.
#[test]
fn a_header_without_its_chunks() {
    let inputs = [
        (NATIVE_DUMP, native(|f| f.layers[0].chunks.clear()).dump()),
        (REDISBLOOM_DUMP, crate::spelled::records([(0, &redisbloom(|_| ()).header()[..])])),
    ];
    for (target, data) in inputs {
        is_kept(target.name, "a-header-without-its-chunks", &data);
        let targets::Outcome { value, refused } = (target.decode)(&data);
        assert!(matches!(value, Some(Value::Arriving(_))) && refused.is_none(), "{}", target.name);
    }
}
