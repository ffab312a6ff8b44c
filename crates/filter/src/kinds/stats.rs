//! The reply of BF.STATS: what a filter is, how full it is, and the estimates that follow.

use super::spec::{Names, Spec};
use super::windowed::{Bucket, WindowedFilter};
use crate::chain::{Chain, Contents, Layer, Rules};
use crate::error::Error;
use crate::geometry::Geometry;
use crate::geometry::estimate::FillEstimate;
use crate::geometry::sizing::{to_f64, to_u64};
use crate::host::Moment;
use crate::memory::push;

/// The statistics of a filter.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// Its names.
    pub names: Names,
    /// The requested false positive rate.
    pub rate: f64,
    /// The present false positive rate: the chance that a random absent item tests as present, 0 to 1.
    pub rate_now: f64,
    /// Its counts.
    pub contents: Contents,
    /// The estimated number of distinct items, from the occupied cells.
    pub items_estimated: u64,
    /// The memory of pending adds, in bytes.
    pub pending_bytes: u64,
    /// The deleted items, if the filter has a table of them.
    pub deleted: Option<DeletedStats>,
    /// The layers that lookups visit, oldest first.
    pub layers: Vec<LayerStats>,
    /// The buckets that lookups visit, oldest first, if it forgets.
    pub buckets: Vec<BucketStats>,
}

/// Statistics of the tables of deleted items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeletedStats {
    /// The number of entries.
    pub entries: u64,
    /// The number of entries that can be added.
    pub room: u64,
}

/// Statistics of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerStats {
    /// The number of items at which it is full.
    pub capacity: u64,
    /// The number of items that were added to it.
    pub items: u64,
    /// Size of the cells, in bytes.
    pub size_bytes: u64,
    /// Number of cells per item, k.
    pub hashes: u32,
    /// The fraction of its cells that are occupied, 0 to 1.
    pub fill: f64,
}

/// Statistics of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketStats {
    /// Its number on the grid of time.
    pub slot: u64,
    /// When it began.
    pub begin: Moment,
    /// When it ends.
    pub end: Moment,
    /// The number of items in it.
    pub items: u64,
}

/// Sums over the layers of a filter.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    layers: Vec<LayerStats>,
    buckets: Vec<BucketStats>,
    items: f64,
    /// The logarithm of the chance that a random item tests as absent in every layer.
    passes_none: f64,
    deleted: DeletedStats,
}

impl Measured {
    /// Adds the layers of a chain, reading at most 1 MiB of each, and its table of deleted items.
    pub(crate) fn add_chain<R: Rules>(&mut self, chain: &Chain<R>) -> Result<(), Error> {
        let (entries, most) = (chain.deleted_entries(), chain.deleted_entries_max());
        self.deleted.entries = self.deleted.entries.saturating_add(entries);
        self.deleted.room = self.deleted.room.saturating_add(most.saturating_sub(entries));
        let lookups = f64::from(chain.rules().hashes_per_item());
        chain.layer_views().try_for_each(|layer| self.add_layer(layer.layer(), layer.fill_estimate(), lookups))
    }

    fn add_layer<G: Geometry>(
        &mut self,
        layer: &Layer<G>,
        fill_estimate: FillEstimate,
        lookups: f64,
    ) -> Result<(), Error> {
        self.items += fill_estimate.items;
        self.passes_none += lookups * libm::log1p(-fill_estimate.rate);
        let stats = LayerStats {
            capacity: layer.capacity(),
            items: layer.items(),
            size_bytes: layer.geometry().size_bytes(),
            hashes: layer.geometry().hashes(),
            fill: fill_estimate.fill,
        };
        push(&mut self.layers, stats)
    }

    /// Adds the live buckets of a ring.
    pub(crate) fn add_ring(&mut self, ring: &WindowedFilter, now: Moment) -> Result<(), Error> {
        for bucket in ring.live(now) {
            let Bucket { slot, begin, end, ref filter, renewed, .. } = *bucket;
            // A newer bucket also has these items.
            self.items -= to_f64(renewed);
            push(&mut self.buckets, BucketStats { slot, begin, end, items: filter.items() })?;
            self.add_chain(filter)?;
        }
        Ok(())
    }

    /// Returns the statistics of the measured filter.
    pub(crate) fn into_stats(self, spec: &Spec, contents: Contents) -> Stats {
        let Self { layers, buckets, items, passes_none, deleted } = self;
        Stats {
            names: spec.names(),
            rate: spec.rate(),
            rate_now: libm::expm1(passes_none).abs(),
            contents,
            items_estimated: to_u64((items - to_f64(deleted.entries)).round().max(0.0)),
            pending_bytes: contents.pending_bytes,
            deleted: spec.takes_deleted().then_some(deleted),
            layers,
            buckets,
        }
    }
}

/// Describes a layer of any layout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerSummary {
    /// Size of the cells, in bytes.
    pub size_bytes: u64,
    /// The number of bits that positions are drawn from.
    pub bits: u64,
    /// Number of cells per item, k.
    pub hashes: u32,
    /// The number of items at which it is full.
    pub capacity: u64,
    /// The number of items that were added to it.
    pub items: u64,
    /// Its own false positive rate.
    pub rate: f64,
}

impl LayerSummary {
    pub(crate) fn of<G: Geometry>(layer: &Layer<G>) -> Self {
        Self {
            size_bytes: layer.geometry().size_bytes(),
            bits: layer.geometry().modulus(),
            hashes: layer.geometry().hashes(),
            capacity: layer.capacity(),
            items: layer.items(),
            rate: layer.rate(),
        }
    }
}
