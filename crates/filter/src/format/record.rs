//! The encoding of a record after the header, which `records.rs` specifies: a tag, a checksum, and cells or hashes.

use crate::cells::is_zero;
use crate::chain::HashSet;
use crate::codec::{CHUNK_BYTES, Error};
use crate::error;
use crate::hash::ItemHash;
use crate::memory::reserve;

const TAG_ZEROS: u8 = 0;
const TAG_CELLS: u8 = 1;
/// Added to a tag if the number of the layer's items precedes the cells.
const TAG_COUNTED: u8 = 2;
const TAG_DROPPED: u8 = 4;
const TAG_ENTRIES: u8 = 5;
const TAG_LAST_ENTRIES: u8 = 6;
/// Size of an entry of a table, in bytes.
pub(super) const ENTRY_BYTES: usize = size_of::<ItemHash>();

/// Returns the entries of a table from number `skipped` on, as many as a record holds, as bytes.
pub(super) fn piece_of(table: &HashSet, skipped: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    reserve(&mut bytes, CHUNK_BYTES)?;
    let mut left = usize::try_from(skipped).unwrap_or(usize::MAX);
    table.for_each_sorted_run(|run| {
        let begin = left.min(run.len());
        left -= begin;
        let room = (CHUNK_BYTES - bytes.len()) / ENTRY_BYTES;
        let taken = run.get(begin..).unwrap_or_default().iter().take(room);
        taken.for_each(|hash| bytes.extend_from_slice(&entry_of(*hash)));
        Ok::<(), error::Error>(())
    })?;
    Ok(bytes)
}

/// Encodes a hash as an entry.
pub(super) fn entry_of(hash: ItemHash) -> [u8; ENTRY_BYTES] {
    (u128::from(hash.h1) | u128::from(hash.h2) << 64).to_le_bytes()
}

/// Decodes hashes.
///
/// # Errors
/// [`Error::WrongLength`] for an incomplete entry, or more entries than fit a record; [`Error::Filter`] if there is no memory.
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

/// Returns the checksum of a record that is not the header. `parts` is what follows the checksum.
fn record_checksum(identity: u32, iterator: u64, tag: u8, parts: [&[u8]; 2]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&identity.to_le_bytes());
    hasher.update(&iterator.to_le_bytes());
    hasher.update(&[tag]);
    parts.into_iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// Encodes cells, with the number of their layer's items if that may have changed.
pub(super) fn encode_chunk(identity: u32, iterator: u64, items: Option<u64>, cells: &[u8]) -> Result<Vec<u8>, Error> {
    let (tag, cells) = if is_zero(cells) { (TAG_ZEROS, &[][..]) } else { (TAG_CELLS, cells) };
    let tag = tag | if items.is_some() { TAG_COUNTED } else { 0 };
    let items = items.map(u64::to_le_bytes);
    encode_parts(identity, iterator, tag, [items.as_ref().map_or(&[][..], |bytes| &bytes[..]), cells])
}

/// Encodes the record of cells that were dropped.
pub(super) fn encode_dropped(identity: u32, iterator: u64) -> Result<Vec<u8>, Error> {
    encode_parts(identity, iterator, TAG_DROPPED, [&[], &[]])
}

/// Encodes the entries of a table from number `skipped` on.
pub(super) fn encode_entries(
    identity: u32,
    iterator: u64,
    table: Option<&HashSet>,
    skipped: u64,
    is_last: bool,
) -> Result<Vec<u8>, Error> {
    let entries = table.map(|table| piece_of(table, skipped)).transpose()?;
    let tag = if is_last { TAG_LAST_ENTRIES } else { TAG_ENTRIES };
    encode_parts(identity, iterator, tag, [&entries.unwrap_or_default(), &[]])
}

fn encode_parts(identity: u32, iterator: u64, tag: u8, parts: [&[u8]; 2]) -> Result<Vec<u8>, Error> {
    let [first, second] = parts;
    let mut data = Vec::new();
    reserve(&mut data, 5 + first.len() + second.len())?;
    data.push(tag);
    data.extend_from_slice(&record_checksum(identity, iterator, tag, parts).to_le_bytes());
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
    /// A piece of a table.
    Entries {
        /// Hashes of 16 bytes.
        bytes: &'a [u8],
        /// Whether this is the table's last piece.
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
