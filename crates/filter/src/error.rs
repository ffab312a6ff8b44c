//! Errors of filters: a small `Copy` enum. [`crate::arguments::Refusal`] has the texts for clients of a server.

use crate::geometry::sizing::{RATE_MAX, RATE_MIN};

/// The reason why a filter could not be created, or refused an item. In that case the filter is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The false positive rate is not between [`RATE_MIN`] and [`RATE_MAX`].
    RateOutOfRange,
    /// The capacity is 0, or the next layer's capacity does not fit 64 bits.
    CapacityOutOfRange,
    /// No filter can have this description, which comes from a snapshot or a dump.
    Unsound,
    /// A fixed filter has reached its capacity.
    Full,
    /// The rate of the next layer would be too low to compute with.
    RateTooLow,
    /// Items cannot be deleted from a filter of this kind.
    CannotDelete,
    /// A filter of this kind cannot guard a database, because its deletes may hide other items.
    CannotGuard,
    /// A filter of this kind cannot be merged.
    CannotMerge,
    /// The filters to be merged differ in their parameters.
    Different,
    /// The filters to be merged have too many items together.
    UnionTooLarge {
        /// The estimated number of items of a layer.
        items: u64,
        /// The capacity of the layer.
        capacity: u64,
    },
    /// The chain has reached its maximum number of layers.
    TooManyLayers,
    /// The size in bytes does not fit 63 bits.
    SizeOverflow,
    /// The ceiling allows less memory than the filter requests.
    AboveCeiling {
        /// The requested memory, in bytes.
        asked_bytes: u64,
        /// The available memory, in bytes.
        available_bytes: u64,
    },
    /// The table of deleted items has reached its maximum size.
    NoRoomForDeleted {
        /// Its number of entries.
        entries: u64,
    },
    /// The allocator refused.
    OutOfMemory {
        /// The requested memory, in bytes.
        asked_bytes: u64,
    },
}

impl Error {
    /// The requested memory in bytes, if the filter is refused for lack of memory; `u64::MAX` if that does not fit.
    pub const fn asked_bytes(self) -> Option<u64> {
        match self {
            Self::SizeOverflow => Some(u64::MAX),
            Self::AboveCeiling { asked_bytes, .. } | Self::OutOfMemory { asked_bytes } => Some(asked_bytes),
            _ => None,
        }
    }

    /// Whether the filter is refused for lack of memory. It may succeed on another machine or at another time.
    pub const fn is_out_of_memory(self) -> bool {
        self.asked_bytes().is_some()
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RateOutOfRange => write!(f, "the false positive rate is not between {RATE_MIN:e} and {RATE_MAX}"),
            Self::CapacityOutOfRange => f.write_str("the capacity is 0, or too large"),
            Self::Unsound => f.write_str("no filter can have this description"),
            Self::Full => f.write_str("the filter is full and cannot grow"),
            Self::RateTooLow => {
                f.write_str("the filter cannot grow, because the rate of another layer would be too low")
            }
            Self::CannotDelete => f.write_str("items cannot be deleted from a filter of this kind"),
            Self::CannotGuard => f.write_str("deletes from a filter of this kind may make other items absent"),
            Self::CannotMerge => f.write_str("filters of this kind cannot be merged"),
            Self::Different => f.write_str("the filters have different parameters"),
            Self::UnionTooLarge { items, capacity } => {
                write!(f, "a layer for {capacity} items would have about {items}")
            }
            Self::TooManyLayers => f.write_str("the filter has the maximum number of layers"),
            Self::SizeOverflow => f.write_str("the size in bytes does not fit 63 bits"),
            Self::AboveCeiling { asked_bytes, available_bytes } => {
                write!(f, "{asked_bytes} bytes are needed, and {available_bytes} are available")
            }
            Self::NoRoomForDeleted { entries } => write!(f, "the table of deleted items is full ({entries} entries)"),
            Self::OutOfMemory { asked_bytes } => write!(f, "the allocator refused {asked_bytes} bytes"),
        }
    }
}

impl std::error::Error for Error {}
