//! `BF.INSERT key [CAPACITY c] [ERROR r] [EXPANSION e] [NOCREATE] [NONSCALING] [SEED s] [TIGHTENING t]
//! [LAYOUT native | redisbloom] [VALIDATESCALETO n] [ITEMS item [item ...]]`
//!
//! ITEMS may be left out behind a word of valkey-bloom's (SEED, TIGHTENING, VALIDATESCALETO) and by a primary and the AOF.

use super::adding::{Shape, add_items};
use crate::bloom::Scaling;
use crate::bloom::redisbloom::CAPACITY_MAX;
use crate::server::args::{self, Args, Creation, Kind, KindWords, LayoutName, Word};
use crate::server::config;
use crate::server::context::Context;
use crate::server::reply::Refusal;

/// Adds items to a filter, which is created as described if there is none; answers of each whether it was new.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let must_obey = context.must_obey();
    let options = Options::parse(args, config::creation(context), must_obey)?;
    let Options { mut creation, kind, may_create, items } = options;
    let itemless = kind.seed.is_some() || kind.tightening.is_some() || creation.scale_to.is_some() || must_obey;
    if items.is_empty() && !itemless {
        return Err(Refusal::Arity);
    }
    if creation.scale_to.is_some() && creation.scaling == Scaling::Fixed {
        return Err(Refusal::FixedScaleTo);
    }
    creation.kind = config::kind(context, kind)?;
    if creation.kind == Kind::RedisBloom && creation.capacity > CAPACITY_MAX && !must_obey {
        return Err(Refusal::InsertCapacity);
    }
    add_items(context, args, items, || may_create.then_some(creation), Shape::Many)
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
    Items,
}

impl Name {
    const WHOLE: [(&'static str, Self); 10] = [
        ("CAPACITY", Self::Capacity),
        ("ERROR", Self::Error),
        ("EXPANSION", Self::Expansion),
        ("NOCREATE", Self::NoCreate),
        ("NONSCALING", Self::NonScaling),
        ("SEED", Self::Seed),
        ("TIGHTENING", Self::Tightening),
        ("LAYOUT", Self::Layout),
        ("VALIDATESCALETO", Self::ValidateScaleTo),
        ("ITEMS", Self::Items),
    ];
    /// As much of a word as RedisBloom looks at.
    const SHORT: [(&'static str, Self); 6] = [
        ("C", Self::Capacity),
        ("ER", Self::Error),
        ("EX", Self::Expansion),
        ("NOC", Self::NoCreate),
        ("NON", Self::NonScaling),
        ("I", Self::Items),
    ];

    /// The option that a word names, in any case. A client's words are whole; those of a primary and of the AOF, which
    /// have done what they say, may be as short as RedisBloom allows.
    fn of(word: &[u8], may_be_short: bool) -> Option<Self> {
        let whole = Self::WHOLE.into_iter().find(|(name, _)| args::is(word, name));
        let short = || {
            let begins = |name: &str| word.get(..name.len()).is_some_and(|begin| args::is(begin, name));
            Self::SHORT.into_iter().find(|(name, _)| may_be_short && begins(name))
        };
        whole.or_else(short).map(|(_, name)| name)
    }
}

struct Options<'a> {
    creation: Creation,
    kind: KindWords,
    may_create: bool,
    /// Empty where ITEMS was left out.
    items: &'a [Word<'a>],
}

impl<'a> Options<'a> {
    /// Reads the words from the first to the last, or to ITEMS; the last one of its kind counts.
    fn parse(words: Args<'a>, usual: Creation, must_obey: bool) -> Result<Self, Refusal> {
        let mut options = Self { creation: usual, kind: KindWords::default(), may_create: true, items: &[] };
        let Self { creation, kind, may_create, items } = &mut options;
        let mut fixed = false;
        let mut index = 2;
        while index < words.len() {
            let name = Name::of(words.word(index)?.bytes(), must_obey).ok_or(Refusal::InsertUnknown)?;
            let value = || words.word(index + 1).map(Word::bytes);
            match name {
                Name::Capacity => creation.capacity = args::capacity(value()?).ok_or(Refusal::InsertCapacity)?,
                Name::Error => creation.rate = fraction(value()?).ok_or(Refusal::InsertRate)?,
                Name::Expansion => {
                    let expansion = args::integer(value()?).and_then(|number| args::expansion(number, must_obey));
                    creation.scaling = Scaling::from_expansion(expansion.ok_or(Refusal::InsertExpansion)?);
                }
                Name::NoCreate => *may_create = false,
                Name::NonScaling => fixed = true,
                Name::Seed => kind.seed = Some(args::any_seed(value()?).ok_or(Refusal::InsertSeed)?),
                Name::Tightening => kind.tightening = Some(fraction(value()?).ok_or(Refusal::InsertTightening)?),
                Name::Layout => kind.layout = Some(LayoutName::named(value()?).ok_or(Refusal::InsertLayout)?),
                Name::ValidateScaleTo => {
                    creation.scale_to = Some(args::capacity(value()?).ok_or(Refusal::InsertScaleTo)?);
                }
                Name::Items => {
                    *items = words.rest(index + 1)?;
                    break;
                }
            }
            index += if matches!(name, Name::NoCreate | Name::NonScaling) { 1 } else { 2 };
        }
        if fixed {
            creation.scaling = Scaling::Fixed;
        }
        Ok(options)
    }
}

/// A number inside (0, 1).
fn fraction(word: &[u8]) -> Option<f64> {
    args::float(word).filter(|number| args::is_rate(*number))
}
