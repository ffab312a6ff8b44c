//! The table of commands: the arguments, flags and documentation of each.

use super::dispatch::handler;
use super::{add, clear, cuckoo, delete, dump, guard, info, key_positions, lookup, merge};
use crate::registration::{Access, Argument, Command, Keys};

const RATE: Argument = Argument::double(c"error_rate");
const CAPACITY: Argument = Argument::integer(c"capacity");
const EX: Argument = Argument::integer(c"seconds").after(c"EX").optional();
const PX: Argument = Argument::integer(c"milliseconds").after(c"PX").optional();
const ITEM: Argument = Argument::string(c"item");
const FILTER: Argument = Argument::key(c"filter", 0);
const CACHE_KEY: Argument = Argument::key(c"cachekey", 1);
const LEASE: Argument = Argument::integer(c"lease").after(c"LEASE").optional();
const STALE: Argument = Argument::integer(c"stale").after(c"STALE").optional();
const RENEW: Argument = Argument::integer(c"percent").after(c"RENEW").optional();
const REPLACE: Argument = Argument::flag(c"replace", c"REPLACE");
const PEEK: Argument = Argument::flag(c"peek", c"PEEK");
const BACKOFF: Argument = Argument::flag(c"backoff", c"BACKOFF");
const PAIRS: Argument = Argument::block(c"pair", &[ITEM, CACHE_KEY]).after(c"ITEMS").repeated();
const WHILE: Argument = Argument::key(c"while", 2).after(c"WHILE").optional();
const FRESH: Argument = Argument::integer(c"fresh").after(c"FRESH").optional();
const UNLESS: Argument = Argument::key(c"unless", 3).after(c"UNLESS").optional();
const CAPACITY_OPTION: Argument = CAPACITY.after(c"CAPACITY").optional();
const BUCKET_SIZE: Argument = Argument::integer(c"bucketsize").after(c"BUCKETSIZE").optional();
const MAX_ITERATIONS: Argument = Argument::integer(c"maxiterations").after(c"MAXITERATIONS").optional();
const EXPANSION: Argument = Argument::integer(c"expansion").after(c"EXPANSION").optional();
const NOCREATE: Argument = Argument::flag(c"nocreate", c"NOCREATE");
const ITEMS: Argument = ITEM.after(c"ITEMS").repeated();

/// The fields that most commands of cuckoo filters share.
const CUCKOO: Command = Command {
    name: c"",
    handler: None,
    access: Access::Read,
    keys: Keys::First,
    is_fast: false,
    summary: c"",
    complexity: c"O(1)",
    since: c"1.0.0",
    arguments: &[],
};

/// Every command of the module. Registration derives the arity from the arguments, and adds the options of BF.RESERVE, BF.INSERT and
/// BF.PLAN from the table in `arguments::options`.
pub const COMMANDS: &[Command] = &[
    Command {
        name: c"bf.reserve",
        handler: handler!(effect add::reserve),
        access: Access::Write,
        keys: Keys::First,
        is_fast: true,
        summary: c"Creates an empty Bloom filter for a number of items at a false positive rate",
        complexity: c"O(1)",
        since: c"1.0.0",
        arguments: &[Argument::KEY, RATE, CAPACITY],
    },
    Command {
        name: c"bf.rotate",
        handler: handler!(effect clear::rotate),
        access: Access::Write,
        keys: Keys::First,
        is_fast: false,
        summary:
            c"Begins the next bucket of a filter that forgets, and returns the number of items dropped with the oldest",
        complexity: c"O(N), where N is the number of buckets",
        since: c"8.0.0",
        // In an AOF, the bucket's slot, times and capacity follow.
        arguments: &[Argument::KEY, Argument::HIDDEN.optional()],
    },
    Command {
        name: c"bf.add",
        handler: handler!(effect add::add),
        access: Access::Write,
        keys: Keys::First,
        is_fast: false,
        summary: c"Adds an item to a Bloom filter, which is created if it does not exist",
        complexity: c"O(N), where N is the number of layers",
        since: c"1.0.0",
        arguments: &[Argument::KEY, ITEM],
    },
    Command {
        name: c"bf.madd",
        handler: handler!(effect add::madd),
        access: Access::Write,
        keys: Keys::First,
        is_fast: false,
        summary: c"Adds items to a Bloom filter, which is created if it does not exist",
        complexity: c"O(M * N), where M is the number of items and N the number of layers",
        since: c"1.0.0",
        arguments: &[Argument::KEY, ITEM.repeated()],
    },
    Command {
        name: c"bf.insert",
        handler: handler!(effect add::insert),
        access: Access::Write,
        keys: Keys::First,
        is_fast: false,
        summary: c"Adds items to a Bloom filter, which is created with the given options if it does not exist",
        complexity: c"O(M * N), where M is the number of items and N the number of layers",
        since: c"1.0.0",
        // An option and its value, or ITEMS and an item.
        arguments: &[Argument::KEY, Argument::HIDDEN, Argument::HIDDEN],
    },
    Command {
        name: c"bf.del",
        handler: handler!(effect delete::del),
        access: Access::Release,
        keys: Keys::First,
        is_fast: false,
        summary: c"Deletes an item from a Bloom filter that allows deletes, and returns whether it was found",
        complexity: c"O(N), where N is the number of layers",
        since: c"8.0.0",
        arguments: &[Argument::KEY, ITEM],
    },
    Command {
        name: c"bf.mdel",
        handler: handler!(effect delete::mdel),
        access: Access::Release,
        keys: Keys::First,
        is_fast: false,
        summary: c"Deletes items from a Bloom filter that allows deletes, and returns for each whether it was found",
        complexity: c"O(M * N), where M is the number of items and N the number of layers",
        since: c"8.0.0",
        arguments: &[Argument::KEY, ITEM.repeated()],
    },
    Command {
        name: c"bf.exists",
        handler: handler!(lookup::exists),
        access: Access::Read,
        keys: Keys::First,
        is_fast: false,
        summary: c"Returns whether an item may be in a Bloom filter; a no is certain",
        complexity: c"O(N), where N is the number of layers",
        since: c"1.0.0",
        arguments: &[Argument::KEY, ITEM],
    },
    Command {
        name: c"bf.mexists",
        handler: handler!(lookup::mexists),
        access: Access::Read,
        keys: Keys::First,
        is_fast: false,
        summary: c"Returns for each item whether it may be in a Bloom filter; a no is certain",
        complexity: c"O(M * N), where M is the number of items and N the number of layers",
        since: c"1.0.0",
        arguments: &[Argument::KEY, ITEM.repeated()],
    },
    Command {
        name: c"bf.fetch",
        handler: handler!(key_positions::dispatch_fetch, guard::fetch),
        access: Access::Fetch,
        keys: Keys::Fetch,
        is_fast: true,
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
            RENEW,
            REPLACE,
            PEEK,
            BACKOFF,
            Argument::integer(c"wait").after(c"WAIT").optional(),
            WHILE,
            FRESH,
            UNLESS,
        ],
    },
    Command {
        name: c"bf.mfetch",
        handler: handler!(key_positions::dispatch_mfetch, guard::mfetch),
        access: Access::Fetch,
        keys: Keys::FetchMany,
        is_fast: false,
        summary: c"Asks a Bloom filter and the cache for the values of items, and lets one caller load each",
        complexity: c"O(M * N), where M is the number of items and N the number of layers",
        since: c"8.0.0",
        arguments: &[FILTER, LEASE, STALE, RENEW, REPLACE, PEEK, BACKOFF, WHILE, FRESH, UNLESS, PAIRS],
    },
    Command {
        name: c"bf.fill",
        handler: handler!(key_positions::dispatch_or_report_keys, guard::fill),
        access: Access::Fill,
        keys: Keys::FilterAndCache,
        is_fast: false,
        summary: c"Stores the value that the holder of a token has loaded, or its absence, and ends the lease",
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
            BACKOFF,
            Argument::integer(c"milliseconds").optional(),
            // One of VALUE, NONE and GIVEUP.
            Argument::HIDDEN,
        ],
    },
    Command {
        name: c"bf.changed",
        handler: handler!(key_positions::dispatch_or_report_keys, guard::changed),
        access: Access::Release,
        keys: Keys::FilterAndCache,
        is_fast: false,
        summary: c"Announces a row before and after it is written: adds its item and deletes its cached value",
        complexity: c"O(N), where N is the number of layers",
        since: c"8.0.0",
        arguments: &[FILTER, ITEM, CACHE_KEY],
    },
    Command {
        name: c"bf.mchanged",
        handler: handler!(key_positions::dispatch_mchanged, guard::mchanged),
        access: Access::Release,
        keys: Keys::FilterAndPairs,
        is_fast: false,
        summary: c"Announces changes to rows, before and after they are written: adds items, deletes cached values",
        complexity: c"O(M * N), where M is the number of items and N the number of layers",
        since: c"8.0.0",
        arguments: &[FILTER, PAIRS],
    },
    Command {
        name: c"bf.info",
        handler: handler!(info::info),
        access: Access::Inspect,
        keys: Keys::First,
        is_fast: true,
        summary: c"Returns the capacity, size in bytes, layers, items and expansion of a Bloom filter",
        complexity: c"O(1), MAXSCALEDCAPACITY O(N), where N is the number of layers",
        since: c"1.0.0",
        arguments: &[Argument::KEY, Argument::string(c"field").optional()],
    },
    Command {
        name: c"bf.card",
        handler: handler!(info::card),
        access: Access::Read,
        keys: Keys::First,
        is_fast: true,
        summary: c"Returns the number of items in a Bloom filter",
        complexity: c"O(1)",
        since: c"2.4.4",
        arguments: &[Argument::KEY],
    },
    Command {
        name: c"bf.count",
        handler: handler!(lookup::count),
        access: Access::Read,
        keys: Keys::First,
        is_fast: true,
        summary: c"Returns how often an item was added to a cuckoo filter, up to 4, or to a counting filter, up to 15; or more by mistake",
        complexity: c"O(1)",
        since: c"8.0.0",
        arguments: &[Argument::KEY, ITEM],
    },
    Command {
        name: c"bf.debug",
        handler: handler!(info::debug),
        access: Access::Inspect,
        keys: Keys::First,
        is_fast: false,
        summary: c"Returns the sizes of a Bloom filter and of its layers",
        complexity: c"O(N), where N is the number of layers",
        since: c"1.0.0",
        arguments: &[Argument::KEY],
    },
    Command {
        name: c"bf.scandump",
        handler: handler!(dump::scandump),
        access: Access::Read,
        keys: Keys::First,
        is_fast: false,
        summary: c"Dumps a Bloom filter record by record",
        complexity: c"O(N), where N is the size of a record",
        since: c"1.0.0",
        arguments: &[Argument::KEY, Argument::integer(c"iterator")],
    },
    Command {
        name: c"bf.merge",
        handler: handler!(effect merge::merge),
        access: Access::Write,
        keys: Keys::FirstAndSources,
        is_fast: false,
        summary: c"Merges Bloom filters into one, which is created if it does not exist",
        complexity: c"O(N), where N is the size of all filters together",
        since: c"8.0.0",
        arguments: &[Argument::key(c"destination", 0), Argument::key(c"source", 1).repeated()],
    },
    Command {
        name: c"bf.clear",
        handler: handler!(effect clear::clear),
        access: Access::Release,
        keys: Keys::First,
        is_fast: false,
        summary: c"Removes all items from a Bloom filter, which keeps its options",
        complexity: c"O(N), where N is the number of layers",
        since: c"8.0.0",
        arguments: &[Argument::KEY],
    },
    Command {
        name: c"bf.stats",
        handler: handler!(info::stats),
        access: Access::Inspect,
        keys: Keys::First,
        is_fast: false,
        summary: c"Returns the parameters of a Bloom filter, its fill and its current false positive rate",
        complexity: c"O(N), where N is the size of the filter, of each layer at most 1 MiB",
        since: c"8.0.0",
        arguments: &[Argument::KEY],
    },
    Command {
        name: c"bf.plan",
        handler: handler!(info::plan),
        access: Access::Read,
        keys: Keys::None,
        is_fast: true,
        summary: c"Returns the size that a Bloom filter would have, without creating it",
        complexity: c"O(N), where N is the number of layers that it would have",
        since: c"8.0.0",
        arguments: &[RATE, CAPACITY],
    },
    Command {
        name: c"bf.load",
        handler: handler!(effect dump::load),
        access: Access::Write,
        keys: Keys::First,
        is_fast: false,
        summary: c"Restores a Bloom filter from one record; a rewritten AOF contains this command",
        complexity: c"O(N), where N is the size of the data",
        since: c"1.0.0",
        arguments: &[Argument::KEY, Argument::string(c"data")],
    },
    Command {
        name: c"bf.loadchunk",
        handler: handler!(effect dump::loadchunk),
        access: Access::Write,
        keys: Keys::First,
        is_fast: false,
        summary: c"Restores a Bloom filter record by record; a rewritten AOF contains this command",
        complexity: c"O(N), where N is the size of the data",
        since: c"1.0.0",
        arguments: &[Argument::KEY, Argument::integer(c"iterator"), Argument::string(c"data")],
    },
    Command {
        name: c"cf.reserve",
        handler: handler!(effect cuckoo::reserve),
        access: Access::Write,
        is_fast: true,
        summary: c"Creates an empty cuckoo filter",
        arguments: &[Argument::KEY, CAPACITY, BUCKET_SIZE, MAX_ITERATIONS, EXPANSION],
        ..CUCKOO
    },
    Command {
        name: c"cf.add",
        handler: handler!(effect cuckoo::add),
        access: Access::Write,
        summary: c"Adds an item to a cuckoo filter, which is created if it does not exist",
        complexity: c"O(N + I), where N is the number of sub-filters and I the number of iterations",
        arguments: &[Argument::KEY, ITEM],
        ..CUCKOO
    },
    Command {
        name: c"cf.addnx",
        handler: handler!(effect cuckoo::addnx),
        access: Access::Write,
        summary: c"Adds an item to a cuckoo filter, which is created if it does not exist, unless the item is found",
        complexity: c"O(N + I), where N is the number of sub-filters and I the number of iterations",
        arguments: &[Argument::KEY, ITEM],
        ..CUCKOO
    },
    Command {
        name: c"cf.insert",
        handler: handler!(effect cuckoo::insert),
        access: Access::Write,
        summary: c"Adds items to a cuckoo filter, which is created if it does not exist",
        complexity: c"O(M * (N + I)), for M items, N sub-filters and I iterations",
        arguments: &[Argument::KEY, CAPACITY_OPTION, NOCREATE, ITEMS],
        ..CUCKOO
    },
    Command {
        name: c"cf.insertnx",
        handler: handler!(effect cuckoo::insertnx),
        access: Access::Write,
        summary: c"Adds the items that are not found to a cuckoo filter, which is created if it does not exist",
        complexity: c"O(M * (N + I)), for M items, N sub-filters and I iterations",
        arguments: &[Argument::KEY, CAPACITY_OPTION, NOCREATE, ITEMS],
        ..CUCKOO
    },
    Command {
        name: c"cf.exists",
        handler: handler!(cuckoo::exists),
        summary: c"Returns whether an item may be in a cuckoo filter",
        complexity: c"O(N), where N is the number of sub-filters",
        arguments: &[Argument::KEY, ITEM],
        ..CUCKOO
    },
    Command {
        name: c"cf.mexists",
        handler: handler!(cuckoo::mexists),
        summary: c"Returns for each item whether it may be in a cuckoo filter",
        complexity: c"O(M * N), where M is the number of items and N the number of sub-filters",
        arguments: &[Argument::KEY, ITEM.repeated()],
        ..CUCKOO
    },
    Command {
        name: c"cf.count",
        handler: handler!(cuckoo::count),
        summary: c"Returns how often an item may be in a cuckoo filter",
        complexity: c"O(N), where N is the number of sub-filters",
        arguments: &[Argument::KEY, ITEM],
        ..CUCKOO
    },
    Command {
        name: c"cf.del",
        handler: handler!(effect cuckoo::del),
        access: Access::Release,
        summary: c"Deletes an item from a cuckoo filter once, and returns whether it was found",
        complexity: c"O(N), where N is the number of sub-filters",
        arguments: &[Argument::KEY, ITEM],
        ..CUCKOO
    },
    Command {
        name: c"cf.compact",
        handler: handler!(effect cuckoo::compact),
        access: Access::Release,
        summary: c"Moves the items of a cuckoo filter to its older sub-filters, and frees those that are empty then",
        complexity: c"O(N), where N is the size of the filter",
        arguments: &[Argument::KEY],
        ..CUCKOO
    },
    Command {
        name: c"cf.info",
        handler: handler!(cuckoo::info),
        access: Access::Inspect,
        is_fast: true,
        summary: c"Returns the size of a cuckoo filter, its items, and its parameters",
        arguments: &[Argument::KEY],
        ..CUCKOO
    },
    Command {
        name: c"cf.debug",
        handler: handler!(cuckoo::debug),
        access: Access::Inspect,
        summary: c"Returns the numbers of CF.INFO as one line",
        arguments: &[Argument::KEY],
        ..CUCKOO
    },
    Command {
        name: c"cf.scandump",
        handler: handler!(cuckoo::scandump),
        summary: c"Dumps a cuckoo filter record by record",
        complexity: c"O(N), where N is the size of a record",
        arguments: &[Argument::KEY, Argument::integer(c"iterator")],
        ..CUCKOO
    },
    Command {
        name: c"cf.loadchunk",
        handler: handler!(effect cuckoo::loadchunk),
        access: Access::Write,
        summary: c"Restores a cuckoo filter record by record; a rewritten AOF contains this command",
        complexity: c"O(N), where N is the size of the data",
        arguments: &[Argument::KEY, Argument::integer(c"iterator"), Argument::string(c"data")],
        ..CUCKOO
    },
];
