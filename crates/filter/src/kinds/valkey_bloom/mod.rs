//! Filters of valkey-bloom's layout, which hash, grow and store by its rules.
//!
//! Layer i has the requested rate times the tightening ratio to the power of i. The first layer is not tightened, so at a ratio
//! of 0.5 a filter that grew has up to twice the requested false positive rate.

pub mod load;

pub use super::request::FIXED_SEED;

use std::ffi::CStr;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

use super::effect::{self, ArgToken, push_args, push_scaling};
use super::request::{Defaults, Request};
use crate::cells::BitArray;
use crate::chain::{AddRules, Chain, ChainSpec, Layer, Rules};
use crate::error::Error;
use crate::geometry::sizing::{self, Scaling, to_f64, to_u64};
use crate::geometry::{Flat, HASHES_MAX, LayerDescription, Positions};

/// Two hashes of an item. Each gives one of the first two positions; sums of both give the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashPair {
    first: u64,
    second: u64,
}

impl Positions for HashPair {
    const APART: u32 = 1;

    #[inline]
    fn position(self, index: u32, modulus: u64) -> u64 {
        /// The largest prime number below 2^64.
        const PRIME: u64 = 0xffff_ffff_ffff_ffc5;
        let position = match index {
            0 => self.first,
            1 => self.second,
            _ => self.first.wrapping_add(self.second.wrapping_mul(index.into())) % PRIME,
        };
        position % modulus
    }
}

/// The definition of a filter of valkey-bloom's layout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValkeyBloomSpec {
    /// The rules by which it hashes and grows.
    pub rules: ValkeyBloom,
    /// The requested capacity, at least 1: the capacity of the first layer.
    pub capacity: u64,
}

/// The fields that valkey-bloom stores with a filter besides its layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValkeyBloom {
    /// The requested rate, inside (0, 1).
    pub rate: f64,
    /// The factor from one layer's rate to the next, inside (0, 1).
    pub tightening: f64,
    /// The behavior of a full filter.
    pub scaling: Scaling,
    /// The keys of the two hashes.
    pub seed: [u8; 32],
    /// Whether the seed is random, as the filter states.
    pub is_seed_random: bool,
}

impl ValkeyBloom {
    /// The length of a bitmap's stored form before its bits: version, length, k, seed.
    pub(crate) const PREFIX_BYTES: usize = 1 + 8 + 4 + 32;
    /// The version of a bitmap's stored form.
    pub(crate) const BITMAP_VERSION: u8 = 1;

    /// Returns the rules of a new filter with this seed.
    pub fn new(rate: f64, tightening: f64, scaling: Scaling, seed: [u8; 32]) -> Self {
        Self { rate, tightening, scaling, seed, is_seed_random: seed != FIXED_SEED }
    }

    /// Whether a filter can have these rules: rate and ratio must be inside (0, 1).
    pub(crate) fn is_sound(&self) -> bool {
        let inside = |number: f64| number > 0.0 && number < 1.0;
        inside(self.rate) && inside(self.tightening)
    }

    /// Returns the rate of layer `index`, counted from 0.
    pub(crate) fn layer_rate(&self, index: usize) -> f64 {
        self.rate * libm::pow(self.tightening, to_f64(index as u64))
    }

    fn layer(&self, index: usize, capacity: u64) -> Result<LayerDescription<Flat<HashPair>>, Error> {
        // Its formats store signed numbers.
        if i64::try_from(capacity).is_err() {
            return Err(Error::CapacityOutOfRange);
        }
        let rate = self.layer_rate(index);
        // Lower numbers lose precision and then underflow.
        if rate < f64::MIN_POSITIVE {
            return Err(Error::RateTooLow);
        }
        let ln_2 = std::f64::consts::LN_2;
        let bytes = to_u64((to_f64(capacity) * rate.ln() / (-8.0 * ln_2 * ln_2)).ceil()).max(1);
        let bits = bytes.checked_mul(8).filter(|bits| *bits < u64::MAX / 2).ok_or(Error::SizeOverflow)?;
        let bits_per_item = to_f64(bits) / to_f64(capacity);
        let hashes = to_u64((bits_per_item * ln_2).round()).max(1);
        // A tiny capacity at a tiny rate needs few bits, but k may exceed the accepted limit.
        let hashes = u32::try_from(hashes).ok().filter(|hashes| *hashes <= HASHES_MAX).ok_or(Error::RateTooLow)?;
        Ok(LayerDescription { rate, capacity, items: 0, geometry: Flat::new(bytes, bits, hashes, bits_per_item) })
    }
}

impl Rules for ValkeyBloom {
    type Geometry = Flat<HashPair>;
    type Deleted = ();
    /// The limit of valkey-bloom's primaries. It matters with a high tightening ratio and expansion 1, where the rates do not
    /// end a chain earlier.
    const LAYERS_MAX: usize = 1 << 16;

    #[inline]
    fn hash(&self, item: &[u8]) -> HashPair {
        let [first, second] = [0, 16].map(|begin| {
            let key = self.seed.get(begin..).and_then(<[u8]>::first_chunk).unwrap_or(&[0; 16]);
            let mut hasher = SipHasher13::new_with_key(key);
            hasher.write(&(item.len() as u64).to_le_bytes());
            hasher.write(item);
            hasher.finish()
        });
        HashPair { first, second }
    }

    fn scaling(&self) -> Scaling {
        self.scaling
    }

    fn next_layer(&self, index: usize, capacity: u64, _rate: f64) -> Result<LayerDescription<Flat<HashPair>>, Error> {
        self.layer(index, sizing::next_capacity(capacity, self.scaling)?)
    }

    /// Its list of layers grows from 1 to 4, 8, 16 ... elements of 8 bytes.
    fn size_bytes(layers: usize, cells_bytes: u64) -> u64 {
        let layers = layers as u64;
        let places = if layers <= 1 { 1 } else { layers.next_power_of_two().max(4) };
        (48 + 208 * layers + 8 * places).saturating_add(cells_bytes)
    }

    fn zeroed(&self, geometry: &Flat<HashPair>) -> Result<BitArray, Error> {
        let mut prefix = [0; Self::PREFIX_BYTES];
        let fields: [&[u8]; 4] =
            [&[Self::BITMAP_VERSION], &geometry.size_bytes.to_le_bytes(), &geometry.hashes.to_le_bytes(), &self.seed];
        prefix.iter_mut().zip(fields.into_iter().flatten()).for_each(|(to, from)| *to = *from);
        BitArray::zeroed(&prefix, geometry.size_bytes)
    }
}

impl AddRules for ValkeyBloom {}

/// A filter of valkey-bloom's layout.
pub type ValkeyBloomFilter = Chain<ValkeyBloom>;

impl ChainSpec for ValkeyBloomSpec {
    type Rules = ValkeyBloom;

    fn rules(&self) -> ValkeyBloom {
        self.rules
    }

    fn first_layer(&self) -> Result<LayerDescription<Flat<HashPair>>, Error> {
        if !self.rules.is_sound() {
            return Err(Error::RateOutOfRange);
        }
        if self.capacity == 0 {
            return Err(Error::CapacityOutOfRange);
        }
        self.rules.layer(0, self.capacity)
    }
}

impl ValkeyBloomSpec {
    /// Returns the definition for a request. Accepts any rate.
    pub(super) fn of(request: &Request, seed: [u8; 32], defaults: &Defaults) -> Self {
        let Request { rate, capacity, scaling, tightening, .. } = *request;
        let tightening = tightening.unwrap_or(defaults.tightening);
        Self { rules: ValkeyBloom::new(rate, tightening, scaling, seed), capacity }
    }

    /// See [`Spec::encode_args`](super::Spec::encode_args).
    pub(super) fn encode_args(&self, mut push: impl FnMut(ArgToken<'_>)) -> &'static CStr {
        use ArgToken::Bytes;
        let ValkeyBloom { rate, tightening, scaling, seed, .. } = self.rules;
        push_args(&mut push, &[Bytes(b"CAPACITY"), effect::whole(self.capacity), Bytes(b"ERROR"), effect::rate(rate)]);
        push_args(&mut push, &[Bytes(b"TIGHTENING"), effect::rate(tightening), Bytes(b"SEED"), Bytes(&seed)]);
        push_scaling(scaling, &mut push);
        c"BF.INSERT"
    }
}

impl ValkeyBloomFilter {
    /// Its definition.
    pub(crate) fn spec(&self) -> ValkeyBloomSpec {
        ValkeyBloomSpec { rules: *self.rules(), capacity: self.layers().first().map_or(1, Layer::capacity) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::growth_limit;
    use crate::host::Limits;

    fn rules(rate: f64, tightening: f64, expansion: u32) -> ValkeyBloom {
        ValkeyBloom::new(rate, tightening, Scaling::from_expansion(expansion), FIXED_SEED)
    }

    /// From valkey-bloom itself.
    #[test]
    fn golden_positions() {
        let cases: [(&[u8], [u64; 7]); 3] = [
            (b"a", [596, 218, 72, 34, 252, 214, 432]),
            (b"hello", [953, 573, 179, 752, 365, 938, 551]),
            (b"", [598, 580, 798, 418, 38, 618, 238]),
        ];
        for (item, positions) in cases {
            let hash = rules(0.01, 0.5, 2).hash(item);
            assert_eq!([0, 1, 2, 3, 4, 5, 6].map(|index| hash.position(index, 960)), positions, "{item:?}");
        }
    }

    /// Layers that valkey-bloom created.
    #[test]
    fn golden_sizes() {
        let size = |rules: &ValkeyBloom, index, capacity| {
            let layer = rules.layer(index, capacity).unwrap();
            (layer.geometry.size_bytes, layer.geometry.hashes)
        };
        assert_eq!(size(&rules(0.01, 0.5, 2), 0, 100), (120, 7));
        assert_eq!(size(&rules(0.01, 0.5, 2), 1, 200), (276, 8));
        assert_eq!(size(&rules(0.001, 0.5, 0), 0, 1000), (1798, 10));
        assert_eq!(size(&rules(0.02, 0.7, 2), 1, 200), (223, 6));
        assert_eq!(size(&rules(0.05, 0.5, 1), 1, 64), (62, 5));
    }

    /// From valkey-bloom's BF.INFO; its limit is 128 MiB.
    #[test]
    fn golden_reach() {
        let growth_limit = |rate, tightening, capacity, expansion| {
            let spec = ValkeyBloomSpec { rules: rules(rate, tightening, expansion), capacity };
            let growth_limit = growth_limit(&spec, 0, &Limits { size_bytes: 128 << 20, layers: usize::MAX });
            (growth_limit.capacity, growth_limit.ends_by_rate)
        };
        assert_eq!(growth_limit(0.01, 0.5, 100, 2), (26_214_300, false));
        assert_eq!(growth_limit(0.001, 0.5, 50, 4), (17_476_250, false));
        assert_eq!(growth_limit(1e-7, 0.7, 100, 2), (13_107_100, false));
        assert_eq!(growth_limit(0.05, 0.5, 64, 1), (65_152, true), "the error rate, not the size, is the limit");
    }
}
