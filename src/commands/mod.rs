//! The commands, one file each, and the table of all of them.

mod add;
mod adding;
mod card;
mod changed;
mod clear;
mod count;
mod debug;
mod del;
mod deleting;
mod exists;
mod fetch;
mod fill;
mod info;
mod insert;
mod load;
mod loadchunk;
mod madd;
mod mchanged;
mod mdel;
mod merge;
mod mexists;
mod mfetch;
mod plan;
mod reserve;
mod rotate;
mod scandump;
mod stats;
mod table;

use bloomgate_filter::words;
pub use table::COMMANDS;

use super::args::Args;
use super::context::Context;
use super::reply::{self, Refusal};

/// Replies with an error, or ends the server if the command is an effect: the primary has applied it, so a filter here would lack
/// something. Callers handle the few commands that RedisBloom and valkey-bloom propagate although they refused them.
fn refuse(context: Context, refusal: Refusal) {
    if context.must_obey() {
        context.cannot_obey(refusal);
    }
    reply::error(context, refusal);
}

/// Redacts the secret key of a filter, if the arguments contain one, in SLOWLOG and MONITOR. Call it after parsing: on Valkey 8.1
/// the command does not see the redacted argument either.
///
/// While the server reads its AOF, nothing is redacted. Neither SLOWLOG nor MONITOR shows those commands, and the server keeps the
/// arguments of the first redacted command and crashes at the second one.
fn redact_key(context: Context, args: &mut Args<'_>, command: words::Command) {
    if !context.is_loading()
        && let Some(position) = words::key_position(command, args.words())
    {
        args.redact(context, position);
    }
}
