//! `BF.MADD key item [item ...]`

use super::adding::{Shape, add_items};
use crate::server::args::Args;
use crate::server::config;
use crate::server::context::Context;
use crate::server::reply::Refusal;

/// Adds items; answers of each whether it was new.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let creation = || Some(config::creation(context));
    add_items(context, args, args.rest(2)?, creation, Shape::Many)
}
