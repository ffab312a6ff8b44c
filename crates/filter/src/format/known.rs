//! The records that a filter already has. A rewritten AOF contains the records that have arrived, so that a reader continues
//! with the same one. And a client that got no reply repeats a record, which is accepted if the filter has it.

use super::places::{Chunk, Extent};
use super::record::{self, Content, encode_entries, piece_of};
use super::records::{ENTRIES, HEADER, Stream, decode_header, identity, numbered, numbers, records};
use crate::cells::is_zero;
use crate::chain::HashSet;
use crate::codec::Error;
use crate::kinds::Filter;

/// A record of a table: its entries from number `skipped` on, up to the capacity of a record.
#[derive(Clone, Copy)]
struct Piece {
    part: usize,
    skipped: u64,
    is_last: bool,
}

/// Returns the pieces of `tables` complete tables and of the table that is arriving, in the fewest records that can hold them.
/// A dump has more records of a table that it omitted because the table had changed.
fn pieces(filter: &Filter, tables: usize) -> impl Iterator<Item = Piece> {
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

/// Whether a filter with `tables` complete tables can have got `next` records after the header.
pub(super) fn can_have_come(filter: &Filter, next: u64, tables: usize) -> bool {
    let chunks = Extent::all().chunks(filter);
    let is_empty = |part| filter.table(part).is_none();
    let come = next.saturating_sub(chunks);
    let later = if next < chunks { 0 } else { tables + 1 };
    (later..filter.part_count()).all(is_empty)
        && pieces(filter, tables).count() as u64 <= come
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
    let nothing = Piece { part: usize::MAX, skipped: 0, is_last: false };
    let pieces = (chunks..next).zip(pieces(filter, tables).chain(std::iter::repeat(nothing)));
    cells.chain(pieces.map(move |(number, Piece { part, skipped, is_last })| {
        let iterator = stream.iterator(numbered(filter, 0, HEADER + 1 + number)?);
        let identity = identity(filter, stream.layers);
        let data = encode_entries(identity, iterator, filter.table(part), skipped, is_last)?;
        Ok((iterator, data))
    }))
}

/// Decodes a record after the header. Development builds before version 0.2 wrote records of rings without the number of
/// layers, which are accepted too.
///
/// # Errors
/// [`Error::WrongChecksum`], also for a record of a dump with another shape.
pub(super) fn decode<'a>(filter: &Filter, stream: Stream, iterator: u64, data: &'a [u8]) -> Result<Content<'a>, Error> {
    let bound_to = |layers| record::decode(identity(filter, layers), iterator, data);
    bound_to(stream.layers).or_else(|error| if error == Error::WrongChecksum { bound_to(0) } else { Err(error) })
}

/// Accepts a record that a filter already has, which changes nothing. `generation` is that of its dump.
///
/// # Errors
/// As [`check`].
pub(super) fn is_duplicate_record(filter: &Filter, generation: u16, iterator: u64, data: &[u8]) -> Result<(), Error> {
    check(filter, filter.part_count(), generation, iterator, data)
}

/// Accepts a record that a filter with `tables` complete tables already has. A client that sends all records of a dump without
/// an error can therefore be sure that the filter has everything in the dump, whatever else was sent.
///
/// A filter has a record if all bits of the record are set, or its counters are equal, or a table's entries are exactly those
/// of the record: additional entries would make items of the dump absent.
///
/// # Errors
/// [`Error::WrongGeneration`], [`Error::WrongChecksum`] for a record of another filter, or of a ring with other buckets;
/// [`Error::Different`] for a record that the filter does not have; and errors for bytes that are no record.
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
        let content = decode(filter, stream, iterator, data)?;
        let extent = Extent::first(stream.layers);
        match extent.chunk(filter, number) {
            Some(chunk) => has_chunk(filter, chunk, content)?,
            None => has_piece(filter, tables, number - extent.chunks(filter), content)?,
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

fn has_piece(filter: &Filter, tables: usize, number: u64, content: Content<'_>) -> Result<bool, Error> {
    let Content::Entries { bytes, is_last } = content else { return Err(Error::OutOfRange) };
    // The placeholder of a record that the entries do not need: every filter has nothing.
    if bytes.is_empty() && !is_last {
        return Ok(true);
    }
    let number = usize::try_from(number).map_err(|_| Error::OutOfRange)?;
    let piece = pieces(filter, tables).nth(number).filter(|piece| piece.is_last == is_last);
    let Some(piece) = piece else { return Ok(false) };
    let here = filter.table(piece.part).map(|table| piece_of(table, piece.skipped)).transpose()?;
    Ok(here.unwrap_or_default() == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::Layer;
    use crate::{BloomFilter, Scaling, Unlimited};

    #[test]
    fn a_duplicate_record_after_the_last_is_accepted() {
        let mut filter = BloomFilter::new(0.01, 10, Scaling::from_expansion(4), 7, &Unlimited).unwrap();
        (0..70u32).for_each(|number| _ = filter.add(&number.to_le_bytes(), &Unlimited).unwrap());
        let layers: Vec<_> = filter.layers().iter().map(Layer::description).collect();
        let other = BloomFilter::with_zero_bits(filter.spec(), &layers, &Unlimited).unwrap().into();
        let mut copy = filter.try_clone().unwrap();
        copy.add(b"added since", &Unlimited).unwrap();
        let (filter, copy) = (filter.into(), copy.into());
        let records: Vec<_> = records(&filter, 5).collect::<Result<_, _>>().unwrap();
        for (iterator, data) in &records {
            assert_eq!(is_duplicate_record(&copy, 5, *iterator, data), Ok(()));
            assert_eq!(is_duplicate_record(&copy, 6, *iterator, data), Err(Error::WrongGeneration));
        }
        assert_eq!(is_duplicate_record(&other, 5, records[1].0, &records[1].1), Err(Error::Different));
    }
}
