//! What a new filter is to be, as a command asks for it.

use super::{Refusal, is, numbers};
use crate::kinds::{Defaults, LayoutName, Request, Seed, Spec};

/// What a new filter is to be, and what the command wants to know of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Creation {
    /// What makes it.
    pub spec: Spec,
    /// The false positive rate that was asked for, inside (0, 1); that of `spec` is the nearest that is of use.
    pub asked_rate: f64,
    /// The number of items that it must be able to grow to, where one was asked for.
    pub scale_to: Option<u64>,
    /// The key's time to live in milliseconds, where one was asked for.
    pub expires: Option<u64>,
}

impl Creation {
    /// What a request comes to.
    ///
    /// # Errors
    /// [`Refusal::LayoutMismatch`] for words of different kinds.
    pub(super) fn of(request: &Request, scale_to: Option<u64>, defaults: &Defaults) -> Result<Self, Refusal> {
        let spec = Spec::of(request, defaults).ok_or(Refusal::LayoutMismatch)?;
        Ok(Self { spec, asked_rate: request.rate, scale_to, expires: None })
    }

    /// What a filter is that no command described.
    ///
    /// # Errors
    /// None: defaults are of one kind.
    pub fn by_default(defaults: &Defaults) -> Result<Self, Refusal> {
        Self::of(&Request::new(defaults), None, defaults)
    }
}

/// The layout that a word names, in any case.
pub(super) fn layout(word: &[u8]) -> Option<LayoutName> {
    let names = [("native", LayoutName::Native), ("redisbloom", LayoutName::RedisBloom)];
    names.into_iter().find(|(name, _)| is(word, name)).map(|(_, layout)| layout)
}

/// The seed that a word is: a decimal number, or 32 raw bytes.
pub(super) fn seed(word: &[u8]) -> Option<Seed> {
    word.try_into().map(Seed::Bytes).ok().or_else(|| numbers::seed(word).map(Seed::Number))
}
