//! One Bloom filter of fixed capacity: its cells, their geometry, and the number of items it took; and the layers of a chain
//! with their totals.

use std::mem::replace;
use std::ops::{Deref, DerefMut};

use crate::cells::{Cells, Mover, relocate_elements};
use crate::error::Error;
use crate::geometry::estimate::FillEstimate;
use crate::geometry::{Counting, Geometry, LayerDescription};
use crate::mask::{BATCH, Mask};
use crate::memory::reserve;

/// Smaller layers are in the cache anyway, and prefetching costs time.
pub(super) const PREFETCH_FROM_BYTES: u64 = 512 * 1024;
/// The same limit for one of several layers, which together exceed the first-level cache.
const PREFETCH_FIRST_FROM_BYTES: u64 = 16 * 1024;

/// One Bloom filter of fixed capacity. A filter is a chain of them. `G`: the geometry, which defines the positions of an item's cells.
#[derive(Debug)]
pub struct Layer<G: Geometry> {
    rate: f64,
    capacity: u64,
    items: u64,
    geometry: G,
    cells: G::Cells,
}

/// Which cells a lookup must prefetch when it reaches a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefetch {
    /// The cells that it reads last.
    Rest,
    /// Nothing: all cells have been prefetched.
    Nothing,
}

impl<G: Geometry> Layer<G> {
    /// Creates a layer from its description and its cells, which are asked for once a layer can have the description.
    pub(crate) fn new(
        description: &LayerDescription<G>,
        cells: impl FnOnce() -> Result<G::Cells, Error>,
    ) -> Result<Self, Error> {
        G::check(description)?;
        let cells = cells()?;
        let LayerDescription { rate, capacity, items, geometry } = *description;
        if cells.bytes().len() as u64 != geometry.size_bytes() {
            return Err(Error::Unsound);
        }
        Ok(Self { rate, capacity, items, geometry, cells })
    }

    /// Returns a layer of parts that fit, which is not checked.
    #[inline]
    pub(crate) const fn of_parts(description: LayerDescription<G>, cells: G::Cells) -> Self {
        let LayerDescription { rate, capacity, items, geometry } = description;
        Self { rate, capacity, items, geometry, cells }
    }

    /// Returns the cells of a layer whose description is known.
    pub(crate) fn into_cells(self) -> G::Cells {
        self.cells
    }

    /// Everything about the layer except its cells.
    pub(crate) const fn description(&self) -> LayerDescription<G> {
        LayerDescription { rate: self.rate, capacity: self.capacity, items: self.items, geometry: self.geometry }
    }

    /// The number of items at which it is full.
    pub(crate) const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The number of items that were added to it.
    pub const fn items(&self) -> u64 {
        self.items
    }

    /// Its own false positive rate when it is full: a share of the filter's rate.
    pub(crate) const fn rate(&self) -> f64 {
        self.rate
    }

    /// The shape of its cells.
    pub(crate) const fn geometry(&self) -> G {
        self.geometry
    }

    /// Its cells as bytes, in the order in which they are stored, without pending adds.
    pub fn bytes(&self) -> &[u8] {
        self.cells.bytes()
    }

    /// Whether its cells are known to be zero without reading them. False for an empty layer that was loaded.
    pub(crate) fn is_untouched(&self) -> bool {
        self.items == 0 && !self.cells.may_lack_items()
    }

    /// Its cells.
    pub(crate) const fn cells(&self) -> &G::Cells {
        &self.cells
    }

    pub(super) const fn cells_mut(&mut self) -> &mut G::Cells {
        &mut self.cells
    }

    /// Whether it has reached its capacity.
    pub(crate) const fn is_full(&self) -> bool {
        self.items >= self.capacity
    }

    /// Estimates how full it is. Reads at most 1 MiB of its cells, without pending adds.
    pub(crate) fn fill_estimate(&self) -> FillEstimate {
        self.geometry.fill_estimate(&self.cells)
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

    /// Prefetches like [`prefetch`](Self::prefetch), for known positions.
    #[inline]
    pub(super) fn prefetch_at(&self, probes: &[G::Probe], wanted: Mask) {
        if self.geometry.size_bytes() > PREFETCH_FROM_BYTES {
            for (_, probe) in wanted.each_of(probes) {
                self.geometry.prefetch_first(&self.cells, probe);
                self.geometry.prefetch_rest(&self.cells, probe);
            }
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

    /// Returns the position of an item's prefix: see [`Geometry::prefix`].
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
    /// On an error, nothing has changed.
    pub(super) fn count_at_least(&mut self, items: u64) -> Result<(), Error> {
        if items > self.capacity {
            return Err(Error::Unsound);
        }
        self.items = self.items.max(items);
        Ok(())
    }

    /// Sets the number of items, limited to the capacity: effects may insert more items than that.
    #[inline]
    pub(crate) fn set_items(&mut self, items: u64) {
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

    /// Uncounts an item.
    pub(super) const fn uncount_one(&mut self) {
        self.items = self.items.saturating_sub(1);
    }

    /// Sets the number of items, which was counted in the cells.
    pub(super) const fn recount(&mut self, items: u64) {
        self.items = items;
    }
}

impl<G: Counting> Layer<G> {
    /// Removes an item that was found.
    #[inline]
    pub(super) fn remove(&mut self, probe: G::Probe) {
        self.geometry.remove(&mut self.cells, probe);
        self.uncount_one();
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

// The layers of a chain with their totals. Most filters have one layer. It is stored in place, which saves a list, an allocation, and
// totals that equal the fields of the layer.

/// The layers of a chain, oldest first, as a slice.
#[derive(Debug)]
pub(super) enum Layers<G: Geometry> {
    /// A single layer.
    One(Layer<G>),
    /// Any other number of layers.
    Many { list: Vec<Layer<G>>, totals: Totals },
}

impl<G: Geometry> Layers<G> {
    /// No layers.
    pub(super) const NONE: Self = Self::Many { list: Vec::new(), totals: Totals::NONE };

    /// Returns no layers, with room for this number of them.
    pub(super) fn with_room(layers: usize) -> Result<Self, Error> {
        let mut list = Vec::new();
        if layers > 1 {
            reserve(&mut list, layers)?;
        }
        Ok(Self::Many { list, totals: Totals::NONE })
    }

    /// Returns these layers, whose totals are known.
    pub(super) fn of(mut list: Vec<Layer<G>>, totals: Totals) -> Self {
        let only = if list.len() == 1 { list.pop() } else { None };
        match only {
            Some(layer) => Self::One(layer),
            None => Self::Many { list, totals },
        }
    }

    /// The totals of the layers.
    #[inline]
    pub(super) fn totals(&self) -> Totals {
        match self {
            Self::One(layer) => {
                let cells_bytes = layer.geometry().size_bytes();
                Totals { older_items: 0, capacity: layer.capacity(), cells_bytes }
            }
            Self::Many { totals, .. } => *totals,
        }
    }

    /// Sets the number of items of all layers except the newest. A single layer has no others.
    pub(super) const fn set_older_items(&mut self, items: u64) {
        if let Self::Many { totals, .. } = self {
            totals.older_items = items;
        }
    }

    /// Appends a layer, or changes nothing. `totals` include it.
    pub(super) fn push(&mut self, layer: Layer<G>, totals: Totals) -> Result<(), Error> {
        if let Self::Many { list, totals: known } = self {
            if list.capacity() == 0 {
                *self = Self::One(layer);
                return Ok(());
            }
            if list.len() == list.capacity() {
                // A short list grows by one, because it counts as memory of the filter. A long one grows by an eighth, so that it
                // is not copied for every layer.
                let more = 1.max(list.len() / 8);
                reserve(list, more)?;
            }
            list.push(layer);
            *known = totals;
            return Ok(());
        }
        let mut list = Vec::new();
        reserve(&mut list, 2)?;
        self.move_into(&mut list);
        list.push(layer);
        *self = Self::of(list, totals);
        Ok(())
    }

    /// Drops the newest of several layers.
    pub(super) fn pop(&mut self) {
        let Self::Many { list, totals } = self else { return };
        let Some(dropped) = list.pop() else { return };
        totals.capacity = totals.capacity.saturating_sub(dropped.capacity());
        totals.cells_bytes = totals.cells_bytes.saturating_sub(dropped.geometry().size_bytes());
        totals.older_items = totals.older_items.saturating_sub(list.last().map_or(0, Layer::items));
        if list.len() == 1
            && let Some(only) = list.pop()
        {
            *self = Self::One(only);
        }
    }

    /// Appends the layers to a list that has room for them, and leaves none.
    pub(super) fn move_into(&mut self, list: &mut Vec<Layer<G>>) {
        match replace(self, Self::NONE) {
            Self::One(layer) => list.push(layer),
            Self::Many { list: mut layers, .. } => list.append(&mut layers),
        }
    }

    /// Passes the layers to `take`, oldest first. Returns the list without them.
    pub(super) fn drain(self, take: impl FnMut(Layer<G>)) -> Vec<Layer<G>> {
        match self {
            Self::One(layer) => {
                std::iter::once(layer).for_each(take);
                Vec::new()
            }
            Self::Many { mut list, .. } => {
                list.drain(..).for_each(take);
                list
            }
        }
    }

    /// The number of layers for which the list has room; 0 for a single layer, which needs no list.
    pub(super) const fn list_capacity(&self) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Many { list, .. } => list.capacity(),
        }
    }

    /// The number of bytes requested from the allocator for the list.
    pub(super) const fn list_bytes(&self) -> usize {
        self.list_capacity() * size_of::<Layer<G>>()
    }

    /// Lets the mover move the list, but not the cells.
    pub(super) fn relocate_list(&mut self, mover: &mut impl Mover) {
        if let Self::Many { list, .. } = self {
            relocate_elements(list, mover);
        }
    }
}

impl<G: Geometry> Deref for Layers<G> {
    type Target = [Layer<G>];

    #[inline]
    fn deref(&self) -> &[Layer<G>] {
        match self {
            Self::One(layer) => std::slice::from_ref(layer),
            Self::Many { list, .. } => list,
        }
    }
}

impl<G: Geometry> DerefMut for Layers<G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Layer<G>] {
        match self {
            Self::One(layer) => std::slice::from_mut(layer),
            Self::Many { list, .. } => list,
        }
    }
}

// The totals of a chain's layers, updated as the chain grows. Summing all layers at each growth would take time quadratic in
// their number, and slow down every query on a long chain.

/// The totals of layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// The items of all layers except the newest.
    pub(super) older_items: u64,
    /// The capacity of all layers.
    pub(super) capacity: u64,
    /// The size of the cells of all layers, in bytes.
    pub(super) cells_bytes: u64,
}

impl Totals {
    /// The totals of no layers.
    pub(super) const NONE: Self = Self { older_items: 0, capacity: 0, cells_bytes: 0 };

    /// Returns the totals with another layer, after a newest one that has `newest_items`. `None` if the capacity, or the number
    /// of items that the layers may reach, does not fit 64 bits.
    pub(super) fn with<G: Geometry>(self, newest_items: u64, layer: &LayerDescription<G>) -> Option<Self> {
        let older_items = self.older_items.checked_add(newest_items)?;
        older_items.checked_add(layer.capacity.max(layer.items))?;
        let cells_bytes = self.cells_bytes.saturating_add(layer.geometry.size_bytes());
        Some(Self { older_items, capacity: self.capacity.checked_add(layer.capacity)?, cells_bytes })
    }

    /// Returns the totals of the layers of a chain.
    pub(super) fn of<G: Geometry>(mut layers: impl Iterator<Item = LayerDescription<G>>) -> Result<Self, Error> {
        let mut newest_items = 0;
        let totals = layers
            .try_fold(Self::default(), |totals, layer| totals.with(replace(&mut newest_items, layer.items), &layer));
        totals.ok_or(Error::Unsound)
    }
}

/// The counts of a filter, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The size in bytes that BF.INFO shows: of the cells, and of the fields as the first release had them.
    pub size_bytes: u64,
    /// Number of layers.
    pub layers: u64,
    /// Number of items that were added.
    pub items: u64,
    /// The capacity of the layers together.
    pub capacity: u64,
    /// The additional memory of pending adds, in bytes.
    pub pending_bytes: u64,
}

impl Contents {
    /// Returns the sum of both.
    #[must_use]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self {
            size_bytes: self.size_bytes.saturating_add(other.size_bytes),
            layers: self.layers.saturating_add(other.layers),
            items: self.items.saturating_add(other.items),
            capacity: self.capacity.saturating_add(other.capacity),
            pending_bytes: self.pending_bytes.saturating_add(other.pending_bytes),
        }
    }
}

// The positions of the items of a batch, computed once for consecutive layers with the same geometry. The buckets of a ring mostly
// share theirs.

/// The hashes of a batch, and the positions of its items in the last layer asked about.
pub(crate) struct Probes<'a, G: Geometry> {
    hashes: &'a [G::Hash],
    geometry: Option<G>,
    probes: [G::Probe; BATCH],
}

impl<'a, G: Geometry> Probes<'a, G> {
    /// Starts a batch.
    #[inline]
    pub(crate) fn new(hashes: &'a [G::Hash]) -> Self {
        Self { hashes, geometry: None, probes: [G::Probe::default(); BATCH] }
    }

    /// Returns the hashes.
    #[inline]
    pub(crate) const fn hashes(&self) -> &'a [G::Hash] {
        self.hashes
    }

    /// Returns the positions of the items in a layer.
    #[inline]
    pub(super) fn of(&mut self, layer: &Layer<G>) -> &[G::Probe] {
        if self.geometry != Some(layer.geometry()) {
            self.probes = layer.probes(self.hashes);
            self.geometry = Some(layer.geometry());
        }
        &self.probes
    }
}
