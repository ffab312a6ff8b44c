//! A part of a set of hashes: one open-addressing table. A hash lies in the slot that the low bits of `h2` name, its home, or
//! in one after it. No hash is nearer to its home than one before it in the same run would be there (Celis: Robin Hood
//! hashing, 1986), so a search for what is not in ends after as many slots as one for what is: some 8 in a table that is
//! fifteen sixteenths full, where it would be 128. When a hash goes, those after it move up: there are no tombstones.

use crate::cells::prefetch::prefetch;
use crate::error::Error;
use crate::hash::ItemHash;
use crate::memory::reserve;

/// A free slot.
pub(super) const FREE: ItemHash = ItemHash { h1: 0, h2: 0 };
/// Slots of the smallest table.
pub(super) const SLOTS_MIN: usize = 4;
/// Slots of the largest table, 64 KiB: what the longest growth, a split, copies.
pub(super) const SLOTS_MAX: usize = 4096;
/// The most hashes of a table: one slot of sixteen stays free, so that every search comes to an end.
pub(super) const ENTRIES_MAX: usize = SLOTS_MAX / 16 * 15;

/// What a search of a table came upon.
enum Found {
    /// The hash, in this slot.
    At(usize),
    /// The slot where it would be: a free one, or that of a hash which is nearer to its home.
    Place(usize),
    /// No table.
    Nothing,
}

/// A table of hashes, and the number of top bits of `h1` that all of them share.
#[derive(Default)]
pub(super) struct Part {
    /// None, or a power of two.
    pub(super) slots: Vec<ItemHash>,
    pub(super) entries: usize,
    pub(super) depth: u32,
}

impl Part {
    /// An empty part with a table of so many slots, a power of two or none.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn with_slots(slots: usize, depth: u32) -> Result<Self, Error> {
        let mut table = Vec::new();
        reserve(&mut table, slots)?;
        table.resize(slots, FREE);
        Ok(Self { slots: table, entries: 0, depth })
    }

    /// An equal part.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn try_clone(&self) -> Result<Self, Error> {
        let mut slots = Vec::new();
        reserve(&mut slots, self.slots.len())?;
        slots.extend_from_slice(&self.slots);
        Ok(Self { slots, ..*self })
    }

    /// Whether one more leaves it at most three quarters full.
    pub(super) fn has_room(&self) -> bool {
        self.entries < self.slots.len() / 4 * 3
    }

    /// Whether one more leaves it at most fifteen sixteenths full.
    pub(super) fn has_last_room(&self) -> bool {
        self.entries < self.slots.len() * 15 / 16
    }

    /// Its hashes, in no order.
    pub(super) fn hashes(&self) -> impl Iterator<Item = ItemHash> {
        self.slots.iter().copied().filter(|hash| *hash != FREE)
    }

    #[inline]
    pub(super) fn contains(&self, hash: ItemHash) -> bool {
        matches!(self.find(hash), Found::At(_))
    }

    /// Starts to load the slots where a search begins, twelve: as many as most searches come to.
    #[inline]
    pub(super) fn prefetch(&self, hash: ItemHash) {
        let home = self.slots.as_ptr().wrapping_add(self.home(hash));
        prefetch(home.cast());
        prefetch(home.wrapping_add(4).cast());
        prefetch(home.wrapping_add(8).cast());
    }

    /// Puts in a hash that is not [`FREE`]; answers whether it is new. Without a table it does nothing.
    pub(super) fn put(&mut self, hash: ItemHash) -> bool {
        let Found::Place(slot) = self.find(hash) else { return false };
        self.make_gap(slot);
        self.fill(slot, hash);
        self.entries += 1;
        true
    }

    /// Moves what is from a slot on to the next free one, each to the slot after it.
    fn make_gap(&mut self, mut slot: usize) {
        let mut moved = FREE;
        while let Some(there) = self.slots.get_mut(slot) {
            std::mem::swap(there, &mut moved);
            if moved == FREE {
                return;
            }
            slot = self.after(slot);
        }
    }

    /// Takes a hash out; answers whether it was in. The table of an empty part is given back.
    pub(super) fn take(&mut self, hash: ItemHash) -> bool {
        let Found::At(slot) = self.find(hash) else { return false };
        self.entries -= 1;
        if self.entries == 0 {
            self.slots = Vec::new();
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

    #[inline]
    fn find(&self, hash: ItemHash) -> Found {
        let (mut slot, mut distance) = (self.home(hash), 0);
        while let Some(&there) = self.slots.get(slot) {
            // One branch for both, which ends the search: they are as hard to guess as two.
            if (there == FREE) | (self.distance(there, slot) < distance) {
                return Found::Place(slot);
            }
            if there == hash {
                return Found::At(slot);
            }
            slot = self.after(slot);
            distance += 1;
        }
        Found::Nothing
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
        if let Some(place) = self.slots.get_mut(slot) {
            *place = hash;
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
