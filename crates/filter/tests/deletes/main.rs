//! Laws of deletes, each checked against an exact set: no order of adds and deletes, wrong deletes, full tables, batches and
//! single items, snapshots and dumps in between makes a member absent.
//!
//! The cases use a fixed seed, so that every run tries the same ones; `PROPTEST_CASES` and `PROPTEST_RNG_SEED` in the
//! environment select more, or others.

// All of this file is test code: a panic is how a test fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod loading;
mod native;
mod ring;

use bloomgate_filter::chain::Added;
use bloomgate_filter::format::records::DumpMark;
use bloomgate_filter::format::{Arrival, ByteSink, ByteSource, StoredAs};
use bloomgate_filter::hash::Hasher;
use bloomgate_filter::kinds::{NativeSpec, Origin, Removed};
use bloomgate_filter::{BATCH, Filter, Moment, Scaling, Spec, Unlimited, Value};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// The key of every filter here. Its randomness is tested elsewhere.
const HASHER: Hasher = Hasher::SipHash { key: *b"sixteen bytes ok" };

fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let rng_seed = if default.rng_seed == RngSeed::Random { RngSeed::Fixed(3) } else { default.rng_seed };
    ProptestConfig { rng_seed, failure_persistence: None, ..default }
}

/// A native filter that can delete.
fn filter(rate: f64, capacity: u64, expansion: u32) -> Filter {
    let scaling = Scaling::from_expansion(expansion);
    Filter::new(&Spec::Native(NativeSpec::new(rate, capacity, scaling, HASHER)), &Unlimited).unwrap()
}

type Items = Vec<Vec<u8>>;

/// A step of a test.
#[derive(Clone, Debug)]
enum Step {
    /// Adds together, or one by one.
    Add(Items, bool),
    /// Deletes together, or one by one, of members and of other items.
    Delete(Items, bool),
    /// Takes a snapshot, with which the next steps continue.
    Save,
    /// Takes a dump, with which the next steps continue.
    Dump,
    /// Takes a copy, with which the next steps continue.
    Copy,
    /// Moves the clock forward or back, in milliseconds; without effect on a native filter.
    Wait(i64),
}

fn items() -> impl Strategy<Value = Items> {
    // From a small set, so that many are repeated, even within a batch.
    let numbers = (0u32..120).prop_map(|number| number.to_string().into_bytes());
    prop::collection::vec(numbers, 1..=BATCH)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let most = if cfg!(miri) { 5 } else { 60 };
    let wait = prop_oneof![4 => 0i64..3000, 2 => 0i64..20_000, 1 => -3000i64..0];
    let step = prop_oneof![
        4 => (items(), any::<bool>()).prop_map(|(items, is_batch)| Step::Add(items, is_batch)),
        4 => (items(), any::<bool>()).prop_map(|(items, is_batch)| Step::Delete(items, is_batch)),
        1 => Just(Step::Save),
        1 => Just(Step::Dump),
        1 => Just(Step::Copy),
        2 => wait.prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..most)
}

fn add(filter: &mut Filter, items: &[Vec<u8>], origin: Origin, now: Moment) -> Added {
    filter.add_batch(items.iter().map(Vec::as_slice), origin, &now, &Unlimited)
}

fn delete(filter: &mut Filter, items: &[Vec<u8>], origin: Origin, now: Moment) -> Removed {
    filter.remove_batch(items.iter().map(Vec::as_slice), origin, &now, &Unlimited)
}

fn written(filter: Filter) -> (Vec<u8>, Filter) {
    let (mut sink, mut value) = (ByteSink::default(), Value::from(filter));
    value.write(&mut sink);
    (sink.0, value.take_filter())
}

/// Returns the filter in a snapshot.
fn saved_and_read(filter: Filter) -> Filter {
    let (bytes, filter) = written(filter);
    let mut source = ByteSource(&bytes);
    let read = StoredAs::Own.read(1, &mut source, &Unlimited).unwrap().take_filter();
    assert!(source.0.is_empty() && read == filter);
    read
}

/// Returns the records of a dump.
fn records(filter: &Filter) -> Vec<(u64, Vec<u8>)> {
    let (mut records, mut mark, mut iterator) = (Vec::new(), DumpMark::default(), 0);
    while let Some((next, data)) = filter.next_record(7, iterator, &mut mark).unwrap() {
        records.push((next, data.into_owned()));
        iterator = next;
    }
    records
}

/// Returns the filter that a dump makes on another server.
fn arrived(records: &[(u64, Vec<u8>)]) -> Filter {
    let mut arrival = Arrival::begin(records[0].0, &records[0].1, &Unlimited).unwrap();
    for (iterator, data) in &records[1..] {
        arrival.accept(*iterator, data).unwrap();
    }
    arrival.into_filter()
}
