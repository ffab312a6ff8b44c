//! The stored layout of our own values: the format of a snapshot (RDB type `bloomgate`), of a DUMP payload and, in
//! part, of a dump's header.
//!
//! ```text
//! uint   version         1; 2 is specified below
//! uint   kind            1 native; 4 counting; 6 windowed; 2, 5, 7: a filter of these kinds that is arriving in records;
//!                        3 RedisBloom's, arriving
//! uint   hash            1 MurmurHash3 x64 128, seeded; 2 SipHash-2-4 128, keyed
//! double rate            the requested rate
//! uint   capacity        the requested capacity
//! uint   expansion       0 for a fixed filter; always 0 for kind 4
//! uint   seed            for hash 2, two numbers: the halves of the key
//! uint   policy          the rules by which the filter is sized: 1, or 2 (`geometry/sizing.rs`). Only filters of kind 1 may have 2:
//!                        those with a rate below 0.0001, growing ones for up to 128 items, and fixed ones with a rate of 0.02 or
//!                        more. Version 0.2.0 refuses it
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
//! for each layer, oldest first:
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
//!   uint   tables        for hash 2, except with kind 4: the number of tables that have arrived
//! for each layer, oldest first, in chunks of 1 MiB (the last one shorter):
//!   string the cells, or an empty string for a chunk of zeros
//! hash 2, except with kind 4: the table of deleted items of the filter, or of each bucket:
//!   uint   entries
//!   string hashes of 16 bytes, in ascending order: 4096 per string, fewer in the last. A reader accepts up to 1 MiB
//! ```
//! After kind 3, instead of everything before the cells:
//! ```text
//! string header          as BF.LOADCHUNK received it
//! uint   arrived         bytes of all layers that have arrived, from the first on; 2^64 - 1 if there are gaps, which only
//!                        records from a RedisBloom primary can leave. Then follow:
//!   uint ranges          the number of ranges that have arrived, at least 1, in order and not adjacent; for each:
//!     uint begin, end
//! ```
//! Version 2 is for filters with policy 2 that fit: a server with a million small filters spends most of its loading time on reading
//! one number after another.
//! ```text
//! uint   version         2
//! string what version 1 has after `version`, at most 1024 bytes: uints in LEB128, in as few bytes as possible, doubles in 8 bytes
//!                        from the lowest on, strings after their length, which is a uint. Kinds 1, 4 and 6 only
//! ```
//! Values without gaps and without features of version 0.2 have the same bytes as in version 0.1.0, which refuses the others.
//!
//! A chunk of zeros takes a byte, so an empty filter of any size takes a few bytes. Because of the fixed chunk size, neither
//! the saving child nor the loading server holds a second copy of the cells.

use super::records::{ENTRY_BYTES, entry_of, hashes_in};
use crate::chain::HashSet;
use crate::codec::{CHUNK_BYTES, Error, PACKED_MAX, PackedSink, PackedSource, Sink, Source, chunks};
use crate::error;
use crate::geometry::sizing::Policy;
use crate::hash::ItemHash;
use crate::host::Ceiling;
use crate::kinds::Filter;
use crate::kinds::parts::Description;

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

/// Packs a filter; `None` if it is not stored packed. What does not fit into the sink is not, either.
pub(super) fn pack(filter: &Filter) -> Option<PackedSink> {
    let Filter::Native(chain) = filter else { return None };
    if chain.spec().policy == Policy::One || chain.size_bytes() > PACKED_MAX as u64 {
        return None;
    }
    let mut sink = PackedSink::new();
    write(filter, &mut sink);
    Some(sink)
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
    filter.parts().flat_map(|(_, part)| part.layers()).for_each(|layer| layer.write(sink));
}

/// Reads the cells of all layers, of which the first `arrived_bytes` have arrived.
pub(super) fn read_cells(filter: &mut Filter, mut arrived_bytes: u64, source: &mut impl Source) -> Result<(), Error> {
    for part in 0..filter.part_count() {
        for layer in 0..filter.part(part).map_or(0, |(_, part)| part.layer_count()) {
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

/// Takes the next entries of the table of a part.
pub(super) fn take_entries(filter: &mut Filter, part: usize, run: &[ItemHash]) -> Result<(), error::Error> {
    filter.part_mut(part).ok_or(error::Error::Unsound)?.take_deleted(run)
}

const _: () = assert!(CHUNK_BYTES.is_multiple_of(16), "a string of entries is not longer than a chunk");
