//! `BF.SCANDUMP key iterator`

use crate::bloom::Filter;
use crate::format::{Value, dump, redisbloom_dump};
use crate::server::args::Args;
use crate::server::context::Context;
use crate::server::key::Key;
use crate::server::reply::{self, Refusal};
use crate::words::records;

/// Answers the record behind the one with the iterator, 0 for the first: its iterator and its data, which BF.LOADCHUNK
/// takes. At the end 0 and nothing. A filter of RedisBloom's layout is dumped as RedisBloom dumps it.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let iterator = records::scandump(args.words())?;
    let mut key = Key::read(context, args.word(1)?);
    let stored = key.stored()?.ok_or(Refusal::NotFound)?;
    let filter = match &stored.value {
        Value::Arriving(_) => return Err(Refusal::StillLoading),
        Value::Filter(filter) => filter,
    };
    let Ok(iterator) = u64::try_from(iterator) else {
        record(context, 0, &[]);
        return Ok(());
    };
    match filter {
        Filter::Native(filter) => {
            let generation = stored.generation;
            let next = match iterator {
                0 => Some(dump::first_record(filter, generation).map_err(Refusal::Dump)?),
                _ => dump::next_record(filter, generation, iterator).map_err(Refusal::Dump)?,
            };
            let (iterator, data) = next.unwrap_or_default();
            record(context, iterator, &data);
        }
        Filter::RedisBloom(filter) => {
            let next = redisbloom_dump::next_record(filter, iterator).map_err(Refusal::Dump)?;
            let (iterator, data) = next.unwrap_or_default();
            record(context, iterator, &data);
        }
        Filter::ValkeyBloom(_) => return Err(Refusal::DumpLayout),
    }
    Ok(())
}

fn record(context: Context, iterator: u64, data: &[u8]) {
    reply::array(context, 2);
    reply::integer(context, iterator);
    reply::bytes(context, data);
}
