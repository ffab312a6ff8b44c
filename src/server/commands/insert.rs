//! `BF.INSERT key [CAPACITY c] [ERROR r] [EXPANSION e] [NOCREATE] [NONSCALING] [SEED s] [TIGHTENING t]
//! [LAYOUT native | redisbloom] [VALIDATESCALETO n] [ITEMS item [item ...]]`

use super::adding::{Shape, add_items};
use crate::server::args::Args;
use crate::server::config;
use crate::server::context::Context;
use crate::server::reply::Refusal;
use crate::words::insert::{self, Insert};

/// Adds items to a filter, which is created as described if there is none; answers of each whether it was new.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let Insert { creation, items } = insert::parse(args.words(), &config::usual(context))?;
    add_items(context, args, items, || creation, Shape::Many)
}
