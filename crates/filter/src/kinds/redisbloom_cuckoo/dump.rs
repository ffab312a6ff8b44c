//! The formats of RedisBloom's cuckoo filters: the header of a dump, whose other records `kinds/chunked.rs` writes, and the snapshot.
//!
//! ```text
//! header   u64 items | u64 buckets of the first sub-filter | u64 deletes | u64 sub-filters | u16 bucket size | u16 iterations | u16 expansion
//! ```
//! Packed, little-endian: 38 bytes.
//!
//! Snapshot, RDB type `MBbloomCF`, encoding 4:
//! ```text
//! uint   sub-filters, buckets of the first, items, deletes, bucket size, iterations, expansion
//! for each sub-filter, oldest first:
//!   uint   buckets
//!   string the slots: buckets * bucket size bytes
//! ```
//! RedisBloom accepts numbers that its commands cannot give, and then answers wrongly or exits. Here they are refused, with two exceptions:
//! more items than slots are lowered to that number, and the growth is rounded up to a power of two, as CF.RESERVE rounds it. Any number of
//! deletes is possible: only a compaction resets it.

use super::{RedisBloomCuckooFilter, Shape, size_bytes};
use crate::cells::{is_zero, sparse};
use crate::codec::{ByteSource, CHUNK_BYTES, Error, Sink, Source};
use crate::error;
use crate::host::Ceiling;
use crate::kinds::chunked::Chunked;
use crate::memory::{push, reserve, rounding_bytes};

/// The encoding of a snapshot.
pub const ENCODING: u32 = 4;
/// The length of a header, in bytes.
pub const HEADER_BYTES: usize = 38;

/// The numbers that describe a filter.
struct Description {
    layers: u64,
    buckets: u64,
    items: u64,
    deletes: u64,
    shape: Shape,
}

impl Description {
    /// Returns a filter without sub-filters, and the number of those that it has, after a check of the numbers.
    fn start(&self, ceiling: &impl Ceiling) -> Result<(RedisBloomCuckooFilter, usize), Error> {
        let Self { layers, buckets, items, deletes, shape } = *self;
        let layers = usize::try_from(layers).ok().filter(|layers| (1..=super::LAYERS_MAX).contains(layers));
        let layers = layers.filter(|_| buckets.is_power_of_two()).ok_or(Error::OutOfRange)?;
        if layers > ceiling.layers_max() {
            return Err(error::Error::TooManyLayers.into());
        }
        let mut slots = 0u64;
        for bytes in (0..layers).map(|layer| shape.layer_bytes(buckets, layer)) {
            slots = bytes.and_then(|bytes| slots.checked_add(bytes)).ok_or(error::Error::SizeOverflow)?;
        }
        let items = items.min(slots);
        Ok((RedisBloomCuckooFilter { layers: Vec::new(), items, deletes, shape }, layers))
    }
}

/// Reads a header.
fn decode_header(header: &[u8]) -> Result<Description, Error> {
    let mut fields = ByteSource(header);
    let (items, buckets, deletes, layers) = (fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?);
    let [bucket_size, iterations, expansion] = [fields.u16()?, fields.u16()?, fields.u16()?];
    if !fields.0.is_empty() {
        return Err(Error::NotADump);
    }
    let shape = Shape::of(bucket_size.into(), iterations.into(), expansion.into()).ok_or(Error::OutOfRange)?;
    Ok(Description { layers, buckets, items, deletes, shape })
}

impl Chunked for RedisBloomCuckooFilter {
    const KIND: u64 = 11;

    fn header(&self) -> Result<Vec<u8>, Error> {
        let mut header = Vec::new();
        reserve(&mut header, HEADER_BYTES)?;
        let numbers = [self.items, self.buckets(), self.deletes, self.layers.len() as u64];
        numbers.iter().for_each(|number| header.extend_from_slice(&number.to_le_bytes()));
        let Shape { bucket_size, iterations, expansion } = self.shape;
        [bucket_size.into(), iterations, expansion]
            .iter()
            .for_each(|field| header.extend_from_slice(&field.to_le_bytes()));
        Ok(header)
    }

    fn with_header(header: &[u8], ceiling: &impl Ceiling) -> Result<Self, Error> {
        let description = decode_header(header)?;
        let (mut filter, layers) = description.start(ceiling)?;
        let sizes = || (0..layers).filter_map(|layer| description.shape.layer_bytes(description.buckets, layer));
        ceiling.allow_blocks(0, size_bytes(layers, sizes().sum()), rounding_bytes(sizes()))?;
        for bytes in sizes() {
            filter.push_zeros(bytes)?;
        }
        Ok(filter)
    }

    fn has_header(&self, header: &[u8]) -> Result<bool, Error> {
        let Description { layers, buckets, items, deletes, shape } = decode_header(header)?;
        let counts = [layers, buckets, items.min(self.slots()), deletes];
        Ok(shape == self.shape && counts == [self.layers.len() as u64, self.buckets(), self.items, self.deletes])
    }

    fn is_in(came: u8, here: u8) -> bool {
        came == here
    }

    fn cells(&self) -> impl Iterator<Item = &[u8]> {
        self.layers.iter().map(AsRef::as_ref)
    }

    fn layer_bytes_mut(&mut self, layer: usize) -> Option<&mut [u8]> {
        self.layers.get_mut(layer).map(AsMut::as_mut)
    }

    fn write_cells(&self, sink: &mut impl Sink) {
        let chunks = self.layers.iter().flat_map(|cells| cells.chunks(CHUNK_BYTES));
        chunks.for_each(|chunk| sink.put_bytes(if is_zero(chunk) { &[] } else { chunk }));
    }

    fn try_copy(&self) -> Result<Self, error::Error> {
        self.try_clone()
    }
}

/// Writes a filter.
pub fn write_snapshot(filter: &RedisBloomCuckooFilter, sink: &mut impl Sink) {
    let Shape { bucket_size, iterations, expansion } = filter.shape;
    let counts = [filter.layers.len() as u64, filter.buckets(), filter.items, filter.deletes];
    let shape = [bucket_size.into(), iterations.into(), expansion.into()];
    counts.into_iter().chain(shape).for_each(|number| sink.put_u64(number));
    for cells in &filter.layers {
        sink.put_u64((cells.len() / filter.shape.slots()) as u64);
        sink.put_bytes(cells);
    }
}

/// Reads a filter. Checks the ceiling for each sub-filter before its slots are read.
pub fn read_snapshot(source: &mut impl Source, ceiling: &impl Ceiling) -> Result<RedisBloomCuckooFilter, Error> {
    let (layers, buckets, items, deletes) = (source.u64()?, source.u64()?, source.u64()?, source.u64()?);
    let shape = Shape::of(source.u64()?, source.u64()?, source.u64()?).ok_or(Error::OutOfRange)?;
    let (mut filter, layers) = Description { layers, buckets, items, deletes, shape }.start(ceiling)?;
    for _ in 0..layers {
        let bytes = filter.check_layer(buckets, ceiling)?;
        if source.u64()?.checked_mul(shape.bucket_size.into()) != Some(bytes) {
            return Err(Error::OutOfRange);
        }
        let cells = sparse(source.owned_bytes()?);
        if cells.len() as u64 != bytes {
            return Err(Error::WrongLength);
        }
        push(&mut filter.layers, cells)?;
    }
    Ok(filter)
}
