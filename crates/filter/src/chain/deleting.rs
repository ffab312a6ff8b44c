//! Deletes from a chain by its table of deleted items.

use super::Chain;
use super::adding::{Added, Origin, Removed};
use super::extras::{Deleted, ENTRY_BYTES};
use super::hash_set::HashSet;
use super::lookup::exact_hashes;
use super::pending::CellsReader;
use super::rules::{HashOf, Rules};
use crate::error::Error;
use crate::geometry::{Geometry, SupportsPending as _};
use crate::hash::ItemHash;
use crate::host::Ceiling;
use crate::mask::{BATCH, Mask};

/// The table of deleted items.
impl<R: Rules> Chain<R> {
    /// The number of entries in the table of deleted items.
    #[inline]
    pub fn deleted_entries(&self) -> u64 {
        self.table().map_or(0, |deleted| deleted.hashes.len())
    }

    /// The size of the entries, in bytes.
    #[inline]
    pub(super) fn entries_bytes(&self) -> u64 {
        self.deleted_entries().saturating_mul(ENTRY_BYTES)
    }

    /// Returns the table of deleted items; `None` if it is empty.
    #[inline]
    pub(crate) fn deleted(&self) -> Option<&HashSet> {
        self.table().map(|deleted| &deleted.hashes).filter(|hashes| !hashes.is_empty())
    }

    /// The number of times that the table has changed.
    pub(crate) fn revision(&self) -> u64 {
        self.table().map_or(0, Deleted::revision)
    }

    /// The number of entries at which the table refuses a client's delete: the table may take as many bytes as the bits. It
    /// depends on the layers only, so a filter and its copy accept the same deletes.
    pub fn deleted_entries_max(&self) -> u64 {
        HashSet::capacity_in(self.cells_bytes())
    }

    /// Whether an item was deleted.
    #[inline]
    pub(super) fn has_deleted(&self, hash: HashOf<R>) -> bool {
        self.table().is_some_and(|deleted| deleted.hashes.contains(R::Geometry::to_pending(hash)))
    }

    /// Returns the `present` items that were not deleted.
    #[inline]
    pub(crate) fn clear_deleted(&self, hashes: &[HashOf<R>], present: Mask) -> Mask {
        match self.deleted() {
            Some(table) if !present.is_empty() => present - table.contains_batch(&exact_hashes::<R>(hashes), present),
            _ => present,
        }
    }

    /// Removes the entry of a deleted item. Returns whether there was one.
    pub(crate) fn restore(&mut self, hash: HashOf<R>) -> bool {
        self.table_mut().is_some_and(|deleted| deleted.remove(R::Geometry::to_pending(hash)))
    }

    /// Removes the entries of those items of a batch of adds that were found in the cells. They count as new.
    #[cold]
    pub(super) fn restore_batch(&mut self, hashes: &[HashOf<R>], known: Mask, added: &mut Added) {
        let Some(table) = self.deleted() else { return };
        let found = Mask::first(added.done) - known - added.new;
        let deleted = table.contains_batch(&exact_hashes::<R>(hashes), found);
        for (index, hash) in hashes.iter().enumerate() {
            // An item that occurs twice in the batch is new once.
            if deleted.contains(index) && self.restore(*hash) {
                added.new.insert(index);
                added.effect.insert(index);
            }
        }
    }
}

/// Deletes.
impl<R: Rules> Chain<R>
where
    R::Geometry: Geometry<Hash = ItemHash>,
{
    /// Deletes the items of a batch, in order.
    ///
    /// The primary may have found an item by bits that are still pending here, if this server was the primary until a moment ago.
    /// So an effect is looked up in the cells with the pending adds included.
    pub(crate) fn delete_batch(&mut self, hashes: &[ItemHash], origin: Origin, ceiling: &impl Ceiling) -> Removed {
        let present = if origin == Origin::Effect && self.pends() {
            match CellsReader::new(self) {
                Ok(mut cells) => cells.has_cells_batch(hashes),
                Err(refused) => return Removed { found: Mask::NONE, done: 0, error: Some(refused) },
            }
        } else {
            self.has_cells_batch(hashes)
        };
        Removed::each(hashes.len(), present, |index| {
            hashes.get(index).map_or(Ok(false), |hash| self.delete(*hash, origin, ceiling))
        })
    }

    /// Deletes the item with this hash, whose bits are set. Returns whether the filter found it.
    /// On an error, nothing has changed.
    pub(crate) fn delete(&mut self, hash: ItemHash, origin: Origin, ceiling: &impl Ceiling) -> Result<bool, Error> {
        if self.has_deleted(hash) {
            return Ok(false);
        }
        if origin == Origin::Effect {
            return self.insert_deleted(hash);
        }
        let entries = self.deleted_entries();
        if entries >= self.deleted_entries_max() || ceiling.allow(self.size_bytes(), ENTRY_BYTES).is_err() {
            return Err(Error::NoRoomForDeleted { entries });
        }
        self.insert_deleted(hash)
    }

    /// Adds an entry to the table. Returns whether there was none.
    fn insert_deleted(&mut self, hash: ItemHash) -> Result<bool, Error> {
        Deleted::insert(self.deleted_slot()?, hash)
    }

    /// Appends the next entries of a stored table, in order. On an error, nothing has changed.
    pub(crate) fn take_deleted(&mut self, run: &[ItemHash]) -> Result<(), Error> {
        if run.is_empty() {
            return Ok(());
        }
        let bytes = self.entries_bytes().saturating_add((run.len() as u64).saturating_mul(ENTRY_BYTES));
        let have_bits = run.chunks(BATCH).all(|batch| self.has_cells_batch(batch) == Mask::first(batch.len()));
        // A replica's table may have more entries than a client can create, but never more bytes than the bits.
        if bytes > self.cells_bytes() || !have_bits {
            return Err(Error::Unsound);
        }
        Deleted::extend(self.deleted_slot()?, run)
    }

    /// Reserves memory for [`replace_deleted`](Self::replace_deleted), which cannot fail then.
    pub(crate) fn reserve_deleted(&mut self) -> Result<(), Error> {
        self.deleted_slot().map(drop)
    }

    /// Replaces the table.
    pub(crate) fn replace_deleted(&mut self, table: Box<Deleted>) {
        if let Ok(slot) = self.deleted_slot() {
            *slot = Some(table);
        }
    }
}
