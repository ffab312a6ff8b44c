//! Pending adds: what was added to a large layer and is not in its cells yet.
//!
//! While a child of the server saves, the first write to each page of memory is a fault and a copy of the page: 3 to 5
//! microseconds. So new items wait beside the layer, in an exact set of their hashes, 19 to 24 bytes an item, and are written
//! into the cells later, a few at a time. A lookup that misses the cells asks the set.
//!
//! Whoever reads the cells as a whole, to save or to copy them, reads copies of pieces into which the adds that pend there are
//! written. The set lies in the order of the layer's pages, so a piece needs only a part of it, and nothing is sorted.

use super::chain::{Added, Chain};
use super::hash_set::HashSet;
use super::layer::Layer;
use super::rules::{HashOf, Rules};
use crate::geometry::Geometry;
use crate::hash::ItemHash;
use crate::mask::{BATCH, Mask};
use crate::memory::{reserve, try_box};

/// A set takes at most one `SHARE`th of its layer's bytes.
const SHARE: u64 = 8;

/// The adds to a chain that pend: to some of its layers some.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// In the order of the layers, none empty: few, for only the newest layer gets more.
    sets: Vec<Set>,
}

/// The adds to a layer that pend.
#[derive(Debug)]
struct Set {
    layer: usize,
    hashes: HashSet,
    /// The `h1` of one that was merged last: the next are those after it.
    last_merged: u64,
}

impl Pending {
    /// Bytes that were asked of the allocator.
    fn allocated_bytes(&self) -> u64 {
        let fields = (size_of::<Self>() + self.sets.capacity() * size_of::<Set>()) as u64;
        self.sets.iter().fold(fields, |sum, set| sum.saturating_add(set.hashes.allocated_bytes()))
    }

    /// The hashes of the adds to a layer that pend.
    pub(super) fn of(&self, layer: usize) -> Option<&HashSet> {
        self.sets.iter().rev().find(|set| set.layer == layer).map(|set| &set.hashes)
    }

    /// Starts to load what a lookup of an item, or an add, reads.
    #[cold]
    #[inline(never)]
    pub(super) fn prefetch_one(&self, hash: ItemHash) {
        self.sets.iter().for_each(|set| set.hashes.prefetch(&[hash], Mask::first(1)));
    }

    /// Adds a hash to the pending set of the newest layer, which may hold `most` of them. Answers whether it is in.
    fn insert(place: &mut Option<Box<Self>>, layer: usize, hash: ItemHash, most: u64) -> bool {
        if let Some(set) = place.as_mut().and_then(|pending| pending.sets.last_mut()).filter(|set| set.layer == layer) {
            return set.hashes.len() < most && set.hashes.insert(hash).is_ok();
        }
        let mut hashes = HashSet::new();
        if most == 0 || hashes.insert(hash).is_err() {
            return false;
        }
        let mut new = None;
        let Some(pending) = place.as_mut().or_else(|| {
            new = try_box(Self::default()).ok();
            new.as_mut()
        }) else {
            return false;
        };
        if reserve(&mut pending.sets, 1).is_err() {
            return false;
        }
        pending.sets.push(Set { layer, hashes, last_merged: 0 });
        if new.is_some() {
            *place = new;
        }
        true
    }

    /// Takes adds to one layer out, as many as there is room for. Answers how many, and of which layer.
    fn take_some(place: &mut Option<Box<Self>>, taken: &mut [ItemHash]) -> Option<(usize, usize)> {
        let pending = place.as_mut()?;
        let set = pending.sets.first_mut()?;
        let (layer, count) = (set.layer, set.hashes.take_some(set.last_merged, taken));
        if let Some(first) = taken.first() {
            set.last_merged = first.h1;
        }
        if set.hashes.is_empty() {
            pending.sets.remove(0);
        }
        if pending.sets.is_empty() {
            *place = None;
        }
        Some((layer, count))
    }
}

/// Adding.
impl<R: Rules> Chain<R> {
    /// Whether adds pend.
    #[inline]
    #[must_use]
    pub const fn pends(&self) -> bool {
        self.pending.is_some()
    }

    /// Bytes that were asked of the allocator for adds that pend.
    #[inline]
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.pending.as_deref().map_or(0, Pending::allocated_bytes)
    }

    /// Adds an absent item to the newest layer, which has room for it: as a pending add if the layer's set has room, too.
    #[cold]
    #[inline(never)]
    pub(super) fn insert_or_pend(&mut self, hash: HashOf<R>, probe: <R::Geometry as Geometry>::Probe) {
        let layer = self.layers.len().saturating_sub(1);
        let Some(newest) = self.layers.last_mut() else { return };
        let bytes = newest.geometry().size_bytes() / SHARE;
        let most = HashSet::capacity_in(bytes.saturating_sub((size_of::<Pending>() + size_of::<Set>()) as u64));
        let hash = R::Geometry::to_pending(hash);
        if !(newest.geometry().can_pend() && Pending::insert(&mut self.pending, layer, hash, most)) {
            newest.put(probe);
        }
        newest.count_one();
    }

    /// Goes on with a batch from `added.done`, adding the items of the mask `wanted` to the newest layer: they pend there, and are
    /// found when they come again in the batch. Answers whether the batch is through; if not, the item at `added.done` is new
    /// and the layer full.
    #[cold]
    pub(super) fn add_or_pend_until_full(&mut self, hashes: &[HashOf<R>], wanted: Mask, added: &mut Added) -> bool {
        let Some(newest) = self.layers.last() else { return true };
        newest.prefetch(hashes, wanted);
        self.prefetch_pending(hashes, wanted);
        let probes = newest.probes(hashes);
        for (index, (hash, probe)) in hashes.iter().zip(&probes).enumerate().skip(added.done) {
            let is_in = self.layers.last().is_none_or(|newest| newest.contains(*probe));
            if wanted.contains(index) && !is_in && !self.is_pending(*hash) {
                if self.layers.last().is_none_or(Layer::is_full) {
                    return false;
                }
                self.insert_or_pend(*hash, *probe);
                added.new.insert(index);
            }
            added.done = index + 1;
        }
        true
    }

    /// Writes adds that pend into the cells, at most so many, those of the oldest layer first. Answers how many. Each costs up to
    /// two microseconds: its page is rarely in the cache, and the first write to that after a child of the server is a fault.
    pub(crate) fn merge_pending(&mut self, most: usize) -> usize {
        let mut merged = 0;
        while merged < most {
            let mut taken = [ItemHash::default(); BATCH];
            let room = taken.get_mut(..(most - merged).min(BATCH)).unwrap_or_default();
            let Some((layer, count)) = Pending::take_some(&mut self.pending, room) else { break };
            let Some(layer) = self.layers.get_mut(layer) else { break };
            let hashes = taken.map(R::Geometry::from_pending);
            layer.prefetch(&hashes, Mask::first(count));
            hashes.iter().take(count).for_each(|hash| layer.put(layer.probe(*hash)));
            merged += count;
        }
        merged
    }
}

/// Lookups.
impl<R: Rules> Chain<R> {
    /// Those of the mask `wanted` that are `present` in the cells of some layers, or pend in any.
    #[inline]
    pub(super) fn or_pending(&self, hashes: &[HashOf<R>], wanted: Mask, present: Mask) -> Mask {
        match &self.pending {
            Some(pending) if present != wanted => present | Self::pending_batch(pending, hashes, wanted - present),
            _ => present,
        }
    }

    #[cold]
    fn pending_batch(pending: &Pending, hashes: &[HashOf<R>], wanted: Mask) -> Mask {
        let hashes = pending_hashes(R::Geometry::to_pending, hashes);
        let sets = pending.sets.iter();
        sets.fold(Mask::NONE, |found, set| found | set.hashes.contains_batch(&hashes, wanted - found))
    }

    /// Whether an item pends.
    #[inline]
    pub(super) fn is_pending(&self, hash: HashOf<R>) -> bool {
        self.pending.as_ref().is_some_and(|pending| Self::is_among(pending, hash))
    }

    #[cold]
    #[inline(never)]
    fn is_among(pending: &Pending, hash: HashOf<R>) -> bool {
        let hash = R::Geometry::to_pending(hash);
        pending.sets.iter().any(|set| set.hashes.contains(hash))
    }

    /// Starts to load what lookups of the items of the mask `wanted` read of adds that pend.
    #[inline]
    pub(super) fn prefetch_pending(&self, hashes: &[HashOf<R>], wanted: Mask) {
        if let Some(pending) = &self.pending {
            let hashes = pending_hashes(R::Geometry::to_pending, hashes);
            pending.sets.iter().for_each(|set| set.hashes.prefetch(&hashes, wanted));
        }
    }
}

/// Returns the hashes under which the items of a batch are pending.
#[inline]
fn pending_hashes<H: Copy>(to_pending: impl Fn(H) -> ItemHash, hashes: &[H]) -> [ItemHash; BATCH] {
    let mut pending = [ItemHash::default(); BATCH];
    pending.iter_mut().zip(hashes).for_each(|(to, from)| *to = to_pending(*from));
    pending
}

impl<G: Geometry> Layer<G> {
    /// Whether new adds may pend, by what a ceiling says of layers of that size.
    #[inline]
    pub(super) fn may_pend(&self, from_bytes: Option<u64>) -> bool {
        from_bytes.is_some_and(|from_bytes| self.geometry().size_bytes() >= from_bytes)
    }
}
