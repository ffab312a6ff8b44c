//! The records that a filter which is arriving has had, told again, for an AOF that is rewritten meanwhile: whoever reads
//! them has to be where this filter is, and go on with the same record.

use super::Error;
use super::record::encode_entries;
use super::records::{ENTRIES, HEADER, Recorded, Stream, chunks_of, identity, numbered, records};
use crate::shape::HashSet;

/// A record of a table: so many entries after the first are in the ones before it.
#[derive(Clone, Copy)]
struct Piece {
    part: usize,
    skipped: u64,
    is_last: bool,
}

/// The pieces of the tables that have come, and of the one that is coming. How many there were of each in the dump is not
/// known: these are as few as there can have been.
fn pieces<F: Recorded>(filter: &F, tables: usize) -> impl Iterator<Item = Piece> {
    (0..=tables).flat_map(move |part| {
        let is_whole = part < tables;
        let entries = filter.table(part).map_or(0, HashSet::len);
        let count = entries.div_ceil(ENTRIES as u64).max(is_whole.into());
        (0..count).map(move |index| Piece {
            part,
            skipped: index * ENTRIES as u64,
            is_last: is_whole && index + 1 == count,
        })
    })
}

/// Whether a filter can have had `next` records after the header, the last of `tables` tables among them.
pub(super) fn can_have_come<F: Recorded>(filter: &F, next: u64, tables: usize) -> bool {
    let chunks = chunks_of(filter, 0..filter.layer_count());
    let is_empty = |part| filter.table(part).is_none();
    let come = next.saturating_sub(chunks);
    let later = if next < chunks { 0 } else { tables + 1 };
    (later..filter.part_count()).all(is_empty)
        && pieces(filter, tables).count() as u64 <= come
        && numbered(filter, 0, next.saturating_add(HEADER + 1)).is_ok()
}

/// The header and the `next` records after it. Where the dump had more for its tables than their entries need, empty ones
/// come in their place. An error is the last.
pub(super) fn told_again<F: Recorded>(
    filter: &F,
    generation: u16,
    next: u64,
    tables: usize,
) -> impl Iterator<Item = Result<(u64, Vec<u8>), Error>> {
    let chunks = chunks_of(filter, 0..filter.layer_count()).min(next);
    let cells = records(filter, generation).take(usize::try_from(chunks).unwrap_or(usize::MAX).saturating_add(1));
    let stream = Stream::of(filter, generation);
    let nothing = Piece { part: usize::MAX, skipped: 0, is_last: false };
    let pieces = (chunks..next).zip(pieces(filter, tables).chain(std::iter::repeat(nothing)));
    cells.chain(pieces.map(move |(number, Piece { part, skipped, is_last })| {
        let iterator = stream.iterator(numbered(filter, 0, HEADER + 1 + number)?);
        let data = encode_entries(identity(filter, stream), iterator, filter.table(part), skipped, is_last)?;
        Ok((iterator, data))
    }))
}
