//! The totals of a chain's layers, updated as the chain grows. Summing all layers at each growth would take time quadratic in
//! their number, and slow down every query on a long chain.

use super::rules::{ChainSpec, Rules};
use crate::ceiling::Ceiling;
use crate::error::Error;
use crate::geometry::{Geometry, LayerDescription};

/// The totals of layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// The items of all layers except the newest.
    pub(super) older_items: u64,
    /// The capacity of all layers.
    pub(super) capacity: u64,
    /// The size of the cells of all layers, in bytes.
    pub(super) cells_bytes: u64,
}

impl Totals {
    /// The totals of no layers.
    pub(super) const NONE: Self = Self { older_items: 0, capacity: 0, cells_bytes: 0 };

    /// Returns the totals with another layer, after a newest one that has `newest_items`. `None` if the capacity, or the number
    /// of items that the layers may reach, does not fit 64 bits.
    pub(super) fn with<G: Geometry>(self, newest_items: u64, layer: &LayerDescription<G>) -> Option<Self> {
        let older_items = self.older_items.checked_add(newest_items)?;
        older_items.checked_add(layer.capacity.max(layer.items))?;
        let cells_bytes = self.cells_bytes.saturating_add(layer.geometry.size_bytes());
        Some(Self { older_items, capacity: self.capacity.checked_add(layer.capacity)?, cells_bytes })
    }

    /// Returns the totals of the layers of a chain.
    ///
    /// # Errors
    /// [`Error::Unsound`] if the number of items does not fit 64 bits.
    pub(super) fn of<G: Geometry>(mut layers: impl Iterator<Item = LayerDescription<G>>) -> Result<Self, Error> {
        let mut newest_items = 0;
        let totals = layers.try_fold(Self::default(), |totals, layer| {
            totals.with(std::mem::replace(&mut newest_items, layer.items), &layer)
        });
        totals.ok_or(Error::Unsound)
    }
}

/// Asks a ceiling for a layer after `layers` others, in a filter whose table of deleted items has `entries_bytes`. Requests the
/// bytes by which the filter grows.
///
/// # Errors
/// [`Error::AboveCeiling`], [`Error::TooManyLayers`].
pub(crate) fn check_layer<R: Rules>(
    ceiling: &impl Ceiling,
    layers: usize,
    cells_bytes: u64,
    entries_bytes: u64,
    layer_bytes: u64,
) -> Result<(), Error> {
    if layers >= R::LAYERS_MAX.min(ceiling.layers_max()) {
        return Err(Error::TooManyLayers);
    }
    let before_bytes = if layers == 0 { 0 } else { R::size_bytes(layers, cells_bytes) };
    let grown_bytes = R::size_bytes(layers.saturating_add(1), cells_bytes.saturating_add(layer_bytes));
    ceiling.allow(before_bytes.saturating_add(entries_bytes), grown_bytes.saturating_sub(before_bytes))
}

/// How far a filter can grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The largest number of items that it can hold.
    pub capacity: u64,
    /// Whether the false positive rate of the next layer, rather than memory, ends its growth.
    pub ends_by_rate: bool,
}

/// Returns how far a filter can grow under a ceiling. `filter_bytes` is the filter's present size, 0 if it does not exist yet.
/// Computes the size of every layer, about 60 ns each.
pub(crate) fn reach<S: ChainSpec>(spec: &S, filter_bytes: u64, ceiling: &impl Ceiling) -> Reach {
    let limit_bytes = ceiling.available_bytes(filter_bytes, u64::MAX).saturating_add(filter_bytes);
    let rules = spec.rules();
    let (mut next, mut cells_bytes, mut capacity) = (spec.first_layer(), 0u64, 0u64);
    for index in 0..S::Rules::LAYERS_MAX.min(ceiling.layers_max()) {
        let layer = match next {
            Ok(layer) => layer,
            Err(error) => return Reach { capacity, ends_by_rate: error == Error::RateTooLow },
        };
        cells_bytes = cells_bytes.saturating_add(layer.geometry.size_bytes());
        if S::Rules::size_bytes(index + 1, cells_bytes) > limit_bytes {
            break;
        }
        capacity = capacity.saturating_add(layer.capacity);
        next = rules.next_layer(index + 1, layer.capacity, layer.rate);
    }
    Reach { capacity, ends_by_rate: false }
}

/// The counts of a filter, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The size in bytes; see [`Chain::size_bytes`](super::Chain::size_bytes).
    pub size_bytes: u64,
    /// Number of layers.
    pub layers: u64,
    /// Number of items that were added.
    pub items: u64,
    /// The capacity of the layers together.
    pub capacity: u64,
    /// The additional memory of pending adds, in bytes.
    pub pending_bytes: u64,
}

impl Contents {
    /// Returns the sum of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            size_bytes: self.size_bytes.saturating_add(other.size_bytes),
            layers: self.layers.saturating_add(other.layers),
            items: self.items.saturating_add(other.items),
            capacity: self.capacity.saturating_add(other.capacity),
            pending_bytes: self.pending_bytes.saturating_add(other.pending_bytes),
        }
    }
}
