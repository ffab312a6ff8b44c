//! `BF.CARD key`

use crate::args::Args;
use crate::clock::CommandClock;
use crate::context::Context;
use crate::keys::{Keyspace, ReadKey};
use crate::reply::{self, Refusal};

/// Replies with the number of items: adds that were answered with 1, less deletes that were. A missing filter has 0.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let key = ReadKey::open(keys, args.arg(1)?);
    let items = key.filter()?.map_or(0, |filter| filter.live_contents(&CommandClock::default()).items);
    reply::integer(context, items);
    Ok(())
}
