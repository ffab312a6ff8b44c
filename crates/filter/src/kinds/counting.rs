//! Counting filters, for sets whose members are added and removed indefinitely: 4-bit counters in place of bits, one layer of
//! fixed capacity, four times the memory.
//!
//! Every add is counted, even if the item is found: the filter cannot distinguish a present item from one whose counters belong
//! to other items, and a delete decrements the counters that the add incremented. As long as only added items are deleted, no
//! delete makes another item absent.

use std::ffi::CStr;

use super::Request;
use super::effect::{self, ArgToken, push_args, push_hasher};
use super::native::{NativeSpec, clamp_rate};
use crate::cells::Counters;
use crate::chain::{AddRules, Added, Chain, ChainSpec, Layer, Origin, Outcome, Removed, Rules};
use crate::error::Error;
use crate::geometry::sizing::{Policy, RATE_MAX, Scaling};
use crate::geometry::{BlockedCounters, LayerDescription};
use crate::hash::{HashBatch, Hasher, ItemHash};
use crate::host::Ceiling;

/// The definition of a counting filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountingSpec {
    /// The requested false positive rate, [`RATE_MIN`](crate::geometry::sizing::RATE_MIN) to [`RATE_MAX`].
    pub rate: f64,
    /// The number of adds that it can hold, minus deletes; at least 1.
    pub capacity: u64,
    /// The hash function and its seed.
    pub hasher: Hasher,
}

/// The part of a definition that is not in the filter's only layer. A filter stores nothing else of the definition, so it is no
/// larger than other kinds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountingRules {
    hasher: Hasher,
}

impl Rules for CountingRules {
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
}

impl AddRules for CountingRules {
    /// Counts the item, present or not.
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

    /// Decrements the counters of items that are found. An effect does the same, because this filter finds the same items as
    /// the primary.
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
    type Rules = CountingRules;

    fn check(&self) -> Result<(), Error> {
        self.native().check()
    }

    fn rules(&self) -> CountingRules {
        CountingRules { hasher: self.hasher }
    }

    fn first_layer(&self) -> Result<LayerDescription<BlockedCounters>, Error> {
        let Self { rate, capacity, .. } = *self;
        Ok(LayerDescription { rate, capacity, items: 0, geometry: BlockedCounters::for_layer(capacity, rate)? })
    }
}

impl CountingSpec {
    /// Returns the definition for a request; see [`clamp_rate`].
    pub(super) fn of(request: &Request, hasher: Hasher) -> Self {
        Self { rate: clamp_rate(request.rate), capacity: request.capacity, hasher }
    }

    /// Returns the native definition, whose stored form is the same.
    pub(super) const fn native(&self) -> NativeSpec {
        let Self { rate, capacity, hasher } = *self;
        NativeSpec { rate, capacity, scaling: Scaling::Fixed, hasher, policy: Policy::One }
    }

    /// See [`Spec::encode_args`](crate::kinds::Spec::encode_args).
    pub(super) fn encode_args(&self, mut push: impl FnMut(ArgToken<'_>)) -> &'static CStr {
        use ArgToken::Bytes;
        let Self { rate, capacity, hasher } = *self;
        let words =
            [Bytes(b"CAPACITY"), effect::whole(capacity), Bytes(b"ERROR"), effect::rate(rate), Bytes(b"COUNTING")];
        push_args(&mut push, &words);
        push_hasher(hasher, &mut push);
        c"BF.INSERT"
    }
}

/// A filter of the native layout with counters in place of bits.
///
/// ```
/// use bloomgate_filter::hash::Hasher;
/// use bloomgate_filter::kinds::{CountingFilter, CountingSpec, Origin};
/// use bloomgate_filter::{Filter, Moment, Spec, Unlimited};
///
/// let hasher = Hasher::murmur3(42);
/// let spec = Spec::Counting(CountingSpec { rate: 0.01, capacity: 1000, hasher });
/// let mut cart = Filter::new(&spec, &Unlimited)?;
/// for _ in 0..3 {
///     cart.add(b"apple", Origin::Client, &Moment(0), &Unlimited)?;
/// }
/// let removed = cart.remove_batch([&b"apple"[..]], Origin::Client, &Moment(0), &Unlimited);
/// assert_eq!(removed.found.len(), 1);
/// let cart: &CountingFilter = cart.counting().unwrap();
/// assert_eq!((cart.count(b"apple"), cart.count(b"pear")), (2, 0));
/// # Ok::<(), bloomgate_filter::Error>(())
/// ```
pub type CountingFilter = Chain<CountingRules>;

impl CountingFilter {
    /// Creates a filter with the described layers, whose counters are zero until a reader fills them in. Checks the ceiling
    /// before it allocates.
    pub(crate) fn with_zero_counters(
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
        Self::with_empty_layers(spec.rules(), layers.iter().copied(), ceiling)
    }

    /// Returns its definition. For the placeholder of a filter that was moved out, which has no layer, the definition is
    /// arbitrary.
    pub(crate) fn spec(&self) -> CountingSpec {
        let layer = self.layers().first().map(Layer::description);
        let (rate, capacity) = layer.map_or((RATE_MAX, 1), |layer| (layer.rate, layer.capacity));
        CountingSpec { rate, capacity, hasher: self.rules().hasher }
    }

    /// Returns how often an item is present: the minimum of its counters, 0 to 15,
    /// which means that number or more. It is too high if other items share all of its counters, and never too low as long as
    /// only added items are deleted.
    pub fn count(&self, item: &[u8]) -> u8 {
        self.least(self.hash(item))
    }
}
