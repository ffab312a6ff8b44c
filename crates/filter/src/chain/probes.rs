//! Where the items of a batch lie, computed once for consecutive layers with the same geometry. The buckets of a ring mostly
//! share theirs.

use super::layer::Layer;
use crate::geometry::Geometry;
use crate::mask::BATCH;

/// The hashes of a batch, and the positions of its items in the last layer asked about.
pub(crate) struct Probes<'a, G: Geometry> {
    hashes: &'a [G::Hash],
    geometry: Option<G>,
    probes: [G::Probe; BATCH],
}

impl<'a, G: Geometry> Probes<'a, G> {
    /// Starts a batch.
    #[inline]
    pub(crate) fn new(hashes: &'a [G::Hash]) -> Self {
        Self { hashes, geometry: None, probes: [G::Probe::default(); BATCH] }
    }

    /// Returns the hashes.
    #[inline]
    pub(crate) const fn hashes(&self) -> &'a [G::Hash] {
        self.hashes
    }

    /// Returns the positions of the items in a layer.
    #[inline]
    pub(super) fn of(&mut self, layer: &Layer<G>) -> &[G::Probe] {
        if self.geometry != Some(layer.geometry()) {
            self.probes = layer.probes(self.hashes);
            self.geometry = Some(layer.geometry());
        }
        &self.probes
    }
}
