//! The replies of BF.INFO and BF.DEBUG.

use std::ffi::CStr;

use super::Filter;
use crate::geometry::sizing::Scaling;
use crate::host::{Ceiling, Clock};

pub use super::stats::LayerSummary;

/// A field of BF.INFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The capacity of all layers together.
    Capacity,
    /// The size in bytes, as BF.INFO shows it.
    Size,
    /// The number of layers.
    Filters,
    /// The number of items that were added.
    Items,
    /// The requested false positive rate.
    Error,
    /// The factor from one layer's capacity to the next.
    Expansion,
    /// The factor from one layer's rate to the next.
    Tightening,
    /// The largest number of items to which it can grow.
    MaxScaledCapacity,
}

impl Field {
    /// In the order of RedisBloom's reply. There is no sixth field, because clients fail on one.
    pub const REDISBLOOM: [Self; 5] = [Self::Capacity, Self::Size, Self::Filters, Self::Items, Self::Expansion];
    /// In the order of valkey-bloom's reply. A fixed filter lacks the last two.
    pub const VALKEY_BLOOM: [Self; 8] = [
        Self::Capacity,
        Self::Size,
        Self::Filters,
        Self::Items,
        Self::Error,
        Self::Expansion,
        Self::Tightening,
        Self::MaxScaledCapacity,
    ];

    /// The option that requests it, and its name in the reply.
    pub const fn words(self) -> (&'static str, &'static CStr) {
        match self {
            Self::Capacity => ("CAPACITY", c"Capacity"),
            Self::Size => ("SIZE", c"Size"),
            Self::Filters => ("FILTERS", c"Number of filters"),
            Self::Items => ("ITEMS", c"Number of items inserted"),
            Self::Error => ("ERROR", c"Error rate"),
            Self::Expansion => ("EXPANSION", c"Expansion rate"),
            Self::Tightening => ("TIGHTENING", c"Tightening ratio"),
            Self::MaxScaledCapacity => ("MAXSCALEDCAPACITY", c"Max scaled capacity"),
        }
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Content {
    /// A whole number.
    Number(u64),
    /// A number with a fraction.
    Fraction(f64),
    /// Null.
    Nothing,
}

impl Filter {
    /// Returns the value of a field; `None` if the filter lacks it. The ceiling determines how far the filter can grow.
    pub fn info(&self, field: Field, clock: &impl Clock, ceiling: &impl Ceiling) -> Option<Content> {
        let live = self.live_contents(clock);
        Some(match field {
            Field::Capacity => Content::Number(live.capacity),
            Field::Size => Content::Number(live.size_bytes),
            Field::Filters => Content::Number(live.layers),
            Field::Items => Content::Number(live.items),
            Field::Error => Content::Fraction(self.spec().rate()),
            Field::Expansion => match self.scaling() {
                Scaling::Fixed => Content::Nothing,
                Scaling::Growing { expansion } => Content::Number(expansion.get().into()),
            },
            Field::Tightening | Field::MaxScaledCapacity if self.scaling() == Scaling::Fixed => return None,
            Field::MaxScaledCapacity if self.windowed().is_some() => return None,
            Field::MaxScaledCapacity => {
                // A filter above the ceiling reports its present capacity.
                let limit = self.spec().growth_limit(self.size_bytes(), ceiling);
                Content::Number(limit.capacity.max(self.total_capacity()))
            }
            Field::Tightening => match self {
                // The others have no configurable ratio between the rates of layers.
                Self::Native(_) | Self::Windowed(_) | Self::Counting(_) | Self::Cuckoo(_) | Self::RedisBloom(_) => {
                    return None;
                }
                Self::ValkeyBloom(filter) => Content::Fraction(filter.rules().tightening),
            },
        })
    }

    /// The width of an item's hash, in bits.
    pub fn hash_bits(&self) -> u32 {
        match self {
            Self::Native(_) | Self::Windowed(_) | Self::Counting(_) | Self::Cuckoo(_) => 128,
            Self::RedisBloom(filter) => filter.rules().hash_bits(),
            Self::ValkeyBloom(_) => 64,
        }
    }
}
