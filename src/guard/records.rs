//! The records of the guard's table, in one array, and the heaps that order them by their ends. There may be tens of thousands, so a
//! record is small: 72 bytes, and some 25 in the table's hash tables and a heap.

use super::ids::{CacheKeyId, ItemId};

/// A time of a monotonic clock, in milliseconds.
pub type Instant = u64;

/// What a record says of its cache key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// A caller loads its value and holds this token.
    Lease(u64),
    /// The item has no row.
    NoRow,
    /// The value could not be loaded, and no lease is granted. The record is for every item of the cache key, and is found by
    /// none: its item is [`ItemId::none`].
    BackOff,
}

/// The index of a record.
pub type Place = u32;

/// The index of no record.
pub const NOWHERE: Place = Place::MAX;

/// The record of a cache key.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// The cache key, in two fields because [`CacheKeyId`] has padding.
    pub name: [u64; 2],
    pub database: i32,
    pub item: ItemId,
    /// A lease's.
    pub token: u64,
    pub deadline: Deadline,
    /// The neighbours in the list of records with the same item. The list is doubly linked: removing one of very many cache
    /// keys of an item takes no longer than removing one of a few. The list of free places uses only `after`.
    pub before: Place,
    pub after: Place,
    /// The index in the heap of its sort.
    pub in_heap: u32,
}

const _: () = assert!(size_of::<Record>() == 72);

/// The end of a record, and its sort in the two low bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(u64);

/// The records by their places. Places of removed records are used again.
pub struct Records {
    all: Vec<Record>,
    /// The first free place.
    free: Place,
}

/// The records of one sort: a binary heap by their ends. The first is the one that ends first.
#[derive(Default)]
pub struct Heap(Vec<Place>);

/// Returns the index of the heap for records like this.
pub const fn sort(known: Known) -> usize {
    match known {
        Known::Lease(_) => 0,
        Known::NoRow => 1,
        Known::BackOff => 2,
    }
}

impl Deadline {
    /// An end beyond the range, in a hundred million years, is the end of the range.
    pub fn new(end: Instant, known: Known) -> Self {
        Self(end.min(Instant::MAX >> 2) << 2 | sort(known) as u64)
    }

    pub const fn end(self) -> Instant {
        self.0 >> 2
    }

    pub const fn sort(self) -> usize {
        (self.0 & 3) as usize
    }
}

impl Record {
    pub const fn key(&self) -> CacheKeyId {
        CacheKeyId { database: self.database, name: self.name }
    }

    pub const fn known(&self) -> Known {
        match self.deadline.sort() {
            0 => Known::Lease(self.token),
            1 => Known::NoRow,
            _ => Known::BackOff,
        }
    }
}

impl Default for Records {
    fn default() -> Self {
        Self { all: Vec::new(), free: NOWHERE }
    }
}

impl Records {
    #[inline]
    pub fn get(&self, place: Place) -> Option<&Record> {
        self.all.get(place as usize)
    }

    pub fn get_mut(&mut self, place: Place) -> Option<&mut Record> {
        self.all.get_mut(place as usize)
    }

    pub fn hash_of_key(&self, place: Place) -> u64 {
        self.get(place).map_or(0, |record| record.key().short())
    }

    pub fn hash_of_item(&self, place: Place) -> u64 {
        self.get(place).map_or(0, |record| record.item.short())
    }

    /// The number of places, free ones included.
    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.all.len()
    }

    /// Makes room for one more record. Returns whether there is any.
    pub fn reserve(&mut self) -> bool {
        self.free != NOWHERE || (self.all.len() < NOWHERE as usize && self.all.try_reserve(1).is_ok())
    }

    /// Stores a record, for which there is room.
    pub fn put(&mut self, record: Record) -> Place {
        let free = self.free;
        if let Some(place) = self.get_mut(free) {
            let next = std::mem::replace(place, record).after;
            self.free = next;
            return free;
        }
        self.all.push(record);
        Place::try_from(self.all.len() - 1).unwrap_or(NOWHERE)
    }

    pub fn release(&mut self, place: Place) {
        let free = self.free;
        if let Some(record) = self.get_mut(place) {
            record.after = free;
            self.free = place;
        }
    }
}

impl Heap {
    pub fn first<'r>(&self, records: &'r Records) -> Option<&'r Record> {
        records.get(*self.0.first()?)
    }

    pub fn iter<'r>(&'r self, records: &'r Records) -> impl Iterator<Item = &'r Record> {
        self.0.iter().filter_map(|place| records.get(*place))
    }

    /// Makes room for one more record. Returns whether there is any.
    pub fn reserve(&mut self) -> bool {
        self.0.try_reserve(1).is_ok()
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a record. There is room for it.
    pub fn push(&mut self, place: Place, records: &mut Records) {
        self.0.push(place);
        self.sift(self.0.len() - 1, records);
    }

    pub fn remove(&mut self, index: u32, records: &mut Records) {
        let index = index as usize;
        if index < self.0.len() {
            self.0.swap_remove(index);
        }
        // Unless it was the last one.
        if index < self.0.len() {
            self.sift(index, records);
        }
    }

    /// Moves the record at `index` up or down to where it belongs.
    fn sift(&mut self, mut index: usize, records: &mut Records) {
        while index > 0 && self.deadline(index, records) < self.deadline((index - 1) / 2, records) {
            self.0.swap(index, (index - 1) / 2);
            self.tell(index, records);
            index = (index - 1) / 2;
        }
        loop {
            let children = [2 * index + 1, 2 * index + 2].into_iter().filter(|child| *child < self.0.len());
            let Some(child) = children.min_by_key(|child| self.deadline(*child, records)) else { break };
            if self.deadline(index, records) <= self.deadline(child, records) {
                break;
            }
            self.0.swap(index, child);
            self.tell(index, records);
            index = child;
        }
        self.tell(index, records);
    }

    fn deadline(&self, index: usize, records: &Records) -> Option<Deadline> {
        Some(records.get(*self.0.get(index)?)?.deadline)
    }

    /// Tells the record at `index` that it is there.
    fn tell(&self, index: usize, records: &mut Records) {
        if let (Some(record), Ok(index)) =
            (self.0.get(index).and_then(|place| records.get_mut(*place)), index.try_into())
        {
            record.in_heap = index;
        }
    }
}
