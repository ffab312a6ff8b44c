//! The differences between kinds of filters in hashing, in growth and in its limits. `adding.rs` contains the differences in adding
//! and deleting.

use std::fmt::Debug;

use super::extras::DeletedSlot;
use super::layer::Layer;
use crate::error::Error;
use crate::geometry::sizing::Scaling;
use crate::geometry::{Geometry, LayerDescription, SupportsPending};
use crate::hash::HashBatch;
use crate::host::Ceiling;
use crate::memory::rounding_bytes;

/// The longest chain of a native filter of any origin; [`CLIENT_LAYERS_MAX`](crate::CLIENT_LAYERS_MAX) is the limit for
/// clients. A lookup of an absent item visits every layer.
pub(crate) const LAYERS_MAX: usize = 4096;

/// The hash of an item under these rules.
pub(crate) type HashOf<R> = <<R as Rules>::Geometry as Geometry>::Hash;

/// The definition of a filter: its rules and its first layer, from which every later layer follows.
pub trait ChainSpec {
    /// The rules of the filter.
    type Rules: Rules;

    /// Checks the requested rate. A bucket of a ring skips this check, because its rate is a share of the ring's.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
    /// Returns the rules.
    fn rules(&self) -> Self::Rules;
    /// Returns the first layer, without items.
    fn first_layer(&self) -> Result<LayerDescription<<Self::Rules as Rules>::Geometry>, Error>;
}

/// The rules by which the filters of a kind hash and grow.
pub trait Rules: Clone + PartialEq + Debug {
    /// The positions of an item's cells.
    type Geometry: SupportsPending;
    /// A chain's place for its table of deleted items; `()` for a kind without one.
    type Deleted: DeletedSlot;
    /// The maximum number of layers.
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
    /// The behavior of a full filter.
    fn scaling(&self) -> Scaling;
    /// Returns layer number `index`, counted from 0. The layer before it has this capacity and rate.
    fn next_layer(&self, index: usize, capacity: u64, rate: f64) -> Result<LayerDescription<Self::Geometry>, Error>;
    /// Returns the size of a filter with this number of layers and bytes of cells, as BF.INFO shows it. For the layouts of
    /// other modules, it is the size that those modules report.
    fn size_bytes(layers: usize, cells_bytes: u64) -> u64;
    /// Allocates the cells of a layer, all zero.
    fn zeroed(&self, geometry: &Self::Geometry) -> Result<<Self::Geometry as Geometry>::Cells, Error>;

    /// Creates a layer as described, its cells all zero.
    fn empty_layer(&self, description: &LayerDescription<Self::Geometry>) -> Result<Layer<Self::Geometry>, Error> {
        Layer::new(description, || self.zeroed(&description.geometry))
    }
}

/// Checks whether a ceiling allows a layer after `layers` others, in a filter whose table of deleted items has `entries_bytes`.
/// Requests the bytes by which the filter grows.
pub(crate) fn check_layer<R: Rules>(
    ceiling: &impl Ceiling,
    layers: usize,
    cells_bytes: u64,
    entries_bytes: u64,
    layer_bytes: u64,
) -> Result<(), Error> {
    if layers >= R::LAYERS_MAX.min(ceiling.layers_max()) {
        return Err(Error::TooManyLayers);
    }
    let before_bytes = if layers == 0 { 0 } else { R::size_bytes(layers, cells_bytes) };
    let grown_bytes = R::size_bytes(layers.saturating_add(1), cells_bytes.saturating_add(layer_bytes));
    let asked_bytes = grown_bytes.saturating_sub(before_bytes);
    ceiling.allow_blocks(before_bytes.saturating_add(entries_bytes), asked_bytes, rounding_bytes([layer_bytes]))
}

/// The limit to which a filter can grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrowthLimit {
    /// The largest number of items that it can hold.
    pub capacity: u64,
    /// Whether the false positive rate of the next layer, rather than memory, ends its growth.
    pub ends_by_rate: bool,
}

/// Returns how far a filter can grow under a ceiling. `filter_bytes` is the filter's present size, 0 if it does not exist yet.
/// Computes the size of every layer, about 60 ns each.
pub(crate) fn growth_limit<S: ChainSpec>(spec: &S, filter_bytes: u64, ceiling: &impl Ceiling) -> GrowthLimit {
    let limit_bytes = ceiling.available_bytes(filter_bytes, u64::MAX).saturating_add(filter_bytes);
    let rules = spec.rules();
    let (mut next, mut cells_bytes, mut capacity, mut rounding) = (spec.first_layer(), 0u64, 0u64, 0u64);
    for index in 0..S::Rules::LAYERS_MAX.min(ceiling.layers_max()) {
        let layer = match next {
            Ok(layer) => layer,
            Err(error) => return GrowthLimit { capacity, ends_by_rate: error == Error::RateTooLow },
        };
        let layer_bytes = layer.geometry.size_bytes();
        cells_bytes = cells_bytes.saturating_add(layer_bytes);
        let size_bytes = S::Rules::size_bytes(index + 1, cells_bytes);
        // The allocator's overhead of the present layers is no longer available.
        if size_bytes > filter_bytes && ceiling.counts_rounding() {
            rounding = rounding.saturating_add(rounding_bytes([layer_bytes]));
        }
        if size_bytes.saturating_add(rounding) > limit_bytes {
            break;
        }
        capacity = capacity.saturating_add(layer.capacity);
        next = rules.next_layer(index + 1, layer.capacity, layer.rate);
    }
    GrowthLimit { capacity, ends_by_rate: false }
}
