//! Refused memory, request by request: every operation of a filter and every codec runs with the nth request failing, for n =
//! 1, 2, 3 ... until it succeeds. Each time it must return an error of memory and leave the filter unchanged. An infallible
//! request would end this process, and so fail the test.
//!
//! The server's part is in `tests/server/reliability/faults.rs`.

// All of this file is test code: a panic is how a test fails.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod allocator;
mod codecs;
mod filters;
#[path = "../one_of_each/mod.rs"]
mod one_of_each;
mod pending;
mod sets;
mod windowed;

use allocator::{Fault, under};
use bloomgate_filter::Moment;
use bloomgate_filter::kinds::Origin;
use bloomgate_filter::{Error, Filter, Spec, Unlimited, format};

/// Runs a function with each request refused in turn, alone and with all after it. `run` gets the number of the attempt,
/// returns its result, and must itself check that a refused operation changed nothing. Returns the number of faults.
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

/// Returns a definition of each kind, for filters of this capacity that double.
fn specs(capacity: u64) -> [(&'static str, Spec); 3] {
    one_of_each::specs(0.01, capacity, 2)
}

/// New filters of the three layouts.
fn new_filters(capacity: u64) -> [(&'static str, Filter); 3] {
    specs(capacity).map(|(name, spec)| (name, Filter::new(&spec, &Unlimited).unwrap()))
}

/// Returns filters with this number of items.
fn filled_filters(capacity: u64, items: usize) -> [(&'static str, Filter); 3] {
    let mut filters = new_filters(capacity);
    for (_, filter) in &mut filters {
        for item in numbered(0, items) {
            filter.add(&item, Origin::Client, &Moment(0), &Unlimited).unwrap();
        }
    }
    filters
}

fn numbered(first: usize, count: usize) -> Vec<Vec<u8>> {
    (first..first + count).map(|number| format!("item {number}").into_bytes()).collect()
}
