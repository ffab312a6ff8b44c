//! `BF.LOADCHUNK key iterator data`

use bloomgate_filter::Value;
use bloomgate_filter::format::{Arrival, Error, Progress, StoredAs, records};
use bloomgate_filter::kinds::redisbloom::dump::{self, HEADER};
use bloomgate_filter::words::iterators;

use crate::args::Args;
use crate::context::Context;
use crate::guard;
use crate::keys::{Keyspace, Stored, WriteKey};
use crate::replicate;
use crate::reply::{self, Refusal};
use crate::server::ceiling::ServerCeiling;

/// Applies a record of a dump, ours or RedisBloom's: the header creates the key, the last chunk completes the filter. A record that has
/// arrived before changes nothing.
///
/// RedisBloom accepts chunks in any order, over existing data, and for filters that no header created. If a RedisBloom primary
/// propagates such a chunk, it is applied here, too. AOFs that its releases up to 2.2.6 rewrote have headers with iterator 0.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let must_obey = context.must_obey();
    let (iterator, data) = iterators::loadchunk(args.words())?;
    let iterator = if must_obey && iterator == 0 && dump::decode_header(data).is_ok() { HEADER } else { iterator };
    let mut key = WriteKey::open(keys, args.arg(1)?)?;
    let progress = if key.exists()? {
        resume(context, &mut key, iterator, data, must_obey)?
    } else {
        key.install(Stored::boxed(Value::arriving(begin(context, iterator, data)?)?)?);
        Progress::Stored
    };
    if progress != Progress::Known {
        replicate::verbatim(context);
        key.close_changed(&[]);
    }
    if progress == Progress::Complete {
        guard::filter_replaced(context, args.arg(1)?);
    }
    reply::ok(context);
    Ok(())
}

fn resume(
    context: Context,
    key: &mut WriteKey<'_>,
    iterator: u64,
    data: &[u8],
    must_obey: bool,
) -> Result<Progress, Refusal> {
    let (progress, reserved) = {
        let mut writer = key.writer()?.ok_or(Refusal::NotFound)?;
        // The last chunk may need memory for another value, which must be reserved before anything changes.
        let reserved = if let Value::Arriving(_) = *writer { Some(Stored::reserve()?) } else { None };
        if let Value::Filter(filter) = &*writer
            && filter.stored_as() != StoredAs::Own
            && iterator == HEADER
            && !(must_obey && filter.stored_as() == StoredAs::RedisBloom)
        {
            // A header creates a filter. Only a header of our own dumps can be recognised as one that has arrived before.
            return Err(Refusal::BadData);
        }
        let is_redisbloom = match &*writer {
            Value::Filter(filter) => filter.stored_as() == StoredAs::RedisBloom,
            Value::Arriving(arrival) => arrival.generation().is_none(),
        };
        let generation = writer.generation();
        let progress = if must_obey {
            writer.obey(generation, iterator, data)
        } else {
            writer.accept_within(generation, iterator, data, &ServerCeiling::of(context))
        };
        (progress.map_err(|error| refusal(is_redisbloom, error))?, reserved)
    };
    if let (Progress::Complete, Some(reserved)) = (progress, reserved) {
        key.complete(reserved)?;
    }
    Ok(progress)
}

/// Returns the error for a refused record: RedisBloom's text for its records, our own for ours.
const fn refusal(is_redisbloom: bool, error: Error) -> Refusal {
    match error {
        Error::Truncated | Error::NotADump | Error::OutOfRange | Error::WrongLength if is_redisbloom => {
            Refusal::BadData
        }
        Error::Filter(bloomgate_filter::Error::Unsound) if is_redisbloom => Refusal::BadData,
        error => Refusal::Chunk(error),
    }
}

fn begin(context: Context, iterator: u64, data: &[u8]) -> Result<Arrival, Refusal> {
    let refusal = if records::is_header(data) { Refusal::Chunk } else { Refusal::Header };
    if !records::is_header(data) && iterator != HEADER {
        return Err(Refusal::NotFound);
    }
    Arrival::begin(iterator, data, &ServerCeiling::of(context)).map_err(refusal)
}
