//! `BF.EXISTS key item`

use crate::server::args::Args;
use crate::server::context::Context;
use crate::server::key::Key;
use crate::server::metrics;
use crate::server::reply::{self, Refusal};

/// Answers whether an item may be in; in a missing filter nothing is.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let item = args.word(2)?;
    let mut key = Key::read(context, args.word(1)?);
    let exists = key.filter()?.is_some_and(|filter| filter.contains(item.bytes()));
    metrics::items_looked_up(1, exists.into());
    reply::boolean(context, exists);
    Ok(())
}
