//! Native filters as the formats store them: a sequence of parts, each a chain of layers. Each bucket of a ring is a part; other
//! filters have one part. A [`Description`] is a filter without its cells and tables.

use std::borrow::Cow;
use std::ops::Range;

use super::native::{Layers, are_shaped, read_layers, read_spec, write_layers, write_shapes, write_spec};
use super::{BloomFilter, CountingFilter, CountingSpec, CuckooFilter, CuckooSpec, Filter, NativeSpec, windowed};
use crate::chain::{HashSet, Layer, LayerView};
use crate::codec::{CHUNK_BYTES, Error, Sink, Source, chunks};
use crate::error;
use crate::geometry::sizing::{Policy, Scaling};
use crate::geometry::{BlockedBits, BlockedCounters, CuckooGeometry};
use crate::hash::ItemHash;
use crate::host::Ceiling;
use crate::memory::try_box;

/// A part of a filter.
#[derive(Clone, Copy)]
pub(crate) enum PartRef<'a> {
    Bits(&'a BloomFilter),
    Counters(&'a CountingFilter),
    Slots(&'a CuckooFilter),
}

/// A part of a filter that is being read.
pub(crate) enum PartMut<'a> {
    Bits(&'a mut BloomFilter),
    Counters(&'a mut CountingFilter),
    Slots(&'a mut CuckooFilter),
}

/// A layer of a part, pending adds included.
#[derive(Clone, Copy)]
pub(crate) enum LayerRef<'a> {
    Bits(LayerView<'a, BlockedBits>),
    Counters(LayerView<'a, BlockedCounters>),
    Slots(LayerView<'a, CuckooGeometry>),
}

/// Evaluates an expression for bits, counters or slots.
macro_rules! either {
    ($either:expr, $each:ident => $value:expr) => {
        match $either {
            Self::Bits($each) => $value,
            Self::Counters($each) => $value,
            Self::Slots($each) => $value,
        }
    };
}

impl Filter {
    /// The number of parts; 0 in the layouts of other modules.
    pub(crate) fn part_count(&self) -> usize {
        match self {
            Self::Native(_) | Self::Counting(_) | Self::Cuckoo(_) => 1,
            Self::Windowed(filter) => filter.buckets().len(),
            Self::RedisBloom(_) | Self::ValkeyBloom(_) => 0,
        }
    }

    /// Returns a part and its name, which is never reused.
    pub(crate) fn part(&self, index: usize) -> Option<(u64, PartRef<'_>)> {
        match self {
            Self::Native(filter) if index == 0 => Some((0, PartRef::Bits(filter))),
            Self::Counting(filter) if index == 0 => Some((0, PartRef::Counters(filter))),
            Self::Cuckoo(filter) if index == 0 => Some((0, PartRef::Slots(filter))),
            Self::Windowed(filter) => filter.bucket(index).map(|bucket| (bucket.slot, PartRef::Bits(&bucket.filter))),
            _ => None,
        }
    }

    /// Returns a part for a reader that fills it in.
    pub(crate) fn part_mut(&mut self, index: usize) -> Option<PartMut<'_>> {
        match self {
            Self::Native(filter) if index == 0 => Some(PartMut::Bits(filter)),
            Self::Counting(filter) if index == 0 => Some(PartMut::Counters(filter)),
            Self::Cuckoo(filter) if index == 0 => Some(PartMut::Slots(filter)),
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

    /// Drops the marked parts, and counts the items of a cuckoo filter, after a reader has filled in all cells.
    pub(crate) fn complete(&mut self) {
        match self {
            Self::Windowed(filter) => filter.drop_omitted(),
            Self::Cuckoo(filter) => filter.count_slots(),
            _ => {}
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
            Self::Bits(filter) => filter.layer_view(index).map(LayerRef::Bits),
            Self::Counters(filter) => filter.layer_view(index).map(LayerRef::Counters),
            Self::Slots(filter) => filter.layer_view(index).map(LayerRef::Slots),
        }
    }

    /// The first `most` layers with their indices, in the order in which they are stored. A cuckoo filter is stored newest first, because it
    /// may change while it is dumped: what a delete takes from a newer layer may be found only in an older one.
    pub(crate) fn stored_layers(self, most: usize) -> impl Iterator<Item = (usize, LayerRef<'a>)> {
        let count = self.layer_count().min(most);
        let is_reversed = matches!(self, Self::Slots(_));
        let indices = (0..count).map(move |place| if is_reversed { count - 1 - place } else { place });
        indices.filter_map(move |index| Some((index, self.layer(index)?)))
    }

    /// Returns the table of deleted items; `None` if it is empty.
    pub(crate) fn deleted(self) -> Option<&'a HashSet> {
        match self {
            Self::Bits(filter) => filter.deleted(),
            Self::Counters(_) | Self::Slots(_) => None,
        }
    }

    /// The number of changes of the table.
    pub(crate) fn revision(self) -> u64 {
        match self {
            Self::Bits(filter) => filter.revision(),
            Self::Counters(_) | Self::Slots(_) => 0,
        }
    }
}

impl<'a> LayerRef<'a> {
    /// Its cells as they are stored, without pending adds.
    pub(crate) fn bytes(self) -> &'a [u8] {
        either!(self, layer => layer.layer().bytes())
    }

    /// The size of the chunks in which it is dumped, in bytes: of whole groups of slots, because an item may move inside its group.
    pub(crate) fn chunk_bytes(self) -> usize {
        let Self::Slots(layer) = self else { return CHUNK_BYTES };
        let group = usize::try_from(layer.layer().geometry().group_bytes()).unwrap_or(CHUNK_BYTES);
        CHUNK_BYTES / group * group
    }

    /// Returns the number of its items, which a dump counts; `None` if a reader counts them in the cells.
    pub(crate) fn counted_items(self) -> Option<u64> {
        if let Self::Slots(_) = self { None } else { Some(self.items()) }
    }

    /// The number of items that were added to it.
    pub(crate) const fn items(self) -> u64 {
        either!(self, layer => layer.layer().items())
    }

    /// Whether adds only set cells. If so, a layer still has all cells of an earlier record after further adds; a layer of counters or slots
    /// has them only while its cells are unchanged.
    pub(crate) const fn only_gains(self) -> bool {
        matches!(self, Self::Bits(_))
    }

    /// Returns a range of its cells, pending adds included.
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

    /// Raises the item count of a layer whose cells have arrived to at least `items`. An error changes nothing.
    pub(crate) fn count_at_least(self, layer: usize, items: u64) -> Result<(), error::Error> {
        either!(self, filter => filter.count_at_least(layer, items))
    }

    /// Appends the next entries to the table of deleted items.
    pub(crate) fn take_deleted(self, run: &[ItemHash]) -> Result<(), error::Error> {
        match self {
            Self::Bits(filter) if filter.spec().hasher.is_keyed() => filter.take_deleted(run),
            Self::Bits(_) | Self::Counters(_) | Self::Slots(_) => Err(error::Error::Unsound),
        }
    }
}

// Everything about a native, counting or windowed filter except its cells and tables, for snapshots and the headers of dumps.
// `format/stored.rs` specifies the format.

const NATIVE: u64 = 1;
const COUNTING: u64 = 4;
const WINDOWED: u64 = 6;
const CUCKOO: u64 = 8;

/// A filter without its cells and tables.
pub(crate) enum Description {
    Native(NativeSpec, Layers),
    Counting(CountingSpec, Layers<BlockedCounters>),
    Windowed(windowed::Description),
    /// The definition, and the number of layers.
    Cuckoo(CuckooSpec, usize),
}

impl Description {
    /// Reads what [`Filter::describe`] wrote about a filter of this kind. [`with_zero_cells`](Self::with_zero_cells) decides
    /// whether such a filter can exist.
    pub(crate) fn read(kind: u64, source: &mut impl Source) -> Result<Self, Error> {
        if kind == WINDOWED {
            return windowed::Description::read(source).map(Self::Windowed);
        }
        Filter::kind_name(kind)?;
        let (spec, is_sound_policy) = read_spec(source)?;
        if kind == CUCKOO {
            let NativeSpec { rate, capacity, scaling, hasher, policy } = spec;
            let layers = usize::try_from(source.u64()?).map_err(|_| Error::OutOfRange)?;
            let is_sound = is_sound_policy && policy == Policy::One;
            let spec = CuckooSpec { rate, capacity, scaling, hasher };
            return if is_sound { Ok(Self::Cuckoo(spec, layers)) } else { Err(error::Error::Unsound.into()) };
        }
        let is_counting = kind == COUNTING;
        let description = if is_counting {
            let NativeSpec { rate, capacity, hasher, .. } = spec;
            Self::Counting(CountingSpec { rate, capacity, hasher }, read_layers(source)?)
        } else {
            Self::Native(spec, read_layers(source)?)
        };
        let is_sound = is_sound_policy && (!is_counting || spec.scaling == Scaling::Fixed);
        if is_sound { Ok(description) } else { Err(error::Error::Unsound.into()) }
    }

    /// Returns a filter as described, its cells all zero and its tables empty. Asks the ceiling before anything is allocated.
    pub(crate) fn with_zero_cells(&self, ceiling: &impl Ceiling) -> Result<Filter, error::Error> {
        match self {
            Self::Native(spec, layers) => BloomFilter::with_zero_bits(*spec, layers, ceiling).map(Filter::Native),
            Self::Counting(spec, layers) => {
                CountingFilter::with_zero_counters(*spec, layers, ceiling).map(Filter::Counting)
            }
            Self::Windowed(description) => try_box(description.with_zero_bits(ceiling)?).map(Filter::Windowed),
            Self::Cuckoo(spec, layers) => {
                try_box(CuckooFilter::with_empty_slots(*spec, *layers, ceiling)?).map(Filter::Cuckoo)
            }
        }
    }

    /// Whether the first `layers` layers of a filter are as described.
    pub(crate) fn is_of(&self, filter: &Filter, layers: usize) -> bool {
        match (self, filter) {
            (Self::Native(spec, described), Filter::Native(filter)) => {
                spec.hasher == filter.spec().hasher
                    && are_shaped(filter.layers().get(..layers).unwrap_or_default(), described)
            }
            (Self::Counting(spec, described), Filter::Counting(filter)) => {
                *spec == filter.spec() && are_shaped(filter.layers(), described)
            }
            (Self::Windowed(description), Filter::Windowed(filter)) => description.is_of(filter),
            (Self::Cuckoo(spec, described), Filter::Cuckoo(filter)) => spec == filter.rules() && *described == layers,
            _ => false,
        }
    }
}

impl Filter {
    /// Returns the stored number of its kind; `None` for the layouts of other modules.
    pub(crate) const fn kind(&self) -> Option<u64> {
        match self {
            Self::Native(_) => Some(NATIVE),
            Self::Counting(_) => Some(COUNTING),
            Self::Windowed(_) => Some(WINDOWED),
            Self::Cuckoo(_) => Some(CUCKOO),
            Self::RedisBloom(_) | Self::ValkeyBloom(_) => None,
        }
    }

    /// Returns the name of a kind from its number.
    pub(crate) const fn kind_name(kind: u64) -> Result<&'static str, Error> {
        match kind {
            NATIVE => Ok("native"),
            COUNTING => Ok("counting"),
            WINDOWED => Ok("windowed"),
            CUCKOO => Ok("cuckoo"),
            kind => Err(Error::UnknownKind(kind)),
        }
    }

    /// Writes everything about it except its cells and tables.
    pub(crate) fn describe(&self, sink: &mut impl Sink) {
        match self {
            Self::Native(filter) => {
                write_spec(&filter.spec(), sink);
                write_layers(filter.layers().iter().map(Layer::description), sink);
            }
            Self::Counting(filter) => {
                write_spec(&filter.spec().native(), sink);
                write_layers(filter.layers().iter().map(Layer::description), sink);
            }
            Self::Windowed(filter) => windowed::write(filter, sink),
            Self::Cuckoo(filter) => {
                write_spec(&filter.rules().native(), sink);
                sink.put_u64(filter.layers().len() as u64);
            }
            Self::RedisBloom(_) | Self::ValkeyBloom(_) => {}
        }
    }

    /// Writes the fields that distinguish its records from other filters' records: the fields of the filter and of its first `layers`
    /// layers that adds and deletes do not change.
    pub(crate) fn identify(&self, layers: usize, sink: &mut impl Sink) {
        match self {
            Self::Native(filter) => {
                write_spec(&filter.spec(), sink);
                let layers = filter.layers().get(..layers).unwrap_or_default();
                write_shapes(layers.iter().map(Layer::description), sink);
            }
            Self::Counting(filter) => {
                write_spec(&filter.spec().native(), sink);
                write_shapes(filter.layers().iter().map(Layer::description), sink);
            }
            Self::Windowed(filter) => windowed::identify(filter, layers, sink),
            Self::Cuckoo(filter) => {
                write_spec(&filter.rules().native(), sink);
                sink.put_u64(layers as u64);
            }
            Self::RedisBloom(_) | Self::ValkeyBloom(_) => {}
        }
    }
}
