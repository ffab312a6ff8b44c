//! What happens when a filter is full.

use std::num::NonZeroU32;

/// What happens when a filter is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// It refuses new items (NONSCALING).
    Fixed,
    /// It gets another layer.
    Growing {
        /// The factor from one layer's capacity to the next.
        expansion: NonZeroU32,
    },
}

impl Scaling {
    /// The factor as it is stored and shown; 0 means a fixed filter.
    #[must_use]
    pub const fn expansion(self) -> u32 {
        match self {
            Self::Fixed => 0,
            Self::Growing { expansion } => expansion.get(),
        }
    }

    /// The inverse of [`expansion`](Self::expansion).
    #[must_use]
    pub const fn from_expansion(expansion: u32) -> Self {
        match NonZeroU32::new(expansion) {
            None => Self::Fixed,
            Some(expansion) => Self::Growing { expansion },
        }
    }
}
