//! What a dump remembers of a filter whose parts may be dropped or whose tables change meanwhile: the parts as they were when
//! it began. A file of its own because other filters need no memory of their dumps.

use std::ops::Range;

use super::Error;
use super::chunks::{ChunkRange, chunk_range, chunks_of};
use super::records::{ENTRIES, Recorded, identity};
use crate::memory::reserve;
use crate::shape::HashSet;

/// A part of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Tells it from the others for good.
    pub name: u64,
    /// Number of its layers.
    pub layers: usize,
    /// How often its table has changed.
    pub revision: u64,
}

/// What a filter was when the last dump of it began, if parts of it may be dropped or its tables change. That dump goes on
/// with what is still there; an earlier one has to begin again if anything has changed between the two.
#[derive(Clone, Debug, Default)]
pub struct DumpMark {
    number: u8,
    /// See [`identity`].
    identity: u32,
    parts: Vec<MarkedPart>,
}

/// A part, as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MarkedPart {
    part: Part,
    chunks: u64,
    entries: u64,
}

impl MarkedPart {
    /// Number of records of its table: at least the one that says that it ends.
    fn table_records(self) -> u64 {
        self.entries.div_ceil(ENTRIES as u64).max(1)
    }
}

impl DumpMark {
    /// Whether no dump has begun of a filter that has to be marked.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Marks a filter as it is now.
    pub(super) fn set<F: Recorded>(&mut self, filter: &F) -> Result<(), Error> {
        let mut parts = Vec::new();
        reserve(&mut parts, filter.part_count())?;
        let mut first = 0;
        for index in 0..filter.part_count() {
            let Some(part) = filter.part(index) else { break };
            let chunks = chunks_of(filter, first..first + part.layers);
            first += part.layers;
            parts.push(MarkedPart { part, chunks, entries: filter.table(index).map_or(0, HashSet::len) });
        }
        if parts != self.parts {
            self.number = self.number.wrapping_add(1);
            self.parts = parts;
            self.identity = identity(filter, filter.layer_count());
        }
        Ok(())
    }

    /// Number of layers of the marked filter.
    pub(super) fn layers(&self) -> usize {
        self.parts.iter().map(|marked| marked.part.layers).sum()
    }

    /// Tells this dump from the ones before it.
    pub(super) const fn number(&self) -> u8 {
        self.number
    }

    /// See [`identity`].
    pub(super) const fn identity(&self) -> u32 {
        self.identity
    }

    /// Where record `number` after the header is.
    pub(super) fn place<F: Recorded>(&self, filter: &F, mut number: u64) -> Option<Place> {
        for marked in &self.parts {
            if number < marked.chunks {
                let Some((_, first)) = find_part(filter, marked.part.name) else { return Some(Place::Gone) };
                return place_in(filter, first..first + marked.part.layers, number);
            }
            number -= marked.chunks;
        }
        for marked in self.parts.iter().filter(|_| filter.has_tables()) {
            if number < marked.table_records() {
                let part = find_part(filter, marked.part.name).map(|(index, _)| index);
                let is_unchanged = |part: Part| part.revision == marked.part.revision;
                let part = part.filter(|index| filter.part(*index).is_some_and(is_unchanged));
                let is_last = number + 1 == marked.table_records();
                return Some(Place::Entries { part, skipped: number * ENTRIES as u64, is_last });
            }
            number -= marked.table_records();
        }
        None
    }
}

/// What a record after the header is of.
pub(super) enum Place {
    Cells {
        range: ChunkRange,
        /// Whether its layer was the newest of its part when the dump began: it may have taken items since.
        is_newest: bool,
    },
    /// Cells of a part that was dropped since.
    Gone,
    /// Entries of the table of a part, from number `skipped` on; none if the table has changed or was dropped since.
    Entries { part: Option<usize>, skipped: u64, is_last: bool },
}

/// Where chunk `number` of a part of these layers is.
pub(super) fn place_in<F: Recorded>(filter: &F, layers: Range<usize>, number: u64) -> Option<Place> {
    let end = layers.end;
    let range = chunk_range(filter, layers, number)?;
    Some(Place::Cells { is_newest: range.layer + 1 == end, range })
}

/// The index of the part with this name, and that of its first layer.
fn find_part<F: Recorded>(filter: &F, name: u64) -> Option<(usize, usize)> {
    let mut first = 0;
    for index in 0..filter.part_count() {
        let part = filter.part(index)?;
        if part.name == name {
            return Some((index, first));
        }
        first += part.layers;
    }
    None
}
