//! A chain of cuckoo layers: every add stores a copy of the item and can be undone by a delete.
//!
//! Everything depends on the cells and the hashes alone, so replicas have the same bytes after the same adds and deletes.

use super::Chain;
use super::adding::{Added, Outcome};
use super::layer::Layer;
use super::rules::{HashOf, Rules};
use crate::error::Error;
use crate::geometry::{COPIES_MAX, CuckooGeometry, Geometry};
use crate::hash::ItemHash;
use crate::host::Ceiling;
use crate::mask::Mask;

impl<R: Rules<Geometry = CuckooGeometry>> Chain<R> {
    /// Stores a copy of an item, found or not: a filter cannot tell a present item from one with the same fingerprint and buckets. An item
    /// with [`COPIES_MAX`] copies in a layer is stuck: adds and deletes do not change it any more.
    /// On an error, nothing has changed.
    #[inline]
    pub(crate) fn store(&mut self, hash: ItemHash, ceiling: &impl Ceiling) -> Result<Outcome, Error> {
        let first = self.layers.first().map(|first| first.probe(hash)).unwrap_or_default();
        self.store_at(hash, first, ceiling)
    }

    /// As [`store`](Self::store). `first`: the position of the item in the first layer.
    #[inline]
    fn store_at(
        &mut self,
        hash: ItemHash,
        first: <CuckooGeometry as Geometry>::Probe,
        ceiling: &impl Ceiling,
    ) -> Result<Outcome, Error> {
        if let [only] = &mut *self.layers
            && !only.is_full()
        {
            match only.store(first) {
                (copies, true) => return Ok(if copies > 0 { Outcome::Renewed } else { Outcome::New }),
                (COPIES_MAX.., false) => return Ok(Outcome::Known),
                (_, false) => {}
            }
        }
        self.store_in_any(hash, ceiling)
    }

    /// As [`store`](Self::store), in a filter of several layers or without room.
    #[inline(never)]
    fn store_in_any(&mut self, hash: ItemHash, ceiling: &impl Ceiling) -> Result<Outcome, Error> {
        let copies = self.layers.iter().map(|layer| layer.copies(hash));
        let most = copies.max().unwrap_or(0);
        if most >= COPIES_MAX {
            return Ok(Outcome::Known);
        }
        // In the oldest layer with room, so that a filter that shrinks drains its newest ones.
        let newest = self.layers.len().saturating_sub(1);
        let with_room = self.layers.iter_mut().position(|layer| !layer.is_full() && layer.store(layer.probe(hash)).1);
        match with_room {
            Some(index) => self.count_in_older(u64::from(index < newest), 0),
            None => {
                // Ids that were chosen to share their buckets are refused, but do not make the filter grow.
                self.layers
                    .last()
                    .filter(|newest| newest.items() >= newest.capacity().div_ceil(2))
                    .ok_or(Error::Full)?;
                self.grow(ceiling)?;
                let is_stored = self.layers.last_mut().is_some_and(|newest| newest.store(newest.probe(hash)).1);
                debug_assert!(is_stored, "an empty layer has room");
            }
        }
        Ok(if most > 0 { Outcome::Renewed } else { Outcome::New })
    }

    /// Stores the items of a batch, in order, with the answers of storing them one by one. Every stored item is an effect.
    pub(crate) fn store_batch(&mut self, hashes: &[HashOf<R>], ceiling: &impl Ceiling) -> Added {
        let mut added = Added::NONE;
        let probes = self.layers.first().map(|first| first.probes(hashes)).unwrap_or_default();
        match &*self.layers {
            [only] => only.prefetch_at(&probes, Mask::first(hashes.len())),
            _ => self.prefetch_all(hashes),
        }
        for (index, (hash, probe)) in hashes.iter().zip(probes).enumerate() {
            match self.store_at(*hash, probe, ceiling) {
                Ok(outcome) => {
                    added.new.insert_if(index, outcome == Outcome::New);
                    added.effect.insert_if(index, outcome != Outcome::Known);
                }
                Err(error) => {
                    added.error = Some(error);
                    break;
                }
            }
            added.done = index + 1;
        }
        added
    }

    /// Deletes a copy of each item of a batch that is found, in order, from the newest layer that has one. Returns those items. Frees the
    /// newest layers that become empty, unless the filter would soon need them again.
    pub(crate) fn delete_copies(&mut self, hashes: &[HashOf<R>]) -> Mask {
        let mut found = Mask::NONE;
        self.prefetch_all(hashes);
        for (index, hash) in hashes.iter().enumerate() {
            let most = self.layers.iter().map(|layer| layer.copies(*hash)).max().unwrap_or(0);
            found.insert_if(index, most > 0);
            if most == 0 || most >= COPIES_MAX {
                continue;
            }
            let newest = self.layers.len().saturating_sub(1);
            let from = self.layers.iter_mut().rposition(|layer| layer.delete_copy(*hash));
            self.count_in_older(0, u64::from(from.is_some_and(|from| from < newest)));
            self.drop_empty_layers();
        }
        found
    }

    /// Returns the number of slots of all layers that match an item.
    pub(crate) fn copies(&self, hash: HashOf<R>) -> u64 {
        self.layers.iter().map(|layer| u64::from(layer.copies(hash))).sum()
    }

    /// Counts items that were added to and removed from layers other than the newest.
    fn count_in_older(&mut self, added: u64, removed: u64) {
        let items = self.layers.totals().older_items;
        self.layers.set_older_items(items.saturating_add(added).saturating_sub(removed));
    }

    /// Drops the newest layers while they are empty and an eighth of the layer before is free.
    fn drop_empty_layers(&mut self) {
        while let [.., before, newest] = &*self.layers
            && newest.items() == 0
            && before.items() <= before.capacity() - before.capacity() / 8
        {
            self.layers.pop();
        }
    }

    /// Sets the number of items of each layer to the number of its occupied slots, after a reader has filled them in.
    pub(crate) fn count_slots(&mut self) {
        let mut older_items = 0;
        let newest = self.layers.len().saturating_sub(1);
        for (index, layer) in self.layers.iter_mut().enumerate() {
            layer.count_slots();
            older_items += if index < newest { layer.items() } else { 0 };
        }
        self.layers.set_older_items(older_items);
    }

    #[inline]
    fn prefetch_all(&self, hashes: &[HashOf<R>]) {
        self.layers.iter().for_each(|layer| layer.prefetch(hashes, Mask::first(hashes.len())));
    }
}

impl Layer<CuckooGeometry> {
    /// Returns the number of copies of an item.
    #[inline]
    fn copies(&self, hash: ItemHash) -> u32 {
        self.geometry().count(self.cells(), self.probe(hash))
    }

    /// Stores a copy of an item: see [`CuckooGeometry::store`].
    #[inline]
    fn store(&mut self, probe: <CuckooGeometry as Geometry>::Probe) -> (u32, bool) {
        let (copies, is_stored) = self.geometry().store(self.cells_mut(), probe);
        if is_stored {
            self.count_one();
        }
        (copies, is_stored)
    }

    /// Deletes a copy of an item. Returns whether there was one.
    fn delete_copy(&mut self, hash: ItemHash) -> bool {
        let probe = self.probe(hash);
        let is_found = self.geometry().remove(self.cells_mut(), probe);
        if is_found {
            self.uncount_one();
        }
        is_found
    }

    /// Sets the number of items to the number of occupied slots.
    fn count_slots(&mut self) {
        let items = self.geometry().occupied(self.cells(), u64::MAX);
        self.recount(items);
    }
}
