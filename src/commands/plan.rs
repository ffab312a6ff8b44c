//! `BF.PLAN error_rate capacity [option ...]`

use bloomgate_filter::kinds::info::Field;
use bloomgate_filter::kinds::plan::PlannedLayer;
use bloomgate_filter::words::Command;
use bloomgate_filter::words::plan::{self, Asked};

use super::stats::{fraction, number, text};
use crate::args::Args;
use crate::config;
use crate::context::Context;
use crate::keys::Keyspace;
use crate::reply::{self, Refusal};

/// Replies with the properties that a filter would have, under the names of BF.STATS.
pub fn run(context: Context, mut args: Args<'_>, _: &mut Keyspace) -> Result<(), Refusal> {
    let parsed = plan::parse(args.words(), &config::defaults(context));
    super::redact_key(context, &mut args, Command::Plan);
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
