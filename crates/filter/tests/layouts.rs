//! Laws for filters of every layout: no member is reported absent, a batch equals its items one by one, a copy is equal, and
//! every stored form restores an equal filter.

// All of this file is test code: a panic is how a test fails.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use bloomgate_filter::Moment;
use bloomgate_filter::chain::Added;
use bloomgate_filter::format::records::DumpMark;
use bloomgate_filter::format::{self, AofRecord, Arrival, ByteSink, ByteSource, Progress};
use bloomgate_filter::kinds::valkey_bloom::{ValkeyBloom, load};
use bloomgate_filter::kinds::{NativeSpec, RedisBloomSpec, ValkeyBloomSpec};
use bloomgate_filter::kinds::{Origin, Outcome};
use bloomgate_filter::{BATCH, Ceiling, Error, Filter, Mask, Scaling, Spec, Unlimited, Value};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Limits the size of the whole filter, in bytes.
struct Bytes(u64);

impl Ceiling for Bytes {
    fn available_bytes(&self, filter_bytes: u64, _asked_bytes: u64) -> u64 {
        self.0.saturating_sub(filter_bytes)
    }
}

/// The number of cases, and the most batches of each: few under miri, which is slow.
const CASES: u32 = if cfg!(miri) { 3 } else { 150 };
const BATCHES: usize = if cfg!(miri) { 3 } else { 30 };

fn config() -> ProptestConfig {
    ProptestConfig {
        rng_seed: RngSeed::Fixed(20_261_121),
        failure_persistence: None,
        ..ProptestConfig::with_cases(CASES)
    }
}

fn rates() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.25), Just(0.01), (2..12i32).prop_map(|digits| 10f64.powi(-digits))]
}

fn filters() -> impl Strategy<Value = Filter> {
    (rates(), 1..300u64, 0..4u32, 0..3u8, any::<[u8; 32]>(), 1..99u8).prop_map(
        |(rate, capacity, expansion, layout, seed, tightening)| {
            let scaling = Scaling::from_expansion(expansion);
            let spec = match layout {
                0 => Spec::Native(NativeSpec::murmur3(rate, capacity, scaling, 4242)),
                1 => Spec::RedisBloom(RedisBloomSpec { rate, capacity, scaling }),
                _ => {
                    let rules = ValkeyBloom::new(rate, f64::from(tightening) / 100.0, scaling, seed);
                    Spec::ValkeyBloom(ValkeyBloomSpec { rules, capacity })
                }
            };
            Filter::new(&spec, &Unlimited).unwrap()
        },
    )
}

/// Few distinct items, so that many are equal.
fn batches() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    let items = prop_oneof![
        (0..400u32).prop_map(|number| number.to_le_bytes().to_vec()),
        prop::collection::vec(0..2u8, 0..4),
        prop::collection::vec(any::<u8>(), 0..70),
    ];
    prop::collection::vec(prop::collection::vec(items, 0..33), 0..BATCHES)
}

fn slices(items: &[Vec<u8>]) -> impl Iterator<Item = &[u8]> {
    items.iter().map(Vec::as_slice)
}

/// Adds what it can. A fixed filter, or one whose rates have underflowed, refuses the rest.
fn fill(filter: &mut Filter, batches: &[Vec<Vec<u8>>]) -> Vec<Vec<u8>> {
    let mut members = Vec::new();
    for batch in batches {
        let added = filter.add_batch(slices(batch), Origin::Client, &Moment(0), &Unlimited);
        assert!(matches!(added.error, None | Some(Error::Full | Error::RateTooLow)), "{added:?}");
        members.extend_from_slice(&batch[..added.done]);
    }
    members
}

fn assert_denies_none(filter: &Filter, members: &[Vec<u8>]) {
    for batch in members.chunks(BATCH) {
        assert_eq!(filter.contains_batch(slices(batch), &Moment(0)), Mask::first(batch.len()));
        assert!(slices(batch).all(|item| filter.contains(item, &Moment(0))));
    }
}

/// Returns the value after a snapshot.
fn through_snapshot(value: &Value) -> Value {
    let mut sink = ByteSink::default();
    value.write(&mut sink);
    let mut source = ByteSource(&sink.0);
    let stored_as = value.stored_as();
    let read = stored_as.read(stored_as.encoding(), &mut source, &Unlimited).unwrap();
    assert!(source.0.is_empty(), "everything is read");
    read
}

/// Returns the filter after an AOF, with every chunk loaded twice. A dump has the same records.
fn through_effects(value: &Value) -> Value {
    const GENERATION: u16 = 7;
    let (mut again, mut before) = (None, 0);
    let filter = of(value);
    value
        .for_each_record(GENERATION, |record| match record {
            AofRecord::Whole(whole) => {
                assert_eq!(filter.next_record(GENERATION, 0, &mut DumpMark::default()), Err(format::Error::NoRecords));
                again = Some(Filter::from(load::decode(&load::encode(whole)?, &Unlimited)?).into());
                Ok(())
            }
            AofRecord::Chunk { iterator, data } => {
                let dumped = filter.next_record(GENERATION, before, &mut DumpMark::default()).unwrap();
                assert!(dumped == Some((iterator, data.into())), "not the record after {before}");
                before = iterator;
                match &mut again {
                    None => again = Some(Value::from(Arrival::begin(iterator, data, &Unlimited).unwrap())),
                    Some(value) => match value.accept(GENERATION, iterator, data) {
                        Ok(Progress::Complete) => *value = value.take_filter().into(),
                        progress => assert_eq!(progress, Ok(Progress::Stored)),
                    },
                }
                let known = again.as_mut().unwrap().accept(GENERATION, iterator, data);
                assert_eq!(known, Ok(Progress::Known));
                Ok(())
            }
        })
        .unwrap();
    if before > 0 {
        assert_eq!(filter.next_record(GENERATION, before, &mut DumpMark::default()), Ok(None));
    }
    again.unwrap()
}

fn of(value: &Value) -> &Filter {
    match value {
        Value::Filter(filter) => filter,
        Value::Arriving(arrival) => panic!("{arrival:?}"),
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_member_is_ever_reported_absent(mut filter in filters(), batches in batches()) {
        let members = fill(&mut filter, &batches);
        assert_denies_none(&filter, &members);
        prop_assert!(filter.items() <= filter.total_capacity());
    }

    #[test]
    fn a_batch_is_its_items_one_by_one(mut filter in filters(), batches in batches()) {
        let mut one_by_one = filter.try_clone().unwrap();
        for batch in &batches {
            let added = filter.add_batch(slices(batch), Origin::Client, &Moment(0), &Unlimited);
            let mut expected = Added { new: Mask::NONE, effect: Mask::NONE, done: 0, error: None };
            for (index, item) in batch.iter().enumerate() {
                match one_by_one.add(item, Origin::Client, &Moment(0), &Unlimited) {
                    Ok(is_new) => {
                        expected.new.insert_if(index, is_new == Outcome::New);
                        expected.effect = expected.new;
                        expected.done += 1;
                    }
                    Err(error) => {
                        expected.error = Some(error);
                        break;
                    }
                }
            }
            prop_assert_eq!(added, expected);
        }
        prop_assert_eq!(&filter, &one_by_one);
    }

    #[test]
    fn a_copy_equals_and_lives_its_own_life(mut filter in filters(), batches in batches(), further in batches()) {
        fill(&mut filter, &batches);
        let copy = filter.try_clone().unwrap();
        prop_assert_eq!(&copy, &filter);
        let items = filter.items();
        fill(&mut filter, &further);
        prop_assert_eq!(copy.items(), items);
        prop_assert_eq!(copy == filter, filter.items() == items);
    }

    #[test]
    fn every_stored_form_restores_an_equal_filter(mut filter in filters(), batches in batches(), further in batches()) {
        fill(&mut filter, &batches);
        let value = Value::from(filter);
        let (saved, loaded) = (through_snapshot(&value), through_effects(&value));
        prop_assert_eq!(&saved, &value);
        prop_assert_eq!(&loaded, &value);
        // They can be used like the original.
        let [filter, saved, loaded] = [value, saved, loaded].map(|mut value| {
            let mut filter = value.take_filter();
            fill(&mut filter, &further);
            filter
        });
        prop_assert_eq!(&saved, &filter);
        prop_assert_eq!(&loaded, &filter);
    }

    #[test]
    fn a_refusal_changes_nothing(mut filter in filters(), batches in batches(), room in 0u64..20_000) {
        for batch in &batches {
            let before = filter.try_clone().unwrap();
            let added = filter.add_batch(slices(batch), Origin::Client, &Moment(0), &Bytes(room));
            let mut expected = before;
            expected.add_batch(slices(&batch[..added.done]), Origin::Client, &Moment(0), &Unlimited);
            prop_assert_eq!(&filter, &expected);
        }
    }
}
