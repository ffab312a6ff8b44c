//! The classic layout of a Bloom filter (Bloom 1970), which other modules use: an item's k bits are anywhere in one flat array. An item
//! costs k cache misses instead of the two of the native layout, so a batch prefetches its lines before it tests them.

use std::ops::Range;

use super::estimate::FillEstimate;
use super::{Geometry, LayerDescription, SupportsPending};
use crate::cells::{BitArray, Cells as _, sampled_ones};
use crate::error::Error;

/// The maximum number of bits per item. RedisBloom reaches 998 at a rate of 1e-300. Without a limit, a snapshot of a few bytes could keep
/// every lookup busy for minutes.
pub(crate) const HASHES_MAX: u32 = 1100;

/// The number of positions that a lookup tests first. Half of the bits of a full layer are set, so three positions reject seven
/// of eight absent items.
const FIRST: u32 = 3;

/// A hash that determines the positions of an item.
pub trait Positions: Copy + Default + std::fmt::Debug {
    /// The number of positions that are not in the arithmetic progression of the others.
    const APART: u32;
    /// Returns position `index` of the item, below `modulus`, which is at least 1.
    fn position(self, index: u32, modulus: u64) -> u64;
    /// Returns an alternative hash under which the item may have been added, if there is one. New adds never use it.
    #[inline]
    fn other(self) -> Option<Self> {
        None
    }
}

/// The geometry of a flat layer. `P`: the hash that determines the positions.
#[derive(Clone, Copy, Debug)]
pub struct Flat<P> {
    /// Size of the array, in bytes.
    pub(crate) size_bytes: u64,
    /// Positions are below this, 1 to `size_bytes` * 8.
    pub(crate) modulus: u64,
    /// Number of bits per item, k, 1 to [`HASHES_MAX`].
    pub(crate) hashes: u32,
    /// Bits of the array per item of the capacity, as the layer was sized.
    pub(crate) bits_per_item: f64,
    positions: std::marker::PhantomData<P>,
}

impl<P> Flat<P> {
    /// Creates a geometry; [`check`](Geometry::check) decides whether a layer can have it.
    pub(crate) const fn new(size_bytes: u64, modulus: u64, hashes: u32, bits_per_item: f64) -> Self {
        Self { size_bytes, modulus, hashes, bits_per_item, positions: std::marker::PhantomData }
    }
}

impl<P> PartialEq for Flat<P> {
    fn eq(&self, other: &Self) -> bool {
        (self.size_bytes, self.modulus, self.hashes) == (other.size_bytes, other.modulus, other.hashes)
            && self.bits_per_item.to_bits() == other.bits_per_item.to_bits()
    }
}

impl<P: Positions> Flat<P> {
    fn positions(self, item: P) -> impl Iterator<Item = usize> {
        self.positions_of(item, 0..self.hashes)
    }

    /// Returns the positions that a lookup tests first.
    fn first_positions(self, item: P) -> impl Iterator<Item = usize> {
        self.positions_of(item, 0..FIRST.min(self.hashes))
    }

    /// Returns the other positions.
    fn other_positions(self, item: P) -> impl Iterator<Item = usize> {
        self.positions_of(item, FIRST..self.hashes)
    }

    fn positions_of(self, item: P, indices: Range<u32>) -> impl Iterator<Item = usize> {
        // A position that does not fit an index is past the end of any array.
        indices.map(move |index| usize::try_from(item.position(index, self.modulus)).unwrap_or(usize::MAX))
    }

    /// Whether all of these positions are set.
    #[inline]
    fn are_set(cells: &BitArray, mut positions: impl Iterator<Item = usize>) -> bool {
        positions.all(|position| cells.is_set(position))
    }
}

impl<P: Positions> Geometry for Flat<P> {
    type Hash = P;
    type Probe = P;
    /// Whether an item has an alternative hash. The prefix then cannot reject it.
    type Prefix = bool;
    /// The positions that a lookup tests first.
    type Address = [usize; FIRST as usize];
    type Cells = BitArray;

    /// Accepts the data of other modules: any rate in (0, 1), and more items than the capacity.
    fn check(description: &LayerDescription<Self>) -> Result<(), Error> {
        let LayerDescription {
            rate, capacity, geometry: Self { size_bytes, modulus, hashes, bits_per_item, .. }, ..
        } = *description;
        let sound = rate > 0.0
            && rate < 1.0
            && capacity >= 1
            && modulus >= 1
            && size_bytes.checked_mul(8).is_some_and(|bits| modulus <= bits)
            && (1..=HASHES_MAX).contains(&hashes)
            && bits_per_item.is_finite()
            && bits_per_item > 0.0;
        if sound { Ok(()) } else { Err(Error::Unsound) }
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn modulus(&self) -> u64 {
        self.modulus
    }

    fn hashes(&self) -> u32 {
        self.hashes
    }

    #[inline]
    fn probe(&self, hash: P) -> P {
        hash
    }

    #[inline]
    fn prefetch_first(&self, cells: &BitArray, probe: P) {
        self.first_positions(probe).for_each(|position| cells.prefetch(position));
    }

    #[inline]
    fn prefetch_rest(&self, cells: &BitArray, probe: P) {
        self.other_positions(probe).for_each(|position| cells.prefetch(position));
    }

    #[inline]
    fn contains_first(&self, cells: &BitArray, probe: P) -> bool {
        let has_first = |hash| Self::are_set(cells, self.first_positions(hash));
        has_first(probe) || probe.other().is_some_and(has_first)
    }

    #[inline]
    fn contains_rest(&self, cells: &BitArray, probe: P) -> bool {
        match probe.other() {
            None => Self::are_set(cells, self.other_positions(probe)),
            // The first positions may belong to the alternative hash.
            Some(other) => [probe, other].into_iter().any(|hash| Self::are_set(cells, self.positions(hash))),
        }
    }

    #[inline]
    fn prefix(hash: P, _: u32) -> bool {
        hash.other().is_some()
    }

    #[inline]
    fn address(&self, hash: P) -> Self::Address {
        // An item with fewer positions repeats the last one.
        let mut last = 0;
        let mut positions = self.first_positions(hash);
        std::array::from_fn(|_| {
            last = positions.next().unwrap_or(last);
            last
        })
    }

    #[inline]
    fn prefetch_prefix(&self, cells: &BitArray, positions: Self::Address, _: &bool) {
        positions.into_iter().for_each(|position| cells.prefetch(position));
    }

    #[inline]
    fn has_prefix(&self, cells: &BitArray, positions: Self::Address, has_other: &bool) -> bool {
        *has_other || Self::are_set(cells, positions.into_iter())
    }

    #[inline]
    fn insert(&self, cells: &mut BitArray, probe: P) {
        self.positions(probe).for_each(|position| cells.set(position));
    }

    fn fill_estimate(&self, cells: &BitArray) -> FillEstimate {
        let (ones, looked_at) = sampled_ones(cells.bytes());
        FillEstimate::of_flat(ones, looked_at.min(self.modulus), self.hashes, P::APART, self.modulus)
    }
}

impl<P: Positions> SupportsPending for Flat<P> {}
