//! The stored forms of valkey-bloom's filters: the argument of BF.LOAD, of which its AOF consists, and the snapshot.

use super::{HashPair, ValkeyBloom, ValkeyBloomFilter};
use crate::cells::{BitArray, sparse};
use crate::chain::{Layer, check_layer};
use crate::codec::{ByteSource, Error, Sink, Source, number_of_layers, read_u32};
use crate::error;
use crate::geometry::sizing::{Scaling, to_f64};
use crate::geometry::{Flat, LayerDescription};
use crate::host::Ceiling;
use crate::memory::{push, reserve, try_copy};

const LOAD_VERSION: u8 = 1;

/// The length of the argument of BF.LOAD, in bytes.
pub fn length(filter: &ValkeyBloomFilter) -> usize {
    /// The lengths of the part before the layers, and of each layer without its bitmap.
    const FRONT_BYTES: usize = 1 + 4 + 8 + 8 + 1 + 8;
    const LAYER_BYTES: usize = 3 * 8;
    filter.layers().iter().fold(FRONT_BYTES, |sum, layer| sum + LAYER_BYTES + layer.cells().stored().len())
}

/// Passes the argument of BF.LOAD to `put` in pieces, [`length`] bytes in total.
pub fn write(filter: &ValkeyBloomFilter, mut put: impl FnMut(&[u8])) {
    let rules = filter.rules();
    put(&[LOAD_VERSION]);
    put(&rules.scaling.expansion().to_le_bytes());
    put(&rules.rate.to_le_bytes());
    put(&rules.tightening.to_le_bytes());
    put(&[rules.is_seed_random.into()]);
    put(&(filter.layers().len() as u64).to_le_bytes());
    for layer in filter.layers() {
        let stored = layer.cells().stored();
        put(&(stored.len() as u64).to_le_bytes());
        put(stored);
        put(&layer.items().to_le_bytes());
        put(&layer.capacity().to_le_bytes());
    }
}

/// Returns the argument of BF.LOAD.
pub fn encode(filter: &ValkeyBloomFilter) -> Result<Vec<u8>, Error> {
    let mut data = Vec::new();
    reserve(&mut data, length(filter))?;
    write(filter, |part| data.extend_from_slice(part));
    Ok(data)
}

/// Reads a filter from an argument of BF.LOAD. Ignores trailing bytes.
///
/// # Errors
/// [`Error::UnknownVersion`], and the errors of a snapshot.
pub fn decode(data: &[u8], ceiling: &impl Ceiling) -> Result<ValkeyBloomFilter, Error> {
    let mut fields = ByteSource(data);
    let version = fields.u8()?;
    if version != LOAD_VERSION {
        return Err(Error::UnknownVersion(version.into()));
    }
    let expansion = fields.u32()?;
    let (rate, tightening) = (fields.f64()?, fields.f64()?);
    let is_seed_random = fields.u8()?;
    let count = number_of_layers::<ValkeyBloom>(fields.u64()?, ceiling)?;
    let mut builder = Builder::new(expansion, rate, tightening, is_seed_random.into())?;
    for _ in 0..count {
        let length = usize::try_from(fields.u64()?).map_err(|_| Error::Truncated)?;
        let (stored, rest) = fields.0.split_at_checked(length).ok_or(Error::Truncated)?;
        fields.0 = rest;
        builder.check(length, ceiling)?;
        let items = u64::try_from(i64::from_le_bytes(fields.take()?)).map_err(|_| Error::OutOfRange)?;
        let capacity = u64::try_from(i64::from_le_bytes(fields.take()?)).map_err(|_| Error::OutOfRange)?;
        builder.push(capacity, items, try_copy(stored)?)?;
    }
    builder.into_filter()
}

// The snapshot of valkey-bloom's filters: RDB type `bloomfltr`, encoding 1.
//
// ```text
// snapshot                          BF.LOAD, packed, little-endian
// uint   layers                     u8  version, 1
// uint   expansion, 0: fixed        u32 expansion
// double rate                       f64 rate
// double tightening ratio           f64 tightening ratio
// uint   whether the seed is random u8  whether the seed is random
// for each layer, oldest first:     u64 layers, and for each:
//   uint   capacity                   u64 length and the bitmap
//   uint   items, of the last only    i64 items
//   string bitmap                     i64 capacity
//
// bitmap   u8 version, 1 | u64 length of the bits in bytes | u32 k | 32 bytes seed | the bits
// ```
// Every layer except the last is full. All layers of a filter have the same seed.

/// The encoding.
pub(crate) const ENCODING: u32 = 1;

/// Writes a filter.
pub(crate) fn write_snapshot(filter: &ValkeyBloomFilter, sink: &mut impl Sink) {
    let rules = filter.rules();
    sink.put_u64(filter.layers().len() as u64);
    sink.put_u64(rules.scaling.expansion().into());
    sink.put_f64(rules.rate);
    sink.put_f64(rules.tightening);
    sink.put_u64(rules.is_seed_random.into());
    let last = filter.layers().len().saturating_sub(1);
    for (index, layer) in filter.layers().iter().enumerate() {
        sink.put_u64(layer.capacity());
        if index == last {
            sink.put_u64(layer.items());
        }
        sink.put_bytes(layer.cells().stored());
    }
}

/// Reads a filter. Checks the ceiling for each layer as it arrives.
pub(crate) fn read_snapshot(source: &mut impl Source, ceiling: &impl Ceiling) -> Result<ValkeyBloomFilter, Error> {
    let count = number_of_layers::<ValkeyBloom>(source.u64()?, ceiling)?;
    let expansion = read_u32(source)?;
    let (rate, tightening, is_seed_random) = (source.f64()?, source.f64()?, source.u64()?);
    let mut builder = Builder::new(expansion, rate, tightening, is_seed_random)?;
    for index in 0..count {
        let capacity = source.u64()?;
        let items = if index + 1 == count { source.u64()? } else { capacity };
        let stored = sparse(source.owned_bytes()?);
        builder.check(stored.len(), ceiling)?;
        builder.push(capacity, items, stored)?;
    }
    builder.into_filter()
}

// Builds a filter of valkey-bloom's layout from its formats: its fields, then layer by layer.

/// A filter whose layers are read one by one. The first layer contains the seed.
pub(super) struct Builder {
    rules: ValkeyBloom,
    layers: Vec<Layer<Flat<HashPair>>>,
    cells_bytes: u64,
}

impl Builder {
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

    /// Checks the ceiling for a layer whose stored form has this length.
    pub(super) fn check(&self, stored_bytes: usize, ceiling: &impl Ceiling) -> Result<(), Error> {
        let layer_bytes = stored_bytes.saturating_sub(ValkeyBloom::PREFIX_BYTES) as u64;
        Ok(check_layer::<ValkeyBloom>(ceiling, self.layers.len(), self.cells_bytes, 0, layer_bytes)?)
    }

    pub(super) fn push(&mut self, capacity: u64, items: u64, stored: Box<[u8]>) -> Result<(), Error> {
        // Both formats have signed numbers, and all layers except the last must be full.
        let fits = i64::try_from(capacity).is_ok() && items <= capacity;
        if !fits || self.layers.last().is_some_and(|before| !before.is_full()) {
            return Err(Error::OutOfRange);
        }
        let mut fields = ByteSource(&stored);
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
        Ok(push(&mut self.layers, Layer::new(&description, || Ok(bits))?)?)
    }

    pub(super) fn into_filter(self) -> Result<ValkeyBloomFilter, Error> {
        Ok(ValkeyBloomFilter::from_layers(self.rules, self.layers)?)
    }
}
