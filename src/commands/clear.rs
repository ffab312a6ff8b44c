//! Removing items in bulk: BF.CLEAR empties a filter, BF.ROTATE begins the next bucket of a ring and drops the oldest.

use bloomgate_filter::arguments::rotate;
use bloomgate_filter::kinds::BucketStart;
use bloomgate_filter::{Clock as _, Filter, Unlimited, Value, try_box};

use super::add::free_retired;
use crate::args::Args;
use crate::context::{CommandClock, Context, Origin};
use crate::guard;
use crate::keys::{Keyspace, WriteKey};
use crate::replicate;
use crate::reply::{self, Refusal};
use crate::server::ceiling::ServerCeiling;
use crate::server::freeing;

/// `BF.CLEAR key`
///
/// Empties a filter. Its properties and the key's time to live are kept.
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

/// Begins the first bucket of a ring with a window. Returns the start, which must be propagated. Needs no ceiling check: the freed contents
/// are larger.
fn begin_bucket(origin: Origin, empty: &mut Filter) -> Result<Option<BucketStart>, Refusal> {
    let Some(windowed) = empty.windowed_mut().filter(|_| !origin.is_effect()) else { return Ok(None) };
    let Some(start) = windowed.bucket_due(CommandClock::default().now()) else { return Ok(None) };
    windowed.begin_bucket(start, &Unlimited)?;
    Ok(Some(start))
}

/// `BF.ROTATE key [slot begin end capacity]`
///
/// Begins the next bucket of a ring, or the stated one. Replies with the number of items that were dropped with the oldest.
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
