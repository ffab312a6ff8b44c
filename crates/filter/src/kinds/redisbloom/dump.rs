//! The dump of RedisBloom's filters, for BF.SCANDUMP, BF.LOADCHUNK and AOF rewrites, in RedisBloom's format: a header with
//! iterator 1, then the concatenated bits of all layers in chunks of at most 16 MiB.
//!
//! ```text
//! header   u64 size | u32 layers | u32 options | u32 growth
//! layer    u64 bytes | u64 bits | u64 size | f64 error | f64 bits per entry | u32 hashes | u64 entries | u8 n2
//! ```
//! Packed, little-endian. Before 2.2 a header had no growth, and 32 bits for entries; release 2.2.0, as RedisShake knows it, had
//! growth and 32 bits for entries. A chunk's iterator is 1 plus the offset of its end, so a chunk with `iterator` begins at
//! `iterator - 1 - length`. Chunks have no checksum; a reader can only check that a chunk stays within its layer.
//!
//! A header without growth comes from a release before 2.2, whose seeds are not known (see `snapshot.rs`), except where its
//! options are those of 2.2 and later. RedisShake writes such a header for a filter of those releases if it is told that the
//! target is RedisBloom 1.0. Their seeds have 64 bits.

use std::borrow::Cow;

use super::snapshot::{modulus, spelling};
use super::{DoubleHash, GROWTH, NOROUND, RedisBloom, RedisBloomFilter};
use crate::codec::{Error, Packed, Progress};
use crate::geometry::{Flat, LayerDescription};
use crate::memory::{push, reserve};

/// The largest chunk, in bytes.
pub const CHUNK_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The iterator of a header.
pub const HEADER: u64 = 1;

const FRONT_BYTES: usize = 20;
const LAYER_BYTES: usize = 53;
const FRONT_BYTES_WITHOUT_GROWTH: usize = 16;
const LAYER_BYTES_WITH_SHORT_ENTRIES: usize = 49;

/// The layers in a header.
pub type Layers = Vec<LayerDescription<Flat<DoubleHash>>>;

/// Returns the header of a filter.
///
/// # Errors
/// [`Error::Filter`] if there is no memory for it.
pub fn encode_header(filter: &RedisBloomFilter) -> Result<Vec<u8>, Error> {
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

/// Reads the rules and layers in a header. The filter decides whether it can have them.
///
/// # Errors
/// [`Error::NotADump`] for a length that no header has; [`Error::OutOfRange`]; [`Error::Filter`] if there is no memory for the
/// layers.
pub fn decode_header(header: &[u8]) -> Result<(RedisBloom, Layers), Error> {
    let mut fields = Packed(header);
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

/// A record: its iterator and its data.
pub type Record<'a> = (u64, Cow<'a, [u8]>);

/// Returns the record after the one with this iterator, 0 for the first; `None` after the last one.
///
/// # Errors
/// [`Error::Filter`] if there is no memory for the header. Chunks borrow the filter's bytes.
pub fn next_record(filter: &RedisBloomFilter, iterator: u64) -> Result<Option<Record<'_>>, Error> {
    match iterator.checked_sub(HEADER) {
        None => Ok(Some((HEADER, encode_header(filter)?.into()))),
        Some(begin) => Ok(chunk_from(filter, begin).map(|chunk| (iterator + chunk.len() as u64, chunk.into()))),
    }
}

/// Returns the bits from an offset in all layers to the end of the layer, at most a chunk.
pub(super) fn chunk_from(filter: &RedisBloomFilter, begin: u64) -> Option<&[u8]> {
    let offset = locate(filter, begin)?;
    let bits = filter.layers().get(offset.layer)?.bytes().get(offset.begin..)?;
    Some(bits.get(..CHUNK_BYTES_MAX).unwrap_or(bits))
}

/// Returns the records of a dump in order. An error ends them.
pub fn records(filter: &RedisBloomFilter) -> impl Iterator<Item = Result<Record<'_>, Error>> {
    std::iter::successors(next_record(filter, 0).transpose(), |before| {
        let (iterator, _) = before.as_ref().ok()?;
        next_record(filter, *iterator).transpose()
    })
}

/// A byte of the concatenated layers.
pub(super) struct ByteOffset {
    layer: usize,
    /// Its offset in the layer.
    begin: usize,
    /// The number of bytes from it to the end of the layer.
    left: u64,
}

impl ByteOffset {
    /// Returns `length` bytes of the filter from here on.
    pub(super) fn bytes_mut<'a>(&self, filter: &'a mut RedisBloomFilter, count: usize) -> Option<&'a mut [u8]> {
        filter.layer_bytes_mut(self.layer)?.get_mut(self.begin..)?.get_mut(..count)
    }
}

fn locate(filter: &RedisBloomFilter, mut position: u64) -> Option<ByteOffset> {
    for (layer, size_bytes) in filter.layers().iter().map(|layer| layer.geometry().size_bytes).enumerate() {
        if position < size_bytes {
            return Some(ByteOffset { layer, begin: usize::try_from(position).ok()?, left: size_bytes - position });
        }
        position -= size_bytes;
    }
    None
}

pub(super) fn total_bytes(filter: &RedisBloomFilter) -> u64 {
    filter.layers().iter().fold(0, |sum, layer| sum.saturating_add(layer.geometry().size_bytes))
}

/// Returns the begin of a chunk in the concatenated layers, and the place of its first byte.
///
/// # Errors
/// As RedisBloom distinguishes them: [`Error::WrongLength`] for an empty chunk and for more bytes than the iterator allows,
/// [`Error::BeyondEnd`], [`Error::TooLong`].
pub(super) fn offset_of(filter: &RedisBloomFilter, iterator: u64, data: &[u8]) -> Result<(u64, ByteOffset), Error> {
    let length = data.len() as u64;
    if data.is_empty() || iterator < length {
        return Err(Error::WrongLength);
    }
    let begin = (iterator - length).checked_sub(HEADER).ok_or(Error::BeyondEnd)?;
    let offset = locate(filter, begin).ok_or(Error::BeyondEnd)?;
    if length > offset.left { Err(Error::TooLong) } else { Ok((begin, offset)) }
}

/// Overwrites a part of a complete filter with a chunk, as RedisBloom does for every chunk.
///
/// # Errors
/// For a chunk that does not fit the filter. Nothing has changed then.
pub fn overwrite(filter: &mut RedisBloomFilter, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
    if data.is_empty() {
        return Ok(Progress::Known);
    }
    let (_, offset) = offset_of(filter, iterator, data)?;
    let here = offset.bytes_mut(filter, data.len()).ok_or(Error::TooLong)?;
    if here == data {
        return Ok(Progress::Known);
    }
    here.copy_from_slice(data);
    Ok(Progress::Stored)
}

/// Accepts a chunk that the filter already has, which changes nothing. Later items may be in the bits as well.
///
/// # Errors
/// [`Error::Different`] for a chunk that the filter does not have.
pub fn is_duplicate_record(filter: &RedisBloomFilter, iterator: u64, data: &[u8]) -> Result<(), Error> {
    let (_, offset) = offset_of(filter, iterator, data)?;
    let here = filter.layers().get(offset.layer).and_then(|layer| layer.bytes().get(offset.begin..));
    let same = here.unwrap_or_default().iter().zip(data).all(|(here, came)| came & !here == 0);
    if same { Ok(()) } else { Err(Error::Different) }
}
