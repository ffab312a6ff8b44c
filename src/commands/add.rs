//! `BF.ADD key item`

use bloomgate_filter::words::Creation;

use super::adding::{Shape, add_items};
use crate::args::Args;
use crate::config;
use crate::context::Context;
use crate::reply::Refusal;

/// Adds an item; answers whether it was new.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let creation = || Creation::by_default(&config::defaults(context)).map(Some);
    add_items(context, args, args.rest(2)?, creation, Shape::One)
}
