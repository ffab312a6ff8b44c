//! One Bloom filter of fixed capacity: its cells, their geometry, and the number of items it took.

use crate::cells::Cells;
use crate::error::Error;
use crate::geometry::estimate::Fullness;
use crate::geometry::{Counting, Geometry, LayerDescription};
use crate::mask::{BATCH, Mask};

/// Smaller layers are in the cache anyway, and prefetching costs time.
const PREFETCH_FROM_BYTES: u64 = 512 * 1024;
/// The same limit for one of several layers, which together exceed the first-level cache.
const PREFETCH_FIRST_FROM_BYTES: u64 = 16 * 1024;

/// One Bloom filter of fixed capacity. A filter is a chain of them. `G`: the geometry, which says where an item's cells are.
#[derive(Debug)]
pub struct Layer<G: Geometry> {
    rate: f64,
    capacity: u64,
    items: u64,
    geometry: G,
    cells: G::Cells,
}

/// What a lookup must prefetch when it reaches a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefetch {
    /// The cells that it reads last.
    Rest,
    /// Nothing: all cells have been prefetched.
    Nothing,
}

impl<G: Geometry> Layer<G> {
    /// Creates a layer from its description and its cells.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a description that no layer can have, and for cells of another size.
    pub(crate) fn new(description: &LayerDescription<G>, cells: G::Cells) -> Result<Self, Error> {
        G::check(description)?;
        let LayerDescription { rate, capacity, items, geometry } = *description;
        if cells.bytes().len() as u64 != geometry.size_bytes() {
            return Err(Error::Unsound);
        }
        Ok(Self { rate, capacity, items, geometry, cells })
    }

    /// Everything about the layer except its cells.
    #[must_use]
    pub const fn description(&self) -> LayerDescription<G> {
        LayerDescription { rate: self.rate, capacity: self.capacity, items: self.items, geometry: self.geometry }
    }

    /// The number of items at which it is full.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The number of items that were added to it.
    #[must_use]
    pub const fn items(&self) -> u64 {
        self.items
    }

    /// Its own false positive rate when it is full: a share of the filter's rate.
    #[must_use]
    pub const fn rate(&self) -> f64 {
        self.rate
    }

    /// The shape of its cells.
    #[must_use]
    pub const fn geometry(&self) -> G {
        self.geometry
    }

    /// Its cells as bytes, in the order in which they are stored, without pending adds.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.cells.bytes()
    }

    /// Whether its cells are known to be zero without reading them. False for an empty layer that was loaded.
    pub(crate) fn is_untouched(&self) -> bool {
        self.items == 0 && !self.cells.may_lack_items()
    }

    /// Its cells.
    #[must_use]
    pub const fn cells(&self) -> &G::Cells {
        &self.cells
    }

    pub(super) const fn cells_mut(&mut self) -> &mut G::Cells {
        &mut self.cells
    }

    /// Whether it has reached its capacity.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.items >= self.capacity
    }

    /// The fraction of its cells that are occupied, 0 to 1; about a half when it is full. Reads all of them, without pending
    /// adds.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    pub fn fill_ratio(&self) -> f64 {
        self.cells.count_occupied() as f64 / self.cells.count() as f64
    }

    /// Estimates how full it is. Reads at most 1 MiB of its cells, without pending adds.
    #[must_use]
    pub fn fullness(&self) -> Fullness {
        self.geometry.fullness(&self.cells)
    }

    /// Returns the positions of the items of a batch.
    #[inline]
    pub(super) fn probes(&self, hashes: &[G::Hash]) -> [G::Probe; BATCH] {
        let mut probes = [G::Probe::default(); BATCH];
        for (probe, hash) in probes.iter_mut().zip(hashes) {
            *probe = self.probe(*hash);
        }
        probes
    }

    /// Returns the items of the mask `wanted` that have all their cells here. Tests the first cells of all items, then the
    /// other cells of the items that passed. In between, calls `announce` with those, and prefetches as `prefetch` says.
    #[inline]
    pub(super) fn contains_batch(
        &self,
        hashes: &[G::Hash],
        wanted: Mask,
        prefetch: Prefetch,
        announce: impl FnOnce(Mask),
    ) -> Mask {
        let (geometry, cells) = (&self.geometry, &self.cells);
        let maybe = self.select(hashes, wanted, |probe| geometry.contains_first(cells, probe));
        if maybe.is_empty() {
            return maybe;
        }
        announce(maybe);
        if prefetch == Prefetch::Rest {
            self.prefetch_rest(hashes, maybe);
        }
        self.select(hashes, maybe, |probe| geometry.contains_rest(cells, probe))
    }

    /// Returns the items of a mask whose probe satisfies a condition.
    #[inline]
    fn select(&self, hashes: &[G::Hash], mask: Mask, question: impl Fn(G::Probe) -> bool) -> Mask {
        mask.each_of(hashes).fold(Mask::NONE, |yes, (item, hash)| yes | item.only_if(question(self.probe(hash))))
    }

    /// Prefetches what lookups of the items of the mask `wanted` read, unless the layer is small enough to be in the cache.
    #[inline]
    pub(super) fn prefetch(&self, hashes: &[G::Hash], wanted: Mask) {
        if self.geometry.size_bytes() > PREFETCH_FROM_BYTES {
            for (_, hash) in wanted.each_of(hashes) {
                let probe = self.probe(hash);
                self.geometry.prefetch_first(&self.cells, probe);
                self.geometry.prefetch_rest(&self.cells, probe);
            }
        }
    }

    /// Prefetches what these lookups read first, in one of several layers.
    #[inline]
    pub(super) fn prefetch_first(&self, hashes: &[G::Hash], wanted: Mask) {
        if self.geometry.size_bytes() > PREFETCH_FIRST_FROM_BYTES {
            wanted.each_of(hashes).for_each(|(_, hash)| self.geometry.prefetch_first(&self.cells, self.probe(hash)));
        }
    }

    /// Prefetches what these lookups read last.
    #[inline]
    fn prefetch_rest(&self, hashes: &[G::Hash], wanted: Mask) {
        if self.geometry.size_bytes() > PREFETCH_FROM_BYTES {
            wanted.each_of(hashes).for_each(|(_, hash)| self.geometry.prefetch_rest(&self.cells, self.probe(hash)));
        }
    }

    /// Prefetches like [`prefetch_first`](Self::prefetch_first), for known positions.
    #[inline]
    pub(super) fn prefetch_first_at(&self, probes: &[G::Probe], wanted: Mask) {
        if self.geometry.size_bytes() > PREFETCH_FIRST_FROM_BYTES {
            wanted.each_of(probes).for_each(|(_, probe)| self.geometry.prefetch_first(&self.cells, probe));
        }
    }

    /// Looks up like [`contains_batch`](Self::contains_batch), for known positions whose first cells have been prefetched.
    #[inline]
    pub(super) fn contains_batch_at(&self, probes: &[G::Probe], wanted: Mask) -> Mask {
        let (geometry, cells) = (&self.geometry, &self.cells);
        let maybe = select(probes, wanted, |probe| geometry.contains_first(cells, probe));
        if maybe.is_empty() {
            return maybe;
        }
        if geometry.size_bytes() > PREFETCH_FROM_BYTES {
            maybe.each_of(probes).for_each(|(_, probe)| geometry.prefetch_rest(cells, probe));
        }
        select(probes, maybe, |probe| geometry.contains_rest(cells, probe))
    }

    /// Returns the position of an item. A lookup of a single item does not prefetch: the processor speculates and requests the
    /// lines just as early, and an absent item needs only one of them.
    #[inline]
    pub(super) fn probe(&self, hash: G::Hash) -> G::Probe {
        self.geometry.probe(hash)
    }

    /// Whether the item has all its cells here.
    #[inline]
    pub(super) fn contains(&self, probe: G::Probe) -> bool {
        self.geometry.contains_first(&self.cells, probe) && self.geometry.contains_rest(&self.cells, probe)
    }

    /// Whether an item has all its cells here. Most absent items lack the cells that are read first; for them nothing else is
    /// computed.
    #[inline]
    pub(super) fn contains_hash(&self, hash: G::Hash) -> bool {
        self.geometry.contains_first(&self.cells, self.probe(hash)) && self.contains_rest(hash)
    }

    /// Whether an item has the cells that are read last. Not inlined, because it computes their positions again.
    #[inline(never)]
    fn contains_rest(&self, hash: G::Hash) -> bool {
        self.geometry.contains_rest(&self.cells, self.probe(hash))
    }

    /// Returns where an item's prefix lies: see [`Geometry::prefix`].
    #[inline]
    pub(super) fn address(&self, hash: G::Hash) -> G::Address {
        self.geometry.address(hash)
    }

    /// Prefetches the cells of a prefix.
    #[inline]
    pub(super) fn prefetch_prefix(&self, address: G::Address, prefix: &G::Prefix) {
        self.geometry.prefetch_prefix(&self.cells, address, prefix);
    }

    /// Whether the cells of a prefix are all occupied.
    #[inline]
    pub(super) fn has_prefix(&self, address: G::Address, prefix: &G::Prefix) -> bool {
        self.geometry.has_prefix(&self.cells, address, prefix)
    }

    /// Raises the number of items to at least this one.
    ///
    /// # Errors
    /// [`Error::Unsound`] for more than the capacity. Nothing has changed then.
    pub(super) fn count_at_least(&mut self, items: u64) -> Result<(), Error> {
        if items > self.capacity {
            return Err(Error::Unsound);
        }
        self.items = self.items.max(items);
        Ok(())
    }

    /// Sets the number of items, limited to the capacity: effects may insert more items than that.
    pub(super) fn set_items(&mut self, items: u64) {
        self.items = items.min(self.capacity);
    }

    /// Adds an absent item.
    #[inline]
    pub(super) fn insert(&mut self, probe: G::Probe) {
        self.put(probe);
        self.count_one();
    }

    /// Sets the cells of an item, without counting it.
    #[inline]
    pub(super) fn put(&mut self, probe: G::Probe) {
        self.geometry.insert(&mut self.cells, probe);
    }

    /// Counts an item.
    #[inline]
    pub(super) const fn count_one(&mut self) {
        self.items = self.items.saturating_add(1);
    }
}

impl<G: Counting> Layer<G> {
    /// Removes an item that was found.
    #[inline]
    pub(super) fn remove(&mut self, probe: G::Probe) {
        self.geometry.remove(&mut self.cells, probe);
        self.items = self.items.saturating_sub(1);
    }

    /// Returns how often an item is present: see [`Counting::least`].
    #[inline]
    pub(super) fn least(&self, probe: G::Probe) -> u8 {
        self.geometry.least(&self.cells, probe)
    }
}

/// Returns the items of a mask whose probe satisfies a condition.
#[inline]
fn select<P: Copy>(probes: &[P], mask: Mask, question: impl Fn(P) -> bool) -> Mask {
    mask.each_of(probes).fold(Mask::NONE, |yes, (item, probe)| yes | item.only_if(question(probe)))
}
