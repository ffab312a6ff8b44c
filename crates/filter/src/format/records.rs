//! A native, windowed or counting filter as a stream of records, for BF.SCANDUMP, BF.LOADCHUNK and AOF rewrites: a header, then
//! the cells in chunks, then the tables of deleted items. Each record fits a client's buffer and has its own checksum.
//!
//! ```text
//! header  8 bytes magic | version | the description of the stored layout, 8 bytes each field | u32 checksum
//! chunk   u8 tag | u32 checksum | tags 2 and 3: u64 items | tags 1 and 3: the cells
//! table   u8 tag | u32 checksum | hashes of 16 bytes, in order
//! ```
//! All numbers are little-endian. The version is 1 for native filters. It is 2 for other kinds, whose kind follows it. Tag 0
//! means zeros, tag 1 cells. Tags 2 and 3 mean the same for the newest layer in the dump, which may have taken items since the
//! dump began: the chunk includes their cells, and the number counts all items of the layer. Tag 4 means cells that were
//! dropped since; their part of the filter is omitted. Tag 5 is a piece of a table, tag 6 its last piece.
//!
//! The checksum is CRC-32 (IEEE). The header's covers everything before it. The others cover the shape of the filter when its
//! dump began (`Filter::identify`), the iterator as u64, the tag and what follows the checksum. Records of another filter are
//! therefore refused, and so are records of another dump of the same ring if its buckets have changed. A chunk covers 1 MiB of
//! a layer, or what remains of it.
//!
//! Each record has an iterator below 2^53, which any client's number type holds:
//! ```text
//! 14 bits generation of the filter | 12 bits layers in the dump - 1 | 27 bits record: 1 the header, 2, 3, ... the others
//! ```
//! The generation shows that a key was replaced between two chunks. The number of layers shows where the dump ends if the
//! filter has grown: new layers follow the others, so earlier chunks stay valid. If parts of a filter may be dropped, or its
//! tables may change, the 27 bits are 8 bits for the number of the dump and 19 bits for the record: see [`DumpMark`].

pub use super::mark::DumpMark;
use super::mark::Place;
use super::places::Extent;
use super::record::{ENTRY_BYTES, encode_chunk, encode_dropped, encode_entries};
use crate::chain::LAYERS_MAX;
use crate::codec::{ByteSink, ByteSource, CHUNK_BYTES, Error, Sink, Source};
use crate::kinds::Filter;
use crate::kinds::description::Description;
use crate::memory::reserve;

/// The first bytes of every header. In RedisBloom's header they would mean 7 * 10^18 items.
const MAGIC: [u8; 8] = *b"\xb1oomgate";
/// The version of native filters, whose kind is not written.
const VERSION_NATIVE: u64 = 1;
const KIND_NATIVE: u64 = 1;
/// The version of the other kinds.
const VERSION: u64 = 2;
/// The number of the header. The chunks follow.
pub(super) const HEADER: u64 = 1;
/// The limit of generations.
pub const GENERATIONS: u16 = 1 << 14;
/// The number of entries of a table in one record, which fill a chunk.
pub(super) const ENTRIES: usize = CHUNK_BYTES / ENTRY_BYTES;

const RECORD_BITS: u32 = 27;
/// The width of a record's number in a marked dump. The number of the dump is above it.
const MARKED_RECORD_BITS: u32 = 19;
const LAYERS_BITS: u32 = 12;
const _: () = assert!(LAYERS_MAX <= 1 << LAYERS_BITS);

/// The dump to which a record belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) generation: u16,
    /// The layers that the filter had when the dump began, 1 to 4096.
    pub(super) layers: usize,
}

impl Stream {
    pub(super) fn of(filter: &Filter, generation: u16) -> Self {
        Self { generation: generation % GENERATIONS, layers: filter.layer_count() }
    }

    pub(super) fn iterator(self, record: u64) -> u64 {
        let layers = self.layers.saturating_sub(1) as u64;
        ((u64::from(self.generation) << LAYERS_BITS) | layers) << RECORD_BITS | record
    }

    /// Splits an iterator into its stream and its record.
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
}

/// Returns the number of a marked dump and of the record in it; 0 and the record for filters that are not marked.
pub(super) fn numbers(filter: &Filter, record: u64) -> Result<(u8, u64), Error> {
    if !filter.is_marked() {
        return Ok((0, record));
    }
    let number = u8::try_from(record >> MARKED_RECORD_BITS).map_err(|_| Error::OutOfRange)?;
    let record = record & ((1 << MARKED_RECORD_BITS) - 1);
    if record < HEADER { Err(Error::OutOfRange) } else { Ok((number, record)) }
}

/// Returns the record part of an iterator in the dump with this number.
pub(super) fn numbered(filter: &Filter, number: u8, record: u64) -> Result<u64, Error> {
    let bits = if filter.is_marked() { MARKED_RECORD_BITS } else { RECORD_BITS };
    let number = if filter.is_marked() { u64::from(number) << MARKED_RECORD_BITS } else { 0 };
    if record >> bits == 0 { Ok(number | record) } else { Err(Error::OutOfRange) }
}

/// Whether the data of a record begins with our magic bytes.
#[must_use]
pub fn is_header(data: &[u8]) -> bool {
    data.starts_with(&MAGIC)
}

/// Returns the first record of a dump, the header: its iterator and its data. `generation` is the filter's, below
/// [`GENERATIONS`]. Marks the filter if necessary.
///
/// # Errors
/// [`Error::Filter`] if there is no memory for the record.
pub fn first_record(filter: &Filter, generation: u16, mark: &mut DumpMark) -> Result<(u64, Vec<u8>), Error> {
    if filter.is_marked() {
        mark.set(filter)?;
    }
    let record = numbered(filter, mark.number(), HEADER)?;
    Ok((Stream::of(filter, generation).iterator(record), encode_header(filter)?))
}

/// Returns the record after the one with this iterator: its iterator and its data; `None` after the last one. The filter may
/// have taken items and grown since the dump began. The dump has all items of that time, and some later ones, which it counts.
///
/// # Errors
/// [`Error::OutOfRange`] for an invalid iterator; [`Error::WrongGeneration`] for one of another filter, or of a dump before the
/// marked one; [`Error::Filter`] if there is no memory for the record.
pub fn next_record(
    filter: &Filter,
    generation: u16,
    iterator: u64,
    mark: &DumpMark,
) -> Result<Option<(u64, Vec<u8>)>, Error> {
    let (stream, record) = Stream::parse(iterator)?;
    if stream.generation == 0 && generation != 0 {
        // No filter has generation 0, so no such iterator was ever returned.
        return Err(Error::OutOfRange);
    }
    let (number, record) = numbers(filter, record)?;
    if stream.generation != generation {
        return Err(Error::WrongGeneration);
    }
    let (place, identity) = if filter.is_marked() {
        if (number, stream.layers) != (mark.number(), mark.layers()) {
            return Err(Error::WrongGeneration);
        }
        (mark.place(filter, record - HEADER), mark.identity())
    } else {
        if filter.layer_count() < stream.layers {
            return Err(Error::WrongGeneration);
        }
        let chunk = Extent::first(stream.layers).chunk(filter, record - HEADER);
        (chunk.map(Place::Cells), identity(filter, stream.layers))
    };
    let Some(place) = place else { return Ok(None) };
    let iterator = stream.iterator(numbered(filter, number, record + 1)?);
    let data = match place {
        Place::Cells(chunk) => {
            let layer =
                filter.part(chunk.part).and_then(|(_, part)| part.layer(chunk.layer)).ok_or(Error::OutOfRange)?;
            encode_chunk(identity, iterator, chunk.is_of_last.then(|| layer.items()), &layer.cells_in(chunk.bytes)?)?
        }
        Place::Dropped => encode_dropped(identity, iterator)?,
        Place::Entries { part, skipped, is_last } => {
            encode_entries(identity, iterator, part.and_then(|part| filter.table(part)), skipped, is_last)?
        }
    };
    Ok(Some((iterator, data)))
}

/// Returns the records of a dump in order. An error ends them.
pub fn records(filter: &Filter, generation: u16) -> impl Iterator<Item = Result<(u64, Vec<u8>), Error>> {
    let mut mark = DumpMark::default();
    let first = first_record(filter, generation, &mut mark);
    std::iter::successors(Some(first), move |before| {
        let (iterator, _) = before.as_ref().ok()?;
        next_record(filter, generation, *iterator, &mark).transpose()
    })
}

/// Writes the version and, if it is not a native filter, the kind.
fn put_version(filter: &Filter, sink: &mut impl Sink) {
    match filter.kind() {
        Some(kind) if kind != KIND_NATIVE => {
            sink.put_u64(VERSION);
            sink.put_u64(kind);
        }
        _ => sink.put_u64(VERSION_NATIVE),
    }
}

fn encode_header(filter: &Filter) -> Result<Vec<u8>, Error> {
    /// Counts what is written.
    struct Length(usize);
    impl Sink for Length {
        fn put_u64(&mut self, _number: u64) {
            self.0 += 8;
        }
        fn put_f64(&mut self, _number: f64) {
            self.0 += 8;
        }
        fn put_bytes(&mut self, bytes: &[u8]) {
            self.0 += 8 + bytes.len();
        }
    }
    let mut length = Length(MAGIC.len() + size_of::<u32>());
    put_version(filter, &mut length);
    filter.describe(&mut length);
    let mut sink = ByteSink(Vec::new());
    reserve(&mut sink.0, length.0)?;
    sink.0.extend_from_slice(&MAGIC);
    put_version(filter, &mut sink);
    filter.describe(&mut sink);
    let checksum = crc32fast::hash(&sink.0);
    sink.0.extend_from_slice(&checksum.to_le_bytes());
    Ok(sink.0)
}

/// Returns the kind of a header, and the source of its description.
///
/// # Errors
/// [`Error::NotADump`], [`Error::WrongChecksum`], [`Error::UnknownVersion`], [`Error::Truncated`].
pub(crate) fn open_header(data: &[u8]) -> Result<(u64, ByteSource<'_>), Error> {
    let (fields, checksum) = data.split_last_chunk().ok_or(Error::NotADump)?;
    let mut source = ByteSource(fields.strip_prefix(&MAGIC).ok_or(Error::NotADump)?);
    if crc32fast::hash(fields) != u32::from_le_bytes(*checksum) {
        return Err(Error::WrongChecksum);
    }
    match source.u64()? {
        VERSION_NATIVE => Ok((KIND_NATIVE, source)),
        VERSION => match source.u64()? {
            kind if kind > KIND_NATIVE => Ok((kind, source)),
            kind => Err(Error::UnknownKind(kind)),
        },
        version => Err(Error::UnknownVersion(version)),
    }
}

/// Returns the kind and the description of a header.
///
/// # Errors
/// As [`open_header`], [`Error::UnknownKind`], and errors for bytes that cannot have been written.
pub(super) fn decode_header(data: &[u8]) -> Result<(u64, Description), Error> {
    let (kind, mut source) = open_header(data)?;
    let description = Description::read(kind, &mut source)?;
    if source.0.is_empty() { Ok((kind, description)) } else { Err(Error::Overlong) }
}

/// Returns what distinguishes the records of a filter with this number of layers from others: see [`Filter::identify`].
pub(super) fn identity(filter: &Filter, layers: usize) -> u32 {
    /// Computes the checksum of what is written to it.
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
    let mut checksum = Checksum(crc32fast::Hasher::new());
    checksum.0.update(&MAGIC);
    put_version(filter, &mut checksum);
    filter.identify(layers, &mut checksum);
    checksum.0.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BloomFilter, Scaling, Unlimited};

    #[test]
    fn a_large_empty_filter_is_a_few_bytes() {
        let filter = BloomFilter::new(0.01, 100_000_000, Scaling::Fixed, 7, &Unlimited).unwrap().into();
        let bytes: usize = records(&filter, 0).map(|record| record.unwrap().1.len()).sum();
        assert!(bytes < 2000, "{bytes}");
    }
}
