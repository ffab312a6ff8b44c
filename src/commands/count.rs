//! `BF.COUNT key item`

use crate::args::Args;
use crate::context::Context;
use crate::keys::{Keyspace, ReadKey};
use crate::reply::{self, Refusal};

/// Replies how often a counting filter contains an item: the least of its counters. A missing filter contains nothing.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let item = args.arg(2)?;
    let key = ReadKey::open(keys, args.arg(1)?);
    let count = match key.filter()? {
        None => 0,
        Some(filter) => filter.counting().ok_or(Refusal::HasNot("COUNTING"))?.count(item.bytes()),
    };
    reply::integer(context, count.into());
    Ok(())
}
