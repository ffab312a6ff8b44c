//! One Bloom filter of fixed capacity: its bits, their geometry, and the number of items it took.

use super::Error;
use super::description::LayerDescription;
use super::hash::BATCH;
use super::layout::{Bits, Layout};

/// Below this size the bits are in the cache anyway and asking for their lines costs time.
const PREFETCH_FROM_BYTES: u64 = 512 * 1024;
/// The same for a layer of several: together they are too many for the first-level cache.
const PREFETCH_FIRST_FROM_BYTES: u64 = 16 * 1024;

/// One Bloom filter of fixed capacity. A filter is a chain of them. `L`: where an item's bits are, by default the native
/// layout.
#[derive(Debug)]
pub struct Layer<L: Layout = super::sizing::Geometry> {
    rate: f64,
    capacity: u64,
    items: u64,
    geometry: L,
    bits: L::Bits,
}

/// What a lookup still has to fetch when it has come to a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefetch {
    /// What it reads after what it reads first.
    Rest,
    /// Nothing: all of it is on its way.
    Nothing,
}

impl<L: Layout> Layer<L> {
    /// A layer as described, with these bits.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a description that no layer has, and for bits of another size.
    pub(crate) fn new(description: &LayerDescription<L>, bits: L::Bits) -> Result<Self, Error> {
        L::check(description)?;
        let LayerDescription { rate, capacity, items, geometry } = *description;
        if bits.bytes().len() as u64 != geometry.size_bytes() {
            return Err(Error::Unsound);
        }
        Ok(Self { rate, capacity, items, geometry, bits })
    }

    /// Everything about the layer but its bits.
    #[must_use]
    pub const fn description(&self) -> LayerDescription<L> {
        LayerDescription { rate: self.rate, capacity: self.capacity, items: self.items, geometry: self.geometry }
    }

    /// The number of items that it is made for.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The number of items that were added to it.
    #[must_use]
    pub const fn items(&self) -> u64 {
        self.items
    }

    /// Its own false positive rate, when it is full: a share of the filter's.
    #[must_use]
    pub const fn rate(&self) -> f64 {
        self.rate
    }

    /// The shape of its bits.
    #[must_use]
    pub const fn geometry(&self) -> L {
        self.geometry
    }

    /// Its bits as bytes, in the order in which they are stored everywhere.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bits.bytes()
    }

    /// What its bits are kept in.
    #[must_use]
    pub const fn bits(&self) -> &L::Bits {
        &self.bits
    }

    pub(super) const fn bits_mut(&mut self) -> &mut L::Bits {
        &mut self.bits
    }

    /// Whether it has taken as many items as it is made for.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.items >= self.capacity
    }

    /// The part of its bits that is set, 0 to 1; about a half when it is full. Reads all of them.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    pub fn fill_ratio(&self) -> f64 {
        let ones: u64 = self.bytes().iter().map(|byte| u64::from(byte.count_ones())).sum();
        ones as f64 / (self.geometry.size_bytes() as f64 * 8.0)
    }

    /// Where each item of a batch is, and for the items of the mask `wanted` what a lookup reads on its way into the
    /// cache.
    #[inline]
    pub(super) fn places(&self, hashes: &[L::Hash], wanted: u32) -> [L::Place; BATCH] {
        self.prefetch(hashes, wanted);
        let mut places = [L::Place::default(); BATCH];
        for (place, hash) in places.iter_mut().zip(hashes) {
            *place = self.place(*hash);
        }
        places
    }

    /// Which items of the mask `wanted` have all their bits here. Looks at what is read first of all items, and then of
    /// those that have it at the rest, which `prefetch` asks for in between.
    #[inline]
    pub(super) fn contains_batch(&self, hashes: &[L::Hash], wanted: u32, prefetch: Prefetch) -> u32 {
        let (geometry, bits) = (&self.geometry, &self.bits);
        let maybe = self.select(hashes, wanted, |place| geometry.contains_first(bits, place));
        if maybe == 0 {
            return 0;
        }
        if prefetch == Prefetch::Rest {
            self.prefetch_rest(hashes, maybe);
        }
        self.select(hashes, maybe, |place| geometry.contains_rest(bits, place))
    }

    /// The items of a mask for which a question about their place is answered with yes. There is no branch for an answer,
    /// which could be guessed wrong.
    #[inline]
    fn select(&self, hashes: &[L::Hash], mask: u32, question: impl Fn(L::Place) -> bool) -> u32 {
        each(mask, hashes)
            .fold(0, |yes, (bit, hash)| yes | (bit & u32::from(question(self.place(hash))).wrapping_neg()))
    }

    /// Starts to load what lookups of the items of the mask `wanted` read, where that is not in the cache anyway.
    #[inline]
    pub(super) fn prefetch(&self, hashes: &[L::Hash], wanted: u32) {
        if self.geometry.size_bytes() > PREFETCH_FROM_BYTES {
            for (_, hash) in each(wanted, hashes) {
                let place = self.place(hash);
                self.geometry.prefetch_first(&self.bits, place);
                self.geometry.prefetch_rest(&self.bits, place);
            }
        }
    }

    /// Starts to load what such lookups read first, in a layer of several.
    #[inline]
    pub(super) fn prefetch_first(&self, hashes: &[L::Hash], wanted: u32) {
        if self.geometry.size_bytes() > PREFETCH_FIRST_FROM_BYTES {
            each(wanted, hashes).for_each(|(_, hash)| self.geometry.prefetch_first(&self.bits, self.place(hash)));
        }
    }

    /// Starts to load what such lookups read then.
    #[inline]
    fn prefetch_rest(&self, hashes: &[L::Hash], wanted: u32) {
        if self.geometry.size_bytes() > PREFETCH_FROM_BYTES {
            each(wanted, hashes).for_each(|(_, hash)| self.geometry.prefetch_rest(&self.bits, self.place(hash)));
        }
    }

    /// Where an item is. Of a single item nothing is fetched in advance: the processor, which guesses how the lookup goes
    /// on, asks for the lines as early, and an absent item needs but one of them.
    #[inline]
    pub(super) fn place(&self, hash: L::Hash) -> L::Place {
        self.geometry.place(hash)
    }

    /// Whether the item at this place has all its bits here.
    #[inline]
    pub(super) fn contains(&self, place: L::Place) -> bool {
        self.geometry.contains_first(&self.bits, place) && self.geometry.contains_rest(&self.bits, place)
    }

    /// Counts at least so many items.
    ///
    /// # Errors
    /// [`Error::Unsound`] for more than it is made for. Nothing has changed then.
    pub(super) fn count_at_least(&mut self, items: u64) -> Result<(), Error> {
        if items > self.capacity {
            return Err(Error::Unsound);
        }
        self.items = self.items.max(items);
        Ok(())
    }

    /// Adds the item at this place, which is not in yet.
    #[inline]
    pub(super) fn insert(&mut self, place: L::Place) {
        self.geometry.insert(&mut self.bits, place);
        self.items = self.items.saturating_add(1);
    }
}

/// The items of a mask, each with its bit of the mask.
#[inline]
fn each<T: Copy>(mut mask: u32, items: &[T]) -> impl Iterator<Item = (u32, T)> {
    std::iter::from_fn(move || {
        let item = *items.get(mask.trailing_zeros() as usize)?;
        let bit = mask & mask.wrapping_neg();
        mask ^= bit;
        Some((bit, item))
    })
}
