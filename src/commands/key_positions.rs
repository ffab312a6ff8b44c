//! The positions of the keys in the guard's commands, which the server requests: a single range cannot describe them.

use std::ffi::c_int;
use std::num::NonZeroUsize;

use redis_module::raw;

use super::dispatch::{Run, dispatch};
use crate::api;
use crate::args::Args;
use crate::context::{Context, OK};
use crate::guard::arguments::{self, Fetch};
use crate::keys::Keyspace;

/// Like [`dispatch`], for a command with a filter and a cache key. The server also calls it for the positions of its keys.
pub fn dispatch_or_report_keys(context: Context, args: Args<'_>, keys: &mut Keyspace, run: Run) -> c_int {
    if asks_for_keys(context) {
        // The key specifications cover every key, so the server does not use the flags.
        return report_keys(context, [1, 3].into_iter(), CHANGES);
    }
    dispatch(context, args, keys, run)
}

/// Like [`dispatch_or_report_keys`], for BF.MCHANGED.
pub fn dispatch_mchanged(context: Context, args: Args<'_>, keys: &mut Keyspace, run: Run) -> c_int {
    if asks_for_keys(context) {
        // The filter, and the second word of each pair.
        return report_keys(context, [1].into_iter().chain((4..args.count()).step_by(2)), CHANGES);
    }
    dispatch(context, args, keys, run)
}

/// Like [`dispatch_or_report_keys`], for BF.FETCH.
pub fn dispatch_fetch(context: Context, args: Args<'_>, keys: &mut Keyspace, run: Run) -> c_int {
    if asks_for_keys(context) {
        return report_fetched_keys(context, [3].into_iter(), arguments::fetch(args.words()).ok());
    }
    dispatch(context, args, keys, run)
}

/// Like [`dispatch_or_report_keys`], for BF.MFETCH.
pub fn dispatch_mfetch(context: Context, args: Args<'_>, keys: &mut Keyspace, run: Run) -> c_int {
    if asks_for_keys(context) {
        let parsed = arguments::mfetch(args.words()).ok();
        // The second word of each pair.
        let first = parsed.map_or(args.count(), |(_, first)| first + 1);
        return report_fetched_keys(context, (first..args.count()).step_by(2), parsed.map(|(options, _)| options));
    }
    dispatch(context, args, keys, run)
}

/// The flags of a key that may be changed.
const CHANGES: u32 = raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE;
/// The flags of a key that is read.
const READS: u32 = raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS;

/// Whether the server requests the positions of a command's keys instead of running it.
fn asks_for_keys(context: Context) -> bool {
    api::asks_for_keys(context) != 0
}

/// Reports the positions of a command's keys to the server.
fn report_keys(context: Context, positions: impl Iterator<Item = usize>, flags: u32) -> c_int {
    for position in positions.filter_map(|position| c_int::try_from(position).ok()) {
        api::report_key(context, position, flags.cast_signed());
    }
    OK
}

/// Reports the keys of BF.FETCH or BF.MFETCH: the filter, the cache keys, and the keys in the options. A caller may receive a lease, so
/// it needs permission to write the cache key.
fn report_fetched_keys(context: Context, cache_keys: impl Iterator<Item = usize>, options: Option<Fetch>) -> c_int {
    report_keys(context, [1].into_iter(), READS);
    report_keys(context, cache_keys, CHANGES);
    let others = options.map(|options| [options.while_key, options.unless_key]);
    report_keys(context, others.into_iter().flatten().flatten().map(NonZeroUsize::get), READS)
}
