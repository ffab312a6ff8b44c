//! What few chains have beside their layers: pending adds, and a table of deleted items. Both lie behind one pointer, so that the
//! others, of which a server may have millions, are 8 bytes smaller.

use super::Chain;
use super::deleted::{Deleted, DeletedSlot};
use super::pending::Pending;
use super::rules::Rules;
use crate::error::Error;
use crate::memory::try_box;

/// What few chains have.
#[derive(Debug)]
pub(super) struct Beside<R: Rules> {
    /// Adds that are counted and not in the cells yet.
    pub(super) pending: Option<Box<Pending>>,
    /// The items that were deleted, if any.
    pub(super) deleted: R::Deleted,
}

impl<R: Rules> Chain<R> {
    /// Returns the pending adds, if any.
    #[inline]
    pub(super) fn pending(&self) -> Option<&Pending> {
        self.beside.as_ref()?.pending.as_deref()
    }

    /// Returns the table of deleted items, if there is one.
    #[inline]
    pub(super) fn table(&self) -> Option<&Deleted> {
        self.beside.as_ref()?.deleted.table()
    }

    /// Returns the table of deleted items for a change, if there is one.
    pub(super) fn table_mut(&mut self) -> Option<&mut Deleted> {
        self.beside.as_mut()?.deleted.slot()?.as_deref_mut()
    }

    /// Returns the place of pending adds and deleted items, for a change.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn reserve_beside(place: &mut Option<Box<Beside<R>>>) -> Result<&mut Beside<R>, Error> {
        Ok(match place {
            Some(beside) => beside,
            none => none.insert(try_box(Beside { pending: None, deleted: R::Deleted::EMPTY })?),
        })
    }

    /// Frees the memory if nothing is pending and no table exists.
    pub(super) fn free_empty_beside(&mut self) {
        if self.pending().is_none() && self.table().is_none() {
            self.beside = None;
        }
    }

    /// Returns the place of the table of deleted items, for a change.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Unsound`] if the kind has no table.
    pub(super) fn deleted_slot(&mut self) -> Result<&mut Option<Box<Deleted>>, Error> {
        Self::reserve_beside(&mut self.beside)?.deleted.slot().ok_or(Error::Unsound)
    }
}
