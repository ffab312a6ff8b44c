//! `BF.LOADCHUNK key iterator data`

use crate::bloom::Filter;
use crate::format::{Arrival, NativeArrival, Progress, RedisBloomArrival, Value, came_already, dump, redisbloom_dump};
use crate::server::args::Args;
use crate::server::ceiling::ServerCeiling;
use crate::server::context::Context;
use crate::server::key::Key;
use crate::server::replicate;
use crate::server::reply::{self, Refusal};
use crate::server::stored::Stored;
use crate::words::records;

/// Takes a record of a dump, ours or RedisBloom's: the header creates the key, the last chunk makes it a filter. A record
/// that came already changes nothing.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let (iterator, data) = records::loadchunk(args.words())?;
    let mut key = Key::write(context, args.word(1)?);
    let progress = match key.stored()? {
        Some(stored) => {
            // With the last chunk the value may move. Afterwards would be too late to ask for room.
            let room = if let Value::Arriving(_) = stored.value { Some(Stored::room()?) } else { None };
            let progress = accept(stored, iterator, data)?;
            if let (Progress::Complete, Some(room)) = (progress, room) {
                key.complete(room)?;
            }
            progress
        }
        None => {
            key.install(Stored::boxed(Value::arriving(begin(context, iterator, data)?)?)?);
            Progress::Stored
        }
    };
    if progress != Progress::Known {
        replicate::verbatim(context);
        key.close_changed();
    }
    reply::ok(context);
    Ok(())
}

fn accept(stored: &mut Stored, iterator: u64, data: &[u8]) -> Result<Progress, Refusal> {
    let known = |came: Result<(), _>| came.map(|()| Progress::Known).map_err(Refusal::Chunk);
    let generation = stored.generation;
    stored.change(|value| match value {
        Value::Arriving(arrival) => arrival.accept(iterator, data).map_err(Refusal::Chunk),
        Value::Filter(Filter::Native(filter)) => known(came_already(filter, generation, iterator, data)),
        Value::Filter(Filter::RedisBloom(filter)) if iterator != redisbloom_dump::HEADER => {
            known(redisbloom_dump::came_already(filter, iterator, data))
        }
        Value::Filter(_) => Err(Refusal::BadData),
    })
}

fn begin(context: Context, iterator: u64, data: &[u8]) -> Result<Arrival, Refusal> {
    let ceiling = ServerCeiling(context);
    if dump::is_header(data) {
        Ok(Arrival::Native(NativeArrival::begin(iterator, data, &ceiling).map_err(Refusal::Chunk)?))
    } else if iterator == redisbloom_dump::HEADER {
        Ok(Arrival::RedisBloom(RedisBloomArrival::begin(data, &ceiling).map_err(Refusal::Header)?))
    } else {
        Err(Refusal::NotFound)
    }
}
