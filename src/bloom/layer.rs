//! One Bloom filter of fixed capacity: a bitmap, its geometry, and the number of items it took.

use super::bits::Bitmap;
use super::description::LayerDescription;
use super::hash::{BATCH, ItemHash};
use super::page_local::Place;
use super::sizing::Geometry;
use super::{Error, sizing};

/// Below this size a bitmap is in the cache anyway and asking for its lines costs time.
const PREFETCH_FROM_BYTES: u64 = 512 * 1024;

/// One Bloom filter of fixed capacity. A filter is a chain of them.
#[derive(Debug)]
pub struct Layer {
    rate: f64,
    capacity: u64,
    items: u64,
    geometry: Geometry,
    bits: Bitmap,
}

impl Layer {
    /// A layer as described, its bits all zero.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a description that no layer has, [`Error::OutOfMemory`] where the allocator refuses.
    pub(super) fn with_zero_bits(description: &LayerDescription) -> Result<Self, Error> {
        let LayerDescription { rate, capacity, items, geometry } = *description;
        let sound = rate > 0.0 && rate <= sizing::RATE_MAX && capacity >= 1 && items <= capacity;
        if !sound {
            return Err(Error::Unsound);
        }
        geometry.check()?;
        Ok(Self { rate, capacity, items, geometry, bits: Bitmap::zeroed(geometry.blocks())? })
    }

    /// Everything about the layer but its bits.
    #[must_use]
    pub const fn description(&self) -> LayerDescription {
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

    /// The shape of its bitmap.
    #[must_use]
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Its bitmap.
    #[must_use]
    pub const fn bits(&self) -> &Bitmap {
        &self.bits
    }

    pub(super) const fn bits_mut(&mut self) -> &mut Bitmap {
        &mut self.bits
    }

    /// Whether it has taken as many items as it is made for.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.items >= self.capacity
    }

    /// The part of its bits that is set, 0 to 1; about a half when it is full. Reads the whole bitmap.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    pub fn fill_ratio(&self) -> f64 {
        self.bits.count_ones() as f64 / (self.geometry.size_bytes() as f64 * 8.0)
    }

    /// Where each item of a batch is, and for the items of the mask `wanted` the blocks on their way into the cache.
    #[inline]
    pub(super) fn places(&self, hashes: &[ItemHash], wanted: u32) -> [Place; BATCH] {
        let mut places = [Place::default(); BATCH];
        let prefetch = self.geometry.size_bytes() > PREFETCH_FROM_BYTES;
        for (index, (place, hash)) in places.iter_mut().zip(hashes).enumerate() {
            if wanted & (1 << index) != 0 {
                *place = Place::of(*hash, self.geometry);
                if prefetch {
                    self.bits.prefetch(place.a);
                    self.bits.prefetch(place.b);
                }
            }
        }
        places
    }

    /// Which items of the mask `wanted` have all their bits here.
    pub(super) fn contains_batch(&self, hashes: &[ItemHash], wanted: u32) -> u32 {
        let places = self.places(hashes, wanted);
        let mut present = 0;
        for (index, place) in places.iter().enumerate().take(hashes.len()) {
            if wanted & (1 << index) != 0 && self.contains(*place) {
                present |= 1 << index;
            }
        }
        present
    }

    /// Whether the item at this place has all its bits here. Most items that are absent need one block only.
    #[inline]
    pub(super) fn contains(&self, place: Place) -> bool {
        let hashes = self.geometry.hashes;
        self.bits.all_set(place.a, place.bits_in_a(hashes)) && self.bits.all_set(place.b, place.bits_in_b(hashes))
    }

    /// Adds the item at this place, which is not in yet.
    #[inline]
    pub(super) fn insert(&mut self, place: Place) {
        let hashes = self.geometry.hashes;
        self.bits.set_all(place.a, place.bits_in_a(hashes));
        self.bits.set_all(place.b, place.bits_in_b(hashes));
        self.items += 1;
    }
}
