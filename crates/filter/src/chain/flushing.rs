//! Pending adds of a chain: adding, looking up, and flushing them into the cells.

use super::Chain;
use super::layer::Layer;
use super::lookup::exact_hashes;
use super::outcome::Added;
use super::pending::Pending;
use super::rules::{HashOf, Rules};
use crate::ceiling::Ceiling;
use crate::geometry::Geometry;
use crate::hash::ItemHash;
use crate::mask::{BATCH, Mask};

/// Adding.
impl<R: Rules> Chain<R> {
    /// Whether it has pending adds.
    #[inline]
    #[must_use]
    pub fn pends(&self) -> bool {
        self.pending().is_some()
    }

    /// The number of bytes requested from the allocator for pending adds.
    #[inline]
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.pending().map_or(0, Pending::allocated_bytes)
    }

    /// Whether the ceiling has room for all that the pending adds of the newest layer may still take. If they began to fill memory that
    /// is short, the server would soon refuse the adds, or evict other keys for them.
    #[cold]
    #[inline(never)]
    pub(super) fn has_room_to_pend(&self, ceiling: &impl Ceiling) -> bool {
        let newest = self.layers.last().map_or(0, |newest| newest.geometry().size_bytes());
        ceiling.has_room_to_pend(Pending::growth(self.pending(), self.layers.len().saturating_sub(1), newest))
    }

    /// Adds an absent item to the newest layer, which is not full: as a pending add if memory and the layer's set have room.
    #[cold]
    #[inline(never)]
    pub(super) fn insert_or_pend(&mut self, hash: HashOf<R>, probe: <R::Geometry as Geometry>::Probe, has_room: bool) {
        let layer = self.layers.len().saturating_sub(1);
        let Some(newest) = self.layers.last_mut() else { return };
        let most = Pending::capacity(newest.geometry().size_bytes());
        let hash = R::Geometry::to_pending(hash);
        let can_pend = has_room && newest.geometry().can_pend();
        let pends = can_pend
            && Self::reserve_beside(&mut self.beside)
                .is_ok_and(|beside| Pending::insert(&mut beside.pending, layer, hash, most));
        if !pends {
            newest.put(probe);
        }
        newest.count_one();
        if !pends {
            self.free_empty_beside();
        }
    }

    /// Continues a batch at `added.done`: adds the items of the mask `wanted` to the newest layer as pending adds unless they are
    /// found there. Returns whether the batch is done; if not, the item at `added.done` is new and the layer is full.
    #[cold]
    pub(super) fn add_or_pend_until_full(
        &mut self,
        hashes: &[HashOf<R>],
        wanted: Mask,
        added: &mut Added,
        ceiling: &impl Ceiling,
    ) -> bool {
        let has_room = self.has_room_to_pend(ceiling);
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
                self.insert_or_pend(*hash, *probe, has_room);
                added.new.insert(index);
            }
            added.done = index + 1;
        }
        true
    }

    /// Flushes up to `most` pending adds into the cells, those of the oldest layer first. Returns how many: 0 if none are left.
    /// Each costs up to two microseconds, because its page is rarely in the cache and the first write to a page after a fork is
    /// a page fault.
    pub(crate) fn flush_pending(&mut self, most: usize) -> usize {
        let mut merged = 0;
        while merged < most {
            let mut taken = [ItemHash::default(); BATCH];
            let room = taken.get_mut(..(most - merged).min(BATCH)).unwrap_or_default();
            let Some(beside) = &mut self.beside else { break };
            let Some((layer, count)) = Pending::take_some(&mut beside.pending, room) else { break };
            let Some(layer) = self.layers.get_mut(layer) else { break };
            let hashes = taken.map(R::Geometry::from_pending);
            layer.prefetch(&hashes, Mask::first(count));
            hashes.iter().take(count).for_each(|hash| layer.put(layer.probe(*hash)));
            merged += count;
        }
        self.free_empty_beside();
        merged
    }
}

/// Lookups.
impl<R: Rules> Chain<R> {
    /// Returns the items of the mask `wanted` that are `present` in the cells or pending in any layer.
    #[inline]
    pub(super) fn or_pending(&self, hashes: &[HashOf<R>], wanted: Mask, present: Mask) -> Mask {
        match self.pending() {
            Some(pending) if present != wanted => present | Self::pending_batch(pending, hashes, wanted - present),
            _ => present,
        }
    }

    #[cold]
    fn pending_batch(pending: &Pending, hashes: &[HashOf<R>], wanted: Mask) -> Mask {
        pending.contains_batch(&exact_hashes::<R>(hashes), wanted)
    }

    /// Whether an add of this item is pending.
    #[inline]
    pub(super) fn is_pending(&self, hash: HashOf<R>) -> bool {
        self.pending().is_some_and(|pending| Self::is_among(pending, hash))
    }

    #[cold]
    #[inline(never)]
    fn is_among(pending: &Pending, hash: HashOf<R>) -> bool {
        pending.contains(R::Geometry::to_pending(hash))
    }

    /// Prefetches what lookups of the items of the mask `wanted` read of the pending adds.
    #[inline]
    pub(super) fn prefetch_pending(&self, hashes: &[HashOf<R>], wanted: Mask) {
        if let Some(pending) = self.pending() {
            pending.prefetch(&exact_hashes::<R>(hashes), wanted);
        }
    }
}

impl<G: Geometry> Layer<G> {
    /// Whether new adds may become pending, if a ceiling allows that for layers of at least this size.
    #[inline]
    pub(super) fn may_pend(&self, from_bytes: Option<u64>) -> bool {
        from_bytes.is_some_and(|from_bytes| self.geometry().size_bytes() >= from_bytes)
    }
}
