//! `BF.PLAN error_rate capacity [option ...]`

use super::Refusal;
use super::options::{Command, Creation, rate_and_capacity};
use crate::kinds::{Defaults, Request, Spec};

/// A parsed BF.PLAN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// The description of the filter.
    pub spec: Spec,
    /// The number of items that the filter will hold; 0 for an empty filter.
    pub items: Option<u64>,
}

/// Parses the words, always by the rules for clients: the command is never replicated.
pub fn parse<W: AsRef<[u8]>>(words: &[W], defaults: &Defaults) -> Result<Asked, Refusal> {
    let defaults = &Defaults { must_obey: false, ..*defaults };
    let request = rate_and_capacity(Command::Plan, words, defaults)?;
    let (given, _) = Command::Plan.read(words, false)?;
    let request = Request { scaling: given.scaling(defaults)?, ..request };
    let Creation { spec, .. } = Creation::of(&given.apply(request, Refusal::Bad("seed"))?, None, defaults)?;
    if spec.is_beyond_redisbloom() { Err(Refusal::CapacityRange) } else { Ok(Asked { spec, items: given.items }) }
}
