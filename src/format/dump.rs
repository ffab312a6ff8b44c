//! A filter as a stream of records for BF.LOADCHUNK: what an AOF rewrite writes, one header and then the bits in
//! chunks, each small enough for a client's buffer and with a checksum of its own.
//!
//! ```text
//! header  8 bytes magic | the fields of the stored layout from `version` to the last layer, 8 bytes each | u32 checksum
//! chunk   u8 tag: 0 zeros, 1 bits | u32 checksum | tag 1: the bits
//! ```
//! All little-endian. The checksum is CRC-32 (IEEE): the header's of everything before it, a chunk's of its iterator as
//! u64, its tag and its bits. A chunk covers 1 MiB of a layer, the last one of a layer what is left.
//!
//! A record travels with an iterator: `generation * 2^32 + 1` for the header, then 2, 3, ... in place of 1. Below 2^53,
//! so that every client's numbers hold it.

use super::native::{self, CHUNK_BYTES};
use super::{ByteSink, ByteSource, Error, Sink, Source};
use crate::bloom::{self, BloomFilter, Ceiling, Description, Layer};

/// What every header begins with. As RedisBloom's header it would speak of 7 * 10^18 items.
const MAGIC: [u8; 8] = *b"\xb1oomgate";
const VERSION: u64 = 1;
const TAG_ZEROS: u8 = 0;
const TAG_BITS: u8 = 1;
/// The iterator of a header, without its generation; the first chunk has the next one.
const HEADER: u64 = 1;
/// Generations are below this, so that an iterator is below 2^53.
pub const GENERATIONS: u32 = 1 << 20;

/// Whether the data of a record with a header's iterator is one of ours.
#[must_use]
pub fn is_header(data: &[u8]) -> bool {
    data.starts_with(&MAGIC)
}

/// The iterator of record `number` (1: the header) of a dump.
const fn iterator(generation: u32, number: u64) -> u64 {
    ((generation as u64) << 32) | number
}

/// The header's record: its iterator and its data.
#[must_use]
pub fn header(filter: &BloomFilter, generation: u32) -> (u64, Vec<u8>) {
    (iterator(generation, HEADER), encode_header(&filter.description()))
}

/// Record `number` of the chunks of a filter, from 0 on: its iterator and its data. Nothing behind the last one.
#[must_use]
pub fn chunk(filter: &BloomFilter, generation: u32, number: u64) -> Option<(u64, Vec<u8>)> {
    let (layer, range) = place(filter.layers(), number)?;
    let bits = filter.layers().get(layer)?.bits().bytes().get(range)?;
    let iterator = iterator(generation, HEADER + 1 + number);
    let (tag, bits) = if native::is_zero(bits) { (TAG_ZEROS, &[][..]) } else { (TAG_BITS, bits) };
    let mut data = Vec::with_capacity(bits.len() + 5);
    data.push(tag);
    data.extend_from_slice(&chunk_checksum(iterator, tag, bits).to_le_bytes());
    data.extend_from_slice(bits);
    Some((iterator, data))
}

/// Where chunk `number` lies: the layer and the range of its bytes.
fn place(layers: &[Layer], mut number: u64) -> Option<(usize, std::ops::Range<usize>)> {
    for (index, layer) in layers.iter().enumerate() {
        let size = layer.bits().bytes().len();
        let chunks = size.div_ceil(CHUNK_BYTES) as u64;
        if number < chunks {
            let begin = usize::try_from(number).ok()?.checked_mul(CHUNK_BYTES)?;
            return Some((index, begin..size.min(begin + CHUNK_BYTES)));
        }
        number -= chunks;
    }
    None
}

fn chunks_in(layers: &[Layer]) -> u64 {
    layers.iter().map(|layer| layer.bits().bytes().len().div_ceil(CHUNK_BYTES) as u64).sum()
}

fn encode_header(description: &Description) -> Vec<u8> {
    let mut sink = ByteSink(MAGIC.to_vec());
    sink.put_u64(VERSION);
    native::write_description(description, &mut sink);
    let checksum = crc32fast::hash(&sink.0);
    sink.0.extend_from_slice(&checksum.to_le_bytes());
    sink.0
}

fn decode_header(data: &[u8]) -> Result<Description, Error> {
    let (fields, checksum) = data.split_last_chunk().ok_or(Error::NotADump)?;
    let mut source = ByteSource(fields.strip_prefix(&MAGIC).ok_or(Error::NotADump)?);
    if crc32fast::hash(fields) != u32::from_le_bytes(*checksum) {
        return Err(Error::WrongChecksum);
    }
    let version = source.u64()?;
    if version != VERSION {
        return Err(Error::UnknownVersion(version));
    }
    let description = native::read_description(&mut source)?;
    if source.0.is_empty() { Ok(description) } else { Err(Error::Overlong) }
}

fn chunk_checksum(iterator: u64, tag: u8, bits: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&iterator.to_le_bytes());
    hasher.update(&[tag]);
    hasher.update(bits);
    hasher.finalize()
}

/// What a chunk did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is stored; more are to come.
    Stored,
    /// It had come before, with the same bytes: nothing changed.
    Known,
    /// It was the last one: the filter is whole.
    Complete,
}

/// A filter whose chunks have not all arrived. It is saved, copied and replicated as what it is, and answers nothing.
#[derive(Debug, PartialEq)]
pub struct Arriving {
    filter: BloomFilter,
    generation: u32,
    next: u64,
}

impl Arriving {
    /// Begins with a header's record.
    ///
    /// # Errors
    /// [`Error::NotADump`] and the like for a record that is none; [`Error::Filter`] for a filter that cannot be or
    /// does not fit under the ceiling.
    pub fn begin(iterator: u64, header: &[u8], ceiling: &impl Ceiling) -> Result<Self, Error> {
        let (generation, HEADER) = split(iterator)? else { return Err(Error::NotADump) };
        let description = decode_header(header)?;
        Ok(Self { filter: BloomFilter::with_zero_bits(&description, ceiling)?, generation, next: 0 })
    }

    /// Goes on from what a snapshot holds.
    pub(super) fn resume(filter: BloomFilter, generation: u32, next: u64) -> Result<Self, Error> {
        if generation >= GENERATIONS || next >= chunks_in(filter.layers()) {
            return Err(Error::OutOfRange);
        }
        Ok(Self { filter, generation, next })
    }

    /// Takes a record. The header may come again, and every chunk that came already, with the same bytes.
    ///
    /// # Errors
    /// For a record of another dump, out of order, of the wrong length or with a wrong checksum. Nothing has changed
    /// then.
    pub fn accept(&mut self, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
        let (generation, record) = split(iterator)?;
        if generation != self.generation {
            return Err(Error::WrongGeneration);
        }
        if record == HEADER {
            let same = decode_header(data)? == self.filter.description();
            return if same { Ok(Progress::Known) } else { Err(Error::Different) };
        }
        let expected = self::iterator(self.generation, HEADER + 1 + self.next);
        let number = record.checked_sub(HEADER + 1).filter(|number| *number <= self.next);
        let number = number.ok_or(Error::WrongOrder { expected })?;

        let (tag, rest) = data.split_first().ok_or(Error::Truncated)?;
        let (checksum, bits) = rest.split_first_chunk().ok_or(Error::Truncated)?;
        if chunk_checksum(iterator, *tag, bits) != u32::from_le_bytes(*checksum) {
            return Err(Error::WrongChecksum);
        }
        let (layer, range) = place(self.filter.layers(), number).ok_or(Error::WrongOrder { expected })?;
        let place = self.filter.layer_bytes_mut(layer).and_then(|bytes| bytes.get_mut(range));
        let place = place.ok_or(Error::WrongLength)?;
        match *tag {
            TAG_ZEROS if bits.is_empty() => {}
            TAG_BITS if bits.len() == place.len() => {}
            TAG_ZEROS | TAG_BITS => return Err(Error::WrongLength),
            _ => return Err(Error::OutOfRange),
        }
        if number < self.next {
            let same = if *tag == TAG_ZEROS { native::is_zero(place) } else { place == bits };
            return if same { Ok(Progress::Known) } else { Err(Error::Different) };
        }
        if *tag == TAG_BITS {
            place.copy_from_slice(bits);
        }
        self.next += 1;
        Ok(if self.next == chunks_in(self.filter.layers()) { Progress::Complete } else { Progress::Stored })
    }

    /// The filter, as far as it has arrived.
    #[must_use]
    pub const fn filter(&self) -> &BloomFilter {
        &self.filter
    }

    /// The filter, when the last chunk has come.
    #[must_use]
    pub fn into_filter(self) -> BloomFilter {
        self.filter
    }

    /// The number that all records of one dump share.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// The number of the chunk that is to come, from 0 on.
    #[must_use]
    pub const fn next_chunk(&self) -> u64 {
        self.next
    }

    /// A value with the same fields and bits.
    ///
    /// # Errors
    /// [`bloom::Error::OutOfMemory`] where the allocator refuses.
    pub fn try_clone(&self) -> Result<Self, bloom::Error> {
        Ok(Self { filter: self.filter.try_clone()?, generation: self.generation, next: self.next })
    }
}

/// An iterator's generation and its number inside the dump.
fn split(iterator: u64) -> Result<(u32, u64), Error> {
    let generation = u32::try_from(iterator >> 32).ok().filter(|generation| *generation < GENERATIONS);
    let number = iterator & u64::from(u32::MAX);
    Ok((generation.ok_or(Error::OutOfRange)?, number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bloom::{Scaling, Unlimited};

    fn grown() -> BloomFilter {
        let mut filter = BloomFilter::new(0.01, 100, Scaling::from_expansion(4), 7, &Unlimited).unwrap();
        for number in 0..3_000_000u32 {
            filter.add(&number.to_le_bytes(), &Unlimited).unwrap();
        }
        filter
    }

    fn records(filter: &BloomFilter, generation: u32) -> Vec<(u64, Vec<u8>)> {
        let chunks = (0..).map_while(|number| chunk(filter, generation, number));
        std::iter::once(header(filter, generation)).chain(chunks).collect()
    }

    #[test]
    fn a_filter_arrives_as_it_was() {
        let filter = grown();
        let records = records(&filter, 5);
        assert!(records.len() > 10, "layers of more than one chunk");
        let mut arriving = Arriving::begin(records[0].0, &records[0].1, &Unlimited).unwrap();
        let (last, others) = records[1..].split_last().unwrap();
        for (iterator, data) in others {
            assert!(*iterator < 1 << 53 && data.len() <= 16 << 20);
            assert_eq!(arriving.accept(*iterator, data), Ok(Progress::Stored));
            assert_eq!(arriving.accept(*iterator, data), Ok(Progress::Known));
        }
        assert_eq!(arriving.accept(records[0].0, &records[0].1), Ok(Progress::Known));
        assert_eq!(arriving.accept(last.0, &last.1), Ok(Progress::Complete));
        assert_eq!(arriving.into_filter(), filter);
    }

    #[test]
    fn a_large_empty_filter_is_a_few_bytes() {
        let filter = BloomFilter::new(0.01, 100_000_000, Scaling::Fixed, 7, &Unlimited).unwrap();
        let bytes: usize = records(&filter, 0).iter().map(|(_, data)| data.len()).sum();
        assert!(bytes < 1000, "{bytes}");
    }

    #[test]
    fn what_does_not_belong_changes_nothing() {
        let filter = grown();
        let records = records(&filter, 5);
        let mut arriving = Arriving::begin(records[0].0, &records[0].1, &Unlimited).unwrap();
        arriving.accept(records[1].0, &records[1].1).unwrap();
        let before = arriving.try_clone().unwrap();
        let refused = |arriving: &mut Arriving, iterator: u64, data: &[u8], error: Error| {
            assert_eq!(arriving.accept(iterator, data), Err(error));
            assert_eq!(*arriving, before);
        };
        let (iterator, data) = &records[2];
        refused(&mut arriving, records[3].0, &records[3].1, Error::WrongOrder { expected: *iterator });
        refused(&mut arriving, *iterator + (1 << 32), data, Error::WrongGeneration);
        refused(&mut arriving, u64::MAX, data, Error::OutOfRange);
        refused(&mut arriving, 5 << 32, data, Error::WrongOrder { expected: *iterator });
        refused(&mut arriving, *iterator, &[], Error::Truncated);
        refused(&mut arriving, *iterator, &data[..4], Error::Truncated);
        refused(&mut arriving, *iterator, &data[..data.len() - 1], Error::WrongChecksum);
        refused(&mut arriving, *iterator, &records[3].1, Error::WrongChecksum);
        for position in 0..data.len() {
            let mut torn = data.clone();
            torn[position] ^= 1;
            assert!(arriving.accept(*iterator, &torn).is_err());
        }
        assert_eq!(arriving, before);
        assert_eq!(arriving.accept(*iterator, data), Ok(Progress::Stored));
    }

    #[test]
    fn a_torn_header_is_refused() {
        let filter = BloomFilter::new(0.01, 100, Scaling::Fixed, 7, &Unlimited).unwrap();
        let (iterator, data) = header(&filter, 0);
        assert_eq!(iterator, 1);
        assert!(is_header(&data));
        for length in 0..data.len() {
            assert!(Arriving::begin(iterator, &data[..length], &Unlimited).is_err());
        }
        for position in 0..data.len() {
            let mut torn = data.clone();
            torn[position] ^= 0x80;
            assert!(Arriving::begin(iterator, &torn, &Unlimited).is_err());
        }
        assert!(Arriving::begin(2, &data, &Unlimited).is_err());
    }
}
