//! The cells of a filter in chunks of a fixed size: neither a child that saves nor a server that loads holds a second copy,
//! and a chunk of zeros costs a byte.

use super::{Error, Sink, Source};
use crate::cells::is_zero;
use crate::shape::{Chain, Rules};

/// Size of a chunk, in bytes. The last chunk of a layer is shorter.
pub const CHUNK_BYTES: usize = 1024 * 1024;

/// Writes the cells of all layers, oldest first; a chunk of zeros as an empty string.
pub(crate) fn write<R: Rules>(filter: &Chain<R>, sink: &mut impl Sink) {
    for layer in filter.layers() {
        for chunk in layer.bytes().chunks(CHUNK_BYTES) {
            sink.put_bytes(if is_zero(chunk) { &[] } else { chunk });
        }
    }
}

/// Reads the cells of all layers, of which so many bytes have come; those after them are zeros.
///
/// # Errors
/// [`Error::WrongLength`], [`Error::OutOfRange`] for a bit that has not come, [`Error::Truncated`].
pub(crate) fn read<R: Rules>(filter: &mut Chain<R>, arrived_bytes: u64, source: &mut impl Source) -> Result<(), Error> {
    let mut left = arrived_bytes;
    for layer in 0..filter.layers().len() {
        for target in filter.layer_bytes_mut(layer).unwrap_or_default().chunks_mut(CHUNK_BYTES) {
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
