//! A filter that counts: adds, lookups, deletes on its one layer.

use super::CountingSpec;
use crate::ceiling::Ceiling;
use crate::cells::Mover;
use crate::clock::Clock;
use crate::error::Error;
use crate::geometry::{BlockedCounters, LayerDescription};
use crate::kinds::Contents;
use crate::kinds::info::LayerSummary;
use crate::kinds::kind::{Kind, Origin, Outcome, Removed};
use crate::kinds::stats::Measured;
use crate::mask::Mask;
use crate::scaling::Scaling;
use crate::shape::{Added, Chain};

/// A filter of our own layout, with counters in the place of bits.
#[derive(Debug, PartialEq)]
pub struct CountingFilter {
    chain: Chain<CountingSpec>,
}

impl CountingFilter {
    /// An empty filter. Costs microseconds, whatever its size.
    ///
    /// # Errors
    /// [`Error::RateOutOfRange`], [`Error::CapacityOutOfRange`], [`Error::AboveCeiling`], [`Error::OutOfMemory`],
    /// [`Error::SizeOverflow`].
    pub fn with_spec(spec: CountingSpec, ceiling: &impl Ceiling) -> Result<Self, Error> {
        if !spec.native().has_sound_rate() {
            return Err(Error::RateOutOfRange);
        }
        Chain::with_first_layer(spec, &spec.layer()?, ceiling).map(|chain| Self { chain })
    }

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
        if !spec.native().has_sound_rate() || !layers.iter().all(is_asked_for) {
            return Err(Error::Unsound);
        }
        Chain::with_empty_layers(spec, layers.iter().copied(), ceiling).map(|chain| Self { chain })
    }

    /// A filter with the same fields and counters. Pages that are all zero are not touched in the copy.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the allocator refuses.
    pub fn try_clone(&self) -> Result<Self, Error> {
        Ok(Self { chain: self.chain.try_clone()? })
    }

    /// What made it.
    #[must_use]
    pub const fn spec(&self) -> CountingSpec {
        *self.chain.rules()
    }

    /// Its one layer.
    #[must_use]
    pub const fn chain(&self) -> &Chain<CountingSpec> {
        &self.chain
    }

    /// The same, to be filled in.
    pub(in crate::kinds) const fn chain_mut(&mut self) -> &mut Chain<CountingSpec> {
        &mut self.chain
    }

    /// How often an item is in: the least of its counters, 0 to [`COUNTER_MAX`](crate::cells::COUNTER_MAX), which stands for
    /// that or more. Too high where others share all of them, never too low while nothing is deleted that was not added.
    #[must_use]
    pub fn count(&self, item: &[u8]) -> u8 {
        self.chain.least(self.chain.hash(item))
    }
}

impl Kind for CountingFilter {
    fn scaling(&self) -> Scaling {
        Scaling::Fixed
    }

    fn layer_count(&self) -> usize {
        Kind::layer_count(&self.chain)
    }

    fn layer(&self, index: usize) -> Option<LayerSummary> {
        Kind::layer(&self.chain, index)
    }

    fn contents(&self) -> Contents {
        Kind::contents(&self.chain)
    }

    fn remaining_capacity(&self) -> u64 {
        self.chain.remaining_capacity()
    }

    fn allocated_bytes(&self) -> u64 {
        self.chain.allocated_bytes()
    }

    fn relocate(&mut self, first: usize, mover: &mut impl Mover) -> Option<usize> {
        self.chain.relocate(first, mover)
    }

    fn emptied(&self) -> Result<Self, Error> {
        self.chain.emptied().map(|chain| Self { chain })
    }

    fn measure(&self, clock: &impl Clock, measured: &mut Measured) -> Result<(), Error> {
        self.chain.measure(clock, measured)
    }

    #[inline]
    fn contains(&self, item: &[u8], _clock: &impl Clock) -> bool {
        self.chain.contains(item)
    }

    #[inline]
    fn contains_batch<'a>(&self, items: impl IntoIterator<Item = &'a [u8]>, _clock: &impl Clock) -> Mask {
        self.chain.contains_batch(&self.chain.hash_batch(items))
    }

    #[inline]
    fn add(
        &mut self,
        item: &[u8],
        _origin: Origin,
        _clock: &impl Clock,
        _ceiling: &impl Ceiling,
    ) -> Result<Outcome, Error> {
        let was_in = self.chain.count_up(self.chain.hash(item))?;
        Ok(if was_in { Outcome::Renewed } else { Outcome::New })
    }

    #[inline]
    fn add_batch<'a>(
        &mut self,
        items: impl IntoIterator<Item = &'a [u8]>,
        _origin: Origin,
        _clock: &impl Clock,
        _ceiling: &impl Ceiling,
    ) -> Added {
        let hashes = self.chain.hash_batch(items);
        self.chain.count_up_batch(&hashes)
    }

    /// Counts down what is found. An effect does the same: the primary found what this filter finds.
    fn remove_batch<'a>(
        &mut self,
        items: impl IntoIterator<Item = &'a [u8]>,
        _origin: Origin,
        _clock: &impl Clock,
        _ceiling: &impl Ceiling,
    ) -> Removed {
        let hashes = self.chain.hash_batch(items);
        Removed { found: self.chain.count_down_batch(&hashes), done: hashes.len(), error: None }
    }
}
