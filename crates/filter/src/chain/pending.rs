//! Pending adds: items that were added to a large layer and are not in its cells yet.
//!
//! While a child of the server saves, the first write to each page of memory costs a page fault and a copy, 3 to 5
//! microseconds. New items are therefore stored beside the layer, in an exact set of hashes that takes 19 to 24 bytes per item,
//! and flushed into the cells later, a few at a time. A lookup that does not find an item in the cells consults the set.
//!
//! Code that reads all cells of a layer, to save or copy them, reads copies of pieces that include the pending adds. The set is
//! ordered by the layer's pages, so a piece needs only part of it, and nothing has to be sorted.

use super::hash_set::HashSet;
use crate::hash::ItemHash;
use crate::mask::Mask;
use crate::memory::{reserve, try_box};

/// A set takes at most one `SHARE`th of the size of its layer.
const SHARE: u64 = 8;

/// The pending adds of a chain.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// In the order of the layers, none empty. There are few, because only the newest layer gets new pending adds.
    sets: Vec<Set>,
}

/// The pending adds of a layer.
#[derive(Debug)]
struct Set {
    layer: usize,
    hashes: HashSet,
    /// The `h1` of one of the last flushed hashes. Flushing continues after it.
    last_flushed: u64,
}

impl Pending {
    /// The number of bytes requested from the allocator.
    pub(super) fn allocated_bytes(&self) -> u64 {
        let fields = (size_of::<Self>() + self.sets.capacity() * size_of::<Set>()) as u64;
        self.sets.iter().fold(fields, |sum, set| sum.saturating_add(set.hashes.allocated_bytes()))
    }

    /// Returns the hashes of the pending adds of a layer.
    pub(super) fn of(&self, layer: usize) -> Option<&HashSet> {
        self.sets.iter().rev().find(|set| set.layer == layer).map(|set| &set.hashes)
    }

    /// Returns the most pending adds that a layer of this size may have.
    pub(super) const fn capacity(layer_bytes: u64) -> u64 {
        HashSet::capacity_in((layer_bytes / SHARE).saturating_sub((size_of::<Self>() + size_of::<Set>()) as u64))
    }

    /// Returns how many more bytes the pending adds of a layer of this size may take.
    pub(super) fn growth(place: Option<&Self>, layer: usize, layer_bytes: u64) -> u64 {
        let hashes = place.and_then(|pending| pending.of(layer));
        (layer_bytes / SHARE).saturating_sub(hashes.map_or(0, HashSet::allocated_bytes))
    }

    /// Whether the add of this hash is pending.
    pub(super) fn contains(&self, hash: ItemHash) -> bool {
        self.sets.iter().any(|set| set.hashes.contains(hash))
    }

    /// Returns the hashes of the mask `wanted` whose adds are pending.
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

    /// Adds a hash to the pending set of the newest layer, which holds at most `most` hashes. Returns whether there was room
    /// and memory.
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
        pending.sets.push(Set { layer, hashes, last_flushed: 0 });
        if new.is_some() {
            *place = new;
        }
        true
    }

    /// Removes pending adds of one layer, up to the length of `taken`. Returns the layer and their number.
    pub(super) fn take_some(place: &mut Option<Box<Self>>, taken: &mut [ItemHash]) -> Option<(usize, usize)> {
        let pending = place.as_mut()?;
        let set = pending.sets.first_mut()?;
        let (layer, count) = (set.layer, set.hashes.take_some(set.last_flushed, taken));
        if let Some(first) = taken.first() {
            set.last_flushed = first.h1;
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
