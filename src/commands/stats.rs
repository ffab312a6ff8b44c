//! `BF.STATS key`
//!
//! A map of a filter's properties, without those that its kind does not have. Properties that BF.INFO shows have the same names.

use std::ffi::CStr;

use bloomgate_filter::kinds::Forgets;
use bloomgate_filter::kinds::info::Field;
use bloomgate_filter::kinds::stats::{BucketStats, LayerStats, Stats};

use crate::args::Args;
use crate::clock::CommandClock;
use crate::context::Context;
use crate::keys::{Keyspace, ReadKey};
use crate::reply::{self, Refusal};

/// Replies with the properties of a filter.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let key = ReadKey::open(keys, args.arg(1)?);
    let stats = key.filter()?.ok_or(Refusal::NotFound)?.stats(&CommandClock::default())?;
    let window = match stats.names.forgets {
        Some(Forgets::After { seconds, is_sliding }) => Some((seconds, is_sliding)),
        Some(Forgets::Rolling) | None => None,
    };
    let forgets = stats.names.forgets.is_some();
    let optional = [stats.deleted.is_some(), stats.deleted.is_some(), window.is_some(), window.is_some(), forgets];
    reply::map(context, 11 + optional.iter().filter(|has| **has).count());

    text(context, c"Kind", stats.names.kind);
    text(context, c"Layout", stats.names.layout);
    text(context, c"Hash", stats.names.hash);
    fraction(context, Field::Error.words().1, stats.rate);
    fraction(context, c"Error rate now", stats.rate_now);
    number(context, Field::Items.words().1, stats.contents.items);
    number(context, c"Number of items estimated", stats.items_estimated);
    number(context, Field::Capacity.words().1, stats.contents.capacity);
    number(context, Field::Size.words().1, stats.contents.size_bytes);
    number(context, c"Size of pending adds", stats.pending_bytes);
    if let Some(deleted) = stats.deleted {
        number(context, c"Number of items deleted", deleted.entries);
        number(context, c"Room for items deleted", deleted.room);
    }
    layers(context, &stats);
    if let Some((seconds, is_sliding)) = window {
        number(context, c"Window", seconds);
        reply::simple_string(context, c"Sliding");
        reply::boolean(context, is_sliding);
    }
    if forgets {
        buckets(context, &stats, window.is_some());
    }
    Ok(())
}

fn layers(context: Context, stats: &Stats) {
    reply::simple_string(context, c"Layers");
    reply::array(context, stats.layers.len());
    for LayerStats { capacity, items, size_bytes, hashes, fill } in stats.layers.iter().copied() {
        reply::map(context, 5);
        number(context, Field::Capacity.words().1, capacity);
        number(context, Field::Items.words().1, items);
        number(context, Field::Size.words().1, size_bytes);
        number(context, c"Hashes", hashes.into());
        fraction(context, c"Fill", fill);
    }
}

/// The buckets of a rolling filter have no times.
fn buckets(context: Context, stats: &Stats, has_times: bool) {
    reply::simple_string(context, c"Buckets");
    reply::array(context, stats.buckets.len());
    for BucketStats { slot, begin, end, items } in stats.buckets.iter().copied() {
        reply::map(context, if has_times { 4 } else { 2 });
        number(context, c"Slot", slot);
        if has_times {
            number(context, c"Begin", begin.0);
            number(context, c"End", end.0);
        }
        number(context, Field::Items.words().1, items);
    }
}

pub(super) fn text(context: Context, name: &CStr, value: &CStr) {
    reply::simple_string(context, name);
    reply::simple_string(context, value);
}

pub(super) fn number(context: Context, name: &CStr, value: u64) {
    reply::simple_string(context, name);
    reply::integer(context, value);
}

pub(super) fn fraction(context: Context, name: &CStr, value: f64) {
    reply::simple_string(context, name);
    reply::fraction(context, value);
}
