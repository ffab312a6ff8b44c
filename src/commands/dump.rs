//! Dumps: BF.SCANDUMP and BF.LOADCHUNK record by record, and BF.LOAD for valkey-bloom's layout, whose dump is one record.

use std::sync::{Mutex, PoisonError};

use bloomgate_filter::arguments::iterators;
use bloomgate_filter::format::records::{self, DumpMark};
use bloomgate_filter::format::{self, Arrival, Progress, Record, StoredAs};
use bloomgate_filter::kinds::chunked::HEADER;
use bloomgate_filter::kinds::redisbloom::dump;
use bloomgate_filter::kinds::valkey_bloom::load;
use bloomgate_filter::{Error, Filter, Value};

use crate::args::Args;
use crate::context::{Context, Origin};
use crate::keys::{Keyspace, Place, ReadKey, Reserved, Stored, WriteKey, filter_of};
use crate::reply::{self, Refusal};
use crate::server::ceiling::ServerCeiling;
use crate::{guard, replicate};

/// `BF.SCANDUMP key iterator`
///
/// Replies with the record after the one with this iterator, or the first one after 0: its iterator and its data, for BF.LOADCHUNK. At
/// the end, replies with 0 and an empty string. A filter of RedisBloom's layout is dumped as RedisBloom dumps it.
pub fn scandump(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
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

/// Returns the record after the one with this iterator. Reads the state of the value at the start of the dump from the list of marks.
pub fn next_record<'a>(stored: &Stored, filter: &'a Filter, iterator: u64) -> Result<Option<Record<'a>>, Refusal> {
    let mut mark = take_mark(stored.instance);
    let next = filter.next_record(stored.generation, iterator, &mut mark);
    put_mark(stored.instance, mark)?;
    next.map_err(Refusal::Dump)
}

// The states of values when their dumps began, for dumps that need them. The marks are in a separate list, because few values are dumped at
// a time.

/// The maximum number of marks. With more concurrent dumps, the longest paused ones must start again.
const MARKS_MAX: usize = 1024;

/// The marks with the instances of their values, the latest last. The mark of a deleted value remains; its instance is never used again.
static MARKS: Mutex<Vec<(u64, DumpMark)>> = Mutex::new(Vec::new());

/// Removes the mark of a value from the list and returns it, or an empty mark.
fn take_mark(instance: u64) -> DumpMark {
    let mut marks = MARKS.lock().unwrap_or_else(PoisonError::into_inner);
    let place = marks.iter().rposition(|(of, _)| *of == instance);
    place.map_or_else(DumpMark::default, |place| marks.remove(place).1)
}

/// Stores the mark of a value, unless it is empty.
fn put_mark(instance: u64, mark: DumpMark) -> Result<(), Error> {
    if mark.is_empty() {
        return Ok(());
    }
    let mut marks = MARKS.lock().unwrap_or_else(PoisonError::into_inner);
    if marks.len() >= MARKS_MAX {
        marks.remove(0);
    }
    let asked_bytes = size_of::<(u64, DumpMark)>() as u64;
    marks.try_reserve(1).map_err(|_| Error::OutOfMemory { asked_bytes })?;
    marks.push((instance, mark));
    Ok(())
}

/// `BF.LOADCHUNK key iterator data`
///
/// Applies a record of a dump, ours or RedisBloom's: the header creates the key, the last chunk completes the filter. A repeated record
/// changes nothing.
///
/// RedisBloom accepts chunks in any order, over existing data, and for filters that no header created. If a RedisBloom primary
/// propagates such a chunk, it is applied here, too. AOFs that its releases up to 2.2.6 rewrote have headers with iterator 0.
pub fn loadchunk(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let (iterator, data) = iterators::loadchunk(args.words())?;
    let iterator =
        if origin.is_effect() && iterator == 0 && dump::decode_header(data).is_ok() { HEADER } else { iterator };
    let mut key = WriteKey::open(keys, args.arg(1)?)?;
    let progress = if key.exists()? {
        resume(context, &mut key, iterator, data, origin)?
    } else {
        key.install(Place::for_value(Value::arriving(begin(context, origin, iterator, data)?)?)?);
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
    origin: Origin,
) -> Result<Progress, Refusal> {
    let (progress, reserved) = {
        let mut writer = key.writer()?.ok_or(Refusal::NotFound)?;
        // The last chunk may need memory for another value, which must be reserved before any change.
        let reserved = if let Value::Arriving(_) = *writer { Some(Reserved::full()?) } else { None };
        if let Value::Filter(filter) = &*writer
            && filter.stored_as() != StoredAs::Own
            && iterator == HEADER
            && !(origin.is_effect() && filter.stored_as() == StoredAs::RedisBloom)
        {
            // A header creates a filter. A repeated header can be recognised only in our own dumps.
            return Err(Refusal::BadData);
        }
        if writer.is_redisbloom_cuckoo() {
            return Err(Refusal::WrongType);
        }
        let is_redisbloom = writer.has_redisbloom_layout();
        let generation = writer.generation();
        let progress = if origin.is_effect() {
            writer.accept_replicated(generation, iterator, data)
        } else {
            writer.accept(generation, iterator, data, &ServerCeiling::of(context, origin))
        };
        (progress.map_err(|error| refusal(is_redisbloom, error))?, reserved)
    };
    if let (Progress::Complete, Some(reserved)) = (progress, reserved) {
        key.complete(reserved)?;
    }
    Ok(progress)
}

/// Returns the error for a refused record: RedisBloom's text for its records, our own for ours.
const fn refusal(is_redisbloom: bool, error: format::Error) -> Refusal {
    match error {
        format::Error::Truncated | format::Error::NotADump | format::Error::OutOfRange | format::Error::WrongLength
            if is_redisbloom =>
        {
            Refusal::BadData
        }
        format::Error::Filter(Error::Unsound) if is_redisbloom => Refusal::BadData,
        error => Refusal::Chunk(error),
    }
}

fn begin(context: Context, origin: Origin, iterator: u64, data: &[u8]) -> Result<Arrival, Refusal> {
    let refusal = if records::is_header(data) { Refusal::Chunk } else { Refusal::Header };
    if !records::is_header(data) && iterator != HEADER {
        return Err(Refusal::NotFound);
    }
    Arrival::begin(iterator, data, &ServerCeiling::of(context, origin)).map_err(refusal)
}

/// `BF.LOAD key data`
///
/// A command of valkey-bloom, which its AOF contains. Ours contains it for small native filters as well.
///
/// Creates a filter from one record.
pub fn load(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let data = args.arg(2)?.bytes();
    let mut key = WriteKey::open(keys, args.arg(1)?)?;
    if key.exists()? {
        return Err(Refusal::LoadExists);
    }
    let ceiling = ServerCeiling::of(context, origin);
    let value = if records::is_header(data) {
        Value::of_record(data, &ceiling).map_err(Refusal::Load)?
    } else {
        Filter::boxed(load::decode(data, &ceiling).map_err(Refusal::Load)?)?.into()
    };
    key.install(Place::for_value(value)?);
    replicate::verbatim(context);
    guard::filter_replaced(context, args.arg(1)?);
    key.close_changed(&[(true, c"bloom.reserve")]);
    reply::ok(context);
    Ok(())
}

#[cfg(test)]
mod tests {
    use bloomgate_filter::hash::Hasher;
    use bloomgate_filter::kinds::NativeSpec;
    use bloomgate_filter::{Filter, Scaling, Spec, Unlimited};

    use super::*;

    #[test]
    fn the_latest_marks_remain() {
        let hasher = Hasher::SipHash { key: [7; 16] };
        let spec = Spec::Native(NativeSpec::new(0.01, 100, Scaling::Fixed, hasher));
        let filter = Filter::new(&spec, &Unlimited).unwrap();
        let mut mark = DumpMark::default();
        filter.next_record(1, 0, &mut mark).unwrap();
        assert!(!mark.is_empty());
        let instances = 0..=MARKS_MAX as u64;
        for instance in instances.clone() {
            put_mark(instance, mark.clone()).unwrap();
            put_mark(instance, DumpMark::default()).unwrap();
        }
        let remaining: Vec<u64> = instances.filter(|instance| !take_mark(*instance).is_empty()).collect();
        assert_eq!(remaining, (1..=MARKS_MAX as u64).collect::<Vec<_>>());
        assert!(take_mark(1).is_empty(), "taken before");
    }
}
