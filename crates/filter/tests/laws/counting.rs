//! Laws of counting filters only: counters that saturate, adds that are refused when the filter is full, golden bytes, impossible
//! descriptions. `corpus/words.rs` has their options.

use bloomgate_filter::format::{self, ByteSink, Sink as _};
use bloomgate_filter::hash::Hasher;
use bloomgate_filter::kinds::{Added, CountingSpec, Origin, Outcome};
use bloomgate_filter::{BATCH, Error, Filter, Mask, Moment, Scaling, Spec, Unlimited};

use crate::forms::{read_own, snapshot};
use crate::rows::Room;
use crate::world::{COUNTER_MAX, add, add_all, delete, item};

const NOW: Moment = Moment(0);

fn spec(rate: f64, capacity: u64) -> CountingSpec {
    CountingSpec { rate, capacity, hasher: Hasher::murmur3(4242) }
}

fn new(spec: CountingSpec) -> Filter {
    Filter::new(&Spec::Counting(spec), &Unlimited).unwrap()
}

fn add_one(filter: &mut Filter, number: u32) -> Result<Outcome, Error> {
    filter.add(&item(number), Origin::Client, &NOW, &Unlimited)
}

fn remove(filter: &mut Filter, numbers: &[u32]) -> Mask {
    delete(filter, numbers, Origin::Client, NOW).found
}

fn count(filter: &Filter, number: u32) -> u8 {
    filter.counting().unwrap().count(&item(number))
}

#[test]
fn a_saturated_counter_never_changes() {
    let mut filter = new(spec(0.01, 1000));
    for times in 0..20 {
        assert_eq!(count(&filter, 1), times.min(COUNTER_MAX));
        let outcome = if times == 0 { Outcome::New } else { Outcome::Renewed };
        assert_eq!(add_one(&mut filter, 1), Ok(outcome));
    }
    for _ in 0..30 {
        assert_eq!(remove(&mut filter, &[1]), Mask::first(1), "it is found ever after");
    }
    assert_eq!((count(&filter, 1), filter.items()), (COUNTER_MAX, 0), "at least 0");
    assert_eq!(filter.try_clone().unwrap(), filter, "a copy has its counters, although it counts no items");
    // An item that was added fourteen times can be deleted.
    (0..14).for_each(|_| _ = add_one(&mut filter, 2).unwrap());
    (0..14).for_each(|_| assert_eq!(remove(&mut filter, &[2]), Mask::first(1)));
    assert_eq!(remove(&mut filter, &[2]), Mask::NONE);
}

#[test]
fn a_full_filter_refuses_every_add_until_a_delete() {
    let mut filter = new(spec(0.01, 3));
    let numbers = [1, 2, 1, 1, 3];
    let expected = Added { new: Mask::first(2), effect: Mask::first(3), done: 3, error: Some(Error::Full) };
    assert_eq!(add(&mut filter, &numbers, NOW, &Room::UNLIMITED), expected);
    let full = filter.try_clone().unwrap();
    assert_eq!(add_one(&mut filter, 1), Err(Error::Full), "one that is found, too");
    assert_eq!(add_one(&mut filter, 3), Err(Error::Full));
    assert!(filter == full);
    assert_eq!(remove(&mut filter, &numbers), Mask::first(3), "1 twice, 2, and neither 1 a third time nor 3");
    assert_eq!((filter.items(), filter.remaining_capacity()), (0, 3));
    assert_eq!(add_one(&mut filter, 3), Ok(Outcome::New));
}

#[test]
fn added_and_deleted_items_leave_nothing() {
    for (rate, members) in [(0.25, 14), (1e-12, 14), (1e-3, if cfg!(miri) { 100 } else { 200_000 })] {
        let mut filter = new(spec(rate, members.into()));
        add_all(&mut filter, 0..members, NOW);
        let fill = filter.stats(&NOW).unwrap().layers[0].fill;
        assert!(members < 100 || (0.35..0.55).contains(&fill), "{fill}");
        // Each item has its own counters, with few exceptions.
        let sum: u64 = (0..members).map(|number| u64::from(count(&filter, number))).sum();
        assert!(members < 100 || sum - u64::from(members) <= u64::from(members) / 100 + 1, "{sum}");
        for batch in (0..members).rev().collect::<Vec<_>>().chunks(BATCH) {
            assert_eq!(remove(&mut filter, batch), Mask::first(batch.len()));
        }
        assert!(filter == new(spec(rate, members.into())));
    }
}

#[test]
fn a_counting_filter_has_the_requested_definition_or_is_refused() {
    let filter = new(spec(0.01, 1000));
    assert_eq!((filter.scaling(), filter.layer_count(), filter.total_capacity()), (Scaling::Fixed, 1, 1000));
    let layer = filter.layers().next().unwrap();
    // Half a byte for each of ten counters per item, rounded up to a block.
    assert_eq!((layer.bits, layer.size_bytes, layer.hashes), (2 * 10 * 512, 2 * 10 * 256, 7));
    assert!(filter.size_bytes() > layer.size_bytes && filter.allocated_bytes() > layer.size_bytes);
    assert_eq!(filter.spec(), Spec::Counting(spec(0.01, 1000)));
    let refused = |rate, capacity, room| Filter::new(&Spec::Counting(spec(rate, capacity)), &Room::of(room)).err();
    assert_eq!(refused(0.3, 10, u64::MAX), Some(Error::RateOutOfRange));
    assert_eq!(refused(1e-13, 10, u64::MAX), Some(Error::RateOutOfRange));
    assert_eq!(refused(0.01, 0, u64::MAX), Some(Error::CapacityOutOfRange));
    assert_eq!(refused(1e-12, u64::MAX, u64::MAX), Some(Error::SizeOverflow));
    assert_eq!(refused(0.01, 1000, filter.size_bytes()), None);
    let (asked_bytes, available_bytes) = (filter.size_bytes(), filter.size_bytes() - 1);
    assert_eq!(refused(0.01, 1000, available_bytes), Some(Error::AboveCeiling { asked_bytes, available_bytes }));
    let limit = filter.spec().growth_limit(0, &Room::UNLIMITED);
    assert_eq!((limit.capacity, limit.ends_by_rate), (1000, false));
    assert_eq!(filter.spec().growth_limit(0, &Room::of(available_bytes)).capacity, 0);
}

#[test]
fn golden_bytes() {
    let mut filter = new(spec(0.01, 100));
    (0..3).for_each(|_| _ = filter.add(b"hello", Origin::Client, &NOW, &Unlimited).unwrap());
    let bytes = snapshot(&filter);
    let numbers: Vec<u64> = bytes.as_chunks().0.iter().take(16).map(|number| u64::from_le_bytes(*number)).collect();
    let rate = 0.01f64.to_bits();
    // Version, kind, hash, rate, capacity, expansion, seed, policy; layers; rate, capacity, items, k, groups, blocks per group;
    // bytes of the counters.
    assert_eq!(numbers, [1, 4, 1, rate, 100, 0, 4242, 1, 1, rate, 100, 3, 7, 1, 2, 512]);
    let counters = bytes[128..].iter().flat_map(|byte| [byte & 15, byte >> 4]).enumerate();
    let counted: Vec<_> = counters.filter(|(_, value)| *value > 0).collect();
    assert_eq!(counted, [34, 74, 193, 426, 708, 738, 960].map(|counter| (counter, 3)));
    let keyed = new(CountingSpec { hasher: Hasher::SipHash { key: *b"0123456789abcdef" }, ..spec(0.01, 100) });
    let mut sink = ByteSink::default();
    let halves = [u64::from_le_bytes(*b"01234567"), u64::from_le_bytes(*b"89abcdef")];
    let numbers = [1, 4, 2, rate, 100, 0, halves[0], halves[1], 1, 1, rate, 100, 0, 7, 1, 2, 0];
    numbers.into_iter().for_each(|number| sink.put_u64(number));
    assert!(snapshot(&keyed) == sink.0, "and no table");
}

#[test]
fn an_impossible_description_is_refused() {
    let bytes = snapshot(&new(spec(0.01, 100)));
    let unsound = Err(format::Error::Filter(Error::Unsound));
    assert!(read_own(&bytes).is_ok());
    for (index, number, what) in [
        (3, 0.3f64.to_bits(), "rate"),
        (3, f64::NAN.to_bits(), "rate"),
        (4, 0, "capacity"),
        (4, 101, "capacity that is not the layer's"),
        (5, 2, "expansion"),
        (7, 2, "policy"),
        (8, 0, "no layer"),
        (9, 0.02f64.to_bits(), "rate of the layer"),
        (10, 99, "capacity of the layer"),
        (11, 101, "more items than capacity"),
        (12, 65, "hashes"),
        (13, 0, "groups"),
        (13, 1 << 55, "groups"),
        (14, 17, "blocks of a group"),
    ] {
        let mut bytes = bytes.clone();
        bytes[index * 8..index * 8 + 8].copy_from_slice(&number.to_le_bytes());
        assert_eq!(read_own(&bytes), unsound, "{what}");
    }
    let two_layers = [&bytes[..64], &2u64.to_le_bytes(), &bytes[72..120], &bytes[72..120], &bytes[120..]].concat();
    assert_eq!(read_own(&two_layers), unsound, "two layers");
}

const DIGITS: &str = "000102030405060708090a0b0c0d0eff";
const KEY: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255];

/// A law in `fuzz/src/words.rs` states, for every kind, that this command creates the same filter.
#[test]
fn a_creation_is_replicated_in_these_words() {
    for (hasher, words) in [
        (Hasher::murmur3(7), "CAPACITY 12 ERROR 0.000001 COUNTING SEED 7".to_owned()),
        (Hasher::SipHash { key: KEY }, format!("CAPACITY 12 ERROR 0.000001 COUNTING HASH siphash SEED {DIGITS}")),
    ] {
        let mut spelled = Vec::new();
        let name = Spec::Counting(CountingSpec { rate: 1e-6, capacity: 12, hasher }).encode_args(|word| {
            word.write_to(&mut spelled).unwrap();
            spelled.push(b' ');
        });
        assert_eq!((name, String::from_utf8(spelled).unwrap().trim_end()), (c"BF.INSERT", &*words));
    }
}
