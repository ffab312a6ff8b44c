//! The stored layout of our own values: the format of a snapshot (RDB type `bloomgate`), of a DUMP payload and, in
//! part, of a dump's header.
//!
//! ```text
//! uint   version         1; 2 and 3 are specified below
//! uint   kind            1 native; 4 counting; 6 windowed; 8 cuckoo; 2, 5, 7, 9: a filter of these kinds that is arriving in
//!                        records; 3 RedisBloom's, arriving; 11 RedisBloom's cuckoo filter, arriving
//! uint   hash            1 MurmurHash3 x64 128, seeded; 2 SipHash-2-4 128, keyed
//! double rate            the requested rate
//! uint   capacity        the requested capacity
//! uint   expansion       0 for a fixed filter; always 0 for kind 4, and a power of two for kind 8
//! uint   seed            for hash 2, two numbers: the halves of the key
//! uint   policy          the rules by which the filter is sized: 1, 2 or 3 (`geometry/sizing.rs`). Only filters of kind 1 may have 2
//!                        or 3: those with a rate below 0.0001, growing ones for up to 128 items, and fixed ones with a rate of 0.02
//!                        or more. Version 0.2.0 refuses both, 0.3.0 refuses 3
//! kind 6 only:
//!   uint   window        in seconds; 0 for a rolling ring
//!   uint   sliding       1 or 0
//!   uint   buckets       the most live buckets, 3 to 64
//!   uint   buckets       the number of stored buckets, at least 1; for each, oldest first:
//!     uint   slot        on the grid of time
//!     uint   begin, end  milliseconds since 1970
//!     uint   capacity    of its first layer, as requested
//!     uint   flags       bit 0: the filter is arriving and the dump omits this bucket; the other bits: the number of items that
//!                        a newer bucket also has, 0 unless the window slides
//!     uint   layers      and the description of each, as below
//! uint   layers          1 to 4096; for kind 4 one, with the requested rate and capacity
//! except kind 8, whose layers follow from its definition, for each layer, oldest first:
//!   double rate          its own
//!   uint   capacity
//!   uint   items
//!   uint   hashes        k
//!   uint   groups
//!   uint   blocks        per group, each of 512 bits; for kind 4 of 512 counters of 4 bits, the low half of a byte first. Plus 128 if
//!                        an item has bits in four of them rather than two, which version 0.2.0 refuses
//! arriving only:
//!   uint   generation    of the filter that is arriving, below 2^14
//!   uint   next          number of the next record, counted from 0
//!   uint   tables        for hash 2, except with kinds 4 and 8: the number of tables that have arrived
//! for each layer, oldest first, but newest first for kind 8, in chunks of 1 MiB (the last one shorter):
//!   string the cells, or an empty string for a chunk of zeros
//! hash 2, except with kinds 4 and 8: the table of deleted items of the filter, or of each bucket:
//!   uint   entries
//!   string hashes of 16 bytes, in ascending order: 4096 per string, fewer in the last. A reader accepts up to 1 MiB
//! ```
//! After kinds 3 and 11, instead of everything before the cells:
//! ```text
//! string header          as BF.LOADCHUNK received it
//! uint   arrived         bytes of all layers that have arrived, from the first on; 2^64 - 1 if there are gaps, which only
//!                        records from a RedisBloom primary can leave. Then follow:
//!   uint ranges          the number of ranges that have arrived, at least 1, in order and not adjacent; for each:
//!     uint begin, end
//! ```
//! Version 2 is for filters with policy 2 or 3 that fit, because a server with a million small filters spends most of its loading time
//! on reading one number after another.
//! ```text
//! uint   version         2
//! string what version 1 has after `version`, at most 1024 bytes: uints in LEB128, in as few bytes as possible, doubles in 8 bytes
//!                        from the lowest on, strings after their length, which is a uint. Kinds 1, 4 and 6 only
//! ```
//! Version 3 is for filters of kind 1 with hash 1 and policy 3, with up to 2 KiB of cells in up to 16 layers, whose fields except the
//! items and the cells follow from the definition. The default filter with 20 items takes 154 bytes, where version 2 takes 222.
//! ```text
//! uint   version         3
//! string what follows, in numbers and strings like those of version 2:
//!   string definition    a word (`kinds/native.rs`)
//!   uint   layers
//!   for each layer, oldest first:
//!     uint   items
//!   for each layer, oldest first:
//!     uint   nonzero     the number of bytes of its cells that are not zero. If that is 0, nothing follows. If it is less than seven
//!                        eighths of the bytes, a bit for each byte follows, the lowest first, and then the bytes that are not zero;
//!                        otherwise all bytes
//! ```
//! Values without gaps and without features of version 0.2 have the same bytes as in version 0.1.0, which refuses the others.
//!
//! A chunk of zeros takes a byte, so an empty filter of any size takes a few bytes. Because of the fixed chunk size, neither
//! the saving child nor the loading server holds a second copy of the cells.

use super::records::{ENTRY_BYTES, entry_of, hashes_in};
use crate::cells::BLOCK_BYTES;
use crate::chain::HashSet;
use crate::codec::{CHUNK_BYTES, Error, PACKED_MAX, PackedSink, PackedSource, Sink, Source, chunks, nonzero};
use crate::error;
use crate::geometry::LayerDescription;
use crate::geometry::sizing::Policy;
use crate::hash::ItemHash;
use crate::host::Ceiling;
use crate::kinds::native::{WORD_BYTES_MAX, Word};
use crate::kinds::parts::Description;
use crate::kinds::{BloomFilter, Filter, NativeSpec};

pub(super) const VERSION: u64 = 1;
pub(super) const VERSION_PACKED: u64 = 2;
pub(super) const VERSION_COMPACT: u64 = 3;

/// The most bytes of the string of version 2.
const STRING_BYTES_MAX: usize = 1024;
/// The most bytes of cells in version 3.
const COMPACT_CELLS_MAX: usize = 2048;
/// The most layers in version 3: each has at least two blocks of cells.
const COMPACT_LAYERS_MAX: usize = COMPACT_CELLS_MAX / (2 * BLOCK_BYTES);
/// The definition, the number of layers, and two numbers for each.
const COMPACT_FIELDS_MAX: usize = 1 + WORD_BYTES_MAX + 1 + COMPACT_LAYERS_MAX * (10 + 2);
const _: () = assert!(COMPACT_FIELDS_MAX + COMPACT_CELLS_MAX <= PACKED_MAX);

/// Writes a native, windowed or counting filter, from `kind` on.
pub(super) fn write(filter: &Filter, sink: &mut impl Sink) {
    sink.put_u64(filter.kind().unwrap_or_default());
    filter.describe(sink);
    write_cells(filter, sink);
    write_tables(filter, sink);
}

/// Reads a filter of a kind, from what follows `kind`. Asks the ceiling before anything is allocated.
pub(super) fn read(kind: u64, source: &mut impl Source, ceiling: &impl Ceiling) -> Result<Filter, Error> {
    let mut filter = Description::read(kind, source)?.with_zero_cells(ceiling)?;
    read_cells(&mut filter, u64::MAX, source)?;
    read_tables(&mut filter, source, ceiling)?;
    filter.complete();
    Ok(filter)
}

/// Packs a filter. Returns the version and the string; `None` if it is not stored as one string.
pub(super) fn pack<'a>(filter: &Filter, sink: &'a mut PackedSink) -> Option<(u64, &'a [u8])> {
    let Filter::Native(chain) = filter else { return None };
    // The cells are read after the layers have been computed from the definition, by which time they have arrived in the cache.
    if let Some(first) = chain.layers().first() {
        (0..first.geometry().blocks().min(4)).for_each(|block| first.cells().prefetch(block, std::iter::empty()));
    }
    let version = if let Some(definition) = compact_definition(chain) {
        write_compact(chain, &definition, sink);
        VERSION_COMPACT
    } else {
        write_packed(filter, chain, sink)?;
        VERSION_PACKED
    };
    sink.written().map(|bytes| (version, bytes))
}

/// Returns the definition of a filter that is stored in version 3; `None` for another filter.
fn compact_definition(chain: &BloomFilter) -> Option<Word> {
    let spec = chain.spec();
    let layers = || chain.layers().iter().map(|layer| LayerDescription { items: 0, ..layer.description() });
    let is_compact = spec.policy == Policy::Three
        && chain.cells_bytes() <= COMPACT_CELLS_MAX as u64
        && layers().eq(spec.layers().take(chain.layers().len()));
    if is_compact { spec.to_word() } else { None }
}

/// Writes the string of version 3.
fn write_compact(chain: &BloomFilter, definition: &[u8], sink: &mut PackedSink) {
    sink.put_bytes(definition);
    sink.put_u64(chain.layers().len() as u64);
    chain.layers().iter().for_each(|layer| sink.put_u64(layer.items()));
    chain.layer_views().for_each(|layer| chunks::for_each_chunk(layer, |cells| nonzero::write(cells, sink)));
}

/// Writes the string of version 2; `None` if the filter is stored in another version. Not inlined, because tables take much of the stack.
#[inline(never)]
fn write_packed(filter: &Filter, chain: &BloomFilter, sink: &mut PackedSink) -> Option<()> {
    if chain.spec().policy == Policy::One || chain.size_bytes() > STRING_BYTES_MAX as u64 {
        return None;
    }
    write(filter, sink);
    (sink.written()?.len() <= STRING_BYTES_MAX).then_some(())
}

/// Reads a filter of version 3, from what follows the version. Checks the size of its cells, and asks the ceiling, before anything is
/// allocated.
pub(super) fn read_compact(source: &mut impl Source, ceiling: &impl Ceiling) -> Result<Filter, Error> {
    let bytes = source.bytes()?;
    let mut fields = PackedSource(bytes.as_ref());
    let spec = NativeSpec::from_word(fields.bytes()?)?;
    let (count, mut possible) = (fields.u64()?, spec.layers());
    let (Some(first), Policy::Three) = (possible.next(), spec.policy) else { return Err(error::Error::Unsound.into()) };
    let mut layers = [first; COMPACT_LAYERS_MAX];
    let layers = usize::try_from(count).ok().and_then(|count| layers.get_mut(..count)).ok_or(Error::OutOfRange)?;
    let mut cells_bytes = 0u64;
    for (index, layer) in layers.iter_mut().enumerate() {
        if index > 0 {
            *layer = possible.next().ok_or(error::Error::Unsound)?;
        }
        layer.items = fields.u64()?;
        cells_bytes = cells_bytes.saturating_add(layer.geometry.size_bytes());
    }
    if cells_bytes > COMPACT_CELLS_MAX as u64 {
        return Err(Error::OutOfRange);
    }
    let mut chain = BloomFilter::with_zero_bits(spec, layers, ceiling)?;
    for layer in 0..layers.len() {
        nonzero::read(chain.layer_bytes_mut(layer).unwrap_or_default(), &mut fields)?;
    }
    if fields.0.is_empty() { Ok(Filter::Native(chain)) } else { Err(Error::Overlong) }
}

/// Reads a packed filter, from what follows the version.
pub(super) fn read_packed(source: &mut impl Source, ceiling: &impl Ceiling) -> Result<Filter, Error> {
    let bytes = source.bytes()?;
    let mut fields = PackedSource(bytes.as_ref());
    let kind = fields.u64()?;
    let filter = read(kind, &mut fields, ceiling)?;
    if fields.0.is_empty() { Ok(filter) } else { Err(Error::Overlong) }
}

/// Writes the cells of all layers, oldest first.
pub(super) fn write_cells(filter: &Filter, sink: &mut impl Sink) {
    filter.parts().flat_map(|(_, part)| part.stored_layers(usize::MAX)).for_each(|(_, layer)| layer.write(sink));
}

/// Reads the cells of all layers, of which the first `arrived_bytes` have arrived.
pub(super) fn read_cells(filter: &mut Filter, mut arrived_bytes: u64, source: &mut impl Source) -> Result<(), Error> {
    for part in 0..filter.part_count() {
        for place in 0..filter.part(part).map_or(0, |(_, part)| part.layer_count()) {
            let layer = filter.part(part).and_then(|(_, part)| Some(part.stored_layers(usize::MAX).nth(place)?.0));
            let layer = layer.unwrap_or_default();
            let cells = filter.part_mut(part).and_then(|part| part.layer_bytes_mut(layer)).unwrap_or_default();
            chunks::read_layer(cells, &mut arrived_bytes, source)?;
        }
    }
    Ok(())
}

/// Writes the table of each part: the number of its entries, then the entries in ascending order, in strings of 4096 and a last
/// one that may be shorter. Equal tables therefore have equal bytes, whatever their history.
pub(super) fn write_tables(filter: &Filter, sink: &mut impl Sink) {
    if !filter.has_tables() {
        return;
    }
    for part in 0..filter.part_count() {
        let table = filter.table(part);
        sink.put_u64(table.map_or(0, HashSet::len));
        let Some(table) = table else { continue };
        // On the stack, because a saving child must not allocate.
        let mut entries = [[0; ENTRY_BYTES]; HashSet::RUN];
        let written = table.for_each_sorted_run(|run| {
            entries.iter_mut().zip(run).for_each(|(entry, hash)| *entry = entry_of(*hash));
            sink.put_bytes(entries.get(..run.len()).unwrap_or_default().as_flattened());
            Ok::<(), crate::Error>(())
        });
        debug_assert!(written.is_ok(), "nothing refuses");
    }
}

/// Reads what [`write_tables`] wrote. Asks the ceiling for the entries of each table before it reads them.
pub(super) fn read_tables(filter: &mut Filter, source: &mut impl Source, ceiling: &impl Ceiling) -> Result<(), Error> {
    if !filter.has_tables() {
        return Ok(());
    }
    for part in 0..filter.part_count() {
        let mut left = source.u64()?;
        ceiling.allow(filter.size_bytes(), left.saturating_mul(ENTRY_BYTES as u64))?;
        while left > 0 {
            let run = hashes_in(source.bytes()?.as_ref())?;
            left = left.checked_sub(run.len() as u64).filter(|_| !run.is_empty()).ok_or(Error::WrongLength)?;
            take_entries(filter, part, &run)?;
        }
    }
    Ok(())
}

/// Appends the next entries to the table of a part.
pub(super) fn take_entries(filter: &mut Filter, part: usize, run: &[ItemHash]) -> Result<(), error::Error> {
    filter.part_mut(part).ok_or(error::Error::Unsound)?.take_deleted(run)
}

const _: () = assert!(CHUNK_BYTES.is_multiple_of(16), "a string of entries is not longer than a chunk");
