//! The reply of BF.PLAN: what a filter will consist of, before it is created.

pub use crate::cells::BLOCK_BYTES;
pub use crate::geometry::sizing::LOW_RATE;

use crate::chain::{ChainSpec, Rules};
use crate::error::Error;
use crate::geometry::sizing::to_f64;
use crate::geometry::{Geometry as _, LayerDescription};
use crate::host::CLIENT_LAYERS_MAX;
use crate::memory::push;

/// The layers and the size that a filter will have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The capacity of all layers together.
    pub capacity: u64,
    /// The size in bytes, as BF.INFO shows it.
    pub size_bytes: u64,
    /// Its layers, oldest first.
    pub layers: Vec<PlannedLayer>,
}

/// A layer of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedLayer {
    /// The number of items at which it is full.
    pub capacity: u64,
    /// Size of the cells, in bytes.
    pub size_bytes: u64,
    /// Number of cells per item, k.
    pub hashes: u32,
}

impl Plan {
    /// Plans a chain that has taken `items` items.
    pub(crate) fn of_chain<S: ChainSpec>(spec: &S, items: Option<u64>) -> Result<Self, Error> {
        let rules = spec.rules();
        let (mut plan, mut layer, mut cells_bytes) = (Self::default(), spec.first_layer()?, 0u64);
        for count in 1..=CLIENT_LAYERS_MAX.min(S::Rules::LAYERS_MAX) {
            let LayerDescription { capacity, rate, geometry, .. } = layer;
            let size_bytes = geometry.size_bytes();
            push(&mut plan.layers, PlannedLayer { capacity, size_bytes, hashes: geometry.hashes() })?;
            cells_bytes = cells_bytes.checked_add(size_bytes).ok_or(Error::SizeOverflow)?;
            plan.capacity = signed(plan.capacity.checked_add(capacity)).ok_or(Error::CapacityOutOfRange)?;
            plan.size_bytes = signed(Some(S::Rules::size_bytes(count, cells_bytes))).ok_or(Error::SizeOverflow)?;
            if plan.capacity >= items.unwrap_or(0) {
                return Ok(plan);
            }
            layer = rules.next_layer(count, capacity, rate)?;
        }
        Err(Error::TooManyLayers)
    }

    /// Returns the plan of a ring of equal buckets.
    pub(crate) fn repeated(&self, buckets: u64) -> Result<Self, Error> {
        let all = |number: u64| signed(number.checked_mul(buckets)).ok_or(Error::SizeOverflow);
        let mut plan = Self { capacity: all(self.capacity)?, size_bytes: all(self.size_bytes)?, layers: Vec::new() };
        for _ in 0..buckets {
            for layer in &self.layers {
                push(&mut plan.layers, *layer)?;
            }
        }
        Ok(plan)
    }

    /// Bits per item of the capacity.
    pub fn bits_per_item(&self) -> f64 {
        to_f64(self.size_bytes) * 8.0 / to_f64(self.capacity.max(1))
    }
}

/// Returns a number if it fits the integers of a reply, which are signed.
fn signed(number: Option<u64>) -> Option<u64> {
    number.filter(|number| i64::try_from(*number).is_ok())
}
