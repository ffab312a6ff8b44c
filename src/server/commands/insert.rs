//! `BF.INSERT key [CAPACITY c] [ERROR r] [EXPANSION e] [NOCREATE] [NONSCALING] [SEED s] [TIGHTENING t]
//! [LAYOUT native | redisbloom] [VALIDATESCALETO n] [ITEMS item [item ...]]`

use super::adding::{Shape, add_items};
use crate::server::args::Args;
use crate::server::config;
use crate::server::context::Context;
use crate::server::reply::Refusal;
use crate::words::insert::{self, Insert};

/// Adds items to a filter, which is created as described if there is none; answers of each whether it was new.
///
/// What a primary carries it has done. So its filter exists, also where this server may not create one; and where its words
/// are not understood, going on would leave items out.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let usual = config::usual(context);
    let Insert { creation, items } = match insert::parse(args.words(), &usual) {
        Err(refusal) if usual.must_obey => context.cannot_obey(format_args!("BF.INSERT: {refusal}")),
        parsed => parsed?,
    };
    let creation = creation.or_else(|| usual.must_obey.then(|| usual.creation()));
    add_items(context, args, items, || creation, Shape::Many)
}
