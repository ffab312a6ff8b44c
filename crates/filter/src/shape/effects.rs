//! Adds that are done, not asked: what a primary did, or a server that wrote its AOF. That server answered "new", and counted; to
//! look the item up again could only come to another answer, and to other bits.

use super::chain::{Chain, batch};
use super::layer::Layer;
use super::rules::{HashOf, Rules};
use crate::ceiling::Ceiling;
use crate::error::Error;
use crate::mask::Mask;

/// What becomes of an effect where a fixed chain is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenFull {
    /// It is refused: the next bucket of a ring takes it.
    Refuse,
    /// It is in all the same, and not counted: whoever carries it had the room.
    Insert,
}

impl<R: Rules> Chain<R> {
    /// Starts to load what [`insert_hash`](Self::insert_hash) of the items of the mask `wanted` writes.
    #[inline]
    pub(crate) fn prefetch_newest(&self, hashes: &[HashOf<R>], wanted: Mask) {
        let (hashes, all) = batch(hashes);
        if let Some(newest) = self.layers.last() {
            newest.prefetch(hashes, wanted & all);
        }
    }

    /// Adds and counts the item with this hash, in or not, in the newest layer; where that is full, in the next.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooManyLayers`], [`Error::CapacityOutOfRange`], [`Error::AboveCeiling`],
    /// [`Error::OutOfMemory`]; the filter is then as it was.
    #[inline]
    pub(crate) fn insert_hash(
        &mut self,
        hash: HashOf<R>,
        when_full: WhenFull,
        ceiling: &impl Ceiling,
    ) -> Result<(), Error> {
        if self.layers.last().is_some_and(Layer::is_full)
            && let Err(refused) = self.grow(ceiling)
            && (refused, when_full) != (Error::Full, WhenFull::Insert)
        {
            return Err(refused);
        }
        let newest = self.layers.last_mut().ok_or(Error::Full)?;
        newest.insert(newest.probe(hash));
        newest.set_items(newest.items());
        Ok(())
    }
}
