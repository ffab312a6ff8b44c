//! Where the items of a batch are, worked out once for layers of one geometry: the buckets of a ring mostly have the same.

use super::layer::Layer;
use crate::geometry::Geometry;
use crate::mask::BATCH;

/// The hashes of a batch, and where these items are in the layer that was asked about last.
pub(crate) struct Probes<'a, G: Geometry> {
    hashes: &'a [G::Hash],
    geometry: Option<G>,
    probes: [G::Probe; BATCH],
}

impl<'a, G: Geometry> Probes<'a, G> {
    /// Of a batch.
    #[inline]
    pub(crate) fn new(hashes: &'a [G::Hash]) -> Self {
        Self { hashes, geometry: None, probes: [G::Probe::default(); BATCH] }
    }

    /// The hashes.
    #[inline]
    pub(crate) const fn hashes(&self) -> &'a [G::Hash] {
        self.hashes
    }

    /// Where the items are in a layer.
    #[inline]
    pub(super) fn of(&mut self, layer: &Layer<G>) -> &[G::Probe] {
        if self.geometry != Some(layer.geometry()) {
            self.probes = layer.probes(self.hashes);
            self.geometry = Some(layer.geometry());
        }
        &self.probes
    }
}
