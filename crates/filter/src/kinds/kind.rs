//! What a filter does, whatever its kind: the contract of [`Filter`](super::Filter) with what is inside.

use super::Contents;
use super::info::LayerSummary;
use super::stats::Measured;
use crate::ceiling::Ceiling;
use crate::cells::Mover;
use crate::clock::Clock;
use crate::error::Error;
use crate::geometry::Geometry;
use crate::mask::Mask;
use crate::scaling::Scaling;
use crate::shape::{Added, Chain, Rules};

/// What an add did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The item was new.
    New,
    /// The filter found it and is as it was.
    Known,
    /// The filter found it, and has changed nevertheless: whoever follows has to add it, too.
    Renewed,
}

/// Where an add comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client asks for it.
    Client,
    /// A primary has done it, or a server that wrote its AOF, whose clock may have been another one. A filter of our own
    /// layout does it again, and does not ask whether the item is in: the answer could be another one, for there the item may
    /// have been told apart from others whose bits it shares.
    Effect,
}

impl Outcome {
    /// Of an add that changes the filter where the item is new, and only there.
    #[inline]
    #[must_use]
    pub const fn of(is_new: bool) -> Self {
        if is_new { Self::New } else { Self::Known }
    }
}

/// What a filter does.
pub trait Kind {
    /// What becomes of it when it is full.
    fn scaling(&self) -> Scaling;
    /// Number of layers.
    fn layer_count(&self) -> usize;
    /// A layer, oldest first.
    fn layer(&self, index: usize) -> Option<LayerSummary>;
    /// What there is to count of it.
    fn contents(&self) -> Contents;
    /// The number of items that can be added before it is full or grows.
    fn remaining_capacity(&self) -> u64;
    /// Bytes that were asked of the allocator, the filter's own fields included. Visits every layer.
    fn allocated_bytes(&self) -> u64;
    /// Lets the mover move its memory, from layer number `first` on; see [`Chain::relocate`].
    fn relocate(&mut self, first: usize, mover: &mut impl Mover) -> Option<usize>;
    /// Writes adds that pend into the cells, at most so many. Answers how many; none are left where there were none. Each costs up
    /// to two microseconds.
    fn merge_pending(&mut self, _most: usize) -> usize {
        0
    }
    /// A filter as this one was created, without an item. One that forgets after a time has no bucket then. Costs
    /// microseconds, whatever the size, and asks no ceiling: it takes the place of this one.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    fn emptied(&self) -> Result<Self, Error>
    where
        Self: Sized;
    /// Looks how full it is: at most 1 MiB of each layer to which lookups go now.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    fn measure(&self, clock: &impl Clock, measured: &mut Measured) -> Result<(), Error>;
    /// Whether an item may be in; `false` is certain.
    fn contains(&self, item: &[u8], clock: &impl Clock) -> bool;
    /// Looks up to [`BATCH`](crate::BATCH) items up together; the answers are those of looking them up one by one.
    fn contains_batch<'a>(&self, items: impl IntoIterator<Item = &'a [u8]>, clock: &impl Clock) -> Mask;
    /// Adds an item.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooManyLayers`], [`Error::CapacityOutOfRange`], [`Error::AboveCeiling`],
    /// [`Error::OutOfMemory`]; the filter is then as it was.
    fn add(
        &mut self,
        item: &[u8],
        origin: Origin,
        clock: &impl Clock,
        ceiling: &impl Ceiling,
    ) -> Result<Outcome, Error>;
    /// Adds up to [`BATCH`](crate::BATCH) items together, in order: the answers are those of adding them one by one.
    fn add_batch<'a>(
        &mut self,
        items: impl IntoIterator<Item = &'a [u8]>,
        origin: Origin,
        clock: &impl Clock,
        ceiling: &impl Ceiling,
    ) -> Added;
    /// Deletes up to [`BATCH`](crate::BATCH) items together, in order: the answers are those of deleting them one by one. An
    /// effect is done, not asked. Of no items it tells whether the filter can delete at all.
    fn remove_batch<'a>(
        &mut self,
        items: impl IntoIterator<Item = &'a [u8]>,
        origin: Origin,
        clock: &impl Clock,
        ceiling: &impl Ceiling,
    ) -> Removed {
        let _ = (items, origin, clock, ceiling);
        Removed::REFUSED
    }
}

/// What a batch of deletes did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The items that were found.
    pub found: Mask,
    /// How many items of the batch were dealt with, from the first on; all of them unless there was an error.
    pub done: usize,
    /// Why the item after them was refused.
    pub error: Option<Error>,
}

impl Removed {
    /// Of a filter that cannot delete.
    pub(crate) const REFUSED: Self = Self { found: Mask::NONE, done: 0, error: Some(Error::CannotDelete) };
}

/// A filter that is nothing but a chain: those of other modules' layouts.
impl<R: Rules> Kind for Chain<R> {
    fn scaling(&self) -> Scaling {
        Self::scaling(self)
    }

    fn layer_count(&self) -> usize {
        self.layers().len()
    }

    fn layer(&self, index: usize) -> Option<LayerSummary> {
        self.layers().get(index).map(|layer| LayerSummary {
            size_bytes: layer.geometry().size_bytes(),
            bits: layer.geometry().modulus(),
            hashes: layer.geometry().hashes(),
            capacity: layer.capacity(),
            items: layer.items(),
            rate: layer.rate(),
        })
    }

    #[inline]
    fn contents(&self) -> Contents {
        Contents {
            size_bytes: self.size_bytes(),
            layers: self.layers().len() as u64,
            items: self.items(),
            capacity: self.total_capacity(),
            pending_bytes: self.pending_bytes(),
        }
    }

    fn remaining_capacity(&self) -> u64 {
        Self::remaining_capacity(self)
    }

    fn allocated_bytes(&self) -> u64 {
        Self::allocated_bytes(self)
    }

    fn relocate(&mut self, first: usize, mover: &mut impl Mover) -> Option<usize> {
        Self::relocate(self, first, mover)
    }

    fn emptied(&self) -> Result<Self, Error> {
        Self::emptied(self)
    }

    fn measure(&self, _clock: &impl Clock, measured: &mut Measured) -> Result<(), Error> {
        (0..).map_while(|index| self.whole(index)).try_for_each(|layer| measured.add(layer.layer(), layer.fullness()))
    }

    #[inline]
    fn contains(&self, item: &[u8], _clock: &impl Clock) -> bool {
        Self::contains(self, item)
    }

    #[inline]
    fn contains_batch<'a>(&self, items: impl IntoIterator<Item = &'a [u8]>, _clock: &impl Clock) -> Mask {
        Self::contains_batch(self, &self.hash_batch(items))
    }

    #[inline]
    fn add(
        &mut self,
        item: &[u8],
        _origin: Origin,
        _clock: &impl Clock,
        ceiling: &impl Ceiling,
    ) -> Result<Outcome, Error> {
        Self::add(self, item, ceiling).map(Outcome::of)
    }

    #[inline]
    fn add_batch<'a>(
        &mut self,
        items: impl IntoIterator<Item = &'a [u8]>,
        _origin: Origin,
        _clock: &impl Clock,
        ceiling: &impl Ceiling,
    ) -> Added {
        let hashes = self.hash_batch(items);
        Self::add_batch(self, &hashes, ceiling)
    }
}
