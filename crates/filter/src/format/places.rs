//! The chunks of a filter: its layers, part after part, in chunks of a fixed size.

use std::ops::Range;

use crate::codec::CHUNK_BYTES;
use crate::kinds::Filter;
use crate::kinds::parts::LayerRef;

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
        let layers = parts
            .flat_map(|(index, part)| part.layers().enumerate().map(move |(number, layer)| (index, number, layer)));
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
                let begin = usize::try_from(number).ok()?.checked_mul(CHUNK_BYTES)?;
                let bytes = begin..cells.bytes().len().min(begin + CHUNK_BYTES);
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
    layer.bytes().len().div_ceil(CHUNK_BYTES) as u64
}
