//! Memory that is refused, request by request: every operation of the filter and every codec is run with the nth request
//! failing, for n = 1, 2, 3 ... until it passes unharmed. Each time it must answer with the error of memory and leave the
//! filter as it was. A request that cannot be refused would end this process, and so the test.
//!
//! The server's part of it is in `tests/server/reliability/faults.rs`.

// All of this file is test code: a panic is how a test fails.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
// The allocator takes the place of the module's.
#![cfg(not(feature = "module"))]

mod allocator;
mod codecs;
mod filters;

use allocator::{Fault, under};
use bloomgate::bloom::{
    BloomFilter, Error, Filter, RedisBloomFilter, Scaling, Unlimited, ValkeyBloom, ValkeyBloomFilter,
};
use bloomgate::format::{self, ByteSink, Value, native, redisbloom, valkey_bloom};

/// Runs something with each request refused in turn, alone and with all behind it. `run` gets the number of the try, answers
/// with what it did, and must itself hold what it refused to be unchanged. The result is how many faults there were.
fn with_every_fault<T>(what: &str, run: impl Fn() -> Result<T, format::Error>) -> usize {
    let mut faults = 0;
    for kind in [Fault::Only as fn(usize) -> Fault, Fault::From] {
        for number in 1.. {
            assert!(number < 10_000, "{what}: no end of it");
            let (result, asked) = under(kind(number), &run);
            faults += asked.refused;
            if asked.refused == 0 {
                assert!(result.is_ok(), "{what}: passes, when nothing is refused: {:?}", result.err());
                break;
            }
            // A request may be tried in another way, as that for a small bitmap which comes aligned mostly.
            if let Err(error) = result {
                let refused = matches!(error, format::Error::Filter(Error::OutOfMemory { available_bytes: 0, .. }));
                assert!(refused, "{what}, request {number}: {error:?}");
            }
        }
    }
    faults
}

/// New filters of the three layouts, growing twofold, for so many items.
fn new_filters(capacity: u64) -> [(&'static str, Filter); 3] {
    [
        ("native", native_filter(capacity)),
        ("redisbloom", redisbloom_filter(capacity)),
        ("valkey-bloom", other_filter(capacity)),
    ]
    .map(|(name, filter)| (name, filter.unwrap()))
}

fn native_filter(capacity: u64) -> Result<Filter, Error> {
    BloomFilter::new(0.01, capacity, Scaling::from_expansion(2), 4242, &Unlimited).map(Filter::Native)
}

fn redisbloom_filter(capacity: u64) -> Result<Filter, Error> {
    RedisBloomFilter::new(0.01, capacity, Scaling::from_expansion(2), &Unlimited).map(Filter::RedisBloom)
}

fn other_filter(capacity: u64) -> Result<Filter, Error> {
    let rules = ValkeyBloom::new(0.01, 0.5, Scaling::from_expansion(2), [7; 32]);
    ValkeyBloomFilter::new(rules, capacity, &Unlimited).and_then(Filter::boxed)
}

/// Filters that hold so many items.
fn filled_filters(capacity: u64, items: usize) -> [(&'static str, Filter); 3] {
    let mut filters = new_filters(capacity);
    for (_, filter) in &mut filters {
        for item in numbered(0, items) {
            filter.add(&item, &Unlimited).unwrap();
        }
    }
    filters
}

fn numbered(first: usize, count: usize) -> Vec<Vec<u8>> {
    (first..first + count).map(|number| format!("item {number}").into_bytes()).collect()
}

/// A value as a snapshot has it.
fn written(value: &Value) -> Vec<u8> {
    match value {
        Value::Filter(filter) => bytes_of(filter),
        Value::Arriving(arrival) => {
            let mut sink = ByteSink::default();
            native::write_arrival(arrival, &mut sink);
            sink.0
        }
    }
}

/// A filter as a snapshot has it.
fn bytes_of(filter: &Filter) -> Vec<u8> {
    let mut sink = ByteSink::default();
    match filter {
        Filter::Native(filter) => native::write_filter(filter, &mut sink),
        Filter::RedisBloom(filter) => redisbloom::write(filter, &mut sink),
        Filter::ValkeyBloom(filter) => valkey_bloom::write(filter, &mut sink),
    }
    sink.0
}
