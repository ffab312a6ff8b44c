//! An exact set of 128-bit hashes in ascending order, with 16 bytes per slot and nothing else per hash.
//!
//! Up to 256 hashes are one sorted list. A larger set is many such lists, called segments, by extendible hashing (Fagin,
//! Nievergelt, Pippenger, Strong: Extendible hashing, a fast access method for dynamic files, 1979): the top bits of `h1` select
//! an element of a directory, which refers to a segment. A full segment is split in two by the next bit of `h1`. So growth
//! never touches more than one segment and, now and then, the directory: 4 bytes for about 200 hashes.
//!
//! Hashes are evenly distributed, so a lookup computes where in its segment a hash must be, but for a few places, and reads a
//! line or two there. A range of hashes is a slice of each of its segments, and a save sorts nothing. The division into segments
//! depends on past removals, but what is written or compared does not.

use crate::cells::arch::prefetch;
use crate::cells::{Mover, relocate_elements};
use crate::error::Error;
use crate::hash::ItemHash;
use crate::mask::Mask;
use crate::memory::reserve;

/// The hashes at which a segment is split: 4 KiB. An insert moves a quarter of that, on average.
const SPLIT_FROM: usize = 256;
/// The most hashes of a segment that cannot be split.
const SEGMENT_MAX: usize = 3720;
/// The most bits that index the directory: 2^20 elements of 4 bytes. There must be a limit, because hashes that share more bits
/// could not be separated by splits.
const DEPTH_MAX: u32 = 20;
/// The hash that no set can hold, below all others.
const NONE: ItemHash = ItemHash { h1: 0, h2: 0 };

/// An exact set of hashes. It cannot hold the hash 0, 0, which an item has with a probability of 2^-128.
///
/// ```
/// use bloomgate_filter::chain::HashSet;
/// use bloomgate_filter::hash::ItemHash;
///
/// let mut deleted = HashSet::new();
/// let hash = ItemHash::keyed(b"an item", [7; 16]);
/// assert_eq!(deleted.insert(hash), Ok(true));
/// assert_eq!(deleted.insert(hash), Ok(false), "present");
/// assert!(deleted.contains(hash));
/// assert!(deleted.remove(hash) && deleted.is_empty());
/// ```
#[derive(Default)]
pub struct HashSet {
    /// All hashes while there are no segments; else empty.
    few: Vec<ItemHash>,
    /// In the order of their creation.
    segments: Vec<Segment>,
    /// For each value of the top `depth` bits of `h1`, the index of its segment; empty if there are no segments. A segment with a
    /// smaller depth has several consecutive elements.
    directory: Vec<u32>,
    depth: u32,
    len: u64,
    /// The size of `few` and of all segments, in bytes.
    hashes_bytes: u64,
}

/// Hashes in ascending order, and the number of top bits of `h1` that all of them share.
struct Segment {
    hashes: Vec<ItemHash>,
    depth: u32,
}

impl HashSet {
    /// The number of hashes in a sorted run.
    pub const RUN: usize = 4096;

    /// The empty set, without memory.
    pub const fn new() -> Self {
        Self { few: Vec::new(), segments: Vec::new(), directory: Vec::new(), depth: 0, len: 0, hashes_bytes: 0 }
    }

    /// Returns how many hashes may be in a set that is limited to `bytes` bytes. They fit, in whatever order they are added. A
    /// replica must accept what its primary accepted, so this is the limit of 0.2.0, whose sets took up to 24 bytes per hash.
    pub fn capacity_in(bytes: u64) -> u64 {
        let few = (bytes / 16).min(16) / 4 * 4;
        let small = (bytes.saturating_sub(164) / 498).min(8) * 26;
        few.max(small).max(bytes.saturating_sub(640) / 24)
    }

    /// The number of hashes in it.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether it is empty.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of bytes requested from the allocator for hashes, the list of segments and the directory. Visits no segment.
    pub const fn allocated_bytes(&self) -> u64 {
        let lists = self.segments.capacity() * size_of::<Segment>() + self.directory.capacity() * size_of::<u32>();
        self.hashes_bytes + lists as u64
    }

    /// The number of its segments.
    pub const fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Whether a hash is in it.
    #[inline]
    pub fn contains(&self, hash: ItemHash) -> bool {
        let (hashes, depth) = self.list_of(hash);
        position(hashes, depth, hash).is_ok()
    }

    /// Returns the hashes of the mask `wanted` that are in it. Prefetches all of them before it reads the first.
    #[inline]
    pub fn contains_batch(&self, hashes: &[ItemHash], wanted: Mask) -> Mask {
        self.prefetch(hashes, wanted);
        wanted.each_of(hashes).fold(Mask::NONE, |present, (item, hash)| present | item.only_if(self.contains(hash)))
    }

    /// Prefetches what a lookup or an insert of the hashes of the mask `wanted` reads.
    #[inline]
    pub fn prefetch(&self, hashes: &[ItemHash], wanted: Mask) {
        if !self.segments.is_empty() {
            for (_, hash) in wanted.each_of(hashes) {
                let (hashes, depth) = self.list_of(hash);
                prefetch(hashes.as_ptr().wrapping_add(expected(hashes, depth, hash)).cast());
            }
        }
    }

    /// Adds a hash. Returns whether it was absent. Callers that limit the set use [`capacity_in`](Self::capacity_in).
    ///
    /// # Errors
    /// [`Error::NoRoomForDeleted`] if more than 3720 hashes share the 20 top bits of `h1`; [`Error::OutOfMemory`];
    /// [`Error::Unsound`] for the hash 0, 0. The set is unchanged.
    pub fn insert(&mut self, hash: ItemHash) -> Result<bool, Error> {
        if hash == NONE {
            return Err(Error::Unsound);
        }
        loop {
            let (hashes, depth) = self.list_mut(hash);
            let Err(place) = position(hashes, depth, hash) else { return Ok(false) };
            if hashes.len() < hashes.capacity() {
                hashes.insert(place, hash);
                self.len += 1;
                return Ok(true);
            }
            self.grow(hash)?;
        }
    }

    /// Removes a hash. Returns whether it was present. A segment keeps its memory until it is empty.
    pub fn remove(&mut self, hash: ItemHash) -> bool {
        let (hashes, depth) = self.list_mut(hash);
        let Ok(place) = position(hashes, depth, hash) else { return false };
        hashes.remove(place);
        let freed = if hashes.is_empty() { bytes_of(&std::mem::take(hashes)) } else { 0 };
        self.hashes_bytes -= freed;
        self.len -= 1;
        if self.is_empty() {
            self.clear();
        }
        true
    }

    /// Removes all hashes and frees the memory.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Returns an equal set.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn try_clone(&self) -> Result<Self, Error> {
        let mut copy = Self { few: copy_of(&self.few)?, depth: self.depth, len: self.len, ..Self::new() };
        reserve(&mut copy.segments, self.segments.len())?;
        reserve(&mut copy.directory, self.directory.len())?;
        copy.directory.extend_from_slice(&self.directory);
        for Segment { hashes, depth } in &self.segments {
            copy.segments.push(Segment { hashes: copy_of(hashes)?, depth: *depth });
        }
        copy.hashes_bytes = self.hashes_bytes;
        Ok(copy)
    }

    /// Lets the mover move the hashes, starting at segment number `first`. Returns the number of the segment to continue with if
    /// the mover stops before the last. If the set grows in between, the caller can continue there: new segments are appended.
    pub fn relocate(&mut self, first: usize, mover: &mut impl Mover) -> Option<usize> {
        if first == 0 {
            relocate_elements(&mut self.few, mover);
            relocate_elements(&mut self.segments, mover);
            relocate_elements(&mut self.directory, mover);
        }
        let count = self.segments.len();
        for (index, segment) in self.segments.iter_mut().enumerate().skip(first) {
            relocate_elements(&mut segment.hashes, mover);
            if index + 1 < count && mover.has_done_enough() {
                return Some(index + 1);
            }
        }
        None
    }

    /// Passes all hashes in ascending order to `f`, in runs of [`RUN`](Self::RUN) and a last one that may be shorter, whatever
    /// the segments of the set are. A run is on the stack (64 KiB), so that a save needs no memory.
    ///
    /// # Errors
    /// Those of `f`, which ends the iteration.
    pub fn for_each_sorted_run<E>(&self, mut f: impl FnMut(&[ItemHash]) -> Result<(), E>) -> Result<(), E> {
        let (mut run, mut length) = ([NONE; Self::RUN], 0);
        for mut hashes in self.lists(0, u64::MAX) {
            while !hashes.is_empty() {
                let free = run.get_mut(length..).unwrap_or_default();
                let (taken, left) = hashes.split_at(hashes.len().min(free.len()));
                free.iter_mut().zip(taken).for_each(|(to, from)| *to = *from);
                length += taken.len();
                hashes = left;
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

    /// Appends a run of ascending hashes, all above the existing ones, for a reader.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a hash that is not above the one before it, [`Error::OutOfMemory`], [`Error::NoRoomForDeleted`]
    /// for hashes that no set can hold together. The set is unchanged.
    pub fn extend_sorted(&mut self, run: &[ItemHash]) -> Result<(), Error> {
        let last = self.lists(0, u64::MAX).rev().find_map(|hashes| hashes.last().copied()).unwrap_or(NONE);
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

    /// Returns the hashes whose `h1` is from `first` to `last`, inclusive, in ascending order.
    pub fn between(&self, first: u64, last: u64) -> impl Iterator<Item = ItemHash> {
        let in_range = move |hashes: &[ItemHash]| {
            let begin = hashes.partition_point(|hash| hash.h1 < first);
            begin..hashes.partition_point(|hash| hash.h1 <= last)
        };
        self.lists(first, last).filter_map(move |hashes| hashes.get(in_range(hashes))).flatten().copied()
    }

    /// Removes the first hashes of one segment, up to the length of `taken`, and returns their number; 0 if the set is empty.
    /// Takes the first nonempty segment at or after that of `h1` = `from`, cyclically.
    pub fn take_some(&mut self, from: u64, taken: &mut [ItemHash]) -> usize {
        let hashes = self.lists(from, u64::MAX).chain(self.lists(0, from)).find(|hashes| !hashes.is_empty());
        let mut count = 0;
        for (place, hash) in taken.iter_mut().zip(hashes.into_iter().flatten()) {
            *place = *hash;
            count += 1;
        }
        taken.iter().take(count).for_each(|hash| _ = self.remove(*hash));
        count
    }

    /// Gives the segment of a hash more room, or splits it.
    fn grow(&mut self, hash: ItemHash) -> Result<(), Error> {
        let (hashes, depth) = self.list_of(hash);
        // Few hashes that share many bits do not double the directory again and again.
        let is_worthwhile = hashes.len() >= SEGMENT_MAX || 32 << depth <= self.len;
        if hashes.len() >= SPLIT_FROM && depth < DEPTH_MAX && is_worthwhile {
            return self.split(hash);
        }
        if hashes.len() >= SEGMENT_MAX {
            return Err(Error::NoRoomForDeleted { entries: self.len });
        }
        let (hashes, _) = self.list_mut(hash);
        let before = bytes_of(hashes);
        let more = room_for(hashes.len() + 1) - hashes.len();
        reserve(hashes, more)?;
        let after = bytes_of(hashes);
        self.hashes_bytes = self.hashes_bytes + after - before;
        Ok(())
    }

    /// Splits the segment of a hash in two by the next bit of `h1`, or changes nothing.
    fn split(&mut self, hash: ItemHash) -> Result<(), Error> {
        let before = bytes_of(self.list_mut(hash).0);
        let (hashes, depth) = self.list_of(hash);
        let depth = depth + 1;
        let middle = hashes.partition_point(|hash| directory_place(hash.h1, depth) & 1 == 0);
        let (mut lower, mut upper) = (Vec::new(), Vec::new());
        for (half, hashes) in [(&mut lower, hashes.get(..middle)), (&mut upper, hashes.get(middle..))] {
            let hashes = hashes.unwrap_or_default();
            reserve(half, room_for(hashes.len()))?;
            half.extend_from_slice(hashes);
        }
        let after = bytes_of(&lower) + bytes_of(&upper);
        let directory = if depth > self.depth { Some(doubled(&self.directory)?) } else { None };
        if self.segments.len() + 2 > self.segments.capacity() {
            // The list grows by an eighth, so that a long list is not copied for every segment.
            let more = 2.max(self.segments.len() / 8);
            reserve(&mut self.segments, more)?;
        }

        // From here on, nothing can fail.
        let number = self.number_of(hash).unwrap_or(0);
        if let Some(directory) = directory {
            (self.directory, self.depth) = (directory, depth);
        }
        match self.segments.get_mut(number) {
            Some(segment) => *segment = Segment { hashes: lower, depth },
            None => {
                self.few = Vec::new();
                self.segments.push(Segment { hashes: lower, depth });
            }
        }
        let new = u32::try_from(self.segments.len()).unwrap_or(u32::MAX);
        let places = 1 << (self.depth - depth);
        let start = (directory_place(hash.h1, depth) | 1) * places;
        self.directory.iter_mut().skip(start).take(places).for_each(|place| *place = new);
        self.segments.push(Segment { hashes: upper, depth });
        self.hashes_bytes = self.hashes_bytes + after - before;
        Ok(())
    }

    /// Returns the lists that can have an `h1` from `first` to `last`, in ascending order.
    fn lists(&self, first: u64, last: u64) -> impl DoubleEndedIterator<Item = &[ItemHash]> {
        let begin = directory_place(first, self.depth);
        let numbers = self.directory.get(begin..=directory_place(last, self.depth)).unwrap_or_default();
        let segments = numbers.iter().enumerate().filter_map(move |(index, number)| {
            let segment = self.segments.get(*number as usize)?;
            // The first of its consecutive elements.
            let is_first = index == 0 || (begin + index).is_multiple_of(1 << (self.depth - segment.depth));
            is_first.then_some(segment.hashes.as_slice())
        });
        std::iter::once(self.few.as_slice()).chain(segments)
    }

    /// Returns the index of the segment to which a hash belongs.
    #[inline]
    fn number_of(&self, hash: ItemHash) -> Option<usize> {
        self.directory.get(directory_place(hash.h1, self.depth)).map(|number| *number as usize)
    }

    /// Returns the list to which a hash belongs, and the number of bits that its hashes share.
    #[inline]
    fn list_of(&self, hash: ItemHash) -> (&[ItemHash], u32) {
        match self.number_of(hash).and_then(|number| self.segments.get(number)) {
            Some(segment) => (&segment.hashes, segment.depth),
            None => (&self.few, 0),
        }
    }

    fn list_mut(&mut self, hash: ItemHash) -> (&mut Vec<ItemHash>, u32) {
        match self.number_of(hash).and_then(|number| self.segments.get_mut(number)) {
            Some(segment) => (&mut segment.hashes, segment.depth),
            None => (&mut self.few, 0),
        }
    }
}

/// Returns the place of an `h1` in a directory of 2^`depth` elements, `depth` at most 20: its top bits.
#[inline]
const fn directory_place(h1: u64, depth: u32) -> usize {
    // Two shifts, because a shift by 64 would be none.
    (h1 >> 1 >> (63 - depth)) as usize
}

/// Returns where a hash is expected in a list whose hashes share `depth` bits.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the product is below the length")]
const fn expected(hashes: &[ItemHash], depth: u32, hash: ItemHash) -> usize {
    (((hash.h1 << depth) as u128 * hashes.len() as u128) >> 64) as usize
}

/// Returns the place of a hash in a list; if it is absent, the place where it would be inserted.
#[inline]
fn position(hashes: &[ItemHash], depth: u32, hash: ItemHash) -> Result<usize, usize> {
    let mut place = expected(hashes, depth, hash);
    while place > 0 && hashes.get(place - 1).is_some_and(|other| other.h1 >= hash.h1) {
        place -= 1;
    }
    while hashes.get(place).is_some_and(|other| other.h1 < hash.h1) {
        place += 1;
    }
    // Few hashes share their h1.
    while hashes.get(place).is_some_and(|other| *other < hash) {
        place += 1;
    }
    if hashes.get(place) == Some(&hash) { Ok(place) } else { Err(place) }
}

/// Returns the room of a list with this many hashes, so that the memory of a set follows its length closely: steps of a quarter
/// of a power of two, which are also the size classes of jemalloc.
fn room_for(hashes: usize) -> usize {
    hashes.next_multiple_of(4.max(1 << hashes.checked_ilog2().unwrap_or(0) >> 2)).min(SEGMENT_MAX)
}

const fn bytes_of(hashes: &Vec<ItemHash>) -> u64 {
    (hashes.capacity() * size_of::<ItemHash>()) as u64
}

/// Returns a copy of a list, with the same room.
fn copy_of(hashes: &Vec<ItemHash>) -> Result<Vec<ItemHash>, Error> {
    let mut copy = Vec::new();
    reserve(&mut copy, hashes.capacity())?;
    copy.extend_from_slice(hashes);
    Ok(copy)
}

/// Returns the directory with every element duplicated; of none, one that refers to the first segment.
fn doubled(directory: &[u32]) -> Result<Vec<u32>, Error> {
    let directory = if directory.is_empty() { &[0] } else { directory };
    let mut doubled = Vec::new();
    reserve(&mut doubled, directory.len() * 2)?;
    doubled.extend(directory.iter().flat_map(|number| [*number; 2]));
    Ok(doubled)
}

/// Equal as sets.
impl PartialEq for HashSet {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.between(0, u64::MAX).eq(other.between(0, u64::MAX))
    }
}

impl std::fmt::Debug for HashSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HashSet").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fastrand::Rng;

    use super::*;
    use crate::mask::BATCH;

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
        let lists = || std::iter::once(&set.few).chain(set.segments.iter().map(|segment| &segment.hashes));
        assert_eq!(set.len(), lists().map(Vec::len).sum::<usize>() as u64);
        assert_eq!(set.hashes_bytes, lists().map(bytes_of).sum::<u64>());
        assert!(lists().all(|hashes| hashes.is_sorted()
            && hashes.len() <= SEGMENT_MAX
            && hashes.is_empty() == (hashes.capacity() == 0)));
        assert!(set.few.is_empty() || set.segments.is_empty());
        assert!(set.directory.len() == if set.segments.is_empty() { 0 } else { 1 << set.depth });
        let used: BTreeSet<_> = set.directory.iter().collect();
        assert_eq!(used.len(), set.segments.len());
        assert!(set.between(0, u64::MAX).is_sorted());
        for segment in &set.segments {
            let shared = |hash: &ItemHash| directory_place(hash.h1, segment.depth);
            assert!(segment.hashes.iter().all(|hash| shared(hash) == shared(&segment.hashes[0])));
        }
    }

    /// Random inserts, removals and lookups, of hashes that share bits in three ways.
    #[test]
    fn it_behaves_like_the_standard_set() {
        // All bits; 14 equal bits, so that segments split deeply and searches are long; few hashes, which are added and removed
        // repeatedly.
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
    fn an_error_ends_the_runs() {
        let set = set_of(&random_hashes(&mut Rng::with_seed(1), MANY));
        let mut calls = 0;
        let stopped = set.for_each_sorted_run(|_| {
            calls += 1;
            Err(calls)
        });
        assert_eq!((stopped, calls), (Err(1), 1));
    }

    /// A segment that cannot be split is limited. The others can still grow.
    #[test]
    #[cfg_attr(miri, ignore = "thousands of hashes")]
    fn hashes_with_equal_top_bits_do_not_split_forever() {
        let mut set = HashSet::new();
        for h2 in 0..SEGMENT_MAX as u64 {
            assert_eq!(set.insert(ItemHash { h1: 42 << 30, h2 }), Ok(true));
        }
        assert!(set.allocated_bytes() < 64 << 10, "a small directory: {}", set.allocated_bytes());
        let one_more = ItemHash { h1: 42 << 30, h2: u64::MAX };
        let full = Error::NoRoomForDeleted { entries: SEGMENT_MAX as u64 };
        assert_eq!(set.insert(one_more), Err(full));
        assert_eq!(set.insert(ItemHash { h1: 42 << 30, h2: 0 }), Ok(false));
        assert!(!full.is_want_of_memory() && !set.contains(one_more));
        assert!(set.allocated_bytes() < 5 << 20, "a directory of 4 MiB: {}", set.allocated_bytes());
        for hash in random_hashes(&mut Rng::with_seed(2), MANY) {
            assert_eq!(set.insert(hash), Ok(true));
        }
        check(&set);
        assert!(set.remove(ItemHash { h1: 42 << 30, h2: 17 }));
        assert_eq!(set.insert(one_more), Ok(true));
    }

    /// A set of the stated capacity takes no more than the stated bytes, whatever the order of inserts.
    #[test]
    fn a_set_takes_no_more_than_its_capacity_says() {
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
            }
        }
    }

    /// The segments of a set whose hashes are constantly replaced keep their largest size.
    #[test]
    #[cfg_attr(miri, ignore = "a million hashes")]
    fn a_set_whose_hashes_come_and_go_stays_near_its_capacity() {
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
        for count in [1, SPLIT_FROM, SPLIT_FROM + 1, 3 * HashSet::RUN, 3 * HashSet::RUN + 5] {
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
    fn a_copy_is_equal_and_lives_its_own_life() {
        let mut set = set_of(&random_hashes(&mut Rng::with_seed(11), MANY));
        let mut copy = set.try_clone().unwrap();
        check(&copy);
        assert!(copy == set);
        let hash = sorted(&set)[MANY / 2];
        assert!(copy.remove(hash) && set.contains(hash) && copy != set);
        assert_eq!(copy.insert(random_hash(&mut Rng::with_seed(12))), Ok(true));
        assert!(copy.len() == set.len() && copy != set);
        set.clear();
        assert_eq!((set.len(), set.allocated_bytes()), (0, 0));
        assert!(set == HashSet::new() && set.insert(hash) == Ok(true));
    }

    #[test]
    fn it_may_be_used_by_any_thread() {
        fn is_send<T: Send + Sync>(_: &T) {}
        is_send(&HashSet::new());
    }

    #[test]
    fn a_range_has_all_hashes_in_it_and_no_other() {
        let mut all = random_hashes(&mut Rng::with_seed(9), MANY);
        let set = set_of(&all);
        all.sort_unstable();
        let at = |part: u64| u64::MAX / 100 * part;
        let edges = all[all.len() / 3].h1;
        for (first, last) in [(0, u64::MAX), (at(3), at(4)), (at(50), at(99)), (0, 0), (edges, edges), (at(9), at(8))] {
            let found: Vec<_> = set.between(first, last).collect();
            let expected: Vec<_> = all.iter().copied().filter(|hash| hash.h1 >= first && hash.h1 <= last).collect();
            assert!(found == expected, "{first} {last}: {} {}", found.len(), expected.len());
        }
        assert_eq!(HashSet::new().between(0, u64::MAX).count(), 0);
    }

    #[test]
    fn a_set_is_taken_apart_while_it_grows() {
        let all = random_hashes(&mut Rng::with_seed(9), MANY);
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

    /// The limit of 0.2.0: a replica of that version must accept what its primary accepts.
    #[test]
    fn the_capacity_for_a_limit_is_that_of_0_2_0() {
        let limits = [0, 63, 64, 255, 256, 661, 662, 1159, 1160, 4147, 4148, 5656, 5680, 122_880, 1 << 30, u64::MAX];
        let capacities =
            [0, 0, 4, 12, 16, 16, 26, 26, 52, 182, 208, 209, 210, 5093, 44_739_216, 768_614_336_404_564_623];
        assert_eq!(limits.map(HashSet::capacity_in), capacities);
    }
}
