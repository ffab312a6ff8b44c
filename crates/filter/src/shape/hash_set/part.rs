//! A part of a set of hashes: one open-addressing table. A hash lies in the slot that the low bits of `h2` name, its home, or
//! in one after it. No hash is nearer to its home than one before it in the same run would be there (Celis: Robin Hood
//! hashing, 1986), so a search for what is not in ends after as many slots as one for what is: some 8 in a table that is
//! fifteen sixteenths full, where it would be 128. When a hash goes, those after it move up: there are no tombstones.
//!
//! Only adds search the slots themselves. Who asks whether a hash is in looks at the tags ([`tags`](super::tags)) of as many
//! slots as lie between any hash of the table and its home, and at the slots whose tag is that of the hash.

use super::tags::{Tag, Tags, WORD_TAGS, each_bit};
use crate::cells::prefetch::prefetch;
use crate::cells::{Mover, relocate_slice};
use crate::error::Error;
use crate::hash::ItemHash;
use crate::memory::{reserve, try_copy};

/// A free slot.
pub(super) const FREE: ItemHash = ItemHash { h1: 0, h2: 0 };
/// Slots of the smallest table.
pub(super) const SLOTS_MIN: usize = 4;
/// Slots of the largest table, 64 KiB: what the longest growth, a split, copies.
pub(super) const SLOTS_MAX: usize = 4096;
/// The most hashes of a table: one slot of sixteen stays free, so that every search comes to an end.
pub(super) const ENTRIES_MAX: usize = SLOTS_MAX / 16 * 15;

/// A table of hashes, and the number of top bits of `h1` that all of them share.
#[derive(Default)]
pub(super) struct Part {
    /// None, or a power of two.
    pub(super) slots: Box<[ItemHash]>,
    tags: Tags,
    entries: u32,
    pub(super) depth: u32,
}

/// Bytes of a table of so many slots: 17 a slot, 72 for the smallest.
pub(super) const fn table_bytes(slots: usize) -> usize {
    slots * size_of::<ItemHash>() + Tags::bytes(slots)
}

/// The slots of a part whose tags are that of a hash.
#[derive(Clone, Copy)]
pub(super) struct Suspects<'a> {
    part: &'a Part,
    hash: ItemHash,
    near: u64,
}

impl Suspects<'_> {
    /// Whether there may be one.
    #[inline]
    pub(super) const fn are_there(&self) -> bool {
        (self.near != 0) | self.part.tags.is_far()
    }

    /// Starts to load the first of them.
    #[inline]
    pub(super) fn prefetch(&self) {
        let first = self.part.home(self.hash).wrapping_add(self.near.trailing_zeros() as usize) & self.part.last();
        prefetch(self.part.slots.as_ptr().wrapping_add(first).cast());
    }

    /// Whether the hash lies in one of them.
    #[inline]
    pub(super) fn have_it(&self) -> bool {
        let (part, home) = (self.part, self.part.home(self.hash));
        let is_near = each_bit(self.near).any(|bit| part.slots.get((home + bit) & part.last()) == Some(&self.hash));
        is_near || part.tags.is_far() && part.contains(self.hash)
    }
}

impl Part {
    /// An empty part, which asks for no memory.
    pub(super) fn without_table(depth: u32) -> Self {
        Self { depth, ..Self::default() }
    }

    /// An empty part with a table of so many slots, a power of two or none.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn with_slots(slots: usize, depth: u32) -> Result<Self, Error> {
        let mut table = Vec::new();
        reserve(&mut table, slots)?;
        table.resize(slots, FREE);
        Ok(Self { slots: table.into_boxed_slice(), tags: Tags::free(slots)?, entries: 0, depth })
    }

    /// An equal part.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn try_clone(&self) -> Result<Self, Error> {
        Ok(Self { slots: try_copy(&self.slots)?, tags: self.tags.try_clone()?, ..*self })
    }

    /// Lets the mover move its table.
    pub(super) fn relocate(&mut self, mover: &mut impl Mover) {
        relocate_slice(&mut self.slots, mover);
        self.tags.relocate(mover);
    }

    /// Number of hashes in it.
    pub(super) const fn entries(&self) -> usize {
        self.entries as usize
    }

    /// Whether one more leaves it at most three quarters full.
    pub(super) fn has_room(&self) -> bool {
        self.entries() < self.slots.len() / 4 * 3
    }

    /// Whether one more leaves it at most fifteen sixteenths full.
    pub(super) fn has_last_room(&self) -> bool {
        self.entries() < self.slots.len() * 15 / 16
    }

    /// Its hashes, in no order.
    pub(super) fn hashes(&self) -> impl Iterator<Item = ItemHash> {
        self.slots.iter().copied().filter(|hash| *hash != FREE)
    }

    #[inline]
    pub(super) fn contains(&self, hash: ItemHash) -> bool {
        self.slot_of(hash).is_some()
    }

    /// Starts to load what [`suspects`](Self::suspects) looks at.
    #[inline]
    pub(super) fn prefetch(&self, hash: ItemHash) {
        self.tags.prefetch(self.home(hash));
    }

    /// Where a hash may lie, going by the tags.
    #[inline]
    pub(super) fn suspects(&self, hash: ItemHash) -> Suspects<'_> {
        let near = self.tags.near(self.home(hash), Tag::of(hash));
        Suspects { part: self, hash, near }
    }

    /// The slot of a hash that is in.
    #[inline]
    fn slot_of(&self, hash: ItemHash) -> Option<usize> {
        let home = self.home(hash);
        let mut slots = self.tags.distances(home, Tag::of(hash)).map(|distance| (home + distance) & self.last());
        slots.find(|slot| self.slots.get(*slot) == Some(&hash))
    }

    /// Puts in a hash that is not [`FREE`]; answers whether it is new. Without a table it does nothing.
    pub(super) fn put(&mut self, hash: ItemHash) -> bool {
        let Some(slot) = self.place(hash) else { return false };
        self.make_gap(slot);
        self.fill(slot, hash);
        self.entries += 1;
        true
    }

    /// Moves what is from a slot on to the next free one, each to the slot after it.
    fn make_gap(&mut self, mut slot: usize) {
        let mut moved = FREE;
        while let Some(&there) = self.slots.get(slot) {
            self.fill(slot, moved);
            if there == FREE {
                return;
            }
            moved = there;
            slot = self.after(slot);
        }
    }

    /// Takes a hash out; answers whether it was in. The table of an empty part is given back.
    pub(super) fn take(&mut self, hash: ItemHash) -> bool {
        let Some(slot) = self.slot_of(hash) else { return false };
        self.entries -= 1;
        if self.entries == 0 {
            *self = Self::without_table(self.depth);
        } else {
            self.close_gap(slot);
        }
        true
    }

    /// Frees a slot: each hash after it moves up, to the first that is at home.
    fn close_gap(&mut self, mut gap: usize) {
        let mut slot = self.after(gap);
        while let Some(&hash) = self.slots.get(slot).filter(|hash| **hash != FREE) {
            if self.distance(hash, slot) == 0 {
                break;
            }
            self.fill(gap, hash);
            gap = slot;
            slot = self.after(slot);
        }
        self.fill(gap, FREE);
    }

    /// The slot for a hash that is not in: a free one, or that of a hash which is nearer to its home.
    fn place(&self, hash: ItemHash) -> Option<usize> {
        let (mut slot, mut distance) = (self.home(hash), 0);
        while let Some(&there) = self.slots.get(slot).filter(|there| **there != hash) {
            // One branch for both, which ends the search: they are as hard to guess as two.
            if (there == FREE) | (self.distance(there, slot) < distance) {
                return Some(slot);
            }
            slot = self.after(slot);
            distance += 1;
        }
        None
    }

    /// How many slots after its home a hash lies.
    #[inline]
    fn distance(&self, hash: ItemHash, slot: usize) -> usize {
        slot.wrapping_sub(self.home(hash)) & self.last()
    }

    /// The slot where the search for a hash begins.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are those of a slot")]
    fn home(&self, hash: ItemHash) -> usize {
        hash.h2 as usize & self.last()
    }

    #[inline]
    fn after(&self, slot: usize) -> usize {
        (slot + 1) & self.last()
    }

    /// The number of the last slot. Without a table any number will do: no slot has it.
    #[inline]
    fn last(&self) -> usize {
        self.slots.len().wrapping_sub(1)
    }

    fn fill(&mut self, slot: usize, hash: ItemHash) {
        let distance = self.distance(hash, slot);
        let Some(place) = self.slots.get_mut(slot) else { return };
        *place = hash;
        // A table that is smaller than a word of tags has them in it twice.
        for copy in (slot..WORD_TAGS.max(slot + 1)).step_by(self.slots.len()) {
            if hash == FREE { self.tags.set_free(copy) } else { self.tags.set(copy, Tag::of(hash), distance) }
        }
    }
}

/// The smallest table that has room for so many hashes, in slots.
pub(super) fn slots_for(entries: usize) -> usize {
    let mut slots = SLOTS_MIN;
    while slots < SLOTS_MAX && slots / 4 * 3 < entries {
        slots *= 2;
    }
    slots
}
