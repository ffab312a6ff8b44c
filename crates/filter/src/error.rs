//! What can go wrong with a filter. A small `Copy` enum without texts: whoever talks to a person or a client finds the
//! words ([`crate::words::Refusal`]).

/// Why a filter could not be made, or could not take an item. The filter is then as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The false positive rate is not a number inside [[`RATE_MIN`](crate::geometry::sizing::RATE_MIN),
    /// [`RATE_MAX`](crate::geometry::sizing::RATE_MAX)].
    RateOutOfRange,
    /// The capacity is zero, or the next layer's does not fit 64 bits.
    CapacityOutOfRange,
    /// A description of a filter (from a snapshot, a dump) that no filter can have.
    Unsound,
    /// A fixed filter holds as many items as it was made for.
    Full,
    /// The rate of the next layer would be too low to be a number, or to be worked with.
    RateTooLow,
    /// Items cannot be deleted from a filter of this kind.
    CannotDelete,
    /// A filter of this kind cannot stand in front of a database: its deletes may hide what is in.
    CannotGuard,
    /// A filter of this kind cannot be merged.
    CannotMerge,
    /// Filters that are to be merged are not alike.
    Different,
    /// Filters that are to be merged hold too many items together.
    UnionTooLarge {
        /// How many a layer would hold, about.
        items: u64,
        /// How many it is made for.
        capacity: u64,
    },
    /// The chain has as many layers as it may have and cannot get another.
    TooManyLayers,
    /// The size in bytes does not fit 63 bits.
    SizeOverflow,
    /// The ceiling allows less than the filter asks for.
    AboveCeiling {
        /// What was asked for, in bytes.
        asked_bytes: u64,
        /// What the ceiling leaves, in bytes.
        available_bytes: u64,
    },
    /// The table of deleted items is as large as it may become.
    NoRoomForDeleted {
        /// How many it holds.
        entries: u64,
    },
    /// The allocator refused.
    OutOfMemory {
        /// What was asked for, in bytes.
        asked_bytes: u64,
    },
}

impl Error {
    /// What was asked for, in bytes, where the filter is refused for want of memory; `u64::MAX` where that does not fit.
    #[must_use]
    pub const fn asked_bytes(self) -> Option<u64> {
        match self {
            Self::SizeOverflow => Some(u64::MAX),
            Self::AboveCeiling { asked_bytes, .. } | Self::OutOfMemory { asked_bytes } => Some(asked_bytes),
            _ => None,
        }
    }

    /// Whether the filter is refused for want of memory: another machine, or another time, could have it.
    #[must_use]
    pub const fn is_want_of_memory(self) -> bool {
        self.asked_bytes().is_some()
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Error {}
