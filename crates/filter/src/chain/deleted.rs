//! The table of items that were deleted from a chain.
//!
//! Bits cannot be cleared, because items share them. Instead, the hash of a deleted item is added to an exact table, and the
//! filter contains an item if its bits are set and the table does not have its hash. This requires a hash for which nobody can
//! construct a second item, so only filters with a keyed hash support deletes.
//!
//! All bits of every entry are set. A lookup consults the table only if all bits of its item are set.

use std::fmt::Debug;

use super::hash_set::HashSet;
use crate::cells::{Mover, relocate_boxed};
use crate::error::Error;
use crate::hash::ItemHash;
use crate::memory::try_box;

/// The size of an entry, as BF.INFO counts it.
pub(super) const ENTRY_BYTES: u64 = size_of::<ItemHash>() as u64;

/// The table of deleted items.
#[derive(Debug, Default)]
pub struct Deleted {
    pub(crate) hashes: HashSet,
    /// The number of changes. A dump of the table is void if this changes before it ends.
    revision: u64,
}

/// Where a chain stores its table of deleted items: `()`, which takes no space, for kinds without one.
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
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
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

    /// Lets the mover move it, starting at part number `first`; see [`HashSet::relocate`].
    pub(super) fn relocate(this: &mut Box<Self>, first: usize, mover: &mut impl Mover) -> Option<usize> {
        if first == 0 {
            relocate_boxed(this, mover);
        }
        this.hashes.relocate(first, mover)
    }

    /// Adds an entry. Returns whether there was none.
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

    /// Appends entries in ascending order, all above the existing ones.
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

    /// Returns the table; creates it if there is none.
    fn made(place: &mut Option<Box<Self>>) -> Result<&mut Self, Error> {
        Ok(match place {
            Some(table) => table,
            none => none.insert(try_box(Self::default())?),
        })
    }
}
