//! Compares the set of hashes with a set of the standard library.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::segment::{BUCKETS_MAX, ENTRIES_MAX};
use super::*;

const MANY: usize = if cfg!(miri) { 200 } else { 40_000 };

fn random_hash(rng: &mut Rng) -> ItemHash {
    ItemHash { h1: rng.u64(..), h2: rng.u64(..) }
}

fn random_hashes(rng: &mut Rng, count: usize) -> Vec<ItemHash> {
    std::iter::repeat_with(|| random_hash(rng)).take(count).collect()
}

fn set_of(hashes: &[ItemHash]) -> HashSet {
    let mut set = HashSet::new();
    hashes.iter().for_each(|hash| assert_eq!(set.insert(*hash), Ok(true)));
    set
}

fn sorted(set: &HashSet) -> Vec<ItemHash> {
    let mut all = Vec::new();
    let run = |run: &[ItemHash]| {
        assert!((1..=HashSet::RUN).contains(&run.len()));
        all.extend_from_slice(run);
        Ok::<_, ()>(())
    };
    set.for_each_sorted_run(run).unwrap();
    all
}

/// Checks the invariants of the fields.
fn check(set: &HashSet) {
    let of_segments: usize = set.segments.iter().map(Segment::entries).sum();
    assert_eq!(set.len(), (of_segments + set.few.len()) as u64);
    assert!(set.few.is_sorted() && set.few.len() <= FEW_MAX && (set.few.is_empty() || set.segments.is_empty()));
    assert_eq!(set.tables_bytes, set.segments.iter().map(Segment::allocated_bytes).sum::<u64>());
    assert!(
        set.segments
            .iter()
            .all(|segment| segment.hashes().count() == segment.entries() && segment.buckets() <= BUCKETS_MAX)
    );
    assert_eq!(set.segments_in_order().count(), set.segments.len());
    assert!(set.segments.iter().all(|segment| (segment.buckets() == 0) == (segment.entries() == 0)));
    assert!(set.directory.len() == if set.segments.is_empty() { 0 } else { 1 << set.depth });
}

/// Random inserts, removals and lookups, of hashes that share bits in three ways.
#[test]
fn behaves_like_the_standard_set() {
    // All bits; 14 equal bits and few home buckets, so that segments split deeply and searches are long; few hashes, which are
    // added and removed repeatedly.
    let kinds: [fn(ItemHash) -> ItemHash; 3] = [
        |hash| hash,
        |hash| ItemHash { h1: (hash.h1 >> 56) << 42, h2: hash.h2 % 50 },
        |hash| ItemHash { h1: (hash.h1 % 20) << 59, h2: hash.h2 % 10 + 1 },
    ];
    for (number, kind) in kinds.into_iter().enumerate() {
        let mut rng = Rng::with_seed(number as u64);
        let (mut set, mut model) = (HashSet::new(), BTreeSet::new());
        // Fills, then empties.
        for (adds_in_8, steps) in [(6, MANY), (2, MANY / 2), (7, MANY / 2), (1, MANY)] {
            for _ in 0..steps {
                let hash = kind(random_hash(&mut rng));
                // Mostly removes a present hash.
                let nearest = model.range(hash..).next().copied().unwrap_or(hash);
                if rng.u32(..8) < adds_in_8 {
                    match set.insert(hash) {
                        Ok(is_new) => assert_eq!(is_new, model.insert(hash)),
                        Err(error) => assert!(hash == NONE && error == Error::Unsound, "{hash:?}: {error:?}"),
                    }
                } else {
                    assert_eq!(set.remove(nearest), model.remove(&nearest));
                }
                assert_eq!(set.contains(hash), model.contains(&hash));
                assert_eq!(set.len(), model.len() as u64);
            }
            check(&set);
            assert!(sorted(&set).into_iter().eq(model.iter().copied()));
        }
        let last: Vec<_> = model.into_iter().collect();
        assert!(last.iter().all(|hash| set.remove(*hash)));
        assert_eq!((set.len(), set.allocated_bytes()), (0, 0), "the empty set has no memory");
    }
}

#[test]
fn a_batch_equals_its_hashes_one_by_one() {
    let mut rng = Rng::with_seed(7);
    for count in [0, 1, 3, 4, MANY] {
        let hashes = random_hashes(&mut rng, count);
        let set = set_of(&hashes);
        for round in 0..50 {
            let batch: Vec<_> = (0..BATCH + 3)
                .map(|_| {
                    let member = rng.usize(..hashes.len().max(1));
                    hashes.get(member).copied().filter(|_| rng.bool()).unwrap_or_else(|| random_hash(&mut rng))
                })
                .take(round)
                .chain([NONE])
                .collect();
            let mut wanted = Mask::NONE;
            (0..BATCH).for_each(|index| wanted.insert_if(index, rng.u8(..4) != 0));
            let present = set.contains_batch(&batch, wanted);
            for index in 0..BATCH {
                let is_present = batch.get(index).is_some_and(|hash| set.contains(*hash));
                assert_eq!(present.contains(index), is_present && wanted.contains(index));
            }
        }
    }
}

#[test]
fn sorted_runs_make_an_equal_set() {
    let mut rng = Rng::with_seed(3);
    for count in [0, 1, 100, MANY] {
        let set = set_of(&random_hashes(&mut rng, count));
        let hashes = sorted(&set);
        assert!(hashes.is_sorted() && hashes.len() == count);
        for run in [1, 7, 4096] {
            let mut read = HashSet::new();
            // Each run looks up the last hash before it.
            for run in hashes.chunks(run.max(count / 500).max(1)) {
                assert_eq!(read.extend_sorted(run), Ok(()));
            }
            check(&read);
            assert!(read == set && sorted(&read) == hashes);
        }
    }
}

#[test]
fn hashes_out_of_order_are_refused() {
    let hash = |h1, h2| ItemHash { h1, h2 };
    let first = [hash(0, 5), hash(1, 0), hash(7 << 60, 9)];
    for next in [hash(7 << 60, 9), hash(7 << 60, 8), hash(1, 0), hash(0, 5), hash(0, 1), NONE] {
        let mut set = HashSet::new();
        assert_eq!(set.extend_sorted(&first), Ok(()));
        assert_eq!(set.extend_sorted(&[next]), Err(Error::Unsound), "{next:?}");
        assert_eq!(set.extend_sorted(&[hash(15 << 60, 0), next]), Err(Error::Unsound), "{next:?}");
        assert!(!set.contains(hash(15 << 60, 0)), "a run that is refused leaves nothing");
    }
    assert_eq!(HashSet::new().extend_sorted(&[NONE]), Err(Error::Unsound));
}

#[test]
fn runs_begin_after_the_skipped_hashes() {
    let mut rng = Rng::with_seed(4);
    for count in [0, 1, FEW_MAX, FEW_MAX + 1, MANY] {
        let set = set_of(&random_hashes(&mut rng, count));
        let all = sorted(&set);
        for skipped in [0, 1, count / 2, count.saturating_sub(1), count, count + 1, usize::MAX] {
            let mut rest = Vec::new();
            let taken = set.for_each_sorted_run_after(skipped, |run| {
                assert!(!run.is_empty());
                rest.extend_from_slice(run);
                Ok::<_, ()>(())
            });
            assert_eq!(taken, Ok(()));
            assert!(rest == all[skipped.min(count)..], "{skipped} of {count}");
        }
    }
}

#[test]
fn an_error_ends_the_runs() {
    let set = set_of(&random_hashes(&mut Rng::with_seed(1), MANY));
    let mut calls = 0;
    let stopped = set.for_each_sorted_run(|_| {
        calls += 1;
        Err(calls)
    });
    assert_eq!((stopped, calls), (Err(1), 1));
}

/// A segment that cannot split is filled to fifteen sixteenths. The others can still grow.
#[test]
#[cfg_attr(miri, ignore = "thousands of hashes")]
fn hashes_with_equal_top_bits_do_not_split_forever() {
    let mut set = HashSet::new();
    for h2 in 0..ENTRIES_MAX as u64 {
        assert_eq!(set.insert(ItemHash { h1: 42 << 30, h2 }), Ok(true));
    }
    let (one_more, bytes) = (ItemHash { h1: 42 << 30, h2: u64::MAX }, set.allocated_bytes());
    let full = Error::NoRoomForDeleted { entries: ENTRIES_MAX as u64 };
    assert_eq!(set.insert(one_more), Err(full));
    assert_eq!(set.insert(ItemHash { h1: 42 << 30, h2: 0 }), Ok(false));
    assert!(!full.is_out_of_memory() && !set.contains(one_more) && set.allocated_bytes() == bytes);
    assert!(bytes < 5 << 20, "a directory of 4 MiB: {bytes}");
    for hash in random_hashes(&mut Rng::with_seed(2), MANY) {
        assert_eq!(set.insert(hash), Ok(true));
    }
    check(&set);
    assert!(set.remove(ItemHash { h1: 42 << 30, h2: 17 }));
    assert_eq!(set.insert(one_more), Ok(true));
}

/// A set of the stated capacity takes no more than the stated bytes, independent of the order of inserts.
#[test]
fn a_set_stays_within_the_bytes_of_its_capacity() {
    let sizes = (0..600).map(|step| step * 16).chain([70_000, 150_000, 500_000, 700_000, 960_000]);
    let hashes = random_hashes(&mut Rng::with_seed(5), MANY);
    for bytes in sizes {
        let capacity = usize::try_from(HashSet::capacity_in(bytes)).unwrap().min(MANY);
        let random = set_of(&hashes[..capacity]);
        check(&random);
        let mut in_order = HashSet::new();
        in_order.extend_sorted(&sorted(&random)).unwrap();
        for set in [random, in_order] {
            assert!(set.allocated_bytes() <= bytes, "{capacity} of {bytes}: {set:?} {}", set.allocated_bytes());
            assert!(capacity < 1000 || set.allocated_bytes() * 10 > capacity as u64 * 190, "{capacity} of {bytes}");
        }
    }
}

/// The segments of a set whose hashes are constantly replaced keep their largest tables.
#[test]
#[cfg_attr(miri, ignore = "a million hashes")]
fn a_set_with_replaced_hashes_stays_near_its_capacity() {
    for bytes in [100_000, 400_000, 640_000, 800_000] {
        let mut rng = Rng::with_seed(bytes);
        let mut hashes = random_hashes(&mut rng, usize::try_from(HashSet::capacity_in(bytes)).unwrap());
        let mut set = set_of(&hashes);
        for turn in 0..20 * hashes.len() {
            let place = turn % hashes.len();
            assert!(set.remove(hashes[place]));
            hashes[place] = random_hash(&mut rng);
            assert_eq!(set.insert(hashes[place]), Ok(true));
        }
        check(&set);
        assert!(set.allocated_bytes() * 10 <= bytes * 11, "{bytes}: {}", set.allocated_bytes());
    }
}

/// The runs of a set do not depend on its history.
#[test]
fn equal_sets_have_equal_runs() {
    fn runs(set: &HashSet) -> Vec<Vec<ItemHash>> {
        let mut runs = Vec::new();
        let taken = set.for_each_sorted_run(|run| {
            runs.push(run.to_vec());
            Ok::<_, ()>(())
        });
        assert_eq!(taken, Ok(()));
        runs
    }
    let mut rng = Rng::with_seed(13);
    for count in [1, FEW_MAX, FEW_MAX + 1, 3 * HashSet::RUN, 3 * HashSet::RUN + 5] {
        let count = if cfg!(miri) { count.min(100) } else { count };
        let (hashes, others) = (random_hashes(&mut rng, count), random_hashes(&mut rng, 4 * count));
        let mut set = set_of(&others);
        hashes.iter().for_each(|hash| assert_eq!(set.insert(*hash), Ok(true)));
        others.iter().for_each(|hash| assert!(set.remove(*hash)));
        let expected = runs(&set_of(&hashes));
        assert!(runs(&set) == expected);
        let (_, full) = expected.split_last().unwrap();
        assert!(full.iter().all(|run| run.len() == HashSet::RUN) && expected.concat().is_sorted());
    }
}

#[test]
fn a_copy_is_equal_and_independent() {
    let set = set_of(&random_hashes(&mut Rng::with_seed(11), MANY));
    let mut copy = set.try_clone().unwrap();
    check(&copy);
    assert!(copy == set);
    let hash = sorted(&set)[MANY / 2];
    assert!(copy.remove(hash) && set.contains(hash) && copy != set);
    assert_eq!(copy.insert(random_hash(&mut Rng::with_seed(12))), Ok(true));
    assert!(copy.len() == set.len() && copy != set);
}

#[test]
fn is_send_and_sync() {
    fn is_send<T: Send + Sync>(_: &T) {}
    is_send(&HashSet::new());
}

#[test]
fn a_range_has_all_hashes_in_it_and_no_other() {
    let mut all = random_hashes(&mut Rng::with_seed(9), MANY);
    let set = set_of(&all);
    all.sort_unstable();
    let at = |segment: u64| u64::MAX / 100 * segment;
    let edges = all[all.len() / 3].h1;
    for (first, last) in [(0, u64::MAX), (at(3), at(4)), (at(50), at(99)), (0, 0), (edges, edges), (at(9), at(8))] {
        let mut found: Vec<_> = set.between(first, last).collect();
        found.sort_unstable();
        let expected: Vec<_> = all.iter().copied().filter(|hash| hash.h1 >= first && hash.h1 <= last).collect();
        assert!(found == expected, "{first} {last}: {} {}", found.len(), expected.len());
    }
    assert_eq!(HashSet::new().between(0, u64::MAX).count(), 0);
}

#[test]
fn a_set_is_emptied_while_it_grows() {
    let all = random_hashes(&mut Rng::with_seed(10), MANY);
    let (first, later) = all.split_at(all.len() / 2);
    let mut set = set_of(first);
    let (mut taken, mut from, mut come) = ([ItemHash::default(); 48], u64::MAX / 3, Vec::new());
    let mut later = later.iter();
    loop {
        later.by_ref().take(30).for_each(|hash| _ = set.insert(*hash).unwrap());
        let count = set.take_some(from, &mut taken);
        if count == 0 {
            break;
        }
        from = taken[0].h1;
        assert!(taken[..count].iter().all(|hash| !set.contains(*hash)));
        come.extend_from_slice(&taken[..count]);
        assert_eq!(set.len(), (all.len() - later.len() - come.len()) as u64);
    }
    come.sort_unstable();
    let mut all = all;
    all.sort_unstable();
    assert!(come == all && set.is_empty() && set.allocated_bytes() == 0);
}
