//! The filter by itself, without a server: hashes, the set of hashes, lookups and inserts of each layout in batches of several
//! sizes, in a filter that fits the cache and one that does not, and a chain of 17 layers.
//!
//! ```text
//! cargo bench -p bloomgate-filter --bench kernel
//! cargo bench -p bloomgate-filter --bench kernel -- 'lookup/native'
//! ```
//!
//! Prints nanoseconds per item: the median of the rounds, and the fastest and the slowest. A word selects the cases whose names
//! contain it.

// A measuring program: a panic is how it fails, and its numbers are small.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]

#[allow(dead_code, reason = "the laws need more of it")]
#[path = "../tests/kinds/mod.rs"]
mod kinds;

use std::cell::{Cell, LazyCell};
use std::hint::black_box;
use std::time::{Duration, Instant};

use bloomgate_filter::HashSet;
use bloomgate_filter::hash::{HashBatch, ItemHash, siphash};
use bloomgate_filter::kinds::Origin;
use bloomgate_filter::{BATCH, Filter, Mask, Moment, Spec, Unlimited};
use kinds::LAYOUTS;

const RATE: f64 = 0.01;
const BATCHES: [usize; 4] = [1, 8, 16, 32];
/// The fraction to which filters are filled first, as in the server's measurements.
const FILLED_PERCENT: u64 = 14;
/// The names of the filters' sizes, and their capacities.
const SIZES: [(&str, u64); 2] = [("1 MB", 850_000), ("128 MB", 108_000_000)];
/// The number of items that are looked up in rotation: too many for their lines to stay in the cache.
const QUESTIONS: u64 = 1 << 17;
/// The number of items that are created before the clock starts, to be added.
const PREPARED: u64 = 4096;
/// A filter that grew from 100 to this many items has 17 layers.
const CHAIN_ITEMS: u64 = 10_000_000;
/// The key of the keyed hash.
const KEY: siphash::Key = *b"0123456789abcdef";
/// The number of measurements of each case, and the minimum duration of each.
const ROUNDS: usize = 25;
const ROUND: Duration = Duration::from_millis(40);

/// Measures a case if the command line selects it. `run` repeats the case this many times, with `items` items each time, and returns the
/// duration.
fn case(name: &str, items: u64, mut run: impl FnMut(u64) -> Duration) {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with("--")).unwrap_or_default();
    if !name.contains(&wanted) {
        return;
    }
    let mut times = 1;
    while run(times) < ROUND {
        times *= 2;
    }
    let mut rounds: Vec<f64> =
        (0..ROUNDS).map(|_| run(times).as_nanos() as f64 / times as f64 / items as f64).collect();
    rounds.sort_by(f64::total_cmp);
    println!("{name:<62} {:>9.2} ns  ({:.2} to {:.2})", rounds[ROUNDS / 2], rounds[0], rounds[ROUNDS - 1]);
}

/// Repeats a function. Returns the duration.
fn timed<T>(mut run: impl FnMut() -> T) -> impl FnMut(u64) -> Duration {
    move |times| {
        let start = Instant::now();
        for _ in 0..times {
            black_box(run());
        }
        start.elapsed()
    }
}

/// URLs of 70 bytes. Different sets have no common items.
fn items(set: &str, from: u64, count: u64) -> Vec<Vec<u8>> {
    let item = |number| format!("https://www.example.org/archive/of-the-news/2024/{set}/{number:012}").into_bytes();
    (from..from + count).map(item).collect()
}

fn slices(items: &[Vec<u8>]) -> impl Iterator<Item = &[u8]> {
    items.iter().map(Vec::as_slice)
}

fn filled(spec: &Spec, count: u64) -> Filter {
    let mut filter = Filter::new(spec, &Unlimited).unwrap();
    for first in (0..count).step_by(BATCH) {
        let batch = items("articles", first, (BATCH as u64).min(count - first));
        filter.add_batch(slices(&batch), Origin::Client, &Moment(0), &Unlimited);
    }
    filter
}

/// Looks up one batch after another.
fn look_up(name: &str, filter: &LazyCell<Filter, impl FnOnce() -> Filter>, questions: &[Vec<u8>], batch: usize) {
    let mut batches = questions.chunks_exact(batch).cycle();
    case(
        name,
        batch as u64,
        timed(|| {
            let items = black_box(batches.next().unwrap_or_default());
            black_box(&**filter).contains_batch(slices(items), &Moment(0))
        }),
    );
}

/// Items of several lengths, then batches of items of 70 bytes, and of 20 to 100.
fn hash() {
    for length in [16, 32, 64, 70, 200] {
        let item = vec![b'u'; length];
        let crates = timed(|| murmur3::murmur3_x64_128(&mut black_box(item.as_slice()), 1_000).unwrap_or_default());
        case(&format!("hash/crate murmur3, {length} bytes"), 1, crates);
        let own = timed(|| ItemHash::of(black_box(item.as_slice()), 1_000));
        case(&format!("hash/ItemHash::of, {length} bytes"), 1, own);
        let keyed = timed(|| ItemHash::keyed(black_box(item.as_slice()), KEY));
        case(&format!("hash/ItemHash::keyed, {length} bytes"), 1, keyed);
    }
    let same = items("articles", 0, QUESTIONS);
    // 53 and 81 have no common divisor.
    let mixed: Vec<_> = (0..10_000).map(|number| vec![b'u'; 20 + number * number * 53 % 81]).collect();
    for (lengths, items) in [("70", same), ("20 to 100", mixed)] {
        let mut batches = items.chunks_exact(BATCH).cycle();
        let mut next = || slices(black_box(batches.next().unwrap_or_default()));
        let own = timed(|| HashBatch::of(next(), |item| ItemHash::of(item, 1_000)));
        case(&format!("hash/batch, ItemHash::of, {lengths} bytes"), BATCH as u64, own);
        let keyed = timed(|| HashBatch::keyed(next(), KEY));
        case(&format!("hash/batch, HashBatch::keyed, {lengths} bytes"), BATCH as u64, keyed);
    }
}

/// The set of hashes: filling a set, batches of lookups of which half are present, and replacing hashes.
fn set() {
    let hash = |number: u64| ItemHash::of(&number.to_le_bytes(), 1_000);
    let of = |entries: u64| {
        let (mut set, mut next) = (HashSet::new(), 0);
        while set.len() < entries {
            set.insert(hash(next)).unwrap();
            next += 1;
        }
        set
    };
    for entries in [1_000, 1_000_000] {
        case(&format!("set/fill, {entries}"), entries, timed(|| of(entries)));
    }
    for entries in [1_000, 10_000_000] {
        let set = LazyCell::new(|| of(entries));
        let asked: Vec<_> = (0..QUESTIONS).map(|number| hash(number * 7919 % (2 * entries))).collect();
        let mut batches = asked.chunks_exact(BATCH).cycle();
        let lookup = timed(|| black_box(&*set).contains_batch(batches.next().unwrap_or_default(), Mask::first(BATCH)));
        case(&format!("set/contains_batch, {entries}"), BATCH as u64, lookup);
        let (mut set, mut next) = (None, 2 * entries);
        let replace = timed(|| {
            let set = set.get_or_insert_with(|| of(entries));
            for number in next..next + BATCH as u64 {
                set.insert(hash(number)).unwrap();
                set.remove(hash(number));
            }
            next += BATCH as u64;
        });
        case(&format!("set/insert and remove, {entries}"), BATCH as u64, replace);
    }
}

fn lookup() {
    let absent = items("missings", 0, QUESTIONS);
    for (size, capacity) in SIZES {
        let members = capacity / 100 * FILLED_PERCENT;
        let present = items("articles", 0, QUESTIONS.min(members));
        for kind in LAYOUTS {
            let filter = LazyCell::new(|| filled(&kind.spec(RATE, capacity, 0), members));
            for batch in BATCHES {
                for (which, questions) in [("absent", &absent), ("present", &present)] {
                    let name = format!("lookup/{}, {size}, {which}, batch of {batch}", kind.name);
                    look_up(&name, &filter, questions, batch);
                }
            }
        }
    }
}

fn insert() {
    for (size, capacity) in SIZES {
        let members = capacity / 100 * FILLED_PERCENT;
        for kind in LAYOUTS {
            // Filled in advance, so that its pages are resident. A new filter replaces it when it is half full.
            let filter = Cell::new(None);
            let mut next = 0;
            for batch in BATCHES {
                let name = format!("insert/{}, {size}, new, batch of {batch}", kind.name);
                case(&name, batch as u64, |times| {
                    let (mut spent, mut left) = (Duration::ZERO, times);
                    while left > 0 {
                        let has_room = |filter: &Filter| filter.remaining_capacity() >= capacity / 2;
                        let of_now = filter.take().filter(has_room);
                        let mut of_now = of_now.unwrap_or_else(|| filled(&kind.spec(RATE, capacity, 0), members));
                        let together = left.min(PREPARED / batch as u64);
                        let items = items("readings", next, together * batch as u64);
                        next += items.len() as u64;
                        left -= together;
                        let start = Instant::now();
                        for items in items.chunks_exact(batch) {
                            black_box(of_now.add_batch(slices(items), Origin::Client, &Moment(0), &Unlimited));
                        }
                        spent += start.elapsed();
                        filter.set(Some(of_now));
                    }
                    spent
                });
            }
        }
    }
}

fn chain() {
    let absent = items("missings", 0, QUESTIONS);
    let present = items("articles", 0, QUESTIONS);
    for (made, capacity) in [("grown from 100", 100), ("reserved", CHAIN_ITEMS)] {
        for kind in LAYOUTS {
            let filter = LazyCell::new(|| filled(&kind.spec(RATE, capacity, 2), CHAIN_ITEMS));
            for (which, questions) in [("absent", &absent), ("present", &present)] {
                look_up(&format!("chain/{}, {made}, {which}, batch of {BATCH}", kind.name), &filter, questions, BATCH);
            }
        }
    }
}

fn main() {
    hash();
    set();
    lookup();
    insert();
    chain();
}
