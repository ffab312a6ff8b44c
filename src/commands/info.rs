//! Describing filters: BF.CARD, BF.INFO, BF.STATS and BF.DEBUG, and BF.PLAN for planned filters.

use std::ffi::CStr;
use std::fmt::{self, Display, Formatter};

use bloomgate_filter::arguments::plan::{self, Asked};
use bloomgate_filter::arguments::{Command, info};
use bloomgate_filter::kinds::Retention;
use bloomgate_filter::kinds::info::{Content, Field, LayerSummary};
use bloomgate_filter::kinds::plan::PlannedLayer;
use bloomgate_filter::kinds::stats::{BucketStats, LayerStats, Stats};
use bloomgate_filter::{Filter, Scaling};

use super::dispatch::redact_key;
use crate::args::Args;
use crate::config;
use crate::context::{CommandClock, Context, Origin, Text};
use crate::keys::{Keyspace, ReadKey};
use crate::reply::{self, Refusal};
use crate::server::ceiling::ServerCeiling;

/// `BF.CARD key`
///
/// Replies with the number of items: the adds that replied 1, minus the deletes that replied 1. A missing filter has 0.
pub fn card(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let key = ReadKey::open(keys, args.arg(1)?);
    let items = key.filter()?.map_or(0, |filter| filter.live_contents(&CommandClock::default()).items);
    reply::integer(context, items);
    Ok(())
}

/// `BF.INFO key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION | ERROR | TIGHTENING | MAXSCALEDCAPACITY]`
///
/// For filters of our layout and RedisBloom's the reply is RedisBloom's, with five fields. They also accept the fields of valkey-bloom that
/// they have. For filters of valkey-bloom's layout the reply is valkey-bloom's.
///
/// Replies with all fields, or one.
pub fn info(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let field = info::parse(args.words());
    if field == Err(Refusal::Arity) {
        return Err(Refusal::Arity);
    }
    // RedisBloom checks the key before it parses the field.
    let key = ReadKey::open(keys, args.arg(1)?);
    let filter = key.filter()?.ok_or(Refusal::NotFound)?;
    let field = field?;
    let Some(field) = field else { return all_fields(context, filter) };
    let content = content(context, filter, field)?;
    // valkey-bloom replies with the value only, RedisBloom with an array of one in RESP2, a map of one in RESP3.
    if !matches!(filter, Filter::ValkeyBloom(_)) && Field::REDISBLOOM.contains(&field) {
        if context.speaks_resp3() {
            reply::map(context, 1);
            reply::simple_string(context, field.words().1);
        } else {
            reply::array(context, 1);
        }
    }
    value(context, content);
    Ok(())
}

/// Replies with all fields: as RedisBloom does, in a map in RESP3, or as valkey-bloom does, in a flat array in both protocols.
fn all_fields(context: Context, filter: &Filter) -> Result<(), Refusal> {
    let fields: &[Field] = match filter {
        // A fixed filter lacks the last two.
        Filter::ValkeyBloom(_) if filter.scaling() == Scaling::Fixed => {
            Field::VALKEY_BLOOM.get(..6).unwrap_or_default()
        }
        Filter::ValkeyBloom(_) => &Field::VALKEY_BLOOM,
        _ => &Field::REDISBLOOM,
    };
    match filter {
        Filter::ValkeyBloom(_) => reply::array(context, fields.len() * 2),
        _ => reply::map(context, fields.len()),
    }
    for field in fields {
        reply::simple_string(context, field.words().1);
        value(context, content(context, filter, *field)?);
    }
    Ok(())
}

fn content(context: Context, filter: &Filter, field: Field) -> Result<Content, Refusal> {
    filter
        .info(field, &CommandClock::default(), &ServerCeiling::of(context, Origin::Client))
        .ok_or(Refusal::InfoFieldMissing)
}

fn value(context: Context, content: Content) {
    match content {
        Content::Number(number) => reply::integer(context, number),
        Content::Fraction(number) => reply::fraction(context, number),
        Content::Nothing => reply::null(context),
    }
}

/// `BF.STATS key`
///
/// Replies with a map of the properties that the filter's kind has, under the names of BF.INFO.
pub fn stats(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let key = ReadKey::open(keys, args.arg(1)?);
    let stats = key.filter()?.ok_or(Refusal::NotFound)?.stats(&CommandClock::default())?;
    let window = match stats.names.forgets {
        Some(Retention::After { seconds, is_sliding }) => Some((seconds, is_sliding)),
        Some(Retention::Rolling) | None => None,
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

/// Rolling buckets have no timestamps.
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

fn text(context: Context, name: &CStr, value: &CStr) {
    reply::simple_string(context, name);
    reply::simple_string(context, value);
}

fn number(context: Context, name: &CStr, value: u64) {
    reply::simple_string(context, name);
    reply::integer(context, value);
}

fn fraction(context: Context, name: &CStr, value: f64) {
    reply::simple_string(context, name);
    reply::fraction(context, value);
}

/// `BF.DEBUG key`
///
/// Replies with a line for the filter and one for each layer, in RedisBloom's format: `hashwidth` is the width of the hash, `ratio`
/// the layer's own rate.
pub fn debug(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let key = ReadKey::open(keys, args.arg(1)?);
    let filter = key.filter()?.ok_or(Refusal::NotFound)?;
    let hash_bits = filter.hash_bits();
    reply::array(context, filter.layer_count() + 1);
    reply::bytes(context, Text::of(format_args!("size:{}", filter.items())).bytes());
    for layer in filter.layers() {
        let LayerSummary { size_bytes, bits, hashes, capacity, items, rate } = layer;
        let ratio = General(rate);
        let line = Text::of(format_args!(
            "bytes:{size_bytes} bits:{bits} hashes:{hashes} hashwidth:{hash_bits} capacity:{capacity} size:{items} ratio:{ratio}",
        ));
        reply::bytes(context, line.bytes());
    }
    Ok(())
}

/// Formats a positive number as C's `%g` does: six digits, without trailing zeros, with an exponent if it is small.
struct General(f64);

impl Display for General {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let number = self.0;
        let scientific = Text::of(format_args!("{number:.5e}"));
        let (digits, exponent) = scientific.as_str().split_once('e').unwrap_or((scientific.as_str(), "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let trimmed = |text: &str| text.trim_end_matches('0').trim_end_matches('.').len();
        if (-4..6).contains(&exponent) {
            let decimals = usize::try_from(5 - exponent).unwrap_or(0);
            let plain = Text::of(format_args!("{number:.decimals$}"));
            let length = if decimals == 0 { plain.bytes().len() } else { trimmed(plain.as_str()) };
            f.write_str(plain.as_str().get(..length).unwrap_or_default())
        } else {
            let sign = if exponent < 0 { '-' } else { '+' };
            let digits = digits.get(..trimmed(digits)).unwrap_or_default();
            write!(f, "{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
    }
}

/// `BF.PLAN error_rate capacity [option ...]`
///
/// Replies with the properties of a planned filter, under the names of BF.STATS.
pub fn plan(context: Context, mut args: Args<'_>, _: &mut Keyspace) -> Result<(), Refusal> {
    let parsed = plan::parse(args.words(), &config::defaults(context, Origin::Client));
    redact_key(context, Origin::Client, &mut args, Command::Plan);
    let Asked { spec, items } = parsed?;
    let (names, plan) = (spec.names(), spec.plan(items)?);
    reply::map(context, 8);
    text(context, c"Kind", names.kind);
    text(context, c"Layout", names.layout);
    text(context, c"Hash", names.hash);
    fraction(context, Field::Error.words().1, spec.rate());
    number(context, Field::Capacity.words().1, plan.capacity);
    number(context, Field::Size.words().1, plan.size_bytes);
    fraction(context, c"Bits per item", plan.bits_per_item());
    reply::simple_string(context, c"Layers");
    reply::array(context, plan.layers.len());
    for PlannedLayer { capacity, size_bytes, hashes } in plan.layers {
        reply::map(context, 3);
        number(context, Field::Capacity.words().1, capacity);
        number(context, Field::Size.words().1, size_bytes);
        number(context, c"Hashes", hashes.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From `printf %g`.
    #[test]
    fn numbers_look_as_in_c() {
        let printed = [
            (0.01, "0.01"),
            (0.0003125, "0.0003125"),
            (0.005, "0.005"),
            (0.25, "0.25"),
            (0.123_456_789, "0.123457"),
            (0.000_1, "0.0001"),
            (0.000_099_999_999, "0.0001"),
            (0.000_01, "1e-05"),
            (1.234_567_8e-12, "1.23457e-12"),
            (1e-100, "1e-100"),
            (1.0, "1"),
            (123_456.7, "123457"),
            (1_234_567.0, "1.23457e+06"),
        ];
        for (number, text) in printed {
            assert_eq!(General(number).to_string(), text);
        }
    }
}
