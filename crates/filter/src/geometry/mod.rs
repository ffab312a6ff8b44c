//! Where an item's cells are in a layer. The chain and its batches are written once; our own layout ([`BlockedBits`], with
//! counters [`BlockedCounters`]) and that of other modules ([`Flat`]) are plugged in.

mod blocked;
mod counting;
pub mod estimate;
mod flat;
mod pending;
mod probe;
pub mod sizing;

use std::fmt::Debug;
use std::ops::{Range, RangeInclusive};

pub use blocked::{BlockedBits, BlockedGeometry};
pub use counting::{BlockedCounters, Counting};
pub use flat::{Flat, HASHES_MAX, Positions};
pub use probe::{BlockedProbe, ProbeCells};

use crate::cells::Cells;
use crate::error::Error;
use crate::hash::ItemHash;
use estimate::Fullness;

/// Everything about a layer but its cells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerDescription<G> {
    /// The layer's own rate.
    pub rate: f64,
    /// The number of items that it is made for.
    pub capacity: u64,
    /// The number of items that were added to it, at most `capacity` in a filter of ours.
    pub items: u64,
    /// The shape of its cells.
    pub geometry: G,
}

/// Where an item's cells are. A value of it is the geometry of one layer.
pub trait Geometry: Copy + PartialEq + Debug {
    /// What an item is to every layer.
    type Hash: Copy + Default;
    /// Where an item is in this layer.
    type Probe: Copy + Default;
    /// The first cells of an item, as far as every layer has the same: enough to reject most absent items.
    type Prefix: Copy + Default;
    /// Where the prefix of an item lies in this layer.
    type Address: Copy + Default;
    /// What items leave.
    type Cells: Cells + Debug;

    /// Whether a layer can be like that, wherever the description came from.
    ///
    /// # Errors
    /// [`Error::Unsound`] if not.
    fn check(description: &LayerDescription<Self>) -> Result<(), Error>;
    /// Size of the cells, in bytes.
    fn size_bytes(&self) -> u64;
    /// Number of bits that an item's bits are chosen from.
    fn modulus(&self) -> u64;
    /// Number of cells of an item, k.
    fn hashes(&self) -> u32;
    /// Where an item is.
    fn probe(&self, hash: Self::Hash) -> Self::Probe;
    /// Starts to load what a lookup reads first into the cache.
    fn prefetch_first(&self, cells: &Self::Cells, probe: Self::Probe);
    /// Starts to load what a lookup reads then into the cache.
    fn prefetch_rest(&self, cells: &Self::Cells, probe: Self::Probe);
    /// Whether an item has those of its cells that a lookup reads first. Most absent items have not.
    fn contains_first(&self, cells: &Self::Cells, probe: Self::Probe) -> bool;
    /// Whether it has the others.
    fn contains_rest(&self, cells: &Self::Cells, probe: Self::Probe) -> bool;
    /// Returns the prefix of an item, for layers with at least `hashes` cells per item.
    fn prefix(hash: Self::Hash, hashes: u32) -> Self::Prefix;
    /// Returns where the prefix lies in this layer.
    fn address(&self, hash: Self::Hash) -> Self::Address;
    /// Prefetches the cells of a prefix.
    fn prefetch_prefix(&self, cells: &Self::Cells, address: Self::Address, prefix: &Self::Prefix);
    /// Whether the cells of a prefix are all occupied. For most absent items they are not.
    fn has_prefix(&self, cells: &Self::Cells, address: Self::Address, prefix: &Self::Prefix) -> bool;
    /// Sets the cells of an item.
    fn insert(&self, cells: &mut Self::Cells, probe: Self::Probe);
    /// How full the cells are. Reads at most 1 MiB of them.
    fn fullness(&self, cells: &Self::Cells) -> Fullness;

    /// Whether adds to this layer may wait outside of the cells, in the order of its pages.
    #[inline]
    fn can_wait(&self) -> bool {
        false
    }
    /// The hash by which an add waits, where any does.
    #[inline]
    fn to_waiting(_hash: Self::Hash) -> ItemHash {
        ItemHash::default()
    }
    /// The hash that waits by this one.
    #[inline]
    fn from_waiting(_hash: ItemHash) -> Self::Hash {
        Self::Hash::default()
    }
    /// Between which numbers is the `h1` of every hash that leaves something in these bytes of the cells.
    fn hashes_in(&self, _bytes: &Range<usize>) -> RangeInclusive<u64> {
        0..=u64::MAX
    }
    /// One of the bytes of the page of the cells that an item whose add may wait lies in.
    fn byte_of(&self, _probe: Self::Probe) -> Option<usize> {
        None
    }
    /// Sets the cells of an item in a copy of the cells from byte `begin` on, as far as they lie there.
    fn insert_in(&self, _copy: &mut [u8], _begin: usize, _probe: Self::Probe) {}
    /// How full the cells would be. Reads as much; `change` gets a copy of each page that is read, and the byte of the cells that
    /// it begins with.
    fn fullness_with(&self, cells: &Self::Cells, _change: impl Fn(&mut [u8], usize)) -> Fullness {
        self.fullness(cells)
    }
    /// Whether such a copy has all the cells of an item.
    fn is_in(&self, _copy: &[u8], _begin: usize, _probe: Self::Probe) -> bool {
        false
    }
}
