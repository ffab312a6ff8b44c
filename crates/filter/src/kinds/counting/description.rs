//! Everything about a filter that counts but its counters, as `format/stored.rs` draws it: what a fixed native filter has.

use std::ops::Range;

use super::{CountingFilter, CountingSpec};
use crate::ceiling::Ceiling;
use crate::error;
use crate::format::records::Recorded;
use crate::format::{Error, LayerCells, Sink, Source};
use crate::geometry::{BlockedCounters, LayerDescription};
use crate::kinds::kind::Kind as _;
use crate::kinds::native::NativeSpec;
use crate::kinds::native::description::{Layers, are_shaped, read_layers, read_spec, write_layers, write_spec};
use crate::scaling::Scaling;
use crate::shape::{Chain, Layer};

impl LayerCells for CountingFilter {
    fn layer_count(&self) -> usize {
        self.chain().layers().len()
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
        self.chain_mut().layer_bytes_mut(layer).unwrap_or_default()
    }
}

impl Recorded for CountingFilter {
    const KIND: u64 = 4;
    const ONLY_GAINS: bool = false;
    type Description = (CountingSpec, Layers<BlockedCounters>);

    fn describe(&self, sink: &mut impl Sink) {
        write_spec(&self.spec().native(), sink);
        write_layers(self.chain().layers().iter().map(Layer::description), sink);
    }

    fn read_description(source: &mut impl Source) -> Result<Self::Description, Error> {
        let (NativeSpec { rate, capacity, scaling, hasher }, is_known_policy) = read_spec(source)?;
        let layers = read_layers(source)?;
        if is_known_policy && scaling == Scaling::Fixed {
            Ok((CountingSpec { rate, capacity, hasher }, layers))
        } else {
            Err(error::Error::Unsound.into())
        }
    }

    fn with_zero_cells((spec, layers): &Self::Description, ceiling: &impl Ceiling) -> Result<Self, error::Error> {
        Self::with_zero_counters(*spec, layers, ceiling)
    }

    fn is_described(&self, (spec, layers): &Self::Description, _layers: usize) -> bool {
        *spec == self.spec() && are_shaped(self.chain().layers(), layers)
    }

    fn identify(&self, _layers: usize, sink: &mut impl Sink) {
        let layers = self.chain().layers().iter();
        write_spec(&self.spec().native(), sink);
        write_layers(layers.map(|layer| LayerDescription { items: 0, ..layer.description() }), sink);
    }

    fn layer_items(&self, layer: usize) -> u64 {
        self.chain().layers().get(layer).map_or(0, Layer::items)
    }

    fn count_at_least(&mut self, layer: usize, items: u64) -> Result<(), error::Error> {
        Chain::count_at_least(self.chain_mut(), layer, items)
    }

    fn size_bytes(&self) -> u64 {
        self.contents().size_bytes
    }

    fn try_clone(&self) -> Result<Self, error::Error> {
        Self::try_clone(self)
    }
}
