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
//! dropped since; their part of the filter is omitted. Tag 5 means entries of a table, tag 6 its last ones.
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
//!
//! An AOF has a small native filter as a single record without an iterator, for BF.LOAD:
//! ```text
//! whole   8 bytes magic | the snapshot (`format/stored.rs`), 8 bytes each uint, strings after their length | u32 checksum
//! ```

use std::ops::Range;

use crate::cells::is_zero;
use crate::chain::{HashSet, LAYERS_MAX};
use crate::codec::{ByteSink, ByteSource, CHUNK_BYTES, Error, Sink, Source};
use crate::hash::ItemHash;
use crate::kinds::Filter;
use crate::kinds::parts::{Description, LayerRef};
use crate::memory::reserve;

/// The first bytes of every header. In RedisBloom's header they would mean 7 * 10^18 items.
pub(super) const MAGIC: [u8; 8] = *b"\xb1oomgate";
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
pub fn is_header(data: &[u8]) -> bool {
    data.starts_with(&MAGIC)
}

/// Returns the first record of a dump, the header: its iterator and its data. `generation` is the filter's, below
/// [`GENERATIONS`]. Marks the filter if necessary.
pub(crate) fn first_record(filter: &Filter, generation: u16, mark: &mut DumpMark) -> Result<(u64, Vec<u8>), Error> {
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
pub(crate) fn next_record(
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
            encode_chunk(
                identity,
                iterator,
                chunk.is_of_last.then(|| layer.counted_items()).flatten(),
                &layer.cells_in(chunk.bytes)?,
            )?
        }
        Place::Dropped => encode_dropped(identity, iterator)?,
        Place::Entries(entries) => encode_entries(identity, iterator, filter, entries)?,
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
    Ok(seal(sink))
}

/// Appends the checksum of everything that was written.
pub(super) fn seal(mut sink: ByteSink) -> Vec<u8> {
    let checksum = crc32fast::hash(&sink.0);
    sink.0.extend_from_slice(&checksum.to_le_bytes());
    sink.0
}

/// Checks the magic bytes and the checksum, and returns what is between them.
pub(super) fn unseal(data: &[u8]) -> Result<ByteSource<'_>, Error> {
    let (fields, checksum) = data.split_last_chunk().ok_or(Error::NotADump)?;
    let source = ByteSource(fields.strip_prefix(&MAGIC).ok_or(Error::NotADump)?);
    if crc32fast::hash(fields) == u32::from_le_bytes(*checksum) { Ok(source) } else { Err(Error::WrongChecksum) }
}

/// Returns the kind of a header, and the source of its description.
pub(crate) fn open_header(data: &[u8]) -> Result<(u64, ByteSource<'_>), Error> {
    let mut source = unseal(data)?;
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

// The mark of a dump: the parts of the filter as they were when the dump began. Only filters whose parts may be dropped or
// whose tables may change need it.

/// The state of a filter when its last dump began, if parts of it may be dropped or its tables may change. That dump continues
/// with the parts that remain. An earlier dump must start again if anything changed between the two.
#[derive(Clone, Debug, Default)]
pub struct DumpMark {
    number: u8,
    /// See [`identity`].
    identity: u32,
    parts: Vec<MarkedPart>,
}

/// A part of the filter at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MarkedPart {
    /// Its name, which is never reused.
    name: u64,
    layers: usize,
    chunks: u64,
    entries: u64,
    /// The number of changes of its table.
    revision: u64,
}

impl MarkedPart {
    /// The number of records of its table: at least one, which ends it.
    fn table_records(self) -> u64 {
        self.entries.div_ceil(ENTRIES as u64).max(1)
    }

    /// Its present index; `None` if it was dropped.
    fn index(self, filter: &Filter) -> Option<usize> {
        filter.parts().position(|(name, _)| name == self.name)
    }
}

impl DumpMark {
    /// Whether no dump has been marked yet.
    pub const fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Marks the present state of a filter.
    pub(super) fn set(&mut self, filter: &Filter) -> Result<(), Error> {
        let mut parts = Vec::new();
        reserve(&mut parts, filter.part_count())?;
        parts.extend(filter.parts().enumerate().map(|(index, (name, part))| {
            let layers = part.layer_count();
            let chunks = Extent { part: Some(index), layers }.chunks(filter);
            let entries = part.deleted().map_or(0, HashSet::len);
            MarkedPart { name, layers, chunks, entries, revision: part.revision() }
        }));
        if parts != self.parts {
            self.number = self.number.wrapping_add(1);
            self.parts = parts;
            self.identity = identity(filter, filter.layer_count());
        }
        Ok(())
    }

    /// The number of layers in the dump.
    pub(super) fn layers(&self) -> usize {
        self.parts.iter().map(|part| part.layers).sum()
    }

    /// Distinguishes this dump from earlier ones.
    pub(super) const fn number(&self) -> u8 {
        self.number
    }

    /// See [`identity`].
    pub(super) const fn identity(&self) -> u32 {
        self.identity
    }

    /// Returns the content of record `number` after the header.
    pub(super) fn place(&self, filter: &Filter, mut number: u64) -> Option<Place> {
        for marked in &self.parts {
            if number < marked.chunks {
                let Some(part) = marked.index(filter) else { return Some(Place::Dropped) };
                return Extent { part: Some(part), layers: marked.layers }.chunk(filter, number).map(Place::Cells);
            }
            number -= marked.chunks;
        }
        for marked in self.parts.iter().filter(|_| filter.has_tables()) {
            if number < marked.table_records() {
                let is_unchanged =
                    |part: &usize| filter.part(*part).is_some_and(|(_, part)| part.revision() == marked.revision);
                let part = marked.index(filter).filter(is_unchanged);
                let is_last = number + 1 == marked.table_records();
                return Some(Place::Entries(Entries { part, skipped: number * ENTRIES as u64, is_last }));
            }
            number -= marked.table_records();
        }
        None
    }
}

/// The content of a record after the header.
pub(super) enum Place {
    /// Cells. If their layer was the last of its part when the dump began, it may have taken items since.
    Cells(Chunk),
    /// Cells of a part that has been dropped since.
    Dropped,
    /// Entries of a table.
    Entries(Entries),
}

/// The content of a record of a table: its entries from number `skipped` on, up to the capacity of a record.
#[derive(Clone, Copy)]
pub(super) struct Entries {
    /// `None` if the table has changed or been dropped since: there are no entries then.
    part: Option<usize>,
    skipped: u64,
    is_last: bool,
}

impl Entries {
    /// Returns the entries as bytes.
    fn bytes(self, filter: &Filter) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        let Some(table) = self.part.and_then(|part| filter.table(part)) else { return Ok(bytes) };
        reserve(&mut bytes, CHUNK_BYTES)?;
        let skipped = usize::try_from(self.skipped).unwrap_or(usize::MAX);
        // The error of a full record ends the runs.
        let _ = table.for_each_sorted_run_after(skipped, |run| {
            let room = (CHUNK_BYTES - bytes.len()) / ENTRY_BYTES;
            run.iter().take(room).for_each(|hash| bytes.extend_from_slice(&entry_of(*hash)));
            if bytes.len() < CHUNK_BYTES { Ok(()) } else { Err(()) }
        });
        Ok(bytes)
    }
}

/// The layers that a dump covers: those of one part or of all parts, up to a number of layers.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    /// The only part, or `None` for all parts.
    pub(super) part: Option<usize>,
    pub(super) layers: usize,
}

/// A chunk: a range of the cells of a layer.
pub(super) struct Chunk {
    pub(super) part: usize,
    pub(super) layer: usize,
    pub(super) bytes: Range<usize>,
    /// Whether the layer is the last that the dump covers.
    pub(super) is_of_last: bool,
}

impl Extent {
    /// Covers the first layers of all parts.
    pub(super) const fn first(layers: usize) -> Self {
        Self { part: None, layers }
    }

    /// Covers all layers of a filter.
    pub(super) const fn all() -> Self {
        Self::first(usize::MAX)
    }

    /// Returns the layers, each with the index of its part and its own.
    fn layers(self, filter: &Filter) -> impl Iterator<Item = (usize, usize, LayerRef<'_>)> {
        let parts = self.part.map_or(0..filter.part_count(), |part| part..part + 1);
        let parts = parts.filter_map(|index| Some((index, filter.part(index)?.1)));
        let layers = parts.flat_map(move |(index, part)| {
            part.stored_layers(self.layers).map(move |(number, layer)| (index, number, layer))
        });
        layers.take(self.layers)
    }

    /// The number of chunks.
    pub(super) fn chunks(self, filter: &Filter) -> u64 {
        self.layers(filter).map(|(_, _, layer)| chunks_of(layer)).sum()
    }

    /// Returns a chunk, counted from 0.
    pub(super) fn chunk(self, filter: &Filter, mut number: u64) -> Option<Chunk> {
        for (index, (part, layer, cells)) in self.layers(filter).enumerate() {
            if number < chunks_of(cells) {
                let begin = usize::try_from(number).ok()?.checked_mul(cells.chunk_bytes())?;
                let bytes = begin..cells.bytes().len().min(begin + cells.chunk_bytes());
                return Some(Chunk { part, layer, bytes, is_of_last: index + 1 == self.layers });
            }
            number -= chunks_of(cells);
        }
        None
    }

    /// The number of bytes of cells before a chunk.
    pub(super) fn bytes_before(self, filter: &Filter, number: u64) -> u64 {
        let Some(chunk) = self.chunk(filter, number) else { return u64::MAX };
        let before = self.layers(filter).take_while(|(part, layer, _)| (*part, *layer) != (chunk.part, chunk.layer));
        before.map(|(_, _, cells)| cells.bytes().len() as u64).sum::<u64>() + chunk.bytes.start as u64
    }
}

fn chunks_of(layer: LayerRef<'_>) -> u64 {
    layer.bytes().len().div_ceil(layer.chunk_bytes()) as u64
}

// The encoding of a record after the header, which the head of this file specifies: a tag, a checksum, and cells or hashes.

const TAG_ZEROS: u8 = 0;
const TAG_CELLS: u8 = 1;
/// Added to a tag if the number of the layer's items precedes the cells.
const TAG_COUNTED: u8 = 2;
const TAG_DROPPED: u8 = 4;
const TAG_ENTRIES: u8 = 5;
const TAG_LAST_ENTRIES: u8 = 6;
/// Size of an entry of a table, in bytes.
pub(super) const ENTRY_BYTES: usize = size_of::<ItemHash>();

/// Encodes a hash as an entry.
pub(super) fn entry_of(hash: ItemHash) -> [u8; ENTRY_BYTES] {
    (u128::from(hash.h1) | u128::from(hash.h2) << 64).to_le_bytes()
}

/// Decodes hashes.
pub(super) fn hashes_in(bytes: &[u8]) -> Result<Vec<ItemHash>, Error> {
    let (entries, rest) = bytes.as_chunks::<ENTRY_BYTES>();
    if !rest.is_empty() || bytes.len() > CHUNK_BYTES {
        return Err(Error::WrongLength);
    }
    let mut hashes = Vec::new();
    reserve(&mut hashes, entries.len())?;
    hashes.extend(entries.iter().map(|entry| {
        let both = u128::from_le_bytes(*entry);
        #[expect(clippy::cast_possible_truncation, reason = "the halves of 128 bits are 64 bits each")]
        let (h1, h2) = (both as u64, (both >> 64) as u64);
        ItemHash { h1, h2 }
    }));
    Ok(hashes)
}

/// Returns the checksum of a record that is not the header. `fields` are what follows the checksum.
fn record_checksum(identity: u32, iterator: u64, tag: u8, fields: [&[u8]; 2]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&identity.to_le_bytes());
    hasher.update(&iterator.to_le_bytes());
    hasher.update(&[tag]);
    fields.into_iter().for_each(|field| hasher.update(field));
    hasher.finalize()
}

/// Encodes cells, with the number of their layer's items if that may have changed.
pub(super) fn encode_chunk(identity: u32, iterator: u64, items: Option<u64>, cells: &[u8]) -> Result<Vec<u8>, Error> {
    let (tag, cells) = if is_zero(cells) { (TAG_ZEROS, &[][..]) } else { (TAG_CELLS, cells) };
    let tag = tag | if items.is_some() { TAG_COUNTED } else { 0 };
    let items = items.map(u64::to_le_bytes);
    encode_record(identity, iterator, tag, [items.as_ref().map_or(&[][..], |bytes| &bytes[..]), cells])
}

/// Encodes the record of cells that were dropped.
pub(super) fn encode_dropped(identity: u32, iterator: u64) -> Result<Vec<u8>, Error> {
    encode_record(identity, iterator, TAG_DROPPED, [&[], &[]])
}

/// Encodes the entries of a table.
fn encode_entries(identity: u32, iterator: u64, filter: &Filter, entries: Entries) -> Result<Vec<u8>, Error> {
    let tag = if entries.is_last { TAG_LAST_ENTRIES } else { TAG_ENTRIES };
    encode_record(identity, iterator, tag, [&entries.bytes(filter)?, &[]])
}

fn encode_record(identity: u32, iterator: u64, tag: u8, fields: [&[u8]; 2]) -> Result<Vec<u8>, Error> {
    let [first, second] = fields;
    let mut data = Vec::new();
    reserve(&mut data, 5 + first.len() + second.len())?;
    data.push(tag);
    data.extend_from_slice(&record_checksum(identity, iterator, tag, fields).to_le_bytes());
    data.extend_from_slice(first);
    data.extend_from_slice(second);
    Ok(data)
}

/// The content of a record after the header.
#[derive(Clone, Copy)]
pub(super) enum Content<'a> {
    /// Cells.
    Chunk {
        /// The number of items of the layer when the record was written, if that may exceed the number in the header.
        items: Option<u64>,
        /// `None` if all are zero.
        cells: Option<&'a [u8]>,
    },
    /// Cells that were dropped.
    Dropped,
    /// Entries of a table.
    Entries {
        /// Hashes of 16 bytes.
        bytes: &'a [u8],
        /// Whether these are the table's last.
        is_last: bool,
    },
}

/// Decodes a record.
pub(super) fn decode(identity: u32, iterator: u64, data: &[u8]) -> Result<Content<'_>, Error> {
    let (tag, rest) = data.split_first().ok_or(Error::Truncated)?;
    let (checksum, rest) = rest.split_first_chunk().ok_or(Error::Truncated)?;
    if record_checksum(identity, iterator, *tag, [rest, &[]]) != u32::from_le_bytes(*checksum) {
        return Err(Error::WrongChecksum);
    }
    match *tag {
        TAG_DROPPED if rest.is_empty() => Ok(Content::Dropped),
        TAG_DROPPED => Err(Error::WrongLength),
        TAG_ENTRIES | TAG_LAST_ENTRIES => Ok(Content::Entries { bytes: rest, is_last: *tag == TAG_LAST_ENTRIES }),
        tag if tag <= TAG_CELLS | TAG_COUNTED => {
            let (mut items, mut cells) = (None, rest);
            if tag & TAG_COUNTED != 0 {
                let (number, after) = cells.split_first_chunk().ok_or(Error::Truncated)?;
                (items, cells) = (Some(u64::from_le_bytes(*number)), after);
            }
            match tag & !TAG_COUNTED {
                TAG_ZEROS if cells.is_empty() => Ok(Content::Chunk { items, cells: None }),
                TAG_ZEROS => Err(Error::WrongLength),
                _ => Ok(Content::Chunk { items, cells: Some(cells) }),
            }
        }
        _ => Err(Error::OutOfRange),
    }
}

// The records that a filter already has. A rewritten AOF contains the records that have arrived, so that a reader continues
// with the same one. A client whose reply was lost resends the record, which is accepted if the filter has it.

/// Returns the records of `tables` complete tables and of the table that is arriving, in the fewest records that can hold them.
/// A dump that omitted a changed table has more records of it.
fn entries_records(filter: &Filter, tables: usize) -> impl Iterator<Item = Entries> {
    (0..=tables).flat_map(move |part| {
        let is_whole = part < tables;
        let entries = filter.table(part).map_or(0, HashSet::len);
        let count = entries.div_ceil(ENTRIES as u64).max(is_whole.into());
        (0..count).map(move |index| Entries {
            part: Some(part),
            skipped: index * ENTRIES as u64,
            is_last: is_whole && index + 1 == count,
        })
    })
}

/// Whether a filter with `tables` complete tables can have received `next` records after the header.
pub(super) fn can_have_come(filter: &Filter, next: u64, tables: usize) -> bool {
    let chunks = Extent::all().chunks(filter);
    let is_empty = |part| filter.table(part).is_none();
    let come = next.saturating_sub(chunks);
    let later = if next < chunks { 0 } else { tables + 1 };
    (later..filter.part_count()).all(is_empty)
        && entries_records(filter, tables).count() as u64 <= come
        && numbered(filter, 0, next.saturating_add(HEADER + 1)).is_ok()
}

/// Returns the header and the `next` records after it. If the dump had more records for its tables than their entries need,
/// returns empty ones in their place. An error ends them.
pub(super) fn known_records(
    filter: &Filter,
    generation: u16,
    next: u64,
    tables: usize,
) -> impl Iterator<Item = Result<(u64, Vec<u8>), Error>> {
    let chunks = Extent::all().chunks(filter).min(next);
    let cells = records(filter, generation).take(usize::try_from(chunks).unwrap_or(usize::MAX).saturating_add(1));
    let stream = Stream::of(filter, generation);
    let nothing = Entries { part: None, skipped: 0, is_last: false };
    let records_of_tables = (chunks..next).zip(entries_records(filter, tables).chain(std::iter::repeat(nothing)));
    cells.chain(records_of_tables.map(move |(number, entries)| {
        let iterator = stream.iterator(numbered(filter, 0, HEADER + 1 + number)?);
        Ok((iterator, encode_entries(identity(filter, stream.layers), iterator, filter, entries)?))
    }))
}

/// Accepts a record that a filter with `tables` complete tables already has, and changes nothing. `generation` is its dump's. If a
/// client sends all records of a dump without an error, the filter therefore has everything in the dump, whatever else was sent.
///
/// A filter has a record if all bits of the record are set, or its counters are equal, or the table has exactly the record's
/// entries: additional entries would make items of the dump absent.
pub(super) fn check(filter: &Filter, tables: usize, generation: u16, iterator: u64, data: &[u8]) -> Result<(), Error> {
    let (stream, record) = Stream::parse(iterator)?;
    let (_, record) = numbers(filter, record)?;
    if stream.generation != generation || filter.layer_count() < stream.layers {
        return Err(Error::WrongGeneration);
    }
    let has = if record == HEADER {
        let (kind, description) = decode_header(data)?;
        if filter.kind() != Some(kind) {
            return Err(Error::UnknownKind(kind));
        }
        description.is_of(filter, stream.layers)
    } else {
        let number = record - HEADER - 1;
        let content = decode(identity(filter, stream.layers), iterator, data)?;
        let extent = Extent::first(stream.layers);
        match extent.chunk(filter, number) {
            Some(chunk) => has_chunk(filter, chunk, content)?,
            None => has_entries(filter, tables, number - extent.chunks(filter), content)?,
        }
    };
    if has { Ok(()) } else { Err(Error::Different) }
}

fn has_chunk(filter: &Filter, chunk: Chunk, content: Content<'_>) -> Result<bool, Error> {
    let (items, came) = match content {
        Content::Chunk { items, cells } => (items, cells),
        Content::Dropped => return Ok(filter.is_omitted(chunk.part)),
        Content::Entries { .. } => return Err(Error::OutOfRange),
    };
    if came.is_some_and(|came| came.len() != chunk.bytes.len()) {
        return Err(Error::WrongLength);
    }
    let layer = filter.part(chunk.part).and_then(|(_, part)| part.layer(chunk.layer)).ok_or(Error::OutOfRange)?;
    let here = layer.cells_in(chunk.bytes)?;
    let has_cells = match came {
        Some(came) if layer.only_gains() => came.iter().zip(&*here).all(|(came, here)| came & !here == 0),
        Some(came) => *came == *here,
        None => layer.only_gains() || is_zero(&here),
    };
    Ok(has_cells && items.is_none_or(|items| items <= layer.items()))
}

fn has_entries(filter: &Filter, tables: usize, number: u64, content: Content<'_>) -> Result<bool, Error> {
    let Content::Entries { bytes, is_last } = content else { return Err(Error::OutOfRange) };
    // A placeholder for a record without entries, which every filter has.
    if bytes.is_empty() && !is_last {
        return Ok(true);
    }
    let number = usize::try_from(number).map_err(|_| Error::OutOfRange)?;
    let entries = entries_records(filter, tables).nth(number).filter(|entries| entries.is_last == is_last);
    let here = entries.map(|entries| entries.bytes(filter)).transpose()?;
    Ok(here.is_some_and(|here| here == bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::BUCKETS_READ;
    use crate::format::stored::write_tables;
    use crate::format::{Arrival, ByteSink, Progress};
    use crate::hash::Hasher;
    use crate::kinds::{NativeSpec, Origin, Retention, WindowedSpec};
    use crate::{BATCH, Moment, Scaling, Spec, Unlimited};

    /// Two records of a table and part of a third.
    const ENTRIES_OF_PART: usize = 2 * ENTRIES + 5000;

    /// The buckets of the largest segment.
    const SEGMENT_BUCKETS: usize = 128;

    /// A filter whose parts have large tables.
    fn filter_with_tables(spec: Spec, parts: usize) -> Filter {
        let mut filter = Filter::new(&spec, &Unlimited).unwrap();
        for part in 0..parts {
            let now = Moment(part as u64 * 10_000);
            if let Some(start) = filter.windowed().and_then(|ring| ring.bucket_due(now)) {
                filter.windowed_mut().unwrap().begin_bucket(start, &Unlimited).unwrap();
            }
            let items: Vec<_> = (0..ENTRIES_OF_PART).map(|number| [part.to_le_bytes(), number.to_le_bytes()]).collect();
            for items in items.chunks(BATCH) {
                let items = || items.iter().map(|item| item.as_flattened());
                assert_eq!(filter.add_batch(items(), Origin::Effect, &now, &Unlimited).error, None);
                assert_eq!(filter.remove_batch(items(), Origin::Effect, &now, &Unlimited).error, None);
            }
        }
        assert!(
            (0..filter.part_count())
                .all(|part| filter.table(part).is_some_and(|table| table.len() > 2 * ENTRIES as u64))
        );
        filter
    }

    /// Each record of a table reads the segments with its entries. It shares the first and the last of them with its neighbours.
    #[test]
    #[cfg_attr(miri, ignore = "thousands of hashes")]
    fn a_dump_reads_each_table_once() {
        let hasher = Hasher::SipHash { key: [7; 16] };
        let native = NativeSpec::new(0.01, 4_000_000, Scaling::Fixed, hasher);
        let forgets = Retention::After { seconds: 20, is_sliding: false };
        let ring =
            WindowedSpec { rate: 0.01, capacity: 8_000_000, scaling: Scaling::Fixed, hasher, forgets, buckets: 3 };
        for (spec, parts) in [(Spec::Native(native), 1), (Spec::Windowed(ring), 2)] {
            let filter = filter_with_tables(spec, parts);
            assert_eq!(filter.part_count(), parts);
            let buckets_read = |work: &mut dyn FnMut()| {
                let before = BUCKETS_READ.get();
                work();
                BUCKETS_READ.get() - before
            };
            let of_save = buckets_read(&mut || write_tables(&filter, &mut ByteSink::default()));
            let most = of_save + parts * 3 * 2 * SEGMENT_BUCKETS;

            let mut dump = Vec::new();
            let of_dump = buckets_read(&mut || dump = records(&filter, 5).collect::<Result<_, _>>().unwrap());
            assert!(of_dump <= most, "a dump: {of_dump} and {of_save}");

            let ((first, header), (last, others)) = (&dump[0], dump[1..].split_last().unwrap());
            let mut arriving = Arrival::begin(*first, header, &Unlimited).unwrap();
            let accept = |arriving: &mut Arrival, expected| {
                for (iterator, data) in others {
                    assert_eq!(arriving.accept(*iterator, data, &Unlimited), Ok(expected));
                }
            };
            accept(&mut arriving, Progress::Stored);
            let of_duplicates = buckets_read(&mut || accept(&mut arriving, Progress::Known));
            assert!(of_duplicates <= most, "known records: {of_duplicates} and {of_save}");
            let Arrival::Own(own) = &arriving else { panic!() };
            let of_rewrite =
                buckets_read(&mut || assert_eq!(own.records().filter(Result::is_ok).count(), 1 + others.len()));
            // `records` is a record ahead.
            assert!(of_rewrite <= most + of_save / 2, "a rewrite: {of_rewrite} and {of_save}");
            assert_eq!(arriving.accept(last.0, &last.1, &Unlimited), Ok(Progress::Complete));
            let Arrival::Own(own) = &arriving else { panic!() };
            assert!(*own.filter() == filter);
        }
    }
}
