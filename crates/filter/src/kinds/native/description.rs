//! Everything about a native filter but its bits, as a snapshot and a dump's header hold it: the fields from the hash
//! identifier to the last layer, in the order of [`snapshot`](super::snapshot).

use super::{BloomFilter, NativeSpec};
use crate::format::{Error, Sink, Source, read_u32};
use crate::geometry::{LayerDescription, Paged, sizing};
use crate::memory::push;
use crate::scaling::Scaling;
use crate::shape::LAYERS_MAX;

const HASH_MURMUR3_X64_128: u64 = 1;

/// A filter's layers as they are described.
pub(super) type Layers = Vec<LayerDescription<Paged>>;

/// Writes the hash identifier and everything about a filter with these layers but its bits.
pub(super) fn write(
    filter: &BloomFilter,
    layers: impl ExactSizeIterator<Item = LayerDescription<Paged>>,
    sink: &mut impl Sink,
) {
    let NativeSpec { rate, capacity, scaling, seed } = filter.spec();
    sink.put_u64(HASH_MURMUR3_X64_128);
    sink.put_f64(rate);
    sink.put_u64(capacity);
    sink.put_u64(u64::from(scaling.expansion()));
    sink.put_u64(u64::from(seed));
    sink.put_u64(u64::from(sizing::POLICY));
    sink.put_u64(layers.len() as u64);
    for layer in layers {
        sink.put_f64(layer.rate);
        sink.put_u64(layer.capacity);
        sink.put_u64(layer.items);
        sink.put_u64(u64::from(layer.geometry.hashes));
        sink.put_u64(layer.geometry.groups);
        sink.put_u64(u64::from(layer.geometry.blocks_per_group));
    }
}

/// Reads what [`write`] wrote. Whether a filter can be like that is for the filter to say, but for the policy, of which it
/// has no field.
///
/// # Errors
/// [`Error::UnknownHash`], [`Error::OutOfRange`], [`Error::Truncated`], [`Error::Filter`].
pub(super) fn read(source: &mut impl Source) -> Result<(NativeSpec, Layers), Error> {
    let hash = source.u64()?;
    if hash != HASH_MURMUR3_X64_128 {
        return Err(Error::UnknownHash(hash));
    }
    let spec = NativeSpec {
        rate: source.f64()?,
        capacity: source.u64()?,
        scaling: Scaling::from_expansion(read_u32(source)?),
        seed: read_u32(source)?,
    };
    let policy = read_u32(source)?;
    let count = usize::try_from(source.u64()?).ok().filter(|layers| *layers <= LAYERS_MAX);
    let mut layers = Layers::new();
    for _ in 0..count.ok_or(Error::OutOfRange)? {
        let (rate, capacity, items) = (source.f64()?, source.u64()?, source.u64()?);
        let hashes = read_u32(source)?;
        let geometry = Paged { groups: source.u64()?, blocks_per_group: read_u32(source)?, hashes };
        push(&mut layers, LayerDescription { rate, capacity, items, geometry })?;
    }
    if policy == sizing::POLICY { Ok((spec, layers)) } else { Err(crate::error::Error::Unsound.into()) }
}
