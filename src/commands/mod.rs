//! The commands, one file a verb, and the table of all of them. No `unsafe` but for what turns the server's pointers
//! into words.

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
mod mdel;
mod merge;
mod mexists;
mod plan;
mod reserve;
mod rotate;
mod scandump;
mod stats;

use std::ffi::c_int;

use bloomgate_filter::words;
use redis_module::raw;

use super::args::Args;
use super::context::{Context, OK};
use super::keys::Keyspace;
use super::registration::{Access, Argument, CACHE_KEY_WORD, Command, FILTER_WORD, Keys};
use super::reply::{self, Refusal};

/// What a verb does: it replies, or refuses before it has changed anything.
type Verb = fn(Context, Args<'_>, &mut Keyspace) -> Result<(), Refusal>;

/// The function that the server calls for a verb.
macro_rules! handler {
    ($verb:path) => {
        handler!(dispatch, $verb)
    };
    ($dispatch:path, $verb:path) => {{
        unsafe extern "C" fn handle(
            context: *mut raw::RedisModuleCtx,
            argv: *mut *mut raw::RedisModuleString,
            argc: c_int,
        ) -> c_int {
            let context = Context::new(context);
            // SAFETY: the server calls this with its context and the words of a command, which live until it returns. No key is
            // open yet.
            let (args, mut keys) = unsafe { (Args::new(argv, argc), Keyspace::new(context)) };
            $dispatch(context, args, &mut keys, $verb)
        }
        Some(handle)
    }};
}

#[inline]
fn dispatch(context: Context, args: Args<'_>, keys: &mut Keyspace, verb: Verb) -> c_int {
    if let Err(refusal) = verb(context, args, keys) {
        refuse(context, refusal);
    }
    OK
}

/// As [`dispatch`], for a command with a filter and a cache key: the server asks it where its keys are.
fn dispatch_or_tell_keys(context: Context, args: Args<'_>, keys: &mut Keyspace, verb: Verb) -> c_int {
    // SAFETY: the context is valid; it is asked for positions, and then they are told.
    unsafe {
        if raw::RedisModule_IsKeysPositionRequest.is_some_and(|asks| asks(context.raw) != 0) {
            if let Some(tell) = raw::RedisModule_KeyAtPos {
                [FILTER_WORD, CACHE_KEY_WORD].into_iter().for_each(|position| tell(context.raw, position));
            }
            return OK;
        }
    }
    dispatch(context, args, keys, verb)
}

/// Replies with an error. What a primary did and this server cannot do, for want of memory or of layers, would leave an
/// item out that is in: better no server than that. Other errors are the filter's own, and the primary had them, too, where
/// commands are carried word for word.
fn refuse(context: Context, refusal: Refusal) {
    if refusal.is_want() && context.must_obey() {
        context.cannot_obey(refusal);
    }
    reply::error(context, refusal);
}

/// Redacts the secret key of a filter, if the words contain one, in SLOWLOG and MONITOR. Call it after parsing: on Valkey 8.1 the
/// command does not see the redacted word either.
///
/// While the server reads its AOF, nothing is redacted. Neither SLOWLOG nor MONITOR shows those commands, and the server keeps the
/// words of the first one that is redacted: it crashes at the second.
fn redact_key(context: Context, args: &mut Args<'_>, command: words::Command) {
    if !context.is_loading()
        && let Some(position) = words::key_position(command, args.words())
    {
        args.redact(context, position);
    }
}

/// What the server calls when a client that waits in BF.FETCH is unblocked by hand.
const FETCH_UNBLOCKED: raw::RedisModuleCmdFunc = handler!(fetch::unblocked);

const CAPACITY: Argument = Argument::integer(c"capacity");
const ERROR: Argument = Argument::double(c"error");
const EXPANSION: Argument = Argument::integer(c"expansion").after(c"EXPANSION").optional();
const NONSCALING: Argument = Argument::flag(c"nonscaling", c"NONSCALING");
const SEED: Argument = Argument::string(c"seed").after(c"SEED").optional();
const LAYOUT: Argument = Argument::string(c"layout").after(c"LAYOUT").optional();
const HASH: Argument = Argument::string(c"hash").after(c"HASH").optional();
const WINDOW: Argument = Argument::integer(c"window").after(c"WINDOW").optional();
const ROLLING: Argument = Argument::flag(c"rolling", c"ROLLING");
const BUCKETS: Argument = Argument::integer(c"buckets").after(c"BUCKETS").optional();
const SLIDING: Argument = Argument::flag(c"sliding", c"SLIDING");
const COUNTING: Argument = Argument::flag(c"counting", c"COUNTING");
const EX: Argument = Argument::integer(c"seconds").after(c"EX").optional();
const PX: Argument = Argument::integer(c"milliseconds").after(c"PX").optional();
const ITEM: Argument = Argument::string(c"item");
const FILTER: Argument = Argument::key(c"filter", 0);
const CACHE_KEY: Argument = Argument::key(c"cachekey", 1);

/// Every command of the module.
pub const COMMANDS: &[Command] = &[
    Command {
        name: c"bf.reserve",
        handler: handler!(reserve::run),
        arity: -4,
        access: Access::Write,
        keys: Keys::First,
        categories: c"write fast",
        summary: c"Creates an empty Bloom filter for a number of items at a false positive rate",
        complexity: c"O(1)",
        since: c"1.0.0",
        arguments: &[
            Argument::KEY,
            Argument::double(c"error_rate"),
            CAPACITY,
            EXPANSION,
            NONSCALING,
            SEED,
            LAYOUT,
            HASH,
            WINDOW,
            ROLLING,
            BUCKETS,
            SLIDING,
            COUNTING,
            EX,
            PX,
        ],
    },
    Command {
        name: c"bf.rotate",
        handler: handler!(rotate::run),
        arity: -2,
        access: Access::Write,
        keys: Keys::First,
        categories: c"write",
        summary: c"Begins the next bucket of a filter that forgets; tells how many items went with the oldest",
        complexity: c"O(N), where N is the number of buckets",
        since: c"8.0.0",
        arguments: &[Argument::KEY],
    },
    Command {
        name: c"bf.add",
        handler: handler!(add::run),
        arity: 3,
        access: Access::Write,
        keys: Keys::First,
        categories: c"write",
        summary: c"Adds an item to a Bloom filter, which is created if there is none",
        complexity: c"O(N), where N is the number of layers",
        since: c"1.0.0",
        arguments: &[Argument::KEY, ITEM],
    },
    Command {
        name: c"bf.madd",
        handler: handler!(madd::run),
        arity: -3,
        access: Access::Write,
        keys: Keys::First,
        categories: c"write",
        summary: c"Adds items to a Bloom filter, which is created if there is none",
        complexity: c"O(M * N), where M is the number of items and N the number of layers",
        since: c"1.0.0",
        arguments: &[Argument::KEY, ITEM.repeated()],
    },
    Command {
        name: c"bf.insert",
        handler: handler!(insert::run),
        arity: -4,
        access: Access::Write,
        keys: Keys::First,
        categories: c"write",
        summary: c"Adds items to a Bloom filter, which is created as described if there is none",
        complexity: c"O(M * N), where M is the number of items and N the number of layers",
        since: c"1.0.0",
        arguments: &[
            Argument::KEY,
            CAPACITY.after(c"CAPACITY").optional(),
            ERROR.after(c"ERROR").optional(),
            EXPANSION,
            Argument::flag(c"nocreate", c"NOCREATE"),
            NONSCALING,
            SEED,
            Argument::double(c"tightening").after(c"TIGHTENING").optional(),
            LAYOUT,
            Argument::integer(c"validatescaleto").after(c"VALIDATESCALETO").optional(),
            HASH,
            WINDOW,
            ROLLING,
            BUCKETS,
            SLIDING,
            COUNTING,
            EX,
            PX,
            Argument::flag(c"sync", c"SYNC"),
            ITEM.after(c"ITEMS").optional().repeated(),
        ],
    },
    Command {
        name: c"bf.del",
        handler: handler!(del::run),
        arity: 3,
        access: Access::Release,
        keys: Keys::First,
        categories: c"write",
        summary: c"Deletes an item from a Bloom filter that can delete; tells whether it was found",
        complexity: c"O(N), where N is the number of layers",
        since: c"8.0.0",
        arguments: &[Argument::KEY, ITEM],
    },
    Command {
        name: c"bf.mdel",
        handler: handler!(mdel::run),
        arity: -3,
        access: Access::Release,
        keys: Keys::First,
        categories: c"write",
        summary: c"Deletes items from a Bloom filter that can delete; tells of each whether it was found",
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
        summary: c"Tells whether an item may be in a Bloom filter; no is certain",
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
        summary: c"Tells of each item whether it may be in a Bloom filter; no is certain",
        complexity: c"O(M * N), where M is the number of items and N the number of layers",
        since: c"1.0.0",
        arguments: &[Argument::KEY, ITEM.repeated()],
    },
    Command {
        name: c"bf.fetch",
        handler: handler!(dispatch_or_tell_keys, fetch::run),
        arity: -4,
        access: Access::Fetch,
        keys: Keys::FilterAndCache,
        categories: c"write fast",
        summary: c"Asks a Bloom filter and the cache for the value of an item, and lets one caller load it",
        complexity: c"O(N), where N is the number of layers",
        since: c"8.0.0",
        arguments: &[
            FILTER,
            ITEM,
            CACHE_KEY,
            Argument::integer(c"lease").after(c"LEASE").optional(),
            Argument::integer(c"stale").after(c"STALE").optional(),
            Argument::integer(c"wait").after(c"WAIT").optional(),
        ],
    },
    Command {
        name: c"bf.fill",
        handler: handler!(dispatch_or_tell_keys, fill::run),
        arity: -6,
        access: Access::Fill,
        keys: Keys::FilterAndCache,
        categories: c"write",
        summary: c"Takes the value that the holder of a lease loaded, or that there is none, and ends the lease",
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
        ],
    },
    Command {
        name: c"bf.changed",
        handler: handler!(dispatch_or_tell_keys, changed::run),
        arity: 4,
        access: Access::Release,
        keys: Keys::FilterAndCache,
        categories: c"write",
        summary: c"Tells of a row, before and after it is written: its item is added, its cached value deleted",
        complexity: c"O(N), where N is the number of layers",
        since: c"8.0.0",
        arguments: &[FILTER, ITEM, CACHE_KEY],
    },
    Command {
        name: c"bf.info",
        handler: handler!(info::run),
        arity: -2,
        access: Access::Read,
        keys: Keys::First,
        categories: c"read fast",
        summary: c"Tells the capacity, size in bytes, layers, items and expansion of a Bloom filter",
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
        summary: c"Tells how many items were added to a Bloom filter",
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
        summary: c"Tells how often an item is in a filter that counts, up to 15; others may share its counters",
        complexity: c"O(1)",
        since: c"8.0.0",
        arguments: &[Argument::KEY, ITEM],
    },
    Command {
        name: c"bf.debug",
        handler: handler!(debug::run),
        arity: 2,
        access: Access::Read,
        keys: Keys::First,
        categories: c"read",
        summary: c"Tells the sizes of a Bloom filter and of its layers",
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
        summary: c"Dumps a Bloom filter, record by record",
        complexity: c"O(N), where N is the size of a record",
        since: c"1.0.0",
        arguments: &[Argument::KEY, Argument::integer(c"iterator")],
    },
    Command {
        name: c"bf.merge",
        handler: handler!(merge::run),
        arity: -3,
        access: Access::Write,
        keys: Keys::FirstAndSources,
        categories: c"write",
        summary: c"Merges Bloom filters into one, which is created if there is none",
        complexity: c"O(N), where N is the size of all filters together",
        since: c"8.0.0",
        arguments: &[Argument::key(c"destination", 0), Argument::key(c"source", 1).repeated()],
    },
    Command {
        name: c"bf.clear",
        handler: handler!(clear::run),
        arity: 2,
        access: Access::Release,
        keys: Keys::First,
        categories: c"write",
        summary: c"Empties a Bloom filter, which stays as it was created",
        complexity: c"O(N), where N is the number of layers",
        since: c"8.0.0",
        arguments: &[Argument::KEY],
    },
    Command {
        name: c"bf.stats",
        handler: handler!(stats::run),
        arity: 2,
        access: Access::Read,
        keys: Keys::First,
        categories: c"read",
        summary: c"Tells what a Bloom filter is, how full it is and how often it is wrong now",
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
        summary: c"Tells what a Bloom filter would take, without making one",
        complexity: c"O(N), where N is the number of layers that it would have",
        since: c"8.0.0",
        arguments: &[
            Argument::double(c"error_rate"),
            CAPACITY,
            EXPANSION,
            NONSCALING,
            SEED,
            Argument::double(c"tightening").after(c"TIGHTENING").optional(),
            LAYOUT,
            HASH,
            WINDOW,
            ROLLING,
            BUCKETS,
            SLIDING,
            COUNTING,
            Argument::integer(c"items").after(c"ITEMS").optional(),
        ],
    },
    Command {
        name: c"bf.load",
        handler: handler!(load::run),
        arity: 3,
        access: Access::Write,
        keys: Keys::First,
        categories: c"write",
        summary: c"Restores a filter of valkey-bloom's layout; the AOF is made of it",
        complexity: c"O(N), where N is the size of the data",
        since: c"1.0.0",
        arguments: &[Argument::KEY, Argument::string(c"data")],
    },
    Command {
        name: c"bf.loadchunk",
        handler: handler!(loadchunk::run),
        arity: 4,
        access: Access::Write,
        keys: Keys::First,
        categories: c"write",
        summary: c"Restores a Bloom filter, record by record; the AOF is made of them",
        complexity: c"O(N), where N is the size of the data",
        since: c"1.0.0",
        arguments: &[Argument::KEY, Argument::integer(c"iterator"), Argument::string(c"data")],
    },
];
