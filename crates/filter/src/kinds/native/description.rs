//! Everything about a native filter but its bits and its table, as a snapshot and a dump's header hold it: the fields from
//! the hash identifier to the last layer, in the order that `format/stored.rs` draws.

use std::ops::Range;

use super::{BloomFilter, NativeSpec};
use crate::ceiling::Ceiling;
use crate::error;
use crate::format::records::{Part, Recorded};
use crate::format::{Error, LayerCells, Sink, Source, read_u32};
use crate::geometry::{BlockedBits, BlockedGeometry, Geometry, LayerDescription, sizing};
use crate::hash::{Hasher, ItemHash};
use crate::memory::push;
use crate::scaling::Scaling;
use crate::shape::{Chain, HashSet, LAYERS_MAX, Layer};

const HASH_MURMUR3_X64_128: u64 = 1;
const HASH_SIPHASH_2_4_128: u64 = 2;

/// Layers as they are described.
pub(crate) type Layers<G = BlockedBits> = Vec<LayerDescription<G>>;

/// Writes the hash identifier and what makes a filter.
pub(crate) fn write_spec(spec: &NativeSpec, sink: &mut impl Sink) {
    let NativeSpec { rate, capacity, scaling, hasher } = *spec;
    sink.put_u64(if hasher.is_keyed() { HASH_SIPHASH_2_4_128 } else { HASH_MURMUR3_X64_128 });
    sink.put_f64(rate);
    sink.put_u64(capacity);
    sink.put_u64(u64::from(scaling.expansion()));
    match hasher {
        Hasher::Murmur3 { seed } => sink.put_u64(u64::from(seed)),
        Hasher::SipHash { key } => key.as_chunks().0.iter().for_each(|half| sink.put_u64(u64::from_le_bytes(*half))),
    }
    sink.put_u64(u64::from(sizing::POLICY));
}

/// Reads what [`write_spec`] wrote. Whether a filter can be like that is for the filter to say, but for the policy, of which
/// it has no field: the answer is whether it is the one that is known.
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
        Hasher::Murmur3 { seed: read_u32(source)? }
    } else {
        let halves = [source.u64()?, source.u64()?].map(u128::from);
        let [low, high] = halves;
        Hasher::SipHash { key: (low | high << 64).to_le_bytes() }
    };
    let is_known_policy = read_u32(source)? == sizing::POLICY;
    Ok((NativeSpec { rate, capacity, scaling, hasher }, is_known_policy))
}

/// Writes the number of layers and what each is.
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

/// Whether layers began as these: their shapes are the same.
pub(crate) fn are_shaped<G: Geometry>(layers: &[Layer<G>], described: &[LayerDescription<G>]) -> bool {
    layers.len() == described.len()
        && layers.iter().zip(described).all(|(layer, described)| layer.geometry() == described.geometry)
}

impl LayerCells for BloomFilter {
    fn layer_count(&self) -> usize {
        self.layers().len()
    }

    fn layer_cells(&self, layer: usize) -> &[u8] {
        self.chain().layer_cells(layer)
    }

    fn has_pending_in(&self, layer: usize, bytes: Range<usize>) -> bool {
        self.chain().has_pending_in(layer, bytes)
    }

    fn put_pending(&self, layer: usize, copy: &mut [u8], begin: usize) {
        self.chain().put_pending(layer, copy, begin);
    }

    fn layer_cells_mut(&mut self, layer: usize) -> &mut [u8] {
        self.layer_bytes_mut(layer).unwrap_or_default()
    }
}

impl Recorded for BloomFilter {
    const KIND: u64 = 1;
    type Description = (NativeSpec, Layers);

    fn describe(&self, sink: &mut impl Sink) {
        write_spec(&self.spec(), sink);
        write_layers(self.layers().iter().map(Layer::description), sink);
    }

    fn read_description(source: &mut impl Source) -> Result<Self::Description, Error> {
        let (spec, is_known_policy) = read_spec(source)?;
        let layers = read_layers(source)?;
        if is_known_policy { Ok((spec, layers)) } else { Err(error::Error::Unsound.into()) }
    }

    fn with_zero_cells((spec, layers): &Self::Description, ceiling: &impl Ceiling) -> Result<Self, error::Error> {
        Self::with_zero_bits(*spec, layers, ceiling)
    }

    fn is_described(&self, (spec, described): &Self::Description, layers: usize) -> bool {
        spec.hasher == self.spec().hasher && are_shaped(self.layers().get(..layers).unwrap_or_default(), described)
    }

    fn identify(&self, layers: usize, sink: &mut impl Sink) {
        let layers = self.layers().get(..layers).unwrap_or_default();
        write_spec(&self.spec(), sink);
        write_layers(layers.iter().map(|layer| LayerDescription { items: 0, ..layer.description() }), sink);
    }

    fn layer_items(&self, layer: usize) -> u64 {
        self.layers().get(layer).map_or(0, Layer::items)
    }

    fn count_at_least(&mut self, layer: usize, items: u64) -> Result<(), error::Error> {
        Chain::count_at_least(self.chain_mut(), layer, items)
    }

    fn size_bytes(&self) -> u64 {
        Self::size_bytes(self)
    }

    fn try_clone(&self) -> Result<Self, error::Error> {
        Self::try_clone(self)
    }

    fn part(&self, index: usize) -> Option<Part> {
        (index == 0).then(|| Part { name: 0, layers: self.layers().len(), revision: self.revision() })
    }

    fn has_tables(&self) -> bool {
        self.spec().hasher.is_keyed()
    }

    fn table(&self, _part: usize) -> Option<&HashSet> {
        self.deleted()
    }

    fn take_deleted(&mut self, part: usize, run: &[ItemHash]) -> Result<(), error::Error> {
        if part == 0 { Self::take_deleted(self, run) } else { Err(error::Error::Unsound) }
    }
}
