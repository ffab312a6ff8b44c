//! The other end of a dump of RedisBloom's: a filter whose records come one by one.

use super::RedisBloomFilter;
use super::dump::{HEADER, chunk_from, decode_header, encode_header, offset_of, total_bytes};
use crate::ceiling::Ceiling;
use crate::error;
use crate::format::{Error, Progress, Sink, Source, chunks};
use crate::memory::try_copy;
use crate::shape::Layer;

/// A filter of RedisBloom's layout whose chunks have not all arrived.
#[derive(Debug, PartialEq)]
pub struct RedisBloomArrival {
    filter: RedisBloomFilter,
    /// Kept, so that to save what has come takes no memory.
    header: Box<[u8]>,
    arrived_bytes: u64,
}

impl RedisBloomArrival {
    /// Begins with a header.
    ///
    /// # Errors
    /// [`Error::NotADump`] and the like for what is no header; [`Error::Filter`] for a filter that cannot be or does not
    /// fit under the ceiling.
    pub fn begin(header: &[u8], ceiling: &impl Ceiling) -> Result<Self, Error> {
        let (rules, layers) = decode_header(header)?;
        let filter = RedisBloomFilter::with_empty_layers(rules, layers.iter().copied(), ceiling)?;
        Ok(Self { header: encode_header(&filter)?.into_boxed_slice(), filter, arrived_bytes: 0 })
    }

    /// What `kind` says of it in a snapshot, which `native/snapshot.rs` draws.
    pub(crate) const KIND: u64 = 3;

    /// Writes what a snapshot holds of it, from `kind` on.
    pub(crate) fn write(&self, sink: &mut impl Sink) {
        sink.put_u64(Self::KIND);
        sink.put_bytes(&self.header);
        sink.put_u64(self.arrived_bytes);
        chunks::write(&self.filter, sink);
    }

    /// Reads what [`write`](Self::write) wrote after `kind`. The ceiling is asked for the whole of its memory before any is allocated.
    ///
    /// # Errors
    /// For bytes that it cannot have written, and where the ceiling or the allocator refuses.
    pub(crate) fn read(source: &mut impl Source, ceiling: &impl Ceiling) -> Result<Self, Error> {
        let (rules, layers) = decode_header(source.bytes()?.as_ref())?;
        let arrived_bytes = source.u64()?;
        let mut filter = RedisBloomFilter::with_empty_layers(rules, layers.iter().copied(), ceiling)?;
        chunks::read(&mut filter, arrived_bytes, source)?;
        Self::resume(filter, arrived_bytes)
    }

    fn resume(filter: RedisBloomFilter, arrived_bytes: u64) -> Result<Self, Error> {
        if arrived_bytes >= total_bytes(&filter) {
            return Err(Error::OutOfRange);
        }
        Ok(Self { header: encode_header(&filter)?.into_boxed_slice(), filter, arrived_bytes })
    }

    /// Takes a record. The header may come again, and every chunk that came already, with the same bytes.
    ///
    /// # Errors
    /// For a record out of order or of the wrong length. Nothing has changed then.
    pub fn accept(&mut self, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
        if iterator == HEADER {
            let (rules, layers) = decode_header(data)?;
            let own = self.filter.layers().iter().map(Layer::description);
            let same = rules == *self.filter.rules() && own.eq(layers);
            return if same { Ok(Progress::Known) } else { Err(Error::Different) };
        }
        let (begin, offset) = offset_of(&self.filter, iterator, data)?;
        let known = self.arrived_bytes.checked_sub(begin).ok_or(Error::Gap { arrived_bytes: self.arrived_bytes })?;
        let known = usize::try_from(known).unwrap_or(usize::MAX).min(data.len());
        let bytes = self.filter.layer_bytes_mut(offset.layer).and_then(|bytes| bytes.get_mut(offset.begin..));
        let here = bytes.and_then(|bytes| bytes.get_mut(..data.len())).ok_or(Error::TooLong)?;
        let (came, new) = data.split_at(known);
        let (before, target) = here.split_at_mut(known);
        if came != before {
            return Err(Error::Different);
        }
        if new.is_empty() {
            return Ok(Progress::Known);
        }
        target.copy_from_slice(new);
        self.arrived_bytes += new.len() as u64;
        Ok(if self.arrived_bytes == total_bytes(&self.filter) { Progress::Complete } else { Progress::Stored })
    }

    /// The filter, as far as it has arrived.
    #[must_use]
    pub const fn filter(&self) -> &RedisBloomFilter {
        &self.filter
    }

    /// The header of the filter that is arriving.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// The filter, when the last chunk has come.
    #[must_use]
    pub fn into_filter(self) -> RedisBloomFilter {
        self.filter
    }

    /// The number of bytes of all layers that have come.
    #[must_use]
    pub const fn arrived_bytes(&self) -> u64 {
        self.arrived_bytes
    }

    /// Records of what has come, one after another.
    pub fn records(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut begin = 0;
        let chunks = std::iter::from_fn(move || {
            let left = usize::try_from(self.arrived_bytes - begin).unwrap_or(usize::MAX);
            let chunk = chunk_from(&self.filter, begin).filter(|_| left > 0)?;
            let chunk = chunk.get(..left).unwrap_or(chunk);
            begin += chunk.len() as u64;
            Some((HEADER + begin, chunk))
        });
        std::iter::once((HEADER, self.header())).chain(chunks)
    }

    /// A value with the same fields and bits.
    ///
    /// # Errors
    /// [`error::Error::OutOfMemory`] where the allocator refuses.
    pub fn try_clone(&self) -> Result<Self, error::Error> {
        let header = try_copy(&self.header)?;
        Ok(Self { filter: self.filter.try_clone()?, header, arrived_bytes: self.arrived_bytes })
    }
}
