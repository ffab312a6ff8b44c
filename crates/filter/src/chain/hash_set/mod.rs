//! An exact set of 128-bit hashes, with 16.1 bytes per slot and nothing else per hash.
//!
//! Up to 16 hashes are a sorted list. Larger sets use extendible hashing (Fagin, Nievergelt, Pippenger, Strong: Extendible
//! hashing, a fast access method for dynamic files, 1979): the top bits of `h1` select an element of a directory, which refers
//! to a segment, which is a table of at most 62 KiB ([`segment`]). A full segment gets a larger table, up to that size, or is split in
//! two by the next bit of `h1`. So growth never touches more than one segment and, now and then, the directory: 4 bytes for about
//! 2000 hashes.
//!
//! The division into segments depends on past removals, but the stored form and comparisons do not: sets are equal if they hold
//! the same hashes, and [`for_each_sorted_run`](HashSet::for_each_sorted_run) divides them at fixed places.

mod growth;
mod order;
mod segment;
#[cfg(test)]
mod tests;

use growth::FEW_STEP;
#[cfg(test)]
pub(crate) use segment::BUCKETS_READ;
use segment::{ENTRIES_MAX, NO_LINE, NONE, Segment, may_contain};

use crate::cells::arch::TagLine;
use crate::cells::{Mover, relocate_elements};
use crate::error::Error;
use crate::hash::ItemHash;
use crate::mask::{BATCH, Mask};
use crate::memory::reserve;

/// The longest short list. The smallest table takes half a KiB.
const FEW_MAX: usize = 16;

/// An exact set of hashes. It cannot hold the hash 0, 0, which an item has with a probability of 2^-128.
///
/// ```
/// use bloomgate_filter::HashSet;
/// use bloomgate_filter::hash::ItemHash;
///
/// let mut deleted = HashSet::new();
/// let hash = ItemHash::keyed(b"an item", [7; 16]);
/// assert_eq!(deleted.insert(hash), Ok(true));
/// assert_eq!(deleted.insert(hash), Ok(false), "present");
/// assert!(deleted.contains(hash));
/// assert!(deleted.remove(hash) && !deleted.contains(hash));
/// ```
#[derive(Default)]
pub struct HashSet {
    /// The short list: all hashes in ascending order while they are few, empty if there are segments.
    few: Vec<ItemHash>,
    /// In the order of their creation.
    segments: Vec<Segment>,
    /// For each value of the top `depth` bits of `h1`, the index of its segment; empty if there are no segments. A segment with a
    /// smaller depth has several consecutive elements.
    directory: Vec<u32>,
    depth: u32,
    len: u64,
    /// The size of the tables of all segments, in bytes.
    tables_bytes: u64,
}

impl HashSet {
    /// The number of hashes in a sorted run.
    pub(crate) const RUN: usize = 4096;

    /// The empty set, without memory.
    pub const fn new() -> Self {
        Self { few: Vec::new(), segments: Vec::new(), directory: Vec::new(), depth: 0, len: 0, tables_bytes: 0 }
    }

    /// The number of hashes in it.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether it is empty.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of bytes requested from the allocator for tables, the list of segments and the directory. Visits no segment.
    pub const fn allocated_bytes(&self) -> u64 {
        let few = self.few.capacity() * size_of::<ItemHash>();
        let lists = self.segments.capacity() * size_of::<Segment>() + self.directory.capacity() * size_of::<u32>();
        self.tables_bytes + (few + lists) as u64
    }

    /// The number of its segments.
    pub(crate) const fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Whether a hash is in it.
    #[inline]
    pub fn contains(&self, hash: ItemHash) -> bool {
        self.segment_of(hash).map_or_else(|| self.is_one_of_few(hash), |segment| segment.contains(hash))
    }

    /// Returns the hashes of the mask `wanted` that are in it. Prefetches the tag lines of all of them before it reads the
    /// first, then the entries of those whose tag matches.
    #[inline]
    pub fn contains_batch(&self, hashes: &[ItemHash], wanted: Mask) -> Mask {
        self.lookup(hashes).present(wanted)
    }

    /// Starts a lookup of a batch in two steps.
    #[inline]
    pub(crate) const fn lookup<'a>(&'a self, hashes: &'a [ItemHash]) -> Lookup<'a> {
        Lookup { set: self, hashes, fetched: Mask::NONE, lines: [&NO_LINE; BATCH] }
    }

    /// Returns the hashes of the mask `wanted` that are in it, looked up one by one.
    fn are_in(&self, hashes: &[ItemHash], wanted: Mask) -> Mask {
        wanted.each_of(hashes).fold(Mask::NONE, |present, (item, hash)| present | item.only_if(self.contains(hash)))
    }

    /// Whether a hash is in the short list. Compares all of them without a branch that could be mispredicted.
    fn is_one_of_few(&self, hash: ItemHash) -> bool {
        self.few.iter().fold(false, |found, few| found | (*few == hash))
    }

    /// Adds a hash. Returns whether it was absent. A segment that cannot grow takes hashes until fifteen sixteenths of its slots
    /// are used. Callers that limit the set use `capacity_in`.
    ///
    /// # Errors
    /// [`Error::NoRoomForDeleted`] if more than 3720 hashes share the 20 top bits of `h1`; [`Error::OutOfMemory`];
    /// [`Error::Unsound`] for the hash 0, 0. The set is unchanged.
    pub fn insert(&mut self, hash: ItemHash) -> Result<bool, Error> {
        if hash == NONE {
            return Err(Error::Unsound);
        }
        if self.contains(hash) {
            return Ok(false);
        }
        let is_new = if self.segments.is_empty() && self.few.len() < FEW_MAX {
            self.insert_into_few(hash)?
        } else {
            self.make_room(hash)?;
            self.segment_of_mut(hash).is_some_and(|segment| segment.put(hash))
        };
        self.len += u64::from(is_new);
        Ok(is_new)
    }

    /// Adds an absent hash to the short list.
    fn insert_into_few(&mut self, hash: ItemHash) -> Result<bool, Error> {
        if self.few.len() == self.few.capacity() {
            reserve(&mut self.few, FEW_STEP)?;
        }
        let (Ok(place) | Err(place)) = self.few.binary_search(&hash);
        self.few.insert(place, hash);
        Ok(true)
    }

    /// Removes a hash. Returns whether it was present. A segment keeps its table until it is empty; the empty set has no memory.
    pub fn remove(&mut self, hash: ItemHash) -> bool {
        if let Some(segment) = self.segment_of_mut(hash) {
            let before = segment.allocated_bytes();
            if !segment.take(hash) {
                return false;
            }
            let given_back = before - segment.allocated_bytes();
            self.tables_bytes -= given_back;
        } else if let Ok(place) = self.few.binary_search(&hash) {
            self.few.remove(place);
        } else {
            return false;
        }
        self.len -= 1;
        if self.is_empty() {
            *self = Self::new();
        }
        true
    }

    /// Returns an equal set.
    pub fn try_clone(&self) -> Result<Self, Error> {
        let (mut few, mut segments, mut directory) = (Vec::new(), Vec::new(), Vec::new());
        reserve(&mut few, self.few.len())?;
        reserve(&mut segments, self.segments.len())?;
        reserve(&mut directory, self.directory.len())?;
        few.extend_from_slice(&self.few);
        directory.extend_from_slice(&self.directory);
        for segment in &self.segments {
            segments.push(segment.try_clone()?);
        }
        // The tables of the copy may need other padding.
        let tables_bytes = segments.iter().map(Segment::allocated_bytes).sum();
        Ok(Self { few, segments, directory, tables_bytes, ..*self })
    }

    /// Moves the segments with `mover`, starting at number `first`. If the mover stops before the last segment, returns the number
    /// of the segment to continue with. It remains valid if the set grows in between, because new segments are appended.
    pub fn relocate(&mut self, first: usize, mover: &mut impl Mover) -> Option<usize> {
        if first == 0 {
            relocate_elements(&mut self.few, mover);
            relocate_elements(&mut self.segments, mover);
            relocate_elements(&mut self.directory, mover);
        }
        let count = self.segments.len();
        for (index, segment) in self.segments.iter_mut().enumerate().skip(first) {
            segment.relocate(mover);
            if index + 1 < count && mover.has_done_enough() {
                return Some(index + 1);
            }
        }
        None
    }

    /// Calls `f` with all hashes in ascending order, in runs of equal length, the last of which may be shorter. The runs
    /// do not depend on the segments. Sorts a copy of each segment on the stack (122 KiB in all), so that a save needs no
    /// memory.
    ///
    /// # Errors
    /// An error of `f` ends the iteration.
    pub fn for_each_sorted_run<E>(&self, f: impl FnMut(&[ItemHash]) -> Result<(), E>) -> Result<(), E> {
        self.for_each_sorted_run_after(0, f)
    }

    /// Calls `f` with all hashes except the smallest `skipped`, like [`for_each_sorted_run`](Self::for_each_sorted_run). Skips
    /// segments by their counts.
    pub(crate) fn for_each_sorted_run_after<E>(
        &self,
        mut skipped: usize,
        mut f: impl FnMut(&[ItemHash]) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(few @ [_, ..]) = self.few.get(skipped..) {
            return f(few);
        }
        let (mut copy, mut run, mut length) = ([NONE; ENTRIES_MAX], [NONE; Self::RUN], 0);
        for segment in self.segments_in_order() {
            if segment.entries() <= skipped {
                skipped -= segment.entries();
                continue;
            }
            let sorted = copy.get_mut(..segment.entries()).unwrap_or_default();
            sorted.iter_mut().zip(segment.hashes()).for_each(|(to, from)| *to = from);
            sorted.sort_unstable();
            let mut rest = sorted.get(std::mem::take(&mut skipped)..).unwrap_or_default();
            while !rest.is_empty() {
                let free = run.get_mut(length..).unwrap_or_default();
                let (taken, left) = rest.split_at(rest.len().min(free.len()));
                free.iter_mut().zip(taken).for_each(|(to, from)| *to = *from);
                length += taken.len();
                rest = left;
                if length == Self::RUN {
                    f(&run)?;
                    length = 0;
                }
            }
        }
        match run.get(..length) {
            Some(last @ [_, ..]) => f(last),
            _ => Ok(()),
        }
    }

    /// Appends a run of ascending hashes, all above the existing ones, for a reader. Looks up the last existing hash, which
    /// takes a few microseconds per call.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a hash that is not above the one before it, [`Error::OutOfMemory`], [`Error::NoRoomForDeleted`]
    /// for hashes that no set can hold together. The set is unchanged.
    pub fn extend_sorted(&mut self, run: &[ItemHash]) -> Result<(), Error> {
        // The forbidden hash is below all others.
        let of_segments = || self.segments_in_order().rev().find_map(|segment| segment.hashes().max());
        let last = self.few.last().copied().or_else(of_segments).unwrap_or(NONE);
        if run.first().is_some_and(|first| *first <= last) || !run.is_sorted_by(|one, next| one < next) {
            return Err(Error::Unsound);
        }
        for (index, hash) in run.iter().enumerate() {
            if let Err(error) = self.insert(*hash) {
                run.iter().take(index).for_each(|hash| _ = self.remove(*hash));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns the segments in the order of their hashes.
    fn segments_in_order(&self) -> impl DoubleEndedIterator<Item = &Segment> {
        let place = |(place, number): (usize, &u32)| {
            let segment = usize::try_from(*number).ok().and_then(|number| self.segments.get(number))?;
            // The first of its consecutive elements.
            place.is_multiple_of(1 << self.depth.saturating_sub(segment.depth)).then_some(segment)
        };
        self.directory.iter().enumerate().filter_map(place)
    }

    /// Returns the index of the segment to which a hash belongs.
    #[inline]
    fn number_of(&self, hash: ItemHash) -> Option<usize> {
        self.directory.get(place(hash, self.depth)).and_then(|number| usize::try_from(*number).ok())
    }

    #[inline]
    fn segment_of(&self, hash: ItemHash) -> Option<&Segment> {
        self.segments.get(self.number_of(hash)?)
    }

    fn segment_of_mut(&mut self, hash: ItemHash) -> Option<&mut Segment> {
        let number = self.number_of(hash)?;
        self.segments.get_mut(number)
    }
}

/// A lookup of a batch, in two steps so that the caller can work while the tag lines are loaded.
pub(crate) struct Lookup<'a> {
    set: &'a HashSet,
    hashes: &'a [ItemHash],
    fetched: Mask,
    lines: [&'a TagLine; BATCH],
}

impl Lookup<'_> {
    /// Prefetches the tag lines of the hashes of the mask `wanted`.
    #[inline]
    pub(crate) fn fetch(&mut self, wanted: Mask) {
        for (item, hash) in (wanted - self.fetched).each_of(self.hashes) {
            let line = self.set.segment_of(hash).map_or(&NO_LINE, |segment| segment.fetch(hash));
            if let Some(place) = self.lines.get_mut(item.lowest()) {
                *place = line;
            }
        }
        self.fetched |= wanted;
    }

    /// Returns the hashes of the mask `wanted` that are in the set. Prefetches the tag lines that were not prefetched yet.
    #[inline]
    pub(crate) fn present(mut self, wanted: Mask) -> Mask {
        let set = self.set;
        if set.segments.is_empty() {
            return set.are_in(self.hashes, if set.is_empty() { Mask::NONE } else { wanted });
        }
        self.fetch(wanted);
        let mut suspects = Mask::NONE;
        for ((item, hash), (_, line)) in wanted.each_of(self.hashes).zip(wanted.each_of(&self.lines)) {
            suspects |= item.only_if(may_contain(line, hash));
        }
        for (_, hash) in suspects.each_of(self.hashes) {
            set.segment_of(hash).into_iter().for_each(|segment| segment.prefetch_entry(hash));
        }
        set.are_in(self.hashes, suspects)
    }
}

/// Returns a hash's index in a directory of 2^`depth` elements, `depth` at most 20: the top bits of `h1`.
#[inline]
const fn place(hash: ItemHash, depth: u32) -> usize {
    // Two shifts, because a shift by 64 would overflow.
    (hash.h1 >> 1 >> (63 - depth)) as usize
}

/// Compares as sets: looks up every hash of one in the other.
impl PartialEq for HashSet {
    fn eq(&self, other: &Self) -> bool {
        let mut hashes = self.few.iter().copied().chain(self.segments.iter().flat_map(Segment::hashes));
        self.len == other.len && hashes.all(|hash| other.contains(hash))
    }
}

impl std::fmt::Debug for HashSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HashSet")
            .field("len", &self.len)
            .field("segments", &self.segments.len())
            .finish_non_exhaustive()
    }
}
