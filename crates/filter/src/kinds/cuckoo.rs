//! Cuckoo filters of our own layout, for sets whose members are added and removed indefinitely: 11 to 12 bits for each item at 1%, where
//! a counting filter takes 39, and they grow.
//!
//! Every add stores a copy, even if the item is found, and a delete removes one. As long as only added items are deleted, no delete makes
//! another item absent. [`redisbloom_cuckoo`](super::redisbloom_cuckoo) has RedisBloom's layout.

use std::ffi::CStr;

use super::Request;
use super::effect::{self, ArgToken, push_args, push_hasher, push_scaling};
use super::native::{NativeSpec, clamp_rate};
use crate::cells::{BUCKET_SLOTS, Slots};
use crate::chain::{AddRules, Added, Chain, ChainSpec, LAYERS_MAX, Origin, Outcome, Removed, Rules};
use crate::error::Error;
use crate::geometry::sizing::{self, Policy, RATE_MAX, Scaling};
use crate::geometry::{CuckooGeometry, Geometry as _, LayerDescription};
use crate::hash::{HashBatch, Hasher, ItemHash};
use crate::host::Ceiling;
use crate::memory::reserve;

/// The definition of a cuckoo filter, which determines all of its layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CuckooSpec {
    /// The requested false positive rate, 4e-9 to [`RATE_MAX`].
    pub rate: f64,
    /// The number of copies that the first layer holds; at least 1.
    pub capacity: u64,
    /// Its behavior when full. The factor is a power of two.
    pub scaling: Scaling,
    /// The hash function and its seed.
    pub hasher: Hasher,
}

impl Rules for CuckooSpec {
    type Geometry = CuckooGeometry;
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
        self.scaling
    }

    fn next_layer(&self, index: usize, capacity: u64, _: f64) -> Result<LayerDescription<CuckooGeometry>, Error> {
        let capacity = sizing::next_capacity(capacity, self.scaling)?;
        let index = u32::try_from(index).map_err(|_| Error::TooManyLayers)?;
        let times = index.saturating_mul(self.scaling.expansion().trailing_zeros());
        let (first, rate) = (self.first_layer()?.geometry, self.share(index));
        Ok(LayerDescription { rate, capacity, items: 0, geometry: first.doubled(times, capacity, rate)? })
    }

    fn size_bytes(layers: usize, cells_bytes: u64) -> u64 {
        NativeSpec::size_bytes(layers, cells_bytes)
    }

    fn zeroed(&self, geometry: &CuckooGeometry) -> Result<Slots, Error> {
        Slots::zeroed(geometry.size_bytes() / 8)
    }
}

impl AddRules for CuckooSpec {
    /// Stores a copy of the item, found or not.
    #[inline]
    fn add_one(
        chain: &mut CuckooFilter,
        hash: ItemHash,
        _origin: Origin,
        ceiling: &impl Ceiling,
    ) -> Result<Outcome, Error> {
        chain.store(hash, ceiling)
    }

    #[inline]
    fn add_batch(chain: &mut CuckooFilter, hashes: &HashBatch, _origin: Origin, ceiling: &impl Ceiling) -> Added {
        chain.store_batch(hashes, ceiling)
    }

    /// Deletes a copy of each item that is found. An effect does the same, because this filter finds the same items as the primary.
    fn remove_batch(chain: &mut CuckooFilter, hashes: &HashBatch, _: Origin, _: &impl Ceiling) -> Removed {
        Removed { found: chain.delete_copies(hashes), done: hashes.len(), error: None }
    }
}

impl ChainSpec for CuckooSpec {
    type Rules = Self;

    fn check(&self) -> Result<(), Error> {
        let factor = self.scaling.expansion();
        if factor != 0 && !factor.is_power_of_two() {
            return Err(Error::Unsound);
        }
        if self.rate > 0.0 && self.rate <= RATE_MAX { Ok(()) } else { Err(Error::RateOutOfRange) }
    }

    fn rules(&self) -> Self {
        *self
    }

    fn first_layer(&self) -> Result<LayerDescription<CuckooGeometry>, Error> {
        let rate = self.share(0);
        let geometry = CuckooGeometry::first(self.capacity, rate, self.scaling)?;
        Ok(LayerDescription { rate, capacity: self.capacity, items: 0, geometry })
    }
}

impl CuckooSpec {
    /// Returns the definition for a request; see [`clamp_rate`]. The factor of growth is rounded up to a power of two, so that layers can be
    /// nested.
    pub(super) fn of(request: &Request, hasher: Hasher) -> Self {
        let factor = request.scaling.expansion();
        let factor = if factor == 0 { 0 } else { factor.checked_next_power_of_two().unwrap_or(1 << 31) };
        let scaling = Scaling::from_expansion(factor);
        Self { rate: clamp_rate(request.rate), capacity: request.capacity, scaling, hasher }
    }

    /// Returns the native definition, whose stored form is the same.
    pub(super) const fn native(&self) -> NativeSpec {
        let Self { rate, capacity, scaling, hasher } = *self;
        NativeSpec { rate, capacity, scaling, hasher, policy: Policy::One }
    }

    /// Returns the rate of a layer.
    fn share(&self, index: u32) -> f64 {
        self.rate * sizing::share(Policy::Three, self.scaling, self.capacity, index)
    }

    /// See [`Spec::encode_args`](crate::kinds::Spec::encode_args).
    pub(super) fn encode_args(&self, mut push: impl FnMut(ArgToken<'_>)) -> &'static CStr {
        use ArgToken::Bytes;
        let Self { rate, capacity, scaling, hasher } = *self;
        push_args(&mut push, &[Bytes(b"CAPACITY"), effect::whole(capacity), Bytes(b"ERROR"), effect::rate(rate)]);
        push_scaling(scaling, &mut push);
        push_args(&mut push, &[Bytes(b"CUCKOO")]);
        push_hasher(hasher, &mut push);
        c"BF.INSERT"
    }
}

/// A cuckoo filter of our own layout.
///
/// ```
/// use bloomgate_filter::hash::Hasher;
/// use bloomgate_filter::kinds::{CuckooFilter, CuckooSpec, Origin};
/// use bloomgate_filter::{Filter, Moment, Scaling, Spec, Unlimited};
///
/// let (scaling, hasher) = (Scaling::from_expansion(2), Hasher::murmur3(42));
/// let spec = Spec::Cuckoo(CuckooSpec { rate: 0.01, capacity: 1000, scaling, hasher });
/// let mut sessions = Filter::new(&spec, &Unlimited)?;
/// sessions.add(b"alice", Origin::Client, &Moment(0), &Unlimited)?;
/// sessions.add(b"alice", Origin::Client, &Moment(0), &Unlimited)?;
/// let removed = sessions.remove_batch([&b"alice"[..]], Origin::Client, &Moment(0), &Unlimited);
/// assert_eq!(removed.found.len(), 1);
/// let sessions: &CuckooFilter = sessions.cuckoo().unwrap();
/// assert_eq!((sessions.count(b"alice"), sessions.count(b"bob")), (1, 0));
/// # Ok::<(), bloomgate_filter::Error>(())
/// ```
pub type CuckooFilter = Chain<CuckooSpec>;

impl CuckooFilter {
    /// Creates a filter with the first layers of a definition, their slots empty until a reader fills them in. Checks the ceiling before it
    /// allocates.
    pub(crate) fn with_empty_slots(spec: CuckooSpec, count: usize, ceiling: &impl Ceiling) -> Result<Self, Error> {
        let (mut layers, mut next) = (Vec::new(), spec.check().and_then(|()| spec.first_layer()));
        reserve(&mut layers, count.min(LAYERS_MAX))?;
        for index in 1..=count.min(LAYERS_MAX) {
            let layer = next.map_err(|_| Error::Unsound)?;
            next = spec.next_layer(index, layer.capacity, layer.rate);
            layers.push(layer);
        }
        if layers.len() != count {
            return Err(Error::Unsound);
        }
        Self::with_empty_layers(spec, layers.iter().copied(), ceiling)
    }

    /// The number of buckets of the first layer, and of those, the number among which an item can move.
    pub fn buckets(&self) -> (u64, u64) {
        let first = self.layers().first().map(|layer| layer.geometry());
        first.map_or((0, 0), |first| (first.slots() / u64::from(BUCKET_SLOTS), first.group_buckets()))
    }

    /// Returns how often an item is present: the number of slots that match it. Too high if another item has its fingerprint and buckets,
    /// and never too low as long as only added items are deleted. From four on, which is the most in one layer, it means that or more.
    pub fn count(&self, item: &[u8]) -> u64 {
        self.copies(self.hash(item))
    }
}
