//! What BF.ADD, BF.MADD and BF.INSERT have in common: items go in, in batches, a missing filter is created, the replies
//! and the effects go out.

use super::refuse;
use crate::bloom::valkey_bloom::FIXED_SEED;
use crate::bloom::{BATCH, BloomFilter, Error, Filter, Reach, RedisBloomFilter, ValkeyBloom, ValkeyBloomFilter};
use crate::server::args::{Args, Word};
use crate::server::ceiling::{MACHINE_BYTES_MAX, ServerCeiling};
use crate::server::config;
use crate::server::context::{Context, LogLevel};
use crate::server::key::Key;
use crate::server::metrics;
use crate::server::replicate::{self, NewItems};
use crate::server::reply::{self, Refusal};
use crate::server::stored::Stored;
use crate::words::{Creation, Kind};

/// How a command answers.
#[derive(Clone, Copy, PartialEq)]
pub enum Shape {
    /// One item, one answer.
    One,
    /// An array with an answer for each item.
    Many,
}

/// Makes the filter that was asked for. A native one that comes from a primary or from the AOF without a seed gets seed
/// 0: every replica must work out the same filter.
///
/// # Errors
/// [`Refusal::Filter`] where there is no memory for it, [`Refusal::ScaleTo`] and [`Refusal::ScaleToRate`] where it could
/// not grow as asked.
pub fn create(context: Context, creation: &Creation) -> Result<Box<Stored>, Refusal> {
    let Creation { capacity, scaling, scale_to, .. } = *creation;
    let (rate, changed) = creation.taken_rate();
    if changed {
        let line = format_args!("bloomgate: error rate {:?} is taken as {rate:?}", creation.rate);
        context.log(LogLevel::Warning, line);
    }
    let must_obey = context.must_obey();
    let ceiling = ServerCeiling(context);
    // What a client wants to grow to.
    let goal = scale_to.filter(|_| !must_obey);
    let reached = |reach: Reach, items: u64| match reach {
        Reach { capacity, .. } if capacity >= items => Ok(()),
        Reach { ends_by_rate: true, .. } => Err(Refusal::ScaleToRate),
        Reach { .. } => Err(Refusal::ScaleTo),
    };
    let made: Result<Filter, Error> = match creation.kind {
        Kind::Native { seed } => {
            if let Some(items) = goal {
                reached(BloomFilter::reach(rate, capacity, scaling, 0, &ceiling), items)?;
            }
            let seed = seed.unwrap_or_else(|| if must_obey { 0 } else { context.random_seed() });
            BloomFilter::new(rate, capacity, scaling, seed, &ceiling).map(Filter::Native)
        }
        Kind::RedisBloom => {
            if let Some(items) = goal {
                reached(RedisBloomFilter::reach(rate, capacity, scaling, 0, &ceiling), items)?;
            }
            let make = if must_obey { RedisBloomFilter::carried } else { RedisBloomFilter::new };
            make(rate, capacity, scaling, &ceiling).map(Filter::RedisBloom)
        }
        Kind::ValkeyBloom { tightening, seed } => {
            let drawn = || if config::random_seeds() { context.random_bytes() } else { FIXED_SEED };
            let rules = ValkeyBloom::new(rate, tightening, scaling, seed.unwrap_or_else(drawn));
            if let Some(items) = goal {
                reached(ValkeyBloomFilter::reach(&rules, capacity, 0, &ceiling), items)?;
            }
            ValkeyBloomFilter::new(rules, capacity, &ceiling).and_then(Filter::boxed)
        }
    };
    Ok(made.and_then(|filter| Stored::boxed(filter.into()))?)
}

/// Adds items to the filter at the key of a command, replies, and carries the effect. `creation` is asked where the key is missing.
///
/// # Errors
/// [`Refusal::NotFound`] for a missing key without a creation, and what [`Key::filter`] and [`create`] refuse.
/// Nothing has changed then. An item that a filter refuses is an error inside the reply.
pub fn add_items(
    context: Context,
    args: Args<'_>,
    items: &[Word<'_>],
    creation: impl FnOnce() -> Option<Creation>,
    shape: Shape,
) -> Result<(), Refusal> {
    let name = args.word(1)?;
    let mut key = Key::write(context, name);
    let mut new_items = NewItems::new();
    let (created, has_grown);
    if let Some(filter) = key.filter()? {
        has_grown = add_to(context, filter, items, shape, &mut new_items);
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
        let creation = creation().ok_or(Refusal::NotFound)?;
        new_items.reserve(items.len().min(BATCH))?;
        let mut stored = create(context, &creation)?;
        let filter = stored.filter()?;
        has_grown = add_to(context, filter, items, shape, &mut new_items);
        created = true;
        replicate::created(context, name, filter, &new_items);
        key.install(stored);
    }
    let changed = key.close_changed();
    if created {
        changed.notify(c"bloom.reserve");
    }
    if has_grown {
        changed.notify(c"bloom.scale");
    }
    if new_items.len() > 0 {
        changed.notify(c"bloom.add");
    }
    Ok(())
}

/// Adds and answers; tells whether the filter has grown.
fn add_to(context: Context, filter: &mut Filter, items: &[Word<'_>], shape: Shape, new_items: &mut NewItems) -> bool {
    let layers = filter.layer_count();
    add_and_reply(context, filter, items, shape, new_items);
    metrics::items_added(items.len(), new_items.len());
    let has_grown = filter.layer_count() > layers;
    if has_grown {
        metrics::filter_grew(filter.grown_since(layers));
    }
    has_grown
}

fn add_and_reply(context: Context, filter: &mut Filter, items: &[Word<'_>], shape: Shape, new_items: &mut NewItems) {
    if let (Shape::One, [item]) = (shape, items) {
        let room = new_items.reserve(1);
        match room.and_then(|()| filter.add(item.bytes(), &ServerCeiling(context))) {
            Ok(is_new) => {
                if is_new {
                    new_items.push(*item);
                }
                reply::boolean(context, is_new);
            }
            Err(error) => refuse_item(context, filter, error),
        }
        return;
    }
    // While no item can meet a full layer, nor one be added that finds no room to be carried, the length of the array is
    // known.
    let known_length = filter.room() >= items.len() as u64 && new_items.reserve(items.len()).is_ok();
    if known_length {
        reply::array(context, items.len());
    } else {
        reply::open_array(context);
    }
    let answered = add_batches(context, filter, items, new_items);
    if !known_length {
        reply::end_array(context, answered);
    }
}

/// Adds and answers item by item, up to the first that is refused; answers how many replies there are.
fn add_batches(context: Context, filter: &mut Filter, items: &[Word<'_>], new_items: &mut NewItems) -> usize {
    let ceiling = ServerCeiling(context);
    let mut answered = 0;
    for batch in items.chunks(BATCH) {
        // Whatever is added must be carried: room for it comes first.
        if let Err(error) = new_items.reserve(batch.len()) {
            refuse(context, error.into());
            return answered + 1;
        }
        let added = filter.add_batch(batch.iter().map(|item| item.bytes()), &ceiling);
        for (index, item) in batch.iter().enumerate().take(added.done) {
            let is_new = added.new & (1 << index) != 0;
            if is_new {
                new_items.push(*item);
            }
            reply::boolean(context, is_new);
        }
        answered += added.done;
        if let Some(error) = added.error {
            refuse_item(context, filter, error);
            return answered + 1;
        }
    }
    answered
}

/// Replies why a filter does not take an item. RedisBloom carries also the adds that it refused. Where its filter would have
/// to get a layer that no machine holds, so did the primary.
fn refuse_item(context: Context, filter: &Filter, error: Error) {
    match (filter, error) {
        (Filter::RedisBloom(_), Error::OutOfMemory { asked_bytes, .. }) if asked_bytes > MACHINE_BYTES_MAX => {
            if context.must_obey() {
                let line =
                    format_args!("bloomgate: an item needs a layer that no machine holds: {}", Refusal::from(error));
                context.log(LogLevel::Warning, line);
            }
            reply::error(context, error.into());
        }
        _ => refuse(context, error.into()),
    }
}
