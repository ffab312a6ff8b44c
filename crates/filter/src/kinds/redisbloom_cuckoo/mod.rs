//! Cuckoo filters of RedisBloom's layout: they add, evict, delete and compact by its rules, so that equal commands give equal bytes.
//!
//! A filter is a list of sub-filters, oldest first. Each is an array of buckets of a few slots, and a slot is a byte: an item's fingerprint,
//! or 0. An item has two buckets in each sub-filter, and each of its two hashes determines the other by its fingerprint. A second sub-filter
//! is `expansion` times as large as the first, and so on; the numbers of buckets are powers of two. All sub-filters use the same hashes, so
//! items with equal buckets in a larger one have equal buckets in every smaller one: a delete that removes the slot of another item leaves
//! that item a slot in its own buckets.
//!
//! This is not a `Chain`: a delete and a compaction move slots between sub-filters.

pub mod dump;

use std::ops::Range;

use super::effect::{self, ArgToken};
use crate::cells::{Mover, copy_to_zeros, relocate_bytes, relocate_elements};
use crate::chain::Contents;
use crate::error::Error;
use crate::hash::murmur2::murmur_hash_64a;
use crate::host::Ceiling;
use crate::memory::{block_bytes, push, reserve, rounding_bytes, zeroed_bytes};

/// The largest number of slots in a bucket.
pub const BUCKET_SIZE_MAX: u64 = 255;
/// The largest number of evictions of an add.
pub const ITERATIONS_MAX: u64 = 65535;
/// The largest growth from one sub-filter to the next.
pub const EXPANSION_MAX: u64 = 32768;
/// The largest capacity that a client may ask for.
pub const CAPACITY_MAX: u64 = 1 << 30;
/// The largest number of sub-filters. RedisBloom counts them in 16 bits.
const LAYERS_MAX: usize = 65535;

/// The parameters of a filter besides its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    /// Slots in a bucket.
    bucket_size: u8,
    /// The evictions after which an add gives up and the filter grows.
    iterations: u16,
    /// The growth from one sub-filter to the next, a power of two; 0 if the filter does not grow.
    expansion: u16,
}

/// An item: its fingerprint, never 0, and the hashes that select its two buckets.
#[derive(Clone, Copy)]
struct Candidate {
    fingerprint: u8,
    hashes: [u64; 2],
}

impl Candidate {
    fn of(item: &[u8]) -> Self {
        let hash = murmur_hash_64a(item, 0);
        let [fingerprint, ..] = (hash % 255 + 1).to_le_bytes();
        Self::at(hash, fingerprint)
    }

    /// A fingerprint in one of its buckets.
    fn at(hash: u64, fingerprint: u8) -> Self {
        Self { fingerprint, hashes: [hash, other_hash(hash, fingerprint)] }
    }
}

/// The hash of the other bucket of a fingerprint.
fn other_hash(hash: u64, fingerprint: u8) -> u64 {
    hash ^ u64::from(fingerprint).wrapping_mul(0x5bd1_e995)
}

impl Shape {
    /// Returns the shape for three numbers; `None` if one is out of range. The growth is rounded up to a power of two.
    fn of(bucket_size: u64, iterations: u64, expansion: u64) -> Option<Self> {
        let expansion = if expansion == 0 { 0 } else { expansion.checked_next_power_of_two()? };
        Some(Self {
            bucket_size: u8::try_from(bucket_size).ok().filter(|slots| *slots > 0)?,
            iterations: u16::try_from(iterations).ok().filter(|evictions| *evictions > 0)?,
            expansion: u16::try_from(expansion).ok().filter(|growth| u64::from(*growth) <= EXPANSION_MAX)?,
        })
    }

    fn slots(self) -> usize {
        self.bucket_size.into()
    }

    /// The size of a sub-filter in bytes, if the first has `buckets` buckets.
    fn layer_bytes(self, buckets: u64, layer: usize) -> Option<u64> {
        let growth = u64::from(self.expansion).checked_pow(u32::try_from(layer).ok()?)?;
        buckets.checked_mul(growth)?.checked_mul(self.bucket_size.into()).filter(|bytes| *bytes > 0)
    }

    /// The slots of the bucket that a hash selects in a sub-filter.
    fn bucket(self, cells: &[u8], hash: u64) -> Range<usize> {
        let buckets = (cells.len() / self.slots()) as u64;
        let bucket = usize::try_from(hash & buckets.wrapping_sub(1)).unwrap_or(usize::MAX);
        let begin = bucket.saturating_mul(self.slots());
        begin..begin.saturating_add(self.slots())
    }

    fn bucket_mut(self, cells: &mut [u8], hash: u64) -> &mut [u8] {
        let bucket = self.bucket(cells, hash);
        cells.get_mut(bucket).unwrap_or_default()
    }

    /// Stores a fingerprint in the first slot of its buckets in a sub-filter that has another value now. Returns whether there is one.
    fn replace(self, cells: &mut [u8], candidate: Candidate, now: u8, then: u8) -> bool {
        candidate.hashes.into_iter().any(|hash| {
            let slot = self.bucket_mut(cells, hash).iter_mut().find(|slot| **slot == now);
            slot.map(|slot| *slot = then).is_some()
        })
    }

    /// Stores a fingerprint in the first empty slot of its buckets. Returns whether there is one.
    fn put(self, cells: &mut [u8], candidate: Candidate) -> bool {
        self.replace(cells, candidate, 0, candidate.fingerprint)
    }

    /// Makes room for a fingerprint by evicting others to their other buckets. If that fails, undoes all evictions and returns false.
    fn evict(self, cells: &mut [u8], candidate: Candidate) -> bool {
        let Candidate { mut fingerprint, hashes: [mut hash, _] } = candidate;
        let mut victim = 0;
        for _ in 0..self.iterations {
            let bucket = self.bucket_mut(cells, hash);
            bucket.get_mut(victim).into_iter().for_each(|slot| std::mem::swap(slot, &mut fingerprint));
            hash = other_hash(hash, fingerprint);
            if let Some(slot) = self.bucket_mut(cells, hash).iter_mut().find(|slot| **slot == 0) {
                *slot = fingerprint;
                return true;
            }
            victim = (victim + 1) % self.slots();
        }
        for _ in 0..self.iterations {
            victim = (victim + self.slots() - 1) % self.slots();
            hash = other_hash(hash, fingerprint);
            let bucket = self.bucket_mut(cells, hash);
            bucket.get_mut(victim).into_iter().for_each(|slot| std::mem::swap(slot, &mut fingerprint));
        }
        false
    }
}

/// The definition of a new filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedisBloomCuckooSpec {
    /// The requested number of slots of the first sub-filter, which is rounded to a power of two buckets.
    pub capacity: u64,
    /// Slots in a bucket, 1 to [`BUCKET_SIZE_MAX`].
    pub bucket_size: u64,
    /// The evictions of an add, 1 to [`ITERATIONS_MAX`].
    pub iterations: u64,
    /// The growth from one sub-filter to the next, at most [`EXPANSION_MAX`] and rounded up to a power of two; 0: the filter does not grow.
    pub expansion: u64,
}

impl RedisBloomCuckooSpec {
    /// Passes the words of `CF.RESERVE` after the key that create this filter.
    pub fn encode_args(&self, mut push: impl FnMut(ArgToken<'_>)) {
        push(effect::whole(self.capacity));
        let options: [(&[u8], u64); 3] =
            [(b"BUCKETSIZE", self.bucket_size), (b"MAXITERATIONS", self.iterations), (b"EXPANSION", self.expansion)];
        for (name, value) in options {
            push(ArgToken::Bytes(name));
            push(effect::whole(value));
        }
    }
}

/// A cuckoo filter of RedisBloom's layout.
///
/// ```
/// use bloomgate_filter::kinds::{RedisBloomCuckooFilter, RedisBloomCuckooSpec};
/// use bloomgate_filter::Unlimited;
///
/// let spec = RedisBloomCuckooSpec { capacity: 1000, bucket_size: 2, iterations: 20, expansion: 1 };
/// let mut seen = RedisBloomCuckooFilter::with_spec(&spec, &Unlimited)?;
/// seen.add(b"an item", &Unlimited)?;
/// assert_eq!(seen.count(b"an item"), 1);
/// assert!(seen.delete(b"an item") && !seen.contains(b"an item"));
/// # Ok::<(), bloomgate_filter::Error>(())
/// ```
#[derive(Debug, PartialEq)]
pub struct RedisBloomCuckooFilter {
    /// The cells of each sub-filter, oldest first; at least one.
    layers: Vec<Box<[u8]>>,
    items: u64,
    /// Deletes since the last compaction.
    deletes: u64,
    shape: Shape,
}

impl RedisBloomCuckooFilter {
    /// Creates an empty filter.
    ///
    /// # Errors
    /// [`Error::Unsound`] for numbers out of range, [`Error::SizeOverflow`], [`Error::AboveCeiling`], [`Error::OutOfMemory`].
    pub fn with_spec(spec: &RedisBloomCuckooSpec, ceiling: &impl Ceiling) -> Result<Self, Error> {
        let shape = Shape::of(spec.bucket_size, spec.iterations, spec.expansion).ok_or(Error::Unsound)?;
        let buckets =
            (spec.capacity / spec.bucket_size).max(1).checked_next_power_of_two().ok_or(Error::SizeOverflow)?;
        let mut filter = Self { layers: Vec::new(), items: 0, deletes: 0, shape };
        filter.push_layer(buckets, ceiling)?;
        Ok(filter)
    }

    /// Appends an empty sub-filter. `buckets`: the number of buckets of the first.
    fn push_layer(&mut self, buckets: u64, ceiling: &impl Ceiling) -> Result<(), Error> {
        let bytes = self.check_layer(buckets, ceiling)?;
        self.push_zeros(bytes)
    }

    fn push_zeros(&mut self, bytes: u64) -> Result<(), Error> {
        let size = usize::try_from(bytes).map_err(|_| Error::SizeOverflow)?;
        push(&mut self.layers, zeroed_bytes(size, bytes)?)
    }

    /// Checks the limits for one more sub-filter. Returns its size in bytes.
    fn check_layer(&self, buckets: u64, ceiling: &impl Ceiling) -> Result<u64, Error> {
        if self.layers.len() >= LAYERS_MAX.min(ceiling.layers_max()) {
            return Err(Error::TooManyLayers);
        }
        let bytes = self.shape.layer_bytes(buckets, self.layers.len()).ok_or(Error::SizeOverflow)?;
        let before_bytes = if self.layers.is_empty() { 0 } else { self.size_bytes() };
        let grown_bytes = size_bytes(self.layers.len() + 1, self.slots().saturating_add(bytes));
        ceiling.allow_blocks(before_bytes, grown_bytes - before_bytes, rounding_bytes([bytes]))?;
        Ok(bytes)
    }

    /// Adds an item, also if it is present: every add stores a fingerprint.
    ///
    /// # Errors
    /// [`Error::Full`] if the filter does not grow, and the errors of growth. The filter is then unchanged.
    pub fn add(&mut self, item: &[u8], ceiling: &impl Ceiling) -> Result<(), Error> {
        let (shape, candidate) = (self.shape, Candidate::of(item));
        let is_stored = self.layers.iter_mut().rev().any(|cells| shape.put(cells, candidate))
            || self.layers.last_mut().is_some_and(|newest| shape.evict(newest, candidate));
        if !is_stored {
            if shape.expansion == 0 {
                return Err(Error::Full);
            }
            self.push_layer(self.buckets(), ceiling)?;
            // An empty sub-filter has room.
            let _ = self.layers.last_mut().is_some_and(|newest| shape.put(newest, candidate));
        }
        self.items = self.items.saturating_add(1);
        Ok(())
    }

    /// Whether the filter may contain an item.
    pub fn contains(&self, item: &[u8]) -> bool {
        let candidate = Candidate::of(item);
        self.buckets_of(candidate).any(|bucket| bucket.contains(&candidate.fingerprint))
    }

    /// Counts the slots with an item's fingerprint in its buckets. An item whose two buckets are the same is counted twice, as RedisBloom
    /// counts it.
    pub fn count(&self, item: &[u8]) -> u64 {
        let candidate = Candidate::of(item);
        let matches = |bucket: &[u8]| bucket.iter().filter(|slot| **slot == candidate.fingerprint).count() as u64;
        self.buckets_of(candidate).map(matches).sum()
    }

    /// The buckets of an item in all sub-filters.
    fn buckets_of(&self, candidate: Candidate) -> impl Iterator<Item = &[u8]> {
        self.layers.iter().flat_map(move |cells| {
            candidate.hashes.map(|hash| cells.get(self.shape.bucket(cells, hash)).unwrap_or_default())
        })
    }

    /// Deletes an item: empties one slot with its fingerprint. Returns whether there was one. Many deletes start a compaction.
    pub fn delete(&mut self, item: &[u8]) -> bool {
        let (shape, candidate) = (self.shape, Candidate::of(item));
        let fingerprint = candidate.fingerprint;
        if !self.layers.iter_mut().rev().any(|cells| shape.replace(cells, candidate, fingerprint, 0)) {
            return false;
        }
        self.items = self.items.saturating_sub(1);
        self.deletes = self.deletes.saturating_add(1);
        if self.layers.len() > 1 && self.deletes > self.items / 10 {
            self.compact_until(|is_empty| !is_empty);
        }
        true
    }

    /// Moves fingerprints to older sub-filters where there is room, and frees the newest ones that are empty then. Returns whether
    /// anything changed.
    pub fn compact(&mut self) -> bool {
        self.compact_until(|_| false)
    }

    /// Compacts until `ends` says so, after a sub-filter that is empty or not.
    fn compact_until(&mut self, ends: impl Fn(bool) -> bool) -> bool {
        let shape = self.shape;
        let mut has_changed = std::mem::take(&mut self.deletes) > 0;
        for layer in (1..self.layers.len()).rev() {
            let (older, newer) = self.layers.split_at_mut(layer);
            let Some(cells) = newer.first_mut() else { break };
            let mut is_empty = true;
            for (index, slot) in cells.iter_mut().enumerate().filter(|(_, slot)| **slot != 0) {
                let candidate = Candidate::at((index / shape.slots()) as u64, *slot);
                if older.iter_mut().any(|cells| shape.put(cells, candidate)) {
                    *slot = 0;
                    has_changed = true;
                } else {
                    is_empty = false;
                }
            }
            if is_empty && layer + 1 == self.layers.len() {
                self.layers.pop();
                // Only a dump can state more items than it has cells for.
                self.items = self.items.min(self.slots());
                has_changed = true;
            }
            if ends(is_empty) {
                break;
            }
        }
        has_changed
    }

    /// The number of buckets of the first sub-filter.
    pub fn buckets(&self) -> u64 {
        self.layers.first().map_or(0, |first| (first.len() / self.shape.slots()) as u64)
    }

    /// The number of sub-filters.
    pub const fn layer_count(&self) -> usize {
        self.layers.len()
    }

    /// The number of adds less the number of deletes.
    pub const fn items(&self) -> u64 {
        self.items
    }

    /// The number of deletes since the last compaction.
    pub const fn deletes(&self) -> u64 {
        self.deletes
    }

    /// Its definition, with the number of slots of the first sub-filter as the capacity.
    pub fn spec(&self) -> RedisBloomCuckooSpec {
        let Shape { bucket_size, iterations, expansion } = self.shape;
        let [bucket_size, iterations, expansion] = [bucket_size.into(), iterations.into(), expansion.into()];
        RedisBloomCuckooSpec {
            capacity: self.buckets().saturating_mul(bucket_size),
            bucket_size,
            iterations,
            expansion,
        }
    }

    /// The number of slots of all sub-filters, which is their size in bytes.
    fn slots(&self) -> u64 {
        self.layers.iter().map(|cells| cells.len() as u64).sum()
    }

    /// Its size in bytes, as RedisBloom computes it.
    pub fn size_bytes(&self) -> u64 {
        size_bytes(self.layers.len(), self.slots())
    }

    /// Its counts.
    pub fn contents(&self) -> Contents {
        let (size_bytes, layers, capacity) = (self.size_bytes(), self.layers.len() as u64, self.slots());
        Contents { size_bytes, layers, items: self.items, capacity, pending_bytes: 0 }
    }

    /// The number of bytes taken from the allocator, including its own fields.
    pub fn allocated_bytes(&self) -> u64 {
        let list = block_bytes((self.layers.capacity() * size_of::<Box<[u8]>>()) as u64);
        let cells = self.layers.iter().map(|cells| block_bytes(cells.len() as u64));
        cells.fold((size_of::<Self>() as u64).saturating_add(list), u64::saturating_add)
    }

    /// Returns a copy.
    pub fn try_clone(&self) -> Result<Self, Error> {
        let mut layers = Vec::new();
        reserve(&mut layers, self.layers.len())?;
        for cells in &self.layers {
            let mut copy = zeroed_bytes(cells.len(), cells.len() as u64)?;
            copy_to_zeros(cells, &mut copy);
            layers.push(copy);
        }
        Ok(Self { layers, ..*self })
    }

    /// Lets the mover move its memory, starting at sub-filter `first`. Returns the sub-filter to continue with if the mover stops before the
    /// last.
    pub fn relocate(&mut self, first: usize, mover: &mut impl Mover) -> Option<usize> {
        if first == 0 {
            relocate_elements(&mut self.layers, mover);
        }
        let count = self.layers.len();
        for (layer, cells) in self.layers.iter_mut().enumerate().skip(first) {
            relocate_bytes(cells, mover);
            if layer + 1 < count && mover.has_done_enough() {
                return Some(layer + 1);
            }
        }
        None
    }
}

/// The size that RedisBloom reports for a filter with this number of sub-filters and of slots.
fn size_bytes(layers: usize, slots: u64) -> u64 {
    (40 + 16 * layers as u64).saturating_add(slots)
}
