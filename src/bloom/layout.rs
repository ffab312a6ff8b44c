//! What the chain does not know: where an item's bits are in a layer ([`Layout`]), and by which rules a filter hashes and
//! grows ([`Rules`]). The chain and its batches are written once; a layout of ours and those of other modules are plugged in.

use std::fmt::Debug;

use super::Error;
use super::chain::LAYERS_MAX;
use super::description::{LayerDescription, Scaling};
use super::layer::Layer;
use super::relocate::Mover;

/// The bits of a layer.
pub trait Bits {
    /// The bits as bytes, in the order in which they are stored everywhere.
    fn bytes(&self) -> &[u8];
    /// The bits as bytes, to be filled from a snapshot or a dump.
    fn bytes_mut(&mut self) -> &mut [u8];
    /// Bytes that were asked of the allocator.
    fn allocated_bytes(&self) -> u64;
    /// Lets the mover move their memory.
    fn relocate(&mut self, mover: &mut impl Mover);
}

/// Where an item's bits are. A value of it is the geometry of one layer.
pub trait Layout: Copy + PartialEq + Debug {
    /// What an item is to every layer.
    type Hash: Copy + Default;
    /// Where an item is in this layer.
    type Place: Copy + Default;
    /// What the bits are kept in.
    type Bits: Bits + Debug;

    /// Whether a layer can be like that, wherever the description came from.
    ///
    /// # Errors
    /// [`Error::Unsound`] if not.
    fn check(description: &LayerDescription<Self>) -> Result<(), Error>;
    /// Size of the bits, in bytes.
    fn size_bytes(&self) -> u64;
    /// Number of bits that an item's bits are chosen from.
    fn modulus(&self) -> u64;
    /// Number of bits of an item, k.
    fn hashes(&self) -> u32;
    /// Where an item is.
    fn place(&self, hash: Self::Hash) -> Self::Place;
    /// Starts to load what a lookup reads first into the cache.
    fn prefetch_first(&self, bits: &Self::Bits, place: Self::Place);
    /// Starts to load what a lookup reads then into the cache.
    fn prefetch_rest(&self, bits: &Self::Bits, place: Self::Place);
    /// Whether the item at this place has those of its bits that a lookup reads first. Most absent items have not.
    fn contains_first(&self, bits: &Self::Bits, place: Self::Place) -> bool;
    /// Whether it has the others.
    fn contains_rest(&self, bits: &Self::Bits, place: Self::Place) -> bool;
    /// Sets the bits of the item at this place.
    fn insert(&self, bits: &mut Self::Bits, place: Self::Place);
}

/// The hash of an item in filters of these rules.
pub type HashOf<R> = <<R as Rules>::Layout as Layout>::Hash;

/// What is common to the layers of a filter: how it hashes and how it grows.
pub trait Rules: Clone + PartialEq + Debug {
    /// Where an item's bits are.
    type Layout: Layout;
    /// The longest chain.
    const LAYERS_MAX: usize = LAYERS_MAX;

    /// The hash of an item.
    fn hash(&self, item: &[u8]) -> HashOf<Self>;
    /// What becomes of the filter when it is full.
    fn scaling(&self) -> Scaling;
    /// The layer behind `index` others, the newest of which has this capacity and rate.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::CapacityOutOfRange`], [`Error::RateTooLow`], or [`Error::OutOfMemory`] for a size that
    /// cannot be.
    fn next_layer(&self, index: usize, capacity: u64, rate: f64) -> Result<LayerDescription<Self::Layout>, Error>;
    /// What a filter of so many layers is made of, in bytes, by the bytes of the bits of all its layers: what BF.INFO tells.
    /// Of other modules' layouts it is what they tell.
    fn size_bytes(layers: usize, bits_bytes: u64) -> u64;
    /// Bits for a layer, all zero.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the allocator refuses.
    fn zeroed(&self, geometry: &Self::Layout) -> Result<<Self::Layout as Layout>::Bits, Error>;

    /// A layer as described, its bits all zero.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a description that no layer has, [`Error::OutOfMemory`] where the allocator refuses.
    fn empty_layer(&self, description: &LayerDescription<Self::Layout>) -> Result<Layer<Self::Layout>, Error> {
        Self::Layout::check(description)?;
        Layer::new(description, self.zeroed(&description.geometry)?)
    }
}
