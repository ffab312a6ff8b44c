//! A filter of our own layout: what it was asked for, and the rules of hashing and growing that follow from it.

use super::Error;
use super::bits::Bitmap;
use super::ceiling::Ceiling;
use super::chain::Chain;
use super::description::{Description, LayerDescription, Scaling};
use super::hash::ItemHash;
use super::layer::Layer;
use super::layout::Rules;
use super::sizing::{self, Geometry};
use super::totals::{self, Reach};

/// What a native filter was asked for. Everything else about its layers follows from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Native {
    rate: f64,
    capacity: u64,
    scaling: Scaling,
    seed: u32,
}

impl Rules for Native {
    type Layout = Geometry;

    #[inline]
    fn hash(&self, item: &[u8]) -> ItemHash {
        ItemHash::of(item, self.seed)
    }

    fn scaling(&self) -> Scaling {
        self.scaling
    }

    fn next_layer(&self, index: usize, capacity: u64, _rate: f64) -> Result<LayerDescription, Error> {
        self.layer(index, sizing::next_capacity(capacity, self.scaling)?)
    }

    /// The fields are counted as the first release had them, whatever they take: a number that clients compare, and that a
    /// ceiling goes by.
    fn size_bytes(layers: usize, bits_bytes: u64) -> u64 {
        const FILTER_BYTES: u64 = 48;
        const LAYER_BYTES: u64 = 72;
        (FILTER_BYTES + LAYER_BYTES * layers as u64).saturating_add(bits_bytes)
    }

    fn zeroed(&self, geometry: &Geometry) -> Result<Bitmap, Error> {
        Bitmap::zeroed(geometry.blocks())
    }
}

impl Native {
    fn layer(&self, index: usize, capacity: u64) -> Result<LayerDescription, Error> {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let rate = self.rate * sizing::share(self.scaling, self.capacity, index);
        Ok(LayerDescription { rate, capacity, items: 0, geometry: Geometry::for_layer(capacity, rate)? })
    }
}

/// A Bloom filter of our own layout: a chain of layers with one seed, whose rates add up to the rate that was asked for.
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
pub type BloomFilter = Chain<Native>;

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
        let rules = Native { rate, capacity, scaling, seed };
        Self::with_first_layer(rules, &rules.layer(0, capacity)?, ceiling)
    }

    /// A filter as described, its bits all zero, for a reader that fills them in. The ceiling is asked once, for the
    /// whole of it, before anything is allocated.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a description that no filter has, [`Error::OutOfMemory`].
    pub fn with_zero_bits(description: &Description, ceiling: &impl Ceiling) -> Result<Self, Error> {
        let Description { rate, capacity, scaling, seed, policy, ref layers } = *description;
        let sound = (sizing::RATE_MIN..=sizing::RATE_MAX).contains(&rate) && capacity >= 1 && policy == sizing::POLICY;
        if !sound {
            return Err(Error::Unsound);
        }
        Self::with_empty_layers(Native { rate, capacity, scaling, seed }, layers.iter().copied(), ceiling)
    }

    /// What is left where a filter was taken out.
    pub(super) const fn nothing() -> Self {
        Self::hollow(Native { rate: sizing::RATE_MAX, capacity: 1, scaling: Scaling::Fixed, seed: 0 })
    }

    /// How far a filter with this rate, first capacity and scaling can grow. The ceiling is asked as for a filter of
    /// `filter_bytes` (0: a new one); up to [`LAYERS_MAX`](super::LAYERS_MAX) sizes are worked out, about 60 ns each.
    #[must_use]
    pub fn reach(rate: f64, capacity: u64, scaling: Scaling, filter_bytes: u64, ceiling: &impl Ceiling) -> Reach {
        let rules = Native { rate, capacity, scaling, seed: 0 };
        totals::reach(&rules, rules.layer(0, capacity), filter_bytes, ceiling)
    }

    /// Everything about the filter but its bits.
    #[must_use]
    pub fn description(&self) -> Description {
        let Native { rate, capacity, scaling, seed } = *self.rules();
        let layers = self.layers().iter().map(Layer::description).collect();
        Description { rate, capacity, scaling, seed, policy: sizing::POLICY, layers }
    }

    /// The false positive rate that was asked for.
    #[must_use]
    pub const fn rate(&self) -> f64 {
        self.rules().rate
    }

    /// The capacity that was asked for; growing adds to it ([`total_capacity`](Self::total_capacity)).
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.rules().capacity
    }

    /// The seed of the hash.
    #[must_use]
    pub const fn seed(&self) -> u32 {
        self.rules().seed
    }
}
