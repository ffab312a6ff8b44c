//! `BF.SCANDUMP key iterator`

use bloomgate_filter::Filter;
use bloomgate_filter::format::Record;
use bloomgate_filter::words::iterators;

use crate::args::Args;
use crate::context::Context;
use crate::keys::{Keyspace, ReadKey, Stored, filter_of, marks};
use crate::reply::{self, Refusal};

/// Replies with the record after the one with this iterator, or the first one after 0: its iterator and its data, for BF.LOADCHUNK. At
/// the end, replies with 0 and an empty string. A filter of RedisBloom's layout is dumped as RedisBloom dumps it.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    // RedisBloom checks the key before it parses the iterator.
    let key = ReadKey::open(keys, args.arg(1)?);
    let stored = key.stored()?.ok_or(Refusal::NotFound)?;
    let filter = filter_of(&stored.value)?;
    let iterator = iterators::scandump(args.words())?;
    let next = match u64::try_from(iterator) {
        Ok(iterator) => next_record(stored, filter, iterator)?,
        Err(_) => None,
    };
    let (iterator, data) = next.unwrap_or_default();
    reply::array(context, 2);
    reply::integer(context, iterator);
    reply::bytes(context, &data);
    Ok(())
}

/// Returns the record after the one with this iterator. The list of marks remembers the state of the value when the dump began.
fn next_record<'a>(stored: &Stored, filter: &'a Filter, iterator: u64) -> Result<Option<Record<'a>>, Refusal> {
    let mut mark = marks::take(stored.instance);
    let next = filter.next_record(stored.generation, iterator, &mut mark);
    marks::put(stored.instance, mark)?;
    next.map_err(Refusal::Dump)
}
