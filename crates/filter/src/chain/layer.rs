//! One Bloom filter of fixed capacity: its cells, their geometry, and the number of items it took.

use crate::cells::Cells;
use crate::error::Error;
use crate::geometry::estimate::Fullness;
use crate::geometry::{Counting, Geometry, LayerDescription};
use crate::mask::{BATCH, Mask};

/// Below this size the bits are in the cache anyway and asking for their lines costs time.
const PREFETCH_FROM_BYTES: u64 = 512 * 1024;
/// The same for a layer of several: together they are too many for the first-level cache.
const PREFETCH_FIRST_FROM_BYTES: u64 = 16 * 1024;

/// One Bloom filter of fixed capacity. A filter is a chain of them. `G`: where an item's cells are.
#[derive(Debug)]
pub struct Layer<G: Geometry> {
    rate: f64,
    capacity: u64,
    items: u64,
    geometry: G,
    cells: G::Cells,
}

/// What a lookup still has to fetch when it has come to a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefetch {
    /// What it reads after what it reads first.
    Rest,
    /// Nothing: all of it is on its way.
    Nothing,
}

impl<G: Geometry> Layer<G> {
    /// A layer as described, with these cells.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a description that no layer has, and for cells of another size.
    pub(crate) fn new(description: &LayerDescription<G>, cells: G::Cells) -> Result<Self, Error> {
        G::check(description)?;
        let LayerDescription { rate, capacity, items, geometry } = *description;
        if cells.bytes().len() as u64 != geometry.size_bytes() {
            return Err(Error::Unsound);
        }
        Ok(Self { rate, capacity, items, geometry, cells })
    }

    /// Everything about the layer but its cells.
    #[must_use]
    pub const fn description(&self) -> LayerDescription<G> {
        LayerDescription { rate: self.rate, capacity: self.capacity, items: self.items, geometry: self.geometry }
    }

    /// The number of items that it is made for.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The number of items that were added to it.
    #[must_use]
    pub const fn items(&self) -> u64 {
        self.items
    }

    /// Its own false positive rate, when it is full: a share of the filter's.
    #[must_use]
    pub const fn rate(&self) -> f64 {
        self.rate
    }

    /// The shape of its cells.
    #[must_use]
    pub const fn geometry(&self) -> G {
        self.geometry
    }

    /// Its cells as bytes, in the order in which they are stored everywhere; without adds that pend.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.cells.bytes()
    }

    /// Its cells.
    #[must_use]
    pub const fn cells(&self) -> &G::Cells {
        &self.cells
    }

    pub(super) const fn cells_mut(&mut self) -> &mut G::Cells {
        &mut self.cells
    }

    /// Whether it has taken as many items as it is made for.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.items >= self.capacity
    }

    /// The part of its cells in which items left something, 0 to 1; about a half when it is full. Reads all of them, without adds
    /// that pend.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    pub fn fill_ratio(&self) -> f64 {
        self.cells.count_occupied() as f64 / self.cells.count() as f64
    }

    /// How full it is now. Reads at most 1 MiB of its cells, without adds that pend.
    #[must_use]
    pub fn fullness(&self) -> Fullness {
        self.geometry.fullness(&self.cells)
    }

    /// Where each item of a batch is.
    #[inline]
    pub(super) fn probes(&self, hashes: &[G::Hash]) -> [G::Probe; BATCH] {
        let mut probes = [G::Probe::default(); BATCH];
        for (probe, hash) in probes.iter_mut().zip(hashes) {
            *probe = self.probe(*hash);
        }
        probes
    }

    /// Which items of the mask `wanted` have all their cells here. Looks at what is read first of all items, and then of
    /// those that have it at the rest, which `prefetch` asks for in between.
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

    /// The items of a mask for which a question about their probe is answered with yes.
    #[inline]
    fn select(&self, hashes: &[G::Hash], mask: Mask, question: impl Fn(G::Probe) -> bool) -> Mask {
        mask.each_of(hashes).fold(Mask::NONE, |yes, (item, hash)| yes | item.only_if(question(self.probe(hash))))
    }

    /// Starts to load what lookups of the items of the mask `wanted` read, where that is not in the cache anyway.
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

    /// Starts to load what such lookups read first, in a layer of several.
    #[inline]
    pub(super) fn prefetch_first(&self, hashes: &[G::Hash], wanted: Mask) {
        if self.geometry.size_bytes() > PREFETCH_FIRST_FROM_BYTES {
            wanted.each_of(hashes).for_each(|(_, hash)| self.geometry.prefetch_first(&self.cells, self.probe(hash)));
        }
    }

    /// Starts to load what such lookups read then.
    #[inline]
    fn prefetch_rest(&self, hashes: &[G::Hash], wanted: Mask) {
        if self.geometry.size_bytes() > PREFETCH_FROM_BYTES {
            wanted.each_of(hashes).for_each(|(_, hash)| self.geometry.prefetch_rest(&self.cells, self.probe(hash)));
        }
    }

    /// As [`prefetch_first`](Self::prefetch_first), where it is known where the items are.
    #[inline]
    pub(super) fn prefetch_first_at(&self, probes: &[G::Probe], wanted: Mask) {
        if self.geometry.size_bytes() > PREFETCH_FIRST_FROM_BYTES {
            wanted.each_of(probes).for_each(|(_, probe)| self.geometry.prefetch_first(&self.cells, probe));
        }
    }

    /// As [`contains_batch`](Self::contains_batch), where it is known where the items are, and what is read first is on its
    /// way.
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

    /// Where an item is. Of a single item nothing is fetched in advance: the processor, which guesses how the lookup goes
    /// on, asks for the lines as early, and an absent item needs but one of them.
    #[inline]
    pub(super) fn probe(&self, hash: G::Hash) -> G::Probe {
        self.geometry.probe(hash)
    }

    /// Whether the item has all its cells here.
    #[inline]
    pub(super) fn contains(&self, probe: G::Probe) -> bool {
        self.geometry.contains_first(&self.cells, probe) && self.geometry.contains_rest(&self.cells, probe)
    }

    /// Whether an item has all its cells here. For an absent one, which mostly has not those that are read first, nothing else
    /// is worked out.
    #[inline]
    pub(super) fn contains_hash(&self, hash: G::Hash) -> bool {
        self.geometry.contains_first(&self.cells, self.probe(hash)) && self.contains_rest(hash)
    }

    /// Whether an item has those of its cells that are read last. Not inline: it is not known yet where they are.
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
    /// [`Error::Unsound`] for more than it is made for. Nothing has changed then.
    pub(super) fn count_at_least(&mut self, items: u64) -> Result<(), Error> {
        if items > self.capacity {
            return Err(Error::Unsound);
        }
        self.items = self.items.max(items);
        Ok(())
    }

    /// Sets how many items it holds, where more came than were added one by one; at most as many as it is made for.
    pub(super) fn set_items(&mut self, items: u64) {
        self.items = items.min(self.capacity);
    }

    /// Adds the item, which is not in yet.
    #[inline]
    pub(super) fn insert(&mut self, probe: G::Probe) {
        self.put(probe);
        self.count_one();
    }

    /// Sets the cells of an item that is counted.
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
    /// Takes an item back, which is found.
    #[inline]
    pub(super) fn remove(&mut self, probe: G::Probe) {
        self.geometry.remove(&mut self.cells, probe);
        self.items = self.items.saturating_sub(1);
    }

    /// How often an item is in: see [`Counting::least`].
    #[inline]
    pub(super) fn least(&self, probe: G::Probe) -> u8 {
        self.geometry.least(&self.cells, probe)
    }
}

/// The items of a mask for which a question about their probe is answered with yes.
#[inline]
fn select<P: Copy>(probes: &[P], mask: Mask, question: impl Fn(P) -> bool) -> Mask {
    mask.each_of(probes).fold(Mask::NONE, |yes, (item, probe)| yes | item.only_if(question(probe)))
}
