//! The rules by which a kind of filter hashes, grows, adds and deletes: what the chain does not know.

use std::fmt::Debug;

use super::Chain;
use super::deleted::DeletedSlot;
use super::layer::Layer;
use super::outcome::{Added, Origin, Outcome, Removed};
use crate::ceiling::Ceiling;
use crate::error::Error;
use crate::geometry::{Geometry, LayerDescription};
use crate::hash::HashBatch;
use crate::mask::Mask;
use crate::scaling::Scaling;

/// The longest chain of a filter of ours, wherever it comes from; see [`CLIENT_LAYERS_MAX`](crate::CLIENT_LAYERS_MAX) for
/// what a client may make. A lookup of an absent item visits every layer.
pub const LAYERS_MAX: usize = 4096;

/// The hash of an item in filters of these rules.
pub type HashOf<R> = <<R as Rules>::Geometry as Geometry>::Hash;

/// The definition of a filter: its rules and its first layer, from which every later layer follows.
pub trait ChainSpec {
    /// The rules of the filter.
    type Rules: Rules;

    /// Checks what the first layer alone does not show. A bucket of a ring skips this check: its rate is a share of the ring's.
    ///
    /// # Errors
    /// [`Error::RateOutOfRange`].
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
    /// Returns the rules.
    fn rules(&self) -> Self::Rules;
    /// Returns the first layer, without items.
    ///
    /// # Errors
    /// [`Error::RateOutOfRange`], [`Error::RateTooLow`], [`Error::CapacityOutOfRange`], [`Error::SizeOverflow`].
    fn first_layer(&self) -> Result<LayerDescription<<Self::Rules as Rules>::Geometry>, Error>;
}

/// How the filters of a kind hash, grow, add and delete.
pub trait Rules: Clone + PartialEq + Debug {
    /// Where an item's cells are.
    type Geometry: Geometry;
    /// Where a chain keeps its table of deleted items; `()` for a kind without one.
    type Deleted: DeletedSlot;
    /// The longest chain.
    const LAYERS_MAX: usize = LAYERS_MAX;

    /// The hash of an item.
    fn hash(&self, item: &[u8]) -> HashOf<Self>;
    /// Hashes the next items, up to [`BATCH`](crate::BATCH).
    #[inline]
    fn hash_batch<'a>(&self, items: impl IntoIterator<Item = &'a [u8]>) -> HashBatch<HashOf<Self>> {
        HashBatch::of(items, |item| self.hash(item))
    }
    /// What becomes of the filter when it is full.
    fn scaling(&self) -> Scaling;
    /// The layer after `index` others, the newest of which has this capacity and rate.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::CapacityOutOfRange`], [`Error::RateTooLow`], [`Error::SizeOverflow`].
    fn next_layer(&self, index: usize, capacity: u64, rate: f64) -> Result<LayerDescription<Self::Geometry>, Error>;
    /// What a filter of so many layers is made of, in bytes, by the bytes of the cells of all its layers: what BF.INFO tells.
    /// Of other modules' layouts it is what they tell.
    fn size_bytes(layers: usize, cells_bytes: u64) -> u64;
    /// Cells for a layer, all zero.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`], [`Error::OutOfMemory`] where the allocator refuses.
    fn zeroed(&self, geometry: &Self::Geometry) -> Result<<Self::Geometry as Geometry>::Cells, Error>;

    /// Adds the item with this hash.
    ///
    /// # Errors
    /// As [`Chain::add`].
    #[inline]
    fn add_one(
        chain: &mut Chain<Self>,
        hash: HashOf<Self>,
        origin: Origin,
        ceiling: &impl Ceiling,
    ) -> Result<Outcome, Error> {
        let _ = origin;
        chain.add_absent(hash, ceiling).map(Outcome::of)
    }
    /// Adds the items of a batch, in order: the answers are those of adding them one by one.
    #[inline]
    fn add_batch(
        chain: &mut Chain<Self>,
        hashes: &HashBatch<HashOf<Self>>,
        origin: Origin,
        ceiling: &impl Ceiling,
    ) -> Added {
        let _ = origin;
        chain.add_absent_batch(hashes, Mask::NONE, ceiling)
    }
    /// Deletes the items of a batch, in order: the answers are those of deleting them one by one. For an empty batch the answer
    /// is whether the filter can delete at all.
    fn remove_batch(
        chain: &mut Chain<Self>,
        hashes: &HashBatch<HashOf<Self>>,
        origin: Origin,
        ceiling: &impl Ceiling,
    ) -> Removed {
        let _ = (chain, hashes, origin, ceiling);
        Removed::REFUSED
    }

    /// A layer as described, its cells all zero.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a description that no layer has, and as [`zeroed`](Self::zeroed).
    fn empty_layer(&self, description: &LayerDescription<Self::Geometry>) -> Result<Layer<Self::Geometry>, Error> {
        Self::Geometry::check(description)?;
        Layer::new(description, self.zeroed(&description.geometry)?)
    }
}
