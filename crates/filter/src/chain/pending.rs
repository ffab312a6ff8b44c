//! Pending adds: what was added to a large layer and is not in its cells yet.
//!
//! While a child of the server saves, the first write to each page of memory is a fault and a copy of the page: 3 to 5
//! microseconds. So new items wait beside the layer, in an exact set of their hashes, 19 to 24 bytes an item, and are written
//! into the cells later, a few at a time. A lookup that misses the cells asks the set.
//!
//! Whoever reads the cells as a whole, to save or to copy them, reads copies of pieces into which the adds that pend there are
//! written. The set lies in the order of the layer's pages, so a piece needs only a part of it, and nothing is sorted.

use super::hash_set::HashSet;
use crate::hash::ItemHash;
use crate::mask::Mask;
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
    pub(super) fn allocated_bytes(&self) -> u64 {
        let fields = (size_of::<Self>() + self.sets.capacity() * size_of::<Set>()) as u64;
        self.sets.iter().fold(fields, |sum, set| sum.saturating_add(set.hashes.allocated_bytes()))
    }

    /// The hashes of the adds to a layer that pend.
    pub(super) fn of(&self, layer: usize) -> Option<&HashSet> {
        self.sets.iter().rev().find(|set| set.layer == layer).map(|set| &set.hashes)
    }

    /// The number of pending adds that a layer of this size may have.
    pub(super) const fn capacity(layer_bytes: u64) -> u64 {
        HashSet::capacity_in((layer_bytes / SHARE).saturating_sub((size_of::<Self>() + size_of::<Set>()) as u64))
    }

    /// Whether an add of this hash is pending.
    pub(super) fn contains(&self, hash: ItemHash) -> bool {
        self.sets.iter().any(|set| set.hashes.contains(hash))
    }

    /// The hashes of the mask `wanted` whose adds are pending.
    pub(super) fn contains_batch(&self, hashes: &[ItemHash], wanted: Mask) -> Mask {
        self.sets.iter().fold(Mask::NONE, |found, set| found | set.hashes.contains_batch(hashes, wanted - found))
    }

    /// Prefetches what lookups of the hashes of the mask `wanted` read.
    pub(super) fn prefetch(&self, hashes: &[ItemHash], wanted: Mask) {
        self.sets.iter().for_each(|set| set.hashes.prefetch(hashes, wanted));
    }

    /// Prefetches what a lookup or an add of one item reads.
    #[cold]
    #[inline(never)]
    pub(super) fn prefetch_one(&self, hash: ItemHash) {
        self.prefetch(&[hash], Mask::first(1));
    }

    /// Adds a hash to the pending set of the newest layer, which may hold `most` of them. Answers whether it is in.
    pub(super) fn insert(place: &mut Option<Box<Self>>, layer: usize, hash: ItemHash, most: u64) -> bool {
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
    pub(super) fn take_some(place: &mut Option<Box<Self>>, taken: &mut [ItemHash]) -> Option<(usize, usize)> {
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
