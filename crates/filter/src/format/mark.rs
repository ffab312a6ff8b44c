//! The mark of a dump: the parts of the filter as they were when the dump began. Only filters whose parts may be dropped or
//! whose tables may change need it, so it is a separate file.

use super::places::{Chunk, Extent};
use super::records::{ENTRIES, identity};
use crate::chain::HashSet;
use crate::codec::Error;
use crate::kinds::Filter;
use crate::memory::reserve;

/// The state of a filter when its last dump began, if parts of it may be dropped or its tables may change. That dump continues
/// with the parts that remain. An earlier dump must start again if anything changed between the two.
#[derive(Clone, Debug, Default)]
pub struct DumpMark {
    number: u8,
    /// See [`identity`].
    identity: u32,
    parts: Vec<MarkedPart>,
}

/// A part as it was then.
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
    #[must_use]
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
                return Some(Place::Entries { part, skipped: number * ENTRIES as u64, is_last });
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
    /// Entries of the table of a part, starting at number `skipped`; none if the table has changed or been dropped since.
    Entries { part: Option<usize>, skipped: u64, is_last: bool },
}
