//! What BF.INFO and BF.DEBUG tell of a filter.

use std::ffi::CStr;

use crate::chain::Layer;
use crate::geometry::Geometry;

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
