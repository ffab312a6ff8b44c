//! Everything about a native filter except its bits and its table, for snapshots and the headers of dumps: the fields from the
//! hash identifier to the last layer, in the order that `format/stored.rs` specifies.

use super::NativeSpec;
use crate::chain::{LAYERS_MAX, Layer};
use crate::codec::{Error, Sink, Source, read_u32};
use crate::geometry::sizing::Policy;
use crate::geometry::{BlockedBits, BlockedGeometry, Geometry, LayerDescription};
use crate::hash::Hasher;
use crate::memory::push;
use crate::scaling::Scaling;

const HASH_MURMUR3_X64_128: u64 = 1;
const HASH_SIPHASH_2_4_128: u64 = 2;

/// Descriptions of layers.
pub(crate) type Layers<G = BlockedBits> = Vec<LayerDescription<G>>;

/// Writes the hash identifier and the definition of a filter.
pub(crate) fn write_spec(spec: &NativeSpec, sink: &mut impl Sink) {
    let NativeSpec { rate, capacity, scaling, hasher, policy } = *spec;
    sink.put_u64(if hasher.is_keyed() { HASH_SIPHASH_2_4_128 } else { HASH_MURMUR3_X64_128 });
    sink.put_f64(rate);
    sink.put_u64(capacity);
    sink.put_u64(u64::from(scaling.expansion()));
    match hasher {
        Hasher::Murmur3 { seed } => sink.put_u64(u64::from(u32::from_le_bytes(seed))),
        Hasher::SipHash { key } => key.as_chunks().0.iter().for_each(|half| sink.put_u64(u64::from_le_bytes(*half))),
    }
    sink.put_u64(u64::from(policy.number()));
}

/// Reads what [`write_spec`] wrote. Returns the definition, which the filter checks, and whether such a filter can have the
/// policy.
///
/// # Errors
/// [`Error::UnknownHash`], [`Error::OutOfRange`], [`Error::Truncated`].
pub(crate) fn read_spec(source: &mut impl Source) -> Result<(NativeSpec, bool), Error> {
    let hash = source.u64()?;
    if hash != HASH_MURMUR3_X64_128 && hash != HASH_SIPHASH_2_4_128 {
        return Err(Error::UnknownHash(hash));
    }
    let (rate, capacity, scaling) = (source.f64()?, source.u64()?, Scaling::from_expansion(read_u32(source)?));
    let hasher = if hash == HASH_MURMUR3_X64_128 {
        Hasher::murmur3(read_u32(source)?)
    } else {
        let halves = [source.u64()?, source.u64()?].map(u128::from);
        let [low, high] = halves;
        Hasher::SipHash { key: (low | high << 64).to_le_bytes() }
    };
    let policy = Policy::from_number(read_u32(source)?).filter(|policy| policy.suits(rate, scaling, capacity));
    let is_sound = policy.is_some();
    Ok((NativeSpec { rate, capacity, scaling, hasher, policy: policy.unwrap_or(Policy::One) }, is_sound))
}

/// Writes the number of layers and the description of each.
pub(crate) fn write_layers<const BLOCK: usize>(
    layers: impl ExactSizeIterator<Item = LayerDescription<BlockedGeometry<BLOCK>>>,
    sink: &mut impl Sink,
) {
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

/// Writes the shapes of layers: what [`write_layers`] writes while they are empty.
pub(crate) fn write_shapes<const BLOCK: usize>(
    layers: impl ExactSizeIterator<Item = LayerDescription<BlockedGeometry<BLOCK>>>,
    sink: &mut impl Sink,
) {
    write_layers(layers.map(|layer| LayerDescription { items: 0, ..layer }), sink);
}

/// Reads what [`write_layers`] wrote.
///
/// # Errors
/// [`Error::OutOfRange`], [`Error::Truncated`], [`Error::Filter`].
pub(crate) fn read_layers<const BLOCK: usize>(
    source: &mut impl Source,
) -> Result<Layers<BlockedGeometry<BLOCK>>, Error> {
    let count = usize::try_from(source.u64()?).ok().filter(|layers| *layers <= LAYERS_MAX);
    let mut layers = Vec::new();
    for _ in 0..count.ok_or(Error::OutOfRange)? {
        let (rate, capacity, items) = (source.f64()?, source.u64()?, source.u64()?);
        let hashes = read_u32(source)?;
        let geometry = BlockedGeometry { groups: source.u64()?, blocks_per_group: read_u32(source)?, hashes };
        push(&mut layers, LayerDescription { rate, capacity, items, geometry })?;
    }
    Ok(layers)
}

/// Whether layers have these shapes.
pub(crate) fn are_shaped<G: Geometry>(layers: &[Layer<G>], described: &[LayerDescription<G>]) -> bool {
    layers.len() == described.len()
        && layers.iter().zip(described).all(|(layer, described)| layer.geometry() == described.geometry)
}
