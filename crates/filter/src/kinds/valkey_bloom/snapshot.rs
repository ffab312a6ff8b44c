//! The snapshot of valkey-bloom's filters, RDB type `bloomfltr`, encoding 1. Beside it is the argument of BF.LOAD, whose codec
//! is in `load.rs`.
//!
//! ```text
//! snapshot                          BF.LOAD, packed, little-endian
//! uint   layers                     u8  version, 1
//! uint   expansion, 0: fixed        u32 expansion
//! double rate                       f64 rate
//! double tightening ratio           f64 tightening ratio
//! uint   whether the seed is random u8  whether the seed is random
//! for each layer, oldest first:     u64 layers, and for each:
//!   uint   capacity                   u64 length and the bitmap
//!   uint   items, of the last only    i64 items
//!   string bitmap                     i64 capacity
//!
//! bitmap   u8 version, 1 | u64 length of the bits in bytes | u32 k | 32 bytes seed | the bits
//! ```
//! Every layer except the last is full. All layers of a filter have the same seed.

use super::parts::Parts;
use super::{ValkeyBloom, ValkeyBloomFilter};
use crate::ceiling::Ceiling;
use crate::codec::{Error, Sink, Source, number_of_layers};

/// The encoding.
pub const ENCODING: u32 = 1;

/// Writes a filter.
pub fn write(filter: &ValkeyBloomFilter, sink: &mut impl Sink) {
    let rules = filter.rules();
    sink.put_u64(filter.layers().len() as u64);
    sink.put_u64(rules.scaling.expansion().into());
    sink.put_f64(rules.rate);
    sink.put_f64(rules.tightening);
    sink.put_u64(rules.is_seed_random.into());
    let last = filter.layers().len().saturating_sub(1);
    for (index, layer) in filter.layers().iter().enumerate() {
        sink.put_u64(layer.capacity());
        if index == last {
            sink.put_u64(layer.items());
        }
        sink.put_bytes(layer.cells().stored());
    }
}

/// Reads a filter. Asks the ceiling for each layer as it arrives.
///
/// # Errors
/// For bytes that describe no sound filter, and if the ceiling refuses.
pub fn read(source: &mut impl Source, ceiling: &impl Ceiling) -> Result<ValkeyBloomFilter, Error> {
    let count = number_of_layers::<ValkeyBloom>(source.u64()?, ceiling)?;
    let expansion = u32::try_from(source.u64()?).map_err(|_| Error::OutOfRange)?;
    let (rate, tightening, is_seed_random) = (source.f64()?, source.f64()?, source.u64()?);
    let mut parts = Parts::new(expansion, rate, tightening, is_seed_random)?;
    for index in 0..count {
        let capacity = source.u64()?;
        let items = if index + 1 == count { source.u64()? } else { capacity };
        let stored = source.owned_bytes()?;
        parts.check(stored.len(), ceiling)?;
        parts.push(capacity, items, stored)?;
    }
    parts.into_filter()
}
