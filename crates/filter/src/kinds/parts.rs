//! How formats see native filters: as a sequence of parts, each of them a chain of layers. A bucket of a ring is a part; any
//! other filter has one part.

use std::borrow::Cow;
use std::ops::Range;

use super::{BloomFilter, CountingFilter, Filter};
use crate::chain::{HashSet, Whole};
use crate::codec::{Error, Sink, chunks};
use crate::error;
use crate::geometry::{BlockedBits, BlockedCounters};
use crate::hash::ItemHash;

/// A part of a filter.
#[derive(Clone, Copy)]
pub(crate) enum PartRef<'a> {
    Bits(&'a BloomFilter),
    Counters(&'a CountingFilter),
}

/// A part of a filter that is being read.
pub(crate) enum PartMut<'a> {
    Bits(&'a mut BloomFilter),
    Counters(&'a mut CountingFilter),
}

/// A layer of a part, pending adds included.
#[derive(Clone, Copy)]
pub(crate) enum LayerRef<'a> {
    Bits(Whole<'a, BlockedBits>),
    Counters(Whole<'a, BlockedCounters>),
}

/// Evaluates an expression for bits or for counters.
macro_rules! either {
    ($either:expr, $each:ident => $value:expr) => {
        match $either {
            Self::Bits($each) => $value,
            Self::Counters($each) => $value,
        }
    };
}

impl Filter {
    /// The number of parts; 0 in the layouts of other modules.
    pub(crate) fn part_count(&self) -> usize {
        match self {
            Self::Native(_) | Self::Counting(_) => 1,
            Self::Windowed(filter) => filter.buckets().len(),
            Self::RedisBloom(_) | Self::ValkeyBloom(_) => 0,
        }
    }

    /// Returns a part and its name, which is never reused.
    pub(crate) fn part(&self, index: usize) -> Option<(u64, PartRef<'_>)> {
        match self {
            Self::Native(filter) if index == 0 => Some((0, PartRef::Bits(filter))),
            Self::Counting(filter) if index == 0 => Some((0, PartRef::Counters(filter))),
            Self::Windowed(filter) => filter.bucket(index).map(|bucket| (bucket.slot, PartRef::Bits(&bucket.filter))),
            _ => None,
        }
    }

    /// Returns a part for a reader that fills it in.
    pub(crate) fn part_mut(&mut self, index: usize) -> Option<PartMut<'_>> {
        match self {
            Self::Native(filter) if index == 0 => Some(PartMut::Bits(filter)),
            Self::Counting(filter) if index == 0 => Some(PartMut::Counters(filter)),
            Self::Windowed(filter) => filter.bucket_mut(index).map(|bucket| PartMut::Bits(&mut bucket.filter)),
            _ => None,
        }
    }

    /// All parts with their names, in order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (u64, PartRef<'_>)> {
        (0..).map_while(|index| self.part(index))
    }

    /// Returns the table of deleted items of a part; `None` if it is empty.
    pub(crate) fn table(&self, part: usize) -> Option<&HashSet> {
        self.part(part)?.1.deleted()
    }

    /// Whether each part has a table of deleted items.
    pub(crate) fn has_tables(&self) -> bool {
        self.spec().takes_deleted()
    }

    /// Whether its parts may be dropped or its tables may change, so that a dump must be marked.
    pub(crate) fn is_marked(&self) -> bool {
        self.windowed().is_some() || self.has_tables()
    }

    /// Marks a part to be dropped after the last record, because the source has dropped it.
    pub(crate) fn omit(&mut self, part: usize) {
        if let Some(bucket) = self.windowed_mut().and_then(|filter| filter.bucket_mut(part)) {
            bucket.is_omitted = true;
        }
    }

    /// Whether a part is marked to be dropped.
    pub(crate) fn is_omitted(&self, part: usize) -> bool {
        self.windowed().and_then(|filter| filter.bucket(part)).is_some_and(|bucket| bucket.is_omitted)
    }

    /// Drops the marked parts after the last record.
    pub(crate) fn complete(&mut self) {
        if let Some(filter) = self.windowed_mut() {
            filter.drop_omitted();
        }
    }
}

impl<'a> PartRef<'a> {
    /// Number of layers.
    pub(crate) fn layer_count(self) -> usize {
        either!(self, filter => filter.layers().len())
    }

    /// Returns a layer, counted from the oldest.
    pub(crate) fn layer(self, index: usize) -> Option<LayerRef<'a>> {
        match self {
            Self::Bits(filter) => filter.whole(index).map(LayerRef::Bits),
            Self::Counters(filter) => filter.whole(index).map(LayerRef::Counters),
        }
    }

    /// All layers, oldest first.
    pub(crate) fn layers(self) -> impl Iterator<Item = LayerRef<'a>> {
        (0..).map_while(move |index| self.layer(index))
    }

    /// Returns the table of deleted items; `None` if it is empty.
    pub(crate) fn deleted(self) -> Option<&'a HashSet> {
        match self {
            Self::Bits(filter) => filter.deleted(),
            Self::Counters(_) => None,
        }
    }

    /// The number of changes of the table.
    pub(crate) fn revision(self) -> u64 {
        match self {
            Self::Bits(filter) => filter.revision(),
            Self::Counters(_) => 0,
        }
    }
}

impl<'a> LayerRef<'a> {
    /// Its cells as they are stored, without pending adds.
    pub(crate) fn bytes(self) -> &'a [u8] {
        either!(self, layer => layer.layer().bytes())
    }

    /// The number of items that were added to it.
    pub(crate) const fn items(self) -> u64 {
        either!(self, layer => layer.layer().items())
    }

    /// Whether adds only set its cells. Then a layer that took more items has all cells of an earlier record; a layer of
    /// counters has a record only while its cells are the same.
    pub(crate) const fn only_gains(self) -> bool {
        matches!(self, Self::Bits(_))
    }

    /// Returns a range of its cells, pending adds included.
    ///
    /// # Errors
    /// [`Error::Filter`] if there is no memory for a copy.
    pub(crate) fn cells_in(self, bytes: Range<usize>) -> Result<Cow<'a, [u8]>, Error> {
        either!(self, layer => chunks::cells_in(layer, bytes))
    }

    /// Writes its cells, pending adds included, in chunks.
    pub(crate) fn write(self, sink: &mut impl Sink) {
        either!(self, layer => chunks::write_layer(layer, sink))
    }
}

impl<'a> PartMut<'a> {
    /// The cells of a layer.
    pub(crate) fn layer_bytes_mut(self, layer: usize) -> Option<&'a mut [u8]> {
        either!(self, filter => filter.layer_bytes_mut(layer))
    }

    /// Counts at least `items` items in a layer whose cells have arrived.
    ///
    /// # Errors
    /// [`error::Error::Unsound`] for more than the layer's capacity. Nothing has changed then.
    pub(crate) fn count_at_least(self, layer: usize, items: u64) -> Result<(), error::Error> {
        either!(self, filter => filter.count_at_least(layer, items))
    }

    /// Takes the next entries of the table of deleted items.
    ///
    /// # Errors
    /// [`error::Error::Unsound`] for entries that no such table can have, [`error::Error::OutOfMemory`].
    pub(crate) fn take_deleted(self, run: &[ItemHash]) -> Result<(), error::Error> {
        match self {
            Self::Bits(filter) if filter.spec().hasher.is_keyed() => filter.take_deleted(run),
            Self::Bits(_) | Self::Counters(_) => Err(error::Error::Unsound),
        }
    }
}
