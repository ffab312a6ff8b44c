//! Lookups in a chain, one by one and in batches.
//!
//! `has_cells` is the raw lookup: it finds every item that was added, in the cells or among the pending adds. `contains`
//! excludes deleted items.

use super::Chain;
use super::layer::{Layer, Prefetch, Probes};
use super::rules::{HashOf, Rules};
use crate::geometry::{Geometry, SupportsPending as _};
use crate::hash::{HashBatch, ItemHash};
use crate::mask::{BATCH, Mask};

impl<R: Rules> Chain<R> {
    /// Whether an item may be present. `false` is certain. In a full filter, `true` is wrong for at most the requested fraction
    /// of absent items. Visits the layers newest first.
    ///
    /// ```
    /// use bloomgate_filter::{BloomFilter, Scaling, Unlimited};
    ///
    /// let mut seen = BloomFilter::new(0.01, 1000, Scaling::Fixed, 42, &Unlimited)?;
    /// seen.add(b"https://doc.rust-lang.org/std/", &Unlimited)?;
    /// assert!(seen.contains(b"https://doc.rust-lang.org/std/"));
    /// assert!(!seen.contains(b"https://doc.rust-lang.org/book/"));
    /// # Ok::<(), bloomgate_filter::Error>(())
    /// ```
    #[inline]
    pub fn contains(&self, item: &[u8]) -> bool {
        self.contains_hash(self.hash(item))
    }

    /// Whether the item with this hash may be present.
    #[inline]
    pub(crate) fn contains_hash(&self, hash: HashOf<R>) -> bool {
        match self.extras {
            None => contains_one(&self.layers, hash),
            Some(_) => self.has_cells(hash) && !self.has_deleted(hash),
        }
    }

    /// Whether the item with this hash may have been added, even if it has been deleted.
    #[inline]
    pub(crate) fn has_cells(&self, hash: HashOf<R>) -> bool {
        if let Some(pending) = self.pending() {
            pending.prefetch_one(R::Geometry::to_pending(hash));
        }
        contains_one(&self.layers, hash) || self.is_pending(hash)
    }

    /// Looks up the items of a batch together. Returns the ones that may be present.
    #[inline]
    pub(crate) fn contains_batch(&self, hashes: &HashBatch<HashOf<R>>) -> Mask {
        let Some(table) = self.deleted() else { return self.has_cells_batch(hashes) };
        let exact = exact_hashes::<R>(hashes);
        let mut lookup = table.lookup(&exact);
        let present = self.has_cells_then(hashes, |maybe| lookup.fetch(maybe));
        present - lookup.present(present)
    }

    /// Returns the items of a batch that may have been added, even if they have been deleted.
    pub(crate) fn has_cells_batch(&self, hashes: &[HashOf<R>]) -> Mask {
        self.has_cells_then(hashes, |_| ())
    }

    /// Looks up like [`has_cells_batch`](Self::has_cells_batch). Calls `prefetch` with the items whose first bits are set in
    /// the newest layer, before it tests their other bits.
    #[inline]
    fn has_cells_then(&self, hashes: &[HashOf<R>], prefetch: impl FnOnce(Mask)) -> Mask {
        let wanted = Mask::first(hashes.len());
        self.prefetch_pending(hashes, wanted);
        let present = contains_in(&self.layers, hashes, wanted, prefetch);
        self.add_pending_hits(hashes, wanted, present)
    }

    /// Prefetches the memory of the newest layer that lookups of the items of the mask `wanted` read first.
    #[inline]
    pub(crate) fn prefetch_first(&self, probes: &mut Probes<'_, R::Geometry>, wanted: Mask) {
        if let Some(newest) = self.layers.last() {
            newest.prefetch_first_at(probes.of(newest), wanted);
        }
    }

    /// Returns the items of the mask `wanted` that may be present. [`prefetch_first`](Self::prefetch_first) was called for
    /// them.
    #[inline]
    pub(crate) fn contains_prefetched(&self, probes: &mut Probes<'_, R::Geometry>, wanted: Mask) -> Mask {
        let Some((newest, older)) = self.layers.split_last() else { return Mask::NONE };
        if let Some(next) = older.last() {
            next.prefetch_first(probes.hashes(), wanted);
        }
        let present = newest.contains_batch_at(probes.of(newest), wanted);
        let present = present | contains_in_older(older, probes.hashes(), wanted - present);
        self.clear_deleted(probes.hashes(), self.add_pending_hits(probes.hashes(), wanted, present))
    }
}

/// Returns the hashes that represent the items of a batch in a set of hashes.
#[inline]
pub(super) fn exact_hashes<R: Rules>(hashes: &[HashOf<R>]) -> [ItemHash; BATCH] {
    let mut exact = [ItemHash::default(); BATCH];
    exact.iter_mut().zip(hashes).for_each(|(to, from)| *to = R::Geometry::to_pending(*from));
    exact
}

/// Returns the items of the mask `wanted` that are in one of the layers, newest first. Prefetches all lines of the newest
/// layer, which has the most items, and while it tests a layer, the first line of the next one.
#[inline]
pub(super) fn contains_in<G: Geometry>(
    layers: &[Layer<G>],
    hashes: &[G::Hash],
    wanted: Mask,
    prefetch: impl FnOnce(Mask),
) -> Mask {
    let Some((newest, older)) = layers.split_last().filter(|_| !wanted.is_empty()) else { return Mask::NONE };
    newest.prefetch(hashes, wanted);
    if let Some(next) = older.last() {
        next.prefetch_first(hashes, wanted);
    }
    let present = newest.contains_batch(hashes, wanted, Prefetch::Nothing, prefetch);
    present | contains_in_older(older, hashes, wanted - present)
}

/// Like [`contains_one`], but never inlined: for adds, where older layers are rare.
#[inline(never)]
pub(super) fn contains_one_apart<G: Geometry>(layers: &[Layer<G>], hash: G::Hash) -> bool {
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

// Batches of lookups in the layers before the newest. An absent item is looked up in all of them.
//
// The first cells of an item, its prefix, are the same in every layer. The prefix is computed once and rejects nearly all absent
// items. While one layer is tested, the prefix in the next layer is prefetched.

/// Returns the items of the mask `wanted` that are in one of the layers, newest first.
#[inline]
pub(super) fn contains_in_older<G: Geometry>(layers: &[Layer<G>], hashes: &[G::Hash], wanted: Mask) -> Mask {
    let Some((newest, older)) = layers.split_last().filter(|_| !wanted.is_empty()) else { return Mask::NONE };
    let mut open = OpenItems::new(newest, hashes_min(layers), hashes, wanted);
    let (mut layer, mut present) = (newest, Mask::NONE);
    for next in older.iter().rev() {
        let maybe = open.sift(layer, |item| {
            item.address = next.address(item.hash);
            next.prefetch_prefix(item.address, &item.prefix);
        });
        let found = layer.contains_batch(hashes, maybe, Prefetch::Rest, |_| ());
        if !found.is_empty() {
            present |= found;
            if present == wanted {
                return present;
            }
            open.remove(found);
        }
        layer = next;
    }
    let maybe = open.sift(layer, |_| ());
    present | layer.contains_batch(hashes, maybe, Prefetch::Rest, |_| ())
}

/// Prefetches the memory of each layer that a lookup of one item reads first.
#[inline(never)]
pub(super) fn prefetch_one<G: Geometry>(layers: &[Layer<G>], hash: G::Hash) {
    let prefix = G::prefix(hash, hashes_min(layers));
    layers.iter().rev().for_each(|layer| layer.prefetch_prefix(layer.address(hash), &prefix));
}

/// Whether an item is in one of the layers, newest first.
#[inline(never)]
pub(super) fn contains_one_in_older<G: Geometry>(layers: &[Layer<G>], hash: G::Hash) -> bool {
    let prefix = G::prefix(hash, hashes_min(layers));
    let mut maybe = layers.iter().rev().filter(|layer| layer.has_prefix(layer.address(hash), &prefix));
    maybe.any(|layer| layer.contains_hash(hash))
}

/// Returns the smallest number of cells per item of any layer.
fn hashes_min<G: Geometry>(layers: &[Layer<G>]) -> u32 {
    layers.iter().map(|layer| layer.geometry().hashes()).min().unwrap_or(0)
}

/// An item that has not been found in any layer so far.
#[derive(Clone, Copy)]
struct OpenItem<G: Geometry> {
    hash: G::Hash,
    /// Its prefix, and the place of the prefix in the layer under test.
    prefix: G::Prefix,
    address: G::Address,
    /// A mask of this item only.
    item: Mask,
}

/// The open items of a batch, stored contiguously so that they are tested without a branch per item.
struct OpenItems<G: Geometry> {
    items: [OpenItem<G>; BATCH],
    length: usize,
}

impl<G: Geometry> OpenItems<G> {
    /// Creates the list of the items of the mask `wanted`, before the first layer is tested. `hashes_min`: the smallest number
    /// of cells per item of any layer.
    #[inline]
    fn new(layer: &Layer<G>, hashes_min: u32, hashes: &[G::Hash], wanted: Mask) -> Self {
        let nothing = G::Hash::default();
        let none =
            OpenItem { hash: nothing, prefix: G::Prefix::default(), address: G::Address::default(), item: Mask::NONE };
        let mut open = Self { items: [none; BATCH], length: 0 };
        for (slot, (item, hash)) in open.items.iter_mut().zip(wanted.each_of(hashes)) {
            *slot = OpenItem { hash, prefix: G::prefix(hash, hashes_min), address: layer.address(hash), item };
            open.length += 1;
        }
        open
    }

    /// Returns the items whose prefix is in a layer, and calls `and_then` with each item.
    #[inline]
    fn sift(&mut self, layer: &Layer<G>, and_then: impl Fn(&mut OpenItem<G>)) -> Mask {
        let mut maybe = Mask::NONE;
        for open in self.items.get_mut(..self.length).unwrap_or_default() {
            maybe |= open.item.only_if(layer.has_prefix(open.address, &open.prefix));
            and_then(open);
        }
        maybe
    }

    /// Removes the items that were found.
    fn remove(&mut self, found: Mask) {
        let mut kept = 0;
        for index in 0..self.length {
            let Some(open) = self.items.get(index).copied() else { break };
            if (open.item & found).is_empty()
                && let Some(slot) = self.items.get_mut(kept)
            {
                *slot = open;
                kept += 1;
            }
        }
        self.length = kept;
    }
}
