//! Filters that count, for sets whose members come and go without end: counters of 4 bits in the place of bits, one layer of
//! fixed capacity, four times the memory.
//!
//! Every add counts, of an item that is found, too: whether it is in, or others have its counters, the filter cannot tell, and
//! a delete counts down what its add counted up. As long as nothing is deleted that was not added, no delete makes another
//! item absent.

use std::ffi::CStr;

use super::Request;
use super::effect::{EffectWord, say_all, say_hasher};
use super::native::{NativeSpec, taken_rate};
use crate::ceiling::Ceiling;
use crate::cells::Counters;
use crate::chain::{Added, Chain, ChainSpec, Origin, Outcome, Removed, Rules};
use crate::error::Error;
use crate::geometry::{BlockedCounters, LayerDescription};
use crate::hash::{HashBatch, Hasher, ItemHash};
use crate::scaling::Scaling;

/// What makes a filter that counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountingSpec {
    /// The false positive rate that was asked for, [`RATE_MIN`](crate::geometry::sizing::RATE_MIN) to
    /// [`RATE_MAX`](crate::geometry::sizing::RATE_MAX).
    pub rate: f64,
    /// How many adds it takes, less those that were taken back; at least 1.
    pub capacity: u64,
    /// How it hashes.
    pub hasher: Hasher,
}

impl Rules for CountingSpec {
    type Geometry = BlockedCounters;
    type Deleted = ();

    #[inline]
    fn hash(&self, item: &[u8]) -> ItemHash {
        self.hasher.hash(item)
    }

    #[inline]
    fn hash_batch<'a>(&self, items: impl IntoIterator<Item = &'a [u8]>) -> HashBatch {
        self.hasher.hash_batch(items)
    }

    fn scaling(&self) -> Scaling {
        Scaling::Fixed
    }

    fn next_layer(&self, _: usize, _: u64, _: f64) -> Result<LayerDescription<BlockedCounters>, Error> {
        Err(Error::Full)
    }

    fn size_bytes(layers: usize, cells_bytes: u64) -> u64 {
        NativeSpec::size_bytes(layers, cells_bytes)
    }

    fn zeroed(&self, geometry: &BlockedCounters) -> Result<Counters, Error> {
        Counters::zeroed(geometry.blocks())
    }

    /// Counts the item up, in or not.
    #[inline]
    fn add_one(
        chain: &mut CountingFilter,
        hash: ItemHash,
        _origin: Origin,
        _ceiling: &impl Ceiling,
    ) -> Result<Outcome, Error> {
        chain.count_up(hash)
    }

    #[inline]
    fn add_batch(chain: &mut CountingFilter, hashes: &HashBatch, _origin: Origin, _ceiling: &impl Ceiling) -> Added {
        chain.count_up_batch(hashes)
    }

    /// Counts down what is found. An effect does the same: the primary found what this filter finds.
    fn remove_batch(
        chain: &mut CountingFilter,
        hashes: &HashBatch,
        _origin: Origin,
        _ceiling: &impl Ceiling,
    ) -> Removed {
        Removed { found: chain.count_down_batch(hashes), done: hashes.len(), error: None }
    }
}

impl ChainSpec for CountingSpec {
    type Rules = Self;

    fn check(&self) -> Result<(), Error> {
        self.native().check()
    }

    fn rules(&self) -> Self {
        *self
    }

    fn first_layer(&self) -> Result<LayerDescription<BlockedCounters>, Error> {
        let Self { rate, capacity, .. } = *self;
        Ok(LayerDescription { rate, capacity, items: 0, geometry: BlockedCounters::for_layer(capacity, rate)? })
    }
}

impl CountingSpec {
    /// What a request comes to; see [`taken_rate`].
    pub(super) fn of(request: &Request, hasher: Hasher) -> Self {
        Self { rate: taken_rate(request.rate), capacity: request.capacity, hasher }
    }

    /// The same with bits: what is written of both is the same.
    pub(super) const fn native(&self) -> NativeSpec {
        let Self { rate, capacity, hasher } = *self;
        NativeSpec { rate, capacity, scaling: Scaling::Fixed, hasher }
    }

    /// See [`Spec::spell`](super::Spec::spell).
    pub(super) fn spell(&self, mut say: impl FnMut(EffectWord<'_>)) -> &'static CStr {
        use EffectWord::Text;
        let Self { rate, capacity, hasher } = *self;
        let words = [Text(&"CAPACITY"), Text(&capacity), Text(&"ERROR"), Text(&rate), Text(&"COUNTING")];
        say_all(&mut say, &words);
        say_hasher(hasher, &mut say);
        c"BF.INSERT"
    }
}

/// A filter of our own layout, with counters in the place of bits.
pub type CountingFilter = Chain<CountingSpec>;

impl CountingFilter {
    /// A filter with layers as described, their counters all zero, for a reader that fills them in. The ceiling is asked
    /// before anything is allocated.
    ///
    /// # Errors
    /// [`Error::Unsound`] for layers that no filter has: there is one, and it is what was asked for;
    /// [`Error::AboveCeiling`], [`Error::OutOfMemory`].
    pub fn with_zero_counters(
        spec: CountingSpec,
        layers: &[LayerDescription<BlockedCounters>],
        ceiling: &impl Ceiling,
    ) -> Result<Self, Error> {
        let is_asked_for = |layer: &LayerDescription<BlockedCounters>| {
            layer.capacity == spec.capacity && layer.rate.to_bits() == spec.rate.to_bits()
        };
        if spec.check().is_err() || !layers.iter().all(is_asked_for) {
            return Err(Error::Unsound);
        }
        Self::with_empty_layers(spec, layers.iter().copied(), ceiling)
    }

    /// What made it.
    #[must_use]
    pub const fn spec(&self) -> CountingSpec {
        *self.rules()
    }

    /// How often an item is in: the least of its counters, 0 to [`COUNTER_MAX`](crate::cells::COUNTER_MAX), which stands for
    /// that or more. Too high if others share all of them, never too low while nothing is deleted that was not added.
    #[must_use]
    pub fn count(&self, item: &[u8]) -> u8 {
        self.least(self.hash(item))
    }
}
