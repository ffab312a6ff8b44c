//! What a dump remembers of a filter whose parts may be dropped or whose tables change meanwhile: the parts as they were when
//! it began. A file of its own because other filters need no memory of their dumps.

use super::places::{Chunk, Extent};
use super::records::{ENTRIES, identity};
use crate::chain::HashSet;
use crate::codec::Error;
use crate::kinds::Filter;
use crate::memory::reserve;

/// What a filter was when the last dump of it began, if parts of it may be dropped or its tables may change. That dump
/// continues with what is left; an earlier dump must start again if anything has changed between the two.
#[derive(Clone, Debug, Default)]
pub struct DumpMark {
    number: u8,
    /// See [`identity`].
    identity: u32,
    parts: Vec<MarkedPart>,
}

/// A part as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MarkedPart {
    /// Never the name of another part.
    name: u64,
    layers: usize,
    chunks: u64,
    entries: u64,
    /// How often its table had changed.
    revision: u64,
}

impl MarkedPart {
    /// Number of records of its table: at least the one that ends it.
    fn table_records(self) -> u64 {
        self.entries.div_ceil(ENTRIES as u64).max(1)
    }

    /// Its index now; none if it was dropped.
    fn index(self, filter: &Filter) -> Option<usize> {
        filter.parts().position(|(name, _)| name == self.name)
    }
}

impl DumpMark {
    /// Whether no dump of a filter that must be marked has begun.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Marks a filter as it is now.
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

    /// Number of layers of the marked filter.
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

    /// What record `number` after the header contains.
    pub(super) fn place(&self, filter: &Filter, mut number: u64) -> Option<Place> {
        for marked in &self.parts {
            if number < marked.chunks {
                let Some(part) = marked.index(filter) else { return Some(Place::Gone) };
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

/// What a record after the header contains.
pub(super) enum Place {
    /// Cells. Their layer may have taken items since if it was the last of its part when the dump began.
    Cells(Chunk),
    /// Cells of a part that was dropped since.
    Gone,
    /// Entries of the table of a part, from number `skipped` on; none if the table has changed or was dropped since.
    Entries { part: Option<usize>, skipped: u64, is_last: bool },
}
