//! The receiving end of RedisBloom's dump: a filter whose chunks arrive one by one.
//!
//! RedisBloom accepts chunks in any order, and overwrites bytes that arrived before; its filter answers from the header on.
//! From clients this crate accepts chunks in order only, because a missing chunk would go unnoticed otherwise. From a primary
//! it accepts what the primary accepted. The filter is complete when all bytes have arrived, in whatever order.

use super::RedisBloomFilter;
use super::dump::{HEADER, chunk_from, decode_header, encode_header, offset_of, total_bytes};
use crate::ceiling::Ceiling;
use crate::cells::is_zero;
use crate::chain::Layer;
use crate::codec::ranges::Ranges;
use crate::codec::{Error, Progress, Sink, Source, chunks};
use crate::error;
use crate::memory::try_copy;

/// Stands for the number of arrived bytes if there are gaps.
const WITH_GAPS: u64 = u64::MAX;

/// A filter of RedisBloom's layout whose chunks have not all arrived.
#[derive(Debug, PartialEq)]
pub struct RedisBloomArrival {
    filter: RedisBloomFilter,
    /// Kept, so that saving an incomplete filter takes no memory.
    header: Box<[u8]>,
    came: Ranges,
}

impl RedisBloomArrival {
    /// Begins with a header.
    ///
    /// # Errors
    /// [`Error::NotADump`] and others for bytes that are no header; [`Error::Filter`] for a filter that cannot exist or does
    /// not fit under the ceiling.
    pub fn begin(header: &[u8], ceiling: &impl Ceiling) -> Result<Self, Error> {
        let (rules, layers) = decode_header(header)?;
        let filter = RedisBloomFilter::with_empty_layers(rules, layers.iter().copied(), ceiling)?;
        Ok(Self { header: encode_header(&filter)?.into_boxed_slice(), filter, came: Ranges::none()? })
    }

    /// Its `kind` in a snapshot, as `format/stored.rs` specifies.
    pub(crate) const KIND: u64 = 3;

    /// Writes its snapshot, from `kind` on.
    pub(crate) fn write(&self, sink: &mut impl Sink) {
        sink.put_u64(Self::KIND);
        sink.put_bytes(&self.header);
        if self.came.has_gaps() {
            sink.put_u64(WITH_GAPS);
            self.came.write(sink);
        } else {
            sink.put_u64(self.came.without_gap());
        }
        chunks::write(&self.filter, sink);
    }

    /// Reads what [`write`](Self::write) wrote after `kind`. Asks the ceiling for all of its memory before any is allocated.
    ///
    /// # Errors
    /// For bytes that it cannot have written, and if the ceiling or the allocator refuses.
    pub(crate) fn read(source: &mut impl Source, ceiling: &impl Ceiling) -> Result<Self, Error> {
        let (rules, layers) = decode_header(source.bytes()?.as_ref())?;
        let came = match source.u64()? {
            WITH_GAPS => Some(Ranges::read(source)?).filter(Ranges::has_gaps).ok_or(Error::OutOfRange)?,
            arrived_bytes => Ranges::first(arrived_bytes)?,
        };
        let mut filter = RedisBloomFilter::with_empty_layers(rules, layers.iter().copied(), ceiling)?;
        chunks::read(&mut filter, came.end(), source)?;
        Self::resume(filter, came)
    }

    fn resume(filter: RedisBloomFilter, came: Ranges) -> Result<Self, Error> {
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
        Ok(Self { header: encode_header(&filter)?.into_boxed_slice(), filter, came })
    }

    /// Accepts a client's record. The header and every chunk that has arrived may be repeated with the same bytes.
    ///
    /// # Errors
    /// For a record out of order or of the wrong length. Nothing has changed then.
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
        for part in self.came.within(&range) {
            let place = index(part.start - begin)..index(part.end - begin);
            if data.get(place.clone()) != here.get(place) {
                return Err(Error::Different);
            }
            known_bytes += part.end - part.start;
        }
        if known_bytes == data.len() as u64 {
            return Ok(Progress::Known);
        }
        self.came.make_room_for(&range)?;
        here.copy_from_slice(data);
        self.came.add(range);
        Ok(self.progress())
    }

    /// Accepts a record that a primary accepted: chunks in any order, and repeated with other bytes.
    ///
    /// # Errors
    /// For a record that does not fit the filter. Nothing has changed then.
    pub fn obey(&mut self, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
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
        let (rules, layers) = decode_header(header)?;
        let own = self.filter.layers().iter().map(Layer::description);
        let same = rules == *self.filter.rules() && own.eq(layers);
        if same { Ok(Progress::Known) } else { Err(Error::Different) }
    }

    fn progress(&self) -> Progress {
        if self.came.without_gap() == total_bytes(&self.filter) { Progress::Complete } else { Progress::Stored }
    }

    /// The filter as far as it has arrived.
    #[must_use]
    pub const fn filter(&self) -> &RedisBloomFilter {
        &self.filter
    }

    /// The header of the filter that is arriving.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Returns the filter after the last chunk.
    #[must_use]
    pub fn into_filter(self) -> RedisBloomFilter {
        self.filter
    }

    /// The number of bytes of all layers, from the first on, that have arrived without a gap.
    #[must_use]
    pub fn arrived_bytes(&self) -> u64 {
        self.came.without_gap()
    }

    /// The number of bytes requested from the allocator in addition to the filter's.
    pub(crate) fn own_bytes(&self) -> u64 {
        self.header.len() as u64 + self.came.allocated_bytes()
    }

    /// Returns records of everything that has arrived.
    pub fn records(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let chunks = self.came.iter().flat_map(|range| pieces(&self.filter, range.start, range.end));
        std::iter::once((HEADER, self.header())).chain(chunks.map(|(end, chunk)| (HEADER + end, chunk)))
    }

    /// Returns a copy with the same fields and bits.
    ///
    /// # Errors
    /// [`error::Error::OutOfMemory`] if the allocator refuses.
    pub fn try_clone(&self) -> Result<Self, error::Error> {
        let (header, came) = (try_copy(&self.header)?, self.came.try_clone()?);
        Ok(Self { filter: self.filter.try_clone()?, header, came })
    }
}

/// Converts the offset of a byte to an index.
fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Returns the bytes of all layers from `start` to `end`, in pieces that do not cross layers, each with its end.
fn pieces(filter: &RedisBloomFilter, start: u64, end: u64) -> impl Iterator<Item = (u64, &[u8])> {
    let mut begin = start;
    std::iter::from_fn(move || {
        let left = index(end.saturating_sub(begin));
        let piece = chunk_from(filter, begin).filter(|_| left > 0)?;
        let piece = piece.get(..left).unwrap_or(piece);
        begin += piece.len() as u64;
        Some((begin, piece))
    })
}

fn is_zero_between(filter: &RedisBloomFilter, start: u64, end: u64) -> bool {
    pieces(filter, start, end).all(|(_, piece)| is_zero(piece))
}
