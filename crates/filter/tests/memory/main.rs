//! Filters and the allocator: the number of allocations (`allocations.rs`), refused ones (the other files), and moved memory
//! (`relocation.rs`).
//!
//! Requests are refused one by one: every operation of a filter and every codec runs with the nth request failing, for n = 1, 2, 3
//! ... until it succeeds. Each time it must return an error of memory and leave the filter unchanged. An infallible request would
//! end this process, and so fail the test. The server's part is in `tests/server/reliability/faults.rs`.

// All of this is test code: a panic is how a test fails. Numbers that are cast are small.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::cast_possible_truncation)]

mod allocator;
mod codecs;
mod cuckoo;
mod filters;
#[allow(dead_code, reason = "the laws need more of it")]
#[path = "../kinds/mod.rs"]
mod kinds;
mod pending;
mod relocation;
mod sets;

use allocator::{Fault, under};
use bloomgate_filter::kinds::Origin;
use bloomgate_filter::{BATCH, Error, Filter, Moment, Spec, Unlimited, format};
use kinds::{Kind, Shape};

/// Runs a function with each request refused in start, alone and with all after it. `run` returns its result, and must itself check
/// that a refused operation changed nothing. Returns the number of faults.
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
            // A failed request may be retried in another way, like one for a small bitmap, which is usually aligned.
            if let Err(error) = result {
                let refused = matches!(error, format::Error::Filter(Error::OutOfMemory { asked_bytes: 1.. }));
                assert!(refused, "{what}, request {number}: {error:?}");
            }
        }
    }
    faults
}

/// A definition with a key, if the kind can have one. A filter that grows doubles.
fn spec(kind: Kind, capacity: u64) -> Spec {
    (kind.spec)(&Shape { seed: 4243, ..Shape::new(0.01, capacity, 2) })
}

/// Begins the next bucket of a ring.
fn turn(filter: &mut Filter, second: u64) -> Result<(), Error> {
    if let Some(ring) = filter.windowed_mut() {
        ring.begin_bucket(ring.bucket_now(Moment(second * 1000)), &Unlimited)?;
        ring.take_retired();
    }
    Ok(())
}

/// Returns a filter with this number of items, as far as it takes them, in a ring in four buckets. A few are deleted again.
fn filled(kind: Kind, capacity: u64, items: usize) -> Filter {
    let mut filter = Filter::new(&spec(kind, capacity), &Unlimited).unwrap();
    let items = numbered(0, items);
    for (second, items) in (0..4).zip(items.chunks(items.len().div_ceil(4).max(1)).chain([&[][..]; 4])) {
        turn(&mut filter, second).unwrap();
        for batch in items.chunks(BATCH) {
            filter.add_batch(slices(batch), Origin::Client, &now(second), &Unlimited);
        }
    }
    filter.remove_batch(slices(&items[..items.len().min(3)]), Origin::Client, &now(3), &Unlimited);
    filter
}

fn now(second: u64) -> Moment {
    Moment(second * 1000)
}

fn numbered(first: usize, count: usize) -> Vec<Vec<u8>> {
    (first..first + count).map(|number| format!("item {number}").into_bytes()).collect()
}

fn slices(items: &[Vec<u8>]) -> impl Iterator<Item = &[u8]> {
    items.iter().map(Vec::as_slice)
}
