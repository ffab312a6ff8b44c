//! Batches of lookups in the layers before the newest. An absent item is looked up in all of them.
//!
//! The first cells of an item, its prefix, are the same in every layer. The prefix is computed once and rejects nearly all absent
//! items. While one layer is tested, the prefix in the next layer is prefetched.

use super::layer::{Layer, Prefetch};
use crate::geometry::Geometry;
use crate::mask::{BATCH, Mask};

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

/// Prefetches what a lookup of one item reads first in each of the layers.
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

/// An item that was found in no layer so far.
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
