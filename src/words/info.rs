//! `BF.INFO key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION | ERROR | TIGHTENING | MAXSCALEDCAPACITY]`

use std::ffi::CStr;

use super::{Refusal, is, word};

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

/// The field that is asked for; nothing where all are.
///
/// # Errors
/// [`Refusal::InfoField`], [`Refusal::Arity`].
pub fn parse<W: AsRef<[u8]>>(words: &[W]) -> Result<Option<Field>, Refusal> {
    match words.len() {
        2 => Ok(None),
        3 => {
            let word = word(words, 2)?;
            let field = Field::VALKEY_BLOOM.into_iter().find(|field| is(word, field.words().0));
            field.map(Some).ok_or(Refusal::InfoField)
        }
        _ => Err(Refusal::Arity),
    }
}
