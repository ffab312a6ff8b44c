//! Dumps in RedisBloom's format: a header with iterator 1, then the concatenated cells of all layers in chunks of at most 16 MiB that do not
//! cross layers. RedisBloom dumps its Bloom filters and its cuckoo filters like that; they differ in the header. This file has everything
//! else: the records of a dump, and the receiving end.

use crate::cells::{copy_to_zeros, is_zero};
use crate::codec::chunks::{self, Ranges};
use crate::codec::{Error, Progress, Record, Sink, Source};
use crate::error;
use crate::host::Ceiling;
use crate::memory::try_copy;

/// The largest chunk, in bytes.
pub const CHUNK_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The iterator of a header.
pub const HEADER: u64 = 1;

/// A filter that is dumped in this format.
pub trait Chunked: Sized {
    /// The `kind` of an arriving filter in a snapshot, as `format/stored.rs` specifies.
    const KIND: u64;

    /// Returns the header.
    fn header(&self) -> Result<Vec<u8>, Error>;
    /// Creates a filter with the layers in a header, their cells all zero. Asks the ceiling for all of them before it allocates.
    fn with_header(header: &[u8], ceiling: &impl Ceiling) -> Result<Self, Error>;
    /// Whether a header describes a filter with these parameters and layers.
    fn has_header(&self, header: &[u8]) -> Result<bool, Error>;
    /// Whether a byte of a repeated chunk is in the byte of the filter, which may have later items.
    fn is_in(came: u8, here: u8) -> bool;
    /// Returns the cells of each layer, oldest first.
    fn cells(&self) -> impl Iterator<Item = &[u8]>;
    /// Returns the cells of a layer, to overwrite them.
    fn layer_bytes_mut(&mut self, layer: usize) -> Option<&mut [u8]>;
    /// Writes the cells of all layers to a snapshot, a chunk of zeros as an empty string.
    fn write_cells(&self, sink: &mut impl Sink);
    /// Returns a copy.
    fn try_copy(&self) -> Result<Self, error::Error>;
}

/// Returns the record after the one with this iterator, 0 for the first; `None` after the last one.
///
/// # Errors
/// [`Error::Filter`] if there is no memory for the header. Chunks borrow the filter's bytes.
pub fn next_record<F: Chunked>(filter: &F, iterator: u64) -> Result<Option<Record<'_>>, Error> {
    match iterator.checked_sub(HEADER) {
        None => Ok(Some((HEADER, filter.header()?.into()))),
        Some(begin) => Ok(chunk_from(filter, begin).map(|chunk| (iterator + chunk.len() as u64, chunk.into()))),
    }
}

/// Returns the cells from an offset in the concatenated layers to the end of that layer, at most one chunk.
fn chunk_from<F: Chunked>(filter: &F, begin: u64) -> Option<&[u8]> {
    let offset = locate(filter, begin)?;
    let cells = filter.cells().nth(offset.layer)?.get(offset.begin..)?;
    Some(cells.get(..CHUNK_BYTES_MAX).unwrap_or(cells))
}

/// Returns the records of a dump in order.
pub fn records<F: Chunked>(filter: &F) -> impl Iterator<Item = Result<Record<'_>, Error>> {
    let header = std::iter::once_with(|| Ok((HEADER, filter.header()?.into())));
    header.chain(chunks_between(filter, 0, u64::MAX).map(|(end, chunk)| Ok((HEADER + end, chunk.into()))))
}

/// A byte of the concatenated layers.
struct ByteOffset {
    layer: usize,
    /// The offset in the layer.
    begin: usize,
    /// The number of bytes from there to the end of the layer.
    left: u64,
}

impl ByteOffset {
    /// Returns `count` bytes of the filter from here on.
    fn bytes_mut<'a, F: Chunked>(&self, filter: &'a mut F, count: usize) -> Option<&'a mut [u8]> {
        filter.layer_bytes_mut(self.layer)?.get_mut(self.begin..)?.get_mut(..count)
    }
}

fn locate<F: Chunked>(filter: &F, mut position: u64) -> Option<ByteOffset> {
    for (layer, size_bytes) in filter.cells().map(|cells| cells.len() as u64).enumerate() {
        if position < size_bytes {
            return Some(ByteOffset { layer, begin: usize::try_from(position).ok()?, left: size_bytes - position });
        }
        position -= size_bytes;
    }
    None
}

fn total_bytes<F: Chunked>(filter: &F) -> u64 {
    filter.cells().fold(0, |sum, cells| sum.saturating_add(cells.len() as u64))
}

/// Returns the offset of a chunk in the concatenated layers, and the location of its first byte.
fn offset_of<F: Chunked>(filter: &F, iterator: u64, data: &[u8]) -> Result<(u64, ByteOffset), Error> {
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
/// If the chunk does not fit the filter, which is then unchanged.
pub fn overwrite<F: Chunked>(filter: &mut F, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
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

/// Accepts a chunk that the filter has, and changes nothing.
pub fn is_duplicate_record<F: Chunked>(filter: &F, iterator: u64, data: &[u8]) -> Result<(), Error> {
    let (_, offset) = offset_of(filter, iterator, data)?;
    let here = filter.cells().nth(offset.layer).and_then(|cells| cells.get(offset.begin..));
    let same = here.unwrap_or_default().iter().zip(data).all(|(here, came)| F::is_in(*came, *here));
    if same { Ok(()) } else { Err(Error::Different) }
}

// The receiving end of RedisBloom's dump: a filter whose chunks arrive one by one.
//
// RedisBloom accepts chunks in any order, and overwrites bytes that arrived before; its filter answers lookups as soon as the
// header has arrived. This crate accepts chunks from clients only in order, because a missing chunk would otherwise go
// unnoticed. It accepts every chunk that a primary accepted. The filter is complete when all bytes have arrived, in any order.

/// Replaces the number of arrived bytes if there are gaps.
const WITH_GAPS: u64 = u64::MAX;

/// A filter whose chunks have not all arrived.
#[derive(Debug, PartialEq)]
pub struct ChunkArrival<F> {
    filter: F,
    /// Kept, so that saving an incomplete filter allocates no memory.
    header: Box<[u8]>,
    came: Ranges,
}

impl<F: Chunked> ChunkArrival<F> {
    /// Begins with a header.
    ///
    /// # Errors
    /// [`Error::NotADump`] and others for bytes that are not a header; [`Error::Filter`] for a filter that cannot exist or
    /// exceeds the ceiling.
    pub fn begin(header: &[u8], ceiling: &impl Ceiling) -> Result<Self, Error> {
        let filter = F::with_header(header, ceiling)?;
        Ok(Self { header: filter.header()?.into_boxed_slice(), filter, came: Ranges::none()? })
    }

    /// Writes its snapshot, from `kind` on.
    pub(crate) fn write(&self, sink: &mut impl Sink) {
        sink.put_u64(F::KIND);
        sink.put_bytes(&self.header);
        if self.came.has_gaps() {
            sink.put_u64(WITH_GAPS);
            self.came.write(sink);
        } else {
            sink.put_u64(self.came.without_gap());
        }
        self.filter.write_cells(sink);
    }

    /// Reads what [`write`](Self::write) wrote after `kind`. Checks the ceiling for all of its memory before it allocates.
    pub(crate) fn read(source: &mut impl Source, ceiling: &impl Ceiling) -> Result<Self, Error> {
        let mut filter = F::with_header(source.bytes()?.as_ref(), ceiling)?;
        let came = match source.u64()? {
            WITH_GAPS => Some(Ranges::read(source)?).filter(Ranges::has_gaps).ok_or(Error::OutOfRange)?,
            arrived_bytes => Ranges::first(arrived_bytes)?,
        };
        let mut arrived_bytes = came.end();
        for layer in 0..filter.cells().count() {
            chunks::read_layer(filter.layer_bytes_mut(layer).unwrap_or_default(), &mut arrived_bytes, source)?;
        }
        Self::resume(filter, came)
    }

    fn resume(filter: F, came: Ranges) -> Result<Self, Error> {
        let total = total_bytes(&filter);
        if came.end() > total || came.without_gap() == total {
            return Err(Error::OutOfRange);
        }
        let mut gap_start = 0;
        for range in came.iter() {
            if !is_zero_between(&filter, gap_start, range.start) {
                return Err(Error::OutOfRange);
            }
            gap_start = range.end;
        }
        Ok(Self { header: filter.header()?.into_boxed_slice(), filter, came })
    }

    /// Accepts a client's record. The header and every chunk that has arrived may be repeated with the same bytes.
    ///
    /// # Errors
    /// If the record is out of order or has the wrong length. The filter is then unchanged.
    pub fn accept(&mut self, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
        if iterator == HEADER {
            return self.accept_header(data);
        }
        let (begin, offset) = offset_of(&self.filter, iterator, data)?;
        let arrived_bytes = self.came.without_gap();
        if begin > arrived_bytes {
            return Err(Error::Gap { arrived_bytes });
        }
        let range = begin..begin + data.len() as u64;
        let here = offset.bytes_mut(&mut self.filter, data.len()).ok_or(Error::TooLong)?;
        let mut known_bytes = 0;
        for known in self.came.within(&range) {
            let place = index(known.start - begin)..index(known.end - begin);
            if data.get(place.clone()) != here.get(place) {
                return Err(Error::Different);
            }
            known_bytes += known.end - known.start;
        }
        if known_bytes == data.len() as u64 {
            return Ok(Progress::Known);
        }
        self.came.make_room_for(&range)?;
        // Missing chunks are zero, and the rest is equal.
        copy_to_zeros(data, here);
        self.came.add(range);
        Ok(self.progress())
    }

    /// Accepts a record that a primary accepted: chunks in any order, and repeated with other bytes.
    ///
    /// # Errors
    /// If the record does not fit the filter, which is then unchanged.
    pub fn accept_replicated(&mut self, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
        if data.is_empty() {
            return Ok(Progress::Known);
        }
        if iterator == HEADER {
            return self.accept_header(data);
        }
        let (begin, offset) = offset_of(&self.filter, iterator, data)?;
        let range = begin..begin + data.len() as u64;
        let here = offset.bytes_mut(&mut self.filter, data.len()).ok_or(Error::TooLong)?;
        self.came.make_room_for(&range)?;
        here.copy_from_slice(data);
        self.came.add(range);
        Ok(self.progress())
    }

    fn accept_header(&self, header: &[u8]) -> Result<Progress, Error> {
        if self.filter.has_header(header)? { Ok(Progress::Known) } else { Err(Error::Different) }
    }

    fn progress(&self) -> Progress {
        if self.came.without_gap() == total_bytes(&self.filter) { Progress::Complete } else { Progress::Stored }
    }

    /// Returns the filter with the chunks that have arrived so far.
    pub const fn filter(&self) -> &F {
        &self.filter
    }

    /// Returns the header of the incomplete filter.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Returns the filter after the last chunk.
    #[must_use]
    pub fn into_filter(self) -> F {
        self.filter
    }

    /// The number of bytes of the concatenated layers that have arrived before the first gap.
    pub fn arrived_bytes(&self) -> u64 {
        self.came.without_gap()
    }

    /// The number of bytes requested from the allocator in addition to the filter's.
    pub(crate) fn own_bytes(&self) -> u64 {
        self.header.len() as u64 + self.came.allocated_bytes()
    }

    /// Returns records of everything that has arrived.
    pub fn records(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let chunks = self.came.iter().flat_map(|range| chunks_between(&self.filter, range.start, range.end));
        std::iter::once((HEADER, self.header())).chain(chunks.map(|(end, chunk)| (HEADER + end, chunk)))
    }

    /// Returns a copy with the same fields and bits.
    pub fn try_clone(&self) -> Result<Self, error::Error> {
        let (header, came) = (try_copy(&self.header)?, self.came.try_clone()?);
        Ok(Self { filter: self.filter.try_copy()?, header, came })
    }
}

/// Converts the offset of a byte to an index.
fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Returns the bytes of all layers from `start` to `end`, in chunks that do not cross layers, each with its end.
fn chunks_between<F: Chunked>(filter: &F, start: u64, end: u64) -> impl Iterator<Item = (u64, &[u8])> {
    let mut offset = 0;
    filter.cells().flat_map(move |cells| {
        let [from, to] = [start, end].map(|position| index(position.saturating_sub(offset)).min(cells.len()));
        let mut chunk_end = offset + from as u64;
        offset += cells.len() as u64;
        cells.get(from..to).unwrap_or_default().chunks(CHUNK_BYTES_MAX).map(move |chunk| {
            chunk_end += chunk.len() as u64;
            (chunk_end, chunk)
        })
    })
}

fn is_zero_between<F: Chunked>(filter: &F, start: u64, end: u64) -> bool {
    chunks_between(filter, start, end).all(|(_, chunk)| is_zero(chunk))
}
