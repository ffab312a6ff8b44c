//! `BF.RESERVE key error_rate capacity [EXPANSION e] [NONSCALING] [SEED s] [LAYOUT native | redisbloom]`

use super::adding;
use crate::server::args::Args;
use crate::server::config;
use crate::server::context::Context;
use crate::server::key::Key;
use crate::server::replicate::{self, NewItems};
use crate::server::reply::{self, Refusal};
use crate::words::reserve;

/// Creates an empty filter.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let creation = reserve::parse(args.words(), &config::usual(context))?;
    let name = args.word(1)?;
    let mut key = Key::write(context, name);
    if key.stored()?.is_some() {
        return Err(Refusal::Exists);
    }
    let mut stored = adding::create(context, &creation)?;
    replicate::created(context, name, stored.filter()?, &NewItems::new());
    key.install(stored);
    key.close_changed().notify(c"bloom.reserve");
    reply::ok(context);
    Ok(())
}
