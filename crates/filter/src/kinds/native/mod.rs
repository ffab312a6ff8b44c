//! Filters of the native layout: a chain of layers whose rates add up to the requested rate.

pub(crate) mod description;
mod merge;

use std::ffi::CStr;

use super::Request;
use super::effect::{EffectWord, say_all, say_hasher, say_scaling};
use crate::ceiling::Ceiling;
use crate::cells::Blocks;
use crate::chain::{Added, Chain, ChainSpec, Deleted, Origin, Outcome, Removed, Rules, WhenFull};
use crate::error::Error;
use crate::geometry::sizing::Policy;
use crate::geometry::{BlockedBits, LayerDescription, sizing};
use crate::hash::{HashBatch, Hasher, ItemHash};
use crate::mask::Mask;
use crate::scaling::Scaling;

/// What defines a native filter. Everything else about its layers follows from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NativeSpec {
    /// The requested false positive rate, [`RATE_MIN`](sizing::RATE_MIN) to [`RATE_MAX`](sizing::RATE_MAX).
    pub rate: f64,
    /// The requested capacity, at least 1: that of the first layer.
    pub capacity: u64,
    /// What happens when it is full.
    pub scaling: Scaling,
    /// How it hashes.
    pub hasher: Hasher,
    /// How its layers share the rate.
    pub policy: Policy,
}

impl Rules for NativeSpec {
    type Geometry = BlockedBits;
    type Deleted = Option<Box<Deleted>>;

    #[inline]
    fn hash(&self, item: &[u8]) -> ItemHash {
        self.hasher.hash(item)
    }

    #[inline]
    fn hash_batch<'a>(&self, items: impl IntoIterator<Item = &'a [u8]>) -> HashBatch {
        self.hasher.hash_batch(items)
    }

    fn scaling(&self) -> Scaling {
        self.scaling
    }

    fn next_layer(&self, index: usize, capacity: u64, _rate: f64) -> Result<LayerDescription<BlockedBits>, Error> {
        self.layer(index, sizing::next_capacity(capacity, self.scaling)?)
    }

    /// Counts the fields as the first release did, whatever their present size: clients compare this number, and ceilings limit
    /// it.
    fn size_bytes(layers: usize, cells_bytes: u64) -> u64 {
        const FILTER_BYTES: u64 = 48;
        const LAYER_BYTES: u64 = 72;
        (FILTER_BYTES + LAYER_BYTES * layers as u64).saturating_add(cells_bytes)
    }

    fn zeroed(&self, geometry: &BlockedBits) -> Result<Blocks, Error> {
        Blocks::zeroed(geometry.blocks())
    }

    /// An effect is inserted without a lookup.
    #[inline]
    fn add_one(
        chain: &mut BloomFilter,
        hash: ItemHash,
        origin: Origin,
        ceiling: &impl Ceiling,
    ) -> Result<Outcome, Error> {
        if origin == Origin::Client {
            return chain.add_absent(hash, ceiling).map(Outcome::of);
        }
        let added = chain.insert_batch(&[hash], Mask::NONE, WhenFull::Insert, ceiling);
        added.error.map_or(Ok(Outcome::New), Err)
    }

    #[inline]
    fn add_batch(chain: &mut BloomFilter, hashes: &HashBatch, origin: Origin, ceiling: &impl Ceiling) -> Added {
        match origin {
            Origin::Client => chain.add_absent_batch(hashes, Mask::NONE, ceiling),
            Origin::Effect => chain.insert_batch(hashes, Mask::NONE, WhenFull::Insert, ceiling),
        }
    }

    fn remove_batch(chain: &mut BloomFilter, hashes: &HashBatch, origin: Origin, ceiling: &impl Ceiling) -> Removed {
        if !chain.rules().hasher.is_keyed() {
            return Removed::REFUSED;
        }
        chain.delete_batch(hashes, origin, ceiling)
    }
}

impl ChainSpec for NativeSpec {
    type Rules = Self;

    fn check(&self) -> Result<(), Error> {
        if (sizing::RATE_MIN..=sizing::RATE_MAX).contains(&self.rate) { Ok(()) } else { Err(Error::RateOutOfRange) }
    }

    fn rules(&self) -> Self {
        *self
    }

    fn first_layer(&self) -> Result<LayerDescription<BlockedBits>, Error> {
        self.layer(0, self.capacity)
    }
}

impl NativeSpec {
    /// The definition of the filter that stands in for one that was moved out.
    const NOTHING: Self = Self {
        rate: sizing::RATE_MAX,
        capacity: 1,
        scaling: Scaling::Fixed,
        hasher: Hasher::murmur3(0),
        policy: Policy::One,
    };

    /// Returns the definition of a new filter.
    #[must_use]
    pub fn new(rate: f64, capacity: u64, scaling: Scaling, hasher: Hasher) -> Self {
        Self { rate, capacity, scaling, hasher, policy: Policy::One }.with_newest_policy()
    }

    /// Returns the definition of a new filter with MurmurHash3, the usual hash.
    #[must_use]
    pub fn murmur3(rate: f64, capacity: u64, scaling: Scaling, seed: u32) -> Self {
        Self::new(rate, capacity, scaling, Hasher::murmur3(seed))
    }

    /// Returns the definition for a request; see [`taken_rate`]. `None` if the filter cannot have the requested policy.
    ///
    /// A primary states every policy except the first, which 0.2 did not state.
    pub(super) fn of(request: &Request, hasher: Hasher, must_obey: bool) -> Option<Self> {
        let Request { rate, capacity, scaling, policy, .. } = *request;
        let spec = Self { rate: taken_rate(rate), capacity, scaling, hasher, policy: policy.unwrap_or(Policy::One) };
        let is_new = policy.is_none() && !must_obey;
        let spec = if is_new { spec.with_newest_policy() } else { spec };
        spec.policy.suits(spec.rate, scaling, capacity).then_some(spec)
    }

    /// Returns the definition with the second policy if the filter is fixed and has a high rate, or if that makes its first layer smaller.
    ///
    /// Smaller layers and lower rates of growing filters keep the first policy. Their few blocks have unequal loads, so they exceed their
    /// share of the rate, which only a small share makes up for: `tests/figures` has the sums.
    fn with_newest_policy(self) -> Self {
        /// Below it, a layer of two blocks has up to 1.13 of its rate.
        const CAPACITY_MIN: u64 = 70;
        /// Below it, a layer of a few blocks has up to 1.5 of its rate.
        const RATE_MIN: f64 = 0.001;
        let newest = Self { policy: Policy::Two, ..self };
        let is_for_it = || self.capacity >= CAPACITY_MIN && self.rate >= RATE_MIN;
        let first_bytes = |spec: Self| spec.first_layer().map_or(0, |layer| layer.geometry.size_bytes());
        let is_smaller = || first_bytes(newest) < first_bytes(self);
        let is_better = self.scaling == Scaling::Fixed || is_for_it() && is_smaller();
        if Policy::Two.suits(self.rate, self.scaling, self.capacity) && is_better { newest } else { self }
    }

    fn layer(&self, index: usize, capacity: u64) -> Result<LayerDescription<BlockedBits>, Error> {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let rate = self.rate * sizing::share(self.policy, self.scaling, self.capacity, index);
        let geometry = if (self.policy, self.scaling) == (Policy::Two, Scaling::Fixed) {
            BlockedBits::with_cells(sizing::bits_per_counted_item, capacity, rate)?
        } else {
            BlockedBits::for_layer(capacity, rate)?
        };
        Ok(LayerDescription { rate, capacity, items: 0, geometry })
    }

    /// See [`Spec::spell`](super::Spec::spell). A reader takes a missing policy for the first if the command is an effect, and
    /// for the newest if a client sends it.
    pub(super) fn spell(&self, mut say: impl FnMut(EffectWord<'_>)) -> &'static CStr {
        use EffectWord::{Bytes, Text};
        let Self { rate, capacity, scaling, hasher, policy } = *self;
        say_all(&mut say, &[Bytes(b"CAPACITY"), Text(&capacity), Bytes(b"ERROR"), Text(&rate)]);
        say_scaling(scaling, &mut say);
        say_hasher(hasher, &mut say);
        if policy != Policy::One || self.with_newest_policy().policy != policy {
            say_all(&mut say, &[Bytes(b"POLICY"), Text(&policy.number())]);
        }
        c"BF.INSERT"
    }
}

/// A filter of the native layout.
pub type BloomFilter = Chain<NativeSpec>;

impl BloomFilter {
    /// Creates an empty filter for `capacity` items (at least 1) at false positive rate `rate`
    /// ([`RATE_MIN`](crate::geometry::sizing::RATE_MIN) to [`RATE_MAX`](crate::geometry::sizing::RATE_MAX)), hashed by
    /// MurmurHash3. Takes microseconds, whatever the size.
    ///
    /// # Errors
    /// As [`with_spec`](Self::with_spec).
    pub fn new(rate: f64, capacity: u64, scaling: Scaling, seed: u32, ceiling: &impl Ceiling) -> Result<Self, Error> {
        Self::with_spec(NativeSpec::murmur3(rate, capacity, scaling, seed), ceiling)
    }

    /// Creates a filter with layers as described, their bits all zero, for a reader that fills them in. Asks the ceiling once
    /// for the whole filter, before anything is allocated.
    ///
    /// # Errors
    /// [`Error::Unsound`] for layers that no filter can have, [`Error::AboveCeiling`], [`Error::OutOfMemory`].
    pub fn with_zero_bits(
        spec: NativeSpec,
        layers: &[LayerDescription<BlockedBits>],
        ceiling: &impl Ceiling,
    ) -> Result<Self, Error> {
        spec.check().map_err(|_| Error::Unsound)?;
        Self::part_with_zero_bits(spec, layers, ceiling)
    }

    /// Creates a bucket like [`with_zero_bits`](Self::with_zero_bits), without the check of its rate.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn part_with_zero_bits(
        spec: NativeSpec,
        layers: &[LayerDescription<BlockedBits>],
        ceiling: &impl Ceiling,
    ) -> Result<Self, Error> {
        if spec.capacity == 0 {
            return Err(Error::Unsound);
        }
        Self::with_empty_layers(spec, layers.iter().copied(), ceiling)
    }

    /// Creates a filter without layers, to stand in for one that was moved out. It contains nothing and refuses every add.
    pub(crate) const fn nothing() -> Self {
        Self::hollow(NativeSpec::NOTHING)
    }

    /// Its definition.
    #[must_use]
    pub const fn spec(&self) -> NativeSpec {
        *self.rules()
    }
}

/// Returns the rate of a native filter for a requested rate: the nearest supported one.
#[must_use]
pub const fn taken_rate(asked: f64) -> f64 {
    asked.clamp(sizing::RATE_MIN, sizing::RATE_MAX)
}
