//! The argument of BF.LOAD, of which valkey-bloom's AOF consists. `snapshot.rs` specifies it beside the snapshot.

use super::parts::Parts;
use super::{ValkeyBloom, ValkeyBloomFilter};
use crate::ceiling::Ceiling;
use crate::codec::{Error, Packed, number_of_layers};
use crate::memory::{reserve, try_copy};

const LOAD_VERSION: u8 = 1;

/// The length of the argument of BF.LOAD, in bytes.
#[must_use]
pub fn length(filter: &ValkeyBloomFilter) -> usize {
    /// The length before the layers, and of each layer without its bitmap.
    const FRONT_BYTES: usize = 1 + 4 + 8 + 8 + 1 + 8;
    const LAYER_BYTES: usize = 3 * 8;
    filter.layers().iter().fold(FRONT_BYTES, |sum, layer| sum + LAYER_BYTES + layer.cells().stored().len())
}

/// Passes the argument of BF.LOAD to `tell` in pieces, [`length`] bytes in total.
pub fn write(filter: &ValkeyBloomFilter, mut put: impl FnMut(&[u8])) {
    let rules = filter.rules();
    put(&[LOAD_VERSION]);
    put(&rules.scaling.expansion().to_le_bytes());
    put(&rules.rate.to_le_bytes());
    put(&rules.tightening.to_le_bytes());
    put(&[rules.is_seed_random.into()]);
    put(&(filter.layers().len() as u64).to_le_bytes());
    for layer in filter.layers() {
        let stored = layer.cells().stored();
        put(&(stored.len() as u64).to_le_bytes());
        put(stored);
        put(&layer.items().to_le_bytes());
        put(&layer.capacity().to_le_bytes());
    }
}

/// Returns the argument of BF.LOAD.
///
/// # Errors
/// [`Error::Filter`] if there is no memory for it.
pub fn encode(filter: &ValkeyBloomFilter) -> Result<Vec<u8>, Error> {
    let mut data = Vec::new();
    reserve(&mut data, length(filter))?;
    write(filter, |part| data.extend_from_slice(part));
    Ok(data)
}

/// Reads a filter from an argument of BF.LOAD. Ignores trailing bytes.
///
/// # Errors
/// [`Error::UnknownVersion`], and as [`read`](super::snapshot::read).
pub fn decode(data: &[u8], ceiling: &impl Ceiling) -> Result<ValkeyBloomFilter, Error> {
    let mut fields = Packed(data);
    let version = fields.u8()?;
    if version != LOAD_VERSION {
        return Err(Error::UnknownVersion(version.into()));
    }
    let expansion = fields.u32()?;
    let (rate, tightening) = (fields.f64()?, fields.f64()?);
    let is_seed_random = fields.u8()?;
    let count = number_of_layers::<ValkeyBloom>(fields.u64()?, ceiling)?;
    let mut parts = Parts::new(expansion, rate, tightening, is_seed_random.into())?;
    for _ in 0..count {
        let length = usize::try_from(fields.u64()?).map_err(|_| Error::Truncated)?;
        let (stored, rest) = fields.0.split_at_checked(length).ok_or(Error::Truncated)?;
        fields.0 = rest;
        parts.check(length, ceiling)?;
        let items = u64::try_from(i64::from_le_bytes(fields.take()?)).map_err(|_| Error::OutOfRange)?;
        let capacity = u64::try_from(i64::from_le_bytes(fields.take()?)).map_err(|_| Error::OutOfRange)?;
        parts.push(capacity, items, try_copy(stored)?)?;
    }
    parts.into_filter()
}
