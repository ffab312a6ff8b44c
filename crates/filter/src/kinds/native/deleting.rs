//! The table of what was deleted from a native filter.
//!
//! Bits cannot be taken back, for they are those of other items, too. So the hash of a deleted item goes into a table, exact
//! and as wide as the hash is: the filter finds an item where its bits are set and the table has it not. That needs a
//! hash that nobody can find a second item for, so only filters with a keyed hash can delete.
//!
//! Every entry's bits are set, whoever made it: where the filter is asked for an item and one of its bits is not set, the
//! table is not looked at.

use super::BloomFilter;
use crate::ceiling::Ceiling;
use crate::cells::{Mover, relocate_boxed};
use crate::error::Error;
use crate::hash::ItemHash;
use crate::kinds::kind::{Origin, Removed};
use crate::mask::{BATCH, Mask};
use crate::memory::try_box;
use crate::shape::{Added, HashSet};

/// What an entry counts for in the size of a filter.
const ENTRY_BYTES: u64 = size_of::<ItemHash>() as u64;

/// The table of deleted items.
#[derive(Debug, Default)]
pub(super) struct Deleted {
    pub(super) hashes: HashSet,
    /// Counts the changes: a dump of the table that changes meanwhile would be of no moment.
    pub(super) revision: u64,
}

impl Deleted {
    /// An equal table.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn try_clone(&self) -> Result<Box<Self>, Error> {
        try_box(Self { hashes: self.hashes.try_clone()?, revision: self.revision })
    }

    /// Bytes that were asked of the allocator, its own fields included.
    pub(super) const fn allocated_bytes(&self) -> u64 {
        self.hashes.allocated_bytes() + size_of::<Self>() as u64
    }

    /// The table, made where there is none.
    fn of(place: &mut Option<Box<Self>>) -> Result<&mut Self, Error> {
        Ok(match place {
            Some(deleted) => deleted,
            none => none.insert(try_box(Self::default())?),
        })
    }

    const fn has_changed(&mut self) {
        self.revision = self.revision.wrapping_add(1);
    }
}

/// Deleting.
impl BloomFilter {
    /// Number of entries of the table of deleted items.
    #[inline]
    #[must_use]
    pub fn deleted_entries(&self) -> u64 {
        self.deleted.as_deref().map_or(0, |deleted| deleted.hashes.len())
    }

    /// What the entries count for in its size, in bytes.
    #[inline]
    pub(super) fn entries_bytes(&self) -> u64 {
        self.deleted_entries().saturating_mul(ENTRY_BYTES)
    }

    /// The table of deleted items.
    pub(crate) fn deleted(&self) -> Option<&HashSet> {
        self.deleted.as_deref().map(|deleted| &deleted.hashes).filter(|hashes| !hashes.is_empty())
    }

    /// How often the table has changed.
    pub(crate) fn revision(&self) -> u64 {
        self.deleted.as_deref().map_or(0, |deleted| deleted.revision)
    }

    /// The number of entries at which the table refuses a client's delete: as many as fit the bytes of the bits. It follows
    /// from the layers alone, so a filter and its copy take the same deletes.
    #[must_use]
    pub const fn deleted_entries_max(&self) -> u64 {
        HashSet::capacity_in(self.chain.cells_bytes())
    }

    /// Number of parts that the table lies in.
    pub(super) fn table_parts(&self) -> usize {
        self.deleted.as_deref().map_or(0, |deleted| deleted.hashes.part_count())
    }

    /// Lets the mover move the table from part number `first` on; see [`HashSet::relocate`].
    pub(super) fn relocate_table(&mut self, first: usize, mover: &mut impl Mover) -> Option<usize> {
        let deleted = self.deleted.as_mut()?;
        if first == 0 {
            relocate_boxed(deleted, mover);
        }
        deleted.hashes.relocate(first, mover)
    }

    #[inline]
    pub(super) fn has_deleted(&self, hash: ItemHash) -> bool {
        self.deleted.as_deref().is_some_and(|deleted| deleted.hashes.contains(hash))
    }

    /// Those of the items that the chain has which were not deleted.
    #[inline]
    pub(super) fn but_deleted(&self, hashes: &[ItemHash], present: Mask) -> Mask {
        match &self.deleted {
            Some(deleted) if !present.is_empty() => present - deleted.hashes.contains_batch(hashes, present),
            _ => present,
        }
    }

    /// Deletes up to [`BATCH`] items together (the rest of a longer list is not looked at), in order: the answers are those
    /// of deleting them one by one.
    pub(crate) fn delete_batch(&mut self, hashes: &[ItemHash], origin: Origin, ceiling: &impl Ceiling) -> Removed {
        let present = self.chain.contains_batch(hashes);
        let mut removed = Removed { found: Mask::NONE, done: 0, error: None };
        for (index, hash) in hashes.iter().take(BATCH).enumerate() {
            if present.contains(index) {
                match self.delete(*hash, origin, ceiling) {
                    Ok(is_found) => removed.found.insert_if(index, is_found),
                    Err(error) => {
                        removed.error = Some(error);
                        break;
                    }
                }
            }
            removed.done = index + 1;
        }
        removed
    }

    /// Deletes the item with this hash, whose bits are set: makes its entry. Answers whether the filter found the item: whether
    /// there was no entry.
    ///
    /// # Errors
    /// [`Error::NoRoomForDeleted`]; an effect fails only for lack of memory, [`Error::OutOfMemory`]. The filter is unchanged.
    pub(crate) fn delete(&mut self, hash: ItemHash, origin: Origin, ceiling: &impl Ceiling) -> Result<bool, Error> {
        if self.has_deleted(hash) {
            return Ok(false);
        }
        if origin == Origin::Effect {
            return self.make_entry(hash);
        }
        let entries = self.deleted_entries();
        let has_room = entries < self.deleted_entries_max() && ceiling.allow(self.size_bytes(), ENTRY_BYTES).is_ok();
        let made = if has_room { self.make_entry(hash).ok() } else { None };
        made.ok_or(Error::NoRoomForDeleted { entries })
    }

    /// Makes an entry. Answers whether there was none.
    fn make_entry(&mut self, hash: ItemHash) -> Result<bool, Error> {
        let deleted = Deleted::of(&mut self.deleted)?;
        let is_new = deleted.hashes.insert(hash)?;
        if is_new {
            deleted.has_changed();
        }
        Ok(is_new)
    }

    /// Takes the entry of a deleted item out; answers whether there was one.
    pub(crate) fn restore(&mut self, hash: ItemHash) -> bool {
        let Some(deleted) = &mut self.deleted else { return false };
        let was_deleted = deleted.hashes.remove(hash);
        if was_deleted {
            deleted.has_changed();
        }
        was_deleted
    }

    /// Items of a batch of adds that were deleted are new, though the chain has their bits. What it has not, no table has.
    #[cold]
    pub(super) fn restore_batch(&mut self, hashes: &[ItemHash], known: Mask, added: &mut Added) {
        let Some(deleted) = &self.deleted else { return };
        let restored = deleted.hashes.contains_batch(hashes, Mask::first(added.done) - known - added.new);
        for (index, hash) in hashes.iter().take(BATCH).enumerate() {
            // One that comes twice in the batch is new once.
            if restored.contains(index) && self.restore(*hash) {
                added.new.insert(index);
                added.effect.insert(index);
            }
        }
    }

    /// Has another table from now on.
    pub(super) fn replace_deleted(&mut self, table: Box<Deleted>) {
        self.deleted = Some(table);
    }

    /// Takes a run of a table that was stored, in order.
    ///
    /// # Errors
    /// [`Error::Unsound`] for hashes that no table of this filter can have, or not in this order; [`Error::OutOfMemory`]. The
    /// filter is as it was then.
    pub(crate) fn take_deleted(&mut self, run: &[ItemHash]) -> Result<(), Error> {
        if run.is_empty() {
            return Ok(());
        }
        let bytes = self.entries_bytes().saturating_add((run.len() as u64).saturating_mul(ENTRY_BYTES));
        let have_bits = run.chunks(BATCH).all(|batch| self.chain.contains_batch(batch) == Mask::first(batch.len()));
        // A replica's table may hold more entries than a client can make, but never takes more bytes than the bits.
        if !self.spec().hasher.is_keyed() || bytes > self.chain.cells_bytes() || !have_bits {
            return Err(Error::Unsound);
        }
        let had_table = self.deleted.is_some();
        let deleted = Deleted::of(&mut self.deleted)?;
        let taken = deleted.hashes.extend_sorted(run);
        match taken {
            Ok(()) => deleted.has_changed(),
            Err(_) if !had_table => self.deleted = None,
            Err(_) => {}
        }
        taken
    }
}
