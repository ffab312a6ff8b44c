//! An exact set of 128-bit hashes, 17 bytes a slot and nothing else for an entry.
//!
//! It is extendible hashing (Fagin, Nievergelt, Pippenger, Strong: Extendible hashing, a fast access method for dynamic
//! files, 1979): the top bits of `h1` name an entry of a directory, which names a part, which is a table of at most 68 KiB
//! ([`part`]). A part that is full doubles, or splits in two by the next bit of `h1`. So no growth touches more than a part
//! and, now and then, the directory: 4 bytes for some 2000 entries.

mod growth;
mod part;
mod tags;
#[cfg(test)]
mod tests;

use part::{ENTRIES_MAX, FREE, Part, table_bytes};

use crate::cells::{Mover, relocate_elements};
use crate::error::Error;
use crate::hash::ItemHash;
use crate::mask::{BATCH, Mask};
use crate::memory::reserve;

/// An exact set of hashes, with a limit to its memory for each insert. The hash 0, 0 cannot be in it: it marks a free slot. An
/// item has it by a chance of 2^-128.
#[derive(Default)]
pub struct HashSet {
    /// In the order in which they were made.
    parts: Vec<Part>,
    /// Of each value of the top `depth` bits of `h1`, the number of its part. Empty where there are no parts. A part whose
    /// own depth is less has several neighbouring places.
    directory: Vec<u32>,
    depth: u32,
    len: u64,
    /// Bytes of the tables of all parts.
    tables_bytes: u64,
}

impl HashSet {
    /// The empty set. It asks for no memory.
    #[must_use]
    pub const fn new() -> Self {
        Self { parts: Vec::new(), directory: Vec::new(), depth: 0, len: 0, tables_bytes: 0 }
    }

    /// The number of hashes in it.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is none in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that were asked of the allocator: tables, the list of parts and the directory. Looks at no part.
    #[must_use]
    pub const fn allocated_bytes(&self) -> u64 {
        let lists = self.parts.capacity() * size_of::<Part>() + self.directory.capacity() * size_of::<u32>();
        self.tables_bytes + lists as u64
    }

    /// Number of parts that it lies in.
    #[must_use]
    pub const fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// Whether a hash is in it.
    #[inline]
    #[must_use]
    pub fn contains(&self, hash: ItemHash) -> bool {
        self.part_of(hash).is_some_and(|part| part.contains(hash))
    }

    /// Which hashes of the mask `wanted` are in it, of up to [`BATCH`] (the rest of a longer list is not looked at). The tags
    /// of all of them are on their way into the cache before the first is looked at, then the slots of those whose tag is there.
    #[inline]
    #[must_use]
    pub fn contains_batch(&self, hashes: &[ItemHash], wanted: Mask) -> Mask {
        let mut present = Mask::NONE;
        if self.is_empty() {
            return present;
        }
        // What the first pass finds the second need not look for.
        let mut parts = [None::<&Part>; BATCH];
        for (part, (_, hash)) in parts.iter_mut().zip(wanted.each_of(hashes)) {
            *part = self.part_of(hash);
            if let Some(part) = part {
                part.prefetch(hash);
            }
        }
        // Those with a suspect, one after the other: without a branch for each, which could be guessed wrong.
        let (mut suspects, mut count) = ([None; BATCH], 0);
        for (part, (item, hash)) in parts.iter().zip(wanted.each_of(hashes)) {
            let (Some(part), Some(place)) = (part, suspects.get_mut(count)) else { continue };
            let found = part.suspects(hash);
            *place = Some((item, found));
            count += usize::from(found.are_there());
        }
        let suspects = suspects.get(..count).unwrap_or_default();
        suspects.iter().flatten().for_each(|(_, suspects)| suspects.prefetch());
        for (item, suspects) in suspects.iter().flatten() {
            present |= item.only_if(suspects.have_it());
        }
        present
    }

    /// Puts a hash in; answers whether it was not in yet. A growth after which [`allocated_bytes`](Self::allocated_bytes)
    /// would be above `limit_bytes` is not made: the part then takes what it still can, up to fifteen sixteenths.
    ///
    /// # Errors
    /// [`Error::NoRoomForDeleted`] where the limit, or more than 3840 hashes with the same 20 top bits of `h1`,
    /// keep it from growing; [`Error::OutOfMemory`] where the allocator does; [`Error::Unsound`] for the hash 0, 0. The set
    /// holds what it held.
    pub fn insert(&mut self, hash: ItemHash, limit_bytes: u64) -> Result<bool, Error> {
        if hash == FREE {
            return Err(Error::Unsound);
        }
        if self.contains(hash) {
            return Ok(false);
        }
        self.make_room(hash, limit_bytes)?;
        let is_new = self.part_of_mut(hash).is_some_and(|part| part.put(hash));
        self.len += u64::from(is_new);
        Ok(is_new)
    }

    /// Takes a hash out; answers whether it was in. A part keeps its table until it is empty; the empty set has no memory.
    pub fn remove(&mut self, hash: ItemHash) -> bool {
        let Some(part) = self.part_of_mut(hash) else { return false };
        let slots = part.slots.len();
        if !part.take(hash) {
            return false;
        }
        let given_back = table_bytes(slots) - table_bytes(part.slots.len());
        self.tables_bytes -= given_back as u64;
        self.len -= 1;
        if self.is_empty() {
            self.clear();
        }
        true
    }

    /// Empties it and gives its memory back.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// An equal set.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn try_clone(&self) -> Result<Self, Error> {
        let (mut parts, mut directory) = (Vec::new(), Vec::new());
        reserve(&mut parts, self.parts.len())?;
        reserve(&mut directory, self.directory.len())?;
        directory.extend_from_slice(&self.directory);
        for part in &self.parts {
            parts.push(part.try_clone()?);
        }
        Ok(Self { parts, directory, ..*self })
    }

    /// Lets the mover move the memory of the parts from number `first` on. Answers with the number of the part to go on
    /// with, if the mover has done enough before the last. A set that grew in between may go on from there: a new part is
    /// the last.
    pub fn relocate(&mut self, first: usize, mover: &mut impl Mover) -> Option<usize> {
        if first == 0 {
            relocate_elements(&mut self.parts, mover);
            relocate_elements(&mut self.directory, mover);
        }
        let count = self.parts.len();
        for (index, part) in self.parts.iter_mut().enumerate().skip(first) {
            part.relocate(mover);
            if index + 1 < count && mover.has_done_enough() {
                return Some(index + 1);
            }
        }
        None
    }

    /// All hashes in ascending order, in runs of one part each, which has at most 3840. Sorts a copy of a part on
    /// the stack (60 KiB), so that a save needs no memory.
    ///
    /// # Errors
    /// Those of `f`, which is not called again then.
    pub fn for_each_sorted_run<E>(&self, mut f: impl FnMut(&[ItemHash]) -> Result<(), E>) -> Result<(), E> {
        let mut copy = [FREE; ENTRIES_MAX];
        for part in self.parts_in_order() {
            let run = copy.get_mut(..part.entries()).unwrap_or_default();
            run.iter_mut().zip(part.hashes()).for_each(|(to, from)| *to = from);
            run.sort_unstable();
            if !run.is_empty() {
                f(run)?;
            }
        }
        Ok(())
    }

    /// Puts in a run of hashes that follow, in ascending order, those that it has: for a reader. Looks for the last one that
    /// it has, which costs up to some microseconds a call.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a hash that is not above the one before it, [`Error::OutOfMemory`], [`Error::NoRoomForDeleted`]
    /// for hashes that no set can hold together. What came before it in the run is in then.
    pub fn extend_sorted(&mut self, run: &[ItemHash]) -> Result<(), Error> {
        // No hash is below the one that marks a free slot.
        let mut last = self.parts_in_order().rev().find_map(|part| part.hashes().max()).unwrap_or(FREE);
        for hash in run {
            if *hash <= last {
                return Err(Error::Unsound);
            }
            self.insert(*hash, u64::MAX)?;
            last = *hash;
        }
        Ok(())
    }

    /// The parts in the order of the hashes in them.
    fn parts_in_order(&self) -> impl DoubleEndedIterator<Item = &Part> {
        let place = |(place, number): (usize, &u32)| {
            let part = usize::try_from(*number).ok().and_then(|number| self.parts.get(number))?;
            // The first of the places that it has.
            place.is_multiple_of(1 << self.depth.saturating_sub(part.depth)).then_some(part)
        };
        self.directory.iter().enumerate().filter_map(place)
    }

    /// The number of the part where a hash is, if it is in the set.
    #[inline]
    fn number_of(&self, hash: ItemHash) -> Option<usize> {
        self.directory.get(place(hash, self.depth)).and_then(|number| usize::try_from(*number).ok())
    }

    #[inline]
    fn part_of(&self, hash: ItemHash) -> Option<&Part> {
        self.parts.get(self.number_of(hash)?)
    }

    fn part_of_mut(&mut self, hash: ItemHash) -> Option<&mut Part> {
        let number = self.number_of(hash)?;
        self.parts.get_mut(number)
    }
}

/// A hash's place in a directory of so many bits, at most 20: the top bits of `h1`.
#[inline]
const fn place(hash: ItemHash, depth: u32) -> usize {
    // In two steps: a shift by 64 is none.
    (hash.h1 >> 1 >> (63 - depth)) as usize
}

/// Equal as sets. Looks every hash of one up in the other.
impl PartialEq for HashSet {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.parts.iter().flat_map(Part::hashes).all(|hash| other.contains(hash))
    }
}

impl std::fmt::Debug for HashSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HashSet").field("len", &self.len).field("parts", &self.parts.len()).finish_non_exhaustive()
    }
}
