//! What BF.INFO and BF.DEBUG tell of a filter.

use std::ffi::CStr;

use super::Filter;
use crate::ceiling::Ceiling;
use crate::chain::Layer;
use crate::clock::Clock;
use crate::geometry::Geometry;
use crate::scaling::Scaling;

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The number of items that it is made for.
    Capacity,
    /// Bytes.
    Size,
    /// Layers.
    Filters,
    /// Items that were added.
    Items,
    /// The false positive rate that was asked for.
    Error,
    /// The factor from one layer's capacity to the next.
    Expansion,
    /// The factor from one layer's rate to the next.
    Tightening,
    /// The number of items that it can grow to.
    MaxScaledCapacity,
}

impl Field {
    /// In the order of RedisBloom's answer. There is no sixth: clients fail on one.
    pub const REDISBLOOM: [Self; 5] = [Self::Capacity, Self::Size, Self::Filters, Self::Items, Self::Expansion];
    /// In the order of valkey-bloom's answer. A fixed filter has not the last two.
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

    /// The word that asks for it, and the name that answers.
    #[must_use]
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

/// What a field of BF.INFO holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Content {
    /// A whole number.
    Number(u64),
    /// A number with a fraction.
    Fraction(f64),
    /// Null.
    Nothing,
}

/// Whose BF.INFO a filter answers as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InfoStyle {
    /// RedisBloom's: five fields, a map in RESP3; one field alone in an array or a map of one.
    RedisBloom,
    /// valkey-bloom's: a flat array in both protocols; one field is its value alone.
    ValkeyBloom,
}

/// What there is to tell of a layer, whatever its layout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerSummary {
    /// Size of the cells, in bytes.
    pub size_bytes: u64,
    /// Number of bits that items can have: a position is below it.
    pub bits: u64,
    /// Number of cells of an item, k.
    pub hashes: u32,
    /// The number of items that it is made for.
    pub capacity: u64,
    /// The number of items that were added to it.
    pub items: u64,
    /// Its own false positive rate.
    pub rate: f64,
}

impl LayerSummary {
    pub(crate) fn of<G: Geometry>(layer: &Layer<G>) -> Self {
        Self {
            size_bytes: layer.geometry().size_bytes(),
            bits: layer.geometry().modulus(),
            hashes: layer.geometry().hashes(),
            capacity: layer.capacity(),
            items: layer.items(),
            rate: layer.rate(),
        }
    }
}

impl Filter {
    /// Whose BF.INFO it answers as.
    #[must_use]
    pub const fn info_style(&self) -> InfoStyle {
        match self {
            Self::Native(_) | Self::Windowed(_) | Self::Counting(_) | Self::RedisBloom(_) => InfoStyle::RedisBloom,
            Self::ValkeyBloom(_) => InfoStyle::ValkeyBloom,
        }
    }

    /// What a field of BF.INFO holds; nothing for a field that it has not. How far it can grow is for the ceiling to say.
    #[must_use]
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
                // Where it is beyond the ceiling, what it has room for.
                let reach = self.spec().reach(self.size_bytes(), ceiling);
                Content::Number(reach.capacity.max(self.total_capacity()))
            }
            Field::Tightening => match self {
                // Of the others none has one ratio from layer to layer that could be set.
                Self::Native(_) | Self::Windowed(_) | Self::Counting(_) | Self::RedisBloom(_) => return None,
                Self::ValkeyBloom(filter) => Content::Fraction(filter.rules().tightening),
            },
        })
    }

    /// Width of the hash of an item, in bits.
    #[must_use]
    pub fn hash_bits(&self) -> u32 {
        match self {
            Self::Native(_) | Self::Windowed(_) | Self::Counting(_) => 128,
            Self::RedisBloom(filter) => filter.rules().hash_bits(),
            Self::ValkeyBloom(_) => 64,
        }
    }
}
