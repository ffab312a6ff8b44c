//! The table of items that were deleted from a chain.
//!
//! Bits cannot be cleared, because other items share them. So the hash of a deleted item goes into an exact table, and the
//! filter finds an item if its bits are set and the table does not contain it. That needs a hash for which nobody can
//! construct a second item: only filters with a keyed hash can delete.
//!
//! All bits of every entry are set. If one of an item's bits is clear, the table is not looked at.

use std::fmt::Debug;

use super::hash_set::HashSet;
use crate::cells::{Mover, relocate_boxed};
use crate::error::Error;
use crate::hash::ItemHash;
use crate::memory::try_box;

/// The bytes of an entry in the size of a filter.
pub(super) const ENTRY_BYTES: u64 = size_of::<ItemHash>() as u64;

/// The table of deleted items.
#[derive(Debug, Default)]
pub struct Deleted {
    pub(crate) hashes: HashSet,
    /// Counts the changes: a dump of a table that changes meanwhile is void.
    revision: u64,
}

/// Where a chain keeps its table of deleted items. A kind without one has `()`, which takes no room.
pub trait DeletedSlot: Debug {
    /// A slot without a table.
    const EMPTY: Self;
    /// The table, if there is one.
    fn table(&self) -> Option<&Deleted>;
    /// The place of the table, if the kind can have one.
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
    /// An empty table that replaces one of this revision.
    pub(crate) const fn after(revision: u64) -> Self {
        Self { hashes: HashSet::new(), revision: revision.wrapping_add(1) }
    }

    /// An equal table.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn try_clone(&self) -> Result<Box<Self>, Error> {
        try_box(Self { hashes: self.hashes.try_clone()?, revision: self.revision })
    }

    /// How often the table has changed.
    pub(super) const fn revision(&self) -> u64 {
        self.revision
    }

    /// Bytes that were asked of the allocator, its own fields included.
    pub(super) const fn allocated_bytes(&self) -> u64 {
        self.hashes.allocated_bytes() + size_of::<Self>() as u64
    }

    /// Lets the mover move it, from part number `first` on; see [`HashSet::relocate`].
    pub(super) fn relocate(this: &mut Box<Self>, first: usize, mover: &mut impl Mover) -> Option<usize> {
        if first == 0 {
            relocate_boxed(this, mover);
        }
        this.hashes.relocate(first, mover)
    }

    /// Makes an entry. Returns whether there was none.
    ///
    /// # Errors
    /// As [`HashSet::insert`].
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

    /// Adds entries after all others, in ascending order.
    ///
    /// # Errors
    /// As [`HashSet::extend_sorted`]. Nothing has changed then.
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

    /// The table, made if there is none.
    fn made(place: &mut Option<Box<Self>>) -> Result<&mut Self, Error> {
        Ok(match place {
            Some(table) => table,
            none => none.insert(try_box(Self::default())?),
        })
    }
}
