//! The filter by itself, without a server: the hash, lookups and inserts of each layout in batches of several sizes, on
//! a filter that fits the cache and on one that does not, and a chain of 17 layers.
//!
//! ```text
//! cargo bench -p bloomgate-filter --bench kernel
//! cargo bench -p bloomgate-filter --bench kernel -- 'lookup/native'
//! ```
//!
//! Times are for the whole batch; `thrpt` is items a second.

// A measuring program: a panic is how it fails, and its numbers are small.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../tests/one_of_each/mod.rs"]
mod one_of_each;

use std::hint::black_box;
use std::time::{Duration, Instant};

use bloomgate_filter::hash::ItemHash;
use bloomgate_filter::{BATCH, Filter, Spec, Unlimited};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const RATE: f64 = 0.01;
const BATCHES: [usize; 4] = [1, 8, 16, 32];
/// Filters are filled to this part before: as the filters of the server's measurements are.
const FILLED_PERCENT: u64 = 14;
/// Names of the filters' sizes, and the items that they are for.
const SIZES: [(&str, u64); 2] = [("1 MB", 850_000), ("128 MB", 108_000_000)];
/// Items that are asked for in turn, more than the cache has room for lines of theirs.
const QUESTIONS: u64 = 1 << 17;
/// Items that are made before the clock runs, to be added.
const PREPARED: u64 = 4096;
/// A filter that grew from 100 to this many has 17 layers.
const CHAIN_ITEMS: u64 = 10_000_000;

/// A spec of each kind, with the kind's name.
fn kinds(capacity: u64, expansion: u32) -> [(&'static str, Spec); 3] {
    one_of_each::specs(RATE, capacity, expansion)
}

/// URLs of 70 bytes. Those of different sets have nothing in common.
fn items(set: &str, from: u64, count: u64) -> Vec<Vec<u8>> {
    let item = |number| format!("https://www.example.org/archive/of-the-news/2024/{set}/{number:012}").into_bytes();
    (from..from + count).map(item).collect()
}

fn fill(filter: &mut Filter, count: u64) {
    for first in (0..count).step_by(BATCH) {
        let batch = items("articles", first, (BATCH as u64).min(count - first));
        filter.add_batch(batch.iter().map(Vec::as_slice), &Unlimited);
    }
}

fn filled(spec: &Spec, count: u64) -> Filter {
    let mut filter = Filter::new(spec, &Unlimited).unwrap();
    fill(&mut filter, count);
    filter
}

/// Looks up a batch after the other.
fn look_up(bencher: &mut criterion::Bencher<'_>, filter: &Filter, questions: &[Vec<u8>], batch: usize) {
    let mut batches = questions.chunks_exact(batch).cycle();
    bencher.iter(|| {
        let items = batches.next().unwrap_or_default();
        black_box(filter).contains_batch(black_box(items).iter().map(Vec::as_slice))
    });
}

fn hash(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hash");
    for length in [16, 32, 64, 70, 200] {
        let item = vec![b'u'; length];
        group.throughput(Throughput::Bytes(length as u64));
        group.bench_with_input(BenchmarkId::new("crate murmur3", length), &item, |bencher, item| {
            bencher.iter(|| murmur3::murmur3_x64_128(&mut black_box(item.as_slice()), 1_000).unwrap_or_default());
        });
        group.bench_with_input(BenchmarkId::new("ItemHash::of", length), &item, |bencher, item| {
            bencher.iter(|| ItemHash::of(black_box(item.as_slice()), 1_000));
        });
    }
}

fn lookup(criterion: &mut Criterion) {
    let absent = items("missings", 0, QUESTIONS);
    for (size, capacity) in SIZES {
        let members = capacity / 100 * FILLED_PERCENT;
        let present = items("articles", 0, QUESTIONS.min(members));
        for (name, spec) in kinds(capacity, 0) {
            let mut group = criterion.benchmark_group(format!("lookup/{name}"));
            let filter = filled(&spec, members);
            for batch in BATCHES {
                group.throughput(Throughput::Elements(batch as u64));
                for (which, questions) in [("absent", &absent), ("present", &present)] {
                    let label = BenchmarkId::new(format!("{size}, {which}, batch of"), batch);
                    group.bench_function(label, |bencher| look_up(bencher, &filter, questions, batch));
                }
            }
        }
    }
}

fn insert(criterion: &mut Criterion) {
    for (size, capacity) in SIZES {
        let members = capacity / 100 * FILLED_PERCENT;
        for (name, spec) in kinds(capacity, 0) {
            let mut group = criterion.benchmark_group(format!("insert/{name}"));
            // Filled in advance, so that its pages are there; one that is half full gives its place to another.
            let mut filter = filled(&spec, members);
            let mut next = 0;
            for batch in BATCHES {
                group.throughput(Throughput::Elements(batch as u64));
                group.bench_function(BenchmarkId::new(format!("{size}, new, batch of"), batch), |bencher| {
                    bencher.iter_custom(|batches| {
                        let (mut spent, mut left) = (Duration::ZERO, batches);
                        while left > 0 {
                            if filter.remaining_capacity() < capacity / 2 {
                                filter = filled(&spec, members);
                            }
                            let together = left.min(PREPARED / batch as u64);
                            let items = items("readings", next, together * batch as u64);
                            next += items.len() as u64;
                            left -= together;
                            let start = Instant::now();
                            for items in items.chunks_exact(batch) {
                                black_box(filter.add_batch(items.iter().map(Vec::as_slice), &Unlimited));
                            }
                            spent += start.elapsed();
                        }
                        spent
                    });
                });
            }
        }
    }
}

fn chain(criterion: &mut Criterion) {
    let absent = items("missings", 0, QUESTIONS);
    let present = items("articles", 0, QUESTIONS);
    let mut group = criterion.benchmark_group("chain");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (made, capacity) in [("grown from 100", 100), ("reserved", CHAIN_ITEMS)] {
        for (name, spec) in kinds(capacity, 2) {
            let filter = filled(&spec, CHAIN_ITEMS);
            for (which, questions) in [("absent", &absent), ("present", &present)] {
                let label = format!("{name}, {made}: {} layers, {which}, batch of {BATCH}", filter.layer_count());
                group.bench_function(label, |bencher| look_up(bencher, &filter, questions, BATCH));
            }
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = hash, lookup, insert, chain
}
criterion_main!(benches);
