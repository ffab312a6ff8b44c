//! `BF.COUNT key item`

use crate::args::Args;
use crate::context::Context;
use crate::keys::{Keyspace, ReadKey};
use crate::reply::{self, Refusal};

/// Answers how often an item is in a filter that counts: the least of its counters. In a missing filter nothing is.
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
