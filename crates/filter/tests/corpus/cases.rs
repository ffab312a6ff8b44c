//! Failures of other modules, each as a named input that is generated here, with the error that it causes: a test for each kind
//! of failure.

use bloomgate_filter::format::{ByteSource, Error, StoredAs};
use bloomgate_filter::{Error as FilterError, Filter, Unlimited, Value};

use super::Inputs;
use super::kinds::{Kind, NATIVE, REDISBLOOM};
use super::spelled::{Native, RedisBloom, RedisBloomLayer, ValkeyBloom, ValkeyBloomLayer};
use super::targets::{self, CEILING_BYTES, FilterOf, Target};
use super::targets::{NATIVE_DUMP, NATIVE_SNAPSHOT, REDISBLOOM_DUMP, REDISBLOOM_SNAPSHOT};
use super::targets::{VALKEY_BLOOM_LOAD, VALKEY_BLOOM_SNAPSHOT};

const UNSOUND: Error = Error::Filter(FilterError::Unsound);

/// The error for a filter of one layer with this size of cells.
fn too_large(kind: Kind, cells_bytes: u64) -> Error {
    let small = Filter::new(&kind.spec(0.01, 1, 0), &Unlimited).unwrap();
    let fields_bytes = small.size_bytes() - small.layers().map(|layer| layer.size_bytes).sum::<u64>();
    let asked_bytes = fields_bytes.saturating_add(cells_bytes);
    Error::Filter(FilterError::AboveCeiling { asked_bytes, available_bytes: CEILING_BYTES })
}

/// Generates an input with this name, which is refused with this error.
#[track_caller]
fn meets(all: &Inputs, error: Error, target: Target, name: &str, data: &[u8]) {
    all.take(target.name, name, data);
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

/// CVE-2026-25589 and similar: the modulus is checked against the received bytes.
pub fn bits_beyond_the_bytes(all: &Inputs) {
    let snapshot = |error, name: &str, change: &dyn Fn(&mut RedisBloom)| {
        meets(all, error, REDISBLOOM_SNAPSHOT, &format!("cve-2026-25589-{name}"), &redisbloom(change).snapshot());
    };
    snapshot(UNSOUND, "bits-beyond-the-bytes", &|f| f.layers[0].bits = 1153);
    snapshot(too_large(REDISBLOOM, 1 << 60), "bits-far-beyond-the-bytes", &|f| f.layers[0].bits = 1 << 63);
    snapshot(UNSOUND, "n2-beyond-the-bytes", &|f| (f.layers[0].bits, f.layers[0].n2) = (0, 11));
    snapshot(too_large(REDISBLOOM, 1 << 60), "n2-far-beyond-the-bytes", &|f| f.layers[0].n2 = 63);
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
    snapshot(too_large(REDISBLOOM, 1 << 61), "encoding-0-bits-without-end", &|f| {
        f.encoding = 0;
        f.layers[0].bits_per_entry = 1e300;
    });
    let dump = |error, name: &str, change: &dyn Fn(&mut RedisBloom)| {
        meets(all, error, REDISBLOOM_DUMP, &format!("cve-2026-25589-{name}"), &redisbloom(change).dump());
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
        meets(all, Error::WrongLength, VALKEY_BLOOM_SNAPSHOT, &name, &filter.snapshot());
        meets(all, Error::WrongLength, VALKEY_BLOOM_LOAD, &name, &filter.load());
    }
}

/// A count is checked against the remaining bytes.
pub fn numbers_of_layers(all: &Inputs) {
    let redisbloom = |count| redisbloom(|f| f.count = count);
    meets(all, Error::OutOfRange, REDISBLOOM_SNAPSHOT, "no-layers", &redisbloom(0).snapshot());
    meets(all, Error::OutOfRange, REDISBLOOM_SNAPSHOT, "layers-without-end", &redisbloom(u64::MAX).snapshot());
    meets(all, Error::OutOfRange, REDISBLOOM_SNAPSHOT, "one-layer-too-many", &redisbloom(4097).snapshot());
    meets(all, Error::Truncated, REDISBLOOM_SNAPSHOT, "layers-that-do-not-follow", &redisbloom(4096).snapshot());
    meets(all, Error::NotADump, REDISBLOOM_DUMP, "no-layers", &redisbloom(0).dump());
    meets(all, Error::NotADump, REDISBLOOM_DUMP, "layers-without-end", &redisbloom(u64::MAX).dump());
    let hollow = RedisBloom { count: 0, layers: Vec::new(), ..RedisBloom::default() };
    meets(all, UNSOUND, REDISBLOOM_DUMP, "a-front-without-layers", &hollow.dump());
    for (count, name) in [(0, "no-layers"), (u64::MAX, "layers-without-end")] {
        meets(all, Error::OutOfRange, VALKEY_BLOOM_SNAPSHOT, name, &valkey(|f| f.count = count).snapshot());
        meets(all, Error::OutOfRange, VALKEY_BLOOM_LOAD, name, &valkey(|f| f.count = count).load());
    }
    let follow = valkey(|f| f.count = 4096);
    meets(all, Error::Truncated, VALKEY_BLOOM_LOAD, "layers-that-do-not-follow", &follow.load());
    meets(all, UNSOUND, NATIVE_SNAPSHOT, "no-layers", &native(|f| f.count = 0).snapshot());
    meets(all, Error::OutOfRange, NATIVE_SNAPSHOT, "layers-without-end", &native(|f| f.count = u64::MAX).snapshot());
    meets(all, Error::Overlong, NATIVE_DUMP, "no-layers", &native(|f| f.count = 0).dump());
    meets(all, Error::OutOfRange, NATIVE_DUMP, "layers-without-end", &native(|f| f.count = u64::MAX).dump());
}

/// The number of bits per item is limited, and with it the cost of a lookup.
pub fn hashes_without_end(all: &Inputs) {
    for hashes in [0, 1101, 1 << 31, u64::from(u32::MAX)] {
        let (redisbloom, valkey) =
            (redisbloom(|f| f.layers[0].hashes = hashes), valkey(|f| f.layers[0].hashes = hashes as u32));
        let name = format!("hashes-{hashes}");
        meets(all, UNSOUND, REDISBLOOM_SNAPSHOT, &name, &redisbloom.snapshot());
        meets(all, UNSOUND, REDISBLOOM_DUMP, &name, &redisbloom.dump());
        meets(all, UNSOUND, VALKEY_BLOOM_SNAPSHOT, &name, &valkey.snapshot());
        meets(all, UNSOUND, VALKEY_BLOOM_LOAD, &name, &valkey.load());
    }
    let cut = redisbloom(|f| f.layers[0].hashes = (1 << 32) + 8).snapshot();
    meets(all, Error::OutOfRange, REDISBLOOM_SNAPSHOT, "hashes-that-32-bits-would-cut-to-8", &cut);
    meets(all, UNSOUND, NATIVE_SNAPSHOT, "hashes-65", &native(|f| f.layers[0].hashes = 65).snapshot());
}

/// Arithmetic is checked at every limit.
pub fn sizes_that_overflow(all: &Inputs) {
    let dump = |error, name, change: &dyn Fn(&mut RedisBloom)| {
        meets(all, error, REDISBLOOM_DUMP, name, &redisbloom(change).dump());
    };
    dump(too_large(REDISBLOOM, 1 << 61), "bytes-whose-bits-overflow", &|f| f.layers[0].bytes = 1 << 61);
    dump(too_large(REDISBLOOM, u64::MAX), "bytes-without-end", &|f| f.layers[0].bytes = u64::MAX);
    dump(too_large(REDISBLOOM, u64::MAX), "bytes-whose-sum-overflows", &|f| {
        f.layers = vec![f.layers[0].clone(); 3];
        f.count = 3;
        f.layers.iter_mut().for_each(|layer| layer.bytes = 1 << 63);
    });
    let counted = redisbloom(|f| {
        f.layers = [u64::MAX, 1].map(|size| RedisBloomLayer { size, ..f.layers[0].clone() }).to_vec();
        f.count = 2;
    });
    meets(all, UNSOUND, REDISBLOOM_SNAPSHOT, "items-whose-sum-overflows", &counted.snapshot());
    meets(all, UNSOUND, REDISBLOOM_DUMP, "items-whose-sum-overflows", &counted.dump());
    let overflowing = native(|f| (f.layers[0].groups, f.layers[0].blocks_per_group) = (1 << 58, 64));
    meets(all, too_large(NATIVE, u64::MAX), NATIVE_SNAPSHOT, "groups-whose-bytes-overflow", &overflowing.snapshot());
    meets(all, too_large(NATIVE, u64::MAX), NATIVE_DUMP, "groups-whose-bytes-overflow", &overflowing.dump());
    let negative = valkey(|f| f.layers[0].items = u64::MAX).load();
    meets(all, Error::OutOfRange, VALKEY_BLOOM_LOAD, "items-below-zero", &negative);
    let negative = valkey(|f| f.layers[0].capacity = 1 << 63);
    meets(all, Error::OutOfRange, VALKEY_BLOOM_LOAD, "capacity-below-zero", &negative.load());
    meets(all, Error::OutOfRange, VALKEY_BLOOM_SNAPSHOT, "capacity-beyond-63-bits", &negative.snapshot());
}

/// RESERVE 0.01 1e18: the ceiling refuses before memory is requested.
pub fn exabytes(all: &Inputs) {
    const BYTES: u64 = 1_378_469_177_282_051_328;
    let filter = redisbloom(|f| {
        (f.layers[0].entries, f.layers[0].bytes, f.layers[0].bits) = (1_000_000_000_000_000_000, BYTES, BYTES * 8);
    });
    meets(all, too_large(REDISBLOOM, BYTES), REDISBLOOM_SNAPSHOT, "exabytes", &filter.snapshot());
    meets(all, too_large(REDISBLOOM, BYTES), REDISBLOOM_DUMP, "exabytes", &filter.dump());
    let filter = native(|f| {
        f.capacity = 1_000_000_000_000_000_000;
        (f.layers[0].capacity, f.layers[0].groups, f.layers[0].blocks_per_group) = (f.capacity, 1 << 48, 64);
    });
    meets(all, too_large(NATIVE, 1 << 60), NATIVE_SNAPSHOT, "exabytes", &filter.snapshot());
    meets(all, too_large(NATIVE, 1 << 60), NATIVE_DUMP, "exabytes", &filter.dump());
}

/// There must be a bit and a hash (too many hashes: [`hashes_without_end`]).
pub fn no_bits_at_a_rate_near_one(all: &Inputs) {
    let none = redisbloom(|f| (f.layers[0].bits, f.layers[0].error, f.layers[0].bits_per_entry) = (0, 0.999, 0.002));
    meets(all, UNSOUND, REDISBLOOM_SNAPSHOT, "no-bits-at-a-rate-near-one", &none.snapshot());
    meets(all, UNSOUND, REDISBLOOM_DUMP, "no-bits-at-a-rate-near-one", &none.dump());
    let none = RedisBloom { encoding: 0, ..none };
    meets(all, UNSOUND, REDISBLOOM_SNAPSHOT, "encoding-0-no-bits-at-a-rate-near-one", &none.snapshot());
    let none = valkey(|f| {
        (f.rate, f.layers[0].length) = (0.999, 0);
        f.layers[0].bits.clear();
    });
    meets(all, UNSOUND, VALKEY_BLOOM_SNAPSHOT, "no-bits-at-a-rate-near-one", &none.snapshot());
    meets(all, UNSOUND, VALKEY_BLOOM_LOAD, "no-bits-at-a-rate-near-one", &none.load());
    meets(all, UNSOUND, NATIVE_SNAPSHOT, "no-groups", &native(|f| f.layers[0].groups = 0).snapshot());
}

/// CVE-2026-21864: every read is checked, wherever the payload ends.
pub fn payloads_that_end_too_early(all: &Inputs) {
    let snapshot = valkey(|_| ()).snapshot();
    for (length, name) in [(4, "cve-2026-21864-half-a-number"), (60, "cve-2026-21864-half-a-bitmap")] {
        meets(all, Error::Truncated, VALKEY_BLOOM_SNAPSHOT, name, &snapshot[..length]);
    }
    meets(all, Error::Truncated, VALKEY_BLOOM_SNAPSHOT, "cve-2026-21864-nothing", &[]);
    meets(all, Error::Truncated, VALKEY_BLOOM_LOAD, "half-a-bitmap", &valkey(|_| ()).load()[..60]);
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

/// Issue 90 of valkey-bloom: every double is checked against its range.
pub fn doubles_out_of_range(all: &Inputs) {
    let no_rates = [("0", 0.0), ("minus-0", -0.0), ("1", 1.0), ("2", 2.0), ("minus-1", -1.0)];
    for (name, rate) in no_rates.into_iter().chain([("nan", f64::NAN), ("infinity", f64::INFINITY)]) {
        let (rates, ratios) = (valkey(|f| f.rate = rate), valkey(|f| f.tightening = rate));
        let names = [format!("issue-90-rate-{name}"), format!("issue-90-tightening-{name}")];
        for (filter, name) in [rates, ratios].iter().zip(&names) {
            meets(all, Error::OutOfRange, VALKEY_BLOOM_SNAPSHOT, name, &filter.snapshot());
            meets(all, Error::OutOfRange, VALKEY_BLOOM_LOAD, name, &filter.load());
        }
        let filter = redisbloom(|f| f.layers[0].error = rate);
        meets(all, UNSOUND, REDISBLOOM_SNAPSHOT, &format!("error-{name}"), &filter.snapshot());
        meets(all, UNSOUND, REDISBLOOM_DUMP, &format!("error-{name}"), &filter.dump());
        meets(all, UNSOUND, NATIVE_SNAPSHOT, &format!("rate-{name}"), &native(|f| f.rate = rate).snapshot());
        let layer = native(|f| f.layers[0].rate = rate).snapshot();
        meets(all, UNSOUND, NATIVE_SNAPSHOT, &format!("rate-of-a-layer-{name}"), &layer);
    }
    for (name, number) in [("nan", f64::NAN), ("infinity", f64::INFINITY), ("0", 0.0), ("minus-1", -1.0)] {
        let filter = redisbloom(|f| f.layers[0].bits_per_entry = number);
        meets(all, UNSOUND, REDISBLOOM_SNAPSHOT, &format!("bits-per-entry-{name}"), &filter.snapshot());
        let filter = RedisBloom { encoding: 0, ..filter };
        let error = if number == f64::INFINITY { too_large(REDISBLOOM, 1 << 61) } else { UNSOUND };
        meets(all, error, REDISBLOOM_SNAPSHOT, &format!("encoding-0-bits-per-entry-{name}"), &filter.snapshot());
    }
    let small = valkey(|f| {
        (f.tightening, f.count) = (1e-200, 3);
        f.layers = vec![ValkeyBloomLayer { items: 100, ..f.layers[0].clone() }; 3];
    });
    meets(all, UNSOUND, VALKEY_BLOOM_SNAPSHOT, "a-layer-whose-rate-is-too-small-to-be-told-from-0", &small.snapshot());
}

/// valkey-bloom's limit: a server loads at startup what a client may not create.
pub fn a_filter_over_the_limit(all: &Inputs) {
    let filter = native(|f| {
        (f.layers[0].groups, f.layers[0].blocks_per_group) = (1024, 64);
        f.layers[0].chunks = vec![vec![]; 4];
    });
    meets(all, too_large(NATIVE, 4 << 20), NATIVE_SNAPSHOT, "a-filter-over-the-limit", &filter.snapshot());
    meets(all, too_large(NATIVE, 4 << 20), NATIVE_DUMP, "a-filter-over-the-limit", &filter.dump());
    assert!(StoredAs::Own.read(1, &mut ByteSource(&filter.snapshot()), &Unlimited).is_ok());
    let snapshot = valkey(|_| ()).snapshot();
    // valkey-bloom's own count: the filter, a layer, an element of the list of layers, the bits.
    let asked_bytes = 48 + 208 + 8 + 120;
    let refused = FilterError::AboveCeiling { asked_bytes, available_bytes: asked_bytes - 1 };
    let read = |ceiling| StoredAs::ValkeyBloom.read(1, &mut ByteSource(&snapshot), &FilterOf(ceiling));
    assert_eq!(read(asked_bytes - 1), Err(Error::Filter(refused)));
    assert!(read(asked_bytes).is_ok());
    assert!(StoredAs::ValkeyBloom.read(1, &mut ByteSource(&snapshot), &Unlimited).is_ok());
}

/// Dragonfly and RedisBloom: a filter that is still being loaded must not report its items absent.
pub fn a_header_without_its_chunks(all: &Inputs) {
    let told = [
        (NATIVE_DUMP, native(|f| f.layers[0].chunks.clear()).dump()),
        (REDISBLOOM_DUMP, super::spelled::records([(0, &redisbloom(|_| ()).header()[..])])),
    ];
    for (target, data) in told {
        all.take(target.name, "a-header-without-its-chunks", &data);
        let targets::Outcome { value, refused } = (target.decode)(&data);
        assert!(matches!(value, Some(Value::Arriving(_))) && refused.is_none(), "{}", target.name);
    }
}
