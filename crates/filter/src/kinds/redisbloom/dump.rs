//! The dump of RedisBloom's filters, for BF.SCANDUMP, BF.LOADCHUNK and AOF rewrites, and their snapshot. `kinds/chunked.rs` has the records
//! of a dump after the header.
//!
//! ```text
//! header   u64 size | u32 layers | u32 options | u32 growth
//! layer    u64 bytes | u64 bits | u64 size | f64 error | f64 bits per entry | u32 hashes | u64 entries | u8 n2
//! ```
//! Packed, little-endian. Before 2.2 a header had no growth, and 32 bits for entries; according to RedisShake, release 2.2.0 had
//! growth and 32 bits for entries. A chunk's iterator is 1 plus the offset of its end, so a chunk with `iterator` begins at
//! `iterator - 1 - length`. Chunks have no checksum; a reader can only check that a chunk stays within its layer.
//!
//! A header without growth comes from a release before 2.2, whose seeds are not known (see the snapshot, below), unless it has
//! options of 2.2 or later. RedisShake writes such a header for a filter of those releases if it is told that the target is
//! RedisBloom 1.0. Their seeds have 64 bits.
//!
//! Encoding 5, which RedisBloom's pull request 1065 proposes, has a seed and another hash: 16 more bytes in the header. It is refused.

use super::{DoubleHash, GROWTH, NOROUND, RedisBloom, RedisBloomFilter};
use crate::cells::{BitArray, sparse};
use crate::chain::{Layer, check_layer};
use crate::codec::{ByteSource, Error, Sink, Source, chunks, number_of_layers, read_u32};
use crate::error;
use crate::geometry::sizing::{to_f64, to_u64};
use crate::geometry::{Flat, LayerDescription};
use crate::host::Ceiling;
use crate::kinds::chunked::Chunked;
use crate::memory::{push, reserve};

const FRONT_BYTES: usize = 20;
const LAYER_BYTES: usize = 53;
const FRONT_BYTES_WITHOUT_GROWTH: usize = 16;
const LAYER_BYTES_WITH_SHORT_ENTRIES: usize = 49;
const FRONT_BYTES_OF_ENCODING_5: usize = 36;

/// The layers in a header.
pub(crate) type Layers = Vec<LayerDescription<Flat<DoubleHash>>>;

/// Returns the header of a filter.
pub(crate) fn encode_header(filter: &RedisBloomFilter) -> Result<Vec<u8>, Error> {
    let mut header = Vec::new();
    reserve(&mut header, FRONT_BYTES + filter.layers().len() * LAYER_BYTES)?;
    let layers = u32::try_from(filter.layers().len()).unwrap_or(u32::MAX);
    let rules = filter.rules();
    header.extend_from_slice(&filter.items().to_le_bytes());
    [layers, rules.options(), rules.growth()].iter().for_each(|field| header.extend_from_slice(&field.to_le_bytes()));
    for layer in filter.layers() {
        let Flat { size_bytes, modulus, hashes, bits_per_item, .. } = layer.geometry();
        let (bits, n2) = spelling(filter.rules(), modulus);
        let fields = [size_bytes, bits, layer.items(), layer.rate().to_bits(), bits_per_item.to_bits()];
        fields.iter().for_each(|field| header.extend_from_slice(&field.to_le_bytes()));
        header.extend_from_slice(&hashes.to_le_bytes());
        header.extend_from_slice(&layer.capacity().to_le_bytes());
        header.push(n2);
    }
    Ok(header)
}

/// Reads the rules and layers in a header. Does not check whether such a filter can exist.
///
/// # Errors
/// [`Error::NotADump`] for an impossible length; [`Error::UnknownVersion`]; [`Error::OutOfRange`]; [`Error::Filter`] if there is no
/// memory for the layers.
pub fn decode_header(header: &[u8]) -> Result<(RedisBloom, Layers), Error> {
    let mut fields = ByteSource(header);
    let _items = fields.u64()?;
    let count = fields.u32()?;
    let has_length = |front: usize, layer: usize| {
        usize::try_from(count).ok().and_then(|count| count.checked_mul(layer)?.checked_add(front)) == Some(header.len())
    };
    let has_short_entries = |front: usize| has_length(front, LAYER_BYTES_WITH_SHORT_ENTRIES);
    let (has_growth, short_entries) = match () {
        () if has_length(FRONT_BYTES, LAYER_BYTES) => (true, false),
        () if has_short_entries(FRONT_BYTES) => (true, true),
        () if has_short_entries(FRONT_BYTES_WITHOUT_GROWTH) => (false, true),
        () if has_length(FRONT_BYTES_OF_ENCODING_5, LAYER_BYTES) => return Err(Error::UnknownVersion(5)),
        () => return Err(Error::NotADump),
    };
    let options = fields.u32()?;
    let rules = match has_growth {
        true => RedisBloom::stored(options, fields.u32()?),
        false if options & NOROUND != 0 => RedisBloom::stored(options, GROWTH),
        false => RedisBloom::before_2_2(options),
    };
    let mut layers = Vec::new();
    for _ in 0..count {
        let (size_bytes, bits, items) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (rate, bits_per_item) = (fields.f64()?, fields.f64()?);
        let hashes = fields.u32()?;
        let capacity = if short_entries { fields.u32()?.into() } else { fields.u64()? };
        let modulus = modulus(bits, fields.u8()?.into())?;
        let geometry = Flat::new(size_bytes, modulus, hashes, bits_per_item);
        push(&mut layers, LayerDescription { rate, capacity, items, geometry })?;
    }
    Ok((rules, layers))
}

// The snapshot of RedisBloom's filters: RDB type `MBbloom--`. Reads encodings 0 to 4, writes 4.
//
// ```text
// uint   size            items of all layers
// uint   layers          at least 1
// uint   options         from encoding 2 on; else 0
// uint   growth          from encoding 4 on; else 2
// for each layer, oldest first:
//   uint   entries       the capacity
//   double error         its own rate
//   uint   hashes        k
//   double bits per entry
//   uint   bits          from encoding 1 on; else entries * bits per entry, rounded down
//   uint   n2            from encoding 1 on; else 0
//   string the bits
//   uint   size          items of this layer
// ```
// Positions are modulo 2^n2, or modulo `bits` if n2 is 0. Releases before 2.2 rounded sizes up to a power of two and stored n2
// with 0 for `bits`. Such a layer is written with n2 = 0 and its power of two as `bits`: the positions are the same, and
// current RedisBloom refuses the other form. The first `size` is the sum of the layers' sizes.
//
// Encodings 2 and 3 do not state the width of the seeds of the 64-bit hash: see `Hash::Murmur64EitherSeeds`. Such a filter gets
// an option of ours and is written with n2, so that current releases of RedisBloom refuse it, as they refuse the data of the
// old release. Otherwise RedisBloom would hash with seeds of 64 bits and could report every item absent.

/// The encoding that is written, and the highest that can be read.
pub(crate) const ENCODING: u32 = 4;

/// Writes a filter.
pub(crate) fn write_snapshot(filter: &RedisBloomFilter, sink: &mut impl Sink) {
    sink.put_u64(filter.items());
    sink.put_u64(filter.layers().len() as u64);
    sink.put_u64(filter.rules().options().into());
    sink.put_u64(filter.rules().growth().into());
    for layer in filter.layers() {
        let geometry = layer.geometry();
        sink.put_u64(layer.capacity());
        sink.put_f64(layer.rate());
        sink.put_u64(geometry.hashes.into());
        sink.put_f64(geometry.bits_per_item);
        let (bits, n2) = spelling(filter.rules(), geometry.modulus);
        sink.put_u64(bits);
        sink.put_u64(n2.into());
        sink.put_bytes(layer.bytes());
        sink.put_u64(layer.items());
    }
}

/// Reads a filter of an encoding. Checks the ceiling for each layer before its bits are read, and again for the bytes that have
/// arrived.
pub(crate) fn read_snapshot(
    source: &mut impl Source,
    encoding: u32,
    ceiling: &impl Ceiling,
) -> Result<RedisBloomFilter, Error> {
    if encoding > ENCODING {
        return Err(Error::UnknownVersion(encoding.into()));
    }
    let _items = source.u64()?;
    let count = number_of_layers::<RedisBloom>(source.u64()?, ceiling)?;
    let options = if encoding >= 2 { read_u32(source)? } else { 0 };
    let rules =
        if encoding >= 4 { RedisBloom::stored(options, read_u32(source)?) } else { RedisBloom::before_2_2(options) };
    let (mut layers, mut cells_bytes) = (Vec::new(), 0u64);
    for index in 0..count {
        let check = |layer_bytes| check_layer::<RedisBloom>(ceiling, index, cells_bytes, 0, layer_bytes);
        let (capacity, rate) = (source.u64()?, source.f64()?);
        let hashes = read_u32(source)?;
        let bits_per_item = source.f64()?;
        let modulus = if encoding >= 1 {
            modulus(source.u64()?, source.u64()?)?
        } else {
            to_u64((to_f64(capacity) * bits_per_item).floor())
        };
        check(modulus.div_ceil(8))?;
        let bits = sparse(source.owned_bytes()?);
        let size_bytes = bits.len() as u64;
        check(size_bytes)?;
        cells_bytes = cells_bytes.saturating_add(size_bytes);
        let geometry = Flat::new(size_bytes, modulus, hashes, bits_per_item);
        let description = LayerDescription { rate, capacity, items: source.u64()?, geometry };
        let bits = BitArray::from_stored(bits, 0).ok_or(error::Error::Unsound)?;
        push(&mut layers, Layer::new(&description, || Ok(bits))?)?;
    }
    Ok(RedisBloomFilter::from_layers(rules, layers)?)
}

/// Returns `bits` and `n2` for a layer's modulus.
pub(super) fn spelling(rules: &RedisBloom, modulus: u64) -> (u64, u8) {
    let power = u8::try_from(modulus.trailing_zeros()).ok().filter(|_| modulus.is_power_of_two());
    match power {
        Some(n2) if n2 > 0 && rules.has_either_seeds() => (0, n2),
        _ => (modulus, 0),
    }
}

/// Returns the modulus for positions.
pub(super) fn modulus(bits: u64, n2: u64) -> Result<u64, Error> {
    match n2 {
        0 => Ok(bits),
        1..64 => Ok(1 << n2),
        _ => Err(Error::OutOfRange),
    }
}

impl Chunked for RedisBloomFilter {
    const KIND: u64 = 3;

    fn header(&self) -> Result<Vec<u8>, Error> {
        encode_header(self)
    }

    fn with_header(header: &[u8], ceiling: &impl Ceiling) -> Result<Self, Error> {
        let (rules, layers) = decode_header(header)?;
        Ok(Self::with_empty_layers(rules, layers.iter().copied(), ceiling)?)
    }

    fn is_in(came: u8, here: u8) -> bool {
        came & !here == 0
    }

    fn has_header(&self, header: &[u8]) -> Result<bool, Error> {
        let (rules, layers) = decode_header(header)?;
        Ok(rules == *self.rules() && self.layers().iter().map(Layer::description).eq(layers))
    }

    fn cells(&self) -> impl Iterator<Item = &[u8]> {
        self.layers().iter().map(Layer::bytes)
    }

    fn layer_bytes_mut(&mut self, layer: usize) -> Option<&mut [u8]> {
        Self::layer_bytes_mut(self, layer)
    }

    fn write_cells(&self, sink: &mut impl Sink) {
        chunks::write(self, sink);
    }

    fn try_copy(&self) -> Result<Self, error::Error> {
        self.try_clone()
    }
}
