//! The fuzz targets: every decoder of untrusted bytes as a [`Target`], and the [`words`] of commands. The fuzz targets and
//! the ordinary tests (`crates/filter/tests/corpus`) share this code.
//!
//! The rule for each input: it is refused with an error, or the resulting value passes the [`laws`]. Nothing panics, and the
//! work is bounded by the input and the ceiling.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

pub mod dump;
#[path = "../../src/guard/arguments.rs"]
pub mod guard_arguments;
mod guarding;
pub mod laws;
pub mod records;
pub mod snapshot;
pub mod words;

use bloomgate_filter::format::Error;
use bloomgate_filter::{Ceiling, Value};

/// The maximum size of a filter in bytes: enough for a layer of three chunks, but quick to create.
pub const CEILING_BYTES: u64 = 5 << 19;

/// A ceiling on the size of a filter in bytes.
#[derive(Clone, Copy, Debug)]
pub struct FilterOf(pub u64);

impl Ceiling for FilterOf {
    fn available_bytes(&self, filter_bytes: u64, _asked_bytes: u64) -> u64 {
        self.0.saturating_sub(filter_bytes)
    }
}

/// The ceiling of all decoders here.
pub const CEILING: FilterOf = FilterOf(CEILING_BYTES);

/// The outcome of an input.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    /// The resulting value; `None` if everything was refused.
    pub value: Option<Value>,
    /// The first error. A dump continues after a refused record.
    pub refused: Option<Error>,
}

impl<V: Into<Value>> From<Result<V, Error>> for Outcome {
    fn from(result: Result<V, Error>) -> Self {
        match result {
            Ok(value) => Self { value: Some(value.into()), refused: None },
            Err(error) => Self { value: None, refused: Some(error) },
        }
    }
}

/// A decoder, and how it is fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the target and of its folder in the corpus.
    pub name: &'static str,
    /// Decodes an input, and nothing else.
    pub decode: fn(&[u8]) -> Outcome,
    /// Decodes an input and checks the laws; panics if one is violated.
    pub check: fn(&[u8]),
}

/// Snapshots of our own type.
pub const NATIVE_SNAPSHOT: Target = Target {
    name: "native_snapshot",
    decode: snapshot::native,
    check: |data| laws::of_outcome(snapshot::native(data)),
};

/// The records of our own dumps.
pub const NATIVE_DUMP: Target =
    Target { name: "native_dump", decode: dump::native, check: |data| laws::of_outcome(dump::native_by_law(data)) };

/// Snapshots of RedisBloom's type, after a byte with the encoding.
pub const REDISBLOOM_SNAPSHOT: Target = Target {
    name: "redisbloom_snapshot",
    decode: snapshot::redisbloom,
    check: |data| laws::of_outcome(snapshot::redisbloom(data)),
};

/// The records of RedisBloom's dumps.
pub const REDISBLOOM_DUMP: Target = Target {
    name: "redisbloom_dump",
    decode: dump::redisbloom,
    check: |data| laws::of_outcome(dump::redisbloom_by_law(data)),
};

/// Snapshots of valkey-bloom's type.
pub const VALKEY_BLOOM_SNAPSHOT: Target = Target {
    name: "valkey_bloom_snapshot",
    decode: snapshot::valkey_bloom,
    check: |data| laws::of_outcome(snapshot::valkey_bloom(data)),
};

/// The argument of valkey-bloom's BF.LOAD.
pub const VALKEY_BLOOM_LOAD: Target = Target {
    name: "valkey_bloom_load",
    decode: snapshot::valkey_bloom_load,
    check: |data| laws::of_outcome(snapshot::valkey_bloom_load(data)),
};

/// RedisBloom's cuckoo filters: after a byte 0 a snapshot, after any other byte the records of a dump.
pub const REDISBLOOM_CUCKOO: Target = Target {
    name: "redisbloom_cuckoo",
    decode: |data| cuckoo(data, dump::redisbloom_cuckoo),
    check: |data| laws::of_outcome(cuckoo(data, dump::redisbloom_cuckoo_by_law)),
};

fn cuckoo(data: &[u8], of_dump: fn(&[u8]) -> Outcome) -> Outcome {
    match data.split_first() {
        None => Err::<Value, _>(Error::Truncated).into(),
        Some((0, fields)) => snapshot::redisbloom_cuckoo(fields),
        Some((_, records)) => of_dump(records),
    }
}

/// All decoders.
pub const DECODERS: [Target; 7] = [
    NATIVE_SNAPSHOT,
    NATIVE_DUMP,
    REDISBLOOM_SNAPSHOT,
    REDISBLOOM_DUMP,
    REDISBLOOM_CUCKOO,
    VALKEY_BLOOM_SNAPSHOT,
    VALKEY_BLOOM_LOAD,
];
