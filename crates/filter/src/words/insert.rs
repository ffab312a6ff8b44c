//! `BF.INSERT key [CAPACITY c] [ERROR r] [EXPANSION e] [NOCREATE] [NONSCALING] [SEED s] [TIGHTENING t]
//! [LAYOUT native | redisbloom] [VALIDATESCALETO n] [SYNC] [ITEMS item [item ...]]`, and the words of
//! `beyond.rs`
//!
//! ITEMS may be left out after a word of valkey-bloom's (SEED, TIGHTENING, VALIDATESCALETO) and by a primary and the AOF.

use super::beyond::{Beside, Beyond};
use super::creation::{Creation, layout, seed};
use super::{Refusal, is, numbers, word};
use crate::kinds::{Defaults, Request};
use crate::scaling::Scaling;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Insert<'a, W> {
    /// What the filter is to be where there is none; nothing where none may be made.
    pub creation: Option<Creation>,
    /// The items. Empty where ITEMS was left out.
    pub items: &'a [W],
    /// Whether items that are not new are carried, too, so that a client can wait until the replicas have them.
    pub is_sync: bool,
}

/// Reads the words from the first to the last, or to ITEMS; the last one of its kind counts.
///
/// # Errors
/// What is wrong with the words. Nothing else: there need not be memory for the filter.
pub fn parse<'a, W: AsRef<[u8]>>(words: &'a [W], defaults: &Defaults) -> Result<Insert<'a, W>, Refusal> {
    let Options { request, scale_to, may_create, is_sync, items, beyond } = Options::parse(words, defaults)?;
    let itemless = request.seed.is_some() || request.tightening.is_some() || scale_to.is_some() || defaults.must_obey;
    if items.is_empty() && !itemless {
        return Err(Refusal::Arity);
    }
    if scale_to.is_some() && request.scaling == Scaling::Fixed {
        return Err(Refusal::FixedScaleTo);
    }
    let creation = Creation { expires: beyond.expires(), ..Creation::of(&request, scale_to, defaults)? };
    if creation.spec.is_beyond_redisbloom() && !defaults.must_obey {
        return Err(Refusal::InsertCapacity);
    }
    Ok(Insert { creation: may_create.then_some(creation), items, is_sync })
}

/// Whether there may be items in words that are not understood: something comes after a word that begins as ITEMS does.
pub fn may_carry_items<W: AsRef<[u8]>>(words: &[W]) -> bool {
    let mut options = words.iter().skip(2).map(AsRef::as_ref);
    options.any(|word| word.first().is_some_and(|first| first.eq_ignore_ascii_case(&b'I'))) && options.next().is_some()
}

/// The words that are options.
#[derive(Clone, Copy, PartialEq)]
enum Name {
    Capacity,
    Error,
    Expansion,
    NoCreate,
    NonScaling,
    Seed,
    Tightening,
    Layout,
    ValidateScaleTo,
    Sync,
    /// One of [`Beyond`].
    Beyond,
    Items,
}

impl Name {
    const WHOLE: [(&'static str, Self); 11] = [
        ("CAPACITY", Self::Capacity),
        ("ERROR", Self::Error),
        ("EXPANSION", Self::Expansion),
        ("NOCREATE", Self::NoCreate),
        ("NONSCALING", Self::NonScaling),
        ("SEED", Self::Seed),
        ("TIGHTENING", Self::Tightening),
        ("LAYOUT", Self::Layout),
        ("VALIDATESCALETO", Self::ValidateScaleTo),
        ("SYNC", Self::Sync),
        ("ITEMS", Self::Items),
    ];
    /// As much of a word as RedisBloom looks at, in this order.
    const SHORT: [(&'static str, Self); 6] = [
        ("C", Self::Capacity),
        ("ER", Self::Error),
        ("E", Self::Expansion),
        ("NOC", Self::NoCreate),
        ("N", Self::NonScaling),
        ("I", Self::Items),
    ];

    /// The option that a word names, in any case. A client's words are whole. Those of a primary and of the AOF, which have
    /// done what they say, may begin as RedisBloom's do and go on as they like: there EX is an expansion.
    fn of(word: &[u8], may_be_short: bool) -> Option<Self> {
        let is_time_to_live = is(word, "EX") || is(word, "PX");
        if Beyond::length_of(word) > 0 && !(may_be_short && is_time_to_live) {
            return Some(Self::Beyond);
        }
        let whole = Self::WHOLE.into_iter().find(|(name, _)| is(word, name));
        let short = || {
            let begins = |name: &str| word.get(..name.len()).is_some_and(|begin| is(begin, name));
            Self::SHORT.into_iter().find(|(name, _)| may_be_short && begins(name))
        };
        whole.or_else(short).map(|(_, name)| name)
    }
}

struct Options<'a, W> {
    request: Request,
    scale_to: Option<u64>,
    may_create: bool,
    is_sync: bool,
    items: &'a [W],
    beyond: Beyond,
}

impl<'a, W: AsRef<[u8]>> Options<'a, W> {
    fn parse(words: &'a [W], defaults: &Defaults) -> Result<Self, Refusal> {
        let mut options = Self {
            request: Request::new(defaults),
            scale_to: None,
            may_create: true,
            is_sync: false,
            items: &[],
            beyond: Beyond::default(),
        };
        let Self { request, scale_to, may_create, is_sync, items, beyond } = &mut options;
        let must_obey = defaults.must_obey;
        let (mut capacity, mut expansion, mut fixed) = (None, None, false);
        let mut index = 2;
        while index < words.len() {
            let option = word(words, index)?;
            let name = Name::of(option, must_obey).ok_or(Refusal::InsertUnknown)?;
            let mut length = 2;
            let value = || word(words, index + 1);
            match name {
                Name::Capacity => {
                    let number = numbers::integer(value()?).filter(|number| must_obey || *number > 0);
                    capacity = Some(number.ok_or(Refusal::InsertCapacity)?);
                }
                Name::Error => {
                    let rate = numbers::float(value()?, must_obey).filter(|rate| must_obey || numbers::is_rate(*rate));
                    request.rate = rate.ok_or(Refusal::InsertRate)?;
                }
                Name::Expansion => {
                    let may_be = |number: &i64| must_obey || numbers::expansion(*number, false).is_some();
                    let number = numbers::integer(value()?).filter(may_be);
                    expansion = Some(number.ok_or(Refusal::InsertExpansion)?);
                }
                Name::NoCreate => (*may_create, length) = (false, 1),
                Name::NonScaling => (fixed, length) = (true, 1),
                Name::Sync => (*is_sync, length) = (true, 1),
                Name::Beyond => length = beyond.take(option, |_| value())?,
                Name::Seed => request.seed = Some(seed(value()?).ok_or(Refusal::InsertSeed)?),
                Name::Tightening => {
                    request.tightening = Some(numbers::fraction(value()?, must_obey).ok_or(Refusal::InsertTightening)?);
                }
                Name::Layout => request.layout = Some(layout(value()?).ok_or(Refusal::InsertLayout)?),
                Name::ValidateScaleTo => {
                    *scale_to = Some(numbers::capacity(value()?).ok_or(Refusal::InsertScaleTo)?);
                }
                Name::Items => {
                    *items = words.get(index + 1..).filter(|items| !items.is_empty()).ok_or(Refusal::Arity)?;
                    break;
                }
            }
            index += length;
        }
        // RedisBloom 2.6 looks at the range of the number that counts, and of no other.
        if let Some(number) = capacity {
            let number = u64::try_from(number).ok().filter(|number| *number > 0);
            request.capacity = number.ok_or(Refusal::InsertCapacity)?;
        }
        if !numbers::is_rate(request.rate) {
            return Err(Refusal::InsertRate);
        }
        if let Some(number) = expansion {
            let number = numbers::expansion(number, must_obey).ok_or(Refusal::InsertExpansion)?;
            request.scaling = Scaling::from_expansion(number);
        }
        if fixed {
            request.scaling = Scaling::Fixed;
        }
        let beside = Beside { has_expansion: expansion.is_some(), has_scale_to: scale_to.is_some() };
        beyond.apply(request, beside, Refusal::InsertSeed)?;
        Ok(options)
    }
}
