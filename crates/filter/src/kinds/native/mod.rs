//! Filters of our own layout: a chain of layers whose rates add up to the rate that was asked for.

mod arrival;
mod description;
pub mod dump;
pub mod snapshot;

use std::ffi::CStr;

pub use arrival::{NativeArrival, came_already};

use super::Request;
use super::effect::{EffectWord, say_all, say_scaling};
use crate::ceiling::Ceiling;
use crate::cells::Blocks;
use crate::error::Error;
use crate::geometry::{LayerDescription, Paged, sizing};
use crate::hash::ItemHash;
use crate::scaling::Scaling;
use crate::shape::{Chain, Reach, Rules, reach};

/// What makes a native filter. Everything else about its layers follows from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NativeSpec {
    /// The false positive rate that was asked for, [`RATE_MIN`](sizing::RATE_MIN) to [`RATE_MAX`](sizing::RATE_MAX).
    pub rate: f64,
    /// The capacity that was asked for, at least 1: that of the first layer.
    pub capacity: u64,
    /// What becomes of it when it is full.
    pub scaling: Scaling,
    /// The seed of the hash.
    pub seed: u32,
}

/// A filter of our own layout.
pub type BloomFilter = Chain<NativeSpec>;

impl Rules for NativeSpec {
    type Geometry = Paged;

    #[inline]
    fn hash(&self, item: &[u8]) -> ItemHash {
        ItemHash::of(item, self.seed)
    }

    fn scaling(&self) -> Scaling {
        self.scaling
    }

    fn next_layer(&self, index: usize, capacity: u64, _rate: f64) -> Result<LayerDescription<Paged>, Error> {
        self.layer(index, sizing::next_capacity(capacity, self.scaling)?)
    }

    /// The fields are counted as the first release had them, whatever they take: a number that clients compare, and that a
    /// ceiling goes by.
    fn size_bytes(layers: usize, cells_bytes: u64) -> u64 {
        const FILTER_BYTES: u64 = 48;
        const LAYER_BYTES: u64 = 72;
        (FILTER_BYTES + LAYER_BYTES * layers as u64).saturating_add(cells_bytes)
    }

    fn zeroed(&self, geometry: &Paged) -> Result<Blocks, Error> {
        Blocks::zeroed(geometry.blocks())
    }
}

impl NativeSpec {
    /// What is left where a filter was taken out.
    pub(super) const NOTHING: Self = Self { rate: sizing::RATE_MAX, capacity: 1, scaling: Scaling::Fixed, seed: 0 };

    /// What a request comes to; see [`taken_rate`].
    pub(super) fn of(request: &Request, seed: u32) -> Self {
        let Request { rate, capacity, scaling, .. } = *request;
        Self { rate: taken_rate(rate), capacity, scaling, seed }
    }

    fn has_sound_rate(&self) -> bool {
        (sizing::RATE_MIN..=sizing::RATE_MAX).contains(&self.rate)
    }

    fn layer(&self, index: usize, capacity: u64) -> Result<LayerDescription<Paged>, Error> {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let rate = self.rate * sizing::share(self.scaling, self.capacity, index);
        Ok(LayerDescription { rate, capacity, items: 0, geometry: Paged::for_layer(capacity, rate)? })
    }

    /// See [`Spec::reach`](super::Spec::reach).
    pub(super) fn reach(&self, filter_bytes: u64, ceiling: &impl Ceiling) -> Reach {
        reach(self, self.layer(0, self.capacity), filter_bytes, ceiling)
    }

    /// See [`Spec::spell`](super::Spec::spell).
    pub(super) fn spell(&self, mut say: impl FnMut(EffectWord<'_>)) -> &'static CStr {
        use EffectWord::Text;
        let Self { rate, capacity, scaling, seed } = *self;
        say_all(&mut say, &[Text(&"CAPACITY"), Text(&capacity), Text(&"ERROR"), Text(&rate)]);
        say_scaling(scaling, &mut say);
        say_all(&mut say, &[Text(&"SEED"), Text(&seed)]);
        c"BF.INSERT"
    }
}

/// The rate that a native filter gets for a rate that was asked for: the nearest that is of use.
#[must_use]
pub const fn taken_rate(asked: f64) -> f64 {
    asked.clamp(sizing::RATE_MIN, sizing::RATE_MAX)
}

impl BloomFilter {
    /// An empty filter for `capacity` items (at least 1) at false positive rate `rate`
    /// ([`RATE_MIN`](sizing::RATE_MIN) to [`RATE_MAX`](sizing::RATE_MAX)). Costs microseconds, whatever its size.
    ///
    /// # Errors
    /// As [`with_spec`](Self::with_spec).
    pub fn new(rate: f64, capacity: u64, scaling: Scaling, seed: u32, ceiling: &impl Ceiling) -> Result<Self, Error> {
        Self::with_spec(NativeSpec { rate, capacity, scaling, seed }, ceiling)
    }

    /// An empty filter. Costs microseconds, whatever its size.
    ///
    /// # Errors
    /// [`Error::RateOutOfRange`], [`Error::CapacityOutOfRange`], [`Error::AboveCeiling`], [`Error::OutOfMemory`],
    /// [`Error::SizeOverflow`].
    pub fn with_spec(spec: NativeSpec, ceiling: &impl Ceiling) -> Result<Self, Error> {
        if !spec.has_sound_rate() {
            return Err(Error::RateOutOfRange);
        }
        Self::with_first_layer(spec, &spec.layer(0, spec.capacity)?, ceiling)
    }

    /// A filter with layers as described, their bits all zero, for a reader that fills them in. The ceiling is asked once,
    /// for the whole of it, before anything is allocated.
    ///
    /// # Errors
    /// [`Error::Unsound`] for layers that no filter has, [`Error::AboveCeiling`], [`Error::OutOfMemory`].
    pub fn with_zero_bits(
        spec: NativeSpec,
        layers: &[LayerDescription<Paged>],
        ceiling: &impl Ceiling,
    ) -> Result<Self, Error> {
        if !(spec.has_sound_rate() && spec.capacity >= 1) {
            return Err(Error::Unsound);
        }
        Self::with_empty_layers(spec, layers.iter().copied(), ceiling)
    }

    /// What made it.
    #[must_use]
    pub const fn spec(&self) -> NativeSpec {
        *self.rules()
    }
}
