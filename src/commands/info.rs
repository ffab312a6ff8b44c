//! `BF.INFO key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION | ERROR | TIGHTENING | MAXSCALEDCAPACITY]`
//!
//! For filters of our layout and RedisBloom's the reply is RedisBloom's, with five fields. They also accept those words of
//! valkey-bloom's for which they have a value, and reply with that value. For filters of valkey-bloom's layout the reply is
//! valkey-bloom's.

use bloomgate_filter::kinds::info::{Content, Field, InfoStyle};
use bloomgate_filter::words::info;
use bloomgate_filter::{Filter, Scaling};

use crate::args::Args;
use crate::clock::CommandClock;
use crate::context::Context;
use crate::keys::{Keyspace, ReadKey};
use crate::reply::{self, Refusal};
use crate::server::ceiling::ServerCeiling;

/// Replies with all fields, or one.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let field = info::parse(args.words());
    if field == Err(Refusal::Arity) {
        return Err(Refusal::Arity);
    }
    // RedisBloom checks the key before it parses the field.
    let key = ReadKey::open(keys, args.arg(1)?);
    let filter = key.filter()?.ok_or(Refusal::NotFound)?;
    let field = field?;
    match (field, filter.info_style()) {
        (None, style) => all_fields(context, filter, style),
        (Some(field), style) => {
            let content = content(context, filter, field)?;
            if style == InfoStyle::RedisBloom && Field::REDISBLOOM.contains(&field) {
                // An array of one in RESP2, a map of one in RESP3.
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
    }
}

fn all_fields(context: Context, filter: &Filter, style: InfoStyle) -> Result<(), Refusal> {
    let fields: &[Field] = match style {
        InfoStyle::RedisBloom => &Field::REDISBLOOM,
        // A fixed filter does not have the last two.
        InfoStyle::ValkeyBloom if filter.scaling() == Scaling::Fixed => {
            Field::VALKEY_BLOOM.get(..6).unwrap_or_default()
        }
        InfoStyle::ValkeyBloom => &Field::VALKEY_BLOOM,
    };
    match style {
        InfoStyle::RedisBloom => reply::map(context, fields.len()),
        InfoStyle::ValkeyBloom => reply::array(context, fields.len() * 2),
    }
    for field in fields {
        reply::simple_string(context, field.words().1);
        value(context, content(context, filter, *field)?);
    }
    Ok(())
}

/// # Errors
/// [`Refusal::InfoFieldMissing`] for a field that this filter does not have.
fn content(context: Context, filter: &Filter, field: Field) -> Result<Content, Refusal> {
    filter.info(field, &CommandClock::default(), &ServerCeiling::of(context)).ok_or(Refusal::InfoFieldMissing)
}

fn value(context: Context, content: Content) {
    match content {
        Content::Number(number) => reply::integer(context, number),
        Content::Fraction(number) => reply::fraction(context, number),
        Content::Nothing => reply::null(context),
    }
}
