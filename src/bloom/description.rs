//! What a filter is, apart from its bits: what is asked for, stored and compared.

use std::num::NonZeroU32;

use super::sizing::Geometry;

/// What becomes of a filter that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// It takes no more items (NONSCALING).
    Fixed,
    /// It gets another layer.
    Growing {
        /// The factor from one layer's capacity to the next.
        expansion: NonZeroU32,
    },
}

impl Scaling {
    /// The factor as it is stored and shown: 0 stands for a fixed filter.
    #[must_use]
    pub const fn expansion(self) -> u32 {
        match self {
            Self::Fixed => 0,
            Self::Growing { expansion } => expansion.get(),
        }
    }

    /// The opposite of [`expansion`](Self::expansion).
    #[must_use]
    pub const fn from_expansion(expansion: u32) -> Self {
        match NonZeroU32::new(expansion) {
            None => Self::Fixed,
            Some(expansion) => Self::Growing { expansion },
        }
    }
}

/// Everything about a native filter but its bits: what is stored in front of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// The false positive rate that was asked for.
    pub rate: f64,
    /// The capacity that was asked for: that of the first layer.
    pub capacity: u64,
    /// What becomes of it when it is full.
    pub scaling: Scaling,
    /// The seed of the hash.
    pub seed: u32,
    /// The rules of sizing that it grows by, [`POLICY`](super::sizing::POLICY).
    pub policy: u32,
    /// Its layers, oldest first, 1 to [`LAYERS_MAX`](super::LAYERS_MAX).
    pub layers: Vec<LayerDescription<Geometry>>,
}

/// Everything about a layer but its bits. `L`: where an item's bits are, by default the native layout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerDescription<L = Geometry> {
    /// The layer's own rate.
    pub rate: f64,
    /// The number of items that it is made for.
    pub capacity: u64,
    /// The number of items that were added to it, at most `capacity` in a filter of ours.
    pub items: u64,
    /// The shape of its bits.
    pub geometry: L,
}
