//! The cells of a layer in chunks of a fixed size, so that neither a saving child nor a loading server holds a second copy. A
//! chunk of zeros takes one byte.

use std::borrow::Cow;
use std::ops::Range;

use super::{Error, Sink, Source};
use crate::cells::is_zero;
use crate::chain::{Chain, Rules, Whole};
use crate::geometry::Geometry;
use crate::memory::reserve;

/// Size of a chunk, in bytes. The last chunk of a layer is shorter.
pub const CHUNK_BYTES: usize = 1024 * 1024;

/// Returns a range of a layer's cells, pending adds included: a copy if there are any in the range.
///
/// # Errors
/// [`Error::Filter`] if there is no memory for the copy.
pub(crate) fn cells_in<G: Geometry>(layer: Whole<'_, G>, bytes: Range<usize>) -> Result<Cow<'_, [u8]>, Error> {
    let cells = layer.layer().bytes().get(bytes.clone()).unwrap_or_default();
    if !layer.has_pending_in(bytes.clone()) {
        return Ok(Cow::Borrowed(cells));
    }
    let mut copy = Vec::new();
    reserve(&mut copy, cells.len())?;
    copy.extend_from_slice(cells);
    layer.put_pending(&mut copy, bytes.start);
    Ok(Cow::Owned(copy))
}

/// Writes the cells of a layer; a chunk of zeros as an empty string.
pub(crate) fn write_layer<G: Geometry>(layer: Whole<'_, G>, sink: &mut impl Sink) {
    let is_untouched = layer.layer().is_untouched();
    for (number, chunk) in layer.layer().bytes().chunks(CHUNK_BYTES).enumerate() {
        let begin = number * CHUNK_BYTES;
        if layer.has_pending_in(begin..begin + chunk.len()) {
            write_with_pending(layer, chunk, begin, sink);
        } else {
            sink.put_bytes(if is_untouched || is_zero(chunk) { &[] } else { chunk });
        }
    }
}

/// Writes a chunk with its pending adds. The copy is on the stack, because writing must not fail, least of all in a saving
/// child.
#[cold]
#[inline(never)]
fn write_with_pending<G: Geometry>(layer: Whole<'_, G>, chunk: &[u8], begin: usize, sink: &mut impl Sink) {
    let mut copy = [0; CHUNK_BYTES];
    if let Some(copy) = copy.get_mut(..chunk.len()) {
        copy.copy_from_slice(chunk);
        layer.put_pending(copy, begin);
        sink.put_bytes(if is_zero(copy) { &[] } else { copy });
    }
}

/// Reads the cells of a layer. Only the first `arrived_bytes` may have a cell set; the length of the layer is subtracted.
///
/// # Errors
/// [`Error::WrongLength`], [`Error::OutOfRange`] for a cell that has not arrived, [`Error::Truncated`].
pub(crate) fn read_layer(cells: &mut [u8], arrived_bytes: &mut u64, source: &mut impl Source) -> Result<(), Error> {
    for target in cells.chunks_mut(CHUNK_BYTES) {
        let chunk = source.bytes()?;
        let chunk = chunk.as_ref();
        if chunk.len() == target.len() {
            let beyond = usize::try_from(*arrived_bytes).ok().and_then(|left| chunk.get(left..)).unwrap_or_default();
            if !is_zero(beyond) {
                return Err(Error::OutOfRange);
            }
            target.copy_from_slice(chunk);
        } else if !chunk.is_empty() {
            return Err(Error::WrongLength);
        }
        *arrived_bytes = arrived_bytes.saturating_sub(target.len() as u64);
    }
    Ok(())
}

/// Writes the cells of all layers of a chain, oldest first.
pub(crate) fn write<R: Rules>(chain: &Chain<R>, sink: &mut impl Sink) {
    chain.whole_layers().for_each(|layer| write_layer(layer, sink));
}

/// Reads what [`write`] wrote.
///
/// # Errors
/// As [`read_layer`].
pub(crate) fn read<R: Rules>(
    chain: &mut Chain<R>,
    mut arrived_bytes: u64,
    source: &mut impl Source,
) -> Result<(), Error> {
    (0..chain.layers().len())
        .try_for_each(|layer| read_layer(chain.layer_bytes_mut(layer).unwrap_or_default(), &mut arrived_bytes, source))
}
