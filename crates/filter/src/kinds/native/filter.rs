//! A native filter: a chain, and the table of what was deleted from it, which is in `deleting.rs`.

use super::NativeSpec;
use super::deleting::Deleted;
use crate::ceiling::{Beside, Ceiling};
use crate::cells::Mover;
use crate::clock::Clock;
use crate::error::Error;
use crate::geometry::{BlockedBits, LayerDescription};
use crate::hash::{HashBatch, ItemHash};
use crate::kinds::Contents;
use crate::kinds::info::LayerSummary;
use crate::kinds::kind::{Kind, Origin, Outcome, Removed};
use crate::kinds::stats::Measured;
use crate::mask::Mask;
use crate::scaling::Scaling;
use crate::shape::{Added, Chain, Layer, Probes, WhenFull};

/// A filter of our own layout.
#[derive(Debug)]
pub struct BloomFilter {
    pub(super) chain: Chain<NativeSpec>,
    /// What was deleted, if anything ever was.
    pub(super) deleted: Option<Box<Deleted>>,
}

impl BloomFilter {
    /// An empty filter for `capacity` items (at least 1) at false positive rate `rate`
    /// ([`RATE_MIN`](crate::geometry::sizing::RATE_MIN) to [`RATE_MAX`](crate::geometry::sizing::RATE_MAX)), hashed by
    /// MurmurHash3. Costs microseconds, whatever its size.
    ///
    /// # Errors
    /// As [`with_spec`](Self::with_spec).
    pub fn new(rate: f64, capacity: u64, scaling: Scaling, seed: u32, ceiling: &impl Ceiling) -> Result<Self, Error> {
        Self::with_spec(NativeSpec::murmur3(rate, capacity, scaling, seed), ceiling)
    }

    /// An empty filter. Costs microseconds, whatever its size.
    ///
    /// # Errors
    /// [`Error::RateOutOfRange`], [`Error::CapacityOutOfRange`], [`Error::AboveCeiling`], [`Error::OutOfMemory`],
    /// [`Error::SizeOverflow`].
    pub fn with_spec(spec: NativeSpec, ceiling: &impl Ceiling) -> Result<Self, Error> {
        if !spec.has_sound_rate() {
            return Err(Error::RateOutOfRange);
        }
        Self::part(spec, ceiling)
    }

    /// An empty filter that is a part of another one, of whose rate it has a part.
    ///
    /// # Errors
    /// As [`with_spec`](Self::with_spec).
    pub(crate) fn part(spec: NativeSpec, ceiling: &impl Ceiling) -> Result<Self, Error> {
        Chain::with_first_layer(spec, &spec.layer(0, spec.capacity)?, ceiling).map(Self::of)
    }

    /// A filter with layers as described, their bits all zero, for a reader that fills them in. The ceiling is asked once,
    /// for the whole of it, before anything is allocated.
    ///
    /// # Errors
    /// [`Error::Unsound`] for layers that no filter has, [`Error::AboveCeiling`], [`Error::OutOfMemory`].
    pub fn with_zero_bits(
        spec: NativeSpec,
        layers: &[LayerDescription<BlockedBits>],
        ceiling: &impl Ceiling,
    ) -> Result<Self, Error> {
        if !spec.has_sound_rate() {
            return Err(Error::Unsound);
        }
        Self::part_with_zero_bits(spec, layers, ceiling)
    }

    /// The same of a part of another filter.
    ///
    /// # Errors
    /// As [`with_zero_bits`](Self::with_zero_bits).
    pub(crate) fn part_with_zero_bits(
        spec: NativeSpec,
        layers: &[LayerDescription<BlockedBits>],
        ceiling: &impl Ceiling,
    ) -> Result<Self, Error> {
        if spec.capacity == 0 {
            return Err(Error::Unsound);
        }
        Chain::with_empty_layers(spec, layers.iter().copied(), ceiling).map(Self::of)
    }

    /// What is left where a filter was taken out: no layers, no bits. It holds nothing and takes nothing.
    pub(crate) const fn nothing() -> Self {
        Self::of(Chain::hollow(NativeSpec::NOTHING))
    }

    pub(super) const fn of(chain: Chain<NativeSpec>) -> Self {
        Self { chain, deleted: None }
    }

    /// A filter with the same fields and bits. Pages that are all zero are not touched in the copy.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the allocator refuses.
    pub fn try_clone(&self) -> Result<Self, Error> {
        let deleted = self.deleted.as_deref().map(Deleted::try_clone).transpose()?;
        Ok(Self { chain: self.chain.try_clone()?, deleted })
    }

    /// What made it.
    #[must_use]
    pub const fn spec(&self) -> NativeSpec {
        *self.chain.rules()
    }

    /// What becomes of it when it is full.
    #[must_use]
    pub const fn scaling(&self) -> Scaling {
        self.chain.rules().scaling
    }

    /// Its layers, oldest first.
    #[must_use]
    pub fn layers(&self) -> &[Layer<BlockedBits>] {
        self.chain.layers()
    }

    /// Its layers, without the table.
    pub(crate) const fn chain(&self) -> &Chain<NativeSpec> {
        &self.chain
    }

    /// Its layers, without the table, to be changed.
    pub(crate) const fn chain_mut(&mut self) -> &mut Chain<NativeSpec> {
        &mut self.chain
    }

    /// The number of items that all its layers together are made for.
    #[must_use]
    pub const fn total_capacity(&self) -> u64 {
        self.chain.total_capacity()
    }

    /// The number of items that are in: the adds that were answered "new", less those that were deleted.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.chain.items().saturating_sub(self.deleted_entries())
    }

    /// The number of items that can be added before it is full or grows.
    #[must_use]
    pub fn remaining_capacity(&self) -> u64 {
        self.chain.remaining_capacity()
    }

    /// What it is made of, in bytes; see [`Chain::size_bytes`]. An entry of the table takes 16.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.chain.size_bytes().saturating_add(self.entries_bytes())
    }

    /// Bytes that were asked of the allocator, the filter's own fields included. Visits every layer.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        let fields = (size_of::<Self>() - size_of_val(&self.chain)) as u64;
        let table = self.deleted.as_deref().map_or(0, Deleted::allocated_bytes);
        self.chain.allocated_bytes().saturating_add(fields).saturating_add(table)
    }

    /// Lets the mover move its memory from place number `first` on: the layers, then the parts of the table. Answers with
    /// the place to go on with, if the mover has done enough before the last.
    pub fn relocate(&mut self, first: usize, mover: &mut impl Mover) -> Option<usize> {
        let layers = self.layers().len();
        if first < layers {
            let next = self.chain.relocate(first, mover);
            if next.is_some() {
                return next;
            }
            if self.table_parts() > 0 && mover.has_done_enough() {
                return Some(layers);
            }
        }
        let next = self.relocate_table(first.saturating_sub(layers), mover)?;
        Some(layers + next)
    }

    /// The number of places that [`relocate`](Self::relocate) goes through.
    pub(crate) fn places(&self) -> usize {
        self.layers().len() + self.table_parts()
    }

    /// The stored bits of a layer, for a reader that fills them in.
    pub fn layer_bytes_mut(&mut self, layer: usize) -> Option<&mut [u8]> {
        self.chain.layer_bytes_mut(layer)
    }

    /// See [`Chain::count_at_least`].
    ///
    /// # Errors
    /// As there.
    pub fn count_at_least(&mut self, layer: usize, items: u64) -> Result<(), Error> {
        self.chain.count_at_least(layer, items)
    }

    /// The hash of an item.
    #[inline]
    #[must_use]
    pub fn hash(&self, item: &[u8]) -> ItemHash {
        self.chain.hash(item)
    }

    /// The hashes of up to [`BATCH`](crate::BATCH) items (the rest of a longer list is not looked at).
    #[inline]
    pub fn hash_batch<'a>(&self, items: impl IntoIterator<Item = &'a [u8]>) -> HashBatch {
        self.chain.hash_batch(items)
    }
}

impl BloomFilter {
    /// Its size in bytes and its items. Apart, and no struct, so that those of most filters are in registers.
    #[cold]
    fn contents_with_deleted(&self) -> (u64, u64) {
        (self.size_bytes(), self.items())
    }
}

/// Adds and lookups.
impl BloomFilter {
    /// Whether an item may be in; see [`Chain::contains`].
    #[inline]
    #[must_use]
    pub fn contains(&self, item: &[u8]) -> bool {
        self.contains_hash(self.hash(item))
    }

    #[inline]
    pub(crate) fn contains_hash(&self, hash: ItemHash) -> bool {
        self.chain.contains_hash(hash) && !self.has_deleted(hash)
    }

    /// Adds an item; answers whether it was new. See [`Chain::add`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn add(&mut self, item: &[u8], ceiling: &impl Ceiling) -> Result<bool, Error> {
        self.add_hash(self.hash(item), ceiling)
    }

    /// Adds the item with this hash. One that was deleted has its bits: only its entry goes.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    #[inline]
    pub(crate) fn add_hash(&mut self, hash: ItemHash, ceiling: &impl Ceiling) -> Result<bool, Error> {
        let entries_bytes = self.entries_bytes();
        let beside = Beside { ceiling, other_bytes: || entries_bytes };
        Ok(self.chain.add_hash(hash, &beside)? || entries_bytes > 0 && self.restore(hash))
    }

    /// Looks up to [`BATCH`](crate::BATCH) items up together (the rest of a longer list is not looked at); answers which of
    /// them may be in.
    #[inline]
    #[must_use]
    pub fn contains_batch(&self, hashes: &[ItemHash]) -> Mask {
        let Some(deleted) = &self.deleted else { return self.chain.contains_batch(hashes) };
        let mut lookup = deleted.hashes.lookup(hashes);
        let present = self.chain.contains_batch_announced(hashes, |maybe| lookup.fetch(maybe));
        present - lookup.present(present)
    }

    /// See [`Chain::contains_fetched`].
    #[inline]
    pub(crate) fn contains_fetched(&self, probes: &mut Probes<'_, BlockedBits>, wanted: Mask) -> Mask {
        self.but_deleted(probes.hashes(), self.chain.contains_fetched(probes, wanted))
    }

    /// Adds up to [`BATCH`](crate::BATCH) items together (the rest of a longer list is not looked at), in order: the
    /// answers are those of adding them one by one.
    #[inline]
    pub fn add_batch(&mut self, hashes: &[ItemHash], ceiling: &impl Ceiling) -> Added {
        self.add_batch_unless(hashes, Mask::NONE, ceiling)
    }

    /// The same, but for those that are known to be in elsewhere: they are not new.
    #[inline]
    pub(crate) fn add_batch_unless(&mut self, hashes: &[ItemHash], known: Mask, ceiling: &impl Ceiling) -> Added {
        let entries_bytes = self.entries_bytes();
        let beside = Beside { ceiling, other_bytes: || entries_bytes };
        let mut added = self.chain.add_batch_unless(hashes, known, &beside);
        if entries_bytes > 0 {
            self.restore_batch(hashes, known, &mut added);
        }
        added
    }
}

/// Equal in every logical field, in every bit and in what was deleted.
impl PartialEq for BloomFilter {
    fn eq(&self, other: &Self) -> bool {
        self.chain == other.chain && self.deleted() == other.deleted()
    }
}

impl Kind for BloomFilter {
    fn scaling(&self) -> Scaling {
        Self::scaling(self)
    }

    fn layer_count(&self) -> usize {
        self.layers().len()
    }

    fn layer(&self, index: usize) -> Option<LayerSummary> {
        Kind::layer(&self.chain, index)
    }

    #[inline]
    fn contents(&self) -> Contents {
        let contents = Kind::contents(&self.chain);
        if self.deleted.is_none() {
            return contents;
        }
        let (size_bytes, items) = self.contents_with_deleted();
        Contents { size_bytes, items, ..contents }
    }

    fn remaining_capacity(&self) -> u64 {
        Self::remaining_capacity(self)
    }

    fn allocated_bytes(&self) -> u64 {
        Self::allocated_bytes(self)
    }

    fn relocate(&mut self, first: usize, mover: &mut impl Mover) -> Option<usize> {
        Self::relocate(self, first, mover)
    }

    fn merge_pending(&mut self, most: usize) -> usize {
        self.chain.merge_pending(most)
    }

    fn emptied(&self) -> Result<Self, Error> {
        self.chain.emptied().map(Self::of)
    }

    fn measure(&self, clock: &impl Clock, measured: &mut Measured) -> Result<(), Error> {
        measured.add_deleted(self.deleted_entries(), self.deleted_entries_max());
        self.chain.measure(clock, measured)
    }

    #[inline]
    fn contains(&self, item: &[u8], _clock: &impl Clock) -> bool {
        Self::contains(self, item)
    }

    #[inline]
    fn contains_batch<'a>(&self, items: impl IntoIterator<Item = &'a [u8]>, _clock: &impl Clock) -> Mask {
        Self::contains_batch(self, &self.hash_batch(items))
    }

    #[inline]
    fn add(
        &mut self,
        item: &[u8],
        origin: Origin,
        _clock: &impl Clock,
        ceiling: &impl Ceiling,
    ) -> Result<Outcome, Error> {
        if origin == Origin::Client {
            return Self::add(self, item, ceiling).map(Outcome::of);
        }
        let added = self.obey_batch(&[self.hash(item)], Mask::NONE, WhenFull::Insert, ceiling);
        added.error.map_or(Ok(Outcome::New), Err)
    }

    #[inline]
    fn add_batch<'a>(
        &mut self,
        items: impl IntoIterator<Item = &'a [u8]>,
        origin: Origin,
        _clock: &impl Clock,
        ceiling: &impl Ceiling,
    ) -> Added {
        let hashes = self.hash_batch(items);
        match origin {
            Origin::Client => Self::add_batch(self, &hashes, ceiling),
            Origin::Effect => self.obey_batch(&hashes, Mask::NONE, WhenFull::Insert, ceiling),
        }
    }

    fn remove_batch<'a>(
        &mut self,
        items: impl IntoIterator<Item = &'a [u8]>,
        origin: Origin,
        _clock: &impl Clock,
        ceiling: &impl Ceiling,
    ) -> Removed {
        if !self.spec().hasher.is_keyed() {
            return Removed::REFUSED;
        }
        let hashes = self.hash_batch(items);
        self.delete_batch(&hashes, origin, ceiling)
    }
}
