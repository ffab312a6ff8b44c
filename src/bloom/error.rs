//! What can go wrong with a filter. A small `Copy` enum without texts: whoever talks to a person or a client finds the
//! words (in the module, `server::reply`).

/// Why a filter could not be made, or could not take an item. The filter is then as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The false positive rate is not a number inside [[`RATE_MIN`](super::sizing::RATE_MIN),
    /// [`RATE_MAX`](super::sizing::RATE_MAX)].
    RateOutOfRange,
    /// The capacity is zero, or the next layer's does not fit 64 bits.
    CapacityOutOfRange,
    /// A description of a filter (from a snapshot, a dump) that no filter can have.
    Unsound,
    /// A fixed filter holds as many items as it was made for.
    Full,
    /// The rate of the next layer would be too low to be a number, or to be worked with.
    RateTooLow,
    /// A chain has [`LAYERS_MAX`](super::LAYERS_MAX) layers and cannot get another.
    TooManyLayers,
    /// The bitmap asked for is larger than the ceiling allows or the allocator gives.
    OutOfMemory {
        /// Size of the bitmap, in bytes; `u64::MAX` where it does not fit 64 bits.
        asked_bytes: u64,
        /// What the ceiling leaves, in bytes; 0 where the allocator refused.
        available_bytes: u64,
    },
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Error {}
