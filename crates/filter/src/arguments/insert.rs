//! `BF.INSERT key [option ...] [ITEMS item [item ...]]`, or `BF.INSERT key AS definition [item ...]`
//!
//! ITEMS may be omitted after an option of valkey-bloom's (SEED, TIGHTENING, VALIDATESCALETO), by a primary and in the AOF. The second form
//! is how primaries replicate the creation of a native filter. It is not in COMMAND DOCS: a definition is not for people to write.

use super::options::{Command, Creation, Given};
use super::{Refusal, is, numbers};
use crate::geometry::sizing::Scaling;
use crate::kinds::{Defaults, NativeSpec, Request, Spec};

/// A parsed BF.INSERT.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Insert<'a, W> {
    /// The filter to create if the key is missing; `None` with NOCREATE.
    pub creation: Option<Creation>,
    /// The items. Empty if ITEMS was omitted.
    pub items: &'a [W],
    /// Whether items that are not new are replicated as well, so that a client can wait until the replicas have them.
    pub is_sync: bool,
    /// Whether items that only an older bucket has are added to the newest bucket of a filter that forgets.
    pub renews: bool,
}

/// Parses the words.
pub fn parse<'a, W: AsRef<[u8]>>(words: &'a [W], defaults: &Defaults) -> Result<Insert<'a, W>, Refusal> {
    let must_obey = defaults.must_obey;
    if let [_, _, option, definition, items @ ..] = words
        && is(option.as_ref(), "AS")
    {
        return of_definition(definition.as_ref(), items, must_obey);
    }
    let (given, items) = Command::Insert.read(words, must_obey)?;
    let scale_to = given.scale_to;
    let request = given.apply(request(&given, defaults)?, Refusal::InsertBad("seed"))?;
    let itemless = request.seed.is_some() || request.tightening.is_some() || scale_to.is_some() || must_obey;
    if items.is_empty() && !itemless {
        return Err(Refusal::Arity);
    }
    if scale_to.is_some() && request.scaling == Scaling::Fixed {
        return Err(Refusal::FixedScaleTo);
    }
    let creation = Creation { expires: given.expires(), ..Creation::of(&request, scale_to, defaults)? };
    if creation.spec.is_beyond_redisbloom() && !must_obey {
        return Err(Refusal::InsertBad("capacity"));
    }
    let Given { has_nocreate, is_sync, renews, .. } = given;
    Ok(Insert { creation: (!has_nocreate).then_some(creation), items, is_sync, renews })
}

/// Parses the form with a definition. Unlike a primary, a client may not exceed the expansion of EXPANSION.
fn of_definition<'a, W>(word: &[u8], items: &'a [W], must_obey: bool) -> Result<Insert<'a, W>, Refusal> {
    let spec = NativeSpec::from_word(word).ok();
    let spec = spec.filter(|spec| must_obey || spec.scaling.expansion() <= numbers::EXPANSION_MAX);
    let spec = spec.ok_or(Refusal::Bad("definition"))?;
    let creation = Creation { spec: Spec::Native(spec), asked_rate: spec.rate, scale_to: None, expires: None };
    Ok(Insert { creation: Some(creation), items, is_sync: false, renews: false })
}

/// Checks the numbers that take effect: RedisBloom 2.6 checks the range of a repeated option's last value only.
fn request(given: &Given, defaults: &Defaults) -> Result<Request, Refusal> {
    let mut request = Request { rate: given.rate.unwrap_or(defaults.rate), ..Request::new(defaults) };
    if let Some(number) = given.capacity {
        let number = u64::try_from(number).ok().filter(|number| *number > 0);
        request.capacity = number.ok_or(Refusal::InsertBad("capacity"))?;
    }
    if !numbers::is_rate(request.rate) {
        return Err(Refusal::InsertBad("error rate"));
    }
    if let Some(number) = given.expansion {
        let number = numbers::expansion(number, defaults.must_obey).ok_or(Refusal::InsertBad("expansion"))?;
        request.scaling = Scaling::from_expansion(number);
    }
    if given.is_fixed {
        request.scaling = Scaling::Fixed;
    }
    Ok(request)
}
