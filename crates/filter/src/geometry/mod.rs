//! The positions of an item's cells in a layer: in the native layout ([`BlockedBits`], and [`BlockedCounters`] with counters), or in other
//! modules' layouts ([`Flat`]). The chain and its batches are generic over [`Geometry`].

mod blocked;
mod cuckoo;
pub(crate) mod estimate;
mod flat;
pub mod sizing;

pub(crate) use blocked::{BlockedBits, BlockedCounters, BlockedGeometry, Counting};
pub(crate) use cuckoo::{COPIES_MAX, CuckooGeometry};
pub(crate) use flat::{Flat, HASHES_MAX, Positions};

use std::fmt::Debug;
use std::ops::{Range, RangeInclusive};

use crate::cells::Cells;
use crate::error::Error;
use crate::hash::ItemHash;
use estimate::FillEstimate;

/// Everything about a layer except its cells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerDescription<G> {
    /// The layer's own rate.
    pub(crate) rate: f64,
    /// The number of items at which it is full.
    pub(crate) capacity: u64,
    /// The number of items added to it; at most `capacity` in native layers.
    pub(crate) items: u64,
    /// The shape of its cells.
    pub(crate) geometry: G,
}

/// The positions of an item's cells. A value is the geometry of one layer.
///
/// A lookup is split in two, because most absent items are rejected by their first cells:
pub trait Geometry: Copy + PartialEq + Debug {
    /// The hash of an item, the same for all layers.
    type Hash: Copy + Default;
    /// The position of an item in one layer.
    type Probe: Copy + Default;
    /// The first cells of an item, the same for all layers: enough to reject most absent items.
    type Prefix: Copy + Default;
    /// The position of an item's prefix in one layer.
    type Address: Copy + Default;
    /// The cells of a layer.
    type Cells: Cells + Debug;

    /// Checks a description of a layer, which may come from a snapshot or a dump.
    fn check(description: &LayerDescription<Self>) -> Result<(), Error>;
    /// Returns the size of the cells, in bytes.
    fn size_bytes(&self) -> u64;
    /// Returns the number of cells that an item's cells are drawn from.
    fn modulus(&self) -> u64;
    /// Returns the number of cells per item, k.
    fn hashes(&self) -> u32;
    /// Returns this geometry with the usual parameters as constants, so that a loop over a batch is compiled without the branches for other
    /// parameters. `None` if its parameters are unusual.
    #[inline(always)]
    fn usual(self) -> Option<Self> {
        Some(self)
    }
    /// Returns the position of an item.
    fn probe(&self, hash: Self::Hash) -> Self::Probe;
    /// Prefetches the cells that a lookup tests first.
    fn prefetch_first(&self, cells: &Self::Cells, probe: Self::Probe);
    /// Prefetches the other cells.
    fn prefetch_rest(&self, cells: &Self::Cells, probe: Self::Probe);
    /// Whether the cells that a lookup tests first are occupied. For most absent items they are not.
    fn contains_first(&self, cells: &Self::Cells, probe: Self::Probe) -> bool;
    /// Whether the other cells are occupied.
    fn contains_rest(&self, cells: &Self::Cells, probe: Self::Probe) -> bool;
    /// Returns the prefix of an item, for layers with at least `hashes` cells per item.
    fn prefix(hash: Self::Hash, hashes: u32) -> Self::Prefix;
    /// Returns the position of the prefix in this layer.
    fn address(&self, hash: Self::Hash) -> Self::Address;
    /// Prefetches the cells of a prefix.
    fn prefetch_prefix(&self, cells: &Self::Cells, address: Self::Address, prefix: &Self::Prefix);
    /// Whether the cells of a prefix are all occupied. For most absent items they are not.
    fn has_prefix(&self, cells: &Self::Cells, address: Self::Address, prefix: &Self::Prefix) -> bool;
    /// Occupies the cells of an item.
    fn insert(&self, cells: &mut Self::Cells, probe: Self::Probe);
    /// Estimates how full the layer is. Reads at most 1 MiB of the cells.
    fn fill_estimate(&self, cells: &Self::Cells) -> FillEstimate;
}

/// The operations on a geometry that pending adds need: finding the hashes with cells in a piece of a layer, and changing a copy of
/// that piece. Only the native layout of bits supports pending adds; the defaults are for all other layouts.
pub trait SupportsPending: Geometry {
    /// Whether adds to this layer may be pending, in a set that is ordered by the layer's pages.
    #[inline]
    fn can_pend(&self) -> bool {
        false
    }
    /// Converts the hash of an item to the hash under which its add is pending. Only used if [`can_pend`](Self::can_pend).
    #[inline]
    fn to_pending(_hash: Self::Hash) -> ItemHash {
        ItemHash::default()
    }
    /// The inverse of [`to_pending`](Self::to_pending).
    #[inline]
    fn from_pending(_hash: ItemHash) -> Self::Hash {
        Self::Hash::default()
    }
    /// Returns a range that contains the `h1` of every hash with a cell in these bytes of the cells, and perhaps of a few others.
    fn h1_range(&self, _bytes: &Range<usize>) -> RangeInclusive<u64> {
        0..=u64::MAX
    }
    /// Returns the offset in the cells of one cell of an item. If adds may be pending, all others are in the same page.
    fn offset_of(&self, _probe: Self::Probe) -> Option<usize> {
        None
    }
    /// Occupies the cells of an item in a copy of a part of the cells, which begins at `offset`. Cells outside are ignored.
    fn insert_into_copy(&self, _copy: &mut [u8], _offset: usize, _probe: Self::Probe) {}
    /// Whether the cells of an item are occupied in such a copy, which must contain all of them.
    fn copy_contains(&self, _copy: &[u8], _offset: usize, _probe: Self::Probe) -> bool {
        false
    }
    /// Estimates how full the layer would be after a change. `change` gets a copy of each page that is read, and the offset of
    /// that page in the cells.
    fn fill_estimate_with(&self, cells: &Self::Cells, _change: impl Fn(&mut [u8], usize)) -> FillEstimate {
        self.fill_estimate(cells)
    }
}
