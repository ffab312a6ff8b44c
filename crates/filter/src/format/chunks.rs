//! The cells of a filter in chunks of a fixed size: neither a child that saves nor a server that loads holds a second copy,
//! and a chunk of zeros costs a byte.

use super::{Error, Sink, Source};
use crate::cells::is_zero;
use crate::shape::{Chain, Rules};

/// Size of a chunk, in bytes. The last chunk of a layer is shorter.
pub const CHUNK_BYTES: usize = 1024 * 1024;

/// Layers as bytes.
pub trait LayerCells {
    /// Number of layers.
    fn layer_count(&self) -> usize;
    /// The cells of a layer, oldest first, as they are stored; nothing where there is no such layer.
    fn layer_cells(&self, layer: usize) -> &[u8];
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

    fn layer_cells_mut(&mut self, layer: usize) -> &mut [u8] {
        self.layer_bytes_mut(layer).unwrap_or_default()
    }
}

/// Writes the cells of all layers, oldest first; a chunk of zeros as an empty string.
pub(crate) fn write<F: LayerCells>(filter: &F, sink: &mut impl Sink) {
    for layer in 0..filter.layer_count() {
        for chunk in filter.layer_cells(layer).chunks(CHUNK_BYTES) {
            sink.put_bytes(if is_zero(chunk) { &[] } else { chunk });
        }
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
