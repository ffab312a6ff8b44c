//! Tables of deleted items: their capacity, storage and dumps, and their behaviour in the buckets of a ring.

use bloomgate_filter::format::{Arrival, ByteSource, Error as FormatError, Progress, StoredAs};
use bloomgate_filter::kinds::Origin;
use bloomgate_filter::{BATCH, Error, Filter, Moment, Unlimited};

use crate::forms::{self, arrived, dump_while, dumped, read_own, records, saved_and_read, snapshot, taken};
use crate::inputs::kinds::{KEYED, SLIDING, Shape};
use crate::rows::Room;
use crate::world::{add, add_all, delete, has_all, item};

const NOW: Moment = Moment(1000);
const UNSOUND: FormatError = FormatError::Filter(Error::Unsound);

fn keyed(rate: f64, capacity: u64, expansion: u32) -> Filter {
    Filter::new(&KEYED.spec(rate, capacity, expansion), &Unlimited).unwrap()
}

fn delete_all(filter: &mut Filter, numbers: std::ops::Range<u32>, origin: Origin) {
    for batch in numbers.collect::<Vec<_>>().chunks(BATCH) {
        assert_eq!(delete(filter, batch, origin, NOW).error, None);
    }
}

#[test]
fn entries_count_for_the_ceiling() {
    let mut filter = keyed(0.01, 1000, 0);
    add_all(&mut filter, 0..20, NOW);
    let room = Room::of(filter.size_bytes() + 5 * 16);
    let items: Vec<Vec<u8>> = (0..10).map(item).collect();
    let removed = filter.remove_batch(items.iter().map(Vec::as_slice), Origin::Client, &NOW, &room);
    assert_eq!((removed.done, removed.error), (5, Some(Error::NoRoomForDeleted { entries: 5 })));
}

/// A filter with the entries of 20 of 500 items.
fn with_entries() -> Filter {
    let mut filter = keyed(0.01, 1000, 0);
    add_all(&mut filter, 0..500, NOW);
    delete_all(&mut filter, 0..20, Origin::Client);
    filter
}

/// Returns the bytes of a filter, cut before the number of its entries, and its entries.
fn cut(filter: &Filter, count: usize) -> (Vec<u8>, Vec<[u8; 16]>) {
    let mut bytes = snapshot(filter);
    // The number of entries; if there are any, the length of the string and the entries.
    let string_bytes = if count > 0 { 8 + count * 16 } else { 0 };
    let entries = bytes.split_off(bytes.len() - string_bytes);
    assert_eq!(bytes.split_off(bytes.len() - 8), (count as u64).to_le_bytes());
    (bytes, entries.get(8..).unwrap_or_default().as_chunks::<16>().0.to_vec())
}

fn joined(head: &[u8], count: u64, entries: &[[u8; 16]]) -> Result<Filter, FormatError> {
    let length = entries.len() as u64 * 16;
    let bytes = [head, &count.to_le_bytes(), &length.to_le_bytes(), entries.as_flattened()].concat();
    read_own(&bytes).map(taken)
}

#[test]
fn duplicate_unordered_or_impossible_entries_are_refused() {
    let filter = with_entries();
    let (counted, (head, entries)) = (filter.items(), cut(&filter, 20));
    assert_eq!(joined(&head, 20, &entries), Ok(filter));
    let with = |change: fn(&mut Vec<[u8; 16]>)| {
        let mut changed = entries.clone();
        change(&mut changed);
        joined(&head, changed.len() as u64, &changed)
    };
    assert_eq!(with(|entries| entries.swap(3, 4)), Err(UNSOUND));
    assert_eq!(with(|entries| entries[4] = entries[3]), Err(UNSOUND));
    assert_eq!(with(|entries| entries.insert(0, entries[0])), Err(UNSOUND));
    assert_eq!(with(|entries| entries.insert(0, [0; 16])), Err(UNSOUND));
    // An entry whose bits are not set would make the item absent after an add.
    assert_eq!(with(|entries| entries[19] = [0xff; 16]), Err(UNSOUND));
    assert_eq!(with(|entries| entries.truncate(5)).map(|filter| filter.items()), Ok(counted + 15));
    assert_eq!(joined(&head, 21, &entries), Err(FormatError::Truncated));
    assert_eq!(joined(&head, 19, &entries), Err(FormatError::WrongLength));
}

#[test]
fn a_table_larger_than_the_bits_is_refused() {
    let mut small = keyed(0.01, 1, 0);
    // All bits are set, so every entry belongs to a present item.
    let Filter::Native(native) = &mut small else { panic!("a native filter") };
    native.layer_bytes_mut(0).unwrap().fill(0xff);
    let room = native.layers()[0].bytes().len() as u64 / 16;
    let (head, _) = cut(&small, 0);
    let read = |count: u64| {
        let mut entries: Vec<_> = (1..=count).map(|number| u128::from(number).to_be_bytes()).collect();
        // Sorted by the first half, then by the second, both little-endian.
        entries.sort_by_key(|entry| u128::from_le_bytes(*entry).rotate_left(64));
        joined(&head, count, &entries)
    };
    assert!(read(room).is_ok());
    assert_eq!(read(room + 1), Err(UNSOUND));
}

#[test]
fn a_dump_omits_a_table_that_changed_since_it_began() {
    let original = with_entries();
    let found = |filter: &Filter| (0..20).filter(|number| filter.contains(&item(*number), &NOW)).count();
    assert_eq!(found(&dumped(&original)), 0);
    type Change = fn(&mut Filter);
    let changes: [(Change, usize); 5] = [
        (|_| {}, 0),
        (|filter| add_all(filter, 5000..5010, NOW), 0),
        (|filter| delete_all(filter, 30..31, Origin::Client), 20),
        (|filter| add_all(filter, 3..4, NOW), 20),
        // A delete of an absent item changes nothing.
        (|filter| delete_all(filter, 0..20, Origin::Client), 0),
    ];
    for (change, expected) in changes {
        let mut source = original.try_clone().unwrap();
        let mut once = Some(change);
        let told = dump_while(&mut source, |source| {
            if let Some(change) = once.take() {
                change(source)
            }
        });
        let copy = taken(arrived(&told));
        assert_eq!(found(&copy), expected);
        assert!(has_all(&copy, 20..500, NOW));
    }
}

/// Deletes items until one is refused. Returns the number of deleted items.
fn delete_until_refused(filter: &mut Filter, numbers: std::ops::Range<u32>) -> u32 {
    let mut deleted = 0;
    for batch in numbers.collect::<Vec<_>>().chunks(BATCH) {
        let removed = delete(filter, batch, Origin::Client, NOW);
        deleted += removed.found.len();
        if let Some(error) = removed.error {
            assert!(matches!(error, Error::NoRoomForDeleted { .. }));
            assert!(filter.contains(&item(batch[removed.done]), &NOW));
            break;
        }
    }
    deleted
}

/// A full filter for 100,000 items.
fn full() -> Filter {
    let mut filter = keyed(0.01, 100_000, 0);
    add_all(&mut filter, 0..100_000, NOW);
    filter
}

/// A table takes at most as many bytes as the bits: it has room for 5.1% of the items of a fixed filter at 1%. Its bytes and its
/// room do not depend on its history.
#[test]
#[cfg_attr(miri, ignore = "a hundred thousand items")]
fn a_loaded_table_has_the_room_and_the_memory_of_its_source() {
    let mut source = full();
    assert_eq!(delete_until_refused(&mut source, 0..2000), 2000);
    let copies = |source: &Filter| {
        let mut effects = full();
        let gone: Vec<u32> = (0..100_000).filter(|number| !source.contains(&item(*number), &NOW)).collect();
        gone.chunks(BATCH).for_each(|batch| _ = delete(&mut effects, batch, Origin::Effect, NOW));
        [source.try_clone().unwrap(), saved_and_read(source), dumped(source), effects]
    };
    let mut half_full = copies(&source);
    let more = delete_until_refused(&mut source, 2000..100_000);
    assert!((3000..3200).contains(&more), "{more}");
    assert!(half_full.iter_mut().all(|copy| delete_until_refused(copy, 2000..100_000) == more));
    let Filter::Native(native) = &source else { panic!("a native filter") };
    assert_eq!(native.deleted_entries(), native.deleted_entries_max());
    for mut copy in copies(&source) {
        assert_eq!(delete_until_refused(&mut copy, 0..100_000), 0);
        let (has, expected) = (copy.allocated_bytes(), source.allocated_bytes());
        assert!(has.abs_diff(expected) * 20 < expected, "{has} bytes, the source has {expected}");
        let bits = source.layers().map(|layer| layer.size_bytes).sum::<u64>();
        assert!(has <= 2 * bits + 8192, "a table is no larger than the bits");
        // A replica accepts more of them.
        delete_all(&mut copy, 90_000..100_000, Origin::Effect);
        assert!((90_000..100_000).all(|number| !copy.contains(&item(number), &NOW)));
    }
}

#[test]
#[cfg_attr(miri, ignore = "a hundred thousand items")]
fn equal_tables_are_equal_bytes_whatever_was_in_them() {
    let mut plain = full();
    let mut eventful = plain.try_clone().unwrap();
    delete_all(&mut plain, 0..3500, Origin::Client);
    delete_all(&mut eventful, 3500..7500, Origin::Effect);
    delete_all(&mut eventful, 0..3500, Origin::Effect);
    add_all(&mut eventful, 3500..7500, NOW);
    assert!(plain == eventful);
    assert!(records(&plain) == records(&eventful));
    assert!(snapshot(&plain) == snapshot(&eventful), "the bytes of which a digest is made");
}

/// A table of several parts and several records.
#[test]
#[cfg_attr(miri, ignore = "a hundred thousand items")]
fn a_large_table_travels() {
    let mut filter = keyed(0.001, 1_200_000, 0);
    add_all(&mut filter, 0..300_000, NOW);
    delete_all(&mut filter, 0..70_000, Origin::Client);
    let Filter::Native(native) = &filter else { panic!("a native filter") };
    assert!(native.deleted_entries() > 65_536, "more than one record has room for");
    let (entries, told) = (native.deleted_entries(), records(&filter));
    let mut arriving = forms::begin(&told[0]);
    for (iterator, data) in &told[1..] {
        // If an AOF is rewritten while a dump arrives, its reader continues with the same record.
        assert!(forms::told(&arriving) == arriving);
        forms::accept(&mut arriving, *iterator, data).unwrap();
    }
    assert!(taken(arriving) == filter);
    let mut read = saved_and_read(&filter);
    assert!(read == filter);
    add_all(&mut read, 0..70_000, NOW);
    assert!(read != filter && read.items() == filter.items() + entries);
}

/// A filter with a table requires memory for its bits and the table.
#[test]
fn the_ceiling_is_asked_for_the_entries() {
    let filter = with_entries();
    let (size, told, bytes) = (filter.size_bytes(), records(&filter), snapshot(&filter));
    for (most, is_enough) in [(size, true), (size - 1, false), (size - 320, false)] {
        let room = Room::of(most);
        let read = StoredAs::Own.read(1, &mut ByteSource(&bytes), &room);
        assert_eq!(read.is_ok(), is_enough, "{most} of {size}");
        let mut arrival = Arrival::begin(told[0].0, &told[0].1, &room).unwrap();
        let (last, others) = told[1..].split_last().unwrap();
        for (iterator, data) in others {
            assert_eq!(arrival.accept(*iterator, data, &room), Ok(Progress::Stored));
        }
        let taken = arrival.accept(last.0, &last.1, &room);
        assert_eq!(taken.is_ok(), is_enough, "{most} of {size}: {taken:?}");
        // Records that a primary accepted are accepted.
        assert!(is_enough || arrival.accept_replicated(last.0, &last.1) == Ok(Progress::Complete));
    }
}

/// A sliding ring of three buckets.
fn ring(capacity: u64) -> Filter {
    let shape = Shape { seed: 1, seconds: 20, buckets: 3, ..Shape::new(0.25, capacity, 2) };
    Filter::new(&(SLIDING.spec)(&shape), &Unlimited).unwrap()
}

fn turn(filter: &mut Filter, now: Moment) {
    let ring = filter.windowed_mut().unwrap();
    let start = ring.bucket_now(now);
    ring.begin_bucket(start, &Unlimited).unwrap();
}

fn entries(filter: &Filter) -> Vec<u64> {
    filter.windowed().unwrap().buckets().map(|bucket| bucket.filter.deleted_entries()).collect()
}

/// The item is in both buckets, and the table of the newer one is full.
#[test]
fn if_one_bucket_has_no_room_no_bucket_changes() {
    let mut filter = ring(2);
    turn(&mut filter, NOW);
    add_all(&mut filter, 0..1, NOW);
    turn(&mut filter, NOW);
    // With SLIDING, the newer bucket gets it too.
    assert!(add(&mut filter, &[0], NOW, &Room::UNLIMITED).effect.contains(0));
    add_all(&mut filter, 1..60, NOW);
    let refused = (1..60).filter(|number| delete(&mut filter, &[*number], Origin::Client, NOW).error.is_some()).count();
    assert!(refused > 0, "{:?}", entries(&filter));
    let before = filter.try_clone().unwrap();
    let removed = delete(&mut filter, &[0], Origin::Client, NOW);
    assert!(matches!(removed.error, Some(Error::NoRoomForDeleted { .. })), "{removed:?}, {:?}", entries(&filter));
    assert!(filter == before && filter.contains(&item(0), &NOW));
}
