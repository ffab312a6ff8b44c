//! Laws of our own cuckoo filters only: no member becomes absent, against an exact multiset; adds that are refused change nothing; a copy of
//! a filter that changes has every item that was in it throughout; rates; sizes. `general.rs` has the laws of every kind.

use std::collections::HashMap;

use bloomgate_filter::format::Arrival;
use bloomgate_filter::hash::{Hasher, ItemHash};
use bloomgate_filter::kinds::{CuckooSpec, Origin, Outcome};
use bloomgate_filter::{BATCH, Error, Filter, Mask, Moment, Scaling, Spec, Unlimited, Value};

use crate::forms::{saved_and_read, snapshot};
use crate::world::{delete, item};

const NOW: Moment = Moment(0);

fn spec(rate: f64, capacity: u64, expansion: u32, seed: u32) -> CuckooSpec {
    CuckooSpec { rate, capacity, scaling: Scaling::from_expansion(expansion), hasher: Hasher::murmur3(seed) }
}

fn new(spec: CuckooSpec) -> Filter {
    Filter::new(&Spec::Cuckoo(spec), &Unlimited).unwrap()
}

fn add(filter: &mut Filter, number: u32) -> Result<Outcome, Error> {
    filter.add(&item(number), Origin::Client, &NOW, &Unlimited)
}

fn add_all(filter: &mut Filter, numbers: std::ops::Range<u32>) {
    for batch in numbers.collect::<Vec<_>>().chunks(BATCH) {
        let items: Vec<_> = batch.iter().map(|number| item(*number)).collect();
        let added = filter.add_batch(items.iter().map(AsRef::as_ref), Origin::Client, &NOW, &Unlimited);
        assert_eq!((added.done, added.error), (batch.len(), None));
    }
}

fn remove(filter: &mut Filter, numbers: &[u32]) -> Mask {
    delete(filter, numbers, Origin::Client, NOW).found
}

fn contains(filter: &Filter, number: u32) -> bool {
    filter.contains(&item(number), &NOW)
}

/// A small random generator (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (word ^ word >> 31) % limit
    }

    fn number(&mut self, limit: u32) -> u32 {
        u32::try_from(self.below(limit.into())).unwrap()
    }
}

/// Adds and deletes at random, in layers so small and at rates so high that items share positions all the time. Whatever is deleted, an item
/// with more adds than deletes is found.
///
/// Fails if layers are not nested, if the limit of copies counts all layers, or if an add of an item that is found stores nothing.
#[test]
fn no_member_becomes_absent() {
    let (mut deletes, mut layers_seen, mut stuck) = (0, 0, 0);
    for history in 0..if cfg!(miri) { 2 } else { 1500 } {
        let mut random = Random(history);
        let rate = [0.25, 0.1, 0.02, 0.001][usize::try_from(history % 4).unwrap()];
        let (capacity, expansion) = (1 + random.below(20), [1, 2, 4][usize::try_from(history % 3).unwrap()]);
        let mut filter = new(spec(rate, capacity, expansion, 1000 + random.number(1 << 20)));
        let (items, most) = (1 + random.number(120), 1 + random.number(400));
        let mut copies: HashMap<u32, u32> = HashMap::new();
        // Grows, shrinks and grows again.
        for step in 0..1200 {
            let grows = if (step / 300) % 2 == 0 { 7 } else { 4 };
            let number = random.number(items);
            if random.below(10) < grows && copies.values().sum::<u32>() < most {
                match add(&mut filter, number) {
                    Ok(outcome) => {
                        stuck += u32::from(outcome == Outcome::Known);
                        *copies.entry(number).or_default() += 1;
                    }
                    Err(error) => assert!(matches!(error, Error::Full | Error::RateTooLow), "{error:?}"),
                }
            } else if let Some(left) = copies.get_mut(&number).filter(|left| **left > 0) {
                *left -= 1;
                deletes += 1;
                assert_eq!(remove(&mut filter, &[number]), Mask::first(1), "history {history}, step {step}");
            }
            let found = |(number, left): (&u32, &u32)| *left == 0 || contains(&filter, *number);
            assert!(step % 8 != 0 || copies.iter().all(found), "history {history}, step {step}");
        }
        layers_seen = layers_seen.max(filter.layer_count());
        assert!(copies.iter().all(|(number, left)| *left == 0 || contains(&filter, *number)), "history {history}");
    }
    assert!(cfg!(miri) || deletes > 200_000 && layers_seen > 10 && stuck > 1000, "{deletes} {layers_seen} {stuck}");
}

/// Every item is found while members come and go, in grown filters whose capacity and rate are usual.
#[test]
#[cfg_attr(miri, ignore = "millions of hashes")]
fn members_survive_churn() {
    for (rate, first, expansion, members, churn) in
        [(0.01, 100, 2, 20_000, 200_000), (0.05, 1000, 1, 10_000, 100_000), (0.001, 1000, 4, 50_000, 100_000)]
    {
        let mut filter = new(spec(rate, first, expansion, 77));
        let mut present: Vec<u32> = (0..members).collect();
        add_all(&mut filter, 0..members);
        let mut random = Random(5);
        for number in members..members + churn {
            let place = usize::try_from(random.below(members.into())).unwrap();
            assert_eq!(remove(&mut filter, &[present[place]]), Mask::first(1));
            add(&mut filter, number).unwrap();
            present[place] = number;
        }
        assert!(present.iter().all(|number| contains(&filter, *number)), "{rate} {first} {expansion}");
        let absent = (u32::MAX - 100_000..u32::MAX).filter(|number| contains(&filter, *number)).count();
        let allowed = 100_000.0 * rate + 4.0 * (100_000.0 * rate).sqrt();
        assert!(absent as f64 <= allowed, "{absent} of 100,000 at {rate}");
        for batch in present.chunks(BATCH) {
            assert_eq!(remove(&mut filter, batch), Mask::first(batch.len()));
        }
        assert_eq!((filter.items(), filter.layer_count()), (0, 1), "a filter that shrinks frees its layers");
        assert!(filter.try_clone().unwrap() == new(spec(rate, first, expansion, 77)), "all slots are empty");
    }
}

/// An item is stored up to four times in a layer. From then on it is found, whatever is added and deleted.
#[test]
fn an_item_with_four_copies_is_stuck() {
    let mut filter = new(spec(0.001, 1000, 2, 42));
    for times in 0..20 {
        assert_eq!(filter.count(&item(1)), Some(times.min(4)));
        let outcome = [Outcome::New, Outcome::Renewed, Outcome::Known];
        assert_eq!(add(&mut filter, 1), Ok(outcome[usize::from(times > 0) + usize::from(times > 3)]));
    }
    for _ in 0..30 {
        assert_eq!(remove(&mut filter, &[1]), Mask::first(1));
    }
    assert_eq!((filter.count(&item(1)), filter.items(), filter.layer_count()), (Some(4), 4, 1));
    // One that was added three times can be deleted three times.
    (0..3).for_each(|_| _ = add(&mut filter, 2).unwrap());
    (0..3).for_each(|_| assert_eq!(remove(&mut filter, &[2]), Mask::first(1)));
    assert_eq!((remove(&mut filter, &[2]), filter.count(&item(2))), (Mask::NONE, Some(0)));
}

#[test]
fn a_refused_add_changes_nothing() {
    let mut filter = new(spec(0.01, 6, 0, 42));
    let refused = (0..).find(|number| add(&mut filter, *number).is_err()).unwrap();
    assert_eq!(refused, 6);
    let full = filter.try_clone().unwrap();
    for number in 0..100 {
        assert_eq!(add(&mut filter, number), Err(Error::Full));
    }
    assert!(filter == full);
    assert_eq!(remove(&mut filter, &[0, 5, 6]), Mask::first(2));
    assert_eq!((filter.items(), filter.remaining_capacity()), (4, 2));
    assert_eq!(add(&mut filter, 9), Ok(Outcome::New));
}

/// Items that were chosen for one group are refused when it is full, and the filter does not grow: it grows from half of its capacity on.
#[test]
fn crafted_items_do_not_make_a_filter_grow() {
    let mut filter = new(spec(0.01, 40_000, 2, 42));
    let in_first_group = |number: &u32| ItemHash::of(&item(*number), 42).h1 < u64::MAX / 20;
    let outcomes: Vec<_> = (0..).filter(in_first_group).take(4000).map(|number| add(&mut filter, number)).collect();
    let refused = outcomes.iter().filter(|outcome| **outcome == Err(Error::Full)).count();
    assert!((500..2000).contains(&refused), "{refused}");
    assert_eq!((filter.layer_count(), filter.items() + refused as u64), (1, 4000));
    // Items of other groups are accepted.
    let elsewhere = |number: &u32| ItemHash::of(&item(*number), 42).h1 > u64::MAX / 10;
    assert!((0..15_000).filter(elsewhere).all(|number| add(&mut filter, number).is_ok()));
    assert_eq!(filter.layer_count(), 1);
}

/// The same commands give the same bytes, also if the filter is stored and read in the middle.
#[test]
fn equal_commands_give_equal_bytes() {
    let mut random = Random(9);
    let definition = spec(0.01, 50, 2, 42);
    let (mut one, mut other) = (new(definition), new(definition));
    for step in 0..if cfg!(miri) { 60 } else { 20_000 } {
        let number = random.number(3000);
        if random.below(3) > 0 {
            assert_eq!(add(&mut one, number), add(&mut other, number));
        } else {
            assert_eq!(remove(&mut one, &[number]), remove(&mut other, &[number]));
        }
        if step % 997 == 0 {
            let read = saved_and_read(&other);
            assert!(read == other && read.items() == other.items());
            other = read;
        }
    }
    assert!(one == other);
}

/// A copy that is dumped while the filter changes has every item that was in the filter throughout.
///
/// Fails if the oldest layer is dumped first.
#[test]
#[cfg_attr(miri, ignore = "millions of hashes")]
fn a_dump_of_a_filter_that_changes_has_what_stayed() {
    for seed in 0..12 {
        let mut filter = new(spec(0.02, 60_000, 2, 500 + seed));
        let members = 900_000;
        add_all(&mut filter, 0..members);
        let (mut random, mut present) = (Random(seed.into()), (0..members).collect::<Vec<u32>>());
        let mut next_number = members;
        let mut mark = bloomgate_filter::format::records::DumpMark::default();
        let mut record = filter.next_record(7, 0, &mut mark).unwrap();
        let mut arriving = None;
        while let Some((iterator, data)) = record {
            let data = data.into_owned();
            match &mut arriving {
                None => arriving = Some(Arrival::begin(iterator, &data, &Unlimited).unwrap()),
                Some(arriving) => _ = arriving.accept(iterator, &data, &Unlimited).unwrap(),
            }
            for _ in 0..20_000 {
                let place = usize::try_from(random.below(members.into())).unwrap();
                assert_eq!(remove(&mut filter, &[present[place]]), Mask::first(1));
                add(&mut filter, next_number).unwrap();
                (present[place], next_number) = (next_number, next_number + 1);
            }
            record = filter.next_record(7, iterator, &mut mark).unwrap();
        }
        let Value::Filter(copy) = arriving.unwrap().into_value() else { panic!() };
        let stayed = || (0..members).filter(|number| present[*number as usize] == *number);
        assert!(stayed().count() > 500_000 && stayed().all(|number| contains(&copy, number)), "seed {seed}");
    }
}

/// The same for items in the group at the end of a chunk, whose fingerprints move inside the group.
///
/// Fails if a chunk ends inside a group.
#[test]
#[cfg_attr(miri, ignore = "millions of hashes")]
fn a_chunk_has_whole_groups() {
    const SEED: u32 = 42;
    let definition = spec(0.01, 1_000_000, 0, SEED);
    let groups = Spec::Cuckoo(definition).plan(None).unwrap().layers[0].size_bytes / 4096;
    assert_eq!(groups, 345);
    // The chunk of 1 MiB ends after group 255, or inside group 255 or 256 if it has another size.
    let is_near = |number: &u32| {
        let group = (u128::from(ItemHash::of(&item(*number), SEED).h1) * u128::from(groups)) >> 64;
        (255..=256).contains(&group)
    };
    let mut numbers = (0..).filter(is_near);
    let mut filter = new(definition);
    let members: Vec<u32> = numbers.by_ref().take(5600).collect();
    members.iter().for_each(|number| _ = add(&mut filter, *number).unwrap());
    let mut mark = bloomgate_filter::format::records::DumpMark::default();
    let (mut iterator, mut arriving) = (0, None);
    let mut random = Random(3);
    let mut present = members.clone();
    while let Some((next, data)) = filter.next_record(7, iterator, &mut mark).unwrap() {
        let data = data.into_owned();
        match &mut arriving {
            None => arriving = Some(Arrival::begin(next, &data, &Unlimited).unwrap()),
            Some(arriving) => _ = arriving.accept(next, &data, &Unlimited).unwrap(),
        }
        for number in numbers.by_ref().take(3000) {
            let place = usize::try_from(random.below(5600)).unwrap();
            remove(&mut filter, &[present[place]]);
            add(&mut filter, number).unwrap();
            present[place] = number;
        }
        iterator = next;
    }
    let Value::Filter(copy) = arriving.unwrap().into_value() else { panic!() };
    let stayed = || members.iter().zip(&present).filter(|(before, after)| before == after).map(|(number, _)| *number);
    assert!(stayed().count() > 500 && stayed().all(|number| contains(&copy, number)));
}

/// Frozen: a stored filter must find its items in every later version, and a replica of another version must store the same bytes.
/// A program in another language, written from the description of the layout, computes the same lengths and CRCs.
#[test]
fn golden_bytes() {
    for (definition, items, length, crc) in [
        (spec(0.01, 100, 2, 42), 0..1, 296, 3_763_640_853),
        (spec(0.01, 100, 2, 42), 0..1000, 3_264, 941_214_514),
        (spec(0.001, 5000, 0, 7), 0..5000, 12_368, 3_559_900_357),
        (spec(1e-6, 20, 4, 7), 0..3000, 36_600, 7_206_927),
    ] {
        let mut filter = new(definition);
        add_all(&mut filter, items.clone());
        for number in items.skip(1).step_by(3) {
            remove(&mut filter, &[number]);
        }
        let bytes = snapshot(&filter);
        assert_eq!((bytes.len(), crc32fast::hash(&bytes)), (length, crc), "{definition:?}");
    }
}

/// A filter for a million items takes a million, in twenty seeds, and its rate is the requested one at half and at full.
#[test]
#[cfg_attr(miri, ignore = "millions of hashes")]
fn a_million_items_fit_at_the_requested_rate() {
    let rates = [0.05, 0.01, 0.001, 1e-5];
    for seed in 0..20 {
        let rate = rates[seed as usize % 4];
        let mut filter = new(spec(rate, 1_000_000, 0, 300 + seed));
        for (from, to) in [(0, 500_000), (500_000, 1_000_000)] {
            add_all(&mut filter, from..to);
            let tests = 4_000_000;
            let found = (1_000_000..1_000_000 + tests).filter(|number| contains(&filter, *number)).count();
            let expected = f64::from(tests) * rate;
            assert!(found as f64 <= expected + 4.0 * expected.sqrt(), "{found} of {tests} at {rate}, {to} items");
        }
        assert!((0..1_000_000).step_by(97).all(|number| contains(&filter, number)));
    }
}

/// Bits per item at capacity.
#[test]
fn sizes() {
    let bits = |rate, capacity, expansion| {
        let plan = Spec::Cuckoo(spec(rate, capacity, expansion, 1)).plan(None).unwrap();
        plan.size_bytes as f64 * 8.0 / plan.capacity as f64
    };
    let table = [(0.25, 5.5), (0.05, 9.0), (0.01, 11.35), (0.001, 15.0), (1e-5, 23.9), (1e-6, 27.6), (1e-8, 37.1)];
    for (rate, most) in table {
        let bits = bits(rate, 1_000_000, 0);
        assert!(bits <= most && bits > 0.9 * most, "{rate}: {bits}");
    }
    assert!(bits(0.01, 100_000_000, 0) <= 11.5);
    assert_eq!(Filter::new(&Spec::Cuckoo(spec(3e-9, 1000, 0, 1)), &Unlimited).err(), Some(Error::RateTooLow));
    assert_eq!(Filter::new(&Spec::Cuckoo(spec(0.01, 0, 0, 1)), &Unlimited).err(), Some(Error::CapacityOutOfRange));
    assert_eq!(Filter::new(&Spec::Cuckoo(spec(0.01, 100, 3, 1)), &Unlimited).err(), Some(Error::Unsound));
}
