//! The table of commands, and the functions that the server calls for them. The `unsafe` here turns the server's pointers into
//! arguments; the commands themselves have none.

use std::ffi::c_int;

use bloomgate_filter::words::fetch::{self as fetched, Fetch};
use redis_module::raw;

use super::{
    add, card, changed, clear, count, debug, del, exists, fetch, fill, info, insert, load, loadchunk, madd, mchanged,
    mdel, merge, mexists, mfetch, plan, reserve, rotate, scandump, stats,
};
use crate::args::{Arg, Args};
use crate::context::{Context, OK};
use crate::keys::Keyspace;
use crate::registration::{Access, Argument, Command, Keys};
use crate::reply::{self, Refusal};

/// Runs a command: replies, or returns a refusal before anything has changed.
type Run = fn(Context, Args<'_>, &mut Keyspace) -> Result<(), Refusal>;

/// Returns the function that the server calls for a command. `effect`: for one that primaries propagate.
macro_rules! handler {
    ($run:path) => {
        handler!(dispatch, $run)
    };
    (effect $run:path) => {{
        unsafe extern "C" fn handle(
            context: *mut raw::RedisModuleCtx,
            argv: *mut *mut raw::RedisModuleString,
            argc: c_int,
        ) -> c_int {
            let context = Context::new(context);
            // SAFETY: as below. The command has ended when the words are read again.
            unsafe {
                if let Err(refusal) = $run(context, Args::new(argv, argc), &mut Keyspace::new(context)) {
                    refuse_command(context, &Args::new(argv, argc), refusal);
                }
            }
            OK
        }
        Some(handle)
    }};
    ($dispatch:path, $run:path) => {{
        unsafe extern "C" fn handle(
            context: *mut raw::RedisModuleCtx,
            argv: *mut *mut raw::RedisModuleString,
            argc: c_int,
        ) -> c_int {
            let context = Context::new(context);
            // SAFETY: the server calls this function with its context and the words of a command, which live until it returns. No
            // key is open yet.
            let (args, mut keys) = unsafe { (Args::new(argv, argc), Keyspace::new(context)) };
            $dispatch(context, args, &mut keys, $run)
        }
        Some(handle)
    }};
}

#[inline]
fn dispatch(context: Context, args: Args<'_>, keys: &mut Keyspace, run: Run) -> c_int {
    if let Err(refusal) = run(context, args, keys) {
        reply::error(context, refusal);
    }
    OK
}

/// As [`refuse`](super::refuse), with the command and the key in the log.
#[cold]
fn refuse_command(context: Context, args: &Args<'_>, refusal: Refusal) {
    if context.must_obey() {
        let word = |index| args.arg(index).map_or(&[][..], Arg::bytes).escape_ascii();
        context.cannot_obey(format_args!("{} {}: {refusal}", word(0), word(1)));
    }
    reply::error(context, refusal);
}

/// As [`dispatch`], for a command with a filter and a cache key. The server also calls it to ask for the positions of its keys.
fn dispatch_or_report_keys(context: Context, args: Args<'_>, keys: &mut Keyspace, run: Run) -> c_int {
    if asks_for_keys(context) {
        // The key specifications cover every key, so the server does not use the flags.
        return report_keys(context, [1, 3].into_iter(), CHANGES);
    }
    dispatch(context, args, keys, run)
}

/// As [`dispatch_or_report_keys`], for BF.MCHANGED.
fn dispatch_mchanged(context: Context, args: Args<'_>, keys: &mut Keyspace, run: Run) -> c_int {
    if asks_for_keys(context) {
        return report_keys(context, mchanged::key_positions(args.words()), CHANGES);
    }
    dispatch(context, args, keys, run)
}

/// As [`dispatch_or_report_keys`], for BF.FETCH.
fn dispatch_fetch(context: Context, args: Args<'_>, keys: &mut Keyspace, run: Run) -> c_int {
    if asks_for_keys(context) {
        return report_fetched_keys(context, [3].into_iter(), fetched::parse(args.words()).ok());
    }
    dispatch(context, args, keys, run)
}

/// As [`dispatch_or_report_keys`], for BF.MFETCH.
fn dispatch_mfetch(context: Context, args: Args<'_>, keys: &mut Keyspace, run: Run) -> c_int {
    if asks_for_keys(context) {
        let (options, cache_keys) = mfetch::key_positions(args.words());
        return report_fetched_keys(context, cache_keys, options);
    }
    dispatch(context, args, keys, run)
}

/// The flags of a key that may be changed.
const CHANGES: u32 = raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE;
/// The flags of a key that is read.
const READS: u32 = raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS;

/// Whether the server asks for the positions of a command's keys, instead of running it.
fn asks_for_keys(context: Context) -> bool {
    // SAFETY: the context is valid.
    unsafe { raw::RedisModule_IsKeysPositionRequest.is_some_and(|asks| asks(context.raw) != 0) }
}

/// Reports the positions of a command's keys, on request of the server.
fn report_keys(context: Context, positions: impl Iterator<Item = usize>, flags: u32) -> c_int {
    for position in positions.filter_map(|position| c_int::try_from(position).ok()) {
        // SAFETY: the context is valid, and the server has asked. It checks the position.
        unsafe {
            if let Some(report) = raw::RedisModule_KeyAtPosWithFlags {
                report(context.raw, position, flags.cast_signed());
            }
        }
    }
    OK
}

/// Reports the keys of BF.FETCH or BF.MFETCH: the filter, the cache keys, and those of the options. A caller may get the lease of a
/// cache key, so it needs the permission to fill it.
fn report_fetched_keys(context: Context, cache_keys: impl Iterator<Item = usize>, options: Option<Fetch>) -> c_int {
    report_keys(context, [1].into_iter(), READS);
    report_keys(context, cache_keys, CHANGES);
    let others = options.map(|options| [options.while_key, options.unless_key]);
    report_keys(context, others.into_iter().flatten().flatten(), READS)
}

/// The function that the server calls when CLIENT UNBLOCK ends a client's wait in BF.FETCH.
pub(super) const FETCH_UNBLOCKED: raw::RedisModuleCmdFunc = handler!(fetch::unblocked);

const RATE: Argument = Argument::double(c"error_rate");
const CAPACITY: Argument = Argument::integer(c"capacity");
const EX: Argument = Argument::integer(c"seconds").after(c"EX").optional();
const PX: Argument = Argument::integer(c"milliseconds").after(c"PX").optional();
const ITEM: Argument = Argument::string(c"item");
const FILTER: Argument = Argument::key(c"filter", 0);
const CACHE_KEY: Argument = Argument::key(c"cachekey", 1);
const LEASE: Argument = Argument::integer(c"lease").after(c"LEASE").optional();
const STALE: Argument = Argument::integer(c"stale").after(c"STALE").optional();
const PAIRS: Argument = Argument::block(c"pair", &[ITEM, CACHE_KEY]).after(c"ITEMS").repeated();
const WHILE: Argument = Argument::key(c"while", 2).after(c"WHILE").optional();
const UNLESS: Argument = Argument::key(c"unless", 3).after(c"UNLESS").optional();

/// Every command of the module. The options of BF.RESERVE, BF.INSERT and BF.PLAN follow the arguments listed here: registration
/// takes them from the table in `words::options`.
pub const COMMANDS: &[Command] = &[
    Command {
        name: c"bf.reserve",
        handler: handler!(effect reserve::run),
        arity: -4,
        access: Access::Write,
        keys: Keys::First,
        categories: c"write fast",
        summary: c"Creates an empty Bloom filter for a number of items at a false positive rate",
        complexity: c"O(1)",
        since: c"1.0.0",
        arguments: &[Argument::KEY, RATE, CAPACITY],
    },
    Command {
        name: c"bf.rotate",
        handler: handler!(effect rotate::run),
        arity: -2,
        access: Access::Write,
        keys: Keys::First,
        categories: c"write",
        summary:
            c"Begins the next bucket of a filter that forgets, and returns the number of items dropped with the oldest",
        complexity: c"O(N), where N is the number of buckets",
        since: c"8.0.0",
        arguments: &[Argument::KEY],
    },
    Command {
        name: c"bf.add",
        handler: handler!(effect add::run),
        arity: 3,
        access: Access::Write,
        keys: Keys::First,
        categories: c"write",
        summary: c"Adds an item to a Bloom filter, which is created if it does not exist",
        complexity: c"O(N), where N is the number of layers",
        since: c"1.0.0",
        arguments: &[Argument::KEY, ITEM],
    },
    Command {
        name: c"bf.madd",
        handler: handler!(effect madd::run),
        arity: -3,
        access: Access::Write,
        keys: Keys::First,
        categories: c"write",
        summary: c"Adds items to a Bloom filter, which is created if it does not exist",
        complexity: c"O(M * N), where M is the number of items and N the number of layers",
        since: c"1.0.0",
        arguments: &[Argument::KEY, ITEM.repeated()],
    },
    Command {
        name: c"bf.insert",
        handler: handler!(effect insert::run),
        arity: -4,
        access: Access::Write,
        keys: Keys::First,
        categories: c"write",
        summary: c"Adds items to a Bloom filter, which is created with the given options if it does not exist",
        complexity: c"O(M * N), where M is the number of items and N the number of layers",
        since: c"1.0.0",
        arguments: &[Argument::KEY],
    },
    Command {
        name: c"bf.del",
        handler: handler!(effect del::run),
        arity: 3,
        access: Access::Release,
        keys: Keys::First,
        categories: c"write",
        summary: c"Deletes an item from a Bloom filter that allows deletes, and returns whether it was found",
        complexity: c"O(N), where N is the number of layers",
        since: c"8.0.0",
        arguments: &[Argument::KEY, ITEM],
    },
    Command {
        name: c"bf.mdel",
        handler: handler!(effect mdel::run),
        arity: -3,
        access: Access::Release,
        keys: Keys::First,
        categories: c"write",
        summary: c"Deletes items from a Bloom filter that allows deletes, and returns for each whether it was found",
        complexity: c"O(M * N), where M is the number of items and N the number of layers",
        since: c"8.0.0",
        arguments: &[Argument::KEY, ITEM.repeated()],
    },
    Command {
        name: c"bf.exists",
        handler: handler!(exists::run),
        arity: 3,
        access: Access::Read,
        keys: Keys::First,
        categories: c"read",
        summary: c"Returns whether an item may be in a Bloom filter; a no is certain",
        complexity: c"O(N), where N is the number of layers",
        since: c"1.0.0",
        arguments: &[Argument::KEY, ITEM],
    },
    Command {
        name: c"bf.mexists",
        handler: handler!(mexists::run),
        arity: -3,
        access: Access::Read,
        keys: Keys::First,
        categories: c"read",
        summary: c"Returns for each item whether it may be in a Bloom filter; a no is certain",
        complexity: c"O(M * N), where M is the number of items and N the number of layers",
        since: c"1.0.0",
        arguments: &[Argument::KEY, ITEM.repeated()],
    },
    Command {
        name: c"bf.fetch",
        handler: handler!(dispatch_fetch, fetch::run),
        arity: -4,
        access: Access::Fetch,
        keys: Keys::Fetch,
        categories: c"write fast",
        summary:
            c"Looks up an item in a Bloom filter and its value in the cache, and lets one caller load a missing value",
        complexity: c"O(N), where N is the number of layers",
        since: c"8.0.0",
        arguments: &[
            FILTER,
            ITEM,
            CACHE_KEY,
            LEASE,
            STALE,
            Argument::integer(c"wait").after(c"WAIT").optional(),
            WHILE,
            UNLESS,
        ],
    },
    Command {
        name: c"bf.mfetch",
        handler: handler!(dispatch_mfetch, mfetch::run),
        arity: -5,
        access: Access::Fetch,
        keys: Keys::FetchMany,
        categories: c"write",
        summary: c"Asks a Bloom filter and the cache for the values of items, and lets one caller load each",
        complexity: c"O(M * N), where M is the number of items and N the number of layers",
        since: c"8.0.0",
        arguments: &[FILTER, LEASE, STALE, WHILE, UNLESS, PAIRS],
    },
    Command {
        name: c"bf.fill",
        handler: handler!(dispatch_or_report_keys, fill::run),
        arity: -6,
        access: Access::Fill,
        keys: Keys::FilterAndCache,
        categories: c"write",
        summary: c"Stores the value that the holder of a token has loaded, or that there is none, and ends the lease",
        complexity: c"O(1), with clients that wait O(N), where N is their number",
        since: c"8.0.0",
        arguments: &[
            FILTER,
            ITEM,
            CACHE_KEY,
            Argument::string(c"token"),
            Argument::string(c"value").after(c"VALUE").optional(),
            Argument::flag(c"none", c"NONE"),
            EX,
            PX,
            Argument::flag(c"giveup", c"GIVEUP"),
            Argument::integer(c"backoff").after(c"BACKOFF").optional(),
        ],
    },
    Command {
        name: c"bf.changed",
        handler: handler!(dispatch_or_report_keys, changed::run),
        arity: 4,
        access: Access::Release,
        keys: Keys::FilterAndCache,
        categories: c"write",
        summary: c"Announces a row before and after it is written: adds its item and deletes its cached value",
        complexity: c"O(N), where N is the number of layers",
        since: c"8.0.0",
        arguments: &[FILTER, ITEM, CACHE_KEY],
    },
    Command {
        name: c"bf.mchanged",
        handler: handler!(dispatch_mchanged, mchanged::run),
        arity: -5,
        access: Access::Release,
        keys: Keys::FilterAndPairs,
        categories: c"write",
        summary: c"Announces changes to rows, before and after they are written: adds items, deletes cached values",
        complexity: c"O(M * N), where M is the number of items and N the number of layers",
        since: c"8.0.0",
        arguments: &[FILTER, PAIRS],
    },
    Command {
        name: c"bf.info",
        handler: handler!(info::run),
        arity: -2,
        access: Access::Inspect,
        keys: Keys::First,
        categories: c"read fast",
        summary: c"Returns the capacity, size in bytes, layers, items and expansion of a Bloom filter",
        complexity: c"O(1), MAXSCALEDCAPACITY O(N), where N is the number of layers",
        since: c"1.0.0",
        arguments: &[Argument::KEY, Argument::string(c"field").optional()],
    },
    Command {
        name: c"bf.card",
        handler: handler!(card::run),
        arity: 2,
        access: Access::Read,
        keys: Keys::First,
        categories: c"read fast",
        summary: c"Returns the number of items in a Bloom filter",
        complexity: c"O(1)",
        since: c"2.4.4",
        arguments: &[Argument::KEY],
    },
    Command {
        name: c"bf.count",
        handler: handler!(count::run),
        arity: 3,
        access: Access::Read,
        keys: Keys::First,
        categories: c"read fast",
        summary: c"Returns how often an item is in a counting filter, up to 15; other items may share its counters",
        complexity: c"O(1)",
        since: c"8.0.0",
        arguments: &[Argument::KEY, ITEM],
    },
    Command {
        name: c"bf.debug",
        handler: handler!(debug::run),
        arity: 2,
        access: Access::Inspect,
        keys: Keys::First,
        categories: c"read",
        summary: c"Returns the sizes of a Bloom filter and of its layers",
        complexity: c"O(N), where N is the number of layers",
        since: c"1.0.0",
        arguments: &[Argument::KEY],
    },
    Command {
        name: c"bf.scandump",
        handler: handler!(scandump::run),
        arity: 3,
        access: Access::Read,
        keys: Keys::First,
        categories: c"read",
        summary: c"Dumps a Bloom filter record by record",
        complexity: c"O(N), where N is the size of a record",
        since: c"1.0.0",
        arguments: &[Argument::KEY, Argument::integer(c"iterator")],
    },
    Command {
        name: c"bf.merge",
        handler: handler!(effect merge::run),
        arity: -3,
        access: Access::Write,
        keys: Keys::FirstAndSources,
        categories: c"write",
        summary: c"Merges Bloom filters into one, which is created if it does not exist",
        complexity: c"O(N), where N is the size of all filters together",
        since: c"8.0.0",
        arguments: &[Argument::key(c"destination", 0), Argument::key(c"source", 1).repeated()],
    },
    Command {
        name: c"bf.clear",
        handler: handler!(effect clear::run),
        arity: 2,
        access: Access::Release,
        keys: Keys::First,
        categories: c"write",
        summary: c"Removes all items from a Bloom filter, which keeps its options",
        complexity: c"O(N), where N is the number of layers",
        since: c"8.0.0",
        arguments: &[Argument::KEY],
    },
    Command {
        name: c"bf.stats",
        handler: handler!(stats::run),
        arity: 2,
        access: Access::Inspect,
        keys: Keys::First,
        categories: c"read",
        summary: c"Returns the parameters of a Bloom filter, its fill and its current false positive rate",
        complexity: c"O(N), where N is the size of the filter, of each layer at most 1 MiB",
        since: c"8.0.0",
        arguments: &[Argument::KEY],
    },
    Command {
        name: c"bf.plan",
        handler: handler!(plan::run),
        arity: -3,
        access: Access::Read,
        keys: Keys::None,
        categories: c"read fast",
        summary: c"Returns the size that a Bloom filter would have, without creating it",
        complexity: c"O(N), where N is the number of layers that it would have",
        since: c"8.0.0",
        arguments: &[RATE, CAPACITY],
    },
    Command {
        name: c"bf.load",
        handler: handler!(effect load::run),
        arity: 3,
        access: Access::Write,
        keys: Keys::First,
        categories: c"write",
        summary: c"Restores a filter of valkey-bloom's layout; a rewritten AOF contains this command",
        complexity: c"O(N), where N is the size of the data",
        since: c"1.0.0",
        arguments: &[Argument::KEY, Argument::string(c"data")],
    },
    Command {
        name: c"bf.loadchunk",
        handler: handler!(effect loadchunk::run),
        arity: 4,
        access: Access::Write,
        keys: Keys::First,
        categories: c"write",
        summary: c"Restores a Bloom filter record by record; a rewritten AOF contains this command",
        complexity: c"O(N), where N is the size of the data",
        since: c"1.0.0",
        arguments: &[Argument::KEY, Argument::integer(c"iterator"), Argument::string(c"data")],
    },
];
