//! Changing a filter as a whole: BF.MERGE, BF.CLEAR and BF.ROTATE.

use bloomgate_filter::arguments::rotate;
use bloomgate_filter::kinds::BucketStart;
use bloomgate_filter::{BloomFilter, Clock as _, Error, Filter, Unlimited, Value, try_box};

use super::add::free_retired;
use crate::args::Args;
use crate::context::{CommandClock, Context, Origin};
use crate::guard;
use crate::keys::{Keyspace, ReadKey, Stored, WriteKey};
use crate::replicate;
use crate::reply::{self, Refusal};
use crate::server::ceiling::ServerCeiling;
use crate::server::freeing;

/// `BF.MERGE destination source [source ...]`
///
/// Stores the union of all filters, including the destination, at the destination.
///
/// The union is made beside the destination, which it then replaces: what does not fit, or cannot be merged, changes nothing.
pub fn merge(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let name = args.arg(1)?;
    let exists = WriteKey::open(keys, name)?.exists()?;
    let (union, has_grown) = {
        let destination = exists.then(|| ReadKey::open(keys, name));
        let sources = open_sources(&args, keys, exists)?;
        let mut filters = with_room(sources.len() + 1)?;
        for key in sources.iter().chain(&destination) {
            filters.push(key.filter()?.ok_or(Refusal::NotFound)?.mergeable()?);
        }
        // The union has the definition of its first filter.
        filters.rotate_right(usize::from(exists));
        let union = BloomFilter::union_of(&filters, origin.into(), &ServerCeiling::of(context, origin))?;
        let has_grown = exists && filters.first().is_some_and(|before| union.layers().len() > before.layers().len());
        (Filter::from(union), has_grown)
    };
    let mut key = WriteKey::open(keys, name)?;
    if exists {
        let mut value = try_box(Value::from(union))?;
        let mut writer = key.writer()?.ok_or(Refusal::NotFound)?;
        let bytes = writer.contents().size_bytes;
        writer.swap(&mut value);
        freeing::free(value, bytes);
    } else {
        key.install(Stored::boxed(union.into())?);
    }
    replicate::verbatim(context);
    guard::filter_replaced(context, name);
    key.close_changed(&[(!exists, c"bloom.reserve"), (has_grown, c"bloom.scale"), (true, c"bloom.merge")]);
    reply::ok(context);
    Ok(())
}

/// Opens the sources, each once, in the order of their names. Leaves out the destination if it is given.
fn open_sources<'a>(
    args: &Args<'_>,
    keys: &'a Keyspace,
    without_destination: bool,
) -> Result<Vec<ReadKey<'a>>, Refusal> {
    let (destination, words) = (args.arg(1)?, args.rest(2)?);
    let mut names = with_room(words.len())?;
    names.extend_from_slice(words);
    names.sort_unstable_by_key(|name| name.bytes());
    names.dedup_by_key(|name| name.bytes());
    names.retain(|name| !without_destination || name.bytes() != destination.bytes());
    let mut sources = with_room(names.len())?;
    sources.extend(names.into_iter().map(|name| ReadKey::open(keys, name)));
    Ok(sources)
}

/// Returns an empty list with room for this many elements.
fn with_room<T>(elements: usize) -> Result<Vec<T>, Error> {
    let mut list = Vec::new();
    let asked_bytes = elements.saturating_mul(size_of::<T>()) as u64;
    list.try_reserve_exact(elements).map_err(|_| Error::OutOfMemory { asked_bytes })?;
    Ok(list)
}

/// `BF.CLEAR key`
///
/// Empties a filter. It keeps the properties that it was created with, and the key keeps its time to live.
pub fn clear(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let name = args.arg(1)?;
    let mut key = WriteKey::open(keys, name)?;
    let start = {
        let mut writer = key.writer()?.ok_or(Refusal::NotFound)?;
        let Value::Filter(filter) = &*writer else { return Err(Refusal::StillLoading) };
        let bytes = filter.size_bytes();
        let mut empty = filter.emptied()?;
        let start = begin_bucket(origin, &mut empty)?;
        let mut value = try_box(Value::from(empty))?;
        writer.swap(&mut value);
        freeing::free(value, bytes);
        start
    };
    replicate::verbatim(context);
    if let Some(start) = start {
        replicate::rotated(context, name, start);
    }
    guard::filter_replaced(context, name);
    key.close_changed(&[(true, c"bloom.clear")]);
    reply::ok(context);
    Ok(())
}

/// Begins the first bucket of a ring with a window. Returns the start, which must be propagated. Needs no ceiling: the memory of the
/// former contents, which is freed, is larger.
fn begin_bucket(origin: Origin, empty: &mut Filter) -> Result<Option<BucketStart>, Refusal> {
    let Some(windowed) = empty.windowed_mut().filter(|_| !origin.is_effect()) else { return Ok(None) };
    let Some(start) = windowed.bucket_due(CommandClock::default().now()) else { return Ok(None) };
    windowed.begin_bucket(start, &Unlimited)?;
    Ok(Some(start))
}

/// `BF.ROTATE key [slot begin end capacity]`
///
/// Begins the next bucket of a ring, or the stated one. Replies how many items were dropped with the oldest.
///
/// A client that replays an AOF also states the bucket. If it is late, the ring may have begun that bucket by its own clock and added
/// items to it. Then nothing changes, and the reply is 0.
pub fn rotate(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let stated = rotate::parse(args.words())?;
    let name = args.arg(1)?;
    let mut key = WriteKey::open(keys, name)?;
    let (start, dropped) = {
        let mut writer = key.writer()?.ok_or(Refusal::NotFound)?;
        let Value::Filter(filter) = &mut *writer else { return Err(Refusal::StillLoading) };
        let windowed = filter.windowed_mut().ok_or(Refusal::HasNot("WINDOW"))?;
        let now = CommandClock::default().now();
        if let Some(start) = stated.filter(|_| !origin.is_effect()) {
            if !windowed.may_begin(start, now) {
                return Err(Refusal::BadData);
            }
            if windowed.has_begun(start) {
                reply::integer(context, 0);
                return Ok(());
            }
        }
        let start: BucketStart = stated.unwrap_or_else(|| windowed.bucket_now(now));
        let dropped = windowed.begin_bucket(start, &ServerCeiling::of(context, origin))?;
        free_retired(windowed);
        (start, dropped)
    };
    replicate::rotated(context, name, start);
    key.close_changed(&[(true, c"bloom.rotate")]);
    reply::integer(context, dropped);
    Ok(())
}
