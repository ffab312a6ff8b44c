//! Everything about a native, counting or windowed filter except its cells and tables, for snapshots and the headers of dumps.
//! `format/stored.rs` specifies the format.

use super::native::description::{Layers, are_shaped, read_layers, read_spec, write_layers, write_shapes, write_spec};
use super::windowed::description as windowed;
use super::{BloomFilter, CountingFilter, CountingSpec, Filter, NativeSpec};
use crate::ceiling::Ceiling;
use crate::chain::Layer;
use crate::codec::{Error, Sink, Source};
use crate::error;
use crate::geometry::BlockedCounters;
use crate::memory::try_box;
use crate::scaling::Scaling;

const NATIVE: u64 = 1;
const COUNTING: u64 = 4;
const WINDOWED: u64 = 6;

/// A filter without its cells and tables.
pub(crate) enum Description {
    Native(NativeSpec, Layers),
    Counting(CountingSpec, Layers<BlockedCounters>),
    Windowed(windowed::Description),
}

impl Description {
    /// Reads what [`Filter::describe`] wrote about a filter of this kind. [`with_zero_cells`](Self::with_zero_cells) decides
    /// whether such a filter can exist.
    ///
    /// # Errors
    /// [`Error::UnknownKind`], and errors for bytes that cannot have been written.
    pub(crate) fn read(kind: u64, source: &mut impl Source) -> Result<Self, Error> {
        if kind == WINDOWED {
            return windowed::Description::read(source).map(Self::Windowed);
        }
        if kind != NATIVE && kind != COUNTING {
            return Err(Error::UnknownKind(kind));
        }
        let (spec, is_sound_policy) = read_spec(source)?;
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
    ///
    /// # Errors
    /// [`error::Error::Unsound`] for a filter that cannot exist, and an error if the ceiling or the allocator refuses.
    pub(crate) fn with_zero_cells(&self, ceiling: &impl Ceiling) -> Result<Filter, error::Error> {
        match self {
            Self::Native(spec, layers) => BloomFilter::with_zero_bits(*spec, layers, ceiling).map(Filter::Native),
            Self::Counting(spec, layers) => {
                CountingFilter::with_zero_counters(*spec, layers, ceiling).map(Filter::Counting)
            }
            Self::Windowed(description) => try_box(description.with_zero_bits(ceiling)?).map(Filter::Windowed),
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
            Self::RedisBloom(_) | Self::ValkeyBloom(_) => None,
        }
    }

    /// Returns the name of a kind from its number.
    ///
    /// # Errors
    /// [`Error::UnknownKind`].
    pub(crate) const fn kind_name(kind: u64) -> Result<&'static str, Error> {
        match kind {
            NATIVE => Ok("native"),
            COUNTING => Ok("counting"),
            WINDOWED => Ok("windowed"),
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
            Self::RedisBloom(_) | Self::ValkeyBloom(_) => {}
        }
    }

    /// Writes what distinguishes its records from those of other filters: everything about it and its first `layers` layers
    /// that adds and deletes do not change.
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
            Self::RedisBloom(_) | Self::ValkeyBloom(_) => {}
        }
    }
}
