//! Results of adds and deletes, and their origin.

use crate::error::Error;
use crate::mask::Mask;

/// The origin of an add or a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client.
    Client,
    /// A primary, or the server that wrote the AOF, possibly by another clock: it has already made the change. A native filter
    /// repeats the change without a lookup, which could give another answer: a pending add there was distinguished from other
    /// items with the same bits.
    Effect,
}

/// What an add did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The item was new.
    New,
    /// The item was found. The filter has not changed.
    Known,
    /// The item was found, but the filter has changed: replicas must add it, too.
    Renewed,
}

impl Outcome {
    /// The outcome for a filter that changes only if the item is new.
    #[inline]
    #[must_use]
    pub const fn of(is_new: bool) -> Self {
        if is_new { Self::New } else { Self::Known }
    }
}

/// What a batch of adds did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// The items that were new.
    pub new: Mask,
    /// The items that changed the filter: in most filters, the new ones.
    pub effect: Mask,
    /// The number of items that were processed, from the first on; all of them unless there was an error.
    pub done: usize,
    /// Why the next item was refused.
    pub error: Option<Error>,
}

impl Added {
    /// No item was processed yet.
    pub(crate) const NONE: Self = Self { new: Mask::NONE, effect: Mask::NONE, done: 0, error: None };
}

/// What a batch of deletes did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The items that were found.
    pub found: Mask,
    /// The number of items that were processed, from the first on; all of them unless there was an error.
    pub done: usize,
    /// Why the next item was refused.
    pub error: Option<Error>,
}

impl Removed {
    /// The answer of a filter that cannot delete.
    pub(crate) const REFUSED: Self = Self { found: Mask::NONE, done: 0, error: Some(Error::CannotDelete) };

    /// Deletes the items of the mask `wanted` from a batch of `count`, in order, until one is refused. `delete` returns whether
    /// the item was found.
    pub(crate) fn each(count: usize, wanted: Mask, mut delete: impl FnMut(usize) -> Result<bool, Error>) -> Self {
        let mut removed = Self { found: Mask::NONE, done: 0, error: None };
        for index in 0..count {
            if wanted.contains(index) {
                match delete(index) {
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
}
