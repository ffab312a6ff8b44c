//! The chain of layers: what a key holds. Adds and lookups, in batches.

use super::Error;
use super::ceiling::{Ceiling, Unlimited};
use super::description::{Description, LayerDescription, Scaling};
use super::hash::{BATCH, HashBatch, ItemHash};
use super::layer::Layer;
use super::sizing::{self, Geometry};

/// The longest chain. A lookup of an absent item visits every layer.
pub const LAYERS_MAX: usize = 4096;

/// What a batch of adds did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// Bit i: item i was new.
    pub new: u32,
    /// How many items of the batch were dealt with, from the first on; all of them unless there was an error.
    pub done: usize,
    /// Why the item behind them was refused.
    pub error: Option<Error>,
}

/// A Bloom filter: a chain of layers with one seed, whose rates add up to the rate that was asked for.
///
/// ```
/// use bloomgate::bloom::{BloomFilter, Scaling, Unlimited};
///
/// let mut seen = BloomFilter::new(0.01, 1000, Scaling::from_expansion(2), 42, &Unlimited)?;
/// assert_eq!(seen.add(b"https://doc.rust-lang.org/std/", &Unlimited), Ok(true));
/// assert_eq!(seen.add(b"https://doc.rust-lang.org/std/", &Unlimited), Ok(false));
/// assert!(seen.contains(b"https://doc.rust-lang.org/std/"));
/// assert!(!seen.contains(b"https://doc.rust-lang.org/book/"));
/// # Ok::<(), bloomgate::bloom::Error>(())
/// ```
#[derive(Debug)]
pub struct BloomFilter {
    rate: f64,
    capacity: u64,
    scaling: Scaling,
    seed: u32,
    layers: Vec<Layer>,
}

impl BloomFilter {
    /// An empty filter for `capacity` items (at least 1) at false positive rate `rate`
    /// ([`RATE_MIN`](sizing::RATE_MIN) to [`RATE_MAX`](sizing::RATE_MAX)). Costs microseconds, whatever its size.
    ///
    /// # Errors
    /// [`Error::RateOutOfRange`], [`Error::CapacityOutOfRange`], [`Error::OutOfMemory`].
    pub fn new(rate: f64, capacity: u64, scaling: Scaling, seed: u32, ceiling: &impl Ceiling) -> Result<Self, Error> {
        if !(sizing::RATE_MIN..=sizing::RATE_MAX).contains(&rate) {
            return Err(Error::RateOutOfRange);
        }
        let mut filter = Self { rate, capacity, scaling, seed, layers: Vec::new() };
        filter.push_layer(capacity, ceiling)?;
        Ok(filter)
    }

    /// A filter as described, its bits all zero, for a reader that fills them in. The ceiling is asked once, for the
    /// whole of it, before anything is allocated.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a description that no filter has, [`Error::OutOfMemory`].
    pub fn with_zero_bits(description: &Description, ceiling: &impl Ceiling) -> Result<Self, Error> {
        let Description { rate, capacity, scaling, seed, policy, ref layers } = *description;
        let sound = (sizing::RATE_MIN..=sizing::RATE_MAX).contains(&rate)
            && capacity >= 1
            && policy == sizing::POLICY
            && (1..=LAYERS_MAX).contains(&layers.len())
            && (layers.len() == 1 || scaling != Scaling::Fixed);
        if !sound {
            return Err(Error::Unsound);
        }
        let asked_bytes = layers.iter().fold(0u64, |sum, layer| sum.saturating_add(layer.geometry.size_bytes()));
        check_ceiling(ceiling, 0, asked_bytes)?;
        let mut filter = Self { rate, capacity, scaling, seed, layers: Vec::new() };
        reserve(&mut filter.layers, layers.len())?;
        for layer in layers {
            filter.layers.push(Layer::with_zero_bits(layer)?);
        }
        Ok(filter)
    }

    /// What is left where a filter was taken out: no layers, no bits. It holds nothing and takes nothing.
    pub(crate) const fn hollow() -> Self {
        Self { rate: sizing::RATE_MAX, capacity: 1, scaling: Scaling::Fixed, seed: 0, layers: Vec::new() }
    }

    /// A filter with the same fields and bits. Pages that are all zero are not touched in the copy.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the allocator refuses.
    pub fn try_clone(&self) -> Result<Self, Error> {
        const PIECE: usize = 4096;
        let mut copy = Self::with_zero_bits(&self.description(), &Unlimited)?;
        for (from, to) in self.layers.iter().zip(&mut copy.layers) {
            let pieces = from.bits().bytes().chunks(PIECE).zip(to.bits_mut().bytes_mut().chunks_mut(PIECE));
            for (from, to) in pieces.filter(|(from, _)| from.iter().any(|byte| *byte != 0)) {
                to.copy_from_slice(from);
            }
        }
        Ok(copy)
    }

    /// The number of items that a filter with this rate, first capacity and scaling can grow to in `limit_bytes` of
    /// bitmaps. Works out up to [`LAYERS_MAX`] sizes, about 60 ns each.
    #[must_use]
    pub fn reachable_capacity(rate: f64, capacity: u64, scaling: Scaling, limit_bytes: u64) -> u64 {
        let (mut size_bytes, mut reached, mut next) = (0u64, 0u64, Ok(capacity));
        let first = capacity;
        for index in 0..LAYERS_MAX {
            let Ok(capacity) = next else { break };
            let share = sizing::share(scaling, first, u32::try_from(index).unwrap_or(u32::MAX));
            let Ok(geometry) = Geometry::for_layer(capacity, rate * share) else { break };
            size_bytes = size_bytes.saturating_add(geometry.size_bytes());
            if size_bytes > limit_bytes {
                break;
            }
            reached = reached.saturating_add(capacity);
            next = sizing::next_capacity(capacity, scaling);
        }
        reached
    }

    /// Everything about the filter but its bits.
    #[must_use]
    pub fn description(&self) -> Description {
        Description {
            rate: self.rate,
            capacity: self.capacity,
            scaling: self.scaling,
            seed: self.seed,
            policy: sizing::POLICY,
            layers: self.layers.iter().map(Layer::description).collect(),
        }
    }

    /// The false positive rate that was asked for.
    #[must_use]
    pub const fn rate(&self) -> f64 {
        self.rate
    }

    /// The capacity that was asked for; growing adds to it ([`total_capacity`](Self::total_capacity)).
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// What becomes of it when it is full.
    #[must_use]
    pub const fn scaling(&self) -> Scaling {
        self.scaling
    }

    /// The seed of the hash.
    #[must_use]
    pub const fn seed(&self) -> u32 {
        self.seed
    }

    /// Its layers, oldest first.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The number of items that all its layers together are made for.
    #[must_use]
    pub fn total_capacity(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.capacity()))
    }

    /// The number of items that were added: the adds that were answered "new".
    #[must_use]
    pub fn items(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.items()))
    }

    /// The number of items that can be added before it is full or grows.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.layers.last().map_or(0, |newest| newest.capacity().saturating_sub(newest.items()))
    }

    /// Bytes that were asked of the allocator, the filter's own fields included.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        let fields = size_of::<Self>() + self.layers.capacity() * size_of::<Layer>();
        self.layers.iter().fold(fields as u64, |sum, layer| sum.saturating_add(layer.bits().allocated_bytes()))
    }

    /// The stored bits of a layer, for a reader that fills them in.
    pub fn layer_bytes_mut(&mut self, layer: usize) -> Option<&mut [u8]> {
        self.layers.get_mut(layer).map(|layer| layer.bits_mut().bytes_mut())
    }

    /// The hash of an item, for the batches.
    #[inline]
    #[must_use]
    pub fn hash(&self, item: &[u8]) -> ItemHash {
        ItemHash::of(item, self.seed)
    }

    /// The hashes of up to [`BATCH`] items (the rest of a longer list is not looked at).
    #[inline]
    pub fn hash_batch<'a>(&self, items: impl IntoIterator<Item = &'a [u8]>) -> HashBatch {
        HashBatch::of(items, self.seed)
    }

    /// Whether an item may have been added. `false` is certain; `true` is wrong for a part of the absent items that is
    /// at most the rate, when the filter is full. Visits the layers newest first.
    #[must_use]
    pub fn contains(&self, item: &[u8]) -> bool {
        self.contains_batch(&[self.hash(item)]) != 0
    }

    /// Adds an item; answers whether it was new. A new item that the filter takes for one that is in (a false
    /// positive) is not added: it needs not be.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooManyLayers`], [`Error::CapacityOutOfRange`], [`Error::OutOfMemory`]; the filter is
    /// then as it was.
    pub fn add(&mut self, item: &[u8], ceiling: &impl Ceiling) -> Result<bool, Error> {
        let added = self.add_batch(&[self.hash(item)], ceiling);
        added.error.map_or(Ok(added.new != 0), Err)
    }

    /// Looks up to [`BATCH`] items up together (the rest of a longer list is not looked at); bit i of the answer:
    /// item i may have been added.
    #[must_use]
    pub fn contains_batch(&self, hashes: &[ItemHash]) -> u32 {
        let (hashes, wanted) = batch(hashes);
        contains_in(&self.layers, hashes, wanted)
    }

    /// Adds up to [`BATCH`] items together (the rest of a longer list is not looked at), in order: the answers are
    /// those of adding them one by one.
    pub fn add_batch(&mut self, hashes: &[ItemHash], ceiling: &impl Ceiling) -> Added {
        let (hashes, all) = batch(hashes);
        let mut added = Added { new: 0, done: 0, error: None };
        // Layers behind the newest do not change: ask them for the whole batch first.
        let mut in_older = self.layers.split_last().map_or(0, |(_, older)| contains_in(older, hashes, all));
        while added.done < hashes.len() {
            let Some(newest) = self.layers.last_mut() else { break };
            let wanted = all & !in_older & (u32::MAX << added.done);
            if add_until_full(newest, hashes, wanted, &mut added) {
                break;
            }
            // The next item needs a new layer; what is newest now will be one of the older.
            let retired = newest.contains_batch(hashes, wanted & (u32::MAX << added.done));
            in_older |= retired;
            if let Err(error) = self.grow(ceiling) {
                added.error = Some(error);
                break;
            }
        }
        added
    }

    fn grow(&mut self, ceiling: &impl Ceiling) -> Result<(), Error> {
        let newest = self.layers.last().map_or(self.capacity, Layer::capacity);
        let capacity = sizing::next_capacity(newest, self.scaling)?;
        self.push_layer(capacity, ceiling)
    }

    /// Adds a layer or changes nothing.
    fn push_layer(&mut self, capacity: u64, ceiling: &impl Ceiling) -> Result<(), Error> {
        if self.layers.len() >= LAYERS_MAX {
            return Err(Error::TooManyLayers);
        }
        let index = u32::try_from(self.layers.len()).unwrap_or(u32::MAX);
        let rate = self.rate * sizing::share(self.scaling, self.capacity, index);
        let geometry = Geometry::for_layer(capacity, rate)?;
        check_ceiling(ceiling, if index == 0 { 0 } else { self.allocated_bytes() }, geometry.size_bytes())?;
        reserve(&mut self.layers, 1)?;
        self.layers.push(Layer::with_zero_bits(&LayerDescription { rate, capacity, items: 0, geometry })?);
        Ok(())
    }
}

/// Equal in every logical field and in every bit.
impl PartialEq for BloomFilter {
    fn eq(&self, other: &Self) -> bool {
        self.description() == other.description()
            && self.layers.iter().zip(&other.layers).all(|(a, b)| a.bits().bytes() == b.bits().bytes())
    }
}

/// The first items of a list, as many as fit a batch, and the mask that names all of them.
#[inline]
fn batch(hashes: &[ItemHash]) -> (&[ItemHash], u32) {
    let hashes = hashes.get(..BATCH).unwrap_or(hashes);
    let all = if hashes.len() == BATCH { u32::MAX } else { (1 << hashes.len()) - 1 };
    (hashes, all)
}

/// Which items of the mask `wanted` are in one of the layers, newest first.
#[inline]
fn contains_in(layers: &[Layer], hashes: &[ItemHash], wanted: u32) -> u32 {
    let mut present = 0;
    for layer in layers.iter().rev() {
        let open = wanted & !present;
        if open == 0 {
            break;
        }
        present |= layer.contains_batch(hashes, open);
    }
    present
}

/// Goes on with a batch from `added.done`, adding the items of the mask `wanted` to the newest layer. Answers whether
/// the batch is through; if not, the item at `added.done` is new and the layer full.
#[inline]
fn add_until_full(newest: &mut Layer, hashes: &[ItemHash], wanted: u32, added: &mut Added) -> bool {
    let places = newest.places(hashes, wanted);
    for (index, place) in places.iter().enumerate().take(hashes.len()).skip(added.done) {
        if wanted & (1 << index) != 0 && !newest.contains(*place) {
            if newest.is_full() {
                return false;
            }
            newest.insert(*place);
            added.new |= 1 << index;
        }
        added.done = index + 1;
    }
    true
}

fn check_ceiling(ceiling: &impl Ceiling, filter_bytes: u64, asked_bytes: u64) -> Result<(), Error> {
    let available_bytes = ceiling.available_bytes(filter_bytes, asked_bytes);
    if asked_bytes > available_bytes { Err(Error::OutOfMemory { asked_bytes, available_bytes }) } else { Ok(()) }
}

/// Room for more layers. Exactly that many: the chain is part of what a filter weighs.
fn reserve(layers: &mut Vec<Layer>, additional: usize) -> Result<(), Error> {
    layers.try_reserve_exact(additional).map_err(|_| Error::OutOfMemory {
        asked_bytes: (additional.saturating_mul(size_of::<Layer>())) as u64,
        available_bytes: 0,
    })
}
