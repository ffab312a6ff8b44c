//! The filter by itself, without a server: hashes, the set of hashes, lookups and inserts of each layout in batches of several
//! sizes, in a filter that fits the cache and one that does not, and a chain of 17 layers.
//!
//! ```text
//! cargo bench -p bloomgate-filter --bench kernel
//! cargo bench -p bloomgate-filter --bench kernel -- 'lookup/native'
//! ```
//!
//! Times are per batch; `thrpt` is items per second.

// A measuring program: a panic is how it fails, and its numbers are small.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../tests/one_of_each/mod.rs"]
mod one_of_each;

use std::hint::black_box;
use std::time::{Duration, Instant};

use bloomgate_filter::Moment;
use bloomgate_filter::chain::HashSet;
use bloomgate_filter::hash::{HashBatch, ItemHash, siphash};
use bloomgate_filter::kinds::Origin;
use bloomgate_filter::{BATCH, Filter, Mask, Spec, Unlimited};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const RATE: f64 = 0.01;
const BATCHES: [usize; 4] = [1, 8, 16, 32];
/// The fraction to which filters are filled first, as in the server's measurements.
const FILLED_PERCENT: u64 = 14;
/// The names of the filters' sizes, and their capacities.
const SIZES: [(&str, u64); 2] = [("1 MB", 850_000), ("128 MB", 108_000_000)];
/// The number of items that are looked up in turn: too many for their lines to stay in the cache.
const QUESTIONS: u64 = 1 << 17;
/// The number of items that are created before the clock starts, to be added.
const PREPARED: u64 = 4096;
/// A filter that grew from 100 to this many items has 17 layers.
const CHAIN_ITEMS: u64 = 10_000_000;
/// The key of the keyed hash.
const KEY: siphash::Key = *b"0123456789abcdef";

/// A definition of each kind, with the kind's name.
fn kinds(capacity: u64, expansion: u32) -> [(&'static str, Spec); 3] {
    one_of_each::specs(RATE, capacity, expansion)
}

/// URLs of 70 bytes. Different sets have no common items.
fn items(set: &str, from: u64, count: u64) -> Vec<Vec<u8>> {
    let item = |number| format!("https://www.example.org/archive/of-the-news/2024/{set}/{number:012}").into_bytes();
    (from..from + count).map(item).collect()
}

fn fill(filter: &mut Filter, count: u64) {
    for first in (0..count).step_by(BATCH) {
        let batch = items("articles", first, (BATCH as u64).min(count - first));
        filter.add_batch(batch.iter().map(Vec::as_slice), Origin::Client, &Moment(0), &Unlimited);
    }
}

fn filled(spec: &Spec, count: u64) -> Filter {
    let mut filter = Filter::new(spec, &Unlimited).unwrap();
    fill(&mut filter, count);
    filter
}

/// Looks up one batch after another.
fn look_up(bencher: &mut criterion::Bencher<'_>, filter: &Filter, questions: &[Vec<u8>], batch: usize) {
    let mut batches = questions.chunks_exact(batch).cycle();
    bencher.iter(|| {
        let items = batches.next().unwrap_or_default();
        black_box(filter).contains_batch(black_box(items).iter().map(Vec::as_slice), &Moment(0))
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
        group.bench_with_input(BenchmarkId::new("ItemHash::keyed", length), &item, |bencher, item| {
            bencher.iter(|| ItemHash::keyed(black_box(item.as_slice()), KEY));
        });
    }
    hash_batches(&mut group);
}

/// Batches of items of 70 bytes, and of 20 to 100.
fn hash_batches(group: &mut BenchmarkGroup<'_, WallTime>) {
    group.throughput(Throughput::Elements(BATCH as u64));
    let same = items("articles", 0, QUESTIONS);
    // 53 and 81 have no common divisor.
    let mixed: Vec<_> = (0..10_000).map(|number| vec![b'u'; 20 + number * number * 53 % 81]).collect();
    for (lengths, items) in [("70", same), ("20 to 100", mixed)] {
        let mut batches = items.chunks_exact(BATCH).cycle();
        group.bench_function(BenchmarkId::new("batch, ItemHash::of", lengths), |bencher| {
            bencher.iter(|| {
                let items = black_box(batches.next().unwrap_or_default());
                HashBatch::of(items.iter().map(Vec::as_slice), |item| ItemHash::of(item, 1_000))
            });
        });
        group.bench_function(BenchmarkId::new("batch, HashBatch::keyed", lengths), |bencher| {
            bencher.iter(|| {
                let items = black_box(batches.next().unwrap_or_default());
                HashBatch::keyed(items.iter().map(Vec::as_slice), KEY)
            });
        });
    }
}

/// The set of hashes: filling a set, batches of lookups of which half are present, and replacing hashes.
fn set(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("set");
    let hash = |number: u64| ItemHash::of(&number.to_le_bytes(), 1_000);
    for entries in [1_000, 1_000_000] {
        group.throughput(Throughput::Elements(entries));
        group.bench_function(BenchmarkId::new("fill", entries), |bencher| {
            bencher.iter(|| {
                let mut set = HashSet::new();
                (0..entries).for_each(|number| _ = set.insert(hash(number)).unwrap());
                set
            });
        });
    }
    group.throughput(Throughput::Elements(BATCH as u64));
    for entries in [1_000, 10_000_000] {
        let (mut set, mut next) = (HashSet::new(), 0);
        while set.len() < entries {
            set.insert(hash(next)).unwrap();
            next += 1;
        }
        let asked: Vec<_> = (0..QUESTIONS).map(|number| hash(number * 7919 % (2 * entries))).collect();
        let mut batches = asked.chunks_exact(BATCH).cycle();
        group.bench_function(BenchmarkId::new("contains_batch", entries), |bencher| {
            bencher.iter(|| black_box(&set).contains_batch(batches.next().unwrap_or_default(), Mask::first(BATCH)));
        });
        group.bench_function(BenchmarkId::new("insert and remove", entries), |bencher| {
            bencher.iter(|| {
                for number in 0..BATCH as u64 {
                    set.insert(hash(next + number)).unwrap();
                    set.remove(hash(next + number));
                }
                next += BATCH as u64;
            });
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
            // Filled in advance, so that its pages are resident. When it is half full, another one replaces it.
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
                                black_box(filter.add_batch(
                                    items.iter().map(Vec::as_slice),
                                    Origin::Client,
                                    &Moment(0),
                                    &Unlimited,
                                ));
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
    targets = hash, set, lookup, insert, chain
}
criterion_main!(benches);
