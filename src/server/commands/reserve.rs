//! `BF.RESERVE key error_rate capacity [EXPANSION e] [NONSCALING] [SEED s] [LAYOUT native | redisbloom]`

use super::adding;
use crate::bloom::Scaling;
use crate::bloom::redisbloom::CAPACITY_MAX;
use crate::server::args::{self, Args, Creation, Kind, KindWords, LayoutName, Seed, Word};
use crate::server::config;
use crate::server::context::Context;
use crate::server::key::Key;
use crate::server::replicate::{self, NewItems};
use crate::server::reply::{self, Refusal};

/// All options together.
const WORDS_MAX: usize = 11;

/// Creates an empty filter.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let creation = parse(context, args)?;
    let name = args.word(1)?;
    let mut key = Key::write(context, name);
    if key.stored()?.is_some() {
        return Err(Refusal::Exists);
    }
    key.install(adding::create(context, &creation)?);
    if let Some(filter) = key.filter()? {
        replicate::created(context, name, filter, &NewItems::new());
    }
    key.signal_changed();
    key.notify(c"bloom.reserve");
    reply::ok(context);
    Ok(())
}

/// Reads the words; what is wrong with the rate is said before what is wrong with the capacity, and so on.
fn parse(context: Context, words: Args<'_>) -> Result<Creation, Refusal> {
    let must_obey = context.must_obey();
    if words.len() > WORDS_MAX && !must_obey {
        return Err(Refusal::Arity);
    }
    let rate = args::float(words.word(2)?.bytes()).ok_or(Refusal::BadRate)?;
    if !args::is_rate(rate) {
        return Err(Refusal::RateRange);
    }
    let capacity = args::integer(words.word(3)?.bytes()).ok_or(Refusal::BadCapacity)?;
    let capacity = u64::try_from(capacity).ok().filter(|capacity| *capacity > 0).ok_or(Refusal::CapacityRange)?;

    let (mut expansion, mut fixed, mut kind) = (None, false, KindWords::default());
    let mut index = 4;
    while index < words.len() {
        let option = words.word(index)?.bytes();
        let value = |missing| words.word(index + 1).map(Word::bytes).map_err(|_| missing);
        let mut taken = 2;
        if args::is(option, "EXPANSION") {
            let number = args::integer(value(Refusal::NoExpansion)?).ok_or(Refusal::BadExpansion)?;
            expansion = Some(args::expansion(number, must_obey).ok_or(Refusal::ExpansionRange)?);
        } else if args::is(option, "SEED") {
            kind.seed = Some(args::seed(value(Refusal::NoSeed)?).map(Seed::Number).ok_or(Refusal::BadSeed)?);
        } else if args::is(option, "LAYOUT") {
            kind.layout = Some(LayoutName::named(value(Refusal::NoLayout)?).ok_or(Refusal::BadLayout)?);
        } else if args::is(option, "NONSCALING") {
            (fixed, taken) = (true, 1);
        } else if must_obey {
            // RedisBloom passes over words that it does not know.
            taken = 1;
        } else {
            return Err(Refusal::Syntax);
        }
        index += taken;
    }
    let scaling = match (expansion, fixed) {
        (Some(1..), true) => return Err(Refusal::FixedExpansion),
        (_, true) => Scaling::Fixed,
        (Some(expansion), false) => Scaling::from_expansion(expansion),
        (None, false) => config::creation(context).scaling,
    };
    let kind = config::kind(context, kind)?;
    if kind == Kind::RedisBloom && capacity > CAPACITY_MAX && !must_obey {
        return Err(Refusal::CapacityRange);
    }
    Ok(Creation { rate, capacity, scaling, kind, scale_to: None })
}
