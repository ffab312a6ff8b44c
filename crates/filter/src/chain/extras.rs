//! Rarely used state of a chain: pending adds, and a table of deleted items. One pointer leads to both, so that chains without
//! them, of which a server may have millions, are 8 bytes smaller.

use std::fmt::Debug;

use super::hash_set::HashSet;
use crate::cells::{Mover, relocate_boxed};
use crate::error::Error;
use crate::hash::ItemHash;
use crate::mask::Mask;
use crate::memory::{reserve, try_box};

/// Rarely used state, boxed.
#[derive(Debug)]
pub(super) struct ChainExtras<D: DeletedSlot> {
    /// Adds that are counted and not in the cells yet.
    pub(super) pending: Option<Box<Pending>>,
    /// The items that were deleted, if any.
    pub(super) deleted: D,
}

// Pending adds: items that were added to a large layer and are not in its cells yet.
//
// While a child of the server saves, the first write to each page of memory costs a page fault and a copy, 3 to 5
// microseconds. New items are therefore stored next to the layer, in an exact set of hashes that takes 19 to 24 bytes per item,
// and flushed into the cells later, a few at a time. A lookup that does not find an item in the cells consults the set.
//
// Code that reads all cells of a layer, to save or copy them, reads copies of pieces that include the pending adds. The set is
// ordered by the layer's pages, so a piece needs only part of it, and needs no sorting.

/// A set takes at most 1/`SHARE` of its layer's size.
const SHARE: u64 = 8;

/// The pending adds of a chain.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// In the order of the layers, none empty. There are few, because only the newest layer gets new pending adds.
    sets: Vec<Set>,
}

/// The pending adds of a layer.
#[derive(Debug)]
struct Set {
    layer: usize,
    hashes: HashSet,
    /// The `h1` of one of the last flushed hashes. Flushing continues after it.
    last_flushed: u64,
}

impl Pending {
    /// The number of bytes requested from the allocator.
    pub(super) fn allocated_bytes(&self) -> u64 {
        let fields = (size_of::<Self>() + self.sets.capacity() * size_of::<Set>()) as u64;
        self.sets.iter().fold(fields, |sum, set| sum.saturating_add(set.hashes.allocated_bytes()))
    }

    /// Returns the hashes of the pending adds of a layer.
    pub(super) fn of(&self, layer: usize) -> Option<&HashSet> {
        self.sets.iter().rev().find(|set| set.layer == layer).map(|set| &set.hashes)
    }

    /// Returns the most pending adds that a layer of this size may have.
    pub(super) const fn capacity(layer_bytes: u64) -> u64 {
        HashSet::capacity_in((layer_bytes / SHARE).saturating_sub((size_of::<Self>() + size_of::<Set>()) as u64))
    }

    /// Returns how many more bytes the pending adds of a layer of this size may take.
    pub(super) fn growth(place: Option<&Self>, layer: usize, layer_bytes: u64) -> u64 {
        let hashes = place.and_then(|pending| pending.of(layer));
        (layer_bytes / SHARE).saturating_sub(hashes.map_or(0, HashSet::allocated_bytes))
    }

    /// Whether the add of this hash is pending.
    pub(super) fn contains(&self, hash: ItemHash) -> bool {
        self.sets.iter().any(|set| set.hashes.contains(hash))
    }

    /// Returns the hashes of the mask `wanted` whose adds are pending.
    pub(super) fn contains_batch(&self, hashes: &[ItemHash], wanted: Mask) -> Mask {
        self.sets.iter().fold(Mask::NONE, |found, set| found | set.hashes.contains_batch(hashes, wanted - found))
    }

    /// Prefetches the memory that lookups of the hashes of the mask `wanted` read.
    pub(super) fn prefetch(&self, hashes: &[ItemHash], wanted: Mask) {
        self.sets.iter().for_each(|set| set.hashes.prefetch(hashes, wanted));
    }

    /// Prefetches the memory that a lookup or an add of one item reads.
    #[cold]
    #[inline(never)]
    pub(super) fn prefetch_one(&self, hash: ItemHash) {
        self.prefetch(&[hash], Mask::first(1));
    }

    /// Adds a hash to the pending set of the newest layer, which holds at most `most` hashes. Returns whether there was room
    /// and memory.
    pub(super) fn insert(place: &mut Option<Box<Self>>, layer: usize, hash: ItemHash, most: u64) -> bool {
        if let Some(set) = place.as_mut().and_then(|pending| pending.sets.last_mut()).filter(|set| set.layer == layer) {
            return set.hashes.len() < most && set.hashes.insert(hash).is_ok();
        }
        let mut hashes = HashSet::new();
        if most == 0 || hashes.insert(hash).is_err() {
            return false;
        }
        let mut new = None;
        let Some(pending) = place.as_mut().or_else(|| {
            new = try_box(Self::default()).ok();
            new.as_mut()
        }) else {
            return false;
        };
        if reserve(&mut pending.sets, 1).is_err() {
            return false;
        }
        pending.sets.push(Set { layer, hashes, last_flushed: 0 });
        if new.is_some() {
            *place = new;
        }
        true
    }

    /// Removes pending adds of one layer, up to the length of `taken`. Returns the layer and their number.
    pub(super) fn take_some(place: &mut Option<Box<Self>>, taken: &mut [ItemHash]) -> Option<(usize, usize)> {
        let pending = place.as_mut()?;
        let set = pending.sets.first_mut()?;
        let (layer, count) = (set.layer, set.hashes.take_some(set.last_flushed, taken));
        if let Some(first) = taken.first() {
            set.last_flushed = first.h1;
        }
        if set.hashes.is_empty() {
            pending.sets.remove(0);
        }
        if pending.sets.is_empty() {
            *place = None;
        }
        Some((layer, count))
    }
}

// The table of items that were deleted from a chain.
//
// Bits cannot be cleared, because items share them. Instead, the hash of a deleted item is added to an exact table, and the
// filter contains an item if its bits are set and the table does not have its hash. This requires a hash for which nobody can
// construct a second item, so only filters with a keyed hash support deletes.
//
// All bits of every entry are set. A lookup consults the table only if all bits of its item are set.

/// The size of an entry, as BF.INFO counts it.
pub(super) const ENTRY_BYTES: u64 = size_of::<ItemHash>() as u64;

/// The table of deleted items.
#[derive(Debug, Default)]
pub struct Deleted {
    pub(crate) hashes: HashSet,
    /// The number of changes. A dump of the table is void if this changes before it ends.
    revision: u64,
}

/// A chain's place for its table of deleted items: `()`, which takes no space, for kinds without one.
pub trait DeletedSlot: Debug {
    /// An empty slot.
    const EMPTY: Self;
    /// Returns the table, if there is one.
    fn table(&self) -> Option<&Deleted>;
    /// Returns the place of the table, if the kind can have one.
    fn slot(&mut self) -> Option<&mut Option<Box<Deleted>>>;
}

impl DeletedSlot for () {
    const EMPTY: Self = ();
    #[inline]
    fn table(&self) -> Option<&Deleted> {
        None
    }
    #[inline]
    fn slot(&mut self) -> Option<&mut Option<Box<Deleted>>> {
        None
    }
}

impl DeletedSlot for Option<Box<Deleted>> {
    const EMPTY: Self = None;
    #[inline]
    fn table(&self) -> Option<&Deleted> {
        self.as_deref()
    }
    #[inline]
    fn slot(&mut self) -> Option<&mut Option<Box<Deleted>>> {
        Some(self)
    }
}

impl Deleted {
    /// Creates an empty table to replace one with this revision.
    pub(crate) const fn after(revision: u64) -> Self {
        Self { hashes: HashSet::new(), revision: revision.wrapping_add(1) }
    }

    /// Returns an equal table.
    pub(super) fn try_clone(&self) -> Result<Box<Self>, Error> {
        try_box(Self { hashes: self.hashes.try_clone()?, revision: self.revision })
    }

    /// The number of changes so far.
    pub(super) const fn revision(&self) -> u64 {
        self.revision
    }

    /// The number of bytes requested from the allocator, including its own fields.
    pub(super) const fn allocated_bytes(&self) -> u64 {
        self.hashes.allocated_bytes() + size_of::<Self>() as u64
    }

    /// Moves its memory with `mover`, starting at segment number `first`; see [`HashSet::relocate`].
    pub(super) fn relocate(this: &mut Box<Self>, first: usize, mover: &mut impl Mover) -> Option<usize> {
        if first == 0 {
            relocate_boxed(this, mover);
        }
        this.hashes.relocate(first, mover)
    }

    /// Adds an entry. Returns whether there was none.
    pub(super) fn insert(place: &mut Option<Box<Self>>, hash: ItemHash) -> Result<bool, Error> {
        let table = Self::made(place)?;
        let is_new = table.hashes.insert(hash)?;
        table.revision = table.revision.wrapping_add(u64::from(is_new));
        Ok(is_new)
    }

    /// Removes an entry. Returns whether there was one.
    #[cold]
    pub(super) fn remove(&mut self, hash: ItemHash) -> bool {
        let was_in = self.hashes.remove(hash);
        self.revision = self.revision.wrapping_add(u64::from(was_in));
        was_in
    }

    /// Appends entries in ascending order, all above the existing ones.
    /// On an error, nothing has changed.
    pub(super) fn extend(place: &mut Option<Box<Self>>, run: &[ItemHash]) -> Result<(), Error> {
        let had_table = place.is_some();
        let table = Self::made(place)?;
        let taken = table.hashes.extend_sorted(run);
        match taken {
            Ok(()) => table.revision = table.revision.wrapping_add(1),
            Err(_) if !had_table => *place = None,
            Err(_) => {}
        }
        taken
    }

    /// Returns the table, and creates it if it is missing.
    fn made(place: &mut Option<Box<Self>>) -> Result<&mut Self, Error> {
        Ok(match place {
            Some(table) => table,
            none => none.insert(try_box(Self::default())?),
        })
    }
}
