//! Adds to a chain, one by one and in batches, and its growth. The rules of each kind choose between these ways of adding.

use super::Chain;
use super::layer::{Layer, PREFETCH_FROM_BYTES, Prefetch};
use super::lookup::{contains_in, contains_one_apart, exact_hashes};
use super::rules::{HashOf, Rules, check_layer};
use crate::error::Error;
use crate::geometry::{Counting, Geometry, LayerDescription, SupportsPending as _};
use crate::hash::HashBatch;
use crate::host::Ceiling;
use crate::mask::{BATCH, Mask};

/// The rules by which the filters of a kind add and delete; they select from the functions below.
pub trait AddRules: Rules {
    /// Adds the item with this hash.
    #[inline]
    fn add_one(
        chain: &mut Chain<Self>,
        hash: HashOf<Self>,
        origin: Origin,
        ceiling: &impl Ceiling,
    ) -> Result<Outcome, Error> {
        let _ = origin;
        chain.add_absent(hash, ceiling).map(Outcome::of)
    }
    /// Adds the items of a batch, in order, with the answers of adding them one by one.
    #[inline]
    fn add_batch(
        chain: &mut Chain<Self>,
        hashes: &HashBatch<HashOf<Self>>,
        origin: Origin,
        ceiling: &impl Ceiling,
    ) -> Added {
        let _ = origin;
        chain.add_absent_batch(hashes, Mask::NONE, ceiling)
    }
    /// Deletes the items of a batch, in order, with the answers of deleting them one by one. For an empty batch, answers
    /// whether the filter supports deletes.
    fn remove_batch(
        chain: &mut Chain<Self>,
        hashes: &HashBatch<HashOf<Self>>,
        origin: Origin,
        ceiling: &impl Ceiling,
    ) -> Removed {
        let _ = (chain, hashes, origin, ceiling);
        Removed::REFUSED
    }
}

/// The treatment of an effect by a full fixed chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenFull {
    /// The effect is refused, and the ring's next bucket receives it.
    Refuse,
    /// Its cells are set without counting it, because the primary had room for it.
    Insert,
}

impl<R: AddRules> Chain<R> {
    /// Adds an item for a client. Returns whether it was new. A new item that tests as present (a false positive) is not added,
    /// because lookups already find it.
    ///
    /// ```
    /// use bloomgate_filter::{BloomFilter, Error, Scaling, Unlimited};
    ///
    /// let mut seen = BloomFilter::new(0.01, 2, Scaling::Fixed, 42, &Unlimited)?;
    /// assert_eq!(seen.add(b"one", &Unlimited), Ok(true));
    /// assert_eq!(seen.add(b"one", &Unlimited), Ok(false), "present");
    /// assert_eq!(seen.add(b"two", &Unlimited), Ok(true));
    /// assert_eq!(seen.add(b"three", &Unlimited), Err(Error::Full), "a fixed filter at its capacity");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooManyLayers`], [`Error::CapacityOutOfRange`], [`Error::AboveCeiling`],
    /// [`Error::OutOfMemory`]. The filter is unchanged then.
    #[inline]
    pub fn add(&mut self, item: &[u8], ceiling: &impl Ceiling) -> Result<bool, Error> {
        R::add_one(self, self.hash(item), Origin::Client, ceiling).map(|outcome| outcome == Outcome::New)
    }

    /// Adds the items of a batch for a client, in order, with the answers of adding them one by one.
    #[inline]
    pub fn add_batch(&mut self, hashes: &HashBatch<HashOf<R>>, ceiling: &impl Ceiling) -> Added {
        R::add_batch(self, hashes, Origin::Client, ceiling)
    }
}

impl<R: Rules> Chain<R> {
    /// Adds the item with this hash unless it is found. A deleted item still has its cells, so only its entry is removed.
    #[inline]
    pub(crate) fn add_absent(&mut self, hash: HashOf<R>, ceiling: &impl Ceiling) -> Result<bool, Error> {
        let Some((newest, older)) = self.layers.split_last() else { return Err(Error::Full) };
        let probe = newest.probe(hash);
        if let Some(pending) = self.pending() {
            pending.prefetch_one(R::Geometry::to_pending(hash));
        }
        let is_in = !older.is_empty() && contains_one_apart(older, hash) || newest.contains(probe);
        if is_in || self.extras.is_some() && self.is_pending(hash) {
            return Ok(self.table().is_some() && self.restore(hash));
        }
        let Some(newest) = self.layers.last_mut() else { return Err(Error::Full) };
        if newest.is_full() {
            self.grow(ceiling)?;
            let newest = self.layers.last_mut().ok_or(Error::Full)?;
            newest.insert(newest.probe(hash));
        } else if newest.may_pend(ceiling.pending_from_bytes()) {
            self.insert_or_pend(hash, probe, self.has_room_to_pend(ceiling));
        } else {
            newest.insert(probe);
        }
        Ok(true)
    }

    /// Adds the items of a batch that are not found, in order, except the `known` ones, which other chains contain. A deleted
    /// item still has its cells, so only its entry is removed.
    pub(crate) fn add_absent_batch(&mut self, hashes: &[HashOf<R>], known: Mask, ceiling: &impl Ceiling) -> Added {
        let all = Mask::first(hashes.len());
        let mut added = Added::NONE;
        let from_bytes = ceiling.pending_from_bytes();
        // Layers before the newest do not change, so the whole batch is looked up there first.
        let in_older = |(_, older): (_, &[_])| contains_in(older, hashes, all - known, |_| ());
        let mut in_older = known | self.layers.split_last().map_or(Mask::NONE, in_older);
        // This includes adds that are pending in the newest layer. Adds that become pending below are looked up there.
        in_older = self.add_pending_hits(hashes, all - known, in_older);
        while added.done < hashes.len() {
            let Some(newest) = self.layers.last_mut() else { break };
            let wanted = all - in_older - Mask::first(added.done);
            let is_through = if newest.may_pend(from_bytes) {
                self.add_or_pend_until_full(hashes, wanted, &mut added, ceiling)
            } else {
                add_until_full(newest, hashes, wanted, &mut added)
            };
            if is_through {
                break;
            }
            // The next item needs a new layer, and the newest layer becomes an older one.
            let Some(newest) = self.layers.last() else { break };
            let open = wanted - Mask::first(added.done);
            let in_newest = newest.contains_batch(hashes, open, Prefetch::Rest, |_| ());
            in_older |= self.add_pending_hits(hashes, open, in_newest);
            if let Err(error) = self.grow(ceiling) {
                added.error = Some(error);
                break;
            }
        }
        added.effect = added.new;
        if self.table().is_some() {
            self.restore_batch(hashes, known, &mut added);
        }
        added
    }

    /// Adds and counts all items of a batch without a lookup, in order, except those of the mask `done`. Every one is new. A
    /// deleted item still has its cells and its count, so only its entry is removed.
    ///
    /// The primary, or the server that wrote the AOF, answered "new" and counted the item. A lookup here could give another
    /// answer, and the bits would differ.
    #[cold]
    #[inline(never)]
    pub(crate) fn insert_batch(
        &mut self,
        hashes: &[HashOf<R>],
        done: Mask,
        when_full: WhenFull,
        ceiling: &impl Ceiling,
    ) -> Added {
        let all = Mask::first(hashes.len());
        let wanted = all - done;
        let deleted =
            self.deleted().map_or(Mask::NONE, |table| table.contains_batch(&exact_hashes::<R>(hashes), wanted));
        if let Some(newest) = self.layers.last() {
            newest.prefetch(hashes, wanted - deleted);
        }
        let mut added = Added::NONE;
        for (index, hash) in hashes.iter().enumerate() {
            if wanted.contains(index) {
                let was_deleted = deleted.contains(index) && self.restore(*hash);
                if !was_deleted && let Err(error) = self.insert(*hash, when_full, ceiling) {
                    added.error = Some(error);
                    break;
                }
                added.new.insert(index);
            }
            added.done = index + 1;
        }
        added.effect = added.new;
        added
    }

    /// Adds and counts the item with this hash in the newest layer without a lookup. If that layer is full, the chain grows.
    #[inline]
    fn insert(&mut self, hash: HashOf<R>, when_full: WhenFull, ceiling: &impl Ceiling) -> Result<(), Error> {
        if self.layers.last().is_some_and(Layer::is_full)
            && let Err(refused) = self.grow(ceiling)
            && (refused, when_full) != (Error::Full, WhenFull::Insert)
        {
            return Err(refused);
        }
        let newest = self.layers.last_mut().ok_or(Error::Full)?;
        newest.insert(newest.probe(hash));
        newest.set_items(newest.items());
        Ok(())
    }

    /// Adds the next layer or changes nothing.
    #[cold]
    pub(super) fn grow(&mut self, ceiling: &impl Ceiling) -> Result<(), Error> {
        let newest = self.layers.last().ok_or(Error::Full)?;
        let next = self.rules.next_layer(self.layers.len(), newest.capacity(), newest.rate())?;
        self.push_layer(&next, ceiling)
    }

    /// Adds a layer or changes nothing.
    pub(super) fn push_layer(
        &mut self,
        layer: &LayerDescription<R::Geometry>,
        ceiling: &impl Ceiling,
    ) -> Result<(), Error> {
        let count = self.layers.len();
        let newest_items = self.layers.last().map_or(0, Layer::items);
        let before = self.layers.totals();
        let totals = before.with(newest_items, layer).ok_or(Error::CapacityOutOfRange)?;
        let (cells_bytes, entries_bytes) = (before.cells_bytes, self.entries_bytes());
        check_layer::<R>(ceiling, count, cells_bytes, entries_bytes, layer.geometry.size_bytes())?;
        let layer = self.rules.empty_layer(layer)?;
        self.layers.push(layer, totals)
    }
}

/// Continues a batch at `added.done`: adds the items of the mask `wanted` to the newest layer if they are not found there.
/// Returns whether the batch is done; if not, the item at `added.done` is new and the layer is full.
#[inline]
fn add_until_full<G: Geometry>(newest: &mut Layer<G>, hashes: &[G::Hash], wanted: Mask, added: &mut Added) -> bool {
    match newest.geometry().usual() {
        Some(geometry) => add_until_full_in(geometry, newest, hashes, wanted, added),
        None => add_until_full_in(newest.geometry(), newest, hashes, wanted, added),
    }
}

/// Adds like [`add_until_full`], in a layer of this geometry. Inlined, so that it is compiled for the usual geometry and for others.
#[inline(always)]
fn add_until_full_in<G: Geometry>(
    geometry: G,
    newest: &mut Layer<G>,
    hashes: &[G::Hash],
    wanted: Mask,
    added: &mut Added,
) -> bool {
    let mut probes = [G::Probe::default(); BATCH];
    probes.iter_mut().zip(hashes).for_each(|(probe, hash)| *probe = geometry.probe(*hash));
    if geometry.size_bytes() > PREFETCH_FROM_BYTES {
        for (_, probe) in wanted.each_of(&probes) {
            geometry.prefetch_first(newest.cells(), probe);
            geometry.prefetch_rest(newest.cells(), probe);
        }
    }
    for (index, probe) in probes.iter().enumerate().take(hashes.len()).skip(added.done) {
        let is_in = |cells| geometry.contains_first(cells, *probe) && geometry.contains_rest(cells, *probe);
        if wanted.contains(index) && !is_in(newest.cells()) {
            if newest.is_full() {
                return false;
            }
            geometry.insert(newest.cells_mut(), *probe);
            newest.count_one();
            added.new.insert(index);
        }
        added.done = index + 1;
    }
    true
}

/// The origin of an add or a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client.
    Client,
    /// A primary, or the server that wrote the AOF, possibly with another clock. It has already made the change. A native
    /// filter repeats the change without a lookup, which could give another answer: on the primary, an item with a pending add
    /// was distinguished from other items with the same bits.
    Effect,
}

/// The result of an add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The item was new.
    New,
    /// The item was found. The filter has not changed.
    Known,
    /// The item was found, but the filter has changed: replicas must add it, too.
    Renewed,
}

impl Outcome {
    /// The outcome for a filter that changes only if the item is new.
    #[inline]
    pub(crate) const fn of(is_new: bool) -> Self {
        if is_new { Self::New } else { Self::Known }
    }
}

/// The result of a batch of adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// The items that were new.
    pub new: Mask,
    /// The items that changed the filter: in most filters, the new ones.
    pub effect: Mask,
    /// The number of items that were processed, from the first on; all of them unless there was an error.
    pub done: usize,
    /// The reason why the next item was refused.
    pub error: Option<Error>,
}

impl Added {
    /// No item was processed yet.
    pub(crate) const NONE: Self = Self { new: Mask::NONE, effect: Mask::NONE, done: 0, error: None };
}

/// The result of a batch of deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The items that were found.
    pub found: Mask,
    /// The number of items that were processed, from the first on; all of them unless there was an error.
    pub done: usize,
    /// The reason why the next item was refused.
    pub error: Option<Error>,
}

impl Removed {
    /// The answer of a filter that cannot delete.
    pub(crate) const REFUSED: Self = Self { found: Mask::NONE, done: 0, error: Some(Error::CannotDelete) };

    /// Deletes the items of the mask `wanted` from a batch of `count`, in order, until one is refused. `delete` returns whether
    /// the item was found.
    pub(crate) fn each(count: usize, wanted: Mask, mut delete: impl FnMut(usize) -> Result<bool, Error>) -> Self {
        let mut removed = Self { found: Mask::NONE, done: 0, error: None };
        for index in 0..count {
            if wanted.contains(index) {
                match delete(index) {
                    Ok(is_found) => removed.found.insert_if(index, is_found),
                    Err(error) => {
                        removed.error = Some(error);
                        break;
                    }
                }
            }
            removed.done = index + 1;
        }
        removed
    }
}

// A chain of counters: every add is counted and can be undone by a delete. It has a single layer, because a delete must
// decrement the counters that the add incremented.

impl<R: Rules> Chain<R>
where
    R::Geometry: Counting,
{
    /// Counts an item, present or not.
    /// On an error, nothing has changed.
    #[inline]
    pub(crate) fn count_up(&mut self, hash: HashOf<R>) -> Result<Outcome, Error> {
        let newest = self.layers.last_mut().filter(|newest| !newest.is_full()).ok_or(Error::Full)?;
        let probe = newest.probe(hash);
        let was_in = newest.contains(probe);
        newest.insert(probe);
        Ok(if was_in { Outcome::Renewed } else { Outcome::New })
    }

    /// Counts the items of a batch, in order, with the answers of counting them one by one. Every counted item is an effect.
    pub(crate) fn count_up_batch(&mut self, hashes: &[HashOf<R>]) -> Added {
        let mut added = Added::NONE;
        self.prefetch(hashes);
        for (index, hash) in hashes.iter().enumerate() {
            match self.count_up(*hash) {
                Ok(outcome) => added.new.insert_if(index, outcome == Outcome::New),
                Err(error) => {
                    added.error = Some(error);
                    break;
                }
            }
            added.done = index + 1;
        }
        added.effect = Mask::first(added.done);
        added
    }

    /// Decrements the counters of the items of a batch that are found, in order. Returns those items.
    pub(crate) fn count_down_batch(&mut self, hashes: &[HashOf<R>]) -> Mask {
        let mut found = Mask::NONE;
        self.prefetch(hashes);
        let Some(newest) = self.layers.last_mut() else { return found };
        for (index, hash) in hashes.iter().enumerate() {
            let probe = newest.probe(*hash);
            if newest.contains(probe) {
                newest.remove(probe);
                found.insert(index);
            }
        }
        found
    }

    /// Returns how often an item is present: the minimum of its counters, 0 to 15,
    /// which means that number or more. It is too high if other items share all of its counters.
    #[inline]
    pub(crate) fn least(&self, hash: HashOf<R>) -> u8 {
        self.layers.last().map_or(0, |newest| newest.least(newest.probe(hash)))
    }

    #[inline]
    fn prefetch(&self, hashes: &[HashOf<R>]) {
        if let Some(newest) = self.layers.last() {
            newest.prefetch(hashes, Mask::first(hashes.len()));
        }
    }
}
