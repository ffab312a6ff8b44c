//! `BF.INSERT key [CAPACITY c] [ERROR r] [EXPANSION e] [NOCREATE] [NONSCALING] [SEED s] [VALIDATESCALETO n]
//! [ITEMS item [item ...]]`
//!
//! ITEMS may be left out behind a word of valkey-bloom's, SEED or VALIDATESCALETO, and by a primary and the AOF.

use super::adding::{self, Shape, add_items};
use crate::bloom::Scaling;
use crate::server::args::{self, Args, Creation, Word};
use crate::server::config;
use crate::server::context::Context;
use crate::server::reply::Refusal;

/// Adds items to a filter, which is created as described if there is none; answers of each whether it was new.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let options = Options::parse(args)?;
    let itemless = options.creation.seed.is_some() || options.creation.scale_to.is_some() || context.must_obey();
    if options.items.is_empty() && !itemless {
        return Err(Refusal::Arity);
    }
    if options.creation.scale_to.is_some() && options.creation.scaling == Scaling::Fixed {
        return Err(Refusal::FixedScaleTo);
    }
    let mut creation = options.creation;
    creation.rate = adding::rate(context, creation.rate);
    let creation = options.may_create.then_some(&creation);
    add_items(context, args.word(1)?, options.items, creation, Shape::Many)
}

struct Options<'a> {
    creation: Creation,
    may_create: bool,
    /// Empty where ITEMS was left out.
    items: &'a [Word<'a>],
}

impl<'a> Options<'a> {
    /// Reads the words from the first to the last, or to ITEMS; the last one of its kind counts.
    fn parse(words: Args<'a>) -> Result<Self, Refusal> {
        let mut creation = config::creation();
        let (mut may_create, mut fixed) = (true, false);
        let mut items: &[Word<'_>] = &[];
        let mut index = 2;
        while index < words.len() {
            let option = words.word(index)?.bytes();
            let value = || words.word(index + 1).map(Word::bytes);
            let mut taken = 2;
            if args::is(option, "CAPACITY") {
                creation.capacity = args::capacity(value()?).ok_or(Refusal::InsertCapacity)?;
            } else if args::is(option, "ERROR") {
                let rate = args::float(value()?).filter(|rate| args::is_rate(*rate));
                creation.rate = rate.ok_or(Refusal::InsertRate)?;
            } else if args::is(option, "EXPANSION") {
                let expansion = args::integer(value()?).and_then(args::expansion);
                creation.scaling = Scaling::from_expansion(expansion.ok_or(Refusal::InsertExpansion)?);
            } else if args::is(option, "SEED") {
                creation.seed = Some(args::seed(value()?).ok_or(Refusal::InsertSeed)?);
            } else if args::is(option, "VALIDATESCALETO") {
                creation.scale_to = Some(args::capacity(value()?).ok_or(Refusal::InsertScaleTo)?);
            } else if args::is(option, "NOCREATE") {
                (may_create, taken) = (false, 1);
            } else if args::is(option, "NONSCALING") {
                (fixed, taken) = (true, 1);
            } else if args::is(option, "ITEMS") {
                items = words.rest(index + 1)?;
                break;
            } else {
                return Err(Refusal::InsertUnknown);
            }
            index += taken;
        }
        if fixed {
            creation.scaling = Scaling::Fixed;
        }
        Ok(Self { creation, may_create, items })
    }
}
