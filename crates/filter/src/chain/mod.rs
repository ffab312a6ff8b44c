//! The parts of every filter: layers of fixed capacity ([`Layer`]), chains of them ([`Chain`]) that grow, add and delete by the
//! rules of their kind ([`Rules`]), and an exact set of hashes ([`HashSet`]).
//!
//! This file creates, copies, compares and counts chains; the other files have their operations.

mod adding;
mod deleting;
mod extras;
mod hash_set;
mod layer;
mod lookup;
mod pending;
mod rules;
mod slots;
mod union;

pub(crate) use adding::{AddRules, WhenFull};
pub use adding::{Added, Origin, Outcome, Removed};
pub(crate) use extras::{Deleted, DeletedSlot};
#[cfg(test)]
pub(crate) use hash_set::BUCKETS_READ;
pub use hash_set::HashSet;
pub use layer::Contents;
pub(crate) use layer::{Layer, Probes};
pub(crate) use pending::{CellsReader, LayerView};
pub(crate) use rules::{ChainSpec, GrowthLimit, HashOf, LAYERS_MAX, Rules, check_layer, growth_limit};

use crate::cells::{Cells as _, Mover, copy_to_zeros, relocate_boxed};
use crate::error::Error;
use crate::geometry::sizing::Scaling;
use crate::geometry::{Geometry as _, LayerDescription};
use crate::hash::HashBatch;
use crate::host::{Ceiling, Unlimited};
use crate::memory::{block_bytes, rounding_bytes, try_box};
use extras::{ChainExtras, Pending};
use layer::{Layers, Totals};

/// A filter: a chain of layers under the same rules.
#[derive(Debug)]
pub struct Chain<R: Rules> {
    rules: R,
    layers: Layers<R::Geometry>,
    /// Rarely used state, boxed.
    extras: Option<Box<ChainExtras<R::Deleted>>>,
}

impl<R: Rules> Chain<R> {
    /// Creates an empty filter. Takes microseconds, whatever the size.
    ///
    /// ```
    /// use bloomgate_filter::kinds::NativeSpec;
    /// use bloomgate_filter::{BloomFilter, Error, Scaling, Unlimited};
    ///
    /// let spec = NativeSpec::murmur3(0.001, 1_000_000, Scaling::Fixed, 42);
    /// let filter = BloomFilter::with_spec(spec, &Unlimited)?;
    /// assert_eq!((filter.spec().capacity, filter.items()), (1_000_000, 0));
    ///
    /// let refused = BloomFilter::with_spec(NativeSpec { rate: 1.5, ..spec }, &Unlimited);
    /// assert_eq!(refused, Err(Error::RateOutOfRange));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::RateOutOfRange`], [`Error::RateTooLow`], [`Error::CapacityOutOfRange`], [`Error::AboveCeiling`],
    /// [`Error::OutOfMemory`], [`Error::SizeOverflow`].
    pub fn with_spec(spec: impl ChainSpec<Rules = R>, ceiling: &impl Ceiling) -> Result<Self, Error> {
        spec.check()?;
        Self::bucket(&spec, ceiling)
    }

    /// Creates a bucket of a ring, without the [check](ChainSpec::check) of its rate.
    pub(crate) fn bucket(spec: &impl ChainSpec<Rules = R>, ceiling: &impl Ceiling) -> Result<Self, Error> {
        Self::with_first_layer(spec.rules(), &spec.first_layer()?, ceiling)
    }

    /// Creates a filter with one empty layer.
    pub(crate) fn with_first_layer(
        rules: R,
        first: &LayerDescription<R::Geometry>,
        ceiling: &impl Ceiling,
    ) -> Result<Self, Error> {
        let mut filter = Self::without_layers(rules);
        filter.push_layer(first, ceiling)?;
        Ok(filter)
    }

    /// Creates a filter with layers as described, their cells all zero, for a reader that fills them in. Asks the ceiling once
    /// for the whole filter, before anything is allocated.
    pub(crate) fn with_empty_layers(
        rules: R,
        layers: impl ExactSizeIterator<Item = LayerDescription<R::Geometry>> + Clone,
        ceiling: &impl Ceiling,
    ) -> Result<Self, Error> {
        check_length(&rules, layers.len())?;
        if layers.len() > ceiling.layers_max() {
            return Err(Error::TooManyLayers);
        }
        let totals = Totals::of(layers.clone())?;
        let rounding = rounding_bytes(layers.clone().map(|layer| layer.geometry.size_bytes()));
        ceiling.allow_blocks(0, R::size_bytes(layers.len(), totals.cells_bytes), rounding)?;
        let mut made = Layers::with_room(layers.len())?;
        for layer in layers {
            made.push(rules.empty_layer(&layer)?, totals)?;
        }
        Ok(Self { rules, layers: made, extras: None })
    }

    /// Creates a filter of these layers.
    pub(crate) fn from_layers(rules: R, layers: Vec<Layer<R::Geometry>>) -> Result<Self, Error> {
        check_length(&rules, layers.len())?;
        let totals = Totals::of(layers.iter().map(Layer::description))?;
        Ok(Self { rules, layers: Layers::of(layers, totals), extras: None })
    }

    /// Creates a filter of one layer.
    #[inline]
    pub(crate) const fn of_layer(rules: R, layer: Layer<R::Geometry>) -> Self {
        Self { rules, layers: Layers::One(layer), extras: None }
    }

    /// Passes the layers to `take`, oldest first. Returns the list without them.
    pub(crate) fn drain_layers(self, take: impl FnMut(Layer<R::Geometry>)) -> Vec<Layer<R::Geometry>> {
        self.layers.drain(take)
    }

    /// The number of layers for which its list has room; 0 if it has a single layer, which needs no list.
    pub(crate) const fn list_capacity(&self) -> usize {
        self.layers.list_capacity()
    }

    /// Returns the layers as a list; the empty list for a filter of one layer.
    #[inline]
    pub(crate) fn into_list(self) -> Vec<Layer<R::Geometry>> {
        match self.layers {
            Layers::One(_) => Vec::new(),
            Layers::Many { list, .. } => list,
        }
    }

    /// Whether it has pending adds or deleted items.
    #[inline]
    pub(crate) const fn has_extras(&self) -> bool {
        self.extras.is_some()
    }

    /// Creates a filter without layers, to stand in for one that was moved out. It contains nothing and refuses every add.
    pub(crate) const fn without_layers(rules: R) -> Self {
        Self { rules, layers: Layers::NONE, extras: None }
    }

    /// Returns a copy with the same fields and bits, and with the pending adds in the bits. Does not touch pages of the copy
    /// that are all zero.
    pub fn try_clone(&self) -> Result<Self, Error> {
        let descriptions = self.layers.iter().map(Layer::description);
        let mut copy = Self::with_empty_layers(self.rules.clone(), descriptions, &Unlimited)?;
        for (from, to) in self.layer_views().zip(copy.layers.iter_mut()) {
            let cells = if from.layer().is_untouched() { &[] } else { from.layer().bytes() };
            copy_to_zeros(cells, to.cells_mut().bytes_mut());
            from.put_pending_into(to);
        }
        if let Some(table) = self.table() {
            *copy.deleted_slot()? = Some(table.try_clone()?);
        }
        Ok(copy)
    }

    /// Returns an empty filter with the same rules and first layer. Takes microseconds, whatever the size, and asks no ceiling,
    /// because it replaces this filter.
    pub(crate) fn emptied(&self) -> Result<Self, Error> {
        let first = self.layers.first().map(|layer| LayerDescription { items: 0, ..layer.description() });
        let first = first.ok_or(Error::Unsound)?;
        Self::with_first_layer(self.rules.clone(), &first, &Unlimited)
    }

    /// The rules by which it hashes and grows.
    pub(crate) const fn rules(&self) -> &R {
        &self.rules
    }

    /// Its behavior when full.
    pub(crate) fn scaling(&self) -> Scaling {
        self.rules.scaling()
    }

    /// Its layers, oldest first.
    pub fn layers(&self) -> &[Layer<R::Geometry>] {
        &self.layers
    }

    /// The number of adds that were answered "new", including items that have been deleted.
    #[inline]
    pub(crate) fn items_added(&self) -> u64 {
        let older_items = self.layers.totals().older_items;
        older_items.saturating_add(self.layers.last().map_or(0, Layer::items))
    }

    /// The number of adds that were answered "new", less the items that have been deleted.
    pub fn items(&self) -> u64 {
        self.items_added().saturating_sub(self.deleted_entries())
    }

    /// The number of items that can be added before it is full or grows.
    pub fn remaining_capacity(&self) -> u64 {
        self.layers.last().map_or(0, |newest| newest.capacity().saturating_sub(newest.items()))
    }

    /// The size of the filter in bytes, as BF.INFO shows it: its fields, the cells of its layers, and 16 bytes for each entry
    /// of the table of deleted items. Equal filters have equal sizes. A ceiling limits this size.
    pub fn size_bytes(&self) -> u64 {
        R::size_bytes(self.layers.len(), self.cells_bytes()).saturating_add(self.entries_bytes())
    }

    /// Its counts.
    #[inline]
    pub(crate) fn contents(&self) -> Contents {
        let Totals { older_items, capacity, cells_bytes } = self.layers.totals();
        let (size_bytes, items) = match self.table() {
            None => {
                let newest_items = self.layers.last().map_or(0, Layer::items);
                (R::size_bytes(self.layers.len(), cells_bytes), older_items.saturating_add(newest_items))
            }
            Some(_) => self.size_and_items(),
        };
        let layers = self.layers.len() as u64;
        Contents { size_bytes, layers, items, capacity, pending_bytes: self.pending_bytes() }
    }

    /// Its size in bytes and its items. A separate function that returns no struct, so that the counts of most filters stay in
    /// registers.
    #[cold]
    fn size_and_items(&self) -> (u64, u64) {
        (self.size_bytes(), self.items())
    }

    /// The size of the cells of all layers, in bytes.
    pub(crate) fn cells_bytes(&self) -> u64 {
        self.layers.totals().cells_bytes
    }

    /// The number of bytes taken from the allocator, including the filter's own fields. Visits every layer.
    pub fn allocated_bytes(&self) -> u64 {
        let extras = if self.extras.is_some() { size_of::<ChainExtras<R::Deleted>>() } else { 0 };
        let fields = (size_of::<Self>() + extras) as u64 + block_bytes(self.layers.list_bytes() as u64);
        let table = self.table().map_or(0, Deleted::allocated_bytes);
        let held = fields.saturating_add(self.pending_bytes()).saturating_add(table);
        self.layers.iter().fold(held, |sum, layer| sum.saturating_add(block_bytes(layer.cells().allocated_bytes())))
    }

    /// Lets the mover move its memory, except pending adds, starting at place number `first`: the layers, oldest first, then
    /// the segments of the table of deleted items. Returns the place to continue with if the mover stops before the last.
    pub fn relocate(&mut self, first: usize, mover: &mut impl Mover) -> Option<usize> {
        if first == 0 {
            self.layers.relocate_list(mover);
        }
        let (layers, places) = (self.layers.len(), self.places());
        for (index, layer) in self.layers.iter_mut().enumerate().skip(first) {
            layer.cells_mut().relocate(mover);
            if index + 1 < places && mover.has_done_enough() {
                return Some(index + 1);
            }
        }
        let extras = self.extras.as_mut()?;
        if first <= layers {
            relocate_boxed(extras, mover);
        }
        let next = Deleted::relocate(extras.deleted.slot()?.as_mut()?, first.saturating_sub(layers), mover)?;
        Some(layers + next)
    }

    /// The number of places that [`relocate`](Self::relocate) visits.
    pub(crate) fn places(&self) -> usize {
        self.layers.len() + self.table().map_or(0, |deleted| deleted.hashes.segment_count())
    }

    /// Returns the stored cells of a layer without items, for a reader that fills them in.
    pub fn layer_bytes_mut(&mut self, layer: usize) -> Option<&mut [u8]> {
        self.layers.get_mut(layer).map(|layer| layer.cells_mut().bytes_mut())
    }

    /// Raises the number of items of a layer to at least `items`, for a reader that sets the bits of uncounted items.
    /// On an error, nothing has changed.
    pub(crate) fn count_at_least(&mut self, layer: usize, items: u64) -> Result<(), Error> {
        let of_newest = self.layers.last().map_or(0, |newest| newest.capacity().max(newest.items()));
        let is_older = layer + 1 < self.layers.len();
        let older_items = self.layers.totals().older_items;
        let counted = self.layers.get_mut(layer).ok_or(Error::Unsound)?;
        let more = if is_older { items.saturating_sub(counted.items()) } else { 0 };
        let older_items = older_items.checked_add(more).ok_or(Error::Unsound)?;
        older_items.checked_add(of_newest).ok_or(Error::Unsound)?;
        counted.count_at_least(items)?;
        self.layers.set_older_items(older_items);
        Ok(())
    }

    /// Hashes an item, for the batch functions.
    #[inline]
    pub(crate) fn hash(&self, item: &[u8]) -> HashOf<R> {
        self.rules.hash(item)
    }

    /// Hashes the next items, up to [`BATCH`](crate::BATCH).
    #[inline]
    pub(crate) fn hash_batch<'a>(&self, items: impl IntoIterator<Item = &'a [u8]>) -> HashBatch<HashOf<R>> {
        self.rules.hash_batch(items)
    }
}

/// Rarely used state.
impl<R: Rules> Chain<R> {
    /// Returns the pending adds, if any.
    #[inline]
    fn pending(&self) -> Option<&Pending> {
        self.extras.as_ref()?.pending.as_deref()
    }

    /// Returns the table of deleted items, if there is one.
    #[inline]
    fn table(&self) -> Option<&Deleted> {
        self.extras.as_ref()?.deleted.table()
    }

    /// Returns the table of deleted items for a change, if there is one.
    fn table_mut(&mut self) -> Option<&mut Deleted> {
        self.extras.as_mut()?.deleted.slot()?.as_deref_mut()
    }

    /// Returns the place of pending adds and deleted items, for a change.
    fn reserve_extras(place: &mut Option<Box<ChainExtras<R::Deleted>>>) -> Result<&mut ChainExtras<R::Deleted>, Error> {
        Ok(match place {
            Some(extras) => extras,
            none => none.insert(try_box(ChainExtras { pending: None, deleted: R::Deleted::EMPTY })?),
        })
    }

    /// Frees the memory if nothing is pending and no table exists.
    fn free_empty_extras(&mut self) {
        if self.pending().is_none() && self.table().is_none() {
            self.extras = None;
        }
    }

    /// Returns the place of the table of deleted items, for a change.
    fn deleted_slot(&mut self) -> Result<&mut Option<Box<Deleted>>, Error> {
        Self::reserve_extras(&mut self.extras)?.deleted.slot().ok_or(Error::Unsound)
    }
}

/// Equal in every logical field, in every bit, with pending adds included, and in the deleted items.
impl<R: Rules> PartialEq for Chain<R> {
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules
            && self.layers.len() == other.layers.len()
            && self.layers.iter().zip(other.layers()).all(|(a, b)| a.description() == b.description())
            && self.layer_views().zip(other.layer_views()).all(|(a, b)| a.has_cells_of(b))
            && self.deleted() == other.deleted()
    }
}

/// Checks the number of layers of a chain.
fn check_length<R: Rules>(rules: &R, layers: usize) -> Result<(), Error> {
    let sound = (1..=R::LAYERS_MAX).contains(&layers) && (layers == 1 || rules.scaling() != Scaling::Fixed);
    if sound { Ok(()) } else { Err(Error::Unsound) }
}
