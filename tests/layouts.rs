//! Laws that hold for a filter of every layout, whoever made it: no member is denied, a batch is its items one by one, a
//! copy equals, and every form in which it is stored gives back the same filter.

// All of this file is test code: a panic is how a test fails.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use bloomgate::bloom::{
    Added, BloomFilter, Ceiling, Error, Filter, RedisBloomFilter, Scaling, Unlimited, ValkeyBloom, ValkeyBloomFilter,
};
use bloomgate::format::{
    ByteSink, ByteSource, NativeArrival, Progress, RedisBloomArrival, dump, native, redisbloom, redisbloom_dump,
    valkey_bloom,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// A ceiling of so many bytes for the whole filter.
struct Bytes(u64);

impl Ceiling for Bytes {
    fn available_bytes(&self, filter_bytes: u64, _asked_bytes: u64) -> u64 {
        self.0.saturating_sub(filter_bytes)
    }
}

/// Cases, and batches in each at most: few under miri, which is slow.
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
            match layout {
                0 => BloomFilter::new(rate, capacity, scaling, 4242, &Unlimited).unwrap().into(),
                1 => RedisBloomFilter::new(rate, capacity, scaling, &Unlimited).unwrap().into(),
                _ => {
                    let rules = ValkeyBloom::new(rate, f64::from(tightening) / 100.0, scaling, seed);
                    ValkeyBloomFilter::new(rules, capacity, &Unlimited).unwrap().into()
                }
            }
        },
    )
}

/// Few different items, so that many are equal.
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

/// Adds what it can; a fixed filter, or one at the end of its rates, refuses the rest.
fn fill(filter: &mut Filter, batches: &[Vec<Vec<u8>>]) -> Vec<Vec<u8>> {
    let mut members = Vec::new();
    for batch in batches {
        let added = filter.add_batch(slices(batch), &Unlimited);
        assert!(matches!(added.error, None | Some(Error::Full | Error::RateTooLow)), "{added:?}");
        members.extend_from_slice(&batch[..added.done]);
    }
    members
}

fn assert_denies_none(filter: &Filter, members: &[Vec<u8>]) {
    for batch in members.chunks(32) {
        assert_eq!(filter.contains_batch(slices(batch)).count_ones() as usize, batch.len());
        assert!(slices(batch).all(|item| filter.contains(item)));
    }
}

/// The filter in the form in which a snapshot has it, read again.
fn through_snapshot(filter: &Filter) -> Filter {
    let mut sink = ByteSink::default();
    match filter {
        Filter::Native(filter) => native::write_filter(filter, &mut sink),
        Filter::RedisBloom(filter) => redisbloom::write(filter, &mut sink),
        Filter::ValkeyBloom(filter) => valkey_bloom::write(filter, &mut sink),
    }
    let mut source = ByteSource(&sink.0);
    let read = match filter {
        Filter::Native(_) => native::read(&mut source, &Unlimited).unwrap().take_filter(),
        Filter::RedisBloom(_) => redisbloom::read(&mut source, redisbloom::ENCODING, &Unlimited).unwrap().into(),
        Filter::ValkeyBloom(_) => valkey_bloom::read(&mut source, &Unlimited).unwrap().into(),
    };
    assert!(source.0.is_empty(), "everything is read");
    read
}

/// The filter in the form in which the AOF has it, loaded again, every chunk twice.
fn through_dump(filter: &Filter) -> Filter {
    match filter {
        Filter::Native(filter) => {
            let mut records = dump::records(filter, 7).map(Result::unwrap);
            let (iterator, header) = records.next().unwrap();
            let mut arrival = NativeArrival::begin(iterator, &header, &Unlimited).unwrap();
            for (iterator, data) in records {
                if arrival.accept(iterator, &data).unwrap() == Progress::Stored {
                    assert_eq!(arrival.accept(iterator, &data), Ok(Progress::Known));
                }
            }
            arrival.into_filter().into()
        }
        Filter::RedisBloom(filter) => {
            let mut records = redisbloom_dump::records(filter).map(Result::unwrap);
            let mut arrival = RedisBloomArrival::begin(&records.next().unwrap().1, &Unlimited).unwrap();
            for (iterator, data) in records {
                if arrival.accept(iterator, &data).unwrap() == Progress::Stored {
                    assert_eq!(arrival.accept(iterator, &data), Ok(Progress::Known));
                }
            }
            arrival.into_filter().into()
        }
        Filter::ValkeyBloom(filter) => {
            valkey_bloom::decode_load(&valkey_bloom::encode_load(filter).unwrap(), &Unlimited).unwrap().into()
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_member_is_ever_denied(mut filter in filters(), batches in batches()) {
        let members = fill(&mut filter, &batches);
        assert_denies_none(&filter, &members);
        prop_assert!(filter.items() <= filter.total_capacity());
    }

    #[test]
    fn a_batch_is_its_items_one_by_one(mut filter in filters(), batches in batches()) {
        let mut one_by_one = filter.try_clone().unwrap();
        for batch in &batches {
            let added = filter.add_batch(slices(batch), &Unlimited);
            let mut expected = Added { new: 0, done: 0, error: None };
            for (index, item) in batch.iter().enumerate() {
                match one_by_one.add(item, &Unlimited) {
                    Ok(is_new) => {
                        expected.new |= u32::from(is_new) << index;
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
    fn every_stored_form_gives_back_the_same_filter(mut filter in filters(), batches in batches(), further in batches()) {
        fill(&mut filter, &batches);
        let (mut saved, mut dumped) = (through_snapshot(&filter), through_dump(&filter));
        prop_assert_eq!(&saved, &filter);
        prop_assert_eq!(&dumped, &filter);
        // They go on as it does.
        for filter in [&mut filter, &mut saved, &mut dumped] {
            fill(filter, &further);
        }
        prop_assert_eq!(&saved, &filter);
        prop_assert_eq!(&dumped, &filter);
    }

    #[test]
    fn a_refusal_changes_nothing(mut filter in filters(), batches in batches(), room in 0u64..20_000) {
        for batch in &batches {
            let before = filter.try_clone().unwrap();
            let added = filter.add_batch(slices(batch), &Bytes(room));
            let mut expected = before;
            expected.add_batch(slices(&batch[..added.done]), &Unlimited);
            prop_assert_eq!(&filter, &expected);
        }
    }
}
