//! `BF.EXISTS key item`

use crate::args::Args;
use crate::clock::CommandClock;
use crate::context::Context;
use crate::keys::{Keyspace, ReadKey};
use crate::metrics;
use crate::reply::{self, Refusal};

/// Replies whether a filter may contain an item. A missing filter contains nothing.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let item = args.arg(2)?;
    let key = ReadKey::open(keys, args.arg(1)?);
    let exists = key.filter()?.is_some_and(|filter| filter.contains(item.bytes(), &CommandClock::default()));
    metrics::items_looked_up(1, exists.into());
    reply::boolean(context, exists);
    Ok(())
}
