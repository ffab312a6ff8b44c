//! A filter as a stream of records, for BF.SCANDUMP, BF.LOADCHUNK and the rewriting of the AOF: a header, then the bits
//! in chunks, each small enough for a client's buffer and with a checksum of its own.
//!
//! ```text
//! header  8 bytes magic | the fields of the stored layout from `version` to the last layer, 8 bytes each | u32 checksum
//! chunk   u8 tag | u32 checksum | tags 2 and 3: u64 items | tags 1 and 3: the bits
//! ```
//! All little-endian. Tag 0 stands for zeros, tag 1 for bits. Tags 2 and 3 are the same, of the newest layer in the dump: it
//! may have taken items since the dump began, whose bits are in the chunk, and the number is that of all its items now.
//!
//! The checksum is CRC-32 (IEEE): the header's of everything before it; a chunk's of the checksum that the header has with 0
//! for the items of its layers, of its iterator as u64, its tag and what follows. So a chunk of another filter is noticed. A
//! chunk covers 1 MiB of a layer, the last one of a layer what is left.
//!
//! A record travels with an iterator, below 2^53, so that every client's numbers hold it:
//! ```text
//! 14 bits generation of the filter | 12 bits layers in the dump - 1 | 27 bits record: 1 the header, 2, 3, ... the chunks
//! ```
//! The generation tells when a key was replaced between two chunks. The layers tell where the dump ends when the filter
//! has grown meanwhile: layers come after the others, so the chunks before stay what they are.

use super::description::{self, Layers};
use super::{BloomFilter, NativeSpec};
use crate::cells::is_zero;
use crate::format::{ByteSink, ByteSource, CHUNK_BYTES, Error, Sink, Source};
use crate::geometry::{LayerDescription, Paged};
use crate::memory::reserve;
use crate::shape::{LAYERS_MAX, Layer};

/// What every header begins with. As RedisBloom's header it would speak of 7 * 10^18 items.
const MAGIC: [u8; 8] = *b"\xb1oomgate";
const VERSION: u64 = 1;
const TAG_ZEROS: u8 = 0;
const TAG_BITS: u8 = 1;
/// Added to a tag where the number of the layer's items stands before the bits.
const TAG_COUNTED: u8 = 2;
/// The record that is the header; the chunks follow.
pub(super) const HEADER: u64 = 1;
/// Generations are below this.
pub const GENERATIONS: u16 = 1 << 14;

const RECORD_BITS: u32 = 27;
const LAYERS_BITS: u32 = 12;
const _: () = assert!(LAYERS_MAX <= 1 << LAYERS_BITS);

/// Which dump a record belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) generation: u16,
    /// The layers that the filter had when the dump began, 1 to 4096.
    pub(super) layers: usize,
}

impl Stream {
    pub(super) fn of(filter: &BloomFilter, generation: u16) -> Self {
        Self { generation: generation % GENERATIONS, layers: filter.layers().len() }
    }

    pub(super) fn iterator(self, record: u64) -> u64 {
        let layers = self.layers.saturating_sub(1) as u64;
        ((u64::from(self.generation) << LAYERS_BITS) | layers) << RECORD_BITS | record
    }

    /// An iterator's stream and record.
    pub(super) fn parse(iterator: u64) -> Result<(Self, u64), Error> {
        let generation = u16::try_from(iterator >> (RECORD_BITS + LAYERS_BITS)).map_err(|_| Error::OutOfRange)?;
        let layers = (iterator >> RECORD_BITS) & ((1 << LAYERS_BITS) - 1);
        let layers = usize::try_from(layers).map_err(|_| Error::OutOfRange)? + 1;
        let record = iterator & ((1 << RECORD_BITS) - 1);
        if generation >= GENERATIONS || record < HEADER {
            return Err(Error::OutOfRange);
        }
        Ok((Self { generation, layers }, record))
    }

    /// The layers of a filter that are in the dump; an error where it is not a dump of this filter.
    pub(super) fn layers_of(self, filter: &BloomFilter, generation: u16) -> Result<&[Layer<Paged>], Error> {
        let layers = filter.layers().get(..self.layers);
        layers.filter(|_| self.generation == generation).ok_or(Error::WrongGeneration)
    }
}

/// Whether the data of a record is a header of ours.
#[must_use]
pub fn is_header(data: &[u8]) -> bool {
    data.starts_with(&MAGIC)
}

/// The first record of a dump, the header: its iterator and its data. `generation` is the filter's, below
/// [`GENERATIONS`].
///
/// # Errors
/// [`Error::Filter`] where there is no memory for the record.
pub fn first_record(filter: &BloomFilter, generation: u16) -> Result<(u64, Vec<u8>), Error> {
    Ok((Stream::of(filter, generation).iterator(HEADER), encode_header(filter)?))
}

/// The record after the one with this iterator, its iterator and its data; nothing after the last one. The filter may
/// have taken items and grown since the dump began: what was in then is in the dump. Of what came since, a part is, and is
/// counted.
///
/// # Errors
/// [`Error::OutOfRange`] for what is no iterator of ours; [`Error::WrongGeneration`] for one of another filter;
/// [`Error::Filter`] where there is no memory for the record.
pub fn next_record(filter: &BloomFilter, generation: u16, iterator: u64) -> Result<Option<(u64, Vec<u8>)>, Error> {
    let (stream, record) = Stream::parse(iterator)?;
    if stream.generation == 0 && generation != 0 {
        // No filter has this one by itself: the iterator was never handed out.
        return Err(Error::OutOfRange);
    }
    let layers = stream.layers_of(filter, generation)?;
    let Some(chunk) = chunk_range(layers, record - HEADER) else { return Ok(None) };
    let Some(layer) = layers.get(chunk.layer) else { return Ok(None) };
    let bits = layer.bytes().get(chunk.bytes).unwrap_or_default();
    let items = (chunk.layer + 1 == layers.len()).then(|| layer.items());
    let iterator = stream.iterator(record + 1);
    Ok(Some((iterator, encode_chunk(identity(filter, stream), iterator, items, bits)?)))
}

/// The records of a dump, one after another. An error is the last.
pub fn records(filter: &BloomFilter, generation: u16) -> impl Iterator<Item = Result<(u64, Vec<u8>), Error>> {
    std::iter::successors(Some(first_record(filter, generation)), move |before| {
        let (iterator, _) = before.as_ref().ok()?;
        next_record(filter, generation, *iterator).transpose()
    })
}

/// Where a chunk lies: the layer and the range of its bytes.
pub(super) struct ChunkRange {
    pub(super) layer: usize,
    pub(super) bytes: std::ops::Range<usize>,
}

pub(super) fn chunk_range(layers: &[Layer<Paged>], mut number: u64) -> Option<ChunkRange> {
    for (index, layer) in layers.iter().enumerate() {
        let size = layer.bytes().len();
        let chunks = size.div_ceil(CHUNK_BYTES) as u64;
        if number < chunks {
            let begin = usize::try_from(number).ok()?.checked_mul(CHUNK_BYTES)?;
            return Some(ChunkRange { layer: index, bytes: begin..size.min(begin + CHUNK_BYTES) });
        }
        number -= chunks;
    }
    None
}

/// The number of bytes of all layers before a chunk.
pub(super) fn bytes_before(layers: &[Layer<Paged>], number: u64) -> u64 {
    let Some(chunk) = chunk_range(layers, number) else { return u64::MAX };
    let before = layers.iter().take(chunk.layer).map(|layer| layer.bytes().len() as u64);
    before.sum::<u64>().saturating_add(chunk.bytes.start as u64)
}

pub(super) fn chunks_in(layers: &[Layer<Paged>]) -> u64 {
    layers.iter().map(|layer| layer.bytes().len().div_ceil(CHUNK_BYTES) as u64).sum()
}

fn encode_header(filter: &BloomFilter) -> Result<Vec<u8>, Error> {
    /// Of every header, and of every layer in one.
    const FRONT_BYTES: usize = 9 * 8 + 4;
    const LAYER_BYTES: usize = 6 * 8;
    let mut sink = ByteSink(Vec::new());
    reserve(&mut sink.0, FRONT_BYTES + filter.layers().len() * LAYER_BYTES)?;
    sink.0.extend_from_slice(&MAGIC);
    sink.put_u64(VERSION);
    description::write(filter, filter.layers().iter().map(Layer::description), &mut sink);
    let checksum = crc32fast::hash(&sink.0);
    sink.0.extend_from_slice(&checksum.to_le_bytes());
    Ok(sink.0)
}

pub(super) fn decode_header(data: &[u8]) -> Result<(NativeSpec, Layers), Error> {
    let (fields, checksum) = data.split_last_chunk().ok_or(Error::NotADump)?;
    let mut source = ByteSource(fields.strip_prefix(&MAGIC).ok_or(Error::NotADump)?);
    if crc32fast::hash(fields) != u32::from_le_bytes(*checksum) {
        return Err(Error::WrongChecksum);
    }
    let version = source.u64()?;
    if version != VERSION {
        return Err(Error::UnknownVersion(version));
    }
    let description = description::read(&mut source)?;
    if source.0.is_empty() { Ok(description) } else { Err(Error::Overlong) }
}

/// What tells a filter's chunks from another's: everything about it, as it was when the dump began, that does not change.
pub(super) fn identity(filter: &BloomFilter, stream: Stream) -> u32 {
    /// The checksum of what is written to it.
    struct Checksum(crc32fast::Hasher);
    impl Sink for Checksum {
        fn put_u64(&mut self, number: u64) {
            self.0.update(&number.to_le_bytes());
        }
        fn put_f64(&mut self, number: f64) {
            self.put_u64(number.to_bits());
        }
        fn put_bytes(&mut self, bytes: &[u8]) {
            self.put_u64(bytes.len() as u64);
            self.0.update(bytes);
        }
    }
    let layers = filter.layers().iter().take(stream.layers);
    let mut checksum = Checksum(crc32fast::Hasher::new());
    checksum.0.update(&MAGIC);
    checksum.put_u64(VERSION);
    let layers = layers.map(|layer| LayerDescription { items: 0, ..layer.description() });
    description::write(filter, layers, &mut checksum);
    checksum.0.finalize()
}

fn chunk_checksum(identity: u32, iterator: u64, tag: u8, items: &[u8], bits: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&identity.to_le_bytes());
    hasher.update(&iterator.to_le_bytes());
    hasher.update(&[tag]);
    hasher.update(items);
    hasher.update(bits);
    hasher.finalize()
}

fn encode_chunk(identity: u32, iterator: u64, items: Option<u64>, bits: &[u8]) -> Result<Vec<u8>, Error> {
    let (tag, bits) = if is_zero(bits) { (TAG_ZEROS, &[][..]) } else { (TAG_BITS, bits) };
    let tag = tag | if items.is_some() { TAG_COUNTED } else { 0 };
    let items = items.map(u64::to_le_bytes);
    let items = items.as_ref().map_or(&[][..], |bytes| &bytes[..]);
    let mut data = Vec::new();
    reserve(&mut data, 5 + items.len() + bits.len())?;
    data.push(tag);
    data.extend_from_slice(&chunk_checksum(identity, iterator, tag, items, bits).to_le_bytes());
    data.extend_from_slice(items);
    data.extend_from_slice(bits);
    Ok(data)
}

/// What a chunk says.
pub(super) struct Chunk<'a> {
    /// How many items its layer had when it was written, where that may be more than the header says.
    pub(super) items: Option<u64>,
    /// Nothing where all bits are zero.
    pub(super) bits: Option<&'a [u8]>,
}

/// A chunk for a range of `length` bytes.
pub(super) fn decode_chunk(identity: u32, iterator: u64, data: &[u8], length: usize) -> Result<Chunk<'_>, Error> {
    let (tag, rest) = data.split_first().ok_or(Error::Truncated)?;
    let (checksum, mut bits) = rest.split_first_chunk().ok_or(Error::Truncated)?;
    if chunk_checksum(identity, iterator, *tag, &[], bits) != u32::from_le_bytes(*checksum) {
        return Err(Error::WrongChecksum);
    }
    let mut items = None;
    if tag & TAG_COUNTED != 0 {
        let (number, after) = bits.split_first_chunk().ok_or(Error::Truncated)?;
        (items, bits) = (Some(u64::from_le_bytes(*number)), after);
    }
    match tag & !TAG_COUNTED {
        TAG_ZEROS if bits.is_empty() => Ok(Chunk { items, bits: None }),
        TAG_BITS if bits.len() == length => Ok(Chunk { items, bits: Some(bits) }),
        TAG_ZEROS | TAG_BITS => Err(Error::WrongLength),
        _ => Err(Error::OutOfRange),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scaling, Unlimited};

    #[test]
    fn a_large_empty_filter_is_a_few_bytes() {
        let filter = BloomFilter::new(0.01, 100_000_000, Scaling::Fixed, 7, &Unlimited).unwrap();
        let bytes: usize = records(&filter, 0).map(|record| record.unwrap().1.len()).sum();
        assert!(bytes < 2000, "{bytes}");
    }
}
