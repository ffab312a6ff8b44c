//! The cells of a filter in chunks of a fixed size: neither a child that saves nor a server that loads holds a second copy,
//! and a chunk of zeros costs a byte.

use std::borrow::Cow;
use std::ops::Range;

use super::{Error, Sink, Source};
use crate::cells::is_zero;
use crate::memory::reserve;
use crate::shape::{Chain, Rules};

/// Size of a chunk, in bytes. The last chunk of a layer is shorter.
pub const CHUNK_BYTES: usize = 1024 * 1024;

/// Layers as bytes.
pub trait LayerCells {
    /// Number of layers.
    fn layer_count(&self) -> usize;
    /// The cells of a layer, oldest first, as they are stored but for adds that pend; nothing where there is no such layer.
    fn layer_cells(&self, layer: usize) -> &[u8];
    /// Whether adds pend that belong to these cells of a layer.
    fn has_pending_in(&self, layer: usize, bytes: Range<usize>) -> bool;
    /// Sets in a copy of the cells of a layer from byte `begin` on what adds that pend leave there.
    fn put_pending(&self, layer: usize, copy: &mut [u8], begin: usize);
    /// The same, for a reader that fills them in.
    fn layer_cells_mut(&mut self, layer: usize) -> &mut [u8];
}

impl<R: Rules> LayerCells for Chain<R> {
    fn layer_count(&self) -> usize {
        self.layers().len()
    }

    fn layer_cells(&self, layer: usize) -> &[u8] {
        self.layers().get(layer).map_or(&[], |layer| layer.bytes())
    }

    fn has_pending_in(&self, layer: usize, bytes: Range<usize>) -> bool {
        self.whole(layer).is_some_and(|layer| layer.has_pending_in(bytes))
    }

    fn put_pending(&self, layer: usize, copy: &mut [u8], begin: usize) {
        if let Some(layer) = self.whole(layer) {
            layer.put_pending(copy, begin);
        }
    }

    fn layer_cells_mut(&mut self, layer: usize) -> &mut [u8] {
        self.layer_bytes_mut(layer).unwrap_or_default()
    }
}

/// The cells of a layer from one byte to another, with what pends there, in a copy where anything does.
///
/// # Errors
/// [`Error::Filter`] where there is no memory for the copy.
pub(super) fn cells_in<F: LayerCells>(filter: &F, layer: usize, bytes: Range<usize>) -> Result<Cow<'_, [u8]>, Error> {
    let cells = filter.layer_cells(layer).get(bytes.clone()).unwrap_or_default();
    if !filter.has_pending_in(layer, bytes.clone()) {
        return Ok(Cow::Borrowed(cells));
    }
    let mut copy = Vec::new();
    reserve(&mut copy, cells.len())?;
    copy.extend_from_slice(cells);
    filter.put_pending(layer, &mut copy, bytes.start);
    Ok(Cow::Owned(copy))
}

/// Writes the cells of all layers, oldest first; a chunk of zeros as an empty string.
pub(crate) fn write<F: LayerCells>(filter: &F, sink: &mut impl Sink) {
    for layer in 0..filter.layer_count() {
        for (number, chunk) in filter.layer_cells(layer).chunks(CHUNK_BYTES).enumerate() {
            let begin = number * CHUNK_BYTES;
            if filter.has_pending_in(layer, begin..begin + chunk.len()) {
                write_with_pending(filter, layer, chunk, begin, sink);
            } else {
                sink.put_bytes(if is_zero(chunk) { &[] } else { chunk });
            }
        }
    }
}

/// Writes a chunk with what pends in it. The copy is on the stack: writing cannot fail, in a child that saves least of all, and so
/// asks for no memory.
#[cold]
#[inline(never)]
fn write_with_pending<F: LayerCells>(filter: &F, layer: usize, chunk: &[u8], begin: usize, sink: &mut impl Sink) {
    let mut copy = [0; CHUNK_BYTES];
    if let Some(copy) = copy.get_mut(..chunk.len()) {
        copy.copy_from_slice(chunk);
        filter.put_pending(layer, copy, begin);
        sink.put_bytes(if is_zero(copy) { &[] } else { copy });
    }
}

/// Reads the cells of all layers, of which so many bytes have come; those after them are zeros.
///
/// # Errors
/// [`Error::WrongLength`], [`Error::OutOfRange`] for a cell that has not come, [`Error::Truncated`].
pub(crate) fn read<F: LayerCells>(filter: &mut F, arrived_bytes: u64, source: &mut impl Source) -> Result<(), Error> {
    let mut left = arrived_bytes;
    for layer in 0..filter.layer_count() {
        for target in filter.layer_cells_mut(layer).chunks_mut(CHUNK_BYTES) {
            let chunk = source.bytes()?;
            let chunk = chunk.as_ref();
            if chunk.len() == target.len() {
                let beyond = usize::try_from(left).ok().and_then(|left| chunk.get(left..)).unwrap_or_default();
                if !is_zero(beyond) {
                    return Err(Error::OutOfRange);
                }
                target.copy_from_slice(chunk);
            } else if !chunk.is_empty() {
                return Err(Error::WrongLength);
            }
            left = left.saturating_sub(target.len() as u64);
        }
    }
    Ok(())
}

/// Where a chunk lies: the layer and the range of its bytes.
pub(super) struct ChunkRange {
    pub(super) layer: usize,
    pub(super) bytes: Range<usize>,
}

/// Where chunk `number` of some layers lies.
pub(super) fn chunk_range<F: LayerCells>(filter: &F, layers: Range<usize>, mut number: u64) -> Option<ChunkRange> {
    for layer in layers {
        let size = filter.layer_cells(layer).len();
        let chunks = size.div_ceil(CHUNK_BYTES) as u64;
        if number < chunks {
            let begin = usize::try_from(number).ok()?.checked_mul(CHUNK_BYTES)?;
            return Some(ChunkRange { layer, bytes: begin..size.min(begin + CHUNK_BYTES) });
        }
        number -= chunks;
    }
    None
}

/// Number of bytes of all layers before a chunk.
pub(super) fn bytes_before<F: LayerCells>(filter: &F, number: u64) -> u64 {
    let Some(chunk) = chunk_range(filter, 0..filter.layer_count(), number) else { return u64::MAX };
    let before: u64 = (0..chunk.layer).map(|layer| filter.layer_cells(layer).len() as u64).sum();
    before.saturating_add(chunk.bytes.start as u64)
}

/// Number of chunks of some layers.
pub(super) fn chunks_of<F: LayerCells>(filter: &F, layers: Range<usize>) -> u64 {
    layers.map(|layer| filter.layer_cells(layer).len().div_ceil(CHUNK_BYTES) as u64).sum()
}
