//! `BF.INFO key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION | ERROR | TIGHTENING | MAXSCALEDCAPACITY]`
//!
//! Filters of our layout and of RedisBloom's answer as RedisBloom does, with five fields; of valkey-bloom's words they know
//! what they have, and answer a single value. Filters of valkey-bloom's layout answer as valkey-bloom does.

use crate::bloom::{BloomFilter, Filter, RedisBloomFilter, Scaling, ValkeyBloomFilter};
use crate::server::args::Args;
use crate::server::ceiling::ServerCeiling;
use crate::server::context::Context;
use crate::server::key::Key;
use crate::server::reply::{self, Refusal};
use crate::words::info::{self, Field};

/// What a field holds.
#[derive(Clone, Copy)]
enum Content {
    Number(u64),
    Fraction(f64),
    Nothing,
}

/// Answers all fields, or one.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let field = info::parse(args.words())?;
    let mut key = Key::read(context, args.word(1)?);
    let filter = key.filter()?.ok_or(Refusal::NotFound)?;
    if let Filter::ValkeyBloom(_) = filter {
        return as_valkey_bloom(context, filter, field);
    }
    match field {
        None => {
            reply::map(context, Field::REDISBLOOM.len());
            for field in Field::REDISBLOOM {
                reply::simple_string(context, field.words().1);
                value(context, content(context, filter, field)?);
            }
        }
        Some(field) => {
            let content = content(context, filter, field)?;
            if Field::REDISBLOOM.contains(&field) {
                // An array of one in RESP2, a map of one in RESP3.
                if context.speaks_resp3() {
                    reply::map(context, 1);
                    reply::simple_string(context, field.words().1);
                } else {
                    reply::array(context, 1);
                }
            }
            value(context, content);
        }
    }
    Ok(())
}

/// A flat array in both protocols; one field is its value alone.
fn as_valkey_bloom(context: Context, filter: &Filter, field: Option<Field>) -> Result<(), Refusal> {
    if let Some(field) = field {
        value(context, content(context, filter, field)?);
        return Ok(());
    }
    let fields = Field::VALKEY_BLOOM;
    let fields = if filter.scaling() == Scaling::Fixed { fields.get(..6).unwrap_or_default() } else { &fields };
    reply::array(context, fields.len() * 2);
    for field in fields {
        reply::simple_string(context, field.words().1);
        value(context, content(context, filter, *field)?);
    }
    Ok(())
}

/// # Errors
/// [`Refusal::InfoFieldMissing`] for what this filter has not.
fn content(context: Context, filter: &Filter, field: Field) -> Result<Content, Refusal> {
    Ok(match (field, filter) {
        (Field::Capacity, _) => Content::Number(filter.total_capacity()),
        (Field::Size, _) => Content::Number(filter.size_bytes()),
        (Field::Filters, _) => Content::Number(filter.layer_count() as u64),
        (Field::Items, _) => Content::Number(filter.items()),
        (Field::Error, _) => Content::Fraction(filter.rate()),
        (Field::Expansion, _) => match filter.scaling() {
            Scaling::Fixed => Content::Nothing,
            Scaling::Growing { expansion } => Content::Number(expansion.get().into()),
        },
        (Field::MaxScaledCapacity, _) if filter.scaling() != Scaling::Fixed => {
            Content::Number(max_scaled_capacity(context, filter))
        }
        // Of the others' filters none has one ratio from layer to layer that could be set.
        (Field::Tightening, Filter::ValkeyBloom(filter)) if filter.scaling() != Scaling::Fixed => {
            Content::Fraction(filter.rules().tightening)
        }
        (Field::Tightening | Field::MaxScaledCapacity, _) => return Err(Refusal::InfoFieldMissing),
    })
}

/// The number of items that a filter can grow to under the ceiling; where it is beyond that, what it has room for.
fn max_scaled_capacity(context: Context, filter: &Filter) -> u64 {
    let (ceiling, size_bytes) = (ServerCeiling(context), filter.size_bytes());
    let (rate, scaling) = (filter.rate(), filter.scaling());
    let reach = match filter {
        Filter::Native(filter) => BloomFilter::reach(rate, filter.capacity(), scaling, size_bytes, &ceiling),
        Filter::RedisBloom(filter) => RedisBloomFilter::reach(rate, filter.capacity(), scaling, size_bytes, &ceiling),
        Filter::ValkeyBloom(filter) => {
            ValkeyBloomFilter::reach(filter.rules(), filter.capacity(), size_bytes, &ceiling)
        }
    };
    reach.capacity.max(filter.total_capacity())
}

fn value(context: Context, content: Content) {
    match content {
        Content::Number(number) => reply::integer(context, number),
        Content::Fraction(number) => reply::fraction(context, number),
        Content::Nothing => reply::null(context),
    }
}
