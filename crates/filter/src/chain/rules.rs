//! What distinguishes kinds of filters: how they hash, grow, add and delete.

use std::fmt::Debug;

use super::Chain;
use super::adding::{Added, Origin, Outcome, Removed};
use super::beside::DeletedSlot;
use super::layer::Layer;
use crate::error::Error;
use crate::geometry::sizing::Scaling;
use crate::geometry::{Geometry, LayerDescription};
use crate::hash::HashBatch;
use crate::host::Ceiling;
use crate::mask::Mask;

/// The longest chain of a native filter, whatever its origin; [`CLIENT_LAYERS_MAX`](crate::CLIENT_LAYERS_MAX) is the limit for
/// clients. A lookup of an absent item visits every layer.
pub const LAYERS_MAX: usize = 4096;

/// The hash of an item under these rules.
pub type HashOf<R> = <<R as Rules>::Geometry as Geometry>::Hash;

/// The definition of a filter: its rules and its first layer, from which every later layer follows.
pub trait ChainSpec {
    /// The rules of the filter.
    type Rules: Rules;

    /// Checks the requested rate. A bucket of a ring skips this check, because its rate is a share of the ring's.
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
    /// Where a chain stores its table of deleted items; `()` for a kind without one.
    type Deleted: DeletedSlot;
    /// The most layers.
    const LAYERS_MAX: usize = LAYERS_MAX;

    /// Hashes an item.
    fn hash(&self, item: &[u8]) -> HashOf<Self>;
    /// Hashes the next items, up to [`BATCH`](crate::BATCH).
    #[inline]
    fn hash_batch<'a>(&self, items: impl IntoIterator<Item = &'a [u8]>) -> HashBatch<HashOf<Self>> {
        HashBatch::of(items, |item| self.hash(item))
    }
    /// The number of hashes under which an item is looked up.
    fn hashes_per_item(&self) -> u32 {
        1
    }
    /// What happens when the filter is full.
    fn scaling(&self) -> Scaling;
    /// Returns the layer after `index` others, the newest of which has this capacity and rate.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::CapacityOutOfRange`], [`Error::RateTooLow`], [`Error::SizeOverflow`].
    fn next_layer(&self, index: usize, capacity: u64, rate: f64) -> Result<LayerDescription<Self::Geometry>, Error>;
    /// Returns the size of a filter with this number of layers and bytes of cells, as BF.INFO shows it. For layouts of other
    /// modules it is the size that those report.
    fn size_bytes(layers: usize, cells_bytes: u64) -> u64;
    /// Allocates the cells of a layer, all zero.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`], [`Error::OutOfMemory`] if the allocator refuses.
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
    /// Adds the items of a batch, in order, with the answers of adding them one by one.
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
    /// Deletes the items of a batch, in order, with the answers of deleting them one by one. For an empty batch, answers
    /// whether the filter supports deletes.
    fn remove_batch(
        chain: &mut Chain<Self>,
        hashes: &HashBatch<HashOf<Self>>,
        origin: Origin,
        ceiling: &impl Ceiling,
    ) -> Removed {
        let _ = (chain, hashes, origin, ceiling);
        Removed::REFUSED
    }

    /// Creates a layer as described, its cells all zero.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a description that no layer can have, and as [`zeroed`](Self::zeroed).
    fn empty_layer(&self, description: &LayerDescription<Self::Geometry>) -> Result<Layer<Self::Geometry>, Error> {
        Self::Geometry::check(description)?;
        Layer::new(description, self.zeroed(&description.geometry)?)
    }
}
