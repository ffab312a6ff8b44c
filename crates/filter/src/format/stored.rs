//! The stored layout of our own values, version 1: what a snapshot (RDB type `bloomgate`), a DUMP payload and, in part, a
//! dump's header hold.
//!
//! ```text
//! uint   version         1
//! uint   kind            1 a Bloom filter; 4 one of counters; 6 one that forgets; one more: it is arriving in records;
//!                        3 one of RedisBloom's that is
//! uint   hash            1 MurmurHash3 x64 128, seeded; 2 SipHash-2-4 128, keyed
//! double rate            the rate that was asked for
//! uint   capacity        the capacity that was asked for
//! uint   expansion       0 for a fixed filter, which kind 4 is
//! uint   seed            of hash 2 two, the halves of the key
//! uint   policy          1: the rules of sizing by which the filter grows
//! kind 6 only:
//!   uint   window        in seconds; 0 where it forgets by the number of items
//!   uint   sliding       1 or 0
//!   uint   buckets       the most that are live, 3 to 64
//!   uint   buckets       that are there, at least 1; and for each, oldest first:
//!     uint   slot        on the grid of time
//!     uint   begin, end  milliseconds since 1970
//!     uint   capacity    of its first layer, as it was asked for
//!     uint   flags       bit 0: the filter is arriving and the dump omits this bucket; the other bits: the number of items that
//!                        a newer bucket also has, 0 unless the window slides
//!     uint   layers      and what each of them is, as below
//! uint   layers          1 to 4096; of kind 4 one, of the rate and the capacity that were asked for
//! for each layer, oldest first:
//!   double rate          its own
//!   uint   capacity
//!   uint   items
//!   uint   hashes        k
//!   uint   groups
//!   uint   blocks        of a group: of 512 bits, or of kind 4 of 512 counters of 4 bits, the low half of a byte first
//! arriving only:
//!   uint   generation    of the filter that is arriving, below 2^14
//!   uint   next          number of the record that is to come, from 0 on
//!   uint   tables        of hash 2, but for kind 4: how many tables have come
//! for each layer, oldest first, in chunks of 1 MiB (the last one shorter):
//!   string the cells, or an empty string for a chunk of zeros
//! hash 2, but for kind 4: of the filter, or of each bucket, the table of deleted items:
//!   uint   entries
//!   string hashes of 16 bytes, in ascending order: 4096 of them, fewer in the last string. A reader takes up to 1 MiB
//! ```
//! After kind 3, in place of everything up to the cells:
//! ```text
//! string header          as BF.LOADCHUNK got it
//! uint   arrived         bytes of all layers that have come, from the first on; 2^64 - 1 where there are gaps, which only
//!                        what a RedisBloom primary carries can have: then come instead
//!   uint ranges          that have come, at least 1, in order and not touching, and for each
//!     uint begin, end
//! ```
//! Without a gap, and without what came with version 0.2, the bytes are those that version 0.1.0 wrote, which refuses the
//! others.
//!
//! A chunk of zeros costs a byte, so an empty filter of any size saves in bytes; the fixed chunks keep the saving child
//! and the loading server from holding a second copy.

use super::record::{ENTRY_BYTES, entry_of, hashes_in};
use crate::ceiling::Ceiling;
use crate::chain::HashSet;
use crate::codec::{CHUNK_BYTES, Error, Sink, Source, chunks};
use crate::error;
use crate::hash::ItemHash;
use crate::kinds::Filter;
use crate::kinds::description::Description;

/// Writes a filter of our own layout, from `kind` on.
pub(super) fn write(filter: &Filter, sink: &mut impl Sink) {
    sink.put_u64(filter.kind().unwrap_or_default());
    filter.describe(sink);
    write_cells(filter, sink);
    write_tables(filter, sink);
}

/// Reads a filter of a kind, from what comes after `kind` on. The ceiling is asked before anything is allocated.
///
/// # Errors
/// For bytes that [`write`] cannot have written, and if the ceiling or the allocator refuses.
pub(super) fn read(kind: u64, source: &mut impl Source, ceiling: &impl Ceiling) -> Result<Filter, Error> {
    let mut filter = Description::read(kind, source)?.with_zero_cells(ceiling)?;
    read_cells(&mut filter, u64::MAX, source)?;
    read_tables(&mut filter, source, ceiling)?;
    filter.complete();
    Ok(filter)
}

/// Writes the cells of all layers, oldest first.
pub(super) fn write_cells(filter: &Filter, sink: &mut impl Sink) {
    filter.parts().flat_map(|(_, part)| part.layers()).for_each(|layer| layer.write(sink));
}

/// Reads the cells of all layers, of which the first `arrived_bytes` have arrived.
///
/// # Errors
/// As [`chunks::read_layer`].
pub(super) fn read_cells(filter: &mut Filter, mut arrived_bytes: u64, source: &mut impl Source) -> Result<(), Error> {
    for part in 0..filter.part_count() {
        for layer in 0..filter.part(part).map_or(0, |(_, part)| part.layer_count()) {
            let cells = filter.part_mut(part).and_then(|part| part.layer_bytes_mut(layer)).unwrap_or_default();
            chunks::read_layer(cells, &mut arrived_bytes, source)?;
        }
    }
    Ok(())
}

/// Writes the table of each part: the number of its entries, then the entries in ascending order, in strings of 4096 and a
/// last one that may be shorter. So equal tables are equal bytes, whatever was deleted and added again before.
pub(super) fn write_tables(filter: &Filter, sink: &mut impl Sink) {
    if !filter.has_tables() {
        return;
    }
    for part in 0..filter.part_count() {
        let table = filter.table(part);
        sink.put_u64(table.map_or(0, HashSet::len));
        let Some(table) = table else { continue };
        // On the stack: a child that saves asks for no memory.
        let mut entries = [[0; ENTRY_BYTES]; HashSet::RUN];
        let written = table.for_each_sorted_run(|run| {
            entries.iter_mut().zip(run).for_each(|(entry, hash)| *entry = entry_of(*hash));
            sink.put_bytes(entries.get(..run.len()).unwrap_or_default().as_flattened());
            Ok::<(), crate::Error>(())
        });
        debug_assert!(written.is_ok(), "nothing refuses");
    }
}

/// Reads what [`write_tables`] wrote. The ceiling is asked for the entries of each table before they are read.
///
/// # Errors
/// For entries that no table of the filter can have, or not in order; [`Error::Truncated`]; where the ceiling refuses.
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
///
/// # Errors
/// As [`PartMut::take_deleted`](crate::kinds::parts::PartMut::take_deleted).
pub(super) fn take_entries(filter: &mut Filter, part: usize, run: &[ItemHash]) -> Result<(), error::Error> {
    filter.part_mut(part).ok_or(error::Error::Unsound)?.take_deleted(run)
}

const _: () = assert!(CHUNK_BYTES.is_multiple_of(16), "a string of entries is not longer than a chunk");
