//! Impossible tables are refused, and a dump omits a table that changed since it began.

use bloomgate_filter::format::records::DumpMark;
use bloomgate_filter::format::{AofRecord, Arrival, ByteSource, Error, Progress, StoredAs};
use bloomgate_filter::kinds::Origin;
use bloomgate_filter::{BATCH, Ceiling, Filter, Moment, Unlimited, Value};

use super::{Items, add, arrived, delete, filter, records, saved_and_read, written};

const NOW: Moment = Moment(0);

fn numbered(numbers: std::ops::Range<u32>) -> Items {
    numbers.map(|number| format!("item {number}").into_bytes()).collect()
}

/// A filter with a few entries.
fn with_entries(count: u32) -> Filter {
    let mut filter = filter(0.01, 1000, 0);
    numbered(0..500).chunks(BATCH).for_each(|batch| _ = add(&mut filter, batch, Origin::Client, NOW));
    numbered(0..count).chunks(BATCH).for_each(|batch| _ = delete(&mut filter, batch, Origin::Client, NOW));
    filter
}

fn read(bytes: &[u8]) -> Result<Filter, Error> {
    StoredAs::Own.read(1, &mut ByteSource(bytes), &Unlimited).map(|mut value| value.take_filter())
}

const UNSOUND: Error = Error::Filter(bloomgate_filter::Error::Unsound);

/// Returns the bytes of a filter, cut before the number of its entries, and its entries.
fn cut(filter: Filter, count: usize) -> (Vec<u8>, Vec<[u8; 16]>) {
    let (mut bytes, _) = written(filter);
    // The number of entries; if there are any, the length of the string and the entries.
    let string_bytes = if count > 0 { 8 + count * 16 } else { 0 };
    let entries = bytes.split_off(bytes.len() - string_bytes);
    assert_eq!(bytes.split_off(bytes.len() - 8), (count as u64).to_le_bytes());
    (bytes, entries.get(8..).unwrap_or_default().as_chunks::<16>().0.to_vec())
}

fn joined(head: &[u8], count: u64, entries: &[[u8; 16]]) -> Vec<u8> {
    let length = entries.len() as u64 * 16;
    [head, &count.to_le_bytes(), &length.to_le_bytes(), entries.as_flattened()].concat()
}

#[test]
fn duplicate_unordered_or_impossible_entries_are_refused() {
    let filter = with_entries(20);
    let (head, entries) = cut(filter.try_clone().unwrap(), 20);
    assert_eq!(read(&joined(&head, 20, &entries)), Ok(filter));
    let with = |change: fn(&mut Vec<[u8; 16]>)| {
        let mut changed = entries.clone();
        change(&mut changed);
        read(&joined(&head, changed.len() as u64, &changed))
    };
    assert_eq!(with(|entries| entries.swap(3, 4)), Err(UNSOUND));
    assert_eq!(with(|entries| entries[4] = entries[3]), Err(UNSOUND));
    assert_eq!(with(|entries| entries.insert(0, entries[0])), Err(UNSOUND));
    assert_eq!(with(|entries| entries.insert(0, [0; 16])), Err(UNSOUND));
    // An entry whose bits are not set would make the item absent after an add.
    assert_eq!(with(|entries| entries[19] = [0xff; 16]), Err(UNSOUND));
    assert_eq!(with(|entries| entries.truncate(5)).map(|filter| filter.items()), Ok(495));
    assert_eq!(read(&joined(&head, 21, &entries)).unwrap_err(), Error::Truncated);
    assert_eq!(read(&joined(&head, 19, &entries)).unwrap_err(), Error::WrongLength);
}

#[test]
fn a_table_larger_than_the_bits_is_refused() {
    let mut small = filter(0.25, 1, 0);
    // All bits are set, so every entry belongs to a present item.
    let Filter::Native(native) = &mut small else { panic!("a native filter") };
    native.layer_bytes_mut(0).unwrap().fill(0xff);
    let room = native.layers()[0].bytes().len() as u64 / 16;
    let (head, _) = cut(small, 0);
    let entries = |count: u64| (1..=count).map(|number| (u128::from(number)).to_be_bytes()).collect::<Vec<_>>();
    // Sorted by the first half, then by the second, both little-endian.
    let mut most = entries(room);
    most.sort_by_key(|entry| u128::from_le_bytes(*entry).rotate_left(64));
    assert!(read(&joined(&head[..], room, &most)).is_ok());
    let mut more = entries(room + 1);
    more.sort_by_key(|entry| u128::from_le_bytes(*entry).rotate_left(64));
    assert_eq!(read(&joined(&head, room + 1, &more)), Err(UNSOUND));
}

/// Returns the records of a dump, and calls `change` between the first and the second.
fn dumped(filter: &mut Filter, between: impl Fn(&mut Filter)) -> Filter {
    let mut mark = DumpMark::default();
    let (mut iterator, header) = filter.next_record(7, 0, &mut mark).unwrap().unwrap();
    let mut arrival = Arrival::begin(iterator, &header, &Unlimited).unwrap();
    between(filter);
    while let Some((next, data)) = filter.next_record(7, iterator, &mut mark).unwrap() {
        arrival.accept(next, &data).unwrap();
        iterator = next;
    }
    arrival.into_filter()
}

#[test]
fn a_dump_omits_a_table_that_changed_since_it_began() {
    let original = with_entries(20);
    let found = |filter: &Filter| numbered(0..20).iter().filter(|item| filter.contains(item, &NOW)).count();
    assert_eq!(found(&arrived(&records(&original))), 0);
    type Change = fn(&mut Filter);
    let changes: [(Change, usize); 4] = [
        (|_| {}, 0),
        (|filter| _ = add(filter, &numbered(5000..5010), Origin::Client, NOW), 0),
        (|filter| _ = delete(filter, &numbered(30..31), Origin::Client, NOW), 20),
        (|filter| _ = add(filter, &numbered(3..4), Origin::Client, NOW), 20),
    ];
    for (change, expected) in changes {
        let copy = dumped(&mut original.try_clone().unwrap(), change);
        assert_eq!(found(&copy), expected);
        assert!(numbered(20..500).iter().all(|item| copy.contains(item, &NOW)));
    }
    // A delete that is refused or finds nothing changes nothing.
    let copy = dumped(&mut original.try_clone().unwrap(), |filter| {
        assert!(delete(filter, &numbered(0..20), Origin::Client, NOW).found.is_empty());
    });
    assert_eq!(found(&copy), 0);
}

/// Records of a later dump are not duplicates: they would make items absent that were added again, or present that were deleted
/// since.
#[test]
fn a_later_table_is_a_duplicate_only_if_equal() {
    let source = with_entries(20);
    let first = records(&source);
    type Change = fn(&mut Filter);
    let changes: [(Change, bool); 3] = [
        (|_| {}, true),
        (|filter| _ = add(filter, &numbered(3..4), Origin::Client, NOW), false),
        (|filter| _ = delete(filter, &numbered(30..31), Origin::Client, NOW), false),
    ];
    for (change, is_known) in changes {
        let mut changed = source.try_clone().unwrap();
        change(&mut changed);
        let second = records(&changed);
        let mut copy = Value::from(arrived(&first));
        let (table, others) = second.split_last().unwrap();
        for (iterator, data) in others {
            assert_eq!(copy.accept(7, *iterator, data), Ok(Progress::Known), "no bit has changed");
        }
        let expected = if is_known { Ok(Progress::Known) } else { Err(Error::Different) };
        assert_eq!(copy.accept(7, table.0, &table.1), expected);
        // The copy forgets, so that the records are no longer duplicates.
        change(match &mut copy {
            Value::Filter(copy) => copy,
            Value::Arriving(_) => panic!("it is complete"),
        });
        let (iterator, data) = first.last().unwrap();
        assert_eq!(copy.accept(7, *iterator, data), expected);
    }
}

/// A full filter for 100,000 items, and its items.
fn full() -> (Filter, Items) {
    let mut filter = filter(0.01, 100_000, 0);
    let items = numbered(0..100_000);
    items.chunks(BATCH).for_each(|batch| _ = add(&mut filter, batch, Origin::Client, NOW));
    (filter, items)
}

/// Deletes items until one is refused. Returns the number of deleted items.
fn delete_until_refused(filter: &mut Filter, items: &[Vec<u8>]) -> u32 {
    let mut deleted = 0;
    for batch in items.chunks(BATCH) {
        let removed = delete(filter, batch, Origin::Client, NOW);
        deleted += removed.found.len();
        if removed.error.is_some() {
            break;
        }
    }
    deleted
}

/// The bytes and the room of a table do not depend on its history.
#[test]
#[cfg_attr(miri, ignore = "a hundred thousand items")]
fn a_loaded_table_has_the_room_and_the_memory_of_its_source() {
    let (mut source, items) = full();
    let (first, others) = items.split_at(2000);
    assert_eq!(delete_until_refused(&mut source, first), 2000);
    let copies = |source: &Filter| {
        let replica = items.iter().filter(|item| !source.contains(item, &NOW)).cloned().collect::<Vec<_>>();
        let mut effects = full().0;
        replica.chunks(BATCH).for_each(|batch| _ = delete(&mut effects, batch, Origin::Effect, NOW));
        [source.try_clone().unwrap(), saved_and_read(source.try_clone().unwrap()), arrived(&records(source)), effects]
    };
    let mut half_full = copies(&source);
    let more = delete_until_refused(&mut source, others);
    assert!((1500..5000).contains(&more), "{more}");
    assert!(half_full.iter_mut().all(|copy| delete_until_refused(copy, others) == more));
    for mut copy in copies(&source) {
        assert_eq!(delete_until_refused(&mut copy, &items), 0);
        let (has, expected) = (copy.allocated_bytes(), source.allocated_bytes());
        assert!(has.abs_diff(expected) * 20 < expected, "{has} bytes, the source has {expected}");
        let bits = source.layers().map(|layer| layer.size_bytes).sum::<u64>();
        assert!(has <= 2 * bits + 8192, "a table is no larger than the bits");
    }
}

#[test]
#[cfg_attr(miri, ignore = "a hundred thousand items")]
fn equal_tables_are_equal_bytes_whatever_was_in_them() {
    let (mut plain, items) = full();
    let mut eventful = plain.try_clone().unwrap();
    let (kept, passing) = items[..7500].split_at(3500);
    kept.chunks(BATCH).for_each(|batch| _ = delete(&mut plain, batch, Origin::Client, NOW));
    for batch in passing.chunks(BATCH).chain(kept.chunks(BATCH)) {
        assert_eq!(delete(&mut eventful, batch, Origin::Effect, NOW).error, None);
    }
    passing.chunks(BATCH).for_each(|batch| _ = add(&mut eventful, batch, Origin::Client, NOW));
    assert!(plain == eventful);
    assert!(records(&plain) == records(&eventful));
    let [plain, eventful] = [plain, eventful].map(|filter| written(filter).0);
    assert!(plain == eventful, "the bytes of a snapshot, of which a digest is made");
}

/// A table of several parts and several records.
#[test]
#[cfg_attr(miri, ignore = "a hundred thousand items")]
fn a_large_table_travels() {
    let mut filter = filter(0.001, 1_200_000, 0);
    let items = numbered(0..300_000);
    items.chunks(BATCH).for_each(|batch| _ = add(&mut filter, batch, Origin::Client, NOW));
    items[..70_000].chunks(BATCH).for_each(|batch| _ = delete(&mut filter, batch, Origin::Client, NOW));
    let Filter::Native(native) = &filter else { panic!("a native filter") };
    assert!(native.deleted_entries() > 65_536, "more than one record has room for");
    let told = records(&filter);
    assert!(arrived(&told) == filter);
    is_told_again_wherever_it_ends(&told);
    let mut read = saved_and_read(filter.try_clone().unwrap());
    items[..70_000].chunks(BATCH).for_each(|batch| _ = add(&mut read, batch, Origin::Client, NOW));
    assert!(read != filter && read.items() == filter.items() + native.deleted_entries());
}

/// If an AOF is rewritten while a dump arrives, its reader continues with the same record.
fn is_told_again_wherever_it_ends(told: &[(u64, Vec<u8>)]) {
    let ((iterator, header), rest) = told.split_first().unwrap();
    let mut arrival = Arrival::begin(*iterator, header, &Unlimited).unwrap();
    for (iterator, data) in rest {
        let value = Value::from(arrival.try_clone().unwrap());
        let mut again: Option<Arrival> = None;
        let outcome = value.for_each_record(7, |record| {
            let AofRecord::Chunk { iterator, data } = record else { panic!("a record of ours") };
            match &mut again {
                None => again = Some(Arrival::begin(iterator, data, &Unlimited)?),
                Some(arrival) => assert_eq!(arrival.accept(iterator, data), Ok(Progress::Stored)),
            }
            Ok(())
        });
        assert!(outcome.is_ok() && again.as_ref() == Some(&arrival));
        arrival.accept(*iterator, data).unwrap();
    }
}

/// A filter with a table requires memory for its bits and the table.
#[test]
fn the_ceiling_is_asked_for_the_entries() {
    struct Most(u64);
    impl Ceiling for Most {
        fn available_bytes(&self, filter_bytes: u64, _asked_bytes: u64) -> u64 {
            self.0.saturating_sub(filter_bytes)
        }
    }
    let filter = with_entries(20);
    let size = filter.size_bytes();
    let told = records(&filter);
    let (bytes, _) = written(filter);
    for (most, is_enough) in [(size, true), (size - 1, false), (size - 320, false)] {
        let read = StoredAs::Own.read(1, &mut ByteSource(&bytes), &Most(most));
        assert_eq!(read.is_ok(), is_enough, "{most} of {size}");
        let mut arrival = Arrival::begin(told[0].0, &told[0].1, &Most(most)).unwrap();
        let (last, others) = told[1..].split_last().unwrap();
        for (iterator, data) in others {
            assert_eq!(arrival.accept_within(*iterator, data, &Most(most)), Ok(Progress::Stored));
        }
        let taken = arrival.accept_within(last.0, &last.1, &Most(most));
        assert_eq!(taken.is_ok(), is_enough, "{most} of {size}: {taken:?}");
        // What a primary accepted is accepted.
        assert!(is_enough || arrival.obey(last.0, &last.1) == Ok(Progress::Complete));
    }
}
