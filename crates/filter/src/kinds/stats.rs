//! What BF.STATS tells: what a filter is, how full it is, and what follows from that.

use std::ffi::CStr;

use super::{Contents, Forgets, Spec};
use crate::chain::{Chain, Layer, Rules};
use crate::clock::Moment;
use crate::error::Error;
use crate::geometry::Geometry;
use crate::geometry::estimate::Fullness;
use crate::geometry::sizing::{to_f64, to_u64};
use crate::memory::push;
use crate::ring::{Bucket, Ring, RingRules};

/// What a filter is called by its words of creation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Names {
    /// What becomes of its items and of its size.
    pub kind: &'static CStr,
    /// Whose layout it has.
    pub layout: &'static CStr,
    /// How it hashes.
    pub hash: &'static CStr,
    /// After what it forgets, if ever.
    pub forgets: Option<Forgets>,
}

/// What there is to tell of a filter.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// What it is.
    pub names: Names,
    /// The false positive rate that it was made for.
    pub rate: f64,
    /// The false positive rate now: the chance that a random item passes, 0 to 1.
    pub rate_now: f64,
    /// What was counted.
    pub contents: Contents,
    /// About how many different items are in, by the cells in which they left something.
    pub items_estimated: u64,
    /// Bytes of adds that are not in the cells yet.
    pub pending_bytes: u64,
    /// Of deleted items, where it takes entries of them.
    pub deleted: Option<DeletedStats>,
    /// The layers to which lookups go, oldest first.
    pub layers: Vec<LayerStats>,
    /// The buckets to which lookups go, oldest first, where it forgets.
    pub buckets: Vec<BucketStats>,
}

/// Of the tables of deleted items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeletedStats {
    /// Entries.
    pub entries: u64,
    /// How many more the tables take.
    pub room: u64,
}

/// Of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerStats {
    /// The number of items that it is made for.
    pub capacity: u64,
    /// The number of items that were added to it.
    pub items: u64,
    /// Size of the cells, in bytes.
    pub size_bytes: u64,
    /// Number of cells of an item, k.
    pub hashes: u32,
    /// The part of the cells in which items left something, 0 to 1.
    pub fill: f64,
}

/// Of a bucket.
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

/// What was read of a filter's layers.
#[derive(Debug, Default)]
pub struct Measured {
    layers: Vec<LayerStats>,
    buckets: Vec<BucketStats>,
    items: f64,
    /// The logarithm of the chance that no layer lets a random item pass.
    passes_none: f64,
    deleted: DeletedStats,
}

impl Measured {
    /// Adds the layers of a chain, of which it reads at most 1 MiB each, and its table of deleted items.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn add_chain<R: Rules>(&mut self, chain: &Chain<R>) -> Result<(), Error> {
        let (entries, most) = (chain.deleted_entries(), chain.deleted_entries_max());
        self.deleted.entries = self.deleted.entries.saturating_add(entries);
        self.deleted.room = self.deleted.room.saturating_add(most.saturating_sub(entries));
        chain.whole_layers().try_for_each(|layer| self.add_layer(layer.layer(), layer.fullness()))
    }

    fn add_layer<G: Geometry>(&mut self, layer: &Layer<G>, fullness: Fullness) -> Result<(), Error> {
        self.items += fullness.items;
        self.passes_none += libm::log1p(-fullness.rate);
        let stats = LayerStats {
            capacity: layer.capacity(),
            items: layer.items(),
            size_bytes: layer.geometry().size_bytes(),
            hashes: layer.geometry().hashes(),
            fill: fullness.fill,
        };
        push(&mut self.layers, stats)
    }

    /// Adds the live buckets of a ring.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn add_ring<S: RingRules>(&mut self, ring: &Ring<S>, now: Moment) -> Result<(), Error> {
        for bucket in ring.live(now) {
            let Bucket { slot, begin, end, ref filter, renewed, .. } = *bucket;
            // A newer bucket also has these items.
            self.items -= to_f64(renewed);
            push(&mut self.buckets, BucketStats { slot, begin, end, items: filter.items() })?;
            self.add_chain(filter)?;
        }
        Ok(())
    }

    /// The statistics of the filter that was measured.
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
