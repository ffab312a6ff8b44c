//! `BF.SCANDUMP key iterator`

use bloomgate_filter::format::Record;
use bloomgate_filter::format::records::DumpMark;
use bloomgate_filter::words::iterators;
use bloomgate_filter::{Filter, try_box};

use crate::args::Args;
use crate::context::Context;
use crate::keys::{Keyspace, ReadKey, Stored, filter_of};
use crate::reply::{self, Refusal};

/// Answers the record after the one with the iterator, 0 for the first: its iterator and its data, which BF.LOADCHUNK
/// takes. At the end 0 and nothing. A filter of RedisBloom's layout is dumped as RedisBloom dumps it.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    // RedisBloom looks at the key before it looks at the iterator.
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

/// The record after the one with the iterator. The value keeps what it was when its dump began.
fn next_record<'a>(stored: &Stored, filter: &'a Filter, iterator: u64) -> Result<Option<Record<'a>>, Refusal> {
    let mut mark = match stored.mark.take() {
        Some(mark) => mark,
        None => try_box(DumpMark::default())?,
    };
    let next = filter.next_record(stored.generation, iterator, &mut mark);
    stored.mark.set(Some(mark).filter(|mark| !mark.is_empty()));
    next.map_err(Refusal::Dump)
}
