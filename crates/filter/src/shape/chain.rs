//! The chain of layers: what every filter is, whatever its layout. Adds and lookups, in batches.

use super::layer::{Layer, Prefetch};
use super::older::{contains_in_older, contains_one_in_older, prefetch_one};
use super::pending::Pending;
use super::probes::Probes;
use super::rules::{HashOf, Rules};
use super::totals::{self, Totals};
use crate::ceiling::{Ceiling, Unlimited};
use crate::cells::{Cells as _, Mover, PAGE_BYTES, is_zero, relocate_elements};
use crate::error::Error;
use crate::geometry::{Geometry, LayerDescription};
use crate::hash::HashBatch;
use crate::mask::{BATCH, Mask};
use crate::memory::reserve;
use crate::scaling::Scaling;

/// What a batch of adds did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// The items that were new.
    pub new: Mask,
    /// The items that changed something: those that were new, in most filters.
    pub effect: Mask,
    /// How many items of the batch were dealt with, from the first on; all of them unless there was an error.
    pub done: usize,
    /// Why the item after them was refused.
    pub error: Option<Error>,
}

/// A filter: a chain of layers under the same rules.
#[derive(Debug)]
pub struct Chain<R: Rules> {
    pub(super) rules: R,
    pub(super) layers: Vec<Layer<R::Geometry>>,
    pub(super) totals: Totals,
    /// Adds that are counted and not in the cells yet.
    pub(super) pending: Option<Box<Pending>>,
}

impl<R: Rules> Chain<R> {
    /// A filter with one empty layer.
    ///
    /// # Errors
    /// [`Error::AboveCeiling`], [`Error::OutOfMemory`], [`Error::SizeOverflow`], [`Error::Unsound`].
    pub(crate) fn with_first_layer(
        rules: R,
        first: &LayerDescription<R::Geometry>,
        ceiling: &impl Ceiling,
    ) -> Result<Self, Error> {
        let mut filter = Self::hollow(rules);
        filter.push_layer(first, ceiling)?;
        Ok(filter)
    }

    /// A filter with layers as described, their bits all zero, for a reader that fills them in. The ceiling is asked
    /// once, for the whole of it, before anything is allocated.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a description that no filter has, [`Error::TooManyLayers`], [`Error::AboveCeiling`],
    /// [`Error::OutOfMemory`].
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
        ceiling.allow(0, R::size_bytes(layers.len(), totals.cells_bytes))?;
        let mut filter = Self { rules, layers: Vec::new(), totals, pending: None };
        reserve(&mut filter.layers, layers.len())?;
        for layer in layers {
            filter.layers.push(filter.rules.empty_layer(&layer)?);
        }
        Ok(filter)
    }

    /// A filter of these layers.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a number of layers that no filter has, and for more items than 64 bits count.
    pub(crate) fn from_layers(rules: R, layers: Vec<Layer<R::Geometry>>) -> Result<Self, Error> {
        check_length(&rules, layers.len())?;
        let totals = Totals::of(layers.iter().map(Layer::description))?;
        Ok(Self { rules, layers, totals, pending: None })
    }

    /// What is left where a filter was taken out: no layers, no bits. It holds nothing and takes nothing.
    pub(crate) const fn hollow(rules: R) -> Self {
        let totals = Totals { older_items: 0, capacity: 0, cells_bytes: 0 };
        Self { rules, layers: Vec::new(), totals, pending: None }
    }

    /// A filter with the same fields and bits. Pages that are all zero are not touched in the copy. Adds that pend are in its
    /// bits.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the allocator refuses.
    pub fn try_clone(&self) -> Result<Self, Error> {
        let descriptions = self.layers.iter().map(Layer::description);
        let mut copy = Self::with_empty_layers(self.rules.clone(), descriptions, &Unlimited)?;
        for (from, to) in self.whole_layers().zip(&mut copy.layers) {
            let pages = from.layer().bytes().chunks(PAGE_BYTES).zip(to.cells_mut().bytes_mut().chunks_mut(PAGE_BYTES));
            pages.filter(|(from, _)| !is_zero(from)).for_each(|(from, to)| to.copy_from_slice(from));
            from.put_pending_into(to);
        }
        Ok(copy)
    }

    /// A chain as this one was created: its first layer, without an item. Costs microseconds, whatever the size, and asks no
    /// ceiling: it takes the place of this one.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the allocator refuses.
    pub(crate) fn emptied(&self) -> Result<Self, Error> {
        let first = self.layers.first().map(|layer| LayerDescription { items: 0, ..layer.description() });
        let first = first.ok_or(Error::Unsound)?;
        Self::with_first_layer(self.rules.clone(), &first, &Unlimited)
    }

    /// By which rules it hashes and grows.
    #[must_use]
    pub const fn rules(&self) -> &R {
        &self.rules
    }

    /// What becomes of it when it is full.
    #[must_use]
    pub fn scaling(&self) -> Scaling {
        self.rules.scaling()
    }

    /// Its layers, oldest first.
    #[must_use]
    pub fn layers(&self) -> &[Layer<R::Geometry>] {
        &self.layers
    }

    /// The number of items that all its layers together are made for.
    #[must_use]
    pub const fn total_capacity(&self) -> u64 {
        self.totals.capacity
    }

    /// The number of items that were added: the adds that were answered "new".
    #[inline]
    #[must_use]
    pub fn items(&self) -> u64 {
        self.totals.older_items.saturating_add(self.layers.last().map_or(0, Layer::items))
    }

    /// The number of items that can be added before it is full or grows.
    #[must_use]
    pub fn remaining_capacity(&self) -> u64 {
        self.layers.last().map_or(0, |newest| newest.capacity().saturating_sub(newest.items()))
    }

    /// What the filter is made of, in bytes: its fields and the cells of its layers, as BF.INFO tells it. It is the same for
    /// equal filters, and what a ceiling is asked for.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        R::size_bytes(self.layers.len(), self.totals.cells_bytes)
    }

    /// Bytes of the cells of all layers.
    #[must_use]
    pub const fn cells_bytes(&self) -> u64 {
        self.totals.cells_bytes
    }

    /// Bytes that were asked of the allocator, the filter's own fields included. Visits every layer.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        let fields = size_of::<Self>() + self.layers.capacity() * size_of::<Layer<R::Geometry>>();
        let held = (fields as u64).saturating_add(self.pending_bytes());
        self.layers.iter().fold(held, |sum, layer| sum.saturating_add(layer.cells().allocated_bytes()))
    }

    /// Lets the mover move the memory, but that of adds that pend, of the layers from number `first` on, oldest first. Answers with the number of the
    /// layer to go on with, if the mover has done enough before the last.
    pub fn relocate(&mut self, first: usize, mover: &mut impl Mover) -> Option<usize> {
        if first == 0 {
            relocate_elements(&mut self.layers, mover);
        }
        let count = self.layers.len();
        for (index, layer) in self.layers.iter_mut().enumerate().skip(first) {
            layer.cells_mut().relocate(mover);
            if index + 1 < count && mover.has_done_enough() {
                return Some(index + 1);
            }
        }
        None
    }

    /// The stored bits of a layer to which nothing was added yet, for a reader that fills them in.
    pub fn layer_bytes_mut(&mut self, layer: usize) -> Option<&mut [u8]> {
        self.layers.get_mut(layer).map(|layer| layer.cells_mut().bytes_mut())
    }

    /// Counts at least so many items in a layer, for a reader that fills in bits of more than were counted.
    ///
    /// # Errors
    /// [`Error::Unsound`] for more than the layer is made for, or than can be counted. Nothing has changed then.
    pub fn count_at_least(&mut self, layer: usize, items: u64) -> Result<(), Error> {
        let of_newest = self.layers.last().map_or(0, |newest| newest.capacity().max(newest.items()));
        let is_older = layer + 1 < self.layers.len();
        let counted = self.layers.get_mut(layer).ok_or(Error::Unsound)?;
        let more = if is_older { items.saturating_sub(counted.items()) } else { 0 };
        let older_items = self.totals.older_items.checked_add(more).ok_or(Error::Unsound)?;
        older_items.checked_add(of_newest).ok_or(Error::Unsound)?;
        counted.count_at_least(items)?;
        self.totals.older_items = older_items;
        Ok(())
    }

    /// The hash of an item, for the batches.
    #[inline]
    #[must_use]
    pub fn hash(&self, item: &[u8]) -> HashOf<R> {
        self.rules.hash(item)
    }

    /// The hashes of up to [`BATCH`] items (the rest of a longer list is not looked at).
    #[inline]
    pub fn hash_batch<'a>(&self, items: impl IntoIterator<Item = &'a [u8]>) -> HashBatch<HashOf<R>> {
        self.rules.hash_batch(items)
    }

    /// Whether an item may have been added. `false` is certain; `true` is wrong for a part of the absent items that is
    /// at most the rate, when the filter is full. Visits the layers newest first.
    #[must_use]
    pub fn contains(&self, item: &[u8]) -> bool {
        self.contains_hash(self.hash(item))
    }

    /// Whether the item with this hash may have been added.
    #[inline]
    pub(crate) fn contains_hash(&self, hash: HashOf<R>) -> bool {
        if let Some(pending) = &self.pending {
            pending.prefetch_one(R::Geometry::to_pending(hash));
        }
        contains_one(&self.layers, hash) || self.is_pending(hash)
    }

    /// Adds an item; answers whether it was new. A new item that the filter takes for one that is in (a false
    /// positive) is not added: it need not be.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooManyLayers`], [`Error::CapacityOutOfRange`], [`Error::OutOfMemory`]; the filter is
    /// then as it was.
    pub fn add(&mut self, item: &[u8], ceiling: &impl Ceiling) -> Result<bool, Error> {
        self.add_hash(self.hash(item), ceiling)
    }

    /// Adds the item with this hash.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    #[inline]
    pub(crate) fn add_hash(&mut self, hash: HashOf<R>, ceiling: &impl Ceiling) -> Result<bool, Error> {
        let Some((newest, older)) = self.layers.split_last_mut() else { return Err(Error::Full) };
        let probe = newest.probe(hash);
        if let Some(pending) = &self.pending {
            pending.prefetch_one(R::Geometry::to_pending(hash));
        }
        let is_in = !older.is_empty() && contains_one_apart(older, hash) || newest.contains(probe);
        if is_in || self.pending.is_some() && self.is_pending(hash) {
            return Ok(false);
        }
        let Some(newest) = self.layers.last_mut() else { return Err(Error::Full) };
        if newest.is_full() {
            self.grow(ceiling)?;
            let newest = self.layers.last_mut().ok_or(Error::Full)?;
            newest.insert(newest.probe(hash));
        } else if newest.may_pend(ceiling.pending_from_bytes()) {
            self.insert_or_pend(hash, probe);
        } else {
            newest.insert(probe);
        }
        Ok(true)
    }

    /// Looks up to [`BATCH`] items up together (the rest of a longer list is not looked at); answers which of them may have
    /// been added.
    #[must_use]
    pub fn contains_batch(&self, hashes: &[HashOf<R>]) -> Mask {
        self.contains_batch_announced(hashes, |_| ())
    }

    /// The same; calls `announce` with the items that may have been added, once a part of their bits was seen. Not with those that
    /// pend.
    #[inline]
    pub(crate) fn contains_batch_announced(&self, hashes: &[HashOf<R>], announce: impl FnOnce(Mask)) -> Mask {
        let (hashes, wanted) = batch(hashes);
        self.prefetch_pending(hashes, wanted);
        let present = contains_in(&self.layers, hashes, wanted, announce);
        self.or_pending(hashes, wanted, present)
    }

    /// Starts to load what lookups of the items of the mask `wanted` read first in the newest layer.
    #[inline]
    pub(crate) fn prefetch_first(&self, probes: &mut Probes<'_, R::Geometry>, wanted: Mask) {
        if let Some(newest) = self.layers.last() {
            newest.prefetch_first_at(probes.of(newest), wanted);
        }
    }

    /// Which items of the mask `wanted` may have been added, where [`prefetch_first`](Self::prefetch_first) was called for
    /// them.
    #[inline]
    pub(crate) fn contains_fetched(&self, probes: &mut Probes<'_, R::Geometry>, wanted: Mask) -> Mask {
        let Some((newest, older)) = self.layers.split_last() else { return Mask::NONE };
        if let Some(next) = older.last() {
            next.prefetch_first(probes.hashes(), wanted);
        }
        let present = newest.contains_batch_at(probes.of(newest), wanted);
        let present = present | contains_in_older(older, probes.hashes(), wanted - present);
        self.or_pending(probes.hashes(), wanted, present)
    }

    /// Adds up to [`BATCH`] items together (the rest of a longer list is not looked at), in order: the answers are
    /// those of adding them one by one.
    pub fn add_batch(&mut self, hashes: &[HashOf<R>], ceiling: &impl Ceiling) -> Added {
        self.add_batch_unless(hashes, Mask::NONE, ceiling)
    }

    /// The same, but for those that are known to be in elsewhere: they are not new.
    pub(crate) fn add_batch_unless(&mut self, hashes: &[HashOf<R>], known: Mask, ceiling: &impl Ceiling) -> Added {
        let (hashes, all) = batch(hashes);
        let mut added = Added { new: Mask::NONE, effect: Mask::NONE, done: 0, error: None };
        let from_bytes = ceiling.pending_from_bytes();
        // Layers before the newest do not change: ask them for the whole batch first.
        let in_older = |(_, older): (_, &[_])| contains_in(older, hashes, all - known, |_| ());
        let mut in_older = known | self.layers.split_last().map_or(Mask::NONE, in_older);
        // What pends in the newest is among it, too. What comes to pend below is asked for there.
        in_older = self.or_pending(hashes, all - known, in_older);
        while added.done < hashes.len() {
            let Some(newest) = self.layers.last_mut() else { break };
            let wanted = all - in_older - Mask::first(added.done);
            let is_through = if newest.may_pend(from_bytes) {
                self.add_or_pend_until_full(hashes, wanted, &mut added)
            } else {
                add_until_full(newest, hashes, wanted, &mut added)
            };
            if is_through {
                break;
            }
            // The next item needs a new layer; what is newest now will be one of the older.
            let Some(newest) = self.layers.last() else { break };
            let open = wanted - Mask::first(added.done);
            let in_newest = newest.contains_batch(hashes, open, Prefetch::Rest, |_| ());
            in_older |= self.or_pending(hashes, open, in_newest);
            if let Err(error) = self.grow(ceiling) {
                added.error = Some(error);
                break;
            }
        }
        added.effect = added.new;
        added
    }

    #[cold]
    pub(super) fn grow(&mut self, ceiling: &impl Ceiling) -> Result<(), Error> {
        let newest = self.layers.last().ok_or(Error::Full)?;
        let next = self.rules.next_layer(self.layers.len(), newest.capacity(), newest.rate())?;
        self.push_layer(&next, ceiling)
    }

    /// Adds a layer or changes nothing.
    fn push_layer(&mut self, layer: &LayerDescription<R::Geometry>, ceiling: &impl Ceiling) -> Result<(), Error> {
        let count = self.layers.len();
        let newest_items = self.layers.last().map_or(0, Layer::items);
        let totals = self.totals.with(newest_items, layer).ok_or(Error::CapacityOutOfRange)?;
        totals::check_layer::<R>(ceiling, count, self.totals.cells_bytes, layer.geometry.size_bytes())?;
        let layer = self.rules.empty_layer(layer)?;
        if count == self.layers.capacity() {
            // One more while there are few: the list is part of what a filter weighs. To a long one an eighth is added, so
            // that it is not copied for every layer.
            reserve(&mut self.layers, 1.max(count / 8))?;
        }
        self.layers.push(layer);
        self.totals = totals;
        Ok(())
    }
}

/// Equal in every logical field and in every bit, with what pends.
impl<R: Rules> PartialEq for Chain<R> {
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules
            && self.layers.len() == other.layers.len()
            && self.layers.iter().zip(&other.layers).all(|(a, b)| a.description() == b.description())
            && self.whole_layers().zip(other.whole_layers()).all(|(a, b)| a.has_cells_of(b))
    }
}

/// Whether a chain can have so many layers.
fn check_length<R: Rules>(rules: &R, layers: usize) -> Result<(), Error> {
    let sound = (1..=R::LAYERS_MAX).contains(&layers) && (layers == 1 || rules.scaling() != Scaling::Fixed);
    if sound { Ok(()) } else { Err(Error::Unsound) }
}

/// The first items of a list, as many as fit a batch, and the mask of all of them.
#[inline]
pub(super) fn batch<H>(hashes: &[H]) -> (&[H], Mask) {
    let hashes = hashes.get(..BATCH).unwrap_or(hashes);
    (hashes, Mask::first(hashes.len()))
}

/// Which items of the mask `wanted` are in one of the layers, newest first. What the next layer is asked first is on its way
/// into the cache before this one is looked at; of the newest, which has most items, all that a lookup may read.
#[inline]
fn contains_in<G: Geometry>(
    layers: &[Layer<G>],
    hashes: &[G::Hash],
    wanted: Mask,
    announce: impl FnOnce(Mask),
) -> Mask {
    let Some((newest, older)) = layers.split_last().filter(|_| !wanted.is_empty()) else { return Mask::NONE };
    newest.prefetch(hashes, wanted);
    if let Some(next) = older.last() {
        next.prefetch_first(hashes, wanted);
    }
    let present = newest.contains_batch(hashes, wanted, Prefetch::Nothing, announce);
    present | contains_in_older(older, hashes, wanted - present)
}

/// The same as [`contains_one`], as a call: for a place where there mostly are no layers.
#[inline(never)]
fn contains_one_apart<G: Geometry>(layers: &[Layer<G>], hash: G::Hash) -> bool {
    contains_one(layers, hash)
}

/// Whether an item is in one of the layers, newest first.
#[inline(always)]
fn contains_one<G: Geometry>(layers: &[Layer<G>], hash: G::Hash) -> bool {
    let Some((newest, older)) = layers.split_last() else { return false };
    if older.is_empty() {
        return newest.contains_hash(hash);
    }
    prefetch_one(older, hash);
    newest.contains_hash(hash) || contains_one_in_older(older, hash)
}

/// Goes on with a batch from `added.done`, adding the items of the mask `wanted` to the newest layer. Answers whether
/// the batch is through; if not, the item at `added.done` is new and the layer full.
#[inline]
fn add_until_full<G: Geometry>(newest: &mut Layer<G>, hashes: &[G::Hash], wanted: Mask, added: &mut Added) -> bool {
    newest.prefetch(hashes, wanted);
    let probes = newest.probes(hashes);
    for (index, probe) in probes.iter().enumerate().take(hashes.len()).skip(added.done) {
        if wanted.contains(index) && !newest.contains(*probe) {
            if newest.is_full() {
                return false;
            }
            newest.insert(*probe);
            added.new.insert(index);
        }
        added.done = index + 1;
    }
    true
}
