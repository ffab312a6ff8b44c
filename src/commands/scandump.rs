//! `BF.SCANDUMP key iterator`

use bloomgate_filter::words::iterators;

use crate::args::Args;
use crate::context::Context;
use crate::key::{ReadKey, filter_of};
use crate::reply::{self, Refusal};

/// Answers the record after the one with the iterator, 0 for the first: its iterator and its data, which BF.LOADCHUNK
/// takes. At the end 0 and nothing. A filter of RedisBloom's layout is dumped as RedisBloom dumps it.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    // RedisBloom looks at the key before it looks at the iterator.
    let key = ReadKey::open(context, args.arg(1)?);
    let stored = key.stored()?.ok_or(Refusal::NotFound)?;
    let filter = filter_of(&stored.value)?;
    let iterator = iterators::scandump(args.words())?;
    let next = match u64::try_from(iterator) {
        Ok(iterator) => {
            filter.next_record(stored.generation, iterator, &mut stored.mark.borrow_mut()).map_err(Refusal::Dump)?
        }
        Err(_) => None,
    };
    let (iterator, data) = next.unwrap_or_default();
    reply::array(context, 2);
    reply::integer(context, iterator);
    reply::bytes(context, &data);
    Ok(())
}
