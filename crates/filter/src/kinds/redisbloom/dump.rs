//! The dump of RedisBloom's filters, for BF.SCANDUMP, BF.LOADCHUNK and the rewriting of the AOF, as RedisBloom has it: a
//! header with iterator 1, then the bits of all layers one after another in chunks of at most 16 MiB.
//!
//! ```text
//! header   u64 size | u32 layers | u32 options | u32 growth
//! layer    u64 bytes | u64 bits | u64 size | f64 error | f64 bits per entry | u32 hashes | u64 entries | u8 n2
//! ```
//! Packed, little-endian. A version of 2018 had no growth, and 32 bits for entries. A chunk's iterator is 1 and the number of
//! bytes up to its end, so a chunk that came with `iterator` begins at `iterator - 1 - length`. A chunk has no checksum: what
//! can be checked is that it does not go beyond its layer.

use std::borrow::Cow;

use super::snapshot::{modulus, spelling};
use super::{DoubleHash, RedisBloom, RedisBloomFilter};
use crate::codec::{Error, Packed, Progress};
use crate::geometry::{Flat, LayerDescription};
use crate::memory::{push, reserve};

/// The largest chunk, in bytes.
pub const CHUNK_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The iterator of a header.
pub const HEADER: u64 = 1;

const FRONT_BYTES: usize = 20;
const LAYER_BYTES: usize = 53;
const FRONT_BYTES_2018: usize = 16;
const LAYER_BYTES_2018: usize = 49;

/// A filter's layers as a header describes them.
pub type Layers = Vec<LayerDescription<Flat<DoubleHash>>>;

/// The header of a filter.
///
/// # Errors
/// [`Error::Filter`] where there is no memory for it.
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

/// The rules and the layers that a header speaks of. Whether a filter can be like that is for the filter to say.
///
/// # Errors
/// [`Error::NotADump`] for bytes of another length than a header has; [`Error::OutOfRange`]; [`Error::Filter`] where there
/// is no memory for what it says.
pub fn decode_header(header: &[u8]) -> Result<(RedisBloom, Layers), Error> {
    let mut fields = Packed(header);
    let _items = fields.u64()?;
    let count = fields.u32()?;
    let has_length = |front: usize, layer: usize| {
        usize::try_from(count).ok().and_then(|count| count.checked_mul(layer)?.checked_add(front)) == Some(header.len())
    };
    let of_2018 = has_length(FRONT_BYTES_2018, LAYER_BYTES_2018);
    if !(of_2018 || has_length(FRONT_BYTES, LAYER_BYTES)) {
        return Err(Error::NotADump);
    }
    let options = fields.u32()?;
    let rules = if of_2018 { RedisBloom::before_2_0(options) } else { RedisBloom::stored(options, fields.u32()?) };
    let mut layers = Vec::new();
    for _ in 0..count {
        let (size_bytes, bits, items) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (rate, bits_per_item) = (fields.f64()?, fields.f64()?);
        let hashes = fields.u32()?;
        let capacity = if of_2018 { fields.u32()?.into() } else { fields.u64()? };
        let modulus = modulus(bits, fields.u8()?.into())?;
        let geometry = Flat::new(size_bytes, modulus, hashes, bits_per_item);
        push(&mut layers, LayerDescription { rate, capacity, items, geometry })?;
    }
    Ok((rules, layers))
}

/// A record: its iterator and its data.
pub type Record<'a> = (u64, Cow<'a, [u8]>);

/// The record after the one with this iterator, 0 for the first; nothing after the last one.
///
/// # Errors
/// [`Error::Filter`] where there is no memory for the header. Chunks are the filter's own bytes.
pub fn next_record(filter: &RedisBloomFilter, iterator: u64) -> Result<Option<Record<'_>>, Error> {
    match iterator.checked_sub(HEADER) {
        None => Ok(Some((HEADER, encode_header(filter)?.into()))),
        Some(begin) => Ok(chunk_from(filter, begin).map(|chunk| (iterator + chunk.len() as u64, chunk.into()))),
    }
}

/// The bits from a byte of all layers on, to the end of the layer or of the largest chunk.
pub(super) fn chunk_from(filter: &RedisBloomFilter, begin: u64) -> Option<&[u8]> {
    let offset = locate(filter, begin)?;
    let bits = filter.layers().get(offset.layer)?.bytes().get(offset.begin..)?;
    Some(bits.get(..CHUNK_BYTES_MAX).unwrap_or(bits))
}

/// The records of a dump, one after another. An error is the last.
pub fn records(filter: &RedisBloomFilter) -> impl Iterator<Item = Result<Record<'_>, Error>> {
    std::iter::successors(next_record(filter, 0).transpose(), |before| {
        let (iterator, _) = before.as_ref().ok()?;
        next_record(filter, *iterator).transpose()
    })
}

/// A byte of all layers' bytes one after another.
pub(super) struct ByteOffset {
    layer: usize,
    /// Where it is in the layer.
    begin: usize,
    /// Number of bytes of the layer from there on.
    left: u64,
}

impl ByteOffset {
    /// As many bytes of the filter from here on.
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

/// Where a chunk begins in all bytes, and the offset of its first byte.
///
/// # Errors
/// As RedisBloom tells them apart: [`Error::WrongLength`] for nothing and for more bytes than the iterator says,
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

/// Takes a chunk into a filter that is whole, over what is there: what RedisBloom does whenever one comes.
///
/// # Errors
/// For a chunk that has no place in the filter. Nothing has changed then.
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

/// Accepts a chunk that a filter has, which changes nothing. Items that were added since may be in the bits as well.
///
/// # Errors
/// [`Error::Different`] for a chunk that the filter does not have.
pub fn is_duplicate_record(filter: &RedisBloomFilter, iterator: u64, data: &[u8]) -> Result<(), Error> {
    let (_, offset) = offset_of(filter, iterator, data)?;
    let here = filter.layers().get(offset.layer).and_then(|layer| layer.bytes().get(offset.begin..));
    let same = here.unwrap_or_default().iter().zip(data).all(|(here, came)| came & !here == 0);
    if same { Ok(()) } else { Err(Error::Different) }
}
