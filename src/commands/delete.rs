//! Deleting items: BF.DEL and BF.MDEL, for filters that allow deletes.

use bloomgate_filter::{BATCH, Filter, Value, kinds};

use super::add::ReplyForm;
use super::dispatch::refuse;
use crate::args::{Arg, Args};
use crate::context::{CommandClock, Context, Origin};
use crate::keys::{Keyspace, WriteKey};
use crate::metrics;
use crate::replicate::{self, NewItems};
use crate::reply::{self, Refusal};
use crate::server::ceiling::ServerCeiling;

/// Deletes items from the filter at the key of a command, replies, and propagates the items that were found. A missing filter contains no
/// items. A due bucket begins with the next add, not here: a delete must not fail for lack of memory for a bucket. If the filter does not
/// support deletes, it is unchanged. A refused item is an error inside the reply.
pub fn delete_items(
    context: Context,
    origin: Origin,
    args: &Args<'_>,
    keys: &mut Keyspace,
    form: ReplyForm,
) -> Result<(), Refusal> {
    let (name, items) = (args.arg(1)?, args.rest(2)?);
    let mut key = WriteKey::open(keys, name)?;
    let clock = CommandClock::default();
    let mut found = NewItems::with_room(items.len())?;
    match key.writer()? {
        // A primary propagates only items that it found.
        None if origin.is_effect() => return Err(Refusal::NotFound),
        None => {
            if form == ReplyForm::Many {
                reply::array(context, items.len());
            }
            items.iter().for_each(|_| reply::boolean(context, false));
            return Ok(());
        }
        Some(mut writer) => {
            let Value::Filter(filter) = &mut *writer else { return Err(Refusal::StillLoading) };
            check(context, origin, filter, &clock)?;
            delete_and_reply(context, origin, filter, items, form, &clock, &mut found);
        }
    }
    match found.len() {
        0 => {}
        all if all == items.len() => replicate::verbatim(context),
        _ => replicate::deleted(context, name, &found),
    }
    if found.len() > 0 {
        key.close_changed(&[(true, c"bloom.del")]);
    }
    Ok(())
}

/// Checks that the filter supports deletes, before any change.
fn check(context: Context, origin: Origin, filter: &mut Filter, clock: &CommandClock) -> Result<(), Refusal> {
    let nothing = std::iter::empty::<&[u8]>();
    let removed = filter.remove_batch(nothing, kinds::Origin::Client, clock, &ServerCeiling::of(context, origin));
    removed.error.map_or(Ok(()), |error| Err(error.into()))
}

/// Deletes items and replies to each, up to the first refused one.
fn delete_and_reply<'a>(
    context: Context,
    origin: Origin,
    filter: &mut Filter,
    items: &[Arg<'a>],
    form: ReplyForm,
    clock: &CommandClock,
    found: &mut NewItems<'a>,
) {
    let ceiling = ServerCeiling::of(context, origin);
    if form == ReplyForm::Many {
        reply::open_array(context);
    }
    let mut answered = 0;
    for batch in items.chunks(BATCH) {
        let removed = filter.remove_batch(batch.iter().map(|item| item.bytes()), origin.into(), clock, &ceiling);
        for (index, item) in batch.iter().enumerate().take(removed.done) {
            let is_found = removed.found.contains(index);
            if is_found {
                found.push(*item);
            }
            reply::boolean(context, is_found);
        }
        answered += removed.done;
        if let Some(error) = removed.error {
            metrics::DELETES_REFUSED.count(items.len().saturating_sub(answered) as u64);
            refuse(context, origin, error.into());
            answered += 1;
            break;
        }
    }
    if form == ReplyForm::Many {
        reply::end_array(context, answered);
    }
}

/// `BF.DEL key item`
///
/// Deletes an item. Replies whether the filter found it.
pub fn del(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    delete_items(context, origin, &args, keys, ReplyForm::One)
}

/// `BF.MDEL key item [item ...]`
///
/// Deletes items. Replies for each whether the filter found it.
pub fn mdel(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    delete_items(context, origin, &args, keys, ReplyForm::Many)
}
