//! `BF.CARD key`

use crate::server::args::Args;
use crate::server::context::Context;
use crate::server::key::Key;
use crate::server::reply::{self, Refusal};

/// Answers how many items were added: those that were answered with 1. In a missing filter there are none.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let items = Key::read(context, args.word(1)?).filter()?.map_or(0, |filter| filter.items());
    reply::integer(context, items);
    Ok(())
}
