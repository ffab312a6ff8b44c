//! What BF.ADD, BF.MADD and BF.INSERT have in common: items go in, in batches, a missing filter is created, the replies
//! and the effects go out.

use bloomgate_filter::words::Creation;
use bloomgate_filter::{BATCH, Error, Filter, Value};

use super::refuse;
use crate::args::{Arg, Args};
use crate::ceiling::{MACHINE_BYTES_MAX, ServerCeiling};
use crate::config;
use crate::context::{Context, LogLevel};
use crate::key::WriteKey;
use crate::metrics;
use crate::replicate::{self, NewItems};
use crate::reply::{self, Refusal};
use crate::stored::Stored;

/// How a command answers.
#[derive(Clone, Copy, PartialEq)]
pub enum Shape {
    /// One item, one answer.
    One,
    /// An array with an answer for each item.
    Many,
}

/// Makes the filter that was asked for.
///
/// # Errors
/// [`Refusal::Filter`] where there is no memory for it, [`Refusal::ScaleTo`] and [`Refusal::ScaleToRate`] where it could
/// not grow as asked.
pub fn create(context: Context, creation: &Creation) -> Result<Filter, Refusal> {
    let Creation { spec, asked_rate, scale_to } = creation;
    let rate = spec.rate();
    if rate.to_bits() != asked_rate.to_bits() {
        context.log(LogLevel::Warning, format_args!("bloomgate: error rate {asked_rate:?} is taken as {rate:?}"));
    }
    let ceiling = ServerCeiling(context);
    if let Some(items) = scale_to.filter(|_| !context.must_obey()) {
        let reach = spec.reach(0, &ceiling);
        if reach.capacity < items {
            return Err(if reach.ends_by_rate { Refusal::ScaleToRate } else { Refusal::ScaleTo });
        }
    }
    let filter = if context.must_obey() { Filter::carried(spec, &ceiling)? } else { Filter::new(spec, &ceiling)? };
    config::renew_entropy();
    Ok(filter)
}

/// Adds items to the filter at the key of a command, replies, and carries the effect. `creation` is asked where the key is
/// missing.
///
/// # Errors
/// [`Refusal::NotFound`] for a missing key without a creation, and what [`create`] refuses. Nothing has changed then. An
/// item that a filter refuses is an error inside the reply.
pub fn add_items(
    context: Context,
    args: Args<'_>,
    items: &[Arg<'_>],
    creation: impl Fn() -> Result<Option<Creation>, Refusal>,
    shape: Shape,
) -> Result<(), Refusal> {
    loop {
        match add_to_key(context, args, items, &creation, shape) {
            // Only RedisBloom takes items for a filter of which chunks are missing.
            Err(Refusal::StillLoading) if context.must_obey() => {
                WriteKey::open(context, args.arg(1)?).put_into_use()?;
            }
            done => return done,
        }
    }
}

fn add_to_key(
    context: Context,
    args: Args<'_>,
    items: &[Arg<'_>],
    creation: impl Fn() -> Result<Option<Creation>, Refusal>,
    shape: Shape,
) -> Result<(), Refusal> {
    let name = args.arg(1)?;
    let mut key = WriteKey::open(context, name);
    let mut new_items = NewItems::with_room(items.len())?;
    let (created, has_grown);
    if let Some(mut writer) = key.writer()? {
        let Value::Filter(filter) = &mut *writer else { return Err(Refusal::StillLoading) };
        has_grown = add_and_reply(context, filter, items, shape, &mut new_items);
        if new_items.len() == 0 {
            return Ok(());
        }
        created = false;
        // A name, a key and items, and all of them were new: that is what would be carried.
        let is_effect = args.len() == items.len() + 2 && new_items.len() == items.len();
        if is_effect {
            replicate::verbatim(context);
        } else {
            replicate::added(context, name, &new_items);
        }
    } else {
        let creation = creation()?.ok_or(Refusal::NotFound)?;
        has_grown = create_and_add(context, &mut key, name, items, &creation, shape, &mut new_items)?;
        created = true;
    }
    let events = [(created, c"bloom.reserve"), (has_grown, c"bloom.scale"), (new_items.len() > 0, c"bloom.add")];
    key.close_changed(&events);
    Ok(())
}

/// Creates the filter that is missing, adds and answers; tells whether it has grown.
#[cold]
fn create_and_add(
    context: Context,
    key: &mut WriteKey<'_>,
    name: Arg<'_>,
    items: &[Arg<'_>],
    creation: &Creation,
    shape: Shape,
    new_items: &mut NewItems,
) -> Result<bool, Refusal> {
    let mut filter = create(context, creation)?;
    let reserved = Stored::reserve()?;
    let has_grown = add_and_reply(context, &mut filter, items, shape, new_items);
    replicate::created(context, name, &filter.spec(), new_items);
    key.install(reserved.put(filter.into()));
    Ok(has_grown)
}

/// Adds and answers item by item, up to the first that is refused; tells whether the filter has grown.
fn add_and_reply(
    context: Context,
    filter: &mut Filter,
    items: &[Arg<'_>],
    shape: Shape,
    new_items: &mut NewItems,
) -> bool {
    let ceiling = ServerCeiling(context);
    let layers = filter.layer_count();
    if let (Shape::One, [item]) = (shape, items) {
        match filter.add(item.bytes(), &ceiling) {
            Ok(is_new) => {
                if is_new {
                    new_items.push(*item);
                }
                reply::boolean(context, is_new);
            }
            Err(error) => refuse_item(context, filter, error),
        }
    } else {
        // While no item can meet a full layer the length of the array is known.
        let known_length = filter.remaining_capacity() >= items.len() as u64;
        if known_length {
            reply::array(context, items.len());
        } else {
            reply::open_array(context);
        }
        let mut answered = 0;
        for batch in items.chunks(BATCH) {
            let added = filter.add_batch(batch.iter().map(|item| item.bytes()), &ceiling);
            for (index, item) in batch.iter().enumerate().take(added.done) {
                let is_new = added.new.contains(index);
                if is_new {
                    new_items.push(*item);
                }
                reply::boolean(context, is_new);
            }
            answered += added.done;
            if let Some(error) = added.error {
                refuse_item(context, filter, error);
                answered += 1;
                break;
            }
        }
        if !known_length {
            reply::end_array(context, answered);
        }
    }
    metrics::items_added(items.len(), new_items.len());
    filter.layer_count() > layers
}

/// Replies why a filter does not take an item. RedisBloom carries also the adds that it refused. Where its filter would have
/// to get a layer that no machine holds, so did the primary.
fn refuse_item(context: Context, filter: &Filter, error: Error) {
    let asked_bytes = error.asked_bytes().unwrap_or(0);
    if !(filter.spec().is_redisbloom() && asked_bytes > MACHINE_BYTES_MAX) {
        return refuse(context, error.into());
    }
    let refusal = Refusal::from(error);
    if context.must_obey() {
        let line = format_args!("bloomgate: an item needs a layer that no machine holds: {refusal}");
        context.log(LogLevel::Warning, line);
    }
    reply::error(context, refusal);
}
