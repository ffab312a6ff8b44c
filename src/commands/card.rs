//! `BF.CARD key`

use crate::args::Args;
use crate::context::Context;
use crate::key::ReadKey;
use crate::reply::{self, Refusal};

/// Answers how many items were added: those that were answered with 1. In a missing filter there are none.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let items = ReadKey::open(context, args.arg(1)?).filter()?.map_or(0, |filter| filter.items());
    reply::integer(context, items);
    Ok(())
}
