//! Builds a filter of valkey-bloom's layout from its formats: its fields, then layer by layer.

use super::{HashPair, ValkeyBloom, ValkeyBloomFilter};
use crate::ceiling::Ceiling;
use crate::cells::BitArray;
use crate::chain::{Layer, check_layer};
use crate::codec::{Error, Packed};
use crate::error;
use crate::geometry::sizing::to_f64;
use crate::geometry::{Flat, LayerDescription};
use crate::memory::push;
use crate::scaling::Scaling;

/// A filter whose layers are read one by one. The first layer contains the seed.
pub(super) struct Parts {
    rules: ValkeyBloom,
    layers: Vec<Layer<Flat<HashPair>>>,
    cells_bytes: u64,
}

impl Parts {
    pub(super) fn new(expansion: u32, rate: f64, tightening: f64, is_seed_random: u64) -> Result<Self, Error> {
        let is_seed_random = match is_seed_random {
            0 => false,
            1 => true,
            _ => return Err(Error::OutOfRange),
        };
        let scaling = Scaling::from_expansion(expansion);
        let rules = ValkeyBloom { rate, tightening, scaling, seed: [0; 32], is_seed_random };
        if !rules.is_sound() {
            return Err(Error::OutOfRange);
        }
        Ok(Self { rules, layers: Vec::new(), cells_bytes: 0 })
    }

    /// Asks the ceiling for a layer whose stored form has this length.
    pub(super) fn check(&self, stored_bytes: usize, ceiling: &impl Ceiling) -> Result<(), Error> {
        let layer_bytes = stored_bytes.saturating_sub(ValkeyBloom::PREFIX_BYTES) as u64;
        Ok(check_layer::<ValkeyBloom>(ceiling, self.layers.len(), self.cells_bytes, 0, layer_bytes)?)
    }

    pub(super) fn push(&mut self, capacity: u64, items: u64, stored: Box<[u8]>) -> Result<(), Error> {
        // What both formats can hold: signed numbers, and full layers except for the last.
        let fits = i64::try_from(capacity).is_ok() && items <= capacity;
        if !fits || self.layers.last().is_some_and(|before| !before.is_full()) {
            return Err(Error::OutOfRange);
        }
        let mut fields = Packed(&stored);
        let version = fields.u8()?;
        if version != ValkeyBloom::BITMAP_VERSION {
            return Err(Error::UnknownVersion(version.into()));
        }
        let size_bytes = fields.u64()?;
        let hashes = fields.u32()?;
        let seed = fields.take()?;
        if size_bytes != fields.0.len() as u64 {
            return Err(Error::WrongLength);
        }
        if self.layers.is_empty() {
            self.rules.seed = seed;
        } else if self.rules.seed != seed {
            return Err(Error::Filter(error::Error::Unsound));
        }
        self.cells_bytes = self.cells_bytes.saturating_add(size_bytes);
        let bits = size_bytes.saturating_mul(8);
        let geometry = Flat::new(size_bytes, bits, hashes, to_f64(bits) / to_f64(capacity));
        let rate = self.rules.layer_rate(self.layers.len());
        let description = LayerDescription { rate, capacity, items, geometry };
        let bits = BitArray::from_stored(stored, ValkeyBloom::PREFIX_BYTES).ok_or(Error::WrongLength)?;
        Ok(push(&mut self.layers, Layer::new(&description, bits)?)?)
    }

    pub(super) fn into_filter(self) -> Result<ValkeyBloomFilter, Error> {
        Ok(ValkeyBloomFilter::from_layers(self.rules, self.layers)?)
    }
}
